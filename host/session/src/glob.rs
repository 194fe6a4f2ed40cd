//! Compiles globs of callers, components and models: the filter of a list of jobs, and the patterns of Glob and Grep.
//!
//! They are globs of `globset`: `*`, `?`, `[...]`, `{...}`, `**`. They differ in one point: a filter matches
//! descriptions, in which `/` is a character like any other, while `*` and `?` of a path stop at `/`.
//!
//! Three kinds of patterns are no globs, since each decides on a permission and must not match more than its author
//! expects:
//!
//! - Members and read roots of a policy (`guild_contract::capability::policy::wildcard`): `*` stands for any characters, and every
//!   other character for itself. A key with `[` or `{` must not become a wider pattern.
//! - Hosts of the web (`guild_web`): a host, `*.` and a domain, or `*`, with a port. `*` inside of a name would cross
//!   dots, and hosts are compared in the form of the URL standard.
//! - Files with standards of their own: `.gitignore` follows git, `robots.txt` RFC 9309.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// The most bytes of a glob, since alternates nest and each level takes stack while it is parsed.
pub const MAX_GLOB_BYTES: usize = 512;

/// Compiles a glob of at most [`MAX_GLOB_BYTES`]. With `literal_separator`, `*` and `?` stop at `/`.
///
/// # Errors
///
/// Returns the reason, as the end of a sentence, when the text is not a glob.
pub fn compile(glob: &str, literal_separator: bool) -> Result<GlobSet, String> {
    let glob = GlobBuilder::new(glob).literal_separator(literal_separator).build();
    let glob = glob.map_err(|error| error.kind().to_string())?;
    // A set returns an error where `Glob::compile_matcher` panics: for a glob that nests deeper than regular
    // expressions may.
    GlobSetBuilder::new().add(glob).build().map_err(|_| "it is too complex".to_owned())
}
