//! The host of the mailbox: its adapter, and the time.

use std::collections::BTreeMap;

use peerbus_peer::mailbox::{
    Activity, AskId, Attempt, AttemptId, MailboxMachine, MailboxMutation, MailboxOutput, Outcome,
    Path,
};

use super::bus::Bus;
use super::client::Client;
use super::oracle::Oracle;
use super::plan::{Faults, Letter, Plan};
use crate::failure::{Failure, Verdict, ensure};
use crate::rng::Rng;
use crate::trace::Trace;

/// Inputs after which a world that has not come to rest is stuck.
const STEPS_MAX: u64 = 200_000;

/// In this time what comes after the healing is settled: peers start so many turns in ten minutes.
const BURST_MS: u64 = 1_300_000;

/// As long as peers start as many turns as they like.
const BURST_FREE_MS: u64 = 540_000;

/// In this time the agent reads everything else.
const REST_MS: u64 = 3_600_000;

/// Something that happens. What belongs to a session that is gone does not happen.
#[derive(Debug, Clone)]
pub(super) enum Event {
    Sent(Letter),
    /// A program puts a text in.
    PutIn(Letter),
    Kill,
    Start,
    Outage(bool),
    Doubt,
    /// The broker takes something back.
    Recall,
    /// The user begins another conversation.
    Clear,
    /// This comes again.
    Again(usize),
    Heal,
    User,
    Read,
    Open,
    /// A push is shown: the adapter may have asked the broker first.
    Shows(Attempt),
    Told(AttemptId, Outcome),
    /// The text reaches the client.
    Arrives(Attempt),
    /// The user decides about what the client kept.
    Decides(Attempt),
    /// A hook is done.
    Hooked(Attempt, bool),
    /// A tool is done.
    Result(Vec<Attempt>),
    /// The client shows that it took what was sent to it.
    Alive,
    /// Somebody waits for this answer no more.
    AskEnds(AskId),
    TakesAnswer(AskId),
    /// How far a message of the agent is.
    Receipt(String, &'static str),
    Presented(AttemptId),
    Answered(AttemptId),
    Says(Activity),
    Ready(Path),
    Readable(bool),
    Dialog(u64, bool),
    Boundary(u64),
    TurnEnd(u64),
}

/// One world.
pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) plan: Plan,
    pub(super) trace: Trace,
    pub(super) oracle: Oracle,
    pub(super) client: Client,
    pub(super) bus: Bus,
    pub(super) steps: u64,
    pub(super) healing: bool,
    /// The transcript can be read.
    pub(super) readable: bool,
    pub(super) mailbox: Option<MailboxMachine>,
    mutation: Option<MailboxMutation>,
    session: u64,
    pub(super) now_ms: u64,
    said_ms: u64,
    agenda: BTreeMap<(u64, u64), (u64, Event)>,
    scheduled: u64,
}

impl World {
    pub(super) fn new(
        rng: Rng,
        plan: Plan,
        mutation: Option<MailboxMutation>,
        trace: bool,
    ) -> Self {
        Self {
            rng,
            trace: Trace::new(trace),
            oracle: Oracle::new(plan.policy, plan.hops_max),
            client: Client::default(),
            bus: Bus::default(),
            steps: 0,
            healing: false,
            readable: plan.readable,
            mailbox: None,
            mutation,
            session: 0,
            now_ms: 1_000,
            said_ms: 0,
            agenda: BTreeMap::new(),
            scheduled: 0,
            plan,
        }
    }

    /// Lives to the end.
    pub(super) fn run(&mut self) -> Verdict {
        self.after(0, Event::Start);
        for letter in self.plan.letters.clone() {
            self.after(letter.at_ms, Event::Sent(letter));
        }
        for letter in self.plan.kept_out.clone() {
            self.after(letter.at_ms, Event::Sent(letter));
        }
        for letter in self.plan.put_in.clone() {
            self.after(letter.at_ms, Event::PutIn(letter));
        }
        let plan = self.plan.clone();
        for (times, event) in [
            (plan.kills, Event::Kill),
            (plan.outages, Event::Outage(true)),
            (plan.doubts, Event::Doubt),
            (plan.recalls, Event::Recall),
            (plan.clears, Event::Clear),
        ] {
            for at in times {
                self.after(at, event.clone());
            }
        }
        for _ in 0..5 {
            let at = self.rng.range(0, self.plan.heal_ms);
            self.after(at, Event::User);
        }
        let heal_ms = self.plan.heal_ms;
        self.after(heal_ms, Event::Heal);
        self.live_until(self.now_ms + heal_ms + 1)?;
        let first = self.oracle.count();
        let burst = self.plan.burst.clone();
        for letter in &burst {
            self.after(20_000 + letter.at_ms, Event::Sent(letter.clone()));
        }
        let free = self.plan.hops_max.is_none();
        let burst_ms = if free { BURST_FREE_MS } else { BURST_MS };
        self.live_until(self.now_ms + 20_000 + burst_ms)?;
        let most = self.turns_max(first, &burst);
        self.oracle.finish_burst(most)?;
        for minute in 0..REST_MS / 60_000 {
            self.after(minute * 60_000, Event::User);
            self.after(minute * 60_000 + 30_000, Event::Read);
        }
        self.live_until(self.now_ms + REST_MS)?;
        self.oracle.finish_session()?;
        // Nobody says that the user let through what the client kept: a successor gets it.
        self.kill()?;
        for minute in 1..=15 {
            self.after(minute * 60_000, Event::Read);
            self.after(minute * 60_000 + 30_000, Event::User);
        }
        self.live_until(self.now_ms + 1_000_000)?;
        self.oracle.finish()
    }

    /// How many pushes a burst may take: one and a digest over each path; what is older goes along.
    fn turns_max(&self, older: usize, burst: &[Letter]) -> usize {
        let silent = self.plan.channel && self.plan.channel_loses > 0;
        let waking = self.plan.waking;
        let first = self.plan.socket && waking.socket.rank < waking.channel.rank;
        if older == 0 && (first || !silent) {
            return 2;
        }
        let urgent = burst
            .iter()
            .filter(|letter| letter.priority == peerbus_wire::Priority::Now);
        3 * (1 + (older + burst.len()).div_ceil(20)) + 3 * urgent.count()
    }

    fn live_until(&mut self, end_ms: u64) -> Verdict {
        loop {
            let timeout = self.mailbox.as_ref().and_then(MailboxMachine::poll_timeout);
            let due = timeout.map(|at| at.max(self.now_ms));
            let event = self.agenda.first_key_value().map(|((at, _), _)| *at);
            let next = event.into_iter().chain(due).min();
            if next.is_none_or(|at| at > end_ms) {
                self.now_ms = end_ms;
                self.oracle.passes_to(end_ms);
                return Ok(());
            }
            if due.is_some_and(|due| event.is_none_or(|at| due <= at)) {
                self.now_ms = due.unwrap_or(self.now_ms);
                self.oracle.passes_to(self.now_ms);
                self.trace.note(self.now_ms, "timeout", 0, "");
                self.input(MailboxMachine::handle_timeout)?;
                let next = self.mailbox.as_ref().and_then(MailboxMachine::poll_timeout);
                ensure(next.is_none_or(|at| at > self.now_ms), "rest", || {
                    let now_ms = self.now_ms;
                    format!("a deadline that passed at {now_ms} is set again: {next:?}")
                })?;
            } else if let Some(((at, _), (session, event))) = self.agenda.pop_first() {
                self.now_ms = self.now_ms.max(at);
                self.oracle.passes_to(self.now_ms);
                self.happens(session, event)?;
            }
        }
    }

    pub(super) fn after(&mut self, ms: u64, event: Event) {
        self.scheduled += 1;
        let key = (self.now_ms + ms, self.scheduled);
        self.agenda.insert(key, (self.session, event));
    }

    /// The adapter hears of it later, in the order in which it was.
    pub(super) fn say(&mut self, activity: Activity) {
        if !self.plan.tells {
            return;
        }
        let late = self.rng.range(0, 60);
        self.said_ms = self.said_ms.max(self.now_ms + late);
        self.after(self.said_ms - self.now_ms, Event::Says(activity));
    }

    pub(super) fn ready_after(&mut self, ms: u64, path: Path) {
        self.after(ms, Event::Ready(path));
    }

    pub(super) fn is_alive(&self) -> bool {
        self.mailbox.is_some()
    }

    fn happens(&mut self, session: u64, event: Event) -> Verdict {
        let lasting = matches!(
            event,
            Event::Sent(_)
                | Event::PutIn(_)
                | Event::Kill
                | Event::Start
                | Event::Outage(_)
                | Event::Doubt
                | Event::Recall
                | Event::Clear
                | Event::Heal
                | Event::User
                | Event::Read
        );
        if session != self.session && !lasting {
            return Ok(());
        }
        self.trace
            .note(self.now_ms, "event", session, &format!("{event:?}"));
        match event {
            Event::Sent(letter) => self.sent(letter),
            Event::PutIn(letter) => self.put_in(&letter),
            Event::Kill => self.kill(),
            Event::Start => self.start(),
            Event::Outage(down) => self.outage(down),
            Event::Doubt => {
                self.oracle.doubt();
                self.input(MailboxMachine::doubt)
            }
            Event::Recall => self.recall(),
            Event::Clear => self.clear(),
            Event::Again(which) => self.comes_again(which),
            Event::Heal => self.heal(),
            Event::User => {
                self.user_decides()?;
                self.user_turn()
            }
            Event::Read => self.look(),
            Event::Open => self.open(),
            Event::Shows(attempt) => self.shows(attempt),
            Event::Told(id, outcome) => self.told(id, outcome),
            Event::Arrives(attempt) => self.client_gets(attempt),
            Event::Decides(attempt) => self.decides(attempt),
            Event::Hooked(attempt, leaves) => self.hooked(attempt, leaves),
            Event::Result(attempts) => self.result(attempts),
            Event::Alive => self.alive(),
            Event::AskEnds(ask) => self.ask_ends(ask),
            Event::TakesAnswer(ask) => self.takes_answer(ask),
            Event::Receipt(id, to) => self.gets_receipt(&id, to),
            Event::Presented(id) => {
                self.oracle.presented(self.now_ms, id);
                self.input(|mailbox, now| mailbox.presented(now, id))
            }
            Event::Answered(id) => {
                self.oracle.answered(self.now_ms, id);
                self.input(|mailbox, now| mailbox.answered(now, id))
            }
            Event::Says(activity) => {
                self.oracle.says(activity);
                self.input(|mailbox, now| mailbox.set_activity(now, activity))
            }
            Event::Ready(path) => self.input(|mailbox, now| mailbox.set_path(now, path, true)),
            Event::Readable(readable) => {
                self.oracle.readable(readable);
                self.input(|mailbox, now| mailbox.set_evidence(now, readable))
            }
            Event::Dialog(turn, open) => self.dialog(turn, open),
            Event::Boundary(turn) => self.boundary(turn),
            Event::TurnEnd(turn) => self.turn_ends(turn),
        }
    }

    fn open(&mut self) -> Verdict {
        self.oracle.opened();
        self.input(MailboxMachine::open)
    }

    /// Gives something to the mailbox, takes what it wants done, and checks everything.
    pub(super) fn input<T: Default>(
        &mut self,
        what: impl FnOnce(&mut MailboxMachine, u64) -> T,
    ) -> Result<T, Failure> {
        self.judged(what, |_, _| Ok(()))
    }

    /// As [`World::input`], for what takes messages out. `reading`: the agent asked for them.
    pub(super) fn takes(
        &mut self,
        reading: bool,
        what: impl FnOnce(&mut MailboxMachine, u64) -> Option<Attempt>,
    ) -> Result<Option<Attempt>, Failure> {
        self.judged(what, |oracle, attempt| match attempt {
            Some(attempt) => oracle.made(attempt, reading),
            None => Ok(()),
        })
    }

    /// As [`World::input`]; `judge` looks at what it gives first.
    pub(super) fn judged<T: Default>(
        &mut self,
        what: impl FnOnce(&mut MailboxMachine, u64) -> T,
        judge: impl FnOnce(&mut Oracle, &T) -> Verdict,
    ) -> Result<T, Failure> {
        let Some(mailbox) = &mut self.mailbox else {
            return Ok(T::default());
        };
        self.steps += 1;
        ensure(self.steps < STEPS_MAX, "rest", || {
            "the world does not come to rest".into()
        })?;
        self.oracle.gauges(self.plan.window);
        let out = what(mailbox, self.now_ms);
        self.oracle.evidence(mailbox.evidence())?;
        let outputs: Vec<_> = std::iter::from_fn(|| mailbox.poll_output()).collect();
        for output in outputs {
            self.trace
                .note(self.now_ms, "output", self.session, &format!("{output:?}"));
            self.oracle.output(self.now_ms, &output)?;
            self.does(output);
        }
        judge(&mut self.oracle, &out)?;
        if let Some(mailbox) = &self.mailbox {
            self.oracle.between(mailbox)?;
            mailbox.check();
        }
        Ok(out)
    }

    fn does(&mut self, output: MailboxOutput) {
        match output {
            MailboxOutput::Push(attempt) => {
                let slow = self.rng.chance(200);
                let at = if slow { self.rng.range(1, 2_000) } else { 0 };
                self.after(at, Event::Shows(attempt));
            }
            MailboxOutput::Reached { mail, stage } if stage.is_final() => {
                let up = self.bus.is_up();
                self.oracle.hears(mail.inbound.key, up);
            }
            MailboxOutput::GiveBack { mail } => self.given_back(mail.inbound.key),
            MailboxOutput::Answered(ask) => {
                let at = self.rng.range(1, 20);
                self.after(at, Event::TakesAnswer(ask));
            }
            MailboxOutput::Announce(_)
            | MailboxOutput::Claimed(_)
            | MailboxOutput::Reached { .. }
            | MailboxOutput::Local { .. }
            | MailboxOutput::Told(_)
            | MailboxOutput::Warn(_) => {}
        }
    }

    pub(super) fn told(&mut self, id: AttemptId, outcome: Outcome) -> Verdict {
        self.oracle.told(self.now_ms, id, outcome);
        self.input(|mailbox, now| mailbox.outcome(now, id, outcome))
    }

    fn start(&mut self) -> Verdict {
        if self.is_alive() {
            return Ok(());
        }
        let mut mailbox = MailboxMachine::new(self.plan.policy, self.plan.hops_max);
        if let Some(mutation) = self.mutation {
            mailbox.mutate(mutation);
        }
        for (path, _) in self.paths() {
            mailbox.add_path(path);
        }
        mailbox.set_senders(self.now_ms, &self.plan.senders);
        self.mailbox = Some(mailbox);
        self.oracle.started();
        let at = self.rng.range(0, 3_000);
        self.after(at, Event::Open);
        self.probe();
        self.connects()
    }

    /// What the adapter finds when it looks around.
    fn probe(&mut self) {
        self.say(Activity::Idle);
        self.after(100, Event::Readable(self.readable));
        let waking = self.plan.waking;
        if self.plan.socket {
            self.ready_after(50, waking.socket);
        }
        if self.plan.channel {
            self.ready_after(20, waking.channel);
        }
        if self.plan.hooks {
            self.wait_to_rewake();
        }
    }

    /// The session ends, without a word.
    fn kill(&mut self) -> Verdict {
        self.session += 1;
        self.mailbox = None;
        self.client = Client::default();
        self.oracle.killed();
        let later = self.rng.range(100, 20_000);
        self.after(later, Event::Start);
        Ok(())
    }

    /// All trouble ends; some path works.
    fn heal(&mut self) -> Verdict {
        self.healing = true;
        self.oracle.healed();
        self.plan.faults = Faults::default();
        let channel = self.plan.channel && self.plan.channel_loses == 0;
        let works = self.plan.socket || self.plan.hooks || channel;
        if !works {
            self.plan.channel = true;
            self.plan.channel_loses = 0;
        } else if self.plan.channel_loses < 1_000 && (self.plan.socket || self.plan.hooks) {
            self.plan.channel_loses = self.rng.pick(&[0, 1_000]);
        }
        self.outage(false)?;
        self.start()?;
        for (path, there) in self.paths() {
            if there && !path.one_shot {
                self.ready_after(0, path);
            }
        }
        self.after(0, Event::Readable(self.readable));
        Ok(())
    }

    fn decides(&mut self, attempt: Attempt) -> Verdict {
        match self.rng.range(0, 3) {
            0 => self.told(attempt.id, Outcome::Denied),
            1 => self.told(attempt.id, Outcome::Dropped),
            _ => self.client_gets(attempt),
        }
    }
}
