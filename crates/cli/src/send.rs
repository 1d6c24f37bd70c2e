//! `peerbus send` and `peerbus broadcast`.

use peerbus_adapter::{
    Bus, BusConfig, Domain, Failure, How, RefusalCode, SendError, SentMessage, Stage, domains,
    groups, similar,
};
use peerbus_view::{Trail, is_proven, reached};
use peerbus_wire::{Conversation, escape};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use crate::args::{Ask, Outgoing, Saying, Send};
use crate::far::Far;
use crate::{body, client, here, operator, output};

/// How often the broker is asked whether a message was seen.
const LOOK: Duration = Duration::from_millis(500);

/// Longest reason of the broker's that is repeated, in characters.
const REASON_CHARS: usize = 300;

/// How long it may take to look for names like an unknown one.
const LOOK_UP: Duration = Duration::from_secs(1);

pub(crate) fn run(mut verb: Send) -> Result<(), Failure> {
    if verb.one {
        verb.to = one_of(&verb.to)?;
    }
    let (body, mut talk, config) = said(&verb.outgoing)?;
    if let Some(id) = &verb.reply_to {
        let id = operator::whole(&config, id)?;
        (talk.reply_to, talk.hops) = (Some(id), talk.hops.max(1));
    }
    let deadline = client::duration(verb.outgoing.timeout);
    mind(&verb.to);
    client::with_bus(config, client::Refused::Fail, async |bus| {
        let sent = match bus.send(&verb.to, &talk.write(&body), deadline).await {
            Ok(sent) => sent,
            Err(error) => return Err(unsent(&bus, &verb.to, error).await),
        };
        let to = To::of(&bus, &verb.to, &sent, verb.outgoing.json).await;
        match verb.wait {
            None => {
                report(&sent, Some(&to), &verb.outgoing)?;
                say_unanswered(Some(&to.given), &verb.outgoing);
                Ok(())
            }
            Some(limit) => {
                if !verb.outgoing.json {
                    report(&sent, Some(&to), &verb.outgoing)?;
                }
                let (far, trail) = watch(&bus, &sent.id, client::duration(limit)).await?;
                tell(&verb, &sent, far.as_ref(), &trail)
            }
        }
    })
}

/// Sends a message to everybody.
pub(crate) fn broadcast(outgoing: &Outgoing) -> Result<(), Failure> {
    let (body, talk, config) = said(outgoing)?;
    let (body, deadline) = (talk.write(&body), client::duration(outgoing.timeout));
    let sent = client::with_bus(config, client::Refused::Fail, async |bus| {
        Ok(bus.broadcast(&body, deadline).await?)
    })?;
    report(&sent, None, outgoing)?;
    say_unanswered(None, outgoing);
    Ok(())
}

/// What is to be sent, what it says of its conversation, and how the broker is reached.
fn said(outgoing: &Outgoing) -> Result<(String, Conversation, BusConfig), Failure> {
    let body = body::json(&outgoing.body, &outgoing.more, outgoing.saying.text)?;
    let config = client::config(&outgoing.connection, outgoing.name.clone())?;
    let mut talk = conversation(&body, &outgoing.saying, &config)?;
    // Its temporary name ends with this command. A body may be a request by what it says itself.
    talk.unanswered |= outgoing.name.is_none() && talk.within_ms.is_none();
    Ok((body, talk, config))
}

/// Says where an answer would go, to who sends without a name and may wait for one.
fn say_unanswered(to: Option<&str>, outgoing: &Outgoing) {
    if outgoing.name.is_some() || outgoing.json {
        return;
    }
    let ask = to.map_or_else(String::new, |to| {
        // A shell takes what stands behind a `#` for a comment.
        let quotes = if to.starts_with('#') { "'" } else { "" };
        format!(
            "`peerbus ask {quotes}{}{quotes} …` waits for one, and ",
            escape(to, 80)
        )
    });
    output::say(&format!(
        "it says that no answer is wanted, as this command is gone: {ask}`--name ME` has one wait {}",
        operator::waits("ME")
    ));
}

/// The address of one member of a group.
fn one_of(to: &str) -> Result<String, Failure> {
    match to.starts_with('#') {
        true => Ok(format!("{}!", to.trim_end_matches('!'))),
        false => Err(Failure::config(format!(
            "--one is for a group, and \"{}\" is none: write '#GROUP', in quotes",
            escape(to, 80)
        ))),
    }
}

/// The recipient of a message.
pub(crate) struct To {
    given: String,
    /// The same without the broker's own domain.
    name: String,
    /// The other domain to which it goes.
    abroad: Option<Domain>,
    /// Who has the name now, if that is known.
    holder: Option<String>,
    /// Why nothing comes of it there as things are.
    silent: Option<String>,
}

impl To {
    async fn of(bus: &Bus, given: &str, sent: &SentMessage, json: bool) -> Self {
        let holder = match json || given.starts_with('#') {
            true => None,
            false => holder(bus, sent).await,
        };
        let silent = match &holder {
            Some(holder) => here::why_silent(bus, holder).await,
            None => None,
        };
        Self {
            given: given.to_owned(),
            name: bus.at_home(given),
            abroad: bus.abroad(given),
            holder: holder.map(|holder| escape(&holder, 64)),
            silent,
        }
    }
}

/// Says what may be wrong with whom a message is for.
pub(crate) fn mind(to: &str) {
    if let Some(told) = groups::mistaken(to, |name| std::env::var(name).ok()) {
        output::say(&format!("mind that {told}"));
    }
}

/// Says that a request is on its way.
pub(crate) async fn asked(bus: &Bus, sent: &SentMessage, verb: &Ask) -> Result<(), Failure> {
    let mut to = To::of(bus, &verb.to, sent, verb.json).await;
    if verb.json {
        return output::json(&as_json(sent, Some(&to.given)));
    }
    if to.name.starts_with('#') && !to.name.ends_with('!') {
        // One of them answers.
        to.name.push('!');
    }
    let own = verb.name.as_deref().unwrap_or_default();
    output::wrapped(&match how(sent, Some(&to), own) {
        Some(how) if operator::is_elsewhere() => {
            let waits = verb.name.as_ref().map(|name| {
                let waits = operator::waits(&escape(name, 64));
                format!("; the answer waits {waits}")
            });
            format!("asked {}: {how}{}", sent.id, waits.unwrap_or_default())
        }
        Some(how) => format!("asked {}: {how}; `peerbus requests` shows it", sent.id),
        None => sentence(sent, Some(&to), own),
    })
}

/// The name of who has `to`, for a name or an old one, as it was registered: the broker says to whom
/// it owes the message.
async fn holder(bus: &Bus, sent: &SentMessage) -> Option<String> {
    sent.accepted?;
    let receipts = bus.statuses(std::slice::from_ref(&sent.id), LOOK_UP).await;
    let receipts = receipts.ok()?;
    receipts.into_iter().find_map(|receipt| receipt.to)
}

/// Why it was not sent, and the names that may have been meant when nobody has this one.
pub(crate) async fn unsent(bus: &Bus, to: &str, error: SendError) -> Failure {
    let refusal = match &error {
        SendError::Refused(refusal) if refusal.code == RefusalCode::UnknownRecipient => refusal,
        _ => return error.into(),
    };
    if to.starts_with('#') {
        return Failure::failed(escape(&refusal.reason, REASON_CHARS));
    }
    if bus.abroad(to).is_some() {
        let hint = domains::unknown(to, bus.domain().as_ref()).unwrap_or_default();
        let reason = escape(&refusal.reason, REASON_CHARS);
        return Failure::failed(format!("{reason}; {hint}"));
    }
    let others: Vec<String> = match bus.peers(LOOK_UP).await {
        Err(_) => Vec::new(),
        Ok(peers) => {
            let others = peers.entries.into_iter().map(|peer| peer.name);
            others.filter(|name| *name != peers.me).collect()
        }
    };
    let nobody = nobody(to, &others);
    Failure::failed(match domains::unknown(to, bus.domain().as_ref()) {
        Some(hint) => format!("{nobody} ({hint})"),
        None => nobody,
    })
}

/// That no peer has a name, and which of those that there are may have been meant.
pub(crate) fn nobody(name: &str, others: &[String]) -> String {
    let sentence = format!(
        "nobody here is called {name}, or not any more; `peerbus peers --all` shows who is known"
    );
    match similar(others, name) {
        near if near.is_empty() => sentence,
        near => format!("{sentence}. Did you mean {}?", near.join(" or ")),
    }
}

/// What a body says of its conversation, and what the command line says instead.
pub(crate) fn conversation(
    body: &str,
    saying: &Saying,
    config: &BusConfig,
) -> Result<Conversation, Failure> {
    let mut talk = Conversation::of(body);
    if let Some(thread) = &saying.thread {
        talk.thread = Some(operator::whole(config, thread)?.to_string());
    }
    talk.priority = saying.priority.unwrap_or(talk.priority);
    Ok(talk)
}

/// Waits until the message is seen, or will not be, or the time is over. Says how far it got.
async fn watch(bus: &Bus, id: &str, limit: Duration) -> Result<(Option<Stage>, Trail), Failure> {
    let begin = Instant::now();
    let end = begin + limit;
    let mut told = None;
    loop {
        let far = Far::ask(bus, id, limit).await?;
        // A request that was read goes on, and is seen.
        let is_later = |stage: &Stage| matches!(stage, Stage::Owed | Stage::Working { .. });
        let receipts = far.receipts.iter().filter(|it| !is_later(&it.stage));
        let each = reached(receipts).into_values();
        let stage = each
            .map(|receipt| &receipt.stage)
            .max_by_key(|stage| stage.rank());
        let now = Instant::now();
        if stage.is_some_and(Stage::is_final) || now >= end {
            let note = far.note();
            return Ok((stage.cloned(), Trail { note, ..far.trail }));
        }
        let news = Some((stage.map(Stage::rank), far.does, far.ways.clone()));
        if now - begin >= output::SILENCE && told != news && output::is_read() {
            told = news;
            output::say(&format!("waiting until it is seen: {}", far.note()));
        }
        tokio::time::sleep_until(end.min(now + LOOK)).await;
    }
}

/// Prints what came of the wait. A peer's word for it is told, and is no success.
fn tell(
    verb: &Send,
    sent: &SentMessage,
    far: Option<&Stage>,
    trail: &Trail,
) -> Result<(), Failure> {
    let answered = |stage: &Stage| matches!(stage, Stage::Done { .. } | Stage::Failed { .. });
    let seen = far.is_some_and(|stage| is_proven(stage) || answered(stage));
    if verb.outgoing.json {
        let mut result = as_json(sent, Some(&verb.to));
        result["seen"] = seen.into();
        result["trail"] = json!(trail);
        output::json(&result)?;
    } else if seen {
        output::wrapped(&trail.note)?;
    }
    let missing = match far {
        _ if seen => return Ok(()),
        Some(Stage::Acked(Some(How::Seen { .. }))) => "proven",
        _ => "seen",
    };
    Err(Failure::failed(format!("not {missing}: {}", trail.note)))
}

pub(crate) fn report(
    sent: &SentMessage,
    to: Option<&To>,
    outgoing: &Outgoing,
) -> Result<(), Failure> {
    let said = if outgoing.json {
        output::json(&as_json(sent, to.map(|to| to.given.as_str())))
    } else {
        let own = outgoing.name.as_deref().unwrap_or_default();
        output::wrapped(&sentence(sent, to, own))
    };
    match said {
        // It is sent, whoever reads that.
        Err(Failure::OutputClosed) => Ok(()),
        done => done,
    }
}

fn as_json(sent: &SentMessage, to: Option<&str>) -> Value {
    let mut result = match sent.accepted {
        Some(accepted) => json!({
            "id": sent.id, "status": "accepted", "recipients": accepted.recipients,
            "online": accepted.online, "duplicate": accepted.duplicate,
        }),
        None => json!({ "id": sent.id, "status": "written" }),
    };
    if let Some(to) = to {
        result["to"] = to.into();
    }
    result
}

/// How far it got; `own` is the sender's name.
fn sentence(sent: &SentMessage, to: Option<&To>, own: &str) -> String {
    let id = &sent.id;
    let duplicate = sent.accepted.is_some_and(|accepted| accepted.duplicate);
    let mark = if duplicate { ',' } else { ';' };
    if let Some(how) = how(sent, to, own) {
        return format!("accepted {id}: on disk{mark} {how}");
    }
    let to = to.map(|to| to.holder.as_deref().unwrap_or(&to.name));
    let known = "a v1 broker: whether it was accepted cannot be known";
    let domains = match to.and_then(|to| domains::unknown(to, None)) {
        Some(_) => ", and it knows no other domains",
        None => "",
    };
    format!("written {id} ({known}{domains})")
}

/// What a broker says of a message that it took; nothing if it does not say that.
fn how(sent: &SentMessage, to: Option<&To>, own: &str) -> Option<String> {
    let accepted = sent.accepted?;
    let abroad = to.and_then(|to| to.abroad.as_ref());
    let holder = to.and_then(|to| to.holder.as_deref());
    let silent = to.and_then(|to| to.silent.as_deref());
    let silent = silent.map_or_else(String::new, |why| format!("; {why}"));
    let to = to.map(|to| to.name.as_str());
    let whose = match (to, holder) {
        (Some(to), Some(holder)) if !to.eq_ignore_ascii_case(holder) => {
            format!("{}; ", here::old_name(to, holder))
        }
        _ => String::new(),
    };
    let to = holder.or(to);
    let how = match to {
        _ if accepted.duplicate => "when it was sent before; it is not queued twice".to_owned(),
        Some(to) if to.ends_with('!') => match accepted.online {
            0 => format!(
                "for the first of {} that comes; none is here that can take it",
                to.trim_end_matches('!')
            ),
            _ => format!("one of {} has it", to.trim_end_matches('!')),
        },
        Some(to) if to.starts_with('#') => format!(
            "for {} of {to} ({} connected)",
            output::plural(u64::from(accepted.recipients), "member"),
            accepted.online
        ),
        Some(to) if to.eq_ignore_ascii_case(own) => {
            format!("it waits for who receives as {to}, which this command does not")
        }
        // An answer that ended a request.
        Some(to) if accepted.recipients == 0 => format!(
            "{whose}{to} has left or has no room for it: it is kept under the request, which has ended with it"
        ),
        Some(to) if accepted.online == 0 && silent.is_empty() => {
            format!("{whose}{to} is away, it is queued")
        }
        Some(_) if accepted.online == 0 => format!("{whose}it is queued{silent}"),
        Some(to) => format!("{whose}{to} is connected{silent}"),
        None if accepted.recipients == 0 => "nobody is there, and nobody gets it".to_owned(),
        None => format!(
            "{} ({} connected)",
            output::plural(u64::from(accepted.recipients), "recipient"),
            accepted.online
        ),
    };
    Some(match abroad {
        Some(domain) if !accepted.duplicate && accepted.online == 0 => {
            format!("{domain} cannot be reached now, it is queued")
        }
        Some(domain) if !accepted.duplicate => format!("it goes to {domain}"),
        _ => how,
    })
}
