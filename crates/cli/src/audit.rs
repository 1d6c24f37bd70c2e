//! `peerbus audit`.

use peerbus_adapter::paths::Paths;
use peerbus_store::{AuditReport, VerifyError, verify_audit};
use peerbus_wire::hex;
use serde_json::json;

use crate::args::{Audit, AuditVerify};
use crate::failure::Failure;
use crate::output;

/// Runs an `audit` verb.
pub(crate) fn run(verb: Audit) -> Result<(), Failure> {
    match verb {
        Audit::Verify(verb) => verify(verb),
    }
}

fn verify(verb: AuditVerify) -> Result<(), Failure> {
    let path = match verb.db {
        Some(path) => path,
        None => Paths::find()?.database,
    };
    let result = verify_audit(&path);
    if verb.json {
        output::line(&as_json(&result).to_string())?;
    }
    let report = result.map_err(|error| match error {
        VerifyError::Broken { .. } => Failure::failed(error),
        _ => Failure::config(error),
    })?;
    if !verb.json {
        output::line(&format!("OK {report}"))?;
    }
    Ok(())
}

fn as_json(result: &Result<AuditReport, VerifyError>) -> serde_json::Value {
    match result {
        Ok(report) => json!({
            "ok": true, "path": report.path, "blocks": report.blocks, "events": report.events,
            "anchor": report.anchor, "last": report.last, "head_hash": hex::encode(&report.head_hash),
            "first_ms": report.first_ms, "last_ms": report.last_ms,
        }),
        Err(error) => json!({ "ok": false, "error": error.to_string() }),
    }
}
