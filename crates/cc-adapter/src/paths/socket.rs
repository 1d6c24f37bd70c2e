//! The socket at which the session itself takes messages from other processes of its user.
//!
//! The client documents the socket, its two environment variables and the line with the token.
//! The rest was seen with 2.1.330 and 2.1.280: treat it as unstable. An idle session starts a turn,
//! a busy one takes the text in at the next boundary between tools. Nothing says that a message
//! was taken; that it was not is said at our own socket.

use std::path::PathBuf;

use peerbus_adapter::inbox::{InboxClient, Letter, SocketToken};
use peerbus_adapter::mailbox::{Mailbox, Outcome};
use serde::Deserialize;
use serde_json::json;

use crate::session::ClaudeSession;

/// Longest line that the client reads, in characters.
const LINE_CHARS_MAX: usize = 1_048_576;
/// So much of a line tells what it is, in bytes.
const HEAD: usize = 128;
/// Stands there in an answer of an agent.
const ANSWER: &[u8] = br#""type":"user""#;

pub(crate) struct Socket {
    pub(crate) mailbox: Mailbox,
    pub(crate) session: ClaudeSession,
}

impl InboxClient for Socket {
    fn socket(&self) -> Result<PathBuf, String> {
        self.mailbox.report(&self.session);
        let socket = self.session.socket();
        socket.ok_or_else(|| "the client tells of no socket for its session".to_owned())
    }

    fn lines(&self, letter: &Letter<'_>) -> Result<String, String> {
        lines(letter, self.session.token_for(letter.to))
    }

    fn posts(&self) {
        self.session.look_again();
    }

    fn answer(&self) -> (&'static [u8], usize) {
        (ANSWER, HEAD)
    }

    fn receipts(&self, text: &[u8]) -> Vec<(String, Outcome)> {
        let receipt = Receipt::of(text);
        let said = receipt.and_then(|receipt| Some((receipt.id.clone(), receipt.outcome()?)));
        said.into_iter().collect()
    }
}

/// What is written: the token if there is one, then the message. The priority is always the one
/// that waits for a boundary: `now` would abort a tool that runs. The permission mode of the
/// sender, which the wrapper could claim, is never claimed: the user's own hold stands on it.
fn lines(letter: &Letter<'_>, token: Option<&SocketToken>) -> Result<String, String> {
    let from = format!("uds:{}", letter.reply.display());
    let name = letter.sender();
    let text = letter.push.text();
    let content = format!(
        "<cross-session-message from=\"{from}\" from-name=\"{name}\">\n{text}\n</cross-session-message>"
    );
    let message = json!({
        "msgV": 1,
        "msg_id": letter.id,
        "type": "user",
        "message": { "role": "user", "content": content },
        "priority": "next",
        "from": from,
    });
    let message = message.to_string();
    if message.chars().count() > LINE_CHARS_MAX {
        return Err("the message is too long for the session's socket".to_owned());
    }
    let auth =
        token.map(|token| format!("{}\n", json!({ "type": "auth", "token": token.reveal() })));
    Ok(format!("{}{message}\n", auth.unwrap_or_default()))
}

/// What the client says of a message (seen with 2.1.330; undocumented).
#[derive(Debug, Deserialize)]
struct Receipt {
    #[serde(rename = "type")]
    kind: String,
    action: String,
    status: String,
    #[serde(default)]
    status_detail: Option<String>,
    #[serde(rename = "orig_msg_id")]
    id: String,
}

impl Receipt {
    fn of(line: &[u8]) -> Option<Self> {
        let receipt: Self = serde_json::from_slice(line).ok()?;
        (receipt.kind == "control" && receipt.action == "peer_message_status").then_some(receipt)
    }

    /// What it means. A user who decides, or has decided by a setting, is not gone round by
    /// another path; one who let a message lie has not decided. `None`: a word that is not known.
    fn outcome(&self) -> Option<Outcome> {
        match (self.status.as_str(), self.status_detail.as_deref()) {
            ("denied" | "refused", _) | ("expired", Some("refused" | "denied")) => {
                Some(Outcome::Denied)
            }
            ("held" | "expired", _) => Some(Outcome::Kept),
            ("dropped", _) => Some(Outcome::Dropped),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(line: &str) -> Option<Outcome> {
        Receipt::of(line.as_bytes())?.outcome()
    }

    #[test]
    fn receipts_as_the_client_writes_them() {
        let line = |status: &str, more: &str| {
            format!(
                r#"{{"type":"control","action":"peer_message_status","status":"{status}"{more},"reason":"…","from":"uds:/tmp/cc-socks/18.sock","orig_msg_id":"90bf","msgV":1,"msg_id":"9376"}}"#
            )
        };
        let detail = r#","status_detail":"refused""#;
        for (line, wanted) in [
            (line("held", ""), Some(Outcome::Kept)),
            (line("denied", ""), Some(Outcome::Denied)),
            (line("expired", detail), Some(Outcome::Denied)),
            (line("expired", ""), Some(Outcome::Kept)),
            (line("dropped", ""), Some(Outcome::Dropped)),
            (line("admired", ""), None),
            (
                r#"{"type":"user","message":{"content":"held"}}"#.to_owned(),
                None,
            ),
            ("held".to_owned(), None),
        ] {
            assert_eq!(outcome(&line), wanted, "{line}");
        }
    }
}
