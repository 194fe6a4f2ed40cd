//! Replaces the surroundings of a host's members for a probe: the model, the web, the clocks and the random numbers.

use std::{fmt, path::PathBuf, sync::Arc};

use guild_contract::{Grants, MemberKey};
use guild_sandbox::Environment;
use guild_session::{session::AgentRuntime, web::Web};

/// Is told of a member and the capabilities that its component used in a call.
pub type Used = dyn Fn(&MemberKey, Vec<String>) + Send + Sync;

/// The surroundings of members in place of the real ones, so that nothing leaves the process.
#[derive(Clone)]
pub struct Fakes {
    /// The runtime of sessions on `scripted`.
    pub runtime: Arc<dyn AgentRuntime>,
    /// The web of a job or a tool call with these grants, whatever `[web]` says.
    pub web: Arc<dyn Fn(&Grants) -> Web + Send + Sync>,
    /// The clocks and the random numbers of each call of a component.
    pub environment: Arc<dyn Fn() -> Environment + Send + Sync>,
    /// Told of the capabilities that a member's component used in a call of one of its tools, as `guild.toml` spells
    /// them. The transcripts of jobs have those of jobs.
    pub used: Arc<Used>,
    /// The program git; `gh` is looked for beside it.
    pub git: Option<PathBuf>,
}

impl fmt::Debug for Fakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fakes").field("git", &self.git).finish_non_exhaustive()
    }
}
