//! The joint to one other domain: the machine of `peerbus_peer::bridge`, and what it moves.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_nats::connection::State;
use async_nats::jetstream::{self, AckKind, Context};
use async_nats::{Client, HeaderMap};
use futures_util::future::OptionFuture;
use peerbus_os::sync::lock;
use peerbus_peer::bridge::{
    Allow, Bridge, BridgeEvent, BridgeInput, BridgeOutput, StreamId, WINDOW,
};
use peerbus_wire::bridge::HEAD;
use peerbus_wire::{
    AuditAction, AuditRecord, ClientFrame, Domain, Instance, Mark, MessageId, Presence, Received,
};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Sleep, sleep};

use crate::home::{BrokerAddress, Home, registration};
use crate::nats::{never, whole};
use crate::pace::{Said, Turns};
use crate::roster::{self, Roster};
use crate::subject;

/// Pauses between attempts to reach the own broker.
const RETRY: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// So many registrations may follow each other at once, then one in each second: the other side, which
/// makes this one register anew with each epoch that it names, must not keep the own broker busy.
const REGISTERS_AT_ONCE: u32 = 3;
const REGISTERS: Duration = Duration::from_secs(1);
/// A message of the stream that had no room comes again after so long.
const LATER: Duration = Duration::from_millis(500);
/// How often it is shown what was counted, if that changed.
const SHOWN: Duration = Duration::from_secs(5);

pub(crate) type Mail = Box<jetstream::Message>;

/// What comes from NATS for one joint, beside the stream.
pub(crate) enum FromNats {
    /// What the other bridge says.
    Back(Vec<u8>),
    /// It says that it is there, and who is with it.
    Here(Vec<u8>),
}

/// What all joints of a bridge share.
pub(crate) struct Common {
    pub(crate) own: Domain,
    pub(crate) client: Client,
    pub(crate) context: Context,
    pub(crate) broker: BrokerAddress,
    /// Who of a domain may write to whom here; of one that is not named, everybody to everybody.
    pub(crate) allow: BTreeMap<Domain, Allow>,
    /// The word for what is wrong with the key, once that is known.
    pub(crate) key: Mutex<Option<&'static str>>,
    pub(crate) streams: AtomicBool,
    pub(crate) roster: Roster,
    pub(crate) instance: Instance,
    pub(crate) ended: mpsc::Sender<String>,
}

impl Common {
    /// Says that this domain is there, and who is in it.
    pub(crate) async fn announce(&self) {
        let subject = subject::here(self.own.as_str());
        let who = self.roster.text.borrow().clone();
        if let Err(error) = self.client.publish(subject, who.into()).await {
            tracing::debug!(%error, "not announced");
        }
    }
}

/// What an operator is shown of a joint.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Counts {
    unconfirmed: usize,
    sent: u64,
    resent: u64,
    taken: u64,
    doubled: u64,
    refused: u64,
    away: bool,
    /// The stream cannot be used.
    no_stream: bool,
    key: Option<&'static str>,
}

struct Joint {
    common: Arc<Common>,
    other: Domain,
    machine: Bridge,
    begun: Instant,
    home: Option<Home>,
    /// With which epoch to register, when, and the pause after that fails.
    register: Option<(String, Instant, Duration)>,
    registers: Turns,
    /// What was refused, and which epochs the other side named, as far as it was said.
    refusals: Said,
    epochs: Said,
    /// The other side has named an epoch.
    greeted: Arc<AtomicBool>,
    /// Messages of the stream that are not acked, and the last one's number.
    mails: BTreeMap<StreamId, jetstream::Message>,
    last: u64,
    failed: (mpsc::Sender<BridgeInput>, mpsc::Receiver<BridgeInput>),
    /// Who is over there, as it last told.
    there: Vec<u8>,
    full: bool,
    counts: Counts,
    shown: Counts,
}

/// Joins the own broker to another domain until `from` is closed. Messages of the stream are taken from
/// `mails` while there is room for them.
pub(crate) async fn run(
    common: Arc<Common>,
    other: Domain,
    (mut mails, mut from): (mpsc::Receiver<Mail>, mpsc::Receiver<FromNats>),
    greeted: Arc<AtomicBool>,
) {
    let allow = common.allow.get(&other).cloned();
    let machine = Bridge::new(common.own.clone(), other.clone(), 0).allowing(allow);
    let begun = Instant::now();
    let mut joint = Joint {
        common,
        other,
        machine,
        begun,
        home: None,
        register: None,
        registers: Turns::new(REGISTERS_AT_ONCE, REGISTERS, begun),
        refusals: Said::default(),
        epochs: Said::default(),
        greeted,
        mails: BTreeMap::new(),
        last: 0,
        failed: mpsc::channel(1_024),
        there: Vec::new(),
        full: false,
        counts: Counts::default(),
        shown: Counts::default(),
    };
    let mut show = tokio::time::interval(SHOWN);
    loop {
        joint.act().await;
        let due = joint.due();
        let register = joint.register.as_ref().map(|(_, at, _)| *at);
        let input = tokio::select! {
            came = from.recv() => match came {
                Some(FromNats::Back(bytes)) => Some(BridgeInput::Outside(bytes)),
                Some(FromNats::Here(payload)) => {
                    joint.there = payload;
                    joint.tell(roster::read(&joint.there)).await;
                    None
                }
                None => return,
            },
            Some(mail) = mails.recv(), if joint.takes() => Some(joint.mail(*mail)),
            Some(heard) = OptionFuture::from(joint.home.as_mut().map(Home::next)) => match heard {
                Some(Received::Peers(peers)) if peers.ext.is_none() && peers.domain.is_some() => {
                    joint.common.roster.set(peers.peers.unwrap_or_default());
                    None
                }
                Some(frame) => Some(BridgeInput::Broker(frame)),
                None => {
                    joint.home = None;
                    Some(BridgeInput::Lost)
                }
            },
            failed = joint.failed.1.recv() => failed,
            Some(()) = until(register) => joint.try_register().await,
            Some(()) = until(due) => Some(BridgeInput::Tick),
            _ = show.tick() => {
                joint.show().await;
                joint.say_how_many_more().await;
                joint.ask_who_is_here().await;
                None
            }
        };
        if let Some(input) = input {
            joint.machine.handle(joint.now_ms(), input);
        }
    }
}

fn until(at: Option<Instant>) -> OptionFuture<Sleep> {
    let left = at.map(|at| at.saturating_duration_since(Instant::now()));
    left.map(sleep).into()
}

impl Joint {
    /// Whether messages of the stream are looked at now. Where the own broker did not take this joint in
    /// they are given back, so that they hold up no other domain's.
    fn takes(&self) -> bool {
        let refused = self
            .register
            .as_ref()
            .is_some_and(|(_, _, pause)| *pause > RETRY);
        refused || self.machine.takes()
    }

    fn now_ms(&self) -> u64 {
        peerbus_os::clock::millis(self.begun.elapsed())
    }

    fn due(&self) -> Option<Instant> {
        let due = Duration::from_millis(self.machine.poll_timeout()?);
        Some(self.begun + due)
    }

    /// Asks the own broker who is at home, if that was not done lately.
    async fn ask_who_is_here(&self) {
        if self.home.is_some() && self.common.roster.is_due() {
            let own = self.common.own.clone();
            self.tell(Some(ClientFrame::PeersOf(own))).await;
        }
    }

    /// Tells the own broker something that it can do without.
    async fn tell(&self, frame: Option<ClientFrame>) {
        if let (Some(home), Some(frame)) = (&self.home, frame) {
            home.send(&frame).await;
        }
    }

    async fn act(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            match output {
                BridgeOutput::Register(epoch) => {
                    self.home = None;
                    let at = self.registers.next(Instant::now());
                    self.register = Some((epoch, at, RETRY));
                }
                BridgeOutput::Broker(frame) => {
                    if let Some(home) = &self.home
                        && !home.send(&frame).await
                    {
                        self.home = None;
                        self.machine.handle(self.now_ms(), BridgeInput::Lost);
                    }
                }
                BridgeOutput::Publish {
                    number,
                    head,
                    envelope,
                } => self.publish(number, &head, &envelope).await,
                BridgeOutput::Ack(id) => self.answer(id, AckKind::Ack).await,
                BridgeOutput::Later(id) => self.answer(id, AckKind::Nak(Some(LATER))).await,
                BridgeOutput::Outside(text) => {
                    let to = subject::back(self.other.as_str(), self.common.own.as_str());
                    if let Err(error) = self.common.client.publish(to, text.into()).await {
                        tracing::debug!(domain = %self.other, %error, "not told");
                    }
                }
                BridgeOutput::Event(event) => {
                    let record = self.note(event);
                    self.tell(record.map(ClientFrame::Audit)).await;
                }
            }
        }
        self.counts.unconfirmed = self.machine.unconfirmed();
    }

    /// Puts a message into the stream, in its turn; says so when that did not take it.
    async fn publish(&self, number: u64, head: &str, envelope: &str) {
        if self.common.client.connection_state() != State::Connected {
            // It would wait among what is on its way to NATS, which holds this joint up once that is full.
            // It is sent again, only later.
            return;
        }
        let to = subject::mail(self.other.as_str(), self.common.own.as_str());
        let mut headers = HeaderMap::new();
        headers.insert(HEAD, head);
        let payload = envelope.to_owned().into();
        let begun = self
            .common
            .context
            .publish_with_headers(to, headers, payload);
        let kept = match begun.await {
            Ok(kept) => kept,
            Err(error) => {
                let never = never(error.kind());
                // What is not told is sent again all the same, only later.
                let _ = self
                    .failed
                    .0
                    .try_send(BridgeInput::Unpublished { number, never });
                return;
            }
        };
        let failed = self.failed.0.clone();
        tokio::spawn(async move {
            if let Err(error) = kept.await {
                tracing::debug!(why = whole(&error), "the stream did not take a message");
                let never = never(error.kind());
                // The joint has ended.
                let _ = failed
                    .send(BridgeInput::Unpublished { number, never })
                    .await;
            }
        });
    }

    async fn answer(&mut self, id: StreamId, kind: AckKind) {
        if let Some(mail) = self.mails.remove(&id)
            && let Err(error) = mail.ack_with(kind).await
        {
            tracing::debug!(domain = %self.other, %error, "the stream was not answered");
        }
    }

    fn mail(&mut self, mail: jetstream::Message) -> BridgeInput {
        self.last += 1;
        let stream = StreamId(self.last);
        let head = mail.headers.as_ref().and_then(|headers| headers.get(HEAD));
        let head = head.map_or_else(String::new, |head| head.as_str().to_owned());
        let payload = mail.payload.to_vec();
        self.mails.insert(stream, mail);
        BridgeInput::Stream {
            stream,
            head,
            payload,
        }
    }

    /// Registers with the own broker, or tries again later.
    async fn try_register(&mut self) -> Option<BridgeInput> {
        let (epoch, _, pause) = self.register.take()?;
        self.registers.take(Instant::now());
        let name = self.other.bridge()?;
        let with = (&self.common.instance, Some(WINDOW));
        let register = registration(
            &self.common.broker,
            name.as_str(),
            with,
            Mark::parse(&epoch),
        );
        let (home, answer) = match Home::register(&self.common.broker, register).await {
            Ok(answered) => answered,
            Err(why) => return self.not_registered(epoch, pause, &why),
        };
        if let Received::Peers(peers) = &answer
            && peers.domain.as_ref() != Some(&self.common.own)
        {
            let now = peers.domain.as_ref().map_or("none", Domain::as_str);
            let own = &self.common.own;
            let why =
                format!("the own broker's domain was {own} and is {now}: start the bridge again");
            // Another joint has said so.
            let _ = self.common.ended.try_send(why);
            return None;
        }
        if Bridge::greeting(&answer).is_none() {
            let why = "what it answered is not understood; are both of the same version?";
            return self.not_registered(epoch, pause, why);
        }
        self.home = Some(home);
        self.tell(roster::read(&self.there)).await;
        self.ask_who_is_here().await;
        self.shown = Counts::default();
        Some(BridgeInput::Broker(answer))
    }

    fn not_registered(&mut self, epoch: String, pause: Duration, why: &str) -> Option<BridgeInput> {
        tracing::warn!(domain = %self.other, why, "the own broker does not take the bridge");
        let now = Instant::now();
        let at = self.registers.next(now).max(now + pause);
        self.register = Some((epoch, at, (pause * 2).min(RETRY_MAX)));
        None
    }

    /// Counts and logs what happened. Gives what the broker's audit chain is to have of it.
    fn note(&mut self, event: BridgeEvent) -> Option<AuditRecord> {
        let domain = &self.other;
        let counts = &mut self.counts;
        match event {
            BridgeEvent::NewEpoch => {
                self.greeted.store(true, Ordering::Relaxed);
                if self.epochs.one_more(Instant::now()) {
                    tracing::info!(%domain, "joined; what it does not have is sent");
                }
            }
            BridgeEvent::OwnEpoch => {
                tracing::warn!(%domain, "the own broker was brought back from a backup")
            }
            BridgeEvent::Sent => counts.sent += 1,
            BridgeEvent::Resent(more) => counts.resent += more,
            BridgeEvent::Taken => counts.taken += 1,
            BridgeEvent::Doubled | BridgeEvent::Stale => counts.doubled += 1,
            BridgeEvent::Refused { id, why } => {
                counts.refused += 1;
                if !self.refusals.one_more(Instant::now()) {
                    return None;
                }
                tracing::warn!(%domain, id = id.as_ref().map(MessageId::as_str), %why, "refused");
                return Some(AuditRecord {
                    request_id: id.map_or_else(String::new, |id| id.to_string()),
                    source: why,
                    ..AuditRecord::new(AuditAction::Admit, "refused")
                });
            }
            BridgeEvent::Waits(why) => {
                tracing::warn!(%domain, %why, "the own broker takes nothing now")
            }
            BridgeEvent::Away => {
                counts.away = true;
                tracing::warn!(%domain, "away; what goes there waits here");
            }
            BridgeEvent::Back => {
                counts.away = false;
                tracing::info!(%domain, "there again");
            }
            BridgeEvent::Gap { taken, came } => tracing::debug!(%domain, taken, came, "a gap"),
            BridgeEvent::Crowded => tracing::debug!(%domain, "a statement was left out"),
            BridgeEvent::Full => {
                if !std::mem::replace(&mut self.full, true) {
                    tracing::warn!(%domain, "the stream takes no message now; it is full, or not there: `peerbus bridge setup` makes it");
                }
            }
            BridgeEvent::Confirmed(_) => self.full = false,
        }
        None
    }

    /// Says how much more was refused, or joined, than was said one by one, once a minute is over.
    async fn say_how_many_more(&mut self) {
        let more = self.epochs.not_said(Instant::now());
        if more > 0 {
            tracing::warn!(domain = %self.other, more, "joined again and again");
        }
        let more = self.refusals.not_said(Instant::now());
        if more > 0 {
            let why = format!("and {more} more");
            tracing::warn!(domain = %self.other, %why, "refused");
            let record = AuditRecord {
                source: why,
                ..AuditRecord::new(AuditAction::Admit, "refused")
            };
            self.tell(Some(ClientFrame::Audit(record))).await;
        }
    }

    /// Shows what was counted, by the bridge's presence at its broker.
    async fn show(&mut self) {
        self.counts.no_stream = !self.common.streams.load(Ordering::Relaxed);
        self.counts.key = *lock(&self.common.key);
        let Some(home) = &self.home else { return };
        if self.shown == self.counts {
            return;
        }
        self.shown = self.counts.clone();
        let (domain, counts) = (self.other.as_str(), &self.counts);
        let waits = counts.away || counts.no_stream;
        let presence = json!({
            "client": "bridge", "domain": domain, "unconfirmed": counts.unconfirmed,
            "activity": if waits { "waiting" } else { "idle" },
            "stream": counts.no_stream.then_some("unusable"), "key": counts.key,
            "sent": counts.sent, "resent": counts.resent, "taken": counts.taken,
            "doubled": counts.doubled, "refused": counts.refused,
        });
        if let Some(presence) = Presence::parse(&presence.to_string()) {
            home.send(&ClientFrame::Presence(presence)).await;
        }
    }
}
