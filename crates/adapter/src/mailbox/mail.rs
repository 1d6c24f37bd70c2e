//! A message from the bus, as the mailbox has it.

use peerbus_peer::mailbox::{Mail, Portion, Wanted};
use peerbus_peer::session::Inbound;
use peerbus_wire::Conversation;

use super::push::until;
use super::{measure, quote};
use crate::wall_ms;

/// A message from the bus, with what the mailbox has to know of it.
pub(super) fn mail(inbound: Inbound) -> Mail {
    let talk = Conversation::of(&inbound.body);
    let text = quote::said(&inbound.body);
    let chars = text.chars().count();
    let (beginning, part) = (measure::beginning(&text), measure::part(&text));
    let wanted = match inbound.within_ms {
        0 => Wanted::default(),
        within_ms => Wanted {
            gist: quote::gist(&text),
            until: until(wall_ms().saturating_add(within_ms)),
        },
    };
    drop(text);
    let mut mail = Mail {
        inbound,
        talk,
        bytes: 0,
        chars,
        beginning,
        part,
        wanted,
        answers: false,
        images: Vec::new(),
    };
    let line = measure::inert(&quote::line(&mail, false, Portion::All), None);
    mail.bytes = line.len().max(mail.inbound.body.len());
    mail
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use peerbus_peer::mailbox::{AttemptItem, Content, No};
    use peerbus_peer::session::Key;
    use peerbus_wire::Kind;

    use super::super::Push;
    use super::*;

    #[test]
    fn the_size_of_a_message_is_that_of_what_is_shown() {
        let meta = vec![(String::from("from"), "@".repeat(2_000))];
        let talk = Conversation {
            meta,
            ..Conversation::default()
        };
        let body = talk.write(&format!("\"{}\"", "@".repeat(3_000)));
        let large = mail(Inbound {
            key: Key::local(1),
            id: "m1".into(),
            from: "bob".into(),
            source: "test".into(),
            kind: Kind::Msg,
            ts: String::new(),
            body,
            again: false,
            to: None,
            group: None,
            one: false,
            token: None,
            approves: false,
            age_ms: 0,
            within_ms: 0,
        });
        let item = AttemptItem {
            no: No(1),
            repeat: false,
            portion: Portion::All,
            content: Content::Mail(Arc::new(large.clone())),
            first: false,
            held: None,
        };
        let push = Push {
            attempt: None,
            mark: None,
            items: vec![item],
            rest: 0,
            held: 0,
            receipts: Vec::new(),
        };
        assert_eq!(push.text().len(), large.bytes);
        let (content, meta) = push.channel();
        assert!(content.len() <= large.bytes, "{}", content.len());
        assert!(meta.iter().all(|(_, said)| said.len() <= 1_100), "{meta:?}");
    }
}
