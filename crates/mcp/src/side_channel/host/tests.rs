//! What a host serves, and to whom.

mod limits;

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::side_channel::surface::Set;

const URI: &str = "mcp://host/files/1";

/// Methods of MCP, and some that are none. Of each, the set that opens it.
const REQUESTS: &[(&str, Option<Set>)] = &[
    ("tools/list", Some(Set::Tools)),
    ("tools/call", Some(Set::Tools)),
    ("resources/list", Some(Set::Resources)),
    ("resources/templates/list", Some(Set::Resources)),
    ("resources/read", Some(Set::Resources)),
    ("logging/setLevel", Some(Set::Logging)),
    ("initialize", None),
    ("resources/subscribe", None),
    ("prompts/list", None),
    ("prompts/get", None),
    ("completion/complete", None),
    ("sampling/createMessage", None),
    ("roots/list", None),
    ("elicitation/create", None),
    ("tasks/list", None),
    ("notifications/message", None),
    ("tools/list ", None),
    ("TOOLS/LIST", None),
    ("", None),
];
const NOTIFICATIONS: &[(&str, Option<Set>)] = &[
    ("notifications/message", Some(Set::Logging)),
    ("notifications/initialized", None),
    ("notifications/progress", None),
    ("notifications/roots/list_changed", None),
    ("notifications/tools/list_changed", None),
    ("tools/call", None),
];
/// What a server says, and whether it has to declare `listChanged` for that.
const CHANGES: &[(&str, Option<Set>, bool)] = &[
    ("notifications/tools/list_changed", Some(Set::Tools), true),
    (
        "notifications/resources/list_changed",
        Some(Set::Resources),
        true,
    ),
    ("notifications/message", Some(Set::Logging), false),
    ("notifications/prompts/list_changed", None, false),
    ("notifications/resources/updated", None, false),
    ("notifications/cancelled", None, false),
];

fn name(text: &str) -> Client {
    of(text, None)
}

/// A client of another token.
fn of(text: &str, party: Option<&str>) -> Client {
    Client {
        name: PeerName::parse(text).unwrap(),
        party: party.map(str::to_owned),
    }
}

fn message(value: &Value) -> Message {
    Message::parse(&value.to_string()).unwrap()
}

fn surface(sets: &[Set], follows: bool) -> Surface {
    let all: Vec<_> = sets.iter().map(|set| set.as_str()).collect();
    let mut told = json!({});
    for set in all {
        told[set] = json!({ "listChanged": follows });
    }
    Surface::read(&told)
}

fn host(surface: Surface) -> Host {
    let mut host = Host::new(vec![NamePattern::parse("dev-*").unwrap()]);
    host.begin(URI.into(), surface);
    host
}

fn request(id: &Value, method: &str) -> Message {
    message(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "channel": URI }))
}

/// What the one answer says: to whom, and the error's code if it is one.
fn answer(out: &[Out]) -> (String, Option<i64>, String) {
    let [Out::Client(to, message)] = out else {
        panic!("{out:?}");
    };
    let error = message
        .error
        .as_ref()
        .map(|error| serde_json::from_str(error.get()).unwrap());
    let error: Value = error.unwrap_or_default();
    let why = error["message"].as_str().unwrap_or_default().to_owned();
    (to.name.to_string(), error["code"].as_i64(), why)
}

proptest! {
    #[test]
    fn served_is_the_union_of_what_is_advertised_and_nothing_else(
        bits in 0_usize..8, follows: bool,
    ) {
        let sets: Vec<_> = Set::ALL.into_iter().enumerate()
            .filter_map(|(at, set)| (bits >> at & 1 == 1).then_some(set)).collect();
        let has = |set: &Option<Set>| set.is_some_and(|set| sets.contains(&set));
        let dev = name("dev-1");
        for (method, set) in REQUESTS {
            let mut host = host(surface(&sets, follows));
            let out = host.hear(&dev, request(&json!(7), method), (0, 0));
            match has(set) {
                true => prop_assert!(matches!(&out[..], [Out::Server(_)]), "{method}: {out:?}"),
                false => prop_assert_eq!(answer(&out).1, Some(NOT_FOUND), "{}", method),
            }
        }
        let mut host = host(surface(&sets, follows));
        host.hear(&dev, request(&json!(1), "ping"), (0, 0));
        for (method, set) in NOTIFICATIONS {
            let told = json!({ "jsonrpc": "2.0", "method": method, "channel": URI });
            let passed = !host.hear(&dev, message(&told), (0, 0)).is_empty();
            prop_assert_eq!(passed, has(set), "{}", method);
        }
        for (method, set, declared) in CHANGES {
            let out = host.said(message(&json!({ "jsonrpc": "2.0", "method": method })));
            let told = has(set) && (follows || !declared);
            prop_assert_eq!(!out.is_empty(), told, "{}", method);
        }
    }

    #[test]
    fn answers_go_to_the_asker_under_its_own_id_and_in_order(
        steps in prop::collection::vec((0_usize..8, 0_u8..4, any::<prop::sample::Index>()), 1..300),
    ) {
        let mut host = host(surface(&Set::ALL, true));
        let clients: Vec<_> = (0..8).map(|n| name(&format!("dev-{n}"))).collect();
        let mut last = 0;
        // At the server, in order: its id, the client, that one's id.
        let mut open: VecDeque<(Value, usize, Value)> = VecDeque::new();
        let mut asked: BTreeMap<usize, Vec<Value>> = BTreeMap::new();
        for (client, act, which) in steps {
            if act < 2 {
                last += 1;
                // Clients choose the same ids, as numbers and as texts.
                let id = if last % 2 == 0 { json!(asked.entry(client).or_default().len()) } else { json!("0") };
                let busy = open.iter().any(|(_, of, own)| *of == client && *own == id);
                if busy { continue }
                let out = host.hear(&clients[client], request(&id, "tools/call"), (last, 0));
                let [Out::Server(passed)] = &out[..] else { panic!("{out:?}") };
                let own: Value = serde_json::from_str(passed.id.as_ref().unwrap().get()).unwrap();
                prop_assert!(open.iter().all(|(other, ..)| *other != own));
                asked.entry(client).or_default().push(id.clone());
                open.push_back((own, client, id));
            } else if open.is_empty() {
                continue;
            } else if act == 2 {
                let at = which.index(open.len());
                let (own, client, id) = open.remove(at).unwrap();
                let mark = format!("{client} {id}");
                let out = host.said(message(&json!({ "jsonrpc": "2.0", "id": own, "result": mark })));
                let [Out::Client(to, told)] = &out[..] else { panic!("{out:?}") };
                prop_assert_eq!(to, &clients[client]);
                prop_assert_eq!(told.id.as_ref().unwrap().get(), id.to_string());
                prop_assert_eq!(told.beside.channel.as_deref(), Some(URI));
                // A second answer is nobody's.
                let twice = host.said(message(&json!({ "jsonrpc": "2.0", "id": own, "result": 1 })));
                prop_assert!(twice.is_empty());
            } else {
                let at = which.index(open.len());
                let (own, owner, id) = open[at].clone();
                let cancel = json!({
                    "jsonrpc": "2.0", "method": "notifications/cancelled", "channel": URI,
                    "params": { "requestId": id },
                });
                let out = host.hear(&clients[client], message(&cancel), (last, 0));
                let mine = open.iter().position(|(_, of, one)| *of == client && *one == id);
                match mine {
                    Some(mine) => {
                        let [Out::Server(told)] = &out[..] else { panic!("{out:?}") };
                        let meant = told.members()["requestId"].get().to_owned();
                        prop_assert_eq!(meant, open[mine].0.to_string());
                        open.remove(mine);
                    }
                    None => {
                        prop_assert!(out.is_empty(), "{} is {}'s", own, owner);
                    }
                }
            }
        }
    }
}

#[test]
fn who_may_not_and_what_is_gone_is_refused_and_the_server_sees_nothing() {
    let mut host = host(surface(&Set::ALL, false));
    let call = |channel: Value| {
        message(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "channel": channel }))
    };
    let (to, code, why) = answer(&host.hear(&name("eve"), call(json!(URI)), (0, 0)));
    assert_eq!((to.as_str(), code), ("eve", Some(REFUSED)));
    assert!(why.contains("not shared with eve"), "{why}");
    for channel in ["mcp://host/files/0", "", "x\u{1b}[2J"] {
        let out = host.hear(&name("dev-1"), call(json!(channel)), (0, 0));
        let (_, code, why) = answer(&out);
        assert_eq!(code, Some(GONE));
        let [Out::Client(_, told)] = &out[..] else {
            panic!("{out:?}")
        };
        assert_eq!(
            told.beside.channel.as_deref(),
            Some(channel),
            "as it was asked"
        );
        let error: Value = serde_json::from_str(told.error.as_ref().unwrap().get()).unwrap();
        assert_eq!(error["data"]["channel"], URI, "and what there is now");
        assert!(!why.contains('\u{1b}'), "{why}");
    }
    // One that no host has is not repeated whole.
    let long = call(json!("x".repeat(ANSWER_BYTES_MAX)));
    let out = host.hear(&name("dev-1"), long, (0, 0));
    assert_eq!(answer(&out).1, Some(GONE));
    let bare = message(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }));
    assert_eq!(
        answer(&host.hear(&name("dev-1"), bare, (0, 0))).1,
        Some(GONE)
    );
}

#[test]
fn the_channel_is_read_and_written_where_the_client_has_it() {
    let mut host = host(surface(&[Set::Tools], true));
    let params = json!({ "channel": URI, "name": "echo" });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let out = host.hear(&name("dev-1"), message(&call), (0, 0));
    let [Out::Server(passed)] = &out[..] else {
        panic!("{out:?}")
    };
    let members = passed.members();
    assert!(passed.beside.channel.is_none() && !members.contains_key("channel"));
    assert_eq!(members["name"].get(), r#""echo""#);
    let answer = host.said(message(&json!({ "jsonrpc": "2.0", "id": 1, "result": {} })));
    let [Out::Client(_, answer)] = &answer[..] else {
        panic!()
    };
    assert_eq!(
        answer.beside.channel.as_deref(),
        Some(URI),
        "a response has no params"
    );
    let change = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
    let told = host.said(message(&change));
    let [Out::Client(_, told)] = &told[..] else {
        panic!()
    };
    assert!(told.beside.channel.is_none());
    assert_eq!(told.members()["channel"].get(), format!("{URI:?}"));
}

#[test]
fn progress_is_told_to_the_asker_under_its_own_token() {
    let mut host = host(surface(&[Set::Tools], false));
    let call = |token: &str| {
        let params = json!({ "_meta": { "progressToken": token, "mine": 1 } });
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params, "channel": URI });
        message(&call)
    };
    for (client, token) in [("dev-1", "t"), ("dev-2", "t")] {
        let out = host.hear(&name(client), call(token), (0, 0));
        let [Out::Server(passed)] = &out[..] else {
            panic!("{out:?}")
        };
        let meta: Value = serde_json::from_str(passed.members()["_meta"].get()).unwrap();
        assert_eq!(meta["mine"], 1);
        let own = meta["progressToken"].clone();
        let told = json!({ "progressToken": own, "progress": 1 });
        let told = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": told });
        let out = host.said(message(&told));
        let [Out::Client(to, told)] = &out[..] else {
            panic!("{out:?}")
        };
        assert_eq!(to.name.as_str(), client);
        assert_eq!(told.members()["progressToken"].get(), r#""t""#);
    }
}

#[test]
fn what_takes_too_long_or_loses_its_server_is_answered_with_that() {
    let mut host = host(surface(&[Set::Tools], false));
    let mut call = request(&json!("a"), "tools/call");
    call.beside.timeout_ms = Some(500);
    host.hear(&name("dev-1"), call, (1_000, 0));
    host.hear(
        &name("dev-2"),
        request(&json!("b"), "tools/call"),
        (1_000, 0),
    );
    assert_eq!(host.deadline(), Some(1_500));
    let out = host.late(1_500);
    let [Out::Server(cancelled), Out::Client(to, _)] = &out[..] else {
        panic!("{out:?}")
    };
    assert_eq!(cancelled.method.as_deref(), Some("notifications/cancelled"));
    assert_eq!(to.name.as_str(), "dev-1");
    assert_eq!(host.deadline(), Some(61_000));
    let (to, code, why) = answer(&host.ended());
    assert_eq!((to.as_str(), code), ("dev-2", Some(GONE)));
    assert!(why.contains("may have been done"), "{why}");
    assert_eq!(host.deadline(), None);
}

#[test]
fn a_server_asks_nothing_of_clients_and_a_circle_is_refused() {
    let mut host = host(surface(&[Set::Tools], false));
    for (method, code) in [("ping", None), ("sampling/createMessage", Some(NOT_FOUND))] {
        let out = host.said(message(
            &json!({ "jsonrpc": "2.0", "id": 9, "method": method }),
        ));
        let [Out::Server(answer)] = &out[..] else {
            panic!("{out:?}")
        };
        let error = answer.error.as_ref().map(|error| error.get().to_owned());
        assert_eq!(error.is_some(), code.is_some());
    }
    let out = host.hear(&name("dev-1"), request(&json!(1), "tools/list"), (0, 0));
    let [Out::Server(passed)] = &out[..] else {
        panic!("{out:?}")
    };
    let mut back = passed.clone();
    back.put_channel(URI, Place::Top);
    let (_, code, why) = answer(&host.hear(&name("dev-1"), back, (0, 0)));
    assert_eq!(code, Some(REFUSED));
    assert!(why.contains("leads back to itself"), "{why}");
}

#[test]
fn an_answer_that_does_not_fit_says_how_large_it_was() {
    let mut host = host(surface(&[Set::Tools], false));
    host.hear(&name("dev-1"), request(&json!(1), "tools/call"), (0, 0));
    let large = "x".repeat(ANSWER_BYTES_MAX);
    let out = host.said(message(
        &json!({ "jsonrpc": "2.0", "id": 1, "result": large }),
    ));
    let (_, code, why) = answer(&out);
    assert_eq!(code, Some(TOO_LARGE));
    assert!(why.contains("10475"), "{why}");
}
