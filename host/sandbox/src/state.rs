//! Defines the state of a Store: the host's data for the component that runs in it.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock, atomic::AtomicU64},
};

use guild_contract::{
    Grants, Limits,
    capability::{Kind, LOG},
};
use guild_jobs::{JobTools, ScopedMemory};
use guild_session::{
    files::Files,
    hall::HallView,
    session::Sessions,
    tools::{ToolError, Tools},
    web::Web,
};
use tokio::runtime::Handle;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use crate::{
    environment::Environment,
    filesystem::{Artifacts, Preopen},
    log::{LogSink, stdio::Lines},
    usage::{OpenFilePermit, ResourceUsage, limiter::Limiter},
    uses::Uses,
};

/// The data of one Store: it lives as long as one call.
pub(crate) struct State {
    pub(crate) table: ResourceTable,
    pub(crate) wasi: WasiCtx,
    pub(crate) preopens: Vec<Preopen>,
    /// The only directory that may be changed, in `run`.
    pub(crate) artifacts: Option<Arc<Artifacts>>,
    pub(crate) usage: Arc<ResourceUsage>,
    /// The permits of its open descriptors, by their handles.
    pub(crate) open: HashMap<u32, OpenFilePermit>,
    pub(crate) limiter: Limiter,
    pub(crate) limits: Arc<Limits>,
    pub(crate) context: CallContext,
    /// Calls of the manager's tools so far.
    pub(crate) manager_calls: u64,
    stdout: Lines,
    stderr: Lines,
}

/// The context of a call: the resources that it can reach through `guild:worker`.
#[derive(Clone)]
pub(crate) struct CallContext {
    /// The grants of the member.
    pub(crate) grants: Arc<Grants>,
    /// The job, in `run`.
    pub(crate) job: Option<Arc<JobTools>>,
    /// The granted memories; `None` in `list-tools`, which reaches nothing.
    pub(crate) memory: Option<ScopedMemory>,
    pub(crate) files: Option<Arc<dyn Files>>,
    /// The web, in `run` and `call-tool`, with the host's runtime for its requests.
    pub(crate) web: Option<(Web, Handle)>,
    pub(crate) sessions: Option<Arc<dyn Sessions>>,
    /// The hall, in `activate` and `run`, if the host serves one, with the host's runtime for its requests.
    pub(crate) hall: Option<(Option<Arc<dyn HallView>>, Handle)>,
    /// The manager's tools, in its `run`.
    pub(crate) manager: Option<(Arc<dyn Tools>, Handle)>,
    pub(crate) log: LogSink,
    /// The clocks and the random numbers.
    pub(crate) environment: Environment,
    /// The grants that the component uses.
    pub(crate) uses: Uses,
    /// The first function that was answered `no-job`.
    pub(crate) no_job: Arc<OnceLock<&'static str>>,
}

impl CallContext {
    /// A context in which nothing can be reached.
    pub(crate) fn new(grants: &Arc<Grants>, log: LogSink) -> Self {
        Self {
            grants: grants.clone(),
            job: None,
            memory: None,
            files: None,
            web: None,
            sessions: None,
            hall: None,
            manager: None,
            log,
            environment: Environment::System,
            uses: Uses::default(),
            no_job: Arc::default(),
        }
    }

    /// Refuses a function that needs a job.
    pub(crate) fn no_job(&self, function: &'static str) -> ToolError {
        if self.no_job.set(function).is_ok() {
            self.log.line(&format!("host: `{function}` answered `no-job`: only `run` has a job"));
        }
        ToolError::NoJob
    }

    /// The memories; an error in `list-tools`, which reaches nothing.
    pub(crate) fn memory(&self) -> Result<&ScopedMemory, ToolError> {
        let none = || ToolError::Unavailable("nothing can be reached while the tools are listed".to_owned());
        self.memory.as_ref().ok_or_else(none)
    }

    /// Refuses a capability that was not granted; one that was is recorded as used.
    pub(crate) fn granted(&self, kind: &'static Kind) -> Result<(), ToolError> {
        if *kind != LOG {
            self.memory()?;
        }
        match self.grants.holds(kind) {
            true => {
                self.uses.kind(kind);
                Ok(())
            }
            false => Err(ToolError::NotGranted(self.grants.refusal(kind))),
        }
    }

    /// The hall, and the runtime of its requests.
    pub(crate) fn hall(&self, function: &'static str) -> Result<(Arc<dyn HallView>, Handle), ToolError> {
        let (hall, host) = self.hall.clone().ok_or_else(|| self.no_job(function))?;
        let none =
            || ToolError::Unavailable("this host serves no hall; `guild serve --hall` starts one that does".to_owned());
        Ok((hall.ok_or_else(none)?, host))
    }

    /// The job, for a function that needs a capability and a job.
    pub(crate) fn job(&self, kind: &'static Kind, function: &'static str) -> Result<Arc<JobTools>, ToolError> {
        self.granted(kind)?;
        self.job.clone().ok_or_else(|| self.no_job(function))
    }
}

impl State {
    pub(crate) fn new(
        limits: &Arc<Limits>,
        all_files: Arc<AtomicU64>,
        preopens: Vec<Preopen>,
        artifacts: Option<Arc<Artifacts>>,
        context: CallContext,
    ) -> Self {
        let stdout = Lines::new("stdout", context.log.clone());
        let stderr = Lines::new("stderr", context.log.clone());
        let mut table = ResourceTable::new();
        table.set_max_capacity(limits.handles as usize);
        let mut wasi = WasiCtx::builder();
        wasi.stdout(stdout.clone()).stderr(stderr.clone()).max_random_size(limits.random_bytes);
        context.environment.apply(&mut wasi);
        let wasi = wasi.build();
        let usage = ResourceUsage::new(limits, all_files, Some(context.log.clone()));
        Self {
            table,
            wasi,
            preopens,
            artifacts,
            open: HashMap::new(),
            limiter: Limiter::new(limits.clone(), usage.clone()),
            usage,
            limits: limits.clone(),
            context,
            manager_calls: 0,
            stdout,
            stderr,
        }
    }

    /// Notes for the error of a failed `call`: the first and the last lines of the component's stderr, quoted, and a function of the
    /// host that needs a job.
    pub(crate) fn notes(&self, call: &str) -> Option<String> {
        let said = self.stderr.quoted().map(|said| format!("its stderr {said}"));
        let notes: Vec<String> = said.into_iter().chain(self.no_job_note(call)).collect();
        (!notes.is_empty()).then(|| notes.join("; "))
    }

    /// A note about the function that needed a job, and the calls that have one.
    pub(crate) fn no_job_note(&self, call: &str) -> Option<String> {
        let function = self.context.no_job.get()?;
        Some(format!("`{function}` needs a job, and `{call}` has none: call it in `run`"))
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if let Some(artifacts) = &self.artifacts {
            artifacts.close();
        }
        self.stdout.finish();
        self.stderr.finish();
    }
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}
