//! A host that keeps its mail in a mailbox, with an agent that reads, is pushed to, and answers.

use std::collections::BTreeSet;

use peerbus_core::Now;
use peerbus_peer::mailbox::{
    Activity, Attempt, INBOX, Limit, Mail, MailboxMachine, MailboxMutation, MailboxOutput, Outcome,
    PART_CHARS, PIGGYBACK, PathSpec, Policy, Portion, Wanted,
};
use peerbus_peer::session::{Inbound, Key, NoticeId, PeerSession};
use peerbus_wire::{Conversation, How, NameKey, Priority, Receipt, Stage, Window};

use crate::client::Ctx;
use crate::failure::{Failure, Verdict, ensure};
use crate::oracle::Oracle;
use crate::rng::Rng;

/// The one waking path.
static PUSH: PathSpec = PathSpec {
    word: "push",
    limit: Limit {
        messages: 5,
        bytes: 12_000,
    },
    ..PathSpec::waking(100)
};

/// A mailbox and its agent.
#[derive(Debug)]
pub(crate) struct HostMailbox {
    mailbox: MailboxMachine,
    readable: bool,
    /// What is to be done on the bus.
    outputs: Vec<MailboxOutput>,
    pushes: Vec<Attempt>,
    /// What the client's user decides about.
    kept: Vec<Attempt>,
    /// Results that were sent and not taken.
    flushed: Vec<Attempt>,
    /// What stands in the conversation and is not answered.
    open: Vec<Attempt>,
    shown_as_new: BTreeSet<Key>,
    answered: BTreeSet<Key>,
}

impl HostMailbox {
    pub(crate) fn new(rng: &mut Rng, now_ms: u64, mutation: Option<MailboxMutation>) -> Self {
        let hops_max = rng.pick(&[None, Some(0), Some(2)]);
        let mut mailbox = MailboxMachine::new(Policy::Auto, hops_max);
        if let Some(mutation) = mutation {
            mailbox.mutate(mutation);
        }
        let readable = rng.chance(700);
        mailbox.add_path(&PUSH);
        mailbox.set_path(now_ms, &PUSH, true);
        mailbox.set_evidence(now_ms, readable);
        mailbox.set_activity(now_ms, Activity::Idle);
        mailbox.open(now_ms);
        Self {
            mailbox,
            readable,
            outputs: Vec::new(),
            pushes: Vec::new(),
            kept: Vec::new(),
            flushed: Vec::new(),
            open: Vec::new(),
            shown_as_new: BTreeSet::new(),
            answered: BTreeSet::new(),
        }
    }

    pub(crate) fn wake_ms(&self) -> Option<u64> {
        self.mailbox.poll_timeout()
    }

    pub(crate) fn timeout(&mut self, now_ms: u64) -> Verdict {
        if self.wake_ms().is_some_and(|due| due <= now_ms) {
            self.mailbox.handle_timeout(now_ms);
        }
        self.drain()
    }

    pub(crate) fn registered(&mut self, now_ms: u64, name: String, window: Window) -> Verdict {
        self.mailbox.registered(now_ms, name, window);
        self.drain()
    }

    pub(crate) fn message(&mut self, rng: &mut Rng, now_ms: u64, inbound: Inbound) -> Verdict {
        let priorities = [Priority::Quiet, Priority::Next, Priority::Now];
        let talk = Conversation {
            priority: rng.pick(&priorities),
            hops: rng.pick(&[0, 0, 20]),
            ..Conversation::default()
        };
        let bytes = inbound.body.len();
        let mail = Mail {
            inbound,
            talk,
            bytes,
            chars: bytes,
            beginning: bytes.min(4_096),
            part: PART_CHARS,
            wanted: Wanted::default(),
            answers: false,
            images: Vec::new(),
        };
        self.mailbox.message(now_ms, mail);
        self.drain()
    }

    pub(crate) fn lapsed(&mut self, now_ms: u64, key: Key, reason: Option<&str>) -> Verdict {
        self.mailbox.lapsed(now_ms, key, reason);
        self.drain()
    }

    pub(crate) fn receipt(
        &mut self,
        now_ms: u64,
        receipt: &Receipt,
        token: Option<NoticeId>,
    ) -> Verdict {
        let sentence = token.map(|_| "it is lost");
        self.mailbox.receipt(now_ms, receipt, sentence, token);
        self.drain()
    }

    pub(crate) fn sent(&mut self, now_ms: u64, to: Option<&NameKey>, id: &str) {
        let hops = self.mailbox.hops(now_ms, to, 0);
        self.mailbox.sent(now_ms, to, id, hops);
    }

    /// Does on the bus what the mailbox has decided.
    pub(crate) fn obey(
        &mut self,
        now: Now,
        session: &mut PeerSession,
        untold: &mut Vec<(NoticeId, String, String)>,
        oracle: &mut Oracle,
    ) {
        for output in std::mem::take(&mut self.outputs) {
            match output {
                MailboxOutput::Reached { mail, stage } => {
                    session.reached(now, mail.inbound.key, stage)
                }
                MailboxOutput::GiveBack { mail } => session.give_back(now, mail.inbound.key),
                MailboxOutput::Told(token) => {
                    let at = untold.iter().position(|(of, _, _)| *of == token);
                    if let Some((_, name, key)) = at.map(|at| untold.swap_remove(at)) {
                        oracle.told(&name, &key);
                    }
                    session.ack_notice(token);
                }
                MailboxOutput::Push(_)
                | MailboxOutput::Announce(_)
                | MailboxOutput::Answered(_)
                | MailboxOutput::Claimed(_)
                | MailboxOutput::Local { .. }
                | MailboxOutput::Warn(_) => {}
            }
        }
    }

    /// The client and its agent do something.
    pub(crate) fn act(&mut self, ctx: &mut Ctx<'_>, now_ms: u64) -> Verdict {
        self.mailbox.set_path(now_ms, &PUSH, true);
        self.mailbox.set_evidence(now_ms, self.readable);
        self.drain()?;
        for attempt in std::mem::take(&mut self.pushes) {
            self.pushed(ctx, now_ms, attempt)?;
        }
        if ctx.healing || ctx.rng.chance(300) {
            for attempt in std::mem::take(&mut self.kept) {
                self.told(now_ms, &attempt, Outcome::Dropped)?;
            }
        }
        if !ctx.healing && ctx.rng.chance(10) {
            self.mailbox.doubt(now_ms);
        }
        if ctx.healing || ctx.rng.chance(500) {
            for attempt in std::mem::take(&mut self.flushed) {
                self.told(now_ms, &attempt, Outcome::Written)?;
                self.joined(attempt)?;
            }
        }
        if ctx.healing || ctx.rng.chance(400) {
            self.call(ctx, now_ms)?;
        }
        if ctx.healing || ctx.rng.chance(400) {
            self.answer(now_ms)?;
        }
        self.mailbox.check();
        Ok(())
    }

    fn pushed(&mut self, ctx: &mut Ctx<'_>, now_ms: u64, attempt: Attempt) -> Verdict {
        let fate = if ctx.healing { 99 } else { ctx.rng.index(100) };
        match fate {
            0..=14 => self.told(now_ms, &attempt, Outcome::Failed),
            15..=24 => self.told(now_ms, &attempt, Outcome::Dropped),
            25..=34 => {
                self.told(now_ms, &attempt, Outcome::Kept)?;
                self.kept.push(attempt);
                Ok(())
            }
            35..=39 => self.told(now_ms, &attempt, Outcome::Denied),
            // It never gets there.
            40..=49 => self.told(now_ms, &attempt, Outcome::Written),
            _ => {
                self.told(now_ms, &attempt, Outcome::Written)?;
                self.joined(attempt)
            }
        }
    }

    /// The agent calls a tool: the inbox, or another whose result takes something along.
    fn call(&mut self, ctx: &mut Ctx<'_>, now_ms: u64) -> Verdict {
        self.mailbox.called(now_ms);
        self.drain()?;
        let made = if ctx.healing || ctx.rng.chance(300) {
            let listed = self.mailbox.look();
            let mut chosen: Vec<_> = listed.iter().map(|one| (one.no, Portion::All)).collect();
            let notices = self.mailbox.notices().into_iter().map(|(no, _)| no);
            chosen.extend(notices.map(|no| (no, Portion::All)));
            self.mailbox.check_out(now_ms, &INBOX, &chosen)
        } else {
            self.mailbox.along(now_ms, &PIGGYBACK)
        };
        self.drain()?;
        let Some(attempt) = made else { return Ok(()) };
        match if ctx.healing { 9 } else { ctx.rng.index(10) } {
            0 => self.told(now_ms, &attempt, Outcome::Failed),
            1 => {
                self.joined(attempt.clone())?;
                self.open.pop();
                self.told(now_ms, &attempt, Outcome::Doubtful)
            }
            _ => {
                self.flushed.push(attempt);
                Ok(())
            }
        }
    }

    /// The model answers.
    fn answer(&mut self, now_ms: u64) -> Verdict {
        for attempt in std::mem::take(&mut self.open) {
            if self.readable {
                let mails = attempt.items.iter().filter_map(|item| item.content.mail());
                self.answered.extend(mails.map(|mail| mail.inbound.key));
                self.mailbox.answered(now_ms, attempt.id);
                self.drain()?;
                continue;
            }
            // Without a transcript only a tool call that names a job shows that it was seen.
            let jobs = attempt.items.iter().filter_map(|item| item.content.mail());
            for mail in jobs.filter(|mail| mail.inbound.one) {
                let Inbound { key, id, from, .. } = &mail.inbound;
                self.answered.insert(*key);
                self.mailbox.named(now_ms, id, Some(from));
                self.drain()?;
            }
        }
        Ok(())
    }

    /// Text stands in the conversation.
    fn joined(&mut self, attempt: Attempt) -> Verdict {
        for item in attempt.items.iter().filter(|item| !item.repeat) {
            let Some(mail) = item.content.mail() else {
                continue;
            };
            let first = self.shown_as_new.insert(mail.inbound.key);
            ensure(first && !mail.inbound.again, "I13", || {
                format!("{item:?} stands there twice as new")
            })?;
        }
        self.open.push(attempt);
        Ok(())
    }

    fn told(&mut self, now_ms: u64, attempt: &Attempt, outcome: Outcome) -> Verdict {
        self.mailbox.outcome(now_ms, attempt.id, outcome);
        self.drain()
    }

    fn drain(&mut self) -> Verdict {
        while let Some(output) = self.mailbox.poll_output() {
            match output {
                MailboxOutput::Push(attempt) => self.pushes.push(attempt),
                MailboxOutput::Reached {
                    mail,
                    stage: Stage::Acked(Some(How::Seen { .. })),
                } if !self.answered.contains(&mail.inbound.key) => {
                    let text = format!("{mail:?} is seen by nobody");
                    return Err(Failure::new("I14", text));
                }
                output => self.outputs.push(output),
            }
        }
        Ok(())
    }
}
