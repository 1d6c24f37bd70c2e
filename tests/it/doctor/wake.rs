//! Whether sessions can be woken: one truth of each, by what it says itself.

use serde_json::json;

use crate::requests::Holder;
use crate::support::eventually;

use super::Setup;

#[test]
fn of_a_session_that_is_woken_without_a_socket_nothing_says_that_it_is_not() {
    let setup = Setup::new();
    let own = std::process::id();
    setup.write(&format!(".claude/sessions/{own}.json"), "{}");
    let broker = setup.broker.as_ref().expect("it runs");
    let mut bob = Holder::new(&setup.home, broker, "bob");
    bob.shows(json!({ "client": "claude-code", "version": "2", "wake": ["rewake"], "pid": own }));
    let said = eventually("it is known", || {
        let said = setup.home.run(&["doctor"]).stdout;
        let woken = said.contains("1 of the sessions on the bus can be woken");
        woken.then_some(said)
    });
    assert!(!said.contains("no socket for messages"), "{said}");
    assert!(!said.contains("warning wake"), "{said}");
}
