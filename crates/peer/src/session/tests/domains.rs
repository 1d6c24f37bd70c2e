//! Mail between domains.

use peerbus_wire::{Domain, RefusalCode};

use super::*;

fn domain(text: &str) -> Domain {
    Domain::parse(text).unwrap()
}

/// Answers a registration as a broker of this domain.
fn greet(rig: &mut Rig, own: Option<&str>) {
    rig.connect();
    rig.receive(&BrokerFrame::Peers(PeersFrame {
        names: vec!["Bob".into()],
        ext: Some(1),
        domain: own.map(domain),
        ..PeersFrame::default()
    }));
    assert!(matches!(
        rig.session.poll_event(),
        Some(SessionEvent::Registered { .. })
    ));
}

fn online(own: Option<&str>) -> Rig {
    let mut rig = Rig::new(false);
    greet(&mut rig, own);
    rig
}

/// Sends to `to`; gives the id.
fn send(rig: &mut Rig, to: &str, message: &str) {
    let draft = Draft {
        to: Address::Peer(name(to)),
        ..draft(message)
    };
    rig.session.send(rig.now(), draft, rig.ms + 60_000).unwrap();
}

/// The envelopes that leave.
fn leave(rig: &mut Rig) -> Vec<Envelope> {
    let frames = rig.frames();
    frames.iter().map(|frame| decode(frame).envelope).collect()
}

#[test]
fn what_leaves_its_domain_is_from_the_address_of_its_sender_and_nothing_else_is() {
    for (own, to, from) in [
        (Some("alpha"), "carol@beta", "Bob@alpha"),
        (Some("alpha"), "carol@BETA", "Bob@alpha"),
        (Some("alpha"), "x@y@beta", "Bob@alpha"),
        (Some("alpha"), "carol@alpha", "Bob"),
        (Some("alpha"), "carol@Alpha", "Bob"),
        (Some("alpha"), "carol", "Bob"),
        (Some("alpha"), "carol@no.domain", "Bob"),
        (None, "carol@beta", "Bob"),
    ] {
        let mut rig = online(own);
        send(&mut rig, to, "m1");
        let sent = leave(&mut rig);
        assert_eq!((&*sent[0].from, &*sent[0].to), (from, to), "{own:?}");
        Secret::new(SECRET).unwrap().verify(&sent[0]).unwrap();
        let abroad = rig.session.abroad(&name(to)).is_some();
        assert_eq!(abroad, from != "Bob", "{to}");
    }
}

#[test]
fn a_domain_that_a_broker_of_version_1_claims_is_none() {
    let mut rig = Rig::new(false);
    rig.connect();
    rig.text(r#"{"protocol_version":"v1","type":"peers","names":["Bob"],"domain":"alpha"}"#);
    send(&mut rig, "carol@beta", "m1");
    assert_eq!(leave(&mut rig)[0].from, "Bob");
    assert_eq!(rig.session.domain(), None);
}

#[test]
fn what_was_signed_once_is_sent_again_as_it_was_whatever_the_broker_is_called_since() {
    for now in [Some("gamma"), None] {
        let mut rig = online(Some("alpha"));
        send(&mut rig, "carol@beta", "m1");
        let first = leave(&mut rig);
        rig.cut();
        send(&mut rig, "carol@beta", "m2");
        rig.redial();
        greet(&mut rig, now);
        let again = leave(&mut rig);
        assert_eq!(again[0], first[0]);
        let from = if now.is_some() { "Bob@gamma" } else { "Bob" };
        assert_eq!(again[1].from, from, "it never left before");
    }
}

#[test]
fn a_name_that_is_too_long_for_an_address_is_refused_before_it_leaves() {
    let mut rig = online(Some("alpha"));
    let long = "b".repeat(60);
    let asked = rig.session.ask(Question::Name(name(&long)), 1_000);
    asked.unwrap();
    rig.frames();
    rig.receive(&BrokerFrame::Renamed(peerbus_wire::NameAnswer {
        name: long.clone(),
        refused: None,
    }));
    rig.replies();
    send(&mut rig, "carol@beta", "m1");
    send(&mut rig, "carol", "m2");
    assert_eq!(leave(&mut rig)[0].from, long);
    let replies = rig.replies();
    let [
        Reply::Sent {
            outcome: Err(Unsent::Refused(refusal)),
            ..
        },
    ] = &*replies
    else {
        panic!("{replies:?}");
    };
    assert_eq!(refusal.code, RefusalCode::From);
    let why = format!("would be {long}@alpha, which is too long for a name; take a shorter one");
    assert!(refusal.reason.ends_with(&why), "{}", refusal.reason);
}

/// A delivery for a name that leads to Bob.
fn deliver_for(rig: &mut Rig, key: &str, envelope: &Envelope) {
    let text = deliver_text(key, envelope);
    let to = &envelope.to;
    let frame = text.strip_suffix('}').unwrap();
    rig.text(&format!(r#"{frame},"for":"{to}"}}"#));
}

#[test]
fn the_own_address_is_no_old_name() {
    let mut rig = online(Some("alpha"));
    for (key, to, old) in [
        ("1", "bob@alpha", None),
        ("2", "BOB@Alpha", None),
        ("3", "robert@alpha", Some("robert")),
        ("4", "robert", Some("robert")),
        ("5", "bob@beta", Some("bob@beta")),
    ] {
        deliver_for(&mut rig, key, &signed("carol@beta", to, &format!("m{key}")));
        let inbound = rig.message();
        assert_eq!((&*inbound.from, inbound.to.as_deref()), ("carol@beta", old));
    }
    // The broker must say that it leads here.
    rig.text(&deliver_text("6", &signed("carol@beta", "bob@alpha", "m6")));
    assert_eq!(rig.session.poll_event(), None);
    let mut rig = online(None);
    deliver_for(&mut rig, "1", &signed("carol", "bob@alpha", "m1"));
    assert_eq!(rig.message().to.as_deref(), Some("bob@alpha"));
}

#[test]
fn a_secret_that_two_domains_share_signs_between_them_and_admits_nobody_else() {
    let pair = Secret::new(&[b'p'; 32]).unwrap();
    let home = Secret::new(SECRET).unwrap();
    let mut rig = online(Some("alpha"));
    let credentials = home.clone().sharing(domain("beta"), pair.clone());
    rig.secret = Some(credentials.clone());
    rig.session.handle_secret(rig.now(), Some(credentials));
    send(&mut rig, "carol@beta", "m1");
    send(&mut rig, "carol@gamma", "m2");
    send(&mut rig, "carol", "m3");
    for (sent, key) in leave(&mut rig).iter().zip([&pair, &home, &home]) {
        assert_eq!(sent.hmac, key.sign(&sent.canonical().unwrap()));
    }
    let from = |from: &str, to: &str, message: &str, key: &Secret| {
        let mut envelope = signed(from, to, message);
        envelope.hmac = key.sign(&envelope.canonical().unwrap());
        envelope
    };
    for (message, author, key, shown) in [
        ("m4", "carol@beta", &pair, true),
        ("m5", "carol@beta", &home, false),
        ("m6", "carol@gamma", &pair, false),
        ("m7", "carol@gamma", &home, true),
    ] {
        deliver_for(&mut rig, message, &from(author, "bob@alpha", message, key));
        let event = rig.session.poll_event();
        assert_eq!(event.is_some(), shown, "{message} {event:?}");
    }
    // Whoever has the shared secret is nobody at home for it.
    for (message, to, shown) in [("m8", "bob", false), ("m9", "bob@alpha", false)] {
        deliver_for(&mut rig, message, &from("carol", to, message, &pair));
        assert_eq!(rig.session.poll_event().is_some(), shown, "{message}");
    }
}
