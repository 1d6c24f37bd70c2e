//! Machines that ask to be let in, as the core has it.

use peerbus_core::broker::{BrokerInput, ConnId, JoinTry};
use peerbus_wire::{ClientFrame, JoinGrant, JoinRefusal, TokenName};

use crate::rig::{Rig, SECOND, register};

/// A new connection asks, and this comes of it.
fn asks(rig: &mut Rig, outcome: Result<JoinGrant, JoinRefusal>) -> ConnId {
    let conn = rig.open();
    let name = TokenName::parse("laptop").filter(|_| outcome != Err(JoinRefusal::Unknown));
    let from = "192.0.2.7".to_owned();
    let tried = JoinTry {
        name,
        from,
        outcome,
    };
    rig.input(BrokerInput::Join(conn, tried));
    conn
}

fn grant() -> Result<JoinGrant, JoinRefusal> {
    Ok(JoinGrant {
        key: "secret".to_owned().into(),
        names: vec!["laptop*".into()],
    })
}

/// The chain's lines about it.
fn written(rig: &Rig) -> Vec<String> {
    let blocks = rig.store.tables().audit.values();
    let lines = blocks.flat_map(|block| block.events.lines());
    let lines = lines.filter(|line| line.starts_with(['I', 'J']));
    lines.map(str::to_owned).collect()
}

#[test]
fn what_came_of_it_is_in_the_chain_before_the_machine_is_told() {
    let mut rig = Rig::new();
    let conn = asks(&mut rig, grant());
    let given = rig.take(conn).joined.expect("it is let in");
    assert_eq!(given.names, ["laptop*"]);
    let closed = rig.closed(conn);
    assert_eq!(closed, Some((1000, "the machine is let in".into())));
    rig.frame(conn, ClientFrame::Register(register("laptop-bob")));
    assert!(rig.row("laptop-bob").is_none(), "it is for that alone");
    assert_eq!(written(&rig), ["I laptop joined 192.0.2.7"]);
    let conn = asks(&mut rig, Err(JoinRefusal::Unknown));
    let (code, text) = rig.closed(conn).expect("it is refused");
    assert_eq!((code, text.as_str()), (1008, "no invitation has this code"));
    assert_eq!(written(&rig)[1..], ["I - unknown 192.0.2.7"]);
}

#[test]
fn who_tries_and_tries_is_counted_and_does_not_hide_who_is_let_in() {
    let mut rig = Rig::new();
    for _ in 0..100 {
        asks(&mut rig, Err(JoinRefusal::Unknown));
    }
    asks(&mut rig, grant());
    for _ in 0..61 {
        asks(&mut rig, Err(JoinRefusal::Taken));
    }
    for _ in 0..100 {
        asks(&mut rig, grant());
    }
    let lines = written(&rig);
    assert_eq!(lines.len(), 180, "60 of each kind");
    let laptop = ["I laptop joined 192.0.2.7", "I laptop taken 192.0.2.7"];
    assert_eq!(lines[60..62], laptop, "tries by no code hide nothing");
    rig.pass(61 * SECOND);
    asks(&mut rig, Err(JoinRefusal::Used));
    assert_eq!(written(&rig)[180..], ["J 82", "I laptop used 192.0.2.7"]);
}

#[test]
fn a_machine_that_has_gone_is_told_nothing() {
    let mut rig = Rig::new();
    let conn = rig.open();
    rig.close(conn, false);
    let (name, from) = (None, String::new());
    let outcome = Err(JoinRefusal::Unknown);
    let tried = JoinTry {
        name,
        from,
        outcome,
    };
    rig.input(BrokerInput::Join(conn, tried));
    assert_eq!(rig.closed(conn), None);
    assert_eq!(written(&rig), ["I - unknown -"]);
}
