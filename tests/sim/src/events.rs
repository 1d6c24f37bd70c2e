//! Worlds for the log of a session's events: a history of all kinds and sizes, and readers that are
//! quick, slow or stuck, choose, and come back with the number of the last event that they have. The
//! log is real. The oracle holds the whole history.

use std::panic::{AssertUnwindSafe, catch_unwind};

use peerbus_core::events::{BYTES_MAX, EVENTS_MAX, EventLog, EventLogMutation, Next};

use crate::failure::{Failure, Verdict, ensure};
use crate::rng::Rng;

/// Kinds of events.
const KINDS: u64 = 5;

/// An event: its number, its kind and its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Event {
    seq: u64,
    kind: u64,
    bytes: usize,
}

/// Somebody who reads.
#[derive(Debug)]
struct Reader {
    /// The last event that it has, or was told that it does not get.
    at: u64,
    /// Which kinds it wants.
    kinds: Vec<u64>,
    /// So often of a thousand it reads, and so much at a time.
    often: u64,
    most: u64,
    /// What it was given, in order.
    got: Vec<Event>,
    /// It was told of a gap.
    gap: bool,
}

impl Reader {
    fn draw(rng: &mut Rng, at: u64) -> Self {
        let all = rng.chance(500);
        Self {
            at,
            kinds: (0..KINDS).filter(|_| all || rng.chance(500)).collect(),
            often: rng.pick(&[0, 5, 100, 1_000]),
            most: rng.pick(&[1, 10, 10_000]),
            got: Vec::new(),
            gap: false,
        }
    }

    /// One that has everything at once.
    fn quick() -> Self {
        Self {
            at: 0,
            kinds: (0..KINDS).collect(),
            often: 1_000,
            most: u64::MAX,
            got: Vec::new(),
            gap: false,
        }
    }

    fn wants(&self, event: &Event) -> bool {
        self.kinds.contains(&event.kind)
    }
}

struct World {
    rng: Rng,
    log: EventLog<Event>,
    /// By number; `None`: nobody can be told of it.
    history: Vec<Option<Event>>,
    /// The first of them reads everything at once.
    readers: Vec<Reader>,
    /// What happened, in words.
    ends: Vec<&'static str>,
}

/// Runs the world of `seed`; gives what happened in it.
///
/// # Errors
///
/// With the first broken promise.
pub fn run_events(
    seed: u64,
    mutation: Option<EventLogMutation>,
) -> Result<Vec<&'static str>, Failure> {
    let mut log = EventLog::default();
    if let Some(mutation) = mutation {
        log.mutate(mutation);
    }
    let mut world = World {
        rng: Rng::new(seed),
        log,
        history: Vec::new(),
        readers: vec![Reader::quick()],
        ends: Vec::new(),
    };
    let ran = catch_unwind(AssertUnwindSafe(|| world.run()));
    match ran {
        Ok(verdict) => verdict.map(|()| world.ends),
        Err(panic) => Err(crate::run::asserted(panic.as_ref())),
    }
}

impl World {
    fn run(&mut self) -> Verdict {
        let steps = self.rng.range(100, 6_000);
        let large = self.rng.pick(&[0, 2, 50]);
        for _ in 0..steps {
            match self.rng.range(0, 999) {
                0..=2 => self.skip(),
                3..=6 => self.comes(),
                7..=9 => self.goes(),
                _ => self.happens(large),
            }
            self.bounded()?;
            for reader in 0..self.readers.len() {
                if self.rng.chance(self.readers[reader].often) {
                    self.reads(reader)?;
                }
            }
        }
        // Each gets the rest, the stuck ones, too.
        for reader in 0..self.readers.len() {
            self.readers[reader].most = u64::MAX;
            self.reads(reader)?;
        }
        self.same_as_who_stayed()
    }

    fn happens(&mut self, large: u64) {
        let bytes = match self.rng.range(0, 999) {
            n if n < large => self.rng.range(10_000, 300_000),
            0..=499 => 0,
            _ => self.rng.range(50, 1_500),
        };
        let event = Event {
            seq: self.history.len() as u64 + 1,
            kind: self.rng.range(0, KINDS - 1),
            bytes: usize::try_from(bytes).unwrap_or(0),
        };
        self.history.push(Some(event));
        self.log.push(event, event.bytes);
    }

    fn skip(&mut self) {
        let events = self.rng.range(0, 3);
        for _ in 0..events {
            self.history.push(None);
        }
        self.log.skip(events);
    }

    /// A reader comes, for what is new or for what it has not.
    fn comes(&mut self) {
        let last = self.log.last();
        let since = self.rng.range(0, last);
        let at = self.rng.pick(&[last, since]);
        let reader = Reader::draw(&mut self.rng, at);
        self.readers.push(reader);
    }

    fn goes(&mut self) {
        if self.readers.len() > 1 {
            let at = 1 + self.rng.index(self.readers.len() - 1);
            self.readers.swap_remove(at);
        }
    }

    /// What is kept is the end of the history, as much as fits and no more.
    fn bounded(&self) -> Verdict {
        let (mut count, mut bytes) = (0, 0);
        for event in self.history.iter().rev() {
            let Some(event) = event else { break };
            if count == EVENTS_MAX || bytes + event.bytes > BYTES_MAX {
                break;
            }
            count += 1;
            bytes += event.bytes;
        }
        let kept = self.log.kept();
        ensure(kept == (count, bytes), "bound", || {
            format!("{kept:?} is kept, not {:?}", (count, bytes))
        })?;
        let happened = self.history.len() as u64;
        ensure(self.log.last() == happened, "gap", || {
            format!("{happened} happened, the last is {}", self.log.last())
        })
    }

    fn reads(&mut self, which: usize) -> Verdict {
        let reader = &mut self.readers[which];
        for _ in 0..reader.most {
            let kinds = reader.kinds.clone();
            let next = self.log.after(reader.at, |e| kinds.contains(&e.kind));
            let before = usize::try_from(reader.at).unwrap_or(usize::MAX);
            // What lies between what it has and this number.
            let between = |seq: u64| {
                let to = usize::try_from(seq).unwrap_or(usize::MAX);
                self.history.get(before..to).unwrap_or_default().iter()
            };
            let silent = |seq: u64| {
                let lost = |event: &&Option<Event>| event.is_none_or(|event| reader.wants(&event));
                between(seq).find(lost).copied()
            };
            match next {
                Next::Event { seq, event } => {
                    ensure(seq > reader.at, "once", || {
                        format!("{event:?} comes again, after {}", reader.at)
                    })?;
                    ensure(event.seq == seq, "event", || format!("{event:?} as {seq}"))?;
                    ensure(reader.wants(event), "choice", || format!("{event:?}"))?;
                    let lost = silent(seq - 1);
                    // Still there: it comes too late, or never.
                    let rule = match lost.flatten() {
                        Some(lost) if lost.seq + self.log.kept().0 as u64 > self.log.last() => {
                            "order"
                        }
                        _ => "gap",
                    };
                    ensure(lost.is_none(), rule, || {
                        format!("{event:?} comes after {}, without {lost:?}", reader.at)
                    })?;
                    reader.got.push(*event);
                    reader.at = seq;
                }
                Next::Gap { seq, missed } => {
                    let kept = self.log.kept().0 as u64;
                    ensure(seq + kept == self.log.last(), "gap", || {
                        format!("a gap up to {seq}, while {kept} are kept")
                    })?;
                    let lost = between(seq).count() as u64;
                    ensure(missed >= lost && seq > reader.at, "gap", || {
                        format!("a gap of {missed}, and {lost} are lost")
                    })?;
                    self.ends.push("gap");
                    (reader.at, reader.gap) = (seq, true);
                }
                Next::Nothing(last) => {
                    let lost = silent(last);
                    ensure(last == self.log.last() && lost.is_none(), "gap", || {
                        format!("nothing up to {last}, without {lost:?}")
                    })?;
                    reader.at = last;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Whoever came with a number got what who stayed got, of what it wanted and was still kept.
    fn same_as_who_stayed(&mut self) -> Verdict {
        let stayed = self.readers[0].got.clone();
        // What is too large to be kept for a moment nobody gets.
        let fits = |event: &&Event| event.bytes <= BYTES_MAX;
        let all = stayed.iter().eq(self.history.iter().flatten().filter(fits));
        ensure(all, "replay", || {
            "who read at once did not get everything".into()
        })?;
        for reader in &self.readers[1..] {
            let Some(first) = reader.got.first() else {
                continue;
            };
            let replayed = stayed.iter().filter(|event| event.seq >= first.seq);
            let theirs: Vec<_> = replayed.filter(|event| reader.wants(event)).collect();
            let missed = theirs.len() - reader.got.len().min(theirs.len());
            let part = reader.got.iter().all(|event| theirs.contains(&event));
            ensure(part && (missed == 0 || reader.gap), "replay", || {
                format!("{:?} is not what happened", reader.got)
            })?;
            self.ends.push(match (reader.often, missed) {
                (0, _) => "stuck",
                (_, 0) => "whole",
                _ => "slow",
            });
        }
        Ok(())
    }
}
