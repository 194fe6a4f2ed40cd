//! Runs one session from the task to the report, turn by turn.

use guild_contract::{Usage, text::cut};
use guild_session::{
    files::Reason,
    meter::Ending,
    session::Session,
    tools::{ToolCall, ToolError},
    transcript::Entry,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    cache::Cache,
    corpus::{Corpus, blocking},
    figures::figures,
    report::{Report, count},
    search::{Answer, answer},
    task::{Inquiry, inquiry},
};

/// Passages of a report for each question.
const PASSAGES: usize = 5;
/// Characters of a memory, at most.
const MEMORY_CHARS: usize = 1200;
/// Characters of a memory's key, at most.
const KEY_CHARS: usize = 60;

/// Searches for the task and submits the report, which is also the session's final text.
pub(crate) async fn investigate(
    cache: &Cache,
    session: &Session,
    cancel: &CancellationToken,
) -> Result<String, Ending> {
    let Some(files) = &session.files else {
        return Err(Ending::Error(
            "the built-in runtime reads local files: its session needs the tools Read, Grep and Glob".to_owned(),
        ));
    };
    let mut executor = ToolExecutor::new(session);

    executor.begin_turn()?;
    let inquiry = inquiry(&session.prompt);
    executor.progress(format!("Reading the sources for {}.", count(inquiry.questions.len(), "question"))).await?;
    record_left_out(&mut executor, &inquiry).await?;
    let corpus = cache.corpus(files, cancel).await?;
    let (figures, roots) = (figures(&session.system_prompt, &files.roots()), files.roots());
    if figures.is_empty() || !corpus.documents.is_empty() {
        warn(session, &corpus, &roots);
    }

    executor.begin_turn()?;
    // A report that is not submitted is an answer, and does not repeat the task.
    let task = executor.has("submit_result").then(|| session.prompt.clone());
    let absent = files.absent();
    let written = blocking(move || {
        let answers = look_up(&corpus, &inquiry);
        let report = Report::new(&corpus, &answers, &figures, corpus.named(&inquiry.sources), &roots, absent);
        Written {
            summary: summary(&report),
            report: report.markdown(task.as_deref()),
            open: report.open_questions(),
            memory: memory(&report),
        }
    })
    .await?;
    executor.progress(written.summary).await?;

    executor.begin_turn()?;
    // The last turn of a model that has nowhere to submit its answer is the answer.
    let submits = executor.has("submit_result");
    executor.write_turn(if submits { "Handing the report over.".to_owned() } else { written.report.clone() });
    for question in &written.open {
        executor.call("log_question", json!({"question": question})).await?;
    }
    if let Some((key, content)) = &written.memory {
        executor.call("store_memory", json!({"key": key, "content": content})).await?;
    }
    executor.submit(&written.report).await?;
    Ok(written.report)
}

/// The answers to the questions of a task.
pub(crate) fn look_up(corpus: &Corpus, inquiry: &Inquiry) -> Vec<Answer> {
    inquiry.questions.iter().map(|question| answer(corpus, question, &inquiry.sources, PASSAGES)).collect()
}

/// Records a decision if some of the task's questions are left out.
async fn record_left_out(executor: &mut ToolExecutor<'_>, inquiry: &Inquiry) -> Result<(), Ending> {
    if inquiry.left_out.is_empty() {
        return Ok(());
    }
    let decision = json!({
        "question": "Which of the task's questions are looked up?",
        "decision": format!("The first {}; not: {}", inquiry.questions.len(), inquiry.left_out.join("; ")),
        "reasoning": "A report on more of them would no longer be read. Dispatch the others by themselves.",
    });
    executor.call("record_decision", decision).await
}

/// Warns the operator, on stderr and in the job's log, if not all of the sources could be read.
pub(crate) fn warn(session: &Session, corpus: &Corpus, roots: &[String]) {
    let roots = roots.join(", ");
    let left_out = corpus.unread.lines().collect::<Vec<_>>().join("; ");
    let line = if corpus.documents.is_empty() {
        let why = match (corpus.seen, left_out.as_str()) {
            (0, _) => "they have no file that sessions can see".to_owned(),
            (seen, "") => format!("{} without text", count(seen, "file")),
            (seen, left_out) => format!("{} not read: {left_out}", count(seen, "file")),
        };
        format!("no document was read in the read roots ({roots}); {why}")
    } else if corpus.unread.count(Reason::Denied) + corpus.unread.count(Reason::Failed) > 0 {
        format!("not all of the read roots ({roots}) could be read: {left_out}")
    } else {
        return;
    };
    tracing::warn!("{line}");
    session.journal.log(&line);
}

/// The texts that the last turns submit.
struct Written {
    report: String,
    summary: String,
    open: Vec<String>,
    /// The key and the content of a memory.
    memory: Option<(String, String)>,
}

/// A memory for later sessions: the places of passages on each question, and the questions without any.
fn memory(report: &Report<'_>) -> Option<(String, String)> {
    let found: Vec<&Answer> = report.answers.iter().filter(|answer| answer.is_found()).collect();
    let first = found.first()?;
    let plain = |word: &&str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let mut words: Vec<&str> = first.terms.iter().map(|term| term.word.as_str()).filter(plain).collect();
    if words.is_empty() {
        // A key is ASCII. For a question in another script, the path of the best passage tells memories apart.
        let best = first.hits.first().and_then(|hit| report.corpus.passage(hit.passage));
        let path = best.map_or("", |(document, _)| document.path.as_str());
        words = path.split(|c: char| !c.is_ascii_alphanumeric()).filter(plain).collect();
    }
    let mut key = String::from("sources");
    for word in words {
        if key.len() + word.len() < KEY_CHARS {
            key.push('-');
            key.push_str(&word.to_lowercase());
        }
    }
    let mut content = String::new();
    for answer in found {
        let places = answer.hits.iter().filter_map(|hit| report.corpus.passage(hit.passage));
        let places: Vec<String> =
            places.map(|(document, passage)| format!("{}:{}", document.path, passage.line)).collect();
        content.push_str(&format!("Question: {}\nPassages: {}\n", answer.question, places.join(", ")));
    }
    let is_absent = |answer: &&Answer| answer.hits.is_empty() && !answer.terms.is_empty() && report.figures.is_empty();
    for answer in report.answers.iter().filter(is_absent) {
        content.push_str(&format!("Not in the sources: {}\n", answer.question));
    }
    Some((key, cut(content.trim_end(), MEMORY_CHARS).0.to_owned()))
}

fn summary(report: &Report<'_>) -> String {
    let Report { answers, figures, searched, .. } = *report;
    let found = answers.iter().filter(|answer| answer.is_found()).count();
    if !figures.is_empty() && found == 0 {
        format!("Computed the figures of {}.", count(figures.len(), "table"))
    } else if searched == 0 {
        "No document was read, so nothing could be looked up.".to_owned()
    } else {
        let of = count(answers.len(), "question");
        format!("Searched {}: passages were found for {found} of {of}.", count(searched, "document"))
    }
}

/// Counts the session's turns, and calls its tools.
struct ToolExecutor<'a> {
    session: &'a Session,
    names: Vec<String>,
    /// The number of the current turn.
    turn: u32,
    /// Calls of this turn so far.
    calls: u32,
    /// Turns before the host restarted, which are already counted and in the transcript.
    done: u32,
}

impl<'a> ToolExecutor<'a> {
    fn new(session: &'a Session) -> Self {
        let names = session.tools.definitions().iter().map(|tool| tool.name.clone()).collect();
        let done = session.history.iter().map(|entry| if let Entry::Turn { turn, .. } = entry { *turn } else { 0 });
        Self { session, names, turn: 0, calls: 0, done: done.max().unwrap_or(0) }
    }

    fn begin_turn(&mut self) -> Result<(), Ending> {
        if self.turn >= self.done {
            self.session.meter.take_turn()?;
        }
        self.turn += 1;
        self.calls = 0;
        Ok(())
    }

    /// Writes the turn to the transcript, before it calls its tools.
    fn write_turn(&self, text: String) {
        if self.turn > self.done {
            self.session.journal.write(&Entry::Turn {
                session: self.session.number,
                turn: self.turn,
                model: None,
                text,
                content: None,
                usage: Usage { turns: 1, ..Usage::default() },
            });
        }
    }

    /// Calls an optional tool. A missing tool is skipped, and a refusal is logged; only the end of the job ends the
    /// session.
    async fn call(&mut self, name: &str, input: Value) -> Result<(), Ending> {
        match self.try_call(name, input).await {
            Err(ToolError::JobEnded) => Err(Ending::Interrupted),
            Err(error) => {
                tracing::warn!(tool = name, %error, "a tool refused");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    async fn try_call(&mut self, name: &str, input: Value) -> Result<(), ToolError> {
        if !self.has(name) {
            return Ok(());
        }
        let id = format!("{}.{}.{}", self.session.number, self.turn, self.calls);
        self.calls += 1;
        self.session.tools.call(ToolCall { id, name: name.to_owned(), input }).await.map(drop)
    }

    /// Reports a turn in the transcript, in the job's summary, and to subscribers.
    async fn progress(&mut self, text: String) -> Result<(), Ending> {
        self.write_turn(text.clone());
        if let Some(texts) = &self.session.texts {
            // A subscriber that does not keep up misses a line.
            let _ = texts.try_send(text.clone());
        }
        self.call("update_summary", json!({"summary": text})).await
    }

    /// Submits the report. If the session has no such tool, its final text is the result.
    async fn submit(&mut self, report: &str) -> Result<(), Ending> {
        self.try_call("submit_result", json!({"output": report})).await.map_err(|error| match error {
            ToolError::JobEnded => Ending::Interrupted,
            error => Ending::Error(format!("the report was not accepted: {error}")),
        })
    }
}
