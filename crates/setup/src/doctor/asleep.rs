//! Sessions on the bus that nothing can wake, by what they say of themselves.

use peerbus_adapter::PeerEntry;
use peerbus_view::{Audience, FewPeers, PeerState, PeerView, presence, says};

use super::report::Report;

/// Sessions that are named; of more their number is enough.
const NAMED_MAX: usize = 8;

pub(super) fn check(peers: &[PeerEntry], report: &mut Report) {
    let (mut woken, mut drain, mut asleep) = (0, 0, Vec::new());
    let is_stuck = |it: &PeerEntry| PeerView::new(it, Audience::Owner).is == PeerState::Stuck;
    for peer in peers.iter().filter(|it| it.online && !is_stuck(it)) {
        let said = presence(peer);
        match (said["wake"].as_array(), said["unwoken"].as_str()) {
            (Some(paths), _) if !paths.is_empty() => woken += 1,
            // A path that fails is named before its reason. Where there is none, nothing can be mended.
            (_, Some(why)) if why.contains(": ") => asleep.push(says(&peer.name, why)),
            (_, Some(_)) | (Some(_), None) => drain += 1,
            _ => {}
        }
    }
    if woken > 0 {
        report.ok(
            "wake",
            format!("{woken} of the sessions on the bus can be woken"),
        );
    }
    if drain > 0 {
        let says = format!(
            "nothing is known that wakes {drain} of the sessions on the bus: their agents drain"
        );
        report.ok("wake", says);
    }
    let named = asleep.len().min(NAMED_MAX);
    for sentence in asleep.iter().take(named) {
        report.warning(
            "wake",
            format!("nothing wakes a session now: {sentence}"),
            "mend what it names, unless it passes; until then its mail waits, unless its agent drains it",
        );
    }
    let more = asleep.len() - named;
    if more > 0 {
        let says = format!("nothing wakes {more} more sessions");
        report.warning("wake", says, "`peerbus peers --json` says why (`unwoken`)");
    }
}

/// Sessions of which no answer comes as things are.
pub(super) fn silent(peers: &[(PeerView, Option<String>)], report: &mut Report) {
    let alarms = FewPeers::alarms(peers.iter().map(|(peer, _)| peer));
    for (peer, way_out) in peers.iter().filter(|(peer, _)| alarms.has(peer)) {
        let says = format!("{} {}", peer.name, peer.does());
        match peer.is {
            PeerState::Waits => {
                let way_out = way_out.as_deref().unwrap_or("answer where it runs");
                report.warning("waits", says, way_out);
            }
            PeerState::Stuck => {
                let tried = peer.tried.as_deref().unwrap_or("it does not say why");
                let says = format!("{} is {}: {tried}", peer.name, peer.does());
                report.warning("stuck", says, way_out.as_ref().unwrap_or(&peer.look()));
            }
            _ => {}
        }
    }
    for more in alarms.more() {
        let says = format!("and {more}: waiting or stuck, as they say");
        report.warning("waits", says, "`peerbus peers` lists them");
    }
}

#[cfg(test)]
mod tests {
    use peerbus_adapter::Presence;
    use serde_json::Value;

    use super::*;

    fn peer(name: &str, online: bool, presence: &Value) -> PeerEntry {
        PeerEntry {
            name: name.into(),
            online,
            unacked: None,
            away_s: Some(0),
            activity_s: None,
            owes: None,
            groups: Vec::new(),
            presence: Presence::parse(&presence.to_string()),
            stopped: false,
            token: None,
            old: Vec::new(),
        }
    }

    fn lines(peers: &[PeerEntry]) -> Vec<String> {
        let mut report = Report::default();
        check(peers, &mut report);
        report.lines()
    }

    #[test]
    fn a_session_that_nothing_wakes_is_named_with_its_reason() {
        let asleep = |why: &str| serde_json::json!({ "wake": [], "unwoken": why });
        let drains = serde_json::json!({ "wake": [] });
        let wakes = serde_json::json!({ "wake": ["socket"] });
        let found = lines(&[
            peer("ann", true, &wakes),
            peer("bob", true, &asleep("socket: it is gone\u{1b}")),
            peer("cid", true, &drains),
            peer("dan", false, &asleep("away")),
            peer("eve", true, &asleep("nothing is known that wakes an agent")),
        ]);
        let text = found.join("\n");
        assert!(text.contains("1 of the sessions"), "{text}");
        let named = r#"bob says: "socket: it is gone\u001b""#;
        assert!(text.contains(named) && text.contains("drain"), "{text}");
        assert!(text.contains("wakes 2 of the sessions"), "{text}");
        assert!(!text.contains("eve"), "{text}");
        assert!(!text.contains("cid") && !text.contains("dan"), "{text}");
        let many: Vec<_> = (0..20)
            .map(|n| peer(&format!("p{n}"), true, &asleep("socket: why")))
            .collect();
        let text = lines(&many).join("\n");
        assert!(text.contains("12 more") && !text.contains("p9"), "{text}");
        assert_eq!(lines(&[]), Vec::<String>::new());
    }
}
