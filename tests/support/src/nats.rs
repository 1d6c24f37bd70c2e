//! A nats-server of a test's own.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::PATIENCE;
use crate::socket::free;

/// A server with JetStream, which is killed when it is dropped.
pub struct Nats {
    program: PathBuf,
    dir: PathBuf,
    address: SocketAddr,
    /// What it is told beside its configuration.
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
    child: Option<Child>,
}

impl Nats {
    /// Starts one that keeps everything in `dir`, with the accounts in this file, or with none. `None`,
    /// and why on stdout: it is not installed, which only `.ci/run` has to see to.
    pub fn start(dir: &Path, accounts: Option<&Path>) -> Option<Self> {
        Self::of(
            dir,
            "jetstream { store_dir: $NATS_DIR }\ninclude accounts.conf\n",
            accounts,
        )
    }

    /// The same, that has no JetStream.
    pub fn plain(dir: &Path) -> Option<Self> {
        Self::of(dir, "", None)
    }

    fn of(dir: &Path, text: &str, accounts: Option<&Path>) -> Option<Self> {
        let program = program()?;
        let address = free();
        let mut server = Self::new((program, dir), address, text, accounts);
        server.start_again();
        server.listens();
        Some(server)
    }

    /// Starts three that are one, of the configuration in `deploy`.
    pub fn cluster(dir: &Path, accounts: Option<&Path>) -> Option<[Self; 3]> {
        let program = program()?;
        let conf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/nats/nats.conf");
        let text = fs::read_to_string(conf).expect("our file");
        let routes = [(); 3].map(|()| format!("nats://{}", free()));
        let list = format!("{routes:?}");
        let mut nodes = [0, 1, 2].map(|at| {
            let dir = dir.join(format!("nats-{at}"));
            let mut node = Self::new((program.clone(), &dir), free(), &text, accounts);
            node.arguments
                .extend(["--cluster".into(), routes[at].clone()]);
            node.environment.push(("NATS_NAME", format!("nats-{at}")));
            node.environment.push(("NATS_ROUTES", list.clone()));
            node
        });
        nodes.iter_mut().for_each(Self::start_again);
        nodes.iter().for_each(Self::listens);
        Some(nodes)
    }

    fn new(
        (program, dir): (PathBuf, &Path),
        address: SocketAddr,
        text: &str,
        accounts: Option<&Path>,
    ) -> Self {
        fs::create_dir_all(dir).expect("a directory");
        // It looks for what it includes beside its configuration.
        let included = dir.join("accounts.conf");
        match accounts {
            Some(accounts) => fs::copy(accounts, included).map(|_| ()),
            None => fs::write(included, ""),
        }
        .expect("our file");
        fs::write(dir.join("server.conf"), text).expect("our file");
        let (ip, port) = (address.ip().to_string(), address.port().to_string());
        let store = format!("{:?}", dir.join("store"));
        Self {
            program,
            dir: dir.to_owned(),
            address,
            arguments: vec!["--addr".into(), ip, "--port".into(), port],
            environment: vec![("NATS_DIR", store)],
            child: None,
        }
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("nats://{}", self.address)
    }

    /// Its process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Kills it, and starts it again on what it had on disk, or with nothing.
    pub fn restart(&mut self, forgets: bool) {
        self.kill();
        if forgets {
            self.forget();
        }
        self.start_again();
        self.listens();
    }

    /// Removes what it has on disk.
    pub fn forget(&mut self) {
        fs::remove_dir_all(self.dir.join("store")).expect("its store");
    }

    /// Kills it.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts it, and does not wait until it listens.
    pub fn start_again(&mut self) {
        let mut options = fs::File::options();
        let log = options.create(true).append(true).open(self.dir.join("log"));
        let child = Command::new(&self.program)
            .arg("-c")
            .arg(self.dir.join("server.conf"))
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.expect("our file"))
            .spawn();
        self.child = Some(child.expect("nats-server starts"));
    }

    fn listens(&self) {
        let start = Instant::now();
        while TcpStream::connect(self.address).is_err() {
            assert!(start.elapsed() < PATIENCE, "nats-server does not listen");
            std::thread::yield_now();
        }
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        self.kill();
    }
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
