//! Taking messages out of the table to show them: what tools, hooks and pushes stand on. Whatever
//! becomes of them is said by [`MailboxMachine::outcome`].

use std::collections::BTreeSet;

use peerbus_wire::NameKey;

use super::message::{Cause, Message, Place, Sent, Step};
use super::mutation::MailboxMutation;
use super::types::{Activity, Attempt, AttemptId, AttemptItem, Limit, No, Path, Portion};
use super::{MailboxMachine, WHOLE_BYTES_MAX};

impl MailboxMachine {
    /// What of a push is to be shown now: what was seen since it was made is left out, and what is not
    /// this session's any more; what was put in doubt since is a repeat.
    #[must_use]
    pub fn current(&mut self, now_ms: u64, push: &Attempt) -> Vec<AttemptItem> {
        if self.mutations.broken(MailboxMutation::ShowAsMade) {
            return push.items.clone();
        }
        self.advance(now_ms);
        self.withdraw(push);
        self.expire(now_ms);
        let items = push.items.iter().filter_map(|item| {
            let message = self.messages.get(&item.no)?;
            (message.out == Some(push.id)).then(|| AttemptItem {
                repeat: item.repeat || message.again,
                ..item.clone()
            })
        });
        items.collect()
    }

    /// Gives unseen messages to something that shows text anyway (a hook, the result of a tool), as
    /// many as the path's limit allows: those that were never shown, urgent ones first, then those
    /// whose evidence is overdue and that this path has not shown. Each goes at most once over each
    /// of these paths. A message that is larger than the limit goes with its beginning. Into the
    /// result of a tool the next part of one that was named before all of it was shown goes besides: the others
    /// get half of the room then.
    pub fn along(&mut self, now_ms: u64, path: Path) -> Option<Attempt> {
        self.advance(now_ms);
        let pushed = self.pushed_unread(path);
        let fits = |(_, m): &(&No, &Message)| {
            let overtakes = m.is_fresh() && pushed.contains(&m.from);
            m.is_for_passive(path) && !overtakes && self.may_go(m, true)
        };
        let next = self.messages.iter().find(|(_, m)| m.wants_rest());
        let next = next.filter(|_| path.in_result);
        let next = next.map(|(no, message)| (*no, message.next_part(&self.transcript)));
        let other = |(no, _): &(&No, &Message)| next.is_none_or(|(next, _)| next != **no);
        let waiting = || self.messages.iter().filter(&fits).filter(&other);
        let fresh =
            |first: bool| waiting().filter(move |(_, m)| m.is_fresh() && m.is_first() == first);
        let overdue = waiting().filter(|(_, m)| !m.is_fresh());
        let candidates: Vec<_> = fresh(true).chain(fresh(false)).chain(overdue).collect();
        let mut limit = path.limit;
        if path.in_result {
            limit.bytes = self.room(limit.bytes);
        }
        if next.is_some() {
            limit.bytes /= 2;
        }
        let mut chosen = within(limit, candidates.iter().copied());
        // Beside a part even the beginning of a large one has no room.
        let fits = |no: &No| self.messages[no].content.bytes() <= limit.bytes;
        chosen.retain(|no| next.is_none() || fits(no));
        let rest = candidates.len() - chosen.len();
        let whole_max = WHOLE_BYTES_MAX.min(limit.bytes);
        let mut chosen = self.portions(chosen, path, whole_max);
        chosen.extend(next);
        (!chosen.is_empty()).then(|| self.send(path, &chosen, rest, (Cause::Along, None)))
    }

    /// Senders of which a push is with the client and not in the conversation yet. What a hook adds
    /// to a turn stands before the push that started it: what they sent later waits for that.
    fn pushed_unread(&self, path: Path) -> BTreeSet<Option<NameKey>> {
        if path.in_result || !self.transcript.shows() {
            return BTreeSet::new();
        }
        let unread = |message: &&Message| match message.place {
            Place::Shown {
                attempt,
                presented: false,
                ..
            } if message.out.is_none() => self.attempts.get(&attempt).is_some_and(|s| s.path.wakes),
            _ => false,
        };
        let unread = self.messages.values().filter(unread);
        unread.map(|message| message.from.clone()).collect()
    }

    /// Checks these out for an agent that asked for them, shown before or not, held or not. What is
    /// not there or in other hands is left out.
    pub fn check_out(
        &mut self,
        now_ms: u64,
        path: Path,
        chosen: &[(No, Portion)],
    ) -> Option<Attempt> {
        self.advance(now_ms);
        let readable = |no: &No| self.messages.get(no).is_some_and(Message::is_readable);
        let mut chosen: Vec<_> = chosen.to_vec();
        chosen.retain(|(no, _)| readable(no));
        chosen.sort_by_key(|(no, _)| *no);
        chosen.dedup_by_key(|(no, _)| *no);
        (!chosen.is_empty()).then(|| self.send(path, &chosen, 0, (Cause::Read, None)))
    }

    /// How much of each is shown to an agent that did not ask for it.
    pub(super) fn portions(
        &self,
        chosen: Vec<No>,
        path: Path,
        whole_max: usize,
    ) -> Vec<(No, Portion)> {
        let portion = |no: No| {
            let message = self.messages.get(&no);
            let is_local = message.is_some_and(Message::is_local);
            let bytes = message.map_or(0, |m| m.content.bytes());
            match bytes <= whole_max || is_local && bytes <= path.text_bytes {
                true => (no, Portion::All),
                false => (no, Portion::Beginning),
            }
        };
        chosen.into_iter().map(portion).collect()
    }

    /// Makes an attempt with these and lets it go. Items stand in order of arrival; what is no push
    /// has urgent ones first. `head`: a push is for this one.
    pub(super) fn send(
        &mut self,
        path: Path,
        chosen: &[(No, Portion)],
        rest: usize,
        (cause, head): (Cause, Option<No>),
    ) -> Attempt {
        let id = AttemptId(self.next_attempt);
        self.next_attempt += 1;
        let hide = self.mutations.broken(MailboxMutation::HideRepeat);
        let mut chosen = chosen.to_vec();
        let urgent = |no: &No| self.messages.get(no).is_some_and(Message::is_first);
        let first = |no: &No| cause != Cause::Push && urgent(no);
        chosen.sort_by_key(|(no, _)| (!first(no), *no));
        let mut items = Vec::with_capacity(chosen.len());
        for &(no, portion) in &chosen {
            let Some(message) = self.messages.get_mut(&no) else {
                continue;
            };
            items.push(AttemptItem {
                no,
                repeat: message.is_repeat(portion) && !hide,
                portion,
                content: message.content.clone(),
                first: cause != Cause::Push && message.is_first(),
                held: message.held().cloned(),
            });
            message.out = Some(id);
        }
        let idle = matches!(self.activity, Activity::Idle | Activity::Unknown);
        // The first of those that may start one: what goes along starts nothing.
        let counts = |message: &&Message| self.may_count(message);
        let heads = head.into_iter().chain(chosen.iter().map(|(no, _)| *no));
        let mut mails = heads.filter_map(|no| self.messages.get(&no));
        let starter = mails.find(counts).map(Message::starter);
        let sent = Sent {
            path,
            cause,
            step: Step::InFlight,
            starts: starter.filter(|_| head.is_some() && idle),
            presented: false,
            missed: false,
            items: chosen,
        };
        self.attempts.insert(id, sent);
        Attempt {
            id,
            path,
            items,
            rest,
        }
    }
}

/// The first of these that fit, at least one. What does not fit ends it: nothing overtakes.
pub(super) fn within<'a>(
    limit: Limit,
    messages: impl Iterator<Item = (&'a No, &'a Message)>,
) -> Vec<No> {
    let mut chosen = Vec::new();
    let mut bytes = 0_usize;
    for (no, message) in messages {
        bytes = bytes.saturating_add(message.content.bytes());
        if chosen.len() >= limit.messages || !chosen.is_empty() && bytes > limit.bytes {
            break;
        }
        chosen.push(*no);
    }
    chosen
}
