//! Arguments of a tool call, undecoded.

use std::collections::BTreeMap;
use std::sync::Arc;

use peerbus_wire::escape;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// Whole numbers up to this have a double of their own.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// The members of a call's `arguments`, each as the JSON text that came: a message body is sent
/// as the client spelled it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Arguments {
    members: Arc<BTreeMap<String, Box<RawValue>>>,
    /// Something in the call was replaced by what every reader of JSON takes.
    pub(crate) replaced: bool,
}

impl Arguments {
    /// The JSON text of a member; `None` when it is absent.
    pub(crate) fn json(&self, name: &str) -> Option<&str> {
        self.members.get(name).map(|value| value.get())
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.members.keys().map(String::as_str)
    }

    fn given(&self, name: &str) -> Option<&str> {
        self.json(name).filter(|json| *json != "null")
    }

    /// A member that must be a string. What is wrong is said, here and below, in a sentence that names the
    /// member and what was found.
    pub(crate) fn string(&self, name: &str) -> Result<String, String> {
        let Some(json) = self.json(name) else {
            return Err(format!(
                "the argument {name} is missing; it must be a string"
            ));
        };
        serde_json::from_str(json).map_err(|_| wrong(name, "a string", json))
    }

    /// A member that may be absent and else must be a positive whole number. A number in a
    /// string, as some clients send it, counts.
    pub(crate) fn count(&self, name: &str) -> Result<Option<usize>, String> {
        match self.given(name).map(|json| (whole(json), json)) {
            None => Ok(None),
            Some((Some(count), _)) if count > 0 => Ok(Some(count)),
            Some((_, json)) if json.len() <= 24 => Err(format!(
                "the argument {name} must be a whole number from 1, got {}",
                escape(json, 24)
            )),
            Some((_, json)) => Err(wrong(name, "a whole number from 1", json)),
        }
    }

    /// A member that may be absent and else must be a list of strings. One string counts as a list
    /// of one; one that holds the JSON of a list, as some clients send it, as that list.
    pub(crate) fn strings(&self, name: &str) -> Result<Option<Vec<String>>, String> {
        let Some(json) = self.given(name) else {
            return Ok(None);
        };
        if let Ok(one) = serde_json::from_str::<String>(json) {
            let list = serde_json::from_str(&one);
            return Ok(Some(list.unwrap_or_else(|_| vec![one])));
        }
        let list = serde_json::from_str(json).map(Some);
        list.map_err(|_| wrong(name, "a list of strings", json))
    }

    /// A member that may be absent and else must be a whole number, 0 included.
    pub(crate) fn offset(&self, name: &str) -> Result<Option<usize>, String> {
        let wrong = |json| wrong(name, "a whole number from 0", json);
        let number = |json| whole(json).ok_or_else(|| wrong(json));
        self.given(name).map(number).transpose()
    }

    /// A member that may be absent, which is false, and else must be true or false.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, String> {
        match self.json(name).map(|json| json.trim_matches('"')) {
            None | Some("null" | "false") => Ok(false),
            Some("true") => Ok(true),
            Some(json) => Err(wrong(name, "true or false", json)),
        }
    }
}

fn wrong(name: &str, wanted: &str, json: &str) -> String {
    format!("the argument {name} must be {wanted}, got {}", kind(json))
}

/// An argument that a tool has, as its client is shown it.
pub(crate) struct Argument {
    pub(crate) name: &'static str,
    kind: ArgumentKind,
    /// Empty where its name says enough.
    description: &'static str,
    required: bool,
}

/// What an argument has to be. More than that is taken.
pub(crate) enum ArgumentKind {
    Text,
    Word(&'static [&'static str]),
    /// At most so many texts.
    Texts(Option<usize>),
    /// A whole number in these bounds.
    Whole(usize, Option<usize>),
    Flag,
}

impl Argument {
    pub(crate) const fn new(
        name: &'static str,
        kind: ArgumentKind,
        description: &'static str,
    ) -> Self {
        Self {
            name,
            kind,
            description,
            required: false,
        }
    }

    pub(crate) const fn required(
        name: &'static str,
        kind: ArgumentKind,
        says: &'static str,
    ) -> Self {
        let mut argument = Self::new(name, kind, says);
        argument.required = true;
        argument
    }

    fn schema(&self) -> Value {
        let mut schema = match self.kind {
            ArgumentKind::Text => json!({ "type": "string" }),
            ArgumentKind::Word(words) => json!({ "type": "string", "enum": words }),
            ArgumentKind::Texts(_) => json!({ "type": "array", "items": { "type": "string" } }),
            ArgumentKind::Whole(least, _) => json!({ "type": "integer", "minimum": least }),
            ArgumentKind::Flag => json!({ "type": "boolean" }),
        };
        match self.kind {
            ArgumentKind::Texts(Some(most)) => schema["maxItems"] = most.into(),
            ArgumentKind::Whole(_, Some(most)) => schema["maximum"] = most.into(),
            _ => {}
        }
        if !self.description.is_empty() {
            schema["description"] = self.description.into();
        }
        schema
    }
}

/// The JSON Schema of a tool's arguments.
pub(crate) fn schema(arguments: &[Argument]) -> Map<String, Value> {
    let members = arguments.iter().map(|it| (it.name.to_owned(), it.schema()));
    let required = arguments.iter().filter(|it| it.required);
    let required: Vec<_> = required.map(|it| it.name).collect();
    let mut schema = Map::from_iter([
        ("type".to_owned(), "object".into()),
        ("properties".to_owned(), Value::Object(members.collect())),
    ]);
    if !required.is_empty() {
        schema.insert("required".to_owned(), required.into());
    }
    schema
}

impl<'de> Deserialize<'de> for Arguments {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let members = BTreeMap::<String, Box<RawValue>>::deserialize(deserializer)
            .map_err(|error| serde::de::Error::custom(format!("arguments: {error}")))?;
        Ok(Self {
            members: Arc::new(members),
            replaced: false,
        })
    }
}

/// A whole number from 0, or one in a string. To JSON Schema `5.0` is one, too.
fn whole(json: &str) -> Option<usize> {
    let text = json.trim_matches('"');
    let exact = |number: &f64| number.fract() == 0.0 && (0.0..=EXACT_MAX).contains(number);
    let integral = || {
        text.parse()
            .ok()
            .filter(exact)
            .map(|number| number as usize)
    };
    text.parse().ok().or_else(integral)
}

/// What a JSON text is, for an error sentence.
fn kind(json: &str) -> &'static str {
    match json.as_bytes().first() {
        Some(b'"') => "a text",
        Some(b'{') => "an object",
        Some(b'[') => "a list",
        Some(b't' | b'f') => "a truth value",
        Some(b'n') | None => "nothing",
        _ => "a number",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_keep_their_spelling() {
        let text = r#"{"body": {"b":1.50, "a":12345678901234567890123, "b":1e400}, "to":"bob"}"#;
        let arguments: Arguments = serde_json::from_str(text).unwrap();
        let body = r#"{"b":1.50, "a":12345678901234567890123, "b":1e400}"#;
        assert_eq!(arguments.json("body"), Some(body));
        assert_eq!(arguments.string("to").as_deref(), Ok("bob"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let arguments: Arguments = serde_json::from_str(r#"{"to":7,"max":"x","n":"3"}"#).unwrap();
        let to = "the argument to must be a string, got a number".to_owned();
        assert_eq!(arguments.string("to"), Err(to));
        assert!(
            arguments
                .string("who")
                .unwrap_err()
                .contains("who is missing")
        );
        assert!(
            arguments
                .count("max")
                .unwrap_err()
                .contains("max must be a whole number")
        );
        assert_eq!(arguments.count("n"), Ok(Some(3)));
        assert_eq!(arguments.count("absent"), Ok(None));
        let arguments: Arguments = serde_json::from_str(
            r#"{"a":5.0,"b":"5.0","c":5e0,"d":0.0,"e":5.5,"f":-1.0,"g":1e300,"h":"nan"}"#,
        )
        .unwrap();
        for five in ["a", "b", "c"] {
            assert_eq!(arguments.count(five), Ok(Some(5)), "{five}");
            assert_eq!(arguments.offset(five), Ok(Some(5)), "{five}");
        }
        assert_eq!(arguments.offset("d"), Ok(Some(0)));
        for none in ["d", "e", "f", "g", "h"] {
            assert!(arguments.count(none).is_err(), "{none}");
        }
        let arguments: Arguments = serde_json::from_str(
            r#"{"ids":["a","b"],"text":"[\"a\", \"b\"]","one":"a","bad":[1],"peek":true}"#,
        )
        .unwrap();
        let ids = |name| arguments.strings(name);
        assert_eq!(ids("ids"), Ok(Some(vec!["a".into(), "b".into()])));
        assert_eq!(ids("text"), ids("ids"));
        assert_eq!(ids("one"), Ok(Some(vec!["a".into()])));
        assert!(
            ids("bad")
                .unwrap_err()
                .contains("bad must be a list of strings, got a list")
        );
        assert_eq!(
            (arguments.flag("peek"), arguments.flag("x")),
            (Ok(true), Ok(false))
        );
        assert!(
            arguments
                .flag("ids")
                .unwrap_err()
                .contains("true or false, got a list")
        );
        assert!(
            arguments
                .offset("peek")
                .unwrap_err()
                .contains("from 0, got a truth value")
        );
    }
}
