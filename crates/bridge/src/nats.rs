//! The connection to NATS, and what must be there.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::{self, AckPolicy};
use async_nats::jetstream::context::{CreateStreamErrorKind, PublishErrorKind};
use async_nats::jetstream::stream::{self, DiscardPolicy, RetentionPolicy};
use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectOptions, Event};
use peerbus_os::sync::lock;
use serde_json::{Value, json};

use crate::pace::Said;
use crate::{account, subject};

const ANSWERS: Duration = Duration::from_secs(5);
const NO_JETSTREAM: &str =
    "this NATS has no JetStream: start nats-server with -js, or enable it for the account";
/// Messages from one domain to another that the stream keeps.
const MESSAGES_MAX: i64 = 100_000;
/// What nobody took for so long the stream forgets: its home has it, and sends it again when the other side
/// is back.
const AGE_MAX: Duration = Duration::from_secs(3_600);
/// How long a message that was handed out may stay unacked until it is handed out again.
const ACK_WAIT: Duration = Duration::from_secs(30);
/// Messages that are handed out and not acked.
const UNACKED_MAX: i64 = 4_096;

/// How long the answer may take to what the stream keeps.
const PROBED: Duration = Duration::from_secs(2);
/// What an operator does about an account that is not one domain's alone.
pub(crate) const ANEW: &str = "write accounts.conf anew with `peerbus bridge account`, lay it beside the configuration of \
    nats-server, start that anew, and run `peerbus bridge setup`";

/// Where NATS is, and as whom.
#[derive(Debug, Clone, clap::Args)]
pub struct NatsServer {
    /// Where NATS is: nats://HOST:PORT or tls://HOST:PORT, several parted by commas
    #[arg(
        long = "nats",
        value_name = "URL",
        default_value = "nats://127.0.0.1:4222"
    )]
    pub url: String,
    // A file with a key (`.nk`) or with credentials as `nsc` writes them. Without one everybody is
    // trusted, so it must be this machine.
    /// The key or the credentials to connect with
    #[arg(long, value_name = "FILE")]
    pub creds: Option<PathBuf>,
    /// Authorities to trust in place of the system's (PEM)
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
}

impl NatsServer {
    /// Connects as the bridge of a domain, or as the one that sets up.
    ///
    /// # Errors
    ///
    /// A sentence: what is missing, or what NATS said.
    pub async fn connect(&self, domain: Option<&str>) -> Result<Client, String> {
        let mut options = match &self.creds {
            Some(path) => with(path).await?,
            None if self.is_here() => ConnectOptions::new(),
            None => {
                return Err(format!(
                    "{} is not this machine: name the bridge's key with --creds, as `peerbus \
                     bridge account` writes it",
                    self.url
                ));
            }
        };
        if let Some(ca) = &self.ca {
            let found = peerbus_os::file::open_regular(ca);
            found.map_err(|error| format!("--ca {}: {error}", ca.display()))?;
            options = options.add_root_certificates(ca.clone());
        }
        if let Some(domain) = domain {
            options = options.custom_inbox_prefix(subject::inbox(domain));
        }
        let said = Arc::new(Mutex::new(Said::default()));
        let options = options
            .name("peerbus-bridge")
            .request_timeout(Some(ANSWERS))
            .event_callback(move |event| {
                let said = Arc::clone(&said);
                async move { say(&said, &event) }
            });
        let servers: Vec<_> = self.servers().collect();
        let connected = options.connect(servers).await;
        connected.map_err(|error| self.not_connected(&whole(&error)))
    }

    /// Why there is no connection, and what helps.
    fn not_connected(&self, why: &str) -> String {
        let url = &self.url;
        let knows = |words: &str| why.to_ascii_lowercase().contains(words);
        if knows("authorization") {
            let key = match &self.creds {
                Some(path) => format!(
                    "does not know the key {}: lay the `accounts.conf` that has it beside its \
                     configuration and start it anew",
                    path.display()
                ),
                None => "lets nobody in without a key: name one with --creds".to_owned(),
            };
            return format!("the NATS at {url} {key} ({why})");
        }
        let hint = match knows("unknownissuer") {
            true => "; name the certificate of its authority with --ca",
            false => "",
        };
        format!("no NATS at {url}: {why}{hint}")
    }

    /// Whether every host is a loopback address.
    fn is_here(&self) -> bool {
        let host = |url: &str| {
            let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
            let host = rest.rsplit_once(':').map_or(rest, |(host, _)| host);
            let host = host.trim_matches(['[', ']']);
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
        };
        self.servers().all(host)
    }

    fn servers(&self) -> impl Iterator<Item = &str> {
        self.url.split(',').map(str::trim)
    }
}

async fn with(path: &Path) -> Result<ConnectOptions, String> {
    let text = peerbus_os::file::read_small(path, 65_536).unwrap_or_default();
    if text.contains("BEGIN NATS USER JWT") {
        let read = ConnectOptions::with_credentials_file(path).await;
        return read.map_err(|error| format!("{}: {error}", path.display()));
    }
    Ok(ConnectOptions::with_nkey(account::seed(path)?))
}

/// How far a bridge's key is bound to its domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The account that it is in keeps this domain's mail only: it reaches nobody else's, nor is its own
    /// reached.
    Bound,
    /// The account keeps others' mail, too, or does not say what it keeps.
    Wide,
    /// There is none.
    None,
}

impl Bound {
    /// The word for it in the bridge's presence; `None`: all is well.
    pub(crate) fn word(self) -> Option<&'static str> {
        match self {
            Self::Bound => None,
            Self::Wide => Some("wide"),
            Self::None => Some("none"),
        }
    }
}

/// Finds out how far the key is bound, by what the stream keeps that it reaches. No answer takes 2 seconds.
pub async fn bound(server: &NatsServer, client: &Client, own: &str) -> Bound {
    if server.creds.is_none() {
        return Bound::None;
    }
    let asked = client.request(subject::stream_info(), Vec::new().into());
    let answer = match tokio::time::timeout(PROBED, asked).await {
        Ok(Ok(answer)) => serde_json::from_slice::<Value>(&answer.payload).unwrap_or_default(),
        _ => Value::Null,
    };
    match answer["config"]["subjects"] == json!([subject::mail(own, "*")]) {
        true => Bound::Bound,
        false => Bound::Wide,
    }
}

/// Logs what NATS says. Some of that comes as often as others like.
fn say(said: &Mutex<Said>, event: &Event) {
    let now = Instant::now();
    let mut said = lock(said);
    let more = said.not_said(now);
    if more > 0 {
        tracing::warn!(more, "NATS says");
    }
    match event {
        // In an account of another layout.
        Event::ServerError(error) if error.to_string().contains(&subject::stream_info()) => {}
        Event::Connected => tracing::info!("connected to NATS"),
        Event::Disconnected => tracing::warn!("NATS is away; it is tried until it is back"),
        Event::ClientError(error) => tracing::debug!(%error, "NATS is not back"),
        other if said.one_more(now) => tracing::warn!(event = %other, "NATS says"),
        _ => {}
    }
}

pub(crate) fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

/// Makes a stream with a consumer for each domain: in the domain's own account, and without keys one stream
/// for all. What is there already stays, if it is as it must be; it is kept more times than before if that is
/// wanted.
///
/// # Errors
///
/// A sentence: NATS has no JetStream, the key may not do it or reaches no account of a domain, or a stream has
/// another layout.
pub async fn set_up(
    server: &NatsServer,
    client: &Client,
    domains: &[String],
    replicas: usize,
) -> Result<(), String> {
    if server.creds.is_none() {
        let context = jetstream::new(client.clone());
        let made = make(&context, &layout(&subject::all_mail(), replicas), domains).await;
        return made.map_err(|why| why.unwrap_or_else(|| NO_JETSTREAM.into()));
    }
    for domain in domains {
        let context = jetstream::with_prefix(client.clone(), &subject::api(domain));
        let wanted = layout(&subject::mail(domain, "*"), replicas);
        match make(&context, &wanted, std::slice::from_ref(domain)).await {
            Ok(()) => {}
            Err(Some(why)) => return Err(format!("{domain}: {why}")),
            Err(None) => return Err(unreachable(client, domain).await),
        }
    }
    Ok(())
}

/// Why the JetStream of a domain's account does not answer the key that sets up.
async fn unreachable(client: &Client, domain: &str) -> String {
    match jetstream::new(client.clone()).query_account().await {
        Ok(_) => format!(
            "one account of this NATS holds all domains: a key of one of them can empty and delete what is the \
             others'. {ANEW}"
        ),
        Err(_) => format!(
            "no JetStream of {domain} answers this key: {domain} stands in no accounts.conf that this nats-server \
             has read since its start (`peerbus bridge account --domain {domain}` writes it), or JetStream is off: \
             start nats-server with -js"
        ),
    }
}

/// Makes a stream, and a consumer for each of these domains. Fails without a sentence when no JetStream
/// answers.
async fn make(
    context: &Context,
    wanted: &stream::Config,
    domains: &[String],
) -> Result<(), Option<String>> {
    let made = context.get_or_create_stream(wanted.clone()).await;
    let made = made.map_err(|error| match error.kind() {
        CreateStreamErrorKind::JetStreamUnavailable => None,
        CreateStreamErrorKind::TimedOut => {
            Some("NATS does not answer: the key may not make the stream; `_setup.nk` may".into())
        }
        _ => Some(format!("the stream cannot be made: {}", whole(&error))),
    })?;
    if !serves(&made.cached_info().config, wanted) {
        let name = subject::STREAM;
        return Err(Some(format!(
            "the stream {name} has another layout: it must keep {} as a work queue that refuses what is too much; \
             remove it (`nats stream rm {name}`), or use another account",
            wanted.subjects.join(", ")
        )));
    }
    let found = made.cached_info().config.clone();
    let replicas = wanted.num_replicas;
    if found.num_replicas < replicas {
        let more = stream::Config {
            num_replicas: replicas,
            ..found
        };
        let more = context.update_stream(more).await;
        more.map_err(|error| {
            let why = whole(&error);
            Some(format!("the stream cannot be kept {replicas} times: {why}"))
        })?;
    }
    for domain in domains {
        let made = made
            .get_or_create_consumer(domain, consumer_of(domain))
            .await;
        made.map_err(|error| {
            let why = whole(&error);
            Some(format!("the consumer {domain} cannot be made: {why}"))
        })?;
    }
    Ok(())
}

/// Whether a stream that is there already is good enough; what bounds it is the operator's.
fn serves(found: &stream::Config, wanted: &stream::Config) -> bool {
    found.subjects == wanted.subjects
        && found.retention == wanted.retention
        && found.discard == wanted.discard
}

fn layout(mail: &str, replicas: usize) -> stream::Config {
    stream::Config {
        name: subject::STREAM.into(),
        description: Some("messages of peerbus between domains".into()),
        subjects: vec![mail.into()],
        retention: RetentionPolicy::WorkQueue,
        discard: DiscardPolicy::New,
        discard_new_per_subject: true,
        max_messages_per_subject: MESSAGES_MAX,
        max_age: AGE_MAX,
        num_replicas: replicas,
        ..stream::Config::default()
    }
}

fn consumer_of(domain: &str) -> consumer::pull::Config {
    consumer::pull::Config {
        durable_name: Some(domain.into()),
        filter_subject: subject::mail(domain, "*"),
        ack_policy: AckPolicy::Explicit,
        ack_wait: ACK_WAIT,
        max_ack_pending: UNACKED_MAX,
        ..consumer::pull::Config::default()
    }
}

/// The consumer of a domain.
///
/// # Errors
///
/// A sentence: it is missing, of another layout, or the key may not use it.
pub async fn consumer(
    context: &Context,
    domain: &str,
) -> Result<consumer::Consumer<consumer::pull::Config>, String> {
    let found = context
        .get_consumer_from_stream(domain, subject::STREAM)
        .await;
    let found: consumer::Consumer<consumer::pull::Config> = found.map_err(|error| {
        let (why, stream) = (whole(&error), subject::STREAM);
        if why.contains("timed out") {
            format!("NATS does not answer this key about {domain}: is it the key of {domain}? ({why})")
        } else if why.contains("JetStream resource does not exist") {
            format!("{NO_JETSTREAM} ({why})")
        } else {
            format!("the stream {stream} has no consumer {domain} for this key: `peerbus bridge setup` makes it ({why})")
        }
    })?;
    let config = &found.cached_info().config;
    let wanted = consumer_of(domain);
    if config.filter_subject != wanted.filter_subject || config.ack_policy != AckPolicy::Explicit {
        return Err(format!(
            "the consumer {domain} takes \"{}\" and not \"{}\": remove it, and run `peerbus bridge setup`",
            config.filter_subject, wanted.filter_subject
        ));
    }
    Ok(found)
}

/// Why a message can never be published, if that is so.
pub(crate) fn never(kind: PublishErrorKind) -> Option<String> {
    let large = kind == PublishErrorKind::MaxPayloadExceeded;
    large.then(|| {
        "NATS lets through no message as large as this one; its operator can raise max_payload"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_takes_is_forgotten_and_a_stream_that_keeps_it_serves_too() {
        let layout = |replicas| layout(&subject::all_mail(), replicas);
        let wanted = layout(1);
        assert_eq!(wanted.max_age, Duration::from_secs(3_600));
        let old = stream::Config {
            max_age: Duration::ZERO,
            ..layout(1)
        };
        assert!(serves(&old, &wanted));
        let other = stream::Config {
            retention: RetentionPolicy::Limits,
            ..layout(1)
        };
        assert!(!serves(&other, &wanted));
    }

    #[test]
    fn without_a_key_only_this_machine_is_trusted() {
        let here = |url: &str| {
            NatsServer {
                url: url.into(),
                creds: None,
                ca: None,
            }
            .is_here()
        };
        for url in [
            "nats://127.0.0.1:4222",
            "localhost:4222",
            "nats://[::1]:4222",
            "127.0.0.1:1,127.0.0.1:2",
        ] {
            assert!(here(url), "{url}");
        }
        for url in [
            "nats://10.0.0.1:4222",
            "tls://example.org",
            "127.0.0.1:1,example.org:2",
            "nats://localhost.example.org:1",
        ] {
            assert!(!here(url), "{url}");
        }
    }
}
