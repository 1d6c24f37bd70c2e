//! What the other domain sent: taken in order, each message once, and acked in the stream when the own
//! broker has it on disk.

use std::collections::VecDeque;

use peerbus_wire::bridge::{ENVELOPE_BYTES_MAX, Position, StreamHead};
use peerbus_wire::{
    Accepted, Address, Carried, ClientFrame, Conversation, Domain, Envelope, Mark, MessageId,
    PeerName, Refusal, RefusalCode, body_of, escape,
};

use super::mutation::BridgeMutation;
use super::{Bridge, BridgeEvent, BridgeOutput, Link, StreamId};

/// Most messages that wait for the own broker's answer.
pub const TAKES_MAX: usize = 512;
/// Bytes of envelopes that wait for it, about: one message more may.
pub const TAKES_BYTES: usize = 4_194_304;
/// When the own broker has no room now, it is asked again after so long.
const PAUSE_MS: u64 = 5_000;
/// What was taken is confirmed after one to two times so long.
pub(super) const TURN_MS: u64 = 50;

/// A message that the own broker was given.
#[derive(Debug)]
struct Take {
    number: u64,
    id: MessageId,
    stream: StreamId,
    /// Of its envelope.
    bytes: usize,
    /// One before it was refused, and so is this one.
    void: bool,
}

/// How far the messages of the other side were taken.
#[derive(Debug, Default)]
pub(super) struct Taking {
    /// Everything up to this number is on disk, or needs not be taken.
    taken: u64,
    /// What of it is confirmed.
    confirmed: u64,
    /// What of it is confirmed at the next turn, and when that is.
    ripe: u64,
    pub(super) turn_ms: Option<u64>,
    /// What is acked in the stream then.
    acks: Vec<StreamId>,
    /// What the own broker was given, oldest first.
    takes: VecDeque<Take>,
    /// Something came without what stands before it.
    pub(super) gap: bool,
    /// Where that was told last.
    told_gap: Option<u64>,
    /// The own broker has no room until then.
    pub(super) paused_ms: Option<u64>,
    /// A take was refused since the last one that said so.
    again: bool,
}

impl Taking {
    /// A connection to the own broker begins, which says that everything up to a number was taken.
    pub(super) fn begin(&mut self, taken: u64) {
        *self = Self {
            taken,
            confirmed: taken,
            ripe: taken,
            ..Self::default()
        };
    }

    /// Up to which number messages are confirmed now: where something is missing, all that were taken.
    pub(super) fn confirmed(&mut self, gap: bool) -> u64 {
        if gap {
            self.confirmed = self.taken;
        }
        self.confirmed
    }

    /// What will have been taken when the own broker has accepted all that it was given.
    pub(super) fn expected(&self) -> u64 {
        self.takes.back().map_or(self.taken, |take| take.number)
    }

    pub(super) fn has_room(&self) -> bool {
        let void = self.takes.front().is_some_and(|take| take.void);
        let bytes = self.takes.iter().map(|take| take.bytes);
        self.takes.len() < TAKES_MAX
            && bytes.sum::<usize>() < TAKES_BYTES
            && self.paused_ms.is_none()
            && !void
    }

    pub(super) fn holds(&self, id: &MessageId) -> bool {
        self.takes.iter().any(|take| take.id == *id)
    }

    /// What is to be acked in the stream.
    fn take_acks(&mut self) -> impl Iterator<Item = BridgeOutput> + use<> {
        std::mem::take(&mut self.acks)
            .into_iter()
            .map(BridgeOutput::Ack)
    }

    /// What becomes of messages of the stream: those that the own broker has not answered are given up.
    pub(super) fn end(&mut self) -> impl Iterator<Item = BridgeOutput> + use<> {
        let later = std::mem::take(&mut self.takes).into_iter();
        let later = later.map(|take| BridgeOutput::Later(take.stream));
        self.take_acks().chain(later)
    }
}

impl Bridge {
    /// A message came from the stream.
    pub(super) fn came(&mut self, now_ms: u64, stream: StreamId, head: &str, payload: &[u8]) {
        if self.link != Link::Up {
            if !self.far.away {
                return self.outputs.push_back(BridgeOutput::Later(stream));
            }
            // Kept in the stream it would hold up other domains: only so much of it may be handed out
            // and not acked. Its home sends it again when it is back.
            self.outputs.push_back(BridgeOutput::Ack(stream));
            return self.event(BridgeEvent::Stale);
        }
        let Some(head) = StreamHead::parse(head) else {
            self.outputs.push_back(BridgeOutput::Ack(stream));
            return self.refused(None, "it has no head that can be read");
        };
        let stale = self.far.epoch.as_ref() != Some(&head.epoch)
            || self.own.as_ref() != Some(&head.meant_for);
        if stale && !self.mutations.broken(BridgeMutation::TakeStale) {
            // What is owed of it still, its home sends again.
            self.outputs.push_back(BridgeOutput::Ack(stream));
            return self.event(BridgeEvent::Stale);
        }
        let known = head.number <= self.taking.taken;
        if known && !self.mutations.broken(BridgeMutation::TakeKnown) {
            self.outputs.push_back(BridgeOutput::Ack(stream));
            self.event(BridgeEvent::Doubled);
            return self.far.soon(now_ms);
        }
        let expected = self.taking.expected();
        if !known && head.number <= expected {
            return self.outputs.push_back(BridgeOutput::Later(stream));
        }
        if head.after > expected && !self.mutations.broken(BridgeMutation::IgnoreGap) {
            return self.missed(now_ms, stream, head.number);
        }
        if !self.taking.has_room() {
            return self.outputs.push_back(BridgeOutput::Later(stream));
        }
        match self.believed(payload) {
            Ok(carried) if self.is_asked(&carried.id) => {
                self.outputs.push_back(BridgeOutput::Later(stream));
            }
            Ok(carried) => self.give(now_ms, stream, head.number, carried),
            Err((id, why)) => {
                self.outputs.push_back(BridgeOutput::Ack(stream));
                self.refused(id.clone(), why.clone());
                let why = self.own_word(&why);
                self.tell_refused(now_ms, head.number, id, why);
            }
        }
    }

    fn missed(&mut self, now_ms: u64, stream: StreamId, came: u64) {
        let taken = self.taking.taken;
        self.taking.gap = true;
        self.far.soon(now_ms);
        // Its home sends it again behind what is missing. Left there it could fill the stream, so that
        // this finds no room.
        self.outputs.push_back(BridgeOutput::Ack(stream));
        if self.taking.told_gap.replace(taken) != Some(taken) {
            self.event(BridgeEvent::Gap { taken, came });
        }
    }

    /// What was sent, if it is an envelope that the other domain may send to this one.
    fn believed(&self, payload: &[u8]) -> Result<Carried, (Option<MessageId>, String)> {
        let decoded = Envelope::decode(payload).map_err(|error| (None, error.to_string()))?;
        let id = MessageId::parse(&decoded.envelope.id).ok();
        let mut carried = decoded.carry().map_err(|no| (id.clone(), no.reason))?;
        // What its home waits for is owed here, too.
        if !self.mutations.broken(BridgeMutation::ForgetWants) {
            carried.within_ms = Conversation::of(body_of(&carried.text)).within_ms;
        }
        if carried.text.len() > ENVELOPE_BYTES_MAX {
            return Err((id, too_large(carried.text.len())));
        }
        let of = |name: &PeerName, domain: &Domain| {
            let (_, behind) = name.as_str().rsplit_once('@')?;
            behind.eq_ignore_ascii_case(domain.as_str()).then_some(())
        };
        if of(&carried.from, &self.abroad).is_none()
            && !self.mutations.broken(BridgeMutation::TrustFrom)
        {
            let why = format!(
                "its sender is {}, which is not of the domain {} that sent it",
                carried.from, self.abroad
            );
            return Err((id, why));
        }
        let local = carried.from.as_str().rsplit_once('@');
        if local.is_some_and(|(name, _)| name.contains('@')) {
            let why = format!(
                "its sender is {}, whose name looks like an address itself: from another domain nobody writes under \
                 such a name",
                carried.from
            );
            return Err((id, why));
        }
        let to = match &carried.to {
            Address::Peer(to) => to.clone(),
            Address::All => return Err((id, "a broadcast stays in its domain".into())),
            Address::Group(_) | Address::One(_) => {
                return Err((id, "a group stays in its domain".into()));
            }
        };
        if of(&to, &self.home).is_none() {
            let why = format!(
                "its recipient is {to}, which is not of the domain {}",
                self.home
            );
            return Err((id, why));
        }
        let allow = self.allow.as_ref();
        if allow.is_some_and(|allow| !allow.admits(&carried.from, &to)) {
            let why = format!(
                "{} may not write to {to}: what {} lets in from {} does not name the two",
                carried.from, self.home, self.abroad
            );
            return Err((id, why));
        }
        Ok(carried)
    }

    /// Gives a message to the own broker.
    fn give(&mut self, now_ms: u64, stream: StreamId, number: u64, carried: Carried) {
        let Some(epoch) = self.far.epoch.clone() else {
            return;
        };
        let Some(mark) = Mark::parse(&Position { epoch, number }.encode()) else {
            return;
        };
        let behind = self.mutations.broken(BridgeMutation::TakeBehind);
        let again = std::mem::take(&mut self.taking.again) || behind;
        let bytes = carried.text.len();
        self.order(ClientFrame::Take {
            mark,
            again,
            envelope: Ok(carried.clone()),
        });
        self.taking.takes.push_back(Take {
            number,
            id: carried.id,
            stream,
            bytes,
            void: false,
        });
        if self.mutations.broken(BridgeMutation::ConfirmEarly) {
            self.far.soon(now_ms);
        }
        if self.mutations.broken(BridgeMutation::AckEarly) {
            self.outputs.push_back(BridgeOutput::Ack(stream));
        }
    }

    /// Whether a statement answers the oldest take.
    pub(super) fn answers_take(&self, id: &MessageId) -> bool {
        self.taking.takes.front().is_some_and(|take| take.id == *id)
    }

    /// The own broker has the oldest of what it was given on disk.
    pub(super) fn accepted(&mut self, now_ms: u64, accepted: Accepted) {
        let Some(take) = self.taking.takes.pop_front() else {
            return;
        };
        self.taking.taken = take.number;
        self.taking.acks.push(take.stream);
        self.taking.turn_ms.get_or_insert(now_ms + TURN_MS);
        self.know(take.id, take.number);
        self.event(BridgeEvent::Taken);
        if accepted.duplicate {
            self.event(BridgeEvent::Doubled);
        }
    }

    /// Acks in the stream what was taken, and confirms what had been when this was done last: most has
    /// ended until then, which is all that its home needs to hear.
    pub(super) fn turn_due(&mut self, now_ms: u64) {
        if self.taking.turn_ms.is_none_or(|at| at > now_ms) {
            return;
        }
        let taking = &mut self.taking;
        if taking.ripe > taking.confirmed {
            taking.confirmed = taking.ripe;
            self.far.hello_ms = now_ms;
        }
        taking.ripe = taking.taken;
        let more = taking.ripe > taking.confirmed;
        taking.turn_ms = more.then_some(now_ms + TURN_MS);
        let acks = taking.take_acks();
        self.outputs.extend(acks);
    }

    /// The own broker does not take the oldest of what it was given, nor what was behind it.
    pub(super) fn not_accepted(&mut self, now_ms: u64, refusal: Refusal) {
        let Some(take) = self.taking.takes.pop_front() else {
            return;
        };
        if take.void {
            return self.outputs.push_back(BridgeOutput::Later(take.stream));
        }
        if self.mutations.broken(BridgeMutation::SkipRefused) {
            self.taking.taken = take.number;
            return self.outputs.push_back(BridgeOutput::Ack(take.stream));
        }
        self.taking.again = true;
        if !self.mutations.broken(BridgeMutation::TakeBehind) {
            for behind in &mut self.taking.takes {
                behind.void = true;
            }
        }
        let Refusal { code, reason } = refusal;
        if code == RefusalCode::DiskFull {
            self.outputs.push_back(BridgeOutput::Later(take.stream));
            self.taking.paused_ms = Some(now_ms + PAUSE_MS);
            return self.event(BridgeEvent::Waits(escape(&reason, 600)));
        }
        self.outputs.push_back(BridgeOutput::Ack(take.stream));
        self.refused(Some(take.id.clone()), escape(&reason, 600));
        let why = format!("the broker of {}: {reason}", self.home);
        self.tell_refused(now_ms, take.number, Some(take.id), why);
    }
}

/// Why a message cannot go to another domain.
pub(super) fn too_large(bytes: usize) -> String {
    format!(
        "message has {bytes} bytes as it is carried, at most {ENVELOPE_BYTES_MAX} go to another \
         domain: shorten the body or split it"
    )
}
