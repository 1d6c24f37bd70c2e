//! The list of live sessions: `index.json` beside their sockets. It is replaced in one step, by one
//! at a time; whoever reads it drops the entries of sessions that are gone.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use peerbus_adapter::hooks::{INDEX, directories, processes_of};
use peerbus_adapter::paths::Paths;
use peerbus_adapter::{PeerEntry, wall_ms};
use peerbus_os as os;
use peerbus_view::{PeerState, presence};
use peerbus_wire::{Presence, from_rfc3339};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::gates::Gates;

const LOCK: &str = "index.lock";
/// More than it has.
const BYTES_MAX: u64 = 4 << 20;

/// A live session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveSession {
    /// The client's own id, or one of ours where the client tells none.
    pub id: String,
    /// Its name on the bus, while it has one.
    pub name: Option<String>,
    /// The name that it will have there, while it is not on the bus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted_name: Option<String>,
    /// What its client calls itself.
    pub client: String,
    /// Its version, where it says that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Its directory.
    pub cwd: Option<PathBuf>,
    /// `idle`, `thinking` or `waiting_approval`, where the client tells.
    pub status: Option<String>,
    /// What was tried to wake it, while mail that should stays unseen or its client is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stuck: Option<String>,
    /// Since when, as RFC 3339 in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stuck_at: Option<String>,
    /// The terminal in which its client runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tty: Option<String>,
    /// The client's process, as its peers are told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// It runs in no window: `peerbus run` drives it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub windowless: bool,
    /// Its adapter is stopped: the rest is old.
    #[serde(skip)]
    pub stopped: bool,
    /// So many requests of its client wait for an answer of its user.
    #[serde(default)]
    pub asked: usize,
    /// So much of its mail waits for its user.
    #[serde(default)]
    pub held: usize,
    /// So much of its mail the loop governor keeps from the agent.
    #[serde(default)]
    pub paused: usize,
    /// When it began, as RFC 3339 in UTC. Its peers are told the same.
    pub started_at: String,
    /// When what it does changed last, likewise; `None`: its node began before this was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_at: Option<String>,
    /// Its socket.
    pub socket: PathBuf,
    /// The gates as they were when this was written.
    pub gates: Gates,
    /// The file that says so, and is read again for each request.
    pub gates_file: PathBuf,
}

impl LiveSession {
    /// Its name on the bus, or the one that it will have there, or its id.
    #[must_use]
    pub fn called(&self) -> &str {
        let name = self.name.as_ref().or(self.wanted_name.as_ref());
        name.unwrap_or(&self.id)
    }

    /// Whether it is the session of this peer: one at another broker may have the same name.
    #[must_use]
    pub fn is(&self, name: &str, started: Option<&str>) -> bool {
        self.name.as_deref() == Some(name) && started == Some(&*self.started_at)
    }

    /// A new broker has heard nothing of a peer. This session may be that one's if it began before the peer left.
    fn may_be(&self, peer: &PeerEntry) -> bool {
        let seen_ms =
            (peer.away_s).map(|away| wall_ms().saturating_sub(away.saturating_mul(1_000)));
        let is_silent = !peer.online && presence(peer)["started"].is_null();
        let is_named = self.name.as_ref() == Some(&peer.name);
        is_silent
            && is_named
            && from_rfc3339(&self.started_at).is_some_and(|at| Some(at) <= seen_ms)
    }

    /// Its presence, as far as the list tells it.
    fn presence(&self) -> Option<Presence> {
        let waits = (self.state() == PeerState::Waits).then_some("waiting");
        let said = json!({
            "started": self.started_at, "activity": waits, "client": self.client,
            "version": self.version, "pid": self.pid, "tty": self.tty,
        });
        Presence::parse(&said.to_string())
    }

    /// When it was active last, as far as that is known.
    #[must_use]
    pub fn last_active(&self) -> &str {
        self.active_at.as_ref().unwrap_or(&self.started_at)
    }
}

/// The file. An entry of another version's stays as long as its socket.
#[derive(Default, Serialize, Deserialize)]
struct Index {
    sessions: Vec<Value>,
}

fn socket(entry: &Value) -> &Path {
    Path::new(entry["socket"].as_str().unwrap_or_default())
}

/// Writes a session into the index of the directory of its socket, in place of what stood there.
pub(crate) fn put(session: &LiveSession) -> io::Result<()> {
    change(directory(&session.socket), &session.socket, Some(session))
}

/// Takes the session with this socket out.
pub(crate) fn remove(socket: &Path) -> io::Result<()> {
    change(directory(socket), socket, None)
}

/// Whether a session stands in the list of its directory.
pub(crate) fn lists(session: &LiveSession) -> bool {
    let index = read(&directory(&session.socket).join(INDEX));
    index.sessions.iter().any(|it| socket(it) == session.socket)
}

fn directory(socket: &Path) -> &Path {
    socket.parent().unwrap_or(Path::new("/"))
}

/// The live sessions of a directory, those that started first at the beginning. What is gone is
/// dropped from the file, too. Only sockets in that directory are looked at, whatever the file says.
#[must_use]
pub fn live(dir: &Path) -> Vec<LiveSession> {
    live_of(dir, |_| true)
}

fn live_of(dir: &Path, is_wanted: impl Fn(&LiveSession) -> bool) -> Vec<LiveSession> {
    if !os::user::owns(dir) {
        return Vec::new();
    }
    let path = dir.join(INDEX);
    let found = read(&path).sessions;
    let mut live = Vec::new();
    for entry in found {
        let Some(session) = serde_json::from_value(entry).ok().filter(&is_wanted) else {
            continue;
        };
        let here = session.socket.file_name().map(|name| dir.join(name));
        let listening = here.as_deref().map(os::socket::is_listening);
        match (here, listening) {
            (Some(socket), Some(Ok(true))) => live.push(LiveSession {
                stopped: is_stopped(&socket),
                socket,
                ..session
            }),
            // Whether it is gone cannot be told, in a sandbox for one.
            (_, Some(Err(error))) if error.kind() != io::ErrorKind::NotFound => {}
            // Somebody else may have been faster.
            _ => drop(change(dir, &session.socket, None)),
        }
    }
    live.sort_by(|a, b| (&a.started_at, &a.socket).cmp(&(&b.started_at, &b.socket)));
    live
}

/// All live sessions of this user, with the gates as they are now.
#[must_use]
pub fn all(paths: &Paths) -> Vec<LiveSession> {
    all_of(paths, |_| true)
}

/// Those of them that are wanted, as the lists have them: no other one is asked whether it lives.
#[must_use]
pub fn all_of(paths: &Paths, is_wanted: impl Fn(&LiveSession) -> bool + Copy) -> Vec<LiveSession> {
    let found = directories(paths).into_iter();
    let found = found.flat_map(|dir| live_of(&dir, is_wanted));
    let now = |session: LiveSession| LiveSession {
        gates: Gates::effective(&session.gates_file),
        ..session
    };
    found.map(now).collect()
}

/// Tells of those peers whose adapters are stopped, which say nothing themselves.
pub fn look(peers: &mut [PeerEntry]) {
    let dirs = Paths::find().map_or_else(|_| Vec::new(), |paths| directories(&paths));
    let all = dirs.iter().flat_map(|dir| live(dir));
    for session in all.filter(|session| session.stopped) {
        let is_it = |peer: &&mut PeerEntry| {
            let said = presence(peer);
            session.is(&peer.name, said["started"].as_str())
        };
        if let Some(peer) = peers.iter_mut().find(is_it) {
            peer.stopped = true;
            if session.windowless {
                // Nobody can answer what its driver asks.
                let mut said = presence(peer);
                said["activity"] = Value::Null;
                peer.presence = Presence::parse(&said.to_string());
            }
        } else if let Some(peer) = peers.iter_mut().find(|peer| session.may_be(peer)) {
            (peer.stopped, peer.presence) = (true, session.presence());
        }
    }
}

/// The processes of live sessions that are stopped, clients' and adapters', as the lists name them. No session
/// is asked: it is cheap enough for each second in which somebody looks on.
#[must_use]
pub fn stopped() -> Vec<u32> {
    let dirs = Paths::find().map_or_else(|_| Vec::new(), |paths| directories(&paths));
    let own = dirs.iter().filter(|dir| os::user::owns(dir));
    let listed = own.flat_map(|dir| read(&dir.join(INDEX)).sessions);
    let processes = listed.flat_map(|entry| {
        let called = processes_of(socket(&entry)).into_iter().flatten();
        let client = entry["pid"].as_u64().and_then(|id| u32::try_from(id).ok());
        called.chain(client).collect::<Vec<_>>()
    });
    processes
        .filter(|id| os::process::is_stopped(*id))
        .collect()
}

fn is_stopped(socket: &Path) -> bool {
    processes_of(socket).is_some_and(|[_, adapter]| os::process::is_stopped(adapter))
}

fn read(path: &Path) -> Index {
    let text = os::file::read_small(path, BYTES_MAX).unwrap_or_default();
    // What is not understood is written anew by every session as it changes.
    serde_json::from_str(&text).unwrap_or_default()
}

/// Takes the entry with this socket out, and puts a new one in.
fn change(dir: &Path, of: &Path, new: Option<&LiveSession>) -> io::Result<()> {
    let lock = os::file::open_private(&dir.join(LOCK))?;
    // Does not wait: a session would. Who needs the list written tries again.
    lock.try_lock()?;
    let path = dir.join(INDEX);
    let mut index = read(&path);
    // Of a session that ended without a word the socket may be swept already.
    let is_other = |known: &Path| known != of && known.exists();
    index.sessions.retain(|known| is_other(socket(known)));
    index.sessions.extend(new.map(|new| json!(new)));
    let fresh = dir.join(format!(".{INDEX}.{}", std::process::id()));
    // Left by a process of this number.
    let _ = fs::remove_file(&fresh);
    let text = serde_json::to_string(&index)?;
    // What is lost with the machine's power says nothing of what lives after it: no sync.
    let written = os::file::create_private(&fresh)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&fresh, &path));
    if written.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use peerbus_test_support::socket::end;
    use peerbus_wire::rfc3339;

    use super::*;

    fn session(dir: &Path, id: &str) -> LiveSession {
        LiveSession {
            id: id.into(),
            name: None,
            wanted_name: None,
            client: "c".into(),
            version: None,
            cwd: None,
            status: Some("idle".into()),
            stuck: None,
            stuck_at: None,
            stopped: false,
            tty: None,
            pid: None,
            windowless: false,
            asked: 0,
            held: 0,
            paused: 0,
            started_at: format!("2026-01-01T00:00:00.{id}Z"),
            active_at: None,
            socket: dir.join(format!("{id}.sock")),
            gates: Gates::default(),
            gates_file: PathBuf::new(),
        }
    }

    fn ids(dir: &Path) -> Vec<String> {
        live(dir).into_iter().map(|session| session.id).collect()
    }

    #[test]
    fn whoever_reads_drops_the_dead_and_an_orderly_end_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let mut listeners = Vec::new();
        for id in ["2", "1", "3"] {
            let session = session(dir, id);
            listeners.push(UnixListener::bind(&session.socket).unwrap());
            put(&session).unwrap();
        }
        assert_eq!(ids(dir), ["1", "2", "3"]);
        // A killed process leaves its socket and its entry.
        end(listeners.pop().unwrap());
        assert_eq!(ids(dir), ["1", "2"]);
        let text = fs::read_to_string(dir.join(INDEX)).unwrap();
        assert!(!text.contains("3.sock"), "{text}");
        remove(&dir.join("1.sock")).unwrap();
        assert_eq!(ids(dir), ["2"]);
        let thinking = LiveSession {
            status: Some("thinking".into()),
            ..session(dir, "2")
        };
        put(&thinking).unwrap();
        assert_eq!(live(dir), [thinking]);
        let mode = os::file::exposed_mode(&fs::metadata(dir.join(INDEX)).unwrap());
        assert_eq!(mode, None, "the user's alone");
    }

    #[test]
    fn what_a_stopped_driver_asks_nobody_can_answer_and_what_a_window_asks_its_user_can() {
        let asks = |windowless, stopped| LiveSession {
            status: Some("waiting_approval".into()),
            windowless,
            stopped,
            ..session(Path::new("/"), "1")
        };
        assert_eq!(asks(true, true).state(), PeerState::Stuck);
        assert_eq!(asks(true, false).state(), PeerState::Waits);
        assert_eq!(asks(false, true).state(), PeerState::Waits);
    }

    #[test]
    fn a_peer_of_which_nothing_is_heard_may_be_a_session_that_began_before_it_left() {
        let now = wall_ms();
        let session = |began_ms| LiveSession {
            name: Some("bob".into()),
            started_at: rfc3339(began_ms),
            ..session(Path::new("/"), "1")
        };
        let gone = PeerEntry {
            name: "bob".into(),
            away_s: Some(60),
            presence: Presence::parse(r#"{"client":"c"}"#),
            ..PeerEntry::default()
        };
        let (early, late) = (session(now - 90_000), session(now - 30_000));
        assert!(early.may_be(&gone) && !late.may_be(&gone));
        let said = early.presence();
        for other in [
            PeerEntry {
                name: "ann".into(),
                ..gone.clone()
            },
            PeerEntry {
                online: true,
                ..gone.clone()
            },
            PeerEntry {
                presence: said,
                ..gone.clone()
            },
            PeerEntry {
                away_s: None,
                ..gone
            },
        ] {
            assert!(!early.may_be(&other), "{other:?}");
        }
    }

    #[test]
    fn sessions_that_begin_at_once_are_all_in_the_list() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let begin = |n: usize| {
            let session = session(dir, &format!("{n:03}"));
            let listener = UnixListener::bind(&session.socket).unwrap();
            // One that finds the lock taken for too long tries again as it changes.
            while put(&session).is_err() {}
            listener
        };
        let listeners: Vec<_> = std::thread::scope(|scope| {
            let begun: Vec<_> = (0..16).map(|n| scope.spawn(move || begin(n))).collect();
            begun.into_iter().map(|b| b.join().unwrap()).collect()
        });
        assert_eq!(live(dir).len(), listeners.len());
    }

    #[test]
    fn a_list_that_names_sockets_elsewhere_changes_nothing_there() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let elsewhere = session(other.path(), "1");
        end(UnixListener::bind(&elsewhere.socket).unwrap());
        let precious = other.path().join(INDEX);
        fs::write(&precious, "precious").unwrap();
        let sessions = vec![elsewhere];
        let text = serde_json::json!({ "sessions": sessions }).to_string();
        fs::write(dir.path().join(INDEX), text).unwrap();
        assert_eq!(live(dir.path()), []);
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
        assert_eq!(fs::read_dir(other.path()).unwrap().count(), 2);
        let text = fs::read_to_string(dir.path().join(INDEX)).unwrap();
        assert_eq!(text, r#"{"sessions":[]}"#);
    }

    #[test]
    fn an_entry_of_another_version_hides_no_other_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let (one, newer) = (session(dir, "1"), dir.join("2.sock"));
        let _listeners = [&one.socket, &newer].map(|path| UnixListener::bind(path).unwrap());
        let other = serde_json::json!({ "sessions": [{ "socket": newer, "started": 7 }] });
        fs::write(dir.join(INDEX), other.to_string()).unwrap();
        put(&one).unwrap();
        assert_eq!(live(dir), [one]);
        let text = fs::read_to_string(dir.join(INDEX)).unwrap();
        assert!(text.contains("\"started\":7"), "{text}");
    }

    #[test]
    fn a_list_that_is_broken_is_begun_anew() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(INDEX), "{\"sessions\":[{}").unwrap();
        let one = session(dir.path(), "1");
        let _listener = UnixListener::bind(&one.socket).unwrap();
        put(&one).unwrap();
        assert_eq!(live(dir.path()), [one]);
    }
}
