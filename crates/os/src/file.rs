//! Files: private ones of ours, and small or precious ones of others.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{Error, ErrorKind, Read as _, Result, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;

/// Room for a file whose length the system does not tell, as below `/proc`.
pub(crate) const UNTOLD_BYTES: usize = 4_096;
/// Longest time for which a file is being written.
const WRITING_MAX: Duration = Duration::from_secs(60);

/// Reads a regular file of at most `max` bytes; anything else is none. Other programs that write
/// there can neither make us wait nor fill our memory.
#[must_use]
pub fn read_small(path: &Path, max: u64) -> Option<String> {
    let (file, found) = regular(OpenOptions::new().read(true), OFlags::NONBLOCK, path).ok()?;
    let length = found.len();
    if length > max {
        return None;
    }
    // Without room it is read by a few bytes at a time.
    let room = usize::try_from(length + 1).ok()?.max(UNTOLD_BYTES);
    let mut text = String::with_capacity(room);
    file.take(max).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Opens a regular file to read it. Whatever else another program puts in its place, nothing is
/// waited for.
///
/// # Errors
///
/// When it cannot be opened; [`ErrorKind::InvalidInput`] when it is no regular file.
pub fn open_regular(path: &Path) -> Result<File> {
    let opened = regular(OpenOptions::new().read(true), OFlags::NONBLOCK, path);
    opened.map(|(file, _)| file)
}

/// Opens with these flags what is a regular file. The open of a pipe would wait for its other end.
fn regular(options: &mut OpenOptions, flags: OFlags, path: &Path) -> Result<(File, Metadata)> {
    let not_regular = || Error::new(ErrorKind::InvalidInput, "it is no regular file");
    let flags = (flags | OFlags::NONBLOCK).bits().cast_signed();
    let file = options.custom_flags(flags).open(path).map_err(|error| {
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            // A pipe that nobody reads, or a socket.
            Some(Errno::NXIO) => not_regular(),
            _ => error,
        }
    })?;
    let found = file.metadata()?;
    match found.is_file() {
        true => Ok((file, found)),
        false => Err(not_regular()),
    }
}

/// Where a file is that is rewritten: another place if the path is a symbolic link, which stays.
///
/// # Errors
///
/// When it is a link to nothing.
pub fn behind_link(path: &Path) -> Result<PathBuf> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => fs::canonicalize(path).map_err(|error| {
            let why = format!("it is a symbolic link to nothing ({error})");
            Error::new(ErrorKind::InvalidInput, why)
        }),
        _ => Ok(path.to_owned()),
    }
}

/// Creates a file that only its owner can read or write.
///
/// # Errors
///
/// When it exists, or cannot be made.
pub fn create_private(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)
}

/// Opens a file to read and write it, or makes one that only its owner can. A symbolic link is not
/// followed.
///
/// # Errors
///
/// When it cannot be opened or made; [`ErrorKind::InvalidInput`] when it is no regular file.
pub fn open_private(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let opened = regular(options.mode(0o600), OFlags::NOFOLLOW, path);
    opened.map(|(file, _)| file)
}

/// Opens a file to write behind what stands in it, or makes one that only its owner can read or
/// write. A symbolic link is not followed.
///
/// # Errors
///
/// When it cannot be opened or made; [`ErrorKind::InvalidInput`] when it is no regular file.
pub fn append_private(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600);
    regular(&mut options, OFlags::NOFOLLOW, path).map(|(file, _)| file)
}

/// Makes what lies at a path, if anything does, this user's alone: others lose their rights. Gives
/// the mode that it had if they had any.
///
/// # Errors
///
/// When it is a symbolic link or no file, has another name, or is another user's.
pub fn make_private(path: &Path) -> Result<Option<u32>> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        found => found?,
    };
    let refuse = |why: String| Err(Error::new(ErrorKind::InvalidInput, why));
    if found.is_symlink() {
        return refuse("it is a symbolic link: put the file itself there".into());
    }
    if !found.is_file() {
        return refuse("it is not a regular file".into());
    }
    if found.nlink() > 1 {
        let names = found.nlink();
        return refuse(format!(
            "it has {names} names (hard links), by each of which it could be opened: remove the \
             others (`find -samefile` finds them), or give it a copy"
        ));
    }
    let exposed = exposed_mode(&found);
    if exposed.is_some() {
        set_mode(path, 0o600)?;
    }
    Ok(exposed)
}

/// The mode of a file that others than its owner can read or write.
#[must_use]
pub fn exposed_mode(metadata: &Metadata) -> Option<u32> {
    let mode = metadata.permissions().mode() & 0o777;
    (mode & 0o077 != 0).then_some(mode)
}

/// Tells versions of a file apart; `None`: it is not there. With when it was changed, its mode
/// included, which nobody can put back.
pub type Version = Option<(u64, u64, i64, i64)>;

/// The version of a file that is there now.
#[must_use]
pub fn version(path: &Path) -> Version {
    let found = fs::metadata(path).ok()?;
    Some((found.ino(), found.size(), found.ctime(), found.ctime_nsec()))
}

/// Gives a file or a directory a mode.
///
/// # Errors
///
/// When it is not there, or not this user's.
pub fn set_mode(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Checks that this process may write to a file or into a directory.
///
/// # Errors
///
/// What the system has against it.
pub fn may_write(path: &Path) -> Result<()> {
    Ok(rustix::fs::access(path, rustix::fs::Access::WRITE_OK)?)
}

/// Whether a file is there that can be run.
#[must_use]
pub fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0)
}

/// Replaces a file in one step, or makes it. It keeps the mode and the owner that it had.
///
/// # Errors
///
/// When it cannot be written; it is as it was then.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    put(path, bytes, 0o666, fs::metadata(path).ok())
}

/// Replaces a file in one step, or makes it. Only its owner can read or write it then.
///
/// # Errors
///
/// When it cannot be written; it is as it was then.
pub fn replace_private(path: &Path, bytes: &[u8]) -> Result<()> {
    put(path, bytes, 0o600, None)
}

fn put(path: &Path, bytes: &[u8], mode: u32, old: Option<Metadata>) -> Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let unfinished = format!(".{name}.peerbus-");
    sweep(path, &unfinished);
    let fresh = path.with_file_name(format!("{unfinished}{:08x}", rand::random::<u32>()));
    let written = write(&fresh, bytes, mode, old).and_then(|()| fs::rename(&fresh, path));
    if written.is_err() {
        // A file that is half written is of no use; the first error is the one to tell.
        let _ = fs::remove_file(&fresh);
    }
    written
}

/// Removes what processes left beside a file that ended while they wrote it.
fn sweep(path: &Path, unfinished: &str) {
    let beside = path.parent().and_then(|dir| fs::read_dir(dir).ok());
    for entry in beside.into_iter().flatten().flatten() {
        let is_one = entry.file_name().to_string_lossy().starts_with(unfinished);
        let written = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
        if is_one && written().is_some_and(|age| age > WRITING_MAX) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn write(fresh: &Path, bytes: &[u8], mode: u32, old: Option<Metadata>) -> Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(fresh)?;
    if let Some(old) = old {
        let new = file.metadata()?;
        if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
            fchown(&file, Some(old.uid()), Some(old.gid()))?;
        }
        file.set_permissions(old.permissions())?;
    }
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_small_regular_file_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        assert_eq!(read_small(&path, 10), None);
        fs::write(&path, "0123456789").unwrap();
        assert_eq!(read_small(&path, 10).as_deref(), Some("0123456789"));
        assert_eq!(read_small(&path, 9), None);
        assert_eq!(read_small(dir.path(), 10_000), None);
        assert_eq!(
            read_small(Path::new("/dev/zero"), 10),
            None,
            "it has no end"
        );
    }

    #[test]
    fn nothing_is_waited_for_at_a_pipe_or_another_thing_that_is_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        let socket = dir.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for path in [&pipe, &socket, Path::new("/dev/null"), dir.path()] {
            for open in [open_regular, append_private, open_private] {
                let error = open(path).unwrap_err().to_string();
                let known = ["no regular file", "Is a directory"];
                assert!(
                    known.iter().any(|why| error.contains(why)),
                    "{path:?}: {error}"
                );
            }
        }
    }

    #[test]
    fn what_was_left_half_written_goes_with_the_next_writing() {
        let dir = tempfile::tempdir().unwrap();
        let [left, writing, other] =
            [".a.peerbus-1", ".a.peerbus-2", ".b.peerbus-1"].map(|name| dir.path().join(name));
        for path in [&left, &writing, &other] {
            fs::write(path, "x").unwrap();
        }
        let old = std::time::SystemTime::now() - 2 * WRITING_MAX;
        for path in [&left, &other] {
            let file = OpenOptions::new().write(true).open(path).unwrap();
            file.set_modified(old).unwrap();
        }
        replace_private(&dir.path().join("a"), b"y").unwrap();
        let there = [left, writing, other].map(|path| path.exists());
        assert_eq!(there, [false, true, true]);
    }

    #[test]
    fn a_link_leads_to_what_is_rewritten() {
        let dir = tempfile::tempdir().unwrap();
        let dir = fs::canonicalize(dir.path()).unwrap();
        let (file, link) = (dir.join("file"), dir.join("link"));
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let error = behind_link(&link).unwrap_err().to_string();
        assert!(error.contains("a symbolic link to nothing"), "{error}");
        assert_eq!(behind_link(&file).unwrap(), file, "it is made there");
        fs::write(&file, "").unwrap();
        assert_eq!(behind_link(&link).unwrap(), file);
    }

    #[test]
    fn a_file_is_replaced_whole_and_keeps_its_mode() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        drop(create_private(&path).unwrap());
        assert!(create_private(&path).is_err(), "it is there");
        assert_eq!(exposed_mode(&fs::metadata(&path).unwrap()), None);
        set_mode(&path, 0o640).unwrap();
        replace(&path, b"new").unwrap();
        let found = fs::metadata(&path).unwrap();
        assert_eq!(exposed_mode(&found), Some(0o640));
        assert_eq!(fs::read(&path).unwrap(), b"new");
        replace_private(&path, b"newer").unwrap();
        assert_eq!(exposed_mode(&fs::metadata(&path).unwrap()), None);
        assert_eq!(fs::read(&path).unwrap(), b"newer");
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            1,
            "nothing else is left"
        );
    }
}
