use peerbus_wire::Presence;

use super::*;

fn about(online: bool, presence: &str) -> PeerView {
    let entry = PeerEntry {
        name: "bob".into(),
        online,
        unacked: Some(3),
        away_s: Some(90),
        activity_s: Some(240),
        owes: Some(2),
        groups: Vec::new(),
        presence: Presence::parse(presence),
        stopped: false,
        token: None,
        old: Vec::new(),
    };
    PeerView::new(&entry, Audience::Peer)
}

#[test]
fn a_peer_is_described_by_what_it_says() {
    let known = about(
        true,
        r#"{"adapter":"cc","client":"claude-code","version":"2.1.330","project":"shop",
            "branch":"fix/x","activity":"busy","wake":["socket","channel"],
            "evidence":true,"ack":"auto","pid":4711,"tty":"pts/3","started":"2026"}"#,
    );
    assert_eq!(
        serde_json::to_value(&known).unwrap(),
        serde_json::json!({
            "name": "bob", "online": true, "state": "busy", "activity": "busy", "activity_s": 240,
            "client": "claude-code 2.1.330", "project": "shop", "branch": "fix/x",
            "pid": 4711, "tty": "pts/3", "started": "2026",
            "wake": ["socket", "channel"], "acks": "seen", "unacked": 3, "owes": 2,
        })
    );
    let away = about(false, r#"{"activity":"busy","pid":4711,"tty":"pts/3"}"#);
    assert_eq!((away.pid, away.tty), (None, None), "another's by now");
    assert_eq!(
        (away.away_s, away.client, away.wake),
        (Some(90), None, None)
    );
    assert_eq!(
        (away.activity, away.activity_s),
        (None, None),
        "what it did then is old"
    );
    let drains = about(
        true,
        r#"{"adapter":"generic","ack":"auto","evidence":false}"#,
    );
    assert_eq!(drains.acks, Some("seen or pushed"));
    assert_eq!(drains.client.as_deref(), Some("generic"));
}

#[test]
fn a_state_is_one_word_for_each_reader() {
    let stuck = r#"{"activity":"stuck","tried":"socket\u202e","wake":["socket"]}"#;
    for (online, presence, owner, peer) in [
        (false, r#"{"activity":"waiting"}"#, "away", "away"),
        (
            true,
            r#"{"activity":"waiting"}"#,
            "waits for you",
            "waits for its user",
        ),
        (true, stuck, "stuck", "stuck"),
        (true, r#"{"activity":"busy","tried":"old"}"#, "busy", "busy"),
        (true, r#"{"activity":"idle"}"#, "idle", "idle"),
        (true, r#"{"activity":7}"#, "online", "online"),
    ] {
        let told = about(online, presence);
        let words = [Audience::Owner, Audience::Peer].map(|audience| told.is.word(audience));
        assert_eq!((words, told.state), ([owner, peer], peer), "{presence}");
        let tried = (presence == stuck).then_some(r#""socket\u202e""#);
        assert_eq!(told.tried.as_deref(), tried, "{presence}");
    }
}

#[test]
fn one_whose_adapter_is_stopped_is_stuck_without_saying_so() {
    let stopped = |online, does: &str| PeerEntry {
        name: "bob".into(),
        online,
        activity_s: Some(240),
        presence: Presence::parse(&format!(r#"{{"activity":"{does}","tried":"x"}}"#)),
        stopped: true,
        ..PeerEntry::default()
    };
    for (entry, state, why) in [
        (
            stopped(true, "idle"),
            "stuck",
            Some("bob is stuck: its adapter is stopped, as by Ctrl-Z"),
        ),
        (
            stopped(true, "stuck"),
            "stuck",
            Some("bob is stuck: its adapter is stopped, as by Ctrl-Z"),
        ),
        (
            stopped(true, "waiting"),
            "waits for you",
            Some("bob waits for you, for 4 min"),
        ),
        (
            stopped(false, "idle"),
            "stuck",
            Some("bob is stuck: its adapter is stopped, as by Ctrl-Z"),
        ),
        (
            stopped(false, "waiting"),
            "waits for you",
            Some("bob waits for you, for 4 min"),
        ),
    ] {
        let told = PeerView::new(&entry, Audience::Owner);
        let why_silent = told.why_silent(Audience::Owner);
        assert_eq!((told.state, why_silent.as_deref()), (state, why));
    }
}

#[test]
fn why_nothing_comes_of_mail_is_said_where_it_is_so() {
    let forged = format!(r#"{{"activity":"stuck","tried":"{ADAPTER_STOPPED}"}}"#);
    let forged = about(true, &forged).why_silent(Audience::Peer).unwrap();
    let its_word = "bob is stuck, for 4 min, as its adapter says: \"its adapter";
    assert!(forged.starts_with(its_word), "{forged}");
    let mut idle = about(true, r#"{"activity":"idle"}"#);
    assert_eq!(idle.why_silent(Audience::Owner), None);
    idle.paused = Some(1);
    let why = idle.why_silent(Audience::Owner);
    assert_eq!(why.as_deref(), Some("bob is idle 4 min, paused 1"));
    let mut stuck = about(true, r#"{"activity":"stuck","tried":"socket"}"#);
    stuck.held = Some(1);
    let why = stuck.why_silent(Audience::Owner);
    assert_eq!(why.as_deref(), Some("bob is stuck 4 min, held 1"));
}

#[test]
fn one_whose_path_cannot_be_used_now_is_not_said_to_wait_until_it_is_told() {
    let asleep = |why: &str| {
        let said = serde_json::json!({ "wake": [], "unwoken": why });
        about(true, &said.to_string()).asleep().unwrap()
    };
    let starts = asleep("acp: `x\u{1b}` is being started");
    let now = "nothing wakes bob as long as it says \"acp: 'x\\u001b' is being started\"";
    assert_eq!(starts, now);
    let drains = asleep("nothing is known that wakes an agent");
    assert_eq!(drains, "nothing wakes bob: it reads when it is told to");
}

#[test]
fn one_that_is_away_is_of_note_while_it_owes_or_is_owed_something() {
    let away = |unacked, owes| {
        let mut peer = about(false, "{}");
        (peer.unacked, peer.owes) = (unacked, owes);
        peer.is_of_note()
    };
    assert!(away(Some(1), None) && away(Some(0), Some(1)));
    assert!(!away(Some(0), None) && !away(None, Some(0)));
    assert!(about(true, "{}").is_of_note());
}

#[test]
fn what_it_says_cannot_harm() {
    let long = "w".repeat(300);
    let hostile = about(
        true,
        &format!(
            r#"{{"client":"<x>\n","version":7,"project":"\u202e{long}","activity":"dead",
                "wake":["<b>",7,"{long}"],"ack":"always","evidence":"yes"}}"#
        ),
    );
    assert_eq!(hostile.client.as_deref(), Some(r"\u003cx\u003e\u000a"));
    let project = hostile.project.unwrap();
    assert!(
        project.starts_with(r"\u202ew") && project.len() < 150,
        "{project}"
    );
    let wake = hostile.wake.unwrap();
    assert!(
        wake[0] == r"\u003cb\u003e" && wake[1].len() < 60,
        "{wake:?}"
    );
    assert_eq!((hostile.activity, hostile.acks), (None, None));
    assert_eq!(hostile.activity_s, None, "of nothing");
}
