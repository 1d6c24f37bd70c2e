//! Texts that were put in here: they are shown like messages, and are no peer's.

use peerbus_peer::mailbox::PUT_IN_MAX;
use peerbus_peer::session::Key;
use peerbus_wire::Stage;

use super::{NOTICE, Oracle};
use crate::failure::{Failure, Verdict, ensure};

impl Oracle {
    pub(super) fn is_local(&self, key: Key) -> bool {
        let which = self.numbers.get(&key);
        let letter = which.and_then(|which| self.letters.get(*which));
        letter.is_some_and(|letter| letter.mail.is_local())
    }

    /// Whether one more may wait unseen.
    pub(in crate::mailbox) fn has_room(&self) -> bool {
        let unseen = self.session.entries.range(..NOTICE);
        let local = unseen.filter(|(which, _)| self.letters[**which].mail.is_local());
        local.count() < PUT_IN_MAX
    }

    /// One that was put in is here, or was refused.
    pub(in crate::mailbox) fn put_in(&mut self, which: usize, taken: bool) -> Verdict {
        self.session.arriving = None;
        let expected =
            self.session.entries.contains_key(&which) || self.letters[which].end.is_some();
        if !taken {
            self.letters[which].end = Some("local refused".into());
        }
        ensure(taken == expected, "room", || {
            format!("{which:?} was put in: {taken}, not {expected}")
        })
    }

    /// How far one is, as its node is told.
    pub(super) fn local(&mut self, key: Key, stage: &Stage) -> Verdict {
        let local = self.is_local(key);
        ensure(local, "local", || {
            format!("{stage:?} is told of a peer's message to nobody")
        })?;
        match stage {
            Stage::Held { why } if why.starts_with("paused: ") => {
                let text = "what was put in here is held like a peer's".to_owned();
                Err(Failure::new("local", text))
            }
            stage => self.reached(key, stage),
        }
    }

    /// The adapter dies, and what was put in with it.
    pub(super) fn lose_local(&mut self) {
        for letter in &mut self.letters {
            if letter.mail.is_local() && letter.end.is_none() {
                letter.end = Some("local lost".into());
            }
        }
    }
}
