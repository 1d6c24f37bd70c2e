//! `peerbus mcp`: MCP servers that peers share.

use peerbus_adapter::signals::Stop;
use peerbus_adapter::{Bus, Failure, LinkState};
use peerbus_core::grant::NamePattern;
use peerbus_mcp::side_channel::{
    Advert, Set, Share, Used, adverts, generation, is_name, parse, serve, share,
};
use peerbus_wire::escape;
use serde_json::json;

use crate::args::{Mcp, McpList, McpShare, McpUse};
use crate::{client, output};

pub(crate) fn run(verb: Mcp) -> Result<(), Failure> {
    match verb {
        Mcp::Share(verb) => share_one(verb),
        Mcp::Use(verb) => use_one(&verb),
        Mcp::List(verb) => list(&verb),
    }
}

fn share_one(verb: McpShare) -> Result<(), Failure> {
    if !is_name(&verb.name) {
        let shown = escape(&verb.name, 80);
        return Err(Failure::config(format!(
            "\"{shown}\" cannot be a server's name: 1 to 32 of A-Z a-z 0-9 . _ -"
        )));
    }
    let allow = verb.allow.iter().map(|word| set(word));
    let to = verb.to.iter().map(|text| {
        NamePattern::parse(text).ok_or_else(|| {
            let shown = escape(text, 80);
            Failure::config(format!(
                "--to \"{shown}\": give a name of peers such as build-*"
            ))
        })
    });
    let wanted = Share {
        name: verb.name,
        allow: allow.collect::<Result<_, _>>()?,
        to: to.collect::<Result<_, _>>()?,
        command: verb.command,
        say: output::say,
    };
    let named = std::env::var("PEERBUS_NAME")
        .ok()
        .filter(|name| !name.is_empty());
    let mut config = client::config(&verb.connection, verb.peer.or(named))?;
    config.ephemeral = true;
    client::with_bus(config, client::Refused::Fail, async |bus| {
        let mut stop = Stop::catch()?;
        // A name that is refused ends the verb.
        let online = |state: &LinkState| matches!(state, LinkState::Online { .. });
        let mut link = bus.link();
        tokio::select! {
            online = link.wait_for(online) => drop(online),
            _ = stop.asked() => return Ok(()),
        }
        tokio::select! {
            shared = share(&bus, &wanted) => shared.map_err(Failure::failed),
            _ = stop.asked() => Ok(()),
        }
    })
}

/// The answers to a question for permission.
fn set(word: &str) -> Result<Set, Failure> {
    let known = Set::ALL.map(Set::as_str).join(", ");
    Set::parse(word).ok_or_else(|| match word {
        "sampling" => Failure::config(format!(
            "--allow sampling: no model stands behind it here; of {known} choose others"
        )),
        _ => Failure::config(format!(
            "--allow \"{}\" is none of {known}",
            escape(word, 80)
        )),
    })
}

fn use_one(verb: &McpUse) -> Result<(), Failure> {
    let (peer, name) = parse(&verb.uri).map_err(Failure::config)?;
    let known_as = verb.name.as_deref().map(completed);
    let mut config = client::config(&verb.connection, known_as)?;
    config.ephemeral = true;
    let used = Used {
        peer,
        name,
        generation: generation(&verb.uri).map(str::to_owned),
        timeout: client::duration(verb.timeout),
    };
    client::with_bus(config, client::Refused::Wait, async |bus| {
        let mut stop = Stop::catch()?;
        tokio::select! {
            () = serve(&bus, used, tokio::io::stdin(), tokio::io::stdout()) => {}
            _ = stop.asked() => {}
        }
        Ok(())
    })
}

/// A name with something made up for a `*` at its end: several processes can be given one name.
fn completed(name: &str) -> String {
    let Some(begins) = name.strip_suffix('*') else {
        return name.to_owned();
    };
    let id = Bus::new_id();
    let id = id.as_str();
    format!("{begins}{}", &id[id.len() - 6..])
}

fn list(verb: &McpList) -> Result<(), Failure> {
    let peers = client::peers(client::config(&verb.connection, None)?, verb.timeout)?;
    let shared: Vec<Advert> = adverts(&peers.entries).collect();
    for Advert {
        peer,
        name,
        uri,
        surface,
    } in &shared
    {
        let capabilities = surface.capabilities();
        let told =
            json!({ "peer": peer, "name": name, "channel": uri, "capabilities": capabilities });
        if verb.json {
            output::json(&told)?;
            continue;
        }
        let sets = capabilities.as_object().into_iter().flatten();
        let words: Vec<_> = sets.map(|(set, _)| set.as_str()).collect();
        output::line(&format!("{}  {}", escape(uri, 256), words.join(" ")))?;
    }
    if shared.is_empty() && !verb.json {
        output::line("nobody shares an MCP server now")?;
    }
    Ok(())
}
