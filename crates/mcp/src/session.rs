//! What a client is served: the bus tools, instructions, and what only channels have.

use std::sync::{Arc, OnceLock};

use peerbus_adapter::mailbox::{Mailbox, PIGGYBACK, Who};
use peerbus_adapter::{Bus, LinkState, similar};
use peerbus_wire::escape;
use tokio::sync::Semaphore;

use crate::arguments::Arguments;
use crate::options::AdapterOptions;
use crate::profile::{ClientInfo, Profile};
use crate::reply::Answer;
use crate::rpc::Caller;
use crate::spelling::{Spelling, means};
use crate::tools::{self, Context, Link, Tool};

/// Tool calls that are answered at a time; a client that asks for more is told so.
const CALLS_MAX: usize = 256;
/// Longest name of an argument that is repeated, in characters.
const NAME_CHARS: usize = 64;

/// The member of a result that says what in its call was replaced,
pub(crate) const REPLACED: &str = "replaced";
/// and its text.
const REPLACED_WORDS: &str = "the call held what many readers of JSON refuse, and they got this in \
    its place: U+FFFD for half of a surrogate pair, a text of its digits for a number that no double holds";

pub(crate) struct Session {
    pub(crate) bus: Bus,
    pub(crate) profile: Profile,
    pub(crate) mailbox: Mailbox,
    options: AdapterOptions,
    client: OnceLock<ClientInfo>,
    calls: Semaphore,
}

impl Session {
    pub(crate) fn new(bus: Bus, profile: Profile, options: AdapterOptions) -> Arc<Self> {
        Arc::new(Self {
            mailbox: Mailbox::new(bus.clone(), options.ack, options.hops_max),
            bus,
            profile,
            options,
            client: OnceLock::new(),
            calls: Semaphore::new(CALLS_MAX),
        })
    }

    /// The client introduced itself: peers are told who is here.
    pub(crate) fn met(&self, client: ClientInfo) {
        self.mailbox.met(&Who {
            adapter: self.profile.kind,
            client: &client.name,
            version: &client.version,
            process: starter(),
        });
        // A client that initializes twice keeps the spelling that it was shown.
        let _ = self.client.set(client);
    }

    /// What this client's agent is told about the bus.
    pub(crate) fn instructions(&self) -> String {
        self.profile.instruct(self.client_name())
    }

    fn client_name(&self) -> &str {
        self.client.get().map_or("", |client| client.name.as_str())
    }

    pub(crate) fn spelling(&self) -> Spelling {
        let client = self.client_name();
        self.options
            .tool_names
            .unwrap_or_else(|| Spelling::for_client(client))
    }

    pub(crate) fn tools(&self) -> impl Iterator<Item = &'static Tool> {
        let drain = self.profile.drain;
        tools::ALL
            .iter()
            .filter(move |tool| drain || tool.name != tools::drain::NAME)
    }

    /// Calls a tool under either spelling. `None`: there is no such tool.
    pub(crate) async fn call(
        &self,
        name: &str,
        arguments: &Arguments,
        caller: &Caller,
    ) -> Option<Answer> {
        let tool = self.tools().find(|tool| means(name, tool.name))?;
        let Ok(_permit) = self.calls.try_acquire() else {
            let sentence =
                format!("{CALLS_MAX} calls are under way already; wait for their answers");
            let (reply, along) = (Err(sentence), None);
            return Some(Answer { reply, along });
        };
        if !tool.acks {
            self.note(arguments);
        }
        let refused = unknown(tool, arguments).or_else(|| self.unlinked(tool.link));
        let reply = match refused {
            Some(sentence) => Err(sentence),
            None => {
                let context = Context {
                    bus: &self.bus,
                    mailbox: &self.mailbox,
                    caller,
                };
                let reply = (tool.run)(&context, arguments).await;
                match arguments.replaced {
                    true => reply.map(|reply| reply.saying(REPLACED, REPLACED_WORDS)),
                    false => reply,
                }
            }
        };
        if tool.acks {
            self.mailbox.machine(|it, now_ms| it.called(now_ms));
        }
        let along = match &reply {
            Ok(_) if tool.reads => None,
            _ => {
                self.mailbox.confirm_alive().await;
                self.mailbox.along(&PIGGYBACK)
            }
        };
        Some(Answer { reply, along })
    }

    /// What a call shows, whatever comes of it: the agent goes on, and has seen what it names.
    fn note(&self, arguments: &Arguments) {
        for member in ["msg_id", "reply_to"] {
            if let Ok(id) = arguments.string(member) {
                self.mailbox.named(&id, None);
            }
        }
        self.mailbox.machine(|it, now_ms| it.called(now_ms));
    }

    /// Why nothing can be asked of the broker before somebody does something about it.
    fn unlinked(&self, needed: Link) -> Option<String> {
        let state = self.bus.link().borrow().clone();
        let remedy = match (needed, &state) {
            (Link::Needed, LinkState::Refused { .. }) => {
                ". The bus rename tool gives this session another name"
            }
            (Link::Needed | Link::EvenRefused, LinkState::NeedCredentials { .. }) => "",
            _ => return None,
        };
        Some(format!("not connected to the bus: {state}{remedy}"))
    }
}

/// What is said of an argument that a tool does not have. Clients' own begin with `_`.
fn unknown(tool: &Tool, arguments: &Arguments) -> Option<String> {
    let mut known: Vec<_> = tool.input.iter().map(|it| it.name.to_owned()).collect();
    known.sort_unstable();
    let strange = |name: &&str| !name.starts_with('_') && !known.iter().any(|it| it == name);
    let name = arguments.names().find(strange)?;
    let near = match similar(&known, name).as_slice() {
        [] => ".".to_owned(),
        near => format!("; did you mean {}?", near.join(" or ")),
    };
    Some(format!(
        "nothing was done: {} has no argument \"{}\"{near} It has: {}",
        tool.name,
        escape(name, NAME_CHARS),
        known.join(", ")
    ))
}

/// The client's process: a shell or a wrapper between it and us hands on what it was given itself.
fn starter() -> u32 {
    let above = peerbus_os::process::starters(std::process::id());
    let client = above.last().copied();
    client.unwrap_or_else(std::os::unix::process::parent_id)
}
