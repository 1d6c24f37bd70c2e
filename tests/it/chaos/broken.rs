//! Binaries that are built to break a promise, and the history that notices.

use std::time::Duration;

use super::trouble::Mix;
use super::{Plan, env_number};

/// The faults, as `PEERBUS_BROKEN` names them.
const FAULTS: [&str; 4] = [
    "receipt-before-commit",
    "dedupe-off",
    "lost-requeue",
    "seen-without-evidence",
];
/// How long a fault may hide.
const TIME: Duration = Duration::from_secs(60);
/// The same for what shows only once the trouble is over.
const TIME_OF_LOSS: Duration = Duration::from_secs(5);
/// How long nothing may come before it counts as lost.
const SILENCE: Duration = Duration::from_secs(4);

#[test]
fn each_fault_is_noticed_in_each_mix() {
    let seed = env_number("PEERBUS_CHAOS_SEED").unwrap_or(1);
    let mut missed = Vec::new();
    println!("| mix | {} |\n|---|---|---|---|---|", FAULTS.join(" | "));
    let only = std::env::var("PEERBUS_CHAOS_ONLY").unwrap_or_default();
    for mix in Mix::ALL {
        if !mix.name().contains(&only) {
            continue;
        }
        let mut cells = Vec::new();
        for fault in FAULTS {
            let plan = Plan {
                mix,
                time: if fault == "lost-requeue" {
                    TIME_OF_LOSS
                } else {
                    TIME
                },
                seed,
                silence: SILENCE,
                broken: Some(fault),
            };
            let Some(outcome) = plan.run() else {
                cells.push("skipped".to_owned());
                continue;
            };
            let seconds = outcome.took.as_secs_f64();
            match outcome.violations.first() {
                Some(what) => {
                    println!("    {}, {fault}, after {seconds:.1} s: {what}", mix.name());
                    cells.push(format!("{seconds:.0} s"));
                }
                None => {
                    missed.push(format!("{fault} in {}", mix.name()));
                    cells.push("missed".to_owned());
                }
            }
        }
        println!("| {} | {} |", mix.name(), cells.join(" | "));
    }
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}
