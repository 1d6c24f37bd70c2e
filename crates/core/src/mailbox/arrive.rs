//! What comes from the bus: messages, and what became of messages that this session sent.

use std::sync::Arc;

use peerbus_wire::{PeerName, Priority, Receipt, Stage};

use super::MailboxMachine;
use super::governor::Pause;
use super::message::{Message, Place};
use super::mutation::MailboxMutation;
use super::types::{Content, Mail, MailboxOutput, No, Traits};
use crate::peer::{JobNews, Key, NoticeId};

/// Notices that wait although the broker does not keep them; of these the oldest go first.
const PASSING_MAX: usize = 64;

impl MailboxMachine {
    /// A message arrived: the user's rules keep it out, or it is an answer that somebody waits for,
    /// or is held, or waits to be shown.
    pub fn message(&mut self, now_ms: u64, mut mail: Mail) {
        self.advance(now_ms);
        if let Ok(from) = PeerName::parse(&mail.inbound.from) {
            mail.talk.hops = self.hops_of(now_ms, &from.key(), &mail.talk);
        }
        let mail = Arc::new(mail);
        if !self.passes(now_ms, &mail) {
            return self.finish(now_ms);
        }
        let traits = Traits {
            priority: mail.talk.priority,
            bytes: mail.bytes,
            again: mail.inbound.again,
        };
        let mut message = Message::new(Content::Mail(mail.clone()), traits, Place::New);
        let expected = self.asks.expects(&mail, message.from.as_ref());
        if let Some(ask) = expected {
            if !self.mutations.broken(MailboxMutation::ShowExpected) {
                message.place = Place::Expected(ask);
            }
            self.insert(message);
            self.outputs.push_back(MailboxOutput::Answered(ask));
            return self.finish(now_ms);
        }
        let from = message.from.clone();
        let pause = from.as_ref();
        let pause = pause.and_then(|from| self.pause(now_ms, from, mail.talk.hops));
        if let Some(Pause { reason, tell }) = pause {
            self.hold(message, &mail, &reason, tell);
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
                JobNews::Doubted => message.parked = !message.may_be_shown(),
                JobNews::Renewed { again } => {
                    message.parked = false;
                    message.elsewhere |= again;
                }
            }
        }
        self.withheld_job(key, news);
        self.finish(now_ms);
    }

    fn give_back_job(&mut self, no: No) {
        let Some(message) = self.messages.remove(&no) else {
            return;
        };
        if let Some(mail) = message.content.mail() {
            let (key, again) = (
                mail.inbound.key,
                message.may_be_shown() || message.elsewhere,
            );
            self.outputs
                .push_back(MailboxOutput::GiveBack { no, key, again });
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
        let traits = Traits {
            priority,
            bytes: sentence.len(),
            again: false,
        };
        let sentence = sentence.into();
        let notice = Message::new(Content::Notice { sentence, token }, traits, Place::New);
        let no = self.insert(notice);
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
