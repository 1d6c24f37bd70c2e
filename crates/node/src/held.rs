//! Mail that waits for the user, who decides about it here.

use std::borrow::Cow;

use peerbus_adapter::mailbox::quote::said;
use peerbus_adapter::mailbox::{Mail, Undecided};
use peerbus_wire::Priority;
use serde_json::{Value, json};

use crate::Shared;
use crate::approvals::{Choice, digest};
use crate::protocol::NodeError;

impl Shared {
    /// As `session/held` tells it.
    pub(crate) fn held(&self) -> Value {
        let held = self.mailbox.withheld();
        let held: Vec<_> = held.iter().map(|(_, mail)| told(mail)).collect();
        json!({ "held": held })
    }

    /// The agent gets a message that waits, or its sender is told that it does not.
    pub(crate) fn decide_held(&self, choice: &Choice, show: bool) -> Result<Value, NodeError> {
        let is_of = |mail: &Mail| {
            let from = choice.from.as_deref();
            mail.inbound.id == choice.id
                && from.is_none_or(|from| mail.inbound.from.eq_ignore_ascii_case(from))
        };
        let is_seen = |mail: &Mail| {
            let seen = choice.digest.as_deref();
            seen.map_or(!show, |seen| told(mail)["digest"] == seen)
        };
        if !self.mailbox.withheld().iter().any(|(_, mail)| is_of(mail)) {
            return Err(unknown());
        }
        let meant = |mail: &Mail| is_of(mail) && is_seen(mail);
        let decided = self.mailbox.decide(meant, show);
        let mail = decided.map_err(|undecided| match undecided {
            Undecided::Unknown => NodeError::params(
                "`digest` is not that of a message of that id: pass the one that came with what \
                 you saw",
            ),
            Undecided::Several => {
                NodeError::params("several messages have that id: say which is meant by `digest`")
            }
            Undecided::Gone => unknown(),
        })?;
        let (id, from) = (&mail.inbound.id, &mail.inbound.from);
        Ok(json!({ "id": id, "from": from, "released": show }))
    }
}

fn unknown() -> NodeError {
    NodeError::unable(
        "no message of that id waits for its user here: `session/held` lists those that do",
    )
}

/// A message as it is shown, with the digest of that. Where it says something that the agent is
/// shown beside its text, all of its body is shown.
fn told(mail: &Mail) -> Value {
    let inbound = &mail.inbound;
    let talk = &mail.talk;
    let says_more = !talk.meta.is_empty()
        || talk.thread.is_some()
        || talk.reply_to.is_some()
        || talk.within_ms.is_some()
        || talk.priority != Priority::default();
    let text = match says_more {
        false => said(&inbound.body),
        true => Cow::from(&inbound.body),
    };
    let mut shown = json!({
        "id": inbound.id,
        "from": inbound.from,
        "token": inbound.token,
        "sent_at": inbound.ts,
        "text": text,
    });
    shown["digest"] = digest(&shown).into();
    shown
}
