//! What peers wrote, made fit to be shown, and sentences about messages.

use peerbus_adapter::wake::Priority;
use peerbus_adapter::{Event, Receipt, State};
use peerbus_wire::neutralise;

/// Longest reason that is repeated, in characters.
const REASON_CHARS: usize = 300;

/// A sentence for an event that is no mail and that the agent should know of: what became of a
/// message of its own. `None` for progress as expected.
#[must_use]
pub fn notice(event: &Event) -> Option<String> {
    match event {
        Event::Fate { receipt, .. } => fate(receipt),
        Event::GaveUp { id } => Some(format!(
            "your message {} was never confirmed and is not sent again: it may or may not have \
             arrived",
            neutralise(id, 128)
        )),
        Event::Registered { .. } | Event::Message(_) => None,
    }
}

/// How soon the agent should know. What is lost or refused may need to be done otherwise.
pub(crate) fn priority(event: &Event) -> Priority {
    match event {
        Event::Fate { receipt, .. } => match receipt.state {
            State::Refused(_) | State::Expired { .. } | State::Dead { .. } => Priority::Next,
            _ => Priority::Quiet,
        },
        _ => Priority::Next,
    }
}

fn fate(receipt: &Receipt) -> Option<String> {
    let id = &receipt.id;
    let safe = |text: &str| neutralise(text, REASON_CHARS);
    match &receipt.state {
        State::Accepted { recipients, .. } => Some(format!(
            "your message {id}, of which it was not known, was accepted by the broker \
             ({recipients} recipients)"
        )),
        State::Refused(refusal) => Some(format!(
            "your message {id} was refused by the broker and is not queued: {}",
            safe(&refusal.reason)
        )),
        State::Expired { to, reason } => Some(format!(
            "your message {id} to {} expired and will not be delivered: {}",
            safe(to),
            safe(reason)
        )),
        State::Dead { to, reason } => Some(format!(
            "your message {id} to {} was not shown there and will not be: {}",
            safe(to),
            safe(reason)
        )),
        State::Held { to, reason } => Some(format!(
            "your message {id} to {} waits there: {}",
            safe(to),
            safe(reason)
        )),
        State::Delivered { .. }
        | State::Pushed { .. }
        | State::Presented { .. }
        | State::Acked { .. }
        | State::Queued { .. }
        | State::Settled { .. }
        | State::Unknown => None,
    }
}
