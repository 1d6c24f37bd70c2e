//! The process between a driver and an agent's: once it has ended, nothing of the agent's is left.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use peerbus_adapter::signals::Stop;
use peerbus_os::process::{descendants, is_this_program, signal};
use rustix::process::{
    Pid, Signal, WaitOptions, kill_process_group, test_kill_process_group, wait,
};
use rustix::stdio::{dup2_stdin, dup2_stdout};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::{OpenOptions, Receiver};
use tokio::signal::unix::{self, SignalKind};
use tokio::time::{Instant, timeout, timeout_at};

/// The variable in which the guard reads the number of its end of a pipe. Only the driver has the
/// other end, and never writes: it closes when the driver ends, however that ends.
pub(crate) const LIFELINE: &str = "PEERBUS_LIFELINE";
/// So many processes stand between a driver and what it starts: the one that ends that with it.
pub(crate) const GUARDS: usize = 1;
/// How long the agent and all below it may take after SIGTERM. Claude's wrapper takes 2.3 s in a turn.
pub(crate) const ENDS_WITHIN: Duration = Duration::from_secs(3);
/// How long all are killed for: the kernel may keep one that waits for a disk.
pub(crate) const KILLED_WITHIN: Duration = Duration::from_secs(2);
/// How long processes may take after SIGTERM that an agent left behind.
const LEFT_WITHIN: Duration = Duration::from_millis(500);
/// A process that was killed may have started another one just before.
const AGAIN: Duration = Duration::from_millis(20);
/// An argument of brokers and drivers that peerbus put away from the process that needed them.
const DETACHED: &str = "--detached";
/// What is added to the number of the signal that ended the agent.
const SIGNALLED: i32 = 128;

/// Runs an agent in a process group of its own until it ends by itself, the driver ends, or a signal
/// asks for the end. Then ends all that is left below this process, and gives the agent's exit code:
/// 128 and the number of the signal where one ended it.
///
/// Must be called in a process that [`run`](crate::run) started and that has no other children.
///
/// # Errors
///
/// When the agent cannot be started.
pub async fn guard(program: &Path, arguments: &[OsString]) -> io::Result<i32> {
    let mut stop = Stop::catch()?;
    let changes = unix::signal(SignalKind::child())?;
    let mut lifeline = lifeline()?;
    let nowhere = File::options().read(true).write(true).open("/dev/null")?;
    let adopts = peerbus_os::process::adopt_orphans()?;
    let agent = Command::new(program)
        .args(arguments)
        .env_remove(LIFELINE)
        .process_group(0)
        .spawn()?;
    // The guard gives up its copies of the agent's pipes. On failure they close with the guard.
    let _ = dup2_stdin(&nowhere).and_then(|()| dup2_stdout(&nowhere));
    let mut tree = Tree {
        agent: Pid::from_child(&agent),
        changes,
        code: None,
        adopts,
    };
    let mut nothing = [0];
    let within = tokio::select! {
        () = tree.agent_ends() => LEFT_WITHIN,
        _ = stop.asked() => ENDS_WITHIN,
        _ = lifeline.read(&mut nothing) => ENDS_WITHIN,
    };
    tree.end(within).await;
    Ok(tree.code.unwrap_or(SIGNALLED + Signal::KILL.as_raw()))
}

/// Opens the end that was handed on, which the agent does not get.
fn lifeline() -> io::Result<Receiver> {
    let number = std::env::var(LIFELINE).ok();
    let number: i32 = number
        .and_then(|number| number.parse().ok())
        .ok_or_else(|| io::Error::other("only `peerbus run` starts a guard"))?;
    let opened = OpenOptions::new().open_receiver(format!("/dev/fd/{number}"))?;
    let others: Vec<_> = close_fds::iter_open_fds(number + 1).collect();
    close_fds::set_fds_cloexec(number, &others);
    Ok(opened)
}

/// The processes below one that end with it. A broker that a command of the agent's started serves
/// others, and a driver that was detached is meant to stay.
pub(crate) fn below(id: u32) -> Vec<u32> {
    descendants(id, |id| is_this_program(id, DETACHED))
}

/// The agent's process below this driver, and those that it may only be a wrapper of.
pub(crate) fn agents(wrappers: usize) -> Vec<u32> {
    let first = |id: &u32| below(*id).first().copied();
    let line = std::iter::successors(Some(std::process::id()), first);
    line.skip(1 + GUARDS).take(1 + wrappers).collect()
}

/// All that stands below this process.
struct Tree {
    agent: Pid,
    /// A child has ended.
    changes: unix::Signal,
    /// The agent's, once it has ended.
    code: Option<i32>,
    /// Whether orphans become children of this process.
    adopts: bool,
}

impl Tree {
    async fn agent_ends(&mut self) {
        self.reap();
        while self.code.is_none() {
            self.changes.recv().await;
            self.reap();
        }
    }

    /// Takes note of children that ended, and lets them go.
    fn reap(&mut self) {
        // An error: there are no children.
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid == self.agent {
                let signalled = || status.terminating_signal().map(|it| SIGNALLED + it);
                self.code = status.exit_status().or_else(signalled);
            }
        }
    }

    /// Ends everything: asks, waits for so long, and kills.
    async fn end(&mut self, within: Duration) {
        let asked_until = Instant::now() + within;
        let killed_until = asked_until + KILLED_WITHIN;
        self.reap();
        let mut is_left = self.tell(Some(Signal::TERM));
        while is_left && timeout_at(asked_until, self.changes.recv()).await.is_ok() {
            self.reap();
            is_left = self.tell(None);
        }
        while is_left && Instant::now() < killed_until {
            is_left = self.tell(Some(Signal::KILL));
            // Either it is time to look again, or something has changed.
            let _ = timeout(AGAIN, self.changes.recv()).await;
            self.reap();
        }
    }

    /// Sends a signal to all that is left, or none. Whether anything was left.
    fn tell(&self, told: Option<Signal>) -> bool {
        let left = below(std::process::id());
        for id in &left {
            // It may have ended meanwhile.
            let _ = told.map(|told| signal(*id, told));
        }
        if self.adopts {
            return !left.is_empty();
        }
        // Orphans stand below nobody here, but most stay in the agent's group.
        let group = match told {
            Some(told) => kill_process_group(self.agent, told),
            None => test_kill_process_group(self.agent),
        };
        group.is_ok() || !left.is_empty()
    }
}
