//! The real Claude Code CLI as a client, see `tests/claude-code/README.md`.

use std::path::Path;
use std::process::Command;

use crate::support::python;

#[test]
fn peers_wake_the_real_cli_and_are_told_what_its_model_has_seen() {
    holds(&[]);
}

#[test]
fn hooks_wake_a_real_cli_that_offers_nothing_else() {
    holds(&["--version", "2.1.114", "--scenario", "hooks_scenario"]);
}

#[test]
fn what_a_real_cli_asks_is_answered_from_elsewhere() {
    holds(&["--scenario", "approvals_scenario"]);
}

#[test]
fn what_an_older_cli_asks_is_answered_too() {
    holds(&["--version", "2.1.114", "--scenario", "approvals_scenario"]);
}

#[test]
fn from_it_waits_to_it_goes_on_takes_one_command_or_two_clicks() {
    holds(&["--scenario", "person_scenario"]);
}

#[test]
fn a_turn_of_a_real_cli_is_interrupted_between_two_tools() {
    holds(&["--scenario", "interrupt_scenario"]);
}

#[test]
fn a_turn_of_an_older_cli_is_interrupted_too() {
    holds(&["--version", "2.1.114", "--scenario", "interrupt_scenario"]);
}

#[test]
fn a_module_inside_a_real_cli_proves_what_its_model_was_shown() {
    holds(&["--scenario", "module_scenario"]);
}

#[test]
fn two_real_clis_that_are_driven_talk_and_one_that_dies_goes_on() {
    holds(&["--scenario", "driver_scenario"]);
}

#[test]
fn older_clis_are_driven_too() {
    holds(&["--version", "2.1.114", "--scenario", "driver_scenario"]);
}

#[test]
fn the_plugin_makes_a_session_of_a_real_cli_a_peer() {
    holds(&["--scenario", "plugin_scenario"]);
}

#[test]
fn the_plugin_makes_a_session_of_an_older_cli_a_peer() {
    holds(&["--version", "2.1.114", "--scenario", "plugin_scenario"]);
}

#[test]
fn a_new_users_first_minute_takes_nothing_but_install_and_a_session() {
    holds(&["--scenario", "first_scenario"]);
}

#[test]
fn a_real_cli_reads_a_file_that_the_machine_of_another_agent_shares() {
    holds(&["--scenario", "shared_scenario"]);
}

#[test]
fn an_older_cli_reads_such_a_file_too() {
    holds(&["--version", "2.1.114", "--scenario", "shared_scenario"]);
}

#[test]
fn sessions_of_two_machines_wake_each_other_and_are_told_what_was_seen() {
    holds(&["--scenario", "domains_scenario"]);
}

#[test]
fn two_real_clis_on_two_machines_wake_each_other_after_invite_and_join() {
    holds(&["--scenario", "join_scenario"]);
}

#[test]
fn sessions_of_one_project_are_woken_together_and_a_job_finds_the_one_that_is_free() {
    holds(&["--scenario", "groups_scenario"]);
}

#[test]
fn an_editor_an_orchestrator_a_phone_a_voice_a_job_in_ci_and_a_frontend_work_with_real_clis() {
    holds(&["--scenario", "stories_scenario"]);
}

#[test]
fn settings_of_who_manages_the_machine_forbid_what_doctor_says_that_they_do() {
    holds(&["--scenario", "managed_scenario"]);
}

/// Runs a scenario, or tells why it cannot be run here. In CI nothing is skipped where npm and
/// namespaces could be had.
#[track_caller]
fn holds(scenario: &[&str]) {
    // The user's own environment, for the cache of the installed CLI; the script scrubs it.
    let mut command = Command::new("python3");
    command
        .arg(python::script("claude-code/run.py"))
        .arg(env!("CARGO_BIN_EXE_peerbus"))
        .args(scenario);
    let must_run = python::in_ci() && installed("npm") && installed("unshare");
    python::passes_or_skips(&mut command, must_run);
}

fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| Path::new(&dir).join(program).is_file())
}
