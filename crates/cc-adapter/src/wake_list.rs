//! `PEERBUS_WAKE`: which ways of waking the session may be used.

use std::str::FromStr;

use peerbus_adapter::mailbox::Path;

use crate::paths::WAKING;

/// A choice of waking paths; all of them by default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WakeList(Vec<Path>);

impl WakeList {
    /// Whether this one may be used.
    #[must_use]
    pub fn allows(&self, path: Path) -> bool {
        self.0.contains(&path)
    }
}

impl Default for WakeList {
    fn default() -> Self {
        Self(WAKING.to_vec())
    }
}

impl FromStr for WakeList {
    type Err = String;

    /// Names with commas between them, or `none`.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim() == "none" {
            return Ok(Self(Vec::new()));
        }
        let name = |word: &str| {
            let known = WAKING.into_iter().find(|path| path.word == word.trim());
            known.ok_or_else(|| {
                format!(
                    "PEERBUS_WAKE has {:?}; it is a list of socket, rewake and channel with commas \
                     between them, or none",
                    peerbus_wire::neutralise(word.trim(), 40)
                )
            })
        };
        text.split(',')
            .map(name)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::{CHANNEL, REWAKE, SOCKET};

    #[test]
    fn a_list_allows_what_it_names() {
        let list: WakeList = "socket, channel".parse().unwrap();
        assert!(list.allows(&SOCKET) && list.allows(&CHANNEL));
        assert!(!list.allows(&REWAKE));
        let none: WakeList = "none".parse().unwrap();
        assert!(WAKING.iter().all(|path| !none.allows(path)));
        assert!(WAKING.iter().all(|path| WakeList::default().allows(path)));
    }

    #[test]
    fn what_is_no_path_is_named() {
        for (text, wrong) in [
            ("socket,sokcet", "sokcet"),
            ("", "\"\""),
            ("none,socket", "none"),
            ("hook", "hook"),
        ] {
            let error = text.parse::<WakeList>().unwrap_err();
            assert!(error.contains(wrong) && error.contains("rewake"), "{error}");
        }
    }
}
