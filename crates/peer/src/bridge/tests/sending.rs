use super::*;

#[test]
fn each_message_says_what_stands_before_it_until_that_is_confirmed() {
    let mut rig = Rig::up(None);
    rig.deliver([4, 7, 9]);
    assert_eq!(published(&rig.outs()), [(4, 0), (7, 4), (9, 7)]);
    rig.hello("B1", 7, false);
    assert_eq!(says(&rig.outs()), [(4, "forwarded"), (7, "forwarded")]);
    rig.hello("B1", 7, false);
    rig.hello("B1", 4, false);
    assert_eq!(says(&rig.outs()), [], "once is enough");
    rig.deliver([12]);
    assert_eq!(published(&rig.outs()), [(12, 9)]);
    assert_eq!(rig.bridge.unconfirmed(), 2);
}

#[test]
fn what_is_not_confirmed_goes_again_later_and_later() {
    let mut rig = Rig::up(None);
    rig.deliver([1, 2]);
    rig.outs();
    rig.pass_with(2_000, 0);
    rig.hello("B1", 0, false);
    assert_eq!(published(&rig.outs()), [(1, 0), (2, 1)]);
    rig.pass_with(3_000, 0);
    assert_eq!(published(&rig.outs()), []);
    rig.hello("B1", 1, false);
    rig.outs();
    rig.pass_with(3_000, 1);
    assert_eq!(published(&rig.outs()), [(2, 0)]);
}

#[test]
fn a_gap_over_there_is_filled_at_once() {
    let mut rig = Rig::up(None);
    rig.deliver([1, 2, 3]);
    rig.outs();
    rig.now_ms = 900;
    rig.hello("B1", 1, true);
    let outs = rig.outs();
    assert_eq!(published(&outs), [(2, 0), (3, 2)]);
    rig.hello("B1", 1, true);
    assert_eq!(published(&rig.outs()), [], "it is on its way");
}

#[test]
fn an_end_gives_up_what_was_not_confirmed_and_the_rest_closes_up() {
    let mut rig = Rig::up(None);
    rig.deliver([1, 2, 3]);
    rig.outs();
    let why = "no".to_owned();
    let dead = StreamItem::new(2, Some(id("m2")), 0, Stage::Dead { why });
    let items = vec![dead];
    rig.say(Saying::Stages {
        items,
        answer: false,
    });
    let outs = rig.outs();
    assert_eq!(says(&outs), [(2, "dead")]);
    assert_eq!(outs.last(), Some(&BridgeOutput::Broker(ClientFrame::Peers)));
    rig.now_ms = 900;
    rig.hello("B1", 1, true);
    let again = published(&rig.outs());
    assert_eq!(again, [(2, 0), (3, 2)], "its end may not be on disk");
    rig.barrier();
    rig.pass(100);
    assert_eq!(published(&rig.outs()), [(3, 0)]);
}

#[test]
fn what_is_given_up_is_said_once_and_the_rest_goes_again_once_for_all_of_it() {
    let mut rig = Rig::up(None);
    rig.pass(1_000);
    rig.hello("B1", 0, false);
    rig.deliver(1..=100);
    rig.outs();
    let dead = |rig: &mut Rig, numbers: std::ops::RangeInclusive<u64>| {
        let why = || "no".to_owned();
        let of = |number| StreamItem::new(number, None, 0, Stage::Dead { why: why() });
        rig.say(Saying::Stages {
            items: numbers.map(of).collect(),
            answer: false,
        });
        rig.outs()
    };
    let asked = |outs: &[BridgeOutput]| {
        let barrier = BridgeOutput::Broker(ClientFrame::Peers);
        outs.iter().filter(|it| **it == barrier).count()
    };
    let outs = dead(&mut rig, 1..=64);
    assert_eq!((says(&outs).len(), asked(&outs)), (64, 64));
    let outs = dead(&mut rig, 1..=64);
    assert_eq!((says(&outs), asked(&outs)), (vec![], 0), "it was said");
    for _ in 1..64 {
        rig.barrier();
    }
    assert_eq!(
        published(&rig.outs()),
        [],
        "the last one's end is not on disk"
    );
    rig.barrier();
    let again = published(&rig.outs());
    assert_eq!((again.len(), again[0], again[1]), (36, (65, 0), (66, 65)));
    dead(&mut rig, 65..=65);
    rig.barrier();
    assert_eq!(published(&rig.outs()), [], "not with every end");
    rig.pass(100);
    assert_eq!(published(&rig.outs()).len(), 35);
    // On another connection it is to be said again.
    dead(&mut rig, 66..=66);
    rig.input(BridgeInput::Lost);
    rig.greet("A1", None);
    rig.deliver([66]);
    rig.outs();
    assert_eq!(says(&dead(&mut rig, 66..=66)), [(66, "dead")]);
}

#[test]
fn what_the_stream_never_takes_is_dead_and_the_rest_closes_up() {
    let mut rig = Rig::up(None);
    rig.deliver([1, 2]);
    rig.outs();
    rig.input(BridgeInput::Unpublished {
        number: 1,
        never: Some("too large".into()),
    });
    let outs = rig.outs();
    assert_eq!((says(&outs), published(&outs)), (vec![(1, "dead")], vec![]));
    rig.barrier();
    rig.pass(100);
    assert_eq!(published(&rig.outs()), [(2, 0)]);
    rig.input(BridgeInput::Unpublished {
        number: 2,
        never: None,
    });
    assert_eq!(says(&rig.outs()), []);
    let body = format!(
        "\"{}\"",
        "x".repeat(peerbus_wire::bridge::ENVELOPE_BYTES_MAX - 200)
    );
    rig.deliver_text(
        3,
        &envelope_of("alice@alpha", "bob@beta", "m3", body.into()),
    );
    let outs = rig.outs();
    assert_eq!((says(&outs), published(&outs)), (vec![(3, "dead")], vec![]));
}

#[test]
fn a_number_that_comes_behind_a_larger_one_starts_the_connection_over() {
    let mut rig = Rig::up(None);
    rig.deliver([3]);
    rig.outs();
    rig.deliver([3]);
    assert_eq!(rig.outs(), [], "that one is known");
    rig.deliver([2]);
    assert_eq!(rig.outs(), [BridgeOutput::Register("B1".into())]);
}

#[test]
fn what_a_full_stream_did_not_take_goes_again_as_soon_as_there_is_room() {
    let mut rig = Rig::up(None);
    rig.deliver([1, 2, 3]);
    rig.outs();
    let full = |number| BridgeInput::Unpublished {
        number,
        never: None,
    };
    rig.input(full(2));
    rig.input(full(3));
    rig.pass(1_000);
    // That one was seen says as much as a confirmation.
    let seen = StreamItem::new(1, Some(id("m1")), 0, Stage::Acked(None));
    rig.say(Saying::Stages {
        items: vec![seen],
        answer: false,
    });
    rig.pass(1);
    assert_eq!(published(&rig.outs()), [(2, 0), (3, 2)]);
    rig.input(full(3));
    rig.hello("B1", 2, false);
    rig.pass(100);
    assert_eq!(published(&rig.outs()), [], "not with every word");
    rig.pass(400);
    assert_eq!(published(&rig.outs()), [(3, 0)]);
}
