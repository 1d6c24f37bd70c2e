//! The session that a person or a program means by a word.

use peerbus_wire::{is_by_chance, names_id};

use crate::index::LiveSession;

impl LiveSession {
    /// The name of its node, by the numbers of its processes: no client and no agent chose it, and it stays as
    /// long as the session lives.
    #[must_use]
    pub fn node(&self) -> String {
        let stem = self.socket.file_stem().unwrap_or_default();
        stem.to_string_lossy().into_owned()
    }

    /// Whether a word that means it is an id that can be somebody's name: agents choose theirs.
    #[must_use]
    pub fn has_chosen(&self, word: &str) -> bool {
        let names = [&self.name, &self.wanted_name];
        let mut names = names.into_iter().flatten();
        let is_named = names.any(|name| name.eq_ignore_ascii_case(word));
        !is_named && self.node() != word && !is_by_chance(&self.id)
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
    // Few letters alone can be a name.
    let is_chance = word.len() >= 8 || word.bytes().any(|b| b.is_ascii_digit());
    let is_part = |id: &str| is_chance && is_by_chance(id) && names_id(word, id);
    let is_id = |id: &str| id == word || is_part(id);
    let is_taken = all.iter().any(|it| is(&it.name));
    let would_be = |it: &LiveSession| !is_taken && it.name.is_none() && is(&it.wanted_name);
    let is_it =
        |it: &&LiveSession| it.node() == word || is(&it.name) || is_id(&it.id) || would_be(it);
    let found: Vec<_> = all.iter().filter(is_it).collect();
    // No client and no agent chooses the numbers of processes.
    let mut nodes = found.iter().filter(|it| it.node() == word);
    nodes.next().map_or_else(|| found.clone(), |one| vec![*one])
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ID: &str = "0f3c9a77-1c2d-4e5f-8a9b-abcdef5e7c4f";

    /// Others that end or begin as somebody chose.
    const LIKE: &str = "00000000-1c2d-4e5f-8a9b-0000ef5e7c4f";
    const DEAD: &str = "dead0000-1c2d-4e5f-8a9b-0000ef5e7c40";

    /// A session with this node, id, name, and the name that it would have.
    fn session((node, id, name, wanted): (&str, &str, Value, Value)) -> LiveSession {
        let told = json!({ "id": id, "name": name, "wanted_name": wanted, "client": "c",
            "started_at": "2026-01-01T00:00:00Z", "socket": format!("/{node}.sock"),
            "gates": {}, "gates_file": "" });
        serde_json::from_value(told).unwrap()
    }

    #[test]
    fn nobody_is_meant_alone_by_what_another_session_is_called() {
        let (bob, none) = (json!("bob"), Value::Null);
        let victim = |name: &Value, wanted: &Value| ("1.2", ID, name.clone(), wanted.clone());
        let named = victim(&bob, &bob);
        let off = victim(&none, &bob);
        for (of, thief, word, nodes) in [
            (&named, ("3.4", "bob"), "BOB", &["1.2"][..]),
            (&named, ("3.4", "bob"), "bob", &["1.2", "3.4"]),
            (&off, ("3.4", "bob"), "bob", &["1.2", "3.4"]),
            (&off, ("3.4", LIKE), "ef5e7c4f", &["1.2", "3.4"]),
            (&off, ("3.4", "ef5e7c4f"), "ef5e7c4f", &["1.2", "3.4"]),
            (&off, ("3.4", "1.2"), "1.2", &["1.2"]),
            (&named, ("3.4", "x"), ID, &["1.2"]),
            // He is not there.
            (&named, ("3.4", "reviewer-2"), "reviewer", &[]),
            (&named, ("3.4", DEAD), "dead", &[]),
        ] {
            let thief = (thief.0, thief.1, json!("eve"), none.clone());
            let all = [session(of.clone()), session(thief)];
            let found = meant(&all, word);
            let found: Vec<_> = found.iter().map(|it| it.node()).collect();
            assert_eq!(found, nodes, "{word}");
        }
        // One that has the name goes before one that would have it.
        let all = [session(named), session(("3.4", "x", none, bob))];
        assert_eq!(meant(&all, "bob"), [&all[0]]);
        let jobs = ["job-1", "job-10"].map(|id| session((id, id, json!(id), json!(id))));
        assert_eq!(meant(&jobs, "job-1"), [&jobs[0]]);
    }
}
