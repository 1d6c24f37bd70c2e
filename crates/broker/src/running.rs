//! Starting a broker, and its end.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use peerbus_core::broker::{Broker, BrokerConfig, BrokerInput};
use peerbus_core::grant::Grant;
use peerbus_core::store::Store;
use peerbus_store::{OpenError, SqliteStore};
use peerbus_wire::CloseReason;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsAcceptor;

use crate::clock::Clock;
use crate::control;
use crate::engine::Engine;
use crate::engine_input::{Content, engine_channel};
use crate::http;
use crate::invitations::{Invited, Reached};
use crate::life;
use crate::listener::{Acceptor, Bound, Places, Site, check_loopback, listen_at, raise_file_limit};
use crate::options::{BrokerOptions, BrokerStartError, HistoryLimits};
use crate::shared::{Phase, Shared};
use crate::tls;
use crate::tokens::TokensWatch;

/// Open files that are not connections: the database, the listeners, the runtime, HTTP requests.
const FILES_SPARE: u64 = 320;

/// Time between two looks at the tokens file.
const LOOK: Duration = Duration::from_millis(500);

/// A broker that runs. Dropping it stops it too, without waiting for anything; what it had
/// accepted is on disk all the same.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    left_out: Vec<BrokerStartError>,
    unix_path: Option<PathBuf>,
    servers: JoinSet<()>,
    stop_listening: watch::Sender<bool>,
    engine: EngineThread,
}

/// Tells when a broker is no longer wanted.
#[derive(Debug, Clone)]
pub struct LifeWatch(Arc<Shared>);

impl LifeWatch {
    /// Waits until somebody asks for the end over the Unix socket.
    pub async fn asked(&self) {
        self.0.life.asked.notified().await;
    }

    /// Waits until nobody was connected for so long.
    pub async fn idle(&self, limit: Duration) {
        control::idle(&self.0, limit).await;
    }
}

#[derive(Debug)]
struct EngineThread {
    ended: oneshot::Receiver<Result<(), EngineEnd>>,
    outcome: Option<Result<(), EngineEnd>>,
    _thread: JoinHandle<()>,
}

/// Why a running broker ended by itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineEnd {
    /// Storage failed, and how. Start again once the disk is well.
    #[error("{0}; the broker stopped")]
    Storage(#[from] peerbus_core::store::StoreError),
    /// The engine's thread panicked.
    #[error("the engine stopped by a bug (see the panic message above)")]
    Panicked,
}

/// How a shutdown went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShutdownReport {
    /// Connections that did not take what was queued for them in time.
    pub cut: usize,
    /// Connections that were still open when time was up.
    pub open: usize,
    /// Whether the engine has stopped and the database is closed, and how.
    pub engine: Option<Result<(), EngineEnd>>,
}

/// Starts a broker: returns once it is ready for connections.
///
/// Raises the process' soft limit of open files to the hard one. Needs a tokio runtime with I/O
/// and time.
///
/// # Errors
///
/// When an address, the Unix socket, a file for TLS or the database cannot be used, or other machines
/// could reach an address without TLS. Nothing is left running.
pub async fn start(mut options: BrokerOptions) -> Result<Running, BrokerStartError> {
    let (tokens, grants) = find_tokens(&options)?;
    if grants.is_empty() {
        return Err(BrokerStartError::NoTokens);
    }
    if options.listen.is_empty() && options.unix.is_none() && options.given.is_empty() {
        return Err(BrokerStartError::NoAddress);
    }
    let tls = options.tls.as_ref().map(tls::acceptor).transpose();
    let tls = tls.map_err(BrokerStartError::Tls)?;
    let invited = options.inviting.as_mut().and_then(|it| it.listen.take());
    let loopback_only = tls.is_none() && !options.insecure;
    if loopback_only {
        check_loopback(&options.listen)?;
    }
    let mut places = Places {
        listen: options.listen.clone(),
        unix: options
            .unix
            .iter()
            .chain(&options.unix_else)
            .cloned()
            .collect(),
        given: std::mem::take(&mut options.given),
        tcp_optional: options.tcp_optional,
        loopback_only,
        invited: None,
        tls,
    };
    let files = invited.as_ref().map(|(_, files)| files);
    let files = files.or(options.tls.as_ref()).cloned();
    // The database comes first: its lock says which of two brokers may touch the socket's file, and
    // a second broker hears of the first rather than of a port that is taken.
    let (shared, mut engine) = start_engine(options, tokens, grants).await?;
    // The lock is for the certificate, too.
    places.invited = invited.map(|(at, files)| Ok((at, tls::own_acceptor(&files)?)));
    let listening = match listen_at(&mut places) {
        Ok(listening) => listening,
        Err(error) => {
            let drain = Duration::ZERO;
            let _ended = shared.engine.send_now(Content::Stop { drain });
            engine.ended().await;
            return Err(error);
        }
    };
    if let Some(path) = &listening.unix {
        shared.name_socket(path);
    }
    if let Some(reached) =
        files.and_then(|files| Reached::of(listening.invited, &listening.addresses, &files))
    {
        let _only = shared.reached.set(reached);
    }
    let (stop_listening, _) = watch::channel(false);
    let mut servers = serve(listening.bound, &shared, &stop_listening);
    servers.spawn(watch_tokens(
        Arc::clone(&shared),
        stop_listening.subscribe(),
    ));
    Ok(Running {
        shared,
        addresses: listening.addresses,
        left_out: listening.left_out,
        unix_path: listening.unix,
        servers,
        stop_listening,
        engine,
    })
}

/// What admits connections, and the file that may change that.
fn find_tokens(
    options: &BrokerOptions,
) -> Result<(Option<TokensWatch>, Vec<Grant>), BrokerStartError> {
    let base = options.grants.clone();
    let Some(path) = options.tokens_file.clone() else {
        return Ok((None, base));
    };
    let (watch, grants) = TokensWatch::new(path, base).map_err(BrokerStartError::Tokens)?;
    Ok((Some(watch), grants))
}

/// Looks at the tokens file now and then. One that is wrong changes nothing.
async fn watch_tokens(shared: Arc<Shared>, mut stopped: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        let looking = Arc::clone(&shared);
        // A file system that hangs holds up this task alone.
        let looked = tokio::task::spawn_blocking(move || looking.tokens.as_ref()?.changed()).await;
        match looked {
            Ok(Some(Ok(grants))) => {
                tracing::info!(tokens = grants.len(), "tokens read again");
                let grants = Content::Input(BrokerInput::Grants(grants));
                if shared.engine.send_now(grants).is_err() {
                    return;
                }
            }
            Ok(Some(Err(error))) => {
                tracing::warn!("{error}; the tokens stay as they are until that is mended");
            }
            _ => {}
        }
    }
}

fn serve(
    bound: Vec<(Bound, Site, Option<TlsAcceptor>)>,
    shared: &Arc<Shared>,
    stop_listening: &watch::Sender<bool>,
) -> JoinSet<()> {
    let mut servers = JoinSet::new();
    let sites: Vec<_> = bound.iter().map(|(_, site, _)| *site).collect();
    let bound = bound.into_iter().map(|(bound, _, tls)| (bound, tls));
    let acceptors = Acceptor::all(bound, shared);
    for (acceptor, site) in acceptors.zip(sites) {
        let service = http::router(Arc::clone(shared), site)
            .into_make_service_with_connect_info::<crate::listener::Via>();
        let mut stopped = stop_listening.subscribe();
        let stop = async move {
            // An error means that the broker was dropped.
            let _dropped = stopped.wait_for(|stop| *stop).await;
        };
        let server = axum::serve(acceptor, service).with_graceful_shutdown(stop);
        servers.spawn(async move {
            // Never fails: the acceptor retries.
            let _never = server.await;
        });
    }
    servers
}

/// Opens the database on the engine's thread and lets the engine run there.
async fn start_engine(
    options: BrokerOptions,
    tokens: Option<TokensWatch>,
    grants: Vec<Grant>,
) -> Result<(Arc<Shared>, EngineThread), BrokerStartError> {
    let (ready, is_ready) = oneshot::channel();
    let (end, ended) = oneshot::channel();
    let thread = std::thread::Builder::new()
        .name("peerbus-engine".into())
        .spawn(move || {
            let (engine, shared) = match open_engine(options, tokens, grants) {
                Ok(opened) => opened,
                Err(error) => {
                    let _abandoned = ready.send(Err(error));
                    return;
                }
            };
            if ready.send(Ok(Arc::clone(&shared))).is_err() {
                return;
            }
            let watch = PanicWatch { shared };
            let outcome = engine.run().map_err(EngineEnd::Storage);
            drop(watch);
            if let Err(failure) = &outcome {
                tracing::error!(%failure, "engine failed");
            }
            let _abandoned = end.send(outcome);
        })
        .map_err(BrokerStartError::Thread)?;
    match is_ready.await {
        Ok(Ok(shared)) => Ok((
            shared,
            EngineThread {
                ended,
                outcome: None,
                _thread: thread,
            },
        )),
        Ok(Err(error)) => Err(error),
        Err(_panicked) => {
            let source = std::io::Error::other("it panicked while it read the database");
            Err(BrokerStartError::Thread(source))
        }
    }
}

fn open_engine(
    options: BrokerOptions,
    watched: Option<TokensWatch>,
    grants: Vec<Grant>,
) -> Result<(Engine, Arc<Shared>), BrokerStartError> {
    let BrokerOptions {
        db,
        times,
        log_lost,
        history,
        tune,
        origin,
        domain,
        inviting,
        ..
    } = options;
    let failed = |reason: String| BrokerStartError::Database(db.clone(), reason);
    let mut store = SqliteStore::open(&db).map_err(|error| match &error {
        OpenError::Locked { .. } => BrokerStartError::InUse(error.to_string()),
        _ => failed(error.to_string()),
    })?;
    let mut config = BrokerConfig::new(Vec::new(), store.audit_key().clone());
    config.grants = grants;
    config.epoch = store.witness().life();
    config.domain = domain;
    if let Some(HistoryLimits { keep, bytes }) = history {
        config.history_ms = peerbus_os::clock::millis(keep);
        config.history_bytes = bytes;
    }
    if let Some(tune) = tune {
        tune(&mut config);
    }
    if let Some(files) = raise_file_limit() {
        let room = usize::try_from(files - FILES_SPARE.min(files / 2)).unwrap_or(usize::MAX);
        if room < config.connections_max {
            tracing::warn!(
                "the hard limit of open files is {files} (`ulimit -Hn`): at most {room} connections \
                 are taken at a time"
            );
            config.connections_max = room.max(1);
        }
    }
    let loaded = store.load().map_err(|error| failed(error.to_string()))?;
    let unadmitted = life::unadmitted(&loaded.peers, &config.grants);
    let clock = Clock::new();
    let (engine, inputs) = engine_channel();
    let mut shared = Shared::new(engine, clock, times, config.connections_max);
    shared.log_lost = log_lost;
    shared.invited = Invited::open(inviting, watched.as_ref()).map(Arc::new);
    shared.tokens = watched;
    shared.life.origin = origin;
    shared.life.unadmitted = unadmitted;
    shared.has_domain = config.domain.is_some();
    shared.witness = Some(store.witness().clone());
    let shared = Arc::new(shared);
    #[cfg_attr(
        not(feature = "mutations"),
        expect(unused_mut, reason = "to be broken")
    )]
    let mut broker = Broker::new(config, loaded, clock.now());
    #[cfg(feature = "mutations")]
    break_a_rule(&mut broker);
    Ok((
        Engine::new(broker, store, inputs, Arc::clone(&shared)),
        shared,
    ))
}

/// Has the broker break the rule that the environment names.
#[cfg(feature = "mutations")]
fn break_a_rule(broker: &mut Broker) {
    use peerbus_core::broker::BrokerMutation;
    match std::env::var("PEERBUS_BROKEN").as_deref() {
        Ok("receipt-before-commit") => broker.mutate(BrokerMutation::ReleaseEarly),
        Ok("lost-requeue") => broker.mutate(BrokerMutation::ForgetOnClose),
        _ => {}
    }
}

/// Closes every connection should the engine's thread unwind. What ends the process then is up to
/// the host.
struct PanicWatch {
    shared: Arc<Shared>,
}

impl Drop for PanicWatch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.health.set_phase(Phase::Failed);
            let drain = self.shared.times.drain_max;
            let reason = CloseReason::GoingAway;
            self.shared.table.close_all(&reason, drain);
        }
    }
}

impl EngineThread {
    async fn ended(&mut self) -> &Result<(), EngineEnd> {
        if self.outcome.is_none() {
            let outcome = (&mut self.ended).await.unwrap_or(Err(EngineEnd::Panicked));
            self.outcome = Some(outcome);
        }
        self.outcome.get_or_insert(Err(EngineEnd::Panicked))
    }
}

impl Running {
    /// The TCP addresses that are listened on, with their real ports.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The path of the Unix socket.
    #[must_use]
    pub fn unix_path(&self) -> Option<&Path> {
        self.unix_path.as_deref()
    }

    /// TCP addresses that are not listened on because they cannot be, if that was allowed.
    #[must_use]
    pub fn left_out(&self) -> &[BrokerStartError] {
        &self.left_out
    }

    /// How many names its database had, when it started, of tokens that it did not admit.
    #[must_use]
    pub fn unadmitted(&self) -> usize {
        self.shared.life.unadmitted
    }

    /// Where machines that were invited connect, or why they cannot; `None`: nowhere.
    #[must_use]
    pub fn invited(&self) -> Option<Result<SocketAddr, &str>> {
        let reached = self.shared.reached.get()?.as_ref();
        Some(reached.map(|it| it.address).map_err(String::as_str))
    }

    /// What may end it in good order.
    #[must_use]
    pub fn life(&self) -> LifeWatch {
        LifeWatch(Arc::clone(&self.shared))
    }

    /// Waits until the broker fails, which a healthy one never does. Its clients have been told;
    /// call [`Running::shutdown`] next.
    pub async fn failed(&mut self) -> EngineEnd {
        match self.engine.ended().await {
            Err(failure) => failure.clone(),
            // It was not told to stop.
            Ok(()) => EngineEnd::Panicked,
        }
    }

    /// Stops accepting, handles and commits what has arrived, sends every client what is queued
    /// for it and a close frame, and closes the database; all in at most about `drain` plus the
    /// closing handshake.
    pub async fn shutdown(mut self, drain: Duration) -> ShutdownReport {
        self.stop_listening.send_replace(true);
        let close_max = self.shared.times.close_max;
        let deadline = Instant::now() + drain + close_max + close_max;
        // An engine that has failed has closed every connection already.
        let _failed = self.shared.engine.send_now(Content::Stop { drain });
        let engine = timeout_at(deadline, self.engine.ended())
            .await
            .ok()
            .cloned();
        let places = u32::try_from(self.shared.places.max).unwrap_or(u32::MAX);
        let closed = self.shared.places.all.acquire_many(places);
        drop(timeout_at(deadline, closed).await);
        let _served = timeout_at(deadline, async {
            while self.servers.join_next().await.is_some() {}
        })
        .await;
        ShutdownReport {
            cut: self.shared.cut.load(Ordering::Relaxed),
            open: self.shared.connections(),
            engine,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let drain = Duration::ZERO;
        // After a shutdown, or a failure, nobody is there to be told.
        let _stopped = self.shared.engine.send_now(Content::Stop { drain });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Times;
    use crate::places::StrangersPlace;

    #[test]
    fn an_engine_that_panics_closes_its_connections_and_blames_no_disk() {
        let (engine, _inputs) = engine_channel();
        let shared = Arc::new(Shared::new(engine, Clock::new(), Times::default(), 8));
        let (link, _queue) = shared.table.open(0, StrangersPlace::default());
        let watch = PanicWatch {
            shared: Arc::clone(&shared),
        };
        let thread = std::thread::spawn(move || {
            let _watch = watch;
            panic!("a bug");
        });
        thread.join().unwrap_err();
        assert_eq!(link.closing().unwrap().reason, CloseReason::GoingAway);
        assert_eq!(shared.health.phase(), Phase::Failed);
    }
}
