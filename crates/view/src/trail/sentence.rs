//! How far a message got, as a sentence.

use std::collections::BTreeMap;

use peerbus_wire::{How, PeerEntry, PeerName, Receipt, Stage, escape};

use super::{is_released, open, reached};
use crate::about::{Around, Audience, PeerState, PeerView};
use crate::domains::DomainView;
use crate::text::{NAME_CHARS, REASON_CHARS, is_proven, of_broker, proof, rejected};
use crate::text::{ago, says, shown, word};

/// So long after an ack a turn may still be about the message.
const TURN_MS: u64 = 3_600_000;
/// Most peers that a sentence names.
const NAMES_MAX: usize = 5;

/// The sentence about a message whose receipts these are, in order of time, with what the list of peers
/// tells.
pub(crate) fn of<'a>(
    receipts: impl Iterator<Item = &'a Receipt> + Clone,
    around: Around<'_>,
) -> String {
    let Around {
        peers, audience, ..
    } = around;
    let (open, all) = (open(receipts.clone()), reached(receipts.clone()));
    let has_it = |peer: &PeerEntry| {
        // What is queued nobody has: one that is stopped keeps it there.
        let queued = || {
            all.get(&*peer.name)
                .filter(|it| is_queued_at_stopped(it, peer))
        };
        let receipt = *open.get(&*peer.name).or_else(queued)?;
        Some((receipt, PeerView::new(peer, audience)))
    };
    let silent = peers.iter().filter_map(has_it);
    let silent = silent.filter(|(receipt, peer)| match peer.is {
        PeerState::Waits => is_before(receipt, peer, around.now_ms),
        PeerState::Stuck => !matches!(receipt.stage, Stage::Acked(_)),
        _ => false,
    });
    let silent: Vec<PeerView> = silent.map(|(_, peer)| peer).collect();
    how_far(receipts, around) + &why_silent(&silent, audience)
}

/// Whether a dialog may be why no answer to a message has come: one that was acked not long before it opened
/// may have led to it.
fn is_before(receipt: &Receipt, peer: &PeerView, now_ms: u64) -> bool {
    let (Stage::Acked(_), Some(at_ms)) = (&receipt.stage, receipt.at_ms) else {
        return true;
    };
    let open_ms = peer.activity_s.map_or(0, |seconds| seconds * 1_000);
    let age_ms = now_ms.saturating_sub(at_ms);
    (open_ms..=open_ms + TURN_MS).contains(&age_ms)
}

/// Whether a message waits at the broker because its recipient's adapter is stopped.
pub(crate) fn is_queued_at_stopped(receipt: &Receipt, peer: &PeerEntry) -> bool {
    let is_it = Some(&peer.name) == receipt.to.as_ref();
    is_it && receipt.stage == Stage::Queued && peer.stopped
}

fn stays(receipt: &Receipt, peers: &[PeerEntry]) -> bool {
    peers.iter().any(|peer| is_queued_at_stopped(receipt, peer))
}

fn how_far<'a>(receipts: impl Iterator<Item = &'a Receipt> + Clone, around: Around<'_>) -> String {
    let Around { now_ms, peers, .. } = around;
    let mut each = reached(receipts.clone());
    let had: Vec<_> = each
        .extract_if(.., |_, receipt| {
            matches!(receipt.stage, Stage::Recalled { .. })
        })
        .collect();
    if !had.is_empty() {
        let had = had.into_iter().map(|(name, receipt)| before(name, receipt));
        let now = each.first_key_value();
        let now = now.map_or_else(String::new, |(name, receipt)| {
            let name = escape(name, NAME_CHARS);
            let seen = seen_before(&name, receipt, receipts.clone(), peers, now_ms);
            seen.unwrap_or_else(|| at_one(&name, receipt, around)) + "; "
        });
        return format!("{now}before that {}", had.collect::<Vec<_>>().join(", "));
    }
    if let Some((to, receipt)) = each.first_key_value().filter(|_| each.len() == 1) {
        let name = escape(to, NAME_CHARS);
        let seen = seen_before(&name, receipt, receipts.clone(), peers, now_ms);
        if let Some(joined) = DomainView::to(peers, to).filter(|_| !receipt.stage.is_final()) {
            // The list of peers is of those here.
            let alone = || at_one(&name, receipt, Around::alone(now_ms));
            return abroad(&joined, receipt, seen.unwrap_or_else(alone));
        }
        if let Some(seen) = seen {
            return seen;
        }
        let here = |receipt: &Receipt| matches!(&receipt.stage, Stage::Accepted(a) if a.online > 0);
        let left = peers.iter().any(|peer| peer.name == *to && !peer.online);
        if receipt.stage == Stage::Queued && !left && receipts.clone().any(here) {
            return format!(
                "it waits at the broker for {name}; {name} is connected, its window is full or \
                 older mail goes first: it goes on when {name} acks what it has"
            );
        }
        let had = |it: &Receipt| it.to == receipt.to && it.stage.rank() > Stage::Queued.rank();
        if receipt.stage == Stage::Queued && !stays(receipt, peers) && receipts.clone().any(had) {
            return queued(&name, false) + "; the session that had it left";
        }
        return at_one(&name, receipt, around);
    }
    if !each.is_empty() {
        return at_many(&each, peers);
    }
    let (mut recipients, mut settled) = (None, None);
    for receipt in receipts {
        match &receipt.stage {
            Stage::Refused(refusal) => {
                let why = escape(&refusal.reason, REASON_CHARS);
                return format!("the broker refused it and queued nothing: {why}");
            }
            Stage::Accepted(accepted) => recipients = Some(accepted.recipients),
            Stage::Settled { recipients: n } => settled = Some(*n),
            _ => {}
        }
    }
    match (recipients, settled) {
        (_, Some(_)) => {
            "it is settled: acked or expired; how, the broker does not remember any more".into()
        }
        (Some(0), None) => {
            "accepted, and nobody was there to get it: the result of a request is kept with that; anything \
             else is to be sent again when somebody is here"
                .into()
        }
        (Some(_), None) => "the broker has it on disk; nothing more is known".into(),
        (None, None) => {
            "the broker knows no message of this sender with this id, or not any more".into()
        }
    }
}

/// The sentence about a request that its holder's model has seen, and that may have come again since: who
/// had it may be gone. `None`: it has not, or the last step says it.
fn seen_before<'a>(
    name: &str,
    receipt: &Receipt,
    mut receipts: impl Iterator<Item = &'a Receipt>,
    peers: &[PeerEntry],
    now_ms: u64,
) -> Option<String> {
    let seen = |it: &Receipt| it.to == receipt.to && is_proven(&it.stage);
    let ago = receipt.at_ms.map(|at| format!(" {}", ago(at, now_ms)));
    let ago = ago.unwrap_or_default();
    let again = match &receipt.stage {
        stage if is_proven(stage) => return None,
        Stage::Owed => away(name, receipt, peers),
        Stage::Queued if stays(receipt, peers) => {
            "; it waits at the broker to go there again".to_owned()
        }
        Stage::Queued => {
            format!("; the session that had it left: the next one of {name}'s gets it")
        }
        Stage::Delivered => format!("; another session of {name}'s got it{ago}"),
        Stage::Pushed { path } => format!("; it was pushed again{ago}, over {}", word(path)),
        Stage::Presented { path } => format!("; it was shown again{ago}, by {}", word(path)),
        Stage::Acked(_) => format!("; it was acked again{ago}"),
        _ => return None,
    };
    let told = || format!("{name}'s model has seen it and owes an answer{again}");
    receipts.any(seen).then(told)
}

/// Who had a message that one of its group gets, and why not any more.
fn before(to: &str, receipt: &Receipt) -> String {
    let name = escape(to, NAME_CHARS);
    match &receipt.stage {
        Stage::Recalled { why } if !why.is_empty() => {
            format!("{name} had it ({})", of_broker(to, why))
        }
        _ => format!("{name} had it"),
    }
}

/// The sentence about a recipient in another domain; `known`: where it is there.
fn abroad(joined: &DomainView, receipt: &Receipt, known: String) -> String {
    let domain = &joined.domain;
    match (&receipt.stage, &joined.trouble) {
        (Stage::Queued, None) => {
            format!("it waits at this broker for {domain}, which has not confirmed it yet")
        }
        (Stage::Queued, Some(trouble)) => {
            format!("it waits at this broker: {trouble}; it goes on by itself when that is over")
        }
        (_, None) => known,
        (_, Some(trouble)) => format!("{known}; {trouble}, so nothing newer is known"),
    }
}

/// The sentence about one recipient, whose name is fit to be shown.
fn at_one(name: &str, receipt: &Receipt, around: Around<'_>) -> String {
    let Around { now_ms, peers, .. } = around;
    let to = receipt.to.as_deref().unwrap_or_default();
    let ago = receipt
        .at_ms
        .map_or(String::new(), |at| format!(" {}", ago(at, now_ms)));
    let state = |peer| PeerView::new(peer, around.audience).is;
    match &receipt.stage {
        Stage::Queued => queued(name, stays(receipt, peers)),
        Stage::Forwarded => {
            let there = PeerName::parse(to).ok().and_then(|to| to.address());
            let there = there.map_or("another domain".into(), |(_, domain)| domain.to_string());
            let has = if ago.is_empty() { "has" } else { "got" };
            format!(
                "{there} {has} it{ago}: the broker there owes it to {name}, and tells here what \
                 becomes of it"
            )
        }
        Stage::Delivered => {
            let peer = peers.iter().find(|peer| peer.name == to);
            delivered(name, &ago, peer, around.audience)
        }
        Stage::Pushed { path } => format!(
            "{}pushed to {name} over {}{ago}; nothing shows that it was read yet, and it is owed \
             until something does",
            part(path, " of it were "),
            word(path)
        ),
        Stage::Presented { path } => format!(
            "{} came into {name}'s conversation{ago}, by {}; no answer of the model after \
             it is known: {}",
            match part(path, " of its text") {
                part if part.is_empty() => "its text".into(),
                part => part,
            },
            word(path),
            match peers.iter().find(|peer| peer.name == to).map(state) {
                Some(PeerState::Idle | PeerState::Stuck | PeerState::Away) => {
                    "it is owed until one shows that it was read"
                }
                _ => "its turn may run still",
            }
        ),
        stage if is_released(stage) => {
            format!(
                "{name} says that its user let it go on{ago}: it comes with the next turn there"
            )
        }
        // Who holds it says what can be done.
        // Time lets go on what is paused, which no stage tells.
        Stage::Held { why } => format!(
            "it was held back at {name}, which told so{ago}, and nothing newer is known: {}",
            says(to, why)
        ),
        Stage::Acked(how) => acked(name, &ago, how.as_ref()),
        Stage::Expired { why } => format!(
            "it expired and will not reach {name}: {}; send it again, if it still matters, to \
             somebody who is here",
            escape(why, REASON_CHARS)
        ),
        Stage::Dead { why } => format!(
            "it was rejected at {name}{}, and is not tried again; send it anew when the reason is \
             gone: {}",
            match PeerName::parse(to).is_ok_and(|to| to.address().is_some()) {
                true => " or on the way there",
                false => "",
            },
            rejected(to, why)
        ),
        Stage::Recalled { .. } => before(to, receipt),
        stage => of_request((name, to), stage, &ago) + &away(name, receipt, peers),
    }
}

/// What follows when who owes an answer is not here.
fn away(name: &str, receipt: &Receipt, peers: &[PeerEntry]) -> String {
    let owes = matches!(receipt.stage, Stage::Owed | Stage::Working { .. });
    let is_away =
        |peer: &PeerEntry| Some(&peer.name) == receipt.to.as_ref() && !peer.online && !peer.stopped;
    match owes && peers.iter().any(is_away) {
        true => format!("; {name} is away"),
        false => String::new(),
    }
}

/// The sentence about a request that was read, or has ended.
fn of_request((name, to): (&str, &str), stage: &Stage, ago: &str) -> String {
    match stage {
        Stage::Owed => {
            format!("{name} acked it and owes an answer; the ack does not show that it was read")
        }
        Stage::Working { said } if said.is_empty() => {
            format!("{name} said{ago} that it works at it")
        }
        Stage::Working { said } => {
            let said = escape(said, REASON_CHARS);
            format!("{name} works at it, and said{ago}: \"{said}\"")
        }
        Stage::Done { reply } => format!("{name} answered it{ago}: message {reply} is the result"),
        Stage::Failed { reply } => {
            format!("it failed at {name}{ago}: message {reply} says why")
        }
        Stage::Declined { why } => format!("it was declined{ago}: {}", says(to, why)),
        Stage::Withdrawn => {
            format!("it was taken back{ago}: {name} does not owe an answer any more")
        }
        Stage::Unanswered { why } => format!(
            "it has no result, and none is waited for: {}",
            of_broker(to, why)
        ),
        _ => String::new(),
    }
}

fn acked(name: &str, ago: &str, how: Option<&How>) -> String {
    match how {
        Some(How::Seen { path, evidence }) => {
            let path = word(path);
            match proof(evidence) {
                Some(proof) => format!("{name}'s model has seen it{ago}, by {path}, {proof}"),
                None => format!(
                    "{name} says that its model has seen it{ago}, by {path}: \"{}\"",
                    escape(evidence, REASON_CHARS)
                ),
            }
        }
        Some(How::Pushed { path }) => format!(
            "{name} acked it{ago} as pushed over {}; the ack does not show that it was read",
            word(path)
        ),
        None => format!("{name} acked it{ago}; the ack does not show that it was read"),
    }
}

/// The sentence about one that got it, as far as the list of peers tells what it is.
fn delivered(name: &str, ago: &str, peer: Option<&PeerEntry>, audience: Audience) -> String {
    match peer {
        Some(peer) if peer.stopped => {
            format!(
                "it was sent to {name}'s adapter{ago}, which is stopped and may not have read it"
            )
        }
        Some(peer) if !peer.online => format!(
            "a connection of {name}'s got it{ago}, and is gone without a word of what became of it: the \
             next one of that name gets it again"
        ),
        // A token without the right `observe` is told no more than the name.
        Some(peer) if peer.unacked.is_none() && is_plain(peer) => format!(
            "{name} got it{ago} and has not said what became of it: what {name} does is not known \
             from here"
        ),
        Some(peer) if is_plain(peer) => format!(
            "{name} got it{ago} and has not said what became of it: it is a plain connection, without \
             an agent's adapter"
        ),
        None => format!("{name} got it{ago} and has not said what became of it"),
        Some(peer) => {
            if let Some(asleep) = PeerView::new(peer, audience).asleep() {
                return format!("{name}'s adapter got it{ago}, and {asleep}");
            }
            let list = match audience {
                Audience::Owner => "`peerbus peers --wide`",
                Audience::Peer => "the bus peers tool",
            };
            format!(
                "{name}'s adapter got it{ago} and has not shown it to the model yet: {list} says what \
                 {name} does, and what can wake it"
            )
        }
    }
}

/// Whether a peer says nothing of itself that an adapter says.
fn is_plain(peer: &PeerEntry) -> bool {
    let about = PeerView::new(peer, Audience::Peer);
    about.client.is_none() && about.activity.is_none() && about.wake.is_none()
}

/// How much of a message was shown by a path that says so, with what follows; else nothing.
fn part(path: &str, then: &str) -> String {
    let part = shown(path).map(|(shown, of)| format!("{shown} of {of} characters{then}"));
    part.unwrap_or_default()
}

/// The sentence about a message, with what is known here of a recipient that a broker says waits for its user.
pub(crate) fn stopped_there(note: String, peer: &PeerView, audience: Audience) -> String {
    let name = &peer.name;
    let waits = match audience {
        Audience::Owner => format!("; {name} waits for you"),
        Audience::Peer => format!("; {name} says that it waits for its user"),
    };
    // A peer's words stand in quotes.
    let is_ours = |(told, _): &(&str, &str)| told.matches('"').count().is_multiple_of(2);
    let Some((told, rest)) = note.rsplit_once(&waits).filter(is_ours) else {
        return note;
    };
    let more = rest.find("; ").map_or("", |at| &rest[at..]);
    let now = peer.why_silent(audience).map(|now| format!("; {now}"));
    format!("{told}{}{more}", now.unwrap_or_default())
}

/// The sentence about a message, or what it is where this recipient is stopped, and keeps it at the broker.
pub(crate) fn kept_there(note: String, name: &str) -> String {
    let name = escape(name, NAME_CHARS);
    match note == queued(&name, false) {
        true => queued(&name, true),
        false => note,
    }
}

/// The sentence about one that has not got it, whose session may be here and stopped; about a group, of which one gets it.
fn queued(name: &str, stays: bool) -> String {
    match name.starts_with('#') {
        _ if stays => format!("it waits at the broker for {name}"),
        true => format!(
            "it waits at the broker for one of {name}: no member is here that can take it, and the \
             first that comes gets it"
        ),
        false => format!(
            "it waits at the broker for {name}; no session of that name has it now, and the next one \
             gets it"
        ),
    }
}

fn at_many(each: &BTreeMap<&str, &Receipt>, peers: &[PeerEntry]) -> String {
    let is_gone = |name: &str| peers.iter().any(|it| it.name == name && !it.online);
    let mut groups = BTreeMap::<(usize, &str), Vec<&str>>::new();
    for (name, Receipt { stage, .. }) in each {
        let what = match stage {
            Stage::Forwarded => "at the broker of another domain, for",
            Stage::Delivered if is_gone(name) => "sent to a connection, now gone, of",
            Stage::Delivered => "with the adapter of",
            Stage::Pushed { .. } => "pushed, and not known to be read, to",
            stage if is_released(stage) => "let go on by the user of",
            Stage::Held { .. } => "last known to be held back at",
            Stage::Presented { .. } => "in the conversation, and not known to be read, of",
            Stage::Acked(Some(How::Seen { evidence, .. })) => match proof(evidence) {
                Some(_) => "seen by the model of",
                None => "by their own word seen by the model of",
            },
            Stage::Acked(_) => "acked, which does not show that it was read, by",
            Stage::Expired { .. } | Stage::Dead { .. } => "expired or rejected for",
            _ => "waits at the broker for",
        };
        let rank = stage.rank();
        groups.entry((rank, what)).or_default().push(name);
    }
    let told = groups.iter().rev();
    let told = told.map(|((_, what), names)| {
        let names = names.iter().map(|name| escape(name, NAME_CHARS));
        format!("{what} {}", listed(names))
    });
    told.collect::<Vec<_>>().join("; ")
}

/// What follows the sentence when these peers answer nobody as things are.
fn why_silent(peers: &[PeerView], audience: Audience) -> String {
    let told = peers.iter().take(NAMES_MAX);
    let told = told.filter_map(|peer| peer.why_silent(audience));
    let told: String = told.map(|told| format!("; {told}")).collect();
    match peers.len().saturating_sub(NAMES_MAX) {
        0 => told,
        rest => format!("{told}; and {rest} more answer nobody just now"),
    }
}

/// Names that are fit to be shown, the first of them.
fn listed(names: impl ExactSizeIterator<Item = String>) -> String {
    let rest = names.len().saturating_sub(NAMES_MAX);
    let shown: Vec<String> = names.take(NAMES_MAX).collect();
    match rest {
        0 => shown.join(", "),
        rest => format!("{} and {rest} more", shown.join(", ")),
    }
}
