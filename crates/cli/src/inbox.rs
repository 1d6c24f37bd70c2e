//! `peerbus inbox`.

use peerbus_adapter::{Receipt, Stage, wall_ms};
use peerbus_view::{Trail, reached};
use peerbus_wire::{PeerName, escape, escape_json};

use crate::args::Inbox;
use crate::failure::Failure;
use crate::told::{self, Text, Told};
use crate::{output, send};

/// Longest text that is shown, in characters.
const TEXT_CHARS: usize = 300;

/// Prints what waits for a name, the newest last, and takes nothing of it.
pub(crate) fn run(verb: &Inbox) -> Result<(), Failure> {
    let name = PeerName::parse(&verb.name).map_err(Failure::config)?;
    let secret = told::secret(verb.credentials.as_deref());
    let socket = verb.socket.as_ref();
    let (found, more) = told::newest(socket, &format!("&owed={name}"), verb.limit, None)?;
    let peers = told::peers(socket)?;
    if found.is_empty() && !peers.iter().any(|peer| is(&peer.name, &name)) {
        let names: Vec<String> = peers.into_iter().map(|peer| peer.name).collect();
        return Err(Failure::failed(send::nobody(name.as_str(), &names)));
    }
    if found.is_empty() && !verb.json {
        output::line(&format!("nothing waits for {name}"))?;
    }
    for message in found.iter().rev() {
        let said = message.said(secret.as_ref());
        let receipts = receipts(message, &name);
        let stage = reached(receipts.iter()).into_values().next();
        let stage = stage.map_or(&Stage::Queued, |receipt| &receipt.stage);
        let trail = Trail::among(&message.id, &receipts, wall_ms(), &peers);
        if verb.json {
            let mut told = message.json(secret.as_ref(), wall_ms());
            told["state"] = told::word(stage).into();
            told["bytes"] = said.bytes.into();
            told["trail"] = serde_json::json!(trail);
            output::line(&escape_json(&told.to_string()))?;
            continue;
        }
        output::line(&format!(
            "{} from {}  {}  {}  {}",
            told::time(message.at),
            told::name(&message.from),
            output::plural(said.bytes as u64, "byte"),
            told::word(stage),
            told::name(&message.id),
        ))?;
        output::line(&match &said.text {
            Text::Signed(body) => format!("    \"{}\"", escape(&told::words(body), TEXT_CHARS)),
            Text::Hidden(why) => format!("    (not shown: {why})"),
        })?;
        if *stage != Stage::Queued {
            output::line(&format!("    {}", trail.note))?;
        }
    }
    if !verb.json {
        let senders = found.iter().map(|message| message.from.as_str());
        told::say_where(senders.chain([name.as_str()]), &peers);
    }
    if more {
        output::say(&format!(
            "these are the newest {}; older ones wait too: --limit N",
            found.len()
        ));
    }
    Ok(())
}

/// What is known of a message at one of its recipients; at that one if it had another name.
fn receipts(message: &Told, name: &PeerName) -> Vec<Receipt> {
    let all = message.receipts();
    let at = |receipt: &&Receipt| receipt.to.as_ref().is_none_or(|to| is(to, name));
    let here: Vec<Receipt> = all.iter().filter(at).cloned().collect();
    if here.iter().any(|receipt| receipt.to.is_some()) {
        here
    } else {
        all
    }
}

fn is(peer: &str, name: &PeerName) -> bool {
    peer.eq_ignore_ascii_case(name.as_str())
}
