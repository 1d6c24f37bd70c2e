//! Answers to tool calls on their way to the client.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::RequestId;
use tokio::sync::Notify;

use crate::reply::Receipt;

/// An answer that did not leave yet.
#[derive(Default)]
pub(crate) struct Sending {
    /// JSON text of its structured content. rmcp's result holds decoded JSON, which would change
    /// the spelling of numbers in a body: the text travels beside it.
    pub(crate) structured: Option<String>,
    pub(crate) receipts: Vec<Box<dyn Receipt>>,
}

/// The answers of a connection.
#[derive(Clone, Default)]
pub(crate) struct Calls {
    open: Arc<Mutex<Open>>,
    /// An answer left whose receipt waits.
    left: Arc<Notify>,
}

#[derive(Default)]
struct Open {
    answers: HashMap<RequestId, Sending>,
    /// These left, and the client has asked for nothing since.
    waiting: Vec<(RequestId, Box<dyn Receipt>)>,
    /// These were taken last: a cancellation can cross an answer on the way.
    last: Vec<(RequestId, Box<dyn Receipt>)>,
}

impl Calls {
    /// The call has its answer.
    pub(crate) fn answer(&self, id: RequestId, answer: Sending) {
        let replaced = self.with(|open| open.answers.insert(id, answer));
        drop(replaced);
    }

    /// The structured content, when the answer is about to be written.
    pub(super) fn structured(&self, id: &RequestId) -> Option<String> {
        self.with(|open| open.answers.get_mut(id)?.structured.take())
    }

    /// The answer was flushed.
    pub(super) fn flushed(&self, id: RequestId) {
        let Some(answer) = self.with(|open| open.answers.remove(&id)) else {
            return;
        };
        for mut receipt in answer.receipts {
            receipt.flushed();
            self.with(|open| open.waiting.push((id.clone(), receipt)));
            self.left.notify_one();
        }
    }

    /// Waits until an answer has left whose receipt waits.
    pub(super) async fn left(&self) {
        self.left.notified().await;
    }

    /// Receipts wait for a sign of life.
    pub(super) fn wait(&self) -> bool {
        self.with(|open| !open.waiting.is_empty())
    }

    /// The client lives: what left before is with it. A library answers a ping, too, that refused
    /// the line before.
    pub(super) fn alive(&self) {
        let mut waiting = self.with(|open| std::mem::take(&mut open.waiting));
        for (_, receipt) in &mut waiting {
            receipt.reached();
        }
        self.with(|open| open.waiting.splice(..0, waiting).for_each(drop));
    }

    /// The client asked for something: it has what left before.
    pub(super) fn goes_on(&self) {
        let mut taken = self.with(|open| std::mem::take(&mut open.waiting));
        if taken.is_empty() {
            return;
        }
        for (_, receipt) in &mut taken {
            receipt.taken();
        }
        let replaced = self.with(|open| std::mem::replace(&mut open.last, taken));
        drop(replaced);
    }

    /// The client cancelled the call, and ignores its answer whether it left or not.
    pub(super) fn cancel(&self, id: &RequestId) {
        let receipts = self.with(|open| {
            let answer = open.answers.remove(id);
            let mut found = answer.map_or_else(Vec::new, |answer| answer.receipts);
            for list in [&mut open.waiting, &mut open.last] {
                let of_it = list.extract_if(.., |(of, _)| of == id);
                found.extend(of_it.map(|(_, receipt)| receipt));
            }
            found
        });
        for receipt in receipts {
            receipt.cancelled();
        }
    }

    /// Runs `f`; receipts are told and dropped outside the lock, because they take another one.
    fn with<T>(&self, f: impl FnOnce(&mut Open) -> T) -> T {
        f(&mut self.open.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
