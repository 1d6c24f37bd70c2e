//! Messages on their way to the broker, in the order in which they were sent.

use std::collections::VecDeque;

use peerbus_core::Now;
use peerbus_wire::{
    Address, Carried, Conversation, Decoded, Domain, Envelope, MessageId, PROTOCOL_VERSION,
    PeerName, Refusal, RefusalCode, Secret, body_of,
};

use super::PeerSession;
use super::types::{Draft, Overloaded, Unsent};

/// Most messages that may wait for a receipt.
pub(super) const MESSAGES_MAX: usize = 1_024;
/// Most bytes of their bodies.
pub(super) const BYTES_MAX: usize = 16 * 1_048_576;
/// Most messages that are on the wire without a receipt. Leaves room for other frames under
/// [`peerbus_wire::limits::FRAMES_UNANSWERED_MAX`].
pub(super) const ON_WIRE_MAX: usize = 200;
/// A message is not sent again after this many milliseconds. The broker knows an id for at least ten minutes, so a
/// message sent twice within this time is recognised.
pub const GIVE_UP_MS: u64 = 300_000;

const _: () = assert!(ON_WIRE_MAX < peerbus_wire::limits::FRAMES_UNANSWERED_MAX);
const _: () = assert!(GIVE_UP_MS < 600_000);

#[derive(Debug)]
struct Entry {
    draft: Draft,
    deadline_ms: u64,
    give_up_ms: u64,
    /// How it was on the wire, if it was: the broker may have accepted it so, and knows it again
    /// by its bytes.
    left: Option<Left>,
    /// The caller was told that nothing is known.
    told: bool,
}

/// What a message was signed with.
#[derive(Debug, Clone)]
struct Left {
    from: PeerName,
    secret: Secret,
}

/// The outbox. The first `on_wire` entries are on the wire of this connection.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    entries: VecDeque<Entry>,
    on_wire: usize,
    bytes: usize,
    /// A message was to be sent, ever.
    used: bool,
}

/// What the passing of time did to a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Expired {
    /// Tell the caller.
    Deadline(MessageId, Unsent),
    /// The caller knows that nothing is known, and nothing more will be.
    GaveUp(MessageId),
}

impl Outbox {
    pub(super) fn push(
        &mut self,
        draft: Draft,
        now_ms: u64,
        deadline_ms: u64,
    ) -> Result<(), Overloaded> {
        let bytes = self.bytes + draft.body.len();
        if self.entries.len() >= MESSAGES_MAX || bytes > BYTES_MAX {
            return Err(Overloaded {
                waiting: self.entries.len(),
                bytes: self.bytes,
            });
        }
        self.bytes = bytes;
        self.used = true;
        let give_up_ms = now_ms.saturating_add(GIVE_UP_MS);
        let deadline_ms = deadline_ms.min(give_up_ms);
        self.entries.push_back(Entry {
            draft,
            deadline_ms,
            give_up_ms,
            left: None,
            told: false,
        });
        Ok(())
    }

    /// The next message to put on the wire, signed as it was the first time, or under `own`: to
    /// another domain than the broker's own with that behind it. `Err` for one that cannot be sent
    /// under this name, which is dropped.
    pub(super) fn next(
        &mut self,
        own: &PeerName,
        domain: Option<&Domain>,
        secret: &Secret,
    ) -> Option<Result<Carried, (MessageId, Refusal)>> {
        if self.on_wire >= ON_WIRE_MAX {
            return None;
        }
        let entry = self.entries.get_mut(self.on_wire)?;
        let left = entry.left.clone().map_or_else(
            || {
                let from = sender(own, domain, &entry.draft.to)?;
                let secret = secret.clone();
                Ok(Left { from, secret })
            },
            Ok,
        );
        let signed = left.and_then(|left| {
            let carried = sign(&entry.draft, &left.from, &left.secret)?;
            Ok((carried, left))
        });
        Some(match signed {
            Ok((carried, left)) => {
                entry.left = Some(left);
                self.on_wire += 1;
                Ok(carried)
            }
            Err(refusal) => {
                let id = entry.draft.id.clone();
                self.remove(self.on_wire);
                Err((id, refusal))
            }
        })
    }

    /// The broker said what became of a message: takes it out, with whether its caller was told.
    pub(super) fn settle(&mut self, id: &MessageId) -> Option<(bool, Draft)> {
        let is_it = |entry: &Entry| entry.draft.id == *id;
        let at = self.entries.iter().position(is_it)?;
        let entry = self.remove(at)?;
        Some((entry.told, entry.draft))
    }

    /// Everything on the wire was flushed to a broker that gives no receipts: takes it out.
    pub(super) fn written(&mut self) -> Vec<MessageId> {
        let mut ids = Vec::new();
        while self.on_wire > 0 {
            let Some(entry) = self.entries.front() else {
                break;
            };
            if !entry.told {
                ids.push(entry.draft.id.clone());
            }
            self.remove(0);
        }
        ids
    }

    /// The connection ended: what was on its wire is to be sent again, in order. Says how many.
    pub(super) fn rewind(&mut self) -> usize {
        std::mem::take(&mut self.on_wire)
    }

    /// The process goes by another name from now on. What was on the wire may have been accepted
    /// under the old name; under the new one it would be another message, so it is not sent again.
    pub(super) fn disown(&mut self) -> Vec<Expired> {
        let mut disowned = Vec::new();
        let mut at = 0;
        while let Some(entry) = self.entries.get(at) {
            if entry.left.is_none() {
                at += 1;
                continue;
            }
            disowned.push(entry.end(0));
            self.remove(at);
        }
        disowned
    }

    /// What has come due at `now_ms`.
    pub(super) fn expire(&mut self, now_ms: u64) -> Vec<Expired> {
        let mut expired = Vec::new();
        let mut at = 0;
        while let Some(entry) = self.entries.get_mut(at) {
            let resent_for_ms = entry.give_up_ms.saturating_sub(now_ms);
            let over = resent_for_ms == 0 || entry.left.is_none();
            if entry.due_ms() > now_ms {
                at += 1;
                continue;
            }
            expired.push(entry.end(resent_for_ms));
            entry.told = true;
            if over {
                self.remove(at);
            } else {
                at += 1;
            }
        }
        expired
    }

    pub(super) fn timeout(&self) -> Option<u64> {
        self.entries.iter().map(Entry::due_ms).min()
    }

    /// Empties the outbox: what every caller that still waits is to be told.
    pub(super) fn close(&mut self) -> Vec<Expired> {
        self.on_wire = 0;
        self.bytes = 0;
        let waiting = self.entries.drain(..).filter(|entry| !entry.told);
        waiting.map(|entry| entry.end(0)).collect()
    }

    fn remove(&mut self, at: usize) -> Option<Entry> {
        let entry = self.entries.remove(at)?;
        self.bytes -= entry.draft.body.len();
        if at < self.on_wire {
            self.on_wire -= 1;
        }
        Some(entry)
    }

    pub(super) fn is_unused(&self) -> bool {
        !self.used
    }

    pub(super) fn check(&self) {
        assert!(self.on_wire <= self.entries.len() && self.on_wire <= ON_WIRE_MAX);
        assert!(self.entries.len() <= MESSAGES_MAX && self.bytes <= BYTES_MAX);
        let bodies = self.entries.iter().map(|entry| entry.draft.body.len());
        assert_eq!(bodies.sum::<usize>(), self.bytes, "outbox bytes");
        for (at, entry) in self.entries.iter().enumerate() {
            let left = entry.left.is_some();
            assert!(left || at >= self.on_wire, "on the wire but never left");
            assert!(
                left || !entry.told,
                "told, but it never left and was not dropped"
            );
        }
    }
}

impl Entry {
    /// When something is to be said of it next.
    fn due_ms(&self) -> u64 {
        if self.told {
            self.give_up_ms
        } else {
            self.deadline_ms
        }
    }

    /// What is to be said of it if it is sent again for so long.
    fn end(&self, resent_for_ms: u64) -> Expired {
        let id = self.draft.id.clone();
        match (self.told, self.left.is_some()) {
            (true, _) => Expired::GaveUp(id),
            (false, false) => Expired::Deadline(id, Unsent::NeverLeft),
            (false, true) => Expired::Deadline(id, Unsent::Unconfirmed { resent_for_ms }),
        }
    }
}

/// The other domain to which mail for `to` goes, from a broker with this one.
pub(super) fn abroad(domain: Option<&Domain>, to: &PeerName) -> Option<Domain> {
    let (own, (_, other)) = (domain?, to.address()?);
    (other != *own).then_some(other)
}

/// Who a message to `to` is from: in another domain nobody knows a name of this one.
fn sender(own: &PeerName, domain: Option<&Domain>, to: &Address) -> Result<PeerName, Refusal> {
    let (Some(domain), Address::Peer(to)) = (domain, to) else {
        return Ok(own.clone());
    };
    if abroad(Some(domain), to).is_none() {
        return Ok(own.clone());
    }
    domain.address(own).ok_or_else(|| Refusal {
        code: RefusalCode::From,
        reason: format!(
            "{to} is in another domain, where {own} would be {own}@{domain}, which is too long for \
             a name; take a shorter one"
        ),
    })
}

/// Makes the envelope: the same draft, name and secret give the same bytes.
fn sign(draft: &Draft, from: &PeerName, secret: &Secret) -> Result<Carried, Refusal> {
    let (to, kind) = match &draft.to {
        Address::Peer(name) => (name.as_str().to_owned(), "msg"),
        Address::Group(group) => (group.to_string(), "msg"),
        Address::One(group) => (format!("{group}!"), "msg"),
        Address::All => ("*".to_owned(), "broadcast"),
    };
    let mut envelope = Envelope {
        protocol_version: PROTOCOL_VERSION.into(),
        id: draft.id.as_str().into(),
        from: from.as_str().into(),
        to,
        ts: draft.ts.clone(),
        source: draft.source.clone(),
        kind: kind.into(),
        body: draft.body.clone().into_bytes(),
        hmac: String::new(),
    };
    // A body without a canonical form is refused by `carry`, in a sentence.
    let secret = secret.between(&envelope.from, &envelope.to);
    envelope.hmac = secret.sign(&envelope.canonical().unwrap_or_default());
    let carried = Decoded {
        envelope,
        irregular: None,
    }
    .carry()?;
    // What wants a result says so beside what is signed, for the broker.
    let within_ms = Conversation::of(&draft.body).within_ms;
    Ok(Carried {
        within_ms,
        ..carried
    })
}

impl Draft {
    /// Checks the rules of acceptance as if the draft were sent by `from`, and puts the body into
    /// its canonical form.
    ///
    /// # Errors
    ///
    /// The refusal that the broker would give.
    pub fn validate(&mut self, from: &PeerName) -> Result<(), Refusal> {
        #[expect(clippy::expect_used, reason = "32 bytes are enough for a secret")]
        let placeholder = Secret::new(&[0; 32]).expect("32 bytes");
        let carried = sign(self, from, &placeholder)?;
        self.body = body_of(&carried.text).to_owned();
        Ok(())
    }
}

impl PeerSession {
    /// Sends a message. Its [`Reply::Sent`] comes when its fate is known, at `deadline_ms` (on the
    /// monotonic clock) at the latest, and never later than five minutes from now, after which an
    /// unconfirmed message is not sent again.
    ///
    /// # Errors
    ///
    /// When too many messages wait already; nothing was changed.
    pub fn send(&mut self, now: Now, draft: Draft, deadline_ms: u64) -> Result<(), Overloaded> {
        if self.is_over() {
            self.settle(draft.id, Err(Unsent::NeverLeft));
            return Ok(());
        }
        self.outbox.push(draft, now.mono_ms, deadline_ms)
    }
}
