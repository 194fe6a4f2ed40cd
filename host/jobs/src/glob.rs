//! Globs that a caller, a component or a model wrote.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::error::StoreError;

/// Bytes of a glob at most: alternates nest, and each level takes some of the stack while it is read.
pub const MAX_GLOB_BYTES: usize = 512;

/// Compiles a glob of at most [`MAX_GLOB_BYTES`]. `*` and `?` stop at `/` where `literal_separator` says so.
///
/// # Errors
/// What is wrong with it, as the end of a sentence.
pub fn compile(glob: &str, literal_separator: bool) -> Result<GlobSet, String> {
    let glob = GlobBuilder::new(glob).literal_separator(literal_separator).build();
    let glob = glob.map_err(|error| error.kind().to_string())?;
    // A set's own error, since `Glob::compile_matcher` panics where a glob nests deeper than regular expressions may.
    GlobSetBuilder::new().add(glob).build().map_err(|_| "it is too complex".to_owned())
}

/// The filter of a list of jobs, which matches whole descriptions; `None` where there is none, or an empty one.
///
/// # Errors
/// What is wrong with it.
pub fn filter(filter: Option<&str>) -> Result<Option<GlobSet>, StoreError> {
    let Some(filter) = filter.filter(|filter| !filter.is_empty()) else { return Ok(None) };
    if filter.len() > MAX_GLOB_BYTES {
        return Err(StoreError::OverLimit(format!("filter has {} bytes; {MAX_GLOB_BYTES} are allowed", filter.len())));
    }
    let glob = compile(filter, false).map_err(|why| StoreError::Refused(format!("filter is not a glob: {why}")))?;
    Ok(Some(glob))
}
