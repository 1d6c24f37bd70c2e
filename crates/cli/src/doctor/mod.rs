//! `peerbus doctor`: every part of the way from one agent to another, probed.

mod broker;
mod clients;
mod elsewhere;
mod entry;
mod health;
mod places;
mod report;
mod sessions;
mod settings;
mod version;

use crate::args::Doctor;
use crate::failure::Failure;
use crate::output;

use report::{Found, Report};

/// Checks everything, and fails if anything does not work.
pub(crate) fn run(verb: &Doctor) -> Result<(), Failure> {
    let mut report = Report::default();
    let config = settings::check(verb, &mut report);
    places::check(&mut report);
    if let Some(config) = config {
        broker::check(config, &mut report)?;
    }
    clients::check(&mut report)?;
    sessions::check(&mut report);
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
