//! `bus.join` and `bus.leave`

use serde::Serialize;

use super::{Context, DEADLINE, Tool, done};
use crate::arguments::{Argument, ArgumentKind, Arguments};
use crate::reply::Reply;
use crate::rpc::schemars::{self, JsonSchema};

#[derive(Serialize, JsonSchema)]
struct Output {
    /// The groups of which this session is a member now.
    groups: Vec<String>,
    /// What that means.
    note: String,
}

const GROUP: &str = "1-64 of a-z 0-9 . _ -, with or without a #";

pub(crate) const JOIN: Tool = Tool {
    title: "Join a group",
    description: "Makes this session a member of a group on the peerbus: from now on it gets what \
        peers send to #GROUP. It is a member of the group of its project from the start.",
    input: &[Argument::required("group", ArgumentKind::Text, GROUP)],
    output: crate::rpc::output_schema::<Output>,
    idempotent: true,
    open_world: true,
    ..Tool::new("bus.join", |context, arguments| {
        Box::pin(call(context, arguments, true))
    })
};

pub(crate) const LEAVE: Tool = Tool {
    title: "Leave a group",
    description: "Ends this session's membership of a group on the peerbus. What was sent to the \
        group before still arrives.",
    name: "bus.leave",
    run: |context, arguments| Box::pin(call(context, arguments, false)),
    ..JOIN
};

async fn call(context: &Context<'_>, arguments: &Arguments, joins: bool) -> Result<Reply, String> {
    let group = [arguments.string("group")?];
    let (join, leave) = match joins {
        true => (&group[..], &[][..]),
        false => (&[][..], &group[..]),
    };
    let groups = context.bus.regroup(join, leave, DEADLINE).await;
    let groups = groups.map_err(|error| format!("not done: {error}"))?;
    let groups: Vec<_> = groups.iter().map(ToString::to_string).collect();
    let note = match groups.as_slice() {
        [] => "you are in no group now".to_owned(),
        groups => format!("you are in {} now", groups.join(", ")),
    };
    done(&Output { groups, note })
}
