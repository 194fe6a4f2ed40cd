//! `memory`: what outlasts the job.

use std::sync::Arc;

use guild_contract::{grants::Capability, manifest::Interface};
use guild_jobs::{JobTools, MemoryStore};
use guild_session::tools::ToolError;

use super::{
    Answer,
    bindings::guild::worker::{
        memory::{Entry, Host},
        types::Scope,
    },
    blocking, named,
};
use crate::state::{Reach, State};

/// The member's memory, for what concerns this key.
fn keyed(reach: &Reach, scope: Scope, key: &str) -> Result<Arc<MemoryStore>, ToolError> {
    let memory = scoped(reach, scope)?;
    named("the key", key)?;
    Ok(memory)
}

fn scoped(reach: &Reach, scope: Scope) -> Result<Arc<MemoryStore>, ToolError> {
    reach.granted(Interface::Memory)?;
    match scope {
        Scope::Worker => Ok(reach.memory()?.clone()),
        Scope::Project => Err(ToolError::NotGranted("the memory scope `project` is not available".to_owned())),
        Scope::Global => Err(ToolError::NotGranted("the memory scope `global` is not available".to_owned())),
    }
}

/// The job on whose account memory is written: a refused dispatch leaves no trace.
fn writer(reach: &Reach, scope: Scope, key: &str, function: &'static str) -> Result<Arc<JobTools>, ToolError> {
    keyed(reach, scope, key)?;
    let line = r#""memory": { "write": true }"#;
    reach.granted_too(reach.grants.memory_write, &Capability::MemoryWrite, line)?;
    reach.job.clone().ok_or_else(|| reach.no_job(function))
}

impl Host for State {
    async fn store(&mut self, scope: Scope, key: String, content: String) -> Answer<()> {
        let reach = self.reach.clone();
        blocking(move || writer(&reach, scope, &key, "memory.store")?.store_memory(&key, &content, None)).await
    }

    async fn load(&mut self, scope: Scope, key: String) -> Answer<Option<String>> {
        let reach = self.reach.clone();
        blocking(move || keyed(&reach, scope, &key)?.load(&key)).await
    }

    async fn list(&mut self, scope: Scope) -> Answer<Vec<Entry>> {
        let reach = self.reach.clone();
        blocking(move || {
            let entries = scoped(&reach, scope)?.list()?;
            Ok(entries.into_iter().map(|e| Entry { key: e.key, bytes: e.bytes, modified: e.modified }).collect())
        })
        .await
    }

    async fn delete(&mut self, scope: Scope, key: String) -> Answer<bool> {
        let reach = self.reach.clone();
        blocking(move || writer(&reach, scope, &key, "memory.delete")?.delete_memory(&key)).await
    }
}
