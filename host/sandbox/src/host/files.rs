//! `files`: reading under the granted read roots.

use std::sync::Arc;

use guild_contract::manifest::Interface;
use guild_jobs::{files::Files, tools::ToolError};

use super::{Answer, blocking};
use crate::{
    bindings::guild::worker::files::{Host, Passage},
    state::{Reach, State},
};

fn granted(reach: &Reach) -> Result<Arc<dyn Files>, ToolError> {
    reach.granted(Interface::Files)?;
    reach.files.clone().ok_or_else(|| {
        ToolError::NotGranted(
            "there is nothing to read: the operator names read roots with `--sources DIR` or `[[roots]]` in guild.toml"
                .to_owned(),
        )
    })
}

impl Host for State {
    async fn read(&mut self, path: String, offset: u32, limit: u32) -> Answer<String> {
        let reach = self.reach.clone();
        blocking(move || granted(&reach)?.read(&path, offset, limit)).await
    }

    async fn grep(&mut self, pattern: String, glob: Option<String>, limit: u32) -> Answer<Vec<Passage>> {
        let reach = self.reach.clone();
        blocking(move || {
            let found = granted(&reach)?.grep(&pattern, glob.as_deref(), limit)?;
            Ok(found.into_iter().map(|p| Passage { path: p.path, line: p.line, text: p.text }).collect())
        })
        .await
    }

    async fn glob(&mut self, pattern: String, limit: u32) -> Answer<Vec<String>> {
        let reach = self.reach.clone();
        blocking(move || granted(&reach)?.glob(&pattern, limit)).await
    }
}
