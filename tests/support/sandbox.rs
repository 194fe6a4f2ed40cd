//! A sandbox without a host.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use cap_std::{ambient_authority, fs::Dir};
use guild_contract::{
    Bounds, Grants, Limits, Policy,
    manifest::{ComponentSpec, Manifest},
};
use guild_fs::clock::SystemClock;
use guild_jobs::{Accepted, JobStore, JobTools, MemoryStore, NewJob, ScopedMemory, StoreOptions};
use guild_sandbox::{
    ActivateScope, Activated, CallError, Candidate, CompileCache, Environment, LoadError, Plugin, RunScope, Sandbox,
    Strategy, ToolFault, ToolScope,
};
use guild_session::{
    activation::{Activation, Plan, Request},
    web::Web,
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A member's directory with a component in it, and a sandbox.
pub(crate) struct Bench {
    pub(crate) dir: TempDir,
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) policy: Policy,
}

impl Bench {
    pub(crate) fn new(limits: Limits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join("cache");
        Self::caching_in(&cache, dir, limits)
    }

    /// One that compiles what others did not compile before it.
    pub(crate) fn caching(limits: Limits) -> Self {
        static CACHE: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());
        Self::caching_in(&CACHE.path().join("cache"), tempfile::tempdir().unwrap(), limits)
    }

    fn caching_in(cache: &Path, dir: TempDir, limits: Limits) -> Self {
        fs::create_dir(dir.path().join("member")).unwrap();
        let limits = Arc::new(limits);
        let cache = CompileCache::open(cache, limits.compile_cache_bytes).unwrap();
        let sandbox = Sandbox::new(limits.clone(), Strategy::Cranelift, cache).unwrap();
        Self { dir, sandbox, limits, policy: Policy::default() }
    }

    pub(crate) fn member(&self) -> Dir {
        Dir::open_ambient_dir(self.dir.path().join("member"), ambient_authority()).unwrap()
    }

    pub(crate) fn prepare(&self, bytes: &[u8], component: Value) -> Result<Arc<Plugin>, LoadError> {
        fs::write(self.dir.path().join("member/guest.wasm"), bytes).unwrap();
        let spec = spec(component);
        let candidate = Candidate::read(&self.member(), &spec.file, self.limits.component_bytes)?;
        // Nothing is denied but the web, which the policy does not allow.
        let member = "guest".parse().unwrap();
        let grants = Grants::of(&member, &spec, &self.policy);
        self.sandbox.prepare(&member, &candidate, &spec, Arc::new(grants), self.limits.clone()).map(Arc::new)
    }

    pub(crate) fn memory(&self) -> Arc<MemoryStore> {
        MemoryStore::open(&self.member(), self.limits.clone(), Arc::new(SystemClock)).unwrap()
    }

    pub(crate) async fn activate(&self, plugin: &Arc<Plugin>) -> Result<Activated, CallError> {
        let wait_until = Instant::now() + Duration::from_secs(self.limits.dispatch_wait_seconds.into());
        let (memory, host) = (self.memory().into(), tokio::runtime::Handle::current());
        let scope =
            ActivateScope { memory, files: None, hall: None, host, environment: Environment::System, wait_until };
        plugin.activate(&Arc::new(activation()), scope).await
    }

    /// Calls a tool of the component, with no input.
    pub(crate) async fn call_tool(
        &self,
        plugin: &Arc<Plugin>,
        name: &str,
    ) -> Result<Result<Value, ToolFault>, CallError> {
        plugin.call_tool(name, &json!({}), self.tool_scope()).await
    }

    /// What a tool call can reach.
    pub(crate) fn tool_scope(&self) -> ToolScope {
        let host = tokio::runtime::Handle::current();
        let wait_until = Instant::now() + Duration::from_secs(self.limits.call_tool_wait_seconds.into());
        ToolScope {
            memory: self.memory(),
            files: None,
            web: Web::default(),
            host,
            environment: Environment::System,
            wait_until,
            tell_uses: None,
        }
    }

    /// Runs a job on the component, and gives back what came of it and the job's log.
    pub(crate) async fn run(&self, plugin: &Arc<Plugin>) -> (Result<Result<String, String>, CallError>, String) {
        let job = self.job("t");
        (job.run(plugin).await, job.log())
    }

    /// A job with this task that does not run yet.
    pub(crate) fn job(&self, task: &str) -> BenchJob {
        self.job_with(task, self.memory())
    }

    /// As [`Self::job`], with these memories.
    pub(crate) fn job_with(&self, task: &str, memory: impl Into<ScopedMemory>) -> BenchJob {
        let options = StoreOptions { limits: self.limits.clone(), clock: Arc::new(SystemClock) };
        let store = JobStore::open(&self.member(), options).unwrap();
        store.load();
        let mut activation = activation();
        activation.job = store.new_id();
        activation.request.task = task.to_owned();
        let new = NewJob {
            id: activation.job.clone(),
            description: "d".into(),
            task: task.into(),
            config: json!({}),
            token: None,
            plan: Accepted {
                agent: "extractive".into(),
                granted_tools: Vec::new(),
                grants: Grants::default(),
                ceiling: Bounds::default(),
                plan: Plan::OwnRun(Bounds::default()),
            },
            attachments: None,
            activation: None,
            follows: None,
            key: None,
        };
        let job = store.create(new).unwrap();
        let dir = self.dir.path().join("member/jobs").join(job.id().as_str());
        let tools = Arc::new(JobTools::new(job, memory));
        BenchJob { tools, store, activation: Arc::new(activation), dir, seconds: u32::MAX }
    }
}

/// A job, and what a component is given with it.
pub(crate) struct BenchJob {
    pub(crate) tools: Arc<JobTools>,
    /// Its directory.
    pub(crate) dir: PathBuf,
    /// Its own deadline.
    pub(crate) seconds: u32,
    store: Arc<JobStore>,
    activation: Arc<Activation>,
}

impl BenchJob {
    /// Has the component carry it out.
    pub(crate) async fn run(&self, plugin: &Arc<Plugin>) -> Result<Result<String, String>, CallError> {
        let job_dir = self.store.job_dir(self.tools.job().id()).unwrap();
        let scope = RunScope {
            tools: self.tools.clone(),
            artifacts_dir: job_dir.open_dir("artifacts").unwrap(),
            job_dir,
            files: None,
            web: Web::default(),
            environment: Environment::System,
            host: tokio::runtime::Handle::current(),
            hall: None,
            manager: None,
            sessions: None,
            seconds: self.seconds,
        };
        let permit = plugin.permit(self.tools.job()).await.unwrap();
        plugin.run(permit, self.activation.clone(), scope).await
    }

    /// Its log.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log.txt")).unwrap_or_default()
    }
}

pub(crate) fn spec(component: Value) -> ComponentSpec {
    let manifest = json!({
        "name": "guest", "displayName": "Guest", "description": "d", "version": "0.1.0", "transport": "http",
        "mcp": {"command": "guild", "args": []}, "capabilities": [], "component": component
    });
    Manifest::parse(manifest.to_string().as_bytes()).unwrap().component.unwrap()
}

pub(crate) fn worker() -> Value {
    json!({"file": "guest.wasm", "world": "worker"})
}

pub(crate) fn autonomous() -> Value {
    json!({"file": "guest.wasm", "world": "autonomous-worker"})
}

pub(crate) fn toolbox() -> Value {
    json!({"file": "guest.wasm", "world": "toolbox-plugin"})
}

pub(crate) fn activation() -> Activation {
    Activation {
        job: "019f4b1c-7a3e-7f00-8000-000000000001".parse().unwrap(),
        request: Request { description: "d".into(), task: "t".into(), config: json!({}) },
        attempt: None,
        meeting: None,
        scopes: vec![guild_contract::manifest::Scope::Worker],
        project: None,
        posture: "p".into(),
        memories: Vec::new(),
        granted_tools: vec!["Read".into()],
        toolbox_tools: Vec::new(),
        bounds: Bounds::default(),
    }
}
