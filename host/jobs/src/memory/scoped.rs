//! The memories that one activation is granted: the worker's own, and in a commission those of its project and those of all
//! projects (REQ-WKR-9, REQ-WKR-22).

use std::sync::Arc;

use guild_contract::{Grants, grants::Verdict, manifest::Scope};
use guild_session::{activation::MemoryNote, tools::ToolError};

use super::{MemoryEntry, MemoryStore, Original, Source, chars, within};

/// The notes of one scope: those that this host keeps, and those that the newest original wrote. Of two with the same key, the
/// host's is the one that exists. Its methods block on the file system.
#[derive(Clone)]
pub struct ScopeNotes {
    store: Arc<MemoryStore>,
    original: Option<Arc<Original>>,
}

impl ScopeNotes {
    /// The notes of a store, and those of a file of the original's.
    pub fn new(store: Arc<MemoryStore>, original: Option<Original>) -> Self {
        Self { store, original: original.map(Arc::new) }
    }

    /// Those that this host keeps.
    pub fn kept(&self) -> &Arc<MemoryStore> {
        &self.store
    }

    /// See [`MemoryStore::load`].
    pub fn load(&self, key: &str) -> Result<Option<String>, ToolError> {
        match (self.store.load(key), self.originals_of(key)) {
            (Ok(None) | Err(ToolError::InvalidInput(_)), Some(note)) => Ok(Some(note.content)),
            (kept, _) => kept,
        }
    }

    /// All notes, newest first.
    pub fn list(&self) -> Result<Vec<MemoryEntry>, ToolError> {
        let mut entries = self.store.list()?;
        let others = self.others(&entries).into_iter().map(|MemoryNote { key, content, modified, .. }| MemoryEntry {
            key,
            bytes: content.len() as u64,
            modified,
        });
        entries.extend(others);
        entries.sort_by(|a, b| b.modified.cmp(&a.modified));
        Ok(entries)
    }

    /// See [`MemoryStore::append`]. A note that only the original has is copied, and added to.
    pub(crate) fn append(&self, key: &str, content: &str, source: Source<'_>) -> Result<(), ToolError> {
        let before = self.originals_of(key).map(|note| note.content);
        self.store.append(key, content, before, Some(source))
    }

    /// See [`MemoryStore::delete`].
    pub(crate) fn delete(&self, key: &str) -> Result<bool, ToolError> {
        if self.store.delete(key)? {
            return Ok(true);
        }
        match (&self.original, self.originals_of(key)) {
            (Some(original), Some(_)) => Err(ToolError::InvalidInput(format!(
                "the note {key:?} is in {} of the hall's home, which only a person edits; store one of the same key to \
                 replace it",
                original.path().display()
            ))),
            _ => Ok(false),
        }
    }

    /// The original's note of this key.
    fn originals_of(&self, key: &str) -> Option<MemoryNote> {
        let notes = self.original.as_ref()?.notes(self.store.scope);
        notes.into_iter().find(|note| note.key.eq_ignore_ascii_case(key))
    }

    /// The original's notes that are not among the host's own.
    fn others(&self, kept: &[MemoryEntry]) -> Vec<MemoryNote> {
        let Some(original) = &self.original else { return Vec::new() };
        let mut notes = original.notes(self.store.scope);
        notes.retain(|note| !kept.iter().any(|entry| entry.key.eq_ignore_ascii_case(&note.key)));
        notes
    }

    /// The newest notes, until those of the host's pass `max_chars`. One that would pass it alone is left out.
    fn newest(&self, max_chars: u64) -> Vec<MemoryNote> {
        let mut notes = self.store.newest(max_chars);
        let kept = self.store.list().unwrap_or_default();
        notes.extend(self.others(&kept).into_iter().filter(|note| chars(&note.content) <= max_chars));
        notes
    }
}

/// What one activation is granted of all memories. To clone it is cheap.
#[derive(Clone)]
pub struct ScopedMemory {
    worker: ScopeNotes,
    project: Granted,
    global: Granted,
}

/// The notes of a wider scope, or why they are not granted.
pub type Granted = Result<ScopeNotes, Arc<str>>;

/// A member's own memory, for work that is no commission.
impl From<Arc<MemoryStore>> for ScopedMemory {
    fn from(worker: Arc<MemoryStore>) -> Self {
        let none = |scope: Scope| Err(format!("`{}` is there in commissions only", grant(scope)).into());
        Self::new(ScopeNotes::new(worker, None), none(Scope::Project), none(Scope::Global))
    }
}

impl ScopedMemory {
    /// The memories for a commission.
    pub fn new(worker: ScopeNotes, project: Granted, global: Granted) -> Self {
        Self { worker, project, global }
    }

    /// The member's own notes.
    pub fn worker(&self) -> &ScopeNotes {
        &self.worker
    }

    /// The notes of a scope.
    ///
    /// # Errors
    /// `NotGranted`, with the grant that is missing.
    pub fn scope(&self, scope: Scope) -> Result<&ScopeNotes, ToolError> {
        let granted = match scope {
            Scope::Worker => return Ok(&self.worker),
            Scope::Project => &self.project,
            Scope::Global => &self.global,
        };
        granted.as_ref().map_err(|why| ToolError::NotGranted(why.to_string()))
    }

    /// The scopes that are granted, the narrowest first.
    pub fn scopes(&self) -> Vec<Scope> {
        let all = [Scope::Worker, Scope::Project, Scope::Global];
        all.into_iter().filter(|scope| self.scope(*scope).is_ok()).collect()
    }

    /// The notes that an activation is given: newest first over all scopes, whole, as many as are within `max_chars` together
    /// with the separators between them. It stops at the first that does not fit; one that would not fit alone is left out.
    pub fn injection(&self, max_chars: u64) -> Vec<MemoryNote> {
        let scopes = [Some(&self.worker), self.project.as_ref().ok(), self.global.as_ref().ok()];
        let mut notes: Vec<_> = scopes.into_iter().flatten().flat_map(|scope| scope.newest(max_chars)).collect();
        // It keeps the order of those that have the same time.
        notes.sort_by(|a, b| b.modified.cmp(&a.modified));
        within(notes, max_chars)
    }
}

/// The name of the grant of a wider scope.
fn grant(scope: Scope) -> String {
    format!("memory:{}", scope.as_str())
}

/// Why a wider scope is not granted, and what would grant it.
pub fn denial(scope: Scope, grants: &Grants) -> Arc<str> {
    let wanted = grant(scope);
    let why = match grants.verdicts.details.get(&wanted) {
        Some(Verdict::Denied(why)) => format!("the operator did not grant `{wanted}` to this member: {why}"),
        _ => format!(
            "the manifest does not ask for `{wanted}`; add {:?} to `component.scopes`, and have the operator allow it",
            scope.as_str()
        ),
    };
    why.into()
}
