//! Measures `tools/call` of a small tool over keep-alive HTTP, with a fresh instance for each call, compared with an
//! axum handler that calls the same component with bare wasmtime, and with a handler that makes no call.

use std::{
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use wasmtime::{Config, Engine, Store};

use crate::{
    Outcome,
    baseline::{Baseline, Kind},
    host::{Setup, call, scratch},
    instance::{State, linked},
    load::{Connection, Load, request},
    stats::{Aim, Report, median},
    wat,
};

wasmtime::component::bindgen!({
    path: "../wit",
    world: "toolbox-plugin",
    imports: { default: async | trappable },
    exports: { default: async },
});

/// The number of sequential calls on one connection in a round.
const CALLS: usize = 1000;
const ROUNDS: usize = 9;
const CONNECTIONS: usize = 16;
const ROUND_TIME: Duration = Duration::from_millis(1500);

/// The trivial tool, which answers with its input. The list has one tool, with a name, an input schema and the flag
/// that it may change something, but without title, description and output schema.
const ECHO: &str = r#"(module
  (memory (export "memory") 2)
  (global $next (mut i32) (i32.const 65536))
  (data (i32.const 32768) "echo{\"type\":\"object\"}")
  (func (export "guild:worker/toolbox@0.1.0#list-tools") (result i32)
    (i32.store (i32.const 16384) (i32.const 32768)) (i32.store (i32.const 16388) (i32.const 4))
    (i32.store (i32.const 16412) (i32.const 32772)) (i32.store (i32.const 16416) (i32.const 17))
    (i32.store (i32.const 4096) (i32.const 16384)) (i32.store (i32.const 4100) (i32.const 1))
    (i32.const 4096))
  (func (export "guild:worker/toolbox@0.1.0#call-tool") (param i32 i32 i32 i32) (result i32)
    (i32.store (i32.const 4100) (local.get 2)) (i32.store (i32.const 4104) (local.get 3))
    (i32.const 4096))
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $next) (i32.const 15)) (i32.const -16)))
    (global.set $next (i32.add (local.get $at) (local.get 3)))
    (local.get $at)))"#;

/// Measures the trivial tool, a tool of the Rust SDK that answers with a sentence, and a tool of the textkit, whose
/// component is eight times as large as the SDK's.
pub(crate) async fn measure(report: &mut Report) -> Outcome<()> {
    let echo = scratch().join("echo.wasm");
    fs::write(&echo, wat::component("toolbox", ECHO)?)?;
    let params = json!({"name": "echo", "arguments": {"text": "Nothing here is a demo."}});
    of_tool(report, "tools/call", &echo, params, Aim::AtLeast(0.15)).await?;
    let rust = Path::new("plugins/target/wasm32-wasip2/release/conformance.wasm");
    let params = json!({"name": "test_simple_text", "arguments": {}});
    of_tool(report, "tools/call of a Rust tool", rust, params, Aim::Stated).await?;
    let textkit = Path::new("guild-members/textkit/textkit.wasm");
    let params = json!({"name": "text_stats", "arguments": {"text": "Nothing here is a demo."}});
    of_tool(report, "tools/call of textkit", textkit, params, Aim::Stated).await
}

async fn of_tool(report: &mut Report, what: &str, component: &Path, params: Value, aim: Aim) -> Outcome<()> {
    let host = Setup::toolbox("tools", component)?.start().await?;
    let answer = host.ask("tools/call", &params).await?;
    let called: Value = serde_json::from_slice(&answer)?;
    if called.pointer("/result/isError") != Some(&json!(false)) {
        return Err(format!("the tool did not work: {called}").into());
    }
    let bare = Baseline::start(Kind::Tool, &fs::read(component)?, &scratch())?;
    let none = Baseline::start(Kind::Bytes, &answer, &scratch())?;
    let request = request(&call("tools/call", &params));

    let (mut of_host, mut of_bare) = (Connection::open(host.address).await?, Connection::open(bare.address).await?);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    // The first round fills the caches.
    for round in 0..=ROUNDS {
        let (bare, host) = (calls(&mut of_bare, &request).await?, calls(&mut of_host, &request).await?);
        if round > 0 {
            theirs.extend(bare);
            ours.extend(host);
        }
    }
    let (p50, bare_p50) = (median(&ours), median(&theirs));
    let how = format!("{p50:.0} us of {bare_p50:.0} us, bare wasmtime in a bare axum handler");
    report.add(&format!("{what}, p50"), p50 / bare_p50, "x bare", Aim::AtMost(1.5), &how);

    let load = Load { requests: Arc::from([request]), connections: CONNECTIONS, count: usize::MAX, time: ROUND_TIME };
    let (mut ours, mut theirs, mut bares) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (none, bare, host) =
            (load.run(none.address).await?, load.run(bare.address).await?, load.run(host.address).await?);
        if round > 0 {
            theirs.push(none);
            bares.push(bare);
            ours.push(host);
        }
    }
    let (rate, none_rate, bare_rate) = (median(&ours), median(&theirs), median(&bares));
    let how =
        format!("{rate:.0}/s of {none_rate:.0}/s, a bare axum handler; {bare_rate:.0}/s with bare wasmtime in it");
    report.add(&format!("{what}, 16 at once"), rate / none_rate, "x bare", aim, &how);
    Ok(())
}

/// The microseconds of each of many calls.
pub(crate) async fn calls(connection: &mut Connection, request: &[u8]) -> Outcome<Vec<f64>> {
    let mut times = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let begun = Instant::now();
        connection.exchange(request).await?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    Ok(times)
}

/// A minimal call of a tool in bare wasmtime.
pub(crate) struct Bare {
    engine: Engine,
    pre: ToolboxPluginPre<State>,
}

/// The JSON of a call.
#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(borrow)]
    params: Params<'a>,
}

#[derive(Deserialize)]
struct Params<'a> {
    name: &'a str,
    #[serde(borrow)]
    arguments: &'a RawValue,
}

impl Bare {
    pub(crate) fn new(wasm: &[u8]) -> Outcome<Self> {
        let (engine, pre) = linked(&Config::new(), wasm)?;
        Ok(Self { engine, pre: ToolboxPluginPre::new(pre)? })
    }

    /// Calls the tool that a request names, and returns the answer of MCP.
    pub(crate) async fn answer(&self, request: &[u8]) -> Outcome<Bytes> {
        let Request { id, params } = serde_json::from_slice(request)?;
        let mut store = Store::new(&self.engine, State::default());
        let toolbox = self.pre.instantiate_async(&mut store).await?;
        let arguments = params.arguments.get().to_owned();
        let called = toolbox.guild_worker_toolbox().call_call_tool(&mut store, params.name, &arguments).await?;
        let text = called.map_err(|error| format!("{error:?}"))?;
        let structured: &RawValue = serde_json::from_str(&text)?;
        let content = [json!({"type": "text", "text": text})];
        let result = Answer { content, structured_content: structured, is_error: false };
        Ok(serde_json::to_vec(&Response { jsonrpc: "2.0", id, result })?.into())
    }
}

#[derive(serde::Serialize)]
struct Response<'a> {
    jsonrpc: &'static str,
    id: &'a RawValue,
    result: Answer<'a>,
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    content: [Value; 1],
    structured_content: &'a RawValue,
    is_error: bool,
}
