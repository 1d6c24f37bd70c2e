//! Requests of a token that have no result yet: `GET /v1/requests`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use peerbus_adapter::operator;
use peerbus_view::{Audience, MessagePage, MessageView};
use peerbus_wire::PeerName;
use serde_json::{Value, json};

use crate::App;
use crate::answer::Failure;

/// `GET /v1/requests`: those that were sent with the token, the oldest first.
pub(crate) async fn requests(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Json<Value>, Failure> {
    let caller = app.admit(&request)?;
    let away = |why: String| Failure::new(StatusCode::SERVICE_UNAVAILABLE, why).retry_after(2);
    let asked = tokio::task::spawn_blocking(move || app.open_requests(Audience::Peer)).await;
    let all = asked.map_err(|error| away(error.to_string()))?;
    let all = all.map_err(away)?;
    let own = PeerName::parse(&caller.peer.bus.name()).ok();
    let is_own = |message: &&MessageView| {
        let from = PeerName::parse(&message.from).ok();
        from.zip(own.as_ref())
            .is_some_and(|(from, own)| from.key() == own.key())
    };
    let own = all.messages.iter().filter(is_own).filter_map(shown);
    let mut told = json!({ "requests": own.collect::<Vec<_>>() });
    if all.before.is_some() {
        told["more"] = true.into();
    }
    Ok(Json(told))
}

/// A request without its text, which its sender knows.
fn shown(message: &MessageView) -> Option<Value> {
    let request = message.request.as_ref()?;
    Some(json!({
        "id": message.id,
        "to": request.to,
        "holder": request.holder,
        "state": request.state,
        "at": message.at,
        "left_ms": request.left_ms,
        "note": message.note,
    }))
}

impl App {
    /// Requests that have no result yet, as the broker tells its operator of them.
    pub(crate) fn open_requests(&self, audience: Audience) -> Result<MessagePage, String> {
        self.messages("/v1/requests", audience)
    }

    /// What the broker answers its operator, who reads texts and is `audience`.
    pub(crate) fn messages(&self, target: &str, audience: Audience) -> Result<MessagePage, String> {
        let target = audience.reads(target);
        let answer = operator::over(&self.options.operator, "GET", &target)?;
        let mut page = operator::messages(answer)?;
        if self.options.agent {
            page.messages.iter_mut().for_each(MessageView::keep_unshown);
        }
        Ok(page)
    }
}
