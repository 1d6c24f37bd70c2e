//! `peerbus audit`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use peerbus_adapter::paths::Paths;
use peerbus_adapter::{Failure, rfc3339};
use peerbus_core::audit::AuditRemark;
use peerbus_store::{
    AuditReport, ChainError, OpenError, SqliteStore, Witnessed, read_audit, verify_audit,
};
use peerbus_wire::{escape_json, hex};
use serde_json::json;

use crate::args::{Audit, AuditVerify};
use crate::here::for_people;
use crate::{operator, output};

pub(crate) fn run(verb: Audit) -> Result<(), Failure> {
    match verb {
        Audit::Verify(verb) => verify(verb),
        Audit::Sessions(verb) => sessions(verb),
        Audit::Acknowledge { db, socket } => acknowledge(db, socket.as_ref()),
    }
}

fn acknowledge(db: Option<PathBuf>, socket: Option<&PathBuf>) -> Result<(), Failure> {
    for_people("acknowledge what was altered")?;
    let path = database(db)?;
    let path = path
        .canonicalize()
        .map_err(|error| Failure::config(format!("cannot read {}: {error}", path.display())))?;
    let missing = match SqliteStore::open(&path) {
        Ok(store) => {
            let missing = store.witness().acknowledge().map_err(Failure::failed)?;
            store.close().map_err(Failure::failed)?;
            missing.map(|missing| missing.to_string())
        }
        Err(OpenError::Locked { .. }) => {
            // The broker that runs on it has to acknowledge it.
            let target = format!("/audit/acknowledge?db={}", operator::encode(&path));
            let answer = operator::ask(socket, "POST", &target)?;
            let answer: serde_json::Value =
                serde_json::from_str(&answer).map_err(Failure::failed)?;
            answer["acknowledged"].as_str().map(ToOwned::to_owned)
        }
        Err(error) => return Err(Failure::config(error)),
    };
    output::wrapped(&match missing {
        Some(missing) => format!("acknowledged: {missing}"),
        None => "nothing is missing that is not acknowledged".into(),
    })
}

pub(crate) fn database(given: Option<PathBuf>) -> Result<PathBuf, Failure> {
    given.map_or_else(|| Ok(Paths::find()?.database), Ok)
}

/// What peers said was done to their sessions, oldest first.
fn sessions(verb: AuditVerify) -> Result<(), Failure> {
    let path = database(verb.db)?;
    let mut said = Vec::new();
    let mut last = 0;
    let result = read_audit(&path, &mut |block| {
        if block.number > last {
            last = block.number;
            let at = block.at.wall_ms;
            let lines = block.events.lines().filter_map(AuditRemark::read);
            said.extend(lines.map(|said| record(at, &said)));
        }
    });
    if verb.json {
        output::json(&json!({ "records": said }))?;
    } else {
        for record in &said {
            output::wrapped(&escape_json(&line(record)))?;
        }
    }
    match result {
        Ok(_) | Err(ChainError::Nothing { .. }) => Ok(()),
        Err(error) => Err(Failure::failed(error)),
    }
}

fn record(at_ms: u64, said: &AuditRemark<'_>) -> serde_json::Value {
    let at = rfc3339(at_ms);
    match said {
        AuditRemark::Record {
            name,
            action,
            outcome,
            uid,
            pid,
            by,
            request,
            source,
        } => json!({
            "at": at, "peer": name, "action": action, "outcome": outcome, "uid": uid, "pid": pid,
            "by": by, "request_id": request, "source": source,
        }),
        AuditRemark::Excess { name, records } => json!({ "at": at, "peer": name, "more": records }),
        AuditRemark::Join {
            name,
            outcome,
            from,
        } => json!({
            "at": at, "peer": name.unwrap_or("-"), "action": "join", "outcome": outcome, "source": from,
        }),
        AuditRemark::Joins { tries } => json!({ "at": at, "peer": "-", "more": tries }),
    }
}

/// One record for a person.
fn line(record: &serde_json::Value) -> String {
    let text = |name: &str| record[name].as_str().unwrap_or_default();
    let mut line = format!("{} {}", text("at"), text("peer"));
    if let Some(more) = record["more"].as_u64() {
        let _ = write!(line, " said {} more", output::plural(more, "time"));
        return line;
    }
    // Writing to a String cannot fail.
    let _ = write!(line, " {} {}", text("action"), text("outcome"));
    for name in ["request_id", "by", "uid", "pid"] {
        match &record[name] {
            serde_json::Value::Null => {}
            serde_json::Value::String(word) => line.extend([" ", name, " ", word]),
            number => line.extend([" ", name, " ", &number.to_string()]),
        }
    }
    match text("source") {
        "" => {}
        source => line.extend([" source \"", source, "\""]),
    }
    line
}

/// Checks a chain: what it is like, or what is wrong with it.
pub(crate) fn check(database: &Path) -> Result<String, String> {
    match verify_audit(database) {
        Ok(report) => Ok(report.to_string()),
        Err(ChainError::Nothing { .. }) => Ok("nothing is written yet".into()),
        Err(error) => Err(error.to_string()),
    }
}

fn verify(verb: AuditVerify) -> Result<(), Failure> {
    let path = database(verb.db)?;
    let result = output::patiently("checking the chain", || verify_audit(&path));
    if verb.json {
        output::line(&as_json(&result).to_string())?;
    }
    let report = result.map_err(|error| match error {
        ChainError::Broken { .. } | ChainError::Missing { .. } | ChainError::Queue { .. } => {
            Failure::failed(error)
        }
        _ => Failure::config(error),
    })?;
    if !verb.json {
        output::wrapped(&format!("OK {report}"))?;
    }
    Ok(())
}

fn as_json(result: &Result<AuditReport, ChainError>) -> serde_json::Value {
    match result {
        Ok(report) => json!({
            "ok": true, "path": report.path, "blocks": report.blocks, "events": report.events,
            "anchor": report.anchor, "last": report.last, "head_hash": hex::encode(&report.head_hash),
            "first_ms": report.first_ms, "last_ms": report.last_ms, "older": report.older,
            "intact": report.intact, "unhashed": report.unhashed, "witness": witness(&report.witness),
        }),
        Err(error) => json!({ "ok": false, "error": error.to_string() }),
    }
}

fn witness(witness: &Witnessed) -> serde_json::Value {
    match witness {
        Witnessed::Whole(seen) => json!({
            "blocks": seen.blocks, "at_ms": seen.at_ms, "acknowledged": seen.epoch,
        }),
        Witnessed::None => serde_json::Value::Null,
        Witnessed::Unreadable(why) => json!({ "error": why }),
    }
}
