//! What hosts say and to whom, drawn at random.

use peerbus_wire::{Address, GroupName, PeerName, Stage};

use crate::plan::Plan;
use crate::rng::Rng;

/// How far a message is said to be.
pub(crate) fn step(rng: &mut Rng) -> Stage {
    match rng.index(3) {
        0 => Stage::Pushed {
            path: "socket".into(),
        },
        1 => Stage::Presented {
            path: "socket".into(),
        },
        _ => Stage::Held {
            why: "its user decides".into(),
        },
    }
}

/// One of few groups.
fn group(rng: &mut Rng) -> GroupName {
    let name = format!("g{}", rng.index(4));
    #[expect(
        clippy::expect_used,
        reason = "a letter and a digit make a group's name"
    )]
    GroupName::parse(&name).expect("a group")
}

/// Groups to join or leave: at most one.
pub(crate) fn groups(rng: &mut Rng, plan: &Plan) -> Vec<GroupName> {
    let any = plan.groups && rng.chance(500);
    any.then(|| group(rng)).into_iter().collect()
}

/// Whom a message is for: mostly somebody who exists.
pub(crate) fn target(rng: &mut Rng, names: &[String], plan: &Plan) -> Address {
    if rng.chance(plan.broadcast) {
        return Address::All;
    }
    if plan.groups && rng.chance(250) {
        let group = group(rng);
        return match rng.chance(400) {
            true => Address::One(group),
            false => Address::Group(group),
        };
    }
    let known = names.get(rng.index(names.len()));
    let unknown = format!("nobody-{}", rng.index(5));
    let name = known.filter(|_| !rng.chance(40)).unwrap_or(&unknown);
    let name = &spelled(rng, name);
    PeerName::parse(name).map_or(Address::All, Address::Peer)
}

/// A name, sometimes in another case: it is the same name.
pub(crate) fn spelled(rng: &mut Rng, name: &str) -> String {
    if rng.chance(100) {
        name.to_ascii_uppercase()
    } else {
        name.to_owned()
    }
}

/// That a result is wanted, as a body says it; mostly nothing.
pub(crate) fn wants(rng: &mut Rng, plan: &Plan) -> String {
    let within_ms = rng.pick(&[400, 5_000, 60_000, 3_600_000]);
    match rng.chance(plan.requests) {
        true => format!(r#","wants":"result","within_ms":{within_ms}"#),
        false => String::new(),
    }
}

/// That a message answers another one, as a body says it.
pub(crate) fn answers(rng: &mut Rng, id: &str) -> String {
    let failed = match rng.chance(200) {
        true => r#","outcome":"failed""#,
        false => "",
    };
    format!(r#","reply_to":"{id}"{failed}"#)
}

/// A body that says who wrote it, with characters that need care; `talk` are more members of it, each
/// behind a comma.
pub(crate) fn body(rng: &mut Rng, proc: usize, number: u64, talk: &str) -> String {
    let odd = [
        "",
        "<&>",
        r#"\u003C \" \\"#,
        "\u{2028} \u{1f4e8}",
        r#"\",\"hmac\":\""#,
    ];
    let odd = rng.pick(&odd);
    let pad = if rng.chance(50) { 3_000 } else { rng.index(80) };
    let urgent = match number % 5 {
        0 => r#","priority":"now""#,
        _ => "",
    };
    format!(
        r#"{{"proc":{proc},"n":{number},"odd":"{odd}","pad":"{}"{urgent}{talk}}}"#,
        "x".repeat(pad)
    )
}

/// An envelope that nobody signed.
pub(crate) fn unsigned(from: &str, to: &str) -> String {
    let hmac = "0".repeat(64);
    format!(
        r#"{{"protocol_version":"v1","id":"of-{from}","from":"{from}","to":"{to}","ts":"2026-01-01T00:00:00Z","source":"sim","kind":"msg","body":1,"hmac":"{hmac}"}}"#
    )
}
