use super::*;

fn ack(number: u64) -> BridgeOutput {
    BridgeOutput::Ack(StreamId(number))
}

fn later(number: u64) -> BridgeOutput {
    BridgeOutput::Later(StreamId(number))
}

#[test]
fn the_stream_is_acked_and_the_home_told_when_the_broker_has_it_on_disk() {
    let mut rig = Rig::up(None);
    rig.pass(20);
    rig.out.clear();
    rig.stream(3, 0);
    rig.stream(5, 3);
    let outs = rig.outs();
    assert_eq!(takes(&outs), [("B1:3", false), ("B1:5", false)]);
    assert_eq!(outs.len(), 2);
    rig.pass(20);
    assert_eq!(rig.hellos(), None);
    rig.accept("b3");
    rig.pass(50);
    assert!(rig.out.contains(&ack(3)) && !rig.out.contains(&ack(5)));
    assert_eq!(rig.hellos(), None, "its end may come first");
    rig.accept("b5");
    rig.pass(50);
    assert!(rig.out.contains(&ack(5)));
    assert_eq!(rig.hellos(), Some((3, false)));
    rig.pass(50);
    assert_eq!(rig.hellos(), Some((5, false)));
}

#[test]
fn what_is_known_is_confirmed_again_and_not_taken() {
    let mut rig = Rig::up(Some("B1:7"));
    rig.pass(20);
    rig.outs();
    rig.stream(7, 3);
    rig.stream(2, 0);
    assert_eq!(rig.outs(), [ack(7), ack(2)]);
    rig.pass(20);
    assert_eq!(rig.hellos(), Some((7, false)));
    // A mark of another epoch says nothing of this one.
    let mut rig = Rig::up(Some("B0:7"));
    rig.stream(2, 0);
    assert_eq!(takes(&rig.outs()), [("B1:2", false)]);
}

#[test]
fn a_gap_is_asked_for_and_nothing_behind_it_taken() {
    let mut rig = Rig::up(Some("B1:2"));
    rig.pass(20);
    rig.out.clear();
    rig.stream(5, 4);
    rig.stream(6, 5);
    let gap = BridgeEvent::Gap { taken: 2, came: 5 };
    let outs = rig.out.clone();
    assert_eq!(
        outs.iter()
            .filter(|it| **it == BridgeOutput::Event(gap.clone()))
            .count(),
        1
    );
    assert_eq!(rig.outs(), [ack(5), ack(6)]);
    rig.pass(20);
    assert_eq!(rig.hellos(), Some((2, true)));
    rig.pass(3_100);
    assert_eq!(
        rig.hellos(),
        Some((2, false)),
        "said once for each that came"
    );
    rig.stream(4, 2);
    rig.stream(5, 4);
    assert_eq!(takes(&rig.outs()), [("B1:4", false), ("B1:5", false)]);
}

#[test]
fn what_was_sent_in_another_life_of_a_broker_is_not_taken() {
    let mut rig = Rig::up(None);
    let text = envelope("bob@beta", "alice@alpha", "b1");
    rig.stream_text(("B0", "A1"), 1, 0, text.as_bytes());
    rig.stream_text(("B1", "A0"), 2, 0, text.as_bytes());
    assert_eq!(
        rig.out
            .iter()
            .filter(|it| **it == BridgeOutput::Event(BridgeEvent::Stale))
            .count(),
        2
    );
    assert_eq!(rig.outs(), [ack(1), ack(2)]);
}

#[test]
fn a_message_that_is_not_the_other_domains_to_send_ends_dead() {
    let mut rig = Rig::up(None);
    let cases = [
        ("bob@gamma", "alice@alpha"),
        ("bob", "alice@alpha"),
        ("alice@alpha", "alice@alpha"),
        ("bob@beta", "alice"),
        ("bob@beta", "carol@gamma"),
        ("bob@gamma@beta", "alice@alpha"),
        ("user@gamma@beta", "alice@alpha"),
    ];
    for (number, (from, to)) in (1..).zip(cases) {
        let text = envelope(from, to, "b");
        rig.stream_text(("B1", "A1"), number, 0, text.as_bytes());
        let outs = rig.outs();
        assert!(outs.contains(&ack(number)), "{from} {to}");
        assert_eq!(takes(&outs), [], "{from} {to}");
        let told = outs
            .iter()
            .any(|it| matches!(it, BridgeOutput::Outside(text) if text.contains("dead") && text.contains("the bridge of alpha: ")));
        assert!(told, "{from} {to}: {outs:?}");
    }
    rig.stream_text(("B1", "A1"), 9, 0, b"{\"id\":");
    assert_eq!(takes(&rig.outs()), []);
    // It was not passed over: what follows says so itself.
    rig.stream(10, 9);
    assert_eq!(rig.outs(), [ack(10)]);
    rig.stream(10, 0);
    assert_eq!(takes(&rig.outs()), [("B1:10", false)]);
}

#[test]
fn who_is_not_let_in_is_told_and_nobody_else_waits_for_that() {
    let mut rig = Rig::up(None);
    rig.bridge.allow = Some(Allow::parse(["bob -> alice", "ci-* -> *"]).unwrap());
    let cases = [
        ("bob@beta", "alice@alpha", true),
        ("ci-7@beta", "carol@alpha", true),
        ("bob@beta", "carol@alpha", false),
        ("mallory@beta", "alice@alpha", false),
    ];
    for (number, (from, to, goes)) in (1..).zip(cases) {
        let text = envelope(from, to, "b");
        rig.stream_text(("B1", "A1"), number, 0, text.as_bytes());
        let outs: Vec<_> = rig.out.drain(..).collect();
        assert_eq!(takes(&outs).len(), usize::from(goes), "{from} {to}");
        let why = format!("{from} may not write to {to}: ");
        let told =
            |it: &BridgeOutput| matches!(it, BridgeOutput::Outside(text) if text.contains(&why));
        assert_eq!(outs.iter().any(told), !goes, "{from} {to}: {outs:?}");
        let noted = |it: &BridgeOutput| matches!(it, BridgeOutput::Event(BridgeEvent::Refused { id: Some(_), why: said }) if said.starts_with(&why));
        assert_eq!(outs.iter().any(noted), !goes, "{from} {to}");
    }
}

#[test]
fn what_the_broker_has_no_room_for_is_tried_again_before_what_follows() {
    let mut rig = Rig::up(None);
    rig.stream(1, 0);
    rig.stream(2, 1);
    rig.outs();
    rig.refuse("b1", RefusalCode::DiskFull);
    assert!(!rig.bridge.takes());
    assert_eq!(rig.outs(), [later(1)]);
    rig.refuse("b2", RefusalCode::Invalid);
    assert_eq!(
        rig.outs(),
        [later(2)],
        "it was refused for what stands before it"
    );
    rig.stream(1, 0);
    assert_eq!(rig.outs(), [later(1)]);
    rig.pass(5_100);
    rig.outs();
    assert!(rig.bridge.takes());
    rig.stream(1, 0);
    rig.stream(2, 1);
    assert_eq!(takes(&rig.outs()), [("B1:1", true), ("B1:2", false)]);
}

#[test]
fn what_the_broker_never_takes_is_dead_and_not_passed_over() {
    let mut rig = Rig::up(None);
    rig.stream(1, 0);
    rig.stream(2, 1);
    rig.outs();
    rig.refuse("b1", RefusalCode::IdReused);
    rig.refuse("b2", RefusalCode::Invalid);
    let outs = rig.outs();
    assert!(outs.contains(&ack(1)) && outs.contains(&later(2)));
    rig.stream(2, 1);
    assert_eq!(rig.outs(), [ack(2)]);
    // Its home has given the first one up.
    rig.stream(2, 0);
    assert_eq!(takes(&rig.outs()), [("B1:2", true)]);
}

#[test]
fn nothing_of_a_domain_that_is_away_is_kept_in_the_stream() {
    let mut rig = Rig::new();
    rig.greet("A1", None);
    rig.outs();
    assert!(rig.bridge.takes(), "what others send comes behind it");
    rig.stream(1, 0);
    assert_eq!(rig.outs(), [later(1)], "it may be heard of soon");
    rig.pass(15_000);
    rig.stream(1, 0);
    assert_eq!(rig.outs(), [ack(1)]);
    // Its home sends it again.
    rig.hello("B1", 0, false);
    assert!(!rig.bridge.takes(), "the own broker is asked first");
    rig.greet("A1", None);
    rig.outs();
    rig.stream(1, 0);
    assert_eq!(takes(&rig.outs()), [("B1:1", false)]);
}

#[test]
fn no_more_is_taken_from_the_stream_than_the_broker_answers() {
    let mut rig = Rig::up(None);
    for number in 1..=TAKES_MAX as u64 {
        assert!(rig.bridge.takes());
        rig.stream(number, number - 1);
    }
    assert!(!rig.bridge.takes());
    rig.outs();
    rig.stream(TAKES_MAX as u64 + 1, TAKES_MAX as u64);
    assert_eq!(takes(&rig.outs()), []);
    rig.accept("b1");
    assert!(rig.bridge.takes());
}
