//! Condenses memories into one when they have grown too large (REQ-WD-26, REQ-WKR-23).
//!
//! Compactions run in the background, one at a time, and never lose memories that are written meanwhile. If one fails,
//! all memories stay unchanged, and the next `store` tries again.

use std::{
    io::{self, Write as _},
    path::Path,
    sync::Arc,
};

use cap_std::fs::Dir;
use futures::future::BoxFuture;
use guild_contract::{Bounds, JobUsage, Usage};
use guild_fs::{
    durable::{append, if_there, read_whole},
    fingerprint::Fingerprint,
};
use guild_session::{activation::MemoryNote, meter::Account};
use serde::{Deserialize, Serialize};
use tokio::{runtime::Handle, task::spawn_blocking};

use super::{COMPACTED, MEMORY, MemoryStore, Seen, chars};
use crate::sync::lock;

/// Condenses memories into one text of at most so many characters, within bounds, and returns the usage.
pub type Condense = Arc<dyn Fn(Vec<MemoryNote>, usize, Bounds) -> BoxFuture<'static, Condensed> + Send + Sync>;

/// The outcome of condensing.
#[derive(Clone, Debug)]
pub struct Condensed {
    /// The condensed text, or the error.
    pub text: Result<String, String>,
    /// The usage.
    pub account: Account,
    /// The seconds that it took, without the time in the queue.
    pub seconds: f64,
}

/// Condenses a member's memories.
#[derive(Clone)]
pub struct Condenser {
    /// The name of the runtime.
    pub agent: String,
    /// The function that condenses.
    pub condense: Condense,
}

/// The file of `memory/` that records what compactions used: a line of JSON for each.
const LEDGER: &str = ".compactions.jsonl";
/// A ledger of more bytes is replaced by an empty one. A line has some 200 bytes.
const MAX_LEDGER_BYTES: u64 = 4 * 1024 * 1024;
/// The most text that is condensed at once, as a multiple of the threshold, even if a person added more. The rest is
/// condensed the next time.
const MOST: u64 = 4;
/// A note of fewer characters is not worth a session.
const LEAST_CHARS: u64 = 100;
/// Seconds that a compaction may take.
const PATIENCE: u32 = 300;

/// A line of the ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compaction {
    /// The time of its end: RFC 3339 in UTC.
    pub at: String,
    /// The usage.
    #[serde(flatten)]
    pub usage: JobUsage,
    /// The reason of its failure, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl MemoryStore {
    /// Sets the condenser of memories, and its runtime. Without it, memories are never compacted.
    pub fn set_condenser(&self, condenser: Condenser, runtime: Handle) {
        *lock(&self.condenser) = Some((condenser, runtime));
    }

    /// The usage of this memory's compactions, oldest first. `dir` is a member's directory.
    ///
    /// # Errors
    ///
    /// Returns an error when the ledger cannot be read.
    pub fn compactions(member: &Dir) -> io::Result<Vec<Compaction>> {
        let ledger = Path::new(MEMORY).join(LEDGER);
        let Some((text, _)) = read_whole(member, ledger, 2 * MAX_LEDGER_BYTES)? else { return Ok(Vec::new()) };
        Ok(text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
    }

    /// Records what a compaction used. A line that cannot be written is logged, since the cost is recorded nowhere
    /// else.
    fn record_usage(&self, agent: &str, condensed: &Condensed) {
        let Account { usage, models, .. } = condensed.account.clone();
        if usage == Usage::default() {
            return;
        }
        let wall_seconds = condensed.seconds;
        let usage = JobUsage { agent: agent.to_owned(), models, usage, wall_seconds, queued: false };
        let line = Compaction { at: self.now(), usage, error: condensed.text.as_ref().err().cloned() };
        let written = self.dir().and_then(|dir| {
            if Fingerprint::at(&dir, LEDGER)?.is_some_and(|ledger| ledger.size() > MAX_LEDGER_BYTES) {
                if_there(dir.remove_file(LEDGER))?;
            }
            let mut json = serde_json::to_vec(&line)?;
            json.push(b'\n');
            append(&dir, LEDGER)?.write_all(&json)
        });
        if let Err(e) = written {
            let used = serde_json::to_string(&line).unwrap_or_default();
            tracing::error!(file = LEDGER, used, "the usage of a compaction could not be recorded: {e}");
        }
    }

    /// Whether a compaction is under way.
    pub fn is_compacting(&self) -> bool {
        self.compacting.available_permits() == 0
    }

    /// Starts a compaction if the memories are over `limits.memory_compaction_chars`; does not wait for it. This is the
    /// rule for a member's own memories outside of commissions and meetings.
    pub fn compact_if_large(self: &Arc<Self>) {
        let limits = self.limits();
        let over = limits.memory_compaction_chars;
        // A text never has fewer bytes than characters, and the number of bytes is known without reading it.
        match self.total_bytes() {
            Ok(bytes) if bytes > over => {
                // Half of the injected characters is left for later memories.
                self.compact(Target {
                    over,
                    into: limits.memory_injection_chars / 2,
                    at_once: over.saturating_mul(MOST),
                });
            }
            Ok(_) => {}
            Err(e) => tracing::warn!("the memories cannot be read: {e}"),
        }
    }

    /// Starts a compaction of the notes of a scope that exceed its share, so that they take half of it; does not wait
    /// for it.
    pub(super) fn compact_to_share(self: &Arc<Self>, share: u64) {
        let into = share.min(self.limits().memory_injection_chars) / 2;
        if into >= LEAST_CHARS {
            self.compact(Target { over: into, into, at_once: share.saturating_mul(MOST) });
        }
    }

    fn compact(self: &Arc<Self>, target: Target) {
        let Some((condenser, runtime)) = lock(&self.condenser).clone() else { return };
        let Ok(permit) = self.compacting.clone().try_acquire_owned() else { return };
        let store = self.clone();
        runtime.spawn(async move {
            let _permit = permit;
            match compact(&store, condenser, target).await {
                Ok(None) => {}
                Ok(Some(removed)) => tracing::info!("{removed} memories were condensed into {COMPACTED}.md"),
                Err(reason) => tracing::warn!("the memories stay as they are; condensing them failed: {reason}"),
            }
        });
    }
}

/// The bounds of a compaction, in characters.
#[derive(Clone, Copy)]
struct Target {
    /// The size above which memories are condensed.
    over: u64,
    /// The greatest size of the condensed text.
    into: u64,
    /// The greatest size of the input.
    at_once: u64,
}

/// Condenses memories. Returns the number of replaced memories, or `None` if there was no need.
async fn compact(
    store: &Arc<MemoryStore>,
    condenser: Condenser,
    Target { over, into, at_once }: Target,
) -> Result<Option<usize>, String> {
    let Some(_alone) = blocking(store, |store| store.shelf.begin_compaction()).await? else { return Ok(None) };
    let snapshot = blocking(store, |store| store.see_all()).await?;
    let limits = store.limits();
    let mut room = at_once;
    let fits = |seen: &Seen| {
        // The new text replaces this one, and has to cover it.
        if seen.note.key == COMPACTED {
            return true;
        }
        let left = room.checked_sub(chars(&seen.note.content));
        left.inspect(|left| room = *left).is_some()
    };
    let seen: Vec<_> = snapshot.into_iter().filter(fits).collect();
    let notes: Vec<_> = seen.iter().map(|seen| seen.note.clone()).collect();
    let size = notes.iter().map(|note| chars(&note.content)).sum::<u64>();
    if size <= over {
        return Ok(None);
    }
    let max = usize::try_from(into).unwrap_or(usize::MAX);
    let bounds = Bounds {
        max_turns: Some(1),
        max_budget_usd: Some(limits.compaction_budget_usd),
        deadline_seconds: Some(PATIENCE.min(limits.session_seconds)),
    };
    let condensed = (condenser.condense)(notes, max, bounds).await;
    let used = condensed.clone();
    blocking(store, move |store| {
        store.record_usage(&condenser.agent, &used);
        Ok(())
    })
    .await?;
    let text = condensed.text?;
    let length = text.chars().count();
    if text.trim().is_empty() {
        return Err("its output is empty".to_owned());
    }
    if length > max {
        return Err(format!("its output has {length} characters, more than {max}"));
    }
    blocking(store, move |store| store.replace_seen(&seen, &text)).await.map(Some)
}

async fn blocking<T: Send + 'static>(
    store: &Arc<MemoryStore>,
    work: impl FnOnce(&MemoryStore) -> std::io::Result<T> + Send + 'static,
) -> Result<T, String> {
    let store = store.clone();
    let done = spawn_blocking(move || work(&store)).await;
    done.map_err(|e| e.to_string())?.map_err(|e| e.to_string())
}
