//! What one client, one party and all may have.

use super::*;

#[test]
fn one_client_does_not_take_all_the_room() {
    let mut host = host(surface(&[Set::Tools], false));
    for id in 0..OPEN_MAX {
        let out = host.hear(&name("dev-1"), request(&json!(id), "tools/call"), (0, 0));
        assert!(matches!(&out[..], [Out::Server(_)]));
    }
    let (_, code, why) =
        answer(&host.hear(&name("dev-1"), request(&json!("x"), "tools/call"), (0, 0)));
    assert_eq!(code, Some(REFUSED));
    assert!(why.contains("64 calls of yours are open"), "{why}");
    let out = host.hear(&name("dev-2"), request(&json!(0), "tools/call"), (0, 0));
    assert!(matches!(&out[..], [Out::Server(_)]));
}

#[test]
fn one_token_has_half_of_the_open_calls_however_many_names_it_has() {
    let mut host = host(surface(&[Set::Tools], false));
    let call = |host: &mut Host, client: &Client, id: usize| {
        host.hear(client, request(&json!(id), "tools/call"), (0, 0))
    };
    let names: Vec<_> = (0..16)
        .map(|n| of(&format!("dev-{n}"), Some("eve")))
        .collect();
    for (n, client) in names.iter().enumerate() {
        for id in 0..OPEN_MAX {
            let out = call(&mut host, client, id);
            let passed = matches!(&out[..], [Out::Server(_)]);
            assert_eq!(passed, n < 8, "{n} {id}");
        }
    }
    let (_, code, why) = answer(&call(&mut host, &names[15], 0));
    assert_eq!(code, Some(REFUSED));
    assert!(why.contains("512 with those of your token"), "{why}");
    for id in 0..OPEN_MAX {
        let out = call(&mut host, &name("dev-a"), id);
        assert!(matches!(&out[..], [Out::Server(_)]));
    }
    // Calls of those who have left are over; of one who is only away they are not.
    let known = [&names[0], &name("dev-a")].map(|client| client.name.key());
    let out = host.keep(&BTreeSet::new(), Some(&BTreeSet::from(known)));
    let cancelled = out.iter().filter(|out| matches!(out, Out::Server(_)));
    assert_eq!(cancelled.count(), 7 * OPEN_MAX);
    let out = call(&mut host, &names[15], 0);
    assert!(matches!(&out[..], [Out::Server(_)]));
    // Who is in another domain is not on the list.
    let mut host = Host::new(vec![NamePattern::parse("*").unwrap()]);
    host.begin(URI.into(), surface(&[Set::Tools], false));
    call(&mut host, &of("dev-1@beta", Some("@beta")), 1);
    let none = BTreeSet::new();
    assert!(host.keep(&none, Some(&none)).is_empty());
}

#[test]
fn who_does_not_read_answers_gets_no_more_until_it_has_and_others_do() {
    let mut host = host(surface(&[Set::Tools], false));
    let mut server = 0;
    let mut sent = Vec::new();
    let (eve, eve2) = (of("dev-1", Some("eve")), of("dev-2", Some("eve")));
    // One round: what a call comes to, and whether it gets to the client.
    let mut round = |host: &mut Host, client: &Client| {
        let mut out = host.hear(client, request(&json!(1), "tools/call"), (0, 0));
        if matches!(out[..], [Out::Server(_)]) {
            server += 1;
            let large = "x".repeat(1_000_000);
            let said = json!({ "jsonrpc": "2.0", "id": server, "result": large });
            out = host.said(message(&said));
        }
        let (_, code, why) = answer(&out);
        let [Out::Client(to, message)] = &out[..] else {
            panic!("{out:?}")
        };
        let id = format!("m{}", sent.len());
        let bytes = message.text().len();
        let goes = host.sends(to, &id, bytes, true);
        sent.push((id, goes, bytes));
        (goes, code, why)
    };
    for n in 0..16 {
        let client = if n % 2 == 0 { &eve } else { &eve2 };
        let (goes, code, _) = round(&mut host, client);
        assert!(goes && code.is_none(), "{n}");
    }
    // It was done; what is known to be too much is not.
    let (_, code, why) = round(&mut host, &eve);
    assert_eq!(code, Some(REFUSED));
    assert!(why.contains("it was done"), "{why}");
    let waits: Vec<_> = (0..1_024).map(|n| format!("w{n}")).collect();
    for id in &waits {
        assert!(host.sends(&eve, id, 1_024, true));
    }
    let (goes, code, why) = round(&mut host, &eve2);
    assert!(goes && code == Some(REFUSED), "{why}");
    assert!(
        why.contains("wait to be read: read some first; nothing was done"),
        "{why}"
    );
    // Not even sentences come without end.
    for id in 0..2_000 {
        host.sends(&eve, &format!("x{id}"), 1_024, true);
    }
    assert!(!round(&mut host, &eve).0);
    assert_eq!(
        round(&mut host, &name("dev-3")).1,
        None,
        "others get theirs"
    );
    // It has read.
    while let Some(id) = host.doubted(1).pop() {
        host.ended_at_client(&id);
    }
    assert_eq!(round(&mut host, &eve).1, None);
}

#[test]
fn news_and_errors_of_the_server_leave_the_room_for_what_a_call_came_to() {
    let mut host = host(surface(&[Set::Tools], true));
    let eve = of("dev-1", Some("eve"));
    let mut sent = 0;
    // How many bytes of what is said to clients go.
    let mut go = |host: &mut Host, out: &[Out]| -> usize {
        let each = out.iter().filter_map(|out| {
            let Out::Client(to, message) = out else {
                return None;
            };
            sent += 1;
            let bytes = message.text().len();
            let goes = host.sends(to, &format!("m{sent}"), bytes, message.id.is_some());
            goes.then_some(bytes)
        });
        each.sum()
    };
    for id in 1..=3 {
        let call = json!({
            "jsonrpc": "2.0", "id": id, "method": "tools/call", "channel": URI,
            "params": { "_meta": { "progressToken": 7 } },
        });
        let out = host.hear(&eve, message(&call), (0, 0));
        assert!(matches!(out[..], [Out::Server(_)]));
    }
    for n in 2..=40 {
        let of_eve = of(&format!("dev-{n}"), Some("eve"));
        host.hear(&of_eve, request(&json!(1), "ping"), (0, 0));
    }
    let progress = |bytes: usize| {
        message(&json!({
            "jsonrpc": "2.0", "method": "notifications/progress",
            "params": { "progressToken": 1, "message": "x".repeat(bytes) },
        }))
    };
    assert!(
        host.said(progress(ANSWER_BYTES_MAX)).is_empty(),
        "too large"
    );
    for _ in 0..40 {
        let out = host.said(progress(900_000));
        go(&mut host, &out);
    }
    // One change for many of one token.
    let change = json!({
        "jsonrpc": "2.0", "method": "notifications/tools/list_changed",
        "params": { "why": "x".repeat(300_000) },
    });
    let out = host.said(message(&change));
    go(&mut host, &out);
    let waits = host.unread(Some(&"eve".into()));
    assert!(
        waits > UNREAD_MAX - 900_000 && waits <= UNREAD_MAX,
        "{waits}"
    );
    let large = "x".repeat(900_000);
    let result = json!({ "jsonrpc": "2.0", "id": 1, "result": large });
    let error = json!({ "jsonrpc": "2.0", "id": 2, "error": { "code": 1, "message": large } });
    for said in [result, error] {
        let out = host.said(message(&said));
        let (_, code, why) = answer(&out);
        assert!(
            code == Some(REFUSED) && why.contains("it was done"),
            "{why}"
        );
        assert!((1..1_024).contains(&go(&mut host, &out)), "it leaves");
    }
    let error = json!({ "jsonrpc": "2.0", "id": 3, "error": { "code": 1, "message": "no" } });
    let out = host.said(message(&error));
    assert_eq!(answer(&out).1, Some(1), "a short one is told as it is");
    assert!(go(&mut host, &out) > 0);
}

#[test]
fn a_call_that_comes_too_late_is_not_done_and_its_age_counts() {
    let mut host = host(surface(&[Set::Tools], false));
    let dev = name("dev-1");
    let call = |timeout_ms: u64| {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {}, "channel": URI, "timeout_ms": timeout_ms });
        message(&call)
    };
    for age_ms in [5_000, 70_000] {
        let (_, code, why) = answer(&host.hear(&dev, call(5_000), (0, age_ms)));
        assert_eq!(code, Some(TIMED_OUT));
        assert!(why.contains("it was not done"), "{why}");
    }
    assert_eq!(host.deadline(), None);
    let out = host.hear(&dev, call(5_000), (100, 4_000));
    assert!(matches!(out[..], [Out::Server(_)]), "{out:?}");
    assert_eq!(host.deadline(), Some(1_100));
}

#[test]
fn a_cancelled_call_counts_until_the_server_is_done_with_it_or_for_a_minute() {
    let mut host = host(surface(&Set::ALL, false));
    let cancel = |id: usize| {
        message(&json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled", "channel": URI,
            "params": { "requestId": id },
        }))
    };
    for id in 0..OPEN_MAX {
        let out = host.hear(&name("dev-1"), request(&json!(id), "tools/call"), (0, 0));
        assert!(matches!(out[..], [Out::Server(_)]), "{out:?}");
        let out = host.hear(&name("dev-1"), cancel(id), (0, 0));
        assert!(matches!(out[..], [Out::Server(_)]), "{out:?}");
        assert!(host.hear(&name("dev-1"), cancel(id), (0, 0)).is_empty());
    }
    let ask = |host: &mut Host, now_ms| {
        let call = request(&json!("more"), "tools/call");
        let out = host.hear(&name("dev-1"), call, (now_ms, 0));
        matches!(out[..], [Out::Server(_)])
    };
    assert!(!ask(&mut host, 1), "the server may work on all of them");
    let done = json!({ "jsonrpc": "2.0", "id": 1, "result": {} });
    assert!(host.said(message(&done)).is_empty(), "nobody waits for it");
    assert!(ask(&mut host, 2));
    assert!(!ask(&mut host, 3));
    assert!(host.late(CANCELLED_MS).is_empty());
    assert!(ask(&mut host, CANCELLED_MS));
}

#[test]
fn a_call_that_the_server_does_not_take_is_answered_at_once() {
    let mut host = host(surface(&Set::ALL, false));
    let call = request(&json!("a"), "tools/call");
    let out = host.hear(&name("dev-1"), call, (0, 0)).remove(0);
    let Out::Server(passed) = out else {
        panic!("{out:?}")
    };
    let (to, code, why) = answer(&host.unsent(passed));
    assert_eq!((to.as_str(), code), ("dev-1", Some(REFUSED)));
    assert!(why.contains("nothing was done"), "{why}");
    assert_eq!(host.deadline(), None);
}
