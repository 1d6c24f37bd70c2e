//! An adapter that an agent starts, where a driver stands above that: the driver is the peer.

use std::io::{Cursor, Result};
use std::os::unix::net::UnixStream as Connected;

use peerbus_adapter::hooks::{AskTools, Introduced, Role, ask_driver};
use peerbus_mcp::{Input, Output};
use peerbus_os::lines::{BoundedLines, NextLine};
use peerbus_os::process;
use peerbus_wire::jsonrpc::{RpcError, RpcMessage, UNKNOWN_METHOD};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::UnixStream;

/// The variable in which a client's children read which process drives it.
pub(crate) const DRIVER_VARIABLE: &str = "PEERBUS_DRIVER";
/// The one in which the server that an agent is told to start reads how its driver knows it.
pub(crate) const TOKEN_VARIABLE: &str = "PEERBUS_RELAY";

/// Longest line of a client that has not introduced itself, in bytes.
const HELLO_MAX: usize = 1 << 20;
/// So far up a driver is looked for.
const GENERATIONS_MAX: usize = 64;

/// The role of an adapter.
pub enum Below {
    /// A peer: no driver stands above it, or one that drives another agent. What its client says is
    /// all to be read here.
    Peer(Input, Output),
    /// A relay of the driver's, until one of its ends was closed.
    Relayed,
    /// Nothing: its agent has the bus tools from the driver, as far as that can be asked.
    Nothing,
}

/// Has an adapter's client served by the driver above, if there is one that takes it for its agent's.
pub async fn below(input: Input, output: Output) -> Below {
    let token = std::env::var(TOKEN_VARIABLE).ok();
    match driver(token.is_some()) {
        Some(driver) => ask(driver, token, input, output).await,
        None => Below::Peer(input, output),
    }
}

/// The driver that stands above this process. Where the system does not tell, one that gave a token.
fn driver(has_token: bool) -> Option<u32> {
    let above: Vec<_> = process::ancestors(std::process::id(), GENERATIONS_MAX).collect();
    let own = std::env::var(DRIVER_VARIABLE).ok();
    // Agents keep variables from their servers, and have them themselves.
    let theirs = || above.iter().find_map(|above| told(above.id));
    let driver = own.or_else(theirs)?.parse().ok()?;
    let is_above = above.iter().any(|above| above.id == driver);
    (is_above || has_token).then_some(driver)
}

/// The variable as a process was started with it.
fn told(process: u32) -> Option<String> {
    let all = process::environment(process).ok()?;
    let all = String::from_utf8_lossy(&all);
    let mut all = all.split('\0').filter_map(|one| one.split_once('='));
    let found = all.find(|(name, _)| *name == DRIVER_VARIABLE);
    found.map(|(_, value)| value.to_owned())
}

async fn ask(driver: u32, token: Option<String>, input: Input, mut output: Output) -> Below {
    let mut lines = BoundedLines::new(input, HELLO_MAX);
    let Some(client) = introduced(&mut lines, &mut output).await else {
        return Below::Nothing;
    };
    let hello = [lines.line(), b"\n"].concat();
    let rest = lines.rest();
    let ask = AskTools { client, token };
    let asked = tokio::task::spawn_blocking(move || ask_driver(driver, &ask)).await;
    match asked.ok().flatten() {
        Some((Role::Relay, driver)) => {
            let ended = relay(driver, &hello, rest, output).await;
            tracing::debug!(?ended, "the relay ends");
            Below::Relayed
        }
        Some((Role::Peer, _)) => Below::Peer(Box::new(Cursor::new(hello).chain(rest)), output),
        Some((Role::Nothing, _)) | None => Below::Nothing,
    }
}

/// Waits for `initialize`, which stays the line that was read, and refuses what is asked before: newer
/// clients ask for what only later versions have. `None`: the client is gone.
async fn introduced(lines: &mut BoundedLines<Input>, output: &mut Output) -> Option<Introduced> {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Hello {
        client_info: Introduced,
    }
    loop {
        let next = lines.next().await;
        let read = RpcMessage::read(lines.line());
        let message = match (next, read) {
            (NextLine::End, _) => return None,
            (NextLine::Line, Ok(message)) => message,
            _ => continue,
        };
        let Some((method, id)) = message.method.zip(message.id) else {
            continue;
        };
        if method == "initialize" {
            let params = message.params.as_deref();
            let hello = params.and_then(|it| serde_json::from_str::<Hello>(it.get()).ok());
            return Some(hello.unwrap_or_default().client_info);
        }
        let why = format!("no method {method} before initialize");
        let refusal = RpcError::new(UNKNOWN_METHOD, why);
        let refusal = RpcMessage::response(id, &Err::<(), _>(refusal)).line();
        output.write_all(refusal.as_bytes()).await.ok()?;
        output.flush().await.ok()?;
    }
}

/// Passes on what both ends say, until one is closed.
async fn relay(
    driver: Connected,
    hello: &[u8],
    mut client: impl AsyncRead + Unpin,
    mut output: Output,
) -> Result<u64> {
    driver.set_nonblocking(true)?;
    let (mut from, mut to) = UnixStream::from_std(driver)?.into_split();
    to.write_all(hello).await?;
    tokio::select! {
        ended = copy(&mut client, &mut to) => ended,
        ended = copy(&mut from, &mut output) => ended,
    }
}
