//! Signed messages.

use peerbus_wire::{DeliveryKey, Envelope, Secret};

/// The secret of peers that a test has no other one for.
pub const SECRET: &str = "a secret for tests, long enough for HMAC";

/// A message that is signed with `secret`; to everybody where `to` is `*`. `body` is JSON.
pub fn signed(secret: &str, id: &str, from: &str, to: &str, body: &str) -> Envelope {
    let mut envelope = Envelope {
        protocol_version: "v1".into(),
        id: id.into(),
        from: from.into(),
        to: to.into(),
        ts: "2026-11-21T00:00:00Z".into(),
        source: "peer-bus".into(),
        kind: if to == "*" { "broadcast" } else { "msg" }.into(),
        body: body.into(),
        hmac: String::new(),
    };
    let canonical = envelope.canonical().unwrap();
    envelope.hmac = Secret::new(secret.as_bytes()).unwrap().sign(&canonical);
    envelope
}

/// The text of a message with its signature, whether or not that verifies.
fn text(envelope: &Envelope) -> String {
    let canonical = String::from_utf8(envelope.canonical().unwrap()).unwrap();
    let open = canonical.strip_suffix('}').unwrap();
    format!(r#"{open},"hmac":"{}"}}"#, envelope.hmac)
}

/// The text of a message that is signed with `secret`.
pub fn envelope(secret: &str, id: &str, from: &str, to: &str, body: &str) -> String {
    text(&signed(secret, id, from, to, body))
}

/// A deliver frame of a v1 broker.
pub fn delivery(key: &str, envelope: &Envelope) -> String {
    assert!(DeliveryKey::parse(key).is_some());
    let envelope = text(envelope);
    format!(
        r#"{{"protocol_version":"v1","type":"deliver","delivery_key":"{key}","envelope":{envelope}}}"#
    )
}
