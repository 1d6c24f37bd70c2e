//! Whether the transcript would show an answer.

use super::types::AttemptId;

/// Attempts in a row that left, and whose marks were not found though the session had the time:
/// after so many the transcript that is read is not the session's, or not where the pushes go.
const UNFOUND_MAX: u32 = 8;

/// So often the room in a result is halved.
const HALVED_MAX: u32 = 2;

/// What is known of the session's transcript.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    readable: bool,
    unfound: u32,
    /// Attempts before this do not count.
    since: Option<AttemptId>,
    /// So often the room in a result was halved, as the client cut one,
    halved: u32,
    /// and attempts before this were larger.
    halved_at: Option<AttemptId>,
}

impl Transcript {
    /// The host can read it, or cannot. `next`: the next attempt that will be made.
    pub(super) fn set(&mut self, readable: bool, next: AttemptId) {
        if std::mem::replace(&mut self.readable, readable) != readable {
            self.found(next);
        }
    }

    /// The host can read it, whether or not it is the session's.
    pub(super) fn is_readable(&self) -> bool {
        self.readable
    }

    /// An answer in it would be noticed.
    pub(super) fn shows(&self) -> bool {
        self.readable && self.unfound < UNFOUND_MAX
    }

    /// An attempt left no mark in time. True: that is one too many.
    pub(super) fn missed(&mut self, attempt: AttemptId) -> bool {
        let shows = self.shows();
        if self.since <= Some(attempt) {
            self.unfound = self.unfound.saturating_add(1);
        }
        shows && !self.shows()
    }

    /// The attempt's result does not stand there whole: the next ones are smaller, or all since are already.
    /// False: they are as small as they get.
    pub(super) fn cut(&mut self, attempt: AttemptId, next: AttemptId) -> bool {
        if self.halved_at > Some(attempt) {
            return true;
        }
        let goes = self.halved < HALVED_MAX;
        if goes {
            self.halved += 1;
            self.halved_at = Some(next);
        }
        goes
    }

    /// So much is left of the room in a result. Where nothing would show that a client cut one, a call that
    /// names a message proves it: there results are as small as they get.
    pub(super) fn room(&self, whole: usize) -> usize {
        let halved = if self.readable {
            self.halved
        } else {
            HALVED_MAX
        };
        whole >> halved
    }

    /// A mark was found. `next`: the next attempt that will be made.
    pub(super) fn found(&mut self, next: AttemptId) {
        self.unfound = 0;
        self.since = Some(next);
    }
}
