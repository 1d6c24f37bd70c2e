//! A broker process.

use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::{Home, Lines};

/// `peerbus serve`, killed when dropped.
pub(crate) struct Broker {
    child: Child,
    pub(crate) stderr: Lines,
    /// With TLS.
    secure: bool,
    /// `127.0.0.1:PORT`.
    pub(crate) address: String,
}

impl Broker {
    /// Starts a broker for `home` on a free port and on the home's Unix socket.
    pub(crate) fn start(home: &Home) -> Self {
        Self::start_with(home, &[])
    }

    /// Starts a broker with more arguments.
    pub(crate) fn start_with(home: &Home, more: &[&str]) -> Self {
        let mut args = vec!["serve", "--listen", "127.0.0.1:0"];
        args.extend_from_slice(more);
        Self::spawn(&mut home.peerbus(&args))
    }

    /// Starts a broker by this command.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command
            .stderr(Stdio::piped())
            .spawn()
            .expect("serve starts");
        let stderr = Lines::of(child.stderr.take().expect("a pipe"));
        let (secure, address) = stderr.find("address", |line| {
            let url = line.strip_prefix("listening on ws")?;
            let secure = url.starts_with('s');
            let address = url.split_once("://")?.1;
            Some((secure, address.to_owned()))
        });
        let broker = Self {
            child,
            stderr,
            secure,
            address,
        };
        broker.stderr.find("state line", |line| {
            line.starts_with("state in ").then_some(())
        });
        broker
    }

    pub(crate) fn url(&self) -> String {
        let scheme = if self.secure { "wss" } else { "ws" };
        format!("{scheme}://{}", self.address)
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// SIGKILL, and waits for the end.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("the broker is ours");
        self.wait();
    }

    /// Waits until it ends by itself. Gives its exit code and what it said since it was ready.
    #[track_caller]
    pub(crate) fn ended(mut self) -> (Option<i32>, String) {
        // Before its lines: one that does not end may not end to speak either.
        let code = self.wait().code();
        let lines = std::iter::from_fn(|| self.stderr.next(super::PATIENCE));
        let said: Vec<_> = lines.collect();
        (code, said.join("\n"))
    }

    /// Whether it has ended by itself.
    pub(crate) fn is_gone(&mut self) -> bool {
        self.child.try_wait().expect("our child").is_some()
    }

    /// SIGTERM, and waits for the orderly end. Gives what it said since it was ready.
    #[track_caller]
    pub(crate) fn stop_and_read(mut self) -> Vec<String> {
        self.terminate();
        std::iter::from_fn(|| self.stderr.next(super::PATIENCE)).collect()
    }

    /// SIGTERM, and waits for the orderly end.
    #[track_caller]
    pub(crate) fn stop(mut self) {
        self.terminate();
    }

    #[track_caller]
    fn terminate(&mut self) {
        kill_process(self.pid(), Signal::TERM).expect("the broker is ours");
        let status = self.wait();
        assert!(status.success(), "serve ended with {status}");
    }

    #[track_caller]
    fn wait(&mut self) -> ExitStatus {
        super::eventually("the broker ends", || {
            self.child.try_wait().expect("our child")
        })
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
