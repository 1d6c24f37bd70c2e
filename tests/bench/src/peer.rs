//! Peers under load: senders that count their receipts, receivers that ack and check the order.

use std::net::SocketAddr;

use anyhow::{Result, bail};
use peerbus_wire::{Envelope, Secret};

use crate::socket::{Kind, Reader, Writer, dial, dial_tls};

/// The secret that everybody in a bench shares; the broker never sees it.
const SECRET: &[u8] = b"a secret for benches, 32 bytes long";

/// Which protocol a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speech {
    V1,
    Ext,
    /// `Ext` over TLS.
    ExtTls,
}

impl Speech {
    /// The ack of a delivery: an ext peer says how the model got it, as an adapter that has
    /// evidence does, and the broker keeps that.
    pub(crate) fn ack(self, key: &[u8]) -> Vec<u8> {
        let how: &[u8] = match self {
            Self::V1 => br#""}"#,
            Self::Ext | Self::ExtTls => {
                br#"","how":"seen","path":"socket","evidence":"transcript"}"#
            }
        };
        [br#"{"protocol_version":"v1","type":"ack","id":""#, key, how].concat()
    }
}

/// A registered connection.
pub(crate) struct Peer {
    pub(crate) reader: Reader,
    pub(crate) writer: Writer,
    pub(crate) speech: Speech,
}

impl Peer {
    /// Dials, registers and waits for the handshake ack.
    pub(crate) async fn join(
        address: SocketAddr,
        token: &str,
        name: &str,
        speech: Speech,
    ) -> Result<Self> {
        let (reader, writer) = match speech {
            Speech::V1 | Speech::Ext => dial(address).await?,
            Speech::ExtTls => dial_tls(address).await?,
        };
        let mut peer = Self {
            reader,
            writer,
            speech,
        };
        let ext = match speech {
            Speech::V1 => String::new(),
            Speech::Ext | Speech::ExtTls => format!(r#","ext":1,"instance":"bench-{name}""#),
        };
        let register = format!(
            r#"{{"protocol_version":"v1","type":"register","token":"{token}","name":"{name}"{ext}}}"#
        );
        peer.writer.queue(register.as_bytes());
        peer.writer.flush().await?;
        let (kind, text) = peer.reader.next().await?;
        if kind != Kind::Text || !text.starts_with(br#"{"protocol_version":"v1","type":"peers""#) {
            bail!(
                "{name} was not registered: {}",
                String::from_utf8_lossy(text)
            );
        }
        Ok(peer)
    }

    /// Joins a group.
    pub(crate) async fn regroup(&mut self, group: &str) -> Result<()> {
        let group = group.trim_start_matches('#');
        let frame = format!(r#"{{"protocol_version":"v1","type":"peers","join":["{group}"]}}"#);
        self.writer.queue(frame.as_bytes());
        self.writer.flush().await?;
        let (kind, text) = self.reader.next().await?;
        if kind != Kind::Text || !String::from_utf8_lossy(text).contains(r#","groups":[""#) {
            bail!("not joined: {}", String::from_utf8_lossy(text));
        }
        Ok(())
    }

    /// Waits until everything before is handled and committed; deliveries on the way are dropped.
    pub(crate) async fn barrier(&mut self) -> Result<()> {
        self.writer
            .queue(br#"{"protocol_version":"v1","type":"peers"}"#);
        self.writer.flush().await?;
        loop {
            let (kind, text) = self.reader.next().await?;
            match kind {
                Kind::Text if text.starts_with(br#"{"protocol_version":"v1","type":"peers""#) => {
                    return Ok(());
                }
                Kind::Close => bail!("closed: {}", String::from_utf8_lossy(text)),
                _ => {}
            }
        }
    }

    /// The next delivery: its key and the number in its id. Other frames are passed over.
    pub(crate) async fn delivery(&mut self) -> Result<(String, u64)> {
        loop {
            let (kind, text) = self.reader.next().await?;
            match kind {
                Kind::Text => {
                    if let Some((key, id)) = parse_delivery(text) {
                        return Ok((String::from_utf8_lossy(key).into_owned(), number(id)?));
                    }
                }
                Kind::Ping => {
                    let payload = text.to_vec();
                    self.writer.queue_pong(&payload);
                }
                Kind::Close => bail!("closed: {}", String::from_utf8_lossy(text)),
                Kind::Other => {}
            }
        }
    }

    /// Adds an ack to what the next flush sends.
    pub(crate) fn queue_ack(&mut self, key: &[u8]) {
        self.writer.queue(&self.speech.ack(key));
    }
}

/// A signed message whose id ends in `number`, with a body of `body_bytes`.
pub(crate) fn envelope(from: &str, to: &str, run: u32, number: u64, body_bytes: usize) -> Vec<u8> {
    let text = "x".repeat(body_bytes.saturating_sub(2));
    let kind = if to == "*" { "broadcast" } else { "msg" };
    let mut envelope = Envelope {
        protocol_version: "v1".into(),
        id: format!("{run:08x}-{number:012}"),
        from: from.into(),
        to: to.into(),
        ts: "2026-11-21T12:00:00.000000000Z".into(),
        source: "peer-bus".into(),
        kind: kind.into(),
        body: format!("\"{text}\"").into_bytes(),
        hmac: String::new(),
    };
    // The secret is long enough and the body is JSON: neither can fail.
    let mut canonical = envelope.canonical().unwrap_or_default();
    if let Ok(secret) = Secret::new(SECRET) {
        envelope.hmac = secret.sign(&canonical);
    }
    canonical.truncate(canonical.len().saturating_sub(1));
    canonical.extend_from_slice(format!(r#","hmac":"{}"}}"#, envelope.hmac).as_bytes());
    canonical
}

/// How the envelope in a deliver frame begins.
const ENVELOPE: &[u8] = br#","envelope":{"protocol_version":"v1","id":""#;

/// The key and the message id of a deliver frame, which our broker spells in one way only.
pub(crate) fn parse_delivery(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest =
        text.strip_prefix(br#"{"protocol_version":"v1","type":"deliver","delivery_key":""#)?;
    let (key, rest) = quoted(rest)?;
    // How old it is, and for which name it came, may stand between.
    let at = find(rest, ENVELOPE)?;
    let (id, _) = quoted(&rest[at + ENVELOPE.len()..])?;
    Some((key, id))
}

fn quoted(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|&b| b == b'"')?;
    Some((&text[..end], &text[end + 1..]))
}

/// The number that a message's id ends in.
pub(crate) fn number(id: &[u8]) -> Result<u64> {
    let digits = id.rsplit(|&b| b == b'-').next().unwrap_or_default();
    Ok(std::str::from_utf8(digits)?.parse()?)
}

/// How many statements of a receipts frame say that a message was accepted.
pub(crate) fn count_accepted(text: &[u8]) -> usize {
    const WORD: &[u8] = br#""state":"accepted""#;
    let mut count = 0;
    let mut rest = text;
    while let Some(at) = find(rest, WORD) {
        count += 1;
        rest = &rest[at + WORD.len()..];
    }
    count
}

fn find(text: &[u8], word: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + text.get(from..)?.iter().position(|&b| b == word[0])?;
        if text[at..].starts_with(word) {
            return Some(at);
        }
        from = at + 1;
    }
}

#[cfg(test)]
mod tests {
    use peerbus_wire::{ClientFrame, How};

    use super::*;

    #[test]
    fn an_ext_peer_acks_with_evidence_and_a_v1_peer_says_nothing() {
        let how = |speech: Speech| match ClientFrame::parse(&speech.ack(b"17")) {
            ClientFrame::Ack(ack) => (ack.key.as_str().to_owned(), ack.how),
            other => panic!("no ack: {other:?}"),
        };
        let seen = How::Seen {
            path: "socket".to_owned(),
            evidence: "transcript".to_owned(),
        };
        assert_eq!(how(Speech::Ext), ("17".to_owned(), Some(seen)));
        assert_eq!(how(Speech::V1), ("17".to_owned(), None));
    }
}
