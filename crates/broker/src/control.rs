//! What ends a broker besides signals: being asked over the Unix socket, and nobody's need.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use peerbus_wire::hex;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::operator::{Asked, refused};
use crate::options::Origin;
use crate::shared::Shared;

/// Between two looks at who is there: at least and at most.
const LOOK_MIN: Duration = Duration::from_millis(20);
const LOOK_MAX: Duration = Duration::from_secs(30);

/// Waits until nobody was connected, in whatever way, for so long, and all that is known is on the
/// disk.
pub(crate) async fn idle(shared: &Shared, limit: Duration) {
    let look = (limit / 20).clamp(LOOK_MIN, LOOK_MAX);
    let (mut since, mut known) = (Instant::now(), None);
    loop {
        let unused = shared.life.unused();
        if unused.is_none() || known != unused || shared.health.remembers() {
            (since, known) = (Instant::now(), unused);
        }
        if since.elapsed() >= limit {
            return;
        }
        sleep(look).await;
    }
}

/// `GET /broker`: its version, its process, its database, how it came to be, and how many names the
/// database had then of tokens that it did not admit; where machines that are invited connect, and which
/// file has their invitations.
pub(crate) async fn about(State(shared): State<Arc<Shared>>) -> Json<Value> {
    let database = shared.witness.as_ref().map(|witness| witness.database());
    let invited = shared.invited.as_ref();
    Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "database": database.map(|path| path.display().to_string()),
        "started": shared.life.origin.to_string(),
        "started_ms_ago": shared.clock.mono_ms(),
        "peers": shared.health.peers(),
        "unadmitted": shared.life.unadmitted,
        "invitations": invited.map(|invited| invited.file.display().to_string()),
        "reached": shared.reached.get().map(|reached| match reached {
            Ok(reached) => json!({
                "address": reached.address.to_string(),
                "certificate": hex::encode(&reached.certificate.0),
                "usual": reached.usual,
            }),
            Err(why) => json!({ "why": why }),
        }),
    }))
}

/// `POST /stop`: ends the broker. With `?newer=VERSION` only one that was started on demand, is older
/// and has no peer; with `?takeover=1` only one that was started on demand.
pub(crate) async fn stop(
    State(shared): State<Arc<Shared>>,
    Query(asked): Query<Asked>,
) -> Response {
    let conditional = asked.newer.is_some() || asked.takeover.is_some();
    let ours = env!("CARGO_PKG_VERSION");
    let why = if conditional && !matches!(shared.life.origin, Origin::Demand(_)) {
        Some(format!(
            "this broker was started {}, and ends when told",
            shared.life.origin
        ))
    } else if let Some(newer) = &asked.newer {
        let peers = shared.health.peers();
        let older = peerbus_wire::is_older(ours, newer);
        (!older || peers > 0).then(|| format!("this broker is {ours} and has {peers} peers"))
    } else {
        None
    };
    if let Some(why) = why {
        return refused(StatusCode::CONFLICT, why);
    }
    shared.life.asked.notify_one();
    Json(json!({ "pid": std::process::id() })).into_response()
}
