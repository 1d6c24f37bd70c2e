//! The way of the stream's messages to one joint.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::Instant;

/// How long a message may wait for room: as long as one does, every joint waits.
const WAITS: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) enum Offer<M> {
    Taken,
    /// There is no room for it yet.
    Full(Waiting<M>),
    /// It is not wanted.
    Dropped(M),
}

#[derive(Debug)]
pub(crate) struct Waiting<M> {
    to: mpsc::Sender<M>,
    mail: M,
    until: Instant,
}

#[derive(Debug)]
pub(crate) struct Lane<M> {
    to: mpsc::Sender<M>,
    /// One waited for too long: nothing more goes in until all that is in there was taken out.
    behind: bool,
}

impl<M> Lane<M> {
    pub(crate) fn new(to: mpsc::Sender<M>) -> Self {
        Self { to, behind: false }
    }

    pub(crate) fn offer(&mut self, mail: M, now: Instant) -> Offer<M> {
        self.behind &= self.to.capacity() < self.to.max_capacity();
        if self.behind {
            return Offer::Dropped(mail);
        }
        match self.to.try_send(mail) {
            Ok(()) => Offer::Taken,
            Err(TrySendError::Full(mail)) => Offer::Full(Waiting {
                to: self.to.clone(),
                mail,
                until: now + WAITS,
            }),
            Err(TrySendError::Closed(mail)) => Offer::Dropped(mail),
        }
    }

    /// A message waited for too long.
    pub(crate) fn fall_behind(&mut self) {
        self.behind = true;
    }
}

/// Hands a message over once there is room for it; gives it back when there was none in time.
pub(crate) async fn hand_over<M>(waiting: &mut Option<Waiting<M>>) -> Option<M> {
    let Some(Waiting { to, until, .. }) = waiting else {
        return std::future::pending().await;
    };
    let room = tokio::time::timeout_at(*until, to.clone().reserve_owned()).await;
    let Waiting { mail, .. } = waiting.take()?;
    match room {
        Ok(Ok(room)) => {
            room.send(mail);
            None
        }
        _ => Some(mail),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_finds_no_room_waits_a_moment_and_then_no_more_until_all_was_taken() {
        let (to, mut from) = mpsc::channel(2);
        let mut lane = Lane::new(to);
        let long_ago = Instant::now().checked_sub(2 * WAITS).unwrap();
        let full = |offer| match offer {
            Offer::Full(waiting) => Some(waiting),
            other => panic!("{other:?}"),
        };
        assert!(matches!(lane.offer(1, long_ago), Offer::Taken));
        assert!(matches!(lane.offer(2, long_ago), Offer::Taken));
        let mut waiting = full(lane.offer(3, Instant::now()));
        assert_eq!(from.recv().await, Some(1));
        assert_eq!(hand_over(&mut waiting).await, None, "there is room in time");
        let mut waiting = full(lane.offer(4, long_ago));
        assert_eq!(hand_over(&mut waiting).await, Some(4));
        lane.fall_behind();
        assert_eq!(from.recv().await, Some(2));
        assert!(matches!(lane.offer(5, long_ago), Offer::Dropped(5)));
        assert_eq!(from.recv().await, Some(3));
        assert!(matches!(lane.offer(6, long_ago), Offer::Taken));
    }
}
