mod programs;

use serde_json::json;

use super::*;
use crate::mailbox::REPLACED;

const MARK: &str = "pb-0123456789abcdef-7";

/// Lines of four words: kind, name, parent, text.
struct Words;

impl LineReader for Words {
    fn read(&mut self, line: &str) -> Option<TranscriptLine> {
        let words: Vec<_> = line.splitn(4, ' ').map(str::to_owned).collect();
        let [kind, id, parent, _] = words.try_into().ok()?;
        Some(TranscriptLine {
            prompts: kind == "prompt",
            presents: kind == "user",
            answers: kind == "assistant",
            request: (kind == "assistant").then(|| id.clone()),
            id,
            parent: Some(parent),
            stopped: false,
        })
    }
}

pub(super) fn reader() -> Box<dyn LineReader> {
    Box::new(Words)
}

fn marks() -> Vec<String> {
    vec![MARK.to_owned()]
}

fn user(id: &str, parent: &str) -> String {
    format!("user {id} {parent} [{MARK}]\n")
}

fn assistant(id: &str, parent: &str) -> String {
    format!("assistant {id} {parent} ok\n")
}

#[test]
fn a_turn_that_begins_where_another_began_leaves_what_came_between() {
    let begun = user("a", "0") + &assistant("b", "a") + "prompt c b and now?\n";
    for (next, rewinds) in [
        ("user d b more\n", false),
        ("prompt d c after that?\n", false),
        ("prompt c b and now?\n", false),
        ("prompt d b or this?\n", true),
        ("prompt d 0 long ago\n", true),
    ] {
        let mut transcript = TranscriptReader::new(reader());
        transcript.feed(begun.as_bytes(), &marks());
        let anew = [Evidence::Anew];
        let expected: &[_] = if rewinds { &anew } else { &[] };
        assert_eq!(
            transcript.feed(next.as_bytes(), &marks()),
            expected,
            "{next}"
        );
    }
}

#[test]
fn what_is_kept_of_lines_is_bounded() {
    let mut transcript = TranscriptReader::new(reader());
    for number in 0..LINES_MAX + 10 {
        transcript.feed(format!("user u{number} 0 \n").as_bytes(), &marks());
    }
    assert_eq!(transcript.lines.known.len(), LINES_MAX);
    assert_eq!(transcript.lines.order.len(), LINES_MAX);
}

#[test]
fn a_line_that_is_too_long_is_passed_over_without_keeping_it() {
    let presented = || Evidence::Presented(MARK.to_owned());
    let mut transcript = TranscriptReader::new(reader());
    let portion = vec![b'x'; 1 << 20];
    for _ in 0..LINE_MAX / portion.len() + 2 {
        assert_eq!(transcript.feed(&portion, &marks()), []);
        assert!(transcript.partial.len() <= LINE_MAX);
    }
    let text = format!("\n{}{}", user("a", "0"), assistant("b", "a"));
    let answered = Evidence::Answered(MARK.to_owned());
    assert_eq!(
        transcript.feed(text.as_bytes(), &marks()),
        [presented(), answered]
    );
    let long = format!("{}\n{}", "x".repeat(LINE_MAX + 1), user("a", "0"));
    let found = TranscriptReader::new(reader()).feed(long.as_bytes(), &marks());
    assert_eq!(found, [presented()]);
}

#[test]
fn two_messages_are_told_apart_and_forgotten_ones_cost_nothing() {
    let other = "pb-0123abcd-8".to_owned();
    let both = vec![MARK.to_owned(), other.clone()];
    let mut transcript = TranscriptReader::new(reader());
    let second = user("b", "a").replace(MARK, &other);
    let found = transcript.feed((user("a", "0") + &second).as_bytes(), &both);
    let presented = |mark: &str| Evidence::Presented(mark.to_owned());
    assert_eq!(found, [presented(MARK), presented(&other)]);
    let found = transcript.feed(assistant("c", "b").as_bytes(), std::slice::from_ref(&other));
    assert_eq!(found, [Evidence::Answered(other)]);
    assert!(transcript.chains.is_empty());
}

/// Texts in which the mark stands, and whether all stands there that it is to prove.
fn texts() -> Vec<(Value, bool)> {
    let text = "\u{1b}é📨 <x> ".repeat(40);
    let result = json!({ "messages": [{ "text": text, "meta": {} }], "n": 1 });
    let ours = format!("[{} {MARK}]", Sum::of_result(&result, MARK));
    let mut whole = result.clone();
    whole["end"] = json!(ours);
    // Clients write numbers anew.
    let mut numbers = whole.clone();
    numbers["n"] = json!(1.0e30);
    let mut shorter = whole.clone();
    shorter["messages"][0]["text"] = json!("é");
    let mut quoted = shorter.clone();
    let forged = format!("[3.{} {MARK}]", 1);
    quoted["messages"][0]["text"] = json!(json!({ "end": forged, "a": "bc" }));
    let mut more = whole.clone();
    more[ALONG] = json!("1 message");
    more[REPLACED] = json!("a number");
    let wrapped =
        |result: &Value| json!(json!([{ "type": "text", "text": result.to_string() }]).to_string());
    // Other words of the same length, in either form.
    let covered = json!(whole.to_string().replacen("é📨 <x>", "…1 cut…", 1));
    let mut other = whole.clone();
    other["messages"][0]["text"] = json!(text.replacen("é📨 <x>", "…1 cut…", 1));
    let cut = whole.to_string().replacen("📨 <x>", "…", 7);
    let tail: String = whole.to_string().chars().skip(200).collect();
    let along = format!("{text}\npeerbus: 1 message");
    let sum = Sum::of_text(&format!("{along} "), MARK);
    let along = format!("{along} [{sum} {MARK}].");
    vec![
        (json!(whole.to_string()), true),
        (json!([{ "text": more.to_string() }]), true),
        (wrapped(&more), true),
        (whole, true),
        (numbers, true),
        (shorter, false),
        (quoted, false),
        (covered, false),
        (wrapped(&other), false),
        (other, false),
        (json!({ "output": json!(along).to_string() }), true),
        (json!(along), true),
        (json!(format!("{{\"n\":1}}\n{along}")), true),
        (json!(format!("a log: {along}")), true),
        (json!(format!("{along} and more")), true),
        (json!(format!("\n{}", along.replacen('é', "", 1))), false),
        (json!(along.replacen('é', "", 1)), false),
        (json!(along.replacen('é', "e", 1)), false),
        (json!(along.replacen("é📨", "📨é", 1)), false),
        (json!(cut), false),
        (json!(tail), false),
        (json!(ours), false),
        (json!(format!("1.2 {MARK}]")), false),
        (json!(format!("12 {MARK}]")), false),
        (json!(format!(" {MARK}]")), false),
        (json!("else"), false),
    ]
}

#[test]
fn a_mark_that_ends_a_text_proves_all_of_it_and_nothing_that_was_cut() {
    for (shown, is_whole) in texts() {
        for in_result in [false, true] {
            assert_eq!(stands(&shown, MARK, in_result), is_whole, "{shown}");
        }
    }
    let bare = json!(format!("[{MARK}]"));
    assert!(stands(&bare, MARK, false), "a prompt");
    assert!(!stands(&bare, MARK, true), "a result tells its sum");
}
