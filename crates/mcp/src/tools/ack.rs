//! `bus.ack`

use peerbus_adapter::mailbox::Named;
use serde::Serialize;

use super::{Context, Link, Tool, done};
use crate::arguments::{Argument, ArgumentKind, Arguments};
use crate::reply::Reply;
use crate::rpc::schemars::{self, JsonSchema};

const IDS_MAX: usize = 256;

#[derive(Default, Serialize, JsonSchema)]
struct Output {
    /// These were unseen; their senders are told that they were seen, or that they were pushed where nothing can
    /// show more.
    acked: Vec<String>,
    /// You were shown these, as far as your client took them: they are acked as soon as your conversation shows that
    /// you go on after them, and come again if it does not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    awaited: Vec<String>,
    /// No unseen message has one of these ids: seen before, not here any more, or never here.
    unknown: Vec<String>,
    /// Only a part of these was shown to you: they stay unseen. Their rest comes with the results of
    /// tools, and the inbox tool reads it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    shown_in_part: Vec<String>,
    /// These wait and were not shown to you yet, or to an earlier session of this name only: they
    /// stay unseen. The inbox tool reads them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_shown: Vec<String>,
    /// Several senders used these ids, so nothing was acked: the inbox tool reads those messages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    several_senders: Vec<String>,
}

pub(crate) const TOOL: Tool = Tool {
    title: "Mark messages as seen",
    description: "Tells the senders that you have seen these messages, which need no answer. \
        A reply, and reading with the inbox tool, do the same.",
    input: &[Argument::required(
        "ids",
        ArgumentKind::Texts(Some(IDS_MAX)),
        "The ids of the messages.",
    )],
    output: crate::rpc::output_schema::<Output>,
    idempotent: true,
    acks: true,
    link: Link::Unneeded,
    ..Tool::new("bus.ack", |context, arguments| {
        Box::pin(call(context, arguments))
    })
};

async fn call(context: &Context<'_>, arguments: &Arguments) -> Result<Reply, String> {
    let Some(ids) = arguments.strings("ids")? else {
        return Err("the argument ids is missing; it is a list of message ids".into());
    };
    if ids.len() > IDS_MAX {
        return Err(format!(
            "the argument ids must have at most {IDS_MAX} ids, got {}",
            ids.len()
        ));
    }
    let mut output = Output::default();
    let texts: Vec<&str> = ids.iter().map(|id| &**id).collect();
    let named = context.mailbox.named_in_conversation(&texts).await;
    for (id, named) in ids.into_iter().zip(named) {
        let list = match named {
            Named::Seen | Named::Pushed => &mut output.acked,
            Named::Awaited => &mut output.awaited,
            Named::InPart => &mut output.shown_in_part,
            Named::NotShown => &mut output.not_shown,
            Named::Unknown => &mut output.unknown,
            Named::Several => &mut output.several_senders,
        };
        list.push(id);
    }
    done(&output)
}
