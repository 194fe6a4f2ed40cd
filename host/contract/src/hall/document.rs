//! Defines documents, the files below `.lore/` of a project, and the operations on them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{ProjectParams, commission::is_zero};
use crate::operation::{Access, Operation, Quirks, Row};

/// A document, an image or a mockup. The original calls it an artifact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    /// The path from `.lore/`.
    pub relative_path: String,
    /// The document's frontmatter.
    pub meta: ArtifactMeta,
    /// The text below the frontmatter.
    pub content: String,
    /// The time of the file's last change: RFC 3339.
    pub last_modified: String,
    /// The kind of the file.
    pub artifact_type: ArtifactKind,
    /// The whole text; present if a single document was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_content: Option<String>,
}

/// The frontmatter of a document. A field with a value of the wrong type counts as missing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ArtifactMeta {
    /// The title.
    pub title: String,
    /// The date.
    pub date: String,
    /// The state; any word.
    pub status: String,
    /// The document's tags.
    pub tags: Vec<String>,
    /// The parts of the project that the document is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modules: Option<Vec<String>>,
    /// Related documents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub related: Option<Vec<String>>,
    /// All other fields.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub extras: Map<String, Value>,
    /// The kind of document, from its directory.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// The kind of a file below `.lore/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ArtifactKind {
    /// Markdown.
    Document,
    /// An image.
    Image,
    /// HTML.
    Mockup,
}

/// The documents of a project.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Artifacts {
    /// The documents.
    pub artifacts: Vec<Artifact>,
    /// The number of further documents, if not all are listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: usize,
    /// Whether the project has more files below `.lore/` than the host reads, so that some are missing from the list.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// The filter for a list of documents.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DocumentFilter {
    /// The project's name.
    pub project_name: String,
    /// Whether only the most recently changed documents are listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recent: bool,
    /// The most documents to list, at least 1. The default is the 10 most recently changed ones, or all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// The number of documents to skip at the beginning of the list.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub offset: usize,
}

/// Lists documents.
#[derive(Debug)]
pub struct ListDocuments;

impl Operation for ListDocuments {
    type Input = DocumentFilter;
    type Output = Artifacts;
    const ROW: Row =
        Row::new("workspace/document/list", Access::Reads, "Lists the documents of a project, below `.lore/`.")
            .answers_mebibytes(16)
            .quirks(Quirks { sentences: &[("limit", "Invalid limit parameter")], ..Quirks::NONE })
            .get("/workspace/artifact/document/list")
            .tool("list_documents", "List documents");
}

/// A document, by its project and path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DocumentParams {
    /// The project's name.
    pub project_name: String,
    /// The path from `.lore/`.
    pub path: String,
}

/// Reads a document.
#[derive(Debug)]
pub struct ReadDocument;

impl Operation for ReadDocument {
    type Input = DocumentParams;
    type Output = Artifact;
    const ROW: Row = Row::new("workspace/document/read", Access::Reads, "Returns a document of a project.")
        .answers_mebibytes(48)
        .get("/workspace/artifact/document/read")
        .tool("read_document", "Read a document")
        .quirks(Quirks { aliases: &[("artifactPath", "path")], ..Quirks::NONE });
}

/// A document to write.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewDocument {
    /// The project's name.
    pub project_name: String,
    /// The path from `.lore/`.
    pub artifact_path: String,
    /// The whole text. An empty text is allowed.
    pub content: String,
}

/// The outcome of writing a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Written {
    /// Always true: a document that cannot be written is an error.
    pub success: bool,
}

/// Writes a document.
#[derive(Debug)]
pub struct WriteDocument;

impl Operation for WriteDocument {
    type Input = NewDocument;
    type Output = Written;
    const ROW: Row = Row::new(
        "workspace/document/write",
        Access::Dispatches,
        "Writes a document of a project. An existing document at that path is replaced.",
    )
    .post("/workspace/artifact/document/write")
    .replacing_tool("write_document", "Write a document")
    .quirks(Quirks {
        missing: Some("artifactPath, content"),
        may_be_empty: &["content"],
        aliases: &[("path", "artifactPath"), ("body", "content")],
        ..Quirks::NONE
    });
}

/// The bytes of an image or a mockup of a project: the body of the answer is the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileContent {}

/// Reads an image.
#[derive(Debug)]
pub struct ReadImage;

impl Operation for ReadImage {
    type Input = DocumentParams;
    type Output = FileContent;
    const ROW: Row = Row::new("workspace/image/read", Access::Reads, "Returns the bytes of an image of a project.")
        .file()
        .get("/workspace/artifact/image/read")
        .quirks(Quirks { aliases: &[("artifactPath", "path")], ..Quirks::NONE });
}

/// Facts about an image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageFacts {
    /// The path from `.lore/`.
    pub relative_path: String,
    /// The image's title and date.
    pub meta: ArtifactMeta,
    /// The time of the file's last change: RFC 3339.
    pub last_modified: String,
    /// The size in bytes.
    pub file_size: usize,
    /// The media type.
    pub mime_type: String,
}

/// Reads facts about an image.
#[derive(Debug)]
pub struct ReadImageFacts;

impl Operation for ReadImageFacts {
    type Input = DocumentParams;
    type Output = ImageFacts;
    const ROW: Row = Row::new("workspace/image/meta", Access::Reads, "Returns the size and the type of an image.")
        .get("/workspace/artifact/image/meta")
        .quirks(Quirks { aliases: &[("artifactPath", "path")], ..Quirks::NONE });
}

/// Reads a mockup.
#[derive(Debug)]
pub struct ReadMockup;

impl Operation for ReadMockup {
    type Input = DocumentParams;
    type Output = FileContent;
    const ROW: Row = Row::new("workspace/mockup/read", Access::Reads, "Returns the bytes of a mockup of a project.")
        .file()
        .get("/workspace/artifact/mockup/read")
        .quirks(Quirks { aliases: &[("artifactPath", "path")], ..Quirks::NONE });
}

/// Whether documents of a project have uncommitted changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoreStatus {
    /// Whether any file has changes.
    pub has_pending_changes: bool,
    /// The number of files with changes.
    pub file_count: usize,
}

/// Reads whether documents have uncommitted changes.
#[derive(Debug)]
pub struct ReadLoreStatus;

impl Operation for ReadLoreStatus {
    type Input = ProjectParams;
    type Output = LoreStatus;
    const ROW: Row = Row::new(
        "workspace/lore/status",
        Access::Reads,
        "Returns the number of documents of a project with uncommitted changes.",
    )
    .get("/workspace/git/lore/status");
}

/// A commit of a project's documents.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommitParams {
    /// The project's name.
    pub project_name: String,
    /// The commit message.
    pub message: String,
}

/// The outcome of a commit of documents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Committed {
    /// Whether there was anything to commit.
    pub committed: bool,
    /// The commit message, or the reason that there is no commit.
    pub message: String,
}

/// Commits documents.
#[derive(Debug)]
pub struct CommitDocuments;

impl Operation for CommitDocuments {
    type Input = CommitParams;
    type Output = Committed;
    const ROW: Row = Row::new("workspace/lore/commit", Access::Dispatches, "Commits the documents of a project.")
        .quirks(Quirks { sentences: &[("message", "Commit message is required")], ..Quirks::NONE })
        .post("/workspace/git/lore/commit");
}
