//! `guild run`: runs one task and prints its report.
//!
//! The member is opened in this process, without a server. If a host already serves it, the task goes through that
//! host, since a member's jobs have one owner.

use std::path::Path;

use guild_client::DispatchParams;
use guild_roster::{HostOptions, Target};

use super::{
    hosted::Terms,
    worker::{Worker, carry_out, interrupted, stop_signals, work},
};
use crate::{args::jobs::Run, client::AccessArgs, failure::Failure, local};

/// `guild run`.
pub(crate) async fn run(args: Run) -> Result<(), Failure> {
    // A host in this process has only this runtime; a running host is asked to use it.
    let agent = args.session.agent;
    let params = DispatchParams { agent: agent.map(|agent| agent.to_string()), ..work(&args.task, args.work)? };
    let mut config = local::config(&args.local.policy)?;
    config.scripted.options.script = args.script.or(config.scripted.options.script);
    let directory = local::member_directory(&args.member, &args.local, &config)?;
    local::check_worker(&directory, &args.local, &config)?;
    // A member's key is its path in the directory of members.
    config.members = local::members_directory(args.local.members.as_deref(), &config).ok();
    let mut stop = stop_signals()?;
    let policy = config.clone();
    let with_approval = |failure| local::with_approval(failure, &directory, &args.local, &policy);
    // The runtime is requested with the task, so it is not among the terms.
    let terms = Terms::new(&args.local, &args.session.sources, None, &config)?;
    let options = HostOptions {
        config,
        target: Target::Member(directory.clone()),
        sources: args.session.sources,
        agent,
        hall: None,
        has_passed_socket: false,
        fakes: None,
    };
    let opened = async {
        let here = local::member(&directory, &args.local, &options.config).map_err(Failure::error)?;
        let limits = options.config.limits.clone();
        let access = AccessArgs::of_environment();
        let worker = Worker::open(&directory, options, &terms, &access).await?;
        worker.prepared(&here, &limits, &access).await?;
        Ok::<_, Failure>(worker)
    };
    let worker = tokio::select! {
        worker = opened => worker.map_err(with_approval)?,
        () = stop.next() => return Err(interrupted("interrupted before the job existed")),
    };
    let (id, is_to_end) = worker.dispatch_or_stop(params, &mut stop).await.map_err(with_approval)?;
    let job = shown(&directory.join("jobs").join(&id));
    carry_out(&worker, &id, &job, is_to_end, args.json, stop).await
}

/// A path for display: absolute if possible.
fn shown(path: &Path) -> String {
    path.canonicalize().unwrap_or_else(|_| path.to_owned()).display().to_string()
}
