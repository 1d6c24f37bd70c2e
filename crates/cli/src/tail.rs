//! `peerbus tail`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use peerbus_adapter::hooks::is_below_an_agent;
use peerbus_adapter::operator::{Events, Streamless};
use peerbus_adapter::{Failure, wall_ms};
use peerbus_view::{MessageView, Step, StepView};
use peerbus_wire::{Secret, escape, short_id};
use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr as _;

use crate::args::{Shown, Tail};
use crate::{here, history, operator, output, told};

/// Messages that are shown of the time before.
const BEFORE: usize = 20;
/// Time between two looks for a broker that is away.
const PAUSE: Duration = Duration::from_millis(200);
/// How far back is looked for what ended while no broker was there.
const BACK_MS: u64 = 3_600_000;
/// Steps that are remembered, so that none is shown twice.
const STEPS_MAX: usize = 16_384;

pub(crate) fn run(verb: &Tail) -> Result<(), Failure> {
    let mut tail = Showing::new(verb, told::secret(verb.shown.credentials.as_deref()))?;
    if !verb.follow {
        return tail.before();
    }
    let mut cursor: Option<String> = None;
    let mut away = false;
    loop {
        match operator::stream(verb.shown.socket.as_ref(), cursor.as_deref()) {
            Ok(events) => {
                away = false;
                tail.follow(events, &mut cursor)?;
                output::say("the stream of events ended; going on when the broker is there");
                std::thread::sleep(PAUSE);
            }
            Err(Streamless::Gone) => cursor = None,
            Err(Streamless::Refused(why)) => return Err(Failure::Failed(why)),
            // At the first time there may be none at all.
            Err(Streamless::Away(why)) if tail.last_ms == 0 => return Err(Failure::Failed(why)),
            Err(Streamless::Away(_)) => {
                if !std::mem::replace(&mut away, true) {
                    output::say("the broker is away; waiting for it");
                }
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// Shows what happens at the broker with this socket, until it ends.
pub(crate) fn live(socket: &Path, secret: Secret) -> Result<(), Failure> {
    let verb = Tail {
        name: None,
        peer: None,
        follow: true,
        short: false,
        shown: Shown {
            socket: Some(socket.to_owned()),
            ..Shown::default()
        },
    };
    // It shows what the demo's own peers say.
    let mut tail = Showing {
        agent: false,
        ..Showing::new(&verb, Some(secret))?
    };
    match operator::stream(verb.shown.socket.as_ref(), None) {
        Ok(events) => tail.follow(events, &mut None),
        Err(Streamless::Gone) => Ok(()),
        Err(Streamless::Refused(why) | Streamless::Away(why)) => Err(Failure::Failed(why)),
    }
}

/// The events that were shown.
struct Showing<'v> {
    verb: &'v Tail,
    /// The names of the peer or group that is meant; none: everybody's.
    names: Vec<String>,
    secret: Option<Secret>,
    /// An agent looks on.
    agent: bool,
    /// Steps: number of the message, at whom, what, when.
    shown: BTreeSet<(u64, String, String, u64)>,
    /// Messages that have not ended.
    open: BTreeMap<u64, Open>,
    /// The time of the last thing that was shown.
    last_ms: u64,
}

/// A message that was shown and has not ended.
struct Open {
    /// When it was accepted.
    at_ms: u64,
    /// It wants a result.
    wants: bool,
    /// Its sender: the broker forgets a temporary name.
    from: String,
    to: String,
    /// At so many of its recipients it has not ended.
    left: u32,
}

impl<'v> Showing<'v> {
    fn new(verb: &'v Tail, secret: Option<Secret>) -> Result<Self, Failure> {
        let with = verb.name.as_deref().or(verb.peer.as_deref());
        let names = with.map(|with| here::meant(verb.shown.socket.as_ref(), with));
        Ok(Self {
            verb,
            names: names.transpose()?.unwrap_or_default(),
            secret,
            agent: is_below_an_agent(),
            shown: BTreeSet::new(),
            open: BTreeMap::new(),
            last_ms: 0,
        })
    }

    fn before(&mut self) -> Result<(), Failure> {
        let found = self.messages((&self.names.clone(), ""), BEFORE)?;
        self.last_ms = self.last_ms.max(1);
        let Some(name) = self.names.first().filter(|_| !found) else {
            return Ok(());
        };
        match history::is_there(name, self.verb.shown.socket.as_ref()) {
            Err(why) if self.verb.follow => output::say(&format!("waiting for {name}: {why}")),
            there => return there,
        }
        Ok(())
    }

    /// Shows the newest messages that are meant by a query. False: there are none.
    fn messages(&mut self, query: (&[String], &str), limit: usize) -> Result<bool, Failure> {
        let found = told::newest_with(self.verb.shown.socket.as_ref(), query, limit, None)?;
        found.iter().rev().try_for_each(|it| self.message(it))?;
        Ok(!found.is_empty())
    }

    /// Shows events until the stream ends.
    fn follow(&mut self, mut events: Events, cursor: &mut Option<String>) -> Result<(), Failure> {
        let resumed = cursor.is_some();
        while let Ok(event) = events.read() {
            *cursor = events.cursor().map(str::to_owned);
            let Some(event) = event else {
                continue;
            };
            match event.kind.as_str() {
                "ready" if resumed => {}
                "ready" if self.last_ms == 0 => self.before()?,
                "ready" => {
                    // Shows what happened while nobody told.
                    let oldest = self.open.values().map(|it| it.at_ms).min();
                    let oldest = oldest.unwrap_or(self.last_ms);
                    let back_ms = self.last_ms.saturating_sub(BACK_MS);
                    let since = oldest.min(self.last_ms).max(back_ms);
                    self.messages((&[], &format!("&since={since}")), STEPS_MAX)?;
                }
                "gone" => return Ok(()),
                kind => self.event(kind, &event.data)?,
            }
        }
        Ok(())
    }

    fn event(&mut self, kind: &str, data: &str) -> Result<(), Failure> {
        match kind {
            "accepted" => {
                let mut message: MessageView = read(data)?;
                message.kept = self.agent;
                self.message(&message)
            }
            "delivered" | "step" | "settled" => {
                let StepView {
                    seq,
                    id,
                    mut from,
                    step,
                    ..
                } = read(data)?;
                let to = step.to.as_deref().unwrap_or_default();
                let lacks = from.is_empty() || !self.is_shown(seq);
                if lacks && !self.open.contains_key(&seq) && self.is_meant([&*from, to]) {
                    // It was sent before this began, or to a group, and this is a member that gets it.
                    if let Some(message) = self.find(seq, &id) {
                        self.message(&message)?;
                        from = message.from;
                    }
                }
                if let Some(known) = self.open.get(&seq).filter(|_| from.is_empty()) {
                    from.clone_from(&known.from);
                }
                self.step(seq, (&id, &from), &step)?;
                // A request that was read goes on.
                let is_read = matches!(&*step.state, "seen" | "pushed" | "acked");
                if kind == "settled"
                    && let Some(open) = self.open.get_mut(&seq)
                    && !(is_read && open.wants)
                {
                    open.left = open.left.saturating_sub(1);
                    if open.left == 0 {
                        self.open.remove(&seq);
                    }
                }
                Ok(())
            }
            kind => self.other(kind, data),
        }
    }

    /// The message with this number, as the broker's history has it.
    fn find(&self, seq: u64, id: &str) -> Option<MessageView> {
        let (id, before) = (operator::encode_text(id), seq + 1);
        let target = format!("/v1/messages/{id}?before={before}");
        let page = told::ask(self.verb.shown.socket.as_ref(), &target).ok()?;
        let is_it = |it: &MessageView| it.seq == seq && it.envelope.is_some();
        page.messages.into_iter().find(is_it)
    }

    /// Whether this message was shown.
    fn is_shown(&self, seq: u64) -> bool {
        let at = |at_ms| (seq, String::new(), "accepted".to_owned(), at_ms);
        self.shown.range(at(0)..=at(u64::MAX)).next().is_some()
    }

    /// Whether something of these peers is wanted.
    fn is_meant<'p>(&self, peers: impl IntoIterator<Item = &'p str>) -> bool {
        let is = |peer: &str| self.names.iter().any(|it| it.eq_ignore_ascii_case(peer));
        let same = |peer: &str| peer == "*" || is(peer);
        self.names.is_empty() || peers.into_iter().any(same)
    }

    /// Whether this is shown for the first time.
    fn is_new(&mut self, seq: u64, to: &str, what: &str, at_ms: u64) -> bool {
        self.last_ms = self.last_ms.max(at_ms);
        while self.shown.len() >= STEPS_MAX {
            self.shown.pop_first();
        }
        self.shown
            .insert((seq, to.to_owned(), what.to_owned(), at_ms))
    }

    /// A message, and the steps that are known of it.
    fn message(&mut self, message: &MessageView) -> Result<(), Failure> {
        let said = message.content(self.secret.as_ref());
        let at = message.steps.iter().filter_map(|step| step.to.as_deref());
        if !self.is_meant(at.chain([&*message.from, &*said.to])) {
            return Ok(());
        }
        if self.is_new(message.seq, "", "accepted", message.at) {
            let open = Open {
                at_ms: message.at,
                wants: said.talk.within_ms.is_some(),
                from: message.from.clone(),
                to: said.to.clone(),
                left: message.recipients,
            };
            self.open.insert(message.seq, open);
            while self.open.len() >= STEPS_MAX {
                self.open.pop_first();
            }
            if self.verb.shown.json {
                let mut told = message.json(self.secret.as_ref());
                told["event"] = "accepted".into();
                if let Some(told) = told.as_object_mut() {
                    told.remove("trail");
                }
                output::json(&told)?;
            } else {
                let to = told::whom(message, &said.to);
                let head = head(message.at, &message.id, (&message.from, &to));
                output::line(&told::with_text(&head, &said.text, self.verb.short))?;
            }
        }
        for step in &message.steps {
            if step.to.is_some() && step.at.is_some() {
                self.step(message.seq, (&message.id, &message.from), step)?;
            }
        }
        if message.ended {
            self.open.remove(&message.seq);
        }
        Ok(())
    }

    fn step(&mut self, seq: u64, (id, from): (&str, &str), step: &Step) -> Result<(), Failure> {
        let to = step.to.as_deref().unwrap_or_default();
        let at_ms = step.at_ms().unwrap_or_else(wall_ms);
        let group = self.open.get(&seq).map(|it| &*it.to);
        let group = group.filter(|to| to.starts_with('#'));
        let is_meant = self.is_meant([from, to].into_iter().chain(group));
        if !is_meant || !self.is_new(seq, to, &step.state, at_ms) {
            return Ok(());
        }
        if self.verb.shown.json {
            return output::json(&json!({
                "event": "step", "seq": seq, "id": id, "from": from, "to": to, "at": at_ms,
                "step": step,
            }));
        }
        let head = head(at_ms, id, (from, &told::name(to))) + " ";
        let mut what = step.word().to_owned();
        for how in step.how() {
            what.push(' ');
            what.push_str(&how);
        }
        match output::columns() {
            Some(columns) if head.width() + 1 + what.width() > columns => {
                output::wrapped(&format!("{head} {what}"))
            }
            _ => output::line(&format!("{head} {}", output::marked(&what))),
        }
    }

    /// What happened to a name, or to the broker.
    fn other(&mut self, kind: &str, data: &str) -> Result<(), Failure> {
        let Ok(mut value) = serde_json::from_str::<Value>(data) else {
            return Ok(());
        };
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let (name, from, to) = (text("name"), text("from"), text("to"));
        if !self.is_meant([&*name, &*from]) {
            return Ok(());
        }
        if kind == "renamed" && !self.names.is_empty() {
            self.names.push(to.clone());
        }
        let at_ms = value["at"].as_u64().unwrap_or_else(wall_ms);
        self.last_ms = self.last_ms.max(at_ms);
        if self.verb.shown.json {
            value["event"] = kind.into();
            return output::json(&value);
        }
        let (name, reason) = (told::name(&name), text("reason"));
        let what = match kind {
            "renamed" => format!("{} is {} now", told::name(&from), told::name(&to)),
            "refused" => format!(
                "{} was refused: {}",
                told::name(&from),
                escape(&reason, 200)
            ),
            "disk_full" if value["full"] == true => "the disk is nearly full".into(),
            "disk_full" => "the disk has room again".into(),
            "registered" | "left" => format!("{name} {kind}"),
            "retired" => format!("{name} ended for good"),
            "forgotten" => format!("{name} was forgotten"),
            _ => return Ok(()),
        };
        output::wrapped(&format!("{} {what}", told::time(at_ms)))
    }
}

/// When, of which message, and between whom, `to` as it is shown. A sender that nobody knows any more is left out.
fn head(at_ms: u64, id: &str, (from, to): (&str, &str)) -> String {
    let from = match from {
        "" => String::new(),
        from => told::name(from) + " ",
    };
    let (at, id) = (told::time(at_ms), told::name(short_id(id)));
    format!("{at} {id} {from}→ {to}")
}

fn read<T: serde::de::DeserializeOwned>(data: &str) -> Result<T, Failure> {
    serde_json::from_str(data).map_err(|error| Failure::failed(operator::other_version(&error)))
}
