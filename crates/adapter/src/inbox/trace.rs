//! What an adapter that is killed leaves in a directory of its client's, where files of others have
//! names of the same form. A note in our own directory tells which one is ours.

use std::io::Result;
use std::path::{Path, PathBuf};

use peerbus_os as os;
use peerbus_os::file::Version;
use serde::{Deserialize, Serialize};

/// How the names of notes end, after the number of the process.
const ENDING: &str = ".reply";
/// More than a note has.
const NOTE_BYTES_MAX: u64 = 8_192;

/// A note that a socket is this process's, removed when dropped.
#[derive(Debug)]
pub(super) struct Trace(PathBuf);

/// What a note says: where the socket is, and which of all that can be there.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    path: PathBuf,
    version: Version,
}

impl Trace {
    /// Notes in `dir` that the socket at `path` is ours.
    pub(super) fn leave(dir: &Path, path: &Path) -> Result<Self> {
        let version = os::file::version(path);
        let path = path.to_owned();
        let note = serde_json::to_vec(&Note { path, version })?;
        let trace = Self(dir.join(format!("{}{ENDING}", std::process::id())));
        std::fs::write(&trace.0, note)?;
        Ok(trace)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // One that stays is swept by the next adapter.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Note {
    /// The very socket that the note is about is still there.
    fn holds(&self) -> bool {
        os::socket::is_socket(&self.path).is_ok_and(|is_socket| is_socket)
            && os::file::version(&self.path) == self.version
    }
}

/// Removes the sockets of adapters that were killed, and the notes about them.
pub(super) fn sweep(dir: &Path) {
    if !os::user::owns(dir) {
        return;
    }
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let adapter = name.to_str().and_then(|name| name.strip_suffix(ENDING));
        let gone = |adapter: &str| adapter.parse().is_ok_and(|pid| !os::process::exists(pid));
        if adapter.is_some_and(gone) && remove_socket(&entry.path()) {
            // Another adapter may have been faster.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Whether the note has served its purpose. Processes elsewhere have numbers of their own: while
/// somebody answers, it has not.
fn remove_socket(note: &Path) -> bool {
    let text = os::file::read_small(note, NOTE_BYTES_MAX).unwrap_or_default();
    let note = serde_json::from_str::<Note>(&text).ok();
    let Some(note) = note.filter(Note::holds) else {
        return true;
    };
    let refused = os::socket::is_listening(&note.path).is_ok_and(|listening| !listening);
    // A note stays as long as its socket.
    refused && std::fs::remove_file(&note.path).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use peerbus_test_support::socket::end;

    use super::*;

    /// Above any number that Linux gives to a process (`proc(5)`, pid_max).
    const NOBODY: u32 = 4_194_305;

    /// A socket of an adapter that was killed, and the note about it.
    fn killed(notes: &Path, path: &Path, number: u32) -> UnixListener {
        let listener = UnixListener::bind(path).unwrap();
        let trace = Trace::leave(notes, path).unwrap();
        let note = notes.join(format!("{number}{ENDING}"));
        std::fs::copy(&trace.0, note).unwrap();
        listener
    }

    fn left(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).unwrap().flatten();
        let name = |entry: std::fs::DirEntry| entry.file_name().into_string().unwrap();
        let mut names: Vec<String> = entries.map(name).collect();
        names.sort();
        names
    }

    #[test]
    fn a_killed_adapters_socket_goes_and_everybody_elses_stays() {
        let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [notes, sockets] = dirs.each_ref().map(|dir| dir.path());
        end(killed(notes, &sockets.join("1.sock"), NOBODY));
        // Another program's, as dead.
        end(UnixListener::bind(sockets.join("2.sock")).unwrap());
        // Another program's by now.
        let taken = sockets.join("3.sock");
        end(killed(notes, &taken, NOBODY + 1));
        std::fs::rename(&taken, sockets.join("3.moved")).unwrap();
        end(UnixListener::bind(&taken).unwrap());
        // A process elsewhere, whose number means nothing here.
        let _elsewhere = killed(notes, &sockets.join("4.sock"), NOBODY + 2);
        let alive = std::os::unix::process::parent_id();
        end(killed(notes, &sockets.join("5.sock"), alive));
        std::fs::write(notes.join(format!("{}{ENDING}", NOBODY + 3)), "[]").unwrap();

        sweep(notes);
        let others = ["2.sock", "3.moved", "3.sock", "4.sock", "5.sock"];
        assert_eq!(left(sockets), others);
        let mut noted = [alive, NOBODY + 2].map(|pid| format!("{pid}{ENDING}"));
        noted.sort();
        assert_eq!(left(notes), noted);
    }

    #[test]
    fn a_note_goes_with_its_adapter() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.sock");
        let _listener = UnixListener::bind(&path).unwrap();
        let trace = Trace::leave(dir.path(), &path).unwrap();
        assert_eq!(left(dir.path()).len(), 2);
        drop(trace);
        assert_eq!(left(dir.path()), ["1.sock"]);
    }
}
