//! `guild meeting`: meetings with workers, asked of the hall that runs.

use std::{
    fmt::Display,
    io::{self, Write},
};

use anstyle::{AnsiColor, Style};
use guild_client::{Meeting as View, MeetingDetail, MeetingFilter, Reply};

use crate::{
    converse,
    failure::Failure,
    hall::{Hall, TEXT_CHARS, changed, overridden, pick},
    markdown::print_report,
    meeting_args::{Meeting, MeetingDefer, MeetingList, MeetingOf},
    output::{LABEL, STRONG, harmless, one_line, print, print_json, tell},
    table::{Cell, Column, Table},
};

/// What ids may be given without.
const PREFIXES: [&str; 3] = ["audience-", "meeting-request-", "followup-"];

/// `guild meeting`.
pub(crate) async fn meeting(args: Meeting) -> Result<(), Failure> {
    match args {
        Meeting::List(args) => list(args).await,
        Meeting::Show(args) => show(args).await,
        Meeting::Resume(args) => {
            let (hall, detail) = read(&args).await?;
            converse::resume(hall, &detail.value, args.hall.json).await
        }
        Meeting::Close(args) => close(args).await,
        Meeting::Accept(args) => {
            let (hall, one) = found(&args.of).await?;
            converse::accept(hall, &one, args).await
        }
        Meeting::Decline(args) => {
            let (hall, View { meeting_id: id, .. }) = found(&args).await?;
            let reply = hall.ask(hall.client.decline_meeting(&id).await)?;
            changed(&args.hall, &reply, &id, "is declined")
        }
        Meeting::Defer(MeetingDefer { of, until }) => {
            let (hall, View { meeting_id: id, .. }) = found(&of).await?;
            let reply = hall.ask(hall.client.defer_meeting(&id, &until.to_string()).await)?;
            changed(&of.hall, &reply, &id, &format!("is put off until {until}"))
        }
    }
}

/// The hall, and the one meeting of that id, or whose id begins so.
async fn found(args: &MeetingOf) -> Result<(Hall, View), Failure> {
    let hall = Hall::open(&args.hall)?;
    let all = hall.ask(hall.client.meetings(&MeetingFilter::default()).await)?.value.meetings;
    let one = pick(all, |one| &one.meeting_id, &args.id, ("meeting", &PREFIXES))?;
    Ok((hall, one))
}

async fn read(args: &MeetingOf) -> Result<(Hall, Reply<MeetingDetail>), Failure> {
    let (hall, one) = found(args).await?;
    let detail = hall.ask(hall.client.read_meeting(&one.meeting_id, &one.project_name).await)?;
    Ok((hall, detail))
}

async fn list(args: MeetingList) -> Result<(), Failure> {
    let hall = Hall::open(&args.hall)?;
    let filter = MeetingFilter { project_name: args.project, status: args.status };
    let reply = hall.ask(hall.client.meetings(&filter).await)?;
    if args.hall.json {
        return Ok(print_json(&reply.json)?);
    }
    if reply.value.meetings.is_empty() {
        tell("no meetings");
    }
    if reply.value.more > 0 {
        tell(format_args!("{} more are not shown; name a project or a state", reply.value.more));
    }
    Ok(table(&reply.value.meetings).print()?)
}

fn table(meetings: &[View]) -> Table {
    let columns = ["MEETING", "STATUS", "PROJECT", "WORKER", "DAY", "PUT OFF UNTIL"];
    let mut table = Table::new(columns.map(Column::Left)).rest("TITLE");
    for one in meetings {
        table.row(
            [
                Cell::text(&one.meeting_id),
                Cell::text(&one.status).styled(style(&one.status)),
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

async fn show(args: MeetingOf) -> Result<(), Failure> {
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

/// Writes a meeting for people, to the heading of its notes.
fn write_detail(out: &mut dyn Write, detail: &MeetingDetail) -> io::Result<()> {
    let one = &detail.meeting;
    let mut row = |label: &str, value: &dyn Display| writeln!(out, "{LABEL}{label:<10}{LABEL:#} {value}");
    let line = |text: &str| one_line(text, usize::MAX);
    let style = style(&one.status);
    row("meeting", &line(&one.meeting_id))?;
    row("title", &line(&one.title))?;
    row("status", &format_args!("{style}{}{style:#}", line(&one.status)))?;
    row("project", &line(&one.project_name))?;
    row("worker", &format_args!("{} ({})", line(&one.worker), line(&one.worker_display_title)))?;
    if one.created_by == "manager" {
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
    if let Some(job) = &one.job_id {
        row("job", &line(job))?;
    }
    writeln!(out, "\n{STRONG}Agenda{STRONG:#}")?;
    harmless(&one.agenda).trim().lines().try_for_each(|line| writeln!(out, "  {line}"))?;
    for message in &detail.parsed_messages {
        converse::write_message(out, message, &one.worker)?;
    }
    if !one.notes.is_empty() {
        writeln!(out, "\n{STRONG}Notes{STRONG:#}\n")?;
    }
    Ok(())
}

async fn close(args: MeetingOf) -> Result<(), Failure> {
    let (hall, one) = found(&args).await?;
    let id = one_line(&one.meeting_id, TEXT_CHARS);
    if one.status == "open" {
        tell(format_args!("{} writes the notes", one_line(&one.worker, TEXT_CHARS)));
    }
    let reply = hall.ask(hall.client.close_meeting(&one.meeting_id).await)?;
    if args.hall.json {
        return Ok(print_json(&reply.json)?);
    }
    print_report(&reply.value.notes)?;
    tell(format_args!("{id} is closed"));
    Ok(())
}

fn style(status: &str) -> Style {
    match status {
        "open" => AnsiColor::Cyan.on_default(),
        "requested" => AnsiColor::Yellow.on_default(),
        "closed" => AnsiColor::Green.on_default(),
        "declined" => LABEL,
        _ => Style::new(),
    }
}
