//! The built-in runtime: a search of the granted sources, without a model and without a network, that quotes passages.
//!
//! It works in turns and through the same tools as a session with a model: it updates the summary, records a decision
//! where it leaves questions out, logs the open questions, stores a memory, and submits a report. It does not reason: the
//! report quotes the passages that have most of a question's words (`search.rs`), and says where they have only some of
//! them or none. It reads the granted local files only, also where its session has WebSearch and WebFetch, since choosing
//! pages takes a model. It reads a system prompt only for the figures that a worker computed (`figures.rs`).
//!
//! A session that a host restart interrupted runs again from the start. The same task over the same sources makes the
//! same calls, under the same ids, so each call has its effect once.
//!
//! In a conversation it looks up each message by itself, and says so.

mod cache;
mod condense;
mod converse;
mod corpus;
mod extract;
mod figures;
mod index;
mod local;
mod reader;
mod report;
mod search;
mod session;
mod task;
mod words;

use std::sync::Arc;

use async_trait::async_trait;
use guild_confine::Bounds;
use guild_contract::Limits;
use guild_session::{
    activation::MemoryNote,
    files::Files,
    meter::Meter,
    session::{AgentRuntime, Session, SessionEnd, Wanted},
    transcript::Entry,
};

use cache::Cache;
use corpus::blocking;

pub use local::LocalSearch;
pub use reader::DOCUMENT_TASK;

/// The extractive runtime. Sessions of one `Extractive` share the indexes of their sources.
pub struct Extractive {
    cache: Arc<Cache>,
}

impl Extractive {
    /// A runtime without anything indexed, with the default limits.
    pub fn new() -> Self {
        Self::with_limits(&Limits::default())
    }

    /// A runtime without anything indexed. It reads each document within these limits.
    pub fn with_limits(limits: &Limits) -> Self {
        let document = Bounds { seconds: limits.document_seconds, memory_bytes: limits.document_memory_bytes };
        Self { cache: Arc::new(Cache::new(document)) }
    }

    /// A search of these files, with what this runtime has indexed.
    pub fn search(&self, files: Arc<dyn Files>) -> LocalSearch {
        LocalSearch::new(self.cache.clone(), files)
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

    fn check(&self, wanted: &Wanted<'_>) -> Result<(), String> {
        if wanted.later {
            return Ok(());
        }
        if wanted.files.is_some_and(|files| !files.roots().is_empty()) {
            return Ok(());
        }
        Err("there is nothing to read: the built-in runtime answers from local sources. Name some with the option \
             --sources DIR, or with [[roots]] in guild.toml"
            .to_owned())
    }

    fn check_model(&self, _model: &str) -> Result<(), String> {
        Err("cannot be asked for, since the built-in search has no model; `agent` in guild.toml chooses a runtime that has"
            .to_owned())
    }

    fn can_resume(&self, _history: &[Entry]) -> Result<(), String> {
        Ok(())
    }

    async fn run(&self, session: Session) -> SessionEnd {
        // Dropping the guard stops work on other threads.
        let work = session.cancel.child_token();
        let _stop = work.clone().drop_guard();
        let answer = async {
            match session.converses {
                true => converse::converse(&self.cache, &session, &work).await,
                false => session::investigate(&self.cache, &session, &work).await,
            }
        };
        session.carry_out(answer).await
    }

    /// Condenses by rule, which costs nothing.
    async fn condense(
        &self,
        memories: Vec<MemoryNote>,
        max_chars: usize,
        _meter: Arc<Meter>,
    ) -> Result<String, String> {
        let done = blocking(move || condense::condense(&memories, max_chars)).await;
        done.map_err(|_| "condensing the memories broke off".to_owned())
    }
}
