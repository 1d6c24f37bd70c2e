//! Doing what the ladder has decided.

use peerbus_adapter::wake::{Action, EntryId, Path, Priority, Step};
use peerbus_adapter::{How, Stage};

use super::state::{Content, State, Waiting};

impl State {
    /// Does what the ladder has decided, pushes excepted.
    pub(super) fn act(&mut self, now_ms: u64) {
        loop {
            while let Some(action) = self.ladder.poll_action() {
                self.perform(now_ms, action);
            }
            self.about.set_evidence(&self.bus, self.ladder.evidence());
            let held = self.bus.held();
            let full = |part: usize, whole: u32| part.saturating_mul(4) >= whole as usize * 3;
            let crowded = held.messages > 0
                && (full(held.messages, held.window.messages)
                    || full(held.bytes, held.window.bytes));
            let held_back = self.held.len();
            if (crowded, held_back) == (self.crowded, self.held_back) {
                return;
            }
            if std::mem::replace(&mut self.held_back, held_back) != held_back {
                self.ladder.set_held_back(now_ms, held_back);
            }
            if std::mem::replace(&mut self.crowded, crowded) != crowded {
                self.ladder.set_crowded(now_ms, crowded);
            }
        }
    }

    fn perform(&mut self, now_ms: u64, action: Action) {
        match action {
            Action::Push(parcel) => {
                self.note(&parcel);
                self.pushes.push_back(parcel);
            }
            Action::Settle { entry, how } => self.settle(entry, how),
            Action::Reject { entry, reason } => match self.waiting.remove(&entry) {
                Some(Waiting {
                    content: Content::Message(mail),
                    ..
                }) => self.bus.reject(&mail.inbound.key, reason),
                Some(waiting) => self.fate_told(&waiting.content),
                None => {}
            },
            Action::Progress { entry, step } => {
                if let Some(Waiting {
                    content: Content::Message(mail),
                    ..
                }) = self.waiting.get(&entry)
                {
                    self.bus.progress(&mail.inbound.key, &progress(step));
                }
            }
            Action::Crowded { waiting } => {
                // An older one that waits says nothing more.
                if let Some(before) = self.crowd_notice.take() {
                    self.ladder.named(now_ms, before);
                }
                let sentence = format!(
                    "what waits here unseen ({waiting}) nearly fills what the broker sends ahead; \
                     more may wait there. Read it with the bus inbox tool"
                );
                let notice = self.notice(now_ms, &sentence, None, Priority::Next);
                self.crowd_notice = Some(notice);
            }
        }
    }

    fn settle(&mut self, entry: EntryId, how: How) {
        let Some(waiting) = self.waiting.remove(&entry) else {
            return;
        };
        match waiting.content {
            Content::Message(mail) => {
                self.bus.ack(&mail.inbound.key, how);
                self.recent.add(&mail);
            }
            notice @ Content::Notice { .. } => self.fate_told(&notice),
        }
    }

    fn fate_told(&self, content: &Content) {
        if let Content::Notice {
            token: Some(token), ..
        } = content
        {
            self.bus.ack_notice(*token);
        }
    }
}

fn progress(step: Step) -> Stage {
    let word = |path: Path| path.as_str().to_owned();
    match step {
        Step::Pushed(path) => Stage::Pushed { path: word(path) },
        Step::Presented(path) => Stage::Presented { path: word(path) },
        Step::Held(path) => Stage::Held {
            why: format!(
                "the recipient's client keeps it until its user decides ({})",
                path.as_str()
            ),
        },
    }
}
