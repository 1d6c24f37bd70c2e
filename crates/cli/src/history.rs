//! `peerbus history`.

use std::path::PathBuf;

use peerbus_adapter::{Failure, PeerEntry, wall_ms};
use peerbus_view::{MessageText, MessageView};
use peerbus_wire::GroupName;

use crate::args::{History, HistoryVerb};
use crate::told;
use crate::{here, operator, output, send};

pub(crate) fn run(verb: History) -> Result<(), Failure> {
    match &verb.verb {
        Some(HistoryVerb::Purge { socket }) => purge(socket.as_ref()),
        None => list(&verb),
    }
}

fn list(verb: &History) -> Result<(), Failure> {
    let secret = told::secret(verb.shown.credentials.as_deref());
    // The broker looks for the text, and checks no signature.
    let is_signed = |message: &MessageView| {
        let text = message.content(secret.as_ref()).text;
        matches!(text, MessageText::Signed(_))
    };
    let mut meant = String::new();
    let with = verb.name.as_ref().or(verb.with.as_ref());
    let names = with.map(|with| here::meant(verb.shown.socket.as_ref(), with));
    let names = names.transpose()?.unwrap_or_default();
    let present = names.first();
    if let Some(thread) = &verb.thread {
        meant += &format!("&thread={}", operator::encode_text(thread.as_str()));
    }
    if let Some(word) = &verb.grep {
        meant += &format!("&text={}", operator::encode_text(word));
    }
    if let Some(age) = verb.since {
        let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        meant += &format!("&since={}", wall_ms().saturating_sub(age_ms));
    }
    let is_meant = verb
        .grep
        .is_some()
        .then_some(&is_signed as &dyn Fn(&MessageView) -> bool);
    let meant = (&*names, &*meant);
    let found = told::newest_with(verb.shown.socket.as_ref(), meant, verb.limit, is_meant)?;
    // There may be others to a group that nobody is in any more.
    let others = |name: &str| name.starts_with('#') && !meant.1.is_empty();
    if let (true, Some(name)) = (found.is_empty(), &verb.name)
        && !others(name)
    {
        is_there(present.unwrap_or(name), verb.shown.socket.as_ref())?;
    }
    if found.is_empty() && !verb.shown.json {
        return output::line("no messages");
    }
    for message in found.iter().rev() {
        if verb.shown.json {
            output::json(&message.json(secret.as_ref()))?;
        } else {
            output::line(&told::line(message, secret.as_ref(), verb.short))?;
            if verb.ids {
                output::line(&format!("    {}", told::name(&message.id)))?;
            }
        }
    }
    if !verb.shown.json {
        // The history is there, whatever is known of who they are.
        let peers = here::peers(verb.shown.socket.as_ref()).unwrap_or_default();
        let is_here = |name: &str| peers.iter().any(|it| it.name.eq_ignore_ascii_case(name));
        let to = found.iter().flat_map(|it| {
            let to = it.content(None).to;
            let own = told::went_to(it, &to).map(str::to_owned);
            // Its present holder got nothing by it.
            let is_anothers = own.is_some() && is_here(&to);
            [own, Some(to).filter(|_| !is_anothers)]
        });
        let to: Vec<_> = to.flatten().collect();
        let from = found.iter().map(|it| it.from.as_str());
        let named = from.chain(to.iter().map(String::as_str));
        // Of the name that was asked for this was said above.
        let is_old = |name: &str| {
            let asked = with.is_some_and(|it| it.eq_ignore_ascii_case(name));
            let present = present.filter(|_| asked);
            present.is_some_and(|it| !it.eq_ignore_ascii_case(name))
        };
        let named = named.filter(|name| !is_old(name));
        here::say_where(named, &peers, verb.shown.socket.as_ref());
    }
    Ok(())
}

/// Fails where nobody has a name of which nothing is known.
pub(crate) fn is_there(name: &str, socket: Option<&PathBuf>) -> Result<(), Failure> {
    let peers = here::peers(socket)?;
    let is_it = |group: &GroupName| group.to_string().eq_ignore_ascii_case(name);
    let is =
        |peer: &PeerEntry| peer.name.eq_ignore_ascii_case(name) || peer.groups.iter().any(is_it);
    if peers.iter().any(is) {
        return Ok(());
    }
    if name.starts_with('#') {
        let group = told::name(name);
        return Err(Failure::failed(format!(
            "nobody here is in {group}, and no message to it is known; `peerbus peers` shows the groups"
        )));
    }
    let names: Vec<String> = peers.into_iter().map(|peer| peer.name).collect();
    let nobody = send::nobody(&told::name(name), &names);
    Err(Failure::failed(format!(
        "{nobody}; `peerbus status ID` shows a message"
    )))
}

fn purge(socket: Option<&PathBuf>) -> Result<(), Failure> {
    here::for_people("delete the history")?;
    operator::ask(socket, "POST", "/v1/history/purge")?;
    output::line(
        "what was read is deleted; ids of the last ten minutes stay that long, and what waits or \
         was rejected stays",
    )?;
    Ok(())
}
