//! Lists the methods of the host in one table.
//!
//! Each row has the method's name, its access class (for the gate and the audit log), its entry in the OpenRPC
//! document, and its handler. The methods of workers are in [`worker`].

use std::{borrow::Cow, sync::LazyLock};

use bytes::Bytes;
use futures::{FutureExt as _, future::BoxFuture};
use guild_auth::{Access, Audit, Authorized, Caller, Operation};
use guild_contract::rpc::{RpcError, code, method};
use guild_hall::operations::{HallOperation, OPERATIONS};
use guild_roster::to_json;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{
    input::params::{Params, shown},
    mcp::{Answered, CallOptions, Failure, Identity, Server, TOOLS_CALL, TOOLS_LIST, hall::run},
    operations::{
        openrpc::{self, Common, Content, Shapes},
        operator::{self, HostMethod},
        worker::{self, WorkerMethod},
    },
};

/// Versions of MCP with `initialize`, newest first.
const MCP_VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// The documentation of MCP's tool methods.
const TOOLS: &str = "https://modelcontextprotocol.io/specification/2025-11-25/server/tools";
const PROMPTS: &str = "https://modelcontextprotocol.io/specification/2025-11-25/server/prompts";
const RESOURCES: &str = "https://modelcontextprotocol.io/specification/2025-11-25/server/resources";

/// The method that reads a resource.
pub(crate) const RESOURCES_READ: &str = "resources/read";

/// A method of the host.
struct Method {
    operation: Operation<'static>,
    /// The entry in the OpenRPC document; none for methods that only the SDK handles.
    describe: Option<fn(&mut Shapes) -> openrpc::Method>,
    handler: Handler,
}

/// The handler of a method.
#[derive(Clone, Copy)]
enum Handler {
    /// The server of the endpoint.
    Endpoint(for<'a> fn(Request<'a>) -> BoxFuture<'a, Result<Bytes, RpcError>>),
    /// The worker, at its own endpoint.
    Worker(&'static WorkerMethod),
    /// The host itself, at its own endpoint.
    Host(&'static HostMethod),
    /// A tool. The gate checks the access class of the tool, not of the method.
    Tool,
    /// The hall, at its own endpoint.
    Hall(&'static HallOperation),
    /// The SDK, for MCP clients that have sessions or use a later version.
    Sdk,
}

/// A request with the context of its handler.
struct Request<'a> {
    server: &'a Server,
    caller: &'a Caller,
    params: Option<&'a str>,
}

impl Request<'_> {
    fn params(&self) -> Result<Params, RpcError> {
        Params::read(self.params)
    }
}

const fn of_worker(method: &'static WorkerMethod) -> Method {
    Method { operation: method.operation(), describe: Some(method.describe), handler: Handler::Worker(method) }
}

const fn of_host(method: &'static HostMethod) -> Method {
    Method { operation: method.operation, describe: Some(method.describe), handler: Handler::Host(method) }
}

const fn of_sdk(name: &'static str, access: Access) -> Method {
    Method { operation: Operation { name, access }, describe: None, handler: Handler::Sdk }
}

static METHODS: [Method; 35] = [
    Method {
        operation: Operation { name: "initialize", access: Access::Open },
        describe: Some(|shapes| {
            openrpc::Method::new(
                "initialize",
                "Negotiates a version of MCP. `worker/*` does not need this method.",
                vec![Content::optional("protocolVersion", text())],
                Content::required("initialized", shapes.of::<Initialized<'static>>()),
            )
            .refuses("`protocolVersion` is not a text.")
            .described_at("https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle")
        }),
        handler: Handler::Endpoint(|request| {
            Box::pin(async move { Ok(to_json(&initialize(request.server, request.caller, request.params()?)?)) })
        }),
    },
    Method {
        operation: Operation { name: "ping", access: Access::Open },
        describe: Some(|_| {
            openrpc::Method::new(
                "ping",
                "Answers with an empty object.",
                Vec::new(),
                Content::required("pong", object()),
            )
            .refuses("The parameters are not an object.")
            .described_at("https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/ping")
        }),
        handler: Handler::Endpoint(|request| {
            Box::pin(async move { request.params().map(|_| Bytes::from_static(b"{}")) })
        }),
    },
    Method {
        operation: TOOLS_LIST,
        describe: Some(|_| {
            of_list(TOOLS_LIST.name, "tools", "Lists the member's tools; the list may be empty.", TOOLS)
        }),
        handler: Handler::Endpoint(|request| {
            Box::pin(async move {
                request.params()?;
                Ok(to_json(&json!({"tools": request.server.tools(request.caller).await?})))
            })
        }),
    },
    Method {
        operation: TOOLS_CALL,
        describe: Some(|_| {
            let outcome = json!({
                "type": "object",
                "properties": {
                    "content": {"type": "array", "items": object()},
                    "structuredContent": object(),
                    "isError": {"type": "boolean"},
                },
                "required": ["content"],
            });
            openrpc::Method::new(
                TOOLS_CALL.name,
                "Calls one of the member's tools.",
                vec![Content::required("name", text()), Content::optional("arguments", object())],
                Content::required("outcome", outcome),
            )
            .refuses("The member has no such tool; or a parameter is missing, or of the wrong type.")
            .described_at(TOOLS)
        }),
        handler: Handler::Tool,
    },
    Method {
        operation: Operation { name: "prompts/list", access: Access::Open },
        describe: Some(|_| {
            let summary = "Lists the prompts: a member has none, and its dispatch server has one.";
            of_list("prompts/list", "prompts", summary, PROMPTS)
        }),
        handler: Handler::Endpoint(|request| {
            Box::pin(async move {
                request.params()?;
                Ok(to_json(&json!({"prompts": request.server.prompts(request.caller)})))
            })
        }),
    },
    Method {
        operation: Operation { name: "prompts/get", access: Access::Open },
        describe: Some(|_| {
            openrpc::Method::new(
                "prompts/get",
                "Returns a prompt.",
                vec![Content::required("name", text())],
                Content::required("prompt", object()),
            )
            .refuses("There is no such prompt.")
            .described_at(PROMPTS)
        }),
        handler: Handler::Endpoint(|request| {
            Box::pin(async move {
                let prompt = request.server.prompt(request.caller, &request.params()?.text("name")?)?;
                let message = json!({"role": "user", "content": {"type": "text", "text": prompt.text}});
                Ok(to_json(&json!({"description": prompt.description, "messages": [message]})))
            })
        }),
    },
    Method {
        operation: Operation { name: "resources/templates/list", access: Access::Open },
        describe: Some(|_| {
            let summary = "Lists the URI templates of the member's resources.";
            of_list("resources/templates/list", "resourceTemplates", summary, RESOURCES)
        }),
        handler: Handler::Endpoint(|request| {
            Box::pin(async move {
                request.params()?;
                Ok(to_json(&json!({"resourceTemplates": request.server.templates(request.caller)})))
            })
        }),
    },
    Method {
        operation: Operation { name: "resources/list", access: Access::Reads },
        describe: Some(|_| {
            let page = json!({
                "type": "object",
                "properties": {"resources": {"type": "array", "items": object()}, "nextCursor": text()},
                "required": ["resources"],
            });
            openrpc::Method::new(
                "resources/list",
                "Lists the statuses, reports and files of the member's jobs, newest first, page by page.",
                vec![Content::optional("cursor", text())],
                Content::required("list", page),
            )
            .refuses("`cursor` is not from this host; or the parameters are not an object.")
            .described_at(RESOURCES)
        }),
        handler: Handler::Endpoint(|request| {
            Box::pin(async move {
                let cursor = request.params()?.optional_text("cursor")?;
                Ok(to_json(&request.server.resources(request.caller, cursor.as_deref()).await?))
            })
        }),
    },
    Method {
        operation: Operation { name: RESOURCES_READ, access: Access::Reads },
        describe: Some(|_| {
            openrpc::Method::new(
                RESOURCES_READ,
                "Returns the contents of a resource.",
                vec![Content::required("uri", text())],
                Content::required("contents", object()),
            )
            .refuses("There is no such resource; or it is larger than `limits.result_bytes`.")
            .described_at(RESOURCES)
        }),
        handler: Handler::Endpoint(|request| {
            Box::pin(async move {
                let uri = request.params()?.text("uri")?;
                Ok(to_json(&json!({"contents": [request.server.read(request.caller, &uri).await?]})))
            })
        }),
    },
    Method {
        operation: Operation { name: method::DISCOVER, access: Access::Open },
        describe: Some(|_| {
            // The schema does not declare this as an OpenRPC document, so that clients need not fetch the schema of
            // one.
            let document = Content::required("document", object());
            openrpc::Method::new(method::DISCOVER, "Returns this document.", Vec::new(), document)
                .described_at("https://spec.open-rpc.org/#service-discovery-method")
        }),
        // Clients of this method send arbitrary parameters.
        handler: Handler::Endpoint(|request| Box::pin(async move { Ok(document(request.server)) })),
    },
    of_worker(&worker::DISPATCH),
    of_worker(&worker::LIST),
    of_worker(&worker::JOBS),
    of_worker(&worker::STATUS),
    of_worker(&worker::USAGE),
    of_worker(&worker::TASK),
    of_worker(&worker::RESULT),
    of_worker(&worker::LOG),
    of_worker(&worker::CANCEL),
    of_worker(&worker::DELETE),
    of_worker(&worker::RESUME),
    of_host(&operator::DOCTOR),
    of_host(&operator::LIMITS),
    of_host(&operator::CLUSTER),
    of_host(&operator::AUDIT),
    of_host(&operator::MEMBER),
    of_host(&operator::APPROVE),
    of_host(&operator::FORGET),
    of_sdk("server/discover", Access::Open),
    of_sdk("subscriptions/listen", Access::Open),
    of_sdk("logging/setLevel", Access::Open),
    of_sdk("completion/complete", Access::Open),
    of_sdk("tasks/get", Access::Reads),
    of_sdk("tasks/update", Access::Reads),
    of_sdk("tasks/cancel", Access::Ends),
];

/// A method that was looked up in the table.
struct Asked<'a> {
    /// The operation that the gate checks.
    operation: Operation<'a>,
    /// None if the host has no such method.
    handler: Option<Handler>,
}

impl<'a> Asked<'a> {
    fn of(name: &'a str) -> Self {
        let unknown = if name.starts_with("notifications/") { Access::Notification } else { Access::Unknown };
        if let Some(Method { operation, handler, .. }) = METHODS.iter().find(|method| method.operation.name == name) {
            return Self { operation: *operation, handler: Some(*handler) };
        }
        match HallOperation::of_method(name) {
            Some(found) => Self {
                operation: Operation { name: found.row.name, access: found.row.access },
                handler: Some(Handler::Hall(found)),
            },
            None => Self { operation: Operation { name, access: unknown }, handler: None },
        }
    }

    async fn carry_out(
        &self,
        server: &Server,
        caller: &Caller,
        params: Option<&str>,
        audit: Audit,
    ) -> Result<Bytes, RpcError> {
        let not_found = |why: &str| {
            let message = format!("Method not found: {}{why}", shown(self.operation.name));
            Err(RpcError::new(code::METHOD_NOT_FOUND, message))
        };
        match (self.handler, server) {
            (Some(Handler::Worker(method)), Server::Member(member)) => {
                method.call(member, caller, Params::read(params), &audit).await
            }
            (Some(Handler::Hall(operation)), Server::Hall(hall)) => {
                let input = Params::read(params)?.into_object();
                Ok(to_json(&run(operation, hall, caller, input, audit, None).await?))
            }
            (Some(Handler::Host(method)), Server::Host(host)) => {
                (method.run)(host, caller, Params::read(params)?, &audit).await
            }
            (Some(Handler::Host(_)), _) => not_found("; the host's endpoint, /host/mcp, has it"),
            (Some(Handler::Hall(_)), _) => not_found("; the hall's endpoint, /hall/mcp, has it"),
            (Some(Handler::Worker(_)), _) => {
                not_found("; a member's own endpoint has it, in a roster /members/KEY/mcp (--member KEY)")
            }
            (Some(Handler::Endpoint(handle)), server) => handle(Request { server, caller, params }).await,
            (Some(Handler::Tool | Handler::Sdk) | None, _) => not_found(""),
        }
    }
}

/// The operation that the gate checks for a method.
pub(crate) fn operation(name: &str) -> Operation<'_> {
    Asked::of(name).operation
}

/// Carries out a request if its caller is permitted to make it, and returns its result as JSON.
///
/// # Errors
///
/// Returns the refusal of the gate or of the method.
pub(crate) async fn call(server: &Server, caller: &Caller, name: &str, params: Option<&str>) -> Result<Bytes, Failure> {
    let asked = Asked::of(name);
    if let Some(Handler::Tool) = asked.handler {
        // Boxed as a trait object, so that the compiler need not look into components for each request.
        return call_tool(server, caller, params).boxed().await;
    }
    let authorized = caller.authorize(server.key(), asked.operation)?;
    Ok(authorized.run(async |audit| asked.carry_out(server, caller, params, audit).await).await?)
}

/// Calls a method like [`call`], after the gate has admitted the operation.
///
/// # Errors
///
/// Returns the refusal of the method.
pub(crate) async fn call_authorized(
    authorized: &Authorized,
    server: &Server,
    caller: &Caller,
    name: &str,
    params: Option<&str>,
) -> Result<Bytes, RpcError> {
    authorized.run(async |audit| Asked::of(name).carry_out(server, caller, params, audit).await).await
}

/// Handles `tools/call` for a client without a session.
async fn call_tool(server: &Server, caller: &Caller, params: Option<&str>) -> Result<Bytes, Failure> {
    let mut params = Params::read(params)?;
    let (name, arguments) = (params.text("name")?, params.object("arguments")?.unwrap_or_default());
    match server.call(caller, &name, arguments, CallOptions::default()).await? {
        Answered::Called(called) => Ok(to_json(&called)),
        // A caller receives a task only on request.
        Answered::Task(..) => Err(RpcError::internal("a call without tasks was answered with one").into()),
    }
}

fn text() -> Value {
    json!({"type": "string"})
}

fn object() -> Value {
    json!({"type": "object"})
}

/// The entry of an MCP method that lists items under `key`.
fn of_list(name: &'static str, key: &str, summary: &'static str, url: &str) -> openrpc::Method {
    let list = json!({
        "type": "object",
        "properties": {key: {"type": "array", "items": {"type": "object"}}},
        "required": [key],
    });
    let method = openrpc::Method::new(name, summary, Vec::new(), Content::required("list", list));
    method.refuses("The parameters are not an object.").described_at(url)
}

/// The common part of all workers' documents.
static OF_WORKERS: LazyLock<Common> =
    LazyLock::new(|| Common::new(described(|handler| matches!(handler, Handler::Worker(_)))));
/// The document of the host itself.
static OF_HOST: LazyLock<Common> =
    LazyLock::new(|| Common::new(described(|handler| matches!(handler, Handler::Host(_)))));
/// The document of the hall.
static OF_HALL: LazyLock<Common> = LazyLock::new(|| {
    Common::with(described(|_| false), |shapes| {
        let methods = OPERATIONS.iter().filter(|operation| operation.is_method());
        methods.map(|operation| shapes.of_hall(operation)).collect()
    })
});
/// The common part of all other documents.
static OF_OTHERS: LazyLock<Common> = LazyLock::new(|| Common::new(described(|_| false)));

/// The entries of the methods of all endpoints, and of those with a handler that is `included`.
fn described(included: fn(&Handler) -> bool) -> impl Iterator<Item = fn(&mut Shapes) -> openrpc::Method> {
    let is_of_all = |handler: &Handler| !matches!(handler, Handler::Worker(_) | Handler::Host(_));
    let has = move |method: &&Method| is_of_all(&method.handler) || included(&method.handler);
    METHODS.iter().filter(has).filter_map(|method| method.describe)
}

/// The OpenRPC document of an endpoint.
fn document(server: &Server) -> Bytes {
    let identity = server.identity();
    let (common, description): (&Common, _) = match server {
        Server::Member(member) if member.manifest().is_worker() => (&OF_WORKERS, &*member.manifest().description),
        Server::Member(member) => (&OF_OTHERS, &*member.manifest().description),
        Server::Hall(_) => (&OF_HALL, identity.title.as_deref().unwrap_or_default()),
        Server::Host(_) => (&OF_HOST, identity.title.as_deref().unwrap_or_default()),
        _ => (&OF_OTHERS, identity.title.as_deref().unwrap_or_default()),
    };
    common.document(&identity.name, &identity.version, description)
}

/// The result of `initialize`, in the form of MCP.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Initialized<'a> {
    protocol_version: &'static str,
    capabilities: Capabilities,
    server_info: Identity<'a>,
    /// Instructions for working with the server's workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<Cow<'a, str>>,
}

#[derive(Serialize, JsonSchema)]
struct Capabilities {
    /// The tools capability, also for members that are only workers: without it, clients do not call `tools/list`.
    tools: Map<String, Value>,
    /// The prompts capability, if there are workers or may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompts: Option<Map<String, Value>>,
    /// The resources capability, if there are jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<Map<String, Value>>,
}

fn initialize<'a>(server: &'a Server, caller: &Caller, mut params: Params) -> Result<Initialized<'a>, RpcError> {
    let asked = params.optional_text("protocolVersion")?;
    let known = MCP_VERSIONS.into_iter().find(|version| asked.as_deref() == Some(version));
    let [newest, ..] = MCP_VERSIONS;
    let offers = server.offers();
    Ok(Initialized {
        protocol_version: known.unwrap_or(newest),
        capabilities: Capabilities {
            tools: Map::new(),
            prompts: offers.prompts.then(Map::new),
            resources: offers.resources.then(Map::new),
        },
        server_info: server.identity(),
        instructions: server.instructions(caller).map(Cow::Owned),
    })
}
