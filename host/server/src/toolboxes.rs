//! The toolboxes that workers name in their manifests: which there are, and the tools of those that a worker needs
//! (REQ-WKR-12). A worker never runs with a part of its tools (REQ-WKR-13).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak},
    time::Instant,
};

use async_trait::async_trait;
use guild_contract::{
    Manifest, MemberKey,
    manifest::{ComponentSpec, FILE_NAME},
    rpc::RpcError,
};
use guild_jobs::{MemoryStore, SystemClock, durable::open_directory};
use guild_session::tools::{ToolCall, ToolDefinition, ToolError, Tools};
use tokio::sync::watch;

use crate::{
    discovery::{self, FoundMember},
    host::MemberState,
    member::Means,
    plugins::{Component, Load, Loaded, WantedComponent},
    reach::{Granted, Reach},
    roster::Roster,
    toolbox::{ToolFailure, Toolbox},
};

/// Characters of a tool's name that every runtime takes.
const NAME_CHARS: usize = 64;

/// The toolboxes that there are.
pub(crate) struct Toolboxes {
    /// Who is served. It holds the members, and these hold this.
    roster: Weak<Roster>,
    others: Others,
    /// Whether the host goes on when this task is done.
    serves: bool,
}

/// Where there are toolboxes of members that are not in the roster.
enum Others {
    /// All members are in the roster.
    None,
    /// The host has one member, and nobody named a directory of members.
    Unknown,
    /// The host has one member: in the directory of members, what was found there of those that it names.
    Found(BTreeMap<MemberKey, Offer>),
}

/// What became of a member that is named as a toolbox.
#[derive(Clone)]
enum Offer {
    Toolbox(Arc<Toolbox>),
    /// It offers no tools; why, as the end of a sentence that begins with its name.
    None(String),
}

impl Toolboxes {
    /// Those of the members of a roster.
    pub(crate) fn of(roster: &Arc<Roster>) -> Arc<Self> {
        Arc::new(Self { roster: Arc::downgrade(roster), others: Others::None, serves: true })
    }

    /// Those that the one member of a host names, and what is to be loaded of them: they are looked for once, in the directory
    /// of members where the operator named one. They are components only: their jobs and memories are another host's. `serves`
    /// is whether the host does, or carries out one task.
    pub(crate) fn beside(
        roster: &Arc<Roster>,
        own: &MemberKey,
        manifest: &Manifest,
        means: &Means,
        serves: bool,
    ) -> (Arc<Self>, Vec<Load>) {
        let members = means.config.members.as_deref();
        let named = manifest.component.iter().flat_map(|spec| &spec.toolboxes);
        let named: BTreeSet<&MemberKey> = named.filter(|key| *key != own).collect();
        let (mut offers, mut loads) = (BTreeMap::new(), Vec::new());
        let there = members.filter(|_| !named.is_empty()).map(|members| {
            let there = open_directory(members).and_then(|dir| discovery::discover(&dir));
            there.unwrap_or_else(|e| {
                tracing::error!("the directory of members {} cannot be read: {e}", members.display());
                Vec::new()
            })
        });
        for other in there.into_iter().flatten() {
            let Some(key) = named.iter().find(|key| key.as_str() == other.path) else { continue };
            let offer = match other.member.and_then(|member| open_beside(member, means)) {
                Ok((offer, load)) => {
                    loads.extend(load);
                    offer
                }
                Err(why) => Offer::None(format!("is in state error: {why}")),
            };
            offers.insert((*key).clone(), offer);
        }
        let others = if members.is_some() { Others::Found(offers) } else { Others::Unknown };
        (Arc::new(Self { roster: Arc::downgrade(roster), others, serves }), loads)
    }

    fn find(&self, key: &MemberKey) -> Option<Offer> {
        if let Others::Found(found) = &self.others
            && let Some(offer) = found.get(key)
        {
            return Some(offer.clone());
        }
        Some(match self.roster.upgrade()?.state(key.as_str())? {
            MemberState::Ready(member) => match member.toolbox() {
                Some(toolbox) => Offer::Toolbox(toolbox.clone()),
                None => Offer::None(no_toolbox(member.manifest().component.as_ref())),
            },
            MemberState::Error(why) => Offer::None(format!("is in state error: {why}")),
            MemberState::Foreign => Offer::None(no_toolbox(None)),
        })
    }

    /// All tools of these toolboxes, which `worker` names.
    ///
    /// # Errors
    /// -32603 that names the toolbox and says what to do, where one is not there, broken, or offers no tools, or where two
    /// tools would have one name; -32000 where one is still being loaded at `until`.
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
        Ok(Offered { tools })
    }

    /// The components of those of `named` that are there.
    pub(crate) fn components(&self, named: &[MemberKey]) -> Vec<(MemberKey, watch::Receiver<Component>)> {
        let found = named.iter().filter_map(|key| match self.find(key) {
            Some(Offer::Toolbox(toolbox)) => Some((key.clone(), toolbox.component())),
            _ => None,
        });
        found.collect()
    }

    fn missing(&self, key: &MemberKey) -> String {
        match self.others {
            Others::None => format!(
                "is not there: the directory of members has no member {key}; put it there, or take it out of \
                 `component.toolboxes` in {FILE_NAME}"
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

/// A toolbox of another host's member.
fn open_beside(found: FoundMember, means: &Means) -> Result<(Offer, Option<Load>), String> {
    let spec = match &found.manifest.component {
        Some(spec) if spec.world.exports_toolbox() => spec.clone(),
        spec => return Ok((Offer::None(no_toolbox(spec.as_ref())), None)),
    };
    let granted = Granted::of(&found, &spec, &means.config)?;
    granted.log(&found, &means.sources.granted(&granted.grants));
    let dir = found.dir.try_clone().map_err(|e| e.to_string())?;
    let wanted = WantedComponent::new(&found, dir, spec, &granted, means.approval.clone());
    let memory = MemoryStore::to_read(&found.dir, wanted.limits.clone(), Arc::new(SystemClock));
    let memory = memory.map_err(|e| format!("memory/: {e}"))?;
    let (done, component) = watch::channel(Component::Loading(None));
    let reach = Reach::new(Some(&found.key), granted.grants, &means.sources, &means.runtimes);
    let toolbox = Toolbox::new(found.key, memory, &reach, means, component);
    Ok((Offer::Toolbox(toolbox), Some(Load { wanted, done, resumer: None })))
}

/// Why a member offers no tools; `None` where it has no component here.
fn no_toolbox(spec: Option<&ComponentSpec>) -> String {
    let what = match spec {
        Some(spec) => format!("its world `{}` exports no `toolbox`", spec.world.as_str()),
        None => "it has no component".to_owned(),
    };
    format!("offers no tools: {what}; name a member whose world is `toolbox-plugin` or `worker-toolbox`")
}

/// The tools of a worker's toolboxes, with their components as they were when the job was dispatched.
pub(crate) struct Offered {
    tools: Vec<OfferedTool>,
}

#[derive(Clone)]
struct OfferedTool {
    /// As sessions see it.
    definition: Arc<ToolDefinition>,
    /// What its component calls it.
    name: String,
    toolbox: Arc<Toolbox>,
    loaded: Arc<Loaded>,
}

impl Offered {
    /// What the worker is told of them.
    pub(crate) fn definitions(&self) -> Vec<Arc<ToolDefinition>> {
        self.tools.iter().map(|tool| tool.definition.clone()).collect()
    }

    /// Those of these names, for a session.
    ///
    /// # Errors
    /// The name of which there is none.
    pub(crate) fn only(&self, names: &[String]) -> Result<Arc<dyn Tools>, String> {
        let find = |name: &String| {
            self.tools.iter().find(|tool| tool.definition.name == *name).cloned().ok_or_else(|| name.clone())
        };
        Ok(Arc::new(Chosen(names.iter().map(find).collect::<Result<_, _>>()?)))
    }
}

/// The toolbox tools of one session.
struct Chosen(Vec<OfferedTool>);

#[async_trait]
impl Tools for Chosen {
    fn definitions(&self) -> Vec<Arc<ToolDefinition>> {
        self.0.iter().map(|tool| tool.definition.clone()).collect()
    }

    async fn call(&self, call: ToolCall) -> Result<serde_json::Value, ToolError> {
        let unknown = |name: &str| ToolError::InvalidInput(format!("there is no tool {name:?}"));
        let tool = self.0.iter().find(|tool| tool.definition.name == call.name).ok_or_else(|| unknown(&call.name))?;
        let called = tool.toolbox.call_of(&tool.loaded, &tool.name, call.input).await;
        called.map_err(|failure| match failure {
            ToolFailure::Unknown(name) => unknown(&name),
            ToolFailure::Failed(why) => ToolError::Unavailable(why),
            ToolFailure::Unavailable(error) => ToolError::Unavailable(error.message),
        })
    }
}
