//! What must hold between inputs.

use super::MailboxMachine;
use super::message::{Cause, Message, Place, Showing, Step, WAKING_SHOWINGS_MAX};
use super::mutation::MailboxMutation;
use super::owed::{OWED_MAX, REMIND_MS};
use super::types::{ASK, AttemptId, DRAIN, INBOX};

impl MailboxMachine {
    /// Asserts what must hold between inputs.
    ///
    /// # Panics
    ///
    /// When it does not.
    pub fn check(&self) {
        let pushes = self.attempts.values().filter(|s| s.cause == Cause::Push);
        let open = pushes.filter(|s| s.step == Step::InFlight).count();
        assert!(open <= 1, "{open} pushes wait for their outcome");
        for (no, message) in &self.messages {
            assert!(no.0 <= self.last, "{no:?} never arrived");
            check_showings(message);
            for showing in &message.shown {
                let known = self.attempts.contains_key(&showing.attempt);
                assert!(known, "{message:?} lost an attempt");
            }
            self.check_place(message);
        }
        self.check_attempts();
        let nags = self.mutations.broken(MailboxMutation::RemindAgain);
        let often = self.owed().any(|owed| owed.reminded > REMIND_MS.len());
        let many = self.owed().count() > OWED_MAX;
        assert!(!many && (nags || !often), "{:?}", self.owed);
    }

    fn check_place(&self, message: &Message) {
        if let Some(attempt) = message.out {
            let step = self.step(attempt);
            assert_eq!(step, Some(Step::InFlight), "{message:?} is out");
        }
        match &message.place {
            Place::New => assert!(message.is_fresh(), "{message:?} was shown"),
            Place::Kept(by) => {
                assert_eq!(self.step(*by), Some(Step::Kept), "{message:?} is kept");
            }
            Place::Shown { attempt, .. } | Place::Overdue { attempt, .. } => {
                let known = message.shown.iter().any(|s| s.attempt == *attempt);
                assert!(known, "{message:?} was not shown by {attempt:?}");
            }
            Place::Withheld | Place::Held(_) | Place::Expected(_) => {
                assert!(!message.is_notice(), "{message:?} is owed to nobody");
            }
        }
    }

    fn step(&self, attempt: AttemptId) -> Option<Step> {
        self.attempts.get(&attempt).map(|sent| sent.step)
    }

    fn check_attempts(&self) {
        for (id, sent) in &self.attempts {
            assert!(id.0 < self.next_attempt, "{id:?} was never made");
            let open = sent.step == Step::InFlight;
            assert!(open || !sent.items.is_empty(), "{id:?} is empty");
            let known = |no: &_| self.messages.get(no);
            let mut live = sent.items.iter().filter_map(|(no, _)| known(no));
            if sent.step == Step::InFlight {
                let here = |message: &Message| message.out == Some(*id);
                assert!(live.all(here), "some of {id:?} is elsewhere");
            } else {
                assert!(live.next().is_some(), "nothing of {id:?} is unseen");
            }
            if sent.cause == Cause::Push {
                let max = sent.path.limit.messages;
                assert!(sent.items.len() <= max, "{id:?} is too large");
            }
        }
    }
}

fn check_showings(message: &Message) {
    let woken = message.woken();
    assert!(woken <= WAKING_SHOWINGS_MAX, "{message:?} woke too often");
    for showing in &message.shown {
        let path = showing.path;
        // A beginning, and later the end of the rest.
        let same = |s: &&Showing| s.path == path && s.whole == showing.whole;
        let times = message.shown.iter().filter(same).count();
        // The agent asks for what goes over these as often as it likes.
        let once = !path.wakes && ![&INBOX, &DRAIN, &ASK].contains(&path);
        assert!(times <= 1 || !once, "{message:?} went over {path:?} again");
    }
}
