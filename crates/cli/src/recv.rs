//! `peerbus recv`.

use std::borrow::Cow;
use std::io::{IsTerminal as _, stdout};

use peerbus_adapter::mailbox::notice;
use peerbus_adapter::paths::Paths;
use peerbus_adapter::signals::Stop;
use peerbus_adapter::{Bus, Failure, How, Inbound, Kind, LinkState, SessionEvent};
use peerbus_view::{body_json, spoken};
use peerbus_wire::limits::GROUPS_MAX;
use peerbus_wire::{Conversation, MessageId, escape, escape_json};
use serde_json::value::RawValue;
use tokio::time::{Duration, Instant};

use crate::args::Recv;
use crate::{client, here, output, told};

/// How long the broker may take to say who is known.
const ANSWER: Duration = Duration::from_secs(10);

/// Longest reason that is repeated, in characters.
const REASON_CHARS: usize = 300;

const YEAR_S: f64 = 31_536_000.0;

/// Prints messages, as NDJSON unless a person looks on, and acks each one after it was written.
pub(crate) fn run(verb: Recv) -> Result<(), Failure> {
    if verb.group.len() > GROUPS_MAX {
        let many = verb.group.len();
        return Err(Failure::config(format!(
            "--group is given {many} times, and a peer is in at most {GROUPS_MAX} groups"
        )));
    }
    let mut config = client::config(&verb.connection, Some(verb.name.clone()))?;
    config.groups.clone_from(&verb.group);
    if let Some(count) = verb.count {
        // What is not taken here is another member's, who may be free.
        let messages = u32::try_from(count).unwrap_or(u32::MAX).max(1);
        config.window.messages = config.window.messages.min(messages);
    }
    if verb.take {
        // Its session may keep mail from it that waits for its user.
        here::for_people("take the mail of an agent's session")?;
    } else {
        let unnamed = client::config(&verb.connection, None)?;
        client::with_bus(unnamed, client::Refused::Wait, async |bus| {
            is_nobodys(&bus, &verb).await
        })?;
    }
    client::with_bus(config, client::Refused::Wait, async |bus| {
        let mut stop = Stop::catch()?;
        tokio::select! {
            done = receive(&bus, &verb) => done,
            _ = stop.asked() => Ok(()),
        }
    })
}

/// Fails if an agent's session has the name, or had it last: what is received here, that one does
/// not get.
async fn is_nobodys(bus: &Bus, verb: &Recv) -> Result<(), Failure> {
    let limit = client::duration(verb.timeout.unwrap_or(YEAR_S));
    let end = Instant::now() + limit;
    let mut link = bus.link();
    // To ask takes its own time, however short one listens.
    let peers = bus.peers(limit.max(ANSWER));
    tokio::pin!(peers);
    let there = bus.link();
    let peers = loop {
        tokio::select! {
            peers = &mut peers => break peers?,
            changed = link.changed() => {
                if changed.is_ok() {
                    tell_trouble(&link.borrow_and_update());
                }
            }
            () = tokio::time::sleep_until(end), if has_failed(&there.borrow()) => {
                return out_of_time(bus, verb, 0);
            }
        }
    };
    let mut entries = peers.entries.iter();
    let found = entries.find(|peer| peer.name.eq_ignore_ascii_case(&verb.name));
    if found.is_none() && peers.omitted > 0 {
        return Err(Failure::failed(format!(
            "{} peers are not listed, so it cannot be seen whether {} is an agent's session: `peerbus recv \
             --take` takes its mail all the same",
            peers.omitted, verb.name
        )));
    }
    let Some((name, client)) = found
        .map(here::about)
        .and_then(|it| Some((it.name, it.client?)))
    else {
        return Ok(());
    };
    Err(Failure::failed(format!(
        "{name} is an agent's session ({client}), and what is received here it would not get: \
         `peerbus recv --take` does it all the same"
    )))
}

/// Whether it was tried in vain to reach the broker, or to have the name.
fn has_failed(state: &LinkState) -> bool {
    matches!(
        state,
        LinkState::Refused { .. }
            | LinkState::Connecting {
                last_error: Some(_),
                ..
            }
    )
}

async fn receive(bus: &Bus, verb: &Recv) -> Result<(), Failure> {
    let limit = verb.timeout.map(client::duration);
    // To join takes its own time, however short one listens.
    let began = Instant::now();
    let mut deadline = limit.map(|limit| began + limit.max(ANSWER));
    let mut link = bus.link();
    let (mut has_joined, mut taken) = (false, 0);
    while verb.count.is_none_or(|count| taken < count) {
        // Who listens is said before what is heard.
        let event = tokio::select! {
            biased;
            changed = link.changed() => {
                if changed.is_ok() {
                    let state = link.borrow_and_update();
                    tell(&state);
                    if !has_joined && has_failed(&state) {
                        deadline = limit.map(|limit| began + limit);
                    } else if !has_joined && matches!(*state, LinkState::Online { .. }) {
                        has_joined = true;
                        deadline = limit.map(|limit| Instant::now() + limit);
                    }
                }
                continue;
            }
            event = bus.next() => event,
            () = until(deadline) => return out_of_time(bus, verb, taken),
        };
        match event {
            Some(SessionEvent::Message(message)) => {
                let shown = match verb.json || !stdout().is_terminal() {
                    true => line(&message)?,
                    false => output::fitted(&for_person(&message)).into_owned(),
                };
                output::line_aside(shown).await?;
                // A line proves nothing about who reads it.
                let path = "recv".into();
                bus.ack(&message.key, How::Pushed { path });
                taken += 1;
            }
            Some(SessionEvent::NotJoined { why }) => {
                let groups: Vec<_> = verb.group.iter().map(ToString::to_string).collect();
                let (name, groups) = (&verb.name, groups.join(", "));
                let why = escape(&why, REASON_CHARS);
                return Err(Failure::failed(format!("{name} is not in {groups}: {why}")));
            }
            Some(event) => {
                if let Some(sentence) = notice(&event) {
                    output::complain(&sentence);
                }
                if let SessionEvent::Notice { id: Some(id), .. } = event {
                    bus.ack_notice(id);
                }
            }
            None => return Err(Failure::failed("the bus was closed")),
        }
    }
    Ok(())
}

fn out_of_time(bus: &Bus, verb: &Recv, taken: u64) -> Result<(), Failure> {
    let state = bus.link().borrow().clone();
    if !matches!(state, LinkState::Online { .. }) {
        return Err(Failure::failed(client::for_verb(
            &state,
            client::Refused::Fail,
        )));
    }
    match verb.count {
        Some(count) => Err(Failure::failed(format!(
            "{taken} of {} arrived in time{}",
            output::plural(count, "message"),
            elsewhere(verb)
        ))),
        None => Ok(()),
    }
}

/// That mail may wait in another database of this user's.
fn elsewhere(verb: &Recv) -> String {
    let usual =
        verb.connection.flags(None).url.is_none() && std::env::var_os("PEERBUS_URL").is_none();
    let other = Paths::find().ok().filter(|_| usual);
    match other.and_then(|paths| Some((paths.other_database()?, paths.database))) {
        Some((other, here)) => format!(
            "; the broker here keeps its mail in {}, and {} is there too: XDG_STATE_HOME decides \
             which one is meant",
            here.display(),
            other.display()
        ),
        None => String::new(),
    }
}

/// Says that messages arrive from now on, or why not.
fn tell(state: &LinkState) {
    match state {
        LinkState::Online { name, .. } => output::say(&format!("listening as {name}")),
        trouble => tell_trouble(trouble),
    }
}

fn tell_trouble(state: &LinkState) {
    match state {
        LinkState::Refused { .. } => {
            output::complain(&client::for_verb(state, client::Refused::Wait));
        }
        LinkState::Connecting {
            last_error: Some(_),
            ..
        } => output::complain(&state.to_string()),
        _ => {}
    }
}

/// From whom, and the text below, where no line of it looks like one of ours.
fn for_person(message: &Inbound) -> String {
    let to = match (&message.group, message.one) {
        (Some(group), true) => format!(", to one of #{}", told::name(group)),
        (Some(group), false) => format!(", to #{}", told::name(group)),
        (None, _) if message.kind != Kind::Msg => ", to all".into(),
        (None, _) => String::new(),
    };
    let again = match (message.again, message.one) {
        (true, true) => ", shown before, to you or to another",
        (true, false) => ", shown before",
        (false, _) => "",
    };
    let token = message.token.as_deref();
    let token = token.map_or(String::new(), |token| {
        format!(" (token {})", told::name(token))
    });
    format!(
        "{} from {}{token}{to}{again}, {}:\n{}",
        told::name(&message.id),
        told::name(&message.from),
        told::name(&message.ts),
        output::indented(&spoken(&message.body))
    )
}

pub(crate) fn line(message: &Inbound) -> Result<String, Failure> {
    let kind = if message.kind == Kind::Msg {
        "msg"
    } else {
        "broadcast"
    };
    let talk = Conversation::of(&message.body);
    let line = Line {
        id: &message.id,
        from: &message.from,
        kind,
        source: &message.source,
        ts: &message.ts,
        reply_to: talk.reply_to.as_ref().map(MessageId::as_str),
        thread: talk.thread.as_deref(),
        group: message.group.as_deref(),
        one: message.one,
        shown_before: message.again,
        token: message.token.as_deref(),
        priority: talk.priority.as_str(),
        body: body_json(&message.body),
    };
    Ok(escape_json(
        &serde_json::to_string(&line).map_err(Failure::failed)?,
    ))
}

#[derive(serde::Serialize)]
struct Line<'a> {
    id: &'a str,
    from: &'a str,
    kind: &'a str,
    source: &'a str,
    ts: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    one: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    shown_before: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thread: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
    priority: &'a str,
    body: Cow<'a, RawValue>,
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_that_does_not_parse_is_printed_as_a_text() {
        let printed = |text| body_json(text).get().to_owned();
        assert_eq!(printed(r#"{"a":[1,2.50]}"#), r#"{"a":[1,2.50]}"#);
        assert_eq!(printed(r#"{"a":"#), r#""{\"a\":""#);
    }
}
