//! `peerbus doctor`.

use peerbus_adapter::{Failure, groups};
use peerbus_mcp::AdapterOptions;
use peerbus_node::gates::Gates;
use peerbus_setup::doctor::{CheckOutcome, Context, Watched, examine};
use peerbus_view::PeerView;

use crate::adapter::wake_list;
use crate::args::{Connection, kept};
use crate::here::Here;
use crate::{client, output};

pub(crate) fn run(connection: &Connection, json: bool) -> Result<(), Failure> {
    let flags = connection.flags(None);
    let context = Context {
        demand: client::demand(&flags)?,
        flags,
        check_options,
        check_gates: |file| Gates::read(file).map(drop),
        look: |peers| {
            let here = Here::of(peers.iter());
            let way_out = |peer: &PeerView| here.way_out(peer).or_else(|| here.goes_on(peer));
            let ways = here.peers.iter().map(|it| (it.clone(), way_out(it)));
            Watched {
                peers: ways.collect(),
                apart: here.apart().chain(here.denials()).collect(),
                nameless: here.nameless(),
            }
        },
    };
    let report = output::patiently("checking", || examine(&context))?;
    if json {
        output::line(&report.json().to_string())?;
    } else {
        for line in report.lines() {
            output::wrapped(&line)?;
        }
    }
    match (
        report.count(CheckOutcome::Failed),
        report.count(CheckOutcome::Warning),
    ) {
        (0, 0) => output::say("all is well"),
        (0, warnings) => output::say(&output::plural(warnings as u64, "warning")),
        (failed, _) => {
            let failed = output::plural(failed as u64, "check");
            return Err(Failure::failed(format!("{failed} failed")));
        }
    }
    Ok(())
}

/// Variables that are read together. Each is looked at for itself, so that all faults are told.
const OPTIONS: [&str; 4] = [
    "PEERBUS_TOOL_NAMES",
    "PEERBUS_ACK",
    "PEERBUS_BUDGET",
    "PEERBUS_REMIND",
];

/// What is wrong with the variables that only adapters read, and brokers on demand.
fn check_options(variable: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let wake = wake_list(variable).err();
    let groups = groups::own(variable).err().map(|error| error.to_string());
    let options = OPTIONS.iter().filter_map(|name| {
        let read = AdapterOptions::read(|asked| variable(asked).filter(|_| asked == *name));
        read.err().map(|error| error.to_string())
    });
    let history = variable("PEERBUS_HISTORY").and_then(|text| kept(&text).err());
    let all = wake.into_iter().chain(groups).chain(options);
    all.chain(history).collect()
}
