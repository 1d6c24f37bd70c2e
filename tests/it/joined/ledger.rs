//! What everybody wrote, was shown and was told, and what of that must not be.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// When something was read, and when the connection was made on which it came: that tells which life
/// of the broker said it.
#[derive(Debug, Clone, Copy)]
struct Heard {
    at: Instant,
    connected: Instant,
}

/// A message.
#[derive(Debug)]
struct Letter {
    from: String,
    to: String,
    /// The how manyth from this sender to this recipient.
    order: usize,
    /// Its recipient does not exist.
    hopeless: bool,
    /// When its sender was told that it was accepted, first by the newest broker that said so.
    accepted: Option<Heard>,
    /// Each time that it was shown.
    shown: Vec<Heard>,
    /// When its sender was told how it ended, last.
    ended: Option<Heard>,
}

/// A broker was brought back from a backup.
#[derive(Debug)]
struct Restore {
    domain: String,
    /// Before the backup began, and after the broker that went on had been killed.
    backup: Instant,
    killed: Instant,
}

#[derive(Debug, Default)]
struct Book {
    letters: BTreeMap<String, Letter>,
    /// Written from one to another, and the last of them that was shown.
    written: BTreeMap<(String, String), usize>,
    shown: BTreeMap<(String, String), usize>,
    restores: Vec<Restore>,
    /// Letters of which something is missing.
    open: BTreeSet<String>,
    wrong: Vec<String>,
}

/// Shared by all.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    book: Mutex<Book>,
    news: Condvar,
}

fn domain(address: &str) -> &str {
    address.rsplit_once('@').map_or("", |(_, domain)| domain)
}

impl Heard {
    fn now(connected: Instant) -> Self {
        let at = Instant::now();
        Self { at, connected }
    }
}

impl Book {
    /// The broker of this address said this, and does not know of it on a connection that is made then.
    fn forgot(&self, address: &str, said: Heard, then: Instant) -> bool {
        self.restores.iter().any(|one| {
            let before = said.connected <= one.killed && one.killed < then;
            one.domain == domain(address) && before && said.at >= one.backup
        })
    }

    /// A broker forgot something while this was under way.
    fn was_under_way(&self, letter: &Letter) -> bool {
        self.restores.iter().any(|one| {
            let of = [&letter.from, &letter.to].map(|it| domain(it));
            let of_home = one.domain == domain(&letter.from);
            let when = |it: Heard| if of_home { it.connected } else { it.at };
            let before = letter.accepted.is_none_or(|it| when(it) <= one.killed);
            let after = letter.ended.is_none_or(|it| it.at >= one.backup);
            of.contains(&&*one.domain) && before && after
        })
    }

    /// What is missing of a letter.
    fn missing(&self, letter: &Letter) -> Option<&'static str> {
        let Some(accepted) = letter.accepted else {
            return Some("not accepted");
        };
        // Its home forgot that it ever took it: nobody needs to hear of it again.
        if self.forgot(&letter.from, accepted, Instant::now()) {
            return None;
        }
        match (letter.ended, letter.shown.is_empty()) {
            (None, true) => Some("accepted, and neither shown nor ended"),
            (None, false) => Some("shown, and its sender does not know"),
            (Some(_), _) => None,
        }
    }

    /// Looks again what is missing of a letter.
    fn look(&mut self, id: &str) {
        let letter = self.letters.get(id);
        match letter.and_then(|letter| self.missing(letter)) {
            Some(_) => self.open.insert(id.into()),
            None => self.open.remove(id),
        };
    }

    fn show(
        &mut self,
        now: Heard,
        (me, from): (&str, &str),
        (id, again): (&str, bool),
    ) -> Result<(), String> {
        let Some(letter) = self.letters.get(id) else {
            return Err("nobody wrote it".into());
        };
        if (letter.from.as_str(), letter.to.as_str()) != (from, me) {
            return Err(format!("{me} was shown it as from {from}"));
        }
        let forgot = |said: &Heard| self.forgot(me, *said, now.connected);
        if !again && !letter.shown.iter().all(forgot) {
            return Err("it was shown twice as new".into());
        }
        let (pair, order) = ((letter.from.clone(), letter.to.clone()), letter.order);
        if letter.shown.is_empty() {
            let last = self.shown.entry(pair).or_default();
            if order <= *last {
                return Err(format!(
                    "it is number {order} of its sender and came after {last}"
                ));
            }
            *last = order;
        }
        if let Some(letter) = self.letters.get_mut(id) {
            letter.shown.push(now);
        }
        Ok(())
    }

    fn tell(&mut self, now: Heard, id: &str, (state, seen): (&str, bool)) -> Result<(), String> {
        let Some(letter) = self.letters.get(id) else {
            return Err("a receipt for what nobody wrote".into());
        };
        let way = ["delivered", "pushed", "presented", "held", "forwarded"];
        match state {
            "acked" if letter.shown.is_empty() => {
                return Err("its sender was told that it was acked, and it was not shown".into());
            }
            "acked" if !seen && !self.was_under_way(letter) => {
                return Err("acked, and not seen".into());
            }
            "expired" | "refused" | "pushed" | "presented" | "held" => {
                return Err(format!("its sender was told {state}"));
            }
            "dead" if !letter.hopeless => return Err("its sender was told dead".into()),
            "forwarded" if domain(&letter.from) == domain(&letter.to) => {
                return Err("it was forwarded at home".into());
            }
            state if letter.hopeless && way.contains(&state) && state != "forwarded" => {
                return Err(format!("it is for nobody, and its sender was told {state}"));
            }
            _ => {}
        }
        let ends = ["acked", "dead"].contains(&state);
        if let Some(letter) = self.letters.get_mut(id) {
            let newer = |known: Heard| known.connected < now.connected;
            if letter.accepted.is_none_or(newer) && (ends || state == "accepted") {
                letter.accepted = Some(now);
            }
            if ends {
                letter.ended = Some(now);
            }
        }
        Ok(())
    }
}

impl Ledger {
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody writes to somebody.
    pub(super) fn write(&self, id: &str, from: &str, to: &str, hopeless: bool) {
        let mut book = self.lock();
        let written = book.written.entry((from.into(), to.into())).or_default();
        *written += 1;
        let letter = Letter {
            from: from.into(),
            to: to.into(),
            order: *written,
            hopeless,
            accepted: None,
            shown: Vec::new(),
            ended: None,
        };
        book.letters.insert(id.into(), letter);
        book.look(id);
    }

    /// Somebody is shown a message, on a connection that was made then: `(me, from)`, `(id, again)`.
    pub(super) fn shown(&self, connected: Instant, ends: (&str, &str), what: (&str, bool)) {
        let mut book = self.lock();
        let found = book.show(Heard::now(connected), ends, what);
        self.note(&mut book, what.0, found);
    }

    /// Its sender is told something of a message: `(state, seen)`.
    pub(super) fn told(&self, connected: Instant, id: &str, what: (&str, bool)) {
        let mut book = self.lock();
        let found = book.tell(Heard::now(connected), id, what);
        self.note(&mut book, id, found);
    }

    fn note(&self, book: &mut Book, id: &str, found: Result<(), String>) {
        if let Err(why) = found {
            let letter = format!("{:?}", book.letters.get(id));
            book.wrong.push(format!("{id}: {why}; {letter}"));
        }
        book.look(id);
        if book.open.is_empty() || !book.wrong.is_empty() {
            self.news.notify_all();
        }
    }

    /// A broker was killed, to come back from this backup.
    pub(super) fn restores(&self, domain: &str, backup: Instant) {
        let mut book = self.lock();
        book.restores.push(Restore {
            domain: domain.into(),
            backup,
            killed: Instant::now(),
        });
        let open = std::mem::take(&mut book.open);
        open.iter().for_each(|id| book.look(id));
    }

    /// How many messages there are, and how many were shown.
    pub(super) fn counts(&self) -> (usize, usize) {
        let book = self.lock();
        let shown = book.letters.values().filter(|it| !it.shown.is_empty());
        (book.letters.len(), shown.count())
    }

    /// Waits until nothing is missing, or something is wrong, or this is over. Gives what is.
    pub(super) fn settled(&self, patience: Duration) -> Result<(), String> {
        let unsettled = |book: &mut Book| book.wrong.is_empty() && !book.open.is_empty();
        let book = self.lock();
        let waited = self.news.wait_timeout_while(book, patience, unsettled);
        let (book, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let mut found = book.wrong.clone();
        for id in &book.open {
            let letter = &book.letters[id];
            let what = book.missing(letter).unwrap_or_default();
            found.push(format!("{id}: {what}; {letter:?}"));
        }
        match found.len() {
            0 => Ok(()),
            more => Err(format!(
                "{more} times:\n{}",
                found[..more.min(12)].join("\n")
            )),
        }
    }
}

const ALICE: &str = "alice@alpha";
const BOB: &str = "bob@gamma";

/// A message was accepted, and bob's broker is brought back from a backup; gives connections from before
/// and after that.
fn restored(shown_after_the_backup: bool) -> (Ledger, Instant, Instant) {
    let ledger = Ledger::default();
    ledger.write("m1", ALICE, BOB, false);
    let before = Instant::now();
    ledger.told(before, "m1", ("accepted", false));
    if !shown_after_the_backup {
        ledger.shown(before, (BOB, ALICE), ("m1", false));
    }
    let backup = Instant::now();
    if shown_after_the_backup {
        ledger.shown(before, (BOB, ALICE), ("m1", false));
    }
    ledger.restores("gamma", backup);
    (ledger, before, Instant::now())
}

#[test]
fn what_a_broker_forgot_may_come_once_more_as_new() {
    let (ledger, before, after) = restored(true);
    ledger.shown(after, (BOB, ALICE), ("m1", false));
    ledger.told(before, "m1", ("acked", true));
    assert_eq!(ledger.settled(Duration::ZERO), Ok(()));
    ledger.shown(Instant::now(), (BOB, ALICE), ("m1", false));
    let why = ledger.settled(Duration::ZERO).expect_err("twice");
    assert!(why.contains("shown twice as new"), "{why}");
}

#[test]
fn what_was_shown_before_the_backup_or_twice_in_one_life_may_not() {
    let (ledger, _, after) = restored(false);
    ledger.shown(after, (BOB, ALICE), ("m1", false));
    assert!(ledger.settled(Duration::ZERO).is_err());
    let (ledger, before, _) = restored(true);
    ledger.shown(before, (BOB, ALICE), ("m1", false));
    assert!(ledger.settled(Duration::ZERO).is_err());
}

#[test]
fn what_is_read_late_of_a_broker_that_was_killed_was_said_before() {
    let (ledger, before, after) = restored(true);
    ledger.write("m2", ALICE, BOB, false);
    ledger.told(before, "m2", ("accepted", false));
    ledger.shown(before, (BOB, ALICE), ("m2", false));
    ledger.shown(after, (BOB, ALICE), ("m2", false));
    ledger.told(before, "m1", ("acked", true));
    ledger.told(before, "m2", ("acked", true));
    assert_eq!(ledger.settled(Duration::ZERO), Ok(()));
}

#[test]
fn what_a_broker_takes_after_it_came_back_must_arrive() {
    let (ledger, ..) = restored(true);
    ledger.told(Instant::now(), "m1", ("acked", true));
    ledger.write("m2", BOB, ALICE, false);
    ledger.told(Instant::now(), "m2", ("accepted", false));
    let why = ledger.settled(Duration::ZERO).expect_err("it is missing");
    assert!(why.contains("m2: accepted, and neither shown"), "{why}");
}

#[test]
fn what_was_under_way_may_end_unseen_and_what_came_later_may_not() {
    let (ledger, before, after) = restored(false);
    ledger.told(before, "m1", ("acked", false));
    assert_eq!(ledger.settled(Duration::ZERO), Ok(()));
    ledger.write("m2", ALICE, BOB, false);
    // The connection of its sender is older: that one's broker was not killed.
    ledger.told(before, "m2", ("accepted", false));
    ledger.shown(after, (BOB, ALICE), ("m2", false));
    ledger.told(before, "m2", ("acked", false));
    let why = ledger.settled(Duration::ZERO).expect_err("it was not seen");
    assert!(why.contains("m2: acked, and not seen"), "{why}");
}
