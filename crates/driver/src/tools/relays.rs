//! Which adapters below a driver get the bus tools from it.

use std::sync::Arc;

use peerbus_adapter::agents::Agent;
use peerbus_adapter::credentials::random_hex;
use peerbus_adapter::hooks::{AskTools, HookConnection, Role, TOOLS};
use peerbus_os::process;
use subtle::ConstantTimeEq as _;

use super::Tools;
use crate::below::{DRIVER_VARIABLE, TOKEN_VARIABLE};
use crate::guard::GUARDS;

pub(crate) struct Relays {
    tools: Arc<Tools>,
    agent: &'static Agent,
    /// The agent has the tools inside its own stream, and needs no relay.
    in_stream: bool,
    token: String,
    /// In an editor: each of its sessions holds one of these.
    seats: Option<Arc<()>>,
}

impl Relays {
    pub(crate) fn new(
        tools: Arc<Tools>,
        agent: &'static Agent,
        in_stream: bool,
        seats: Option<Arc<()>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            tools,
            agent,
            in_stream,
            token: random_hex().to_string(),
            seats,
        })
    }

    /// What the server that the agent is told to start must have in its environment: agents hand on
    /// little of their own.
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
        let role = self.role(&ask, hook.connection.caller.pid);
        tracing::debug!(?role, "an adapter asks for the bus tools");
        if hook.answer(Ok(role)).await && role == Role::Relay {
            self.tools.relay(hook.connection).await;
        }
    }

    /// What an adapter is to be: the agent's is known by the token, or by where it stands and how its
    /// client calls itself. Agents further down are peers of their own.
    fn role(&self, ask: &AskTools, adapter: Option<u32>) -> Role {
        let token = ask.token.as_deref().unwrap_or_default();
        let is_named: bool = token.as_bytes().ct_eq(self.token.as_bytes()).into();
        let up = GUARDS + 1 + self.agent.wrappers() + 1;
        let is_near = |adapter| {
            let mut above = process::ancestors(adapter, up);
            above.any(|it| it.id == std::process::id())
        };
        let is_agents = || self.agent.is_client(&ask.client.name) && adapter.is_some_and(is_near);
        // Without a token nothing says of which of several sessions it is.
        let is_of_others = match (&self.seats, &ask.token) {
            (None, _) => false,
            (Some(_), Some(_)) => !is_named,
            (Some(seats), None) => Arc::strong_count(seats) > 1 + 1,
        };
        match is_named || is_agents() {
            false if is_of_others && ask.token.is_some() => Role::Nothing,
            false => Role::Peer,
            true if self.in_stream || is_of_others => Role::Nothing,
            true => Role::Relay,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    use peerbus_adapter::agents::claude_code;
    use peerbus_adapter::hooks::Introduced;

    use super::*;

    /// What an adapter is told that has so many processes between itself and this one, when its client
    /// says that it is one of these.
    fn told<const N: usize>(relays: &Relays, between: usize, clients: [&str; N]) -> [Role; N] {
        // The `:` keeps each shell from becoming the next.
        let deep = "[ $0 = 0 ] && { echo $$; read x; exit; }; sh -c \"$1\" $(($0 - 1)) \"$1\"; :";
        let mut shell = Command::new("sh")
            .args(["-c", deep, &between.to_string(), deep])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut stdout = BufReader::new(shell.stdout.take().unwrap());
        stdout.read_line(&mut said).unwrap();
        let adapter = said.trim().parse().ok();
        let roles = clients.map(|name| {
            let client = Introduced {
                name: name.to_owned(),
                ..Introduced::default()
            };
            let token = None;
            relays.role(&AskTools { client, token }, adapter)
        });
        drop(shell.stdin.take());
        shell.wait().unwrap();
        roles
    }

    #[test]
    fn an_adapter_without_a_token_is_of_no_session_where_an_editor_has_several() {
        let tools = Tools::new().0;
        let word = |agent: &&Agent| agent.word == "codex";
        let codex = peerbus_adapter::agents::ALL.into_iter().find(word).unwrap();
        let seats = Arc::new(());
        let seat = || Relays::new(Arc::clone(&tools), codex, false, Some(Arc::clone(&seats)));
        let first = seat();
        let names = ["codex-mcp-client", "claude-code"];
        assert_eq!(told(&first, 2, names), [Role::Relay, Role::Peer]);
        let second = seat();
        assert_eq!(told(&first, 2, names), [Role::Nothing, Role::Peer]);
        let ask = |token: &str| AskTools {
            token: Some(token.to_owned()),
            ..AskTools::default()
        };
        let role = |token: &str| first.role(&ask(token), None);
        assert_eq!(
            [role(&first.token), role(&second.token)],
            [Role::Relay, Role::Nothing]
        );
        drop(second);
        assert_eq!(told(&first, 2, names), [Role::Relay, Role::Peer]);
    }

    #[test]
    fn an_adapter_is_the_agents_where_it_stands_near_and_its_client_is_the_agents() {
        let tools = Tools::new().0;
        let relays = |agent, in_stream| Relays::new(Arc::clone(&tools), agent, in_stream, None);
        let word = |word| {
            let mut all = peerbus_adapter::agents::ALL.into_iter();
            all.find(|agent| agent.word == word).unwrap()
        };
        let names = ["codex-mcp-client", "claude-code", ""];
        // The guard, the agent, and one that stands before it.
        for between in [1, 2, 3] {
            let roles = told(&relays(word("codex"), false), between, names);
            assert_eq!(roles, [Role::Relay, Role::Peer, Role::Peer], "{between}");
        }
        // A shell of the agent's, and another agent.
        for between in [4, 5] {
            let roles = told(&relays(word("codex"), false), between, names);
            assert_eq!(roles, [Role::Peer; 3], "{between}");
        }
        let roles = told(&relays(word("claude-acp"), false), 3, names);
        assert_eq!(roles, [Role::Peer, Role::Relay, Role::Peer]);
        let claude = relays(&claude_code::AGENT, true);
        let roles = told(&claude, 2, names);
        assert_eq!(roles, [Role::Peer, Role::Nothing, Role::Peer]);
        assert_eq!(told(&claude, 3, names), [Role::Peer; 3]);
        assert_eq!(
            told(&relays(&Agent::UNKNOWN, false), 2, names),
            [Role::Peer; 3]
        );
    }
}
