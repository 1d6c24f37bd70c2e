//! `peerbus status` without a message: who waits for you, who is stuck, what is open; of all, or of one.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use peerbus_adapter::demand::came_to_be;
use peerbus_adapter::operator::{Events, Streamless};
use peerbus_adapter::{Failure, PeerEntry, wall_ms};
use peerbus_node::{Denial, SessionNow, index};
use peerbus_view::{FewPeers, MessageView, PeerState, PeerView, RequestView, span};
use peerbus_wire::{PeerName, Secret};
use serde_json::{Value, json};

use crate::args::Status;
use crate::here::{self, Here};
use crate::stop::starts_again;
use crate::table::{self, Column};
use crate::told;
use crate::{operator, output, peers, requests};

/// Moves to the beginning of a terminal, and empties it.
const CLEARS: &str = "\u{1b}[H\u{1b}[2J\u{1b}[3J";
/// Between two times that it is shown.
const PAUSE: Duration = Duration::from_millis(250);
/// A page stands so long at most: its ages are seconds.
const STANDS: Duration = Duration::from_secs(5);
/// Between two looks whether a session's process is stopped.
const LOOK: Duration = Duration::from_secs(1);
/// Open requests that are shown, and messages that wait for one peer.
const REQUESTS_MAX: usize = 10;
const UNSEEN_MAX: usize = 5;

/// What is known at one moment.
pub(crate) struct Overview {
    /// What the broker says of itself; of one peer it is not asked.
    broker: Option<String>,
    here: Here,
    requests: Vec<MessageView>,
    /// There are more open requests than the broker lists.
    more: bool,
    /// The newest of what waits for one peer, newest first.
    unseen: Vec<MessageView>,
    secret: Option<Secret>,
    /// That peers may not be back.
    begun: Option<&'static str>,
}

pub(crate) fn run(verb: &Status) -> Result<(), Failure> {
    let secret = || told::secret(verb.connection.credentials.as_deref());
    let socket = verb.socket.as_ref();
    let show = || {
        let now = Overview::ask(socket, secret()).inspect_err(|_| {
            let apart = Here::of(std::iter::empty());
            apart
                .apart()
                .for_each(|(says, way)| output::say(&format!("{says}: {way}")));
        })?;
        match verb.json {
            true => output::json(&now.json()),
            false => now.print(),
        }
    };
    if !verb.watch {
        return show();
    }
    let events = operator::stream(socket, None).map_err(|streamless| match streamless {
        Streamless::Gone => Failure::failed("the broker keeps no events"),
        Streamless::Refused(why) | Streamless::Away(why) => Failure::failed(why),
    })?;
    // However much happens, it is shown so often and no more.
    let (happened, news) = sync_channel(1);
    std::thread::spawn(move || tell(events, &happened));
    let is_page = std::io::stdout().is_terminal() && !verb.json;
    loop {
        if is_page {
            output::text(CLEARS)?;
        }
        let (drawn, stopped) = (Instant::now(), index::stopped());
        show()?;
        std::thread::sleep(PAUSE);
        // Of a process that is stopped nothing tells.
        let mut told = news.recv_timeout(LOOK);
        // Nor does anything tell that what stands there grows older.
        let stands = || !is_page || drawn.elapsed() + LOOK <= STANDS;
        while told == Err(RecvTimeoutError::Timeout) && index::stopped() == stopped && stands() {
            told = news.recv_timeout(LOOK);
        }
        if told == Err(RecvTimeoutError::Disconnected) {
            // To ask once more would start the next one.
            return Err(Failure::failed(format!(
                "the broker has ended, and what stands above was so before: {}",
                starts_again()?
            )));
        }
    }
}

/// Tells that something happened, until the broker ends. What happens before somebody looks is one thing.
fn tell(mut events: Events, happened: &SyncSender<()>) {
    while let Ok(event) = events.read() {
        if event.is_some() && happened.try_send(()) == Err(TrySendError::Disconnected(())) {
            return;
        }
    }
}

impl Overview {
    fn ask(socket: Option<&PathBuf>, secret: Option<Secret>) -> Result<Self, Failure> {
        let broker = operator::ask(socket, "GET", "/broker")?;
        let entries = here::peers(socket)?;
        let requests = told::requests(socket, &entries)?;
        let is_here = |peer: &&PeerEntry| here::about(peer).is_of_note();
        let all = entries.iter().map(here::about);
        Ok(Self {
            begun: here::may_come_back(&broker, all),
            broker: Some(broker),
            here: Here::of(entries.iter().filter(is_here)),
            more: requests.before.is_some(),
            requests: requests.messages,
            unseen: Vec::new(),
            secret,
        })
    }

    /// What is known of a peer, among these; `None`: nobody is called so.
    pub(crate) fn of(
        name: &PeerName,
        entries: &[PeerEntry],
        socket: Option<&PathBuf>,
        secret: Option<Secret>,
    ) -> Result<Option<Self>, Failure> {
        let is = |other: &str| name.as_str().eq_ignore_ascii_case(other);
        let Some(entry) = entries.iter().find(|entry| is(&entry.name)) else {
            return Ok(None);
        };
        let mut here = Here::of(std::iter::once(entry));
        here.sessions
            .retain(|(now, _)| now.session.name.as_deref().is_some_and(is));
        let page = told::requests(socket, entries)?;
        let (mut requests, more) = (page.messages, page.before.is_some());
        requests.retain(|it| {
            let request = it.request.as_ref();
            let holds = request.is_some_and(|it| is(it.holder.as_ref().unwrap_or(&it.to)));
            holds || is(&it.from)
        });
        let owed = format!("&owed={}", operator::encode_text(&entry.name));
        let broker = operator::ask(socket, "GET", "/broker")?;
        Ok(Some(Self {
            begun: here::may_come_back(&broker, std::iter::once(here::about(entry))),
            broker: None,
            here,
            requests,
            more,
            unseen: told::newest(socket, &owed, UNSEEN_MAX, None)?.0,
            secret,
        }))
    }

    pub(crate) fn print(&self) -> Result<(), Failure> {
        let broker = self.broker.as_deref().unwrap_or_default();
        if let Some(says) = came_to_be(broker) {
            let about: Value = serde_json::from_str(broker).unwrap_or_default();
            let process = about["pid"].as_u64();
            let process = process.map_or_else(String::new, |id| format!("process {id}, "));
            let started = about["started"].as_str().unwrap_or_default();
            output::wrapped(&match started.ends_with(&own_process()) {
                true => format!("broker: {process}started by this command, since none ran"),
                false => format!("broker: {process}{says}"),
            })?;
        }
        self.begun.map_or(Ok(()), output::wrapped)?;
        let alarms = FewPeers::alarms(&self.here.peers);
        self.print_alarms(&alarms, true)?;
        self.print_kept()?;
        self.print_alarms(&alarms, false)?;
        print_more(&alarms)?;
        let requests = self.requests.iter().take(REQUESTS_MAX);
        let requests: Vec<_> = requests.map(|it| self.request(it)).collect();
        requests.iter().try_for_each(|it| output::wrapped(it))?;
        self.print_denied(&requests)?;
        if let Some(more) = self.requests.len().checked_sub(REQUESTS_MAX + 1) {
            let more = output::plural(more as u64 + 1, "more request");
            output::wrapped(&format!("… and {more}: `peerbus requests`"))?;
        }
        if self.more {
            output::wrapped("… and requests that are not listed: there are too many")?;
        }
        self.print_unseen()?;
        if self.here.peers.is_empty() {
            return output::line("nobody is here");
        }
        let rows = FewPeers::rows(&self.here.peers);
        table::write(&COLUMNS, rows.peers.iter().map(|peer| row(peer)), false)?;
        print_more(&rows)
    }

    /// Peers that wait or are stuck, those of this machine or the others.
    fn print_alarms(&self, alarms: &FewPeers<'_>, here: bool) -> Result<(), Failure> {
        let is_there = |peer: &&PeerView| peer.here == here;
        for peer in self.here.peers.iter().filter(is_there) {
            // A client without a screen asks, too, while it works.
            let way = self.here.way_out(peer);
            let waits = peer.is == PeerState::Waits && alarms.has(peer);
            if way.is_none() && !waits {
                continue;
            }
            let way = way.or_else(|| here::answered_there(peer));
            let way = way.map_or_else(String::new, |way| format!(": {way}"));
            let place = peer.tty.as_ref().filter(|_| way.is_empty());
            let place = place.map_or_else(String::new, |tty| format!(" at {tty}"));
            output::wrapped(&format!("{} {}{place}{way}", peer.name, peer.does()))?;
        }
        for (says, way) in self.here.apart().filter(|_| here) {
            output::wrapped(&format!("{says}: {way}"))?;
        }
        let stuck = |peer: &&&PeerView| peer.is == PeerState::Stuck && is_there(peer);
        for peer in alarms.peers.iter().filter(stuck) {
            let tried = peer.tried.as_deref().unwrap_or("it does not say why");
            let goes_on = self.here.remedy(peer);
            let goes_on = goes_on.map_or_else(String::new, |how| format!(": {how}"));
            output::wrapped(&format!(
                "{} is {}: {tried}{goes_on}",
                peer.name,
                peer.does()
            ))?;
        }
        Ok(())
    }

    /// Sessions of this machine that give no answer, and mail that waits in one.
    fn print_kept(&self) -> Result<(), Failure> {
        let silent = |(now, silent): &&(SessionNow, bool)| *silent && !now.session.stopped;
        for (now, _) in self.here.sessions.iter().filter(silent) {
            output::wrapped(&format!(
                "{} gives no answer: its adapter is stopped or hangs",
                name(now)
            ))?;
        }
        let held: usize = self.here.peers.iter().filter_map(|peer| peer.held).sum();
        if held > 0 {
            let held = output::plural(held as u64, "message");
            output::wrapped(&format!("held for you: {held}: `peerbus held`"))?;
        }
        let paused = self.here.sessions.iter().filter_map(|(now, _)| now.pause());
        let mut paused = paused.collect::<Vec<_>>().into_iter();
        paused.try_for_each(|says| output::wrapped(&says))
    }

    /// Denials of one peer, in turns with a message or without, beside those that are `said`; of all peers how
    /// many.
    fn print_denied(&self, said: &[String]) -> Result<(), Failure> {
        for (says, way) in self.here.denials().filter(|_| self.broker.is_some()) {
            output::wrapped(&format!("{says}: {way}"))?;
        }
        let of_one = self.here.sessions.iter().filter(|_| self.broker.is_none());
        let denied = of_one.flat_map(|(now, _)| now.denied(0, None));
        let is_said = |denied: &Denial| said.iter().any(|it| it.contains(&denied.what));
        for denied in denied.filter(|denied| !is_said(denied)) {
            output::wrapped(&denied.says(wall_ms()))?;
        }
        Ok(())
    }

    /// Mail that one peer has not seen. Requests are among it, which are shown already.
    fn print_unseen(&self) -> Result<(), Failure> {
        let is_shown = |message: &&MessageView| {
            let mut shown = self.requests.iter().take(REQUESTS_MAX);
            shown.any(|request| request.seq == message.seq)
        };
        for message in self.unseen.iter().rev().filter(|it| !is_shown(it)) {
            let from = told::name(&message.from);
            let text = requests::text(message, self.secret.as_ref());
            let (state, age) = (&*message.state, age(message));
            output::wrapped(&match state {
                "held" | "paused" => format!("{state} from {from}, {age}: {text}"),
                _ => format!("unseen from {from}, {state}, {age}: {text}"),
            })?;
        }
        let shown = self.unseen.len() as u64;
        let peers = self.here.peers.iter().filter(|_| shown > 0);
        for peer in peers.filter(|peer| peer.unacked.is_some_and(|all| all > shown)) {
            output::wrapped(&format!("… and more: `peerbus inbox {}`", peer.name))?;
        }
        Ok(())
    }

    /// An open request as a line.
    fn request(&self, message: &MessageView) -> String {
        let request = message.request.as_ref();
        let owes = request.map_or_else(String::new, RequestView::owes);
        let state = request.map_or("", |request| &*request.state);
        let from = told::name(&message.from);
        let age = age(message);
        let text = requests::text(message, self.secret.as_ref());
        let says = match (request.is_some_and(|it| it.read), &*message.state) {
            (true, _) => format!("{owes} owes {from} an answer"),
            (false, "held" | "paused") => format!("{owes} has a request from {from}"),
            // It may have been shown before the broker began anew.
            (false, _) => format!("{owes} has a request from {from}, not known to be read"),
        };
        let is_it = |now: &SessionNow| now.session.name.as_ref() == Some(&owes);
        let sessions = self.here.sessions.iter().map(|(now, _)| now);
        let denied = sessions.filter(|now| is_it(now));
        let denied = denied.flat_map(|now| now.denied(message.at, Some(&message.id)));
        let denied = denied.map(|denied| format!("; {}", denied.says(wall_ms())));
        let denied = denied.collect::<String>();
        format!("{says}, {state}, {age}: {text}{denied}")
    }

    pub(crate) fn json(&self) -> Value {
        let sessions = self.here.sessions.iter().map(|(now, silent)| {
            let denied = now.denied(0, None);
            let denied = denied
                .iter()
                .map(|it| json!({ "at": it.at_ms, "what": it.what, "why": it.why }));
            json!({
                "denied": denied.collect::<Vec<_>>(),
                "session": now.session,
                "state": now.session.word(),
                "approvals": now.approvals,
                "way_out": now.way_out(),
                "goes_on": here::goes_on(&now.session),
                "paused": now.paused,
                "silent": silent,
            })
        });
        let requests = self.requests.iter().map(|message| {
            let mut told = message.json(self.secret.as_ref());
            told["request"] = json!(message.request);
            told
        });
        let mut told = json!({
            "peers": self.here.json(),
            "sessions": sessions.collect::<Vec<_>>(),
            "requests": requests.collect::<Vec<_>>(),
        });
        if self.more {
            told["more"] = true.into();
        }
        match &self.broker {
            Some(broker) => told["broker"] = serde_json::from_str(broker).unwrap_or_default(),
            None => {
                let unseen = self.unseen.iter().map(|it| it.json(self.secret.as_ref()));
                told["unseen"] = unseen.collect();
            }
        }
        told
    }
}

const COLUMNS: [Column; 5] = [
    table::NAME,
    table::STATE,
    table::UNSEEN,
    table::OWES,
    table::PROJECT,
];

fn print_more(few: &FewPeers<'_>) -> Result<(), Failure> {
    few.more()
        .try_for_each(|more| output::wrapped(&format!("… and {more}: `peerbus peers`")))
}

/// As in the list of peers.
fn row(peer: &PeerView) -> [String; 5] {
    let [name, state, unseen, owes, project, ..] = peers::row(peer);
    [name, state, unseen, owes, project]
}

/// How the start of a broker ends that this process asked for.
fn own_process() -> String {
    format!(", process {}", std::process::id())
}

/// For how long a message has been there.
fn age(message: &MessageView) -> String {
    span(wall_ms().saturating_sub(message.at) / 1_000)
}

fn name(now: &SessionNow) -> String {
    now.session.title()
}
