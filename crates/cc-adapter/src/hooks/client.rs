//! What a hook of Claude Code does: it asks the adapter of its session.

use std::io::{BufReader, Read as _};
use std::path::PathBuf;
use std::time::Duration;

use peerbus_adapter::hooks::{self, Ancestor, Caller, Deadline, TimedInput};
use peerbus_adapter::paths::Paths;
use serde_json::json;

use super::ENDS_TURN;
use super::module::Attach;
use super::occasion::{Event, Occasion};
use crate::session::{self, SessionFile};

/// How long a hook that answers may take, all in all.
const ANSWER: Duration = Duration::from_millis(900);
/// How long a hook that waits looks for an adapter that starts at the same time as it does.
const START: Duration = Duration::from_secs(10);
/// The most that is read of standard input: a tool's result can be large.
const INPUT_MAX: u64 = 256 * 1024 * 1024;

/// What a hook says to its client. Anything that goes wrong is [`HookOutput::Nothing`]: no turn fails
/// because of the bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookOutput {
    /// Nothing, exit code 0.
    Nothing,
    /// This on standard output, exit code 0.
    Output(String),
    /// This on standard error, exit code 2: the client starts a turn with it.
    Rewake(String),
}

/// Answers an event with what is unseen, in less than a second; and what the client asks its user
/// with a verdict, when there is one.
#[must_use]
pub fn context() -> HookOutput {
    let deadline = Deadline::after(ANSWER);
    let asked = || {
        let on = occasion(deadline)?.of_session(is_interactive());
        let event = on.event();
        // A dialog stays open for as long as its user likes.
        let waits = event == Event::Permission || event.asks();
        let text = Caller::find(&directories()?, above)?.ask(on, waits, deadline)?;
        Some(output(event, text))
    };
    asked().map_or(HookOutput::Nothing, HookOutput::Output)
}

/// Waits in an interactive session until there is something to show, or until the session, its
/// adapter or whoever started this hook is gone, or another hook waits in its place.
#[must_use]
pub fn wait() -> HookOutput {
    let waited = || {
        let on = occasion(Deadline::after(ANSWER))?;
        if !is_interactive() {
            return None;
        }
        let patience = match on.event() {
            Event::Start => START,
            _ => Duration::ZERO,
        };
        let dirs = directories()?;
        let session = Caller::await_start(&dirs, above, patience)?;
        let text = session.ask(on, true, Deadline::after(ANSWER));
        if text.is_none() {
            // An adapter that was killed has left its socket behind.
            dirs.iter().for_each(|dir| hooks::sweep(dir));
        }
        text
    };
    waited().map_or(HookOutput::Nothing, HookOutput::Rewake)
}

/// Links the module in the client, which speaks this version, with the adapter of its session: prints what
/// that says, a line each, until one of them is gone.
#[must_use]
pub fn link(version: &str) -> HookOutput {
    let linked = || {
        let version: u64 = version.parse().ok().filter(|_| is_interactive())?;
        let session = Caller::await_start(&directories()?, above, START)?;
        session.follow(&Attach { version }, &mut std::io::stdout())
    };
    // It begins anew by itself.
    let _ended = linked();
    HookOutput::Nothing
}

/// Whether there is a user who does not wait for a hook to end. Everywhere else (`claude -p`, agents built on
/// the client) no hook runs in the background: a session would stand still with one that waits. Seen with
/// 2.1.114 and 2.1.330, which say `sdk-cli` there, whatever is around them.
fn is_interactive() -> bool {
    std::env::var_os("CLAUDE_CODE_ENTRYPOINT").is_some_and(|name| name == "cli")
}

/// Lets an event pass.
#[must_use]
pub fn ignore() -> HookOutput {
    // Read all the same, so that the client does not find its pipe closed.
    let _ = occasion(Deadline::after(ANSWER));
    HookOutput::Nothing
}

/// What the client expects of a hook that has something to say.
fn output(event: Event, text: String) -> String {
    let output = match event {
        event if event == Event::Permission || event.asks() => return text,
        // Nothing that a peer writes reads so: what is shown of it begins with our words.
        Event::Tool if text == ENDS_TURN => return text,
        Event::Stop => json!({ "decision": "block", "reason": text }),
        _ => json!({ "hookSpecificOutput": {
            "hookEventName": event.name(), "additionalContext": text,
        } }),
    };
    output.to_string()
}

fn directories() -> Option<Vec<PathBuf>> {
    Some(hooks::directories(&Paths::find().ok()?))
}

/// What standard input tells of the event. All of it is read: to its writer a pipe that closes
/// early is a hook that failed.
fn occasion(deadline: Deadline) -> Option<Occasion> {
    let mut input = BufReader::new(TimedInput(deadline).take(INPUT_MAX));
    let on = serde_json::from_reader(&mut input).ok().map(Occasion::told);
    // What cannot be read to its end in time is left.
    let _ = std::io::copy(&mut input, &mut std::io::sink());
    on
}

/// The processes above this one, the nearest first.
fn above() -> Vec<Ancestor> {
    let sessions = peerbus_agents::claude_code::config_dir().map(|dir| dir.join("sessions"));
    let above = session::ancestors(std::process::id()).into_iter();
    let mut found: Vec<_> = above
        .map(|process| Ancestor {
            pid: process.id,
            session: sessions
                .as_ref()
                .is_some_and(|dir| SessionFile::read(dir, &process).is_some()),
        })
        .collect();
    if found.is_empty() {
        // There is no /proc here.
        let pid = std::os::unix::process::parent_id();
        found.push(Ancestor {
            pid,
            session: false,
        });
    }
    found
}
