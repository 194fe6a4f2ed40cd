//! Dispatches and follows jobs, at a member opened in this process or at the host that serves it.

use std::{
    ffi::OsStr,
    fmt, fs,
    io::{self, Read as _},
    path::Path,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use guild_client::{
    DispatchParams, Error, JobStatus, ListParams, MemberReport, MemberService, ResultView, StatusView, WorkerHandle,
};
use guild_config::Config;
use guild_contract::{
    Limits,
    manifest::FILE_NAME,
    rpc::{Attachment, RpcError},
};
use guild_roster::{
    Host, HostOptions, Member, OpenError,
    discovery::{self, FoundMember},
    jobs::files::Owner,
    members::takeover::OwnerError,
};
use guild_server::listen::StopSignals;

use super::hosted::Terms;
use crate::{
    args::jobs::WorkArgs,
    client::AccessArgs,
    failure::{Failure, exit},
    local,
    output::{self, markdown::print_report, one_line, print_json, progress::Progress, tell, tell_error},
};

/// The maximum length of a description that is taken from the task.
const DESCRIPTION_CHARS: usize = 80;
/// The initial polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The longest polling interval for a job of another host.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long a host of a directory may take to notice a changed component.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout of a host's answer to a cancellation.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
/// How many polls in a row may find that the host is busy or being restarted.
const MAX_FAILED_POLLS: u32 = 40;

/// The parameters of a dispatch from the command line, and from stdin if the task is `-`.
pub(crate) fn work(task: &str, args: WorkArgs) -> Result<DispatchParams, Failure> {
    let task = match task {
        "-" => {
            let mut text = String::new();
            let read = io::stdin().lock().read_to_string(&mut text);
            read.map_err(|e| Failure::error(format!("cannot read the task from stdin: {e}")))?;
            text
        }
        text => text.to_owned(),
    };
    let first_line = task.lines().map(str::trim).find(|line| !line.is_empty());
    let Some(first_line) = first_line else {
        return Err(Failure::error("the task is empty"));
    };
    let description = args.description.unwrap_or_else(|| one_line(first_line, DESCRIPTION_CHARS));
    let attachments = args.attach.iter().map(|path| attachment(path)).collect::<Result<_, _>>()?;
    let WorkArgs { input: config, follows, key, .. } = args;
    Ok(DispatchParams { description, task, config, agent: None, attachments, follows, key })
}

/// A file of `--attach`.
fn attachment(path: &Path) -> Result<Attachment, Failure> {
    let failed = |why: &dyn fmt::Display| Failure::error(format!("--attach {}: {why}", path.display()));
    let name = path.file_name().and_then(OsStr::to_str).ok_or_else(|| failed(&"its name is not UTF-8"))?.to_owned();
    let bytes = fs::read(path).map_err(|e| failed(&e))?;
    Ok(Attachment::of(name, bytes))
}

/// `guild dispatch --wait`: dispatches the task to a running host and prints its report.
pub(crate) async fn wait_for(worker: WorkerHandle, params: DispatchParams, json: bool) -> Result<(), Failure> {
    let mut stop = stop_signals()?;
    let worker = Worker::Owner(worker);
    let (id, is_to_end) = worker.dispatch_or_stop(params, &mut stop).await?;
    carry_out(&worker, &id, &id, is_to_end, json, stop).await
}

/// The signals that tell the command to end.
pub(crate) fn stop_signals() -> Result<StopSignals, Failure> {
    StopSignals::new().map_err(|e| Failure::error(format!("cannot listen for signals: {e}")))
}

/// The failure of a command that a signal ended.
pub(crate) fn interrupted(why: impl Into<String>) -> Failure {
    Failure { code: exit::INTERRUPTED, message: Some(why.into()) }
}

/// The failure of a command that a signal ended while its job may still run.
fn interrupted_early(id: &str) -> Failure {
    interrupted(format!(
        "interrupted before the host reported the end of the job {id}, which may go on: `guild status {id}` shows it, \
         and `guild cancel {id}` ends it"
    ))
}

/// Follows a job to its end, and prints its outcome. `id` is its id, `job` its name on stderr; with `is_to_end`, the
/// job is cancelled at once.
pub(crate) async fn carry_out(
    worker: &Worker,
    id: &str,
    job: &str,
    is_to_end: bool,
    json: bool,
    mut stop: StopSignals,
) -> Result<(), Failure> {
    let ended = worker.follow(id, is_to_end, &mut stop).await.inspect_err(|_| tell(format_args!("job: {job}")))?;
    let outcome = tokio::select! {
        outcome = report(worker, &ended.status, json) => outcome,
        () = stop.next() => Err(interrupted(format!("interrupted before the report came; `guild result {id}` shows it"))),
    };
    if let Some(questions) = ended.status.questions.as_ref().filter(|_| !json) {
        tell(format_args!("questions:\n{}", output::questions(questions).trim_end()));
    }
    tell(format_args!("job: {job}"));
    outcome?;
    match ended.status.status {
        JobStatus::Cancelled if ended.interrupted => Err(Failure::code(exit::INTERRUPTED)),
        JobStatus::Cancelled => Err(Failure::code(exit::JOB_CANCELLED)),
        JobStatus::Failed => Err(Failure::code(exit::JOB_FAILED)),
        JobStatus::Completed | JobStatus::Running => Ok(()),
    }
}

/// Prints the outcome of a job that has ended at a host; `job` is its name on stderr.
pub(crate) async fn outcome(worker: WorkerHandle, id: &str, job: &str) -> Result<(), Failure> {
    carry_out(&Worker::Owner(worker), id, job, false, false, stop_signals()?).await
}

/// Prints the outcome of a job.
async fn report(worker: &Worker, job: &StatusView, json: bool) -> Result<(), Failure> {
    match job.status {
        JobStatus::Completed => {
            let result = worker.result(job.job_id.as_str()).await?;
            if json { print_json(&result)? } else { print_report(&result.output)? }
        }
        JobStatus::Failed => tell_error(job.error.as_deref().unwrap_or("the job failed")),
        JobStatus::Cancelled | JobStatus::Running => tell(format_args!("the job is {}", job.status)),
    }
    if json && job.status != JobStatus::Completed {
        print_json(job)?;
    }
    Ok(())
}

/// The process that runs the task.
pub(crate) enum Worker {
    /// This process.
    Here { member: Arc<Member>, _host: Arc<Host> },
    /// The host that serves the member.
    Owner(WorkerHandle),
}

/// Checks that an owner serves the member as the terms require.
fn check_terms(directory: &Path, config: &Config, terms: &Terms, owner: &Owner) -> Result<(), Failure> {
    let member = discovery::single(directory, config.members.as_deref(), config).map_err(Failure::error)?;
    terms.check(&member, owner).map(drop)
}

/// How a job ended.
struct Ended {
    status: StatusView,
    /// Whether this command cancelled it.
    interrupted: bool,
}

impl Worker {
    pub(crate) async fn open(
        directory: &Path,
        options: HostOptions,
        terms: &Terms,
        access: &AccessArgs,
    ) -> Result<Self, Failure> {
        // Opening a member waits for its owner to release it. Using the owner avoids that.
        if let Ok(Some(owner)) = Owner::of(&local::open(directory)?)
            && !owner.url.is_empty()
        {
            let client = access.client_of_owner(&owner.url)?;
            let listed = client.list(&ListParams { detail: None, filter: Some("-".to_owned()) }).await;
            // A toolbox refuses, since it has no jobs.
            if matches!(listed, Ok(_) | Err(Error::Refused { .. })) {
                check_terms(directory, &options.config, terms, &owner)?;
                return Ok(Self::Owner(client));
            }
        }
        let config = options.config.clone();
        match Host::open(options, None).await {
            Ok(host) => match host.single() {
                Some(member) => Ok(Self::Here { member: member.clone(), _host: host }),
                None => Err(Failure::error("the member is not served here")),
            },
            Err(OpenError::Owner(OwnerError::Served { key, .. })) => {
                let owner = Owner::of(&local::open(directory)?);
                let owner = owner.map_err(|e| Failure::error(format!("cannot determine the host of {key}: {e}")))?;
                let owner = owner.filter(|owner| !owner.url.is_empty()).ok_or_else(|| {
                    Failure::error(format!("the host of {key} has just started or ended; run the command again"))
                })?;
                check_terms(directory, &config, terms, &owner)?;
                Ok(Self::Owner(access.client_of_owner(&owner.url)?))
            }
            Err(error) => Err(Failure::error(error.to_string())),
        }
    }

    /// Waits until the component in the member's directory is in service, for as long as its compilation takes.
    pub(crate) async fn prepared(
        &self,
        here: &FoundMember,
        limits: &Limits,
        access: &AccessArgs,
    ) -> Result<(), Failure> {
        let progress = Progress::start();
        match self {
            Self::Here { member, .. } => member.prepared(|what| progress.compiling(what)).await,
            Self::Owner(host) => wait_until_current(access, host.url(), here, limits, &progress).await?,
        }
        Ok(())
    }

    async fn dispatch(&self, params: DispatchParams) -> Result<String, Failure> {
        let dispatched = match self {
            Self::Here { member, .. } => member.dispatch(params).await?,
            Self::Owner(host) => host.dispatch(&params).await?.value,
        };
        Ok(dispatched.job_id.to_string())
    }

    /// Dispatches a task, and returns the job's id and whether to cancel the job. After a signal the job's id is still
    /// awaited, so that the job can be cancelled. A second signal ends that.
    pub(crate) async fn dispatch_or_stop(
        &self,
        params: DispatchParams,
        stop: &mut StopSignals,
    ) -> Result<(String, bool), Failure> {
        const UNKNOWN: &str = "interrupted before the job's id was known; the job may go on: `guild list` shows it";
        let mut dispatched = pin!(self.dispatch(params));
        tokio::select! {
            id = &mut dispatched => return Ok((id?, false)),
            () = stop.next() => {}
        }
        tell("waiting for the job's id, to cancel it; a second signal ends this command at once");
        tokio::select! {
            id = dispatched => match id {
                Ok(id) => Ok((id, true)),
                Err(Failure { message, .. }) => {
                    Err(interrupted(format!("{UNKNOWN} ({})", message.unwrap_or_default())))
                }
            },
            () = stop.next() => Err(interrupted(UNKNOWN)),
        }
    }

    /// The job's status; `None` while it is temporarily unknown, for example because the host is being restarted.
    async fn status(&self, id: &str) -> Result<Option<StatusView>, Failure> {
        match self {
            Self::Here { member, .. } => {
                let status = member.status(id).await?;
                serde_json::from_slice(&status).map_err(|e| Failure::error(format!("the job's status: {e}")))
            }
            Self::Owner(host) => match host.status(id).await {
                Ok(reply) => Ok(Some(reply.value)),
                Err(error) if error.may_pass() => {
                    tracing::debug!("{error}");
                    Ok(None)
                }
                Err(error) => Err(error.into()),
            },
        }
    }

    async fn result(&self, id: &str) -> Result<ResultView, Failure> {
        match self {
            Self::Here { member, .. } => Ok(member.result(id).await?),
            Self::Owner(host) => Ok(host.result(id).await?.value),
        }
    }

    /// Cancels the job; `false` if the host does not answer.
    async fn cancel(&self, id: &str) -> Result<bool, Failure> {
        match self {
            Self::Here { member, .. } => drop(member.cancel(id).await?),
            Self::Owner(host) => match tokio::time::timeout(CANCEL_TIMEOUT, host.cancel(id)).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) if !error.may_pass() => return Err(error.into()),
                Ok(Err(_)) | Err(_) => return Ok(false),
            },
        }
        Ok(true)
    }

    /// Handles a signal: the first one cancels the job. A host that does not answer is an error, and so is a second
    /// signal.
    async fn end(&self, id: &str, interrupted: &mut bool, stop: &mut StopSignals) -> Result<(), Failure> {
        if *interrupted {
            return Err(interrupted_early(id));
        }
        *interrupted = true;
        tell("cancelling the job; a second signal ends this command at once");
        let is_cancelled = tokio::select! {
            cancelled = self.cancel(id) => cancelled?,
            () = stop.next() => false,
        };
        if is_cancelled { Ok(()) } else { Err(interrupted_early(id)) }
    }

    /// Follows a job to its end, and cancels it on a signal, or at once with `is_to_end`.
    async fn follow(&self, id: &str, is_to_end: bool, stop: &mut StopSignals) -> Result<Ended, Failure> {
        let progress = Progress::start();
        let (mut interrupted, mut failed_polls) = (false, 0);
        if is_to_end {
            self.end(id, &mut interrupted, stop).await?;
        }
        let mut pause = POLL_INTERVAL;
        loop {
            let status = tokio::select! {
                status = self.status(id) => status?,
                () = stop.next() => {
                    self.end(id, &mut interrupted, stop).await?;
                    continue;
                }
            };
            let pause = match status {
                Some(status) if status.status != JobStatus::Running => return Ok(Ended { status, interrupted }),
                Some(status) => {
                    failed_polls = 0;
                    progress.show(Some("cancelling").filter(|_| interrupted).or(status.summary.as_deref()));
                    // Other clients poll the host, too, so the interval grows.
                    if let Self::Owner(_) = self {
                        pause = (pause * 5 / 4).min(MAX_POLL_INTERVAL);
                    }
                    pause
                }
                None if interrupted => return Err(interrupted_early(id)),
                None => {
                    failed_polls += 1;
                    if failed_polls > MAX_FAILED_POLLS {
                        return Err(Failure::error("the host no longer answers; the job may go on there"));
                    }
                    MAX_POLL_INTERVAL
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stop.next() => self.end(id, &mut interrupted, stop).await?,
            }
        }
    }
}

/// Waits until the host at `url` serves the present state of the member's directory and of its toolboxes. A change that
/// the host does not load by itself is an error, since an older component would run the task.
async fn wait_until_current(
    access: &AccessArgs,
    url: &str,
    here: &FoundMember,
    limits: &Limits,
    progress: &Progress,
) -> Result<(), Failure> {
    let sha256 = here.component_sha256(limits).map_err(Failure::error)?;
    let file = here.manifest.component.as_ref().map_or(FILE_NAME, |spec| &spec.file);
    let key = here.key.as_str();
    let options = access.options_of_owner(url, None)?;
    // A host of one member has a single endpoint, and only reads the member's files when it starts.
    let is_roster = url.contains("/members/");
    let compiled = Duration::from_secs(limits.compile_seconds.into());
    let mut until = Instant::now() + CHANGE_TIMEOUT;
    loop {
        let members = match guild_client::members(url, &options).await {
            Ok(members) => members.value,
            Err(e) => {
                tell(format_args!("cannot determine whether the host at {url} serves the present state of {key}: {e}"));
                return Ok(());
            }
        };
        let of_key = |report: &&MemberReport| report.member == key || !is_roster;
        let Some(served) = members.iter().find(of_key) else { return Ok(()) };
        let is_same = served.sha256 == sha256
            && served.manifest.as_ref().is_none_or(|manifest| *manifest == here.manifest_sha256());
        let is_loading = served.state == MemberService::Loading;
        let loading = Some(&served.member).filter(|_| is_loading).or(served.toolboxes_loading.first());
        if let Some(loading) = loading {
            progress.waiting(&format!("the host at {url} is compiling the component of {loading}"));
            until = Instant::now() + CHANGE_TIMEOUT;
        } else if is_same || served.state == MemberService::Error {
            // The dispatch will report the error.
            return Ok(());
        } else if let Some(why) = &served.error {
            return Err(Failure::error(format!(
                "the host at {url} still serves {key} as it was before its directory changed: {why}"
            )));
        } else if !is_roster {
            return Err(Failure::error(format!(
                "the host at {url} serves {key} as it was before {file} or {FILE_NAME} changed, and reads them when it \
                 starts; restart or end that host, and run the command again"
            )));
        } else if Instant::now() >= until + compiled {
            return Err(Failure::error(format!(
                "the host at {url} still serves {key} as it was before {file} or {FILE_NAME} changed; its log and \
                 `guild members --url {url}` show the reason"
            )));
        } else {
            progress.waiting(&format!("waiting for the host at {url} to load the change of {key}"));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

impl From<RpcError> for Failure {
    fn from(error: RpcError) -> Self {
        Self::error(error.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_a_task_describes_it() {
        let nothing = || WorkArgs { description: None, input: None, attach: Vec::new(), follows: None, key: None };
        assert_eq!(work("\n  What is\town?\nMore.", nothing()).unwrap().description, "What is own?");
        assert_eq!(work(&"x".repeat(99), nothing()).unwrap().description.chars().count(), DESCRIPTION_CHARS);
        assert!(work(" \n", nothing()).is_err());
    }
}
