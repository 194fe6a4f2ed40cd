//! Compaction: when the memories have grown too large, they are condensed into one (REQ-WD-26).
//!
//! It runs beside whoever stored the memory that was one too many, one at a time. It never loses what was written
//! meanwhile, and where it fails everything stays as it was: the next `store` tries again.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::future::BoxFuture;
use tokio::{runtime::Handle, task::spawn_blocking, time::timeout};

use crate::{
    activation::MemoryNote,
    memory::{COMPACTED, MemoryStore},
    sync::lock,
};

/// Condenses memories into one text of at most so many characters.
pub type Condenser = Arc<dyn Fn(Vec<MemoryNote>, usize) -> BoxFuture<'static, Result<String, String>> + Send + Sync>;

#[derive(Clone)]
pub(crate) struct Compactor {
    condense: Condenser,
    runtime: Handle,
}

/// The one compaction that is under way; however it ends, another may follow.
struct Underway(Arc<MemoryStore>);

impl Drop for Underway {
    fn drop(&mut self) {
        self.0.compacting.store(false, Ordering::Release);
    }
}

impl MemoryStore {
    /// Says who condenses memories, and where that runs. Without it, memories are never compacted.
    pub fn set_condenser(&self, condense: Condenser, runtime: Handle) {
        *lock(&self.compactor) = Some(Compactor { condense, runtime });
    }

    /// Whether a compaction is under way.
    pub fn is_compacting(&self) -> bool {
        self.compacting.load(Ordering::Acquire)
    }

    /// Starts a compaction if the memories are over `limits.memory_compaction_chars`; does not wait for it.
    pub(crate) fn compact_if_large(self: &Arc<Self>) {
        // Bytes are never fewer than characters, and need no reading.
        match self.total_bytes() {
            Ok(bytes) if bytes > self.limits().memory_compaction_chars => {}
            Ok(_) => return,
            Err(e) => return tracing::warn!("the memories cannot be read: {e}"),
        }
        let Some(Compactor { condense, runtime }) = lock(&self.compactor).clone() else { return };
        if self.compacting.swap(true, Ordering::AcqRel) {
            return;
        }
        let underway = Underway(self.clone());
        runtime.spawn(async move {
            match compact(&underway.0, condense).await {
                Ok(None) => {}
                Ok(Some(removed)) => tracing::info!("{removed} memories were condensed into {COMPACTED}.md"),
                Err(reason) => tracing::warn!("the memories stay as they are; condensing them failed: {reason}"),
            }
        });
    }
}

/// Condenses; `None` if that is not needed after all, else how many memories it replaced.
async fn compact(store: &Arc<MemoryStore>, condense: Condenser) -> Result<Option<usize>, String> {
    let snapshot = blocking(store, |store| store.see_all()).await?;
    let (seen, notes): (Vec<_>, Vec<_>) = snapshot.into_iter().unzip();
    let limits = store.limits();
    let size = notes.iter().map(|note| note.content.chars().count() as u64).sum::<u64>();
    if size <= limits.memory_compaction_chars {
        return Ok(None);
    }
    // Half of what is injected is left for what comes after it.
    let max = usize::try_from(limits.memory_injection_chars / 2).unwrap_or(usize::MAX);
    let patience = Duration::from_secs(limits.session_seconds.into());
    let text = timeout(patience, condense(notes, max)).await.map_err(|_| "it took too long".to_owned())??;
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
