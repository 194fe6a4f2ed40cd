//! The heartbeat of a project. A tick commissions the manager with the standing orders of `.lore/heartbeat.md`, as the user.
//!
//! Ticks are asked for. None comes by itself: each spends what a session of the manager spends, and the host spends nothing
//! that nobody asked for.

use std::sync::Arc;

use guild_contract::{
    OperationError,
    hall::{CommissionDispatched, CommissionPhase, HeartbeatStatus, HeartbeatTicked, NewCommission, Overrides},
};
use jiff::Timestamp;

use super::{
    Hall,
    artifacts::{Edit, check_writable, failed, named},
};
use crate::{
    commission::Commission,
    files::{Files, in_lore},
    heartbeat::{self, FILE},
    requester::Requester,
    workers::Activity,
};

/// The source of a commission that a tick made.
pub(super) const SOURCE: &str = "Heartbeat";
/// The most bytes of a heartbeat file that gets another entry.
const MAX_BYTES: u64 = 1 << 20;

impl Hall {
    /// The state of a project's heartbeat.
    ///
    /// # Errors
    /// Where there is no such project, or its file cannot be read.
    pub async fn heartbeat(&self, project: &str) -> Result<HeartbeatStatus, OperationError> {
        // The dashboard asks for each project. In one that is not permitted, nothing is read.
        let text = match &self.project(project)?.permit {
            Ok(_) => self.heartbeat_file(project).await?,
            Err(_) => String::new(),
        };
        let last = self.last_tick(project);
        let root = last.as_ref().map(|tick| tick.commission_id.as_str());
        let made = self.commissions.now().filter(|now| {
            let delegated = now.delegated.as_ref();
            delegated.is_some_and(|delegated| root == Some(delegated.root.as_str()))
        });
        let time = last.as_ref().and_then(|tick| created(tick).parse::<Timestamp>().ok());
        Ok(HeartbeatStatus {
            has_content: heartbeat::has_content(&text),
            standing_order_count: heartbeat::orders(&text),
            last_tick: time.map(Timestamp::as_millisecond),
            commissions_created_last_tick: made.count(),
            interval_minutes: None,
        })
    }

    /// Commissions the manager with the standing orders of a project, and has that dispatched.
    ///
    /// # Errors
    /// Where there are none, there is no manager, the last tick is not over, or the commission cannot be made.
    pub async fn tick(self: &Arc<Self>, project: &str) -> Result<HeartbeatTicked, OperationError> {
        let conflict = |why: String| Err(OperationError::Conflict(why));
        let settled = self.project(project)?;
        let _one = settled.shared.ticks.lock().await;
        let text = self.heartbeat_file(project).await?;
        if heartbeat::orders(&text) == 0 {
            return conflict(format!(
                "project {project:?} has no standing orders: write them into .lore/{FILE} below `## {}`, each on a line that \
                 begins with `- `",
                heartbeat::STANDING_ORDERS
            ));
        }
        let Some(manager) = self.all_workers().into_iter().find(|worker| worker.manages) else {
            return conflict(
                "standing orders are carried out by the manager, and this hall has none in service: `manager` in [hall] of \
                 guild.toml says which member it is, and `guild members` what is wrong with it"
                    .to_owned(),
            );
        };
        if let Some(last) = self.last_tick(project).filter(|last| is_ahead(last)) {
            let (id, status) = (&last.commission_id, last.status);
            return conflict(format!(
                "the last tick is not over: {id} is {status}; wait for it, or cancel or abandon it"
            ));
        }
        let new = NewCommission {
            project_name: project.to_owned(),
            title: SOURCE.to_owned(),
            worker_name: manager.key.to_string(),
            prompt: prompt(project, &text),
            dependencies: Vec::new(),
            resource_overrides: Overrides::default(),
        };
        let requester = Requester::StandingOrders;
        let made = self.create(new, &requester).await?;
        let dispatched = self.dispatch(made.commission_id.as_str(), &requester).await;
        let CommissionDispatched { status, reason, .. } = dispatched?;
        Ok(HeartbeatTicked { triggered: true, commission_id: made.commission_id, status, reason })
    }

    /// Adds an entry to a section of a project's heartbeat file, which is made where there is none. An entry that is there
    /// already is left as it is.
    ///
    /// # Errors
    /// Where there is no such project, or the file cannot be written.
    pub(super) async fn add_heartbeat_entry(
        self: &Arc<Self>,
        project: &str,
        (section, entry): (&'static str, String),
        by: &Activity,
    ) -> Result<(), OperationError> {
        let (_, integration) = self.integration(project).await?;
        let path = in_lore(FILE);
        check_writable(&integration, &path).await?;
        let message = format!("Add a heartbeat entry of {by}");
        let edit = move |files: &Files| {
            let names = named(&path)?;
            let found = files.read(&names, MAX_BYTES).map_err(|e| failed(&names, "read", &e))?;
            let text = found.map(|(bytes, _)| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
            let content = heartbeat::with_entry(&text, section, &entry);
            Ok(((), content.map(|content| Edit { path, content, message })))
        };
        self.edit_document(project, edit).await
    }

    /// The text of a project's heartbeat file; empty where there is none.
    async fn heartbeat_file(&self, project: &str) -> Result<String, OperationError> {
        match self.artifact(project, FILE).await {
            Ok(found) => Ok(found.raw_content.unwrap_or_default()),
            Err(OperationError::NotFound(_)) if self.project(project).is_ok() => Ok(String::new()),
            Err(e) => Err(e),
        }
    }

    /// The commission of a project's last tick.
    fn last_tick(&self, project: &str) -> Option<Arc<Commission>> {
        let is_tick = |now: &Arc<Commission>| {
            now.project_name == project && now.record.source.as_ref().is_some_and(|source| source.description == SOURCE)
        };
        self.commissions.now().filter(is_tick).max_by_key(|now| created(now).to_owned())
    }
}

/// Whether a commission begins by itself, or is under way. A commission that could not be dispatched does neither.
fn is_ahead(commission: &Commission) -> bool {
    commission.is_queued() || commission.status.phase() == CommissionPhase::Active
}

/// When a commission was made.
fn created(commission: &Commission) -> &str {
    commission.record.activity_timeline.first().map(|entry| entry.timestamp.as_str()).unwrap_or_default()
}

/// What the manager is asked in a tick.
fn prompt(project: &str, text: &str) -> String {
    format!(
        "The user asks for a tick of project {project}: have those of its standing orders carried out that are due now.\n\n\
         - For each standing order that is due, make and dispatch a commission. Name the order in its prompt.\n\
         - An order for which a commission was made lately is not due: `check_commission_status` lists them.\n\
         - Leave out an order that is unclear. Go no further than an order says. Where an order says that the user decides, \
         ask for a meeting.\n\
         - Watch items and context notes help to decide. Make no commission for them alone.\n\
         - Submit as the result which order led to which commission, and which were left out, and why.\n\n\
         This is `.lore/{FILE}` of the project:\n\n{text}"
    )
}
