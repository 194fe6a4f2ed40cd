//! Appends to the log and the transcript of a running job, and reads the transcript of a resumed one.

use std::{future::pending, io};

use async_trait::async_trait;
use guild_contract::{Limits, text::visible};
use guild_session::{
    tools::ToolError,
    transcript::{self, Entry, Line},
};
use tokio::{sync::watch, task::spawn_blocking};

use super::RunningJob;
use crate::{
    files::{
        journal::{End, Position},
        record::{self, LOG, TRANSCRIPT},
    },
    sync::lock,
};

impl RunningJob {
    /// The entries of its sessions from before its host stopped, from its transcript.
    ///
    /// # Errors
    ///
    /// Returns an error when the transcript cannot be read.
    pub fn history(&self) -> io::Result<Vec<Line>> {
        self.history_since(Position::default())
    }

    /// Like [`Self::history`], from a position at the start of a line.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::history`].
    pub fn history_since(&self, at: Position) -> io::Result<Vec<Line>> {
        Ok(record::read_transcript(&self.dir()?, &self.limits, at)?.unwrap_or_default())
    }

    /// Appends a line to the job's log, until the log is full or the job ends. A line that contains newlines or
    /// terminal escapes is written as one line without them.
    pub fn log(&self, line: &str) {
        let line = format!("{} {}", self.context.now(), visible(line));
        let mut log = lock(&self.log);
        let written = log.append(&self.context.jobs, line, |end| match end {
            End::Full(limit) => {
                let cited = Limits::cited("log_bytes");
                format!("(the log reached {cited}, {limit} bytes; what followed was dropped)")
            }
            End::Unwritten => "(a line of the log could not be written; what followed was dropped)".to_owned(),
        });
        self.add(LOG, written);
    }

    /// Appends an entry to the job's `transcript.jsonl`, until it is full or the job ends.
    pub fn transcript(&self, entry: &Entry) {
        let line = |entry: &Entry| {
            // Serializing cannot fail: an entry has only texts, numbers and JSON.
            serde_json::to_string(&Line { at: self.context.now(), entry: entry.clone() }).unwrap_or_default()
        };
        let mut transcript = lock(&self.transcript);
        let written = transcript.append(&self.context.jobs, line(entry), |end| {
            let text = match end {
                End::Full(limit) => format!("the transcript reached limits.transcript_bytes, {limit} bytes"),
                End::Unwritten => "a line of the transcript could not be written, as the host's log says".to_owned(),
            };
            line(&Entry::Truncated { text: format!("{text}; what followed was dropped") })
        });
        self.add(TRANSCRIPT, written);
        self.written.send_replace(transcript.end(&self.context.jobs));
    }

    /// Whether its transcript drops further entries: it reached `limits.transcript_bytes`, or could not be written.
    pub fn is_transcript_over(&self) -> bool {
        lock(&self.transcript).drops_lines()
    }

    /// Makes its transcript survive a power cut.
    ///
    /// # Errors
    ///
    /// Returns an error when the transcript cannot be written.
    pub fn sync_transcript(&self) -> io::Result<()> {
        lock(&self.transcript).sync(&self.context.jobs)
    }

    /// Waits until the job has to be given back, since its host is about to stop. A host on its own gives no job back.
    pub async fn recalled(&self) {
        match &self.hold {
            Some(hold) => hold.recalled().await,
            None => pending().await,
        }
    }

    /// Waits until the host is about to stop, and gives the job back, of which nothing may run here.
    pub async fn given_back(&self) {
        self.recalled().await;
        // It gives the job back, and says so by an error.
        let _ = transcript::Journal::before_turn(self).await;
    }

    /// The end of its transcript. It signals each line that is written, and the end of the job.
    pub fn written(&self) -> watch::Receiver<Position> {
        self.written.subscribe()
    }
}

#[async_trait]
impl transcript::Journal for RunningJob {
    fn write(&self, entry: &Entry) {
        self.transcript(entry);
    }

    fn log(&self, line: &str) {
        Self::log(self, line);
    }

    async fn settled(&self) -> Result<(), ToolError> {
        Ok(Self::settled(self).await?)
    }

    async fn before_turn(&self) -> Result<(), ToolError> {
        let (Some(hold), Some(store)) = (&self.hold, self.store.upgrade()) else { return Ok(()) };
        if hold.may_go_on().await {
            return Ok(());
        }
        let id = self.id().clone();
        // All jobs of the host may do this at once, which is no reason to take all threads of the runtime.
        let _ = spawn_blocking(move || store.give_back(&id)).await;
        // A job that could not be given back waits for the end of this host.
        self.cancelled().cancelled().await;
        Err(ToolError::JobEnded)
    }
}
