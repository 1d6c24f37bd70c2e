//! `peerbus invite`.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};

use peerbus_adapter::credentials::{self, random_hex, set_listen};
use peerbus_adapter::demand::holder;
use peerbus_adapter::invited::{InviteCode, SECRET_DIGITS};
use peerbus_adapter::operator::connect;
use peerbus_adapter::paths::Paths;
use peerbus_adapter::{Failure, Token, UNUSABLE, Url, project, wall_ms};
use peerbus_broker::invitations::{self, INVITATIONS};
use peerbus_broker::tokens;
use peerbus_core::{Invitation, InvitationState, TokenHash};
use peerbus_wire::{TokenName, utc};
use serde_json::{Value, json};

use crate::args::{Invite, InviteVerb};
use crate::here::for_people;
use crate::{operator, output, phone, stop, token};

/// Where the broker listens for machines that were invited when nothing else is said.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 47_823);

pub(crate) fn run(verb: &Invite) -> Result<(), Failure> {
    match &verb.verb {
        None if verb.web => {
            let name = named(verb.name.as_deref().unwrap_or_default())?;
            phone::invite(&name, verb.address.as_deref())
        }
        None => invite(verb),
        Some(InviteVerb::List { json }) => list(*json),
        Some(InviteVerb::Revoke { name, rotate }) => revoke(name, *rotate),
        Some(InviteVerb::Off) => off(),
    }
}

/// Where machines reach the broker, and which certificate it shows.
struct Reached {
    address: SocketAddr,
    certificate: String,
    /// It listens there for everybody.
    usual: bool,
    invitations: PathBuf,
}

fn invite(verb: &Invite) -> Result<(), Failure> {
    for_people("invite another machine")?;
    let paths = Paths::find()?;
    let name = named(verb.name.as_deref().unwrap_or_default())?;
    operator::check_own(&paths.credentials, "peerbus invite")?;
    tokens::check_name(&name).map_err(Failure::config)?;
    if let Some(at) = verb.listen.filter(|at| at.port() == 0) {
        return Err(Failure::config(format!(
            "--listen {at}: give a port other than 0, at which machines find the broker after each start of it"
        )));
    }
    let given = verb.address.as_deref();
    if given.is_some() {
        place(LISTEN, given)?;
    }
    // That its peers can have names.
    invitations::grant(&name, TokenHash([0; 32])).map_err(Failure::config)?;
    if verb.ssh {
        // One over ssh is asked for anew each time: what became of the last one nobody may have heard. Who was
        // let in by it keeps its token.
        end(&paths, &file()?, |it| {
            is_called(&it.name, &name) && it.holder.is_none()
        })?;
    }
    let known = invitations::read(&file()?).map_err(Failure::config)?;
    check_free(&paths, &name, &known)?;
    let reached = match verb.ssh {
        false => Some(listening(&paths, verb.listen)?),
        true => None,
    };
    let file = match &reached {
        Some(reached) => reached.invitations.clone(),
        None => invitations_of(&about()?)?,
    };
    let place = match &reached {
        Some(reached) => Some(place(reached.address, given)?),
        None => None,
    };
    check_apart(&name, &invitations::read(&file).map_err(Failure::config)?)?;
    end(&paths, &file, |it| {
        it.state(wall_ms()) == InvitationState::Over
    })?;
    // 128 bits of it.
    let secret = random_hex().get(..SECRET_DIGITS).and_then(Token::parse);
    let secret = secret.ok_or_else(|| Failure::failed("no code could be made"))?;
    let hash = TokenHash::of(&secret);
    let line = match (&reached, place) {
        (Some(reached), Some(place)) => {
            let url = Url::parse(&format!("wss://{place}#sha256={}", reached.certificate))?;
            InviteCode { url, secret }.to_string()
        }
        _ => secret.expose().to_owned(),
    };
    let invitation = Invitation::new(name.clone(), hash, wall_ms());
    // Another one may have come in between.
    let put = invitations::change(&file, |known| -> Result<(), Failure> {
        check_free(&paths, &name, known)?;
        check_apart(&name, known)?;
        // One of that name has no token any more.
        known.retain(|it| !is_called(&it.name, &name));
        known.push(invitation);
        Ok(())
    });
    put.map_err(Failure::config)??;
    output::line(&line)?;
    if reached.is_some() {
        output::say(&format!(
            "on {name}: `peerbus join`, which asks for the line above. It is good for ten minutes, once, and for \
             whoever has it; {name} gets the HMAC secret, and names that begin with {name}"
        ));
    }
    Ok(())
}

/// Fails where there is a token of that name.
fn check_free(paths: &Paths, name: &TokenName, invited: &[Invitation]) -> Result<(), Failure> {
    let known = tokens::read(&paths.tokens).map_err(Failure::config)?;
    let Some(known) = known.iter().find(|it| is_called(&it.name, name)) else {
        return Ok(());
    };
    let is_machines = invited.iter().any(|it| it.holder == Some(known.token));
    Err(Failure::config(match is_machines {
        true => format!(
            "there is a token {name} already: choose another name, or `peerbus invite revoke {name}` if \
             that machine is to join anew"
        ),
        false => format!(
            "there is a token {name} already: choose another name, or `peerbus token revoke {name}` if \
             nobody needs it"
        ),
    }))
}

/// Fails where a machine may have the names of another one.
fn check_apart(name: &TokenName, invited: &[Invitation]) -> Result<(), Failure> {
    let small = |name: &TokenName| name.as_str().to_ascii_lowercase();
    let own = small(name);
    let is_near = |other: &&Invitation| {
        let name = small(&other.name);
        let is_over = other.state(wall_ms()) == InvitationState::Over;
        !is_over && name != own && (name.starts_with(&own) || own.starts_with(&name))
    };
    match invited.iter().find(is_near) {
        None => Ok(()),
        Some(other) => Err(Failure::config(format!(
            "the names of {name} and of {}, which was invited, too, would begin alike: choose another name",
            other.name
        ))),
    }
}

/// Sees to it that the broker listens with TLS.
fn listening(paths: &Paths, at: Option<SocketAddr>) -> Result<Reached, Failure> {
    let about = about()?;
    let found = reached(&about);
    let is_there = |found: &Reached| at.is_none_or(|at| at == found.address);
    match found {
        Some(Ok(found)) if is_there(&found) => return Ok(found),
        Some(Ok(found)) => check_unused(&found)?,
        Some(Err(why)) => output::say(&format!("it listens for no other machine yet: {why}")),
        _ => {}
    }
    invitations_of(&about)?;
    let known = credentials::load(&paths.credentials).map_err(Failure::config)?;
    let at = at.or(known.listen).unwrap_or(LISTEN);
    // What has the port now may be gone when the broker starts.
    let bound = UdpSocket::bind((at.ip(), 0));
    if bound.is_err_and(|error| error.kind() == ErrorKind::AddrNotAvailable) {
        return Err(Failure::config(format!(
            "--listen {at}: this machine has no such address"
        )));
    }
    set_listen(&paths.credentials, Some(at)).map_err(Failure::config)?;
    renew(&about, &paths.database, "and invite the machine then")?;
    let why = match reached(&self::about()?) {
        Some(Ok(found)) => return Ok(found),
        Some(Err(why)) => format!("the broker listens for no other machine: {why}"),
        None => format!("the broker was told to listen at {at}, and does not: see its log"),
    };
    // The next command tries what was there before.
    set_listen(&paths.credentials, known.listen).map_err(Failure::config)?;
    Err(Failure::failed(why))
}

/// Fails where machines were told the address at which the broker listens.
fn check_unused(found: &Reached) -> Result<(), Failure> {
    let told = invitations::read(&found.invitations).map_err(Failure::config)?;
    let open = |it: &&Invitation| it.state(wall_ms()) != InvitationState::Over;
    match told.iter().find(open) {
        None => Ok(()),
        Some(it) => Err(Failure::config(format!(
            "{} was invited to {}, where the broker listens at one address only: leave --listen out, or say \
             `peerbus invite off` first, which cuts off who has joined",
            it.name, found.address
        ))),
    }
}

/// The file of a broker's invitations.
fn invitations_of(about: &Value) -> Result<PathBuf, Failure> {
    let file = about["invitations"].as_str().map(PathBuf::from);
    file.ok_or_else(|| {
        Failure::failed(
            "the broker lets no machine in: it has its tokens from PEERBUS_TOKENS, asks for certificates of \
             clients (--client-ca), or is older than this program",
        )
    })
}

/// The broker's word of itself.
fn about() -> Result<Value, Failure> {
    let about = operator::ask(None, "GET", "/broker")?;
    serde_json::from_str(&about).map_err(Failure::failed)
}

fn reached(about: &Value) -> Option<Result<Reached, String>> {
    let told = &about["reached"];
    if let Some(why) = told["why"].as_str() {
        return Some(Err(why.to_owned()));
    }
    Some(Ok(Reached {
        address: told["address"].as_str()?.parse().ok()?,
        certificate: told["certificate"].as_str()?.to_owned(),
        usual: told["usual"] == true,
        invitations: about["invitations"].as_str()?.into(),
    }))
}

/// Has a broker that was started on demand make room for a new one, which reads its credentials. Another
/// one somebody restarts: `then` says what for.
fn renew(about: &Value, database: &Path, then: &str) -> Result<(), Failure> {
    let origin = about["started"].as_str().unwrap_or_default();
    if !origin.starts_with("on demand") {
        return Err(Failure::failed(format!(
            "this is written down, and holds from the broker's next start on. It was started {origin}: restart \
             it, {then}"
        )));
    }
    let sockets = operator::sockets(None)?;
    let told = operator::over(&sockets, "POST", "/stop?takeover=1")?;
    told.ok().map_err(Failure::failed)?;
    let ending = "waiting for the broker to end, and a new one to start";
    output::patiently(ending, || stop::wait(database, about["pid"].as_u64()))
}

/// `HOST:PORT` by which others reach the broker.
fn place(at: SocketAddr, given: Option<&str>) -> Result<String, Failure> {
    let (ip, port) = (at.ip(), at.port());
    let host = match given {
        Some(given) => given.to_owned(),
        None if ip.is_unspecified() => {
            let host = outward().map(|ip| SocketAddr::new(ip, port).to_string());
            return host
                .or_else(|| Some(format!("{}:{port}", project::host()?)))
                .ok_or_else(|| {
                    Failure::failed(
                        "this machine has no address that is known: give one, --address HOST",
                    )
                });
        }
        None => return Ok(at.to_string()),
    };
    // A bare IPv6 address has colons, too.
    let is_whole = |place: &str| Url::parse(&format!("wss://{place}")).is_ok();
    let host = match host.parse() {
        Ok(IpAddr::V6(ip)) => format!("[{ip}]"),
        _ => host,
    };
    let bare = host.ends_with(']') || !host.contains(':');
    let place = if bare { format!("{host}:{port}") } else { host };
    match is_whole(&place) && !place.contains(['/', '?', '#']) {
        true => Ok(place),
        false => Err(Failure::config(format!(
            "--address {:?}: give HOST or HOST:PORT",
            given.unwrap_or_default()
        ))),
    }
}

/// The address from which this machine reaches others. Nothing is sent: the system only looks up its way.
fn outward() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // RFC 5737: no machine has it.
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_unspecified() && !ip.is_loopback()).then_some(ip)
}

fn file() -> Result<PathBuf, Failure> {
    Ok(Paths::find()?.config_dir.join(INVITATIONS))
}

fn list(json: bool) -> Result<(), Failure> {
    let all = invitations::read(&file()?).map_err(Failure::config)?;
    let now_ms = wall_ms();
    for it in &all {
        let until = format!("{}Z", utc(it.until_ms / 1_000));
        let joined = it.joined_ms.map(|ms| format!("{}Z", utc(ms / 1_000)));
        let (word, state) = match it.state(now_ms) {
            InvitationState::Open => ("open", format!("invited, until {until}")),
            InvitationState::Asked => ("asked", format!("let in, and not here yet, until {until}")),
            InvitationState::Over => ("over", format!("was invited, until {until}")),
            InvitationState::Joined => {
                let joined = joined.as_deref().unwrap_or_default();
                ("joined", format!("has joined, {joined}"))
            }
        };
        let name = it.name.as_str();
        output::line(&match json {
            true => {
                json!({ "name": name, "state": word, "until": until, "joined": joined }).to_string()
            }
            false => format!("{name}: {state}"),
        })?;
    }
    if all.is_empty() && !json {
        output::line("no machine was invited")?;
    }
    Ok(())
}

fn revoke(text: &str, rotate: bool) -> Result<(), Failure> {
    for_people("revoke another machine's token")?;
    let (paths, name) = (Paths::find()?, named(text)?);
    if rotate {
        operator::check_own(&paths.credentials, "peerbus invite revoke --rotate")?;
        credentials::check_rotatable(&paths.credentials).map_err(Failure::config)?;
    }
    let mut gone = end(&paths, &file()?, |it| is_called(&it.name, &name))?;
    let (gone, had_token) = gone.pop().ok_or_else(|| {
        Failure::config(format!(
            "no machine {name} was invited: `peerbus invite list` shows which were"
        ))
    })?;
    output::line(&format!(
        "{}: its invitation{} at an end; its names and the mail for them stay",
        gone.name,
        if had_token {
            " and its token are"
        } else {
            " is"
        }
    ))?;
    if rotate {
        credentials::rotate(&paths.credentials).map_err(|why| {
            Failure::config(format!(
                "{why}; the secret is the old one still: then say `peerbus secret rotate`"
            ))
        })?;
        output::say(
            "the HMAC secret is a new one: other machines that have joined need it, too (revoke them, and invite \
             them anew), and `peerbus secret retire` ends the old one",
        );
    } else if had_token {
        output::say(
            "that machine still knows the HMAC secret, with which nothing of it is carried without a token; \
             --rotate changes it",
        );
    }
    if had_token {
        output::say(&format!(
            "should {} join anew, `peerbus names release NAME` here gives it each name back that it had",
            gone.name
        ));
    }
    Ok(())
}

fn off() -> Result<(), Failure> {
    for_people("have the broker listen for other machines no more")?;
    let paths = Paths::find()?;
    operator::check_own(&paths.credentials, "peerbus invite off")?;
    let sockets = operator::sockets(None)?;
    // The file says still who has joined.
    for (gone, had_token) in end(&paths, &file()?, |it| it.joined_ms.is_none())? {
        let token = if had_token {
            " and its token are"
        } else {
            " is"
        };
        output::line(&format!("{}: its invitation{token} at an end", gone.name))?;
    }
    let listen = credentials::load(&paths.credentials)
        .map_err(Failure::config)?
        .listen;
    let changed = set_listen(&paths.credentials, None).map_err(Failure::config)?;
    output::line("no invitation is open")?;
    if let Some(at) = listen {
        output::say(&format!(
            "machines that have joined find it again after `peerbus invite NAME --listen {at}`"
        ));
    }
    let is_away = |why: &Failure| {
        let runs = holder(&paths.database).is_some();
        !runs && !why.to_string().starts_with(UNUSABLE)
    };
    let listens = match operator::over(&sockets, "GET", "/broker") {
        Ok(answer) => Some(answer.ok().map_err(Failure::failed)?),
        Err(why) if is_away(&why) && connect(&sockets).is_err() => None,
        Err(why) => {
            return Err(Failure::failed(format!(
                "the broker was not asked whether it listens for other machines still: {why}. Say `peerbus invite \
                 off` again then"
            )));
        }
    };
    let listens = listens.map(|about| serde_json::from_str::<Value>(&about));
    let listens = listens.transpose().map_err(Failure::failed)?;
    let listens = listens.and_then(|about| Some((reached(&about)?.ok()?, about)));
    if let Some((Reached { address, usual, .. }, about)) = &listens {
        if *usual {
            return Err(Failure::failed(format!(
                "the broker listens at {address} whoever is invited, as it was started to: start it without that \
                 address"
            )));
        }
        renew(about, &paths.database, "which ends its connections there")?;
    }
    output::line(match changed || listens.is_some() {
        true => "the broker listens for other machines no more",
        false => "the broker was not told to listen for other machines",
    })
}

/// Ends invitations, with the tokens of those that asked by them. Gives each, and whether it had one.
fn end(
    paths: &Paths,
    file: &Path,
    which: impl Fn(&Invitation) -> bool,
) -> Result<Vec<(Invitation, bool)>, Failure> {
    let ended = invitations::end(file, &paths.tokens, which).map_err(Failure::config)?;
    if ended.iter().any(|(_, had_token)| *had_token) {
        // A broker that is away reads the file when it starts, one that runs within a second.
        let _known = token::reload(&paths.tokens, None)?;
    }
    Ok(ended)
}

fn is_called(name: &TokenName, other: &TokenName) -> bool {
    name.as_str().eq_ignore_ascii_case(other.as_str())
}

fn named(text: &str) -> Result<TokenName, Failure> {
    TokenName::parse(text).ok_or_else(|| {
        Failure::config(format!(
            "{text:?} cannot be what a machine is called: 1 to 32 of A-Z a-z 0-9 . _ -"
        ))
    })
}
