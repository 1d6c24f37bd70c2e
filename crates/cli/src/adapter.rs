//! `peerbus adapter`.

use std::ffi::OsString;
use std::path::PathBuf;

use peerbus_adapter::demand::Demand;
use peerbus_adapter::mailbox::WakeList;
use peerbus_adapter::paths::Paths;
use peerbus_adapter::{BusConfig, Failure, Flags, connect, groups};
use peerbus_driver::Below;
use peerbus_mcp::{AdapterOptions, Exit, Input, Output};
use peerbus_wire::escape;
use tokio::runtime::Runtime;

use crate::args::{Adapter, AdapterKind};
use crate::client;

/// Longest value of a variable that is repeated, in characters: none of them a secret.
const VALUE_CHARS: usize = 80;

pub(crate) fn run(verb: Adapter) -> Result<(), Failure> {
    let runtime = client::runtime()?;
    let done = begin(&runtime, verb);
    // On a terminal a thread stays in `read`: it must not be waited for.
    runtime.shutdown_background();
    done
}

fn begin(runtime: &Runtime, verb: Adapter) -> Result<(), Failure> {
    let below = runtime.block_on(async {
        let (input, output) = peerbus_mcp::stdio();
        peerbus_driver::below(input, output).await
    });
    match below {
        Below::Peer(input, output) => serve(runtime, verb, (input, output)),
        Below::Relayed => Ok(()),
        Below::Nothing => {
            let why = "this session is on the bus already, by the `peerbus run` or `peerbus acp` above it, as far as that can be asked";
            Err(Failure::failed(why))
        }
    }
}

fn serve(runtime: &Runtime, verb: Adapter, stdio: (Input, Output)) -> Result<(), Failure> {
    let flags = verb.connection.flags(verb.name);
    let unfilled = unfilled(std::env::vars_os());
    let env = |name: &str| std::env::var(name).ok().filter(|_| unfilled.is_none());
    let mut config = match &unfilled {
        Some(_) => BusConfig::resolve_with(&Flags::default(), env)?,
        None => BusConfig::resolve(&flags)?,
    };
    config.demand = match &unfilled {
        Some(_) => Demand::None,
        None => client::demand(&flags)?,
    };
    config.groups = groups::own(env)?;
    let options = AdapterOptions::read(env).map_err(Failure::config)?;
    // Says at once what is wrong with it, whichever the kind of adapter.
    let wake = wake_list(env).map_err(Failure::config)?;
    let gates = gates(verb.gates)?;
    let exit = runtime.block_on(async {
        let (bus, link) = connect(config);
        // Registers at once; the session ends it.
        match unfilled {
            Some(why) => tokio::spawn(link.refuse(why)),
            None => tokio::spawn(link.run()),
        };
        match verb.adapter {
            AdapterKind::Cc => {
                let mut around = peerbus_cc_adapter::ClaudeSurroundings::from_env(wake);
                around.hooks = around.hooks.map(|paths| places(paths, &gates));
                let (profile, start) = peerbus_cc_adapter::adapter(around);
                peerbus_mcp::run(bus, profile, options, stdio, start).await
            }
            AdapterKind::Generic => {
                let mut around = peerbus_mcp::wake::Surroundings::from_env(wake);
                around.paths = around.paths.map(|paths| places(paths, &gates));
                let (profile, start) = peerbus_mcp::wake::adapter(around);
                peerbus_mcp::run(bus, profile, options, stdio, start).await
            }
        }
    });
    match exit {
        Exit::Failed(why) => Err(Failure::failed(why)),
        _ => Ok(()),
    }
}

/// What is wrong where a client handed on a variable of ours with a `${…}` in it that it should have
/// filled in. Its user sees what a tool says, and not why a server did not start.
fn unfilled(variables: impl Iterator<Item = (OsString, OsString)>) -> Option<String> {
    let mut texts = variables
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let (name, value) = texts.find(|(name, value)| {
        let open = value
            .split_once("${")
            .is_some_and(|(_, rest)| rest.contains('}'));
        open && name.starts_with("PEERBUS_")
    })?;
    let value = escape(&value, VALUE_CHARS);
    Some(format!(
        "{name} is \"{value}\", which the client did not fill in: write the value itself in its \
         configuration, or take {name} out there, and start the session anew"
    ))
}

/// The file with the gates, as it is called from anywhere.
pub(crate) fn gates(file: Option<PathBuf>) -> Result<Option<PathBuf>, Failure> {
    let absolute = file.map(std::path::absolute).transpose();
    absolute.map_err(|error| Failure::config(format!("--gates: {error}")))
}

/// These places, with another file for the gates.
pub(crate) fn places(paths: Paths, gates: &Option<PathBuf>) -> Paths {
    match gates {
        Some(gates) => Paths {
            gates: gates.clone(),
            ..paths
        },
        None => paths,
    }
}

/// Which ways of waking a session may be used: `PEERBUS_WAKE`, whichever the agent. `Err` is a sentence.
pub(crate) fn wake_list(variable: impl Fn(&str) -> Option<String>) -> Result<WakeList, String> {
    let known = peerbus_cc_adapter::WAKING.into_iter();
    let known = known.chain(peerbus_mcp::wake::waking());
    let known: Vec<_> = known
        .chain([&peerbus_driver::STREAM, &peerbus_driver::ACP])
        .collect();
    WakeList::read(&variable("PEERBUS_WAKE").unwrap_or_default(), &known)
}
