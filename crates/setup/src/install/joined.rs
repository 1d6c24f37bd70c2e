//! `peerbus join`, as far as it changes files, and the way back.

use std::path::Path;

use peerbus_adapter::credentials::{self, check_joinable_file, random_hex};
use peerbus_adapter::paths::Paths;
use peerbus_adapter::{Failure, Token};
use peerbus_os::dir;

use super::config_file::{ConfigFile, remove_parents};
use super::record::{self, Asking, Done, Record, hash};
use super::{InstallLine, Show};

const TURNED_OUT: &str = "the broker takes the token no more with which this machine joined: its operator \
    revoked it. `peerbus uninstall --join` gives the credentials back that were here before; to join again, \
    ask for another invitation after that";

/// The token with which this machine asks by the code of an invitation: a new one, or the one with which it
/// has asked by that code before.
///
/// # Errors
///
/// This machine has joined already, its credentials could not be used afterwards, or the record cannot be written.
pub fn asking_token(code: &str) -> Result<Token, Failure> {
    let _lock = record::lock()?;
    let mut record = Record::read()?;
    check_free(&record)?;
    check_file()?;
    let code = hash(code);
    let known = record.asking.take().filter(|asking| asking.code == code);
    let asking = known.unwrap_or_else(|| Asking {
        code,
        token: random_hex().to_string(),
    });
    let token = Token::parse(&asking.token);
    record.asking = Some(asking);
    record.save()?;
    token.ok_or_else(|| Failure::failed("no token could be made"))
}

/// Fails where this machine has joined already, or its credentials could not be used afterwards.
///
/// # Errors
///
/// A sentence with the way out.
pub fn check_joinable() -> Result<(), Failure> {
    check_free(&Record::read()?)?;
    check_file()
}

/// A code is good once.
fn check_file() -> Result<(), Failure> {
    let path = Paths::find()?.credentials;
    check_joinable_file(&path).map_err(Failure::config)?;
    ConfigFile::read(&path)?.check_writable()
}

/// Why a broker refuses the token of these credentials, and the way out; `None`: `peerbus join` did not write
/// them.
#[must_use]
pub fn turned_out(credentials: &Path) -> Option<String> {
    has_joined(credentials).then(|| TURNED_OUT.to_owned())
}

/// Whether `peerbus join` wrote these credentials.
#[must_use]
pub fn has_joined(credentials: &Path) -> bool {
    let joined = Record::load().joined;
    joined.is_some_and(|(path, _)| path == credentials)
}

/// The credentials of before are remembered once.
fn check_free(record: &Record) -> Result<(), Failure> {
    match &record.joined {
        None => Ok(()),
        Some((path, _)) => Err(Failure::failed(format!(
            "this machine has joined a broker elsewhere ({}): `peerbus uninstall --join` first",
            path.display()
        ))),
    }
}

/// Forgets the token with which this machine asked: it will not be let in by it.
///
/// # Errors
///
/// When the record cannot be written.
pub fn not_let_in() -> Result<(), Failure> {
    let _lock = record::lock()?;
    let mut record = Record::read()?;
    record.asking = None;
    record.save()
}

/// Changes the credentials file at `path`, which is made if need be, so that [`leave`] gives its bytes
/// back. `change` is told its text, if there is one.
///
/// # Errors
///
/// When the file cannot be understood or written: nothing has changed then.
pub fn join<T: AsRef<str>>(
    path: &Path,
    change: impl FnOnce(Option<&str>) -> Result<T, String>,
) -> Result<(), Failure> {
    let _lock = record::lock()?;
    let mut record = Record::read()?;
    check_free(&record)?;
    let file = ConfigFile::read(path)?;
    file.check_writable()?;
    let (text, mark) = file.text()?;
    let before = file.bytes.as_ref().map(|_| format!("{mark}{text}"));
    let after = change(before.as_ref().map(|_| text));
    let after = after.map_err(|why| {
        let path = path.display();
        Failure::failed(format!("credentials file {path} {why}"))
    })?;
    let after = after.as_ref();
    let mut done = Done::new(before.is_none(), &before.unwrap_or_default(), after);
    done.dirs = dir::missing_above(&file.path);
    let made = done.dirs.clone();
    let asking = record.asking.take();
    record.joined = Some((file.path.clone(), done));
    // It is remembered first: it can be undone whatever happens then.
    record.save()?;
    let dir = dir::create_private(dir::above(&file.path)).map_err(Failure::failed);
    let replaced = match dir.and_then(|()| file.replace(Some(after.as_bytes()), true)) {
        Ok(true) => return Ok(()),
        Ok(false) => Err(Failure::failed("another program changes that file")),
        Err(failure) => Err(failure),
    };
    remove_parents(&made);
    record.asking = asking;
    record.joined = None;
    record.save()?;
    replaced
}

/// Gives the credentials file the bytes back that it had before [`join`].
///
/// # Errors
///
/// When it was changed since, or cannot be written.
pub fn leave(dry_run: bool, show: Show<'_>) -> Result<(), Failure> {
    let _lock = record::lock()?;
    let mut record = Record::read()?;
    let Some((path, done)) = record.joined.clone() else {
        show(InstallLine::Note(
            "nothing to do: this machine has joined no broker elsewhere",
        ));
        return Ok(());
    };
    let shown = path.display();
    let file = ConfigFile::read(&path)?;
    let (text, mark) = file.text()?;
    // One that was killed has not written it.
    let is_old = || {
        done.original
            .clone()
            .filter(|old| *old == format!("{mark}{text}"))
    };
    let original = match file.bytes {
        None => done.original.clone(),
        Some(_) => done.original_of(text).or_else(is_old),
    };
    // It was killed once the file was gone, and a broker of this machine has made another since.
    let is_another = || {
        let theirs = credentials::parse(text);
        done.created && theirs.is_ok_and(|found| found.url.is_none())
    };
    if original.is_none() && is_another() {
        show(InstallLine::Note(&format!(
            "{shown} is not what `peerbus join` wrote, and stays"
        )));
        if !dry_run {
            record.joined = None;
            record.save()?;
        }
        return Ok(());
    }
    let Some(original) = original else {
        return Err(Failure::failed(format!(
            "{shown} was changed since `peerbus join` wrote it, and nothing was done: take out of it what is \
             yours, `rm {shown}`, and run this again, which puts back what was there before"
        )));
    };
    let original = (!done.created).then_some(original);
    let what = match &original {
        None => format!("{shown}, which `peerbus join` made, goes"),
        Some(_) => format!("{shown} gets back what it held before `peerbus join`"),
    };
    show(InstallLine::Note(&what));
    if dry_run {
        show(InstallLine::Note(super::DRY));
        return Ok(());
    }
    let gone = file.bytes.is_none() && original.is_none();
    if !gone && !file.replace(original.as_deref().map(str::as_bytes), true)? {
        let why = format!("another program changes {shown}: try again");
        return Err(Failure::failed(why));
    }
    if original.is_none() {
        remove_parents(&done.dirs);
    }
    record.joined = None;
    record.save()
}

#[cfg(test)]
mod tests {
    // The record has its place below the home: tests/it/invite.rs has the rest.
    use super::*;

    #[test]
    fn what_was_made_for_a_machine_is_told_from_what_was_there() {
        let made = Done::new(true, "", "new");
        let changed = Done::new(false, "old", "new");
        assert_eq!(made.original_of("new").as_deref(), Some(""));
        assert_eq!(changed.original_of("new").as_deref(), Some("old"));
        assert_eq!(changed.original_of("newer"), None);
    }
}
