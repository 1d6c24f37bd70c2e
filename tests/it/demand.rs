//! A broker when one is needed: started, ended, kept from starting, replaced.

mod end;
mod given;
mod invited;
mod kept;
mod never;
mod older;
mod reach;
mod start;

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Finished, Home, Mcp, eventually};

/// A fresh user whose programs start brokers. What they started is ended when this is dropped.
struct World {
    home: Home,
}

impl World {
    fn new() -> Self {
        Self { home: Home::new() }
    }

    fn peerbus(&self, args: &[&str]) -> Command {
        let mut command = self.home.peerbus(args);
        command.env_remove("PEERBUS_AUTOSTART");
        command
    }

    fn run(&self, args: &[&str]) -> Finished {
        Finished::of(&mut self.peerbus(args))
    }

    /// Starts an adapter with a name, as some agent would.
    fn adapter(&self, name: &str) -> Mcp {
        let args = ["adapter", "--adapter", "generic", "--name", name];
        let mut mcp = Mcp::spawn(&mut self.peerbus(&args));
        mcp.initialize("some-agent");
        mcp
    }

    /// Makes a name known, with a broker that is started for it.
    fn register(&self, name: &str) {
        self.run(&["recv", "--name", name, "--timeout", "0.1"]).ok();
    }

    fn state(&self, file: &str) -> PathBuf {
        self.home.path().join(".local/state/peerbus").join(file)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.state("broker.log")).expect("a log")
    }

    /// The brokers that run for this home.
    fn brokers(&self) -> Vec<Pid> {
        let mut home = b"HOME=".to_vec();
        home.extend_from_slice(self.home.path().as_os_str().as_encoded_bytes());
        let processes = fs::read_dir("/proc").expect("processes").flatten();
        let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let ours = ids.filter(|id| {
            let read = |what: &str| fs::read(format!("/proc/{id}/{what}")).unwrap_or_default();
            let has = |text: Vec<u8>, word: &[u8]| text.split(|byte| *byte == 0).any(|w| w == word);
            has(read("environ"), &home) && has(read("cmdline"), b"serve")
        });
        ours.filter_map(Pid::from_raw).collect()
    }

    /// The one broker that runs.
    #[track_caller]
    fn broker(&self) -> Pid {
        eventually("there is one broker", || match self.brokers()[..] {
            [broker] => Some(broker),
            _ => None,
        })
    }

    #[track_caller]
    fn has_none(&self) {
        let brokers = self.brokers();
        assert!(brokers.is_empty(), "{brokers:?}");
    }

    /// Asks the broker over its socket; gives the status and the answer.
    fn ask(&self, request: &str) -> (u16, Value) {
        let mut stream = UnixStream::connect(self.state("peerbus.sock")).expect("a broker");
        write!(
            stream,
            "{request} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
        )
        .expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        let status = text.split(' ').nth(1).and_then(|code| code.parse().ok());
        let body = text.split_once("\r\n\r\n").expect("a body").1;
        let body = serde_json::from_str(body).unwrap_or_else(|_| body.into());
        (status.expect("a status"), body)
    }

    fn stop(&self) {
        self.run(&["stop"]).ok();
        self.ends();
    }

    /// Waits until no broker runs: one has given everything up a moment before its process ends.
    #[track_caller]
    fn ends(&self) {
        eventually("no broker runs", || self.brokers().is_empty().then_some(()));
    }
}

impl Drop for World {
    fn drop(&mut self) {
        loop {
            let brokers = self.brokers();
            if brokers.is_empty() {
                return;
            }
            for broker in brokers {
                // It may be ending already.
                let _ = kill_process(broker, Signal::KILL);
            }
        }
    }
}
