//! `PEERBUS_WAKE`, which says those ways of waking a session that may be used.

use std::collections::BTreeSet;

use super::Path;

/// A choice of waking paths; all of them by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WakeList(Option<BTreeSet<&'static str>>);

impl WakeList {
    /// Whether this one may be used.
    #[must_use]
    pub fn allows(&self, path: Path) -> bool {
        let Self(words) = self;
        words.as_ref().is_none_or(|words| words.contains(path.word))
    }

    /// Reads words of paths with commas between them, or `none`. What is empty is the default.
    ///
    /// One setting serves sessions of every agent: a word that is another agent's says nothing.
    ///
    /// # Errors
    ///
    /// A sentence, for a word that none of the `known` paths has.
    pub fn read(text: &str, known: &[Path]) -> Result<Self, String> {
        match text.trim() {
            "" => return Ok(Self(None)),
            "none" => return Ok(Self(Some(BTreeSet::new()))),
            _ => {}
        }
        let word = |word: &str| {
            let word = word.trim();
            let known_words = || known.iter().map(|path| path.word);
            known_words().find(|known| *known == word).ok_or_else(|| {
                format!(
                    "PEERBUS_WAKE has {:?}; it is a list of {} with commas between them, or none",
                    peerbus_wire::escape(word, 40),
                    listed(known_words())
                )
            })
        };
        let words: Result<_, _> = text.split(',').map(word).collect();
        words.map(|words| Self(Some(words)))
    }
}

/// Each word once, as a sentence lists them.
fn listed(words: impl Iterator<Item = &'static str>) -> String {
    let mut each = Vec::new();
    for word in words {
        if !each.contains(&word) {
            each.push(word);
        }
    }
    match each.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        Some((only, _)) => (*only).to_owned(),
        None => "nothing".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::PathSpec;
    use super::*;

    static SOCKET: PathSpec = PathSpec {
        word: "socket",
        ..PathSpec::waking(0)
    };
    static OTHER_SOCKET: PathSpec = PathSpec {
        word: "socket",
        ..PathSpec::waking(7)
    };
    static CHANNEL: PathSpec = PathSpec {
        word: "channel",
        ..PathSpec::waking(0)
    };
    static KNOWN: [Path; 3] = [&SOCKET, &OTHER_SOCKET, &CHANNEL];

    #[test]
    fn a_list_allows_what_it_names_of_whichever_agent() {
        let list = WakeList::read("socket, channel", &KNOWN).unwrap();
        assert!(KNOWN.iter().all(|path| list.allows(path)));
        let list = WakeList::read("socket", &KNOWN).unwrap();
        assert!(list.allows(&SOCKET) && list.allows(&OTHER_SOCKET) && !list.allows(&CHANNEL));
        let none = WakeList::read("none", &KNOWN).unwrap();
        assert!(KNOWN.iter().all(|path| !none.allows(path)));
        for all in ["", " "] {
            assert_eq!(WakeList::read(all, &KNOWN), Ok(WakeList::default()));
        }
        assert!(KNOWN.iter().all(|path| WakeList::default().allows(path)));
    }

    #[test]
    fn what_is_no_path_is_named() {
        for (text, wrong) in [
            ("socket,sokcet", "sokcet"),
            (",", "\"\""),
            ("none,socket", "none"),
            ("hook", "hook"),
        ] {
            let error = WakeList::read(text, &KNOWN).unwrap_err();
            let names = error.contains("a list of socket and channel with");
            assert!(error.contains(wrong) && names, "{error}");
        }
    }
}
