//! The adapter for Claude Code: bus tools, ways to wake the session, and evidence that its model
//! got what was shown.
//!
//! `CHANNELS_SCHEMA.md` has the contract with the client as a channel, `docs/CLAUDE_CODE.md` what the
//! other ways are.

pub mod hooks;
mod paths;
mod profile;
mod session;
mod text;
mod transcript;
mod wake_list;

use peerbus_adapter::Bus;
use peerbus_adapter::wake::Path;
use peerbus_mcp::{Desk, Exit, Host, Options, WakePath};
use tokio::io::{AsyncRead, AsyncWrite};

pub use session::{Process, Session, SessionFacts, Surroundings, Token};
pub use wake_list::WakeList;

/// Runs the adapter over standard input and output until its session ends.
///
/// `bus` is connected already or will be: its link must be running, on the same single-threaded
/// runtime. A broker that is away delays nothing here. See [`peerbus_mcp::run`] for the rest.
pub async fn run(bus: Bus, options: Options, around: Surroundings) -> Exit {
    let start = |host, desk| start(around, host, desk);
    peerbus_mcp::run(bus, profile::PROFILE, options, start).await
}

/// [`run`] over any pair of streams, without an eye on signals and the parent process.
pub async fn run_over(
    bus: Bus,
    options: Options,
    around: Surroundings,
    input: impl AsyncRead + Unpin + Send + 'static,
    output: impl AsyncWrite + Unpin + Send,
) -> Exit {
    let start = |host, desk| start(around, host, desk);
    peerbus_mcp::run_over(bus, profile::PROFILE, options, input, output, start).await
}

/// The ways to wake this session, and what runs beside it. Nothing of it outlives the two.
fn start(
    around: Surroundings,
    host: Host,
    desk: Desk,
) -> (Vec<Box<dyn WakePath>>, impl Future<Output = ()>) {
    let allowed = around.wake.clone();
    let hooks = around.hooks.clone();
    let session = Session::new(around);
    // Before the bus is asked for a name.
    session.report(&desk);
    // Best first: the desk asks them in this order, and what waits goes over the first that is
    // there.
    let mut ways: Vec<Box<dyn WakePath>> = Vec::new();
    let receipts = {
        let notes = hooks.as_ref().and_then(hooks::socket_directory);
        let (socket, receipts) = paths::Socket::new(desk.clone(), session.clone(), notes);
        ways.push(Box::new(socket));
        receipts
    };
    let hooks = {
        let (known, of) = (session.clone(), desk.clone());
        let told = move |facts| {
            known.told(facts);
            known.report(&of);
        };
        let rewakes = allowed.allows(Path::Rewake);
        let client = session.client().unwrap_or_default();
        let started = hooks.map(|paths| hooks::start(&paths, client, rewakes, desk.clone(), told));
        let (rewake, serving) = started.unzip();
        if let Some(rewake) = rewake {
            ways.push(Box::new(rewake));
        }
        async {
            if let Some(serving) = serving {
                serving.await;
            }
        }
    };
    let channel = paths::Channel::new(host, desk.clone(), session.clone());
    ways.push(Box::new(channel));
    ways.retain(|way| allowed.allows(way.path()));
    let beside = async move {
        let evidence = transcript::watch(session, desk);
        tokio::join!(evidence, receipts, hooks);
    };
    (ways, beside)
}
