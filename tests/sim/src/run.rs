//! A run: trouble for a while, then everything is healed, and the promises must have come true.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use peerbus_core::broker::{BrokerInput, BrokerMutation};
use peerbus_core::testing::MemoryStore;
use peerbus_peer::{mailbox, session};

use crate::client::Client;
use crate::disk::{Backend, OutsideMutation};
use crate::failure::{Failure, Verdict, ensure};
use crate::plan::Plan;
use crate::rng::Rng;
use crate::world::{Actor, Event, Kind, World};

/// Events after which a world that has not come to rest is stuck.
const STEPS_MAX: u64 = 3_000_000;

/// Virtual time that a healed world has to come to rest.
const HEAL_MS: u64 = 240_000;

/// What is to be run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// A rule of the broker to break.
    pub mutation: Option<BrokerMutation>,
    /// A promise of the broker to break from outside.
    pub outside_mutation: Option<OutsideMutation>,
    /// A rule of every session to break.
    pub peer_mutation: Option<session::SessionMutation>,
    /// Sessions keep their mail in mailboxes.
    pub mailboxes: bool,
    /// A rule of every mailbox to break.
    pub mailbox_mutation: Option<mailbox::MailboxMutation>,
    /// Keep the trace's text.
    pub trace: bool,
}

/// What came of a run.
#[derive(Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// Its sessions kept their mail in mailboxes.
    pub mailboxes: bool,
    /// The hash over everything that happened.
    pub hash: String,
    /// Events.
    pub steps: u64,
    /// Messages that were accepted.
    pub accepted: usize,
    /// The first broken promise.
    pub failure: Option<Failure>,
    /// The trace, if it was kept.
    pub lines: String,
}

impl Report {
    /// What to say of a failure.
    #[must_use]
    pub fn sentence(&self) -> String {
        let mailboxes = if self.mailboxes { " --mailboxes" } else { "" };
        match &self.failure {
            None => format!("seed {}: all promises hold, trace {}", self.seed, self.hash),
            Some(failure) => format!(
                "seed {}: {failure}\nreproduce with: cargo xtask sim{mailboxes} --seed {}",
                self.seed, self.seed
            ),
        }
    }
}

/// Runs the world of `seed` on a store in memory.
#[must_use]
pub fn run(seed: u64, options: Options) -> Report {
    run_on(seed, options, Box::new(MemoryStore::default()))
}

/// Runs the world of `seed` on a store.
#[must_use]
pub fn run_on(seed: u64, options: Options, store: Box<dyn Backend>) -> Report {
    let mut rng = Rng::new(seed);
    let mut plan = Plan::draw(&mut rng);
    plan.outside_mutation = options.outside_mutation;
    plan.peer_mutation = options.peer_mutation;
    plan.mailboxes = options.mailboxes;
    plan.mailbox_mutation = options.mailbox_mutation;
    if let Some(key) = store.audit_key() {
        plan.config.audit_key = key;
    }
    let mut world = World::new(rng, plan, store, options.mutation, options.trace);
    let ran = catch_unwind(AssertUnwindSafe(|| world.run()));
    let failure = match ran {
        Ok(verdict) => verdict.err(),
        Err(panic) => Some(asserted(panic.as_ref())),
    };
    Report {
        seed,
        mailboxes: options.mailboxes,
        hash: world.trace.hash(),
        steps: world.steps,
        accepted: world.oracle.accepted(),
        failure,
        lines: world.trace.take_lines(),
    }
}

/// A failed assertion of the core.
pub(crate) fn asserted(panic: &(dyn std::any::Any + Send)) -> Failure {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic");
    Failure::new("check", text)
}

impl World {
    /// Runs the world to its end.
    ///
    /// # Errors
    ///
    /// With the first broken promise.
    pub(crate) fn run(&mut self) -> Verdict {
        while self.next_ms().is_some_and(|at| at <= self.plan.busy_ms) {
            self.one()?;
        }
        self.heal()?;
        let deadline = self.now_ms + HEAL_MS;
        let mut calm = 0;
        while calm < 3 {
            let until = self.now_ms + 1_000;
            while self.next_ms().is_some_and(|at| at <= until) {
                self.one()?;
            }
            self.now_ms = until;
            let unfinished = self.unfinished();
            calm = if unfinished.is_none() { calm + 1 } else { 0 };
            ensure(self.now_ms < deadline, "I8", || {
                let what = unfinished.unwrap_or_default();
                format!("healed for {} s, and {what}", HEAL_MS / 1_000)
            })?;
        }
        self.oracle.finish()?;
        self.shut_down()?;
        self.machine.verify(&self.oracle)
    }

    /// The broker ends in order.
    fn shut_down(&mut self) -> Verdict {
        self.machine.tell(BrokerInput::Shutdown);
        self.plan_engine();
        let until = self.now_ms + 1_000;
        while self.machine.is_up() && self.next_ms().is_some_and(|at| at <= until) {
            self.one()?;
        }
        ensure(!self.machine.is_up(), "rest", || {
            "the broker does not shut down".into()
        })
    }

    fn one(&mut self) -> Verdict {
        ensure(self.steps < STEPS_MAX, "rest", || {
            "the world does not come to rest".into()
        })?;
        self.step()
    }

    /// Ends all trouble: the broker runs, and each name has one process, which drains.
    fn heal(&mut self) -> Verdict {
        self.trace.note(self.now_ms, "heal", 0, "");
        self.healing = true;
        self.machine.disk.fault = None;
        // What was handed back comes with the next connection.
        for conn in self.net.at_broker() {
            self.cut(conn);
        }
        let mut seen = BTreeSet::new();
        for proc in self.alive().collect::<Vec<_>>() {
            self.procs[proc].frozen_ms = 0;
            self.after(0, Event::Act(proc));
            let actor = self.procs[proc].actor;
            if self.actors[actor].kind == Kind::Ephemeral || !seen.insert(actor) {
                self.process_leaves(proc)?;
            }
        }
        let wished = self.find_owners();
        for actor in 0..self.actors.len() {
            let generated = self.actors[actor].kind == Kind::Session { generated: true };
            let passing = generated || self.actors[actor].kind == Kind::Ephemeral;
            let name = self.actors[actor].name.to_ascii_lowercase();
            if !passing && !seen.contains(&actor) && !wished.contains(&name) {
                self.after(0, Event::Birth(actor));
            }
        }
        if !self.machine.is_up() {
            self.after(0, Event::Boot);
        }
        Ok(())
    }

    /// A name that its process got and never knew of gets a process. Gives the names that
    /// processes may still get.
    fn find_owners(&mut self) -> BTreeSet<String> {
        let wished: BTreeSet<String> = self
            .alive()
            .filter_map(|proc| match &self.procs[proc].client {
                Some(Client::Session(host)) => host.wished().map(str::to_ascii_lowercase),
                _ => None,
            })
            .collect();
        let mut known: BTreeSet<String> = self.names().into_iter().collect();
        known = known.iter().map(|name| name.to_ascii_lowercase()).collect();
        for name in self.oracle.staying() {
            let key = name.to_ascii_lowercase();
            if !known.contains(&key) && !wished.contains(&key) {
                let kind = Kind::Session { generated: false };
                self.actors.push(Actor { name, kind });
            }
        }
        wished
    }

    /// What keeps a healed world from being at rest.
    fn unfinished(&mut self) -> Option<String> {
        let (mut names, mut tellable) = (Vec::new(), Vec::new());
        let (mut ended, mut lost) = (None, None);
        for proc in self.alive().collect::<Vec<_>>() {
            let Some(client) = &self.procs[proc].client else {
                continue;
            };
            let name = client.name().to_owned();
            if let Client::Session(host) = client {
                if host.has_ended() {
                    ended = Some(proc);
                    break;
                }
                if !host.is_online() {
                    lost = lost.or(Some((proc, name)));
                    continue;
                }
                tellable.push(name.clone());
            }
            names.push(name);
        }
        // Its user starts it anew.
        if let Some(proc) = ended {
            let actor = self.procs[proc].actor;
            if let Err(failure) = self.process_leaves(proc) {
                return Some(failure.to_string());
            }
            self.after(0, Event::Birth(actor));
            return Some("a name had ended".into());
        }
        if let Some((proc, name)) = lost {
            // Another process got its name while it was away.
            if names.iter().any(|other| other.eq_ignore_ascii_case(&name))
                && let Err(failure) = self.process_leaves(proc)
            {
                return Some(failure.to_string());
            }
            return Some(format!("{name} is not online"));
        }
        self.oracle.unfinished(&names, &tellable)
    }
}
