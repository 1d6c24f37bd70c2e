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
use peerbus_adapter::mailbox::{AgentLink, BoxFuture, Mailbox, Path};
use peerbus_agents::Agent;

pub use surroundings::Surroundings;

struct Waker {
    /// The agent, by its word in `peerbus_agents`.
    agent: &'static str,
    /// Its waking paths, best first.
    paths: &'static [Path],
    /// Whether a session with these surroundings can be woken, as far as they tell.
    reaches: fn(&Surroundings) -> bool,
    /// A program of ours in the agent's process connects to the session's socket.
    connects: bool,
    /// Makes what reaches a session and what observes it. The paths that may not be used are left
    /// out later.
    start: fn(Context) -> AgentLink,
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
    ALL.iter().flat_map(|waker| waker.paths).copied()
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
        of_client(client).is_some_and(|waker| {
            let allowed = waker.paths.iter().any(|path| known.wake.allows(path));
            allowed && (waker.reaches)(&known)
        })
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
    let mut agent = (waker.start)(Context {
        around: around.clone(),
        host,
        mailbox: mailbox.clone(),
    });
    if !waker.connects {
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
            let mut words: Vec<_> = waker.paths.iter().map(|path| path.word).collect();
            for word in &words {
                assert_eq!(peerbus_view::word(word), *word);
            }
            words.dedup();
            assert_eq!(words.len(), waker.paths.len());
        }
    }
}
