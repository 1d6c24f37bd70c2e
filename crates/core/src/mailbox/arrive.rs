//! What comes from the bus: messages, and what became of messages that this session sent.

use std::sync::Arc;

use peerbus_wire::{NameKey, Priority, Receipt, Stage};

use super::Mailbox;
use super::governor::{Arrival, Verdict};
use super::message::{Message, Place};
use super::mutation::Mutation;
use super::types::{Content, Mail, No, Output, Traits};
use crate::peer::{JobNews, Key, NoticeId};

/// Notices that wait although the broker does not keep them; of these the oldest go first.
const PASSING_MAX: usize = 64;

/// After so long the agent is told again that a peer holds its mail.
const TELL_AGAIN_MS: u64 = 600_000;

impl Mailbox {
    /// A message arrived: the user's rules keep it out, or it is an answer that somebody waits for,
    /// or is held, or waits to be shown.
    pub fn message(&mut self, now_ms: u64, mail: Arc<Mail>) {
        self.advance(now_ms);
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
            if !self.mutations.broken(Mutation::ShowExpected) {
                message.place = Place::Expected(ask);
            }
            self.insert(message);
            self.outputs.push_back(Output::Answered(ask));
            return self.finish(now_ms);
        }
        match self.judge(now_ms, &mail, message.from.as_ref()) {
            Verdict::Pass => {
                let from = message.from.clone();
                self.insert(message);
                if let Some(from) = from {
                    self.release(&from);
                }
            }
            Verdict::Hold { reason, tell } => self.hold(message, &mail, &reason, tell),
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
            self.outputs.push_back(Output::GiveBack { no, key, again });
        }
    }

    fn judge(&mut self, now_ms: u64, mail: &Mail, from: Option<&NameKey>) -> Verdict {
        let (Some(governor), Some(from)) = (&mut self.governor, from) else {
            return Verdict::Pass;
        };
        let chained = self.turns.chained(now_ms);
        // An answer is held by none that its sender was shown by others.
        let question = mail.talk.reply_to.as_ref();
        let answer = question.and_then(|id| self.sent.answer_hops(id.as_str(), from));
        let arrival = Arrival {
            from,
            thread: mail.talk.thread.as_deref(),
            hops: mail.talk.hops.min(answer.unwrap_or(u32::MAX)),
        };
        governor.judge(now_ms, &arrival, chained)
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
        self.answers_as(now_ms, receipt);
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
            (_, Some(token)) => self.outputs.push_back(Output::Told(token)),
            (_, None) => {}
        }
        self.finish(now_ms);
    }

    /// That a peer holds mail back is told once in a while, not for each message.
    fn is_news(&mut self, now_ms: u64, receipt: &Receipt) -> bool {
        let (Stage::Held { .. }, Some(to)) = (&receipt.stage, &receipt.to) else {
            return true;
        };
        self.held_there
            .retain(|_, told_ms| *told_ms + TELL_AGAIN_MS > now_ms);
        self.held_there.insert(to.clone(), now_ms).is_none()
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
