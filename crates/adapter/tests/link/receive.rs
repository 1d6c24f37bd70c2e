use peerbus_adapter::{Kind, SessionEvent, Stage};
use peerbus_test_support::message::delivery;
use peerbus_test_support::peer::from_alice;
use peerbus_test_support::{PATIENCE, soon};
use peerbus_wire::{BrokerFrame, ClientFrame, DeliveryKey, PeersFrame, Receipt};
use tokio_tungstenite::tungstenite::Message;

use crate::broker::{Place, event, inbound, seen};

#[tokio::test]
async fn a_message_is_acked_only_once_it_is_consumed() {
    let place = Place::new();
    let (bus, mut peer) = place.online(true).await;
    peer.deliver("17", "m1").await;
    let message = inbound(&bus).await;
    assert_eq!(
        (message.id.as_str(), message.from.as_str()),
        ("m1", "alice")
    );
    assert_eq!((message.kind, message.body.as_str()), (Kind::Msg, "\"m1\""));
    // Whatever was to be written before the query stands before it.
    let (peers, ()) = tokio::join!(bus.peers(PATIENCE), async {
        assert!(
            matches!(peer.read().await.0, ClientFrame::Peers),
            "nothing was acked"
        );
        peer.frame(&BrokerFrame::Peers(PeersFrame::default())).await;
    });
    peers.unwrap();
    bus.ack(&message.key, seen());
    assert_eq!(peer.ack().await, ("17".into(), Some(seen())));
}

#[tokio::test]
async fn a_forged_message_is_rejected_and_never_shown() {
    let place = Place::new();
    let (bus, mut peer) = place.online(true).await;
    let mut forged = from_alice("m1");
    forged.from = "carol".into();
    peer.text(delivery("1", &forged)).await;
    let (ClientFrame::Reject { key, reason, .. }, _) = peer.read().await else {
        panic!("no reject")
    };
    assert_eq!(key.as_str(), "1");
    assert!(reason.contains("signature mismatch"), "{reason}");
    peer.deliver("2", "m2").await;
    assert_eq!(inbound(&bus).await.id, "m2");
}

#[tokio::test]
async fn a_forged_message_is_taken_off_a_v1_broker_by_a_plain_ack() {
    let place = Place::new();
    let (bus, mut peer) = place.online(false).await;
    let mut forged = from_alice("m1");
    forged.body = b"\"altered\"".to_vec();
    peer.text(delivery("m1", &forged)).await;
    assert_eq!(peer.ack().await, ("m1".into(), None));
    peer.deliver("m2", "m2").await;
    assert_eq!(inbound(&bus).await.id, "m2");
}

#[tokio::test]
async fn the_end_of_a_message_is_acked_once_it_is_told() {
    let place = Place::new();
    let (bus, mut peer) = place.online(true).await;
    let dead = Receipt {
        id: peerbus_wire::MessageId::parse("m1").unwrap(),
        at_ms: None,
        key: DeliveryKey::parse("n1"),
        to: Some("alice".into()),
        stage: Stage::Dead {
            why: "signature mismatch".into(),
        },
    };
    peer.frame(&BrokerFrame::Receipts(vec![dead.clone()])).await;
    let SessionEvent::Notice {
        receipt,
        id: Some(id),
    } = event(&bus).await
    else {
        panic!("no statement that is kept");
    };
    assert_eq!(receipt, dead);
    // An ack at the taking would come before this one.
    peer.deliver("1", "m2").await;
    bus.ack(&inbound(&bus).await.key, seen());
    assert_eq!(peer.ack().await.0, "1");
    bus.ack_notice(id);
    bus.ack_notice(id);
    assert_eq!(peer.ack().await, ("n1".into(), None));
}

#[tokio::test]
async fn a_broker_that_writes_much_and_reads_late_stalls_nobody() {
    const MESSAGES: usize = 5_000;
    let place = Place::new();
    let (bus, mut peer) = place.online(false).await;
    let host = tokio::spawn(async move {
        for n in 0..MESSAGES {
            let message = inbound(&bus).await;
            assert_eq!(message.id, format!("m{n}"));
            bus.ack(&message.key, seen());
        }
        bus
    });
    // The acks are more than the socket holds while none of them is read.
    let padding = "k".repeat(1_000);
    for n in 0..MESSAGES {
        let key = format!("{n}-{padding}");
        peer.deliver(&key, &format!("m{n}")).await;
    }
    let _bus = soon(host).await.unwrap();
    for n in 0..MESSAGES {
        assert!(peer.ack().await.0.starts_with(&format!("{n}-")));
    }
}

#[tokio::test]
async fn pings_are_answered_and_odd_frames_do_no_harm() {
    let place = Place::new();
    let (bus, mut peer) = place.online(true).await;
    peer.message(Message::Ping(b"are you there".to_vec().into()))
        .await;
    let pong = peer.raw().await.unwrap();
    assert_eq!(pong, Message::Pong(b"are you there".to_vec().into()));
    peer.text("not JSON".into()).await;
    peer.text(r#"{"protocol_version":"v1","type":"from the future"}"#.into())
        .await;
    peer.message(Message::binary(vec![0, 1, 2])).await;
    peer.deliver("1", "m1").await;
    assert_eq!(inbound(&bus).await.id, "m1");
}
