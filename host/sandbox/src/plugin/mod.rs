//! Checks, compiles and links a member's component once, and instantiates it afresh for each call.

mod toolbox;

use std::{
    collections::HashSet,
    future::poll_fn,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use guild_contract::{Bounds, Grants, Limits, MemberKey, capability::MEMORY, manifest::ComponentSpec};
use guild_inspect::Outside;
use guild_jobs::RunningJob;
use guild_session::activation::{Activation, Plan, Refusal, SessionPlan};
use guild_telemetry::record;
use tokio::{task::spawn_blocking, time};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;
use wasmtime::{
    Store,
    component::{Component, Instance, InstancePre},
};

use crate::{
    call::{ActivateScope, Activated, Activity, RunScope, record_uses},
    compile::Effort,
    engine::{
        Sandbox,
        queues::{Permit, Queue},
        ticker::Ticking,
    },
    error::{CallError, LoadError, reason::reason},
    filesystem::{Artifacts, Preopen},
    load::Candidate,
    log::LogSink,
    state::{CallContext, State},
    uses::Uses,
    versions::{self, Exports},
    wasi::denied,
};

use toolbox::Toolbox;
pub use toolbox::Unlisted;

/// A component that is ready to be called.
pub struct Plugin {
    pub(crate) sandbox: Arc<Sandbox>,
    /// The member of the component.
    pub(crate) member: MemberKey,
    compiled: Compiled,
    pre: InstancePre<State>,
    exports: Box<dyn Exports>,
    pub(crate) toolbox: Option<Toolbox>,
    pub(crate) grants: Arc<Grants>,
    pub(crate) limits: Arc<Limits>,
    activations: Queue,
    runs: Queue,
}

/// A compiled component, and its identity and interfaces as they are in its bytes.
#[derive(Clone)]
struct Compiled {
    component: Component,
    outside: Arc<Outside>,
    sha256: Arc<str>,
}

/// How long to wait, after a call, for a change of the artifacts under way.
const IDLE_WAIT: Duration = Duration::from_secs(1);
/// The bytes of a plugin's refusal that a caller sees.
const REFUSAL_BYTES: usize = 8 * 1024;

impl Plugin {
    /// Links the same component with other grants and limits, without reading or compiling it. It blocks for a moment.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn linked_anew(
        &self,
        spec: &ComponentSpec,
        grants: Arc<Grants>,
        limits: Arc<Limits>,
    ) -> Result<Unlisted, LoadError> {
        guild_inspect::check(&self.compiled.outside, spec, &grants)?;
        Self::link(self.sandbox.clone(), &self.member, self.compiled.clone(), spec, grants, limits).map(Unlisted)
    }

    fn link(
        sandbox: Arc<Sandbox>,
        member: &MemberKey,
        compiled: Compiled,
        spec: &ComponentSpec,
        grants: Arc<Grants>,
        limits: Arc<Limits>,
    ) -> Result<Self, LoadError> {
        let refused = |e: wasmtime::Error| LoadError::Refused(format!("{e:#}"));
        let component = &compiled.component;
        let mut linker = sandbox.linker.clone();
        denied::add_to_linker(&mut linker, &sandbox.compiler.engine, component).map_err(refused)?;
        let pre = linker.instantiate_pre(component).map_err(refused)?;
        let queues = sandbox.queues.of_member(component);
        let exports = versions::of(&compiled.outside).exports(&pre, spec.world).map_err(refused)?;
        let toolbox = exports.has_toolbox().then(|| Toolbox::new(queues.tool_calls, queues.listings));
        Ok(Self {
            exports,
            toolbox,
            grants,
            limits,
            activations: queues.activations,
            runs: queues.runs,
            compiled,
            pre,
            member: member.clone(),
            sandbox,
        })
    }

    /// The SHA-256 of its component, in lower-case hexadecimal.
    pub fn sha256(&self) -> &str {
        &self.compiled.sha256
    }

    /// Lets the component check and plan a dispatch (REQ-WD-30). The call waits in a bounded queue.
    ///
    /// # Errors
    /// See [`CallError`]. A refusal is no error: it is in [`Activated::outcome`].
    pub async fn activate(
        self: &Arc<Self>,
        activation: &Arc<Activation>,
        scope: ActivateScope,
    ) -> Result<Activated, CallError> {
        let permit = time::timeout_at(scope.wait_until.into(), self.activations.permit()).await;
        let Ok(permit) = permit else {
            record::limit_reached("dispatch_wait_seconds");
            return Err(CallError::Busy(self.limits.dispatch_wait_seconds));
        };
        let (this, activation) = (self.clone(), activation.clone());
        let activated = self.begun_here("activate", async move {
            let _permit = permit;
            this.activate_here(&activation, scope).await
        });
        activated.await
    }

    async fn activate_here(&self, activation: &Activation, scope: ActivateScope) -> Result<Activated, CallError> {
        let log = LogSink::buffered();
        let context = CallContext::new(&self.grants, log.clone());
        let hall = Some((scope.hall, scope.host));
        let (files, memory, environment) = (scope.files, Some(scope.memory), scope.environment);
        let context = CallContext { files, memory, hall, environment, ..context };
        let preopens = self.memory_preopen("activate", &context)?;
        let uses = context.uses.clone();
        let deadline = Deadline { seconds: self.limits.activate_seconds, source: "limits.activate_seconds" };
        let mut call = self.call("activate", deadline, preopens, None, context);
        let answer =
            call.bounded(async |store, instance| self.exports.activate(store, instance, activation).await).await;
        let no_job = call.no_job_note();
        // The Store is dropped before the log is taken, so that the log has an unfinished last line.
        drop(call);
        let activity = Activity { log: log.take(), uses: uses.take() };
        let checked = answer.and_then(|answer| match answer {
            Ok(plan) => self.checked(plan, activation).map(Ok),
            Err(refusal) => Ok(Err(refusal)),
        });
        let text = |text: String| noted(cut(text, REFUSAL_BYTES), no_job);
        let outcome = match checked {
            Ok(Ok(plan)) => Ok(plan),
            Ok(Err(Refusal::InvalidConfig(why))) => Err(Refusal::InvalidConfig(text(why))),
            Ok(Err(Refusal::Unsupported(why))) => Err(Refusal::Unsupported(text(why))),
            Err(error) => {
                tracing::warn!(member = %self.member, "{error}");
                return Err(error);
            }
        };
        Ok(Activated { outcome, activity })
    }

    /// Waits until the job may run: at most `limits.live_runs` run on a host, and one member leaves room for others.
    /// The component is not instantiated meanwhile, and the time does not count for the job.
    ///
    /// # Errors
    /// [`CallError::Cancelled`], if the job is cancelled meanwhile.
    pub async fn permit(self: &Arc<Self>, job: &RunningJob) -> Result<Permit, CallError> {
        tokio::select! {
            permit = self.runs.permit() => Ok(permit),
            () = job.cancelled().cancelled() => Err(CallError::Cancelled),
        }
    }

    /// Lets the component carry its job out, with the acquired permit. The inner error is the component's own text.
    ///
    /// # Errors
    /// See [`CallError`]. When the job is cancelled the instance is dropped at its next tick, before this returns.
    pub async fn run(
        self: &Arc<Self>,
        permit: Permit,
        activation: Arc<Activation>,
        scope: RunScope,
    ) -> Result<Result<String, String>, CallError> {
        let job = scope.tools.job().clone();
        let cancelled = job.cancelled().clone();
        let log = LogSink::Job(job.clone());
        let failed =
            |e: std::io::Error| CallError::Trap { call: "run", why: format!("no /job/artifacts: {}", e.kind()) };
        let root = scope.artifacts_dir.try_clone().map_err(failed)?;
        let artifacts = Artifacts::new(root, scope.tools.job().artifacts().clone(), log);
        let (this, own) = (self.clone(), artifacts.clone());
        let uses = Uses::default();
        let used = uses.clone();
        let running = self.on_guest_threads("run", async move {
            let _permit = permit;
            tokio::select! {
                outcome = this.run_here(&activation, scope, own, used) => outcome,
                () = cancelled.cancelled() => Err(CallError::Cancelled),
            }
        });
        let outcome = running.await;
        if let Err(error) = &outcome
            && *error != CallError::Cancelled
        {
            tracing::warn!(member = %self.member, job = %job.id(), "{error}");
            job.log(&format!("host: {}", error.bare()));
        }
        record_uses(&job, "run", uses.take());
        // The Store is gone, and no further change begins; a change under way is awaited for a bounded time.
        let _ = time::timeout(IDLE_WAIT, spawn_blocking(move || artifacts.wait_idle())).await;
        outcome
    }

    /// Polls a call once on the caller's thread, since most calls end within a tick and a hop between threads costs as
    /// much as they do. A call that is pending then moves to the guest threads.
    pub(crate) async fn begun_here<T: Send + 'static>(
        &self,
        call: &'static str,
        work: impl Future<Output = Result<T, CallError>> + Send + 'static,
    ) -> Result<T, CallError> {
        let mut work = Box::pin(work);
        match poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await {
            Poll::Ready(answer) => answer,
            Poll::Pending => self.on_guest_threads(call, work).await,
        }
    }

    /// Drives a call on the threads of components, so that a busy component does not delay the threads of requests. The
    /// call ends with the future.
    async fn on_guest_threads<T: Send + 'static>(
        &self,
        call: &'static str,
        work: impl Future<Output = Result<T, CallError>> + Send + 'static,
    ) -> Result<T, CallError> {
        let done = AbortOnDropHandle::new(self.sandbox.guests.spawn(work.in_current_span())).await;
        done.unwrap_or_else(|e| Err(CallError::Trap { call, why: e.to_string() }))
    }

    async fn run_here(
        &self,
        activation: &Activation,
        scope: RunScope,
        artifacts: Arc<Artifacts>,
        uses: Uses,
    ) -> Result<Result<String, String>, CallError> {
        let context = CallContext::new(&self.grants, LogSink::Job(scope.tools.job().clone()));
        let context = CallContext {
            memory: Some(scope.tools.memory().clone()),
            job: Some(scope.tools),
            files: scope.files,
            web: Some((scope.web, scope.host.clone())),
            hall: Some((scope.hall, scope.host.clone())),
            manager: scope.manager.map(|manager| (manager, scope.host)),
            sessions: scope.sessions,
            environment: scope.environment,
            uses,
            ..context
        };
        let mut preopens = self.memory_preopen("run", &context)?;
        preopens.push(Preopen { guest: "/job", dir: scope.job_dir, writable: false });
        let artifacts = self.grants.artifacts.then_some(artifacts);
        if artifacts.is_some() {
            preopens.push(Preopen { guest: "/job/artifacts", dir: scope.artifacts_dir, writable: true });
        }
        let most = Deadline { seconds: self.limits.run_seconds, source: "limits.run_seconds" };
        let deadline =
            if scope.seconds < most.seconds { Deadline { seconds: scope.seconds, source: OF_JOB } } else { most };
        let mut call = self.call("run", deadline, preopens, artifacts, context);
        call.bounded(async |store, instance| self.exports.run(store, instance, activation).await).await
    }

    /// `/memory`, read-only, for a component that asked for `memory`: the member's own.
    pub(crate) fn memory_preopen(&self, call: &'static str, context: &CallContext) -> Result<Vec<Preopen>, CallError> {
        let Some(memory) = context.memory.as_ref().filter(|_| context.grants.holds(&MEMORY)) else {
            return Ok(Vec::new());
        };
        let why = |e: std::io::Error| CallError::Trap { call, why: format!("no /memory: {}", e.kind()) };
        Ok(vec![Preopen { guest: "/memory", dir: memory.worker().kept().dir().map_err(why)?, writable: false }])
    }

    pub(crate) fn call(
        &self,
        name: &'static str,
        deadline: Deadline,
        preopens: Vec<Preopen>,
        artifacts: Option<Arc<Artifacts>>,
        context: CallContext,
    ) -> Call<'_> {
        let limits = &self.limits;
        let state = State::new(limits, self.sandbox.open_files.clone(), preopens, artifacts, context);
        let mut store = Store::new(&self.sandbox.compiler.engine, state);
        store.limiter(|state| &mut state.limiter);
        store.set_epoch_deadline(1);
        store.epoch_deadline_async_yield_and_update(1);
        store.set_hostcall_fuel(usize::try_from(limits.hostcall_bytes).unwrap_or(usize::MAX));
        store.set_max_component_handles(limits.handles as usize);
        Call { name, deadline, store, plugin: self, _tick: self.sandbox.ticker.tick() }
    }

    /// Checks that a plan asks only for granted things.
    fn checked(&self, plan: Plan, activation: &Activation) -> Result<Plan, CallError> {
        let invalid = |why: String| CallError::Invalid { call: "activate", why };
        let valid = |bounds: Bounds| bounds.check().map(|()| bounds).map_err(invalid);
        match plan {
            Plan::OwnRun(own) => {
                if !self.exports.has_run() {
                    return Err(invalid("it plans to run itself, but exports no `run`".to_owned()));
                }
                Ok(Plan::OwnRun(valid(own)?))
            }
            // The host makes a conversation of a session; a component plans none.
            Plan::Session(session) | Plan::Conversation(session) => {
                let max = self.limits.plan_bytes;
                let names = session.tools.iter().chain(&session.toolbox_tools).chain(&session.model);
                let names = names.map(String::len).sum::<usize>();
                let bytes = session.system_prompt.len() + session.prompt.len() + names;
                if bytes as u64 > max {
                    return Err(invalid(format!(
                        "its prompts and names have {bytes} bytes, more than {} = {max}",
                        Limits::cited("plan_bytes")
                    )));
                }
                if let Some(tool) = session.tools.iter().find(|tool| !activation.granted_tools.contains(tool)) {
                    return Err(invalid(format!("its plan uses the tool {tool:?}, which was not granted")));
                }
                let resolved = |name: &String| activation.toolbox_tools.iter().any(|tool| tool.name == *name);
                if let Some(tool) = session.toolbox_tools.iter().find(|tool| !resolved(tool)) {
                    return Err(invalid(format!("its plan uses the toolbox tool {tool:?}, which does not exist")));
                }
                Ok(Plan::Session(SessionPlan {
                    tools: each_once(session.tools),
                    toolbox_tools: each_once(session.toolbox_tools),
                    bounds: valid(session.bounds)?,
                    ..session
                }))
            }
        }
    }
}

impl Sandbox {
    /// Checks, compiles (or takes from the cache) and links a component. It blocks.
    ///
    /// `member` is the component's member, for logs. An interface that the manifest asks for and `grants` denies is
    /// linked so that every call answers `not-granted`. `limits` are the member's; shared resources are bounded by the
    /// limits of the sandbox.
    ///
    /// # Errors
    /// See [`LoadError`]. Versions and imports are checked before anything is compiled.
    pub fn prepare(
        self: &Arc<Self>,
        member: &MemberKey,
        candidate: &Candidate,
        spec: &ComponentSpec,
        grants: Arc<Grants>,
        limits: Arc<Limits>,
    ) -> Result<Plugin, LoadError> {
        self.prepare_unlisted(member, candidate, spec, grants, limits, Effort::Full)?.with_tools()
    }

    /// Prepares a plugin like [`Self::prepare`], but with bounded effort, and without the tools of a toolbox, which
    /// [`Unlisted::listed`] adds.
    ///
    /// # Errors
    ///
    /// See [`LoadError`]. The error is [`LoadError::Later`] if more effort is needed.
    pub fn prepare_unlisted(
        self: &Arc<Self>,
        member: &MemberKey,
        candidate: &Candidate,
        spec: &ComponentSpec,
        grants: Arc<Grants>,
        limits: Arc<Limits>,
        effort: Effort,
    ) -> Result<Unlisted, LoadError> {
        guild_inspect::check(&candidate.outside, spec, &grants)?;
        let compiled = Compiled {
            component: self.compiler.component(candidate, effort)?,
            outside: Arc::new(candidate.outside.clone()),
            sha256: candidate.hash().into(),
        };
        Plugin::link(self.clone(), member, compiled, spec, grants, limits).map(Unlisted)
    }
}

/// The source of a deadline that is no limit of the operator's.
const OF_JOB: &str = "the job's own";

/// The time that a call may take.
#[derive(Clone, Copy)]
pub(crate) struct Deadline {
    pub(crate) seconds: u32,
    /// The limit that sets it, for errors.
    pub(crate) source: &'static str,
}

/// One call, with a Store of its own and one deadline for all of it.
pub(crate) struct Call<'a> {
    name: &'static str,
    deadline: Deadline,
    store: Store<State>,
    plugin: &'a Plugin,
    _tick: Ticking,
}

impl Call<'_> {
    /// Instantiates the component and calls it. Epochs do not tick while a host function is awaited, so the deadline is
    /// enforced from outside: when it passes, the future and its Store are dropped.
    pub(crate) async fn bounded<R>(
        &mut self,
        body: impl AsyncFnOnce(&mut Store<State>, Instance) -> wasmtime::Result<R>,
    ) -> Result<R, CallError> {
        let began = Instant::now();
        let answer = self.within_deadline(body).await;
        let outcome = answer.as_ref().map_or_else(CallError::kind, |_| "answered");
        record::component_call(&self.plugin.member, self.name, outcome, began.elapsed());
        answer
    }

    async fn within_deadline<R>(
        &mut self,
        body: impl AsyncFnOnce(&mut Store<State>, Instance) -> wasmtime::Result<R>,
    ) -> Result<R, CallError> {
        let Deadline { seconds, source } = self.deadline;
        let deadline = Duration::from_secs(seconds.into());
        let whole = async {
            let instance = self.plugin.pre.instantiate_async(&mut self.store).await?;
            body(&mut self.store, instance).await
        };
        let error = match time::timeout(deadline, whole).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => reason(self.name, &error, &self.plugin.limits, &self.store.data().usage),
            Err(_) => {
                if source != OF_JOB {
                    record::limit_reached(source);
                }
                CallError::Deadline { call: self.name, seconds, whose: source }
            }
        };
        Err(match self.store.data().notes(self.name) {
            Some(notes) => CallError::Noted { error: Box::new(error), notes },
            None => error,
        })
    }

    /// A note about a function that the component called and that needs a job, in a call without one.
    pub(crate) fn no_job_note(&self) -> Option<String> {
        self.store.data().no_job_note(self.name)
    }
}

/// A text of a component with the host's note.
pub(crate) fn noted(text: String, note: Option<String>) -> String {
    match note {
        Some(note) => format!("{text} ({note})"),
        None => text,
    }
}

/// Names without duplicates, since a component can repeat one a million times.
fn each_once(names: Vec<String>) -> Vec<String> {
    let mut seen = HashSet::new();
    names.into_iter().filter(|name| seen.insert(name.clone())).collect()
}

/// The beginning of a text; the memory of the rest is freed.
pub(crate) fn cut(mut text: String, max: usize) -> String {
    if text.len() > max {
        text.truncate(text.floor_char_boundary(max));
        text.shrink_to_fit();
    }
    text
}
