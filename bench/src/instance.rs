//! Measures one activation (a store, an instance, the call, and their drop), compared with bare wasmtime.

use std::{
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use cap_std::{ambient_authority, fs::Dir};
use guild_contract::{
    Bounds, Grants, Limits, Manifest, Policy,
    manifest::{FILE_NAME, SESSION_TOOLS},
};
use guild_fs::clock::SystemClock;
use guild_jobs::MemoryStore;
use guild_sandbox::{ActivateScope, Candidate, CompileCache, Environment, Plugin, Sandbox, Strategy};
use guild_session::activation::{Activation, Request};
use serde_json::json;
use tokio::runtime::Handle;
use wasmtime::{
    Config, Engine, InstanceAllocationStrategy, Store,
    component::{Component, InstancePre, Linker, ResourceTable},
};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use crate::{
    Outcome,
    host::scratch,
    stats::{Aim, Report, median},
};

wasmtime::component::bindgen!({ path: "../wit", world: "worker", imports: { default: async | trappable }, exports: { default: async } });

use exports::guild::worker::dispatch;

/// The number of activations in a round.
pub(crate) const CALLS: u32 = 500;
const ROUNDS: usize = 15;

/// Measures the researcher's `activate`.
pub(crate) async fn measure(report: &mut Report) -> Outcome<()> {
    let member = Path::new("guild-members/researcher");
    let manifest = Manifest::parse(&fs::read(member.join(FILE_NAME))?)?;
    let spec = manifest.component.ok_or("the researcher has no component")?;
    let wasm = fs::read(member.join(&spec.file))?;
    let posture = fs::read_to_string(member.join("posture.md"))?;

    let ours = Ours::new(member, &spec, activation(posture), Strategy::Cranelift)?;
    let plain = Bare::new(&Config::new(), &wasm)?;
    let mut pooling = Config::new();
    pooling.allocation_strategy(InstanceAllocationStrategy::pooling());
    let pooling = Bare::new(&pooling, &wasm)?;

    let (mut of_ours, mut of_plain, mut of_pooling) = (Vec::new(), Vec::new(), Vec::new());
    // The first round fills the caches.
    for round in 0..=ROUNDS {
        let (bare, pooled, host) = (
            plain.calls(&ours.activation, CALLS).await?,
            pooling.calls(&ours.activation, CALLS).await?,
            ours.calls(CALLS).await?,
        );
        if round > 0 {
            of_plain.push(bare);
            of_pooling.push(pooled);
            of_ours.push(host);
        }
    }
    let (host, bare, pooled) = (median(&of_ours), median(&of_plain), median(&of_pooling));
    let name = "store, instantiate, activate, drop";
    report.add(
        name,
        host / bare,
        "x bare",
        Aim::AtMost(1.5),
        &format!("{host:.1} us of {bare:.1} us, wasmtime's defaults"),
    );
    let how = format!("{host:.1} us of {pooled:.1} us, wasmtime's pooling allocator");
    report.add(name, host / pooled, "x bare", Aim::Stated, &how);
    Ok(())
}

pub(crate) fn activation(posture: String) -> Activation {
    Activation {
        job: "019b0000-0000-7000-8000-000000000000".parse().unwrap_or_else(|e| unreachable!("{e}")),
        request: Request {
            description: "Ownership".to_owned(),
            task: "How does ownership work?".to_owned(),
            config: json!({"maxTurns": 20}),
        },
        attempt: None,
        meeting: None,
        scopes: vec![guild_contract::manifest::Scope::Worker],
        project: None,
        posture,
        memories: Vec::new(),
        granted_tools: SESSION_TOOLS.map(str::to_owned).to_vec(),
        toolbox_tools: Vec::new(),
        bounds: Bounds { max_turns: Some(150), max_budget_usd: Some(0.5), deadline_seconds: Some(3600) },
    }
}

/// The microseconds per call of many calls.
fn each(begun: Instant, calls: u32) -> f64 {
    begun.elapsed().as_secs_f64() * 1e6 / f64::from(calls)
}

/// An activation as the host makes it: limits, deadline, queue, log, checks.
pub(crate) struct Ours {
    plugin: Arc<Plugin>,
    memory: Arc<MemoryStore>,
    pub(crate) activation: Arc<Activation>,
}

impl Ours {
    pub(crate) fn new(
        member: &Path,
        spec: &guild_contract::manifest::ComponentSpec,
        activation: Activation,
        strategy: Strategy,
    ) -> Outcome<Self> {
        let limits = Arc::new(Limits::default());
        let own = scratch().join("instance");
        fs::create_dir_all(&own)?;
        let own = Dir::open_ambient_dir(own, ambient_authority())?;
        let memory = MemoryStore::open(&own, limits.clone(), Arc::new(SystemClock))?;
        let member = Dir::open_ambient_dir(member, ambient_authority())?;
        let candidate = Candidate::read(&member, &spec.file, limits.component_bytes)?;
        let key = "bench".parse()?;
        let grants = Grants::of(&key, spec, &Policy::default());
        let sandbox = Sandbox::new(limits.clone(), strategy, CompileCache::none())?;
        let plugin = sandbox.prepare(&key, &candidate, spec, Arc::new(grants), limits)?;
        Ok(Self { plugin: Arc::new(plugin), memory, activation: Arc::new(activation) })
    }

    pub(crate) async fn calls(&self, calls: u32) -> Outcome<f64> {
        let begun = Instant::now();
        for _ in 0..calls {
            let wait_until = Instant::now() + Duration::from_secs(20);
            let (memory, host) = (self.memory.clone().into(), Handle::current());
            let environment = Environment::System;
            let scope = ActivateScope { memory, files: None, hall: None, host, environment, wait_until };
            self.plugin.activate(&self.activation, scope).await?.outcome?;
        }
        Ok(each(begun, calls))
    }
}

/// A minimal call of a component in bare wasmtime.
pub(crate) struct Bare {
    engine: Engine,
    pre: WorkerPre<State>,
}

/// The store data of a component in bare wasmtime.
pub(crate) struct State {
    wasi: WasiCtx,
    table: ResourceTable,
}

impl Default for State {
    fn default() -> Self {
        Self { wasi: WasiCtx::builder().build(), table: ResourceTable::new() }
    }
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

/// A component with all of WASI and no other imports in bare wasmtime.
pub(crate) fn linked(config: &Config, wasm: &[u8]) -> Outcome<(Engine, InstancePre<State>)> {
    let engine = Engine::new(config)?;
    let component = Component::from_binary(&engine, wasm)?;
    let mut linker = Linker::new(&engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    let pre = linker.instantiate_pre(&component)?;
    Ok((engine, pre))
}

impl Bare {
    pub(crate) fn new(config: &Config, wasm: &[u8]) -> Outcome<Self> {
        let (engine, pre) = linked(config, wasm)?;
        Ok(Self { engine, pre: WorkerPre::new(pre)? })
    }

    pub(crate) async fn calls(&self, activation: &Activation, calls: u32) -> Outcome<f64> {
        let begun = Instant::now();
        for _ in 0..calls {
            let converted = converted(activation);
            let mut store = Store::new(&self.engine, State::default());
            let worker = self.pre.instantiate_async(&mut store).await?;
            let plan = worker.guild_worker_dispatch().call_activate(&mut store, &converted).await?;
            plan.map_err(|refusal| format!("{refusal:?}"))?;
        }
        Ok(each(begun, calls))
    }
}

fn converted(activation: &Activation) -> dispatch::Activation {
    dispatch::Activation {
        context: dispatch::Context::Commission(dispatch::Commission {
            job: activation.job.to_string(),
            request: dispatch::Request {
                description: activation.request.description.clone(),
                task: activation.request.task.clone(),
                config: activation.request.config.to_string(),
            },
            attempt: None,
        }),
        project: None,
        posture: activation.posture.clone(),
        scopes: vec![dispatch::Scope::Worker],
        memories: Vec::new(),
        granted_tools: activation.granted_tools.clone(),
        toolbox_tools: Vec::new(),
        bounds: dispatch::Bounds {
            max_turns: activation.bounds.max_turns,
            max_budget_usd: activation.bounds.max_budget_usd,
            deadline_seconds: activation.bounds.deadline_seconds,
        },
    }
}
