//! The broker as the adapter sees it: it keeps what is owed, delivers it again to a successor, and
//! dies. What was acked while it was away is acked again when it is back, if the adapter is there.

use std::collections::BTreeSet;
use std::sync::Arc;

use peerbus_peer::mailbox::{Mail, MailboxMachine, PART_CHARS, SenderRule, Wanted};
use peerbus_peer::session::{Inbound, Key};
use peerbus_wire::{Conversation, Kind, MessageId, PeerName};

use super::plan::Letter;
use super::world::{Event, World};
use crate::failure::{Failure, Verdict, ensure};

/// The broker.
#[derive(Debug, Default)]
pub(super) struct Bus {
    down: bool,
    /// What this session was delivered.
    delivered: BTreeSet<usize>,
}

impl Bus {
    pub(super) fn is_up(&self) -> bool {
        !self.down
    }
}

impl World {
    /// A peer sends something.
    pub(super) fn sent(&mut self, letter: Letter) -> Verdict {
        // Nobody answers a group.
        let one = letter.one && letter.answers.is_none();
        let letter = Letter { one, ..letter };
        let number = self.oracle.count();
        // An id is unique for its sender only.
        let number = if self.rng.chance(30) {
            number.saturating_sub(1)
        } else {
            number
        };
        let id = format!("m{number}");
        let failed = |what: &dyn std::fmt::Display| Failure::new("world", what.to_string());
        let name = PeerName::parse(letter.from).map_err(|error| failed(&error))?;
        let message = MessageId::parse(&id).map_err(|error| failed(&error))?;
        let key = Key::of(&name.key(), &message);
        if self.oracle.knows(key) {
            return Ok(());
        }
        self.oracle.sent(mail(key, id, &letter), letter.burst);
        self.deliver()
    }

    /// A program puts a text in. It is in the adapter's memory alone.
    pub(super) fn put_in(&mut self, letter: &Letter) -> Verdict {
        if !self.is_alive() {
            return Ok(());
        }
        let which = self.oracle.count();
        let unique = u128::from(self.rng.draw()) << 64 | u128::from(self.rng.draw());
        let mail = mail(Key::local(unique), format!("put{which}"), letter);
        self.oracle.sent(mail, false);
        let mail = match self.oracle.has_room() {
            true => self.oracle.arrives(which),
            false => self.oracle.as_sent(which),
        };
        let put = |mailbox: &mut MailboxMachine, now| mailbox.put_in(now, &Arc::new(mail));
        self.judged(put, |oracle, taken| oracle.put_in(which, *taken))?;
        Ok(())
    }

    /// The broker dies, or is back.
    pub(super) fn outage(&mut self, down: bool) -> Verdict {
        self.bus.down = down && !self.healing;
        if self.bus.down {
            let back = self.rng.range(100, 30_000);
            self.after(back, Event::Outage(false));
            return Ok(());
        }
        if self.is_alive() {
            self.oracle.acks_again();
            self.registered()?;
            for which in self.oracle.leased() {
                let keeps = self.rng.chance(700);
                self.lapses(which, !keeps, None)?;
                if keeps {
                    self.oracle.comes_again(which);
                    self.bus.delivered.remove(&which);
                }
            }
            self.deliver()?;
        }
        Ok(())
    }

    /// The broker takes something back that the session has for a while. Another one has it, for good or
    /// for a time.
    pub(super) fn recall(&mut self) -> Verdict {
        let taken = self.oracle.taken();
        if taken.is_empty() || !self.is_alive() || !self.bus.is_up() {
            return Ok(());
        }
        let which = taken[self.rng.index(taken.len())];
        let over = self.rng.chance(500);
        let later = self.rng.range(10, 100_000);
        if !over {
            self.after(later, Event::Again(which));
        }
        self.lapses(which, over, Some("another one has it"))
    }

    fn lapses(&mut self, which: usize, over: bool, why: Option<&str>) -> Verdict {
        let key = self.oracle.lapses(which, over);
        self.input(|mailbox, now| mailbox.lapsed(now, key, why))
    }

    /// A message that another one had is this session's again.
    pub(super) fn comes_again(&mut self, which: usize) -> Verdict {
        if self.oracle.comes_again(which) {
            self.bus.delivered.remove(&which);
        }
        self.deliver()
    }

    /// The session gave a message back. Another one gets it, or this one again.
    pub(super) fn given_back(&mut self, key: Key) {
        let over = self.rng.chance(500);
        let later = self.rng.range(10, 30_000);
        if let Some(which) = self.oracle.passes(key, over).filter(|_| !over) {
            self.after(later, Event::Again(which));
        }
    }

    fn registered(&mut self) -> Verdict {
        self.oracle.registered();
        let window = self.plan.window;
        self.input(|mailbox, now| mailbox.registered(now, "me".into(), window))
    }

    /// An adapter connects.
    pub(super) fn connects(&mut self) -> Verdict {
        self.bus.delivered.clear();
        if self.bus.is_up() {
            self.registered()?;
        }
        self.deliver()
    }

    /// The broker delivers what is owed, in order, once for each session.
    fn deliver(&mut self) -> Verdict {
        if !self.is_alive() || !self.bus.is_up() {
            return Ok(());
        }
        for which in self.oracle.owed() {
            if !self.bus.delivered.insert(which) {
                continue;
            }
            let mail = self.oracle.arrives(which);
            let rule = self.oracle.rule(which);
            if rule != SenderRule::Allow {
                self.oracle.keeps_out(which);
            }
            self.input(|mailbox, now| mailbox.message(now, mail))?;
            self.keeps_out()?;
            self.oracle.arrived(self.now_ms)?;
        }
        Ok(())
    }

    /// What waits for the user is what the oracle has, and nothing else was kept.
    fn keeps_out(&self) -> Verdict {
        let waiting = self.mailbox.as_ref().map_or(0, |it| it.withheld().count());
        let expected = self.oracle.waiting_outside();
        ensure(waiting == expected, "senders", || {
            format!("{waiting} wait for the user, not {expected}")
        })
    }

    /// The user decides about what waits.
    pub(super) fn user_decides(&mut self) -> Verdict {
        while let Some(no) = self.mailbox.as_ref().and_then(|it| it.withheld().next()) {
            let (no, show) = (no.0, self.rng.chance(700));
            self.oracle.decides(show);
            self.input(|mailbox, now| mailbox.decide(now, no, show))?;
            self.keeps_out()?;
        }
        Ok(())
    }
}

pub(super) fn mail(key: Key, id: String, letter: &Letter) -> Mail {
    let answers = letter.answers.as_ref();
    let talk = Conversation {
        reply_to: answers.and_then(|id| MessageId::parse(id).ok()),
        thread: letter.thread.then(|| "plan".to_owned()),
        priority: letter.priority,
        hops: letter.hops,
        ..Conversation::default()
    };
    Mail {
        inbound: Inbound {
            key,
            id,
            from: letter.from.into(),
            source: "sim".into(),
            kind: Kind::Msg,
            ts: "2026-01-01T00:00:00Z".into(),
            body: String::new(),
            again: false,
            to: None,
            group: letter.one.then(|| "shop".into()),
            one: letter.one,
            token: None,
            approves: false,
            age_ms: 0,
            within_ms: letter.within_ms,
        },
        talk,
        bytes: letter.bytes,
        chars: letter.bytes,
        beginning: letter.bytes.min(4_096),
        part: PART_CHARS,
        wanted: Wanted::default(),
        answers: false,
        images: Vec::new(),
    }
}
