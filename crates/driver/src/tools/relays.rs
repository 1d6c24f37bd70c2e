//! Which adapters below a driver get the bus tools from it.

use std::sync::Arc;

use peerbus_adapter::agents::Agent;
use peerbus_adapter::credentials::random_hex;
use peerbus_adapter::hooks::{AskTools, HookConnection, Part, TOOLS};
use peerbus_os::process;
use subtle::ConstantTimeEq as _;

use super::Tools;
use crate::below::{DRIVER_VARIABLE, TOKEN_VARIABLE};

/// So many processes stand between a driver and what it starts: the one that ends that with it.
const GUARDS: usize = 1;

pub(crate) struct Relays {
    tools: Arc<Tools>,
    agent: &'static Agent,
    /// The agent has the tools inside its own stream, and needs no relay.
    in_stream: bool,
    token: String,
}

impl Relays {
    pub(crate) fn new(tools: Arc<Tools>, agent: &'static Agent, in_stream: bool) -> Arc<Self> {
        Arc::new(Self {
            tools,
            agent,
            in_stream,
            token: random_hex().to_string(),
        })
    }

    /// What the server that the agent is told to start must have in its environment: agents hand on
    /// little of their own.
    #[expect(dead_code, reason = "agents that speak ACP are told to start one")]
    pub(crate) fn environment(&self) -> [(&'static str, String); 2] {
        [
            (DRIVER_VARIABLE, std::process::id().to_string()),
            (TOKEN_VARIABLE, self.token.clone()),
        ]
    }

    /// Serves a process below this one at the session's socket, until it is gone.
    pub(crate) async fn serve(self: Arc<Self>, mut hook: HookConnection) {
        let Some(ask) = hook.asked::<AskTools>(TOOLS) else {
            // Its hooks have nothing to say: the agent tells it all.
            return hook.nothing().await;
        };
        let part = self.part(&ask, hook.connection.caller.pid);
        tracing::debug!(?part, "an adapter asks for the bus tools");
        if hook.answer(Ok(part)).await && part == Part::Relay {
            self.tools.relay(hook.connection).await;
        }
    }

    /// What an adapter is to be: the agent's is known by the token, or by where it stands and how its
    /// client calls itself. Agents further down are peers of their own.
    fn part(&self, ask: &AskTools, adapter: Option<u32>) -> Part {
        let token = ask.token.as_deref().unwrap_or_default();
        let is_named: bool = token.as_bytes().ct_eq(self.token.as_bytes()).into();
        let wrappers = self.agent.acp.map_or(0, |acp| acp.wrappers);
        let up = GUARDS + 1 + wrappers + 1;
        let is_near = |adapter| {
            let above = process::ancestors(adapter, up);
            above.iter().any(|it| it.id == std::process::id())
        };
        let is_agents = || self.agent.is_client(&ask.client.name) && adapter.is_some_and(is_near);
        match (is_named || is_agents(), self.in_stream) {
            (false, _) => Part::Peer,
            (true, true) => Part::Nothing,
            (true, false) => Part::Relay,
        }
    }
}
