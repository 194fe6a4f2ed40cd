//! Plays a scenario: a component in the real sandbox, under the limits of a host, with all other parts scripted.

use std::{collections::BTreeMap, sync::Arc};

use cap_std::fs::Dir;
use guild_config::Config;
use guild_contract::{
    JobId, JobStatus, MemberKey,
    capability::{
        WEB,
        grants::{Pattern, Policy, Rule},
    },
    rpc::StatusView,
};
use guild_jobs::{Accepted, JobStore, JobTools, MemoryStore, NewJob, RunningJob, ScopedMemory, StoreOptions};
use guild_roster::{discovery::FoundMember, trial::Trial};
use guild_sandbox::{ActivateScope, Activity, Environment, Sandbox, ToolScope};
use guild_session::{
    activation::{Activation, Plan, Request},
    tools::Tools as _,
};
use jiff::Timestamp;
use serde_json::Value;
use tokio::{runtime::Handle, task::spawn_blocking};

use crate::{
    job::Work,
    recording::{Outcome, Recording, transcript},
    scenario::{Given, Scenario},
    surroundings::{Surroundings, failed},
};

/// The default time of calls: 2026-01-01T00:00:00Z.
const DEFAULT_TIME: i64 = 1_767_225_600;

/// A member under test. Its component is compiled once, and each call has a fresh instance.
pub struct Harness {
    member: FoundMember,
    config: Config,
    posture: String,
    trial: Arc<Trial>,
}

/// The extent to which a dispatch is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// To the plan.
    Plan,
    /// To the end of the job, if the plan says that the component carries it out itself; otherwise to the plan.
    OwnRun,
    /// To the end of the job.
    Job,
}

impl Harness {
    /// Loads a member, which is granted all that its manifest asks for. It blocks, while the component is compiled.
    ///
    /// # Errors
    ///
    /// Returns a sentence for the author when a host would not load the member.
    pub fn load(sandbox: &Arc<Sandbox>, member: FoundMember) -> Result<Self, String> {
        let policy = Policy { web: true, ..Policy::default() };
        Self::load_under(sandbox, member, Config { policy, ..Config::default() })
    }

    /// Loads a member under the policy and the limits of an operator. It reads the operator's read roots, if there are
    /// any, in place of the files of a scenario. It blocks, while the component is compiled.
    ///
    /// # Errors
    ///
    /// Returns a sentence for the operator when a host would not load the member.
    pub fn load_under(sandbox: &Arc<Sandbox>, member: FoundMember, config: Config) -> Result<Self, String> {
        let trial = Trial::load(sandbox, &member, &config)?;
        let posture = match member.posture().map_err(|why| format!("posture.md {why}"))? {
            Some(bytes) => String::from_utf8(bytes).map_err(|_| "posture.md is not valid UTF-8")?,
            None => member.manifest.posture.clone().unwrap_or_default(),
        };
        Ok(Self { member, config, posture, trial: Arc::new(trial) })
    }

    /// The member's key.
    pub fn member(&self) -> &MemberKey {
        &self.trial.key
    }

    /// Plays a scenario.
    ///
    /// # Errors
    ///
    /// Returns a sentence that names the key of the script when the scenario is not possible. A failure of the component
    /// is no error, but a part of the recording.
    pub async fn play(self: &Arc<Self>, scenario: &Scenario, extent: Extent) -> Result<Recording, String> {
        let given = &scenario.given;
        let now = given.time.or_else(|| Timestamp::from_second(DEFAULT_TIME).ok()).unwrap_or_default();
        let (this, for_component) = (self.clone(), given.clone());
        let prepared = spawn_blocking(move || {
            let trial = this.trial(&for_component)?;
            Surroundings::new(&trial, &for_component, now).map(|surroundings| (trial, surroundings))
        });
        let (trial, surroundings) = prepared.await.map_err(failed)??;
        let playing = Playing { trial, scenario, surroundings, now };
        match (&given.task, &given.call) {
            (Some(task), None) => playing.dispatch(task, &self.posture, extent).await,
            (None, Some(call)) => playing.call(&call.tool, call.input.clone().into()).await,
            (Some(_), Some(_)) => Err("`given` has both `task` and `call`; a case is a dispatch or a call".to_owned()),
            (None, None) => Err("`given` has neither `task`, for a dispatch, nor `call`, for a tool".to_owned()),
        }
    }

    /// The component with its grants. It blocks for a moment if a capability is denied.
    fn trial(&self, given: &Given) -> Result<Arc<Trial>, String> {
        if given.deny.is_empty() {
            return Ok(self.trial.clone());
        }
        let deny = given.deny.iter().map(|name| name.parse().map_err(|why: String| format!("`given.deny`: {why}")));
        let rule = Rule { members: Pattern("*".to_owned()), deny: deny.collect::<Result<_, _>>()?, ..Rule::default() };
        let mut config = self.config.clone();
        config.policy.rules.push(rule);
        self.trial.under(&self.member, &config).map(Arc::new)
    }
}

/// A scenario that is being played.
struct Playing<'a> {
    trial: Arc<Trial>,
    scenario: &'a Scenario,
    surroundings: Surroundings,
    now: Timestamp,
}

impl Playing<'_> {
    fn given(&self) -> &Given {
        &self.scenario.given
    }

    fn environment(&self) -> Environment {
        let time = self.now.duration_since(Timestamp::UNIX_EPOCH).try_into().unwrap_or_default();
        Environment::Given { time, seed: self.given().seed }
    }

    /// Calls a tool.
    async fn call(&self, tool: &str, input: Value) -> Result<Recording, String> {
        if !self.trial.loaded.plugin.is_toolbox() {
            return Err(format!("`given.call`: {} offers no tools", self.trial.key));
        }
        let scope = ToolScope {
            memory: self.surroundings.memory.clone(),
            files: self.surroundings.own_files(&self.trial),
            web: if self.trial.grants.holds(&WEB) { self.surroundings.own_web.clone() } else { Default::default() },
            environment: self.environment(),
            host: Handle::current(),
            wait_until: self.trial.patience(),
            tell_uses: None,
        };
        let answer = self.trial.call_tool(tool, input, scope).await;
        let outcome = answer.map_or_else(|failure| Outcome::Failed(failure.to_string()), Outcome::Answered);
        Ok(Recording { host_calls: self.surroundings.calls.take(), ..Recording::of(outcome) })
    }

    /// Dispatches the task.
    async fn dispatch(&self, task: &str, posture: &str, extent: Extent) -> Result<Recording, String> {
        if !self.trial.spec.world.exports_dispatch() {
            return Err(format!("`given.task`: {} is a toolbox, to which nothing is dispatched", self.trial.key));
        }
        let activation = Arc::new(self.activation(task, posture)?);
        if let Err(refused) = self.trial.check_config(&activation.request.config).await {
            return Ok(Recording::of(Outcome::Refused(refused.message)));
        }
        let memory = ScopedMemory::from(self.surroundings.memory.clone());
        let scope = ActivateScope {
            memory: memory.clone(),
            files: self.surroundings.own_files(&self.trial),
            hall: None,
            environment: self.environment(),
            host: Handle::current(),
            wait_until: self.trial.patience(),
        };
        let activated = match self.trial.loaded.plugin.activate(&activation, scope).await {
            Ok(activated) => activated,
            Err(error) => return Ok(Recording::of(Outcome::Failed(error.to_string()))),
        };
        let plan = match activated.outcome {
            Ok(plan) => plan,
            Err(refusal) => return Ok(Recording::of(Outcome::Refused(refusal.to_string()))),
        };
        let ends_here = match extent {
            Extent::Plan => true,
            Extent::OwnRun => !matches!(plan, Plan::OwnRun(_)),
            Extent::Job => false,
        };
        if ends_here {
            let log = activated.activity.log.iter().map(|line| format!("{line}\n")).collect();
            let host_calls = self.surroundings.calls.take();
            return Ok(Recording { plan: Some(plan), host_calls, log, ..Recording::of(Outcome::Planned) });
        }
        let (store, job) = self.create(&activation, &plan, activated.activity).await?;
        let work = Work {
            tools: Arc::new(JobTools::new(job.clone(), memory).granted(&self.trial.grants)),
            job: job.clone(),
            trial: &self.trial,
            surroundings: &self.surroundings,
            environment: self.environment(),
            sessions: self.scenario.sessions.clone().into(),
        };
        work.carry_out(&store, plan.clone(), activation).await?;
        let (member, memory) = (self.surroundings.member.try_clone(), self.surroundings.memory.clone());
        let read = spawn_blocking(move || read(&store, &job, &member.map_err(failed)?, &memory, plan));
        let recording = read.await.map_err(failed)??;
        Ok(Recording { host_calls: self.surroundings.calls.take(), ..recording })
    }

    fn activation(&self, task: &str, posture: &str) -> Result<Activation, String> {
        let (given, trial, surroundings) = (self.given(), &self.trial, &self.surroundings);
        if task.trim().is_empty() {
            return Err("`given.task` is empty, and a host accepts no empty task".to_owned());
        }
        if let Some(bounds) = &given.bounds {
            bounds.check().map_err(|why| format!("`given.bounds`: {why}"))?;
        }
        let memory = ScopedMemory::from(surroundings.memory.clone());
        Ok(Activation {
            job: self.job_id()?,
            request: Request {
                description: given.description.clone().unwrap_or_else(|| "test".to_owned()),
                task: task.to_owned(),
                config: given.config.clone().into(),
            },
            attempt: None,
            meeting: None,
            project: None,
            posture: given.posture.clone().unwrap_or_else(|| posture.to_owned()),
            scopes: memory.scopes(),
            memories: if trial.grants.memory { memory.injection() } else { Vec::new() },
            granted_tools: surroundings.tools.clone(),
            toolbox_tools: surroundings.toolbox.definitions(),
            bounds: given.bounds.map_or_else(|| trial.ceiling(), |bounds| bounds.min(trial.ceiling())),
        })
    }

    /// The id of the job: the given one, or that of a job at this time, with the seed in place of random bits.
    fn job_id(&self) -> Result<JobId, String> {
        if let Some(id) = &self.given().job {
            return Ok(id.clone());
        }
        let millis = u64::try_from(self.now.as_millisecond()).unwrap_or_default();
        let mut random = [0; 10];
        if let Some(end) = random.last_chunk_mut() {
            *end = self.given().seed.to_be_bytes();
        }
        uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid().to_string().parse().map_err(failed)
    }

    /// Creates the job of an accepted dispatch.
    async fn create(
        &self,
        activation: &Activation,
        plan: &Plan,
        activity: Activity,
    ) -> Result<(Arc<JobStore>, Arc<RunningJob>), String> {
        let options = StoreOptions { limits: self.trial.limits.clone(), clock: self.surroundings.clock.clone() };
        let Request { description, task, config } = activation.request.clone();
        let plan = Accepted {
            agent: "scripted".to_owned(),
            granted_tools: activation.granted_tools.clone(),
            grants: (*self.trial.grants).clone(),
            ceiling: activation.bounds,
            plan: plan.clone(),
        };
        let new = NewJob {
            id: activation.job.clone(),
            description,
            task,
            config,
            token: None,
            attachments: None,
            activation: None,
            follows: None,
            key: None,
            plan,
        };
        let member = self.surroundings.member.try_clone().map_err(failed)?;
        let created = spawn_blocking(move || {
            let store = JobStore::open(&member, options).map_err(failed)?;
            store.load();
            let job = store.create(new).map_err(failed)?;
            activity.write(&job);
            Ok((store, job))
        });
        created.await.map_err(failed)?
    }
}

/// Reads the recording of a job from its files. It blocks.
fn read(
    store: &JobStore,
    job: &RunningJob,
    member: &Dir,
    memory: &MemoryStore,
    plan: Plan,
) -> Result<Recording, String> {
    let status = store.status(job.id().as_str()).map_err(failed)?;
    let status: StatusView = serde_json::from_slice(&status).map_err(failed)?;
    let result = (status.status == JobStatus::Completed).then(|| store.result(job.id().as_str()).map_err(failed));
    let dir = member.open_dir(format!("jobs/{}", job.id())).map_err(failed)?;
    let paths = result.as_ref().and_then(|result| result.as_ref().ok()?.artifacts.clone());
    let paths = paths.map_or_else(|| artifacts(&dir), Ok)?;
    let outcome = match result {
        Some(result) => Outcome::Completed(result?.output),
        None => Outcome::Failed(status.error.unwrap_or_default()),
    };
    let text = |path: &str| dir.read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let mut notes = BTreeMap::new();
    for entry in memory.list().map_err(failed)? {
        let note = memory.load(&entry.key).map_err(failed)?;
        notes.extend(note.map(|text| (entry.key, text)));
    }
    let (sessions, calls) = transcript(&job.history().map_err(failed)?);
    let of_artifact = |path: String| {
        let name = path.strip_prefix("artifacts/").unwrap_or(&path).to_owned();
        Ok((name, text(&path).map_err(failed)?))
    };
    Ok(Recording {
        outcome,
        plan: Some(plan),
        sessions,
        calls,
        host_calls: Vec::new(),
        summary: status.summary,
        questions: status.questions.unwrap_or_default(),
        decisions: status.decisions.unwrap_or_default(),
        artifacts: paths.into_iter().map(of_artifact).collect::<Result<_, String>>()?,
        memory: notes,
        log: text("log.txt").unwrap_or_default(),
    })
}

/// The files below `artifacts/` of a job without a result.
fn artifacts(job: &Dir) -> Result<Vec<String>, String> {
    let mut directories = vec!["artifacts".to_owned()];
    let mut files = Vec::new();
    while let Some(directory) = directories.pop() {
        for entry in job.read_dir(&directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let path = format!("{directory}/{}", entry.file_name().to_string_lossy());
            match entry.file_type().map_err(failed)? {
                kind if kind.is_dir() => directories.push(path),
                kind if kind.is_file() => files.push(path),
                _ => {}
            }
        }
    }
    Ok(files)
}
