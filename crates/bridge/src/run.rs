//! A bridge under way: one joint for each domain that is heard of.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_nats::Client;
use async_nats::connection::State;
use async_nats::jetstream;
use async_nats::jetstream::consumer::pull::Stream as Mails;
use futures_util::{Stream, StreamExt as _};
use peerbus_core::bridge::Allow;
use peerbus_wire::bridge::OUTSIDE_BYTES_MAX;
use peerbus_wire::limits::FRAME_BYTES_MAX;
use peerbus_wire::{Domain, Instance, Received};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::home::{Broker, Home, registration};
use crate::joint::{self, Common, FromNats, Mail};
use crate::lane::{Lane, Offer, Waiting, hand_over};
use crate::nats::{self, Bound, Server};
use crate::roster::Roster;
use crate::subject::{self, Kind};

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
/// Other domains that are joined, at most.
const DOMAINS_MAX: usize = 256;
/// A message that had no room comes again after so long.
const LATER: Duration = Duration::from_millis(500);

/// Joins the broker to every domain that is heard of, lets in what `allow` says, until the connection to NATS is closed for good.
///
/// # Errors
///
/// A sentence: the broker has no domain, or does not take the bridge; NATS is away, or not set up.
pub async fn run(
    broker: Broker,
    server: &Server,
    allow: BTreeMap<Domain, Allow>,
) -> Result<(), String> {
    let instance = Instance::from_entropy(rand::random());
    let own = domain_of(&broker, &instance).await?;
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
    let (ended, mut ends) = mpsc::channel(1);
    let common = Arc::new(Common {
        own,
        client,
        context,
        broker,
        allow,
        roster: Roster::default(),
        bound: OnceLock::new(),
        streams: AtomicBool::new(true),
        instance,
        ended,
    });
    let mut mails = pin!(again_and_again(mails, server, &common));
    let mut joints = Joints {
        common: Arc::clone(&common),
        all: BTreeMap::new(),
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
                    joints.too_late(&mail).await;
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
            () = common.roster.news() => common.announce().await,
        }
    }
}

/// Finds out, once, how far the key is bound to its domain.
async fn look_at_the_key(server: Server, common: Arc<Common>) {
    let bound = nats::bound(&server, &common.client).await;
    match bound {
        Bound::Bound => {}
        Bound::Wide => tracing::warn!("the key may do more in NATS than a bridge needs"),
        Bound::None => {
            tracing::warn!("no key is used: everybody who reaches this NATS is trusted");
        }
    }
    // Nobody else sets it.
    let _ = common.bound.set(bound);
}

/// The messages of the stream, which is asked again after it has ended, as often as that happens.
fn again_and_again<'a>(
    mails: Mails,
    server: &'a Server,
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
async fn mails(server: &Server, client: &Client, own: &Domain) -> Result<Mails, String> {
    if server.creds.is_none() {
        nats::set_up(client, &[own.to_string()], 1).await?;
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

/// The domain of a broker, which it says to everybody who registers.
async fn domain_of(broker: &Broker, instance: &Instance) -> Result<Domain, String> {
    let name = format!(
        "bridge-{}",
        &instance.expose()[..8.min(instance.expose().len())]
    );
    let register = registration(broker, &name, (instance, None), None);
    let at = &broker.url;
    let (_home, answer) = Home::register(broker, register)
        .await
        .map_err(|why| format!("cannot use the broker at {at}: {why}"))?;
    match answer {
        Received::Peers(peers) => peers.domain.ok_or_else(|| {
            format!("the broker at {at} has no domain: start it with `peerbus serve --domain NAME`")
        }),
        _ => Err(format!("what is at {at} is no broker")),
    }
}

/// Drops a message of the stream. If it was not taken its home sends it again.
async fn forget(mail: &jetstream::Message) {
    if let Err(error) = mail.ack().await {
        tracing::debug!(%error, "the stream was not answered");
    }
}

/// What leads to a joint: for messages of the stream, and for the rest.
struct To {
    mails: Lane<Mail>,
    rest: mpsc::Sender<FromNats>,
}

/// The joints to other domains.
struct Joints {
    common: Arc<Common>,
    all: BTreeMap<Domain, To>,
}

impl Joints {
    /// The joint to a domain, made if there is none.
    fn to(&mut self, other: &str) -> Option<&mut To> {
        let other = Domain::parse(other).filter(|other| *other != self.common.own)?;
        if !self.all.contains_key(&other) {
            if self.all.len() >= DOMAINS_MAX {
                return None;
            }
            let (rest, from) = mpsc::channel(HELD);
            let (mails, come) = mpsc::channel(MAILS_HELD);
            let common = Arc::clone(&self.common);
            tokio::spawn(joint::run(common, other.clone(), come, from));
            let mails = Lane::new(mails);
            self.all.insert(other.clone(), To { mails, rest });
        }
        self.all.get_mut(&other)
    }

    /// The joint to the domain that sent a message of the stream.
    fn of(&mut self, mail: &jetstream::Message) -> Option<&mut To> {
        let own = self.common.own.clone();
        match subject::sender(&mail.subject, own.as_str()) {
            Some((Kind::Mail, sender)) => self.to(sender),
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

    /// A message waited for room for too long. It must not hold up the other domains' any longer.
    async fn too_late(&mut self, mail: &Mail) {
        let subject = &mail.subject;
        tracing::warn!(%subject, "what comes is not taken in time; it is dropped until it is, and sent again");
        if let Some(joint) = self.of(mail) {
            joint.mails.fall_behind();
        }
        forget(mail).await;
    }

    /// Something came outside the stream. What has no room gets lost, and is said again; what is too large
    /// to be read takes none.
    fn told(&mut self, subject: &str, payload: &[u8]) {
        let own = self.common.own.clone();
        if let Some((sender, said)) = said(subject, own.as_str(), payload)
            && let Some(joint) = self.to(sender)
        {
            let _ = joint.rest.try_send(said);
        }
    }
}

/// Who says what outside the stream, if it can be read.
fn said<'a>(subject: &'a str, own: &str, payload: &[u8]) -> Option<(&'a str, FromNats)> {
    let (kind, sender) = subject::sender(subject, own)?;
    let said = match kind {
        Kind::Back if payload.len() <= OUTSIDE_BYTES_MAX => FromNats::Back(payload.to_vec()),
        Kind::Here if payload.len() <= ROSTER_BYTES_MAX => FromNats::Here(payload.to_vec()),
        _ => return None,
    };
    Some((sender, said))
}

#[cfg(test)]
mod tests {
    use super::*;

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
