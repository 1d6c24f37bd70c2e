//! Counters for operators, in the OpenMetrics text format.

use std::fmt;
use std::sync::atomic::Ordering;

use peerbus_core::broker::{BusEvent, DomainRoute};
use peerbus_wire::Presence;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry, Unit};
use serde_json::Value;

pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) opened: Counter,
    pub(crate) unsecured: Counter,
    pub(crate) inputs: Counter,
    /// How long a commit takes, in seconds.
    pub(crate) commits: Histogram,
    /// Later receipts that were not sent because a client does not read.
    pub(crate) spared: Counter,
    pub(crate) overflows: Counter,
    accepted: Counter,
    owed: Counter,
    duplicates: Counter,
    refused: Family<Told, Counter>,
    delivered: Counter,
    acked: Counter,
    dead: Counter,
    expired: Counter,
    requests_ended: Counter,
    registered: Counter,
    takeovers: Counter,
    left: Counter,
    denied: Family<Code, Counter>,
    renamed: Counter,
    retired: Counter,
    held: Counter,
    ignored: Counter,
    log_lost: Counter,
    connections: Gauge<i64>,
    peers: Gauge<i64>,
    domains: Domains,
}

/// How mail gets to each domain that was joined. What bridges count begins anew with each of them.
struct Domains {
    up: Family<Other, Gauge>,
    waiting: Family<Other, Gauge>,
    counted: [Family<Other, Counter>; 5],
}

/// What bridges say in their presence that they counted, and what that is.
const COUNTED: [(&str, &str); 5] = [
    ("sent", "Messages sent to a domain"),
    ("resent", "Messages sent to a domain again"),
    ("taken", "Messages taken from a domain"),
    ("doubled", "Messages that came from a domain again"),
    ("refused", "Messages of a domain that were not let in"),
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Other {
    domain: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Told {
    /// `true` when the sender speaks `ext` and was told.
    told: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Code {
    code: u32,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("peerbus");
        let r = &mut registry;
        let commits = Histogram::new(exponential_buckets(0.000_1, 2.0, 16));
        let durable = "Time to make a batch durable";
        r.register_with_unit("commit", durable, Unit::Seconds, commits.clone());
        Self {
            opened: new(r, "connections_opened", "WebSocket connections opened"),
            unsecured: new(r, "tls_failures", "Clients that TLS kept away"),
            inputs: new(r, "inputs", "Inputs handled by the engine"),
            commits,
            spared: new(
                r,
                "receipts_spared",
                "Later receipts dropped for slow readers",
            ),
            overflows: new(
                r,
                "overflows",
                "Connections closed because they do not read",
            ),
            accepted: new(r, "messages_accepted", "Messages accepted"),
            owed: new(r, "deliveries_owed", "Recipients of accepted messages"),
            duplicates: new(r, "messages_duplicate", "Messages that came again"),
            delivered: new(r, "deliveries_sent", "Deliveries given to a connection"),
            acked: new(r, "deliveries_acked", "Deliveries acked"),
            dead: new(r, "deliveries_dead", "Deliveries that were rejected"),
            expired: new(r, "deliveries_expired", "Deliveries that expired"),
            requests_ended: new(
                r,
                "requests_ended",
                "Requests that were answered, declined or withdrawn",
            ),
            registered: new(r, "registrations", "Registrations"),
            takeovers: new(r, "takeovers", "Registrations that took a live name over"),
            left: new(r, "departures", "Registered connections that ended"),
            renamed: new(r, "renames", "Peers that took another name"),
            retired: new(r, "retirements", "Names that ended for good"),
            held: new(r, "messages_held_back", "Messages held back, with why"),
            ignored: new(r, "frames_ignored", "Frames ignored"),
            log_lost: new(r, "log_lines_lost", "Log lines that nobody took"),
            refused: new(r, "messages_refused", "Messages refused"),
            denied: new(r, "denials", "Registrations refused, by close code"),
            connections: new(r, "connections", "Open WebSocket connections"),
            peers: new(r, "peers", "Connected peers"),
            domains: Domains::new(r),
            registry,
        }
    }

    pub(crate) fn count(&self, event: &BusEvent) {
        match event {
            BusEvent::Accepted { recipients } => {
                self.accepted.inc();
                self.owed.inc_by(u64::from(*recipients));
            }
            BusEvent::Duplicate => _ = self.duplicates.inc(),
            BusEvent::Refused { told, .. } => {
                let told = if *told { "true" } else { "false" };
                self.refused.get_or_create(&Told { told }).inc();
            }
            BusEvent::Delivered => _ = self.delivered.inc(),
            BusEvent::Acked => _ = self.acked.inc(),
            BusEvent::Dead => _ = self.dead.inc(),
            BusEvent::Expired => _ = self.expired.inc(),
            BusEvent::Ended => _ = self.requests_ended.inc(),
            BusEvent::Registered { takeover, .. } => {
                self.registered.inc();
                self.takeovers.inc_by(u64::from(*takeover));
            }
            BusEvent::Left { .. } => _ = self.left.inc(),
            BusEvent::Renamed { .. } => _ = self.renamed.inc(),
            BusEvent::Retired { .. } => _ = self.retired.inc(),
            BusEvent::Denied { reason } => {
                let code = u32::from(reason.code());
                self.denied.get_or_create(&Code { code }).inc();
            }
            BusEvent::DiskFull { .. }
            | BusEvent::Presence { .. }
            | BusEvent::Forgotten { .. }
            | BusEvent::Taken { .. }
            | BusEvent::Step { .. } => {}
            BusEvent::Held { .. } => _ = self.held.inc(),
            BusEvent::Ignored => _ = self.ignored.inc(),
        }
    }

    /// Takes how mail gets to each domain.
    pub(crate) fn set_joined(&self, all: &[DomainRoute]) {
        let Domains {
            up,
            waiting,
            counted,
        } = &self.domains;
        up.clear();
        waiting.clear();
        counted.iter().for_each(Family::clear);
        for joined in all {
            self.domains.set(joined);
        }
    }

    pub(crate) fn text(
        &self,
        connections: usize,
        peers: usize,
        log_lost: u64,
    ) -> Result<String, fmt::Error> {
        self.log_lost.inner().store(log_lost, Ordering::Relaxed);
        self.connections
            .set(i64::try_from(connections).unwrap_or(i64::MAX));
        self.peers.set(i64::try_from(peers).unwrap_or(i64::MAX));
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

impl Domains {
    fn new(r: &mut Registry) -> Self {
        Self {
            up: new(r, "domain_up", "Whether mail gets to a domain: 1 or 0"),
            waiting: new(
                r,
                "domain_waiting",
                "Messages for a domain that it does not have yet",
            ),
            counted: COUNTED.map(|(word, help)| new(r, &format!("domain_{word}"), help)),
        }
    }

    fn set(&self, joined: &DomainRoute) {
        let said = joined.presence.as_ref().map_or("{}", Presence::as_str);
        let said: Value = serde_json::from_str(said).unwrap_or_default();
        let other = Other {
            domain: joined.domain.to_string(),
        };
        let up = joined.online && said["activity"] != "waiting";
        self.up.get_or_create(&other).set(i64::from(up));
        let waiting = i64::try_from(joined.waiting).unwrap_or(i64::MAX);
        self.waiting.get_or_create(&other).set(waiting);
        for ((word, _), counter) in COUNTED.iter().zip(&self.counted) {
            let count = said[word].as_u64().unwrap_or_default();
            let counter = counter.get_or_create(&other);
            counter.inner().store(count, Ordering::Relaxed);
        }
    }
}

/// One that is registered.
fn new<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_core_counts_can_be_read_and_names_cannot() {
        let metrics = Metrics::new();
        metrics.count(&BusEvent::Accepted { recipients: 3 });
        metrics.count(&BusEvent::Registered {
            name: "alice".into(),
            token: peerbus_core::TokenHash([0; 32]),
            takeover: true,
        });
        let refused = BusEvent::Refused {
            from: "bob".into(),
            reason: "no".into(),
            told: false,
        };
        metrics.count(&refused);
        let text = metrics.text(5, 2, 7).unwrap();
        for line in [
            "peerbus_messages_accepted_total 1",
            "peerbus_deliveries_owed_total 3",
            "peerbus_takeovers_total 1",
            "peerbus_messages_refused_total{told=\"false\"} 1",
            "peerbus_connections 5",
            "peerbus_peers 2",
            "peerbus_log_lines_lost_total 7",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} is missing in\n{text}"
            );
        }
        assert!(!text.contains("alice") && !text.contains("bob"), "{text}");
    }
}
