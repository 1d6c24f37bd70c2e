//! `peerbus join`.

use std::io::{IsTerminal as _, Read as _};

use peerbus_adapter::credentials::joined;
use peerbus_adapter::invited::{InviteCode, NotLetIn, ask};
use peerbus_adapter::paths::Paths;
use peerbus_adapter::{Failure, Url};
use peerbus_wire::escape;

use crate::args::{Connection, Join};
use crate::here::for_people;
use crate::session::all::agreed;
use crate::{client, output};

/// How long it may take to be there for the first time, in seconds.
const THERE_S: f64 = 20.0;
/// More than a code has.
const CODE_BYTES_MAX: u64 = 1_024;
/// Longest name pattern of a broker that is repeated, in characters.
const NAME_CHARS: usize = 64;

pub(crate) fn run(verb: &Join) -> Result<(), Failure> {
    for_people("join this machine to a broker elsewhere")?;
    let code = code(&verb.code)?;
    let paths = Paths::find()?;
    for variable in ["PEERBUS_URL", "PEERBUS_TOKEN", "PEERBUS_HMAC_SECRET"] {
        if std::env::var_os(variable).is_some_and(|value| !value.is_empty()) {
            return Err(Failure::config(format!(
                "{variable} is set, and wins over what `peerbus join` writes: unset it"
            )));
        }
    }
    peerbus_setup::check_joinable()?;
    let shown = plan(&paths, &code.url);
    match verb.yes {
        true => output::say(&shown),
        false => asked(&shown)?,
    }
    let token = peerbus_setup::asking_token(&code.to_string())?;
    let runtime = client::runtime()?;
    let grant = match runtime.block_on(ask(&code, &token)) {
        Ok(grant) => grant,
        Err(NotLetIn::Refused(why)) => {
            peerbus_setup::not_let_in()?;
            return Err(Failure::failed(format!("{why}; nothing was written")));
        }
        Err(NotLetIn::Unanswered(why)) => {
            return Err(Failure::failed(format!(
                "{why}; nothing was written, and the same command asks again"
            )));
        }
    };
    peerbus_setup::join(&paths.credentials, |text| {
        joined(text, &token, &grant.key, &code.url)
    })?;
    let names: Vec<_> = grant
        .names
        .iter()
        .map(|name| escape(name, NAME_CHARS))
        .collect();
    let file = paths.credentials.display();
    // By its first registration the invitation is used.
    let nothing = Connection {
        url: None,
        ca: None,
        credentials: None,
    };
    let there = client::config(&nothing, None).and_then(|config| client::peers(config, THERE_S));
    there.map_err(|why| {
        Failure::failed(format!(
            "{file} is written, and the broker there is not reached by it yet: {why}"
        ))
    })?;
    output::line(&format!(
        "joined the broker at {}: names here are {}",
        code.url,
        names.join(", ")
    ))?;
    output::say(
        "sessions that run keep their broker until they end; `peerbus peers` shows who is there, and \
         `peerbus uninstall --join` takes all of it back",
    );
    Ok(())
}

/// The code that is given, or stands on stdin, where no other user sees it.
fn code(given: &str) -> Result<InviteCode, Failure> {
    let text = match given {
        "-" => std::io::read_to_string(std::io::stdin().take(CODE_BYTES_MAX)),
        given => Ok(given.to_owned()),
    };
    Ok(InviteCode::parse(&text.map_err(Failure::failed)?)?)
}

/// Says it before it is written.
fn plan(paths: &Paths, url: &Url) -> String {
    let file = paths.credentials.display();
    let (what, own) = match paths.credentials.exists() {
        true => (
            "gets another",
            " What it holds now is kept, and the names and the mail at the broker of this machine wait there.",
        ),
        false => ("is made, with a", ""),
    };
    format!(
        "{file} {what} token, HMAC secret and url ({url}, with the certificate that the code names). Agents of \
         this user join that broker from then on, and whoever can write there can write to them.{own} `peerbus \
         uninstall --join` puts all back."
    )
}

/// Asks a person, who types it.
fn asked(shown: &str) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() {
        output::say(shown);
        return Err(Failure::config(
            "this asks on a terminal before it is written: say --yes where there is none",
        ));
    }
    agreed(shown, "Type yes to go on:")
        .map_err(|why| Failure::failed(format!("nothing was written: {why}")))
}
