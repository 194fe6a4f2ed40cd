//! Lets a request see all that was stored before it, at whichever host that was.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::{
    sync::{Mutex, watch},
    time::{sleep, timeout},
};

use crate::{link::Link, streams::LOG};

/// How long an answer is waited for, and the pause before the next question.
const ANSWER: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(100);

/// How far this host has followed a stream, compared with how far the stream is.
pub struct Reads {
    link: Link,
    stream: &'static str,
    /// The last sequence of which this host has heard, with all before it.
    heard: watch::Sender<u64>,
    /// The number of questions that were asked.
    asked: AtomicU64,
    last: Mutex<Answer>,
}

/// The last sequence of the stream when a question was asked.
#[derive(Default)]
struct Answer {
    question: u64,
    sequence: u64,
}

impl Reads {
    /// Of the logs of jobs.
    pub fn of_jobs(link: Link) -> Self {
        Self::new(link, LOG)
    }

    /// The host has heard nothing of this stream yet.
    pub(crate) fn new(link: Link, stream: &'static str) -> Self {
        Self { link, stream, heard: watch::Sender::new(0), asked: AtomicU64::new(0), last: Mutex::default() }
    }

    /// Where the host's watch of the stream tells how far it is.
    pub(crate) fn heard(&self) -> watch::Sender<u64> {
        self.heard.clone()
    }

    /// Waits until this host has heard of all that was stored before this call, as long as that takes. The leader of the
    /// stream says how far that is; one question is asked for all callers who came before it. A leader that its followers
    /// have left without its knowledge may answer with too little: one behind a partition between NATS servers, or for a
    /// moment one that stood still.
    pub async fn all_of_now(&self) {
        let before = self.asked.load(Ordering::SeqCst);
        let sequence = {
            let mut last = self.last.lock().await;
            if last.question <= before {
                let question = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
                *last = Answer { question, sequence: self.ask().await };
            }
            last.sequence
        };
        // The sender is this, so there is an end only with it.
        let _ = self.heard.subscribe().wait_for(|heard| *heard >= sequence).await;
    }

    /// Asks for the last sequence of the stream until there is an answer: after the death of a leader, the next one does
    /// not know what its clients have asked before.
    async fn ask(&self) -> u64 {
        loop {
            if let Ok(Ok(sequence)) = timeout(ANSWER, self.link.last_sequence(self.stream)).await {
                return sequence;
            }
            sleep(PAUSE).await;
        }
    }
}
