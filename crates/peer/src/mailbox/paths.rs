//! The waking paths: which can be used, which proved itself, and when each may be used again.

use std::collections::BTreeMap;

use super::types::Path;

/// The first pause after a push that did not leave; it doubles.
const BACKOFF_MS: u64 = 2_000;

/// The longest of these pauses.
const BACKOFF_MAX_MS: u64 = 64_000;

/// Showings without evidence, one after the other, after which a path comes last.
const MISSES_MAX: u32 = 2;

/// What is known of a waking path.
#[derive(Debug, Default)]
struct Waking {
    ready: bool,
    proven: bool,
    misses: u32,
    failures: u32,
    pause_until_ms: u64,
    backoff_until_ms: u64,
}

#[derive(Debug, Default)]
pub(super) struct Paths(BTreeMap<Path, Waking>);

impl Paths {
    pub(super) fn add(&mut self, path: Path) {
        self.0.entry(path).or_default();
    }

    /// Notes whether a path can be used. True: it can, and could not before.
    pub(super) fn set(&mut self, path: Path, ready: bool) -> bool {
        let Some(waking) = self.0.get_mut(path) else {
            return false;
        };
        let was = std::mem::replace(&mut waking.ready, ready);
        ready && !was
    }

    /// The best ready path that `may` be used; if only such as failed a moment ago, the one whose
    /// turn is soonest.
    pub(super) fn best(&self, now_ms: u64, may: impl Fn(Path) -> bool) -> Option<Path> {
        let ready = self.0.iter().filter(|(path, it)| it.ready && may(path));
        let best = ready.min_by_key(|(path, waking)| {
            let backoff_ms = waking.backoff_until_ms.saturating_sub(now_ms);
            (backoff_ms, waking.doubt(), path.rank)
        });
        best.map(|(path, _)| *path)
    }

    /// When a path may be used again. Nobody is too urgent for a path that just failed.
    pub(super) fn free_at(&self, path: Path, urgent: bool) -> u64 {
        self.0.get(path).map_or(0, |waking| {
            let pause = if urgent { 0 } else { waking.pause_until_ms };
            pause.max(waking.backoff_until_ms)
        })
    }

    pub(super) fn used(&mut self, path: Path) {
        if path.one_shot {
            self.set(path, false);
        }
    }

    pub(super) fn took(&mut self, now_ms: u64, path: Path) {
        if let Some(waking) = self.0.get_mut(path) {
            waking.failures = 0;
            waking.pause_until_ms = now_ms + path.gap_ms;
        }
    }

    pub(super) fn failed(&mut self, now_ms: u64, path: Path) {
        if let Some(waking) = self.0.get_mut(path) {
            let pause = BACKOFF_MS << waking.failures.min(5);
            waking.backoff_until_ms = now_ms + pause.min(BACKOFF_MAX_MS);
            waking.failures += 1;
            waking.ready = false;
        }
    }

    /// Text that went there is in the conversation.
    pub(super) fn arrived(&mut self, path: Path) {
        if let Some(waking) = self.0.get_mut(path) {
            waking.misses = 0;
        }
    }

    /// The model saw what went there.
    pub(super) fn proved(&mut self, path: Path) {
        self.arrived(path);
        if let Some(waking) = self.0.get_mut(path) {
            waking.proven = true;
        }
    }

    /// Nothing showed in time that a push arrived.
    pub(super) fn missed(&mut self, path: Path) {
        if let Some(waking) = self.0.get_mut(path) {
            waking.misses = waking.misses.saturating_add(1);
        }
    }
}

impl Waking {
    /// Low is good: what brought proof, then what may, then what does not seem to arrive.
    fn doubt(&self) -> u8 {
        match (self.misses < MISSES_MAX, self.proven) {
            (true, true) => 0,
            (true, false) => 1,
            (false, _) => 2,
        }
    }
}
