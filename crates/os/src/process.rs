//! Processes and their parents.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, test_kill_process};

use crate::system::{self, stat};

/// So many parents are asked whether a process descends from another: more than any session has
/// shells and wrappers.
const GENERATIONS_MAX: usize = 64;

/// A process, and when it was started, in the kernel's own count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub id: u32,
    /// When it was started, as the system has it: the number alone may be another process's by now.
    pub started: Option<String>,
}

/// What the system tells of a process.
pub(crate) struct Stat {
    /// 0: it is the first one.
    pub(crate) parent: u32,
    pub(crate) started: String,
    /// By a signal or a debugger.
    pub(crate) is_stopped: bool,
}

/// Whether there is a process of this number, whoever its user is.
#[must_use]
pub fn exists(id: u32) -> bool {
    let pid = i32::try_from(id).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

/// A process as it is now.
#[must_use]
pub fn find(id: u32) -> Process {
    let started = stat(id).map(|found| found.started);
    Process { id, started }
}

/// The parent of a process, its parent, and so on, at most `max` of them, as far as the system tells. Each is
/// looked at when it is wanted.
pub fn ancestors(of: u32, max: usize) -> impl Iterator<Item = Process> {
    let mut next = stat(of).map(|found| found.parent);
    let above = std::iter::from_fn(move || {
        let id = next.filter(|id| *id > 0)?;
        let stat = stat(id);
        next = stat.as_ref().map(|found| found.parent);
        let started = stat.map(|found| found.started);
        Some(Process { id, started })
    });
    above.take(max)
}

/// Whether parents may be hidden from a person on this system: then a chain that breaks off is no sign of
/// anything.
pub const HIDES_OTHERS: bool = system::HIDES_OTHERS;

/// The environment with which a process was started: `NAME=VALUE`, a 0 behind each.
///
/// # Errors
///
/// When it is another user's, or the system does not tell.
pub fn environment(id: u32) -> io::Result<Vec<u8>> {
    system::environment(id)
}

/// The process that started one which speaks over its standard input, and what stands between them,
/// as far as the system tells: a shell or a wrapper hands on the pipe that it was given itself.
#[must_use]
pub fn starters(of: u32) -> Vec<u32> {
    let given = system::input_pipe(of);
    let mut found = Vec::new();
    for process in ancestors(of, GENERATIONS_MAX) {
        found.push(process.id);
        if given.is_none() || system::input_pipe(process.id) != given {
            break;
        }
    }
    found
}

/// Whether a process stands somewhere below another one; it does not stand below itself. `None`:
/// the system does not tell, a process ended, or 64 generations lie between.
#[must_use]
pub fn descends(id: u32, ancestor: u32) -> Option<bool> {
    let mut next = id;
    for _ in 0..GENERATIONS_MAX {
        let parent = stat(next)?.parent;
        if parent == ancestor {
            return Some(true);
        }
        if parent == 0 {
            return Some(false);
        }
        next = parent;
    }
    None
}

/// The processes somewhere below one, with those that ended and that nobody has waited for, as far as
/// the system tells. A process that is spared is left out, with those below it.
#[must_use]
pub fn descendants(of: u32, is_spared: impl Fn(u32) -> bool) -> Vec<u32> {
    let ids = system::all().into_iter();
    let all: Vec<(u32, u32)> = ids.filter_map(|id| Some((id, stat(id)?.parent))).collect();
    let below = |above: &[u32]| -> Vec<u32> {
        let children = all.iter().filter(|(_, parent)| above.contains(parent));
        children
            .map(|(id, _)| *id)
            .filter(|id| !is_spared(*id))
            .collect()
    };
    let (mut found, mut next) = (Vec::new(), below(&[of]));
    while !next.is_empty() {
        found.extend(&next);
        next = below(&next);
    }
    found
}

/// Whether a process runs this program, or one that stood or stands in its place, with an argument, as
/// far as the system tells.
#[must_use]
pub fn is_this_program(id: u32, argument: &str) -> bool {
    let ours = system::program(std::process::id());
    let line = system::command_line(id);
    let mut words = line.split(|byte| *byte == 0);
    words.any(|word| word == argument.as_bytes()) && ours.is_some() && system::program(id) == ours
}

/// The processes that run this program with an argument, as far as the system tells.
#[must_use]
pub fn running(argument: &str) -> Vec<u32> {
    let mut all = system::all();
    all.retain(|id| is_this_program(*id, argument));
    all
}

/// The processes that run this program or one of this file name, wherever it lies, with one of these words
/// as the first argument, and that word's place, as far as the system tells.
#[must_use]
pub fn called(name: &str, words: &[&str]) -> Vec<(u32, usize)> {
    let ours = system::program(std::process::id());
    let is_it = |program: Vec<u8>| {
        let file = program.rsplit(|byte| *byte == b'/').next();
        file == Some(name.as_bytes()) || Some(program) == ours
    };
    let word = |id: u32| {
        let line = system::command_line(id);
        let first = line.split(|byte| *byte == 0).nth(1)?;
        words.iter().position(|word| word.as_bytes() == first)
    };
    let all = system::all().into_iter();
    let all = all.filter_map(|id| Some((id, word(id)?)));
    all.filter(|(id, _)| system::program(*id).is_some_and(is_it))
        .collect()
}

/// The processes that do not tell this user which files and sockets they hold.
#[must_use]
pub fn closed() -> Vec<u32> {
    let mut all = system::all();
    all.retain(|id| system::hides_files(*id));
    all
}

/// A handle on a process that becomes readable when it ends: no polling. `None` when it has ended,
/// or cannot be watched, or `still` finds that the number was given away before the handle was opened.
pub fn handle(pid: u32, still: impl FnOnce() -> bool) -> Option<OwnedFd> {
    system::handle(pid).filter(|_| still())
}

/// Has orphans below this process become its children. False: they do not here.
///
/// # Errors
///
/// When the system refuses it.
pub fn adopt_orphans() -> io::Result<bool> {
    system::adopt_orphans()
}

/// Has this process, and the program that takes its place, be killed as its parent ends, where the system
/// can do that.
///
/// # Errors
///
/// When the system refuses it.
pub fn end_with_parent() -> io::Result<()> {
    system::end_with_parent()
}

/// The program that opens a file in the user's browser, where there is a display.
#[must_use]
pub fn browser() -> Option<&'static str> {
    system::browser()
}

/// Lets every signal reach this thread and those that it starts. Runtimes that block signals in their
/// threads hand that on to the programs that they start. Where the system refuses, nothing changes.
pub fn unblock_signals() {
    let _ = nix::sys::signal::SigSet::empty().thread_set_mask();
}

/// Whether a process has a file open, as far as the system tells: a number that is read somewhere may
/// be another process's here, or by now.
#[must_use]
pub fn has_open(id: u32, file: &Path) -> bool {
    system::has_open(id, file)
}

/// Asks a process of this user's to end.
///
/// # Errors
///
/// When it cannot be asked.
pub fn terminate(id: u32) -> io::Result<()> {
    signal(id, Signal::TERM)
}

/// Sends a signal to a process.
///
/// # Errors
///
/// When there is no such process, or it is another user's.
pub fn signal(id: u32, signal: Signal) -> io::Result<()> {
    let pid = i32::try_from(id).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or(io::ErrorKind::NotFound)?;
    Ok(rustix::process::kill_process(pid, signal)?)
}

/// Whether this process ignores a signal, as far as the system tells.
#[must_use]
pub fn ignores(signal: Signal) -> bool {
    system::ignores(signal)
}

/// Whether a process is stopped, by a signal or a debugger, as far as the system tells.
#[must_use]
pub fn is_stopped(id: u32) -> bool {
    stat(id).is_some_and(|found| found.is_stopped)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::parent_id;
    use std::process::id;

    use super::*;

    /// Above any number that Linux gives to a process (`proc(5)`, pid_max).
    const NOBODY: u32 = 4_194_305;

    #[test]
    fn ancestors_begin_with_the_parent() {
        let found: Vec<_> = ancestors(id(), 2).collect();
        assert_eq!(found[0].id, parent_id());
        assert!(found.len() <= 2);
        assert!(find(id()).started.unwrap().parse::<u64>().unwrap() > 0);
        assert_eq!(find(NOBODY).started, None);
    }

    #[test]
    fn a_process_of_another_user_is_there_and_one_that_ended_is_not() {
        assert!(exists(1) && exists(id()));
        assert!(!exists(NOBODY) && !exists(0));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let ended = child.id();
        child.wait().unwrap();
        assert!(!exists(ended));
    }

    #[test]
    fn a_stopped_process_is_told_from_one_that_runs() {
        use rustix::process::{WaitOptions, kill_process, waitpid};

        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let pid = Pid::from_child(&child);
        assert!(!is_stopped(child.id()) && !is_stopped(NOBODY));
        kill_process(pid, Signal::STOP).unwrap();
        // It is told when it has stopped.
        waitpid(Some(pid), WaitOptions::UNTRACED).unwrap();
        assert!(is_stopped(child.id()));
        kill_process(pid, Signal::CONT).unwrap();
        waitpid(Some(pid), WaitOptions::CONTINUED).unwrap();
        assert!(!is_stopped(child.id()));
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn all_below_a_process_are_found_but_for_what_is_spared_and_below_that() {
        use std::io::{BufRead as _, BufReader};
        use std::process::{Command, Stdio};

        let mut shell = Command::new("sh")
            .args(["-c", "sh -c 'echo $$; read x; :'; :"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut stdout = BufReader::new(shell.stdout.take().unwrap());
        stdout.read_line(&mut said).unwrap();
        let (above, below) = (shell.id(), said.trim().parse().unwrap());
        let all = descendants(id(), |_| false);
        assert!(all.contains(&above) && all.contains(&below), "{all:?}");
        assert_eq!(descendants(above, |_| false), [below]);
        let spared = descendants(id(), |id| id == above);
        assert!(!spared.contains(&above) && !spared.contains(&below));
        let argument = std::env::args().next().unwrap();
        assert!(is_this_program(id(), &argument) && !is_this_program(id(), "--none"));
        assert!(!is_this_program(above, "-c"));
        drop(shell.stdin.take());
        shell.wait().unwrap();
    }

    #[test]
    fn a_descendant_is_told_from_a_stranger() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let below = child.id();
        let found = [
            descends(below, id()),
            descends(below, parent_id()),
            descends(id(), below),
            descends(id(), id()),
            descends(NOBODY, id()),
        ];
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(
            found,
            [Some(true), Some(true), Some(false), Some(false), None]
        );
    }
}
