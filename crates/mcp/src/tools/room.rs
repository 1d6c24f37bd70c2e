//! The length of results: clients cut a long one, or give their model the name of a file instead.

use std::collections::BTreeMap;

use peerbus_adapter::mailbox::{Listed, Mail, Mailbox, No, Portion, quote};
use serde::Serialize;

use super::json;

/// A result as it is written, escapes and all: Claude Code 2.1.331 gave a result of 47 KB to its model, and the
/// beginning alone of one of 61 KB.
pub(crate) const RESULT_BYTES: usize = 32 * 1024;
/// Room beside the lists in a result: for its note, its mark, a word about the call.
const ABOUT_BYTES: usize = 2 * 1024;
/// Most notices in a result,
const NOTICES_MAX: usize = 64;
/// and what they take; the longest has room.
const NOTICES_BYTES: usize = 8 * 1024;
/// Room that is kept for each sender's first message while another one's is chosen; less if there are many.
const SHARE_BYTES: usize = 2 * 1024;
/// Room in which each message goes, if only a part of it.
const LEAST_BYTES: usize = 4 * 1024;

/// The length of something in a result, in bytes.
pub(super) fn written(it: &impl Serialize) -> usize {
    json(it).map_or(0, |json| json.len())
}

/// The first of a list that have room in so many bytes, and their length.
pub(super) fn firsts<T: Serialize>(all: impl Iterator<Item = T>, room: usize) -> (Vec<T>, usize) {
    let (mut firsts, mut bytes) = (Vec::new(), 0);
    for it in all {
        let more = bytes + written(&it) + 1;
        if more > room {
            break;
        }
        bytes = more;
        firsts.push(it);
    }
    (firsts, bytes)
}

/// The beginning of a text that has room in so many bytes of JSON.
pub(super) fn cut(text: &str, bytes: usize) -> String {
    let shown: String = text.chars().take(quote::fitting(text, bytes)).collect();
    let more = if shown.len() < text.len() { "…" } else { "" };
    quote::within_json(&shown) + more
}

/// The oldest notices that have room, and their length.
pub(super) fn notices(mailbox: &Mailbox) -> (Vec<(No, Portion)>, usize) {
    let (mut chosen, mut bytes) = (Vec::new(), 0);
    let (notices, room) = mailbox.machine(|it, _| (it.notices(), it.room(NOTICES_BYTES)));
    for (no, sentence) in notices {
        let more = bytes + written(&&*sentence) + 1;
        if more > room && !chosen.is_empty() || chosen.len() >= NOTICES_MAX {
            break;
        }
        bytes = more;
        chosen.push((no, Portion::All));
    }
    (chosen, bytes)
}

/// The room for messages beside `others`.
pub(super) const fn beside(others: usize) -> usize {
    RESULT_BYTES.saturating_sub(ABOUT_BYTES + others)
}

/// The same where the client cuts what is longer.
pub(super) fn left(mailbox: &Mailbox, others: usize) -> usize {
    let whole = mailbox.machine(|it, _| it.room(RESULT_BYTES));
    whole.saturating_sub(ABOUT_BYTES + others)
}

/// The messages that go, at most `max`, and how much of each, in parts of at most `part` characters: the first of
/// each sender before the second of any. `write`: how long one is with so much of its text.
pub(super) fn choose(
    found: &[Listed],
    (max, part): (usize, usize),
    room: usize,
    write: impl Fn(&Mail, Portion) -> usize,
) -> Vec<(No, Portion)> {
    let (order, firsts) = in_turn(found, max);
    let share = SHARE_BYTES.min(room / firsts.max(1));
    let (mut left, mut chosen) = (room, Vec::new());
    for (at, listed) in order.into_iter().enumerate() {
        let kept = share * firsts.saturating_sub(at + 1);
        let most = left.saturating_sub(kept).max(LEAST_BYTES).min(left);
        let next = match listed.read > 0 || listed.mail.chars > part {
            true => Portion::part(listed.read, listed.mail.chars, part),
            false => Portion::All,
        };
        let fitting = fit(&listed.mail, next, most, &write);
        let Some((portion, bytes)) = fitting.filter(|(it, _)| at < firsts || *it == next) else {
            break;
        };
        left -= bytes;
        chosen.push((listed.no, portion));
    }
    chosen
}

/// As many as may go, in the order in which they are chosen; so many of them are the first of their senders.
pub(super) fn in_turn(found: &[Listed], max: usize) -> (Vec<&Listed>, usize) {
    let senders = found.iter().map(|listed| &listed.mail.inbound);
    let turns = turns(senders.map(|it| (it.from.as_str(), it.party())));
    let mut turns: Vec<_> = turns.into_iter().zip(found).collect();
    turns.sort_by_key(|(turn, _)| *turn);
    turns.truncate(max);
    let firsts = turns.iter().filter(|(turn, _)| *turn == 0).count();
    (
        turns.into_iter().map(|(_, listed)| listed).collect(),
        firsts,
    )
}

/// The how many-eth of its sender each message is, by its name and who answers for that. Somebody with a token or
/// a domain can have any number of names; a name that got another token meanwhile is one sender, whose messages go
/// in order.
fn turns<'a>(messages: impl Iterator<Item = (&'a str, Option<String>)>) -> Vec<usize> {
    let (mut senders, mut counts) = (BTreeMap::new(), BTreeMap::new());
    let turn = |(from, party): (&'a str, Option<String>)| {
        let sender = senders.entry(from).or_insert(party.ok_or(from));
        let count = counts.entry(sender.clone()).or_insert(0);
        *count += 1;
        *count - 1
    };
    messages.map(turn).collect()
}

/// As much of a portion as has room, and its length; `None`: nothing of its text.
pub(super) fn fit(
    mail: &Mail,
    portion: Portion,
    room: usize,
    write: impl Fn(&Mail, Portion) -> usize,
) -> Option<(Portion, usize)> {
    let bytes = write(mail, portion) + 1;
    if bytes <= room {
        return Some((portion, bytes));
    }
    let (from, mut to, last) = match portion {
        Portion::Part { from, to, last } => (from, to, last),
        _ => (0, mail.chars, true),
    };
    // A whole body may have more than its text.
    let text = Portion::Part { from, to, last };
    let mut bytes = write(mail, text) + 1;
    if bytes <= room {
        return Some((text, bytes));
    }
    let until = |to| Portion::Part {
        from,
        to,
        last: false,
    };
    let beside = write(mail, until(from));
    while bytes > room && to > from {
        // What is escaped takes more room than the rest.
        let fits = (to - from) * room.saturating_sub(beside) / bytes.saturating_sub(beside).max(1);
        to = from + fits.min(to - from - 1);
        bytes = write(mail, until(to)) + 1;
    }
    (to > from).then(|| (until(to), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_names_messages_go_in_their_order_whatever_its_token_is_called() {
        let messages = [
            ("ann", None),
            ("ann", None),
            ("ann", Some("anns")),
            ("eve", Some("eves")),
            ("eve2", Some("eves")),
            ("eves", None),
        ];
        let messages = messages.map(|(from, party)| (from, party.map(str::to_owned)));
        assert_eq!(turns(messages.into_iter()), [0, 1, 2, 0, 1, 0]);
    }
}
