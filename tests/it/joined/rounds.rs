//! Three machines and a cluster of three nats-servers, of which something fails in each round.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::{ConnectOptions, jetstream};
use peerbus_test_support::nats::Nats;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rustix::process::{Pid, Signal, kill_process};
use tokio::runtime::Runtime;

use super::ledger::Ledger;
use super::machine::{Machine, program};
use super::member::Member;
use crate::support::{Finished, Home, eventually};

const DOMAINS: [&str; 3] = ["alpha", "beta", "gamma"];
const MEMBERS: usize = 64;
/// Messages that are written at a time.
const BURST: usize = 200;
/// How long something stands still.
const CUT: Duration = Duration::from_secs(3);
/// After so long what is missing counts as lost.
const SETTLED: Duration = Duration::from_secs(120);

/// What fails.
#[derive(Debug, Clone, Copy)]
enum Fault {
    KillServer,
    KillBridge,
    KillBroker,
    StopServer,
    StopBridge,
    StopBroker,
    /// All that NATS keeps is gone, and is made anew.
    Wipe,
    /// The stream is deleted under way, its consumers with it, and made anew.
    Delete,
    /// A broker comes back from a backup.
    Restore,
}

const FAULTS: [Fault; 9] = [
    Fault::Wipe,
    Fault::Delete,
    Fault::Restore,
    Fault::KillBroker,
    Fault::KillBridge,
    Fault::StopServer,
    Fault::KillServer,
    Fault::StopBridge,
    Fault::StopBroker,
];

struct World {
    servers: [Nats; 3],
    machines: Vec<Machine>,
    members: Vec<Member>,
    ledger: Arc<Ledger>,
    rng: StdRng,
    written: usize,
    /// The keys are in it, and it runs what is no machine's.
    admin: Home,
    runtime: Runtime,
}

impl World {
    /// `None` where there is no nats-server.
    fn start(seed: u64) -> Option<Self> {
        let admin = Home::new();
        let domains = DOMAINS.iter().flat_map(|domain| ["--domain", domain]);
        let account: Vec<_> = ["account"].into_iter().chain(domains).collect();
        Finished::of(admin.command(program()).args(account)).ok();
        let keys = admin.path().join("peerbus-nats");
        let servers = Nats::cluster(admin.path(), Some(&keys.join("accounts.conf")))?;
        let urls = servers.each_ref().map(Nats::url).join(",");
        let machines: Vec<_> = DOMAINS
            .iter()
            .map(|domain| {
                let key = keys.join(format!("{domain}.nk"));
                let key = key.to_str().expect("UTF-8");
                Machine::start(domain, &["--nats", &urls, "--creds", key])
            })
            .collect();
        let runtime = Runtime::new().expect("a runtime");
        let ledger = Arc::new(Ledger::default());
        let on = runtime.handle();
        let member = |at: usize| {
            let machine = &machines[at % DOMAINS.len()];
            Member::start(on, machine, &format!("p{at}"), &ledger)
        };
        let mut world = Self {
            members: (0..MEMBERS).map(member).collect(),
            servers,
            machines,
            ledger,
            rng: StdRng::seed_from_u64(seed),
            written: 0,
            admin,
            runtime,
        };
        world.set_up();
        // A bridge without a consumer ends.
        for machine in &mut world.machines {
            machine.kill_bridge();
            machine.start_bridge();
        }
        for machine in &world.machines {
            let others = DOMAINS.iter().filter(|it| **it != machine.domain);
            others.for_each(|other| machine.joined(other));
        }
        world.known();
        Some(world)
    }

    /// Makes the stream, once the servers have elected one of them.
    fn set_up(&self) {
        let urls = self.servers.each_ref().map(Nats::url).join(",");
        let mut args = vec![
            "setup",
            "--replicas",
            "3",
            "--creds",
            "peerbus-nats/_setup.nk",
        ];
        args.extend(["--nats", &urls]);
        args.extend(DOMAINS.iter().flat_map(|domain| ["--domain", domain]));
        eventually("the stream can be made", || {
            let done = Finished::of(self.admin.command(program()).args(&args));
            (done.code == Some(0)).then_some(())
        });
    }

    /// Deletes the streams, as the one that sets them up may.
    async fn delete_stream(&self) {
        let seed = std::fs::read_to_string(self.admin.path().join("peerbus-nats/_setup.nk"));
        let key = ConnectOptions::with_nkey(seed.expect("our file").trim().into());
        let urls: Vec<_> = self.servers.iter().map(Nats::url).collect();
        let client = key.connect(urls).await.expect("a server is there");
        for domain in DOMAINS {
            let context = jetstream::with_prefix(client.clone(), &format!("peerbus.api.{domain}"));
            let deleted = context.delete_stream("PEERBUS").await;
            assert!(deleted.expect("it may").success);
        }
    }

    /// Waits until every broker knows its members.
    fn known(&self) {
        for machine in &self.machines {
            let all = self.members.iter();
            let all = all.filter(|it| it.address.ends_with(&format!("@{}", machine.domain)));
            let count = all.count();
            eventually("the members are there", || {
                let peers = machine.home.run(&["peers", "--json"]).ok();
                let peers: serde_json::Value = serde_json::from_str(&peers).expect("JSON");
                (peers["peers"].as_array()?.len() >= count).then_some(())
            });
        }
    }

    /// Some write to some.
    fn write(&mut self, count: usize) {
        for _ in 0..count {
            self.written += 1;
            let id = format!("m{}", self.written);
            let from = self.members.choose(&mut self.rng).expect("there are some");
            let to = self.members.choose(&mut self.rng).expect("there are some");
            let domain = |member: &Member| member.address.split('@').next_back().map(str::to_owned);
            let nobody = self.written.is_multiple_of(50) && domain(from) != domain(to);
            let to = match nobody {
                true => to.address.replacen('p', "nobody-", 1),
                false => to.address.clone(),
            };
            from.write(&self.ledger, &to, &id, nobody);
        }
    }

    fn fail(&mut self, fault: Fault) -> String {
        let at = self.rng.random_range(0..DOMAINS.len());
        match fault {
            Fault::KillServer => {
                self.servers[at].kill();
                self.write(BURST);
                self.servers[at].restart(false);
            }
            Fault::KillBridge => {
                self.machines[at].kill_bridge();
                self.write(BURST);
                self.machines[at].start_bridge();
            }
            Fault::KillBroker => {
                self.machines[at].kill_broker();
                self.write(BURST);
                self.machines[at].start_broker();
            }
            Fault::StopServer => {
                let pid = self.servers[at]
                    .pid()
                    .and_then(|pid| Pid::from_raw(pid.cast_signed()));
                self.cut(pid.expect("it runs"));
            }
            Fault::StopBridge => self.cut(self.machines[at].bridge_pid()),
            Fault::StopBroker => self.cut(self.machines[at].broker().pid()),
            Fault::Wipe => {
                self.servers.iter_mut().for_each(Nats::kill);
                self.write(BURST);
                self.servers.iter_mut().for_each(Nats::forget);
                self.servers.iter_mut().for_each(Nats::start_again);
                self.set_up();
            }
            Fault::Delete => {
                self.write(BURST);
                self.runtime.block_on(self.delete_stream());
                self.write(BURST);
                self.set_up();
            }
            Fault::Restore => self.restore(at),
        }
        format!("{fault:?} of {}", DOMAINS[at])
    }

    /// Somebody stands still for a while.
    fn cut(&mut self, pid: Pid) {
        kill_process(pid, Signal::STOP).expect("it runs");
        self.write(BURST);
        // It is not expected to.
        let _ = self.ledger.settled(CUT);
        kill_process(pid, Signal::CONT).expect("it runs");
    }

    /// A backup is made under way, and comes back later.
    fn restore(&mut self, at: usize) {
        let backup = Instant::now();
        let file = self.machines[at]
            .home
            .path()
            .join(format!("backup-{}", self.written));
        let file = file.to_str().expect("UTF-8").to_owned();
        self.machines[at].home.run(&["backup", &file]).ok();
        self.write(BURST);
        // Some of it is under way then.
        let some = Duration::from_millis(self.rng.random_range(0..100));
        let _ = self.ledger.settled(some);
        let machine = &mut self.machines[at];
        machine.kill_broker();
        self.ledger.restores(DOMAINS[at], backup);
        machine.home.run(&["restore", &file]).ok();
        machine.start_broker();
    }

    /// Where everybody's logs are.
    fn logs(&self) -> String {
        let mut text = String::new();
        for machine in &self.machines {
            let log = std::fs::read_to_string(machine.log()).unwrap_or_default();
            let lines: Vec<_> = log.lines().rev().take(12).collect();
            let lines: Vec<_> = lines.into_iter().rev().collect();
            let _ = writeln!(text, "bridge of {}:\n{}", machine.domain, lines.join("\n"));
        }
        text
    }
}

/// Runs so many rounds; each fault comes once, then they come by chance.
#[expect(clippy::print_stdout, reason = "what a long run is at")]
fn run(rounds: usize, seed: u64) {
    let Some(mut world) = World::start(seed) else {
        return;
    };
    for round in 0..rounds {
        let start = Instant::now();
        let by_chance = world.rng.random_range(0..FAULTS.len());
        let fault = FAULTS.get(round).copied().unwrap_or(FAULTS[by_chance]);
        world.write(BURST);
        let what = world.fail(fault);
        world.write(BURST);
        let settled = world.ledger.settled(SETTLED);
        let (written, shown) = world.ledger.counts();
        let took = start.elapsed().as_secs_f32();
        println!("round {round}: {what}, {took:.1} s; {shown} of {written} messages were shown");
        if let Err(why) = settled {
            panic!(
                "seed {seed}, round {round}, {what}: {why}\n{}",
                world.logs()
            );
        }
    }
}

#[test]
fn what_was_accepted_crosses_once_and_in_order_whatever_fails() {
    let number = |name: &str| std::env::var(name).ok()?.parse().ok();
    // Each fault once.
    let rounds = number("PEERBUS_CHAOS_ROUNDS").unwrap_or(FAULTS.len() as u64);
    let seed = number("PEERBUS_CHAOS_SEED").unwrap_or(1);
    run(usize::try_from(rounds).expect("some"), seed);
}
