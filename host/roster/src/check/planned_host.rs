//! Predicts from a configuration how a host would serve members, and which resources they would reach.

use std::path::PathBuf;

use guild_config::{Config, Runtime};
use guild_contract::Grants;
use guild_trust::Approval;
use serde::Serialize;

use crate::{
    discovery::{FoundMember, granted::Granted},
    members::error::OpenError,
    resources::{
        Resources,
        read_roots::{Sources, read_roots},
        runtimes::Runtimes,
        serving_options::Serving,
    },
};

/// The resources that members would reach on a host with a configuration.
pub struct Preview(Resources);

/// The source of a search's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Searched {
    /// The search provider of `[web.search]`.
    Provider,
    /// The read roots that are granted.
    ReadRoots,
    /// There is nothing to search.
    Nothing,
}

impl Preview {
    /// Opens the resources of `config`.
    ///
    /// # Errors
    ///
    /// Returns an error when the host would not start because a read root cannot be opened or `[web]` is invalid.
    pub fn new(config: &Config) -> Result<Self, OpenError> {
        let sources = Sources::new(read_roots(config, Vec::new())?);
        Ok(Self(Resources { sources, runtimes: Runtimes::new(config, None).map_err(OpenError::Config)? }))
    }

    /// The names of the read roots.
    pub fn roots(&self) -> Vec<String> {
        self.0.sources.names()
    }

    /// The tools that sessions with these grants can be given, and the source of their WebSearch.
    pub fn of(&self, grants: &Grants) -> (Vec<String>, Searched) {
        let reach = self.0.reach(None, grants);
        let searched = match (self.0.runtimes.web(grants).search, &reach.web.search) {
            (Some(_), _) => Searched::Provider,
            (None, Some(_)) => Searched::ReadRoots,
            (None, None) => Searched::Nothing,
        };
        (reach.tools, searched)
    }
}

/// The serving options of a host before it is started.
pub struct PlannedHost {
    config: Config,
    sources: Sources,
}

impl PlannedHost {
    /// A host with this configuration, these read roots besides (`--sources`), and this runtime (`--agent`).
    ///
    /// # Errors
    ///
    /// Returns an error when a read root cannot be opened.
    pub fn new(config: &Config, sources: Vec<PathBuf>, agent: Option<Runtime>) -> Result<Self, OpenError> {
        let sources = Sources::new(read_roots(config, sources)?);
        Ok(Self { config: config.clone().with_agent(agent), sources })
    }

    /// The options with which it would serve a member.
    ///
    /// # Errors
    ///
    /// Returns the reason when the host would not serve the member.
    pub fn serve(&self, member: &FoundMember) -> Result<Serving, String> {
        let spec = member.manifest.component.as_ref().ok_or("it has no `component`: its own process serves it")?;
        let granted = Granted::of(member, spec, &self.config, &Approval::new(&self.config))?;
        Serving::of(&member.key, &granted.grants, &self.config, &self.sources)
    }
}
