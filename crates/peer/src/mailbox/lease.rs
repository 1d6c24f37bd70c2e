//! Messages that are this session's for a while: one for a member of a group, until its lease is over,
//! and a request, until the broker takes it back.

use peerbus_wire::{Priority, escape};

use super::MailboxMachine;
use super::held::plain;
use super::message::Message;
use super::mutation::MailboxMutation;
use super::types::{Attempt, Mail, MailboxOutput, No};
use crate::session::Key;

/// How long one for a member of a group may be shown after it came: ten minutes, as the broker has it, less
/// what its way and another clock may take.
pub(super) const LEASE_MS: u64 = 570_000;

/// Longest reason that the agent is told, in characters.
const REASON_CHARS: usize = 300;

impl MailboxMachine {
    /// A message is not this session's any more: no path shows it from now on. If it was shown it stays
    /// until there is proof, whose ack may reach nobody. Of a request that the agent knows it is told
    /// why, if there is a `reason`.
    pub fn lapsed(&mut self, now_ms: u64, key: Key, reason: Option<&str>) {
        self.advance(now_ms);
        let mut known = self.forgive(key);
        let found = self.messages.values_mut().find(|m| m.is_of(key));
        if let Some(message) = found {
            let mail = message.content.mail().filter(|mail| mail.is_request());
            known = known.or(mail.filter(|_| message.is_begun()).cloned());
            message.lapse(now_ms);
        }
        if let (Some(mail), Some(reason)) = (known, reason) {
            let ([from, gist, id], why) = (named(&mail), escape(reason, REASON_CHARS));
            let sentence =
                format!("the request {gist} of {from} ({id}) is not yours any more: \"{why}\"");
            self.put_notice(&sentence, None, Priority::Quiet);
        }
        self.finish(now_ms);
    }

    /// A message that is here comes again: it is this session's for another while.
    pub(super) fn renew(&mut self, now_ms: u64, mail: &Mail) -> bool {
        let key = mail.inbound.key;
        let Some(message) = self.messages.values_mut().find(|m| m.is_of(key)) else {
            return false;
        };
        message.again |= mail.inbound.again;
        message.lease(now_ms, mail);
        true
    }

    /// What is not this session's any more and was not shown goes back, at once; what was shown, when no
    /// proof came for another while.
    pub(super) fn expire(&mut self, now_ms: u64) {
        let keeps = self.mutations.broken(MailboxMutation::ShowLapsed);
        let mut over = Vec::new();
        for (no, message) in &mut self.messages {
            let ends = message.lease_ms.is_some_and(|at| at <= now_ms) && !keeps;
            let before = message.lapsed;
            if ends {
                message.lapse(now_ms);
            }
            let waits = message.is_begun() && !(ends && before);
            if message.lapsed && message.out.is_none() && !waits {
                over.push(*no);
            }
        }
        for no in &over {
            self.release_lease(*no);
        }
        if !over.is_empty() {
            self.sweep();
            self.gauge(now_ms);
        }
        self.forgive_late(now_ms);
    }

    fn release_lease(&mut self, no: No) {
        let message = self.messages.remove(&no);
        if let Some(mail) = message.and_then(|it| it.content.mail().cloned()) {
            self.outputs.push_back(MailboxOutput::GiveBack { mail });
        }
    }

    /// When the next lease is over, or the time of a request.
    pub(super) fn lease_at(&self) -> Option<u64> {
        let keeps = self.mutations.broken(MailboxMutation::ShowLapsed);
        let leases = self.messages.values().filter(|_| !keeps);
        let leases = leases.filter_map(|message| message.lease_ms);
        leases.chain(self.owed().map(|owed| owed.until_ms)).min()
    }

    /// Takes out of a push that is about to be shown what is not to be shown any more.
    pub(super) fn withdraw(&mut self, push: &Attempt) {
        for item in &push.items {
            let found = self.messages.get(&item.no);
            if found.is_some_and(|it| it.lapsed || !self.may_go(it, false)) {
                if let Some(message) = self.messages.get_mut(&item.no) {
                    message.out.take_if(|out| *out == push.id);
                }
                if let Some(sent) = self.attempts.get_mut(&push.id) {
                    sent.items.retain(|(no, _)| *no != item.no);
                }
            }
        }
    }
}

impl Message {
    /// It is this session's from now on, for a while.
    pub(super) fn lease(&mut self, now_ms: u64, mail: &Mail) {
        self.lapsed = false;
        self.lease_ms = mail.inbound.one.then_some(now_ms + LEASE_MS);
        self.until_ms = now_ms.saturating_add(mail.inbound.within_ms);
    }

    /// It is not this session's any more.
    pub(super) fn lapse(&mut self, now_ms: u64) {
        self.lapsed = true;
        self.lease_ms = Some(now_ms + LEASE_MS);
    }
}

/// A request's asker, text and id, for its holder's agent.
pub(super) fn named(mail: &Mail) -> [String; 3] {
    let gist = escape(&mail.wanted.gist, usize::MAX);
    let [from, id] = [&mail.inbound.from, &mail.inbound.id].map(|it| plain(it));
    [from, format!("\"{gist}\""), id]
}
