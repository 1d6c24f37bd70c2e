//! Private files of ours: read while nobody else can have written them, edited in one step.

use std::fmt::Display;
use std::fs::{File, Metadata};
use std::io::{Error, ErrorKind, Read as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use serde::de::DeserializeOwned;
use toml_edit::{DocumentMut, Item, TableLike};
use zeroize::Zeroizing;

use crate::{dir, file, user};

/// Longest part of a sentence that stands in the file, in characters.
const SAID_CHARS: usize = 200;

/// A private file: what it is called, what is asked of it, and how it is read.
#[derive(Debug)]
pub struct PrivateFile<T> {
    /// What sentences call it, such as `tokens file`.
    pub what: &'static str,
    /// Its longest text, in bytes.
    pub bytes_max: u64,
    /// Others may read it. Its owner alone can write it, and that is this user or root.
    pub readable: bool,
    /// What programs put in front of its text when they edit it, unless it is there; may be empty.
    pub heading: &'static str,
    /// What follows a remedy that not everybody can apply; may be empty.
    pub instead: &'static str,
    /// Reads its text. An error is to be read after the file's name.
    pub parse: fn(&str) -> Result<T, String>,
}

impl<T> PrivateFile<T> {
    /// A sentence about the file at `path`, which begins with its name.
    pub fn says(&self, path: &Path, why: impl Display) -> String {
        format!("{} {} {why}", self.what, path.display())
    }

    /// What the file at `path` says; `None`: there is none.
    ///
    /// # Errors
    ///
    /// A sentence that names the file, what was found and the remedy: others can read, write or
    /// replace it, or what it says cannot be used.
    pub fn read(&self, path: &Path) -> Result<Option<T>, String> {
        let text = self.text(path)?;
        let said = text.map(|text| (self.parse)(&text)).transpose();
        said.map_err(|why| self.says(path, why))
    }

    /// The text of the file at `path`; `None`: there is none.
    ///
    /// # Errors
    ///
    /// As for [`Self::read`], but for what it says.
    pub fn text(&self, path: &Path) -> Result<Option<Zeroizing<String>>, String> {
        let unreadable = |error: Error| {
            let remedy = "make it a file of yours with mode 0600";
            let why = format!("cannot be read: {error}: {remedy}{}", self.instead);
            self.says(path, why)
        };
        let real = file::behind_link(path).map_err(unreadable)?;
        let file = match file::open_regular(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file.map_err(unreadable)?,
        };
        let metadata = file.metadata().map_err(unreadable)?;
        self.check(path, &metadata)?;
        for place in [path, real.as_path()] {
            dir::check_replacing(dir::above(place))
                .map_err(|error| self.says(path, format_args!("cannot be trusted: {error}")))?;
        }
        let mut text = Zeroizing::new(String::new());
        file.take(self.bytes_max + 1)
            .read_to_string(&mut text)
            .map_err(unreadable)?;
        if text.len() as u64 > self.bytes_max {
            let why = format!("has more than {} bytes: shorten it", self.bytes_max);
            return Err(self.says(path, why));
        }
        Ok(Some(text))
    }

    /// Fails where others than its owner can do more than they may.
    fn check(&self, path: &Path, found: &Metadata) -> Result<(), String> {
        let (mode, owner) = (found.permissions().mode() & 0o7777, found.uid());
        let shown = path.display();
        let why = match self.readable {
            false if mode & 0o077 != 0 => {
                let instead = self.instead;
                format!("can be read by others (mode {mode:04o}): run `chmod 600 {shown}`{instead}")
            }
            true if mode & 0o022 != 0 => {
                format!("can be written by others (mode {mode:04o}): run `chmod go-w {shown}`")
            }
            true if owner != 0 && owner != user::id() => {
                format!("belongs to another user (number {owner}): make it yours")
            }
            _ => return Ok(()),
        };
        Err(self.says(path, why))
    }

    /// Changes the TOML file at `path`, which is made if need be, in one step; what `change` does not
    /// touch stays, comments included. It is told what the file said. No other edit comes in between.
    ///
    /// # Errors
    ///
    /// As for [`Self::read`], of the text before and of the one after; or what `change` says.
    pub fn edit<R>(
        &self,
        path: &Path,
        change: impl FnOnce(&mut DocumentMut, Option<T>) -> Result<R, String>,
    ) -> Result<R, String> {
        self.edit_text(path, |text, said| {
            let (mut text, done) = edited(text, |document| change(document, said))?;
            if !text.contains(self.heading) {
                text.insert_str(0, self.heading);
            }
            Ok((text, done))
        })
    }

    /// As [`Self::edit`], of the text as it is.
    ///
    /// # Errors
    ///
    /// As for [`Self::edit`].
    pub fn edit_text<R>(
        &self,
        path: &Path,
        change: impl FnOnce(&str, Option<T>) -> Result<(Zeroizing<String>, R), String>,
    ) -> Result<R, String> {
        let unwritable = |error: Error| self.says(path, format_args!("cannot be written: {error}"));
        // What is written through a link is where it is looked for in another place, too.
        let real = file::behind_link(path).map_err(unwritable)?;
        let dir = dir::above(&real);
        dir::create_private(dir).map_err(unwritable)?;
        // Each of two edits at once would write what the other did not know. The file itself is
        // replaced.
        let lock = File::open(dir).map_err(unwritable)?;
        lock.lock().map_err(unwritable)?;
        let old = self.text(path)?;
        let parse = |text: &str| (self.parse)(text).map_err(|why| self.says(path, why));
        // A file that is wrong is not made worse.
        let said = old.as_deref().map(|old| parse(old)).transpose()?;
        let (new, done) = change(old.as_deref().map_or("", String::as_str), said)?;
        if old.as_ref() == Some(&new) {
            return Ok(done);
        }
        parse(&new)?;
        let replaced = match old.is_some() && !user::owns(&real) {
            true => file::replace(&real, new.as_bytes()),
            false => file::replace_private(&real, new.as_bytes()),
        };
        replaced.and_then(|()| dir::sync(dir)).map_err(unwritable)?;
        Ok(done)
    }
}

/// A TOML text as `change` leaves it; what that does not touch stays, comments included.
///
/// # Errors
///
/// When it is not TOML, with the line and nothing of what stands there, or what `change` says.
pub fn edited<R>(
    text: &str,
    change: impl FnOnce(&mut DocumentMut) -> Result<R, String>,
) -> Result<(Zeroizing<String>, R), String> {
    let document = text.parse::<DocumentMut>();
    let mut document = document.map_err(|error| {
        let line = line(text, error.span().map_or(0, |span| span.start));
        // The error's own text repeats the line, which may hold a secret.
        format!("is not TOML: line {line}: {}", shown(error.message()))
    })?;
    let done = change(&mut document)?;
    Ok((Zeroizing::new(document.to_string()), done))
}

/// Reads what a TOML file says.
///
/// # Errors
///
/// The line, what was found there and the remedy, to be read after the file's name.
pub fn toml<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    toml::from_str(text).map_err(|mut error: toml::de::Error| {
        let at = error.span().map_or(0, |span| span.start);
        let line = line(text, at);
        // Without the text it says which key is meant instead.
        error.set_input(None);
        let why = shown(&error.to_string());
        format!("cannot be used: line {line}: {why}: correct it, or put a copy of the file back")
    })
}

/// A sentence of several lines in one, without characters that nobody sees.
fn shown(text: &str) -> String {
    let mut shown = String::new();
    for c in text.trim_end().replace('\n', " ").chars().take(SAID_CHARS) {
        match c {
            '"' | '\'' | '\\' => shown.push(c),
            c => shown.extend(c.escape_debug()),
        }
    }
    shown
}

/// The number of the line in which a byte stands.
#[must_use]
pub fn line(text: &str, at: usize) -> usize {
    text.get(..at).unwrap_or(text).matches('\n').count() + 1
}

/// A value as a table that can be put into a document.
///
/// # Errors
///
/// When it is none in TOML.
pub fn table(value: &impl serde::Serialize) -> Result<Item, String> {
    let text = toml::to_string(value).map_err(|error| error.to_string())?;
    let document = text.parse::<DocumentMut>();
    let document = document.map_err(|error| error.to_string())?;
    let mut table = document.as_table().clone();
    // Behind what stands there.
    table.set_position(None);
    Ok(Item::Table(table))
}

/// Puts an entry under its name into a table.
///
/// # Errors
///
/// The name of the one that has that name. Names ignore case.
pub fn insert(entries: &mut dyn TableLike, name: &str, entry: Item) -> Result<(), String> {
    match known(entries, name) {
        Some(known) => Err(known),
        None => {
            entries.insert(name, entry);
            Ok(())
        }
    }
}

/// Takes an entry out of a table; gives its name as it stood there.
pub fn remove(entries: &mut dyn TableLike, name: &str) -> Option<String> {
    let known = known(entries, name)?;
    entries.remove(&known);
    Some(known)
}

/// A name as it stands in a table. Names ignore case; where several differ in nothing else, the one
/// that is spelt alike is meant.
fn known(entries: &dyn TableLike, name: &str) -> Option<String> {
    let mut names = entries.iter().map(|(known, _)| known);
    let found = match entries.contains_key(name) {
        true => Some(name),
        false => names.find(|known| known.eq_ignore_ascii_case(name)),
    };
    found.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    type Numbers = BTreeMap<String, BTreeMap<String, u8>>;

    const FILE: PrivateFile<Numbers> = PrivateFile {
        what: "numbers file",
        bytes_max: 100,
        readable: false,
        heading: "# Numbers.\n",
        instead: "; or count yourself",
        parse: toml,
    };

    fn file(dir: &tempfile::TempDir, text: &str) -> PathBuf {
        let path = dir.path().join("numbers.toml");
        file::replace_private(&path, text.as_bytes()).unwrap();
        path
    }

    fn entry(value: u8) -> Item {
        table(&BTreeMap::from([("value", value)])).unwrap()
    }

    #[test]
    fn a_file_that_others_can_read_or_replace_or_that_is_too_long_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = file(&dir, "[a]\nvalue = 1");
        let shown = path.display();
        assert_eq!(FILE.read(&path).unwrap().unwrap()["a"]["value"], 1);
        assert_eq!(FILE.read(&dir.path().join("none")), Ok(None));
        file::set_mode(&path, 0o640).unwrap();
        let why = FILE.read(&path).unwrap_err();
        let says = format!(
            "numbers file {shown} can be read by others (mode 0640): run `chmod 600 {shown}`; or count \
             yourself"
        );
        assert_eq!(why, says);
        let open = PrivateFile {
            readable: true,
            ..FILE
        };
        assert!(open.read(&path).is_ok());
        file::set_mode(&path, 0o620).unwrap();
        assert!(open.read(&path).unwrap_err().contains("run `chmod go-w "));
        file::set_mode(&path, 0o600).unwrap();
        file::set_mode(dir.path(), 0o777).unwrap();
        let why = FILE.read(&path).unwrap_err();
        assert!(why.contains("cannot be trusted: others can write"), "{why}");
        file::set_mode(dir.path(), 0o700).unwrap();
        fs::write(&path, format!("#{}", "x".repeat(100))).unwrap();
        let why = FILE.read(&path).unwrap_err();
        assert!(why.contains("has more than 100 bytes"), "{why}");
        fs::write(&path, "[a]\nvalue = \"\u{1b}\"").unwrap();
        let why = FILE.read(&path).unwrap_err();
        assert!(why.contains("cannot be used: line 2: "), "{why}");
        assert!(!why.contains('\u{1b}'), "{why:?}");
    }

    #[test]
    fn an_edit_touches_nothing_else_and_makes_no_file_worse() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/numbers.toml");
        let put = |name: &str, value| {
            FILE.edit(&path, |document, _| {
                insert(document.as_table_mut(), name, entry(value))
            })
        };
        put("a", 1).unwrap();
        put("b", 2).unwrap();
        let text = "# Numbers.\n[a]\nvalue = 1\n\n[b]\nvalue = 2\n";
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        let text = text.replace("[a]", "# mine\n[a] # first");
        fs::write(&path, &text).unwrap();
        assert_eq!(put("A", 3), Err("a".into()), "names ignore case");
        let removed = FILE.edit(&path, |document, said| {
            assert_eq!(said.unwrap().len(), 2);
            Ok(remove(document.as_table_mut(), "B"))
        });
        assert_eq!(removed.unwrap().as_deref(), Some("b"));
        let left = fs::read_to_string(&path).unwrap();
        assert_eq!(left.trim_end(), text.split("\n\n").next().unwrap());
        let broken = edited("a = 1\nb = \"hush\nhush = 2", |_| Ok(())).unwrap_err();
        assert!(broken.starts_with("is not TOML: line 2: ") && !broken.contains("hush"));
        let spoiled = FILE.edit(&path, |document, _| {
            document.insert("x", toml_edit::value("y"));
            Ok(())
        });
        assert!(spoiled.unwrap_err().contains("cannot be used: "));
        assert_eq!(fs::read_to_string(&path).unwrap(), left);
    }
}
