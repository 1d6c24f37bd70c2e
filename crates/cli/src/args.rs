//! The command line.

mod adapter;
mod help;
mod history;
mod install;
mod invite;
mod mail;
mod mcp;
mod names;
mod run;
mod session;
mod token;
mod values;
mod web;

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use peerbus_adapter::Flags;
use peerbus_adapter::demand::BEGINS;

use crate::output;

pub(crate) use self::adapter::{Adapter, AdapterKind};
pub(crate) use self::help::{BRIDGE, bridge_program, command};
pub(crate) use self::history::{History, HistoryVerb, Inbox, Shown, Tail, kept};
pub(crate) use self::install::{Files, Install, Uninstall};
pub(crate) use self::invite::{Invite, InviteVerb, Join};
pub(crate) use self::mail::{
    Ask, Cancel, Held, HeldOne, HeldRelease, HeldVerb, Outgoing, Recv, Requests, RequestsVerb,
    Saying, Send,
};
pub(crate) use self::mcp::{Mcp, McpList, McpShare, McpUse};
pub(crate) use self::names::Names;
pub(crate) use self::run::{Acp, Run, Transport};
pub(crate) use self::session::{
    SessionAnswer, SessionApprove, SessionDeny, SessionInject, SessionNamed, SessionVerb,
    SessionWhich, Until, Wait,
};
pub(crate) use self::token::{TokenAdd, TokenVerb, TokensFile};
use self::values::{listen_address, on_or_off, path, seconds};
pub(crate) use self::web::{Web, WebTokenAdd, WebTokenVerb, WebVerb};

/// A durable, signed message bus for AI coding agents.
#[derive(Debug, Parser)]
#[command(name = "peerbus", version, propagate_version = true)]
#[command(max_term_width = 80)]
#[command(after_help = "Exit codes: 0 done, 1 failed, 2 usage or configuration.")]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

impl Args {
    /// Reads this process's command line, or ends it with what is wrong with that.
    pub(crate) fn read() -> Self {
        if std::env::args_os().len() == 1 && std::io::stdout().is_terminal() {
            return Self::parse_from(["peerbus", "status"]);
        }
        adapter::alone().unwrap_or_else(|| help::parse().unwrap_or_else(|error| refuse(&error)))
    }
}

/// Ends this process with what is wrong with its command line. What was given is repeated there, and
/// may be somebody else's words.
fn refuse(error: &clap::Error) -> ! {
    let text = error.render().to_string();
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() == Some("serve") && args.any(|arg| arg.starts_with("--on-demand")) {
        // Whoever started this one hears it there. The environment counts as arguments.
        let line = text.lines().next().unwrap_or_default();
        let line = line.replace(['<', '>'], "");
        let line = format!(
            "{BEGINS}of its settings: {}",
            peerbus_wire::printable(&line)
        );
        // Nobody is left to be told that it cannot be written.
        let _ = output::line(&line);
    }
    let verb = std::env::args()
        .nth(1)
        .filter(|_| error.kind() == ErrorKind::InvalidSubcommand);
    if let Some(hint) = verb.as_deref().and_then(help::hint) {
        let verb = verb.unwrap_or_default();
        output::say(&format!(
            "error: \"{verb}\" is no command of peerbus: {hint}"
        ));
        std::process::exit(error.exit_code());
    }
    let safe = peerbus_wire::printable(&text);
    if safe == text {
        error.exit();
    }
    output::say(safe.trim_end());
    std::process::exit(error.exit_code())
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run the broker; without any configuration it makes what it needs.
    Serve(Serve),
    /// End the broker; the next new session or command starts one again.
    Stop {
        /// The broker's Unix socket
        #[arg(long, value_name = "PATH", value_parser = path())]
        socket: Option<PathBuf>,
    },
    /// Run an MCP server on stdio that joins an agent session to the bus.
    #[command(hide = true)]
    Adapter(Adapter),
    /// Run an agent without a screen, as a peer that messages wake.
    Run(Run),
    /// Run an agent for an editor over ACP; its sessions are peers.
    Acp(Acp),
    /// Run a program and end all that it started when it or `peerbus run` ends (run by that).
    #[command(hide = true)]
    DrivenGuard {
        /// The program and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<OsString>,
    },
    /// Become a program that ends with the process that started it (run by `driven-guard`).
    #[command(hide = true)]
    DrivenClient {
        /// The process that it ends with
        parent: u32,
        /// The program and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<OsString>,
    },
    /// Send a message to one peer.
    Send(Send),
    /// Send a request to a peer, wait for its result and print it.
    Ask(Ask),
    /// Show requests that have no result yet, and who owes it.
    Requests(Requests),
    /// Send a message to all who are connected, or were a minute ago.
    Broadcast(Outgoing),
    /// Receive messages; into a pipe, as a line of JSON each.
    Recv(Recv),
    /// Show the peers that the broker knows.
    Peers(Peers),
    /// Show what waits for a name, and take nothing of it.
    Inbox(Inbox),
    /// Show who waits for you and what is open, or how far a message got.
    Status(Status),
    /// Show messages and how far they get, as it happens.
    Tail(Tail),
    /// Show messages of the last days, those that were read too.
    History(History),
    /// Show a conversation of scripted peers, and leave nothing behind.
    Demo,
    /// Print how an agent sets itself up, and what it may do.
    Guide,
    /// Show a page with all that happens, and take webhooks.
    Web(Web),
    /// Join this machine's broker to those of other domains, over NATS.
    #[command(disable_help_flag = true)]
    Bridge {
        /// Options of peerbus-bridge; --help shows them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Share an MCP server with peers, or use one that a peer shares.
    #[command(subcommand)]
    Mcp(Mcp),
    /// Check the audit chain.
    #[command(subcommand)]
    Audit(Audit),
    /// Copy the broker's database and audit key into one private file.
    Backup {
        /// The file to make
        #[arg(value_parser = path())]
        file: PathBuf,
        /// Database file
        #[arg(long, env = "PEERBUS_DB", value_name = "FILE", value_parser = path())]
        db: Option<PathBuf>,
    },
    /// Put a backup in the place of a stopped broker's database.
    Restore {
        /// A file that `peerbus backup` made
        #[arg(value_parser = path())]
        file: PathBuf,
        /// Database file
        #[arg(long, env = "PEERBUS_DB", value_name = "FILE", value_parser = path())]
        db: Option<PathBuf>,
    },
    /// Manage tokens: who may register which names, and do what
    #[command(subcommand)]
    Token(TokenVerb),
    /// Invite another machine; prints a code for it, good once.
    Invite(Invite),
    /// Join this machine to a broker elsewhere, which invited it.
    Join(Join),
    /// Carry stdin and stdout to the broker (run by `ssh` for a machine that joined so).
    #[command(hide = true)]
    Relay,
    /// Free a name, or end one (the broker's operator, on its machine).
    #[command(subcommand)]
    Names(Names),
    /// Print a new token and a new HMAC secret (`peerbus token keygen`).
    #[command(hide = true)]
    Keygen {
        /// Print them as JSON
        #[arg(long)]
        json: bool,
    },
    /// Change the secret that peers sign with, and lose no mail.
    #[command(subcommand)]
    Secret(Secret),
    /// Watch your agents' live sessions, answer what they ask you.
    #[command(subcommand)]
    Session(SessionVerb),
    /// List mail that waits for you, and let it in or decline it.
    Held(Held),
    /// Put peerbus into an agent's configuration, and show what changes.
    Install(Install),
    /// Take peerbus out of agents' configurations, or all of it away.
    Uninstall(Uninstall),
    /// Answer an event of a Claude Code session (run by its hooks, with the event on stdin).
    // Takes any words: a configuration may be newer than this program, and a usage error would count
    // as the hook's decision.
    #[command(hide = true)]
    Hook {
        /// Nothing: print what is unseen; `wait`: wait for mail and wake the session; `link`: tell the module
        #[arg(
            value_name = "wait",
            trailing_var_arg = true,
            allow_hyphen_values = true
        )]
        words: Vec<String>,
    },
    /// Check all from end to end, with a remedy for what does not work.
    Doctor {
        /// Print the checks as JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Print the completions for a shell.
    #[command(hide = true)]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Write a manual page for each command into a directory.
    #[command(hide = true)]
    Man {
        /// The directory, made if it is not there
        #[arg(value_parser = path())]
        directory: PathBuf,
    },
}

/// How to reach the broker.
#[derive(Debug, clap::Args)]
pub(crate) struct Connection {
    /// Where the broker is: ws://HOST:PORT, wss://HOST:PORT, unix:PATH or ssh:USER@HOST [env: PEERBUS_URL]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Authority to trust for wss:, in place of the system's (PEM) [env: PEERBUS_CA]
    #[arg(long, value_name = "FILE", value_parser = path())]
    pub(crate) ca: Option<PathBuf>,
    /// Another credentials file than the one `serve` makes
    #[arg(long, value_name = "FILE", value_parser = path())]
    pub(crate) credentials: Option<PathBuf>,
}

impl Connection {
    /// With the name that the command line gives.
    pub(crate) fn flags(&self, name: Option<String>) -> Flags {
        Flags {
            url: self.url.clone(),
            ca: self.ca.clone(),
            name,
            credentials: self.credentials.clone(),
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    /// Address to listen on
    #[arg(
        long,
        env = "PEERBUS_LISTEN",
        value_name = "IP:PORT",
        default_value = "127.0.0.1:47821",
        value_parser = listen_address
    )]
    pub(crate) listen: SocketAddr,
    /// Certificate for TLS over TCP, with those between it and its authority (PEM)
    #[arg(
        long,
        env = "PEERBUS_TLS_CERT",
        value_name = "FILE",
        requires = "tls_key",
        value_parser = path()
    )]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of that certificate (PEM)
    #[arg(
        long,
        env = "PEERBUS_TLS_KEY",
        value_name = "FILE",
        requires = "tls_cert",
        value_parser = path()
    )]
    pub(crate) tls_key: Option<PathBuf>,
    /// Authority of which every client over TCP must show a certificate (PEM)
    #[arg(
        long,
        env = "PEERBUS_CLIENT_CA",
        value_name = "FILE",
        requires = "tls_cert",
        value_parser = path()
    )]
    pub(crate) client_ca: Option<PathBuf>,
    /// Listen without TLS where other machines can reach it, too
    #[arg(long, env = "PEERBUS_INSECURE", value_parser = on_or_off)]
    pub(crate) insecure: bool,
    /// Unix socket to listen on
    #[arg(long, value_name = "PATH", value_parser = path())]
    pub(crate) socket: Option<PathBuf>,
    /// Database file
    #[arg(long, env = "PEERBUS_DB", value_name = "FILE", value_parser = path())]
    pub(crate) db: Option<PathBuf>,
    /// Credentials file to use, made if it is not there
    #[arg(long, value_name = "FILE", value_parser = path())]
    pub(crate) credentials: Option<PathBuf>,
    /// File with more tokens, of `peerbus token`; it need not be there
    #[arg(long, env = "PEERBUS_TOKENS_FILE", value_name = "FILE", value_parser = path())]
    pub(crate) tokens: Option<PathBuf>,
    /// How much is kept of mail that was read: for how long, how many bytes (7d,256M); 0 keeps
    /// nothing
    #[arg(
        long,
        env = "PEERBUS_HISTORY",
        value_name = "AGE,SIZE",
        value_parser = history::kept
    )]
    pub(crate) history: Option<peerbus_broker::HistoryLimits>,
    /// What this broker is called among those of other machines, such as `office`
    #[arg(long, env = "PEERBUS_DOMAIN", value_name = "NAME")]
    pub(crate) domain: Option<peerbus_wire::Domain>,
    /// Go to the background, with a log in the state directory, and end when nobody is connected
    /// for a while; WHO needs it is said where somebody asks
    #[arg(
        long,
        value_name = "WHO",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "`peerbus serve --on-demand`"
    )]
    pub(crate) on_demand: Option<String>,
    /// With --on-demand: end after so many seconds without a connection
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 600.0,
        value_parser = seconds,
        requires = "on_demand"
    )]
    pub(crate) idle_end: f64,
    /// Be the one in the background (run by `serve --on-demand`)
    #[arg(long, hide = true, requires = "on_demand")]
    pub(crate) detached: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Peers {
    /// Show those, too, that are away, owe nothing and are owed nothing
    #[arg(long)]
    pub(crate) all: bool,
    /// Show all columns, however narrow the terminal is
    #[arg(long)]
    pub(crate) wide: bool,
    /// Show who is in another domain, as it last told
    #[arg(long, value_name = "NAME")]
    pub(crate) domain: Option<peerbus_wire::Domain>,
    /// Print the list as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Seconds to wait for the broker
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = seconds)]
    pub(crate) timeout: f64,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Status {
    /// A message's id, or a peer's name; without one: who waits for you, who is stuck, what is open, and
    /// who is here
    #[arg(value_name = "ID|NAME")]
    pub(crate) id: Option<String>,
    /// Only that of this sender. Needed for a broker elsewhere, which tells a sender alone
    #[arg(long, value_name = "FROM", requires = "id")]
    pub(crate) name: Option<String>,
    /// Go on, and show it anew when something changes
    #[arg(long, short, conflicts_with = "id")]
    pub(crate) watch: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Seconds to wait for the broker
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = seconds)]
    pub(crate) timeout: f64,
    /// The broker's Unix socket
    #[arg(long, value_name = "PATH", conflicts_with = "url", value_parser = path())]
    pub(crate) socket: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Audit {
    /// Verify the whole chain; names the first break
    Verify(AuditVerify),
    /// Print what peers said was done to their sessions (texts put in, interrupts, approvals, control), and what
    /// bridges did not let in
    Sessions(AuditVerify),
    /// Take it as known that the database lost what its witness saw, so that nothing fails for it any more
    Acknowledge {
        /// Database file
        #[arg(long, env = "PEERBUS_DB", value_name = "FILE", value_parser = path())]
        db: Option<PathBuf>,
        /// The Unix socket of the broker that runs on it
        #[arg(long, value_name = "PATH", value_parser = path())]
        socket: Option<PathBuf>,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct AuditVerify {
    /// Database file
    #[arg(long, env = "PEERBUS_DB", value_name = "FILE", value_parser = path())]
    pub(crate) db: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Secret {
    /// Put a new secret into the credentials file; what the old one signed is accepted, too
    Rotate(SecretFile),
    /// End a rotation: what the old secret signed is rejected from now on
    Retire(SecretFile),
}

#[derive(Debug, clap::Args)]
pub(crate) struct SecretFile {
    /// Another credentials file than the one `serve` makes
    #[arg(long, value_name = "FILE", value_parser = path())]
    pub(crate) credentials: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_sound() {
        super::command(true).debug_assert();
    }

    #[test]
    fn each_help_fits_a_terminal_and_says_what_the_command_does() {
        let mut all = vec![super::command(true)];
        all[0].build();
        while let Some(mut command) = all.pop() {
            let name = command.get_bin_name().unwrap_or("peerbus").to_owned();
            for help in [command.render_help(), command.render_long_help()] {
                for line in help.to_string().lines() {
                    assert!(line.chars().count() <= 80, "{name}: {line}");
                }
            }
            for verb in command.get_subcommands() {
                let about = verb
                    .get_about()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                let first = about.split(' ').next().unwrap_or_default();
                // "Show", never "Shows" nor "The …".
                let verb_like = first.chars().next().is_some_and(char::is_uppercase)
                    && !first.ends_with('s')
                    && !["A", "An", "The", "How", "Who"].contains(&first);
                assert!(verb_like, "{name} {}: {about}", verb.get_name());
                all.push(verb.clone());
            }
        }
    }
}
