//! `docs/PROTOCOL.md` says what the code does.

use std::process::Command;

use peerbus_wire::limits as l;
use peerbus_wire::{
    BrokerFrame, ClientFrame, CloseReason, DeliverFrame, Envelope, JoinRefusal, Received, Secret,
};

const DOCUMENT: &str = include_str!("../../../../docs/PROTOCOL.md");

/// The contents of the code blocks of one kind.
fn blocks(kind: &str) -> Vec<&'static str> {
    let open = format!("```{kind}\n");
    let found: Vec<_> = DOCUMENT
        .split(&open)
        .skip(1)
        .map(|rest| rest.split_once("\n```").unwrap().0)
        .collect();
    assert!(!found.is_empty(), "no block of kind {kind}");
    found
}

/// The text between two backticks after `lead`.
fn quoted_after(lead: &str) -> &'static str {
    let rest = DOCUMENT.split_once(lead).unwrap().1;
    rest.split('`').nth(1).unwrap()
}

#[test]
fn every_client_frame_is_as_we_write_it() {
    for text in blocks("json client") {
        assert_eq!(ClientFrame::parse(text.as_bytes()).encode(), text);
    }
}

#[test]
fn every_broker_frame_is_as_we_write_it() {
    for text in blocks("json broker") {
        let again = match Received::parse(text.as_bytes()) {
            Received::Peers(peers) => BrokerFrame::Peers(peers).encode(),
            Received::Receipts(receipts) => BrokerFrame::Receipts(receipts).encode(),
            Received::Deliver(delivery) => {
                let carried = delivery.envelope.carry().unwrap();
                let frame = match delivery.key.seq() {
                    Some(seq) => DeliverFrame::for_one(seq, &carried.text, &delivery.remarks),
                    None => DeliverFrame::keyed(&delivery.key, &carried.text),
                };
                BrokerFrame::Deliver(frame).encode()
            }
            Received::Recall(key) => BrokerFrame::Recall(key).encode(),
            Received::Renamed(answer) => BrokerFrame::Renamed(answer).encode(),
            Received::Retired(answer) => BrokerFrame::Retired(answer).encode(),
            Received::Forwarded(messages) => BrokerFrame::Forwarded(messages).encode(),
            Received::Joined(grant) => BrokerFrame::Joined(grant).encode(),
            Received::Unknown => panic!("{text}"),
        };
        assert_eq!(&*again, text);
    }
}

#[test]
fn the_worked_example_holds() {
    let [sent] = blocks("json envelope")[..] else {
        panic!("one example")
    };
    let [canonical] = blocks("text canonical")[..] else {
        panic!("one canonical form")
    };
    let secret = Secret::new(quoted_after("### Worked example").as_bytes()).unwrap();
    let decoded = Envelope::decode(sent.as_bytes()).unwrap();
    let form = decoded.envelope.canonical().unwrap();
    assert_eq!(String::from_utf8(form.clone()).unwrap(), canonical);
    assert!(DOCUMENT.contains(&format!("one line of {} bytes", form.len())));
    assert_eq!(secret.sign(&form), quoted_after("Its HMAC-SHA256 is"));
    assert!(secret.verify(&decoded.envelope).is_ok());
    let open = canonical.strip_suffix('}').unwrap();
    let hmac = &decoded.envelope.hmac;
    let carried = decoded.carry().unwrap();
    assert_eq!(*carried.text, format!("{open},\"hmac\":\"{hmac}\"}}"));
}

#[test]
fn the_python_of_the_document_signs_the_worked_example() {
    if Command::new("python3").arg("--version").output().is_err() {
        return; // There is no Python to ask.
    }
    let [code] = blocks("python")[..] else {
        panic!("one program")
    };
    let sent = blocks("json envelope")[0];
    let body = sent.split_once("\"body\": ").unwrap().1;
    let body = body.split_once(",\n  \"hmac\"").unwrap().0;
    let program = format!(
        "{code}\nimport sys\nsent, body, secret = sys.argv[1:]\n\
         print(sign(secret, canonical(json.loads(sent), body)))"
    );
    let secret = quoted_after("### Worked example");
    let output = Command::new("python3")
        .args(["-X", "utf8", "-c", &program, sent, body, secret])
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        printed.trim(),
        quoted_after("Its HMAC-SHA256 is"),
        "{errors}"
    );
}

#[test]
fn every_close_code_is_listed() {
    use CloseReason as R;
    let reasons = [
        R::HandshakeNotText,
        R::HandshakeMalformed,
        R::FirstFrameNotRegister,
        R::UnsupportedVersion,
        R::EmptyName,
        R::InvalidToken,
        R::NameClaimed,
        R::NameInUse,
        R::NameKnown,
        R::TakenOver,
        R::TooLarge,
        R::HandshakeTimeout,
        R::Unresponsive,
        R::TooSlow,
        R::NameEnded,
        R::Full,
        R::GoingAway,
        R::StorageFailed,
        R::NotJoined(JoinRefusal::Unknown),
        R::NotJoined(JoinRefusal::Expired),
        R::NotJoined(JoinRefusal::Used),
        R::NotJoined(JoinRefusal::Taken),
        R::NotJoined(JoinRefusal::Failed),
        R::Joined,
    ];
    let table = DOCUMENT.split_once("## 3.1 Close codes").unwrap().1;
    for reason in &reasons {
        let row = format!("| {} | `{}` |", reason.code(), reason.text());
        assert!(table.contains(&row), "{row}");
    }
}

#[test]
fn every_limit_is_listed() {
    let rows = [
        ("a frame, in either direction", vec![l::FRAME_BYTES_MAX]),
        ("a carried envelope", vec![l::ENVELOPE_BYTES_MAX]),
        ("`name`", vec![l::NAME_BYTES_MAX]),
        ("`id`", vec![l::ID_BYTES_MAX]),
        ("`source`, `ts`", vec![l::SOURCE_BYTES_MAX, l::TS_BYTES_MAX]),
        ("`token`", vec![l::TOKEN_BYTES_MAX]),
        ("`token` of `join`", vec![l::JOIN_TOKEN_BYTES_MIN]),
        ("`instance`", vec![l::INSTANCE_BYTES_MAX]),
        ("nesting of a body", vec![l::NESTING_MAX]),
        ("`delivery_key`", vec![l::DELIVERY_KEY_BYTES_MAX]),
        ("secret", vec![l::SECRET_BYTES_MIN]),
        ("presence", vec![l::PRESENCE_BYTES_MAX]),
        ("`reason`", vec![l::REASON_BYTES_MAX]),
        ("`path`, `evidence`", vec![l::HOW_BYTES_MAX]),
        ("ids in one `status`", vec![l::STATUS_IDS_MAX]),
        (
            "what `again`, `for`, `token`, `approves`, `age_ms` and `within_ms` add",
            vec![l::DELIVER_ONE_BYTES],
        ),
        ("domain", vec![l::DOMAIN_BYTES_MAX]),
        ("epoch, mark", vec![l::MARK_BYTES_MAX]),
        ("messages in one `forwarded` answer", vec![l::FORWARDED_MAX]),
        ("entries in one `peers` answer", vec![l::PEERS_ENTRIES_MAX]),
        ("frames of one connection", vec![l::FRAMES_UNANSWERED_MAX]),
        (
            "window, default",
            [l::WINDOW_MESSAGES_DEFAULT, l::WINDOW_BYTES_DEFAULT]
                .map(|n| n as usize)
                .to_vec(),
        ),
        (
            "window, largest",
            [
                l::WINDOW_MESSAGES_MAX,
                l::WINDOW_V1_MESSAGES,
                l::WINDOW_BYTES_MAX,
                l::WINDOW_V1_BYTES,
            ]
            .map(|n| n as usize)
            .to_vec(),
        ),
        (
            "deliveries of a version 1 connection",
            vec![l::EXEMPT_V1_MESSAGES as usize],
        ),
    ];
    let table = DOCUMENT.split_once("## 3.2 Limits").unwrap().1;
    for (what, limits) in rows {
        let lead = format!("| {what}");
        let row = table
            .lines()
            .find(|line| line.starts_with(&lead))
            .unwrap_or(what);
        let numbers: Vec<_> = row
            .rsplit("| ")
            .next()
            .unwrap()
            .split(|c: char| !(c.is_ascii_digit() || c == ','))
            .map(|number| number.replace(',', ""))
            .collect();
        for limit in limits {
            assert!(numbers.contains(&limit.to_string()), "{limit}: {row}");
        }
    }
}
