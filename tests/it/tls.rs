//! TLS: who may listen without it, who reaches whom over it, and what a failure says.

use std::path::Path;
use std::process::Command;

use peerbus_test_support::tls::{Authority, Files, Valid};
use serde_json::json;

use crate::support::{Broker, Home, Mcp, eventually, python};

/// The names of a certificate for this machine.
const HERE: [&str; 2] = ["localhost", "127.0.0.1"];

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// A broker that speaks TLS.
fn serve(home: &Home, files: &Files, more: &[&str]) -> Broker {
    let mut args = vec![
        "--tls-cert",
        text(&files.cert),
        "--tls-key",
        text(&files.key),
    ];
    args.extend_from_slice(more);
    Broker::start_with(home, &args)
}

/// What a command says that must fail, on either stream.
#[track_caller]
fn says(command: &mut Command) -> String {
    let output = command.output().expect("peerbus starts");
    assert!(!output.status.success(), "{command:?} succeeded");
    let [out, err] = [&output.stdout, &output.stderr].map(|b| String::from_utf8_lossy(b));
    format!("{out}{err}")
}

#[test]
fn beyond_loopback_nothing_listens_without_tls_unless_that_is_said() {
    let home = Home::new();
    let said = home.run(&["serve", "--listen", "0.0.0.0:0"]).fails(2);
    assert!(
        said.contains("0.0.0.0:0 can be reached from other machines"),
        "{said}"
    );
    for remedy in [
        "--tls-cert FILE",
        "127.0.0.1",
        "ssh -L",
        "--insecure",
        "PEERBUS_INSECURE=1",
    ] {
        assert!(said.contains(remedy), "{remedy} is missing: {said}");
    }
    assert!(!home.database().exists(), "nothing was made");

    let mut off = home.peerbus(&["serve", "--listen", "0.0.0.0:0"]);
    let said = says(off.env("PEERBUS_INSECURE", "0"));
    assert!(said.contains("can be reached"), "{said}");
    let mut told = home.peerbus(&["serve", "--listen", "0.0.0.0:0"]);
    Broker::spawn(told.env("PEERBUS_INSECURE", "1")).stop();
    Broker::spawn(&mut home.peerbus(&["serve", "--listen", "0.0.0.0:0", "--insecure"])).stop();
    let ca = Authority::new(home.path(), "authority");
    let files = ca.sign("server", &HERE, Valid::Now);
    let mut safe = home.peerbus(&["serve", "--listen", "0.0.0.0:0"]);
    safe.env("PEERBUS_TLS_CERT", &files.cert);
    Broker::spawn(safe.env("PEERBUS_TLS_KEY", &files.key)).stop();
}

#[test]
fn adapters_commands_and_the_doctor_reach_a_broker_over_tls() {
    let home = Home::new();
    let ca = Authority::new(home.path(), "authority");
    let broker = serve(&home, &ca.sign("server", &HERE, Valid::Now), &[]);
    let (url, file) = (broker.url(), ca.file());
    assert!(url.starts_with("wss://"), "{url}");

    let mut adapter = home.peerbus(&["adapter", "--name", "bob"]);
    let mut bob = Mcp::spawn(adapter.env("PEERBUS_URL", &url).env("PEERBUS_CA", &file));
    bob.initialize("some-bot");
    let ca = ["--url", &url, "--ca", text(&file)];
    eventually("bob is there", || {
        let said = home.run(&[&["peers"], &ca[..]].concat()).ok();
        said.contains("bob").then_some(())
    });
    home.run(&[&["send", "bob", "over TLS"], &ca[..]].concat())
        .ok();
    eventually("the message comes", || {
        let got = bob.call("bus.inbox", json!({})).to_string();
        got.contains("over TLS").then_some(())
    });
    // The system's authorities are those of this file.
    let by_name = url.replace("127.0.0.1", "localhost");
    let mut doctor = home.peerbus(&["doctor", "--url", &by_name]);
    let output = doctor
        .env("SSL_CERT_FILE", &file)
        .output()
        .expect("peerbus starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains(&format!("registered at {by_name}")), "{said}");
    assert!(
        said.contains("to itself and back, signature verified"),
        "{said}"
    );
    drop(bob);
    broker.stop();
}

#[test]
fn a_v1_client_is_at_home_over_tls() {
    let home = Home::new();
    let ca = Authority::new(home.path(), "authority");
    let broker = serve(&home, &ca.sign("server", &HERE, Valid::Now), &[]);
    let (token, secret) = (home.credential("token"), home.credential("hmac_secret"));
    let mut script = home.command("python3");
    script
        .arg(python::script("v1/client.py"))
        .args(["scenario", "--url", &broker.url(), "--token", &token])
        .args(["--secret", &secret])
        .env("SSL_CERT_FILE", ca.file());
    python::passes(&mut script);
    broker.stop();
}

/// A client that cannot get through.
struct Case<'a> {
    what: &'a str,
    server: Option<Files>,
    /// More arguments of the broker.
    more: Vec<&'a str>,
    /// Scheme and host of the client's URL.
    at: &'a str,
    env: Vec<(&'a str, &'a Path)>,
    found: &'a str,
    remedy: &'a str,
    /// In the broker's log.
    logged: &'a str,
}

impl Case<'_> {
    #[track_caller]
    fn check(&self, home: &Home) {
        let what = self.what;
        let broker = match &self.server {
            Some(files) => serve(home, files, &self.more),
            None => Broker::start(home),
        };
        let port = broker.address.rsplit(':').next().expect("a port");
        let url = format!("{}:{port}", self.at);
        let with = |args: &[&str]| {
            let mut command = home.peerbus(args);
            command.env("PEERBUS_URL", &url);
            command.envs(self.env.iter().copied());
            command
        };
        let sentence = format!("cannot use the broker at {url}: ");
        for args in [
            &["send", "--timeout", "2", "bob", "hi"][..],
            &["peers", "--timeout", "2"],
        ] {
            let said = says(&mut with(args));
            let all = said.contains(&sentence) && said.contains(self.found);
            assert!(
                all && said.contains(self.remedy),
                "{what}, {args:?}: {said}"
            );
        }
        let said = says(&mut with(&["doctor"]));
        let line = said
            .lines()
            .find(|line| line.starts_with("failed  broker: "));
        let (found, remedy) = line
            .and_then(|line| line.split_once("; remedy: "))
            .unwrap_or_else(|| panic!("{what}, doctor: {said}"));
        let named = found.contains(self.found) && remedy.contains(self.remedy);
        assert!(named, "{what}, doctor: {said}");

        let mut adapter = Mcp::spawn(&mut with(&["adapter", "--name", "bob"]));
        adapter.initialize("some-bot");
        eventually(&format!("{what}: the adapter says so"), || {
            let answer = adapter.request(
                "tools/call",
                json!({ "name": "bus.peers", "arguments": {} }),
            );
            let said = answer.to_string();
            (said.contains(self.found) && said.contains(self.remedy)).then_some(())
        });
        drop(adapter);
        broker.stderr.find(&format!("line about {what}"), |line| {
            let named = line.contains(self.logged) && line.contains("client=");
            named.then_some(())
        });
        broker.stop();
    }
}

#[test]
fn a_certificate_that_will_not_do_is_named_with_the_remedy() {
    let home = Home::new();
    let ca = Authority::new(home.path(), "authority");
    let file = ca.file();
    let sign = |what, names: &[&str], valid| Some(ca.sign(what, names, valid));
    let trusting = || vec![("PEERBUS_CA", file.as_path())];
    let other = Authority::new(home.path(), "other");
    let others = other.file();
    let cases = [
        Case {
            what: "an authority that nobody knows",
            server: sign("unknown", &HERE, Valid::Now),
            more: vec![],
            at: "wss://127.0.0.1",
            env: vec![("SSL_CERT_FILE", others.as_path())],
            found: "not signed by an authority that this system knows",
            remedy: "--ca FILE or PEERBUS_CA",
            logged: "does not know the authority that signed our certificate",
        },
        Case {
            what: "another authority",
            server: sign("elsewhere", &HERE, Valid::Now),
            more: vec![],
            at: "wss://127.0.0.1",
            env: vec![("PEERBUS_CA", others.as_path())],
            found: "not signed by an authority in /",
            remedy: "--ca FILE or PEERBUS_CA",
            logged: "does not know the authority that signed our certificate",
        },
        Case {
            what: "an expired certificate",
            server: sign("expired", &HERE, Valid::Expired),
            more: vec![],
            at: "wss://127.0.0.1",
            env: trusting(),
            found: "its certificate has expired",
            remedy: "renew it and restart the broker",
            logged: "finds our certificate expired",
        },
        Case {
            what: "another host's certificate",
            server: sign("host", &["bus.example"], Valid::Now),
            more: vec![],
            at: "wss://localhost",
            env: trusting(),
            found: "its certificate is not for localhost but for ",
            remedy: "use a name that stands in it in PEERBUS_URL",
            logged: "not for the host name in the client's URL",
        },
    ];
    for case in cases {
        case.check(&home);
    }
}

#[test]
fn who_speaks_tls_to_a_plain_port_or_none_to_another_is_told() {
    let home = Home::new();
    let ca = Authority::new(home.path(), "authority");
    let file = ca.file();
    let cases = [
        Case {
            what: "plain to TLS",
            server: Some(ca.sign("server", &HERE, Valid::Now)),
            more: vec![],
            at: "ws://127.0.0.1",
            env: vec![],
            found: "it speaks TLS",
            remedy: "use wss:// instead of ws://",
            logged: "it speaks no TLS, and this port speaks nothing else: use wss://",
        },
        Case {
            what: "TLS to plain",
            server: None,
            more: vec![],
            at: "wss://127.0.0.1",
            env: vec![("PEERBUS_CA", &file)],
            found: "it speaks no TLS",
            remedy: "use ws:// instead of wss://",
            logged: "it speaks TLS, and this port does not: use ws://",
        },
    ];
    for case in cases {
        case.check(&home);
    }
}

#[test]
fn a_broker_that_asks_for_certificates_gets_one_or_says_so() {
    let home = Home::new();
    let ca = Authority::new(home.path(), "authority");
    let clients = Authority::new(home.path(), "clients");
    let (file, asked) = (ca.file(), clients.file());
    let server = ca.sign("server", &HERE, Valid::Now);
    let (good, wrong) = (
        clients.sign("good", &["ann"], Valid::Now),
        ca.sign("wrong", &["eve"], Valid::Now),
    );
    let old = clients.sign("old", &["ann"], Valid::Expired);
    let case = |what, client: Option<&'_ Files>, found, remedy, logged| {
        let client = client.cloned();
        let mut env = vec![("PEERBUS_CA", file.as_path())];
        if let Some(Files { cert, key }) = &client {
            env.push(("PEERBUS_CLIENT_CERT", cert));
            env.push(("PEERBUS_CLIENT_KEY", key));
        }
        Case {
            what,
            server: Some(server.clone()),
            more: vec!["--client-ca", text(&asked)],
            at: "wss://127.0.0.1",
            env,
            found,
            remedy,
            logged,
        }
        .check(&home);
    };
    case(
        "no certificate of the client",
        None,
        "it asks for a certificate of this client",
        "set PEERBUS_CLIENT_CERT and PEERBUS_CLIENT_KEY",
        "it showed no certificate, and --client-ca asks for one",
    );
    case(
        "a client's certificate of another authority",
        Some(&wrong),
        "it turns this client down (UnknownCA)",
        "signed by the authority of its --client-ca",
        "not signed by an authority of --client-ca",
    );
    case(
        "a client's certificate that has expired",
        Some(&old),
        "it turns this client down (CertificateExpired)",
        "has not expired",
        "its certificate has expired",
    );

    let broker = serve(&home, &server, &["--client-ca", text(&asked)]);
    let mut peers = home.peerbus(&["peers", "--url", &broker.url(), "--ca", text(&file)]);
    let output = peers
        .env("PEERBUS_CLIENT_CERT", &good.cert)
        .env("PEERBUS_CLIENT_KEY", &good.key)
        .output()
        .expect("peerbus starts");
    assert!(output.status.success(), "{output:?}");
    // The Unix socket asks for none.
    home.run(&["peers"]).ok();
    broker.stop();
}

#[test]
fn a_brokers_files_that_cannot_be_used_are_named_at_its_start() {
    let home = Home::new();
    let ca = Authority::new(home.path(), "authority");
    let (one, two) = (
        ca.sign("one", &HERE, Valid::Now),
        ca.sign("two", &HERE, Valid::Now),
    );
    let missing = home.path().join("missing.pem");
    let (cert, key, missing) = (text(&one.cert), text(&one.key), text(&missing));
    for (args, found, remedy) in [
        (
            &["--tls-cert", missing, "--tls-key", key][..],
            "cannot speak TLS: there is no file /",
            "correct the path",
        ),
        (
            &["--tls-cert", cert, "--tls-key", missing],
            "there is no file /",
            "correct the path",
        ),
        (
            &["--tls-cert", key, "--tls-key", key],
            "one.key holds no certificate",
            "name a file that does",
        ),
        (
            &["--tls-cert", cert, "--tls-key", cert],
            "one.crt holds no private key",
            "name a file that does",
        ),
        (
            &["--tls-cert", cert, "--tls-key", text(&two.key)],
            "two.key is not that of the certificate in /",
            "name the two that were made together",
        ),
        (
            &["--tls-cert", cert, "--tls-key", key, "--client-ca", missing],
            "there is no file /",
            "correct the path",
        ),
        (&["--tls-cert", cert], "--tls-key", "required"),
    ] {
        let args = [&["serve", "--listen", "127.0.0.1:0"], args].concat();
        let said = home.run(&args).fails(2);
        assert!(
            said.contains(found) && said.contains(remedy),
            "{args:?}: {said}"
        );
    }
    assert!(!home.database().exists(), "nothing was made");
}

#[test]
fn a_clients_files_that_cannot_be_used_are_named() {
    let home = Home::new();
    let ca = Authority::new(home.path(), "authority");
    let (one, two) = (
        ca.sign("one", &HERE, Valid::Now),
        ca.sign("two", &HERE, Valid::Now),
    );
    let missing = home.path().join("missing.pem");
    let broker = serve(&home, &one, &[]);
    let (url, file) = (broker.url(), ca.file());
    let peers = |ca: &Path, cert: Option<&Path>, key: Option<&Path>| {
        let mut command = home.peerbus(&["peers", "--timeout", "2", "--url", &url]);
        command.env("PEERBUS_CA", ca);
        cert.map(|cert| command.env("PEERBUS_CLIENT_CERT", cert));
        key.map(|key| command.env("PEERBUS_CLIENT_KEY", key));
        says(&mut command)
    };
    for (said, found, remedy) in [
        (
            peers(&missing, None, None),
            "--ca or PEERBUS_CA is of no use: there is no file /",
            "; correct the path",
        ),
        (
            peers(&one.key, None, None),
            "one.key holds no certificate",
            "name a file that does",
        ),
        (
            peers(&file, Some(&one.cert), None),
            "only one of PEERBUS_CLIENT_CERT and PEERBUS_CLIENT_KEY",
            "set both",
        ),
        (
            peers(&file, Some(&one.cert), Some(&two.key)),
            "PEERBUS_CLIENT_CERT is of no use: the key in /",
            "made together",
        ),
    ] {
        assert!(said.contains(found) && said.contains(remedy), "{said}");
    }
    broker.stop();
}
