//! How sessions of each agent are woken, by the generic adapter: one file for each agent. Which one
//! it is, its client says at `initialize`.
//!
//! `docs/WAKING.md` says how to add another.

mod codex;
mod copilot;
mod node;
mod opencode;
mod plugin;
mod qwen;
mod surroundings;

use crate::{Host, Profile};
use peerbus_adapter::mailbox::{AgentLink, BoxFuture, Mailbox, Path, PathSpec};
use peerbus_agents::Agent;

pub use surroundings::Surroundings;

struct Waker {
    /// The agent, by its word in `peerbus_agents`.
    agent: &'static str,
    /// Its waking path.
    path: PathSpec,
    /// Whether a session with these surroundings can be woken, as far as they tell.
    reaches: fn(&'static Waker, &Surroundings) -> bool,
    /// Why the path cannot be used where no program of ours in the agent's process has connected to
    /// the session's socket; empty: none does.
    absent: &'static str,
    /// The variable with the number of that process, where it is not the one that started us.
    process: Option<&'static str>,
    /// Makes what reaches a session and what observes it. A path that may not be used is left out
    /// later.
    start: fn(&'static Waker, Context) -> AgentLink,
}

struct Context {
    around: Surroundings,
    host: Host,
    mailbox: Mailbox,
}

static ALL: [&Waker; 4] = [
    &codex::WAKER,
    &copilot::WAKER,
    &opencode::WAKER,
    &qwen::WAKER,
];

/// The waking paths of all these agents.
pub fn waking() -> impl Iterator<Item = Path> {
    ALL.into_iter().map(|waker| &waker.path)
}

fn of_client(name: &str) -> Option<&'static Waker> {
    let agent = Agent::of_client(name)?;
    ALL.into_iter().find(|waker| waker.agent == agent.word)
}

/// The generic adapter, which wakes its session in whichever way the agent has: what [`crate::run`]
/// serves, and what that starts.
pub fn adapter(
    around: Surroundings,
) -> (
    Profile,
    impl FnOnce(Host, Mailbox) -> BoxFuture<'static, AgentLink>,
) {
    let known = around.clone();
    let profile = crate::generic(move |client| {
        of_client(client)
            .is_some_and(|waker| known.wake.allows(&waker.path) && (waker.reaches)(waker, &known))
    });
    (profile, |host, mailbox| {
        Box::pin(start(around, host, mailbox))
    })
}

async fn start(around: Surroundings, host: Host, mailbox: Mailbox) -> AgentLink {
    let client = host.client().await;
    let Some(waker) = of_client(&client.name) else {
        let known = Agent::of_client(&client.name);
        let asleep = known.map(|agent| format!("nothing is known that wakes {}", agent.title));
        let word = known.map_or(client.name.as_str(), |agent| agent.word);
        let node = node::alone(&around, word, None, &mailbox);
        return AgentLink {
            asleep: asleep.unwrap_or_default(),
            beside: node.into_iter().collect(),
            ..AgentLink::default()
        };
    };
    let allowed = around.wake.clone();
    let context = Context {
        around: around.clone(),
        host,
        mailbox: mailbox.clone(),
    };
    let mut agent = (waker.start)(waker, context);
    if waker.absent.is_empty() {
        let session = agent.session.clone();
        let node = node::alone(&around, waker.agent, session, &mailbox);
        agent.beside.extend(node);
    }
    agent.paths.retain(|path| allowed.allows(path.spec()));
    agent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_an_agent_that_is_known_and_its_words_can_stand_in_receipts() {
        for waker in ALL {
            let known = peerbus_agents::ALL.into_iter();
            let [_] = known
                .filter(|agent| agent.word == waker.agent)
                .collect::<Vec<_>>()[..]
            else {
                panic!("{}", waker.agent);
            };
            let word = waker.path.word;
            assert_eq!(peerbus_view::word(word), word);
        }
    }
}
