//! `peerbus stop`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use peerbus_adapter::demand::{Demand, end_holder, holder, leave_mark};
use peerbus_adapter::operator::connect;
use peerbus_adapter::paths::Paths;
use peerbus_adapter::{Failure, Flags};
use serde_json::Value;

use crate::{client, operator, output};

/// How long a broker may take to end: it gives its connections 5 s to read what is queued.
const ENDS_WITHIN: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(20);

/// Ends the broker, and keeps sessions that run from starting another one.
pub(crate) fn run(socket: Option<&PathBuf>) -> Result<(), Failure> {
    let (ended, restarts) = end(&operator::sockets(socket)?)?;
    output::line(&match ended {
        Some(ended) => format!("{ended}; everything accepted is on disk"),
        None => match operator::meant()? {
            Some((who, url)) => format!(
                "no broker is running here: {who} names {url}, which `peerbus stop` ends where it runs; sessions \
                 that run start none"
            ),
            None => "no broker is running; sessions that run start none".to_owned(),
        },
    })?;
    if restarts {
        output::say(&format!("sessions that run wait; {}", starts_again()?));
    }
    Ok(())
}

/// The way in which a broker comes back that has ended, as far as this environment decides it.
pub(crate) fn starts_again() -> Result<String, Failure> {
    Ok(match client::demand(&Flags::default())? {
        Demand::Start(_) => "the next new session, or any command, starts it again".to_owned(),
        Demand::Never(why) => format!("`peerbus serve` starts it again: {why}"),
        Demand::None => "it is started again as it was before".to_owned(),
    })
}

/// Ends the broker that listens at one of these sockets. Gives a sentence on that, if there was one, and
/// whether another one may be started.
pub(crate) fn end(sockets: &[PathBuf]) -> Result<(Option<String>, bool), Failure> {
    let paths = Paths::find()?;
    let usual = sockets == paths.sockets;
    if usual {
        leave_mark(&paths.state_dir).map_err(|error| {
            let dir = paths.state_dir.display();
            Failure::failed(format!(
                "cannot leave a mark in {dir}, without which sessions that run start the broker \
                 again: {error}; a broker that runs was told nothing. Make the directory one that \
                 you can write, or name the broker's socket (--socket PATH): then it ends without \
                 a mark"
            ))
        })?;
    }
    let about = match operator::over(sockets, "GET", "/broker") {
        Ok(about) => about,
        Err(_) if usual && holder(&paths.database).is_none() => {
            return Ok((None, false));
        }
        Err(failure) => {
            let ended = without_socket(sockets, &paths.database, usual, failure)?;
            return Ok((Some(ended), true));
        }
    };
    if about.status == 404 {
        return Err(Failure::failed(
            "the broker is too old to be told: end it as it was started, or with `kill`",
        ));
    }
    let about = about.ok().map_err(Failure::failed)?;
    let about: Value = serde_json::from_str(&about).map_err(Failure::failed)?;
    let database = about["database"].as_str().map(PathBuf::from);
    let database = database.unwrap_or(paths.database);
    let pid = about["pid"].as_u64();
    let told = operator::over(sockets, "POST", "/stop")?;
    told.ok().map_err(Failure::failed)?;
    let ending = "waiting for the broker to end: connections read what is queued for them";
    output::patiently(ending, || wait(&database, pid))?;
    let pid = pid
        .map(|pid| format!(", process {pid},"))
        .unwrap_or_default();
    Ok((Some(format!("the broker{pid} has ended")), usual))
}

/// Ends a broker of this user's that has the database and is reached at no socket.
fn without_socket(
    sockets: &[PathBuf],
    database: &Path,
    usual: bool,
    unreached: Failure,
) -> Result<String, Failure> {
    if !usual || connect(sockets).is_ok() {
        return Err(unreached);
    }
    let pid = match end_holder(database) {
        None => return Err(unreached),
        Some(told) => told.map_err(Failure::failed)?,
    };
    let ending = "waiting for the broker to end: it is reached at no socket, and was sent SIGTERM";
    output::patiently(ending, || wait(database, Some(pid.into())))?;
    Ok(format!(
        "the broker, process {pid}, was reached at no socket; it was sent SIGTERM and has ended"
    ))
}

/// Waits until the process has given the database up.
pub(crate) fn wait(database: &Path, pid: Option<u64>) -> Result<(), Failure> {
    let deadline = Instant::now() + ENDS_WITHIN;
    while let Some(found) = holder(database) {
        // Another one has it already.
        if found.is_some() && found.map(u64::from) != pid {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let seconds = ENDS_WITHIN.as_secs();
            let why = format!("the broker was told to end, and has not in {seconds} s");
            let why = match pid {
                Some(pid) => format!(
                    "{why}; `kill -9 {pid}` ends it: everything that was accepted is on disk"
                ),
                None => why,
            };
            return Err(Failure::failed(why));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}
