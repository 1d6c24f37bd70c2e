//! One attempt to connect: with which credentials, where, and to a broker that is started if there
//! is none and one may be.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use peerbus_wire::{Token, is_older};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::config::BusConfig;
use crate::credentials::{self as file, Credentials, CredentialsError};
use crate::demand::{Starter, Tried, ask};
use crate::dial::{Dialed, Socket, Unreached, candidates, dial};
use crate::url::Url;

/// How long it is tried again where somebody else starts or ends a broker.
const BUSY_MAX: Duration = Duration::from_secs(5);
/// Between two of these attempts.
const AGAIN: Duration = Duration::from_millis(15);

/// A connection that nothing was said on yet.
pub(crate) struct Reached {
    pub(crate) socket: Socket,
    /// The broker is on this machine.
    pub(crate) local: bool,
    pub(crate) credentials: Credentials,
}

/// The broker that a link reached first: its place and token. Another one has other peers, of the same names,
/// too.
#[derive(Debug, Default)]
pub(crate) struct First(OnceLock<(Option<Url>, Token)>);

impl First {
    /// The same credentials, if they are not another broker's.
    fn check(
        &self,
        config: &BusConfig,
        found: Credentials,
    ) -> Result<Credentials, CredentialsError> {
        let same = |(url, token): &(_, _)| *url == found.url || *token == found.token;
        if self.0.get().is_none_or(same) {
            return Ok(found);
        }
        let place = match &found.url {
            Some(url) => format!("the broker at {url}"),
            None => "the broker of this machine".to_owned(),
        };
        Err(CredentialsError::Unusable(format!(
            "the credentials at {} have become those of {place}, which this session does not change to: start it \
             anew to be there",
            config.credentials.display()
        )))
    }
}

pub(crate) async fn reach(config: &BusConfig, first: &First) -> Result<Reached, Unreached> {
    let Some(starter) = config.demand.starter() else {
        return once(config, first, None).await;
    };
    let usual = credentials(config, first).map_or(true, |found| found.url.is_none());
    if config.url.is_some() || !usual {
        return once(config, first, None).await;
    }
    if let Some(why) = starter.waits() {
        return Err(absent(why.to_owned()));
    }
    match once(config, first, Some(starter)).await {
        Err(
            Unreached::NoBroker { absent: true, .. }
            | Unreached::NoCredentials(CredentialsError::Missing(_)),
        ) => {}
        reached => return reached,
    }
    let deadline = Instant::now() + BUSY_MAX;
    loop {
        let busy = match start(starter).await {
            Tried::Ready => None,
            Tried::Busy(why) => Some(why),
            Tried::Failed(why) => return Err(absent(why)),
        };
        match once(config, first, Some(starter)).await {
            Err(failed) if Instant::now() < deadline => {
                // One that serves has made the credentials.
                if let (None, Unreached::NoCredentials(_)) = (&busy, &failed) {
                    return Err(failed);
                }
            }
            Err(Unreached::NoBroker { why, .. }) => {
                return Err(absent(match busy {
                    Some(busy) => format!("{why}; none was started, because {busy}"),
                    None => why,
                }));
            }
            Err(Unreached::NoCredentials(CredentialsError::Missing(_))) if busy.is_some() => {
                let busy = busy.unwrap_or_default();
                let why = "no broker is running here, which would make the credentials";
                return Err(absent(format!("{why}; none was started, because {busy}")));
            }
            reached => return reached,
        }
        sleep(AGAIN).await;
    }
}

fn absent(why: String) -> Unreached {
    Unreached::NoBroker {
        local: true,
        why,
        absent: true,
    }
}

/// Starts a broker, away from this thread.
async fn start(starter: &Arc<Starter>) -> Tried {
    let (done, tried) = oneshot::channel();
    let starter = Arc::clone(starter);
    let thread = std::thread::Builder::new().name("peerbus-start".into());
    let spawned = thread.spawn(move || {
        // Whoever asked may have gone.
        let _unheard = done.send(starter.start());
    });
    match spawned {
        Ok(_) => tried
            .await
            .unwrap_or(Tried::Busy("it ended by a bug".into())),
        Err(error) => Tried::Failed(format!("no broker could be started: {error}")),
    }
}

/// One attempt. A broker that is older than this program, that somebody like `starter` started and
/// that nobody uses is ended first.
async fn once(
    config: &BusConfig,
    first: &First,
    starter: Option<&Arc<Starter>>,
) -> Result<Reached, Unreached> {
    let found = credentials(config, first).map_err(Unreached::NoCredentials)?;
    let url = config.url.as_ref().or(found.url.as_ref());
    let urls = candidates(url, &config.sockets, config.token.is_some());
    let mut dialed = dial(&urls, &config.sockets, &config.tls, &config.demand).await?;
    if starter.is_some() {
        dialed = replaced(dialed).await?;
    }
    first
        .0
        .get_or_init(|| (found.url.clone(), found.token.clone()));
    Ok(Reached {
        socket: dialed.socket,
        local: dialed.url.is_local(),
        credentials: found,
    })
}

/// Asks an older broker to make room, if it is idle: then it is as if there were none.
async fn replaced(dialed: Dialed<'_>) -> Result<Dialed<'_>, Unreached> {
    let ours = env!("CARGO_PKG_VERSION");
    let theirs = dialed.version.clone().unwrap_or_default();
    let Url::Unix(path) = dialed.url else {
        return Ok(dialed);
    };
    if !is_older(&theirs, ours) {
        return Ok(dialed);
    }
    // It must not be what keeps the broker busy: it has said nothing, so nothing is lost with it.
    let target = format!("/stop?newer={ours}");
    match ask(path, "POST", &target).await {
        Ok((200, _)) => Err(absent(format!(
            "the broker at {} was {theirs}, and ends for this {ours}",
            dialed.url
        ))),
        _ => {
            let url = dialed.url;
            tracing::warn!(
                "the broker at {url} is {theirs}, older than this {ours}: it is replaced once nobody uses it, or restart it"
            );
            Ok(dialed)
        }
    }
}

/// The configured credentials, completed from the file.
pub(crate) fn credentials(
    config: &BusConfig,
    first: &First,
) -> Result<Credentials, CredentialsError> {
    let file = file::load(&config.credentials);
    let file = file.and_then(|found| first.check(config, found));
    if let Ok(found) = &file {
        config
            .check_place(found)
            .map_err(CredentialsError::Unusable)?;
    }
    let shares = file.as_ref().ok().map(|file| file.secret.clone());
    let mut found = match (&config.token, &config.secret) {
        (Some(token), Some(secret)) => {
            let file = match file {
                Err(CredentialsError::Missing(_)) => None,
                // What its rules keep out nobody knows.
                file => Some(file?),
            };
            Credentials {
                token: token.clone(),
                secret: secret.clone(),
                // It may still know where the broker is.
                url: file.as_ref().and_then(|file| file.url.clone()),
                senders: file.and_then(|file| file.senders),
                domain: None,
                listen: None,
                history: None,
                allow: BTreeMap::new(),
            }
        }
        _ => file?,
    };
    if let Some(token) = &config.token {
        found.token = token.clone();
    }
    if let (Some(secret), Some(shares)) = (&config.secret, shares) {
        found.secret = secret.clone().sharing_as(&shares);
    }
    // A project can set the environment: that keeps out more, and lets in nobody whom the user keeps out.
    if let Some(senders) = &config.senders {
        let user = found.senders.take().unwrap_or_default();
        found.senders = Some(user.and(senders));
    }
    Ok(found)
}
