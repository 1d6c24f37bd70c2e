use std::time::Duration;

use peerbus_adapter::{Bus, Liveness};
use peerbus_test_support::peer::Peer;
use peerbus_test_support::{PATIENCE, soon};
use peerbus_wire::CloseReason;
use tokio_tungstenite::tungstenite::Message;

use crate::broker::{Place, inbound};

/// A bus that is online and was not heard for long, as after a suspension.
async fn stale(place: &Place) -> (Bus, Peer) {
    let (bus, peer) = place.online(true).await;
    bus.doubt();
    (bus, peer)
}

#[tokio::test]
async fn a_broker_that_answers_shows_that_the_connection_stands() {
    let place = Place::new();
    let (bus, mut peer) = stale(&place).await;
    for _ in 0..2 {
        let (said, ()) = tokio::join!(bus.confirm_alive(PATIENCE), async {
            let Some(Message::Ping(question)) = peer.raw().await else {
                panic!("expected a ping")
            };
            peer.message(Message::Pong(question)).await;
        });
        assert_eq!(said, Liveness::Alive);
        bus.doubt();
    }
}

#[tokio::test]
async fn a_name_that_was_taken_over_during_a_suspension_is_lost() {
    let place = Place::new();
    let (bus, peer) = stale(&place).await;
    let (said, ()) = tokio::join!(
        bus.confirm_alive(PATIENCE),
        peer.close(&CloseReason::TakenOver)
    );
    assert_eq!(said, Liveness::Lost);
}

#[tokio::test]
async fn a_takeover_that_waits_to_be_read_is_seen_without_asking() {
    let place = Place::new();
    let (bus, peer) = place.online(true).await;
    peer.close(&CloseReason::TakenOver).await;
    assert_eq!(bus.confirm_alive(PATIENCE).await, Liveness::Lost);
}

#[tokio::test]
async fn a_connection_that_was_heard_just_now_is_not_asked() {
    let place = Place::new();
    let (bus, _peer) = place.online(true).await;
    assert_eq!(bus.confirm_alive(Duration::ZERO).await, Liveness::Alive);
}

#[tokio::test]
async fn a_broker_that_says_nothing_is_not_waited_for_longer_than_is_allowed() {
    let place = Place::new();
    let (bus, _peer) = stale(&place).await;
    let said = soon(bus.confirm_alive(Duration::from_millis(1))).await;
    assert_eq!(said, Liveness::NoAnswer);
}

#[tokio::test]
async fn what_an_earlier_pong_answered_is_no_answer_to_a_later_question() {
    let place = Place::new();
    let (bus, mut peer) = stale(&place).await;
    peer.message(Message::Pong(0_u64.to_be_bytes().to_vec().into()))
        .await;
    peer.deliver("1", "m1").await;
    assert_eq!(inbound(&bus).await.id, "m1", "what came before is read");
    bus.doubt();
    let said = soon(bus.confirm_alive(Duration::from_millis(1))).await;
    assert_eq!(said, Liveness::NoAnswer);
}

#[tokio::test]
async fn without_a_connection_there_is_nothing_to_confirm() {
    let bus = Place::empty().bus();
    assert_eq!(bus.confirm_alive(PATIENCE).await, Liveness::Lost);
}
