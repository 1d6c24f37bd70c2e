//! Questions whose answers somebody waits for.

use peerbus_wire::{MessageId, NameKey, PeerName};

use super::MailboxMachine;
use super::message::{Cause, Message, Place};
use super::types::{ASK, AskId, Attempt, Mail, Portion};

#[derive(Debug, Default)]
pub(super) struct Asks {
    waiting: Vec<Waiting>,
    last: u64,
}

#[derive(Debug)]
struct Waiting {
    ask: AskId,
    question: MessageId,
    from: Option<NameKey>,
    answered: bool,
}

impl Asks {
    /// The question that this message answers.
    pub(super) fn expects(&mut self, mail: &Mail, from: Option<&NameKey>) -> Option<AskId> {
        let question = mail.talk.reply_to.as_ref()?;
        let waits = |waiting: &&mut Waiting| {
            !waiting.answered && waiting.question == *question && waiting.from.as_ref() == from
        };
        let waiting = self.waiting.iter_mut().find(waits)?;
        waiting.answered = true;
        Some(waiting.ask)
    }
}

impl MailboxMachine {
    /// From now on the message of `from` that replies to `question` is shown to nobody but the
    /// caller, until [`MailboxMachine::unexpect`].
    pub fn expect(&mut self, question: &MessageId, from: &str) -> AskId {
        self.asks.last += 1;
        let ask = AskId(self.asks.last);
        self.asks.waiting.push(Waiting {
            ask,
            question: question.clone(),
            from: PeerName::parse(from).ok().map(|name| name.key()),
            answered: false,
        });
        ask
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

    /// Checks the answer out, if it is here.
    pub fn take_answer(&mut self, now_ms: u64, ask: AskId) -> Option<Attempt> {
        self.advance(now_ms);
        let here = |m: &Message| m.place == Place::Expected(ask) && m.out.is_none();
        let no = self.messages.iter().find(|(_, m)| here(m));
        let chosen = [(*no?.0, Portion::All)];
        Some(self.send(&ASK, &chosen, 0, (Cause::Read, None)))
    }
}
