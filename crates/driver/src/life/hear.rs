//! What a driver makes of what its client says.

use std::sync::Arc;
use std::time::Duration;

use peerbus_adapter::mailbox::Who;
use peerbus_node::approvals::{By, Decision, Source, Verdict};
use peerbus_node::{EventKind, Node, Pending, claude_code};
use peerbus_wire::{escape, printable};
use tokio::time::{sleep, timeout};

use super::{Driver, KIND, Shown};
use crate::WHY_CHARS;
use crate::process::AgentLines;
use crate::protocol::{Heard, Permission};
use crate::session::Prompt;

/// What stands before a turn of the user's that the client died over.
const AGAIN: &str =
    "(You may have been told this before: Claude Code ended before it was done.)\n\n";

/// How long a request to use a tool waits where nobody may allow it: whoever watches sees it.
const UNASKED: Duration = Duration::from_secs(1);

impl Driver<'_> {
    /// What the client says. False: nobody reads what the model says any more.
    pub(super) async fn hear(
        &self,
        to: &AgentLines,
        heard: Heard,
        say: &mut impl FnMut(&str) -> bool,
        shown: &mut Shown,
    ) -> bool {
        match heard {
            Heard::Ready => self.begun(to, shown).await,
            Heard::Unready(why) => shown.why = Some(escape(&why, WHY_CHARS)),
            Heard::Met(who) => self.mailbox.met(&Who {
                adapter: KIND,
                client: &who.name,
                version: &who.version,
                process: std::process::id(),
            }),
            Heard::Event(event) => {
                if let Some(node) = &self.node {
                    node.record(event.kind, event.members);
                }
            }
            Heard::Session(id) => self.session.state().id = Some(id),
            Heard::Shown { id, marks } => {
                let mut state = self.session.state();
                // It is in the client's file by now.
                state.is_kept |= state.id.is_some() && id.is_some();
                state.turns.shown(id.as_deref(), marks);
            }
            Heard::Words { answer, texts } => {
                if let Some(answer) = answer {
                    self.session.state().turns.answer(answer);
                }
                let mut lines = texts.iter().flat_map(|text| text.lines());
                return lines.all(|line| say(&printable(line)));
            }
            Heard::TurnEnd { ids, failed } => self.ended(&ids, failed, shown),
            Heard::Asks(asked) => self.permit(to, asked),
            Heard::Withdrawn(id) => {
                let open = self.session.state().open.remove(&id);
                if let Some((waits, _)) = open {
                    waits.abort();
                }
            }
        }
        true
    }

    async fn begun(&self, client: &AgentLines, shown: &mut Shown) {
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

    fn ended(&self, ids: &[String], failed: Option<String>, shown: &mut Shown) {
        let mut state = self.session.state();
        let over = state.turns.ended(ids, failed.is_some());
        let of = |prompt: &mut Prompt| prompt.uuid.clone().is_some_and(|id| over.contains(&id));
        state.prompt.take_if(of);
        match failed {
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

    fn permit(&self, client: &AgentLines, asked: Permission) {
        let node = self.node.as_ref();
        let has_approvers = node.is_some_and(Node::has_approvers);
        let patience = match has_approvers {
            true => self.settings.approval,
            false => UNASKED.min(self.settings.approval),
        };
        let pending = node.and_then(|node| node.ask(Source::Stream, asked.asked.clone()));
        let (session, client, id) = (self.session.clone(), client.clone(), asked.id.clone());
        let protocol = Arc::clone(&self.protocol);
        let waits = tokio::spawn(async move {
            let verdict = decided(pending, patience).await;
            session.state().open.remove(&asked.id);
            session.look_again();
            client.say(protocol.answer(&asked, &verdict)).await;
        });
        // The task has not run yet: there is one thread.
        let open = (waits.abort_handle(), has_approvers);
        self.session.state().open.insert(id, open);
    }
}

/// What somebody decides, if anybody does in time.
async fn decided(pending: Option<Pending>, patience: Duration) -> Verdict {
    let nobody = Verdict::closed(None, By::Timeout);
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
