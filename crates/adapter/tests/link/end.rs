use peerbus_adapter::{LinkEnd, LinkState, SendError};
use peerbus_test_support::{PATIENCE, soon};
use peerbus_wire::CloseReason;
use tokio_tungstenite::tungstenite::Message;

use crate::broker::{Place, inbound, seen, until};

#[tokio::test]
async fn a_close_flushes_every_ack_then_says_goodbye() {
    const MESSAGES: usize = 200;
    let place = Place::new();
    let (bus, link) = place.start(place.config());
    let mut peer = place.admit(true).await;
    until(&bus, |state| matches!(state, LinkState::Online { .. })).await;
    assert!(bus.next().await.is_some());
    for n in 1..=MESSAGES {
        peer.deliver(&n.to_string(), &format!("m{n}")).await;
    }
    for _ in 0..MESSAGES {
        bus.ack(&inbound(&bus).await.key, seen());
    }
    // The broker reads while the bus closes, as a broker does.
    let broker = tokio::spawn(async move {
        for n in 1..=MESSAGES {
            assert_eq!(peer.ack().await.0, n.to_string());
        }
        matches!(peer.raw().await, Some(Message::Close(Some(_)))) && peer.raw().await.is_none()
    });
    bus.close().await;
    assert!(
        soon(broker).await.unwrap(),
        "the goodbye is a close frame, after the acks"
    );
    soon(link).await.unwrap();
    assert_eq!(bus.next().await, None);
    assert_eq!(*bus.link().borrow(), LinkState::Closed);
    assert_eq!(
        bus.send("alice", "1", PATIENCE).await,
        Err(SendError::Closed)
    );
}

#[tokio::test]
async fn the_link_ends_when_the_last_handle_is_dropped() {
    let place = Place::new();
    let (bus, link) = place.start(place.config());
    let other = bus.clone();
    let mut peer = place.admit(true).await;
    drop(bus);
    until(&other, |state| matches!(state, LinkState::Online { .. })).await;
    drop(other);
    assert!(matches!(peer.raw().await, Some(Message::Close(_))));
    assert!(peer.raw().await.is_none());
    soon(link).await.unwrap();
}

#[tokio::test]
async fn without_a_broker_the_link_ends_at_once() {
    let place = Place::empty();
    let (bus, link) = place.start(place.config());
    until(&bus, |state| state.to_string().contains("no broker at")).await;
    let waiting = tokio::spawn({
        let bus = bus.clone();
        async move { bus.send("alice", "1", PATIENCE).await }
    });
    tokio::task::yield_now().await;
    bus.close().await;
    assert_eq!(soon(link).await.unwrap(), LinkEnd::Cut);
    assert_eq!(soon(waiting).await.unwrap(), Err(SendError::Closed));
}

#[tokio::test]
async fn a_message_on_the_wire_at_the_end_is_said_to_be_open() {
    let place = Place::new();
    let (bus, mut peer) = place.online(true).await;
    let sending = tokio::spawn({
        let bus = bus.clone();
        async move { bus.send("alice", "1", PATIENCE).await }
    });
    let (id, _) = peer.envelope().await;
    bus.close().await;
    let error = soon(sending).await.unwrap().unwrap_err();
    assert!(
        error
            .to_string()
            .contains("not confirmed before the bus was closed"),
        "{error}"
    );
    assert!(matches!(error, SendError::TimedOut { id: i, left: true, .. } if i == id.as_str()));
}

#[tokio::test]
async fn a_driver_that_is_aborted_leaves_nobody_waiting() {
    let place = Place::empty();
    let (bus, link) = place.start(place.config());
    let waiting = tokio::spawn({
        let bus = bus.clone();
        async move { bus.next().await }
    });
    tokio::task::yield_now().await;
    link.abort();
    assert_eq!(soon(waiting).await.unwrap(), None);
    assert_eq!(
        bus.send("alice", "1", PATIENCE).await,
        Err(SendError::Closed)
    );
}

#[tokio::test]
async fn a_broker_that_goes_away_is_dialed_again() {
    let place = Place::new();
    let (bus, peer) = place.online(true).await;
    peer.close(&CloseReason::GoingAway).await;
    let state = until(&bus, |state| matches!(state, LinkState::Connecting { .. })).await;
    assert!(
        state.to_string().contains("broker is shutting down"),
        "{state}"
    );
    let _peer = place.admit(true).await;
    until(&bus, |state| matches!(state, LinkState::Online { .. })).await;
}
