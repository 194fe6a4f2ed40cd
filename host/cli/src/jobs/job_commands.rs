//! `guild dispatch`, `list`, `status`, `result`, `cancel`, `delete` and `resume`: jobs of a running host, or in files.

use std::io;

use guild_client::{Detail, DispatchParams, JobStatus, ListParams, Reply, StatusView};
use guild_contract::rpc::CancelView;
use jiff::Timestamp;

use super::{
    find::{self, Jobs, Row, Status},
    status_text::write_status,
    worker::{wait_for, work},
};
use crate::{
    args::jobs::{Dispatch, Job, List},
    failure::{Failure, exit},
    output::{
        BAD, harmless,
        markdown::print_report,
        one_line, print, print_json, status_style,
        table::{Cell, Column, Table},
        tell, tell_error,
    },
};

/// `guild dispatch`.
pub(crate) async fn dispatch(args: Dispatch) -> Result<(), Failure> {
    let agent = args.agent.map(|agent| agent.to_string());
    let params = DispatchParams { agent, ..work(&args.task, args.work)? };
    let worker = find::worker(&args.endpoint).await?;
    if args.wait {
        return wait_for(worker, params, args.endpoint.json).await;
    }
    let reply = worker.dispatch(&params).await?;
    show(args.endpoint.json, &reply, |dispatched| print(|out| writeln!(out, "{}", dispatched.job_id)))
}

/// `guild list`.
pub(crate) async fn list(args: List) -> Result<(), Failure> {
    let json = args.endpoint.json;
    // The table always shows the description; the JSON has it only on request.
    let detailed = args.detailed || !json;
    let params = ListParams { detail: detailed.then_some(Detail::Detailed), filter: args.filter };
    let jobs = Jobs::open(&args.endpoint, &args.local).await?;
    let all = jobs.list(&params).await?;
    show(json, &all.rows, |rows| {
        if rows.is_empty() {
            tell("no jobs");
            return Ok(());
        }
        table(rows, args.detailed).print()
    })?;
    all.left_out.iter().for_each(tell_error);
    if all.left_out.is_empty() { Ok(()) } else { Err(Failure::code(exit::ERROR)) }
}

/// The table of `guild list`.
fn table(rows: &[Row], with_summary: bool) -> Table {
    let mut table = Table::new(["JOB", "STATUS", "MEMBER", "AGE"].map(Column::Left)).rest("DESCRIPTION");
    let now = Timestamp::now();
    for Row { member, listed, interrupted, made } in rows {
        let (word, style) = match interrupted {
            true => ("interrupted", BAD),
            false => (listed.status.as_str(), status_style(listed.status)),
        };
        let details = listed.details.as_ref();
        let cells = [
            Cell::text(listed.job_id.as_str()),
            Cell::text(word).styled(style),
            Cell::text(member.as_deref().unwrap_or_default()),
            Cell::age(*made, now),
            Cell::text(details.map_or("", |details| &details.description)),
        ];
        let summary = details.and_then(|details| details.summary.as_deref()).filter(|_| with_summary);
        table.row(cells, summary.map(|summary| harmless(summary).trim().to_owned()));
    }
    table
}

/// `guild status`.
pub(crate) async fn status(args: Job) -> Result<(), Failure> {
    let jobs = Jobs::open(&args.endpoint, &args.local).await?;
    let found = jobs.find(&args.id).await?;
    let Status { member, reply, interrupted } = jobs.status(&found).await?;
    show(args.endpoint.json, &reply, |view| {
        print(|out| write_status(out, view, member.as_deref(), interrupted, Timestamp::now()))
    })
}

/// `guild result`.
pub(crate) async fn result(args: Job) -> Result<(), Failure> {
    let jobs = Jobs::open(&args.endpoint, &args.local).await?;
    let found = jobs.find(&args.id).await?;
    show(args.endpoint.json, &jobs.result(&found).await?, |result| {
        print_report(&result.output)?;
        for artifact in result.artifacts.iter().flatten() {
            tell(format_args!("artifact: {}", one_line(artifact, usize::MAX)));
        }
        Ok(())
    })
}

/// `guild cancel`.
pub(crate) async fn cancel(args: Job) -> Result<(), Failure> {
    let jobs = Jobs::open(&args.endpoint, &args.local).await?;
    let found = jobs.find_to_change(&args.id).await?;
    let offline = match jobs.is_served(&found) {
        true => None,
        false => Some(jobs.status(&found).await?.reply.value),
    };
    let reply = match offline {
        // The job has ended, and a host would answer the same.
        Some(StatusView { job_id, status: status @ (JobStatus::Completed | JobStatus::Cancelled), .. }) => {
            find::reply(CancelView { job_id, status })?
        }
        _ => jobs.worker_of(&found, ", which resumes the job or ends it as failed")?.cancel(&found.id).await?,
    };
    show(args.endpoint.json, &reply, |view| print(|out| writeln!(out, "{} is {}", view.job_id, view.status)))
}

/// `guild delete`.
pub(crate) async fn delete(args: Job) -> Result<(), Failure> {
    let jobs = Jobs::open(&args.endpoint, &args.local).await?;
    let found = jobs.find_to_change(&args.id).await?;
    let hint = ", or remove ended jobs by their age with `guild prune`";
    let reply = jobs.worker_of(&found, hint)?.delete(&found.id).await?;
    show(args.endpoint.json, &reply, |deleted| print(|out| writeln!(out, "{} is deleted", deleted.job_id)))
}

/// `guild resume`.
pub(crate) async fn resume(args: Job) -> Result<(), Failure> {
    let jobs = Jobs::open(&args.endpoint, &args.local).await?;
    let found = jobs.find_to_change(&args.id).await?;
    let how = if jobs.is_served(&found) {
        "is resumed"
    } else {
        "is released; the next host that serves its member resumes it"
    };
    show(args.endpoint.json, &jobs.let_on(&found).await?, |resumed| {
        print(|out| writeln!(out, "{} {how}", resumed.job_id))
    })
}

/// Prints a reply: its JSON unchanged, or its value with `text`.
fn show<T>(json: bool, reply: &Reply<T>, text: impl FnOnce(&T) -> io::Result<()>) -> Result<(), Failure> {
    Ok(if json { print_json(&reply.json) } else { text(&reply.value) }?)
}
