//! Logs go to stderr, without colours: stdout belongs to results, and to MCP.

use tracing_subscriber::EnvFilter;

use crate::args::Verb;

/// Starts logging. `PEERBUS_LOG` holds the filter, in `tracing`'s syntax; by default `serve` tells
/// what it does and the other verbs only what goes wrong.
pub(crate) fn start(verb: &Verb) {
    let quiet = if matches!(verb, Verb::Serve(_)) {
        "info"
    } else {
        "warn"
    };
    let filter = std::env::var("PEERBUS_LOG").unwrap_or_else(|_| quiet.to_owned());
    // rmcp logs message bodies at INFO.
    let filter = EnvFilter::new(format!("{filter},rmcp=warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .init();
}
