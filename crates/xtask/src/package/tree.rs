//! What a Debian package has, and where.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::chmod;
use crate::run::{output, root};

/// Where Claude Code finds the marketplace of an installed package.
const MARKETPLACE: &str = "usr/share/peerbus";
/// The program as the unit in `deploy` has it, and as the package's has.
const PROGRAM: (&str, &str) = ("%h/.cargo/bin/peerbus", "/usr/bin/peerbus");
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/peerbus"),
    ("fish", "usr/share/fish/vendor_completions.d/peerbus.fish"),
    ("zsh", "usr/share/zsh/vendor-completions/_peerbus"),
];

/// Lays everything out below `to`, which is not there yet.
pub(super) fn fill(to: &Path, binary: &Path, notices: &Path) -> Result<()> {
    copy(binary, &to.join("usr/bin/peerbus"), 0o755)?;
    let manual = to.join("usr/share/man/man1");
    output(Command::new(binary).arg("man").arg(&manual))?;
    for page in files(&manual)? {
        pack(&page)?;
    }
    for (shell, path) in COMPLETIONS {
        let script = output(Command::new(binary).args(["completions", shell]))?;
        write(&to.join(path), &script)?;
    }
    for unit in ["peerbus.service", "peerbus.socket"] {
        let text = fs::read_to_string(root().join("deploy").join(unit))?;
        let place = to.join("usr/lib/systemd/user").join(unit);
        write(&place, packaged(&text).as_bytes())?;
    }
    let documents = to.join("usr/share/doc/peerbus");
    write(&documents.join("copyright"), copyright()?.as_bytes())?;
    for (from, name) in [
        (root().join("CHANGELOG.md").as_path(), "changelog"),
        (notices, "THIRD-PARTY.txt"),
    ] {
        let place = documents.join(name);
        copy(from, &place, 0o644)?;
        pack(&place)?;
    }
    for folder in [".claude-plugin", "deploy/claude-code-plugin"] {
        for file in files(&root().join(folder))? {
            let name = file.strip_prefix(root())?;
            copy(&file, &to.join(MARKETPLACE).join(name), 0o644)?;
        }
    }
    folders(to)
}

/// A unit without what stands before it for those who build it themselves, and with the package's
/// program.
fn packaged(unit: &str) -> String {
    let lines = unit.lines().skip_while(|line| line.starts_with('#'));
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    text.replace(PROGRAM.0, PROGRAM.1)
}

fn copyright() -> Result<String> {
    let licence = fs::read_to_string(root().join("LICENSE"))?;
    let (head, terms) = licence
        .split_once("\n\nPermission")
        .context("LICENSE begins otherwise")?;
    let holder = head.lines().last().unwrap_or_default();
    let terms = format!("Permission{terms}");
    let terms = terms.trim().lines().map(|line| match line {
        "" => " .\n".to_owned(),
        line => format!(" {line}\n"),
    });
    Ok(format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: peerbus\n\
         Source: https://github.com/peerbus/peerbus\n\
         Comment: what is linked in has licences of its own, see THIRD-PARTY.txt.gz\n\n\
         Files: *\n\
         Copyright: {}\n\
         License: Expat\n{}",
        holder.trim_start_matches("Copyright (c) "),
        terms.collect::<String>()
    ))
}

/// Writes the sums by which dpkg checks what is installed.
pub(super) fn sums(staged: &Path) -> Result<()> {
    let names = files(&staged.join("usr"))?.into_iter();
    let names: Vec<PathBuf> = names
        .map(|file| Ok(file.strip_prefix(staged)?.to_owned()))
        .collect::<Result<_>>()?;
    let sums = output(Command::new("md5sum").args(names).current_dir(staged))?;
    write(&staged.join("DEBIAN/md5sums"), &sums)?;
    folders(staged)
}

/// What the files take, in KiB, each rounded up.
pub(super) fn size_kib(folder: &Path) -> Result<u64> {
    let sizes = files(folder)?.into_iter();
    let sizes = sizes.map(|file| Ok(fs::metadata(file)?.len().div_ceil(1024)));
    sizes.sum::<Result<u64>>()
}

/// Copies a file, with the folders above it.
pub(super) fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let text = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
    write(to, &text)?;
    chmod(to, mode)
}

fn write(to: &Path, text: &[u8]) -> Result<()> {
    fs::create_dir_all(to.parent().context("a file without a folder")?)?;
    fs::write(to, text)?;
    chmod(to, 0o644)
}

/// Compresses a file in its place, the same each time.
fn pack(file: &Path) -> Result<()> {
    output(
        Command::new("gzip")
            .args(["--best", "--no-name", "--force"])
            .arg(file),
    )?;
    chmod(&file.with_file_name(name_of(file) + ".gz"), 0o644)
}

fn name_of(file: &Path) -> String {
    file.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => found.extend(files(&path)?),
            false => found.push(path),
        }
    }
    found.sort();
    Ok(found)
}

/// Gives every folder its permissions.
fn folders(top: &Path) -> Result<()> {
    chmod(top, 0o755)?;
    for entry in fs::read_dir(top)? {
        let path = entry?.path();
        if path.is_dir() {
            folders(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_units_start_the_packages_program() {
        let unit = fs::read_to_string(root().join("deploy/peerbus.service")).unwrap();
        let text = packaged(&unit);
        assert!(text.starts_with("[Unit]\n"), "{text}");
        assert!(
            text.contains("\nExecStart=/usr/bin/peerbus serve\n"),
            "{text}"
        );
    }
}
