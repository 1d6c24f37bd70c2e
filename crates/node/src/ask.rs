//! What the session asks its user, and who answers: programs at the node, peers, or the user at the
//! client's own dialog.

use std::sync::Arc;
use std::time::Duration;

use peerbus_adapter::mailbox::Activity;
use peerbus_adapter::mailbox::quote::said;
use peerbus_adapter::{AuditAction, AuditRecord, Inbound, Kind, rfc3339, wall_ms};
use peerbus_core::grant::is_of_gateway;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::approvals::{
    self, Asked, By, Decision, NewInput, Opened, Said, Source, Verdict, VerdictRefusal, Wish,
};
use crate::gates::Gates;
use crate::protocol::EventKind;
use crate::{Node, SessionNow, Shared};

/// How long the broker may take to accept what peers are sent.
const SENDS_WITHIN: Duration = Duration::from_secs(10);

/// A request that waits for its verdict. Dropped, it does not wait any more.
pub struct Pending {
    shared: Arc<Shared>,
    id: String,
    source: Source,
    news: watch::Receiver<u64>,
}

impl Node {
    /// Whether anybody but the user at the client can answer now.
    #[must_use]
    pub fn has_approvers(&self) -> bool {
        self.0.gates().has_approvers()
    }

    /// Shows a request to whoever watches, and asks the peers that may answer `within` this time. `None`:
    /// too many are open.
    #[must_use]
    pub fn ask(&self, source: Source, asked: Asked, within: Duration) -> Option<Pending> {
        let shared = Arc::clone(&self.0);
        let news = shared.news.subscribe();
        let (Opened { id, new, replaces }, asked) = {
            let mut state = shared.state();
            let opened = state.approvals.open(source, asked, rand::random);
            if state.session.activity == Some(Activity::Waiting) {
                state.approvals.dialog_shown();
            }
            let opened = opened?;
            let id = &opened.id;
            if let Some(until) = until(within).filter(|_| opened.new) {
                state.approvals.set_until(id, until);
            }
            let asked = state.approvals.get(id).zip(state.approvals.preview(id));
            (opened, asked)
        };
        if let Some(id) = replaces {
            shared.over(&id, &Verdict::closed(None, By::Client));
        }
        if let Some((told, preview)) = asked.filter(|_| new) {
            shared.record(EventKind::ApprovalRequest, told);
            shared.ask_peers(preview);
        }
        Some(Pending {
            shared,
            id,
            source,
            news,
        })
    }

    /// The user went on at the client: dialogs that were open are not.
    pub fn dialogs_over(&self, decision: Option<Decision>) {
        let ids = self.0.state().approvals.dialogs_over();
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
            let _ = self.news.changed().await;
        }
    }

    /// Whether the verdict is this one's to hand on: another may wait for it, who knows better what
    /// was asked.
    #[must_use]
    pub fn speaks(&self) -> bool {
        self.shared.state().approvals.speaks(&self.id, self.source)
    }

    /// The request, and how it is answered, for the user.
    #[must_use]
    pub fn asks(&self) -> Option<String> {
        let asked = self.shared.state().approvals.get(&self.id)?;
        let now = SessionNow {
            approvals: vec![asked],
            ..SessionNow::listed(self.shared.session())
        };
        let (name, way) = (now.session.title(), now.way_out()?);
        Some(format!("{name} asks: {way}"))
    }

    /// Nobody decided: it is denied, which is audited. Gives a sentence for the user.
    pub fn lapse(self, by: &By) -> Option<String> {
        let (id, shared) = (self.id.clone(), Arc::clone(&self.shared));
        let denied = Verdict::closed(Some(Decision::Deny), by.clone());
        self.close(denied.decision, by);
        shared
            .mailbox
            .bus()
            .audit(verdict_record(&id, by, Some(&denied)));
        let over: Vec<_> = shared.state().approvals.over().collect();
        let now = SessionNow {
            over: over
                .into_iter()
                .filter(|it| it["request_id"] == *id)
                .collect(),
            ..SessionNow::listed(shared.session())
        };
        let denied = now.denied(0, None).pop();
        denied.map(|denied| denied.says(wall_ms()))
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

/// When this time is over, as RFC 3339; `None`: never.
fn until(within: Duration) -> Option<String> {
    let within_ms = u64::try_from(within.as_millis()).ok()?;
    Some(rfc3339(wall_ms().checked_add(within_ms)?))
}

impl Shared {
    pub(crate) fn gates(&self) -> Gates {
        Gates::effective(&self.gates)
    }

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
        let at = rfc3339(wall_ms());
        self.state().approvals.set_closed_at(id, at);
        self.record(EventKind::ApprovalResolved, resolved(id, verdict));
    }

    /// Sends a request to the peers whose word counts.
    fn ask_peers(self: &Arc<Self>, mut preview: Value) {
        let session = self.session();
        preview["session"] = session.name.unwrap_or(session.id).into();
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
        let led = || (!is_of_gateway(&inbound.from)).then(|| said(&inbound.body).into_owned());
        let words = text.or_else(led).filter(|_| inbound.kind == Kind::Msg);
        let Some((id, said)) = words.and_then(|text| approvals::in_words(&text)) else {
            return false;
        };
        if !self.state().approvals.knows(&id) {
            return false;
        }
        let answer = match self.heard(inbound, id.clone(), said) {
            Ok(verdict) => json!({ "approval_resolved": resolved(&id, &verdict) }),
            Err(why) => json!({ "approval_refused": { "request_id": id, "why": why } }),
        };
        self.send(inbound.from.to_string(), answer.to_string());
        true
    }

    fn heard(&self, inbound: &Inbound, id: String, said: Said) -> Result<Verdict, String> {
        let by = By::Peer(inbound.from.clone());
        let decided = self.may_answer(inbound).and_then(|()| {
            let wish = Wish {
                id: id.clone(),
                decision: match said {
                    Said::Verdict(false) => Decision::Deny,
                    Said::Verdict(true) | Said::Answer(_) => Decision::Allow,
                },
                digest: None,
                rule: None,
                destination: None,
                message: None,
                answers: match said {
                    Said::Answer(numbers) => vec![numbers],
                    Said::Verdict(_) => Vec::new(),
                },
                input: None,
                permissions: Vec::new(),
                interrupt: false,
                source: None,
            };
            match self.decide(wish, by.clone()) {
                // It came twice.
                Err(VerdictRefusal::Late(_, verdict)) if verdict.by == by => Ok(*verdict),
                Err(VerdictRefusal::Late(why, _) | VerdictRefusal::Wrong(why)) => Err(why),
                Ok(verdict) => Ok(verdict),
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
    let is_changed = |verdict: &Verdict| {
        let input = matches!(verdict.input, Some(NewInput::Changed(_)));
        input || !verdict.permissions.is_empty() || verdict.interrupt
    };
    let mut outcome = decision.map_or("refused", Decision::word).to_owned();
    if verdict.is_some_and(is_changed) {
        outcome.push_str("_changed");
    }
    AuditRecord {
        request_id: id.to_owned(),
        by: by.to_string(),
        ..AuditRecord::new(AuditAction::Approve, outcome)
    }
}

/// The end of a request, as an event has it.
pub(crate) fn resolved(id: &str, verdict: &Verdict) -> Value {
    let decision = verdict.decision.map(Decision::word);
    let by = verdict.by.to_string();
    let mut members = json!({ "request_id": id, "by": by, "decision": decision });
    if !verdict.source.is_empty() {
        members["source"] = verdict.source.as_str().into();
    }
    if let Some(message) = &verdict.message {
        members["message"] = message.as_str().into();
    }
    if let Some(rule) = &verdict.rule {
        members["rule"] = rule.rule.as_str().into();
        members["destination"] = rule.destination.as_str().into();
    }
    match &verdict.input {
        Some(NewInput::Answered(input)) => members["answers"] = input["answers"].clone(),
        Some(NewInput::Changed(input)) => members["updatedInput"] = input.clone(),
        None => {}
    }
    if !verdict.permissions.is_empty() {
        members["updatedPermissions"] = json!(verdict.permissions);
    }
    if verdict.interrupt {
        members["interrupt"] = true.into();
    }
    members
}
