//! The platforms that packages are made for, and their names in each registry.

use std::env::consts::{ARCH, OS};

use anyhow::{Context, Result};

use super::VERSION;

/// A system on a machine, by Rust's names.
#[derive(Debug)]
pub(super) struct Platform {
    pub(super) os: &'static str,
    pub(super) arch: &'static str,
    /// Node's name of the system, and of the machine.
    pub(super) node: (&'static str, &'static str),
    /// The tags of a wheel whose program needs no C library but the system's oldest.
    pub(super) wheel: &'static str,
}

type Word = &'static str;

const fn of(os: Word, arch: Word, node: (Word, Word), wheel: Word) -> Platform {
    Platform {
        os,
        arch,
        node,
        wheel,
    }
}

const MANY: Word = "manylinux_2_17_x86_64.musllinux_1_1_x86_64";
const MANY_ARM: Word = "manylinux_2_17_aarch64.musllinux_1_1_aarch64";
// On Linux the oldest that pip knows of both machines, on macOS what rustc compiles for.
pub(super) const PLATFORMS: [Platform; 4] = [
    of("linux", "x86_64", ("linux", "x64"), MANY),
    of("linux", "aarch64", ("linux", "arm64"), MANY_ARM),
    of("macos", "x86_64", ("darwin", "x64"), "macosx_10_12_x86_64"),
    of("macos", "aarch64", ("darwin", "arm64"), "macosx_11_0_arm64"),
];

impl Platform {
    /// That of this machine.
    pub(super) fn here() -> Result<&'static Self> {
        let found = PLATFORMS
            .iter()
            .find(|one| (one.os, one.arch) == (OS, ARCH));
        found.with_context(|| format!("no package is made for {OS} on {ARCH}"))
    }

    pub(super) fn is_linux(&self) -> bool {
        self.os == "linux"
    }

    /// The compiler's name of it. Only Linux has more than one C library.
    pub(super) fn target(&self, libc: &str) -> String {
        let arch = self.arch;
        match self.is_linux() {
            true => format!("{arch}-unknown-linux-{libc}"),
            false => format!("{arch}-apple-darwin"),
        }
    }

    /// The name of its archive, and of the folder in that.
    pub(super) fn archive(&self) -> String {
        format!("peerbus-{VERSION}-{}-{}", self.arch, self.os)
    }

    /// The package of npm that has its program.
    pub(super) fn npm(&self) -> String {
        format!("@peerbus/{}-{}", self.node.0, self.node.1)
    }
}
