//! Serves the page of the host itself, to viewers with all members and all methods.

use std::sync::Arc;

use axum::{Router, extract::RawQuery, http::StatusCode, response::Response, routing::get};
use guild_contract::host::{
    ApproveMember, ApproveParams, AuditParams, CheckHost, ForgetMemory, ForgetParams, NoParams, ReadAudit, ReadCluster,
    ReadLimits,
};
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

/// Approves a member, for which a token is given again; or removes one of its memories.
pub(super) async fn decide(page: &PageRequest, member: &str, form: &Form) -> Result<(), Why> {
    let (server, member) = (page.host_server()?, member.to_owned());
    if let Some(key) = form.get("forget") {
        let params = ForgetParams { member, key: key.to_owned() };
        return page.call::<ForgetMemory>(&server, &params).await.map(drop);
    }
    if !page.caller().is_token(form.get("token").unwrap_or_default().trim()) {
        let text = "this is not the token of your session, so the member was not approved".to_owned();
        return Err(Why { status: StatusCode::FORBIDDEN, text });
    }
    let given = |name| form.get(name).map(str::to_owned);
    let sha256 = given("approve").unwrap_or_default();
    let params = ApproveParams {
        member,
        sha256,
        manifest: given("manifest"),
        package: given("package"),
        posture: given("posture"),
    };
    page.call::<ApproveMember>(&server, &params).await.map(drop)
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
    let cluster = match page.is_in_cluster() {
        true => Some(page.call::<ReadCluster>(&server, &NoParams {}).await.map_err(|why| why.text)),
        false => None,
    };
    Ok(HostPage { doctor, limits, filter, audit, cluster })
}
