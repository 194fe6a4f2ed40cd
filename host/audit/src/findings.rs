//! The findings of an audit, as they are made.

use crate::{
    model::Finding,
    rules::{Rule, Severity},
};

/// Findings as they are made.
#[derive(Debug, Default)]
pub(crate) struct Findings(Vec<Finding>);

impl Findings {
    pub(crate) fn add(&mut self, rule: Rule, place: impl Into<String>, text: impl Into<String>) {
        self.add_as(rule.severity(), rule, place, text);
    }

    /// A finding that matters more or less than its rule says.
    pub(crate) fn add_as(&mut self, severity: Severity, rule: Rule, place: impl Into<String>, text: impl Into<String>) {
        self.0.push(Finding { rule, severity, place: place.into(), text: text.into(), accepted: None });
    }

    /// The most severe first, and at most `most` of them.
    pub(crate) fn sorted(mut self, most: usize) -> Vec<Finding> {
        self.0.sort_by(|a, b| (a.severity, a.rule, &a.place, &a.text).cmp(&(b.severity, b.rule, &b.place, &b.text)));
        self.0.dedup();
        self.0.truncate(most);
        self.0
    }
}
