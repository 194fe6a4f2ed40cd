//! The command line: the arguments of all commands, and the text of `guild --help`.

pub(crate) mod hall;
pub(crate) mod meeting;
pub(crate) mod registry;

use std::{error::Error, path::PathBuf, str::FromStr};

use clap::{
    Args, Parser, Subcommand, ValueHint,
    builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser},
};
use clap_complete::{ArgValueCandidates, ArgValueCompleter, Shell};
use guild_audit::FactName;
use guild_auth::tokens::Role;
use guild_build::{Kind, Language};
use guild_config::Runtime;
use guild_contract::{JobStatus, capability::grants::Pattern};
use jiff::Timestamp;
use serde_json::{Map, Value};
use strum::VariantArray;

use self::{
    hall::{Commission, Pr, Project},
    meeting::{Meet, Meeting},
    registry::{Install, Pack, Pull, Push, Upgrade},
};
use crate::{
    client::{AccessArgs, Endpoint},
    complete,
    local::{LocalArgs, PolicyArgs},
    output::log::LogArgs,
};

/// Run Guild Hall workers as sandboxed WebAssembly components
///
/// A member is a directory with a guild-member.json and a component. `guild serve` answers for members over HTTP,
/// `guild run` carries one task out without a server, and the other commands call a running host.
#[derive(Debug, Parser)]
#[command(name = "guild", version, propagate_version = true, max_term_width = 100, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    /// The log options
    #[command(flatten)]
    pub(crate) log: LogArgs,
    /// The command
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  0    success
  1    error, with the reason on stderr; `audit`: a fact of --fail-on; `test`: a case failed
  2    `serve`: the port is in use; `audit`: the target cannot be read, or the audit cannot be written; `test`: a test
       file or the member is not valid
  3    the job of `run` or `watch`, or the commission of `commission watch`, failed
  4    another client cancelled the job or the commission
  130  Ctrl-C or SIGTERM ended the command, which cancels its job";

/// The end of the help of commands for one job: examples, and the places where the job is searched.
macro_rules! job_help {
    ($examples:literal) => {
        concat!(
            "Examples:\n  ",
            $examples,
            "\n\nThe command looks for JOB in all members of the host, or in the member that --member names. It reads \
             the files in the directory of members if no host was named and none answers, or if --members names that \
             directory. `cancel` and `delete` then ask the process that serves the job's member, and fail if no \
             process serves it."
        )
    };
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write the source of a new member: a worker, tools, or both, in one of six languages
    New(New),
    /// Make a member's component from its source
    Build(Build),
    /// Build a member at each change of its source, serve it, and run the last task again
    Dev(Dev),
    /// Serve members over HTTP until SIGTERM or Ctrl-C
    Serve(Serve),
    /// Serve MCP on stdin and stdout, for clients that start their own servers, such as Claude Code and Claude Desktop
    Mcp(Mcp),
    /// Run one task without a server, and print its report
    Run(Run),
    /// Dispatch a task to a running host, and print the job's id or wait for its report
    Dispatch(Dispatch),
    /// Call a tool of a member, and print its result
    Call(Call),
    /// List jobs, newest first
    List(List),
    /// Show a job's status: its summary, questions and decisions
    #[command(after_help = job_help!("\
guild status @latest
  guild status 0199d2 --member researcher --json"))]
    Status(Job),
    /// Print a completed job's output
    #[command(after_help = job_help!("\
guild result @latest
  guild result JOB > report.md               (the Markdown source; a terminal shows it rendered)"))]
    Result(Job),
    /// Cancel a running job, or mark a failed job as cancelled
    #[command(after_help = job_help!("\
guild cancel JOB
  guild cancel @latest --member researcher"))]
    Cancel(Job),
    /// Remove a completed or cancelled job and its files
    #[command(after_help = job_help!("\
guild delete JOB
  guild delete 0199d2 --member researcher"))]
    Delete(Job),
    /// Resume a job that is held back because a host ended soon after resuming it alone
    #[command(after_help = job_help!("\
guild resume JOB
  guild resume researcher/0199d2"))]
    Resume(Job),
    /// Follow the events of a running host
    Watch(Watch),
    /// Show the log of a job's sessions: turns, tool calls and their results
    Logs(Logs),
    /// Sum the usage of jobs: turns, tokens, US dollars and time
    Usage(Usage),
    /// Remove jobs that ended longer ago than a given time
    Prune(Prune),
    /// Manage the git repositories that workers may be commissioned for
    #[command(subcommand)]
    Project(Project),
    /// Create, follow and end commissions of work on a project
    #[command(subcommand)]
    Commission(Commission),
    /// Hold a meeting with a worker about a project, in the terminal
    Meet(Meet),
    /// List, resume and close meetings
    #[command(subcommand)]
    Meeting(Meeting),
    /// Open pull requests from claude/main, and update claude/main after they are merged
    #[command(subcommand)]
    Pr(Pr),
    /// List members and their states
    Members(Members),
    /// Test a member: its component in the real sandbox, with everything around it scripted
    Test(Test),
    /// Run a member where nothing can leave, and show what it does
    Probe(Probe),
    /// Show the changes to a member, and approve its present state
    Approve(Approve),
    /// Pack a member into one file, as an artifact of OCI
    Pack(Pack),
    /// Push a member to a registry
    Push(Push),
    /// Pull a member from a registry into a new directory, without installing it
    Pull(Pull),
    /// Install a member from a registry: show what it can do, ask, and pin it
    Install(Install),
    /// Upgrade installed members to newer versions: show the difference, ask, and pin them
    Upgrade(Upgrade),
    /// Sign a component, or generate a signing key
    Sign(Sign),
    /// Create, list and revoke tokens for callers of a host
    #[command(subcommand)]
    Token(Token),
    /// Make a certificate for a host
    #[command(subcommand)]
    Tls(Tls),
    /// Write the members, their jobs, the hall's home, the configuration and the host's state into one file
    Backup(Backup),
    /// Unpack a backup into a new directory, from which any host can serve it
    Restore(Restore),
    /// Ask a running host whether it answers
    Health(Health),
    /// Report the abilities of a component without running it, and the points for a reviewer to check
    Audit(Audit),
    /// Check the runtimes, keys, search and members, and report each problem
    Doctor(Doctor),
    /// Print instructions for a main agent: how to dispatch to the workers, follow jobs and present results
    Prompt(Prompt),
    /// Write a man page of each command into a directory
    #[command(
        hide = true,
        after_help = "\
Example:
  guild man ~/.local/share/man/man1"
    )]
    Man {
        /// An existing directory
        directory: PathBuf,
    },
    /// Print the completion script of a shell
    #[command(after_help = "\
Examples:
  guild completions bash > ~/.local/share/bash-completion/completions/guild
  guild completions fish > ~/.config/fish/completions/guild.fish

The script calls `guild`, which also completes members and jobs. Generate it again after an update of guild.")]
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// `guild new`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild new worker librarian --lang python
  guild new toolbox ./members/dates --lang ts

The new directory has a source, a manifest, a posture, a test and the SDK of the language, and is whole: it builds, tests \
and runs anywhere. C has the kinds worker and toolbox.")]
pub(crate) struct New {
    /// worker: plans sessions that the host runs; autonomous: starts sessions itself; toolbox: has tools; hybrid: a
    /// worker with tools
    #[arg(value_parser = possible::<Kind>())]
    pub(crate) kind: Kind,
    /// The new directory, whose name becomes the member's
    #[arg(value_name = "NAME", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
    /// The language
    #[arg(long, value_name = "LANGUAGE", value_parser = possible::<Language>())]
    pub(crate) lang: Language,
}

/// `guild build`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild build
  guild build ./librarian

The command derives the component's WIT world from guild-member.json, runs the one command of the member's language, \
makes a component of what that writes, and checks that against the manifest. The component that was there before stays \
if any of this fails. What is made on the way is in .guild/ of the member's directory. guild.build.toml there changes \
the way:

  entry = \"worker.js\"               (the first source of JavaScript or Python; by default the only one)
  engine = \"starlingmonkey\"         (of JavaScript; by default quickjs)
  command = [\"make\", \"core.wasm\"]  (in place of the language's command)
  output = \"core.wasm\"              (the file that `command` writes: a component, or a core module for WASI preview 1)")]
pub(crate) struct Build {
    /// The member's directory
    #[arg(value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
}

/// `guild dev`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild dev ./librarian \"How does ownership work?\" --sources ~/rust-book
  guild dev ./dates '/weekday {\"date\": \"2026-01-01\"}'

At each change of a file the command builds the member as `guild build` does, starts a host with it, runs the last task \
again and shows what comes of it: the session's log, what the component writes, and the report. A line on stdin is the \
next task; an empty one runs the last again. Each run begins without jobs and memories, and needs no approval. \
The component is compiled by Winch, which takes less time than the compiler of a host that serves, and makes slower code.")]
pub(crate) struct Dev {
    /// The member's directory
    #[arg(value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
    /// The first task; or /TOOL JSON, to call a tool
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) task: Option<String>,
    /// The configuration of the tasks, a JSON object whose keys the member defines
    #[arg(long, value_name = "JSON", value_parser = job_input)]
    pub(crate) input: Option<Map<String, Value>>,
    /// Listen on this port
    #[arg(long, value_name = "PORT", default_value_t = guild_server::serve::DEFAULT_PORT)]
    pub(crate) port: u16,
    /// The sources and the runtime of the jobs' sessions
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// The location of the member's toolboxes, and of the policy
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// `guild serve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild serve --members ./guild-members --sources ./docs
  guild serve --member . --port 50321        (as Guild Hall starts it, in the member's directory)

A single member is served at /mcp, the members of a directory at /members/KEY/mcp. MCP clients also find the tools \
that dispatch to a worker at /dispatch/KEY/mcp, and these with the member's own tools at /all/KEY/mcp. If a directory \
is served, /mcp has all these tools of all members. /events streams the events of the host, and /members lists the served \
members.

The host applies additions, changes and removals in the directory at once. It applies changes to a single served \
member at its next start. On SIGHUP it reads guild.toml again, and applies all of it or nothing; the log lists the \
changes.")]
pub(crate) struct Serve {
    /// Serve every member in this directory; with --member, only search it for that member's toolboxes [default:
    /// `members` of guild.toml]
    #[arg(long, value_name = "DIR")]
    pub(crate) members: Option<PathBuf>,
    /// Serve only the member in this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) member: Option<PathBuf>,
    /// Carry out the commissions of the hall in this directory [default without a directory: $GUILD_HALL_HOME, else
    /// `home` of [hall] in guild.toml, else ~/.guild-hall]
    #[arg(long, value_name = "HOME", num_args = 0..=1)]
    pub(crate) hall: Option<Option<PathBuf>>,
    /// Listen on this port; 0 selects a free port [default: `port` of guild.toml, else 7433]
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// The sources and the runtime of the jobs' sessions
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// The test file whose sessions the runtime `scripted` plays [default: `script` in [scripted] of guild.toml]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "agent")]
    pub(crate) script: Option<PathBuf>,
    /// The location of the operator's policy
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    /// Serve the clients of `guild mcp`, which starts this process, until the last client ends
    #[arg(long, hide = true, conflicts_with_all = ["hall", "port"])]
    pub(crate) private: bool,
    /// Serve the member to the `guild dev` that starts this process, until stdin ends
    #[arg(long, hide = true, requires = "member")]
    pub(crate) dev: bool,
}

/// The directories that sessions may read, and the runtime that runs sessions.
#[derive(Debug, Args)]
pub(crate) struct SessionArgs {
    /// A directory that jobs may read; repeat the option for more directories
    #[arg(long, value_name = "DIR")]
    pub(crate) sources: Vec<PathBuf>,
    /// The runtime of agent sessions [default: `[member.KEY]`, else `agent`, of guild.toml, else extractive]
    #[arg(long, value_name = "NAME", value_parser = runtimes())]
    pub(crate) agent: Option<Runtime>,
}

/// `guild mcp`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild mcp --members ./guild-members --sources ./docs
  guild mcp --member researcher --members ./guild-members
  guild mcp --url https://guild.example --member researcher
  claude mcp add guild -- guild mcp --members ~/guild-members      (in Claude Code)

The command offers the tools of all members, and for each worker the tools that dispatch to it; with --member, only \
the tools of that member. If a host already serves the members, all messages go through that host. If that host \
serves them with other read roots than --sources, on another runtime than --agent, or with another guild.toml than \
the named one, the command ends with an error. If no host serves them, the command starts a host, which ends with its \
last client; the next host resumes the jobs that are still running then.

stdout carries only MCP messages; the log goes to stderr.")]
pub(crate) struct Mcp {
    /// Only this member: its directory, or its key in the members' directory; with --url, its key
    #[arg(long, value_name = "MEMBER", value_parser = NonEmptyStringValueParser::new(), add = ArgValueCompleter::new(complete::member_or_directory))]
    pub(crate) member: Option<String>,
    /// Use the host at this URL instead of a host that serves the local members
    #[arg(long, value_name = "URL", conflicts_with_all = ["members", "config", "sources", "agent"])]
    pub(crate) url: Option<String>,
    /// How to authenticate to the host
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// The sources and the runtime of the jobs' sessions
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// The location of the members
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

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

/// `guild call`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild call textkit text_stats '{\"text\": \"one two\"}' --members ./guild-members
  guild call textkit text_stats - --url http://127.0.0.1:7433 < input.json

The tool's text goes to stdout. If the tool reports an error, its text goes to stderr, and the exit code is 1. A host \
that serves the member calls the tool; if no host serves it, the member is loaded in this process. With --url, or if \
there is no such local member, MEMBER is a key at the host. If the member does not have the tool, the error lists the \
tools that the member has.")]
pub(crate) struct Call {
    /// The member: its directory, or its key in the members' directory; with --url, its key
    #[arg(value_parser = NonEmptyStringValueParser::new(), add = ArgValueCompleter::new(complete::member_or_directory))]
    pub(crate) member: String,
    /// The tool's name in its component
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) tool: String,
    /// The tool's input, a JSON object; `-` reads it from stdin
    #[arg(value_name = "JSON", default_value = "{}")]
    pub(crate) input: String,
    /// Use the host at this URL instead of a host that serves the local member
    #[arg(long, value_name = "URL", env = "GUILD_URL")]
    pub(crate) url: Option<String>,
    /// How to authenticate to the host
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// The location of the members
    #[command(flatten)]
    pub(crate) local: LocalArgs,
    /// Print the whole result of tools/call as JSON
    #[arg(long)]
    pub(crate) json: bool,
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

/// `guild members`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild members --members ./guild-members
  guild members researcher --grants        (its permissions, each with its line in guild.toml or in its manifest)
  guild members --limits --json
  guild members researcher --used          (the grants that its jobs have used)
  guild members --outdated                 (asks the registries; no other form of the command does)

With --members, a MEMBER without `/` is a key in that directory. Without --members, MEMBER is a directory, or else a \
key in the members' directory; if both exist and are different members, the command fails. ./NAME is always the \
directory.")]
pub(crate) struct Members {
    /// One member: its directory, or its key in the members' directory; see below if both exist [default: every member]
    #[arg(value_parser = NonEmptyStringValueParser::new(), add = ArgValueCompleter::new(complete::member_or_directory))]
    pub(crate) member: Option<String>,
    /// Show the requested and the granted permissions, and the reason for each denial
    #[arg(long)]
    pub(crate) grants: bool,
    /// Show every limit and its source
    #[arg(long)]
    pub(crate) limits: bool,
    /// Show the grants that the jobs of MEMBER have really used, and a rule for guild.toml with these alone
    #[arg(long, requires = "member", conflicts_with_all = ["grants", "limits", "url", "outdated"])]
    pub(crate) used: bool,
    /// With --used, play the last N jobs again under that rule, and show what differs
    #[arg(long, value_name = "N", requires = "used", conflicts_with = "json", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) prove: Option<u32>,
    /// Ask the registries that members were installed from for newer versions, and list these
    #[arg(long, conflicts_with_all = ["grants", "limits", "url"])]
    pub(crate) outdated: bool,
    /// The location of the members
    #[command(flatten)]
    pub(crate) local: LocalArgs,
    /// Show the members that the host at this URL serves, and why a directory's present state is not in service,
    /// instead of reading the directories
    #[arg(long, value_name = "URL", conflicts_with_all = ["member", "grants", "limits", "members", "config"])]
    pub(crate) url: Option<String>,
    /// How to authenticate to the host
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// Print the members as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `guild prompt`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  guild prompt --members ./guild-members

The text names each member with the capability `worker`, and its MCP server KEY-dispatch, which a host serves at \
/dispatch/KEY/mcp. It is for agents that have these servers. Clients of `guild mcp` and of a host's /mcp get the same \
text, with the tool names of those servers, from `instructions` and from the prompt `workers`. If there is no worker, \
stdout stays empty.")]
pub(crate) struct Prompt {
    /// The location of the members
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// `guild approve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild approve researcher --members ./guild-members
  guild approve . --yes                          (while developing, after each build)
  guild approve --list
  guild approve --forget /srv/old/researcher

The command shows the changes since the member was pinned in guild.lock, and asks for confirmation. A host of a \
directory of members loads an approved member at once; a host of a single member loads it at its next start. If a \
host is started with --config FILE, give the same file here: guild.lock is next to it.")]
pub(crate) struct Approve {
    /// The member: its directory, its key in the members' directory, or its name in guild.lock
    #[arg(required_unless_present = "list", value_parser = NonEmptyStringValueParser::new(), add = ArgValueCompleter::new(complete::member_or_directory))]
    pub(crate) member: Option<String>,
    /// Approve without asking
    #[arg(long)]
    pub(crate) yes: bool,
    /// List the pinned members
    #[arg(long, conflicts_with_all = ["member", "forget", "yes"])]
    pub(crate) list: bool,
    /// Remove the pin of a member; its next load counts as its first
    #[arg(long, conflicts_with = "yes")]
    pub(crate) forget: bool,
    /// First play the last N jobs of the member again with the present component, and show what differs
    #[arg(long, value_name = "N", conflicts_with_all = ["list", "forget"], value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rehearse: Option<u32>,
    /// The location of the members and of the operator's policy
    #[command(flatten)]
    pub(crate) local: LocalArgs,
    /// Print the pins as JSON
    #[arg(long, requires = "list")]
    pub(crate) json: bool,
}

/// `guild test`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild test                                     (the member in this directory)
  guild test ./my-member --filter 'refuses'
  guild test ./my-member --update                (writes what came into the test files)
  guild test ./my-member --junit target/junit.xml
  guild test ./my-member --record @latest        (makes a test file of the newest job)

The cases are in tests/*.toml of the member's directory. Each says what is dispatched, what files, web pages and \
memories there are, and what the model does, turn by turn; and what is expected. No model, no network and no job of the \
member is touched.

Exit codes: 0, all cases passed; 1, a case failed; 2, a test file or the member is not valid.")]
pub(crate) struct Test {
    /// The member's directory
    #[arg(value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
    /// Play only the cases with this text in `FILE: NAME`
    #[arg(long, value_name = "TEXT")]
    pub(crate) filter: Option<String>,
    /// Write what came into the test files, where something else is expected, or nothing
    #[arg(long)]
    pub(crate) update: bool,
    /// Write a report as JUnit XML into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// Make a test file of a job that ran: its id, or a unique prefix of it; @latest is the newest job
    #[arg(long, value_name = "JOB", conflicts_with_all = ["filter", "update", "junit"])]
    pub(crate) record: Option<String>,
}

/// `guild probe`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild probe ./plugin
  guild probe ./plugin --html probe.html
  guild probe ./plugin --obedient --fail-on canary,unexpected-request

The member runs in the real sandbox with the real limits, granted all that its manifest asks for. Its model, the web, the \
clocks, the random numbers, git and pull requests are fakes, and nothing leaves the machine. Tokens (canaries) stand in \
all that it can read, and are looked for in all that it sends, writes and answers, also encoded. Runs on other days, of \
many jobs, with other random numbers, on a project and as manager are compared.

A probe shows what a member did, not what it never does: a member may recognise a probe, or wait for something rarer. \
docs/reviewers.md says more.

Exit codes: 0, it was probed; 1, it has a finding that --fail-on names; 2, it cannot be probed.")]
pub(crate) struct Probe {
    /// The member's directory
    #[arg(value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
    /// Add a model that calls every tool, address and path that the texts before it name
    #[arg(long)]
    pub(crate) obedient: bool,
    /// Write a page with the findings and the timeline of each run into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Print the probe as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Exit with code 1 if there is a finding of these kinds
    #[arg(long, value_name = "KIND", value_enum, value_delimiter = ',')]
    pub(crate) fail_on: Vec<ProbeFinding>,
    /// The seconds after which no further step begins
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) seconds: u32,
    /// The number that decides all tokens; the same number makes the same ones
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// The operator's policy, whose limits hold and for which the probe counts
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
}

/// The kinds of findings of `guild probe`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum ProbeFinding {
    /// A token that crossed a boundary
    Canary,
    /// What was seen in some runs only
    Difference,
    /// A request that nothing explains
    UnexpectedRequest,
    /// A file of a project that programs run
    PlantedFile,
    /// An artifact that does something when it is opened
    ActiveArtifact,
}

/// `guild sign`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild sign --new-key release.key
  guild sign researcher.wasm --key release.key --comment 'researcher 0.2.0'

Keys and signatures have the format of minisign. The signature is FILE.minisig, which belongs next to the component \
in the member's directory. If the component is signed there, the signature also covers the manifest and the posture \
beside it. To trust the key, put its two lines (release.key.pub) into guild.trust next to guild.toml.")]
pub(crate) struct Sign {
    /// The file to sign
    #[arg(required_unless_present = "new_key", requires = "key")]
    pub(crate) file: Option<PathBuf>,
    /// The secret key to sign with
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<PathBuf>,
    /// The trusted comment, which is signed with the file [default: time and name]
    #[arg(long, value_name = "TEXT", requires = "file")]
    pub(crate) comment: Option<String>,
    /// Generate a secret key in this file, and its public key in FILE.pub
    #[arg(long, value_name = "FILE", conflicts_with_all = ["file", "key"])]
    pub(crate) new_key: Option<PathBuf>,
    /// Generate the key without a password
    #[arg(long, requires = "new_key")]
    pub(crate) no_password: bool,
}

/// `guild token`.
#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// Create a token, and print it; it is not shown again
    #[command(after_help = "\
Examples:
  guild token add guild-hall
  guild token add ci --role dispatch --members 'research-*' --expires 30d > ci.token

Callers send the token as `Authorization: Bearer TOKEN`; the commands of guild take it from $GUILD_TOKEN or \
--token-file. Only its SHA-256 is stored, in guild.tokens next to guild.toml. A running host accepts the token from \
the next request on.")]
    Add(TokenAdd),
    /// List the tokens and their permissions
    #[command(after_help = "Examples:\n  guild token list\n  guild token list --json")]
    List {
        /// The location of the tokens
        #[command(flatten)]
        of: TokensArgs,
        /// Print the tokens as JSON
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token; a running host refuses it from the next request on
    #[command(visible_alias = "rm", after_help = "Example:\n  guild token revoke ann")]
    Revoke {
        /// The token's name
        name: String,
        /// The location of the tokens
        #[command(flatten)]
        of: TokensArgs,
    },
}

/// `guild token add`.
#[derive(Debug, Args)]
pub(crate) struct TokenAdd {
    /// The token's name, which the audit log records
    pub(crate) name: String,
    /// A member that the token is for: its key, in which * matches any characters; repeat the option for more [default:
    /// all]
    #[arg(long, value_name = "PATTERN")]
    pub(crate) members: Vec<Pattern>,
    /// The role: view (lists, states, results, events), dispatch (also dispatch), approve (view, and approve members),
    /// all (also cancel, delete and the tools of components)
    #[arg(long, value_name = "ROLE", default_value = "all", value_parser = roles())]
    pub(crate) role: Role,
    /// The expiry: a duration such as 12h, 30d or 2w, or a date (UTC) such as 2030-01-01 [default: never]
    #[arg(long, value_name = "TIME", value_parser = crate::age::until)]
    pub(crate) expires: Option<Timestamp>,
    /// The US dollars that the token's jobs may spend in a day (UTC) [default: `token_usd_per_day` of [spend] in
    /// guild.toml]
    #[arg(long, value_name = "USD", value_parser = usd)]
    pub(crate) usd_per_day: Option<f64>,
    /// The location of the tokens
    #[command(flatten)]
    pub(crate) of: TokensArgs,
}

/// The location of the tokens.
#[derive(Debug, Args)]
pub(crate) struct TokensArgs {
    /// The operator's policy, next to which the tokens are stored
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
}

/// `guild tls`.
#[derive(Debug, Subcommand)]
pub(crate) enum Tls {
    /// Make a certificate and its key for a host that has none from an authority
    #[command(after_help = "\
Examples:
  guild tls self-signed guild.example 192.0.2.7
  guild tls self-signed localhost --directory ./tls --days 30

The command prints the lines of guild.toml that name the certificate. Clients trust it with --ca or $GUILD_CA; they \
need the certificate, and never the key. A running host uses a replaced certificate within a second.")]
    SelfSigned(SelfSigned),
}

/// `guild tls self-signed`.
#[derive(Debug, Args)]
pub(crate) struct SelfSigned {
    /// The names and addresses by which clients reach the host
    #[arg(value_name = "NAME", required = true, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) names: Vec<String>,
    /// Write guild-tls.pem and guild-tls.key into this directory
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) directory: PathBuf,
    /// The days until the certificate expires
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) days: u16,
    /// Replace the files if they exist
    #[arg(long)]
    pub(crate) force: bool,
}

/// `guild backup`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild backup guild-$(date +%F).tar.gz
  guild backup - --members ./guild-members | ssh backup.example 'cat > guild.tar.gz'

Hosts may run meanwhile. Every job that had ended is in the backup with its result; a job that runs is in it as a power \
cut would leave it. The backup has guild.toml, guild.lock, guild.trust, the hashes of tokens (guild.tokens) and the key \
that seals jobs (guild.seal), the audit log in its usual place and the ledger of costs. It has no git repositories of \
projects, no worktrees, and no files that guild.toml names, such as keys and certificates. Only its owner can read the \
file; it is not encrypted.")]
pub(crate) struct Backup {
    /// The new file; `-` writes to stdout
    pub(crate) file: PathBuf,
    /// The hall's home [default: $GUILD_HALL_HOME, else `home` of [hall] in guild.toml, else ~/.guild-hall; left out if
    /// it does not exist]
    #[arg(long, value_name = "HOME")]
    pub(crate) hall: Option<PathBuf>,
    /// The location of the members and of the operator's policy
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// `guild restore`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  guild restore guild-2026-11-27.tar.gz /srv/guild

The command makes members/, hall/, config/ and state/ in the directory, and prints the command that serves them there. \
It makes all of it or nothing. Jobs that ran at the time of the backup are resumed only in the place from which they \
were taken; elsewhere they have failed.")]
pub(crate) struct Restore {
    /// The backup; `-` reads it from stdin
    pub(crate) file: PathBuf,
    /// A directory that does not exist, or is empty
    pub(crate) directory: PathBuf,
    /// Refuse a backup with more bytes, unpacked
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 30)]
    pub(crate) max_bytes: u64,
}

/// `guild health`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild health
  guild health --url https://localhost:7433 --ca guild-tls.pem

The exit code is 0 if the host answers, and 1 otherwise. No token is needed.")]
pub(crate) struct Health {
    /// The host's URL [default: http://127.0.0.1:7433]
    #[arg(long, value_name = "URL", env = "GUILD_URL")]
    pub(crate) url: Option<String>,
    /// How the host authenticates
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// The seconds to wait for the answer
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    pub(crate) timeout_seconds: u32,
}

/// `guild audit`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild audit researcher --members ./guild-members
  guild audit researcher --texts | less
  guild audit plugin.wasm --format html > audit.html
  guild audit researcher --format json > old.json; guild audit researcher --against old.json --fail-on new-import,new-host

TARGET is a component if a file of that name exists, and otherwise a member: its directory, or its key in the \
members' directory. The audit of a member includes its manifest, the permissions in guild.toml, the members beside it \
and the version that guild.lock has; the audit of a file does not. Without --list-tools, the audit neither runs nor \
compiles the component. It never uses the network.

Exit code: 0 there is no fact that --fail-on names; 1 there is one (with --against, a new one); 2 TARGET or OLD cannot \
be read, TARGET is not a component, or the audit cannot be written (for example on a full disk; a reader that ends \
early is not an error). docs/reviewers.md explains each part of the audit, and lists the facts.")]
pub(crate) struct Audit {
    /// A component's file, or a member
    #[arg(value_name = "TARGET", value_parser = NonEmptyStringValueParser::new(), add = ArgValueCompleter::new(complete::member_or_file))]
    pub(crate) target: String,
    /// Show only the changes since another file, another member, or an earlier output of --format json
    #[arg(long, value_name = "OLD", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) against: Option<String>,
    /// The output format
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = AuditFormat::Text)]
    pub(crate) format: AuditFormat,
    /// Print the audit as JSON, like --format json
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,
    /// Show imports, flows, limits and sections in full
    #[arg(long)]
    pub(crate) all: bool,
    /// Show, after the facts, the texts that models or people read and those of the component's data; with PLACE, only
    /// those at places that begin with it, whole, and bytes that are no text as hexadecimal digits
    #[arg(long, value_name = "PLACE", num_args = 0..=1, require_equals = true, default_missing_value = "", conflicts_with_all = ["all", "against"])]
    pub(crate) texts: Option<String>,
    /// Compile the component, list its tools in a sandbox without access to anything, and show the tools' texts too
    #[arg(long)]
    pub(crate) list_tools: bool,
    /// Audit the member as if guild.toml named it as the manager of the hall
    #[arg(long = "as", value_name = "ROLE", value_parser = ["manager"])]
    pub(crate) role: Option<String>,
    /// Exit with code 1 if there is one of these facts: names of docs/reviewers.md, such as flow, new-host or
    /// hidden-text; `refused` for those for which a host refuses the member
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = fail_on(), hide_possible_values = true)]
    pub(crate) fail_on: Vec<FailOn>,
    /// The location of the members and of the operator's policy
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

impl Audit {
    /// Whether the member is audited as the manager.
    pub(crate) fn manages(&self) -> bool {
        self.role.is_some()
    }
}

/// The output formats of `guild audit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum AuditFormat {
    /// For a terminal
    Text,
    /// For programs; docs/schema/audit.json is the schema
    Json,
    /// One self-contained page
    Html,
    /// SARIF 2.1.0, for tools that collect findings
    Sarif,
}

/// The facts for which `guild audit` exits with code 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailOn {
    /// Those for which a host refuses the member.
    Refused,
    /// Those of a name.
    Name(FactName),
}

/// `guild doctor`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild doctor --members ./guild-members --sources ./docs
  guild doctor --hall
  guild doctor --agent api --online

The command checks a host as `guild serve` with the same options would start it, without starting it. It also queries \
the running hosts that serve the local members, and the host that --url names; it reports how each differs from a \
host that would be started now. It checks a hall if --hall is given or the hall's home exists: the home, config.yaml, \
the workers, the manager, each project as the first commission would find it, and gh.

Exit code: 0 if everything that guild.toml requests and that members run on is usable, and the members of running \
hosts are in service; 1 otherwise.")]
pub(crate) struct Doctor {
    /// Send one real query to the search provider
    #[arg(long)]
    pub(crate) online: bool,
    /// Check the hall in this directory as `guild serve --hall` would serve it [default without a directory:
    /// $GUILD_HALL_HOME, else `home` of [hall] in guild.toml, else ~/.guild-hall]
    #[arg(long, value_name = "HOME", num_args = 0..=1)]
    pub(crate) hall: Option<Option<PathBuf>>,
    /// Also check the host at this URL [default: the hosts that serve the local members]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// How to authenticate to running hosts
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// The sources and the runtime that a host would be started with
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// The location of the members and of the operator's policy
    #[command(flatten)]
    pub(crate) local: LocalArgs,
    /// Print the checks as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A parser for the role of a token.
fn roles() -> impl TypedValueParser<Value = Role> {
    PossibleValuesParser::new(Role::ALL.iter().copied().map(Role::as_str)).try_map(|name| name.parse::<Role>())
}

/// A parser for the facts that can end `guild audit` with 1.
fn fail_on() -> impl TypedValueParser<Value = FailOn> {
    let names = FactName::ALL.iter().map(|name| (name.as_str(), FailOn::Name(*name)));
    let all: Vec<_> = names.chain([("refused", FailOn::Refused)]).collect();
    PossibleValuesParser::new(all.iter().map(|(name, _)| *name).collect::<Vec<_>>())
        .try_map(move |name| all.iter().find(|(known, _)| *known == name).map(|(_, on)| *on).ok_or("no such fact"))
}

/// A parser for the names of the agent runtimes.
fn runtimes() -> impl TypedValueParser<Value = Runtime> {
    PossibleValuesParser::new(Runtime::ALL.iter().copied().map(Runtime::as_str)).try_map(|name| name.parse::<Runtime>())
}

/// The values of an enumeration, by their names.
fn possible<T>() -> impl TypedValueParser<Value = T>
where
    T: VariantArray + FromStr<Err: Error + Send + Sync> + Clone + Send + Sync + 'static,
    &'static str: From<&'static T>,
{
    PossibleValuesParser::new(T::VARIANTS.iter().map(<&str>::from)).try_map(|name| name.parse::<T>())
}

/// An amount of US dollars.
fn usd(text: &str) -> Result<f64, String> {
    let amount = text.parse::<f64>().ok().filter(|usd| usd.is_finite() && *usd >= 0.0);
    amount.ok_or_else(|| "expected an amount of US dollars, such as 5 or 0.50".to_owned())
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
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    /// Commands without output for scripts: they serve, create, end or remove something, or print a text in a single
    /// format.
    const WITHOUT_JSON: [&str; 29] = [
        "new",
        "build",
        "dev",
        "test",
        "serve",
        "mcp",
        "project",
        "project add",
        "project remove",
        "commission",
        "meeting",
        "pr",
        "pack",
        "push",
        "pull",
        "install",
        "upgrade",
        "sign",
        "token",
        "token add",
        "token revoke",
        "prompt",
        "man",
        "completions",
        "tls",
        "tls self-signed",
        "backup",
        "restore",
        "health",
    ];

    fn each(command: &clap::Command, path: &str, look: &mut impl FnMut(&str, &clap::Command)) {
        for inner in command.get_subcommands() {
            let path = format!("{path} {}", inner.get_name()).trim().to_owned();
            look(&path, inner);
            each(inner, &path, look);
        }
    }

    #[test]
    fn each_command_has_examples_and_each_listing_has_json() {
        let mut seen = Vec::new();
        each(&Cli::command(), "", &mut |path, command| {
            seen.push(path.to_owned());
            if !command.has_subcommands() {
                let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                let examples = help.lines().filter(|line| line.trim_start().starts_with(&format!("guild {path}")));
                assert!(
                    help.contains("Example") && examples.count() > 0,
                    "guild {path} --help has no example:\n{help}"
                );
            }
            let has_json = command.get_arguments().any(|argument| argument.get_long() == Some("json"));
            assert_eq!(has_json, !WITHOUT_JSON.contains(&path), "--json of guild {path}");
        });
        assert!(WITHOUT_JSON.iter().all(|path| seen.iter().any(|seen| seen == path)));
    }

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
