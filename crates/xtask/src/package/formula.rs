//! The formula for Homebrew: the archives whose sums lie in a folder.

use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::VERSION;
use super::platform::PLATFORMS;
use crate::run::output;

const HEAD: &str = r#"class Peerbus < Formula
  desc "Durable, signed message bus for AI coding agents"
  homepage "https://github.com/peerbus/peerbus"
"#;
const TAIL: &str = r##"
  def install
    bin.install "peerbus"
    man1.install Dir["man/*.1"]
    generate_completions_from_executable(bin/"peerbus", "completions", shells: [:bash, :zsh, :fish])
  end

  def caveats
    "Before `brew uninstall peerbus`, take away what it changed: peerbus uninstall --all --purge"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/peerbus --version")
  end
end
"##;

/// Writes `peerbus.rb` beside the archives, and has Ruby read it where there is one.
pub(super) fn write(out: &Path) -> Result<PathBuf> {
    let made = out.join("peerbus.rb");
    fs::write(&made, text(|name| fs::read_to_string(out.join(name)).ok())?)?;
    match Command::new("ruby").arg("--version").output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("there is no ruby here: the formula's syntax is not checked");
        }
        _ => drop(output(Command::new("ruby").arg("-c").arg(&made))?),
    }
    Ok(made)
}

/// The formula, of the archives whose files with sums `read` finds.
fn text(read: impl Fn(&str) -> Option<String>) -> Result<String> {
    let mut text = format!("{HEAD}  version \"{VERSION}\"\n  license \"MIT\"\n");
    let mut found = false;
    for os in ["macos", "linux"] {
        let mut block = String::new();
        for platform in PLATFORMS.iter().filter(|platform| platform.os == os) {
            let archive = platform.archive() + ".tar.gz";
            let Some(line) = read(&format!("{archive}.sha256")) else {
                continue;
            };
            let sum = line.split_whitespace().next().context("an empty sum")?;
            let is_sum = sum.len() == 64 && sum.bytes().all(|byte| byte.is_ascii_hexdigit());
            ensure!(is_sum, "{archive}.sha256 has no sum");
            let cpu = match platform.arch {
                "x86_64" => "intel",
                _ => "arm",
            };
            write!(
                block,
                "    on_{cpu} do\n      \
                 url \"https://github.com/peerbus/peerbus/releases/download/v{VERSION}/{archive}\"\n      \
                 sha256 \"{sum}\"\n    end\n"
            )?;
        }
        if !block.is_empty() {
            found = true;
            write!(text, "\n  on_{os} do\n{block}  end\n")?;
        }
    }
    ensure!(
        found,
        "no archive of {VERSION} is there: `cargo xtask package archive` makes one"
    );
    Ok(text + TAIL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formula_has_the_archives_that_are_there_and_no_other() {
        let sum = "0123456789abcdef".repeat(4);
        let made = text(|name| {
            let there = name.ends_with("-aarch64-macos.tar.gz.sha256") || name.contains("-linux.");
            there.then(|| format!("{sum}  {name}\n"))
        });
        let made = made.unwrap();
        let blocks = made.matches(" do\n").count() + made.matches("  def ").count() + 1;
        assert_eq!(made.matches("end\n").count(), blocks, "{made}");
        assert_eq!(
            made.matches(&format!("sha256 \"{sum}\"")).count(),
            3,
            "{made}"
        );
        assert!(made.contains(&format!(
            "  on_macos do\n    on_arm do\n      \
             url \"https://github.com/peerbus/peerbus/releases/download/v{VERSION}/peerbus-{VERSION}-aarch64-macos.tar.gz\"\n"
        )));
        assert!(!made.contains("x86_64-macos"), "{made}");
    }

    #[test]
    fn without_an_archive_or_its_sum_there_is_no_formula() {
        assert!(text(|_| None).is_err());
        assert!(text(|_| Some("<html>  x".into())).is_err());
    }
}
