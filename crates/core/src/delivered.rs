//! Peers by number, and what was delivered to one.

use std::collections::BTreeMap;
use std::fmt;

use peerbus_wire::Seq;

/// The broker's number of a peer: small, never used twice in the life of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct PeerId(pub u32);

/// The messages that were delivered to a peer, or may have been.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Delivered {
    /// The last one.
    pub to: Seq,
    /// Senders of whom some before it were not, with the first such one.
    pub except: BTreeMap<PeerId, Seq>,
}

impl Delivered {
    /// Reads its text; `None` when it is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (to, except) = text.split_once(' ').unwrap_or((text, ""));
        let except = except.split_terminator(' ').map(|pair| {
            let (sender, first) = pair.split_once(':')?;
            Some((PeerId(sender.parse().ok()?), Seq(first.parse().ok()?)))
        });
        Some(Self {
            to: Seq(to.parse().ok()?),
            except: except.collect::<Option<_>>()?,
        })
    }

    /// Whether a message of `sender` that is pending was delivered, or may have been.
    #[must_use]
    pub fn covers(&self, sender: PeerId, seq: Seq) -> bool {
        seq <= self.to && self.except.get(&sender).is_none_or(|first| seq < *first)
    }

    /// Adds what was delivered otherwise.
    pub fn merge(&mut self, other: &Self) {
        let to = self.to.max(other.to);
        let end = |delivered: &Self, sender: &PeerId| {
            let after = Seq(delivered.to.0.saturating_add(1));
            delivered.except.get(sender).copied().unwrap_or(after)
        };
        let senders = self.except.keys().chain(other.except.keys());
        let except = senders
            .map(|sender| (*sender, end(self, sender).max(end(other, sender))))
            .filter(|(_, first)| *first <= to)
            .collect();
        *self = Self { to, except };
    }
}

/// The last one, then `sender:first` for each exception: as a store keeps it.
impl fmt::Display for Delivered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.to.0)?;
        let mut except = self.except.iter();
        except.try_for_each(|(sender, first)| write!(f, " {}:{}", sender.0, first.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivered(to: u64, except: &[(u32, u64)]) -> Delivered {
        let except = except.iter().map(|(peer, seq)| (PeerId(*peer), Seq(*seq)));
        Delivered {
            to: Seq(to),
            except: except.collect(),
        }
    }

    #[test]
    fn its_text_says_all() {
        for one in [delivered(0, &[]), delivered(9, &[(1, 3), (7, 8)])] {
            assert_eq!(Delivered::parse(&one.to_string()), Some(one));
        }
        for other in ["", "x", "9 1", "9 1:", "9 1:2 x:3"] {
            assert_eq!(Delivered::parse(other), None, "{other}");
        }
    }

    #[test]
    fn merged_is_what_either_had() {
        let all = [
            delivered(0, &[]),
            delivered(5, &[]),
            delivered(9, &[(1, 3)]),
            delivered(7, &[(1, 6), (2, 1)]),
            delivered(9, &[(2, 4)]),
        ];
        for (a, b) in all.iter().flat_map(|a| all.iter().map(move |b| (a, b))) {
            let mut merged = a.clone();
            merged.merge(b);
            for (peer, seq) in (1..4).flat_map(|peer| (1..12).map(move |seq| (peer, seq))) {
                let (peer, seq) = (PeerId(peer), Seq(seq));
                let either = a.covers(peer, seq) || b.covers(peer, seq);
                assert_eq!(
                    merged.covers(peer, seq),
                    either,
                    "{a:?} {b:?} {peer:?} {seq:?}"
                );
            }
        }
    }
}
