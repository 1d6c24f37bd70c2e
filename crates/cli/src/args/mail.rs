//! What sends and receives messages.

use std::path::PathBuf;

use peerbus_wire::{GroupName, MessageId, Priority};

use super::values::{SEEN_WITHIN_S, within_ms};
use super::{Connection, Shown, path, seconds};

/// How a BODY is taken, and what it says of its conversation.
#[derive(Debug, clap::Args)]
pub(crate) struct Saying {
    /// Take BODY as text even if it reads as a JSON object or array
    #[arg(long)]
    pub(crate) text: bool,
    /// The conversation it belongs to
    #[arg(long, value_name = "ID", value_parser = message_id)]
    pub(crate) thread: Option<MessageId>,
    /// How soon it wants to be seen: now, next (as if absent) or quiet
    #[arg(long, value_name = "WHEN", value_parser = priority)]
    pub(crate) priority: Option<Priority>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Outgoing {
    /// The message: text, or a JSON object or array; `-` reads it from stdin. One that begins with
    /// a dash stands behind `--`
    pub(crate) body: String,
    /// What stands behind a message without quotes: nothing may
    #[arg(hide = true)]
    pub(crate) more: Vec<String>,
    /// Name to send as; a temporary one otherwise
    #[arg(long, value_name = "FROM")]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) saying: Saying,
    /// Seconds to wait for the broker to accept the message
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = seconds)]
    pub(crate) timeout: f64,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Send {
    /// The peer to send to, or `#GROUP`, in quotes, for every other member of a group
    pub(crate) to: String,
    /// To one member of the group, an idle one first, and on to the next until one sees it
    #[arg(long)]
    pub(crate) one: bool,
    /// The message that this one answers
    #[arg(long, value_name = "ID", value_parser = message_id)]
    pub(crate) reply_to: Option<MessageId>,
    /// Wait until it is seen, at most so long (60); exit code 1 if it is not
    #[arg(long, value_name = "seen[=SECONDS]", value_parser = wait)]
    pub(crate) wait: Option<f64>,
    #[command(flatten)]
    pub(crate) outgoing: Outgoing,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Ask {
    /// The peer to ask, or `#GROUP`, in quotes, of which one member answers
    pub(crate) to: String,
    /// The request: text, or a JSON object or array; `-` reads it from stdin. One that begins with
    /// a dash stands behind `--`
    pub(crate) body: String,
    /// What stands behind a message without quotes: nothing may
    #[arg(hide = true)]
    pub(crate) more: Vec<String>,
    /// Name to ask as; a temporary one otherwise
    #[arg(long, value_name = "FROM")]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) saying: Saying,
    /// The request is owed for so long: 90s, 20m, 2h, at most 7d (as if absent: 1h)
    #[arg(long, value_name = "TIME", value_parser = within_ms)]
    pub(crate) within: Option<u64>,
    /// Do not wait for the result: `peerbus status ID` shows it
    #[arg(long)]
    pub(crate) detach: bool,
    /// Seconds to wait for the result; exit code 1 if there is none
    #[arg(long, value_name = "SECONDS", default_value_t = 300.0, value_parser = seconds)]
    pub(crate) timeout: f64,
    /// Print the result as JSON, as `peerbus recv` does
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Requests {
    #[command(subcommand)]
    pub(crate) verb: Option<RequestsVerb>,
    /// Only that of this id, or those of a peer who asks or is asked
    #[arg(value_name = "ID|NAME")]
    pub(crate) which: Option<String>,
    /// Those that ended, and what came of them
    #[arg(long)]
    pub(crate) done: bool,
    /// With --done: at most so many, the newest
    #[arg(long, value_name = "N", default_value_t = 20, requires = "done")]
    pub(crate) limit: usize,
    /// Show all columns, however narrow the terminal is
    #[arg(long)]
    pub(crate) wide: bool,
    #[command(flatten)]
    pub(crate) shown: Shown,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum RequestsVerb {
    /// Take a request back: nobody owes it any more
    Cancel(Cancel),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Cancel {
    /// The request's id, or a beginning or end of it
    pub(crate) id: String,
    /// Only that of this sender, where several used that id
    #[arg(long, value_name = "FROM")]
    pub(crate) name: Option<String>,
    /// The broker's Unix socket
    #[arg(long, value_name = "PATH", value_parser = path())]
    pub(crate) socket: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Recv {
    /// Name to receive as
    #[arg(long, value_name = "NAME")]
    pub(crate) name: String,
    /// Join this group first, to get from now on what is sent to it
    #[arg(long, value_name = "GROUP", value_parser = peerbus_adapter::groups::read)]
    pub(crate) group: Vec<GroupName>,
    /// Stop after so many messages
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// Receive the mail of an agent's session, too, which does not get it any more then
    #[arg(long)]
    pub(crate) take: bool,
    /// Print each message as a line of JSON, on a terminal too
    #[arg(long)]
    pub(crate) json: bool,
    /// Stop after so many seconds; exit code 1 if --count was not reached
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<f64>,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Held {
    #[command(subcommand)]
    pub(crate) verb: Option<HeldVerb>,
    /// Only mail that waits at this session, or comes from this peer
    pub(crate) name: Option<String>,
    /// Print the result as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum HeldVerb {
    /// List it (as without a word)
    List,
    /// Let the agent have a message
    Release(HeldRelease),
    /// Decline a message: its sender is told
    Refuse(HeldOne),
}

#[derive(Debug, clap::Args)]
pub(crate) struct HeldRelease {
    #[command(flatten)]
    pub(crate) one: HeldOne,
    /// All mail of its sender from now on, too: a rule in `senders` of the credentials, which is shown first
    #[arg(long)]
    pub(crate) always: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct HeldOne {
    /// Its digest, with which `peerbus held` shows it; or its id, or a beginning or end of either, to be
    /// asked or to decline it
    #[arg(value_name = "DIGEST")]
    pub(crate) which: String,
    /// Its sender, where several used that id
    #[arg(long, value_name = "NAME")]
    pub(crate) from: Option<String>,
}

/// A message's id, or a text of that form.
pub(super) fn message_id(text: &str) -> Result<MessageId, String> {
    MessageId::parse(text).map_err(|error| error.to_string())
}

fn priority(text: &str) -> Result<Priority, String> {
    Priority::parse(text).ok_or_else(|| "expected now, next or quiet".into())
}

/// `seen` or `seen=SECONDS`.
fn wait(text: &str) -> Result<f64, String> {
    match text.split_once('=') {
        None if text == "seen" => Ok(SEEN_WITHIN_S),
        Some(("seen", limit)) => seconds(limit),
        _ => Err("expected seen or seen=SECONDS".into()),
    }
}
