//! Which name a client's session goes by, so that it gets its name and its queue back when it is
//! resumed.
//!
//! One small file of the user's, replaced as a whole while its directory is locked.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use peerbus_wire::PeerName;
use serde_json::Value;

/// Sessions that are remembered; the ones that were bound longest ago go.
const BINDINGS_MAX: usize = 1_000;
/// Largest file that is read: more than the largest that is written.
const FILE_BYTES_MAX: u64 = 1_048_576;
/// Longest id of a session, in bytes.
const ID_BYTES_MAX: usize = 128;
/// How often, and after which pause, the lock is tried again. It is held for a moment only.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

type Binding = (String, String);

/// The id by which the name of a session is kept whose own id says which it is to one agent in one
/// directory only: agents may count their sessions.
#[must_use]
pub fn id_in(agent: &str, cwd: Option<&Path>, id: &str) -> String {
    let all = serde_json::json!([agent, cwd.map(Path::to_string_lossy), id]).to_string();
    blake3::hash(all.as_bytes()).to_hex().to_string()
}

/// The bindings of one user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sessions {
    file: PathBuf,
}

impl Sessions {
    /// The bindings that are kept in this directory.
    #[must_use]
    pub fn new(state_dir: &Path) -> Self {
        Self {
            file: state_dir.join("sessions.json"),
        }
    }

    /// The id that the client gave this process, if it did.
    pub(crate) fn id(env: impl Fn(&str) -> Option<String>) -> Option<String> {
        let variables = peerbus_agents::ALL.iter();
        let mut variables = variables.filter_map(|agent| agent.session_variable);
        variables.find_map(|variable| env(variable).filter(|id| is_id(id)))
    }

    /// The name of a session, if it has one.
    #[must_use]
    pub fn name_of(&self, id: &str) -> Option<PeerName> {
        let bindings = self.read();
        let (_, name) = bindings.iter().find(|(bound, _)| bound == id)?;
        PeerName::parse(name).ok()
    }

    /// Binds a session to a name, unless it is bound and `replaces` says no to that name.
    ///
    /// # Errors
    ///
    /// When the file cannot be locked, or not be written.
    pub fn bind(
        &self,
        id: &str,
        name: &PeerName,
        replaces: impl Fn(&str) -> bool,
    ) -> io::Result<()> {
        if !is_id(id) {
            return Ok(());
        }
        let dir = self.file.parent().unwrap_or(Path::new("."));
        peerbus_os::dir::create_private(dir)?;
        let _lock = lock(dir)?;
        let mut bindings = self.read();
        let bound = bindings.iter().position(|(bound, _)| bound == id);
        if let Some((_, other)) = bound.and_then(|at| bindings.get(at))
            && (other == name.as_str() || !replaces(other))
        {
            return Ok(());
        }
        bindings.retain(|(bound, _)| bound != id);
        bindings.push((id.to_owned(), name.as_str().to_owned()));
        let old = bindings.len().saturating_sub(BINDINGS_MAX);
        self.write(&bindings[old..])
    }

    /// What is in the file. One that is not there, or was damaged, binds nothing.
    fn read(&self) -> Vec<Binding> {
        let text = peerbus_os::file::read_small(&self.file, FILE_BYTES_MAX).unwrap_or_default();
        let file: Value = serde_json::from_str(&text).unwrap_or_default();
        let sessions = file["sessions"].as_array().map(Vec::as_slice);
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let pair = |one: &Value| text(&one[0]).zip(text(&one[1]));
        sessions
            .unwrap_or_default()
            .iter()
            .filter_map(pair)
            .collect()
    }

    fn write(&self, bindings: &[Binding]) -> io::Result<()> {
        let new = self.file.with_extension("json.new");
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = peerbus_os::file::create_private(&new)?;
        let text = serde_json::json!({ "sessions": bindings }).to_string();
        file.write_all(text.as_bytes())?;
        drop(file);
        fs::rename(&new, &self.file)
    }
}

fn is_id(id: &str) -> bool {
    (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic())
}

/// Locks a directory until the file is dropped. Where directories cannot be opened the last writer
/// wins.
pub(crate) fn lock(dir: &Path) -> io::Result<Option<File>> {
    let Ok(dir) = File::open(dir) else {
        return Ok(None);
    };
    for _ in 0..LOCK_TRIES {
        match dir.try_lock() {
            Ok(()) => return Ok(Some(dir)),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::Error::other(
        "another process keeps its directory locked",
    ))
}

/// The bindings of this process's session.
#[derive(Debug)]
pub(crate) struct Binder {
    sessions: Sessions,
    /// The session's present id.
    own: Option<Own>,
}

#[derive(Debug)]
struct Own {
    id: String,
    /// What this process has bound it to.
    bound: Option<String>,
    /// The host says that the session has this process's name now, whatever it had.
    takes_over: bool,
}

impl Binder {
    pub(crate) fn new(sessions: Sessions) -> Self {
        let own = None;
        Self { sessions, own }
    }

    /// The name of a session.
    pub(crate) fn name_of(&self, id: &str) -> Option<PeerName> {
        self.sessions.name_of(id)
    }

    /// Whether this process is known to serve the session.
    pub(crate) fn serves(&self, id: &str) -> bool {
        self.own.as_ref().is_some_and(|own| own.id == id)
    }

    /// This process serves the session `id`.
    pub(crate) fn add(&mut self, id: &str, takes_over: bool) {
        self.own = Some(Own {
            id: id.to_owned(),
            bound: None,
            takes_over,
        });
    }

    /// The process is registered under this name: its session is to find it again. A name that the
    /// session had and that another process has now stays the session's.
    ///
    /// # Errors
    ///
    /// When it cannot be written; it is not tried again.
    pub(crate) fn registered(&mut self, name: &PeerName) -> io::Result<()> {
        let Some(own) = &mut self.own else {
            return Ok(());
        };
        if own.bound.as_deref() == Some(name.as_str()) {
            return Ok(());
        }
        let (before, takes_over) = (own.bound.take(), own.takes_over);
        let replaces = |other: &str| takes_over || before.as_deref() == Some(other);
        let bound = self.sessions.bind(&own.id, name, replaces);
        own.bound = Some(name.as_str().to_owned());
        bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> PeerName {
        PeerName::parse(text).unwrap()
    }

    #[test]
    fn a_session_finds_its_name_again() {
        let dir = tempfile::tempdir().unwrap();
        let sessions = Sessions::new(&dir.path().join("state"));
        assert_eq!(sessions.name_of("s1"), None);
        let always = |_: &str| true;
        sessions.bind("s1", &name("wild-wasp-3kx"), always).unwrap();
        sessions.bind("s2", &name("tame-toad-7yz"), always).unwrap();
        sessions.bind("s1", &name("bob"), |_| false).unwrap();
        assert_eq!(sessions.name_of("s1"), Some(name("wild-wasp-3kx")));
        sessions.bind("s1", &name("bob"), always).unwrap();
        assert_eq!(sessions.name_of("s1"), Some(name("bob")));
        assert_eq!(sessions.name_of("s2"), Some(name("tame-toad-7yz")));
        let files: Vec<_> = fs::read_dir(dir.path().join("state")).unwrap().collect();
        assert_eq!(files.len(), 1, "nothing else is left");
        let metadata = fs::metadata(&sessions.file).unwrap();
        assert_eq!(peerbus_os::file::exposed_mode(&metadata), None);
    }

    #[test]
    fn an_id_that_agents_count_is_of_one_agent_in_one_directory() {
        let [here, there] = ["/here", "/there"].map(|dir| Some(Path::new(dir)));
        let own = id_in("gemini", here, "s1");
        assert!(is_id(&own));
        assert_eq!(own, id_in("gemini", here, "s1"));
        for other in [
            id_in("kimi", here, "s1"),
            id_in("gemini", there, "s1"),
            id_in("gemini", None, "s1"),
            id_in("gemini", here, "s2"),
        ] {
            assert_ne!(own, other);
        }
        assert!(is_id(&id_in("gemini", here, &"é".repeat(500))));
    }

    #[test]
    fn the_bindings_are_bounded_and_the_oldest_go() {
        let dir = tempfile::tempdir().unwrap();
        let sessions = Sessions::new(dir.path());
        let all: Vec<_> = (0..BINDINGS_MAX + 5)
            .map(|n| (format!("s{n}"), format!("name-{n}")))
            .collect();
        sessions.write(&all).unwrap();
        sessions.bind("new", &name("bob"), |_| true).unwrap();
        assert_eq!(sessions.read().len(), BINDINGS_MAX);
        assert_eq!(sessions.name_of("s5"), None);
        assert_eq!(sessions.name_of("s6"), Some(name("name-6")));
        assert_eq!(sessions.name_of("new"), Some(name("bob")));
    }

    #[test]
    fn a_damaged_file_binds_nothing_and_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let sessions = Sessions::new(dir.path());
        for damage in ["", "{", "[]", r#"{"sessions":[["s1"],["s1","a b"],7]}"#] {
            fs::write(&sessions.file, damage).unwrap();
            assert_eq!(sessions.name_of("s1"), None, "{damage}");
        }
        sessions.bind("s1", &name("bob"), |_| true).unwrap();
        assert_eq!(sessions.name_of("s1"), Some(name("bob")));
    }

    #[test]
    fn many_processes_bind_at_once_and_none_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let sessions = Sessions::new(dir.path());
        std::thread::scope(|scope| {
            for n in 0..8 {
                let sessions = &sessions;
                scope.spawn(move || {
                    let name = name(&format!("name-{n}"));
                    sessions.bind(&format!("s{n}"), &name, |_| true).unwrap();
                });
            }
        });
        for n in 0..8 {
            let found = sessions.name_of(&format!("s{n}"));
            assert_eq!(found, Some(name(&format!("name-{n}"))));
        }
    }

    #[test]
    fn the_id_is_the_one_of_the_client() {
        let env =
            |variable: &str| (variable == "QWEN_CODE_SESSION_ID").then(|| "5f0c-11".to_owned());
        assert_eq!(Sessions::id(env).as_deref(), Some("5f0c-11"));
        assert_eq!(Sessions::id(|_| Some("two words".into())), None);
    }
}
