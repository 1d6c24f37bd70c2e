//! What a message says of the conversation that it belongs to.
//!
//! Members of the body, beside the sender's own: so the signature covers them, a broker need not
//! know them, and a v1 client sees them as they are.

use crate::ids::MessageId;
use crate::json::{self, Raw, Type};
use crate::limits::{
    META_BYTES_MAX, META_KEY_BYTES_MAX, META_MAX, WITHIN_MS_DEFAULT, WITHIN_MS_MAX,
};
use crate::writer::Writer;

const REPLY_TO: &str = "reply_to";
const THREAD: &str = "thread";
const PRIORITY: &str = "priority";
const HOPS: &str = "hops";
/// Where it comes from, in its sender's words.
const META: &str = "meta";
/// What it wants of its recipient besides being seen: [`RESULT`], or [`NOTHING`].
const WANTS: &str = "wants";
const RESULT: &str = "result";
const NOTHING: &str = "nothing";
/// Until when, in milliseconds from when it was accepted.
const WITHIN: &str = "within_ms";
/// What became of the request that it answers: [`FAILED`], or else it is done.
const OUTCOME: &str = "outcome";
const FAILED: &str = "failed";

/// How soon a message wants to be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Never starts a turn: it is handed over with the next thing that is shown.
    Quiet,
    /// Wakes an idle agent; at the next opportunity of a busy one.
    #[default]
    Next,
    /// As soon as it can be without disturbing what runs.
    Now,
}

impl Priority {
    /// The words, soonest first.
    pub const WORDS: [&str; 3] = ["now", "next", "quiet"];

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Next => "next",
            Self::Now => "now",
        }
    }

    /// Reads one of [`Priority::WORDS`].
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        let all = [Self::Quiet, Self::Next, Self::Now];
        all.into_iter().find(|priority| priority.as_str() == word)
    }
}

/// A message's place in a conversation, and its sender's wish.
///
/// ```
/// use peerbus_wire::{Conversation, MessageId, Priority};
/// let question = Conversation::of(r#"{"text":"ready?","priority":"now"}"#);
/// assert_eq!(question.priority, Priority::Now);
///
/// let id = MessageId::parse("0a1b")?;
/// let answer = Conversation::reply(&id, &question).write(r#""yes""#);
/// assert_eq!(answer, r#"{"text":"yes","reply_to":"0a1b","thread":"0a1b","hops":1}"#);
/// # Ok::<(), peerbus_wire::IdError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Conversation {
    /// The message that this one answers.
    pub reply_to: Option<MessageId>,
    /// The conversation: a text of the form of a message id, as a rule the id of its first message.
    pub thread: Option<String>,
    /// How soon it wants to be seen.
    pub priority: Priority,
    /// How many replies led here.
    pub hops: u32,
    /// Where it comes from, in its sender's words, such as a webhook's method and path: at most
    /// [`META_MAX`] texts, each under a key of `[A-Za-z0-9_]+`, all of them [`META_BYTES_MAX`] bytes
    /// at most.
    pub meta: Vec<(String, String)>,
    /// It is a request: it wants a result within so many milliseconds, at most [`WITHIN_MS_MAX`].
    pub within_ms: Option<u64>,
    /// It wants no answer: its sender was a command, and nobody is there for one. A request is not
    /// so.
    pub unanswered: bool,
    /// What was wanted of its sender by the request that it answers did not succeed.
    pub failed: bool,
}

impl Conversation {
    /// Reads what a body (JSON text) says. A member of the wrong type or form says nothing; of
    /// members with one name the last counts.
    #[must_use]
    pub fn of(body: &str) -> Self {
        let mut found = Self::default();
        let (mut wants, mut within_ms) = (None, WITHIN_MS_DEFAULT);
        let read = json::members(body.as_bytes(), |name, value| {
            let Some(name) = name.string() else { return };
            let said = || value.string().map(|said| said.text);
            match &*name.text {
                REPLY_TO => found.reply_to = said().and_then(|id| MessageId::parse(&id).ok()),
                THREAD => found.thread = said().and_then(|thread| thread_of(&thread)),
                PRIORITY => {
                    let priority = said().and_then(|word| Priority::parse(&word));
                    found.priority = priority.unwrap_or_default();
                }
                HOPS => {
                    let hops = value.unsigned().unwrap_or_default();
                    found.hops = u32::try_from(hops).unwrap_or(u32::MAX);
                }
                META => found.meta = meta_of(value).unwrap_or_default(),
                WANTS => wants = said(),
                WITHIN => within_ms = within_of(value.unsigned()).unwrap_or(WITHIN_MS_DEFAULT),
                OUTCOME => found.failed = said().is_some_and(|word| word == FAILED),
                _ => {}
            }
        });
        found.within_ms = (wants.as_deref() == Some(RESULT)).then_some(within_ms);
        found.unanswered = wants.as_deref() == Some(NOTHING);
        read.map(|_| found).unwrap_or_default()
    }

    /// A reply to the message `id`, which said `of` itself.
    #[must_use]
    pub fn reply(id: &MessageId, of: &Self) -> Self {
        let thread = of.thread.clone().unwrap_or_else(|| id.as_str().to_owned());
        Self {
            reply_to: Some(id.clone()),
            thread: Some(thread),
            priority: Priority::default(),
            hops: of.hops.saturating_add(1),
            ..Self::default()
        }
    }

    /// `body` (JSON text) that says this, and of everything else what it said, byte for byte: a
    /// string goes into the member `text` of an object, an object keeps its members, any other
    /// value goes into the member `content`. A body that says this already is not touched, nor is
    /// one that is not JSON.
    #[must_use]
    pub fn write(&self, body: &str) -> String {
        let there = Self::of(body);
        if there == *self {
            return body.to_owned();
        }
        let changed = |name: &str| match name {
            REPLY_TO => there.reply_to != self.reply_to,
            THREAD => there.thread != self.thread,
            PRIORITY => there.priority != self.priority,
            HOPS => there.hops != self.hops,
            META => there.meta != self.meta,
            WITHIN => there.within_ms != self.within_ms,
            WANTS => there.wants() != self.wants(),
            OUTCOME => there.failed != self.failed,
            _ => false,
        };
        let mut out = Writer::open();
        let read = json::members(body.as_bytes(), |name, value| {
            let own = name.string().is_some_and(|name| changed(&name.text));
            if !own {
                out.keep(name.text, value.text);
            }
        });
        let Ok(top) = read else {
            return body.to_owned();
        };
        match top.kind {
            Type::Object => &mut out,
            Type::String => out.raw("text", top.text),
            _ => out.raw("content", top.text),
        };
        if let Some(id) = self.reply_to.as_ref().filter(|_| changed(REPLY_TO)) {
            out.string(REPLY_TO, id.as_str());
        }
        if let Some(thread) = self.thread.as_deref().filter(|_| changed(THREAD)) {
            // Any other text would not be read back.
            if thread_of(thread).is_some() {
                out.string(THREAD, thread);
            }
        }
        if changed(PRIORITY) && self.priority != Priority::default() {
            out.string(PRIORITY, self.priority.as_str());
        }
        if changed(HOPS) && self.hops > 0 {
            out.number(HOPS, self.hops.into());
        }
        // Anything else would not be read back.
        if changed(META) && !self.meta.is_empty() && is_meta(&self.meta) {
            out.name(META).begin(b'{');
            for (key, value) in &self.meta {
                out.string(key, value);
            }
            out.end(b'}');
        }
        if let Some(word) = self.wants().filter(|_| changed(WANTS)) {
            out.string(WANTS, word);
        }
        if let Some(within_ms) = self.within_ms.filter(|_| changed(WITHIN)) {
            out.number(WITHIN, within_ms);
        }
        if changed(OUTCOME) && self.failed {
            out.string(OUTCOME, FAILED);
        }
        out.finish()
    }

    /// The word for what it wants besides being seen.
    const fn wants(&self) -> Option<&'static str> {
        match self.within_ms {
            Some(_) => Some(RESULT),
            None if self.unanswered => Some(NOTHING),
            None => None,
        }
    }
}

/// A time for a result that may be said.
pub(crate) fn within_of(ms: Option<u64>) -> Option<u64> {
    ms.filter(|ms| (1..=WITHIN_MS_MAX).contains(ms))
}

/// A thread has the form of an id, so that it can be one and can stand anywhere.
fn thread_of(text: &str) -> Option<String> {
    MessageId::parse(text).ok().map(|_| text.to_owned())
}

/// The texts of a member `meta`; `None` when it is something else.
fn meta_of(value: Raw<'_>) -> Option<Vec<(String, String)>> {
    if value.kind != Type::Object {
        return None;
    }
    let mut texts = Some(Vec::new());
    let read = json::members(value.text, |name, value| {
        let text = name.string().zip(value.string());
        let text = text.map(|(name, value)| (name.text.into_owned(), value.text.into_owned()));
        match (&mut texts, text) {
            (Some(texts), Some(text)) if texts.len() < META_MAX => texts.push(text),
            _ => texts = None,
        }
    });
    read.ok()?;
    texts.filter(|texts| is_meta(texts))
}

fn is_meta(texts: &[(String, String)]) -> bool {
    let fits = |key: &str| {
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        (1..=META_KEY_BYTES_MAX).contains(&key.len()) && key.bytes().all(letter)
    };
    let keys = |upto: usize| texts[..upto].iter().map(|(key, _)| key);
    let mut own = texts.iter().enumerate().map(|(at, (key, _))| (at, key));
    let bytes: usize = texts
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum();
    texts.len() <= META_MAX
        && bytes <= META_BYTES_MAX
        && own.all(|(at, key)| fits(key) && keys(at).all(|other| other != key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> MessageId {
        MessageId::parse(text).unwrap()
    }

    fn full() -> Conversation {
        Conversation {
            reply_to: Some(id("q1")),
            thread: Some("t-1".into()),
            priority: Priority::Quiet,
            hops: 3,
            meta: vec![
                ("method".into(), "POST".into()),
                ("path".into(), "/h \"é\"".into()),
            ],
            within_ms: Some(90_000),
            unanswered: false,
            failed: true,
        }
    }

    #[test]
    fn each_kind_of_body_can_carry_it_and_keeps_its_spelling() {
        const SAID: &str = concat!(
            r#""reply_to":"q1","thread":"t-1","priority":"quiet","hops":3,"#,
            r#""meta":{"method":"POST","path":"/h \"é\""},"#,
            r#""wants":"result","within_ms":90000,"outcome":"failed""#
        );
        let cases = [
            (r#""hi \u00e9 \"x\"""#, r#"{"text":"hi \u00e9 \"x\"","#),
            (
                r#"{"n":1.50,"big":1e400,"n":2}"#,
                r#"{"n":1.50,"big":1e400,"n":2,"#,
            ),
            ("{}", "{"),
            (" { \"a\" : [ 1.0 , {} ] } ", r#"{"a":[ 1.0 , {} ],"#),
            ("[1.0, 2]", r#"{"content":[1.0, 2],"#),
            (
                "12345678901234567890.10",
                r#"{"content":12345678901234567890.10,"#,
            ),
            ("null", r#"{"content":null,"#),
            (
                r#"{"text":"a","priority":"now","hops":9}"#,
                r#"{"text":"a","#,
            ),
            (
                r#"{"reply_t\u006f":"q9","x":1,"reply_to":"q8"}"#,
                r#"{"x":1,"#,
            ),
        ];
        for (body, beginning) in cases {
            let written = full().write(body);
            assert_eq!(written, format!("{beginning}{SAID}}}"), "{body}");
            assert_eq!(Conversation::of(&written), full(), "{body}");
            assert_eq!(
                full().write(&written),
                written,
                "writing it again changes nothing"
            );
        }
    }

    #[test]
    fn a_body_is_not_touched_when_there_is_nothing_to_say() {
        let plain = Conversation::default();
        for body in [
            r#""hi""#,
            "[1]",
            "7",
            "null",
            r#"{"a": 1.0}"#,
            "{nonsense",
            "",
        ] {
            assert_eq!(plain.write(body), body);
        }
        // A program's own member of that name that means something else.
        let own = r#"{"priority": 3, "thread": ["x"], "reply_to": "a b", "hops": -1}"#;
        assert_eq!(Conversation::of(own), plain);
        assert_eq!(plain.write(own), own);
        assert_eq!(full().write("{nonsense"), "{nonsense");
    }

    #[test]
    fn only_what_differs_is_replaced() {
        let body = r#"{"reply_to":"q1","thread":5,"priority":"now","priority":"quiet","x":0}"#;
        let mut said = Conversation::of(body);
        assert_eq!(said.priority, Priority::Quiet, "the last one counts");
        said.priority = Priority::Next;
        assert_eq!(said.write(body), r#"{"reply_to":"q1","thread":5,"x":0}"#);
        said.hops = 1;
        let with_hops = r#"{"reply_to":"q1","thread":5,"x":0,"hops":1}"#;
        assert_eq!(said.write(body), with_hops);
    }

    #[test]
    fn a_message_of_nobody_who_waits_says_so_and_a_request_never_does() {
        let plain = Conversation {
            unanswered: true,
            ..Conversation::default()
        };
        let written = plain.write(r#""hi""#);
        assert_eq!(written, r#"{"text":"hi","wants":"nothing"}"#);
        assert_eq!(Conversation::of(&written), plain);
        let asks = Conversation {
            within_ms: Some(5),
            ..plain
        };
        let asked = asks.write(&written);
        assert_eq!(asked, r#"{"text":"hi","wants":"result","within_ms":5}"#);
        assert!(!Conversation::of(&asked).unanswered);
        let other = Conversation::of(r#"{"wants":"more"}"#);
        assert_eq!(other, Conversation::default());
    }

    #[test]
    fn reading_is_lenient() {
        let long = format!(r#"{{"thread":"{}","reply_to":"{0}"}}"#, "x".repeat(129));
        let entries: Vec<_> = (0..=META_MAX).map(|n| format!(r#""k{n}":"""#)).collect();
        let many = format!(r#"{{"meta":{{{}}}}}"#, entries.join(","));
        let wide = format!(r#"{{"meta":{{"k":"{}"}}}}"#, "x".repeat(META_BYTES_MAX));
        let nothing = [
            r#""reply_to""#,
            r#"["reply_to","q1"]"#,
            r#"{"nested":{"reply_to":"q1","hops":2}}"#,
            r#"{"reply_to":null,"thread":"","priority":"NOW","hops":"3"}"#,
            r#"{"reply_to":"a\nb","thread":"<t>","priority":1,"hops":1.5}"#,
            r#"{"Reply_To":"q1","HOPS":2}"#,
            r#"{"hops":7,"hops":true}"#,
            r#"{"hops":7"#,
            r#"{"meta":5}"#,
            r#"{"meta":{"a":5}}"#,
            r#"{"meta":{"a-b":"x"}}"#,
            r#"{"meta":{"":"x"}}"#,
            r#"{"meta":{"a":"x","a":"y"}}"#,
            r#"{"meta":{"a":{"b":"c"}}}"#,
            &long,
            &many,
            &wide,
        ];
        for body in nothing {
            assert_eq!(Conversation::of(body), Conversation::default(), "{body}");
        }
        let most = Conversation::of(r#"{"hops":99999999999999999999999}"#);
        assert_eq!(most.hops, u32::MAX);
        assert_eq!(Conversation::reply(&id("a"), &most).hops, u32::MAX);
    }

    #[test]
    fn a_reply_stays_in_its_thread() {
        let first = Conversation::reply(&id("q1"), &Conversation::default());
        assert_eq!((first.thread.as_deref(), first.hops), (Some("q1"), 1));
        let second = Conversation::reply(&id("a1"), &first);
        assert_eq!((second.thread.as_deref(), second.hops), (Some("q1"), 2));
        assert_eq!(second.reply_to, Some(id("a1")));
        let odd = Conversation {
            thread: Some("no \"thread\"".into()),
            ..Conversation::default()
        };
        assert_eq!(
            odd.write("1"),
            r#"{"content":1}"#,
            "nothing can be smuggled in"
        );
    }
}
