//! Rows that a database has and no broker wrote.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use peerbus_core::broker::{Broker, BrokerConfig, BrokerInput, BrokerOutput, ConnId};
use peerbus_core::store::{Store, StoreError};
use peerbus_core::{Now, TokenHash};
use peerbus_store::{SqliteStore, verify_audit};
use peerbus_wire::{ClientFrame, Secret, Token};
use rusqlite::Connection;
use rusqlite::types::Value;

const TOKEN: &str = "a token";
const FILES: [&str; 3] = ["bus.db", "bus.db.audit-key", "bus.db.witness"];

/// Alters some values of a small database, then starts a broker on it, who may refuse and must not
/// panic. Six bytes and a text of up to 255 bytes each: table, column, row, type, number, length.
pub(crate) fn rows(bytes: &[u8]) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILES[0]);
    for file in FILES {
        fs::copy(template().join(file), dir.path().join(file)).unwrap();
    }
    alter(&path, bytes);
    // A word about what is broken is as good as an answer.
    let _ = verify_audit(&path);
    let Ok(mut store) = SqliteStore::open(&path) else {
        return;
    };
    let _ = live(&mut store, 2);
    drop(store);
    let _ = verify_audit(&path);
}

fn alter(path: &Path, mut bytes: &[u8]) {
    let db = Connection::open(path).unwrap();
    db.execute_batch("PRAGMA ignore_check_constraints = ON; PRAGMA foreign_keys = OFF")
        .unwrap();
    let tables = names(&db, "SELECT name FROM sqlite_master WHERE type = 'table'");
    while let Some((&[table, column, row, kind, number, len], rest)) = bytes.split_first_chunk() {
        let (text, rest) = rest.split_at(rest.len().min(len.into()));
        bytes = rest;
        let table = &tables[usize::from(table) % tables.len()];
        let columns = names(
            &db,
            &format!("SELECT name FROM pragma_table_info('{table}')"),
        );
        let column = &columns[usize::from(column) % columns.len()];
        let value = match kind % 6 {
            0 => Value::Null,
            1 => Value::Integer(i64::from(number)),
            2 => Value::Integer(i64::MAX - i64::from(number)),
            3 => Value::Integer(i64::MIN + i64::from(number)),
            4 => Value::Text(String::from_utf8_lossy(text).into_owned()),
            _ => Value::Blob(text.to_vec()),
        };
        let at = format!(
            "(SELECT \"{column}\" FROM \"{table}\" LIMIT 1 OFFSET {})",
            row % 4
        );
        // A constraint that holds is what others may rely on.
        let _ = db.execute(
            &format!(
                "UPDATE OR IGNORE \"{table}\" SET \"{column}\" = ?1 WHERE \"{column}\" = {at}"
            ),
            [value],
        );
    }
}

fn names(db: &Connection, query: &str) -> Vec<String> {
    let mut found = db.prepare(query).unwrap();
    let rows = found.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

/// A database with some of everything.
fn template() -> &'static Path {
    static TEMPLATE: OnceLock<PathBuf> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap().keep();
        let mut store = SqliteStore::open(&dir.join(FILES[0])).unwrap();
        live(&mut store, 1).unwrap();
        store.close().unwrap();
        dir
    })
}

/// A broker and what it gave to whom.
struct Life<'s> {
    store: &'s mut SqliteStore,
    broker: Broker,
    ms: u64,
    given: Vec<(ConnId, String)>,
}

impl Life<'_> {
    fn step(&mut self, input: BrokerInput, later_ms: u64) -> Result<(), StoreError> {
        self.ms += later_ms;
        let now = now(self.ms);
        self.store.begin()?;
        self.broker.handle(now, input, self.store)?;
        self.broker.flush(now, self.store)?;
        self.broker.seal(now, self.store)?;
        self.store.commit()?;
        self.broker.committed();
        while let Some(output) = self.broker.poll_output() {
            let BrokerOutput::Send(conn, frame) = output else {
                continue;
            };
            let text = frame.encode();
            // An envelope is carried as it stands: `audit verify` names the one that was altered.
            let Ok(frame) = serde_json::from_str::<serde_json::Value>(&text) else {
                assert!(text.contains(r#""type":"deliver""#), "{text}");
                continue;
            };
            if let Some(key) = frame["delivery_key"].as_str() {
                self.given.push((conn, key.to_owned()));
            }
        }
        Ok(())
    }

    fn say(&mut self, conn: u64, members: &str) -> Result<(), StoreError> {
        let text = format!(r#"{{"protocol_version":"v1",{members}}}"#);
        let frame = ClientFrame::parse(text.as_bytes());
        self.step(BrokerInput::Frame(ConnId(conn), frame), 1)
    }
}

/// A broker's life: three peers, one of whom is away, messages, an ack, a refusal, a rename.
fn live(store: &mut SqliteStore, life: u64) -> Result<(), StoreError> {
    let loaded = store.load()?;
    let token = TokenHash::of(&Token::parse(TOKEN).unwrap());
    let config = BrokerConfig::new(vec![token], store.audit_key().clone());
    let ms = life * 10_000_000_000;
    let mut life = Life {
        store,
        broker: Broker::new(config, loaded, now(ms)),
        ms,
        given: Vec::new(),
    };
    for (conn, name) in [(1, "ann"), (2, "bob"), (3, "cy")] {
        life.step(BrokerInput::Opened(ConnId(conn)), 1)?;
        let register = format!(r#""type":"register","token":"{TOKEN}","name":"{name}","ext":1"#);
        life.say(conn, &register)?;
    }
    let conn = ConnId(3);
    let goodbye = true;
    life.step(BrokerInput::Closed { conn, goodbye }, 1)?;
    for (n, to) in ["bob", "cy", "*", "nobody"].into_iter().enumerate() {
        let text = message(&format!("m{ms}-{n}"), to);
        let frame = ClientFrame::parse(text.as_bytes());
        life.step(BrokerInput::Frame(ConnId(1), frame), 1)?;
    }
    let given = life.given.clone();
    if let Some((conn, key)) = given.first() {
        let ack = format!(r#""type":"ack","id":"{key}","how":"pushed","path":"recv""#);
        life.say(conn.0, &ack)?;
    }
    if let Some((conn, key)) = given.get(1) {
        life.say(
            conn.0,
            &format!(r#""type":"reject","id":"{key}","reason":"no""#),
        )?;
    }
    life.say(2, r#""type":"rename","name":"rob""#)?;
    life.say(1, r#""type":"peers""#)?;
    life.say(
        1,
        r#""type":"status","ids":["m10000000000-0","m10000000000-1"]"#,
    )?;
    for _ in 0..3 {
        life.step(BrokerInput::Tick, 3_600_000)?;
    }
    life.step(BrokerInput::Shutdown, 1)
}

fn now(ms: u64) -> Now {
    Now {
        mono_ms: ms,
        boot_ms: ms,
        wall_ms: 1_700_000_000_000 + ms,
    }
}

fn message(id: &str, to: &str) -> String {
    let kind = if to == "*" { "broadcast" } else { "msg" };
    let mut envelope = peerbus_wire::Envelope {
        protocol_version: "v1".into(),
        id: id.into(),
        from: "ann".into(),
        to: to.into(),
        ts: "t".into(),
        source: "peer-bus".into(),
        kind: kind.into(),
        body: b"\"hello\"".to_vec(),
        hmac: String::new(),
    };
    let secret = Secret::new(&[b's'; 32]).unwrap();
    let canonical = envelope.canonical().unwrap();
    envelope.hmac = secret.sign(&canonical);
    let canonical = String::from_utf8(canonical).unwrap();
    let open = canonical.strip_suffix('}').unwrap();
    format!(r#"{open},"hmac":"{}"}}"#, envelope.hmac)
}
