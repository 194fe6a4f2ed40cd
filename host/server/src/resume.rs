//! Jobs that a host left running: whether they go on, and what of.
//!
//! A member's directory can bring such jobs along, as it is copied to be installed, and their plans say what is run. So one
//! goes on only where its plan has the [seal](crate::seal) that a host gave it when the job was dispatched, where this very
//! directory was pinned before this host loaded it, and once its component is in service. Until that is known the job is
//! shown as running, can be cancelled, and nothing of it runs.

use std::{
    io, mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use cap_std::fs::Dir;
use guild_contract::{JobId, Limits};
use guild_jobs::{Accepted, JobStore, OwnerLock, Resume, RunningJob, Sealed, StoreOptions, SystemClock, interrupted};
use guild_session::{
    activation::Plan,
    session::{NoTools, Wanted},
    tools::Tools,
    transcript::Entry,
};
use tokio::runtime::Handle;

use crate::{
    member::Member,
    work::{self, Commission},
};

/// Why nothing goes on that the directory of a new member brought along.
const NEW: &str = "the member is new to this host (guild.lock did not have its directory as it is when the host started), \
                   and what a new directory brings along does not go on";

/// Why nothing goes on that has no seal, or that of another job.
const NOT_BEGUN: &str = "its plan.json does not have this host's seal for it (guild.seal beside guild.toml), so no host \
                         began it here, and it does not go on";

/// How long a job that goes on waits for the components of its toolboxes: no caller waits with it.
const LOADING: Duration = Duration::from_secs(3600);

/// Goes on with jobs that a host left running, or fails them.
pub(crate) struct Resumer {
    /// Who serves the member's directory now.
    member: Mutex<Weak<Member>>,
    host: Handle,
    left: Mutex<Left>,
}

/// What becomes of jobs that could go on.
enum Left {
    /// Nobody has decided yet. These wait for it.
    Open(Vec<Arc<RunningJob>>),
    /// They go on.
    GoOn,
    /// They have failed; the reason.
    Fail(String),
}

impl Resumer {
    /// For the jobs of a member's directory, which go on in the current runtime.
    pub(crate) fn new() -> Self {
        Self { member: Mutex::default(), host: Handle::current(), left: Mutex::new(Left::Open(Vec::new())) }
    }

    /// Jobs go on with this member from now on.
    pub(crate) fn serve(&self, member: &Arc<Member>) {
        *self.member.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(member);
    }

    fn member(&self) -> Option<Arc<Member>> {
        self.member.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    fn left(&self) -> MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says whether they go on; the first to say so decides. It blocks on storing the end of those that do not.
    pub(crate) fn decide(&self, verdict: Result<(), String>) {
        let waiting = {
            let mut left = self.left();
            let Left::Open(waiting) = &mut *left else { return };
            let waiting = mem::take(waiting);
            *left = verdict.map_or_else(Left::Fail, |()| Left::GoOn);
            waiting
        };
        waiting.into_iter().for_each(|job| self.resume(job));
    }

    /// The member is new to this host: all that its directory brought along is ended when this returns. Only then may it be
    /// pinned, so that a later host does not go on with it. It blocks.
    ///
    /// # Errors
    /// Where nobody knows what there is.
    pub(crate) fn end_all_of_a_new_member(&self) -> io::Result<()> {
        self.decide(Err(NEW.to_owned()));
        self.member().map_or(Ok(()), |member| member.home.store.recover())
    }

    /// Goes on with a job. It does not wait for it.
    fn go_on(&self, member: Arc<Member>, job: Arc<RunningJob>) {
        let places = member.means.places.clone();
        let under_way = member.home.begin(job.id());
        self.host.spawn(async move {
            let place = places.acquire_owned().await;
            if job.cancelled().is_cancelled() {
                return;
            }
            let read = {
                let job = job.clone();
                let member = member.clone();
                tokio::task::spawn_blocking(move || {
                    let plan = job.plan().map_err(|e| format!("its plan.json cannot be read: {e}"));
                    // Somebody may have put another one there since it was checked.
                    let plan = plan.and_then(|plan| begun(&member, job.id(), &plan).map(|()| plan.accepted));
                    plan.inspect_err(|why| fail(&job, why)).ok()
                })
            };
            let Ok(Some(plan)) = read.await else { return };
            let toolboxes = tokio::select! {
                toolboxes = toolboxes(&member, &plan.plan) => toolboxes,
                () = job.cancelled().cancelled() => return,
            };
            let toolboxes = match toolboxes {
                Ok(toolboxes) => toolboxes,
                Err(why) => return drop(tokio::task::spawn_blocking(move || fail(&job, &why)).await),
            };
            let reach = member.reach_of(&plan);
            let today = reach.tools();
            let granted_tools = plan.granted_tools.iter().filter(|tool| today.contains(tool)).cloned().collect();
            let plan = Accepted { granted_tools, ceiling: plan.ceiling.min(member.ceiling()), ..plan };
            work::carry_out(member, job, plan, reach, Commission::Resumed(toolboxes), (place, under_way)).await;
        });
    }
}

impl Resume for Resumer {
    fn seal(&self, job: &JobId, plan: &[u8]) -> Option<String> {
        let member = self.member()?;
        member.means.seals.seal(&member.home.dir, job, plan)
    }

    fn check(&self, job: &JobId, plan: &Sealed, history: &[Entry]) -> Result<(), String> {
        let member = self.member().ok_or("the host is stopping")?;
        if let Left::Fail(why) = &*self.left() {
            return Err(why.clone());
        }
        begun(&member, job, plan)?;
        let plan = &plan.accepted;
        let Plan::Session(session) = &plan.plan else {
            return Err("its plugin carried it out itself and was interrupted".to_owned());
        };
        // What it was dispatched with may not be what the operator allows by now.
        let agent = member.agent(Some(&plan.agent)).map_err(|e| e.message)?;
        let reach = member.reach_of(plan);
        let files = reach.reader.files.as_deref();
        let wanted = Wanted { model: session.model.as_deref(), files, ..Wanted::default() };
        let slot = member.means.runtimes.ready(agent, &wanted)?;
        if history.iter().any(|entry| matches!(entry, Entry::Truncated { .. })) {
            return Err("its transcript reached limits.transcript_bytes, so nobody knows where it was".to_owned());
        }
        // One that had not begun begins now.
        if history.is_empty() { Ok(()) } else { slot.runtime.can_resume(history) }
    }

    fn resume(&self, job: Arc<RunningJob>) {
        let why = match &mut *self.left() {
            Left::Open(waiting) => return waiting.push(job),
            Left::GoOn => None,
            Left::Fail(why) => Some(why.clone()),
        };
        // Somebody may have cancelled it while it waited, and then it has ended.
        if job.cancelled().is_cancelled() {
            return;
        }
        match (why, self.member()) {
            (None, Some(member)) => self.go_on(member, job),
            (None, None) => {}
            (Some(why), _) => fail(&job, &why),
        }
    }
}

/// Whether a host began that job of the member with that plan. It blocks.
fn begun(member: &Member, job: &JobId, plan: &Sealed) -> Result<(), String> {
    let own = |seal: &String| member.means.seals.is_seal(seal, &member.home.dir, job, &plan.text);
    if plan.seal.as_ref().is_some_and(own) { Ok(()) } else { Err(NOT_BEGUN.to_owned()) }
}

/// The toolbox tools of a plan, as its member and its toolboxes are by now. What is still being loaded is waited for.
async fn toolboxes(member: &Member, plan: &Plan) -> Result<Arc<dyn Tools>, String> {
    let names = match plan {
        Plan::Session(session) if !session.toolbox_tools.is_empty() => &session.toolbox_tools,
        _ => return Ok(Arc::new(NoTools)),
    };
    // A component is compiled within its time limit, so this is for all of them to be there.
    let offered = member.offered(Instant::now() + LOADING).await.map_err(|e| e.message)?;
    offered
        .only(names)
        .map_err(|name| format!("its session used the tool {name:?}, which no toolbox of its member has now"))
}

/// Ends a job that does not go on. It blocks.
fn fail(job: &RunningJob, why: &str) {
    if let Err(e) = job.fail(&interrupted(why)) {
        tracing::error!(job = %job.id(), "the end of the job could not be stored: {e}");
    }
}

/// Ends the jobs that a member's directory has as left running, before the member is approved: else what it brings along
/// would go on at the next start. A host that serves the member meanwhile has ended them, or they are its own.
///
/// # Errors
/// Where they cannot be ended, or a process works on the member that leaves them to the next host.
pub fn end_before_approval(member: &Dir, limits: &Arc<Limits>) -> Result<(), String> {
    match member.symlink_metadata("jobs") {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        _ => {}
    }
    let failed = |e: io::Error| format!("the jobs that are in its directory cannot be looked at: {e}");
    match OwnerLock::try_acquire(member, "").map_err(failed)? {
        Ok(_owner) => {
            let options = StoreOptions { limits: limits.clone(), clock: Arc::new(SystemClock) };
            let store = JobStore::open(member, options).map_err(failed)?;
            store.set_resume(Arc::new(Unapproved));
            store.recover().map_err(failed)
        }
        Err(owner) if owner.url.is_empty() => {
            Err(format!("process {} works on it; try again when that has ended", owner.pid))
        }
        Err(_) => Ok(()),
    }
}

/// Goes on with nothing.
struct Unapproved;

impl Resume for Unapproved {
    fn check(&self, _: &JobId, _: &Sealed, _: &[Entry]) -> Result<(), String> {
        Err("it was there before the member was approved as it is, and does not go on".to_owned())
    }

    /// None gets here.
    fn resume(&self, _: Arc<RunningJob>) {}
}
