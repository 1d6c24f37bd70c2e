//! The reference model, and the checks of every promise against it.
//!
//! The oracle sees what the broker is told, what it writes, what is committed and what leaves it,
//! and what the hosts see. It knows nothing of the broker's memory.

mod audits;
mod clock;
mod commit;
mod deliver;
mod groups;
mod hosts;
mod inputs;
mod leases;
mod outputs;
mod room;
mod tables;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use peerbus_core::audit::{AuditKey, Verifier};
use peerbus_core::broker::ConnId;
use peerbus_core::store::{Fate, MessageHead, OwedRow, PeerId, PeerKind, PeerRow};
use peerbus_wire::{DeliveryKey, GroupName, How, MessageId, Register, Seq, Window};

pub use self::hosts::{ProcId, Surfaced};
pub(crate) use self::inputs::Expect;
pub(crate) use self::tables::Tables;

use crate::disk::{Audit, Write};
use crate::failure::{Failure, Verdict, ensure};
use crate::machine::Moment;
use crate::rng::Rng;

/// What the oracle must know of the broker's configuration.
#[derive(Debug, Clone)]
pub struct Rules {
    /// The key of the audit chain.
    pub audit_key: AuditKey,
    /// Unacked mail may expire after this long.
    pub expiry_ms: u64,
    /// Time between two sweeps.
    pub sweep_ms: u64,
    /// Mail for a generated name that is away may expire after this long.
    pub expiry_generated_ms: u64,
    /// A broken connection counts for broadcasts this long.
    pub grace_ms: u64,
    /// Who has a job may keep it this long while others are free.
    pub patience_ms: u64,
    /// Who has a job and broke off may come back this long.
    pub recall_ms: u64,
    /// Messages that may be owed to a peer.
    pub queue_max: u64,
    /// Bytes that may be owed to a peer,
    pub owed_to_max: u64,
    /// and that were sent with one token.
    pub owed_by_max: u64,
    /// Everything that ended is kept.
    pub history: bool,
}

/// How a debt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Acked,
    Expired,
    Dead,
}

/// A delivery that is in flight.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flight {
    pub(crate) sender: PeerId,
    /// What it counts against the window at least.
    pub(crate) bytes: usize,
    /// It came when its sender had something in flight, and is not urgent.
    pub(crate) calm: bool,
    pub(crate) urgent: bool,
}

/// A connection as it looks from outside the broker.
#[derive(Debug, Default)]
pub(crate) struct ConnModel {
    pub(crate) claim: Option<Register>,
    pub(crate) peer: Option<PeerId>,
    /// The number of the commit that released the handshake ack.
    pub(crate) greeted: Option<u64>,
    pub(crate) ext: bool,
    /// On a v1 connection: what it was given under which key.
    pub(crate) keys: BTreeMap<DeliveryKey, Seq>,
    pub(crate) window: Option<Window>,
    pub(crate) takeover: bool,
    /// The last message delivered of each sender; of all, under nobody's number, on a v1 connection.
    pub(crate) last: BTreeMap<PeerId, Seq>,
    /// What is in flight.
    pub(crate) flights: BTreeMap<Seq, Flight>,
    /// Envelopes handled and not answered (`ext`), in order.
    pub(crate) awaiting: Vec<(MessageId, Expect)>,
    /// Envelopes handled since the last barrier that must be durable when it is answered.
    pub(crate) unconfirmed: Vec<MessageId>,
    /// Barriers that were not answered: the envelopes before each.
    pub(crate) barriers: VecDeque<Vec<MessageId>>,
    /// A newer connection of the peer was admitted: what comes now is not heeded.
    pub(crate) evicted: bool,
    /// The broker said that it closes the connection.
    pub(crate) closed: bool,
    /// Nothing may follow.
    pub(crate) silent: bool,
}

impl ConnModel {
    /// The delivery that the client names by a key.
    pub(crate) fn named(&self, key: &DeliveryKey) -> Option<Seq> {
        match self.ext {
            true => key.seq(),
            false => self.keys.get(key).copied(),
        }
    }
}

/// A message that was accepted, for ever.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) sender: PeerId,
    pub(crate) from: String,
    pub(crate) id: String,
    pub(crate) recipients: BTreeMap<PeerId, Option<(End, u64)>>,
    pub(crate) accepted_ms: u64,
}

/// The oracle.
#[derive(Debug)]
pub struct Oracle {
    pub(crate) rules: Rules,
    /// What is on disk.
    pub(crate) durable: Tables,
    /// What is on disk and what the open transaction wrote.
    pub(crate) view: Tables,
    pub(crate) open: Vec<Write>,
    pub(crate) commits: u64,
    pub(crate) chain: (u64, [u8; 32]),
    pub(crate) history: BTreeMap<Seq, Accepted>,
    /// Lower-case author and id of every message that was accepted.
    pub(crate) ever: BTreeMap<(String, String), Seq>,
    /// Names that peers have, or had last.
    pub(crate) names: BTreeMap<PeerId, String>,
    /// Lower-case names that peers ever had.
    pub(crate) all_names: BTreeMap<PeerId, BTreeSet<String>>,
    /// Debts that pass to a successor in the open transaction: from whom, to whom.
    pub(crate) moving: Vec<(PeerId, PeerId, Seq)>,
    /// What a peer ever handed back.
    pub(crate) released: BTreeSet<(PeerId, Seq)>,
    /// What the last commit took from a peer for its successor: it may leave for both with that commit.
    pub(crate) taken: BTreeSet<(PeerId, Seq)>,
    /// What was ever owed to somebody else first.
    pub(crate) inherited: BTreeSet<(PeerId, Seq)>,
    pub(crate) conns: BTreeMap<ConnId, ConnModel>,
    pub(crate) handling: Option<ConnId>,
    /// The groups in which a peer must be once the broker has handled this.
    regrouping: Option<(PeerId, BTreeSet<GroupName>)>,
    /// The broker knows that its disk is nearly full.
    pub(crate) full: bool,
    /// Why debts may be settled in the open transaction.
    pub(crate) causes: BTreeMap<(PeerId, Seq), End>,
    /// What acks claim that were taken in the open transaction.
    pub(crate) claims: BTreeMap<(PeerId, Seq), Option<How>>,
    /// Acks that the broker took, and the number of the commit that must hold them.
    pub(crate) acked: BTreeMap<(PeerId, Seq), u64>,
    /// What left for which connection of a peer; `None` for one of an earlier life of the broker.
    pub(crate) left: BTreeMap<(PeerId, Seq), Option<ConnId>>,
    /// Connected, in this life of the broker.
    pub(crate) online: BTreeSet<PeerId>,
    /// Not connected, but counting for broadcasts until then (virtual time).
    pub(crate) grace: BTreeMap<PeerId, u64>,
    /// The clock that ages go by.
    pub(crate) clock: clock::Clock,
    /// When a message was accepted, by that clock.
    pub(crate) since: BTreeMap<Seq, u64>,
    /// When a peer was last connected, by that clock.
    pub(crate) last_online: BTreeMap<PeerId, u64>,
    pub(crate) hosts: hosts::Hosts,
    audits: audits::Audits,
    leases: leases::Leases,
}

impl Oracle {
    /// Starts with an empty store.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            durable: Tables::default(),
            view: Tables::default(),
            open: Vec::new(),
            commits: 0,
            chain: (0, peerbus_core::audit::GENESIS),
            history: BTreeMap::new(),
            ever: BTreeMap::new(),
            names: BTreeMap::new(),
            all_names: BTreeMap::new(),
            moving: Vec::new(),
            taken: BTreeSet::new(),
            inherited: BTreeSet::new(),
            released: BTreeSet::new(),
            conns: BTreeMap::new(),
            handling: None,
            regrouping: None,
            full: false,
            causes: BTreeMap::new(),
            claims: BTreeMap::new(),
            acked: BTreeMap::new(),
            left: BTreeMap::new(),
            online: BTreeSet::new(),
            grace: BTreeMap::new(),
            clock: clock::Clock::default(),
            since: BTreeMap::new(),
            last_online: BTreeMap::new(),
            hosts: hosts::Hosts::default(),
            audits: audits::Audits::default(),
            leases: leases::Leases::default(),
        }
    }

    /// The broker died: what was not committed is gone, and so is every connection.
    pub fn crashed(&mut self, now_ms: u64) {
        self.open.clear();
        self.causes.clear();
        self.claims.clear();
        self.moving.clear();
        self.view = self.durable.clone();
        let commits = self.commits;
        self.acked.retain(|_, commit| *commit <= commits);
        let steady_ms = self.clock.steady_ms(now_ms);
        for peer in std::mem::take(&mut self.online) {
            // A registration that is not on disk never was.
            if self.durable.peers.get(&peer).is_some_and(|row| row.online) {
                self.last_online.insert(peer, steady_ms);
            }
        }
        self.conns.clear();
        self.audits.crashed();
        self.left.values_mut().for_each(|conn| *conn = None);
        self.grace.clear();
        self.handling = None;
        self.regrouping = None;
        self.full = false;
    }

    /// The broker starts: whoever was connected at the last commit counts for broadcasts a while.
    pub(crate) fn started(&mut self, at: Moment) {
        self.clock.started(at);
        self.leases_started(at.now_ms);
        let until = at.now_ms + self.rules.grace_ms;
        let connected = self.durable.peers.values().filter(|row| row.online);
        self.grace = connected.map(|row| (row.id, until)).collect();
    }

    /// Checks that the chain on disk verifies, and that replaying it gives the debts on disk.
    ///
    /// # Errors
    ///
    /// When it does not.
    pub fn verify(&self, audit: Audit) -> Verdict {
        let broken = |error: peerbus_core::audit::Break| Failure::new("I2", error.to_string());
        let (head, blocks) = match audit {
            Audit::Chain(head, blocks) => (head, blocks),
            Audit::Verified { last } => {
                return ensure(last == self.chain.0, "I2", || {
                    format!(
                        "the chain ends at block {last}, written were {}",
                        self.chain.0
                    )
                });
            }
        };
        if head.is_none() && blocks.is_empty() && self.chain.0 == 0 {
            return Ok(());
        }
        let mut verifier = Verifier::new(&self.rules.audit_key, head).map_err(broken)?;
        for block in &blocks {
            verifier.block(block).map_err(broken)?;
        }
        let head = verifier.finish().map_err(broken)?;
        if head.anchor == 0 {
            self.replay(&blocks)?;
        }
        Ok(())
    }

    /// Checks a peer's row and its queue as the disk gives them.
    ///
    /// # Errors
    ///
    /// When the model has others.
    pub fn holds(&self, row: &PeerRow, queue: Vec<Seq>) -> Verdict {
        let same = self.durable.peers.get(&row.id) == Some(row);
        ensure(same, "store", || {
            format!("the disk has {row:?}, which was not written")
        })?;
        let owed: Vec<_> = self
            .durable
            .owed_between(row.id, Seq(0), Seq(u64::MAX))
            .collect();
        ensure(queue == owed, "store", || {
            format!(
                "the disk owes {queue:?} to {}, written were {owed:?}",
                row.name
            )
        })
    }

    /// Checks how much mail waits as the disk says it: it must be what the queues add up to.
    ///
    /// # Errors
    ///
    /// When it is not.
    pub fn owes(&self, mut rows: Vec<OwedRow>) -> Verdict {
        rows.sort_unstable_by_key(|row| row.peer);
        let sums: Vec<_> = self.durable.sums().into_values().collect();
        ensure(rows == sums, "quota", || {
            format!("by the disk {rows:?} waits, the queues add up to {sums:?}")
        })
    }

    /// Checks how the disk says that deliveries ended. Where there is a bound the oldest may be gone.
    ///
    /// # Errors
    ///
    /// When the model has it otherwise.
    pub fn remembers(&self, mut fates: impl FnMut(Seq) -> Result<Vec<Fate>, Failure>) -> Verdict {
        for (seq, written) in &self.durable.fates {
            let found = fates(*seq)?;
            let same = found == *written || !self.rules.history && written.ends_with(&found);
            ensure(same, "fate", || {
                format!("the disk has {found:?}, written were {written:?}")
            })?;
        }
        Ok(())
    }

    /// Checks of how many messages the disk has the text: of all, unless there is a bound.
    ///
    /// # Errors
    ///
    /// When the model has it otherwise.
    pub fn keeps(
        &self,
        mut head: impl FnMut(Seq) -> Result<Option<MessageHead>, Failure>,
    ) -> Verdict {
        for (seq, message) in &self.durable.messages {
            let found = head(*seq)?.map(|head| head.bytes);
            let whole = found == Some(message.head.bytes);
            let owed = self.durable.debts.iter().any(|(_, owed)| owed == seq);
            let may_go = !self.rules.history && !owed && found.is_some();
            ensure(whole || may_go, "history", || {
                format!("of message {} the disk has {found:?} bytes", seq.0)
            })?;
        }
        Ok(())
    }

    /// Checks how many peers the disk has.
    ///
    /// # Errors
    ///
    /// When the model has more or less.
    pub fn holds_peers(&self, peers: usize) -> Verdict {
        let written = self.durable.peers.len();
        ensure(peers == written, "store", || {
            format!("the disk has {peers} peers of {written}")
        })
    }

    /// How many messages were accepted.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.history.len()
    }

    /// The number of the last accepted message.
    #[must_use]
    pub fn last_seq(&self) -> u64 {
        self.history.last_key_value().map_or(0, |(seq, _)| seq.0)
    }

    /// The id of one of the last messages.
    pub(crate) fn some_id(&self, rng: &mut Rng) -> Option<String> {
        let back = rng.index(8);
        let last = self.history.values().rev().nth(back);
        last.map(|accepted| accepted.id.clone())
    }

    /// Whether `seq` was, or may come to be, owed to the peer called `name`.
    #[must_use]
    pub fn may_be_owed(&self, name: &str, seq: Seq) -> bool {
        let Some(accepted) = self.history.get(&seq) else {
            return true;
        };
        let peer = self.durable.resolve(name);
        peer.is_some_and(|peer| accepted.recipients.contains_key(&peer))
    }

    /// Whether the peer of this name was called `other` before.
    #[must_use]
    pub fn was_called(&self, name: &str, other: &str) -> bool {
        let peer = self.durable.resolve(name);
        peer.is_some() && self.durable.was_called(peer, other)
    }

    /// Names on disk that stay when nobody is there.
    #[must_use]
    pub fn staying(&self) -> Vec<String> {
        let stays = |row: &&PeerRow| !row.ephemeral && !row.generated && row.kind == PeerKind::Peer;
        let rows = self.durable.peers.values().filter(stays);
        rows.map(|row| row.name.clone()).collect()
    }

    pub(crate) fn conn(&mut self, conn: ConnId) -> &mut ConnModel {
        self.conns.entry(conn).or_default()
    }

    /// Whether the peer ever had a name for which this holds.
    pub(crate) fn any_name(&self, peer: PeerId, holds: impl Fn(&String) -> bool) -> bool {
        let names = self.all_names.get(&peer);
        names.is_some_and(|names| names.iter().any(holds))
    }

    pub(crate) fn name_of(&self, peer: PeerId) -> &str {
        self.names.get(&peer).map_or("?", String::as_str)
    }
}
