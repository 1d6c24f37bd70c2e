//! A second `peerbus web --open`, where a gateway runs already.

use std::fs;

use serde_json::json;

use crate::orphans::Session;
use crate::sessions::names;
use crate::support::{Broker, Finished, Home, eventually};

use super::Gateway;

/// Runs `peerbus web --open` at an address, as what an agent runs; gives what it printed and said.
const OPENS: &str = "import subprocess, sys\n\
    done = subprocess.run([sys.argv[1], 'web', '--open', '--listen', 'ADDRESS'], capture_output=True, text=True)\n\
    print(done.returncode, done.stdout.strip(), done.stderr.strip().replace(chr(10), ' '))";

/// Opens a link, and prints the status and whether a cookie came.
const OPEN: &str = "import http.client, sys\n\
    at = http.client.HTTPConnection(sys.argv[1])\n\
    at.request('GET', input())\n\
    answer = at.getresponse()\n\
    print(answer.status, answer.getheader('set-cookie') is not None)";

#[test]
fn a_link_that_an_agent_finds_lets_it_in_nowhere_and_its_user_still() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let gateway = Gateway::start(&home);
    let mut bob = Session::start(&home, "bob");
    eventually("bob is there", || {
        names(&home).contains(&"bob".to_owned()).then_some(())
    });
    let open = ["web", "--open", "--listen", &gateway.address];
    let link = home.run(&open).ok();
    let (_, word) = link.trim_end().split_once("/open/").expect(&link);
    let link = format!("/open/{word}");
    bob.tell(&format!("ask {}", json!([OPEN, gateway.address, link])));
    assert_eq!(bob.hear("asked"), "403 False");
    let opened = gateway.ask(&format!("GET {link}"), &[], b"");
    assert!(opened.status == 200 && opened.head.contains("set-cookie: "));
    broker.stop();
}

#[test]
fn a_person_gets_a_link_of_the_gateway_that_runs_and_an_agent_gets_none() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let gateway = Gateway::start(&home);
    let address = gateway.address.clone();
    let open = ["web", "--open", "--listen", &address];
    let mut links = Vec::new();
    for _ in 0..2 {
        let link = home.run(&open).ok();
        let path = link.trim_end().strip_prefix(&format!("http://{address}"));
        links.push(path.expect(&link).to_owned());
    }
    assert_ne!(links[0], links[1]);
    for link in links {
        assert!(link.starts_with("/open/"), "{link}");
        let open = || gateway.ask(&format!("GET {link}"), &[], b"").status;
        assert_eq!((open(), open()), (200, 403), "once");
    }
    // Whoever is no `peerbus web` of this user's, as a proxy is.
    let refused = gateway.ask("POST /link", &[], b"");
    assert_eq!(refused.status, 403, "{}", refused.body);
    assert!(!refused.body.contains("/open/"), "{}", refused.body);

    let other = home.path().join("another-peerbus");
    fs::copy(env!("CARGO_BIN_EXE_peerbus"), &other).expect("a copy");
    let refused = Finished::of(home.command(other).args(open));
    let kill = format!("end that gateway (`kill {}`)", gateway.child.id());
    for part in [&kill, "the same program of the same user"] {
        assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
    }
    assert_eq!(refused.ok(), format!("http://{address}/\n"));

    let mut bob = Session::start(&home, "bob");
    eventually("bob is there", || {
        names(&home).contains(&"bob".to_owned()).then_some(())
    });
    let code = OPENS.replace("ADDRESS", &address);
    let call = json!([code, env!("CARGO_BIN_EXE_peerbus"), ""]);
    bob.tell(&format!("ask {call}"));
    let said = bob.hear("asked");
    assert!(said.starts_with(&format!("0 http://{address}/ ")), "{said}");
    let told = said.contains("a person asks, in a terminal of their own");
    assert!(told && !said.contains("kill"), "{said}");
    assert!(!said.contains("/open/"), "{said}");
    let url = home.run(&["web", "--listen", &address]).fails(2);
    assert!(url.contains("name another address"), "{url}");
    broker.stop();
}
