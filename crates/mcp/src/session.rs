//! What a client is served: the bus tools, instructions, and what only channels have.

use std::sync::{Arc, OnceLock};

use peerbus_adapter::{Bus, LinkState};
use tokio::sync::{Semaphore, watch};

use crate::arguments::Arguments;
use crate::desk::{Desk, Taken};
use crate::options::Options;
use crate::presence;
use crate::rpc::Caller;
use crate::spelling::{Spelling, means};
use crate::tools::{self, Context, Link, Tool};

/// Tool calls that are answered at a time; a client that asks for more is told so.
const CALLS_MAX: usize = 256;

/// What an adapter is, to its client and to its peers.
#[derive(Debug, Clone)]
pub struct Profile {
    /// The kind of adapter, as peers are told: `cc` or `generic`.
    pub kind: &'static str,
    /// What the agent is told about the bus.
    pub instructions: &'static str,
    /// Keys under `experimental` in the capabilities, each with an empty object.
    pub experimental: &'static [&'static str],
    /// There is a drain tool.
    pub drain: bool,
}

/// The result of a tool call.
pub(crate) enum Reply {
    /// It did what it says.
    Done {
        /// JSON text of an object.
        structured: String,
        /// Mail that is acked once the answer has left.
        taken: Option<Taken>,
    },
    /// It did not: a sentence that the agent can act on.
    Failed(String),
}

impl Reply {
    /// Has this acked once the answer has left.
    pub(crate) fn with(self, mail: Taken) -> Self {
        match self {
            Self::Done { structured, .. } => Self::Done {
                structured,
                taken: Some(mail),
            },
            failed @ Self::Failed(_) => failed,
        }
    }
}

/// What a client gets for a call.
pub(crate) struct Answer {
    pub(crate) reply: Reply,
    /// What goes along with it: text, and what is told once that has left.
    pub(crate) along: Option<(String, Taken)>,
}

/// One client's session.
pub(crate) struct Session {
    pub(crate) bus: Bus,
    pub(crate) profile: Profile,
    pub(crate) desk: Desk,
    options: Options,
    client: OnceLock<Client>,
    calls: Semaphore,
    pub(crate) initialized: watch::Sender<bool>,
}

/// Who the client says it is.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) name: String,
    pub(crate) version: String,
}

impl Session {
    pub(crate) fn new(bus: Bus, profile: Profile, options: Options) -> Arc<Self> {
        Arc::new(Self {
            desk: Desk::new(bus.clone(), &options),
            bus,
            profile,
            options,
            client: OnceLock::new(),
            calls: Semaphore::new(CALLS_MAX),
            initialized: watch::channel(false).0,
        })
    }

    /// The client introduced itself: peers are told who is here.
    pub(crate) fn met(&self, client: Client) {
        self.desk.met(presence::of(&self.profile, &client));
        // A client that initializes twice keeps the spelling that it was shown.
        let _ = self.client.set(client);
    }

    /// How tools are spelled to this client.
    pub(crate) fn spelling(&self) -> Spelling {
        let client = self.client.get().map_or("", |client| client.name.as_str());
        self.options
            .tool_names
            .unwrap_or_else(|| Spelling::for_client(client))
    }

    /// The tools that this client is shown.
    pub(crate) fn tools(&self) -> impl Iterator<Item = &'static Tool> {
        let drain = self.profile.drain;
        tools::all()
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
            return Some(Answer {
                reply: Reply::Failed(sentence),
                along: None,
            });
        };
        if !tool.acks {
            self.note(arguments);
        }
        let reply = match self.unlinked(tool.link) {
            Some(sentence) => Reply::Failed(sentence),
            None => {
                let context = Context {
                    bus: &self.bus,
                    desk: &self.desk,
                    caller,
                };
                let reply = (tool.run)(&context, arguments).await;
                reply.unwrap_or_else(Reply::Failed)
            }
        };
        if tool.acks {
            self.desk.called();
        }
        let along = match &reply {
            Reply::Done { .. } if tool.reads => None,
            _ => self.desk.piggyback(),
        };
        Some(Answer { reply, along })
    }

    /// What a call shows, whatever comes of it: the agent goes on, and has seen what it names.
    fn note(&self, arguments: &Arguments) {
        for member in ["msg_id", "reply_to"] {
            if let Ok(id) = arguments.string(member) {
                self.desk.named(&id);
            }
        }
        self.desk.called();
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
