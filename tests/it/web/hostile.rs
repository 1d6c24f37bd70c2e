//! What those try who mean the gateway no good.

use std::io::{Read as _, Write as _};
use std::path::Path;

use serde_json::json;

use super::{Answer, Gateway, agent, bearer, token};
use crate::nodes::NOBODY;
use crate::orphans::Session;
use crate::requests::open;
use crate::sessions::{listed, names};
use crate::support::{Broker, Home, eventually};

/// The session of an agent that does as it is told.
fn session(home: &Home) -> Session {
    let bob = Session::start(home, "bob");
    eventually("bob is there", || {
        names(home).contains(&"bob".to_owned()).then_some(())
    });
    bob
}

/// What `peerbus` says below that agent. What an agent runs may be told that its home is elsewhere.
pub(crate) fn below(home: &Home, agent: &mut Session, within: &str, args: &str) -> String {
    const RUN: &str = "import subprocess, sys\n\
                       done = subprocess.run(input().split(), capture_output=True, text=True)\n\
                       print((done.stdout + done.stderr).replace('\\n', ' '))";
    let dir = home.path().join(".config");
    let elsewhere = format!(
        "env HOME=/ XDG_CONFIG_HOME={} XDG_RUNTIME_DIR=/",
        dir.display()
    );
    // Unless it cannot see either who runs it, and names no file of that home.
    let elsewhere = match within.contains("--mount-proc") && !args.contains("--socket") {
        true => "",
        false => &elsewhere,
    };
    let line = format!(
        "{within} {elsewhere} {} {args}",
        env!("CARGO_BIN_EXE_peerbus")
    );
    agent.tell(&format!("ask {}", json!([RUN, "", line])));
    agent.hear("asked")
}

#[test]
fn an_agent_makes_no_token_with_which_it_could_approve() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = session(&home);
    for (args, what) in [
        ("web token add phone --approve", "approve"),
        ("web token add eye --watch", "watch sessions"),
        ("web token add pen --inject", "put texts into sessions"),
        (
            "token add phone --names phone --rights send,approve",
            "approve",
        ),
    ] {
        let said = below(&home, &mut bob, "", args);
        let why = format!("may not make a token that may {what}");
        assert!(said.contains(&why), "{said}");
        // A person may.
        home.run(&args.split(' ').collect::<Vec<_>>()).ok();
    }
    let said = below(&home, &mut bob, "", "web token add ci --to bob");
    assert!(said.contains("comes from web:ci"), "{said}");
    // A person, too, gives a name to one token.
    let again = ["token", "add", "thief", "--names", "phone"];
    let said = home.run(&again).fails(2);
    assert!(said.contains("is kept for the token phone"), "{said}");
    // Nor does anybody get those of the gateway, whose token may not be made yet.
    let gateways = ["token", "add", "thief", "--names", "WEB:*"];
    let said = home.run(&gateways).fails(2);
    assert!(said.contains("are the gateway's"), "{said}");
    broker.stop();
}

#[test]
fn an_agent_takes_back_nobodys_request() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = session(&home);
    let args = ["ask", "bob", "2+3?", "--detach"];
    let asked = home.run(&args).ok();
    let id = open(&home)[0]["id"].as_str().expect("an id").to_owned();
    let said = below(&home, &mut bob, "", &format!("requests cancel {id}"));
    assert!(
        said.contains("may not take back what others asked"),
        "{said}"
    );
    assert_eq!(open(&home).len(), 1, "{asked}");
    home.run(&["requests", "cancel", &id]).ok();
    broker.stop();
}

#[test]
fn a_token_of_the_users_own_is_not_ended_for_the_gateways() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let said = home.run(&["token", "add", "web", "--rights", "send"]);
    let said = said.fails(2);
    assert!(said.contains("choose another name"), "{said}");
    // One from before that was so.
    home.run(&["token", "add", "server", "--rights", "send"])
        .ok();
    let file = home.path().join(".config/peerbus/tokens.toml");
    let text = std::fs::read_to_string(&file).expect("a tokens file");
    let text = text.replace("[server]", "[web]");
    std::fs::write(&file, &text).expect("the file is ours");
    let gateway = ["web", "--listen", "127.0.0.1:0"];
    let said = home.run(&gateway).fails(2);
    assert!(said.contains("peerbus token revoke web"), "{said}");
    assert_eq!(std::fs::read_to_string(&file).expect("a tokens file"), text);
    // What a person ends makes room.
    home.run(&["token", "revoke", "web"]).ok();
    token(&home, &["ci"]);
    let gateway = Gateway::start(&home);
    assert_eq!(gateway.ask("GET /healthz", &[], b"").status, 200);
    broker.stop();
}

#[test]
fn what_is_a_persons_is_refused_to_an_agent_in_a_sandbox_too() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = session(&home);
    let copy = home.path().join("copy");
    for args in [
        "names release phone".to_owned(),
        "token revoke phone".to_owned(),
        "token add thief --names phone".to_owned(),
        "token add thief --names web:*".to_owned(),
        "token add thief --rights bridge".to_owned(),
        "token add thief --rights send,operate".to_owned(),
        "secret rotate".to_owned(),
        "secret retire".to_owned(),
        "audit acknowledge".to_owned(),
        "web token revoke phone".to_owned(),
        format!("restore {}", copy.display()),
        "names retire bob --to phone".to_owned(),
        "history purge".to_owned(),
        format!("backup {}", copy.display()),
    ] {
        assert!(
            below(&home, &mut bob, "", &args).contains("in a terminal of their own"),
            "{args}"
        );
    }
    assert!(!copy.exists());
    // Nor does a sandbox hide it.
    let sandbox = |args: &[&str]| {
        let mut command = home.command("unshare");
        let free = command.args(args).arg("true").output();
        free.is_ok_and(|output| output.status.success())
    };
    // What stands between may be hidden by something that is another user's there.
    let hides = home.path().join("hides");
    let hidden = home.path().join("hidden");
    std::fs::create_dir(&hidden).expect("a directory");
    let _ = std::os::unix::fs::chown(&hidden, Some(NOBODY), Some(NOBODY));
    let script = format!(
        "mount --bind {} /proc/$PPID && exec \"$@\"",
        hidden.display()
    );
    std::fs::write(&hides, script).expect("a file");
    let hides = hides.to_str().expect("a path");
    for unshare in [
        &["-Ur"][..],
        &["-Urpf", "--mount-proc"],
        &["-Urm", "sh", hides],
    ] {
        if !sandbox(unshare) {
            println!("skipped: no namespaces can be made here");
            continue;
        }
        let within = format!("unshare {}", unshare.join(" "));
        let said = below(&home, &mut bob, &within, "backup copy");
        assert!(
            said.contains("in a terminal of their own"),
            "{unshare:?}: {said}"
        );
        let socket = home.database().with_file_name("peerbus.sock");
        let args = format!("names release phone --socket {}", socket.display());
        let said = below(&home, &mut bob, &within, &args);
        assert!(
            said.contains("in a terminal of their own"),
            "{unshare:?}: {said}"
        );
    }
    broker.stop();
}

#[test]
fn what_a_client_gives_its_adapter_makes_no_person_of_the_agent() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let runtime = home.path().join("elsewhere");
    std::fs::create_dir(&runtime).expect("a directory");
    let given = format!("XDG_RUNTIME_DIR={}", runtime.display());
    let mut bob = Session::start_with(&home, "bob", &[("ADAPTER_VARIABLES", &given)]);
    eventually("bob is there", || {
        let peers = home.apart(&["peers"]).stdout;
        peers
            .lines()
            .any(|line| line.starts_with("bob "))
            .then_some(())
    });
    for within in ["", "env --unset=XDG_RUNTIME_DIR"] {
        let said = below(&home, &mut bob, within, "token add thief --rights bridge");
        assert!(
            said.contains("in a terminal of their own"),
            "{within}: {said}"
        );
    }
    broker.stop();
}

#[test]
fn an_agent_that_takes_its_socket_away_is_an_agent_still() {
    const HELD: &str = "import os, socket, sys\n\
                        hidden = sys.argv[1] + '.hidden'\n\
                        os.rename(sys.argv[1], hidden)\n\
                        node = socket.socket(socket.AF_UNIX)\n\
                        node.connect(hidden)\n\
                        node.sendall(input().encode() + b'\\n')\n\
                        print(node.makefile().readline())";
    let home = Home::new();
    let broker = Broker::start(&home);
    let mut bob = session(&home);
    let adapter = bob.adapter();
    let socket = listed(&home)[0]["socket"]
        .as_str()
        .expect("a path")
        .to_owned();
    let script = home.path().join("hides");
    let within = format!("sh {}", script.display());
    for hide in ["rm", "truncate -s 0 $s.new && mv $s.new"] {
        // A stopped adapter does not make it again.
        let text = format!(
            "s={socket}; kill -STOP {adapter}; {hide} $s; \"$@\"; rm -f $s; kill -CONT {adapter}"
        );
        std::fs::write(&script, text).expect("a file");
        let said = below(&home, &mut bob, &within, "token add thief --rights bridge");
        assert!(
            said.contains("in a terminal of their own"),
            "{hide}: {said}"
        );
        eventually("it is made again", || {
            Path::new(&socket).exists().then_some(())
        });
    }
    let held = json!({ "jsonrpc": "2.0", "id": 1, "method": "session/held", "params": {} });
    bob.tell(&format!("ask {}", json!([HELD, socket, held.to_string()])));
    let said = bob.hear("asked");
    assert!(
        said.contains("an agent, or what it runs, may not"),
        "{said}"
    );
    broker.stop();
}

#[test]
fn what_still_comes_with_a_token_that_is_revoked_meanwhile_reaches_nobody() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let ci = token(&home, &["ci"]);
    let gateway = Gateway::start(&home);
    let mut bob = agent(&home, "bob");
    let mut stream = gateway.connect();
    let head = format!(
        "POST /hook/bob HTTP/1.1\r\nHost: {}\r\n{}\r\nConnection: close\r\nContent-Length: 4\r\n\
         Expect: 100-continue\r\n\r\n",
        gateway.address,
        bearer(&ci)
    );
    stream.write_all(head.as_bytes()).expect("it reads");
    let mut goes_on = [0; 25];
    stream.read_exact(&mut goes_on).expect("it is admitted");
    assert_eq!(&goes_on, b"HTTP/1.1 100 Continue\r\n\r\n");
    home.apart(&["web", "token", "revoke", "ci"]).ok();
    stream.write_all(b"late").expect("it reads");
    Answer::read(stream).refused(401, "a token is needed");
    assert_eq!(bob.call("bus.inbox", json!({}))["messages"], json!([]));
    broker.stop();
}

#[test]
fn who_asks_and_reads_no_answer_keeps_nobody_out_for_long() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let gateway = Gateway::start(&home);
    let file = format!(
        "GET /page/style.css HTTP/1.1\r\nHost: {}\r\n\r\n",
        gateway.address
    );
    // As many as there are places for, each owed more than the system keeps for a connection.
    let files = file.repeat(1_500);
    let rude = |_| {
        let mut stream = gateway.connect();
        stream.set_nonblocking(true).expect("a socket");
        // It takes as much as it has room for.
        let _ = stream.write(files.as_bytes());
        stream
    };
    let all: Vec<_> = (0..512).map(rude).collect();
    eventually("another is served", || {
        let mut stream = gateway.connect();
        let head = format!("GET /healthz HTTP/1.0\r\nHost: {}\r\n\r\n", gateway.address);
        stream.write_all(head.as_bytes()).expect("it reads");
        super::refused::rest_of(stream)
            .starts_with("HTTP/1.0 200")
            .then_some(())
    });
    drop(all);
    broker.stop();
}

#[test]
fn a_silent_connection_gives_way_to_a_newer_one() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let ci = bearer(&token(&home, &["ci"]));
    let gateway = Gateway::start(&home);
    let (_lines, mut told) = gateway.reader(ci.rsplit(' ').next().expect("a token"), &[]);
    // With it as many as there are places for.
    let mut silent: Vec<_> = (1..512).map(|_| gateway.connect()).collect();
    assert_eq!(gateway.ask("GET /healthz", &[], b"").status, 200);
    let mut newest = silent.pop().expect("a connection");
    let head = format!("GET /healthz HTTP/1.0\r\nHost: {}\r\n\r\n", gateway.address);
    newest.write_all(head.as_bytes()).expect("it reads");
    let answer = super::refused::rest_of(newest);
    assert!(
        answer.starts_with("HTTP/1.0 200"),
        "the newest stays: {answer}"
    );
    let mut oldest = silent.swap_remove(0);
    assert!(
        matches!(oldest.read(&mut [0]), Ok(0) | Err(_)),
        "it was closed"
    );
    told.set_nonblocking(true).expect("a socket");
    let open = told.read(&mut [0]).expect_err("nothing comes");
    assert_eq!(
        open.kind(),
        std::io::ErrorKind::WouldBlock,
        "one that showed a token stays"
    );
    broker.stop();
}

#[test]
fn what_is_no_request_is_refused_with_a_sentence_too() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let ci = bearer(&token(&home, &["ci"]));
    let gateway = Gateway::start(&home);
    for (line, status, says) in [
        ("GET /v1/messages/%ff", 400, "UTF-8"),
        ("GET /open/%ff", 400, "UTF-8"),
        ("GET /page/nothing.js", 404, "not found"),
    ] {
        gateway.ask(line, &[&ci], b"").refused(status, says);
    }
    let mut stream = gateway.connect();
    let head = format!(
        "POST /hook/bob HTTP/1.1\r\nHost: {}\r\n{ci}\r\nConnection: close\r\n\
         Transfer-Encoding: chunked\r\n\r\nno number\r\n",
        gateway.address
    );
    stream.write_all(head.as_bytes()).expect("it reads");
    Answer::read(stream).refused(400, "the body broke off");
    broker.stop();
}

#[test]
fn a_head_that_does_not_end_is_refused_before_it_costs_much() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let gateway = Gateway::start(&home);
    let mut stream = gateway.connect();
    let head = format!("GET /healthz HTTP/1.1\r\nHost: {}\r\nX: ", gateway.address);
    stream.write_all(head.as_bytes()).expect("it reads");
    // It has its answer, or its end, long before all of this was read.
    for _ in 0..64 {
        if stream.write_all(&[b'a'; 4_096]).is_err() {
            break;
        }
    }
    let mut answer = Vec::new();
    let _ended = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
        "{answer}"
    );
    let fits = format!("X: {}", "a".repeat(8_192));
    assert_eq!(gateway.ask("GET /healthz", &[&fits], b"").status, 200);
    broker.stop();
}
