use proptest::prelude::*;

use super::*;
use crate::ids::MessageId;
use crate::limits::{HOW_BYTES_MAX, ID_BYTES_MAX, REASON_BYTES_MAX};
use crate::stage::{How, Stage};

fn epoch() -> impl Strategy<Value = Epoch> {
    "[A-Za-z0-9_-]{1,64}".prop_map(|text| Epoch::parse(&text).unwrap())
}

fn id() -> impl Strategy<Value = MessageId> {
    "[A-Za-z0-9._:-]{1,128}".prop_map(|text| MessageId::parse(&text).unwrap())
}

fn stage() -> impl Strategy<Value = Stage> {
    let claim = || "[ -~]{1,64}";
    let why = || "\\PC{0,120}";
    prop_oneof![
        Just(Stage::Delivered),
        Just(Stage::Unknown),
        Just(Stage::Settled { recipients: 1 }),
        Just(Stage::Acked(None)),
        claim().prop_map(|path| Stage::Pushed { path }),
        claim().prop_map(|path| Stage::Presented { path }),
        claim().prop_map(|path| Stage::Acked(Some(How::Pushed { path }))),
        (claim(), claim())
            .prop_map(|(path, evidence)| Stage::Acked(Some(How::Seen { path, evidence }))),
        why().prop_map(|why| Stage::Held { why }),
        why().prop_map(|why| Stage::Expired { why }),
        why().prop_map(|why| Stage::Dead { why }),
        why().prop_map(|said| Stage::Working { said }),
        why().prop_map(|why| Stage::Declined { why }),
        why().prop_map(|why| Stage::Unanswered { why }),
    ]
}

fn told() -> impl Strategy<Value = Told> {
    let all = (
        any::<u64>(),
        proptest::option::of(id()),
        any::<u64>(),
        any::<bool>(),
    );
    all.prop_map(|(number, id, at_ms, end)| Told {
        number: number.max(u64::from(id.is_none())),
        id,
        at_ms,
        end,
    })
}

fn saying() -> impl Strategy<Value = Saying> {
    let item = (told(), stage())
        .prop_map(|(told, stage)| StreamItem::new(told.number, told.id, told.at_ms, stage));
    let asked = (1..u64::MAX, id()).prop_map(|(number, id)| Inquiry { number, id });
    prop_oneof![
        (any::<u64>(), any::<bool>()).prop_map(|(taken, gap)| Saying::Hello { taken, gap }),
        (proptest::collection::vec(item, 0..9), any::<bool>())
            .prop_map(|(items, answer)| Saying::Stages { items, answer }),
        proptest::collection::vec(told(), 0..9).prop_map(Saying::Noted),
        proptest::collection::vec(asked, 0..9).prop_map(Saying::Ask),
    ]
}

proptest! {
    #[test]
    fn a_head_reads_as_it_was_written(
        epoch in epoch(), meant_for in epoch(), number in 1..=u64::MAX, part in any::<u64>(),
    ) {
        let after = part % number;
        let head = StreamHead { epoch, meant_for, number, after };
        prop_assert_eq!(StreamHead::parse(&head.encode()), Some(head.clone()));
        let mark = Position { epoch: head.epoch, number: head.number };
        prop_assert!(mark.encode().len() <= 85);
        prop_assert_eq!(Position::parse(&mark.encode()), Some(mark));
    }

    #[test]
    fn what_is_said_reads_as_it_was_written(epoch in epoch(), other in epoch(), saying in saying()) {
        let outside = Outside { epoch, meant_for: Some(other), saying };
        let text = outside.encode();
        prop_assert!(text.len() <= OUTSIDE_BYTES_MAX);
        prop_assert_eq!(Outside::parse(text.as_bytes()), Ok(outside));
    }

    #[test]
    fn whatever_comes_is_read_whole_or_refused(
        value in "\\PC{0,80}", bytes in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        if let Some(head) = StreamHead::parse(&value) {
            prop_assert_eq!(head.encode(), value);
        }
        if let Ok(outside) = Outside::parse(&bytes) {
            prop_assert_eq!(Outside::parse(outside.encode().as_bytes()), Ok(outside));
        }
    }

    #[test]
    fn a_text_that_was_changed_on_the_way_is_read_whole_or_refused(
        epoch in epoch(), saying in saying(), at in any::<proptest::sample::Index>(), byte in any::<u8>(),
    ) {
        let outside = Outside { meant_for: Some(epoch.clone()), epoch, saying };
        let mut bytes = outside.encode().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(read) = Outside::parse(&bytes) {
            prop_assert_eq!(Outside::parse(read.encode().as_bytes()), Ok(read));
        }
    }
}

#[test]
fn a_head_that_breaks_a_rule_is_none() {
    for odd in [
        "",
        "1",
        "2 a b 1 0",
        "1 a b 1",
        "1 a b 1 1",
        "1 a b 0 0",
        "1 a b 01 0",
        "1 a b +2 0",
        "1 a b 2 0 ",
        "1  a b 2 0",
        "1 a! b 2 0",
        "1 a b 18446744073709551616 0",
    ] {
        assert_eq!(StreamHead::parse(odd), None, "{odd:?}");
    }
}

#[test]
fn the_largest_statements_fit() {
    let why = "\u{1}".repeat(REASON_BYTES_MAX);
    let id = MessageId::parse(&"m".repeat(ID_BYTES_MAX)).ok();
    let item = StreamItem::new(u64::MAX, id, u64::MAX, Stage::Dead { why });
    let outside = Outside {
        epoch: Epoch::parse(&"e".repeat(EPOCH_BYTES_MAX)).unwrap(),
        meant_for: Epoch::parse(&"f".repeat(EPOCH_BYTES_MAX)),
        saying: Saying::Stages {
            items: vec![item; ITEMS_MAX],
            answer: true,
        },
    };
    let text = outside.encode();
    assert!(text.len() <= OUTSIDE_BYTES_MAX, "{}", text.len());
    assert_eq!(Outside::parse(text.as_bytes()), Ok(outside));
}

#[test]
fn lists_and_texts_have_bounds() {
    let stages = |items: &str| {
        format!(r#"{{"v":1,"epoch":"a","for":"b","say":{{"stages":{{"items":[{items}]}}}}}}"#)
    };
    let one = r#"{"n":1,"state":"delivered"}"#;
    let many = vec![one; ITEMS_MAX + 1].join(",");
    assert!(Outside::parse(stages(one).as_bytes()).is_ok());
    assert!(Outside::parse(stages(&many).as_bytes()).is_err());
    for odd in [
        r#"{"n":1,"state":"seen"}"#,
        r#"{"state":"delivered"}"#,
        r#"{"n":1,"state":"pushed"}"#,
        r#"{"n":1,"id":"a b","state":"delivered"}"#,
        r#"{"n":-1,"state":"delivered"}"#,
    ] {
        assert!(Outside::parse(stages(odd).as_bytes()).is_err(), "{odd}");
    }
    let long = format!(
        r#"{{"n":1,"state":"pushed","path":"{}\u0007"}}"#,
        "p".repeat(99)
    );
    let Ok(outside) = Outside::parse(stages(&long).as_bytes()) else {
        panic!("{long}");
    };
    let Saying::Stages { items, .. } = outside.saying else {
        panic!("no stages");
    };
    let path = "p".repeat(HOW_BYTES_MAX);
    assert_eq!(items[0].stage, Stage::Pushed { path });
}

#[test]
fn only_a_hello_needs_not_say_for_whom_it_is_meant() {
    let said =
        |say: &str| Outside::parse(format!(r#"{{"v":1,"epoch":"a","say":{say}}}"#).as_bytes());
    assert!(said(r#"{"hello":{"taken":0}}"#).is_ok());
    assert!(said(r#"{"hello":{"taken":1}}"#).is_err());
    assert!(said(r#"{"ask":[]}"#).is_err());
    assert!(said(r#"{"later":{}}"#).is_err());
}
