//! Tool calls that are not answered yet.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::RequestId;

use crate::desk::Taken;

/// The open tool calls of a connection: what their answers are, and the mail that is acked when
/// one has left.
#[derive(Clone, Default)]
pub(super) struct Calls(Arc<Mutex<Open>>);

#[derive(Default)]
struct Open {
    calls: HashMap<RequestId, Call>,
    /// The last answer that left with mail: a cancellation can cross it on the way.
    last: Option<(RequestId, Taken)>,
}

#[derive(Default)]
struct Call {
    /// The JSON text of the result. rmcp's result type holds decoded JSON, which would change
    /// the spelling of numbers in a body: the text travels beside it.
    result: Option<String>,
    taken: Option<Taken>,
}

impl Calls {
    /// A call arrived.
    pub(super) fn open(&self, id: RequestId) {
        let replaced = self.with(|open| open.calls.insert(id, Call::default()));
        drop(replaced);
    }

    /// The call has its result. Mail of a call that was cancelled goes back at once.
    pub(super) fn answer(&self, id: &RequestId, result: String, taken: Option<Taken>) {
        let unused = self.with(|open| match open.calls.get_mut(id) {
            Some(call) => {
                *call = Call {
                    result: Some(result),
                    taken,
                };
                None
            }
            None => taken,
        });
        drop(unused);
    }

    /// The result text, when the answer is about to be written.
    pub(super) fn result(&self, id: &RequestId) -> Option<String> {
        self.with(|open| open.calls.get_mut(id).and_then(|call| call.result.take()))
    }

    /// The answer was flushed: the client has it.
    pub(super) fn flushed(&self, id: &RequestId) {
        let replaced = self.with(|open| {
            let mut taken = open.calls.remove(id)?.taken?;
            taken.confirm();
            open.last.replace((id.clone(), taken))
        });
        drop(replaced);
    }

    /// The client cancelled the call, and ignores its answer whether it left or not.
    pub(super) fn cancel(&self, id: &RequestId) {
        let back = self.with(|open| {
            let call = open.calls.remove(id);
            let late = open.last.take_if(|(last, _)| last == id);
            (call, late)
        });
        if let (_, Some((_, mut taken))) = back {
            taken.reopen();
        }
    }

    /// Runs `f`; what it returns is dropped outside the lock, because mail that goes back takes
    /// another one.
    fn with<T>(&self, f: impl FnOnce(&mut Open) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
