//! `guild prune`: removes jobs that ended long ago.
//!
//! Where nobody serves the member, this process owns it meanwhile and removes them itself. Where a host does, it is
//! asked for each job's end and told to delete it: the host's index then never holds what is gone.

use std::{
    io::{self, Write},
    time::Duration,
};

use guild_contract::{
    JobId, JobStatus, Limits,
    rpc::{ListParams, StatusView, code},
};
use guild_roster::offline::{OfflineJobs, Pruning};
use jiff::Timestamp;
use serde::Serialize;

use crate::{
    args::Prune,
    client::AccessArgs,
    failure::{Failure, exit},
    local,
    output::{count, one_line, print, print_json, tell, tell_error},
};

/// What came of it, for one member.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Pruned {
    member: String,
    removed: Vec<JobId>,
    /// With `--dry-run`: what would be removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    would_remove: Option<Vec<JobId>>,
    /// What the files of these jobs have, or had.
    bytes: u64,
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
    let config = local::config(&args.local.policy)?;
    let members = match &args.member {
        Some(member) => {
            let directory = local::member_directory(member, &args.local, &config)?;
            let found = local::member(&directory, &args.local, &config).map_err(Failure::error)?;
            if found.manifest.component.is_none() {
                return Err(Failure::error(format!(
                    "member {member} has no component: its own process keeps its jobs"
                )));
            }
            vec![(member.clone(), found.dir)]
        }
        None => local::discovered(&local::members_directory(args.local.members.as_deref(), &config)?)?
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
    let limits = config.limits;
    let mut all = Vec::new();
    for (member, dir) in members {
        let mut pruned = Pruned { member, ..Pruned::default() };
        match OfflineJobs::open(dir) {
            // A member without jobs has none to remove, and is not locked for that.
            Ok(jobs) if !jobs.is_used() => {}
            Ok(jobs) if args.dry_run => look(&mut pruned, &jobs, &choice, &limits),
            Ok(jobs) => prune_member(&mut pruned, &jobs, &choice, &limits).await,
            Err(why) => pruned.errors.push(why),
        }
        all.push(pruned);
    }
    if args.json {
        print_json(&all)?;
    } else {
        print(|out| all.iter().filter(|one| one.is_told(args.member.is_some())).try_for_each(|one| one.write(out)))?;
        let (jobs, bytes) = (all.iter().map(Pruned::jobs).sum(), all.iter().map(|one| one.bytes).sum());
        tell(format_args!(
            "{}: {}, {}",
            if args.dry_run { "to be freed" } else { "freed" },
            count_of(jobs),
            size(bytes)
        ));
    }
    let errors = all.iter().flat_map(|one| one.errors.iter().map(move |error| (&one.member, error)));
    let failed = errors.inspect(|(member, error)| tell_error(format_args!("{member}: {error}"))).count() > 0;
    if failed { Err(Failure::code(exit::ERROR)) } else { Ok(()) }
}

impl Pruned {
    fn jobs(&self) -> usize {
        self.would_remove.as_ref().unwrap_or(&self.removed).len()
    }

    /// Whether it has something to say: that there was nothing is said of the one member that was asked for.
    fn is_told(&self, is_asked_for: bool) -> bool {
        is_asked_for || self.jobs() > 0
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let done = if self.would_remove.is_some() { "would be removed" } else { "removed" };
        writeln!(out, "{}: {} {done}, {}", one_line(&self.member, 80), count_of(self.jobs()), size(self.bytes))?;
        self.would_remove.iter().flatten().try_for_each(|job| writeln!(out, "  {job}"))
    }
}

fn count_of(jobs: usize) -> String {
    if jobs == 1 { "1 job".to_owned() } else { format!("{} jobs", count(jobs as u64)) }
}

/// Bytes for people, in the largest unit of which there is one.
fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.into_iter().find(|(unit, _)| bytes >= *unit) {
        #[allow(clippy::cast_precision_loss, reason = "it is shown with one decimal")]
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / unit as f64),
        None => format!("{bytes} bytes"),
    }
}

/// Looks what would be removed, and changes nothing.
fn look(pruned: &mut Pruned, jobs: &OfflineJobs, choice: &Choice, limits: &Limits) {
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
            if let Err(error) = prune_there(pruned, jobs, &url, choice).await {
                pruned.errors.push(error.message.unwrap_or_default());
            }
        }
        Err(why) => pruned.errors.push(why),
    }
}

/// Through the member's owner.
async fn prune_there(pruned: &mut Pruned, files: &OfflineJobs, url: &str, choice: &Choice) -> Result<(), Failure> {
    let host = AccessArgs::of_environment().client_of_owner(url)?;
    let now = Timestamp::now();
    let jobs = match host.list(&ListParams::default()).await {
        Ok(reply) => reply.value.jobs,
        // A toolbox has no jobs, whatever its directory has.
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
