//! The command line: what `guild --help` shows, and how it is parsed.

use std::path::PathBuf;

use clap::{
    Args, Parser, Subcommand,
    builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser},
};
use clap_complete::Shell;
use guild_contract::{JobId, JobStatus, MemberKey};
use guild_server::{config::Runtime, serve::DEFAULT_PORT};
use jiff::Timestamp;
use serde_json::{Map, Value};

/// Run Guild Hall workers as sandboxed WebAssembly components
///
/// A member is a directory with a guild-member.json and a component. `guild serve` answers for members over HTTP,
/// `guild run` carries one task out without a server, and the other commands talk to a host that runs.
#[derive(Debug, Parser)]
#[command(name = "guild", version, propagate_version = true, max_term_width = 100, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    /// Log more on stderr: -v informs, -vv tells everything (GUILD_LOG sets a filter of its own)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// What to do
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 error, with the reason on stderr; 2 `serve` found its port in use; \
3 the job of `run` failed; 4 it was cancelled elsewhere; 130 it was cancelled by Ctrl-C or SIGTERM.";

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve members over HTTP until SIGTERM or Ctrl-C
    Serve(Serve),
    /// Carry out one task here, without a server, and print its report
    Run(Run),
    /// Give a running host a task, and print the job's id
    Dispatch(Dispatch),
    /// List a running host's jobs, newest first
    List(List),
    /// Show where a job is: its summary, questions and decisions
    Status(Job),
    /// Print a completed job's output
    Result(Job),
    /// End a running job, or mark a failed one as cancelled
    Cancel(Job),
    /// Remove a completed or cancelled job and its files
    Delete(Job),
    /// Show what a job's sessions did: turns, tool calls and their results
    Logs(Logs),
    /// Sum what jobs have used: turns, tokens, US dollars, time
    Usage(Usage),
    /// Remove ended jobs that are older than some time
    Prune(Prune),
    /// Show members and what state they are in
    Members(Members),
    /// Check what is usable: runtimes, keys, search, members; and say what is missing
    Doctor(Doctor),
    /// Print a shell's completion script
    #[command(after_help = "Example:\n  guild completions bash > ~/.local/share/bash-completion/completions/guild")]
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// `guild serve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild serve --members ./guild-members --sources ./docs
  guild serve --member . --port 50321        (as Guild Hall starts it, in the member's directory)

One member is served at /mcp, the members of a directory at /members/KEY/mcp.")]
pub(crate) struct Serve {
    /// Serve every member in this directory [default: `members` of guild.toml]
    #[arg(long, value_name = "DIR", conflicts_with = "member")]
    pub(crate) members: Option<PathBuf>,
    /// Serve the one member that is this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) member: Option<PathBuf>,
    /// Listen on this port; 0 takes any that is free [default: `port` of guild.toml, else 7433]
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// What the jobs' sessions read and run on
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// The operator's guild.toml [default: $GUILD_CONFIG, else guild/guild.toml in the user's configuration directory]
    #[arg(long, value_name = "FILE", visible_alias = "config-file")]
    pub(crate) config: Option<PathBuf>,
}

/// What sessions may read, and what runs them.
#[derive(Debug, Args)]
pub(crate) struct SessionArgs {
    /// A directory that jobs may read; give it again for each
    #[arg(long, value_name = "DIR")]
    pub(crate) sources: Vec<PathBuf>,
    /// What runs agent sessions [default: `[member.KEY]`, else `agent`, of guild.toml, else extractive]
    #[arg(long, value_name = "NAME", value_parser = runtimes())]
    pub(crate) agent: Option<Runtime>,
}

/// `guild run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild run ./guild-members/researcher \"How does ownership work?\" --sources ~/rust-book
  guild run researcher --members ./guild-members --config '{\"maxTurns\": 20}' - < task.md

The report goes to stdout; progress and the job's directory go to stderr. Ctrl-C and SIGTERM cancel the job. \
Where a host already serves the member, the task goes through it: --sources and --config-file are then that host's, and --agent \
asks it for a runtime, which its operator has to allow.

With --members, a MEMBER without `/` is a key in that directory. Without it, MEMBER is a directory, or else a key in the \
members' directory; where it is both, and they differ, that is an error. ./NAME is always the directory.

Exit code: 0 completed, 3 failed, 4 cancelled elsewhere, 130 cancelled by Ctrl-C or SIGTERM, 1 any other error.")]
pub(crate) struct Run {
    /// The member: its directory, or its key in the members' directory; see below where it could be both
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) member: String,
    /// The task; `-` reads it from stdin
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) task: String,
    /// What is asked for, and how
    #[command(flatten)]
    pub(crate) work: WorkArgs,
    /// What the job's sessions read and run on
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// Where members are looked up by their key
    #[command(flatten)]
    pub(crate) house: House,
    /// Print the answer of worker/result as JSON; of worker/status where the job did not complete
    #[arg(long)]
    pub(crate) json: bool,
}

/// What goes with a task.
#[derive(Debug, Args)]
pub(crate) struct WorkArgs {
    /// A short label for lists [default: the task's first line]
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) description: Option<String>,
    /// The job's configuration, a JSON object whose keys the member defines
    #[arg(long, value_name = "JSON", value_parser = job_config)]
    pub(crate) config: Option<Map<String, Value>>,
}

/// Where members and the operator's policy are found.
#[derive(Debug, Args)]
pub(crate) struct House {
    /// The directory of members [default: `members` of guild.toml, else ./guild-members]
    #[arg(long, value_name = "DIR")]
    pub(crate) members: Option<PathBuf>,
    /// The operator's guild.toml [default: $GUILD_CONFIG, else guild/guild.toml in the user's configuration directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) config_file: Option<PathBuf>,
}

/// How a running host is reached.
#[derive(Debug, Args)]
pub(crate) struct Endpoint {
    /// Where the host listens, as http://127.0.0.1:PORT/mcp
    #[arg(long, value_name = "URL", env = "GUILD_URL", default_value_t = default_url())]
    pub(crate) url: String,
    /// The member, where the host serves several
    #[arg(long, value_name = "KEY")]
    pub(crate) member: Option<MemberKey>,
    /// Print the host's answer as JSON, exactly as it came
    #[arg(long)]
    pub(crate) json: bool,
}

/// `guild dispatch`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild dispatch \"How does ownership work?\" --url http://127.0.0.1:50321/mcp
  id=$(guild dispatch - --member researcher < task.md)")]
pub(crate) struct Dispatch {
    /// The task; `-` reads it from stdin
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) task: String,
    /// What is asked for, and how
    #[command(flatten)]
    pub(crate) work: WorkArgs,
    /// Ask for this agent runtime; the host's operator has to allow it [default: the host's choice]
    #[arg(long, value_name = "NAME", value_parser = runtimes())]
    pub(crate) agent: Option<Runtime>,
    /// The host
    #[command(flatten)]
    pub(crate) endpoint: Endpoint,
}

/// `guild list`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild list --detailed
  guild list --filter '*ownership*' --json")]
pub(crate) struct List {
    /// Show each worker's own summary too
    #[arg(long)]
    pub(crate) detailed: bool,
    /// Only jobs whose whole description matches this glob: * ? [..] {a,b}
    #[arg(long, value_name = "GLOB")]
    pub(crate) filter: Option<String>,
    /// The host
    #[command(flatten)]
    pub(crate) endpoint: Endpoint,
}

/// `guild status`, `result`, `cancel` and `delete`.
#[derive(Debug, Args)]
pub(crate) struct Job {
    /// The job's id, as `guild dispatch` and `guild list` print it
    #[arg(value_name = "JOB")]
    pub(crate) id: String,
    /// The host
    #[command(flatten)]
    pub(crate) endpoint: Endpoint,
}

/// `guild logs`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild logs JOB --members ./guild-members
  guild logs JOB --member researcher --follow

It reads the job's transcript.jsonl, whoever runs the job. Times are UTC. Long inputs and results are shortened; --json prints \
the lines of the transcript as they are.")]
pub(crate) struct Logs {
    /// The job's id, as `guild dispatch` and `guild list` print it
    #[arg(value_name = "JOB")]
    pub(crate) id: JobId,
    /// Its member: a key in the members' directory, or a directory [default: whichever member has the job]
    #[arg(long, value_name = "MEMBER", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) member: Option<String>,
    /// Go on until the job ends
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Where members are looked up
    #[command(flatten)]
    pub(crate) house: House,
    /// Print the transcript's own lines
    #[arg(long)]
    pub(crate) json: bool,
}

/// `guild usage`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild usage --since 7d
  guild usage --since 2026-01-01 --member researcher --json

Jobs count from the moment they ended; what a running job has used so far is in `guild status`. The cost of a job whose model has no \
known price is not known: such jobs are counted, and their cost comes on top of the sum.")]
pub(crate) struct Usage {
    /// Only what ended since: a time ago, as 12h, 7d or 2w, or a date (UTC), as 2026-01-01 or 2026-01-01T12:00:00Z [default: all]
    #[arg(long, value_name = "TIME", value_parser = crate::age::since)]
    pub(crate) since: Option<Timestamp>,
    /// Only this member: a key in the members' directory, or a directory [default: every member]
    #[arg(long, value_name = "MEMBER", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) member: Option<String>,
    /// Where members are looked up
    #[command(flatten)]
    pub(crate) house: House,
    /// Print the sums as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `guild prune`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild prune                                    (everything that ended more than 30 days ago)
  guild prune researcher --older-than 12h --status failed --status cancelled

With --members, a MEMBER without `/` is a key in that directory. Without it, MEMBER is a directory, or else a key in the \
members' directory; where it is both, and they differ, that is an error. ./NAME is always the directory.

A member that a host serves is pruned through that host.")]
pub(crate) struct Prune {
    /// One member: its directory, or its key in the members' directory; see below where it could be both [default: every
    /// member]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) member: Option<String>,
    /// How long ago a job must have ended: 12h, 30d, 2w
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = crate::age::parse)]
    pub(crate) older_than: std::time::Duration,
    /// Only jobs that ended so; give it again for each [default: all three]
    #[arg(long = "status", value_name = "STATUS", value_parser = ended)]
    pub(crate) statuses: Vec<JobStatus>,
    /// Where members are looked up
    #[command(flatten)]
    pub(crate) house: House,
    /// Print what was removed as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `guild members`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  guild members --members ./guild-members")]
pub(crate) struct Members {
    /// Where the members are
    #[command(flatten)]
    pub(crate) house: House,
    /// Print them as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `guild doctor`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild doctor --members ./guild-members --sources ./docs
  guild doctor --agent api --online

It looks at a host as `guild serve` with the same options would start it, and starts none. Exit code: 0 where everything is usable \
that guild.toml asks for and that members run on; 1 otherwise.")]
pub(crate) struct Doctor {
    /// Send one real query to the search provider
    #[arg(long)]
    pub(crate) online: bool,
    /// What a host would be started with
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// Where members and the operator's policy are
    #[command(flatten)]
    pub(crate) house: House,
    /// Print the checks as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn default_url() -> String {
    format!("http://127.0.0.1:{DEFAULT_PORT}/mcp")
}

/// The names of the agent runtimes.
fn runtimes() -> impl TypedValueParser<Value = Runtime> {
    PossibleValuesParser::new(Runtime::ALL.map(Runtime::as_str)).try_map(|name| name.parse::<Runtime>())
}

/// Parses a dispatch's `config`.
fn job_config(text: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(config)) => Ok(config),
        Ok(_) => Err("a job's configuration is a JSON object, as {\"maxTurns\": 20}".to_owned()),
        Err(_) if std::path::Path::new(text).is_file() => Err(
            "that is a file, but here --config is the job's own configuration, a JSON object; the host's guild.toml is --config-file"
                .to_owned(),
        ),
        Err(e) => Err(format!("not JSON: {e}")),
    }
}

/// Parses the status of a job that has ended.
fn ended(text: &str) -> Result<JobStatus, String> {
    [JobStatus::Completed, JobStatus::Failed, JobStatus::Cancelled]
        .into_iter()
        .find(|status| status.as_str() == text)
        .ok_or_else(|| "one of completed, failed, cancelled; running jobs are never pruned".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_jobs_configuration_is_an_object() {
        assert_eq!(job_config(r#"{"a": 1}"#).unwrap().len(), 1);
        assert!(job_config("[1]").unwrap_err().contains("JSON object"));
        assert!(job_config("{a}").unwrap_err().contains("not JSON"));
        assert!(job_config("Cargo.toml").unwrap_err().contains("--config-file"));
    }

    #[test]
    fn running_jobs_cannot_be_chosen_for_pruning() {
        assert_eq!(ended("failed"), Ok(JobStatus::Failed));
        assert!(ended("running").unwrap_err().contains("never pruned"));
    }
}
