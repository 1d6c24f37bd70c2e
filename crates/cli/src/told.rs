//! Messages as the broker tells its operator of them, for a terminal.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use chrono::{DateTime, Local};
use peerbus_adapter::hooks::is_below_an_agent;
use peerbus_adapter::operator as answer;
use peerbus_adapter::{Failure, PeerEntry, credentials, paths::Paths};
use peerbus_view::{MessagePage, MessageText, MessageView, spoken};
use peerbus_wire::{Secret, escape, from_rfc3339, printable};
use unicode_width::UnicodeWidthStr as _;

use crate::here::audience;
use crate::wrap::{cut, fold, wrap};
use crate::{operator, output};

/// Longest name, or word of a stage, in a line.
const NAME_CHARS: usize = 64;
/// Messages that are asked for at a time.
const PAGE: usize = 200;
/// Columns of a short line where no terminal has any, and characters of a text that are looked at for one.
const COLUMNS: usize = 80;
const SHORT_CHARS: usize = 2_000;

/// The user's secret, to check signatures with; `None` when there is none.
pub(crate) fn secret(file: Option<&Path>) -> Option<Secret> {
    let env = |name: &str| std::env::var(name).ok().filter(|secret| !secret.is_empty());
    let given = |name: &str| Secret::new(env(name)?.as_bytes()).ok();
    let secret =
        given("PEERBUS_HMAC_SECRET").map(|secret| match given("PEERBUS_HMAC_SECRET_ALSO") {
            Some(also) => secret.accepting(&also),
            None => secret,
        });
    match (file, Paths::find()) {
        (Some(file), _) => credentials::secret_of(secret, file),
        (None, Ok(paths)) => credentials::secret_of(secret, &paths.credentials),
        (None, Err(_)) => secret,
    }
}

pub(crate) fn ask(socket: Option<&PathBuf>, target: &str) -> Result<MessagePage, Failure> {
    let page = answer::messages(operator::request(socket, "GET", &audience().reads(target))?);
    let mut page = page.map_err(Failure::failed)?;
    // Its session may keep texts from it.
    if is_below_an_agent() {
        page.messages.iter_mut().for_each(MessageView::keep_unshown);
    }
    Ok(page)
}

/// Requests that have no result. These peers tell of stopped sessions, of which a new broker has heard nothing.
pub(crate) fn requests(
    socket: Option<&PathBuf>,
    peers: &[PeerEntry],
) -> Result<MessagePage, Failure> {
    let mut page = ask(socket, "/v1/requests")?;
    let requests = page.messages.iter_mut();
    requests.for_each(|message| message.tell_stopped(peers, audience()));
    Ok(page)
}

/// The message that is the result of a request: the one of its id that answers this request, and whose
/// signature says so.
pub(crate) fn result(
    socket: Option<&PathBuf>,
    request: &MessageView,
    secret: Option<&Secret>,
) -> Result<Option<MessageView>, Failure> {
    let end = request.end();
    let Some((end, reply)) = end.and_then(|end| Some((end, end.reply.as_deref()?))) else {
        return Ok(None);
    };
    let id = operator::encode_text(reply);
    let page = ask(socket, &format!("/v1/messages/{id}"))?;
    let answers = |message: &MessageView| {
        let talk = message.content(secret).talk;
        talk.reply_to.is_some_and(|id| id.as_str() == request.id)
    };
    let (mut own, mut all) = page.messages.into_iter().partition::<Vec<_>, _>(answers);
    // Its holder's, where others use the id; a name that has changed since is another one.
    own.sort_by_key(|message| Some(&message.from) == end.to.as_ref());
    // One whose text is not shown says nothing of itself.
    Ok(own.pop().or_else(|| all.pop().filter(|_| all.is_empty())))
}

/// The newest messages that are meant by a query (`&with=…`) and a filter, newest first; and whether
/// there may be more than `limit`.
pub(crate) fn newest(
    socket: Option<&PathBuf>,
    query: &str,
    limit: usize,
    filter: Option<&dyn Fn(&MessageView) -> bool>,
) -> Result<(Vec<MessageView>, bool), Failure> {
    let mut found: Vec<MessageView> = Vec::new();
    let mut before = String::new();
    let mut more = true;
    while more && found.len() < limit {
        let page = match filter {
            Some(_) => PAGE,
            None => PAGE.min(limit - found.len()),
        };
        let page = ask(socket, &format!("/v1/messages?limit={page}{query}{before}"))?;
        let is_meant = |message: &MessageView| filter.is_none_or(|filter| filter(message));
        found.extend(page.messages.into_iter().filter(is_meant));
        more = page.before.is_some();
        before = page.before.map_or(before, |next| format!("&before={next}"));
    }
    more |= found.len() > limit;
    found.truncate(limit);
    Ok((found, more))
}

/// The newest with any of these names, and what waits for the first; likewise. Without one, of all. A peer that
/// was renamed is owed what was sent to a name that is another's by now.
pub(crate) fn newest_with(
    socket: Option<&PathBuf>,
    (names, query): (&[String], &str),
    limit: usize,
    filter: Option<&dyn Fn(&MessageView) -> bool>,
) -> Result<Vec<MessageView>, Failure> {
    if names.is_empty() {
        return Ok(newest(socket, query, limit, filter)?.0);
    }
    let mut all = BTreeMap::new();
    let owed = names.first().filter(|name| !name.starts_with('#'));
    let with = names.iter().map(|name| ("with", name));
    for (member, name) in owed.map(|name| ("owed", name)).into_iter().chain(with) {
        let query = format!("&{member}={}{query}", operator::encode_text(name));
        let (found, _) = newest(socket, &query, limit, filter)?;
        all.extend(found.into_iter().map(|message| (message.seq, message)));
    }
    Ok(all.into_values().rev().take(limit).collect())
}

/// A message: from whom, to whom, how far, and its text. `short`: as much of that as stands on a line.
pub(crate) fn line(message: &MessageView, secret: Option<&Secret>, short: bool) -> String {
    let said = message.content(secret);
    let (state, at) = (&message.state, time(message.at));
    let (from, to) = (name(&message.from), whom(message, &said.to));
    let head = format!("{at} {from} → {to}  {state}");
    let line = with_text(&head, &said.text, short);
    match line.strip_prefix(&head) {
        Some(text) => format!(
            "{}{}{text}",
            &head[..head.len() - state.len()],
            output::marked(state)
        ),
        None => line,
    }
}

/// A line with a text: on a terminal on as many lines as it takes, in a pipe on one.
pub(crate) fn with_text(head: &str, text: &MessageText, short: bool) -> String {
    let (before, said, after) = match text {
        MessageText::Signed(body) => ("\"", spoken(body), "\""),
        MessageText::Hidden(why) => ("(", format!("not shown: {why}"), ")"),
    };
    let columns = output::columns();
    if short {
        let room = columns.unwrap_or(COLUMNS);
        let room = room.saturating_sub(head.width() + 4).max(16);
        let said = cut(&escape(&said, SHORT_CHARS), room);
        let line = format!("{head}  {before}{said}{after}");
        // Two long names are more than a line.
        return columns.map_or_else(|| line.clone(), |columns| fold(&line, columns));
    }
    match columns {
        Some(columns) => {
            let said = format!("{before}{}{after}", printable(&said));
            wrap(&format!("{head} "), &said, columns).join("\n")
        }
        None => format!("{head}  {before}{}{after}", escape(&said, usize::MAX)),
    }
}

/// A name that a peer gave.
pub(crate) fn name(name: &str) -> String {
    match name {
        "" => "?".into(),
        "*" => "all".into(),
        name => escape(name, NAME_CHARS),
    }
}

/// The one recipient of a message, where that has, or had, another name than stands in it: `to`.
pub(crate) fn went_to<'m>(message: &'m MessageView, to: &str) -> Option<&'m str> {
    let standing = message.standing();
    let is_one = standing.len() == 1 && !to.starts_with(['#', '*']);
    let (name, _) = standing.into_iter().next().filter(|_| is_one)?;
    // Its own domain may stand behind it.
    let bare = to.split('@').next().unwrap_or(to);
    (![to, bare].iter().any(|it| name.eq_ignore_ascii_case(it))).then_some(name)
}

/// The name to which a message was sent, and the one of its recipient where that is another.
pub(crate) fn whom(message: &MessageView, to: &str) -> String {
    match went_to(message, to) {
        Some(own) => format!("{} ({})", name(to), name(own)),
        None => name(to),
    }
}

/// A moment without the year, by the clock of who reads it.
pub(crate) fn time(at_ms: u64) -> String {
    local(at_ms, "%m-%d %H:%M:%S")
}

/// A moment that stands as RFC 3339 in UTC, likewise, with the year.
pub(crate) fn moment(at: &str) -> String {
    match from_rfc3339(at) {
        Some(at_ms) => local(at_ms, "%Y-%m-%d %H:%M:%S"),
        None => escape(at, NAME_CHARS),
    }
}

/// A moment by the clock of who reads it; where that is UTC, or not known, with a `Z`.
pub(crate) fn local(at_ms: u64, format: &str) -> String {
    let at = i64::try_from(at_ms).ok();
    let at = at
        .and_then(DateTime::from_timestamp_millis)
        .unwrap_or_default();
    let at = at.with_timezone(&Local);
    let zone = match at.offset().local_minus_utc() {
        0 => "Z",
        _ => "",
    };
    format!("{}{zone}", at.format(format))
}

#[cfg(test)]
mod tests {
    use peerbus_wire::Envelope;
    use serde_json::value::RawValue;

    use super::*;
    use peerbus_view::MessageContent;

    #[test]
    fn what_is_not_signed_is_not_shown_and_what_is_stays_on_its_line() {
        let secret = Secret::new(&[7; 32]).unwrap();
        let mut envelope = Envelope {
            protocol_version: "v1".into(),
            id: "m1".into(),
            from: "ada".into(),
            to: "bob".into(),
            kind: "msg".into(),
            body: r#""hi\n\u001b[2J payload""#.into(),
            ..Envelope::default()
        };
        envelope.hmac = secret.sign(&envelope.canonical().unwrap());
        let raw = |hmac: &str| {
            let body = String::from_utf8(envelope.body.clone()).unwrap();
            let text = format!(
                r#"{{"protocol_version":"v1","id":"m1","from":"ada","to":"bob","ts":"","source":"","kind":"msg","body":{body},"hmac":"{hmac}"}}"#
            );
            RawValue::from_string(text).unwrap()
        };
        let good = MessageContent::read(&raw(&envelope.hmac), "m1", Some(&secret));
        let line = with_text("head", &good.text, false);
        assert!(
            line.contains("payload") && !line.contains(char::is_control),
            "{line}"
        );
        for (hmac, id, secret) in [
            ("00", "m1", Some(&secret)),
            (envelope.hmac.as_str(), "m2", Some(&secret)),
            (envelope.hmac.as_str(), "m1", None),
        ] {
            let line = with_text(
                "head",
                &MessageContent::read(&raw(hmac), id, secret).text,
                false,
            );
            assert!(
                line.contains("not shown") && !line.contains("payload"),
                "{line}"
            );
        }
    }
}
