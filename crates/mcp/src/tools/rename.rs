//! `bus.rename`

use peerbus_adapter::{LinkState, PeerName};
use peerbus_core::grant::not_the_pages;
use serde::Serialize;

use super::{Context, DEADLINE, Link, Tool, done};
use crate::arguments::{Argument, ArgumentKind, Arguments};
use crate::reply::Reply;
use crate::rpc::schemars::{self, JsonSchema};

#[derive(Serialize, JsonSchema)]
struct Output {
    /// This session's name from now on.
    #[serde(rename = "self")]
    me: String,
    /// What that means.
    note: String,
}

pub(crate) const TOOL: Tool = Tool {
    title: "Rename this session",
    description: "Gives this session another name on the peerbus. Its waiting mail goes along, \
        and mail to the old name still arrives.",
    input: &[Argument::required(
        "name",
        ArgumentKind::Text,
        "1-64 of A-Z a-z 0-9 . _ @ : -",
    )],
    output: crate::rpc::output_schema::<Output>,
    idempotent: true,
    open_world: true,
    link: Link::EvenRefused,
    ..Tool::new("bus.rename", |context, arguments| {
        Box::pin(call(context, arguments))
    })
};

async fn call(context: &Context<'_>, arguments: &Arguments) -> Result<Reply, String> {
    let name = arguments.string("name")?;
    let name = PeerName::parse(&name).map_err(|error| format!("not renamed: {error}"))?;
    let name = not_the_pages(name).map_err(|why| format!("not renamed: {why}"))?;
    let old = context.bus.name();
    let was_refused = matches!(*context.bus.link().borrow(), LinkState::Refused { .. });
    let renamed = context.bus.rename(name.clone(), DEADLINE).await;
    renamed.map_err(|error| {
        let now = context.bus.name();
        format!("not done, your name is {now}: {error}")
    })?;
    let note = match (was_refused, old.eq_ignore_ascii_case(name.as_str())) {
        (true, _) => format!("you are {name} now"),
        (_, true) => format!("your name was {name} already"),
        _ => format!("you are {name} now; mail that peers send to {old} still reaches you"),
    };
    done(&Output {
        note,
        me: name.as_str().to_owned(),
    })
}
