//! What the session asks its user, and who answers: programs at the node, peers, or the user at the
//! client's own dialog.

use std::sync::Arc;
use std::time::Duration;

use peerbus_adapter::mailbox::Activity;
use peerbus_adapter::mailbox::quote::said;
use peerbus_adapter::{AuditAction, AuditRecord, Inbound, Kind as MessageKind};
use peerbus_core::grant::GATEWAY_PREFIX;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use crate::approvals::{self, Asked, By, Decision, Opened, Source, Verdict, VerdictRefusal, Wish};
use crate::gates::Gates;
use crate::protocol::EventKind;
use crate::{Node, Shared};

/// How long the broker may take to accept what peers are sent.
const SENDS_WITHIN: Duration = Duration::from_secs(10);

/// A request that waits for its verdict. Dropped, it does not wait any more.
pub struct Pending {
    shared: Arc<Shared>,
    id: String,
    source: Source,
    closed: watch::Receiver<u64>,
}

impl Node {
    /// Whether anybody but the user at the client can answer now.
    #[must_use]
    pub fn has_approvers(&self) -> bool {
        self.0.gates().has_approvers()
    }

    /// Shows a request to whoever watches, and asks the peers that may answer. `None`: too many are
    /// open.
    #[must_use]
    pub fn ask(&self, source: Source, asked: Asked) -> Option<Pending> {
        let shared = Arc::clone(&self.0);
        let closed = shared.closed.subscribe();
        let (opened, replaced, told, preview) = {
            let mut state = shared.state();
            let opened = state.approvals.open(source, asked, rand::random)?;
            if state.session.activity == Some(Activity::Waiting) {
                state.approvals.dialog_shown();
            }
            let Opened { id, replaces, .. } = &opened;
            let replaced = replaces.as_ref().map(|id| {
                let verdict = state.approvals.verdict(id).cloned();
                (id.clone(), verdict)
            });
            let told = state.approvals.get(id).filter(|_| opened.new);
            let preview = state.approvals.preview(id);
            (opened, replaced, told, preview)
        };
        if let Some((id, Some(verdict))) = replaced {
            shared.over(&id, &verdict);
        }
        if let (Some(told), Some(preview)) = (told, preview) {
            shared.record(EventKind::ApprovalRequest, told);
            shared.ask_peers(preview);
        }
        let id = opened.id;
        Some(Pending {
            shared,
            id,
            source,
            closed,
        })
    }

    /// The user went on at the client: dialogs that were open are not.
    pub fn dialogs_over(&self, decision: Option<Decision>) {
        let ids = self.0.state().approvals.with_dialog();
        self.0.close(&ids, decision, &By::Terminal);
    }
}

impl Pending {
    /// Waits for the verdict.
    pub async fn verdict(&mut self) -> Verdict {
        loop {
            let verdict = self.shared.state().approvals.verdict(&self.id).cloned();
            if let Some(verdict) = verdict {
                return verdict;
            }
            // The sender lives as long as self.
            let _ = self.closed.changed().await;
        }
    }

    /// Whether the verdict is this one's to hand on: another may wait for it, who knows better what
    /// was asked.
    #[must_use]
    pub fn speaks(&self) -> bool {
        self.shared.state().approvals.speaks(&self.id, self.source)
    }

    /// It is over in another way.
    pub fn close(self, decision: Option<Decision>, by: &By) {
        self.shared
            .close(std::slice::from_ref(&self.id), decision, by);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let left = self.shared.state().approvals.left(&self.id, self.source);
        if left {
            self.shared
                .close(std::slice::from_ref(&self.id), None, &By::Client);
        }
    }
}

impl Shared {
    pub(crate) fn gates(&self) -> Gates {
        Gates::effective(&self.about.gates)
    }

    /// Decides on a request.
    pub(crate) fn decide(&self, wish: Wish, by: By) -> Result<Verdict, VerdictRefusal> {
        let id = wish.id.clone();
        let verdict = self.state().approvals.decide(wish, by)?;
        self.over(&id, &verdict);
        Ok(verdict)
    }

    pub(crate) fn close(&self, ids: &[String], decision: Option<Decision>, by: &By) {
        for id in ids {
            let verdict = Verdict::closed(decision, by.clone());
            if self.state().approvals.close(id, verdict.clone()) {
                self.over(id, &verdict);
            }
        }
    }

    /// A request is closed: everybody hears of it.
    fn over(&self, id: &str, verdict: &Verdict) {
        self.closed.send_modify(|count| *count += 1);
        self.record(EventKind::ApprovalResolved, resolved(id, verdict));
    }

    /// Sends a request to the peers whose word counts.
    fn ask_peers(self: &Arc<Self>, mut preview: Map<String, Value>) {
        let session = self.session();
        preview.insert("session".into(), session.name.unwrap_or(session.id).into());
        let body = json!({ "approval": preview }).to_string();
        for peer in self.gates().remote {
            self.send(peer, body.clone());
        }
    }

    fn send(self: &Arc<Self>, peer: String, body: String) {
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            let bus = shared.mailbox.bus();
            if let Err(error) = bus.send(&peer, &body, SENDS_WITHIN).await {
                tracing::warn!(peer, %error, "a peer cannot be asked for an approval");
            }
        });
    }

    /// Takes a message that is a verdict in words on a request of this session, whoever sent it: it
    /// is none of the agent's business. Whether it was one.
    pub(crate) fn take_verdict(self: &Arc<Self>, inbound: &Inbound) -> bool {
        let text = serde_json::from_str::<String>(&inbound.body).ok();
        // Where replies led to it, its body says so. The gateway's never does: there a text that is to
        // be no verdict stands in an object.
        let from = inbound.from.to_ascii_lowercase();
        let led = || (!from.starts_with(GATEWAY_PREFIX)).then(|| said(&inbound.body).into_owned());
        let words = text
            .or_else(led)
            .filter(|_| inbound.kind == MessageKind::Msg);
        let Some((id, allows)) = words.and_then(|text| approvals::in_words(&text)) else {
            return false;
        };
        if !self.state().approvals.knows(&id) {
            return false;
        }
        let answer = match self.heard(inbound, id.clone(), allows) {
            Ok(verdict) => json!({ "approval_resolved": resolved(&id, &verdict) }),
            Err(why) => json!({ "approval_refused": { "request_id": id, "why": why } }),
        };
        self.send(inbound.from.to_string(), answer.to_string());
        true
    }

    fn heard(&self, inbound: &Inbound, id: String, allows: bool) -> Result<Verdict, String> {
        let by = By::Peer(inbound.from.clone());
        let decided = self.may_answer(inbound).and_then(|()| {
            let wish = Wish {
                id: id.clone(),
                decision: if allows {
                    Decision::Allow
                } else {
                    Decision::Deny
                },
                digest: None,
                rule: None,
                destination: None,
                message: None,
            };
            match self.decide(wish, by.clone()) {
                // It came twice.
                Err(VerdictRefusal::Late(_, verdict)) if verdict.by == by => Ok(*verdict),
                decided => decided.map_err(|refused| refused.to_string()),
            }
        });
        let record = verdict_record(&id, &by, decided.as_ref().ok());
        self.mailbox.bus().audit(record);
        decided
    }

    fn may_answer(&self, inbound: &Inbound) -> Result<(), String> {
        let peer = &inbound.from;
        if !self.gates().names(peer) {
            return Err(format!(
                "{peer} may not answer for this session: its user does not name it in `remote`"
            ));
        }
        if !inbound.approves {
            return Err(format!(
                "{peer} may not answer for this session: that takes a token other than the \
                 session's own, with the right `approve`, for which the name {peer} is kept \
                 (`peerbus token add {peer} --names {peer} --rights send,approve`)"
            ));
        }
        Ok(())
    }
}

/// A verdict, or the attempt at one, as the broker is told of it.
pub(crate) fn verdict_record(id: &str, by: &By, verdict: Option<&Verdict>) -> AuditRecord {
    let decision = verdict.and_then(|verdict| verdict.decision);
    AuditRecord {
        request_id: id.to_owned(),
        by: by.to_string(),
        ..AuditRecord::new(
            AuditAction::Approve,
            decision.map_or("refused", Decision::word),
        )
    }
}

/// The end of a request, as an event has it.
pub(crate) fn resolved(id: &str, verdict: &Verdict) -> Map<String, Value> {
    let mut members = Map::from_iter([
        ("request_id".to_owned(), Value::from(id)),
        ("by".to_owned(), verdict.by.to_string().into()),
        (
            "decision".to_owned(),
            verdict.decision.map(Decision::word).into(),
        ),
    ]);
    if let Some(message) = &verdict.message {
        members.insert("message".into(), message.as_str().into());
    }
    if let Some(rule) = &verdict.rule {
        members.insert("rule".into(), rule.rule.as_str().into());
        let destination = rule.destination.as_str();
        members.insert("destination".into(), destination.into());
    }
    members
}
