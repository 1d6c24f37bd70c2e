//! Looking at what waits.

use std::collections::BTreeSet;
use std::sync::Arc;

use peerbus_wire::{Conversation, is_id_part, names_id};

use super::MailboxMachine;
use super::message::{Message, Place};
use super::types::{Content, Listed, Mail, No, Parent, Portion};

impl MailboxMachine {
    /// The messages that wait or are held and are not in other hands, in order of arrival, urgent
    /// ones first.
    #[must_use]
    pub fn look(&self) -> Vec<Listed> {
        let listed = |(no, message): (&No, &Message)| {
            let mail = message.content.mail()?;
            let readable = message.is_readable() || self.pushes(message);
            readable.then(|| Listed {
                no: *no,
                mail: mail.clone(),
                shown: message.is_repeat(Portion::All) || message.out.is_some(),
                held: message.held().cloned(),
                first: message.is_first(),
                read: message.read,
            })
        };
        let (first, rest): (Vec<_>, Vec<_>) = self.messages.iter().partition(|(_, m)| m.is_first());
        first.into_iter().chain(rest).filter_map(listed).collect()
    }

    /// The mail that the agent has not seen, in order of arrival, but for what it is kept from, by its client
    /// too.
    pub fn unread(&self) -> impl Iterator<Item = &Arc<Mail>> {
        let here = self.messages.values();
        let here = here.filter(|message| message.is_open());
        here.filter_map(|message| message.content.mail())
    }

    /// So much mail is unread, is kept for the user, is paused, and so many requests are owed.
    #[must_use]
    pub fn waits(&self) -> [usize; 4] {
        let (withheld, paused) = (self.withheld().count(), self.paused().count());
        [self.unread().count(), withheld, paused, self.owed().count()]
    }

    /// Why the governor keeps mail from the agent, for each message that it keeps.
    pub fn paused(&self) -> impl Iterator<Item = &str> {
        self.messages
            .values()
            .filter_map(|m| m.held())
            .map(|why| &**why)
    }

    /// It is in a push that is under way: it waits, though it cannot be taken just now.
    fn pushes(&self, message: &Message) -> bool {
        let sent = message.out.and_then(|out| self.attempts.get(&out));
        message.is_open() && sent.is_some_and(|sent| sent.path.wakes)
    }

    /// The notices that can be read, the oldest first.
    #[must_use]
    pub fn notices(&self) -> Vec<(No, Arc<str>)> {
        let notice = |(no, message): (&No, &Message)| match &message.content {
            Content::Notice { sentence, .. } if message.is_free() => Some((*no, sentence.clone())),
            _ => None,
        };
        self.messages.iter().filter_map(notice).collect()
    }

    /// So many messages and notices wait and are not being read, without those that are held.
    #[must_use]
    pub fn waiting(&self) -> usize {
        let waits = |m: &&Message| m.is_free() || self.pushes(m);
        self.messages.values().filter(waits).count()
    }

    /// Everything that is not seen, wherever it stands, but for what the user decides about.
    #[must_use]
    pub fn unseen(&self) -> usize {
        self.messages.values().filter(|m| !m.is_withheld()).count()
    }

    /// Something waits that may start a turn and that no path has shown yet.
    #[must_use]
    pub fn has_unshown(&self) -> bool {
        let unshown = |message: &Message| {
            let new = message.place == Place::New && message.is_free();
            new && !message.again && !message.is_quiet()
        };
        self.messages.values().any(unshown)
    }

    /// A message that this session was shown lately, still holds or owes an answer to, by its sender's id or
    /// [a part of it](names_id), and by the sender where that is given. `None` as well when several are meant:
    /// nobody can divert a reply by using another's id, or one with the same end.
    #[must_use]
    pub fn parent(&self, id: &str, from: Option<&str>) -> Option<Parent> {
        let mut found = self.parents(id);
        found.retain(|parent| from.is_none_or(|from| parent.from.eq_ignore_ascii_case(from)));
        let first = found.first()?.from.clone();
        let same = |parent: &Parent| parent.from.eq_ignore_ascii_case(&first);
        if let Some(whole) = found.iter().position(|parent| parent.id.as_str() == id)
            && found.iter().all(same)
        {
            return Some(found.swap_remove(whole));
        }
        found.pop().filter(|_| found.is_empty())
    }

    /// Whether an agent that gives this message's id alone can mean another one, which is forgotten here: it was
    /// not shown this one yet, or this one's whole id reads as the part of another's that it is shown.
    #[must_use]
    pub fn is_uncertain(&self, parent: &Parent) -> bool {
        let is_it = |message: &&Message| {
            let mail = message.content.mail().map(|mail| &mail.inbound);
            mail.is_some_and(|it| it.id == parent.id.as_str() && it.from == parent.from)
        };
        let here = self.messages.values().find(is_it);
        let waits_in_client = |it: &Message| {
            let written = match it.place {
                Place::Shown {
                    attempt,
                    presented: false,
                    ..
                } => Some(attempt),
                _ => it.out,
            };
            let push = written.and_then(|attempt| self.attempts.get(&attempt));
            self.transcript.shows() && push.is_some_and(|sent| sent.path.wakes)
        };
        let unshown = |it: &Message| it.is_fresh() && it.out.is_none() || waits_in_client(it);
        here.is_some_and(unshown) || is_id_part(parent.id.as_str())
    }

    /// Each conversation of a message that is known here, by its id or a part of one.
    #[must_use]
    pub fn threads(&self, id: &str) -> Vec<String> {
        // The first message of a conversation gives it its id.
        let all = self
            .known()
            .map(|(id, _, talk)| talk.thread.as_deref().unwrap_or(id));
        let named: BTreeSet<&str> = all.filter(|thread| names_id(id, thread)).collect();
        named.into_iter().map(str::to_owned).collect()
    }

    /// Each of the messages that are meant by an id, or a part of one.
    #[must_use]
    pub fn parents(&self, id: &str) -> Vec<Parent> {
        let mut found: Vec<Parent> = Vec::new();
        for (of, from, talk) in self.known().filter(|(of, ..)| names_id(id, of)) {
            let same = |it: &Parent| it.id.as_str() == of && it.from.eq_ignore_ascii_case(from);
            if !found.iter().any(same) {
                found.extend(Parent::of(of, from, talk));
            }
        }
        found
    }

    /// One with this id was acked, not long ago.
    #[must_use]
    pub fn remembers(&self, id: &str) -> bool {
        self.recent.all().any(|(of, ..)| names_id(id, of))
    }

    /// Messages that can be answered: their ids, senders and places in conversations.
    fn known(&self) -> impl Iterator<Item = (&str, &str, &Conversation)> {
        let here = self.messages.values().filter(|m| !m.is_withheld());
        let here = here.filter_map(|message| message.content.mail());
        let mails = here.chain(self.owed().map(|owed| &owed.mail));
        let mails = mails.map(|mail| (&*mail.inbound.id, &*mail.inbound.from, &mail.talk));
        mails.chain(self.recent.all())
    }
}
