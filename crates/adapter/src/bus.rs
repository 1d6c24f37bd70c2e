//! The handle.

use std::sync::Arc;
use std::time::Duration;

use peerbus_os::clock::millis;
use peerbus_peer::session::{
    self, Answer, GIVE_UP_MS, Key, NoticeId, Overloaded, PeerSession, QueryFailure, Question,
    Reply, SessionEvent, Status, Unsent,
};
use peerbus_wire::limits::STATUS_IDS_MAX;
use peerbus_wire::{
    Accepted, Address, AuditRecord, Domain, How, MessageId, PeerEntry, PeerName, Presence, Receipt,
    Stage,
};
use serde_json::{Map, Value};
use tokio::sync::watch;

use crate::compose;
use crate::error::{BusError, SendError};
use crate::shared::{Asked, Shared};

/// Longest that [`Bus::close`] takes.
const CLOSE: Duration = Duration::from_millis(50);

/// A handle to the bus. Clones share one session; its [`Link`](crate::Link) ends when the last
/// one is dropped.
#[derive(Clone)]
pub struct Bus {
    handle: Arc<Handle>,
}

/// Closes the session when the last clone of a bus is dropped.
struct Handle {
    shared: Arc<Shared>,
}

/// A message that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentMessage {
    /// Its id.
    pub id: String,
    /// The broker has it on disk. `None`: a v1 broker's socket took it; nothing more is known, ever.
    pub accepted: Option<Accepted>,
}

/// The peers that the broker told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peers {
    /// This peer's own name.
    pub me: String,
    /// Every peer, this one included. A v1 broker tells only names, of connected peers.
    pub entries: Vec<PeerEntry>,
    /// So many more were left out.
    pub omitted: u32,
    /// Of another domain: so many milliseconds ago its bridge told this; `None`: nothing is known.
    pub age_ms: Option<u64>,
    /// The broker told more than names.
    pub ext: bool,
    /// The broker's own domain, if it has one.
    pub domain: Option<Domain>,
}

impl Bus {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            handle: Arc::new(Handle { shared }),
        }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.handle.shared
    }

    /// Hands something to the session and has the driver look at it.
    pub(crate) fn tell<T>(&self, act: impl FnOnce(&mut PeerSession, peerbus_core::Now) -> T) -> T {
        let result = self.shared().with(act);
        self.shared().wake.notify_one();
        result
    }

    /// The name in use: the chosen one, or a generated one (which may still change while
    /// it was not registered yet).
    #[must_use]
    pub fn name(&self) -> String {
        self.shared()
            .with(|session, _| session.name().as_str().to_owned())
    }

    /// The domain of the broker, as it said when it was connected last.
    #[must_use]
    pub fn domain(&self) -> Option<Domain> {
        self.shared().with(|session, _| session.domain().cloned())
    }

    /// The other domain to which mail for `to` goes. `None`: it stays at this broker.
    #[must_use]
    pub fn abroad(&self, to: &str) -> Option<Domain> {
        let to = PeerName::parse(to).ok()?;
        self.shared().with(|session, _| session.abroad(&to))
    }

    /// The name in `to` without the broker's own domain, if that stands behind it.
    #[must_use]
    pub fn at_home(&self, to: &str) -> String {
        let address = PeerName::parse(to).ok().and_then(|to| to.address());
        match address {
            Some((name, domain)) if self.domain().as_ref() == Some(&domain) => {
                name.as_str().to_owned()
            }
            _ => to.to_owned(),
        }
    }

    /// Sends `body` (JSON text) to the peer `to` and waits until it is accepted or refused, or,
    /// with a v1 broker, written. While the broker is away the message waits, at most `deadline`.
    ///
    /// Once this was polled the message is on its way, even if the future is dropped.
    ///
    /// # Errors
    ///
    /// A sentence that an agent can act on; [`SendError::TimedOut`] says whether the message may
    /// still be accepted.
    pub async fn send(
        &self,
        to: &str,
        body: &str,
        deadline: Duration,
    ) -> Result<SentMessage, SendError> {
        self.send_as(Self::new_id(), to, body, deadline).await
    }

    /// An id for a message that is yet to be sent, so that an answer to it can be waited for before
    /// it leaves.
    #[must_use]
    pub fn new_id() -> MessageId {
        compose::new_id()
    }

    /// As [`Bus::send`], under an id from [`Bus::new_id`].
    ///
    /// # Errors
    ///
    /// As for [`Bus::send`].
    pub async fn send_as(
        &self,
        id: MessageId,
        to: &str,
        body: &str,
        deadline: Duration,
    ) -> Result<SentMessage, SendError> {
        self.send_to(id, compose::recipient(to)?, body, deadline)
            .await
    }

    /// Sends `body` to every other peer that is registered now. As [`Bus::send`] otherwise.
    ///
    /// # Errors
    ///
    /// As for [`Bus::send`].
    pub async fn broadcast(
        &self,
        body: &str,
        deadline: Duration,
    ) -> Result<SentMessage, SendError> {
        self.send_to(Self::new_id(), Address::All, body, deadline)
            .await
    }

    async fn send_to(
        &self,
        id: MessageId,
        to: Address,
        body: &str,
        deadline: Duration,
    ) -> Result<SentMessage, SendError> {
        let deadline = self.patience(deadline);
        let from = self.shared().with(|session, _| session.name().clone());
        let draft = compose::draft(&from, id.clone(), to, body)?;
        let answer = self.shared().ask(|session, now| {
            session.send(now, draft, now.mono_ms.saturating_add(millis(deadline)))?;
            Ok(Asked::Message(id.clone()))
        });
        let answer = answer.map_err(|Overloaded { waiting, bytes }| {
            SendError::Overloaded(format!(
                "not sent: {waiting} messages ({bytes} bytes) wait for the broker already ({}); \
                 wait for some of them",
                self.shared().sentence()
            ))
        })?;
        match answer.await {
            Ok(Reply::Sent { outcome, .. }) => self.sent(&id, outcome, deadline),
            _ => Err(SendError::Closed),
        }
    }

    /// How long to wait for the broker: not at all where that is of no use.
    fn patience(&self, deadline: Duration) -> Duration {
        match self.link().borrow().in_the_way() {
            Some(_) => Duration::ZERO,
            None => deadline,
        }
    }

    /// The answer for the caller of a send.
    fn sent(
        &self,
        id: &MessageId,
        outcome: session::SendResult,
        deadline: Duration,
    ) -> Result<SentMessage, SendError> {
        let id = id.as_str().to_owned();
        let over = self.is_over();
        let seconds = deadline
            .min(Duration::from_millis(GIVE_UP_MS))
            .as_secs_f64();
        let unsent = match outcome {
            Ok(accepted) => return Ok(SentMessage { id, accepted }),
            Err(unsent) => unsent,
        };
        let (left, sentence) = match unsent {
            Unsent::Refused(refusal) => return Err(SendError::Refused(refusal)),
            Unsent::NeverLeft if over => return Err(SendError::Closed),
            Unsent::NeverLeft => {
                let within = match deadline.is_zero() {
                    true => String::new(),
                    false => format!(" within {seconds} s"),
                };
                let sentence = format!(
                    "not sent{within}, and not kept for later: {}; send it again then",
                    self.shared().sentence()
                );
                (false, sentence)
            }
            Unsent::Unconfirmed { .. } if over => {
                let sentence = format!(
                    "message {id} was sent, but not confirmed before the bus was closed: it may \
                     have been accepted"
                );
                (true, sentence)
            }
            Unsent::Unconfirmed { resent_for_ms } => {
                let link = self.shared().sentence();
                let resent = match resent_for_ms.div_ceil(1_000) {
                    0 => "it is not sent again".into(),
                    more => format!("it is sent again under the same id for {more} s more"),
                };
                let sentence = format!(
                    "message {id} was sent, but not confirmed within {seconds} s ({link}): it may \
                     have been accepted, and {resent}; sending it anew could deliver it twice"
                );
                (true, sentence)
            }
        };
        Err(SendError::TimedOut { id, left, sentence })
    }

    /// Asks the broker who is there.
    ///
    /// # Errors
    ///
    /// When there is no answer within `deadline`, with what the link is doing.
    pub async fn peers(&self, deadline: Duration) -> Result<Peers, BusError> {
        self.peers_in(None, deadline).await
    }

    /// Asks the broker who is in a domain, as the bridge to that last told; `None`: in its own.
    ///
    /// # Errors
    ///
    /// As for [`Bus::peers`].
    pub async fn peers_in(
        &self,
        domain: Option<Domain>,
        deadline: Duration,
    ) -> Result<Peers, BusError> {
        let Answer::Peers(frame) = self.ask(Question::Peers(domain), deadline).await? else {
            return Err(BusError::Closed);
        };
        let named = |name| PeerEntry {
            name,
            online: true,
            away_s: Some(0),
            ..PeerEntry::default()
        };
        let ext = frame.peers.is_some();
        let names = frame.names.into_iter().map(named);
        Ok(Peers {
            age_ms: frame.age_ms,
            me: self.name(),
            entries: frame.peers.unwrap_or_else(|| names.collect()),
            omitted: frame.omitted,
            ext,
            domain: self.domain(),
        })
    }

    /// Asks the broker what became of messages that this name sent. Statements about them that
    /// come meanwhile are in the answer, and not among the events.
    ///
    /// # Errors
    ///
    /// As for [`Bus::peers`]; [`BusError::NotSupported`] behind a v1 broker;
    /// [`BusError::InvalidIds`] when an id breaks the rule or there are too many.
    pub async fn statuses(
        &self,
        ids: &[String],
        deadline: Duration,
    ) -> Result<Vec<Receipt>, BusError> {
        if ids.len() > STATUS_IDS_MAX {
            let found = ids.len();
            let why = format!("{found} ids; at most {STATUS_IDS_MAX} can be asked for at once");
            return Err(BusError::InvalidIds(why));
        }
        let parse = |id: &String| MessageId::parse(id);
        let ids: Vec<MessageId> = ids
            .iter()
            .map(parse)
            .collect::<Result<_, _>>()
            .map_err(|error| BusError::InvalidIds(error.to_string()))?;
        match self.ask(Question::Statuses(ids), deadline).await? {
            Answer::Statuses(receipts) => Ok(receipts),
            _ => Err(BusError::Closed),
        }
    }

    /// Takes back a request that this name sent, and tells what became of it.
    ///
    /// # Errors
    ///
    /// As for [`Bus::peers`]; [`BusError::NotSupported`] behind a v1 broker.
    pub async fn withdraw(
        &self,
        id: MessageId,
        deadline: Duration,
    ) -> Result<Vec<Receipt>, BusError> {
        match self.ask(Question::Withdraw(id), deadline).await? {
            Answer::Statuses(receipts) => Ok(receipts),
            _ => Err(BusError::Closed),
        }
    }

    /// Puts a question, and waits for its answer until a time.
    pub(crate) async fn ask(
        &self,
        question: Question,
        deadline: Duration,
    ) -> Result<Answer, BusError> {
        let deadline = self.patience(deadline);
        let asked = self.shared().ask(|session, now| {
            let until_ms = now.mono_ms.saturating_add(millis(deadline));
            session.ask(question, until_ms).map(Asked::Query)
        });
        let answer = asked.map_err(|Overloaded { waiting, .. }| {
            BusError::Overloaded(format!(
                "{waiting} questions wait for the broker already ({})",
                self.shared().sentence()
            ))
        })?;
        let Ok(Reply::Answered { outcome, .. }) = answer.await else {
            return Err(BusError::Closed);
        };
        outcome.map_err(|failure| match failure {
            QueryFailure::TimedOut if deadline.is_zero() => BusError::TimedOut(format!(
                "no answer from the broker: {}",
                self.shared().sentence()
            )),
            QueryFailure::TimedOut => BusError::TimedOut(format!(
                "no answer from the broker within {} s: {}",
                deadline.as_secs_f64(),
                self.shared().sentence()
            )),
            QueryFailure::NotSupported => BusError::NotSupported,
            QueryFailure::Refused(why) => BusError::Refused(why),
            QueryFailure::Closed => BusError::Closed,
        })
    }

    /// The next event; `None` once the bus is closed. For one consumer; dropping the future loses
    /// nothing. What is not taken here holds the window: nothing piles up.
    pub async fn next(&self) -> Option<SessionEvent> {
        loop {
            let notified = self.shared().events.notified();
            if let Some(event) = self.tell(|session, _| session.poll_event()) {
                return Some(event);
            }
            if self.is_over() {
                self.shared().events.notify_one();
                return None;
            }
            notified.await;
        }
    }

    /// Notes that the message is consumed and acks it. Never blocks; repeating it does no harm.
    pub fn ack(&self, key: &Key, how: How) {
        self.reached(key, Stage::Acked(Some(how)));
    }

    /// Notes that an [`SessionEvent::Notice`] was told to the agent or the person it is for: the broker need
    /// not keep it. Never blocks; repeating it does no harm.
    pub fn ack_notice(&self, id: NoticeId) {
        self.tell(|session, _| session.ack_notice(id));
    }

    /// Where the connection stands, now and as it changes.
    #[must_use]
    pub fn link(&self) -> watch::Receiver<Status> {
        self.shared().status()
    }

    /// Replaces how this peer describes itself to others. At most 1,024 bytes of JSON text; a
    /// larger description is not sent, and `false`.
    pub fn set_presence(&self, presence: &Map<String, Value>) -> bool {
        let text = Value::Object(presence.clone()).to_string();
        let presence = Presence::parse(&text);
        let fits = presence.is_some();
        if let Some(presence) = presence {
            self.tell(|session, _| session.set_presence(presence));
        }
        fits
    }

    /// Has the broker write down what was done to this session. Best effort: a broker that cannot is
    /// not told, and while it is away 64 records wait.
    pub fn audit(&self, record: AuditRecord) {
        self.tell(|session, _| session.audit(record));
    }

    /// Says goodbye: acks are flushed, the connection is closed. Takes at most 50 ms; sends that
    /// are under way are answered as they stand. [`Bus::next`] gives `None` from now on.
    pub async fn close(&self) {
        self.tell(|session, _| session.close());
        let mut ended = self.shared().ended.subscribe();
        // When it takes longer the link goes on to its own end.
        let _ = tokio::time::timeout(CLOSE, ended.wait_for(|ended| *ended)).await;
    }

    fn is_over(&self) -> bool {
        self.shared()
            .with(|session, _| *session.status() == Status::Closed)
    }

    /// Tells the broker, and the sender, how far a message is that was taken from [`Bus::next`]. It
    /// stays owed unless it is acked, dead, which is that its recipient does not want it, or declined, as
    /// a request may be after its ack as well. Never blocks; a v1 broker is told of an end alone;
    /// repeating that does no harm.
    pub fn reached(&self, key: &Key, stage: Stage) {
        self.tell(|session, now| session.reached(now, *key, stage));
    }

    /// Gives back a message for one member of a group: another one gets it. Never blocks; repeating it
    /// does no harm.
    pub fn give_back(&self, key: &Key) {
        self.tell(|session, now| session.give_back(now, *key));
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.with(|session, _| session.close());
        self.shared.wake.notify_one();
    }
}

impl std::fmt::Debug for Bus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bus")
            .field("link", &*self.shared().status().borrow())
            .finish()
    }
}
