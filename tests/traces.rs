//! Traces of a host, as a collector of OpenTelemetry receives them by its own protocol.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use axum::{Router, body::Bytes, http::Uri, routing::post};
use guild_fakes::{Received, Reply};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest, common::v1::any_value::Value as Attribute, trace::v1::Span,
};
use prost::Message as _;
use serde_json::{Value, json};
use tokio::{net::TcpListener, runtime::Runtime};

use crate::{
    sessions::{Fixture, submit},
    support::{host::wait_for, mcp::Endpoint},
};

/// A collector, which keeps all spans that it receives.
pub(crate) struct Collector {
    pub(crate) url: String,
    received: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
    _runtime: Runtime,
}

impl Collector {
    pub(crate) fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let (kept, listener) = (received.clone(), runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap());
        let url = format!("http://{}", listener.local_addr().unwrap());
        let collect = move |uri: Uri, body: Bytes| async move {
            assert_eq!(uri.path(), "/v1/traces");
            kept.lock().unwrap().push(ExportTraceServiceRequest::decode(body).unwrap());
        };
        runtime.spawn(async move { axum::serve(listener, Router::new().fallback(post(collect))).await });
        Self { url, received, _runtime: runtime }
    }

    /// All spans so far.
    fn spans(&self) -> Vec<Span> {
        let received = self.received.lock().unwrap();
        let spans = received.iter().flat_map(|request| &request.resource_spans);
        spans.flat_map(|of| &of.scope_spans).flat_map(|scope| scope.spans.clone()).collect()
    }

    /// The spans of a trace, once one of them has this name.
    fn trace(&self, id: &str, last: &str) -> Vec<Span> {
        wait_for(last, || {
            let spans: Vec<Span> = self.spans().into_iter().filter(|span| hex(&span.trace_id) == id).collect();
            spans.iter().any(|span| span.name == last).then_some(spans)
        })
    }

    /// All spans of this name once one of the name `last` has come, each with the name of its parent and the value of an
    /// attribute.
    pub(crate) fn named(&self, name: &str, last: &str, key: &str) -> Vec<(String, Value)> {
        let spans = wait_for(last, || Some(self.spans()).filter(|spans| spans.iter().any(|span| span.name == last)));
        let parent =
            |of: &Span| spans.iter().find(|span| span.span_id == of.parent_span_id).map(|span| span.name.clone());
        let of_name = spans.iter().filter(|span| span.name == name);
        of_name.map(|span| (parent(span).unwrap_or_default(), attribute(span, key))).collect()
    }
}

fn hex(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(bytes)
}

fn attribute(span: &Span, key: &str) -> Value {
    let found = span.attributes.iter().find(|attribute| attribute.key == key);
    match found.and_then(|attribute| attribute.value.clone()?.value) {
        Some(Attribute::StringValue(text)) => text.into(),
        Some(Attribute::IntValue(number)) => number.into(),
        _ => Value::Null,
    }
}

/// A name's parent, by names.
fn parents(spans: &[Span]) -> BTreeMap<String, String> {
    let name = |id: &[u8]| spans.iter().find(|span| span.span_id == id).map_or("", |span| &span.name).to_owned();
    spans.iter().map(|span| (span.name.clone(), name(&span.parent_span_id))).collect()
}

#[test]
fn a_dispatch_is_one_trace_from_its_caller_to_the_last_tool_call() {
    let collector = Collector::start();
    let mut fixture = Fixture::new(|request: &Received| match request.turn() {
        0 => Reply::call("Grep", json!({"pattern": "luna"})),
        1 => submit("A week."),
        _ => Reply::text("Done."),
    });
    fixture.home.set("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url);
    fixture.home.set("OTEL_BSP_SCHEDULE_DELAY", "50");
    let host = fixture.serve();
    let (trace, caller) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    let traceparent = format!("00-{trace}-{caller}-01");
    let body = |meta: Value| {
        let params = json!({"description": "d", "task": "How long?", "_meta": meta});
        json!({"jsonrpc": "2.0", "id": 1, "method": "worker/dispatch", "params": params}).to_string()
    };
    let endpoint = Endpoint::new(&host, "/mcp");
    let answer = endpoint.with("traceparent", &traceparent).send("POST", &body(json!({}))).message();
    let id = answer["result"]["jobId"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
    assert_eq!(host.client().ended(&id)["status"], "completed");

    let spans = collector.trace(trace, "end-job");
    let parents = parents(&spans);
    for (name, parent) in [
        ("POST mcp", ""),
        ("worker/dispatch", "POST mcp"),
        ("dispatch", "worker/dispatch"),
        ("activate", "dispatch"),
        ("create-job", "dispatch"),
        ("job", "dispatch"),
        ("invoke_agent researcher", "job"),
        ("chat fake", "invoke_agent researcher"),
        ("execute_tool Grep", "invoke_agent researcher"),
        ("execute_tool submit_result", "invoke_agent researcher"),
        ("end-job", "job"),
    ] {
        assert_eq!(parents.get(name).map(String::as_str), Some(parent), "{name} in {parents:#?}");
    }
    let span = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
    assert_eq!(hex(&span("POST mcp").parent_span_id), caller);
    assert_eq!(attribute(span("POST mcp"), "http.response.status_code"), 200);
    assert_eq!(attribute(span("chat fake"), "gen_ai.request.model"), "fake");
    assert_eq!(attribute(span("execute_tool Grep"), "gen_ai.tool.name"), "Grep");
    // The provider is told of it, too.
    let asked = fixture.asked(1);
    assert!(asked[0].header("traceparent").starts_with(&format!("00-{trace}-")), "{:?}", asked[0].headers);

    // A client of MCP names its span in `_meta`.
    let trace = "1af7651916cd43dd8448eb211c80319c";
    let meta = json!({"traceparent": format!("00-{trace}-{caller}-01")});
    let status = json!({"jsonrpc": "2.0", "id": 1, "method": "worker/status", "params": {"jobId": id, "_meta": meta}});
    assert_eq!(endpoint.send("POST", &status.to_string()).status, 200);
    assert_eq!(hex(&collector.trace(trace, "worker/status")[0].parent_span_id), caller);
}

#[test]
fn a_collector_that_is_not_there_delays_nothing() {
    let mut fixture = Fixture::new(|_: &Received| submit("A week."));
    fixture.home.set("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9");
    let host = fixture.serve();
    let id = host.client().start("How long?");
    host.client().ended(&id);
    let (status, _) = host.stop();
    assert!(status.success(), "{status}");
}
