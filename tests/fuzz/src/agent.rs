//! What agents' programs say to an adapter.

use std::io::Cursor;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use peerbus_adapter::mailbox::AgentLink;
use peerbus_adapter::{BusConfig, Flags, connect};
use peerbus_mcp::{AdapterOptions, generic, run_over};
use serde_json::Value;

/// What a client says first.
const HELLO: &str = concat!(
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","#,
    r#""capabilities":{},"clientInfo":{"name":"fuzz","version":"1"}}}"#,
    "\n",
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    "\n"
);

/// Lines of an MCP client: every answer is JSON, and the adapter ends when its client does. A client
/// that does not begin with `!` has introduced itself.
pub(crate) fn mcp_lines(bytes: &[u8]) {
    let input = match bytes.strip_prefix(b"!") {
        Some(bytes) => bytes.to_vec(),
        None => [HELLO.as_bytes(), bytes].concat(),
    };
    let before = panics();
    // Nothing waits: time goes on by itself when nothing else does.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    let output = runtime.block_on(async {
        let flags = Flags {
            credentials: Some("/nonexistent/peerbus-fuzz".into()),
            ..Flags::default()
        };
        let config = BusConfig::resolve_with(&flags, |_| None).expect("settings");
        let (bus, link) = connect(BusConfig {
            sessions: None,
            sockets: Vec::new(),
            ..config
        });
        tokio::spawn(link.run());
        let mut output = Vec::new();
        let input = Cursor::new(input);
        let options = AdapterOptions::default();
        let start = |_, _| std::future::ready(AgentLink::default());
        run_over(bus, generic(|_| false), options, input, &mut output, start).await;
        output
    });
    assert_eq!(panics(), before, "a task panicked");
    for line in output
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        let line = serde_json::from_slice::<Value>(line).expect("a line of JSON");
        assert_eq!(line["jsonrpc"], "2.0");
    }
}

/// How often something panicked, if only in a task whose end nobody looks at.
fn panics() -> usize {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    static COUNTING: Once = Once::new();
    COUNTING.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            COUNT.fetch_add(1, Relaxed);
            report(info);
        }));
    });
    COUNT.load(Relaxed)
}

/// What a hook of Claude Code hands on.
pub(crate) fn hook_line(bytes: &[u8]) {
    peerbus_cc_adapter::hooks::fuzz(bytes);
}
