//! How documents and comments read, as far as a program can tell: how long sentences are, how they
//! begin, and how long lines and pages are. [`counts`](super::counts) has the bounds.

use super::Violation;
use super::tree::Tree;

/// Words that a sentence may have.
const SENTENCE_WORDS_MAX: usize = 40;
/// Characters that a line of running text may have.
const LINE_CHARS_MAX: usize = 160;
/// Words from which on a page needs contents.
const PAGE_WORDS: usize = 2_000;
/// What a subject must not begin with: a relative clause has no noun of the protocol.
const SUBJECTS: &str = "what who whoever whatever whose whom which";
/// Words that may stand in front of those.
const BEFORE: &str = "of with to from by for";

/// What was found in some texts: paths and lines.
#[derive(Debug, Default)]
pub(super) struct Prose {
    pub(super) sentences: usize,
    pub(super) words: usize,
    pub(super) long: Vec<(String, usize)>,
    pub(super) subjects: Vec<(String, usize)>,
}

impl Prose {
    /// Measures every document but the list of changes.
    pub(super) fn documents(tree: &Tree) -> Self {
        let mut prose = Self::default();
        for (path, text) in documents(tree) {
            prose.words += words_of(text);
            prose.add(path, text);
        }
        prose
    }

    /// Measures the documentation comments of the programs.
    pub(super) fn comments(tree: &Tree) -> Self {
        let mut prose = Self::default();
        let ours = |path: &str| path.starts_with("crates/") && path.contains("/src/");
        for (path, text) in tree.files.iter().filter(|(path, _)| ours(path)) {
            if path.ends_with(".rs") {
                prose.add(path, &documentation(text));
            }
        }
        prose
    }

    fn add(&mut self, path: &str, text: &str) {
        for (line, paragraph) in paragraphs(text) {
            for sentence in sentences(&paragraph) {
                self.sentences += 1;
                if sentence.split_whitespace().count() > SENTENCE_WORDS_MAX {
                    self.long.push((path.to_owned(), line));
                }
                if begins_badly(&sentence) {
                    self.subjects.push((path.to_owned(), line));
                }
            }
        }
    }
}

fn documents(tree: &Tree) -> impl Iterator<Item = (&str, &str)> {
    let documents = tree.files.iter().filter(|(path, _)| path.ends_with(".md"));
    let documents = documents.filter(|(path, _)| *path != "CHANGELOG.md");
    documents.map(|(path, text)| (path.as_str(), text.as_str()))
}

/// Checks that lines of running text are short, and that long pages have contents.
pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in documents(tree) {
        let long = running(text).filter(|(_, line)| line.chars().count() > LINE_CHARS_MAX);
        found.extend(long.map(|(line, text)| {
            let what = format!("{} characters in a line", text.chars().count());
            Violation::new(path, line, "line", what, "break the line")
        }));
        let links = text
            .lines()
            .take(30)
            .map(|line| line.matches("](#").count());
        if words_of(text) > PAGE_WORDS && links.sum::<usize>() < 3 {
            let what = format!("more than {PAGE_WORDS} words without contents");
            let remedy = "link the page's headings from its top";
            found.push(Violation::new(path, 0, "contents", what, remedy));
        }
    }
    found
}

/// The words of a document outside of its blocks of code.
fn words_of(text: &str) -> usize {
    let (mut fenced, mut found) = (false, 0);
    for line in text.lines() {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        if !(fenced || fence || line.starts_with("    ")) {
            let words = line.split_whitespace();
            found += words
                .filter(|word| word.contains(char::is_alphanumeric))
                .count();
        }
    }
    found
}

/// The lines of running text with their numbers: no code, no tables, no headings.
fn running(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let (mut fenced, mut block, mut blank) = (false, false, true);
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        block = line.starts_with("    ") && (block || blank);
        blank = line.trim().is_empty();
        let other = line.starts_with('|') || line.starts_with('#');
        !(fenced || fence || block || other)
    })
}

/// The documentation comments of a Rust file at their lines, and nothing else.
fn documentation(text: &str) -> String {
    let comment = |line: &str| {
        let line = line.trim_start();
        let comment = line
            .strip_prefix("///")
            .or_else(|| line.strip_prefix("//!"));
        let comment = comment.map(|comment| comment.strip_prefix(' ').unwrap_or(comment));
        comment.unwrap_or_default().to_owned()
    };
    text.lines().map(comment).collect::<Vec<_>>().join("\n")
}

/// Paragraphs, entries of lists and cells of tables, each with the line where it begins.
fn paragraphs(text: &str) -> Vec<(usize, String)> {
    let (mut found, mut fenced) = (Vec::<(usize, String)>::new(), false);
    let (mut open, mut block) = (false, false);
    for (number, line) in (1..).zip(text.lines()) {
        let words = line.trim();
        let fence = words.starts_with("```");
        fenced ^= fence;
        block = line.starts_with("    ") && (block || !open);
        if fenced || fence || block || words.is_empty() || words.starts_with('#') {
            open = false;
        } else if let Some(row) = words.strip_prefix('|') {
            let cells = row.split(" | ").map(|cell| cell.trim_matches(['|', ' ']));
            let cells = cells.filter(|cell| cell.contains(char::is_alphanumeric));
            found.extend(cells.map(|cell| (number, cell.to_owned())));
            open = false;
        } else {
            let entry = entry(words);
            match found.last_mut().filter(|_| open && entry.is_none()) {
                Some((_, paragraph)) => *paragraph += &format!(" {words}"),
                None => found.push((number, entry.unwrap_or(words).to_owned())),
            }
            open = true;
        }
    }
    found
}

/// The text of an entry of a list.
fn entry(line: &str) -> Option<&str> {
    let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let numbered = rest.strip_prefix(". ").filter(|_| rest.len() < line.len());
    numbered.or_else(|| line.strip_prefix("- "))
}

/// The sentences of a paragraph, with each span of code as one word and without the targets of links.
fn sentences(paragraph: &str) -> Vec<String> {
    let mut plain = String::new();
    for (index, part) in paragraph.split('`').enumerate() {
        match index % 2 {
            0 => plain.push_str(part),
            _ => plain.push('`'),
        }
    }
    let mut text = String::new();
    for (index, part) in plain.split("](").enumerate() {
        let rest = if index == 0 {
            part
        } else {
            part.split_once(')').map_or("", |(_, rest)| rest)
        };
        text.push_str(rest);
    }
    let text = text.replace("**", "");
    let (mut found, mut sentence) = (Vec::new(), Vec::new());
    let words: Vec<&str> = text.split_whitespace().collect();
    for (index, word) in words.iter().enumerate() {
        sentence.push(*word);
        let ends = word
            .trim_end_matches(['"', '”', ')', '*'])
            .ends_with(['.', '!', '?']);
        let next = words.get(index + 1).and_then(|word| word.chars().next());
        let begins = next.is_none_or(|c| !c.is_lowercase());
        if ends && begins {
            found.push(std::mem::take(&mut sentence).join(" "));
        }
    }
    found.extend((!sentence.is_empty()).then(|| sentence.join(" ")));
    found
}

/// Whether a sentence, and no question, begins with a relative clause.
fn begins_badly(sentence: &str) -> bool {
    let is = |words: &str, word: Option<&str>| {
        let word = word.unwrap_or_default().to_lowercase();
        words.split(' ').any(|known| known == word)
    };
    let mut words = sentence.split_whitespace();
    let (first, second) = (words.next(), words.next());
    let clause = is(SUBJECTS, first) || (is(BEFORE, first) && is(SUBJECTS, second));
    let whole = sentence.starts_with(char::is_uppercase) && words.count() > 1;
    clause && whole && !sentence.ends_with('?')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(text: &str) -> (usize, Vec<usize>, Vec<usize>) {
        let prose = Prose::documents(&Tree::of(&[("docs/a.md", text)]));
        let lines = |found: Vec<(String, usize)>| found.into_iter().map(|(_, line)| line).collect();
        (prose.sentences, lines(prose.long), lines(prose.subjects))
    }

    #[test]
    fn sentences_are_told_apart_in_paragraphs_lists_and_tables() {
        let text = "# Who is who here\n\nOne is `a. B`. Two is [b](c. D)\nhere. Version 2.1 is one.\n\n\
                    - three is. four\n- five\n\n    What is code is not read.\n\n| six | Seven. Eight. |\n|---|---|\n";
        assert_eq!(measured(text), (8, vec![], vec![]));
    }

    #[test]
    fn a_long_sentence_and_one_that_begins_with_a_clause_are_found_at_their_paragraphs() {
        let long = "word ".repeat(SENTENCE_WORDS_MAX);
        let text = format!(
            "It is {long}here.\n\nWhat comes is lost.\n\nOf whom it says so.\n\nWhat is it here?"
        );
        assert_eq!(measured(&text), (4, vec![1], vec![3, 5]));
        let fits = format!("{}.", "word ".repeat(SENTENCE_WORDS_MAX).trim());
        assert_eq!(measured(&fits), (1, vec![], vec![]));
    }

    #[test]
    fn comments_are_measured_where_they_document() {
        let text = "//! A module.\n\n/// What a thing does\n/// all day.\n// Who knows what it is.\nstruct A;\n";
        let prose = Prose::comments(&Tree::of(&[("crates/a/src/b.rs", text)]));
        assert_eq!(
            (prose.sentences, prose.subjects[0].1, prose.subjects.len()),
            (2, 3, 1)
        );
    }

    #[test]
    fn long_lines_of_running_text_and_long_pages_without_contents_are_found() {
        let wide = "x".repeat(LINE_CHARS_MAX + 1);
        let page = format!(
            "| {wide} |\n{wide}\n\n    {wide}\n\n```\n{wide}\n```\n{}",
            "word ".repeat(20).trim()
        );
        let found = |page: &str| -> Vec<(usize, &'static str)> {
            let found = check(&Tree::of(&[("docs/a.md", page)]));
            found.iter().map(|v| (v.line, v.rule)).collect()
        };
        assert_eq!(found(&page), [(2, "line")]);
        let long = "word\n".repeat(PAGE_WORDS + 1);
        assert_eq!(found(&long), [(0, "contents")]);
        assert_eq!(found(&format!("[a](#a) [b](#b) [c](#c)\n{long}")), []);
    }
}
