//! Searching the contents of files.

use std::{io, mem, ops::ControlFlow};

use cap_std::fs::File;
use grep_regex::{ErrorKind, RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};
use guild_session::{
    files::{FileEntry, FileMatches, FoundLine, GrepRequest, GrepResult, GrepWanted, Reason, Unread},
    tools::ToolError,
};
use ignore::types::{Types, TypesBuilder};
use tokio_util::sync::CancellationToken;

use crate::text::cut;

use super::{MAX_FILE_BYTES, glob::PathGlob, visible::cancelled};

/// Memory for one compiled pattern.
const MAX_PATTERN_BYTES: usize = 4 << 20;
/// Memory for the part of a file that is looked at: a line, or for a match over several lines the whole file.
const MAX_SEARCH_BYTES: usize = 16 << 20;
/// Bytes of results after which the search stops.
const MAX_FOUND_BYTES: usize = 8 << 20;
/// Where a line that was found is cut, in characters.
const MAX_LINE_CHARS: usize = 500;
/// Lines before and after a match, at most.
const MAX_CONTEXT: u32 = 1000;
/// Bytes that a path or a line takes besides its text.
const OVERHEAD: usize = 64;

/// A search under way.
pub(super) struct Search<'a> {
    matcher: RegexMatcher,
    searcher: Searcher,
    glob: Option<PathGlob>,
    types: Option<Types>,
    found: GrepResult,
    matches: Matches<'a>,
}

impl<'a> Search<'a> {
    /// A search for files in `directory`, a plain path that is empty where it is everything.
    pub(super) fn new(
        request: &GrepRequest,
        directory: &str,
        cancel: &'a CancellationToken,
    ) -> Result<Self, ToolError> {
        let mut matcher = RegexMatcherBuilder::new();
        matcher
            .size_limit(MAX_PATTERN_BYTES)
            .dfa_size_limit(MAX_PATTERN_BYTES)
            .case_insensitive(request.ignore_case)
            .multi_line(true);
        if request.multiline {
            matcher.dot_matches_new_line(true);
        } else {
            matcher.line_terminator(Some(b'\n'));
        }
        let matcher = matcher.build(&request.pattern).map_err(|error| {
            let hint = match error.kind() {
                ErrorKind::NotAllowed(_) => ": a match reaches over lines only where multiline is true",
                _ => "",
            };
            ToolError::InvalidInput(format!("pattern {:?}: {error}{hint}", request.pattern))
        })?;
        let (before, after) = match request.wanted {
            GrepWanted::Lines { before, after } => (before.min(MAX_CONTEXT), after.min(MAX_CONTEXT)),
            GrepWanted::Files | GrepWanted::Counts => (0, 0),
        };
        let searcher = SearcherBuilder::new()
            .line_number(true)
            .multi_line(request.multiline)
            .before_context(before as usize)
            .after_context(after as usize)
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(MAX_SEARCH_BYTES))
            .build();
        let glob = request.glob.as_deref().map(|glob| PathGlob::new(glob, directory)).transpose()?;
        let types = request.file_type.as_deref().map(types).transpose()?;
        let matches = Matches {
            wanted: request.wanted,
            left: request.limit,
            room: MAX_FOUND_BYTES,
            cancel,
            file: FileMatches::default(),
        };
        Ok(Self { matcher, searcher, glob, types, found: GrepResult::default(), matches })
    }

    /// Whether a file is one of those that are wanted. It is asked before the file is opened.
    pub(super) fn wants(&mut self, entry: &FileEntry) -> bool {
        let name = entry.path.rsplit('/').next().unwrap_or(&entry.path);
        let wanted = self.glob.as_ref().is_none_or(|glob| glob.matches(&entry.path))
            && self.types.as_ref().is_none_or(|types| types.matched(name, false).is_whitelist());
        if wanted && entry.size > MAX_FILE_BYTES {
            self.found.skipped += 1;
            return false;
        }
        wanted
    }

    /// Searches a file, or notes that it could not be opened. It breaks where enough was found.
    pub(super) fn file(&mut self, path: &str, opened: io::Result<File>) -> Result<ControlFlow<()>, ToolError> {
        let Ok(file) = opened else {
            self.found.unread.add(Reason::Denied, path);
            return Ok(ControlFlow::Continue(()));
        };
        let matches = &mut self.matches;
        if matches.left == 0 {
            return Ok(ControlFlow::Break(()));
        }
        matches.file = FileMatches { path: path.to_owned(), ..FileMatches::default() };
        let searched = self.searcher.search_reader(&self.matcher, file, &mut *matches);
        let file = mem::take(&mut matches.file);
        if matches.cancel.is_cancelled() {
            return Err(cancelled());
        }
        if let Err(error) = searched {
            // A file that vanished or cannot be read is no reason to leave the others out.
            tracing::debug!(path, %error, "could not be searched to its end");
            self.found.skipped += 1;
        }
        if file.count > 0 {
            matches.room = matches.room.saturating_sub(file.path.len() + OVERHEAD);
            self.found.files.push(file);
            if !matches!(matches.wanted, GrepWanted::Lines { .. }) {
                matches.left -= 1;
            }
        }
        self.found.full = matches.room == 0;
        let enough = matches.left == 0 || self.found.full;
        Ok(if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    /// What was found; `unread` is what the walk left out.
    pub(super) fn finish(mut self, mut unread: Unread) -> GrepResult {
        unread.extend(self.found.unread);
        self.found.unread = unread;
        self.found
    }
}

fn types(name: &str) -> Result<Types, ToolError> {
    let mut types = TypesBuilder::new();
    types.add_defaults().select(name);
    types.build().map_err(|error| {
        ToolError::InvalidInput(format!(
            "type {name:?}: {error}; types are those of ripgrep, such as rust, py, js or md"
        ))
    })
}

/// Collects what matches in one file after another.
struct Matches<'a> {
    wanted: GrepWanted,
    /// Lines or files that may still be found.
    left: u32,
    /// Bytes that results may still take.
    room: usize,
    cancel: &'a CancellationToken,
    file: FileMatches,
}

impl Matches<'_> {
    /// Takes a line; says whether there is room for another one.
    fn take(&mut self, number: Option<u64>, bytes: &[u8], matches: bool) -> bool {
        let text = String::from_utf8_lossy(bytes);
        let (shown, whole) = cut(text.trim_end_matches(['\n', '\r']), MAX_LINE_CHARS);
        let text = if whole { shown.to_owned() } else { format!("{shown} (cut)") };
        self.left = self.left.saturating_sub(1);
        self.room = self.room.saturating_sub(text.len() + OVERHEAD);
        let number = number.and_then(|number| u32::try_from(number).ok()).unwrap_or(u32::MAX);
        self.file.lines.push(FoundLine { number, text, matches });
        self.left > 0 && self.room > 0
    }
}

impl Sink for Matches<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        if self.cancel.is_cancelled() {
            return Ok(false);
        }
        if !matches!(self.wanted, GrepWanted::Lines { .. }) {
            self.file.count = self.file.count.saturating_add(1);
            return Ok(self.wanted != GrepWanted::Files);
        }
        for (line, number) in found.lines().zip(found.line_number().unwrap_or(0)..) {
            self.file.count = self.file.count.saturating_add(1);
            if !self.take(Some(number), line, true) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, found: &SinkContext<'_>) -> Result<bool, io::Error> {
        Ok(self.take(found.line_number(), found.bytes(), false))
    }
}
