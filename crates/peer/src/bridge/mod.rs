//! The joint between a broker and one other domain.
//!
//! A [`Bridge`] stands between its own broker, to which it is registered as `bridge@` and the name of
//! the other domain, and the bridge of that domain, which runs the same code. Messages go through a
//! stream, which may lose, double, forget and reorder them; confirmations and stages go outside of it,
//! where they may get lost, too. What it must not forget stands in its broker: which messages are owed,
//! which were forwarded, and a mark of how far those of the other side were taken. So it keeps nothing
//! itself, and may die at any moment.
//!
//! ```text
//! own broker ── Deliver ──> sending ── Publish ──> stream ──> taking ── Take ──> far broker
//!      ^                       ^                                │                   │
//!      │                       └──────── Hello (taken) ─────────┘                   │
//!      └ Progress  passing on <──── Stages ───────────────────── telling <─ Receipts ┘
//!                     └─────────── Noted, Ask ────────────────────^
//! ```
//!
//! Drive it like the other state machines of this crate: [`Bridge::handle`] with one input and the
//! time on any clock that does not go back, then [`Bridge::poll_output`] until there is none, then look
//! at [`Bridge::poll_timeout`] and hand in [`BridgeInput::Tick`] when it is due. Take messages from the
//! stream only while [`Bridge::takes`]. The first output is an [`BridgeOutput::Register`].
//!
//! What holds, whatever happens:
//!
//! - a message is said to be forwarded only when the far broker has it on disk, in the life (epoch) in
//!   which it said so;
//! - messages are taken in the order of their numbers, each once, and none is passed over that its home
//!   has not given up; what is refused for good is told to its home, and what follows waits for that;
//! - what was sent in another life of one of the brokers is not taken: what it says of what stands
//!   before it does not hold any more;
//! - a stage is passed on as the far broker told it; an end is repeated until it is on disk at home, and
//!   what got lost on the way is asked for;
//! - of the other side nothing is believed that is not its own to say: messages come from its domain
//!   and go to this one.
//!
//! Bounds: what is sent and not confirmed is held, as much as the broker leaves in the [`WINDOW`]; of
//! what comes from the stream, at most [`TAKES_MAX`] messages and [`TAKES_BYTES`] wait for the broker;
//! [`TELLS_MAX`] statements wait for the other side, and [`KNOWN_MAX`] numbers are remembered for ids.

mod allow;
mod ask;
mod hello;
mod mutation;
mod pass;
mod send;
mod take;
mod tell;
#[cfg(test)]
mod tests;
mod types;

use std::collections::VecDeque;

use peerbus_wire::bridge::{Epoch, Outside, Position, Saying, UNKNOWN};
use peerbus_wire::{ClientFrame, Domain, Mark, MessageId, Received, Seq, Stage, Window};

pub use allow::Allow;
use ask::{Answering, Asking};
use hello::Far;
pub use mutation::BridgeMutation;
use pass::Passing;
use send::Sending;
use take::Taking;
pub use take::{TAKES_BYTES, TAKES_MAX};
use tell::Telling;
pub use tell::{KNOWN_MAX, TELLS_MAX};
pub use types::{BridgeEvent, BridgeInput, BridgeOutput, StreamId};

/// The window that a bridge asks its broker for.
pub const WINDOW: Window = Window {
    messages: 4_096,
    bytes: 4_194_304,
};

/// The connection to the own broker.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Link {
    /// It was asked for, with this epoch of the far broker.
    Asked(Option<Epoch>),
    /// It is there, and the far broker's epoch not known yet.
    Waiting,
    /// It is there, registered with the epoch of the far broker that is known.
    Up,
}

/// Whose answer a barrier is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Barrier {
    /// So many ends that were passed on before it.
    Ends(usize),
    /// The end of this message, which the other side did not take.
    GivenUp(u64),
    /// The statuses that were asked for before it.
    Statuses,
}

/// The bridge of one domain to one other. See the module's documentation for how to drive it.
#[derive(Debug)]
pub struct Bridge {
    home: Domain,
    abroad: Domain,
    /// Who over there may write to whom here; `None`: everybody to everybody.
    allow: Option<Allow>,
    link: Link,
    /// The own broker's epoch, as last told.
    own: Option<Epoch>,
    far: Far,
    sending: Sending,
    taking: Taking,
    telling: Telling,
    passing: Passing,
    asking: Asking,
    answering: Answering,
    /// What was asked of the own broker, oldest first.
    barriers: VecDeque<Barrier>,
    outputs: VecDeque<BridgeOutput>,
    mutations: peerbus_core::Mutations<BridgeMutation>,
}

impl Bridge {
    /// The bridge from `home` to `abroad`, another domain.
    #[must_use]
    pub fn new(home: Domain, abroad: Domain, now_ms: u64) -> Self {
        Self {
            home,
            abroad,
            allow: None,
            link: Link::Asked(None),
            own: None,
            far: Far::new(now_ms),
            sending: Sending::default(),
            taking: Taking::default(),
            telling: Telling::default(),
            passing: Passing::default(),
            asking: Asking::default(),
            answering: Answering::default(),
            barriers: VecDeque::new(),
            outputs: VecDeque::from([BridgeOutput::Register(UNKNOWN.into())]),
            mutations: Default::default(),
        }
    }

    /// The same, that takes only what these rules let in.
    #[must_use]
    pub fn allowing(self, allow: Option<Allow>) -> Self {
        Self { allow, ..self }
    }

    /// Takes one input. `now_ms` never goes back.
    pub fn handle(&mut self, now_ms: u64, input: BridgeInput) {
        self.taking.paused_ms = self.taking.paused_ms.filter(|until| *until > now_ms);
        match input {
            BridgeInput::Broker(received) => self.received(now_ms, received),
            BridgeInput::Lost => self.register(),
            BridgeInput::Stream {
                stream,
                head,
                payload,
            } => self.came(now_ms, stream, &head, &payload),
            BridgeInput::Outside(bytes) => self.heard(now_ms, &bytes),
            BridgeInput::Unpublished { number, never } if self.link == Link::Up => {
                self.unpublished(number, never);
            }
            BridgeInput::Tick | BridgeInput::Unpublished { .. } => {}
        }
        self.look_away(now_ms);
        if self.link == Link::Up {
            self.resend_due(now_ms);
            self.turn_due(now_ms);
            self.tell_due(now_ms);
            self.ask_due(now_ms);
            self.see_ends(now_ms);
        }
        self.hello_due(now_ms);
    }

    /// What is to be done, in order.
    pub fn poll_output(&mut self) -> Option<BridgeOutput> {
        self.outputs.pop_front()
    }

    /// When [`BridgeInput::Tick`] is due, on the clock of [`Bridge::handle`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        let up = self.link == Link::Up;
        let here = up && self.far.is_here();
        let all = [
            self.far.away_at(),
            self.is_greeted().then_some(self.far.hello_ms),
            self.sending.due_ms().filter(|_| here),
            self.telling.due_ms.filter(|_| here),
            here.then_some(self.asking.due_ms),
            self.passing.due_ms().filter(|_| up),
            self.taking.paused_ms,
            self.taking.turn_ms.filter(|_| up),
        ];
        all.into_iter().flatten().min()
    }

    /// Whether messages of the stream are to be handed in now, and not to wait: while the other broker's
    /// epoch is not known they are, so that they hold up nobody else's.
    #[must_use]
    pub fn takes(&self) -> bool {
        match self.link {
            Link::Asked(_) => false,
            Link::Waiting => true,
            Link::Up => self.taking.has_room(),
        }
    }

    /// So many messages were sent and are not confirmed.
    #[must_use]
    pub fn unconfirmed(&self) -> usize {
        self.sending.len()
    }

    /// The own broker's epoch, if it takes a bridge in by these words.
    #[must_use]
    pub fn greeting(received: &Received) -> Option<Epoch> {
        match received {
            Received::Peers(peers) if peers.ext.is_some() => {
                Epoch::parse(peers.epoch.as_ref()?.as_str())
            }
            _ => None,
        }
    }

    /// What the own broker says. A frame that cannot be what it should is left out.
    fn received(&mut self, now_ms: u64, received: Received) {
        let epoch = Self::greeting(&received);
        match received {
            Received::Peers(peers) if peers.ext.is_some() => {
                if let Some(epoch) = epoch {
                    self.greeted(now_ms, epoch, peers.mark.as_ref().map(Mark::as_str));
                }
            }
            _ if self.link != Link::Up => {}
            // Who is where is no barrier, and nothing for the machine.
            Received::Peers(peers) if peers.domain.is_some() => {}
            Received::Peers(_) => self.barrier(now_ms),
            Received::Deliver(delivery) => {
                if let (Some(seq), Ok(carried)) = (delivery.key.seq(), delivery.envelope.carry()) {
                    self.deliver(now_ms, seq.0, carried.id, carried.text);
                }
            }
            Received::Receipts(receipts) => self.receipts(now_ms, receipts),
            Received::Forwarded(messages) => self.ask(now_ms, messages),
            Received::Recall(_)
            | Received::Renamed(_)
            | Received::Retired(_)
            | Received::Joined(_)
            | Received::Unknown => {}
        }
    }

    fn is_greeted(&self) -> bool {
        matches!(self.link, Link::Up | Link::Waiting)
    }

    /// The own broker took this bridge in.
    fn greeted(&mut self, now_ms: u64, epoch: Epoch, mark: Option<&str>) {
        let Link::Asked(with) = &self.link else {
            return;
        };
        if *with != self.far.epoch {
            return self.register();
        }
        let known = self.far.epoch.is_some();
        self.link = if known { Link::Up } else { Link::Waiting };
        if self.own.as_ref() != Some(&epoch) {
            if self.own.is_some() {
                self.event(BridgeEvent::OwnEpoch);
            }
            self.own = Some(epoch);
            self.telling = Telling::default();
        }
        let position = mark.and_then(Position::parse);
        let of_far = position.filter(|it| Some(&it.epoch) == self.far.epoch.as_ref());
        self.taking.begin(of_far.map_or(0, |it| it.number));
        self.asking.begin(now_ms);
        self.far.hello_ms = now_ms;
    }

    /// Asks for a connection to the own broker. What was under way on the last one is void.
    fn register(&mut self) {
        self.link = Link::Asked(self.far.epoch.clone());
        self.sending = Sending::default();
        self.passing = Passing::default();
        self.answering = Answering::default();
        self.barriers.clear();
        self.outputs.extend(self.taking.end());
        let epoch = self.far.epoch.as_ref().map_or(UNKNOWN, Epoch::as_str);
        self.outputs.push_back(BridgeOutput::Register(epoch.into()));
    }

    /// The far broker has this epoch, and had none or another.
    fn renew(&mut self, epoch: Epoch) {
        self.event(BridgeEvent::NewEpoch);
        if self.mutations.broken(mutation::BridgeMutation::IgnoreEpoch) && self.far.epoch.is_some()
        {
            self.far.epoch = Some(epoch);
            return;
        }
        self.far.epoch = Some(epoch);
        self.telling = Telling::default();
        self.register();
    }

    fn barrier(&mut self, now_ms: u64) {
        match self.barriers.pop_front() {
            Some(Barrier::Ends(count)) => self.note_ends(count),
            Some(Barrier::GivenUp(number)) => self.given_up(now_ms, number),
            Some(Barrier::Statuses) => self.answer(),
            None => {}
        }
    }

    fn ask_barrier(&mut self, barrier: Barrier) {
        self.barriers.push_back(barrier);
        self.order(ClientFrame::Peers);
    }

    fn order(&mut self, frame: ClientFrame) {
        self.outputs.push_back(BridgeOutput::Broker(frame));
    }

    /// Tells the own broker how far a message is over there.
    fn tell_home(&mut self, number: u64, stage: Stage) {
        let key = Seq(number).key();
        self.order(ClientFrame::progress(key, stage));
    }

    fn event(&mut self, event: BridgeEvent) {
        self.outputs.push_back(BridgeOutput::Event(event));
    }

    fn refused(&mut self, id: Option<MessageId>, why: impl Into<String>) {
        let why = why.into();
        self.event(BridgeEvent::Refused { id, why });
    }

    /// A reason as its sender reads it, who shall not take it for a peer's.
    fn own_word(&self, why: &str) -> String {
        format!("the bridge of {}: {why}", self.home)
    }

    /// Says something to the other bridge, once both epochs are known.
    fn say(&mut self, saying: Saying) {
        if let (Some(epoch), Some(far)) = (&self.own, &self.far.epoch) {
            let outside = Outside {
                epoch: epoch.clone(),
                meant_for: Some(far.clone()),
                saying,
            };
            self.outputs
                .push_back(BridgeOutput::Outside(outside.encode()));
        }
    }
}
