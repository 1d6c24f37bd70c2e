//! The BODY argument.

use std::io::Read;

use peerbus_wire::escape;
use peerbus_wire::limits::FRAME_BYTES_MAX;
use serde_json::value::RawValue;

use crate::failure::Failure;

/// Longest word that is repeated in a complaint, in characters.
const NEXT_CHARS: usize = 40;

/// The JSON text of a BODY argument: an object or an array as it stands, anything else as a
/// string; `-` stands for what stdin holds, without one line break at its end. `more` is what stood
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
        return Ok(text);
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
    Ok(text.strip_suffix('\n').map(str::to_owned).unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::json;

    #[test]
    fn objects_and_arrays_are_json_and_the_rest_is_text() {
        let cases = [
            ("hello", false, r#""hello""#),
            ("42", false, r#""42""#),
            (r#"{"a": 1}"#, false, r#"{"a": 1}"#),
            ("[1]", false, "[1]"),
            ("{not json", false, r#""{not json""#),
            (r#"{"a":1}"#, true, r#""{\"a\":1}""#),
            ("say \"hi\"\n", false, r#""say \"hi\"\n""#),
        ];
        for (argument, text_only, expected) in cases {
            assert_eq!(json(argument, &[], text_only).unwrap(), expected);
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
