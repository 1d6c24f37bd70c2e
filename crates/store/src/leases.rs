//! Leases: messages that one peer at a time has, as long as they are owed.

use peerbus_core::TokenHash;
use peerbus_core::store::{LeaseRow, Lessee, PeerId, RequestRow, Work};
use peerbus_wire::GroupName;
use rusqlite::{Connection, Result};

use crate::read::{self, bound};

pub(crate) fn put(db: &Connection, row: &LeaseRow) -> Result<()> {
    let had = row.had.union(&row.rejected);
    let had: Vec<_> = had
        .map(|peer| match row.rejected.contains(peer) {
            true => format!("{}!", peer.0),
            false => peer.0.to_string(),
        })
        .collect();
    let peer = match row.to {
        Lessee::Peer(peer) => Some(peer.0),
        Lessee::One(_) => None,
    };
    let until_ms = row.request.as_ref().map(|request| bound(request.until_ms));
    let said = row.work().and_then(|work| work.said.as_ref());
    db.prepare_cached(
        "INSERT OR REPLACE INTO leases
         VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )?
    .execute((
        bound(row.head.seq.0),
        row.owner.0,
        row.group().map(GroupName::as_str),
        peer,
        row.holder.0,
        row.again,
        had.join(" "),
        until_ms,
        row.work().is_some(),
        row.work().and_then(|work| work.process.as_ref()),
        said.map(|(said, _)| said),
        said.map(|(_, at_ms)| bound(*at_ms)),
    ))?;
    Ok(())
}

pub(crate) fn all(db: &Connection) -> Result<Vec<LeaseRow>> {
    let sql = "SELECT seq, sender, id, recipients, accepted_ms, octet_length(envelope),
                   owner, name, peer, holder, again, had, until_ms, read, process, said, said_ms
               FROM leases JOIN messages USING (seq) ORDER BY seq";
    read::all(db, sql, |row| {
        let to = match row.get(8)? {
            Some(peer) => Lessee::Peer(PeerId(peer)),
            None => {
                let group = GroupName::parse(row.get_ref(7)?.as_str()?);
                Lessee::One(group.map_err(|error| read::no_text(7, error))?)
            }
        };
        let mut lease = LeaseRow {
            holder: read::peer(row, 9)?,
            again: row.get(10)?,
            ..LeaseRow::new(read::message_head(row)?, TokenHash(row.get(6)?), to)
        };
        for word in row.get_ref(11)?.as_str()?.split_ascii_whitespace() {
            let peer = word.trim_end_matches('!').parse().ok().map(PeerId);
            lease.had.extend(peer);
            lease.rejected.extend(peer.filter(|_| word.ends_with('!')));
        }
        let (said, said_ms): (Option<_>, Option<_>) = (row.get(15)?, row.get(16)?);
        let work = Work {
            process: row.get(14)?,
            said: said.zip(said_ms),
        };
        let work = row.get::<_, bool>(13)?.then_some(work);
        let until_ms: Option<_> = row.get(12)?;
        lease.request = until_ms.map(|until_ms| RequestRow { until_ms, work });
        Ok(lease)
    })
}
