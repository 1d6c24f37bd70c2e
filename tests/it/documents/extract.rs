//! Commands in the text of a document.

/// Commands that stand together.
#[derive(Debug, PartialEq)]
pub(super) struct Block(pub(super) Vec<String>);

/// The commands of each indented block. Where a block has lines after a `$`, those are the commands,
/// and the others are what they print.
pub(super) fn blocks(text: &str) -> Vec<Block> {
    let (mut found, mut current, mut fenced, mut before) = (Vec::new(), Vec::new(), false, "");
    for line in text.lines().chain([""]) {
        fenced ^= line.starts_with("```");
        let indented = line.strip_prefix("    ").filter(|_| !fenced);
        match indented {
            Some(line) if !current.is_empty() || before.is_empty() => current.push(line),
            _ if !current.is_empty() => found.push(Block(commands(&std::mem::take(&mut current)))),
            _ => {}
        }
        before = line;
    }
    found
}

fn commands(lines: &[&str]) -> Vec<String> {
    let prompts = lines.iter().any(|line| line.starts_with("$ "));
    let (mut found, mut open) = (Vec::<String>::new(), false);
    for line in lines {
        let line = match (prompts, line.strip_prefix("$ ")) {
            (true, None) => continue,
            (_, Some(command)) => command,
            (false, None) => line,
        };
        let line = line.find("  #").map_or(line, |at| &line[..at]).trim();
        let (line, goes_on) = match line.strip_suffix('\\') {
            Some(line) => (line.trim_end(), true),
            None => (line, false),
        };
        match found.last_mut().filter(|_| open) {
            Some(last) => *last += &format!(" {line}"),
            None => found.push(line.to_owned()),
        }
        open = goes_on;
    }
    found
}

/// What stands between backticks in the running text.
pub(super) fn spans(text: &str) -> Vec<String> {
    let mut fenced = false;
    let plain = text.lines().filter(|line| {
        fenced ^= line.starts_with("```");
        !fenced && !line.starts_with("    ")
    });
    let plain: Vec<_> = plain.collect();
    plain
        .join("\n")
        .split("\n\n")
        .flat_map(|paragraph| {
            paragraph
                .split('`')
                .skip(1)
                .step_by(2)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect()
}

/// The arguments with which a command is parsed and not run: each as it stands, with `--help` where
/// it ends. `a|b` is each of them.
pub(super) fn arguments(command: &str, stand_ins: &[(&str, &str)]) -> Vec<Vec<String>> {
    let mut command = command.replace(['\n', '…', ')'], " ");
    for (word, value) in stand_ins {
        command = command.replace(word, value);
    }
    let words = words(&command);
    let words: Vec<_> = words
        .into_iter()
        .skip(1)
        .take_while(|word| !["--", "|", ">"].contains(&&**word))
        .collect();
    // A hook takes what comes, in silence.
    let Some(first) = words.first().filter(|first| *first != "hook") else {
        return Vec::new();
    };
    let choice = words
        .iter()
        .find(|word| word.contains('|'))
        .unwrap_or(first);
    choice
        .split('|')
        .map(|one| {
            let one = |word: &String| match word == choice {
                true => one.to_owned(),
                false => word.clone(),
            };
            words.iter().map(one).chain(["--help".to_owned()]).collect()
        })
        .collect()
}

/// Words as a shell splits them, as far as documents go.
fn words(command: &str) -> Vec<String> {
    let (mut found, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in command.chars() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('"' | '\'', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (' ', None) => found.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    found.extend(word);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_told_from_what_they_print_and_from_what_stands_between_fences() {
        let text = "# a\n\n    one  # two\n    three \\\n        four\n\n```text\n\n    no\n```\n\n    $ five 6\n    printed\nend";
        let wanted = [vec!["one", "three four"], vec!["five 6"]];
        let wanted = wanted.map(|words| Block(words.into_iter().map(str::to_owned).collect()));
        assert_eq!(blocks(text), wanted);
        assert_eq!(spans("a `b c` d\n\n    `e`\n\n`f\ng`"), ["b c", "f\ng"]);
    }

    #[test]
    fn a_command_is_parsed_as_it_stands() {
        let wanted = [["token", "add", "--help"], ["token", "list", "--help"]];
        assert_eq!(arguments("peerbus token add|list", &[]), wanted);
        let asked = arguments("peerbus ask bob \"are we?\" | jq", &[]);
        assert_eq!(asked, [["ask", "bob", "are we?", "--help"]]);
        assert_eq!(
            arguments("peerbus run X -- --more", &[("X", "y")]),
            [["run", "y", "--help"]]
        );
        assert_eq!(
            arguments("peerbus hook wait", &[]),
            Vec::<Vec<String>>::new()
        );
    }
}
