//! What goes to stderr: at once, or through a queue that is bounded and rather loses lines than waits;
//! and such a queue for stdout.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use peerbus_os::sync::lock;
use rustix::event::{PollFd, PollFlags, poll};
use tracing_subscriber::EnvFilter;

use crate::demand::{LOG_BYTES_MAX, open_log, turn_log};

/// The writer's stack, in bytes: it formats a number at most.
const STACK_BYTES: usize = 64 * 1_024;

/// Where lines go instead of going out at once.
static QUEUE: OnceLock<Queue> = OnceLock::new();

/// Logs what passes the filter, a line for each event.
pub fn log(filter: EnvFilter) {
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Lines)
        // It would report a failed write to stderr, and panic when that fails, too.
        .log_internal_errors(false)
        .with_ansi(false)
        .with_target(false)
        .init();
}

/// From now on nobody waits for stderr: up to `bytes_max` bytes of lines wait for it, and at the end
/// no longer than `patience`.
pub fn queue(bytes_max: usize, patience: Duration) {
    // Without a descriptor to spare lines go out at once.
    if let Ok(stderr) = io::stderr().as_fd().try_clone_to_owned() {
        QUEUE.get_or_init(|| Queue::new(stderr.into(), "log line", bytes_max, patience));
    }
}

/// The same for lines on stdout.
///
/// # Errors
///
/// When there is no descriptor to spare.
pub fn stdout(bytes_max: usize, patience: Duration) -> io::Result<Queue> {
    let stdout = io::stdout().as_fd().try_clone_to_owned()?;
    Ok(Queue::new(stdout.into(), "line", bytes_max, patience))
}

/// From now on lines go to the end of a log, which begins anew when it is full; and so does whatever
/// else this process writes to stderr.
///
/// # Errors
///
/// When the log cannot be opened.
pub fn log_to(path: &Path) -> io::Result<()> {
    let log = open_log(path)?;
    let bytes = log.metadata()?.len();
    rustix::stdio::dup2_stderr(&log)?;
    if let Some(queue) = QUEUE.get() {
        let path = Some(path.to_owned());
        let sink = Sink {
            file: log,
            path,
            bytes,
        };
        *lock(&queue.shared.sink) = sink;
    }
    Ok(())
}

/// Writes lines, each with its line break. There is nobody to tell when that fails.
pub fn write(lines: &[u8]) {
    match QUEUE.get() {
        Some(queue) => queue.push(lines),
        None => {
            let _ = io::stderr().write_all(lines);
        }
    }
}

/// Takes the lines of `tracing`, one with each write.
struct Lines;

impl io::Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        write(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits a moment for what is queued to be written. Call before the process ends.
pub fn flush() {
    if let Some(queue) = QUEUE.get() {
        queue.flush();
    }
}

/// How many lines were lost since the start, because stderr was not read or could not be written.
#[must_use]
pub fn lost() -> u64 {
    QUEUE.get().map_or(0, Queue::lost)
}

/// Lines for a file that may take them slowly, late or never. Its thread starts with the first
/// line. Lines that find no room, or cannot be written, are counted, and their number is written
/// once the file takes lines again.
pub struct Queue {
    shared: Arc<Shared>,
    bytes_max: usize,
    patience: Duration,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    sink: Mutex<Sink>,
    /// What one of its lines is called.
    called: &'static str,
    /// Lines lost since the start.
    lost: AtomicU64,
    /// Whoever reads the file has gone.
    closed: AtomicBool,
}

/// Where lines go in the end.
struct Sink {
    file: File,
    /// Of a log, which has a bound: where it is, and how many bytes it has.
    path: Option<PathBuf>,
    bytes: u64,
}

#[derive(Default)]
struct State {
    /// Whole lines.
    waiting: Vec<u8>,
    /// Lines that found no room behind those that wait.
    lost: u64,
    /// The thread runs.
    started: bool,
    /// It writes what it took.
    writing: bool,
}

impl Queue {
    /// Makes a queue of at most `bytes_max` bytes (a first line always fits). At the end the last
    /// lines may take as long as `patience`.
    fn new(file: File, called: &'static str, bytes_max: usize, patience: Duration) -> Self {
        let shared = Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            sink: Mutex::new(Sink {
                file,
                path: None,
                bytes: 0,
            }),
            called,
            lost: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        };
        Self {
            shared: Arc::new(shared),
            bytes_max,
            patience,
        }
    }

    /// Queues lines, each with its line break. Never waits for the file.
    pub fn push(&self, lines: &[u8]) {
        let mut state = lock(&self.shared.state);
        let fits = state.waiting.len() + lines.len() <= self.bytes_max;
        if (fits || state.waiting.is_empty()) && self.is_started(&mut state) {
            state.waiting.extend_from_slice(lines);
            drop(state);
            self.shared.changed.notify_all();
        } else {
            let lost = count(lines);
            state.lost += lost;
            self.shared.lost.fetch_add(lost, Ordering::Relaxed);
        }
    }

    /// Whether whoever reads the lines has gone, as far as was noticed.
    pub fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Relaxed)
    }

    /// How many lines were lost since the start.
    fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }

    /// Starts the thread if need be. Whoever logs little or nothing has none.
    fn is_started(&self, state: &mut State) -> bool {
        if !state.started {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new()
                .name("peerbus-log".into())
                .stack_size(STACK_BYTES);
            state.started = thread.spawn(move || shared.write_all()).is_ok();
        }
        state.started
    }

    /// Waits until everything is written, at most as long as the last lines may take.
    pub fn flush(&self) {
        let busy = |state: &mut State| state.writing || !state.waiting.is_empty();
        let (state, changed) = (lock(&self.shared.state), &self.shared.changed);
        // What is not written by then is lost, and nobody is left to be told.
        let _ = changed.wait_timeout_while(state, self.patience, busy);
    }
}

impl Shared {
    /// Writes what comes, for as long as the process lives.
    fn write_all(&self) {
        let mut unsaid = 0;
        loop {
            let mut state = lock(&self.state);
            state.writing = false;
            self.changed.notify_all();
            let nothing = |state: &mut State| state.waiting.is_empty();
            let waited = self.changed.wait_while(state, nothing);
            state = waited.unwrap_or_else(PoisonError::into_inner);
            state.writing = true;
            let lines = std::mem::take(&mut state.waiting);
            let overflowed = std::mem::take(&mut state.lost);
            drop(state);
            self.write_lines(&lines, &mut unsaid);
            unsaid += overflowed;
            self.say_lost(&mut unsaid);
        }
    }

    /// Writes lines one by one: those that fail are lost, and the next are tried all the same.
    fn write_lines(&self, lines: &[u8], unsaid: &mut u64) {
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            self.say_lost(unsaid);
            if let Err(error) = self.write(line) {
                if error.kind() == io::ErrorKind::BrokenPipe {
                    self.closed.store(true, Ordering::Relaxed);
                }
                *unsaid += 1;
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Says how many lines are missing, once.
    fn say_lost(&self, unsaid: &mut u64) {
        if *unsaid > 0 {
            let plural = if *unsaid == 1 { " was" } else { "s were" };
            // A failed line may have been written in part.
            let called = self.called;
            let line = format!("\npeerbus: {unsaid} {called}{plural} lost here\n");
            if self.write(line.as_bytes()).is_ok() {
                *unsaid = 0;
            }
        }
    }

    fn write(&self, line: &[u8]) -> io::Result<()> {
        // Only the thread that writes, and the start of a log, take it.
        let mut sink = lock(&self.sink);
        sink.write(line)
    }
}

impl Sink {
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if let Some(path) = &self.path
            && self.bytes >= LOG_BYTES_MAX
            && let Ok(log) = turn_log(path)
        {
            // What a panic says may go to the log before this one.
            let _ = rustix::stdio::dup2_stderr(&log);
            (self.file, self.bytes) = (log, 0);
        }
        self.bytes += line.len() as u64;
        self.write_all(line)
    }

    fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        let mut file = &self.file;
        while !bytes.is_empty() {
            match file.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Another process that has this file open made it so.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut file = [PollFd::from_borrowed_fd(self.file.as_fd(), PollFlags::OUT)];
                    // If that fails, too, the next write says why.
                    let _ = poll(&mut file, None);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn count(lines: &[u8]) -> u64 {
    lines.split_inclusive(|byte| *byte == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    /// More than anything here takes.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn pipe() -> (io::PipeReader, File) {
        let (reader, writer) = io::pipe().unwrap();
        (reader, std::os::fd::OwnedFd::from(writer).into())
    }

    #[test]
    fn what_waits_is_written_before_the_end() {
        let (mut reader, writer) = pipe();
        let queue = Queue::new(writer, "line", 1_024, PATIENCE);
        queue.push(b"one\n");
        queue.push(b"two\n");
        queue.flush();
        let mut text = [0; 8];
        reader.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"one\ntwo\n");
        assert_eq!(queue.lost(), 0);
    }

    #[test]
    fn nobody_waits_for_a_reader_and_what_was_lost_is_counted_and_said() {
        let (reader, writer) = pipe();
        let queue = Queue::new(writer, "line", 1_024, Duration::ZERO);
        // A pipe holds 64 KiB, the queue one.
        for n in 0..10_000 {
            queue.push(format!("line {n:020}\n").as_bytes());
        }
        queue.flush();
        let lost = queue.lost();
        assert!((5_000..10_000).contains(&lost), "{lost}");
        let lines = io::BufRead::lines(io::BufReader::new(reader));
        let (mut read, mut said) = (0, 0);
        for line in lines.map(Result::unwrap) {
            if let Some(count) = line.strip_prefix("peerbus: ") {
                said += count.split(' ').next().unwrap().parse::<u64>().unwrap();
            } else if line.starts_with("line ") {
                read += 1;
            }
            if read + said == 10_000 {
                break;
            }
        }
        assert_eq!(said, lost);
    }

    #[test]
    fn a_file_that_takes_nothing_costs_its_lines_only() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let queue = Queue::new(full, "line", 1_024, PATIENCE);
        queue.push(b"one\ntwo\n");
        queue.flush();
        assert_eq!(queue.lost(), 2);
        queue.push(b"three\n");
        queue.flush();
        assert_eq!(queue.lost(), 3);
        assert!(!queue.is_closed());
    }

    #[test]
    fn a_reader_that_has_gone_is_noticed() {
        let (reader, writer) = pipe();
        drop(reader);
        let queue = Queue::new(writer, "line", 1_024, PATIENCE);
        queue.push(b"one\n");
        queue.flush();
        assert!(queue.is_closed());
    }
}
