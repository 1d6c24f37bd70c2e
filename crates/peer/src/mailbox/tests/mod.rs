//! The rules of the mailbox, one test each.

mod conversations;
mod escalating;
mod evidence;
mod expected;
mod held;
mod hops;
mod leases;
mod owed;
mod passive;
mod pushing;
mod reading;
mod senders;
mod stuck;
mod turns;

use peerbus_wire::{Conversation, How, Kind, MessageId, PeerName, Priority, Receipt, Stage};

use super::*;
use crate::session::{Inbound, Key};
use crate::testing::{CHANNEL, REWAKE, SOCKET};

/// A window that nothing here fills.
const WINDOW: Window = Window {
    messages: 10_000,
    bytes: u32::MAX,
};

/// A mailbox, its time, and what it wants done.
struct Rig {
    mailbox: MailboxMachine,
    now_ms: u64,
    outputs: Vec<MailboxOutput>,
    next: u64,
    /// What arrives is for one member of a group.
    one: bool,
    /// What arrives is a request, whose result is wanted within so many milliseconds.
    within_ms: u64,
    /// Its sender's token.
    token: Option<&'static str>,
    /// The least size of its body.
    body: usize,
    /// The images that were put in with it.
    images: Vec<Image>,
    /// The numbers of what arrived.
    numbers: BTreeMap<Key, No>,
}

impl Rig {
    /// A rig with these paths, an idle session and a transcript, and no governor.
    fn new(paths: &[Path]) -> Self {
        Self::governed(Policy::Auto, None, paths)
    }

    fn with_policy(policy: Policy, paths: &[Path]) -> Self {
        Self::governed(policy, None, paths)
    }

    fn governed(policy: Policy, hops_max: Option<u32>, paths: &[Path]) -> Self {
        let mut rig = Self {
            mailbox: MailboxMachine::new(policy, hops_max),
            now_ms: 1_000_000,
            outputs: Vec::new(),
            next: 1,
            one: false,
            within_ms: 0,
            token: None,
            body: 0,
            images: Vec::new(),
            numbers: BTreeMap::new(),
        };
        for path in [&CHANNEL, &SOCKET, &REWAKE] {
            rig.mailbox.add_path(path);
        }
        rig.input(MailboxMachine::open);
        rig.input(|mailbox, now| mailbox.set_evidence(now, true));
        rig.activity(Activity::Idle);
        for path in paths {
            rig.ready(path);
        }
        rig
    }

    fn input<T>(&mut self, what: impl FnOnce(&mut MailboxMachine, u64) -> T) -> T {
        let out = what(&mut self.mailbox, self.now_ms);
        self.outputs
            .extend(std::iter::from_fn(|| self.mailbox.poll_output()));
        self.mailbox.check();
        out
    }

    /// Lets time pass, with every deadline in it.
    fn pass(&mut self, ms: u64) {
        let end = self.now_ms + ms;
        while let Some(at) = self.mailbox.poll_timeout().filter(|at| *at <= end) {
            self.now_ms = self.now_ms.max(at);
            self.input(MailboxMachine::handle_timeout);
        }
        self.now_ms = end;
    }

    fn ready(&mut self, path: Path) {
        self.input(|mailbox, now| mailbox.set_path(now, path, true));
    }

    fn absent(&mut self, path: Path) {
        self.input(|mailbox, now| mailbox.set_path(now, path, false));
    }

    fn activity(&mut self, activity: Activity) {
        self.input(|mailbox, now| mailbox.set_activity(now, activity));
    }

    fn readable(&mut self, readable: bool) {
        self.input(|mailbox, now| mailbox.set_evidence(now, readable));
    }

    /// A message of `from` arrives. Its id is `m` and its number.
    fn arrives(&mut self, from: &str, bytes: usize, talk: Conversation, again: bool) -> No {
        let id = format!("m{}", self.next);
        self.next += 1;
        self.arrives_as(&id, from, bytes, talk, again)
    }

    fn arrives_as(
        &mut self,
        id: &str,
        from: &str,
        bytes: usize,
        talk: Conversation,
        again: bool,
    ) -> No {
        // What has no peer's name did not come over the bus.
        let key = match PeerName::parse(from) {
            Ok(name) => Key::of(&name.key(), &MessageId::parse(id).unwrap()),
            Err(_) => Key::local(self.next.into()),
        };
        let inbound = Inbound {
            key,
            id: id.into(),
            from: from.into(),
            source: "test".into(),
            kind: Kind::Msg,
            ts: "2026-01-01T00:00:00Z".into(),
            body: format!("\"hello{}\"", " ".repeat(self.body)),
            again,
            to: None,
            group: self.one.then(|| "shop".into()),
            one: self.one,
            token: self.token.map(str::to_owned),
            approves: false,
            age_ms: 0,
            within_ms: self.within_ms,
        };
        let mail = Mail {
            inbound,
            talk,
            bytes,
            chars: bytes,
            beginning: bytes.min(4_096),
            part: PART_CHARS,
            wanted: Wanted {
                gist: "say \"hi\"".into(),
                until: "noon".into(),
            },
            answers: false,
            images: self.images.clone(),
        };
        self.input(|mailbox, now| mailbox.message(now, mail));
        let mut here = self.mailbox.messages.iter();
        let found = here.find(|(_, message)| message.is_of(key));
        let no = found.map_or(No(self.mailbox.last), |(no, _)| *no);
        self.numbers.insert(key, no);
        no
    }

    /// What is unacked nearly fills the window from now on, whatever it is, or does not.
    fn window(&mut self, fills: bool) {
        let messages = if fills { 1 } else { WINDOW.messages };
        let window = Window { messages, ..WINDOW };
        self.input(|mailbox, now| mailbox.registered(now, "me".into(), window));
    }

    /// A message of bob's arrives, with 100 bytes.
    fn arrive(&mut self, priority: Priority) -> No {
        self.arrive_sized(priority, 100)
    }

    fn arrive_sized(&mut self, priority: Priority, bytes: usize) -> No {
        self.arrives("bob", bytes, of(priority), false)
    }

    fn arrive_from(&mut self, from: &str, priority: Priority) -> No {
        self.arrives(from, 100, of(priority), false)
    }

    fn next(&mut self) -> No {
        self.arrive(Priority::Next)
    }

    fn outcome(&mut self, attempt: &Attempt, outcome: Outcome) {
        self.input(|mailbox, now| mailbox.outcome(now, attempt.id, outcome));
    }

    fn presented(&mut self, attempt: &Attempt) {
        self.input(|mailbox, now| mailbox.presented(now, attempt.id));
    }

    fn answered(&mut self, attempt: &Attempt) {
        self.input(|mailbox, now| mailbox.answered(now, attempt.id));
    }

    fn called(&mut self) {
        self.input(MailboxMachine::called);
    }

    /// A tool call names the message.
    fn named(&mut self, no: No) -> Named {
        let mail = self.mailbox.messages.get(&no).map(|m| &m.content);
        let mail = mail.and_then(Content::mail);
        let id = mail.map_or("gone".into(), |mail| mail.inbound.id.clone());
        self.input(|mailbox, now| mailbox.named(now, &id, None))
    }

    fn along(&mut self, path: Path) -> Option<Attempt> {
        self.input(|mailbox, now| mailbox.along(now, path))
    }

    /// The agent reads everything that waits.
    fn read(&mut self) -> Option<Attempt> {
        let mut chosen: Vec<_> = self.mailbox.look().iter().map(|listed| listed.no).collect();
        chosen.extend(self.mailbox.notices().into_iter().map(|(no, _)| no));
        let chosen: Vec<_> = chosen.into_iter().map(|no| (no, Portion::All)).collect();
        self.check_out(&chosen)
    }

    fn check_out(&mut self, chosen: &[(No, Portion)]) -> Option<Attempt> {
        self.input(|mailbox, now| mailbox.check_out(now, &INBOX, chosen))
    }

    /// Takes those outputs that `what` makes something of.
    fn take<T>(&mut self, what: impl Fn(&MailboxOutput) -> Option<T>) -> Vec<T> {
        let mut taken = Vec::new();
        self.outputs.retain(|output| match what(output) {
            Some(found) => {
                taken.push(found);
                false
            }
            None => true,
        });
        taken
    }

    /// The push that is wanted now, if any; there may be one.
    fn wanted(&mut self) -> Option<Attempt> {
        let mut pushes = self.take(|output| match output {
            MailboxOutput::Push(attempt) => Some(attempt.clone()),
            _ => None,
        });
        assert!(pushes.len() <= 1, "one push at a time: {pushes:?}");
        pushes.pop()
    }

    /// The push that is wanted now.
    fn push(&mut self) -> Attempt {
        self.wanted().expect("a push")
    }

    /// The push that is wanted now leaves.
    fn pushed(&mut self) -> Attempt {
        let attempt = self.push();
        self.outcome(&attempt, Outcome::Written);
        attempt
    }

    /// What was acked since, and how.
    fn acked(&mut self) -> Vec<(No, How)> {
        let acked = self.take(|output| match output {
            MailboxOutput::Reached {
                mail,
                stage: Stage::Acked(Some(how)),
            } => Some((mail.inbound.key, how.clone())),
            _ => None,
        });
        acked
            .into_iter()
            .map(|(key, how)| (self.numbers[&key], how))
            .collect()
    }

    /// What the sender was told of the way since.
    fn progress(&mut self) -> Vec<(No, Stage)> {
        let reached = self.take(|output| match output {
            MailboxOutput::Reached { mail, stage } if !stage.is_final() => {
                Some((mail.inbound.key, stage.clone()))
            }
            _ => None,
        });
        reached
            .into_iter()
            .map(|(key, stage)| (self.numbers[&key], stage))
            .collect()
    }

    fn rejected(&mut self) -> Vec<No> {
        self.ended(|stage| matches!(stage, Stage::Dead { .. }))
    }

    /// What ended so since.
    fn ended(&mut self, so: impl Fn(&Stage) -> bool) -> Vec<No> {
        let ended = self.take(|output| match output {
            MailboxOutput::Reached { mail, stage } if so(stage) => Some(mail.inbound.key),
            _ => None,
        });
        ended.iter().map(|key| self.numbers[key]).collect()
    }

    fn warned(&mut self) -> Vec<String> {
        self.take(|output| match output {
            MailboxOutput::Warn(line) => Some(line.to_string()),
            _ => None,
        })
    }

    /// The sentences of the bus that wait.
    fn notices(&self) -> Vec<String> {
        let mailbox = &self.mailbox;
        let notices = mailbox.notices().into_iter().map(|(no, _)| no);
        notices
            .map(|no| match &mailbox.messages[&no].content {
                Content::Notice { sentence, .. } => sentence.to_string(),
                Content::Mail(mail) => panic!("{mail:?} is no notice"),
            })
            .collect()
    }
}

fn of(priority: Priority) -> Conversation {
    Conversation {
        priority,
        ..Conversation::default()
    }
}

fn ids(attempt: &Attempt) -> Vec<u64> {
    attempt.items.iter().map(|item| item.no.0).collect()
}

fn repeats(attempt: &Attempt) -> Vec<bool> {
    attempt.items.iter().map(|item| item.repeat).collect()
}

fn portions(attempt: &Attempt) -> Vec<Portion> {
    attempt.items.iter().map(|item| item.portion).collect()
}

fn seen(path: &str, evidence: &str) -> How {
    How::Seen {
        path: path.to_owned(),
        evidence: evidence.to_owned(),
    }
}

fn only_pushed(path: &str) -> How {
    How::Pushed {
        path: path.to_owned(),
    }
}

fn went(path: &str) -> Stage {
    Stage::Pushed { path: path.into() }
}

fn stands(path: &str) -> Stage {
    Stage::Presented { path: path.into() }
}

fn key_of(name: &str) -> peerbus_wire::NameKey {
    PeerName::parse(name).unwrap().key()
}

fn receipt(id: &str, to: &str, stage: Stage) -> Receipt {
    Receipt {
        to: Some(to.into()),
        ..Receipt::new(MessageId::parse(id).unwrap(), stage)
    }
}
