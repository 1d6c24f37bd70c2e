//! What comes from the bus: messages, and what became of messages that this session sent.

use std::sync::Arc;

use peerbus_wire::{MessageId, NameKey, PeerName, Priority, Receipt, Stage};

use super::MailboxMachine;
use super::message::{Cause, Message, Place};
use super::mutation::MailboxMutation;
use super::senders::SenderRule;
use super::types::{ASK, AskId, Attempt, Content, Mail, MailboxOutput, No, Portion};
use crate::session::NoticeId;

/// How far so many messages got is kept for the next thing that is shown.
const RECEIPTS_MAX: usize = 10;

/// Notices that wait although the broker does not keep them; of these the oldest go first.
const PASSING_MAX: usize = 64;

impl MailboxMachine {
    /// A message arrived: the user's rules keep it out, or it is an answer that somebody waits for,
    /// or is held, or waits to be shown.
    /// One that is here already is this session's for another while.
    pub fn message(&mut self, now_ms: u64, mut mail: Mail) {
        self.advance(now_ms);
        if self.renew(now_ms, &mail) {
            return self.finish(now_ms);
        }
        let from = PeerName::parse(&mail.inbound.from).map(|from| from.key());
        mail.answers = from
            .as_ref()
            .is_ok_and(|from| self.is_answer(from, &mail.talk));
        let hops = from.map(|from| self.hops_of(now_ms, &from, &mail.talk));
        if let Ok(hops) = hops {
            mail.talk.hops = hops.said;
        }
        let mail = Arc::new(mail);
        let mut message = Message::of(&mail);
        message.lease(now_ms, &mail);
        message.known_hops = hops.map_or(0, |hops| hops.known);
        let rule = self.rule(&mail);
        if rule != SenderRule::Allow {
            let no = self.insert(message);
            self.keep_out(now_ms, no, &mail, rule);
            return self.finish(now_ms);
        }
        let from = message.from.clone();
        let mut result = |from| self.sent.takes_result(from, &mail.talk);
        let is_result = from.as_ref().is_some_and(&mut result);
        let pause = |from| self.pause(now_ms, from, mail.talk.hops);
        let why = from.as_ref().filter(|_| !is_result).and_then(pause);
        let careless = self.mutations.broken(MailboxMutation::TrustAnswers);
        let expected = self.asks.expects(&mail, from.as_ref(), careless);
        // A mere claim passes no pause.
        if let Some((ask, is_theirs)) = expected.filter(|(_, theirs)| *theirs || why.is_none()) {
            if !self.mutations.broken(MailboxMutation::ShowExpected) {
                message.place = Place::Expected(ask);
            }
            self.insert(message);
            self.outputs.push_back(match is_theirs {
                true => MailboxOutput::Answered(ask),
                false => MailboxOutput::Claimed(ask),
            });
            return self.finish(now_ms);
        }
        if let Some(why) = why {
            self.hold(now_ms, message, &mail, &why);
        } else {
            self.insert(message);
            if let Some(from) = from {
                self.release(&from);
            }
        }
        self.finish(now_ms);
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
        self.learn_name(receipt);
        self.sent.ended(receipt);
        self.note(receipt);
        self.asks.end(receipt);
        self.judge(receipt);
        let priority = match &receipt.stage {
            // What is lost, refused or without a result may need to be done otherwise; a result that
            // found no room is read where it is kept.
            Stage::Refused(_) => Priority::Next,
            stage if stage.is_lost() || stage.is_end() => Priority::Next,
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

    /// A message of this session's got further: the newest of each is kept.
    fn note(&mut self, receipt: &Receipt) {
        if !matches!(
            receipt.stage,
            Stage::Pushed { .. } | Stage::Presented { .. } | Stage::Acked { .. }
        ) {
            return;
        }
        let same = |known: &Receipt| {
            known.id == receipt.id && known.to.as_deref() == receipt.to.as_deref()
        };
        self.receipts.retain(|(known, _)| !same(known));
        if self.receipts.len() >= RECEIPTS_MAX {
            self.receipts.pop_front();
        }
        self.receipts.push_back((receipt.clone(), true));
    }

    /// The stages that messages of this session's reached since this was asked last: the newest of
    /// each, at most ten. They go along with the next thing that the agent is shown.
    pub fn take_receipts(&mut self) -> Vec<Receipt> {
        let new = self.receipts.iter_mut();
        let new = new.filter_map(|(receipt, new)| std::mem::take(new).then(|| receipt.clone()));
        new.collect()
    }

    /// The newest stages of messages of this session's, at most ten.
    pub fn receipts(&self) -> impl Iterator<Item = &Receipt> {
        self.receipts.iter().map(|(receipt, _)| receipt)
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

#[derive(Debug, Default)]
pub(super) struct Asks {
    waiting: Vec<Waiting>,
    last: u64,
}

#[derive(Debug)]
struct Waiting {
    ask: AskId,
    question: MessageId,
    /// The peer that was asked; `None`: one of a group,
    asked: Option<NameKey>,
    /// that has it by the broker's word,
    holder: Option<NameKey>,
    /// and its result by that.
    result: Option<MessageId>,
    /// So many messages claimed to answer it before the broker said who has it.
    claims: usize,
    answered: bool,
    /// The broker said that it has ended.
    ended: bool,
}

impl Asks {
    /// The question that this message answers, or, as long as nobody knows who has it, claims to answer.
    fn expects(
        &mut self,
        mail: &Mail,
        from: Option<&NameKey>,
        careless: bool,
    ) -> Option<(AskId, bool)> {
        let question = mail.talk.reply_to.as_ref()?;
        let mut waiting = self.waiting.iter_mut();
        waiting.find_map(|waiting| {
            if waiting.answered || waiting.question != *question {
                return None;
            }
            match waiting.is_theirs(mail, from) {
                _ if careless && waiting.asked.is_none() => waiting.answered = true,
                Some(true) => waiting.answered = true,
                Some(false) => return None,
                None => waiting.claims += 1,
            }
            Some((waiting.ask, waiting.answered))
        })
    }

    /// A question may end with this.
    fn end(&mut self, receipt: &Receipt) {
        let ends = receipt.stage.is_lost() || receipt.stage.is_end();
        for waiting in &mut self.waiting {
            waiting.ended |= ends && waiting.question == receipt.id;
        }
    }
}

impl Waiting {
    /// Whether a message is of the one that answers: not known of a group's until the broker says who that is.
    fn is_theirs(&self, mail: &Mail, from: Option<&NameKey>) -> Option<bool> {
        if let Some(asked) = &self.asked {
            return Some(from == Some(asked));
        }
        let is_result = |result: &MessageId| result.as_str() == mail.inbound.id;
        if self.result.as_ref().is_some_and(is_result) {
            return Some(true);
        }
        let holder = self.holder.as_ref()?;
        Some(from == Some(holder))
    }

    /// The broker says where a group's question is.
    fn hears(&mut self, receipt: &Receipt) {
        let at = receipt.to.as_deref().map(PeerName::parse);
        let Some(Ok(at)) = at.filter(|_| self.asked.is_none()) else {
            return;
        };
        let at = at.key();
        match &receipt.stage {
            Stage::Recalled { .. } => {
                self.holder.take_if(|holder| *holder == at);
            }
            Stage::Done { reply } | Stage::Failed { reply } => {
                (self.holder, self.result) = (Some(at), Some(reply.clone()));
            }
            _ => self.holder = Some(at),
        }
    }
}

impl MailboxMachine {
    /// The broker was asked how far a message of this session's is, and says this.
    pub fn heard(&mut self, now_ms: u64, receipt: &Receipt) {
        self.advance(now_ms);
        self.sent.ended(receipt);
        self.judge(receipt);
        self.finish(now_ms);
    }

    /// Messages that claim to answer a question are its answer, or ordinary mail, as the broker has it.
    fn judge(&mut self, receipt: &Receipt) {
        let waiting = self.asks.waiting.iter_mut();
        for waiting in waiting.filter(|waiting| waiting.question == receipt.id) {
            waiting.hears(receipt);
            if waiting.answered {
                continue;
            }
            let claims = self.messages.values_mut();
            for claim in claims.filter(|m| m.place == Place::Expected(waiting.ask)) {
                let mail = claim.content.mail();
                let is_theirs = mail.map(|mail| waiting.is_theirs(mail, claim.from.as_ref()));
                match is_theirs.flatten() {
                    Some(true) if !waiting.answered => {
                        waiting.answered = true;
                        let answered = MailboxOutput::Answered(waiting.ask);
                        self.outputs.push_back(answered);
                    }
                    Some(_) => claim.place = Place::New,
                    None => {}
                }
            }
        }
    }

    /// So many messages claimed to answer a question before the broker said who has it.
    #[must_use]
    pub fn claims(&self, ask: AskId) -> usize {
        let mut waiting = self.asks.waiting.iter();
        let waiting = waiting.find(|waiting| waiting.ask == ask);
        waiting.map_or(0, |waiting| waiting.claims)
    }

    /// From now on the message of `from` that replies to `question` is shown to nobody but the
    /// caller, until [`MailboxMachine::unexpect`]. Of a group (`#NAME`) that of the one that has it by the
    /// broker's word.
    pub fn expect(&mut self, question: &MessageId, from: &str) -> AskId {
        self.asks.last += 1;
        let ask = AskId(self.asks.last);
        self.asks.waiting.push(Waiting {
            ask,
            question: question.clone(),
            asked: PeerName::parse(from).ok().map(|name| name.key()),
            holder: None,
            result: None,
            claims: 0,
            answered: false,
            ended: false,
        });
        ask
    }

    /// The broker said how a question ended, which somebody waits for.
    #[must_use]
    pub fn is_ended(&self, ask: AskId) -> bool {
        let mut waiting = self.asks.waiting.iter();
        waiting.any(|waiting| waiting.ask == ask && waiting.ended)
    }

    /// Nobody waits for that answer any more: if it is here it is ordinary mail.
    pub fn unexpect(&mut self, now_ms: u64, ask: AskId) {
        self.advance(now_ms);
        self.asks.waiting.retain(|waiting| waiting.ask != ask);
        for message in self.messages.values_mut() {
            if message.place == Place::Expected(ask) {
                message.place = Place::New;
            }
        }
        self.finish(now_ms);
    }

    /// Checks the answer out, if it is here, as far as it `has_room`.
    pub fn take_answer(
        &mut self,
        now_ms: u64,
        ask: AskId,
        has_room: impl Fn(&Mail) -> Portion,
    ) -> Option<Attempt> {
        self.advance(now_ms);
        let mut waiting = self.asks.waiting.iter();
        let answered = waiting.any(|waiting| waiting.ask == ask && waiting.answered);
        let here = |m: &Message| answered && m.place == Place::Expected(ask) && m.out.is_none();
        let (no, message) = self.messages.iter().find(|(_, m)| here(m))?;
        let chosen = [(*no, has_room(message.content.mail()?))];
        Some(self.send(&ASK, &chosen, 0, (Cause::Read, None)))
    }
}

/// Such texts that wait unseen at a time.
pub const PUT_IN_MAX: usize = 32;

impl MailboxMachine {
    /// A program here puts a text in; its mail is [local](Mail::is_local). False: too many wait already,
    /// and nothing was changed.
    #[must_use]
    pub fn put_in(&mut self, now_ms: u64, mail: &Arc<Mail>) -> bool {
        let waiting = self.messages.values().filter(|m| m.is_local()).count();
        if waiting >= PUT_IN_MAX && !self.mutations.broken(MailboxMutation::CrowdLocal) {
            return false;
        }
        self.advance(now_ms);
        let message = Message::of(mail);
        if self.hops_max.is_some() && self.mutations.broken(MailboxMutation::HoldLocal) {
            self.hold(now_ms, message, mail, "paused: like a peer's");
        } else {
            self.insert(message);
        }
        self.finish(now_ms);
        true
    }
}
