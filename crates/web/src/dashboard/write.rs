//! What a person writes on the page. Its signature is this process' own, as of every program of the user's;
//! who may ask for it is [`login`](super::login)'s to say.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use peerbus_adapter::{Bus, How, Naming, SessionEvent, connect};
use peerbus_core::grant::PAGE;
use peerbus_os::sync::lock;
use peerbus_wire::{Conversation, MessageId, PeerName, escape_sentence};
use serde::Deserialize;
use serde_json::{Value, json};

use super::WHY_CHARS;
use crate::App;
use crate::answer::Failure;

const ACCEPTS: Duration = Duration::from_secs(10);

/// The page's own peer, once somebody has written.
pub(crate) type Writer = Mutex<Option<Bus>>;

#[derive(Deserialize)]
pub(super) struct Text {
    to: String,
    text: String,
    thread: Option<MessageId>,
    reply_to: Option<MessageId>,
}

/// `POST /dashboard/send`.
pub(super) async fn send(
    State(app): State<Arc<App>>,
    Json(said): Json<Text>,
) -> Result<Json<Value>, Failure> {
    let refused = |status, why: &str| Err(Failure::new(status, escape_sentence(why, WHY_CHARS)));
    if app.options.agent {
        let why = "this gateway was started by an agent, which does not write as its user";
        return refused(StatusCode::FORBIDDEN, why);
    }
    if said.text.trim().is_empty() {
        return refused(StatusCode::BAD_REQUEST, "the text is empty");
    }
    let bus = app.writer()?;
    let mut talk = Conversation {
        reply_to: said.reply_to,
        thread: said.thread.map(|id| id.as_str().to_owned()),
        ..Conversation::default()
    };
    talk.hops = u32::from(talk.reply_to.is_some());
    // A body that is nothing but a text could be a verdict.
    let body = talk.write(&json!({ "text": said.text }).to_string());
    match bus.send(&said.to, &body, ACCEPTS).await {
        Ok(sent) => Ok(Json(json!({
            "id": sent.id,
            "online": sent.accepted.map(|accepted| accepted.online),
        }))),
        Err(error) => refused(StatusCode::CONFLICT, &error.to_string()),
    }
}

impl App {
    /// The page's own peer. It has the user's token, whose groups it can write to.
    fn writer(&self) -> Result<Bus, Failure> {
        let mut writer = lock(&self.dashboard.writer);
        if let Some(bus) = &*writer {
            return Ok(bus.clone());
        }
        let unusable = |why| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, why);
        let name = PeerName::parse(PAGE).map_err(|error| unusable(error.to_string()))?;
        let mut config = self.options.bus.clone();
        config.naming = Naming::Verbatim(name);
        config.presence = json!({ "client": "web", "pid": std::process::id() })
            .as_object()
            .cloned();
        let (bus, link) = connect(config);
        tokio::spawn(link.run());
        tokio::spawn(take(bus.clone()));
        *writer = Some(bus.clone());
        Ok(bus)
    }

    /// The page's peer, which leaves.
    pub(crate) fn take_writer(&self) -> Option<Bus> {
        lock(&self.dashboard.writer).take()
    }
}

/// Takes answers: the page shows them as it shows every message.
async fn take(bus: Bus) {
    while let Some(event) = bus.next().await {
        match event {
            SessionEvent::Message(message) => {
                let path = "page".into();
                bus.ack(&message.key, How::Pushed { path });
            }
            SessionEvent::Notice { id: Some(id), .. } => bus.ack_notice(id),
            _ => {}
        }
    }
}
