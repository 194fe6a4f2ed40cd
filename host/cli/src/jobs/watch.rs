//! `guild watch`: prints the events of a host.

use std::io::{self, Write};

use guild_client::{
    Event, EventDetail, Events, Filter, JobId, JobStatus, Kind, MemberKey, ReceivedEvent, StatusView, WorkerHandle,
};
use serde::Serialize;

use super::{find::Jobs, worker::stop_signals};
use crate::{
    args::jobs::Watch,
    client::Endpoint,
    failure::{Failure, exit},
    output::{BAD, LABEL, STRONG, one_line, print, print_json, status_style, tell},
};

/// The maximum length of a text on a line.
const TEXT_CHARS: usize = 200;

/// `guild watch`.
pub(crate) async fn watch(args: Watch) -> Result<(), Failure> {
    let mut stop = stop_signals()?;
    tokio::select! {
        ended = find_and_follow(&args) => ended,
        () = stop.next() => Ok(()),
    }
}

/// Checks that the member or job exists, and follows its events.
async fn find_and_follow(args: &Watch) -> Result<(), Failure> {
    let jobs = Jobs::of_host(&args.endpoint).await?;
    let Some(job) = &args.job else { return follow(&args.endpoint, args.endpoint.member.as_ref(), None).await };
    let found = jobs.find(job).await?;
    let worker = jobs.worker_of(&found, "")?;
    let id: JobId = found.id.parse().map_err(|e| Failure::error(format!("{e}")))?;
    follow(&args.endpoint, jobs.key_of(&found).as_ref(), Some((&id, &worker))).await
}

async fn follow(
    endpoint: &Endpoint,
    member: Option<&MemberKey>,
    job: Option<(&JobId, &WorkerHandle)>,
) -> Result<(), Failure> {
    let filter = Filter {
        members: member.into_iter().cloned().collect(),
        jobs: job.into_iter().map(|(job, _)| job.clone()).collect(),
        ..Filter::default()
    };
    let url = endpoint.url();
    let mut events = Events::new(&url, &filter, &endpoint.access.options(&url)?)?;
    events.connect().await?;
    tell(format_args!("watching {}", one_line(&url, TEXT_CHARS)));
    // Earlier events are not sent, so the job may have ended without one.
    let mut missed = true;
    let mut is_lost = false;
    loop {
        if let (Some((job, worker)), true) = (job, missed)
            && let Some(event) = ended(worker, member, job).await?
        {
            show(endpoint.json, &event, &event)?;
            return outcome(&event.news);
        }
        missed = false;
        match events.next().await {
            Ok(ReceivedEvent { event, json, .. }) => {
                is_lost = false;
                show(endpoint.json, &json, &event)?;
                match event.news.kind() {
                    Kind::JobEnded | Kind::JobDeleted if job.is_some() => return outcome(&event.news),
                    Kind::Gap => missed = true,
                    _ => {}
                }
            }
            Err(error) if error.may_pass() => {
                if !is_lost {
                    tell(format_args!("{}; trying again", one_line(&error.to_string(), TEXT_CHARS)));
                }
                is_lost = true;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// The event of a job's end, if it has ended.
async fn ended(worker: &WorkerHandle, member: Option<&MemberKey>, job: &JobId) -> Result<Option<Event>, Failure> {
    let status = match worker.status(job.as_str()).await {
        Ok(reply) => reply.value,
        // The next event reports the end.
        Err(error) if error.may_pass() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let StatusView { job_id, status, error, completed_at, started_at, .. } = status;
    let event = Event {
        time: completed_at.unwrap_or(started_at),
        member: member.cloned(),
        job_id: Some(job_id),
        news: EventDetail::JobEnded { status, error },
        truncated: false,
    };
    Ok((status != JobStatus::Running).then_some(event))
}

/// Prints an event: its JSON, or a line.
fn show(as_json: bool, json: &impl Serialize, event: &Event) -> io::Result<()> {
    if as_json { print_json(json) } else { print(|out| write_event(out, event)) }
}

/// The outcome of the command after the last event of its job.
fn outcome(news: &EventDetail) -> Result<(), Failure> {
    match news {
        EventDetail::JobEnded { status: JobStatus::Failed, .. } => Err(Failure::code(exit::JOB_FAILED)),
        EventDetail::JobEnded { status: JobStatus::Cancelled, .. } => Err(Failure::code(exit::JOB_CANCELLED)),
        EventDetail::JobDeleted => Err(Failure::error("the job was deleted")),
        _ => Ok(()),
    }
}

/// Writes an event on a line: its time, member, job and details.
fn write_event(out: &mut dyn Write, event: &Event) -> io::Result<()> {
    write!(out, "{LABEL}{}{LABEL:#}", one_line(&event.time, 40))?;
    if let Some(member) = &event.member {
        write!(out, "  {STRONG}{member}{STRONG:#}")?;
    }
    if let Some(job) = &event.job_id {
        write!(out, "  {job}")?;
    }
    let text = |text: &str| {
        let text = one_line(text, TEXT_CHARS);
        if event.truncated && !text.ends_with('…') { format!("{text} …") } else { text }
    };
    match &event.news {
        EventDetail::JobStarted { description } => writeln!(out, "  started: {}", text(description)),
        EventDetail::JobResumed { description } => writeln!(out, "  resumed: {}", text(description)),
        EventDetail::JobSummary { summary } => {
            writeln!(out, "  {}", text(summary.as_deref().unwrap_or("(no summary)")))
        }
        EventDetail::JobQuestion { question } => writeln!(out, "  {STRONG}asks{STRONG:#}: {}", text(question)),
        EventDetail::JobDecision { decision } => {
            writeln!(out, "  decided: {}: {}", text(&decision.question), text(&decision.decision))
        }
        EventDetail::JobEnded { status, error } => {
            let style = status_style(*status);
            write!(out, "  {style}{status}{style:#}")?;
            // A failed job that was cancelled keeps its error.
            match error {
                Some(error) if *status == JobStatus::Failed => writeln!(out, ": {BAD}{}{BAD:#}", text(error)),
                _ => writeln!(out),
            }
        }
        EventDetail::JobDeleted => writeln!(out, "  deleted"),
        EventDetail::MemberAdded => writeln!(out, "  is served from now on"),
        EventDetail::MemberChanged => writeln!(out, "  was changed"),
        EventDetail::MemberRemoved => writeln!(out, "  is no longer served"),
        EventDetail::MemberError { error } => {
            writeln!(out, "  {BAD}the contents of its directory cannot be served{BAD:#}: {}", text(error))
        }
        EventDetail::Gap { missed: Some(missed) } => {
            writeln!(out, "  {BAD}up to {missed} events are missing here{BAD:#}")
        }
        EventDetail::Gap { missed: None } => {
            writeln!(out, "  {BAD}the host was started again; earlier events are missing here{BAD:#}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_without_control_characters() {
        let line = |json: &str| {
            let mut out = Vec::new();
            write_event(&mut out, &serde_json::from_str(json).unwrap()).unwrap();
            String::from_utf8(anstream::adapter::strip_bytes(&out).into_vec()).unwrap()
        };
        let of = r#""time":"2026-01-01T00:00:00Z","member":"m","jobId":"j""#;
        let at = "2026-01-01T00:00:00Z  m  j  ";
        let question = line(&format!(r#"{{{of},"kind":"job-question","question":"a\n\u001b[2Jb","truncated":true}}"#));
        assert!(question.starts_with(&format!("{at}asks: a")) && question.ends_with("b …\n"), "{question}");
        assert!(!question.contains('\u{1b}') && question.matches('\n').count() == 1, "{question}");
        let failed = line(&format!(r#"{{{of},"kind":"job-ended","status":"failed","error":"why"}}"#));
        assert_eq!(failed, format!("{at}failed: why\n"));
        let gap = line(r#"{"time":"2026-01-01T00:00:00Z","kind":"gap","missed":3}"#);
        assert_eq!(gap, "2026-01-01T00:00:00Z  up to 3 events are missing here\n");
    }
}
