//! What goes wrong.

use peerbus_core::broker::{BrokerInput, Command, ConnId};
use peerbus_wire::{ClientFrame, PROTOCOL_VERSION, PeerName, Register};

use crate::client::Client;
use crate::disk::DiskFault;
use crate::failure::Verdict;
use crate::net::{Down, Up};
use crate::oracle::ProcId;
use crate::plan::{OTHER_TOKEN, token};
use crate::world::{Actor, Event, Kind, World};

/// How the names of strangers begin.
const STRANGER: &str = "stranger";

impl World {
    pub(crate) fn fault(&mut self) -> Verdict {
        if self.healing || self.now_ms > self.plan.busy_ms {
            return Ok(());
        }
        let next_ms = self.rng.range(1, 2 * self.plan.fault_ms);
        self.after(next_ms, Event::Fault);
        let at = self.rng.index(21);
        self.trace.note(self.now_ms, "fault", at as u64, "");
        match at {
            0..=3 => {
                if let Some(conn) = self.some_conn() {
                    self.cut(conn);
                }
            }
            4 | 5 => {
                if let Some(conn) = self.some_conn() {
                    self.half_open(conn);
                }
            }
            6 | 7 => self.broker_dies()?,
            8 => self.machine.tell(BrokerInput::Shutdown),
            9 if self.machine.is_up() => {
                let statement =
                    DiskFault::Statement(u32::try_from(self.rng.index(20)).unwrap_or(0));
                let faults = [DiskFault::CommitLost, DiskFault::CommitKept, statement];
                self.machine.disk.fault = Some(self.rng.pick(&faults));
            }
            10 | 11 => {
                if let Some(proc) = self.some_proc() {
                    self.process_dies(proc);
                }
            }
            12 => {
                if let Some(proc) = self.some_proc() {
                    self.procs[proc].frozen_ms =
                        self.now_ms + self.rng.pick(&[500, 3_000, 100_000]);
                }
            }
            13 => {
                let actor = self.rng.index(self.actors.len());
                if self.actors[actor].kind != Kind::Ephemeral {
                    self.after(0, Event::Birth(actor));
                }
            }
            14 => {
                let name = self.fresh_name("eph");
                self.actors.push(Actor {
                    name,
                    kind: Kind::Ephemeral,
                });
                self.after(0, Event::Birth(self.actors.len() - 1));
            }
            15 => {
                let actor = self.rng.index(self.actors.len());
                if let Ok(name) = PeerName::parse(&self.actors[actor].name) {
                    self.machine
                        .tell(BrokerInput::Operate(Command::Release(name)));
                }
            }
            18 if self.plan.rename > 0 => self.retire(),
            16 => self.wall_clock_jumps(),
            19 => self.disk_fills(),
            20 => self.stranger_calls(),
            _ => {
                if let Some(proc) = self.some_proc() {
                    self.process_leaves(proc)?;
                }
            }
        }
        Ok(())
    }

    /// Somebody with another token takes a name, tries to send, and leaves. Mail for the name waits
    /// for nobody.
    fn stranger_calls(&mut self) {
        let name = self.fresh_name(STRANGER);
        let conn = ConnId((1 << 40) + self.actors.len() as u64);
        let to = self.rng.index(self.actors.len());
        let text = crate::draw::unsigned(&name, &self.actors[to].name);
        let register = ClientFrame::Register(Register {
            protocol_version: PROTOCOL_VERSION.into(),
            token: Some(token(OTHER_TOKEN)),
            name: name.clone(),
            renaming: None,
            ext: 0,
            instance: None,
            ephemeral: false,
            generated: false,
            window: None,
            presence: None,
            bridge: None,
        });
        let goodbye = true;
        for input in [
            BrokerInput::Opened(conn),
            BrokerInput::Frame(conn, register),
            BrokerInput::Frame(conn, ClientFrame::parse(text.as_bytes())),
            BrokerInput::Closed { conn, goodbye },
        ] {
            self.machine.tell(input);
        }
        let kind = Kind::Ephemeral;
        self.actors.push(Actor { name, kind });
    }

    /// Others fill the disk, for a while.
    fn disk_fills(&mut self) {
        self.machine.tell(BrokerInput::Space {
            free: 0,
            total: 1 << 40,
        });
        let while_ms = self.rng.pick(&[10, 3_000, 60_000]);
        self.after(while_ms, Event::Room);
    }

    /// For ever, or for a while.
    fn wall_clock_jumps(&mut self) {
        const MONTH_MS: i64 = 31 * 86_400_000;
        let far_ms = self.rng.pick(&[1_000, 3_600_000, MONTH_MS]);
        let jump_ms = if self.rng.chance(500) {
            far_ms
        } else {
            -far_ms
        };
        self.ahead_ms += jump_ms;
        if self.rng.chance(500) {
            let while_ms = self.rng.pick(&[10, 35_000, 300_000]);
            self.after(while_ms, Event::Jump(-jump_ms));
        }
    }

    /// The operator ends a name.
    fn retire(&mut self) {
        let [name, heir] = [
            self.rng.index(self.actors.len()),
            self.rng.index(self.actors.len()),
        ]
        .map(|actor| PeerName::parse(&self.actors[actor].name));
        let successor = heir.ok().filter(|_| self.rng.chance(600));
        // A name that leads to another token's peer is lost to its process.
        let successor = successor.filter(|name| !name.as_str().starts_with(STRANGER));
        if let Ok(name) = name {
            self.machine
                .tell(BrokerInput::Operate(Command::Retire { name, successor }));
        }
    }

    fn some_conn(&mut self) -> Option<ConnId> {
        let conns = self.net.at_broker();
        (!conns.is_empty()).then(|| conns[self.rng.index(conns.len())])
    }

    fn some_proc(&mut self) -> Option<ProcId> {
        let alive: Vec<_> = self.alive().collect();
        (!alive.is_empty()).then(|| alive[self.rng.index(alive.len())])
    }

    /// Processes that run.
    pub(crate) fn alive(&self) -> impl Iterator<Item = ProcId> {
        let procs = self.procs.iter().enumerate();
        procs
            .filter(|(_, proc)| proc.client.is_some())
            .map(|(proc, _)| proc)
    }

    /// A connection breaks; some of what is under way still arrives.
    pub(crate) fn cut(&mut self, conn: ConnId) {
        let (up, down) = (self.rng.index(4), self.rng.index(4));
        let at_ms = [self.rng.range(0, 50), self.rng.range(0, 50)].map(|ms| self.now_ms + ms);
        let Some(link) = self.net.get(conn) else {
            return;
        };
        // What is cut once has its ends under way, and keeps them.
        if link.up.hole && link.down.hole {
            return;
        }
        link.up.truncate(up);
        link.down.truncate(down);
        let arrivals = [
            link.up
                .push(at_ms[0], Up::Cut)
                .map(|at| (at, Event::Up(conn))),
            link.down
                .push(at_ms[1], Down::Cut)
                .map(|at| (at, Event::Down(conn))),
        ];
        (link.up.hole, link.down.hole) = (true, true);
        for (at, event) in arrivals.into_iter().flatten() {
            self.at(at, event);
        }
        self.script_gives_up(conn);
    }

    /// A script's transport finds out by itself, late, that nothing passes. A session has to.
    fn script_gives_up(&mut self, conn: ConnId) {
        let lost_ms = self.rng.range(45_000, 90_000);
        let Some(proc) = self.net.get(conn).map(|link| link.proc) else {
            return;
        };
        if matches!(self.procs[proc].client, Some(Client::Script(_))) {
            self.after(lost_ms, Event::Lost(conn));
        }
    }

    /// Nothing passes any more, and nobody is told.
    fn half_open(&mut self, conn: ConnId) {
        let idle_ms = self.rng.range(45_000, 90_000);
        let (both, up) = (self.rng.chance(500), self.rng.chance(500));
        let Some(link) = self.net.get(conn) else {
            return;
        };
        link.up.hole |= both || up;
        link.down.hole |= both || !up;
        self.after(idle_ms, Event::Closed(conn));
        self.script_gives_up(conn);
    }

    /// The broker's process dies, or its machine.
    pub(crate) fn broker_dies(&mut self) -> Verdict {
        if !self.machine.is_up() {
            return Ok(());
        }
        self.trace.note(self.now_ms, "crash", 0, "");
        let at = self.moment();
        self.machine.kill(at, &mut self.oracle)?;
        for conn in self.net.at_broker() {
            let keep = self.rng.index(4);
            let cut_ms = self.now_ms + self.rng.pick(&[0, 0, 5, 40, 20_000]);
            let Some(link) = self.net.get(conn) else {
                continue;
            };
            link.up.shut = true;
            link.down.truncate(keep);
            match link.down.push(cut_ms, Down::Cut) {
                Some(at_ms) => self.at(at_ms, Event::Down(conn)),
                None => self.script_gives_up(conn),
            }
        }
        self.net.sweep();
        let boot_ms = if self.healing {
            10
        } else {
            self.rng.pick(&[1, 30, 2_000, 30_000])
        };
        self.after(boot_ms, Event::Boot);
        Ok(())
    }

    /// A process dies, or its machine; another one takes its place later.
    fn process_dies(&mut self, proc: ProcId) {
        self.trace.note(self.now_ms, "kill", proc as u64, "");
        if let Some(conn) = self.procs[proc].link {
            if self.rng.chance(700) {
                self.hang_up(proc, false);
            } else {
                let idle_ms = self.rng.range(45_000, 90_000);
                if let Some(link) = self.net.get(conn) {
                    link.up.hole = true;
                    link.down.shut = true;
                }
                self.after(idle_ms, Event::Closed(conn));
            }
        }
        self.gone(proc);
        let actor = self.procs[proc].actor;
        if self.actors[actor].kind != Kind::Ephemeral {
            let birth_ms = self.rng.pick(&[0, 100, 5_000, 60_000]);
            self.after(birth_ms, Event::Birth(actor));
        }
    }

    /// A process ends in order.
    pub(crate) fn process_leaves(&mut self, proc: ProcId) -> Verdict {
        self.trace.note(self.now_ms, "leave", proc as u64, "");
        self.with(proc, Client::leave)?;
        self.gone(proc);
        let actor = self.procs[proc].actor;
        if !self.healing && self.actors[actor].kind != Kind::Ephemeral {
            let birth_ms = self.rng.pick(&[0, 5_000, 60_000]);
            self.after(birth_ms, Event::Birth(actor));
        }
        Ok(())
    }

    fn gone(&mut self, proc: ProcId) {
        self.procs[proc].client = None;
        self.procs[proc].link = None;
        self.oracle.process_gone(proc);
    }
}
