//! Words of a shell's command line, written and read.

/// A word that a shell takes as this text.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The words of a line that does nothing but start one program with fixed arguments. `None`: it
/// does more, or a shell would put something in place of a part of it.
pub(crate) fn split(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = line.trim_matches([' ', '\t', '\n']).chars();
    while let Some(c) = rest.next() {
        let starts = word.is_none();
        let mut push = |c: char| word.get_or_insert_default().push(c);
        match c {
            ' ' | '\t' => words.extend(word.take()),
            '\'' => single(&mut rest, word.get_or_insert_default())?,
            '"' => double(&mut rest, word.get_or_insert_default())?,
            '\\' => push(rest.next().filter(|c| *c != '\n')?),
            '#' | '~' | '!' if starts => return None,
            '=' if words.is_empty() => return None,
            c if "|&;<>()$`*?[]{}\r\n".contains(c) => return None,
            c => push(c),
        }
    }
    words.extend(word);
    Some(words)
}

/// What stands between single quotes: all as it is.
fn single(rest: &mut std::str::Chars<'_>, word: &mut String) -> Option<()> {
    let (inner, behind) = rest.as_str().split_once('\'')?;
    word.push_str(inner);
    *rest = behind.chars();
    Some(())
}

/// What stands between double quotes.
fn double(rest: &mut std::str::Chars<'_>, word: &mut String) -> Option<()> {
    loop {
        match rest.next()? {
            '"' => return Some(()),
            '$' | '`' => return None,
            '\\' => match rest.next()? {
                '\n' => {}
                c if "$`\"\\".contains(c) => word.push(c),
                c => word.extend(['\\', c]),
            },
            c => word.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_quoted_is_read_as_it_was(words in proptest::collection::vec(r#"[a-z/ '"\\$`=~#&|;{}\n\r\t]{0,8}|\PC{0,8}"#, 1..4)) {
            let line: Vec<_> = words.iter().map(|word| quoted(word)).collect();
            prop_assert_eq!(split(&line.join(" ")), Some(words));
        }

        #[test]
        fn any_line_is_read_or_not_but_never_fails(line in r#"[a-z '"\\$|&;=]{0,24}"#) {
            let Some(words) = split(&line) else { return Ok(()) };
            let again: Vec<_> = words.iter().map(|word| quoted(word)).collect();
            prop_assert_eq!(split(&again.join(" ")), Some(words));
        }
    }

    #[test]
    fn a_shell_reads_the_same_words() {
        for line in [
            r"/tmp/o\'brien\ dir/peerbus hook",
            r#""/tmp/a \"b\" \\ \c/peerbus" hook "wait""#,
            "'/tmp/o'\\''brien dir/peerbus' hook",
            "a''b\"\"c 'd e'\tf '' x=y%+,:@^",
            " peerbus \t hook \n",
            "a#b c~d e!f",
        ] {
            let script = format!("printf '<%s>' {}", line.trim());
            let output = std::process::Command::new("sh")
                .args(["-c", &script])
                .output()
                .expect("a shell");
            let read: String = split(line)
                .expect("words")
                .iter()
                .map(|word| format!("<{word}>"))
                .collect();
            assert_eq!(String::from_utf8_lossy(&output.stdout), read, "{line}");
        }
    }

    #[test]
    fn what_does_more_than_start_a_program_has_no_words() {
        for line in [
            "peerbus hook | tee -a log",
            "peerbus hook && notify-send done",
            "peerbus hook; true",
            "peerbus hook;",
            "peerbus hook &",
            "peerbus hook 2>/dev/null",
            "(peerbus hook)",
            "peerbus hook $(true)",
            "peerbus hook `true`",
            "peerbus \"$WHAT\"",
            "$HOME/peerbus hook",
            "~/peerbus hook",
            "peer* hook",
            "A=1 peerbus hook",
            "X=/peerbus hook",
            "! peerbus hook",
            "peerbus hook # mine",
            "peerbus hook\nnotify-send done",
            "peerbus hook '",
            "peerbus hook \"",
            "peerbus hook \\",
        ] {
            assert_eq!(split(line), None, "{line}");
        }
    }
}
