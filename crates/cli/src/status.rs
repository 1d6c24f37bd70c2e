//! `peerbus status`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use peerbus_adapter::{Peers, Receipt, Stage, Url, credentials, wall_ms};
use peerbus_view::{Step, Trail, depends_on_peers, reached};
use peerbus_wire::{MessageId, PeerName, escape, escape_json};
use serde_json::json;

use crate::args::Status;
use crate::failure::Failure;
use crate::told::{self, Said, Text};
use crate::{client, output};

/// Longest text that is shown, in characters.
const TEXT_CHARS: usize = 2_000;

/// Says how far a message got.
pub(crate) fn run(verb: Status) -> Result<(), Failure> {
    let id = MessageId::parse(&verb.id).map_err(Failure::config)?;
    let name = verb.name.as_deref().map(PeerName::parse).transpose();
    let name = name.map_err(Failure::config)?;
    let way = way(&verb)?;
    let messages = match &way {
        Way::Operator(socket) => of_operator(&verb, socket.as_ref(), &id, name.as_ref())?,
        Way::Sender(url) => of_sender(&verb, url, name.as_ref())?,
    };
    if messages.is_empty() {
        return Err(Failure::failed(format!(
            "the broker knows no message {id}, or not any more: `peerbus history --ids` lists those \
             that it knows, and one that was refused was never kept"
        )));
    }
    let trails = trails(&verb, way, &messages);
    if verb.json {
        let told = messages.iter().zip(trails).map(|(message, trail)| {
            let mut told = json!({ "trail": trail });
            if !message.from.is_empty() {
                told["from"] = message.from.as_str().into();
            }
            if let Some(said) = &message.said {
                told::add_said(&mut told, said);
            }
            told
        });
        let text = json!({ "messages": told.collect::<Vec<_>>() }).to_string();
        return Ok(output::line(&escape_json(&text))?);
    }
    for (message, trail) in messages.iter().zip(&trails) {
        output::line(&heading(message))?;
        show(trail)?;
        if let Some(said) = &message.said {
            show_text(said)?;
        }
    }
    Ok(())
}

/// Prints the conversation and the text of a message.
fn show_text(said: &Said) -> Result<(), Failure> {
    if let Some(thread) = &said.talk.thread {
        output::line(&format!("thread {}", escape(thread, 128)))?;
    }
    Ok(output::line(&match &said.text {
        Text::Signed(body) => format!("\"{}\"", escape(&told::words(body), TEXT_CHARS)),
        Text::Hidden(why) => format!("its text is not shown: {why}"),
    })?)
}

/// How far each message got, and who of those that have it waits for its user.
fn trails(verb: &Status, way: Way, messages: &[Message]) -> Vec<Trail> {
    let depends = |message: &Message| depends_on_peers(&verb.id, &message.receipts);
    let peers = match way {
        _ if !messages.iter().any(depends) => Ok(Vec::new()),
        Way::Operator(socket) => told::peers(socket.as_ref()),
        Way::Sender(url) => peers(verb, &url).map(|peers| peers.entries),
    };
    // Without them the rest is known all the same.
    let peers = peers.unwrap_or_default();
    let new = |message: &Message| Trail::among(&verb.id, &message.receipts, wall_ms(), &peers);
    messages.iter().map(new).collect()
}

/// The peers that a broker knows.
fn peers(verb: &Status, url: &Url) -> Result<Peers, Failure> {
    let mut config = client::config(&verb.connection, None)?;
    config.url = Some(url.clone());
    let deadline = client::duration(verb.timeout);
    client::with_bus(config, client::Refused::Fail, async |bus| {
        Ok(bus.peers(deadline).await?)
    })
}

/// Who sent a message, and what became of it.
struct Message {
    /// Empty: a temporary sender that has left.
    from: String,
    receipts: Vec<Receipt>,
    /// What it says, where that may be known.
    said: Option<Said>,
}

/// From whom to whom.
fn heading(message: &Message) -> String {
    let receipts = message.receipts.iter();
    // Of a job the one who has it now.
    let has = |(_, last): &(&str, &Receipt)| !matches!(last.stage, Stage::Recalled { .. });
    let names = reached(receipts.clone()).into_iter().filter(has);
    let names: BTreeSet<&str> = names.map(|(name, _)| name).collect();
    let accepted = receipts.clone().find_map(|receipt| match receipt.stage {
        Stage::Accepted(accepted) => Some(accepted.recipients as usize),
        _ => None,
    });
    let from = sender(&message.from);
    match (names.first(), names.len().max(accepted.unwrap_or(0))) {
        (_, 0) => format!("from {from}"),
        (Some(name), 1) => format!("from {from} to {}", escape(name, 64)),
        (_, count) => format!("from {from} to {}", output::plural(count as u64, "peer")),
    }
}

/// Who sent it; a temporary name is forgotten when its sender leaves.
fn sender(from: &str) -> String {
    match from {
        "" => "a forgotten name".into(),
        name => escape(name, 64),
    }
}

/// Prints the steps and the sentence.
pub(crate) fn show(trail: &Trail) -> Result<(), Failure> {
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

/// How to ask.
enum Way {
    /// As the operator of the broker, who may see every message's, over this socket or the usual
    /// ones. Registers nobody.
    Operator(Option<PathBuf>),
    /// As the sender, at a broker whose socket cannot be reached from here.
    Sender(Url),
}

fn way(verb: &Status) -> Result<Way, Failure> {
    if verb.socket.is_some() {
        return Ok(Way::Operator(verb.socket.clone()));
    }
    let given = verb.connection.url.is_some() || verb.connection.credentials.is_some();
    if verb.name.is_none() && !given {
        return Ok(Way::Operator(None));
    }
    let config = client::config(&verb.connection, None)?;
    let listed = || Some(credentials::load(&config.credentials).ok()?.url)?;
    match config.url.clone().or_else(listed) {
        None => Ok(Way::Operator(None)),
        Some(Url::Unix(path)) => Ok(Way::Operator(Some(path))),
        Some(url) if verb.name.is_some() => Ok(Way::Sender(url)),
        Some(url) => Err(Failure::config(format!(
            "without --name the broker's operator asks, over its Unix socket, and {url} is none: \
             ask on the broker's machine, or say by --name who sent the message"
        ))),
    }
}

/// Asks as the sender. That registers its name, so it must be one that is known.
fn of_sender(verb: &Status, url: &Url, name: Option<&PeerName>) -> Result<Vec<Message>, Failure> {
    let Some(name) = name else {
        return Ok(Vec::new());
    };
    let peers = peers(verb, url)?;
    let is_known = |peer: &str| PeerName::parse(peer).is_ok_and(|peer| peer.key() == name.key());
    if !peers.entries.iter().any(|peer| is_known(&peer.name)) {
        return Ok(Vec::new());
    }
    output::say(&format!(
        "asking {url} as {name}, which registers that name for the moment: only over its Unix \
         socket does a broker answer its operator"
    ));
    let deadline = client::duration(verb.timeout);
    let config = client::config(&verb.connection, Some(name.as_str().to_owned()))?;
    client::with_bus(config, client::Refused::Fail, async |bus| {
        let ids = [verb.id.clone()];
        let mut receipts = bus.statuses(&ids, deadline).await?;
        receipts.retain(|receipt| receipt.stage != Stage::Unknown);
        let from = name.as_str().to_owned();
        let known = (!receipts.is_empty()).then_some(Message {
            from,
            receipts,
            said: None,
        });
        Ok(known.into_iter().collect())
    })
}

/// Asks as the operator, for the messages of one sender or of any.
fn of_operator(
    verb: &Status,
    socket: Option<&PathBuf>,
    id: &MessageId,
    from: Option<&PeerName>,
) -> Result<Vec<Message>, Failure> {
    let from = from.map(|name| format!("&from={name}")).unwrap_or_default();
    let target = format!("/status?id={id}{from}");
    let page = told::ask(socket, &target)?;
    let secret = told::secret(verb.connection.credentials.as_deref());
    let all = page.messages.into_iter().map(|message| Message {
        receipts: message.receipts(),
        said: Some(message.said(secret.as_ref())),
        from: message.from,
    });
    Ok(all.collect())
}
