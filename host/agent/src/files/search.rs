//! Searches the contents of files.
//!
//! A file is decoded, and a line is searched literally, then folded. The found lines are shown unfolded.

use std::{
    borrow::Cow,
    io::{self, Cursor, Read as _},
    mem,
    ops::ControlFlow,
};

use cap_std::fs::File;
use grep_matcher::Matcher as _;
use grep_regex::{ErrorKind, RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};
use guild_contract::text::cut;
use guild_session::{
    charset,
    files::{FileEntry, FileMatches, FoundLine, GrepRequest, GrepResult, GrepWanted, Reason, Unread},
    fold::{fold, fold_pattern},
    tools::ToolError,
};
use ignore::types::{Types, TypesBuilder};
use tokio_util::sync::CancellationToken;

use super::{MAX_FILE_BYTES, glob::PathGlob, visible::cancelled};

/// Memory for one compiled pattern.
const MAX_PATTERN_BYTES: usize = 4 << 20;
/// Memory for the part of a file that is searched at once. A larger file is searched line by line and unfolded, and is
/// not searched for matches over several lines.
const MAX_SEARCH_BYTES: usize = 16 << 20;
/// Bytes of results after which the search stops.
const MAX_FOUND_BYTES: usize = 8 << 20;
/// The characters after which a found line is cut.
const MAX_LINE_CHARS: usize = 500;
/// The most lines before and after a match.
const MAX_CONTEXT: u32 = 1000;
/// Bytes that a path or a line takes besides its text.
const OVERHEAD: usize = 64;

/// A running search.
pub(super) struct Search<'a> {
    /// Matches the pattern or its folded form.
    matcher: RegexMatcher,
    multiline: bool,
    /// The bytes of the file that is searched.
    bytes: Vec<u8>,
    searcher: Searcher,
    glob: Option<PathGlob>,
    types: Option<Types>,
    found: GrepResult,
    matches: Matches<'a>,
}

impl<'a> Search<'a> {
    /// A search in `directory`, a plain path that is empty for all roots.
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
        let pattern = request.pattern.as_str();
        let build = || match fold_pattern(pattern) {
            // A folded pattern may be invalid.
            Some(folded) => matcher.build_many(&[pattern, &folded]).or_else(|_| matcher.build(pattern)),
            None => matcher.build(pattern),
        };
        let matcher = build().map_err(|error| {
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
            original: None,
        };
        let (multiline, bytes) = (request.multiline, Vec::new());
        Ok(Self { matcher, multiline, bytes, searcher, glob, types, found: GrepResult::default(), matches })
    }

    /// Whether to search a file. This is called before the file is opened.
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

    /// Searches a file, or notes that it could not be opened. Breaks once enough was found.
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
        let searched = self.search(file);
        let matches = &mut self.matches;
        let file = mem::take(&mut matches.file);
        if matches.cancel.is_cancelled() {
            return Err(cancelled());
        }
        if let Err(error) = searched {
            // A file that vanished or cannot be read does not end the search.
            tracing::debug!(path, %error, "a file could not be searched to its end");
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

    /// Searches the text of a file.
    fn search(&mut self, file: File) -> io::Result<()> {
        let Self { matcher, searcher, matches, bytes, .. } = self;
        bytes.clear();
        // Without enough memory the child ends and reports it, while `read_to_end` would only leave the file out.
        let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        bytes.reserve(length.min(MAX_SEARCH_BYTES));
        let mut file = file.take(MAX_FILE_BYTES);
        file.by_ref().take(MAX_SEARCH_BYTES as u64).read_to_end(bytes)?;
        let matcher = &*matcher;
        if bytes.len() == MAX_SEARCH_BYTES {
            return searcher.search_reader(matcher, Cursor::new(bytes).chain(file), matches);
        }
        if charset::is_binary(bytes) {
            return Ok(());
        }
        let text = charset::decode(bytes, None);
        let text = text.split('\0').next().unwrap_or_default();
        let Cow::Owned(_) = fold(text) else { return searcher.search_slice(matcher, text.as_bytes(), matches) };
        // Literal matches are searched first, since a pattern may be for characters that folding removes. For matches
        // over several lines the whole text is one part, since no text has the character at which it would be split.
        let mut folded = String::with_capacity(text.len());
        for part in text.split_inclusive(if self.multiline { char::MAX } else { '\n' }) {
            let is_match = matcher.is_match(part.as_bytes()).map_err(io::Error::other)?;
            folded.push_str(&if is_match { Cow::Borrowed(part) } else { fold(part) });
        }
        matches.original = Some(Lines { text: text.to_owned(), at: 0, next: 1 });
        let searched = searcher.search_slice(matcher, folded.as_bytes(), &mut *matches);
        matches.original = None;
        searched
    }

    /// The matches; `unread` counts the files that the walk left out.
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

/// Collects the matches of one file after another.
struct Matches<'a> {
    wanted: GrepWanted,
    /// Lines or files that may still be found.
    left: u32,
    /// Bytes that results may still take.
    room: usize,
    cancel: &'a CancellationToken,
    file: FileMatches,
    /// The unfolded file, if its folded form is searched.
    original: Option<Lines>,
}

/// The lines of a text, one after another.
struct Lines {
    text: String,
    /// The offset of the next line.
    at: usize,
    /// The number of the next line.
    next: u64,
}

impl Lines {
    /// The line of this number, from 1. Numbers have to be requested in ascending order.
    fn line(&mut self, number: u64) -> &str {
        let mut line = "";
        while self.next <= number {
            let rest = self.text.get(self.at..).unwrap_or_default();
            line = rest.split_inclusive('\n').next().unwrap_or_default();
            self.at += line.len();
            self.next += 1;
        }
        line
    }
}

impl Matches<'_> {
    /// Adds a line; returns whether there is room for another.
    fn take(&mut self, number: Option<u64>, bytes: &[u8], matches: bool) -> bool {
        let text = match &mut self.original {
            Some(lines) => Cow::Borrowed(lines.line(number.unwrap_or_default())),
            None => String::from_utf8_lossy(bytes),
        };
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
