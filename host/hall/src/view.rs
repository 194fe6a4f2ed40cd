//! Commissions and meetings as callers see them, and pages of lists.

use std::{ops::Deref, sync::Arc};

use guild_contract::hall::{CommissionView, MeetingView, OpenMeetingView};

use crate::{commission::Commission, meeting::Meeting};

/// The most bytes of a text in a list. What is cut ends in `…`; whoever reads the one has the whole.
const LISTED_BYTES: usize = 2048;
/// The most bytes of the texts of one list.
pub(crate) const PAGE_BYTES: usize = 4 * 1024 * 1024;
/// What one item of a list counts besides its texts.
const ITEM_BYTES: usize = 512;

/// The items of a list that one answer has.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    /// The items, from the asked position on.
    pub items: Vec<T>,
    /// How many follow.
    pub more: usize,
}

impl<T> Deref for Page<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}

/// An item of a list.
pub trait Item {
    /// What it is made of.
    type Of;

    /// The item, with its texts cut.
    fn listed(of: &Self::Of) -> Self;

    /// The bytes of its texts.
    fn bytes(&self) -> usize;
}

impl<T: Item> Page<T> {
    /// Of these, as many as one answer has and `limit` allows, from a position on.
    pub(crate) fn of(all: &[Arc<T::Of>], offset: usize, limit: Option<usize>) -> Self {
        let mut bytes = 0;
        let rest = all.get(offset..).unwrap_or_default();
        let items: Vec<T> = rest
            .iter()
            .take(limit.unwrap_or(usize::MAX))
            .map(|of| T::listed(of))
            .take_while(|item| {
                bytes += item.bytes() + ITEM_BYTES;
                bytes <= PAGE_BYTES
            })
            .collect();
        let more = rest.len() - items.len();
        Self { items, more }
    }
}

fn cut(text: &str) -> String {
    match text.get(..text.floor_char_boundary(LISTED_BYTES)) {
        Some(beginning) if beginning.len() < text.len() => format!("{beginning}…"),
        _ => text.to_owned(),
    }
}

fn bytes_of(texts: &[&str], lists: &[&[String]]) -> usize {
    texts.iter().map(|text| text.len()).sum::<usize>()
        + lists.iter().copied().flatten().map(|text| text.len() + size_of::<String>()).sum::<usize>()
}

/// A commission, as callers see it. The places that it waits for are not looked up.
pub(crate) fn commission(commission: &Commission) -> CommissionView {
    commission_with(commission, str::to_owned)
}

/// The view of a commission with its long texts as `text` has them.
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
        commission_with(of, cut)
    }

    fn bytes(&self) -> usize {
        let texts =
            [&*self.title, &self.worker_display_title, &self.prompt, &self.current_progress, &self.result_summary];
        bytes_of(&texts, &[&self.dependencies, &self.linked_artifacts])
    }
}

/// A meeting, as callers see it.
pub(crate) fn meeting(meeting: &Meeting) -> MeetingView {
    meeting_with(meeting, str::to_owned)
}

/// The view of a meeting with its long texts as `text` has them.
fn meeting_with(meeting: &Meeting, text: fn(&str) -> String) -> MeetingView {
    let record = &meeting.record;
    MeetingView {
        id: meeting.meeting_id.clone(),
        status: meeting.status,
        resource_overrides: meeting.overrides.clone(),
        created_by: meeting.created_by,
        job: meeting.session.as_ref().map(|session| session.job.to_string()),
        title: text(&record.title),
        worker: record.worker.clone(),
        agenda: text(&record.agenda),
        date: record.date.clone(),
        deferred_until: record.deferred_until.clone(),
        linked_artifacts: record.linked_artifacts.clone(),
        notes: text(record.body.trim()),
        worker_display_title: text(&record.worker_display_title),
        project_name: meeting.project_name.clone(),
    }
}

impl Item for MeetingView {
    type Of = Meeting;

    fn listed(of: &Meeting) -> Self {
        meeting_with(of, cut)
    }

    fn bytes(&self) -> usize {
        bytes_of(&[&self.title, &self.agenda, &self.notes, &self.worker_display_title], &[&self.linked_artifacts])
    }
}

/// An open meeting, as callers see it.
pub(crate) fn open_meeting(meeting: &Meeting) -> OpenMeetingView {
    OpenMeetingView {
        meeting_id: meeting.meeting_id.clone(),
        project_name: meeting.project_name.clone(),
        worker_name: meeting.record.worker.clone(),
        started_at: meeting.started().to_owned(),
        status: meeting.status,
    }
}

#[cfg(test)]
mod tests {
    use guild_contract::hall::{CommissionId, CommissionStatus};

    use super::*;
    use crate::commission::Record;

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
