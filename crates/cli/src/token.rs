//! `peerbus token`.

use std::path::{Path, PathBuf};

use peerbus_adapter::credentials::random_hex;
use peerbus_adapter::paths::Paths;
use peerbus_adapter::{Failure, Token, wall_ms};
use peerbus_broker::invitations::{self, INVITATIONS};
use peerbus_broker::tokens;
use peerbus_core::grant::{Grant, NAMES_DEFAULT, NamePattern, Quotas, Right, Rights};
use peerbus_core::{Invitation, TokenHash};
use peerbus_wire::{TokenName, utc};
use serde_json::json;

use crate::args::{TokenAdd, TokenVerb, TokensFile};
use crate::here::for_people;
use crate::told;
use crate::{operator, output, secret};

pub(crate) fn run(verb: &TokenVerb) -> Result<(), Failure> {
    match verb {
        TokenVerb::Add(verb) => add(verb),
        TokenVerb::List { json, file } => list(*json, file.as_ref()),
        TokenVerb::Keygen { json } => secret::generate(*json),
        TokenVerb::Revoke { name, place } => revoke(name, place),
    }
}

fn add(verb: &TokenAdd) -> Result<(), Failure> {
    let file = place(verb.place.file.as_ref())?;
    let text = random_hex();
    let token = Token::parse(&text).ok_or_else(|| Failure::failed("no token could be made"))?;
    let names = verb.names.iter().map(|text| {
        NamePattern::parse(text).ok_or_else(|| {
            Failure::config(format!(
                "--names {text:?}: give a name of peers such as build-*"
            ))
        })
    });
    let names: Vec<_> = names.collect::<Result<_, _>>()?;
    let rights = verb.rights.iter().map(|word| {
        Right::parse(word).ok_or_else(|| {
            let known = Right::ALL.map(Right::as_str).join(", ");
            Failure::config(format!("--rights: {word:?} is none of {known}"))
        })
    });
    let rights: Vec<_> = rights.collect::<Result<_, _>>()?;
    for right in [Right::Approve, Right::Bridge, Right::Operate] {
        if rights.contains(&right) {
            for_people(&format!("make a token that may {}", right.as_str()))?;
        }
    }
    let day_ms = |days| u64::from(days) * 86_400_000;
    let grant = Grant {
        name: name(&verb.name)?,
        token: TokenHash::of(&token),
        names,
        expires_ms: verb.days.map(|days| wall_ms() + day_ms(days)),
        rights: Rights::of(rights),
        quotas: Quotas {
            names: verb.max_names.unwrap_or(NAMES_DEFAULT),
            connections: verb.max_connections,
            bytes: verb.max_bytes,
            per_second: verb.max_per_second,
        },
    };
    // It is no other's, and a person says whose it is.
    if grant.kept().next().is_some() {
        for_people("make a token for which a name is kept")?;
    }
    tokens::add(&file, &grant).map_err(Failure::config)?;
    output::line(&text)?;
    output::say(&format!(
        "token {} is in {} as a hash; the line above is shown this once",
        grant.name,
        file.display()
    ));
    tell(&file, &verb.place)
}

/// Has the broker of this user admit a token of a program's own, with these names and rights.
pub(crate) fn admit(
    name: &str,
    names: &str,
    token: TokenHash,
    rights: Rights,
) -> Result<(), Failure> {
    let (name, names) = (TokenName::parse(name), NamePattern::parse(names));
    let (name, names) = name.zip(names).ok_or_else(|| Failure::failed("no grant"))?;
    let wanted = Grant {
        name,
        token,
        names: vec![names],
        expires_ms: None,
        rights,
        quotas: Quotas {
            names: NAMES_DEFAULT,
            ..Quotas::default()
        },
    };
    let admits = Paths::find()?.tokens;
    if !tokens::admit(&admits, &wanted).map_err(Failure::config)? {
        return Ok(());
    }
    // A broker that is away reads the file when it starts, one that runs within a second.
    let _known = reload(&admits, None)?;
    Ok(())
}

fn list(json: bool, file: Option<&PathBuf>) -> Result<(), Failure> {
    let grants = tokens::read(&place(file)?).map_err(Failure::config)?;
    for grant in &grants {
        let rights: Vec<_> = grant.rights.iter().map(Right::as_str).collect();
        let ends = grant
            .expires_ms
            .map(|end_ms| format!("{}Z", utc(end_ms / 1_000)));
        let over = grant.is_expired(wall_ms());
        let names: Vec<_> = grant.names.iter().map(NamePattern::as_str).collect();
        let quotas = grant.quotas;
        if json {
            let told = json!({
                "name": grant.name.as_str(), "names": names, "rights": rights, "expires": ends,
                "expired": over, "max_names": quotas.names,
                "max_connections": quotas.connections, "max_bytes": quotas.bytes,
                "max_per_second": quotas.per_second,
            });
            output::line(&told.to_string())?;
            continue;
        }
        let ends = match grant
            .expires_ms
            .map(|end_ms| told::local(end_ms, "%Y-%m-%d %H:%M:%S"))
        {
            None => String::new(),
            Some(end) if over => format!("; expired {end}"),
            Some(end) => format!("; until {end}"),
        };
        let names = match names.join(" ") {
            all if all.is_empty() => "every name".to_owned(),
            some => some,
        };
        let rights = rights.join(",");
        output::line(&format!("{}: {rights}; {names}{ends}", grant.name))?;
    }
    if grants.is_empty() && !json {
        output::line("no tokens")?;
    }
    Ok(())
}

fn revoke(revoked: &str, at: &TokensFile) -> Result<(), Failure> {
    for_people("revoke a token")?;
    let file = place(at.file.as_ref())?;
    let named = name(revoked)?;
    let invited = Paths::find()?.config_dir.join(INVITATIONS);
    let is_open = |it: &Invitation| {
        let own = it.name.as_str().eq_ignore_ascii_case(named.as_str());
        own && it.joined_ms.is_none()
    };
    // Its code would let the machine in again that has shown it.
    let let_in = |it: &Invitation| is_open(it) && it.holder.is_some();
    let ended = invitations::end(&invited, &file, let_in).map_err(Failure::config)?;
    let ended = ended.into_iter().find(|(_, had_token)| *had_token);
    let (name, with) = match ended {
        Some((it, _)) => (it.name.to_string(), ", and its invitation is at an end"),
        None => {
            let open = invitations::read(&invited).is_ok_and(|all| all.iter().any(is_open));
            let open = open.then(|| {
                format!(
                    "; the invitation of {named} is open: `peerbus invite revoke {named}` ends it"
                )
            });
            let name = tokens::revoke(&file, &named);
            let name = name.map_err(|why| Failure::config(why + &open.unwrap_or_default()))?;
            (name, "")
        }
    };
    output::line(&format!(
        "token {name} is revoked{with}; its names and the mail for them stay"
    ))?;
    tell(&file, at)
}

/// Has a running broker read the file at once. It would do so by itself a moment later.
fn tell(file: &Path, place: &TokensFile) -> Result<(), Failure> {
    output::say(match reload(file, place.socket.as_ref())? {
        Ok(_) => "the broker knows it",
        Err(_) => "a broker that runs on this file knows it within a second",
    });
    Ok(())
}

pub(crate) fn reload(
    file: &Path,
    socket: Option<&PathBuf>,
) -> Result<Result<String, Failure>, Failure> {
    let real = file.canonicalize().map_err(Failure::failed)?;
    let target = format!("/tokens/reload?file={}", operator::encode(&real));
    Ok(operator::ask(socket, "POST", &target))
}

fn place(file: Option<&PathBuf>) -> Result<PathBuf, Failure> {
    file.map_or_else(|| Ok(Paths::find()?.tokens), |file| Ok(file.clone()))
}

fn name(text: &str) -> Result<TokenName, Failure> {
    TokenName::parse(text).ok_or_else(|| {
        Failure::config(format!(
            "{text:?} cannot be a token's name: 1 to 32 of A-Z a-z 0-9 . _ -"
        ))
    })
}
