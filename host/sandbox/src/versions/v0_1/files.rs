//! Implements `files`: reads under the granted read roots.

use std::sync::Arc;

use guild_contract::capability::FILES;
use guild_session::{
    files::{Files, GrepRequest, GrepWanted},
    tools::ToolError,
};
use tokio_util::sync::CancellationToken;

use super::{
    HostResult,
    bindings::guild::worker::files::{Host, Passage},
    named,
};
use crate::state::{CallContext, State};

/// The most lines or paths that one call returns.
const MAX_FOUND: u32 = 10_000;

fn granted(context: &CallContext) -> Result<Arc<dyn Files>, ToolError> {
    context.granted(&FILES)?;
    context.files.clone().ok_or_else(|| {
        ToolError::NotGranted(
            "there is nothing to read: the operator names read roots with `--sources DIR` or `[[roots]]` in guild.toml"
                .to_owned(),
        )
    })
}

impl Host for State {
    async fn read(&mut self, path: String, offset: u32, limit: u32) -> HostResult<String> {
        self.blocking(move |context| {
            let files = granted(context)?;
            named("the path", &path)?;
            let text = files.read(&path, offset, limit)?;
            context.uses.path(&path);
            Ok(text)
        })
        .await
    }

    async fn grep(&mut self, pattern: String, glob: Option<String>, limit: u32) -> HostResult<Vec<Passage>> {
        // The component's deadline or end drops this call, which cancels the search.
        let cancel = CancellationToken::new();
        let _stop = cancel.clone().drop_guard();
        self.blocking(move |context| {
            let files = granted(context)?;
            named("the pattern", &pattern)?;
            named("the glob", glob.as_deref().unwrap_or_default())?;
            let wanted = GrepWanted::Lines { before: 0, after: 0 };
            let request = GrepRequest { pattern, glob, wanted, limit: limit.min(MAX_FOUND), ..GrepRequest::default() };
            let found = files.grep(&request, &cancel)?;
            found.files.iter().for_each(|file| context.uses.path(&file.path));
            let passages = found.files.into_iter().flat_map(|file| {
                let path = file.path;
                file.lines.into_iter().map(move |line| Passage {
                    path: path.clone(),
                    line: line.number,
                    text: line.text,
                })
            });
            Ok(passages.collect())
        })
        .await
    }

    async fn glob(&mut self, pattern: String, limit: u32) -> HostResult<Vec<String>> {
        let cancel = CancellationToken::new();
        let _stop = cancel.clone().drop_guard();
        self.blocking(move |context| {
            let files = granted(context)?;
            named("the pattern", &pattern)?;
            let paths = files.glob(&pattern, None, limit.min(MAX_FOUND), &cancel)?;
            paths.iter().for_each(|path| context.uses.path(path));
            Ok(paths)
        })
        .await
    }
}
