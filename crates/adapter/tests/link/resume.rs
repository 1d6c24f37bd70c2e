use peerbus_adapter::{LinkState, SessionEvent};
use peerbus_test_support::{PATIENCE, soon};
use peerbus_wire::CloseReason;

use crate::broker::{Place, event, inbound, seen, until};

#[tokio::test]
async fn what_was_not_receipted_is_sent_again_with_the_same_bytes_and_in_order() {
    let place = Place::new();
    let (bus, mut peer) = place.online(true).await;
    let mut sending = Vec::new();
    let mut first = Vec::new();
    for n in 0..3 {
        let bus = bus.clone();
        sending.push(tokio::spawn(async move {
            bus.send("alice", &n.to_string(), PATIENCE).await
        }));
        first.push(peer.envelope().await);
    }
    peer.accepted(&first[0].0).await;
    soon(&mut sending[0]).await.unwrap().unwrap();
    drop(peer);

    let mut peer = place.admit(true).await;
    for (id, text) in &first[1..] {
        assert_eq!(&peer.envelope().await.1, text);
        peer.accepted(id).await;
    }
    for (sent, (id, _)) in sending.drain(1..).zip(&first[1..]) {
        assert_eq!(soon(sent).await.unwrap().unwrap().id, id.as_str());
    }
}

#[tokio::test]
async fn one_process_keeps_its_instance_and_two_have_different_ones() {
    let place = Place::new();
    let bus = place.bus();
    let first = place.admit(true).await.register.instance.unwrap();
    let again = place.admit(true).await.register.instance.unwrap();
    assert_eq!(first.expose(), again.expose());
    drop(bus);
    let _other = place.bus();
    loop {
        let other = place.admit(true).await.register.instance.unwrap();
        if other.expose() != first.expose() {
            break;
        }
    }
}

#[tokio::test]
async fn a_message_is_shown_once_however_often_it_comes() {
    let place = Place::new();
    let (bus, mut peer) = place.online(true).await;
    peer.deliver("1", "m1").await;
    peer.deliver("2", "m2").await;
    let first = inbound(&bus).await;
    let second = inbound(&bus).await;
    bus.ack(&first.key, seen());
    assert_eq!(peer.ack().await, ("1".into(), Some(seen())));
    drop(peer);

    let mut peer = place.admit(true).await;
    assert!(matches!(event(&bus).await, SessionEvent::Registered { .. }));
    peer.deliver("1", "m1").await;
    peer.deliver("2", "m2").await;
    peer.deliver("3", "m3").await;
    assert_eq!(inbound(&bus).await.id, "m3", "the host has the others");
    assert_eq!(peer.ack().await, ("1".into(), Some(seen())), "acked again");
    bus.ack(&second.key, seen());
    assert_eq!(
        peer.ack().await,
        ("2".into(), Some(seen())),
        "held until now"
    );
}

#[tokio::test]
async fn an_ack_made_while_the_broker_is_away_is_told_to_the_next_connection() {
    let place = Place::new();
    let (bus, mut peer) = place.online(true).await;
    peer.deliver("1", "m1").await;
    let message = inbound(&bus).await;
    drop(peer);
    until(&bus, |state| matches!(state, LinkState::Connecting { .. })).await;
    bus.ack(&message.key, seen());
    let mut peer = place.admit(true).await;
    peer.deliver("1", "m1").await;
    assert_eq!(peer.ack().await, ("1".into(), Some(seen())));
}

#[tokio::test]
async fn a_name_that_is_refused_is_said_with_the_remedy() {
    let place = Place::new();
    let bus = place.bus();
    place.accept().await.close(&CloseReason::NameClaimed).await;
    let state = until(&bus, |state| matches!(state, LinkState::Refused { .. })).await;
    let sentence = state.to_string();
    assert!(
        sentence.contains("the name bob belongs to another token"),
        "{sentence}"
    );
    assert!(sentence.contains("peerbus names release bob"), "{sentence}");
    let bus = place.bus();
    place.accept().await.close(&CloseReason::NameInUse).await;
    until(&bus, |state| matches!(state, LinkState::Refused { .. })).await;
    let peer = place.admit(true).await;
    until(&bus, |state| matches!(state, LinkState::Online { .. })).await;
    drop(peer);
}

#[tokio::test]
async fn a_generated_name_that_is_claimed_is_replaced_and_takes_its_messages_along() {
    let place = Place::new();
    let mut config = place.config();
    config.naming = peerbus_adapter::Naming::Generated;
    let (bus, _link) = place.start(config);
    let first = bus.name();
    let sending = tokio::spawn({
        let bus = bus.clone();
        async move { bus.send("alice", "1", PATIENCE).await }
    });
    let peer = place.accept().await;
    assert!(peer.register.generated && peer.register.name == first);
    peer.close(&CloseReason::NameClaimed).await;

    let mut peer = place.admit(true).await;
    assert_ne!(peer.register.name, first);
    let (id, text) = peer.envelope().await;
    assert!(
        text.contains(&format!(r#""from":"{}""#, peer.register.name)),
        "{text}"
    );
    peer.accepted(&id).await;
    soon(sending).await.unwrap().unwrap();
    assert_eq!(bus.name(), peer.register.name);
}
