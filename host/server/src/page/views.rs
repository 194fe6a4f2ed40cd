//! Collects the answers that a view shows.

use axum::{
    http::{
        StatusCode,
        header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS},
    },
    response::IntoResponse,
};
use ct_codecs::{Base64, Decoder as _};
use futures::{StreamExt as _, stream};
use guild_contract::{
    JobId, JobStatus, MemberService,
    host::{MemberParams, ReadMember},
    operation::Operation as _,
    rpc::{
        DispatchParams, JobLog, JobParams, JobResult, JobStatusOf, JobTask, JobsParams, JobsView, LogParams, LogView,
        ReadJobs,
    },
};
use guild_page::{file::Table, job::JobNow, member::MemberNow as MemberPage, now::MemberNow};
use jiff::Timestamp;
use percent_encoding::utf8_percent_encode;
use serde::Deserialize;
use serde_json::json;

use super::{
    form::Form,
    request::{Answer, PageRequest, Why},
};
use crate::{
    mcp::{Server, resources},
    methods::{self, RESOURCES_READ},
};

/// The most jobs of one member that the first page shows.
const NEWEST: u32 = 20;
/// The most answers of `worker/log` that a job's page shows, each of up to 256 KiB.
const LOGS: usize = 8;
/// The most rows and columns of a table that are shown.
const ROWS: usize = 1000;
const COLUMNS: usize = 100;
/// The most bytes of a table that is shown as one; a larger one is shown as text.
const TABLE_BYTES: usize = 512 * 1024;
/// The members that are asked at the same time.
const AT_ONCE: usize = 4;

/// Collects the members that the viewer may see, with their newest jobs.
pub(super) async fn members(page: &PageRequest) -> Vec<MemberNow> {
    let mut reports = page.reading.report();
    reports.retain(|report| page.caller().is_for(&report.member));
    let asked = stream::iter(reports).map(|report| async move {
        let jobs = match report.state {
            MemberService::Foreign | MemberService::Error => Err("it is not in service".to_owned()),
            MemberService::Ready | MemberService::Loading => newest(page, &report.member).await.map_err(|why| why.text),
        };
        MemberNow { report, jobs }
    });
    asked.buffered(AT_ONCE).collect().await
}

/// The newest jobs of a member, and all that run.
async fn newest(page: &PageRequest, member: &str) -> Result<JobsView, Why> {
    let server = page.server(member)?;
    if let Server::Member(member) = &server
        && !member.manifest().is_worker()
    {
        return Err(Why::not_found("it has tools and accepts no tasks"));
    }
    let params = |status| JobsParams { status, limit: Some(NEWEST), offset: None };
    let mut newest = page.call::<ReadJobs>(&server, &params(None)).await?;
    if newest.more && newest.counts.running > 0 {
        let running = page.call::<ReadJobs>(&server, &params(Some(JobStatus::Running))).await?;
        let others = running.jobs.into_iter().filter(|job| newest.jobs.iter().all(|known| known.job_id != job.job_id));
        let others: Vec<_> = others.collect();
        newest.jobs.extend(others);
    }
    Ok(newest)
}

/// Collects the data of a member's page.
pub(super) async fn member(page: &PageRequest, key: &str, offset: u32, audit: bool) -> Result<MemberPage, Why> {
    let report = page.reading.report().into_iter().find(|report| report.member == key);
    let report = report.filter(|report| page.caller().is_for(&report.member));
    let report = report.ok_or_else(|| Why::not_found(format!("there is no member {key}")))?;
    let (mut description, mut jobs) = (None, Err("the member is not in service".to_owned()));
    if let Ok(server) = page.server(key) {
        if let Server::Member(member) = &server {
            description = Some(member.manifest().description.clone());
        }
        let params = JobsParams { status: None, limit: None, offset: Some(offset) };
        jobs = page.call::<ReadJobs>(&server, &params).await.map_err(|why| why.text);
    }
    let may_see = page.caller().is_for_all() && page.caller().permits(ReadMember::ROW.access);
    let detail = if may_see {
        let params = MemberParams { member: key.to_owned(), audit };
        Some(page.call::<ReadMember>(&page.host_server()?, &params).await.map_err(|why| why.text))
    } else {
        None
    };
    Ok(MemberPage { report, description, jobs, offset, detail })
}

/// Collects the data of a job's page.
pub(super) async fn job(page: &PageRequest, member: &str, job: &str) -> Result<JobNow, Why> {
    let server = page.server(member)?;
    let params = JobParams { job_id: job.to_owned() };
    let status = page.call::<JobStatusOf>(&server, &params).await?;
    let result = match status.status {
        JobStatus::Completed => Some(page.call::<JobResult>(&server, &params).await.map_err(|why| why.text)),
        JobStatus::Running | JobStatus::Failed | JobStatus::Cancelled => None,
    };
    let log = log(page, &server, job).await.map_err(|why| why.text);
    let task = page.call::<JobTask>(&server, &params).await.map_err(|why| why.text);
    Ok(JobNow { member: member.to_owned(), status, result, log, task, now: Timestamp::now() })
}

/// The beginning of a job's transcript and log.
async fn log(page: &PageRequest, server: &Server, job: &str) -> Result<LogView, Why> {
    let mut params = LogParams { job_id: job.to_owned(), after: None };
    let mut all = page.call::<JobLog>(server, &params).await?;
    for _ in 1..LOGS {
        if !all.more {
            break;
        }
        params.after = Some(all.next);
        let LogView { transcript, log, next, more, .. } = page.call::<JobLog>(server, &params).await?;
        all.transcript.extend(transcript);
        all.log.extend(log);
        (all.next, all.more) = (next, more);
    }
    Ok(all)
}

/// The result of `resources/read`.
#[derive(Deserialize)]
struct Read {
    contents: Vec<Content>,
}

#[derive(Deserialize)]
struct Content {
    text: Option<String>,
    blob: Option<String>,
}

/// A file of a job's artifacts. Tables are shown as such unless they are wanted `raw`. Texts and images are shown; HTML, SVG and all others are downloads, which no browser
/// runs on this host's name.
pub(super) async fn file(page: &PageRequest, member: &str, job: &str, path: &str, raw: bool) -> Answer {
    let (server, key) = (page.server(member)?, member.parse().map_err(|_| Why::not_found("there is no such member"))?);
    let job: JobId = job.parse().map_err(|_| Why::not_found("there is no such job"))?;
    let uri = format!("{}{}", resources::base(&key, &job), utf8_percent_encode(path, resources::PLAIN));
    let read = methods::call(&server, page.caller(), RESOURCES_READ, Some(&json!({"uri": uri}).to_string())).await?;
    let read: Read = serde_json::from_slice(&read).map_err(|_| Why::not_found("the file cannot be read"))?;
    let bytes = match read.contents.into_iter().next() {
        Some(Content { text: Some(text), .. }) => text.into_bytes(),
        Some(Content { blob: Some(blob), .. }) => Base64::decode_to_vec(blob, None).unwrap_or_default(),
        _ => return Err(Why::not_found("there is no such file")),
    };
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension).to_ascii_lowercase();
    if let ("csv" | "tsv", false) = (extension.as_str(), raw || bytes.len() > TABLE_BYTES) {
        let delimiter = if extension == "tsv" { b'\t' } else { b',' };
        let (rows, more) = table(&bytes, delimiter);
        let (member, job, path) = (member.to_owned(), job.to_string(), path.to_owned());
        return Ok(page.show(guild_page::file::table(&page.viewer(), &Table { member, job, path, rows, more })));
    }
    let content_type = match extension.as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "html" | "htm" | "xhtml" | "svg" | "xml" => "application/octet-stream",
        _ if std::str::from_utf8(&bytes).is_ok() => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    };
    let disposition = if content_type == "application/octet-stream" { "attachment" } else { "inline" };
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(content_type)),
        (CONTENT_DISPOSITION, HeaderValue::from_static(disposition)),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    let policy = [("content-security-policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox")];
    Ok((StatusCode::OK, headers, policy, page.caller().respond(bytes.into())?).into_response())
}

/// The first rows of a table, and whether there are more. A row that is not UTF-8 is left out.
fn table(bytes: &[u8], delimiter: u8) -> (Vec<Vec<String>>, bool) {
    let mut reader =
        csv::ReaderBuilder::new().delimiter(delimiter).has_headers(false).flexible(true).from_reader(bytes);
    let mut rows = reader.records().filter_map(Result::ok);
    let cells = |row: csv::StringRecord| row.iter().take(COLUMNS).map(str::to_owned).collect();
    let shown: Vec<Vec<String>> = rows.by_ref().take(ROWS).map(cells).collect();
    (shown, rows.next().is_some())
}

/// A follow-up of a job, with the answers to its questions: a question ends no wait (REQ-WD-12), so the answer is a new
/// task, which has the old one and its result.
pub(super) async fn follow_up(
    page: &PageRequest,
    server: &Server,
    job: &str,
    form: &Form,
) -> Result<DispatchParams, Why> {
    let params = JobParams { job_id: job.to_owned() };
    let before = page.call::<JobTask>(server, &params).await?;
    let result = page.call::<JobResult>(server, &params).await.map(|result| result.output);
    let answers = form.all("question").zip(form.all("answer")).filter(|(_, answer)| !answer.trim().is_empty());
    let answers: Vec<String> =
        answers.map(|(question, answer)| format!("Question: {question}\nAnswer: {answer}")).collect();
    if answers.is_empty() {
        return Err(Why {
            status: StatusCode::BAD_REQUEST,
            text: "write an answer to at least one question".to_owned(),
        });
    }
    let result = result.unwrap_or_else(|why| format!("(none: {})", why.text));
    let task = format!(
        "{}\n\n# Your earlier report on this task\n\n{result}\n\n# Answers to your questions\n\n{}\n\nContinue the task with \
         these answers.\n",
        before.task,
        answers.join("\n\n")
    );
    let description = form.get("description").unwrap_or(&before.description).to_owned();
    let follows = Some(job.to_owned());
    Ok(DispatchParams { description, task, config: before.config, follows, ..DispatchParams::default() })
}
