//! The commands that README and the documents show: each is run here, or by the test that the table
//! names, or stands there with the reason why it cannot be. Commands stand in indented blocks;
//! whatever else a document shows stands between fences.

mod extract;
mod facts;
mod table;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use extract::{Block, blocks, spans};
use table::{COMMANDS, How};

use crate::support::{Broker, Home, Lines};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every document for users, with its path from the top.
fn documents() -> Vec<(String, String)> {
    let names = ["docs", "docs/guide"].into_iter().flat_map(|folder| {
        let found = fs::read_dir(root().join(folder)).expect("a directory");
        found.map(move |entry| {
            let name = entry.expect("an entry").file_name();
            format!("{folder}/{}", name.to_string_lossy())
        })
    });
    let names = names.filter(|name| name.ends_with(".md"));
    let tops = ["CONTRIBUTING.md", "README.md"].map(str::to_owned);
    let mut names: Vec<_> = names.chain(tops).collect();
    names.sort();
    let read = |name: String| {
        let text = fs::read_to_string(root().join(&name)).expect("a document");
        (name, text)
    };
    names.into_iter().map(read).collect()
}

/// How a command is shown to work.
#[track_caller]
fn how(document: &str, command: &str) -> &'static How {
    let found = COMMANDS.iter().find(|(known, _)| *known == command);
    let (_, how) = found.unwrap_or_else(|| {
        panic!(
            "{document} shows `{command}`, which no test knows: add it to the table in \
             tests/it/documents/table.rs (what is no command stands between ``` fences)"
        )
    });
    how
}

/// A user who has the program on the PATH, and a clone to work in.
struct Reader {
    home: Home,
    _broker: Broker,
}

impl Reader {
    fn new() -> Self {
        let home = Home::new();
        let broker = Broker::start(&home);
        let bin = home.path().join("bin");
        fs::create_dir(&bin).expect("a directory");
        symlink(env!("CARGO_BIN_EXE_peerbus"), bin.join("peerbus")).expect("a link");
        let deploy = home.path().join("deploy");
        fs::create_dir(&deploy).expect("a directory");
        for unit in ["peerbus.service", "peerbus.socket"] {
            fs::copy(root().join("deploy").join(unit), deploy.join(unit)).expect("a unit");
        }
        let reader = Self {
            home,
            _broker: broker,
        };
        reader.greet();
        reader
    }

    /// The peer that the documents talk to is known, and has mail.
    fn greet(&self) {
        self.run(r#"peerbus send bob "hello from yesterday" --name bob"#);
    }

    fn shell(&self, script: &str) -> Command {
        let mut shell = self.home.command("sh");
        let mut path = self.home.path().join("bin").into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        // Brokers that documents start take any port of this machine's own.
        let script = script.replace("0.0.0.0:47821", "127.0.0.1:0");
        shell.args(["-ec", &script]).env("PATH", path);
        shell.env("PEERBUS_LISTEN", "127.0.0.1:0");
        shell
    }

    /// Runs a script to its end and gives what it prints.
    #[track_caller]
    fn run(&self, script: &str) -> String {
        let output = self.shell(script).output().expect("a shell");
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}\n{stdout}\n{stderr}");
        stdout
    }

    /// Runs a command that goes on until it is ended, until it says what it should.
    #[track_caller]
    fn stays(&self, command: &str, until: &str) {
        let own = Home::new();
        let mut shell = self.shell(&format!("exec 2>&1\n{command}"));
        if command.starts_with("peerbus serve") {
            // A broker of its own, in the directory of the reader.
            shell.env("HOME", own.path());
        }
        use std::os::unix::process::CommandExt as _;
        let child = shell.process_group(0).stdout(Stdio::piped()).spawn();
        let mut running = Running(child.expect("a shell"));
        let lines = Lines::of(running.0.stdout.take().expect("a pipe"));
        lines.find(&format!("`{until}` of `{command}`"), |line| {
            line.contains(until).then_some(())
        });
    }
}

/// A shell with what it started, which all ends with it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.0);
        // Gone already: as well.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        // It was killed.
        let _ = self.0.wait();
    }
}

/// Puts what a command printed in the place of what a document has for it.
fn filled(command: &str, last_id: &str) -> String {
    let id = |word: &str| word.len() == 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let words = command
        .split(' ')
        .map(|word| if id(word) { last_id } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// The id in a receipt, if that is what was printed.
fn id_of(printed: &str) -> Option<String> {
    let rest = printed.strip_prefix("accepted ")?;
    Some(rest.split(':').next()?.to_owned())
}

fn follow(document: &str, text: &str) {
    let blocks = blocks(text);
    if blocks.is_empty() {
        return;
    }
    let reader = Reader::new();
    let (mut stay, mut last_id) = (Vec::new(), String::new());
    for Block(commands) in blocks {
        let mut script = String::new();
        for command in commands {
            match how(document, &command) {
                How::Runs => script += &format!("{}\n", filled(&command, &last_id)),
                How::Stays(until) => stay.push((command.clone(), *until)),
                How::By(..) | How::Not(_) => {}
            }
            // What later commands name has to be known by then.
            if command.contains("peerbus send") && !script.is_empty() {
                last_id = id_of(&reader.run(&std::mem::take(&mut script))).unwrap_or(last_id);
            }
        }
        if !script.is_empty() {
            reader.run(&script);
        }
    }
    // What waited before may be signed with a secret that the document changed.
    reader.greet();
    for (command, until) in stay {
        reader.stays(&command, until);
    }
}

#[test]
fn the_commands_of_every_document_work() {
    for (name, text) in documents() {
        println!("{name}");
        follow(&name, &text);
    }
}

#[test]
fn the_table_of_commands_names_what_is_there() {
    let documents = documents();
    let shown: BTreeSet<String> = documents
        .iter()
        .flat_map(|(_, text)| blocks(text))
        .flat_map(|Block(commands)| commands)
        .collect();
    for (command, how) in COMMANDS {
        assert!(shown.contains(*command), "no document shows `{command}`");
        match how {
            How::By(file, words) => {
                let text = fs::read_to_string(root().join(file));
                let text = text.unwrap_or_else(|error| panic!("{file}: {error}"));
                assert!(
                    text.contains(words),
                    "{file} has no `{words}` for {command}"
                );
            }
            How::Not(reason) => assert!(!reason.is_empty(), "{command}"),
            How::Runs | How::Stays(_) => {}
        }
    }
}

/// Words that stand for a value which only some words can be.
const STAND_INS: [(&str, &str); 2] = [
    ("install CLIENT", "install codex"),
    ("install NAME", "install codex"),
];

#[test]
fn every_command_that_a_document_names_is_one() {
    let home = Home::new();
    let tops = ["CHANGELOG.md", "CHANNELS_SCHEMA.md"].map(|name| {
        let text = fs::read_to_string(root().join(name)).expect("a document");
        (name.to_owned(), text)
    });
    let mut named = BTreeSet::new();
    for (document, text) in documents().into_iter().chain(tops) {
        let shown = blocks(&text)
            .into_iter()
            .flat_map(|Block(commands)| commands);
        // The address of the repository ends with the name of the program.
        let ours = |words: &String| !words.starts_with("cargo install");
        for words in shown.chain(spans(&text)).filter(ours) {
            for (at, start) in words.match_indices("peerbus ") {
                let rest = &words[at + start.len()..];
                if rest.starts_with(|c: char| c.is_ascii_lowercase()) {
                    named.insert((words[at..].to_owned(), document.clone()));
                }
            }
        }
    }
    assert!(
        named.len() > 100,
        "documents name few commands: {}",
        named.len()
    );
    for (command, document) in named {
        for args in extract::arguments(&command, &STAND_INS) {
            let refused = home.run(&args.iter().map(String::as_str).collect::<Vec<_>>());
            assert_eq!(
                refused.code,
                Some(0),
                "{document} has `{command}`, run as {args:?}: {}",
                refused.stderr
            );
        }
    }
}

#[test]
fn every_scenario_with_the_real_client_is_described() {
    let dir = root().join("tests/claude-code");
    let text = fs::read_to_string(dir.join("README.md")).expect("a document");
    let files = fs::read_dir(&dir).expect("a directory").flatten();
    let names = files.filter_map(|file| file.file_name().into_string().ok());
    let scenarios = names.filter(|name| name.ends_with("_scenario.py"));
    let mut count = 0;
    for file in scenarios {
        let name = file.trim_end_matches(".py");
        assert!(text.contains(&format!("`--scenario {name}")), "{name}");
        assert!(text.contains(&format!("| `{file}`")), "{file} in the table");
        count += 1;
    }
    assert!(count > 10, "{count}");
}
