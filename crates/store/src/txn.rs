//! Reads and writes inside a transaction, one cached statement each.

use std::collections::BTreeMap;

use peerbus_core::Stamp;
use peerbus_core::audit::{Block, ChainHead};
use peerbus_core::store::{
    AliasRow, DEAD_BYTES, Fate, Forgotten, Inserted, Keep, LeaseRow, MessageHead, Notice, OwedRow,
    PeerId, PeerRow, Queued, Result, Txn,
};
use peerbus_wire::{GroupName, Mark, MessageId, Presence, Seq};
use rusqlite::{Connection, OptionalExtension as _, Result as SqlResult, params};

use crate::SqliteStore;
use crate::fates;
use crate::forget;
use crate::leases;
use crate::read::{self, bound};

impl Txn for SqliteStore {
    fn put_peer(&mut self, row: &PeerRow) -> Result {
        let sql =
            "INSERT INTO peers(id, kind, name, owner, generated, ephemeral, online, last_seen_ms,
                 delivered, last_seen_steady_ms, mark, groups, program)
             VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
             ON CONFLICT(id) DO UPDATE SET kind = excluded.kind, name = excluded.name,
                 owner = excluded.owner, generated = excluded.generated,
                 ephemeral = excluded.ephemeral, online = excluded.online,
                 last_seen_ms = excluded.last_seen_ms, delivered = excluded.delivered,
                 last_seen_steady_ms = excluded.last_seen_steady_ms,
                 mark = excluded.mark, groups = excluded.groups, program = excluded.program";
        let groups: Vec<_> = row.groups.iter().map(GroupName::as_str).collect();
        let values = params![
            row.id.0,
            row.kind as i64,
            row.name,
            row.owner.map(|owner| owner.0),
            row.generated,
            row.ephemeral,
            row.online,
            row.last_seen.wall_ms,
            row.delivered.as_ref().map(ToString::to_string),
            row.last_seen.steady_ms,
            row.mark.as_ref().map(Mark::as_str),
            groups.join(" "),
            row.program.as_ref().map(Presence::as_str),
        ];
        self.change("writing a peer", sql, values).map(drop)
    }

    fn delete_peer(&mut self, id: PeerId) -> Result {
        let sql = "DELETE FROM peers WHERE id = ?1";
        self.change("forgetting a peer", sql, [id.0]).map(drop)
    }

    fn put_alias(&mut self, row: &AliasRow) -> Result {
        let sql = "INSERT OR REPLACE INTO aliases(name, peer, own, used_ms)
             VALUES(?1, ?2, ?3, ?4)";
        let values = (&row.name, row.peer.0, row.own, row.used_ms);
        self.change("writing an old name", sql, values).map(drop)
    }

    fn delete_alias(&mut self, name: &str) -> Result {
        let sql = "DELETE FROM aliases WHERE name = ?1";
        self.change("forgetting an old name", sql, [name]).map(drop)
    }

    fn put_owed(&mut self, row: &OwedRow) -> Result {
        let doing = "writing how much mail waits";
        if *row == OwedRow::none(row.peer) {
            let sql = "DELETE FROM owed WHERE peer = ?1";
            return self.change(doing, sql, [row.peer.0]).map(drop);
        }
        let sql = "INSERT OR REPLACE INTO owed(peer, token, owed_to, owed_by)
             VALUES(?1, ?2, ?3, ?4)";
        let values = (row.peer.0, row.token.map(|token| token.0), row.to, row.by);
        self.change(doing, sql, values).map(drop)
    }

    fn put_lease(&mut self, row: &LeaseRow) -> Result {
        self.run("writing who has a message", |db| leases::put(db, row))
    }

    fn delete_lease(&mut self, seq: Seq) -> Result {
        let sql = "DELETE FROM leases WHERE seq = ?1";
        self.change("forgetting who had a message", sql, [bound(seq.0)])
            .map(drop)
    }

    fn insert_message(&mut self, head: &MessageHead, envelope: &str) -> Result<Inserted> {
        self.contents.last_seq = self.contents.last_seq.max(head.seq.0);
        self.run("storing a message", |db| {
            // Only the sender's reuse of an id is a known message; a second use of a number is an
            // error like any other.
            let inserted = db
                .prepare_cached(
                    "INSERT INTO messages(seq, sender, id, recipients, accepted_ms, envelope)
                     VALUES(?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT(sender, id) DO NOTHING",
                )?
                .execute((
                    head.seq.0,
                    head.sender.0,
                    head.id.as_str(),
                    head.recipients,
                    head.accepted_ms,
                    envelope,
                ))?;
            if inserted == 1 {
                return Ok(Inserted::New);
            }
            db.prepare_cached(
                "SELECT seq, recipients, envelope FROM messages WHERE sender = ?1 AND id = ?2",
            )?
            .query_row((head.sender.0, head.id.as_str()), |row| {
                Ok(Inserted::Known {
                    seq: read::seq(row, 0)?,
                    recipients: row.get(1)?,
                    same: read::is_text(row.get_ref(2)?.as_str()?, envelope),
                })
            })
        })
    }

    fn insert_delivery(
        &mut self,
        (recipient, sender): (PeerId, PeerId),
        seq: Seq,
        steady_ms: u64,
    ) -> Result {
        let sql = "INSERT INTO deliveries(recipient, sender, seq, steady_ms)
             VALUES(?1, ?2, ?3, ?4)";
        let values = (recipient.0, sender.0, seq.0, steady_ms);
        self.change("owing a message", sql, values).map(drop)
    }

    fn delete_delivery(&mut self, (recipient, sender): (PeerId, PeerId), seq: Seq) -> Result<bool> {
        let sql = "DELETE FROM deliveries WHERE recipient = ?1 AND sender = ?2 AND seq = ?3";
        let values = (recipient.0, sender.0, bound(seq.0));
        self.change("settling a delivery", sql, values)
            .map(|rows| rows > 0)
    }

    fn move_queue(&mut self, from: PeerId, to: PeerId) -> Result<Vec<(PeerId, Seq)>> {
        self.run("owing a queue to another peer", |db| {
            let mut statement = db.prepare_cached(
                "UPDATE OR IGNORE deliveries SET recipient = ?2 WHERE recipient = ?1
                 RETURNING sender, seq",
            )?;
            let rows = statement.query_map((from.0, to.0), |row| {
                Ok((read::peer(row, 0)?, read::seq(row, 1)?))
            })?;
            let mut moved = rows.collect::<SqlResult<Vec<_>>>()?;
            moved.sort_unstable();
            Ok(moved)
        })
    }

    fn read_queue(
        &mut self,
        recipient: PeerId,
        messages: usize,
        bytes: usize,
    ) -> Result<Vec<Queued>> {
        self.run("reading a queue", |db| {
            let mut statement = db.prepare_cached(read::QUEUE)?;
            read::queue(statement.query((recipient.0, bound(messages)))?, bytes)
        })
    }

    fn read_run(
        &mut self,
        pair: (PeerId, PeerId),
        from: Seq,
        until: Seq,
        messages: usize,
        bytes: usize,
    ) -> Result<(Vec<Queued>, Option<Seq>)> {
        self.run("reading a queue", |db| {
            read::run(db, pair, (from, until), messages, bytes)
        })
    }

    fn queue_heads(&mut self, recipient: PeerId) -> Result<Vec<(PeerId, Seq)>> {
        self.run("reading whose messages wait", |db| {
            read::queue_heads(db, recipient)
        })
    }

    fn count_queue(&mut self, recipient: PeerId) -> Result<u64> {
        self.run("counting a queue", |db| {
            let count = "SELECT count(*) FROM deliveries WHERE recipient = ?1";
            Ok(read::one(db, count, [recipient.0])?.unwrap_or_default())
        })
    }

    fn queue_sums(&mut self, recipient: PeerId) -> Result<Vec<(PeerId, [u64; 2])>> {
        self.run("counting whose messages wait", |db| {
            db.prepare_cached(
                "SELECT d.sender, count(*), coalesce(sum(octet_length(m.envelope)), 0)
                 FROM deliveries d LEFT JOIN messages m ON m.seq = d.seq
                 WHERE d.recipient = ?1 GROUP BY d.sender",
            )?
            .query_map([recipient.0], |row| {
                Ok((read::peer(row, 0)?, [row.get(1)?, row.get(2)?]))
            })?
            .collect()
        })
    }

    fn message(&mut self, seq: Seq) -> Result<Option<MessageHead>> {
        self.run("reading a message", |db| {
            db.prepare_cached(read::MESSAGE_BY_SEQ)?
                .query_row([bound(seq.0)], read::message_head)
                .optional()
        })
    }

    fn find_message(&mut self, sender: PeerId, id: &MessageId) -> Result<Option<MessageHead>> {
        self.run("looking a message up", |db| {
            db.prepare_cached(
                "SELECT seq, sender, id, recipients, accepted_ms, octet_length(envelope)
                 FROM messages WHERE sender = ?1 AND id = ?2",
            )?
            .query_row((sender.0, id.as_str()), read::message_head)
            .optional()
        })
    }

    fn pending_for(&mut self, seq: Seq) -> Result<Vec<PeerId>> {
        self.run("reading who is owed a message", |db| {
            db.prepare_cached(read::PENDING_FOR)?
                .query_map([bound(seq.0)], |row| read::peer(row, 0))?
                .collect()
        })
    }

    fn insert_fates(&mut self, fates: &[Fate], bytes: u64, steady_ms: u64) -> Result {
        self.run("keeping fates", |db| {
            fates::insert(db, fates, bytes, steady_ms)
        })
    }

    fn fates_of(&mut self, seqs: &[Seq], last: usize) -> Result<BTreeMap<Seq, Vec<Fate>>> {
        self.run("reading fates", |db| fates::of(db, seqs, last))
    }

    fn forget_ended(&mut self, keep: Keep, limit: usize) -> Result<Forgotten> {
        self.housekeeping.note_deletion();
        let mut texts_gone = self.texts_gone;
        let forgotten = self.run("forgetting what ended", |db| {
            forget::ended(db, keep, limit, &mut texts_gone)
        })?;
        self.texts_gone = texts_gone;
        Ok(forgotten)
    }

    fn forget_text(&mut self, seq: Seq) -> Result<bool> {
        self.run("forgetting a text", |db| forget::text(db, seq))
    }

    fn old_deliveries(
        &mut self,
        before_ms: u64,
        limit: usize,
    ) -> Result<Vec<(PeerId, MessageHead)>> {
        self.run("looking for old deliveries", |db| {
            read::old_deliveries(db, before_ms, limit)
        })
    }

    fn insert_dead(&mut self, recipient: PeerId, seq: Seq, reason: &str, at: Stamp) -> Result {
        let sql = "INSERT INTO dead(seq, recipient, at_ms, reason, steady_ms, total)
             VALUES(?1, ?2, ?3, ?4, ?5, ?6 + octet_length(?4) + coalesce(
                 (SELECT max(total) FROM dead
                  WHERE steady_ms = (SELECT max(steady_ms) FROM dead)), 0)
                 + coalesce((SELECT octet_length(envelope) FROM messages WHERE seq = ?1), 0))
             ON CONFLICT(seq, recipient) DO UPDATE SET at_ms = excluded.at_ms,
                 reason = excluded.reason, steady_ms = excluded.steady_ms";
        let values = (
            seq.0,
            recipient.0,
            at.wall_ms,
            reason,
            at.steady_ms,
            DEAD_BYTES,
        );
        self.change("keeping a rejected message", sql, values)
            .map(drop)
    }

    fn delete_dead(&mut self, before_ms: u64, bytes_max: u64, rows: usize) -> Result<Forgotten> {
        self.housekeeping.note_deletion();
        let gone = self.run("forgetting rejected messages", |db| {
            forget::dead(db, before_ms, bytes_max, rows)
        })?;
        if gone.rows > 0 {
            // Texts that had to stay for them.
            self.texts_gone = 0;
        }
        Ok(gone)
    }

    fn insert_notice(&mut self, notice: &Notice) -> Result {
        let sql = "INSERT INTO notices(number, sender, id, recipient, dead, reason, at_ms,
                 steady_ms)
             VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        let (ended, reason) = read::ended(&notice.stage);
        let values = params![
            notice.number,
            notice.sender.0,
            notice.id.as_str(),
            notice.to,
            ended,
            reason,
            notice.at.wall_ms,
            notice.at.steady_ms,
        ];
        self.change("keeping a notice", sql, values).map(drop)
    }

    fn notices(&mut self, sender: PeerId, after: u64, rows: usize) -> Result<Vec<Notice>> {
        self.run("reading notices", |db| {
            db.prepare_cached(
                "SELECT number, sender, id, recipient, dead, reason, at_ms, steady_ms FROM notices
                 WHERE sender = ?1 AND number > ?2 ORDER BY number LIMIT ?3",
            )?
            .query_map((sender.0, bound(after), bound(rows)), read::notice)?
            .collect()
        })
    }

    fn delete_notice(&mut self, sender: PeerId, number: u64) -> Result<bool> {
        let sql = "DELETE FROM notices WHERE sender = ?1 AND number = ?2";
        self.change("dropping a notice", sql, (sender.0, bound(number)))
            .map(|rows| rows > 0)
    }

    fn delete_notices(&mut self, before_ms: u64, before: u64, rows: usize) -> Result<usize> {
        self.housekeeping.note_deletion();
        let sql = "DELETE FROM notices WHERE (sender, number) IN
             (SELECT sender, number FROM
              (SELECT * FROM notices ORDER BY steady_ms, sender, number LIMIT ?2)
              WHERE steady_ms < ?1 OR number < ?3)";
        let values = (bound(before_ms), bound(rows), bound(before));
        self.change("dropping old notices", sql, values)
    }

    fn append_audit(&mut self, block: &Block, head: &ChainHead) -> Result {
        self.run("writing the audit chain", |db| {
            db.prepare_cached(
                "INSERT INTO audit(number, at_ms, hash, events, steady_ms)
                 VALUES(?1, ?2, ?3, ?4, ?5)",
            )?
            .execute((
                block.number,
                block.at.wall_ms,
                block.hash,
                &block.events,
                block.at.steady_ms,
            ))?;
            write_head(db, head)
        })?;
        self.appended = Some((head.blocks, head.hash));
        Ok(())
    }

    fn old_audit(&mut self, before_ms: u64, rows: usize) -> Result<Option<Block>> {
        self.run("looking for old audit blocks", |db| {
            db.prepare_cached(
                "SELECT number, at_ms, hash, events, coalesce(steady_ms, at_ms) FROM audit
                 WHERE number = (SELECT max(number) FROM
                     (SELECT number FROM audit ORDER BY number LIMIT ?1))
                 AND coalesce(steady_ms, at_ms) < ?2",
            )?
            .query_row((bound(rows), bound(before_ms)), read::block)
            .optional()
        })
    }

    fn drop_audit(&mut self, number: u64) -> Result {
        self.housekeeping.note_deletion();
        let sql = "DELETE FROM audit WHERE number <= ?1";
        self.change("dropping old audit blocks", sql, [bound(number)])
            .map(drop)
    }
}

pub(crate) fn write_head(db: &Connection, head: &ChainHead) -> SqlResult<usize> {
    db.prepare_cached(
        "INSERT OR REPLACE INTO head(one, blocks, hash, anchor, anchor_hash, next_seq, next_peer,
             next_notice, mac)
         VALUES(1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?
    .execute((
        head.blocks,
        head.hash,
        head.anchor,
        head.anchor_hash,
        head.next_seq,
        head.next_peer,
        head.next_notice,
        head.mac,
    ))
}
