//! What shows that the model got something, and what is acked for want of it.

use peerbus_wire::{How, Stage};

use super::Mailbox;
use super::escalate::ANSWER_MS;
use super::message::{Message, Place, Showing, Step};
use super::mutation::Mutation;
use super::types::{AttemptId, Content, INBOX, Named, No, Output, Path, Policy};

impl Mailbox {
    /// The attempt's text stands in the session's conversation.
    pub fn presented(&mut self, now_ms: u64, attempt: AttemptId) {
        self.advance(now_ms);
        self.transcript.found(AttemptId(self.next_attempt));
        self.in_conversation(now_ms, attempt);
        self.finish(now_ms);
    }

    /// The model answered after the attempt's text.
    pub fn answered(&mut self, now_ms: u64, attempt: AttemptId) {
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
        for (no, portion) in self.items(attempt) {
            let read = self.messages.get(&no).map(|message| message.read);
            if read.is_some_and(|read| portion.completes(read)) {
                self.ack(no, seen(path, "transcript"));
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
            if portion.is_part() {
                continue;
            }
            self.in_view(now_ms, no, attempt, path);
            if self.mutations.broken(Mutation::TrustPresence) {
                self.ack(no, seen(path, "transcript"));
            } else if self.policy == Policy::Pushed && portion.completes(0) {
                self.ack(no, pushed(path));
            }
        }
    }

    /// The message's text is known to have reached the conversation; an answer may take its time.
    pub(super) fn in_view(&mut self, now_ms: u64, no: No, attempt: AttemptId, path: Path) {
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
        if !message.presented_over.contains(&path) {
            message.presented_over.push(path);
            let path = path.word.to_owned();
            self.progress(no, Stage::Presented { path });
        }
    }

    /// A tool call names the message with this id: the agent has seen it, if it was shown it.
    /// `from` tells which, where several senders used the id.
    pub fn named(&mut self, now_ms: u64, id: &str, from: Option<&str>) -> Named {
        self.advance(now_ms);
        if from.is_none() && self.senders(id).len() > 1 {
            return Named::Several;
        }
        let is_it = |message: &Message| {
            let mail = message.content.mail().filter(|mail| mail.inbound.id == id);
            mail.is_some_and(|mail| {
                from.is_none_or(|from| mail.inbound.from.eq_ignore_ascii_case(from))
            })
        };
        let found = self.messages.iter().filter(|(_, message)| is_it(message));
        let found: Vec<_> = found.map(|(no, m)| (*no, m.is_known())).collect();
        for (no, _) in found.iter().filter(|(_, known)| *known) {
            self.named_one(*no);
        }
        self.finish(now_ms);
        match (found.iter().any(|(_, known)| *known), found.is_empty()) {
            (true, _) => Named::Seen,
            (false, false) => Named::NotShown,
            (false, true) => Named::Unknown,
        }
    }

    fn named_one(&mut self, no: No) {
        let Some(message) = self.messages.get(&no) else {
            return;
        };
        let out = message.out().and_then(|out| self.attempts.get(&out));
        let shown = message.shown.last().map(|showing| showing.path);
        let path = shown.or(out.map(|sent| sent.path));
        if let Some(path) = path {
            self.paths.proved(path);
        }
        // It may know the name from a session before this one, or from a list.
        let listed = (message.listed || message.held().is_some()).then_some(&INBOX);
        let word = path.or(listed).map_or("unknown", |path| path.word);
        self.ack(
            no,
            How::Seen {
                path: word.to_owned(),
                evidence: "tool_call".to_owned(),
            },
        );
    }

    /// What may be acked although nothing proves it: not what another member of a group would get if this
    /// agent has not seen it.
    fn ackable(&self) -> impl Iterator<Item = (&No, &Message)> {
        self.messages
            .iter()
            .filter(|(_, message)| !message.is_job())
    }

    /// The agent called a tool, whichever.
    pub fn called(&mut self, now_ms: u64) {
        self.advance(now_ms);
        if self.policy == Policy::Auto && !self.transcript.shows() {
            let got = |s: &&Showing| s.path.in_result && s.whole;
            let shown = |m: &Message| m.shown.iter().rfind(got).map(|showing| showing.path);
            let shown = |(no, m): (&No, &Message)| Some((*no, shown(m)?));
            let shown: Vec<_> = self.ackable().filter_map(shown).collect();
            for (no, path) in shown {
                self.ack(no, pushed(path));
            }
        }
        self.finish(now_ms);
    }

    /// Where nothing can be proven and the window is nearly full, the older half of what was
    /// shown is let go.
    pub(super) fn relieve(&mut self) {
        if !self.window_nearly_full || self.transcript.shows() || self.policy != Policy::Auto {
            return;
        }
        let whole = |m: &Message| {
            let last = m.shown.iter().rfind(|showing| showing.whole);
            last.filter(|_| m.is_free()).map(|showing| showing.path)
        };
        let shown = self.ackable();
        let shown: Vec<_> = shown.filter_map(|(no, m)| Some((*no, whole(m)?))).collect();
        for (no, path) in shown.iter().take(shown.len().div_ceil(2)) {
            self.ack(*no, pushed(path));
        }
    }

    /// The end of a message, with what its ack may claim.
    pub(super) fn ack(&mut self, no: No, how: How) {
        match self.messages.remove(&no).map(|message| message.content) {
            Some(Content::Mail(mail)) => {
                self.recent.add(&mail);
                let key = mail.inbound.key;
                self.tell(&mail, Output::Ack { no, key, how });
            }
            Some(Content::Notice {
                token: Some(token), ..
            }) => self.outputs.push_back(Output::Told(token)),
            Some(Content::Notice { token: None, .. }) | None => {}
        }
    }

    /// Nothing is owed for a notice of this machine's own.
    pub(super) fn seen_by_itself(&mut self, no: No) {
        self.messages.remove(&no);
        self.sweep();
    }

    pub(super) fn progress(&mut self, no: No, stage: Stage) {
        let mail = self.messages.get(&no).and_then(|m| m.content.mail());
        if let Some(mail) = mail.cloned() {
            let key = mail.inbound.key;
            self.tell(&mail, Output::Progress { no, key, stage });
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
