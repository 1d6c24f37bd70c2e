//! The bridge to another domain, as far as a test plays it.

use peerbus_test_support::socket::registration;
use peerbus_wire::Received;
use serde_json::{Value, json};

use super::{Broker, Home, Raw};

/// A token that may bridge.
pub(crate) fn token(home: &Home) -> String {
    let said = home.run(&["token", "add", "bridges", "--rights", "bridge"]);
    said.ok().trim().to_owned()
}

/// A connection of the bridge to a domain. It says nothing by itself.
pub(crate) struct Bridge {
    pub(crate) raw: Raw,
    /// What the broker said to its registration.
    pub(crate) greeting: Value,
    taken: u64,
    /// The last one was refused: what comes next is told to come behind that.
    refused: bool,
}

impl Bridge {
    /// Registers the bridge to the domain `other`, whose broker has this epoch.
    pub(crate) fn join(broker: &Broker, token: &str, other: &str, epoch: &str) -> Self {
        let mut register = registration(&format!("bridge@{other}"), token);
        register["ext"] = 2.into();
        register["bridge"] = epoch.into();
        let mut raw = Raw::connect(broker);
        raw.say(&register.to_string());
        let greeting = raw.next();
        assert_eq!(greeting["type"], "peers", "{greeting}");
        Self {
            raw,
            greeting,
            taken: 0,
            refused: false,
        }
    }

    /// The next message for the other domain: its key, and the envelope as it was signed.
    pub(crate) fn delivery(&mut self) -> (String, String) {
        loop {
            let text = self.raw.next_text();
            if let Received::Deliver(delivery) = Received::parse(text.as_bytes()) {
                let carried = delivery.envelope.carry().expect("the broker accepted it");
                return (delivery.key.as_str().to_owned(), carried.text.to_string());
            }
        }
    }

    /// Brings a message of the other domain; gives the answer.
    pub(crate) fn take(&mut self, envelope: &str) -> Value {
        self.bring(envelope);
        let answer = self.raw.answer();
        self.refused = answer["state"] == "refused";
        answer
    }

    /// Brings a message of the other domain.
    pub(crate) fn bring(&mut self, envelope: &str) {
        self.taken += 1;
        let (mark, again) = (format!("mark-{}", self.taken), self.refused);
        self.raw.say(&format!(
            r#"{{"protocol_version":"v1","type":"take","mark":"{mark}","again":{again},"envelope":{envelope}}}"#
        ));
    }

    /// Says how far the message with this key is in the other domain, and waits until the broker has that.
    pub(crate) fn says(&mut self, key: &str, how_far: Value) {
        let mut frame = how_far;
        frame["protocol_version"] = "v1".into();
        frame["type"] = "progress".into();
        frame["id"] = key.into();
        self.raw.say(&frame.to_string());
        self.settle();
    }

    /// Waits until the broker has read everything.
    pub(crate) fn settle(&mut self) {
        self.raw
            .say(&json!({ "protocol_version": "v1", "type": "peers" }).to_string());
        while self.raw.next()["type"] != "peers" {}
    }

    /// Says what the bridge does: `waiting` when it does not hear the other side.
    pub(crate) fn does(&mut self, activity: &str) {
        let presence = json!({ "activity": activity });
        let frame = json!({ "protocol_version": "v1", "type": "presence", "presence": presence });
        self.raw.say(&frame.to_string());
        self.settle();
    }
}
