//! The command line: the arguments of all commands, and the text of `guild --help`.

pub(crate) mod hall;
pub(crate) mod meeting;

use std::path::PathBuf;

use clap::{
    Args, Parser, Subcommand,
    builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser},
};
use clap_complete::{ArgValueCandidates, ArgValueCompleter, Shell};
use guild_audit::Severity;
use guild_auth::tokens::Methods;
use guild_config::Runtime;
use guild_contract::{JobStatus, capability::grants::Pattern};
use jiff::Timestamp;
use serde_json::{Map, Value};

use self::{
    hall::{Commission, Pr, Project},
    meeting::{Meet, Meeting},
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
    /// What is logged
    #[command(flatten)]
    pub(crate) log: LogArgs,
    /// What to do
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 error, with the reason on stderr; 2 `serve` found its port in use; \
`audit`: 1 findings, 2 cannot read or write; \
3 the job of `run` or `watch`, or the commission of `commission watch`, failed; 4 it was cancelled elsewhere; 130 the command was ended by Ctrl-C or SIGTERM, which cancel the job.";

/// The end of the help of commands for one job: examples, and where jobs are searched.
macro_rules! job_help {
    ($examples:literal) => {
        concat!(
            "Examples:\n  ",
            $examples,
            "\n\nJOB is looked for in all members of the host, or in the one that --member names. The files in the directory of members \
             are read where no host was named and none answers, or where --members names that directory; `cancel` and `delete` \
             then ask the process that serves the job's member, and where none does, they say so."
        )
    };
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve members over HTTP until SIGTERM or Ctrl-C
    Serve(Serve),
    /// Speak MCP on stdin and stdout, for Claude Code, Claude Desktop and others that start their servers themselves
    Mcp(Mcp),
    /// Run one task here, without a server, and print its report
    Run(Run),
    /// Give a running host a task, and print the job's id; or wait for its report
    Dispatch(Dispatch),
    /// Call a tool of a member, and print what it answers
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
  guild result JOB > report.md               (as the worker wrote it; on a terminal it is rendered)"))]
    Result(Job),
    /// End a running job, or mark a failed one as cancelled
    #[command(after_help = job_help!("\
guild cancel JOB
  guild cancel @latest --member researcher"))]
    Cancel(Job),
    /// Remove a completed or cancelled job and its files
    #[command(after_help = job_help!("\
guild delete JOB
  guild delete 0199d2 --member researcher"))]
    Delete(Job),
    /// Let a job on that is held back, because a host ended soon after it had resumed that job alone
    #[command(after_help = job_help!("\
guild resume JOB
  guild resume researcher/0199d2"))]
    Resume(Job),
    /// Show what happens on a running host, as it happens
    Watch(Watch),
    /// Show what a job's sessions did: turns, tool calls and their results
    Logs(Logs),
    /// Sum what jobs have used: turns, tokens, US dollars, time
    Usage(Usage),
    /// Remove ended jobs that are older than some time
    Prune(Prune),
    /// Name the git repositories on which workers may be commissioned
    #[command(subcommand)]
    Project(Project),
    /// Commission work on a project, follow it, and end it
    #[command(subcommand)]
    Commission(Commission),
    /// Meet with a worker about a project: a conversation in the terminal
    Meet(Meet),
    /// List meetings, go on with them, and end them
    #[command(subcommand)]
    Meeting(Meeting),
    /// Make pull requests of claude/main, and follow the default branch once they are merged
    #[command(subcommand)]
    Pr(Pr),
    /// Show members and what state they are in
    Members(Members),
    /// Show what changed in a member, and trust its present state
    Approve(Approve),
    /// Sign a component, or make a key to sign with
    Sign(Sign),
    /// Make, list and revoke tokens, with which others can call a host
    #[command(subcommand)]
    Token(Token),
    /// Show what a component can do, without running it, and what a reviewer should check
    Audit(Audit),
    /// Check what is usable: runtimes, keys, search, members; and say what is missing
    Doctor(Doctor),
    /// Print what a main agent needs to know about the workers: how to dispatch, follow, and present results
    Prompt(Prompt),
    /// Write a man page of each command into a directory
    #[command(
        hide = true,
        after_help = "\
Example:
  guild man ~/.local/share/man/man1"
    )]
    Man {
        /// The directory, which has to exist
        directory: PathBuf,
    },
    /// Print a shell's completion script
    #[command(after_help = "\
Examples:
  guild completions bash > ~/.local/share/bash-completion/completions/guild
  guild completions fish > ~/.config/fish/completions/guild.fish

The script asks `guild` itself, which completes members and jobs too. Make it anew when guild is updated.")]
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

One member is served at /mcp, the members of a directory at /members/KEY/mcp. Clients of MCP also find the \
tools that dispatch to a worker at /dispatch/KEY/mcp, those and a member's own at /all/KEY/mcp, and where a directory is served \
those of all members at /mcp. /events tells what happens, /members who is served.

What is added, changed or removed in the directory takes effect at once; a change of one member that is served alone, at the \
next start. SIGHUP has it read guild.toml again, all of it or nothing; the log says what changed.")]
pub(crate) struct Serve {
    /// Serve every member in this directory; with --member, only look for its toolboxes there [default: `members` of guild.toml]
    #[arg(long, value_name = "DIR")]
    pub(crate) members: Option<PathBuf>,
    /// Serve the one member that is this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) member: Option<PathBuf>,
    /// Carry out commissions of the hall in this directory [default without a directory: what GUILD_HALL_HOME names, else
    /// `home` of [hall] in guild.toml, else ~/.guild-hall]
    #[arg(long, value_name = "HOME", num_args = 0..=1)]
    pub(crate) hall: Option<Option<PathBuf>>,
    /// Listen on this port; 0 takes any that is free [default: `port` of guild.toml, else 7433]
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// What the jobs' sessions read and run on
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// Where the operator's policy is
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    /// Serve the clients of `guild mcp`, which starts this, as long as there are any
    #[arg(long, hide = true, conflicts_with_all = ["hall", "port"])]
    pub(crate) private: bool,
}

/// What sessions may read, and the runtime that runs them.
#[derive(Debug, Args)]
pub(crate) struct SessionArgs {
    /// A directory that jobs may read; give it again for each
    #[arg(long, value_name = "DIR")]
    pub(crate) sources: Vec<PathBuf>,
    /// What runs agent sessions [default: `[member.KEY]`, else `agent`, of guild.toml, else extractive]
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

It offers the tools of all members, and for each worker the tools that dispatch to it; with --member, those of one. Where a host \
serves the members already, everything goes through it; where that serves them with other read roots than --sources asks for, on \
another runtime than --agent or by another guild.toml than is named, this ends, and says so. Where none does, \
it starts a host, which ends with the last client that uses it: jobs that run then are resumed by the next host.

stdout has messages of MCP only; what there is to log goes to stderr.")]
pub(crate) struct Mcp {
    /// Only this member: its directory, or its key in the members' directory; with --url, its key
    #[arg(long, value_name = "MEMBER", value_parser = NonEmptyStringValueParser::new(), add = ArgValueCompleter::new(complete::member_or_directory))]
    pub(crate) member: Option<String>,
    /// The host at this URL, instead of one that serves the members here
    #[arg(long, value_name = "URL", conflicts_with_all = ["members", "config", "sources", "agent"])]
    pub(crate) url: Option<String>,
    /// How to authenticate to the host
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// What the jobs' sessions read and run on
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// Where members are found
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// `guild run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild run ./guild-members/researcher \"How does ownership work?\" --sources ~/rust-book
  guild run researcher --members ./guild-members --input '{\"maxTurns\": 20}' - < task.md

The report goes to stdout; progress and the job's directory go to stderr. Ctrl-C and SIGTERM cancel the job. \
Where a host already serves the member, the task goes through it. Where that reads other directories than --sources asks for, or was \
started with another guild.toml than is named, the task is refused, and the process named. --agent asks it for a runtime, which its \
operator has to allow.

With --members, a MEMBER without `/` is a key in that directory. Without it, MEMBER is a directory, or else a key in the \
members' directory; where it is both, and they differ, that is an error. ./NAME is always the directory.

Exit code: 0 completed, 3 failed, 4 cancelled elsewhere, 130 ended by Ctrl-C or SIGTERM, 1 any other error.")]
pub(crate) struct Run {
    /// The member: its directory, or its key in the members' directory; see below where it could be both
    #[arg(value_parser = NonEmptyStringValueParser::new(), add = ArgValueCompleter::new(complete::member_or_directory))]
    pub(crate) member: String,
    /// The task; `-` reads it from stdin
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) task: String,
    /// What goes with the task
    #[command(flatten)]
    pub(crate) work: WorkArgs,
    /// What the job's sessions read and run on
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// Where members are looked up by their key
    #[command(flatten)]
    pub(crate) local: LocalArgs,
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
    #[arg(long, value_name = "JSON", value_parser = job_input)]
    pub(crate) input: Option<Map<String, Value>>,
}

/// `guild dispatch`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild dispatch \"How does ownership work?\" --url http://127.0.0.1:50321/mcp
  guild dispatch \"How does ownership work?\" --member researcher --wait
  id=$(guild dispatch - --member researcher < task.md)

With --wait, the report goes to stdout, progress and the job's id go to stderr, and Ctrl-C and SIGTERM cancel the job. Exit code \
then: 0 completed, 3 failed, 4 cancelled elsewhere, 130 ended by Ctrl-C or SIGTERM, 1 any other error.")]
pub(crate) struct Dispatch {
    /// The task; `-` reads it from stdin
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) task: String,
    /// What goes with the task
    #[command(flatten)]
    pub(crate) work: WorkArgs,
    /// Ask for this agent runtime; the host's operator has to allow it [default: the host's choice]
    #[arg(long, value_name = "NAME", value_parser = runtimes())]
    pub(crate) agent: Option<Runtime>,
    /// Follow the job to its end, and print its report instead of its id; with --json, as `guild run` does
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

The tool's text goes to stdout; where it says that it did not work, to stderr, and the exit code is 1. A host that serves the member \
calls the tool; where none does, the member is loaded here. With --url, or where there is no such member here, MEMBER is a key of the \
host. Of a member without that tool, the error names the tools that it has.")]
pub(crate) struct Call {
    /// The member: its directory, or its key in the members' directory; with --url, its key
    #[arg(value_parser = NonEmptyStringValueParser::new(), add = ArgValueCompleter::new(complete::member_or_directory))]
    pub(crate) member: String,
    /// The tool, by the name that its component gives it
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) tool: String,
    /// What the tool takes, a JSON object; `-` reads it from stdin
    #[arg(value_name = "JSON", default_value = "{}")]
    pub(crate) input: String,
    /// The host at this URL, instead of one that serves the member here
    #[arg(long, value_name = "URL", env = "GUILD_URL")]
    pub(crate) url: Option<String>,
    /// How to authenticate to the host
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// Where members are looked up by their key
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

On a terminal it has columns; in a pipe, each line has the job's id, its status, its member, when it was made (RFC 3339) and its \
description, between tabs, and with --detailed the summary. --json prints the host's answer; of several members, each job with \
its `member`. The files in the directory of members are read where no host was named and none answers, or where --members names \
that directory.")]
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
    /// Where members' files are, if no host runs
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// `guild status`, `result`, `cancel` and `delete`.
#[derive(Debug, Args)]
pub(crate) struct Job {
    /// The job's id, as `guild dispatch` and `guild list` print it, or how only this one begins, also as MEMBER/ID; @latest is
    /// the newest
    #[arg(value_name = "JOB", value_parser = NonEmptyStringValueParser::new(), add = ArgValueCandidates::new(complete::jobs))]
    pub(crate) id: String,
    /// The host
    #[command(flatten)]
    pub(crate) endpoint: Endpoint,
    /// Where members' files are, if no host runs
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

One line for each event: jobs that start, say how far they are, ask, decide and end, and members that come, change and go. Times are UTC. \
A connection that breaks is made again, and continues after the last event; a gap is reported. --json prints the host's own events.

Exit code: 0 when Ctrl-C or SIGTERM ends it; with --job, 0 completed, 3 failed, 4 cancelled; 1 any error.")]
pub(crate) struct Watch {
    /// Only this job, until it ends: its id, or how only this one begins; @latest is the newest
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

It reads the job's transcript.jsonl and its log.txt, in the order of their times, whichever process runs the job. Times are UTC. Long inputs and \
results are shortened; --json prints the lines of the transcript as they are, and those of the log with the type `log`.")]
pub(crate) struct Logs {
    /// The job's id, as `guild dispatch` and `guild list` print it, or how only this one begins; @latest is the newest
    #[arg(value_name = "JOB", value_parser = NonEmptyStringValueParser::new(), add = ArgValueCandidates::new(complete::jobs))]
    pub(crate) id: String,
    /// Its member: a key in the members' directory, or a directory [default: whichever member has the job]
    #[arg(long, value_name = "MEMBER", value_parser = NonEmptyStringValueParser::new(), add = ArgValueCompleter::new(complete::member_or_directory))]
    pub(crate) member: Option<String>,
    /// Go on until the job ends
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// The job of a running host, as http://127.0.0.1:PORT/mcp, instead of the files here
    #[arg(long, value_name = "URL", conflicts_with_all = ["home", "members"])]
    pub(crate) url: Option<String>,
    /// How to authenticate to the host at a URL
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// The job of a member of the hall in this home, as its host serves them
    #[arg(long, value_name = "HOME", conflicts_with = "members")]
    pub(crate) home: Option<PathBuf>,
    /// Where members are looked up
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

Jobs count from the moment they ended, also where they were deleted or pruned since: what those used is kept in .usage.jsonl of \
their member. What a running job has used so far is in `guild status`. The cost of a job whose model has no \
known price is not known: such jobs are counted, and their cost comes on top of the sum.")]
pub(crate) struct Usage {
    /// Only what ended since: a time ago, as 12h, 7d or 2w, or a date (UTC), as 2026-01-01 or 2026-01-01T12:00:00Z [default: all]
    #[arg(long, value_name = "TIME", value_parser = crate::age::since)]
    pub(crate) since: Option<Timestamp>,
    /// Only this member: a key in the members' directory, or a directory [default: every member]
    #[arg(long, value_name = "MEMBER", value_parser = NonEmptyStringValueParser::new(), add = ArgValueCompleter::new(complete::member_or_directory))]
    pub(crate) member: Option<String>,
    /// Where members are looked up
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
  guild prune                                    (everything that ended more than 30 days ago)
  guild prune researcher --older-than 12h --status failed --status cancelled
  guild prune --older-than 7d --dry-run          (shows what would be removed, and removes nothing)

With --members, a MEMBER without `/` is a key in that directory. Without it, MEMBER is a directory, or else a key in the \
members' directory; where it is both, and they differ, that is an error. ./NAME is always the directory.

A member that a host serves is pruned through that host.")]
pub(crate) struct Prune {
    /// One member: its directory, or its key in the members' directory; see below where it could be both [default: every
    /// member]
    #[arg(value_parser = NonEmptyStringValueParser::new(), add = ArgValueCompleter::new(complete::member_or_directory))]
    pub(crate) member: Option<String>,
    /// How long ago a job must have ended: 12h, 30d, 2w
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = crate::age::parse)]
    pub(crate) older_than: std::time::Duration,
    /// Only jobs that ended so; give it again for each [default: all three]
    #[arg(long = "status", value_name = "STATUS", value_parser = ended, add = ArgValueCandidates::new(complete::ended))]
    pub(crate) statuses: Vec<JobStatus>,
    /// Show what would be removed, and remove nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Where members are looked up
    #[command(flatten)]
    pub(crate) local: LocalArgs,
    /// Print what was removed as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `guild members`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild members --members ./guild-members
  guild members researcher --grants        (what it may do, and which line of guild.toml or of its manifest says so)
  guild members --limits --json

With --members, a MEMBER without `/` is a key in that directory. Without it, MEMBER is a directory, or else a key in the \
members' directory; where it is both, and they differ, that is an error. ./NAME is always the directory.")]
pub(crate) struct Members {
    /// One member: its directory, or its key in the members' directory; see below where it could be both [default: every
    /// member]
    #[arg(value_parser = NonEmptyStringValueParser::new(), add = ArgValueCompleter::new(complete::member_or_directory))]
    pub(crate) member: Option<String>,
    /// Show which permissions are requested, which are granted, and why the rest is not
    #[arg(long)]
    pub(crate) grants: bool,
    /// Show every limit and its source
    #[arg(long)]
    pub(crate) limits: bool,
    /// Where the members are
    #[command(flatten)]
    pub(crate) local: LocalArgs,
    /// Show what the host at this URL serves, and why the present state of a directory is not in service, instead of reading
    /// the directories
    #[arg(long, value_name = "URL", conflicts_with_all = ["member", "grants", "limits", "members", "config"])]
    pub(crate) url: Option<String>,
    /// How to authenticate to the host
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// Print them as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `guild prompt`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  guild prompt --members ./guild-members

It names each member with the capability `worker`, and its MCP server KEY-dispatch, which a host has at /dispatch/KEY/mcp. It is for \
agents that have these servers; clients of `guild mcp`, and of a host's /mcp, get this with the names of the tools there, by \
`instructions` and the prompt `workers`. Where there is no worker, stdout stays empty.")]
pub(crate) struct Prompt {
    /// Where the members are
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

It shows what changed since the member was pinned in guild.lock, and asks. A host of a directory of members loads at once what is \
approved; one that serves the member alone, when it is started again. Where a host is started with --config FILE, give the same \
file here: guild.lock is next to it.")]
pub(crate) struct Approve {
    /// The member: its directory, its key in the members' directory, or its name in guild.lock
    #[arg(required_unless_present = "list", value_parser = NonEmptyStringValueParser::new(), add = ArgValueCompleter::new(complete::member_or_directory))]
    pub(crate) member: Option<String>,
    /// Approve without asking
    #[arg(long)]
    pub(crate) yes: bool,
    /// Show what is pinned
    #[arg(long, conflicts_with_all = ["member", "forget", "yes"])]
    pub(crate) list: bool,
    /// Remove the pin of a member: its next load is its first
    #[arg(long, conflicts_with = "yes")]
    pub(crate) forget: bool,
    /// Where members and the operator's policy are
    #[command(flatten)]
    pub(crate) local: LocalArgs,
    /// Print the pins as JSON
    #[arg(long, requires = "list")]
    pub(crate) json: bool,
}

/// `guild sign`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild sign --new-key release.key
  guild sign researcher.wasm --key release.key --comment 'researcher 0.2.0'

Keys and signatures are those of minisign. The signature is FILE.minisig; it belongs next to the component in the member's \
directory. Signed there, it is of the manifest and the posture beside the component too. To trust the key, put its two lines (release.key.pub) into guild.trust next to guild.toml.")]
pub(crate) struct Sign {
    /// The file to sign
    #[arg(required_unless_present = "new_key", requires = "key")]
    pub(crate) file: Option<PathBuf>,
    /// The secret key to sign with
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<PathBuf>,
    /// What to say about the file, signed with it [default: time and name]
    #[arg(long, value_name = "TEXT", requires = "file")]
    pub(crate) comment: Option<String>,
    /// Make a secret key in this file, and its public key in FILE.pub
    #[arg(long, value_name = "FILE", conflicts_with_all = ["file", "key"])]
    pub(crate) new_key: Option<PathBuf>,
    /// Make it without a password
    #[arg(long, requires = "new_key")]
    pub(crate) no_password: bool,
}

/// `guild token`.
#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// Make a token, and print it: it is shown this once
    #[command(after_help = "\
Examples:
  guild token add guild-hall
  guild token add ci --methods dispatch --members 'research-*' --expires 30d > ci.token

Callers send it as `Authorization: Bearer TOKEN`; the commands of guild take it from $GUILD_TOKEN or --token-file. Only its \
SHA-256 is kept, in guild.tokens next to guild.toml. A host that runs takes it from the next request on.")]
    Add(TokenAdd),
    /// Show which tokens there are, and what each is for
    #[command(after_help = "Examples:\n  guild token list\n  guild token list --json")]
    List {
        /// Whose tokens
        #[command(flatten)]
        of: TokensOf,
        /// Print them as JSON
        #[arg(long)]
        json: bool,
    },
    /// End a token: a host that runs refuses it from the next request on
    #[command(visible_alias = "rm", after_help = "Example:\n  guild token revoke ann")]
    Revoke {
        /// The token's name
        name: String,
        /// Whose tokens
        #[command(flatten)]
        of: TokensOf,
    },
}

/// `guild token add`.
#[derive(Debug, Args)]
pub(crate) struct TokenAdd {
    /// What to call it: the audit log names it so
    pub(crate) name: String,
    /// Only for these members: a key, where * stands for any characters; give it again for each [default: all]
    #[arg(long, value_name = "PATTERN")]
    pub(crate) members: Vec<Pattern>,
    /// What it is for: read (list, status, result, events), dispatch (read, and dispatch), all (cancel and delete too, and the
    /// tools of components)
    #[arg(long, value_name = "METHODS", default_value = "all", value_parser = methods())]
    pub(crate) methods: Methods,
    /// When it ends: after some time, as 12h, 30d or 2w, or at a date (UTC), as 2030-01-01 [default: never]
    #[arg(long, value_name = "TIME", value_parser = crate::age::until)]
    pub(crate) expires: Option<Timestamp>,
    /// US dollars that its jobs may spend in a day (UTC) [default: `token_usd_per_day` of [spend] in guild.toml]
    #[arg(long, value_name = "USD", value_parser = usd)]
    pub(crate) usd_per_day: Option<f64>,
    /// Whose tokens
    #[command(flatten)]
    pub(crate) of: TokensOf,
}

/// Which hosts' tokens.
#[derive(Debug, Args)]
pub(crate) struct TokensOf {
    /// Tokens are kept next to the operator's policy
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
}

/// `guild audit`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild audit researcher --members ./guild-members
  guild audit plugin.wasm --format html > audit.html
  guild audit researcher --format json > old.json; guild audit researcher --against old.json

TARGET is a component where a file of that name exists, and else a member: its directory, or its key in the members' \
directory. A member is looked at with its manifest, and with what guild.toml allows; a file alone is not. Nothing is run or \
compiled, and nothing is asked of the network.

Exit code: 0 no finding at or above --fail-on, 1 such findings (with --against, new ones), 2 TARGET or OLD cannot be read, \
TARGET is no component, or the audit cannot be written (a full disk; a reader that ends early changes nothing). What each part means \
stands in docs/reviewers.md.")]
pub(crate) struct Audit {
    /// A component's file, or a member
    #[arg(value_name = "TARGET", value_parser = NonEmptyStringValueParser::new(), add = ArgValueCompleter::new(complete::member_or_file))]
    pub(crate) target: String,
    /// Show only what changed since: another file, another member, or what --format json printed earlier
    #[arg(long, value_name = "OLD", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) against: Option<String>,
    /// How to show it
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = AuditFormat::Text)]
    pub(crate) format: AuditFormat,
    /// Print it as JSON: --format json
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,
    /// Show everything, not only what was found: imports, texts, flows, limits, sections
    #[arg(long)]
    pub(crate) all: bool,
    /// Compile its component and ask it for its tools, in the sandbox, where it reaches nothing: their texts are audited too
    #[arg(long)]
    pub(crate) list_tools: bool,
    /// Findings that are accepted, in place of .guildaudit.toml next to guild.toml
    #[arg(long, value_name = "FILE")]
    pub(crate) accept: Option<PathBuf>,
    /// End with 1 where a finding is at least this severe: critical, high, medium, low, none
    #[arg(long, value_name = "SEVERITY", default_value = "high", value_parser = severities(), hide_possible_values = true)]
    pub(crate) fail_on: FailOn,
    /// Where members and the operator's policy are
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// How `guild audit` shows what it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum AuditFormat {
    /// For a terminal
    Text,
    /// For programs: docs/schema/audit.json describes it
    Json,
    /// One page that needs no other file
    Html,
    /// SARIF 2.1.0, for tools that collect findings
    Sarif,
}

/// The lowest severity that ends `guild audit` with 1; `None` if no finding does.
pub(crate) type FailOn = Option<Severity>;

/// `guild doctor`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild doctor --members ./guild-members --sources ./docs
  guild doctor --hall
  guild doctor --agent api --online

It looks at a host as `guild serve` with the same options would start it, and starts none. Hosts that run are asked too: those that \
serve the members here, and the one of --url; where one serves otherwise than it would if it were started now, that is said. \
A hall is looked at where --hall asks for it, and where its home is there: the home, config.yaml, the workers, the manager, each \
project as the first commission would find it, and gh. Exit code: 0 where everything is usable that guild.toml asks for and that members run on, and members of running hosts are in \
service; 1 otherwise.")]
pub(crate) struct Doctor {
    /// Send one real query to the search provider
    #[arg(long)]
    pub(crate) online: bool,
    /// Look at the hall in this directory, as `guild serve --hall` would serve it [default without a directory: what
    /// GUILD_HALL_HOME names, else `home` of [hall] in guild.toml, else ~/.guild-hall]
    #[arg(long, value_name = "HOME", num_args = 0..=1)]
    pub(crate) hall: Option<Option<PathBuf>>,
    /// Check the host at this URL, too [default: those that serve the members here]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// How to authenticate to running hosts
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// What a host would be started with
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// Where members and the operator's policy are
    #[command(flatten)]
    pub(crate) local: LocalArgs,
    /// Print the checks as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A parser for the methods of a token.
fn methods() -> impl TypedValueParser<Value = Methods> {
    PossibleValuesParser::new(Methods::ALL.iter().copied().map(Methods::as_str)).try_map(|name| name.parse::<Methods>())
}

/// A parser for the severities that can end `guild audit` with 1.
fn severities() -> impl TypedValueParser<Value = FailOn> {
    let severities = [Severity::Critical, Severity::High, Severity::Medium, Severity::Low];
    PossibleValuesParser::new(severities.map(Severity::as_str).into_iter().chain(["none"]))
        .map(move |name| severities.into_iter().find(|severity| severity.as_str() == name))
}

/// A parser for the names of the agent runtimes.
fn runtimes() -> impl TypedValueParser<Value = Runtime> {
    PossibleValuesParser::new(Runtime::ALL.iter().copied().map(Runtime::as_str)).try_map(|name| name.parse::<Runtime>())
}

/// An amount of US dollars.
fn usd(text: &str) -> Result<f64, String> {
    let amount = text.parse::<f64>().ok().filter(|usd| usd.is_finite() && *usd >= 0.0);
    amount.ok_or_else(|| "an amount of US dollars, as 5 or 0.50".to_owned())
}

/// Parses a dispatch's `config`.
pub(crate) fn job_input(text: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(config)) => Ok(config),
        Ok(_) => Err("a job's configuration is a JSON object, as {\"maxTurns\": 20}".to_owned()),
        Err(_) if std::path::Path::new(text).is_file() => Err(
            "that is a file, but --input is the job's own configuration, a JSON object; the operator's guild.toml is --config FILE"
                .to_owned(),
        ),
        Err(e) => Err(format!("not JSON: {e}")),
    }
}

/// Parses the status of an ended job.
fn ended(text: &str) -> Result<JobStatus, String> {
    JobStatus::ENDED
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

    /// Commands without a result that scripts would parse: they serve, make, end or remove something, or print a text in one
    /// form.
    const WITHOUT_JSON: [&str; 15] = [
        "serve",
        "mcp",
        "project",
        "project add",
        "project remove",
        "commission",
        "meeting",
        "pr",
        "sign",
        "token",
        "token add",
        "token revoke",
        "prompt",
        "man",
        "completions",
    ];

    fn each(command: &clap::Command, path: &str, look: &mut impl FnMut(&str, &clap::Command)) {
        for inner in command.get_subcommands() {
            let path = format!("{path} {}", inner.get_name()).trim().to_owned();
            look(&path, inner);
            each(inner, &path, look);
        }
    }

    #[test]
    fn each_command_has_examples_and_each_that_shows_something_has_json() {
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
