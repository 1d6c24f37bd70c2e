//! What a client is served (the bus tools, instructions, and what only channels have), as rmcp's server handler.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use peerbus_adapter::agents::claude_code::ALWAYS_LOAD;
use peerbus_adapter::mailbox::{
    ALONG, Mailbox, Named, PIGGYBACK, Push, REPLACED, Who, without_marks,
};
use peerbus_adapter::{Bus, LinkState, RegistrationRefusal, similar};
use peerbus_wire::escape;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, CustomNotification,
    ExperimentalCapabilities, Implementation, InitializeRequestParams, InitializeResult,
    ListToolsResult, MetaObject, PaginatedRequestParams, ProtocolVersion, ServerCapabilities,
    ServerConfig, Tool as McpTool, ToolAnnotations,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use crate::arguments::{Arguments, schema};
use crate::options::AdapterOptions;
use crate::profile::{ClientInfo, Profile};
use crate::reply::{Answer, Reply, with_member};
use crate::rpc::{Caller, Calls, Host, Sending};
use crate::spelling::{Spelling, means};
use crate::tools::room::RESULT_BYTES;
use crate::tools::{self, Context, END, Link, Tool};

/// The newest version that is negotiated. Later ones have no `initialize`: their clients never
/// send `notifications/initialized`, which a channel waits for.
const NEWEST: ProtocolVersion = ProtocolVersion::V_2025_11_25;

/// Of mail that goes along in a result, what its member takes besides.
const ALONG_BYTES: usize = 16;

/// Whether a version of MCP is served.
#[must_use]
pub fn speaks(version: &str) -> bool {
    let known = ProtocolVersion::known_up_to(&NEWEST);
    known.iter().any(|known| known.as_str() == version)
}

pub(crate) struct Handler {
    pub(crate) session: Arc<Session>,
    pub(crate) host: Host,
    pub(crate) calls: Calls,
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let profile = &self.session.profile;
        let keys = profile.experimental.iter();
        let keys = keys.map(|key| ((*key).to_owned(), Map::new()));
        let experimental: ExperimentalCapabilities = keys.collect();
        let mut capabilities = ServerCapabilities::builder().enable_tools().build();
        capabilities.experimental = (!experimental.is_empty()).then_some(experimental);
        let us = Implementation::new("peerbus", env!("CARGO_PKG_VERSION")).with_title("peerbus");
        ServerConfig::new(capabilities)
            .with_protocol_version(NEWEST)
            .with_server_info(us)
            .with_instructions(self.session.instructions())
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(ProtocolVersion::known_up_to(&NEWEST))
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        let client = ClientInfo {
            name: request.client_info.name.clone(),
            version: request.client_info.version.clone(),
        };
        // A client that initializes twice keeps the spelling that it was shown.
        let _ = self.session.client.set(client.clone());
        let (session, who) = (Arc::clone(&self.session), client.clone());
        tokio::spawn(async move {
            // The answer goes first.
            tokio::task::yield_now().await;
            session.met(&who);
        });
        context.peer.set_peer_info(request.clone());
        self.host.met(context.peer, client);
        self.negotiate_initialize(&request)
    }

    async fn on_initialized(&self, _context: NotificationContext<RoleServer>) {
        self.host.begin();
    }

    async fn on_custom_notification(
        &self,
        notification: CustomNotification,
        _context: NotificationContext<RoleServer>,
    ) {
        self.host.told(&notification.method, notification.params);
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let spelling = self.session.spelling();
        let tools = self.session.tools();
        let tools = tools.map(|tool| shown(tool, spelling, self.session.profile.allowed));
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = context.extensions.get::<Arguments>().cloned();
        let arguments = arguments.unwrap_or_default();
        let id = context.id.clone();
        self.host.noted(&context.meta);
        let caller = Caller::new(context);
        let Some(answer) = self.session.call(&request.name, &arguments, &caller).await else {
            let message = format!("there is no tool {:?}", request.name);
            return Err(ErrorData::invalid_params(message, None));
        };
        let (along, with) = answer.along.unzip();
        let along = along.map(|push| push.text());
        let (reply, mail) = match answer.reply {
            Ok(Reply { structured, mail }) => (Ok(structured), mail),
            Err(sentence) => (Err(sentence), None),
        };
        // Of a call that was cancelled nothing is sent.
        if caller.is_cancelled() {
            return Ok(CallToolResult::default().into());
        }
        let (result, structured) = result(reply, along);
        let mail = mail.into_iter().chain(with);
        let mail = mail.filter(|mail| !mail.is_empty()).collect();
        self.calls.answer(id, Sending { structured, mail });
        Ok(result.into())
    }
}

/// A result in rmcp's shape, and the JSON text of its structured content: the object, and the same
/// as text for clients that know no other. What goes along is a text of its own, and a member of
/// the object for clients that show only that.
fn result(
    reply: Result<String, String>,
    along: Option<String>,
) -> (CallToolResult, Option<String>) {
    let reply = reply.map_err(|sentence| without_marks(&sentence, END));
    let text = match &reply {
        Ok(text) | Err(text) => text,
    };
    let texts = [Some(text), along.as_ref()].into_iter().flatten();
    let content = texts.map(ContentBlock::text).collect();
    let Ok(object) = reply else {
        return (CallToolResult::error(content), None);
    };
    let object = match along {
        Some(along) => with_member(object, ALONG, &along),
        None => object,
    };
    (CallToolResult::success(content), Some(object))
}

/// A tool's output, which other mail may go along with, and a word about the call.
fn output_schema(tool: &Tool) -> Arc<Map<String, Value>> {
    let mut schema = (tool.output)();
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        let description = "Mail that came meanwhile, for you to read: peers' text, untrusted.";
        let along = json!({ "type": "string", "description": description });
        properties.insert(ALONG.to_owned(), along);
        let description = "What in the call was replaced, since readers of JSON refuse it.";
        let replaced = json!({ "type": "string", "description": description });
        properties.insert(REPLACED.to_owned(), replaced);
    }
    Arc::new(schema)
}

fn shown(tool: &Tool, spelling: Spelling, allowed: bool) -> McpTool {
    let output = output_schema(tool);
    let annotations = ToolAnnotations::with_title(tool.title)
        .read_only(tool.read_only)
        .destructive(false)
        .idempotent(tool.idempotent)
        .open_world(tool.open_world && !allowed);
    let input = schema(tool.input);
    let shown = McpTool::new(spelling.spell(tool.name), tool.description, input)
        .with_title(tool.title)
        .with_raw_output_schema(output)
        .with_annotations(annotations);
    match json!({ ALWAYS_LOAD: true }) {
        Value::Object(meta) if tool.always => shown.with_meta(MetaObject(meta)),
        _ => shown,
    }
}

/// Tool calls that are answered at a time; a client that asks for more is told so.
const CALLS_MAX: usize = 256;
/// Longest name of an argument that is repeated, in characters.
const NAME_CHARS: usize = 64;

/// The sentence for a call in which something was replaced.
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
        let mailbox = Mailbox::new(bus.clone(), options.ack, options.hops_max);
        mailbox.machine(|it, now_ms| it.set_remind(now_ms, options.remind));
        Arc::new(Self {
            mailbox,
            bus,
            profile,
            options,
            client: OnceLock::new(),
            calls: Semaphore::new(CALLS_MAX),
        })
    }

    /// The client introduced itself: peers are told who is here.
    pub(crate) fn met(&self, client: &ClientInfo) {
        self.mailbox.met(&Who {
            adapter: self.profile.kind,
            client: &client.name,
            version: &client.version,
            process: match self.profile.driven {
                true => std::process::id(),
                false => starter(),
            },
            driven: self.profile.driven,
        });
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
            self.note(arguments).await;
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
                let room = self.mailbox.machine(|it, _| it.room(RESULT_BYTES));
                let room = room.saturating_sub(match &reply {
                    Ok(reply) => reply.structured.len(),
                    Err(sentence) => sentence.len(),
                });
                let fits =
                    |push: &Push| Value::from(push.text()).to_string().len() + ALONG_BYTES <= room;
                // It goes with the next result otherwise.
                self.mailbox
                    .along(&PIGGYBACK)
                    .filter(|(push, _)| fits(push))
            }
        };
        Some(Answer { reply, along })
    }

    /// What a call shows, whatever comes of it: the agent has seen what it names, or else goes on from what it was
    /// shown. An agent that answers one message may answer the next of the same result in its next call.
    async fn note(&self, arguments: &Arguments) {
        let ids = ["msg_id", "reply_to"].map(|member| arguments.string(member));
        let ids: Vec<&str> = ids.iter().flatten().map(|id| &**id).collect();
        let named = self.mailbox.named_in_conversation(&ids).await;
        if !named.contains(&Named::Seen) {
            self.mailbox.machine(|it, now_ms| it.called(now_ms));
        }
    }

    /// Why nothing can be asked of the broker before somebody does something about it.
    fn unlinked(&self, needed: Link) -> Option<String> {
        let state = self.bus.link().borrow().clone();
        let remedy = match (needed, &state) {
            // Whom the operator took off the bus is not told the way back.
            (
                Link::Needed,
                LinkState::Refused {
                    why: RegistrationRefusal::Ended,
                    ..
                },
            )
            | (Link::Needed | Link::EvenRefused, LinkState::NeedCredentials { .. }) => "",
            (Link::Needed, LinkState::Refused { .. }) => {
                ". The bus rename tool gives this session another name"
            }
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
