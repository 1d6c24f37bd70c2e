//! What a driver makes of what its client says.

use std::sync::PoisonError;
use std::time::Duration;

use peerbus_adapter::mailbox::Who;
use peerbus_node::approvals::{self, By, Decision, Source};

use peerbus_node::{EventKind, Node, Pending, claude_code};
use peerbus_wire::escape;
use tokio::time::{sleep, timeout};

use super::{BEGIN, Driver, KIND, Shown, WHY_CHARS};
use crate::client::Client;
use crate::permission::{self, Verdict, is_ours};
use crate::stream::{self, Answered, Asked, Request, Said};

/// What stands before a turn of the user's that the client died over.
const AGAIN: &str =
    "(You may have been told this before: Claude Code ended before it was done.)\n\n";

/// How long a request to use a tool waits where nobody may allow it: whoever watches sees it.
const UNASKED: Duration = Duration::from_secs(1);

impl Driver<'_> {
    /// Hears a line. False: nobody reads what the model says any more.
    pub(super) async fn hear(
        &self,
        client: &Client,
        line: &str,
        say: &mut impl FnMut(&str) -> bool,
        shown: &mut Shown,
    ) -> bool {
        let said = match Said::read(line) {
            Ok(said) => said,
            Err(error) => {
                let line = escape(line, WHY_CHARS);
                tracing::warn!(%error, "Claude Code wrote a line that is not understood: {line}");
                return true;
            }
        };
        if let (Some(node), Said::User(_) | Said::Assistant(_)) = (&self.node, &said) {
            for event in claude_code::read(line) {
                node.record(event.kind, event.members);
            }
        }
        match said {
            Said::Init(init) => {
                let mut state = self.session.state();
                state.id = init.session_id.or(state.id.take());
            }
            Said::User(user) => {
                let mut state = self.session.state();
                // It is in the client's file by now.
                state.is_kept |= state.id.is_some() && user.is_replay == Some(true);
                state.turns.user(&user);
            }
            Said::Assistant(said) => {
                self.session.state().turns.assistant(&said);
                let top = said.parent_tool_use_id.is_none();
                let lines = said.texts().filter(|_| top).flat_map(str::lines);
                for line in lines {
                    if !say(&printable(line)) {
                        return false;
                    }
                }
            }
            Said::Result(end) => self.ended(&end, shown),
            Said::Request(request) => {
                self.answer(client, request).await;
                return true;
            }
            Said::Response(response) => {
                let answered = response.response.unwrap_or_default();
                match answered.request_id.clone() {
                    Some(id) if id == BEGIN => self.begun(client, answered, shown).await,
                    Some(id) => self.session.answered(&id, answered.result()),
                    None => {}
                }
                return true;
            }
            Said::Cancel(request_id) => {
                if let Some(waits) = self.open().remove(&request_id) {
                    waits.abort();
                }
                return true;
            }
            Said::Other(kind) => {
                let kind = escape(&kind, WHY_CHARS);
                tracing::debug!(kind, "Claude Code says something that is not needed");
                return true;
            }
        }
        self.mailbox.report(&self.session);
        self.session.look_again();
        true
    }

    /// The client has answered the first request: it takes turns.
    async fn begun(&self, client: &Client, answered: Answered, shown: &mut Shown) {
        if let Some(error) = answered.error {
            shown.why = Some(escape(&error, WHY_CHARS));
            return;
        }
        for request in answered.pending_permission_requests.unwrap_or_default() {
            self.answer(client, request).await;
        }
        shown.ready = true;
        self.session.state().client = Some(client.clone());
        let prompt = {
            let state = self.session.state();
            let prompt = state.prompt.as_ref();
            prompt.map(|prompt| match prompt.uuid {
                Some(_) => format!("{AGAIN}{}", prompt.text),
                None => prompt.text.clone(),
            })
        };
        if let Some(text) = prompt {
            self.mailbox.prompted(&text);
            let uuid = self.session.turn(&text).await;
            if let Some(prompt) = &mut self.session.state().prompt {
                prompt.uuid = uuid.or(prompt.uuid.take());
            }
        }
        self.tell();
    }

    fn ended(&self, end: &stream::TurnEnd, shown: &mut Shown) {
        let mut state = self.session.state();
        let over = state.turns.ended(end);
        let is_over = |prompt: &crate::session::Prompt| {
            prompt.uuid.as_ref().is_some_and(|uuid| over.contains(uuid))
        };
        if state.prompt.as_ref().is_some_and(is_over) {
            state.prompt = None;
        }
        match end.failed() {
            None => {
                shown.worked = true;
                shown.why = None;
            }
            Some(why) => {
                let why = escape(&why, WHY_CHARS);
                tracing::warn!("a turn failed: {why}");
                drop(state);
                if let Some(node) = &self.node {
                    node.record(EventKind::Message, claude_code::failed(&why));
                }
                shown.why = Some(why);
            }
        }
    }

    /// Answers what the client asks.
    async fn answer(&self, client: &Client, request: Request) {
        let Request {
            request_id,
            request: asked,
        } = request;
        match (asked.subtype.as_deref(), &asked.message) {
            (Some("mcp_message"), Some(message)) => {
                let who = self.bridge.take(client, request_id, message).await;
                if let Some(who) = who {
                    self.mailbox.met(&Who {
                        adapter: KIND,
                        client: &who.name,
                        version: &who.version,
                        process: std::process::id(),
                    });
                }
            }
            (Some("can_use_tool"), _) => self.permit(client, request_id, &asked).await,
            (subtype, _) => {
                let subtype = escape(subtype.unwrap_or_default(), WHY_CHARS);
                tracing::warn!(subtype, "Claude Code asks for something that is not served");
                let why = format!("peerbus does not serve {subtype}");
                client.say(stream::failure(&request_id, &why)).await;
            }
        }
    }

    async fn permit(&self, client: &Client, request_id: String, asked: &Asked) {
        let Some(input) = asked.input.clone() else {
            let why = "the request has no input";
            client.say(stream::failure(&request_id, why)).await;
            return;
        };
        if is_ours(asked) {
            let verdict = Verdict::Allow {
                input: &input,
                rules: None,
            };
            client.say(stream::success(&request_id, &verdict)).await;
            return;
        }
        let node = self.node.as_ref();
        let has_approvers = node.is_some_and(Node::has_approvers);
        let patience = match has_approvers {
            true => self.settings.approval,
            false => UNASKED.min(self.settings.approval),
        };
        let pending = node.and_then(|node| node.ask(Source::Stream, permission::shown(asked)));
        let (open, client, id) = (self.open.clone(), client.clone(), request_id.clone());
        let waiting = has_approvers.then(|| self.session.waits());
        let waits = tokio::spawn(async move {
            let _waiting = waiting;
            let verdict = decided(pending, patience).await;
            open.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .remove(&id);
            let verdict = permission::answer(&verdict, &input);
            client.say(stream::success(&id, &verdict)).await;
        });
        // The task has not run yet: there is one thread.
        self.open().insert(request_id, waits.abort_handle());
    }
}

/// What somebody decides, if anybody does in time.
async fn decided(pending: Option<Pending>, patience: Duration) -> approvals::Verdict {
    let nobody = approvals::Verdict::closed(None, By::Timeout);
    let Some(mut pending) = pending else {
        sleep(patience).await;
        return nobody;
    };
    match timeout(patience, pending.verdict()).await {
        Ok(verdict) => verdict,
        Err(_) => {
            pending.close(Some(Decision::Deny), &By::Timeout);
            nobody
        }
    }
}

/// A line for a terminal. What only stands for itself there stays: the model writes code.
fn printable(line: &str) -> String {
    let plain = ['"', '\\', '<', '>', '\t'];
    let part = |part: &str| match part.strip_suffix(plain) {
        Some(before) => format!("{}{}", escape(before, usize::MAX), &part[before.len()..]),
        None => escape(part, usize::MAX),
    };
    line.split_inclusive(plain).map(part).collect()
}
