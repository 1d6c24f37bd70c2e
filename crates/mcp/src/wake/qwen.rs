//! Qwen Code.
//!
//! Its sessions take messages from other programs by a protocol that it documents (Cross-Session
//! Protocol, schema 1, frame 1; seen with 0.24.4). What a process writes that the session started,
//! as this one is, joins the input queue unless the user's setting says otherwise; each message is a
//! turn of its own, after the one under way. The model is told that it is not its user's word.
//!
//! The conversation is a file of lines, documented nowhere. A message's line is written before the
//! model is asked.

use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use peerbus_adapter::credentials::random_hex;
use peerbus_adapter::inbox::{InboxClient, InboxPath, Letter, SocketToken};
use peerbus_adapter::mailbox::{
    AgentLink, BoxFuture, Mailbox, Outcome, PathSpec, SessionSource, Snapshot,
};
use peerbus_adapter::transcript::{LineReader, Places, TranscriptLine, Transcripts};
use peerbus_agents::{is_id, project_slug};
use peerbus_os::process::Process;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::tools::is_tool_of_ours;
use crate::wake::{Context, Surroundings, Waker};

pub(crate) static WAKER: Waker = Waker {
    agent: "qwen",
    // The socket at which the session itself takes messages.
    path: PathSpec {
        word: "socket",
        joins_busy_turn: true,
        ..PathSpec::waking(GAP_MS)
    },
    reaches: |_, around| around.path(SOCKET_VARIABLE).is_some(),
    absent: "",
    process: None,
    start,
};

/// The pause after a push, in milliseconds: a session takes one message each two seconds in the
/// long run, and drops others.
const GAP_MS: u64 = 2_000;
/// Where the session says where its socket is. Our environment is as old as this process.
const SOCKET_VARIABLE: &str = "QWEN_CODE_MESSAGING_SOCKET";
/// More than the client writes about a process.
const RECORD_BYTES_MAX: u64 = 65_536;
/// Longest line that the client reads, in UTF-16 units.
const LINE_UNITS_MAX: usize = 1 << 20;
/// Longest project directory's name that is known to be made of the project's path alone.
const SLUG_MAX: usize = 200;
/// What an agent that answers at our socket writes there, and how far it is looked for: behind the
/// line with our token.
const ANSWER: (&[u8], usize) = (br#""type":"user""#, 192);

fn start(waker: &'static Waker, context: Context) -> AgentLink {
    let session = Session::new(&context.around);
    context.mailbox.report(&session);
    let client = Inbox {
        mailbox: context.mailbox.clone(),
        session: session.clone(),
        reply_token: SocketToken::new(random_hex().to_string()),
    };
    let paths = context.around.paths.as_ref();
    let notes = paths.and_then(peerbus_adapter::hooks::directory);
    let (socket, receipts) = InboxPath::new(&waker.path, client, context.mailbox, notes);
    let reader = || -> Box<dyn LineReader> { Box::new(Lines) };
    let chats = session.clone();
    let evidence = Transcripts::new(move |snapshot| chats.places(snapshot), reader);
    AgentLink {
        paths: vec![Box::new(socket)],
        session: Some(Arc::new(session)),
        evidence: Some(Box::new(evidence)),
        asleep: String::new(),
        beside: vec![receipts],
    }
}

/// The session that this adapter belongs to. Clones share it.
#[derive(Clone)]
struct Session(Arc<Known>);

struct Known {
    home: Option<PathBuf>,
    ancestors: Vec<Process>,
    /// From the environment, as it was when we were started.
    id: Option<String>,
    socket: Option<PathBuf>,
    token: Option<SocketToken>,
    project: Option<PathBuf>,
    changed: Notify,
}

/// What the client writes about each of its processes.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    #[serde(default)]
    session_id: Option<String>,
    #[serde(default)]
    cwd: Option<PathBuf>,
    #[serde(default)]
    ipc_path: Option<PathBuf>,
    #[serde(default)]
    proc_start: Option<String>,
}

impl Session {
    fn new(around: &Surroundings) -> Self {
        Self(Arc::new(Known {
            home: around.directory("QWEN_HOME", ".qwen"),
            ancestors: around.ancestors.clone(),
            id: around.text("QWEN_CODE_SESSION_ID").filter(|id| is_id(id)),
            socket: around.path(SOCKET_VARIABLE),
            token: around
                .text("QWEN_CODE_MESSAGING_TOKEN")
                .map(SocketToken::new),
            project: around
                .path("QWEN_CODE_PROJECT_DIR")
                .or_else(|| around.cwd.clone()),
            changed: Notify::new(),
        }))
    }

    /// What the client says of its process now: after `/clear` and `/resume` it is another session.
    fn record(&self) -> Option<Record> {
        let sessions = self.0.home.as_ref()?.join("sessions");
        let mut ancestors = self.0.ancestors.iter();
        ancestors.find_map(|process| Record::read(&sessions, process))
    }

    /// Where its conversation is.
    fn places(&self, snapshot: &Snapshot) -> Places {
        let mut places = Places {
            id: snapshot.id.clone(),
            ..Places::default()
        };
        if let (Some(home), Some(cwd)) = (&self.0.home, &snapshot.cwd) {
            let real = std::fs::canonicalize(cwd).unwrap_or_else(|_| cwd.clone());
            let slug = project_slug(&real);
            if slug.len() <= SLUG_MAX {
                places.directories = vec![home.join("projects").join(slug).join("chats")];
            }
        }
        places
    }
}

impl SessionSource for Session {
    fn snapshot(&self) -> Snapshot {
        let record = self.record().unwrap_or_default();
        let id = record.session_id.filter(|id| is_id(id));
        let cwd = record.cwd.filter(|cwd| cwd.is_absolute());
        Snapshot {
            id: id.or_else(|| self.0.id.clone()),
            cwd: cwd.or_else(|| self.0.project.clone()),
            // The client does not say what it does.
            activity: None,
            transcript: None,
        }
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.changed.notified())
    }
}

impl Record {
    /// Reads the one of a process. `None`: there is none, or it is an earlier process's with that
    /// number.
    fn read(sessions: &FilePath, process: &Process) -> Option<Self> {
        let path = sessions.join(format!("{}.json", process.id));
        let text = peerbus_os::file::read_small(&path, RECORD_BYTES_MAX)?;
        let record: Self = serde_json::from_str(&text).ok()?;
        // The boot's id and a colon stand before it.
        let started = record.proc_start.as_deref();
        let started = started.and_then(|text| text.rsplit(':').next());
        match (started, process.started.as_deref()) {
            (Some(theirs), Some(ours)) if theirs != ours => None,
            _ => Some(record),
        }
    }
}

struct Inbox {
    mailbox: Mailbox,
    session: Session,
    /// What the client has to show at our socket.
    reply_token: SocketToken,
}

impl InboxClient for Inbox {
    fn socket(&self) -> Result<PathBuf, String> {
        self.mailbox.report(&self.session);
        let known = &self.session.0;
        let now = self.session.record().and_then(|record| record.ipc_path);
        now.filter(|path| path.is_absolute())
            .or_else(|| known.socket.clone())
            .ok_or_else(|| "Qwen Code tells of no socket for its session".to_owned())
    }

    /// The priority is the one that waits for its turn, and what the sender is allowed at home,
    /// which a frame could claim, is never claimed: the user's own hold stands on it.
    fn lines(&self, letter: &Letter<'_>) -> Result<String, String> {
        let mut frame = json!({
            "msgV": 1,
            "msgId": letter.id,
            "type": "user",
            "from": letter.reply,
            "replyToken": self.reply_token.reveal(),
            "fromName": format!("peerbus:{}", letter.sender()),
            "priority": "next",
            "message": { "role": "user", "content": letter.push.text() },
        });
        if let Some(id) = self.session.snapshot().id {
            frame["toSessionId"] = id.into();
        }
        let frame = frame.to_string();
        if frame.encode_utf16().count() > LINE_UNITS_MAX {
            return Err("the message is too long for the session's socket".to_owned());
        }
        // It belongs to the process that started us, whatever session that has now.
        let token = self.session.0.token.as_ref();
        let auth = token.map(|token| {
            let line = json!({ "msgV": 1, "type": "auth", "token": token.reveal() });
            format!("{line}\n")
        });
        Ok(format!("{}{frame}\n", auth.unwrap_or_default()))
    }

    fn posts(&self) {
        self.session.0.changed.notify_one();
    }

    fn answer(&self) -> (&'static [u8], usize) {
        ANSWER
    }

    fn receipt_lines(&self) -> usize {
        2
    }

    fn receipts(&self, text: &[u8]) -> Vec<(String, Outcome)> {
        let mut lines = text.split(|byte| *byte == b'\n');
        let mut next = || serde_json::from_slice::<Value>(lines.next()?).ok();
        let Some(auth) = next() else {
            return Vec::new();
        };
        if auth["type"] != "auth" || auth["token"] != self.reply_token.reveal() {
            return Vec::new();
        }
        next().map_or_else(Vec::new, |frame| verdicts(&frame))
    }
}

/// What a receipt says. `delivered` says nothing: the message was queued, and that it was written
/// is known. A user who decides, or has decided by a setting, is not gone round; a message whose
/// session ended, or that was not let in for being one of many, was not shown.
fn verdicts(frame: &Value) -> Vec<(String, Outcome)> {
    if frame["type"] != "control" || frame["action"] != "delivery_status" {
        return Vec::new();
    }
    let outcome = match frame["status"].as_str() {
        Some("denied" | "refused") => Outcome::Denied,
        Some("held") => Outcome::Kept,
        Some("expired" | "misaddressed" | "dropped") => Outcome::Dropped,
        _ => return Vec::new(),
    };
    let others = frame["droppedMsgIds"].as_array();
    let others = others.filter(|_| frame["status"] == "dropped");
    let first = std::iter::once(&frame["origMsgId"]);
    let ids = first.chain(others.into_iter().flatten());
    let named = ids.filter_map(|id| Some((id.as_str()?.to_owned(), outcome)));
    named.collect()
}

/// Reads the lines of a conversation. Each says all that there is to know of it.
struct Lines;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    uuid: String,
    #[serde(default)]
    parent_uuid: Option<String>,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    provenance: Option<String>,
    #[serde(default)]
    model: Option<String>,
}

impl LineReader for Lines {
    fn read(&mut self, line: &str) -> Option<TranscriptLine> {
        let line: Written = serde_json::from_str(line).ok()?;
        let answers = line.kind == "assistant"
            && line.model.is_some()
            && line
                .provenance
                .is_none_or(|from| from == "assistant_output");
        Some(TranscriptLine {
            // Each answer has one line.
            request: answers.then(|| line.uuid.clone()),
            id: line.uuid,
            parent: line.parent_uuid,
            prompts: line.kind == "user",
            presents: matches!(line.kind.as_str(), "user" | "tool_result"),
            answers,
            stopped: false,
        })
    }

    fn result(&self, line: &str) -> Option<Value> {
        let mut line: Value = serde_json::from_str(line).ok()?;
        if line["type"] != "tool_result" {
            return None;
        }
        let parts = line["message"]["parts"].as_array_mut();
        let results = parts.into_iter().flatten();
        let results = results.map(|part| part["functionResponse"].take());
        let is_ours = |of: &Value| of["name"].as_str().is_some_and(is_tool_of_ours);
        let ours = results.filter(is_ours).map(|mut of| of["response"].take());
        Some(ours.collect())
    }
}

#[cfg(test)]
mod tests {
    use peerbus_adapter::mailbox::Evidence;
    use peerbus_adapter::transcript::TranscriptReader;

    use super::*;

    #[test]
    fn what_a_tool_gave_is_told_apart() {
        const MARK: &str = "pb-0123456789abcdef-7";
        let text = format!("[0.0 {MARK}]");
        let found = |kind: &str, part: Value| {
            let line = json!({ "uuid": "a", "type": kind, "message": { "parts": [part] },
                "toolCallResult": { "resultDisplay": text } });
            let mut reader = TranscriptReader::new(Box::new(Lines));
            reader.feed(format!("{line}\n").as_bytes(), &[MARK.to_owned()])
        };
        let presented = || Evidence::Presented(MARK.to_owned());
        assert_eq!(found("user", json!({ "text": text })), [presented()]);
        for (tool, is_ours) in [
            ("mcp__peerbus__bus_drain", true),
            ("run_shell_command", false),
        ] {
            let response = json!({ "name": tool, "response": { "output": text } });
            let in_result = found("tool_result", json!({ "functionResponse": response }));
            let proven = [Evidence::InResult(Box::new(presented()))];
            assert_eq!(in_result, proven[..usize::from(is_ours)], "{tool}");
        }
        // What the client shows its user the model need not have.
        assert_eq!(found("tool_result", json!({})), []);
    }

    #[test]
    fn receipts_as_the_client_writes_them() {
        let frame = |status: &str| {
            json!({ "msgV": 1, "msgId": "r", "type": "control", "action": "delivery_status",
                "status": status, "origMsgId": "m", "droppedMsgIds": ["n", 7], "reason": "…" })
        };
        let one = |outcome| vec![("m".to_owned(), outcome)];
        for (status, wanted) in [
            ("delivered", vec![]),
            ("held", one(Outcome::Kept)),
            ("denied", one(Outcome::Denied)),
            ("refused", one(Outcome::Denied)),
            ("expired", one(Outcome::Dropped)),
            ("misaddressed", one(Outcome::Dropped)),
            ("admired", vec![]),
        ] {
            assert_eq!(verdicts(&frame(status)), wanted, "{status}");
        }
        let both = [
            one(Outcome::Dropped),
            vec![("n".to_owned(), Outcome::Dropped)],
        ]
        .concat();
        assert_eq!(verdicts(&frame("dropped")), both);
        let answer = json!({ "type": "user", "status": "held", "origMsgId": "m" });
        assert_eq!(verdicts(&answer), []);
    }
}
