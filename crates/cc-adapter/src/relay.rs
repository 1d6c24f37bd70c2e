//! The relay of dialogs over the channel: the client tells what it asks its user, and takes a
//! verdict. `CHANNELS_SCHEMA.md` has the contract.

use std::time::Duration;

use peerbus_mcp::Host;
use peerbus_node::Node;
use peerbus_node::approvals::{Asked, By, Decision, Source};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

pub(crate) const KEY: &str = "claude/channel/permission";
const REQUEST: &str = "notifications/claude/channel/permission_request";
const VERDICT: &str = "notifications/claude/channel/permission";
/// The client cuts a preview to so many characters.
const PREVIEW_CHARS: usize = 200;
/// How long what a client asks is offered to others: a little shorter than its hook waits.
pub(crate) const ASKS: Duration = Duration::from_secs(595);

#[derive(Deserialize)]
struct Request {
    request_id: String,
    tool_name: String,
    description: Option<String>,
    #[serde(default)]
    input_preview: String,
}

impl Request {
    fn asked(&self) -> Asked {
        let preview = self.input_preview.as_str();
        let is_whole = preview.chars().count() < PREVIEW_CHARS
            && serde_json::from_str::<Value>(preview).is_ok();
        let mut asked = Asked::new(&self.tool_name, preview);
        asked.description.clone_from(&self.description);
        // How much is missing is not told.
        asked.cut += usize::from(!is_whole);
        asked
    }
}

/// Shows what the client asks over the channel, and answers it while anybody may.
pub(crate) fn relay(host: &Host, node: Node) {
    let client = host.clone();
    host.listen(REQUEST, move |params| {
        let request: Result<Request, _> = serde_json::from_value(params);
        let pending = request.ok().and_then(|request| {
            let pending = node.ask(Source::Channel, request.asked(), ASKS)?;
            Some((request, pending))
        });
        let Some((request, mut pending)) = pending else {
            return;
        };
        let (host, node) = (client.clone(), node.clone());
        tokio::spawn(async move {
            let Ok(verdict) = timeout(ASKS, pending.verdict()).await else {
                return pending.close(None, &By::Timeout);
            };
            let behavior = match verdict.decision {
                Some(Decision::Allow | Decision::AllowAlways) => "allow",
                Some(Decision::Deny) => "deny",
                None => return,
            };
            // A gate that was closed meanwhile lets nothing through.
            let is_ours = matches!(verdict.by, By::Node | By::Peer(_)) && pending.speaks();
            if is_ours && node.has_approvers() {
                let params = json!({ "request_id": request.request_id, "behavior": behavior });
                // A client that is gone asks no more.
                let _ = host.notify(VERDICT, params).await;
            }
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preview_that_may_be_cut_counts_as_cut() {
        let whole = |preview: &str| {
            let request = Request {
                request_id: "abcde".into(),
                tool_name: "Bash".into(),
                description: None,
                input_preview: preview.into(),
            };
            request.asked().cut == 0
        };
        assert!(whole(r#"{"command":"ls"}"#));
        assert!(!whole(r#"{"command":"l"#));
        assert!(!whole(""));
        // One that ends where the cut would be may go on behind it.
        let number = "1".repeat(PREVIEW_CHARS);
        assert!(!whole(&number));
        assert!(whole(&number[1..]));
    }
}
