use peerbus_adapter::mailbox::Activity;

use super::*;

fn around(dir: &Path) -> Surroundings {
    Surroundings {
        config_dir: Some(dir.to_owned()),
        session_id: Some("old".into()),
        socket: Some("/tmp/cc-socks/1.sock".into()),
        token: Some(Token::new("t".into())),
        project: Some("/nonexistent/project".into()),
        ..Surroundings::default()
    }
}

fn write(dir: &Path, id: u32, text: &str) {
    std::fs::create_dir_all(dir.join("sessions")).unwrap();
    std::fs::write(dir.join(format!("sessions/{id}.json")), text).unwrap();
}

#[test]
fn the_clients_file_is_read_anew_and_known_better_than_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    let session = Session::new(around(dir.path()).with_ancestors(&[4_000_001, 4_000_002]));
    assert_eq!(session.id().as_deref(), Some("old"));
    assert_eq!(session.client(), Some(4_000_001));
    write(
        dir.path(),
        4_000_002,
        r#"{"sessionId":"a-1","status":"idle","messagingSocketPath":"/x/2.sock","cwd":"/p"}"#,
    );
    let snapshot = session.snapshot();
    assert_eq!(snapshot.id.as_deref(), Some("a-1"));
    assert_eq!(snapshot.activity, Some(Activity::Idle));
    assert_eq!(session.socket().as_deref(), Some(Path::new("/x/2.sock")));
    assert_eq!(session.client(), Some(4_000_002));
    write(
        dir.path(),
        4_000_002,
        r#"{"sessionId":"a-2","status":"busy"}"#,
    );
    assert_eq!(session.id().as_deref(), Some("a-2"));
    assert_eq!(session.snapshot().activity, Some(Activity::Busy));
    // The nearest one is the session's.
    write(
        dir.path(),
        4_000_001,
        r#"{"sessionId":"b","status":"waiting"}"#,
    );
    assert_eq!(session.snapshot().activity, Some(Activity::Waiting));
}

#[test]
fn a_file_that_says_nonsense_says_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let session = Session::new(around(dir.path()).with_ancestors(&[7]));
    let large = format!(r#"{{"sessionId":"{}"}}"#, "x".repeat(100_000));
    for text in [
        "",
        "[]",
        "{",
        r#"{"sessionId":"../../etc/passwd"}"#,
        r#"{"sessionId":7,"status":[]}"#,
        &large,
    ] {
        write(dir.path(), 7, text);
        assert_eq!(session.id().as_deref(), Some("old"), "{text:.40}");
        assert_eq!(session.snapshot().activity, None);
    }
    write(
        dir.path(),
        7,
        r#"{"messagingSocketPath":"relative.sock","status":"dancing"}"#,
    );
    assert_eq!(
        session.socket().as_deref(),
        Some(Path::new("/tmp/cc-socks/1.sock"))
    );
    assert_eq!(session.snapshot().activity, Some(Activity::Unknown));
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_about_an_earlier_process_of_that_number_is_not_ours() {
    let dir = tempfile::tempdir().unwrap();
    let me = std::process::id();
    let session = Session::new(around(dir.path()).with_ancestors(&[me]));
    write(dir.path(), me, r#"{"sessionId":"stale","procStart":"1"}"#);
    assert_eq!(session.id().as_deref(), Some("old"));
}

#[test]
fn a_hook_knows_better_than_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    let session = Session::new(around(dir.path()));
    let facts = SessionFacts {
        session_id: Some("fresh".into()),
        transcript: Some(dir.path().join("projects/x/fresh.jsonl")),
        cwd: Some("relative".into()),
    };
    session.told(facts);
    session.told(SessionFacts {
        session_id: Some("a/b".into()),
        ..SessionFacts::default()
    });
    let snapshot = session.snapshot();
    assert_eq!(snapshot.id.as_deref(), Some("fresh"));
    let places = Places::of(&session, &snapshot);
    assert_eq!(places.file, Some(dir.path().join("projects/x/fresh.jsonl")));
    let directories =
        ["projects/x", "projects/-nonexistent-project"].map(|name| dir.path().join(name));
    assert_eq!(places.directories, directories);
}

#[test]
fn whoever_says_something_new_of_the_session_is_right() {
    let dir = tempfile::tempdir().unwrap();
    let session = Session::new(around(dir.path()).with_ancestors(&[7]));
    let id = || session.id().unwrap();
    let told = |id: &str| {
        session.told(SessionFacts {
            session_id: Some(id.into()),
            ..SessionFacts::default()
        });
    };
    // Resumed: the file is about another session at first, and hooks know better.
    write(dir.path(), 7, r#"{"sessionId":"never-was"}"#);
    assert_eq!(id(), "never-was");
    write(dir.path(), 7, r#"{"sessionId":"never-was-2"}"#);
    told("resumed");
    assert_eq!(id(), "resumed");
    write(dir.path(), 7, r#"{"sessionId":"resumed"}"#);
    assert_eq!(id(), "resumed");
    // Cleared: the file stays behind.
    told("cleared");
    assert_eq!(id(), "cleared");
    assert_eq!(id(), "cleared");
    // Cleared: no hook says so.
    write(dir.path(), 7, r#"{"sessionId":"cleared-2"}"#);
    assert_eq!(id(), "cleared-2");
    std::fs::remove_file(dir.path().join("sessions/7.json")).unwrap();
    assert_eq!(id(), "cleared-2");
}

#[test]
fn the_token_goes_to_the_socket_that_it_came_with() {
    let session = Session::new(around(Path::new("/nonexistent")));
    assert!(
        session
            .token_for(Path::new("/tmp/cc-socks/1.sock"))
            .is_some()
    );
    assert!(
        session
            .token_for(Path::new("/tmp/cc-socks/2.sock"))
            .is_none()
    );
}

#[test]
fn a_projects_directory_is_named_as_the_client_names_it() {
    assert_eq!(
        slug(Path::new("/home/ann/My_proj.2/é😀")),
        "-home-ann-My-proj-2----"
    );
    let dir = tempfile::tempdir().unwrap();
    let long = format!("-{}", "d".repeat(300));
    let cut = format!("{}-1x2y3z", &long[..200]);
    std::fs::create_dir(dir.path().join(&cut)).unwrap();
    std::fs::create_dir(dir.path().join("-other")).unwrap();
    assert_eq!(
        project_directories(dir.path(), &long),
        [dir.path().join(cut)]
    );
    assert_eq!(
        project_directories(dir.path(), "-p"),
        [dir.path().join("-p")]
    );
}
