//! The process that is measured.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use peerbus_core::TokenHash;
use peerbus_wire::{Token, hex};
use rustix::process::{Pid, Signal, kill_process};

use crate::tls;

pub(crate) const TOKEN: &str = "bench-token";
/// A token for bridges.
pub(crate) const BRIDGE_TOKEN: &str = "bench-bridge-token";
/// A token whose peers may send so many messages a second.
pub(crate) const PACED: &str = "paced-token";
pub(crate) const PACED_PER_SECOND: u32 = 1_000;
const ENGINE_THREAD: &str = "peerbus-engine";

/// A broker process with a directory of its own. Killed when dropped.
pub(crate) struct Broker {
    child: Child,
    pub(crate) address: SocketAddr,
    /// Its Unix socket.
    pub(crate) socket: PathBuf,
    /// From the start of the process to its word that it listens.
    pub(crate) ready_after: Duration,
}

impl Broker {
    /// Starts the release binary on the database in `dir`.
    pub(crate) fn start(binary: &Path, dir: &Path, listen: &str) -> Result<Self> {
        Self::spawn(
            Command::new(binary).args(["serve", "--listen", listen]),
            dir,
        )
    }

    /// Starts one that has a domain.
    pub(crate) fn start_in(binary: &Path, dir: &Path, domain: &str) -> Result<Self> {
        let mut command = Command::new(binary);
        command.args(["serve", "--listen", "127.0.0.1:0", "--domain", domain]);
        Self::spawn(&mut command, dir)
    }

    /// Starts one that speaks TLS.
    pub(crate) fn start_tls(binary: &Path, dir: &Path, listen: &str) -> Result<Self> {
        let [cert, key] = tls::files(dir)?;
        let mut command = Command::new(binary);
        command.args(["serve", "--listen", listen, "--tls-cert"]);
        Self::spawn(command.arg(cert).arg("--tls-key").arg(key), dir)
    }

    fn spawn(command: &mut Command, dir: &Path) -> Result<Self> {
        let tokens = tokens_file(dir)?;
        let start = Instant::now();
        let mut child = command
            .env_clear()
            .env("PEERBUS_TOKENS_FILE", tokens)
            .env("HOME", dir)
            .env("PEERBUS_TOKENS", TOKEN)
            .env("PEERBUS_LOG", "error")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let stderr = child.stderr.take().context("no stderr")?;
        let mut lines = BufReader::new(stderr).lines();
        let mut said = Vec::new();
        let address = loop {
            let Some(line) = lines.next().transpose()? else {
                bail!("the broker did not start: {}", said.join("; "));
            };
            if let Some((_, address)) = line.split_once("://")
                && line.starts_with("listening on ws")
            {
                break address.parse()?;
            }
            said.push(line);
        };
        let ready_after = start.elapsed();
        // Whatever it says later must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Self {
            child,
            address,
            socket: Self::database(dir).with_file_name("peerbus.sock"),
            ready_after,
        })
    }

    /// Its database file.
    pub(crate) fn database(dir: &Path) -> PathBuf {
        dir.join(".local/state/peerbus/peerbus.db")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGTERM, and waits for the end.
    pub(crate) fn stop(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let status = self.child.wait()?;
        if !status.success() {
            bail!("the broker ended with {status}");
        }
        Ok(())
    }

    /// SIGKILL, and waits for the end.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Time that the process, and its engine thread, have been running on a processor.
    pub(crate) fn cpu(&self) -> Result<Cpu> {
        cpu(self.pid())
    }

    /// Proportional set size, in bytes.
    pub(crate) fn pss(&self) -> Result<u64> {
        pss(self.pid())
    }

    /// Greatest resident size so far, in bytes.
    pub(crate) fn peak(&self) -> Result<u64> {
        member(&format!("/proc/{}/status", self.pid()), "VmHWM:")
    }

    /// A counter of `/metrics`.
    pub(crate) async fn metric(&self, name: &str) -> Result<f64> {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = tokio::net::UnixStream::connect(&self.socket).await?;
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.with_context(|| format!("no metric {name}"))?
            .trim()
            .parse()
            .map_err(Into::into)
    }
}

/// Lets one token have as many names as the largest load has connections, and another one send no
/// faster than it may.
fn tokens_file(dir: &Path) -> Result<PathBuf> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let hash = |token| {
        let token = Token::parse(token).context("a short text is a token")?;
        anyhow::Ok(hex::encode(&TokenHash::of(&token).0))
    };
    let [hash, paced, bridge] = [hash(TOKEN)?, hash(PACED)?, hash(BRIDGE_TOKEN)?];
    let path = dir.join("tokens.toml");
    let mut options = std::fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&path)?;
    writeln!(
        file,
        "[bench]\nhash = \"{hash}\"\nrights = [\"send\", \"broadcast\", \"observe\"]\nmax_names = 50000\n\
         [paced]\nhash = \"{paced}\"\nrights = [\"send\"]\nmax_per_second = {PACED_PER_SECOND}\n\
         [bridge]\nhash = \"{bridge}\"\nrights = [\"bridge\"]\nnames = [\"bridge*\"]"
    )?;
    Ok(path)
}

impl Drop for Broker {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Processor time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cpu {
    pub(crate) all: Duration,
    pub(crate) engine: Duration,
}

impl Cpu {
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            all: self.all - before.all,
            engine: self.engine - before.engine,
        }
    }
}

/// Time that a process has been running on a processor.
pub(crate) fn cpu(pid: u32) -> Result<Cpu> {
    let mut cpu = Cpu::default();
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let task = task?.path();
        // A thread may end while it is looked at.
        let Ok(stat) = fs::read_to_string(task.join("schedstat")) else {
            continue;
        };
        let nanos = stat
            .split(' ')
            .next()
            .and_then(|n| n.parse().ok())
            .unwrap_or(0);
        let time = Duration::from_nanos(nanos);
        cpu.all += time;
        let name = fs::read_to_string(task.join("comm")).unwrap_or_default();
        if name.trim() == ENGINE_THREAD {
            cpu.engine += time;
        }
    }
    Ok(cpu)
}

/// Proportional set size of a process, in bytes.
pub(crate) fn pss(pid: u32) -> Result<u64> {
    member(&format!("/proc/{pid}/smaps_rollup"), "Pss:")
}

/// Times that a process gave up a processor to wait: its wake-ups.
pub(crate) fn wakeups(pid: u32) -> Result<u64> {
    let mut total = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let status = fs::read_to_string(task?.path().join("status"))?;
        let line = status
            .lines()
            .find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
        total += line
            .context("no count of switches")?
            .trim()
            .parse::<u64>()?;
    }
    Ok(total)
}

/// A member of a file of /proc that is given in kB, in bytes.
fn member(file: &str, name: &str) -> Result<u64> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kilobytes = line.and_then(|line| line.trim().split(' ').next());
    let kilobytes: u64 = kilobytes
        .with_context(|| format!("no {name} in {file}"))?
        .parse()?;
    Ok(kilobytes * 1_024)
}
