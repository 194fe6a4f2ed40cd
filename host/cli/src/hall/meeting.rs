//! `guild meeting`: lists, shows and changes meetings of a running hall.

use std::{
    fmt::Display,
    io::{self, Write},
};

use anstyle::{AnsiColor, Style};
use guild_client::{
    Reply,
    hall::{
        Author, CloseMeeting, DeclineMeeting, DeferMeeting, DeferMeetingParams, ListMeetings, MeetingDetail,
        MeetingFilter, MeetingIdParams, MeetingListView, MeetingParams, MeetingStatus, MeetingView, MeetingsAnswer,
        Named, ReadMeeting,
    },
};

use super::{Hall, TEXT_CHARS, changed, meet, overridden, pick};
use crate::{
    args::meeting::{Meeting, MeetingArgs, MeetingDefer, MeetingList},
    failure::Failure,
    output::{
        LABEL, STRONG, harmless,
        markdown::print_report,
        one_line, print, print_json,
        table::{Cell, Column, Table},
        tell,
    },
};

/// Prefixes of ids that may be left out.
const PREFIXES: [&str; 3] = ["audience-", "meeting-request-", "followup-"];

/// `guild meeting`.
pub(crate) async fn meeting(args: Meeting) -> Result<(), Failure> {
    match args {
        Meeting::List(args) => list(args).await,
        Meeting::Show(args) => show(args).await,
        Meeting::Resume(args) => {
            let (hall, detail) = read(&args).await?;
            meet::resume(hall, &detail.value, args.hall.json).await
        }
        Meeting::Close(args) => close(args).await,
        Meeting::Accept(args) => {
            let (hall, one) = found(&args.of).await?;
            meet::accept(hall, &one, args).await
        }
        Meeting::Decline(args) => {
            let (hall, MeetingView { id, .. }) = found(&args).await?;
            let decline = MeetingParams { meeting_id: id.to_string(), project_name: None };
            let reply = hall.ask(hall.client.ask::<DeclineMeeting>(&decline).await)?;
            changed(&args.hall, &reply, id.as_str(), "is declined")
        }
        Meeting::Defer(MeetingDefer { of, until }) => {
            let (hall, MeetingView { id, .. }) = found(&of).await?;
            let deferred_until = until.to_string();
            let defer = DeferMeetingParams { meeting_id: id.to_string(), project_name: None, deferred_until };
            let reply = hall.ask(hall.client.ask::<DeferMeeting>(&defer).await)?;
            changed(&of.hall, &reply, id.as_str(), &format!("is put off until {until}"))
        }
    }
}

/// Connects to the hall, and finds the meeting with this id or unique prefix.
async fn found(args: &MeetingArgs) -> Result<(Hall, MeetingView), Failure> {
    let hall = Hall::open(&args.hall)?;
    let (all, _) = meetings(hall.ask(hall.client.ask::<ListMeetings>(&all()).await)?.value);
    let one = pick(all, |one| one.id.as_str(), &args.id, ("meeting", &PREFIXES))?;
    Ok((hall, one))
}

/// The filter for the meetings of all projects, in any state.
fn all() -> MeetingFilter {
    MeetingFilter { view: Some(Named::Known(MeetingListView::All)), ..MeetingFilter::default() }
}

/// The meetings in an answer, and the number of further ones.
fn meetings(answer: MeetingsAnswer) -> (Vec<MeetingView>, usize) {
    match answer {
        MeetingsAnswer::Meetings(list) => (list.meetings, list.more),
        MeetingsAnswer::Records(_) => (Vec::new(), 0),
    }
}

async fn read(args: &MeetingArgs) -> Result<(Hall, Reply<MeetingDetail>), Failure> {
    let (hall, one) = found(args).await?;
    let wanted = MeetingParams { meeting_id: one.id.into(), project_name: Some(one.project_name) };
    let detail = hall.ask(hall.client.ask::<ReadMeeting>(&wanted).await)?;
    Ok((hall, detail))
}

async fn list(args: MeetingList) -> Result<(), Failure> {
    let hall = Hall::open(&args.hall)?;
    let filter = MeetingFilter { project_name: args.project, status: args.status.map(Named::Known), ..all() };
    let reply = hall.ask(hall.client.ask::<ListMeetings>(&filter).await)?;
    if args.hall.json {
        return Ok(print_json(&reply.json)?);
    }
    let (found, more) = meetings(reply.value);
    if found.is_empty() {
        tell("no meetings");
    }
    if more > 0 {
        tell(format_args!("{more} more are not shown; filter by --project or --status"));
    }
    Ok(table(&found).print()?)
}

fn table(meetings: &[MeetingView]) -> Table {
    let columns = ["MEETING", "STATUS", "PROJECT", "WORKER", "DAY", "PUT OFF UNTIL"];
    let mut table = Table::new(columns.map(Column::Left)).rest("TITLE");
    for one in meetings {
        table.row(
            [
                Cell::text(one.id.as_str()),
                Cell::text(one.status.as_str()).styled(style(one.status)),
                Cell::text(&one.project_name),
                Cell::text(&one.worker),
                Cell::text(&one.date),
                Cell::text(&one.deferred_until),
                Cell::text(&one.title),
            ],
            None,
        );
    }
    table
}

async fn show(args: MeetingArgs) -> Result<(), Failure> {
    let (_, reply) = read(&args).await?;
    if args.hall.json {
        return Ok(print_json(&reply.json)?);
    }
    let detail = &reply.value;
    print(|out| write_detail(out, detail))?;
    match detail.meeting.notes.as_str() {
        "" => Ok(()),
        notes => Ok(print_report(notes)?),
    }
}

/// Writes a meeting for people, up to the heading of its notes.
fn write_detail(out: &mut dyn Write, detail: &MeetingDetail) -> io::Result<()> {
    let one = &detail.meeting;
    let mut row = |label: &str, value: &dyn Display| writeln!(out, "{LABEL}{label:<10}{LABEL:#} {value}");
    let line = |text: &str| one_line(text, usize::MAX);
    let style = style(one.status);
    row("meeting", &one.id)?;
    row("title", &line(&one.title))?;
    row("status", &format_args!("{style}{}{style:#}", one.status))?;
    row("project", &line(&one.project_name))?;
    row("worker", &format_args!("{} ({})", line(&one.worker), line(&one.worker_display_title)))?;
    if one.created_by == Author::Manager {
        row("made by", &"the manager")?;
    }
    row("day", &line(&one.date))?;
    for (label, value) in [("put off to", &one.deferred_until), ("artifacts", &one.linked_artifacts.join(", "))] {
        if !value.is_empty() {
            row(label, &line(value))?;
        }
    }
    if let Some(overrides) = overridden(&one.resource_overrides) {
        row("overrides", &overrides)?;
    }
    if let Some(job) = &one.job {
        row("job", &line(job))?;
    }
    writeln!(out, "\n{STRONG}Agenda{STRONG:#}")?;
    harmless(&one.agenda).trim().lines().try_for_each(|line| writeln!(out, "  {line}"))?;
    for message in &detail.parsed_messages {
        meet::write_message(out, message, &one.worker)?;
    }
    if !one.notes.is_empty() {
        writeln!(out, "\n{STRONG}Notes{STRONG:#}\n")?;
    }
    Ok(())
}

async fn close(args: MeetingArgs) -> Result<(), Failure> {
    let (hall, one) = found(&args).await?;
    if one.status == MeetingStatus::Open {
        tell(format_args!("{} writes the notes", one_line(&one.worker, TEXT_CHARS)));
    }
    let close = MeetingIdParams { meeting_id: one.id.to_string() };
    let reply = hall.ask(hall.client.ask::<CloseMeeting>(&close).await)?;
    if args.hall.json {
        return Ok(print_json(&reply.json)?);
    }
    print_report(&reply.value.notes)?;
    tell(format_args!("{} is closed", one.id));
    Ok(())
}

fn style(status: MeetingStatus) -> Style {
    match status {
        MeetingStatus::Open => AnsiColor::Cyan.on_default(),
        MeetingStatus::Requested => AnsiColor::Yellow.on_default(),
        MeetingStatus::Closed => AnsiColor::Green.on_default(),
        MeetingStatus::Declined => LABEL,
    }
}
