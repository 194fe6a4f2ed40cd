//! Opens a member that was found in a directory, so that it can be served.

use std::{
    mem,
    sync::{Arc, PoisonError, RwLock},
};

use guild_agent::ReadRoots;
use guild_auth::Rules;
use guild_contract::Limits;
use guild_session::task::TaskError;
use tokio::sync::watch;

use super::{
    component_loader::{Load, Loader, NotLoaded, WantedComponent},
    error::OpenError,
    member::Member,
    roster::{MemberState, Roster},
    takeover,
};
use crate::{
    discovery::{Found, FoundMember, Mark, granted::Granted},
    jobs::{host_context::HostContext, member_data::MemberData},
    tools::{component::Component, schema::config_schema},
};

/// Opens members, with what they are opened on.
pub(crate) struct Opener {
    /// The host's context, without a member's own limits. It is replaced as a whole.
    pub(crate) context: RwLock<Arc<HostContext>>,
    /// The address at which they are served, if they are.
    pub(crate) base: Option<String>,
    /// Whether there is one member, at an address without its key.
    pub(crate) single: bool,
    pub(crate) loader: Arc<Loader>,
    pub(crate) roster: Arc<Roster>,
}

/// The result of opening a directory.
pub(crate) struct Opened {
    /// Its path under the members' directory.
    pub(crate) path: String,
    /// Its state then; or the reason that it is no member.
    pub(crate) looked: Result<Mark, String>,
    pub(crate) state: MemberState,
    /// Its component is to be loaded.
    pub(crate) load: Option<Load>,
}

impl Opener {
    /// The present context.
    pub(crate) fn context(&self) -> Arc<HostContext> {
        self.context.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The present limits of the host.
    pub(crate) fn limits(&self) -> Arc<Limits> {
        self.context.read().unwrap_or_else(PoisonError::into_inner).limits.clone()
    }

    /// Where a member is served: at `/mcp` alone, or under its key in a roster. Empty where the host serves no member.
    fn url(&self, key: &str) -> String {
        match &self.base {
            None => String::new(),
            Some(base) if self.single => format!("{base}/mcp"),
            Some(base) => format!("{base}/members/{key}/mcp"),
        }
    }

    /// Opens what was found; what cannot be is in state error. `data` is that of the same directory, where
    /// its jobs have not ended.
    pub(crate) async fn open_found(&self, Found { path, member }: Found, data: Option<Arc<MemberData>>) -> Opened {
        let looked = member.as_ref().map(|found| found.mark.clone()).map_err(Clone::clone);
        let opened = match member {
            Ok(found) => self.open(found, data).await.map_err(|e| e.to_string()),
            Err(reason) => Err(reason),
        };
        let (state, load) = match opened {
            Ok(Some((member, load))) => (MemberState::Ready(member), Some(load)),
            Ok(None) => (MemberState::Foreign, None),
            Err(reason) => (MemberState::Error(reason.into()), None),
        };
        Opened { path, looked, state, load }
    }

    /// Becomes a member's owner and opens it; none where it has no component of its own.
    pub(crate) async fn open(
        &self,
        found: FoundMember,
        data: Option<Arc<MemberData>>,
    ) -> Result<Option<(Arc<Member>, Load)>, OpenError> {
        let failed = |key: &str, why: String| OpenError::Member(format!("member {key}: {why}"));
        let key = found.key.to_string();
        let wanted = wanted(&self.context(), &found).map_err(|why| failed(&key, why))?;
        let Some(Wanted { component: wanted, granted, context }) = wanted else { return Ok(None) };
        let sha256 = found.manifest_sha256();
        let data = match data {
            Some(data) => data,
            None => {
                let owner = takeover::own(&found.dir, &found.key, &self.url(&key)).await?;
                log(&context, &found, &granted);
                let data = MemberData::open(found.key.clone(), found.dir, &context, owner).await;
                let data = data.map_err(|why| failed(&key, why))?;
                if self.base.is_none() {
                    // One task is carried out here. The next host resumes interrupted jobs.
                    data.store.defer_recovery();
                }
                data
            }
        };
        let (done, component) = watch::channel(Component::Loading(None));
        let interrupted = data.interrupted.clone();
        let manifest = (found.manifest, sha256);
        let member =
            Member::new(data, manifest, context, granted.grants, component).map_err(|why| failed(&key, why))?;
        member.enter_service();
        Ok(Some((member, Load { wanted, done, interrupted: Some(interrupted) })))
    }

    /// Makes what a member is to be from now on, over the same data, and loads its component. It is not in service yet.
    /// None where there is nothing new.
    ///
    /// # Errors
    ///
    /// Returns the reason when the member cannot be in service.
    pub(crate) async fn change(&self, before: &Arc<Member>, found: FoundMember, same: bool) -> Result<Change, String> {
        let Some(wanted) = wanted(&self.context(), &found)? else { return Ok(Change::Foreign) };
        let Wanted { component: wanted, granted, context } = wanted;
        log(&context, &found, &granted);
        let (done, component) = watch::channel(Component::Loading(None));
        let data = before.data.clone();
        let manifest = (found.manifest.clone(), found.manifest_sha256());
        let member = Member::new(data.clone(), manifest, context, granted.grants, component)?;
        let (wanted, interrupted) = (Arc::new(wanted), data.interrupted.clone());
        let sha256 = before.component().ready().map(|loaded| loaded.plugin.sha256().to_owned());
        let is_still = match sha256.filter(|_| same && member.grants == before.grants) {
            Some(sha256) => {
                let (wanted, interrupted) = (wanted.clone(), interrupted.clone());
                let looked = self.loader.in_turn(move || Loader::is_still(&wanted, &sha256, &interrupted));
                looked.await.map_err(NotLoaded::from).and_then(|is_still| is_still.map_err(NotLoaded::Refused))
            }
            None => Ok(false),
        };
        let loaded = match is_still {
            Ok(true) => return Ok(Change::Nothing),
            Ok(false) => self.loader.prepare(wanted, Some(interrupted), &done).await,
            Err(why) => Err(why),
        };
        match loaded {
            Ok(loaded) => {
                done.send_replace(Component::Ready(Arc::new(loaded)));
                Ok(Change::Another(member))
            }
            // The next host looks at the directory.
            Err(NotLoaded::Task(TaskError::Stopping)) => Ok(Change::Nothing),
            Err(why) => {
                let why = why.to_string();
                // A component that is still being loaded or linked anew may be the one that stays in service.
                before.loaded().await;
                if before.component().ready().is_some() {
                    return Err(why);
                }
                // There is no other one, and requests are answered what is wrong now.
                done.send_replace(Component::Failed(why));
                Ok(Change::Another(member))
            }
        }
    }

    /// Whether a member is granted something else by now than it has in service.
    pub(crate) fn is_granted_otherwise(&self, member: &Arc<Member>) -> bool {
        let wanted = served(member).and_then(|found| wanted(&self.context(), &found));
        matches!(wanted, Ok(Some(wanted)) if wanted.granted.grants != member.grants)
    }

    /// The members as they are under `context`, each over the same data. They are not in service yet.
    ///
    /// # Errors
    ///
    /// Returns the key of a member that cannot be in service, and the reason.
    pub(crate) fn renewed(&self, context: &HostContext) -> Result<Vec<Renewed>, String> {
        let members = self.roster.now().members();
        let served = members.iter().filter_map(|(path, entry)| Some((path, entry.member()?)));
        served.map(|(path, member)| renewed(context, member).map_err(|why| format!("member {path}: {why}"))).collect()
    }

    /// Puts members into service that were renewed for `context`, and the rules for requests, all at once. From now on,
    /// every other member is opened with this context, too. What is to be loaded is the caller's to begin.
    pub(crate) fn put_in_service(&self, context: HostContext, rules: Rules, renewed: &[Renewed]) {
        {
            let mut now = self.context.write().unwrap_or_else(PoisonError::into_inner);
            let before = mem::replace(&mut *now, Arc::new(context));
            before.approval.is_succeeded_by(now.approval.clone());
            self.roster.renew(rules, renewed.iter().map(|renewed| &renewed.member));
        }
        renewed.iter().for_each(|renewed| renewed.member.enter_service());
    }
}

/// A member as it is under another context.
pub(crate) struct Renewed {
    pub(crate) member: Arc<Member>,
    /// Its component is to be loaded: what it is granted, or how it has to be approved, is not what it was.
    pub(crate) load: Option<Load>,
}

/// A member as it is under `context`, over the same data, and with the same manifest.
///
/// # Errors
///
/// Returns the reason when the member cannot be in service.
pub(crate) fn renewed(context: &HostContext, before: &Arc<Member>) -> Result<Renewed, String> {
    let found = served(before)?;
    let wanted = wanted(context, &found)?.ok_or("it has no component")?;
    let Wanted { component: wanted, granted, context } = wanted;
    let may_still = context.approval.allows_all_of(&before.context.approval);
    let is_same = granted.grants == before.grants
        && context.limits.same_for_components(&before.context.limits)
        && may_still
        && !matches!(before.component(), Component::Failed(_));
    let manifest = (before.manifest().clone(), before.manifest_sha256.clone());
    if is_same {
        let component = before.component.clone();
        let member = Member::new(before.data.clone(), manifest, context, granted.grants, component)?;
        return Ok(Renewed { member, load: None });
    }
    log(&context, &found, &granted);
    // What its file has by now is another matter, and not in service before it has been accepted.
    let running = before.component().ready().filter(|_| may_still).map(|loaded| loaded.plugin.clone());
    let wanted = WantedComponent { running, ..wanted };
    let (done, component) = watch::channel(Component::Loading(None));
    let interrupted = Some(before.data.interrupted.clone());
    let member = Member::new(before.data.clone(), manifest, context, granted.grants, component)?;
    Ok(Renewed { member, load: Some(Load { wanted, done, interrupted }) })
}

/// A member as it is in service.
fn served(member: &Member) -> Result<FoundMember, String> {
    let dir = member.data.dir.try_clone().map_err(|e| e.to_string())?;
    Ok(FoundMember::served(member.key().clone(), dir, member.manifest().clone()))
}

/// The next state of a member; `None` if it has no component.
fn wanted(context: &HostContext, found: &FoundMember) -> Result<Option<Wanted>, String> {
    let Some(spec) = found.manifest.component.clone() else { return Ok(None) };
    // Before anything is opened for it.
    config_schema(&spec)?;
    let (component, granted) = WantedComponent::new(found, spec, &context.config, context.approval.clone())?;
    let context = HostContext { limits: component.limits.clone(), ..context.clone() };
    Ok(Some(Wanted { component, granted, context }))
}

/// Logs what a member is granted, and what it asks for without effect.
fn log(context: &HostContext, found: &FoundMember, granted: &Granted) {
    for warning in found.warnings() {
        tracing::warn!(member = %found.key, "{warning}");
    }
    granted.log(found, &context.resources.sources.granted(&granted.grants));
    let waiting = granted.grants.base.waiting().collect::<Vec<_>>().join(", ");
    if context.hall.is_some() && !waiting.is_empty() {
        tracing::warn!(
            member = %found.key,
            "its sessions have no {waiting} in commissions and meetings until `guild approve` has shown that this host gives it"
        );
    }
    for root in found.manifest.component.iter().flat_map(|spec| context.resources.sources.missing(spec)) {
        tracing::warn!(member = %found.key, "it asks for the read root {root:?}, and there is no such root");
    }
}

/// The next state of a member.
struct Wanted {
    component: WantedComponent,
    granted: Granted,
    /// With the member's own limits.
    context: HostContext,
}

/// The result of a change of a member's directory.
pub(crate) enum Change {
    /// The member as it is to be from now on, ready to serve; or with a component that cannot be in service, as the one
    /// before could not.
    Another(Arc<Member>),
    /// The member in service is up to date.
    Nothing,
    /// It has no component any more: another process serves it.
    Foreign,
}

/// The members and resources of another configuration, ready to be put in service.
pub(crate) struct Prepared {
    pub(crate) context: HostContext,
    pub(crate) rules: Rules,
    /// The components of toolboxes next to the one member.
    pub(crate) loads: Vec<Load>,
    /// The read roots, as they were opened for it.
    pub(crate) roots: Option<ReadRoots>,
}
