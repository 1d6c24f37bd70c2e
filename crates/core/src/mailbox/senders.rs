//! Whose mail reaches the agent: what its user says about that, by the sender's name.

use std::collections::BTreeMap;
use std::sync::Arc;

use peerbus_wire::{PeerName, Stage};

use super::MailboxMachine;
use super::message::{Message, Place};
use super::mutation::MailboxMutation;
use super::types::{Content, Mail, MailboxOutput, No, Traits};
use crate::grant::NamePattern;
use crate::peer::{JobNews, Key};

/// Messages that wait for the user at a time, and their bodies in bytes. They fill the window, and
/// others' mail needs room there: of what is more, that of the sender with most of it is refused.
const WITHHELD_MAX: usize = 64;
const WITHHELD_BYTES_MAX: usize = 256 * 1024;

/// After so long the user is told again of a sender whose mail is turned away.
const WARN_AGAIN_MS: u64 = 600_000;

/// Senders of which that is remembered.
const WARNED_MAX: usize = 256;

/// For the sender of a message that waits for the recipient's user.
const WITHHELD: &str =
    "the recipient's user decides whether the agent sees mail of this sender, with `peerbus held`";

/// For the sender of a message that the user does not want.
const UNWANTED: &str = "the recipient takes no mail of this sender";
const DECLINED: &str = "the recipient's user declined this message";

/// For the sender of a message for one member of a group that vanishes at this one.
const NOT_HERE: &str = "this member of the group does not come to it";

/// For the sender of a message that would wait for the user, were there room.
const NO_ROOM: &str = "the recipient's user decides whether the agent sees mail of this sender, and too \
                       much waits for that already";

/// What is done with a sender's mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

/// Rules about senders. The first whose pattern fits counts; without one mail is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Senders(Arc<[(NamePattern, SenderRule)]>);

/// A rule that is none: what was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoRule(pub String);

impl Senders {
    /// Reads rules of the form `PATTERN=allow`, `hold`, `refuse` or `drop`.
    ///
    /// # Errors
    ///
    /// The first that is none.
    pub fn parse<'t>(rules: impl IntoIterator<Item = &'t str>) -> Result<Self, NoRule> {
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
        let read = rules.map(|text| rule(text).ok_or_else(|| NoRule(text.to_owned())));
        Ok(Self(read.collect::<Result<_, _>>()?))
    }

    /// What is done with mail of this sender.
    #[must_use]
    pub fn rule(&self, from: &PeerName) -> SenderRule {
        let fits = self.0.iter().find(|(pattern, _)| pattern.matches(from));
        fits.map_or(SenderRule::Allow, |(_, rule)| *rule)
    }
}

/// A message that waits for the user.
#[derive(Debug)]
struct Withheld {
    mail: Arc<Mail>,
    /// As in [`Message`].
    again: bool,
    parked: bool,
}

/// What waits for the user, and what was said of the rest.
#[derive(Debug, Default)]
pub(super) struct Door {
    senders: Senders,
    /// In order of arrival. Nothing of it is in the table: no path and no tool knows of it.
    withheld: BTreeMap<No, Withheld>,
    /// When the user was told of a sender last.
    warned: BTreeMap<String, u64>,
}

impl MailboxMachine {
    /// The user's rules from now on. What waits for the user is judged anew.
    pub fn set_senders(&mut self, now_ms: u64, senders: &Senders) {
        if self.door.senders == *senders {
            return;
        }
        self.advance(now_ms);
        self.door.senders = senders.clone();
        for (no, waiting) in std::mem::take(&mut self.door.withheld) {
            match self.rule(&waiting.mail) {
                SenderRule::Hold => {
                    self.door.withheld.insert(no, waiting);
                }
                SenderRule::Allow => self.let_in(no, waiting),
                rule => self.turn_away(now_ms, no, &waiting.mail, rule),
            }
        }
        self.finish(now_ms);
    }

    /// Whether a message that arrived may go on.
    pub(super) fn passes(&mut self, now_ms: u64, mail: &Arc<Mail>) -> bool {
        let rule = self.rule(mail);
        if rule == SenderRule::Allow {
            return true;
        }
        self.last += 1;
        let no = No(self.last);
        if rule == SenderRule::Hold {
            self.withhold(now_ms, no, mail);
        } else {
            self.turn_away(now_ms, no, mail, rule);
        }
        false
    }

    fn rule(&self, mail: &Mail) -> SenderRule {
        let from = PeerName::parse(&mail.inbound.from);
        from.map_or(SenderRule::Allow, |from| self.door.senders.rule(&from))
    }

    fn withhold(&mut self, now_ms: u64, no: No, mail: &Arc<Mail>) {
        let key = mail.inbound.key;
        let waiting = Withheld {
            mail: Arc::clone(mail),
            again: mail.inbound.again,
            parked: false,
        };
        if self.mutations.broken(MailboxMutation::ShowWithheld) {
            return self.let_in(no, waiting);
        }
        self.door.withheld.insert(no, waiting);
        for no in self.crowded_out() {
            if let Some(Withheld { mail, .. }) = self.door.withheld.remove(&no) {
                let (key, reason) = (mail.inbound.key, NO_ROOM);
                self.tell(&mail, MailboxOutput::Reject { no, key, reason });
                self.warn_of(now_ms, &mail, "is refused: too much waits for you already");
            }
        }
        if !self.door.withheld.contains_key(&no) {
            return;
        }
        let why = WITHHELD.to_owned();
        let stage = Stage::Held { why };
        self.tell(mail, MailboxOutput::Progress { no, key, stage });
        self.warn_of(now_ms, mail, "waits for you: `peerbus held` lists it");
    }

    fn turn_away(&mut self, now_ms: u64, no: No, mail: &Mail, rule: SenderRule) {
        let key = mail.inbound.key;
        if rule == SenderRule::Drop && mail.inbound.one {
            // Another member of the group may want it, and this one is not asked again.
            let reason = NOT_HERE;
            self.tell(mail, MailboxOutput::Reject { no, key, reason });
            return self.warn_of(now_ms, mail, "is dropped, as you have it");
        }
        if rule == SenderRule::Drop {
            self.outputs.push_back(MailboxOutput::Drop { no, key });
            return self.warn_of(now_ms, mail, "is dropped, as you have it");
        }
        let reason = UNWANTED;
        self.tell(mail, MailboxOutput::Reject { no, key, reason });
        self.warn_of(now_ms, mail, "is refused, as you have it");
    }

    /// Says so in the user's log, once in a while for each sender.
    fn warn_of(&mut self, now_ms: u64, mail: &Mail, what: &str) {
        let from = super::held::plain(&mail.inbound.from);
        let warned = &mut self.door.warned;
        warned.retain(|_, at| *at + WARN_AGAIN_MS > now_ms);
        if warned.contains_key(&from) || warned.len() >= WARNED_MAX {
            return;
        }
        warned.insert(from.clone(), now_ms);
        self.warn(&format!("mail of {from} {what}"));
    }

    /// As [`MailboxMachine::job`], of what waits for the user: it was not shown here.
    pub(super) fn withheld_job(&mut self, key: Key, news: JobNews) {
        let mut all = self.door.withheld.iter_mut();
        let found = all.find(|(_, waiting)| waiting.mail.inbound.key == key);
        let Some((&no, waiting)) = found else {
            return;
        };
        match news {
            JobNews::Doubted if !waiting.parked => waiting.parked = true,
            JobNews::Renewed { again } => {
                waiting.parked = false;
                waiting.again |= again;
            }
            JobNews::Recalled | JobNews::Doubted => {
                let again = waiting.again;
                self.door.withheld.remove(&no);
                self.outputs
                    .push_back(MailboxOutput::GiveBack { no, key, again });
            }
        }
    }

    /// What waits for the user, in order of arrival.
    pub fn withheld(&self) -> impl Iterator<Item = (No, &Arc<Mail>)> {
        let all = self.door.withheld.iter();
        all.map(|(no, waiting)| (*no, &waiting.mail))
    }

    /// What has no room among the mail that waits. Room goes to the first message of each token, of each
    /// other domain and of each sender, then to the second: so a sender of much takes it from nobody.
    /// Within a token, too, it goes to the first message of each sender, the shortest first. What is
    /// above half of all bytes for one of them has the room that is left.
    fn crowded_out(&self) -> Vec<No> {
        let mut senders = BTreeMap::<_, usize>::new();
        let all = self.door.withheld.iter();
        let mut ranked: Vec<_> = all
            .map(|(no, waiting)| {
                let inbound = &waiting.mail.inbound;
                let from = inbound.from.to_ascii_lowercase();
                let count = senders.entry(from.clone()).or_default();
                *count += 1;
                let party = inbound.party().unwrap_or(from);
                (*count, inbound.body.len(), *no, party)
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
        let Some(waiting) = self.door.withheld.remove(&no) else {
            return false;
        };
        self.advance(now_ms);
        if show {
            self.let_in(no, waiting);
        } else {
            let (key, reason) = (waiting.mail.inbound.key, DECLINED);
            self.tell(&waiting.mail, MailboxOutput::Reject { no, key, reason });
        }
        self.finish(now_ms);
        true
    }

    /// It is in the table from now on, where it would be had it passed at once.
    fn let_in(&mut self, no: No, waiting: Withheld) {
        let Withheld {
            mail,
            again,
            parked,
        } = waiting;
        let traits = Traits {
            priority: mail.talk.priority,
            bytes: mail.bytes,
            again,
        };
        let mut message = Message::new(Content::Mail(mail), traits, Place::New);
        message.parked = parked;
        self.messages.insert(no, message);
    }
}
