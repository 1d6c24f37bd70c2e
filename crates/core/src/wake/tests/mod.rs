//! The rules of the ladder, one test each.

mod climbing;
mod evidence;
mod passive;
mod pushing;

use peerbus_wire::How;

use super::*;

/// Much room.
const ROOM: Limit = Limit {
    entries: 50,
    bytes: 65_536,
};

/// A ladder, its time, and what it wants done.
struct Rig {
    ladder: Ladder,
    now_ms: u64,
    actions: Vec<Action>,
    next: u64,
}

impl Rig {
    /// A rig with these paths, an idle session and a transcript.
    fn new(paths: &[Path]) -> Self {
        let mut rig = Self {
            ladder: Ladder::new(Policy::Auto),
            now_ms: 1_000_000,
            actions: Vec::new(),
            next: 1,
        };
        rig.input(|ladder, now| ladder.set_evidence(now, true));
        rig.activity(Activity::Idle);
        for path in paths {
            rig.ready(*path);
        }
        rig
    }

    fn with_policy(policy: Policy, paths: &[Path]) -> Self {
        let mut rig = Self::new(&[]);
        rig.ladder.policy = policy;
        for path in paths {
            rig.ready(*path);
        }
        rig
    }

    fn input<T>(&mut self, what: impl FnOnce(&mut Ladder, u64) -> T) -> T {
        let out = what(&mut self.ladder, self.now_ms);
        self.actions
            .extend(std::iter::from_fn(|| self.ladder.poll_action()));
        self.ladder.check();
        out
    }

    /// Lets time pass, with every deadline in it.
    fn pass(&mut self, ms: u64) {
        let end = self.now_ms + ms;
        while let Some((at, _)) = self.ladder.poll_timeout().filter(|(at, _)| *at <= end) {
            self.now_ms = self.now_ms.max(at);
            self.input(Ladder::handle_timeout);
        }
        self.now_ms = end;
    }

    fn ready(&mut self, path: Path) {
        self.input(|ladder, now| ladder.set_path(now, path, PathState::Ready));
    }

    fn absent(&mut self, path: Path) {
        self.input(|ladder, now| ladder.set_path(now, path, PathState::Absent));
    }

    fn activity(&mut self, activity: Activity) {
        self.input(|ladder, now| ladder.set_activity(now, activity));
    }

    /// An entry of 100 bytes arrives.
    fn arrive(&mut self, priority: Priority) -> EntryId {
        self.arrive_sized(priority, 100)
    }

    fn arrive_sized(&mut self, priority: Priority, bytes: usize) -> EntryId {
        let id = EntryId(self.next);
        self.next += 1;
        let entry = Entry {
            id,
            priority,
            bytes,
            again: false,
        };
        self.input(|ladder, now| ladder.arrive(now, entry));
        id
    }

    fn next(&mut self) -> EntryId {
        self.arrive(Priority::Next)
    }

    fn told(&mut self, parcel: &Parcel, outcome: Outcome) {
        self.input(|ladder, now| ladder.told(now, parcel.id, outcome));
    }

    fn presented(&mut self, parcel: &Parcel) {
        self.input(|ladder, now| ladder.presented(now, parcel.id));
    }

    fn answered(&mut self, parcel: &Parcel) {
        self.input(|ladder, now| ladder.answered(now, parcel.id));
    }

    fn hand_over(&mut self, path: Path) -> Option<Parcel> {
        self.input(|ladder, now| ladder.hand_over(now, path, ROOM))
    }

    fn read(&mut self) -> Option<Parcel> {
        self.input(|ladder, now| ladder.read(now, Path::Inbox, None, ROOM))
    }

    /// The push that is wanted now, if any; there may be one.
    fn wanted(&mut self) -> Option<Parcel> {
        let mut pushes = Vec::new();
        self.actions.retain(|action| match action {
            Action::Push(parcel) => {
                pushes.push(parcel.clone());
                false
            }
            _ => true,
        });
        assert!(pushes.len() <= 1, "one push at a time: {pushes:?}");
        pushes.pop()
    }

    /// The push that is wanted now.
    fn push(&mut self) -> Parcel {
        self.wanted().expect("a push")
    }

    /// The push that is wanted now leaves.
    fn pushed(&mut self) -> Parcel {
        let parcel = self.push();
        self.told(&parcel, Outcome::Written);
        parcel
    }

    /// What was settled since, and how.
    fn settled(&mut self) -> Vec<(EntryId, How)> {
        let mut settled = Vec::new();
        self.actions.retain(|action| match action {
            Action::Settle { entry, how } => {
                settled.push((*entry, how.clone()));
                false
            }
            _ => true,
        });
        settled
    }

    /// The steps that the sender was told since.
    fn steps(&mut self) -> Vec<(EntryId, Step)> {
        let mut steps = Vec::new();
        self.actions.retain(|action| match action {
            Action::Progress { entry, step } => {
                steps.push((*entry, *step));
                false
            }
            _ => true,
        });
        steps
    }

    fn rejected(&mut self) -> Vec<EntryId> {
        let mut rejected = Vec::new();
        self.actions.retain(|action| match action {
            Action::Reject { entry, .. } => {
                rejected.push(*entry);
                false
            }
            _ => true,
        });
        rejected
    }
}

fn ids(parcel: &Parcel) -> Vec<u64> {
    parcel.items.iter().map(|item| item.entry.0).collect()
}

fn repeats(parcel: &Parcel) -> Vec<bool> {
    parcel.items.iter().map(|item| item.repeat).collect()
}

fn seen(path: &str, evidence: &str) -> How {
    How::Seen {
        path: path.to_owned(),
        evidence: evidence.to_owned(),
    }
}

fn only_pushed(path: &str) -> How {
    How::Pushed {
        path: path.to_owned(),
    }
}
