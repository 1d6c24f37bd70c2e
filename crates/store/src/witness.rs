//! The witness file of a database: read at the start, and written behind the commits by a thread
//! of its own, so that no commit waits for it.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use peerbus_core::audit::{AuditKey, ChainHead, Hash};
use peerbus_core::witness::{Missing, Witness};
use peerbus_os::file;
use peerbus_os::sync::lock;
use peerbus_wire::Mark;
use rusqlite::Connection;

use crate::{files, read};

/// How often it is written at most.
const PAUSE: Duration = Duration::from_secs(1);

/// The witness file of the database at `db`.
pub(crate) fn path(db: &Path) -> PathBuf {
    files::beside(db, ".witness")
}

/// The text of the witness of the database at `db`, if it has one.
pub(crate) fn text(db: &Path) -> io::Result<Option<String>> {
    match files::read(&path(db)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(bytes) => String::from_utf8(bytes)
            .map(Some)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is no text")),
    }
}

/// The witness that such a text is; `Err` says why it is of no use.
pub(crate) fn decode(
    key: &AuditKey,
    text: &io::Result<Option<String>>,
) -> Result<Option<Witness>, String> {
    let text = text.as_ref().map_err(ToString::to_string)?;
    let witness = text.as_deref().map(|text| Witness::decode(key, text));
    witness.transpose().map_err(|error| error.to_string())
}

/// What the witness saw and the database has not.
pub(crate) fn missing(
    db: &Connection,
    head: &ChainHead,
    witness: &Witness,
) -> rusqlite::Result<Option<Missing>> {
    let found = "SELECT hash FROM audit WHERE number = ?1";
    let found: Option<Hash> = read::one(db, found, [read::bound(witness.blocks)])?;
    let last_ms = "SELECT at_ms FROM audit ORDER BY number DESC LIMIT 1";
    let last_ms = read::one(db, last_ms, [])?;
    Ok(witness.missing_in(head, found.as_ref(), last_ms.unwrap_or(0)))
}

/// The witness of an open database, for those who tell or acknowledge what it saw.
#[derive(Debug, Clone)]
pub struct WitnessFile(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    db: PathBuf,
    key: AuditKey,
    /// Held while the file is written, so that the newest state stands there in the end.
    file: Mutex<()>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    witness: Witness,
    /// The file says less.
    behind: bool,
    stop: bool,
}

impl WitnessFile {
    /// The database, without symbolic links.
    #[must_use]
    pub fn database(&self) -> &Path {
        &self.0.db
    }

    /// What was durable once, is not in the database, and was not acknowledged.
    #[must_use]
    pub fn missing(&self) -> Option<Missing> {
        self.0.state().witness.missing
    }

    /// Tells the life of the database apart from others.
    #[must_use]
    pub fn life(&self) -> Option<Mark> {
        self.0.state().witness.life.clone()
    }

    /// Takes a loss as known to the operator, and gives it.
    ///
    /// # Errors
    ///
    /// When the file cannot be written; the loss stays told then.
    pub fn acknowledge(&self) -> io::Result<Option<Missing>> {
        let _file = lock(&self.0.file);
        let mut acknowledged = self.0.state().witness.clone();
        let Some(missing) = acknowledged.missing.take() else {
            return Ok(None);
        };
        acknowledged.epoch += 1;
        self.0.write(acknowledged.clone())?;
        let mut state = self.0.state();
        (state.witness.missing, state.witness.epoch) = (None, acknowledged.epoch);
        drop(state);
        Ok(Some(missing))
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Replaces the file. Not synced: after a power cut it is an older one, or unreadable, and never
    /// ahead of the database, whose commit was synced before.
    fn write(&self, mut witness: Witness) -> io::Result<()> {
        witness.at_ms = wall_ms();
        let path = path(&self.db);
        let fresh = files::beside(&path, ".new");
        match fs::remove_file(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        file::create_private(&fresh)?.write_all(witness.encode(&self.key).as_bytes())?;
        fs::rename(&fresh, &path)
    }

    /// Writes what changes until it is told to stop, and what changed before that.
    fn follow(&self) {
        let mut state = self.state();
        let mut warned = false;
        loop {
            while !state.behind && !state.stop {
                state = self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            if !state.behind {
                return;
            }
            drop(state);
            let file = lock(&self.file);
            let witness = {
                let mut state = self.state();
                state.behind = false;
                state.witness.clone()
            };
            let written = self.write(witness);
            drop(file);
            if let (Err(error), false) = (&written, warned) {
                let path = path(&self.db);
                tracing::warn!(path = %path.display(), %error, "the witness cannot be written");
            }
            warned = written.is_err();
            let paused = self
                .changed
                .wait_timeout_while(self.state(), PAUSE, |state| !state.stop);
            state = paused.unwrap_or_else(PoisonError::into_inner).0;
            state.behind |= warned && !state.stop;
        }
    }
}

/// Keeps the witness of an open database. When dropped it has written down what it was told.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) file: WitnessFile,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Compares the database with its witness, warns of what is missing, and goes on from there.
    pub(crate) fn start(
        db: &Connection,
        path: &Path,
        key: &AuditKey,
        head: &ChainHead,
    ) -> rusqlite::Result<Self> {
        let mut witness = Witness::of(head, wall_ms());
        match decode(key, &text(path)) {
            Ok(Some(found)) => {
                witness.epoch = found.epoch;
                witness.missing = missing(db, head, &found)?;
                witness.life = found.life.filter(|_| witness.missing == found.missing);
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(
                path = %self::path(path).display(),
                %error,
                "the witness is of no use, and is made anew: whether the database has lost \
                 something cannot be known"
            ),
        }
        // Random: two databases that were brought back from one backup are two.
        let another = || Mark::parse(&format!("{:032x}", rand::random::<u128>()));
        witness.life = witness.life.or_else(another);
        if let Some(missing) = witness.missing {
            tracing::error!(
                database = %path.display(),
                "{missing}: what was accepted or acked in them is not known to this broker; put \
                 the files back if you have them, or run `peerbus audit acknowledge`"
            );
        }
        let file = WitnessFile(Arc::new(Shared {
            db: path.to_owned(),
            key: key.clone(),
            file: Mutex::default(),
            state: Mutex::new(State {
                witness,
                behind: true,
                stop: false,
            }),
            changed: Condvar::new(),
        }));
        let shared = Arc::clone(&file.0);
        let thread = std::thread::Builder::new()
            .name("peerbus-witness".into())
            .spawn(move || shared.follow());
        if let Err(error) = &thread {
            tracing::warn!(%error, "no witness is kept: its thread cannot be started");
        }
        Ok(Self {
            file,
            thread: thread.ok(),
        })
    }

    /// The file, for others.
    /// The chain that ends so is durable.
    pub(crate) fn note(&self, blocks: u64, hash: Hash) {
        let shared = &self.file.0;
        let mut state = shared.state();
        (state.witness.blocks, state.witness.hash) = (blocks, hash);
        if !std::mem::replace(&mut state.behind, true) {
            shared.changed.notify_one();
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.file.0.state().stop = true;
        self.file.0.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic there has been told, and ends the process.
            let _ = thread.join();
        }
    }
}

fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, peerbus_os::clock::millis)
}
