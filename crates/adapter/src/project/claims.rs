//! Which project has which group: a symbolic link for each, `NAME` to the place of the project. The first
//! that comes has the name of its directory, others of that name have a number behind it.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use peerbus_os as os;
use peerbus_wire::limits::NAME_BYTES_MAX;
use peerbus_wire::{GroupName, escape};

use super::Project;
use crate::paths::Paths;
use crate::sessions;

/// The directory of the links, below that of the state.
pub(super) const DIRECTORY: &str = "projects";
/// More projects of one name than a user has.
const SAME_MAX: usize = 99;
/// Above so many links those go whose project is gone.
const LINKS_MANY: usize = 256;
const LINKS_MAX: usize = 10_000;
/// Longest path in a sentence, in characters.
const PATH_CHARS: usize = 200;

/// The group of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: GroupName,
    /// The same with the capitals of the project's directory.
    pub spelt: String,
    /// The name that its directory would give it, if that is another.
    plain: Option<GroupName>,
    /// The project that has this one.
    other: Option<PathBuf>,
}

impl Group {
    /// A sentence about a project whose group is not called as its directory.
    #[must_use]
    pub fn told(&self) -> Option<String> {
        let (name, plain) = (&self.name, self.plain.as_ref()?);
        Some(match &self.other {
            Some(other) => format!(
                "the group of this project is {name}; {plain} is that of another project, {}",
                shown(other)
            ),
            None => format!("the group of this project is {name}, not {plain}"),
        })
    }

    /// Whether an address is that of the group which this project's directory would give it, and
    /// which is another's.
    #[must_use]
    pub fn is_mistaken(&self, address: &str) -> bool {
        let address = GroupName::parse(address.trim_end_matches('!')).ok();
        self.plain.is_some() && address == self.plain
    }
}

fn shown(path: &Path) -> String {
    format!("\"{}\"", escape(&path.to_string_lossy(), PATH_CHARS))
}

/// Sentences about those of some groups that have not the name of their project's directory.
#[must_use]
pub fn kept(groups: &[String]) -> Vec<String> {
    let Ok(paths) = Paths::find() else {
        return Vec::new();
    };
    let dir = paths.state_dir.join(DIRECTORY);
    let told = |group: &String| {
        let name = GroupName::parse(group).ok()?;
        let place = fs::read_link(dir.join(name.as_str())).ok()?;
        let plain = GroupName::near(&Project::at(&place)?.title)?;
        let other = fs::read_link(dir.join(plain.as_str())).ok()?;
        let (place, other) = (shown(&place), shown(&other));
        (plain != name).then(|| format!("{name} is the project {place}, {plain} is {other}"))
    };
    groups.iter().filter_map(told).collect()
}

/// The group of a project, as `dir` keeps them.
pub(crate) fn group(dir: Option<&Path>, project: &Project, claims: bool) -> Option<Group> {
    let plain = GroupName::spell(&project.title)?;
    let kept = dir.and_then(|dir| {
        let name = find(dir, &plain, &project.place);
        let name = name.or_else(|| match claims {
            true => claim(dir, &plain, &project.place).ok()?,
            false => free(dir, &plain).filter(|_| may_keep(dir)),
        })?;
        let other = fs::read_link(dir.join(plain.to_ascii_lowercase())).ok();
        Some((name, other.filter(|other| *other != project.place)))
    });
    // Nothing says whose the plain name is.
    let (spelt, other) = kept.unwrap_or_else(|| (apart(&plain, &project.place), None));
    let (name, plain) = (
        GroupName::parse(&spelt).ok()?,
        GroupName::parse(&plain).ok()?,
    );
    Some(Group {
        plain: (plain != name).then_some(plain),
        name,
        spelt,
        other,
    })
}

fn behind(plain: &str, what: &str) -> String {
    let room = NAME_BYTES_MAX - what.len() - 1;
    format!("{}-{what}", plain.get(..room).unwrap_or(plain))
}

/// A name that no other project has by chance.
fn apart(plain: &str, place: &Path) -> String {
    let hash = blake3::hash(place.as_os_str().as_encoded_bytes());
    behind(plain, &hash.to_hex()[..8])
}

fn names(plain: &str) -> impl Iterator<Item = String> {
    let numbered = (2..=SAME_MAX).map(|n| behind(plain, &n.to_string()));
    std::iter::once(plain.to_owned()).chain(numbered)
}

fn link(dir: &Path, name: &str) -> PathBuf {
    dir.join(name.to_ascii_lowercase())
}

fn find(dir: &Path, plain: &str, place: &Path) -> Option<String> {
    names(plain).find(|name| fs::read_link(link(dir, name)).is_ok_and(|to| to == place))
}

fn free(dir: &Path, plain: &str) -> Option<String> {
    names(plain).find(|name| match fs::read_link(link(dir, name)) {
        Ok(to) => is_gone(&to),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    })
}

/// Whether there is no project any more at a place. What cannot be looked at is there.
fn is_gone(place: &Path) -> bool {
    match fs::metadata(place) {
        Ok(_) => Project::at(place).is_none_or(|found| found.place != place),
        Err(error) => matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
        ),
    }
}

/// Whether a link could be made there, or in what would be made for it.
fn may_keep(dir: &Path) -> bool {
    let there = dir.ancestors().find(|dir| dir.exists());
    there.is_some_and(|dir| os::file::may_write(dir).is_ok())
}

fn claim(dir: &Path, plain: &str, place: &Path) -> io::Result<Option<String>> {
    os::dir::create_private(dir)?;
    let _lock = sessions::lock(dir)?;
    // Another session of the project may have been faster.
    let found = find(dir, plain, place);
    if found.is_some() {
        return Ok(found);
    }
    sweep(dir);
    let Some(name) = free(dir, plain) else {
        return Ok(None);
    };
    let link = link(dir, &name);
    match fs::remove_file(&link) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    symlink(place, link)?;
    Ok(Some(name))
}

/// Forgets projects that are gone, where there are many.
fn sweep(dir: &Path) {
    let links = fs::read_dir(dir).into_iter().flatten().flatten();
    let links: Vec<_> = links.take(LINKS_MAX).map(|entry| entry.path()).collect();
    if links.len() <= LINKS_MANY {
        return;
    }
    let gone = |link: &&PathBuf| fs::read_link(link).is_ok_and(|to| is_gone(&to));
    for link in links.iter().filter(gone) {
        // One that stays is looked at again.
        let _ = fs::remove_file(link);
    }
}
