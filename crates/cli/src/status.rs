//! `peerbus status`.

use std::path::PathBuf;

use peerbus_adapter::{Failure, PeerEntry, Stage, Url, credentials};
use peerbus_node::SessionNow;
use peerbus_view::{
    Audience, MessageContent, MessageText, MessageView, PeerState, Step, Trail, spoken,
};
use peerbus_wire::{MessageId, PeerName, Secret, escape, escape_name, is_id_part};
use serde_json::json;

use crate::args::Status;
use crate::here::{self, Here};
use crate::overview::{self, Overview};
use crate::{client, operator, output, send, session, told};

/// Longest text that is shown, in characters.
const TEXT_CHARS: usize = 2_000;

pub(crate) fn run(verb: &Status) -> Result<(), Failure> {
    let done = match &verb.id {
        Some(id) => tell(verb, id),
        None => overview::run(verb),
    };
    // This machine knows without that broker what waits here, and of a session more.
    let is_said = verb.id.is_none() && !operator::is_elsewhere();
    if done.is_err() && verb.socket.is_none() && !is_said {
        say_apart(verb.id.as_deref());
    }
    done
}

/// Says on stderr which sessions here need their user where no broker here tells of them, or what those do that
/// are meant by a word.
fn say_apart(meant: Option<&str>) {
    let mut here = Here::of(std::iter::empty());
    let is_it = |now: &SessionNow| meant.is_none_or(|meant| session::is_meant(&now.session, meant));
    here.sessions.retain(|(now, _)| is_it(now));
    for (now, _) in &here.sessions {
        match (now.needs(true), meant) {
            (Some(way), _) => output::say(&format!("{}: {way}", now.stands())),
            (None, Some(_)) => output::say(&now.stands()),
            (None, None) => {}
        }
    }
}

/// Prints what is known of a message, and of a peer.
fn tell(verb: &Status, id: &str) -> Result<(), Failure> {
    let id = meant(id)?;
    let name = verb.name.as_deref().map(PeerName::parse).transpose();
    let name = name.map_err(Failure::config)?;
    let way = way(verb)?;
    let Found {
        messages,
        peers,
        secret,
    } = found(verb, &way, &id, name.as_ref())?;
    let peer = match &way {
        Way::Operator(socket) if name.is_none() => Named::find(&id, socket.as_ref(), verb)?,
        _ => Named::default(),
    };
    if messages.is_empty() && peer.overview.is_none() {
        return Err(match (&way, &name) {
            (Way::Sender(url), Some(name)) => not_of(&id, name, url),
            _ => unknown(&id, peer.nobody),
        });
    }
    // A sender is told no texts.
    let content = |message: &MessageView| match way {
        Way::Operator(_) => Some(message.content(secret.as_ref())),
        Way::Sender(_) => None,
    };
    // Nor a result.
    let result = |message: &MessageView| match &way {
        Way::Operator(socket) => told::result(socket.as_ref(), message, secret.as_ref()),
        Way::Sender(_) => Ok(None),
    };
    if verb.json {
        let mut all = Vec::new();
        for message in &messages {
            let mut told = json!({ "trail": message.trail() });
            if !message.from.is_empty() {
                told["from"] = message.from.as_str().into();
            }
            if let Some(content) = content(message) {
                content.add_to(&mut told);
            }
            if let Some(result) = result(message)? {
                told["result"] = result.json(secret.as_ref());
            }
            all.push(told);
        }
        let mut told = peer.overview.map_or_else(|| json!({}), |it| it.json());
        told["messages"] = all.into();
        return output::json(&told);
    }
    for message in &messages {
        output::wrapped(&heading(message, secret.as_ref()))?;
        show_way(message, &peers)?;
        if let Some(content) = content(message) {
            show_text(&content)?;
        }
        if let Some(result) = result(message)? {
            let shown = text(&result.content(secret.as_ref()));
            output::wrapped(&format!("result of {}: {shown}", sender(&result.from)))?;
        }
    }
    // Both: neither an id nor a name that somebody chose hides the other.
    peer.overview.map_or(Ok(()), |it| it.print())
}

/// Prints what became of a message, and how the user lets those go on that have it.
fn show_way(message: &MessageView, peers: &[PeerEntry]) -> Result<(), Failure> {
    let mut trail = message.trail();
    let names = || trail.steps.iter().filter_map(|step| step.to.as_deref());
    // Of one that has ended nobody has to do anything, whatever else keeps those that had it.
    let (denied, mut ways) = match message.ended {
        true => Default::default(),
        false => (
            here::denied(peers, names(), (&message.id, message.at)),
            here::ways_out(peers, names(), &trail.note),
        ),
    };
    let waits = trail.note.contains(PeerState::Waits.word(Audience::Owner));
    if waits && !ways.is_empty() {
        // They end the sentence that says who waits.
        trail.note = format!("{}: {}", trail.note, ways.join("; "));
        ways.clear();
    }
    show(&trail)?;
    for way in ways.iter().chain(&denied) {
        output::wrapped(way)?;
    }
    Ok(())
}

/// The id that is given, or that it is a group's name.
fn meant(id: &str) -> Result<MessageId, Failure> {
    if id.starts_with('#') {
        let group = escape(id, 64);
        return Err(Failure::config(format!(
            "status tells of a message or a peer, and {group} is a group: `peerbus requests '{group}'` lists what it \
             was asked"
        )));
    }
    MessageId::parse(id).map_err(Failure::config)
}

/// The messages with an id.
#[derive(Default)]
struct Found {
    messages: Vec<MessageView>,
    /// The list of peers, where people read what is said.
    peers: Vec<PeerEntry>,
    secret: Option<Secret>,
}

fn found(
    verb: &Status,
    way: &Way,
    id: &MessageId,
    name: Option<&PeerName>,
) -> Result<Found, Failure> {
    let socket = match way {
        Way::Operator(socket) => socket.as_ref(),
        Way::Sender(url) => return of_sender(verb, url, id, name),
    };
    let secret = told::secret(verb.connection.credentials.as_deref());
    let mut messages = of_operator(socket, id, name)?;
    let peers = match messages.is_empty() {
        true => Vec::new(),
        false => here::peers(socket)?,
    };
    let all = messages.iter_mut();
    all.for_each(|message| message.tell_stopped(&peers, here::audience()));
    Ok(Found {
        messages,
        peers,
        secret,
    })
}

/// That there is no such message, nor such a peer.
fn unknown(id: &MessageId, nobody: Option<String>) -> Failure {
    let message = format!(
        "the broker knows no message {id}, or not any more: `peerbus history --ids` lists those that it \
         knows, and one that was refused was never kept"
    );
    Failure::failed(match nobody {
        Some(nobody) if is_id_part(id.as_str()) => format!("{message}; {nobody}"),
        Some(nobody) => format!("no message has the id {id}, and {nobody}"),
        None => message,
    })
}

/// That a sender has no such message there.
fn not_of(id: &MessageId, from: &PeerName, url: &Url) -> Failure {
    Failure::failed(format!(
        "{url} knows no message {id} of {from}, or not any more: it tells nobody but the sender what became of \
         one, and a command without --name had its name only while it ran; on that machine `peerbus status \
         {id}` asks for anybody's"
    ))
}

/// The peer whose name stands in the place of an id.
#[derive(Default)]
struct Named {
    overview: Option<Overview>,
    /// That nobody has this name, and names that may have been meant.
    nobody: Option<String>,
}

impl Named {
    fn find(id: &MessageId, socket: Option<&PathBuf>, verb: &Status) -> Result<Self, Failure> {
        let Ok(name) = PeerName::parse(id.as_str()) else {
            return Ok(Self::default());
        };
        let entries = here::peers(socket)?;
        let secret = told::secret(verb.connection.credentials.as_deref());
        let name = here::present(socket, &name);
        let overview = Overview::of(&name, &entries, socket, secret)?;
        let names: Vec<String> = entries.into_iter().map(|entry| entry.name).collect();
        let nobody = overview
            .is_none()
            .then(|| send::nobody(name.as_str(), &names));
        Ok(Self { overview, nobody })
    }
}

fn show_text(said: &MessageContent) -> Result<(), Failure> {
    if let Some(thread) = &said.talk.thread {
        output::wrapped(&format!("thread {}", escape_name(thread, 128)))?;
    }
    output::wrapped(&text(said))
}

fn text(said: &MessageContent) -> String {
    match &said.text {
        MessageText::Signed(body) => format!("\"{}\"", escape(&spoken(body), TEXT_CHARS)),
        MessageText::Hidden(why) => format!("its text is not shown: {why}"),
    }
}

/// From whom to whom.
fn heading(message: &MessageView, secret: Option<&Secret>) -> String {
    let names = message.standing();
    let from = sender(&message.from);
    let to = message.content(secret).to;
    let group = to.starts_with('#').then(|| escape(&to, 64));
    let of = |names: String| match &group {
        Some(group) => format!("{group} ({names})"),
        None => names,
    };
    match (
        names.first_key_value(),
        names.len().max(message.recipients as usize),
    ) {
        (_, 0) => format!("from {from}"),
        (Some((name, _)), 1) => format!("from {from} to {}", of((*name).to_owned())),
        (_, count) => {
            let peers = output::plural(count as u64, "peer");
            format!("from {from} to {}", of(peers))
        }
    }
}

/// Who sent it; a temporary name is forgotten when its sender leaves.
fn sender(from: &str) -> String {
    match from {
        "" => "a forgotten name".into(),
        name => escape(name, 64),
    }
}

pub(crate) fn show(trail: &Trail) -> Result<(), Failure> {
    for step in &trail.steps {
        output::wrapped(&line(step))?;
    }
    if trail.omitted > 0 {
        output::wrapped(&format!("… and {} more", trail.omitted))?;
    }
    output::wrapped(&trail.note)
}

/// A step as a line: when, what, at whom, by what.
fn line(step: &Step) -> String {
    let at = |at_ms| told::local(at_ms, "%Y-%m-%dT%H:%M:%S%.3f");
    let at = step.at_ms().map_or_else(|| "-".to_owned(), at);
    let mut line = format!("{at:<24}  {:<9}", step.state);
    for part in step.to.clone().into_iter().chain(step.how()) {
        line.push_str("  ");
        line.push_str(&part);
    }
    line.trim_end().to_owned()
}

enum Way {
    /// As the operator of the broker, who may see every message's, over this socket or the usual
    /// ones. Registers nobody.
    Operator(Option<PathBuf>),
    /// As the sender, at a broker whose socket cannot be reached from here.
    Sender(Url),
}

fn way(verb: &Status) -> Result<Way, Failure> {
    if verb.socket.is_some() {
        return Ok(Way::Operator(verb.socket.clone()));
    }
    let given = verb.connection.url.is_some() || verb.connection.credentials.is_some();
    if verb.name.is_none() && !given {
        return Ok(Way::Operator(None));
    }
    let config = client::config(&verb.connection, None)?;
    let listed = || Some(credentials::load(&config.credentials).ok()?.url)?;
    match config.url.clone().or_else(listed) {
        None => Ok(Way::Operator(None)),
        Some(Url::Unix(path)) => Ok(Way::Operator(Some(path))),
        Some(url) if verb.name.is_some() => Ok(Way::Sender(url)),
        Some(url) => Err(Failure::config(format!(
            "without --name the broker's operator asks, over its Unix socket, and {url} is none: \
             ask on the broker's machine, or say by --name who sent the message"
        ))),
    }
}

/// Asks as the sender. That registers its name, so it must be one that is known.
fn of_sender(
    verb: &Status,
    url: &Url,
    id: &MessageId,
    name: Option<&PeerName>,
) -> Result<Found, Failure> {
    let Some(name) = name else {
        return Ok(Found::default());
    };
    let deadline = client::duration(verb.timeout);
    let mut config = client::config(&verb.connection, None)?;
    config.url = Some(url.clone());
    let peers = client::peers(config, verb.timeout)?;
    let is_known = |peer: &str| PeerName::parse(peer).is_ok_and(|peer| peer.key() == name.key());
    if !peers.entries.iter().any(|peer| is_known(&peer.name)) {
        return Ok(Found::default());
    }
    output::say(&format!(
        "asking {url} as {name}, which registers that name for the moment: only over its Unix \
         socket does a broker answer its operator"
    ));
    let config = client::config(&verb.connection, Some(name.as_str().to_owned()))?;
    client::with_bus(config, client::Refused::Fail, async |bus| {
        let ids = [id.as_str().to_owned()];
        let mut receipts = bus.statuses(&ids, deadline).await?;
        receipts.retain(|receipt| receipt.stage != Stage::Unknown);
        if receipts.is_empty() {
            return Ok(Found::default());
        }
        let peers = here::peers_of(&bus, id.as_str(), &receipts).await;
        let message = MessageView {
            from: name.as_str().to_owned(),
            ..MessageView::new(id, &receipts, None, here::around(&peers))
        };
        Ok(Found {
            messages: vec![message],
            peers,
            secret: None,
        })
    })
}

/// Asks as the operator, for the messages of one sender or of any.
fn of_operator(
    socket: Option<&PathBuf>,
    id: &MessageId,
    from: Option<&PeerName>,
) -> Result<Vec<MessageView>, Failure> {
    let id = operator::encode_text(id.as_str());
    let sent = |message: &MessageView| {
        let is = |name: &PeerName| {
            PeerName::parse(&message.from).is_ok_and(|from| from.key() == name.key())
        };
        from.is_none_or(is)
    };
    let mut before = u64::MAX;
    let mut messages = loop {
        let page = told::ask(socket, &format!("/v1/messages/{id}?before={before}"))?;
        let meant: Vec<_> = page.messages.into_iter().filter(sent).collect();
        match page.before {
            Some(next) if from.is_some() && meant.is_empty() => before = next,
            more => {
                if more.is_some() && from.is_none() {
                    output::say("there are more by this id, and older: --name says whose is meant");
                }
                break meant;
            }
        }
    };
    messages.reverse();
    Ok(messages)
}
