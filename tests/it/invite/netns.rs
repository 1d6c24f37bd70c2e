//! The same between two network namespaces, each with one address and its own loopback.

use std::process::Command;

use super::*;

/// Two machines that reach each other, as far as the network goes. Root alone can make them.
struct Machines {
    names: [String; 2],
}

impl Machines {
    /// `None` where this user may not.
    fn new() -> Option<Self> {
        let names = ["a", "b"].map(|it| format!("pb{}{it}", std::process::id()));
        let made = Self { names };
        let [desk, laptop] = &made.names;
        let script = format!(
            "ip netns add {desk} && ip netns add {laptop} &&
             ip link add eth0 netns {desk} type veth peer name eth0 netns {laptop} &&
             ip -n {desk} addr add 10.9.8.1/24 dev eth0 && ip -n {laptop} addr add 10.9.8.2/24 dev eth0 &&
             for m in {desk} {laptop}; do ip -n $m link set lo up && ip -n $m link set eth0 up; done &&
             ip -n {desk} route add default via 10.9.8.2"
        );
        let output = Command::new("sh").args(["-c", &script]).output();
        let why = match output {
            Ok(output) if output.status.success() => return Some(made),
            Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
            Err(error) => error.to_string(),
        };
        println!("skipped: there are no network namespaces here: {why}");
        None
    }

    /// `peerbus` on one of them.
    fn run(&self, machine: usize, home: &Home, args: &[&str]) -> Command {
        let mut command = home.command("ip");
        command.args(["netns", "exec", &self.names[machine]]);
        command.arg(env!("CARGO_BIN_EXE_peerbus")).args(args);
        command
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

#[test]
fn between_two_machines_the_address_is_found_and_nothing_is_in_the_clear() {
    let Some(machines) = Machines::new() else {
        return;
    };
    let (desk, laptop) = (Home::new(), Home::new());
    let at_desk = |args: &[&str]| Finished::of(&mut machines.run(0, &desk, args));
    let at_laptop = |args: &[&str]| Finished::of(&mut machines.run(1, &laptop, args));
    let serve =
        || Broker::spawn(&mut machines.run(0, &desk, &["serve", "--listen", "127.0.0.1:0"]));
    let first = serve();
    let invite = ["invite", "laptop", "--listen", "0.0.0.0:4711"];
    at_desk(&invite).fails(1);
    first.stop();
    let broker = serve();
    let code = at_desk(&["invite", "laptop"]).ok();
    assert!(code.starts_with("pb1:10.9.8.1:"), "{code}");
    let plain = code.replacen("pb1:", "ws://", 1);
    let plain = plain.split('/').take(3).collect::<Vec<_>>().join("/");
    let said = at_laptop(&["peers", "--url", &plain]).fails(2);
    assert!(said.contains("credentials"), "{said}");
    at_laptop(&["join", code.trim(), "--yes"]).ok();
    let said = at_laptop(&["peers", "--url", &plain]).fails(2);
    let not_sent = format!("was not sent to {plain}");
    assert!(said.contains(&not_sent), "{said}");
    let mut peers = machines.run(1, &laptop, &["peers", "--url", &plain]);
    let said = Finished::of(peers.env("PEERBUS_TOKEN", laptop.credential("token"))).fails(1);
    assert!(said.contains("it speaks TLS"), "{said}");
    at_desk(&["recv", "--name", "ann", "--timeout", "0.1"]).ok();
    at_laptop(&["send", "ann", "from afar", "--name", "laptop-bob"]).ok();
    let got = at_desk(&["recv", "--name", "ann", "--count", "1"]).ok();
    assert!(got.contains("from afar"), "{got}");
    at_desk(&["send", "laptop-bob", "and back"]).ok();
    let got = at_laptop(&["recv", "--name", "laptop-bob", "--count", "1"]).ok();
    assert!(got.contains("and back"), "{got}");
    let said = at_desk(&["audit", "sessions"]).ok();
    assert!(
        said.contains("laptop join joined source \"10.9.8.2\""),
        "{said}"
    );
    broker.stop();
}
