//! The host of the ladder: its adapter, the broker behind it, the paths, and the time.

use std::collections::BTreeMap;

use peerbus_core::wake::{
    Action, Activity, Entry, EntryId, Ladder, Mutation, Outcome, Parcel, ParcelId, Path, PathState,
    Priority,
};

use super::client::Client;
use super::oracle::Oracle;
use super::plan::{Faults, Letter, Plan};
use crate::failure::{Failure, Verdict, ensure};
use crate::rng::Rng;
use crate::trace::Trace;

/// Inputs after which a world that has not come to rest is stuck.
const STEPS_MAX: u64 = 200_000;

/// In this time what comes after the healing is settled.
const BURST_MS: u64 = 540_000;

/// In this time the agent reads everything else.
const REST_MS: u64 = 3_600_000;

/// Something that happens. What belongs to a session that is gone does not happen.
#[derive(Debug, Clone)]
pub(super) enum Event {
    Sent(Letter, bool),
    Kill,
    Start,
    Heal,
    User,
    Told(ParcelId, Outcome),
    /// The text reaches the client.
    Arrives(Parcel),
    /// The user decides about what the client holds.
    Decides(Parcel),
    /// A hook or a result left, or did not; or the answer to a read.
    Handed(Parcel, bool, bool),
    Presented(ParcelId),
    Answered(ParcelId),
    Says(Activity),
    Path(Path, PathState),
    Readable(bool),
    Dialog(u64, bool),
    Boundary(u64),
    TurnEnd(u64),
    Read,
}

/// One world.
pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) plan: Plan,
    pub(super) trace: Trace,
    pub(super) oracle: Oracle,
    pub(super) client: Client,
    pub(super) steps: u64,
    pub(super) healing: bool,
    /// The transcript can be read.
    pub(super) readable: bool,
    mutation: Option<Mutation>,
    ladder: Option<Ladder>,
    session: u64,
    entries: u64,
    now_ms: u64,
    said_ms: u64,
    agenda: BTreeMap<(u64, u64), (u64, Event)>,
    scheduled: u64,
}

impl World {
    pub(super) fn new(rng: Rng, plan: Plan, mutation: Option<Mutation>, trace: bool) -> Self {
        Self {
            rng,
            trace: Trace::new(trace),
            oracle: Oracle::new(plan.policy),
            client: Client::default(),
            steps: 0,
            healing: false,
            readable: plan.readable,
            mutation,
            ladder: None,
            session: 0,
            entries: 0,
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
            self.after(letter.at_ms, Event::Sent(letter, false));
        }
        for at in self.plan.kills.clone() {
            self.after(at, Event::Kill);
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
            self.after(20_000 + letter.at_ms, Event::Sent(*letter, true));
        }
        self.live_until(self.now_ms + 20_000 + BURST_MS)?;
        let most = self.turns_max(first, &burst);
        self.oracle.finish_burst(most)?;
        for minute in 0..REST_MS / 60_000 {
            self.after(minute * 60_000, Event::User);
            self.after(minute * 60_000 + 30_000, Event::Read);
        }
        self.live_until(self.now_ms + REST_MS)?;
        self.oracle.finish_session()?;
        // Nobody says that the user let through what the client held: a successor gets it.
        self.kill();
        self.after(30_000, Event::Read);
        self.live_until(self.now_ms + 60_000)?;
        self.oracle.finish()
    }

    /// How many pushes a burst may take: one and a digest over each path; what is older goes along.
    fn turns_max(&self, older: usize, burst: &[Letter]) -> usize {
        let silent = self.plan.channel && self.plan.channel_loses > 0;
        if older == 0 && (self.plan.socket || !silent) {
            return 2;
        }
        let urgent = burst
            .iter()
            .filter(|letter| letter.priority == Priority::Now);
        3 * (1 + (older + burst.len()).div_ceil(20)) + 3 * urgent.count()
    }

    fn live_until(&mut self, end_ms: u64) -> Verdict {
        loop {
            let timeout = self.ladder.as_ref().and_then(Ladder::poll_timeout);
            let due = timeout.map(|(at, _)| at.max(self.now_ms));
            let event = self.agenda.first_key_value().map(|((at, _), _)| *at);
            if event
                .into_iter()
                .chain(due)
                .min()
                .is_none_or(|at| at > end_ms)
            {
                self.now_ms = end_ms;
                return Ok(());
            }
            if due.is_some_and(|due| event.is_none_or(|at| due < at)) {
                self.now_ms = due.unwrap_or(self.now_ms);
                self.trace.note(self.now_ms, "timeout", 0, "");
                self.input(Ladder::handle_timeout)?;
                let next = self.ladder.as_ref().and_then(Ladder::poll_timeout);
                ensure(next.is_none_or(|(at, _)| at > self.now_ms), "rest", || {
                    format!(
                        "a deadline that passed at {} is set again: {next:?}",
                        self.now_ms
                    )
                })?;
            } else if let Some(((at, _), (session, event))) = self.agenda.pop_first() {
                self.now_ms = self.now_ms.max(at);
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
        let late = self.rng.range(0, 60);
        self.said_ms = self.said_ms.max(self.now_ms + late);
        self.after(self.said_ms - self.now_ms, Event::Says(activity));
    }

    pub(super) fn ready_after(&mut self, ms: u64, path: Path) {
        self.after(ms, Event::Path(path, PathState::Ready));
    }

    pub(super) fn is_alive(&self) -> bool {
        self.ladder.is_some()
    }

    fn happens(&mut self, session: u64, event: Event) -> Verdict {
        let lasting = matches!(
            event,
            Event::Sent(..) | Event::Kill | Event::Start | Event::Heal | Event::User | Event::Read
        );
        if session != self.session && !lasting {
            return Ok(());
        }
        self.trace
            .note(self.now_ms, "event", session, &format!("{event:?}"));
        match event {
            Event::Sent(letter, burst) => {
                let mail = self.oracle.sent(letter.priority, letter.bytes, burst);
                self.deliver(mail)
            }
            Event::Kill => {
                self.kill();
                Ok(())
            }
            Event::Start => self.start(),
            Event::Heal => self.heal(),
            Event::User => self.user_turn(),
            Event::Read => self.read(),
            Event::Told(id, outcome) => self.told(id, outcome),
            Event::Arrives(parcel) => self.client_gets(parcel),
            Event::Decides(parcel) => self.decides(parcel),
            Event::Handed(parcel, reading, leaves) => self.handed(parcel, reading, leaves),
            Event::Presented(id) => {
                self.oracle.presented(self.now_ms, id);
                self.input(|ladder, now| ladder.presented(now, id))
            }
            Event::Answered(id) => {
                self.oracle.answered(self.now_ms, id);
                self.input(|ladder, now| ladder.answered(now, id))
            }
            Event::Says(activity) => self.input(|ladder, now| ladder.set_activity(now, activity)),
            Event::Path(path, state) => self.input(|ladder, now| ladder.set_path(now, path, state)),
            Event::Readable(readable) => {
                self.oracle.readable(readable);
                self.input(|ladder, now| ladder.set_evidence(now, readable))
            }
            Event::Dialog(turn, open) => {
                self.dialog(turn, open);
                Ok(())
            }
            Event::Boundary(turn) => self.boundary(turn),
            Event::TurnEnd(turn) => self.turn_ends(turn),
        }
    }

    /// Gives something to the ladder, takes what it wants done, and checks everything.
    pub(super) fn input<T: Default>(
        &mut self,
        what: impl FnOnce(&mut Ladder, u64) -> T,
    ) -> Result<T, Failure> {
        let Some(ladder) = &mut self.ladder else {
            return Ok(T::default());
        };
        self.steps += 1;
        ensure(self.steps < STEPS_MAX, "rest", || {
            "the world does not come to rest".into()
        })?;
        let out = what(ladder, self.now_ms);
        self.oracle.evidence(ladder.evidence())?;
        let actions: Vec<_> = std::iter::from_fn(|| ladder.poll_action()).collect();
        for action in actions {
            self.trace
                .note(self.now_ms, "action", self.session, &format!("{action:?}"));
            self.oracle.action(&action)?;
            if let Action::Push(parcel) = action {
                self.oracle.push(self.now_ms, &parcel)?;
                self.wake(parcel);
            }
        }
        if let Some(ladder) = &self.ladder {
            let ticks = ladder.poll_timeout().is_some();
            self.oracle.between(ladder.waiting(), ticks)?;
            ladder.check();
        }
        Ok(out)
    }

    fn start(&mut self) -> Verdict {
        if self.is_alive() {
            return Ok(());
        }
        let mut ladder = Ladder::new(self.plan.policy);
        if let Some(mutation) = self.mutation {
            ladder.mutate(mutation);
        }
        self.ladder = Some(ladder);
        self.oracle.readable(false);
        self.oracle.crowded(false);
        self.oracle.held_back(0);
        self.probe();
        for mail in self.oracle.owed() {
            self.deliver(mail)?;
        }
        Ok(())
    }

    /// What the adapter finds when it looks around.
    fn probe(&mut self) {
        self.say(Activity::Idle);
        self.after(100, Event::Readable(self.readable));
        if self.plan.socket {
            self.ready_after(50, Path::Socket);
        }
        if self.plan.channel {
            self.ready_after(20, Path::Channel);
        }
        if self.plan.hooks {
            self.wait_to_rewake();
        }
    }

    /// The session ends, without a word.
    fn kill(&mut self) {
        self.session += 1;
        self.ladder = None;
        self.client = Client::default();
        self.oracle.killed();
        let later = self.rng.range(100, 20_000);
        self.after(later, Event::Start);
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
        self.start()?;
        for (path, there) in [
            (Path::Socket, self.plan.socket),
            (Path::Channel, self.plan.channel),
        ] {
            if there {
                self.ready_after(0, path);
            }
        }
        self.after(0, Event::Readable(self.readable));
        Ok(())
    }

    fn deliver(&mut self, mail: usize) -> Verdict {
        if !self.is_alive() {
            return Ok(());
        }
        self.entries += 1;
        let id = EntryId(self.entries);
        let again = self.oracle.arrived(id, mail);
        let (priority, bytes) = self.oracle.looks(mail);
        let entry = Entry {
            id,
            priority,
            bytes,
            again,
        };
        self.input(|ladder, now| ladder.arrive(now, entry))?;
        self.crowd()
    }

    /// The host compares what it holds with its window.
    fn crowd(&mut self) -> Verdict {
        let waiting = self.ladder.as_ref().map_or(0, Ladder::waiting);
        let crowded = waiting >= self.plan.crowd;
        let held_back = usize::from(self.rng.chance(200));
        self.oracle.held_back(held_back);
        self.input(|ladder, now| ladder.set_held_back(now, held_back))?;
        self.oracle.crowded(crowded);
        self.input(|ladder, now| ladder.set_crowded(now, crowded))
    }

    pub(super) fn named(&mut self, entry: EntryId) -> Verdict {
        self.oracle.named(entry);
        self.input(|ladder, now| ladder.named(now, entry))
    }

    pub(super) fn called(&mut self) -> Verdict {
        self.input(Ladder::handle_timeout)?;
        self.oracle.called();
        self.input(Ladder::called)?;
        self.crowd()
    }

    pub(super) fn told(&mut self, id: ParcelId, outcome: Outcome) -> Verdict {
        self.oracle.told(self.now_ms, id, &outcome);
        self.input(|ladder, now| ladder.told(now, id, outcome))
    }

    /// A push goes over its path.
    fn wake(&mut self, parcel: Parcel) {
        let at = self.rng.range(1, 50);
        match parcel.path {
            Path::Channel => {
                self.after(at, Event::Told(parcel.id, Outcome::Written));
                if !self.rng.chance(self.plan.channel_loses) {
                    self.after(at + 5, Event::Arrives(parcel));
                }
            }
            Path::Rewake if self.rewake() => {
                self.after(at, Event::Told(parcel.id, Outcome::Written));
                self.after(at + 90, Event::Arrives(parcel));
            }
            Path::Rewake => self.after(at, Event::Told(parcel.id, Outcome::Failed)),
            _ => self.post(at, parcel),
        }
    }

    /// The socket does with a push what the plan says.
    fn post(&mut self, at: u64, parcel: Parcel) {
        let Faults {
            fail,
            hold,
            deny,
            drop,
            lose,
            late,
        } = self.plan.faults;
        let id = parcel.id;
        if self.rng.chance(fail) {
            self.after(at, Event::Told(id, Outcome::Failed));
            let again = self.rng.range(at + 1, 5_000);
            return self.ready_after(again, Path::Socket);
        }
        let later = at + self.rng.range(1, 20_000);
        let verdict = if self.rng.chance(hold) {
            self.after(later + 40_000, Event::Decides(parcel));
            Outcome::Held
        } else if self.rng.chance(deny) {
            Outcome::Denied
        } else if self.rng.chance(drop) {
            Outcome::Dropped
        } else {
            self.after(at, Event::Told(id, Outcome::Written));
            let lost = self.rng.chance(lose);
            let slow = self.rng.chance(late);
            if !lost {
                // It may be there before its writer has returned.
                let gets = if slow { later } else { 10 };
                self.after(gets, Event::Arrives(parcel));
            }
            return;
        };
        if self.rng.chance(500) {
            self.after(at, Event::Told(id, Outcome::Written));
            self.after(later, Event::Told(id, verdict));
        } else {
            self.after(at, Event::Told(id, verdict));
        }
    }

    fn decides(&mut self, parcel: Parcel) -> Verdict {
        match self.rng.range(0, 3) {
            0 => self.told(parcel.id, Outcome::Denied),
            1 => self.told(parcel.id, Outcome::Dropped),
            _ => self.client_gets(parcel),
        }
    }
}
