//! Fuzzing, guided by coverage.

use std::fs;
use std::num::NonZeroU32;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail, ensure};

use crate::run::{cargo, output, root};

/// What makes code count its branches, as rust-fuzz's cargo-fuzz passes it. These are options of the code
/// generator, which a stable compiler takes.
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";
const SCRATCH: &str = "target/fuzz";

pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    let (target, minutes) = match args {
        [flag, minutes] if flag == "--minutes" => (None, minutes),
        [target, flag, minutes] if flag == "--minutes" => (Some(target.as_str()), minutes),
        _ => bail!("usage: cargo xtask fuzz [TARGET] --minutes N"),
    };
    // libFuzzer takes 0 for no end.
    let minutes: NonZeroU32 = minutes
        .parse()
        .with_context(|| format!("`--minutes` takes a number from 1 on, got `{minutes}`"))?;
    let corpus = root().join("tests/fuzz/corpus");
    let mut targets = Vec::new();
    for entry in fs::read_dir(&corpus)? {
        targets.push(entry?.file_name().to_string_lossy().into_owned());
    }
    targets.sort();
    if let Some(target) = target {
        let known = targets.join(", ");
        targets.retain(|name| name == target);
        ensure!(
            !targets.is_empty(),
            "no target `{target}`: there are {known}"
        );
    }
    let program = build()?;
    let mut found = Vec::new();
    for target in &targets {
        if !fuzz(&program, target, &corpus.join(target), minutes)? {
            found.push(target.as_str());
        }
    }
    if found.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!(
        "found something in {}: the input is in {SCRATCH}/artifacts; put it into tests/fuzz/corpus, \
         where the tests find it, and mend what it shows",
        found.join(", ")
    );
    Ok(ExitCode::FAILURE)
}

fn build() -> Result<std::path::PathBuf> {
    let host = host()?;
    let status = cargo()
        .args("build --package peerbus-fuzz --features libfuzzer".split(' '))
        .args("--bin peerbus-fuzz --profile fuzz".split(' '))
        .args(["--target", &host, "--target-dir", SCRATCH])
        .env("RUSTFLAGS", COVERAGE)
        .status()
        .context("cargo does not start")?;
    ensure!(status.success(), "the fuzzer does not build");
    Ok(root().join(SCRATCH).join(host).join("fuzz/peerbus-fuzz"))
}

/// The platform that is compiled for. Naming it keeps the flags from build scripts.
fn host() -> Result<String> {
    let said = String::from_utf8(output(Command::new("rustc").arg("-vV"))?)?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc names no host")?.to_owned())
}

/// `false`: something was found.
fn fuzz(program: &Path, target: &str, corpus: &Path, minutes: NonZeroU32) -> Result<bool> {
    println!("==> {target}: {minutes} min");
    let scratch = root().join(SCRATCH);
    // What is found to reach new code stays here; the kept corpus is not written to.
    let grown = scratch.join("corpus").join(target);
    let artifacts = scratch.join("artifacts");
    fs::create_dir_all(&grown)?;
    fs::create_dir_all(&artifacts)?;
    let status = Command::new(program)
        .env("PEERBUS_FUZZ_TARGET", target)
        .arg(format!("-max_total_time={}", minutes.get() * 60))
        .arg(format!(
            "-artifact_prefix={}/{target}-",
            artifacts.display()
        ))
        .args(["-timeout=20", "-rss_limit_mb=2048", "-max_len=4096"])
        .args(["-print_final_stats=1", "-verbosity=0"])
        .args([&grown, corpus])
        .status()
        .with_context(|| format!("{} does not start", program.display()))?;
    Ok(status.success())
}
