//! Other domains: the way to each, and names here that look like addresses there.

use peerbus_adapter::{Domain, PeerEntry, PeerName, Secret};
use peerbus_view::{DomainKey, DomainView};

use super::report::Report;

/// Names that are told; of more their number is enough.
const NAMED_MAX: usize = 8;

/// Says how other domains are reached from a broker with the domain `own`, if it has one.
pub(super) fn check(own: Option<&Domain>, peers: &[PeerEntry], report: &mut Report) {
    let Some(own) = own else { return };
    report.ok(
        "domain",
        format!("this broker is {own}: from elsewhere its peers are NAME@{own}"),
    );
    for joined in DomainView::all(peers) {
        let domain = &joined.domain;
        match joined.trouble {
            None => report.ok(
                "domain",
                format!("{domain} is joined, and its bridge is connected"),
            ),
            Some(trouble) => report.warning(
                "domain",
                trouble,
                "see the log of that bridge; until it is back mail for that domain waits here, and \
                 nothing is lost",
            ),
        }
    }
    check_keys(own, peers, report);
    let odd = |peer: &&PeerEntry| {
        let name = PeerName::parse(&peer.name).ok();
        name.is_some_and(|name| name.address().is_some() && name.bridged().is_none())
    };
    let odd: Vec<_> = peers.iter().filter(odd).collect();
    for peer in odd.iter().take(NAMED_MAX) {
        let name = &peer.name;
        report.warning(
            "domain",
            format!(
                "the peer {name} of this broker has a name that looks like an address: mail to {name} goes to \
                 that peer, and not to another domain"
            ),
            format!("give it another name, or end that one with `peerbus names retire {name}`"),
        );
    }
    let more = odd.len().saturating_sub(NAMED_MAX);
    if more > 0 {
        let says = format!("{more} more names of this broker look like addresses");
        report.warning("domain", says, "`peerbus peers --all` shows them");
    }
}

/// Says whether this broker's bridges are bound to its domain in NATS. They share a process and a key.
fn check_keys(own: &Domain, peers: &[PeerEntry], report: &mut Report) {
    let joined = DomainView::all(peers);
    let keys = || joined.iter().map(|joined| joined.key);
    if keys().any(|key| key == DomainKey::None) {
        report.warning(
            "domain",
            "the bridge uses no key: whoever reaches its NATS can send as any domain",
            "`peerbus bridge account` makes one for each domain",
        );
    } else if keys().any(|key| key == DomainKey::Wide) {
        report.warning(
            "domain",
            format!(
                "NATS does not say that the account of the bridge's key keeps the mail of {own} only: where it keeps \
                 others', too, a key of theirs can empty and delete this domain's"
            ),
            format!(
                "write accounts.conf anew with `peerbus bridge account --domain {own}` and the keys that are there, lay it \
                 beside the configuration of nats-server, start that anew, run `peerbus bridge setup`, and use the key \
                 of {own}"
            ),
        );
    }
}

pub(super) fn check_secrets(
    own: Option<&Domain>,
    peers: &[PeerEntry],
    secret: Option<&Secret>,
    report: &mut Report,
) {
    let joined = DomainView::all(peers);
    for (domain, _) in secret.into_iter().flat_map(Secret::domains) {
        if own.is_none() {
            report.warning(
                "domain",
                format!("the credentials have [domains.{domain}], and this broker has no domain"),
                "start `peerbus serve` with `--domain`, or take that table out",
            );
        } else if own == Some(domain) {
            report.failed(
                "domain",
                format!(
                    "the credentials have [domains.{domain}], which is this broker's own domain: what goes \
                     to others is signed with that, and they reject it"
                ),
                "name the other domain there",
            );
        } else if !joined.iter().any(|joined| joined.domain == *domain) {
            report.warning(
                "domain",
                format!("the credentials have [domains.{domain}], and that domain was never joined to this broker"),
                "correct the name, or start the bridge to it",
            );
        }
    }
}
