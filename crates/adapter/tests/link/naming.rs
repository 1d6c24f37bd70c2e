//! What a host does about its name, and about messages short of an ack.

use std::time::Duration;

use peerbus_adapter::sessions::Sessions;
use peerbus_adapter::{Bus, BusError, Naming, PeerName, SessionEvent, Stage};
use peerbus_os::clock::since_boot;
use peerbus_test_support::peer::Peer;
use peerbus_test_support::{PATIENCE, soon};
use peerbus_wire::{BrokerFrame, ClientFrame, NameAnswer};

use crate::broker::{Place, event, inbound};

fn name(text: &str) -> PeerName {
    PeerName::parse(text).unwrap()
}

/// A bus with a made-up name, which remembers sessions in this place.
fn made_up(place: &Place, session: Option<&str>) -> Bus {
    let mut config = place.config();
    config.naming = Naming::Generated;
    config.sessions = Some(sessions(place));
    config.session = session.map(str::to_owned);
    place.start(config).0
}

fn sessions(place: &Place) -> Sessions {
    Sessions::new(&place.path("state"))
}

async fn registered(bus: &Bus) -> String {
    loop {
        if let SessionEvent::Registered { name, .. } = event(bus).await {
            return name;
        }
    }
}

async fn frame(peer: &mut Peer) -> ClientFrame {
    peer.read().await.0
}

#[tokio::test]
async fn a_step_and_a_rejection_go_to_the_broker() {
    let place = Place::new();
    let (bus, mut peer) = place.online(true).await;
    peer.deliver("1", "m1").await;
    let message = inbound(&bus).await;
    let step = Stage::Pushed {
        path: "socket".into(),
    };
    bus.reached(&message.key, step.clone());
    assert!(matches!(
        frame(&mut peer).await,
        ClientFrame::Progress { key, stage: Stage::Pushed { path }, .. }
            if key.as_str() == "1" && path == "socket"
    ));
    // A broker that came back is told since when.
    let some_ms = || {
        let until = since_boot() + Duration::from_millis(2);
        while since_boot() < until {}
    };
    some_ms();
    peer.deliver("2", "m1").await;
    assert!(matches!(
        frame(&mut peer).await,
        ClientFrame::Progress { key, age_ms: 2.., .. } if key.as_str() == "2"
    ));
    let why = "its user said no".to_owned();
    bus.reached(&message.key, Stage::Dead { why });
    let rejected = |frame: ClientFrame| match frame {
        ClientFrame::Reject { reason, age_ms, .. } if reason == "its user said no" => age_ms,
        other => panic!("{other:?}"),
    };
    assert_eq!(rejected(frame(&mut peer).await), 0);
    assert_eq!(rejected(frame(&mut peer).await), 0, "each delivery");
    some_ms();
    peer.deliver("3", "m1").await;
    assert!(rejected(frame(&mut peer).await) >= 2);
    bus.reached(&message.key, step.clone());
    bus.close().await;
    assert!(peer.raw().await.is_none_or(|message| message.is_close()));
}

#[tokio::test]
async fn a_rename_is_done_or_the_broker_says_why_not() {
    let place = Place::new();
    let (bus, mut peer) = place.online(true).await;
    for (refused, expected) in [
        (Some("in use"), Err(BusError::Refused("in use".into()))),
        (None, Ok(())),
    ] {
        let asking = bus.clone();
        let asked = tokio::spawn(async move { asking.rename(name("rob"), PATIENCE).await });
        assert!(matches!(
            frame(&mut peer).await,
            ClientFrame::Rename { name } if name == "rob"
        ));
        let answer = NameAnswer {
            name: if refused.is_some() { "bob" } else { "rob" }.into(),
            refused: refused.map(str::to_owned),
        };
        peer.frame(&BrokerFrame::Renamed(answer)).await;
        assert_eq!(soon(asked).await.unwrap(), expected);
    }
    assert_eq!(registered(&bus).await, "rob");
    assert_eq!(bus.name(), "rob");
    drop(peer);
    assert_eq!(place.admit(true).await.register.name, "rob");
}

#[tokio::test]
async fn a_rename_whose_answer_is_lost_is_asked_for_in_the_registration() {
    let place = Place::new();
    let (bus, mut peer) = place.online(true).await;
    let asking = bus.clone();
    let asked = tokio::spawn(async move { asking.rename(name("rob"), PATIENCE).await });
    assert!(matches!(frame(&mut peer).await, ClientFrame::Rename { .. }));
    drop(peer);
    let mut peer = place.accept().await;
    assert_eq!(peer.register.name, "bob");
    assert_eq!(peer.register.renaming.take().as_deref(), Some("rob"));
    peer.register.name = "rob".into();
    peer.admit(true).await;
    soon(asked).await.unwrap().unwrap();
    assert_eq!(bus.name(), "rob");
}

#[tokio::test]
async fn behind_version_1_a_name_stays() {
    let place = Place::new();
    let (bus, _peer) = place.online(false).await;
    let error = soon(bus.rename(name("rob"), PATIENCE)).await.unwrap_err();
    assert_eq!(error, BusError::NotSupported);
}

#[tokio::test]
async fn a_session_that_is_told_later_which_one_it_is_gets_its_name_back() {
    let place = Place::new();
    sessions(&place)
        .bind("old", &name("wild-wasp-3kx"), |_| true)
        .unwrap();
    let bus = made_up(&place, Some("new"));
    let mut peer = place.admit(true).await;
    let first = registered(&bus).await;
    assert_eq!(sessions(&place).name_of("new"), Some(name(&first)));

    bus.bind_session("old", false);
    assert!(matches!(
        frame(&mut peer).await,
        ClientFrame::Retire { successor } if successor.as_deref() == Some("wild-wasp-3kx")
    ));
    let answer = NameAnswer {
        name: first,
        refused: None,
    };
    peer.frame(&BrokerFrame::Retired(answer)).await;
    let _peer = place.admit(true).await;
    assert_eq!(registered(&bus).await, "wild-wasp-3kx");
}

#[tokio::test]
async fn a_session_that_was_used_keeps_its_name_whatever_it_becomes() {
    let place = Place::new();
    sessions(&place)
        .bind("old", &name("wild-wasp-3kx"), |_| true)
        .unwrap();
    let bus = made_up(&place, Some("new"));
    let mut peer = place.admit(true).await;
    let first = registered(&bus).await;
    let sending = bus.clone();
    let sent = tokio::spawn(async move { sending.send("alice", "1", PATIENCE).await });
    let (id, _) = peer.envelope().await;
    peer.accepted(&id).await;
    soon(sent).await.unwrap().unwrap();

    bus.bind_session("old", false);
    bus.bind_session("cleared", false);
    assert_eq!(bus.name(), first);
    for id in ["new", "old", "cleared"] {
        assert_eq!(sessions(&place).name_of(id), Some(name(&first)), "{id}");
    }
}

#[tokio::test]
async fn a_new_session_takes_no_name_from_one_whose_id_it_has() {
    let place = Place::new();
    sessions(&place)
        .bind("old", &name("wild-wasp-3kx"), |_| true)
        .unwrap();
    let bus = made_up(&place, None);
    let _peer = place.admit(true).await;
    let own = registered(&bus).await;
    bus.bind_session("old", true);
    assert_eq!(bus.name(), own);
    assert_eq!(sessions(&place).name_of("old"), Some(name(&own)));
}
