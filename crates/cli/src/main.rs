//! `peerbus`: the broker, the adapters and the command line, in one binary.
//!
//! Exit codes: 0 done, 1 failed, 2 usage or configuration, 101 a bug.

mod acp;
mod adapter;
mod args;
mod ask;
mod audit;
mod backup;
mod body;
mod bridge;
mod client;
mod demo;
mod doctor;
mod far;
mod generate;
mod held;
mod here;
mod history;
mod hook;
mod inbox;
mod install;
mod invite;
mod join;
mod logging;
mod mcp;
mod names;
mod operator;
mod output;
mod overview;
mod peers;
mod phone;
mod purge;
mod recv;
mod relay;
mod requests;
mod run;
mod secret;
mod send;
mod serve;
mod session;
mod status;
mod stop;
mod table;
mod tail;
mod token;
mod told;
mod web;
mod wrap;

use std::process::ExitCode;

use peerbus_adapter::signals::unblock_signals;

use crate::args::{Args, Verb};

/// The page for an agent.
const GUIDE: &str = include_str!("../../../docs/AGENT.md");

fn main() -> ExitCode {
    unblock_signals();
    logging::end_on_panic();
    let args = Args::read();
    // What a hook writes to stderr, its session takes for a message.
    if !matches!(args.verb, Verb::Hook { .. }) {
        logging::start(&args.verb);
    }
    let done = match args.verb {
        Verb::Serve(verb) => serve::run(verb),
        Verb::Stop { socket } => stop::run(socket.as_ref()),
        Verb::Adapter(verb) => adapter::run(verb),
        Verb::Run(verb) => run::run(verb),
        Verb::Acp(verb) => acp::run(verb),
        Verb::DrivenGuard { command } => run::guard(command),
        Verb::DrivenClient { parent, command } => run::client(parent, &command),
        Verb::Send(verb) => send::run(verb),
        Verb::Ask(verb) => ask::run(verb),
        Verb::Requests(verb) => requests::run(&verb),
        Verb::Broadcast(verb) => send::broadcast(&verb),
        Verb::Recv(verb) => recv::run(verb),
        Verb::Peers(verb) => peers::run(verb),
        Verb::Inbox(verb) => inbox::run(&verb),
        Verb::Status(verb) => status::run(&verb),
        Verb::Tail(verb) => tail::run(&verb),
        Verb::History(verb) => history::run(verb),
        Verb::Demo => demo::run(),
        Verb::Guide => output::wrapped(GUIDE.trim_end()),
        Verb::Mcp(verb) => mcp::run(verb),
        Verb::Bridge { args } => bridge::run(&args),
        Verb::Web(verb) => web::run(verb),
        Verb::Audit(verb) => audit::run(verb),
        Verb::Backup { file, db } => backup::make(&file, db),
        Verb::Restore { file, db } => backup::restore(&file, db),
        Verb::Token(verb) => token::run(&verb),
        Verb::Invite(verb) => invite::run(&verb),
        Verb::Join(verb) => join::run(&verb),
        Verb::Relay => relay::run(),
        Verb::Names(verb) => names::run(&verb),
        Verb::Keygen { json } => secret::generate(json),
        Verb::Secret(verb) => secret::run(verb),
        Verb::Session(verb) => session::run(&verb),
        Verb::Held(verb) => held::run(&verb),
        Verb::Install(verb) => install::run(verb),
        Verb::Uninstall(verb) if verb.purge => purge::run(verb.files.dry_run, verb.yes),
        Verb::Uninstall(verb) => install::undo(verb),
        Verb::Hook { words } => return hook::run(&words),
        Verb::Doctor { json, connection } => doctor::run(&connection, json),
        Verb::Completions { shell } => generate::completions(shell),
        Verb::Man { directory } => generate::man(&directory),
    };
    let code = done.map_or_else(output::report, |()| 0);
    peerbus_adapter::stderr::flush();
    // A blocked read of stdin lives on a thread that nothing can stop: leave it behind.
    std::process::exit(code)
}
