//! `peerbus peers`.

use peerbus_adapter::demand::came_to_be;
use peerbus_adapter::domains::There;
use peerbus_adapter::{Domain, Failure, PeerEntry, project};
use peerbus_view::{Audience, DomainReach, DomainView, PeerView};
use serde_json::{Value, json};

use crate::args::Peers;
use crate::here::{self, Here};
use crate::table::{self, Column};
use crate::{client, operator, output};

pub(crate) const COLUMNS: [Column; 10] = [
    table::NAME,
    table::STATE,
    table::UNSEEN,
    table::OWES,
    table::PROJECT,
    table::CLIENT,
    table::BRANCH,
    Column::ranked(4, "PROCESS"),
    Column::said(5, "WAKE"),
    Column::ranked(6, "ACKS"),
];

pub(crate) fn run(verb: Peers) -> Result<(), Failure> {
    if let Some(domain) = &verb.domain {
        return there(&verb, domain);
    }
    let answer = client::peers(client::config(&verb.connection, None)?, verb.timeout)?;
    let bridge = |peer: &PeerEntry| answer.domain.is_some() && DomainView::is_bridge(peer);
    let own = |peer: &&PeerEntry| peer.name == answer.me || bridge(peer);
    let others = answer.entries.iter().filter(|peer| !own(peer));
    let others = Here::of(others);
    let joined = match answer.domain {
        Some(_) => DomainView::all(&answer.entries),
        None => Vec::new(),
    };
    let broker = broker(&verb);
    if verb.json {
        let mut told = json!({ "peers": others.json(), "omitted": answer.omitted });
        if let Some(broker) = broker {
            told["broker"] = broker;
        }
        if let Some(domain) = &answer.domain {
            told["domain"] = domain.as_str().into();
            told["domains"] = joined
                .iter()
                .map(|it| json!(DomainReach::from(it)))
                .collect();
        }
        return output::json(&told);
    }
    let broker = broker.unwrap_or_default().to_string();
    if let Some(says) = came_to_be(&broker) {
        output::say(&format!("broker: {says}"));
    }
    let all = others.peers.iter().cloned();
    if let Some(says) = here::may_come_back(&broker, all) {
        output::say(says);
    }
    if let Some(domain) = &answer.domain {
        output::say(&format!(
            "domain: {domain}; from elsewhere a peer is NAME@{domain}"
        ));
        for joined in &joined {
            output::say(&domain_line(joined));
        }
    }
    show(&verb, others.peers, answer.omitted)
}

fn show(verb: &Peers, all: Vec<PeerView>, omitted: u32) -> Result<(), Failure> {
    let (shown, more): (Vec<_>, Vec<_>) =
        (all.into_iter()).partition(|peer| verb.all || peer.is_of_note());
    if shown.is_empty() {
        output::line("no peers")?;
    } else {
        table::write(&COLUMNS, shown.iter().map(row), verb.wide)?;
    }
    if !more.is_empty() {
        // A token without the right `observe` is not told what others are owed.
        let owed = match more.iter().all(|peer| peer.unacked.is_some()) {
            true => " and owed nothing",
            false => "",
        };
        output::say(&format!(
            "{} more, away{owed}: `peerbus peers --all`",
            more.len()
        ));
    }
    if omitted > 0 {
        output::say(&format!("… and {omitted} more"));
    }
    let mut groups: Vec<_> = shown.into_iter().flat_map(|peer| peer.groups).collect();
    groups.sort();
    groups.dedup();
    for told in project::kept(&groups) {
        output::say(&format!("groups: {told}"));
    }
    Ok(())
}

fn there(verb: &Peers, domain: &Domain) -> Result<(), Failure> {
    let config = client::config(&verb.connection, None)?;
    let deadline = client::duration(verb.timeout);
    let there = client::with_bus(config, client::Refused::Fail, async |bus| {
        There::ask(&bus, domain, deadline)
            .await
            .map_err(Failure::failed)
    })?;
    // A peer there waits for a user there.
    let about = |peer| PeerView::new(peer, Audience::Peer);
    let mut all: Vec<_> = there.peers.iter().map(about).collect();
    here::in_order(&mut all);
    if verb.json {
        let told = json!({ "peers": all, "omitted": there.omitted, "note": there.note });
        return output::json(&told);
    }
    output::say(&there.note);
    show(verb, all, there.omitted)
}

fn domain_line(joined: &DomainView) -> String {
    let domain = &joined.domain;
    let waiting = joined.waiting.filter(|waiting| *waiting > 0);
    let waiting = waiting.map_or_else(String::new, |n| {
        format!("; {} for it", output::plural(n, "message"))
    });
    match &joined.trouble {
        None => format!("domain: {domain} is joined, a peer there is NAME@{domain}{waiting}"),
        Some(trouble) => format!("domain: {trouble}{waiting}"),
    }
}

/// What the broker says of itself, where it is asked over a Unix socket.
fn broker(verb: &Peers) -> Option<Value> {
    let config = client::config(&verb.connection, None).ok()?;
    let sockets = operator::sockets_of(&config)?;
    let about = operator::over(&sockets, "GET", "/broker").ok()?.ok().ok()?;
    serde_json::from_str(&about).ok()
}

pub(crate) fn row(peer: &PeerView) -> [String; 10] {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let count = |count: Option<u64>| count.map(|n| n.to_string()).unwrap_or_default();
    let wake = peer.wake.as_ref().map(|paths| match paths.as_slice() {
        [] => "-".to_owned(),
        paths => paths.join(","),
    });
    [
        peer.name.clone(),
        peer.does(),
        count(peer.unseen()),
        count(peer.owes),
        works_on(peer),
        text(&peer.client),
        text(&peer.branch),
        process(peer),
        text(&wake),
        peer.acks.unwrap_or_default().to_owned(),
    ]
}

/// What it works on, and its groups.
fn works_on(peer: &PeerView) -> String {
    let all = peer.project.iter().chain(&peer.groups);
    all.map(String::as_str).collect::<Vec<_>>().join(" ")
}

/// Which of several sessions in one place it is: the process, and its terminal.
fn process(peer: &PeerView) -> String {
    let pid = peer.pid.map(|pid| pid.to_string());
    let parts = [pid, peer.tty.clone()].into_iter().flatten();
    parts.collect::<Vec<_>>().join(" ")
}
