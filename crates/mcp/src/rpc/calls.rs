//! Answers to tool calls on their way to the client.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use peerbus_adapter::mailbox::Checkout;
use peerbus_os::sync::lock;
use rmcp::model::RequestId;
use tokio::sync::Notify;

#[derive(Default)]
pub(crate) struct Sending {
    /// JSON text of its structured content. rmcp's result holds decoded JSON, which would change
    /// the spelling of numbers in a body: the text travels beside it.
    pub(crate) structured: Option<String>,
    /// The mail in it, told what becomes of it. Dropped before it is taken, the client does not have it,
    /// or at least never showed that it has.
    pub(crate) mail: Vec<Checkout>,
}

#[derive(Clone, Default)]
pub(crate) struct Calls {
    open: Arc<Mutex<Open>>,
    /// An answer left whose mail waits.
    left: Arc<Notify>,
}

#[derive(Default)]
struct Open {
    answers: HashMap<RequestId, Sending>,
    /// These left, and the client has asked for nothing since.
    waiting: Vec<(RequestId, Checkout)>,
    /// These were taken last: a cancellation can cross an answer on the way.
    last: Vec<(RequestId, Checkout)>,
}

impl Calls {
    pub(crate) fn answer(&self, id: RequestId, answer: Sending) {
        let replaced = self.with(|open| open.answers.insert(id, answer));
        drop(replaced);
    }

    /// The structured content, when the answer is about to be written.
    pub(super) fn structured(&self, id: &RequestId) -> Option<String> {
        self.with(|open| open.answers.get_mut(id)?.structured.take())
    }

    pub(super) fn flushed(&self, id: RequestId) {
        let Some(answer) = self.with(|open| open.answers.remove(&id)) else {
            return;
        };
        for mut mail in answer.mail {
            mail.left();
            self.with(|open| open.waiting.push((id.clone(), mail)));
            self.left.notify_one();
        }
    }

    /// Waits until an answer has left whose mail waits.
    pub(super) async fn left(&self) {
        self.left.notified().await;
    }

    /// Mail waits for a sign of life.
    pub(super) fn wait(&self) -> bool {
        self.with(|open| !open.waiting.is_empty())
    }

    /// The client lives: what left before is with it. A library answers a ping, too, that refused
    /// the line before.
    pub(super) fn alive(&self) {
        let waiting = self.with(|open| std::mem::take(&mut open.waiting));
        for (_, mail) in &waiting {
            mail.reached();
        }
        self.with(|open| open.waiting.splice(..0, waiting).for_each(drop));
    }

    pub(super) fn goes_on(&self) {
        let mut taken = self.with(|open| std::mem::take(&mut open.waiting));
        if taken.is_empty() {
            return;
        }
        for (_, mail) in &mut taken {
            mail.taken();
        }
        let replaced = self.with(|open| std::mem::replace(&mut open.last, taken));
        drop(replaced);
    }

    /// The client cancelled the call, and ignores its answer whether it left or not.
    pub(super) fn cancel(&self, id: &RequestId) {
        let thrown = self.with(|open| {
            let answer = open.answers.remove(id);
            let mut found = answer.map_or_else(Vec::new, |answer| answer.mail);
            for list in [&mut open.waiting, &mut open.last] {
                let of_it = list.extract_if(.., |(of, _)| of == id);
                found.extend(of_it.map(|(_, mail)| mail));
            }
            found
        });
        thrown.into_iter().for_each(Checkout::cancelled);
    }

    /// Runs `f`; mail is told and dropped outside the lock, because it takes another one.
    fn with<T>(&self, f: impl FnOnce(&mut Open) -> T) -> T {
        f(&mut lock(&self.open))
    }
}
