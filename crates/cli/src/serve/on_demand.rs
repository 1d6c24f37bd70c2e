//! `peerbus serve --on-demand`: a broker in the background, that tells whoever started it how it went.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::Command;

use peerbus_adapter::demand::{BEGINS, HELD, READY};
use peerbus_adapter::{Failure, stderr};
use peerbus_broker::BrokerStartError;

/// What whoever started the broker is told.
pub(super) enum Told<'a> {
    /// It serves, and what whoever needed it must know of that.
    Ready(Option<&'a str>),
    /// Another one has the database or the socket.
    Held(&'a BrokerStartError),
    /// It does not start.
    Failed(&'a dyn std::fmt::Display),
}

impl<'a> Told<'a> {
    /// What a failed start comes to.
    pub(super) fn of(error: &'a BrokerStartError) -> Self {
        match error {
            BrokerStartError::InUse { .. } | BrokerStartError::SocketInUse { .. } => {
                Self::Held(error)
            }
            error => Self::Failed(error),
        }
    }
}

/// Starts this program again with the same arguments, to be nobody's child.
pub(super) fn detach() -> Result<(), Failure> {
    let own = std::env::current_exe().map_err(Failure::failed)?;
    // Whoever needed it first may run with less of the processor than others; only some users may
    // take that back.
    if rustix::process::getpriority_process(None).is_ok_and(|nice| nice > 0) {
        let _ = rustix::process::setpriority_process(None, 0);
    }
    // Whoever left a pipe or a lock open meant the program that it ran, and no broker.
    close_fds::set_fds_cloexec(3, &[]);
    let mut command = Command::new(own);
    command.args(std::env::args_os().skip(1)).arg("--detached");
    command.spawn().map_err(Failure::failed)?;
    Ok(())
}

/// Tells whoever started the broker, by standard output, once.
pub(super) struct Starter {
    told: bool,
}

/// Leaves the session that this was started in, and logs to a file from now on.
pub(super) fn begin(log: &Path) -> Result<Starter, Failure> {
    let mut starter = Starter { told: false };
    // It fails for the first process of a group, which this one is not.
    let left = rustix::process::setsid().map_err(io::Error::from);
    let left = left.and_then(|_| std::env::set_current_dir("/"));
    let begun = left.and_then(|()| stderr::log_to(log));
    if let Err(error) = begun {
        let log = log.display();
        let failure = Failure::failed(format!("cannot log to {log}: {error}"));
        starter.tell(Told::Failed(&failure));
        return Err(failure);
    }
    Ok(starter)
}

impl Starter {
    /// Says it, and closes standard output: nothing goes there after that.
    pub(super) fn tell(&mut self, told: Told<'_>) {
        if std::mem::replace(&mut self.told, true) {
            return;
        }
        let line = match told {
            Told::Ready(None) => READY.to_owned(),
            Told::Ready(Some(warning)) => format!("{READY}\n{}", on_a_line(&warning)),
            Told::Held(why) => format!("{HELD}{}", on_a_line(why)),
            Told::Failed(why) => format!("{BEGINS}{}", on_a_line(why)),
        };
        // Whoever started it may have gone.
        let _ = io::stdout().write_all(format!("{line}\n").as_bytes());
        if let Ok(nowhere) = File::options().write(true).open("/dev/null") {
            // A line more in a pipe that nobody reads does no harm.
            let _ = rustix::stdio::dup2_stdout(nowhere);
        }
    }
}

fn on_a_line(why: &dyn std::fmt::Display) -> String {
    why.to_string().replace('\n', " ")
}
