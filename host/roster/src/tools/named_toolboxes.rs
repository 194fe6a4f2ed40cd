//! Resolves the toolboxes that workers name in their manifests (REQ-WKR-12). A worker never runs with a part of its
//! tools (REQ-WKR-13).

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use async_trait::async_trait;
use guild_contract::{MemberKey, manifest::ComponentSpec, rpc::RpcError};
use guild_session::tools::{ToolCall, ToolDefinition, ToolError, Tools};
use tokio::sync::watch;

use super::{
    component::{Component, Loaded},
    toolbox::{ToolFailure, Toolbox},
};

/// Characters of a tool's name that every runtime takes.
const NAME_CHARS: usize = 64;

/// Finds what the member of a key offers as a toolbox; none where no such member is served.
pub(crate) type FindOffer = Box<dyn Fn(&MemberKey) -> Option<Offer> + Send + Sync>;

/// The toolboxes that there are.
pub(crate) struct Toolboxes {
    in_roster: FindOffer,
    others: Others,
    /// Whether the host serves, rather than to carry out one task.
    serves: bool,
}

/// Where there are toolboxes of members that are not in the roster.
pub(crate) enum Others {
    /// All members are in the roster.
    None,
    /// The host has one member, and no directory of members is named.
    Unknown,
    /// The host has one member: in the directory of members, what was found there of those that it names.
    Found(BTreeMap<MemberKey, Offer>),
}

/// The state of a member that is named as a toolbox.
#[derive(Clone)]
pub(crate) enum Offer {
    Toolbox(Arc<Toolbox>),
    /// It offers no tools; why, as the end of a sentence that begins with its name.
    None(String),
}

impl Toolboxes {
    /// The toolboxes of a roster, and others next to it. `serves` is false if the host carries out one task.
    pub(crate) fn new(in_roster: FindOffer, others: Others, serves: bool) -> Arc<Self> {
        Arc::new(Self { in_roster, others, serves })
    }

    fn find(&self, key: &MemberKey) -> Option<Offer> {
        if let Others::Found(found) = &self.others
            && let Some(offer) = found.get(key)
        {
            return Some(offer.clone());
        }
        (self.in_roster)(key)
    }

    /// All tools of these toolboxes, which `worker` names.
    ///
    /// # Errors
    ///
    /// Returns -32603, with the toolbox and the remedy, when a toolbox is missing, is broken or offers no tools, or
    /// when two tools would have the same name. Returns -32000 when a toolbox is still being loaded at `until`.
    pub(crate) async fn resolve(
        &self,
        worker: &MemberKey,
        named: &[MemberKey],
        until: Instant,
    ) -> Result<Offered, RpcError> {
        let mut tools: Vec<OfferedTool> = Vec::new();
        for key in named {
            let failed = |why: String| RpcError::internal(format!("the toolbox {key}, which {worker} needs, {why}"));
            let toolbox = match self.find(key) {
                Some(Offer::Toolbox(toolbox)) => toolbox,
                Some(Offer::None(why)) => return Err(failed(why)),
                None => return Err(failed(self.missing(key))),
            };
            let loaded = toolbox.loaded(until).await.map_err(|e| RpcError {
                message: format!("the toolbox {key}, which {worker} needs: {}", e.message),
                ..e
            })?;
            let new = loaded.catalogue.offered().map(|(tool, offered)| OfferedTool {
                definition: offered.clone(),
                name: tool.name.clone(),
                toolbox: toolbox.clone(),
                loaded: loaded.clone(),
            });
            tools.extend(new);
        }
        let mut names = BTreeMap::new();
        for tool in &tools {
            let name = tool.definition.name.as_str();
            if name.len() > NAME_CHARS {
                return Err(RpcError::internal(format!(
                    "{worker} cannot use the tool {:?} of the toolbox {}: sessions would call it {name:?}, which has {} \
                     characters, more than {NAME_CHARS}; give the toolbox's directory a shorter name",
                    tool.name,
                    tool.toolbox.key(),
                    name.len()
                )));
            }
            if let Some(other) = names.insert(name, tool) {
                return Err(RpcError::internal(format!(
                    "{worker} cannot use the tool {:?} of the toolbox {} beside {:?} of {}: sessions would call both \
                     {name:?}; give one toolbox's directory another name",
                    tool.name,
                    tool.toolbox.key(),
                    other.name,
                    other.toolbox.key()
                )));
            }
        }
        Ok(Offered(tools))
    }

    /// The components of those of `named` that are there.
    pub(crate) fn components(&self, named: &[MemberKey]) -> Vec<(MemberKey, watch::Receiver<Component>)> {
        let found = named.iter().filter_map(|key| match self.find(key) {
            Some(Offer::Toolbox(toolbox)) => Some((key.clone(), toolbox.component.clone())),
            _ => None,
        });
        found.collect()
    }

    fn missing(&self, key: &MemberKey) -> String {
        match self.others {
            Others::None => format!(
                "is not there: the directory of members has no member {key}; put it there, or take it out of \
                 `component.toolboxes` of the manifest"
            ),
            Others::Found(_) if self.serves => format!(
                "was not there when this host of one member started: the directory of members had no member {key}; put it \
                 there, and start the host again"
            ),
            Others::Found(_) => {
                format!("is not there: the directory of members has no member {key}; put it there, and run this again")
            }
            Others::Unknown => {
                let what_to_do = match self.serves {
                    true => "name it with `members` in guild.toml, and start the host again",
                    false => "name it with --members DIR, or `members` in guild.toml",
                };
                format!("cannot be looked for: no directory of members is known for the one member here; {what_to_do}")
            }
        }
    }
}

/// Why a member offers no tools; `None` where it has no component here.
pub(crate) fn no_toolbox(spec: Option<&ComponentSpec>) -> String {
    let what = match spec {
        Some(spec) => format!("its world `{}` exports no `toolbox`", spec.world.as_str()),
        None => "it has no component".to_owned(),
    };
    format!("offers no tools: {what}; name a member whose world is `toolbox-plugin` or `worker-toolbox`")
}

/// Tools of a worker's toolboxes, all of them or those of one session, with their components as they were when the job
/// was dispatched.
pub(crate) struct Offered(Vec<OfferedTool>);

#[derive(Clone)]
struct OfferedTool {
    /// The definition for sessions.
    definition: Arc<ToolDefinition>,
    /// The component's name of the tool.
    name: String,
    toolbox: Arc<Toolbox>,
    loaded: Arc<Loaded>,
}

impl Offered {
    /// The tools of these names, for a session.
    ///
    /// # Errors
    ///
    /// Returns the name of a tool that does not exist.
    pub(crate) fn only(&self, names: &[String]) -> Result<Arc<dyn Tools>, String> {
        let find = |name: &String| self.find(name).cloned().ok_or_else(|| name.clone());
        Ok(Arc::new(Self(names.iter().map(find).collect::<Result<_, _>>()?)))
    }

    fn find(&self, name: &str) -> Option<&OfferedTool> {
        self.0.iter().find(|tool| tool.definition.name == name)
    }
}

#[async_trait]
impl Tools for Offered {
    fn definitions(&self) -> Vec<Arc<ToolDefinition>> {
        self.0.iter().map(|tool| tool.definition.clone()).collect()
    }

    async fn call(&self, call: ToolCall) -> Result<serde_json::Value, ToolError> {
        let unknown = |name: &str| ToolError::InvalidInput(format!("there is no tool {name:?}"));
        let tool = self.find(&call.name).ok_or_else(|| unknown(&call.name))?;
        let called = tool.toolbox.call_of(&tool.loaded, &tool.name, call.input).await;
        called.map_err(|failure| match failure {
            ToolFailure::Unknown(name) => unknown(&name),
            ToolFailure::Failed(why) => ToolError::Unavailable(why),
            ToolFailure::Unavailable(error) => ToolError::Unavailable(error.message),
        })
    }
}
