//! `bus.reply`

use peerbus_adapter::mailbox::HERE;
use peerbus_wire::Conversation;

use super::{Context, Tool, body, done, send, talk};
use crate::arguments::{Argument, ArgumentKind, Arguments};
use crate::reply::Reply;

pub(crate) const TOOL: Tool = Tool {
    title: "Reply to a message",
    description: "Answers a message that you got over the peerbus: finds its sender, keeps \
        its thread. If no answer is needed, send none.",
    input: &[
        Argument::required("msg_id", ArgumentKind::Text, "The message's id."),
        Argument::new(
            "from",
            ArgumentKind::Text,
            "Its sender, where several used that id.",
        ),
        Argument::required(
            "body",
            ArgumentKind::Text,
            "The answer: plain text, or JSON.",
        ),
        talk::PRIORITY,
    ],
    output: crate::rpc::output_schema::<send::Output>,
    open_world: true,
    always: true,
    ..Tool::new("bus.reply", |context, arguments| {
        Box::pin(call(context, arguments))
    })
};

async fn call(context: &Context<'_>, arguments: &Arguments) -> Result<Reply, String> {
    let Some(id) = talk::id(arguments, "msg_id")? else {
        return Err("the argument msg_id is missing; it is the id of the message to answer".into());
    };
    let (body, priority) = (body(arguments)?, talk::priority(arguments)?);
    let from = talk::optional(arguments, "from")?;
    let mailbox = context.mailbox;
    let parent = mailbox.machine(|it, _| it.parent(id.as_str(), from.as_deref()));
    let Some(parent) = parent else {
        return Err(format!(
            "whom to answer is not known: this session was shown no message {id}, or does not \
             remember it, or several senders used that id (say which: `from`); or use the bus send \
             tool with `to`, and `reply_to` {id}"
        ));
    };
    mailbox.named(id.as_str(), Some(&parent.from));
    if parent.from == HERE {
        return Err(format!(
            "{id} was put in by a program of your user's, which is not on the bus: answer in the \
             conversation"
        ));
    }
    let reply = Conversation::reply(&parent.id, &parent.talk);
    let priority = priority.unwrap_or(Conversation::of(body).priority);
    let talk = Conversation { priority, ..reply };
    let to = parent.from;
    match send::deliver(context, &to, body, &talk).await {
        Ok(sent) => done(&sent),
        Err(error) if send::is_nobody(&error) => Err(format!(
            "not sent: {to} has left for good since it wrote {id}, as a command in a shell does \
             once it has sent. Nobody gets an answer; say it in the conversation if your user \
             should know it"
        )),
        Err(error) => Err(send::unsent(context.bus, &to, &error).await),
    }
}
