//! `peerbus peers`.

use comfy_table::{Table, presets};
use peerbus_adapter::{PeerEntry, Peers as Answer};
use peerbus_wire::neutralise;
use serde_json::{Value, json};

use crate::args::Peers;
use crate::failure::Failure;
use crate::{client, output};

/// Longest text of a presence member in the table, in characters.
const CELL_CHARS: usize = 40;

/// Prints who is there.
pub(crate) fn run(verb: Peers) -> Result<(), Failure> {
    let config = client::config(&verb.connection, None)?;
    let deadline = client::duration(verb.timeout);
    let answer = client::with_bus(config, client::Refused::Fail, async |bus| {
        Ok(bus.peers(deadline).await?)
    })?;
    let others: Vec<_> = answer
        .entries
        .iter()
        .filter(|peer| peer.name != answer.me)
        .collect();
    if verb.json {
        output::line(&peerbus_wire::neutralise_json(
            &as_json(&answer, &others).to_string(),
        ))?;
        return Ok(());
    }
    if others.is_empty() {
        output::line("no peers")?;
        return Ok(());
    }
    output::line(&table(&others).to_string())?;
    if answer.omitted > 0 {
        output::say(&format!("… and {} more", answer.omitted));
    }
    Ok(())
}

fn table(peers: &[&PeerEntry]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(["NAME", "STATE", "UNACKED", "CLIENT", "PROJECT"]);
    for peer in peers {
        let presence = presence(peer);
        table.add_row([
            neutralise(&peer.name, CELL_CHARS),
            if peer.online {
                "online".into()
            } else {
                away(peer.away_s)
            },
            peer.unacked.map(|n| n.to_string()).unwrap_or_default(),
            member(&presence, "client"),
            member(&presence, "project"),
        ]);
    }
    table
}

fn away(seconds: u64) -> String {
    match seconds {
        0..60 => format!("away {seconds}s"),
        60..3_600 => format!("away {}m", seconds / 60),
        3_600..86_400 => format!("away {}h", seconds / 3_600),
        _ => format!("away {}d", seconds / 86_400),
    }
}

fn presence(peer: &PeerEntry) -> Value {
    let text = peer
        .presence
        .as_ref()
        .map_or("{}", |presence| presence.as_str());
    serde_json::from_str(text).unwrap_or_default()
}

fn member(presence: &Value, name: &str) -> String {
    presence
        .get(name)
        .and_then(Value::as_str)
        .map(|t| neutralise(t, CELL_CHARS))
        .unwrap_or_default()
}

fn as_json(answer: &Answer, others: &[&PeerEntry]) -> Value {
    let peers: Vec<_> = others
        .iter()
        .map(|peer| {
            json!({
                "name": peer.name, "online": peer.online, "unacked": peer.unacked,
                "away_s": peer.away_s, "presence": presence(peer),
            })
        })
        .collect();
    json!({ "peers": peers, "omitted": answer.omitted })
}
