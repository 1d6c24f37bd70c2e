//! Other domains, as far as the list of peers tells of them: each has a bridge among the peers.

use peerbus_wire::{Domain, PeerEntry, PeerName};
use schemars::JsonSchema;
use serde::Serialize;

use crate::about::presence;
use crate::text::span;

/// A domain that was joined to this broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainView {
    /// Its name.
    pub domain: Domain,
    /// That mail does not get there now, why, and since when; `None` when nothing is against it.
    pub trouble: Option<String>,
    /// Messages for it that have not ended yet and that it does not have; `None`: not known.
    pub waiting: Option<u64>,
    /// What keeps others from speaking for domains in NATS.
    pub key: DomainKey,
}

/// What a bridge says of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DomainKey {
    /// Nothing, or that it is bound to its domain.
    Bound,
    /// It may do more than a bridge needs.
    Wide,
    /// There is none.
    None,
}

/// Another domain, as tools and commands tell of it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DomainReach {
    /// Its name.
    pub domain: String,
    /// Mail gets there now; otherwise it waits here.
    pub reachable: bool,
    /// Why it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl From<&DomainView> for DomainReach {
    fn from(joined: &DomainView) -> Self {
        let note = joined.trouble.clone();
        Self {
            domain: joined.domain.to_string(),
            reachable: note.is_none(),
            note,
        }
    }
}

impl DomainView {
    /// The domains that were joined to a broker with these peers, in order.
    #[must_use]
    pub fn all(peers: &[PeerEntry]) -> Vec<Self> {
        let mut all: Vec<Self> = peers.iter().filter_map(Self::of).collect();
        all.sort_by(|one, other| one.domain.cmp(&other.domain));
        all
    }

    /// The domain in which `name` is, unless one of the peers has that for a name.
    #[must_use]
    pub fn to(peers: &[PeerEntry], name: &str) -> Option<Self> {
        let (_, domain) = PeerName::parse(name).ok()?.address()?;
        let here = |peer: &PeerEntry| peer.name.eq_ignore_ascii_case(name);
        if peers.iter().any(here) {
            return None;
        }
        let all = peers.iter().filter_map(Self::of);
        all.into_iter().find(|joined| joined.domain == domain)
    }

    /// Whether a peer is none but the way to another domain.
    #[must_use]
    pub fn is_bridge(peer: &PeerEntry) -> bool {
        PeerName::parse(&peer.name).is_ok_and(|name| name.bridged().is_some())
    }

    fn of(peer: &PeerEntry) -> Option<Self> {
        let domain = PeerName::parse(&peer.name).ok()?.bridged()?;
        let said = presence(peer);
        let (why, since, then) = match peer.online {
            // Mail waits at this broker.
            false => ("is not connected to this broker", peer.away_s, ""),
            true if said["stream"] == "unusable" => {
                let then = "; the bridge's log says why";
                ("cannot use the stream in NATS", peer.activity_s, then)
            }
            // As a session says that it waits for its user.
            true if said["activity"] == "waiting" => {
                ("does not hear the broker there", peer.activity_s, "")
            }
            true => ("", None, ""),
        };
        let since = since.map_or_else(String::new, |it| format!(", for {}", span(it)));
        let trouble = format!("{domain} cannot be reached: its bridge {why}{since}{then}");
        let key = match said["key"].as_str() {
            Some("wide") => DomainKey::Wide,
            Some("none") => DomainKey::None,
            _ => DomainKey::Bound,
        };
        let waiting = peer.unacked;
        Some(Self {
            domain,
            trouble: (!why.is_empty()).then_some(trouble),
            waiting,
            key,
        })
    }
}

#[cfg(test)]
mod tests {
    use peerbus_wire::Presence;

    use super::*;

    fn peer(name: &str, online: bool, activity: &str) -> PeerEntry {
        PeerEntry {
            name: name.into(),
            online,
            away_s: Some(if online { 0 } else { 300 }),
            activity_s: online.then_some(40),
            presence: Presence::parse(&format!(r#"{{"activity":"{activity}"}}"#)),
            ..PeerEntry::default()
        }
    }

    #[test]
    fn a_domain_is_reached_while_its_bridge_is_here_and_hears_the_other_side() {
        let peers = [
            peer("bob", true, "waiting"),
            peer("bridge@gamma", true, "waiting"),
            peer("bridge@beta", false, "waiting"),
            peer("Bridge@delta", true, "idle"),
            peer("old@beta", true, "idle"),
        ];
        let all = DomainView::all(&peers);
        let told: Vec<_> = all.iter().map(|it| it.domain.as_str()).collect();
        assert_eq!(told, ["beta", "delta", "gamma"]);
        let trouble: Vec<_> = all.iter().map(|it| it.trouble.clone()).collect();
        assert_eq!(
            trouble,
            [
                Some(
                    "beta cannot be reached: its bridge is not connected to this broker, for 5 min"
                        .into()
                ),
                None,
                Some(
                    "gamma cannot be reached: its bridge does not hear the broker there, for 40 s"
                        .into()
                ),
            ]
        );
        let mut broken = peer("bridge@beta", true, "waiting");
        broken.presence = Presence::parse(r#"{"activity":"waiting","stream":"unusable"}"#);
        let trouble = DomainView::all(&[broken])[0].trouble.clone();
        assert!(trouble.is_some_and(|it| it.contains("cannot use the stream in NATS, for 40 s")));
        let to = |name| DomainView::to(&peers, name).map(|it| it.domain.to_string());
        assert_eq!(to("bob@BETA").as_deref(), Some("beta"));
        for here in ["Old@beta", "bob", "bob@omega", "bridge@beta"] {
            assert_eq!(to(here), None, "{here}");
        }
    }
}
