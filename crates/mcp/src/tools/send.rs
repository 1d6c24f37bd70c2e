//! `bus.send`

use std::time::Duration;

use peerbus_adapter::mailbox::Mailbox;
use peerbus_adapter::paths::Paths;
use peerbus_adapter::{
    Accepted, Bus, Domain, RefusalCode, SendError, SentMessage, domains, groups, similar,
};
use peerbus_node::index::{self, LiveSession};
use peerbus_view::{Audience, PeerState, PeerView};
use peerbus_wire::Conversation;
use serde::Serialize;
use serde_json::Value;

use super::{Context, DEADLINE, Known, Tool, body, done, failure, sendable, talk};
use crate::arguments::{Argument, ArgumentKind, Arguments};
use crate::reply::Reply;
use crate::rpc::schemars::{self, JsonSchema};

/// How long it may take to look for names like an unknown one.
const LOOK_UP: Duration = Duration::from_millis(500);

#[derive(Serialize, JsonSchema)]
pub(super) struct Output {
    /// The message left. See `status` for what that means.
    pub(super) sent: bool,
    /// Its recipient.
    pub(super) to: String,
    #[serde(flatten)]
    pub(super) known: Known,
    /// The same as a sentence.
    pub(super) note: String,
}

pub(crate) const TOOL: Tool = Tool {
    title: "Send a message to a peer",
    description: "Sends a message to one peer on the peerbus: another AI agent's session, \
        here or elsewhere. The peer gets it even if it is away now. The answer says how far \
        the message got; it never means that it was read. Use the bus peers tool to find \
        names, and the bus reply tool to answer.",
    input: &[
        Argument::required(
            "to",
            ArgumentKind::Text,
            "The peer's name; NAME@DOMAIN in another domain; #GROUP for every other member of a group.",
        ),
        Argument::new(
            "one",
            ArgumentKind::Flag,
            "With #GROUP: a job for one member, an idle one first. When that one does not see it within \
             ten minutes, or ends, the next one gets it; the bus status tool says who has it.",
        ),
        talk::BODY,
        talk::PRIORITY,
        talk::THREAD,
        Argument::new(
            "reply_to",
            ArgumentKind::Text,
            "A message's id. A request of that peer's ends with it.",
        ),
    ],
    output: crate::rpc::output_schema::<Output>,
    open_world: true,
    always: true,
    ..Tool::new("bus.send", |context, arguments| {
        Box::pin(call(context, arguments))
    })
};

async fn call(context: &Context<'_>, arguments: &Arguments) -> Result<Reply, String> {
    let (mut to, body) = (arguments.string("to")?, body(arguments)?);
    if arguments.flag("one")? {
        to = one_of(&to)?;
    }
    let talk = talk::of(context, Some(&to), body, arguments)?;
    let sent = deliver(context.mailbox, &to, body, &talk).await;
    match sent {
        Ok(sent) => done(&sent),
        Err(error) => Err(unsent(context.bus, &to, &error).await),
    }
}

/// Sends what an agent says with a tool of its client's own, as the send tool does. What came of it, as a
/// sentence. `None`: nobody here is called so, and that tool may know better.
pub async fn send_text(mailbox: &Mailbox, to: &str, text: &str) -> Option<Result<String, String>> {
    let json = Value::from(text).to_string();
    if let Err(why) = sendable(&json) {
        return Some(Err(why));
    }
    let talk = Conversation::of(&json);
    let talk = mailbox.led_to(Some(to), talk);
    match deliver(mailbox, to, &json, &talk).await {
        Ok(sent) => Some(Ok(format!("{}: {}", sent.known.id(), sent.note))),
        Err(error) if is_nobody(&error) && !is_address(to) => None,
        Err(SendError::InvalidRecipient(_)) if !is_address(to) => None,
        Err(error) => Some(Err(unsent(mailbox.bus(), to, &error).await)),
    }
}

/// Whether it can be nothing else than a name on the bus: one with its domain, or a group.
#[must_use]
pub fn is_address(to: &str) -> bool {
    to.starts_with('#') || to.contains('@')
}

/// The address of one member of a group.
fn one_of(to: &str) -> Result<String, String> {
    match to.starts_with('#') {
        true => Ok(format!("{}!", to.trim_end_matches('!'))),
        false => Err(format!(
            "`one` is for a group, and \"{}\" is none: write its # in front, or leave `one` away",
            peerbus_wire::escape(to, 80)
        )),
    }
}

/// Sends `body`, saying `talk`, and tells how far it got.
pub(super) async fn deliver(
    mailbox: &Mailbox,
    to: &str,
    body: &str,
    talk: &Conversation,
) -> Result<Output, SendError> {
    let bus = mailbox.bus();
    let sent = bus.send(to, &talk.write(body), DEADLINE).await?;
    mailbox.sent(Some(to), &sent.id, talk);
    let abroad = bus.abroad(to);
    let is_away = matches!(
        sent.accepted,
        Some(Accepted {
            online: 0,
            recipients: 1..,
            ..
        })
    );
    let silent = match is_away && abroad.is_none() && !to.starts_with('#') {
        true => why_stopped(bus, to).await,
        false => None,
    };
    let still = match is_away || abroad.is_some() || to.starts_with('#') {
        true => None,
        false => stands_still(&bus.at_home(to)),
    };
    let still = still.map_or_else(String::new, |still| format!("; {still}"));
    let note = note(&sent, to, abroad.as_ref(), silent.as_deref()) + &still;
    let mistaken = groups::mistaken(to, |name| std::env::var(name).ok());
    Ok(Output {
        sent: true,
        known: Known::from(&sent),
        to: to.to_owned(),
        note: mistaken.map_or(note.clone(), |told| format!("{note}; mind that {told}")),
    })
}

pub(super) fn is_nobody(error: &SendError) -> bool {
    matches!(error, SendError::Refused(refusal)
        if refusal.code == RefusalCode::UnknownRecipient)
}

/// That the adapter of a peer is stopped; `None`: it is not, as far as is known.
async fn why_stopped(bus: &Bus, to: &str) -> Option<String> {
    let mut peers = bus.peers(LOOK_UP).await.ok()?.entries;
    let home = bus.at_home(to);
    peers.retain(|peer| peer.name.eq_ignore_ascii_case(&home));
    index::look(&mut peers);
    let stopped = peers.iter().find(|peer| peer.stopped)?;
    PeerView::new(stopped, Audience::Peer).why_silent(Audience::Peer)
}

/// That a session which is called so waits for its user or is stuck. The broker is not asked: mail that came
/// meanwhile would come along with the answer. It may have a namesake at another broker.
fn stands_still(name: &str) -> Option<String> {
    let is_it = |it: &LiveSession| {
        let own = it.name.as_deref();
        own.is_some_and(|own| own.eq_ignore_ascii_case(name))
    };
    let does = |session: &LiveSession| {
        let word = session.state().word(Audience::Peer);
        match session.state() {
            PeerState::Waits => Some(word.to_owned()),
            PeerState::Stuck => {
                let why = session.tried().map(|why| format!(": {why}"));
                Some(format!("is {word}{}", why.unwrap_or_default()))
            }
            _ => None,
        }
    };
    let named = index::all_of(&Paths::find().ok()?, is_it);
    let does = named.iter().find_map(does)?;
    let name = peerbus_wire::escape(name, 80);
    Some(format!("a session {name} on this machine {does}"))
}

/// `silent`: why nothing comes of mail for a peer that is away.
fn note(sent: &SentMessage, to: &str, abroad: Option<&Domain>, silent: Option<&str>) -> String {
    let group = to.trim_end_matches('!');
    match (sent.accepted, abroad) {
        (Some(accepted), _) if accepted.duplicate => {
            format!("accepted before under this id; not queued for {to} again")
        }
        // An answer that ended a request, and went to nobody.
        (Some(Accepted { recipients: 0, .. }), _) if !to.starts_with('#') => format!(
            "accepted by the broker, on disk, as the answer to a request of {to}, who has left or has no \
             room for it: it is kept under the request, which has ended with it"
        ),
        (Some(Accepted { online: 0, .. }), Some(domain)) => format!(
            "accepted by the broker, on disk; {domain} cannot be reached now: the message waits and \
             goes on by itself when it can"
        ),
        (Some(_), Some(domain)) => format!(
            "accepted by the broker, on disk, to go to {domain}; the bus status tool says when \
             {domain} has it; not known to be read"
        ),
        (Some(Accepted { online: 0, .. }), None) if to.ends_with('!') => format!(
            "accepted by the broker, on disk, for one of {group}; no member is here that can take it, \
             and the first that comes gets it"
        ),
        (Some(_), None) if to.ends_with('!') => format!(
            "accepted by the broker, on disk, and with one member of {group}; the bus status tool says \
             who has it; not known to be read"
        ),
        (Some(accepted), None) if to.starts_with('#') => format!(
            "accepted by the broker, on disk, for {} of {to}, of whom {} are connected; not known to be \
             read",
            members(accepted.recipients),
            accepted.online
        ),
        (Some(Accepted { online: 0, .. }), None) => match silent {
            Some(why) => {
                format!("accepted by the broker, on disk: the message waits there; {why}")
            }
            None => format!(
                "accepted by the broker, on disk; {to} is away: the message waits and is delivered \
                 when {to} is back"
            ),
        },
        (Some(_), None) => format!(
            "accepted by the broker, on disk; {to} is connected and is being sent it; not known \
             to be read"
        ),
        (None, _) => {
            "written to a broker of peerbus v1, which confirms nothing and knows no other \
            domains: whether it was stored, or is ever delivered, is not known"
                .to_owned()
        }
    }
}

fn members(count: u32) -> String {
    match count {
        1 => "1 member".to_owned(),
        count => format!("{count} members"),
    }
}

/// [`failure`], and the names that may have been meant when nobody has this one.
pub(super) async fn unsent(bus: &Bus, to: &str, error: &SendError) -> String {
    let sentence = failure(error);
    if !is_nobody(error) || to.starts_with('#') {
        return sentence;
    }
    let Ok(peers) = bus.peers(LOOK_UP).await else {
        return sentence;
    };
    let names: Vec<String> = peers.entries.into_iter().map(|entry| entry.name).collect();
    let found = similar(&names, to);
    let hint = domains::unknown(to, peers.domain.as_ref());
    let sentence = hint.map_or_else(|| sentence.clone(), |hint| format!("{sentence}; {hint}"));
    if found.is_empty() {
        return sentence;
    }
    format!("{sentence}. Did you mean {}?", found.join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_claims_no_more_than_is_known() {
        let sent = |accepted| SentMessage {
            id: "1".into(),
            accepted,
        };
        let online = |online| Accepted {
            recipients: 1,
            online,
            duplicate: false,
        };
        let near = |sent: &SentMessage| note(sent, "bob", None, None);
        assert!(near(&sent(Some(online(0)))).contains("bob is away"));
        assert!(near(&sent(Some(online(1)))).contains("not known to be read"));
        let stuck = note(&sent(Some(online(0))), "bob", None, Some("bob is stuck"));
        assert!(
            stuck.ends_with("; bob is stuck") && !stuck.contains("away"),
            "{stuck}"
        );
        let beta = Domain::parse("beta");
        for (here, says) in [(0, "beta cannot be reached now"), (1, "to go to beta")] {
            let note = note(&sent(Some(online(here))), "bob@beta", beta.as_ref(), None);
            assert!(note.contains(says) && !note.contains("connected"), "{note}");
        }
        let kept = near(&sent(Some(Accepted {
            recipients: 0,
            ..online(0)
        })));
        assert!(kept.contains("kept under the request"), "{kept}");
        assert!(!kept.contains("is delivered when"), "{kept}");
        let written = near(&sent(None));
        assert!(
            written.contains("not known") && !written.contains("accepted"),
            "{written}"
        );
    }
}
