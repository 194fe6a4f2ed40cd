//! Which files are documents, which have text to quote: their names and sizes decide.

use serde::{Deserialize, Serialize};

use crate::files::{FileEntry, Reason};

/// Larger files are left out, and reported as too large.
pub const MAX_DOCUMENT_BYTES: u64 = 16 << 20;

/// How a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    /// Markdown: quoted as its source is.
    Markdown,
    /// HTML: its visible text, with inline code in backticks.
    Html,
    /// Plain text.
    Text,
    /// Source code, configuration, data.
    Code,
}

/// How the text of a document is read; or why a file is not read, by its name and its size.
pub fn document_format(file: &FileEntry) -> Result<Format, Reason> {
    match document_kind(&file.path) {
        None => Err(Reason::Kind),
        Some(_) if file.size > MAX_DOCUMENT_BYTES => Err(Reason::Large),
        Some(format) => Ok(format),
    }
}

/// How a file is to be read, by its name. `None` for files without text to quote.
pub fn document_kind(path: &str) -> Option<Format> {
    let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    let Some((stem, extension)) = name.rsplit_once('.') else { return Some(Format::Text) };
    match extension {
        "md" | "markdown" | "mdx" | "mkd" | "qmd" => Some(Format::Markdown),
        "html" | "htm" | "xhtml" => Some(Format::Html),
        "txt" | "text" | "rst" | "adoc" | "asciidoc" | "org" | "tex" | "log" => Some(Format::Text),
        // Styles, pictures as text, what tools wrote for tools.
        "css" | "scss" | "svg" | "map" | "lock" | "index" | "sum" | "csv" | "tsv" | "jsonl" | "ndjson" => None,
        "js" | "json" if stem.ends_with(".min") || stem == "package-lock" => None,
        _ => Some(Format::Code),
    }
}
