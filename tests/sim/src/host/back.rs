//! What a host gives back.

use peerbus_peer::session::Key;
use peerbus_wire::ClientFrame;

use super::Host;
use crate::client::Ctx;
use crate::failure::Verdict;

impl Host {
    /// A message is not this host's any more: it lets it go, or not, as a client that hangs.
    pub(super) fn lapsed(&mut self, ctx: &mut Ctx<'_>, key: Key, reason: Option<&str>) -> Verdict {
        let now_ms = self.now(ctx).mono_ms;
        if let Some(mailbox) = &mut self.mailbox {
            return mailbox.lapsed(now_ms, key, reason);
        }
        if ctx.rng.chance(700) {
            self.held.retain(|held| *held != key);
        }
        Ok(())
    }

    /// Hands a delivery back, as another client may: the session does not.
    pub(super) fn hand_back(&mut self, ctx: &mut Ctx<'_>) {
        if !self.delivered.is_empty() {
            let at = ctx.rng.index(self.delivered.len());
            let key = self.delivered.swap_remove(at);
            // A mailbox may have shown it.
            let again = self.mailbox.is_some() || ctx.rng.chance(500);
            self.say(ctx, &ClientFrame::Release { key, again });
        }
    }
}
