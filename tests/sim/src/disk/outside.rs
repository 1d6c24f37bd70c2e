//! Promises of the broker that are broken from outside: by the disk that it writes to, by its clock, and by
//! what it is told.

use peerbus_core::Delivered;
use peerbus_core::store::{Notice, PeerId, PeerKind, PeerRow, Txn as _};

use super::{Disk, Result};

/// A promise of the broker that is broken without its help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutsideMutation {
    /// I19: ages go by the wall clock.
    AgeByWall,
    /// I13: what was delivered is forgotten when the broker is stopped.
    ForgetDelivered,
    /// I4: a rename settles what its peer is owed.
    RenameLoses,
    /// The mail of a name that ended vanishes without a word to its senders.
    RetireSilent,
    /// How a delivery ended is not kept.
    ForgetFate,
    /// I21: a message goes as soon as nobody is owed it.
    ForgetTexts,
    /// The text of what temporary peers said to each other stays.
    KeepFleeting,
    /// New mail is taken although the disk is nearly full.
    IgnoreSpace,
    /// A token may send whatever its rights are.
    IgnoreRights,
    /// The sender is not told which members of a group have no room.
    HideFull,
    /// Who joins a group is not written down.
    ForgetGroups,
    /// I6: the envelope is altered on the way.
    AlterEnvelope,
}

impl Disk {
    /// Whether this promise is broken.
    pub(crate) fn breaks(&self, mutation: OutsideMutation) -> bool {
        self.broken == Some(mutation)
    }

    /// A peer's row as it is written.
    pub(super) fn bend(&mut self, row: &PeerRow) -> Result<PeerRow> {
        let mut row = row.clone();
        let known = self.inner.load()?.peers;
        let known = known.into_iter().find(|known| known.id == row.id);
        let renamed = |known: &PeerRow| {
            row.kind == PeerKind::Peer && !known.name.eq_ignore_ascii_case(&row.name)
        };
        if self.breaks(OutsideMutation::RenameLoses) && known.as_ref().is_some_and(renamed) {
            self.settle(row.id)?;
        }
        if self.breaks(OutsideMutation::ForgetGroups) {
            row.groups = known.map(|known| known.groups).unwrap_or_default();
        }
        if self.breaks(OutsideMutation::ForgetDelivered) && row.online {
            row.delivered = row.delivered.map(|_| Delivered::default());
        }
        Ok(row)
    }

    fn settle(&mut self, peer: PeerId) -> Result<()> {
        for message in self.inner.read_queue(peer, usize::MAX, usize::MAX)? {
            self.delete_delivery((peer, message.head.sender), message.head.seq)?;
        }
        Ok(())
    }

    /// Whether a statement is not kept.
    pub(super) fn drops(&self, notice: &Notice) -> bool {
        let says = |words: &str| format!("{:?}", notice.stage).contains(words);
        match self.broken {
            Some(OutsideMutation::RetireSilent) => says("ended for good"),
            Some(OutsideMutation::HideFull) => says("it did not get this one"),
            _ => false,
        }
    }
}
