//! Watching the sessions of this user at their nodes, for the page and for those who ask over HTTP.

use std::future::pending;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::select_all;
use peerbus_adapter::hooks::{INDEX, directories};
use peerbus_adapter::paths::Paths;
use peerbus_node::index::{self, LiveSession};
use peerbus_node::{NodeClient, NodeRefusal};
use peerbus_os::watch::DirectoryWatch;
use serde_json::{Value, json};

/// How often it is looked whether somebody who watches is still there.
const PATIENCE: Duration = Duration::from_secs(5);

/// The sessions that live now.
pub(crate) fn all() -> Result<Vec<LiveSession>, String> {
    let paths = Paths::find().map_err(|error| error.to_string())?;
    Ok(index::all(&paths))
}

/// What names a session while it lives; its id can change. Untrusted.
pub(crate) fn key(session: &LiveSession) -> String {
    let name = session.socket.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

pub(crate) fn connect(socket: &Path) -> Result<NodeClient, String> {
    NodeClient::connect(socket).map_err(|error| format!("the session cannot be reached: {error}"))
}

/// The number of the last event of a session.
pub(crate) fn last(client: &mut NodeClient) -> Result<u64, NodeRefusal> {
    let status = client.call("session/status", &json!({}))?;
    Ok(status["seq"].as_u64().unwrap_or_default())
}

/// Has a session tell what comes after this event, or from now on. Gives the number of the event after which
/// it tells.
pub(crate) fn subscribe(client: &mut NodeClient, since: Option<u64>) -> Result<u64, NodeRefusal> {
    let answer = client.call("session/subscribe", &json!({ "since": since }))?;
    client.set_patience(Some(PATIENCE))?;
    Ok(answer["seq"].as_u64().unwrap_or_default())
}

/// Tells each event of a session to which somebody subscribed, until it ends or `tell` says that nobody
/// is there. `tell` is asked that from time to time, without an event.
pub(crate) fn watched(
    client: &mut NodeClient,
    tell: &mut impl FnMut(Option<&Value>) -> bool,
) -> Result<(), String> {
    loop {
        let stays = match client.event() {
            Ok(Some(event)) => tell(Some(&event)),
            Ok(None) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => tell(None),
            Err(error) => return Err(NodeRefusal::Lost(error).into()),
        };
        if !stays {
            return Ok(());
        }
    }
}

/// A file that tells of changes as it is written.
pub(crate) struct Watched {
    dir: PathBuf,
    name: String,
    watch: DirectoryWatch,
}

impl Watched {
    pub(crate) fn new(path: &Path) -> Option<Self> {
        Some(Self {
            dir: path.parent()?.to_owned(),
            name: path.file_name()?.to_str()?.to_owned(),
            watch: DirectoryWatch::default(),
        })
    }
}

/// The files of this user's sessions: their lists, and the gates.
pub(crate) fn files() -> Vec<Watched> {
    let Ok(paths) = Paths::find() else {
        return Vec::new();
    };
    let lists = directories(&paths).into_iter().map(|dir| dir.join(INDEX));
    let all = lists.chain([paths.gates]);
    all.filter_map(|path| Watched::new(&path)).collect()
}

/// From now on no change of a file that can be watched is missed.
pub(crate) fn begin(files: &mut [Watched]) {
    for file in files {
        file.watch.open(&file.dir);
    }
}

/// Waits until one of these files is written.
pub(crate) async fn written(files: &mut [Watched]) {
    if files.is_empty() {
        return pending().await;
    }
    let each = files.iter_mut().map(|file| {
        let Watched { name, watch, .. } = file;
        let name = name.as_str();
        Box::pin(watch.changed(move |written| written == name))
    });
    select_all(each).await;
}
