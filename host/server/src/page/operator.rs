//! Serves the page of the host itself, to viewers with all members and all methods.

use std::sync::Arc;

use axum::{Router, extract::RawQuery, response::Response, routing::get};
use guild_contract::host::{AuditParams, CheckHost, NoParams, ReadAudit, ReadLimits};
use guild_page::{
    HOST,
    host::{HostPage, host},
};
use guild_roster::host::Host;

use super::{
    form::Form,
    request::{PageRequest, Why},
};

pub(super) fn routes() -> Router<Arc<Host>> {
    Router::new().route(HOST, get(show))
}

async fn show(page: PageRequest, RawQuery(query): RawQuery) -> Response {
    let query = Form::of(query.unwrap_or_default().as_bytes());
    let answer = collect(&page, &query).await;
    page.answer(answer.map(|shown| page.show(host(&page.viewer(), &shown))))
}

async fn collect(page: &PageRequest, query: &Form) -> Result<HostPage, Why> {
    let server = page.host_server()?;
    let limits = page.call::<ReadLimits>(&server, &NoParams {}).await?;
    let field = |name| query.get(name).map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
    let filter = AuditParams {
        member: field("member"),
        who: field("who"),
        event: field("event"),
        outcome: field("outcome"),
        limit: None,
        before: field("before"),
    };
    let audit = page.call::<ReadAudit>(&server, &filter).await.map_err(|why| why.text);
    let doctor = match query.has("check") {
        true => Some(page.call::<CheckHost>(&server, &NoParams {}).await.map_err(|why| why.text)),
        false => None,
    };
    Ok(HostPage { doctor, limits, filter, audit })
}
