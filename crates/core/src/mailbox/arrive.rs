//! What comes from the bus: messages, and what became of messages that this session sent.

use std::sync::Arc;

use peerbus_wire::{PeerName, Priority, Receipt, Stage};

use super::MailboxMachine;
use super::message::{Message, Place};
use super::mutation::MailboxMutation;
use super::senders::SenderRule;
use super::types::{Content, Mail, MailboxOutput, No};
use crate::peer::{JobNews, Key, NoticeId};

/// Notices that wait although the broker does not keep them; of these the oldest go first.
const PASSING_MAX: usize = 64;

impl MailboxMachine {
    /// A message arrived: the user's rules keep it out, or it is an answer that somebody waits for,
    /// or is held, or waits to be shown.
    pub fn message(&mut self, now_ms: u64, mut mail: Mail) {
        self.advance(now_ms);
        let from = PeerName::parse(&mail.inbound.from);
        let hops = from.map(|from| self.hops_of(now_ms, &from.key(), &mail.talk));
        if let Ok(hops) = hops {
            mail.talk.hops = hops.said;
        }
        let mail = Arc::new(mail);
        let mut message = Message::of(&mail);
        message.known_hops = hops.map_or(0, |hops| hops.known);
        let rule = self.rule(&mail);
        if rule != SenderRule::Allow {
            let no = self.insert(message);
            self.keep_out(now_ms, no, &mail, rule);
            return self.finish(now_ms);
        }
        let from = message.from.clone();
        if let Some(ask) = self.asks.expects(&mail, from.as_ref()) {
            if !self.mutations.broken(MailboxMutation::ShowExpected) {
                message.place = Place::Expected(ask);
            }
            self.insert(message);
            self.outputs.push_back(MailboxOutput::Answered(ask));
            return self.finish(now_ms);
        }
        let pause = |from| self.pause(now_ms, from, mail.talk.hops);
        if let Some(why) = from.as_ref().and_then(pause) {
            self.hold(now_ms, message, &mail, &why);
        } else {
            self.insert(message);
            if let Some(from) = from {
                self.release(&from);
            }
        }
        self.finish(now_ms);
    }

    /// The bus says something of a message for one member of a group. One that goes to another member
    /// leaves, whatever path may be showing it. One that may be another's by now waits for word, unless it
    /// was shown; of what no word came the last time nothing is shown any more.
    pub fn job(&mut self, now_ms: u64, key: Key, news: JobNews) {
        self.advance(now_ms);
        let found = self.messages.iter_mut().find(|(_, m)| m.is_of(key));
        if let Some((&no, message)) = found {
            match news {
                JobNews::Recalled => self.give_back_job(no),
                JobNews::Doubted if message.parked => self.give_back_job(no),
                JobNews::Doubted => {
                    message.parked = message.is_withheld() || !message.may_be_shown();
                }
                JobNews::Renewed { again } => {
                    message.parked = false;
                    message.elsewhere |= again;
                }
            }
        }
        self.finish(now_ms);
    }

    fn give_back_job(&mut self, no: No) {
        let Some(message) = self.messages.remove(&no) else {
            return;
        };
        if let Some(mail) = message.content.mail().cloned() {
            let again = message.may_be_shown() || message.elsewhere;
            self.outputs
                .push_back(MailboxOutput::GiveBack { mail, again });
        }
    }

    /// The broker says how far a message of this session's is. `sentence` says so to the agent, if
    /// it is worth that; `token`: the broker keeps the statement until it was told.
    pub fn receipt(
        &mut self,
        now_ms: u64,
        receipt: &Receipt,
        sentence: Option<&str>,
        token: Option<NoticeId>,
    ) {
        self.advance(now_ms);
        self.sent.answers_as(receipt);
        self.sent.reached(receipt);
        let priority = match receipt.stage {
            // What is lost or refused may need to be done otherwise.
            Stage::Refused(_) | Stage::Expired { .. } | Stage::Dead { .. } => Priority::Next,
            _ => Priority::Quiet,
        };
        match (sentence, token) {
            (Some(sentence), token) if self.is_news(now_ms, receipt) => {
                self.put_notice(sentence, token, priority);
            }
            // Not worth telling the agent.
            (_, Some(token)) => self.outputs.push_back(MailboxOutput::Told(token)),
            (_, None) => {}
        }
        self.finish(now_ms);
    }

    /// That a peer holds mail back is told once in a while, not for each message.
    fn is_news(&mut self, now_ms: u64, receipt: &Receipt) -> bool {
        match (&receipt.stage, &receipt.to) {
            (Stage::Held { .. }, Some(to)) => self.held_there.is_news(now_ms, to),
            _ => true,
        }
    }

    /// A sentence of the bus itself. It holds no peer's text that is not escaped and in quotes.
    pub fn notice(&mut self, now_ms: u64, sentence: &str, priority: Priority) {
        self.advance(now_ms);
        self.put_notice(sentence, None, priority);
        self.finish(now_ms);
    }

    pub(super) fn put_notice(
        &mut self,
        sentence: &str,
        token: Option<NoticeId>,
        priority: Priority,
    ) -> No {
        let sentence = sentence.into();
        let no = self.insert(Message::new(Content::Notice { sentence, token }, priority));
        let passing =
            |message: &&Message| matches!(message.content, Content::Notice { token: None, .. });
        if self.messages.values().filter(passing).count() > PASSING_MAX
            && let Some((&oldest, _)) = self.messages.iter().find(|(_, m)| passing(m))
        {
            // Nothing is owed for it: it counts as seen.
            self.seen_by_itself(oldest);
        }
        no
    }

    pub(super) fn insert(&mut self, message: Message) -> No {
        self.last += 1;
        let no = No(self.last);
        self.messages.insert(no, message);
        no
    }
}
