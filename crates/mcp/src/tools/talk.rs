//! Arguments that say what a message has to do with others.

use peerbus_adapter::mailbox::{Mailbox, Parent};
use peerbus_wire::{Conversation, MessageId, Priority, escape, is_id_part};

use super::Context;
use crate::arguments::{Argument, ArgumentKind, Arguments};

/// Longest argument that an error repeats, in characters.
pub(super) const SHOWN_CHARS: usize = 60;
/// Messages that are listed where several are meant.
const LISTED: usize = 8;

pub(super) const BODY: Argument = Argument::required(
    "body",
    ArgumentKind::Text,
    "The message: plain text, or JSON.",
);
pub(super) const PRIORITY: Argument = Argument::new(
    "priority",
    ArgumentKind::Word(&Priority::WORDS),
    "quiet starts no turn there; next when absent.",
);
pub(super) const THREAD: Argument = Argument::new("thread", ArgumentKind::Text, "");
pub(super) const REPLY_TO: Argument = Argument::new("reply_to", ArgumentKind::Text, "");

/// What a call's body says of its conversation, and what its arguments say instead.
///
/// A reply goes on where the message left off that it answers, if this session was shown that; to
/// name a message is to have seen it. In a turn that peers' mail started it also says how many
/// replies led there.
pub(super) fn of(
    context: &Context<'_>,
    to: Option<&str>,
    body: &str,
    arguments: &Arguments,
) -> Result<Conversation, String> {
    let reply_to = id(arguments, "reply_to")?;
    let (thread, priority) = (thread(context, arguments)?, priority(arguments)?);
    let mut talk = Conversation::of(body);
    talk.reply_to = reply_to.or(talk.reply_to);
    let mut answers = false;
    if let Some(id) = talk.reply_to.take() {
        let parent = match is_id_part(id.as_str()) {
            true => meant(context.mailbox, &id, None)?,
            // A whole id that several used is in nobody's conversation.
            false => context
                .mailbox
                .machine(|it, _| it.parent(id.as_str(), None)),
        };
        context.mailbox.named(id.as_str(), None);
        if let Some(parent) = &parent {
            let reply = Conversation::reply(&parent.id, &parent.talk);
            (talk.thread, talk.hops) = (talk.thread.or(reply.thread), reply.hops);
            answers = true;
        }
        talk.reply_to = Some(parent.map_or(id, |parent| parent.id));
        talk.hops = talk.hops.max(1);
    }
    talk.thread = thread.or(talk.thread);
    talk.priority = priority.unwrap_or(talk.priority);
    Ok(match answers {
        true => talk,
        false => context.mailbox.led_to(to, talk),
    })
}

pub(super) fn priority(arguments: &Arguments) -> Result<Option<Priority>, String> {
    let Some(word) = optional(arguments, "priority")? else {
        return Ok(None);
    };
    Priority::parse(&word).map(Some).ok_or_else(|| {
        let word = escape(&word, SHOWN_CHARS);
        format!("the argument priority must be now, next or quiet, got \"{word}\"")
    })
}

fn thread(context: &Context<'_>, arguments: &Arguments) -> Result<Option<String>, String> {
    let Some(given) = id(arguments, "thread")? else {
        return Ok(None);
    };
    let mut known = context.mailbox.machine(|it, _| it.threads(given.as_str()));
    match (known.len(), known.pop()) {
        (1, Some(known)) => Ok(Some(known)),
        (0, _) => Ok(Some(given.to_string())),
        _ => Err(format!(
            "several conversations go by {given}: give more of the id"
        )),
    }
}

/// The message that is meant by an id, or a part of it, if this session knows it.
///
/// # Errors
///
/// Several are meant: a sentence that lists them.
pub(super) fn meant(
    mailbox: &Mailbox,
    id: &MessageId,
    from: Option<&str>,
) -> Result<Option<Parent>, String> {
    let (meant, all) = mailbox.machine(|it, _| {
        let meant = it.parent(id.as_str(), from);
        (meant, it.parents(id.as_str()))
    });
    let is_from = |it: &&Parent| from.is_none_or(|from| it.from.eq_ignore_ascii_case(from));
    let all = all.iter().filter(is_from).take(LISTED);
    let all: Vec<_> = all.map(|it| format!("{} of {}", it.id, it.from)).collect();
    match meant.is_none() && !all.is_empty() {
        true => Err(format!(
            "several messages go by {id}: {}; give more of the id, or say whose it is: `from`",
            all.join(", ")
        )),
        false => Ok(meant),
    }
}

/// The id of a message that this session sent, by the id or a part of it.
pub(super) fn own(mailbox: &Mailbox, id: String) -> Result<String, String> {
    let mut sent = mailbox.machine(|it, _| it.sent_as(&id));
    if sent.len() < 2 || sent.contains(&id) {
        return Ok(sent.pop().filter(|_| sent.is_empty()).unwrap_or(id));
    }
    sent.truncate(LISTED);
    let sent = sent.join(", ");
    Err(format!(
        "several messages go by {id}: {sent}; give more of the id"
    ))
}

/// An argument that has the form of a message id and may be absent.
pub(super) fn id(arguments: &Arguments, name: &str) -> Result<Option<MessageId>, String> {
    let Some(text) = optional(arguments, name)? else {
        return Ok(None);
    };
    MessageId::parse(&text)
        .map(Some)
        .map_err(|error| format!("the argument {name} has not the form of an id: {error}"))
}

/// An argument that must be a text where it is not absent; `null` and an empty text count as
/// absent.
pub(super) fn optional(arguments: &Arguments, name: &str) -> Result<Option<String>, String> {
    match arguments.json(name) {
        None | Some("null" | "\"\"") => Ok(None),
        Some(_) => arguments.string(name).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(json: &str) -> Arguments {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn what_is_wrong_is_named_with_what_was_found() {
        let wrong = arguments(r#"{"priority":"urgent<","reply_to":"a b","thread":7}"#);
        assert_eq!(
            priority(&wrong),
            Err(r#"the argument priority must be now, next or quiet, got "urgent\u003c""#.into())
        );
        let reply_to = id(&wrong, "reply_to").unwrap_err();
        assert!(reply_to.starts_with("the argument reply_to has not the form of an id"));
        assert!(
            id(&wrong, "thread")
                .unwrap_err()
                .contains("thread must be a string, got a number")
        );
    }

    #[test]
    fn what_is_absent_says_nothing() {
        for none in ["{}", r#"{"priority":null,"thread":""}"#] {
            let none = arguments(none);
            assert_eq!((priority(&none), id(&none, "thread")), (Ok(None), Ok(None)));
        }
        let quiet = priority(&arguments(r#"{"priority":"quiet"}"#));
        assert_eq!(quiet, Ok(Some(Priority::Quiet)));
    }
}
