//! `bus.broadcast`

use peerbus_adapter::{Accepted, SentMessage};
use serde::Serialize;

use super::{Context, DEADLINE, Known, Tool, body, done, failure, talk};
use crate::arguments::Arguments;
use crate::reply::Reply;
use crate::rpc::schemars::{self, JsonSchema};

#[derive(Serialize, JsonSchema)]
struct Output {
    /// The message left. See `status` for what that means.
    broadcast: bool,
    #[serde(flatten)]
    known: Known,
    /// The same as a sentence.
    note: String,
}

pub(crate) const TOOL: Tool = Tool {
    title: "Send a message to every peer",
    description: "Sends a message to every peer that is registered on the peerbus now. Each \
        of them is interrupted by it: use the bus send tool when one peer is meant.",
    input: &[talk::BODY, talk::PRIORITY, talk::THREAD, talk::REPLY_TO],
    output: crate::rpc::output_schema::<Output>,
    open_world: true,
    ..Tool::new("bus.broadcast", |context, arguments| {
        Box::pin(call(context, arguments))
    })
};

async fn call(context: &Context<'_>, arguments: &Arguments) -> Result<Reply, String> {
    let body = body(arguments)?;
    let talk = talk::of(context, None, body, arguments)?;
    match context.bus.broadcast(&talk.write(body), DEADLINE).await {
        Ok(sent) => {
            context.mailbox.sent(None, &sent.id, &talk);
            let note = note(&sent);
            done(&Output {
                broadcast: true,
                known: Known::from(&sent),
                note,
            })
        }
        Err(error) => Err(failure(&error)),
    }
}

fn note(sent: &SentMessage) -> String {
    match sent.accepted {
        Some(Accepted { recipients: 0, .. }) => {
            "nobody else is registered: the message reached no one".to_owned()
        }
        Some(Accepted {
            recipients, online, ..
        }) => {
            let peers = if recipients == 1 { "peer" } else { "peers" };
            format!(
                "accepted by the broker, on disk, for {recipients} {peers}, {online} connected \
                 now; not known to be read"
            )
        }
        None => "written to a broker of peerbus v1, which confirms nothing: whom \
            it reaches is not known"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_counted_in_good_english() {
        let note = |recipients| {
            note(&SentMessage {
                id: "1".into(),
                accepted: Some(Accepted {
                    recipients,
                    online: recipients,
                    duplicate: false,
                }),
            })
        };
        assert!(note(0).contains("no one"));
        assert!(note(1).contains("for 1 peer, 1 connected"));
        assert!(note(2).contains("for 2 peers, 2 connected"));
    }
}
