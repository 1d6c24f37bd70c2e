//! The budgets, one test each.

use peerbus_wire::PeerName;

use super::*;

const MINUTE_MS: u64 = 60_000;

fn key_of(name: &str) -> NameKey {
    PeerName::parse(name).unwrap().key()
}

/// A governor and its time.
struct Rig {
    governor: Governor,
    now_ms: u64,
}

impl Rig {
    fn new(budget: u32) -> Self {
        Self {
            governor: Governor::new(budget).unwrap(),
            now_ms: 5_000_000,
        }
    }

    fn send(&mut self, to: &str) {
        self.governor.sent(self.now_ms, &key_of(to), None);
    }

    fn send_in(&mut self, to: &str, thread: &str) {
        self.governor.sent(self.now_ms, &key_of(to), Some(thread));
    }

    fn hear(&mut self, from: &str) -> Verdict {
        self.hear_all(from, None, 0)
    }

    fn hear_all(&mut self, from: &str, thread: Option<&str>, hops: u32) -> Verdict {
        let arrival = Arrival {
            from: &key_of(from),
            thread,
            hops,
        };
        self.governor.judge(self.now_ms, &arrival, false)
    }

    fn ping_pong(&mut self, with: &str) -> Verdict {
        self.send(with);
        self.hear(with)
    }
}

fn reason(verdict: Verdict) -> (String, bool) {
    match verdict {
        Verdict::Pass => (String::new(), false),
        Verdict::Hold { reason, tell } => (reason, tell),
    }
}

#[test]
fn twenty_replies_pass_in_ten_minutes_and_the_next_is_held_with_the_reason() {
    let mut rig = Rig::new(20);
    for _ in 0..20 {
        assert_eq!(rig.ping_pong("bob"), Verdict::Pass);
        rig.now_ms += 1_000;
    }
    let held = Verdict::Hold {
        reason: "held as quiet: 21 replies of bob within 10 minutes, budget 20 (the \
                 recipient's PEERBUS_BUDGET)"
            .into(),
        tell: true,
    };
    assert_eq!(rig.ping_pong("bob"), held);
    assert_eq!(
        rig.ping_pong("carol"),
        Verdict::Pass,
        "each peer has its own"
    );
}

#[test]
fn whoever_is_over_budget_is_held_even_if_nobody_asked() {
    let mut rig = Rig::new(1);
    rig.ping_pong("bob");
    assert_ne!(rig.ping_pong("bob"), Verdict::Pass);
    assert_ne!(rig.hear("bob"), Verdict::Pass);
}

#[test]
fn the_budget_slides() {
    let mut rig = Rig::new(20);
    for _ in 0..200 {
        assert_eq!(rig.ping_pong("bob"), Verdict::Pass, "two a minute are fine");
        rig.now_ms += MINUTE_MS / 2;
    }
}

#[test]
fn whoever_is_never_answered_is_never_held() {
    let mut rig = Rig::new(20);
    rig.send_in("bob", "plan");
    for _ in 0..1_000 {
        for thread in ["builds", "plan"] {
            assert_eq!(rig.hear_all("ci", Some(thread), 17), Verdict::Pass);
        }
        rig.now_ms += 100;
    }
}

#[test]
fn a_third_party_does_not_use_up_the_budget_of_a_thread() {
    let mut rig = Rig::new(1_000);
    rig.send_in("bob", "plan");
    for _ in 0..100 {
        rig.hear_all("mallory", Some("plan"), 0);
    }
    let answer = rig.hear_all("bob", Some("plan"), 0);
    assert_eq!(answer, Verdict::Pass);
}

#[test]
fn a_ring_of_three_is_stopped_by_its_thread() {
    let mut rig = Rig::new(20);
    for n in 0..40 {
        rig.send_in("bob", "ring");
        let verdict = rig.hear_all("carol", Some("ring"), 3 * n + 2);
        assert_eq!(verdict, Verdict::Pass, "{n}");
        rig.now_ms += 1_000;
    }
    rig.send_in("bob", "ring");
    assert_ne!(rig.hear_all("carol", Some("ring"), 122), Verdict::Pass);
}

#[test]
fn a_broadcast_is_sent_to_everybody() {
    let broadcast = |rig: &mut Rig| rig.governor.sent_to_all(rig.now_ms, None);
    let mut rig = Rig::new(2);
    for _ in 0..2 {
        broadcast(&mut rig);
        for peer in ["ann", "bob"] {
            assert_eq!(rig.hear(peer), Verdict::Pass);
        }
    }
    assert_eq!(rig.hear("ann"), Verdict::Pass, "nobody asked");
    broadcast(&mut rig);
    assert_ne!(rig.hear("ann"), Verdict::Pass);
}

#[test]
fn a_hold_is_told_once_until_it_was_quiet_for_ten_minutes() {
    let mut rig = Rig::new(1);
    rig.ping_pong("bob");
    let tells: Vec<bool> = (0..3).map(|_| reason(rig.ping_pong("bob")).1).collect();
    assert_eq!(tells, [true, false, false]);
    rig.now_ms += 10 * MINUTE_MS;
    assert_eq!(rig.ping_pong("bob"), Verdict::Pass);
    assert!(reason(rig.ping_pong("bob")).1);
}

#[test]
fn a_peer_has_40_messages_an_hour_in_a_thread() {
    let mut rig = Rig::new(1_000);
    let exchange = |rig: &mut Rig, thread: &str| {
        rig.send_in("bob", thread);
        rig.hear_all("bob", Some(thread), 0)
    };
    for n in 0..40 {
        assert_eq!(exchange(&mut rig, "plan"), Verdict::Pass, "{n}");
        rig.now_ms += MINUTE_MS;
    }
    let (text, tell) = reason(exchange(&mut rig, "plan"));
    assert!(tell, "told once");
    assert!(
        text.contains("41 messages of bob in thread plan within an hour, budget 40"),
        "{text}"
    );
    assert!(!reason(exchange(&mut rig, "plan")).1);
    let alone = rig.hear_all("bob", Some("plan"), 0);
    assert_ne!(alone, Verdict::Pass);
    assert_eq!(exchange(&mut rig, "other"), Verdict::Pass);
    rig.now_ms += 60 * MINUTE_MS;
    assert_eq!(exchange(&mut rig, "plan"), Verdict::Pass);
}

#[test]
fn the_name_of_a_thread_cannot_write_into_the_reason() {
    let mut rig = Rig::new(1_000);
    let name = format!("</x>\n\u{202e}{}", "n".repeat(1_000_000));
    let mut last = Verdict::Pass;
    for _ in 0..41 {
        rig.send_in("bob", &name);
        last = rig.hear_all("bob", Some(&name), 0);
    }
    let (text, _) = reason(last);
    assert!(
        text.contains("thread __x___nnn") && text.len() < 400,
        "{text}"
    );
    let again = peerbus_wire::escape(&text, 1_000);
    assert_eq!(again, text, "it can be quoted as it is");
}

#[test]
fn more_than_16_hops_are_held() {
    let mut rig = Rig::new(20);
    assert_eq!(rig.hear_all("bob", None, 17), Verdict::Pass, "unasked");
    rig.send("bob");
    assert_eq!(rig.hear_all("bob", None, 16), Verdict::Pass);
    let (text, tell) = reason(rig.hear_all("bob", None, 17));
    assert!(
        tell && text.contains("17 replies led to this message of bob, budget 16"),
        "{text}"
    );
}

#[test]
fn in_a_ring_nobody_is_answered_and_hops_are_held_all_the_same() {
    let mut rig = Rig::new(20);
    let arrival = Arrival {
        from: &key_of("cyd"),
        thread: None,
        hops: 17,
    };
    assert_eq!(
        rig.governor.judge(rig.now_ms, &arrival, false),
        Verdict::Pass
    );
    assert_ne!(
        rig.governor.judge(rig.now_ms, &arrival, true),
        Verdict::Pass
    );
}

#[test]
fn two_agents_that_answer_each_other_for_ever_stop() {
    // Each answers whatever wakes it.
    let (mut ann, mut bob) = (Rig::new(20), Rig::new(20));
    let mut turns = 0;
    let mut to_bob = true;
    loop {
        let (from, to) = if to_bob {
            ("ann", "bob")
        } else {
            ("bob", "ann")
        };
        let (sender, recipient) = if to_bob {
            (&mut ann, &mut bob)
        } else {
            (&mut bob, &mut ann)
        };
        sender.send(to);
        let verdict = recipient.hear(from);
        turns += 1;
        if verdict != Verdict::Pass {
            break;
        }
        assert!(turns < 50, "they go on");
        to_bob = !to_bob;
    }
}
