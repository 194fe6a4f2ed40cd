//! Handles `worker/dispatch`, from its parameters to a running job.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use guild_contract::{
    DispatchKey, JobId, Limits,
    capability::{AGENT, MEMORY_WRITE, WEB},
    json::parsed_bytes,
    manifest::{FILE_TOOLS, POSTURE},
    rpc::{DispatchParams, Dispatched, KEY_BYTES, RpcError},
    text::{LOGGED_CHARS, hex, one_line},
};
use guild_hall::Attempt;
use guild_jobs::{Accepted, AttachedBytes, Keyed, NewJob, RunningJob, ScopedMemory};
use guild_sandbox::{ActivateScope, Activity, CallError};
use guild_session::{
    activation::{Activation, AttemptAt, MeetingAt, Plan, ProjectRoot, Request},
    session::Wanted,
    task::TaskError,
    tools::Tools as _,
};
use guild_telemetry::{record, trace::Parent};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::runtime::Handle;
use tracing::{Instrument as _, Span};

use super::{
    Member,
    attachments::{self, Attached},
};
use crate::{
    answer::blocking,
    discovery,
    jobs::{
        member_data::MemberData,
        memory_budget::MemoryPermit,
        run::{self, Assignment, JobRequest, conversation},
    },
    resources::{Reach, runtimes::may_spend},
    tools::{component, named_toolboxes::Offered},
};

impl Member {
    /// `worker/dispatch`: checks the dispatch, has the component plan it, makes the job and starts its work (REQ-WD-5).
    ///
    /// # Errors
    ///
    /// Returns -32602 for invalid parameters and for a refusal of the plugin, -32000 when the host is at one of its
    /// limits, and -32603 when the component of the member, or of a toolbox that it needs, is not in service. No job
    /// exists then.
    pub async fn dispatch(self: &Arc<Self>, params: DispatchParams) -> Result<Dispatched, RpcError> {
        self.dispatch_and(params, None, |_| ()).await
    }

    /// [`Self::dispatch`], by a caller with that token, with `created` called as soon as the job exists, also where the
    /// caller has gone away by then.
    pub async fn dispatch_and(
        self: &Arc<Self>,
        params: DispatchParams,
        token: Option<&str>,
        created: impl FnOnce(&JobId) + Send + 'static,
    ) -> Result<Dispatched, RpcError> {
        let (began, span) = (Instant::now(), self.dispatch_span());
        self.recorded(began, self.accept(params, None, token, created).instrument(span).await)
    }

    /// Begins the job of an attempt at a commission: one that works on that attempt's worktree too.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::dispatch`].
    pub(crate) async fn dispatch_attempt(
        self: &Arc<Self>,
        params: DispatchParams,
        attempt: Attempt,
    ) -> Result<Dispatched, RpcError> {
        let token = attempt.token.clone();
        let (began, span) = (Instant::now(), self.dispatch_span());
        self.recorded(began, self.accept(params, Some(attempt), token.as_deref(), |_| ()).instrument(span).await)
    }

    fn dispatch_span(&self) -> Span {
        tracing::debug_span!("dispatch", member = %self.key())
    }

    fn recorded(&self, began: Instant, outcome: Result<Dispatched, RpcError>) -> Result<Dispatched, RpcError> {
        record::dispatch(self.key(), outcome.is_ok(), began.elapsed());
        match &outcome {
            Ok(Dispatched { job_id }) => tracing::debug!(member = %self.key(), job = %job_id, "dispatch accepted"),
            Err(RpcError { code, message, .. }) => {
                let why = one_line(message, LOGGED_CHARS);
                tracing::debug!(member = %self.key(), code, why, "dispatch refused");
            }
        }
        outcome
    }

    async fn accept(
        self: &Arc<Self>,
        mut params: DispatchParams,
        attempt: Option<Attempt>,
        token: Option<&str>,
        created: impl FnOnce(&JobId) + Send + 'static,
    ) -> Result<Dispatched, RpcError> {
        let context = self.context_of(attempt.as_ref());
        let limits = &context.limits;
        let wait_until = Instant::now() + Duration::from_secs(limits.dispatch_wait_seconds.into());
        let agent = self.agent(params.agent.as_deref())?;
        may_spend(&context.ingress, agent, token)?;
        if let Some(cluster) =
            self.context.cluster.as_ref().filter(|_| params.key.is_some() || params.follows.is_some())
        {
            // Another host may have just answered with the earlier job.
            cluster.hear_all().await;
        }
        let (key, claim) = match self.keyed(&mut params, token).await? {
            None => (None, None),
            Some((key, Keyed::New(claim))) => (Some(key), Some(claim)),
            Some((_, Keyed::Repeated(job_id))) => {
                created(&job_id);
                return Ok(Dispatched { job_id });
            }
            Some((key, Keyed::UnderWay)) => {
                return Err(RpcError::busy(format!("a dispatch with the `key` {:?} is under way; try again", key.key)));
            }
        };
        if let Some(cluster) = &self.context.cluster {
            cluster.check_accepts()?;
        }
        let Earlier { id: follows, files, kept: read } = self.earlier(params.follows.take()).await?;
        let (mut request, request_bytes, attachments) = self.request(params, files)?;
        let permit = self.context.permits.clone().try_acquire_owned().map_err(|_| {
            record::limit_reached("running_jobs");
            RpcError::busy(format!(
                "the host runs limits.running_jobs = {} jobs; try again when one has ended",
                limits.running_jobs
            ))
        })?;
        let keep = |bytes: u64| self.context.budget.keep(&self.data.budget, bytes);
        let kept = keep(request_bytes)?;
        let plugin = component::ready(&self.component, self.key(), wait_until).await?.plugin.clone();
        let offered = self.offered(wait_until).await?;
        let id = attempt.as_ref().map_or_else(|| self.data.store.new_id(), |attempt| attempt.job.clone());
        let (reach, attached) = match attachments.is_empty() {
            true => (self.reach_of(attempt.as_ref()).map_err(RpcError::internal)?, Attached::default()),
            false => self.stage(&id, attachments).await?,
        };
        drop(read);
        request.task.push_str(&attached.listed);
        let (activation, memory) = self.activation(id, request, &offered, &reach, attempt.as_ref(), wait_until).await?;
        let activation = Arc::new(activation);
        let (hall, host) = (context.view(), Handle::current());
        let (files, environment) = (reach.files.clone(), context.resources.runtimes.environment());
        let scope = ActivateScope { memory: memory.clone(), files, hall, host, environment, wait_until };
        let span = tracing::debug_span!("activate", member = %self.key(), job = %activation.job);
        let activated = plugin.activate(&activation, scope).instrument(span).await.map_err(|e| match e {
            CallError::Busy(_) => RpcError::busy(format!("{e}; try again")),
            e => RpcError::internal(e.to_string()),
        })?;
        let mut plan = activated.outcome.map_err(|refusal| RpcError::invalid_params(refusal.to_string()))?;
        let project = activation.project.as_ref().map(|project| project.name.as_str());
        // Boxed, since it is large, and little of it is needed where there is no hall.
        Box::pin(context.brief(&mut plan, agent, project, &self.grants)).await?;
        if let (Plan::Session(session), true) = (&mut plan, attempt.is_some()) {
            if let Some(absent) = attempt.as_ref().and_then(Attempt::absent) {
                session.system_prompt.push_str(&format!("\n\n{absent}"));
            }
            // They need no asking (REQ-WKR-2).
            let base = reach.tools.iter().filter(|tool| self.grants.base.has(tool) && !session.tools.contains(tool));
            session.tools.extend(base.cloned().collect::<Vec<_>>());
        }
        if attempt.as_ref().is_some_and(|attempt| attempt.activity.is_meeting()) {
            plan = conversation::plan(self.key().as_str(), plan).map_err(RpcError::invalid_params)?;
        }
        if let (Plan::Session(session) | Plan::Conversation(session), Some(model)) =
            (&mut plan, attempt.as_ref().and_then(|attempt| attempt.overrides.model.clone()))
        {
            session.model = Some(model);
        }
        if let (Plan::Session(session), Some(_)) = (&plan, &attached.staged)
            && !session.tools.iter().any(|tool| FILE_TOOLS.contains(&&**tool))
        {
            return Err(RpcError::invalid_params(format!(
                "{} cannot read attachments: its sessions have none of {}; dispatch the task without them",
                self.key(),
                FILE_TOOLS.join(", ")
            )));
        }
        let kept = (kept, keep(bytes_planned(&activation, &plan))?);
        let wanted = match plan.session() {
            Some(session) => Some((session.model.clone(), false)),
            None => self.grants.holds(&AGENT).then_some((None, true)),
        };
        if let Some((model, later)) = wanted {
            let (resources, files) = (self.context.resources.clone(), reach.session_files.clone());
            blocking(move || {
                let wanted = Wanted { model: model.as_deref(), files: files.as_deref(), later };
                resources.runtimes.ready(agent, &wanted).map(drop).map_err(RpcError::invalid_params)
            })
            .await?;
        }
        let plan = Accepted {
            agent: agent.to_string(),
            granted_tools: activation.granted_tools.clone(),
            grants: (*self.grants).clone(),
            ceiling: activation.bounds,
            plan,
        };
        // If the caller goes away now, the job is carried out all the same.
        let this = self.clone();
        let (token, parent) = (token.map(str::to_owned), Parent::current());
        let started = async move {
            // A plan that names another one was refused.
            let no_tool = |name: String| RpcError::internal(format!("no toolbox has the tool {name:?}"));
            let span = tracing::debug_span!("create-job", job = %activation.job);
            let has_attachments = attached.staged.is_some();
            let from = Origin { token, follows, key };
            let created = this.create(activation.clone(), plan.clone(), from, attached, activated.activity, created);
            let job = created.instrument(span).await?;
            drop(claim);
            let job_id = job.id().clone();
            let under_way = this.data.begin(&job_id);
            if let Plan::Conversation(_) = plan.plan {
                // The inputs of the plan are in the job's files, and no longer in memory.
                drop(kept);
                let held = (permit, under_way, this.data.converse(&job_id));
                tokio::spawn(conversation::hold(job, held));
                return Ok(Dispatched { job_id });
            }
            let held = (permit, kept, under_way);
            let request = match &plan.plan {
                Plan::Session(session) => {
                    let toolboxes = offered.only(&session.toolbox_tools).map_err(no_tool)?;
                    JobRequest::Session { toolboxes, resumed: false }
                }
                _ => JobRequest::OwnRun(plugin, activation),
            };
            let assignment = Assignment {
                data: this.data.clone(),
                context,
                job,
                attempt,
                agent,
                accepted: plan,
                grants: this.grants.clone(),
                // The attachments have moved into the job's directory.
                granted: (!has_attachments).then_some((reach, memory)),
                request,
                parent,
            };
            tokio::spawn(run::carry_out(assignment, held));
            Ok(Dispatched { job_id })
        };
        tokio::spawn(started.in_current_span()).await.unwrap_or_else(|e| Err(TaskError::from(e).into()))
    }

    /// Looks the key of a dispatch up, if it has one.
    async fn keyed(
        &self,
        params: &mut DispatchParams,
        token: Option<&str>,
    ) -> Result<Option<(DispatchKey, Keyed)>, RpcError> {
        let Some(key) = params.key.take() else { return Ok(None) };
        if key.trim().is_empty() || key.len() > KEY_BYTES {
            return Err(RpcError::invalid_params(format!("`key` must have 1 to {KEY_BYTES} bytes, and not be blank")));
        }
        let json = serde_json::to_vec(params).map_err(|e| RpcError::internal(e.to_string()))?;
        let (store, token) = (self.data.store.clone(), token.map(str::to_owned));
        blocking(move || {
            let key = DispatchKey { key, params: hex(&Sha256::digest(&json)) };
            let keyed = store.claim_key(token.as_deref(), &key)?;
            Ok(Some((key, keyed)))
        })
        .await
    }

    /// The request, within the limits, and the bytes that the host keeps of it until its job has ended.
    fn request(
        &self,
        params: DispatchParams,
        earlier: Vec<AttachedBytes>,
    ) -> Result<(Request, u64, Vec<AttachedBytes>), RpcError> {
        let limits = &self.context.limits;
        let config = Value::Object(params.config.unwrap_or_default());
        let bounded = |name: &str, bytes: usize, limit: &str, max: u64| {
            if bytes as u64 <= max {
                return Ok(());
            }
            let limit = Limits::cited(limit);
            Err(RpcError::invalid_params(format!("`{name}` has {bytes} bytes, more than {limit} = {max}")))
        };
        for (name, text) in [("description", &params.description), ("task", &params.task)] {
            if text.trim().is_empty() {
                return Err(RpcError::invalid_params(format!("Invalid params: `{name}` must not be empty")));
            }
        }
        bounded("description", params.description.len(), "description_bytes", limits.description_bytes)?;
        bounded("task", params.task.len(), "task_bytes", limits.task_bytes)?;
        let text = config.to_string();
        bounded("config", text.len(), "config_bytes", limits.config_bytes)?;
        let attachments = attachments::read(params.attachments, earlier, limits)?;
        let bytes = (params.description.len() + params.task.len()) as u64 + parsed_bytes(text.as_bytes());
        Ok((Request { description: params.description, task: params.task, config }, bytes, attachments))
    }

    /// Reads the files that came with the job that a dispatch continues, if it continues one.
    async fn earlier(&self, id: Option<String>) -> Result<Earlier, RpcError> {
        let Some(id) = id else { return Ok(Earlier::default()) };
        let (data, context) = (self.data.clone(), self.context.clone());
        let read = blocking(move || {
            // Many short requests for many files would take memory that no request has paid for.
            let bytes = data.store.task(&id)?.attachments.iter().map(|file| file.bytes).sum();
            let kept = context.budget.keep(&data.budget, bytes)?;
            let (id, files) = data.store.attached(&id)?;
            Ok(Earlier { id: Some(id), files, kept: Some(kept) })
        });
        read.await.map_err(|e: RpcError| RpcError::new(e.code, format!("`follows`: {}", e.message)))
    }

    /// Stores the attachments of a dispatch, and returns what its job reaches with them.
    async fn stage(&self, id: &JobId, files: Vec<AttachedBytes>) -> Result<(Reach, Attached), RpcError> {
        let (data, context, grants, id) = (self.data.clone(), self.context.clone(), self.grants.clone(), id.clone());
        blocking(move || {
            let staged = data.store.stage(&id, &files)?;
            let path = data.absolute(&staged.path());
            let reach = context.reach(&data.key, None, path.as_deref(), &grants).map_err(RpcError::invalid_params)?;
            Ok((reach, Attached { staged: Some(staged), listed: attachments::listed(&files) }))
        })
        .await
    }

    /// Refuses a configuration that the member's own schema does not accept.
    async fn check_config(&self, config: &Value, until: Instant) -> Result<(), RpcError> {
        let Some(schema) = &self.config_schema else { return Ok(()) };
        schema.check_config(self.key(), config, &self.context.limits, &self.config_checks, until).await
    }

    async fn activation(
        self: &Arc<Self>,
        job: JobId,
        request: Request,
        offered: &Offered,
        reach: &Reach,
        attempt: Option<&Attempt>,
        until: Instant,
    ) -> Result<(Activation, ScopedMemory), RpcError> {
        let this = self.clone();
        self.check_config(&request.config, until).await?;
        if let (Some(cluster), true) = (&self.context.cluster, self.grants.memory) {
            cluster.notes_of_now().await?;
        }
        let at = attempt.cloned();
        let (posture, memory, memories) = blocking(move || {
            let memory = this.context.memory(this.key(), this.data.memory.clone(), at.as_ref(), &this.grants);
            let memory = memory.map_err(RpcError::internal)?;
            let mut memories = if this.grants.memory { memory.injection() } else { Vec::new() };
            if this.grants.holds(&WEB) {
                // It could send them away without a session, so it is given those that its manifest asks for; its
                // sessions have `read_memory` for the others.
                memories.retain(|note| this.grants.reads(note.scope));
            }
            // Where the operator lets it write none, its memories are what people made of them.
            if at.is_some() && (this.grants.holds(&MEMORY_WRITE) || this.grants.sessions.memory) {
                memory.condense();
            }
            Ok((this.posture()?, memory, memories))
        })
        .await?;
        let activation = Activation {
            job,
            request,
            attempt: attempt.and_then(|attempt| {
                Some(AttemptAt {
                    commission: attempt.activity.commission()?.to_string(),
                    number: attempt.number,
                    dependencies: attempt.dependencies.clone(),
                })
            }),
            meeting: attempt.filter(|attempt| attempt.activity.is_meeting()).map(|attempt| MeetingAt {
                id: attempt.activity.id().to_owned(),
                agenda: attempt.prompt.clone(),
                artifacts: attempt.dependencies.clone(),
            }),
            // Its sessions may read more than it may itself.
            scopes: memory.scopes().into_iter().filter(|scope| self.grants.reads(*scope)).collect(),
            project: attempt
                .map(|attempt| ProjectRoot { name: attempt.project.clone(), root: attempt.project_root().to_owned() }),
            posture,
            memories,
            granted_tools: reach.tools.clone(),
            toolbox_tools: offered.definitions(),
            bounds: self.ceiling_of(attempt),
        };
        Ok((activation, memory))
    }

    /// The posture. Its file is read at each activation: what was approved, or an edit where the operator lets it
    /// change. Without one it is that of the manifest.
    fn posture(&self) -> Result<String, RpcError> {
        let MemberData { key, dir, .. } = &*self.data;
        let wrong = |why: String| RpcError::internal(format!("{POSTURE} of member {key} {why}"));
        let found = discovery::posture(dir).map_err(wrong)?;
        let approval = self.context.approval.current();
        approval.check_posture(key, dir, found.as_deref()).map_err(|refused| {
            if let Some(command) = refused.command() {
                tracing::warn!(member = %key, "`{command}` shows what would be approved, and asks");
            }
            RpcError::internal(refused.to_string())
        })?;
        let Some(found) = found else { return Ok(self.manifest.posture.clone().unwrap_or_default()) };
        let text = String::from_utf8(found);
        text.map_err(|_| wrong("cannot be read: it is not valid UTF-8".to_owned()))
    }

    async fn create(
        &self,
        activation: Arc<Activation>,
        plan: Accepted,
        from: Origin,
        attached: Attached,
        activity: Activity,
        created: impl FnOnce(&JobId) + Send + 'static,
    ) -> Result<Arc<RunningJob>, RpcError> {
        let Request { description, mut task, config } = activation.request.clone();
        let (Attached { staged: attachments, listed }, Origin { token, follows, key }) = (attached, from);
        task.truncate(task.len() - listed.len());
        let id = activation.job.clone();
        let (store, activation) = (self.data.store.clone(), Some(activation));
        let new = NewJob { id, description, task, config, token, attachments, follows, key, plan, activation };
        blocking(move || {
            let job = store.create(new)?;
            created(job.id());
            activity.write(&job);
            Ok(job)
        })
        .await
    }
}

/// The job that a dispatch continues.
#[derive(Default)]
struct Earlier {
    id: Option<JobId>,
    /// The files that came with it, and the part of the host's memory that they take until they are stored again.
    files: Vec<AttachedBytes>,
    kept: Option<MemoryPermit>,
}

/// The origin of a job.
struct Origin {
    /// The name of the caller's token, if it had one.
    token: Option<String>,
    /// The earlier job that it continues, if there is one.
    follows: Option<JobId>,
    /// The key of the dispatch, if it had one.
    key: Option<DispatchKey>,
}

/// Bytes that it keeps besides, of what the component was given and has planned.
fn bytes_planned(activation: &Activation, plan: &Plan) -> u64 {
    let given = activation.memories.iter().map(|note| note.content.len()).sum::<usize>() + activation.posture.len();
    let planned = plan.session().map_or(0, |session| session.system_prompt.len() + session.prompt.len());
    (given + planned) as u64
}
