//! A store that does nothing, so that only the core is counted.

use peerbus_core::audit::{Block, Head};
use peerbus_core::store::{
    AliasRow, Inserted, Loaded, MessageHead, NewMessage, Notice, PeerId, PeerRow, Queued, Store,
    StoreError, Txn,
};
use peerbus_wire::{MessageId, Seq};

/// Takes everything and holds nothing, except that every debt exists.
pub(crate) struct Nothing;

type Answer<T> = Result<T, StoreError>;

impl Store for Nothing {
    fn load(&mut self) -> Answer<Loaded> {
        Ok(Loaded::default())
    }
    fn begin(&mut self) -> Answer<()> {
        Ok(())
    }
    fn commit(&mut self) -> Answer<()> {
        Ok(())
    }
    fn rollback(&mut self) {}
}

impl Txn for Nothing {
    fn put_peer(&mut self, _: &PeerRow) -> Answer<()> {
        Ok(())
    }
    fn delete_peer(&mut self, _: PeerId) -> Answer<()> {
        Ok(())
    }
    fn put_alias(&mut self, _: &AliasRow) -> Answer<()> {
        Ok(())
    }
    fn delete_alias(&mut self, _: &str) -> Answer<()> {
        Ok(())
    }
    fn insert_message(&mut self, _: &NewMessage<'_>) -> Answer<Inserted> {
        Ok(Inserted::New)
    }
    fn insert_debt(&mut self, _: PeerId, _: Seq) -> Answer<()> {
        Ok(())
    }
    fn delete_debt(&mut self, _: PeerId, _: Seq) -> Answer<bool> {
        Ok(true)
    }
    fn has_debt(&mut self, _: PeerId, _: Seq) -> Answer<bool> {
        Ok(true)
    }
    fn read_queue(&mut self, _: PeerId, _: Seq, _: usize, _: usize) -> Answer<Vec<Queued>> {
        Ok(Vec::new())
    }
    fn count_queue(&mut self, _: PeerId) -> Answer<u64> {
        Ok(0)
    }
    fn last_debt(&mut self, _: PeerId) -> Answer<Option<Seq>> {
        Ok(None)
    }
    fn message(&mut self, _: Seq) -> Answer<Option<MessageHead>> {
        Ok(None)
    }
    fn find_message(&mut self, _: PeerId, _: &MessageId) -> Answer<Option<MessageHead>> {
        Ok(None)
    }
    fn find_by_id(&mut self, _: &MessageId) -> Answer<Vec<MessageHead>> {
        Ok(Vec::new())
    }
    fn owed_to(&mut self, _: Seq) -> Answer<Vec<PeerId>> {
        Ok(Vec::new())
    }
    fn settled(&mut self, _: Seq, _: usize) -> Answer<(Vec<Seq>, Option<Seq>)> {
        Ok((Vec::new(), None))
    }
    fn delete_messages(&mut self, _: &[Seq]) -> Answer<()> {
        Ok(())
    }
    fn old_debts(&mut self, _: u64, _: usize) -> Answer<Vec<(PeerId, MessageHead)>> {
        Ok(Vec::new())
    }
    fn insert_dead(&mut self, _: PeerId, _: Seq, _: &str, _: u64) -> Answer<()> {
        Ok(())
    }
    fn delete_dead(&mut self, _: u64, _: usize) -> Answer<usize> {
        Ok(0)
    }
    fn insert_notice(&mut self, _: &Notice) -> Answer<()> {
        Ok(())
    }
    fn notices(&mut self, _: PeerId, _: u64, _: usize) -> Answer<Vec<Notice>> {
        Ok(Vec::new())
    }
    fn delete_notice(&mut self, _: PeerId, _: u64) -> Answer<bool> {
        Ok(false)
    }
    fn delete_notices(&mut self, _: u64, _: usize) -> Answer<usize> {
        Ok(0)
    }
    fn append_audit(&mut self, _: &Block, _: &Head) -> Answer<()> {
        Ok(())
    }
    fn old_audit(&mut self, _: u64, _: usize) -> Answer<Option<Block>> {
        Ok(None)
    }
    fn drop_audit(&mut self, _: u64) -> Answer<()> {
        Ok(())
    }
}
