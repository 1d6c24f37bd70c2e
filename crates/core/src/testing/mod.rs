//! For tests: a store in memory, and the methods of [`Txn`](crate::store::Txn) as a list.

mod memory;
mod memory_txn;

pub use memory::{FateRow, MemoryStore, Stored, Tables};

/// Hands every method of [`Txn`](crate::store::Txn) to the macro `$then`, as
/// `name(argument: Type, …) -> Answer;`, so that a store around another one is written once.
#[macro_export]
macro_rules! txn_methods {
    ($then:ident) => {
        $then! {
            put_peer(row: &$crate::store::PeerRow) -> ();
            delete_peer(id: $crate::store::PeerId) -> ();
            put_alias(row: &$crate::store::AliasRow) -> ();
            delete_alias(name: &str) -> ();
            put_owed(row: &$crate::store::OwedRow) -> ();
            put_lease(row: &$crate::store::LeaseRow) -> ();
            delete_lease(seq: ::peerbus_wire::Seq) -> ();
            insert_message(head: &$crate::store::MessageHead, envelope: &str) -> $crate::store::Inserted;
            insert_delivery(
                pair: ($crate::store::PeerId, $crate::store::PeerId),
                seq: ::peerbus_wire::Seq,
                steady_ms: u64
            ) -> ();
            delete_delivery(pair: ($crate::store::PeerId, $crate::store::PeerId), seq: ::peerbus_wire::Seq) -> bool;
            move_queue(from: $crate::store::PeerId, to: $crate::store::PeerId) -> Vec<($crate::store::PeerId, ::peerbus_wire::Seq)>;
            read_queue(
                recipient: $crate::store::PeerId,
                messages: usize,
                bytes: usize
            ) -> Vec<$crate::store::Queued>;
            read_run(
                pair: ($crate::store::PeerId, $crate::store::PeerId),
                from: ::peerbus_wire::Seq,
                until: ::peerbus_wire::Seq,
                messages: usize,
                bytes: usize
            ) -> (Vec<$crate::store::Queued>, Option<::peerbus_wire::Seq>);
            queue_heads(
                recipient: $crate::store::PeerId
            ) -> Vec<($crate::store::PeerId, ::peerbus_wire::Seq)>;
            count_queue(recipient: $crate::store::PeerId) -> u64;
            queue_sums(recipient: $crate::store::PeerId) -> Vec<($crate::store::PeerId, [u64; 2])>;
            message(seq: ::peerbus_wire::Seq) -> Option<$crate::store::MessageHead>;
            find_message(
                sender: $crate::store::PeerId,
                id: &::peerbus_wire::MessageId
            ) -> Option<$crate::store::MessageHead>;
            pending_for(seq: ::peerbus_wire::Seq) -> Vec<$crate::store::PeerId>;
            insert_fates(fates: &[$crate::store::Fate], bytes: u64, steady_ms: u64) -> ();
            fates_of(
                seqs: &[::peerbus_wire::Seq],
                last: usize
            ) -> ::std::collections::BTreeMap<::peerbus_wire::Seq, Vec<$crate::store::Fate>>;
            forget_ended(keep: $crate::store::Keep, limit: usize) -> $crate::store::Forgotten;
            forget_text(seq: ::peerbus_wire::Seq) -> bool;
            old_deliveries(
                before_ms: u64,
                limit: usize
            ) -> Vec<($crate::store::PeerId, $crate::store::MessageHead)>;
            insert_dead(
                recipient: $crate::store::PeerId,
                seq: ::peerbus_wire::Seq,
                reason: &str,
                at: $crate::Stamp
            ) -> ();
            delete_dead(
                before_ms: u64,
                bytes_max: u64,
                limit: usize
            ) -> $crate::store::Forgotten;
            insert_notice(notice: &$crate::store::Notice) -> ();
            notices(
                sender: $crate::store::PeerId,
                after: u64,
                limit: usize
            ) -> Vec<$crate::store::Notice>;
            delete_notice(sender: $crate::store::PeerId, number: u64) -> bool;
            delete_notices(before_ms: u64, before: u64, limit: usize) -> usize;
            append_audit(block: &$crate::audit::Block, head: &$crate::audit::ChainHead) -> ();
            old_audit(before_ms: u64, limit: usize) -> Option<$crate::audit::Block>;
            drop_audit(number: u64) -> ();
        }
    };
}
