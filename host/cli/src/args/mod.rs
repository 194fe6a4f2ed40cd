//! The command line: the arguments of all commands, and the text of `guild --help`.

pub(crate) mod authors;
pub(crate) mod hall;
pub(crate) mod jobs;
pub(crate) mod meeting;
pub(crate) mod members;
pub(crate) mod operator;
pub(crate) mod registry;

use std::{error::Error, path::PathBuf, str::FromStr};

use clap::{
    Args, Parser, Subcommand,
    builder::{PossibleValuesParser, TypedValueParser},
};
use clap_complete::Shell;
use guild_config::Runtime;
use strum::VariantArray;

use self::{
    authors::{Build, Dev, New},
    hall::{Commission, Pr, Project},
    jobs::{Dispatch, Job, List, Logs, Prune, Run, Usage, Watch},
    meeting::{Meet, Meeting},
    members::{Approve, Audit, Call, Members, Probe, Prompt, Sign, Test},
    operator::{Backup, Cluster, Doctor, Health, Mcp, Restore, Serve, Tls, Token},
    registry::{Install, Pack, Pull, Push, Upgrade},
};
use crate::output::log::LogArgs;

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
    /// Set up a cluster of hosts
    #[command(subcommand)]
    Cluster(Cluster),
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
    const WITHOUT_JSON: [&str; 36] = [
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
        "cluster",
        "cluster drain",
        "cluster import",
        "cluster init",
        "cluster publish",
        "cluster sweep",
        "cluster withdraw",
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
}
