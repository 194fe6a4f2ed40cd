//! Bounds on the commissions that the manager makes. Each counts for the meeting or the commission of the user's with
//! which the delegation began, however many commissions lead there: each has a budget of its own, so a bound for each
//! activity alone would bound nothing.

use guild_contract::{Delegation, OperationError, hall::TimelineEntry};

use super::{Commissions, commission::Delegated};
use crate::{blocking::lock, core::workers::Activity};

/// How a timeline says that a commission of the manager's was refused.
const REFUSED: &str = "delegation_refused";

/// Why the manager may not make a commission.
pub(super) struct Refusal {
    /// The setting that says so.
    key: &'static str,
    why: String,
}

impl Commissions {
    /// Changes the bounds, from now on.
    pub fn set_delegation(&self, delegation: Delegation) {
        *lock(&self.delegation) = delegation;
    }

    /// The root and the budget of a commission that the manager makes in an activity. The caller holds
    /// [`Commissions::delegating`] until it is made.
    ///
    /// # Errors
    /// Where that would be beyond what the operator permits. [`Self::refuse`] follows, once the caller holds that no
    /// more.
    pub(super) fn delegate(&self, by: &Activity, budget_usd: f64) -> Result<Delegated, Refusal> {
        let (root, depth) = match by.commission().and_then(|id| self.records.get(id)?.now().delegated.clone()) {
            Some(Delegated { root, depth, .. }) => (root, depth + 1),
            None => (by.id().to_owned(), 1),
        };
        let allowed = *lock(&self.delegation);
        let (mut made, mut usd) = (0, 0.0);
        for now in self.records.now() {
            if now.delegated.as_ref().is_some_and(|delegated| delegated.root == root) {
                (made, usd) = (made + 1, usd + now.delegated_usd());
            }
        }
        let refused = if depth > allowed.depth {
            let why =
                format!("commissions of commissions go {} deep, and this one would be {depth} deep", allowed.depth);
            Some(("hall.delegation_depth", why))
        } else if made >= allowed.commissions {
            Some((
                "hall.delegation_commissions",
                format!("{root} has led to {made} commissions, and may lead to no more"),
            ))
        } else if usd + budget_usd > allowed.budget_usd {
            let why = format!(
                "what {root} has led to has spent or may spend {usd:.2} of {:.2} US dollars, and this one may spend \
                 {budget_usd:.2}, or as much as its `maxBudgetUsd` says",
                allowed.budget_usd
            );
            Some(("hall.delegation_budget_usd", why))
        } else {
            None
        };
        match refused {
            Some((key, why)) => Err(Refusal { key, why }),
            None => Ok(Delegated { root, depth, budget_usd, spent_usd: 0.0 }),
        }
    }

    /// The error of a commission that the manager may not make. The activity's timeline says so.
    pub(super) async fn refuse(&self, by: &Activity, Refusal { key, why }: Refusal) -> OperationError {
        let why = format!("{why} ({key}); go on with what there is, or have the user commission it");
        if let Err(e) = self.note_refusal(by, key, &why).await {
            tracing::warn!(activity = %by, "its timeline does not say that the manager was refused a commission: {e}");
        }
        OperationError::Conflict(why)
    }

    /// Says in an activity's timeline why the manager was refused a commission, once for each key: a model can ask a
    /// thousand times.
    async fn note_refusal(&self, by: &Activity, key: &str, why: &str) -> Result<(), OperationError> {
        let (time, why) = (self.core.time(), format!("The manager was refused a commission: {why}"));
        let is_new = |entry: &TimelineEntry| entry.event != REFUSED || !entry.reason.contains(key);
        match by {
            Activity::Commission(id) => {
                let Some(stored) = self.records.get(id) else { return Ok(()) };
                self.records
                    .change(&stored, |commission| {
                        if commission.record.activity_timeline.iter().all(is_new) {
                            commission.note(REFUSED, &why, time);
                        }
                        Ok(())
                    })
                    .await
            }
            Activity::Meeting(id, _) => self.meetings.note_new(id, REFUSED, &why, is_new).await,
        }
    }
}
