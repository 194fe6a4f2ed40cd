//! What the commands print: results on stdout, and everything else on stderr.
//!
//! A reader that closes stdout early (`guild list | head -1`) ends a command quietly. Texts that a worker wrote
//! never reach a terminal with their control characters.

use std::{
    borrow::Cow,
    fmt::Display,
    io::{self, Write},
    sync::atomic::{AtomicBool, Ordering},
};

use anstream::adapter::strip_str;
use anstyle::{AnsiColor, Style};
pub(crate) use guild_contract::text::{harmless, is_steering, one_line, visible};
use guild_contract::{JobStatus, JobUsage, Usage, rpc::StatusView};
use jiff::Timestamp;
use serde::Serialize;
use tracing::Level;

use crate::{age, jobs, log, markdown, table};

pub(crate) const LABEL: Style = Style::new().dimmed();
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
pub(crate) const STRONG: Style = Style::new().bold();
/// The largest report that is rendered.
const RENDERED_BYTES: usize = 1024 * 1024;
/// How much of the names of models is shown.
pub(crate) const MODEL_CHARS: usize = 80;

/// Runs `write` on a stdout that drops colours where they are not wanted (a pipe, `NO_COLOR`).
pub(crate) fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = anstream::AutoStream::auto(io::stdout().lock());
    write(&mut out)?;
    out.flush()
}

/// Prints JSON on one line, byte for byte where it is a host's own.
pub(crate) fn print_json(value: &impl Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, value)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Prints a worker's report: rendered on a terminal that shows styles, as far as it is no larger than this host renders;
/// without control characters on any other; as it is into a file or a pipe.
pub(crate) fn print_report(report: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let shows_styles = anstream::AutoStream::choice(&out) != anstream::ColorChoice::Never;
    match table::stdout_width() {
        Some(width) if shows_styles && report.len() <= RENDERED_BYTES => markdown::write(&mut out, report, width)?,
        width => write_whole(&mut out, report, width.is_some())?,
    }
    out.flush()
}

/// Prints a text of a component: without control characters on a terminal; as it is into a file or a pipe.
pub(crate) fn print_text(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    write_whole(&mut out, text, table::stdout_width().is_some())?;
    out.flush()
}

fn write_whole(out: &mut dyn Write, text: &str, is_terminal: bool) -> io::Result<()> {
    let text = if is_terminal { harmless(text) } else { Cow::Borrowed(text) };
    out.write_all(text.as_bytes())?;
    if text.ends_with('\n') { Ok(()) } else { out.write_all(b"\n") }
}

/// Whether what is told is written as lines of a log in JSON.
static AS_JSON: AtomicBool = AtomicBool::new(false);

/// From now on, whatever this process writes to stderr is JSON: one object a line.
pub(crate) fn tell_as_json() {
    AS_JSON.store(true, Ordering::Relaxed);
    std::panic::set_hook(Box::new(|panic| tell_at(Level::ERROR, panic)));
}

fn tell_at(level: Level, text: impl Display) {
    strip_str(&text.to_string()).to_string().lines().for_each(|line| log::tell(level, line));
}

/// Tells the person something that is not the result. A closed stderr is nobody's concern.
pub(crate) fn tell(text: impl Display) {
    if AS_JSON.load(Ordering::Relaxed) {
        return tell_at(Level::INFO, text);
    }
    let _ = writeln!(anstream::AutoStream::auto(io::stderr().lock()), "{text}");
}

/// Tells why the command failed, on one line. The text may be a plugin's own.
pub(crate) fn tell_error(text: impl Display) {
    if AS_JSON.load(Ordering::Relaxed) {
        return tell_at(Level::ERROR, text);
    }
    let strong = BAD.bold();
    tell(format_args!("{strong}error:{strong:#} {}", visible(text)));
}

/// `guild status` for people: of which member the job is, where that is known, and whether it is recorded as running where
/// nobody runs it.
pub(crate) fn write_status(
    out: &mut dyn Write,
    job: &StatusView,
    (member, interrupted): (Option<&str>, bool),
    now: Timestamp,
) -> io::Result<()> {
    let style = status_style(job.status);
    let queued = job.usage.as_ref().is_some_and(|used| used.queued);
    let queued = if queued { "  (queued: it waits for its place)" } else { "" };
    let mut row = |label: &str, value: &dyn Display| writeln!(out, "{LABEL}{label:<12}{LABEL:#} {value}");
    row("job", &job.job_id)?;
    if let Some(member) = member {
        row("member", &one_line(member, usize::MAX))?;
    }
    match interrupted {
        true => row("status", &format_args!("{BAD}{}{BAD:#} ({})", jobs::INTERRUPTED, jobs::GOES_ON))?,
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
        write_questions(out, questions)?;
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

/// What only a person can answer, one a line.
pub(crate) fn write_questions(out: &mut dyn Write, questions: &[String]) -> io::Result<()> {
    questions.iter().try_for_each(|question| writeln!(out, "  - {}", one_line(question, usize::MAX)))
}

/// A runtime, and the models that answered.
fn agent(used: &JobUsage) -> String {
    let models = if used.models.is_empty() { String::new() } else { format!(" ({})", used.models.join(", ")) };
    one_line(&format!("{}{models}", used.agent), MODEL_CHARS)
}

/// A number with a comma after each three digits.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let ends_group = |at: usize| at > 0 && (digits.len() - at).is_multiple_of(3);
    let grouped =
        digits.chars().enumerate().flat_map(|(at, digit)| ends_group(at).then_some(',').into_iter().chain([digit]));
    grouped.collect()
}

/// Turns; tokens in, those of them that were cached, and out.
pub(crate) fn turns_and_tokens(usage: &Usage) -> String {
    let turns = if usage.turns == 1 { "1 turn".to_owned() } else { format!("{} turns", count(usage.turns.into())) };
    format!("{turns}, {}", tokens(usage))
}

/// Tokens in, those of them that were cached, and out.
pub(crate) fn tokens(usage: &Usage) -> String {
    let [sent, cached, received] = [usage.input_tokens, usage.cached_tokens, usage.output_tokens].map(count);
    format!("{sent} tokens in ({cached} cached), {received} out")
}

/// What it cost in US dollars, as far as that is known.
pub(crate) fn cost(usage: &Usage) -> String {
    match (usage.cost_usd, usage.known_cost()) {
        (Some(usd), _) => format!("{usd:.4} USD"),
        (None, known) if known > 0.0 => format!("at least {known:.4} USD"),
        (None, _) => "unknown cost".to_owned(),
    }
}

fn indented(out: &mut dyn Write, text: &str) -> io::Result<()> {
    harmless(text).trim().lines().try_for_each(|line| writeln!(out, "  {line}"))
}

pub(crate) fn status_style(status: JobStatus) -> Style {
    match status {
        JobStatus::Running => AnsiColor::Cyan.on_default(),
        JobStatus::Completed => AnsiColor::Green.on_default(),
        JobStatus::Failed => BAD,
        JobStatus::Cancelled => LABEL,
    }
}

/// For a word that says whether something is well.
pub(crate) fn state_style(is_bad: bool) -> Style {
    if is_bad { BAD } else { AnsiColor::Green.on_default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_shows_what_there_is() {
        let status = |json: &str| {
            let mut out = Vec::new();
            let now = "2026-01-01T01:00:00Z".parse().unwrap();
            write_status(&mut out, &serde_json::from_str(json).unwrap(), (Some("m"), false), now).unwrap();
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
