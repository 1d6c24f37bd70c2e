//! Directories, disk, leftover sockets, and the clock.

use std::path::{Path, PathBuf};

use peerbus_adapter::paths::Paths;
use peerbus_adapter::{groups, wall_ms};
use peerbus_os as os;

use super::Context;
use super::report::Report;
use crate::install::program;

/// Below this the broker may stop any minute.
const DISK_BYTES_MIN: u64 = 16 * 1_024 * 1_024;
/// Below this it may stop some day.
const DISK_BYTES_LOW: u64 = 256 * 1_024 * 1_024;
/// The start of 2026: earlier than any peerbus of this kind.
const TOO_EARLY_S: u64 = 1_767_225_600;

pub(super) fn check(context: &Context, report: &mut Report) {
    this_program(report);
    clock(report);
    let paths = match Paths::find() {
        Ok(paths) => paths,
        Err(error) => return report.failed("directories", error.to_string(), "set HOME"),
    };
    let mut dirs = vec![&paths.runtime_dir, &paths.state_dir, &paths.config_dir];
    dirs.dedup();
    runtime(&paths, report);
    let unusable: Vec<_> = dirs
        .iter()
        .filter_map(|dir| Some((dir, writable(dir).err()?)))
        .collect();
    for (dir, error) in &unusable {
        report.failed(
            "directories",
            format!("{} cannot be written: {error}", dir.display()),
            "make it your own and writable, or set XDG_RUNTIME_DIR, XDG_STATE_HOME and \
             XDG_CONFIG_HOME to directories that are",
        );
    }
    if unusable.is_empty() {
        let shown: Vec<_> = dirs.iter().map(|dir| dir.display().to_string()).collect();
        report.ok(
            "directories",
            format!("{} can be written", shown.join(", ")),
        );
    }
    if let Some(other) = paths.other_database() {
        report.warning(
            "database",
            format!(
                "XDG_STATE_HOME leads to {}, and {} is there too: mail in one is not in the other",
                paths.database.display(),
                other.display()
            ),
            "set XDG_STATE_HOME alike for everybody who is to meet, or unset it",
        );
    }
    if let Err(why) = (context.check_gates)(&paths.gates) {
        let says = format!("every gate is closed until this is mended: {why}");
        report.failed("sessions", says, "correct it, or take it away");
    }
    if let Some(told) = groups::told(|name| std::env::var(name).ok()) {
        report.ok("project", told);
    }
    disk(&paths.state_dir, report);
    for socket in &paths.sockets {
        leftover(socket, report);
    }
}

/// A runtime directory that is set and not taken.
fn runtime(paths: &Paths, report: &mut Report) {
    let set = std::env::var_os("XDG_RUNTIME_DIR").filter(|set| !set.is_empty());
    let Some(set) = set.map(PathBuf::from) else {
        return;
    };
    if !paths.runtime_dir.starts_with(&set) {
        let (set, taken) = (set.display(), paths.runtime_dir.display());
        report.warning(
            "directories",
            format!(
                "XDG_RUNTIME_DIR={set} cannot be used (it is another user's, cannot be made or \
                 written, or is too long a path for sockets): sockets are in {taken}"
            ),
            "set it to a directory of your own, or unset it; broker and sessions meet all the same",
        );
    }
}

fn this_program(report: &mut Report) {
    let version = env!("CARGO_PKG_VERSION");
    let this = program::this().ok();
    let shown = this
        .as_ref()
        .map_or_else(String::new, |p| p.display().to_string());
    let on_path = program::which(program::NAME);
    let real = on_path.as_ref().and_then(|p| std::fs::canonicalize(p).ok());
    match on_path {
        Some(found) if real != this => report.warning(
            "program",
            format!(
                "this is {shown} {version}, and `peerbus` on the PATH is {}",
                found.display()
            ),
            "remove one of them, or check that both are of one version (`peerbus --version`)",
        ),
        Some(_) => report.ok("program", format!("{shown} {version}, on the PATH")),
        None => report.warning(
            "program",
            format!("{shown} {version} is not on the PATH"),
            "put it there: a project's configuration says `peerbus` without a path",
        ),
    }
}

fn clock(report: &mut Report) {
    let seconds = wall_ms() / 1_000;
    if seconds < TOO_EARLY_S {
        report.failed(
            "clock",
            format!("this machine's clock stands at {seconds} s after 1970"),
            "set it: mail would seem older than any, and expire at once",
        );
    }
}

/// Whether something can be written in a directory, or where it would be made.
fn writable(dir: &Path) -> std::io::Result<()> {
    let there = dir.ancestors().find(|dir| dir.exists()).unwrap_or(dir);
    let probe = there.join(format!(".peerbus-doctor-{:08x}", rand::random::<u32>()));
    let written = std::fs::File::options()
        .write(true)
        .create_new(true)
        .open(&probe);
    written.and_then(|_| std::fs::remove_file(&probe))
}

fn disk(dir: &Path, report: &mut Report) {
    let there = dir.ancestors().find(|dir| dir.exists()).unwrap_or(dir);
    let Ok(disk) = rustix::fs::statvfs(there) else {
        return;
    };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let says = format!("{} MiB are free at {}", free / 1_048_576, there.display());
    let remedy = "make room: a broker that cannot write stops";
    match free {
        0..DISK_BYTES_MIN => report.failed("disk", says, remedy),
        DISK_BYTES_MIN..DISK_BYTES_LOW => report.warning("disk", says, remedy),
        _ => report.ok("disk", says),
    }
}

fn leftover(socket: &Path, report: &mut Report) {
    if !socket.exists() {
        return;
    }
    let shown = socket.display();
    match os::socket::is_listening(socket) {
        Ok(true) => {}
        Ok(false) => report.warning(
            "socket",
            format!("{shown} was left behind: nobody listens there"),
            "start `peerbus serve`, which takes it over",
        ),
        Err(error) => report.failed(
            "socket",
            format!("{shown} cannot be used: {error}"),
            "run this as the user who runs the broker, or make it yours",
        ),
    }
}
