//! The wire, seen from outside.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod acceptance;
mod draw;
mod frames;
mod properties;
mod protocol_md;
mod receipts;
mod vectors;

use peerbus_wire::{Decoded, Envelope, MessageId, Secret};

fn id(text: &str) -> MessageId {
    MessageId::parse(text).unwrap()
}

fn secret() -> Secret {
    Secret::new(b"0123456789abcdef0123456789abcdef").unwrap()
}

fn signed(kind: &str, to: &str, body: &[u8]) -> Decoded {
    let mut envelope = Envelope {
        protocol_version: "v1".into(),
        id: "m1".into(),
        from: "alice".into(),
        to: to.into(),
        ts: "2026-05-18T12:00:00Z".into(),
        source: "peer-bus".into(),
        kind: kind.into(),
        body: body.to_vec(),
        hmac: String::new(),
    };
    envelope.hmac = secret().sign(&envelope.canonical().unwrap());
    Decoded {
        envelope,
        irregular: None,
    }
}
