//! Describes artifacts: the documents below `.lore/` of a project, with the fields of the original's API, in its order.

use std::cmp::Reverse;

use guild_contract::hall::{Artifact, ArtifactKind, ArtifactMeta};
use guild_fs::{clock::rfc3339, fingerprint::Fingerprint};
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::files::frontmatter;

/// An image or a mockup, and its file.
#[derive(Clone, Debug, PartialEq)]
pub struct ArtifactFile {
    /// The file's item in a list.
    pub artifact: Artifact,
    /// The media type, from the file's extension.
    pub media_type: &'static str,
    /// The whole content.
    pub bytes: Vec<u8>,
}

/// Fields of [`ArtifactMeta`] that are not among its extras.
const KNOWN: [&str; 6] = ["title", "date", "status", "tags", "modules", "related"];
/// The value of [`group`] for artifacts in final states.
const INACTIVE: u8 = 4;

/// Makes the artifact of a document with that text.
pub(crate) fn document(path: &str, raw: &str, written: Timestamp) -> Artifact {
    let plain = frontmatter::plain(raw);
    let read = match frontmatter::split(&plain) {
        Some((yaml, body)) => frontmatter::parse(yaml).map(|data| (meta(data), body.to_owned())),
        None => None,
    };
    let (meta, content) = read.unwrap_or_else(|| (ArtifactMeta::default(), raw.to_owned()));
    artifact(path, ArtifactKind::Document, written, meta, content)
}

/// Makes the artifact of an image or a mockup. Its title is the file name.
pub(crate) fn file(path: &str, kind: ArtifactKind, written: Timestamp) -> Artifact {
    let (date, status) = (written.strftime("%Y-%m-%d").to_string(), "complete".to_owned());
    let meta = ArtifactMeta { title: title(path), date, status, ..ArtifactMeta::default() };
    artifact(path, kind, written, meta, String::new())
}

fn artifact(path: &str, kind: ArtifactKind, written: Timestamp, meta: ArtifactMeta, content: String) -> Artifact {
    Artifact {
        relative_path: path.to_owned(),
        meta: ArtifactMeta { label: label(path), ..meta },
        content,
        last_modified: rfc3339(written),
        artifact_type: kind,
        raw_content: None,
    }
}

/// Whether a list of recent documents includes the artifact.
pub(crate) fn is_active(artifact: &Artifact) -> bool {
    !matches!(artifact.meta.label.as_deref(), Some("Commission" | "Meeting"))
        && artifact.relative_path != "heartbeat.md"
        && group(&artifact.meta.status) < INACTIVE
}

/// The fields of a frontmatter.
fn meta(data: Value) -> ArtifactMeta {
    let date = frontmatter::text(&data, "date");
    ArtifactMeta {
        title: frontmatter::text(&data, "title"),
        // A date with a time is cut to the date.
        date: date.parse().map_or(date, |time: Timestamp| time.strftime("%Y-%m-%d").to_string()),
        status: frontmatter::text(&data, "status"),
        tags: frontmatter::texts(&data, "tags").unwrap_or_default(),
        modules: frontmatter::texts(&data, "modules"),
        related: frontmatter::texts(&data, "related"),
        extras: match data {
            Value::Object(all) => all.into_iter().filter(|(key, _)| !KNOWN.contains(&key.as_str())).collect(),
            _ => Map::new(),
        },
        label: None,
    }
}

/// The kind of a file with that path; `None` if it is not a document.
pub(crate) fn kind_of(path: &str) -> Option<ArtifactKind> {
    let (_, end) = path.rsplit_once('.')?;
    match end.to_ascii_lowercase().as_str() {
        "md" => Some(ArtifactKind::Document),
        "html" => Some(ArtifactKind::Mockup),
        "png" | "jpg" | "jpeg" | "webp" | "gif" | "svg" => Some(ArtifactKind::Image),
        _ => None,
    }
}

/// The media type of a file that is served unchanged; `None` for documents, and for files that are not artifacts.
pub(crate) fn media_type(path: &str) -> Option<&'static str> {
    let (_, end) = path.rsplit_once('.')?;
    Some(match end.to_ascii_lowercase().as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "webp" => "image/webp",
        "gif" => "image/gif",
        "svg" => "image/svg+xml",
        "html" => "text/html; charset=utf-8",
        _ => return None,
    })
}

/// Sorts artifacts for people: open ones before finished ones, newer before older.
pub(crate) fn sort(artifacts: &mut [Artifact]) {
    artifacts.sort_by_cached_key(|Artifact { meta, relative_path, .. }| {
        let title = if meta.title.is_empty() { relative_path } else { &meta.title };
        (group(&meta.status), meta.status.clone(), Reverse(meta.date.clone()), title.to_lowercase())
    });
}

/// The position of a state in a list.
fn group(status: &str) -> u8 {
    match status.trim().to_lowercase().as_str() {
        "draft" | "open" | "pending" | "requested" | "queued" | "paused" | "approved" => 0,
        "active" | "current" | "in_progress" | "dispatched" => 1,
        "complete" | "completed" | "resolved" | "implemented" | "closed" | "executed" => 3,
        "wontfix" | "declined" | "superseded" | "outdated" | "abandoned" | "duplicate" | "invalid" | "archived"
        | "parked" => INACTIVE,
        // This includes blocked, failed, cancelled, and all other words.
        _ => 2,
    }
}

/// The label of an artifact from its path; `None` if it is not in a directory.
fn label(path: &str) -> Option<String> {
    let path = path.strip_prefix("work/").unwrap_or(path);
    let (directory, _) = path.split_once('/')?;
    let label = match directory {
        "work" => return None,
        "specs" => "Spec",
        "plans" => "Plan",
        "brainstorm" => "Brainstorm",
        "issues" => "Issue",
        "research" => "Research",
        "retros" => "Retro",
        "design" => "Design",
        "reference" => "Reference",
        "learned" => "Learned",
        "notes" => "Note",
        "tasks" => "Task",
        "diagrams" => "Diagram",
        "meetings" => "Meeting",
        "commissions" => "Commission",
        other => other,
    };
    Some(label.to_owned())
}

/// The file name as a title: each word begins with a capital.
fn title(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or_default();
    let name = name.rsplit_once('.').map_or(name, |(name, _)| name).replace(['-', '_'], " ");
    let mut in_word = false;
    let capital = |c: char| {
        let begins = !std::mem::replace(&mut in_word, c.is_ascii_alphanumeric());
        if begins { c.to_ascii_uppercase() } else { c }
    };
    name.chars().map(capital).collect()
}

pub(crate) fn time(state: &Fingerprint) -> Timestamp {
    let (seconds, nanoseconds) = state.modified();
    Timestamp::new(seconds, i32::try_from(nanoseconds).unwrap_or_default()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(path: &str, raw: &str) -> Artifact {
        super::document(path, raw, time(&Fingerprint::from_parts(0, 0, 0, (1_800_000_000, 120_000_000))))
    }

    #[test]
    fn a_document_is_what_its_frontmatter_says_and_what_stands_below() {
        let raw = "---\ntitle: \"A plan\"\ndate: 2026-11-23\nstatus: open\ntags: [a, 7]\nmodules: [x]\nauthor: Ada\n---\n\nText\n";
        let found = serde_json::to_string(&document("work/plans/a.md", raw)).unwrap();
        assert_eq!(
            found,
            r#"{"relativePath":"work/plans/a.md","meta":{"title":"A plan","date":"2026-11-23","status":"open","tags":["a"],"#
                .to_owned()
                + r#""modules":["x"],"extras":{"author":"Ada"},"type":"Plan"},"content":"\nText\n","#
                + r#""lastModified":"2027-01-15T08:00:00.120Z","artifactType":"document"}"#
        );
        for broken in ["", "Text", "---\ntitle: [\n---\nText", "---\ntitle: a\n"] {
            let read = document("a.md", broken);
            assert_eq!((read.meta, read.content.as_str()), (ArtifactMeta::default(), broken));
        }
        let of_a_time = document("a.md", "---\ndate: 2026-11-23T10:00:00.000Z\ntitle: 7\n---\n").meta;
        assert_eq!((of_a_time.date.as_str(), of_a_time.title.as_str()), ("2026-11-23", ""));
    }

    #[test]
    fn an_artifact_is_called_after_its_directory() {
        for (path, expected) in [
            ("specs/a.md", Some("Spec")),
            ("work/specs/deep/a.md", Some("Spec")),
            ("other/a.md", Some("other")),
            ("a.md", None),
            ("work/a.md", None),
            ("work/work/a.md", None),
        ] {
            assert_eq!(label(path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn an_image_is_called_after_its_file() {
        let state = Fingerprint::from_parts(0, 0, 0, (1_800_000_000, 0));
        let image = file("design/the-big_map.v2.PNG", kind_of("x.PNG").unwrap(), time(&state));
        assert_eq!((image.meta.title.as_str(), image.meta.date.as_str()), ("The Big Map.V2", "2027-01-15"));
        assert_eq!((image.meta.status.as_str(), image.artifact_type), ("complete", ArtifactKind::Image));
        assert_eq!([kind_of("a.html"), kind_of("a.rs"), kind_of("md")], [Some(ArtifactKind::Mockup), None, None]);
        // Each kind but documents has a media type, and nothing else has one.
        for path in ["a.md", "a.html", "a.png", "a.JPG", "a.jpeg", "a.webp", "a.gif", "a.svg", "a.js", "png"] {
            let shown = matches!(kind_of(path), Some(ArtifactKind::Image | ArtifactKind::Mockup));
            assert_eq!(media_type(path).is_some(), shown, "{path}");
        }
    }

    #[test]
    fn what_is_to_be_done_comes_first_and_the_newer_before_the_older() {
        let of = |path: &str, status: &str, date: &str| {
            document(path, &format!("---\nstatus: {status}\ndate: \"{date}\"\n---\n"))
        };
        let mut all = [
            of("gone.md", "archived", "2026-01-05"),
            of("done.md", "complete", "2026-01-04"),
            of("odd.md", "odd", "2026-01-03"),
            of("b.md", "open", ""),
            of("a.md", "open", ""),
            of("old.md", "open", "2026-01-01"),
            of("new.md", "open", "2026-01-02"),
        ];
        sort(&mut all);
        let paths = all.iter().map(|artifact| artifact.relative_path.as_str());
        assert_eq!(paths.collect::<Vec<_>>(), ["new.md", "old.md", "a.md", "b.md", "odd.md", "done.md", "gone.md"]);
        let active = all.iter().filter(|artifact| is_active(artifact));
        assert_eq!(active.count(), 6);
        assert!(!is_active(&of("work/commissions/a.md", "pending", "")));
    }
}
