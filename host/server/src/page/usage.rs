//! Serves the page of what the members used over time.

use std::sync::Arc;

use axum::{Router, extract::RawQuery, response::Response, routing::get};
use guild_contract::{
    MemberService,
    usage::{ReadUsage, UsageParams, UsageView},
};
use guild_page::{
    USAGE,
    usage::{RANGES, Range, UsagePage, usage},
};
use guild_roster::host::Host;
use jiff::{SignedDuration, Timestamp};

use super::{
    form::Form,
    request::{PageRequest, Why},
};
use crate::mcp::Server;

pub(super) fn routes() -> Router<Arc<Host>> {
    Router::new().route(USAGE, get(show))
}

async fn show(page: PageRequest, RawQuery(query): RawQuery) -> Response {
    let query = Form::of(query.unwrap_or_default().as_bytes());
    let answer = collect(&page, &query).await;
    page.answer(answer.map(|shown| page.show(usage(&page.viewer(), &shown))))
}

/// Asks each worker that the viewer may see, or the one that the query names.
async fn collect(page: &PageRequest, query: &Form) -> Result<UsagePage, Why> {
    let [_, usual, _] = RANGES;
    let range = RANGES.into_iter().find(|range| query.get("range") == Some(range.word)).unwrap_or(usual);
    let only = query.get("member").map(str::to_owned);
    let mut reports = page.reading.report();
    reports.retain(|report| page.caller().is_for(&report.member));
    if let Some(only) = &only {
        reports.retain(|report| report.member == *only);
        if reports.is_empty() {
            return Err(Why::not_found("there is no such member"));
        }
    }
    let (params, mut members) = (params(range), Vec::new());
    for report in reports.into_iter().filter(|report| report.state != MemberService::Foreign) {
        let before = page.caller().reserved();
        let used = ask(page, &report.member, &params).await;
        // The answer is small from here on.
        page.caller().resize(before, 0)?;
        members.extend(used.transpose().map(|used| (report.member, used.map_err(|why| why.text))));
    }
    Ok(UsagePage { range, only, by_model: query.get("by") == Some("model"), members })
}

/// The usage of a member; `None` if it accepts no tasks.
async fn ask(page: &PageRequest, member: &str, params: &UsageParams) -> Result<Option<UsageView>, Why> {
    let server = page.server(member)?;
    match &server {
        Server::Member(member) if !member.manifest().is_worker() => Ok(None),
        server => page.call::<ReadUsage>(server, params).await.map(Some),
    }
}

/// The parameters of a range until now, which are the same for all members.
fn params(range: Range) -> UsageParams {
    let now = Timestamp::now();
    let since = now.checked_sub(SignedDuration::from_hours(range.hours)).unwrap_or(now);
    UsageParams { since: Some(since.to_string()), until: Some(now.to_string()), period: None }
}
