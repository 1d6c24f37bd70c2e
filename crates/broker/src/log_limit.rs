//! How often a line may be logged that clients can bring about.

use std::sync::Mutex;

use peerbus_os::sync::lock;

/// Lines of one kind that are logged per [`LOG_WINDOW_MS`]; of the rest their number.
const LINES_MAX: u64 = 10;
const LOG_WINDOW_MS: u64 = 10_000;

/// Kinds of lines that clients can bring about.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Registered,
    Renamed,
    Retired,
    Left,
    Denied,
    Refused,
    Held,
    Overflow,
    Tls,
    Forgotten,
}

impl Kind {
    /// What the lines of each kind are called in a sum, in the order of the kinds.
    const WORDS: [&str; 10] = [
        "peers registered",
        "peers renamed",
        "names ended for good",
        "peers left",
        "peers denied",
        "messages refused",
        "messages held back",
        "connections closed that do not read",
        "clients that TLS kept away",
        "names forgotten at a token's limit",
    ];
}

/// Lets a bounded number of lines of each kind through per window of time.
#[derive(Debug, Default)]
pub(crate) struct LogLimit {
    window: Mutex<Window>,
}

#[derive(Debug, Default)]
struct Window {
    number: u64,
    lines: [u64; Kind::WORDS.len()],
}

impl LogLimit {
    /// Counts a line; whether it is to be logged.
    pub(crate) fn admit(&self, kind: Kind, now_ms: u64) -> bool {
        self.sum_up(now_ms);
        self.with(|window| {
            let lines = &mut window.lines[kind as usize];
            *lines += 1;
            *lines <= LINES_MAX
        })
    }

    /// Once a window has passed: logs how many lines it left out, and begins anew. With the
    /// greatest time, at the end.
    pub(crate) fn sum_up(&self, now_ms: u64) {
        let number = now_ms / LOG_WINDOW_MS;
        let omitted: Vec<_> = self.with(|window| {
            if number == window.number {
                return Vec::new();
            }
            let omitted = window.omitted().collect();
            *window = Window {
                number,
                ..Window::default()
            };
            omitted
        });
        for (what, more) in omitted {
            tracing::warn!(more, "{what}: not logged one by one");
        }
    }

    /// When there is something to sum up.
    pub(crate) fn due_ms(&self) -> Option<u64> {
        self.with(|window| {
            let end_ms = |_| (window.number + 1) * LOG_WINDOW_MS;
            window.omitted().next().map(end_ms)
        })
    }

    fn with<T>(&self, look: impl FnOnce(&mut Window) -> T) -> T {
        look(&mut lock(&self.window))
    }
}

impl Window {
    fn omitted(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let more = self
            .lines
            .iter()
            .map(|lines| lines.saturating_sub(LINES_MAX));
        Kind::WORDS
            .into_iter()
            .zip(more)
            .filter(|(_, more)| *more > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_one_kind_is_logged_in_part_and_counted() {
        let limit = LogLimit::default();
        let logged = (0..1_000).filter(|_| limit.admit(Kind::Denied, 0)).count();
        assert_eq!(logged, 10);
        assert!(limit.admit(Kind::Left, 0), "another kind has its own");
        limit.sum_up(LOG_WINDOW_MS - 1);
        let omitted: Vec<_> = limit.with(|window| window.omitted().collect());
        assert_eq!(omitted, [("peers denied", 990)]);
        assert_eq!(limit.due_ms(), Some(LOG_WINDOW_MS));
        limit.sum_up(LOG_WINDOW_MS);
        assert_eq!(limit.due_ms(), None);
        let admitted = limit.admit(Kind::Denied, LOG_WINDOW_MS);
        assert!(admitted, "the next window is another one");
    }
}
