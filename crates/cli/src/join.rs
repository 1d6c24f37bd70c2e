//! `peerbus join`.

use std::io::IsTerminal as _;

use peerbus_adapter::credentials::joined;
use peerbus_adapter::invited::{InviteCode, NotLetIn, ask, invited_over_ssh};
use peerbus_adapter::paths::Paths;
use peerbus_adapter::{Failure, Token, Url, project};
use peerbus_wire::{JoinGrant, TokenName, escape};

use crate::args::{Connection, Join};
use crate::here::for_people;
use crate::session::all::{agreed, typed};
use crate::{client, output};

/// How long it may take to be there for the first time, in seconds.
const THERE_S: f64 = 20.0;
/// Longest name pattern of a broker that is repeated, in characters.
const NAME_CHARS: usize = 64;

pub(crate) fn run(verb: &Join) -> Result<(), Failure> {
    for_people("join this machine to a broker elsewhere")?;
    let on_terminal = std::io::stdin().is_terminal();
    if !on_terminal && !verb.yes {
        return Err(Failure::config(
            "this asks on a terminal before anything is written: say --yes where there is none",
        ));
    }
    let admission = admission(verb, on_terminal)?;
    let paths = Paths::find()?;
    for variable in ["PEERBUS_URL", "PEERBUS_TOKEN", "PEERBUS_HMAC_SECRET"] {
        if std::env::var_os(variable).is_some_and(|value| !value.is_empty()) {
            return Err(Failure::config(format!(
                "{variable} is set, and wins over what `peerbus join` writes: unset it"
            )));
        }
    }
    peerbus_setup::check_joinable()?;
    // The broker is told nothing before a person has agreed, and tells the HMAC secret to nobody else.
    let shown = plan(&paths, admission.url());
    match verb.yes {
        true => output::say(&shown),
        false => agreed(&shown, "Type yes to go on:")
            .map_err(|why| Failure::failed(format!("{why}: nothing was sent or written")))?,
    }
    let (code, token, grant) = let_in(admission)?;
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

/// Asks the broker, with a token of this machine's own.
fn let_in(admission: Admission) -> Result<(InviteCode, Token, JoinGrant), Failure> {
    let runtime = client::runtime()?;
    let code = match admission {
        Admission::Code(code) => code,
        Admission::Ssh(url, name) => {
            let code = runtime.block_on(invited_over_ssh(&url, &name));
            code.map_err(|why| Failure::failed(format!("{why}; nothing was written")))?
        }
    };
    let token = peerbus_setup::asking_token(&code.to_string())?;
    match runtime.block_on(ask(&code, &token)) {
        Ok(grant) => Ok((code, token, grant)),
        Err(NotLetIn::Refused(why)) => {
            peerbus_setup::not_let_in()?;
            Err(Failure::failed(format!("{why}; nothing was written")))
        }
        Err(NotLetIn::Unanswered(why)) => Err(Failure::failed(format!(
            "{why}; nothing was written, and the same command asks again"
        ))),
    }
}

/// By what this machine is let in.
enum Admission {
    Code(InviteCode),
    /// The login at the broker's machine, which invites it when that is asked, under this name.
    Ssh(Url, TokenName),
}

impl Admission {
    fn url(&self) -> &Url {
        match self {
            Self::Code(code) => &code.url,
            Self::Ssh(url, _) => url,
        }
    }
}

/// The code that is given, or is typed, or stands on stdin, where no other user sees it; or the login.
fn admission(verb: &Join, on_terminal: bool) -> Result<Admission, Failure> {
    let given = verb.code.as_deref().filter(|it| *it != "-");
    if let Some(place) = given.filter(|it| it.starts_with("ssh:")) {
        let name = verb.name.clone().or_else(project::host);
        let name = name.as_deref().and_then(TokenName::parse).ok_or_else(|| {
            Failure::config("say what this machine is to be called there, such as --name laptop")
        })?;
        return Ok(Admission::Ssh(Url::parse(place)?, name));
    }
    if verb.name.is_some() {
        return Err(Failure::config(
            "--name goes with ssh:USER@HOST: a code has its name from `peerbus invite NAME`",
        ));
    }
    Ok(Admission::Code(code(given, on_terminal)?))
}

fn code(given: Option<&str>, on_terminal: bool) -> Result<InviteCode, Failure> {
    if let Some(given) = given {
        return Ok(InviteCode::parse(given)?);
    }
    if on_terminal {
        output::wrapped("Paste the line that `peerbus invite` printed on the other machine:")?;
    }
    Ok(InviteCode::parse(&typed()?)?)
}

/// Says it before it is done: it may fail.
fn plan(paths: &Paths, url: &Url) -> String {
    let file = paths.credentials.display();
    let (what, own) = match paths.credentials.exists() {
        true => (
            "will get another",
            " What it holds now is kept, and the names and the mail at the broker of this machine wait there.",
        ),
        false => ("will be made, with a", ""),
    };
    format!(
        "{file} {what} token, HMAC secret and url ({}). Agents of this user join that broker from then on, and \
         whoever can write there can write to them.{own} `peerbus uninstall --join` puts all back.",
        url.written()
    )
}
