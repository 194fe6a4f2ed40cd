//! Defines the bounds of a job: turns, dollars and seconds, summed over all its sessions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Upper bounds of a job (REQ-WD-32). The smallest bound of plan, manifest, caller and operator applies.
///
/// `None` does not bound the job; the operator's bounds always have all three values, so every job is bounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Bounds {
    /// Turns of a model, over all sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    /// US dollars, over all sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_budget_usd: Option<f64>,
    /// Wall-clock seconds from the start of the job's work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_seconds: Option<u32>,
}

impl Bounds {
    /// Checks that each bound is a number above zero. The error names the field as in JSON.
    pub fn check(&self) -> Result<(), String> {
        if self.max_turns == Some(0) {
            return Err("maxTurns must be at least 1".to_owned());
        }
        if let Some(usd) = self.max_budget_usd
            && !(usd.is_finite() && usd > 0.0)
        {
            return Err(format!("maxBudgetUsd must be a number above 0, not {usd}"));
        }
        if self.deadline_seconds == Some(0) {
            return Err("deadlineSeconds must be at least 1".to_owned());
        }
        Ok(())
    }

    /// The smaller value of each bound.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        fn smaller<T: PartialOrd>(a: Option<T>, b: Option<T>) -> Option<T> {
            match (a, b) {
                (Some(a), Some(b)) => Some(if b < a { b } else { a }),
                (a, b) => a.or(b),
            }
        }
        Self {
            max_turns: smaller(self.max_turns, other.max_turns),
            max_budget_usd: smaller(self.max_budget_usd, other.max_budget_usd),
            deadline_seconds: smaller(self.deadline_seconds, other.deadline_seconds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_bound_holds() {
        let a = Bounds { max_turns: Some(5), max_budget_usd: None, deadline_seconds: Some(9) };
        let b = Bounds { max_turns: Some(7), max_budget_usd: Some(0.5), deadline_seconds: Some(3) };
        let both = Bounds { max_turns: Some(5), max_budget_usd: Some(0.5), deadline_seconds: Some(3) };
        assert_eq!(a.min(b), both);
        assert_eq!(b.min(a), both);
    }

    #[test]
    fn nan_negative_and_zero_are_refused() {
        for usd in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
            let bounds = Bounds { max_budget_usd: Some(usd), ..Bounds::default() };
            assert!(bounds.check().unwrap_err().contains("maxBudgetUsd"));
        }
        assert!(Bounds { max_turns: Some(0), ..Bounds::default() }.check().is_err());
        assert!(Bounds { deadline_seconds: Some(0), ..Bounds::default() }.check().is_err());
        assert!(Bounds { max_turns: Some(1), ..Bounds::default() }.check().is_ok());
    }
}
