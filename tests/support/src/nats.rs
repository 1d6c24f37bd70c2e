//! A nats-server of a test's own.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::PATIENCE;

/// A server with JetStream, which is killed when it is dropped.
pub struct Nats {
    program: PathBuf,
    dir: PathBuf,
    address: SocketAddr,
    child: Child,
}

impl Nats {
    /// Starts one that keeps everything in `dir`, with the accounts in this file, or with none. `None`,
    /// and why on stdout: it is not installed, which only `.ci/run` has to see to.
    pub fn start(dir: &Path, accounts: Option<&Path>) -> Option<Self> {
        let program = program()?;
        fs::create_dir_all(dir).expect("a directory");
        // Taken anew by the server; whoever else wants a port of its own asks the system, too.
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = free.local_addr().expect("it is bound");
        drop(free);
        let store = dir.join("store");
        let mut text = format!("listen: {address}\njetstream {{ store_dir: {store:?} }}\n");
        if let Some(accounts) = accounts {
            // It looks for what it includes beside its configuration.
            fs::copy(accounts, dir.join("accounts.conf")).expect("our file");
            text.push_str("include accounts.conf\n");
        }
        fs::write(dir.join("server.conf"), text).expect("our file");
        let child = run(&program, dir, address);
        Some(Self {
            program,
            dir: dir.to_owned(),
            address,
            child,
        })
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("nats://{}", self.address)
    }

    /// Kills it, and starts it again on what it had on disk, or with nothing.
    pub fn restart(&mut self, forgets: bool) {
        self.end();
        if forgets {
            fs::remove_dir_all(self.dir.join("store")).expect("its store");
        }
        self.child = run(&self.program, &self.dir, self.address);
    }

    fn end(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        self.end();
    }
}

fn run(program: &Path, dir: &Path, address: SocketAddr) -> Child {
    let mut options = fs::File::options();
    let log = options.create(true).append(true).open(dir.join("log"));
    let child = Command::new(program)
        .arg("-c")
        .arg(dir.join("server.conf"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log.expect("our file"))
        .spawn()
        .expect("nats-server starts");
    let start = Instant::now();
    while TcpStream::connect(address).is_err() {
        assert!(start.elapsed() < PATIENCE, "nats-server does not listen");
        std::thread::yield_now();
    }
    child
}

#[expect(clippy::print_stdout, reason = "a test that is skipped says why")]
fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|dir| dir.join("nats-server"))
        .find(|program| program.is_file());
    let must = std::env::var_os("CI").is_some();
    assert!(found.is_some() || !must, "nats-server is not installed");
    if found.is_none() {
        println!("skipped: nats-server is not installed");
    }
    found
}
