//! Locks and grouped work.

use std::{
    io,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

/// Locks, also after a panic elsewhere: what these locks guard is replaced whole, never left half-changed.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets callers that want the same costly thing at the same time share one run of it: the first becomes the
/// leader, those who come while it works share the next run.
#[derive(Debug, Default)]
pub(crate) struct Group {
    tickets: Mutex<Tickets>,
    turned: Condvar,
}

#[derive(Debug, Default)]
struct Tickets {
    drawn: u64,
    served: u64,
    leading: bool,
}

impl Group {
    /// Returns when a run of `work` that began after this call has succeeded, or with the error of the
    /// caller's own run.
    pub(crate) fn share(&self, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut tickets = lock(&self.tickets);
        tickets.drawn += 1;
        let mine = tickets.drawn;
        loop {
            if tickets.served >= mine {
                return Ok(());
            }
            if !tickets.leading {
                break;
            }
            tickets = self.turned.wait(tickets).unwrap_or_else(PoisonError::into_inner);
        }
        tickets.leading = true;
        let covered = tickets.drawn;
        drop(tickets);
        let done = work();
        let mut tickets = lock(&self.tickets);
        tickets.leading = false;
        if done.is_ok() {
            tickets.served = covered;
        }
        self.turned.notify_all();
        done
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    };

    use super::*;

    #[test]
    fn those_who_come_while_the_leader_works_share_one_run() {
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
        let barrier = Arc::new(Barrier::new(8));
        let followers: Vec<_> = (0..8)
            .map(|_| {
                let (group, runs, barrier) = (group.clone(), runs.clone(), barrier.clone());
                std::thread::spawn(move || {
                    barrier.wait();
                    group.share(|| {
                        runs.fetch_add(1, Ordering::SeqCst);
                        Ok(())
                    })
                })
            })
            .collect();
        while lock(&group.tickets).drawn < 9 {
            std::thread::yield_now();
        }
        release.0.send(()).unwrap();
        leader.join().unwrap().unwrap();
        followers.into_iter().for_each(|f| f.join().unwrap().unwrap());
        assert_eq!(runs.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn a_failed_run_serves_nobody() {
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
