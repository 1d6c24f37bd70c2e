//! `peerbus ask`.

use peerbus_adapter::mailbox::quote::said;
use peerbus_adapter::signals::Stop;
use peerbus_adapter::{Bus, Failure, How, Inbound, SessionEvent, Stage};
use peerbus_view::{Trail, is_proven, reached};
use peerbus_wire::{Conversation, printable};
use tokio::time::{Duration, Instant};

use crate::args::Ask;
use crate::{body, client, output, recv, send, told};

/// How often the broker is asked how far the question is, and how long that may take.
const LOOK: Duration = Duration::from_millis(500);

pub(crate) fn run(verb: Ask) -> Result<(), Failure> {
    let body = body::json(&verb.body, &verb.more, verb.saying.text)?;
    let body = send::conversation(&body, &verb.saying).write(&body);
    if verb.to.starts_with('#') {
        let why =
            "a question goes to one peer, and that is a group: `peerbus send` reaches all of it";
        return Err(Failure::config(why));
    }
    let config = client::config(&verb.connection, None)?;
    client::with_bus(config, client::Refused::Fail, async |bus| {
        let mut stop = Stop::catch()?;
        tokio::select! {
            done = ask(&bus, &verb, &body) => done,
            _ = stop.asked() => Err(Failure::failed("stopped; the question stays where it is")),
        }
    })
}

async fn ask(bus: &Bus, verb: &Ask, body: &str) -> Result<(), Failure> {
    let limit = client::duration(verb.timeout);
    let end = Instant::now() + limit;
    let sent = match bus.send(&verb.to, body, limit).await {
        Ok(sent) => sent,
        Err(error) => return Err(send::unsent(bus, &verb.to, error).await),
    };
    let mut told = None;
    let mut look = tokio::time::interval(LOOK);
    loop {
        let event = tokio::select! {
            biased;
            event = bus.next() => event,
            () = tokio::time::sleep_until(end) => {
                let trail = far(bus, &sent.id).await.map(|(_, trail)| trail.note);
                let far = trail.unwrap_or_else(|| "how far the question got is not known".into());
                return Err(Failure::failed(format!(
                    "no answer from {} within {} s: {far}. An answer that comes later finds nobody here",
                    verb.to, verb.timeout
                )));
            }
            _ = look.tick() => {
                let Some((stage, trail)) = far(bus, &sent.id).await else { continue };
                if stage.is_final() && !matches!(stage, Stage::Acked(_)) {
                    return Err(Failure::failed(trail.note));
                }
                if told != Some(stage.rank()) {
                    told = Some(stage.rank());
                    let seen = if is_proven(&stage) { "; it may answer now" } else { "" };
                    output::say(&format!("{}{seen}", trail.note));
                }
                continue;
            }
        };
        match event {
            Some(SessionEvent::Message(message)) if answers(&message, &sent.id) => {
                let shown = match verb.json {
                    true => recv::line(&message)?,
                    false => printable(&said(&message.body)),
                };
                output::line_aside(shown).await?;
                let path = "ask".into();
                bus.ack(&message.key, How::Pushed { path });
                return Ok(());
            }
            Some(_) => {}
            None => return Err(Failure::failed("the bus was closed")),
        }
    }
}

/// How far the question got; nothing if the broker does not say, as one of peerbus v1.
async fn far(bus: &Bus, id: &str) -> Option<(Stage, Trail)> {
    let receipts = bus.statuses(&[id.to_owned()], LOOK).await.ok()?;
    let each = reached(receipts.iter()).into_values();
    let stage = each.map(|receipt| &receipt.stage).next()?.clone();
    Some((stage, told::trail(bus, id, &receipts).await))
}

fn answers(message: &Inbound, id: &str) -> bool {
    let talk = Conversation::of(&message.body);
    talk.reply_to.is_some_and(|asked| asked.as_str() == id)
}
