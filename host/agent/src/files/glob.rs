//! Matches the paths of read roots against globs.

use globset::GlobSet;
use guild_session::{
    fold::{fold, fold_pattern},
    glob::{MAX_GLOB_BYTES, compile},
    tools::ToolError,
};

/// A glob in the syntax that agents use. Without a `/` it matches a file's name anywhere; with one, the whole path, or
/// the path from the searched directory or from the root. `*` and `?` stop at `/`, `**` does not. A leading `!` inverts
/// the match. Names match literally and folded.
pub(super) struct PathGlob {
    matcher: GlobSet,
    /// The folded pattern, for folded names.
    folded: GlobSet,
    name_only: bool,
    negated: bool,
    /// The searched directory, with a `/` at its end; empty for all roots.
    directory: String,
}

impl PathGlob {
    /// A glob for files in a directory. `directory` is a plain path, or empty for all roots.
    pub(super) fn new(pattern: &str, directory: &str) -> Result<Self, ToolError> {
        if pattern.len() > MAX_GLOB_BYTES {
            let bytes = pattern.len();
            return Err(ToolError::OverLimit(format!("the glob has {bytes} bytes; {MAX_GLOB_BYTES} are allowed")));
        }
        let (negated, wanted) = pattern.strip_prefix('!').map_or((false, pattern), |rest| (true, rest));
        let name_only = !wanted.contains('/');
        let wanted = wanted.trim_start_matches("./").trim_start_matches('/');
        let matcher =
            compile(wanted, true).map_err(|why| ToolError::InvalidInput(format!("glob {pattern:?}: {why}")))?;
        let folded = fold_pattern(wanted).and_then(|wanted| compile(&wanted, true).ok());
        let folded = folded.unwrap_or_else(|| matcher.clone());
        let directory = if directory.is_empty() { String::new() } else { format!("{directory}/") };
        Ok(Self { matcher, folded, name_only, negated, directory })
    }

    pub(super) fn matches(&self, path: &str) -> bool {
        let is_match =
            |name: &str| self.matcher.is_match(name) || !name.is_ascii() && self.folded.is_match(fold(name).as_ref());
        let found = if self.name_only {
            is_match(path.rsplit('/').next().unwrap_or(path))
        } else {
            let in_directory = path.strip_prefix(&self.directory);
            let in_root = path.split_once('/').map(|(_, inner)| inner);
            [Some(path), in_directory, in_root].into_iter().flatten().any(is_match)
        };
        found != self.negated
    }
}
