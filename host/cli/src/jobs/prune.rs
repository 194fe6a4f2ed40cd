//! `guild prune`: removes old ended jobs.
//!
//! If no host serves the member, this process becomes its owner and removes the jobs itself. Otherwise the host is
//! asked when each job ended, and to delete it, so that the host's index never lists a deleted job.

use std::{
    io::{self, Write},
    time::Duration,
};

use guild_contract::{
    JobId, JobStatus, Limits,
    rpc::{ListParams, StatusView, code},
    text::size,
};
use guild_roster::{
    discovery::Found,
    jobs::files::{OfflineJobs, Pruning},
};
use jiff::Timestamp;
use serde::Serialize;

use crate::{
    args::jobs::Prune,
    client::AccessArgs,
    failure::{Failure, exit},
    local,
    output::{self, one_line, print, print_json, tell, tell_error},
};

/// The outcome for one member.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Pruned {
    member: String,
    removed: Vec<JobId>,
    /// With `--dry-run`: the jobs that would be removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    would_remove: Option<Vec<JobId>>,
    /// The size of the files of these jobs.
    bytes: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<String>,
}

/// The criteria for jobs to remove.
struct Choice {
    older_than: Duration,
    statuses: Vec<JobStatus>,
}

/// `guild prune`.
pub(crate) async fn prune(args: Prune) -> Result<(), Failure> {
    let config = local::config(&args.local.policy)?;
    let mut members = Vec::new();
    for Found { path: member, member: found } in local::one_or_all(args.member.as_deref(), &args.local, &config)? {
        let dir = match found {
            Ok(found) if found.manifest.component.is_some() => Ok(found.dir),
            // Without a named member, only members that a host can serve are pruned.
            Ok(_) if args.member.is_none() => continue,
            Ok(_) => {
                let no_component = format!("member {member} has no component: its own process keeps its jobs");
                return Err(Failure::error(no_component));
            }
            // The other members are still pruned.
            Err(why) if args.member.is_none() => Err(why),
            Err(why) => return Err(Failure::error(why)),
        };
        members.push((member, dir));
    }
    let statuses = if args.statuses.is_empty() { JobStatus::ENDED.to_vec() } else { args.statuses };
    let choice = Choice { older_than: args.older_than, statuses };
    let limits = config.limits;
    let mut all = Vec::new();
    for (member, dir) in members {
        let mut pruned = Pruned { member, ..Pruned::default() };
        match dir.and_then(OfflineJobs::open) {
            // A member without jobs is not locked.
            Ok(jobs) if !jobs.is_used() => {}
            Ok(jobs) if args.dry_run => dry_run(&mut pruned, &jobs, &choice, &limits),
            Ok(jobs) => prune_member(&mut pruned, &jobs, &choice, &limits).await,
            Err(why) => pruned.errors.push(why),
        }
        all.push(pruned);
    }
    if args.json {
        print_json(&all)?;
    } else {
        // Members without jobs to remove are only shown by name.
        let shown = |one: &&Pruned| args.member.is_some() || one.jobs() > 0;
        print(|out| all.iter().filter(shown).try_for_each(|one| one.write(out)))?;
        let (jobs, bytes) = (all.iter().map(Pruned::jobs).sum(), all.iter().map(|one| one.bytes).sum());
        tell(format_args!(
            "{}: {}, {}",
            if args.dry_run { "to be freed" } else { "freed" },
            output::jobs(jobs),
            size(bytes)
        ));
    }
    let errors = all.iter().flat_map(|one| one.errors.iter().map(move |error| (&one.member, error)));
    let failed = errors.inspect(|(member, error)| tell_error(format_args!("{member}: {error}"))).count() > 0;
    if failed { Err(Failure::code(exit::ERROR)) } else { Ok(()) }
}

impl Pruned {
    fn jobs(&self) -> u64 {
        self.would_remove.as_ref().unwrap_or(&self.removed).len() as u64
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let done = if self.would_remove.is_some() { "would be removed" } else { "removed" };
        writeln!(out, "{}: {} {done}, {}", one_line(&self.member, 80), output::jobs(self.jobs()), size(self.bytes))?;
        self.would_remove.iter().flatten().try_for_each(|job| writeln!(out, "  {job}"))
    }
}

/// Finds the jobs to remove, without changing anything.
fn dry_run(pruned: &mut Pruned, jobs: &OfflineJobs, choice: &Choice, limits: &Limits) {
    let ids = jobs.prunable(choice.older_than, &choice.statuses, limits).unwrap_or_else(|error| {
        pruned.errors.push(format!("cannot read its jobs: {error}"));
        Vec::new()
    });
    pruned.bytes = ids.iter().map(|id| jobs.bytes(id)).sum();
    pruned.would_remove = Some(ids);
}

async fn prune_member(pruned: &mut Pruned, jobs: &OfflineJobs, choice: &Choice, limits: &Limits) {
    match jobs.prune(choice.older_than, &choice.statuses, limits) {
        Ok(Pruning::Done(report)) => {
            (pruned.removed, pruned.bytes) = (report.removed, report.bytes);
            pruned.errors.extend(report.failed.into_iter().map(|(job, reason)| format!("job {job}: {reason}")));
        }
        Ok(Pruning::Owned(url)) => {
            if let Err(error) = prune_at_host(pruned, jobs, &url, choice).await {
                pruned.errors.push(error.message.unwrap_or_default());
            }
        }
        Err(why) => pruned.errors.push(why),
    }
}

/// Prunes through the host that owns the member.
async fn prune_at_host(pruned: &mut Pruned, files: &OfflineJobs, url: &str, choice: &Choice) -> Result<(), Failure> {
    let host = AccessArgs::of_environment().client_of_owner(url)?;
    let now = Timestamp::now();
    let jobs = match host.list(&ListParams::default()).await {
        Ok(reply) => reply.value.jobs,
        // A toolbox has no jobs, even if its directory has some.
        Err(guild_client::Error::Refused { code: code::METHOD_NOT_FOUND, .. }) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    for job in jobs {
        if !choice.statuses.contains(&job.status) {
            continue;
        }
        let removed = async {
            let status = host.status(job.job_id.as_str()).await?.value;
            if !choice.takes(&status, now) {
                return Ok(None);
            }
            let bytes = files.bytes(&job.job_id);
            if status.status == JobStatus::Failed {
                host.cancel(job.job_id.as_str()).await?;
            }
            host.delete(job.job_id.as_str()).await.map(|_| Some(bytes))
        };
        match removed.await {
            Ok(Some(bytes)) => {
                pruned.bytes += bytes;
                pruned.removed.push(job.job_id);
            }
            Ok(None) => {}
            // An error of one job, for example because another client has deleted it.
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
