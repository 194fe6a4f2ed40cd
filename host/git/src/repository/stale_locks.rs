//! Removes lock files that a killed run left behind.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use tokio::time::sleep;

use crate::error::GitError;

/// Waits until a lock file of the host's refs is gone, and removes it once no run can hold it any more: a killed run
/// leaves it behind, and git would refuse to work for ever.
pub(crate) async fn free(lock: &Path, longest_run: Duration) -> Result<(), GitError> {
    let since = Instant::now();
    while let Ok(about) = lock.symlink_metadata() {
        let age = about.modified().ok().and_then(|modified| modified.elapsed().ok()).unwrap_or_default();
        if age.max(since.elapsed()) > longest_run {
            tracing::warn!(lock = %lock.display(), "removed a lock file that a run of git left behind");
            return fs::remove_file(lock).map_err(|source| GitError::File { path: lock.to_owned(), source });
        }
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
