//! `peerbus send`.

use peerbus_adapter::{Sent, SentStatus};
use serde_json::json;

use crate::args::{Outgoing, Send};
use crate::failure::Failure;
use crate::{body, client, output};

/// Sends one message and says how far it is known to have got.
pub(crate) fn run(verb: Send) -> Result<(), Failure> {
    let body = body::json(&verb.body, verb.outgoing.text)?;
    let config = client::config(&verb.outgoing.connection, verb.outgoing.name.clone())?;
    let deadline = client::duration(verb.outgoing.timeout);
    let sent = client::with_bus(config, client::Refused::Fail, async |bus| {
        Ok(bus.send(&verb.to, &body, deadline).await?)
    })?;
    report(&sent, Some(&verb.to), &verb.outgoing)
}

/// Prints the result of a send or a broadcast.
pub(crate) fn report(sent: &Sent, to: Option<&str>, outgoing: &Outgoing) -> Result<(), Failure> {
    let text = if outgoing.json {
        as_json(sent, to)
    } else {
        sentence(sent, to)
    };
    Ok(output::line(&text)?)
}

fn as_json(sent: &Sent, to: Option<&str>) -> String {
    let mut result = match sent.status {
        SentStatus::Accepted {
            recipients,
            online,
            duplicate,
        } => json!({
            "id": sent.id, "status": "accepted", "recipients": recipients, "online": online,
            "duplicate": duplicate,
        }),
        SentStatus::Written => json!({ "id": sent.id, "status": "written" }),
    };
    if let Some(to) = to {
        result["to"] = to.into();
    }
    result.to_string()
}

fn sentence(sent: &Sent, to: Option<&str>) -> String {
    let id = &sent.id;
    match (sent.status, to) {
        (SentStatus::Written, _) => {
            format!("written {id} (a v1 broker: whether it was accepted cannot be known)")
        }
        (
            SentStatus::Accepted {
                duplicate: true, ..
            },
            _,
        ) => {
            format!("accepted {id}: on disk, when it was sent before; it is not queued twice")
        }
        (SentStatus::Accepted { online: 0, .. }, Some(to)) => {
            format!("accepted {id}: on disk; {to} is away, it is queued")
        }
        (SentStatus::Accepted { .. }, Some(to)) => {
            format!("accepted {id}: on disk; {to} is connected")
        }
        (
            SentStatus::Accepted {
                recipients, online, ..
            },
            None,
        ) => format!(
            "accepted {id}: on disk; {} ({online} connected)",
            crate::output::plural(u64::from(recipients), "recipient")
        ),
    }
}
