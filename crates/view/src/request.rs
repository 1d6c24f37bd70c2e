//! An open request as its broker shows it.

use peerbus_wire::{PeerEntry, Receipt, Stage, escape};
use serde::{Deserialize, Serialize};

use crate::about::{Around, PeerState, PeerView};
use crate::text::is_proven;
use crate::trail::sentence::is_queued_at_stopped;
use crate::trail::{Words, reached, word};

/// Longest text of what a holder says, in characters.
const SAID_CHARS: usize = 60;

/// The state of one that waits for a word of its holder's user, whatever that one does beside.
const HELD: &str = "held";

/// What is known of a request that has no result.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestView {
    /// For whom it is: a peer, or one of a group (`#shop`).
    pub to: String,
    /// Who has it; absent: nobody yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// How far it is there, in a few words: `queued`, `seen`, `working: "half way"`.
    pub state: String,
    /// Its holder has read it, and owes an answer.
    #[serde(default)]
    pub read: bool,
    /// So many milliseconds a result is still waited for.
    pub left_ms: u64,
}

impl RequestView {
    /// A request for `to`, given what is known of it, in order of time.
    #[must_use]
    pub fn new(
        (to, holder): (&str, Option<&str>),
        left_ms: u64,
        receipts: &[Receipt],
        around: Around<'_>,
    ) -> Self {
        let mut each = reached(receipts.iter()).into_values();
        let last = each.find(|receipt| !matches!(receipt.stage, Stage::Recalled { .. }));
        let mut peers = around.peers.iter();
        let has_it = holder.or(last.and_then(|it| it.to.as_deref()));
        let peer = peers.find(|peer| Some(&*peer.name) == has_it);
        // Nobody has one that is queued: one that is stopped keeps it there.
        let is_there = |peer: &&PeerEntry| {
            last.is_some_and(|it| it.stage != Stage::Queued || is_queued_at_stopped(it, peer))
        };
        let peer = peer.filter(is_there);
        let peer = peer.map(|peer| PeerView::new(peer, around.audience));
        let (read, state) = state(last, is_seen(receipts, holder), peer);
        Self {
            to: to.to_owned(),
            holder: holder.map(str::to_owned),
            state,
            read,
            left_ms,
        }
    }

    /// Tells of its holder that it is stopped, in this state.
    pub(crate) fn stops(&mut self, state: &str) {
        let state = match self.state.starts_with(HELD) {
            true => HELD,
            false => state,
        };
        state.clone_into(&mut self.state);
    }

    /// Who owes it, as people say it.
    #[must_use]
    pub fn owes(&self) -> String {
        let name = |name: &str| escape(name, crate::text::NAME_CHARS);
        match (&self.holder, self.to.starts_with('#')) {
            (Some(holder), _) => name(holder),
            (None, true) => format!("one of {}", name(&self.to)),
            (None, false) => name(&self.to),
        }
    }
}

/// Whether it was read, and how far it is.
fn state(last: Option<&Receipt>, seen: bool, holder: Option<PeerView>) -> (bool, String) {
    let Some(Receipt { stage, .. }) = last else {
        return (false, Words::of(&Stage::Queued).state.to_owned());
    };
    let is_read = seen || matches!(stage, Stage::Owed | Stage::Working { .. });
    let word = match stage {
        Stage::Working { said } if !said.is_empty() => {
            let said = escape(said, SAID_CHARS);
            format!("working: \"{said}\"")
        }
        stage => word(stage, seen).to_owned(),
    };
    let now = match holder.filter(|it| word != HELD || it.is == PeerState::Away) {
        Some(holder) if matches!(holder.is, PeerState::Waits | PeerState::Stuck) => {
            holder.state.to_owned()
        }
        Some(holder) if !holder.online => word + ", away",
        _ => word,
    };
    (is_read, now)
}

/// Whether it is proven that this one has seen it.
pub(crate) fn is_seen<'a>(
    receipts: impl IntoIterator<Item = &'a Receipt>,
    holder: Option<&str>,
) -> bool {
    let is_here = |it: &Receipt| it.to.as_deref() == holder && is_proven(&it.stage);
    receipts.into_iter().any(is_here)
}

#[cfg(test)]
mod tests {
    use peerbus_wire::{How, MessageId, Presence};

    use super::*;
    use crate::about::Audience;

    fn around(peers: &[PeerEntry]) -> Around<'_> {
        Around {
            now_ms: 0,
            peers,
            audience: Audience::Peer,
        }
    }

    fn view(stages: &[(&str, Stage)], peers: &[PeerEntry]) -> RequestView {
        let receipt = |(to, stage): &(&str, Stage)| Receipt {
            to: Some((*to).to_owned()),
            ..Receipt::new(MessageId::parse("q1").unwrap(), stage.clone())
        };
        let receipts: Vec<_> = stages.iter().map(receipt).collect();
        let holder = stages.last().map(|(to, _)| *to);
        RequestView::new(("#shop", holder), 1, &receipts, around(peers))
    }

    fn peer(name: &str, online: bool, activity: &str) -> PeerEntry {
        PeerEntry {
            name: name.into(),
            online,
            unacked: None,
            away_s: None,
            activity_s: None,
            owes: None,
            groups: Vec::new(),
            presence: Presence::parse(&format!(r#"{{"activity":"{activity}"}}"#)),
            stopped: false,
            token: None,
            old: Vec::new(),
        }
    }

    #[test]
    fn a_state_is_true_of_who_holds_it_now() {
        let working = |said: &str| Stage::Working { said: said.into() };
        let held = || Stage::Held {
            why: "a rule".into(),
        };
        let busy = [peer("ann", true, "busy")];
        let waiting = [peer("ann", true, "waiting")];
        let stuck = [peer("ann", true, "stuck")];
        let away = [peer("ann", false, "waiting")];
        for (stage, peers, says) in [
            (Stage::Queued, &waiting, "queued"),
            (Stage::Queued, &away, "queued"),
            (Stage::Delivered, &away, "delivered, away"),
            (Stage::Delivered, &busy, "delivered"),
            (Stage::Delivered, &waiting, "waits for its user"),
            (Stage::Delivered, &stuck, "stuck"),
            (Stage::Queued, &stuck, "queued"),
            (Stage::Owed, &stuck, "stuck"),
            (held(), &stuck, "held"),
            (held(), &waiting, "held"),
            (held(), &away, "held, away"),
            (Stage::Owed, &busy, "acked"),
            (Stage::Owed, &waiting, "waits for its user"),
            (Stage::Owed, &away, "acked, away"),
            (
                working("half\u{1b}way"),
                &busy,
                r#"working: "half\u001bway""#,
            ),
            (working(""), &busy, "working"),
            (working("nearly"), &away, r#"working: "nearly", away"#),
        ] {
            let view = view(&[("ann", stage)], peers);
            assert_eq!((&*view.state, &*view.owes()), (says, "ann"));
        }
        let why = String::new();
        let stopped = PeerEntry {
            stopped: true,
            ..peer("ann", false, "idle")
        };
        let stopped = [stopped];
        for stage in [Stage::Queued, Stage::Delivered, Stage::Owed] {
            assert_eq!(view(&[("ann", stage)], &stopped).state, "stuck");
        }
        assert_eq!(view(&[("ann", held())], &stopped).state, "held");
        let passed = [("ann", Stage::Recalled { why }), ("bob", Stage::Owed)];
        let now = view(&passed, &waiting);
        assert_eq!((&*now.state, &*now.owes()), ("acked", "bob"));
        let proven = How::Seen {
            path: "acp".into(),
            evidence: "transcript".into(),
        };
        let again = view(
            &[
                ("ann", Stage::Acked(Some(proven))),
                ("ann", Stage::Delivered),
            ],
            &busy,
        );
        assert_eq!((&*again.state, again.read), ("delivered", true));
        let nobody = RequestView::new(("#shop", None), 1, &[], around(&[]));
        assert_eq!(
            (&*nobody.state, &*nobody.owes()),
            ("queued", "one of #shop")
        );
    }
}
