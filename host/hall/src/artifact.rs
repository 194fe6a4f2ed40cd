//! The artifacts of a project: its documents below `.lore/`, as people see them. Sessions have tools of their own for theirs
//! ([`crate::tools`]).
//!
//! On the way to a file no symbolic link is followed, and a file is replaced as a whole.

use std::{cmp::Reverse, io, path::Path};

use cap_std::{fs::Dir, time::SystemTime};
use guild_jobs::{
    Names,
    durable::{ANYBODY, Survives, if_there, open_dir, open_directory, open_or_make_dir, read_whole, replace_from},
    rfc3339,
    tree::walk,
};
use guild_session::tools::ToolError;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    commission::record::frontmatter,
    error::HallError,
    tools::{
        protected::{LORE, protected},
        worktree::{directory, in_lore, names, text},
    },
};

/// Bytes of an artifact that is read or written.
const MAX_BYTES: u64 = 4 << 20;
/// Bytes of all texts in one list. Those beyond are listed without theirs.
const MAX_LISTED_BYTES: usize = 32 << 20;
/// What is looked at for one list.
const MAX_WALKED: usize = 20_000;

const IMAGES: [&str; 6] = ["png", "jpg", "jpeg", "webp", "gif", "svg"];

/// What the directories of documents are called in the singular.
const TYPES: [(&str, &str); 14] = [
    ("specs", "Spec"),
    ("plans", "Plan"),
    ("brainstorm", "Brainstorm"),
    ("issues", "Issue"),
    ("research", "Research"),
    ("retros", "Retro"),
    ("design", "Design"),
    ("reference", "Reference"),
    ("learned", "Learned"),
    ("notes", "Note"),
    ("tasks", "Task"),
    ("diagrams", "Diagram"),
    ("meetings", "Meeting"),
    ("commissions", "Commission"),
];

/// The groups of states in a list, in their order. A state that is in none is as one that is blocked.
const GROUPS: [&[&str]; 5] = [
    &["draft", "open", "pending", "requested", "queued", "paused", "approved"],
    &["active", "current", "in_progress", "dispatched"],
    &["blocked", "failed", "cancelled"],
    &["complete", "completed", "resolved", "implemented", "closed", "executed"],
    &["wontfix", "declined", "superseded", "outdated", "abandoned", "duplicate", "invalid", "archived", "parked"],
];
const UNKNOWN: usize = 2;
const INACTIVE: usize = 4;

/// What an artifact is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Markdown.
    Document,
    /// A picture.
    Image,
    /// A page of HTML.
    Mockup,
}

impl Kind {
    fn of(path: &str) -> Option<Self> {
        let (_, extension) = path.rsplit_once('.')?;
        match extension.to_ascii_lowercase().as_str() {
            "md" => Some(Self::Document),
            "html" => Some(Self::Mockup),
            other => IMAGES.contains(&other).then_some(Self::Image),
        }
    }
}

/// An artifact, in the fields of the original's API.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    /// Its path below `.lore/`.
    pub relative_path: String,
    /// What its frontmatter says.
    pub meta: Meta,
    /// What stands below the frontmatter.
    pub content: String,
    /// When the file was written last, in RFC 3339.
    pub last_modified: String,
    /// What it is.
    pub artifact_type: Kind,
    /// All of its text, where one artifact was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_content: Option<String>,
}

/// What the frontmatter of an artifact says. What is missing there is empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    /// Its title.
    pub title: String,
    /// A day.
    pub date: String,
    /// Any word.
    pub status: String,
    /// Its tags.
    pub tags: Vec<String>,
    /// What it is about, where it says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modules: Option<Vec<String>>,
    /// Other artifacts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub related: Option<Vec<String>>,
    /// All other keys.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub extras: Map<String, Value>,
    /// What the documents of its directory are called.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

impl Artifact {
    fn document(path: &str, bytes: &[u8], modified: Timestamp) -> Self {
        let raw = String::from_utf8_lossy(bytes).into_owned();
        let (value, content) = match frontmatter(&raw) {
            // What is no YAML is text.
            (Some(Value::Object(fields)), body) => (fields, body),
            _ => (Map::new(), raw.clone()),
        };
        Self {
            relative_path: path.to_owned(),
            meta: Meta { kind: kind(path), ..Meta::of(value) },
            content,
            last_modified: rfc3339(modified),
            artifact_type: Kind::Document,
            raw_content: Some(raw),
        }
    }

    /// A file that says nothing of itself.
    fn other(path: &str, artifact_type: Kind, modified: Timestamp) -> Self {
        let name = Path::new(path).file_stem().unwrap_or_default().to_string_lossy().replace(['-', '_'], " ");
        let last_modified = rfc3339(modified);
        let meta = Meta {
            title: name.split(' ').map(capital).collect::<Vec<_>>().join(" "),
            date: last_modified.split('T').next().unwrap_or_default().to_owned(),
            status: "complete".to_owned(),
            kind: kind(path),
            ..Meta::default()
        };
        Self {
            relative_path: path.to_owned(),
            meta,
            content: String::new(),
            last_modified,
            artifact_type,
            raw_content: None,
        }
    }

    fn group(&self) -> usize {
        let status = self.meta.status.trim().to_lowercase();
        GROUPS.iter().position(|group| group.contains(&status.as_str())).unwrap_or(UNKNOWN)
    }

    /// Whether it belongs to what people look at first: no record, and nothing that was put away.
    fn is_news(&self) -> bool {
        let is_record = self.meta.kind.as_deref().is_some_and(|kind| kind == "Commission" || kind == "Meeting");
        !is_record && self.relative_path != "heartbeat.md" && self.group() < INACTIVE
    }
}

impl Meta {
    fn of(mut fields: Map<String, Value>) -> Self {
        let mut text = |key: &str| match fields.remove(key) {
            Some(Value::String(text)) => text,
            _ => String::new(),
        };
        let (title, date, status) = (text("title"), text("date"), text("status"));
        let mut list = |key: &str| match fields.remove(key) {
            Some(Value::Array(items)) => {
                Some(items.into_iter().filter_map(|item| item.as_str().map(str::to_owned)).collect())
            }
            _ => None,
        };
        let (tags, modules, related) = (list("tags").unwrap_or_default(), list("modules"), list("related"));
        Self { title, date, status, tags, modules, related, extras: fields, kind: None }
    }
}

/// What the documents of a file's directory are called. `work/` is none.
fn kind(path: &str) -> Option<String> {
    let (directory, _) = path.strip_prefix("work/").unwrap_or(path).split_once('/')?;
    let known = TYPES.iter().find(|(name, _)| *name == directory);
    (directory != "work").then(|| known.map_or(directory, |(_, kind)| kind).to_owned())
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The artifacts of a worktree: those that want attention first, then by date, the newest first. With `newest`, so many of those
/// that were written last. It blocks.
pub(crate) fn list(worktree: &Path, newest: Option<usize>) -> Result<Vec<Artifact>, HallError> {
    let listed = || HallError::io("the artifacts cannot be listed");
    let Some(top) = if_there(open_directory(worktree)).map_err(listed())? else { return Ok(Vec::new()) };
    let Some(lore) = directory(&top, &[LORE]).map_err(listed())? else { return Ok(Vec::new()) };
    let (mut found, mut texts) = (Vec::new(), 0);
    for file in walk(&lore).take(MAX_WALKED).flatten() {
        // What has a name that cannot be said is left out.
        let Some(path) = file.path.to_str().map(|path| path.trim_start_matches("./").to_owned()) else { continue };
        let Some(kind) = Kind::of(&path).filter(|_| file.kind.is_file()) else { continue };
        let Some(modified) = modified(&lore, &path) else { continue };
        if kind != Kind::Document {
            found.push(Artifact::other(&path, kind, modified));
            continue;
        }
        let names = names(&path).ok();
        let Some(bytes) = names.and_then(|names| bytes(&lore, &names).ok().flatten()) else { continue };
        let mut artifact = Artifact { raw_content: None, ..Artifact::document(&path, &bytes, modified) };
        texts += artifact.content.len();
        if texts > MAX_LISTED_BYTES {
            artifact.content.clear();
        }
        found.push(artifact);
    }
    let by_path = |artifact: &Artifact| artifact.relative_path.clone();
    if let Some(most) = newest {
        found.retain(Artifact::is_news);
        found.sort_by_cached_key(|artifact| (Reverse(artifact.last_modified.clone()), by_path(artifact)));
        found.truncate(most);
        return Ok(found);
    }
    found.sort_by_cached_key(|artifact| {
        let Meta { title, date, status, .. } = &artifact.meta;
        let title = if title.is_empty() { by_path(artifact) } else { title.clone() };
        (artifact.group(), status.clone(), Reverse(date.clone()), title)
    });
    Ok(found)
}

/// An artifact of a worktree. It blocks.
pub(crate) fn read(worktree: &Path, path: &str) -> Result<Artifact, HallError> {
    let missing = || HallError::NotFound(format!("Artifact not found: {path}"));
    let full = in_lore(path);
    let names = names(&full).map_err(refused)?;
    let doing = || HallError::io(format!("the artifact {path:?} cannot be read"));
    let top = if_there(open_directory(worktree)).map_err(doing())?.ok_or_else(missing)?;
    let bytes = bytes(&top, &names).map_err(doing())?.ok_or_else(missing)?;
    let modified = modified(&top, &full).ok_or_else(missing)?;
    Ok(Artifact::document(below_lore(&full), &bytes, modified))
}

/// Writes an artifact into a worktree. The file is made in `new`, under that name. It blocks.
pub(crate) fn write(
    worktree: &Path,
    path: &str,
    content: &str,
    (new, temporary): (&Dir, &str),
) -> Result<(), HallError> {
    let full = in_lore(path);
    let names = names(&full).map_err(refused)?;
    if let Some(why) = protected(names.as_slice()) {
        return Err(HallError::Invalid(format!("{path:?} is not written: {why}")));
    }
    let doing = || HallError::io(format!("the artifact {path:?} cannot be written"));
    let [parents @ .., name] = names.as_slice() else { return Ok(()) };
    let mut dir = open_directory(worktree).and_then(|top| open_dir(&top, ".")).map_err(doing())?;
    for parent in parents {
        dir = open_or_make_dir(&dir, parent).map_err(doing())?;
    }
    if if_there(dir.symlink_metadata(name)).map_err(doing())?.is_some_and(|old| !old.is_file()) {
        return Err(HallError::Invalid(format!("{:?} is a directory or a link, and no file", text(&names))));
    }
    let kept = (ANYBODY, Survives::PowerCut);
    replace_from(new, temporary, (&dir, name.as_ref()), content.as_bytes(), kept).map(drop).map_err(doing())
}

fn bytes(top: &Dir, names: &Names<'_>) -> io::Result<Option<Vec<u8>>> {
    let [parents @ .., name] = names.as_slice() else { return Ok(None) };
    let Some(dir) = directory(top, parents)? else { return Ok(None) };
    Ok(read_whole(&dir, name, MAX_BYTES)?.map(|(bytes, _)| bytes))
}

fn modified(top: &Dir, path: &str) -> Option<Timestamp> {
    let modified = top.symlink_metadata(path).and_then(|about| about.modified()).map(SystemTime::into_std);
    Timestamp::try_from(modified.ok()?).ok()
}

fn below_lore(full: &str) -> &str {
    full.strip_prefix(LORE).map_or(full, |path| path.trim_start_matches('/'))
}

fn refused(why: ToolError) -> HallError {
    HallError::Invalid(why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_a_document_is_its_directory() {
        let kinds = [
            ("specs/a.md", Some("Spec")),
            ("work/specs/deep/a.md", Some("Spec")),
            ("work/commissions/a.md", Some("Commission")),
            ("own/a.md", Some("own")),
            ("work/work/a.md", None),
            ("a.md", None),
        ];
        for (path, expected) in kinds {
            assert_eq!(kind(path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn frontmatter_becomes_fields_and_what_is_not_known_is_kept() {
        let text = "---\ntitle: A plan\ndate: 2026-01-02\nstatus: open\ntags: [a, 1]\nowner: Ann\n---\n\nText.\n";
        let artifact = Artifact::document("plans/a.md", text.as_bytes(), Timestamp::UNIX_EPOCH);
        let meta = serde_json::to_value(&artifact.meta).unwrap();
        let expected = serde_json::json!({"title": "A plan", "date": "2026-01-02", "status": "open", "tags": ["a"],
            "extras": {"owner": "Ann"}, "type": "Plan"});
        assert_eq!((meta, artifact.content.as_str()), (expected, "\nText.\n"));
        for broken in ["---\n: [\n---\nText.", "No frontmatter.", "---\nnever ends"] {
            let artifact = Artifact::document("a.md", broken.as_bytes(), Timestamp::UNIX_EPOCH);
            assert_eq!((artifact.content.as_str(), artifact.meta), (broken, Meta::default()));
        }
        let picture = Artifact::other("design/night-sky_two.png", Kind::Image, Timestamp::UNIX_EPOCH);
        assert_eq!((picture.meta.title.as_str(), picture.meta.date.as_str()), ("Night Sky Two", "1970-01-01"));
    }
}
