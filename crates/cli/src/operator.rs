//! The operator's requests: HTTP over the broker's Unix socket, which only its user can reach.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use peerbus_adapter::demand::{Demand, Tried};
use peerbus_adapter::operator::{self, Events, OperatorAnswer, Streamless};
pub(crate) use peerbus_adapter::operator::{encode, encode_text, other_version};
use peerbus_adapter::paths::Paths;
use peerbus_adapter::{BusConfig, Failure, Flags, PeerEntry, UNUSABLE, Url, credentials};
use peerbus_wire::{MessageId, is_id_part};

use crate::{client, output};

/// How long it is tried again where somebody else starts or ends a broker, and how often.
const BUSY_MAX: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(15);

/// One request to the broker at `socket`, or else at the one that `PEERBUS_URL` names, or else at
/// the first of the usual sockets that answers, where one is started if need be.
pub(crate) fn request(
    socket: Option<&PathBuf>,
    method: &str,
    target: &str,
) -> Result<OperatorAnswer, Failure> {
    reach(socket, &sockets(socket)?, |sockets| {
        output::patiently("waiting for the broker's answer", || {
            over(sockets, method, target)
        })
    })
}

/// The body of a good answer to such a request.
pub(crate) fn ask(socket: Option<&PathBuf>, method: &str, target: &str) -> Result<String, Failure> {
    request(socket, method, target)?
        .ok()
        .map_err(Failure::failed)
}

/// Whether this process starts a broker; known from its first request on, because a stop that comes
/// later is meant for it.
static DEMAND: OnceLock<Demand> = OnceLock::new();

/// Tries it, and once more with a broker that is started, where none answers and one may be.
fn reach<T>(
    given: Option<&PathBuf>,
    sockets: &[PathBuf],
    attempt: impl Fn(&[PathBuf]) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let usual = given.is_none() && sockets == Paths::find()?.sockets;
    let demand = match (usual, DEMAND.get()) {
        (false, _) => &Demand::None,
        (true, Some(demand)) => demand,
        (true, None) => {
            let found = client::demand(&Flags::default())?;
            DEMAND.get_or_init(|| found)
        }
    };
    let failed = match attempt(sockets) {
        Err(failed) => failed,
        done => return done,
    };
    // A `url` of this machine may lead on, as that of a tunnel does: none is started beside it.
    if usual && let Some((who, url)) = meant()? {
        return Err(elsewhere(&who, &url));
    }
    // It runs, and no other one can.
    if failed.to_string().starts_with(UNUSABLE) {
        return Err(failed);
    }
    let starter = match demand {
        Demand::Start(starter) => starter,
        Demand::Never(never) => return Err(Failure::failed(format!("{failed} ({never})"))),
        Demand::None => return Err(failed),
    };
    if let Some(why) = starter.waits() {
        return Err(Failure::failed(why));
    }
    let deadline = Instant::now() + BUSY_MAX;
    loop {
        let busy = match starter.start() {
            Tried::Failed(why) => return Err(Failure::failed(why)),
            Tried::Busy(why) => Some(why),
            Tried::Ready => None,
        };
        match (attempt(sockets), busy) {
            (Err(_), _) if Instant::now() < deadline => std::thread::sleep(AGAIN),
            (Err(failed), Some(busy)) => {
                let why = format!("{failed}; none was started, because {busy}");
                return Err(Failure::failed(why));
            }
            (done, _) => return done,
        }
    }
}

/// The sockets of the broker that a connection is meant for, as far as it is of this machine.
pub(crate) fn sockets_of(config: &BusConfig) -> Option<Vec<PathBuf>> {
    let listed = || credentials::load(&config.credentials).ok()?.url;
    match config.url.clone().or_else(listed) {
        None => Some(config.sockets.clone()),
        Some(Url::Unix(path)) => Some(vec![path]),
        Some(_) => None,
    }
}

/// The id of the message that is meant by it, or by a part of it, where the broker can be asked that.
/// What is a part of none stands for itself.
pub(crate) fn whole(config: &BusConfig, id: &MessageId) -> Result<MessageId, Failure> {
    let sockets = sockets_of(config).filter(|_| is_id_part(id.as_str()));
    let target = format!("/v1/messages/{}", encode_text(id.as_str()));
    let Some(Ok(answer)) = sockets.map(|sockets| over(&sockets, "GET", &target)) else {
        return Ok(id.clone());
    };
    let page = operator::messages(answer).map_err(Failure::failed)?;
    let found = page.messages.first().map_or(id.as_str(), |it| &it.id);
    MessageId::parse(found).map_err(Failure::failed)
}

/// A stream of events, behind a cursor if there is one.
pub(crate) fn stream(socket: Option<&PathBuf>, cursor: Option<&str>) -> Result<Events, Streamless> {
    let sockets = sockets(socket).map_err(|why| Streamless::Refused(why.to_string()))?;
    let connect = |sockets: &[PathBuf]| operator::connect(sockets).map_err(Failure::failed);
    let stream = reach(socket, &sockets, connect);
    let stream = stream.map_err(|why| Streamless::Away(why.to_string()))?;
    Events::on(stream, cursor)
}

/// A connection to the broker of this machine, which is started if need be.
pub(crate) fn connection() -> Result<UnixStream, Failure> {
    let connect = |sockets: &[PathBuf]| operator::connect(sockets).map_err(Failure::failed);
    reach(None, &sockets(None)?, connect)
}

/// The socket that is given, or else that of `PEERBUS_URL` or of the credentials, or else the usual
/// ones.
pub(crate) fn sockets(given: Option<&PathBuf>) -> Result<Vec<PathBuf>, Failure> {
    if let Some(path) = given {
        return Ok(vec![path.clone()]);
    }
    match meant()? {
        Some((_, Url::Unix(path))) => Ok(vec![path]),
        Some((who, url)) if !url.is_local() => Err(elsewhere(&who, &url)),
        _ => Ok(Paths::find()?.sockets),
    }
}

/// Whether commands that ask as the operator have no broker on this machine to ask.
pub(crate) fn is_elsewhere() -> bool {
    let Ok(sockets) = sockets(None) else {
        return true;
    };
    // A `url` of this machine may lead on, as that of a tunnel does.
    matches!(meant(), Ok(Some((_, Url::Tcp { .. })))) && over(&sockets, "GET", "/broker").is_err()
}

/// Where mail for a name waits, which is fit to be shown.
pub(crate) fn waits(name: &str) -> String {
    match is_elsewhere() {
        true => format!("for `peerbus recv --name {name}`"),
        false => format!("in `peerbus inbox {name}`"),
    }
}

/// The broker that `PEERBUS_URL` names, or else the credentials, and which of them does.
pub(crate) fn meant() -> Result<Option<(String, Url)>, Failure> {
    let url = std::env::var("PEERBUS_URL").unwrap_or_default();
    if !url.is_empty() {
        return Ok(Some(("PEERBUS_URL".into(), Url::parse(&url)?)));
    }
    let file = Paths::find()?.credentials;
    let url = credentials::load(&file).ok().and_then(|found| found.url);
    Ok(url.map(|url| (file.display().to_string(), url)))
}

/// Fails where the credentials at `path` are those of a broker elsewhere, whose own machine runs `command`.
pub(crate) fn check_own(path: &Path, command: &str) -> Result<(), Failure> {
    // Those that cannot be used say it for themselves.
    let url = credentials::load(path).ok().and_then(|found| found.url);
    let joined = peerbus_setup::has_joined(path);
    match url.filter(|url| joined || !url.is_local()) {
        None => Ok(()),
        Some(url) => Err(Failure::config(format!(
            "{} names a broker elsewhere ({url}), and nothing was changed: run `{command}` on that broker's \
             machine. For a broker of this one, {} first",
            path.display(),
            match joined {
                true => "`peerbus uninstall --join`",
                false => "take `url` out of that file",
            }
        ))),
    }
}

/// Why a broker is not shown here that this user's programs are meant for and that has no socket of theirs.
pub(crate) fn why_elsewhere() -> Result<Option<String>, Failure> {
    let meant = meant()?.filter(|(_, url)| !matches!(url, Url::Unix(_)));
    Ok(meant.map(|(who, url)| elsewhere(&who, &url).to_string()))
}

/// That an operator's request is meant for a broker which only its own machine can ask.
fn elsewhere(who: &str, url: &Url) -> Failure {
    Failure::config(format!(
        "{who} names a broker elsewhere ({url}): its history, and what waits there, it shows on its \
         own machine only, over its Unix socket. From here `peerbus status ID --name FROM` asks it \
         about a message that was sent with `--name FROM`, and `peerbus peers` who is there; --socket \
         PATH asks a broker here"
    ))
}

/// Everybody whom the broker that runs here knows. `None`: it does not tell, or not of all; none is
/// started for this.
pub(crate) fn known_peers() -> Option<Vec<PeerEntry>> {
    let answer = over(&sockets(None).ok()?, "GET", "/v1/peers").ok()?;
    let (peers, omitted) = operator::peers(answer).ok()?;
    (omitted == 0).then_some(peers)
}

pub(crate) fn over(
    sockets: &[PathBuf],
    method: &str,
    target: &str,
) -> Result<OperatorAnswer, Failure> {
    operator::over(sockets, method, target).map_err(Failure::failed)
}
