//! `peerbus web`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use peerbus_adapter::credentials::{self, random_hex};
use peerbus_adapter::hooks::is_below_an_agent;
use peerbus_adapter::paths::Paths;
use peerbus_adapter::signals::Stop;
use peerbus_adapter::{BusConfig, Failure, Token};
use peerbus_core::TokenHash;
use peerbus_core::grant::{GATEWAY, GATEWAY_TOKEN, NamePattern, Right, Rights};
use peerbus_web::tokens::{self, WebFile, WebToken};
use peerbus_web::{Gateway, GatewayOptions, OtherGateway, ServerTls, Way};
use peerbus_wire::escape;
use serde_json::json;

use crate::args::{Web, WebTokenAdd, WebTokenVerb, WebVerb};
use crate::here::for_people;
use crate::token::admit;
use crate::{audit, client, operator, output};

pub(crate) fn run(verb: Web) -> Result<(), Failure> {
    match verb.verb {
        Some(WebVerb::Token(verb)) => token(verb),
        None => serve(verb),
    }
}

fn serve(verb: Web) -> Result<(), Failure> {
    let file = place()?;
    // What is posted goes to a broker elsewhere, too; the page shows nothing of that one.
    let operator = operator::sockets(None).unwrap_or_else(|why| {
        output::say(&why.to_string());
        Vec::new()
    });
    let mut bus = client::config(&verb.connection, None)?;
    bus.ephemeral = false;
    let own_token = is_usual(&bus)?;
    if own_token {
        // So that there are credentials, and a broker that learns of the token.
        operator::ask(None, "GET", "/broker")?;
        join(&file, &bus.credentials)?;
    }
    let options = GatewayOptions {
        listen: verb.listen,
        tls: verb
            .tls_cert
            .zip(verb.tls_key)
            .map(|(cert, key)| ServerTls {
                cert,
                key,
                client_ca: None,
            }),
        bus,
        file,
        own_token,
        operator,
        elsewhere: operator::why_elsewhere()?,
        audit: audit::check,
        agent: is_below_an_agent(),
    };
    client::runtime_of(2)?.block_on(async {
        let mut stop = Stop::catch().map_err(Failure::failed)?;
        let gateway = match Gateway::bind(options).await {
            Ok(gateway) => gateway,
            Err(why) => return other(verb.listen, verb.open, why),
        };
        output::say(&format!("listening on {}", gateway.url()));
        if verb.open {
            output::line(&gateway.link())?;
            show(&gateway.link())?;
        }
        gateway
            .run(async {
                stop.asked().await;
            })
            .await;
        output::say("stopped; what was accepted is at the broker");
        Ok(())
    })
}

/// Has the browser open a link, which is printed too.
fn show(link: &str) -> Result<(), Failure> {
    if let Err(error) = peerbus_web::show(link, &Paths::find()?.state_dir.join("web.html")) {
        output::complain(&format!(
            "no browser opens: {error}; open the link yourself"
        ));
    }
    Ok(())
}

/// Opens the page of a gateway that has the address already, if one does, by a link of that one's if it
/// gives one.
fn other(address: SocketAddr, open: bool, why: String) -> Result<(), Failure> {
    let found = open.then(|| Gateway::other(address)).flatten();
    let OtherGateway { url, link, process } = found.ok_or_else(|| Failure::config(why))?;
    let shown = link.as_ref().unwrap_or(&url);
    output::line(shown)?;
    show(shown)?;
    output::say(&match link {
        Ok(_) => {
            "a gateway runs there already, and the link is of that one: it opens its page once"
                .into()
        }
        // Nothing here is an agent's to end.
        Err(why) if is_below_an_agent() => format!("no link is given: {why}"),
        Err(why) => {
            format!(
                "a gateway runs there already, and gives no link here: {why}. Its page opens in a browser \
                 that a link let in, and has \"Link for another browser\" at its end. If no browser is \
                 in, end that gateway (`kill {process}`) and start it again with `peerbus web --open`"
            )
        }
    });
    Ok(())
}

/// Whether the broker is the one of this user's default place, where the gateway can have a token of
/// its own.
fn is_usual(bus: &BusConfig) -> Result<bool, Failure> {
    if bus.url.is_some() || bus.token.is_some() || bus.credentials != Paths::find()?.credentials {
        return Ok(false);
    }
    Ok(credentials::load(&bus.credentials).map_or(true, |found| found.url.is_none()))
}

/// Sees to it that the broker admits the gateway, with the right to approve only if one of its
/// tokens has it.
fn join(file: &Path, credentials: &Path) -> Result<(), Failure> {
    if credentials::load(credentials).is_ok_and(|found| found.url.is_some()) {
        return Ok(());
    }
    let bus = tokens::bus(file).map_err(Failure::config)?;
    let token = Token::parse(&bus.token.0).ok_or_else(|| {
        let file = file.display();
        Failure::config(format!(
            "{file} has a bus token that cannot be one: delete the lines of [bus]"
        ))
    })?;
    let approves = bus.approve.then_some(Right::Approve);
    let rights = Rights::of([Right::Send].into_iter().chain(approves));
    admit(GATEWAY_TOKEN, GATEWAY, TokenHash::of(&token), rights)
}

fn place() -> Result<PathBuf, Failure> {
    Ok(Paths::find()?.config_dir.join("web.toml"))
}

fn token(verb: WebTokenVerb) -> Result<(), Failure> {
    match verb {
        WebTokenVerb::Add(verb) => add(verb),
        WebTokenVerb::List { json } => list(json),
        WebTokenVerb::Revoke { name } => revoke(&name),
    }
}

fn add(verb: WebTokenAdd) -> Result<(), Failure> {
    let rights = [
        (verb.approve, "--approve", "approve"),
        (verb.watch, "--watch", "watch sessions"),
        (verb.inject, "--inject", "put texts into sessions"),
    ];
    for (_, option, what) in rights.into_iter().filter(|(given, ..)| *given) {
        if verb.by.signs() {
            return Err(Failure::config(format!(
                "a token that signs is for webhooks alone, and who recorded a request can send it \
                 again: leave out {option}, or choose another way than --by signature"
            )));
        }
        for_people(&format!("make a token that may {what}"))?;
    }
    let file = place()?;
    let peer = tokens::peer(&verb.name).map_err(Failure::config)?;
    let text = random_hex();
    let token = Token::parse(&text).ok_or_else(|| Failure::failed("no token could be made"))?;
    let to = verb.to.iter().cloned();
    let to = to.map(|name| NamePattern::try_from(name).map_err(Failure::config));
    let token = WebToken {
        to: to.collect::<Result<_, _>>()?,
        approve: verb.approve,
        watch: verb.watch,
        inject: verb.inject,
        headers: verb.headers,
        ..WebToken::new(&token, verb.by.clone())
    };
    tokens::add(&file, &verb.name, &token).map_err(Failure::config)?;
    // The broker hears of it, whoever reads the rest.
    let known = refresh(&file);
    output::line(&text)?;
    output::say(&format!(
        "what is sent with it comes from {}; the line above is shown this once",
        peer.as_str()
    ));
    if verb.by.signs() {
        output::say(&format!(
            "a signature is checked with the token itself, so {} holds it as it is: every reader of that \
             file can sign",
            file.display()
        ));
    }
    if verb.approve {
        output::say(&format!(
            "its verdicts over HTTP{} need the gate `approve` alone; as messages they count where `remote` of \
             sessions.toml names {}",
            if verb.watch { "" } else { " (with --watch)" },
            peer.as_str()
        ));
    }
    say_unknown(&verb.to);
    known
}

/// Says of which of these names nobody is there, as far as the broker here tells.
fn say_unknown(to: &[String]) {
    let Some(peers) = operator::known_peers() else {
        return;
    };
    for name in to.iter().filter(|name| !name.contains(['*', '@'])) {
        if !peers
            .iter()
            .any(|peer| peer.name.eq_ignore_ascii_case(name))
        {
            output::say(&format!(
                "no peer is called {} now: what is sent to a name that no session has had is \
                 refused",
                escape(name, 80)
            ));
        }
    }
}

fn list(json: bool) -> Result<(), Failure> {
    let WebFile { tokens, .. } = tokens::read(&place()?).map_err(Failure::config)?;
    for (name, token) in &tokens {
        if json {
            let told = json!({
                "name": name, "peer": format!("web:{name}"), "to": token.to,
                "approve": token.approve, "watch": token.watch, "inject": token.inject, "headers": token.headers, "by": token.by,
            });
            output::line(&told.to_string())?;
            continue;
        }
        let to: Vec<_> = token.to.iter().map(NamePattern::as_str).collect();
        let to = match to.join(" ") {
            all if all.is_empty() => "everybody".to_owned(),
            some => some,
        };
        let rights = [
            (token.approve, "approve"),
            (token.watch, "watch"),
            (token.inject, "inject"),
        ];
        let rights = rights.into_iter().filter(|(has, _)| *has);
        let rights: Vec<_> = rights.map(|(_, right)| right).collect();
        let rights = match rights.is_empty() {
            true => String::new(),
            false => format!("; may {}", rights.join(", ")),
        };
        let by = match &token.by {
            Way::Bearer => String::new(),
            by => format!("; by {by}"),
        };
        output::line(&format!("{name}: writes to {to}{by}{rights}"))?;
    }
    if tokens.is_empty() && !json {
        output::line("no tokens")?;
    }
    Ok(())
}

fn revoke(name: &str) -> Result<(), Failure> {
    for_people("revoke a token")?;
    let file = place()?;
    let name = tokens::revoke(&file, name).map_err(Failure::config)?;
    // The broker hears of it, whoever reads the rest.
    let known = refresh(&file);
    output::line(&format!(
        "token {name} is revoked; the mail for web:{name} stays"
    ))?;
    known
}

/// Brings the gateway's right at the broker up to date, where it has joined already.
fn refresh(file: &Path) -> Result<(), Failure> {
    let paths = Paths::find()?;
    match tokens::read(file).map_err(Failure::config)?.bus {
        Some(_) => join(file, &paths.credentials),
        None => Ok(()),
    }
}
