//! `bus.reply`

use std::time::Duration;

use peerbus_adapter::mailbox::{HERE, Named, NotOwed, Owed, Parent, quote};
use peerbus_wire::{Conversation, Priority, Stage, escape};
use serde::Serialize;

use super::{Context, Known, Tool, body, done, send, talk};
use crate::arguments::{Argument, ArgumentKind, Arguments};
use crate::reply::Reply;
use crate::rpc::schemars::{self, JsonSchema};

/// How long it may take to look who is there.
const LOOK_UP: Duration = Duration::from_secs(2);
const DONE: &str = "done";
const FAILED: &str = "failed";
const WORKING: &str = "working";
const DECLINED: &str = "declined";
/// What can become of a request.
const OUTCOMES: [&str; 4] = [DONE, FAILED, WORKING, DECLINED];

#[derive(Serialize, JsonSchema)]
struct Output {
    /// A message left, or the peer is told what became of its request.
    sent: bool,
    /// Whom it is for.
    to: String,
    /// Absent where no message left.
    #[serde(flatten)]
    known: Option<Known>,
    /// The same as a sentence.
    note: String,
}

pub(crate) const TOOL: Tool = Tool {
    title: "Reply to a message",
    description: "Answers a message that you got over the peerbus: finds its sender, keeps \
        its thread. You owe an answer to every request that you have read: a reply ends it, `outcome` \
        says that it failed, that you decline it, or that you still work at it. If no answer is needed, \
        send none.",
    input: &[
        Argument::required("msg_id", ArgumentKind::Text, "The message's id."),
        Argument::new(
            "from",
            ArgumentKind::Text,
            "Its sender: says that no other message is meant whose id ends alike. Give it each time.",
        ),
        Argument::required(
            "body",
            ArgumentKind::Text,
            "The answer: plain text, or JSON. With working or declined one line: how far, or why not.",
        ),
        Argument::new(
            "outcome",
            ArgumentKind::Word(&OUTCOMES),
            "Of a request; done when absent. working keeps it yours and sends no message.",
        ),
        talk::PRIORITY,
    ],
    output: crate::rpc::output_schema::<Output>,
    open_world: true,
    always: true,
    ..Tool::new("bus.reply", |context, arguments| {
        Box::pin(call(context, arguments))
    })
};

async fn call(context: &Context<'_>, arguments: &Arguments) -> Result<Reply, String> {
    let Some(id) = talk::id(arguments, "msg_id")? else {
        return Err("the argument msg_id is missing; it is the id of the message to answer".into());
    };
    let (body, priority) = (body(arguments)?, talk::priority(arguments)?);
    let outcome = outcome(arguments)?;
    let from = talk::optional(arguments, "from")?;
    let mailbox = context.mailbox;
    let Some(parent) = talk::meant(mailbox, &id, from.as_deref())? else {
        return Err(format!(
            "whom to answer is not known: this session was shown no message {id}, or does not \
             remember it; use the bus send tool with `to`, and `reply_to` {id}"
        ));
    };
    let id = &parent.id;
    if from.is_none() && mailbox.machine(|it, _| it.is_uncertain(&parent)) {
        return Err(format!(
            "not sent: {id} of {} may not be the message that you mean; say whose that is: `from`",
            parent.from
        ));
    }
    let is_awaited = mailbox.named(id.as_str(), Some(&parent.from)) == Named::Awaited;
    if parent.from == HERE {
        return Err(format!(
            "{id} was put in by a program of your user's, which is not on the bus: answer in the \
             conversation"
        ));
    }
    match outcome {
        Some(word @ (WORKING | DECLINED)) => tell(context, &parent, (word, is_awaited), body).await,
        outcome => answer(context, parent, body, (priority, outcome)).await,
    }
}

fn outcome(arguments: &Arguments) -> Result<Option<&'static str>, String> {
    let Some(word) = talk::optional(arguments, "outcome")? else {
        return Ok(None);
    };
    let known = OUTCOMES.into_iter().find(|known| *known == word);
    known.map(Some).ok_or_else(|| {
        let word = escape(&word, talk::SHOWN_CHARS);
        format!("the argument outcome must be done, failed, working or declined, got \"{word}\"")
    })
}

/// Says what becomes of a request, without a message. The broker hears of work at one that was read, or
/// (`is_awaited`) will be read when the conversation shows it.
async fn tell(
    context: &Context<'_>,
    parent: &Parent,
    (word, is_awaited): (&str, bool),
    body: &str,
) -> Result<Reply, String> {
    let mailbox = context.mailbox;
    let (id, from) = (parent.id.as_str(), parent.from.as_str());
    let said = quote::said(body).into_owned();
    let (works, stage) = match word {
        WORKING => (true, Stage::Working { said }),
        _ => (false, Stage::Declined { why: said }),
    };
    let is_it = |owed: &Owed| owed.mail.inbound.id == id && owed.mail.inbound.from == from;
    let told = mailbox.machine(|it, now_ms| {
        let told = it.says_of(now_ms, (id, Some(from)), stage);
        told.map(|()| !works || is_awaited || it.owed().any(is_it))
    });
    match told {
        Ok(false) => Err(format!(
            "nobody was told: you have not read all of {id} yet; the bus inbox tool shows it"
        )),
        Ok(true) => done(&Output {
            sent: true,
            to: from.to_owned(),
            known: None,
            note: if works && is_awaited {
                format!("{from} is told that you work at it once your conversation shows {id}")
            } else {
                let (says, then) = match word {
                    WORKING => ("you work at it", "you still owe the answer"),
                    _ => ("you decline it", "you owe nothing for it any more"),
                };
                format!("{}; {then}", hears(context, from, word, says).await)
            },
        }),
        Err(NotOwed::Unknown | NotOwed::Several) => Err(format!(
            "nobody was told: {id} is no request that you owe an answer to. It is a plain message, or has \
             ended; leave `outcome` away to reply to it"
        )),
    }
}

/// The hearers of what becomes of a request, given who asked.
async fn hears(context: &Context<'_>, from: &str, word: &str, says: &str) -> String {
    let told = format!("{from} is told that {says}");
    // Of those in other domains the list does not tell.
    let peers = match from.contains('@') {
        true => return told,
        false => context.bus.peers(LOOK_UP).await,
    };
    let Ok(peers) = peers.map(|peers| peers.entries) else {
        return told;
    };
    let asker = peers.iter().find(|it| it.name.eq_ignore_ascii_case(from));
    match asker {
        Some(asker) if asker.online => told,
        Some(_) if word == WORKING => {
            format!("{from} is away: its request's state says that {says}, for when it looks")
        }
        Some(_) => format!("{from} is away, and is told that {says} when it is back"),
        None => format!("{from} has left, so nobody is told; its request's state says that {says}"),
    }
}

async fn answer(
    context: &Context<'_>,
    parent: Parent,
    body: &str,
    (priority, outcome): (Option<Priority>, Option<&str>),
) -> Result<Reply, String> {
    let (id, to) = (parent.id, parent.from);
    let said = Conversation::of(body);
    let talk = Conversation {
        priority: priority.unwrap_or(said.priority),
        failed: outcome.map_or(said.failed, |word| word == FAILED),
        ..Conversation::reply(&id, &parent.talk)
    };
    match send::deliver(context.mailbox, &to, body, &talk).await {
        Ok(sent) => done(&Output {
            sent: sent.sent,
            to: sent.to,
            known: Some(sent.known),
            note: sent.note,
        }),
        Err(error) if send::is_nobody(&error) => Err(format!(
            "not sent: {to} has left for good since it wrote {id}, as a command in a shell does \
             once it has sent. Nobody gets an answer; say it in the conversation if your user \
             should know it"
        )),
        Err(error) => Err(send::unsent(context.bus, &to, &error).await),
    }
}
