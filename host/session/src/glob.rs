//! Globs that a caller, a component or a model wrote: the filter of a list of jobs, and the patterns of Glob and Grep.
//!
//! They are globs of `globset`: `*`, `?`, `[...]`, `{...}`, `**`. They differ in one point: a filter matches descriptions,
//! in which `/` is a character like any other; a path's `*` and `?` stop at `/`.
//!
//! Three kinds of patterns are no globs, since each decides what somebody may do, and must mean no more than it says:
//!
//! - Members and read roots of a policy (`guild_contract::policy::wildcard`): `*` stands for any characters, all else for
//!   itself. A key with `[` or `{` in it must not become a wider pattern.
//! - Hosts of the web (`guild_web`): a host, `*.` and a domain, or `*`, with a port. `*` inside of a name would cross dots,
//!   and hosts are compared as addresses have them.
//! - Files of others keep their own standards: `.gitignore` that of git, `robots.txt` RFC 9309.

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
