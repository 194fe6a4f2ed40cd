//! One session: from the task to the report, turn by turn.

use std::sync::Arc;

use guild_confine::Bounds;
use guild_contract::Usage;
use guild_session::{
    files::Reason,
    meter::Ending,
    session::Session,
    tools::{ToolCall, ToolError},
    transcript::Entry,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::text::cut;

use super::{
    Extractive,
    corpus::Corpus,
    figures::figures,
    question::{Inquiry, inquiry},
    report::{Report, count},
    search::{QuestionAnswer, answer, follow_up},
    terms::{is_stop, is_weak, words},
};

/// Findings of a report at most, over all its questions, and of one question.
const FINDINGS: (usize, usize) = (14, 6);
/// The most characters of a memory.
const MEMORY_CHARS: usize = 1200;

/// Searches for the task and submits the report, which is also the session's final text.
pub(super) async fn investigate(
    runtime: &Extractive,
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
    let cpu = runtime.cache.cpu(files);
    let task = session.prompt.clone();
    let inquiry = cpu.run(cancel, move || inquiry(&task)).await?;
    if inquiry.questions.is_empty() {
        return Err(Ending::Error("the task asks nothing that could be looked up: state it as a question".to_owned()));
    }
    executor.progress(format!("Reading the sources for {}.", asked(&inquiry))).await?;
    record_questions(&mut executor, &inquiry).await?;
    let corpus = runtime.cache.corpus(files, cancel).await?;
    let figures = figures(&session.system_prompt, &files.roots());
    if figures.is_empty() || !corpus.documents.is_empty() {
        warn(session, &corpus, &files.roots());
    }

    executor.begin_turn()?;
    let limit = (FINDINGS.0 / inquiry.questions.len()).clamp(2, FINDINGS.1);
    let within = Arc::new(corpus.within(&inquiry.sources));
    let questions = inquiry.questions;
    let (shared, searched) = (corpus.clone(), within.clone());
    let answers = cpu.run(cancel, move || {
        questions.into_iter().map(|question| answer(&shared, &searched, question, limit)).collect::<Vec<_>>()
    });
    let mut answers = answers.await?;
    let found = answers.iter().filter(|answer| !answer.findings.is_empty()).count();
    executor
        .progress(format!(
            "Searched {}: {found} of {} answered so far; following up.",
            count(within.len(), "document"),
            count(answers.len(), "question")
        ))
        .await?;
    record_limits(&mut executor, &corpus, runtime.cache.document()).await?;

    executor.begin_turn()?;
    // A report that cannot be submitted goes to the one who asked, and need not repeat the task.
    let task = executor.has("submit_result").then(|| session.prompt.clone());
    let (shared, roots) = (corpus.clone(), files.roots());
    let (looked_in, stop) = (files.clone(), cancel.clone());
    let written = cpu.run(cancel, move || {
        for answer in &mut answers {
            follow_up(&shared, &within, answer, limit);
            answer.verify(&*looked_in, &stop);
        }
        let mut report = Report::new(&shared, &answers, &figures, within.len(), &roots);
        report.absent = looked_in.absent();
        Written::new(&report, task.as_deref())
    });
    let written = written.await?;
    executor.progress(written.summary.clone()).await?;

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

/// What is looked up, in a few words.
fn asked(inquiry: &Inquiry) -> String {
    match inquiry.questions.as_slice() {
        [one] => format!("“{}”", one.text),
        several => count(several.len(), "question"),
    }
}

/// Records a decision if a question of the task was split, and one if some of its questions are left out.
async fn record_questions(executor: &mut ToolExecutor<'_>, inquiry: &Inquiry) -> Result<(), Ending> {
    let questions = &inquiry.questions;
    if inquiry.split {
        let question = "How is a question that asks several things at once looked up?";
        let list = questions.iter().map(|question| format!("“{}”", question.text)).collect::<Vec<_>>().join("; ");
        let reasoning = "Each asks for something of its own, and no single passage need answer all of them.";
        executor.record_decision(question, &format!("One by one: {list}."), reasoning).await?;
    }
    if !inquiry.left_out.is_empty() {
        let question = "Which of the task's questions are looked up?";
        let decision = format!("The first {}; not: {}", questions.len(), inquiry.left_out.join("; "));
        let reasoning = "A report on more of them would no longer be read. Dispatch the others by themselves.";
        executor.record_decision(question, &decision, reasoning).await?;
    }
    Ok(())
}

/// Warns the operator, on stderr and in the job's log, if not all of the sources could be read.
pub(super) fn warn(session: &Session, corpus: &Corpus, roots: &[String]) {
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

/// Records a decision if the sources were too large to be read whole.
async fn record_limits(executor: &mut ToolExecutor<'_>, corpus: &Corpus, document: Bounds) -> Result<(), Ending> {
    let [large, beyond, costly] =
        [Reason::Large, Reason::Beyond, Reason::Costly].map(|reason| corpus.unread.count(reason));
    if large + beyond + costly == 0 {
        return Ok(());
    }
    let decision = format!(
        "Without {} of more than 16 MiB, {} beyond 64 MiB of text or 128 MiB of memory in all, and {} that took more than \
         {} s or {} bytes of memory to read.",
        count(large, "file"),
        count(beyond, "file"),
        count(costly, "file"),
        document.seconds,
        document.memory_bytes
    );
    let reasoning = "The index is kept in memory. Narrower source directories would be read whole.";
    executor.record_decision("Which of the sources are searched?", &decision, reasoning).await
}

/// All that the last turns submit.
struct Written {
    report: String,
    summary: String,
    open: Vec<String>,
    memory: Option<(String, String)>,
}

impl Written {
    fn new(report: &Report<'_>, task: Option<&str>) -> Self {
        let Report { answers, figures, searched, .. } = *report;
        let answered = |answer: &&QuestionAnswer| !answer.findings.is_empty() || !report.computed(answer).is_empty();
        let found = answers.iter().filter(answered).count();
        let sources = report.sources();
        let summary = if !figures.is_empty() && report.findings() == 0 {
            format!("Computed the figures of {}.", count(figures.len(), "table"))
        } else if searched == 0 {
            "No document was read, so nothing could be looked up.".to_owned()
        } else if found == 0 {
            format!("Not found in the sources ({} searched).", count(searched, "document"))
        } else {
            format!(
                "Answered {found} of {} with {} from {}.",
                count(answers.len(), "question"),
                count(report.findings(), "quotation"),
                count(sources.len(), "source")
            )
        };
        Self { report: report.markdown(task), summary, open: report.open_questions(), memory: memory(report) }
    }
}

/// What is useful for later sessions: which sources answered which question, and which words lead further.
fn memory(report: &Report<'_>) -> Option<(String, String)> {
    let answered: Vec<&QuestionAnswer> = report.answers.iter().filter(|answer| !answer.findings.is_empty()).collect();
    let first = answered.first()?;
    let mut key = String::from("sources");
    words(&first.question.text, |word| {
        let plain = word.bytes().all(|byte| byte.is_ascii_alphanumeric()) && !is_stop(word) && !is_weak(word);
        if plain && key.len() + word.len() < 60 {
            key.push('-');
            key.push_str(word);
        }
    });
    let mut content = String::new();
    for answer in &answered {
        content.push_str(&format!("Question: {}\n", answer.question.text));
        if !answer.salient.is_empty() {
            content.push_str(&format!("Words that lead further: {}\n", answer.salient.join(", ")));
        }
    }
    content.push_str("Sources that answered, by weight:\n");
    for source in report.sources().iter().take(6) {
        content.push_str(&format!("- {} ({}, {} %)\n", source.path, source.title, source.percent));
    }
    for answer in
        report.answers.iter().filter(|answer| answer.findings.is_empty() && report.computed(answer).is_empty())
    {
        content.push_str(&format!("Not in the sources: {}\n", answer.question.text));
    }
    Some((key, cut(content.trim_end(), MEMORY_CHARS).0.to_owned()))
}

/// Takes the session's turns, and calls those of its tools that it has.
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

    /// Calls a tool that the session can do without: one that it does not have is not called, and one that
    /// refuses is not called again. Only the end of the job ends the session.
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

    /// Calls the tool of the same name.
    async fn record_decision(&mut self, question: &str, decision: &str, reasoning: &str) -> Result<(), Ending> {
        self.call("record_decision", json!({"question": question, "decision": decision, "reasoning": reasoning})).await
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

    /// Reports what the turn did: in the transcript, in the job's summary, and to listeners.
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
