//! Messages for one member of a group, as long as they are owed.

use std::collections::BTreeSet;

use peerbus_core::TokenHash;
use peerbus_core::store::{JobRow, PeerId};
use peerbus_wire::GroupName;
use rusqlite::{Connection, Result};

use crate::read::{self, bound};

pub(crate) fn put(db: &Connection, row: &JobRow) -> Result<()> {
    let had = row.had.union(&row.rejected);
    let had: Vec<_> = had
        .map(|peer| match row.rejected.contains(peer) {
            true => format!("{}!", peer.0),
            false => peer.0.to_string(),
        })
        .collect();
    db.prepare_cached(
        "INSERT OR REPLACE INTO jobs(seq, owner, name, holder, again, had)
         VALUES(?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute((
        bound(row.seq.0),
        row.owner.0,
        row.group.as_str(),
        row.holder.0,
        row.again,
        had.join(" "),
    ))?;
    Ok(())
}

pub(crate) fn all(db: &Connection) -> Result<Vec<JobRow>> {
    let sql = "SELECT seq, owner, name, holder, again, had FROM jobs ORDER BY seq";
    read::all(db, sql, |row| {
        let group = GroupName::parse(row.get_ref(2)?.as_str()?);
        let group = group.map_err(|error| read::no_text(2, error))?;
        let mut job = JobRow {
            holder: PeerId(row.get(3)?),
            again: row.get(4)?,
            ..JobRow::new(read::seq(row, 0)?, TokenHash(row.get(1)?), group)
        };
        let (mut had, mut rejected) = (BTreeSet::new(), BTreeSet::new());
        for word in row.get_ref(5)?.as_str()?.split_ascii_whitespace() {
            let number = word.trim_end_matches('!');
            if let Ok(number) = number.parse() {
                had.insert(PeerId(number));
                if number.to_string() != word {
                    rejected.insert(PeerId(number));
                }
            }
        }
        (job.had, job.rejected) = (had, rejected);
        Ok(job)
    })
}
