//! `peerbus requests`.

use peerbus_adapter::{Failure, wall_ms};
use peerbus_view::{MessageText, MessageView, Step, span, spoken};
use peerbus_wire::{PeerName, Secret, escape, names_id, short_id};

use crate::args::{Cancel, Requests, RequestsVerb};
use crate::table::{self, Column};
use crate::{here, operator, output, told};

/// Longest beginning of a text, in characters.
const TEXT_CHARS: usize = 60;

pub(crate) fn run(verb: &Requests) -> Result<(), Failure> {
    if let Some(RequestsVerb::Cancel(cancel)) = &verb.verb {
        return take_back(cancel);
    }
    let done = verb.done;
    let socket = verb.shown.socket.as_ref();
    let secret = told::secret(verb.shown.credentials.as_deref());
    let secret = secret.as_ref();
    let which = verb.which.as_deref();
    let name = which.and_then(|which| Some(here::present(socket, &PeerName::parse(which).ok()?)));
    let words = which.into_iter().chain(name.as_ref().map(PeerName::as_str));
    let words: Vec<_> = words.collect();
    let is_meant = |message: &MessageView| {
        words.is_empty() || words.iter().any(|word| is_meant(message, word))
    };
    let (all, more) = match done {
        true => {
            let ended = |message: &MessageView| message.end().is_some() && is_meant(message);
            let (mut all, more) = told::newest(socket, "", verb.limit, Some(&ended))?;
            all.sort_by_key(ended_at);
            (all, more)
        }
        false => {
            let mut page = told::requests(socket, &here::peers(socket)?)?;
            page.messages.retain(is_meant);
            (page.messages, page.before.is_some())
        }
    };
    let mut rows = Vec::new();
    for message in &all {
        let result = done.then(|| told::result(socket, message, secret));
        let result = result.transpose()?.flatten();
        if verb.shown.json {
            let mut told = message.json(secret);
            match result {
                Some(result) => told["result"] = result.json(secret),
                None if done => {}
                None => told["request"] = serde_json::json!(message.request),
            }
            output::json(&told)?;
            continue;
        }
        let (peer, state, at_ms) = match &message.request {
            Some(request) => (request.owes(), request.state.clone(), message.at),
            None => ended(message, result.map(|result| text(&result, secret))),
        };
        rows.push([
            told::name(short_id(&message.id)),
            told::name(&message.from),
            peer,
            state,
            span(wall_ms().saturating_sub(at_ms) / 1_000),
            text(message, secret),
        ]);
    }
    match (verb.shown.json, all.len()) {
        (true, _) => {}
        (false, 0) => output::wrapped(&none(words.last().copied(), done))?,
        (false, _) => table::write(&columns(done), rows, verb.wide)?,
    }
    match (more, done) {
        (true, true) if !verb.shown.json && !all.is_empty() => output::say(&format!(
            "these are the {} newest; --limit N shows more",
            all.len()
        )),
        (true, false) => output::say(
            "not all open requests were looked at: there are too many; `peerbus status ID` shows one",
        ),
        _ => {}
    }
    Ok(())
}

/// That there is none of these.
fn none(which: Option<&str>, done: bool) -> String {
    let of = which.map(|it| format!(" is from or for {}, or has that id", told::name(it)));
    let of = of.unwrap_or_else(|| " is known".into());
    match done {
        true => format!("no request that has ended{of}"),
        false => {
            format!("no open request{of}; `peerbus requests --done` shows those that ended")
        }
    }
}

/// Asker, holder and state: `OWES` is a number, in the lists of peers.
const fn columns(done: bool) -> [Column; 6] {
    let (state, at) = match done {
        true => (Column::whole("END"), Column::ranked(1, "AGO")),
        false => (table::STATE, Column::ranked(1, "SINCE")),
    };
    [
        Column::whole("ID"),
        Column::ranked(3, "FROM"),
        Column::names("PEER"),
        state,
        at,
        Column::ranked(2, "QUESTION"),
    ]
}

/// Whether a request has this id, or a part of it, or is from or for this peer.
fn is_meant(message: &MessageView, which: &str) -> bool {
    let is = |name: &str| name.eq_ignore_ascii_case(which);
    let request = message.request.as_ref();
    let holds = request.is_some_and(|it| is(&it.to) || it.holder.as_deref().is_some_and(is));
    let ended = message.end().and_then(|end| end.to.as_deref());
    names_id(which, &message.id) || is(&message.from) || holds || ended.is_some_and(is)
}

/// Who had a request that ended, what came of it, and when.
fn ended(message: &MessageView, result: Option<String>) -> (String, String, u64) {
    let end = message.end();
    let to = end.and_then(|end| end.to.clone()).unwrap_or_default();
    let word = end.map_or("", |end| &end.state);
    let said = result.or_else(|| end?.reason.clone());
    let said = said.map_or_else(String::new, |said| format!(": {said}"));
    (to, word.to_owned() + &said, ended_at(message))
}

/// When a request ended; when it was sent, where that is not known.
fn ended_at(message: &MessageView) -> u64 {
    message.end().and_then(Step::at_ms).unwrap_or(message.at)
}

fn take_back(verb: &Cancel) -> Result<(), Failure> {
    here::for_people("take back what others asked")?;
    let socket = verb.socket.as_ref();
    let id = operator::encode_text(&verb.id);
    let page = told::ask(socket, &format!("/v1/requests?id={id}"))?;
    let is_from = |message: &&MessageView| {
        let from = verb.name.as_ref();
        from.is_none_or(|from| message.from.eq_ignore_ascii_case(from))
    };
    // An id that somebody chose to read like a part of another one does not hide that.
    let found: Vec<_> = page.messages.iter().filter(is_from).collect();
    let given = escape(&verb.id, 128);
    let named = |it: &&MessageView| format!("{} of {}", told::name(&it.id), told::name(&it.from));
    let why = match found[..] {
        [one] => {
            let target = format!("/requests/withdraw?seq={}", one.seq);
            operator::ask(socket, "POST", &target)?;
            let holder = one.request.as_ref().and_then(|it| it.holder.as_deref());
            let told = holder.map_or("nobody had it".into(), |holder| {
                format!("{} owes it no more", told::name(holder))
            });
            return output::wrapped(&format!("taken back {}: {told}", named(&one)));
        }
        [] => format!(
            "no open request has the id {given}, or one that begins or ends so: `peerbus requests` \
             shows those that are open"
        ),
        _ => format!(
            "{given} may be each of these: {}; give more of the id, or --name FROM",
            found.iter().map(named).collect::<Vec<_>>().join(", ")
        ),
    };
    Err(Failure::failed(why))
}

/// The beginning of what a message says, if that is its sender's.
pub(crate) fn text(message: &MessageView, secret: Option<&Secret>) -> String {
    match message.content(secret).text {
        MessageText::Signed(body) => escape(&spoken(&body), TEXT_CHARS),
        MessageText::Hidden(why) => format!("(not shown: {why})"),
    }
}
