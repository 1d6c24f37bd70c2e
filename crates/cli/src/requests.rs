//! `peerbus requests`.

use std::path::PathBuf;

use peerbus_adapter::{Failure, wall_ms};
use peerbus_view::{MessageText, MessageView, RequestView, span, spoken};
use peerbus_wire::{PeerName, Secret, escape, names_id, short_id};

use crate::args::{Cancel, Requests, RequestsVerb};
use crate::table::{self, Column};
use crate::{operator, output, told};

/// Longest beginning of a text, in characters.
const TEXT_CHARS: usize = 60;

pub(crate) fn run(verb: &Requests) -> Result<(), Failure> {
    match &verb.verb {
        Some(RequestsVerb::Cancel(cancel)) => take_back(cancel),
        None if verb.done => ended(verb),
        None => open(verb),
    }
}

/// Those that have no result, the oldest first.
fn open(verb: &Requests) -> Result<(), Failure> {
    let secret = told::secret(verb.shown.credentials.as_deref());
    let page = told::ask(verb.shown.socket.as_ref(), "/v1/requests")?;
    let all = page.messages;
    if verb.shown.json {
        return all.iter().try_for_each(|message| {
            let mut told = message.json(secret.as_ref());
            told["request"] = serde_json::json!(message.request);
            output::json(&told)
        });
    }
    if all.is_empty() {
        return output::line("no open requests; `peerbus requests --done` shows those that ended");
    }
    let rows = all.iter().map(|message| {
        let request = message.request.as_ref();
        [
            told::name(short_id(&message.id)),
            told::name(&message.from),
            request.map_or_else(String::new, RequestView::owes),
            request.map_or_else(String::new, |request| request.state.clone()),
            age(message.at),
            text(message, secret.as_ref()),
        ]
    });
    let columns = [
        Column::whole("ID"),
        Column::ranked(3, "FROM"),
        Column::whole("OWES"),
        Column::whole("STATE"),
        Column::ranked(1, "SINCE"),
        Column::ranked(2, "QUESTION"),
    ];
    table::write(&columns, rows, verb.wide)?;
    if page.before.is_some() {
        output::say("these are the oldest; there are more");
    }
    Ok(())
}

/// Those that ended, the newest last, with what came of them.
fn ended(verb: &Requests) -> Result<(), Failure> {
    let socket = verb.shown.socket.as_ref();
    let secret = told::secret(verb.shown.credentials.as_deref());
    let is_meant = |message: &MessageView| message.end().is_some();
    let (mut all, more) = told::newest(socket, "", verb.limit, Some(&is_meant))?;
    all.reverse();
    if verb.shown.json {
        return all.iter().try_for_each(|message| {
            let mut told = message.json(secret.as_ref());
            if let Some(result) = told::result(socket, message, secret.as_ref())? {
                told["result"] = result.json(secret.as_ref());
            }
            output::json(&told)
        });
    }
    if all.is_empty() {
        return output::line("no request has ended that is known any more");
    }
    let mut rows = Vec::new();
    for message in &all {
        let end = message.end();
        let result = told::result(socket, message, secret.as_ref())?;
        let what = match (&result, end) {
            (Some(result), Some(end)) => {
                let said = text(result, secret.as_ref());
                format!("{}: {said}", end.state)
            }
            (None, Some(end)) => match &end.reason {
                Some(why) => format!("{}: {why}", end.state),
                None => end.state.to_string(),
            },
            (_, None) => String::new(),
        };
        rows.push([
            told::name(short_id(&message.id)),
            told::name(&message.from),
            end.and_then(|end| end.to.clone()).unwrap_or_default(),
            what,
            age(end.and_then(|end| end.at_ms()).unwrap_or(message.at)),
            text(message, secret.as_ref()),
        ]);
    }
    let columns = [
        Column::whole("ID"),
        Column::ranked(4, "FROM"),
        Column::whole("PEER"),
        Column::ranked(1, "END"),
        Column::ranked(2, "AGO"),
        Column::ranked(3, "QUESTION"),
    ];
    table::write(&columns, rows, verb.wide)?;
    if more {
        output::say(&format!(
            "these are the newest {}; --limit N shows more",
            all.len()
        ));
    }
    Ok(())
}

fn take_back(verb: &Cancel) -> Result<(), Failure> {
    told::for_people("take back what others asked")?;
    let socket: Option<&PathBuf> = verb.socket.as_ref();
    let from = verb.name.as_deref().map(PeerName::parse).transpose();
    let from = from.map_err(Failure::config)?;
    let page = told::ask(socket, "/v1/requests")?;
    let is_from = |message: &&MessageView| {
        let sent = PeerName::parse(&message.from);
        from.as_ref()
            .is_none_or(|from| sent.is_ok_and(|sent| sent.key() == from.key()))
    };
    let meant = |exact: bool| -> Vec<&MessageView> {
        let is = |message: &&MessageView| match exact {
            true => message.id == verb.id,
            false => names_id(&verb.id, &message.id),
        };
        page.messages.iter().filter(is).filter(is_from).collect()
    };
    let exact = meant(true);
    let found = if exact.is_empty() {
        meant(false)
    } else {
        exact
    };
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
            output::line(&format!("taken back {}: {told}", told::name(&one.id)))
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

fn age(at_ms: u64) -> String {
    span(wall_ms().saturating_sub(at_ms) / 1_000)
}

/// The beginning of what a message says, if that is its sender's.
fn text(message: &MessageView, secret: Option<&Secret>) -> String {
    match message.content(secret).text {
        MessageText::Signed(body) => escape(&spoken(&body), TEXT_CHARS),
        MessageText::Hidden(why) => format!("(not shown: {why})"),
    }
}
