//! The broker: is it there, does it take the token, does a message come back, who has the name.

use std::time::{Duration, Instant};

use peerbus_adapter::demand::{NOT_STARTED, ask, came_to_be, unadmitted, with_named};
use peerbus_adapter::{
    Bus, BusConfig, Failure, How, LinkState, Naming, PeerEntry, RegistrationRefusal, SessionEvent,
    UNUSABLE, Url, connect, credentials, wall_ms,
};
use peerbus_view::{PROBE, presence};

use super::report::Report;
use super::{asleep, domains, elsewhere, health, settings};
use crate::install::turned_out;

const PATIENCE: Duration = Duration::from_secs(10);
/// A clock that is off by more is worth a word.
const CLOCK_MS_MAX: u64 = 5_000;

/// Checks the broker, and what only it can tell. Gives the peers that it tells of.
pub(super) fn check(
    config: BusConfig,
    report: &mut Report,
) -> Result<Option<Vec<PeerEntry>>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("cannot start: {error}")))?;
    let told = runtime.block_on(async {
        let mut told = None;
        let (bus, link) = connect(config.clone());
        let driver = tokio::spawn(link.run());
        let started = Instant::now();
        if let Some(ext) = reach(&bus, &config, started, report).await {
            there_and_back(&bus, ext, report).await;
            let peers = bus.peers(PATIENCE).await;
            told = peers.ok().map(|peers| peers.entries);
            let peers = told.as_deref().unwrap_or_default();
            asleep::check(peers, report);
            let domain = bus.domain();
            domains::check(domain.as_ref(), peers, report);
            let secret = credentials::secret_of(config.secret.clone(), &config.credentials);
            domains::check_secrets(domain.as_ref(), peers, secret.as_ref(), report);
            name(&config, peers, report).await;
        }
        bus.close().await;
        drop(bus);
        // The link ends by itself once the bus is closed.
        let _ = driver.await;
        told
    });
    Ok(told)
}

/// Waits for the registration, or for why there is none.
async fn settled(bus: &Bus) -> LinkState {
    let mut link = bus.link();
    let settled = link.wait_for(|state| match state {
        LinkState::Connecting { last_error, .. } => last_error.is_some(),
        _ => true,
    });
    match tokio::time::timeout(PATIENCE, settled).await {
        Ok(Ok(state)) => state.clone(),
        _ => bus.link().borrow().clone(),
    }
}

/// Connects. Gives whether the broker speaks our extension, if there is one.
async fn reach(bus: &Bus, config: &BusConfig, since: Instant, report: &mut Report) -> Option<bool> {
    match settled(bus).await {
        LinkState::Online { ext, .. } => {
            let took = since.elapsed().as_millis();
            answered(config, took, ext, report).await;
            Some(ext)
        }
        LinkState::Refused { why, .. }
            if matches!(
                why,
                RegistrationRefusal::Token | RegistrationRefusal::Revoked
            ) && config.token.is_none()
                && let Some(turned_out) = turned_out(&config.credentials)
                && let Some((says, remedy)) = turned_out.split_once(". ") =>
        {
            report.failed("token", says, remedy);
            None
        }
        state @ LinkState::Refused { .. } => {
            let remedy = "use this broker's token: the credentials file that its `peerbus serve` \
                          made, or one of its PEERBUS_TOKENS; if that file was put there since the \
                          broker started, `peerbus stop` first";
            let remedy = match config.token {
                Some(_) => format!(
                    "PEERBUS_TOKEN is set, and wins over the credentials file: unset it, or {remedy}"
                ),
                None => remedy.to_owned(),
            };
            report.failed("token", state.to_string(), remedy);
            None
        }
        LinkState::Connecting { last_error, .. } => {
            let why = last_error.unwrap_or_else(|| "it does not answer".into());
            absent(config, why, report).await;
            None
        }
        other => {
            report.failed(
                "broker",
                other.to_string(),
                "see the line about credentials",
            );
            None
        }
    }
}

async fn absent(config: &BusConfig, why: String, report: &mut Report) {
    if why.starts_with(UNUSABLE)
        && let Some((why, remedy)) = why.rsplit_once("; ")
    {
        return report.failed("broker", why, remedy);
    }
    let kept = credentials::load(&config.credentials).ok();
    let file = config.credentials.display();
    let named = match (&config.url, kept.and_then(|kept| kept.url)) {
        (Some(_), _) => Some("PEERBUS_URL".to_owned()),
        (None, url) => url.map(|_| format!("`url` in {file}")),
    };
    if let Some(named) = named {
        let remedy = format!("start `peerbus serve` on the broker's machine, or correct {named}");
        return report.failed("broker", why, &remedy);
    }
    if let Some((says, remedy)) = elsewhere::holder(config) {
        return report.failed("broker", says, remedy);
    }
    let remedy = match why.starts_with(NOT_STARTED) {
        true => "mend that, and the next command starts one",
        false => "start `peerbus serve` on the broker's machine, or correct PEERBUS_URL",
    };
    let says = match elsewhere::port(config).await {
        Some(hint) => format!("{why} ({hint})"),
        None => why,
    };
    report.failed("broker", says, remedy);
}

async fn answered(config: &BusConfig, took: u128, ext: bool, report: &mut Report) {
    let kept = credentials::load(&config.credentials).ok();
    let listed = || kept.and_then(|kept| kept.url);
    let url = config.url.clone().or_else(listed);
    let sockets = with_named(&config.sockets).into_iter().map(Url::Unix);
    let places: Vec<_> = url.map_or_else(|| sockets.collect(), |url| vec![url]);
    let mut said = None;
    for url in places {
        if let Some(answer) = health::ask(&url, &config.tls).await {
            said = Some((answer, url));
            break;
        }
    }
    let (at, version) = match &said {
        Some((said, url)) => (format!(" at {url}"), said["version"].as_str()),
        None => (String::new(), None),
    };
    let missing = said.as_ref().and_then(|(said, _)| said["missing"].as_str());
    if let Some(missing) = missing {
        let remedy = "put the database's files back if you have them, or run `peerbus audit \
                      acknowledge` on the broker's machine";
        report.failed("database", missing, remedy);
    }
    let ours = env!("CARGO_PKG_VERSION");
    report.ok(
        "broker",
        format!("registered{at} within {took} ms, the token is accepted"),
    );
    if let Some((_, Url::Unix(path))) = &said
        && let Ok((200, about)) = ask(path, "GET", "/broker").await
    {
        if let Some(says) = came_to_be(&about) {
            report.ok("started", says);
        }
        if let Some(says) = unadmitted(&about) {
            let remedy = "if credentials.toml was lost and made anew, `peerbus stop`, put the old \
                          one back, and the next command starts the broker with it; else `peerbus \
                          names release NAME` frees a name";
            report.warning("names", says, remedy);
        }
    }
    match version {
        _ if !ext => report.warning(
            "version",
            "the broker speaks peerbus v1, which gives no receipts",
            "run `peerbus serve` of this version in its place",
        ),
        Some(theirs) if theirs != ours => report.warning(
            "version",
            format!("the broker is {theirs:?}, this program is {ours}"),
            "install one version everywhere, and restart the broker and the sessions",
        ),
        Some(_) => report.ok("version", format!("the broker is {ours} too")),
        None => {}
    }
}

/// A message to itself and back, and what the broker's clock said.
async fn there_and_back(bus: &Bus, ext: bool, report: &mut Report) {
    let started = Instant::now();
    let me = bus.name();
    let sent = match bus.send(&me, PROBE, PATIENCE).await {
        Ok(sent) => sent,
        Err(error) => {
            let remedy = "see the broker's log (`peerbus serve` writes it to stderr)";
            return report.failed("message", error.to_string(), remedy);
        }
    };
    let back = tokio::time::timeout(PATIENCE, returned(bus, &sent.id)).await;
    let took = started.elapsed().as_millis();
    if back != Ok(true) {
        report.failed(
            "message",
            format!("a message to itself was accepted and did not come back within {took} ms"),
            "see the broker's log; if it says that a message failed verification, the secret of \
             this environment is a wrong one",
        );
        return;
    }
    report.ok(
        "message",
        format!("to itself and back, signature verified, in {took} ms"),
    );
    if ext {
        clock(bus, sent.id, report).await;
    }
}

async fn returned(bus: &Bus, id: &str) -> bool {
    while let Some(event) = bus.next().await {
        let SessionEvent::Message(message) = event else {
            continue;
        };
        let path = "doctor".into();
        bus.ack(&message.key, How::Pushed { path });
        if message.id == id {
            return true;
        }
    }
    false
}

async fn clock(bus: &Bus, id: String, report: &mut Report) {
    let receipts = bus.statuses(&[id], PATIENCE).await.unwrap_or_default();
    let Some(theirs) = receipts.iter().find_map(|receipt| receipt.at_ms) else {
        return;
    };
    let apart = wall_ms().abs_diff(theirs);
    if apart > CLOCK_MS_MAX {
        report.warning(
            "clock",
            format!(
                "the broker's clock and this one are {} s apart",
                apart / 1_000
            ),
            "set both by NTP: times in receipts and logs do not fit together",
        );
    } else {
        report.ok(
            "clock",
            format!("within {} ms of the broker's", apart.max(1)),
        );
    }
}

/// `PEERBUS_NAME`, if it is one: can it be used, whose is it, and who has it now.
async fn name(config: &BusConfig, peers: &[PeerEntry], report: &mut Report) {
    let Some(Ok(naming)) = settings::naming() else {
        return;
    };
    let Naming::Verbatim(wanted) = &naming else {
        return;
    };
    let wanted = wanted.as_str().to_owned();
    let known = peers
        .iter()
        .find(|peer| peer.name.eq_ignore_ascii_case(&wanted));
    let holder = known.filter(|peer| peer.online).map(described);
    match (refusal(config, naming).await, holder) {
        (Some(RegistrationRefusal::NameClaimed), _) => {
            let why = format!("the name {wanted} belongs to another token at this broker");
            let remedy = format!(
                "choose another PEERBUS_NAME, or free it with `peerbus names release {wanted}`"
            );
            report.failed("name", why, remedy);
        }
        (
            Some(
                why @ (RegistrationRefusal::NameForbidden { .. }
                | RegistrationRefusal::NameKept { .. }),
            ),
            _,
        ) => {
            let why = peerbus_adapter::refusal(&wanted, &why, "PEERBUS_NAME");
            report.failed("name", why, "choose another PEERBUS_NAME");
        }
        (_, Some(holder)) => report.ok("name", format!("{wanted} is in use by {holder}")),
        _ => report.ok(
            "name",
            format!("{wanted} can be used, and nobody has it now"),
        ),
    }
}

fn described(peer: &PeerEntry) -> String {
    let said = presence(peer);
    let member = |name: &str| said[name].as_str();
    match (member("client"), member("project")) {
        (Some(client), Some(project)) => format!("{client} in {project}"),
        (Some(one), None) | (None, Some(one)) => one.to_owned(),
        (None, None) => "a live session".to_owned(),
    }
}

/// Why a name is refused. It is asked for as an ephemeral one: so nothing is taken over, no mail
/// comes, and nothing of it stays.
async fn refusal(config: &BusConfig, naming: Naming) -> Option<RegistrationRefusal> {
    let (bus, link) = connect(BusConfig {
        naming,
        ..config.clone()
    });
    let driver = tokio::spawn(link.run());
    let state = settled(&bus).await;
    bus.close().await;
    drop(bus);
    // As above.
    let _ = driver.await;
    match state {
        LinkState::Refused { why, .. } => Some(why),
        _ => None,
    }
}
