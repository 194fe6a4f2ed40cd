//! Appends for the owner of a job: records are queued at once, and appended in order, one append at a time (rule 6).

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::{Notify, watch},
    time::{sleep, timeout},
};

use crate::{
    error::StoreError,
    link::Written,
    log::{After, Append, EVENTS_BYTES, JobName, Logs, after, describe},
    record::{Folded, Needs, Owner, Record},
    rules::Standing,
};

/// How long records wait for others.
const DELAY: Duration = Duration::from_millis(50);
/// Bytes of records that do not wait.
const FULL: usize = 64 * 1024;
/// Bytes of records that go into one append, at most, unless one record is larger.
const APPEND: usize = 256 * 1024;
/// How long one append is tried before the writer says that the store is away, and tries on.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause before it tries again.
const RETRY: Duration = Duration::from_millis(500);

/// The reason that an owner's records are not stored.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NotStored {
    /// The job is no longer this host's. None of the records that were not settled is stored.
    #[error("this host no longer holds the job: {}", describe(.0))]
    Lost(Standing<Owner>),
    /// The store did not answer in time. The records are still queued.
    #[error(transparent)]
    Store(StoreError),
}

/// Records that wait.
#[derive(Default)]
struct Queue {
    records: Vec<Record>,
    bytes: usize,
    /// The picture of the job as it is now.
    head: String,
    /// Whether the picture is not stored yet.
    head_changed: bool,
    events: Vec<String>,
    /// The append by which the host ends its hold, after all others. It is not divided.
    last: Option<Append>,
    /// The number of changes so far.
    changes: u64,
    /// Whether somebody waits.
    is_urgent: bool,
    is_closed: bool,
}

/// What is known of the records that were queued.
#[derive(Clone, Debug, Default)]
struct Progress {
    /// The number of changes that are stored.
    stored: u64,
    /// The sequence of the last append.
    tail: u64,
    /// The holder of the job, if that is no longer this host.
    lost: Option<Standing<Owner>>,
    /// The reason that the store takes nothing at the moment.
    away: Option<StoreError>,
}

struct Shared {
    queue: Mutex<Queue>,
    changed: Notify,
    /// Bytes of records that are queued for all jobs of the host.
    queued: Arc<AtomicUsize>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let bytes = self.queue().bytes;
        self.queued.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Appends to one job that this host holds. What is still queued when it is dropped is not stored.
pub struct Writer {
    shared: Arc<Shared>,
    progress: watch::Receiver<Progress>,
}

impl Writer {
    /// Appends to `job`, which was begun or taken by this host, and whose log ends with its tail. `head` is the picture of
    /// the job that its next append has.
    pub fn start(logs: Logs, name: JobName, job: &Folded, head: String, runtime: &Handle) -> Self {
        let queue = Mutex::new(Queue { head, ..Queue::default() });
        let queued = logs.queued().clone();
        let shared = Arc::new(Shared { queue, changed: Notify::new(), queued });
        let (send, progress) = watch::channel(Progress { tail: job.tail, ..Progress::default() });
        let appends = Appends {
            logs,
            name,
            standing: job.standing.clone(),
            needs: job.needs.clone(),
            shared: shared.clone(),
            progress: send,
        };
        runtime.spawn(appends.run());
        Self { shared, progress }
    }

    /// Queues a record. Returns at once.
    pub fn record(&self, record: Record) {
        self.shared.queued.fetch_add(record.size(), Ordering::Relaxed);
        self.change(|queue| {
            queue.bytes += record.size();
            queue.records.push(record);
        });
    }

    /// Sets the picture of the job: JSON of at most 2 KiB, which goes with the next append.
    pub fn show(&self, head: String) {
        self.change(|queue| {
            queue.head_changed |= queue.head != head;
            queue.head = head;
        });
    }

    /// Queues an event: JSON, which goes with the next append.
    pub fn announce(&self, event: String) {
        self.change(|queue| queue.events.push(event));
    }

    /// Ends the hold, by an end or by `free`: appends `last` after all that is queued, and waits until that is stored.
    ///
    /// # Errors
    ///
    /// Returns an error when the job was lost; nothing of `last` is stored then.
    pub async fn finish(&self, last: Append) -> Result<(), NotStored> {
        self.change(|queue| queue.last = Some(last));
        self.settled(None).await
    }

    /// The picture of the job as it is now.
    pub fn head(&self) -> String {
        self.shared.queue().head.clone()
    }

    fn change(&self, change: impl FnOnce(&mut Queue)) {
        let mut queue = self.shared.queue();
        change(&mut queue);
        queue.changes += 1;
        drop(queue);
        self.shared.changed.notify_one();
    }

    /// Bytes of records that are queued.
    pub fn queued_bytes(&self) -> usize {
        self.shared.queue().bytes
    }

    /// Waits until everything that was queued before is stored. It waits as long as the store is away, unless `patience`
    /// bounds it.
    ///
    /// # Errors
    ///
    /// Returns an error when the job was lost, or the patience ends; the records stay queued then.
    pub async fn settled(&self, patience: Option<Duration>) -> Result<(), NotStored> {
        let changes = {
            let mut queue = self.shared.queue();
            queue.is_urgent = true;
            queue.changes
        };
        self.shared.changed.notify_one();
        let mut progress = self.progress.clone();
        let stored = async {
            let is_known = |progress: &Progress| progress.stored >= changes || progress.lost.is_some();
            let known = progress.wait_for(is_known).await.map(|progress| progress.clone());
            match known {
                Ok(known) if known.stored >= changes => Ok(()),
                Ok(Progress { lost: Some(standing), .. }) => Err(NotStored::Lost(standing)),
                _ => Err(NotStored::Store(StoreError::Unreachable("the writer has ended".to_owned()))),
            }
        };
        match patience {
            None => stored.await,
            Some(patience) => timeout(patience, stored).await.unwrap_or_else(|_| {
                let away = self.progress.borrow().away.clone();
                let late = || StoreError::Unreachable(format!("no answer for {} s", patience.as_secs()));
                Err(NotStored::Store(away.unwrap_or_else(late)))
            }),
        }
    }

    /// Waits until the job is no longer this host's, and tells whose it is.
    pub async fn lost(&self) -> Standing<Owner> {
        let mut progress = self.progress.clone();
        match progress.wait_for(|progress| progress.lost.is_some()).await.map(|progress| progress.lost.clone()) {
            Ok(Some(standing)) => standing,
            // The writer has ended with the job's end.
            _ => std::future::pending().await,
        }
    }

    /// Whether the job is still this host's, as far as this writer knows.
    pub fn is_lost(&self) -> bool {
        self.progress.borrow().lost.is_some()
    }

    /// The sequence of the last append.
    pub fn tail(&self) -> u64 {
        self.progress.borrow().tail
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.queue().is_closed = true;
        self.shared.changed.notify_one();
    }
}

/// The task of a writer.
struct Appends {
    logs: Logs,
    name: JobName,
    standing: Standing<Owner>,
    needs: Needs,
    shared: Arc<Shared>,
    progress: watch::Sender<Progress>,
}

/// What one append takes out of the queue.
struct Batch {
    append: Append,
    /// The number of changes that are stored once this is.
    changes: u64,
    /// Whether this ends the hold.
    is_last: bool,
}

impl Appends {
    async fn run(mut self) {
        while self.wait().await {
            let Some(batch) = self.batch() else { continue };
            let is_last = batch.is_last;
            if !self.store(batch).await || is_last {
                return;
            }
        }
    }

    /// Waits until there is something to append. False when the writer is closed.
    async fn wait(&self) -> bool {
        let is_due = |queue: &Queue| queue.is_closed || queue.is_urgent || queue.bytes >= FULL;
        let is_empty = |queue: &Queue| {
            queue.records.is_empty() && queue.events.is_empty() && queue.last.is_none() && !queue.head_changed
        };
        loop {
            let (due, empty, closed) = {
                let queue = self.shared.queue();
                (is_due(&queue), is_empty(&queue), queue.is_closed)
            };
            if closed || due {
                return !closed;
            }
            if empty {
                self.shared.changed.notified().await;
                continue;
            }
            // Others may come within the delay; a full or urgent queue does not wait for its end.
            let full = async {
                while !is_due(&self.shared.queue()) {
                    self.shared.changed.notified().await;
                }
            };
            tokio::select! { () = full => {}, () = sleep(DELAY) => return true }
        }
    }

    /// Takes what fits into one append.
    fn batch(&self) -> Option<Batch> {
        let mut queue = self.shared.queue();
        let (mut records, mut bytes) = (0, 0);
        for record in &queue.records {
            if records > 0 && bytes + record.size() > APPEND {
                break;
            }
            (records, bytes) = (records + 1, bytes + record.size());
        }
        let (mut events, mut event_bytes) = (0, 0);
        for event in &queue.events {
            if events > 0 && event_bytes + event.len() + 1 > EVENTS_BYTES {
                break;
            }
            (events, event_bytes) = (events + 1, event_bytes + event.len() + 1);
        }
        let is_all = records == queue.records.len() && events == queue.events.len();
        if is_all && records == 0 && events == 0 && queue.last.is_none() && !queue.head_changed {
            queue.is_urgent = false;
            let changes = queue.changes;
            self.progress.send_modify(|progress| progress.stored = changes);
            return None;
        }
        let mut append = Append {
            records: queue.records.drain(..records).collect(),
            head: queue.head.clone(),
            events: queue.events.drain(..events).collect(),
        };
        queue.bytes = queue.bytes.saturating_sub(bytes);
        self.shared.queued.fetch_sub(bytes, Ordering::Relaxed);
        let before = self.progress.borrow().stored;
        if is_all {
            (queue.is_urgent, queue.head_changed) = (queue.last.is_some(), false);
        }
        let event_room = EVENTS_BYTES.saturating_sub(event_bytes);
        let last = queue.last.take_if(|last| is_all && last.events.iter().map(String::len).sum::<usize>() < event_room);
        let is_last = last.is_some();
        if let Some(last) = last {
            append.records.extend(last.records);
            append.events.extend(last.events);
            append.head = last.head;
        }
        // A part of the queue settles nothing that was queued later than the part.
        let is_all = is_all && queue.last.is_none();
        Some(Batch { append, changes: if is_all { queue.changes } else { before }, is_last })
    }

    /// Appends a batch, however long the store is away. False when the job is lost or the writer closed.
    async fn store(&mut self, batch: Batch) -> bool {
        let standing = after(self.standing.clone(), &batch.append.records);
        let after = After { standing: standing.clone(), needs: self.needs.clone() };
        let expected = self.progress.borrow().tail;
        // A write that is tried again keeps its id: under another one, this host would take its own append for a foreign one.
        let mut prepared = None;
        loop {
            if self.shared.queue().is_closed {
                return false;
            }
            let written = match &prepared {
                None => match self.logs.prepare(&self.name, expected, batch.append.clone(), &after).await {
                    Ok(write) => {
                        prepared = Some(write);
                        continue;
                    }
                    // Nothing of this host follows, so a message of another one has taken the job.
                    Err(_) if matches!(self.logs.read(&self.name).await, Ok(job) if job.tail > expected) => {
                        Ok(Written::Refused)
                    }
                    Err(error) => Err(error),
                },
                Some(write) => self.logs.write(write, PATIENCE).await,
            };
            match written {
                Ok(Written::Stored { sequence, is_overtaken }) => {
                    self.standing = standing;
                    self.progress.send_modify(|progress| {
                        (progress.stored, progress.tail, progress.away) = (batch.changes, sequence, None);
                    });
                    if is_overtaken && !batch.is_last {
                        self.lose().await;
                        return false;
                    }
                    return true;
                }
                Ok(Written::Refused) => {
                    self.lose().await;
                    return false;
                }
                Err(error) => {
                    tracing::warn!(job = %self.name.job, "the job's records wait: {error}");
                    self.progress.send_modify(|progress| progress.away = Some(error));
                    sleep(RETRY).await;
                }
            }
        }
    }

    /// Finds out who has the job, and says so.
    async fn lose(&self) {
        let standing = loop {
            match self.logs.read(&self.name).await {
                Ok(job) if job.tail > self.progress.borrow().tail => break job.standing,
                Ok(_) => sleep(DELAY).await,
                Err(error) => {
                    tracing::warn!(job = %self.name.job, "the job is lost, and its log cannot be read: {error}");
                    sleep(DELAY).await;
                }
            }
            if self.shared.queue().is_closed {
                break self.standing.clone();
            }
        };
        self.progress.send_modify(|progress| progress.lost = Some(standing));
    }
}
