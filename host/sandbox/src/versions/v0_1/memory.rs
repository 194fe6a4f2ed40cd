//! Implements `memory`: notes that outlast the job.

use std::sync::Arc;

use guild_contract::{
    capability::{Kind, MEMORY, MEMORY_WRITE},
    manifest,
};
use guild_jobs::{JobTools, memory::ScopeNotes};
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

/// The notes of a scope, for a call with this key.
fn keyed<'a>(context: &'a CallContext, scope: Scope, key: &str) -> Result<&'a ScopeNotes, ToolError> {
    let notes = scoped(context, scope)?;
    named("the key", key)?;
    Ok(notes)
}

fn scoped(context: &CallContext, scope: Scope) -> Result<&ScopeNotes, ToolError> {
    context.granted(&MEMORY)?;
    let notes = context.memory()?.scope(scope.into())?;
    // Its sessions may read more, since they have the base toolbox; a component has only the grants that its manifest
    // asks for.
    Kind::of_scope(scope.into()).map_or(Ok(()), |kind| context.granted(kind))?;
    Ok(notes)
}

impl From<manifest::Scope> for Scope {
    fn from(scope: manifest::Scope) -> Self {
        match scope {
            manifest::Scope::Worker => Self::Worker,
            manifest::Scope::Project => Self::Project,
            manifest::Scope::Global => Self::Global,
        }
    }
}

impl From<Scope> for manifest::Scope {
    fn from(scope: Scope) -> Self {
        match scope {
            Scope::Worker => Self::Worker,
            Scope::Project => Self::Project,
            Scope::Global => Self::Global,
        }
    }
}

/// The job for which memory is written. Without a job writing is refused, so that a refused dispatch leaves no trace.
fn writer(context: &CallContext, scope: Scope, key: &str, function: &'static str) -> Result<Arc<JobTools>, ToolError> {
    keyed(context, scope, key)?;
    context.granted(&MEMORY_WRITE)?;
    context.grants.base.may_write(scope.into()).map_err(ToolError::NotGranted)?;
    context.job.clone().ok_or_else(|| context.no_job(function))
}

impl Host for State {
    async fn store(&mut self, scope: Scope, key: String, content: String) -> HostResult<()> {
        self.blocking(move |context| {
            let job = writer(context, scope, &key, "memory.store")?;
            job.store_memory(scope.into(), &key, &content, None)
        })
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
        self.blocking(move |context| writer(context, scope, &key, "memory.delete")?.delete_memory(scope.into(), &key))
            .await
    }
}
