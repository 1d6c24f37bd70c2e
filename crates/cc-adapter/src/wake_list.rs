//! The ways of waking a session, as data; and `PEERBUS_WAKE`, which says those that may be used.

use std::str::FromStr;

use peerbus_adapter::mailbox::{Path, PathSpec};

/// The pause after a push, in milliseconds. The client takes about one each two seconds in the long
/// run.
const GAP_MS: u64 = 2_000;

/// The socket at which the session itself takes messages.
pub(crate) static SOCKET: PathSpec = PathSpec {
    word: "socket",
    rank: 0,
    joins_busy_turn: true,
    ..PathSpec::waking(GAP_MS)
};

/// A hook that waits in the background and rewakes its session.
pub(crate) static REWAKE: PathSpec = PathSpec {
    word: "rewake",
    rank: 1,
    one_shot: true,
    ..PathSpec::waking(0)
};

/// A `claude/channel` notification. Wakes, or is dropped without a word.
pub(crate) static CHANNEL: PathSpec = PathSpec {
    word: "channel",
    rank: 2,
    shows_over_dialogs: true,
    ..PathSpec::waking(GAP_MS)
};

/// The paths that wake a session of Claude Code, best first.
pub(crate) static WAKING: [Path; 3] = [&SOCKET, &REWAKE, &CHANNEL];

/// A choice of waking paths; all of them by default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WakeList(Vec<Path>);

impl WakeList {
    /// Whether this one may be used.
    #[must_use]
    pub fn allows(&self, path: Path) -> bool {
        self.0.contains(&path)
    }
}

impl Default for WakeList {
    fn default() -> Self {
        Self(WAKING.to_vec())
    }
}

impl FromStr for WakeList {
    type Err = String;

    /// Names with commas between them, or `none`.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim() == "none" {
            return Ok(Self(Vec::new()));
        }
        let name = |word: &str| {
            let known = WAKING.into_iter().find(|path| path.word == word.trim());
            known.ok_or_else(|| {
                format!(
                    "PEERBUS_WAKE has {:?}; it is a list of socket, rewake and channel with commas \
                     between them, or none",
                    peerbus_wire::escape(word.trim(), 40)
                )
            })
        };
        text.split(',')
            .map(name)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_allows_what_it_names() {
        let list: WakeList = "socket, channel".parse().unwrap();
        assert!(list.allows(&SOCKET) && list.allows(&CHANNEL));
        assert!(!list.allows(&REWAKE));
        let none: WakeList = "none".parse().unwrap();
        assert!(WAKING.iter().all(|path| !none.allows(path)));
        assert!(WAKING.iter().all(|path| WakeList::default().allows(path)));
    }

    #[test]
    fn what_is_no_path_is_named() {
        for (text, wrong) in [
            ("socket,sokcet", "sokcet"),
            ("", "\"\""),
            ("none,socket", "none"),
            ("hook", "hook"),
        ] {
            let error = text.parse::<WakeList>().unwrap_err();
            assert!(error.contains(wrong) && error.contains("rewake"), "{error}");
        }
    }
}
