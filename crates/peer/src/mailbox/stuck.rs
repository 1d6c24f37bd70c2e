//! Whether the session is stuck: it does nothing, and mail that should wake it does not.

use std::sync::Arc;

use super::MailboxMachine;
use super::message::Message;
use super::types::{Activity, Stuck};

/// So long mail stays unseen in a session that does nothing before that is stuck.
pub(super) const STUCK_MS: u64 = 300_000;

/// After so long its client is looked at: it may be stopped.
const LOOK_MS: u64 = 60_000;

impl MailboxMachine {
    /// Why nothing comes of this session's mail, as far as is known; `None`: it is not stuck.
    #[must_use]
    pub fn stuck(&self) -> Option<Stuck> {
        if self.stopped {
            return Some(Stuck::Stopped);
        }
        let mut all = self.messages.values();
        if let Some(why) = &self.failed
            && all.any(|it| it.failures > 0 && it.waits_ms.is_some())
        {
            return Some(Stuck::Failed(why.clone()));
        }
        let late_ms = self.clock.at(self.now_ms).checked_sub(STUCK_MS)?;
        let late = |message: &&Message| message.waits_ms.is_some_and(|since| since <= late_ms);
        let message = self.lulled().find(late)?;
        let mut words: Vec<_> = message.shown.iter().map(|it| it.path.word).collect();
        words.dedup();
        Some(match words.is_empty() && message.drops > 0 {
            true => Stuck::GivenBack,
            false => Stuck::Unseen(words),
        })
    }

    /// A turn ended: well, or not, and why.
    pub fn turn_ended(&mut self, now_ms: u64, failed: Option<Arc<str>>) {
        self.failed = failed;
        self.finish(now_ms);
    }

    /// How long nothing goes again by itself once the session does nothing, in milliseconds: mail of which turns
    /// failed goes at its own pace, everything else at once.
    #[must_use]
    pub fn again_in_ms(&self, now_ms: u64) -> u64 {
        let idle_ms = self.clock.at(now_ms);
        let waits = self.messages.values();
        let waits = waits.filter(|it| it.is_open() && !it.is_quiet());
        let again = waits.map(|it| it.again_at_ms.filter(|_| it.is_suspect()));
        let left = again.map(|at| at.map_or(0, |at| at.saturating_sub(idle_ms)));
        left.min().unwrap_or(0)
    }

    /// When to look next at what may be stuck.
    pub(super) fn stuck_at(&self) -> Option<u64> {
        let idle_ms = self.clock.at(self.now_ms);
        let looks = self.lulled().filter_map(|message| message.waits_ms);
        let looks = looks.flat_map(|since| [since + LOOK_MS, since + STUCK_MS]);
        self.clock.when(looks.filter(|at| *at > idle_ms).min()?)
    }

    /// Mail that should wake the session, which does nothing.
    fn lulled(&self) -> impl Iterator<Item = &Message> {
        let wakes = self.paths.has_ready();
        let proves = self.transcript.shows();
        let all = self.messages.values();
        all.filter(move |message| {
            let wakes = wakes || message.woken() > 0;
            // Without a transcript what was shown may have been read.
            wakes && (proves || message.is_fresh()) && self.activity == Activity::Idle
        })
    }

    /// The model answered: whatever else waits, a session that works is not stuck.
    pub(super) fn works(&mut self, now_ms: u64) {
        let idle_ms = self.clock.at(now_ms);
        for message in self.messages.values_mut() {
            message.waits_ms = message.waits_ms.map(|since| since.max(idle_ms));
        }
    }

    /// Notes since when mail waits that should wake the session.
    pub(super) fn note_waits(&mut self, now_ms: u64) {
        let idle_ms = self.clock.at(now_ms);
        for message in self.messages.values_mut() {
            let sent = message.out.and_then(|out| self.attempts.get(&out));
            // The agent asked, and has it: nothing needs to wake it for that.
            let has_it = sent.is_some_and(|sent| sent.path.in_result);
            let wakes = message.is_open() && message.is_owed() && !message.is_quiet() && !has_it;
            message.waits_ms = wakes.then(|| message.waits_ms.unwrap_or(idle_ms));
        }
    }
}
