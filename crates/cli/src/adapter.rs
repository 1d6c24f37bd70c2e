//! `peerbus adapter`.

use peerbus_adapter::{Config, Flags, connect};
use peerbus_mcp::Options;

use crate::args::{Adapter, AdapterKind};
use crate::client;
use crate::failure::Failure;

/// Serves MCP on stdin and stdout until the session ends.
pub(crate) fn run(verb: Adapter) -> Result<(), Failure> {
    let config = Config::resolve(&Flags {
        url: verb.connection.url,
        name: verb.name,
        credentials: verb.connection.credentials,
    })?;
    let options = Options::from_env().map_err(Failure::config)?;
    client::runtime()?.block_on(async {
        let (bus, link) = connect(config);
        // Registers at once; the session ends it.
        tokio::spawn(link.run());
        let exit = match verb.adapter {
            AdapterKind::Cc => peerbus_cc_adapter::run(bus, options).await,
            AdapterKind::Generic => peerbus_mcp::run_generic(bus, options).await,
        };
        tracing::debug!(?exit, "the session ended");
    });
    Ok(())
}
