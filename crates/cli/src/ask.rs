//! `peerbus ask`.

use std::io::{IsTerminal as _, stdout};

use peerbus_adapter::hooks::is_below_an_agent;
use peerbus_adapter::mailbox::quote::said;
use peerbus_adapter::signals::Stop;
use peerbus_adapter::{Bus, BusError, Failure, How, Inbound, SentMessage, SessionEvent, Stage};
use peerbus_view::fate;
use peerbus_wire::limits::WITHIN_MS_DEFAULT;
use peerbus_wire::{Conversation, escape, printable};
use tokio::time::{Duration, Instant};

use crate::args::Ask;
use crate::far::Far;
use crate::{body, client, operator, output, recv, send, told};

/// How often the broker is asked how far the request is, and how long that may take.
const LOOK: Duration = Duration::from_millis(500);
/// Longest text of a message that is no result, in characters.
const ASIDE_CHARS: usize = 300;
/// Longest name that is repeated, in characters.
const NAME_CHARS: usize = 64;

pub(crate) fn run(verb: Ask) -> Result<(), Failure> {
    let body = body::json(&verb.body, &verb.more, verb.saying.text)?;
    let config = client::config(&verb.connection, verb.name.clone())?;
    let mut talk = send::conversation(&body, &verb.saying, &config)?;
    let within_ms = verb.within.or(talk.within_ms);
    talk.within_ms = Some(within_ms.unwrap_or(WITHIN_MS_DEFAULT));
    let body = talk.write(&body);
    send::mind(&verb.to);
    client::with_bus(config, client::Refused::Fail, async |bus| {
        let mut stop = Stop::catch()?;
        let limit = client::duration(verb.timeout);
        let end = Instant::now() + limit;
        let sent = match bus.send(&verb.to, &body, limit).await {
            Ok(sent) => sent,
            Err(error) => return Err(send::unsent(&bus, &verb.to, error).await),
        };
        if verb.detach {
            return send::asked(&bus, &sent, &verb).await;
        }
        tokio::select! {
            done = result(&bus, &verb, &sent, end) => done,
            _ = stop.asked() => Err(Failure::failed(format!("stopped; {}", stays(&sent, &verb)))),
        }
    })
}

/// What becomes of a request whose result is not waited for any more, and of the result.
fn stays(sent: &SentMessage, verb: &Ask) -> String {
    let id = &sent.id;
    let waits = verb.name.as_ref().map(|name| {
        let name = escape(name, NAME_CHARS);
        format!(
            "an answer that comes later waits {}",
            operator::waits(&name)
        )
    });
    if sent.accepted.is_none() {
        return waits.unwrap_or_else(|| "an answer that comes later finds nobody here".into());
    }
    let waits = waits.map_or_else(String::new, |waits| format!("; {waits}"));
    let shows = match (operator::is_elsewhere(), is_below_an_agent()) {
        (true, _) => String::new(),
        (_, true) => format!(": `peerbus status {id}` shows it"),
        (_, false) => format!(
            ": `peerbus status {id}` shows it, and `peerbus requests cancel {id}` takes it back"
        ),
    };
    format!("the request stays owed until its time is over{shows}{waits}")
}

/// Waits for the result and prints it.
async fn result(bus: &Bus, verb: &Ask, sent: &SentMessage, end: Instant) -> Result<(), Failure> {
    let (mut told, mut said_last, mut answered) = (None, String::new(), false);
    let mut look = tokio::time::interval(LOOK);
    loop {
        let event = tokio::select! {
            biased;
            event = bus.next() => event,
            () = tokio::time::sleep_until(end) => {
                let note = Far::ask(bus, &sent.id, LOOK).await.map(|far| far.note());
                let note = note.unwrap_or_else(|_| "how far it got is not known".into());
                return Err(Failure::failed(format!(
                    "no result from {} within {} s: {note}; {}", verb.to, verb.timeout, stays(sent, verb)
                )));
            }
            _ = look.tick() => {
                let Ok(far) = Far::ask(bus, &sent.id, LOOK).await else { continue };
                if far.stage().is_some_and(has_no_result) {
                    return Err(Failure::failed(far.trail.note));
                }
                let is_answered = far.stage().is_some_and(is_answered);
                // The broker delivers an answer before it says that there is one.
                if is_answered && std::mem::replace(&mut answered, true) {
                    return Err(Failure::failed(not_come(&far, sent)));
                }
                let now = Some((far.stage().cloned(), far.does, far.ways.clone()));
                if told != now {
                    told = now;
                    let note = far.note();
                    if note != said_last {
                        output::say(&note);
                        said_last = note;
                    }
                }
                continue;
            }
        };
        match event {
            Some(SessionEvent::Message(message)) if answers(&message, &sent.id) => {
                if is_result(bus, &message, &sent.id, end).await {
                    return show(bus, verb, &message).await;
                }
                let text = escape(&said(&message.body), ASIDE_CHARS);
                let from = told::name(&message.from);
                output::say(&format!("{from} writes, which is no result: \"{text}\""));
            }
            // The broker tells until somebody takes note.
            Some(SessionEvent::Notice {
                receipt,
                id: Some(notice),
            }) if receipt.id.as_str() == sent.id && receipt.stage.is_end() => {
                bus.ack_notice(notice);
                let kept = !has_no_result(&receipt.stage);
                let far = Far::ask(bus, &sent.id, LOOK).await.ok();
                let note = far.map(|far| far.trail.note);
                let note = note.filter(|_| !kept).or_else(|| fate(&receipt));
                return Err(Failure::failed(note.unwrap_or_default()));
            }
            Some(_) => {}
            None => return Err(Failure::failed("the bus was closed")),
        }
    }
}

/// Prints a result. One that says so is no success.
async fn show(bus: &Bus, verb: &Ask, message: &Inbound) -> Result<(), Failure> {
    let text = said(&message.body);
    let shown = match (verb.json, stdout().is_terminal()) {
        (true, _) => recv::line(message)?,
        // Lines of ours stand there, too.
        (false, true) => output::fitted(&output::indented(&text)).into_owned(),
        (false, false) => printable(&text),
    };
    output::line_aside(shown).await?;
    let path = "ask".into();
    bus.ack(&message.key, How::Pushed { path });
    match Conversation::of(&message.body).failed {
        true => Err(Failure::failed("it failed")),
        false => Ok(()),
    }
}

/// A result comes as a message.
fn has_no_result(stage: &Stage) -> bool {
    stage.is_lost() || stage.is_end() && !is_answered(stage)
}

const fn is_answered(stage: &Stage) -> bool {
    matches!(stage, Stage::Done { .. } | Stage::Failed { .. })
}

/// That the request has ended by an answer that is not here.
fn not_come(far: &Far, sent: &SentMessage) -> String {
    let shows = match operator::is_elsewhere() {
        true => String::new(),
        false => format!(". `peerbus status {}` shows what is known of it", sent.id),
    };
    format!(
        "{}; it was not taken here: its signature does not hold, or it found no room{shows}",
        far.trail.note
    )
}

/// It is about the request, and asks nothing back.
fn answers(message: &Inbound, id: &str) -> bool {
    let talk = Conversation::of(&message.body);
    talk.within_ms.is_none() && talk.reply_to.is_some_and(|asked| asked.as_str() == id)
}

/// Whether an answer is the result: its sender is who holds the request, or held it. A broker of
/// peerbus v1, which knows no requests, leaves it to the answer; one that does not say is asked until `end`.
async fn is_result(bus: &Bus, message: &Inbound, id: &str, end: Instant) -> bool {
    let far = loop {
        match Far::ask(bus, id, LOOK).await {
            Ok(far) => break far,
            Err(BusError::NotSupported) => return true,
            Err(BusError::TimedOut(_)) if Instant::now() < end => {}
            Err(_) => return false,
        }
    };
    // Others may choose the id of the answer.
    let holder = far.holder().filter(|_| far.stage().is_some());
    holder.is_some_and(|holder| message.from.eq_ignore_ascii_case(holder))
}
