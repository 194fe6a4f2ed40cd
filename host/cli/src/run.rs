//! `guild run`: one task, from here to its report.
//!
//! The member is opened in this process, without a server. Where a host serves it already, the task goes through that
//! host: a member's jobs have one owner.

use std::{
    io::{self, IsTerminal},
    path::Path,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use guild_client::{DispatchParams, JobStatus, ListParams, ResultView, StatusView, WorkerHandle};
use guild_jobs::Owner;
use guild_server::{
    Host, HostOptions, Member, OpenError, Target, listen::stop_signal, rpc::RpcError, takeover::OwnerError,
};
use indicatif::{ProgressBar, ProgressStyle};

use crate::{
    args::Run,
    client::AccessArgs,
    failure::{Failure, exit},
    house,
    output::{one_line, print_json, print_report, tell, tell_error, write_questions},
    remote::work,
};

/// Between two looks at the job.
const LOOK: Duration = Duration::from_millis(100);
/// Between two frames of the progress line.
const FRAME: Duration = Duration::from_millis(120);

/// `guild run`.
pub(crate) async fn run(args: Run) -> Result<(), Failure> {
    // A host of its own has no other, and one that runs already is asked for it.
    let agent = args.session.agent;
    let params = DispatchParams { agent: agent.map(|agent| agent.to_string()), ..work(&args.task, args.work)? };
    let mut config = house::config(args.house.config_file.as_deref())?;
    let directory = house::member_directory(&args.member, &args.house, &config)?;
    house::worker(&directory, &args.house, &config)?;
    // A member's key is its path in there.
    config.members = house::members_directory(args.house.members.as_deref(), &config).ok();
    let stop = stop_signal().map_err(|e| Failure::error(format!("cannot listen for signals: {e}")))?;
    let mut stop = pin!(stop);
    let options =
        HostOptions { config, target: Target::Member(directory.clone()), sources: args.session.sources, agent };
    let worker = tokio::select! {
        worker = Worker::open(&directory, options) => worker?,
        () = &mut stop => {
            let message = Some("interrupted before there was a job".to_owned());
            return Err(Failure { code: exit::INTERRUPTED, message });
        }
    };
    // From here on there may be a job, so a signal waits until it can be cancelled.
    let id = worker.dispatch(params).await?;
    let job_directory = directory.join("jobs").join(&id);

    let ended = worker.follow(&id, stop).await?;
    let outcome = report(&worker, &ended.status, args.json).await;
    if let Some(questions) = &ended.status.questions
        && !args.json
    {
        let mut text = Vec::new();
        write_questions(&mut text, questions)?;
        tell(format_args!("questions:\n{}", String::from_utf8_lossy(&text).trim_end()));
    }
    tell(format_args!("job: {}", shown(&job_directory)));
    outcome?;
    match ended.status.status {
        JobStatus::Cancelled if ended.interrupted => Err(Failure::code(exit::INTERRUPTED)),
        JobStatus::Cancelled => Err(Failure::code(exit::JOB_CANCELLED)),
        JobStatus::Failed => Err(Failure::code(exit::JOB_FAILED)),
        JobStatus::Completed | JobStatus::Running => Ok(()),
    }
}

/// Prints what came of a job.
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

/// A path for people: absolute where that can be had.
fn shown(path: &Path) -> String {
    path.canonicalize().unwrap_or_else(|_| path.to_owned()).display().to_string()
}

/// Who carries the task out.
enum Worker {
    /// This process.
    Here { member: Arc<Member>, _host: Arc<Host> },
    /// The host that serves the member.
    Owner(WorkerHandle),
}

/// How a job ended.
struct Ended {
    status: StatusView,
    /// Whether it was told to from here.
    interrupted: bool,
}

impl Worker {
    async fn open(directory: &Path, options: HostOptions) -> Result<Self, Failure> {
        // A host that wants to serve a member waits for its owner to let go. There is no need to: the owner does it.
        if let Ok(Some(owner)) = Owner::of(&house::open(directory)?)
            && !owner.url.is_empty()
        {
            let client = AccessArgs::of_environment().client(&owner.url, None)?;
            if client.list(&ListParams { detail: None, filter: Some("-".to_owned()) }).await.is_ok() {
                return Ok(Self::Owner(client));
            }
        }
        match Host::open(options, None).await {
            Ok(host) => match host.single() {
                Some(member) => Ok(Self::Here { member: member.clone(), _host: host }),
                None => Err(Failure::error("the member is not served here")),
            },
            Err(OpenError::Owner(OwnerError::Served { url, .. })) => {
                Ok(Self::Owner(AccessArgs::of_environment().client(&url, None)?))
            }
            Err(error) => Err(Failure::error(error.to_string())),
        }
    }

    async fn dispatch(&self, params: DispatchParams) -> Result<String, Failure> {
        let dispatched = match self {
            Self::Here { member, .. } => member.dispatch(params).await?,
            Self::Owner(host) => host.dispatch(&params).await?.value,
        };
        Ok(dispatched.job_id.to_string())
    }

    async fn status(&self, id: &str) -> Result<StatusView, Failure> {
        match self {
            Self::Here { member, .. } => {
                let status = member.status(id).await?;
                serde_json::from_slice(&status).map_err(|e| Failure::error(format!("the job's status: {e}")))
            }
            Self::Owner(host) => Ok(host.status(id).await?.value),
        }
    }

    async fn result(&self, id: &str) -> Result<ResultView, Failure> {
        match self {
            Self::Here { member, .. } => Ok(member.result(id).await?),
            Self::Owner(host) => Ok(host.result(id).await?.value),
        }
    }

    async fn cancel(&self, id: &str) -> Result<(), Failure> {
        match self {
            Self::Here { member, .. } => drop(member.cancel(id).await?),
            Self::Owner(host) => drop(host.cancel(id).await?),
        }
        Ok(())
    }

    /// Follows a job to its end, and cancels it when told to stop.
    async fn follow(&self, id: &str, mut stop: Pin<&mut impl Future<Output = ()>>) -> Result<Ended, Failure> {
        let progress = Progress::start();
        let mut interrupted = false;
        loop {
            let status = self.status(id).await?;
            if status.status != JobStatus::Running {
                return Ok(Ended { status, interrupted });
            }
            progress.show(status.summary.as_deref());
            tokio::select! {
                () = &mut stop, if !interrupted => {
                    interrupted = true;
                    progress.show(Some("cancelling"));
                    self.cancel(id).await?;
                }
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }
}

impl From<RpcError> for Failure {
    fn from(error: RpcError) -> Self {
        Self::error(error.message)
    }
}

/// The worker's own summary on one line, where stderr is a terminal.
struct Progress(Option<ProgressBar>);

impl Progress {
    fn start() -> Self {
        Self(io::stderr().is_terminal().then(|| {
            let line = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}") {
                line.set_style(style);
            }
            line.enable_steady_tick(FRAME);
            line
        }))
    }

    fn show(&self, summary: Option<&str>) {
        if let (Some(line), Some(summary)) = (&self.0, summary) {
            line.set_message(one_line(summary, usize::MAX));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(line) = &self.0 {
            line.finish_and_clear();
        }
    }
}
