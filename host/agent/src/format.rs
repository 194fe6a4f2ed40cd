//! Which files are documents: files with text that the built-in runtime quotes. Their names and sizes decide.

use guild_session::files::{FileEntry, Reason};
use serde::{Deserialize, Serialize};

/// Larger files are left out, and reported as too large.
pub(crate) const MAX_DOCUMENT_BYTES: u64 = 16 << 20;

/// How a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Format {
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
pub(crate) fn document_format(file: &FileEntry) -> Result<Format, Reason> {
    match format(&file.path) {
        None => Err(Reason::Kind),
        Some(_) if file.size > MAX_DOCUMENT_BYTES => Err(Reason::Large),
        Some(format) => Ok(format),
    }
}

/// How a file is to be read, by its name. `None` for files without text to quote.
pub(crate) fn format(path: &str) -> Option<Format> {
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
