//! Of many peers those of which a person is told one by one. A token may register hundreds of names that all say
//! that they wait: sessions of this machine come first, and of the rest a few stand for all of their token.

use std::collections::BTreeMap;

use crate::about::{PeerState, PeerView};

/// Peers of one token that are told of one by one because they say that they need a person.
const ALARMS_OF_TOKEN: usize = 3;
/// Those that have a row in a table.
const ROWS_OF_TOKEN: usize = 20;

/// Some peers, and how many more each token has. Sessions of this machine are all among them, at the
/// beginning.
#[derive(Debug)]
pub struct FewPeers<'a> {
    /// Those that are told of.
    pub peers: Vec<&'a PeerView>,
    more: BTreeMap<Option<&'a str>, usize>,
}

impl<'a> FewPeers<'a> {
    /// Those that wait for a person, or are stuck.
    #[must_use]
    pub fn alarms(all: impl IntoIterator<Item = &'a PeerView>) -> Self {
        let is_alarm = |peer: &&PeerView| matches!(peer.is, PeerState::Waits | PeerState::Stuck);
        Self::of(all.into_iter().filter(is_alarm), ALARMS_OF_TOKEN)
    }

    /// Those that have a row in a table.
    #[must_use]
    pub fn rows(all: impl IntoIterator<Item = &'a PeerView>) -> Self {
        Self::of(all.into_iter(), ROWS_OF_TOKEN)
    }

    fn of(all: impl Iterator<Item = &'a PeerView>, most: usize) -> Self {
        let (mut peers, others): (Vec<_>, Vec<_>) = all.partition(|peer| peer.here);
        let mut more = BTreeMap::new();
        for peer in others {
            let token = peer.token.as_ref().map(peerbus_wire::TokenName::as_str);
            let count = more.entry(token).or_insert(0);
            *count += 1;
            if *count <= most {
                peers.push(peer);
            }
        }
        more.retain(|_, count| *count > most);
        more.values_mut().for_each(|count| *count -= most);
        Self { peers, more }
    }

    /// Whether this one is told of.
    #[must_use]
    pub fn has(&self, peer: &PeerView) -> bool {
        self.peers.iter().any(|it| std::ptr::eq(*it, peer))
    }

    /// How many more there are, for each token: `397 more of the token eve`.
    pub fn more(&self) -> impl Iterator<Item = String> {
        self.more.iter().map(|(token, count)| match token {
            Some(token) => format!("{count} more of the token {token}"),
            None => format!("{count} more"),
        })
    }
}

#[cfg(test)]
mod tests {
    use peerbus_wire::{PeerEntry, Presence, TokenName};

    use super::*;
    use crate::about::Audience;

    #[test]
    fn no_token_crowds_out_another_or_a_session_of_this_machine() {
        let peer = |name: &str, token: &str, activity: &str| {
            let entry = PeerEntry {
                name: name.into(),
                online: true,
                presence: Presence::parse(&format!(r#"{{"activity":"{activity}"}}"#)),
                token: TokenName::parse(token),
                ..PeerEntry::default()
            };
            PeerView::new(&entry, Audience::Owner)
        };
        let mut all: Vec<_> = (0..400)
            .map(|n| peer(&format!("a{n}"), "eve", ["waiting", "stuck"][n % 2]))
            .collect();
        all.push(peer("ci", "build", "waiting"));
        all.push(peer("calm", "build", "idle"));
        let mut bob = peer("bob", "eve", "waiting");
        bob.here = true;
        all.push(bob);
        let told = FewPeers::alarms(&all);
        let names: Vec<_> = told.peers.iter().map(|peer| &*peer.name).collect();
        assert_eq!(names, ["bob", "a0", "a1", "a2", "ci"]);
        assert!(told.has(&all[402]) && !told.has(&all[3]));
        let more: Vec<_> = told.more().collect();
        assert_eq!(more, ["397 more of the token eve"]);
        let rows = FewPeers::rows(&all);
        assert_eq!(rows.peers.len(), 1 + 20 + 2);
        assert!(rows.more().eq(["380 more of the token eve".to_owned()]));
    }
}
