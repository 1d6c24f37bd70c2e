//! A bridge under way: one joint for each domain that is heard of.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::Client;
use async_nats::connection::State;
use async_nats::jetstream;
use async_nats::jetstream::consumer::pull::Stream as Mails;
use futures_util::{Stream, StreamExt as _};
use peerbus_os::sync::lock;
use peerbus_peer::bridge::Allow;
use peerbus_wire::bridge::{HEAD, OUTSIDE_BYTES_MAX, Outside, Saying, StreamHead};
use peerbus_wire::limits::FRAME_BYTES_MAX;
use peerbus_wire::{ClientFrame, Domain, Instance, PeerEntry, Received};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::home::{BrokerAddress, Home, registration};
use crate::joint::{self, Common, FromNats, Mail};
use crate::lane::{Lane, Offer, Waiting, hand_over};
use crate::nats::{self, ANEW, Bound, NatsServer};
use crate::roster::{self, Roster};
use crate::subject::{self, SubjectKind};

/// How often a bridge says that it is there.
const HERE: Duration = Duration::from_secs(5);
/// What waits for one joint: of the stream, and beside it.
const MAILS_HELD: usize = 64;
const HELD: usize = 256;
/// How often NATS says that it still looks for messages, and how long it is asked to: when its server
/// dies, that is noticed after two that did not come.
const HEARTBEAT: Duration = Duration::from_secs(1);
const ASKED: Duration = Duration::from_secs(30);
/// Largest list of peers of another domain: what the own broker lets through.
const ROSTER_BYTES_MAX: usize = FRAME_BYTES_MAX;
const DOMAINS_MAX: usize = 256;
/// A message that had no room comes again after so long.
const LATER: Duration = Duration::from_millis(500);
/// How often it is looked again whether the key is bound, until it is.
const LOOKED: Duration = Duration::from_secs(60);
/// How long the own broker may take to say who is at home.
const TOLD: Duration = Duration::from_secs(5);

/// Joins the broker to every domain that is heard of, lets in what `allow` says, until the connection to NATS is closed for good.
///
/// # Errors
///
/// A sentence: the broker has no domain, or does not take the bridge; NATS is away, or not set up.
pub async fn run(
    broker: BrokerAddress,
    server: &NatsServer,
    allow: BTreeMap<Domain, Allow>,
) -> Result<(), String> {
    let instance = Instance::from_entropy(rand::random());
    let (own, peers) = domain_of(&broker, &instance).await?;
    let client = server.connect(Some(own.as_str())).await?;
    let context = jetstream::new(client.clone());
    let mails = mails(server, &client, &own).await?;
    let subscribe = |subject: String| client.subscribe(subject);
    let told = subscribe(subject::back(own.as_str(), "*")).await;
    let here = subscribe(subject::here("*")).await;
    let (told, here) = told
        .and_then(|told| Ok((told, here?)))
        .map_err(|error| nats::whole(&error))?;
    let mut outside = futures_util::stream::select(told, here);
    tracing::info!(domain = %own, nats = %server.url, "the bridge is up");
    let roster = Roster::default();
    roster.set(peers);
    let mut news = roster.text.subscribe();
    let (ended, mut ends) = mpsc::channel(1);
    let common = Arc::new(Common {
        own,
        client,
        context,
        broker,
        allow,
        roster,
        key: Mutex::default(),
        streams: AtomicBool::new(true),
        instance,
        ended,
    });
    let mut mails = pin!(again_and_again(mails, server, &common));
    let mut joints = Joints {
        common: Arc::clone(&common),
        all: BTreeMap::new(),
        full: false,
    };
    tokio::spawn(look_at_the_key(server.clone(), Arc::clone(&common)));
    let mut announce = tokio::time::interval(HERE);
    // A message for a joint that has no room yet.
    let mut waiting: Option<Waiting<Mail>> = None;
    loop {
        tokio::select! {
            Some(mail) = mails.next(), if waiting.is_none() => waiting = joints.mail(mail).await,
            late = hand_over(&mut waiting) => {
                if let Some(mail) = late {
                    // It must not hold up the other domains' any longer.
                    let subject = &mail.subject;
                    tracing::warn!(%subject, "what comes is not taken in time; it is dropped until it is, and sent again");
                    if let Some(joint) = joints.of(&mail) {
                        joint.mails.fall_behind();
                    }
                    forget(&mail).await;
                }
            }
            heard = outside.next() => match heard {
                Some(message) => {
                    let known = joints.all.len();
                    joints.told(&message.subject, &message.payload);
                    if joints.all.len() > known {
                        // It need not wait to hear of this one.
                        common.announce().await;
                    }
                }
                None => return Err("the connection to NATS was closed".into()),
            },
            Some(why) = ends.recv() => return Err(why),
            _ = announce.tick() => common.announce().await,
            Ok(()) = news.changed() => common.announce().await,
        }
    }
}

/// Finds out how far the key is bound to its domain, until it is.
async fn look_at_the_key(server: NatsServer, common: Arc<Common>) {
    let mut known = None;
    loop {
        let bound = nats::bound(&server, &common.client, common.own.as_str()).await;
        *lock(&common.key) = bound.word();
        match bound {
            _ if known == Some(bound) => {}
            Bound::Bound if known.is_none() => {}
            Bound::Bound => {
                tracing::info!("the key's account in NATS keeps this domain's mail only")
            }
            Bound::Wide => tracing::warn!(
                "NATS does not say that the key's account keeps this domain's mail only: where it keeps others', \
                 too, a key of theirs can empty and delete this one's. {ANEW}"
            ),
            Bound::None => {
                tracing::warn!("no key is used: everybody who reaches this NATS is trusted");
            }
        }
        if bound != Bound::Wide {
            return;
        }
        known = Some(bound);
        tokio::time::sleep(LOOKED).await;
    }
}

/// The messages of the stream, which is asked again after it has ended, as often as that happens.
fn again_and_again<'a>(
    mails: Mails,
    server: &'a NatsServer,
    common: &'a Common,
) -> impl Stream<Item = jetstream::Message> + 'a {
    futures_util::stream::unfold(mails, async move |mut mails| {
        loop {
            let ended = match mails.next().await {
                Some(Ok(mail)) => return Some((mail, mails)),
                ended => ended.and_then(Result::err),
            };
            let why = ended.map(|error| nats::whole(&error));
            common.streams.store(false, Ordering::Relaxed);
            let connected = || common.client.connection_state() == State::Connected;
            if connected() {
                tracing::warn!(why, "the stream does not answer");
            }
            mails = loop {
                tokio::time::sleep(LATER).await;
                match self::mails(server, &common.client, &common.own).await {
                    Ok(mails) => break mails,
                    Err(why) if connected() => tracing::warn!(%why, "the stream cannot be used"),
                    // That NATS is away was said.
                    Err(_) => {}
                }
            };
            common.streams.store(true, Ordering::Relaxed);
        }
    })
}

/// The messages of the stream for a domain. Without a key the stream is made if there is none.
async fn mails(server: &NatsServer, client: &Client, own: &Domain) -> Result<Mails, String> {
    if server.creds.is_none() {
        nats::set_up(server, client, &[own.to_string()], 1).await?;
    }
    let context = jetstream::new(client.clone());
    let consumer = nats::consumer(&context, own.as_str()).await?;
    let mails = consumer
        .stream()
        .heartbeat(HEARTBEAT)
        .expires(ASKED)
        .messages();
    mails.await.map_err(|error| nats::whole(&error))
}

/// The domain of a broker, which it says to everybody who registers, and who is there, if it says so in time.
async fn domain_of(
    broker: &BrokerAddress,
    instance: &Instance,
) -> Result<(Domain, Vec<PeerEntry>), String> {
    let name = format!(
        "bridge-{}",
        &instance.expose()[..8.min(instance.expose().len())]
    );
    let register = registration(broker, &name, (instance, None), None);
    let at = &broker.url;
    let (mut home, answer) = Home::register(broker, register)
        .await
        .map_err(|why| format!("cannot use the broker at {at}: {why}"))?;
    let Received::Peers(peers) = answer else {
        return Err(format!("what is at {at} is no broker"));
    };
    let own = peers.domain.ok_or_else(|| {
        format!("the broker at {at} has no domain: start it with `peerbus serve --domain NAME`")
    })?;
    let ask = async {
        home.send(&ClientFrame::PeersOf(own.clone())).await;
        loop {
            match home.next().await {
                Some(Received::Peers(peers)) => return peers.peers,
                Some(_) => {}
                None => return None,
            }
        }
    };
    let mut there = tokio::time::timeout(TOLD, ask)
        .await
        .unwrap_or_default()
        .unwrap_or_default();
    // It is gone in a moment.
    there.retain(|peer| peer.name != name);
    Ok((own, there))
}

/// Drops a message of the stream. If it was not taken its home sends it again.
async fn forget(mail: &jetstream::Message) {
    if let Err(error) = mail.ack().await {
        tracing::debug!(%error, "the stream was not answered");
    }
}

/// What leads to a joint: for messages of the stream, and for the rest. The joint ends when this is dropped.
struct To {
    mails: Lane<Mail>,
    rest: mpsc::Sender<FromNats>,
    /// The other bridge has said which epoch its broker is in.
    greeted: Arc<AtomicBool>,
}

struct Joints {
    common: Arc<Common>,
    all: BTreeMap<Domain, To>,
    /// It was said that there are as many as there may be.
    full: bool,
}

impl Joints {
    /// The joint to a domain. Where there is none it is made, if what was heard of the domain is what only a
    /// bridge says.
    fn to(&mut self, other: &str, is_a_bridge: impl FnOnce() -> bool) -> Option<&mut To> {
        let other = Domain::parse(other).filter(|other| *other != self.common.own)?;
        if !self.all.contains_key(&other) {
            if !is_a_bridge() || !self.has_room(&other) {
                return None;
            }
            let (rest, from) = mpsc::channel(HELD);
            let (mails, come) = mpsc::channel(MAILS_HELD);
            let common = Arc::clone(&self.common);
            let greeted = Arc::new(AtomicBool::new(false));
            let says = Arc::clone(&greeted);
            tokio::spawn(joint::run(common, other.clone(), (come, from), says));
            let mails = Lane::new(mails);
            let to = To {
                mails,
                rest,
                greeted,
            };
            self.all.insert(other.clone(), to);
        }
        self.all.get_mut(&other)
    }

    /// Whether one more domain can be joined: one whose bridge never said a word that counts gives way.
    fn has_room(&mut self, other: &Domain) -> bool {
        if self.all.len() < DOMAINS_MAX {
            return true;
        }
        let silent = |(_, to): &(&Domain, &To)| !to.greeted.load(Ordering::Relaxed);
        let silent = self.all.iter().find(silent);
        let Some(silent) = silent.map(|(domain, _)| domain.clone()) else {
            if !std::mem::replace(&mut self.full, true) {
                tracing::warn!(domain = %other, "not joined: {DOMAINS_MAX} domains are, which is the most");
            }
            return false;
        };
        tracing::warn!(domain = %silent, "not joined any more: {DOMAINS_MAX} domains are the most, and it never said a word");
        self.all.remove(&silent);
        true
    }

    /// The joint to the domain that sent a message of the stream.
    fn of(&mut self, mail: &jetstream::Message) -> Option<&mut To> {
        let own = self.common.own.clone();
        let headers = mail.headers.as_ref();
        let has_head = || StreamHead::parse(headers?.get(HEAD)?.as_str());
        match subject::sender(&mail.subject, own.as_str()) {
            Some((SubjectKind::Mail, sender)) => self.to(sender, || has_head().is_some()),
            _ => None,
        }
    }

    /// A message of the stream. Gives it back if its joint has no room for it yet.
    async fn mail(&mut self, mail: jetstream::Message) -> Option<Waiting<Mail>> {
        let Some(joint) = self.of(&mail) else {
            // Of nobody that could be answered.
            forget(&mail).await;
            return None;
        };
        match joint.mails.offer(Box::new(mail), Instant::now()) {
            Offer::Taken => None,
            Offer::Full(waiting) => Some(waiting),
            Offer::Dropped(mail) => {
                forget(&mail).await;
                None
            }
        }
    }

    /// Something came outside the stream. What has no room gets lost, and is said again; what is too large
    /// to be read takes none.
    fn told(&mut self, subject: &str, payload: &[u8]) {
        let own = self.common.own.clone();
        if let Some((sender, said)) = said(subject, own.as_str(), payload)
            && let Some(joint) = self.to(sender, || is_a_bridges(&said))
        {
            let _ = joint.rest.try_send(said);
        }
    }
}

/// Who says what outside the stream, if it can be read.
fn said<'a>(subject: &'a str, own: &str, payload: &[u8]) -> Option<(&'a str, FromNats)> {
    let (kind, sender) = subject::sender(subject, own)?;
    let said = match kind {
        SubjectKind::Back if payload.len() <= OUTSIDE_BYTES_MAX => FromNats::Back(payload.to_vec()),
        SubjectKind::Here if payload.len() <= ROSTER_BYTES_MAX => FromNats::Here(payload.to_vec()),
        _ => return None,
    };
    Some((sender, said))
}

/// Whether something is what only a bridge says: that it is there and who is with it, or a hello.
fn is_a_bridges(said: &FromNats) -> bool {
    match said {
        FromNats::Here(payload) => roster::read(payload).is_some(),
        FromNats::Back(bytes) => {
            Outside::parse(bytes).is_ok_and(|it| matches!(it.saying, Saying::Hello { .. }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_the_server_joins_nothing() {
        let hello = br#"{"v":1,"epoch":"B1","say":{"hello":{"taken":0}}}"#;
        let roster = br#"{"protocol_version":"v1","type":"roster","peers":[]}"#;
        let here = |payload: &[u8]| is_a_bridges(&FromNats::Here(payload.to_vec()));
        let back = |payload: &[u8]| is_a_bridges(&FromNats::Back(payload.to_vec()));
        assert!(here(roster) && back(hello));
        let stages = br#"{"v":1,"epoch":"B1","for":"A1","say":{"noted":[]}}"#;
        for other in [
            &b""[..],
            b"{}",
            br#"{"stream":"PEERBUS","seq":1}"#,
            br#"{"type":"io.nats.jetstream.api.v1.consumer_info_response"}"#,
            stages,
        ] {
            assert!(!here(other) && !back(other), "{other:?}");
        }
        assert!(!here(hello) && !back(roster));
    }

    #[test]
    fn what_is_too_large_to_be_read_is_not_kept() {
        let back = subject::back("alpha", "beta");
        let here = subject::here("beta");
        for (subject, max) in [(&back, OUTSIDE_BYTES_MAX), (&here, ROSTER_BYTES_MAX)] {
            let bytes = vec![b' '; max + 1];
            let fits = said(subject, "alpha", &bytes[..max]);
            assert_eq!(fits.map(|(sender, _)| sender), Some("beta"));
            assert!(said(subject, "alpha", &bytes).is_none());
        }
    }
}
