//! Implements Read, Grep and Glob: their inputs, and the form of their results.

use std::num::NonZeroU32;

use guild_session::{
    files::{FileMatches, Files, GrepRequest, GrepResult, GrepWanted, Reason, Unread},
    tools::ToolError,
};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

/// The most lines that Read shows.
const READ_LINES: u32 = 2000;
/// The default and the greatest number of lines, files or paths that Grep and Glob show.
const SHOWN: (u32, u32) = (250, 5000);

/// Reads a text file. Each line comes with its number and a tab before it, as `cat -n` prints them; long lines are cut.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadInput {
    /// The file: root/path, as Grep and Glob name files.
    file_path: String,
    /// The first line to read; 1 by default.
    offset: Option<NonZeroU32>,
    /// The number of lines to read; 2000 by default, and at most.
    limit: Option<NonZeroU32>,
}

/// Searches the contents of files with a regular expression. Hidden files, binary files, and files that .gitignore
/// excludes are not searched.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GrepInput {
    /// The regular expression, in ripgrep's syntax.
    pattern: String,
    /// A file or directory to search; everything by default.
    path: Option<String>,
    /// Searches only files whose path matches, such as *.md or src/**/*.rs; with a ! before it, all other files.
    glob: Option<String>,
    /// Searches only files of this type, as ripgrep names types: rust, py, js, md.
    r#type: Option<String>,
    /// content: the lines that match; files_with_matches (the default): the files, newest first; count: the number of
    /// matching lines in each file.
    #[serde(default)]
    output_mode: OutputMode,
    /// The number of lines to show after each match; for content.
    #[serde(default, rename = "-A")]
    after: Option<u32>,
    /// The number of lines to show before each match; for content.
    #[serde(default, rename = "-B")]
    before: Option<u32>,
    /// The number of lines to show before and after each match; for content.
    #[serde(default, rename = "-C", alias = "context")]
    around: Option<u32>,
    /// Shows line numbers; true by default. For content.
    #[serde(default = "yes", rename = "-n")]
    numbers: bool,
    /// Ignores case.
    #[serde(default, rename = "-i")]
    ignore_case: bool,
    /// Lets a match span lines, and . match the end of a line; false by default.
    #[serde(default)]
    multiline: bool,
    /// The number of lines or files to show: 250 by default, 5000 at most; 0 is the most.
    head_limit: Option<u32>,
    /// The number of lines or files to skip first.
    #[serde(default)]
    offset: u32,
}

fn yes() -> bool {
    true
}

#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum OutputMode {
    Content,
    #[default]
    FilesWithMatches,
    Count,
}

/// Finds files by the pattern of their path, newest first.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GlobInput {
    /// The glob, such as *.md (in any directory) or src/**/*.rs.
    pattern: String,
    /// The directory to look in; everywhere by default.
    path: Option<String>,
}

pub(super) fn read(
    files: &dyn Files,
    input: ReadInput,
    room: usize,
    _: &CancellationToken,
) -> Result<String, ToolError> {
    let first = input.offset.map_or(1, NonZeroU32::get);
    let limit = input.limit.map_or(READ_LINES, |limit| limit.get().min(READ_LINES));
    let text = files.read(&input.file_path, first, limit)?;
    if text.is_empty() {
        return Ok("(the file is empty)".to_owned());
    }
    let (kept, shown) = fitting(text.split_inclusive('\n').map(str::len), room);
    if kept == text.len() || shown == 0 {
        return Ok(text);
    }
    let next = first.saturating_add(shown);
    Ok(format!("{}(cut here: go on with offset {next})", text.get(..kept).unwrap_or_default()))
}

pub(super) fn grep(
    files: &dyn Files,
    input: GrepInput,
    room: usize,
    cancel: &CancellationToken,
) -> Result<String, ToolError> {
    let most = match input.head_limit {
        Some(0) => SHOWN.1,
        limit => limit.unwrap_or(SHOWN.0).min(SHOWN.1),
    };
    let around = input.around.unwrap_or(0);
    let (before, after) = (input.before.unwrap_or(around), input.after.unwrap_or(around));
    let wanted = match input.output_mode {
        OutputMode::Content => GrepWanted::Lines { before, after },
        OutputMode::FilesWithMatches => GrepWanted::Files,
        OutputMode::Count => GrepWanted::Counts,
    };
    let request = GrepRequest {
        pattern: input.pattern,
        ignore_case: input.ignore_case,
        multiline: input.multiline,
        path: input.path,
        glob: input.glob,
        file_type: input.r#type,
        wanted,
        limit: input.offset.saturating_add(most).saturating_add(1),
    };
    let found = files.grep(&request, cancel)?;
    let GrepResult { skipped, full, unread, .. } = found;
    let lines = match input.output_mode {
        OutputMode::Content => found_lines(found.files, input.numbers, before > 0 || after > 0),
        OutputMode::FilesWithMatches => found.files.into_iter().map(|file| file.path).collect(),
        OutputMode::Count => found.files.into_iter().map(|file| format!("{}:{}", file.path, file.count)).collect(),
    };
    let none = if wanted == GrepWanted::Files { "No files found" } else { "No matches found" };
    let (mut text, next) = listed(&lines, input.offset, most, room, none);
    if let Some(next) = next {
        text.push_str(&format!("\n(cut here: go on with offset {next})"));
    }
    if full {
        text.push_str("\n(the search stopped here: there are too many matches, narrow it)");
    }
    if skipped > 0 {
        text.push_str(&format!(
            "\n({skipped} files were not searched to their end, most likely because they are too large)"
        ));
    }
    text.push_str(&not_read(&unread, lines.is_empty()));
    Ok(text)
}

/// A note to the model about files that were not searched: unreadable files always, others only if nothing was found.
fn not_read(unread: &Unread, nothing: bool) -> String {
    let tells = nothing && !unread.is_empty() || unread.count(Reason::Denied) > 0;
    if tells { format!("\n(not searched: {})", unread.lines().collect::<Vec<_>>().join("; ")) } else { String::new() }
}

/// Formats lines like ripgrep, with `--` where lines are left out.
fn found_lines(files: Vec<FileMatches>, numbers: bool, context: bool) -> Vec<String> {
    let mut all = Vec::new();
    for file in files {
        let mut last = None;
        for line in file.lines {
            if context && !all.is_empty() && last.is_none_or(|last: u32| last.saturating_add(1) < line.number) {
                all.push("--".to_owned());
            }
            last = Some(line.number);
            let mark = if line.matches { ':' } else { '-' };
            let number = if numbers { format!("{}{mark}", line.number) } else { String::new() };
            all.push(format!("{}{mark}{number}{}", file.path, line.text));
        }
    }
    all
}

pub(super) fn glob(
    files: &dyn Files,
    input: GlobInput,
    room: usize,
    cancel: &CancellationToken,
) -> Result<String, ToolError> {
    let found = files.glob(&input.pattern, input.path.as_deref(), SHOWN.0 + 1, cancel)?;
    let (mut text, next) = listed(&found, 0, SHOWN.0, room, "No files found");
    if let Some(next) = next {
        text.push_str(&format!("\n(cut after {next}: a narrower pattern or path finds the others)"));
    }
    if found.is_empty() {
        // A second walk is worth its time only now.
        text.push_str(&not_read(&files.walk(cancel)?.unread, true));
    }
    Ok(text)
}

/// The lines from `offset` on, at most `most` and as many as there is room for, and the offset of the next line.
fn listed(lines: &[String], offset: u32, most: u32, room: usize, none: &str) -> (String, Option<u32>) {
    let rest = lines.get(offset as usize..).unwrap_or_default();
    if rest.is_empty() {
        let past = if lines.is_empty() { String::new() } else { format!(" beyond the first {}", lines.len()) };
        return (format!("{none}{past}"), None);
    }
    let (_, fit) = fitting(rest.iter().map(|line| line.len() + 1), room);
    let shown = fit.clamp(1, most.max(1));
    let text = rest.iter().take(shown as usize).map(String::as_str).collect::<Vec<_>>().join("\n");
    (text, (rest.len() > shown as usize).then(|| offset.saturating_add(shown)))
}

/// The bytes and the number of lines of these lengths that fit into the room.
fn fitting(lengths: impl Iterator<Item = usize>, room: usize) -> (usize, u32) {
    let mut fitting = (0, 0);
    for length in lengths {
        if fitting.0 + length > room {
            break;
        }
        fitting = (fitting.0 + length, fitting.1 + 1);
    }
    fitting
}

#[cfg(test)]
mod tests {
    use guild_session::tools::parse;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_error_names_the_field() {
        let text = |input| parse::<GrepInput>("Grep", input).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(text(json!({})).contains("`pattern`"));
        assert!(text(json!({"pattern": 5})).contains("`pattern`"));
        assert!(text(json!({"pattern": "x", "-i": "yes"})).contains("`-i`"));
        assert!(text(json!({"pattern": "x", "-A": -1})).contains("`-A`"));
        assert!(text(json!({"pattern": "x", "output_mode": "all"})).contains("output_mode"));
        assert!(text(json!({"pattern": "x", "paths": "y"})).contains("`paths`"));
    }
}
