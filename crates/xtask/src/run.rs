//! Verbs that run other programs of the workspace.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};

pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// A cargo command that runs at the top of the repository.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    cargo
}

pub(crate) fn sim(args: &[String]) -> Result<ExitCode> {
    finish(
        cargo()
            .args(["run", "--quiet", "--package", "peerbus-sim", "--"])
            .args(args),
    )
}

/// Builds the binary and its load generator, and runs the measurements. A quick run, whose figures
/// mean nothing, takes the development build, which the tests need anyway.
pub(crate) fn bench(args: &[String]) -> Result<ExitCode> {
    let quick = args.iter().any(|arg| arg == "--quick");
    let (profile, folder) = if quick {
        ("dev", "debug")
    } else {
        ("dist", "dist")
    };
    // One after the other: together their features would be joined.
    for package in ["peerbus", "peerbus-bridge", "peerbus-bench"] {
        let built = finish(cargo().args(["build", "--profile", profile, "--package", package]))?;
        if built != ExitCode::SUCCESS {
            return Ok(built);
        }
    }
    let target = root().join("target").join(folder);
    finish(
        Command::new(target.join("peerbus-bench"))
            .arg("--binary")
            .arg(target.join("peerbus"))
            .args(args)
            .current_dir(root()),
    )
}

/// Runs the chaos scenarios of the integration tests: for some seconds each, or for so many minutes
/// in all; or binaries that are built to break a promise, which must be noticed.
pub(crate) fn chaos(args: &[String]) -> Result<ExitCode> {
    let mut cargo = cargo();
    cargo.args(["test", "--package", "peerbus", "--test", "it"]);
    let mut test = "chaos::";
    let mut rest = args.iter();
    while let Some(flag) = rest.next() {
        let variable = match flag.as_str() {
            "--broken" => {
                // Apart from everything else: no binary of this kind may be taken for another one.
                cargo.args("--features mutations --target-dir target/mutations".split(' '));
                test = "chaos::broken::";
                continue;
            }
            "--minutes" => "PEERBUS_CHAOS_MINUTES",
            "--seed" => "PEERBUS_CHAOS_SEED",
            "--only" => "PEERBUS_CHAOS_ONLY",
            "--rounds" => "PEERBUS_CHAOS_ROUNDS",
            _ => bail!("chaos does not know `{flag}`"),
        };
        let value = rest
            .next()
            .with_context(|| format!("{flag} needs a value"))?;
        if flag != "--only" {
            let number = value.parse::<u64>();
            number.with_context(|| format!("{flag} takes a number, got `{value}`"))?;
        }
        match flag.as_str() {
            "--minutes" => test = "chaos::every_promise",
            "--rounds" => test = "joined::rounds",
            _ => {}
        }
        cargo.env(variable, value);
    }
    if test == "joined::rounds" {
        // It lies beside the binary that is tested.
        let built = self::cargo()
            .args(["build", "--package", "peerbus-bridge"])
            .status()?;
        if !built.success() {
            bail!("peerbus-bridge was not built");
        }
    }
    finish(cargo.args([test, "--", "--nocapture", "--test-threads=1"]))
}

/// Runs a command and gives what it prints.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>> {
    let done = command
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    let stderr = String::from_utf8_lossy(&done.stderr);
    ensure!(
        done.status.success(),
        "{command:?} failed: {}",
        stderr.trim()
    );
    Ok(done.stdout)
}

/// Waits for the command and passes its exit code on; one that a signal ended gives 1.
pub(crate) fn finish(command: &mut Command) -> Result<ExitCode> {
    let status = command
        .status()
        .with_context(|| format!("cannot start {command:?}"))?;
    Ok(ExitCode::from(
        status
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .unwrap_or(1),
    ))
}
