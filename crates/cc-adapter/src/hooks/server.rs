//! The adapter's end: it answers hooks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use peerbus_adapter::hooks::{ATTACH, Ask, HOOK, HookConnection};
use peerbus_adapter::mailbox::{self, Activity, BoxFuture, Checkout, Mailbox, Outcome};
use peerbus_node::Node;
use peerbus_node::approvals::{By, Decision, Source, Verdict};
use serde_json::json;
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};

use super::ENDS_TURN;
use super::occasion::{Event, Occasion};
use super::rewake::Rewake;
use crate::relay::ASKS;
use crate::session::ClaudeSession;

/// How long the hook that ends a turn gives the one that starts with it to sit down.
const ARRIVAL: Duration = Duration::from_millis(300);

/// How long a session that starts may take to be on the bus. Its hook waits for less than a second.
const JOINS: Duration = Duration::from_millis(400);

/// How soon after the client ended a hook the session does something else.
const TELLS: Duration = Duration::from_secs(1);

/// What the model is told where who denies says nothing.
const DENIED: &str = "The user denied this, from outside of the terminal.";

/// What serves the hooks of the session, and the wake path that they are. `session` learns what each
/// event says about it. Without `rewakes` no hook is kept waiting.
pub(crate) fn server(
    rewakes: bool,
    mailbox: Mailbox,
    session: ClaudeSession,
    node: Node,
) -> (
    Rewake,
    impl Fn(HookConnection) -> BoxFuture<'static, ()> + Send + Sync + use<>,
) {
    let rewake = Rewake::new(mailbox.clone());
    let server = Arc::new(HookServer {
        rewake: rewake.clone(),
        rewakes,
        mailbox,
        session,
        node,
        compares: Arc::new(Semaphore::new(1)),
        links: watch::Sender::default(),
        prompted: AtomicBool::new(false),
    });
    let receive = move |hook| -> BoxFuture<'static, ()> {
        let server = Arc::clone(&server);
        Box::pin(async move { server.receive(hook).await })
    };
    (rewake, receive)
}

/// A verdict as the client takes it from a hook. `None`: the user has decided, or nobody.
fn verdict_for_client(verdict: &Verdict) -> Option<String> {
    if !matches!(verdict.by, By::Node | By::Peer(_)) {
        return None;
    }
    let mut decision = match verdict.decision? {
        Decision::Allow | Decision::AllowAlways => json!({ "behavior": "allow" }),
        Decision::Deny => json!({
            "behavior": "deny",
            "message": verdict.message.as_deref().unwrap_or(DENIED),
        }),
    };
    if let Some(input) = &verdict.input {
        decision["updatedInput"] = input.value().clone();
    }
    if let Some(updates) = verdict.updates() {
        decision["updatedPermissions"] = updates;
    }
    if verdict.interrupt {
        decision["interrupt"] = true.into();
    }
    let event = Event::Permission.name();
    let output = json!({ "hookEventName": event, "decision": decision });
    Some(json!({ "hookSpecificOutput": output }).to_string())
}

pub(super) struct HookServer {
    pub(super) mailbox: Mailbox,
    rewake: Rewake,
    rewakes: bool,
    pub(super) session: ClaudeSession,
    pub(super) node: Node,
    /// The module's word is compared with the transcript, once at a time.
    pub(super) compares: Arc<Semaphore>,
    /// So many links to the module were opened.
    pub(super) links: watch::Sender<u64>,
    /// A prompt came in after the module told of the last turn that began.
    pub(super) prompted: AtomicBool,
}

/// What a hook is to show, and the part of it that counts as shown.
type Answer = (String, Option<Checkout>);

impl HookServer {
    async fn receive(&self, mut hook: HookConnection) {
        if let Some(attach) = hook.asked(ATTACH) {
            return self.link(hook, &attach).await;
        }
        let Some(ask) = hook.asked::<Ask<Occasion>>(HOOK) else {
            return;
        };
        if !self.session.told(ask.on.facts()) {
            tracing::debug!("a hook of another session asked");
            return;
        }
        self.mailbox.report(&self.session);
        if ask.on.event() == Event::Permission {
            return self.permit(hook, &ask.on).await;
        }
        if ask.wait && !ask.on.event().asks() {
            if self.rewakes {
                self.wait(&mut hook).await;
            }
            return;
        }
        if ask.on.event() == Event::Tool && !ask.on.in_subagent() && self.session.ends_turn() {
            if hook.offer(ENDS_TURN.to_owned()).await {
                self.does(Activity::Idle);
            }
            return;
        }
        match self.answer(&ask.on).await {
            Some((text, checkout)) => {
                if hook.offer(text).await
                    && let Some(mut checkout) = checkout
                {
                    checkout.taken();
                }
            }
            None => hook.nothing().await,
        }
    }

    /// Keeps the hook until somebody has decided on what the client asks its user, or the user has. Beside a
    /// dialog it waits also while nobody else may decide: those who watch are shown what is asked, and the
    /// gate may open meanwhile. Where there is no dialog the client waits for the hook.
    async fn permit(&self, mut hook: HookConnection, on: &Occasion) {
        let waits = on.has_dialog() || self.node.has_approvers();
        let asked = on.asked().filter(|_| waits);
        let pending = asked.and_then(|asked| self.node.ask(Source::Hook, asked, ASKS));
        let Some(mut pending) = pending else {
            return hook.nothing().await;
        };
        let verdict = tokio::select! {
            verdict = pending.verdict() => verdict,
            () = hook.gone() => {
                // The client ends it when the user says no. What the session does then tells; a
                // client that says nothing of that may have ended the hook for another reason.
                if timeout(TELLS, pending.verdict()).await.is_err() {
                    pending.close(None, &By::Client);
                }
                return;
            }
            () = sleep(ASKS) => {
                pending.close(None, &By::Timeout);
                return hook.nothing().await;
            }
        };
        let Some(text) = verdict_for_client(&verdict) else {
            return hook.nothing().await;
        };
        if !hook.offer(text).await {
            tracing::warn!("a verdict came too late for the client");
        }
    }

    /// Keeps the hook until something is due, another waits in its place, or it is gone.
    async fn wait(&self, hook: &mut HookConnection) {
        let mut waiter = self.rewake.wait_here();
        let due = tokio::select! {
            due = waiter.due() => due,
            () = hook.gone() => None,
        };
        if let Some(due) = due {
            let outcome = if hook.offer(due.text).await {
                Outcome::Written
            } else {
                Outcome::Failed
            };
            // The session ends when nobody wants to know.
            let _ = due.outcome.send(outcome);
        }
    }

    /// What a hook is to show. A subagent works on something of its own while the session may be
    /// idle, and its words are no evidence of what the session has read: it gets nothing.
    async fn answer(&self, on: &Occasion) -> Option<Answer> {
        if on.in_subagent() {
            return None;
        }
        match on.event() {
            Event::Start => {
                if on.starts_idle() {
                    self.does(Activity::Idle);
                }
                Some(self.introduce().await)
            }
            Event::Prompt | Event::Tool => {
                if on.event() == Event::Prompt {
                    self.prompted.store(true, Ordering::Relaxed);
                    self.turn_over();
                }
                self.does(Activity::Busy);
                if let Some(prompt) = on.prompt().filter(|_| on.event() == Event::Prompt) {
                    self.mailbox.prompted(prompt);
                }
                // What a bus tool answers has it already.
                if on.bus_tool() {
                    None
                } else {
                    self.unseen().await
                }
            }
            Event::Stop => {
                self.turn_over();
                let answer = if self.prevents_stop(on).await {
                    self.unseen().await
                } else {
                    None
                };
                if answer.is_none() {
                    self.does(Activity::Idle);
                }
                answer
            }
            Event::ModTurn => {
                self.turn(on);
                None
            }
            Event::ModStep => {
                self.step(on);
                None
            }
            Event::ModDrop => {
                self.dropped(on);
                None
            }
            Event::ModSend => Some((self.send(on).await?, None)),
            Event::ModList => Some((self.list().await, None)),
            Event::ModBus => Some((self.desk().await, None)),
            Event::Permission | Event::Other => None,
        }
    }

    /// The turn before has ended, and its dialogs.
    fn turn_over(&self) {
        self.session.turn_is_over();
        self.node.dialogs_over(None);
    }

    pub(super) fn does(&self, activity: Activity) {
        self.session.does(activity);
        self.mailbox.report(&self.session);
    }

    async fn unseen(&self) -> Option<Answer> {
        self.mailbox.confirm_alive().await;
        let (push, checkout) = self.mailbox.along(&mailbox::HOOK)?;
        Some((push.text(), Some(checkout)))
    }

    async fn introduce(&self) -> Answer {
        let mut text = match self.mailbox.bus().joined(JOINS).await {
            Ok(name) => format!("On the message bus peerbus this session is {name}."),
            Err(why) => {
                format!("This session is not connected to the message bus peerbus: {why}")
            }
        };
        self.mailbox.confirm_alive().await;
        let (push, checkout) = self.mailbox.along(&mailbox::HOOK).unzip();
        if let Some(push) = push {
            text.push('\n');
            text.push_str(&push.text());
        }
        (text, checkout)
    }

    /// Whether the turn goes on for what nothing has shown yet. Not twice in a row; and not where a
    /// hook waits, which shows it once: what ends a turn this way is shown twice by the client.
    async fn prevents_stop(&self, on: &Occasion) -> bool {
        self.mailbox.confirm_alive().await;
        !on.prevented_before()
            && self.mailbox.machine(|it, _| it.has_unshown())
            && timeout(ARRIVAL, self.rewake.waits()).await.is_err()
            && self.mailbox.machine(|it, _| it.has_unshown())
    }
}

#[cfg(test)]
mod tests {
    use peerbus_node::approvals::NewInput;
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_client_is_told_what_is_to_run_and_that_the_turn_is_to_end() {
        let told = |verdict: &Verdict| {
            let text = verdict_for_client(verdict).unwrap();
            let told: Value = serde_json::from_str(&text).unwrap();
            told["hookSpecificOutput"]["decision"].clone()
        };
        let mode = json!({ "type": "setMode", "mode": "plan", "destination": "session" });
        let changed = Verdict {
            input: Some(NewInput::Changed(json!({ "command": "ls" }))),
            permissions: vec![serde_json::from_value(mode.clone()).unwrap()],
            ..Verdict::closed(Some(Decision::Allow), By::Node)
        };
        let allowed = json!({ "behavior": "allow", "updatedInput": { "command": "ls" },
            "updatedPermissions": [mode] });
        assert_eq!(told(&changed), allowed);
        let denied = Verdict {
            interrupt: true,
            ..Verdict::closed(Some(Decision::Deny), By::Node)
        };
        assert_eq!(told(&denied)["interrupt"], true);
    }
}
