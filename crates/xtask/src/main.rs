//! Repository chores, run as `cargo xtask <verb>`.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for a terminal"
)]

mod fuzz;
mod instructions;
mod lines;
mod package;
mod run;
mod tidy;

use std::env;
use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "\
usage: cargo xtask <verb>

  tidy                check the rules that the compiler and clippy do not know
  lines               count the production lines of each crate and of each feature
  sim [ARGS…]         run the simulation (`--seed N` reproduces one world)
  chaos [--minutes N] [--seed N] [--only MIX]
                      make trouble for real processes under load and tell whether a promise broke
  chaos --rounds N [--seed N]
                      the same for three domains that a cluster of NATS joins
  chaos --broken      the same with binaries that break a promise: each must be noticed
  fuzz [TARGET] --minutes N
                      fuzz one target, or each, guided by coverage
  bench [ARGS…]       measure the binary of the profile `dist` (`--quick`, `--full`, `--json`, `--only NAME`)
  package deb|static|archive|npm|wheel|all [--binary FILE]
                      make packages in target/package, of the profile `dist` or of a binary that is there,
                      and try each on a root or in a home with nothing else
  package formula     write Homebrew's formula of the archives that are in target/package
  instructions [--update]
                      count the instructions of hot functions and compare them with the baseline,
                      or write it
";

fn main() -> ExitCode {
    match verb(env::args().skip(1).collect()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn verb(args: Vec<String>) -> Result<ExitCode> {
    let Some((verb, rest)) = args.split_first() else {
        bail!("no verb given\n\n{USAGE}");
    };
    match (verb.as_str(), rest) {
        ("tidy", []) => tidy::run(),
        ("lines", []) => lines::run(),
        ("sim", rest) => run::sim(rest),
        ("fuzz", rest) => fuzz::run(rest),
        ("bench", rest) => run::bench(rest),
        ("instructions", []) => instructions::run(false),
        ("instructions", [flag]) if flag == "--update" => instructions::run(true),
        ("chaos", rest) => run::chaos(rest),
        ("package", rest) => package::run(rest),
        ("help" | "--help" | "-h", _) => {
            print!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        _ => bail!("cannot run `{}`\n\n{USAGE}", args.join(" ")),
    }
}
