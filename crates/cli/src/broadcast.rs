//! `peerbus broadcast`.

use crate::args::Broadcast;
use crate::failure::Failure;
use crate::{body, client, send};

pub(crate) fn run(verb: Broadcast) -> Result<(), Failure> {
    let body = body::json(&verb.body, &verb.more, verb.outgoing.saying.text)?;
    let body = send::conversation(&body, &verb.outgoing.saying).write(&body);
    let config = client::config(&verb.outgoing.connection, verb.outgoing.name.clone())?;
    let deadline = client::duration(verb.outgoing.timeout);
    let sent = client::with_bus(config, client::Refused::Fail, async |bus| {
        Ok(bus.broadcast(&body, deadline).await?)
    })?;
    send::report(&sent, None, &verb.outgoing)
}
