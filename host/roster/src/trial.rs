//! Loads a member for a trial: as a host loads it, but without a host or an approval.

use std::sync::Arc;

use guild_agent::ReadRoots;
use guild_config::Config;
use guild_contract::{
    Bounds, Grants, Limits, MemberKey, capability::grants::wildcard, manifest::ComponentSpec, rpc::RpcError,
};
use guild_sandbox::{Candidate, Effort, LoadError, Sandbox, ToolScope, Unlisted};
use guild_session::files::Files as _;
use guild_trust::Approval;
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::{
    discovery::{FoundMember, granted::ceiling},
    members::component_loader::{self, WantedComponent, refusal},
    resources::read_roots::read_roots,
    tools::{
        component::Loaded,
        schema::{self, Schema, check_config_schema, config_schema},
        toolbox::{CheckedCall, ToolFailure},
    },
};

/// A member's component with what one configuration grants it.
pub struct Trial {
    /// The member's key.
    pub key: MemberKey,
    /// Its component, as the manifest has it.
    pub spec: ComponentSpec,
    /// Its grants.
    pub grants: Arc<Grants>,
    /// Its limits.
    pub limits: Arc<Limits>,
    /// The component, and its tools.
    pub loaded: Loaded,
    /// The read roots of the configuration that it is granted, if there are any.
    pub roots: Option<ReadRoots>,
    config_schema: Option<Schema>,
    checks: Semaphore,
}

impl Trial {
    /// The engine for components under test, with a compile cache that hosts do not share.
    ///
    /// # Errors
    ///
    /// Returns an error when the machine does not support the engine.
    pub fn sandbox(limits: &Arc<Limits>) -> Result<Arc<Sandbox>, LoadError> {
        component_loader::sandbox(limits, true)
    }

    /// Reads, compiles and links the component of a member, under the policy, the limits and the read roots of `config`.
    /// It blocks.
    ///
    /// # Errors
    ///
    /// Returns a sentence for the author when a host would not load the component, or cannot open a read root.
    pub fn load(sandbox: &Arc<Sandbox>, member: &FoundMember, config: &Config) -> Result<Self, String> {
        Self::link(member, config, |wanted| {
            let candidate = Candidate::read(&wanted.dir, &wanted.spec.file, wanted.limits.component_bytes)?;
            let (grants, limits) = (wanted.grants.clone(), wanted.limits.clone());
            sandbox.prepare_unlisted(&wanted.key, &candidate, &wanted.spec, grants, limits, Effort::Full)
        })
    }

    /// The same component with what another configuration grants it. It blocks for a moment.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::load`].
    pub fn under(&self, member: &FoundMember, config: &Config) -> Result<Self, String> {
        Self::link(member, config, |wanted| {
            self.loaded.plugin.linked_anew(&wanted.spec, wanted.grants.clone(), wanted.limits.clone())
        })
    }

    fn link(
        member: &FoundMember,
        config: &Config,
        link: impl FnOnce(&WantedComponent) -> Result<Unlisted, LoadError>,
    ) -> Result<Self, String> {
        let spec =
            member.manifest.component.clone().ok_or("its manifest has no `component`, so it runs no code here")?;
        // Approvals do not matter here: nothing of a trial has an effect.
        let (policy, limits, roots) = (config.policy.clone(), config.limits.clone(), config.roots.clone());
        let config = Config { policy, limits, roots, ..Config::default() };
        let approval = Arc::new(Approval::new(&config));
        let (wanted, granted) = WantedComponent::new(member, spec, &config, approval)?;
        check_config_schema(&wanted.spec, &wanted.limits)?;
        let refused = |why: LoadError| refusal(&wanted, &why.into());
        let plugin = link(&wanted).and_then(Unlisted::with_tools).map_err(refused)?;
        let roots = read_roots(&config, Vec::new()).map_err(|e| e.to_string())?;
        let names = |roots: &ReadRoots| {
            let granted = |name: &String| granted.grants.roots.as_ref().is_some_and(|it| it.grant(name, wildcard));
            roots.roots().into_iter().filter(granted).collect::<Vec<_>>()
        };
        Ok(Self {
            roots: roots.map(|roots| roots.only(&names(&roots))).filter(|roots| !roots.roots().is_empty()),
            loaded: component_loader::loaded(&wanted, plugin).map_err(refused)?,
            config_schema: config_schema(&wanted.spec)?,
            checks: Semaphore::new(schema::PERMITS),
            limits: wanted.limits.clone(),
            key: wanted.key,
            spec: wanted.spec,
            grants: granted.grants,
        })
    }

    /// The bounds of its jobs.
    pub fn ceiling(&self) -> Bounds {
        ceiling(&self.spec, &self.limits)
    }

    /// Checks a dispatch's `config` by the manifest's schema, as a host does before it asks the component.
    ///
    /// # Errors
    ///
    /// Returns the error that the caller of a dispatch gets.
    pub async fn check_config(&self, config: &Value) -> Result<(), RpcError> {
        let Some(schema) = &self.config_schema else { return Ok(()) };
        schema.check_config(&self.key, config, &self.limits, &self.checks, self.patience()).await
    }

    /// Calls a tool of the component, with its schemas checked on both ways.
    ///
    /// # Errors
    ///
    /// Returns a [`ToolFailure`].
    pub async fn call_tool(&self, tool: &str, input: Value, scope: ToolScope) -> Result<Value, ToolFailure> {
        let Self { key, loaded, limits, checks, .. } = self;
        CheckedCall { key, loaded, limits, checks }.make(tool, input, scope).await
    }

    /// Until when a call that is made now waits for others.
    pub fn patience(&self) -> std::time::Instant {
        std::time::Instant::now() + std::time::Duration::from_secs(self.limits.dispatch_wait_seconds.into())
    }
}
