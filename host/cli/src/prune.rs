//! `guild prune`: removes jobs that ended long ago.
//!
//! Where nobody serves the member, this process owns it meanwhile and removes them itself. Where a host does, it is
//! asked for each job's end and told to delete it: the host's index then never holds what is gone.

use std::{sync::Arc, time::Duration};

use cap_std::fs::Dir;
use guild_contract::{
    JobId, JobStatus, Limits,
    rpc::{ListParams, StatusView},
};
use guild_jobs::{JobStore, OwnerLock, StoreOptions, SystemClock};
use jiff::Timestamp;
use serde::Serialize;

use crate::{
    args::Prune,
    client::AccessArgs,
    failure::{Failure, exit},
    house,
    output::{print, print_json, tell_error},
};

/// What came of it, for one member.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Pruned {
    member: String,
    removed: Vec<JobId>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<String>,
}

/// Which jobs go.
struct Choice {
    older_than: Duration,
    statuses: Vec<JobStatus>,
}

/// `guild prune`.
pub(crate) async fn prune(args: Prune) -> Result<(), Failure> {
    let config = house::config(&args.house.policy)?;
    let members = match &args.member {
        Some(member) => {
            let directory = house::member_directory(member, &args.house, &config)?;
            let found = house::member(&directory, &args.house, &config).map_err(Failure::error)?;
            if found.manifest.component.is_none() {
                return Err(Failure::error(format!(
                    "member {member} has no component: its own process keeps its jobs"
                )));
            }
            vec![(member.clone(), found.dir)]
        }
        None => house::discovered(&house::members_directory(args.house.members.as_deref(), &config)?)?
            .into_iter()
            .filter_map(|found| Some((found.path, found.member.ok()?)))
            .filter(|(_, found)| found.manifest.component.is_some())
            .map(|(path, found)| (path, found.dir))
            .collect(),
    };
    let statuses = match args.statuses {
        none if none.is_empty() => vec![JobStatus::Completed, JobStatus::Failed, JobStatus::Cancelled],
        some => some,
    };
    let choice = Choice { older_than: args.older_than, statuses };
    let limits = Arc::new(config.limits);
    let mut all = Vec::new();
    for (member, dir) in members {
        all.push(prune_member(member, &dir, &choice, &limits).await);
    }
    if args.json {
        print_json(&all)?;
    } else {
        print(|out| {
            all.iter().try_for_each(|one| {
                let (count, jobs) = (one.removed.len(), if one.removed.len() == 1 { "job" } else { "jobs" });
                writeln!(out, "{}: {count} {jobs} removed", one.member)
            })
        })?;
    }
    let errors = all.iter().flat_map(|one| one.errors.iter().map(move |error| (&one.member, error)));
    let failed = errors.inspect(|(member, error)| tell_error(format_args!("{member}: {error}"))).count() > 0;
    if failed { Err(Failure::code(exit::ERROR)) } else { Ok(()) }
}

async fn prune_member(member: String, dir: &Dir, choice: &Choice, limits: &Arc<Limits>) -> Pruned {
    let mut pruned = Pruned { member, removed: Vec::new(), errors: Vec::new() };
    match OwnerLock::try_acquire(dir, "") {
        Ok(Ok(_lock)) => prune_here(&mut pruned, dir, choice, limits),
        Ok(Err(owner)) if owner.url.is_empty() => {
            pruned.errors.push(format!("process {} works on it; try again when that has ended", owner.pid));
        }
        Ok(Err(owner)) => {
            if let Err(error) = prune_there(&mut pruned, &owner.url, choice).await {
                pruned.errors.push(error.message.unwrap_or_default());
            }
        }
        Err(error) => pruned.errors.push(format!("cannot lock it: {error}")),
    }
    pruned
}

/// As the member's owner.
fn prune_here(pruned: &mut Pruned, dir: &Dir, choice: &Choice, limits: &Arc<Limits>) {
    let store = match JobStore::open(dir, StoreOptions { limits: limits.clone(), clock: Arc::new(SystemClock) }) {
        Ok(store) => store,
        Err(error) => return pruned.errors.push(format!("cannot open its jobs: {error}")),
    };
    // A host may go on with them.
    store.leave_running();
    store.load();
    let report = store.prune(choice.older_than, &choice.statuses);
    pruned.removed = report.removed;
    pruned.errors.extend(report.failed.into_iter().map(|(job, reason)| format!("job {job}: {reason}")));
}

/// Through the member's owner.
async fn prune_there(pruned: &mut Pruned, url: &str, choice: &Choice) -> Result<(), Failure> {
    let host = AccessArgs::of_environment().client(url, None)?;
    let now = Timestamp::now();
    for job in host.list(&ListParams::default()).await?.value.jobs {
        if !choice.statuses.contains(&job.status) {
            continue;
        }
        let removed = async {
            let status = host.status(job.job_id.as_str()).await?.value;
            if !choice.takes(&status, now) {
                return Ok(false);
            }
            if status.status == JobStatus::Failed {
                host.cancel(job.job_id.as_str()).await?;
            }
            host.delete(job.job_id.as_str()).await.map(|_| true)
        };
        match removed.await {
            Ok(true) => pruned.removed.push(job.job_id),
            Ok(false) => {}
            // One job's trouble, such as that somebody else has deleted it meanwhile.
            Err(error @ guild_client::Error::Refused { .. }) => {
                pruned.errors.push(format!("job {}: {error}", job.job_id))
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

impl Choice {
    fn takes(&self, job: &StatusView, now: Timestamp) -> bool {
        let ended = job.completed_at.as_ref().unwrap_or(&job.started_at).parse::<Timestamp>();
        let age = ended.ok().and_then(|ended| Duration::try_from(now.duration_since(ended)).ok());
        self.statuses.contains(&job.status) && age.is_some_and(|age| age >= self.older_than)
    }
}
