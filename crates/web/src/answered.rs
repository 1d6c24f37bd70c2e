//! The answers to requests with an `Idempotency-Key`: the second one gets the first one's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use peerbus_os::sync::lock;
use serde_json::Value;
use tokio::sync::OnceCell;

/// Answers that are remembered, of one token, and for how long.
const ANSWERS_MAX: usize = 1_000;
const ANSWERS_FOR: Duration = Duration::from_secs(86_400);

/// What requests with a key were answered.
#[derive(Default)]
pub(crate) struct Answered(Mutex<HashMap<String, Entry>>);

struct Entry {
    print: String,
    at: Instant,
    cell: Arc<OnceCell<Value>>,
}

impl Answered {
    /// Where the answer of a request is, or will be; `None`: the key belongs to another one.
    pub(crate) fn cell(&self, id: &str, print: &str) -> Option<Arc<OnceCell<Value>>> {
        let now = Instant::now();
        let mut answers = lock(&self.0);
        answers.retain(|_, entry| now.saturating_duration_since(entry.at) < ANSWERS_FOR);
        if let Some(entry) = answers.get_mut(id) {
            // Nothing was answered with success, and nobody waits for that: the key is free.
            if !entry.cell.initialized() && Arc::strong_count(&entry.cell) == 1 {
                print.clone_into(&mut entry.print);
            }
            return (entry.print == print).then(|| Arc::clone(&entry.cell));
        }
        if answers.len() >= ANSWERS_MAX {
            let oldest = answers.iter().min_by_key(|(_, entry)| entry.at);
            let oldest = oldest.map(|(id, _)| id.clone());
            oldest.and_then(|id| answers.remove(&id));
        }
        let entry = Entry {
            print: print.to_owned(),
            at: now,
            cell: Arc::default(),
        };
        let cell = Arc::clone(&entry.cell);
        answers.insert(id.to_owned(), entry);
        Some(cell)
    }
}
