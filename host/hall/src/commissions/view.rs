//! Converts commissions to the form that callers see.

use guild_contract::hall::CommissionView;

use super::commission::Commission;
use crate::records::page::{Item, bytes_of, shortened};

/// The view of a commission for callers, without its missing dependencies.
pub(crate) fn commission(commission: &Commission) -> CommissionView {
    commission_with(commission, str::to_owned)
}

/// The view of a commission whose long texts are passed through `text`.
fn commission_with(commission: &Commission, text: fn(&str) -> String) -> CommissionView {
    let record = &commission.record;
    CommissionView {
        id: commission.commission_id.clone(),
        relevant_date: commission.relevant_date().to_owned(),
        status: commission.status,
        queued: commission.is_queued(),
        blocked_by: Vec::new(),
        created_by: commission.created_by,
        job: commission.attempt.as_ref().map(|attempt| attempt.job.to_string()),
        title: text(&record.title),
        worker: record.worker.clone(),
        worker_display_title: text(&record.worker_display_title),
        prompt: text(&record.prompt),
        dependencies: record.dependencies.clone(),
        linked_artifacts: record.linked_artifacts.clone(),
        resource_overrides: record.resource_overrides.clone(),
        current_progress: text(&record.current_progress),
        result_summary: text(record.body.trim()),
        project_name: commission.project_name.clone(),
        date: record.date.clone(),
        source: record.source.clone(),
    }
}

impl Item for CommissionView {
    type Of = Commission;

    fn listed(of: &Commission) -> Self {
        commission_with(of, shortened)
    }

    fn bytes(&self) -> usize {
        let texts =
            [&*self.title, &self.worker_display_title, &self.prompt, &self.current_progress, &self.result_summary];
        bytes_of(&texts, &[&self.dependencies, &self.linked_artifacts])
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use guild_contract::hall::{CommissionId, CommissionStatus};

    use super::*;
    use crate::{
        commissions::commission::Record,
        records::page::{PAGE_BYTES, Page},
    };

    #[test]
    fn a_list_has_so_many_bytes_and_counts_the_others() {
        let record = Record { prompt: "x".repeat(10_000), body: "ä".repeat(10_000), ..Record::default() };
        let id: CommissionId = "commission-Dalton-20260401-120000".parse().unwrap();
        let one =
            Arc::new(Commission::new(id, "demo".to_owned(), "worker".to_owned(), CommissionStatus::Pending, record));
        let page: Page<CommissionView> = Page::of(&vec![one; 2000], 0, None);
        assert!(page.len() > 500 && page.len() + page.more == 2000, "{}", page.len());
        assert!(page.iter().map(Item::bytes).sum::<usize>() <= PAGE_BYTES);
        assert!(page.iter().all(|view| view.prompt.ends_with("x…") && view.result_summary.ends_with("ä…")));
    }
}
