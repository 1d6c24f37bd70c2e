//! How the command line is shown: its verbs in groups, examples of each, and hints for words that are
//! none.

use std::env;
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Command, CommandFactory as _, FromArgMatches as _, Parser as _};
use peerbus_adapter::paths::Paths;

use super::Args;

/// The verbs that are shown, by what they are for.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Talk", &["send", "ask", "broadcast", "recv", "requests"]),
    (
        "Look",
        &[
            "status", "peers", "inbox", "tail", "history", "session", "held", "web",
        ],
    ),
    (
        "Set up",
        &[
            "install",
            "uninstall",
            "doctor",
            "guide",
            "invite",
            "join",
            "run",
            "acp",
            "demo",
        ],
    ),
    (
        "Operate",
        &[
            "serve", "stop", "token", "names", "secret", "backup", "restore", "audit", "bridge",
            "mcp",
        ],
    ),
];

/// Examples of each, a line each.
const EXAMPLES: &str = include_str!("examples.txt");

/// The command line, as it is shown where `peerbus-bridge` is there, or is not.
pub(crate) fn command(bridge: bool) -> Command {
    let mut command = Args::command();
    command = command.mut_subcommand("bridge", |verb| verb.hide(!bridge));
    for verb in GROUPS.iter().flat_map(|(_, verbs)| *verbs) {
        let shown = examples(verb).fold("Examples:".to_owned(), |all, it| all + "\n  " + it);
        if *verb != "bridge" {
            command = command.mut_subcommand(verb, |verb| verb.after_help(shown));
        }
    }
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{}\nOptions:\n{{options}}{{after-help}}",
        groups(&command)
    );
    command.help_template(template)
}

/// The examples of a verb. One that is a program of its own has none here.
fn examples(verb: &str) -> impl Iterator<Item = &'static str> {
    let of = move |line: &&str| line.split(' ').nth(1) == Some(verb);
    EXAMPLES.lines().filter(of)
}

/// The verbs, each with what it does.
fn groups(command: &Command) -> String {
    let mut text = String::new();
    for (heading, verbs) in GROUPS {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\n{heading}:");
        for verb in verbs {
            let shown = command.find_subcommand(verb);
            if let Some(verb) = shown.filter(|verb| !verb.is_hide_set()) {
                let about = verb.get_about().map(ToString::to_string);
                let name = verb.get_name();
                let _ = writeln!(text, "  {name:<10} {}", about.unwrap_or_default());
            }
        }
    }
    text
}

/// Reads the words of a command line. The help is made for those that show it: hooks run at each turn.
pub(super) fn parse() -> Result<Args, clap::Error> {
    Args::try_parse().or_else(|_| {
        let matches = command(bridge_program().is_some()).try_get_matches()?;
        Args::from_arg_matches(&matches)
    })
}

/// The program behind `peerbus bridge`, which may not be there.
pub(crate) const BRIDGE: &str = "peerbus-bridge";

/// That program, beside this one or on the path.
pub(crate) fn bridge_program() -> Option<PathBuf> {
    let beside = env::current_exe().ok();
    let beside = beside.and_then(|own| Some(own.parent()?.to_owned()));
    let path = env::var_os("PATH").unwrap_or_default();
    let all = beside.into_iter().chain(env::split_paths(&path));
    all.map(|dir| dir.join(BRIDGE)).find(|it| it.is_file())
}

/// What somebody looks for who tries a word that is no verb.
pub(super) fn hint(word: &str) -> Option<String> {
    Some(match word {
        "version" => "`peerbus --version` prints it".into(),
        "start" | "up" => {
            "the first session or command that needs a broker starts it; `peerbus serve` runs one in \
             sight, `peerbus run` an agent"
                .into()
        }
        "restart" => "`peerbus stop`, and the next command starts it again".into(),
        "log" | "logs" => {
            let log = Paths::find().map(|paths| paths.log().display().to_string());
            let log = log.unwrap_or_else(|_| "broker.log in the state directory".into());
            format!("`peerbus tail --follow` shows messages; what the broker says is in {log}")
        }
        "list" | "ls" | "ps" => {
            "`peerbus peers` lists who is on the bus, `peerbus session list` your live sessions, \
             `peerbus history` messages"
                .into()
        }
        "watch" | "follow" => {
            "`peerbus tail --follow` shows messages as they go, `peerbus session watch NAME` what \
             happens in a session"
                .into()
        }
        "approve" | "allow" | "answer" | "deny" => {
            "`peerbus session approve` shows what is asked; `peerbus session approve NAME`, `peerbus \
             session answer NAME NUMBER` and `peerbus session deny NAME` decide"
                .into()
        }
        "config" => "`peerbus doctor` says which files and variables count".into(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The words that a shell makes of a line.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut quote) = (vec![String::new()], None);
        for c in line.chars() {
            match quote {
                Some(end) if c == end => quote = None,
                None if matches!(c, '"' | '\'') => quote = Some(c),
                None if c == ' ' => words.push(String::new()),
                _ => words.last_mut().unwrap().push(c),
            }
        }
        words
    }

    #[test]
    fn each_verb_that_is_shown_has_a_group_and_examples_that_are_read() {
        let all = command(true);
        let shown = all.get_subcommands().filter(|verb| !verb.is_hide_set());
        let shown: BTreeSet<_> = shown.map(Command::get_name).collect();
        let grouped: Vec<_> = GROUPS.iter().flat_map(|(_, verbs)| *verbs).collect();
        let mut named: BTreeSet<_> = grouped.iter().map(|verb| **verb).collect();
        assert_eq!(named.len(), grouped.len(), "each stands once");
        assert_eq!(shown, named);
        // It is a program of its own, which shows its own help.
        named.remove("bridge");
        for verb in &named {
            assert!((1..=3).contains(&examples(verb).count()), "{verb}");
        }
        for example in EXAMPLES.lines() {
            assert!(example.len() <= 78, "it stands on a line: {example}");
            let words = words(example);
            assert!(
                words[0] == "peerbus" && named.contains(&*words[1]),
                "{example}"
            );
            let read = command(true).try_get_matches_from(&words);
            read.unwrap_or_else(|error| panic!("{example}: {error}"));
        }
    }

    #[test]
    fn the_help_fits_a_terminal_and_hides_what_programs_run() {
        let without = command(false).render_help().to_string();
        assert!(!without.contains("\n  bridge "), "{without}");
        let help = command(true).render_help().to_string();
        let widest = help.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{help}");
        for heading in ["\nTalk:\n", "\nLook:\n", "\nSet up:\n", "\nOperate:\n"] {
            assert!(help.contains(heading), "{help}");
        }
        for hidden in ["adapter", "hook", "completions", "man", "keygen"] {
            assert!(!help.contains(&format!("\n  {hidden} ")), "{help}");
        }
    }
}
