//! `guild logs`: shows a job's transcript and log in readable form.
//!
//! The files are read without owning the job; a host elsewhere sends their lines on request. The contents come from a
//! model, tools, the component and the web, so they are shown without control characters, and shortened.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    io::{self, Write},
    mem,
    time::{Duration, Instant},
};

use anstyle::{AnsiColor, Style};
use cap_std::fs::Dir;
use guild_client::{JobId, JobStatus, LogPosition, LogView, WorkerHandle};
use guild_contract::Limits;
use guild_roster::jobs::files::{Follow, Owner};
use guild_session::transcript::{Entry, Line, SUCCESS};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    find::Jobs,
    status_text::{INTERRUPTED, NEXT_HOST_RESUMES},
};
use crate::{
    args::jobs::Logs,
    failure::Failure,
    local::{self, LocalArgs},
    output::{self, LABEL, STRONG, harmless, one_line, print, print_json, tell, tokens, visible},
};

/// The polling interval at the end of a transcript.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How long `--follow` waits for the next host if no process runs the job any more.
const NEXT_HOST_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum length of a tool's input or result.
const SHOWN_CHARS: usize = 160;
/// The style of lines of a job's log.
const LOG: Style = AnsiColor::Blue.on_default();
/// The indentation of texts: the width of a time, a session's number and a word.
const INDENT: usize = 24;

/// `guild logs`.
pub(crate) async fn logs(args: Logs) -> Result<(), Failure> {
    let config = local::config(&args.local.policy)?;
    let jobs = match &args.url {
        Some(url) => Jobs::at(url, args.member.as_deref(), &args.access).await?,
        None => {
            let members = args.home.as_deref().and_then(|home| local::members_of_hall(None, Some(home), &config));
            let local = LocalArgs { members: members.or_else(|| args.local.members.clone()), ..args.local.clone() };
            Jobs::of_files(&local, &config, args.member.as_deref())?
        }
    };
    let found = jobs.find(&args.id).await?;
    let id: JobId = found.id.parse().map_err(|_| Failure::error(format!("{} is not the id of a job", found.id)))?;
    let source = match jobs.directory_of(&found) {
        Some(member) => {
            let job = Follow::open(member, &id).map_err(|e| Failure::error(format!("job {id}: {e}")))?;
            Source::Files(Box::new(job.ok_or_else(|| Failure::error("the job has been deleted"))?), member)
        }
        None => Source::Host(Box::new(AtHost::new(jobs.worker_of(&found, "")?, id))),
    };
    show(source, args.follow, args.json, &config.limits).await
}

/// Shows a job of a running host as it goes on, to its end.
pub(crate) async fn follow(worker: WorkerHandle, id: JobId) -> Result<(), Failure> {
    show(Source::Host(Box::new(AtHost::new(worker, id))), true, false, &Limits::default()).await
}

/// Shows the lines of a job; with `is_followed`, to its end.
async fn show(source: Source<'_>, is_followed: bool, is_json: bool, limits: &Limits) -> Result<(), Failure> {
    let mut merged = Merged { source, transcript: VecDeque::new(), log: VecDeque::new() };
    let mut out = Out { is_json, pages: Pages::default() };
    let mut is_empty = true;
    // Set when no process runs the job any more.
    let mut alone: Option<Instant> = None;
    loop {
        // The state is read before the lines, since a job writes its last line before it ends.
        let (state, error) = merged.source.state(limits).await?;
        while let Some(line) = merged.next().await? {
            is_empty = false;
            out.line(&line)?;
        }
        if state != State::Interrupted {
            alone = None;
        } else if is_followed && alone.is_none() {
            tell(format_args!("no process runs the job; waiting {} s for the next host", NEXT_HOST_TIMEOUT.as_secs()));
            alone = Some(Instant::now());
        }
        if is_followed && (state == State::Runs || alone.is_some_and(|since| since.elapsed() < NEXT_HOST_TIMEOUT)) {
            tokio::time::sleep(POLL_INTERVAL).await;
            continue;
        }
        if state != State::Runs {
            out.rest()?;
        }
        if let Some(error) = error.filter(|_| state == State::Ended) {
            tell(format_args!("the job ended with an error: {}", visible(error)));
        } else if state == State::Interrupted {
            tell(format_args!("the job is {INTERRUPTED}; {NEXT_HOST_RESUMES}"));
        } else if is_empty {
            tell(match state {
                State::Runs => "nothing is logged yet: no session of the job has begun (--follow waits for it)",
                _ => "nothing was logged: no session of the job began, and its component wrote no line",
            });
        }
        return Ok(());
    }
}

/// The state of a job.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Runs,
    /// Recorded as running, while no process owns the member.
    Interrupted,
    Ended,
}

/// The source of a job's transcript and log.
enum Source<'a> {
    /// In the files of the member in this directory.
    Files(Box<Follow>, &'a Dir),
    /// At a running host.
    Host(Box<AtHost>),
}

/// A job of a running host.
struct AtHost {
    worker: WorkerHandle,
    id: JobId,
    /// The position up to which lines were read; none at first.
    after: Option<LogPosition>,
    /// The last answer, with lines that are still to be taken.
    page: Option<LogView>,
}

impl AtHost {
    fn new(worker: WorkerHandle, id: JobId) -> Self {
        Self { worker, id, after: None, page: None }
    }

    async fn ask(&mut self) -> Result<LogView, Failure> {
        let view = self.worker.log(self.id.as_str(), self.after).await?.value;
        self.after = Some(view.next);
        Ok(view)
    }
}

impl Source<'_> {
    /// The state of the job, and its error. All lines that it wrote before are read afterwards.
    async fn state(&mut self, limits: &Limits) -> Result<(State, Option<String>), Failure> {
        match self {
            Self::Files(job, member) => {
                // The owner is read first: an owner that ends in between has already recorded the ended jobs.
                let owner = Owner::of(member).map_err(|e| Failure::error(format!("the member's owner: {e}")))?;
                let meta = job.meta(limits).map_err(|e| match e.kind() {
                    io::ErrorKind::NotFound => Failure::error("the job has been deleted"),
                    _ => Failure::error(format!("the job's meta.json: {e}")),
                })?;
                let state = match (meta.status == JobStatus::Running, owner) {
                    (false, _) => State::Ended,
                    (true, Some(_)) => State::Runs,
                    (true, None) => State::Interrupted,
                };
                Ok((state, meta.error))
            }
            Self::Host(host) => {
                let view = host.ask().await?;
                let state = if view.status == JobStatus::Running { State::Runs } else { State::Ended };
                let error = view.error.clone();
                host.page = Some(view);
                Ok((state, error))
            }
        }
    }

    /// Further lines of the transcript and of the log, at least of the requested ones; empty if there are no lines yet.
    async fn more(&mut self, wanted: (bool, bool)) -> Result<(Vec<Vec<u8>>, Vec<Vec<u8>>), Failure> {
        match self {
            Self::Files(job, _) => {
                let (mut lines, mut log) = (Vec::new(), Vec::new());
                if wanted.0 {
                    lines.extend(job.next_line().map_err(|e| Failure::error(format!("the transcript: {e}")))?);
                }
                if wanted.1 {
                    log.extend(job.next_log().map_err(|e| Failure::error(format!("log.txt: {e}")))?);
                }
                Ok((lines, log))
            }
            Self::Host(host) => {
                let Some(view) = host.page.take() else { return Ok((Vec::new(), Vec::new())) };
                host.page = if view.more { Some(host.ask().await?) } else { None };
                let bytes = |lines: Vec<String>| lines.into_iter().map(String::into_bytes).collect();
                Ok((bytes(view.transcript), bytes(view.log)))
            }
        }
    }
}

/// A line that a job has written.
enum Written {
    /// A line of its transcript.
    Transcript(Vec<u8>),
    /// A line of its log: the time, if there is one, and the text.
    Log(Option<Timestamp>, String),
}

/// The lines of a job's transcript and log, in the order of their times.
struct Merged<'a> {
    source: Source<'a>,
    transcript: VecDeque<(Option<Timestamp>, Vec<u8>)>,
    log: VecDeque<(Option<Timestamp>, String)>,
}

/// The time of a line of the transcript.
#[derive(Deserialize)]
struct At {
    at: Timestamp,
}

impl Merged<'_> {
    /// The next line, if there is one.
    async fn next(&mut self) -> Result<Option<Written>, Failure> {
        while self.transcript.is_empty() || self.log.is_empty() {
            let (lines, log) = self.source.more((self.transcript.is_empty(), self.log.is_empty())).await?;
            if lines.is_empty() && log.is_empty() {
                break;
            }
            let at = |line: &[u8]| serde_json::from_slice::<At>(line).ok().map(|line| line.at);
            self.transcript.extend(lines.into_iter().map(|line| (at(&line), line)));
            self.log.extend(log.iter().map(|line| split_time(&String::from_utf8_lossy(line))));
        }
        // A line without a time belongs to the one before it.
        let log_is_next = match (self.transcript.front(), self.log.front()) {
            (Some((transcript, _)), Some((log, _))) => log <= transcript,
            (transcript, _) => transcript.is_none(),
        };
        Ok(match log_is_next {
            true => self.log.pop_front().map(|(at, text)| Written::Log(at, text)),
            false => self.transcript.pop_front().map(|(_, line)| Written::Transcript(line)),
        })
    }
}

/// Splits a line of a log into its time, if it begins with one, and its text.
fn split_time(line: &str) -> (Option<Timestamp>, String) {
    let timed = line.split_once(' ').and_then(|(at, text)| Some((at.parse().ok()?, text)));
    timed.map_or_else(|| (None, line.to_owned()), |(at, text)| (Some(at), text.to_owned()))
}

/// The output.
struct Out {
    is_json: bool,
    pages: Pages,
}

impl Out {
    /// Writes the remaining output after the last line.
    fn rest(&mut self) -> io::Result<()> {
        if self.is_json { Ok(()) } else { print(|out| self.pages.write_rest(out)) }
    }

    fn line(&mut self, line: &Written) -> io::Result<()> {
        match (line, self.is_json) {
            (Written::Transcript(line), true) => output::print_json_text(&String::from_utf8_lossy(line)),
            (Written::Log(at, text), true) => print_json(&json!({"at": at, "type": "log", "text": text})),
            (Written::Transcript(line), false) => print(|out| match serde_json::from_slice::<Line>(line) {
                Ok(line) => self.pages.write(out, &line),
                // A crash truncated the line, or another version of the host wrote it.
                Err(_) => {
                    writeln!(out, "{LABEL}?{LABEL:#} {}", one_line(&String::from_utf8_lossy(line), SHOWN_CHARS))
                }
            }),
            (Written::Log(at, text), false) => print(|out| self.pages.write_log(out, *at, text)),
        }
    }
}

/// Readable output, with state from earlier lines.
#[derive(Default)]
struct Pages {
    /// The last day that was written.
    day: String,
    /// The tools of calls without a result so far, by session and call.
    calls: HashMap<(u32, String), String>,
    /// The pieces of the answer under way, by session.
    answers: BTreeMap<u32, String>,
}

impl Pages {
    /// The time of day. If the day has changed, it is written first.
    fn time(&mut self, out: &mut dyn Write, at: Option<Timestamp>) -> io::Result<String> {
        let Some(at) = at else { return Ok("?".to_owned()) };
        let day = at.strftime("%Y-%m-%d").to_string();
        if day != self.day {
            writeln!(out, "{LABEL}{day} UTC{LABEL:#}")?;
            self.day = day;
        }
        Ok(at.strftime("%H:%M:%S").to_string())
    }

    /// A line of `log.txt`: a message of the component, or a denial.
    fn write_log(&mut self, out: &mut dyn Write, at: Option<Timestamp>, text: &str) -> io::Result<()> {
        let time = self.time(out, at)?;
        writeln!(out, "{LABEL}{time:<8} {:>3}{LABEL:#}  {LOG}{:<8}{LOG:#}  {}", "", "log", one_line(text, usize::MAX))
    }

    /// Writes the unfinished answers after the last line.
    fn write_rest(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let answers = mem::take(&mut self.answers);
        answers.iter().try_for_each(|(session, text)| self.write_cut_off(out, *session, text))
    }

    /// The pieces of an answer that was cut off.
    fn write_cut_off(&mut self, out: &mut dyn Write, session: u32, text: &str) -> io::Result<()> {
        let bad = output::BAD;
        writeln!(out, "{:<8} {LABEL}{session:>3}{LABEL:#}  {bad}cut off{bad:#}", "")?;
        write_text(out, text)
    }

    fn write(&mut self, out: &mut dyn Write, line: &Line) -> io::Result<()> {
        match &line.entry {
            // The entry has the whole text.
            Entry::Turn { session, .. } => drop(self.answers.remove(session)),
            Entry::Message { session, .. } | Entry::Resumed { session } | Entry::End { session, .. } => {
                if let Some(text) = self.answers.remove(session) {
                    self.write_cut_off(out, *session, &text)?;
                }
            }
            // A piece is shown as part of its answer.
            Entry::Text { session, text } => {
                self.answers.entry(*session).or_default().push_str(text);
                return Ok(());
            }
            _ => {}
        }
        let time = self.time(out, line.at.parse().ok())?;
        let session = line.entry.session().map_or_else(String::new, |session| session.to_string());
        let mut row = |word: &str, style: Style, text: &str| {
            writeln!(out, "{LABEL}{time:<8} {session:>3}{LABEL:#}  {style}{word:<8}{style:#}  {text}")
        };
        let plain = Style::new();
        match &line.entry {
            Entry::Session { agent, model, system_prompt, prompt, tools, .. } => {
                let model = model.as_ref().map(|model| format!(" {}", one_line(model, 80))).unwrap_or_default();
                let agent = one_line(agent, 40);
                row("session", STRONG, &format!("{agent}{model}, {}", named(tools)))?;
                let prompts = [("system", system_prompt), ("prompt", prompt)];
                prompts.iter().try_for_each(|(word, text)| {
                    row(word, LABEL, &format!("{}: {}", size(text), one_line(text, SHOWN_CHARS)))
                })
            }
            Entry::Resumed { .. } => row("resumed", STRONG, "by a host that started later"),
            Entry::Handle { handle, .. } => row("handle", LABEL, &one_line(handle, SHOWN_CHARS)),
            Entry::Message { text, .. } => {
                row("user", STRONG, &format!("{LABEL}{}{LABEL:#}", size(text)))?;
                write_text(out, text)
            }
            Entry::Text { .. } => Ok(()),
            Entry::Compacted { text, .. } => {
                row("compact", AnsiColor::Yellow.on_default(), &one_line(text, usize::MAX))
            }
            Entry::Turn { turn, model, text, usage, .. } => {
                let model = model.as_ref().map(|model| format!("{}, ", one_line(model, 80))).unwrap_or_default();
                // The cost of a turn may be unknown while that of the session, shown at its end, is known.
                let cost = usage.cost_usd.map(|_| format!(", {}", output::cost(usage))).unwrap_or_default();
                let used = format!("{}{cost}", tokens(usage));
                row(&format!("turn {turn}"), STRONG, &format!("{LABEL}{model}{used}{LABEL:#}"))?;
                write_text(out, text)
            }
            Entry::Call { session, call, tool, input } => {
                self.calls.insert((*session, call.clone()), tool.clone());
                row("call", AnsiColor::Cyan.on_default(), &format!("{} {}", one_line(tool, 80), shortened(input)))
            }
            Entry::Result { session, call, ms, output, error } => {
                let tool = self.calls.remove(&(*session, call.clone())).unwrap_or_else(|| call.clone());
                let tool = one_line(&tool, 80);
                match (output, error) {
                    (_, Some(error)) => {
                        row("error", output::BAD, &format!("{tool}, {ms} ms: {}", one_line(error, SHOWN_CHARS)))
                    }
                    (output, None) => {
                        let output = output.as_ref().unwrap_or(&Value::Null);
                        let bytes = bytes(output);
                        row("result", plain, &format!("{tool}, {ms} ms, {bytes}: {}", shortened(output)))
                    }
                }
            }
            Entry::Note { text, .. } => row("note", AnsiColor::Yellow.on_default(), &one_line(text, usize::MAX)),
            Entry::End { ending, usage, .. } => {
                let style = output::state_style(ending != SUCCESS);
                let used = format!("{}, {}", output::turns_and_tokens(usage), output::cost(usage));
                row("end", style, &format!("{}; {used}", one_line(ending, usize::MAX)))
            }
            Entry::Used { call, capabilities } => {
                let used = one_line(&capabilities.join(", "), usize::MAX);
                row("used", LABEL, &format!("by the component in {}: {used}", one_line(call, 40)))
            }
            Entry::Truncated { text } => row("cut", output::BAD, &one_line(text, usize::MAX)),
        }
    }
}

/// A text below its row.
fn write_text(out: &mut dyn Write, text: &str) -> io::Result<()> {
    harmless(text).trim().lines().try_for_each(|line| writeln!(out, "{:INDENT$}{line}", ""))
}

fn named(tools: &[String]) -> String {
    match tools {
        [] => "no tools".to_owned(),
        tools => format!("tools {}", one_line(&tools.join(" "), usize::MAX)),
    }
}

fn size(text: &str) -> String {
    format!("{} characters", output::count(text.chars().count() as u64))
}

/// The size of a result as the model sees it: a string counts without its quotation marks.
fn bytes(output: &Value) -> String {
    let bytes = output.as_str().map_or_else(|| output.to_string().len(), str::len);
    format!("{} bytes", output::count(bytes as u64))
}

/// A value on one line.
fn shortened(value: &Value) -> String {
    match value {
        Value::String(text) => one_line(text, SHOWN_CHARS),
        value => one_line(&value.to_string(), SHOWN_CHARS),
    }
}
