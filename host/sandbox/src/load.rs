//! From a file to a compiled component.

use std::{
    collections::HashSet,
    io::Read,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

use bytes::Bytes;
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use guild_audit::inspect::{self, Outside};
use guild_contract::{Limits, text::hex};
use rustix::fs::OFlags;
use sha2::{Digest, Sha256};
use wasmtime::component::Component;

use crate::{
    engine::{INSTANCE_BYTES, Sandbox},
    error::LoadError,
    reason,
};

/// A component that may be loaded: its bytes, read once, so that what is approved is what is compiled.
pub struct Candidate {
    /// The file's bytes.
    pub bytes: Bytes,
    /// Their SHA-256.
    pub sha256: [u8; 32],
    /// What they import and export.
    pub outside: Outside,
}

impl Candidate {
    /// Reads a component's file, of at most `max` bytes.
    ///
    /// # Errors
    /// Where the file cannot be read, is too large, or is no component.
    pub fn read(member: &Dir, file: &str, max: u64) -> Result<Self, LoadError> {
        Self::of(read(member, file, max)?)
    }

    /// The SHA-256 in lower-case hexadecimal, as `sha256sum` prints it.
    pub fn hash(&self) -> String {
        hex(&self.sha256)
    }

    /// A candidate of these bytes.
    ///
    /// # Errors
    /// Where they are no component.
    pub fn of(bytes: Vec<u8>) -> Result<Self, LoadError> {
        let outside = inspect::outside(&bytes)?;
        Ok(Self { sha256: Sha256::digest(&bytes).into(), outside, bytes: bytes.into() })
    }
}

/// Reads a component's file: a regular one inside the member's directory, and not larger than `max`.
fn read(member: &Dir, file: &str, max: u64) -> Result<Vec<u8>, LoadError> {
    let failed = |why: String| LoadError::Read { file: file.to_owned(), why };
    let mut options = OpenOptions::new();
    // A pipe in its place is opened without waiting for a writer, and refused.
    options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let opened = member.open_with(file, &options).map_err(|e| failed(e.kind().to_string()))?;
    let found = opened.metadata().map_err(|e| failed(e.kind().to_string()))?;
    if !found.is_file() {
        return Err(failed("it is not a regular file".to_owned()));
    }
    // The size that was found is only a hint: what counts is what is read.
    let mut bytes = Vec::with_capacity(usize::try_from(found.len().min(max)).unwrap_or_default());
    opened.take(max.saturating_add(1)).read_to_end(&mut bytes).map_err(|e| failed(e.kind().to_string()))?;
    if bytes.len() as u64 > max {
        return Err(LoadError::TooLarge { file: file.to_owned(), max });
    }
    Ok(bytes)
}

/// Compiles, one component at a time. A compilation cannot be interrupted, but it is waited for no longer than the
/// limit; one that was given up no longer holds the others up, and as long as it goes on, the same is not begun again.
pub(crate) fn compile(sandbox: &Sandbox, candidate: &Candidate) -> Result<Component, LoadError> {
    let _lane = sandbox.lanes.compiles.lock().unwrap_or_else(PoisonError::into_inner);
    let seconds = sandbox.limits.compile_seconds;
    let Some(compiling) = Compiling::begin(&sandbox.compiling, candidate.sha256) else {
        return Err(LoadError::CompileTimeout(seconds));
    };
    let (engine, bytes) = (sandbox.engine.clone(), candidate.bytes.clone());
    let (done, compiled) = mpsc::sync_channel(1);
    thread::Builder::new()
        .name("compile".to_owned())
        .spawn(move || {
            let component = Component::from_binary(&engine, &bytes);
            drop(compiling);
            done.send(component)
        })
        .map_err(|e| LoadError::Refused(format!("no thread to compile it: {e}")))?;
    let component = compiled.recv_timeout(Duration::from_secs(seconds.into()));
    let component = component.map_err(|_| LoadError::CompileTimeout(seconds))?;
    component.map_err(|e| refused(&e, &sandbox.limits))
}

/// Why the engine does not take a component.
fn refused(error: &wasmtime::Error, limits: &Limits) -> LoadError {
    let why = error.root_cause().to_string();
    match reason::beginning(error, limits) {
        Some(limit) => LoadError::Limit(limit),
        None if why.starts_with("instance allocation for this") => LoadError::Refused(format!(
            "an instance of it would take more than {INSTANCE_BYTES} bytes of the host, for its globals, its functions in \
             tables and its imports"
        )),
        None => LoadError::NotAComponent(format!("the file is no valid component: {why}")),
    }
}

/// A component is being compiled, whoever still waits for it.
struct Compiling {
    all: Arc<Mutex<HashSet<[u8; 32]>>>,
    sha256: [u8; 32],
}

impl Compiling {
    /// None where it is being compiled already.
    fn begin(all: &Arc<Mutex<HashSet<[u8; 32]>>>, sha256: [u8; 32]) -> Option<Self> {
        let begun = all.lock().unwrap_or_else(PoisonError::into_inner).insert(sha256);
        begun.then(|| Self { all: all.clone(), sha256 })
    }
}

impl Drop for Compiling {
    fn drop(&mut self) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.sha256);
    }
}
