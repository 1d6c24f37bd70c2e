//! `peerbus serve`.

mod on_demand;
mod takeover;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use peerbus_adapter::demand::take_mark_away;
use peerbus_adapter::signals::Stop;
use peerbus_adapter::{Failure, Token, credentials, paths::Paths};
use peerbus_broker::{BrokerOptions, Inviting, Origin, Running, ServerTls, ShutdownReport, start};
use peerbus_core::TokenHash;
use peerbus_core::grant::Grant;
use peerbus_wire::{Domain, TokenName, escape};

use crate::args::{Serve, kept};
use crate::{client, output};

/// Longest text that says who needed a broker, in characters.
const WHO_CHARS: usize = 200;

/// How long connections may take to read what was queued for them when the broker stops.
const DRAIN: Duration = Duration::from_secs(5);

/// How long they may take to read that the broker has failed.
const FAREWELL: Duration = Duration::from_secs(1);

/// Runs the broker until it is told to stop, or, on demand, until nobody needs it.
pub(crate) fn run(verb: Serve) -> Result<(), Failure> {
    // New files are the user's alone, whatever the shell's umask says.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    // Before there are threads that could take these descriptors for free ones.
    let given = sd_listen_fds::get().map_err(Failure::config)?;
    let given = given.into_iter().map(|(_, socket)| socket.into_std());
    let given: Vec<_> = given.collect();
    if verb.on_demand.is_none() {
        return run_in_sight(verb, given);
    }
    if !verb.detached {
        return on_demand::detach();
    }
    let log = Paths::find()?.log();
    let mut starter = on_demand::begin(&log)?;
    let setup = Setup::find(verb, given);
    let served = setup.and_then(|setup| on_runtime(setup, |told| starter.tell(told)));
    if let Err(failure) = &served {
        starter.tell(on_demand::Told::Failed(failure));
    }
    served
}

/// Runs one that somebody, or the service manager, started.
fn run_in_sight(verb: Serve, given: Vec<OwnedFd>) -> Result<(), Failure> {
    let usual = verb.db.is_none() && verb.socket.is_none();
    // Who connects to a socket that was given waits for this process itself.
    let is_given = !given.is_empty();
    let setup = Setup::find(verb, given)?;
    let paths = Paths::find()?;
    if usual && let Err(error) = take_mark_away(&paths.state_dir) {
        tracing::warn!(%error, "the mark of `peerbus stop` stays: sessions that ran before wait");
    }
    // Until this broker serves, nobody starts another one.
    let mut turn = match usual && !is_given {
        true => takeover::begin(&paths),
        false => None,
    };
    on_runtime(setup, |_| drop(turn.take()))
}

/// Serves; says when that begins.
fn on_runtime(setup: Setup, mut told: impl FnMut(on_demand::Told<'_>)) -> Result<(), Failure> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = client::runtime_of(processors.min(4))?;
    runtime.block_on(serve(setup, &mut told))
}

async fn serve(setup: Setup, told: &mut impl FnMut(on_demand::Told<'_>)) -> Result<(), Failure> {
    // From here on a signal ends the broker in good order, also while it starts.
    let mut stop = Stop::catch().map_err(Failure::failed)?;
    let scheme = match setup.options.tls {
        Some(_) => "wss",
        None => "ws",
    };
    let domain = setup.options.domain.clone();
    let mut broker = match start(setup.options).await {
        Ok(broker) => broker,
        Err(error) => {
            told(on_demand::Told::of(&error));
            return Err(Failure::config(error));
        }
    };
    announce(&broker, scheme, domain.as_ref());
    announce_files(&setup.db, setup.credentials.as_ref());
    let warning = setup
        .credentials
        .and_then(|kept| out_of_reach(&kept, broker.unadmitted()));
    if let Some(warning) = &warning {
        output::say(&format!("warning: {warning}"));
    }
    told(on_demand::Told::Ready(warning.as_deref()));
    notify(sd_notify::NotifyState::Ready);
    let life = broker.life();
    let idle = async {
        match setup.idle_end {
            Some(limit) => life.idle(limit).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = stop.asked() => {}
        () = life.asked() => output::say("asked to stop over the Unix socket"),
        () = idle => output::say("nobody has been connected for a while"),
        failure = broker.failed() => {
            // So that every client sees the reason for which it is closed.
            broker.shutdown(FAREWELL).await;
            return Err(Failure::failed(failure));
        }
    }
    notify(sd_notify::NotifyState::Stopping);
    output::say("stopping");
    stopped(&broker.shutdown(DRAIN).await)
}

fn stopped(report: &ShutdownReport) -> Result<(), Failure> {
    let cut = report.cut + report.open;
    if cut > 0 {
        let connections = output::plural(cut as u64, "connection");
        output::say(&format!(
            "{connections} did not read what was queued in time; cut"
        ));
    }
    match &report.engine {
        Some(Ok(())) => {
            output::say("stopped; everything accepted is on disk");
            Ok(())
        }
        Some(Err(failure)) => Err(Failure::failed(failure)),
        None => Err(Failure::failed("the engine did not stop in time")),
    }
}

struct Setup {
    options: BrokerOptions,
    db: PathBuf,
    /// The credentials file, when the token comes from it.
    credentials: Option<Kept>,
    /// End after so long without a connection.
    idle_end: Option<Duration>,
}

impl Setup {
    fn find(verb: Serve, given: Vec<OwnedFd>) -> Result<Self, Failure> {
        let paths = Paths::find()?;
        let other_sockets = paths.other_sockets();
        let file = verb.credentials.unwrap_or(paths.credentials.clone());
        let usual = file == paths.credentials;
        let (grants, mut credentials) = tokens(file, usual)?;
        let domain = credentials.as_mut().and_then(|kept| kept.domain.take());
        // Who shows no certificate is let in nowhere.
        let kept_for = credentials.as_ref().filter(|_| verb.client_ca.is_none());
        let inviting = kept_for.map(|kept| inviting(kept, &paths));
        let listens = inviting.as_ref().is_some_and(|it| it.listen.is_some());
        let history = credentials.as_mut().and_then(|kept| kept.history.take());
        let history = verb.history.map_or_else(
            || kept(&history.unwrap_or_default()).map_err(Failure::config),
            Ok,
        )?;
        if std::env::var_os("PEERBUS_HMAC_SECRET").is_some_and(|secret| !secret.is_empty()) {
            output::say(
                "PEERBUS_HMAC_SECRET is set and ignored: the broker has no use for the secret",
            );
        }
        let db = verb.db.unwrap_or(paths.database);
        let mut options = BrokerOptions::new(db.clone(), Vec::new());
        options.grants = grants;
        options.tokens_file = Some(verb.tokens.unwrap_or(paths.tokens));
        options.inviting = inviting;
        options.listen = vec![verb.listen];
        options.history = Some(history);
        options.domain = verb.domain.or(domain);
        options.insecure = verb.insecure;
        options.tls = verb
            .tls_cert
            .zip(verb.tls_key)
            .map(|(cert, key)| ServerTls {
                cert,
                key,
                client_ca: verb.client_ca,
            });
        options.log_lost = Some(peerbus_adapter::stderr::lost);
        if verb.socket.is_none() {
            options.unix_else = other_sockets;
        }
        options.unix = Some(verb.socket.unwrap_or(paths.socket));
        options.tcp_optional = verb.on_demand.is_some();
        options.origin = origin(verb.on_demand.as_ref(), &given);
        options.given = given;
        // Other machines start none.
        let idle_end = verb.on_demand.is_some() && !listens;
        Ok(Self {
            options,
            db,
            credentials,
            idle_end: idle_end.then(|| Duration::from_secs_f64(verb.idle_end)),
        })
    }
}

/// The way in for machines that are invited.
fn inviting(kept: &Kept, paths: &Paths) -> Inviting {
    let files = ServerTls {
        cert: paths.config_dir.join("broker.crt"),
        key: paths.config_dir.join("broker.key"),
        client_ca: None,
    };
    let file = kept.file.clone();
    let secret = move || credentials::secret_text(&file).map_err(|error| error.to_string());
    Inviting {
        file: paths
            .config_dir
            .join(peerbus_broker::invitations::INVITATIONS),
        secret: Box::new(secret),
        listen: kept.listen.map(|at| (at, files)),
    }
}

/// How this broker came to be.
fn origin(on_demand: Option<&String>, given: &[OwnedFd]) -> Origin {
    match on_demand {
        Some(who) => Origin::Demand(escape(who, WHO_CHARS)),
        None if !given.is_empty() => Origin::Activated,
        // Whoever is told when it is ready has started it.
        None if std::env::var_os("NOTIFY_SOCKET").is_some() => Origin::Service,
        None => Origin::Hand,
    }
}

/// Bytes of a token that is too short: 16 random hexadecimal digits are 64 bits, which nobody guesses
/// at the rate at which wrong tokens are answered.
const GUESSED_BYTES: usize = 16;

struct Kept {
    file: PathBuf,
    /// The domain that it gives the broker.
    domain: Option<Domain>,
    /// Where it listens for machines that were invited.
    listen: Option<SocketAddr>,
    /// How much that broker keeps of what was read.
    history: Option<String>,
    /// It was made for this broker.
    made: bool,
    /// It is where adapters and commands look.
    usual: bool,
}

/// The tokens of `PEERBUS_TOKENS`; without it, of the credentials file, which is made if need be, and may
/// be the `usual` one.
fn tokens(file: PathBuf, usual: bool) -> Result<(Vec<Grant>, Option<Kept>), Failure> {
    let list = match std::env::var("PEERBUS_TOKENS") {
        Ok(list) => Some(list),
        Err(std::env::VarError::NotPresent) => None,
        Err(error) => return Err(Failure::config(format!("PEERBUS_TOKENS: {error}"))),
    };
    let given = list.iter().flat_map(|list| list.split(','));
    let given: Vec<_> = given.map(str::trim).filter(|t| !t.is_empty()).collect();
    if given.is_empty() && list.is_some() {
        return Err(Failure::config(
            "PEERBUS_TOKENS is set and holds no token; give a comma-separated list, or unset it",
        ));
    }
    if given.is_empty() {
        let (credentials, made) = credentials::load_or_create(&file).map_err(Failure::config)?;
        if made {
            output::say(&format!("made new credentials in {}", file.display()));
        }
        let name = TokenName::parse("credentials").into_iter();
        let grant =
            name.map(|name| Grant::usual(name, TokenHash::of(&credentials.token)).of_operator());
        let kept = Kept {
            file,
            domain: credentials.domain,
            listen: credentials.listen,
            history: credentials.history,
            made,
            usual,
        };
        return Ok((grant.collect(), Some(kept)));
    }
    if let Some(short) = given.iter().map(|token| token.len()).min()
        && short < GUESSED_BYTES
    {
        output::say(&format!(
            "warning: PEERBUS_TOKENS has a token of {short} bytes, which can be guessed: use long \
             random ones, as `openssl rand -hex 32` gives"
        ));
    }
    let hash = |text: &str| {
        let token = Token::parse(text).ok_or_else(|| {
            Failure::config("PEERBUS_TOKENS holds a token of more than 512 bytes")
        })?;
        Ok(TokenHash::of(&token))
    };
    let tokens: Result<_, Failure> = given.into_iter().map(hash).collect();
    let grants = Grant::numbered("env", tokens?).into_iter();
    Ok((grants.map(Grant::of_operator).collect(), None))
}

fn announce(broker: &Running, scheme: &str, domain: Option<&Domain>) {
    for address in broker.addresses() {
        output::say(&format!("listening on {scheme}://{address}"));
        if scheme == "ws" && !address.ip().to_canonical().is_loopback() {
            output::say(
                "warning: other machines can reach this address, and nothing there is encrypted: \
                 tokens and messages can be read on the way, as --insecure allows",
            );
        }
    }
    match broker.invited() {
        // One of its usual addresses.
        Some(Ok(address)) if !broker.addresses().contains(&address) => output::say(&format!(
            "listening on wss://{address} for machines that were invited"
        )),
        Some(Err(why)) => output::say(&format!(
            "warning: machines that were invited reach this broker nowhere: {why}"
        )),
        _ => {}
    }
    for why in broker.left_out() {
        output::say(&format!(
            "warning: {why}; sessions of this user use the Unix socket, and go on"
        ));
    }
    if let Some(path) = broker.unix_path() {
        output::say(&format!("listening on unix:{}", path.display()));
    }
    if let Some(domain) = domain {
        output::say(&format!(
            "domain {domain}: for others a peer here is NAME@{domain}"
        ));
    }
}

fn announce_files(db: &Path, credentials: Option<&Kept>) {
    output::say(&format!("state in {}", db.display()));
    let Some(Kept { file, usual, .. }) = credentials else {
        return output::say("tokens from PEERBUS_TOKENS");
    };
    let who = match usual {
        true => "adapters and commands of this user find them",
        false => "adapters and commands take them with --credentials FILE",
    };
    output::say(&format!(
        "credentials in {} (mode 0600; {who})",
        file.display()
    ));
}

/// What the database has of another token than that of credentials that were just made.
fn out_of_reach(kept: &Kept, names: usize) -> Option<String> {
    (kept.made && names > 0).then(|| {
        let (file, names) = (kept.file.display(), output::plural(names as u64, "name"));
        format!(
            "the credentials in {file} are new, and the database has {names} of another token: \
             with these nobody can use them, or read the mail for them; if you have the old \
             file, `peerbus stop`, put it there, and start the broker again"
        )
    })
}

/// Tells systemd, where there is one.
fn notify(state: sd_notify::NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "systemd was not notified");
    }
}
