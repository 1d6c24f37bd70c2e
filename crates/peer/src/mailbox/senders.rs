//! Whose mail reaches the agent: what its user says about that, by the sender's name.

use std::collections::BTreeMap;
use std::sync::Arc;

use peerbus_wire::{PeerName, Stage};

use super::MailboxMachine;
use super::message::{Message, Place};
use super::mutation::MailboxMutation;
use super::types::{Mail, No};
use peerbus_core::grant::NamePattern;

/// Messages that wait for the user at a time, and their bodies in bytes. They fill the window, and
/// others' mail needs room there: of what is more, that of the sender with most of it is refused.
const WITHHELD_MAX: usize = 64;
const WITHHELD_BYTES_MAX: usize = 256 * 1024;

/// For the sender of a message that waits for the recipient's user.
const WITHHELD: &str =
    "the recipient's user decides whether the agent sees mail of this sender, with `peerbus held`";

/// The same, once the user has.
const RELEASED: &str = "released: the recipient's user lets the agent see it, in its turn";

/// For the sender of a message that the user does not want.
const UNWANTED: &str = "the recipient takes no mail of this sender";
const DECLINED: &str = "the recipient's user declined this message";

/// For the sender of a message for one member of a group that vanishes at this one.
const NOT_HERE: &str = "this member of the group does not come to it";

/// For the sender of a message that would wait for the user, were there room.
const NO_ROOM: &str = "the recipient's user decides whether the agent sees mail of this sender, and too \
                       much waits for that already";

/// What is done with a sender's mail, the mildest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SenderRule {
    /// The agent gets it.
    Allow,
    /// The user decides about each message.
    Hold,
    /// It is refused, and its sender is told.
    Refuse,
    /// It vanishes. Its sender is told that it was acked, and nothing more.
    Drop,
}

/// Lists of rules about senders. Of each the first whose pattern fits counts; without one mail is allowed. Of
/// several lists the strictest counts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Senders(Arc<[Vec<(NamePattern, SenderRule)>]>);

impl Senders {
    /// Reads rules of the form `PATTERN=allow`, `hold`, `refuse` or `drop`.
    ///
    /// # Errors
    ///
    /// The first that is none.
    pub fn parse<'t>(rules: impl IntoIterator<Item = &'t str>) -> Result<Self, &'t str> {
        let rule = |text: &str| {
            let (pattern, word) = text.split_once('=')?;
            let rule = match word.trim() {
                "allow" => SenderRule::Allow,
                "hold" => SenderRule::Hold,
                "refuse" => SenderRule::Refuse,
                "drop" => SenderRule::Drop,
                _ => return None,
            };
            Some((NamePattern::parse(pattern.trim())?, rule))
        };
        let rules = rules.into_iter();
        let read = rules.map(|text| rule(text).ok_or(text));
        Ok(Self([read.collect::<Result<_, _>>()?].into()))
    }

    /// These and those.
    #[must_use]
    pub fn and(&self, others: &Self) -> Self {
        Self(self.0.iter().chain(&*others.0).cloned().collect())
    }

    /// What is done with mail of this sender.
    #[must_use]
    pub fn rule(&self, from: &PeerName) -> SenderRule {
        let fits = |(pattern, rule): &&(NamePattern, SenderRule)| match rule {
            SenderRule::Allow => pattern.matches(from),
            _ => pattern.covers(from),
        };
        let rules = self.0.iter().filter_map(|list| list.iter().find(fits));
        let strictest = rules.map(|(_, rule)| *rule).max();
        strictest.unwrap_or(SenderRule::Allow)
    }
}

impl MailboxMachine {
    /// The user's rules from now on. What waits for the user is judged anew.
    pub fn set_senders(&mut self, now_ms: u64, senders: &Senders) {
        if self.senders == *senders {
            return;
        }
        self.advance(now_ms);
        self.senders = senders.clone();
        let waiting = self.withheld().map(|(no, mail)| (no, Arc::clone(mail)));
        for (no, mail) in waiting.collect::<Vec<_>>() {
            match self.rule(&mail) {
                SenderRule::Hold => {}
                SenderRule::Allow => self.let_in(no),
                rule => self.turn_away(now_ms, no, &mail, rule),
            }
        }
        self.finish(now_ms);
    }

    pub(super) fn rule(&self, mail: &Mail) -> SenderRule {
        let from = PeerName::parse(&mail.inbound.from);
        from.map_or(SenderRule::Allow, |from| self.senders.rule(&from))
    }

    /// The agent does not get a message that arrived: not now, or not at all.
    pub(super) fn keep_out(&mut self, now_ms: u64, no: No, mail: &Arc<Mail>, rule: SenderRule) {
        if rule != SenderRule::Hold {
            return self.turn_away(now_ms, no, mail, rule);
        }
        if self.mutations.broken(MailboxMutation::ShowWithheld) {
            return;
        }
        if let Some(message) = self.messages.get_mut(&no) {
            message.place = Place::Withheld;
        }
        for no in self.crowded_out() {
            if let Some(mail) = self.reject(no, NO_ROOM) {
                self.warn_of(now_ms, &mail, "is refused: too much waits for you already");
            }
        }
        if self.messages.contains_key(&no) {
            let why = WITHHELD.to_owned();
            self.tell(mail, Stage::Held { why });
            self.warn_of(now_ms, mail, "waits for you: `peerbus held` lists it");
        }
    }

    /// Its sender is told that the agent does not get it.
    fn reject(&mut self, no: No, why: &str) -> Option<Arc<Mail>> {
        let why = why.to_owned();
        self.ends(no, Stage::Dead { why })
    }

    fn turn_away(&mut self, now_ms: u64, no: No, mail: &Mail, rule: SenderRule) {
        let what = match rule {
            // Another member of the group may want it, and this one is not asked again.
            SenderRule::Drop if mail.inbound.one => {
                self.reject(no, NOT_HERE);
                "is dropped, as you have it"
            }
            SenderRule::Drop => {
                self.ends(no, Stage::Acked(None));
                "is dropped, as you have it"
            }
            _ => {
                self.reject(no, UNWANTED);
                "is refused, as you have it"
            }
        };
        self.warn_of(now_ms, mail, what);
    }

    /// Says so in the user's log, once in a while for each sender.
    fn warn_of(&mut self, now_ms: u64, mail: &Mail, what: &str) {
        let from = super::held::plain(&mail.inbound.from);
        if self.warned.is_due(now_ms, &from) {
            self.warn(&format!("mail of {from} {what}"));
        }
    }

    /// What waits for the user, in order of arrival.
    pub fn withheld(&self) -> impl Iterator<Item = (No, &Arc<Mail>)> {
        let all = self.messages.iter().filter(|(_, m)| m.is_withheld());
        all.filter_map(|(no, message)| Some((*no, message.content.mail()?)))
    }

    /// What has no room among the mail that waits. Room goes to the first message of each token, of each
    /// other domain and of each sender, then to the second: so a sender of much takes it from nobody.
    /// Within a token, too, it goes to the first message of each sender, the shortest first. What is
    /// above half of all bytes for one of them has the room that is left.
    fn crowded_out(&self) -> Vec<No> {
        let mut senders = BTreeMap::<_, usize>::new();
        let mut ranked: Vec<_> = self
            .withheld()
            .map(|(no, mail)| {
                let inbound = &mail.inbound;
                let from = inbound.from.to_ascii_lowercase();
                let count = senders.entry(from.clone()).or_default();
                *count += 1;
                let party = inbound.party().unwrap_or(from);
                (*count, inbound.body.len(), no, party)
            })
            .collect();
        ranked.sort_unstable();
        let mut parties = BTreeMap::<_, (usize, usize)>::new();
        let mut turns: Vec<_> = ranked
            .into_iter()
            .map(|(_, bytes, no, party)| {
                let (messages, sum) = parties.entry(party).or_default();
                *messages += 1;
                *sum += bytes;
                (*sum > WITHHELD_BYTES_MAX / 2, *messages, bytes, no)
            })
            .collect();
        turns.sort_unstable();
        let (mut messages, mut sum) = (0, 0_usize);
        let has_no_room = |(_, _, bytes, _): &(bool, usize, usize, No)| {
            let has_room =
                messages == 0 || messages < WITHHELD_MAX && sum + bytes <= WITHHELD_BYTES_MAX;
            messages += usize::from(has_room);
            sum += if has_room { *bytes } else { 0 };
            !has_room
        };
        let out = turns.into_iter().filter(has_no_room);
        out.map(|(.., no)| no).collect()
    }

    /// The user decides: the agent gets it, or its sender is told that it does not. False: it does
    /// not wait any more.
    pub fn decide(&mut self, now_ms: u64, no: No, show: bool) -> bool {
        self.advance(now_ms);
        if !self.messages.get(&no).is_some_and(Message::is_withheld) {
            return false;
        }
        match show {
            true => self.let_in(no),
            false => _ = self.reject(no, DECLINED),
        }
        self.finish(now_ms);
        true
    }

    /// It is where it would be had it passed at once.
    fn let_in(&mut self, no: No) {
        let Some(message) = self.messages.get_mut(&no) else {
            return;
        };
        message.place = Place::New;
        if let Some(mail) = message.content.mail().cloned() {
            let why = RELEASED.to_owned();
            self.tell(&mail, Stage::Held { why });
        }
    }
}
