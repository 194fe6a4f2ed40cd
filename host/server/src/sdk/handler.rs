//! Implements the SDK's handler trait for a [`Server`].

use std::{panic::AssertUnwindSafe, sync::Arc};

use axum::http::request::Parts;
use futures::FutureExt as _;
use guild_auth::{Authorized, Caller};
use guild_contract::json::parsed_bytes;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestMethod, CompleteRequestParams,
        CompleteResult, CustomRequest, CustomResult, DiscoverResult, GetPromptRequestParams, GetPromptResponse,
        GetTaskMethod, GetTaskParams, GetTaskResult, InitializeRequestParams, InitializeResult, ListPromptsResult,
        ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, MetaObject, PaginatedRequestParams,
        ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities, ServerConfig, SubscriptionFilter,
        UpdateTaskParams,
    },
    service::{NotificationContext, RequestContext, SubscriptionContext},
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::{
    STATELESS,
    changes::{self, View},
    convert::{self, LIST_TTL_MS},
    progress,
    sessions::Use,
    tasks,
};
use crate::{
    declined::HANDLER_FAILED,
    input::params::shown,
    mcp::{Answered, CallOptions, Offers, Server},
    methods,
};

/// Jobs can change at any time, so clients must not cache them.
const JOBS_TTL_MS: u64 = 0;

/// The method that lists the tools.
const TOOLS: &str = "tools/list";
/// The MCP methods of a server.
const KNOWN: [&str; 14] = [
    "initialize",
    "server/discover",
    "ping",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "subscriptions/listen",
    "tools/call",
    TOOLS,
    "tasks/get",
    "tasks/update",
    "tasks/cancel",
];

/// The SDK's handler for one request, or for the requests of one session. It holds no server for a session, since a
/// member can change or disappear while the session lives: each request carries its server in its extensions.
#[derive(Clone)]
pub(super) struct Handler {
    info: Info,
}

/// The source of a server's description.
#[derive(Clone)]
enum Info {
    /// Computed on request.
    Of(Server, Caller),
    /// The description when the session or the stream was opened.
    Kept(Arc<ServerConfig>),
}

type Request = RequestContext<RoleServer>;

impl Handler {
    /// The handler of one request.
    pub(super) fn of_request(server: Server, caller: Caller) -> Self {
        Self { info: Info::Of(server, caller) }
    }

    /// The handler of a new session, or of a listening stream.
    pub(super) fn of_stay(server: &Server, caller: &Caller) -> Self {
        Self { info: Info::Kept(Arc::new(info(server, caller))) }
    }

    /// The handler for requests to an open session. The session already has one, and the SDK does not call this one.
    pub(super) fn of_open_session() -> Self {
        Self { info: Info::Kept(Arc::default()) }
    }

    async fn call(&self, params: CallToolRequestParams, request: &Request) -> Result<CallToolResponse, ErrorData> {
        let Asked { server, caller } = Asked::of(request)?;
        let declares_tasks = || request.meta.client_capabilities().is_some_and(|declared| declared.supports_tasks());
        let (progress, notifier) = match request.meta.get_progress_token() {
            Some(token) => {
                let (notes, notifier) = progress::notify(request.peer.clone(), token);
                let progress = move |note: String| drop(notes.try_send(note));
                (Some(Box::new(progress) as Box<dyn Fn(String) + Send + Sync>), Some(notifier))
            }
            None => (None, None),
        };
        let options = CallOptions { tasks: is_stateless(request) && declares_tasks(), progress };
        let answered = server.call(&caller, &params.name, params.arguments.unwrap_or_default(), options).await;
        if let Some(notifier) = notifier {
            // Progress from before the end is sent before the response.
            let _ = notifier.await;
        }
        Ok(match answered.map_err(convert::failure)? {
            Answered::Called(called) => {
                let mut result = convert::called(called);
                if let Some(meta) = meta(server, request) {
                    result.meta.get_or_insert_default().0.extend(meta.0);
                }
                result.into()
            }
            Answered::Task(member, job) => {
                let mut result = tasks::created(&member, &job).await.map_err(convert::error)?;
                result.meta = meta(server, request);
                result.into()
            }
        })
    }
}

/// Whether a request uses a version without sessions.
fn is_stateless(request: &Request) -> bool {
    request.meta.protocol_version().is_some_and(|version| version.as_str() >= STATELESS)
}

/// The error for a request that the host did not pass to the SDK.
const NO_REQUEST: &str = "the request did not come through the host's endpoint";

/// The server and the caller of a request.
struct Asked<'a> {
    server: &'a Server,
    caller: Caller,
}

impl<'a> Asked<'a> {
    fn of(request: &'a Request) -> Result<Self, ErrorData> {
        let brought = request.extensions.get::<Parts>().map(|parts| &parts.extensions);
        let found = brought.and_then(|brought| Some((brought.get::<Server>()?, brought.get::<Caller>()?.clone())));
        let (server, caller) = found.ok_or_else(|| ErrorData::internal_error(NO_REQUEST, None))?;
        Ok(Self { server, caller })
    }
}

fn info(server: &Server, caller: &Caller) -> ServerConfig {
    let Offers { resources, prompts, tasks } = server.offers();
    let all = ServerCapabilities::builder().enable_tools().enable_tool_list_changed();
    let all = all.enable_resources().enable_resources_list_changed().enable_prompts().enable_prompts_list_changed();
    let mut capabilities = all.enable_tasks().build();
    capabilities.resources = capabilities.resources.filter(|_| resources);
    capabilities.prompts = capabilities.prompts.filter(|_| prompts);
    capabilities.extensions = capabilities.extensions.filter(|_| tasks);
    let mut info = ServerConfig::new(capabilities).with_server_info(convert::identity(server.identity()));
    info.instructions = server.instructions(caller);
    info
}

/// The `_meta` of a result, in versions that have it.
fn meta(server: &Server, request: &Request) -> Option<MetaObject> {
    is_stateless(request).then(|| convert::meta(convert::identity(server.identity())))
}

/// Runs a method as for a client without a session, and adds the fields of the request's version to the result;
/// `ttl_ms` is the time for which a client may cache it.
async fn plain<R: DeserializeOwned>(
    name: &str,
    params: Option<Value>,
    ttl_ms: Option<u64>,
    request: &Request,
) -> Result<R, ErrorData> {
    carried_out(request, async {
        let Asked { server, caller } = Asked::of(request)?;
        let params = params.map(|params| params.to_string());
        let brought = request.extensions.get::<Parts>().map(|parts| &parts.extensions);
        let authorized = brought.and_then(|brought| brought.get::<Authorized>());
        let authorized = authorized.ok_or_else(|| ErrorData::internal_error(NO_REQUEST, None))?;
        let done = methods::call_authorized(authorized, server, &caller, name, params.as_deref()).await;
        let session = brought.and_then(|brought| brought.get::<Arc<Use>>());
        if let Some(session) = session.filter(|_| name == TOOLS) {
            session.sees_tools(done.as_ref().map_or(changes::NOTHING, |done| changes::digest(&done[..])));
        }
        let done = done.map_err(convert::error)?;
        // The result is parsed again from here on.
        caller.reserve(parsed_bytes(&done).saturating_mul(2)).await.map_err(convert::refused)?;
        let parsed = serde_json::from_slice(&done).and_then(|mut result: Map<String, Value>| {
            if let Some(meta) = meta(server, request) {
                result.insert("resultType".to_owned(), "complete".into());
                result.insert("_meta".to_owned(), Value::Object(meta.0));
                if let Some(ttl_ms) = ttl_ms {
                    result.insert("ttlMs".to_owned(), ttl_ms.into());
                    result.insert("cacheScope".to_owned(), "private".into());
                }
            }
            serde_json::from_value(Value::Object(result))
        });
        parsed.map_err(|_| ErrorData::internal_error("the result cannot be read", None))
    })
    .await
}

/// Runs `work`, unless its client cancels the request; a panic becomes an error.
async fn carried_out<T>(request: &Request, work: impl Future<Output = Result<T, ErrorData>>) -> Result<T, ErrorData> {
    tokio::select! {
        done = caught(work) => done,
        () = request.ct.cancelled() => Err(ErrorData::internal_error("the request was cancelled", None)),
    }
}

async fn caught<T>(work: impl Future<Output = Result<T, ErrorData>>) -> Result<T, ErrorData> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| {
        tracing::error!("a request of MCP could not be answered: its handler panicked");
        Err(ErrorData::internal_error(HANDLER_FAILED, None))
    })
}

/// Lists have only one page, so cursors are rejected.
fn whole(params: Option<&PaginatedRequestParams>) -> Result<(), ErrorData> {
    match params.and_then(|params| params.cursor.as_deref()) {
        None => Ok(()),
        Some(cursor) => Err(ErrorData::invalid_params(format!("Unknown cursor: {}", shown(cursor)), None)),
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        match &self.info {
            Info::Of(server, caller) => info(server, caller),
            Info::Kept(info) => ServerConfig::clone(info),
        }
    }

    async fn initialize(
        &self,
        params: InitializeRequestParams,
        request: Request,
    ) -> Result<InitializeResult, ErrorData> {
        caught(async {
            request.peer.set_peer_info(params.clone());
            let mut result = self.negotiate_initialize(&params)?;
            // Only later versions have tasks.
            result.capabilities.extensions = None;
            Ok(result)
        })
        .await
    }

    async fn discover(&self, _request: Request) -> Result<DiscoverResult, ErrorData> {
        caught(async {
            let versions = self.supported_protocol_versions().into_owned();
            Ok(convert::for_a_while(DiscoverResult::from_server_info(versions, self.get_info())))
        })
        .await
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let Some(brought) = context.extensions.get::<Parts>().map(|parts| &parts.extensions) else { return };
        let (session, view) = (brought.get::<Arc<Use>>(), brought.get::<Arc<View>>());
        let session = session.filter(|session| session.start_notifications());
        if let (Some(session), Some(view)) = (session, view) {
            let (offered, view) = (self.get_info().capabilities, view.clone());
            tokio::spawn(changes::notify_session(context.peer, offered, view, session.tools_seen(), session.ended()));
        }
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(changes::accepted(requested, &self.get_info().capabilities))
    }

    async fn listen(&self, listener: SubscriptionContext) -> Result<(), ErrorData> {
        let brought = listener.request_context().extensions.get::<Parts>();
        if let Some(view) = brought.and_then(|parts| parts.extensions.get::<Arc<View>>()).cloned() {
            changes::notify_listener(listener, view).await;
        }
        Ok(())
    }

    async fn list_tools(
        &self,
        params: Option<PaginatedRequestParams>,
        request: Request,
    ) -> Result<ListToolsResult, ErrorData> {
        whole(params.as_ref())?;
        plain(TOOLS, None, Some(LIST_TTL_MS), &request).await
    }

    async fn call_tool(&self, params: CallToolRequestParams, request: Request) -> Result<CallToolResponse, ErrorData> {
        carried_out(&request, self.call(params, &request)).await
    }

    async fn list_prompts(
        &self,
        params: Option<PaginatedRequestParams>,
        request: Request,
    ) -> Result<ListPromptsResult, ErrorData> {
        whole(params.as_ref())?;
        plain("prompts/list", None, Some(LIST_TTL_MS), &request).await
    }

    async fn get_prompt(
        &self,
        params: GetPromptRequestParams,
        request: Request,
    ) -> Result<GetPromptResponse, ErrorData> {
        let params = json!({"name": params.name});
        plain("prompts/get", Some(params), None, &request).await.map(GetPromptResponse::Complete)
    }

    async fn list_resources(
        &self,
        params: Option<PaginatedRequestParams>,
        request: Request,
    ) -> Result<ListResourcesResult, ErrorData> {
        let params = json!({"cursor": params.and_then(|params| params.cursor)});
        plain("resources/list", Some(params), Some(JOBS_TTL_MS), &request).await
    }

    async fn list_resource_templates(
        &self,
        params: Option<PaginatedRequestParams>,
        request: Request,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        whole(params.as_ref())?;
        plain("resources/templates/list", None, Some(LIST_TTL_MS), &request).await
    }

    async fn read_resource(
        &self,
        params: ReadResourceRequestParams,
        request: Request,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let params = json!({"uri": params.uri});
        plain("resources/read", Some(params), Some(JOBS_TTL_MS), &request).await.map(ReadResourceResponse::Complete)
    }

    async fn complete(&self, _params: CompleteRequestParams, _request: Request) -> Result<CompleteResult, ErrorData> {
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
    }

    /// Handles a method that the SDK does not know, or whose parameters it could not parse.
    async fn on_custom_request(&self, asked: CustomRequest, request: Request) -> Result<CustomResult, ErrorData> {
        let name = asked.method.as_str();
        if KNOWN.contains(&name) {
            let message = format!("Invalid params: the parameters of {name} do not match this version of MCP");
            return Err(ErrorData::invalid_params(message, None));
        }
        plain(name, asked.params, None, &request).await.map(CustomResult::new)
    }

    async fn get_task(&self, params: GetTaskParams, request: Request) -> Result<GetTaskResult, ErrorData> {
        carried_out(&request, async {
            of_later_versions(&request)?;
            let Asked { server, caller } = Asked::of(&request)?;
            let mut result = tasks::get(server, &caller, &params.task_id).await.map_err(convert::failure)?;
            if let (Some(known), Some(meta)) = (&mut result.meta, meta(server, &request)) {
                known.0.extend(meta.0);
            }
            Ok(result)
        })
        .await
    }

    async fn update_task(&self, params: UpdateTaskParams, request: Request) -> Result<(), ErrorData> {
        carried_out(&request, async {
            of_later_versions(&request)?;
            let Asked { server, caller } = Asked::of(&request)?;
            tasks::update(server, &caller, &params.task_id).await.map_err(convert::failure)
        })
        .await
    }

    async fn cancel_task(&self, params: CancelTaskParams, request: Request) -> Result<(), ErrorData> {
        carried_out(&request, async {
            of_later_versions(&request)?;
            let Asked { server, caller } = Asked::of(&request)?;
            tasks::cancel(server, &caller, &params.task_id).await.map_err(convert::failure)
        })
        .await
    }
}

/// The SDK trusts a session's client that claims to support tasks; but the versions with sessions have no tasks.
fn of_later_versions(request: &Request) -> Result<(), ErrorData> {
    if is_stateless(request) { Ok(()) } else { Err(ErrorData::method_not_found::<GetTaskMethod>()) }
}

#[cfg(test)]
mod tests {
    use rmcp::model::ErrorCode;

    use super::*;

    #[tokio::test]
    async fn a_handler_that_panics_is_answered_for() {
        let failed = caught::<()>(async { panic!("of a test") }).await.unwrap_err();
        assert_eq!(failed.code, ErrorCode::INTERNAL_ERROR);
        assert!(!failed.message.contains("of a test"));
    }
}
