//! The life of an adapter.

use peerbus_adapter::Bus;
use peerbus_adapter::mailbox::{AgentLink, Mailbox};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch as watch_channel;

use crate::lifecycle::{Exit, LAST_ANSWERS, watch};
use crate::options::AdapterOptions;
use crate::profile::Profile;
use crate::rpc::{self, Calls, Host, Input, Output};
use crate::server::Handler;
use crate::server::Session;

/// Serves MCP over [`stdio`](crate::stdio) until the session ends: the client closes its side,
/// `SIGINT`, `SIGTERM` or `SIGHUP` comes, or the parent process is gone. Then says goodbye to the broker.
/// Takes less than 100 ms from the end of the session.
///
/// `start` is told the client and the session's mailbox. It gives what reaches the agent, as soon as
/// that is known: [`Host::client`] says who it is.
///
/// Must run on a single-threaded runtime, and the process must be ended by `exit`: where standard
/// input is neither a pipe nor a socket, a thread stays in `read`.
pub async fn run<A>(
    bus: Bus,
    profile: Profile,
    options: AdapterOptions,
    (input, output): (Input, Output),
    start: impl FnOnce(Host, Mailbox) -> A,
) -> Exit
where
    A: Future<Output = AgentLink>,
{
    let ended = watch();
    tokio::select! {
        exit = run_over(bus.clone(), profile, options, input, output, start) => exit,
        exit = ended => {
            bus.close().await;
            exit
        }
    }
}

/// [`run`] over any pair of streams, without an eye on signals and the parent process.
pub async fn run_over<A>(
    bus: Bus,
    profile: Profile,
    options: AdapterOptions,
    input: impl AsyncRead + Unpin + Send + 'static,
    output: impl AsyncWrite + Unpin + Send,
    start: impl FnOnce(Host, Mailbox) -> A,
) -> Exit
where
    A: Future<Output = AgentLink>,
{
    let session = Session::new(bus.clone(), profile, options);
    let mailbox = session.mailbox.clone();
    let (host, calls) = (Host::default(), Calls::default());
    let handler = Handler {
        session,
        host: host.clone(),
        calls: calls.clone(),
    };
    let agent = start(host.clone(), mailbox.clone());
    let (closed, mut closing) = watch_channel::channel(false);
    let background = async {
        // Requests that wait by now are read in the first round and answered in the second, before the session
        // is listed and looked at.
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        mailbox.serve(host.ready(), agent).await;
        std::future::pending::<Exit>().await
    };
    // Answers under way get a moment after the client has closed its end.
    let last = async {
        if closing.wait_for(|closed| *closed).await.is_err() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(LAST_ANSWERS).await;
        Exit::InputClosed
    };
    let exit = tokio::select! {
        biased;
        exit = rpc::serve(handler, (host.clone(), calls), input, output, closed) => exit,
        exit = last => exit,
        exit = background => exit,
    };
    tracing::debug!(?exit, "the session ended");
    bus.close().await;
    exit
}
