//! Random work as the core does it. A batch is a function of its seed and of the state that it
//! finds, so whoever knows how many batches were committed knows the whole database.

use peerbus_core::audit::{AuditKey, AuditLog, ChainHead};
use peerbus_core::store::{
    AliasRow, DeliveryHistory, Fate, Inserted, Keep, LeaseRow, Lessee, MessageHead, NOBODY, Notice,
    OwedRow, PeerId, PeerKind, PeerRow, RequestRow,
};
use peerbus_core::{Delivered, Stamp, TokenHash};
use peerbus_wire::{EnvelopeHash, How, MessageId, Seq, Stage};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::model::{Target, ended, lease_head};

/// Keeps the model, which looks at everything, fast.
const PEERS_MAX: usize = 12;

/// Work of one transaction, its audit block included.
pub(crate) fn batch(seed: u64, key: &AuditKey, target: &mut impl Target) {
    let head = target
        .model()
        .head
        .clone()
        .unwrap_or_else(|| ChainHead::new(key));
    let mut rng = StdRng::seed_from_u64(seed);
    let now = 1_000_000 + head.blocks * 1_000;
    // Now and then the wall clock goes back.
    let back = match rng.random_ratio(1, 10) {
        true => rng.random_range(0..20_000),
        false => 0,
    };
    let at = Stamp {
        wall_ms: 5_000_000 + now - back,
        steady_ms: now,
    };
    let mut work = Work {
        rng,
        head,
        log: AuditLog::default(),
        fates: Vec::new(),
        now,
        at,
        target,
    };
    for _ in 0..work.rng.random_range(1..40) {
        work.one();
    }
    let Work {
        mut head,
        mut log,
        fates,
        target,
        ..
    } = work;
    target
        .insert_fates(&fates, 700 * fates.len() as u64, now)
        .unwrap();
    let block = log.seal(key, &mut head, at);
    target.append_audit(&block, &head).unwrap();
}

/// Asks everything that can be asked, with random arguments.
pub(crate) fn probe(seed: u64, target: &mut impl Target) {
    let mut rng = StdRng::seed_from_u64(seed);
    let head = target.model().head.clone();
    let (seqs, peers, now) = match &head {
        Some(head) => (
            head.next_seq + 1,
            head.next_peer + 1,
            1_000_000 + head.blocks * 1_000,
        ),
        None => (2, 2, 1_000_000),
    };
    for _ in 0..6 {
        let peer = PeerId(rng.random_range(0..peers));
        let seq = Seq(rng.random_range(0..seqs));
        let limit = rng.random_range(0..30);
        // Often just when something happened: rows of that very time are not older.
        let before_ms = rng.random_range(900_000..=now) / 1_000 * 1_000;
        let sender = PeerId(rng.random_range(0..peers));
        target.delivery((peer, sender), seq).unwrap();
        target
            .read_queue(peer, limit, rng.random_range(0..2_000))
            .unwrap();
        target.read_queue(peer, usize::MAX, usize::MAX).unwrap();
        target.count_queue(peer).unwrap();
        target.queue_sums(peer).unwrap();
        target.queue_heads(peer).unwrap();
        let until = [Seq(seq.0 + 5), Seq(u64::MAX)][usize::from(limit > 15)];
        let bytes = rng.random_range(0..2_000);
        target
            .read_run((peer, sender), seq, until, limit, bytes)
            .unwrap();
        target.pending_for(seq).unwrap();
        target.old_deliveries(before_ms, limit).unwrap();
        target.old_deliveries(u64::MAX, limit).unwrap();
        target
            .notices(peer, rng.random_range(0..20), limit)
            .unwrap();
        target.old_audit(before_ms, limit).unwrap();
        target.fates_of(&[seq], usize::MAX).unwrap();
        if let Some(head) = target.message(seq).unwrap() {
            target.find_message(head.sender, &head.id).unwrap();
            target.find_message(peer, &head.id).unwrap();
        }
    }
}

struct Work<'a, T> {
    rng: StdRng,
    head: ChainHead,
    log: AuditLog,
    fates: Vec<Fate>,
    now: u64,
    at: Stamp,
    target: &'a mut T,
}

impl<T: Target> Work<'_, T> {
    fn one(&mut self) {
        match self.rng.random_range(0..100) {
            0..8 => self.put_peer(),
            8 => self.delete_peer(),
            9 => self.alias(),
            10..13 => self.owe(),
            13..16 => self.lease(),
            16..50 => self.send(),
            50..80 => self.settle(),
            80..84 => self.reject(),
            84..86 => self.recall(),
            86 => self.sweep(),
            87 => self.succeed(),
            88..94 => self.notice(),
            94..97 => {
                self.write_fates();
                let before_ms = self.past();
                let dead_bytes = [u64::MAX, 0][usize::from(self.rng.random_ratio(1, 8))];
                let before = self.rng.random_range(0..10);
                self.target
                    .delete_dead(before_ms, dead_bytes, self.rng.random_range(0..4))
                    .unwrap();
                self.target
                    .delete_notices(before_ms, before, self.rng.random_range(0..4))
                    .unwrap();
            }
            _ => self.drop_audit(),
        }
    }

    fn past(&mut self) -> u64 {
        self.now - self.rng.random_range(0..100_000)
    }

    fn put_peer(&mut self) {
        let kinds = [PeerKind::Peer, PeerKind::Ended, PeerKind::Forwarded];
        let kind = pick(&mut self.rng, kinds.into_iter()).unwrap();
        let peers = &self.target.model().peers;
        let full = peers.len() >= PEERS_MAX;
        let known = pick(&mut self.rng, peers.values());
        let row = match known.filter(|_| full || self.rng.random_bool(0.5)) {
            Some(known) => PeerRow {
                online: !known.online,
                owner: self
                    .rng
                    .random_bool(0.9)
                    .then(|| TokenHash(self.rng.random())),
                last_seen: self.at,
                delivered: known.online.then(|| {
                    let text = format!("{} 2:{}", self.now, self.now / 2);
                    Delivered::parse(&text).unwrap()
                }),
                ..known.clone()
            },
            None => PeerRow {
                id: PeerId(self.head.next_peer),
                kind,
                // Others have the name of one that has ended.
                name: match kind {
                    PeerKind::Peer => format!("Peer-{}", self.head.next_peer),
                    _ => "Peer-1".into(),
                },
                owner: Some(TokenHash(self.rng.random())),
                generated: self.rng.random(),
                ephemeral: self.rng.random(),
                online: true,
                last_seen: self.at,
                delivered: None,
                mark: peerbus_wire::Mark::parse("e.1"),
                groups: peerbus_wire::GroupName::parse("g1").into_iter().collect(),
                program: peerbus_wire::Presence::parse(r#"{"client":"codex"}"#),
            },
        };
        self.head.next_peer = self.head.next_peer.max(row.id.0 + 1);
        self.log.register(row.id, &row.name);
        self.target.put_peer(&row).unwrap();
    }

    fn alias(&mut self) {
        let name = format!("Old-{}", self.rng.random_range(0..6));
        if self.rng.random() {
            return self
                .target
                .delete_alias(&name.to_ascii_uppercase())
                .unwrap();
        }
        let peer = PeerId(self.rng.random_range(0..self.head.next_peer));
        let (own, used_ms) = (self.rng.random(), self.now);
        self.target
            .put_alias(&AliasRow {
                name,
                peer,
                own,
                used_ms,
            })
            .unwrap();
    }

    fn lease(&mut self) {
        let seq = Seq(self.rng.random_range(1..6));
        if self.rng.random_ratio(1, 3) {
            return self.target.delete_lease(seq).unwrap();
        }
        let group = peerbus_wire::GroupName::parse("g1").unwrap();
        let to = match self.rng.random() {
            true => Lessee::One(group),
            false => Lessee::Peer(PeerId(self.rng.random_range(1..9))),
        };
        let owner = TokenHash(self.rng.random());
        let mut row = LeaseRow::new(lease_head(seq), owner, to);
        for _ in 0..self.rng.random_range(0..4) {
            let holder = PeerId(self.rng.random_range(1..9));
            row.give(holder);
            if self.rng.random() {
                row.rejected.insert(holder);
            }
        }
        row.again = self.rng.random();
        if self.rng.random() {
            row.give(NOBODY);
        }
        let process = self.rng.random::<bool>().then(|| "0a1b".to_owned());
        let said = self
            .rng
            .random::<bool>()
            .then(|| ("half \"way\"".to_owned(), self.now));
        let work = peerbus_core::store::Work { process, said };
        row.request = self.rng.random::<bool>().then(|| RequestRow {
            until_ms: self.now + 7,
            work: Some(work).filter(|_| self.rng.random()),
        });
        self.target.put_lease(&row).unwrap();
    }

    fn owe(&mut self) {
        let peer = PeerId(self.rng.random_range(0..6));
        let row = match self.rng.random_ratio(1, 3) {
            true => OwedRow::none(peer),
            false => OwedRow {
                peer,
                token: self
                    .rng
                    .random_bool(0.9)
                    .then(|| TokenHash(self.rng.random())),
                to: self.rng.random_range(0..1 << 40),
                by: self.rng.random_range(0..1 << 40),
            },
        };
        self.target.put_owed(&row).unwrap();
    }

    fn delete_peer(&mut self) {
        let model = self.target.model();
        let owed = |peer: &PeerId| model.deliveries.keys().any(|row| row.0 == *peer);
        let idle: Vec<_> = model
            .peers
            .keys()
            .filter(|peer| !owed(peer))
            .copied()
            .collect();
        if let Some(peer) = pick(&mut self.rng, idle.into_iter()) {
            self.log.forget(peer);
            self.target.delete_peer(peer).unwrap();
        }
    }

    fn send(&mut self) {
        let peers: Vec<PeerId> = self.target.model().peers.keys().copied().collect();
        let Some(sender) = pick(&mut self.rng, peers.iter().copied()) else {
            return;
        };
        let recipients: Vec<PeerId> = peers
            .into_iter()
            .filter(|_| self.rng.random_bool(0.3))
            .collect();
        let seq = Seq(self.head.next_seq);
        let fresh = MessageId::parse(&format!("{:08x}", self.rng.random::<u32>())).unwrap();
        let used = pick(&mut self.rng, self.target.model().messages.values()).cloned();
        let (id, envelope) = match used.filter(|_| self.rng.random_ratio(1, 8)) {
            // Of some only the hash is left, which no message is.
            Some(used) if self.rng.random() && used.envelope.len() > EnvelopeHash::LETTERS => {
                (used.head.id, used.envelope)
            }
            Some(used) => (used.head.id, "another text".into()),
            // Some texts take overflow pages. None is as long as a hash.
            None => (
                fresh,
                format!("<< {seq:?} >> ")
                    .repeat(1 << self.rng.random_range(0..10))
                    .into(),
            ),
        };
        let message = MessageHead {
            seq,
            sender,
            id: id.clone(),
            recipients: u32::try_from(recipients.len()).unwrap(),
            accepted_ms: self.at.wall_ms,
            bytes: envelope.len() as u64,
        };
        if self.target.insert_message(&message, &envelope).unwrap() == Inserted::New {
            self.head.next_seq += 1;
            self.log
                .accept(&message, &EnvelopeHash::of(envelope.as_bytes()));
        } else {
            return;
        }
        if recipients.is_empty() {
            self.fates.push(Fate::of_nobody(seq, self.at.wall_ms));
        }
        for recipient in recipients {
            let pair = (recipient, sender);
            self.target.insert_delivery(pair, seq, self.now).unwrap();
        }
    }

    fn settle(&mut self) {
        let pending = self.target.model().deliveries.keys().copied();
        let picked = pick(&mut self.rng, pending);
        let Some((recipient, sender, seq)) = picked else {
            return;
        };
        // Sometimes one that is none.
        let seq = if self.rng.random_ratio(1, 10) {
            Seq(seq.0 + 1)
        } else {
            seq
        };
        if self
            .target
            .delete_delivery((recipient, sender), seq)
            .unwrap()
        {
            self.log.ack(seq, recipient, None);
            let seen = How::Seen {
                path: "drain".into(),
                evidence: "tool_result".into(),
            };
            let how = self.rng.random::<bool>().then_some(seen);
            self.end(recipient, seq, Stage::Acked(how));
        }
    }

    /// Ends of deliveries are kept together, as at the end of a commit.
    fn end(&mut self, recipient: PeerId, seq: Seq, stage: Stage) {
        let delivered = self.rng.random_range(0..3);
        let mut way = DeliveryHistory::delivered(delivered);
        for at_ms in 0..self.rng.random_range(0..3) {
            let path = format!("path-{at_ms}");
            way.step(&Stage::Pushed { path }, at_ms);
        }
        self.fates.push(Fate {
            seq,
            recipient,
            to: format!("Peer-{}", recipient.0).into(),
            at_ms: self.at.wall_ms,
            goes_on: self.rng.random() || matches!(stage, Stage::Recalled { .. }),
            stage: stage.into(),
            way,
        });
    }

    fn reject(&mut self) {
        let pending = self.target.model().deliveries.keys().copied();
        let picked = pick(&mut self.rng, pending);
        let Some((recipient, sender, seq)) = picked else {
            return;
        };
        self.target
            .delete_delivery((recipient, sender), seq)
            .unwrap();
        self.target
            .insert_dead(recipient, seq, "the signature is wrong", self.at)
            .unwrap();
        self.log.reject(seq, recipient);
        let why = "the signature is wrong".into();
        self.end(recipient, seq, Stage::Dead { why });
    }

    /// What one recipient was owed goes on to another one, or to nobody.
    fn recall(&mut self) {
        let model = self.target.model();
        let alone = |seq: &Seq| {
            model
                .messages
                .get(seq)
                .is_some_and(|it| it.head.recipients == 1)
        };
        let pending = model.deliveries.keys().filter(|row| alone(&row.2));
        let pending: Vec<_> = pending.copied().collect();
        let picked = pick(&mut self.rng, pending.into_iter());
        let others: Vec<_> = model.peers.keys().copied().chain([NOBODY]).collect();
        let next = pick(&mut self.rng, others.into_iter());
        let (Some((recipient, sender, seq)), Some(next)) = (picked, next) else {
            return;
        };
        let target = &mut self.target;
        target.delete_delivery((recipient, sender), seq).unwrap();
        target
            .insert_delivery((next, sender), seq, self.now)
            .unwrap();
        let (from, to) = (recipient, next);
        self.log.pass(seq, from, to);
        let why = "its session ended".into();
        self.end(recipient, seq, Stage::Recalled { why });
    }

    /// What one peer was owed another one is owed, but for what that was owed itself.
    fn succeed(&mut self) {
        let peers: Vec<_> = self.target.model().peers.keys().copied().collect();
        let from = pick(&mut self.rng, peers.iter().copied());
        let to = pick(&mut self.rng, peers.into_iter());
        let (Some(from), Some(to)) = (from, to.filter(|to| Some(*to) != from)) else {
            return;
        };
        for (_, seq) in self.target.move_queue(from, to).unwrap() {
            self.log.pass(seq, from, to);
        }
    }

    fn write_fates(&mut self) {
        let fates = std::mem::take(&mut self.fates);
        let bytes = 700 * fates.len() as u64;
        self.target.insert_fates(&fates, bytes, self.now).unwrap();
    }

    fn sweep(&mut self) {
        // What is forgotten is decided by what is written.
        self.write_fates();
        let bytes = [u64::MAX, 0, 20_000][self.rng.random_range(0..3)];
        let keep = Keep {
            from_ms: self.past(),
            bytes,
            ids_from_ms: self.past() + 10_000,
        };
        self.target.forget_ended(keep, usize::MAX).unwrap();
    }

    fn notice(&mut self) {
        let kept = pick(&mut self.rng, self.target.model().notices.keys().copied());
        if let Some((sender, number)) = kept.filter(|_| self.rng.random()) {
            let number = number + u64::from(self.rng.random_ratio(1, 10));
            self.target.delete_notice(sender, number).unwrap();
            return;
        }
        let notice = Notice {
            number: self.head.next_notice,
            sender: PeerId(self.rng.random_range(1..=self.head.next_peer)),
            id: MessageId::parse("an-id").unwrap(),
            to: "somebody".into(),
            stage: ended(self.rng.random_range(0..6), "an-id".into()),
            at: self.at,
        };
        self.head.next_notice += 1;
        self.target.insert_notice(&notice).unwrap();
    }

    fn drop_audit(&mut self) {
        let before_ms = self.past();
        let old = self
            .target
            .old_audit(before_ms, self.rng.random_range(0..20))
            .unwrap();
        if let Some(block) = old {
            self.target.drop_audit(block.number).unwrap();
            (self.head.anchor, self.head.anchor_hash) = (block.number, block.hash);
        }
    }
}

fn pick<V>(rng: &mut StdRng, mut from: impl ExactSizeIterator<Item = V>) -> Option<V> {
    let count = from.len();
    (count > 0)
        .then(|| rng.random_range(0..count))
        .and_then(|n| from.nth(n))
}
