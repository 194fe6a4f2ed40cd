//! Combines the memories that one activation is granted: the worker's own, and in a commission the memories of its
//! project and of all projects (REQ-WKR-9, REQ-WKR-22).
//!
//! A commission or meeting has one limit for all of them. The scopes share it, so that a scope with many notes takes no
//! room from the others. Notes beyond it are condensed, each scope by itself (REQ-WKR-23).

use std::{collections::BTreeMap, sync::Arc};

use guild_contract::{
    capability::{Kind, MEMORY_GLOBAL, MEMORY_PROJECT},
    manifest::Scope,
};
use guild_session::{activation::MemoryNote, tools::ToolError};

use crate::error::StoreError;

use super::{MemoryEntry, MemoryStore, Original, SEPARATOR, Seen, Source, Writer, chars};

/// The key of the note about the notes that an activation was not given.
const LEFT_OUT: &str = "left-out";
/// The scopes, the narrowest first.
const SCOPES: [Scope; 3] = [Scope::Worker, Scope::Project, Scope::Global];

/// The notes of one scope: the host's, and those of the newest original. Of two notes with the same key, the host's is
/// used. Its methods block on the file system.
#[derive(Clone)]
pub struct ScopeNotes {
    store: Arc<MemoryStore>,
    original: Option<Arc<Original>>,
    /// The characters above which they are condensed, if not all notes of an activation had room.
    share: u64,
}

impl ScopeNotes {
    /// The notes of a store, and of a file of the original.
    pub fn new(store: Arc<MemoryStore>, original: Option<Original>) -> Self {
        Self { store, original: original.map(Arc::new), share: u64::MAX }
    }

    /// Sets the scope's share, a third of `limit` characters.
    #[must_use]
    pub fn sharing(self, limit: u64) -> Self {
        Self { share: limit / SCOPES.len() as u64, ..self }
    }

    /// The host's own notes.
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

    /// The known writers of the notes, by the notes' keys.
    pub fn writers(&self) -> Result<BTreeMap<String, String>, ToolError> {
        let all = self.store.see_all().map_err(StoreError::io("could not read the memories"))?;
        Ok(all.into_iter().filter_map(|seen| Some((seen.note.key, seen.origin?.to_string()))).collect())
    }

    /// See [`MemoryStore::append`]. A note that only the original has is copied first.
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

    /// The newest notes in the form for an activation, until the host's notes exceed `max_chars`. A note that would
    /// exceed it alone is left out.
    fn newest(&self, max_chars: u64) -> Vec<MemoryNote> {
        let mut notes: Vec<_> = self.store.newest(max_chars).into_iter().map(with_writers).collect();
        let kept = self.store.list().unwrap_or_default();
        notes.extend(self.others(&kept));
        notes.retain(|note| chars(&note.content) <= max_chars);
        notes.sort_by(|a, b| b.modified.cmp(&a.modified));
        notes
    }

    /// Condenses the host's notes if they exceed their share; does not wait for it.
    fn condense(&self) {
        let all = match self.store.see_all() {
            Ok(all) => all,
            Err(e) => return tracing::warn!("the memories cannot be read: {e}"),
        };
        if all.into_iter().map(|seen| size(&with_writers(seen))).sum::<u64>() > self.share {
            self.store.compact_to_share(self.share);
        }
    }
}

/// A note in the form for an activation. A note that others may have written begins with its writers, since the types
/// of components have no field for them.
fn with_writers(Seen { mut note, origin, .. }: Seen) -> MemoryNote {
    if let Some(origin) = origin.filter(|_| note.scope != Scope::Worker) {
        note.content = format!("[Written by {origin}. Check it before you rely on it.]\n\n{}", note.content);
    }
    note
}

/// The characters that a note takes of the limit.
fn size(note: &MemoryNote) -> u64 {
    chars(&note.content) + chars(SEPARATOR)
}

/// The number of notes of each scope that are given within `max_chars`, from their sizes. The next note is always the
/// newest remaining one of the scope that was given least so far, so that a scope gets at least its share, and others
/// the room that it does not need. A scope whose next note does not fit gets no older one in its place.
fn divide(scopes: &[Vec<u64>], max_chars: u64) -> Vec<usize> {
    let mut given = vec![(0, 0); scopes.len()];
    // Separators stand only between notes.
    let mut room = max_chars.saturating_add(chars(SEPARATOR));
    loop {
        let next =
            given.iter_mut().zip(scopes).filter_map(|(given, sizes)| Some((sizes.get(given.0).copied()?, given)));
        let Some((size, given)) = next.filter(|(size, _)| *size <= room).min_by_key(|(size, given)| (given.1, *size))
        else {
            return given.into_iter().map(|(notes, _)| notes).collect();
        };
        *given = (given.0 + 1, given.1 + size);
        room -= size;
    }
}

/// The memories that one activation is granted. It is cheap to clone.
#[derive(Clone)]
pub struct ScopedMemory {
    worker: ScopeNotes,
    project: Granted,
    global: Granted,
    writer: Option<Writer>,
    /// Characters of all notes that a commission or meeting is given. Other work has the limits of the member's own
    /// memory.
    limit: Option<u64>,
}

/// The notes of a wider scope, or the reason that they are not granted.
pub type Granted = Result<ScopeNotes, Arc<str>>;

/// A member's own memory, for work other than a commission.
impl From<Arc<MemoryStore>> for ScopedMemory {
    fn from(worker: Arc<MemoryStore>) -> Self {
        let none = |kind: &Kind| Err(format!("`{kind}` is there in commissions only").into());
        Self::new(ScopeNotes::new(worker, None), none(&MEMORY_PROJECT), none(&MEMORY_GLOBAL))
    }
}

impl ScopedMemory {
    /// The memories for a commission.
    pub fn new(worker: ScopeNotes, project: Granted, global: Granted) -> Self {
        Self { worker, project, global, writer: None, limit: None }
    }

    /// Sets the member that writes.
    #[must_use]
    pub fn written_by(self, writer: Writer) -> Self {
        Self { writer: Some(writer), ..self }
    }

    /// Sets the most characters of all notes that are given.
    #[must_use]
    pub fn limited_to(self, limit: u64) -> Self {
        Self { limit: Some(limit), ..self }
    }

    /// The member that writes.
    pub(crate) fn writer(&self) -> Option<&Writer> {
        self.writer.as_ref()
    }

    /// The member's own notes.
    pub fn worker(&self) -> &ScopeNotes {
        &self.worker
    }

    /// The notes of a scope.
    ///
    /// # Errors
    ///
    /// Returns `NotGranted`, with the missing grant.
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
        SCOPES.into_iter().filter(|scope| self.scope(*scope).is_ok()).collect()
    }

    fn granted(&self) -> impl Iterator<Item = &ScopeNotes> {
        [Some(&self.worker), self.project.as_ref().ok(), self.global.as_ref().ok()].into_iter().flatten()
    }

    /// The notes that an activation is given: newest first over all scopes, whole, together within the limit. If some
    /// had no room, the last note tells how many (REQ-WKR-23). A dispatched job is given the notes of
    /// [`MemoryStore::injection`].
    pub fn injection(&self) -> Vec<MemoryNote> {
        let Some(limit) = self.limit else { return self.worker.store.injection() };
        let Given { mut notes, left_out } = self.given(limit);
        // The sort keeps the order of notes with the same time.
        notes.sort_by(|a, b| b.modified.cmp(&a.modified));
        notes.extend(left_out.map(|content| MemoryNote {
            scope: Scope::Worker,
            key: LEFT_OUT.to_owned(),
            content,
            modified: self.worker.store.now(),
            origin: None,
        }));
        notes
    }

    /// Condenses memories that are too large, in the background (REQ-WD-26, REQ-WKR-23): if notes of a commission or
    /// meeting had no room, each scope that exceeds its share. A failure is logged; the next time tries again.
    pub fn condense(&self) {
        match self.limit {
            None => self.worker.store.compact_if_large(),
            Some(limit) if self.given(limit).left_out.is_some() => self.granted().for_each(ScopeNotes::condense),
            Some(_) => {}
        }
    }

    fn given(&self, limit: u64) -> Given {
        let scopes: Vec<_> = self.granted().map(|scope| scope.newest(limit)).collect();
        let sizes: Vec<Vec<u64>> = scopes.iter().map(|notes| notes.iter().map(size).collect()).collect();
        // It includes notes that cannot be given at all.
        let all: Vec<_> = self.granted().map(|scope| scope.list().map_or(0, |notes| notes.len())).collect();
        let mut counts = divide(&sizes, limit);
        let mut left_out = None;
        if counts != all {
            // The statement is longest if all notes are left out.
            let most = chars(&self.left_out(&all, &vec![0; all.len()]));
            if most <= limit {
                counts = divide(&sizes, limit.saturating_sub(most + chars(SEPARATOR)));
                left_out = Some(self.left_out(&all, &counts));
            }
        }
        let notes = scopes.into_iter().zip(counts).flat_map(|(notes, count)| notes.into_iter().take(count)).collect();
        Given { notes, left_out }
    }

    /// Tells how many notes of each scope were not given.
    fn left_out(&self, all: &[usize], given: &[usize]) -> String {
        let missing = self.scopes().into_iter().zip(all.iter().zip(given));
        let missing = missing.map(|(scope, (all, given))| (scope.as_str(), all.saturating_sub(*given)));
        let missing: Vec<_> =
            missing.filter(|(_, count)| *count > 0).map(|(scope, count)| format!("{count} ({scope})")).collect();
        format!(
            "Left out of these notes for want of room: {}. `read_memory` has them, until the host has condensed them.",
            missing.join(", ")
        )
    }
}

/// The notes that an activation is given.
struct Given {
    /// The narrowest scope first; newest first in each.
    notes: Vec<MemoryNote>,
    /// The statement about other notes, if there are any.
    left_out: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::divide;

    #[test]
    fn each_scope_has_its_share_and_what_it_leaves() {
        let many = vec![15; 20];
        // Room for six: two for each, or more where others have fewer.
        assert_eq!(divide(&[many.clone(), many.clone(), many.clone()], 90), [2, 2, 2]);
        assert_eq!(divide(&[many.clone(), vec![15], many.clone()], 90), [3, 1, 2]);
        assert_eq!(divide(&[many.clone(), Vec::new(), Vec::new()], 90), [6, 0, 0]);
        assert_eq!(divide(std::slice::from_ref(&many), 84), [5]);
        // A large note is given after the others.
        assert_eq!(divide(&[vec![60], many.clone()], 90), [1, 2]);
        assert_eq!(divide(&[vec![90], many.clone()], 90), [0, 6]);
        // No older note is given in place of one that does not fit.
        assert_eq!(divide(&[vec![10, 30, 8], vec![20]], 35), [1, 1]);
        assert_eq!(divide(&[Vec::new(), many], 0), [0, 0]);
    }
}
