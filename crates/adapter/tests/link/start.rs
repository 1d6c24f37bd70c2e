use peerbus_adapter::{LinkState, Url, credentials};
use peerbus_test_support::soon;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::broker::{Place, until};

#[tokio::test]
async fn credentials_that_appear_later_are_found() {
    let place = Place::new();
    let mut config = place.config();
    (config.token, config.secret) = (None, None);
    let (bus, _link) = place.start(config);
    let waits = until(&bus, |state| {
        matches!(state, LinkState::NeedCredentials { .. })
    })
    .await;
    let path = place.path("credentials.toml");
    assert!(
        waits.to_string().contains(path.to_str().unwrap()),
        "{waits}"
    );

    let (made, created) = credentials::load_or_create(&path).unwrap();
    assert!(created);
    let mut peer = place.accept().await;
    let token = peer.register.token.clone().unwrap();
    assert_eq!(token.expose(), made.token.expose());
    peer.admit(true).await;
    until(&bus, |state| matches!(state, LinkState::Online { .. })).await;
}

#[tokio::test]
async fn the_files_token_goes_beyond_this_machine_only_where_the_file_names_the_broker() {
    // An address that nobody has.
    let afar = "ws://192.0.2.1:47821";
    let place = Place::new();
    let path = place.path("credentials.toml");
    credentials::load_or_create(&path).unwrap();
    let mut config = place.config();
    config.url = Some(Url::parse(afar).unwrap());
    let mut file = credentials::load(&path).unwrap();
    config.check_place(&file).unwrap();
    (config.token, config.secret) = (None, None);
    for url in ["ws://127.0.0.1:1", "ws://localhost:1"] {
        config.url = Some(Url::parse(url).unwrap());
        config.check_place(&file).unwrap();
    }
    config.url = Some(Url::parse(afar).unwrap());
    file.url = config.url.clone();
    config.check_place(&file).unwrap();
    for other in [None, Some("wss://192.0.2.1:47821")] {
        file.url = other.map(|url| Url::parse(url).unwrap());
        config.check_place(&file).unwrap_err();
    }
    let (bus, _link) = place.start(config);
    let refused = until(&bus, |state| {
        matches!(state, LinkState::NeedCredentials { .. })
    });
    let why = refused.await.to_string();
    let named = [
        afar,
        path.to_str().unwrap(),
        "PEERBUS_URL",
        "set PEERBUS_TOKEN",
    ];
    assert!(named.iter().all(|it| why.contains(it)), "{why}");
}

#[tokio::test]
async fn roots_own_token_goes_to_no_socket_of_another_user() {
    let place = Place::new();
    let socket = place.path("bus.sock");
    // Another user looks at who listens.
    if std::os::unix::fs::chown(&socket, Some(65_534), None).is_err() {
        return;
    }
    credentials::load_or_create(&place.path("credentials.toml")).unwrap();
    let mut config = place.config();
    config.url = Some(Url::Unix(socket));
    (config.token, config.secret) = (None, None);
    let (bus, _link) = place.start(config);
    let waits = until(&bus, |state| {
        matches!(state, LinkState::NeedCredentials { .. })
    });
    let why = waits.await.to_string();
    assert!(why.contains("was not sent to unix:/"), "{why}");
}

#[tokio::test]
async fn the_socket_that_is_there_is_found_without_a_url() {
    let place = Place::new();
    let mut config = place.config();
    config.url = None;
    config.sockets = vec![place.path("absent.sock"), place.path("bus.sock")];
    let (_bus, _link) = place.start(config);
    assert_eq!(place.accept().await.register.name, "bob");
}

#[tokio::test]
async fn presence_and_window_are_offered_at_once() {
    let place = Place::new();
    let mut config = place.config();
    config.ephemeral = true;
    config.presence = serde_json::from_str(r#"{"project":"x"}"#).ok();
    let (bus, _link) = place.start(config);
    let peer = place.accept().await;
    let register = &peer.register;
    assert_eq!(
        (register.ext, register.ephemeral, register.generated),
        (peerbus_wire::EXT_AUDIT, true, false)
    );
    assert_eq!(register.window.map(|window| window.messages), Some(256));
    assert_eq!(
        register.presence.as_ref().map(|p| p.as_str()),
        Some(r#"{"project":"x"}"#)
    );
    let large = serde_json::json!({ "x": "y".repeat(2_000) });
    assert!(!bus.set_presence(large.as_object().unwrap()));
}

#[tokio::test]
async fn something_else_at_the_address_is_named() {
    let place = Place::empty();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut config = place.config();
    config.url = Some(Url::parse(&format!("ws://127.0.0.1:{port}")).unwrap());
    let (bus, _link) = place.start(config);
    let (mut stream, _) = soon(listener.accept()).await.unwrap();
    let mut request = [0; 4_096];
    soon(stream.read(&mut request)).await.unwrap();
    let answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
    soon(stream.write_all(answer)).await.unwrap();
    let state = until(&bus, |state| state.to_string().contains("no broker at")).await;
    let sentence = state.to_string();
    assert!(
        sentence.contains("it answered HTTP 404 instead of a WebSocket"),
        "{sentence}"
    );
    assert!(
        sentence.contains(&format!("ws://127.0.0.1:{port}")),
        "{sentence}"
    );
}

#[tokio::test]
async fn an_echo_of_the_own_register_ends_the_connection_at_once() {
    let place = Place::new();
    let bus = place.bus();
    let mut peer = place.accept().await;
    let echo = peerbus_wire::ClientFrame::Register(peer.register.clone()).encode();
    peer.text(echo).await;
    assert!(peer.raw().await.is_none(), "hung up");
    let state = until(&bus, |state| state.to_string().contains("not connected")).await;
    assert!(
        state.to_string().contains("leads back to this process"),
        "{state}"
    );
}
