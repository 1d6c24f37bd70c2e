//! The members of a frame by name, matched the way v1 matches them.

use std::borrow::Cow;

use crate::json::{self, Raw, SyntaxError, Type};

/// The nine members of an envelope come first.
const ENVELOPE: u64 = (1 << (Member::Hmac as u64 + 1)) - 1;

/// The members of one object.
pub(crate) struct Members<'a> {
    /// The last value of each that is not `null` (for `body`: the last value).
    values: [Option<Raw<'a>>; NAMES],
    /// The first envelope member that should have been a string and was not.
    pub(crate) mistyped: Option<&'static str>,
    /// A member of the envelope appears twice.
    pub(crate) duplicate: bool,
    /// A member of the envelope has its name in another case.
    pub(crate) respelled: bool,
    /// A `type` that is no string appears.
    odd_type: bool,
    /// One bit for each member that appears.
    seen: u64,
}

impl<'a> Members<'a> {
    /// Scans `bytes` as one JSON value and keeps the known members if it is an object. Gives the
    /// type of the value too.
    pub(crate) fn scan(bytes: &'a [u8]) -> Result<(Self, Type), SyntaxError> {
        let mut members = Members {
            values: [None; NAMES],
            mistyped: None,
            duplicate: false,
            respelled: false,
            odd_type: false,
            seen: 0,
        };
        let top = json::members(bytes, |name, value| members.add(&name, value))?;
        Ok((members, top.kind))
    }

    pub(crate) fn of(object: &Raw<'a>) -> Option<Self> {
        let (members, kind) = Self::scan(object.text).ok()?;
        (kind == Type::Object).then_some(members)
    }

    fn add(&mut self, name: &Raw<'a>, value: Raw<'a>) {
        let Some((name, exact)) = lookup(name) else {
            return;
        };
        let bit = 1 << name as u64;
        if bit & ENVELOPE != 0 {
            self.duplicate |= self.seen & bit != 0;
            self.respelled |= !exact;
            let string = name != Member::Body;
            if string && !matches!(value.kind, Type::String | Type::Null) {
                self.mistyped = self.mistyped.or(Some(name.as_str()));
            }
        }
        self.odd_type |= name == Member::Type && !matches!(value.kind, Type::String | Type::Null);
        self.seen |= bit;
        if value.kind != Type::Null || name == Member::Body {
            self.values[name as usize] = Some(value);
        }
    }

    /// The value of a member; `null` counts as absent.
    pub(crate) fn get(&self, name: Member) -> Option<Raw<'a>> {
        self.values[name as usize]
    }

    /// The `type` of a frame; `None` when it is absent, empty or anywhere something else than a
    /// string.
    pub(crate) fn frame_type(&self) -> Option<Cow<'a, str>> {
        if self.odd_type {
            return None;
        }
        self.string(Member::Type).filter(|kind| !kind.is_empty())
    }

    /// The member appears, be it as `null`.
    pub(crate) fn has(&self, name: Member) -> bool {
        self.seen & (1 << name as u64) != 0
    }

    /// A string member; `None` when it is absent or something else.
    pub(crate) fn string(&self, name: Member) -> Option<Cow<'a, str>> {
        Some(self.get(name)?.string()?.text)
    }

    /// A string member: absent is `Some(None)`, something else is `None`.
    pub(crate) fn optional_string(&self, name: Member) -> Option<Option<Cow<'a, str>>> {
        match self.get(name) {
            None => Some(None),
            Some(raw) => Some(Some(raw.string()?.text)),
        }
    }

    /// A string member that is read as something: absent is `Some(None)`, anything else is `None`.
    pub(crate) fn parsed<T>(
        &self,
        name: Member,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<Option<T>> {
        match self.optional_string(name)? {
            None => Some(None),
            Some(text) => Some(Some(parse(&text)?)),
        }
    }

    /// A member that is true or false; absent is false, something else is `None`.
    pub(crate) fn flag(&self, name: Member) -> Option<bool> {
        self.get(name).map_or(Some(false), |raw| raw.bool())
    }

    /// A time in milliseconds since the epoch; something else counts as absent.
    pub(crate) fn time(&self, name: Member) -> Option<u64> {
        self.get(name)?.unsigned()
    }

    /// An unsigned number, cut at `u32::MAX`; absent is `default`, something else is `None`.
    pub(crate) fn number(&self, name: Member, default: u32) -> Option<u32> {
        match self.get(name) {
            None => Some(default),
            Some(raw) => Some(u32::try_from(raw.unsigned()?).unwrap_or(u32::MAX)),
        }
    }
}

/// Which member a name means, and whether it is spelled exactly so.
fn lookup(name: &Raw<'_>) -> Option<(Member, bool)> {
    let inner = &name.text[1..name.text.len() - 1];
    if let Some(found) = Member::of(inner) {
        return Some((found, true));
    }
    let odd = |b: &u8| !(b.is_ascii_lowercase() || *b == b'_');
    if !inner.iter().any(odd) {
        return None;
    }
    let text = name.string()?.text;
    if let Some(found) = Member::of(text.as_bytes()) {
        return Some((found, true));
    }
    let folded: String = text.chars().map(fold).collect();
    Some((Member::of(folded.as_bytes())?, false))
}

/// Unicode simple folding as far as it leads to ASCII letters.
fn fold(c: char) -> char {
    match c {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        _ => c.to_ascii_lowercase(),
    }
}

/// Ties each name to its spelling.
macro_rules! names {
    ($($name:ident $text:literal),* $(,)?) => {
        /// Every member name that some frame, or an object inside one, gives a meaning.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Member {
            $($name,)*
        }

        const NAMES: usize = [$($text),*].len();

        impl Member {
            fn of(bytes: &[u8]) -> Option<Self> {
                $(if bytes == $text.as_bytes() {
                    return Some(Self::$name);
                })*
                None
            }

            pub(crate) fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

names! {
    ProtocolVersion "protocol_version",
    Id "id",
    From "from",
    To "to",
    Ts "ts",
    Source "source",
    Kind "kind",
    Body "body",
    Hmac "hmac",
    Type "type",
    Token "token",
    Name "name",
    DeliveryKey "delivery_key",
    Envelope "envelope",
    Names "names",
    Ext "ext",
    Instance "instance",
    Ephemeral "ephemeral",
    Generated "generated",
    Window "window",
    Presence "presence",
    How "how",
    Path "path",
    Evidence "evidence",
    Reason "reason",
    Ids "ids",
    Peers "peers",
    Omitted "omitted",
    Receipts "receipts",
    Messages "messages",
    Bytes "bytes",
    Online "online",
    Unacked "unacked",
    AwayS "away_s",
    ActivityS "activity_s",
    State "state",
    Recipients "recipients",
    Duplicate "duplicate",
    Code "code",
    Key "key",
    At "at",
    Again "again",
    Approves "approves",
    For "for",
    WithinMs "within_ms",
    Owes "owes",
    Reply "reply",
    Renaming "renaming",
    Successor "successor",
    Action "action",
    Outcome "outcome",
    Uid "uid",
    Pid "pid",
    RequestId "request_id",
    By "by",
    Bridge "bridge",
    Domain "domain",
    Epoch "epoch",
    Mark "mark",
    After "after",
    AgeMs "age_ms",
    Join "join",
    Leave "leave",
    Groups "groups",
}
