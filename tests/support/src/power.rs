//! A disk that loses its power: it keeps what was synced, and of the rest what chance leaves.
//!
//! A process that is traced (see [`trace`]) tells everything that it does to files. A [`Disk`] that is
//! told the same, up to some moment, can write down what would be found after a power cut then.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use crate::preload::preload;

/// What a disk writes at once.
const SECTOR: usize = 512;

/// Has the process of `command` tell the file `to` everything that it does to files in `directory`,
/// and what it writes to its stdout. Several processes may do so one after the other. `tools`: where
/// the library is built.
pub fn trace(tools: &Path, command: &mut Command, directory: &Path, to: &Path) {
    preload(tools, command);
    command.env("PEERBUS_TRACE", to);
    command.env("PEERBUS_TRACE_DIR", directory);
}

/// One thing that a traced process did.
#[derive(Debug)]
pub struct Entry {
    what: u8,
    node: u64,
    at: usize,
    a: Vec<u8>,
    b: Vec<u8>,
}

impl Entry {
    /// What it wrote to its stdout.
    #[must_use]
    pub fn said(&self) -> Option<String> {
        (self.what == b'M').then(|| String::from_utf8_lossy(&self.a).into_owned())
    }
}

/// Reads what [`trace`] had written.
pub fn read(path: &Path) -> Vec<Entry> {
    let all = fs::read(path).unwrap();
    let (mut rest, mut entries) = (all.as_slice(), Vec::new());
    while !rest.is_empty() {
        let (head, tail) = rest.split_at(40);
        let number = |n: usize| u64::from_le_bytes(head[n * 8..n * 8 + 8].try_into().unwrap());
        let size = |n| usize::try_from(number(n)).unwrap();
        let (a, tail) = tail.split_at(size(3));
        let (b, tail) = tail.split_at(size(4));
        entries.push(Entry {
            what: head[0],
            node: number(1),
            at: size(2),
            a: a.to_vec(),
            b: b.to_vec(),
        });
        rest = tail;
    }
    entries
}

/// A change of a file that was not synced.
#[derive(Debug, Clone)]
enum Change {
    Write(usize, Vec<u8>),
    Cut(usize),
}

#[derive(Debug, Default)]
struct File {
    synced: Vec<u8>,
    waiting: Vec<Change>,
}

/// A change of a directory that was not synced; files by their place in [`Disk::files`].
#[derive(Debug, Clone)]
enum Naming {
    Make(String, usize),
    Move(String, String),
    Remove(String),
}

/// What of the things that were not synced is there after a cut.
#[derive(Debug, Clone, Copy)]
enum Kept {
    Nothing,
    All,
    /// Each sector by chance.
    Some,
    /// The first changes, and a part of one more.
    First(usize),
}

/// The files of one directory, as they are and as they would be found.
#[derive(Debug, Default)]
pub struct Disk {
    files: Vec<File>,
    /// The file that a number of the real file system stands for.
    nodes: BTreeMap<u64, usize>,
    names: BTreeMap<String, usize>,
    synced_names: BTreeMap<String, usize>,
    waiting: Vec<Naming>,
}

impl Disk {
    /// A disk that has safely what lies in `directory`.
    pub fn of(directory: &Path) -> Self {
        let mut disk = Self::default();
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let at = disk.add(path.metadata().unwrap().ino());
            disk.files[at].synced = fs::read(&path).unwrap();
            disk.names.insert(name(&path), at);
        }
        disk.synced_names = disk.names.clone();
        disk
    }

    fn add(&mut self, node: u64) -> usize {
        self.files.push(File::default());
        self.nodes.insert(node, self.files.len() - 1);
        self.files.len() - 1
    }

    /// The traced process did this.
    pub fn apply(&mut self, entry: &Entry) {
        let text = |bytes: &[u8]| name(Path::new(&*String::from_utf8_lossy(bytes)));
        match entry.what {
            b'C' => {
                let made = text(&entry.a);
                let known = self.names.get(&made).copied();
                if known.is_none() || known != self.nodes.get(&entry.node).copied() {
                    let at = self.add(entry.node);
                    self.names.insert(made.clone(), at);
                    self.waiting.push(Naming::Make(made, at));
                }
            }
            b'W' => self.change(entry.node, Change::Write(entry.at, entry.a.clone())),
            b'T' => self.change(entry.node, Change::Cut(entry.at)),
            b'S' => match self.nodes.get(&entry.node) {
                Some(&at) => {
                    let file = &mut self.files[at];
                    let waiting = std::mem::take(&mut file.waiting);
                    waiting
                        .iter()
                        .for_each(|change| make(&mut file.synced, change));
                }
                // What is none of the files is their directory.
                None => {
                    let waiting = std::mem::take(&mut self.waiting);
                    waiting
                        .iter()
                        .for_each(|n| rename(&mut self.synced_names, n));
                }
            },
            b'R' => self.named(Naming::Move(text(&entry.a), text(&entry.b))),
            b'U' => self.named(Naming::Remove(text(&entry.a))),
            _ => {}
        }
    }

    fn change(&mut self, node: u64, change: Change) {
        let at = self.nodes[&node];
        self.files[at].waiting.push(change);
    }

    fn named(&mut self, naming: Naming) {
        rename(&mut self.names, &naming);
        self.waiting.push(naming);
    }

    /// Writes into `directory`, which is empty, what is found after a power cut at this moment.
    /// `below` gives a number below another one, by chance.
    pub fn cut(&self, directory: &Path, below: &mut dyn FnMut(usize) -> usize) {
        let mut names = self.synced_names.clone();
        // A file system's journal keeps the order of what happens to names.
        let kept = below(self.waiting.len() + 1);
        self.waiting[..kept]
            .iter()
            .for_each(|n| rename(&mut names, n));
        let how = below(4);
        for (name, at) in names {
            let file = &self.files[at];
            let kept = match how {
                0 => Kept::Nothing,
                1 => Kept::All,
                2 => Kept::Some,
                _ => Kept::First(below(file.waiting.len() + 1)),
            };
            fs::write(directory.join(name), file.found(kept, below)).unwrap();
        }
    }
}

impl File {
    fn found(&self, kept: Kept, below: &mut dyn FnMut(usize) -> usize) -> Vec<u8> {
        let mut bytes = self.synced.clone();
        for (n, change) in self.waiting.iter().enumerate() {
            let torn = match kept {
                Kept::Nothing => break,
                Kept::All => false,
                Kept::Some => true,
                Kept::First(count) if n < count => false,
                Kept::First(count) if n > count => break,
                Kept::First(_) => true,
            };
            match change {
                Change::Write(at, data) if torn => {
                    let mut from = *at;
                    while from < at + data.len() {
                        let to = ((from / SECTOR + 1) * SECTOR).min(at + data.len());
                        if below(2) == 0 {
                            let sector = data[from - at..to - at].to_vec();
                            make(&mut bytes, &Change::Write(from, sector));
                        }
                        from = to;
                    }
                }
                Change::Cut(_) if torn && below(2) == 0 => {}
                change => make(&mut bytes, change),
            }
        }
        bytes
    }
}

fn make(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write(at, data) => {
            let end = at + data.len();
            bytes.resize(bytes.len().max(end), 0);
            bytes[*at..end].copy_from_slice(data);
        }
        Change::Cut(to) => bytes.resize(*to, 0),
    }
}

fn rename(names: &mut BTreeMap<String, usize>, naming: &Naming) {
    match naming {
        Naming::Make(name, at) => drop(names.insert(name.clone(), *at)),
        Naming::Remove(name) => drop(names.remove(name)),
        Naming::Move(from, to) => {
            if let Some(at) = names.remove(from) {
                names.insert(to.clone(), at);
            }
        }
    }
}

fn name(path: &Path) -> String {
    let name = path.file_name().expect("a file below the directory");
    name.to_string_lossy().into_owned()
}
