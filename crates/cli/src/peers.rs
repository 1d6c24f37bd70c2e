//! `peerbus peers`.

use comfy_table::{Table, presets};
use peerbus_adapter::PeerEntry;
use peerbus_adapter::text::span;
use peerbus_mcp::About;
use serde_json::json;

use crate::args::Peers;
use crate::failure::Failure;
use crate::{client, output};

/// Longest text of a member in the table, in characters.
const CELL_CHARS: usize = 40;

/// Prints who is there.
pub(crate) fn run(verb: Peers) -> Result<(), Failure> {
    let config = client::config(&verb.connection, None)?;
    let deadline = client::duration(verb.timeout);
    let answer = client::with_bus(config, client::Refused::Fail, async |bus| {
        Ok(bus.peers(deadline).await?)
    })?;
    let own = |peer: &&PeerEntry| peer.name == answer.me;
    let others = answer.entries.iter().filter(|peer| !own(peer));
    let others: Vec<About> = others.map(About::new).collect();
    if verb.json {
        let text = json!({ "peers": others, "omitted": answer.omitted }).to_string();
        return Ok(output::line(&peerbus_wire::escape_json(&text))?);
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

fn table(peers: &[About]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "NAME", "STATE", "UNSEEN", "CLIENT", "PROJECT", "BRANCH", "WAKE", "ACKS",
    ]);
    for peer in peers {
        let wake = peer.wake.as_ref().map(|paths| match paths.as_slice() {
            [] => "-".to_owned(),
            paths => paths.join(","),
        });
        table.add_row([
            cell(&peer.name),
            state(peer),
            peer.unacked.map(|n| n.to_string()).unwrap_or_default(),
            cell(peer.client.as_deref().unwrap_or_default()),
            cell(peer.project.as_deref().unwrap_or_default()),
            cell(peer.branch.as_deref().unwrap_or_default()),
            cell(&wake.unwrap_or_default()),
            peer.acks.unwrap_or_default().to_owned(),
        ]);
    }
    table
}

/// `idle`, `busy`, `waiting` or `away`, and for how long; `online` where nothing more is known.
fn state(peer: &About) -> String {
    let word = match peer.away_s {
        Some(_) => "away",
        None => peer.activity.unwrap_or("online"),
    };
    match peer.away_s.or(peer.activity_s) {
        Some(seconds) => format!("{word} {}", span(seconds)),
        None => word.to_owned(),
    }
}

/// A text that was made safe already, cut to fit.
fn cell(text: &str) -> String {
    if text.chars().count() <= CELL_CHARS {
        return text.to_owned();
    }
    text.chars().take(CELL_CHARS - 1).chain(['…']).collect()
}
