//! Decides by names and sizes which files are documents, whose text reports quote.

use serde::{Deserialize, Serialize};

use crate::files::{FileEntry, Reason};

/// The size of the largest document. Larger files are left out, and reported as too large.
pub const MAX_DOCUMENT_BYTES: u64 = 16 << 20;

/// The format of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    /// Markdown, whose source is quoted.
    Markdown,
    /// HTML, whose visible text is quoted, with inline code in backticks.
    Html,
    /// Plain text.
    Text,
    /// Source code, configuration, data.
    Code,
}

/// The format of a document, by its name and size. The error is the reason that the file is not read.
pub fn document_format(file: &FileEntry) -> Result<Format, Reason> {
    match document_kind(&file.path) {
        None => Err(Reason::Kind),
        Some(_) if file.size > MAX_DOCUMENT_BYTES => Err(Reason::Large),
        Some(format) => Ok(format),
    }
}

/// The format of a file, by its name. `None` for files without text to quote.
pub fn document_kind(path: &str) -> Option<Format> {
    let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    let Some((stem, extension)) = name.rsplit_once('.') else { return Some(Format::Text) };
    match extension {
        "md" | "markdown" | "mdx" | "mkd" | "qmd" => Some(Format::Markdown),
        "html" | "htm" | "xhtml" => Some(Format::Html),
        "txt" | "text" | "rst" | "adoc" | "asciidoc" | "org" | "tex" | "log" => Some(Format::Text),
        // These are styles, pictures as text, and files by tools for tools.
        "css" | "scss" | "svg" | "map" | "lock" | "index" | "sum" | "csv" | "tsv" | "jsonl" | "ndjson" => None,
        "js" | "json" if stem.ends_with(".min") || stem == "package-lock" => None,
        _ => Some(Format::Code),
    }
}
