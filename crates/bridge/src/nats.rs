//! The connection to NATS, and what must be there.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_nats::jetstream::consumer::{self, AckPolicy};
use async_nats::jetstream::context::CreateStreamErrorKind;
use async_nats::jetstream::stream::{self, DiscardPolicy, RetentionPolicy};
use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectOptions, Event};

use crate::{account, subject};

/// How long NATS may take to answer.
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

/// What no bridge needs: all of the stream.
const PROBED: Duration = Duration::from_secs(2);
const PROBE: &str = "$JS.API.STREAM.INFO.PEERBUS";

/// Where NATS is, and as whom.
#[derive(Debug, Clone)]
pub struct Server {
    /// `nats://HOST:PORT` or `tls://HOST:PORT`; several are parted by commas.
    pub url: String,
    /// A file with a key (`.nk`) or with credentials as `nsc` writes them. Without one everybody is
    /// trusted, so it must be this machine.
    pub creds: Option<PathBuf>,
    /// Authorities to trust in place of the system's.
    pub ca: Option<PathBuf>,
}

impl Server {
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
        let options = options
            .name("peerbus-bridge")
            .request_timeout(Some(ANSWERS))
            .event_callback(|event| async move { said(&event) });
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
                     configuration and reload it",
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
    /// It may do what a bridge needs.
    Bound,
    /// It may do more: it was asked for what no bridge needs, and that was answered.
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

/// Finds out how far the key is bound, by a question that no bridge needs to ask. No answer takes 2
/// seconds.
pub async fn bound(server: &Server, client: &Client) -> Bound {
    if server.creds.is_none() {
        return Bound::None;
    }
    let asked = client.request(PROBE, Vec::new().into());
    match tokio::time::timeout(PROBED, asked).await {
        Ok(Ok(_)) => Bound::Wide,
        _ => Bound::Bound,
    }
}

fn said(event: &Event) {
    match event {
        // As it should be.
        Event::ServerError(error) if error.to_string().contains(PROBE) => {}
        Event::Connected => tracing::info!("connected to NATS"),
        Event::Disconnected => tracing::warn!("NATS is away; it is tried until it is back"),
        Event::ClientError(error) => tracing::debug!(%error, "NATS is not back"),
        other => tracing::warn!(event = %other, "NATS says"),
    }
}

/// An error with its causes.
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

/// Makes the stream, and a consumer for each domain. What is there already stays, if it is as it must be; it
/// is kept more times than before if that is wanted.
///
/// # Errors
///
/// A sentence: NATS has no JetStream, the key may not do it, or the stream has another layout.
pub async fn set_up(client: &Client, domains: &[String], replicas: usize) -> Result<(), String> {
    let context = jetstream::new(client.clone());
    let wanted = layout(replicas);
    let made = context.get_or_create_stream(wanted.clone()).await;
    let made = made.map_err(|error| match error.kind() {
        CreateStreamErrorKind::JetStreamUnavailable => NO_JETSTREAM.into(),
        CreateStreamErrorKind::TimedOut => {
            "NATS does not answer: the key may not make the stream; `_setup.nk` may".into()
        }
        _ => format!("the stream cannot be made: {}", whole(&error)),
    })?;
    if !serves(&made.cached_info().config, &wanted) {
        let name = subject::STREAM;
        return Err(format!(
            "the stream {name} has another layout: it must keep {} as a work queue that refuses what is too much; \
             remove it (`nats stream rm {name}`), or use another account",
            subject::all_mail()
        ));
    }
    let found = made.cached_info().config.clone();
    if found.num_replicas < replicas {
        let more = stream::Config {
            num_replicas: replicas,
            ..found
        };
        let more = context.update_stream(more).await;
        more.map_err(|error| {
            format!(
                "the stream cannot be kept {replicas} times: {}",
                whole(&error)
            )
        })?;
    }
    for domain in domains {
        let made = made
            .get_or_create_consumer(domain, consumer_of(domain))
            .await;
        made.map_err(|error| format!("the consumer {domain} cannot be made: {}", whole(&error)))?;
    }
    Ok(())
}

/// Whether a stream that is there already is good enough; what bounds it is the operator's.
fn serves(found: &stream::Config, wanted: &stream::Config) -> bool {
    found.subjects == wanted.subjects
        && found.retention == wanted.retention
        && found.discard == wanted.discard
}

fn layout(replicas: usize) -> stream::Config {
    stream::Config {
        name: subject::STREAM.into(),
        description: Some("messages of peerbus between domains".into()),
        subjects: vec![subject::all_mail()],
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_takes_is_forgotten_and_a_stream_that_keeps_it_serves_too() {
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
            Server {
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
