//! What peers do about requests.

use peerbus_wire::{ClientFrame, DeliveryKey, MessageId, Stage};

use super::oracle::{Key, Letter};
use super::world::{Event, World};

impl World {
    /// The body of a message to a peer: a request, an answer to a request that its sender
    /// need not have, or nothing special; and what it answers.
    pub(super) fn talk(&mut self, whom: usize, nobody: bool) -> (String, Option<(Key, bool)>) {
        let plain = ("1".to_owned(), None);
        if self.plan.requests == 0 {
            return plain;
        }
        if self.rng.chance(self.plan.requests) {
            let within_ms = self.rng.pick(&[3_000, 20_000, 120_000]);
            let body = format!(r#"{{"wants":"result","within_ms":{within_ms}}}"#);
            return (body, None);
        }
        let asker = &self.peers[whom].name;
        let letters = self.oracle.letters.iter();
        let mut asked = letters.filter(|(key, it)| key.0 == *asker && it.within_ms.is_some());
        match asked.next_back().map(|(key, _)| key.clone()) {
            Some(asked) if !nobody && self.rng.chance(100) => {
                let body = format!(r#"{{"reply_to":"{}"}}"#, asked.1);
                (body, Some((asked, false)))
            }
            _ => plain,
        }
    }

    /// A peer reads a message: if that is a request, it does something about it later.
    pub(super) fn reads(&mut self, (peer, conn): (usize, u64), key: &Key, delivery: &DeliveryKey) {
        let letter = self.oracle.letters.get(key);
        if letter.is_some_and(|letter| letter.within_ms.is_some()) {
            let later = self.rng.range(0, 20_000);
            let event = Event::Answer(peer, conn, key.clone(), delivery.clone());
            self.after(later, event);
        }
    }

    /// A peer does something about a request that it has read, or forgets it.
    pub(super) fn answer(&mut self, peer: usize, conn: u64, key: Key, delivery: DeliveryKey) {
        // Of another life of its broker the delivery may be another one.
        let here = self.peers[peer].conn == Some(conn);
        match self.rng.index(8) {
            0 | 1 if here => {
                let said = self.rng.pick(&["half way", ""]).to_owned();
                let stage = Stage::Working { said };
                self.oracle.says(&key, &stage);
                self.reads((peer, conn), &key, &delivery);
                self.client_sends(conn, ClientFrame::progress(delivery, stage));
            }
            2 if here => {
                let reason = "it is not mine to do".to_owned();
                let why = reason.clone();
                self.oracle.says(&key, &Stage::Dead { why });
                self.client_sends(conn, ClientFrame::reject(delivery, reason));
            }
            3 => {}
            _ => {
                let failed = self.rng.chance(200);
                let outcome = if failed { r#","outcome":"failed""# } else { "" };
                let body = format!(r#"{{"reply_to":"{}"{outcome}}}"#, key.1);
                let id = format!("m{}", self.number());
                let Some(asked) = self.oracle.letters.get(&key) else {
                    return;
                };
                let letter = Letter {
                    home: self.peers[peer].home,
                    far: asked.home,
                    to: key.0.clone(),
                    answers: Some((key, failed)),
                    ..Letter::default()
                };
                self.post(peer, id, &body, letter);
            }
        }
    }

    /// A peer may take its request back later.
    pub(super) fn asks(&mut self, peer: usize, id: MessageId) {
        if self.rng.chance(150) {
            let later = self.rng.range(0, 20_000);
            self.after(later, Event::Withdraw(peer, id));
        }
    }

    /// A peer takes a request back, if it is here to say so.
    pub(super) fn withdraw(&mut self, peer: usize, id: MessageId) {
        let Some(conn) = self.peers[peer].conn.filter(|_| self.peers[peer].greeted) else {
            return;
        };
        let key: Key = (self.peers[peer].name.clone(), id.to_string());
        if let Some(letter) = self.oracle.letters.get_mut(&key) {
            letter.withdrawn = true;
            self.client_sends(conn, ClientFrame::Withdraw { id });
        }
    }
}
