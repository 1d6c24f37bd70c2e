//! Which session of Claude Code this is, and what it is doing.
//!
//! The client keeps a file about each of its running processes (seen with 2.1.280 and 2.1.330;
//! undocumented). Everything in it is optional here, and untrusted. It is read anew each time: after
//! `/clear` the session has another id, while our environment keeps the old one. 2.1.114 writes it
//! 0.3 s after it starts its servers, for 0.2 s after a resume with the id of a session that is
//! never used, and leaves it alone on `/clear`.

mod facts;
mod interrupt;
mod surroundings;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use peerbus_adapter::inbox::SocketToken;
use peerbus_adapter::mailbox::{Activity, BoxFuture, SessionSource, Snapshot};
use peerbus_adapter::transcript::Places;
use peerbus_agents::project_slug;
use peerbus_os::sync::lock;
use peerbus_os::watch::DirectoryWatch;
use tokio::sync::{Mutex as AsyncMutex, Notify, broadcast, watch as watch_channel};
use tokio::time::Instant;

pub use facts::SessionFacts;
pub(crate) use facts::SessionFile;
pub use peerbus_os::process::Process;
pub use surroundings::ClaudeSurroundings;
pub(crate) use surroundings::ancestors;

/// Longest part of a project directory's name that the client derives from the project's path.
const SLUG_MAX: usize = 200;
/// So many ids of the session are remembered.
const IDS_MAX: usize = 64;
/// So many texts wait for a link.
const TEXTS: usize = 16;
/// So long a hook's word on what the session does is believed, when nothing else is heard.
const SAID_FOR: Duration = Duration::from_secs(600);

/// The session that this adapter belongs to. Clones share what is known.
#[derive(Debug, Clone)]
pub struct ClaudeSession {
    around: Arc<ClaudeSurroundings>,
    known: Arc<Mutex<Known>>,
    changed: Arc<Notify>,
    /// Somebody wishes that the turn that is under way ends with its next tool.
    ends_turn: Arc<watch_channel::Sender<bool>>,
    /// Texts for our module.
    texts: broadcast::Sender<Arc<str>>,
    /// On the client's files about its processes.
    watch: Arc<AsyncMutex<DirectoryWatch>>,
}

#[derive(Debug, Default)]
struct Known {
    told: SessionFacts,
    /// The session's id. Whoever says something new is right: the file may be behind the hooks
    /// (2.1.114 leaves it as it is on `/clear`), or there may be no hooks.
    id: Option<String>,
    /// The id that stood in the client's file at the last look.
    in_file: Option<String>,
    /// The ids that hooks told, the last one at the end.
    heard: Vec<String>,
    /// What a hook said last of what the session does.
    said: Option<Said>,
    /// A hook of the session has spoken.
    hooked: bool,
    /// So many links to our module in the client are open.
    links: usize,
}

/// What a hook said of what the session does.
#[derive(Debug, Clone, Copy)]
struct Said {
    activity: Activity,
    /// What the client's file said then. The file is a little behind the hook.
    in_file: Option<Activity>,
    at: Instant,
}

impl ClaudeSession {
    /// The session that these surroundings tell of.
    #[must_use]
    pub fn new(around: ClaudeSurroundings) -> Self {
        let known = Known {
            id: around.session_id.clone(),
            ..Known::default()
        };
        Self {
            around: Arc::new(around),
            known: Arc::new(Mutex::new(known)),
            changed: Arc::default(),
            ends_turn: Arc::default(),
            texts: broadcast::Sender::new(TEXTS),
            watch: Arc::new(AsyncMutex::default()),
        }
    }

    /// What a hook says of the session. Members that are `None` say nothing. False: the hook is
    /// another session's, an agent's inside this one, and nothing of it is believed.
    #[must_use]
    pub fn told(&self, mut facts: SessionFacts) -> bool {
        facts.transcript = facts.transcript.filter(|path| self.is_transcript(path));
        let file = self.file().unwrap_or_default();
        let mut known = lock(&self.known);
        known.read(file.id);
        let believed = known.told(facts);
        known.hooked |= believed;
        drop(known);
        if believed {
            self.look_again();
        }
        believed
    }

    /// Whether the client can keep a transcript there. Its projects may be linked to elsewhere.
    fn is_transcript(&self, path: &Path) -> bool {
        let dir = self.around.config_dir.as_deref();
        let below = dir.is_some_and(|dir| {
            facts::is_below(path, dir) || facts::is_below(path, &dir.join("projects"))
        });
        if !below {
            tracing::debug!("a hook named a transcript outside the client's directory");
        }
        below
    }

    /// The session's id, if the client tells it.
    #[must_use]
    pub fn id(&self) -> Option<String> {
        self.snapshot().id
    }

    /// The process of the client: the nearest ancestor that it keeps a file about, else our parent.
    #[must_use]
    pub fn client(&self) -> Option<u32> {
        let ancestors = &self.around.ancestors;
        let known = self.files().and_then(|sessions| {
            let mut ancestors = ancestors.iter();
            ancestors.find(|process| SessionFile::read(&sessions, process).is_some())
        });
        known.or(ancestors.first()).map(|process| process.id)
    }

    /// A hook shows what the session does. That counts until the client's file says something new.
    pub(crate) fn does(&self, activity: Activity) {
        let said = Said {
            activity,
            in_file: self.file().and_then(|file| file.activity),
            at: Instant::now(),
        };
        lock(&self.known).said = Some(said);
    }

    /// The directories whose settings hold: the user's and the project's.
    pub(crate) fn settled_in(&self) -> Option<(Option<&Path>, &Path)> {
        let project = self.around.project.as_deref()?;
        Some((self.around.config_dir.as_deref(), project))
    }

    /// Whether the client asks its user as its rules say, as far as a hook has told.
    pub(crate) fn minds_rules(&self) -> bool {
        lock(&self.known).told.mode.as_deref() == Some("default")
    }

    /// Whether our module in the client is linked.
    pub(crate) fn is_linked(&self) -> bool {
        lock(&self.known).links > 0
    }

    /// Texts that the module is to show, for each link.
    pub(crate) fn texts(&self) -> &broadcast::Sender<Arc<str>> {
        &self.texts
    }

    /// It is, until this is dropped.
    pub(crate) fn linked(&self) -> Linked {
        lock(&self.known).links += 1;
        self.look_again();
        Linked(self.clone())
    }

    /// Something happens that can change what the session does or what its transcript shows.
    pub fn look_again(&self) {
        self.changed.notify_one();
    }

    /// The socket at which the session takes messages. Our environment is as old as this process.
    pub(crate) fn socket(&self) -> Option<PathBuf> {
        let in_file = self.file().and_then(|file| file.socket);
        in_file.or_else(|| self.around.socket.clone())
    }

    /// The credential for a socket. It belongs to the one that came with it, and goes to no other.
    pub(crate) fn token_for(&self, socket: &Path) -> Option<&SocketToken> {
        let same = self.around.socket.as_deref() == Some(socket);
        self.around.token.as_ref().filter(|_| same)
    }

    /// Where the client keeps files about its processes.
    fn files(&self) -> Option<PathBuf> {
        Some(self.around.config_dir.as_ref()?.join("sessions"))
    }

    fn file(&self) -> Option<SessionFile> {
        let sessions = self.files()?;
        let mut ancestors = self.around.ancestors.iter();
        ancestors.find_map(|process| SessionFile::read(&sessions, process))
    }
}

/// A link to our module is open.
pub(crate) struct Linked(ClaudeSession);

impl Drop for Linked {
    fn drop(&mut self) {
        lock(&self.0.known).links -= 1;
        self.0.look_again();
    }
}

impl SessionSource for ClaudeSession {
    fn snapshot(&self) -> Snapshot {
        let file = self.file().unwrap_or_default();
        let mut known = lock(&self.known);
        known.read(file.id);
        let activity = known.activity(file.activity);
        // What is idle has no turn to end, and the next one is not meant.
        if activity == Some(Activity::Idle) {
            self.turn_is_over();
        }
        Snapshot {
            id: known.id.clone(),
            activity,
            cwd: file
                .cwd
                .or_else(|| known.told.cwd.clone())
                .or_else(|| self.around.project.clone()),
            transcript: known.told.transcript.clone(),
        }
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        let is_ours = |name: &str| {
            let id = name.strip_suffix(".json").and_then(|id| id.parse().ok());
            let mut ancestors = self.around.ancestors.iter();
            id.is_some_and(|id: u32| ancestors.any(|process| process.id == id))
        };
        Box::pin(async move {
            let written = async {
                let mut watch = self.watch.lock().await;
                if let Some(dir) = self.files() {
                    // One that is not there yet may be there when somebody waits again.
                    watch.open(&dir);
                }
                watch.changed(is_ours).await;
            };
            tokio::select! {
                () = self.changed.notified() => {}
                () = written => {}
            }
        })
    }
}

impl Known {
    /// A hook tells something. Whether it is the session's.
    fn told(&mut self, news: SessionFacts) -> bool {
        if !self.has(&news) {
            return false;
        }
        if let Some(id) = self.told.learn(news) {
            self.heard.retain(|heard| *heard != id);
            self.heard.push(id.clone());
            if self.heard.len() > IDS_MAX {
                self.heard.remove(0);
            }
            self.id = Some(id);
        }
        true
    }

    /// Whether a hook is the session's: the first one is (what the environment and the file said
    /// before may be out of date), and so is each whose id the session has, had or gets. An id
    /// stays the session's, or an agent inside it that resumes another would shut it out.
    fn has(&self, news: &SessionFacts) -> bool {
        let Some(id) = &news.session_id else {
            return true;
        };
        news.renamed
            || self.heard.is_empty()
            || self.heard.contains(id)
            || self.id.as_ref() == Some(id)
    }

    /// What the session does, when the client's file says this. `None`: nothing was ever heard.
    fn activity(&mut self, in_file: Option<Activity>) -> Option<Activity> {
        match self.said {
            Some(said) if said.in_file != in_file => {
                self.said = None;
                in_file.or(Some(Activity::Unknown))
            }
            Some(said) if said.at.elapsed() < SAID_FOR => Some(said.activity),
            Some(_) => in_file.or(Some(Activity::Unknown)),
            None => in_file,
        }
    }

    fn read(&mut self, id: Option<String>) {
        if id.is_some() && id != self.in_file {
            self.in_file.clone_from(&id);
            self.id = id;
        }
    }
}

/// Where to look for the session's transcripts, below the client's directory.
pub(crate) fn places(session: &ClaudeSession, snapshot: &Snapshot) -> Places {
    let mut places = Places {
        id: snapshot.id.clone(),
        directories: Vec::new(),
        file: snapshot.transcript.clone(),
    };
    if let Some(dir) = snapshot.transcript.as_deref().and_then(Path::parent) {
        places.directories.push(dir.to_owned());
    }
    let config_dir = session.around.config_dir.as_ref();
    let projects = config_dir.map(|dir| dir.join("projects"));
    if let (Some(projects), Some(cwd)) = (projects, &snapshot.cwd) {
        let real = std::fs::canonicalize(cwd).unwrap_or_else(|_| cwd.clone());
        for dir in project_directories(&projects, &project_slug(&real)) {
            if !places.directories.contains(&dir) {
                places.directories.push(dir);
            }
        }
    }
    places
}

/// A long name is cut, and a hash that is documented nowhere put behind.
fn project_directories(projects: &Path, slug: &str) -> Vec<PathBuf> {
    let Some(beginning) = slug.get(..SLUG_MAX).filter(|_| slug.len() > SLUG_MAX) else {
        return vec![projects.join(slug)];
    };
    let beginning = format!("{beginning}-");
    let entries = std::fs::read_dir(projects).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&beginning))
        .map(|entry| entry.path())
        .collect()
}

#[cfg(test)]
mod tests;
