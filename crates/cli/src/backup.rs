//! `peerbus backup` and `peerbus restore`.

use peerbus_store::{BackupError, OpenError};

use crate::args::{Backup, Restore};
use crate::audit::database;
use crate::failure::Failure;
use crate::output;
use crate::told::for_people;

pub(crate) fn make(verb: Backup) -> Result<(), Failure> {
    for_people("copy what others wrote")?;
    let db = database(verb.db)?;
    let report = output::patiently("copying and checking the database", || {
        peerbus_store::backup(&db, &verb.file)
    });
    let report = report.map_err(failure)?;
    output::line(&format!(
        "{}: a private copy of {} with its audit key; {}, {}, ends at block {}",
        verb.file.display(),
        db.display(),
        output::plural(report.blocks, "block"),
        output::plural(report.events, "event"),
        report.last
    ))?;
    Ok(())
}

pub(crate) fn restore(verb: Restore) -> Result<(), Failure> {
    for_people("put a copy in the place of a database")?;
    let db = database(verb.db)?;
    let restored = output::patiently("checking and copying the backup", || {
        peerbus_store::restore(&verb.file, &db)
    });
    let restored = restored.map_err(failure)?;
    let path = restored.path.display();
    output::line(&match &restored.report {
        Some(report) => format!("restored {report}"),
        None => format!("restored {path}: nothing yet"),
    })?;
    if let Some(aside) = &restored.aside {
        output::line(&format!("what was there is in {}", aside.display()))?;
    }
    Ok(())
}

fn failure(error: BackupError) -> Failure {
    match error {
        BackupError::Exists(_)
        | BackupError::NoBackup { .. }
        | BackupError::Unreadable { .. }
        | BackupError::Open(OpenError::Locked { .. }) => Failure::config(error),
        _ => Failure::failed(error),
    }
}
