//! Bounds the documents of a project, below `.lore/`.

use guild_contract::Limits;

/// The directories of the hall's own records, which do not count: only the hall writes there, and people read them.
const RECORDS: [&str; 4] = [".lore/work/commissions/", ".lore/work/meetings/", ".lore/commissions/", ".lore/meetings/"];

/// The bounds of a project's documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DocumentQuota {
    /// `limits.project_documents`.
    pub files: u64,
    /// `limits.project_documents_bytes`.
    pub bytes: u64,
}

/// The usage of documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DocumentUsage {
    /// The number of documents.
    pub files: u64,
    /// The sum of their sizes.
    pub bytes: u64,
}

impl DocumentUsage {
    /// Counts a file if it is a document and no record of the hall. `path` is from the top of the project.
    pub fn add(&mut self, path: &str, bytes: u64) {
        if path.starts_with(".lore/") && !RECORDS.iter().any(|records| path.starts_with(records)) {
            self.files = self.files.saturating_add(1);
            self.bytes = self.bytes.saturating_add(bytes);
        }
    }
}

impl DocumentQuota {
    /// Checks a change of a project's documents. A project that exceeds the quota already may still reduce its
    /// documents.
    ///
    /// # Errors
    ///
    /// A sentence names the limit and the remedy.
    pub fn check(&self, before: DocumentUsage, after: DocumentUsage) -> Result<(), String> {
        let both = [
            ("files", "project_documents", before.files, after.files, self.files),
            ("bytes", "project_documents_bytes", before.bytes, after.bytes, self.bytes),
        ];
        match both.into_iter().find(|(_, _, before, after, most)| after > most && after > before) {
            Some((what, limit, _, found, most)) => {
                let raise = if Limits::is_fixed(limit) { "" } else { ", or raise the limit" };
                let limit = Limits::cited(limit);
                Err(format!(
                    "the project's documents would be {found} {what}, more than {limit} = {most}; remove some{raise}"
                ))
            }
            None => Ok(()),
        }
    }
}
