//! The arguments of the commands that carry tasks out, and that follow, list and remove jobs.

use std::path::PathBuf;

use clap::{Args, ValueHint, builder::NonEmptyStringValueParser};
use clap_complete::{ArgValueCandidates, ArgValueCompleter};
use guild_config::Runtime;
use guild_contract::JobStatus;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::{SessionArgs, runtimes};
use crate::{
    client::{AccessArgs, Endpoint},
    complete,
    local::LocalArgs,
};

/// `guild run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild run ./guild-members/researcher \"How does ownership work?\" --sources ~/rust-book
  guild run researcher --members ./guild-members --input '{\"maxTurns\": 20}' - < task.md

The report goes to stdout; progress and the job's directory go to stderr. Ctrl-C and SIGTERM cancel the job. If a \
host already serves the member, the task goes through that host. If that host reads other directories than --sources, \
or was started with another guild.toml than the named one, the command refuses the task, and the error names the \
process. --agent requests a runtime from the host, whose operator must allow it.

With --members, a MEMBER without `/` is a key in that directory. Without --members, MEMBER is a directory, or else a \
key in the members' directory; if both exist and are different members, the command fails. ./NAME is always the \
directory.

Exit code: 0 completed, 3 failed, 4 cancelled by another client, 130 ended by Ctrl-C or SIGTERM, 1 any other error.")]
pub(crate) struct Run {
    /// The member: its directory, or its key in the members' directory; see below if both exist
    #[arg(value_parser = NonEmptyStringValueParser::new(), add = ArgValueCompleter::new(complete::member_or_directory))]
    pub(crate) member: String,
    /// The task; `-` reads it from stdin
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) task: String,
    /// The description and the configuration of the task
    #[command(flatten)]
    pub(crate) work: WorkArgs,
    /// What the job's sessions read and run on
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// The test file whose sessions the runtime `scripted` plays [default: `script` in [scripted] of guild.toml]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "agent")]
    pub(crate) script: Option<PathBuf>,
    /// The location of the members
    #[command(flatten)]
    pub(crate) local: LocalArgs,
    /// Print the answer of worker/result as JSON, or of worker/status if the job did not complete
    #[arg(long)]
    pub(crate) json: bool,
}

/// The description and the configuration of a task.
#[derive(Debug, Args)]
pub(crate) struct WorkArgs {
    /// A short label for lists [default: the task's first line]
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) description: Option<String>,
    /// The job's configuration, a JSON object whose keys the member defines
    #[arg(long, value_name = "JSON", value_parser = job_input)]
    pub(crate) input: Option<Map<String, Value>>,
    /// A file for the worker; repeat it for several. Its sessions read it as `attachments/NAME`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) attach: Vec<PathBuf>,
    /// An earlier job of the member that the new one continues: its files come along, and its questions count as
    /// answered
    #[arg(long, value_name = "JOB", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) follows: Option<String>,
    /// A text that makes the dispatch safe to repeat: with the same key, task and settings, the member makes one job
    /// within 24 hours, and answers with its id
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) key: Option<String>,
}

/// `guild dispatch`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild dispatch \"How does ownership work?\" --url http://127.0.0.1:50321/mcp
  guild dispatch \"How does ownership work?\" --member researcher --wait
  id=$(guild dispatch - --member researcher < task.md)

With --wait, the report goes to stdout, progress and the job's id go to stderr, and Ctrl-C and SIGTERM cancel the \
job. The exit code is then: 0 completed, 3 failed, 4 cancelled by another client, 130 ended by Ctrl-C or SIGTERM, 1 \
any other error.")]
pub(crate) struct Dispatch {
    /// The task; `-` reads it from stdin
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) task: String,
    /// The description and the configuration of the task
    #[command(flatten)]
    pub(crate) work: WorkArgs,
    /// Request this agent runtime, which the host's operator must allow [default: the host's choice]
    #[arg(long, value_name = "NAME", value_parser = runtimes())]
    pub(crate) agent: Option<Runtime>,
    /// Wait for the end of the job, and print its report instead of its id; --json then works as for `guild run`
    #[arg(long)]
    pub(crate) wait: bool,
    /// The host
    #[command(flatten)]
    pub(crate) endpoint: Endpoint,
}

/// `guild list`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild list --detailed
  guild list --member researcher --filter '*ownership*' --json

On a terminal the list has aligned columns. In a pipe each line has tab-separated fields: the job's id, its status, \
its member, its creation time (RFC 3339) and its description, and with --detailed its summary. --json prints the \
host's answer; with several members, each job has its `member`. The command reads the files in the directory of \
members if no host was named and none answers, or if --members names that directory.")]
pub(crate) struct List {
    /// Also show the worker's summary of each job
    #[arg(long)]
    pub(crate) detailed: bool,
    /// Only jobs whose whole description matches this glob: * ? [..] {a,b}
    #[arg(long, value_name = "GLOB")]
    pub(crate) filter: Option<String>,
    /// The host
    #[command(flatten)]
    pub(crate) endpoint: Endpoint,
    /// The location of the members' files, for use without a host
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// `guild status`, `result`, `cancel` and `delete`.
#[derive(Debug, Args)]
pub(crate) struct Job {
    /// The job's id from `guild dispatch` or `guild list`, or a unique prefix of it, also as MEMBER/ID; @latest is the
    /// newest job
    #[arg(value_name = "JOB", value_parser = NonEmptyStringValueParser::new(), add = ArgValueCandidates::new(complete::jobs))]
    pub(crate) id: String,
    /// The host
    #[command(flatten)]
    pub(crate) endpoint: Endpoint,
    /// The location of the members' files, for use without a host
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// `guild watch`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild watch
  guild watch --job @latest                    (until that job ends)
  guild watch --member researcher --json

Each event is one line: a job starts, reports progress, asks a question, records a decision or ends; or a member is \
added, changed or removed. Times are UTC. The command reconnects after a broken connection, and continues after the \
last event; it reports a gap. --json prints the host's events unchanged.

Exit code: 0 if Ctrl-C or SIGTERM ends the command; with --job, 0 completed, 3 failed, 4 cancelled; 1 any error.")]
pub(crate) struct Watch {
    /// Follow only this job until it ends: its id, or a unique prefix of it; @latest is the newest job
    #[arg(long, value_name = "JOB", value_parser = NonEmptyStringValueParser::new(), add = ArgValueCandidates::new(complete::jobs))]
    pub(crate) job: Option<String>,
    /// The host
    #[command(flatten)]
    pub(crate) endpoint: Endpoint,
}

/// `guild logs`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild logs JOB --members ./guild-members
  guild logs @latest --member researcher --follow

The command reads the job's transcript.jsonl and its log.txt, ordered by time, whichever process runs the job. Times \
are UTC. Long inputs and results are shortened. --json prints the lines of the transcript unchanged, and the lines of \
the log with the type `log`.")]
pub(crate) struct Logs {
    /// The job's id from `guild dispatch` or `guild list`, or a unique prefix of it; @latest is the newest job
    #[arg(value_name = "JOB", value_parser = NonEmptyStringValueParser::new(), add = ArgValueCandidates::new(complete::jobs))]
    pub(crate) id: String,
    /// The job's member: a key in the members' directory, or a directory [default: the member that has the job]
    #[arg(long, value_name = "MEMBER", value_parser = NonEmptyStringValueParser::new(), add = ArgValueCompleter::new(complete::member_or_directory))]
    pub(crate) member: Option<String>,
    /// Follow the job until it ends
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Read the job from the running host at this URL, such as http://127.0.0.1:PORT/mcp, instead of from local files
    #[arg(long, value_name = "URL", conflicts_with_all = ["home", "members"])]
    pub(crate) url: Option<String>,
    /// How to authenticate to the host at a URL
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// Read the job from the members that the host of the hall in this home serves
    #[arg(long, value_name = "HOME", conflicts_with = "members")]
    pub(crate) home: Option<PathBuf>,
    /// The location of the members
    #[command(flatten)]
    pub(crate) local: LocalArgs,
    /// Print the lines as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `guild usage`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild usage --since 7d
  guild usage --since 2026-01-01 --member researcher --json

A job counts from the moment of its end, even if it was deleted or pruned since: .usage.jsonl of its member then \
keeps its usage. `guild status` shows the usage of a running job so far. The cost of a job is unknown if its model \
has no known price: such jobs are counted, and their unknown cost is not in the sum.")]
pub(crate) struct Usage {
    /// Only count jobs that ended since this time: an age such as 12h, 7d or 2w, or a date (UTC) such as 2026-01-01 or
    /// 2026-01-01T12:00:00Z [default: all]
    #[arg(long, value_name = "TIME", value_parser = crate::age::since)]
    pub(crate) since: Option<Timestamp>,
    /// Only this member: a key in the members' directory, or a directory [default: every member]
    #[arg(long, value_name = "MEMBER", value_parser = NonEmptyStringValueParser::new(), add = ArgValueCompleter::new(complete::member_or_directory))]
    pub(crate) member: Option<String>,
    /// The location of the members
    #[command(flatten)]
    pub(crate) local: LocalArgs,
    /// Print the sums as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `guild prune`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild prune                                    (all jobs that ended more than 30 days ago)
  guild prune researcher --older-than 12h --status failed --status cancelled
  guild prune --older-than 7d --dry-run          (lists the jobs, and removes nothing)

With --members, a MEMBER without `/` is a key in that directory. Without --members, MEMBER is a directory, or else a \
key in the members' directory; if both exist and are different members, the command fails. ./NAME is always the \
directory.

A member that a host serves is pruned through that host.")]
pub(crate) struct Prune {
    /// One member: its directory, or its key in the members' directory; see below if both exist [default: every member]
    #[arg(value_parser = NonEmptyStringValueParser::new(), add = ArgValueCompleter::new(complete::member_or_directory))]
    pub(crate) member: Option<String>,
    /// The minimum time since the end of a job: 12h, 30d, 2w
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = crate::age::parse)]
    pub(crate) older_than: std::time::Duration,
    /// Only jobs with this final status; repeat the option for more [default: all three]
    #[arg(long = "status", value_name = "STATUS", value_parser = ended, add = ArgValueCandidates::new(complete::ended))]
    pub(crate) statuses: Vec<JobStatus>,
    /// List the jobs to remove, without removing them
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The location of the members
    #[command(flatten)]
    pub(crate) local: LocalArgs,
    /// Print the removed jobs as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Parses a dispatch's `config`.
pub(crate) fn job_input(text: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(config)) => Ok(config),
        Ok(_) => Err("a job's configuration is a JSON object, such as {\"maxTurns\": 20}".to_owned()),
        Err(_) if std::path::Path::new(text).is_file() => {
            Err("the value names a file, but --input takes the job's configuration, a JSON object; the operator's \
             guild.toml is given with --config FILE"
                .to_owned())
        }
        Err(e) => Err(format!("not JSON: {e}")),
    }
}

/// Parses the status of an ended job.
fn ended(text: &str) -> Result<JobStatus, String> {
    JobStatus::ENDED
        .into_iter()
        .find(|status| status.as_str() == text)
        .ok_or_else(|| "expected completed, failed or cancelled; running jobs are never pruned".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jobs_configuration_is_an_object() {
        assert_eq!(job_input(r#"{"a": 1}"#).unwrap().len(), 1);
        assert!(job_input("[1]").unwrap_err().contains("JSON object"));
        assert!(job_input("{a}").unwrap_err().contains("not JSON"));
        assert!(job_input("Cargo.toml").unwrap_err().contains("--config FILE"));
    }

    #[test]
    fn running_jobs_cannot_be_chosen_for_pruning() {
        assert_eq!(ended("failed"), Ok(JobStatus::Failed));
        assert!(ended("running").unwrap_err().contains("never pruned"));
    }
}
