//! What peers do.

use peerbus_wire::{Ack, ClientFrame, DeliveryKey, Receipt, Received, RefusalCode, Stage};

use super::home::NAMES;
use super::net::Who;
use super::oracle::{Key, Letter, key_of};
use super::world::{Event, World};
use crate::failure::Verdict;

impl World {
    /// A peer writes its next message.
    pub(super) fn write(&mut self, peer: usize) {
        let home = self.peers[peer].home;
        let careless = self.plan.careless;
        let whom = self.rng.index(self.peers.len());
        let nobody = careless && self.rng.chance(60);
        let (to, far) = match nobody {
            true => ("nobody".to_owned(), self.rng.index(self.homes.len())),
            false => (self.peers[whom].name.clone(), self.peers[whom].home),
        };
        let name = self.peers[peer].name.clone();
        let number = self.number();
        let (body, asked) = self.talk(whom, nobody);
        let mut id = format!("m{number}");
        let mut hopeless = nobody;
        if careless
            && self.rng.chance(120)
            && let Some((_, used)) = self.oracle.letters.keys().next_back().cloned()
            && !self
                .oracle
                .letters
                .contains_key(&(name.clone(), used.clone()))
        {
            // Ids are their sender's to choose; between domains they meet.
            id = used;
            for (key, other) in &mut self.oracle.letters {
                other.hopeless |= key.1 == id;
            }
            hopeless = true;
        }
        let letter = Letter {
            home,
            far,
            to,
            hopeless,
            answers: asked,
            ..Letter::default()
        };
        self.post(peer, id, &body, letter);
    }

    /// A peer sends a message, until it has a receipt.
    pub(super) fn post(&mut self, peer: usize, id: String, body: &str, mut letter: Letter) {
        let name = self.peers[peer].name.clone();
        let (home, far, to) = (letter.home, letter.far, letter.to.clone());
        let (from, addressed) = match far == home {
            true => (name.clone(), to),
            false => (
                format!("{name}@{}", NAMES[home]),
                format!("{to}@{}", NAMES[far]),
            ),
        };
        let Some(carried) = super::peer::letter(&from, &addressed, &id, body) else {
            return;
        };
        letter.within_ms = carried.within_ms;
        if letter.within_ms.is_some() {
            self.asks(peer, carried.id.clone());
        }
        let key: Key = (name, id);
        self.oracle.sends(key.clone(), letter);
        self.peers[peer].outbox.push_back((key, carried.clone()));
        if let Some(conn) = self.peers[peer].conn.filter(|_| self.peers[peer].greeted) {
            self.client_sends(conn, ClientFrame::Envelope(carried));
        }
    }

    /// A peer sends again what has no receipt.
    pub(super) fn resend(&mut self, peer: usize) {
        self.peers[peer].resends = false;
        let Some(conn) = self.peers[peer].conn.filter(|_| self.peers[peer].greeted) else {
            return;
        };
        for (_, carried) in self.peers[peer].outbox.clone() {
            self.client_sends(conn, ClientFrame::Envelope(carried));
        }
    }

    /// A peer leaves, and comes back.
    pub(super) fn leave(&mut self, peer: usize) {
        if self.peers[peer].away {
            return;
        }
        self.hang_up(Who::Peer(peer));
        self.peers[peer].greeted = false;
        self.peers[peer].away = true;
        if self.plan.requests > 0 {
            // Another process of its name comes.
            self.peers[peer].process += 1;
        }
        let back = self.rng.range(100, 20_000);
        self.after(back, Event::Dial(Who::Peer(peer)));
        self.peers[peer].away = false;
    }

    pub(super) fn peer_received(&mut self, peer: usize, conn: u64, received: Received) -> Verdict {
        if self.peers[peer].conn != Some(conn) {
            return Ok(());
        }
        match received {
            Received::Peers(frame) if frame.ext.is_some() => {
                self.peers[peer].greeted = true;
                self.resend(peer);
            }
            Received::Receipts(receipts) => {
                for receipt in receipts {
                    self.peer_told(peer, conn, receipt)?;
                }
            }
            Received::Deliver(delivery) => {
                let envelope = &delivery.envelope.envelope;
                let key = key_of(envelope);
                let name = self.peers[peer].name.clone();
                let whom = (name.as_str(), envelope.from.as_str());
                self.oracle
                    .gets(self.now_ms, whom, &key, &delivery.remarks)?;
                if self.rng.chance(400) {
                    let path = "socket".to_owned();
                    let stage = Stage::Pushed { path };
                    self.oracle.says(&key, &stage);
                    let key = delivery.key.clone();
                    self.client_sends(conn, ClientFrame::progress(key, stage));
                }
                let later = self.rng.range(0, 3_000);
                self.after(later, Event::Verdict(peer, conn, key, delivery.key));
            }
            _ => {}
        }
        Ok(())
    }

    fn peer_told(&mut self, peer: usize, conn: u64, receipt: Receipt) -> Verdict {
        let name = self.peers[peer].name.clone();
        let key: Key = (name, receipt.id.to_string());
        self.oracle.told(self.now_ms, &key, &receipt.stage)?;
        if let Some(kept) = receipt.key {
            let ack = Ack {
                key: kept,
                how: None,
                age_ms: 0,
            };
            self.client_sends(conn, ClientFrame::Ack(ack));
        }
        let outbox = &mut self.peers[peer].outbox;
        match receipt.stage {
            Stage::Accepted(_) => outbox.retain(|(of, _)| *of != key),
            Stage::Refused(refusal) => {
                let later = [
                    RefusalCode::DiskFull,
                    RefusalCode::Quota,
                    RefusalCode::QueueFull,
                    // No bridge has been there yet.
                    RefusalCode::UnknownRecipient,
                ];
                if later.contains(&refusal.code) && !key_hopeless(self, &key) {
                    if !std::mem::replace(&mut self.peers[peer].resends, true) {
                        self.after(2_000, Event::Resend(peer));
                    }
                } else {
                    self.peers[peer].outbox.retain(|(of, _)| *of != key);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A peer says in the end what became of a message.
    pub(super) fn decide(&mut self, peer: usize, conn: u64, key: &Key, delivery: DeliveryKey) {
        if self.peers[peer].conn != Some(conn) {
            return;
        }
        let stage = self.peers[peer].verdict(key, &mut self.rng);
        self.oracle.says(key, &stage);
        let frame = match stage {
            Stage::Dead { why } => ClientFrame::reject(delivery, why),
            Stage::Acked(how) => {
                self.reads((peer, conn), key, &delivery);
                ClientFrame::ack(delivery, how)
            }
            _ => return,
        };
        self.client_sends(conn, frame);
    }
}

/// Nobody will ever take it.
fn key_hopeless(world: &World, key: &Key) -> bool {
    let letter = world.oracle.letters.get(key);
    letter.is_none_or(|letter| letter.hopeless && letter.home == letter.far)
}
