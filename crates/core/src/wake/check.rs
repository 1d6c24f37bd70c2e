//! What must hold between inputs.

use super::Ladder;
use super::entries::{Cause, Phase, Stage, WAKING_SHOWINGS_MAX};
use super::push::PUSH;
use super::types::{ParcelId, Path};

impl Ladder {
    /// Asserts what must hold between inputs.
    ///
    /// # Panics
    ///
    /// When it does not.
    pub fn check(&self) {
        let pushes = self.parcels.values().filter(|s| s.cause == Cause::Push);
        let open = pushes.filter(|s| s.stage == Stage::InFlight).count();
        assert!(open <= 1, "{open} pushes wait for their outcome");
        for (id, unseen) in &self.unseen {
            assert_eq!(*id, unseen.entry.id);
            assert!(self.latest >= Some(*id), "{id:?} never arrived");
            self.check_showings(unseen);
            if let Some(parcel) = unseen.flying {
                assert_eq!(
                    self.stage(parcel),
                    Some(Stage::InFlight),
                    "{unseen:?} flies"
                );
            }
            match unseen.phase {
                Phase::Waiting => assert!(unseen.is_fresh(), "{unseen:?} was shown"),
                Phase::Held(parcel) => {
                    assert_eq!(self.stage(parcel), Some(Stage::Held), "{unseen:?} is held");
                }
                Phase::Shown { parcel, .. } | Phase::Overdue { parcel, .. } => {
                    let known = unseen.shown.iter().any(|s| s.parcel == parcel);
                    assert!(known, "{unseen:?} was not shown by {parcel:?}");
                }
            }
        }
        self.check_parcels();
    }

    fn stage(&self, parcel: ParcelId) -> Option<Stage> {
        self.parcels.get(&parcel).map(|sent| sent.stage)
    }

    fn check_showings(&self, unseen: &super::Unseen) {
        assert!(
            unseen.woken() <= WAKING_SHOWINGS_MAX,
            "{unseen:?} woke too often"
        );
        for path in [Path::Hook, Path::Piggyback] {
            let times = unseen.shown.iter().filter(|s| s.path == path).count();
            assert!(times <= 1, "{unseen:?} went {times} times over {path:?}");
        }
        for showing in &unseen.shown {
            assert!(
                self.parcels.contains_key(&showing.parcel),
                "{unseen:?} lost a parcel"
            );
        }
    }

    fn check_parcels(&self) {
        for (id, sent) in &self.parcels {
            assert!(id.0 < self.next_parcel, "{id:?} was never made");
            assert!(!sent.items.is_empty(), "{id:?} is empty");
            let known = |id: &_| self.unseen.contains_key(id);
            let live = sent.items.iter().filter(|(entry, _)| known(entry));
            if sent.stage == Stage::InFlight {
                for (entry, _) in live {
                    let flying = self.unseen.get(entry).and_then(|u| u.flying);
                    assert_eq!(flying, Some(*id), "{entry:?} of {id:?} is elsewhere");
                }
            } else {
                assert!(live.count() > 0, "nothing of {id:?} is unseen");
            }
            if sent.cause == Cause::Push {
                assert!(sent.items.len() <= PUSH.entries, "{id:?} is too large");
            }
        }
    }
}
