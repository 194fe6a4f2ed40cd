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
    /// The frontmatter.
    pub meta: ArtifactMeta,
    /// The text below the frontmatter.
    pub content: String,
    /// When the file was last written: RFC 3339.
    pub last_modified: String,
    /// The kind of the file.
    pub artifact_type: ArtifactKind,
    /// The whole text, where one document was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_content: Option<String>,
}

/// The frontmatter of a document. A field of another kind than it should have counts as missing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ArtifactMeta {
    /// The title.
    pub title: String,
    /// The day.
    pub date: String,
    /// The state, which is any word.
    pub status: String,
    /// Its subjects.
    pub tags: Vec<String>,
    /// Parts of the project that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modules: Option<Vec<String>>,
    /// Other documents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub related: Option<Vec<String>>,
    /// All other fields.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub extras: Map<String, Value>,
    /// The kind of document, by its directory.
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
    /// How many follow, where not all are listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: usize,
    /// Whether the project has more files below `.lore/` than are looked at, so that some are missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// Which documents a list has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DocumentFilter {
    /// The project's name.
    pub project_name: String,
    /// Whether only the documents that were written last are listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recent: bool,
    /// How many, from 1; without it, the 10 that were written last, or all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// How many to skip at the beginning of the list.
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

/// A document, by its path.
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
    const ROW: Row = Row::new("workspace/document/read", Access::Reads, "Hands over a document of a project.")
        .answers_mebibytes(48)
        .get("/workspace/artifact/document/read")
        .tool("read_document", "Read a document")
        .quirks(Quirks { aliases: &[("artifactPath", "path")], ..Quirks::NONE });
}

/// A document that is to be written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewDocument {
    /// The project's name.
    pub project_name: String,
    /// The path from `.lore/`.
    pub artifact_path: String,
    /// The whole text. An empty one is a document, too.
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
        "Writes a document of a project: a new one, or in place of the one at that path.",
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

/// An image or a mockup of a project, as it is: the body is the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileContent {}

/// Reads an image.
#[derive(Debug)]
pub struct ReadImage;

impl Operation for ReadImage {
    type Input = DocumentParams;
    type Output = FileContent;
    const ROW: Row = Row::new("workspace/image/read", Access::Reads, "Hands over an image of a project, as it is.")
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
    /// Its title and day.
    pub meta: ArtifactMeta,
    /// When the file was last written: RFC 3339.
    pub last_modified: String,
    /// Bytes.
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
    const ROW: Row = Row::new("workspace/image/meta", Access::Reads, "Tells the size and the type of an image.")
        .get("/workspace/artifact/image/meta")
        .quirks(Quirks { aliases: &[("artifactPath", "path")], ..Quirks::NONE });
}

/// Reads a mockup.
#[derive(Debug)]
pub struct ReadMockup;

impl Operation for ReadMockup {
    type Input = DocumentParams;
    type Output = FileContent;
    const ROW: Row = Row::new("workspace/mockup/read", Access::Reads, "Hands over a mockup of a project, as it is.")
        .file()
        .get("/workspace/artifact/mockup/read")
        .quirks(Quirks { aliases: &[("artifactPath", "path")], ..Quirks::NONE });
}

/// Whether documents of a project differ from `claude/main`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoreStatus {
    /// Whether any file does.
    pub has_pending_changes: bool,
    /// How many do.
    pub file_count: usize,
}

/// Tells whether documents are not committed.
#[derive(Debug)]
pub struct ReadLoreStatus;

impl Operation for ReadLoreStatus {
    type Input = ProjectParams;
    type Output = LoreStatus;
    const ROW: Row =
        Row::new("workspace/lore/status", Access::Reads, "Tells how many documents of a project are not committed.")
            .get("/workspace/git/lore/status");
}

/// Documents that are to be committed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommitParams {
    /// The project's name.
    pub project_name: String,
    /// The message of the commit.
    pub message: String,
}

/// The outcome of committing documents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Committed {
    /// Whether there was anything to commit.
    pub committed: bool,
    /// The message of the commit, or why there is none.
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
