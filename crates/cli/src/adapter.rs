//! `peerbus adapter`.

use peerbus_adapter::mailbox::WakeList;
use peerbus_adapter::{Config, connect};
use peerbus_mcp::{Exit, Options};

use crate::args::{Adapter, AdapterKind};
use crate::client;
use crate::failure::Failure;

/// Serves MCP on stdin and stdout until the session ends.
pub(crate) fn run(verb: Adapter) -> Result<(), Failure> {
    if peerbus_driver::is_driven() {
        let why = "this session is on the bus already, by the `peerbus run` that drives it";
        return Err(Failure::failed(why));
    }
    let config = Config::resolve(&verb.connection.flags(verb.name))?;
    let options = Options::read(|name| std::env::var(name).ok()).map_err(Failure::config)?;
    // Says at once what is wrong with it, whichever the kind of adapter.
    let wake = wake_list(|name| std::env::var(name).ok()).map_err(Failure::config)?;
    let runtime = client::runtime()?;
    let exit = runtime.block_on(async {
        let (bus, link) = connect(config);
        // Registers at once; the session ends it.
        tokio::spawn(link.run());
        match verb.adapter {
            AdapterKind::Cc => {
                let around = peerbus_cc_adapter::Surroundings::from_env(wake);
                peerbus_cc_adapter::run(bus, options, around).await
            }
            AdapterKind::Generic => {
                let around = peerbus_wake::Surroundings::from_env(wake);
                peerbus_wake::run(bus, options, around).await
            }
        }
    });
    // On a terminal a thread stays in `read`: it must not be waited for.
    runtime.shutdown_background();
    match exit {
        Exit::Failed(why) => Err(Failure::failed(why)),
        _ => Ok(()),
    }
}

/// Which ways of waking a session may be used: `PEERBUS_WAKE`, whichever the agent.
///
/// # Errors
///
/// A sentence, when it names what there is not.
pub(crate) fn wake_list(variable: impl Fn(&str) -> Option<String>) -> Result<WakeList, String> {
    let known = peerbus_cc_adapter::WAKING.into_iter();
    let known = known.chain(peerbus_wake::waking());
    let known: Vec<_> = known.chain([&peerbus_driver::STREAM as _]).collect();
    WakeList::read(&variable("PEERBUS_WAKE").unwrap_or_default(), &known)
}
