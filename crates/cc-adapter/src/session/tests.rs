use std::task::Poll;

use peerbus_adapter::mailbox::Activity;
use peerbus_node::Control as _;

use super::*;

fn around(dir: &Path) -> ClaudeSurroundings {
    ClaudeSurroundings {
        config_dir: Some(dir.to_owned()),
        session_id: Some("old".into()),
        socket: Some("/tmp/cc-socks/1.sock".into()),
        token: Some(SocketToken::new("t".into())),
        project: Some("/nonexistent/project".into()),
        ..ClaudeSurroundings::default()
    }
}

/// Whether a hook was believed that says this of the session.
fn told(session: &ClaudeSession, id: &str, renamed: bool) -> bool {
    session.told(SessionFacts {
        session_id: Some(id.into()),
        renamed,
        ..SessionFacts::default()
    })
}

fn write(dir: &Path, id: u32, text: &str) {
    std::fs::create_dir_all(dir.join("sessions")).unwrap();
    std::fs::write(dir.join(format!("sessions/{id}.json")), text).unwrap();
}

#[test]
fn the_clients_file_is_read_anew_and_known_better_than_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    let session = ClaudeSession::new(around(dir.path()).with_ancestors(&[4_000_001, 4_000_002]));
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
    let session = ClaudeSession::new(around(dir.path()).with_ancestors(&[7]));
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

#[test]
fn a_file_about_an_earlier_process_of_that_number_is_not_ours() {
    let dir = tempfile::tempdir().unwrap();
    let me = std::process::id();
    let session = ClaudeSession::new(around(dir.path()).with_ancestors(&[me]));
    write(dir.path(), me, r#"{"sessionId":"stale","procStart":"1"}"#);
    assert_eq!(session.id().as_deref(), Some("old"));
}

#[test]
fn a_hook_knows_better_than_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    let session = ClaudeSession::new(around(dir.path()));
    let facts = SessionFacts {
        session_id: Some("fresh".into()),
        transcript: Some(dir.path().join("projects/x/fresh.jsonl")),
        cwd: Some("relative".into()),
        ..SessionFacts::default()
    };
    assert!(session.told(facts));
    told(&session, "a/b", false);
    let snapshot = session.snapshot();
    assert_eq!(snapshot.id.as_deref(), Some("fresh"));
    let places = places(&session, &snapshot);
    assert_eq!(places.file, Some(dir.path().join("projects/x/fresh.jsonl")));
    let directories =
        ["projects/x", "projects/-nonexistent-project"].map(|name| dir.path().join(name));
    assert_eq!(places.directories, directories);
}

#[test]
fn whoever_says_something_new_of_the_session_is_right() {
    let dir = tempfile::tempdir().unwrap();
    let session = ClaudeSession::new(around(dir.path()).with_ancestors(&[7]));
    let id = || session.id().unwrap();
    // Resumed: the file is about another session at first, and hooks know better.
    write(dir.path(), 7, r#"{"sessionId":"never-was"}"#);
    assert_eq!(id(), "never-was");
    write(dir.path(), 7, r#"{"sessionId":"never-was-2"}"#);
    assert!(told(&session, "resumed", false));
    assert_eq!(id(), "resumed");
    write(dir.path(), 7, r#"{"sessionId":"resumed"}"#);
    assert_eq!(id(), "resumed");
    // Cleared: the file stays behind.
    assert!(told(&session, "cleared", true));
    assert_eq!(id(), "cleared");
    assert_eq!(id(), "cleared");
    // Cleared: no hook says so.
    write(dir.path(), 7, r#"{"sessionId":"cleared-2"}"#);
    assert_eq!(id(), "cleared-2");
    std::fs::remove_file(dir.path().join("sessions/7.json")).unwrap();
    assert_eq!(id(), "cleared-2");
}

#[test]
fn a_hook_of_another_session_is_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let session = ClaudeSession::new(around(dir.path()).with_ancestors(&[7]));
    assert!(told(&session, "outer", false));
    assert!(!told(&session, "inner", false));
    assert_eq!(session.id().as_deref(), Some("outer"));
    // The client's own file tells of what no hook did.
    write(dir.path(), 7, r#"{"sessionId":"cleared"}"#);
    assert!(told(&session, "cleared", false));
    // One that passes for the session does not shut the session out.
    assert!(told(&session, "inner", true));
    assert!(told(&session, "cleared", false));
    assert_eq!(session.id().as_deref(), Some("cleared"));
}

#[test]
fn a_transcript_is_believed_below_the_clients_directory() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = dir.path().join("claude");
    std::fs::create_dir_all(config.join("projects/x")).unwrap();
    let mine = other.path().join("mine.jsonl");
    std::fs::write(&mine, "").unwrap();
    std::os::unix::fs::symlink(&mine, config.join("projects/x/link.jsonl")).unwrap();
    let believed = |path: &Path| {
        let session = ClaudeSession::new(around(&config));
        let transcript = Some(path.to_owned());
        let facts = SessionFacts {
            transcript,
            ..SessionFacts::default()
        };
        assert!(session.told(facts));
        session.snapshot().transcript.is_some()
    };
    assert!(believed(&config.join("projects/x/new.jsonl")));
    assert!(believed(&config.join("projects/not-yet/new.jsonl")));
    for path in [
        mine,
        config.join("projects/x/link.jsonl"),
        config.join("projects/../../mine.jsonl"),
        dir.path().join("claude-2/new.jsonl"),
    ] {
        assert!(!believed(&path), "{}", path.display());
    }
    // A directory that was moved elsewhere, and is linked to, is the client's still.
    std::fs::remove_dir_all(config.join("projects")).unwrap();
    std::os::unix::fs::symlink(other.path(), config.join("projects")).unwrap();
    assert!(believed(&config.join("projects/x/new.jsonl")));
}

#[test]
fn the_token_goes_to_the_socket_that_it_came_with() {
    let session = ClaudeSession::new(around(Path::new("/nonexistent")));
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
        project_slug(Path::new("/home/ann/My_proj.2/é😀")),
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

#[tokio::test]
async fn a_change_of_the_clients_file_is_noticed_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let session = ClaudeSession::new(around(dir.path()).with_ancestors(&[4_000_001]));
    write(dir.path(), 4_000_001, r#"{"status":"idle"}"#);
    // Twice: what was noticed does not end the watch.
    for status in ["busy", "idle"] {
        let mut changed = session.changed();
        let early = std::future::poll_fn(|cx| Poll::Ready(changed.as_mut().poll(cx))).await;
        assert!(early.is_pending(), "nothing has changed yet");
        write(dir.path(), 5, "of another session");
        let text = format!(r#"{{"status":"{status}"}}"#);
        write(dir.path(), 4_000_001, &text);
        let noticed = tokio::time::timeout(Duration::from_secs(30), changed);
        noticed.await.expect("it is noticed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hooks_word_counts_until_the_file_says_something_new_or_it_is_old() {
    let dir = tempfile::tempdir().unwrap();
    let session = ClaudeSession::new(around(dir.path()).with_ancestors(&[4_000_001]));
    let activity = || session.snapshot().activity;
    assert_eq!(activity(), None, "nobody said anything");
    session.does(Activity::Busy);
    assert_eq!(activity(), Some(Activity::Busy));
    tokio::time::advance(SAID_FOR).await;
    assert_eq!(activity(), Some(Activity::Unknown), "not what is long ago");

    write(dir.path(), 4_000_001, r#"{"status":"idle"}"#);
    session.does(Activity::Busy);
    assert_eq!(activity(), Some(Activity::Busy), "the file is behind");
    write(dir.path(), 4_000_001, r#"{"status":"busy"}"#);
    assert_eq!(activity(), Some(Activity::Busy));
    write(dir.path(), 4_000_001, r#"{"status":"idle"}"#);
    assert_eq!(activity(), Some(Activity::Idle));
}

#[tokio::test(start_paused = true)]
async fn a_turn_is_ended_only_if_it_goes_on_and_a_hook_can_do_it() {
    let dir = tempfile::tempdir().unwrap();
    let session = ClaudeSession::new(around(dir.path()).with_ancestors(&[7]));
    write(dir.path(), 7, r#"{"sessionId":"old","status":"busy"}"#);
    assert!(session.interrupt().await.unwrap_err().contains("no hook"));
    // Nor without our module, which is told.
    let mut wishes = session.wishes();
    let linked = session.linked();
    session.interrupt().await.unwrap();
    assert!(*wishes.borrow_and_update());
    session.turn_is_over();
    assert!(wishes.has_changed().unwrap() && !*wishes.borrow());
    drop(linked);
    assert!(session.interrupt().await.unwrap_err().contains("no hook"));
    assert!(told(&session, "old", false));
    session.interrupt().await.unwrap();
    assert!(session.ends_turn());
    // The turn ends in whatever way.
    write(dir.path(), 7, r#"{"sessionId":"old","status":"idle"}"#);
    session.look_again();
    assert_eq!(session.snapshot().activity, Some(Activity::Idle));
    assert!(!session.ends_turn());
    assert!(session.interrupt().await.unwrap_err().contains("idle"));
    assert!(!session.ends_turn());
}

#[tokio::test(start_paused = true)]
async fn what_comes_instead_of_a_turn_comes_when_that_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let session = ClaudeSession::new(around(dir.path()).with_ancestors(&[7]));
    write(dir.path(), 7, r#"{"sessionId":"old","status":"busy"}"#);
    assert!(told(&session, "old", false));
    let mut interrupted = std::pin::pin!(session.interrupt());
    let early = std::future::poll_fn(|cx| Poll::Ready(interrupted.as_mut().poll(cx))).await;
    assert!(early.is_pending());
    session.turn_is_over();
    let done = std::future::poll_fn(|cx| Poll::Ready(interrupted.as_mut().poll(cx))).await;
    assert!(done.is_ready());
    // A tool can take long.
    assert_eq!(session.interrupt().await, Ok(()));
    assert!(session.ends_turn());
}
