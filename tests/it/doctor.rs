//! `peerbus doctor`: nothing to say where all is well, and every planted fault with its remedy.

mod agents;
mod elsewhere;
mod names;
mod policy;
mod wake;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Output;

use serde_json::Value;

use crate::support::{Broker, Home};

/// A home where everything works: a broker, `peerbus` on the PATH, two agents that have it.
struct Setup {
    home: Home,
    broker: Option<Broker>,
}

impl Setup {
    fn new() -> Self {
        let home = Home::new();
        let broker = Some(Broker::start(&home));
        let bin = home.path().join("bin");
        fs::create_dir(&bin).expect("a directory");
        symlink(env!("CARGO_BIN_EXE_peerbus"), bin.join("peerbus")).expect("a link");
        let setup = Self { home, broker };
        for client in ["claude-code", "gemini"] {
            let output = setup.run(&["install", client], &[]);
            assert!(output.status.success(), "{output:?}");
        }
        setup
    }

    fn run(&self, args: &[&str], env: &[(&str, &str)]) -> Output {
        let mut command = self.home.peerbus(args);
        command.env("PATH", self.home.path().join("bin"));
        command.envs(env.iter().copied());
        command.output().expect("peerbus starts")
    }

    /// The lines of a diagnosis, and its exit code.
    fn doctor(&self, env: &[(&str, &str)]) -> (Vec<String>, Option<i32>) {
        let output = self.run(&["doctor"], env);
        let text = String::from_utf8_lossy(&output.stdout);
        (
            text.lines().map(str::to_owned).collect(),
            output.status.code(),
        )
    }

    fn edit(&self, file: &str, from: &str, to: &str) {
        let path = self.home.path().join(file);
        let text = fs::read_to_string(&path).expect("the file");
        assert!(text.contains(from), "{text}");
        fs::write(path, text.replacen(from, to, 1)).expect("a file");
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.home.path().join(file);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(path, text).expect("a file");
    }
}

/// Something that is wrong, and what must stand in the line about it.
struct Fault {
    what: &'static str,
    plant: fn(&mut Setup),
    env: &'static [(&'static str, &'static str)],
    /// How the line starts, and what else is in it.
    says: &'static [&'static str],
}

fn nothing(_: &mut Setup) {}

const OTHER_SECRET: &str = "another-secret-of-more-than-32-bytes";

/// A broker's socket fits in there, an adapter's does not.
const LONG: &str = "/tmp/so-long-a-name-that-the-socket-of-an-adapter-has-no-address-there";

const FAULTS: &[Fault] = &[
    Fault {
        what: "no broker",
        plant: |setup| setup.broker.take().expect("a broker").stop(),
        // Whoever has the default port here is no broker of this home.
        env: &[("PEERBUS_LISTEN", "127.0.0.1:1")],
        says: &[
            "failed  broker: ",
            "no broker is running",
            "remedy: start `peerbus serve`",
        ],
    },
    Fault {
        what: "a broker that was killed",
        plant: |setup| setup.broker.take().expect("a broker").kill(),
        env: &[],
        says: &[
            "warning socket: ",
            "left behind",
            "remedy: start `peerbus serve`",
        ],
    },
    Fault {
        what: "a broker elsewhere that is not there",
        plant: nothing,
        env: &[("PEERBUS_URL", "ws://127.0.0.1:1")],
        says: &["failed  broker: ", "127.0.0.1:1", "correct PEERBUS_URL"],
    },
    Fault {
        what: "no URL",
        plant: nothing,
        env: &[("PEERBUS_URL", "http://x")],
        says: &[
            "failed  settings: ",
            "http://x",
            "remedy: correct the variable",
        ],
    },
    Fault {
        what: "no credentials",
        plant: |setup| fs::remove_file(setup.home.credentials()).expect("the file"),
        env: &[],
        says: &[
            "failed  credentials: no credentials at ",
            "and a broker has made ",
            "remedy: if there were some, put that file back",
        ],
    },
    Fault {
        what: "credentials that others can read",
        plant: |setup| {
            let mode = fs::Permissions::from_mode(0o644);
            fs::set_permissions(setup.home.credentials(), mode).expect("a mode");
        },
        env: &[],
        says: &[
            "failed  credentials: ",
            "mode 0644",
            "remedy: run `chmod 600 ",
        ],
    },
    Fault {
        what: "a directory in place of the credentials",
        plant: |setup| {
            let file = setup.home.credentials();
            fs::remove_file(&file).expect("the file");
            fs::create_dir(&file).expect("a directory");
        },
        env: &[],
        says: &[
            "failed  credentials: ",
            "it is no regular file",
            "remedy: make it a file of yours with mode 0600",
        ],
    },
    Fault {
        what: "credentials that cannot be read",
        plant: |setup| setup.write(".config/peerbus/credentials.toml", "token = "),
        env: &[],
        says: &[
            "failed  credentials: ",
            "is not TOML (line 1, column ",
            "remedy: correct it, or put a copy of it back",
        ],
    },
    Fault {
        what: "a wrong token",
        plant: nothing,
        env: &[("PEERBUS_TOKEN", "a-wrong-one")],
        says: &[
            "failed  token: ",
            "refused the token",
            "remedy: PEERBUS_TOKEN is set, and wins over the credentials file",
        ],
    },
    Fault {
        what: "a wrong secret",
        plant: nothing,
        env: &[("PEERBUS_HMAC_SECRET", OTHER_SECRET)],
        says: &[
            "failed  credentials: ",
            "is not the secret of",
            "remedy: unset PEERBUS_HMAC_SECRET",
        ],
    },
    Fault {
        what: "a secret that is too short",
        plant: nothing,
        env: &[("PEERBUS_HMAC_SECRET", "short")],
        says: &[
            "failed  settings: ",
            "at least 32 bytes, got 5",
            "remedy: correct the variable",
        ],
    },
    Fault {
        what: "a name that is none",
        plant: nothing,
        env: &[("PEERBUS_NAME", "a b")],
        says: &[
            "failed  name: ",
            "\"a b\"",
            "remedy: give PEERBUS_NAME another value",
        ],
    },
    Fault {
        what: "a wake path that is none",
        plant: nothing,
        env: &[("PEERBUS_WAKE", "telepathy")],
        says: &[
            "failed  settings: ",
            "PEERBUS_WAKE",
            "telepathy",
            "remedy: correct or unset",
        ],
    },
    Fault {
        what: "a policy that is none",
        plant: nothing,
        env: &[("PEERBUS_ACK", "never")],
        says: &[
            "failed  settings: ",
            "PEERBUS_ACK",
            "never",
            "remedy: correct or unset",
        ],
    },
    Fault {
        what: "a runtime directory that is none",
        plant: nothing,
        env: &[("XDG_RUNTIME_DIR", "/dev/null")],
        says: &[
            "warning directories: ",
            "XDG_RUNTIME_DIR=/dev/null cannot be used",
            ".local/state/peerbus",
            "remedy: set it to a directory of your own",
        ],
    },
    Fault {
        what: "paths too long for the sockets of adapters",
        plant: nothing,
        env: &[("XDG_RUNTIME_DIR", LONG), ("XDG_STATE_HOME", LONG)],
        says: &[
            "warning directories: ",
            "is too long a path for sockets",
            "sockets are in /tmp/peerbus-",
        ],
    },
    Fault {
        what: "a configuration directory that is none",
        plant: nothing,
        env: &[("XDG_CONFIG_HOME", "/dev/null")],
        says: &[
            "failed  directories: ",
            "/dev/null/peerbus cannot be written",
            "remedy: make it your own",
        ],
    },
    Fault {
        what: "a configuration that starts a program that is gone",
        plant: |setup| {
            let gone = r#"{"mcpServers": {"peerbus": {"command": "/gone/peerbus", "args": ["adapter", "--adapter=cc"]}}}"#;
            setup.write(".mcp.json", gone);
        },
        env: &[],
        says: &[
            "failed  claude-code: ",
            ".mcp.json starts /gone/peerbus, which is not there",
            "remedy: `peerbus install claude-code --project`",
        ],
    },
    Fault {
        what: "a server of somebody else's",
        plant: |setup| {
            let other = r#"{"mcpServers": {"peerbus": {"command": "/opt/wrap.sh"}}}"#;
            setup.write(".mcp.json", other);
        },
        env: &[],
        says: &[
            "warning claude-code: ",
            ".mcp.json starts /opt/wrap.sh as peerbus",
            "remedy: nothing, if it is a wrapper of yours",
        ],
    },
    Fault {
        what: "a configuration that starts an older version",
        plant: |setup| {
            let old = setup.home.path().join("old/peerbus");
            setup.write("old/peerbus", "#!/bin/sh\necho peerbus 0.1.0\n");
            fs::set_permissions(&old, fs::Permissions::from_mode(0o755)).expect("a mode");
            let old = format!("{:?}", old.display().to_string());
            setup.edit(
                ".gemini/settings.json",
                "\"peerbus\",\n",
                &format!("{old},\n"),
            );
        },
        env: &[],
        says: &[
            "warning gemini: ",
            "old/peerbus, which is peerbus 0.1.0",
            "remedy: install one version everywhere",
        ],
    },
    Fault {
        what: "hooks that start a program that is gone",
        plant: |setup| {
            setup.edit(
                ".claude/settings.json",
                "exec peerbus hook\"",
                "exec peerbus hook\", \"was\": \"\" }, { \"type\": \"command\", \"command\": \"/gone/peerbus hook\"",
            );
        },
        env: &[],
        says: &[
            "failed  claude-code: ",
            "/gone/peerbus",
            "remedy: `peerbus install claude-code --user`",
        ],
    },
    Fault {
        what: "hooks half installed",
        plant: |setup| setup.edit(".claude/settings.json", "\"Stop\"", "\"Stopped\""),
        env: &[],
        says: &[
            "failed  claude-code: ",
            "lacks some of the hooks: `hook` at Stop, `hook wait` at Stop",
            "remedy: `peerbus install claude-code --user`",
        ],
    },
    Fault {
        what: "hooks switched off",
        plant: |setup| {
            setup.write(
                ".claude/settings.local.json",
                r#"{"disableAllHooks": true}"#,
            )
        },
        env: &[],
        says: &[
            "failed  claude-code: ",
            "settings.local.json has `disableAllHooks`",
            "remedy: remove that line",
        ],
    },
    Fault {
        what: "settings that cannot be read",
        plant: |setup| setup.write(".gemini/settings.json", "{\n  \"a\": 1,,\n}"),
        env: &[],
        says: &[
            "failed  agents: ",
            ".gemini/settings.json cannot be read: line 2, column 10",
            "remedy: correct it",
        ],
    },
    Fault {
        what: "a name in a configuration that is none",
        plant: |setup| {
            setup.edit(
                ".gemini/settings.json",
                "\"args\"",
                "\"env\": {\"PEERBUS_NAME\": \"the boss\"}, \"args\"",
            )
        },
        env: &[],
        says: &["failed  gemini: ", "\"the boss\"", "another `--name`"],
    },
    Fault {
        what: "a server that its user switched off",
        plant: |setup| {
            let project = fs::canonicalize(setup.home.path()).expect("a path");
            let project = format!(
                "\"projects\": {{{:?}: {{\"disabledMcpServers\": [\"peerbus\"]}}}},",
                project
            );
            setup.edit(".claude.json", "{", &format!("{{ {project}"));
        },
        env: &[],
        says: &[
            "failed  claude-code: ",
            "switched off for this project",
            "remedy: switch it on",
        ],
    },
    Fault {
        what: "a server that its user declined when asked",
        plant: |setup| {
            let declined = r#"{"disabledMcpjsonServers": ["peerbus"]}"#;
            setup.write(".claude/settings.local.json", declined);
        },
        env: &[],
        says: &[
            "failed  claude-code: ",
            "settings.local.json has peerbus in `disabledMcpjsonServers`",
            "remedy: take it out",
        ],
    },
    Fault {
        what: "a session that runs and is not on the bus",
        plant: |setup| {
            let session = format!(".claude/sessions/{}.json", std::process::id());
            setup.write(&session, "{}");
        },
        env: &[],
        says: &[
            "warning sessions: ",
            "1 of Claude Code run, 0 are on the bus",
            "remedy: start those anew",
        ],
    },
];

#[test]
fn where_all_is_well_it_says_so() {
    let setup = Setup::new();
    let (lines, code) = setup.doctor(&[("PEERBUS_NAME", "bob")]);
    assert_eq!(code, Some(0), "{lines:#?}");
    let bad: Vec<_> = lines
        .iter()
        .filter(|line| !line.starts_with("ok "))
        .collect();
    assert!(bad.is_empty(), "{bad:#?}");
    for part in [
        "credentials: ",
        "broker: registered",
        "the token is accepted",
        "message: to itself and back, signature verified, in ",
        "clock: within ",
        "version: the broker is ",
        "name: bob can be used",
        ".claude/settings.json has all hooks",
        ".gemini/settings.json starts peerbus",
        "sessions: no session",
        "disk: ",
    ] {
        assert!(
            lines.iter().any(|line| line.contains(part)),
            "{part}: {lines:#?}"
        );
    }
    // It leaves nothing: no name, no mail.
    let peers = String::from_utf8_lossy(&setup.run(&["peers"], &[]).stdout).into_owned();
    assert_eq!(peers.trim(), "no peers");
}

#[test]
fn every_planted_fault_is_found_with_its_remedy() {
    for fault in FAULTS.iter().chain(policy::FAULTS) {
        let mut setup = Setup::new();
        (fault.plant)(&mut setup);
        let (lines, code) = setup.doctor(fault.env);
        let line = lines.iter().find(|line| {
            line.starts_with(fault.says[0]) && fault.says.iter().all(|part| line.contains(part))
        });
        assert!(line.is_some(), "{}: {lines:#?}", fault.what);
        assert_eq!(
            code,
            Some(1).filter(|_| has_failed(&lines)).or(Some(0)),
            "{}",
            fault.what
        );
        let secret = lines.iter().any(|line| line.contains(OTHER_SECRET));
        assert!(!secret, "{lines:#?}");
    }
}

fn has_failed(lines: &[String]) -> bool {
    lines.iter().any(|line| line.starts_with("failed "))
}

#[test]
fn a_program_gets_the_same_as_json() {
    let setup = Setup::new();
    let output = setup.run(&["doctor", "--json"], &[("PEERBUS_ACK", "never")]);
    assert_eq!(output.status.code(), Some(1));
    let read: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(read["ok"], false);
    let checks = read["checks"].as_array().expect("a list");
    let failed: Vec<_> = checks
        .iter()
        .filter(|check| check["found"] == "failed")
        .collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(failed[0]["topic"], "settings");
    assert!(
        failed[0]["remedy"]
            .as_str()
            .is_some_and(|remedy| !remedy.is_empty())
    );
}
