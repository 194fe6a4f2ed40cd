//! Carries out the heartbeat of a project. A tick commissions the manager with the standing orders of
//! `.lore/heartbeat.md`, as the user.
//!
//! The host starts no tick by itself, because each one costs a manager session.

use std::sync::Arc;

use guild_contract::{
    OperationError,
    hall::{
        CommissionChanges, CommissionDispatched, CommissionPhase, CommissionStatus, HeartbeatStatus, HeartbeatTicked,
        NewCommission, Overrides,
    },
};
use jiff::Timestamp;

use super::{
    Commissions,
    commission::Commission,
    heartbeat_file::{self, FILE},
};
use crate::{
    core::{requester::Requester, workers::Activity},
    documents::{Edit, MAX_BYTES as ARTIFACT_BYTES, check_writable, failed, named},
    files::{Files, in_lore},
};

/// The source of a commission that a tick created.
pub(super) const SOURCE: &str = "Heartbeat";
/// The most bytes of a heartbeat file. The prompt of a tick contains the whole file.
const MAX_BYTES: usize = 64 * 1024;

impl Commissions {
    /// Returns the state of a project's heartbeat.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such project, or its file cannot be read.
    pub async fn heartbeat(&self, project: &str) -> Result<HeartbeatStatus, OperationError> {
        // The dashboard asks for each project. The files of a project that is not permitted are not read.
        let text = match &self.core.project(project)?.permit {
            Ok(_) => self.heartbeat_file(project).await?,
            Err(_) => String::new(),
        };
        let last = self.last_tick(project);
        let root = last.as_ref().map(|tick| tick.commission_id.as_str());
        let made = self.records.now().filter(|now| {
            let delegated = now.delegated.as_ref();
            delegated.is_some_and(|delegated| root == Some(delegated.root.as_str()))
        });
        let time = last.as_ref().and_then(|tick| created(tick).parse::<Timestamp>().ok());
        Ok(HeartbeatStatus {
            has_content: heartbeat_file::has_content(&text),
            standing_order_count: heartbeat_file::orders(&text),
            last_tick: time.map(Timestamp::as_millisecond),
            commissions_created_last_tick: made.count(),
            interval_minutes: None,
        })
    }

    /// Commissions the manager with the standing orders of a project, and dispatches that commission. A commission that
    /// an earlier tick could not dispatch is dispatched in place of a new one.
    ///
    /// # Errors
    ///
    /// Returns an error when there are no standing orders or no manager, when the last tick is not over, or when the
    /// commission cannot be created or dispatched.
    pub async fn tick(self: &Arc<Self>, project: &str) -> Result<HeartbeatTicked, OperationError> {
        let ticked = self.tick_once(project).await;
        if let Err(why) = &ticked {
            // The original's web UI does not show the answer.
            tracing::warn!(project, "the tick is refused: {why}");
        }
        ticked
    }

    async fn tick_once(self: &Arc<Self>, project: &str) -> Result<HeartbeatTicked, OperationError> {
        let conflict = |why: String| Err(OperationError::Conflict(why));
        let settled = self.core.project(project)?;
        let _one = settled.shared.ticks.lock().await;
        let text = self.heartbeat_file(project).await?;
        check_size(&text)?;
        if heartbeat_file::orders(&text) == 0 {
            return conflict(format!(
                "project {project:?} has no standing orders: write them into .lore/{FILE} below `## {}`, each on a line that \
                 begins with `- `",
                heartbeat_file::STANDING_ORDERS
            ));
        }
        let Some(manager) = self.core.all_workers().into_iter().find(|worker| worker.manages) else {
            return conflict(
                "the manager carries out standing orders, and this hall has none in service: `manager` in [hall] of \
                 guild.toml names the member, and `guild members` shows why it is not in service"
                    .to_owned(),
            );
        };
        let last = self.last_tick(project);
        if let Some(last) = last.as_ref().filter(|last| is_ahead(last)) {
            let (id, status) = (&last.commission_id, last.status);
            return conflict(format!(
                "the last tick is not over: {id} is {status}; wait for it, or cancel or abandon it"
            ));
        }
        let (worker_name, prompt) = (manager.key.to_string(), prompt(project, &text));
        let requester = Requester::StandingOrders;
        let commission_id = match last.filter(|last| last.worker_name == worker_name && has_not_begun(last)) {
            Some(last) => {
                let (commission_id, prompt) = (last.commission_id.to_string(), Some(prompt));
                self.update(CommissionChanges { commission_id, prompt, ..CommissionChanges::default() }).await?
            }
            None => {
                let new = NewCommission {
                    project_name: project.to_owned(),
                    title: SOURCE.to_owned(),
                    worker_name,
                    prompt,
                    dependencies: Vec::new(),
                    resource_overrides: Overrides::default(),
                };
                self.create(new, &requester).await?
            }
        }
        .commission_id;
        let CommissionDispatched { status, reason, .. } = self.dispatch(commission_id.as_str(), &requester).await?;
        Ok(HeartbeatTicked { triggered: true, commission_id, status, reason })
    }

    /// Adds an entry to a section of a project's heartbeat file, which is created if it is missing. An existing entry
    /// is left unchanged.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such project, or when the file is full, is not UTF-8, or cannot be written.
    pub(crate) async fn add_heartbeat_entry(
        self: &Arc<Self>,
        project: &str,
        section: &'static str,
        entry: String,
        by: &Activity,
    ) -> Result<(), OperationError> {
        let (_, integration) = self.core.integration(project).await?;
        let path = in_lore(FILE);
        check_writable(&integration, &path).await?;
        let message = format!("Add a heartbeat entry of {by}");
        let edit = move |files: &Files| {
            let names = named(&path)?;
            let found = files.read(&names, ARTIFACT_BYTES).map_err(|e| failed(&names, "read", &e))?;
            let text = String::from_utf8(found.map(|(bytes, _)| bytes).unwrap_or_default())
                .map_err(|_| OperationError::Conflict(format!("{path} is not UTF-8; write it as UTF-8 first")))?;
            let content = heartbeat_file::with_entry(&text, section, &entry);
            content.as_deref().map(check_size).transpose()?;
            Ok(((), content.map(|content| Edit { path, content, message })))
        };
        self.documents.edit(project, edit).await
    }

    /// The text of a project's heartbeat file; empty if there is none.
    async fn heartbeat_file(&self, project: &str) -> Result<String, OperationError> {
        match self.documents.read(project, FILE).await {
            Ok(found) => Ok(found.raw_content.unwrap_or_default()),
            Err(OperationError::NotFound(_)) if self.core.project(project).is_ok() => Ok(String::new()),
            Err(e) => Err(e),
        }
    }

    /// The commission of a project's last tick.
    fn last_tick(&self, project: &str) -> Option<Arc<Commission>> {
        let is_tick = |now: &Arc<Commission>| {
            now.project_name == project && now.record.source.as_ref().is_some_and(|source| source.description == SOURCE)
        };
        self.records.now().filter(is_tick).max_by_key(|now| created(now).to_owned())
    }
}

/// Whether a commission is running, or will start by itself. A commission that could not be dispatched will not.
fn is_ahead(commission: &Commission) -> bool {
    commission.is_queued() || commission.status.phase() == CommissionPhase::Active
}

/// Whether a commission was never dispatched, or could not be.
fn has_not_begun(commission: &Commission) -> bool {
    matches!(commission.status, CommissionStatus::Pending | CommissionStatus::Blocked)
}

/// Checks that the prompt of a tick has room for the text of a heartbeat file.
fn check_size(text: &str) -> Result<(), OperationError> {
    match text.len() {
        0..=MAX_BYTES => Ok(()),
        bytes => Err(OperationError::Conflict(format!(
            "{} has {bytes} bytes, more than the {MAX_BYTES} that a tick accepts; shorten it",
            in_lore(FILE)
        ))),
    }
}

/// The creation time of a commission.
fn created(commission: &Commission) -> &str {
    commission.record.activity_timeline.first().map(|entry| entry.timestamp.as_str()).unwrap_or_default()
}

/// The prompt of the manager in a tick.
fn prompt(project: &str, text: &str) -> String {
    format!(
        "The user asks for a tick of project {project}: have the standing orders that are due now carried out.\n\n\
         - For each standing order that is due, create and dispatch a commission. Name the order in its prompt.\n\
         - An order for which a commission was created lately is not due: `check_commission_status` lists the commissions.\n\
         - Leave out an order that is unclear. Do only the work that an order describes. If an order says that the user decides, ask for a meeting.\n\
         - Watch items and context notes help to decide. Create no commission for them alone.\n\
         - Submit as the result the commission for each order, and the orders that you left out, with the reasons.\n\n\
         This is `.lore/{FILE}` of the project:\n\n{text}"
    )
}
