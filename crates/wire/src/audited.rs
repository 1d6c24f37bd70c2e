//! What a peer says was done to its session from outside, and a bridge of what it did not let in: a
//! record for the broker's audit chain.

use crate::limits::AUDIT_TEXT_BYTES_MAX;
use crate::members::{Member, Members};
use crate::text::cut;
use crate::writer::Writer;

/// What somebody did, or tried to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditAction {
    /// A text was put in.
    Inject,
    /// What the session does was interrupted.
    Interrupt,
    /// A request for approval was decided.
    Approve,
    /// The client was told to work otherwise: another model, another mode, or to end.
    Control,
    /// A message from another domain was not let in.
    Admit,
}

impl AuditAction {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Inject,
        Self::Interrupt,
        Self::Approve,
        Self::Control,
        Self::Admit,
    ];

    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Inject => "inject",
            Self::Interrupt => "interrupt",
            Self::Approve => "approve",
            Self::Control => "control",
            Self::Admit => "admit",
        }
    }
}

/// One action. The texts are untrusted; on the wire each has at most
/// [`AUDIT_TEXT_BYTES_MAX`] bytes, and longer ones are cut with `…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecord {
    /// Its kind.
    pub action: AuditAction,
    /// What came of it: `done`, `refused`, `failed`, or the decision (`_changed` behind it: something
    /// else was to happen); what control did.
    pub outcome: String,
    /// The user of the process that asked; `None`: it was no process of this machine.
    pub uid: Option<u32>,
    /// That process' number, where the system told.
    pub pid: Option<u32>,
    /// What the program that asked calls itself, or for [`AuditAction::Admit`] why not; empty: it did
    /// not say.
    pub source: String,
    /// The request that was decided, or the message's id; empty: none.
    pub request_id: String,
    /// Who decided it: `terminal`, `node`, `peer:NAME`, `timeout`, `client`; empty: nobody.
    pub by: String,
}

impl AuditRecord {
    /// An action of which nothing else is known.
    #[must_use]
    pub fn new(action: AuditAction, outcome: impl Into<String>) -> Self {
        Self {
            action,
            outcome: outcome.into(),
            uid: None,
            pid: None,
            source: String::new(),
            request_id: String::new(),
            by: String::new(),
        }
    }

    /// `None` when a member is missing, unknown or of the wrong type.
    pub(crate) fn read(members: &Members<'_>) -> Option<Self> {
        let word = members.string(Member::Action)?;
        let text = |name| {
            let text = members.optional_string(name)?.unwrap_or_default();
            Some(cut(&text, AUDIT_TEXT_BYTES_MAX).into_owned())
        };
        let number = |name| match members.get(name) {
            None => Some(None),
            Some(raw) => Some(Some(u32::try_from(raw.unsigned()?).ok()?)),
        };
        let outcome = text(Member::Outcome)?;
        Some(Self {
            action: AuditAction::ALL
                .into_iter()
                .find(|one| one.word() == word)?,
            outcome: (!outcome.is_empty()).then_some(outcome)?,
            uid: number(Member::Uid)?,
            pid: number(Member::Pid)?,
            source: text(Member::Source)?,
            request_id: text(Member::RequestId)?,
            by: text(Member::By)?,
        })
    }

    pub(crate) fn write(&self, writer: &mut Writer) {
        let text = |writer: &mut Writer, name, text: &str| {
            if !text.is_empty() {
                writer.string(name, &cut(text, AUDIT_TEXT_BYTES_MAX));
            }
        };
        writer.string("action", self.action.word());
        text(writer, "outcome", &self.outcome);
        writer
            .some_number("uid", self.uid.map(u64::from))
            .some_number("pid", self.pid.map(u64::from));
        text(writer, "source", &self.source);
        text(writer, "request_id", &self.request_id);
        text(writer, "by", &self.by);
    }
}
