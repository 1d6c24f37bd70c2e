//! What a driver makes of what its client says.

use std::sync::Arc;
use std::time::Duration;

use peerbus_adapter::mailbox::{WakePath as _, Who};
use peerbus_node::approvals::{Asked, By, Source, Verdict};
use peerbus_node::{EventKind, Node, Pending, claude_code};
use peerbus_wire::{escape, printable};
use serde_json::json;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::{Driver, KIND, Left, Shown};
use crate::process::AgentLines;
use crate::protocol::{Heard, Permission, TurnEnd};
use crate::session::Prompt;
use crate::{DrivenAgent, WHY_CHARS, guard};

/// The pause after a turn that failed, where the next would be given at once; it doubles.
const REST: Duration = Duration::from_secs(5);
/// The longest of them.
const REST_MAX: Duration = Duration::from_secs(300);

/// How long a request to use a tool waits where nobody may allow it: whoever watches sees it.
const UNASKED: Duration = Duration::from_secs(1);

impl Driver<'_> {
    /// What the client says. `Some`: it is not listened to any more.
    pub(super) async fn hear(
        &self,
        to: &AgentLines,
        heard: Heard,
        say: &mut impl FnMut(&str) -> bool,
        shown: &mut Shown,
    ) -> Option<Left> {
        match heard {
            Heard::Ready => self.begun(to, shown).await,
            Heard::Broken(why) => {
                shown.why = Some(escape(&why, WHY_CHARS));
                return Some(Left::Client);
            }
            Heard::Unready(why) => shown.why = Some(escape(&why, WHY_CHARS)),
            Heard::Met(who) => self.mailbox.met(&Who {
                adapter: KIND,
                client: &who.name,
                version: &who.version,
                process: std::process::id(),
                driven: true,
            }),
            Heard::Event(event) => {
                if let Some(node) = &self.node {
                    node.record(event.kind, event.members);
                }
            }
            Heard::Session(id, is_new) => {
                let mut state = self.session.state();
                (state.id, state.is_new) = (Some(id), is_new);
            }
            Heard::Shown(id) => {
                let mut state = self.session.state();
                // It is in the client's file by now.
                state.is_kept |= state.id.is_some();
                state.turns.shown(&id);
            }
            Heard::Result(text) => self.session.state().turns.result(&text),
            Heard::Known(mark, end) => self.session.state().turns.known(mark, &end),
            Heard::Words { answer, texts } => {
                if let Some(answer) = answer {
                    self.session.state().turns.answer(answer);
                }
                let mut lines = texts.iter().flat_map(|text| text.lines());
                let read = lines.all(|line| say(&printable(line)));
                return (!read).then_some(Left::Output);
            }
            Heard::TurnEnd { ids, end } => self.ended(&ids, end, shown),
            Heard::Elsewhere(busy) => {
                self.session.state().turns.elsewhere = busy;
                self.tell();
            }
            Heard::Asks(asked) => self.permit(to, asked),
            Heard::Hook(id, request, written) => {
                let (node, hook) = (self.node.clone(), id.clone());
                self.open(to, id, false, async move {
                    let answer = match node {
                        Some(node) => node.hook(&hook, &request).await,
                        None => json!({}),
                    };
                    Some(written(&hook, &answer))
                });
            }
            Heard::Withdrawn(id) => {
                let open = self.session.state().open.remove(&id);
                if let Some((waits, _)) = open {
                    waits.abort();
                }
            }
        }
        None
    }

    /// A tool answered: its answer may have brought mail.
    pub(super) fn answered(&self, line: &str) {
        let marks = self.mailbox.watched().into_iter();
        for mark in marks.filter(|mark| line.contains(&**mark)) {
            if !self.protocol.returned(&mark, line) {
                self.session.state().turns.returned(mark, line);
            }
        }
    }

    async fn begun(&self, client: &AgentLines, shown: &mut Shown) {
        shown.ready = true;
        let wrappers = match &self.settings.agent {
            DrivenAgent::Claude { .. } => 0,
            DrivenAgent::Acp(agent) => agent.agent.wrappers(),
        };
        self.mailbox.is_in(guard::agents(wrappers));
        self.session.state().client = Some(client.clone());
        let prompt = {
            let state = self.session.state();
            let prompt = state.prompt.as_ref();
            prompt.map(|prompt| match prompt.uuid {
                Some(_) => format!(
                    "(You may have been told this before: {} ended before it was done.)\n\n{}",
                    self.protocol.title(),
                    prompt.text
                ),
                None => prompt.text.clone(),
            })
        };
        if let Some(text) = prompt {
            self.mailbox.prompted(&text);
            let uuid = self.session.turn(text.as_str().into()).await;
            if let Some(prompt) = &mut self.session.state().prompt {
                prompt.uuid = uuid.or(prompt.uuid.take());
            }
        }
        self.tell();
    }

    fn ended(&self, ids: &[String], end: TurnEnd, shown: &mut Shown) {
        let mut state = self.session.state();
        let over = state.turns.ended(ids, &end);
        let of = |prompt: &mut Prompt| prompt.uuid.clone().is_some_and(|id| over.contains(&id));
        state.prompt.take_if(of);
        match end {
            TurnEnd::Failed(why) => {
                state.failures += 1;
                drop(state);
                let why = escape(&why, WHY_CHARS);
                tracing::warn!("a turn failed: {why}");
                self.tell_failed(&why);
                let rest = self.rest();
                self.found();
                let again = self.mailbox.machine(|it, now_ms| it.again_in_ms(now_ms));
                let next = rest.map_or_else(String::new, |rest| {
                    let pause = rest.as_secs().max(again.div_ceil(1_000));
                    format!(", and the next begins {pause} s after it, or when mail comes")
                });
                let failed = format!("its last turn failed{next}: {why}");
                self.turn_ended(Some(failed.into()));
                shown.why = Some(why);
            }
            TurnEnd::Well | TurnEnd::Unproven => {
                state.failures = 0;
                drop(state);
                self.turn_ended(None);
                shown.worked = true;
                shown.why = None;
            }
            TurnEnd::Unshown => {
                state.failures += 1;
                drop(state);
                tracing::debug!("a turn ended before its text was taken");
                self.rest();
            }
            TurnEnd::Stopped(why) => {
                drop(state);
                self.turn_ended(None);
                self.tell_failed(&escape(&why, WHY_CHARS));
            }
        }
    }

    /// The mailbox gets what was found out about its mail.
    pub(super) fn found(&self) {
        let found = self.session.state().turns.take();
        found.iter().for_each(|found| self.mailbox.shows(found));
    }

    fn turn_ended(&self, failed: Option<Arc<str>>) {
        self.mailbox
            .machine(|it, now_ms| it.turn_ended(now_ms, failed));
    }

    /// Whoever watches is told that a turn has no answer, and why.
    fn tell_failed(&self, why: &str) {
        if let Some(node) = &self.node {
            node.record(EventKind::Message, claude_code::failed(why));
        }
    }

    /// Gives no turn for a while, where what failed would be given again at once: for how long.
    fn rest(&self) -> Option<Duration> {
        let path = self.protocol.path();
        if !path.one_shot {
            return None;
        }
        let failures = self.session.state().failures;
        let pause = (REST * (1 << (failures.clamp(1, 7) - 1))).min(REST_MAX);
        let (session, mailbox) = (self.session.clone(), self.mailbox.clone());
        let rests = tokio::spawn(async move {
            sleep(pause).await;
            session.state().rest = None;
            mailbox.found(path, session.probe().await);
        });
        // The task has not run yet: there is one thread.
        let before = self.session.state().rest.replace(rests.abort_handle());
        before.inspect(AbortHandle::abort);
        Some(pause)
    }

    fn permit(&self, client: &AgentLines, asked: Permission) {
        let node = self.node.as_ref();
        let in_editor = self.protocol.is_in_editor();
        let has_approvers = in_editor || node.is_some_and(Node::has_approvers);
        let patience = match has_approvers {
            // The editor asks, too, and waits for its user.
            true if in_editor => Duration::MAX,
            true => self.settings.approval,
            false => UNASKED.min(self.settings.approval),
        };
        let source = match asked.options.is_null() {
            true => Source::Stream,
            false => Source::Options,
        };
        let what = Asked {
            turn: self.session.state().turns.messages(),
            ..asked.asked.clone()
        };
        let pending = node.and_then(|node| node.ask(source, what, patience));
        let asks = pending.as_ref().filter(|_| has_approvers && !in_editor);
        if let Some(asks) = asks.and_then(Pending::asks) {
            tracing::warn!("{asks}");
        }
        let by = match has_approvers {
            true => By::Timeout,
            false => By::Nobody,
        };
        let (protocol, id) = (Arc::clone(&self.protocol), asked.id.clone());
        self.open(client, id, has_approvers, async move {
            let verdict = decided(pending, patience, by).await;
            protocol.answer(&asked, &verdict)
        });
    }

    /// Has the client wait for this answer to a request, until it takes that back. `asks`: its user, who may
    /// decide.
    fn open(
        &self,
        client: &AgentLines,
        id: String,
        asks: bool,
        answer: impl Future<Output = Option<String>> + Send + 'static,
    ) {
        let (session, client, open) = (self.session.clone(), client.clone(), id.clone());
        let waits = tokio::spawn(async move {
            let answer = answer.await;
            session.state().open.remove(&open);
            session.look_again();
            if let Some(answer) = answer {
                client.say(answer).await;
            }
        });
        // The task has not run yet: there is one thread.
        let open = (waits.abort_handle(), asks);
        if let Some((before, _)) = self.session.state().open.insert(id, open) {
            before.abort();
        }
    }
}

/// What somebody decides, if anybody does in time.
async fn decided(pending: Option<Pending>, patience: Duration, by: By) -> Verdict {
    let nobody = Verdict::closed(None, by);
    let Some(mut pending) = pending else {
        sleep(patience).await;
        return nobody;
    };
    match timeout(patience, pending.verdict()).await {
        Ok(verdict) => verdict,
        Err(_) => {
            if let Some(denied) = pending.lapse(&nobody.by) {
                tracing::warn!("{denied}");
            }
            nobody
        }
    }
}
