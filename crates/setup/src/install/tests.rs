//! Install and uninstall over many layouts: the bytes come back, and what is not ours stays.

use std::path::PathBuf;

use peerbus_agents::{Format, ServerEntry};
use proptest::prelude::*;

use super::config_file::{ConfigFile, Edit};
use super::edit::{self, Target, Want};
use super::hooks::Hook;
use super::record::Done;
use super::used::{Uses, Wanted};
use super::value::{Value, object, texts};

pub(super) fn server() -> Target {
    let entry = object([
        ("command", Value::from("peerbus")),
        ("args", texts(&["adapter", "--adapter=cc"])),
    ]);
    Target {
        path: PathBuf::from("/nowhere/servers.json"),
        want: servers(&ServerEntry::USUAL, entry),
    }
}

fn settings(program: &str) -> Target {
    let hook = |event, what: &str, rewake| Hook {
        event,
        command: format!("{program} {what}"),
        rewake,
        timeout_s: 10,
    };
    let hooks = vec![
        hook("SessionStart", "hook", false),
        hook("SessionStart", "hook wait", true),
        hook("PostToolUse", "hook", false),
        hook("Stop", "hook", false),
        hook("Stop", "hook wait", true),
    ];
    Target {
        path: PathBuf::from("/nowhere/settings.json"),
        want: Want::Hooks(hooks, false),
    }
}

pub(super) fn codex() -> Target {
    let entry = object([
        ("command", Value::from("peerbus")),
        ("args", texts(&["adapter", "--adapter=generic"])),
    ]);
    Target {
        path: PathBuf::from("/nowhere/config.toml"),
        want: servers(&TOML, entry),
    }
}

static TOML: ServerEntry = ServerEntry {
    format: Format::Toml,
    table: "mcp_servers",
    ..ServerEntry::USUAL
};

fn servers(form: &'static ServerEntry, entry: Value) -> Want {
    Want::Servers(Wanted {
        form,
        entry,
        command: "peerbus".into(),
        uses: Uses::default(),
    })
}

pub(super) fn found(target: &Target, text: Option<&str>) -> ConfigFile {
    ConfigFile {
        asked: target.path.clone(),
        path: target.path.clone(),
        bytes: text.map(|text| text.as_bytes().to_vec()),
    }
}

pub(super) fn install(target: &Target, text: Option<&str>, done: Option<&Done>) -> Edit {
    edit::install(target, found(target, text), done).expect("an install")
}

fn uninstall(target: &Target, text: &str, done: Option<&Done>) -> Option<String> {
    let change = edit::uninstall(target, found(target, Some(text)), done);
    change.expect("an uninstall").after
}

/// What holds for every target and every text.
pub(super) fn there_and_back(target: &Target, text: Option<&str>) {
    let first = install(target, text, None);
    let after = first.after.clone().expect("a text");
    let again = install(target, Some(&after), first.done.as_ref());
    assert!(!again.differs(), "{after:?} -> {:?}", again.after);
    let back = uninstall(target, &after, first.done.as_ref());
    assert_eq!(back.as_deref(), text, "from {after:?}");
    // On another machine there is no record.
    let back = uninstall(target, &after, None);
    let back = back.unwrap_or_default();
    assert!(!back.contains("peerbus"), "{back:?}");
    let gone = edit::uninstall(target, found(target, Some(&back)), None).expect("an uninstall");
    assert!(
        !gone.differs() || back.trim() == "{}",
        "{back:?} -> {:?}",
        gone.after
    );
}

/// What may stand between two tokens.
fn blank() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => Just(String::new()),
        4 => Just(" ".to_owned()),
        4 => Just("\n  ".to_owned()),
        2 => Just("\n\t".to_owned()),
        1 => Just("\n\n    ".to_owned()),
        1 => Just(" // a, {comment}\n".to_owned()),
        1 => Just("\n  // \"another\": 1,\n  ".to_owned()),
        1 => Just("/* one, */".to_owned()),
        1 => Just(" /* over\n two lines } */ ".to_owned()),
    ]
}

fn scalar() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("1".to_owned()),
        Just("true".to_owned()),
        Just("null".to_owned()),
        Just(r#""a \"quoted\" // text, {""#.to_owned()),
        Just("[]".to_owned()),
        Just("{}".to_owned()),
    ]
}

/// A container with its children, its blanks, and perhaps a trailing comma.
fn container(
    [open, close]: [&'static str; 2],
    children: Vec<String>,
) -> impl Strategy<Value = String> {
    let count = children.len();
    let blanks = proptest::collection::vec(blank(), count * 2 + 1);
    (blanks, any::<bool>()).prop_map(move |(blanks, trailing)| {
        let mut text = open.to_owned();
        for (at, child) in children.iter().enumerate() {
            let comma = at + 1 < count || trailing;
            text.push_str(&blanks[at * 2]);
            text.push_str(child);
            text.push_str(&blanks[at * 2 + 1]);
            text.push_str(if comma { "," } else { "" });
        }
        text.push_str(&blanks[count * 2]);
        text + close
    })
}

fn an_object(names: &'static [&'static str]) -> impl Strategy<Value = String> {
    let members = proptest::sample::subsequence(names, 0..=names.len());
    members
        .prop_flat_map(|names| {
            let count = names.len();
            (Just(names), proptest::collection::vec(scalar(), count))
        })
        .prop_flat_map(|(names, values)| {
            let members = names.iter().zip(values);
            let members = members.map(|(name, value)| format!("\"{name}\": {value}"));
            container(["{", "}"], members.collect())
        })
}

/// Hooks of others in an event.
fn event() -> impl Strategy<Value = String> {
    let other = r#"{"matcher": "Bash", "hooks": [{"type": "command", "command": "lint"}]}"#;
    proptest::collection::vec(Just(other.to_owned()), 0..3)
        .prop_flat_map(|groups| container(["[", "]"], groups))
}

pub(super) fn document() -> impl Strategy<Value = String> {
    let servers =
        an_object(&["alpha", "beta", "gamma"]).prop_map(|o| format!("\"mcpServers\": {o}"));
    let hooks = (event(), event())
        .prop_flat_map(|(stop, other)| {
            let events = vec![format!("\"Stop\": {stop}"), format!("\"Other\":{other}")];
            container(["{", "}"], events)
        })
        .prop_map(|hooks| format!("\"hooks\": {hooks}"));
    let plain = scalar().prop_map(|value| format!("\"plain\":{value}"));
    let members = (
        proptest::option::of(servers),
        proptest::option::of(hooks),
        proptest::option::of(plain),
    );
    let root = members.prop_flat_map(|(a, b, c)| {
        container(["{", "}"], [c, a, b].into_iter().flatten().collect())
    });
    let ends = (blank(), blank(), any::<bool>(), any::<bool>());
    (root, ends).prop_map(|(root, (before, behind, crlf, mark))| {
        let text = format!("{before}{root}{behind}");
        let text = if crlf {
            text.replace('\n', "\r\n")
        } else {
            text
        };
        format!("{}{text}", if mark { "\u{feff}" } else { "" })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_server_goes_in_and_out(text in document()) {
        there_and_back(&server(), Some(&text));
    }

    #[test]
    fn hooks_go_in_and_out(text in document()) {
        there_and_back(&settings("peerbus"), Some(&text));
    }

    #[test]
    fn an_older_install_is_brought_up_to_date(text in document()) {
        let old = install(&settings("/old/peerbus"), Some(&text), None);
        let after = old.after.expect("a text");
        let target = settings("'/opt/my tools/peerbus'");
        let new = install(&target, Some(&after), old.done.as_ref());
        let after = new.after.expect("a text");
        prop_assert!(!after.contains("/old/peerbus"));
        prop_assert_eq!(after.matches("/opt/my tools/peerbus").count(), 5);
        let back = uninstall(&target, &after, new.done.as_ref());
        prop_assert_eq!(back, Some(text));
    }

    #[test]
    fn what_a_user_writes_meanwhile_stays(text in document(), first in any::<bool>()) {
        for target in [server(), settings("peerbus")] {
            let change = install(&target, Some(&text), None);
            let after = change.after.expect("a text");
            // Just inside the outermost braces.
            let edited = if first {
                let at = after.find('{').expect("an object");
                let at = if after[..at].contains("//") || after[..at].contains("/*") { continue } else { at + 1 };
                format!("{}\"new\": 1,{}", &after[..at], &after[at..])
            } else {
                format!("{after}\n// the end\n")
            };
            let back = uninstall(&target, &edited, change.done.as_ref()).expect("a text");
            prop_assert!(!back.contains("peerbus"));
            let kept = if first { "\"new\": 1" } else { "// the end" };
            prop_assert!(back.contains(kept), "{}", back);
        }
    }
}

#[test]
fn a_file_that_is_not_there_is_made_and_goes_again() {
    for target in [server(), settings("peerbus"), codex()] {
        there_and_back(&target, None);
        for text in ["", "\n", "  \n\n"] {
            there_and_back(&target, Some(text));
        }
    }
}

#[test]
fn toml_goes_in_and_out() {
    for text in [
        "model = \"x\"",
        "# top\nmodel = \"x\" # why\n\n[mcp_servers.a]\ncommand = 'b'\n",
        "[mcp_servers.a]\r\ncommand = 'b'\r\n\r\n# below\r\n",
        "mcp_servers.a.command = 'b'\n\n[[rules]]\nx = 1\n[[rules]]\nx = 2\n",
        "\u{feff}[a]\nb = \"\"\"\n[mcp_servers.peerbus]\n\"\"\"\n",
    ] {
        let target = codex();
        let first = install(&target, Some(text), None);
        let after = first.after.clone().expect("a text");
        let again = install(&target, Some(&after), first.done.as_ref());
        assert!(!again.differs());
        let back = uninstall(&target, &after, first.done.as_ref());
        assert_eq!(back.as_deref(), Some(text), "from {after}");
        let back = uninstall(&target, &after, None).expect("a text");
        assert_eq!(back.trim_end(), text.trim_end(), "without a record");
    }
}

#[test]
fn what_a_user_put_into_our_table_goes_with_it_and_what_is_below_stays() {
    let target = codex();
    let change = install(&target, Some("[a]\nx = 1\n"), None);
    let after = change.after.expect("a text");
    let edited = format!("{after}startup_timeout_sec = 5\n\n[z]\ny = 2\n");
    let again = install(&target, Some(&edited), change.done.as_ref());
    assert!(!again.differs());
    let back = uninstall(&target, &edited, change.done.as_ref());
    assert_eq!(back.as_deref(), Some("[a]\nx = 1\n\n[z]\ny = 2\n"));
}

#[test]
fn an_entry_in_toml_is_taken_out_however_it_is_written() {
    let others = "[mcp_servers.a]\ncommand = 'b'\n";
    let inline = "peerbus = { command = \"peerbus\", args = [\"adapter\"] } # mine\n";
    for (text, back) in [
        (
            format!("[mcp_servers]\n{inline}\n{others}"),
            format!("[mcp_servers]\n\n{others}"),
        ),
        (
            format!("x = 1\nmcp_servers.{inline}mcp_servers.z = {{ command = 'c' }}\n"),
            "x = 1\nmcp_servers.z = { command = 'c' }\n".to_owned(),
        ),
        (
            format!("[mcp_servers]\r\n{inline}"),
            "[mcp_servers]\r\n".to_owned(),
        ),
    ] {
        let change = install(&codex(), Some(&text), None);
        let after = change.after.expect("a text");
        assert!(after.contains("--adapter=generic"), "{after}");
        for done in [change.done.as_ref(), None] {
            let found = uninstall(&codex(), &after, done);
            assert_eq!(found.as_deref(), Some(back.as_str()), "from {after}");
        }
    }
    let dotted = "[mcp_servers]\npeerbus.command = \"peerbus\"\npeerbus.args = [\n  \"adapter\",\n]\nz.command = 'c'\n";
    let back = uninstall(&codex(), dotted, None);
    assert_eq!(back.as_deref(), Some("[mcp_servers]\nz.command = 'c'\n"));
}

#[test]
fn variables_that_a_user_hands_on_stay_handed_on() {
    let target = |names: &[&str]| {
        let entry = [
            ("command", Value::from("peerbus")),
            ("env_vars", texts(names)),
        ];
        let want = servers(&TOML, object(entry));
        Target { want, ..codex() }
    };
    let old = "[mcp_servers.peerbus]\ncommand = \"peerbus\"\nenv_vars = [\"A\", \"MINE\"]\n";
    let change = install(&target(&["A", "B"]), Some(old), None);
    let after = change.after.expect("a text");
    assert_eq!(after, old.replace("\"MINE\"", "\"MINE\", \"B\""));
    assert!(!install(&target(&["B", "A"]), Some(&after), None).differs());
}

#[test]
fn an_entry_of_a_users_own_is_brought_up_to_date_and_keeps_what_else_it_has() {
    let text = r#"{"mcpServers": {"peerbus": {"command": "/gone/peerbus", "args": ["adapter", "--adapter=cc", "--url=unix:/s"], "env": {"PEERBUS_NAME": "me"}}}}"#;
    let after = install(&server(), Some(text), None).after.expect("a text");
    assert_eq!(after, text.replace("/gone/peerbus", "peerbus"));
    let toml = "[mcp_servers.peerbus]\ncommand = \"/gone/peerbus\" # mine\nenv = { PEERBUS_NAME = \"me\" }\n";
    let after = install(&codex(), Some(toml), None).after.expect("a text");
    assert_eq!(
        after,
        "[mcp_servers.peerbus]\ncommand = \"peerbus\" # mine\nenv = { PEERBUS_NAME = \"me\" }\nargs = [\"adapter\", \"--adapter=generic\"]\n"
    );
}

#[test]
fn a_text_that_cannot_be_edited_is_refused_with_its_place() {
    for (target, text, says) in [
        (
            server(),
            "{\n  \"a\": 1\n  \"b\": 2\n}",
            "line 2, column 9: expected comma",
        ),
        (
            server(),
            "{\"mcpServers\": []}",
            "mcpServers is not an object",
        ),
        (
            server(),
            "[1]",
            "line 1, column 1: the file is not an object",
        ),
        (
            server(),
            "{\"mcpServers\": {\"peerbus\": {\"command\": \"other\"}}}",
            "does not run peerbus",
        ),
        (
            settings("peerbus"),
            "{\"hooks\": {\"Stop\": {}}}",
            "hooks.Stop is not an array",
        ),
        (codex(), "a = 1\nb = = 2\n", "line 2"),
        (
            codex(),
            "mcp_servers = { a = { command = 'b' } }\n",
            "written inline",
        ),
    ] {
        let refused = edit::install(&target, found(&target, Some(text)), None);
        let why = format!("{:?}", refused.expect_err("a refusal"));
        assert!(
            why.contains(says) && why.contains("nothing was changed"),
            "{text}: {why}"
        );
    }
}

#[test]
fn what_is_written_is_what_the_client_reads() {
    let after = install(&settings("peerbus"), None, None)
        .after
        .expect("a text");
    let read: serde_json::Value = serde_json::from_str(&after).expect("plain JSON");
    let stop = &read["hooks"]["Stop"][0]["hooks"];
    assert_eq!(
        stop[0],
        serde_json::json!({"type": "command", "command": "peerbus hook", "timeout": 10})
    );
    assert_eq!(stop[1]["asyncRewake"], true);
}

#[test]
fn a_plan_that_would_take_something_of_others_along_is_refused() {
    let ours = r#"{"type": "command", "command": "peerbus hook"}"#;
    let other = r#"{"type": "command", "command": "peerbus hook | tee -a log"}"#;
    let before = format!(r#"{{"hooks": {{"Stop": [{{"hooks": [{ours}, {other}]}}]}}}}"#);
    let hooks = settings("peerbus");
    let wrapped = r#"{"mcpServers": {"peerbus": {"command": "/opt/wrap.sh"}}}"#;
    let own = r#"{"mcpServers": {"peerbus": {"command": "/opt/peerbus"}}}"#;
    for (target, before, after, allowed) in [
        (
            &hooks,
            before.as_str(),
            before.replace(&format!("{ours}, "), ""),
            true,
        ),
        (
            &hooks,
            &before,
            before.replace(&format!(", {other}"), ""),
            false,
        ),
        (&hooks, &before, "{}".to_owned(), false),
        (&server(), wrapped, "{}".to_owned(), false),
        (&server(), own, "{}".to_owned(), true),
    ] {
        let unharmed = edit::is_unharmed(&target.want, before, &after);
        assert_eq!(unharmed, allowed, "{before} -> {after}");
    }
}

/// What version 0.4 wrote of an install, and the text before it.
const OF_0_4: &str = r#"{"created": false, "dirs": [],
    "inserted": ["\n    \"peerbus\": {\n      \"command\": \"peerbus\",\n      \"args\": [\"adapter\", \"--adapter=cc\"]\n    },"],
    "made": []}"#;
const BEFORE_0_4: &str = "{\n  \"mcpServers\": {\n    // mine\n    \"docs\": {} }\n}\n";

#[test]
fn an_install_of_version_0_4_is_taken_out_to_the_byte() {
    let done: Done = serde_json::from_str(OF_0_4).expect("a record");
    let read: serde_json::Value = serde_json::from_str(OF_0_4).expect("JSON");
    let ours = read["inserted"][0].as_str().expect("a text");
    let after = BEFORE_0_4.replace("Servers\": {", &format!("Servers\": {{{ours}"));
    assert!(after.contains("--adapter=cc"), "{after}");
    let back = uninstall(&server(), &after, Some(&done));
    assert_eq!(back.as_deref(), Some(BEFORE_0_4));
    // Brought up to date by this version.
    let older = after.replace("\"peerbus\",", "\"/old/peerbus\",");
    let done: Done =
        serde_json::from_str(&OF_0_4.replace("\\\"peerbus\\\",", "\\\"/old/peerbus\\\","))
            .expect("a record");
    let new = install(&server(), Some(&older), Some(&done));
    let text = new.after.clone().expect("a text");
    assert!(!text.contains("/old/"), "{text}");
    let back = uninstall(&server(), &text, new.done.as_ref());
    assert_eq!(back.as_deref(), Some(BEFORE_0_4));
}

#[test]
fn from_a_file_that_its_user_changed_since_only_our_part_goes() {
    let target = server();
    for (before, left) in [
        ("{\n  \"a\": 1\n}\n", "{\n  \"a\": 2\n}\n"),
        // A table of its user's, however empty.
        (
            "{\n  \"a\": 1,\n  \"mcpServers\": {}\n}\n",
            "{\n  \"a\": 2,\n  \"mcpServers\": {}\n}\n",
        ),
    ] {
        let first = install(&target, Some(before), None);
        let edited = first.after.expect("a text").replace("\"a\": 1", "\"a\": 2");
        let again = install(&target, Some(&edited), first.done.as_ref());
        assert!(!again.differs());
        for done in [first.done, again.done] {
            let back = uninstall(&target, &edited, done.as_ref());
            assert_eq!(back.as_deref(), Some(left), "from {edited}");
        }
    }
}

#[test]
fn a_comment_above_our_table_stays() {
    let text = "x = 1\n\n# a note to myself\n\n[mcp_servers.peerbus]\ncommand = \"peerbus\"\n";
    let back = uninstall(&codex(), text, None).expect("a text");
    assert_eq!(back.trim_end(), "x = 1\n\n# a note to myself");
}
