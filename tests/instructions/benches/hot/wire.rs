//! The bytes: canonical form, signature, frames.

use std::hint::black_box;

use gungraun::{library_benchmark, library_benchmark_group};
use peerbus_wire::{ClientFrame, Decoded, Envelope, Secret};

/// The length of the JSON string in a message's body, quotes included.
const BODY_BYTES: usize = 256;

pub(crate) fn secret() -> Secret {
    Secret::new(b"a secret for counting, 32 bytes.").unwrap()
}

/// The id of message `number`: the time first, then what looks like chance, as UUIDv7 has it.
pub(crate) fn id(number: u64) -> String {
    let chance = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("{:016x}{chance:016x}", 0x0190_0000_0000_0000 + number)
}

/// A signed message from alice to bob.
pub(crate) fn message(number: u64) -> Envelope {
    let text = "the quick brown fox jumps over a lazy dog; "
        .chars()
        .cycle()
        .take(BODY_BYTES - 2)
        .collect::<String>();
    let mut envelope = Envelope {
        protocol_version: "v1".into(),
        id: id(number),
        from: "alice".into(),
        to: "bob".into(),
        ts: "2026-01-01T00:00:00.000Z".into(),
        source: "agent".into(),
        kind: "msg".into(),
        body: format!("\"{text}\"").into(),
        hmac: String::new(),
    };
    envelope.hmac = secret().sign(&envelope.canonical().unwrap());
    envelope
}

/// The message as it travels.
pub(crate) fn message_text(number: u64) -> Vec<u8> {
    let decoded = Decoded {
        envelope: message(number),
        irregular: None,
    };
    decoded.carry().unwrap().text.as_bytes().to_vec()
}

fn ack_text() -> Vec<u8> {
    br#"{"protocol_version":"v1","type":"ack","id":"1048576","how":"seen","path":"socket","evidence":"transcript"}"#
        .to_vec()
}

fn canonical_form() -> (Secret, Vec<u8>) {
    (secret(), message(1).canonical().unwrap())
}

#[library_benchmark]
#[bench::body_256(message(1))]
fn canonicalise(envelope: Envelope) -> (Envelope, Vec<u8>) {
    let canonical = black_box(&envelope).canonical().unwrap();
    (envelope, canonical)
}

#[library_benchmark]
#[bench::body_256(canonical_form())]
fn sign((secret, canonical): (Secret, Vec<u8>)) -> (Secret, Vec<u8>, String) {
    let signature = black_box(&secret).sign(black_box(&canonical));
    (secret, canonical, signature)
}

#[library_benchmark]
#[bench::body_256((secret(), message(1)))]
fn verify((secret, envelope): (Secret, Envelope)) -> (Secret, Envelope) {
    black_box(&secret).verify(black_box(&envelope)).unwrap();
    (secret, envelope)
}

#[library_benchmark]
#[bench::message_256(message_text(1))]
#[bench::ack(ack_text())]
fn parse(text: Vec<u8>) -> (Vec<u8>, ClientFrame) {
    let frame = ClientFrame::parse(black_box(&text));
    let refused = matches!(
        frame,
        ClientFrame::Malformed | ClientFrame::Unusable | ClientFrame::Refused { .. }
    );
    assert!(!refused, "{frame:?}");
    (text, frame)
}

library_benchmark_group!(
    name = bytes,
    benchmarks = [canonicalise, sign, verify, parse]
);
