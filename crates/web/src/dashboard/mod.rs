//! The page for a person, and what it asks.

use std::sync::Arc;

use axum::Router;

use crate::App;

/// What the dashboard keeps.
pub(crate) struct Dashboard {}

impl Dashboard {
    pub(crate) fn new() -> Self {
        Self {}
    }

    /// The path that opens the page, once.
    pub(crate) fn link(&self) -> String {
        "/".into()
    }
}

pub(crate) fn router() -> Router<Arc<App>> {
    Router::new()
}
