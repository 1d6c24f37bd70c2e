//! Mail that waits for the user, who decides about it here.

use peerbus_adapter::mailbox::quote::said;
use peerbus_adapter::mailbox::{Mail, Undecided};
use serde_json::{Value, json};

use crate::Shared;
use crate::protocol::Error;

impl Shared {
    /// As `session/held` tells it.
    pub(crate) fn held(&self) -> Value {
        let held = self.mailbox.withheld();
        let held: Vec<_> = held.iter().map(|mail| told(mail)).collect();
        json!({ "held": held })
    }

    /// The agent gets a message that waits, or its sender is told that it does not.
    pub(crate) fn decide_held(
        &self,
        id: &str,
        from: Option<&str>,
        show: bool,
    ) -> Result<Value, Error> {
        let decided = self.mailbox.decide(id, from, show);
        let mail = decided.map_err(|undecided| match undecided {
            Undecided::Unknown => Error::unable(
                "no message of that id waits for its user here: `session/held` lists those that do",
            ),
            Undecided::Several => {
                Error::params("several senders used that id: say which is meant by `from`")
            }
        })?;
        Ok(json!({ "id": mail.inbound.id, "from": mail.inbound.from, "released": show }))
    }
}

fn told(mail: &Mail) -> Value {
    let inbound = &mail.inbound;
    json!({
        "id": inbound.id,
        "from": inbound.from,
        "token": inbound.token,
        "sent_at": inbound.ts,
        "text": said(&inbound.body),
    })
}
