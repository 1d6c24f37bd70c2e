//! What a host shows in its presence: `customizations`, each a server that it shares.

use peerbus_adapter::{PeerEntry, PeerName};
use peerbus_wire::escape;
use serde_json::{Map, Value, json};

use crate::side_channel::surface::Surface;

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

/// The generation in `mcp://PEER/NAME/GENERATION`.
#[must_use]
pub fn generation(text: &str) -> Option<&str> {
    let mut parts = text.strip_prefix(SCHEME)?.splitn(3, '/');
    parts.nth(2).filter(|generation| !generation.is_empty())
}

/// Whether this is a channel of a peer's own server.
fn is_own(uri: &str, peer: &str, name: &str) -> bool {
    let own = parse(uri)
        .is_ok_and(|(of, called)| of.as_str().eq_ignore_ascii_case(peer) && called == name);
    own && generation(uri).is_some_and(is_name)
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

/// The servers that peers share now. A channel of another peer's is left out.
pub fn adverts(peers: &[PeerEntry]) -> impl Iterator<Item = Advert> {
    peers.iter().filter(|peer| peer.online).flat_map(|peer| {
        let presence = peer.presence.as_ref();
        let presence = presence.and_then(|text| serde_json::from_str(text.as_str()).ok());
        let presence: Value = presence.unwrap_or_default();
        let shared = presence[MEMBER].as_array().cloned().unwrap_or_default();
        let advert = |shared: &Value| {
            let text = |member: &str| shared[member].as_str().map(str::to_owned);
            let name = text("name").filter(|name| is_name(name))?;
            Some(Advert {
                peer: peer.name.clone(),
                uri: text("channel").filter(|uri| is_own(uri, &peer.name, &name))?,
                name,
                surface: Surface::read(&shared["capabilities"]),
            })
        };
        shared.iter().filter_map(advert).collect::<Vec<_>>()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_is_its_peers_own() {
        for uri in ["mcp://host/files/1c0ffee1", "mcp://HOST/files/1"] {
            assert!(is_own(uri, "host", "files"), "{uri}");
        }
        for uri in [
            "mcp://victim/files/1",
            "mcp://host/other/1",
            "mcp://host/files",
            "mcp://host/files/",
            "mcp://host/files/1/2",
            "mcp://host/files/1\u{2028}",
            "http://host/files/1",
        ] {
            assert!(!is_own(uri, "host", "files"), "{uri}");
        }
        assert_eq!(generation("mcp://host/files/1/2"), Some("1/2"));
        assert_eq!(generation("mcp://host/files/"), None);
        // There is none while the server starts.
        let starting = &presence("files", None)[MEMBER];
        assert_eq!(
            *starting,
            json!([{ "name": "files", "state": { "kind": "starting" } }])
        );
    }
}
