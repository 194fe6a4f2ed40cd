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
    /// Where the operator's policy is
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

It lists the repository in config.yaml of the hall's home, and permits work in it with a [[project]] in guild.toml: what only the \
first names is never touched. Nothing is written into the repository before the first commission; then work happens on branches \
that begin with claude/, in worktrees below the home. `push` and `pull_requests` of [[project]] permit more.")]
    Add(ProjectAdd),
    /// Show the projects, and why nothing is done in one where that is so
    #[command(after_help = "Examples:\n  guild project list\n  guild project list --json")]
    List {
        /// Whose projects
        #[command(flatten)]
        home: HomeArgs,
        /// Print them as JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove the branches of commissions and meetings that are over
    #[command(after_help = "\
Examples:
  guild project tidy --dry-run                 (shows which branches would go, and why the others stay)
  guild project tidy handbook --older-than 7d
  guild project tidy --unmerged --older-than 90d

A branch goes whose commission is completed or abandoned, or whose meeting is closed and merged: its work is in claude/main, or given \
up. With --unmerged also those go that have work which is nowhere else: of commissions that failed or were cancelled, which could be \
dispatched again, and of meetings that could not be merged. Branches of what waits or is under way stay, and those of which the hall \
knows nothing. `git branch NAME COMMIT` makes one again as long as git has its commits. `tidy_branches_after_days` in [hall] of \
guild.toml has a host do this by itself, without --unmerged.")]
    Tidy(ProjectTidy),
    /// Take a project out of config.yaml and guild.toml; its branches, worktrees and records stay
    #[command(visible_alias = "rm", after_help = "Example:\n  guild project remove handbook")]
    Remove {
        /// The project's name
        #[arg(value_parser = NonEmptyStringValueParser::new(), add = ArgValueCandidates::new(complete::projects))]
        name: String,
        /// Whose project
        #[command(flatten)]
        home: HomeArgs,
    },
}

/// `guild project add`.
#[derive(Debug, Args)]
pub(crate) struct ProjectAdd {
    /// The top directory of the repository's working tree
    pub(crate) path: PathBuf,
    /// What to call it [default: the directory's name]
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) name: Option<String>,
    /// The branch that work begins from [default: the one of origin, else main, else master, else the one that is
    /// checked out]
    #[arg(long, value_name = "BRANCH", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) branch: Option<String>,
    /// Whose project it is to be
    #[command(flatten)]
    pub(crate) home: HomeArgs,
}

/// `guild project tidy`.
#[derive(Debug, Args)]
pub(crate) struct ProjectTidy {
    /// The project's name [default: all projects]
    #[arg(value_parser = NonEmptyStringValueParser::new(), add = ArgValueCandidates::new(complete::projects))]
    pub(crate) project: Option<String>,
    /// How long ago the commission or the meeting must be over: 12h, 30d, 2w
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = crate::age::parse)]
    pub(crate) older_than: std::time::Duration,
    /// Remove those, too, whose work is nowhere else
    #[arg(long)]
    pub(crate) unmerged: bool,
    /// Show what would be removed, and remove nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Whose projects
    #[command(flatten)]
    pub(crate) home: HomeArgs,
    /// Print all branches as JSON, with what became of each
    #[arg(long)]
    pub(crate) json: bool,
}

/// `guild pr`.
#[derive(Debug, Subcommand)]
pub(crate) enum Pr {
    /// Push claude/main of a project, make a pull request of it, and print its address
    #[command(after_help = "\
Examples:
  guild pr create book --title \"Sources on tides\"
  guild pr create book --title \"Sources on tides\" --body - < body.md

No commission may be under way and no meeting open in the project, and its [[project]] in guild.toml needs `push = true` and `pull_requests = true`. Only \
claude/main is pushed; the pull request is made by `gh`, whose account it is made with (`gh auth login`). Where one is open already, \
it has what was pushed. Merging it is up to you: then run `guild pr sync`.")]
    Create(PrCreate),
    /// Have claude/main follow the default branch, once a pull request is merged or the branch has moved on
    #[command(after_help = "\
Examples:
  guild pr sync book
  guild pr sync --json

Where `push = true`, the default branch of origin is fetched and followed, else the project's own. It is only read. claude/main is \
reset to it where it has all changes; what was committed since a merged pull request is rebased onto it; where both moved on, it is \
merged. A conflict changes nothing, and names the files. Projects with a commission under way or an open meeting are left out.

Exit code: 0 where no project failed; 1 any error.")]
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
    /// Its body; `-` reads it from stdin [default: empty]
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

/// How to reach a hall that runs.
#[derive(Debug, Args)]
pub(crate) struct HallArgs {
    /// Whose hall, through the socket in its home
    #[command(flatten)]
    pub(crate) home: HomeArgs,
    /// The hall of the host at this URL, instead of the one of a home [default: $GUILD_URL, if set and no --home is
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

PROMPT is what the worker is asked; without one it is the title. A commission begins once it is dispatched, and all that it depends \
on is there: commissions that are completed, and documents below .lore/. A commission that there is not is refused; a document that \
is not there yet is said. So is a bound that is cut, since the operator allows less.")]
    Create(CommissionCreate),
    /// List commissions: what waits, what runs, what went wrong, what is over
    #[command(after_help = "\
Examples:
  guild commission list
  guild commission list --project book --status failed --json

A commission is `pending` until somebody asks for its dispatch, and then `queued`: it begins by itself once there is room. One that is \
`blocked` waits for what it depends on, and begins by itself once that is there where it says `blocked, queued`; \
`guild commission show` says what it waits for.

On a terminal it has columns; in a pipe, each line has the commission's id, its status, its project, its worker, when it came to that \
status (RFC 3339) and its title, between tabs.")]
    List(CommissionList),
    /// Show a commission: what was asked, what came of it, and all that happened
    #[command(after_help = "Examples:\n  guild commission show ID\n  guild commission show ID --json")]
    Show(CommissionOf),
    /// Have a commission carried out that is pending or blocked, or put it in the queue
    #[command(after_help = "Example:\n  guild commission dispatch ID")]
    Dispatch(CommissionOf),
    /// End a commission that waits or runs; what was written stays on its branch
    #[command(after_help = "Example:\n  guild commission cancel ID --reason \"asked twice\"")]
    Cancel(CommissionCancel),
    /// Give a commission up for good
    #[command(after_help = "Example:\n  guild commission abandon ID \"not needed any more\"")]
    Abandon(CommissionAbandon),
    /// Take a commission up again that failed or was cancelled: on a new branch, the old one stays
    #[command(after_help = "Example:\n  guild commission redispatch ID")]
    Redispatch(CommissionOf),
    /// Add a note to a commission's timeline
    #[command(after_help = "Example:\n  guild commission note ID \"See also the harbour\"")]
    Note(CommissionNote),
    /// Show what happens in a hall, as it happens; or one commission, until it ends
    #[command(after_help = "\
Examples:
  guild commission watch
  guild commission watch ID --json

One line for each event. A connection that breaks is made again; what happened in between is not told, but the end of ID is. --json \
prints the hall's own events.

Exit code: 0 when Ctrl-C or SIGTERM ends it; with ID, 0 completed, 3 failed, 4 cancelled or abandoned; 1 any error.")]
    Watch(CommissionWatch),
}

/// Bounds in place of the worker's own.
#[derive(Debug, Args)]
pub(crate) struct OverrideArgs {
    /// The model, in place of the worker's own
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) model: Option<String>,
    /// Turns of the model, in place of the worker's own; at most `limits.session_turns`
    #[arg(long, value_name = "N")]
    pub(crate) max_turns: Option<u32>,
    /// US dollars, in place of the worker's own; at most `limits.session_budget_usd`
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
    /// The worker: its key, its name for people, or its package's
    #[arg(value_parser = NonEmptyStringValueParser::new(), add = ArgValueCandidates::new(complete::members))]
    pub(crate) worker: String,
    /// What it is about
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) title: String,
    /// What the worker is asked; `-` reads it from stdin [default: the title]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) prompt: Option<String>,
    /// What has to be there first: a commission's id, or a document below .lore/; give it again for each
    #[arg(long, value_name = "X", add = ArgValueCandidates::new(complete::commissions))]
    pub(crate) depends: Vec<String>,
    /// Have it carried out at once
    #[arg(long)]
    pub(crate) dispatch: bool,
    /// What holds in place of the worker's own bounds
    #[command(flatten)]
    pub(crate) overrides: OverrideArgs,
    /// The hall
    #[command(flatten)]
    pub(crate) hall: HallArgs,
}

/// `guild commission list`.
#[derive(Debug, Args)]
pub(crate) struct CommissionList {
    /// Only those of this project
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(complete::projects))]
    pub(crate) project: Option<String>,
    /// Only those in this state
    #[arg(long, value_name = "STATUS", value_parser = statuses())]
    pub(crate) status: Option<CommissionStatus>,
    /// Only those of the worker with this name for people
    #[arg(long, value_name = "NAME")]
    pub(crate) worker: Option<String>,
    /// The hall
    #[command(flatten)]
    pub(crate) hall: HallArgs,
}

/// A commission.
#[derive(Debug, Args)]
pub(crate) struct CommissionOf {
    /// The commission's id, as `create` and `list` print it, or how only this one begins
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
    pub(crate) of: CommissionOf,
    /// Why, for its timeline
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) reason: Option<String>,
}

/// `guild commission abandon`.
#[derive(Debug, Args)]
pub(crate) struct CommissionAbandon {
    /// The commission
    #[command(flatten)]
    pub(crate) of: CommissionOf,
    /// Why, for its timeline
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) reason: String,
}

/// `guild commission note`.
#[derive(Debug, Args)]
pub(crate) struct CommissionNote {
    /// The commission
    #[command(flatten)]
    pub(crate) of: CommissionOf,
    /// The note; `-` reads it from stdin
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) text: String,
}

/// `guild commission watch`.
#[derive(Debug, Args)]
pub(crate) struct CommissionWatch {
    /// Only this commission, until it ends: its id, or how only this one begins
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
