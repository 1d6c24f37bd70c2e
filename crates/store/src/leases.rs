//! Leases: messages that one peer at a time has, as long as they are owed.

use std::collections::BTreeSet;

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
        bound(row.seq.0),
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
    let sql =
        "SELECT seq, owner, name, peer, holder, again, had, until_ms, read, process, said, said_ms
               FROM leases ORDER BY seq";
    read::all(db, sql, |row| {
        let to = match row.get(3)? {
            Some(peer) => Lessee::Peer(PeerId(peer)),
            None => {
                let group = GroupName::parse(row.get_ref(2)?.as_str()?);
                Lessee::One(group.map_err(|error| read::no_text(2, error))?)
            }
        };
        let mut lease = LeaseRow {
            holder: PeerId(row.get(4)?),
            again: row.get(5)?,
            ..LeaseRow::new(read::seq(row, 0)?, TokenHash(row.get(1)?), to)
        };
        let (mut had, mut rejected) = (BTreeSet::new(), BTreeSet::new());
        for word in row.get_ref(6)?.as_str()?.split_ascii_whitespace() {
            let number = word.trim_end_matches('!');
            if let Ok(number) = number.parse() {
                had.insert(PeerId(number));
                if number.to_string() != word {
                    rejected.insert(PeerId(number));
                }
            }
        }
        (lease.had, lease.rejected) = (had, rejected);
        let said = match row.get::<_, Option<String>>(10)? {
            Some(said) => Some((said, row.get(11)?)),
            None => None,
        };
        let work = Work {
            process: row.get(9)?,
            said,
        };
        let read = row.get(8)?;
        let until_ms: Option<u64> = row.get(7)?;
        lease.request = until_ms.map(|until_ms| RequestRow {
            until_ms,
            work: Some(work).filter(|_| read),
        });
        Ok(lease)
    })
}
