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
  guild meet Dalton --project book                       (asks what it is about)
  guild meet researcher --project book --max-turns 5 \"Tides\"
  printf 'Go on\\nAnd the harbour?\\n' | guild meet researcher --project book \"Tides\"

The worker's answer is shown as it comes; the tools that it calls are shown on a line each. What you type is the next message. Ctrl-C ends \
what the worker is doing, and the meeting goes on; at the prompt, Ctrl-C or Ctrl-D leaves. The meeting stays open, also while \
no host runs: `guild meeting resume` goes on, and `guild meeting close` has notes written and ends it. In a pipe each line of stdin \
is a message, and the command ends with them. --json prints each event as a line of JSON.

Exit code: 0 when you leave; 1 any error, in a pipe also that of a turn; 130 interrupted before there was a meeting, or in a pipe.")]
pub(crate) struct Meet {
    /// The worker: its key, its name for people, or its package's
    #[arg(value_parser = NonEmptyStringValueParser::new(), add = ArgValueCandidates::new(complete::members))]
    pub(crate) worker: String,
    /// The project's name
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new(), add = ArgValueCandidates::new(complete::projects))]
    pub(crate) project: String,
    /// What it is about [default: on a terminal it is asked for; else the first line of stdin]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) agenda: Option<String>,
    /// What holds in place of the worker's own bounds, for each turn
    #[command(flatten)]
    pub(crate) overrides: OverrideArgs,
    /// The hall
    #[command(flatten)]
    pub(crate) hall: HallArgs,
}

/// `guild meeting`.
#[derive(Debug, Subcommand)]
pub(crate) enum Meeting {
    /// List meetings: what is asked for, what is open, what is over
    #[command(after_help = "\
Examples:
  guild meeting list
  guild meeting list --project book --status requested --json

On a terminal it has columns; in a pipe, each line has the meeting's id, its status, its project, its worker, its day, until when it \
was put off, and its title, between tabs.")]
    List(MeetingList),
    /// Show a meeting: its agenda, what was said, and its notes
    #[command(after_help = "Examples:\n  guild meeting show ID\n  guild meeting show ID --json")]
    Show(MeetingOf),
    /// Go on with an open meeting
    #[command(after_help = "\
Example:
  guild meeting resume ID

It shows the last turn, and joins it where it is under way; then it is as `guild meet`.")]
    Resume(MeetingOf),
    /// Have notes of a meeting written, print them, and end it
    #[command(after_help = "\
Examples:
  guild meeting close ID
  guild meeting close ID > notes.md          (as the worker wrote them; on a terminal they are rendered)

A turn that is under way is ended. What was written in the meeting is merged into claude/main.")]
    Close(MeetingOf),
    /// Open a meeting that a worker asks for
    #[command(after_help = "\
Examples:
  guild meeting accept ID
  guild meeting accept ID \"Only the harbour, please\"

Then it is as `guild meet`.")]
    Accept(MeetingAccept),
    /// Decline a meeting that a worker asks for
    #[command(after_help = "Example:\n  guild meeting decline ID")]
    Decline(MeetingOf),
    /// Postpone a meeting that a worker asks for; it stays in the list
    #[command(after_help = "Example:\n  guild meeting defer ID 2026-12-01")]
    Defer(MeetingDefer),
}

/// `guild meeting list`.
#[derive(Debug, Args)]
pub(crate) struct MeetingList {
    /// Only those of this project
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(complete::projects))]
    pub(crate) project: Option<String>,
    /// Only those in this state
    #[arg(long, value_name = "STATUS", value_parser = statuses())]
    pub(crate) status: Option<MeetingStatus>,
    /// The hall
    #[command(flatten)]
    pub(crate) hall: HallArgs,
}

/// A meeting.
#[derive(Debug, Args)]
pub(crate) struct MeetingOf {
    /// The meeting's id, as `list` prints it, or how only this one begins; `audience-`, `meeting-request-` and `followup-` may be
    /// left out
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
    pub(crate) of: MeetingOf,
    /// What to tell the worker besides its own agenda
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) message: Option<String>,
    /// What holds in place of the worker's own bounds, for each turn
    #[command(flatten)]
    pub(crate) overrides: OverrideArgs,
}

/// `guild meeting defer`.
#[derive(Debug, Args)]
pub(crate) struct MeetingDefer {
    /// The meeting
    #[command(flatten)]
    pub(crate) of: MeetingOf,
    /// Until when, such as 2026-12-01
    #[arg(value_name = "DATE")]
    pub(crate) until: Date,
}

/// The states of meetings, by name.
fn statuses() -> impl TypedValueParser<Value = MeetingStatus> {
    PossibleValuesParser::new(MeetingStatus::ALL.iter().copied().map(MeetingStatus::as_str))
        .try_map(|name| name.parse())
}
