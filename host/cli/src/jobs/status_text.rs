//! Prints a job's status in readable form.

use std::{
    fmt::Display,
    io::{self, Write},
};

use guild_contract::{JobUsage, rpc::StatusView};
use jiff::Timestamp;

use crate::{
    age,
    output::{self, BAD, LABEL, MODEL_CHARS, STRONG, cost, harmless, one_line, status_style, turns_and_tokens},
};

/// The state of a job that is recorded as running while no process runs it.
pub(crate) const INTERRUPTED: &str = "interrupted; no process runs it";
/// The continuation of an interrupted job.
pub(crate) const NEXT_HOST_RESUMES: &str = "the next host that serves its member resumes it, or ends it as failed";

/// Writes the output of `guild status`, with the job's member, if known, and whether the job is interrupted.
pub(crate) fn write_status(
    out: &mut dyn Write,
    job: &StatusView,
    member: Option<&str>,
    interrupted: bool,
    now: Timestamp,
) -> io::Result<()> {
    let style = status_style(job.status);
    let queued = job.usage.as_ref().is_some_and(|used| used.queued);
    let queued = if queued { "  (queued: it waits for a free slot)" } else { "" };
    let mut row = |label: &str, value: &dyn Display| writeln!(out, "{LABEL}{label:<12}{LABEL:#} {value}");
    row("job", &job.job_id)?;
    if let Some(member) = member {
        row("member", &one_line(member, usize::MAX))?;
    }
    match interrupted {
        _ if job.held_back => {
            row("status", &format_args!("{style}{}{style:#}  (held back: see the summary)", job.status))?
        }
        true => row("status", &format_args!("{BAD}{}{BAD:#} ({})", INTERRUPTED, NEXT_HOST_RESUMES))?,
        false => row("status", &format_args!("{style}{}{style:#}{queued}", job.status))?,
    }
    row("description", &one_line(&job.description, usize::MAX))?;
    for (label, time) in [("started", Some(&job.started_at)), ("ended", job.completed_at.as_ref())] {
        if let Some(time) = time {
            let ago = age::ago(time, now).map(|ago| format!("  ({ago})")).unwrap_or_default();
            row(label, &format_args!("{}{ago}", one_line(time, 40)))?;
        }
    }
    if let Some(used) = &job.usage {
        row("agent", &agent(used))?;
        row("used", &turns_and_tokens(&used.usage))?;
        row("cost", &cost(&used.usage))?;
        row("wall time", &age::span(used.wall_seconds))?;
    }
    if let Some(error) = &job.error {
        row("error", &format_args!("{BAD}{}{BAD:#}", one_line(error, usize::MAX)))?;
    }
    if let Some(summary) = &job.summary {
        writeln!(out, "\n{STRONG}Summary{STRONG:#}")?;
        indented(out, summary)?;
    }
    if let Some(questions) = &job.questions {
        writeln!(out, "\n{STRONG}Questions{STRONG:#}")?;
        out.write_all(output::questions(questions).as_bytes())?;
    }
    if let Some(decisions) = &job.decisions {
        writeln!(out, "\n{STRONG}Decisions{STRONG:#}")?;
        for made in decisions {
            writeln!(out, "  - {}", one_line(&made.question, usize::MAX))?;
            writeln!(out, "    {}", one_line(&made.decision, usize::MAX))?;
            writeln!(out, "    {LABEL}because{LABEL:#} {}", one_line(&made.reasoning, usize::MAX))?;
        }
    }
    Ok(())
}

/// The runtime, and the models that answered.
fn agent(used: &JobUsage) -> String {
    let models = if used.models.is_empty() { String::new() } else { format!(" ({})", used.models.join(", ")) };
    one_line(&format!("{}{models}", used.agent), MODEL_CHARS)
}

fn indented(out: &mut dyn Write, text: &str) -> io::Result<()> {
    harmless(text).trim().lines().try_for_each(|line| writeln!(out, "  {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_shows_what_there_is() {
        let status = |json: &str| {
            let mut out = Vec::new();
            let now = "2026-01-01T01:00:00Z".parse().unwrap();
            write_status(&mut out, &serde_json::from_str(json).unwrap(), Some("m"), false, now).unwrap();
            anstream::adapter::strip_bytes(&out).into_vec().try_into().unwrap()
        };
        let failed: String = status(
            r#"{"jobId":"j","status":"failed","description":"d","summary":null,"questions":["who?"],"decisions":
            [{"question":"q","decision":"d","reasoning":"r"}],"error":"out of turns",
            "startedAt":"2026-01-01T00:00:00Z","completedAt":"2026-01-01T00:30:00Z"}"#,
        );
        assert_eq!(
            failed,
            "job          j\nmember       m\nstatus       failed\ndescription  d\nstarted      2026-01-01T00:00:00Z  (1 h ago)\n\
             ended        2026-01-01T00:30:00Z  (30 min ago)\nerror        out of turns\n\n\
             Questions\n  - who?\n\nDecisions\n  - q\n    d\n    because r\n"
        );
    }
}
