//! Holds the context of a session of the CLI: its options, the session that it resumes, and its cancellation.

use std::{path::PathBuf, sync::Arc};

use guild_session::session::Session;
use tokio_util::sync::CancellationToken;

use super::{ClaudeOptions, redact::Secrets};

/// A session that is about to begin.
#[derive(Clone)]
pub(super) struct Conversation {
    pub(super) options: Arc<ClaudeOptions>,
    pub(super) program: PathBuf,
    pub(super) session: Session,
    /// The CLI's id of the session that it resumes.
    pub(super) resumed: Option<String>,
    /// Cancelled when the future that runs the session is dropped.
    pub(super) dropped: CancellationToken,
    /// Secrets, which are removed from errors and notes.
    pub(super) secrets: Secrets,
}

impl Conversation {
    pub(super) fn new(
        options: Arc<ClaudeOptions>,
        program: PathBuf,
        session: Session,
        resumed: Option<String>,
        dropped: CancellationToken,
    ) -> Self {
        let secrets = Secrets::of(&options.environment);
        Self { options, program, session, resumed, dropped, secrets }
    }
}
