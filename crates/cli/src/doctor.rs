//! `peerbus doctor`.

use peerbus_mcp::Options;
use peerbus_node::gates::Gates;
use peerbus_setup::doctor::{Context, Found, examine};

use crate::adapter::wake_list;
use crate::args::Doctor;
use crate::failure::Failure;
use crate::{client, output};

/// Checks everything, and fails if anything does not work.
pub(crate) fn run(verb: Doctor) -> Result<(), Failure> {
    let flags = verb.connection.flags(None);
    let context = Context {
        demand: client::demand(&flags)?,
        flags,
        check_options,
        check_gates: |file| Gates::read(file).map(drop),
    };
    let report = output::patiently("checking", || examine(&context))?;
    if verb.json {
        output::line(&report.json().to_string())?;
    } else {
        for line in report.lines() {
            output::line(&line)?;
        }
    }
    match (report.count(Found::Failed), report.count(Found::Warning)) {
        (0, 0) => output::say("all is well"),
        (0, warnings) => output::say(&output::plural(warnings as u64, "warning")),
        (failed, _) => {
            let failed = output::plural(failed as u64, "check");
            return Err(Failure::failed(format!("{failed} failed")));
        }
    }
    Ok(())
}

/// What is wrong with the variables that only adapters read.
fn check_options(variable: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let wake = wake_list(variable).err();
    let options = Options::read(variable).err();
    let options = options.map(|error| error.to_string());
    wake.into_iter().chain(options).collect()
}
