//! Prints results to stdout, and everything else to stderr.
//!
//! A reader that closes stdout early (`guild list | head -1`) ends a command without an error. Control characters in
//! texts of workers never reach a terminal.

pub(crate) mod html;
pub(crate) mod log;
pub(crate) mod markdown;
pub(crate) mod progress;
pub(crate) mod table;

use std::{
    borrow::Cow,
    fmt::Display,
    io::{self, IsTerminal as _, Write},
    sync::atomic::{AtomicBool, Ordering},
};

use anstream::adapter::strip_str;
use anstyle::{AnsiColor, Style};
use guild_contract::{JobStatus, Usage};
use serde::Serialize;
use tracing::Level;

pub(crate) use guild_contract::text::{escaped_json, harmless, one_line, visible};

pub(crate) const LABEL: Style = Style::new().dimmed();
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
pub(crate) const STRONG: Style = Style::new().bold();
/// The width of a terminal that does not report it.
const DEFAULT_WIDTH: usize = 80;
/// The maximum length of a list of models.
pub(crate) const MODEL_CHARS: usize = 80;

/// Runs `write` on a stdout that strips styles in a pipe, or with `NO_COLOR`.
pub(crate) fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = anstream::AutoStream::auto(io::stdout().lock());
    write(&mut out)?;
    out.flush()
}

/// Prints JSON on one line, formatted by [`escaped_json`].
pub(crate) fn print_json(value: &impl Serialize) -> io::Result<()> {
    print_json_text(&serde_json::to_string(value)?)
}

/// Prints a line of JSON, formatted by [`escaped_json`].
pub(crate) fn print_json_text(json: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(escaped_json(json).as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// The width of stdout in characters; `None` if it is not a terminal.
pub(crate) fn stdout_width() -> Option<usize> {
    let out = io::stdout();
    let width = || terminal_size::terminal_size_of(&out).map_or(DEFAULT_WIDTH, |(width, _)| width.0.into());
    out.is_terminal().then(width)
}

/// The width of stderr in characters.
pub(crate) fn stderr_width() -> usize {
    terminal_size::terminal_size_of(io::stderr()).map_or(DEFAULT_WIDTH, |(width, _)| width.0.into())
}

/// Prints a text of a component: without control characters on a terminal; unchanged into a file or a pipe.
pub(crate) fn print_text(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    write_whole(&mut out, text, stdout_width().is_some())?;
    out.flush()
}

pub(crate) fn write_whole(out: &mut dyn Write, text: &str, is_terminal: bool) -> io::Result<()> {
    let text = if is_terminal { harmless(text) } else { Cow::Borrowed(text) };
    out.write_all(text.as_bytes())?;
    if text.ends_with('\n') { Ok(()) } else { out.write_all(b"\n") }
}

/// Whether messages on stderr are written as lines of the JSON log.
static AS_JSON: AtomicBool = AtomicBool::new(false);

/// From now on, everything that this process writes to stderr is JSON, one object per line.
pub(crate) fn tell_as_json() {
    AS_JSON.store(true, Ordering::Relaxed);
    std::panic::set_hook(Box::new(|panic| tell_at(Level::ERROR, panic)));
}

fn tell_at(level: Level, text: impl Display) {
    strip_str(&text.to_string()).to_string().lines().for_each(|line| log::tell(level, line));
}

/// Writes a message to stderr. A closed stderr is ignored.
pub(crate) fn tell(text: impl Display) {
    if AS_JSON.load(Ordering::Relaxed) {
        return tell_at(Level::INFO, text);
    }
    let _ = writeln!(anstream::AutoStream::auto(io::stderr().lock()), "{text}");
}

/// Writes an error to stderr, on one line. The text may come from a plugin.
pub(crate) fn tell_error(text: impl Display) {
    if AS_JSON.load(Ordering::Relaxed) {
        return tell_at(Level::ERROR, text);
    }
    let strong = BAD.bold();
    tell(format_args!("{strong}error:{strong:#} {}", visible(text)));
}

/// A worker's open questions, one per line.
pub(crate) fn questions(questions: &[String]) -> String {
    questions.iter().map(|question| format!("  - {}\n", one_line(question, usize::MAX))).collect()
}

/// A number with commas between groups of three digits.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let ends_group = |at: usize| at > 0 && (digits.len() - at).is_multiple_of(3);
    let grouped =
        digits.chars().enumerate().flat_map(|(at, digit)| ends_group(at).then_some(',').into_iter().chain([digit]));
    grouped.collect()
}

/// A number of jobs.
pub(crate) fn jobs(number: u64) -> String {
    if number == 1 { "1 job".to_owned() } else { format!("{} jobs", count(number)) }
}

/// Turns, and tokens as [`tokens`] shows them.
pub(crate) fn turns_and_tokens(usage: &Usage) -> String {
    let turns = if usage.turns == 1 { "1 turn".to_owned() } else { format!("{} turns", count(usage.turns.into())) };
    format!("{turns}, {}", tokens(usage))
}

/// Input tokens, how many of them were cached, and output tokens.
pub(crate) fn tokens(usage: &Usage) -> String {
    let [sent, cached, received] = [usage.input_tokens, usage.cached_tokens, usage.output_tokens].map(count);
    format!("{sent} tokens in ({cached} cached), {received} out")
}

/// The cost in US dollars, or its known part.
pub(crate) fn cost(usage: &Usage) -> String {
    match (usage.cost_usd, usage.known_cost()) {
        (Some(usd), _) => format!("{usd:.4} USD"),
        (None, known) if known > 0.0 => format!("at least {known:.4} USD"),
        (None, _) => "unknown cost".to_owned(),
    }
}

pub(crate) fn status_style(status: JobStatus) -> Style {
    match status {
        JobStatus::Running => AnsiColor::Cyan.on_default(),
        JobStatus::Completed => AnsiColor::Green.on_default(),
        JobStatus::Failed => BAD,
        JobStatus::Cancelled => LABEL,
    }
}

/// The style of a word for a good or a bad state.
pub(crate) fn state_style(is_bad: bool) -> Style {
    if is_bad { BAD } else { AnsiColor::Green.on_default() }
}
