//! What a world of domains is like: drawn once, at its beginning.

use crate::rng::Rng;

/// The traits of a world.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// How many domains there are, two or three.
    pub(super) homes: usize,
    /// Peers of each domain.
    pub(super) peers: usize,
    /// Messages of each peer.
    pub(super) letters: usize,
    /// Trouble lasts so long.
    pub(super) busy_ms: u64,
    /// Of a thousand messages in the stream so many are lost, and so many doubled.
    pub(super) stream_loses: u64,
    pub(super) stream_doubles: u64,
    /// The same of what goes outside of it.
    pub(super) outside_loses: u64,
    pub(super) outside_doubles: u64,
    /// What is on its way takes at most so long.
    pub(super) delay_ms: u64,
    /// Crashes of each bridge and of each broker in the busy time.
    pub(super) bridge_crashes: u64,
    pub(super) home_crashes: u64,
    /// Of a thousand commits so many are the last act of the process.
    pub(super) dies_at_commit: u64,
    /// Restores from a backup.
    pub(super) restores: u64,
    /// The stream is deleted and made anew so often.
    pub(super) forgets: u64,
    /// A broker's disk is nearly full so often.
    pub(super) full: u64,
    /// A peer leaves and comes back so often.
    pub(super) leaves: u64,
    /// Mail expires after so long.
    pub(super) expiry_ms: Option<u64>,
    /// The bridges of this domain lie.
    pub(super) liar: Option<usize>,
    /// Some use the ids of others, and write to nobody.
    pub(super) careless: bool,
    /// Messages of a subject that the stream keeps.
    pub(super) stream_max: usize,
    /// Of a thousand messages so many are requests.
    pub(super) requests: u64,
}

impl Plan {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let homes = if rng.chance(600) { 2 } else { 3 };
        let calm = rng.chance(100);
        let mut some = |max: u64, per_mille: u64| {
            let any = !calm && rng.chance(per_mille);
            let drawn = rng.range(1, max);
            if any { drawn } else { 0 }
        };
        let stream_loses = some(200, 600);
        let stream_doubles = some(200, 500);
        let outside_loses = some(400, 600);
        let outside_doubles = some(300, 500);
        let delay_ms = 5 + some(800, 500);
        let bridge_crashes = some(4, 600);
        let home_crashes = some(3, 500);
        let dies_at_commit = some(15, 300);
        let restores = some(2, 400);
        let forgets = some(3, 400);
        let full = some(12, 300);
        let leaves = some(4, 400);
        let short = some(40_000, 150);
        let stream_max = if some(1, 200) > 0 { 4 } else { 1_000 };
        let liar = some(1, 150) > 0;
        // Drawn apart: a world without any is not another one for that.
        let requests = Rng::new(rng.clone().draw()).pick(&[600, 200, 0, 0]);
        Self {
            homes,
            peers: 2,
            letters: usize::try_from(rng.range(3, 14)).unwrap_or(3),
            busy_ms: rng.range(15_000, 60_000),
            stream_loses,
            stream_doubles,
            outside_loses,
            outside_doubles,
            delay_ms,
            bridge_crashes,
            home_crashes,
            dies_at_commit,
            restores,
            forgets,
            full,
            leaves,
            expiry_ms: (short > 0).then_some(5_000 + short),
            liar: liar.then(|| rng.index(homes)),
            careless: rng.chance(400),
            stream_max,
            requests,
        }
    }

    /// No trouble from here on.
    pub(super) fn heal(&mut self) {
        self.stream_loses = 0;
        self.stream_doubles = 0;
        self.outside_loses = 0;
        self.outside_doubles = 0;
        self.dies_at_commit = 0;
        self.liar = None;
    }
}
