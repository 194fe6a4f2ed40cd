//! Keeps the usage of removed jobs in `.usage.jsonl` of the member's directory, so that sums stay complete.
//!
//! A line is written before its job is removed. After a crash in between, the job counts and its line does not. A large
//! file is replaced by the sums of days, then of months, then of years.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write as _},
    path::Path,
};

use cap_std::fs::Dir;
use guild_contract::{JobId, JobStatus, Meta};
use guild_fs::{
    durable::{Survives, append, ends_with_newline, read_whole, replace},
    fingerprint::Fingerprint,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::sum::Sum;
use crate::files::record::JOBS;

/// The file in the member's directory.
const LEDGER: &str = ".usage.jsonl";
/// A ledger of more bytes is summed up before a line is added. A line has some 300 bytes.
const MAX_BYTES: u64 = 4 * 1024 * 1024;
/// The number of jobs that are recorded at once.
const AT_ONCE: usize = 1000;
/// The lengths of the times of sums: of a day, a month, a year.
const PERIODS: [usize; 3] = ["2026-01-31".len(), "2026-01".len(), "2026".len()];

/// The period, last status, runtime and models of jobs that are summed.
type Key = (String, Option<&'static str>, String, Vec<String>);

/// The usage of a removed job, or of all that ended in a period.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Removed {
    /// The time of the job's end, RFC 3339. For several jobs it is their common prefix, such as `2026-01`.
    pub(crate) at: String,
    /// The job; `None` for the sum of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) job: Option<JobId>,
    /// The last status; `None` in lines of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<JobStatus>,
    /// The usage.
    #[serde(flatten)]
    pub(crate) sum: Sum,
}

impl Removed {
    fn of(meta: &Meta) -> Option<Self> {
        let used = meta.usage.as_ref()?;
        let mut sum = Sum { agent: used.agent.clone(), models: used.models.clone(), ..Sum::default() };
        sum.add(used);
        let at = meta.completed_at.as_ref().unwrap_or(&meta.started_at).clone();
        Some(Self { at, job: Some(meta.job_id.clone()), status: Some(meta.status), sum })
    }

    /// Whether the job, or possibly the last one of several, ended at `since` or later. True for an invalid time, so
    /// that no cost is hidden.
    pub(crate) fn is_since(&self, since: Timestamp) -> bool {
        match self.at.parse::<Timestamp>() {
            Ok(at) => at >= since,
            Err(_) => since.to_string().get(..self.at.len()).is_none_or(|since| self.at.as_str() >= since),
        }
    }
}

/// Records the usage of jobs that are about to be removed. The record survives a power cut.
///
/// # Errors
///
/// Returns an error when the ledger cannot be written. None of the jobs may be removed then.
pub(crate) fn note<'a>(member: &Dir, metas: impl Iterator<Item = &'a Meta>) -> io::Result<()> {
    let lines: Vec<Removed> = metas.filter_map(Removed::of).collect();
    for lines in lines.chunks(AT_ONCE) {
        let size = Fingerprint::at(member, LEDGER)?.map_or(0, |file| file.size());
        let (size, mut text) = match size > MAX_BYTES {
            true => (sum_up(member)?, Vec::new()),
            false => (size, Vec::new()),
        };
        if size > 0 && !ends_with_newline(member, LEDGER, size)? {
            // A crash cut the last line.
            text.push(b'\n');
        }
        text.extend(text_of(lines)?);
        let mut file = append(member, LEDGER)?;
        file.write_all(&text)?;
        file.sync_data()?;
    }
    Ok(())
}

/// The usage of removed jobs of the member in the directory `member`.
///
/// # Errors
///
/// Returns an error when the ledger cannot be read.
pub(crate) fn read(member: &Dir) -> io::Result<Vec<Removed>> {
    Ok(all(member)?.into_iter().filter(|line| !is_there(member, line)).collect())
}

/// Whether the job of a line still exists.
fn is_there(member: &Dir, line: &Removed) -> bool {
    let job = line.job.as_ref().map(|job| Path::new(JOBS).join(job.as_str()));
    job.is_some_and(|job| member.symlink_metadata(job).is_ok())
}

/// All lines, each job once.
pub(crate) fn all(member: &Dir) -> io::Result<Vec<Removed>> {
    let Some((text, _)) = read_whole(member, LEDGER, 4 * MAX_BYTES)? else { return Ok(Vec::new()) };
    let mut seen = BTreeSet::new();
    let read = |line: &[u8]| serde_json::from_slice::<Removed>(line).ok();
    let lines = text.split(|byte| *byte == b'\n').filter_map(read);
    Ok(lines.filter(|line| line.job.as_ref().is_none_or(|job| seen.insert(job.clone()))).collect())
}

/// Replaces the ledger by its sums, and returns the new size.
fn sum_up(member: &Dir) -> io::Result<u64> {
    let (kept, lines): (Vec<Removed>, Vec<Removed>) = all(member)?.into_iter().partition(|line| is_there(member, line));
    let mut text = Vec::new();
    for period in PERIODS {
        let mut sums: BTreeMap<Key, Removed> = BTreeMap::new();
        for line in &lines {
            let at = line.at.get(..period).unwrap_or(&line.at).to_owned();
            let Sum { agent, models, .. } = &line.sum;
            let key = (at.clone(), line.status.map(JobStatus::as_str), agent.clone(), models.clone());
            let sum = || Sum { agent: agent.clone(), models: models.clone(), ..Sum::default() };
            let new = || Removed { at, job: None, status: line.status, sum: sum() };
            sums.entry(key).or_insert_with(new).sum.plus(&line.sum);
        }
        text = text_of(&kept.iter().cloned().chain(sums.into_values()).collect::<Vec<_>>())?;
        if text.len() as u64 <= MAX_BYTES / 2 {
            break;
        }
    }
    replace(member, LEDGER, &text, Survives::PowerCut)?;
    Ok(text.len() as u64)
}

fn text_of(lines: &[Removed]) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    for line in lines {
        serde_json::to_writer(&mut text, line)?;
        text.push(b'\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use cap_std::ambient_authority;

    use super::*;
    use guild_fs::durable::open_dir;

    fn line(nth: usize, day: usize) -> Removed {
        let sum = Sum { agent: "api".to_owned(), count: 1, cost_usd: 0.5, ..Sum::default() };
        let at = format!("2026-01-{:02}T00:00:{:02}Z", day % 28 + 1, nth % 60);
        Removed { at, job: Some(format!("job-{nth}").parse().unwrap()), status: None, sum }
    }

    #[test]
    fn a_large_ledger_becomes_sums_and_loses_nothing() {
        let dir = tempfile::tempdir().unwrap();
        // The directory is opened for reading, so that it can be synced.
        let member = open_dir(&Dir::open_ambient_dir(dir.path(), ambient_authority()).unwrap(), ".").unwrap();
        let lines: Vec<_> = (0..200).map(|nth| line(nth, nth)).collect();
        let mut text = text_of(&lines).unwrap();
        // The ledger has a line twice, a line whose job still exists, and a line that a crash cut.
        text.extend(text_of(&lines[..1]).unwrap());
        fs::create_dir_all(dir.path().join("jobs/job-7")).unwrap();
        text.extend_from_slice(b"{\"at\": \"2026");
        fs::write(dir.path().join(LEDGER), &text).unwrap();
        let total = || {
            let read = read(&member).unwrap();
            (read.iter().map(|line| line.sum.count).sum::<u64>(), read.len())
        };
        assert_eq!(total(), (199, 199));
        sum_up(&member).unwrap();
        assert_eq!(total(), (199, 28));
        fs::remove_dir(dir.path().join("jobs/job-7")).unwrap();
        assert_eq!(total(), (200, 29));
        let since: Timestamp = "2026-01-15T12:00:00Z".parse().unwrap();
        let later = read(&member).unwrap().into_iter().filter(|line| line.is_since(since)).collect::<Vec<_>>();
        assert!(later.iter().all(|line| line.at.as_str() >= "2026-01-15") && later.len() == 14, "{later:?}");
    }
}
