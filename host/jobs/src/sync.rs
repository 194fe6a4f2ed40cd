//! Locks and grouped work.

use std::{
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
};

/// Locks, also after a panic elsewhere: what these locks guard is replaced whole, never left half-changed.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does `work` on each item, in so many threads at most.
pub(crate) fn in_threads<T: Sync, R: Send>(threads: usize, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (share, work) = (items.len().div_ceil(threads).max(1), &work);
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            items.chunks(share).map(|items| scope.spawn(|| items.iter().map(work).collect::<Vec<_>>())).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    })
}

/// Lets callers that want the same costly thing at the same time share one run of it: the first becomes the
/// leader, those who come while it works share the next run.
#[derive(Debug, Default)]
pub(crate) struct Group {
    turns: Mutex<Turns>,
    turned: Condvar,
}

#[derive(Debug, Default)]
struct Turns {
    /// The run that those who come now share.
    next: Arc<Run>,
    /// Whether a run is under way.
    leading: bool,
}

/// How one run went, once it is over.
#[derive(Debug, Default)]
struct Run(OnceLock<Result<(), (io::ErrorKind, String)>>);

impl Group {
    /// Returns how a run of `work` went that began after this call. All that shared a run that failed are told so: a
    /// second sync of what the first could not write would succeed, and mean nothing.
    pub(crate) fn share(&self, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut turns = lock(&self.turns);
        let mine = turns.next.clone();
        loop {
            if let Some(outcome) = mine.0.get() {
                return outcome.clone().map_err(|(kind, text)| io::Error::new(kind, text));
            }
            if !turns.leading {
                break;
            }
            turns = self.turned.wait(turns).unwrap_or_else(PoisonError::into_inner);
        }
        turns.leading = true;
        turns.next = Arc::default();
        drop(turns);
        let done = work();
        // Nobody else leads this run, so nothing was said of it yet.
        let _ = mine.0.set(done.as_ref().copied().map_err(|e| (e.kind(), e.to_string())));
        lock(&self.turns).leading = false;
        self.turned.notify_all();
        done
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    };

    use super::*;

    /// A run that waits to be let go, and eight that come while it works; gives what the eight were told, and how
    /// often the work ran.
    fn crowd(outcome: fn() -> io::Result<()>) -> (Vec<io::Result<()>>, usize) {
        let (group, runs) = (Arc::new(Group::default()), Arc::new(AtomicUsize::new(0)));
        let (entered, release) = (mpsc::channel(), mpsc::channel::<()>());
        let leader = std::thread::spawn({
            let (group, runs, entered, release) = (group.clone(), runs.clone(), entered.0, release.1);
            move || {
                group.share(|| {
                    entered.send(()).unwrap();
                    release.recv().unwrap();
                    runs.fetch_add(1, Ordering::SeqCst);
                    Ok(())
                })
            }
        });
        entered.1.recv().unwrap();
        let followers: Vec<_> = (0..8)
            .map(|_| {
                let (group, runs) = (group.clone(), runs.clone());
                std::thread::spawn(move || {
                    group.share(|| {
                        runs.fetch_add(1, Ordering::SeqCst);
                        outcome()
                    })
                })
            })
            .collect();
        while Arc::strong_count(&lock(&group.turns).next) < 9 {
            std::thread::yield_now();
        }
        release.0.send(()).unwrap();
        leader.join().unwrap().unwrap();
        let told = followers.into_iter().map(|follower| follower.join().unwrap()).collect();
        (told, runs.load(Ordering::SeqCst))
    }

    #[test]
    fn those_who_come_while_the_leader_works_share_one_run() {
        let (told, runs) = crowd(|| Ok(()));
        assert!(told.iter().all(Result::is_ok));
        assert_eq!(runs, 2);
    }

    #[test]
    fn all_who_share_a_run_that_fails_are_told_so() {
        let (told, runs) = crowd(|| Err(io::Error::new(io::ErrorKind::StorageFull, "full")));
        assert!(told.iter().all(|told| told.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::StorageFull)));
        assert_eq!(runs, 2);
    }

    #[test]
    fn who_comes_after_a_failure_has_a_run_of_its_own() {
        let group = Group::default();
        assert!(group.share(|| Err(io::Error::other("no"))).is_err());
        let mut ran = false;
        group
            .share(|| {
                ran = true;
                Ok(())
            })
            .unwrap();
        assert!(ran);
    }
}
