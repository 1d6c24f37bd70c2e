//! What shows that the model got something, and what is acked for want of it.

use std::sync::Arc;

use peerbus_wire::{How, Stage};

use super::MailboxMachine;
use super::escalate::ANSWER_MS;
use super::message::{Message, Place, Sent, Showing, Step};
use super::mutation::MailboxMutation;
use super::types::{
    AttemptId, Content, Mail, MailboxOutput, Named, No, Outcome, Parent, Path, Policy, Portion,
};

impl MailboxMachine {
    /// The attempt's text stands in the session's conversation.
    pub fn presented(&mut self, now_ms: u64, attempt: AttemptId) {
        self.advance(now_ms);
        self.transcript.found(AttemptId(self.next_attempt));
        self.in_conversation(now_ms, attempt);
        self.finish(now_ms);
    }

    /// The client cut the result of a tool with the attempt's text: all of that goes again, in less at a time.
    pub fn cut(&mut self, now_ms: u64, attempt: AttemptId) {
        let next = AttemptId(self.next_attempt);
        self.transcript.found(next);
        match self.attempts.contains_key(&attempt) && self.transcript.cut(attempt, next) {
            true => self.outcome(now_ms, attempt, Outcome::Doubtful),
            false => self.finish(now_ms),
        }
    }

    /// So much of the room in a tool's result is used: less where the client cut one.
    #[must_use]
    pub fn room(&self, whole: usize) -> usize {
        self.transcript.room(whole)
    }

    /// The model answered after the attempt's text.
    pub fn answered(&mut self, now_ms: u64, attempt: AttemptId) {
        self.proven(now_ms, attempt, "transcript");
    }

    /// A program in the client says that a request with the attempt's text was answered. That is not enough
    /// for a text which a hook carried: whatever runs below the client can run as one, and take it.
    pub fn model_called(&mut self, now_ms: u64, attempt: AttemptId) {
        if !self.is_by_hook(attempt) {
            self.proven(now_ms, attempt, "model_call");
        }
    }

    /// The same program says that a request has the text: that shows nothing of what a hook carried. A text
    /// of its own it may have put where no transcript has it yet.
    pub fn shown_by_program(&mut self, now_ms: u64, attempt: AttemptId) {
        let sent = self.attempts.get(&attempt);
        let is_its_own = sent.is_some_and(|sent| sent.path.passes_below);
        if is_its_own || !self.is_by_hook(attempt) {
            self.presented(now_ms, attempt);
        }
    }

    /// Whether the attempt's text goes through a process that the agent could run, too; also of one that is
    /// not known.
    #[must_use]
    pub fn is_by_hook(&self, attempt: AttemptId) -> bool {
        let sent = self.attempts.get(&attempt);
        sent.is_none_or(|sent| sent.path.is_by_hook())
    }

    /// Whether a tool's result in the conversation can have the attempt's text: any other tool may quote one
    /// that was shown otherwise.
    #[must_use]
    pub fn is_in_result(&self, attempt: AttemptId) -> bool {
        let sent = self.attempts.get(&attempt);
        sent.is_some_and(|sent| sent.path.in_result && !sent.path.is_by_hook())
    }

    fn proven(&mut self, now_ms: u64, attempt: AttemptId, evidence: &str) {
        self.advance(now_ms);
        self.transcript.found(AttemptId(self.next_attempt));
        let Some(sent) = self.attempts.get(&attempt) else {
            return self.finish(now_ms);
        };
        let path = sent.path;
        if sent.step == Step::InFlight {
            self.written(now_ms, attempt);
        }
        self.paths.proved(path);
        self.works(now_ms);
        for (no, portion) in self.items(attempt) {
            let Some(message) = self.messages.get_mut(&no) else {
                continue;
            };
            let trust = self.mutations.broken(MailboxMutation::TrustParts);
            let stood = if trust { message.read } else { message.stood };
            if portion.completes(stood) {
                self.ack(no, seen(path, evidence));
            } else if portion.completes(message.read) {
                // The client took an earlier part, and has not shown it.
                self.transcript.cut(attempt, AttemptId(self.next_attempt));
                (message.read, message.again) = (stood, true);
                self.goes_back(now_ms, no, attempt);
                if let Some(sent) = self.attempts.get_mut(&attempt) {
                    sent.items.retain(|(of, _)| *of != no);
                }
            }
        }
        // What was shown in part stands there, in part.
        self.in_conversation(now_ms, attempt);
        self.finish(now_ms);
    }

    pub(super) fn in_conversation(&mut self, now_ms: u64, attempt: AttemptId) {
        let Some(sent) = self.attempts.get(&attempt).filter(|sent| !sent.presented) else {
            return;
        };
        let path = sent.path;
        if sent.step == Step::InFlight {
            self.written(now_ms, attempt);
        }
        self.paths.arrived(path);
        if let Some(sent) = self.attempts.get_mut(&attempt) {
            sent.presented = true;
        }
        for (no, portion) in self.items(attempt) {
            if let Portion::Part { from, to, .. } = portion {
                let message = self.messages.get_mut(&no);
                if let Some(message) = message.filter(|message| from <= message.stood) {
                    message.stood = message.stood.max(to);
                }
                continue;
            }
            self.in_view(now_ms, no, attempt, (path, portion));
            if self.mutations.broken(MailboxMutation::TrustPresence) {
                self.ack(no, seen(path, "transcript"));
            } else if self.policy == Policy::Pushed && portion.completes(0) {
                self.ack(no, pushed(path));
            }
        }
    }

    /// The message's text is known to have reached the conversation; an answer may take its time.
    pub(super) fn in_view(
        &mut self,
        now_ms: u64,
        no: No,
        attempt: AttemptId,
        (path, portion): (Path, Portion),
    ) {
        let idle_ms = self.clock.at(now_ms);
        let Some(message) = self.messages.get_mut(&no) else {
            return;
        };
        let place = Place::Shown {
            attempt,
            presented: true,
            until_ms: idle_ms + ANSWER_MS,
        };
        message.await_evidence(place, idle_ms);
        let told = (path, portion.completes(message.read));
        if !message.presented_over.contains(&told) {
            message.presented_over.push(told);
            let path = message.over(path, portion);
            self.progress(no, Stage::Presented { path });
        }
    }

    /// A tool call names the message with this id: the agent has seen it, if all of it was shown, and nothing
    /// would show more. A list tells ids, too: where the conversation can be read, an answer in it is the proof.
    /// `from` tells which, where several senders used the id.
    pub fn named(&mut self, now_ms: u64, id: &str, from: Option<&str>) -> Named {
        self.advance(now_ms);
        // Of what waits or was seen lately: it is unique for each sender alone.
        let parent = self.parent(id, from);
        if from.is_none() && parent.is_none() && !self.parents(id).is_empty() {
            return Named::Several;
        }
        let id = parent.as_ref().map_or(id, |parent| parent.id.as_str());
        let is_it = |message: &Message| {
            let mail = message.content.mail().filter(|mail| mail.inbound.id == id);
            mail.filter(|_| !message.is_withheld()).is_some_and(|mail| {
                from.is_none_or(|from| mail.inbound.from.eq_ignore_ascii_case(from))
            })
        };
        let found = self.messages.iter().filter(|(_, message)| is_it(message));
        let found: Vec<_> = found.map(|(no, _)| *no).collect();
        let named: Vec<_> = found.into_iter().map(|no| self.named_one(no)).collect();
        self.finish(now_ms);
        let order = [
            Named::Seen,
            Named::Pushed,
            Named::Awaited,
            Named::InPart,
            Named::NotShown,
        ];
        let best = order.into_iter().find(|one| named.contains(one));
        best.unwrap_or(Named::Unknown)
    }

    /// Whether the host of this machine starts the session's turns, and knows which of them failed.
    pub fn set_driven(&mut self, driven: bool) {
        self.driven = driven;
    }

    fn named_one(&mut self, no: No) -> Named {
        let Some(message) = self.messages.get(&no) else {
            return Named::Unknown;
        };
        // A result is the agent's when its client went on after it.
        let out = message.out.and_then(|out| self.attempts.get(&out));
        let out = out.filter(|sent| !sent.path.in_result);
        let portion = |sent: &Sent| sent.items.iter().find(|(of, _)| *of == no).map(|(_, p)| *p);
        let portion = out.and_then(portion);
        let whole = message.is_whole() || portion.is_some_and(|p| p.completes(message.read));
        let begun = message.is_begun() || portion.is_some();
        let careless = begun && self.mutations.broken(MailboxMutation::AckInPart);
        let shown = message.shown.last().map(|showing| showing.path);
        let path = shown.or(out.map(|sent| sent.path));
        let (true, Some(path)) = (whole || careless, path) else {
            let Some(message) = self.messages.get_mut(&no).filter(|_| begun) else {
                return Named::NotShown;
            };
            message.wanted = true;
            return Named::InPart;
        };
        let trusts = self.mutations.broken(MailboxMutation::TrustNames);
        // A driver's prompt stands where it wrote it: a call in that turn is an answer. What joins a turn waits
        // in the client, while a helper of the agent may call tools.
        let prompted = self.driven && !path.in_result && !path.joins_busy_turn;
        if self.transcript.is_readable() && !prompted && !trusts {
            let proves = self.transcript.shows();
            if let Some(message) = self
                .messages
                .get_mut(&no)
                .filter(|it| proves && !it.is_leased())
            {
                message.named = true;
                return Named::Awaited;
            }
            // Nobody else of its group gets it.
            self.ack(no, pushed(path));
            return Named::Pushed;
        }
        self.paths.proved(path);
        self.ack(no, seen(path, "tool_call"));
        Named::Seen
    }

    /// Somebody stopped the turn with the attempt's text: no answer to that showing comes any more. It goes
    /// along with the next result of a tool; it starts no turn before its time.
    pub fn stopped(&mut self, now_ms: u64, attempt: AttemptId) {
        self.advance(now_ms);
        for (no, _) in self.items(attempt) {
            if let Some(message) = self.messages.get_mut(&no)
                && matches!(message.place, Place::Shown { attempt: of, .. } if of == attempt)
            {
                let presented = false;
                message.place = Place::Overdue { attempt, presented };
                // Until it goes again nobody waits for it.
                message.waits_ms = message.again_at_ms.or(message.waits_ms);
            }
        }
        self.finish(now_ms);
    }

    /// The turn with the attempt's text ended well, and nothing shows whether the model answered: no more
    /// is claimed than that it was taken. What another member of a group would get stays owed.
    pub fn unproven(&mut self, now_ms: u64, attempt: AttemptId) {
        self.advance(now_ms);
        let path = self.attempts.get(&attempt).map(|sent| sent.path);
        for (no, portion) in self.items(attempt) {
            let message = self
                .messages
                .get(&no)
                .filter(|message| !message.is_leased());
            let whole = message.is_some_and(|message| portion.completes(message.read));
            if let Some(path) = path.filter(|_| whole) {
                self.ack(no, pushed(path));
            }
        }
        self.finish(now_ms);
    }

    /// What may be acked although nothing proves it, with the path of the last showing of all of it that
    /// counts: not what another member of a group would get if this agent has not seen it.
    fn without_proof(&self, counts: impl Fn(&Message, &Showing) -> bool) -> Vec<(No, Path)> {
        let shown = self.messages.iter().filter_map(|(no, m)| {
            let mut shown = m.shown.iter().filter(|_| !m.is_leased());
            let last = shown.rfind(|showing| showing.whole && counts(m, showing))?;
            Some((*no, last.path))
        });
        shown.collect()
    }

    /// The agent called a tool, whichever.
    pub fn called(&mut self, now_ms: u64) {
        self.advance(now_ms);
        if self.policy == Policy::Auto && !self.transcript.shows() {
            for (no, path) in self.without_proof(|_, showing| showing.path.in_result) {
                self.ack(no, pushed(path));
            }
        }
        self.finish(now_ms);
    }

    /// Where nothing can be proven and the window is nearly full, the older half of what was
    /// shown is let go.
    pub(super) fn relieve(&mut self) {
        if self.full_at_ms.is_none() || self.transcript.shows() || self.policy != Policy::Auto {
            return;
        }
        let shown = self.without_proof(|message, _| message.is_free());
        for (no, path) in shown.iter().take(shown.len().div_ceil(2)) {
            self.ack(*no, pushed(path));
        }
    }

    /// The end of a message, with what its ack may claim.
    pub(super) fn ack(&mut self, no: No, how: How) {
        let held = self.messages.get_mut(&no);
        let said = held.and_then(|message| message.said.take());
        let held = self.messages.get(&no).filter(|message| !message.lapsed);
        let until_ms = held.map(|message| message.until_ms);
        let Some(mail) = self.ends(no, Stage::Acked(Some(how))) else {
            return;
        };
        if let Some(until_ms) = until_ms.filter(|at| mail.is_request() && *at > self.now_ms) {
            self.owe(&mail, until_ms);
            if let Some(said) = said {
                self.works_at(&mail, said);
            }
        }
        let inbound = &mail.inbound;
        if let Some(parent) = Parent::of(&inbound.id, &inbound.from, &mail.talk) {
            self.recent.add(parent);
        }
    }

    /// A message leaves, and its sender is told how it ended; of a notice that it was told.
    pub(super) fn ends(&mut self, no: No, stage: Stage) -> Option<Arc<Mail>> {
        match self.messages.remove(&no)?.content {
            Content::Mail(mail) => {
                self.tell(&mail, stage);
                Some(mail)
            }
            Content::Notice { token, .. } => {
                self.outputs.extend(token.map(MailboxOutput::Told));
                None
            }
        }
    }

    /// Nothing is owed for a notice of this machine's own.
    pub(super) fn seen_by_itself(&mut self, no: No) {
        self.messages.remove(&no);
        self.sweep();
    }

    /// A message is so far: says so to whom that is to be told.
    pub(super) fn tell(&mut self, mail: &Arc<Mail>, stage: Stage) {
        let mail = Arc::clone(mail);
        let local = mail.is_local() && !self.mutations.broken(MailboxMutation::AckLocal);
        self.outputs.push_back(match local {
            true => MailboxOutput::Local { mail, stage },
            false => MailboxOutput::Reached { mail, stage },
        });
    }

    /// Attempts whose evidence would still be of use. Nobody needs to look when there are none.
    pub fn watched(&self) -> impl Iterator<Item = AttemptId> + '_ {
        let useful = |sent: &Sent| {
            let unseen = |no: &No| self.messages.contains_key(no);
            let proves = |&(no, portion): &(No, Portion)| {
                let read = self.messages.get(&no).map(|message| message.read);
                read.is_some_and(|read| portion.completes(read))
            };
            sent.items.iter().any(proves)
                || !sent.presented && sent.items.iter().any(|(no, _)| unseen(no))
        };
        let watched = self.attempts.iter().filter(move |(_, sent)| useful(sent));
        watched.map(|(id, _)| *id)
    }

    pub(super) fn progress(&mut self, no: No, stage: Stage) {
        let mail = self.messages.get(&no).and_then(|m| m.content.mail());
        if let Some(mail) = mail.cloned() {
            self.tell(&mail, stage);
        }
    }
}

impl Portion {
    /// With it all of the message was shown, if `read` characters were before.
    pub(super) fn completes(self, read: usize) -> bool {
        match self {
            Self::All => true,
            Self::Beginning => false,
            Self::Part { from, last, .. } => last && from <= read,
        }
    }
}

pub(super) fn seen(path: Path, evidence: &str) -> How {
    How::Seen {
        path: path.word.to_owned(),
        evidence: evidence.to_owned(),
    }
}

pub(super) fn pushed(path: Path) -> How {
    How::Pushed {
        path: path.word.to_owned(),
    }
}
