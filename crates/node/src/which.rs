//! The session that a person or a program means by a word.

use peerbus_wire::names_id;

use crate::index::LiveSession;

/// Fewest characters of the beginning of an id.
const ID_PART_MIN: usize = 4;

impl LiveSession {
    /// The name of its node, by the numbers of its processes: no client and no agent chose it, and it stays as
    /// long as the session lives.
    #[must_use]
    pub fn node(&self) -> String {
        let stem = self.socket.file_stem().unwrap_or_default();
        stem.to_string_lossy().into_owned()
    }
}

/// Those of all sessions that a word means: by its node, by the name that it has or would have, by its id or a part
/// of that; one that has the name goes before those that would. Clients choose ids, and agents names: nothing is
/// done to one of several.
#[must_use]
pub fn meant<'s>(all: &'s [LiveSession], word: &str) -> Vec<&'s LiveSession> {
    let is = |name: &Option<String>| {
        let name = name.as_deref();
        name.is_some_and(|name| name.eq_ignore_ascii_case(word))
    };
    // Of `job-1` and `job-10` the first is meant by its id.
    let is_whole = all.iter().any(|it| it.id == word);
    let is_id = |id: &str| {
        let begins = !is_whole && id.starts_with(word) && word.len() >= ID_PART_MIN;
        names_id(word, id) || begins
    };
    let is_taken = all.iter().any(|it| is(&it.name));
    let would_be = |it: &LiveSession| !is_taken && it.name.is_none() && is(&it.wanted_name);
    let is_it =
        |it: &&LiveSession| it.node() == word || is(&it.name) || is_id(&it.id) || would_be(it);
    let found: Vec<_> = all.iter().filter(is_it).collect();
    // No client and no agent chooses the numbers of processes.
    let mut nodes = found.iter().filter(|it| it.node() == word);
    nodes.next().map_or_else(|| found.clone(), |one| vec![*one])
}
