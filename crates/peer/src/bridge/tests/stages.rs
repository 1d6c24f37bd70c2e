use super::*;
use peerbus_wire::DeliveryKey;
use peerbus_wire::How;

fn seen() -> Stage {
    Stage::Acked(Some(How::Seen {
        path: "channel".into(),
        evidence: "transcript".into(),
    }))
}

/// What is told of stages: number, word, and whether it is an answer.
fn told(said: Vec<Saying>) -> Vec<(u64, &'static str, bool)> {
    let stages = said.into_iter().filter_map(|saying| match saying {
        Saying::Stages { items, answer } => Some((items, answer)),
        _ => None,
    });
    let each = |(items, answer): (Vec<StreamItem>, bool)| {
        let one = move |item: StreamItem| (item.told.number, item.stage.word(), answer);
        items.into_iter().map(one)
    };
    stages.flat_map(each).collect()
}

fn notice(key: &str) -> BridgeOutput {
    let key = DeliveryKey::parse(key).unwrap();
    BridgeOutput::Broker(ClientFrame::ack(key, None))
}

/// A bridge that has taken message 3, whose id is b3.
fn taken() -> Rig {
    let mut rig = Rig::up(None);
    rig.stream(3, 0);
    rig.accept("b3");
    rig.pass(20);
    rig.outs();
    rig
}

#[test]
fn a_stage_is_told_until_it_is_noted_and_the_newest_stands_for_all() {
    let mut rig = taken();
    rig.receipt("b3", None, Stage::Delivered);
    rig.pass(40);
    assert_eq!(told(rig.said()), [], "its end may follow");
    rig.pass(10);
    assert_eq!(told(rig.said()), [(3, "delivered", false)]);
    rig.receipt("b3", None, Stage::Delivered);
    rig.receipt("b3", None, seen());
    assert_eq!(told(rig.said()), [], "it waits for company");
    rig.pass(10);
    assert_eq!(told(rig.said()), [(3, "acked", false)]);
    rig.pass_with(2_000, 0);
    assert_eq!(told(rig.said()), [(3, "acked", false)]);
    let item = StreamItem::new(3, Some(id("b3")), 7, seen());
    let mut other = item.told.clone();
    other.end = false;
    rig.say(Saying::Noted(vec![other]));
    rig.pass_with(4_000, 0);
    assert_eq!(told(rig.said()).len(), 1, "that was of the one before");
    rig.say(Saying::Noted(vec![item.told]));
    rig.pass_with(60_000, 0);
    assert_eq!(told(rig.said()), []);
}

#[test]
fn a_notice_is_acked_when_the_home_has_noted_it() {
    let mut rig = taken();
    let why = "rejected".to_owned();
    let dead = Stage::Dead { why };
    rig.receipt("b3", Some("n4"), dead.clone());
    // With others that come soon after it.
    rig.pass(10);
    assert!(!rig.out.contains(&notice("n4")));
    assert_eq!(told(rig.said()), [(3, "dead", false)]);
    let item = StreamItem::new(3, Some(id("b3")), 7, dead);
    rig.say(Saying::Noted(vec![item.told]));
    assert_eq!(rig.outs(), [notice("n4")]);
}

#[test]
fn an_end_is_noted_when_it_is_on_disk_at_home() {
    let mut rig = Rig::up(None);
    rig.deliver([1]);
    rig.hello("B1", 1, false);
    rig.outs();
    let items = vec![StreamItem::new(1, Some(id("m1")), 7, Stage::Delivered)];
    rig.say(Saying::Stages {
        items: items.clone(),
        answer: false,
    });
    assert_eq!(says(rig.out.make_contiguous()), [(1, "delivered")]);
    assert_eq!(rig.said(), [Saying::Noted(vec![items[0].told.clone()])]);
    let items = vec![StreamItem::new(1, Some(id("m1")), 8, seen())];
    rig.say(Saying::Stages {
        items: items.clone(),
        answer: false,
    });
    assert_eq!(says(&rig.outs()), [(1, "acked")]);
    // With others that come soon after it.
    rig.pass(50);
    assert_eq!(rig.outs(), [BridgeOutput::Broker(ClientFrame::Peers)]);
    rig.barrier();
    assert_eq!(rig.said(), [Saying::Noted(vec![items[0].told.clone()])]);
}

#[test]
fn a_stage_of_what_is_not_confirmed_yet_confirms_it() {
    let mut rig = Rig::up(None);
    rig.deliver([1]);
    rig.outs();
    let items = vec![StreamItem::new(1, Some(id("m1")), 7, Stage::Delivered)];
    let answer = false;
    rig.say(Saying::Stages { items, answer });
    assert_eq!(says(&rig.outs()), [(1, "forwarded"), (1, "delivered")]);
    // What it says of one message under the number of another is not believed.
    rig.deliver([2]);
    let items = vec![StreamItem::new(2, Some(id("m1")), 7, seen())];
    rig.say(Saying::Stages { items, answer });
    assert_eq!(says(&rig.outs()), []);
}

#[test]
fn the_home_asks_about_what_it_has_forwarded_page_by_page() {
    let mut rig = Rig::up(None);
    rig.pass_with(3_000, 9);
    let asks = BridgeOutput::Broker(ClientFrame::Forwarded { after: None });
    assert!(rig.out.contains(&asks));
    rig.out.clear();
    let page = [(4, "m4"), (2, "m2")];
    rig.input(forwarded(&page));
    assert_eq!(rig.said(), [asked(&page)]);
    rig.pass_with(2_000, 9);
    let after = Some(Seq(2).key());
    let next = BridgeOutput::Broker(ClientFrame::Forwarded { after });
    assert_eq!(rig.outs(), [next]);
    rig.input(forwarded(&[]));
    rig.pass_with(30_000, 9);
    assert_eq!(rig.outs(), [], "the next round comes later");
    rig.pass_with(31_000, 9);
    assert_eq!(rig.outs(), [asks]);
}

#[test]
fn a_question_is_answered_with_what_the_broker_knows() {
    let mut rig = Rig::up(Some("B1:5"));
    rig.pass(20);
    rig.outs();
    rig.say(asked(&[(3, "b3"), (4, "b4"), (5, "b5"), (6, "b6")]));
    let ids = ["b3", "b4", "b5", "b6"].map(id).to_vec();
    let status = BridgeOutput::Broker(ClientFrame::Status { ids });
    assert_eq!(
        rig.outs(),
        [status, BridgeOutput::Broker(ClientFrame::Peers)]
    );
    rig.accept("b3");
    rig.receipt("b3", None, Stage::Delivered);
    rig.receipt("b3", None, seen());
    rig.receipt("b4", None, Stage::Unknown);
    rig.accept("b5");
    rig.receipt("b5", None, Stage::Queued);
    let nobody = Accepted {
        recipients: 0,
        online: 0,
        duplicate: false,
    };
    rig.receipt("b6", None, Stage::Accepted(nobody));
    assert_eq!(told(rig.said()), []);
    rig.barrier();
    let answers = [(3, "acked", true), (4, "unknown", true), (6, "dead", true)];
    assert_eq!(
        told(rig.said()),
        answers,
        "of what waits there is nothing to say"
    );
    // From now on its number is known.
    rig.receipt("b5", None, Stage::Delivered);
    rig.pass(50);
    assert_eq!(told(rig.said()), [(5, "delivered", false)]);
}

#[test]
fn what_is_not_known_over_there_ended_if_it_was_forwarded() {
    let mut rig = Rig::up(None);
    rig.deliver([2]);
    rig.input(forwarded(&[(1, "m1")]));
    rig.outs();
    let item =
        |number: u64| StreamItem::new(number, Some(id(&format!("m{number}"))), 0, Stage::Unknown);
    let items = vec![item(1), item(2), item(3)];
    let answer = true;
    rig.say(Saying::Stages { items, answer });
    let outs = rig.outs();
    assert_eq!(says(&outs), [(1, "acked")]);
    let stage = Stage::Acked(None);
    assert_eq!(
        outs[0],
        BridgeOutput::Broker(ClientFrame::progress(Seq(1).key(), stage))
    );
}

#[test]
fn an_end_without_a_number_is_placed_by_what_was_forwarded_or_is_old_news() {
    let mut rig = Rig::up(None);
    // It has the same id, and is another one.
    rig.deliver([1]);
    rig.outs();
    let end = StreamItem::new(0, Some(id("m1")), 7, seen());
    let old = StreamItem::new(0, Some(id("m0")), 6, seen());
    let items = vec![end.clone(), old.clone()];
    let answer = false;
    rig.say(Saying::Stages { items, answer });
    assert_eq!(rig.outs(), []);
    rig.pass_with(3_000, 0);
    rig.out.clear();
    rig.input(forwarded(&[(9, "m1")]));
    assert_eq!(says(rig.out.make_contiguous()), [(9, "acked")]);
    rig.pass(50);
    rig.out.clear();
    rig.barrier();
    assert_eq!(rig.said(), [Saying::Noted(vec![end.told])]);
    rig.hello("B1", 1, false);
    rig.outs();
    // One round began after the other one came.
    rig.input(forwarded(&[]));
    assert_eq!(rig.said(), []);
    rig.input(forwarded(&[]));
    assert_eq!(rig.said(), [Saying::Noted(vec![old.told])]);
}
