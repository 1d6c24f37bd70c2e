//! `peerbus status`.

use std::time::{SystemTime, UNIX_EPOCH};

use peerbus_adapter::Receipt;
use peerbus_mcp::{Step, Trail};
use peerbus_wire::{MessageId, Received, neutralise, neutralise_json};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::args::Status;
use crate::failure::Failure;
use crate::{client, operator, output};

/// Says how far a message got.
pub(crate) fn run(verb: Status) -> Result<(), Failure> {
    let id = MessageId::parse(&verb.id).map_err(Failure::config)?;
    let messages = match &verb.name {
        Some(name) => vec![(name.clone(), of_sender(&verb, name.clone())?)],
        None => of_anyone(&verb, &id)?,
    };
    let trails = messages
        .iter()
        .map(|(from, receipts)| (from, Trail::new(&verb.id, receipts, wall_ms())));
    if verb.json {
        let messages: Vec<_> = trails
            .map(|(from, trail)| json!({ "from": from, "trail": trail }))
            .collect();
        let text = json!({ "messages": messages }).to_string();
        return Ok(output::line(&neutralise_json(&text))?);
    }
    for (from, trail) in trails {
        if messages.len() > 1 {
            output::line(&format!("from {}:", sender(from)))?;
        }
        show(&trail)?;
    }
    Ok(())
}

/// Who sent it; a temporary sender that has left has no name any more.
fn sender(from: &str) -> String {
    match from {
        "" => "a sender that has left".into(),
        name => neutralise(name, 64),
    }
}

/// Prints the steps and the sentence.
fn show(trail: &Trail) -> Result<(), Failure> {
    for step in &trail.steps {
        output::line(&line(step))?;
    }
    if trail.omitted > 0 {
        output::line(&format!("… and {} more", trail.omitted))?;
    }
    Ok(output::line(&trail.note)?)
}

/// A step as a line: when, what, at whom, by what.
fn line(step: &Step) -> String {
    let at = step.at.as_deref().unwrap_or("-");
    let mut line = format!("{at:<24}  {:<9}", step.state);
    let path = step.path.as_deref().map(|path| format!("by {path}"));
    let evidence = step.evidence.as_deref().map(|what| format!("({what})"));
    let recipients = step
        .recipients
        .map(|n| output::plural(n.into(), "recipient"));
    let parts = [
        step.to.clone(),
        path,
        evidence,
        step.reason.clone(),
        recipients,
    ];
    for part in parts.into_iter().flatten() {
        line.push_str("  ");
        line.push_str(&part);
    }
    line.trim_end().to_owned()
}

/// Asks as the sender.
fn of_sender(verb: &Status, name: String) -> Result<Vec<Receipt>, Failure> {
    let config = client::config(&verb.connection, Some(name))?;
    let deadline = client::duration(verb.timeout);
    client::with_bus(config, client::Refused::Fail, async |bus| {
        let ids = [verb.id.clone()];
        Ok(bus.statuses(&ids, deadline).await?)
    })
}

/// The operator's answer: who sent messages with that id, and what became of each.
#[derive(Deserialize)]
struct Answer {
    messages: Vec<Message>,
}

#[derive(Deserialize)]
struct Message {
    from: String,
    /// Receipts, in the frames of the wire.
    frames: Vec<Box<RawValue>>,
}

/// Asks as the operator of the broker, who may see every message's.
fn of_anyone(verb: &Status, id: &MessageId) -> Result<Vec<(String, Vec<Receipt>)>, Failure> {
    if verb.connection.url.is_some() || verb.connection.credentials.is_some() {
        return Err(Failure::config(
            "without --name the broker's operator asks, over its Unix socket: leave out --url and \
             --credentials, or say by --name who sent the message",
        ));
    }
    let target = format!("/status?id={id}");
    let answer = operator::request(verb.socket.as_ref(), "GET", &target)?;
    let answer: Answer = serde_json::from_str(&answer.ok()?).map_err(|error| {
        Failure::failed(format!("the broker's answer is not understood: {error}"))
    })?;
    if answer.messages.is_empty() {
        return Err(Failure::failed(format!(
            "the broker knows no message {id}, or not any more"
        )));
    }
    let receipts = |frame: &RawValue| match Received::parse(frame.get().as_bytes()) {
        Received::Receipts(receipts) => receipts,
        _ => Vec::new(),
    };
    let all = answer.messages.into_iter().map(|message| {
        let receipts = message
            .frames
            .iter()
            .flat_map(|frame| receipts(frame))
            .collect();
        (message.from, receipts)
    });
    Ok(all.collect())
}

/// The wall clock, in milliseconds since the epoch.
pub(crate) fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}
