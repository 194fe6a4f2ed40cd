//! Globs that a caller, a component or a model wrote.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

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
