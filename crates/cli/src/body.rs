//! The BODY argument.

use std::borrow::Cow;
use std::io::Read;

use peerbus_adapter::Failure;
use peerbus_wire::limits::FRAME_BYTES_MAX;
use peerbus_wire::{escape, readable};
use serde_json::value::RawValue;

use crate::output;

/// Longest word that is repeated in a complaint, in characters.
const NEXT_CHARS: usize = 40;

/// The JSON text of a BODY argument: an object or an array as it stands, anything else as a
/// string; `-` stands for what stdin holds, without a byte order mark and one line break at its end. `more` is what stood
/// behind it.
pub(crate) fn json(argument: &str, more: &[String], text_only: bool) -> Result<String, Failure> {
    if let Some(next) = more.first() {
        return Err(Failure::config(format!(
            "the message ends before {}, and nothing was sent; put all of it in quotes",
            escape(next, NEXT_CHARS)
        )));
    }
    let text = if argument == "-" {
        read_stdin()?
    } else {
        argument.to_owned()
    };
    if text.trim().is_empty() {
        return Err(Failure::config(
            "the message is empty, and nothing was sent; give it a text",
        ));
    }
    let structured = text.trim_start().starts_with(['{', '[']);
    if structured && !text_only && serde_json::from_str::<&RawValue>(&text).is_ok() {
        let json = readable(&text);
        if let Cow::Owned(_) = json {
            output::complain(
                "the message held what many readers of JSON refuse, and has this in its place: U+FFFD for \
                 half of a surrogate pair, a text of its digits for a number that no double holds",
            );
        }
        return Ok(json.into_owned());
    }
    serde_json::to_string(&text).map_err(Failure::failed)
}

fn read_stdin() -> Result<String, Failure> {
    let mut bytes = Vec::new();
    std::io::stdin()
        .lock()
        .take(FRAME_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::failed(format!("cannot read the body from stdin: {error}")))?;
    if bytes.len() > FRAME_BYTES_MAX {
        return Err(Failure::config(format!(
            "the body on stdin is larger than {FRAME_BYTES_MAX} bytes; send a path to a file instead"
        )));
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| Failure::config("the body on stdin is not UTF-8 text"))?;
    Ok(without_ends(&text).to_owned())
}

/// A text of a file, without what marks its beginning and its last line's end.
fn without_ends(text: &str) -> &str {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let ends = text.strip_suffix("\r\n").or(text.strip_suffix('\n'));
    ends.unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::{json, without_ends};

    #[test]
    fn objects_and_arrays_are_json_and_the_rest_is_text() {
        let cases = [
            ("hello", false, r#""hello""#),
            ("42", false, r#""42""#),
            (r#"{"a": 1}"#, false, r#"{"a": 1}"#),
            ("[1]", false, "[1]"),
            (r#"{"a\ud82d":1e999}"#, false, r#"{"a\ufffd":"1e999"}"#),
            ("{not json", false, r#""{not json""#),
            (r#"{"a":1}"#, true, r#""{\"a\":1}""#),
            ("say \"hi\"\n", false, r#""say \"hi\"\n""#),
        ];
        for (argument, text_only, expected) in cases {
            assert_eq!(json(argument, &[], text_only).unwrap(), expected);
        }
    }

    #[test]
    fn a_file_is_its_text() {
        for (file, text) in [
            ("a\n", "a"),
            ("a\r\n", "a"),
            ("a\n\r\n", "a\n"),
            ("a\r", "a\r"),
            ("\u{feff}{\"a\":1}\r\n", "{\"a\":1}"),
            ("a\u{feff}", "a\u{feff}"),
        ] {
            assert_eq!(without_ends(file), text);
        }
    }

    #[test]
    fn a_message_without_a_text_is_a_mistake() {
        for empty in ["", " \n"] {
            let why = json(empty, &[], false).unwrap_err().to_string();
            assert!(why.contains("empty"), "{why}");
        }
    }
}
