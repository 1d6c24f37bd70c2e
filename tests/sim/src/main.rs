//! Runs the world of one seed: `peerbus-sim --seed N [--count N] [--trace]`; with `--mailbox` one
//! of the mailbox, with `--calm` one without trouble; with
//! `--mailboxes` one whose sessions keep their mail in mailboxes; with `--events` one of a
//! session's events; with `--domains` one of domains and their bridges.

use std::io::Write as _;
use std::process::ExitCode;

use peerbus_sim::{
    DomainOptions, MailboxOptions, Options, run, run_domains, run_events, run_mailbox,
};

const USAGE: &str = "usage: peerbus-sim --seed N [--count N] [--trace] [--mailboxes | --mailbox [--calm] | --events | --domains]";

/// What the command line says.
struct Args {
    seed: u64,
    count: u64,
    trace: bool,
    mailbox: bool,
    calm: bool,
    mailboxes: bool,
    events: bool,
    domains: bool,
}

/// What came of a world, in words.
struct Told {
    failed: bool,
    lines: String,
    sentence: String,
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
        let told = live(seed, &args);
        failed += u64::from(told.failed);
        if args.trace {
            let _ = out.write_all(told.lines.as_bytes());
        }
        if args.count == 1 || told.failed {
            let _ = writeln!(out, "{}", told.sentence);
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

fn live(seed: u64, args: &Args) -> Told {
    let trace = args.trace;
    if args.mailbox {
        let (mutation, calm) = (None, args.calm);
        let report = run_mailbox(
            seed,
            MailboxOptions {
                mutation,
                calm,
                trace,
            },
        );
        return Told {
            failed: report.failure.is_some(),
            sentence: report.sentence(),
            lines: report.lines,
        };
    }
    if args.domains {
        let report = run_domains(
            seed,
            DomainOptions {
                trace,
                ..DomainOptions::default()
            },
        );
        return Told {
            failed: report.failure.is_some(),
            sentence: format!("{}\n{} steps", report.sentence(), report.steps),
            lines: report.lines,
        };
    }
    if args.events {
        let lived = run_events(seed, None);
        let sentence = match &lived {
            Ok(_) => format!("seed {seed}: all promises hold"),
            Err(failure) => format!(
                "seed {seed}: {failure}\nreproduce with: cargo xtask sim --events --seed {seed}"
            ),
        };
        return Told {
            failed: lived.is_err(),
            sentence,
            lines: String::new(),
        };
    }
    let report = run(
        seed,
        Options {
            mailboxes: args.mailboxes,
            trace,
            ..Options::default()
        },
    );
    let (steps, accepted) = (report.steps, report.accepted);
    Told {
        failed: report.failure.is_some(),
        sentence: format!("{}\n{steps} steps, {accepted} accepted", report.sentence()),
        lines: report.lines,
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Args, String> {
    let mut parsed = Args {
        seed: 0,
        count: 1,
        trace: false,
        mailbox: false,
        calm: false,
        mailboxes: false,
        events: false,
        domains: false,
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
            "--mailbox" => parsed.mailbox = true,
            "--mailboxes" => parsed.mailboxes = true,
            "--events" => parsed.events = true,
            "--domains" => parsed.domains = true,
            "--calm" => parsed.calm = true,
            _ => return Err(format!("unknown argument {arg:?}")),
        }
    }
    if seeded {
        Ok(parsed)
    } else {
        Err("--seed is missing".into())
    }
}
