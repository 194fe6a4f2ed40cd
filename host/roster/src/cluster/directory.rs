//! The directory of a host of a cluster beside `guild.toml`, in which one process is the host.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use guild_cluster::record::Owner;
use guild_config::Config;
use guild_fs::{
    durable::{Survives, if_there, open_dir, open_directory, read_whole, replace},
    file_lock::FileLock,
};

/// The directory of a host beside `guild.toml`; the host's name follows.
const DIRECTORY: &str = "guild.cluster";
/// The file in it that is locked.
const LOCK: &str = "lock";
/// The file in it with its id.
const ID: &str = "id";
/// The file in it with the id of the process that has the lock.
const PROCESS: &str = "pid";

/// The process of the host that a configuration describes, if it runs.
///
/// # Errors
///
/// Returns a sentence when the host's own directory cannot be read.
pub fn running_host(config: &Config) -> Result<Option<u32>, String> {
    let cluster = config.cluster.as_ref().ok_or("guild.toml has no [cluster]")?;
    let directory = config.directory.as_deref().ok_or("[cluster]: there is no configuration directory")?;
    let own = directory.join(DIRECTORY).join(&cluster.host);
    let failed = |e: io::Error| format!("[cluster]: {}: {e}", own.display());
    let opened = open_directory(&own).and_then(|dir| open_dir(&dir, "."));
    let Some(dir) = if_there(opened).map_err(failed)? else { return Ok(None) };
    let dir = Arc::new(dir);
    if FileLock::try_acquire(&dir, LOCK).map_err(failed)?.is_some() {
        return Ok(None);
    }
    let process = read_whole(&dir, PROCESS, 64).map_err(failed)?;
    Ok(process.and_then(|(process, _)| str::from_utf8(&process).ok()?.trim().parse().ok()))
}

/// The lock of the host's own directory, the directory, and its id: whoever has the lock knows that earlier hosts with it
/// have ended.
pub(super) fn own_directory(directory: Option<&Path>, host: &str) -> Result<(FileLock, PathBuf, String), String> {
    let directory = directory.ok_or("[cluster]: there is no configuration directory; name a guild.toml")?;
    let own = directory.join(DIRECTORY).join(host);
    let failed = |e: io::Error| format!("[cluster]: {}: {e}", own.display());
    fs::create_dir_all(&own).map_err(failed)?;
    // With read access, so that a rename in it can be synced.
    let dir = open_directory(&own).and_then(|dir| open_dir(&dir, "."));
    let dir = Arc::new(dir.map_err(failed)?);
    let lock = FileLock::try_acquire(&dir, LOCK).map_err(failed)?;
    let lock = lock.ok_or_else(|| {
        format!("[cluster]: another process is the host {host:?}; give each host its own `host` in [cluster]")
    })?;
    replace(&dir, PROCESS, format!("{}\n", std::process::id()).as_bytes(), Survives::Process).map_err(failed)?;
    let id = read_whole(&dir, ID, 256).map_err(failed)?.map(|(id, _)| String::from_utf8_lossy(&id).trim().to_owned());
    if let Some(id) = id.filter(|id| !id.is_empty()) {
        return Ok((lock, own, id));
    }
    let id = Owner::new(host).incarnation;
    replace(&dir, ID, format!("{id}\n").as_bytes(), Survives::PowerCut).map_err(failed)?;
    Ok((lock, own, id))
}
