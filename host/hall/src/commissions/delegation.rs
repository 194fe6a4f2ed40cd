//! Bounds the commissions that the manager creates. Each counts for the user's meeting or commission from which the
//! delegation started, at any depth: each commission has a budget of its own, so a bound on single activities alone
//! would not bound the total.

use guild_contract::{Delegation, OperationError, hall::TimelineEntry};

use super::{Commissions, commission::Delegated};
use crate::{blocking::lock, core::workers::Activity};

/// The timeline event of a refused commission of the manager's.
const REFUSED: &str = "delegation_refused";

/// The refusal of a commission of the manager's.
pub(super) struct Refusal {
    /// The setting that refuses it.
    key: &'static str,
    why: String,
}

impl Commissions {
    /// Replaces the bounds.
    pub fn set_delegation(&self, delegation: Delegation) {
        *lock(&self.delegation) = delegation;
    }

    /// The root and the budget of a commission that the manager creates in an activity. The caller holds
    /// [`Commissions::delegating`] until the commission exists.
    ///
    /// # Errors
    ///
    /// Returns a refusal when the commission would exceed the operator's bounds. The caller then releases the lock and
    /// calls [`Self::refuse`].
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
                format!("commissions of commissions may be {} deep, and this one would be {depth} deep", allowed.depth);
            Some(("hall.delegation_depth", why))
        } else if made >= allowed.commissions {
            Some((
                "hall.delegation_commissions",
                format!("{root} has led to {made} commissions, which is the most that it may lead to"),
            ))
        } else if usd + budget_usd > allowed.budget_usd {
            let why = format!(
                "the commissions of {root} have spent or may spend {usd:.2} of {:.2} US dollars, and this one may \
                 spend {budget_usd:.2}, or its `maxBudgetUsd`",
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

    /// Makes the error of a refused commission of the manager's, and notes the refusal in the activity's timeline.
    pub(super) async fn refuse(&self, by: &Activity, Refusal { key, why }: Refusal) -> OperationError {
        let why = format!("{why} ({key}); continue without it, or ask the user to commission it");
        if let Err(e) = self.note_refusal(by, key, &why).await {
            tracing::warn!(activity = %by, "the refusal of a commission cannot be noted in the activity's timeline: \
                {e}");
        }
        OperationError::Conflict(why)
    }

    /// Notes in an activity's timeline why a commission of the manager's was refused, once for each key: a model may
    /// try many times.
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
