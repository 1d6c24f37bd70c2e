//! What a host shows in its presence: `customizations`, each a server that it shares.

use peerbus_adapter::{PeerEntry, PeerName};
use peerbus_wire::escape;
use serde_json::{Map, Value, json};

use crate::surface::Surface;

/// The scheme of a channel.
const SCHEME: &str = "mcp://";
const MEMBER: &str = "customizations";

/// A server that a peer shares, now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advert {
    /// The peer.
    pub peer: String,
    /// What it calls the server.
    pub name: String,
    /// The channel.
    pub uri: String,
    /// What is served there.
    pub surface: Surface,
}

/// The URI of a generation.
pub(crate) fn uri(peer: &str, name: &str, generation: &str) -> String {
    format!("{SCHEME}{peer}/{name}/{generation}")
}

/// The peer and the name in `mcp://PEER/NAME`, whatever stands behind them.
///
/// # Errors
///
/// The rule.
pub fn parse(text: &str) -> Result<(PeerName, String), String> {
    let rule = || {
        let shown = escape(text, 200);
        format!(
            "\"{shown}\" names no shared server: write mcp://PEER/NAME, as `peerbus mcp list` shows it"
        )
    };
    let rest = text.strip_prefix(SCHEME).ok_or_else(rule)?;
    let mut parts = rest.split('/');
    let peer = PeerName::parse(parts.next().unwrap_or_default()).map_err(|_| rule())?;
    let name = parts.next().filter(|name| is_name(name)).ok_or_else(rule)?;
    Ok((peer, name.to_owned()))
}

/// Whether a server can be called this: 1 to 32 of `A-Z a-z 0-9 . _ -`.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    (1..=32).contains(&text.len()) && text.chars().all(letter)
}

/// The presence of a host; without a channel while the server is not ready.
pub(crate) fn presence(name: &str, ready: Option<(&str, &Surface)>) -> Map<String, Value> {
    let shared = match ready {
        Some((uri, surface)) => json!({
            "name": name, "state": { "kind": "ready" }, "channel": uri,
            "capabilities": surface.capabilities(),
        }),
        None => json!({ "name": name, "state": { "kind": "starting" } }),
    };
    Map::from_iter([
        ("client".into(), "mcp".into()),
        (MEMBER.into(), json!([shared])),
    ])
}

/// The servers that peers share now.
pub fn adverts(peers: &[PeerEntry]) -> impl Iterator<Item = Advert> {
    peers.iter().filter(|peer| peer.online).flat_map(|peer| {
        let presence = peer.presence.as_ref();
        let presence = presence.and_then(|text| serde_json::from_str(text.as_str()).ok());
        let presence: Value = presence.unwrap_or_default();
        let shared = presence[MEMBER].as_array().cloned().unwrap_or_default();
        let advert = |shared: &Value| {
            let text = |member: &str| shared[member].as_str().map(str::to_owned);
            Some(Advert {
                peer: peer.name.clone(),
                name: text("name").filter(|name| is_name(name))?,
                uri: text("channel").filter(|uri| uri.len() <= 256)?,
                surface: Surface::read(&shared["capabilities"]),
            })
        };
        shared.iter().filter_map(advert).collect::<Vec<_>>()
    })
}
