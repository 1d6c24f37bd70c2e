//! A server's entry, read as the adapter that it starts would read it.

use peerbus_adapter::{BusConfig, Flags};
use serde_json::Value;

use super::Context;
use super::report::Report;
use crate::error::Fault;
use crate::install::{naming, program};

/// The name that the adapter of an entry takes, if it is given one, and what is wrong there.
/// `install`: the command that writes the entry.
pub(super) fn look(
    context: &Context,
    entry: &Value,
    install: &str,
) -> (Option<String>, Vec<Fault>) {
    let variable = |name: &str| naming::variable(entry, name);
    let given = program::argument(entry, "--name").or_else(|| variable("PEERBUS_NAME"));
    let name = given.map(|name| naming::expanded(&name, variable));
    let (name, mut faults) = match name.transpose() {
        Ok(name) => (name, Vec::new()),
        Err(says) => {
            let remedy = format!("correct the name there, or {install} with another `--name`");
            (None, vec![Fault { says, remedy }])
        }
    };
    faults.extend(settings(context, entry).into_iter().map(|says| Fault {
        says,
        remedy: "correct it there, or take it out: with it the adapter does not start".into(),
    }));
    (name, faults)
}

/// What is wrong with what an entry sets, but for the name.
fn settings(context: &Context, entry: &Value) -> Vec<String> {
    let variable = |name: &str| naming::variable(entry, name);
    let flags = Flags {
        url: program::argument(entry, "--url"),
        ..Flags::default()
    };
    let others = |name: &str| variable(name).filter(|_| name != "PEERBUS_NAME");
    let mut wrong = Vec::new();
    if let Err(error) = BusConfig::resolve_with(&flags, others) {
        wrong.push(error.to_string());
    }
    wrong.extend((context.check_options)(&variable));
    wrong
}

/// Who takes which name.
#[derive(Default)]
pub(super) struct Names(Vec<(String, &'static str, String)>);

impl Names {
    /// A configuration of an agent gives this name, or none.
    pub(super) fn add(&mut self, name: Option<String>, agent: &'static str, path: String) {
        self.0.extend(name.map(|name| (name, agent, path)));
    }

    pub(super) fn check(&self, report: &mut Report) {
        for (at, (name, agent, path)) in self.0.iter().enumerate() {
            let same = |other: &&(String, &str, String)| {
                other.0.eq_ignore_ascii_case(name) && other.1 != *agent
            };
            if let Some((_, other, their)) = self.0[..at].iter().find(same) {
                report.warning(
                    "agents",
                    format!(
                        "{other} ({their}) and {agent} ({path}) have one name, {name}: only one \
                         session at a time can have it, and others wait"
                    ),
                    "give each its own with `peerbus install CLIENT --name NAME`, or none: \
                     then each session has a generated one",
                );
            }
        }
    }
}
