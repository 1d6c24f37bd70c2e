//! The session as rmcp's server handler.

use std::borrow::Cow;
use std::sync::Arc;

use peerbus_adapter::agents::claude_code::ALWAYS_LOAD;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, CustomNotification,
    ExperimentalCapabilities, Implementation, InitializeRequestParams, InitializeResult,
    ListToolsResult, MetaObject, PaginatedRequestParams, ProtocolVersion, ServerCapabilities,
    ServerConfig, Tool as McpTool, ToolAnnotations,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Map, Value, json};

use crate::arguments::{Arguments, schema};
use crate::profile::ClientInfo;
use crate::reply::{Reply, with_member};
use crate::rpc::{Caller, Calls, Host, Sending};
use crate::session::{REPLACED, Session};
use crate::spelling::Spelling;
use crate::tools::Tool;

/// The newest version that is negotiated. Later ones have no `initialize`: their clients never
/// send `notifications/initialized`, which a channel waits for.
const NEWEST: ProtocolVersion = ProtocolVersion::V_2025_11_25;

/// The member of a result in which mail goes along.
const ALONG: &str = "unseen";

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
        self.session.met(client.clone());
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
        let tools = self.session.tools().map(|tool| shown(tool, spelling));
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

fn shown(tool: &Tool, spelling: Spelling) -> McpTool {
    let output = output_schema(tool);
    let annotations = ToolAnnotations::with_title(tool.title)
        .read_only(tool.read_only)
        .destructive(false)
        .idempotent(tool.idempotent)
        .open_world(tool.open_world);
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
