//! `peerbus requests`.

use std::path::PathBuf;

use peerbus_adapter::{Failure, wall_ms};
use peerbus_view::{MessageText, MessageView, RequestView, span, spoken};
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
    let socket = verb.shown.socket.as_ref();
    let secret = told::secret(verb.shown.credentials.as_deref());
    let secret = secret.as_ref();
    let (all, more, none) = match verb.done {
        true => {
            let is_meant = |message: &MessageView| message.end().is_some();
            let (mut all, more) = told::newest(socket, "", verb.limit, Some(&is_meant))?;
            all.reverse();
            (all, more, "no request has ended that is known any more")
        }
        false => {
            let page = told::ask(socket, "/v1/requests")?;
            let none = "no open requests; `peerbus requests --done` shows those that ended";
            (page.messages, page.before.is_some(), none)
        }
    };
    let mut rows = Vec::new();
    for message in &all {
        let result = told::result(socket, message, secret)?;
        if verb.shown.json {
            let mut told = message.json(secret);
            match (verb.done, result) {
                (true, Some(result)) => told["result"] = result.json(secret),
                (true, None) => {}
                (false, _) => told["request"] = serde_json::json!(message.request),
            }
            output::json(&told)?;
            continue;
        }
        let (peer, state, at_ms) = match verb.done {
            true => ended(message, result.map(|result| text(&result, secret))),
            false => open(message),
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
    let (columns, rest) = match verb.done {
        true => (["PEER", "END", "AGO"], "newest; --limit N shows more"),
        false => (["OWES", "STATE", "SINCE"], "oldest; there are more"),
    };
    match (verb.shown.json, all.len()) {
        (true, _) => return Ok(()),
        (false, 0) => return output::line(none),
        (false, _) => {}
    }
    let [peer, state, at] = columns;
    let columns = [
        Column::whole("ID"),
        Column::ranked(3, "FROM"),
        Column::whole(peer),
        Column::whole(state),
        Column::ranked(1, at),
        Column::ranked(2, "QUESTION"),
    ];
    table::write(&columns, rows, verb.wide)?;
    if more {
        output::say(&format!("these are the {} {rest}", all.len()));
    }
    Ok(())
}

/// Who owes a request, how far it is, and since when.
fn open(message: &MessageView) -> (String, String, u64) {
    let request = message.request.as_ref();
    (
        request.map_or_else(String::new, RequestView::owes),
        request.map_or_else(String::new, |request| request.state.clone()),
        message.at,
    )
}

/// Who had a request that ended, what came of it, and when.
fn ended(message: &MessageView, result: Option<String>) -> (String, String, u64) {
    let Some(end) = message.end() else {
        return (String::new(), String::new(), message.at);
    };
    let state = match result.or_else(|| end.reason.clone()) {
        Some(said) => format!("{}: {said}", end.state),
        None => end.state.to_string(),
    };
    let at_ms = end.at_ms().unwrap_or(message.at);
    (end.to.clone().unwrap_or_default(), state, at_ms)
}

fn take_back(verb: &Cancel) -> Result<(), Failure> {
    here::for_people("take back what others asked")?;
    let socket: Option<&PathBuf> = verb.socket.as_ref();
    let from = verb.name.as_deref().map(PeerName::parse).transpose();
    let from = from.map_err(Failure::config)?;
    let page = told::ask(socket, "/v1/requests")?;
    let is_from = |message: &&MessageView| {
        let sent = PeerName::parse(&message.from);
        from.as_ref()
            .is_none_or(|from| sent.is_ok_and(|sent| sent.key() == from.key()))
    };
    // An id that somebody chose to read like a part of another one does not hide that.
    let is = |it: &&MessageView| it.id == verb.id || names_id(&verb.id, &it.id);
    let found: Vec<_> = page.messages.iter().filter(is).filter(is_from).collect();
    let given = escape(&verb.id, 128);
    match found[..] {
        [] => Err(Failure::failed(format!(
            "no open request has the id {given}, or one that begins or ends so: `peerbus requests` \
             shows those that are open"
        ))),
        [one] => {
            let target = format!("/requests/withdraw?seq={}", one.seq);
            operator::ask(socket, "POST", &target)?;
            let holder = one.request.as_ref().and_then(|it| it.holder.as_deref());
            let told = match holder {
                Some(holder) => format!("{} is told that it is owed no more", told::name(holder)),
                None => "nobody had it".into(),
            };
            let (id, from) = (told::name(&one.id), told::name(&one.from));
            output::line(&format!("taken back {id} of {from}: {told}"))
        }
        _ => {
            let one =
                |it: &&MessageView| format!("{} of {}", told::name(&it.id), told::name(&it.from));
            let all: Vec<_> = found.iter().map(one).collect();
            Err(Failure::failed(format!(
                "{given} may be each of these: {}; give more of the id, or --name FROM",
                all.join(", ")
            )))
        }
    }
}

/// The beginning of what a message says, if that is its sender's.
pub(crate) fn text(message: &MessageView, secret: Option<&Secret>) -> String {
    match message.content(secret).text {
        MessageText::Signed(body) => escape(&spoken(&body), TEXT_CHARS),
        MessageText::Hidden(why) => format!("(not shown: {why})"),
    }
}
