//! What was promised, and whether it came true.

use std::collections::{BTreeMap, BTreeSet};

use peerbus_core::store::{PeerId, PeerKind};
use peerbus_core::testing::Tables;
use peerbus_wire::{Envelope, How, MessageId, Remarks, Seq, Stage};

use super::home::Home;
use super::owed::Ends;
use crate::failure::{Failure, Verdict, ensure};

/// A message by its sender's bare name and its id.
pub(super) type Key = (String, String);

/// What is known of a message.
#[derive(Debug, Default)]
pub(super) struct Letter {
    pub(super) home: usize,
    /// The domain that it is for.
    pub(super) far: usize,
    /// The recipient's bare name.
    pub(super) to: String,
    /// Its place among all that was accepted; 0: it was not.
    pub(super) order: u64,
    /// Its broker was brought back from a backup that does not have it.
    pub(super) excused: bool,
    /// Somebody else uses its id, or nobody has the name in its `to`.
    pub(super) hopeless: bool,
    /// The far broker has it on disk, or had.
    pub(super) landed: bool,
    /// The far broker was brought back from a backup that does not have it.
    pub(super) forgotten: bool,
    /// A broker gave it to a connection of its recipient.
    pub(super) delivered: bool,
    /// When its recipient got it, each time.
    pub(super) got_ms: Vec<u64>,
    /// What its recipient said of it.
    pub(super) said: Vec<Stage>,
    /// Its sender was told that it is lost.
    pub(super) told_lost: bool,
    /// It is a request, for which so long a result is waited for.
    pub(super) within_ms: Option<u64>,
    /// Since when it is, at its first acceptance.
    pub(super) accepted_ms: Option<u64>,
    /// Its sender took it back.
    pub(super) withdrawn: bool,
    /// How its sender was told that it ended.
    pub(super) end: Option<Stage>,
    /// The request that it answers, and whether that failed.
    pub(super) answers: Option<(Key, bool)>,
}

impl Letter {
    /// What a domain that lies does with its own mail, or says of mail that is for it, is its own.
    pub(super) fn concerns(&self, liar: Option<usize>) -> bool {
        let of = |liar| liar == self.far || liar == self.home;
        self.home != self.far && liar.is_some_and(of)
    }
}

/// Everything that was promised.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    pub(super) letters: BTreeMap<Key, Letter>,
    pub(super) accepted: u64,
    /// The order of the last first delivery of each sender to each recipient, of messages and of
    /// requests.
    pub(super) last: BTreeMap<(String, String, bool), u64>,
    /// Marks that were seen: by home and far domain, the epoch and its number.
    pub(super) marks: BTreeMap<(usize, String), (String, u64)>,
    /// What brokers forgot, by home: from when a backup was made until it was brought back.
    pub(super) forgot_ms: BTreeMap<usize, Vec<(u64, u64)>>,
    pub(super) expires: bool,
    pub(super) liar: Option<usize>,
    /// How messages ended at each broker.
    pub(super) ends: Ends,
    /// When all trouble ended.
    pub(super) healed_ms: u64,
    /// What the world got to see.
    pub(super) seen: BTreeSet<&'static str>,
}

/// Sender's bare name and id of an envelope.
pub(super) fn key_of(envelope: &Envelope) -> Key {
    let from = envelope.from.split('@').next().unwrap_or_default();
    (from.to_owned(), envelope.id.clone())
}

impl Oracle {
    /// A peer is about to send a message.
    pub(super) fn sends(&mut self, key: Key, letter: Letter) {
        self.letters.insert(key, letter);
    }

    /// Looks at what a broker has committed.
    pub(super) fn look(&mut self, now_ms: u64, at: usize, home: &mut Home) -> Verdict {
        let tables = home.store.tables();
        let fresh = tables.messages.range(Seq(home.looked.0 + 1)..);
        let mut last = home.looked;
        for (seq, stored) in fresh {
            last = *seq;
            let Ok(decoded) = Envelope::decode(stored.envelope.as_bytes()) else {
                continue;
            };
            let key = key_of(&decoded.envelope);
            let Some(letter) = self.letters.get_mut(&key) else {
                return Err(Failure::new("from", format!("nobody sent {key:?}")));
            };
            if letter.home == at {
                self.accepted += 1;
                letter.order = self.accepted;
                // It was sent again, if its broker had forgotten it.
                letter.excused = false;
                letter.accepted_ms.get_or_insert(now_ms);
            } else {
                letter.landed = true;
                letter.forgotten = false;
                // Its recipient has not registered yet, or the database is older than that.
                let here = tables.peers.values().any(|row| row.name == letter.to);
                letter.hopeless |= !here;
                self.seen.insert("crossed");
            }
            self.answers(at, *seq, &key, tables)?;
            self.ends.message(at, *seq, key);
        }
        self.ends.look(at, tables);
        for row in tables.peers.values() {
            // What stands beside what was forwarded is an epoch.
            let mark = row.mark.as_ref().filter(|_| row.kind == PeerKind::Peer);
            let Some(mark) = mark else {
                continue;
            };
            let Some((epoch, number)) = mark.as_str().rsplit_once(':') else {
                continue;
            };
            let number: u64 = number.parse().unwrap_or_default();
            let known = self.marks.entry((at, row.name.clone())).or_default();
            let back = known.0 == epoch && number < known.1;
            ensure(!back, "mark", || {
                format!("{} of {at} goes back from {known:?} to {number}", row.name)
            })?;
            *known = (epoch.to_owned(), number);
        }
        home.looked = last;
        Ok(())
    }

    /// A broker was brought back from a backup.
    pub(super) fn restored(&mut self, at: usize, span_ms: (u64, u64), tables: &Tables) {
        self.forgot_ms.entry(at).or_default().push(span_ms);
        self.seen.insert("restored");
        self.marks.retain(|(home, _), _| *home != at);
        self.ends.restored(at, tables);
        let has = |key: &Key| {
            let mut kept = tables.messages.keys();
            kept.any(|seq| self.ends.key(at, *seq) == Some(key))
        };
        for (key, letter) in &mut self.letters {
            if letter.home == at && letter.order > 0 && !has(key) {
                letter.excused = true;
            }
            letter.forgotten |= letter.far == at && letter.landed && !has(key);
        }
    }

    /// A broker of this letter's was brought back from a backup.
    pub(super) fn was_restored(&self, letter: &Letter) -> bool {
        let ends = [letter.home, letter.far];
        ends.iter().any(|home| self.forgot_ms.contains_key(home))
    }

    /// A broker gives a message to a connection of its recipient.
    pub(super) fn delivers(&mut self, home: usize, key: &Key) {
        if let Some(letter) = self.letters.get_mut(key).filter(|it| it.far == home) {
            letter.delivered = true;
        }
    }

    /// A peer got a message.
    pub(super) fn gets(
        &mut self,
        now_ms: u64,
        (peer, from): (&str, &str),
        key: &Key,
        remarks: &Remarks,
    ) -> Verdict {
        let again = remarks.again;
        let Some(letter) = self.letters.get(key) else {
            return Err(Failure::new("from", format!("{peer} got {key:?}")));
        };
        let lies = letter.concerns(self.liar);
        // A broker that was brought back owes again what had ended since its backup.
        let ended = letter.told_lost || letter.withdrawn || letter.end.is_some();
        let late = self.was_restored(letter) && (ended || self.expires);
        let named = from.split_once('@').map(|(_, domain)| domain);
        let own = super::home::NAMES[letter.home];
        ensure(named.is_none_or(|domain| domain == own), "from", || {
            format!("{peer} got a message of {from}, who is of {own}")
        })?;
        ensure(letter.to == peer, "to", || {
            format!("{peer} got {key:?}, which is for {}", letter.to)
        })?;
        let spans = self.forgot_ms.get(&letter.far);
        let forgot = |at: &u64| {
            let mut spans = spans.into_iter().flatten();
            spans.any(|(from, until)| (from..=until).contains(&at))
        };
        let forgot = letter.got_ms.iter().all(forgot);
        ensure(again || forgot || lies, "once", || {
            format!("{peer} got {key:?} as new again")
        })?;
        let asks = letter.within_ms.is_some();
        ensure(asks == (remarks.within_ms > 0) || lies, "request", || {
            format!("{peer} got {key:?} as {remarks:?}: {letter:?}")
        })?;
        let (known, order) = (!letter.got_ms.is_empty(), letter.order);
        if let Some(letter) = self.letters.get_mut(key) {
            letter.got_ms.push(now_ms);
        }
        if known {
            let what = if again { "again" } else { "after restore" };
            self.seen.insert(what);
            return Ok(());
        }
        let pair = (key.0.clone(), peer.to_owned(), asks);
        let last = self.last.entry(pair).or_default();
        ensure(*last < order || lies || late, "order", || {
            format!("{peer} got {key:?} after a later one of the same sender")
        })?;
        *last = order;
        Ok(())
    }

    /// A recipient says something of a message.
    pub(super) fn says(&mut self, key: &Key, stage: &Stage) {
        if let Some(letter) = self.letters.get_mut(key) {
            letter.said.push(stage.clone());
        }
    }

    /// A sender is told something.
    pub(super) fn told(&mut self, now_ms: u64, key: &Key, stage: &Stage) -> Verdict {
        let expires = self.expires;
        let letter = self.letters.get(key);
        let restored = letter.is_some_and(|letter| self.was_restored(letter));
        let may_end = letter.is_some_and(|letter| self.may_end(now_ms, (key, letter), stage));
        let Some(letter) = self.letters.get_mut(key) else {
            return Ok(());
        };
        let abroad = letter.home != letter.far;
        let liar = letter.concerns(self.liar);
        letter.told_lost |= stage.is_lost();
        if abroad {
            self.seen.insert(match stage {
                Stage::Acked(Some(How::Seen { .. })) => "seen",
                stage => stage.word(),
            });
        }
        let said = letter.said.contains(stage);
        let true_ = match stage {
            Stage::Forwarded => letter.landed,
            // A broker says so of a connection that ends in the same moment, too.
            Stage::Delivered => letter.delivered || letter.landed || !abroad,
            Stage::Acked(None) => said || restored && letter.delivered,
            Stage::Pushed { .. } | Stage::Held { .. } | Stage::Presented { .. } => said,
            Stage::Acked(Some(_)) | Stage::Working { .. } => said,
            stage if stage.is_end() => may_end,
            // Not of a request, which ends in its own words.
            Stage::Dead { .. } | Stage::Expired { .. } if letter.within_ms.is_some() => false,
            Stage::Dead { .. } => said || letter.hopeless,
            Stage::Expired { .. } => expires,
            _ => true,
        };
        let rule = if letter.within_ms.is_some() && stage.is_end() {
            "request"
        } else {
            "stage"
        };
        ensure(true_ || liar, rule, || {
            format!("{key:?} is said to be {stage:?}: {letter:?}")
        })?;
        if !stage.is_end() {
            return Ok(());
        }
        let before = letter.end.replace(stage.clone());
        let once = before.as_ref().is_none_or(|before| before == stage);
        ensure(once || restored || liar, "request", || {
            format!("{key:?} ends as {stage:?} after it ended as {before:?}")
        })
    }

    /// Nothing is owed any more: what was accepted was got, or its sender knows that it was not.
    pub(super) fn finish(&self, homes: &[Home]) -> Verdict {
        for (key, letter) in &self.letters {
            let liar = letter.concerns(self.liar);
            let asks = letter.within_ms.is_some();
            if letter.order == 0 || letter.excused || liar || asks || !letter.got_ms.is_empty() {
                continue;
            }
            ensure(letter.told_lost, "lost", || {
                let end = ended(&homes[letter.home], key);
                format!("nobody got {key:?}, which ended as {end:?}: {letter:?}")
            })?;
        }
        Ok(())
    }
}

/// Whether a message of this number or id is owed to another domain.
pub(super) fn owed_abroad(tables: &Tables, number: u64, id: Option<&MessageId>) -> bool {
    let is_it = |seq: &Seq| match id {
        Some(id) => tables.messages.get(seq).is_some_and(|it| it.head.id == *id),
        None => seq.0 == number,
    };
    let abroad = |peer: &PeerId| {
        let row = tables.peers.get(peer);
        row.is_some_and(|row| row.name.contains('@'))
    };
    let mut owed = tables.deliveries.keys();
    owed.any(|(peer, _, seq)| is_it(seq) && abroad(peer))
}

/// How a message ended at home.
fn ended(home: &Home, key: &Key) -> Option<Stage> {
    let tables = home.store.tables();
    let mut all = tables.fates.values().flat_map(|row| &row.fates);
    let of = |seq: &Seq| {
        let stored = tables.messages.get(seq);
        let decoded = stored.and_then(|it| Envelope::decode(it.envelope.as_bytes()).ok());
        decoded.is_some_and(|it| key_of(&it.envelope) == *key)
    };
    let fate = all.find(|fate| of(&fate.seq))?;
    Some(Stage::clone(&fate.stage))
}
