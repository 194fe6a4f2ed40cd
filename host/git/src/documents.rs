//! Bounds the documents of a project, below `.lore/`.

/// Where the hall keeps its own records, which do not count: nobody else writes there, and people read them.
const RECORDS: [&str; 4] = [".lore/work/commissions/", ".lore/work/meetings/", ".lore/commissions/", ".lore/meetings/"];

/// How much the documents of a project may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DocumentQuota {
    /// `limits.project_documents`.
    pub files: u64,
    /// `limits.project_documents_bytes`.
    pub bytes: u64,
}

/// How much documents take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DocumentUsage {
    /// How many there are.
    pub files: u64,
    /// Their sizes together.
    pub bytes: u64,
}

impl DocumentUsage {
    /// Counts a file if it is a document, and no record of the hall's. `path` is from the top of the project.
    pub fn add(&mut self, path: &str, bytes: u64) {
        if path.starts_with(".lore/") && !RECORDS.iter().any(|records| path.starts_with(records)) {
            self.files = self.files.saturating_add(1);
            self.bytes = self.bytes.saturating_add(bytes);
        }
    }
}

impl DocumentQuota {
    /// Checks a change of a project's documents. Documents that are beyond the quota already may become fewer.
    ///
    /// # Errors
    /// A sentence that names the limit, and what to do.
    pub fn check(&self, before: DocumentUsage, after: DocumentUsage) -> Result<(), String> {
        let both = [
            ("files", "limits.project_documents", before.files, after.files, self.files),
            ("bytes", "limits.project_documents_bytes", before.bytes, after.bytes, self.bytes),
        ];
        match both.into_iter().find(|(_, _, before, after, most)| after > most && after > before) {
            Some((what, limit, _, found, most)) => Err(format!(
                "the project's documents would be {found} {what}, more than {limit} = {most}; remove some, or raise the limit"
            )),
            None => Ok(()),
        }
    }
}
