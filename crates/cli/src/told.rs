//! Messages as the broker tells its operator of them, for a terminal.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chrono::{DateTime, Local};
use peerbus_adapter::hooks::is_below_an_agent;
use peerbus_adapter::operator as answer;
use peerbus_adapter::{
    Bus, BusError, Failure, PeerEntry, Receipt, Stage, credentials, paths::Paths, wall_ms,
};
use peerbus_node::SessionNow;
use peerbus_node::index::{self, LiveSession};
use peerbus_view::{
    ADAPTER_STOPPED, Around, Audience, MessagePage, MessageText, MessageView, PeerState, PeerView,
    Trail, depends_on_peers, reached, spoken,
};
use peerbus_wire::{Secret, escape, from_rfc3339, printable};
use unicode_width::UnicodeWidthStr as _;

use crate::{operator, output, table};

/// Longest name, or word of a stage, in a line.
const NAME_CHARS: usize = 64;
/// How long it may take to ask who is there.
const PEERS_WAIT: Duration = Duration::from_secs(2);
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

/// Refuses an agent, or what it runs, what is its user's to do: `what` says it after "an agent … may
/// not".
pub(crate) fn for_people(what: &str) -> Result<(), Failure> {
    if is_below_an_agent() {
        return Err(Failure::failed(format!(
            "an agent, or what it runs, may not {what}: a person does that, in a terminal of their own"
        )));
    }
    Ok(())
}

pub(crate) fn peers(socket: Option<&PathBuf>) -> Result<Vec<PeerEntry>, Failure> {
    let peers = answer::peers(operator::request(socket, "GET", "/v1/peers")?);
    let mut peers = peers.map_err(Failure::failed)?.0;
    index::look(&mut peers);
    Ok(peers)
}

/// What the peers say, where it matters for how far a message got.
pub(crate) async fn peers_of(bus: &Bus, id: &str, receipts: &[Receipt]) -> Vec<PeerEntry> {
    let entries = match depends_on_peers(id, receipts) {
        true => bus.peers(PEERS_WAIT).await.map(|peers| peers.entries),
        false => Ok(Vec::new()),
    };
    // Without them the rest is known all the same.
    let mut entries = entries.unwrap_or_default();
    index::look(&mut entries);
    entries
}

/// Why nothing comes of mail for a peer as things are, and the way out; `None` where it may take it.
pub(crate) async fn why_silent(bus: &Bus, name: &str) -> Option<String> {
    let mut entries = bus.peers(PEERS_WAIT).await.ok()?.entries;
    entries.retain(|peer| peer.name == name);
    index::look(&mut entries);
    let mut peer = about(entries.first()?);
    if audience() == Audience::Owner {
        let sessions = sessions().unwrap_or_default();
        let own = sessions.iter().find(|it| it.name.as_deref() == Some(name));
        own.inspect(|session| session.add_to(&mut peer));
    }
    let why = peer.why_silent(audience())?;
    let ways = match peer.is {
        PeerState::Waits => ways_out(std::iter::once(name)),
        PeerState::Stuck => Vec::new(),
        _ => vec!["`peerbus held` shows what is kept, and why".to_owned()],
    };
    Some(match ways.is_empty() {
        true => why,
        false => format!("{why}: {}", ways.join("; ")),
    })
}

/// Who reads what this process says: an agent that runs it is not the person whose agents these are.
pub(crate) fn audience() -> Audience {
    match is_below_an_agent() {
        true => Audience::Peer,
        false => Audience::Owner,
    }
}

/// A peer, for whoever reads it.
pub(crate) fn about(peer: &PeerEntry) -> PeerView {
    PeerView::new(peer, audience())
}

/// The live sessions, with the gates as they are now.
pub(crate) fn sessions() -> Result<Vec<LiveSession>, Failure> {
    Ok(index::all(&Paths::find()?))
}

/// Peers, and what the sessions on this machine tell their user, who is told nothing of it where an agent asks.
pub(crate) struct Here {
    pub(crate) peers: Vec<PeerView>,
    /// Each, and whether it gave no answer.
    pub(crate) sessions: Vec<(SessionNow, bool)>,
}

impl Here {
    pub(crate) fn of<'a>(peers: impl Iterator<Item = &'a PeerEntry>) -> Self {
        let sessions = match audience() {
            Audience::Owner => sessions().unwrap_or_default(),
            Audience::Peer => Vec::new(),
        };
        let mut entries: Vec<PeerEntry> = peers.cloned().collect();
        index::look(&mut entries);
        let mut here = Self {
            peers: entries.iter().map(about).collect(),
            sessions: SessionNow::all(sessions),
        };
        for (now, _) in &here.sessions {
            let is_it = |peer: &&mut PeerView| Some(&peer.name) == now.session.name.as_ref();
            if let Some(peer) = here.peers.iter_mut().find(is_it) {
                now.session.add_to(peer);
            }
        }
        here
    }

    /// How its user lets a peer go on.
    pub(crate) fn way_out(&self, peer: &PeerView) -> Option<String> {
        let mut all = self.sessions.iter().map(|(now, _)| now);
        all.find(|now| now.session.name.as_ref() == Some(&peer.name))?
            .way_out()
    }
}

/// What sentences are told by, now.
pub(crate) fn around(peers: &[PeerEntry]) -> Around<'_> {
    Around {
        now_ms: wall_ms(),
        peers,
        audience: audience(),
    }
}

/// How far a message is.
pub(crate) struct Far {
    pub(crate) receipts: Vec<Receipt>,
    /// What the one does that has it now.
    pub(crate) does: Option<PeerState>,
    pub(crate) trail: Trail,
}

impl Far {
    /// Asks the broker about the message `id`.
    pub(crate) async fn ask(bus: &Bus, id: &str, within: Duration) -> Result<Self, BusError> {
        let receipts = bus.statuses(&[id.to_owned()], within).await?;
        let peers = peers_of(bus, id, &receipts).await;
        let trail = Trail::among(id, &receipts, around(&peers));
        let mut far = Self {
            receipts,
            does: None,
            trail,
        };
        let mut peers = peers.iter();
        let peer = peers.find(|peer| Some(&*peer.name) == far.holder());
        far.does = peer.map(|peer| about(peer).is);
        Ok(far)
    }

    /// At whom it is now, where one has it.
    pub(crate) fn holder(&self) -> Option<&str> {
        self.last()?.to.as_deref()
    }

    /// The stage there.
    pub(crate) fn stage(&self) -> Option<&Stage> {
        self.last().map(|receipt| &receipt.stage)
    }

    fn last(&self) -> Option<&Receipt> {
        let mut each = reached(self.receipts.iter()).into_values();
        each.find(|receipt| !matches!(receipt.stage, Stage::Recalled { .. }))
    }

    /// The sentence, with the way out where who has it waits for the user.
    pub(crate) fn note(&self) -> String {
        let ways = ways_out(self.holder().into_iter());
        match ways.is_empty() || self.does != Some(PeerState::Waits) {
            true => self.trail.note.clone(),
            false => format!("{}: {}", self.trail.note, ways.join("; ")),
        }
    }
}

/// How the user lets those sessions go on, of these names, that wait for him or whose adapter is stopped; none
/// where an agent asks.
pub(crate) fn ways_out<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let names: BTreeSet<String> = names.map(str::to_ascii_lowercase).collect();
    if names.is_empty() || audience() == Audience::Peer {
        return Vec::new();
    }
    let is_meant = |session: &LiveSession| {
        let name = session.name.as_ref().map(|name| name.to_ascii_lowercase());
        name.is_some_and(|name| names.contains(&name))
    };
    let mut meant = sessions().unwrap_or_default();
    meant.retain(is_meant);
    let stopped = meant
        .iter()
        .filter(|it| it.state() == PeerState::Stuck && it.stopped);
    let stopped = stopped.map(|it| {
        let name = name(it.name.as_deref().unwrap_or_default());
        format!("{name} is {}: {ADAPTER_STOPPED}", it.word())
    });
    let mut ways: Vec<String> = stopped.collect();
    meant.retain(|session| session.state() == PeerState::Waits);
    let asked = SessionNow::all(meant).into_iter();
    ways.extend(asked.filter_map(|(now, _)| now.way_out()));
    ways
}

/// Says on stderr where those work that a list named, as far as the broker knows that.
pub(crate) fn say_where<'a>(names: impl Iterator<Item = &'a str>, peers: &[PeerEntry]) {
    let names: BTreeSet<String> = names.map(str::to_ascii_lowercase).collect();
    let named = |peer: &&PeerEntry| names.contains(&peer.name.to_ascii_lowercase());
    for peer in peers.iter().filter(named) {
        let about = about(peer);
        let branch = about.branch.map(|branch| format!("branch {branch}"));
        let pid = about.pid.map(|pid| format!("process {pid}"));
        let place: Vec<_> = [about.project, branch, pid].into_iter().flatten().collect();
        if !place.is_empty() {
            output::say(&format!("{}: {}", about.name, place.join(", ")));
        }
    }
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

/// A message: from whom, to whom, how far, and its text. `short`: as much of that as stands on a line.
pub(crate) fn line(message: &MessageView, secret: Option<&Secret>, short: bool) -> String {
    let said = message.content(secret);
    let (state, at) = (&message.state, time(message.at));
    let head = format!("{at} {} → {}  {state}", name(&message.from), name(&said.to));
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
        let columns = columns.unwrap_or(COLUMNS);
        let room = columns.saturating_sub(head.width() + 4).max(16);
        let said = table::cut(&escape(&said, SHORT_CHARS), room);
        return format!("{head}  {before}{said}{after}");
    }
    match columns {
        Some(columns) => {
            let said = format!("{before}{}{after}", printable(&said));
            table::wrap(&format!("{head} "), &said, columns).join("\n")
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
    use peerbus_view::MessageContent;
    use peerbus_wire::Envelope;
    use serde_json::value::RawValue;

    use super::*;

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
