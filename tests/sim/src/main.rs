//! Runs the world of one seed: `peerbus-sim --seed N [--count N] [--trace]`.

use std::io::Write as _;
use std::process::ExitCode;

use peerbus_sim::{Options, run};

const USAGE: &str = "usage: peerbus-sim --seed N [--count N] [--trace]";

/// What the command line says.
struct Args {
    seed: u64,
    count: u64,
    trace: bool,
}

fn main() -> ExitCode {
    let mut out = std::io::stdout().lock();
    let args = match parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(what) => {
            let _ = writeln!(std::io::stderr(), "{what}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let mut failed = 0;
    for seed in args.seed..args.seed.saturating_add(args.count) {
        let report = run(
            seed,
            Options {
                trace: args.trace,
                ..Options::default()
            },
        );
        failed += u64::from(report.failure.is_some());
        if args.trace {
            let _ = out.write_all(report.lines.as_bytes());
        }
        if args.count == 1 || report.failure.is_some() {
            let (steps, accepted) = (report.steps, report.accepted);
            let _ = writeln!(
                out,
                "{}\n{steps} steps, {accepted} accepted",
                report.sentence()
            );
        }
    }
    if args.count > 1 {
        let _ = writeln!(out, "{} worlds, {failed} failed", args.count);
    }
    if failed > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Args, String> {
    let mut parsed = Args {
        seed: 0,
        count: 1,
        trace: false,
    };
    let mut seeded = false;
    while let Some(arg) = args.next() {
        let mut number = || {
            let text = args.next().unwrap_or_default();
            text.parse()
                .map_err(|_| format!("{arg} needs a number, got {text:?}"))
        };
        match arg.as_str() {
            "--seed" => {
                parsed.seed = number()?;
                seeded = true;
            }
            "--count" => parsed.count = number()?,
            "--trace" => parsed.trace = true,
            _ => return Err(format!("unknown argument {arg:?}")),
        }
    }
    if seeded {
        Ok(parsed)
    } else {
        Err("--seed is missing".into())
    }
}
