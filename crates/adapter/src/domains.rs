//! Who is in other domains, and what may be meant by an address that nobody has.

use std::time::Duration;

use peerbus_view::{DomainView, span};
use peerbus_wire::{Domain, PeerEntry, escape};

use crate::bus::Bus;
use crate::error::BusError;

/// Of what is no domain's name, so much is repeated, in characters.
const BEHIND_CHARS: usize = 40;

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
            Some(_) => DomainView::all(&known.entries),
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
        let told = bus.peers_in(Some(domain.clone()), deadline).await;
        let told = told.map_err(said)?;
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
            note: match &to.trouble {
                Some(trouble) => format!("{age}; {trouble}"),
                None => age,
            },
        })
    }
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
    use super::*;

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
