//! `peerbus doctor`: every part of the way from one agent to another, probed.

mod agents;
mod asleep;
mod broker;
mod domains;
mod elsewhere;
mod entry;
mod health;
mod places;
mod report;
mod sessions;
mod settings;
mod silence;
mod version;

use std::path::Path;

use peerbus_adapter::demand::Demand;
use peerbus_adapter::{Failure, Flags, PeerEntry};
use peerbus_view::PeerView;

pub use report::{CheckOutcome, Report};

/// What the doctor has to be told of the rest of the program.
#[derive(Debug)]
pub struct Context {
    /// Which broker is meant, if the command line says so.
    pub flags: Flags,
    /// Whether a broker is started if there is none.
    pub demand: Demand,
    /// Checks the variables that adapters read beside those of the connection.
    pub check_options: CheckOptions,
    /// Reads the file that says what others may do to sessions, or says what is wrong with it.
    pub check_gates: fn(&Path) -> Result<(), String>,
    /// Tells what peers and sessions do.
    pub look: fn(&[PeerEntry]) -> Watched,
}

/// What is known of peers and of sessions on this machine.
#[derive(Debug, Default)]
pub struct Watched {
    /// Peers, each with the way in which its user lets it go on, where it waits for that or is stopped.
    pub peers: Vec<(PeerView, Option<String>)>,
    /// Sessions that need their user and that no peer tells of, or that nobody answered, each as a sentence
    /// with the way out.
    pub apart: Vec<(String, String)>,
    /// Which sessions want a name that another one has, each as a sentence.
    pub nameless: Vec<String>,
}

/// Says in sentences what is wrong with variables, given how to look one up.
pub type CheckOptions = fn(&dyn Fn(&str) -> Option<String>) -> Vec<String>;

/// Checks everything.
///
/// # Errors
///
/// When nothing can be checked: there is no home, or no current directory.
pub fn examine(context: &Context) -> Result<Report, Failure> {
    let mut report = Report::default();
    let config = settings::check(context, &mut report);
    places::check(context, &mut report);
    let peers = match config {
        Some(config) => broker::check(config, &mut report)?,
        None => None,
    };
    // Sessions on this machine tell of themselves without a broker.
    let told = (context.look)(peers.as_deref().unwrap_or_default());
    asleep::silent(&told.peers, &mut report);
    for (says, way_out) in told.apart {
        report.warning("session", says, way_out);
    }
    for says in told.nameless {
        report.warning(
            "name",
            says,
            "end one of them, or give each its own: `peerbus install CLIENT --name NAME` (with `{project}` \
             in it each project has one), or PEERBUS_NAME where it is started; then start that one anew",
        );
    }
    agents::check(context, peers.as_deref(), &mut report)?;
    sessions::check(peers.as_deref(), &mut report);
    Ok(report)
}
