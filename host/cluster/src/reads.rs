//! Lets a request see all that was stored before it, at whichever host that was.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Mutex, watch};

use crate::{error::StoreError, link::Link, streams::LOG};

/// How far this host has heard of jobs, compared with how far their stream is.
pub struct Reads {
    link: Link,
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
    /// Nothing was heard yet.
    pub fn new(link: Link) -> Self {
        Self { link, heard: watch::Sender::new(0), asked: AtomicU64::new(0), last: Mutex::default() }
    }

    /// Where a [`Jobs`](crate::watch::Jobs) tells how far it is.
    pub fn heard(&self) -> watch::Sender<u64> {
        self.heard.clone()
    }

    /// Waits until this host has heard of all that was stored before this call. The leader of the stream says how far
    /// that is; one question is asked for all callers who came before it.
    ///
    /// # Errors
    ///
    /// Returns an error when the stream cannot be asked.
    pub async fn all_of_now(&self) -> Result<(), StoreError> {
        let before = self.asked.load(Ordering::SeqCst);
        let sequence = {
            let mut last = self.last.lock().await;
            if last.question <= before {
                let question = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
                *last = Answer { question, sequence: self.link.last_sequence(LOG).await? };
            }
            last.sequence
        };
        // The sender is this, so there is an end only with it.
        let _ = self.heard.subscribe().wait_for(|heard| *heard >= sequence).await;
        Ok(())
    }
}
