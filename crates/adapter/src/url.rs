//! Where a broker is.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use peerbus_os::tls::Fingerprint;
use peerbus_wire::hex;

use crate::error::ConfigError;

/// The broker's address when nothing says otherwise.
pub const DEFAULT_URL: &str = "ws://127.0.0.1:47821";

/// The forms that are understood, for error messages.
const FORMS: &str = "ws://host:port[/path], wss://host:port[/path][#sha256=FINGERPRINT], unix:/path/to.sock or ssh:[user@]host";

/// Longest user and host for `ssh`, in bytes.
const LOGIN_BYTES_MAX: usize = 255;

/// The beginning of the one certificate that is taken, at the end of a `wss:` URL.
const PIN: &str = "sha256=";

/// A broker's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Url {
    /// `ws://host:port[/path]`, or `wss:` with TLS.
    Tcp {
        /// TLS.
        tls: bool,
        /// Name or address, without brackets.
        host: String,
        /// Port; 80, with TLS 443, when the URL names none.
        port: u16,
        /// Path and query, beginning with `/`.
        path: String,
        /// The one certificate that is taken there; `None`: what an authority signed for the host.
        pin: Option<Fingerprint>,
    },
    /// `unix:/path/to.sock`.
    Unix(PathBuf),
    /// `ssh:[user@]host` or `ssh://[user@]host[:port]`, as `ssh` is given it (without the first `ssh:`): no option of
    /// that, and nothing that a shell or a terminal reads otherwise.
    Ssh(String),
}

impl Url {
    /// Reads a URL.
    ///
    /// # Errors
    ///
    /// Says what was found and which forms there are.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let shown = peerbus_wire::escape_name(text, 200);
        let wrong = |why: &str| ConfigError(format!("broker URL \"{shown}\" {why}: use {FORMS}"));
        if !text
            .chars()
            .all(|c| c.is_ascii_graphic() || (c == ' ' && text.starts_with("unix:")))
        {
            return Err(wrong("holds a character that no URL may hold"));
        }
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            if !path.starts_with('/') {
                return Err(wrong("does not name an absolute path"));
            }
            return Ok(Self::Unix(path.into()));
        }
        if let Some(place) = text.strip_prefix("ssh:") {
            let bare = place.strip_prefix("//");
            return match is_login(bare.unwrap_or(place)) {
                true => Ok(Self::Ssh(bare.map_or(place, |_| text).into())),
                false => Err(wrong("names no [user@]host that ssh may be given")),
            };
        }
        let plain = text.strip_prefix("ws://").map(|rest| (rest, false, "80"));
        let (rest, tls, port) = plain
            .or_else(|| Some((text.strip_prefix("wss://")?, true, "443")))
            .ok_or_else(|| wrong("is of another kind"))?;
        let split = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(split);
        let (host, port) =
            authority_of(authority, port).ok_or_else(|| wrong("names no host and port"))?;
        let (path, pin) = match path.split_once('#') {
            None => (path, None),
            Some((path, pin)) => {
                let pin = pin.strip_prefix(PIN).filter(|_| tls).and_then(hex::decode);
                let pin = pin.ok_or_else(|| wrong("has a fragment that is no fingerprint"))?;
                (path, Some(Fingerprint(pin)))
            }
        };
        let path = if path.starts_with('/') {
            path.into()
        } else {
            format!("/{path}")
        };
        Ok(Self::Tcp {
            tls,
            host: host.into(),
            port,
            path,
            pin,
        })
    }

    /// As it is written down, with the certificate that it names: [`fmt::Display`] is for people.
    #[must_use]
    pub fn written(&self) -> String {
        match self {
            Self::Tcp { pin: Some(pin), .. } => format!("{self}#{PIN}{}", hex::encode(&pin.0)),
            _ => self.to_string(),
        }
    }

    /// Whether the broker is on this machine.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Ssh(_) => false,
            Self::Tcp { host, .. } => match host.parse::<IpAddr>() {
                Ok(address) => address.is_loopback(),
                Err(_) => host.eq_ignore_ascii_case("localhost"),
            },
        }
    }

    /// What the WebSocket handshake asks for.
    pub(crate) fn request(&self) -> String {
        match self {
            Self::Unix(_) | Self::Ssh(_) => "ws://localhost/".into(),
            Self::Tcp { .. } => self.to_string(),
        }
    }
}

/// Whether `ssh` may be given this: neither user nor host is an option.
fn is_login(place: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-:[]".contains(c);
    let part = |part: &str| !part.is_empty() && !part.starts_with('-') && part.chars().all(plain);
    let (user, host) = place.split_once('@').unwrap_or(("me", place));
    place.len() <= LOGIN_BYTES_MAX && part(user) && part(host)
}

/// Host without brackets, and port, or else the default one.
fn authority_of<'a>(authority: &'a str, default: &'a str) -> Option<(&'a str, u16)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (
                host,
                port.strip_prefix(':')
                    .or(port.is_empty().then_some(default))?,
            )
        }
        None => authority.rsplit_once(':').unwrap_or((authority, default)),
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-:".contains(c);
    let bare_v6 = host.contains(':') && !authority.starts_with('[');
    if host.is_empty() || bare_v6 || !host.chars().all(plain) {
        return None;
    }
    let port: u16 = port.parse().ok()?;
    (port > 0).then_some((host, port))
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The first two slashes of a path that begins so would be taken for the URL's.
            Self::Unix(path) if path.as_os_str().as_encoded_bytes().starts_with(b"//") => {
                write!(f, "unix://{}", path.display())
            }
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Ssh(place) if place.starts_with("ssh://") => f.write_str(place),
            Self::Ssh(place) => write!(f, "ssh:{place}"),
            Self::Tcp {
                tls,
                host,
                port,
                path,
                ..
            } => {
                let scheme = if *tls { "wss" } else { "ws" };
                let (open, close) = if host.contains(':') {
                    ("[", "]")
                } else {
                    ("", "")
                };
                let path = if path == "/" { "" } else { path };
                write!(f, "{scheme}://{open}{host}{close}:{port}{path}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_shown_alike() {
        for (text, shown, local) in [
            (DEFAULT_URL, DEFAULT_URL, true),
            ("ws://localhost:1/", "ws://localhost:1", true),
            (
                "ws://bus.example:9000/a/b?c=d",
                "ws://bus.example:9000/a/b?c=d",
                false,
            ),
            ("ws://[::1]:7", "ws://[::1]:7", true),
            ("ws://10.0.0.1", "ws://10.0.0.1:80", false),
            ("wss://bus.example", "wss://bus.example:443", false),
            ("wss://[::1]/a", "wss://[::1]:443/a", true),
            ("wss://localhost:7", "wss://localhost:7", true),
            ("unix:/run/a b.sock", "unix:/run/a b.sock", true),
            ("unix:///run/x.sock", "unix:/run/x.sock", true),
            ("ssh:desk", "ssh:desk", false),
            ("ssh:ann@desk.local", "ssh:ann@desk.local", false),
            ("ssh://ann@desk:22", "ssh://ann@desk:22", false),
            ("ssh:ssh:x", "ssh:ssh:x", false),
        ] {
            let url = Url::parse(text).unwrap();
            assert_eq!(
                (url.to_string().as_str(), url.is_local()),
                (shown, local),
                "{text}"
            );
        }
    }

    #[test]
    fn a_certificate_that_is_named_is_kept_and_not_shown() {
        let pin = "0f".repeat(32);
        for (text, shown, written) in [
            ("wss://h:1", "wss://h:1", "wss://h:1#sha256="),
            (
                "wss://[::1]:1/a",
                "wss://[::1]:1/a",
                "wss://[::1]:1/a#sha256=",
            ),
        ] {
            let url = Url::parse(&format!("{text}#sha256={pin}")).unwrap();
            assert_eq!(
                (url.to_string(), url.request()),
                (shown.into(), shown.into())
            );
            assert_eq!(url.written(), format!("{written}{pin}"));
            assert_eq!(Url::parse(&url.written()).unwrap(), url);
            assert_ne!(Url::parse(text).unwrap(), url);
        }
        for text in [
            "ws://h:1",
            "wss://h:1/#x",
            "wss://h:1#sha256=0",
            "wss://h:1/a",
        ] {
            let wrong = Url::parse(&format!("{text}#sha256={pin}0"));
            assert!(wrong.is_err(), "{text}");
        }
        assert!(
            Url::parse(&format!("ws://h:1#sha256={pin}")).is_err(),
            "without TLS"
        );
    }

    #[test]
    fn what_is_no_url_is_named_with_the_forms_there_are() {
        for text in [
            "",
            "http://x:1",
            "127.0.0.1:47821",
            "ws://",
            "ws://:1",
            "ws://h:0",
            "ws://h:70000",
            "ws://h:x",
            "ws://::1:5",
            "ws://[::1",
            "ws://u@h:1",
            "unix:rel.sock",
            "ws://h:1/\u{7}",
            "ws://h:1/#f",
            "ssh:",
            "ssh:-oProxyCommand=x",
            "ssh://-oProxyCommand=x",
            "ssh:-l@desk",
            "ssh:ann@-oProxyCommand=x",
            "ssh:ann@",
            "ssh:a b",
            "ssh:desk;id",
            "ssh:$(id)@desk",
            "ssh:desk'",
        ] {
            let error = Url::parse(text).unwrap_err().to_string();
            assert!(
                error.contains(FORMS) && error.contains("broker URL \""),
                "{text}: {error}"
            );
        }
    }
}
