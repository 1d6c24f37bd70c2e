//! Logs go to stderr, without colours: stdout belongs to results, and to MCP.
//!
//! What lives on never waits for whoever reads its log: its lines go into a queue, which a thread of
//! its own writes.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::time::Duration;

use peerbus_adapter::stderr;
use tracing_subscriber::EnvFilter;

use crate::args::Verb;
use crate::output;

/// The exit code after a panic, as Rust's own.
const PANICKED: i32 = 101;
/// Longest filter that is repeated in a complaint, in characters.
const FILTER_CHARS: usize = 80;

/// Starts logging. `PEERBUS_LOG` holds the filter, in `tracing`'s syntax; by default `serve` tells
/// what it does and the other verbs only what goes wrong.
pub(crate) fn start(verb: &Verb) {
    let (filter, queue) = match verb {
        Verb::Serve(_) => ("info", Some((256 * 1_024, Duration::from_secs(1)))),
        // Its client kills 100 ms after its first signal.
        Verb::Adapter(_) | Verb::Acp(_) => ("warn", Some((16 * 1_024, Duration::from_millis(50)))),
        Verb::Run(_)
        | Verb::Mcp(_)
        | Verb::Web(_)
        | Verb::Recv(_)
        | Verb::Ask(_)
        | Verb::Tail(_)
        | Verb::Session(_)
        | Verb::Demo => ("warn", Some((64 * 1_024, Duration::from_secs(1)))),
        _ => ("warn", None),
    };
    if let Some((bytes_max, patience)) = queue {
        stderr::queue(bytes_max, patience);
    }
    stderr::log(filter_of(filter));
}

/// The filter that is asked for, or the default one.
fn filter_of(default: &str) -> EnvFilter {
    let asked = std::env::var("PEERBUS_LOG").unwrap_or_else(|_| default.to_owned());
    // rmcp logs message bodies at INFO.
    let filter = |text: &str| EnvFilter::try_new(format!("{text},rmcp=warn"));
    filter(&asked).unwrap_or_else(|error| {
        let asked = peerbus_wire::escape(&asked, FILTER_CHARS);
        output::complain(&format!(
            "PEERBUS_LOG=\"{asked}\" is no log filter ({error}); `{default}` is used"
        ));
        filter(default).unwrap_or_default()
    })
}

/// Makes a panic in any thread the end of the process: what lives on without one of its parts only
/// seems to live.
pub(crate) fn end_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        let trace = Backtrace::capture();
        let trace = match trace.status() {
            BacktraceStatus::Captured => format!("\n{trace}"),
            _ => String::new(),
        };
        // A peer's text may stand in it.
        let said = peerbus_wire::escape_json(&panic.to_string().replace('\n', " "));
        output::complain(&format!(
            "ended by a bug of its own, please report it: {said}{trace}"
        ));
        stderr::flush();
        std::process::exit(PANICKED);
    }));
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    const CHILD: &str = "PEERBUS_TEST_PANICS";

    #[test]
    fn a_panic_in_any_thread_ends_the_process_with_a_sentence() {
        if std::env::var_os(CHILD).is_some() {
            super::end_on_panic();
            // The test would succeed.
            let _ = std::thread::spawn(|| panic!("the reason")).join();
            return;
        }
        let program = std::env::current_exe().unwrap();
        let name = "logging::tests::a_panic_in_any_thread_ends_the_process_with_a_sentence";
        let mut command = Command::new(program);
        command.args(["--exact", name]).env(CHILD, "1");
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(super::PANICKED), "{said}");
        assert!(
            said.contains("peerbus: ended by a bug of its own"),
            "{said}"
        );
        assert!(said.contains("the reason"), "{said}");
    }
}
