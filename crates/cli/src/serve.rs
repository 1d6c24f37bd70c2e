//! `peerbus serve`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use peerbus_adapter::signals::Stop;
use peerbus_adapter::{Token, credentials, paths::Paths};
use peerbus_broker::{Options, Report, Running, TlsFiles, start};
use peerbus_core::TokenHash;
use peerbus_core::grant::Grant;
use peerbus_wire::TokenName;

use crate::args::Serve;
use crate::failure::Failure;
use crate::output;

/// How long connections may take to read what was queued for them when the broker stops.
const DRAIN: Duration = Duration::from_secs(5);

/// How long they may take to read that the broker has failed.
const FAREWELL: Duration = Duration::from_secs(1);

/// Runs the broker until it is told to stop.
pub(crate) fn run(verb: Serve) -> Result<(), Failure> {
    restrict_new_files();
    let setup = Setup::find(verb)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(
            std::thread::available_parallelism()
                .map_or(1, usize::from)
                .min(4),
        )
        .enable_all()
        .build()
        .map_err(Failure::failed)?;
    runtime.block_on(serve(setup))
}

async fn serve(setup: Setup) -> Result<(), Failure> {
    // From here on a signal ends the broker in good order, also while it starts.
    let mut stop = Stop::catch().map_err(Failure::failed)?;
    let scheme = match setup.options.tls {
        Some(_) => "wss",
        None => "ws",
    };
    let mut broker = start(setup.options).await.map_err(Failure::config)?;
    announce(&broker, scheme, &setup.db, setup.credentials.as_deref());
    notify(sd_notify::NotifyState::Ready);
    tokio::select! {
        _ = stop.asked() => {}
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

/// Says how the broker ended.
fn stopped(report: &Report) -> Result<(), Failure> {
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

/// What the broker runs on.
struct Setup {
    options: Options,
    db: PathBuf,
    /// The credentials file, when the token comes from it.
    credentials: Option<PathBuf>,
}

impl Setup {
    fn find(verb: Serve) -> Result<Self, Failure> {
        let paths = Paths::find()?;
        let (tokens, credentials) = tokens(verb.credentials.unwrap_or(paths.credentials))?;
        if std::env::var_os("PEERBUS_HMAC_SECRET").is_some_and(|secret| !secret.is_empty()) {
            output::say(
                "PEERBUS_HMAC_SECRET is set and ignored: the broker has no use for the secret",
            );
        }
        let db = verb.db.unwrap_or(paths.database);
        let mut options = Options::new(db.clone(), Vec::new());
        options.grants = match &credentials {
            Some(_) => named("credentials", tokens),
            None => Grant::numbered("env", tokens),
        };
        options.tokens_file = Some(verb.tokens.unwrap_or(paths.tokens));
        options.listen = vec![verb.listen];
        options.history = Some(verb.history);
        options.insecure = verb.insecure;
        options.tls = verb.tls_cert.zip(verb.tls_key).map(|(cert, key)| TlsFiles {
            cert,
            key,
            client_ca: verb.client_ca,
        });
        options.log_lost = Some(crate::stderr::lost);
        if cfg!(unix) {
            options.unix = Some(verb.socket.unwrap_or(paths.socket));
        }
        Ok(Self {
            options,
            db,
            credentials,
        })
    }
}

fn named(name: &str, tokens: Vec<TokenHash>) -> Vec<Grant> {
    let name = TokenName::parse(name);
    let grants = tokens
        .into_iter()
        .filter_map(|token| Some(Grant::usual(name.clone()?, token)));
    grants.collect()
}

/// Bytes of a token that is too short: 16 random hexadecimal digits are 64 bits, which nobody guesses
/// at the rate at which wrong tokens are answered.
const GUESSED_BYTES: usize = 16;

/// Hashes of the tokens of `PEERBUS_TOKENS`; without it, of the credentials file, which is made if
/// need be.
fn tokens(file: PathBuf) -> Result<(Vec<TokenHash>, Option<PathBuf>), Failure> {
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
        return Ok((vec![TokenHash::of(&credentials.token)], Some(file)));
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
    Ok((
        given
            .into_iter()
            .map(hash)
            .collect::<Result<_, Failure>>()?,
        None,
    ))
}

/// Says where everything is.
fn announce(broker: &Running, scheme: &str, db: &Path, credentials: Option<&Path>) {
    for address in broker.addresses() {
        output::say(&format!("listening on {scheme}://{address}"));
        if scheme == "ws" && !address.ip().to_canonical().is_loopback() {
            output::say(
                "warning: other machines can reach this address, and nothing there is encrypted: \
                 tokens and messages can be read on the way, as --insecure allows",
            );
        }
    }
    if let Some(path) = broker.unix_path() {
        output::say(&format!("listening on unix:{}", path.display()));
    }
    output::say(&format!("state in {}", db.display()));
    match credentials {
        Some(file) => output::say(&format!(
            "credentials in {} (mode 0600; adapters and commands of this user find them)",
            file.display()
        )),
        None => output::say("tokens from PEERBUS_TOKENS"),
    }
}

/// Tells systemd, where there is one.
fn notify(state: sd_notify::NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "systemd was not notified");
    }
}

/// New files are the user's alone, whatever the shell's umask says.
fn restrict_new_files() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
}
