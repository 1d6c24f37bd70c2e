//! What a host gives back, what becomes of requests at it, and what is done to its session.

use peerbus_peer::session::Key;
use peerbus_wire::{Address, AuditAction, AuditRecord, ClientFrame, MessageId, PeerName, Stage};

use super::Host;
use crate::client::Ctx;
use crate::draw::answers;
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

    /// Does something about a request that it was shown, or forgets it.
    pub(super) fn answer(&mut self, ctx: &mut Ctx<'_>) {
        let at = ctx.rng.index(self.owes.len());
        let (from, id, key) = self.owes[at].clone();
        match ctx.rng.index(8) {
            0 => {
                let said = ctx.rng.pick(&["half \"way\"", ""]).to_owned();
                let stage = Stage::Working { said };
                return self.say(ctx, &ClientFrame::progress(key, stage));
            }
            1 => {
                let reason = "it is not mine to do".to_owned();
                self.say(ctx, &ClientFrame::reject(key, reason));
            }
            2 => {}
            _ => {
                let talk = answers(ctx.rng, &id);
                let to = PeerName::parse(&from).map_or(Address::All, Address::Peer);
                self.send_to(ctx, to, &talk);
            }
        }
        self.owes.swap_remove(at);
    }

    /// Takes a message back, which may be a request of its.
    pub(super) fn withdraw(&mut self, ctx: &mut Ctx<'_>) {
        let at = ctx.rng.index(self.numbers.len().max(1));
        let id = self.numbers.keys().nth(at);
        if let Some(id) = id.and_then(|id| MessageId::parse(id).ok()) {
            self.say(ctx, &ClientFrame::Withdraw { id });
        }
    }

    /// Somebody does something to the session, or does it again and again.
    pub(super) fn tells_of_actions(&mut self, ctx: &mut Ctx<'_>) {
        let times = ctx.rng.pick(&[1, 1, 40, 200]);
        for _ in 0..times {
            let action = ctx.rng.pick(&AuditAction::ALL);
            self.actions += 1;
            let uid = u32::try_from(ctx.proc).unwrap_or(0) << 20 | self.actions;
            self.session.audit(AuditRecord {
                uid: Some(uid),
                ..AuditRecord::new(action, "done")
            });
        }
    }
}
