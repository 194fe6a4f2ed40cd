//! `memory`: what outlasts the job.

use std::sync::Arc;

use guild_contract::{grants::Capability, manifest::Interface};
use guild_jobs::{JobTools, MemoryStore};
use guild_session::tools::ToolError;

use super::{
    HostResult,
    bindings::guild::worker::{
        memory::{Entry, Host},
        types::Scope,
    },
    named,
};
use crate::state::{CallContext, State};

/// The member's memory, for what concerns this key.
fn keyed(context: &CallContext, scope: Scope, key: &str) -> Result<Arc<MemoryStore>, ToolError> {
    let memory = scoped(context, scope)?;
    named("the key", key)?;
    Ok(memory)
}

fn scoped(context: &CallContext, scope: Scope) -> Result<Arc<MemoryStore>, ToolError> {
    context.granted(Interface::Memory)?;
    match scope {
        Scope::Worker => Ok(context.memory()?.clone()),
        Scope::Project => Err(ToolError::NotGranted("the memory scope `project` is not available".to_owned())),
        Scope::Global => Err(ToolError::NotGranted("the memory scope `global` is not available".to_owned())),
    }
}

/// The job on whose account memory is written: a refused dispatch leaves no trace.
fn writer(context: &CallContext, scope: Scope, key: &str, function: &'static str) -> Result<Arc<JobTools>, ToolError> {
    keyed(context, scope, key)?;
    let line = r#""memory": { "write": true }"#;
    context.granted_too(context.grants.component.memory_write, &Capability::MemoryWrite, line)?;
    context.job.clone().ok_or_else(|| context.no_job(function))
}

impl Host for State {
    async fn store(&mut self, scope: Scope, key: String, content: String) -> HostResult<()> {
        self.blocking(move |context| writer(context, scope, &key, "memory.store")?.store_memory(&key, &content, None))
            .await
    }

    async fn load(&mut self, scope: Scope, key: String) -> HostResult<Option<String>> {
        self.blocking(move |context| keyed(context, scope, &key)?.load(&key)).await
    }

    async fn list(&mut self, scope: Scope) -> HostResult<Vec<Entry>> {
        self.blocking(move |context| {
            let entries = scoped(context, scope)?.list()?;
            Ok(entries.into_iter().map(|e| Entry { key: e.key, bytes: e.bytes, modified: e.modified }).collect())
        })
        .await
    }

    async fn delete(&mut self, scope: Scope, key: String) -> HostResult<bool> {
        self.blocking(move |context| writer(context, scope, &key, "memory.delete")?.delete_memory(&key)).await
    }
}
