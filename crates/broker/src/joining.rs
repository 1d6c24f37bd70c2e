//! The first frame of a machine that was invited.

use std::sync::Arc;

use peerbus_core::broker::{BrokerInput, JoinTry};
use peerbus_wire::{JoinRefusal, JoinRequest};

use crate::engine_input::Content;
use crate::shared::Shared;
use crate::tokens::TokensWatch;

/// Decides about a machine's first frame.
pub(crate) async fn tried(shared: &Shared, asked: JoinRequest, from: String) -> JoinTry {
    let (name, outcome) = match shared.invited.clone() {
        None => (None, Err(JoinRefusal::Unknown)),
        Some(invited) => {
            let _turn = invited.turn.lock().await;
            let now_ms = shared.clock.now().wall_ms;
            let asks = Arc::clone(&invited);
            let admitted = tokio::task::spawn_blocking(move || asks.admit(&asked, now_ms)).await;
            admitted.unwrap_or((None, Err(JoinRefusal::Failed)))
        }
    };
    // The token holds before the machine knows.
    let grants = shared.tokens.as_ref().filter(|_| outcome.is_ok());
    let outcome = match grants.map(TokensWatch::read) {
        Some(Ok(grants)) => {
            let grants = Content::Input(BrokerInput::Grants(grants));
            let told = shared.engine.send_now(grants);
            told.map_err(|_stopping| JoinRefusal::Failed).and(outcome)
        }
        Some(Err(error)) => {
            tracing::warn!("{error}; a machine that was invited is not let in");
            Err(JoinRefusal::Failed)
        }
        None => outcome,
    };
    if let Some(name) = &name {
        let came = outcome.as_ref().err().map_or("joined", |why| why.word());
        tracing::info!(machine = %name, from, came, "a machine that was invited asks to be let in");
    }
    JoinTry {
        name,
        from,
        outcome,
    }
}
