//! What the commands print: results on stdout, and everything else on stderr.
//!
//! A reader that closes stdout early (`guild list | head -1`) ends a command quietly. Texts that a worker wrote
//! never reach a terminal with their control characters.

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

pub(crate) use guild_contract::text::{harmless, is_steering, one_line, visible};

use crate::log;

pub(crate) const LABEL: Style = Style::new().dimmed();
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
pub(crate) const STRONG: Style = Style::new().bold();
/// The width of a terminal that does not tell it.
const WIDTH: usize = 80;
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

/// How many characters a line of stdout has, where it is a terminal.
pub(crate) fn stdout_width() -> Option<usize> {
    let out = io::stdout();
    let width = || terminal_size::terminal_size_of(&out).map_or(WIDTH, |(width, _)| width.0.into());
    out.is_terminal().then(width)
}

/// How many characters a line of stderr has.
pub(crate) fn stderr_width() -> usize {
    terminal_size::terminal_size_of(io::stderr()).map_or(WIDTH, |(width, _)| width.0.into())
}

/// Prints a text of a component: without control characters on a terminal; as it is into a file or a pipe.
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

/// What only a person can answer, one a line.
pub(crate) fn write_questions(out: &mut dyn Write, questions: &[String]) -> io::Result<()> {
    questions.iter().try_for_each(|question| writeln!(out, "  - {}", one_line(question, usize::MAX)))
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
