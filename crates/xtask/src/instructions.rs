//! Counts the instructions of hot functions and compares them with the committed baseline.
//!
//! A count is the same in every run on one machine with one compiler. What the tolerance is for:
//! another libc, another processor (both choose among variants of a copy loop) and a compiler
//! that inlines a little differently.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::run::{cargo, output, root};

/// How far a count may be from the baseline, in percent.
const TOLERANCE_PERCENT: u64 = 3;

const BASELINE: &str = "tests/instructions/baseline.json";

/// Where `.ci/run` installs the runner.
const CI_TOOLS: &str = "target/ci-tools/cargo/bin";

type Counts = BTreeMap<String, u64>;

/// What was counted, and with what.
struct Run {
    counts: Counts,
    /// Versions of programs that counts depend on.
    with: BTreeMap<String, String>,
}

/// Counts, and compares or (`update`) writes the baseline.
pub(crate) fn run(update: bool) -> Result<ExitCode> {
    let run = measure()?;
    let path = root().join(BASELINE);
    if update {
        let text = serde_json::to_string_pretty(&json!({"with": run.with, "counts": run.counts}))?;
        fs::write(&path, text + "\n").with_context(|| format!("cannot write {BASELINE}"))?;
        for (name, count) in &run.counts {
            println!("{name:<32} {count:>10}");
        }
        println!("written to {BASELINE}");
        return Ok(ExitCode::SUCCESS);
    }
    let text = fs::read_to_string(&path).with_context(|| {
        format!("cannot read {BASELINE}; make it with `cargo xtask instructions --update`")
    })?;
    let base = parse_baseline(&text)?;
    let rows = compare(&base.counts, &run.counts);
    print(&rows);
    for (program, version) in &run.with {
        let found = base.with.get(program).map_or("unknown", String::as_str);
        if found != version {
            println!("the baseline was made with {found}, this run with {version}");
        }
    }
    let failed = rows.iter().any(|row| row.verdict.fails());
    let below = rows.iter().any(|row| row.verdict == Verdict::Below);
    if failed {
        println!("if this is meant, run `cargo xtask instructions --update` and commit {BASELINE}");
    } else if below {
        println!("to keep what was gained, run `cargo xtask instructions --update`");
    }
    Ok(ExitCode::from(u8::from(failed)))
}

fn measure() -> Result<Run> {
    let lock = fs::read_to_string(root().join("Cargo.lock")).context("cannot read Cargo.lock")?;
    let wanted = locked(&lock, "gungraun")?;
    let path = path_with_tools()?;
    let valgrind = version(
        "valgrind",
        &path,
        "install it with `apt-get install valgrind`",
    )?;
    let remedy = format!(
        "install it with `cargo install --locked --version ={wanted} gungraun-runner --root target/ci-tools/cargo`"
    );
    let runner = version("gungraun-runner", &path, &remedy)?;
    ensure!(
        runner.split_whitespace().last() == Some(&wanted),
        "gungraun-runner must be exactly {wanted}, as gungraun in Cargo.lock, found `{runner}`; {remedy}"
    );
    let rustc = version("rustc", &path, "install it with rustup")?;
    let mut bench = cargo();
    bench
        .args(["bench", "--quiet", "--profile", "dist"])
        .args(
            "--package peerbus-instructions --bench hot -- --output-format=json --nosummary"
                .split(' '),
        )
        .env("PATH", &path)
        .stderr(Stdio::inherit());
    let counted = output(&mut bench)?;
    let counts = parse_counts(&String::from_utf8_lossy(&counted))?;
    ensure!(!counts.is_empty(), "cargo bench counted nothing");
    let with = [("rustc", rustc), ("valgrind", valgrind)];
    Ok(Run {
        counts,
        with: with.map(|(name, text)| (name.to_owned(), text)).into(),
    })
}

/// `PATH` with what `.ci/run` installs in front.
fn path_with_tools() -> Result<std::ffi::OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    let tools = std::iter::once(root().join(CI_TOOLS));
    Ok(env::join_paths(
        tools.chain(env::split_paths(&path).collect::<Vec<PathBuf>>()),
    )?)
}

fn version(program: &str, path: &std::ffi::OsStr, remedy: &str) -> Result<String> {
    let said = output(Command::new(program).arg("--version").env("PATH", path));
    let said = said.with_context(|| remedy.to_owned())?;
    Ok(String::from_utf8_lossy(&said).trim().to_owned())
}

fn locked(lock: &str, name: &str) -> Result<String> {
    let lock: toml::Table = lock.parse().context("cannot read Cargo.lock")?;
    let packages = lock.get("package").and_then(toml::Value::as_array);
    packages
        .into_iter()
        .flatten()
        .find(|package| package.get("name").and_then(toml::Value::as_str) == Some(name))
        .and_then(|package| package.get("version")?.as_str())
        .map(str::to_owned)
        .with_context(|| format!("Cargo.lock has no {name}"))
}

/// Reads the runner's output: a JSON object for each bench, on a line of its own.
fn parse_counts(output: &str) -> Result<Counts> {
    let mut counts = Counts::new();
    for line in output.lines().filter(|line| line.starts_with('{')) {
        let summary: Value = serde_json::from_str(line).context("the runner wrote no JSON")?;
        let function = summary["function_name"].as_str().unwrap_or_default();
        let name = match summary["id"].as_str() {
            Some(id) => format!("{function}.{id}"),
            None => function.to_owned(),
        };
        let ir = "/profiles/0/data/total/metrics/Ir/values/new";
        // A repeated run also carries the count of the run before it.
        let count = summary.pointer(ir).and_then(Value::as_u64);
        let Some(count) = count else {
            bail!("the runner gave no count at {ir} for {name}; its format may have changed");
        };
        ensure!(
            counts.insert(name.clone(), count).is_none(),
            "{name} was counted twice; give the benches names of their own"
        );
    }
    Ok(counts)
}

fn parse_baseline(text: &str) -> Result<Run> {
    let value: Value =
        serde_json::from_str(text).with_context(|| format!("{BASELINE} is not JSON"))?;
    let Value::Object(counts) = &value["counts"] else {
        bail!("{BASELINE} has no `counts`");
    };
    let counts = counts
        .iter()
        .map(|(name, count)| {
            let count = count.as_u64().filter(|count| *count > 0);
            let count = count.with_context(|| format!("{name} in {BASELINE} is no count"))?;
            Ok((name.clone(), count))
        })
        .collect::<Result<Counts>>()?;
    let with = serde_json::from_value(value["with"].clone()).unwrap_or_default();
    Ok(Run { counts, with })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Ok,
    Above,
    /// Better than the baseline by more than the tolerance. Worth saying, no failure.
    Below,
    /// The baseline does not have it.
    New,
    /// Only the baseline has it.
    Gone,
}

impl Verdict {
    fn fails(self) -> bool {
        matches!(self, Self::Above | Self::New | Self::Gone)
    }

    fn text(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Above => "ABOVE the baseline",
            Self::Below => "below the baseline",
            Self::New => "NOT IN the baseline",
            Self::Gone => "NOT COUNTED any more",
        }
    }
}

#[derive(Debug, PartialEq)]
struct Row {
    name: String,
    base: Option<u64>,
    count: Option<u64>,
    verdict: Verdict,
}

fn compare(base: &Counts, counts: &Counts) -> Vec<Row> {
    let names: BTreeSet<&String> = base.keys().chain(counts.keys()).collect();
    let row = |name: &String| {
        let (base, count) = (base.get(name).copied(), counts.get(name).copied());
        let verdict = match (base, count) {
            (Some(base), Some(count)) if count * 100 > base * (100 + TOLERANCE_PERCENT) => {
                Verdict::Above
            }
            (Some(base), Some(count)) if count * 100 < base * (100 - TOLERANCE_PERCENT) => {
                Verdict::Below
            }
            (Some(_), Some(_)) => Verdict::Ok,
            (None, _) => Verdict::New,
            (Some(_), None) => Verdict::Gone,
        };
        Row {
            name: name.clone(),
            base,
            count,
            verdict,
        }
    };
    names.into_iter().map(row).collect()
}

fn print(rows: &[Row]) {
    println!(
        "{:<32} {:>10} {:>10} {:>8}  verdict (tolerance {TOLERANCE_PERCENT} %)",
        "instructions of", "baseline", "now", "change"
    );
    for row in rows {
        let number =
            |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
        let change = row.base.zip(row.count).map_or_else(
            || "-".to_owned(),
            |(base, count)| format!("{:+.2} %", (count as f64 / base as f64 - 1.0) * 100.0),
        );
        println!(
            "{:<32} {:>10} {:>10} {change:>8}  {}",
            row.name,
            number(row.base),
            number(row.count),
            row.verdict.text()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(counts: &[(&str, u64)]) -> Counts {
        counts.iter().map(|(n, c)| ((*n).to_owned(), *c)).collect()
    }

    #[test]
    fn a_count_is_judged_by_the_tolerance_in_both_directions() {
        let base = counts(&[
            ("a", 1_000),
            ("b", 1_000),
            ("c", 1_000),
            ("d", 1_000),
            ("e", 1),
        ]);
        let now = counts(&[("a", 1_030), ("b", 1_031), ("c", 970), ("d", 969), ("f", 1)]);
        let found: Vec<_> = compare(&base, &now)
            .into_iter()
            .map(|row| (row.name, row.verdict, row.verdict.fails()))
            .collect();
        let expected = [
            ("a", Verdict::Ok, false),
            ("b", Verdict::Above, true),
            ("c", Verdict::Ok, false),
            ("d", Verdict::Below, false),
            ("e", Verdict::Gone, true),
            ("f", Verdict::New, true),
        ];
        assert_eq!(found, expected.map(|(n, v, f)| (n.to_owned(), v, f)));
    }

    #[test]
    fn counts_are_read_from_the_runners_lines() {
        let line = |name: &str, id: &str, values: &str| {
            format!(
                r#"{{"function_name":"{name}","id":{id},"profiles":[{{"data":{{"total":{{"metrics":{{"Ir":{{"values":{values}}}}}}}}}}}]}}"#
            )
        };
        let first = line("sign", r#""small""#, r#"{"new":7}"#);
        let second = line("route", "null", r#"{"new":8,"old":9}"#);
        let text = format!("running\n{first}\n{second}\n");
        let expected = counts(&[("sign.small", 7), ("route", 8)]);
        assert_eq!(parse_counts(&text).unwrap(), expected);
        let twice = parse_counts(&format!("{first}\n{first}")).unwrap_err();
        assert!(twice.to_string().contains("sign.small was counted twice"));
        let none = parse_counts(&line("sign", "null", "{}")).unwrap_err();
        assert!(none.to_string().contains("no count"), "{none}");
    }

    #[test]
    fn a_baseline_that_cannot_be_compared_with_is_refused() {
        let good = r#"{"with": {"rustc": "rustc 1"}, "counts": {"sign": 7}}"#;
        let base = parse_baseline(good).unwrap();
        assert_eq!(base.counts, counts(&[("sign", 7)]));
        assert_eq!(base.with["rustc"], "rustc 1");
        for (text, needle) in [
            ("counts", "not JSON"),
            ("{}", "no `counts`"),
            (r#"{"counts": {"sign": "7"}}"#, "sign in"),
            (r#"{"counts": {"sign": 0}}"#, "sign in"),
        ] {
            let error = parse_baseline(text).err().unwrap().to_string();
            assert!(error.contains(needle), "{error}");
        }
    }

    #[test]
    fn the_runners_version_is_the_locked_one() {
        let lock = "[[package]]\nname = \"gungraun\"\nversion = \"0.20.0\"\n";
        assert_eq!(locked(lock, "gungraun").unwrap(), "0.20.0");
        assert!(locked(lock, "valgrind").is_err());
    }
}
