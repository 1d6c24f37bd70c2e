//! Who is an agent's: what only a person may do is refused to it, and to what it runs.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use peerbus_os as os;

use super::place::{DIRECTORY, directories, sockets};
use crate::paths::Paths;

/// So far up a process is looked for.
const GENERATIONS_MAX: usize = 64;
/// The name of the program's file, and the word with which it is an adapter.
const PROGRAM: &str = "peerbus";
const ADAPTER: &str = "adapter";
/// The system's first process.
const FIRST: u32 = 1;

/// Whether this process is an agent that has an adapter, or stands below one: also by the files that the
/// command line names.
#[must_use]
pub fn is_below_an_agent() -> bool {
    let named = std::env::args_os().flat_map(|argument| beside(&argument));
    is_an_agents_among(std::process::id(), named.collect())
}

/// Whether a process is an agent that has an adapter, or stands below one: by the adapters that run, and by
/// the sockets of sessions. Those are looked for where this process finds them, where that one and each above
/// it were started to find them, where adapters of this home were, where they are without any variable, and in
/// `dirs`. What an agent runs, its adapter too, may have been given other variables.
#[must_use]
pub fn is_an_agents(process: u32, dirs: &[PathBuf]) -> bool {
    is_an_agents_among(process, dirs.to_vec())
}

fn is_an_agents_among(id: u32, mut dirs: Vec<PathBuf>) -> bool {
    let Ok(own) = Paths::find() else {
        return true;
    };
    dirs.extend(directories(&own).into_iter().chain(unset()));
    let mut homes = BTreeSet::new();
    let itself = std::iter::once(os::process::find(id));
    for process in itself.chain(os::process::ancestors(id, GENERATIONS_MAX)) {
        match os::process::environment(process.id) {
            Ok(all) => {
                dirs.extend(Paths::of_environment(&all).iter().flat_map(directories));
                homes.extend(home(&all));
            }
            // A sandbox keeps that of its own user's processes from it, or hides one and with it what stands
            // above. Others' cannot be read anywhere.
            Err(_) if !os::user::is_in_namespace() => {}
            Err(_) if process.started.is_some() && !is_own(process.id) => {}
            Err(_) => return true,
        }
    }
    dirs.extend(adapters(&homes));
    let dirs: BTreeSet<_> = dirs.into_iter().collect();
    let is_here = |adapter| {
        let all = os::process::environment(adapter).ok();
        all.and_then(|all| home(&all))
            .is_some_and(|home| homes.contains(&home))
    };
    is_of_an_agent(&dirs.into_iter().collect::<Vec<_>>(), is_here, id)
}

/// The home in an environment.
fn home(all: &[u8]) -> Option<Vec<u8>> {
    let mut set = all.split(|byte| *byte == 0);
    set.find_map(|set| set.strip_prefix(b"HOME=").map(<[u8]>::to_vec))
}

/// Where adapters of this program have their sockets that work in one of these homes.
fn adapters(homes: &BTreeSet<Vec<u8>>) -> Vec<PathBuf> {
    let is_here = |all: &Vec<u8>| home(all).is_some_and(|home| homes.contains(&home));
    let all = os::process::running(ADAPTER).into_iter();
    let all = all.filter_map(|id| os::process::environment(id).ok().filter(is_here));
    all.filter_map(|all| Paths::of_environment(&all))
        .flat_map(|paths| directories(&paths))
        .collect()
}

/// Where a user's sessions are whose environment sets no directory.
fn unset() -> Vec<PathBuf> {
    let listed = os::user::listed();
    let paths = listed.and_then(|(id, home)| {
        let home = home.display();
        let set = format!("HOME={home}\0XDG_RUNTIME_DIR=/run/user/{id}");
        Paths::of_environment(set.as_bytes())
    });
    paths.iter().flat_map(directories).collect()
}

/// Where sessions are beside a file that an argument names, or in the home of one in `.config/peerbus`.
fn beside(argument: &OsStr) -> Vec<PathBuf> {
    let bytes = argument.as_bytes();
    let value = bytes.iter().position(|byte| *byte == b'=');
    let value = value.filter(|_| bytes.starts_with(b"--"));
    let path = value.and_then(|at| bytes.get(at + 1..)).unwrap_or(bytes);
    let Ok(path) = std::path::absolute(OsStr::from_bytes(path)) else {
        return Vec::new();
    };
    let dir = path.parent().unwrap_or(&path);
    let home = dir.parent().and_then(Path::parent);
    let home = home.filter(|home| dir == home.join(".config/peerbus"));
    let paths = home.and_then(|home| {
        let set = [b"HOME=", home.as_os_str().as_bytes()].concat();
        Paths::of_environment(&set)
    });
    let all = paths.iter().flat_map(directories);
    all.chain([dir.join(DIRECTORY)]).collect()
}

fn is_own(process: u32) -> bool {
    os::user::owns(Path::new(&format!("/proc/{process}")))
}

/// Whether a process is an agent that has an adapter, or stands below one, as far as adapters that run here and
/// the sockets in these directories tell. An agent can move or remove its socket.
#[must_use]
pub(super) fn is_of_an_agent(dirs: &[PathBuf], is_here: impl Fn(u32) -> bool, pid: u32) -> bool {
    let Some(above) = Above::of(pid) else {
        return true;
    };
    // In another user's directory stands what that user says.
    let own = dirs.iter().filter(|dir| os::user::owns(dir));
    let mut sockets = own.flat_map(|dir| sockets(dir));
    above.has_adapter(is_here)
        || sockets.any(|(path, client, adapter)| {
            // What a killed adapter left says nothing of whoever has its number by now.
            let is_left = || os::socket::is_listening(&path).is_ok_and(|listening| !listening);
            // Who runs in a sandbox does not see what stands above it.
            let is_outside = || {
                let found = os::socket::connect(&path);
                found.is_ok_and(|it| os::socket::listener(&it).is_none())
            };
            above.is_of(client, adapter) && !is_left() || is_outside()
        })
}

/// Whether a process is the client of the session whose adapter this process is, or stands below it: no file
/// is asked.
#[must_use]
pub fn is_of_session(client: u32, pid: u32) -> bool {
    Above::of(pid).is_none_or(|above| above.is_of(client, std::process::id()))
}

/// A process, and those above it.
struct Above(Vec<u32>);

impl Above {
    /// `None`: nobody knows all of them.
    fn of(pid: u32) -> Option<Self> {
        // Without, it has ended, and left its connection to another. Or the system does not tell.
        os::process::find(pid).started?;
        let above: Vec<_> = os::process::ancestors(pid, GENERATIONS_MAX).collect();
        let breaks_off = above.last().is_some_and(|top| top.started.is_none());
        let is_cut = above.len() == GENERATIONS_MAX || breaks_off && !os::process::HIDES_OTHERS;
        let ids = above.iter().map(|process| process.id);
        (!is_cut).then(|| Self(std::iter::once(pid).chain(ids).collect()))
    }

    fn has(&self, id: u32) -> bool {
        self.0.contains(&id)
    }

    /// Whether it is this client or this adapter, or stands below. Who started an adapter is its agent,
    /// whatever that is known by. A driver, its own client, stands above its agent.
    fn is_of(&self, client: u32, adapter: u32) -> bool {
        let mut starters = os::process::starters(adapter).into_iter();
        self.has(client)
            || client != adapter && starters.any(|id| self.has(id))
            || self.has(adapter)
    }

    /// The same for the adapters and drivers that run here.
    fn has_adapter(&self, is_here: impl Fn(u32) -> bool) -> bool {
        let all = os::process::called(PROGRAM, &[ADAPTER, "run", "acp"]).into_iter();
        let mut all = all.filter(|(id, _)| is_here(*id));
        all.any(|(id, word)| match word {
            0 => {
                // One whose agent ended stands below the first process, as everything does.
                let mut starters = os::process::starters(id).into_iter();
                self.has(id) || starters.any(|id| id != FIRST && self.has(id))
            }
            // What a driver does itself is its user's.
            _ => self.0.iter().skip(1).any(|above| *above == id),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use peerbus_test_support::socket::end;

    use super::super::place::bind;
    use super::super::place::tests::paths;
    use super::*;

    /// Above any number that Linux gives to a process (`proc(5)`, pid_max).
    const NOBODY: u32 = 4_194_305;

    #[test]
    fn sessions_are_looked_for_beside_the_files_that_arguments_name() {
        for (argument, there) in [
            ("/run/x/peerbus.sock", "/run/x/sessions"),
            ("--socket=/run/x/peerbus.sock", "/run/x/sessions"),
            (
                "/home/a/.config/peerbus/tokens.toml",
                "/home/a/.local/state/peerbus/sessions",
            ),
        ] {
            let found = beside(argument.as_ref());
            assert!(found.contains(&there.into()), "{argument}: {found:?}");
        }
        assert!(beside("history".as_ref()).len() == 1);
    }

    #[test]
    fn a_process_far_below_an_agent_is_the_agents() {
        use std::io::{BufRead as _, BufReader};
        use std::process::{Command, Stdio};

        let home = tempfile::tempdir().unwrap();
        let paths = paths(home.path());
        let script = home.path().join("deep.sh");
        // The `:` keeps each shell from becoming the next.
        let deep = "[ $2 = 0 ] && { echo $$; read x; exit; }; sh $1 $1 $(($2 - 1)); :";
        std::fs::write(&script, deep).unwrap();
        let is_agents = |depth: usize| {
            let mut shell = Command::new("sh")
                .args([&script, &script])
                .arg(depth.to_string())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let (_place, _listener) = bind(&paths, shell.id(), 0).unwrap();
            let mut said = String::new();
            let mut stdout = BufReader::new(shell.stdout.take().unwrap());
            stdout.read_line(&mut said).unwrap();
            let found =
                is_of_an_agent(&directories(&paths), |_| true, said.trim().parse().unwrap());
            drop(shell.stdin.take());
            shell.wait().unwrap();
            found
        };
        for depth in [0, 1, GENERATIONS_MAX + 6] {
            assert!(is_agents(depth), "{depth}");
        }
    }

    #[test]
    fn an_adapter_knows_what_its_client_runs_without_a_file() {
        let child = || {
            std::process::Command::new("cat")
                .stdin(std::process::Stdio::piped())
                .spawn()
        };
        let (mut client, mut other) = (child().unwrap(), child().unwrap());
        let own = std::process::id();
        let above = |id: u32| Above::of(id).unwrap();
        let found = [
            above(client.id()).is_of(client.id(), NOBODY),
            above(other.id()).is_of(client.id(), NOBODY),
            // What it starts itself, too.
            is_of_session(client.id(), other.id()),
            is_of_session(own, FIRST),
        ];
        drop((client.stdin.take(), other.stdin.take()));
        client.wait().unwrap();
        other.wait().unwrap();
        assert_eq!(found, [true, false, true, false]);
    }

    #[test]
    fn what_an_agent_runs_is_its_own_where_a_wrapper_started_its_adapter() {
        use std::io::{BufRead as _, BufReader};
        use std::process::{Command, Stdio};

        let home = tempfile::tempdir().unwrap();
        let paths = paths(home.path());
        let dir = paths.runtime_dir.join(DIRECTORY);
        std::fs::create_dir_all(&dir).unwrap();
        // An agent with something that it runs, and with a wrapper around its adapter.
        let agent = "sleep 60 & echo $!; cat | sh -c 'sh -c \"echo \\$\\$; cat; :\"; :'; kill $!";
        let mut agent = Command::new("sh")
            .args(["-c", agent])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(agent.stdout.take().unwrap()).lines();
        let mut number = || -> u32 { said.next().unwrap().unwrap().parse().unwrap() };
        let (runs, adapter) = (number(), number());
        let is_agents = || is_of_an_agent(&directories(&paths), |_| true, runs);
        let before = is_agents();
        let socket = dir.join(format!("0.{adapter}.sock"));
        let listener = UnixListener::bind(socket).unwrap();
        let while_it_lives = is_agents();
        end(listener);
        let found = (before, while_it_lives, is_agents());
        drop(agent.stdin.take());
        agent.wait().unwrap();
        assert_eq!(found, (false, true, false));
    }
}
