//! The memories that one activation is granted: the worker's own, and in a commission those of its project and those of
//! all projects (REQ-WKR-9, REQ-WKR-22).
//!
//! A commission or meeting has one limit for all of them. The scopes share it, so that one that is written much takes nothing
//! from the others, and what exceeds it is condensed, each scope by itself (REQ-WKR-23).

use std::{collections::BTreeMap, sync::Arc};

use guild_contract::{
    capability::{Kind, MEMORY_GLOBAL, MEMORY_PROJECT},
    manifest::Scope,
};
use guild_session::{activation::MemoryNote, tools::ToolError};

use crate::error::StoreError;

use super::{MemoryEntry, MemoryStore, Original, SEPARATOR, Seen, Source, Writer, chars};

/// The key of the note that says what an activation was not given.
const LEFT_OUT: &str = "left-out";
/// The scopes, the narrowest first.
const SCOPES: [Scope; 3] = [Scope::Worker, Scope::Project, Scope::Global];

/// The notes of one scope: those that this host keeps, and those that the newest original wrote. Of two with the same key, the
/// host's is the one that exists. Its methods block on the file system.
#[derive(Clone)]
pub struct ScopeNotes {
    store: Arc<MemoryStore>,
    original: Option<Arc<Original>>,
    /// Characters above which they are condensed where not all notes of an activation had room.
    share: u64,
}

impl ScopeNotes {
    /// The notes of a store, and those of a file of the original's.
    pub fn new(store: Arc<MemoryStore>, original: Option<Original>) -> Self {
        Self { store, original: original.map(Arc::new), share: u64::MAX }
    }

    /// The same, with a scope's share of `limit` characters: a third.
    #[must_use]
    pub fn sharing(self, limit: u64) -> Self {
        Self { share: limit / SCOPES.len() as u64, ..self }
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

    /// Who wrote the notes, by their keys, where that is known.
    pub fn writers(&self) -> Result<BTreeMap<String, String>, ToolError> {
        let all = self.store.see_all().map_err(StoreError::io("could not read the memories"))?;
        Ok(all.into_iter().filter_map(|seen| Some((seen.note.key, seen.origin?.to_string()))).collect())
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

    /// The newest notes as an activation is given them, until those of the host's pass `max_chars`. One that would pass it
    /// alone is left out.
    fn newest(&self, max_chars: u64) -> Vec<MemoryNote> {
        let mut notes: Vec<_> = self.store.newest(max_chars).into_iter().map(with_writers).collect();
        let kept = self.store.list().unwrap_or_default();
        notes.extend(self.others(&kept));
        notes.retain(|note| chars(&note.content) <= max_chars);
        notes.sort_by(|a, b| b.modified.cmp(&a.modified));
        notes
    }

    /// Condenses those that the host keeps where they exceed their share; does not wait for it.
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

/// A note as an activation is given it. One that others may have written begins with who did: the types of components have
/// no place for that.
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

/// How many notes of each scope are given within `max_chars`, out of their sizes. Next is always the scope that was given
/// least so far, with its newest note that is left: a scope has its share at least, and others have what it does not need. A
/// scope whose next note does not fit is given no older one in its place.
fn divide(scopes: &[Vec<u64>], max_chars: u64) -> Vec<usize> {
    let mut given = vec![(0, 0); scopes.len()];
    // Separators are between the notes alone.
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

/// What one activation is granted of all memories. To clone it is cheap.
#[derive(Clone)]
pub struct ScopedMemory {
    worker: ScopeNotes,
    project: Granted,
    global: Granted,
    writer: Option<Writer>,
    /// Characters of all notes that a commission or meeting is given. Other work has the limits of the member's own memory.
    limit: Option<u64>,
}

/// The notes of a wider scope, or why they are not granted.
pub type Granted = Result<ScopeNotes, Arc<str>>;

/// A member's own memory, for work that is no commission.
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

    /// The same, with this member as the one that writes.
    #[must_use]
    pub fn written_by(self, writer: Writer) -> Self {
        Self { writer: Some(writer), ..self }
    }

    /// The same, with at most `limit` characters given of all of them.
    #[must_use]
    pub fn limited_to(self, limit: u64) -> Self {
        Self { limit: Some(limit), ..self }
    }

    /// Who writes.
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
        SCOPES.into_iter().filter(|scope| self.scope(*scope).is_ok()).collect()
    }

    fn granted(&self) -> impl Iterator<Item = &ScopeNotes> {
        [Some(&self.worker), self.project.as_ref().ok(), self.global.as_ref().ok()].into_iter().flatten()
    }

    /// The notes that an activation is given: newest first over all scopes, whole, together within the limit. Where some had
    /// no room, the last note says how many (REQ-WKR-23). A dispatched job is given those of [`MemoryStore::injection`].
    pub fn injection(&self) -> Vec<MemoryNote> {
        let Some(limit) = self.limit else { return self.worker.store.injection() };
        let Given { mut notes, left_out } = self.given(limit);
        // It keeps the order of those that have the same time.
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

    /// Condenses what is too much, in the background (REQ-WD-26, REQ-WKR-23): where notes of a commission or meeting had no
    /// room, each scope that exceeds its share. A failure is logged; the next time tries again.
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
            // The statement has the most characters where it has the most to say.
            let most = chars(&self.left_out(&all, &vec![0; all.len()]));
            if most <= limit {
                counts = divide(&sizes, limit.saturating_sub(most + chars(SEPARATOR)));
                left_out = Some(self.left_out(&all, &counts));
            }
        }
        let notes = scopes.into_iter().zip(counts).flat_map(|(notes, count)| notes.into_iter().take(count)).collect();
        Given { notes, left_out }
    }

    /// Says how many notes of which scope were not given.
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

/// What an activation is given.
struct Given {
    /// The narrowest scope first; newest first in each.
    notes: Vec<MemoryNote>,
    /// How many others there are, where there are some.
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
        // A large note waits until the others have theirs.
        assert_eq!(divide(&[vec![60], many.clone()], 90), [1, 2]);
        assert_eq!(divide(&[vec![90], many.clone()], 90), [0, 6]);
        // No older note is given in place of one that does not fit.
        assert_eq!(divide(&[vec![10, 30, 8], vec![20]], 35), [1, 1]);
        assert_eq!(divide(&[Vec::new(), many], 0), [0, 0]);
    }
}
