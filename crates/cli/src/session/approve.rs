//! `peerbus session approve` and `deny`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal as _;
use std::sync::{Mutex, PoisonError};

use peerbus_adapter::{Failure, wall_ms};
use peerbus_node::SessionNow;
use peerbus_node::approvals::in_words;
use peerbus_node::index::LiveSession;
use peerbus_view::{PeerState, span};
use peerbus_wire::{escape, from_rfc3339};
use serde_json::{Value, json};

use super::all::{Silent, Waiting, agreed, show, waiting};
use super::asked::{asked, how_it_ended, on_a_line, resolved, word};
use super::{CELL_CHARS, ambiguous, called, meant_of, open, present, refused, text_or_stdin};
use crate::args::{SessionAnswer, SessionApprove, SessionDeny};
use crate::here::{self, sessions};
use crate::{output, told};

pub(super) fn allow(verb: &SessionApprove) -> Result<(), Failure> {
    let Some(found) = find(verb.which.as_deref(), verb.json)? else {
        return Ok(());
    };
    if let Some(how) = how_to_answer(&found) {
        if !verb.json {
            output::wrapped(&shown(&found))?;
        }
        return Err(Failure::failed(format!(
            "{} is a question, and yes is no answer to it: {how}",
            word(&found.told["request_id"])
        )));
    }
    let digest = found.told["digest"].clone();
    let decision = match verb.always {
        Some(_) => "allow_always",
        None => "allow",
    };
    let rule = verb.always.as_ref().filter(|rule| !rule.is_empty());
    let (rule, destination) = suggested(&found.told, rule);
    let input = verb.input.as_deref().map(instead).transpose()?;
    let question = match &input {
        Some(input) => &format!("allow it with {} in its place?", for_people(input)),
        None => "allow it?",
    };
    agree(&found, verb.which.as_deref(), verb.json, question)?;
    let params = json!({
        "decision": decision, "digest": digest, "rule": rule, "destination": destination,
        "updatedInput": input,
    });
    answer(&found, params, verb.json)
}

/// What a tool is to get.
fn instead(text: &str) -> Result<Value, Failure> {
    let input: Option<Value> = serde_json::from_str(&text_or_stdin(text)?).ok();
    let input = input.filter(Value::is_object);
    input.ok_or_else(|| {
        Failure::config("expected --input to be a JSON object, as the request has it as `input`")
    })
}

fn for_people(input: &Value) -> String {
    on_a_line(&input.to_string())
}

/// Shows what is about to be answered. A person at a terminal who named its session is asked once more.
fn agree(found: &Waiting, meant: Option<&str>, json: bool, question: &str) -> Result<(), Failure> {
    let id = word(&found.told["request_id"]);
    let meant = meant.unwrap_or_default();
    let asks = std::io::stdin().is_terminal() && !json;
    // A session can take the letters of another's request for its name, and wait until that is over.
    let looks_like_one = in_words(&format!("yes {meant}")).is_some_and(|(meant, _)| meant != id);
    if looks_like_one && !asks {
        let meant = escape(meant, CELL_CHARS);
        return Err(Failure::failed(format!(
            "no request {meant} is open. A session of that name asks {id}: name the request"
        )));
    }
    if meant != id && asks {
        agreed(&shown(found), &format!("{question} Type yes:"))?;
    } else if !json {
        // It was asked for by name: it is answered even if nobody reads this.
        let _unread = output::wrapped(&shown(found));
    }
    Ok(())
}

/// A rule that was named as it is shown: by its text, or with where it is kept.
fn suggested(request: &Value, named: Option<&String>) -> (Value, Value) {
    let rules = request["suggestions"].as_array().into_iter().flatten();
    let with_place = |rule: &&Value| {
        let words = (rule["rule"].as_str(), rule["destination"].as_str());
        let (Some(rule), Some(destination)) = words else {
            return false;
        };
        named.is_some_and(|named| *named == format!("{rule} in {destination}"))
    };
    match rules.clone().find(with_place) {
        Some(rule) => (rule["rule"].clone(), rule["destination"].clone()),
        None => (json!(named), Value::Null),
    }
}

pub(super) fn reply(verb: &SessionAnswer) -> Result<(), Failure> {
    let Some(found) = find(verb.which.as_deref(), verb.json)? else {
        return Ok(());
    };
    if let Some(how) = how_to_answer(&found).filter(|_| verb.answers.is_empty()) {
        output::wrapped(&shown(&found))?;
        output::say(&how);
        return Ok(());
    }
    if verb.answers.iter().any(|it| it == NUMBER) {
        return Err(Failure::config(format!(
            "{NUMBER} is no answer: say the number of one, as `peerbus session answer {}` lists them, or a text",
            word(&found.told["request_id"])
        )));
    }
    agree(&found, verb.which.as_deref(), verb.json, "answer it?")?;
    let digest = found.told["digest"].clone();
    let params = json!({ "decision": "allow", "digest": digest, "answers": verb.answers });
    answer(&found, params, verb.json)
}

/// Stands for the number of an answer in what is printed.
const NUMBER: &str = "NUMBER";

/// The command that answers a question; `None`: it is none.
fn how_to_answer(found: &Waiting) -> Option<String> {
    let questions = found.told["questions"].as_array()?.len();
    let id = word(&found.told["request_id"]);
    Some(format!(
        "`peerbus session answer {id}{}` answers it; a text stands in the place of a number",
        format!(" {NUMBER}").repeat(questions)
    ))
}

pub(super) fn deny(verb: &SessionDeny) -> Result<(), Failure> {
    let Some(found) = find(verb.which.as_deref(), verb.json)? else {
        return Ok(());
    };
    let params = json!({
        "decision": "deny", "message": verb.message, "interrupt": verb.interrupt,
    });
    answer(&found, params, verb.json)
}

fn answer(found: &Waiting, mut params: Value, json: bool) -> Result<(), Failure> {
    params["request_id"] = found.told["request_id"].clone();
    let answer = open(&found.session)?
        .call("session/approve", &params)
        .map_err(refused)?;
    if json {
        return output::json(&answer);
    }
    output::wrapped(&resolved(&answer))
}

/// The request that is meant. `None`: none is, and what is open was printed.
fn find(meant: Option<&str>, json: bool) -> Result<Option<Waiting>, Failure> {
    let more = Mutex::new(BTreeSet::new());
    let (mut requests, silent) = waiting("approvals", |client| {
        let told = client.call("session/status", &json!({})).map_err(refused)?;
        if told["unlisted"] == true {
            let name = told["name"].as_str().or(told["id"].as_str());
            let mut more = more.lock().unwrap_or_else(PoisonError::into_inner);
            more.extend(name.map(|name| escape(name, CELL_CHARS)));
        }
        Ok(told)
    })?;
    // Of what a client asks that tells nobody, only that it asks is known.
    let all = sessions()?;
    let asks = |session: &&LiveSession| {
        let mut all = requests.iter();
        all.any(|it| it.session.socket == session.socket)
    };
    let others = || all.iter().filter(|session| !asks(session));
    let dumb = others().filter(|session| session.state() == PeerState::Waits);
    let dumb: Vec<_> = dumb.cloned().collect();
    let mute: Vec<_> = others().filter(|it| !it.tells() && !it.stopped).collect();
    let broken: BTreeSet<_> = others().filter_map(LiveSession::broken_gates).collect();
    let Some(meant) = meant else {
        let apart = here::waits_elsewhere();
        let nothing = match (dumb.is_empty() && apart.is_empty(), mute.is_empty()) {
            (true, true) => "nothing is asked",
            (true, false) => "nothing is asked that is known here",
            (false, _) => "nothing is asked that can be answered here",
        };
        let done = show((&requests, &silent), "approvals", json, nothing, shown);
        if !json {
            let dumb = SessionNow::all(dumb);
            dumb.iter().for_each(|(it, _)| output::say(&asks_there(it)));
            apart.iter().for_each(|it| output::say(it));
            mute.iter().for_each(|it| output::say(&tells_nothing(it)));
            for name in more.into_inner().unwrap_or_default() {
                output::say(&format!(
                    "{name} asks more than is listed: answer the rest where it is asked"
                ));
            }
            broken.iter().for_each(|why| output::say(why));
            say_closed(&requests);
        }
        return done.map(|()| None);
    };
    let id = meant.to_ascii_lowercase();
    if let Some(at) = of_id(&requests, &id)? {
        return Ok(Some(requests.swap_remove(at)));
    }
    if let Some(why) = over(&all, &id) {
        return Err(Failure::failed(why));
    }
    let meant = &*present(&all, meant);
    let named = meant_of(&all, meant);
    requests.retain(|found| named.iter().any(|it| it.socket == found.session.socket));
    if named.len() > 1 {
        return Err(ambiguous(&named));
    }
    if requests.len() > 1 {
        if !json {
            let mut all = requests.iter();
            all.try_for_each(|it| output::wrapped(&shown(it)))?;
        }
        let ids = requests.iter().map(|found| word(&found.told["request_id"]));
        let ids = ids.collect::<Vec<_>>().join(", ");
        let why = format!("several requests are open, name one of them: {ids}");
        return Err(Failure::config(why));
    }
    match requests.pop() {
        Some(found) => Ok(Some(found)),
        None => Err(Failure::failed(not_asked(meant, (&all, &silent), dumb))),
    }
}

/// That a request of these letters is not open any more, and why; or that it is answered where it is asked.
fn over(all: &[LiveSession], id: &str) -> Option<String> {
    in_words(&format!("yes {id}"))?;
    SessionNow::all(all.to_vec()).iter().find_map(|(now, _)| {
        let is_it = |over: &&Value| over["request_id"] == *id;
        let over = now.over.iter().find(is_it)?;
        let lapsed = now.lapsed().filter(is_it).and_then(|_| now.way_out());
        Some(match lapsed {
            Some(way) => format!("request {id} of {}: {way}", called(&now.session)),
            None => format!("request {id} is over: {}", how_it_ended(over)),
        })
    })
}

/// Why there is no request that is meant by this word.
fn not_asked(
    meant: &str,
    (all, silent): (&[LiveSession], &Silent),
    dumb: Vec<LiveSession>,
) -> String {
    let word = escape(meant, CELL_CHARS);
    let is_silent = |session: &LiveSession| {
        let mut silent = silent.0.iter();
        silent.any(|(it, _)| it.socket == session.socket)
    };
    let named = meant_of(all, meant);
    let is_it = |session: &LiveSession| {
        let is_named = named.iter().any(|it| it.socket == session.socket);
        is_named && !is_silent(session)
    };
    if named.is_empty()
        && let Some(there) = here::runs_elsewhere(meant)
    {
        return there;
    }
    let found = all.iter().find(|it| is_it(it));
    if found.is_none() && !silent.0.is_empty() {
        silent.complain();
        return format!("no request {word} was found, and not every session answered");
    }
    let dumb = dumb.into_iter().filter(is_it);
    if let Some((now, _)) = SessionNow::all(dumb.collect()).first() {
        return asks_there(now);
    }
    match found {
        Some(session) if !session.tells() => tells_nothing(session),
        Some(session) => format!(
            "{} asks nothing now: {}; `peerbus status {word}` shows more",
            called(session),
            session.word()
        ),
        None => format!(
            "no request {word} is open, and none in a session of that id or name: \
             `peerbus session approve` shows what is"
        ),
    }
}

/// Which request has this id. Where a session repeats one of another's, neither is meant by it.
fn of_id(requests: &[Waiting], id: &str) -> Result<Option<usize>, Failure> {
    let is_it = |found: &Waiting| found.told["request_id"] == id;
    let all: Vec<_> = requests.iter().filter(|it| is_it(it)).collect();
    if all.len() > 1 {
        let names: Vec<_> = all.iter().map(|it| called(&it.session)).collect();
        return Err(Failure::config(format!(
            "{} each ask a request {}: name the session",
            names.join(" and "),
            escape(id, CELL_CHARS)
        )));
    }
    Ok(requests.iter().position(is_it))
}

/// That a session waits for its user, and cannot be answered from here.
fn asks_there(now: &SessionNow) -> String {
    let way = now.way_out().map(|way| format!(": {way}"));
    let name = called(&now.session);
    format!("{name} waits for you{}", way.unwrap_or_default())
}

/// That it cannot be known whether a session asks something.
fn tells_nothing(session: &LiveSession) -> String {
    let way = session.answered_at().map(|place| format!("; look {place}"));
    format!(
        "whether {} asks something is not known: its client tells nothing of its dialogs{}",
        called(session),
        way.unwrap_or_default()
    )
}

/// Names the sessions whose gate is closed to answers, and the files that open it.
fn say_closed(requests: &[Waiting]) {
    let closed = requests.iter().map(|it| &it.session);
    let mut files = BTreeMap::<_, BTreeSet<_>>::new();
    for session in closed.filter(|session| !session.gates.approve) {
        let names = files.entry(session.opens()).or_default();
        names.insert(called(session));
    }
    for (opens, names) in files {
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        output::say(&format!(
            "the gate `approve` is closed for {names}, so nothing there is answered from here: {opens}"
        ));
    }
}

/// A request with its session, for people: all of it.
fn shown(found: &Waiting) -> String {
    let session = &found.session;
    let name = session.title();
    let until = found.told["until"].as_str().and_then(from_rfc3339);
    let until = until.map_or_else(String::new, |at_ms| {
        format!("\n    {}", ends(session, at_ms))
    });
    let first = session.first().map(|first| format!("\n    {first}"));
    let (asked, first) = (asked(&found.told), first.unwrap_or_default());
    format!("{name} asks: {asked}{first}{until}")
}

/// The end that a request comes to at this time, for people.
fn ends(session: &LiveSession, at_ms: u64) -> String {
    let at = told::time(at_ms);
    match (session.gates.approve, session.windowless) {
        (true, _) => format!("it can be answered here until {at}"),
        (false, false) => format!("it can be answered here until {at}, once the gate is open"),
        (false, true) => {
            let left = span(at_ms.saturating_sub(wall_ms()).div_ceil(1_000));
            let peers: Vec<_> = session
                .gates
                .remote
                .iter()
                .map(|it| format!(", or by {it}"))
                .collect();
            format!(
                "it is denied in {left}, unless it is answered before: here once the gate is open{}",
                peers.concat()
            )
        }
    }
}
