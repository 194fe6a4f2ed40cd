//! Provides helpers for locks and threads.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also after a panic of another thread, since the data of these mutexes is always consistent.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does `work` on each item, in at most `threads` threads.
pub(crate) fn in_threads<T: Sync, R: Send>(threads: usize, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (share, work) = (items.len().div_ceil(threads).max(1), &work);
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            items.chunks(share).map(|items| scope.spawn(|| items.iter().map(work).collect::<Vec<_>>())).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    })
}
