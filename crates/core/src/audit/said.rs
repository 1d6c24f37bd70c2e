//! Lines of the chain about peers' sessions, as those said it, and about machines that asked to be let in.

/// A line about a session, or about an invitation. Its texts are words without spaces, in which what could not stand in
/// one is `_`; `source` is escaped like any untrusted text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditRemark<'a> {
    /// Something was done to it, or tried.
    Record {
        /// The peer's name then.
        name: &'a str,
        /// What it was.
        action: &'a str,
        /// What came of it.
        outcome: &'a str,
        /// The user and the process that asked; `None`: not told.
        uid: Option<u32>,
        /// See `uid`.
        pid: Option<u32>,
        /// Who decided it.
        by: Option<&'a str>,
        /// The request that was decided.
        request: Option<&'a str>,
        /// What the program that asked called itself; may be empty.
        source: &'a str,
    },
    /// So many more records came than are written down.
    Excess {
        /// The peer's name then.
        name: &'a str,
        /// How many.
        records: u64,
    },
    /// A machine asked to be let in by an invitation.
    Join {
        /// Its name; `None`: no invitation has that secret.
        name: Option<&'a str>,
        /// `joined`, or why not.
        outcome: &'a str,
        /// The machine's address; `None`: not known.
        from: Option<&'a str>,
    },
    /// So many more did.
    Joins {
        /// How many.
        tries: u64,
    },
}

impl<'a> AuditRemark<'a> {
    /// Reads a line of a block; `None`: it is about something else.
    #[must_use]
    pub fn read(line: &'a str) -> Option<Self> {
        let mut words = line.splitn(10, ' ');
        let kind = words.next()?;
        let word = |text: &'a str| (text != "-").then_some(text);
        match kind {
            "I" => {
                return Some(Self::Join {
                    name: word(words.next()?),
                    outcome: words.next()?,
                    from: word(words.next()?),
                });
            }
            "J" => {
                let tries = words.next()?.parse().ok()?;
                return Some(Self::Joins { tries });
            }
            _ => {}
        }
        let (_peer, name) = (words.next()?, words.next()?);
        let number = |text: &'a str| text.parse().ok();
        match kind {
            "S" => Some(Self::Record {
                name,
                action: words.next()?,
                outcome: words.next()?,
                uid: number(words.next()?),
                pid: number(words.next()?),
                by: word(words.next()?),
                request: word(words.next()?),
                source: words.next()?,
            }),
            "U" => Some(Self::Excess {
                name,
                records: words.next()?.parse().ok()?,
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use peerbus_wire::{AuditAction, AuditRecord};

    use super::*;
    use crate::audit::AuditLog;
    use crate::store::PeerId;

    #[test]
    fn what_a_peer_says_stays_in_its_line_and_is_read_again() {
        let peer = PeerId(7);
        let record = AuditRecord {
            uid: Some(1000),
            source: "my tool\nA 1 2 x 1 -\u{202e}".into(),
            by: "peer:phone".into(),
            request_id: "a b\nc".into(),
            ..AuditRecord::new(AuditAction::Approve, "allow")
        };
        let mut log = AuditLog::default();
        let name = "bob";
        log.remark(peer, name, &record);
        log.excess(peer, name, 12);
        let lines: Vec<_> = log.lines.lines().collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        let said = AuditRemark::Record {
            name,
            action: "approve",
            outcome: "allow",
            uid: Some(1000),
            pid: None,
            by: Some("peer:phone"),
            request: Some("a_b_c"),
            source: r"my tool\u000aA 1 2 x 1 -\u202e",
        };
        assert_eq!(AuditRemark::read(lines[0]), Some(said));
        let records = 12;
        assert_eq!(
            AuditRemark::read(lines[1]),
            Some(AuditRemark::Excess { name, records })
        );
        assert_eq!(AuditRemark::read("R 7 bob"), None);
    }

    #[test]
    fn who_asks_to_be_let_in_is_told_with_what_came_of_it() {
        let mut log = AuditLog::default();
        log.join(Some("laptop"), "joined", "192.0.2.7");
        log.join(None, "unknown", "2001:db8::7\nA 1 2");
        log.more_joins(3);
        let lines: Vec<_> = log.lines.lines().map(AuditRemark::read).collect();
        let join = |name, outcome, from| {
            let from = Some(from);
            Some(AuditRemark::Join {
                name,
                outcome,
                from,
            })
        };
        let joined = join(Some("laptop"), "joined", "192.0.2.7");
        let stranger = join(None, "unknown", "2001:db8::7_A_1_2");
        let more = Some(AuditRemark::Joins { tries: 3 });
        assert_eq!(lines, [joined, stranger, more]);
    }
}
