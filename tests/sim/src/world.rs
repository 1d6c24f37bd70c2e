//! A world: one broker, its clients, the network between them, and time.

use std::collections::BTreeMap;

use peerbus_core::broker::{BrokerInput, BrokerMutation, BrokerOutput, ConnId};
use peerbus_wire::PeerName;

use crate::client::{Act, Client, Ctx};
use crate::disk::{Backend, Disk};
use crate::failure::{Failure, Verdict};
use crate::host::{Birth, Host};
use crate::machine::{Machine, Moment};
use crate::net::Net;
use crate::oracle::{Oracle, ProcId};
use crate::plan::Plan;
use crate::rng::Rng;
use crate::script::Script;
use crate::trace::Trace;

/// The wall clock when the world begins.
const WALL_ZERO_MS: u64 = 1_700_000_000_000;

/// Mean time between two acts of a host when everything is healed.
const HEALING_ACT_MS: u64 = 5;

/// What is going to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// The engine runs.
    Engine,
    /// The broker starts.
    Boot,
    /// Something arrives at the broker.
    Up(ConnId),
    /// Something arrives at the client.
    Down(ConnId),
    /// The broker learns that a connection is gone.
    Closed(ConnId),
    /// A client's transport gives a connection up.
    Lost(ConnId),
    /// A connection is open, or there is no broker.
    Dialed(ProcId),
    /// A client's deadline has come.
    Wake(ProcId),
    /// A host does something.
    Act(ProcId),
    /// A process is started for an actor.
    Birth(usize),
    /// Something goes wrong.
    Fault,
    /// There is room on the disk again.
    Room,
    /// The wall clock jumps by so much.
    Jump(i64),
}

/// What kind of process has a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Session { generated: bool },
    Ephemeral,
    Script { evil: bool },
}

/// A name, and who runs under it.
#[derive(Debug)]
pub(crate) struct Actor {
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

/// A process.
#[derive(Debug)]
pub(crate) struct Proc {
    pub(crate) actor: usize,
    pub(crate) client: Option<Client>,
    pub(crate) link: Option<ConnId>,
    pub(crate) frozen_ms: u64,
    wake_ms: Option<u64>,
}

/// A world.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) rng: Rng,
    pub(crate) now_ms: u64,
    /// How far the wall clock is ahead.
    pub(crate) ahead_ms: i64,
    pub(crate) machine: Machine,
    pub(crate) net: Net,
    pub(crate) actors: Vec<Actor>,
    pub(crate) procs: Vec<Proc>,
    pub(crate) oracle: Oracle,
    pub(crate) trace: Trace,
    pub(crate) healing: bool,
    pub(crate) steps: u64,
    queue: BTreeMap<(u64, u64), Event>,
    next_event: u64,
    engine_ms: Option<u64>,
    next_name: usize,
}

impl World {
    /// Makes the world of a seed on a store.
    #[must_use]
    pub(crate) fn new(
        mut rng: Rng,
        mut plan: Plan,
        store: Box<dyn Backend>,
        mutation: Option<BrokerMutation>,
        keep_trace: bool,
    ) -> Self {
        let mut actors = Vec::new();
        for at in 0..plan.sessions {
            let generated = at < plan.generated;
            let name = if generated {
                format!("gen-{at}")
            } else {
                format!("Ext.{at}")
            };
            actors.push(Actor {
                name,
                kind: Kind::Session { generated },
            });
        }
        for at in 0..plan.scripts {
            actors.push(Actor {
                name: format!("v1:{at}"),
                kind: Kind::Script { evil: false },
            });
        }
        if plan.mallory {
            actors.push(Actor {
                name: "mallory".into(),
                kind: Kind::Script { evil: true },
            });
        }
        // Generated names multiply, and each keeps its process.
        if plan.generated == 0 && plan.rename == 0 && rng.chance(200) {
            plan.config.connections_max = actors.len() + 1;
        }
        let disk = Disk::new(store, plan.outside_mutation);
        let machine = Machine::new(disk, plan.config.clone(), mutation, plan.batch_max);
        let oracle = Oracle::new(plan.rules());
        let mut world = Self {
            now_ms: 0,
            ahead_ms: 0,
            machine,
            net: Net::default(),
            procs: Vec::new(),
            oracle,
            trace: Trace::new(keep_trace),
            healing: false,
            steps: 0,
            queue: BTreeMap::new(),
            next_event: 0,
            engine_ms: None,
            next_name: 0,
            rng: Rng::new(rng.draw()),
            actors,
            plan,
        };
        world.at(0, Event::Boot);
        for actor in 0..world.actors.len() {
            let birth_ms = world.rng.range(0, 300);
            world.at(birth_ms, Event::Birth(actor));
        }
        let first_ms = world.rng.range(1, 2 * world.plan.fault_ms);
        world.at(first_ms, Event::Fault);
        world
    }

    /// This moment.
    #[must_use]
    pub(crate) fn moment(&self) -> Moment {
        Moment {
            now_ms: self.now_ms,
            wall_ms: (WALL_ZERO_MS + self.now_ms).saturating_add_signed(self.ahead_ms),
        }
    }

    /// Plans an event.
    pub(crate) fn at(&mut self, at_ms: u64, event: Event) {
        self.queue
            .insert((at_ms.max(self.now_ms), self.next_event), event);
        self.next_event += 1;
    }

    /// Plans an event `delay_ms` from now.
    pub(crate) fn after(&mut self, delay_ms: u64, event: Event) {
        self.at(self.now_ms + delay_ms, event);
    }

    /// The time of the next event.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.queue.first_key_value().map(|((at, _), _)| *at)
    }

    /// Lets the next event happen.
    ///
    /// # Errors
    ///
    /// When a promise is broken.
    pub(crate) fn step(&mut self) -> Verdict {
        let Some(((at_ms, _), event)) = self.queue.pop_first() else {
            return Ok(());
        };
        self.now_ms = at_ms;
        self.steps += 1;
        match event {
            Event::Engine => self.engine()?,
            Event::Boot => self.boot()?,
            Event::Up(conn) => self.up(conn),
            Event::Down(conn) => self.down(conn)?,
            Event::Closed(conn) => self.closed(conn),
            Event::Lost(conn) => self.lost(conn)?,
            Event::Dialed(proc) => self.dialed(proc)?,
            Event::Wake(proc) => self.wake(proc)?,
            Event::Act(proc) => self.host_acts(proc)?,
            Event::Birth(actor) => self.birth(actor)?,
            Event::Fault => self.fault()?,
            Event::Room => self.machine.tell(BrokerInput::Space {
                free: 1 << 40,
                total: 1 << 40,
            }),
            Event::Jump(ms) => self.ahead_ms += ms,
        }
        self.plan_engine();
        Ok(())
    }

    fn boot(&mut self) -> Verdict {
        if self.machine.is_up() {
            return Ok(());
        }
        self.trace.note(self.now_ms, "boot", 0, "");
        let at = self.moment();
        self.machine.start(at, &mut self.oracle, &mut self.rng)
    }

    pub(crate) fn plan_engine(&mut self) {
        let Some(wake_ms) = self.machine.wake_ms() else {
            return;
        };
        let wake_ms = if wake_ms == 0 {
            self.now_ms + self.rng.range(0, 2)
        } else {
            wake_ms.max(self.now_ms)
        };
        if self.engine_ms.is_none_or(|planned| wake_ms < planned) {
            self.engine_ms = Some(wake_ms);
            self.at(wake_ms, Event::Engine);
        }
    }

    fn engine(&mut self) -> Verdict {
        if self.engine_ms.is_none_or(|planned| planned > self.now_ms) {
            return Ok(());
        }
        self.engine_ms = None;
        let at = self.moment();
        let step = self.machine.step(at, &mut self.oracle, &mut self.rng)?;
        for output in step.outputs {
            self.output(output);
        }
        if step.died {
            self.broker_dies()?;
        }
        Ok(())
    }

    fn output(&mut self, output: BrokerOutput) {
        match output {
            BrokerOutput::Send(conn, frame) => self.send_down(conn, &frame.encode()),
            BrokerOutput::Ping(conn) => self.ping_down(conn),
            BrokerOutput::Close(conn, reason) => {
                self.close_down(conn, reason.code(), reason.text())
            }
            BrokerOutput::Event(_) => {}
        }
    }

    fn birth(&mut self, actor: usize) -> Verdict {
        let alone = |proc: &Proc| proc.client.is_none() || proc.actor != actor;
        if self.healing && !self.procs.iter().all(alone) {
            return Ok(());
        }
        let proc = self.procs.len();
        self.trace
            .note(self.now_ms, "birth", proc as u64, &self.actors[actor].name);
        self.procs.push(Proc {
            actor,
            client: None,
            link: None,
            frozen_ms: 0,
            wake_ms: None,
        });
        let kind = self.actors[actor].kind;
        let name = crate::draw::spelled(&mut self.rng, &self.actors[actor].name);
        let names = self.names();
        let mut ctx = self.ctx(proc, &names);
        let mut client = match kind {
            Kind::Script { evil } => Client::Script(Box::new(Script::new(&mut ctx, &name, evil))),
            Kind::Session { .. } | Kind::Ephemeral => {
                let generated = kind == Kind::Session { generated: true };
                let birth = Birth {
                    name,
                    generated,
                    ephemeral: kind == Kind::Ephemeral,
                };
                Client::Session(Box::new(Host::new(&mut ctx, &birth)?))
            }
        };
        client.started(&mut ctx)?;
        let acts = ctx.acts;
        self.procs[proc].client = Some(client);
        self.perform(proc, acts)?;
        let act_ms = self.rng.range(1, 2 * self.plan.act_ms);
        self.after(act_ms, Event::Act(proc));
        self.plan_wake(proc);
        Ok(())
    }

    /// A name that nobody had.
    pub(crate) fn fresh_name(&mut self, kind: &str) -> String {
        self.next_name += 1;
        format!("{kind}-n{}", self.next_name)
    }

    /// Everybody's name.
    pub(crate) fn names(&self) -> Vec<String> {
        self.actors.iter().map(|actor| actor.name.clone()).collect()
    }

    fn ctx<'a>(&'a mut self, proc: ProcId, names: &'a [String]) -> Ctx<'a> {
        Ctx {
            at: self.moment(),
            rng: &mut self.rng,
            oracle: &mut self.oracle,
            plan: &self.plan,
            names,
            proc,
            healing: self.healing,
            acts: Vec::new(),
        }
    }

    /// Lets a process handle something, and does what it wants done.
    pub(crate) fn with(
        &mut self,
        proc: ProcId,
        handle: impl FnOnce(&mut Client, &mut Ctx<'_>) -> Verdict,
    ) -> Verdict {
        let Some(mut client) = self.procs[proc].client.take() else {
            return Ok(());
        };
        let names = self.names();
        let before = client.name().to_owned();
        let mut ctx = self.ctx(proc, &names);
        let verdict = handle(&mut client, &mut ctx);
        let acts = ctx.acts;
        let renamed = (client.name() != before).then(|| client.name().to_owned());
        self.procs[proc].client = Some(client);
        if let Some(name) = renamed {
            self.goes_by(proc, name);
        }
        verdict?;
        self.perform(proc, acts)?;
        self.plan_wake(proc);
        Ok(())
    }

    fn perform(&mut self, proc: ProcId, acts: Vec<Act>) -> Verdict {
        for act in acts {
            match act {
                Act::Dial => {
                    let delay_ms = self.rng.range(0, self.plan.delay_ms + 1);
                    self.after(delay_ms, Event::Dialed(proc));
                }
                Act::HangUp => self.hang_up(proc, false),
                Act::Goodbye => self.hang_up(proc, true),
                Act::Text(text) => self.send_up(proc, text),
                Act::Binary => self.binary_up(proc),
                Act::Ping => self.ping_up(proc),
                Act::Rename => self.rename(proc)?,
            }
        }
        Ok(())
    }

    fn rename(&mut self, proc: ProcId) -> Verdict {
        let name = self.fresh_name("gen");
        self.trace.note(self.now_ms, "rename", proc as u64, &name);
        let parsed =
            PeerName::parse(&name).map_err(|error| Failure::new("world", error.to_string()))?;
        let actor = self.procs[proc].actor;
        self.oracle.goes_on(proc, &name);
        self.actors.push(Actor {
            name,
            kind: self.actors[actor].kind,
        });
        self.procs[proc].actor = self.actors.len() - 1;
        self.with(proc, |client, ctx| match client {
            Client::Session(host) => host.rename(ctx, &parsed),
            Client::Script(_) => Ok(()),
        })
    }

    /// A process has another name than the one it was started with.
    fn goes_by(&mut self, proc: ProcId, name: String) {
        let actor = self.procs[proc].actor;
        if self.actors[actor].name.eq_ignore_ascii_case(&name) {
            return;
        }
        self.trace.note(self.now_ms, "goes by", proc as u64, &name);
        let known = self
            .actors
            .iter()
            .position(|actor| actor.name.eq_ignore_ascii_case(&name));
        let actor = known.unwrap_or_else(|| {
            let kind = Kind::Session { generated: false };
            self.actors.push(Actor { name, kind });
            self.actors.len() - 1
        });
        self.procs[proc].actor = actor;
    }

    fn plan_wake(&mut self, proc: ProcId) {
        let Some(wake_ms) = self.procs[proc].client.as_ref().and_then(Client::wake_ms) else {
            return;
        };
        let wake_ms = wake_ms.max(self.now_ms + 1);
        if self.procs[proc]
            .wake_ms
            .is_none_or(|planned| wake_ms < planned)
        {
            self.procs[proc].wake_ms = Some(wake_ms);
            self.at(wake_ms, Event::Wake(proc));
        }
    }

    fn wake(&mut self, proc: ProcId) -> Verdict {
        if self.procs[proc]
            .wake_ms
            .is_none_or(|planned| planned > self.now_ms)
        {
            return Ok(());
        }
        let frozen_ms = self.procs[proc].frozen_ms;
        if frozen_ms > self.now_ms {
            self.procs[proc].wake_ms = Some(frozen_ms);
            self.at(frozen_ms, Event::Wake(proc));
            return Ok(());
        }
        self.procs[proc].wake_ms = None;
        self.with(proc, Client::timeout)
    }

    fn host_acts(&mut self, proc: ProcId) -> Verdict {
        if self.procs[proc].client.is_none() {
            return Ok(());
        }
        let frozen_ms = self.procs[proc].frozen_ms;
        if frozen_ms > self.now_ms {
            self.at(frozen_ms, Event::Act(proc));
            return Ok(());
        }
        self.with(proc, Client::act)?;
        let mean_ms = if self.healing {
            HEALING_ACT_MS
        } else {
            self.plan.act_ms
        };
        let act_ms = self.rng.range(1, 2 * mean_ms);
        self.after(act_ms, Event::Act(proc));
        Ok(())
    }
}
