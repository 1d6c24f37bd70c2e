//! The operator frees a name.

use peerbus_core::broker::{BrokerInput, Command};
use peerbus_wire::{PeerName, Register, Token};

use crate::rig::{OTHER_TOKEN, Rig, register};

fn other(name: &str) -> Register {
    Register {
        token: Token::parse(OTHER_TOKEN),
        ..register(name)
    }
}

fn release(name: &str) -> BrokerInput {
    BrokerInput::Operate(Command::Release(PeerName::parse(name).unwrap()))
}

#[test]
fn a_freed_name_belongs_to_whoever_registers_it_next_with_its_mail() {
    let mut rig = Rig::new();
    let (ada, bob) = (rig.v1("ada"), rig.v1("bob"));
    rig.send(bob, "bob", "ada", "m1");
    rig.close(ada, true);
    rig.input(release("ADA"));
    rig.restart();
    let new = rig.join(other("ada"));
    assert_eq!(rig.delivered(new), [1]);
    rig.close(new, true);
    let old = rig.ask(register("ada"));
    let (_, text) = rig.closed(old).unwrap();
    assert_eq!(text, "name claimed under a different token");
}

#[test]
fn freeing_a_name_leaves_its_holder_alone() {
    let mut rig = Rig::new();
    let ada = rig.v1("ada");
    rig.input(release("ada"));
    assert_eq!(rig.closed(ada), None);
    rig.input(release("nobody"));
    let new = rig.join(other("ada"));
    assert_eq!(
        rig.closed(ada).map(|(code, _)| code),
        Some(4000),
        "until somebody takes it"
    );
    assert_eq!(rig.closed(new), None);
}
