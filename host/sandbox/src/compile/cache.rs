//! Caches compiled components on disk.
//!
//! An entry is native code, so a user who can write one can run code here. That is why the directory must belong to
//! this user alone (0700), no symlink is followed in it, and each entry carries a digest that is verified over the very
//! bytes that are then deserialized.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Read, Write},
    path::Path,
    time::Duration,
};

use cap_std::{
    ambient_authority,
    fs::{Dir, DirBuilder, DirBuilderExt, MetadataExt, OpenOptions, OpenOptionsExt},
};
use guild_contract::text::hex;
use rustix::fs::OFlags;
use sha2::{Digest, Sha256};
use uuid::Uuid;
use wasmtime::{Engine, component::Component};

use super::Strategy;

/// A component as native code, either from the cache or from this program's own compiler.
pub(crate) struct Code(Vec<u8>);

impl Code {
    /// The output of the compiler.
    pub(crate) fn compiled(code: Vec<u8>) -> Self {
        Self(code)
    }

    /// Loads it into an engine.
    ///
    /// # Errors
    ///
    /// The code is for another engine, or the component exceeds the engine's limits.
    pub(crate) fn load(&self, engine: &Engine) -> wasmtime::Result<Component> {
        // SAFETY: the bytes were made by `Engine::precompile_component` of a compatible engine (its hash is in the name
        // of a cache entry, and `deserialize` checks it again). They come from this program's own compiler, through a
        // pipe that nobody else has, or from an entry that this user wrote (the directory is 0700 and ours, and no
        // symlink is followed) and that is whole (its digest was verified over these very bytes).
        #[allow(unsafe_code, reason = "deserializing compiled code needs it")]
        unsafe {
            Component::deserialize(engine, &self.0)
        }
    }
}

const DIGEST: usize = 32;
const SUFFIX: &str = ".component";

/// A directory of compiled components. Without one, every start compiles.
#[derive(Debug)]
pub struct CompileCache {
    dir: Option<Dir>,
    max_bytes: u64,
}

impl CompileCache {
    /// No cache.
    pub fn none() -> Self {
        Self { dir: None, max_bytes: 0 }
    }

    /// Opens the cache directory, or makes it (0700). `max_bytes` bounds all entries together.
    ///
    /// # Errors
    ///
    /// The directory is a symlink, belongs to another user, or can be entered by one.
    pub fn open(path: &Path, max_bytes: u64) -> io::Result<Self> {
        let refuse = |why: &str| io::Error::new(io::ErrorKind::PermissionDenied, format!("{}: {why}", path.display()));
        let parent = path.parent().ok_or_else(|| refuse("the compile cache needs a directory of its own"))?;
        let name = path.file_name().ok_or_else(|| refuse("the compile cache needs a directory of its own"))?;
        Dir::create_ambient_dir_all(parent, ambient_authority())?;
        let parent = Dir::open_ambient_dir(parent, ambient_authority())?;
        let mut private = DirBuilder::new();
        private.mode(0o700);
        match parent.create_dir_with(name, &private) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
        if !parent.symlink_metadata(name)?.is_dir() {
            return Err(refuse("the compile cache must be a directory, not a link to one"));
        }
        let dir = parent.open_dir(name)?;
        let found = dir.dir_metadata()?;
        if found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o077 != 0 {
            return Err(refuse("the compile cache must belong to this user alone (mode 0700)"));
        }
        if let Err(e) = remove_leftovers(&dir) {
            tracing::warn!("temporary files are left in the compile cache: {e}");
        }
        Ok(Self { dir: Some(dir), max_bytes })
    }

    /// The code of the component with this hash, if an entry for it is whole and was made for the same engine.
    pub(crate) fn get(&self, engine: &Engine, strategy: Strategy, component: &[u8; DIGEST]) -> Option<Code> {
        let mut entry = self.read(&entry_name(engine, strategy, component)).ok()?;
        let code = entry.split_off(DIGEST.min(entry.len()));
        if entry != Sha256::digest(&code).as_slice() {
            tracing::warn!("an entry of the compile cache is damaged; the component is compiled again");
            return None;
        }
        Some(Code(code))
    }

    /// Stores a compiled component. After a failure the next start compiles it again.
    pub(crate) fn put(&self, engine: &Engine, strategy: Strategy, hash: &[u8; DIGEST], Code(code): &Code) {
        let Some(dir) = &self.dir else { return };
        let keep = || {
            self.make_room(dir, (DIGEST + code.len()) as u64)?;
            let mut file = cap_tempfile::TempFile::new(dir)?;
            file.write_all(&Sha256::digest(code))?;
            file.write_all(code)?;
            file.replace(entry_name(engine, strategy, hash))
        };
        if let Err(e) = keep() {
            tracing::warn!("cannot store a component in the compile cache: {e}");
        }
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let dir = self.dir.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let mut options = OpenOptions::new();
        options.read(true).custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
        let file = dir.open_with(name, &options)?;
        if !file.metadata()?.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut bytes = Vec::new();
        file.take(self.max_bytes).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Removes the oldest entries until `more` bytes fit.
    fn make_room(&self, dir: &Dir, more: u64) -> io::Result<()> {
        if more > self.max_bytes {
            return Err(io::Error::other("it is larger than limits.compile_cache_bytes"));
        }
        let mut entries = Vec::new();
        for entry in dir.entries()? {
            let entry = entry?;
            let found = entry.metadata()?;
            if found.is_file() && entry.file_name().to_string_lossy().ends_with(SUFFIX) {
                entries.push((found.modified()?, found.len(), entry.file_name()));
            }
        }
        entries.sort();
        let mut total = more + entries.iter().map(|(_, len, _)| len).sum::<u64>();
        for (_, len, name) in entries {
            if total <= self.max_bytes {
                break;
            }
            dir.remove_file(name)?;
            total -= len;
        }
        Ok(())
    }
}

/// An entry is written in less time, so an older temporary file belongs to a killed process.
const WRITTEN_WITHIN: Duration = Duration::from_secs(3600);

/// Removes temporary files of killed processes, which `cap_tempfile` names by a UUID. Other processes may be writing in
/// the directory, so it removes only old ones.
fn remove_leftovers(dir: &Dir) -> io::Result<()> {
    for entry in dir.entries()? {
        let entry = entry?;
        let (name, found) = (entry.file_name(), entry.metadata()?);
        // The form with hyphens; other forms that the parser accepts have another length.
        let is_uuid = |name: &str| name.len() == 36 && Uuid::try_parse(name).is_ok();
        let is_old = found.modified()?.into_std().elapsed().is_ok_and(|age| age > WRITTEN_WITHIN);
        if found.is_file() && is_old && name.to_str().is_some_and(is_uuid) {
            dir.remove_file(name)?;
        }
    }
    Ok(())
}

fn entry_name(engine: &Engine, strategy: Strategy, component: &[u8; DIGEST]) -> String {
    // The hasher has the same keys in every process. The engine checks again when it loads the entry.
    let mut engine_hash = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut engine_hash);
    // Code of one compiler is never taken for that of the other, whatever the engine's own hash has in it.
    let compiler = match strategy {
        Strategy::Cranelift => "",
        Strategy::Winch => "-winch",
    };
    format!("{}-{:016x}{compiler}{SUFFIX}", hex(component), engine_hash.finish())
}
