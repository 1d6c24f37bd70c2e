//! What needs no Debian: an archive with its sum, a package for npm, and a wheel for Python's installers.
//! Each has one binary, of one platform.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::tree::copy;
use super::{VERSION, libc_version};
use crate::run::{finish, output, root};

/// The platforms' names: Rust's, Node's and the wheels'.
const PLATFORMS: [(&str, &str, &str); 2] =
    [("x86_64", "x64", "x86_64"), ("aarch64", "arm64", "aarch64")];

/// One binary, and what goes with it.
pub(super) struct Parts<'a> {
    pub(super) binary: &'a Path,
    pub(super) notices: &'a Path,
    /// Where packages go.
    pub(super) out: &'a Path,
    pub(super) arch: &'a str,
}

impl Parts<'_> {
    fn platform(&self) -> Result<(&'static str, &'static str)> {
        let found = PLATFORMS.iter().find(|(rust, ..)| *rust == self.arch);
        let (_, node, wheel) = found.with_context(|| format!("no package for {}", self.arch))?;
        Ok((*node, *wheel))
    }

    /// An empty folder to lay something out in.
    fn staged(&self, name: &str) -> Result<PathBuf> {
        let staged = self.out.join(name);
        if staged.exists() {
            fs::remove_dir_all(&staged)?;
        }
        fs::create_dir_all(&staged)?;
        Ok(staged)
    }

    /// The documents that each package has.
    fn documents(&self, to: &Path) -> Result<()> {
        for name in ["README.md", "CHANGELOG.md", "LICENSE"] {
            copy(&root().join(name), &to.join(name), 0o644)?;
        }
        copy(self.notices, &to.join("THIRD-PARTY.txt"), 0o644)
    }

    /// `peerbus-VERSION-ARCH-linux.tar.gz`, the same each time, and its sum in `.sha256` beside it.
    pub(super) fn archive(&self) -> Result<PathBuf> {
        let name = format!("peerbus-{VERSION}-{}-linux", self.arch);
        let top = self.staged("archive")?;
        let dir = top.join(&name);
        copy(self.binary, &dir.join("peerbus"), 0o755)?;
        self.documents(&dir)?;
        output(Command::new(self.binary).arg("man").arg(dir.join("man")))?;
        let made = self.out.join(format!("{name}.tar.gz"));
        let mut tar = Command::new("tar");
        tar.args(["--sort=name", "--mtime=@0", "--owner=0", "--group=0"]);
        tar.args(["--numeric-owner", "--use-compress-program=gzip -n"]);
        output(tar.arg("-cf").arg(&made).arg("-C").arg(&top).arg(&name))?;
        let mut sum = Command::new("sha256sum");
        let sum = sum.arg(made.file_name().context("a file's name")?);
        let sum = output(sum.current_dir(self.out))?;
        fs::write(self.out.join(format!("{name}.tar.gz.sha256")), sum)?;
        Ok(made)
    }

    /// Two packages: the command, and the binary of this platform, which npm installs where it fits.
    pub(super) fn npm(&self) -> Result<[PathBuf; 2]> {
        let (cpu, _) = self.platform()?;
        let binary = format!("@peerbus/linux-{cpu}");
        let common = json!({
            "version": VERSION, "license": "MIT",
            "repository": { "type": "git", "url": "git+https://github.com/peerbus/peerbus.git" },
            "description": "Durable, signed message bus for AI coding agents",
        });
        let optional: serde_json::Map<_, _> = PLATFORMS
            .iter()
            .map(|(_, node, _)| (format!("@peerbus/linux-{node}"), VERSION.into()))
            .collect();
        let command = json!({
            "name": "peerbus", "bin": { "peerbus": "peerbus.js" }, "engines": { "node": ">=18" },
            "optionalDependencies": optional,
        });
        let platform = json!({ "name": binary, "os": ["linux"], "cpu": [cpu] });
        let [dir, platform_dir] = [self.staged("npm")?, self.staged("npm-platform")?];
        copy(
            &root().join("deploy/npm/peerbus.js"),
            &dir.join("peerbus.js"),
            0o755,
        )?;
        copy(self.binary, &platform_dir.join("peerbus"), 0o755)?;
        let mut made = Vec::new();
        for (dir, own) in [(&dir, command), (&platform_dir, platform)] {
            self.documents(dir)?;
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
        let (_, machine) = self.platform()?;
        // What needs no C library runs with each.
        let tag = match libc_version(&fs::read(self.binary)?) {
            Some(minor) => format!("manylinux_2_{minor}_{machine}"),
            // The oldest that pip knows of both machines.
            None => format!("manylinux_2_17_{machine}.musllinux_1_1_{machine}"),
        };
        let made = self
            .out
            .join(format!("peerbus-{VERSION}-py3-none-{tag}.whl"));
        let packed = finish(
            Command::new("python3")
                .args(["-c", PACK, VERSION])
                .args([&made, self.binary, self.notices])
                .arg(root()),
        )?;
        ensure!(packed == ExitCode::SUCCESS, "python3 packed no wheel");
        Ok(made)
    }
}
