//! Plays the last jobs of a member again, with its present component, before it is approved.

use std::{
    cmp::Reverse,
    io::{self, Write},
    path::Path,
    sync::Arc,
};

use guild_config::Config;
use guild_contract::{JobId, Limits, Meta};
use guild_harness::{Harness, record::RecordedJob, rehearse::Rehearsal, report};
use guild_roster::{
    discovery::FoundMember,
    jobs::files::{OfflineJobs, made_at},
    trial::Trial,
};
use tokio::{runtime::Builder, task::spawn_blocking};

use crate::{
    failure::Failure,
    on,
    output::{BAD, LABEL, cost, harmless, one_line, print, progress::Progress},
};

/// Lines of a difference that are shown: of what was, and of what is, each.
const SHOWN_LINES: usize = 6;
/// Columns of a job's label that are shown.
const LABEL_COLUMNS: usize = 60;

/// Plays the last jobs again, and prints what differs.
///
/// # Errors
///
/// Returns an error when the member cannot be loaded, or its jobs cannot be read.
pub(crate) fn rehearse(found: FoundMember, config: Config, most: usize) -> Result<(), Failure> {
    on(&mut Builder::new_multi_thread(), async move {
        let (jobs, outcomes) = play(found, config, most).await.map_err(|why| Failure::error(harmless(&why)))?;
        Ok(print(|out| write(out, jobs, &outcomes))?)
    })
}

/// A job, and what came of it.
type Outcome = (JobId, Result<Rehearsal, String>);

/// Plays the last jobs, the newest first. Returns the number of all jobs, and what came of those.
async fn play(found: FoundMember, config: Config, most: usize) -> Result<(usize, Vec<Outcome>), String> {
    let directory = found.dir.try_clone().map_err(|e| e.to_string())?;
    let file = found.manifest.component.as_ref().map(|spec| spec.file.clone()).unwrap_or_default();
    let limits = Arc::new(config.limits.clone());
    let of_jobs = limits.clone();
    let loaded = spawn_blocking(move || {
        let progress = Progress::start();
        progress.compiling(&file);
        let sandbox = Trial::sandbox(&limits).map_err(|e| e.to_string())?;
        Harness::load_under(&sandbox, found, config).map(Arc::new)
    });
    let harness = loaded.await.map_err(|e| e.to_string())??;
    let jobs = OfflineJobs::open(directory)?;
    let mut ids = jobs.ids().map_err(|e| format!("the jobs of the member cannot be read: {e}"))?;
    ids.sort_by_cached_key(|id| Reverse((made_at(id), id.clone())));
    let all = ids.len();
    let mut outcomes = Vec::new();
    for id in ids.into_iter().take(most) {
        let outcome = match recorded(&jobs, &id, &of_jobs) {
            Ok((recorded, meta)) => harness.rehearse(recorded, &meta).await,
            Err(why) => Err(why),
        };
        outcomes.push((id, outcome));
    }
    Ok((all, outcomes))
}

fn recorded(jobs: &OfflineJobs, id: &JobId, limits: &Limits) -> Result<(RecordedJob, Meta), String> {
    let unreadable = |e: io::Error| format!("the job cannot be read: {e}");
    let job = jobs.dir().open_dir(Path::new("jobs").join(id.as_str())).map_err(unreadable)?;
    Ok((RecordedJob::read(&job)?, jobs.meta(id, limits).map_err(unreadable)?))
}

/// Writes what came: the sum, and each job that differs or cannot be played, with its first difference.
fn write(out: &mut dyn Write, all: usize, outcomes: &[Outcome]) -> io::Result<()> {
    let number =
        |is: fn(&Rehearsal) -> bool| outcomes.iter().filter(|(_, outcome)| outcome.as_ref().is_ok_and(is)).count();
    let (same, other) = (number(|it| it.differences.is_empty()), number(|it| !it.differences.is_empty()));
    let skipped = outcomes.len() - same - other;
    writeln!(
        out,
        "{LABEL}rehearsal {LABEL:#} the last {} of {all} jobs: {same} as then, {other} otherwise, {skipped} not played",
        outcomes.len()
    )?;
    for (id, outcome) in outcomes {
        match outcome {
            Ok(rehearsal) => write_rehearsal(out, rehearsal)?,
            Err(why) => writeln!(out, "  {id}  not played: {}", harmless(why))?,
        }
    }
    Ok(())
}

fn write_rehearsal(out: &mut dyn Write, rehearsal: &Rehearsal) -> io::Result<()> {
    let Rehearsal { id, at, description, differences, requests, prompt_chars, usage } = rehearsal;
    if differences.is_empty() && requests.is_empty() {
        return Ok(());
    }
    let label = one_line(description, LABEL_COLUMNS);
    let (then, now) = prompt_chars;
    writeln!(out, "  {id}  {}  {label}", at.strftime("%F"))?;
    writeln!(out, "    {LABEL}cost then{LABEL:#} {}, {then} characters of prompts; now {now}", cost(usage))?;
    if let Some(first) = differences.first() {
        let shown = harmless(&report::describe(first)).replace("expect.", "");
        let (mut removed, mut other, mut more) = (0, 0, 0);
        for line in shown.lines() {
            let number = if line.trim_start().starts_with('-') { &mut removed } else { &mut other };
            *number += 1;
            match *number > SHOWN_LINES {
                true => more += 1,
                false => writeln!(out, "    {BAD}{line}{BAD:#}")?,
            }
        }
        if more > 0 {
            writeln!(out, "    ({more} more lines)")?;
        }
    }
    let others: Vec<String> = differences.iter().skip(1).map(|it| it.to_string().replace("expect.", "")).collect();
    if !others.is_empty() {
        writeln!(out, "    {LABEL}also{LABEL:#} {}", harmless(&others.join(", ")))?;
    }
    for request in requests {
        writeln!(out, "    {LABEL}asked for{LABEL:#} {}", harmless(request))?;
    }
    Ok(())
}
