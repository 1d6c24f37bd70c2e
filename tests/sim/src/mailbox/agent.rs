//! What the agent does with the tools of the bus.

use peerbus_peer::mailbox::{
    ASK, AskId, Attempt, DRAIN, INBOX, Listed, Mail, No, Outcome, PIGGYBACK, Portion,
};
use peerbus_wire::{MessageId, PeerName, Receipt, Stage};

use super::plan::{Letter, PEERS};
use super::world::{Event, World};
use crate::failure::{Failure, Verdict, ensure};

/// What the inbox gives of a message, and altogether, in characters.
const PART: usize = 20_000;
const INBOX_BYTES: usize = 60_000;

impl World {
    /// The agent calls a tool of the bus.
    pub(super) fn tool(&mut self) -> Verdict {
        self.alive()?;
        self.calls()?;
        let mut attempts = Vec::new();
        match self.rng.range(0, 9) {
            0 | 1 if !self.healing => attempts.extend(self.reads()?),
            2 if !self.healing => return self.asks(),
            3 | 4 if !self.healing => self.writes(None)?,
            5 | 6 => self.works()?,
            _ => {}
        }
        attempts.extend(self.along()?);
        let receipts = self.takes_receipts();
        self.oracle.receipts(receipts)?;
        self.results(attempts);
        Ok(())
    }

    fn takes_receipts(&mut self) -> Vec<Receipt> {
        let mailbox = self.mailbox.as_mut();
        mailbox.map_or_else(Vec::new, |mailbox| mailbox.take_receipts())
    }

    fn along(&mut self) -> Result<Option<Attempt>, Failure> {
        self.takes(false, |mailbox, now| mailbox.along(now, &PIGGYBACK))
    }

    /// The agent reads what waits: the oldest of it, or all that fits; long messages part by part.
    pub(super) fn reads(&mut self) -> Result<Option<Attempt>, Failure> {
        let Some(mailbox) = &self.mailbox else {
            return Ok(None);
        };
        let listed = mailbox.look();
        let notices = mailbox.notices().into_iter().take(10).map(|(no, _)| no);
        let few = !self.healing && self.rng.chance(300);
        let most = if few { 2 } else { 20 };
        let mut chosen: Vec<(No, Portion)> = Vec::new();
        let mut left = INBOX_BYTES;
        for one in listed.iter().take(most) {
            let (portion, size) = portion(one);
            if size <= left {
                left -= size;
                chosen.push((one.no, portion));
            }
        }
        chosen.extend(notices.into_iter().map(|no| (no, Portion::All)));
        let path = self.rng.pick(&[&INBOX, &DRAIN]);
        self.takes(true, |mailbox, now| mailbox.check_out(now, path, &chosen))
    }

    /// A tool's result is made.
    pub(super) fn results(&mut self, attempts: Vec<Attempt>) {
        if attempts.is_empty() {
            return;
        }
        self.client.handing += 1;
        let at = self.rng.range(1, 200);
        self.after(at, Event::Result(attempts));
    }

    /// A tool's result is sent, or not; it may be cancelled after that.
    pub(super) fn result(&mut self, attempts: Vec<Attempt>) -> Verdict {
        self.client.handing -= 1;
        let faults = self.plan.faults;
        let unsent = self.rng.chance(faults.unsent);
        let cancelled = self.rng.chance(faults.cancel);
        for attempt in attempts {
            if unsent {
                self.told(attempt.id, Outcome::Failed)?;
            } else if cancelled {
                if self.rng.chance(500) {
                    self.oracle.joined(&attempt)?;
                }
                if self.rng.chance(300) {
                    self.told(attempt.id, Outcome::Written)?;
                }
                self.told(attempt.id, Outcome::Doubtful)?;
            } else {
                self.client.flushed.push(attempt);
            }
        }
        let at = self.rng.range(1, 3_000);
        self.after(at, Event::Alive);
        Ok(())
    }

    /// The agent names a message in a call.
    pub(super) fn names(&mut self, mail: &Mail) -> Verdict {
        let (id, from) = (mail.inbound.id.as_str(), mail.inbound.from.as_str());
        let short = self.rng.chance(300) && !self.healing;
        let from = (!short).then_some(from);
        let expected = self.oracle.named(id, from);
        let named = self.input(|mailbox, now| Some(mailbox.named(now, id, from)))?;
        ensure(
            named.is_none_or(|named| named == expected),
            "evidence",
            || format!("{id} of {from:?} is {named:?}, not {expected:?}"),
        )?;
        if !self.healing && self.rng.chance(300) {
            self.writes(Some(mail))?;
        }
        Ok(())
    }

    /// The agent writes to somebody, as a reply or not; it may be answered, and told how far its
    /// message is.
    fn writes(&mut self, to: Option<&Mail>) -> Verdict {
        let peer = to.and_then(|mail| PEERS.iter().find(|peer| **peer == mail.inbound.from));
        let peer = peer.copied().unwrap_or_else(|| self.rng.pick(&PEERS));
        let thread = to.is_some_and(|mail| mail.talk.thread.is_some());
        let (id, hops) = self.says(peer)?;
        if self.rng.chance(self.plan.answers) && self.oracle.count() < 250 {
            let late = self.rng.range(100, 30_000);
            let letter = Letter {
                from: peer,
                hops: self.rng.pick(&[0, hops + 1, 20]),
                thread,
                answers: Some(id),
                ..Letter::draw(&mut self.rng, 1)
            };
            self.after(late, Event::Sent(letter));
        }
        Ok(())
    }

    /// The agent answers a request that it owes, declines it, or says how far it is.
    fn works(&mut self) -> Verdict {
        let at = self.rng.index(64);
        let Some((which, id, from)) = self.oracle.debt(at) else {
            return Ok(());
        };
        let from_whom = self.rng.chance(500).then_some(from);
        match self.rng.range(0, 3) {
            word @ 0..=1 => {
                let (why, said) = ("no".to_owned(), "half way".to_owned());
                let stage = match word {
                    0 => Stage::Declined { why },
                    _ => Stage::Working { said },
                };
                self.input(|it, now| _ = it.says_of(now, (&id, from_whom), stage))?;
            }
            _ => {
                self.says(from)?;
                self.oracle.answers(which);
                self.input(|it, now| it.answered_request(now, from, &id))?;
            }
        }
        Ok(())
    }

    fn hops(&mut self, to: &str) -> Result<u32, Failure> {
        let to = PeerName::parse(to).map(|name| name.key()).ok();
        let hops = self.input(|mailbox, now| mailbox.hops(now, to.as_ref(), 0))?;
        self.oracle.hops(hops)?;
        Ok(hops)
    }

    /// The agent sends a message; gives its id, and how many replies led to it.
    fn says(&mut self, peer: &'static str) -> Result<(String, u32), Failure> {
        let hops = self.hops(peer)?;
        let id = self.oracle.says_something(self.now_ms, peer, hops);
        let name = PeerName::parse(peer).map(|name| name.key());
        if let Ok(name) = name {
            self.input(|mailbox, now| {
                mailbox.sent(now, Some(&name), &id, hops);
            })?;
        }
        if self.rng.chance(500) {
            let late = self.rng.range(10, 60_000);
            self.after(late, Event::Receipt(id.clone(), peer));
        }
        Ok((id, hops))
    }

    pub(super) fn gets_receipt(&mut self, id: &str, to: &'static str) -> Verdict {
        let why = || "why".to_owned();
        let path = || "socket".to_owned();
        let (stage, sentence) = match self.rng.range(0, 3) {
            0 => (Stage::Presented { path: path() }, None),
            1 => (Stage::Acked(None), None),
            2 => (Stage::Held { why: why() }, Some("it is held")),
            _ => (Stage::Expired { why: why() }, Some("it is lost")),
        };
        let Ok(id) = MessageId::parse(id) else {
            return Ok(());
        };
        let receipt = Receipt {
            to: Some(to.to_owned()),
            ..Receipt::new(id, stage)
        };
        self.input(|mailbox, now| mailbox.receipt(now, &receipt, sentence, None))
    }

    /// The agent asks a peer something, and waits.
    fn asks(&mut self) -> Verdict {
        let peer = self.rng.pick(&PEERS);
        let (id, _) = self.says(peer)?;
        let Ok(question) = MessageId::parse(&id) else {
            return Ok(());
        };
        let of_group = self.rng.chance(500);
        let to = if of_group { "#crew" } else { peer };
        let ask = self.input(|mailbox, _| Some(mailbox.expect(&question, to)))?;
        if of_group {
            self.passes_on(&question, peer)?;
        }
        let Some(ask) = ask else {
            return Ok(());
        };
        self.oracle.expects(ask, &id, peer);
        self.client.asks = Some(ask);
        self.client.handing += 1;
        let patience = self.rng.range(1_000, 20_000);
        self.after(patience, Event::AskEnds(ask));
        for _ in 0..self.rng.range(0, 2) {
            let from = if self.rng.chance(800) {
                peer
            } else {
                self.rng.pick(&PEERS)
            };
            let late = self.rng.range(100, 25_000);
            let letter = Letter {
                from,
                answers: Some(id.clone()),
                ..Letter::draw(&mut self.rng, 1)
            };
            self.after(late, Event::Sent(letter));
        }
        Ok(())
    }

    /// The broker says who has a group's question: another one had it before.
    fn passes_on(&mut self, question: &MessageId, to: &'static str) -> Verdict {
        let other = self.rng.pick(&PEERS);
        let why = || "it is gone".to_owned();
        for (at, stage) in [
            (other, Stage::Owed),
            (other, Stage::Recalled { why: why() }),
            (to, Stage::Owed),
        ] {
            let receipt = Receipt {
                to: Some(at.to_owned()),
                ..Receipt::new(question.clone(), stage)
            };
            self.input(|mailbox, now| mailbox.heard(now, &receipt))?;
        }
        Ok(())
    }

    pub(super) fn takes_answer(&mut self, ask: AskId) -> Verdict {
        if self.client.asks != Some(ask) {
            return Ok(());
        }
        let attempt = self.takes(true, |mailbox, now| {
            mailbox.take_answer(now, ask, |_| Portion::All)
        })?;
        ensure(
            attempt.is_some() || !self.oracle.awaits(ask),
            "expected",
            || format!("the answer to {ask:?} is gone"),
        )?;
        self.client.asks = None;
        self.client.handing -= 1;
        let mut attempts: Vec<_> = attempt.into_iter().collect();
        for attempt in &attempts {
            ensure(attempt.path == &ASK, "expected", || format!("{attempt:?}"))?;
        }
        attempts.extend(self.along()?);
        self.results(attempts);
        if self.rng.chance(500) {
            return self.leaves(ask);
        }
        let late = self.rng.range(1, 400);
        self.after(late, Event::AskEnds(ask));
        Ok(())
    }

    /// The agent waits no more.
    pub(super) fn ask_ends(&mut self, ask: AskId) -> Verdict {
        if self.client.asks == Some(ask) {
            self.client.asks = None;
            self.client.handing -= 1;
        }
        self.leaves(ask)
    }

    fn leaves(&mut self, ask: AskId) -> Verdict {
        self.oracle.unexpects(ask);
        self.input(|mailbox, now| mailbox.unexpect(now, ask))
    }
}

/// What the inbox gives of a message, and how much that is.
fn portion(listed: &Listed) -> (Portion, usize) {
    let bytes = listed.mail.bytes;
    if bytes <= PART && listed.read == 0 {
        return (Portion::All, bytes);
    }
    let (from, to) = (listed.read, bytes.min(listed.read + PART));
    let last = to == bytes;
    (Portion::Part { from, to, last }, to - from)
}
