//! What everybody wrote, was shown and was told, and what of that must not be.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a broker said before it was killed is read within this.
const READ_ON: Duration = Duration::from_secs(1);

/// A message.
#[derive(Debug)]
struct Letter {
    from: String,
    to: String,
    /// The how manyth from this sender to this recipient.
    order: usize,
    /// Its recipient does not exist.
    hopeless: bool,
    /// When its sender was told that it was accepted, first.
    accepted: Option<Instant>,
    /// When it was shown, first and last.
    shown: Option<(Instant, Instant)>,
    /// How it ended, as its sender was told, and when.
    ended: Option<(String, Instant)>,
}

/// A broker was brought back from a backup.
#[derive(Debug)]
struct Restore {
    domain: String,
    /// Before the backup began, and when the broker that went on had been killed.
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

impl Restore {
    fn forgot(&self, address: &str, at: Instant) -> bool {
        domain(address) == self.domain && (self.backup..=self.killed + READ_ON).contains(&at)
    }
}

impl Book {
    /// The broker of this address forgot what happened then.
    fn forgot(&self, address: &str, at: Instant) -> bool {
        self.restores.iter().any(|one| one.forgot(address, at))
    }

    /// A broker forgot something while this was under way.
    fn was_under_way(&self, letter: &Letter) -> bool {
        let ends = letter.ended.as_ref().map(|(_, at)| *at);
        self.restores.iter().any(|one| {
            let of = [&letter.from, &letter.to].map(|it| domain(it));
            let before = letter.accepted.is_none_or(|at| at <= one.killed);
            let after = ends.is_none_or(|at| at >= one.backup);
            of.contains(&&*one.domain) && before && after
        })
    }

    /// What is missing of a letter.
    fn missing(&self, letter: &Letter) -> Option<&'static str> {
        let Some(accepted) = letter.accepted else {
            return Some("not accepted");
        };
        // Its home forgot that it ever took it: nobody needs to hear of it again.
        if self.forgot(&letter.from, accepted) {
            return None;
        }
        match (&letter.ended, letter.shown) {
            (None, None) => Some("accepted, and neither shown nor ended"),
            (None, Some(_)) => Some("shown, and its sender does not know"),
            (Some(_), _) => None,
        }
    }

    fn show(&mut self, me: &str, from: &str, id: &str, again: bool) -> Result<(), String> {
        let now = Instant::now();
        let Some(letter) = self.letters.get(id) else {
            return Err("nobody wrote it".into());
        };
        if (letter.from.as_str(), letter.to.as_str()) != (from, me) {
            return Err(format!("{me} was shown it as from {from}"));
        }
        let (pair, order) = ((letter.from.clone(), letter.to.clone()), letter.order);
        match letter.shown {
            Some((_, last)) if !again && !self.forgot(me, last) => {
                return Err("it was shown twice as new".into());
            }
            Some(_) => {}
            None => {
                let last = self.shown.entry(pair).or_default();
                if order <= *last {
                    return Err(format!(
                        "it is number {order} of its sender and came after {last}"
                    ));
                }
                *last = order;
            }
        }
        if let Some(letter) = self.letters.get_mut(id) {
            letter.shown = Some((letter.shown.map_or(now, |(first, _)| first), now));
        }
        Ok(())
    }

    fn tell(&mut self, id: &str, state: &str, seen: bool) -> Result<(), String> {
        let now = Instant::now();
        let Some(letter) = self.letters.get(id) else {
            return Err("a receipt for what nobody wrote".into());
        };
        match state {
            "acked" if letter.shown.is_none() => {
                return Err("its sender was told that it was acked, and it was not shown".into());
            }
            "acked" if !seen && !self.was_under_way(letter) => {
                return Err("acked, and not seen".into());
            }
            "expired" | "refused" => return Err(format!("its sender was told {state}")),
            "dead" if !letter.hopeless => return Err("its sender was told dead".into()),
            _ => {}
        }
        let ends = ["acked", "dead"].contains(&state);
        if let Some(letter) = self.letters.get_mut(id) {
            if letter.accepted.is_none() && ["accepted", "acked", "dead"].contains(&state) {
                letter.accepted = Some(now);
            }
            if ends {
                letter.ended = Some((state.to_owned(), now));
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
            shown: None,
            ended: None,
        };
        book.letters.insert(id.into(), letter);
    }

    /// `me` is shown a message.
    pub(super) fn shown(&self, me: &str, from: &str, id: &str, again: bool) {
        let mut book = self.lock();
        let found = book.show(me, from, id, again);
        self.note(&mut book, id, found);
    }

    /// Its sender is told something of a message.
    pub(super) fn told(&self, id: &str, state: &str, seen: bool) {
        let mut book = self.lock();
        let found = book.tell(id, state, seen);
        self.note(&mut book, id, found);
    }

    fn note(&self, book: &mut Book, id: &str, found: Result<(), String>) {
        if let Err(why) = found {
            let letter = format!("{:?}", book.letters.get(id));
            book.wrong.push(format!("{id}: {why}; {letter}"));
        }
        self.news.notify_all();
    }

    /// A broker was killed, to come back from this backup.
    pub(super) fn restores(&self, domain: &str, backup: Instant) {
        self.lock().restores.push(Restore {
            domain: domain.into(),
            backup,
            killed: Instant::now(),
        });
    }

    /// How many messages there are, and how many were shown.
    pub(super) fn counts(&self) -> (usize, usize) {
        let book = self.lock();
        let shown = book.letters.values().filter(|it| it.shown.is_some());
        (book.letters.len(), shown.count())
    }

    /// Waits until nothing is missing, or something is wrong, or this is over. Gives what is.
    pub(super) fn settled(&self, patience: Duration) -> Result<(), String> {
        let unsettled = |book: &mut Book| {
            let missing = |letter: &Letter| book.missing(letter).is_some();
            book.wrong.is_empty() && book.letters.values().any(missing)
        };
        let book = self.lock();
        let waited = self.news.wait_timeout_while(book, patience, unsettled);
        let (book, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let mut found = book.wrong.clone();
        for (id, letter) in &book.letters {
            if let Some(what) = book.missing(letter) {
                found.push(format!("{id}: {what}; {letter:?}"));
            }
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
