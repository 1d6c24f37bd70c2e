//! Nodes of sessions, and who speaks to them otherwise than by `peerbus session`.

use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::json;

use crate::sessions::{Node, listed, names};
use crate::support::{Broker, Home, Mcp, PATIENCE, eventually, python};

/// A user that is not this one, and has nothing.
pub(crate) const NOBODY: u32 = 65_534;

/// A session called bob, whose adapter logs into a file.
fn bob(home: &Home) -> (Mcp, PathBuf, PathBuf) {
    let log = home.path().join("bob.log");
    let adapter = "exec \"$0\" adapter --adapter generic --name bob 2>\"$1\"";
    let mut shell = home.command("sh");
    shell.args(["-c", adapter, env!("CARGO_BIN_EXE_peerbus")]);
    let mut bob = Mcp::with_stderr(shell.arg(&log).env("PEERBUS_LOG", "warn"));
    bob.initialize("some-bot");
    eventually("bob is listed", || (names(home) == ["bob"]).then_some(()));
    let socket = listed(home)[0]["socket"].as_str().expect("a path").into();
    (bob, socket, log)
}

/// So many lines of a log have these words.
fn logged(log: &Path, words: &str) -> usize {
    let text = fs::read_to_string(log).expect("a log");
    text.lines().filter(|line| line.contains(words)).count()
}

#[test]
fn the_official_sdk_watches_a_session_and_puts_a_text_in() {
    let home = Home::new();
    let _broker = Broker::start(&home);
    let (_bob, socket, _) = bob(&home);
    let mut script = home.command("python3");
    script.arg(python::script("mcp/node_drive.py")).arg(socket);
    python::passes_or_skips(&mut script, python::in_ci());
}

/// What comes until the other end closes.
fn all_of(stream: &mut UnixStream) -> String {
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    let mut said = Vec::new();
    // It may be closed before it has read all: that resets the connection.
    let _ = stream.read_to_end(&mut said);
    String::from_utf8(said).expect("text")
}

#[test]
fn who_does_not_keep_to_the_lines_is_closed_and_logged_once() {
    let home = Home::new();
    let _broker = Broker::start(&home);
    let (_bob, socket, log) = bob(&home);
    let long = format!("{{\"jsonrpc\":\"{}", "x".repeat(4 << 20));
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    for (line, answer) in [
        ("hello", Some("-32700")),
        ("{\"jsonrpc\":", Some("-32700")),
        (&*format!("{ping}\nhello"), Some("-32700")),
        (&*long, None),
        // Of what only the session's own client runs.
        (r#"{"jsonrpc":"2.0","id":1,"method":"hook"}"#, None),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"session/attach"}"#,
            None,
        ),
    ] {
        let mut stream = UnixStream::connect(&socket).expect("it listens");
        // It may be closed before it has read all.
        let _ = stream.write_all(format!("{line}\n").as_bytes());
        let said = all_of(&mut stream);
        let shown = line.get(..40).unwrap_or(line);
        match answer {
            Some(answer) => assert!(said.contains(answer), "{shown}: {said}"),
            None => assert_eq!(said, "", "{shown}"),
        }
    }
    let mut node = Node::of(&listed(&home)[0]);
    assert_eq!(node.call("ping", json!({}))["result"], json!({}));
    let count = logged(&log, "to this session's socket was closed");
    assert_eq!(count, 1, "{}", fs::read_to_string(&log).expect("a log"));
}

/// Lets everybody get to a socket, whatever we think of that.
pub(crate) fn open_up(socket: &Path, home: &Path) {
    let set = |path: &Path, mode| {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
    };
    set(socket, 0o666);
    let above = socket.ancestors().skip(1);
    above
        .take_while(|dir| dir.starts_with(home))
        .for_each(|dir| set(dir, 0o711));
}

#[test]
fn another_users_process_is_closed_and_logged_once() {
    const CONNECT: &str = "import socket, sys\n\
        s = socket.socket(socket.AF_UNIX)\n\
        s.connect(sys.argv[1])\n\
        s.settimeout(30)\n\
        try:\n    s.sendall(b'{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"session/status\"}\\n')\n\
        except OSError: pass\n\
        try: said = s.recv(100)\n\
        except ConnectionResetError: said = b''\n\
        sys.exit(0 if said == b'' else 1)";
    if !rustix::process::getuid().is_root() {
        println!("skipped: only root can have a process of another user");
        return;
    }
    let home = Home::new();
    let _broker = Broker::start(&home);
    let (_bob, socket, log) = bob(&home);
    open_up(&socket, home.path());
    for _ in 0..3 {
        // The one of the system: others may lie where this user cannot look.
        let mut other = Command::new("/usr/bin/python3");
        other.args(["-c", CONNECT]).arg(&socket).current_dir("/");
        let output = other.uid(NOBODY).gid(NOBODY).output().expect("python3");
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{why}");
    }
    assert_eq!(logged(&log, "another user's process connected"), 1);
    let mut node = Node::of(&listed(&home)[0]);
    assert_eq!(node.call("ping", json!({}))["result"], json!({}));
}

/// An `ssh` that forwards, with its own `sshd` at the other end of a pipe. It ends when dropped, and
/// the `sshd` with it.
struct Forward(Child);

impl Drop for Forward {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `None`: there is no `sshd` here.
fn forward(home: &Home, from: &Path, to: &Path) -> Option<Forward> {
    const SSHD: &str = "/usr/sbin/sshd";
    if !Path::new(SSHD).exists() || !Path::new("/usr/bin/ssh").exists() {
        return None;
    }
    if rustix::process::getuid().is_root() {
        // Its package makes this when it starts as a service.
        fs::create_dir_all("/run/sshd").expect("root can make it");
    }
    let dir = home.path().join("ssh");
    fs::create_dir(&dir).expect("it is new");
    for key in ["host", "own"] {
        let mut keygen = home.command("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]);
        let made = keygen.arg(dir.join(key)).status().expect("ssh-keygen");
        assert!(made.success());
    }
    let shown = dir.display();
    let config = format!(
        "HostKey {shown}/host\nAuthorizedKeysFile {shown}/own.pub\nStrictModes no\nUsePAM no\n\
         PermitRootLogin prohibit-password\nAllowStreamLocalForwarding yes\nPidFile none\n"
    );
    fs::write(dir.join("sshd_config"), config).expect("it is written");
    let user = home.command("id").arg("-un").output().expect("a user");
    let user = String::from_utf8_lossy(&user.stdout).trim().to_owned();
    let forwarded = format!("{}:{}", from.display(), to.display());
    let mut ssh = home.command("ssh");
    ssh.args(["-F", "none", "-N", "-L", &forwarded, "-i"]);
    ssh.arg(dir.join("own"));
    for option in [
        "BatchMode=yes".to_owned(),
        "ExitOnForwardFailure=yes".to_owned(),
        "IdentitiesOnly=yes".to_owned(),
        "StrictHostKeyChecking=no".to_owned(),
        "UserKnownHostsFile=/dev/null".to_owned(),
        format!("ProxyCommand={SSHD} -i -e -f {shown}/sshd_config"),
    ] {
        ssh.args(["-o", &option]);
    }
    let log = fs::File::create(dir.join("log")).expect("a log");
    let child = ssh
        .arg(format!("{user}@there"))
        .stderr(log)
        .stdout(Stdio::null());
    Some(Forward(child.spawn().expect("ssh starts")))
}

#[test]
fn a_socket_that_ssh_forwards_works_like_the_nodes_own() {
    let home = Home::new();
    let _broker = Broker::start(&home);
    let (_bob, socket, _) = bob(&home);
    let here = home.path().join("there.sock");
    let Some(mut ssh) = forward(&home, &here, &socket) else {
        assert!(!python::in_ci(), "CI has an sshd");
        println!("skipped: ssh or sshd is not installed (openssh-server)");
        return;
    };
    eventually("it is forwarded", || {
        let ended = ssh.0.try_wait().expect("its state");
        let log = || fs::read_to_string(home.path().join("ssh/log")).unwrap_or_default();
        assert!(ended.is_none(), "ssh has ended: {}", log());
        UnixStream::connect(&here).ok()
    });
    let mut node = Node::at(&here);
    let status = node.call("session/status", json!({}))["result"].clone();
    assert_eq!(status["name"], "bob", "{status}");
    let begun = node.call("session/subscribe", json!({ "events": ["bus"] }));
    assert!(begun["result"]["seq"].is_u64(), "{begun}");
    let put = node.call("session/inject", json!({ "prompt": "from afar" }));
    let id = &put["result"]["id"];
    let event = node.hear().expect("an event");
    assert_eq!(&event["params"]["id"], id, "{event}");
    drop(ssh);
    while node.hear().is_some() {}
    assert_eq!(names(&home), ["bob"], "the session goes on");
}
