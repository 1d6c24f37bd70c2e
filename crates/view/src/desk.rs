//! Mail and requests that wait in a session, for the person who sits before it.

use peerbus_wire::{Receipt, escape, short_id};

use crate::text::{NAME_CHARS, quoted, span};
use crate::trail::Words;

/// Longest text of a message that is shown, in characters.
const TEXT_CHARS: usize = 80;
/// So many rows of one kind are shown.
const ROWS_MAX: usize = 8;

/// Mail and requests that wait, and for whom.
#[derive(Debug, Default)]
pub struct DeskView {
    /// Senders and texts of mail that the agent has not seen.
    pub unread: Vec<(String, String)>,
    /// Senders and ids of requests that it owes, and how many seconds their answers are still waited for.
    pub owed: Vec<(String, String, u64)>,
    /// Peers that wait for an answer.
    pub askers: Vec<String>,
    /// So much mail waits for the user, and so much is paused.
    pub kept: (usize, usize),
}

impl DeskView {
    /// All of it in one line: `1 unread, alice waits · 1 held`. `None`: nothing waits.
    #[must_use]
    pub fn line(&self) -> Option<String> {
        let count = |count: usize, word: &str| (count > 0).then(|| format!("{count} {word}"));
        let waits = match self.askers.as_slice() {
            [] => None,
            [one] => Some(format!("{} waits", name(one))),
            [one, more @ ..] => Some(format!("{} and {} more wait", name(one), more.len())),
        };
        let here: Vec<_> = [count(self.unread.len(), "unread"), waits]
            .into_iter()
            .flatten()
            .collect();
        let here = (!here.is_empty()).then(|| here.join(", "));
        let (held, paused) = self.kept;
        let parts = [here, count(held, "held"), count(paused, "paused")];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(" · "))
    }

    /// Each of it in a row, then how far messages of the session's own got, and peers, a line each.
    #[must_use]
    pub fn rows(&self, receipts: &[Receipt], peers: &[String]) -> Vec<String> {
        let mut rows = vec![
            self.line()
                .unwrap_or_else(|| "nothing waits in this session".to_owned()),
        ];
        let unread = self.unread.iter();
        let unread = unread
            .map(|(from, text)| format!("unread  {}: {}", name(from), quoted(text, TEXT_CHARS)));
        few(&mut rows, unread);
        let owed = self.owed.iter().map(|(from, id, left_s)| {
            let (id, left) = (escape(short_id(id), NAME_CHARS), span(*left_s));
            format!(
                "owed    {} waits for an answer to {id}, {left} more",
                name(from)
            )
        });
        few(&mut rows, owed);
        let (held, paused) = self.kept;
        if held > 0 {
            rows.push(format!(
                "held    {held}, for your word: `peerbus held` shows it, `peerbus held release DIGEST` \
                 lets it in"
            ));
        }
        if paused > 0 {
            rows.push(format!(
                "paused  {paused}, by the loop governor: the inbox tool reads it"
            ));
        }
        let receipts = receipts.iter().rev().map(|receipt| {
            let to = receipt.to.as_deref().unwrap_or("all");
            let id = escape(short_id(receipt.id.as_str()), NAME_CHARS);
            let state = Words::of(&receipt.stage).state;
            format!("sent    {id} to {}: {state}", name(to))
        });
        few(&mut rows, receipts);
        few(
            &mut rows,
            peers.iter().map(|peer| format!("peer    {peer}")),
        );
        rows
    }
}

fn name(name: &str) -> String {
    escape(name, NAME_CHARS)
}

fn few(rows: &mut Vec<String>, mut all: impl Iterator<Item = String>) {
    rows.extend(all.by_ref().take(ROWS_MAX));
    let more = all.count();
    rows.extend((more > 0).then(|| format!("        … and {more} more")));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_waits_and_for_whom() {
        let desk = |unread: usize, askers: &[&str], kept| DeskView {
            unread: vec![("bob".into(), "hi".into()); unread],
            askers: askers.iter().map(ToString::to_string).collect(),
            kept,
            ..DeskView::default()
        };
        for (desk, says) in [
            (desk(0, &[], (0, 0)), None),
            (
                desk(1, &["alice"], (1, 0)),
                Some("1 unread, alice waits · 1 held"),
            ),
            (
                desk(0, &["a\u{1b}", "bob", "carol"], (0, 0)),
                Some("a\\u001b and 2 more wait"),
            ),
            (desk(2, &[], (0, 3)), Some("2 unread · 3 paused")),
        ] {
            assert_eq!(desk.line().as_deref(), says);
        }
    }

    #[test]
    fn rows_are_few_and_nothing_that_a_peer_wrote_is_more_than_a_text() {
        let text = "hi`\u{1b}[31m\n\"held    0\u{202e}";
        let desk = DeskView {
            unread: vec![("eve\n".into(), text.into()); 40],
            owed: vec![("eve".into(), "m\u{1b}1".into(), 90)],
            kept: (2, 0),
            ..DeskView::default()
        };
        let rows = desk.rows(&[], &["ann · idle".to_owned()]);
        assert!(
            rows.iter().all(|row| !row.contains(char::is_control)),
            "{rows:?}"
        );
        assert_eq!(rows[1].matches('"').count(), 2, "{rows:?}");
        assert_eq!(rows[9], "        … and 32 more");
        assert_eq!(
            rows[10],
            "owed    eve waits for an answer to m\\u001b1, 90 s more"
        );
        assert!(rows[11].starts_with("held    2, for your word"), "{rows:?}");
        assert_eq!(rows[12..], ["peer    ann · idle"]);
    }
}
