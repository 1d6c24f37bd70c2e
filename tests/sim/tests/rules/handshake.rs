//! Who may register, and what the others are told: v1's checks in v1's order.

use peerbus_core::broker::BrokerInput;
use peerbus_wire::{ClientFrame, Register, Token, Window};

use crate::rig::{Rig, SECOND, ext, register, window};

const TOKEN: &str = r#""token":"one-token""#;

/// The first frame's text, and how the broker closes the connection.
fn refused(first: &str) -> (u16, String) {
    let mut rig = Rig::new();
    let conn = rig.open();
    rig.text(conn, first);
    rig.closed(conn).expect("refused")
}

#[test]
fn each_failure_has_its_code_and_its_text() {
    let reg = |members: &str| format!(r#"{{"type":"register",{members}}}"#);
    let v1 = r#""protocol_version":"v1""#;
    let cases = [
        ("no JSON".into(), 1007, "malformed handshake"),
        ("[]".into(), 1007, "malformed handshake"),
        (
            reg(&format!(r#"{v1},{TOKEN},"name":7"#)),
            1007,
            "malformed handshake",
        ),
        (
            r#"{"type":"ack"}"#.into(),
            1008,
            "first frame must be register",
        ),
        (
            format!(r#"{{{v1},"type":"peers"}}"#),
            1008,
            "first frame must be register",
        ),
        (
            format!(r#"{{{v1},"id":"x"}}"#),
            1008,
            "first frame must be register",
        ),
        (
            reg(r#""protocol_version":"v2""#),
            1008,
            "unsupported protocol version",
        ),
        (reg(TOKEN), 1008, "unsupported protocol version"),
        (reg(v1), 1008, "empty peer name"),
        (reg(&format!(r#"{v1},"name":"""#)), 1008, "empty peer name"),
        (
            reg(&format!(r#"{v1},"name":"a b","token":"x""#)),
            1008,
            "invalid bearer token",
        ),
        (
            reg(&format!(r#"{v1},"name":"a""#)),
            1008,
            "invalid bearer token",
        ),
    ];
    for (first, code, text) in cases {
        assert_eq!(refused(&first), (code, text.to_owned()), "{first}");
    }
    let (code, text) = refused(&reg(&format!(r#"{v1},{TOKEN},"name":"a b""#)));
    assert!(code == 1008 && text.contains("only A-Z a-z 0-9"), "{text}");
    let (code, text) = refused(&reg(&format!(r#"{v1},{TOKEN},"name":"Admin""#)));
    assert!(code == 1008 && text.contains("reserved"), "{text}");
}

#[test]
fn a_binary_first_frame_has_a_code_of_its_own() {
    let mut rig = Rig::new();
    let conn = rig.open();
    rig.input(BrokerInput::Frame(conn, ClientFrame::Binary));
    assert_eq!(
        rig.closed(conn),
        Some((1003, "handshake must be text".into()))
    );
}

#[test]
fn a_name_belongs_to_the_token_that_registered_it_even_when_it_is_away() {
    let mut rig = Rig::new();
    let owner = rig.v1("ada");
    let thief = || Register {
        token: Token::parse("another-token"),
        ..register("ADA")
    };
    let claimed = Some((1008, "name claimed under a different token".to_owned()));
    let first = rig.ask(thief());
    assert_eq!(rig.closed(first), claimed);
    rig.close(owner, true);
    let second = rig.ask(thief());
    assert_eq!(rig.closed(second), claimed, "the owner is away");
    rig.restart();
    let third = rig.ask(thief());
    assert_eq!(
        rig.closed(third),
        claimed,
        "the broker knows it from the disk"
    );
    rig.v1("ada");
}

#[test]
fn who_says_nothing_is_closed_after_the_deadline() {
    let mut rig = Rig::new();
    let conn = rig.open();
    rig.pass(10 * SECOND - 1);
    assert_eq!(rig.closed(conn), None);
    rig.pass(1);
    assert_eq!(rig.closed(conn).map(|(code, _)| code), Some(4001));
    let talker = rig.v1("ada");
    rig.pass(60 * SECOND);
    assert_eq!(rig.closed(talker), None);
}

#[test]
fn connections_and_names_have_a_cap() {
    let mut rig = Rig::with(|config| {
        config.connections_max = 2;
        config.peers_max = 2;
    });
    let ada = rig.v1("ada");
    let bob = rig.v1("bob");
    let third = rig.open();
    assert_eq!(rig.closed(third).map(|(code, _)| code), Some(1013));
    rig.close(third, false);
    rig.close(bob, true);
    // One without mail would give way to it.
    rig.send(ada, "ada", "bob", "m1");
    let cyd = rig.ask(register("cyd"));
    assert_eq!(
        rig.closed(cyd).map(|(code, _)| code),
        Some(1013),
        "a third name"
    );
    rig.close(cyd, false);
    rig.v1("bob");
    assert_eq!(rig.closed(ada), None);
}

#[test]
fn a_v1_client_is_told_who_is_here_and_an_ext_client_who_it_is() {
    let mut rig = Rig::new();
    rig.v1("cyd");
    rig.ext("ada");
    let bob = rig.ask(register("Bob"));
    let ack = rig.take(bob).peers.remove(0);
    assert_eq!(ack.names, ["Bob", "ada", "cyd"], "sorted, itself included");
    assert_eq!(
        (ack.ext, ack.window),
        (None, None),
        "nothing that v1 does not know"
    );
    let dan = rig.ask(ext("dan", "d"));
    let ack = rig.take(dan).peers.remove(0);
    assert_eq!(ack.names, ["dan"]);
    assert_eq!(ack.ext, Some(1));
    assert_eq!(ack.window, window(256, 1_048_576), "the default");
}

#[test]
fn the_window_that_is_asked_for_is_clamped() {
    let mut rig = Rig::new();
    for (asked, granted) in [
        (window(0, 0), (1, 1)),
        (window(7, 9_000), (7, 9_000)),
        (window(u32::MAX, u32::MAX), (4_096, 8_388_608)),
    ] {
        let conn = rig.ask(Register {
            window: asked,
            ..ext("ada", "same")
        });
        let (messages, bytes) = granted;
        let ack = rig.take(conn).peers.remove(0);
        assert_eq!(ack.window, Some(Window { messages, bytes }), "{asked:?}");
    }
}

#[test]
fn a_registration_is_on_disk_before_it_is_confirmed() {
    let mut rig = Rig::new();
    let conn = rig.open();
    rig.batch([BrokerInput::Frame(
        conn,
        ClientFrame::Register(register("ada")),
    )]);
    assert!(rig.take(conn).peers.is_empty(), "not before the commit");
    rig.commit();
    assert_eq!(rig.take(conn).peers.len(), 1);
    assert!(rig.row("ada").is_some_and(|row| row.online));
}
