//! `peerbus backup` and `peerbus restore`.

use std::path::{Path, PathBuf};

use peerbus_adapter::Failure;
use peerbus_store::{BackupError, OpenError};

use crate::audit::database;
use crate::here::for_people;
use crate::output;

pub(crate) fn make(file: &Path, db: Option<PathBuf>) -> Result<(), Failure> {
    for_people("copy what others wrote")?;
    let db = database(db)?;
    let report = output::patiently("copying and checking the database", || {
        peerbus_store::backup(&db, file)
    });
    let report = report.map_err(failure)?;
    output::line(&format!(
        "{}: a private copy of {} with its audit key; {}, {}, ends at block {}",
        file.display(),
        db.display(),
        output::plural(report.blocks, "block"),
        output::plural(report.events, "event"),
        report.last
    ))?;
    Ok(())
}

pub(crate) fn restore(file: &Path, db: Option<PathBuf>) -> Result<(), Failure> {
    for_people("put a copy in the place of a database")?;
    let db = database(db)?;
    let restored = output::patiently("checking and copying the backup", || {
        peerbus_store::restore(file, &db)
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
