//! The built-in runtime: it answers from the granted sources by search, without a model and without a network.
//!
//! It works as a session with a model does, turn by turn and through the same tools, so that a job looks the same
//! from outside: a summary as it goes, decisions where it narrowed the question, questions that the sources leave
//! open, a memory of what it learned, and a report as the result. What it does not do is reason: the report
//! quotes passages that cover what was asked, and where none does it says so.

mod cache;
mod condense;
mod corpus;
mod cpu;
mod extract;
mod index;
mod question;
mod quote;
mod report;
mod search;
mod session;
mod terms;

use std::sync::Arc;

use async_trait::async_trait;
use guild_jobs::{
    activation::MemoryNote,
    files::Files,
    session::{AgentRuntime, Ending, Session, SessionEnd, Usage},
};
use tokio_util::sync::CancellationToken;

use cache::Cache;
use cpu::{Cpu, Stop};

/// The extractive runtime. Sessions of one `Extractive` share the indexes of their sources.
pub struct Extractive {
    cpu: Arc<Cpu>,
    cache: Cache,
}

impl Extractive {
    /// A runtime without anything indexed. It uses as many cores as there are.
    pub fn new() -> Self {
        let cpu = Arc::new(Cpu::new());
        Self { cache: Cache::new(cpu.clone()), cpu }
    }
}

impl Default for Extractive {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl AgentRuntime for Extractive {
    fn name(&self) -> &'static str {
        "extractive"
    }

    fn check(&self, files: Option<&dyn Files>) -> Result<(), String> {
        if files.is_some_and(|files| !files.roots().is_empty()) {
            return Ok(());
        }
        Err("there is nothing to read: the built-in runtime answers from local sources. Name some with the option \
             --sources DIR, or with [[roots]] in guild.toml"
            .to_owned())
    }

    async fn run(&self, session: Session) -> SessionEnd {
        let (cancel, meter) = (session.cancel.clone(), session.meter.clone());
        let before = meter.turns();
        // Ends what it left running on other threads, whichever way this ends.
        let work = cancel.child_token();
        let _stop = work.clone().drop_guard();
        let deadline = tokio::time::Instant::from_std(meter.deadline());
        let done = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(Ending::Interrupted),
            () = tokio::time::sleep_until(deadline) => Err(Ending::Deadline),
            done = session::investigate(self, &session, &work) => done,
        };
        let (ending, text) = match done {
            Ok(report) => (Ending::Success, report),
            Err(ending) => (ending, String::new()),
        };
        let turns = meter.turns().saturating_sub(before);
        SessionEnd { ending, text, usage: Usage { turns, cost_usd: Some(0.0), ..Usage::default() } }
    }

    async fn condense(&self, memories: Vec<MemoryNote>, max_chars: usize) -> Result<String, String> {
        let done = self.cpu.run(&CancellationToken::new(), move || condense::condense(&memories, max_chars)).await;
        done.map_err(|stop| match stop {
            Stop::Cancelled => "cancelled".to_owned(),
            Stop::Failed(text) => text,
        })
    }
}
