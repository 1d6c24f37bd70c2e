//! How an adapter describes its session to peers.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use peerbus_adapter::Bus;
use peerbus_adapter::wake::{Activity, Policy};
use serde_json::{Map, Value};

use crate::session::{Client, Profile};

/// Longest text of a member, in characters.
const TEXT_CHARS: usize = 80;
/// More than a file that names a branch or a directory has.
const FILE_BYTES_MAX: u64 = 4_096;

/// Members that are left out, in this order, when the description is too long.
const EXPENDABLE: [&str; 4] = ["branch", "project", "version", "client"];

/// How a session describes itself, as it changes. Peers are told nothing before the client has
/// introduced itself.
#[derive(Debug)]
pub(crate) struct About {
    /// Who is here; empty until that is known.
    client: Map<String, Value>,
    /// How it is.
    state: Map<String, Value>,
    /// What else is said of it.
    more: Map<String, Value>,
}

impl About {
    pub(crate) fn new(profile: &Profile, policy: Policy) -> Self {
        let mut state = Map::new();
        let ack = match policy {
            Policy::Auto => "auto",
            Policy::Seen => "seen",
            Policy::Pushed => "pushed",
        };
        state.insert("ack".into(), ack.into());
        // Where mail is drained, reading it is the evidence.
        state.insert("evidence".into(), profile.drain.into());
        // Peers can tell a session that nothing wakes from one of which that is not known.
        state.insert("wake".into(), Value::Array(Vec::new()));
        Self {
            client: Map::new(),
            state,
            more: Map::new(),
        }
    }

    /// The client introduced itself.
    pub(crate) fn met(&mut self, bus: &Bus, client: Map<String, Value>) {
        self.client = client;
        self.tell(bus);
    }

    /// The waking paths that were probed and work.
    pub(crate) fn set_wake(&mut self, bus: &Bus, words: Vec<&'static str>) {
        self.set(bus, "wake", words.into());
    }

    pub(crate) fn set_activity(&mut self, bus: &Bus, activity: Activity) {
        let word = match activity {
            Activity::Idle => "idle".into(),
            Activity::Busy => "busy".into(),
            Activity::Waiting => "waiting".into(),
            Activity::Unknown => Value::Null,
        };
        self.set(bus, "activity", word);
    }

    /// Whether an answer of the model would be noticed.
    pub(crate) fn set_evidence(&mut self, bus: &Bus, readable: bool) {
        self.set(bus, "evidence", readable.into());
    }

    /// Sets another member; `null` removes it.
    pub(crate) fn describe(&mut self, bus: &Bus, key: &str, value: Value) {
        if put(&mut self.more, key, value) {
            self.tell(bus);
        }
    }

    fn set(&mut self, bus: &Bus, key: &str, value: Value) {
        if put(&mut self.state, key, value) {
            self.tell(bus);
        }
    }

    fn tell(&self, bus: &Bus) {
        if self.client.is_empty() {
            return;
        }
        let mut about = self.client.clone();
        about.extend(self.state.clone());
        let mut whole = about.clone();
        whole.extend(self.more.clone());
        // Too large: a project's path can be. What is short says enough.
        let mut told = bus.set_presence(&whole) || bus.set_presence(&about);
        for member in EXPENDABLE {
            if told {
                return;
            }
            about.remove(member);
            told = bus.set_presence(&about);
        }
    }
}

/// Sets or removes a member; whether that changed anything.
fn put(members: &mut Map<String, Value>, key: &str, value: Value) -> bool {
    if value.is_null() {
        return members.remove(key).is_some();
    }
    let changed = members.get(key) != Some(&value);
    members.insert(key.into(), value);
    changed
}

/// Who is here: adapter, client, project, branch.
pub(crate) fn of(profile: &Profile, client: &Client) -> Map<String, Value> {
    let mut about = Map::new();
    let mut put = |key: &str, text: &str| {
        if !text.is_empty() {
            about.insert(key.into(), Value::from(short(text)));
        }
    };
    put("adapter", profile.kind);
    put("client", &client.name);
    put("version", &client.version);
    if let Some(root) = project_root() {
        put(
            "project",
            &root.file_name().unwrap_or_default().to_string_lossy(),
        );
        put("branch", &branch(&root).unwrap_or_default());
    }
    about
}

/// Clients start us in the project; Claude Code also says where it is.
fn project_root() -> Option<PathBuf> {
    let said = std::env::var_os("CLAUDE_PROJECT_DIR").map(PathBuf::from);
    said.filter(|path| path.is_absolute())
        .or_else(|| std::env::current_dir().ok())
}

/// The checked-out branch, read from the repository's files (gitrepository-layout(5)).
fn branch(root: &Path) -> Option<String> {
    let dot_git = root
        .ancestors()
        .map(|dir| dir.join(".git"))
        .find(|path| path.exists())?;
    let dir = if dot_git.is_file() {
        let link = read_small(&dot_git)?;
        dot_git.parent()?.join(link.strip_prefix("gitdir:")?.trim())
    } else {
        dot_git
    };
    let head = read_small(&dir.join("HEAD"))?;
    head.trim()
        .strip_prefix("ref: refs/heads/")
        .map(str::to_owned)
}

/// Reads a regular file; anything else could make the session's start wait.
fn read_small(path: &Path) -> Option<String> {
    let metadata = std::fs::metadata(path).ok()?;
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        return None;
    }
    let mut text = String::new();
    let file = std::fs::File::open(path).ok()?;
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

fn short(text: &str) -> String {
    if text.chars().count() <= TEXT_CHARS {
        return text.to_owned();
    }
    text.chars().take(TEXT_CHARS - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_branch_is_found_in_a_clone_and_in_a_worktree() {
        let dir = tempfile::tempdir().unwrap();
        let (clone, tree) = (dir.path().join("clone"), dir.path().join("tree"));
        std::fs::create_dir_all(clone.join(".git/worktrees/tree")).unwrap();
        std::fs::create_dir_all(clone.join("src")).unwrap();
        std::fs::create_dir_all(&tree).unwrap();
        std::fs::write(clone.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        std::fs::write(
            clone.join(".git/worktrees/tree/HEAD"),
            "ref: refs/heads/fix/x\n",
        )
        .unwrap();
        std::fs::write(tree.join(".git"), "gitdir: ../clone/.git/worktrees/tree\n").unwrap();
        assert_eq!(branch(&clone.join("src")).as_deref(), Some("main"));
        assert_eq!(branch(&tree).as_deref(), Some("fix/x"));
        std::fs::write(clone.join(".git/HEAD"), "0123456789abcdef\n").unwrap();
        assert_eq!(branch(&clone), None);
    }

    #[test]
    fn a_head_that_is_no_small_file_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let head = dir.path().join(".git/HEAD");
        std::fs::create_dir_all(&head).unwrap();
        assert_eq!(branch(dir.path()), None);
        std::fs::remove_dir(&head).unwrap();
        std::fs::write(&head, format!("ref: refs/heads/{}", "x".repeat(5_000))).unwrap();
        assert_eq!(branch(dir.path()), None);
        #[cfg(unix)]
        {
            std::fs::remove_file(&head).unwrap();
            std::os::unix::fs::symlink("/dev/zero", &head).unwrap();
            assert_eq!(branch(dir.path()), None, "it has no end");
        }
    }

    #[test]
    fn a_description_says_what_is_known() {
        let profile = Profile {
            kind: "cc",
            instructions: "",
            experimental: &[],
            drain: false,
        };
        let client = Client {
            name: "claude-code".into(),
            version: "v".repeat(200),
        };
        let about = of(&profile, &client);
        assert_eq!(about["adapter"], "cc");
        assert_eq!(about["client"], "claude-code");
        assert_eq!(
            about["version"].as_str().unwrap().chars().count(),
            TEXT_CHARS
        );
    }
}
