//! Finds toolboxes for a host of one member: members of the same directory, which another host may serve.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use guild_contract::{Manifest, MemberKey};
use guild_fs::{clock::SystemClock, durable::open_directory};
use guild_jobs::MemoryStore;
use tokio::sync::watch;

use super::{
    component_loader::{Load, WantedComponent},
    roster::Roster,
};
use crate::{
    discovery::{self, FoundMember},
    jobs::host_context::HostContext,
    tools::{
        component::Component,
        named_toolboxes::{Offer, Others, Toolboxes, no_toolbox},
        toolbox::Toolbox,
    },
};

/// Those that the one member of a host names, and what is to be loaded of them: they are looked for once, in the
/// directory of members where the operator named one. They are components only: their jobs and memories are another
/// host's. `serves` is whether the host does, or carries out one task.
pub(crate) fn find(
    roster: &Arc<Roster>,
    own: &MemberKey,
    manifest: &Manifest,
    context: &HostContext,
    serves: bool,
) -> (Arc<Toolboxes>, Vec<Load>) {
    let members = context.config.members.as_deref();
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
        let offer = match other.member.and_then(|member| open_beside(member, context)) {
            Ok((offer, load)) => {
                loads.extend(load);
                offer
            }
            Err(why) => Offer::None(format!("is in state error: {why}")),
        };
        offers.insert((*key).clone(), offer);
    }
    let others = if members.is_some() { Others::Found(offers) } else { Others::Unknown };
    (Toolboxes::new(roster.offers(), others, serves), loads)
}

/// A toolbox of a member of another host.
fn open_beside(found: FoundMember, context: &HostContext) -> Result<(Offer, Option<Load>), String> {
    let spec = match &found.manifest.component {
        Some(spec) if spec.world.exports_toolbox() => spec.clone(),
        spec => return Ok((Offer::None(no_toolbox(spec.as_ref())), None)),
    };
    let (wanted, granted) = WantedComponent::new(&found, spec, &context.config, context.approval.clone())?;
    granted.log(&found, &context.resources.sources.granted(&granted.grants));
    let memory = MemoryStore::to_read(&found.dir, wanted.limits.clone(), Arc::new(SystemClock));
    let memory = memory.map_err(|e| format!("memory/: {e}"))?;
    let (done, component) = watch::channel(Component::Loading(None));
    let (resources, limits) = (context.resources.clone(), context.limits.clone());
    let toolbox = Toolbox::new(found.key, memory, granted.grants, resources, limits, component);
    Ok((Offer::Toolbox(toolbox), Some(Load { wanted, done, interrupted: None })))
}
