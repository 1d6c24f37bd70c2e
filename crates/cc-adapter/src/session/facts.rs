//! What others say of the session.

use std::path::{Component, Path, PathBuf};

use peerbus_adapter::mailbox::Activity;
use peerbus_agents::is_id;
use peerbus_os::process::Process;
use serde_json::{Map, Value};

/// More than the client writes about a session.
const FILE_BYTES_MAX: u64 = 65_536;
/// Longest path of a Unix socket (unix(7)), and of a file here.
const PATH_MAX: usize = 4_096;

/// What somebody says of the session. `None` says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionFacts {
    /// Its id.
    pub session_id: Option<String>,
    /// The file with its transcript.
    pub transcript: Option<PathBuf>,
    /// Its directory.
    pub cwd: Option<PathBuf>,
    /// The client's word for when it asks its user.
    pub mode: Option<String>,
    /// It was cleared or resumed, and may have this id for the first time.
    pub renamed: bool,
}

impl SessionFacts {
    /// Takes over what is new, and gives the id if there is one.
    pub(super) fn learn(&mut self, news: Self) -> Option<String> {
        let plain = |path: &PathBuf| path.is_absolute();
        let id = news.session_id.filter(|id| is_id(id));
        self.session_id = id.clone().or(self.session_id.take());
        let transcript = news.transcript.filter(plain);
        self.transcript = transcript.or(self.transcript.take());
        self.mode = news.mode.or(self.mode.take());
        self.cwd = news.cwd.filter(plain).or(self.cwd.take());
        id
    }
}

/// What the client's own file says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionFile {
    pub(super) id: Option<String>,
    pub(super) cwd: Option<PathBuf>,
    pub(super) socket: Option<PathBuf>,
    pub(super) activity: Option<Activity>,
}

impl SessionFile {
    /// Reads the file about a process. `None`: there is none, or it is about an earlier process with
    /// that number.
    pub(crate) fn read(sessions: &Path, process: &Process) -> Option<Self> {
        let text = peerbus_os::file::read_small(
            &sessions.join(format!("{}.json", process.id)),
            FILE_BYTES_MAX,
        )?;
        let members: Map<String, Value> = serde_json::from_str(&text).ok()?;
        let started = members.get("procStart").and_then(Value::as_str);
        let ours = process.started.as_deref();
        if let (Some(started), Some(ours)) = (started, ours)
            && started != ours
        {
            return None;
        }
        Some(Self::of(&members))
    }

    fn of(members: &Map<String, Value>) -> Self {
        let text = |key: &str| members.get(key).and_then(Value::as_str);
        let path = |key: &str| {
            text(key)
                .filter(|path| path.len() <= PATH_MAX)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        Self {
            id: text("sessionId").filter(|id| is_id(id)).map(str::to_owned),
            cwd: path("cwd"),
            socket: path("messagingSocketPath"),
            activity: text("status").map(activity),
        }
    }
}

/// Whether a path leads below a directory, links followed as far as it exists.
pub(super) fn is_below(path: &Path, dir: &Path) -> bool {
    let plain = |part| !matches!(part, Component::ParentDir);
    let real = path.ancestors().find_map(|part| part.canonicalize().ok());
    path.components().all(plain)
        && real.is_some_and(|real| dir.canonicalize().is_ok_and(|dir| real.starts_with(dir)))
}

fn activity(status: &str) -> Activity {
    match status {
        "idle" => Activity::Idle,
        "busy" => Activity::Busy,
        "waiting" => Activity::Waiting,
        _ => Activity::Unknown,
    }
}
