//! Manages the token of a private host, and the locks of the clients that use it.
//!
//! A private host is a `guild serve` that `guild mcp` starts for itself. Each request needs its token, which is in the
//! file `mcp-PORT`; only the user can open that file. A client holds a shared lock on the file for as long as it uses
//! the host. The system releases the lock when the process ends, even by SIGKILL, so the host has no client once it
//! gets the exclusive lock.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use guild_config::directories;
use guild_contract::{secret::Secret, text::hex};
use guild_fs::own_directory;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::tokens::{digest, random};

/// The prefix of a private host's file; the port follows.
const PREFIX: &str = "mcp-";
/// The maximum length of a token in a file.
const MAX_BYTES: u64 = 1024;
/// The mode of the files.
const FILE_MODE: u32 = 0o600;

/// A private host, in its own process.
#[derive(Debug)]
pub struct PrivateHost {
    sha256: [u8; 32],
    path: PathBuf,
    file: File,
}

impl PrivateHost {
    /// Makes the token of the host at `port`, which this process must have bound.
    ///
    /// # Errors
    ///
    /// Returns an error when the file cannot be written; the text names it.
    pub fn create(port: u16) -> io::Result<Self> {
        let directory = directory()?;
        remove_unused(&directory);
        let path = directory.join(format!("{PREFIX}{port}"));
        let failed = |e: io::Error| at(&path, e);
        Self::create_at(path.clone()).map_err(failed)
    }

    fn create_at(path: PathBuf) -> io::Result<Self> {
        // The file has the token and a lock before it has its name.
        let new = path.with_extension("new");
        if let Err(e) = fs::remove_file(&new)
            && e.kind() != io::ErrorKind::NotFound
        {
            return Err(e);
        }
        let token = random()?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&new)?;
        file.lock_shared()?;
        file.write_all(token.expose().as_bytes())?;
        fs::rename(&new, &path)?;
        Ok(Self { sha256: digest(token.expose().as_bytes()), path, file })
    }

    /// Whether a presented token is the host's.
    pub(crate) fn has_token(&self, presented: &[u8]) -> bool {
        self.sha256.ct_eq(&digest(presented)).into()
    }

    /// Waits until no client uses the host. After that, no client can start to use it.
    ///
    /// # Errors
    ///
    /// Returns an error when the system cannot lock the file.
    pub fn wait_until_unused(&self) -> io::Result<()> {
        self.file.lock()
    }

    /// Removes the token when the host has ended.
    pub fn guard(self: &Arc<Self>) -> TokenGuard {
        TokenGuard(self.clone())
    }
}

/// Removes the token of a private host when it is dropped.
#[derive(Debug)]
pub struct TokenGuard(Arc<PrivateHost>);

impl Drop for TokenGuard {
    fn drop(&mut self) {
        remove(&self.0.path, &self.0.file);
    }
}

/// The use of a private host by this process; the host runs at least until it is dropped.
#[derive(Debug)]
pub struct Lease(File);

/// The result of joining the host at a port.
#[derive(Debug)]
pub enum Joined {
    /// It is not a private host.
    NotPrivate,
    /// It is a private host that is ending.
    Ending,
    /// It is a private host, which this process now uses.
    Client(Lease),
}

impl Lease {
    /// Joins the host at `port`, if it is private.
    ///
    /// # Errors
    ///
    /// Returns an error when the file cannot be opened or locked.
    pub fn join(port: u16) -> io::Result<Joined> {
        let Some(file) = open(port)? else { return Ok(Joined::NotPrivate) };
        match file.try_lock_shared() {
            Ok(()) => Ok(Joined::Client(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(Joined::Ending),
            Err(TryLockError::Error(e)) => Err(e),
        }
    }

    /// Ends the use, and returns whether no other client uses the host.
    pub fn end(self) -> bool {
        self.0.try_lock().is_ok()
    }
}

/// The token of the private host at `port`; `None` if that is not a private host of this user.
pub fn token(port: u16) -> Option<Secret> {
    let mut token = String::new();
    let file = open(port).ok()??;
    // No process locks the file of a host that was killed.
    if file.try_lock().is_ok() {
        return None;
    }
    file.take(MAX_BYTES).read_to_string(&mut token).ok()?;
    Some(token.into())
}

/// Waits until no other process starts a private host for these members. Dropping the file releases the lock.
///
/// # Errors
///
/// Returns an error when the file cannot be created or locked; the text names it.
pub fn lock_start(members: &Path) -> io::Result<File> {
    let members = members.canonicalize().map_err(|e| at(members, e))?;
    let name = hex(&Sha256::digest(members.as_os_str().as_encoded_bytes()));
    let path = directory()?.join(format!("start-{name}"));
    let open = OpenOptions::new().write(true).create(true).truncate(false).mode(FILE_MODE).open(&path);
    let file = open.map_err(|e| at(&path, e))?;
    match file.try_lock() {
        Ok(()) => return Ok(file),
        Err(TryLockError::WouldBlock) => {
            tracing::info!("another process starts a host of {}, and this one waits for it", members.display());
        }
        Err(TryLockError::Error(e)) => return Err(at(&path, e)),
    }
    file.lock().map_err(|e| at(&path, e))?;
    Ok(file)
}

/// The file of the host at `port`, if there is one.
fn open(port: u16) -> io::Result<Option<File>> {
    let Some(directory) = directories::running() else { return Ok(None) };
    match File::open(directory.join(format!("{PREFIX}{port}"))) {
        Ok(file) => Ok(Some(file)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// The directory of the files, created if it is missing.
fn directory() -> io::Result<PathBuf> {
    let none = || io::Error::other("there is no directory for the token of a private host; set HOME");
    let directory = directories::running().ok_or_else(none)?;
    own_directory::create(&directory)?;
    Ok(directory)
}

/// Removes the files of hosts that were killed: no process holds a lock on them.
fn remove_unused(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let port = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u16>().ok());
        let Some(file) = port.and_then(|_| File::open(entry.path()).ok()) else { continue };
        if file.try_lock().is_ok() {
            remove(&entry.path(), &file);
        }
    }
}

/// Removes a file that this process has locked, unless another file has its name now.
fn remove(path: &Path, file: &File) {
    let is_named = || -> io::Result<bool> {
        let (named, own) = (fs::symlink_metadata(path)?, file.metadata()?);
        Ok((named.dev(), named.ino()) == (own.dev(), own.ino()))
    };
    if is_named().unwrap_or(false) {
        let _ = fs::remove_file(path);
    }
}

/// Adds the path to an error.
fn at(path: &Path, e: io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("{}: {e}", path.display()))
}
