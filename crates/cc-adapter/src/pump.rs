//! From the bus to the agent.

use std::collections::VecDeque;

use peerbus_adapter::{Bus, Event, FateToken, Held};
use peerbus_mcp::{Host, notice};

use crate::push::Push;
use crate::wake::Ladder;

/// Statements that are kept for the client's start although the broker does not keep them; the
/// oldest go first.
const PASSING_MAX: usize = 64;

/// Pushes what the bus delivers, in order. Nothing before the client is initialized: it would
/// drop it. What arrives earlier waits here, unacked and so bounded by the broker.
pub(crate) async fn pump(bus: Bus, mut host: Host) {
    let mut early = Early::default();
    let ladder = Ladder::new(host.clone());
    while !host.is_initialized() {
        tokio::select! {
            () = host.initialized() => {}
            event = bus.next() => match event {
                Some(event) => early.hold(&bus, event),
                None => return,
            },
        }
    }
    while let Some(event) = bus.try_next() {
        early.hold(&bus, event);
    }
    let crowd = crowd(bus.held());
    for push in early
        .registered
        .iter()
        .map(|name| Push::announce(name))
        .chain(crowd)
    {
        ladder.wake(&push).await;
    }
    for event in early.events {
        pass_on(&bus, &ladder, event).await;
    }
    while let Some(event) = bus.next().await {
        pass_on(&bus, &ladder, event).await;
    }
}

/// What came before the client was ready.
#[derive(Default)]
struct Early {
    /// The name of the last registration; earlier ones are no news.
    registered: Option<String>,
    events: VecDeque<Event>,
}

impl Early {
    fn hold(&mut self, bus: &Bus, event: Event) {
        match event {
            Event::Registered { name, .. } => self.registered = Some(name),
            event @ Event::Message(_) => self.events.push_back(event),
            // Nothing was sent yet: this is about messages of an earlier session of this name.
            other if notice(&other).is_some() => self.note(other),
            other => told(bus, token(&other)),
        }
    }

    fn note(&mut self, event: Event) {
        self.events.push_back(event);
        let passing = |event: &Event| !matches!(event, Event::Message(_)) && token(event).is_none();
        if self.events.iter().filter(|event| passing(event)).count() > PASSING_MAX
            && let Some(oldest) = self.events.iter().position(passing)
        {
            self.events.remove(oldest);
        }
    }
}

/// What to tell the bus by once the statement was told.
fn token(event: &Event) -> Option<FateToken> {
    match event {
        Event::Fate { token, .. } => *token,
        _ => None,
    }
}

fn told(bus: &Bus, token: Option<FateToken>) {
    if let Some(token) = token {
        bus.fate_told(token);
    }
}

async fn pass_on(bus: &Bus, ladder: &Ladder, event: Event) {
    match event {
        Event::Registered { name, .. } => {
            ladder.wake(&Push::announce(&name)).await;
        }
        Event::Message(message) => {
            // Not taken by any path: the client is gone. It stays unacked and is delivered to
            // whoever has this name next.
            if let Some(how) = ladder.wake(&Push::message(&message)).await {
                bus.ack(&message.key, how);
            }
        }
        other => {
            let gone = match notice(&other) {
                Some(sentence) => ladder.wake(&Push::notice(&sentence)).await.is_none(),
                None => false,
            };
            // As with a message: the broker keeps what no path took.
            if !gone {
                told(bus, token(&other));
            }
        }
    }
}

/// Says how many messages wait, when they nearly fill the window.
fn crowd(held: Held) -> Option<Push> {
    let full = |part: usize, whole: u32| part.saturating_mul(4) >= whole as usize * 3;
    let crowded = held.messages > 0
        && (full(held.messages, held.window.messages) || full(held.bytes, held.window.bytes));
    crowded.then(|| {
        Push::notice(&format!(
            "{} messages arrived while this session was starting and follow now, oldest first; \
             more may wait at the broker",
            held.messages
        ))
    })
}
