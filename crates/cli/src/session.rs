//! `peerbus session`.

pub(crate) mod all;
mod approve;
mod asked;
mod event;
mod follow;
mod image;

use std::io::ErrorKind;
use std::time::Duration;

use peerbus_adapter::project::{self, Project};
use peerbus_adapter::{Failure, similar, wall_ms};
use peerbus_node::index::LiveSession;
use peerbus_node::{EventKind, NodeClient, NodeRefusal, which};
use peerbus_view::{ADAPTER_STOPPED, PeerState};
use peerbus_wire::{PeerName, escape, is_by_chance, short_id};
use serde_json::json;

use crate::args::{SessionInject, SessionNamed, SessionVerb, SessionWhich, Until};
use crate::here::sessions;
use crate::table::{self, Column};
use crate::{here, output, told};

/// Longest name, or text of a cell, and of a line of an event, in characters.
const CELL_CHARS: usize = 64;
const LINE_CHARS: usize = 2_000;
/// What this program calls itself.
const SOURCE: &str = "peerbus session inject";
/// How long a session may take to end.
const ENDS_WITHIN: Duration = Duration::from_secs(30);

pub(crate) fn run(verb: &SessionVerb) -> Result<(), Failure> {
    match verb {
        SessionVerb::List { name, wide, json } => list(name.as_deref(), *wide, *json),
        SessionVerb::Watch {
            session,
            partial,
            json,
        } => watch(session, *partial, *json),
        SessionVerb::Inject(verb) => inject(verb),
        SessionVerb::Interrupt(verb) => interrupt(verb),
        SessionVerb::Stop(verb) => stop(verb),
        SessionVerb::Approve(verb) => approve::allow(verb),
        SessionVerb::Answer(verb) => approve::reply(verb),
        SessionVerb::Deny(verb) => approve::deny(verb),
    }
}

fn list(name: Option<&str>, wide: bool, json: bool) -> Result<(), Failure> {
    let mut sessions = sessions()?;
    if let Some(meant) = name {
        let all = sessions.clone();
        let meant = &*present(&all, meant);
        sessions.retain(|session| is_meant(session, meant));
        if sessions.is_empty() && !all.is_empty() {
            return Err(unknown(&all, meant));
        }
    }
    // As in the list of peers.
    let is_away = |session: &LiveSession| session.state() == PeerState::Away;
    sessions.sort_by_cached_key(|it| (is_away(it), it.title().to_ascii_lowercase()));
    if json {
        let told = |session: &LiveSession| {
            let mut told = json!(session);
            let (project, branch) = place(session);
            (told["project"], told["branch"]) = (json!(project), json!(branch));
            told["state"] = json!(session.state().word(here::audience()));
            told
        };
        let told: Vec<_> = sessions.iter().map(told).collect();
        return output::json(&json!({ "sessions": told }));
    }
    if sessions.is_empty() {
        return output::line("no sessions");
    }
    let columns = [
        table::NAME,
        table::STATE,
        table::PROJECT,
        table::CLIENT,
        table::BRANCH,
        Column::ranked(4, "STARTED"),
        Column::ranked(5, "CWD"),
        Column::ranked(6, "ID"),
    ];
    table::write(&columns, sessions.iter().map(row), wide)
}

/// The project in which a session runs, and the branch that is checked out there now.
fn place(session: &LiveSession) -> (Option<String>, Option<String>) {
    let cwd = session.cwd.as_deref();
    let project = cwd.and_then(Project::at).map(|project| project.title);
    (project, cwd.and_then(project::branch))
}

/// A session by its name, or its id, and where it runs.
pub(crate) fn called(session: &LiveSession) -> String {
    let name = session.title();
    let (project, branch) = place(session);
    let place: Vec<_> = [project, branch].into_iter().flatten().collect();
    match place.is_empty() {
        true => name,
        false => format!("{name} ({})", escape(&place.join(", "), CELL_CHARS)),
    }
}

fn row(session: &LiveSession) -> [String; 8] {
    let (project, branch) = place(session);
    let cwd = session.cwd.as_ref().map(|cwd| cwd.display().to_string());
    let cell = |text: Option<&str>| escape(text.unwrap_or("-"), CELL_CHARS);
    let version = session.version.iter().map(|it| format!(" {it}"));
    let client = session.client.clone() + &version.collect::<String>();
    [
        // By this it is named.
        session.title(),
        session.does(wall_ms()),
        cell(project.as_deref()),
        cell(Some(&client)),
        cell(branch.as_deref()),
        told::moment(&session.started_at),
        cell(cwd.as_deref()),
        cell(Some(&session.id)),
    ]
}

fn connect(which: &SessionWhich) -> Result<NodeClient, Failure> {
    open(&find(which.id.as_deref(), which.latest)?)
}

/// A session by its name, where it has one, and its id.
fn named(session: &LiveSession) -> String {
    match session.name.as_ref().or(session.wanted_name.as_ref()) {
        Some(name) => {
            let id = escape(short_id(&session.id), CELL_CHARS);
            format!("{} ({id})", escape(name, CELL_CHARS))
        }
        None if is_by_chance(&session.id) => escape(&session.id, CELL_CHARS),
        None => session.node(),
    }
}

/// The session of this id or name; without one the one that was active last, which is to be the only one
/// unless `latest` says otherwise.
fn find(id: Option<&str>, latest: bool) -> Result<LiveSession, Failure> {
    let all = sessions()?;
    let session = match id {
        None if all.len() > 1 && !latest => {
            return Err(Failure::config(format!(
                "there are several sessions: name one of {}, or say --latest",
                ids(&all)
            )));
        }
        // Of those that were active at the same time the one that started last.
        None => all
            .iter()
            .max_by(|a, b| a.last_active().cmp(b.last_active()))
            .cloned(),
        Some(meant) => {
            let meant = &*present(&all, meant);
            match meant_of(&all, meant)[..] {
                [] => return Err(unknown(&all, meant)),
                [one] => Some(one.clone()),
                ref several => return Err(ambiguous(several)),
            }
        }
    };
    session.ok_or_else(none)
}

fn none() -> Failure {
    Failure::failed("there is no live session: one begins with an agent that has an adapter")
}

/// That a word means several sessions. One of them may have taken what another one is called.
fn ambiguous(several: &[&LiveSession]) -> Failure {
    let one = |it: &&LiveSession| format!("{} by {}", named(it), it.node());
    let several: Vec<_> = several.iter().map(one).collect();
    let several = several.join(", ");
    Failure::config(format!("several sessions are meant: name {several}"))
}

fn ids(sessions: &[LiveSession]) -> String {
    sessions.iter().map(named).collect::<Vec<_>>().join(", ")
}

/// That none of these sessions is meant.
fn unknown(all: &[LiveSession], meant: &str) -> Failure {
    if let Some(where_it_runs) = here::runs_elsewhere(meant) {
        return Failure::failed(where_it_runs);
    }
    if all.is_empty() {
        return none();
    }
    let names: Vec<_> = all.iter().map(|it| it.called().to_owned()).collect();
    let near = match similar(&names, meant) {
        near if near.is_empty() => String::new(),
        near => format!(". Did you mean {}?", near.join(" or ")),
    };
    let (meant, all) = (escape(meant, CELL_CHARS), ids(all));
    Failure::failed(format!(
        "no session has the id or the name {meant}; there are {all}{near}"
    ))
}

/// The word by which one of these sessions is meant: an old name of a peer becomes its present one.
pub(crate) fn present(all: &[LiveSession], meant: &str) -> String {
    let is_it = |session: &LiveSession| is_meant(session, meant) && !session.has_chosen(meant);
    let is_known = all.is_empty() || all.iter().any(is_it);
    let old = PeerName::parse(meant).ok().filter(|_| !is_known);
    let present = old.map(|old| here::present(None, &old).to_string());
    present.unwrap_or_else(|| meant.to_owned())
}

/// The sessions that a word means. An agent that takes a peer's name for the id of its session gets nothing of what
/// is that peer's, while this is away or elsewhere.
pub(crate) fn meant_of<'s>(all: &'s [LiveSession], word: &str) -> Vec<&'s LiveSession> {
    let mut found = which::meant(all, word);
    if let [one] = found[..]
        && one.has_chosen(word)
        && here::runs_elsewhere(word).is_some()
    {
        found.clear();
    }
    found
}

/// Whether a word can mean a session: for lists, which show several.
pub(crate) fn is_meant(session: &LiveSession, word: &str) -> bool {
    !which::meant(std::slice::from_ref(session), word).is_empty()
}

pub(crate) fn open(session: &LiveSession) -> Result<NodeClient, Failure> {
    if session.stopped {
        let name = called(session);
        let why = format!("the session {name} does not answer: {ADAPTER_STOPPED}");
        let goes_on = here::goes_on(session).map(|how| format!(": {how}"));
        return Err(Failure::failed(why + &goes_on.unwrap_or_default()));
    }
    NodeClient::connect(&session.socket).map_err(|error| {
        let socket = escape(&session.socket.display().to_string(), LINE_CHARS);
        Failure::failed(format!("cannot connect to {socket}: {error}"))
    })
}

/// Its sentence is the session's own.
pub(crate) fn refused(refusal: NodeRefusal) -> Failure {
    Failure::failed(escape(&String::from(refusal), LINE_CHARS))
}

fn watch(which: &SessionWhich, partial: bool, json: bool) -> Result<(), Failure> {
    let mut client = connect(which)?;
    let wanted = partial.then(|| {
        let told = |kind: &EventKind| kind.is_for_all() || *kind == EventKind::Partial;
        EventKind::ALL.into_iter().filter(told).collect::<Vec<_>>()
    });
    client
        .call("session/subscribe", &json!({ "events": wanted }))
        .map_err(refused)?;
    while let Some(event) = client
        .event()
        .map_err(|error| refused(NodeRefusal::Lost(error)))?
    {
        if json {
            output::json(&event)?;
        } else {
            output::wrapped(&event::text(&event))?;
        }
    }
    Ok(())
}

/// `-` stands for what stdin holds.
fn text_or_stdin(text: &str) -> Result<String, Failure> {
    match text {
        "-" => std::io::read_to_string(std::io::stdin())
            .map_err(|error| Failure::config(format!("cannot read the text: {error}"))),
        text => Ok(text.to_owned()),
    }
}

fn inject(verb: &SessionInject) -> Result<(), Failure> {
    let Some((id, text)) = verb.parts() else {
        let why = "--latest names the session: give the text alone";
        return Err(Failure::config(why));
    };
    let prompt = image::prompt(text_or_stdin(text)?, &verb.images)?;
    let session = find(id, verb.latest)?;
    let mut client = open(&session)?;
    if verb.wait.is_some() {
        client
            .call("session/subscribe", &json!({}))
            .map_err(refused)?;
    }
    let mode = if verb.interrupt {
        "interrupt"
    } else {
        "append"
    };
    let params = json!({ "prompt": prompt, "source": SOURCE, "mode": mode });
    let answer = client.call("session/inject", &params).map_err(refused)?;
    let id = answer["id"].as_str().unwrap_or_default();
    let is_one = verb.wait.is_some_and(|wait| wait.until == Until::Result);
    if verb.json && !is_one {
        output::json(&answer)?;
    } else if verb.wait.is_none() {
        let id = escape(id, CELL_CHARS);
        output::wrapped(&format!(
            "{id}: queued for {}, to be shown as another agent's words",
            named(&session)
        ))?;
    }
    follow::say_asleep(&session);
    let Some(wait) = verb.wait else {
        return Ok(());
    };
    output::patiently("waiting for the session's model", || {
        follow::follow(&mut client, &session, id, wait, verb.json)
    })
}

fn interrupt(verb: &SessionNamed) -> Result<(), Failure> {
    let mut client = connect(&verb.session)?;
    let params = json!({ "source": "peerbus session interrupt" });
    let answer = client.call("session/interrupt", &params).map_err(refused)?;
    if verb.json {
        return output::json(&answer);
    }
    output::line("the turn ends as soon as the session can end it")
}

fn stop(verb: &SessionNamed) -> Result<(), Failure> {
    let mut client = connect(&verb.session)?;
    client
        .call("session/subscribe", &json!({ "events": ["status"] }))
        .map_err(refused)?;
    let params = json!({ "source": "peerbus session stop" });
    let answer = match client.call("session/stop", &params) {
        // It was faster than its answer.
        Err(NodeRefusal::Lost(error)) if error.kind() == ErrorKind::UnexpectedEof => {
            json!({ "accepted": true })
        }
        answer => answer.map_err(refused)?,
    };
    client
        .set_patience(Some(ENDS_WITHIN))
        .map_err(|error| refused(NodeRefusal::Lost(error)))?;
    loop {
        match client.event() {
            Ok(Some(_)) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let seconds = ENDS_WITHIN.as_secs();
                let why = format!("the session was told to end, and has not in {seconds} s");
                return Err(Failure::failed(why));
            }
            // It is gone, in whatever way.
            Ok(None) | Err(_) => break,
        }
    }
    if verb.json {
        return output::json(&answer);
    }
    output::line("the session has ended")
}
