//! `peerbus held`: mail that waits for you, since you said so of its sender.

use std::io::IsTerminal as _;

use peerbus_adapter::Failure;
use peerbus_adapter::credentials::SenderAllowance;
use peerbus_adapter::mailbox::quote;
use peerbus_adapter::paths::Paths;
use peerbus_node::SessionNow;
use peerbus_view::span;
use peerbus_wire::{PeerName, escape, names_id};
use serde_json::{Value, json};

use crate::args::{Held, HeldOne, HeldRelease, HeldVerb};
use crate::session;
use crate::session::all::{self, Silent, Waiting};
use crate::{here, output};

/// Longest name or id that is shown, in characters.
const CELL_CHARS: usize = 64;

pub(crate) fn run(verb: &Held) -> Result<(), Failure> {
    match &verb.verb {
        None | Some(HeldVerb::List) => list(verb.name.as_deref(), verb.json),
        Some(HeldVerb::Release(wanted)) => release(wanted, verb.json),
        Some(HeldVerb::Refuse(meant)) => {
            let (found, _) = find(meant)?;
            tell("session/refuse", (&found, &meant.which), verb.json)
        }
    }
}

fn list(name: Option<&str>, json: bool) -> Result<(), Failure> {
    let (mut found, silent) = waiting()?;
    let mut nothing = "no mail waits for you".to_owned();
    let name = name.map(|name| here::sessions().map(|all| session::present(&all, name)));
    let name = name.transpose()?;
    let name = name.as_deref();
    if let Some(name) = name {
        let is_from = |it: &Waiting| {
            let from = it.told["from"].as_str().unwrap_or_default();
            from.eq_ignore_ascii_case(name)
        };
        found.retain(|it| session::is_meant(&it.session, name) || is_from(it));
        nothing += &format!(" at {0} or from {0}", escape(name, CELL_CHARS));
    }
    let paused = paused(name)?;
    if json {
        let paused = paused.iter().flat_map(|now| {
            let (name, id) = (&now.session.name, &now.session.id);
            let why = now.paused.iter();
            why.map(move |why| json!({ "session": name, "session_id": id, "why": why }))
        });
        let paused: Vec<_> = paused.collect();
        output::json(&json!({ "held": all::told(&found), "paused": paused }))?;
        return silent.complete();
    }
    let done = all::show((&found, &silent), "held", json, &nothing, shown);
    if !found.is_empty() {
        output::say(
            "`peerbus held release DIGEST` gives the agent a message, and with --always all mail of \
             its sender from now on; `peerbus held refuse DIGEST` declines one",
        );
    }
    paused
        .iter()
        .filter_map(SessionNow::pause)
        .for_each(|says| output::say(&says));
    if !paused.is_empty() {
        output::say(
            "paused mail needs no word of yours; to have it now, tell the agent to read its mail",
        );
    }
    done
}

/// Sessions with mail that waits for nobody's word, at one that is called so or of it: the loop governor keeps it.
fn paused(name: Option<&str>) -> Result<Vec<SessionNow>, Failure> {
    let mut sessions = here::sessions()?;
    sessions.retain(|it| it.paused > 0);
    let all = SessionNow::all(sessions).into_iter().map(|(now, _)| now);
    let meant = all.map(|now| match name {
        Some(name) if !session::is_meant(&now.session, name) => now.of_sender(name),
        _ => now,
    });
    Ok(meant.filter(|now| !now.paused.is_empty()).collect())
}

/// A message for people: whole, since they decide by it.
fn shown(it: &Waiting) -> String {
    let word = |member: &str| escape(it.told[member].as_str().unwrap_or_default(), CELL_CHARS);
    let token = match &it.told["token"] {
        Value::String(token) => format!(" (token {})", escape(token, CELL_CHARS)),
        _ => String::new(),
    };
    let text = it.told["text"].as_str().unwrap_or_default();
    let (asks, text) = match quote::request(text) {
        Some((text, within_ms)) => {
            let within = span(within_ms / 1_000);
            (format!(", a request with {within} for it"), text)
        }
        None => (String::new(), text.into()),
    };
    format!(
        "{} from {}{token} to {}, sent {}{asks}, digest {}:\n{}",
        word("id"),
        word("from"),
        session::called(&it.session),
        word("sent_at"),
        word("digest"),
        output::indented(&text)
    )
}

fn release(verb: &HeldRelease, json: bool) -> Result<(), Failure> {
    if verb.always {
        here::for_people("change whose mail reaches an agent")?;
    }
    let (found, by_digest) = find(&verb.one)?;
    // There is one at least.
    let first = found.first().filter(|_| !by_digest);
    first.map_or(Ok(()), |first| agreed(first, json))?;
    let rule = match found.first().filter(|_| verb.always) {
        Some(first) => Some(allowance(first, json)?),
        None => None,
    };
    let told = tell("session/release", (&found, &verb.one.which), json);
    let Some(rule) = rule else {
        return told;
    };
    rule.write()
        .map_err(|error| Failure::config(error.to_string()))?;
    told?;
    match json {
        true => output::json(&json!({ "rule": rule.to_string() })),
        false => output::wrapped(&format!(
            "{rule} is written: sessions read it within a minute"
        )),
    }
}

/// The rule that lets in all mail of a message's sender. It is shown, and the person at a terminal asked.
fn allowance(it: &Waiting, json: bool) -> Result<SenderAllowance, Failure> {
    let from = it.told["from"].as_str().unwrap_or_default();
    let from = PeerName::parse(from).map_err(|error| Failure::failed(error.to_string()))?;
    let file = Paths::find()?.credentials;
    let rule = SenderAllowance::of(&file, from.clone())
        .map_err(|error| Failure::failed(error.to_string()))?;
    let shown = format!(
        "--always writes {rule}, before the other rules: mail of whoever is called {from} reaches your \
         agents then"
    );
    if json || !std::io::stdin().is_terminal() {
        output::say(&shown);
    } else {
        all::agreed(
            &shown,
            "write that rule, and let the agent have the message? Type yes:",
        )?;
    }
    Ok(rule)
}

/// The message that is meant, in each session in which it waits; and whether its whole digest names it.
fn find(meant: &HeldOne) -> Result<(Vec<Waiting>, bool), Failure> {
    let (mut found, silent) = waiting()?;
    // By a whole digest a text is known; a part of one can be had for another text, too.
    let by_digest = found.iter().any(|it| it.told["digest"] == meant.which);
    found.retain(|it| {
        let word = |member: &str| it.told[member].as_str().unwrap_or_default();
        let of = |name: &String| name.eq_ignore_ascii_case(word("from"));
        let is_named = |member| names_id(&meant.which, word(member));
        let is = match by_digest {
            true => word("digest") == meant.which,
            false => is_named("digest") || is_named("id"),
        };
        is && meant.from.as_ref().is_none_or(of)
    });
    let which = escape(&meant.which, CELL_CHARS);
    let Some(first) = found.first() else {
        silent.complain();
        return Err(Failure::failed(match silent.0.len() {
            0 => format!("no message {which} waits for you: `peerbus held` lists those that do"),
            _ => format!(
                "no message {which} waits for you where that is known: not every session answered"
            ),
        }));
    };
    // What calls itself a session may repeat another one's digest with another text.
    let same = |it: &Waiting| it.told == first.told;
    if !found.iter().all(same) {
        let word = |it: &Waiting, member: &str| {
            escape(it.told[member].as_str().unwrap_or_default(), CELL_CHARS)
        };
        let one = |it| {
            format!(
                "{} ({} of {})",
                word(it, "digest"),
                word(it, "id"),
                word(it, "from")
            )
        };
        let all: Vec<_> = found.iter().map(one).collect();
        return Err(Failure::config(format!(
            "several messages go by {which}: say which by its digest: {}",
            all.join(", ")
        )));
    }
    Ok((found, by_digest))
}

/// Tells the sessions in which it waits what is decided. A broadcast waits in each, and all of them are told,
/// whoever reads of it.
fn tell(method: &str, (found, which): (&[Waiting], &str), json: bool) -> Result<(), Failure> {
    let which = escape(which, CELL_CHARS);
    let mut written = Ok(());
    for it in found {
        let mut client = session::open(&it.session)?;
        let message = &it.told;
        let params =
            json!({ "id": message["id"], "from": message["from"], "digest": message["digest"] });
        let answer = client
            .call(method, &params)
            .map_err(crate::session::refused)?;
        if json {
            written = written.and(output::json(&answer));
            continue;
        }
        let to = it.session.name.as_ref().unwrap_or(&it.session.id);
        let what = match answer["released"].as_bool() {
            Some(true) => "the agent gets it",
            _ => "its sender is told that you declined it",
        };
        let line = format!("{which} in {}: {what}", escape(to, CELL_CHARS));
        written = written.and(output::wrapped(&line));
    }
    written
}

/// An id says nothing of a text: another may have come under it since the list was read. A part of a digest
/// says little. So the text is shown, and the person asked; a program names the digest.
fn agreed(it: &Waiting, json: bool) -> Result<(), Failure> {
    if json || !std::io::stdin().is_terminal() {
        return Err(Failure::failed(
            "an id, or a part of a digest, does not say which text you saw: name the message by its \
             whole digest, with which `peerbus held` shows it",
        ));
    }
    all::agreed(&shown(it), "let the agent have it? Type yes:")
}

/// Mail that waits in all sessions, and those that did not say.
fn waiting() -> Result<(Vec<Waiting>, Silent), Failure> {
    all::waiting("held", |client| {
        match client.call("session/held", &json!({})) {
            // An older adapter's: it holds nothing.
            Err(why) if why.is_unknown() => Ok(json!({})),
            answer => answer.map_err(crate::session::refused),
        }
    })
}
