//! `peerbus-bridge`, which `peerbus bridge` runs.
//!
//! Exit codes: 0 done, 1 failed, 2 usage, 101 a bug.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use peerbus_adapter::credentials::{self, CredentialsError};
use peerbus_adapter::demand::with_named;
use peerbus_adapter::signals::Stop;
use peerbus_adapter::{BusConfig, Flags, Url, stderr};
use peerbus_bridge::nats::{self, NatsServer};
use peerbus_bridge::{BrokerAddress, account, run};
use peerbus_wire::Domain;
use tracing_subscriber::EnvFilter;

/// So much of the log waits for its reader, and so long at the end.
const LOG_BYTES_MAX: usize = 256 * 1_024;
const LOG_PATIENCE: Duration = Duration::from_secs(1);

/// Join this machine's broker to those of other domains over NATS JetStream
#[derive(Debug, Parser)]
#[command(
    name = "peerbus bridge",
    version,
    args_conflicts_with_subcommands = true
)]
struct Line {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    server: NatsServer,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a key for each domain, and their accounts for nats-server to include
    Account(Account),
    /// Make a stream for each domain, and its consumer
    Setup(Setup),
}

#[derive(Debug, Args)]
struct Account {
    /// A domain that gets a key (repeatable); keys that are there are kept
    #[arg(long = "domain", value_name = "NAME", required = true)]
    domains: Vec<Domain>,
    /// Where keys and accounts are written
    #[arg(long, value_name = "DIR", default_value = "peerbus-nats")]
    dir: PathBuf,
}

#[derive(Debug, Args)]
struct Setup {
    #[command(flatten)]
    server: NatsServer,
    /// A domain that gets a stream (repeatable)
    #[arg(long = "domain", value_name = "NAME", required = true)]
    domains: Vec<Domain>,
    /// How many servers of a cluster keep each message
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=5))]
    replicas: u8,
}

fn main() -> ExitCode {
    let line = Line::parse();
    let done = match line.verb {
        Some(Verb::Account(verb)) => make_keys(&verb),
        Some(Verb::Setup(verb)) => set_up(&verb),
        None => bridge(&line.server),
    };
    let code = match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            stderr::write(format!("peerbus bridge: {why}\n").as_bytes());
            ExitCode::FAILURE
        }
    };
    stderr::flush();
    code
}

/// Joins the broker that the environment names.
fn bridge(server: &NatsServer) -> Result<(), String> {
    let filter = EnvFilter::try_from_env("PEERBUS_LOG")
        .unwrap_or_else(|_| EnvFilter::new("info,async_nats=warn"));
    stderr::queue(LOG_BYTES_MAX, LOG_PATIENCE);
    stderr::log(filter);
    let config = BusConfig::resolve(&Flags::default()).map_err(|error| error.to_string())?;
    let sockets = || with_named(&config.sockets).into_iter();
    let socket = || sockets().find(|path| path.exists());
    let url = config.url.clone().or_else(|| socket().map(Url::Unix));
    let broker = BrokerAddress {
        url: url
            .ok_or("no broker is running here: start one with `peerbus serve --domain NAME`")?,
        tls: config.tls,
        token: config
            .token
            .ok_or("set PEERBUS_TOKEN to a token with the right `bridge`")?,
    };
    let allow = match credentials::load(&config.credentials) {
        Ok(found) => found.allow,
        Err(CredentialsError::Missing(_)) => BTreeMap::new(),
        Err(error) => return Err(error.to_string()),
    };
    block_on(async {
        let mut stop = Stop::catch().map_err(|error| error.to_string())?;
        tokio::select! {
            ended = run::run(broker, server, allow) => ended,
            // What was accepted is at the brokers.
            _ = stop.asked() => Ok(()),
        }
    })
}

fn block_on(task: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.map_err(|error| error.to_string())?.block_on(task)
}

fn names(domains: &[Domain]) -> Vec<String> {
    domains.iter().map(Domain::to_string).collect()
}

fn make_keys(verb: &Account) -> Result<(), String> {
    let made = account::write(&verb.dir, &names(&verb.domains))?;
    say(&format!(
        "for nats-server:  include {}, and start it anew: a reload is not enough",
        made.accounts.display()
    ));
    say(&format!(
        "for setup:        --creds {}",
        made.setup.display()
    ));
    for (domain, key) in &made.domains {
        say(&format!("for {domain}: --creds {}", key.display()));
    }
    Ok(())
}

fn set_up(verb: &Setup) -> Result<(), String> {
    let domains = names(&verb.domains);
    block_on(async {
        let client = verb.server.connect(None).await?;
        nats::set_up(&verb.server, &client, &domains, verb.replicas.into()).await
    })?;
    say(&format!(
        "the streams are there, for {}",
        domains.join(", ")
    ));
    Ok(())
}

fn say(text: &str) {
    // Whoever closed stdout does not want to know.
    let _ = writeln!(std::io::stdout(), "{text}");
}
