//! The arguments of `guild project`, `guild commission` and `guild pr`.

use std::path::PathBuf;

use clap::{
    Args, Subcommand,
    builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser},
};
use clap_complete::ArgValueCandidates;
use guild_client::hall::Overrides;
use guild_contract::hall::CommissionStatus;

use crate::{client::AccessArgs, complete, local::PolicyArgs};

/// The home of a hall.
#[derive(Clone, Debug, Args)]
pub(crate) struct HomeArgs {
    /// The hall's home [default: $GUILD_HALL_HOME, else `home` of [hall] in guild.toml, else ~/.guild-hall]
    #[arg(long, value_name = "HOME")]
    pub(crate) home: Option<PathBuf>,
    /// The location of the operator's policy
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
}

/// `guild project`.
#[derive(Debug, Subcommand)]
pub(crate) enum Project {
    /// Let workers be commissioned on a git repository
    #[command(after_help = "\
Examples:
  guild project add ~/src/book
  guild project add . --name handbook --branch develop

The command lists the repository in config.yaml of the hall's home, and permits work in it with a [[project]] in \
guild.toml. A repository that only config.yaml names is never touched. Nothing is written into the repository before \
the first commission; the work is then done on branches that begin with claude/, in worktrees below the home. `push` \
and `pull_requests` of [[project]] permit more.")]
    Add(ProjectAdd),
    /// List the projects, and the reason for each project in which no work can be done
    #[command(after_help = "Examples:\n  guild project list\n  guild project list --json")]
    List {
        /// The hall
        #[command(flatten)]
        home: HomeArgs,
        /// Print the projects as JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove the branches of ended commissions and meetings
    #[command(after_help = "\
Examples:
  guild project tidy --dry-run                 (lists the branches to remove, and why the others stay)
  guild project tidy handbook --older-than 7d
  guild project tidy --unmerged --older-than 90d

The command removes a branch if its commission is completed or abandoned, or if its meeting is closed and merged: the \
branch's work is then in claude/main, or was given up. With --unmerged it also removes branches whose work exists \
nowhere else: branches of commissions that failed or were cancelled and could be dispatched again, and of meetings \
that could not be merged. The branches of waiting and active commissions and meetings stay, and so do branches that \
the hall does not know. `git branch NAME COMMIT` restores a branch as long as git has its commits. With \
`tidy_branches_after_days` in [hall] of guild.toml, a host removes such branches by itself, as without --unmerged.")]
    Tidy(ProjectTidy),
    /// Take a project out of config.yaml and guild.toml; its branches, worktrees and records stay
    #[command(visible_alias = "rm", after_help = "Example:\n  guild project remove handbook")]
    Remove {
        /// The project's name
        #[arg(value_parser = NonEmptyStringValueParser::new(), add = ArgValueCandidates::new(complete::projects))]
        name: String,
        /// The hall
        #[command(flatten)]
        home: HomeArgs,
    },
}

/// `guild project add`.
#[derive(Debug, Args)]
pub(crate) struct ProjectAdd {
    /// The top directory of the repository's working tree
    pub(crate) path: PathBuf,
    /// The project's name [default: the directory's name]
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) name: Option<String>,
    /// The branch that work begins from [default: the default branch of origin, else main, else master, else the branch
    /// that is checked out]
    #[arg(long, value_name = "BRANCH", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) branch: Option<String>,
    /// The hall
    #[command(flatten)]
    pub(crate) home: HomeArgs,
}

/// `guild project tidy`.
#[derive(Debug, Args)]
pub(crate) struct ProjectTidy {
    /// The project's name [default: all projects]
    #[arg(value_parser = NonEmptyStringValueParser::new(), add = ArgValueCandidates::new(complete::projects))]
    pub(crate) project: Option<String>,
    /// The minimum time since the end of the commission or the meeting: 12h, 30d, 2w
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = crate::age::parse)]
    pub(crate) older_than: std::time::Duration,
    /// Also remove branches whose work exists nowhere else
    #[arg(long)]
    pub(crate) unmerged: bool,
    /// List the branches to remove, without removing them
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The hall
    #[command(flatten)]
    pub(crate) home: HomeArgs,
    /// Print all branches as JSON, with the outcome for each
    #[arg(long)]
    pub(crate) json: bool,
}

/// `guild pr`.
#[derive(Debug, Subcommand)]
pub(crate) enum Pr {
    /// Push claude/main of a project, open a pull request from it, and print the pull request's URL
    #[command(after_help = "\
Examples:
  guild pr create book --title \"Sources on tides\"
  guild pr create book --title \"Sources on tides\" --body - < body.md

The project must have no commission under way and no open meeting, and its [[project]] in guild.toml needs `push = \
true` and `pull_requests = true`. The command pushes only claude/main. `gh` opens the pull request, with the account \
of `gh auth login`. A pull request that is already open gets the pushed commits. After you have merged the pull \
request, run `guild pr sync`.")]
    Create(PrCreate),
    /// Update claude/main from the default branch, after a merged pull request or other new commits
    #[command(after_help = "\
Examples:
  guild pr sync book
  guild pr sync --json

With `push = true`, claude/main follows the default branch of origin, which is fetched; otherwise it follows the \
project's own default branch. The default branch is only read. If the default branch has all changes, claude/main is \
reset to it. Commits since a merged pull request are rebased onto it. If both branches have new commits, the default branch is merged into claude/main. A conflict changes nothing, and the \
error names the files. Projects with a commission under way or an open meeting are skipped.

Exit code: 0 if no project failed; 1 any error.")]
    Sync(PrSync),
}

/// `guild pr create`.
#[derive(Debug, Args)]
pub(crate) struct PrCreate {
    /// The project's name
    #[arg(value_parser = NonEmptyStringValueParser::new(), add = ArgValueCandidates::new(complete::projects))]
    pub(crate) project: String,
    /// The pull request's title, one line
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new(), allow_hyphen_values = true)]
    pub(crate) title: String,
    /// The pull request's body; `-` reads it from stdin [default: empty]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) body: Option<String>,
    /// The hall
    #[command(flatten)]
    pub(crate) hall: HallArgs,
}

/// `guild pr sync`.
#[derive(Debug, Args)]
pub(crate) struct PrSync {
    /// The project's name [default: all projects]
    #[arg(value_parser = NonEmptyStringValueParser::new(), add = ArgValueCandidates::new(complete::projects))]
    pub(crate) project: Option<String>,
    /// The hall
    #[command(flatten)]
    pub(crate) hall: HallArgs,
}

/// How to reach a running hall.
#[derive(Debug, Args)]
pub(crate) struct HallArgs {
    /// The hall, which is reached through the socket in its home
    #[command(flatten)]
    pub(crate) home: HomeArgs,
    /// Use the hall of the host at this URL instead of the hall of a home [default: $GUILD_URL, if set and no --home is
    /// given]
    #[arg(long, value_name = "URL", conflicts_with = "home")]
    pub(crate) url: Option<String>,
    /// How to authenticate to the host at a URL
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// Print the host's answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `guild commission`.
#[derive(Debug, Subcommand)]
pub(crate) enum Commission {
    /// Commission a worker with work on a project, and print the commission's id
    #[command(after_help = "\
Examples:
  guild commission create book researcher \"Sources on tides\" \"Which documents speak of tides?\" --dispatch
  guild commission create book researcher \"Summary\" - --depends ID < prompt.md

PROMPT is the worker's task; its default is the title. A commission begins after its dispatch, once all its \
dependencies are met: completed commissions, and documents below .lore/. An unknown commission as a dependency is an \
error; a missing document is only reported. The command also reports each bound that is reduced because the operator \
allows less.")]
    Create(CommissionCreate),
    /// List commissions in all states
    #[command(after_help = "\
Examples:
  guild commission list
  guild commission list --project book --status failed --json

A commission is `pending` until a client requests its dispatch, and then `queued`: it begins by itself once there is \
room. A `blocked` commission waits for its dependencies; a `blocked, queued` commission begins by itself once they \
are met. `guild commission show` lists the missing dependencies.

On a terminal the list has aligned columns. In a pipe each line has tab-separated fields: the commission's id, its \
status, its project, its worker, its author, the time of its status (RFC 3339) and its title.")]
    List(CommissionList),
    /// Show a commission's prompt, result and timeline
    #[command(after_help = "Examples:\n  guild commission show ID\n  guild commission show ID --json")]
    Show(CommissionArgs),
    /// Dispatch a pending or blocked commission, or queue it
    #[command(after_help = "Example:\n  guild commission dispatch ID")]
    Dispatch(CommissionArgs),
    /// Cancel a waiting or running commission; its work stays on its branch
    #[command(after_help = "Example:\n  guild commission cancel ID --reason \"asked twice\"")]
    Cancel(CommissionCancel),
    /// Abandon a commission for good
    #[command(after_help = "Example:\n  guild commission abandon ID \"not needed any more\"")]
    Abandon(CommissionAbandon),
    /// Dispatch a failed or cancelled commission again, on a new branch; the old branch stays
    #[command(after_help = "Example:\n  guild commission redispatch ID")]
    Redispatch(CommissionArgs),
    /// Add a note to a commission's timeline
    #[command(after_help = "Example:\n  guild commission note ID \"See also the harbour\"")]
    Note(CommissionNote),
    /// Follow the events of a hall, or one commission until it ends
    #[command(after_help = "\
Examples:
  guild commission watch
  guild commission watch ID --json

Each event is one line. The command reconnects after a broken connection; it does not show the events in between, \
except for the end of ID. --json prints the hall's events unchanged.

Exit code: 0 if Ctrl-C or SIGTERM ends the command; with ID, 0 completed, 3 failed, 4 cancelled or abandoned; 1 any \
error.")]
    Watch(CommissionWatch),
}

/// Bounds that replace the worker's own.
#[derive(Debug, Args)]
pub(crate) struct OverrideArgs {
    /// The model, in place of the worker's own
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) model: Option<String>,
    /// The maximum number of turns, in place of the worker's own; at most `limits.session_turns`
    #[arg(long, value_name = "N")]
    pub(crate) max_turns: Option<u32>,
    /// The maximum cost in US dollars, in place of the worker's own; at most `limits.session_budget_usd`
    #[arg(long, value_name = "USD")]
    pub(crate) max_budget_usd: Option<f64>,
}

impl OverrideArgs {
    /// The overrides for the hall; `None` if there are none.
    pub(crate) fn overrides(self) -> Option<Overrides> {
        let Self { model, max_turns, max_budget_usd } = self;
        Some(Overrides { model, max_turns, max_budget_usd }).filter(|overrides| *overrides != Overrides::default())
    }
}

/// `guild commission create`.
#[derive(Debug, Args)]
pub(crate) struct CommissionCreate {
    /// The project's name
    #[arg(value_parser = NonEmptyStringValueParser::new(), add = ArgValueCandidates::new(complete::projects))]
    pub(crate) project: String,
    /// The worker: its key, its display name, or its package's name
    #[arg(value_parser = NonEmptyStringValueParser::new(), add = ArgValueCandidates::new(complete::members))]
    pub(crate) worker: String,
    /// The commission's title
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) title: String,
    /// The worker's task; `-` reads it from stdin [default: the title]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) prompt: Option<String>,
    /// A dependency: a commission's id, or a document below .lore/; repeat the option for more
    #[arg(long, value_name = "X", add = ArgValueCandidates::new(complete::commissions))]
    pub(crate) depends: Vec<String>,
    /// Dispatch the commission at once
    #[arg(long)]
    pub(crate) dispatch: bool,
    /// Bounds that replace the worker's own
    #[command(flatten)]
    pub(crate) overrides: OverrideArgs,
    /// The hall
    #[command(flatten)]
    pub(crate) hall: HallArgs,
}

/// `guild commission list`.
#[derive(Debug, Args)]
pub(crate) struct CommissionList {
    /// Only commissions of this project
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(complete::projects))]
    pub(crate) project: Option<String>,
    /// Only commissions with this status
    #[arg(long, value_name = "STATUS", value_parser = statuses())]
    pub(crate) status: Option<CommissionStatus>,
    /// Only commissions of the worker with this display name
    #[arg(long, value_name = "NAME")]
    pub(crate) worker: Option<String>,
    /// The hall
    #[command(flatten)]
    pub(crate) hall: HallArgs,
}

/// A commission.
#[derive(Debug, Args)]
pub(crate) struct CommissionArgs {
    /// The commission's id from `create` or `list`, or a unique prefix of it
    #[arg(value_parser = NonEmptyStringValueParser::new(), add = ArgValueCandidates::new(complete::commissions))]
    pub(crate) id: String,
    /// The hall
    #[command(flatten)]
    pub(crate) hall: HallArgs,
}

/// `guild commission cancel`.
#[derive(Debug, Args)]
pub(crate) struct CommissionCancel {
    /// The commission
    #[command(flatten)]
    pub(crate) of: CommissionArgs,
    /// The reason, for the commission's timeline
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) reason: Option<String>,
}

/// `guild commission abandon`.
#[derive(Debug, Args)]
pub(crate) struct CommissionAbandon {
    /// The commission
    #[command(flatten)]
    pub(crate) of: CommissionArgs,
    /// The reason, for the commission's timeline
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) reason: String,
}

/// `guild commission note`.
#[derive(Debug, Args)]
pub(crate) struct CommissionNote {
    /// The commission
    #[command(flatten)]
    pub(crate) of: CommissionArgs,
    /// The note; `-` reads it from stdin
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) text: String,
}

/// `guild commission watch`.
#[derive(Debug, Args)]
pub(crate) struct CommissionWatch {
    /// Follow only this commission until it ends: its id, or a unique prefix of it
    #[arg(value_parser = NonEmptyStringValueParser::new(), add = ArgValueCandidates::new(complete::commissions))]
    pub(crate) id: Option<String>,
    /// The hall
    #[command(flatten)]
    pub(crate) hall: HallArgs,
}

/// A parser for the states of commissions.
fn statuses() -> impl TypedValueParser<Value = CommissionStatus> {
    PossibleValuesParser::new(CommissionStatus::ALL.iter().copied().map(CommissionStatus::as_str))
        .try_map(|name| name.parse())
}
