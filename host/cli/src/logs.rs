//! `guild logs`: a job's transcript, for people.
//!
//! The file is read beside whoever owns the job. What stands in it was written by a model, by tools and by the web: it is
//! shown without control characters, and shortened.

use std::{
    collections::HashMap,
    io::{self, Write},
    path::PathBuf,
    thread,
    time::Duration,
};

use anstyle::{AnsiColor, Style};
use cap_std::fs::Dir;
use guild_contract::Limits;
use guild_jobs::{
    follow::Follow,
    transcript::{Entry, Line, SUCCESS},
};
use guild_server::config::Config;
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    args::Logs,
    failure::Failure,
    house,
    output::{self, LABEL, STRONG, harmless, one_line, print, tell, tokens},
};

/// Between two looks at a transcript that has come to its end.
const LOOK: Duration = Duration::from_millis(200);
/// Characters of a tool's input, or its result, that are shown.
const SHOWN_CHARS: usize = 160;
/// How far texts are moved to the right: by a time, a session's number and a word.
const INDENT: usize = 24;

/// `guild logs`.
pub(crate) fn logs(args: &Logs) -> Result<(), Failure> {
    let config = house::config(&args.house.policy)?;
    let mut job = find(args, &config)?;
    let mut out = Out { is_json: args.json, pages: Pages::default() };
    let mut is_empty = true;
    loop {
        // Asked first: what a job writes, it writes before it ends.
        let is_running = args.follow && is_running(&job, &config.limits)?;
        while let Some(line) = job.next_line().map_err(|e| Failure::error(format!("the transcript: {e}")))? {
            is_empty = false;
            out.line(&line)?;
        }
        if !is_running {
            break;
        }
        thread::sleep(LOOK);
    }
    if is_empty {
        tell(if is_running(&job, &config.limits)? {
            "the job has no transcript yet: its session has not begun (--follow waits for it)"
        } else {
            "the job has no transcript: no session of it began"
        });
    }
    Ok(())
}

/// The job, wherever it is.
fn find(args: &Logs, config: &Config) -> Result<Follow, Failure> {
    let open = |name: &str, dir: &Dir| {
        Follow::open(dir, &args.id).map_err(|e| Failure::error(format!("job {} of {name}: {e}", args.id)))
    };
    let directory: PathBuf = if let Some(member) = &args.member {
        let directory = house::member_directory(member, &args.house, config)?;
        if let Some(job) = open(member, &house::open(&directory)?)? {
            return Ok(job);
        }
        directory
    } else {
        let directory = house::members_directory(args.house.members.as_deref(), config)?;
        for found in house::discovered(&directory)? {
            if let Ok(member) = found.member
                && let Some(job) = open(&found.path, &member.dir)?
            {
                return Ok(job);
            }
        }
        directory
    };
    Err(Failure::error(format!(
        "there is no job {} in {}; `guild list` shows the jobs of a host that runs",
        args.id,
        directory.display()
    )))
}

fn is_running(job: &Follow, limits: &Limits) -> Result<bool, Failure> {
    job.is_running(limits).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => Failure::error("the job was deleted meanwhile"),
        _ => Failure::error(format!("the job's meta.json: {e}")),
    })
}

/// Where lines go.
struct Out {
    is_json: bool,
    pages: Pages,
}

impl Out {
    fn line(&mut self, line: &[u8]) -> io::Result<()> {
        if self.is_json {
            let mut out = io::stdout().lock();
            out.write_all(line)?;
            out.write_all(b"\n")?;
            return out.flush();
        }
        print(|out| match serde_json::from_slice::<Line>(line) {
            Ok(line) => self.pages.write(out, &line),
            // A crash cut it in two, or another version of the host wrote it.
            Err(_) => {
                writeln!(out, "{LABEL}?{LABEL:#} {}", one_line(&String::from_utf8_lossy(line), SHOWN_CHARS))
            }
        })
    }
}

/// Lines as people read them: what one line leaves out because an earlier one said it.
#[derive(Default)]
struct Pages {
    /// The day that was written last.
    day: String,
    /// The tools of the calls that have no result yet, by session and call.
    calls: HashMap<(u32, String), String>,
}

impl Pages {
    fn write(&mut self, out: &mut dyn Write, line: &Line) -> io::Result<()> {
        let (day, time) = match line.at.parse::<Timestamp>() {
            Ok(at) => (at.strftime("%Y-%m-%d").to_string(), at.strftime("%H:%M:%S").to_string()),
            Err(_) => (self.day.clone(), "?".to_owned()),
        };
        if day != self.day {
            writeln!(out, "{LABEL}{day} UTC{LABEL:#}")?;
            self.day = day;
        }
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
            Entry::Turn { turn, model, text, usage, .. } => {
                let model = model.as_ref().map(|model| format!("{}, ", one_line(model, 80))).unwrap_or_default();
                // Where a turn's own cost is not known, that of the session may be: the end tells it.
                let cost = usage.cost_usd.map(|_| format!(", {}", output::cost(usage))).unwrap_or_default();
                let used = format!("{}{cost}", tokens(usage));
                row(&format!("turn {turn}"), STRONG, &format!("{LABEL}{model}{used}{LABEL:#}"))?;
                harmless(text).trim().lines().try_for_each(|line| writeln!(out, "{:INDENT$}{line}", ""))
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
            Entry::Truncated { text } => row("cut", output::BAD, &one_line(text, usize::MAX)),
        }
    }
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

/// The size of a result as the model saw it: a text without its quotation marks.
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
