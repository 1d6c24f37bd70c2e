//! Whoever waits for the answer of a tool call.

use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::RequestContext;

#[derive(Clone)]
pub(crate) struct Caller {
    context: RequestContext<RoleServer>,
    token: Option<ProgressToken>,
}

impl Caller {
    pub(crate) fn new(context: RequestContext<RoleServer>) -> Self {
        let token = context.meta.get_progress_token();
        Self { context, token }
    }

    /// Resolves when the client has cancelled the call: it ignores the answer.
    pub(crate) async fn cancelled(&self) {
        self.context.ct.cancelled().await;
    }

    /// Whether it has.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.context.ct.is_cancelled()
    }

    /// Tells how the call gets on; `progress` must grow from one to the next. Does nothing for a
    /// client that did not ask for it.
    pub(crate) async fn progress(&self, progress: f64, total: f64, message: &str) {
        let Some(token) = self.token.clone() else {
            return;
        };
        let params = ProgressNotificationParam::new(token, progress)
            .with_total(total)
            .with_message(message);
        // A client that is gone gets no answer either.
        let _ = self.context.peer.notify_progress(params).await;
    }
}
