//! Globs over the paths of read roots.

use globset::{GlobBuilder, GlobMatcher};
use guild_jobs::tools::ToolError;

/// A glob as agents write them: without a `/` it matches a file's name anywhere; with one, the whole path, with or
/// without the root's name before it. `*` and `?` stop at `/`, `**` does not.
pub(super) struct PathGlob {
    matcher: GlobMatcher,
    name_only: bool,
}

impl PathGlob {
    pub(super) fn new(pattern: &str) -> Result<Self, ToolError> {
        let matcher = GlobBuilder::new(pattern)
            .literal_separator(true)
            .build()
            .map_err(|error| ToolError::InvalidInput(format!("glob {pattern:?}: {}", error.kind())))?
            .compile_matcher();
        Ok(Self { matcher, name_only: !pattern.contains('/') })
    }

    pub(super) fn matches(&self, path: &str) -> bool {
        if self.name_only {
            return self.matcher.is_match(path.rsplit('/').next().unwrap_or(path));
        }
        self.matcher.is_match(path) || path.split_once('/').is_some_and(|(_, inner)| self.matcher.is_match(inner))
    }
}
