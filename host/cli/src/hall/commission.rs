//! `guild commission`: makes, changes, lists and follows commissions of a running hall.

use std::{
    fmt::Display,
    io::{self, Write},
};

use anstyle::{AnsiColor, Style};
use guild_client::{
    Reply,
    hall::{
        AbandonCommission, AbandonParams, Author, Blocker, CancelCommission, CancelParams, CommissionCreated,
        CommissionDetail, CommissionDispatched, CommissionFilter, CommissionId, CommissionParams, CommissionStatus,
        CommissionView, CreateCommission, DispatchCommission, DispatchStatus, HallEvent, ListCommissions, Named,
        NewCommission, NoteCommission, NoteParams, ReadCommission, ReadCommissionParams, RedispatchCommission,
        TimelineEntry, label,
    },
};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{Hall, TEXT_CHARS, changed, given, overridden, pick};
use crate::{
    age,
    args::hall::{Commission, CommissionArgs, CommissionCreate, CommissionList, CommissionWatch},
    failure::{Failure, exit},
    jobs::worker::stop_signals,
    output::{
        BAD, LABEL, STRONG, harmless,
        markdown::print_report,
        one_line, print, print_json,
        table::{Cell, Column, Table},
        tell,
    },
};

/// `guild commission`.
pub(crate) async fn commission(args: Commission) -> Result<(), Failure> {
    match args {
        Commission::Create(args) => create(args).await,
        Commission::List(args) => list(args).await,
        Commission::Show(args) => show(args).await,
        Commission::Dispatch(args) => {
            let (hall, id) = found(&args).await?;
            let reply = hall.ask(hall.client.ask::<DispatchCommission>(&commission_params(&id)).await)?;
            changed(&args.hall, &reply, &id, &dispatched(&reply.value))
        }
        Commission::Redispatch(args) => {
            let (hall, id) = found(&args).await?;
            let reply = hall.ask(hall.client.ask::<RedispatchCommission>(&commission_params(&id)).await)?;
            changed(&args.hall, &reply, &id, &dispatched(&reply.value))
        }
        Commission::Cancel(args) => {
            let (hall, id) = found(&args.of).await?;
            let cancel = CancelParams { commission_id: id.clone(), reason: args.reason };
            let reply = hall.ask(hall.client.ask::<CancelCommission>(&cancel).await)?;
            changed(&args.of.hall, &reply, &id, "is cancelled")
        }
        Commission::Abandon(args) => {
            let (hall, id) = found(&args.of).await?;
            let abandon = AbandonParams { commission_id: id.clone(), reason: args.reason };
            let reply = hall.ask(hall.client.ask::<AbandonCommission>(&abandon).await)?;
            changed(&args.of.hall, &reply, &id, "is abandoned")
        }
        Commission::Note(args) => {
            let (hall, id) = found(&args.of).await?;
            let note = NoteParams { commission_id: id.clone(), content: given(&args.text, "note")? };
            let reply = hall.ask(hall.client.ask::<NoteCommission>(&note).await)?;
            changed(&args.of.hall, &reply, &id, "has the note")
        }
        Commission::Watch(args) => watch(args).await,
    }
}

/// The parameters of an operation on one commission.
fn commission_params(id: &str) -> CommissionParams {
    CommissionParams { commission_id: id.to_owned() }
}

/// Finds the commission with this id or unique prefix; `commission-` may be left out.
async fn find(hall: &Hall, wanted: &str) -> Result<CommissionView, Failure> {
    let mut filter = CommissionFilter::default();
    let mut all = Vec::new();
    loop {
        let page = hall.ask(hall.client.ask::<ListCommissions>(&filter).await)?.value;
        all.extend(page.commissions);
        if page.more == 0 || all.len() == filter.offset {
            break;
        }
        filter.offset = all.len();
    }
    pick(all, |one| one.id.as_str(), wanted, ("commission", &["commission-"]))
}

/// The hall, and the whole id of a commission.
async fn found(args: &CommissionArgs) -> Result<(Hall, String), Failure> {
    let hall = Hall::open(&args.hall)?;
    let id = find(&hall, &args.id).await?.id.to_string();
    Ok((hall, id))
}

async fn create(args: CommissionCreate) -> Result<(), Failure> {
    let prompt = args.prompt.as_deref().map_or_else(|| Ok(args.title.clone()), |prompt| given(prompt, "prompt"))?;
    let new = NewCommission {
        project_name: args.project,
        title: args.title,
        worker_name: args.worker,
        prompt,
        dependencies: args.depends,
        resource_overrides: args.overrides.overrides().unwrap_or_default(),
    };
    let hall = Hall::open(&args.hall)?;
    let created = hall.ask(hall.client.ask::<CreateCommission>(&new).await)?;
    let CommissionCreated { commission_id: id, blocked_by, cut, .. } = &created.value;
    if !args.hall.json {
        cut.iter().for_each(|cut| tell(one_line(cut, TEXT_CHARS)));
        blocked_by.iter().for_each(|blocker| tell(format_args!("{id} is blocked by {}", blocked(blocker))));
    }
    if !args.dispatch {
        return if args.hall.json { Ok(print_json(&created.json)?) } else { Ok(print(|out| writeln!(out, "{id}"))?) };
    }
    let answer = hall.ask(hall.client.ask::<DispatchCommission>(&commission_params(id.as_str())).await);
    // The new commission is printed even if its dispatch failed.
    match (args.hall.json, &answer) {
        (true, Ok(reply)) => {
            let mut made: Map<String, Value> = serde_json::from_str(created.json.get()).unwrap_or_default();
            made.insert("status".to_owned(), json!(reply.value.status));
            print_json(&made)?;
        }
        (true, Err(_)) => print_json(&created.json)?,
        (false, _) => print(|out| writeln!(out, "{id}"))?,
    }
    let reply = answer?;
    if !args.hall.json {
        tell(format_args!("{id} {}", dispatched(&reply.value)));
    }
    Ok(())
}

/// A missing dependency on one line.
fn blocked(Blocker { dependency, why }: &Blocker) -> String {
    one_line(&format!("{dependency}: {why}"), TEXT_CHARS)
}

/// The state of a commission in one or two words. A requested dispatch begins by itself.
fn state(one: &CommissionView) -> String {
    match (one.status, one.queued) {
        (CommissionStatus::Pending, true) => "queued".to_owned(),
        (status, true) => format!("{status}, queued"),
        (status, false) => status.to_string(),
    }
}

/// The result of a dispatch.
fn dispatched(dispatched: &CommissionDispatched) -> String {
    match dispatched.status {
        DispatchStatus::Queued => {
            let why = dispatched.reason.as_deref().unwrap_or("it waits for its turn");
            format!("is queued, and begins as soon as possible: {}", one_line(why, TEXT_CHARS))
        }
        DispatchStatus::Accepted => "is dispatched".to_owned(),
    }
}

async fn list(args: CommissionList) -> Result<(), Failure> {
    let filter = CommissionFilter {
        project_name: args.project,
        status: args.status.map(Named::Known),
        worker: args.worker,
        ..CommissionFilter::default()
    };
    let hall = Hall::open(&args.hall)?;
    let reply = hall.ask(hall.client.ask::<ListCommissions>(&filter).await)?;
    if args.hall.json {
        return Ok(print_json(&reply.json)?);
    }
    if reply.value.commissions.is_empty() {
        tell("no commissions");
    }
    if reply.value.more > 0 {
        tell(format_args!("{} more are not shown; filter by --project, --status or --worker", reply.value.more));
    }
    Ok(table(&reply.value.commissions, Timestamp::now()).print()?)
}

fn table(commissions: &[CommissionView], now: Timestamp) -> Table {
    let mut table =
        Table::new(["COMMISSION", "STATUS", "PROJECT", "WORKER", "BY", "AGE"].map(Column::Left)).rest("TITLE");
    for one in commissions {
        table.row(
            [
                Cell::text(one.id.as_str()),
                Cell::text(&state(one)).styled(style(one.status)),
                Cell::text(&one.project_name),
                Cell::text(&one.worker),
                Cell::text(author(one.created_by)),
                Cell::age(one.relevant_date.parse().ok(), now),
                Cell::text(title(one)),
            ],
            None,
        );
    }
    table
}

async fn show(args: CommissionArgs) -> Result<(), Failure> {
    let hall = Hall::open(&args.hall)?;
    let CommissionView { id, project_name, .. } = find(&hall, &args.id).await?;
    let wanted = ReadCommissionParams { commission_id: id.into(), project_name: Some(project_name) };
    let reply = hall.ask(hall.client.ask::<ReadCommission>(&wanted).await)?;
    if args.hall.json {
        return Ok(print_json(&reply.json)?);
    }
    print(|out| write_detail(out, &reply.value, Timestamp::now()))?;
    match reply.value.commission.result_summary.as_str() {
        "" => Ok(()),
        result => Ok(print_report(result)?),
    }
}

/// Writes a commission for people, up to the heading of its result.
fn write_detail(out: &mut dyn Write, detail: &CommissionDetail, now: Timestamp) -> io::Result<()> {
    let CommissionDetail { commission: one, timeline, .. } = detail;
    let mut row = |label: &str, value: &dyn Display| writeln!(out, "{LABEL}{label:<12}{LABEL:#} {value}");
    let line = |text: &str| one_line(text, usize::MAX);
    let style = style(one.status);
    row("commission", &one.id)?;
    row("title", &line(title(one)))?;
    row("status", &format_args!("{style}{}{style:#}", line(&state(one))))?;
    for blocker in &one.blocked_by {
        row("blocked by", &blocked(blocker))?;
    }
    row("project", &line(&one.project_name))?;
    row("worker", &format_args!("{} ({})", line(&one.worker), line(&one.worker_display_title)))?;
    if one.created_by == Author::Manager {
        row("made by", &"the manager")?;
    }
    for (label, values) in [("depends on", &one.dependencies), ("artifacts", &one.linked_artifacts)] {
        if !values.is_empty() {
            row(label, &line(&values.join(", ")))?;
        }
    }
    if let Some(overrides) = overridden(&one.resource_overrides) {
        row("overrides", &overrides)?;
    }
    if let Some(job) = &one.job {
        row("job", &line(job))?;
    }
    if !one.current_progress.is_empty() {
        row("progress", &line(&one.current_progress))?;
    }
    writeln!(out, "\n{STRONG}Prompt{STRONG:#}")?;
    harmless(&one.prompt).trim().lines().try_for_each(|line| writeln!(out, "  {line}"))?;
    writeln!(out, "\n{STRONG}Timeline{STRONG:#}")?;
    for TimelineEntry { timestamp, event, reason, .. } in timeline {
        let ago = age::ago(timestamp, now).map(|ago| format!(" ({ago})")).unwrap_or_default();
        let event = event.strip_prefix("status_").unwrap_or(event);
        writeln!(
            out,
            "  {LABEL}{}{ago}{LABEL:#}  {}: {}",
            one_line(timestamp, 40),
            one_line(event, 40),
            one_line(reason, TEXT_CHARS)
        )?;
    }
    if !one.result_summary.is_empty() {
        writeln!(out, "\n{STRONG}Result{STRONG:#}\n")?;
    }
    Ok(())
}

async fn watch(args: CommissionWatch) -> Result<(), Failure> {
    let mut stop = stop_signals()?;
    tokio::select! {
        ended = follow(&args) => ended,
        () = stop.next() => Ok(()),
    }
}

async fn follow(args: &CommissionWatch) -> Result<(), Failure> {
    let hall = Hall::open(&args.hall)?;
    let one = match &args.id {
        Some(id) => Some(find(&hall, id).await?.id),
        None => None,
    };
    let mut events = hall.client.events();
    hall.ask(events.connect().await)?;
    tell(format_args!("watching {}", one.as_ref().map_or("the hall", |id| id.as_str())));
    // Earlier events are not sent, so the commission may have ended without one.
    let (mut missed, mut is_lost) = (true, false);
    loop {
        if let (Some(id), true) = (&one, missed)
            && let Some(one) = ended(&hall, id).await?
        {
            tell_ended(args.hall.json, &one)?;
            return outcome(one.status).unwrap_or(Ok(()));
        }
        missed = false;
        match events.next().await {
            Ok(Reply { json, value }) => {
                is_lost = false;
                if one.as_ref().is_some_and(|id| value.commission() != Some(id)) {
                    continue;
                }
                tell_event(args.hall.json, &json, &value)?;
                if let HallEvent::CommissionStatus { status, .. } = value
                    && let Some(outcome) = outcome(status).filter(|_| one.is_some())
                {
                    return outcome;
                }
            }
            Err(error) if error.may_pass() => {
                if !is_lost {
                    tell(format_args!("{}; trying again", one_line(&error.to_string(), TEXT_CHARS)));
                }
                (missed, is_lost) = (true, true);
            }
            Err(error) => return hall.ask(Err(error)),
        }
    }
}

/// The state of a commission, if it has ended.
async fn ended(hall: &Hall, id: &CommissionId) -> Result<Option<CommissionView>, Failure> {
    let params = ReadCommissionParams { commission_id: id.to_string(), project_name: None };
    match hall.client.ask::<ReadCommission>(&params).await {
        Ok(reply) => Ok(Some(reply.value.commission).filter(|one| outcome(one.status).is_some())),
        // The next connection is followed by another check.
        Err(error) if error.may_pass() => Ok(None),
        Err(error) => hall.ask(Err(error)),
    }
}

/// The outcome of the command, if its commission has ended.
fn outcome(status: CommissionStatus) -> Option<Result<(), Failure>> {
    match status {
        CommissionStatus::Completed => Some(Ok(())),
        CommissionStatus::Failed => Some(Err(Failure::code(exit::JOB_FAILED))),
        CommissionStatus::Cancelled | CommissionStatus::Abandoned => Some(Err(Failure::code(exit::JOB_CANCELLED))),
        CommissionStatus::Pending
        | CommissionStatus::Blocked
        | CommissionStatus::Dispatched
        | CommissionStatus::InProgress => None,
    }
}

/// Prints an event: its JSON, or a line.
fn tell_event(as_json: bool, json: &impl Serialize, event: &HallEvent) -> io::Result<()> {
    if as_json { print_json(json) } else { print(|out| write_event(out, event)) }
}

/// Prints that a commission had ended before the subscription began: JSON, or a line.
fn tell_ended(as_json: bool, one: &CommissionView) -> io::Result<()> {
    let (id, status) = (&one.id, one.status);
    if as_json {
        return print_json(&json!({"type": "commission_status", "commissionId": id, "status": status, "reason": ""}));
    }
    let style = style(status);
    print(|out| writeln!(out, "{STRONG}{id}{STRONG:#}  {style}{status}{style:#}"))
}

/// Writes an event on a line; other kinds of events are ignored.
fn write_event(out: &mut dyn Write, event: &HallEvent) -> io::Result<()> {
    let Some(id) = event.commission() else { return Ok(()) };
    let text = |text: &str| one_line(text, TEXT_CHARS);
    write!(out, "{STRONG}{id}{STRONG:#}  ")?;
    match event {
        HallEvent::CommissionStatus { status, reason, .. } => {
            let style = style(*status);
            write!(out, "{style}{status}{style:#}")?;
            if reason.is_empty() { writeln!(out) } else { writeln!(out, ": {}", text(reason)) }
        }
        HallEvent::CommissionProgress { summary, .. } => writeln!(out, "{}", text(summary)),
        HallEvent::CommissionResult { summary, .. } => writeln!(out, "result: {}", text(summary)),
        HallEvent::CommissionArtifact { artifact_path, .. } => writeln!(out, "wrote {}", text(artifact_path)),
        HallEvent::CommissionManagerNote { content, .. } => writeln!(out, "note: {}", text(content)),
        HallEvent::CommissionQueued { reason, .. } => writeln!(out, "waits: {}", text(reason)),
        HallEvent::CommissionDequeued { reason, .. } => writeln!(out, "waits no longer: {}", text(reason)),
        HallEvent::MeetingStarted { .. }
        | HallEvent::MeetingEnded { .. }
        | HallEvent::MeetingRequested { .. }
        | HallEvent::Unknown => writeln!(out),
    }
}

/// The title of a commission.
fn title(one: &CommissionView) -> &str {
    label(&one.title)
}

/// The author of a commission or a meeting in one word.
pub(crate) fn author(author: Author) -> &'static str {
    match author {
        Author::User => "user",
        Author::Manager => "manager",
        Author::Worker => "worker",
    }
}

fn style(status: CommissionStatus) -> Style {
    match status {
        CommissionStatus::Dispatched | CommissionStatus::InProgress => AnsiColor::Cyan.on_default(),
        CommissionStatus::Completed => AnsiColor::Green.on_default(),
        CommissionStatus::Blocked => AnsiColor::Yellow.on_default(),
        CommissionStatus::Failed => BAD,
        CommissionStatus::Cancelled | CommissionStatus::Abandoned => LABEL,
        CommissionStatus::Pending => Style::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut out).unwrap();
        String::from_utf8(anstream::adapter::strip_bytes(&out).into_vec()).unwrap()
    }

    #[test]
    fn an_event_is_one_line_without_control_characters() {
        let line = |json: &str| written(|out| write_event(out, &serde_json::from_str(json).unwrap()));
        let status = r#"{"type":"commission_status","commissionId":"c","status":"failed","oldStatus":"in_progress",
            "from":"in_progress","to":"failed","projectName":"p","reason":"a\n\u001b[2Jb"}"#;
        assert_eq!(line(status), "c  failed: a \u{fffd}[2Jb\n");
        let short = r#"{"type":"commission_status","commissionId":"c","status":"completed","oldStatus":"in_progress","from":"in_progress","to":"completed","projectName":"p"}"#;
        assert_eq!(line(short), "c  completed\n");
        let queued = r#"{"type":"commission_queued","commissionId":"c","reason":"full"}"#;
        assert_eq!(line(queued), "c  waits: full\n");
        assert_eq!(line(r#"{"type":"meeting_started","meetingId":"m","worker":"w","projectName":"p"}"#), "");
    }
}
