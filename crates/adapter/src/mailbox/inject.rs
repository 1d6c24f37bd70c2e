//! What is put into the session here, and did not come over the bus.

use std::sync::Arc;

use peerbus_peer::mailbox::{HERE, Image, Mail, PUT_IN_MAX};
use peerbus_peer::session::{Inbound, Key};
use peerbus_wire::{Kind, Stage};

use super::{Mailbox, Staged, mail};
use crate::compose;

/// Longest word for the program that asked, in characters.
pub const SOURCE_CHARS: usize = 64;

/// Longest text, in bytes. Where no more than the beginning of it can be shown, the rest is read with the
/// bus inbox tool, as of a peer's message.
const PROMPT_BYTES_MAX: usize = 256 * 1024;

/// Why a text is not taken: a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InjectError {
    /// The text is none that can be shown.
    Text(String),
    /// Too much waits already.
    Full(String),
}

/// A text that a program of the user's gave here, as the session will be shown it.
#[derive(Debug)]
pub struct Injection(Arc<Mail>);

impl Injection {
    /// `source`: what the program calls itself. `images`: for a session that takes them.
    ///
    /// # Errors
    ///
    /// When the text is empty, or too long.
    pub fn new(source: &str, text: &str, images: Vec<Image>) -> Result<Self, InjectError> {
        if text.trim().is_empty() {
            let why = "`prompt` is empty: pass the text that the session is to get";
            return Err(InjectError::Text(why.into()));
        }
        if text.len() > PROMPT_BYTES_MAX {
            return Err(InjectError::Text(format!(
                "`prompt` has {} bytes, {PROMPT_BYTES_MAX} are the most: put the text into a file and name \
                 that",
                text.len()
            )));
        }
        let unique = uuid::Uuid::now_v7();
        let mail = mail::mail(Inbound {
            key: Key::local(unique.as_u128()),
            id: unique.simple().to_string(),
            from: HERE.into(),
            source: source.chars().take(SOURCE_CHARS).collect(),
            kind: Kind::Msg,
            ts: compose::timestamp(),
            body: serde_json::Value::from(text).to_string(),
            again: false,
            to: None,
            group: None,
            one: false,
            token: None,
            approves: false,
            age_ms: 0,
            within_ms: 0,
        });
        Ok(Self(Arc::new(Mail { images, ..mail })))
    }
}

impl Mailbox {
    /// Shows the session a text as it shows a peer's message. Gives the text's id. It is kept in
    /// memory alone, and lost with this process.
    ///
    /// # Errors
    ///
    /// When too much waits already.
    pub fn inject(&self, Injection(mail): Injection) -> Result<String, InjectError> {
        self.with(|state, now_ms| {
            if !state.machine.put_in(now_ms, &mail) {
                return Err(InjectError::Full(format!(
                    "{PUT_IN_MAX} texts wait unseen in this session: try again when some are seen"
                )));
            }
            let staged = Staged::here(&mail.inbound, Stage::Delivered);
            state.staged.push(staged);
            state.look_for_paths();
            Ok(mail.inbound.id.clone())
        })
    }
}
