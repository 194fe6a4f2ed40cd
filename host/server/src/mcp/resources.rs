//! Offers resources: statuses, reports and artifacts of jobs, as `guild://MEMBER/jobs/ID/...`.
//!
//! `status` is the result of `worker/status`, `result` the report, `artifacts/PATH` a file that the job wrote. `MEMBER`
//! is the member's key with `%2F` for `/`.

use std::{borrow::Cow, sync::Arc};

use ct_codecs::{Base64, Base64UrlSafeNoPadding, Decoder as _, Encoder as _};
use guild_auth::Caller;
use guild_contract::{
    JobId, JobStatus, MemberKey,
    rpc::{RpcError, code},
};
use guild_jobs::JobSummary;
use guild_roster::{blocking, members::member::Member};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Server;
use crate::{
    input::{json::string_bytes, params::shown},
    operations::worker,
};

/// The maximum number of jobs on a page of the list.
const PAGE: usize = 50;
/// A page ends with the job that brings it to this number of resources.
const ENOUGH: usize = 200;
/// The maximum number of artifacts that are listed for a job. `result` names all of them, and all can be read.
const OF_JOB: usize = 100;
/// The maximum length of the path of a listed artifact, in bytes.
const PATH: usize = 512;
/// The prefix of every URI.
const SCHEME: &str = "guild://";
const JSON: &str = "application/json";
const MARKDOWN: &str = "text/markdown";
const STATUS: &str = "status";
const RESULT: &str = "result";
const ARTIFACTS: &str = "artifacts/";

/// Characters that are escaped in a path.
pub(crate) const PLAIN: &AsciiSet = &NAME.remove(b'/');
/// Characters that are escaped in a member's name.
const NAME: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A resource that an endpoint offers.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Resource {
    pub(crate) uri: String,
    /// The file's name.
    pub(crate) name: String,
    /// The title for people.
    pub(crate) title: String,
    /// The description.
    pub(crate) description: String,
    /// The media type, from the file's name.
    pub(crate) mime_type: Cow<'static, str>,
}

/// A page of resources.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Page {
    /// The resources, by member and newest job first.
    pub(crate) resources: Vec<Resource>,
    /// The cursor of the next page; none after the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_cursor: Option<String>,
}

/// A pattern for URIs of resources.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Template {
    /// The pattern (RFC 6570).
    pub(crate) uri_template: &'static str,
    pub(crate) name: &'static str,
    /// The description.
    pub(crate) description: &'static str,
    /// The media type, if it is the same for all resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mime_type: Option<&'static str>,
}

/// The contents of a resource.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Contents {
    /// The resource's URI.
    pub(crate) uri: String,
    pub(crate) mime_type: Cow<'static, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
    /// Binary data, in Base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) blob: Option<String>,
}

const TEMPLATES: [Template; 3] = [
    Template {
        uri_template: "guild://{member}/jobs/{jobId}/status",
        name: STATUS,
        description: "The state of a job, as in the tool `status`",
        mime_type: Some(JSON),
    },
    Template {
        uri_template: "guild://{member}/jobs/{jobId}/result",
        name: RESULT,
        description: "The report of a completed job",
        mime_type: Some(MARKDOWN),
    },
    Template {
        uri_template: "guild://{member}/jobs/{jobId}/artifacts/{+path}",
        name: "artifact",
        description: "A file that a job wrote",
        mime_type: None,
    },
];

/// The position at which a list continues: the last listed job, and its member.
#[derive(Serialize, Deserialize)]
struct Cursor<'a> {
    #[serde(borrow)]
    member: Cow<'a, str>,
    #[serde(borrow)]
    made: Cow<'a, str>,
    job: JobId,
}

/// The part of a job that a URI refers to.
enum Part<'a> {
    Status,
    Result,
    Artifact(Cow<'a, str>),
}

impl Server {
    /// The patterns of the URIs.
    pub(crate) fn templates(&self, caller: &Caller) -> Vec<Template> {
        if self.workers(caller).is_empty() { Vec::new() } else { TEMPLATES.to_vec() }
    }

    /// Returns a page of resources. Jobs that left only a status fill a page, too.
    ///
    /// # Errors
    ///
    /// Returns an error when the cursor is not from this host.
    pub(crate) async fn resources(&self, caller: &Caller, cursor: Option<&str>) -> Result<Page, RpcError> {
        let workers = self.workers(caller);
        let json = cursor.map(|cursor| Base64UrlSafeNoPadding::decode_to_vec(cursor, None).unwrap_or_default());
        let after: Option<Cursor<'_>> = match &json {
            None => None,
            Some(json) => Some(serde_json::from_slice(json).map_err(|_| {
                RpcError::invalid_params("Invalid params: `cursor` is not from this host; start without a cursor")
            })?),
        };
        let mut resources = Vec::new();
        let mut jobs = PAGE;
        let mut last = None;
        for member in &workers {
            let after = match &after {
                Some(cursor) if member.key().as_str() < &*cursor.member => continue,
                Some(cursor) if member.key().as_str() == cursor.member => {
                    Some((cursor.made.clone().into_owned(), cursor.job.clone()))
                }
                _ => None,
            };
            let (of, enough) = (member.clone(), ENOUGH.saturating_sub(resources.len()));
            let (listed, found) = blocking(move || Ok(page_of(&of, after, jobs, enough))).await?;
            jobs -= listed.len();
            resources.extend(found);
            last = listed.into_iter().last().map(|brief| (member, brief)).or(last);
            if jobs == 0 || resources.len() >= ENOUGH {
                break;
            }
        }
        let is_full = jobs == 0 || resources.len() >= ENOUGH;
        let next = last.filter(|_| is_full).and_then(|(member, brief)| {
            let cursor = Cursor { member: member.key().as_str().into(), made: brief.started_at.into(), job: brief.id };
            Base64UrlSafeNoPadding::encode_to_string(json!(cursor).to_string()).ok()
        });
        Ok(Page { resources, next_cursor: next })
    }

    /// Reads a resource.
    ///
    /// # Errors
    ///
    /// Returns an error when the resource does not exist, or is larger than `limits.result_bytes`.
    pub(crate) async fn read(&self, caller: &Caller, uri: &str) -> Result<Contents, RpcError> {
        let missing = || RpcError::new(code::INVALID_PARAMS, format!("Resource not found: {}", shown(uri)));
        let (member, job, part) = parse(uri).ok_or_else(missing)?;
        let workers = self.workers(caller);
        let member = percent_decode_str(member).decode_utf8().map_err(|_| missing())?;
        let member = workers.iter().find(|worker| worker.key().as_str() == member).ok_or_else(missing)?;
        let (mime_type, text, blob) = match part {
            Part::Status => {
                let status = member.status(job).await?;
                (Cow::Borrowed(JSON), Some(String::from_utf8_lossy(&status).into_owned()), None)
            }
            Part::Result => (Cow::Borrowed(MARKDOWN), Some(worker::result(member, caller, job).await?.output), None),
            Part::Artifact(path) => {
                let mime_type = media_type(&path);
                let largest = member.limits().result_bytes;
                let (store, job, path) = (member.store().clone(), job.to_owned(), path.into_owned());
                let read = move |most| match store.artifact_bytes(&job, &path)?.min(largest) {
                    bytes if bytes > most => Ok(Err(bytes)),
                    _ => Ok(Ok(store.artifact(&job, &path, largest)?)),
                };
                // The contents as a text, or in Base64, which is a third longer.
                let written = |bytes: &Vec<u8>| match str::from_utf8(bytes) {
                    Ok(text) => string_bytes(text),
                    Err(_) => (bytes.len() as u64).div_ceil(3).saturating_mul(4),
                };
                let bytes = worker::within_memory(caller, read, written).await?;
                match String::from_utf8(bytes) {
                    Ok(text) => (mime_type, Some(text), None),
                    Err(bytes) => {
                        let blob = Base64::encode_to_string(bytes.as_bytes());
                        let blob = blob.map_err(|_| RpcError::internal("the artifact is too large"))?;
                        (mime_type, None, Some(blob))
                    }
                }
            }
        };
        Ok(Contents { uri: uri.to_owned(), mime_type, text, blob })
    }
}

/// The prefix of the URIs of all resources of a job.
pub(crate) fn base(member: &MemberKey, job: &JobId) -> String {
    format!("{SCHEME}{}/jobs/{job}/", utf8_percent_encode(member.as_str(), NAME))
}

/// At most `most` jobs of a member with their resources, up to the job that reaches `enough` resources. It blocks.
fn page_of(
    member: &Arc<Member>,
    after: Option<(String, JobId)>,
    most: usize,
    enough: usize,
) -> (Vec<JobSummary>, Vec<Resource>) {
    let store = member.store();
    let mut briefs = store.page(after.as_ref().map(|(made, id)| (made.as_str(), id)), most);
    let (mut resources, mut listed) = (Vec::new(), 0);
    for brief in &briefs {
        if resources.len() >= enough {
            break;
        }
        listed += 1;
        let base = base(member.key(), &brief.id);
        let title = guild_contract::text::one_line(&brief.description, 200);
        let mut add = |part: &str, mime_type: Cow<'static, str>, description: String| {
            resources.push(Resource {
                uri: format!("{base}{}", utf8_percent_encode(part, PLAIN)),
                name: part.to_owned(),
                title: format!("{title}: {part}"),
                description,
                mime_type,
            });
        };
        let (id, status) = (&brief.id, brief.status);
        if status == JobStatus::Completed {
            add(RESULT, MARKDOWN.into(), format!("The report of job {id}, created {}", brief.started_at));
        }
        // A job that was just deleted has no artifacts.
        let artifacts = store.artifacts(brief.id.as_str()).unwrap_or_default();
        for path in artifacts.into_iter().filter(|path| path.len() <= PATH).take(OF_JOB) {
            add(&path, media_type(&path), format!("A file that job {id} wrote"));
        }
        add(STATUS, JSON.into(), format!("The state of job {id} ({status}), created {}", brief.started_at));
    }
    briefs.truncate(listed);
    (briefs, resources)
}

/// Splits a URI into member, job and part.
fn parse(uri: &str) -> Option<(&str, &str, Part<'_>)> {
    let (member, rest) = uri.strip_prefix(SCHEME)?.split_once("/jobs/")?;
    let (job, part) = rest.split_once('/')?;
    let part = match part {
        STATUS => Part::Status,
        RESULT => Part::Result,
        artifact => Part::Artifact(percent_decode_str(artifact.strip_prefix(ARTIFACTS)?).decode_utf8().ok()?),
    };
    Some((member, job, part))
}

fn media_type(path: &str) -> Cow<'static, str> {
    match mime_guess::from_path(path).first_raw() {
        Some(known) => known.into(),
        None => "application/octet-stream".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_names_a_job_and_what_of_it() {
        let artifact = |uri| match parse(uri) {
            Some(("x--y", "1", Part::Artifact(path))) => path.into_owned(),
            _ => panic!("{uri}"),
        };
        assert_eq!(artifact("guild://x--y/jobs/1/artifacts/a%20b/c.csv"), "a b/c.csv");
        assert!(matches!(parse("guild://x/jobs/1/status"), Some(("x", "1", Part::Status))));
        for bad in ["guild://x/jobs/1", "file:///etc/passwd", "guild://x/jobs/1/meta.json", "guild://x/1/result"] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }
}
