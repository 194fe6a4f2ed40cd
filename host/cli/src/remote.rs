//! The commands that are about jobs: those of a running host, or those in the files where none runs.

use std::io;

use guild_client::{Detail, DispatchParams, JobStatus, ListParams, StatusView};
use guild_contract::rpc::CancelView;
use jiff::Timestamp;
use serde_json::json;

use crate::{
    args::{Dispatch, Job, List, WorkArgs},
    failure::{Failure, exit},
    jobs::{self, FileStatus, Jobs, OfMember, Row, Status},
    markdown::print_report,
    output::{BAD, harmless, one_line, print, print_json, status_style, tell, tell_error},
    status::write_status,
    table::{Cell, Column, Table},
    worker::{wait_for, work},
};

/// `guild dispatch`.
pub(crate) async fn dispatch(args: Dispatch) -> Result<(), Failure> {
    let agent = args.agent.map(|agent| agent.to_string());
    let asked = WorkArgs { input: args.work.input.or(args.config), ..args.work };
    let params = DispatchParams { agent, ..work(&args.task, asked)? };
    let worker = jobs::worker(&args.endpoint).await?;
    if args.wait {
        return wait_for(worker, params, args.endpoint.json).await;
    }
    let reply = worker.dispatch(&params).await?;
    if args.endpoint.json {
        print_json(&reply.json)?;
    } else {
        print(|out| writeln!(out, "{}", reply.value.job_id))?;
    }
    Ok(())
}

/// `guild list`.
pub(crate) async fn list(args: List) -> Result<(), Failure> {
    let json = args.endpoint.json;
    // People are always shown the description; JSON is what was asked for.
    let detailed = args.detailed || !json;
    let params = ListParams { detail: detailed.then_some(Detail::Detailed), filter: args.filter };
    let jobs = Jobs::open(&args.endpoint, &args.local).await?;
    let all = jobs.list(&params).await?;
    if let Some(json) = all.json.as_ref().filter(|_| json) {
        print_json(json)?;
    } else if json {
        let is_of_one = jobs.is_of_one();
        let of_member = |row: &Row| {
            serde_json::to_value(OfMember {
                member: row.member.as_deref().filter(|_| !is_of_one),
                listed: &row.listed,
                interrupted: row.interrupted,
            })
        };
        let rows: Result<Vec<_>, _> = all.rows.iter().map(of_member).collect();
        print_json(&json!({"jobs": rows.map_err(io::Error::from)?}))?;
    } else if all.rows.is_empty() {
        tell("no jobs");
    } else {
        table(&all.rows, args.detailed).print()?;
    }
    all.left_out.iter().for_each(tell_error);
    if all.left_out.is_empty() { Ok(()) } else { Err(Failure::code(exit::ERROR)) }
}

/// Jobs, as `guild list` shows them.
fn table(rows: &[Row], with_summary: bool) -> Table {
    let head = ["JOB", "STATUS", "MEMBER", "AGE"].map(Column::Left);
    let mut table = Table::new(head.into_iter().chain([Column::Rest("DESCRIPTION")]).collect::<Vec<_>>());
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
    let Status { member, view, json, interrupted } = jobs.status(&found).await?;
    match json.filter(|_| args.endpoint.json) {
        Some(json) => print_json(&json)?,
        None if args.endpoint.json => print_json(&FileStatus { view: &view, interrupted })?,
        None => print(|out| write_status(out, &view, (member.as_deref(), interrupted), Timestamp::now()))?,
    }
    Ok(())
}

/// `guild result`.
pub(crate) async fn result(args: Job) -> Result<(), Failure> {
    let jobs = Jobs::open(&args.endpoint, &args.local).await?;
    let found = jobs.find(&args.id).await?;
    let (result, json) = jobs.result(&found).await?;
    match json.filter(|_| args.endpoint.json) {
        Some(json) => print_json(&json)?,
        None if args.endpoint.json => print_json(&result)?,
        None => {
            print_report(&result.output)?;
            for artifact in result.artifacts.iter().flatten() {
                tell(format_args!("artifact: {}", one_line(artifact, usize::MAX)));
            }
        }
    }
    Ok(())
}

/// `guild cancel`.
pub(crate) async fn cancel(args: Job) -> Result<(), Failure> {
    let jobs = Jobs::open(&args.endpoint, &args.local).await?;
    let found = jobs.find_to_change(&args.id).await?;
    if !jobs.is_served(&found) {
        let StatusView { job_id, status, .. } = jobs.status(&found).await?.view;
        // There is nothing to cancel, as a host would answer.
        if matches!(status, JobStatus::Completed | JobStatus::Cancelled) {
            return cancelled(args.endpoint.json, &CancelView { job_id, status });
        }
    }
    let reply = jobs.worker_of(&found, ", which goes on with the job or ends it as failed")?.cancel(&found.id).await?;
    match args.endpoint.json {
        true => Ok(print_json(&reply.json)?),
        false => cancelled(false, &reply.value),
    }
}

/// Shows what `guild cancel` was answered.
fn cancelled(json: bool, view: &CancelView) -> Result<(), Failure> {
    match json {
        true => print_json(view)?,
        false => print(|out| writeln!(out, "{} is {}", view.job_id, view.status))?,
    }
    Ok(())
}

/// `guild delete`.
pub(crate) async fn delete(args: Job) -> Result<(), Failure> {
    let jobs = Jobs::open(&args.endpoint, &args.local).await?;
    let found = jobs.find_to_change(&args.id).await?;
    let besides = ", or remove ended jobs by their age with `guild prune`";
    let reply = jobs.worker_of(&found, besides)?.delete(&found.id).await?;
    if args.endpoint.json {
        print_json(&reply.json)?;
    } else {
        print(|out| writeln!(out, "{} is deleted", reply.value.job_id))?;
    }
    Ok(())
}
