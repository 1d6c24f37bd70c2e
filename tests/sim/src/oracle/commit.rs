//! What is committed together, and why.

use std::collections::{BTreeMap, BTreeSet};

use peerbus_core::audit::{Block, chain};
use peerbus_core::broker::ConnId;
use peerbus_core::store::{ANSWERS, MessageHead, PeerId, PeerKind};
use peerbus_wire::{Envelope, Seq, Stage, recipient_of};

use super::{Accepted, End, Oracle};
use crate::disk::Write;
use crate::failure::{Failure, Verdict, ensure};
use crate::plan::OTHER_TOKEN;

/// What an audit block says of queues.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    accepted: BTreeMap<Seq, u32>,
    ended: BTreeMap<(PeerId, Seq), End>,
    /// In order: a message for one member of a group may go to and fro.
    moved: Vec<(PeerId, PeerId, Seq)>,
    /// Members of a group that were owed a message.
    members: BTreeSet<(PeerId, Seq)>,
}

impl Said {
    fn read(&mut self, block: &Block) -> Verdict {
        for line in block.events.lines() {
            let mut words = line.split(' ');
            let letter = words.next().unwrap_or_default();
            let numbers: Vec<Option<u64>> = words.map(|word| word.parse().ok()).collect();
            let number = |at: usize| numbers.get(at).copied().flatten().unwrap_or(0);
            let seq = Seq(number(0));
            let peer = || PeerId(u32::try_from(number(1)).unwrap_or(0));
            let again = match letter {
                "A" => {
                    let recipients = u32::try_from(number(3)).unwrap_or(0);
                    self.accepted.insert(seq, recipients).is_some()
                }
                "K" => self.ends_again((peer(), seq), End::Acked),
                "E" => self.ends_again((peer(), seq), End::Expired),
                "X" => self.ends_again((peer(), seq), End::Dead),
                "M" => {
                    let to = PeerId(u32::try_from(number(2)).unwrap_or(0));
                    self.moved.push((peer(), to, seq));
                    false
                }
                "W" => {
                    self.moved.push((peer(), ANSWERS, seq));
                    false
                }
                "O" => !self.members.insert((peer(), seq)),
                "D" | "R" | "T" | "F" | "Z" | "N" | "V" | "S" | "U" => false,
                _ => true,
            };
            ensure(!again, "I2", || {
                format!("block {}: {line:?} is wrong", block.number)
            })?;
        }
        Ok(())
    }

    /// Notes an end. Says whether there was one before that it cannot have had.
    fn ends_again(&mut self, (peer, seq): (PeerId, Seq), end: End) -> bool {
        let Some(earlier) = self.ended.insert((peer, seq), end) else {
            return false;
        };
        // It was done with its own copy of a broadcast before it got those of names that ended.
        match self.former(peer, seq) {
            Some(former) => self.ended.insert((former, seq), earlier).is_some(),
            None => true,
        }
    }

    /// One whose copy came to this peer, and that has no end of its own.
    fn former(&self, peer: PeerId, seq: Seq) -> Option<PeerId> {
        let moved = self.moved.iter();
        let mut formers = moved
            .filter(|(_, to, moved)| (*to, *moved) == (peer, seq))
            .map(|(from, ..)| *from);
        formers.find_map(|from| match self.ended.contains_key(&(from, seq)) {
            false => Some(from),
            true => self.former(from, seq),
        })
    }
}

impl Oracle {
    /// A message is being stored.
    pub(super) fn stored(
        &mut self,
        conn: Option<ConnId>,
        head: &MessageHead,
        envelope: &str,
    ) -> Verdict {
        let model = conn.and_then(|conn| self.conns.get(&conn));
        let name = model
            .and_then(|model| model.claim.as_ref())
            .map(|claim| claim.name.as_str());
        let stranger = model.and_then(|model| model.claim.as_ref()?.token.as_ref());
        let stranger = stranger.is_some_and(|token| token.expose() == OTHER_TOKEN);
        ensure(!stranger, "rights", || {
            "a message was accepted of a token that may not send".into()
        })?;
        let envelope = decode(envelope)?;
        let (id, from, to) = (&envelope.id, envelope.from.as_str(), envelope.to.as_str());
        let own = Some(from) == name || self.view.was_called(model.and_then(|m| m.peer), from);
        ensure(own, "I10", || {
            format!("{id} from {from:?} was accepted on a connection of {name:?}")
        })?;
        let known = to == "*" || to.starts_with('#') || self.view.resolve(to).is_some();
        let known = known || self.is_answer(id);
        ensure(known, "I12", || {
            format!("{id} to {to:?} was accepted: nobody ever had the name")
        })?;
        let many = to == "*" || to.starts_with('#');
        let one = head.recipients == 1 || self.is_answer(id) && head.recipients == 0;
        ensure(many || one, "I12", || {
            format!(
                "{id} to {to:?} was accepted for {} recipients",
                head.recipients
            )
        })
    }

    /// A debt is being settled: by its recipient, or because its time has come.
    pub(super) fn settling(
        &mut self,
        now_ms: u64,
        (peer, seq): (PeerId, Seq),
        writes: &[Write],
    ) -> Verdict {
        for model in self
            .conns
            .values_mut()
            .filter(|model| model.peer == Some(peer))
        {
            model.flights.remove(&seq);
        }
        if self.causes.contains_key(&(peer, seq)) {
            return Ok(());
        }
        let steady_ms = self.clock.steady_ms(now_ms);
        let old = steady_ms.saturating_sub(self.since(seq)) > self.rules.expiry_ms;
        let row = self.view.peers.get(&peer);
        let left = !self.online.contains(&peer) && {
            let last = self.last_online.get(&peer).copied().unwrap_or(0);
            let away_ms = steady_ms.saturating_sub(last);
            let passing = row.is_some_and(|row| row.generated || row.ephemeral);
            passing && away_ms > self.rules.expiry_generated_ms
        };
        let ephemeral = row.is_some_and(|row| row.ephemeral);
        let ended = row.is_some_and(|row| row.kind == PeerKind::Ended);
        let unanswered = self.may_be_unanswered(steady_ms, seq, writes);
        let expired = old || left || ephemeral || ended || unanswered;
        ensure(expired || self.is_unwanted(now_ms, seq), "I4", || {
            let name = self.name_of(peer);
            format!(
                "message {} was owed to {name}, who did not ack it, and vanished",
                seq.0
            )
        })?;
        let end = if expired { End::Expired } else { End::Dead };
        self.causes.insert((peer, seq), end);
        Ok(())
    }

    /// The open transaction is on disk.
    ///
    /// # Errors
    ///
    /// When what it holds does not belong together.
    pub fn committed(&mut self) -> Verdict {
        self.commits += 1;
        let writes = std::mem::take(&mut self.open);
        let causes = std::mem::take(&mut self.causes);
        let moving = std::mem::take(&mut self.moving);
        let mut done = Said {
            moved: moving.clone(),
            ..Said::default()
        };
        let mut said = Said::default();
        let mut for_groups = BTreeSet::new();
        let mut owed: BTreeMap<Seq, BTreeSet<PeerId>> = BTreeMap::new();
        let mut passed = BTreeMap::new();
        for write in &writes {
            self.durable.apply(write);
            match write {
                Write::Message { head, envelope } => {
                    done.accepted.insert(head.seq, head.recipients);
                    if recipient_of(envelope).starts_with('#') {
                        for_groups.insert(head.seq);
                    }
                }
                Write::Owed(peer, seq, _) => {
                    let first = done.accepted.contains_key(seq) && !owed.contains_key(seq);
                    let passed =
                        |(_, to, moved): &(PeerId, PeerId, Seq)| (to, moved) == (peer, seq);
                    if moving.iter().any(passed) && !(first && for_groups.contains(seq)) {
                        continue;
                    }
                    owed.entry(*seq).or_default().insert(*peer);
                    if for_groups.contains(seq) {
                        done.members.insert((*peer, *seq));
                    }
                }
                Write::Settled(peer, seq) => {
                    let leaves = || leaves(&moving, *peer, *seq);
                    let left = passed.entry((*peer, *seq)).or_insert_with(leaves);
                    if *left > 0 {
                        *left -= 1;
                        continue;
                    }
                    let end = causes.get(&(*peer, *seq)).copied().unwrap_or(End::Expired);
                    done.ended.insert((*peer, *seq), end);
                }
                Write::Audit(block) => {
                    self.chained(block)?;
                    self.clock.committed(block);
                    said.read(block)?;
                    self.audits.committed(block)?;
                }
                _ => {}
            }
        }
        for (seq, recipients) in &done.accepted {
            let debts = owed.get(seq).map_or(0, BTreeSet::len);
            ensure(debts == *recipients as usize, "I2", || {
                format!(
                    "message {} has {recipients} recipients and {debts} debts",
                    seq.0
                )
            })?;
        }
        ensure(said == done, "I2", || {
            format!("a commit did {done:?}, its audit block says {said:?}")
        })?;
        self.reported(&writes, &done)?;
        self.kept(&writes, &done)?;
        self.requests_ended(&writes)?;
        self.remember(&writes, &owed, &done)
    }

    /// What expires or goes dead is reported to its sender, if there is one.
    fn reported(&self, writes: &[Write], done: &Said) -> Verdict {
        let lost = done.ended.iter().filter(|(_, end)| **end != End::Acked);
        let withdrawn = |seq: Seq| {
            let mut fates = writes.iter();
            fates.any(|write| matches!(write, Write::Fate(fate) if fate.seq == seq && *fate.stage == Stage::Withdrawn))
        };
        for ((peer, seq), end) in lost.filter(|((_, seq), _)| !withdrawn(*seq)) {
            let Some(message) = self.view.messages.get(seq) else {
                continue;
            };
            let (sender, id) = (message.head.sender, &message.head.id);
            let known = self.view.peers.get(&sender);
            let told = writes.iter().any(|write| {
                matches!(write, Write::Notice(notice) if notice.sender == sender && notice.id == *id)
            });
            let nobody = known.is_none_or(|row| row.kind != PeerKind::Peer);
            ensure(told || nobody, "notice", || {
                let name = self.name_of(*peer);
                format!("{end:?}: {id} to {name}, and its sender is not told")
            })?;
        }
        Ok(())
    }

    /// How a delivery ended is kept, and as its recipient said it.
    fn kept(&mut self, writes: &[Write], done: &Said) -> Verdict {
        let fates = writes.iter().filter_map(|write| match write {
            Write::Fate(fate) => Some(((fate.recipient, fate.seq), &*fate.stage)),
            _ => None,
        });
        let fates: BTreeMap<_, _> = fates.collect();
        let read = done.moved.iter().filter(|(_, to, _)| *to == ANSWERS);
        for (peer, _, seq) in read {
            let claim = self.claims.remove(&(*peer, *seq));
            let all = writes.iter().filter_map(|write| match write {
                Write::Fate(fate) if (fate.recipient, fate.seq) == (*peer, *seq) => {
                    Some(&*fate.stage)
                }
                _ => None,
            });
            let mut said = all
                .filter(|stage| matches!(stage, Stage::Acked(how) if claim.as_ref() == Some(how)));
            ensure(said.next().is_some(), "fate", || {
                let name = self.name_of(*peer);
                format!(
                    "request {} was read by {name} as {claim:?}, which is not kept",
                    seq.0
                )
            })?;
        }
        let last = |seq: Seq| {
            let mut all = writes.iter().rev();
            all.find_map(|write| match write {
                Write::Fate(fate) if fate.seq == seq => Some(&*fate.stage),
                _ => None,
            })
        };
        for (delivery, end) in &done.ended {
            let claim = self.claims.remove(delivery);
            let (peer, seq) = delivery;
            let kept = match *peer == ANSWERS {
                true => last(*seq),
                false => fates.get(delivery).copied(),
            };
            let same = match kept {
                Some(Stage::Acked(how)) => *end == End::Acked && claim.as_ref() == Some(how),
                Some(Stage::Done { .. } | Stage::Failed { .. }) => *end == End::Acked,
                Some(Stage::Expired { .. } | Stage::Unanswered { .. } | Stage::Withdrawn) => {
                    *end == End::Expired
                }
                Some(Stage::Dead { .. } | Stage::Declined { .. }) => *end == End::Dead,
                _ => false,
            };
            ensure(same, "fate", || {
                let name = self.name_of(*peer);
                format!(
                    "message {} to {name} is {end:?} as {claim:?}, kept is {kept:?}",
                    seq.0
                )
            })?;
        }
        Ok(())
    }

    fn remember(
        &mut self,
        writes: &[Write],
        owed: &BTreeMap<Seq, BTreeSet<PeerId>>,
        done: &Said,
    ) -> Verdict {
        for write in writes {
            let Write::Message { head, envelope } = write else {
                continue;
            };
            let envelope = decode(envelope)?;
            let recipients = owed.get(&head.seq).into_iter().flatten();
            let key = (envelope.from.to_ascii_lowercase(), envelope.id.clone());
            self.hosts.accepted.insert(envelope.id.clone());
            if self.ever.insert(key.clone(), head.seq).is_some() {
                self.hosts.late.insert(key);
            }
            let accepted = Accepted {
                sender: head.sender,
                from: envelope.from,
                id: envelope.id,
                recipients: recipients.map(|peer| (*peer, None)).collect(),
                accepted_ms: head.accepted_ms,
            };
            self.history.insert(head.seq, accepted);
        }
        self.taken.clear();
        for (from, to, seq) in &done.moved {
            self.taken.insert((*from, *seq));
            let Some(accepted) = self.history.get_mut(seq) else {
                continue;
            };
            accepted.recipients.remove(from);
            accepted.recipients.entry(*to).or_insert(None);
            let key = (accepted.from.to_ascii_lowercase(), accepted.id.clone());
            // It comes to somebody who may have had newer mail.
            self.hosts.late.insert(key);
            self.inherited.insert((*to, *seq));
        }
        for ((peer, seq), end) in &done.ended {
            let accepted = self.history.get_mut(seq);
            let slot = accepted.and_then(|accepted| accepted.recipients.get_mut(peer));
            let Some(slot) = slot else {
                return Err(Failure::new(
                    "I4",
                    format!("message {} was not owed", seq.0),
                ));
            };
            *slot = Some((*end, self.commits));
        }
        Ok(())
    }

    fn chained(&mut self, block: &Block) -> Verdict {
        let (number, previous) = self.chain;
        let key = &self.rules.audit_key;
        let hash = chain(key, &previous, number + 1, block.at.wall_ms, &block.events);
        let follows = block.number == number + 1 && block.hash == hash;
        ensure(follows, "I2", || {
            format!("block {} does not follow {number}", block.number)
        })?;
        self.chain = (block.number, block.hash);
        Ok(())
    }

    /// Replays a whole chain: accepts less acks, expiries and rejects must be the debts.
    pub(super) fn replay(&self, blocks: &[Block]) -> Verdict {
        let mut said = Said::default();
        for block in blocks {
            said.read(block)?;
        }
        let mut left: BTreeMap<Seq, u32> = said.accepted.clone();
        let settled = said.ended.keys().chain(&self.durable.debts);
        for (peer, seq) in settled {
            let Some(left @ 1..) = left.get_mut(seq) else {
                let text = format!("message {} of {peer:?} was not accepted so often", seq.0);
                return Err(Failure::new("I2", text));
            };
            *left -= 1;
        }
        let missing = left.iter().find(|(_, left)| **left > 0);
        ensure(missing.is_none(), "I2", || {
            format!("{missing:?} debts are missing")
        })
    }
}

/// How often a message passes from a peer to another one.
fn leaves(moving: &[(PeerId, PeerId, Seq)], peer: PeerId, seq: Seq) -> usize {
    let passes = |(from, _, moved): &&(PeerId, PeerId, Seq)| (*from, *moved) == (peer, seq);
    moving.iter().filter(passes).count()
}

pub(super) fn decode(envelope: &str) -> Result<Envelope, Failure> {
    match Envelope::decode(envelope.as_bytes()) {
        Ok(decoded) => Ok(decoded.envelope),
        Err(error) => Err(Failure::new(
            "I6",
            format!("a stored envelope is none: {error}"),
        )),
    }
}
