//! What is logged even where a host logs only warnings.

/// The target of such a line: by it the log finds it.
pub const NOTICE: &str = "guild_roster::notice";
