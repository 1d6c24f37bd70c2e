//! Names that come near one that nobody has.

use peerbus_wire::escape;

/// At most three of `names` that are nearly `wanted`, nearest first.
#[must_use]
pub fn similar(names: &[String], wanted: &str) -> Vec<String> {
    let wanted = wanted.to_ascii_lowercase();
    let close = |name: &String| {
        let lower = name.to_ascii_lowercase();
        let part = wanted.len() >= 3 && (lower.contains(&wanted) || wanted.contains(&lower));
        let edits = strsim::levenshtein(&lower, &wanted);
        (part || edits <= (wanted.len() / 3).clamp(1, 3)).then(|| (edits, name.clone()))
    };
    let mut found: Vec<_> = names.iter().filter_map(close).collect();
    found.sort();
    found
        .into_iter()
        .take(3)
        .map(|(_, name)| escape(&name, 64))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_were_nearly_meant_are_offered() {
        let names = ["bob", "Bobby", "alice", "wild-wasp-3kx"].map(str::to_owned);
        assert_eq!(similar(&names, "bop"), ["bob"]);
        assert_eq!(similar(&names, "BOB"), ["bob", "Bobby"]);
        assert_eq!(similar(&names, "wasp"), ["wild-wasp-3kx"]);
        assert!(similar(&names, "zzzzzz").is_empty());
    }
}
