//! What needs no Debian: an archive with its sum, a package for npm, and a wheel for Python's installers.
//! Each has one binary, of one platform.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::platform::{PLATFORMS, Platform};
use super::tree::copy;
use super::{VERSION, libc_version, sbom};
use crate::run::{finish, output, root};

/// The server's name in the MCP registry, which looks for it in the packages of npm and PyPI.
pub(super) const MCP_NAME: &str = "io.github.peerbus/peerbus";

/// One binary, and what goes with it.
pub(super) struct Parts<'a> {
    pub(super) binary: &'a Path,
    pub(super) notices: &'a Path,
    /// Where packages go.
    pub(super) out: &'a Path,
    pub(super) platform: &'static Platform,
    /// What cargo tells of the binary's packages.
    pub(super) metadata: &'a Value,
}

impl Parts<'_> {
    /// An empty folder to lay something out in.
    fn staged(&self, name: &str) -> Result<PathBuf> {
        let staged = self.out.join(name);
        if staged.exists() {
            fs::remove_dir_all(&staged)?;
        }
        fs::create_dir_all(&staged)?;
        Ok(staged)
    }

    /// The documents that each package with the binary has.
    fn documents(&self, to: &Path) -> Result<()> {
        documents(to)?;
        copy(self.notices, &to.join("THIRD-PARTY.txt"), 0o644)
    }

    /// `peerbus-VERSION-ARCH-OS.tar.gz` and the bill of materials, `….cdx.json`: the same each time, with their sums in
    /// `.sha256` beside them.
    pub(super) fn archive(&self) -> Result<PathBuf> {
        const PACK: &str = include_str!("archive.py");
        let name = self.platform.archive();
        let dir = self.staged("archive")?.join(&name);
        copy(self.binary, &dir.join("peerbus"), 0o755)?;
        self.documents(&dir)?;
        output(Command::new(self.binary).arg("man").arg(dir.join("man")))?;
        let made = self.out.join(format!("{name}.tar.gz"));
        let mut python = Command::new("python3");
        output(python.args(["-c", PACK]).args([&made, &dir]))?;
        let bill = self.out.join(format!("{name}.cdx.json"));
        let lock = fs::read_to_string(root().join("Cargo.lock"))?;
        fs::write(&bill, sbom::of(self.metadata, &lock)?)?;
        for file in [&made, &bill] {
            sum(file)?;
        }
        Ok(made)
    }

    /// Two packages: the command, and the binary of this platform, which npm installs where it fits.
    pub(super) fn npm(&self) -> Result<[PathBuf; 2]> {
        let (os, cpu) = self.platform.node;
        let common = json!({
            "version": VERSION, "license": "MIT",
            "repository": { "type": "git", "url": "git+https://github.com/peerbus/peerbus.git" },
            "description": "Durable, signed message bus for AI coding agents",
        });
        let optional: serde_json::Map<_, _> = PLATFORMS
            .iter()
            .map(|platform| (platform.npm(), VERSION.into()))
            .collect();
        let command = json!({
            "name": "peerbus", "bin": { "peerbus": "peerbus.js" }, "engines": { "node": ">=18" },
            "optionalDependencies": optional, "mcpName": MCP_NAME,
        });
        let platform = json!({ "name": self.platform.npm(), "os": [os], "cpu": [cpu] });
        let [dir, platform_dir] = [self.staged("npm")?, self.staged("npm-platform")?];
        copy(
            &root().join("deploy/npm/peerbus.js"),
            &dir.join("peerbus.js"),
            0o755,
        )?;
        documents(&dir)?;
        copy(self.binary, &platform_dir.join("peerbus"), 0o755)?;
        self.documents(&platform_dir)?;
        let mut made = Vec::new();
        for (dir, own) in [(&dir, command), (&platform_dir, platform)] {
            let mut all = own;
            if let (Some(all), Some(common)) = (all.as_object_mut(), common.as_object()) {
                all.extend(common.clone());
            }
            let text = serde_json::to_string_pretty(&all)? + "\n";
            fs::write(dir.join("package.json"), text)?;
            let mut pack = Command::new("npm");
            pack.args(["pack", "--silent", "--pack-destination"]);
            let name = output(pack.arg(self.out).current_dir(dir))?;
            made.push(self.out.join(String::from_utf8(name)?.trim()));
        }
        made.try_into()
            .ok()
            .context("npm packed something else than two packages")
    }

    /// A wheel whose only file is the command.
    pub(super) fn wheel(&self) -> Result<PathBuf> {
        const PACK: &str = include_str!("wheel.py");
        // What needs no C library runs with each.
        let tag = match libc_version(&fs::read(self.binary)?) {
            Some(minor) if self.platform.is_linux() => {
                format!("manylinux_2_{minor}_{}", self.platform.arch)
            }
            _ => self.platform.wheel.to_owned(),
        };
        let made = self
            .out
            .join(format!("peerbus-{VERSION}-py3-none-{tag}.whl"));
        let packed = finish(
            Command::new("python3")
                .args(["-c", PACK, VERSION, MCP_NAME])
                .args([&made, self.binary, self.notices])
                .arg(root()),
        )?;
        ensure!(packed == ExitCode::SUCCESS, "python3 packed no wheel");
        Ok(made)
    }
}

/// The documents that each package has.
fn documents(to: &Path) -> Result<()> {
    for name in ["README.md", "CHANGELOG.md", "LICENSE"] {
        copy(&root().join(name), &to.join(name), 0o644)?;
    }
    Ok(())
}

/// Writes the sum of a file beside it, as `sha256sum` does, which not every system has.
fn sum(file: &Path) -> Result<()> {
    const SUM: &str =
        "import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], 'rb').read()).hexdigest())";
    let hash = output(Command::new("python3").args(["-c", SUM]).arg(file))?;
    let name = file.file_name().context("a file's name")?.to_string_lossy();
    let line = format!("{}  {name}\n", String::from_utf8(hash)?.trim());
    Ok(fs::write(
        file.with_file_name(format!("{name}.sha256")),
        line,
    )?)
}
