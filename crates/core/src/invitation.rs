//! An invitation: by its secret another machine is let in, once, within ten minutes.

use peerbus_wire::{JoinRefusal, TokenName};

use crate::TokenHash;

/// How long an invitation is good, in milliseconds.
pub const INVITATION_MS: u64 = 600_000;

/// Lets one machine in. It belongs to the first that shows its secret, which shows a token of its own
/// making with it, and may ask again until that token is used: an answer that is lost burns nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invitation {
    /// The name of the machine, and of its token.
    pub name: TokenName,
    /// The hash of the secret.
    pub secret: TokenHash,
    /// It lets nobody in from then on, wall clock, milliseconds since the Unix epoch.
    pub until_ms: u64,
    /// The token of the machine that asked by it first.
    pub holder: Option<TokenHash>,
    /// When that token was used first.
    pub joined_ms: Option<u64>,
}

/// How far an invitation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvitationState {
    /// Nobody has asked by it.
    Open,
    /// A machine has asked by it, and has not used its token, which it has for as long as nobody ends it.
    Asked,
    /// The machine is in.
    Joined,
    /// Its time is over, and nobody has asked by it.
    Over,
}

impl Invitation {
    /// A new one, good from now on.
    #[must_use]
    pub fn new(name: TokenName, secret: TokenHash, now_ms: u64) -> Self {
        Self {
            name,
            secret,
            until_ms: now_ms + INVITATION_MS,
            holder: None,
            joined_ms: None,
        }
    }

    /// How far it is.
    #[must_use]
    pub fn state(&self, now_ms: u64) -> InvitationState {
        match (self.joined_ms, self.holder) {
            (Some(_), _) => InvitationState::Joined,
            (None, Some(_)) => InvitationState::Asked,
            (None, None) if now_ms >= self.until_ms => InvitationState::Over,
            (None, None) => InvitationState::Open,
        }
    }

    /// A machine that shows the secret asks to be let in with this token, which it is bound to from
    /// then on.
    ///
    /// # Errors
    ///
    /// Why it is not; nothing has changed then.
    pub fn ask(&mut self, now_ms: u64, token: TokenHash) -> Result<(), JoinRefusal> {
        match self.state(now_ms) {
            InvitationState::Joined => Err(JoinRefusal::Used),
            _ if now_ms >= self.until_ms => Err(JoinRefusal::Expired),
            _ if self.holder.is_some_and(|holder| !holder.matches(&token)) => {
                Err(JoinRefusal::Taken)
            }
            _ => {
                self.holder = Some(token);
                Ok(())
            }
        }
    }

    /// Lets nobody in from now on.
    pub fn close(&mut self) {
        self.until_ms = 0;
    }

    /// Whether it still lets the machine in that asked by it with this token.
    #[must_use]
    pub fn holds(&self, now_ms: u64, token: &TokenHash) -> bool {
        now_ms < self.until_ms && self.holder.as_ref() == Some(token)
    }

    /// A peer has registered with a token. Whether that changed anything.
    pub fn registered(&mut self, now_ms: u64, token: &TokenHash) -> bool {
        let is_first = self.joined_ms.is_none() && self.holder.as_ref() == Some(token);
        if is_first {
            self.joined_ms = Some(now_ms);
        }
        is_first
    }
}

/// The invitation with this secret. Every one is compared, so that the time says nothing of them.
pub fn invitation_of<'i>(
    all: impl IntoIterator<Item = &'i mut Invitation>,
    secret: &TokenHash,
) -> Option<&'i mut Invitation> {
    let matching = all.into_iter().filter(|it| it.secret.matches(secret));
    matching.fold(None, |found, it| found.or(Some(it)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: TokenHash = TokenHash([1; 32]);
    const B: TokenHash = TokenHash([2; 32]);
    const T0: u64 = 1_000;

    fn laptop() -> Invitation {
        let name = TokenName::parse("laptop").unwrap();
        Invitation::new(name, TokenHash([9; 32]), T0)
    }

    #[test]
    fn the_first_machine_that_asks_may_ask_again_until_its_token_is_used() {
        let mut laptop = laptop();
        assert_eq!(laptop.state(T0), InvitationState::Open);
        assert!(!laptop.registered(T0, &A), "nobody has asked");
        assert_eq!(laptop.ask(T0, A), Ok(()));
        assert_eq!(laptop.ask(T0 + 1, B), Err(JoinRefusal::Taken));
        assert_eq!(laptop.ask(T0 + 2, A), Ok(()));
        assert_eq!(laptop.state(T0 + 2), InvitationState::Asked);
        assert!(!laptop.registered(T0 + 3, &B));
        assert!(laptop.registered(T0 + 4, &A) && !laptop.registered(T0 + 5, &A));
        for token in [A, B] {
            assert_eq!(laptop.ask(T0 + 6, token), Err(JoinRefusal::Used));
        }
        let later = laptop.until_ms + 1;
        assert_eq!(laptop.state(later), InvitationState::Joined);
        assert_eq!(laptop.joined_ms, Some(T0 + 4));
    }

    #[test]
    fn after_ten_minutes_it_lets_nobody_in() {
        let last = T0 + INVITATION_MS - 1;
        assert_eq!(laptop().ask(last, A), Ok(()));
        assert_eq!(laptop().ask(last + 1, A), Err(JoinRefusal::Expired));
        let mut asked = laptop();
        assert_eq!(asked.ask(last, A), Ok(()));
        assert_eq!(asked.ask(last + 1, A), Err(JoinRefusal::Expired));
        assert_eq!(asked.state(last + 1), InvitationState::Asked);
        assert!(asked.holds(last, &A) && !asked.holds(last, &B) && !asked.holds(last + 1, &A));
        assert_eq!(laptop().state(last + 1), InvitationState::Over);
    }

    #[test]
    fn it_is_found_by_its_secret_alone() {
        let mut all = [laptop(), laptop()];
        all[1].secret = B;
        let found = invitation_of(&mut all, &B).unwrap();
        assert_eq!(found.secret, B);
        assert!(invitation_of(&mut all, &A).is_none());
    }
}
