//! `rpc.discover`: what a member's endpoint answers to, as an OpenRPC document that is made from the types of the wire.

use std::sync::LazyLock;

use bytes::Bytes;
use guild_contract::rpc::{
    CancelView, Deleted, DispatchParams, Dispatched, JobList, JobParams, ListParams, ResultView, StatusView, code,
    method,
};
use schemars::{
    JsonSchema,
    generate::{SchemaGenerator, SchemaSettings},
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{mcp::Server, methods::Initialized};
use guild_roster::to_json;

/// The version of OpenRPC that the document keeps to. Nothing in it needs a later one, and many tools know none.
const OPENRPC: &str = "1.3.2";

/// What any request can be answered with, whatever its method: name, code, and when.
const ERRORS: [(&str, i32, &str); 5] = [
    ("ParseError", code::PARSE_ERROR, "The body is not JSON."),
    ("InvalidRequest", code::INVALID_REQUEST, "The body is JSON, but no request; or it nests too deep."),
    ("InternalError", code::INTERNAL_ERROR, "The host could not do it."),
    (
        "Busy",
        code::BUSY,
        "The host, or in a batch the caller's token, is at a limit; the same request may succeed later.",
    ),
    ("Forbidden", code::FORBIDDEN, "In a batch: the caller's token is not for this method."),
];

/// Where MCP describes its methods.
const TOOLS: &str = "https://modelcontextprotocol.io/specification/2025-11-25/server/tools";
const PROMPTS: &str = "https://modelcontextprotocol.io/specification/2025-11-25/server/prompts";
const RESOURCES: &str = "https://modelcontextprotocol.io/specification/2025-11-25/server/resources";

/// What all workers' documents have in common.
static WORKER: LazyLock<Common> = LazyLock::new(|| Common::new(true));
/// What the documents of all other members have in common.
static OTHER: LazyLock<Common> = LazyLock::new(|| Common::new(false));

/// The document of an endpoint.
pub(crate) fn document(server: &Server) -> Bytes {
    let host = Host { name: "guild", version: env!("CARGO_PKG_VERSION") };
    let identity = server.identity();
    let (common, description): (&Common, _) = match server {
        Server::Member(member) if member.manifest().is_worker() => (&WORKER, &*member.manifest().description),
        Server::Member(member) => (&OTHER, &*member.manifest().description),
        _ => (&OTHER, identity.title.as_deref().unwrap_or_default()),
    };
    let info = Info { title: &identity.name, version: &identity.version, description, host };
    to_json(&Document { openrpc: OPENRPC, info, common })
}

#[derive(Serialize)]
struct Document<'a> {
    openrpc: &'static str,
    info: Info<'a>,
    #[serde(flatten)]
    common: &'a Common,
}

#[derive(Serialize)]
struct Info<'a> {
    title: &'a str,
    version: &'a str,
    description: &'a str,
    #[serde(rename = "x-host")]
    host: Host,
}

/// What serves the member.
#[derive(Serialize)]
struct Host {
    name: &'static str,
    version: &'static str,
}

#[derive(Serialize)]
struct Common {
    methods: Vec<Method>,
    components: Value,
}

impl Common {
    fn new(worker: bool) -> Self {
        let mut shapes = Shapes::new();
        let mut methods = shapes.of_all();
        if worker {
            methods.extend(shapes.of_workers());
        }
        let errors: Map<String, Value> =
            ERRORS.into_iter().map(|(name, code, when)| (name.to_owned(), error(code, when))).collect();
        Self { methods, components: json!({"schemas": shapes.0.take_definitions(true), "errors": errors}) }
    }
}

/// A method, as OpenRPC tells of it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Method {
    name: &'static str,
    summary: &'static str,
    param_structure: &'static str,
    params: Vec<Content>,
    result: Content,
    errors: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    external_docs: Option<Value>,
}

/// A parameter or a result.
#[derive(Serialize)]
struct Content {
    name: String,
    required: bool,
    schema: Value,
}

impl Content {
    fn required(name: &str, schema: Value) -> Self {
        Self { name: name.to_owned(), required: true, schema }
    }

    fn optional(name: &str, schema: Value) -> Self {
        Self { required: false, ..Self::required(name, schema) }
    }
}

impl Method {
    fn new(name: &'static str, summary: &'static str, params: Vec<Content>, result: Content) -> Self {
        let any = ERRORS.iter().map(|(name, ..)| json!({"$ref": format!("#/components/errors/{name}")}));
        let (param_structure, errors) = ("by-name", any.collect());
        Self { name, summary, param_structure, params, result, errors, external_docs: None }
    }

    /// When its parameters are not acceptable.
    fn refuses(mut self, when: &str) -> Self {
        self.errors.insert(0, error(code::INVALID_PARAMS, when));
        self
    }

    fn described_at(mut self, url: &str) -> Self {
        self.external_docs = Some(json!({"url": url}));
        self
    }
}

fn error(code: i32, when: &str) -> Value {
    json!({"code": code, "message": when})
}

/// Collects the shapes that the methods share, as OpenRPC wants them: in JSON Schema's draft 7, each by its name.
struct Shapes(SchemaGenerator);

impl Shapes {
    fn new() -> Self {
        let settings = SchemaSettings::draft07().for_serialize();
        Self(settings.with(|settings| settings.definitions_path = "/components/schemas".into()).into_generator())
    }

    /// What every member answers to: MCP's methods, whose shapes are MCP's, and this one.
    fn of_all(&mut self) -> Vec<Method> {
        let (text, object) = (json!({"type": "string"}), json!({"type": "object"}));
        let outcome = json!({
            "type": "object",
            "properties": {
                "content": {"type": "array", "items": object},
                "structuredContent": object,
                "isError": {"type": "boolean"},
            },
            "required": ["content"],
        });
        let page = json!({
            "type": "object",
            "properties": {"resources": {"type": "array", "items": object}, "nextCursor": text},
            "required": ["resources"],
        });
        let initialized = self.0.subschema_for::<Initialized<'static>>().into();
        vec![
            Method::new(
                "initialize",
                "Agrees on a version of MCP. `worker/*` needs no such beginning.",
                vec![Content::optional("protocolVersion", text.clone())],
                Content::required("initialized", initialized),
            )
            .refuses("`protocolVersion` is no text.")
            .described_at("https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle"),
            Method::new("ping", "Answers.", Vec::new(), Content::required("pong", object.clone()))
                .refuses("The parameters are no object.")
                .described_at("https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/ping"),
            Self::of_list("tools/list", "tools", "Lists the member's tools; none, where it has none.", TOOLS),
            Method::new(
                "tools/call",
                "Calls one of the member's tools.",
                vec![Content::required("name", text.clone()), Content::optional("arguments", object.clone())],
                Content::required("outcome", outcome),
            )
            .refuses("The member has no such tool; or a parameter is missing, or of the wrong type.")
            .described_at(TOOLS),
            Self::of_list(
                "prompts/list",
                "prompts",
                "Lists the prompts: a member has none, its dispatch server has one.",
                PROMPTS,
            ),
            Method::new(
                "prompts/get",
                "Hands over a prompt.",
                vec![Content::required("name", text.clone())],
                Content::required("prompt", object.clone()),
            )
            .refuses("There is no such prompt.")
            .described_at(PROMPTS),
            Self::of_list(
                "resources/templates/list",
                "resourceTemplates",
                "Tells which URIs the member's resources have.",
                RESOURCES,
            ),
            Method::new(
                "resources/list",
                "Lists what the member's jobs say and left, newest first, page by page.",
                vec![Content::optional("cursor", text.clone())],
                Content::required("list", page),
            )
            .refuses("`cursor` is none that this host gave; or the parameters are no object.")
            .described_at(RESOURCES),
            Method::new(
                "resources/read",
                "Hands over what a resource holds.",
                vec![Content::required("uri", text)],
                Content::required("contents", object.clone()),
            )
            .refuses("There is no such resource; or it is larger than `limits.result_bytes`.")
            .described_at(RESOURCES),
            // That the document is one of OpenRPC, a schema elsewhere says: nobody should have to fetch it.
            Method::new(
                method::DISCOVER,
                "Answers with this document.",
                Vec::new(),
                Content::required("document", object),
            )
            .described_at("https://spec.open-rpc.org/#service-discovery-method"),
        ]
    }

    /// One of MCP's methods that list something under `key`.
    fn of_list(name: &'static str, key: &str, summary: &'static str, url: &str) -> Method {
        let list = json!({
            "type": "object",
            "properties": {key: {"type": "array", "items": {"type": "object"}}},
            "required": [key],
        });
        let method = Method::new(name, summary, Vec::new(), Content::required("list", list));
        method.refuses("The parameters are no object.").described_at(url)
    }

    /// What only members with the capability `worker` answer to.
    fn of_workers(&mut self) -> Vec<Method> {
        vec![
            self.of_worker::<DispatchParams, Dispatched>(
                (method::DISPATCH, "dispatched"),
                "Accepts a task, and answers with the id of its job. The work follows.",
                "A parameter is missing, of the wrong type or too large; or the member refuses the task. The message says \
                 which and why.",
            ),
            self.of_worker::<ListParams, JobList>(
                (method::LIST, "list"),
                "Lists the member's jobs, newest first.",
                "`detail` is none of its two words, or `filter` is no glob.",
            ),
            self.of_worker::<JobParams, StatusView>(
                (method::STATUS, "status"),
                "Tells how a job is getting on, what it asks and decided, why it failed, and what it used.",
                "The member has no such job.",
            ),
            self.of_worker::<JobParams, ResultView>(
                (method::RESULT, "result"),
                "Hands over the result of a completed job.",
                "The member has no such job; or it is running, was cancelled, or failed.",
            ),
            self.of_worker::<JobParams, CancelView>(
                (method::CANCEL, "cancelled"),
                "Ends a running job, or gives a failed one up. Says which it is, where it was completed or cancelled before.",
                "The member has no such job.",
            ),
            self.of_worker::<JobParams, Deleted>(
                (method::DELETE, "deleted"),
                "Removes a completed or cancelled job, with all its files.",
                "The member has no such job; or it is running; or it failed and was not cancelled.",
            ),
        ]
    }

    /// A method and what its result is called, what it does, and when it refuses its parameters.
    fn of_worker<P: JsonSchema, R: JsonSchema>(
        &mut self,
        (name, result): (&'static str, &str),
        summary: &'static str,
        refuses: &str,
    ) -> Method {
        let params = self.params::<P>();
        let result = Content::required(result, self.0.subschema_for::<R>().into());
        Method::new(name, summary, params, result).refuses(refuses)
    }

    /// The fields of a shape as parameters by name. Those that have to be there come first, as OpenRPC wants it.
    fn params<T: JsonSchema>(&mut self) -> Vec<Content> {
        let shape = self.0.root_schema_for::<T>();
        let needed = shape.get("required").and_then(Value::as_array);
        let fields = shape.get("properties").and_then(Value::as_object).into_iter().flatten();
        let mut params: Vec<Content> = fields
            .map(|(name, schema)| match needed.is_some_and(|needed| needed.iter().any(|one| one == name)) {
                true => Content::required(name, schema.clone()),
                false => Content::optional(name, schema.clone()),
            })
            .collect();
        params.sort_by(|a, b| (!a.required, &a.name).cmp(&(!b.required, &b.name)));
        params
    }
}
