//! Splits Rust source into code, comments and string literals, line by line.

/// A Rust file as the rules see it.
#[derive(Debug, Default)]
pub(crate) struct Source {
    /// One entry per line of the file.
    pub(crate) lines: Vec<Line>,
    /// String literals with the line on which they begin.
    pub(crate) strings: Vec<(usize, String)>,
}

/// One line of a Rust file.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// The line without comments; literals are left empty (`""`, `' '`).
    pub(crate) code: String,
    /// The text of its comments, without the slashes.
    pub(crate) comment: String,
    /// The line belongs to an item under `#[cfg(test)]`.
    pub(crate) test: bool,
}

impl Source {
    /// Splits a file. Never fails: what is no Rust comes out as some code.
    pub(crate) fn parse(text: &str) -> Self {
        let mut lexer = Lexer {
            chars: text.chars().collect(),
            at: 0,
            out: Self::default(),
        };
        lexer.out.lines.push(Line::default());
        while lexer.step() {}
        let mut source = lexer.out;
        source.mark_tests();
        source
    }

    /// Marks the lines of each item that `#[cfg(test)]` guards.
    fn mark_tests(&mut self) {
        let mut depth = 0_usize;
        let mut inside = false;
        for line in &mut self.lines {
            let starts = line.code.trim_start().starts_with("#[cfg(test)]");
            if !inside && !starts {
                continue;
            }
            line.test = true;
            if !inside {
                (inside, depth) = (true, 0);
            }
            let code = if starts {
                line.code.replacen("#[cfg(test)]", "", 1)
            } else {
                line.code.clone()
            };
            for char in code.chars() {
                match char {
                    '{' => depth += 1,
                    '}' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                if depth == 0 && (char == '}' || char == ';') {
                    inside = false;
                }
            }
        }
    }
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    out: Source,
}

impl Lexer {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn line(&mut self) -> &mut Line {
        let last = self.out.lines.len() - 1;
        &mut self.out.lines[last]
    }

    /// Takes one character, keeping count of the lines.
    fn take(&mut self) -> Option<char> {
        let char = self.peek(0)?;
        self.at += 1;
        if char == '\n' {
            self.out.lines.push(Line::default());
        }
        Some(char)
    }

    /// Handles the next token. False at the end.
    fn step(&mut self) -> bool {
        let Some(char) = self.peek(0) else {
            return false;
        };
        match (char, self.peek(1)) {
            ('/', Some('/')) => self.line_comment(),
            ('/', Some('*')) => self.block_comment(),
            ('"', _) => self.string(),
            ('r' | 'b' | 'c', _) if !self.after_word() => self.maybe_raw_string(),
            ('\'', _) => self.quote(),
            _ => self.code(),
        }
        true
    }

    /// Whether the character before this one belongs to a word.
    fn after_word(&self) -> bool {
        self.at > 0 && (self.chars[self.at - 1].is_alphanumeric() || self.chars[self.at - 1] == '_')
    }

    fn code(&mut self) {
        if let Some(char) = self.peek(0) {
            if char != '\n' {
                self.line().code.push(char);
            }
            self.take();
        }
    }

    fn line_comment(&mut self) {
        while let Some(char) = self.peek(0).filter(|&c| c != '\n') {
            self.line().comment.push(char);
            self.at += 1;
        }
        let comment = std::mem::take(&mut self.line().comment);
        self.line().comment = comment.trim_start_matches(['/', '!']).to_owned();
    }

    fn block_comment(&mut self) {
        let mut depth = 0_usize;
        while let Some(char) = self.peek(0) {
            match (char, self.peek(1)) {
                ('/', Some('*')) => {
                    depth += 1;
                    self.at += 2;
                }
                ('*', Some('/')) => {
                    depth -= 1;
                    self.at += 2;
                    if depth == 0 {
                        return;
                    }
                }
                ('\n', _) => {
                    self.take();
                }
                _ => {
                    self.line().comment.push(char);
                    self.at += 1;
                }
            }
        }
    }

    /// A string with escapes; `self.at` is on its opening quote.
    fn string(&mut self) {
        let (begin, mut text) = (self.out.lines.len(), String::new());
        self.line().code.push_str("\"\"");
        self.at += 1;
        while let Some(char) = self.take() {
            match char {
                '"' => break,
                '\\' => text.extend(
                    self.take()
                        .map(|escaped| ['\\', escaped])
                        .into_iter()
                        .flatten(),
                ),
                _ => text.push(char),
            }
        }
        self.out.strings.push((begin, text));
    }

    /// `r"…"`, `br#"…"#` and their like; otherwise a word that begins with such a letter.
    fn maybe_raw_string(&mut self) {
        let mut ahead = 0;
        while matches!(self.peek(ahead), Some('r' | 'b' | 'c')) && ahead < 2 {
            ahead += 1;
        }
        let raw = self.peek(ahead - 1) == Some('r');
        let mut hashes = 0;
        while raw && self.peek(ahead + hashes) == Some('#') {
            hashes += 1;
        }
        if self.peek(ahead + hashes) != Some('"') {
            return self.code();
        }
        self.at += ahead + hashes;
        if raw {
            self.raw_string(hashes)
        } else {
            self.string()
        }
    }

    /// A raw string; `self.at` is on its opening quote.
    fn raw_string(&mut self, hashes: usize) {
        let (begin, mut text) = (self.out.lines.len(), String::new());
        self.line().code.push_str("\"\"");
        self.at += 1;
        while let Some(char) = self.take() {
            if char == '"' && (0..hashes).all(|n| self.peek(n) == Some('#')) {
                self.at += hashes;
                break;
            }
            text.push(char);
        }
        self.out.strings.push((begin, text));
    }

    /// A character literal, or a lifetime.
    fn quote(&mut self) {
        let literal = match (self.peek(1), self.peek(2)) {
            (Some('\\'), _) => (3..14).find(|&n| self.peek(n) == Some('\'')),
            (Some(_), Some('\'')) => Some(2),
            _ => None,
        };
        match literal {
            Some(end) => {
                self.line().code.push_str("' '");
                self.at += end + 1;
            }
            None => self.code(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Vec<String> {
        Source::parse(text)
            .lines
            .into_iter()
            .map(|l| l.code.trim().to_owned())
            .collect()
    }

    #[test]
    fn code_comments_and_strings_are_told_apart() {
        let source = Source::parse("let a = \"b // c\"; // d \"e\"\n/* f\n g /* h */ i */ let j;");
        assert_eq!(source.strings, [(1, "b // c".to_owned())]);
        let lines: Vec<_> = source
            .lines
            .iter()
            .map(|l| (l.code.trim(), l.comment.trim()))
            .collect();
        assert_eq!(lines[0], ("let a = \"\";", "d \"e\""));
        assert_eq!(lines[1], ("", "f"));
        assert_eq!(lines[2], ("let j;", "g  h  i"));
    }

    #[test]
    fn literals_of_every_kind_end_where_rust_ends_them() {
        assert_eq!(
            code(r##"f(r#"a"b"#, "c\"d", b"e\\", 'x', '"', '\'', '\u{1F4E8}');"##),
            ["f(\"\", \"\", \"\", ' ', ' ', ' ', ' ');"]
        );
        assert_eq!(
            code("fn a<'b>(c: &'b str, br: u8, r#type: u8) {}"),
            ["fn a<'b>(c: &'b str, br: u8, r#type: u8) {}"]
        );
    }

    #[test]
    fn a_string_over_several_lines_keeps_the_count() {
        let source = Source::parse("let a = \"b\n\\\n c\";\nlet d;");
        assert_eq!(source.lines.len(), 4);
        assert_eq!(source.lines[3].code, "let d;");
    }

    #[test]
    fn lines_of_test_items_are_marked() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n  fn b() {}\n}\nfn c() {}\n#[cfg(test)]\nuse d;\nfn e() {}";
        let marked: Vec<bool> = Source::parse(text).lines.iter().map(|l| l.test).collect();
        assert_eq!(
            marked,
            [false, true, true, true, true, false, true, true, false]
        );
    }
}
