//! Where the settings come from: flag, then environment, then file, then default.

use std::path::PathBuf;

use peerbus_core::grant::not_the_pages;
use peerbus_os::user;
use peerbus_peer::mailbox::Senders;
use peerbus_wire::limits::{WINDOW_BYTES_DEFAULT, WINDOW_MESSAGES_DEFAULT};
use peerbus_wire::{GroupName, PeerName, Secret, Token, Window, escape};
use serde_json::{Map, Value};

use crate::credentials::Credentials;
use crate::demand::Demand;
use crate::error::ConfigError;
use crate::paths::Paths;
use crate::sessions::Sessions;
use crate::template;
use crate::tls::TlsFiles;
use crate::url::Url;

/// Settings given on a command line. Whatever is `None` comes from the environment
/// (`PEERBUS_URL`, `PEERBUS_CA`, `PEERBUS_NAME`, `PEERBUS_TOKEN`, `PEERBUS_HMAC_SECRET` and
/// `PEERBUS_HMAC_SECRET_ALSO`), then from the
/// credentials file, then from a default. An empty text counts as not given.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// `ws://host:port[/path]`, `wss://…` or `unix:/path/to.sock`.
    pub url: Option<String>,
    /// The file with the authorities to trust for `wss:`, in place of the system's.
    pub ca: Option<PathBuf>,
    /// The name; `{project}`, `{branch}`, `{host}` and `{user}` are filled in.
    pub name: Option<String>,
    /// Another credentials file than the one of [`crate::paths`].
    pub credentials: Option<PathBuf>,
}

/// The name to register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Naming {
    /// This one and no other.
    Verbatim(PeerName),
    /// `<adjective>-<noun>-<3 base36>`; another one when it is taken.
    Generated,
}

/// What [`connect`](crate::connect) needs to know.
#[derive(Debug, Clone)]
pub struct BusConfig {
    /// Where the broker is; `None`: the file's `url`, else the first of `sockets` that answers;
    /// then, if `token` is given or this system has no such sockets, [`crate::url::DEFAULT_URL`].
    pub url: Option<Url>,
    /// Unix sockets to try when no URL is known.
    pub sockets: Vec<PathBuf>,
    /// Files for `wss:` URLs.
    pub tls: TlsFiles,
    /// Which name to register.
    pub naming: Naming,
    /// The token; `None`: the file's, read before each attempt.
    pub token: Option<Token>,
    /// The HMAC secret; `None`: the file's, read before each attempt, once a minute, and when
    /// something arrives that it does not verify.
    pub secret: Option<Secret>,
    /// Whose mail reaches the agent; `None`: as the credentials file says, read when the secret is.
    pub senders: Option<Senders>,
    /// The credentials file.
    pub credentials: PathBuf,
    /// Whether a broker is started if none is found; [`BusConfig::resolve`] says that none is.
    pub demand: Demand,
    /// Be forgotten at close: unique name, no queue, not in broadcasts.
    pub ephemeral: bool,
    /// How much may be held unacked.
    pub window: Window,
    /// How this peer describes itself at first.
    pub presence: Option<Map<String, Value>>,
    /// Groups to join.
    pub groups: Vec<GroupName>,
    /// Where names of sessions are kept; `None`: they are not.
    pub sessions: Option<Sessions>,
    /// The client's session that this process serves.
    pub session: Option<String>,
}

impl BusConfig {
    /// Resolves the settings with this process's environment.
    ///
    /// # Errors
    ///
    /// Names the setting, what was found and the rule.
    pub fn resolve(flags: &Flags) -> Result<Self, ConfigError> {
        for variable in [
            "PEERBUS_URL",
            "PEERBUS_NAME",
            "PEERBUS_TOKEN",
            "PEERBUS_HMAC_SECRET",
            "PEERBUS_HMAC_SECRET_ALSO",
            "PEERBUS_FROM",
            "PEERBUS_GROUPS",
        ] {
            if let Err(std::env::VarError::NotUnicode(_)) = std::env::var(variable) {
                return Err(ConfigError(format!("{variable} is not valid UTF-8")));
            }
        }
        Self::resolve_with(flags, |variable| std::env::var(variable).ok())
    }

    /// Resolves the settings with `env` in place of the process's environment.
    ///
    /// # Errors
    ///
    /// As for [`BusConfig::resolve`].
    pub fn resolve_with(
        flags: &Flags,
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let given = |flag: &Option<String>, variable: &str| {
            let set = |text: &String| !text.is_empty();
            flag.clone()
                .filter(set)
                .or_else(|| env(variable).filter(set))
        };
        let url = given(&flags.url, "PEERBUS_URL")
            .map(|url| Url::parse(&url))
            .transpose()?;
        let file = |variable: &str| given(&None, variable).map(PathBuf::from);
        let tls = TlsFiles {
            ca: flags.ca.clone().or_else(|| file("PEERBUS_CA")),
            cert: file("PEERBUS_CLIENT_CERT"),
            key: file("PEERBUS_CLIENT_KEY"),
        };
        if tls.cert.is_some() != tls.key.is_some() {
            let why = "only one of PEERBUS_CLIENT_CERT and PEERBUS_CLIENT_KEY is set: set both, or neither";
            return Err(ConfigError(why.into()));
        }
        let naming = match given(&flags.name, "PEERBUS_NAME") {
            Some(name) => Naming::Verbatim(parse_name(&name, &env)?),
            None => Naming::Generated,
        };
        let token = given(&None, "PEERBUS_TOKEN").map(|token| {
            Token::parse(&token).ok_or_else(|| {
                let found = token.len();
                ConfigError(format!(
                    "PEERBUS_TOKEN must be at most 512 bytes, got {found}"
                ))
            })
        });
        let token = token.transpose()?;
        let secret = secret(|variable| given(&None, variable))?;
        let senders = given(&None, "PEERBUS_FROM");
        let senders = senders.map(|text| senders_of(&text)).transpose()?;
        let paths = match Paths::find() {
            Err(_) if flags.credentials.is_some() || token.is_some() && secret.is_some() => None,
            paths => Some(paths?),
        };
        let sessions = paths.as_ref().map(|paths| Sessions::new(&paths.state_dir));
        let (usual, sockets) =
            paths.map_or_else(Default::default, |paths| (paths.credentials, paths.sockets));
        let credentials = flags.credentials.clone().unwrap_or(usual);
        Ok(Self {
            url,
            sockets,
            tls,
            naming,
            token,
            secret,
            senders,
            credentials,
            demand: Demand::None,
            ephemeral: false,
            window: Window {
                messages: WINDOW_MESSAGES_DEFAULT,
                bytes: WINDOW_BYTES_DEFAULT,
            },
            presence: None,
            groups: Vec::new(),
            sessions,
            session: Sessions::id(env),
        })
    }

    /// Refuses an address for which the token of the credentials file is not. A token is for one broker, and a
    /// project's settings can name any address: beyond this machine the token goes there only if the file names
    /// it, too.
    ///
    /// # Errors
    ///
    /// A sentence with, behind `; `, the remedy.
    pub fn check_place(&self, file: &Credentials) -> Result<(), String> {
        // Whose socket it is that anybody else dials is looked at then.
        let is_own = |path: &PathBuf| user::id() != 0 || !path.exists() || user::owns(path);
        match &self.url {
            None => Ok(()),
            Some(Url::Unix(path)) if is_own(path) => Ok(()),
            Some(url @ Url::Tcp { .. }) if url.is_local() => Ok(()),
            Some(_) if self.token.is_some() => Ok(()),
            Some(url) if file.url.as_ref() == Some(url) => Ok(()),
            Some(url) => Err(format!(
                "the token in {} is for that file's broker, and was not sent to {url}, which PEERBUS_URL or --url \
                 names; take that address away, or set PEERBUS_TOKEN to a token of the broker there",
                self.credentials.display()
            )),
        }
    }
}

/// Rules about senders, with spaces or commas between them.
fn senders_of(text: &str) -> Result<Senders, ConfigError> {
    let rules = text
        .split([' ', ',', '\n', '\t'])
        .filter(|rule| !rule.is_empty());
    Senders::parse(rules).map_err(|found| {
        ConfigError(format!(
            "PEERBUS_FROM has \"{}\", which is no rule: write PATTERN=allow, hold, refuse or drop, \
             such as \"alice=allow ci-*=hold *=refuse\"",
            escape(found, 80)
        ))
    })
}

fn secret(given: impl Fn(&str) -> Option<String>) -> Result<Option<Secret>, ConfigError> {
    let secret = |variable: &str| {
        let secret = given(variable).map(|text| Secret::new(text.as_bytes()));
        secret
            .transpose()
            .map_err(|error| ConfigError(format!("{variable} {error}")))
    };
    match (
        secret("PEERBUS_HMAC_SECRET")?,
        secret("PEERBUS_HMAC_SECRET_ALSO")?,
    ) {
        (Some(secret), Some(also)) => Ok(Some(secret.accepting(&also))),
        (secret, None) => Ok(secret),
        (None, Some(_)) => Err(ConfigError(
            "PEERBUS_HMAC_SECRET_ALSO is set without PEERBUS_HMAC_SECRET: set both, or put it into \
             the credentials file as `hmac_secret_also`"
                .into(),
        )),
    }
}

/// A name as it was given, with what stands in braces replaced.
fn parse_name(text: &str, env: &impl Fn(&str) -> Option<String>) -> Result<PeerName, ConfigError> {
    let shown = peerbus_wire::escape_name(text, 80);
    let unusable = |why: String| {
        ConfigError(format!(
            "the name \"{shown}\" (--name or PEERBUS_NAME) cannot be used: {why}"
        ))
    };
    let name = template::expand(text, env).map_err(unusable)?;
    let parse = |name: &str| PeerName::parse(name).map_err(|error| unusable(error.to_string()));
    match not_the_pages(parse(&name)?) {
        // A project is called so, and its user cannot know.
        Err(_) if name != text => parse(&format!("{name}-1")),
        taken => taken.map_err(|why| unusable(why.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(flags: &Flags, env: &[(&str, &str)]) -> Result<BusConfig, ConfigError> {
        BusConfig::resolve_with(flags, |variable| {
            let found = env.iter().find(|(name, _)| *name == variable);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn flags_come_before_the_environment() {
        let flags = Flags {
            url: Some("ws://flag:1".into()),
            ca: Some("/flag/ca".into()),
            name: Some("from-flag".into()),
            credentials: Some("/flag/file".into()),
        };
        let env = [
            ("PEERBUS_URL", "ws://env:1"),
            ("PEERBUS_NAME", "from-env"),
            ("PEERBUS_CA", "/env/ca"),
        ];
        let config = resolve(&flags, &env).unwrap();
        assert_eq!(config.url, Some(Url::parse("ws://flag:1").unwrap()));
        assert_eq!(
            config.naming,
            Naming::Verbatim(PeerName::parse("from-flag").unwrap())
        );
        assert_eq!(config.credentials, PathBuf::from("/flag/file"));
        assert_eq!(config.tls.ca, Some("/flag/ca".into()));

        let config = resolve(&Flags::default(), &env).unwrap();
        assert_eq!(config.url, Some(Url::parse("ws://env:1").unwrap()));
        assert_eq!(
            config.naming,
            Naming::Verbatim(PeerName::parse("from-env").unwrap())
        );

        assert_eq!(config.tls.ca, Some("/env/ca".into()));

        let config = resolve(&Flags::default(), &[("PEERBUS_NAME", "")]).unwrap();
        assert_eq!((config.url, config.naming), (None, Naming::Generated));
        assert!(config.token.is_none() && config.secret.is_none());
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        for (variable, value, says) in [
            (
                "PEERBUS_HMAC_SECRET",
                "hush-hu",
                "PEERBUS_HMAC_SECRET must be at least 32 bytes, got 7",
            ),
            (
                "PEERBUS_HMAC_SECRET_ALSO",
                "hush-hu",
                "PEERBUS_HMAC_SECRET_ALSO must be at least 32 bytes, got 7",
            ),
            (
                "PEERBUS_HMAC_SECRET_ALSO",
                "hush-hush-hush-hush-hush-hush-hush-hush",
                "PEERBUS_HMAC_SECRET_ALSO is set without PEERBUS_HMAC_SECRET: set both",
            ),
            (
                "PEERBUS_NAME",
                "a b",
                "the name \"a b\" (--name or PEERBUS_NAME) cannot be used: peer name",
            ),
            (
                "PEERBUS_CLIENT_CERT",
                "/cert",
                "only one of PEERBUS_CLIENT_CERT and",
            ),
            ("PEERBUS_CLIENT_KEY", "/key", "set both, or neither"),
            ("PEERBUS_NAME", "System", "peer name is reserved"),
            ("PEERBUS_NAME", "Dashboard", "kept for the dashboard's page"),
            ("PEERBUS_URL", "http://x", "broker URL \"http://x\""),
            (
                "PEERBUS_TOKEN",
                &"t".repeat(513),
                "PEERBUS_TOKEN must be at most 512 bytes, got 513",
            ),
        ] {
            let error = resolve(&Flags::default(), &[(variable, value)])
                .unwrap_err()
                .to_string();
            assert!(error.contains(says), "{error}");
            assert!(
                !error.contains("hush-hu") && !error.contains("ttt"),
                "{error}"
            );
        }
    }
}
