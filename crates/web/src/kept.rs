//! What came for a peer, in order, until a reader confirms it: pure, so that it can be tested alone.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use peerbus_adapter::{Key, NoticeId};
use peerbus_wire::{escape_json, hex};
use sha2::{Digest as _, Sha256};

/// What is kept for readers that resume, and what may wait for a confirmation: events, and bytes of
/// them. Less than the window that the gateway's peers ask for.
const EVENTS_MAX: usize = 2_048;
const EVENTS_BYTES_MAX: usize = 8 * 1_048_576;
/// How much may be on its way to a reader without a confirmation: events, and bytes of their bodies.
pub(crate) const UNCONFIRMED_MAX: usize = 1_000;
pub(crate) const UNCONFIRMED_BYTES_MAX: usize = 2 * 1_048_576;
/// Events of an earlier process that readers named, and that have not come again yet, at most.
const NAMED_MAX: usize = 64;

/// What the broker is told once an event is confirmed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Ack(Key),
    Notice(NoticeId),
    Nothing,
}

/// Names an event in every process: 32 hex digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark(String);

impl Mark {
    /// Of what makes it this event and no other.
    pub(crate) fn of(texts: &[&str]) -> Self {
        let mut digits = digest(texts);
        digits.truncate(32);
        Self(digits)
    }

    /// Of this event behind those that another mark names.
    fn behind(&self, before: Option<Self>) -> Self {
        before.map_or_else(|| self.clone(), |before| Self::of(&[&before.0, &self.0]))
    }
}

/// 64 hex digits that these texts give, each time the same.
pub(crate) fn digest(texts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text);
    }
    hex::encode(hash.finalize().as_slice())
}

/// An event's id, as readers show it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Cursor<'a> {
    run: &'a str,
    number: u64,
    mark: Option<Mark>,
}

impl<'a> Cursor<'a> {
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let is_hex = |text: &str| {
            (1..=32).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        let mut parts = text.split('-');
        let run = parts.next().filter(|run| is_hex(run))?;
        let digits = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
        let number = parts.next().filter(digits)?.parse().ok()?;
        let mark = match parts.next() {
            None => None,
            Some(mark) => Some(Mark(is_hex(mark).then(|| mark.to_owned())?)),
        };
        parts.next().is_none().then_some(Self { run, number, mark })
    }
}

pub(crate) struct Told {
    /// As it is written: before it is taken without its id.
    pub(crate) text: Arc<str>,
    pub(crate) mark: Mark,
    /// Its mark behind those of what nobody had confirmed of its sender when it came. Who has had it was
    /// sent all of them, in whatever process.
    pub(crate) chain: Mark,
    /// Who sent it, if it is a message.
    pub(crate) from: Option<String>,
    /// Bytes of its body, as the broker counts them.
    pub(crate) bytes: usize,
    pub(crate) due: Due,
    pub(crate) confirmed: bool,
}

/// From where a reader goes on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Resumed {
    At(u64),
    /// Behind an event of an earlier process that has not come again yet, if it ever does.
    Behind(Mark),
    /// What followed was confirmed by others, and is not kept any more.
    Gone,
    Never,
}

#[derive(Default)]
pub(crate) struct Kept {
    /// What tells numbers of this process from those of the one before.
    run: String,
    /// The number of the first event that is kept.
    first: u64,
    events: VecDeque<Told>,
    bytes: usize,
    /// The last events that readers of an earlier process had.
    named: VecDeque<Mark>,
    /// The last chain of each sender, as long as nothing is confirmed.
    chains: BTreeMap<String, Mark>,
}

impl Kept {
    pub(crate) fn new(run: String) -> Self {
        Self {
            run,
            ..Self::default()
        }
    }

    /// The number of the event that comes next.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// Takes an event; gives what is due at once.
    pub(crate) fn push(&mut self, mut told: Told) -> Vec<Due> {
        let from = told.from.as_deref();
        let last = from.and_then(|from| self.chains.get(from)).cloned();
        let before = self.events.iter().filter(|event| event.is_from(from));
        let before = before.filter(|event| !event.confirmed);
        let chain = |chain, event: &Told| Some(event.mark.behind(chain));
        told.chain = told.mark.behind(last.or_else(|| before.fold(None, chain)));
        if let Some(at) = self.named.iter().position(|named| *named == told.chain) {
            self.named.remove(at);
            let mut all = self.confirm_sender(from, self.events.len());
            all.push(told.due);
            return all;
        }
        if let Some(from) = from {
            self.chains.insert(from.to_owned(), told.chain.clone());
        }
        let id = self.id(self.end(), &told.chain);
        told.text = format!("id: {id}\n{}", told.text).into();
        self.bytes += told.text.len();
        self.events.push_back(told);
        self.make_room();
        Vec::new()
    }

    fn id(&self, number: u64, Mark(mark): &Mark) -> String {
        format!("{}-{number}-{mark}", self.run)
    }

    /// The text of the event with a number, empty where none is to be written; the inner `None`: it has
    /// not come yet. The outer one: it was confirmed by others and forgotten.
    pub(crate) fn at(&self, number: u64) -> Option<Option<Arc<str>>> {
        let at = usize::try_from(number.checked_sub(self.first)?).unwrap_or(usize::MAX);
        Some(self.events.get(at).map(|event| Arc::clone(&event.text)))
    }

    /// The number of the first event that nobody confirmed.
    pub(crate) fn unconfirmed(&self) -> u64 {
        let confirmed = self.events.iter().take_while(|event| event.confirmed);
        self.first + confirmed.count() as u64
    }

    /// A reader has had this event: it and what came before it is confirmed. Gives what is due.
    pub(crate) fn resume(&mut self, cursor: Cursor<'_>) -> (Resumed, Vec<Due>) {
        if cursor.run != self.run {
            let Some(mark) = cursor.mark else {
                return (Resumed::At(self.unconfirmed()), Vec::new());
            };
            return self.name(mark);
        }
        let next = cursor.number.saturating_add(1);
        if next < self.first {
            return (Resumed::Gone, Vec::new());
        }
        if next > self.end() {
            return (Resumed::Never, Vec::new());
        }
        self.chains.clear();
        let count = usize::try_from(next - self.first).unwrap_or(usize::MAX);
        let due = self.events.iter_mut().take(count);
        let due = due.filter_map(Told::confirm).collect();
        (Resumed::At(next), due)
    }

    /// A reader of an earlier process had the event of this chain last: it, and what came before it of its
    /// sender. Where something else has come in between since, no chain is this one, and all comes again.
    fn name(&mut self, mark: Mark) -> (Resumed, Vec<Due>) {
        let Some(at) = self.events.iter().position(|event| event.chain == mark) else {
            self.named.retain(|named| *named != mark);
            self.named.push_back(mark.clone());
            if self.named.len() > NAMED_MAX {
                self.named.pop_front();
            }
            return (Resumed::Behind(mark), Vec::new());
        };
        let from = self.events.get(at).and_then(|event| event.from.clone());
        let mut due = self.confirm_sender(from.as_deref(), at);
        due.extend(self.confirm_unwritten(at));
        (Resumed::At(self.unconfirmed()), due)
    }

    /// Whether a reader named this event, and it has not come yet.
    pub(crate) fn awaits(&self, mark: &Mark) -> bool {
        self.named.contains(mark)
    }

    /// Confirms what a sender sent, of the first so many events.
    fn confirm_sender(&mut self, from: Option<&str>, count: usize) -> Vec<Due> {
        let all = self.events.iter().take(count).enumerate();
        let all: Vec<_> = all
            .filter(|(_, event)| event.is_from(from))
            .map(|(at, _)| at)
            .collect();
        all.into_iter()
            .filter_map(|at| self.confirm_unwritten(at))
            .collect()
    }

    /// Confirms an event. Nobody is written it from now on, unless somebody has confirmed it already.
    fn confirm_unwritten(&mut self, at: usize) -> Option<Due> {
        self.chains.clear();
        let event = self.events.get_mut(at)?;
        if !event.confirmed {
            self.bytes -= event.text.len();
            event.text = Arc::from("");
        }
        event.confirm()
    }

    /// What was written to a reader whose next event has this number, and is not confirmed: events and
    /// bytes of their bodies.
    pub(crate) fn under_way(&self, next: u64) -> (usize, usize) {
        let written = usize::try_from(next.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let written = self.events.iter().take(written);
        let waiting = written.filter(|event| !event.confirmed);
        waiting.fold((0, 0), |(events, bytes), event| {
            (events + 1, bytes + event.bytes)
        })
    }

    /// The id of the event before the one with this number.
    pub(crate) fn id_before(&self, number: u64) -> Option<String> {
        let number = number.checked_sub(1)?;
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let event = self.events.get(at)?;
        Some(self.id(number, &event.chain))
    }

    pub(crate) fn has_room(&self) -> bool {
        self.events.len() < EVENTS_MAX && self.bytes < EVENTS_BYTES_MAX
    }

    /// Drops the oldest events that were confirmed, as far as there is no room; whether there is some then.
    pub(crate) fn make_room(&mut self) -> bool {
        while !self.has_room() {
            let Some(event) = self.events.pop_front_if(|event| event.confirmed) else {
                return false;
            };
            self.bytes -= event.text.len();
            self.first += 1;
        }
        true
    }
}

impl Told {
    /// Of a kind, with one line of JSON.
    pub(crate) fn new(kind: &str, data: &str, mark: Mark, due: Due) -> Self {
        Self {
            text: format!("event: {kind}\ndata: {}\n\n", escape_json(data)).into(),
            chain: mark.clone(),
            mark,
            from: None,
            bytes: data.len(),
            due,
            confirmed: false,
        }
    }

    fn is_from(&self, from: Option<&str>) -> bool {
        from.is_some() && self.from.as_deref() == from
    }

    /// Gives what is due, the first time.
    fn confirm(&mut self) -> Option<Due> {
        self.confirmed = true;
        let due = std::mem::replace(&mut self.due, Due::Nothing);
        (due != Due::Nothing).then_some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(n: u128) -> Due {
        Due::Ack(Key::local(n))
    }

    /// Takes a message of a sender, the `n`th; gives what is due at once.
    fn push(kept: &mut Kept, from: &str, n: u128) -> Vec<Due> {
        let mark = Mark::of(&[from, &n.to_string()]);
        kept.push(Told {
            from: Some(from.to_owned()),
            bytes: 10,
            ..Told::new("message", &n.to_string(), mark, ack(n))
        })
    }

    /// The ids of what a reader gets from here on.
    fn ids(kept: &Kept, from: u64) -> Vec<String> {
        let all = (from..kept.end()).map(|number| kept.at(number).unwrap().unwrap());
        let id = |text: Arc<str>| Some(text.strip_prefix("id: ")?.lines().next()?.to_owned());
        all.filter_map(id).collect()
    }

    fn resume(kept: &mut Kept, cursor: &str) -> (Resumed, Vec<Due>) {
        kept.resume(Cursor::parse(cursor).unwrap())
    }

    #[test]
    fn what_a_reader_names_is_confirmed_with_what_came_before_it_and_nothing_else() {
        let mut kept = Kept::new("a".into());
        for n in 0..4 {
            assert_eq!(push(&mut kept, "bob", n), []);
        }
        let all = ids(&kept, 0);
        assert_eq!((kept.unconfirmed(), kept.under_way(3)), (0, (3, 30)));
        let resumed = resume(&mut kept, &all[1]);
        assert_eq!(resumed, (Resumed::At(2), vec![ack(0), ack(1)]));
        assert_eq!((kept.unconfirmed(), kept.under_way(3)), (2, (1, 10)));
        // Again, or by one who is behind: nothing more is due, and what follows is there.
        assert_eq!(resume(&mut kept, &all[0]), (Resumed::At(1), vec![]));
        assert_eq!(ids(&kept, 1), all[1..]);
        assert_eq!(resume(&mut kept, "a-7-0").0, Resumed::Never);
        assert_eq!(kept.id_before(2).as_ref(), Some(&all[1]));
    }

    #[test]
    fn what_comes_again_in_another_process_is_confirmed_for_the_sender_whose_order_is_known() {
        let mut before = Kept::new("a".into());
        for (from, n) in [("bob", 1), ("eve", 1), ("bob", 2), ("eve", 2)] {
            push(&mut before, from, n);
        }
        let cursor = ids(&before, 0)[2].clone();
        // The reader had bob's two and the first of eve's, in whatever order they come now.
        let mut kept = Kept::new("b".into());
        push(&mut kept, "eve", 1);
        push(&mut kept, "bob", 1);
        let mark = Cursor::parse(&cursor).unwrap().mark.unwrap();
        let resumed = resume(&mut kept, &cursor);
        assert_eq!(resumed, (Resumed::Behind(mark.clone()), vec![]));
        assert!(kept.awaits(&mark));
        assert_eq!(push(&mut kept, "bob", 2), [ack(1), ack(2)]);
        assert_eq!(push(&mut kept, "bob", 3), []);
        assert!(!kept.awaits(&mark));
        let left = ids(&kept, 0);
        assert_eq!(
            left.len(),
            2,
            "of eve the first, of bob the third: {left:?}"
        );
        // It may also have come already when the reader does.
        let mut kept = Kept::new("c".into());
        for (from, n) in [("bob", 1), ("eve", 1), ("bob", 2), ("bob", 3)] {
            push(&mut kept, from, n);
        }
        let resumed = resume(&mut kept, &cursor);
        assert_eq!(resumed, (Resumed::At(1), vec![ack(1), ack(2)]));
        assert_eq!(ids(&kept, 0).len(), 2);
        assert_eq!(resume(&mut kept, &cursor).1, [], "once");
    }

    #[test]
    fn what_comes_in_between_is_confirmed_for_no_reader_that_was_not_sent_it() {
        let mut before = Kept::new("a".into());
        push(&mut before, "bob", 2);
        let cursor = ids(&before, 0)[0].clone();
        // An older one of bob's comes by a name that ended meanwhile.
        let mut kept = Kept::new("b".into());
        push(&mut kept, "bob", 1);
        assert!(matches!(resume(&mut kept, &cursor).0, Resumed::Behind(_)));
        assert_eq!(push(&mut kept, "bob", 2), []);
        assert_eq!(ids(&kept, kept.unconfirmed()).len(), 2);
        // Or both are there when the reader comes.
        let mut kept = Kept::new("c".into());
        push(&mut kept, "bob", 1);
        push(&mut kept, "bob", 2);
        assert_eq!(resume(&mut kept, &cursor).1, []);
    }

    #[test]
    fn what_was_confirmed_when_an_event_came_is_not_waited_for() {
        let mut before = Kept::new("a".into());
        push(&mut before, "bob", 1);
        push(&mut before, "bob", 2);
        let first = ids(&before, 0)[0].clone();
        assert_eq!(resume(&mut before, &first), (Resumed::At(1), vec![ack(1)]));
        push(&mut before, "bob", 3);
        let third = ids(&before, 0)[2].clone();
        let mut kept = Kept::new("b".into());
        resume(&mut kept, &third);
        assert_eq!(push(&mut kept, "bob", 2), []);
        assert_eq!(push(&mut kept, "bob", 3), [ack(2), ack(3)]);
        assert_eq!(push(&mut kept, "bob", 4), []);
    }

    #[test]
    fn what_nobody_confirmed_is_kept_and_what_was_makes_room() {
        let mut kept = Kept::new("a".into());
        for n in 0..EVENTS_MAX as u128 {
            push(&mut kept, "bob", n);
        }
        assert!(!kept.has_room() && !kept.make_room());
        let all = ids(&kept, 0);
        assert_eq!(all.len(), EVENTS_MAX);
        resume(&mut kept, &all[9]);
        assert!(kept.make_room());
        assert_eq!(resume(&mut kept, &all[0]).0, Resumed::At(1));
        push(&mut kept, "bob", 5_000);
        push(&mut kept, "bob", 5_001);
        assert_eq!(kept.at(0), None);
        assert_eq!(resume(&mut kept, &all[0]).0, Resumed::Gone);
        assert_eq!(ids(&kept, kept.unconfirmed())[0], all[10]);
    }

    #[test]
    fn only_what_can_be_an_events_id_is_a_cursor() {
        let long = "a".repeat(33);
        for bad in [
            "", "a", "a-", "a-+1", "-1", "a-1-", "a-1-b-c", "g-1", "a-1-g", "a-1 ", &long,
        ] {
            assert_eq!(Cursor::parse(bad), None, "{bad}");
        }
        assert!(Cursor::parse("0af-17").is_some() && Cursor::parse("0af-17-9b").is_some());
    }
}
