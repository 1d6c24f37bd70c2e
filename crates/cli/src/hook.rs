//! `peerbus hook`: what Claude Code runs at events of a session.

use std::io::Write as _;
use std::process::ExitCode;

use peerbus_cc_adapter::hooks::{HookOutput, context, ignore, link, wait};

/// The exit code with which a hook that runs in the background rewakes its session.
const REWAKE: u8 = 2;

/// Says what is due. Never fails: a bus that is away is no trouble of the session's.
pub(crate) fn run(words: &[String]) -> ExitCode {
    let said = match words {
        [] => context(),
        [word] if word == "wait" => wait(),
        [word, version] if word == "link" => link(version),
        _ => ignore(),
    };
    // Whoever started the hook may be gone: nobody is left to be told.
    match said {
        HookOutput::Nothing => ExitCode::SUCCESS,
        HookOutput::Output(text) => {
            let _ = writeln!(std::io::stdout(), "{text}");
            ExitCode::SUCCESS
        }
        HookOutput::Rewake(text) => {
            let _ = writeln!(std::io::stderr(), "{text}");
            ExitCode::from(REWAKE)
        }
    }
}
