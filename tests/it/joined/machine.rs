//! A machine: a home with a broker that has a domain, and its bridge.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Broker, Home, eventually};

/// `peerbus-bridge`, which is built beside the binary when the workspace is.
pub(super) fn program() -> PathBuf {
    let beside = Path::new(env!("CARGO_BIN_EXE_peerbus")).with_file_name("peerbus-bridge");
    assert!(beside.is_file(), "build it: cargo build -p peerbus-bridge");
    beside
}

pub(super) struct Machine {
    pub(super) home: Home,
    pub(super) domain: &'static str,
    broker: Option<Broker>,
    bridge: Option<Child>,
    /// How the bridge reaches NATS.
    nats: Vec<String>,
    /// `127.0.0.1:PORT` of the broker, once it is known, and in all its lives.
    pub(super) address: String,
}

impl Machine {
    pub(super) fn start(domain: &'static str, nats: &[&str]) -> Self {
        let mut machine = Self {
            home: Home::new(),
            domain,
            broker: None,
            bridge: None,
            nats: nats.iter().map(ToString::to_string).collect(),
            address: "127.0.0.1:0".into(),
        };
        machine.start_broker();
        machine.start_bridge();
        machine
    }

    pub(super) fn start_broker(&mut self) {
        let args = ["serve", "--domain", self.domain, "--listen", &self.address];
        let broker = Broker::spawn(&mut self.home.peerbus(&args));
        self.address.clone_from(&broker.address);
        self.broker = Some(broker);
    }

    pub(super) fn start_bridge(&mut self) {
        let mut options = File::options();
        let log = options.create(true).append(true).open(self.log());
        self.start_bridge_with(log.expect("our file"));
    }

    /// Starts the bridge, which logs to this.
    pub(super) fn start_bridge_with(&mut self, log: File) {
        program();
        let mut bridge = self.home.peerbus(&["bridge"]);
        bridge.args(&self.nats).stdout(Stdio::null()).stderr(log);
        self.bridge = Some(bridge.spawn().expect("it starts"));
    }

    /// What the bridge logs.
    pub(super) fn log(&self) -> PathBuf {
        self.home.path().join("bridge.log")
    }

    pub(super) fn broker(&self) -> &Broker {
        self.broker.as_ref().expect("it runs")
    }

    pub(super) fn bridge_pid(&self) -> Pid {
        Pid::from_child(self.bridge.as_ref().expect("it runs"))
    }

    /// Asks the bridge to end, and gives its exit code.
    pub(super) fn end_bridge(&mut self) -> Option<i32> {
        kill_process(self.bridge_pid(), Signal::TERM).expect("it runs");
        let mut bridge = self.bridge.take().expect("it runs");
        let ended = eventually("it ends", || bridge.try_wait().expect("it is ours"));
        ended.code()
    }

    pub(super) fn kill_broker(&mut self) {
        self.broker.take().expect("it runs").kill();
    }

    pub(super) fn kill_bridge(&mut self) {
        if let Some(mut bridge) = self.bridge.take() {
            // It may have ended already.
            let _ = bridge.kill();
            let _ = bridge.wait();
        }
    }

    /// Waits until the bridge to another domain is there.
    pub(super) fn joined(&self, other: &str) {
        eventually("the domain is joined", || {
            let peers = self.home.run(&["peers", "--json"]).ok();
            let peers: Value = serde_json::from_str(&peers).expect("JSON");
            let all = peers["domains"].as_array()?;
            let there = |domain: &Value| domain["domain"] == other && domain["reachable"] == true;
            all.iter().any(there).then_some(())
        });
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill_bridge();
    }
}
