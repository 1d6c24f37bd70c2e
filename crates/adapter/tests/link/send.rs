use std::time::Duration;

use peerbus_adapter::{Accepted, BusError, Receipt, Refusal, RefusalCode, SendError, Stage};
use peerbus_test_support::{PATIENCE, soon};
use peerbus_wire::{BrokerFrame, ClientFrame, PeersFrame};

use crate::broker::{Place, until};

#[tokio::test]
async fn a_send_returns_what_the_receipt_says() {
    let place = Place::new();
    let (bus, mut peer) = place.online(true).await;
    let sending = tokio::spawn({
        let bus = bus.clone();
        async move { bus.send("alice", r#"{ "text": "<hi>" }"#, PATIENCE).await }
    });
    let (id, text) = peer.envelope().await;
    assert!(
        text.contains(r#""body":{"text":"\u003chi\u003e"}"#),
        "{text}"
    );
    assert!(text.contains(r#""from":"bob","to":"alice""#), "{text}");
    peer.accepted(&id).await;
    let sent = soon(sending).await.unwrap().unwrap();
    assert_eq!(sent.id, id.as_str());
    let accepted = Accepted {
        recipients: 1,
        online: 0,
        duplicate: false,
    };
    assert_eq!(sent.accepted, Some(accepted));
}

#[tokio::test]
async fn a_refusal_reaches_the_caller_in_the_brokers_words() {
    let place = Place::new();
    let (bus, mut peer) = place.online(true).await;
    let (sent, ()) = tokio::join!(bus.broadcast("1", PATIENCE), async {
        let (id, text) = peer.envelope().await;
        assert!(
            text.contains(r#""to":"*""#) && text.contains(r#""kind":"broadcast""#),
            "{text}"
        );
        let reason = "nobody holds or has held the name".to_owned();
        let refusal = Refusal {
            code: RefusalCode::UnknownRecipient,
            reason,
        };
        peer.receipt(&id, Stage::Refused(refusal)).await;
    });
    let error = sent.unwrap_err();
    assert!(matches!(&error, SendError::Refused(r) if r.code == RefusalCode::UnknownRecipient));
    assert_eq!(error.to_string(), "nobody holds or has held the name");
}

#[tokio::test]
async fn behind_a_v1_broker_a_send_is_written_and_no_more() {
    let place = Place::new();
    let (bus, mut peer) = place.online(false).await;
    let sent = soon(bus.send("alice", "1", PATIENCE)).await.unwrap();
    assert_eq!(sent.accepted, None);
    assert_eq!(peer.envelope().await.0.as_str(), sent.id);
    let error = soon(bus.statuses(&[sent.id], PATIENCE)).await.unwrap_err();
    assert_eq!(error, BusError::NotSupported);
}

#[tokio::test]
async fn a_send_without_a_broker_waits_for_one() {
    let mut place = Place::empty();
    let bus = place.bus();
    let sending = tokio::spawn({
        let bus = bus.clone();
        async move { bus.send("alice", "1", PATIENCE).await }
    });
    until(&bus, |state| state.to_string().contains("no broker at")).await;
    assert!(!sending.is_finished());
    place.open();
    let mut peer = place.admit(true).await;
    let (id, _) = peer.envelope().await;
    peer.accepted(&id).await;
    assert_eq!(soon(sending).await.unwrap().unwrap().id, id.as_str());
}

#[tokio::test]
async fn a_send_that_never_left_says_so_and_is_never_sent() {
    let mut place = Place::empty();
    let bus = place.bus();
    let error = bus
        .send("alice", "1", Duration::from_millis(50))
        .await
        .unwrap_err();
    let sentence = error.to_string();
    assert!(
        matches!(error, SendError::TimedOut { left: false, .. }),
        "{error:?}"
    );
    assert!(
        sentence.contains("not sent within 0.05 s, and not kept for later: not connected yet"),
        "{sentence}"
    );
    place.open();
    let mut peer = place.admit(true).await;
    let (sent, ()) = tokio::join!(bus.send("alice", "2", PATIENCE), async {
        let (id, text) = peer.envelope().await;
        assert!(
            text.contains(r#""body":2"#),
            "the first one was to be dropped: {text}"
        );
        peer.accepted(&id).await;
    });
    sent.unwrap();
}

#[tokio::test]
async fn a_send_without_a_receipt_says_that_it_may_be_accepted() {
    let place = Place::new();
    let (bus, mut peer) = place.online(true).await;
    let error = bus
        .send("alice", "1", Duration::from_millis(200))
        .await
        .unwrap_err();
    let SendError::TimedOut {
        id,
        left: true,
        sentence,
    } = &error
    else {
        panic!("{error:?}")
    };
    assert!(sentence.contains("may have been accepted"), "{sentence}");
    assert!(sentence.contains("under the same id for"), "{sentence}");
    assert_eq!(peer.envelope().await.0.as_str(), id);
}

#[tokio::test]
async fn peers_and_statuses_are_asked_for() {
    let place = Place::new();
    let (bus, mut peer) = place.online(true).await;
    let (peers, ()) = tokio::join!(bus.peers(PATIENCE), async {
        assert!(matches!(peer.read().await.0, ClientFrame::Peers));
        let names = vec!["alice".into(), "bob".into()];
        peer.frame(&BrokerFrame::Peers(PeersFrame {
            names,
            ..PeersFrame::default()
        }))
        .await;
    });
    let peers = peers.unwrap();
    let names: Vec<_> = peers
        .entries
        .iter()
        .map(|entry| entry.name.as_str())
        .collect();
    assert_eq!((peers.me.as_str(), names), ("bob", vec!["alice", "bob"]));

    let ids = ["m1".to_owned()];
    let (receipts, id) = tokio::join!(bus.statuses(&ids, PATIENCE), async {
        let (ClientFrame::Status { ids }, _) = peer.read().await else {
            panic!("no status")
        };
        peer.receipt(&ids[0], Stage::Queued).await;
        assert!(matches!(peer.read().await.0, ClientFrame::Peers));
        peer.frame(&BrokerFrame::Peers(PeersFrame::default())).await;
        ids[0].clone()
    });
    let queued = Receipt {
        to: Some("alice".into()),
        ..Receipt::new(id, Stage::Queued)
    };
    assert_eq!(receipts.unwrap(), [queued]);

    let bad = soon(bus.statuses(&["a b".into()], PATIENCE))
        .await
        .unwrap_err();
    assert!(matches!(bad, BusError::InvalidIds(_)), "{bad:?}");
}

#[tokio::test]
async fn a_question_without_an_answer_says_what_the_link_is_doing() {
    let place = Place::empty();
    let bus = place.bus();
    until(&bus, |state| state.to_string().contains("no broker at")).await;
    let error = bus
        .peers(Duration::from_millis(200))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("within 0.2 s") && error.contains("no broker at unix:"),
        "{error}"
    );
}
