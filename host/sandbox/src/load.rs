//! From a file to a compiled component.

use std::{
    io::Read,
    sync::{PoisonError, mpsc},
    thread,
    time::Duration,
};

use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use rustix::fs::OFlags;
use wasmtime::component::Component;

use crate::{engine::Sandbox, error::LoadError};

/// Reads a component's file: a regular one inside the member's directory, and not larger than `max`.
pub(crate) fn read(member: &Dir, file: &str, max: u64) -> Result<Vec<u8>, LoadError> {
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
/// limit; one that was given up no longer holds the others up.
pub(crate) fn compile(sandbox: &Sandbox, bytes: Vec<u8>) -> Result<Component, LoadError> {
    let _lane = sandbox.lanes.compiles.lock().unwrap_or_else(PoisonError::into_inner);
    let engine = sandbox.engine.clone();
    let (done, compiled) = mpsc::sync_channel(1);
    thread::Builder::new()
        .name("compile".to_owned())
        .spawn(move || done.send(Component::from_binary(&engine, &bytes)))
        .map_err(|e| LoadError::Refused(format!("no thread to compile it: {e}")))?;
    let seconds = sandbox.limits.compile_seconds;
    let component = compiled.recv_timeout(Duration::from_secs(seconds.into()));
    let component = component.map_err(|_| LoadError::CompileTimeout(seconds))?;
    component.map_err(|e| LoadError::NotAComponent(format!("the file is no valid component: {}", e.root_cause())))
}
