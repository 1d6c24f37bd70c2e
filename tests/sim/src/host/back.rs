//! What a host gives back.

use peerbus_peer::session::{JobNews, Key};
use peerbus_wire::ClientFrame;

use super::Host;
use crate::client::Ctx;
use crate::failure::Verdict;

impl Host {
    /// The broker wants a message for another one: it goes, or it is kept, as by a client that hangs.
    pub(super) fn job(&mut self, ctx: &mut Ctx<'_>, key: Key, news: JobNews) -> Verdict {
        let now = self.now(ctx);
        if let Some(mailbox) = &mut self.mailbox {
            return mailbox.job(now.mono_ms, key, news);
        }
        if news == JobNews::Recalled && ctx.rng.chance(700) {
            self.held.retain(|held| *held != key);
            self.session.give_back(now, key, true);
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
