//! A broker, adapters and peers, and whoever makes trouble for them.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use peerbus_test_support::preload::preload;
use rusqlite::{Connection, OpenFlags};
use rustix::process::{Pid, Signal, kill_process};

use super::history::{History, Id, Shown};
use super::proxy::Proxy;
use super::tokens::{PROBE, Tokens};
use super::wire::Wire;
use crate::support::{Broker, Home, Small, eventually};

/// Numbers in the file of faults, by their place; `preload.c` says what they mean.
#[derive(Clone, Copy)]
pub(crate) enum Fault {
    WallSeconds,
    Writes,
    Syncs,
    SlowMicros,
}

/// The process that plays an actor at the moment.
#[derive(Default)]
pub(crate) struct Victim(AtomicI32);

impl Victim {
    pub(crate) fn set(&self, pid: Pid) {
        self.0.store(pid.as_raw_nonzero().get(), Ordering::SeqCst);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.0.load(Ordering::SeqCst)) {
            // It may be a zombie already.
            let _ = kill_process(pid, signal);
        }
    }
}

/// Everything that an actor needs to know.
pub(crate) struct World {
    pub(crate) history: History,
    pub(crate) proxy: Proxy,
    token: String,
    tokens: Tokens,
    pub(crate) secret: String,
    home: Home,
    /// The small disk on which the database lies, if it does.
    pub(crate) small: Option<Small>,
    faults: File,
    broker: Mutex<Option<Broker>>,
    probe: Mutex<Option<Connection>>,
    settled: Mutex<BTreeSet<Id>>,
    /// A fault that the processes are built to have.
    broken: Option<&'static str>,
    sending_over: AtomicBool,
    over: AtomicBool,
}

impl World {
    /// A world with a running broker. `None` where this user may not mount the small disk.
    pub(crate) fn start(on_small_disk: bool, broken: Option<&'static str>) -> Option<Self> {
        let home = Home::new();
        let small = match on_small_disk {
            true => Some(Small::mount(&home, "24m")?),
            false => None,
        };
        let faults = home.path().join("faults");
        let mut options = File::options();
        let faults = options.read(true).write(true).create_new(true).open(faults);
        let faults = faults.expect("a file");
        faults.set_len(40).expect("room for five numbers");
        // The first start makes the credentials.
        Broker::start(&home).stop();
        let world = Self {
            history: History::default(),
            proxy: Proxy::start(),
            token: home.credential("token"),
            tokens: Tokens::make(&home),
            secret: home.credential("hmac_secret"),
            home,
            small,
            faults,
            broker: Mutex::default(),
            probe: Mutex::default(),
            settled: Mutex::default(),
            broken,
            sending_over: AtomicBool::default(),
            over: AtomicBool::default(),
        };
        world.start_broker();
        Some(world)
    }

    fn database(&self) -> PathBuf {
        match &self.small {
            Some(small) => small.path("peerbus.db"),
            None => self.home.database(),
        }
    }

    pub(crate) fn start_broker(&self) {
        let mut command = match &self.small {
            Some(small) => small.serve(&self.home),
            None => self.home.peerbus(&["serve", "--listen", "127.0.0.1:0"]),
        };
        preload(self.home.path(), &mut command);
        command.env("PEERBUS_FAULTS", self.home.path().join("faults"));
        self.equip(&mut command);
        let broker = Broker::spawn(&mut command);
        let address = broker.address.parse().expect("an address");
        self.proxy.lead_to(address);
        *self.broker.lock().expect("nobody panics here") = Some(broker);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
        *self.probe.lock().expect("nobody panics here") =
            Connection::open_with_flags(self.database(), flags).ok();
    }

    fn equip(&self, command: &mut Command) {
        if let Some(broken) = self.broken {
            command.env("PEERBUS_BROKEN", broken);
        }
    }

    /// An adapter that reaches the broker through the proxy.
    pub(crate) fn adapter(&self, kind: &str, name: &str) -> Command {
        let mut command = self
            .home
            .peerbus(&["adapter", "--adapter", kind, "--name", name]);
        command
            .env("PEERBUS_URL", format!("ws://{}", self.proxy.address))
            .env("PEERBUS_TOKEN", self.token_of(name))
            .env("PEERBUS_HMAC_SECRET", &self.secret)
            .env("PEERBUS_BUDGET", "off");
        self.equip(&mut command);
        command
    }

    /// What a peer of this name joins with.
    pub(crate) fn token_of(&self, name: &str) -> &str {
        self.tokens.of(name).unwrap_or(&self.token)
    }

    /// Revokes the token of a name and has the broker confirm it; or does it while no broker runs.
    pub(crate) fn revoke(&self, name: &'static str, dead: bool) {
        if dead {
            self.kill_broker();
        }
        let said = self.home.apart(&["token", "revoke", name]);
        if dead {
            self.start_broker();
        }
        let knows = dead || said.stderr.contains("the broker knows it");
        if said.code == Some(0) && knows {
            self.history.revoked(name);
        } else {
            let what = format!("no token was revoked: {}{}", said.stdout, said.stderr);
            self.history.violate(what);
        }
    }

    /// Gives the token of a name back, and waits until the broker knows it. The adapter that has one
    /// is started anew by its user.
    pub(crate) fn give_back(&self, name: &'static str, adapter: &Victim) {
        self.history.given_back(name);
        self.tokens.restore();
        eventually("the token admits connections again", || {
            let probe = Wire::register(self, &format!("{PROBE}{name}"));
            (probe.is_some() || self.is_decided()).then_some(())
        });
        if name == "drainer" {
            adapter.signal(Signal::KILL);
        }
    }

    /// SIGKILL.
    pub(crate) fn kill_broker(&self) {
        if let Some(broker) = self.take_broker() {
            broker.kill();
        }
    }

    /// SIGTERM, and waits for the end.
    pub(crate) fn stop_broker(&self) {
        let Some(broker) = self.take_broker() else {
            return;
        };
        // It may have failed a moment ago.
        let _ = kill_process(broker.pid(), Signal::TERM);
        let (code, said) = broker.ended();
        if code != Some(0) {
            self.history.violate(format!(
                "the broker ended with {code:?} after SIGTERM: {said}"
            ));
        }
    }

    /// Waits until the broker ends by itself, which it must with a sentence.
    pub(crate) fn broker_fails(&self) {
        let Some(broker) = self.take_broker() else {
            return;
        };
        let (code, said) = broker.ended();
        if code != Some(1) || !said.contains("peerbus.db") {
            self.history
                .violate(format!("the broker ended with {code:?}: {said}"));
        }
    }

    pub(crate) fn signal_broker(&self, signal: Signal) {
        if let Some(broker) = &*self.broker.lock().expect("nobody panics here") {
            // It may have ended.
            let _ = kill_process(broker.pid(), signal);
        }
    }

    /// Whether the broker has ended though nobody made it.
    pub(crate) fn broker_is_gone(&self) -> bool {
        let mut broker = self.broker.lock().expect("nobody panics here");
        broker.as_mut().is_some_and(Broker::is_gone)
    }

    fn take_broker(&self) -> Option<Broker> {
        self.broker.lock().expect("nobody panics here").take()
    }

    /// Sets one of the faults of the broker's process.
    pub(crate) fn set(&self, fault: Fault, value: i64) {
        let at = fault as u64 * 8;
        let written = self.faults.write_all_at(&value.to_ne_bytes(), at);
        written.expect("a file of ours");
    }

    /// Looks whether a message that was just receipted is in the database.
    pub(crate) fn probe(&self, id: &str) {
        let probe = self.probe.lock().expect("nobody panics here");
        let Some(db) = &*probe else { return };
        let found = db
            .prepare_cached("SELECT EXISTS(SELECT 1 FROM messages WHERE id = ?1)")
            .and_then(|mut query| query.query_row([id], |row| row.get::<_, bool>(0)));
        match found {
            Ok(true) => self.history.count(|counts| counts.probes += 1),
            Ok(false) => {
                let what = format!("{id} was receipted, and is not in the database");
                self.history.violate(what);
            }
            // A broker that starts has it for itself at times.
            Err(_) => {}
        }
    }

    /// These were acked, and the acks are on disk.
    pub(crate) fn settle(&self, ids: Vec<Id>) {
        self.settled.lock().expect("nobody panics here").extend(ids);
    }

    pub(crate) fn is_settled(&self, id: &Id) -> bool {
        self.settled
            .lock()
            .expect("nobody panics here")
            .contains(id)
    }

    /// Whether the signature of this is wrong, which the broker cannot know.
    pub(crate) fn is_forged(&self, shown: &Shown) -> bool {
        self.history.is_forged(&shown.from, shown.number)
    }

    /// Waits until the broker knows these names.
    pub(crate) fn wait_for_names(&self, names: &[&str]) {
        eventually("everybody is registered", || {
            let known = self.home.run(&["peers"]).ok();
            names.iter().all(|name| known.contains(name)).then_some(())
        });
    }

    /// The audit chain must be whole. Where the database lies on a disk of its own nobody looks.
    pub(crate) fn verify(&self) {
        if self.small.is_none() {
            let said = self.home.run(&["audit", "verify"]);
            if said.code != Some(0) {
                self.history
                    .violate(format!("{}{}", said.stdout, said.stderr));
            }
        }
    }

    /// Ends everybody when it is dropped, so that a panic is not waited for.
    pub(crate) fn until_dropped(&self) -> impl Drop + '_ {
        struct End<'a>(&'a World);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.stop_sending();
                self.0.end();
            }
        }
        End(self)
    }

    /// Whether a promise was broken: nothing more is to be learned.
    pub(crate) fn is_decided(&self) -> bool {
        !self.history.violations().is_empty()
    }

    pub(crate) fn stop_sending(&self) {
        self.sending_over.store(true, Ordering::SeqCst);
    }

    pub(crate) fn sending_is_over(&self) -> bool {
        self.sending_over.load(Ordering::SeqCst)
    }

    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }
}
