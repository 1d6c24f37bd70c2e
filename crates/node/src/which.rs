//! Which session a person or a program means by a word.

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

/// Those of all sessions that a word means: the one with this node; where there is none, those with this name or
/// this id, or whose id begins so; where there is none, those that would have the name. Clients choose ids, and
/// agents names: nothing is done to one of several.
#[must_use]
pub fn meant<'s>(all: &'s [LiveSession], word: &str) -> Vec<&'s LiveSession> {
    let is = |name: &Option<String>| {
        let name = name.as_deref();
        name.is_some_and(|name| name.eq_ignore_ascii_case(word))
    };
    let is_whole = all.iter().any(|it| it.id == word);
    let is_id = |id: &str| match is_whole {
        true => id == word,
        false => (id.starts_with(word) && word.len() >= ID_PART_MIN) || names_id(word, id),
    };
    let ways: [&dyn Fn(&LiveSession) -> bool; 3] = [
        &|it| it.node() == word,
        &|it| is(&it.name) || is_id(&it.id),
        &|it| it.name.is_none() && is(&it.wanted_name),
    ];
    let found = |is_it: &&dyn Fn(&LiveSession) -> bool| -> Vec<_> {
        all.iter().filter(|it| is_it(it)).collect()
    };
    let found = ways.iter().map(found).find(|found| !found.is_empty());
    found.unwrap_or_default()
}
