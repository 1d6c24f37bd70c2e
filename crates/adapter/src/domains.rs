//! Other domains, as far as the list of peers tells of them: each has a bridge among the peers.

use std::time::Duration;

use peerbus_wire::{Domain, PeerEntry, PeerName, escape};
use serde_json::Value;

use crate::bus::Bus;
use crate::error::BusError;
use crate::text::span;

/// Of what is no domain's name, so much is repeated, in characters.
const BEHIND_CHARS: usize = 40;

/// A domain that was joined to this broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// Its name.
    pub domain: Domain,
    /// Whether mail gets there now.
    pub way: Way,
    /// Messages for it that have not ended yet and that it does not have; `None`: not known.
    pub waiting: Option<u64>,
    /// What keeps others from speaking for domains in NATS.
    pub key: Key,
}

/// What a bridge says of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// Nothing, or that it is bound to its domain.
    Bound,
    /// It may do more than a bridge needs.
    Wide,
    /// There is none.
    None,
}

/// Whether mail gets to another domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Its bridge is connected and says nothing else.
    Open,
    /// Its bridge is not connected, for so many seconds if that is known: mail waits at this broker.
    NoBridge(Option<u64>),
    /// Its bridge cannot use the stream in NATS, for so many seconds if that is known.
    NoStream(Option<u64>),
    /// Its bridge does not hear the other broker, for so many seconds if that is known.
    Silent(Option<u64>),
}

impl Joined {
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
        let said = said(peer);
        let way = match peer.online {
            false => Way::NoBridge(peer.away_s),
            true if said["stream"] == "unusable" => Way::NoStream(peer.activity_s),
            // As a session says that it waits for its user.
            true if said["activity"] == "waiting" => Way::Silent(peer.activity_s),
            true => Way::Open,
        };
        let key = match said["key"].as_str() {
            Some("wide") => Key::Wide,
            Some("none") => Key::None,
            _ => Key::Bound,
        };
        let waiting = peer.unacked;
        Some(Self {
            domain,
            way,
            waiting,
            key,
        })
    }

    /// That mail does not get there now, why, and since when; `None` when nothing is against it.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let since = |seconds: Option<u64>| {
            seconds.map_or_else(String::new, |it| format!(", for {}", span(it)))
        };
        let domain = &self.domain;
        match self.way {
            Way::Open => None,
            Way::NoBridge(seconds) => Some(format!(
                "{domain} cannot be reached: its bridge is not connected to this broker{}",
                since(seconds)
            )),
            Way::NoStream(seconds) => Some(format!(
                "{domain} cannot be reached: its bridge cannot use the stream in NATS{}; the bridge's log says \
                 why",
                since(seconds)
            )),
            Way::Silent(seconds) => Some(format!(
                "{domain} cannot be reached: its bridge does not hear the broker there{}",
                since(seconds)
            )),
        }
    }
}

/// Who is in another domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct There {
    /// The peers, by the addresses that they have here.
    pub peers: Vec<PeerEntry>,
    /// So many more were left out.
    pub omitted: u32,
    /// A sentence: how old this is, and whether the domain can be reached.
    pub note: String,
}

impl There {
    /// Asks the broker who is in another domain.
    ///
    /// # Errors
    ///
    /// A sentence: the broker does not answer, or knows no such domain.
    pub async fn ask(bus: &Bus, domain: &Domain, deadline: Duration) -> Result<Self, String> {
        let said = |error: BusError| error.to_string();
        let known = bus.peers(deadline).await.map_err(said)?;
        let joined = match &known.domain {
            None => return Err("this broker has no domain, and reaches no other".into()),
            Some(own) if own == domain => {
                return Err(format!(
                    "{domain} is this broker's own domain: leave it out"
                ));
            }
            Some(_) => Joined::all(&known.entries),
        };
        let Some(to) = joined.iter().find(|joined| joined.domain == *domain) else {
            let names: Vec<_> = joined.iter().map(|it| it.domain.as_str()).collect();
            let names = match names.is_empty() {
                true => "none is".to_owned(),
                false => format!("joined are {}", names.join(", ")),
            };
            return Err(format!(
                "the domain {domain} was never joined to this broker; {names}"
            ));
        };
        let told = bus.peers_of(domain.clone(), deadline).await.map_err(said)?;
        let age = told.age_ms.map_or_else(
            || format!("{domain} has not told yet who is there"),
            |ms| format!("as {domain} told {} ago", span(ms / 1_000)),
        );
        let addressed = |peer: PeerEntry| PeerEntry {
            name: format!("{}@{domain}", peer.name),
            ..peer
        };
        Ok(Self {
            peers: told.entries.into_iter().map(addressed).collect(),
            omitted: told.omitted,
            note: match to.trouble() {
                Some(trouble) => format!("{age}; {trouble}"),
                None => age,
            },
        })
    }
}

/// What a bridge says of itself.
fn said(peer: &PeerEntry) -> Value {
    let said = peer.presence.as_ref().map_or("{}", |said| said.as_str());
    serde_json::from_str(said).unwrap_or_default()
}

/// What may be behind it when nobody has a name, if that looks like an address; `own` is the
/// broker's domain.
#[must_use]
pub fn unknown(name: &str, own: Option<&Domain>) -> Option<String> {
    let (local, behind) = name.rsplit_once('@')?;
    let domain = match behind.to_ascii_lowercase().parse::<Domain>() {
        Ok(domain) => domain,
        Err(rule) => {
            own?;
            let behind = escape(behind, BEHIND_CHARS);
            return Some(format!(
                "what stands behind the @, \"{behind}\", is no domain's name: {rule}"
            ));
        }
    };
    Some(match own {
        None => format!(
            "if {domain} is meant as another domain: this broker has none of its own and reaches no \
             other; its operator starts it with `--domain`"
        ),
        Some(own) if domain == *own => {
            format!("{domain} is this broker's own domain: it knows no {local}")
        }
        Some(_) => format!("the operator of this broker can join {domain} to it by a bridge"),
    })
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
        let all = Joined::all(&peers);
        let told: Vec<_> = all.iter().map(|it| (it.domain.as_str(), it.way)).collect();
        let expected = [
            ("beta", Way::NoBridge(Some(300))),
            ("delta", Way::Open),
            ("gamma", Way::Silent(Some(40))),
        ];
        assert_eq!(told, expected);
        let trouble: Vec<_> = all.iter().map(Joined::trouble).collect();
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
        let trouble = Joined::all(&[broken])[0].trouble();
        assert!(trouble.is_some_and(|it| it.contains("cannot use the stream in NATS, for 40 s")));
        let to = |name| Joined::to(&peers, name).map(|it| it.domain.to_string());
        assert_eq!(to("bob@BETA").as_deref(), Some("beta"));
        for here in ["Old@beta", "bob", "bob@omega", "bridge@beta"] {
            assert_eq!(to(here), None, "{here}");
        }
    }

    #[test]
    fn an_address_that_nobody_has_says_what_to_do() {
        let alpha = Domain::parse("alpha");
        let says = |name, own: Option<&Domain>| unknown(name, own).unwrap_or_default();
        assert!(says("bob@beta", None).contains("starts it with `--domain`"));
        assert!(says("bob@beta", alpha.as_ref()).contains("can join beta to it by a bridge"));
        assert!(says("bob@alpha", alpha.as_ref()).ends_with("own domain: it knows no bob"));
        let none = says("bob@be.ta", alpha.as_ref());
        assert!(
            none.contains(r#""be.ta", is no domain's name: expected 1 to 16 of"#),
            "{none}"
        );
        assert_eq!(unknown("bob", None), None);
        assert_eq!(unknown("bob@be.ta", None), None);
    }
}
