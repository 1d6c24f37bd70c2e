//! A machine that was invited asks the broker to let it in.

use std::fmt;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use peerbus_wire::{
    ClientFrame, CloseReason, JoinGrant, JoinRefusal, JoinRequest, Received, Token, TokenName,
    escape,
};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use crate::dial::{Socket, open_socket};
use crate::error::ConfigError;
use crate::ssh;
use crate::tls::TlsFiles;
use crate::url::Url;

/// How a code begins, and its version.
const BEGINS: &str = "pb1:";
/// The hex digits of a code's secret: 128 bits.
pub const SECRET_DIGITS: usize = 32;
/// How long the broker may take to connect, and to answer.
const ANSWERS: Duration = Duration::from_secs(20);
/// Longest text of a broker that is repeated, in characters.
const SAID_CHARS: usize = 200;

/// The line that a person takes from one machine to the other: `pb1:HOST:PORT/CERTIFICATE/SECRET`. `Debug` shows no
/// secret.
#[derive(Debug, Clone)]
pub struct InviteCode {
    /// Where the broker is, with the one certificate that it shows.
    pub url: Url,
    /// The secret of the invitation.
    pub secret: Token,
}

impl InviteCode {
    /// Reads a code.
    ///
    /// # Errors
    ///
    /// A sentence that says what a code is, and shows nothing of the text.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let read = || {
            let mut parts = text.trim().strip_prefix(BEGINS)?.split('/');
            let (place, pin, secret) = (parts.next()?, parts.next()?, parts.next()?);
            let whole = parts.next().is_none() && is_secret(secret);
            Some(Self {
                url: Url::parse(&format!("wss://{place}#sha256={pin}")).ok()?,
                secret: Token::parse(secret).filter(|_| whole)?,
            })
        };
        read().ok_or_else(|| {
            ConfigError(
                "that is no code of an invitation: copy the whole line that `peerbus invite` printed, \
                 pb1:HOST:PORT/…"
                    .into(),
            )
        })
    }
}

/// Has the broker's machine invite this one under a name, over its user's own ssh: only that user's programs see the
/// secret.
///
/// # Errors
///
/// A sentence: `ssh` failed, or the other side said no.
pub async fn invited_over_ssh(url: &Url, name: &TokenName) -> Result<InviteCode, String> {
    let Url::Ssh(to) = url else {
        return Err(format!("{url} is none of ssh"));
    };
    // Of what a name may hold nothing means anything to a shell, and nothing is an option.
    let printed = ssh::run(to, &format!("invite --ssh {name}")).await?;
    let secret = is_secret(&printed)
        .then(|| Token::parse(&printed))
        .flatten();
    let secret = secret.ok_or_else(|| {
        let printed = escape(&printed, SAID_CHARS);
        format!("the login {to} printed \"{printed}\" where `peerbus invite` prints a secret")
    })?;
    let url = url.clone();
    Ok(InviteCode { url, secret })
}

fn is_secret(text: &str) -> bool {
    text.len() == SECRET_DIGITS && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The code, secret included.
impl fmt::Display for InviteCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let written = self.url.written();
        let place = written.strip_prefix("wss://").unwrap_or(&written);
        let place = place.replacen("#sha256=", "/", 1);
        write!(f, "{BEGINS}{place}/{}", self.secret.expose())
    }
}

/// Why a machine is not let in, as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotLetIn {
    /// The broker said no, and would again.
    #[error("{0}")]
    Refused(String),
    /// It was not reached, could not do its part, or its answer was lost: the same machine may ask again.
    #[error("{0}")]
    Unanswered(String),
}

/// Asks to be let in by an invitation, with a token that this machine made.
///
/// # Errors
///
/// Why it is not.
pub async fn ask(code: &InviteCode, token: &Token) -> Result<JoinGrant, NotLetIn> {
    let asked = timeout(ANSWERS, asked(code, token)).await;
    asked.unwrap_or_else(|_| {
        let (url, seconds) = (&code.url, ANSWERS.as_secs());
        let why = format!("no answer of the broker at {url} within {seconds} s");
        Err(NotLetIn::Unanswered(why))
    })
}

async fn asked(code: &InviteCode, token: &Token) -> Result<JoinGrant, NotLetIn> {
    let url = &code.url;
    // Nothing is said before its certificate was seen.
    let opened = open_socket(url, &TlsFiles::default()).await;
    let mut socket =
        opened.map_err(|why| NotLetIn::Unanswered(format!("no broker at {url}: {why}")))?;
    let request = ClientFrame::Join(JoinRequest {
        code: code.secret.clone(),
        token: token.clone(),
    });
    // Where that fails it says why.
    let _said = socket.send(Message::text(request.encode())).await;
    let answer = answer(&mut socket).await;
    let _gone = socket.close(None).await;
    answer.map_err(|why| match why {
        // It has bound its invitation to this token by then.
        Some((1008, text)) if text == CloseReason::NotJoined(JoinRefusal::Failed).text() => {
            NotLetIn::Unanswered(format!("the broker there says \"{text}\""))
        }
        Some((1008, text)) => NotLetIn::Refused(refusal(&text)),
        Some((code, text)) => {
            let text = escape(&text, SAID_CHARS);
            let why = format!("the broker closed the connection: \"{text}\" (code {code})");
            NotLetIn::Unanswered(why)
        }
        None => NotLetIn::Unanswered("the connection ended before the broker's answer".into()),
    })
}

/// The broker's answer, or how it closed the connection, if it said so.
async fn answer(socket: &mut Socket) -> Result<JoinGrant, Option<(u16, String)>> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) => {
                if let Received::Joined(grant) = Received::parse(text.as_bytes()) {
                    return Ok(grant);
                }
            }
            Some(Ok(Message::Close(said))) => {
                return Err(said.map(|said| (said.code.into(), said.reason.to_string())));
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return Err(None),
        }
    }
}

/// The meaning of a broker's refusal here.
fn refusal(text: &str) -> String {
    if text == CloseReason::FirstFrameNotRegister.text() {
        return "the broker there knows no invitations: it is older than this program".into();
    }
    let text = escape(text, SAID_CHARS);
    format!("the broker there says \"{text}\": `peerbus invite` makes a new code there")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_read_as_it_is_written_and_shows_its_secret_there_alone() {
        let (pin, secret) = ("0f".repeat(32), "a1".repeat(16));
        for place in ["desk.local:47823", "192.0.2.7:1", "[2001:db8::1]:47823"] {
            let text = format!("pb1:{place}/{pin}/{secret}");
            let code = InviteCode::parse(&format!(" {text}\n")).unwrap();
            assert_eq!(code.to_string(), text);
            assert_eq!(code.url.to_string(), format!("wss://{place}"));
            assert!(!format!("{code:?}").contains(&secret));
        }
        let place = "desk:1";
        for wrong in [
            format!("pb2:{place}/{pin}/{secret}"),
            format!("pb1:{place}/{pin}/{secret}/"),
            format!("pb1:{place}/{pin}/{secret}0"),
            format!("pb1:{place}/{pin}/{}", &secret[1..]),
            format!("pb1:{place}/{}/{secret}", &pin[1..]),
            format!("pb1:{place}#x/{pin}/{secret}"),
            format!("pb1:/{pin}/{secret}"),
            format!("pb1:{place}/{pin}"),
            String::new(),
        ] {
            let why = InviteCode::parse(&wrong).unwrap_err().to_string();
            assert!(why.contains("no code of an invitation"), "{why}");
            assert!(!why.contains(&secret[1..]), "{why}");
        }
    }
}
