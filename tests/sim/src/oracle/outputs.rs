//! What leaves the broker.

use peerbus_core::broker::{BrokerOutput, ConnId};
use peerbus_core::store::{Fate, PeerId, PeerKind};
use peerbus_wire::limits::FRAME_BYTES_MAX;
use peerbus_wire::{BrokerFrame, CloseReason, MessageId, PeersFrame, Receipt, RefusalCode, Stage};

use super::inputs::Expect;
use super::{End, Oracle};
use crate::failure::{Failure, Verdict, ensure};

impl Oracle {
    /// This leaves the broker now.
    ///
    /// # Errors
    ///
    /// When it must not.
    pub fn output(&mut self, output: &BrokerOutput) -> Verdict {
        match output {
            BrokerOutput::Send(conn, frame) => self.sent(*conn, frame),
            BrokerOutput::Close(conn, reason) => {
                if let Some(model) = self.conns.get_mut(conn) {
                    model.closed = true;
                    // A broker that stops still heeds what was under way, and answers it.
                    model.silent = *reason != CloseReason::GoingAway;
                }
                Ok(())
            }
            BrokerOutput::Ping(_) | BrokerOutput::Event(_) => Ok(()),
        }
    }

    /// Every output that may leave now has left, and a commit released them.
    ///
    /// # Errors
    ///
    /// When a sender was not answered.
    pub fn released(&mut self) -> Verdict {
        for (conn, model) in self.conns.iter().filter(|(_, model)| !model.closed) {
            if let Some((id, expect)) = model.awaiting.first() {
                let rule = if matches!(expect, Expect::Refused(RefusalCode::UnknownRecipient)) {
                    "I12"
                } else {
                    "receipt"
                };
                let text = format!("{id} on {conn:?} was not answered, expected {expect:?}");
                return Err(Failure::new(rule, text));
            }
        }
        Ok(())
    }

    fn sent(&mut self, conn: ConnId, frame: &BrokerFrame) -> Verdict {
        // A frame to a connection that is gone is dropped by the shell.
        let Some(model) = self.conns.get(&conn) else {
            return Ok(());
        };
        ensure(!model.silent, "close", || {
            format!("{conn:?} was closed, then got {frame:?}")
        })?;
        if model.closed {
            return Ok(());
        }
        let bytes = frame.encode().len();
        ensure(bytes <= FRAME_BYTES_MAX, "limits", || {
            format!("a frame of {bytes} bytes")
        })?;
        match frame {
            BrokerFrame::Peers(peers) if model.greeted.is_none() => self.greeted(conn, peers),
            _ if model.greeted.is_none() => Err(Failure::new(
                "handshake",
                format!("{conn:?} got a frame before its ack"),
            )),
            BrokerFrame::Peers(_) => self.barrier(conn),
            BrokerFrame::Deliver(deliver) => self.delivered(conn, deliver.text()),
            BrokerFrame::Receipts(receipts) => {
                ensure(model.ext, "handshake", || {
                    format!("{conn:?} speaks v1, got receipts")
                })?;
                receipts
                    .iter()
                    .try_for_each(|receipt| self.receipt(conn, receipt))
            }
            BrokerFrame::Recall(_)
            | BrokerFrame::Renamed(_)
            | BrokerFrame::Retired(_)
            | BrokerFrame::Forwarded(_) => ensure(model.ext, "handshake", || {
                format!("{conn:?} speaks v1, got {frame:?}")
            }),
            BrokerFrame::Joined(_) => Err(Failure::new("handshake", "nobody was invited")),
        }
    }

    fn greeted(&mut self, conn: ConnId, frame: &PeersFrame) -> Verdict {
        let Some(claim) = self.conns.get(&conn).and_then(|model| model.claim.clone()) else {
            return Err(Failure::new(
                "handshake",
                format!("{conn:?} was greeted unasked"),
            ));
        };
        let row = self.durable.peer_named(&claim.name);
        // The commit that registered it may have ended its name.
        let ended = || {
            let peer = self.conns.get(&conn)?.peer?;
            let row = self.durable.peers.get(&peer)?;
            (row.kind == PeerKind::Ended).then_some(row)
        };
        let Some(peer) = row.or_else(ended).map(|row| row.id) else {
            return Err(Failure::new(
                "I1",
                format!("{} was greeted, not registered", claim.name),
            ));
        };
        ensure(frame.names.contains(&claim.name), "handshake", || {
            format!("{} is not in its own handshake ack", claim.name)
        })?;
        let mut takeover = false;
        for (other, model) in &self.conns {
            if *other != conn && model.peer == Some(peer) && model.greeted.is_some() {
                takeover |= model.closed;
                ensure(model.closed, "I7", || {
                    format!("{} is live on {other:?} and on {conn:?}", claim.name)
                })?;
            }
        }
        let commits = self.commits;
        let model = self.conn(conn);
        model.peer = Some(peer);
        model.greeted = Some(commits);
        model.takeover = takeover;
        model.ext = frame.ext.is_some();
        model.window = frame.window;
        ensure(
            model.ext == (claim.ext > 0) && model.ext == frame.window.is_some(),
            "handshake",
            || {
                format!(
                    "{} asked for ext {}, got {:?}",
                    claim.name, claim.ext, frame.ext
                )
            },
        )
    }

    fn barrier(&mut self, conn: ConnId) -> Verdict {
        let model = self.conn(conn);
        let Some(peer) = model.peer else {
            return Ok(());
        };
        let Some(before) = model.barriers.pop_front() else {
            return Err(Failure::new(
                "barrier",
                format!("{conn:?} got `peers` unasked"),
            ));
        };
        for id in before {
            let known = self.any_name(peer, |name| {
                let key = (name.clone(), id.as_str().to_owned());
                self.ever.contains_key(&key)
            });
            ensure(known, "I1", || {
                format!("`peers` was answered before {id}, sent earlier, was on disk")
            })?;
        }
        Ok(())
    }

    /// How a delivery ended is told as it is kept, after restarts too, and is not forgotten without a
    /// bound.
    fn truly_ended(&self, peer: PeerId, receipt: &Receipt) -> Verdict {
        let forgotten = matches!(receipt.stage, Stage::Settled { .. }) && self.rules.history;
        let fates = self.durable.ids.get(&(peer, receipt.id.clone()));
        let fates = fates.and_then(|seq| self.durable.fates.get(seq));
        // Of a request that was read under an old name the present one is told.
        let of = |fate: &Fate| {
            let to = receipt.to.as_deref().unwrap_or_default();
            let is_to = |name: &str| name.eq_ignore_ascii_case(to);
            is_to(&fate.to) || self.any_name(fate.recipient, |name| is_to(name))
        };
        let same = |fate: &Fate| *fate.stage == receipt.stage && of(fate);
        let kept = fates.is_some_and(|fates| fates.iter().any(same));
        ensure(
            !forgotten && (!receipt.stage.is_final() || kept),
            "fate",
            || format!("{receipt:?} was said, kept is {fates:?}"),
        )
    }

    fn receipt(&mut self, conn: ConnId, receipt: &Receipt) -> Verdict {
        let Some(peer) = self.conns.get(&conn).and_then(|model| model.peer) else {
            return Ok(());
        };
        let id = &receipt.id;
        if let Some(key) = &receipt.key {
            let number = key
                .as_str()
                .strip_prefix('n')
                .and_then(|n| n.parse().ok())
                .unwrap_or(0);
            let kept = self.durable.notices.get(&(peer, number));
            let same = kept.is_some_and(|notice| notice.id == *id);
            // It may have been acked, or dropped, since.
            let passed = self.hosts.numbers.contains(&number);
            return ensure(same || kept.is_none() && passed, "I1", || {
                format!("statement {key:?} on {id} is not on disk")
            });
        }
        self.truly_ended(peer, receipt)?;
        match &receipt.stage {
            Stage::Accepted(_) => {
                let durable = self.durable.ids.contains_key(&(peer, id.clone()));
                ensure(durable, "I1", || {
                    format!("{id} was receipted and is not on disk")
                })?;
                self.answered(conn, id, &Expect::Accepted)
            }
            Stage::Refused(refusal) => self.answered(conn, id, &Expect::Refused(refusal.code)),
            Stage::Delivered => {
                let durable = self.durable.ids.contains_key(&(peer, id.clone()));
                ensure(durable, "I1", || {
                    format!("{id} is `delivered` and not on disk")
                })
            }
            Stage::Acked(_) => {
                let to = receipt.to.clone().unwrap_or_default();
                // Of peers that had the name one after the other it may be either.
                let name = to.to_ascii_lowercase();
                let had = self.all_names.values().filter(|all| all.contains(&name));
                if had.count() > 1 {
                    return Ok(());
                }
                let ended = self
                    .durable
                    .names
                    .get(&to.to_ascii_lowercase())
                    .is_none_or(|to| {
                        let known = self.durable.ids.get(&(peer, id.clone()));
                        // Or it has come to be owed somebody else's copy.
                        known.is_none_or(|seq| {
                            let debt = (*to, *seq);
                            !self.durable.debts.contains(&debt) || self.inherited.contains(&debt)
                        })
                    });
                ensure(ended, "I1", || {
                    format!("{id} is `acked` by {to} and still owed on disk")
                })
            }
            _ => Ok(()),
        }
    }

    /// An envelope's fate is said: it must be the one that the model expects. The answer to
    /// `status` repeats `accepted` and is no answer to an envelope.
    fn answered(&mut self, conn: ConnId, id: &MessageId, said: &Expect) -> Verdict {
        let model = self.conn(conn);
        let Some(at) = model.awaiting.iter().position(|(waiting, _)| waiting == id) else {
            return ensure(*said == Expect::Accepted, "receipt", || {
                format!("{id} was refused twice, or never sent")
            });
        };
        let (_, expect) = model.awaiting.remove(at);
        let accepted = matches!(expect, Expect::Accepted | Expect::Duplicate);
        let unknown = Expect::Refused(RefusalCode::UnknownRecipient);
        let late = match &expect {
            Expect::Late(otherwise) => *said == **otherwise || *said == unknown,
            _ => false,
        };
        let holds = expect == *said || accepted && *said == Expect::Accepted || late;
        let rule = match expect {
            Expect::Refused(RefusalCode::UnknownRecipient) => "I12",
            Expect::Refused(RefusalCode::From) => "I10",
            Expect::Refused(RefusalCode::DiskFull) => "space",
            Expect::Refused(RefusalCode::Quota | RefusalCode::QueueFull) => "quota",
            _ if *said == Expect::Refused(RefusalCode::Quota) => "quota",
            _ => "receipt",
        };
        ensure(holds, rule, || {
            format!("{id}: expected {expect:?}, got {said:?}")
        })
    }

    /// How the debt of `peer` for a message ended, if it did.
    pub(super) fn end_of(
        &self,
        peer: peerbus_core::store::PeerId,
        seq: peerbus_wire::Seq,
    ) -> Option<(End, u64)> {
        *self.history.get(&seq)?.recipients.get(&peer)?
    }
}
