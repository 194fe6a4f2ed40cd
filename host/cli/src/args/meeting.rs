//! The arguments of `guild meet` and `guild meeting`.

use clap::{
    Args, Subcommand,
    builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser},
};
use clap_complete::ArgValueCandidates;
use guild_contract::hall::MeetingStatus;
use jiff::civil::Date;

use super::hall::{HallArgs, OverrideArgs};
use crate::complete;

/// `guild meet`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild meet researcher --project book \"Which documents speak of tides?\"
  guild meet Dalton --project book                       (asks for the agenda)
  guild meet researcher --project book --max-turns 5 \"Tides\"
  printf 'Go on\\nAnd the harbour?\\n' | guild meet researcher --project book \"Tides\"

The command shows the worker's answer as it arrives, and each tool call on one line. Each line that you type is a \
message. Ctrl-C interrupts the worker's turn, and the meeting continues; at the prompt, Ctrl-C or Ctrl-D leaves the \
conversation. The meeting stays open, even while no host runs: `guild meeting resume` continues the meeting, and \
`guild meeting close` has its notes written and ends it. In a pipe each line of stdin is a message, and the command \
ends after the last one. --json prints each event as a line of JSON.

Exit code: 0 after you leave; 1 any error, in a pipe also the error of a turn; 130 interrupted before the meeting was \
open, or in a pipe.")]
pub(crate) struct Meet {
    /// The worker: its key, its display name, or its package's name
    #[arg(value_parser = NonEmptyStringValueParser::new(), add = ArgValueCandidates::new(complete::members))]
    pub(crate) worker: String,
    /// The project's name
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new(), add = ArgValueCandidates::new(complete::projects))]
    pub(crate) project: String,
    /// The agenda [default: the answer to a question on a terminal, else the first line of stdin]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) agenda: Option<String>,
    /// Bounds of each turn, which replace the worker's own
    #[command(flatten)]
    pub(crate) overrides: OverrideArgs,
    /// The hall
    #[command(flatten)]
    pub(crate) hall: HallArgs,
}

/// `guild meeting`.
#[derive(Debug, Subcommand)]
pub(crate) enum Meeting {
    /// List meetings in all states
    #[command(after_help = "\
Examples:
  guild meeting list
  guild meeting list --project book --status requested --json

On a terminal the list has aligned columns. In a pipe each line has tab-separated fields: the meeting's id, its \
status, its project, its worker, its day, the day until which it is deferred, and its title.")]
    List(MeetingList),
    /// Show a meeting's agenda, messages and notes
    #[command(after_help = "Examples:\n  guild meeting show ID\n  guild meeting show ID --json")]
    Show(MeetingArgs),
    /// Continue an open meeting
    #[command(after_help = "\
Example:
  guild meeting resume ID

The command shows the last turn, and joins a turn that is under way; it then continues as `guild meet` does.")]
    Resume(MeetingArgs),
    /// Have the notes of a meeting written, print them, and end the meeting
    #[command(after_help = "\
Examples:
  guild meeting close ID
  guild meeting close ID > notes.md          (the Markdown source; a terminal shows it rendered)

A turn that is under way is interrupted. The changes that were made in the meeting are merged into claude/main.")]
    Close(MeetingArgs),
    /// Open a meeting that a worker requests
    #[command(after_help = "\
Examples:
  guild meeting accept ID
  guild meeting accept ID \"Only the harbour, please\"

After that, the command continues as `guild meet` does.")]
    Accept(MeetingAccept),
    /// Decline a meeting that a worker requests
    #[command(after_help = "Example:\n  guild meeting decline ID")]
    Decline(MeetingArgs),
    /// Defer a meeting that a worker requests; it stays in the list
    #[command(after_help = "Example:\n  guild meeting defer ID 2026-12-01")]
    Defer(MeetingDefer),
}

/// `guild meeting list`.
#[derive(Debug, Args)]
pub(crate) struct MeetingList {
    /// Only meetings of this project
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(complete::projects))]
    pub(crate) project: Option<String>,
    /// Only meetings with this status
    #[arg(long, value_name = "STATUS", value_parser = statuses())]
    pub(crate) status: Option<MeetingStatus>,
    /// The hall
    #[command(flatten)]
    pub(crate) hall: HallArgs,
}

/// A meeting.
#[derive(Debug, Args)]
pub(crate) struct MeetingArgs {
    /// The meeting's id from `list`, or a unique prefix of it; `audience-`, `meeting-request-` and `followup-` may be
    /// omitted
    #[arg(value_parser = NonEmptyStringValueParser::new(), add = ArgValueCandidates::new(complete::meetings))]
    pub(crate) id: String,
    /// The hall
    #[command(flatten)]
    pub(crate) hall: HallArgs,
}

/// `guild meeting accept`.
#[derive(Debug, Args)]
pub(crate) struct MeetingAccept {
    /// The meeting
    #[command(flatten)]
    pub(crate) of: MeetingArgs,
    /// A message to the worker, in addition to its own agenda
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) message: Option<String>,
    /// Bounds of each turn, which replace the worker's own
    #[command(flatten)]
    pub(crate) overrides: OverrideArgs,
}

/// `guild meeting defer`.
#[derive(Debug, Args)]
pub(crate) struct MeetingDefer {
    /// The meeting
    #[command(flatten)]
    pub(crate) of: MeetingArgs,
    /// The day until which the meeting is deferred, such as 2026-12-01
    #[arg(value_name = "DATE")]
    pub(crate) until: Date,
}

/// The states of meetings, by name.
fn statuses() -> impl TypedValueParser<Value = MeetingStatus> {
    PossibleValuesParser::new(MeetingStatus::ALL.iter().copied().map(MeetingStatus::as_str))
        .try_map(|name| name.parse())
}
