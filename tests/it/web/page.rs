//! The dashboard's page, as its browser is told what to show.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::Gateway;
use crate::support::{Home, Lines};

/// An open page.
pub(crate) struct Page {
    gateway: Gateway,
    /// What lets it in, as headers.
    known: [String; 2],
    lists: Arc<Mutex<BTreeMap<String, Value>>>,
}

impl Page {
    pub(crate) fn open(home: &Home) -> Self {
        Self::of(&mut home.peerbus(&["web", "--listen", "127.0.0.1:0", "--open"]))
    }

    pub(crate) fn of(command: &mut Command) -> Self {
        let mut gateway = Gateway::of(command);
        let lines = Lines::of(gateway.child.stdout.take().expect("a pipe"));
        let word = lines.find("link", |line| Some(line.split_once("/open/")?.1.to_owned()));
        let opened = gateway.ask(&format!("GET /open/{word}"), &[], b"");
        let part = |text: &str, before: &str, end: char| {
            let (_, rest) = text.split_once(before).expect(before);
            rest.split(end).next().unwrap_or_default().to_owned()
        };
        let known = [
            format!("Cookie: {}", part(&opened.head, "set-cookie: ", ';')),
            format!(
                "X-Peerbus-Key: {}",
                part(&opened.body, r#"name="key" content=""#, '"')
            ),
        ];
        let mut stream = gateway.connect();
        stream.set_read_timeout(None).expect("a socket");
        let (host, headers) = (&gateway.address, known.join("\r\n"));
        let head = format!("GET /dashboard/live HTTP/1.0\r\nHost: {host}\r\n{headers}\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("it reads");
        let lists = Arc::default();
        let told = Arc::clone(&lists);
        std::thread::spawn(move || follow(stream, &told));
        Self {
            gateway,
            known,
            lists,
        }
    }

    /// A link for a browser.
    pub(crate) fn link(&self) -> String {
        let address = &self.gateway.address;
        let origin = format!("Origin: http://{address}");
        let headers = [&*self.known[0], &*self.known[1], &*origin];
        let told = self.gateway.ask("POST /dashboard/link", &headers, b"");
        let path = told.json()["path"].as_str().expect("a path").to_owned();
        format!("http://{address}{path}")
    }

    /// What it was told last of `peers`, `sessions` or `requests`: a list.
    pub(crate) fn list(&self, name: &str) -> Vec<Value> {
        self.member(name, name)
    }

    /// Why it was told that no broker is there, and whether that stays so.
    pub(crate) fn away(&self) -> Option<(String, bool)> {
        let lists = self.lists.lock().expect("nobody panics here");
        let told = lists.get("away")?;
        Some((told["why"].as_str()?.to_owned(), told["stays"].as_bool()?))
    }

    /// Another list that it was told with that one.
    pub(crate) fn member(&self, name: &str, member: &str) -> Vec<Value> {
        let lists = self.lists.lock().expect("nobody panics here");
        let list = lists.get(name).and_then(|told| told[member].as_array());
        list.cloned().unwrap_or_default()
    }
}

/// Keeps what comes last of each kind, until the gateway ends.
fn follow(stream: TcpStream, told: &Mutex<BTreeMap<String, Value>>) {
    let mut kind = String::new();
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        if let Some(name) = line.strip_prefix("event: ") {
            name.clone_into(&mut kind);
        }
        if let Some(data) = line.strip_prefix("data: ") {
            let data = serde_json::from_str(data).expect("JSON on one line");
            let mut told = told.lock().expect("nobody panics here");
            told.insert(kind.clone(), data);
        }
    }
}
