//! A way in for the fuzzer.

#![expect(clippy::expect_used, reason = "a fuzzer finds by panicking")]

use std::path::Path;
use std::sync::OnceLock;

use peerbus_agents::{ALL, Scope};

use super::config_file::{ConfigFile, Edit};
use super::edit::{self, Target, Want};
use super::record::Done;
use super::targets::{Program, targets};
use super::used::Uses;
use super::whole;

/// Installs into a text and uninstalls again, with and without a record of it. `which` chooses
/// among the files of all agents.
///
/// # Panics
///
/// When what must hold of that does not.
pub fn fuzz(which: u8, text: &str) {
    static TARGETS: OnceLock<Vec<Target>> = OnceLock::new();
    let all = TARGETS.get_or_init(|| {
        let program = Program {
            command: "peerbus".into(),
            name: None,
            unasked: true,
            uses: Uses {
                shared: Uses::of(&["mcp://host/files".into()]).expect("a URI"),
                name: None,
                otherwise: Some("ann".into()),
            },
            no_mod: false,
        };
        let of = |agent| targets(agent, Scope::User, Path::new("/nowhere"), &program);
        ALL.into_iter().flat_map(of).collect()
    });
    let target = &all[usize::from(which) % all.len()];
    let plan = |planner: Planner, text: &str, done: Option<&Done>| {
        let file = ConfigFile {
            asked: target.path.clone(),
            path: target.path.clone(),
            bytes: Some(text.as_bytes().to_vec()),
        };
        planner(target, file, done)
    };
    // A text that is refused stays as it is.
    let Ok(first) = plan(edit::install, text, None) else {
        return;
    };
    let (after, done) = (first.after.clone().expect("a text"), first.done.as_ref());
    let again = plan(edit::install, &after, done).expect("what was installed is read");
    assert!(
        !again.differs(),
        "there is nothing to do for {after:?}, not {:?}",
        again.after
    );
    let bare = plan(edit::uninstall, text, None).expect("what can be installed into");
    let without = plan(edit::uninstall, &after, None).expect("what was installed is found");
    assert!(without.differs(), "something is taken out");
    if let Some(without) = &without.after {
        let last = plan(edit::uninstall, without, None).expect("what is left is read");
        assert!(!last.differs(), "all of it was taken out");
    }
    let out = plan(edit::uninstall, &after, done).expect("what was installed is found");
    // One with our sign is an older version's, which nobody wants back.
    let is_older = match &target.want {
        Want::Whole(ours) => whole::is_signed(ours.text, text),
        _ => false,
    };
    if !bare.differs() && !is_older {
        assert_eq!(out.after.as_deref(), Some(text), "the bytes come back");
    }
}

type Planner = fn(&Target, ConfigFile, Option<&Done>) -> Result<Edit, peerbus_adapter::Failure>;
