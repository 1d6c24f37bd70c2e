//! Who is here: peers and live sessions, for whoever reads it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use peerbus_adapter::demand::has_just_begun;
use peerbus_adapter::hooks::is_below_an_agent;
use peerbus_adapter::operator as answer;
use peerbus_adapter::paths::Paths;
use peerbus_adapter::{Bus, Failure, PeerEntry, Receipt, groups, wall_ms};
use peerbus_node::index::{self, LiveSession};
use peerbus_node::{SHOWS_HELD, SessionNow};
use peerbus_view::{
    ADAPTER_STOPPED, Around, Audience, FewPeers, PeerState, PeerView, depends_on_peers,
};
use peerbus_wire::{PeerName, escape};
use serde_json::{Value, json};

use crate::{operator, output};

/// Longest name, in characters.
const NAME_CHARS: usize = 64;
/// So many names of a list are looked up that nobody has now.
const OLD_NAMES_MAX: usize = 8;
/// How long it may take to ask who is there.
const PEERS_WAIT: Duration = Duration::from_secs(2);

/// Who reads what this process says: an agent that runs it is not the person whose agents these are.
pub(crate) fn audience() -> Audience {
    match is_below_an_agent() {
        true => Audience::Peer,
        false => Audience::Owner,
    }
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

/// A peer, for whoever reads it.
pub(crate) fn about(peer: &PeerEntry) -> PeerView {
    PeerView::new(peer, audience())
}

/// The order of each list of peers: sessions of this machine, others that are here, and those that are away, by name.
pub(crate) fn in_order(peers: &mut [PeerView]) {
    let away = |peer: &PeerView| peer.is == PeerState::Away;
    peers.sort_by_cached_key(|it| (!it.here, away(it), it.name.to_ascii_lowercase()));
}

/// The live sessions, with the gates as they are now.
pub(crate) fn sessions() -> Result<Vec<LiveSession>, Failure> {
    Ok(index::all(&Paths::find()?))
}

/// That a broker which says this of itself may not have all of these back whose program it knows; `None`: it has,
/// as far as is known.
pub(crate) fn may_come_back(
    broker: &str,
    mut peers: impl Iterator<Item = PeerView>,
) -> Option<&'static str> {
    let is_missing = |peer: PeerView| peer.is == PeerState::Away && peer.client.is_some();
    let some = has_just_begun(broker) && peers.any(is_missing);
    some.then_some("the broker has just started: not all peers may be back yet")
}

/// Whether a session on this machine is this peer's.
fn is_of(session: &LiveSession, peer: &PeerView) -> bool {
    session.is(&peer.name, peer.started.as_deref())
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
            let is_it = |peer: &&mut PeerView| is_of(&now.session, peer);
            if let Some(peer) = here.peers.iter_mut().find(is_it) {
                now.session.add_to(peer);
            }
        }
        in_order(&mut here.peers);
        here
    }

    /// Which sessions would have a name that another one has, and which one that is.
    pub(crate) fn nameless(&self) -> Vec<String> {
        let wants =
            |now: &SessionNow| Some((now.session.wanted_name.clone()?, now.session.place()));
        let all = self.sessions.iter().filter_map(|(now, _)| wants(now));
        all.filter_map(|(name, place)| {
            let is = |other: &str| other.eq_ignore_ascii_case(&name);
            let mut here = self.sessions.iter().map(|(now, _)| &now.session);
            let holder = here.find(|it| it.name.as_deref().is_some_and(is));
            let mut peers = self.peers.iter();
            // Its process is its own word elsewhere.
            let holder = match holder {
                Some(session) => session.place(),
                None if peers.any(|it| it.online && is(&it.name)) => "another session".into(),
                None => return None,
            };
            let name = escape(&name, NAME_CHARS);
            Some(format!(
                "two agents want the name {name}: {holder} has it, {place} waits for it"
            ))
        })
        .collect()
    }

    /// Sessions that no peer here tells of and that need their user: each with its state, and how he lets it go
    /// on. They are off the bus, at another broker, or stopped for longer than the broker waits for them.
    pub(crate) fn apart(&self) -> impl Iterator<Item = (String, String)> {
        let is_told = |now: &SessionNow| self.peers.iter().any(|peer| is_of(&now.session, peer));
        let apart = self.sessions.iter().map(|(now, _)| now);
        let apart = apart.filter(move |now| !is_told(now));
        // Beside peers that a broker tells of, each pause is said anyway.
        apart.filter_map(|now| Some((now.stands(), now.needs(self.peers.is_empty())?)))
    }

    /// How many requests each session was denied, since nobody decided, and what tells of them.
    pub(crate) fn denials(&self) -> impl Iterator<Item = (String, String)> {
        let sessions = self.sessions.iter();
        sessions.filter_map(|(now, _)| now.denials())
    }

    /// The peers in JSON, each with the command that lets it go on where its process is stopped.
    pub(crate) fn json(&self) -> Vec<Value> {
        let told = |peer| {
            let mut told = json!(peer);
            if let Some(goes_on) = self.goes_on(peer) {
                told["goes_on"] = goes_on.into();
            }
            told
        };
        self.peers.iter().map(told).collect()
    }

    /// How its user lets a peer go on.
    pub(crate) fn way_out(&self, peer: &PeerView) -> Option<String> {
        self.of_peer(peer)?.way_out()
    }

    /// Peers that wait for the user or are stopped, each with how he lets it go on.
    pub(crate) fn ways(&self) -> impl Iterator<Item = String> {
        let way = |peer: &PeerView| {
            let goes_on = self.way_out(peer).or_else(|| self.remedy(peer))?;
            Some(match peer.held {
                Some(_) => format!("{SHOWS_HELD}; {goes_on}"),
                None => goes_on,
            })
        };
        let ways = self.peers.iter();
        ways.filter_map(move |peer| Some(format!("{} {}: {}", peer.name, peer.does(), way(peer)?)))
    }

    /// The command that lets a peer go on whose process is stopped.
    pub(crate) fn goes_on(&self, peer: &PeerView) -> Option<String> {
        let session = self.of_peer(peer).map(|now| &now.session);
        let is_meant = matches!(peer.is, PeerState::Stuck | PeerState::Waits);
        session.filter(|_| is_meant)?.goes_on()
    }

    /// The same, or what he can do for one that is stuck; none where an agent asks.
    pub(crate) fn remedy(&self, peer: &PeerView) -> Option<String> {
        let is_his = peer.is == PeerState::Stuck && audience() == Audience::Owner;
        self.goes_on(peer).or_else(|| is_his.then(|| peer.look()))
    }

    fn of_peer(&self, peer: &PeerView) -> Option<&SessionNow> {
        let mut all = self.sessions.iter().map(|(now, _)| now);
        all.find(|now| is_of(&now.session, peer))
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

pub(crate) fn peers(socket: Option<&PathBuf>) -> Result<Vec<PeerEntry>, Failure> {
    let peers = answer::peers(operator::request(socket, "GET", "/v1/peers")?);
    let mut peers = peers.map_err(Failure::failed)?.0;
    index::look(&mut peers);
    Ok(peers)
}

/// The present name of the peer that is called so, which is said where it was renamed.
pub(crate) fn present(socket: Option<&PathBuf>, name: &PeerName) -> PeerName {
    names(socket, name).swap_remove(0)
}

/// The same, and its old names behind it: messages are shown under the names by which they went.
pub(crate) fn names(socket: Option<&PathBuf>, name: &PeerName) -> Vec<PeerName> {
    let names = said_if_old(socket, name.as_str()).unwrap_or_default();
    let mut names: Vec<_> = names
        .iter()
        .filter_map(|it| PeerName::parse(it).ok())
        .collect();
    if !names.iter().any(|it| it.key() == name.key()) {
        names.push(name.clone());
    }
    names
}

/// The names of the peer that is called so, likewise, or that of the group (`#shop`).
pub(crate) fn meant(socket: Option<&PathBuf>, with: &str) -> Result<Vec<String>, Failure> {
    if with.starts_with('#') {
        return Ok(vec![
            groups::read(with).map_err(Failure::config)?.to_string(),
        ]);
    }
    let name = PeerName::parse(with).map_err(Failure::config)?;
    Ok(names(socket, &name)
        .iter()
        .map(ToString::to_string)
        .collect())
}

/// The names of a peer, the present one first, which is said where the given one is an old one; `None`: nobody
/// has it.
fn said_if_old(socket: Option<&PathBuf>, name: &str) -> Option<Vec<String>> {
    let target = format!("/v1/names/{}", operator::encode_text(name));
    let answer = operator::request(socket, "GET", &target).ok()?.ok().ok()?;
    let answer: Value = serde_json::from_str(&answer).ok()?;
    let present = escape(answer["name"].as_str()?, NAME_CHARS);
    if !present.eq_ignore_ascii_case(name) {
        output::say(&old_name(name, &present));
    }
    let old = answer["old"].as_array().into_iter().flatten();
    let old = old.filter_map(Value::as_str).map(str::to_owned);
    Some(std::iter::once(present).chain(old).collect())
}

/// That a name is an old one of a peer.
pub(crate) fn old_name(old: &str, present: &str) -> String {
    format!("{old} is an old name of {present}")
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

/// Why nothing comes of mail for a peer as things are, and the way out, or that nothing wakes it; `None` where
/// it may take it.
pub(crate) async fn why_silent(bus: &Bus, name: &str) -> Option<String> {
    let mut entries = bus.peers(PEERS_WAIT).await.ok()?.entries;
    entries.retain(|peer| peer.name == name);
    index::look(&mut entries);
    let mut peer = about(entries.first()?);
    if audience() == Audience::Owner {
        let sessions = sessions().unwrap_or_default();
        let own = sessions.iter().find(|it| is_of(it, &peer));
        own.inspect(|session| session.add_to(&mut peer));
    }
    let Some(why) = peer.why_silent(audience()) else {
        return peer.asleep();
    };
    let mut ways = match peer.is {
        PeerState::Waits | PeerState::Stuck => ways_out(&entries, std::iter::once(name), &why),
        _ => Vec::new(),
    };
    if peer.held.is_some() || peer.paused.is_some() && ways.is_empty() {
        ways.insert(0, SHOWS_HELD.to_owned());
    }
    Some(match ways.is_empty() {
        true => why,
        false => format!("{why}: {}", ways.join("; ")),
    })
}

/// Where the user answers one that waits, and of which no session of this home tells.
pub(crate) fn answered_there(peer: &PeerView) -> Option<String> {
    let is_known = peer.here || peer.tty.is_some();
    if audience() == Audience::Peer || peer.is != PeerState::Waits || is_known {
        return None;
    }
    let process = peer.pid.map(|pid| format!(" (process {pid})"));
    Some(where_it_runs(&process.unwrap_or_default()))
}

fn where_it_runs(place: &str) -> String {
    format!(
        "answer it where it runs{place}, or with `peerbus session approve` in its own HOME, on its own machine"
    )
}

/// Of a peer that is no session of this home: where it runs, as far as it says so.
pub(crate) fn runs_elsewhere(name: &str) -> Option<String> {
    let peers = peers(None).ok()?;
    Some(elsewhere(&about(
        named(&peers, std::iter::once(name)).next()?,
    )))
}

/// Peers that wait for this user and are no sessions of this home, as a broker says that runs.
pub(crate) fn waits_elsewhere() -> Vec<String> {
    let answer = operator::sockets(None).and_then(|all| operator::over(&all, "GET", "/v1/peers"));
    let peers = answer.ok().and_then(|answer| answer::peers(answer).ok());
    let Some((peers, _)) = peers.filter(|_| audience() == Audience::Owner) else {
        return Vec::new();
    };
    let here = Here::of(peers.iter());
    let apart = here.peers.iter();
    let apart = apart.filter(|peer| peer.is == PeerState::Waits && !peer.here);
    let few = FewPeers::alarms(apart);
    let told = few.peers.iter().map(|peer| elsewhere(peer));
    told.chain(few.more()).collect()
}

fn elsewhere(peer: &PeerView) -> String {
    let name = &peer.name;
    if !peer.online {
        return format!("{name} is away, and no session of this HOME");
    }
    let process = peer.pid.map(|pid| format!("process {pid}"));
    let place = [&peer.client, &process, &peer.tty, &peer.project];
    let place: Vec<_> = place.into_iter().flatten().map(String::as_str).collect();
    let place = match place.is_empty() {
        true => String::new(),
        false => format!(" ({})", place.join(", ")),
    };
    let answer_there = where_it_runs("");
    let (does, way) = match (peer.is, audience()) {
        (PeerState::Waits, Audience::Owner) => (peer.state, &*answer_there),
        (PeerState::Waits, Audience::Peer) => (peer.state, REACHED_THERE),
        _ => ("is on the bus", REACHED_THERE),
    };
    format!("{name} {does}{place}, and is no session of this HOME: {way}")
}

/// How a session of another home is reached.
const REACHED_THERE: &str = "a session can be reached from its own HOME, on its own machine, alone";

/// How the user lets those sessions of the peers with these names go on that wait for him or are stopped; none
/// where an agent asks. That an adapter is, only where that is not `said`.
pub(crate) fn ways_out<'a>(
    peers: &[PeerEntry],
    names: impl Iterator<Item = &'a str>,
    said: &str,
) -> Vec<String> {
    let asked: Vec<_> = named(peers, names).map(about).collect();
    let mut meant = own(&asked);
    let is_here = |peer: &&PeerView| meant.iter().any(|session| is_of(session, peer));
    let apart = asked.iter().filter(|peer| !is_here(peer));
    let apart: Vec<_> = apart.filter_map(answered_there).collect();
    let stuck = meant.iter().filter(|it| it.state() == PeerState::Stuck);
    let mut ways: Vec<String> = stuck
        .filter_map(|it| {
            let name = escape(it.name.as_deref().unwrap_or_default(), NAME_CHARS);
            let mut why = format!("{name} is {}", it.word());
            if it.stopped {
                why = format!("{why}: {ADAPTER_STOPPED}");
            }
            let why = Some(why).filter(|why| !said.contains(&**why));
            let look = || Some(asked.iter().find(|peer| is_of(it, peer))?.look());
            match (why, it.goes_on().or_else(look)) {
                (Some(why), Some(how)) => Some(format!("{why}: {how}")),
                (why, how) => why.or(how),
            }
        })
        .collect();
    meant.retain(|session| session.state() == PeerState::Waits);
    let asked = SessionNow::all(meant).into_iter();
    ways.extend(asked.filter_map(|(now, _)| now.way_out()));
    ways.extend(apart);
    ways
}

/// The command that lets a session go on whose process is stopped; none where an agent asks.
pub(crate) fn goes_on(session: &LiveSession) -> Option<String> {
    let is_owner = audience() == Audience::Owner;
    is_owner.then(|| session.goes_on()).flatten()
}

/// The live sessions of these peers; none where an agent asks.
fn own(meant: &[PeerView]) -> Vec<LiveSession> {
    if meant.is_empty() || audience() == Audience::Peer {
        return Vec::new();
    }
    let mut own = sessions().unwrap_or_default();
    own.retain(|session| meant.iter().any(|peer| is_of(session, peer)));
    own
}

/// The peers with these names.
fn named<'a, 'p>(
    peers: &'p [PeerEntry],
    names: impl Iterator<Item = &'a str>,
) -> impl Iterator<Item = &'p PeerEntry> {
    let names: BTreeSet<String> = names.map(str::to_ascii_lowercase).collect();
    let all = peers.iter();
    all.filter(move |peer| names.contains(&peer.name.to_ascii_lowercase()))
}

/// Tools that sessions of the peers with these names were denied in turns with a message, of this id and sent
/// then, because nobody decided.
pub(crate) fn denied<'a>(
    peers: &[PeerEntry],
    names: impl Iterator<Item = &'a str>,
    (id, since_ms): (&str, u64),
) -> Vec<String> {
    let meant: Vec<_> = named(peers, names).map(about).collect();
    let asked = SessionNow::all(own(&meant)).into_iter();
    let denied = asked.flat_map(|(now, _)| now.denied(since_ms, Some(id)));
    denied.map(|denied| denied.says(wall_ms())).collect()
}

/// Says on stderr where those work that a list named, as far as the broker knows that, and which names are old.
pub(crate) fn say_where<'a>(
    names: impl Iterator<Item = &'a str>,
    peers: &[PeerEntry],
    socket: Option<&PathBuf>,
) {
    let mut names: BTreeSet<String> = names.map(str::to_ascii_lowercase).collect();
    let is = |name: &str| peers.iter().any(|it| it.name.eq_ignore_ascii_case(name));
    let gone = names.iter();
    let gone = gone.filter(|name| PeerName::parse(name).is_ok() && !is(name));
    let present = gone.take(OLD_NAMES_MAX);
    let present: Vec<_> = present
        .filter_map(|name| said_if_old(socket, name)?.into_iter().next())
        .collect();
    names.extend(present);
    let own = sessions().unwrap_or_default();
    for peer in named(peers, names.iter().map(String::as_str)) {
        let about = about(peer);
        let process = own.iter().find(|it| is_of(it, &about));
        let process = process.map(LiveSession::process);
        let branch = about.branch.map(|branch| format!("branch {branch}"));
        let place: Vec<_> = [about.project, branch, process]
            .into_iter()
            .flatten()
            .collect();
        if !place.is_empty() {
            output::say(&format!("{}: {}", about.name, place.join(", ")));
        }
    }
}
