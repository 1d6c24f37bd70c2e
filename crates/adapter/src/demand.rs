//! A broker when one is needed: whether one may be started here, and how.

mod ask;
mod lock;
mod log;
mod mark;
mod start;

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use peerbus_os::user;

pub use self::ask::{ask, ask_over, came_to_be, has_just_begun, unadmitted};
pub(crate) use self::ask::{request, status_and_body};
pub use self::lock::{end_holder, holder, known_holder, turn, with_named};
pub use self::log::{LOG_BYTES_MAX, begin_log, open_log, turn_log};
pub use self::mark::{leave_mark, take_mark_away};
pub use self::start::{BEGINS, HELD, NOT_STARTED, READY, Starter, Tried};

use crate::error::ConfigError;
use crate::paths::Paths;

/// Whether a broker is started where none is found.
#[derive(Debug, Clone, Default)]
pub enum Demand {
    /// None is, and nobody wonders: one is meant that is not at this user's usual place, or this is
    /// a program that starts none.
    #[default]
    None,
    /// None is, for this reason.
    Never(Never),
    /// One is.
    Start(Arc<Starter>),
}

/// Why no broker is started at this user's usual place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Never {
    /// `PEERBUS_AUTOSTART=off`.
    #[error("PEERBUS_AUTOSTART=off keeps one from being started")]
    Off,
    /// `CI` is set, and nobody asked.
    #[error("none is started in CI unless PEERBUS_AUTOSTART=on asks for it")]
    Ci,
    /// This is root, in the place of another user.
    #[error("root starts none for another user (SUDO_UID, PKEXEC_UID or the owner of HOME)")]
    Root,
}

/// Which broker a command line means.
#[derive(Debug, Clone, Copy, Default)]
pub struct Meant<'a> {
    /// Its URL.
    pub url: Option<&'a str>,
    /// The credentials file for it.
    pub credentials: Option<&'a Path>,
}

/// What decides.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct Facts {
    /// What `PEERBUS_AUTOSTART` says.
    asked: Option<bool>,
    /// A URL, a token or credentials of their own: another broker than the usual one is meant.
    elsewhere: bool,
    /// The usual place depends on where this process stands.
    relative: bool,
    ci: bool,
    /// This is root, in the place of another user.
    foreign_root: bool,
}

/// What the facts come to: `Ok(true)` where a broker may be started.
fn decide(facts: Facts) -> Result<bool, Never> {
    match facts.asked {
        _ if facts.elsewhere || facts.relative => Ok(false),
        Some(false) => Err(Never::Off),
        _ if facts.foreign_root => Err(Never::Root),
        None if facts.ci => Err(Never::Ci),
        _ => Ok(true),
    }
}

impl Demand {
    /// Finds out with `env` in place of the environment. `meant` is what the command line says of
    /// which broker is meant; `who` is what may start one, for people: `` `peerbus send` ``. A `url` in the credentials is not looked at: it decides
    /// when it is read.
    ///
    /// # Errors
    ///
    /// When `PEERBUS_AUTOSTART` is neither `on` nor `off`.
    pub fn find(
        meant: Meant<'_>,
        who: &str,
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let Ok(paths) = Paths::find() else {
            return Ok(Self::None);
        };
        match decide(facts(meant, &paths, env)?) {
            Ok(true) => Ok(Self::Start(Arc::new(Starter::new(who, &paths)))),
            Ok(false) => Ok(Self::None),
            Err(never) => Ok(Self::Never(never)),
        }
    }

    /// What starts one, if anything does.
    #[must_use]
    pub fn starter(&self) -> Option<&Arc<Starter>> {
        match self {
            Self::Start(starter) => Some(starter),
            _ => None,
        }
    }
}

fn facts(
    meant: Meant<'_>,
    paths: &Paths,
    env: impl Fn(&str) -> Option<String>,
) -> Result<Facts, ConfigError> {
    let set = |name: &str| env(name).filter(|value| !value.is_empty());
    let asked = match set("PEERBUS_AUTOSTART").as_deref() {
        None => None,
        Some("on" | "1" | "yes" | "true") => Some(true),
        Some("off" | "0" | "no" | "false") => Some(false),
        Some(other) => {
            let shown = peerbus_wire::escape(other, 40);
            let why = format!("PEERBUS_AUTOSTART=\"{shown}\" is neither on nor off");
            return Err(ConfigError(why));
        }
    };
    Ok(Facts {
        asked,
        elsewhere: meant.url.is_some_and(|url| !url.is_empty())
            || set("PEERBUS_URL").is_some()
            || set("PEERBUS_TOKEN").is_some()
            || meant
                .credentials
                .is_some_and(|file| file != paths.credentials),
        relative: !paths.socket.is_absolute() || !paths.database.is_absolute(),
        ci: set("CI").is_some_and(|ci| !matches!(ci.as_str(), "false" | "0")),
        foreign_root: user::id() == 0 && {
            let by = ["SUDO_UID", "PKEXEC_UID"].map(set);
            let anothers = |home: String| Path::new(&home).exists() && !user::owns(home.as_ref());
            by.into_iter().flatten().any(|by| by != "0") || set("HOME").is_some_and(anothers)
        },
    })
}

/// Whether a broker that is started gets this variable of whoever starts it.
fn is_handed_on(variable: &OsStr) -> bool {
    let Some(name) = variable.to_str() else {
        return false;
    };
    matches!(
        name,
        "HOME" | "PATH" | "LANG" | "PEERBUS_LOG" | "PEERBUS_HISTORY"
    ) || ["XDG_", "LC_"].iter().any(|begin| name.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_is_started_at_the_usual_place_unless_something_says_otherwise() {
        let usual = Facts::default();
        assert_eq!(decide(usual), Ok(true));
        let elsewhere = Facts {
            elsewhere: true,
            ..usual
        };
        let relative = Facts {
            relative: true,
            ..usual
        };
        let ci = Facts { ci: true, ..usual };
        let root = Facts {
            foreign_root: true,
            ..usual
        };
        let asked = |facts, on| Facts {
            asked: Some(on),
            ..facts
        };
        for (facts, decided) in [
            (asked(usual, true), Ok(true)),
            (asked(usual, false), Err(Never::Off)),
            (elsewhere, Ok(false)),
            (asked(elsewhere, true), Ok(false)),
            (asked(elsewhere, false), Ok(false)),
            (asked(relative, true), Ok(false)),
            (ci, Err(Never::Ci)),
            (asked(ci, true), Ok(true)),
            (asked(ci, false), Err(Never::Off)),
            (root, Err(Never::Root)),
            (asked(root, true), Err(Never::Root)),
        ] {
            assert_eq!(decide(facts), decided, "{facts:?}");
        }
    }

    #[test]
    fn what_a_broker_gets_of_the_environment_is_named() {
        let handed_on = |name: &str| is_handed_on(OsStr::new(name));
        for name in [
            "HOME",
            "PATH",
            "XDG_STATE_HOME",
            "LANG",
            "LC_ALL",
            "PEERBUS_LOG",
            "PEERBUS_HISTORY",
        ] {
            assert!(handed_on(name), "{name}");
        }
        for name in [
            "ANTHROPIC_API_KEY",
            "PEERBUS_TOKEN",
            "PEERBUS_HMAC_SECRET",
            "SSH_AUTH_SOCK",
        ] {
            assert!(!handed_on(name), "{name}");
        }
    }
}
