//! Finds and lists jobs, at a running host or in the files of a directory of members.

use std::{cmp::Reverse, io, path::PathBuf};

use cap_std::fs::Dir;
use futures::{StreamExt as _, stream};
use guild_client::{
    Detail, Error, JobId, JobList, ListParams, Listed, MemberKey, Options, Reply, ResultView, Resumed, Served,
    StatusView, WorkerHandle,
};
use guild_config::Config;
use guild_contract::{Limits, Meta, rpc::code};
use guild_roster::jobs::files::{OfflineJob, OfflineJobs, filter, made_at};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{
    json,
    value::{RawValue, to_raw_value},
};

use super::status_text::{INTERRUPTED, NEXT_HOST_RESUMES};
use crate::{
    client::{AccessArgs, Endpoint},
    complete::LATEST,
    failure::{Failure, exit},
    local::{self, LocalArgs},
    output::{
        one_line, stderr_width,
        table::{Cell, Column, Table},
        tell, tell_error,
    },
};

/// The maximum number of candidates that are listed for an ambiguous id.
const MAX_CANDIDATES: usize = 10;
/// The maximum number of members of a host that are queried concurrently.
const MAX_CONCURRENT_QUERIES: usize = 8;

/// A source of jobs.
pub(crate) enum Jobs {
    /// Members of a running host.
    Host { url: String, members: Vec<Served> },
    /// Members' directories.
    Files(Files),
}

/// Members whose files are read.
pub(crate) struct Files {
    directory: PathBuf,
    limits: Box<Limits>,
    members: Vec<MemberFiles>,
    /// How to reach the hosts that serve the members.
    access: AccessArgs,
    /// Members that cannot be read, with the reasons.
    left_out: Vec<String>,
}

/// The files of one member.
struct MemberFiles {
    /// Its key, or its name on the command line.
    member: String,
    jobs: OfflineJobs,
}

/// A job that was found: the index of its member, and its full id.
pub(crate) struct JobRef {
    at: usize,
    pub(crate) id: String,
}

/// A job in a list.
pub(crate) struct Row {
    pub(crate) member: Option<String>,
    pub(crate) listed: Listed,
    pub(crate) interrupted: bool,
    /// The creation time, if known.
    pub(crate) made: Option<Timestamp>,
}

/// The JSON of a job: a host's view, with the job's member if there are several.
#[derive(Serialize)]
struct JobJson<'a, T> {
    #[serde(skip_serializing_if = "Option::is_none")]
    member: Option<&'a str>,
    #[serde(flatten)]
    view: &'a T,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    interrupted: bool,
}

/// A list of jobs.
pub(crate) struct JobRows {
    /// Newest first. The JSON is the host's own answer if one member was queried.
    pub(crate) rows: Reply<Vec<Row>>,
    /// Members that could not be queried, with the reasons.
    pub(crate) left_out: Vec<String>,
}

/// A job's status.
pub(crate) struct Status {
    pub(crate) member: Option<String>,
    pub(crate) reply: Reply<StatusView>,
    pub(crate) interrupted: bool,
}

/// A reply like a host's, with a value that was read from files.
pub(crate) fn reply<T: Serialize>(value: T) -> Result<Reply<T>, Failure> {
    Ok(Reply { json: to_json(&value)?, value })
}

fn to_json(value: &impl Serialize) -> Result<Box<RawValue>, Failure> {
    Ok(to_raw_value(value).map_err(io::Error::from)?)
}

/// The members of the host at an endpoint, or only the member that the endpoint names.
pub(crate) async fn served(endpoint: &Endpoint) -> Result<Vec<Served>, Failure> {
    served_at(&endpoint.url(), endpoint.member.as_ref(), &endpoint.access.options(&endpoint.url())?).await
}

/// The members of the host at `url`, or only the named member.
pub(crate) async fn served_at(url: &str, named: Option<&MemberKey>, options: &Options) -> Result<Vec<Served>, Failure> {
    of(guild_client::served(url, options).await?, url, named)
}

fn of(members: Vec<Served>, url: &str, named: Option<&MemberKey>) -> Result<Vec<Served>, Failure> {
    let Some(key) = named else { return Ok(members) };
    let keys = keys(&members);
    match members.into_iter().find(|served| served.member.as_ref().is_none_or(|member| member == key)) {
        Some(served) => Ok(vec![served]),
        None => Err(Failure::error(format!("no member {key} at {}; {keys}", one_line(url, usize::MAX)))),
    }
}

/// The keys of members, for errors.
fn keys(members: &[Served]) -> String {
    let keys: Vec<_> = members.iter().filter_map(|served| served.member.as_ref()).map(MemberKey::as_str).collect();
    if keys.is_empty() { "it serves no member".to_owned() } else { format!("it serves {}", keys.join(", ")) }
}

/// The one member at an endpoint.
pub(crate) async fn worker(endpoint: &Endpoint) -> Result<WorkerHandle, Failure> {
    let members = served(endpoint).await?;
    let keys = keys(&members);
    let mut members = members.into_iter();
    match (members.next(), members.next()) {
        (Some(served), None) => Ok(served.worker),
        (None, _) => Err(Failure::error(format!("no member at {}", one_line(&endpoint.url(), usize::MAX)))),
        (Some(_), Some(_)) => Err(Failure::error(format!(
            "the host serves several members; name one with --member KEY; {}: {keys}",
            one_line(&endpoint.url(), 200)
        ))),
    }
}

impl Jobs {
    /// The jobs in the directory that `--members` names, or else of the host at the endpoint. If no host was named and
    /// none answers, the jobs in the default directory of members.
    pub(crate) async fn open(endpoint: &Endpoint, local: &LocalArgs) -> Result<Self, Failure> {
        let files = |why: Option<&str>| {
            let config = local::config(&local.policy)?;
            let member = endpoint.member.as_ref().map(MemberKey::as_str);
            let files = Files { access: endpoint.access.clone(), ..Files::open(local, &config, member)? };
            if !endpoint.json {
                let why = why.map(|url| format!(": no host runs at {url}")).unwrap_or_default();
                tell(format_args!("read from the files in {}{why}", files.directory.display()));
            }
            Ok(Self::Files(files))
        };
        if local.members.is_some() {
            if endpoint.url.is_some() && std::env::var_os("GUILD_URL").is_none() {
                return Err(Failure::error("--url names a host, and --members a directory; give only one of them"));
            }
            return files(None);
        }
        let url = endpoint.url();
        let options = endpoint.access.options(&url)?;
        match guild_client::served(&url, &options).await {
            Ok(members) => Ok(Self::Host { members: of(members, &url, endpoint.member.as_ref())?, url }),
            Err(error @ Error::Unreachable { .. }) if endpoint.url.is_none() => {
                let config = local::config(&local.policy)?;
                match local::members_directory(None, &config) {
                    Ok(_) => files(Some(&url)),
                    Err(_) => Err(unreachable(error)),
                }
            }
            Err(error @ Error::Unreachable { .. }) => Err(unreachable(error)),
            Err(error) => Err(error.into()),
        }
    }

    /// The jobs of the host at the endpoint.
    pub(crate) async fn of_host(endpoint: &Endpoint) -> Result<Self, Failure> {
        Ok(Self::Host { members: served(endpoint).await?, url: endpoint.url() })
    }

    /// The jobs of the host at a URL that the user named, or of one of its members.
    pub(crate) async fn at(url: &str, member: Option<&str>, access: &AccessArgs) -> Result<Self, Failure> {
        let member = member.map(|member| {
            let why = || Failure::error(format!("{} is not a member's key", one_line(member, 80)));
            member.parse::<MemberKey>().map_err(|_| why())
        });
        let members = served_at(url, member.transpose()?.as_ref(), &access.options(url)?).await?;
        Ok(Self::Host { members, url: url.to_owned() })
    }

    /// The jobs in files.
    pub(crate) fn of_files(local: &LocalArgs, config: &Config, member: Option<&str>) -> Result<Self, Failure> {
        Files::open(local, config, member).map(Self::Files)
    }

    /// The directory of a job's member, if the job was found in files.
    pub(crate) fn directory_of(&self, found: &JobRef) -> Option<&Dir> {
        match self {
            Self::Host { .. } => None,
            Self::Files(files) => files.member(found).ok().map(|files| files.jobs.dir()),
        }
    }

    fn count(&self) -> usize {
        match self {
            Self::Host { members, .. } => members.len(),
            Self::Files(files) => files.members.len(),
        }
    }

    /// Where jobs are searched, for errors: in the only member, or in all of them.
    fn place(&self) -> String {
        let place = match self {
            Self::Host { url, .. } => one_line(url, usize::MAX),
            Self::Files(files) => files.directory.display().to_string(),
        };
        match self.member(0).filter(|_| self.count() == 1) {
            Some(member) => format!("of member {} in {place}", one_line(&member, 80)),
            None => format!("in {place}"),
        }
    }

    /// The name of a member.
    fn member(&self, at: usize) -> Option<String> {
        match self {
            Self::Host { members, .. } => members.get(at)?.member.as_ref().map(MemberKey::to_string),
            Self::Files(files) => files.members.get(at).map(|files| files.member.clone()),
        }
    }

    /// Finds the job with this id or unique prefix, or, for `@latest`, the newest job.
    pub(crate) async fn find(&self, wanted: &str) -> Result<JobRef, Failure> {
        self.search(wanted, false).await
    }

    /// Like [`Self::find`], for a command that changes the job. Anything but a full id is an error while a member
    /// cannot be queried, because it could mean a job of that member.
    pub(crate) async fn find_to_change(&self, wanted: &str) -> Result<JobRef, Failure> {
        self.search(wanted, true).await
    }

    async fn search(&self, wanted: &str, changes: bool) -> Result<JobRef, Failure> {
        if wanted == LATEST {
            return self.latest(changes).await;
        }
        // A job's id has no slash, so the text before the last slash is its member's key.
        let asked = wanted;
        let (member, wanted) = wanted.rsplit_once('/').map_or((None, wanted), |(member, id)| (Some(member), id));
        let is_of = |found: &JobRef| member.is_none_or(|key| self.member(found.at).is_none_or(|other| other == key));
        let (mut found, mut left_out) = self.of_id(wanted).await;
        found.retain(is_of);
        if found.is_empty() {
            let (all, why) = self.ids().await;
            left_out = why;
            found = all.into_iter().filter(|found| !wanted.is_empty() && found.id.starts_with(wanted)).collect();
            found.retain(is_of);
            if changes && !found.is_empty() {
                check_complete(wanted, &left_out)?;
            }
        }
        match found.len() {
            1 => found.pop().ok_or_else(|| Failure::error("the job is gone")),
            0 if member.is_none() && self.count() == 1 && left_out.is_empty() && matches!(self, Self::Host { .. }) => {
                // The host's own error is reported.
                Ok(JobRef { at: 0, id: wanted.to_owned() })
            }
            0 => {
                left_out.iter().for_each(tell_error);
                let (wanted, place) = (one_line(asked, 128), self.place());
                Err(Failure::error(format!("there is no job {wanted} {place}; `guild list` shows the jobs")))
            }
            _ => self.ambiguous(wanted, found).await,
        }
    }

    /// A client for the member of a job. If no host serves the member, the error ends with `hint`.
    pub(crate) fn worker_of(&self, found: &JobRef, hint: &str) -> Result<WorkerHandle, Failure> {
        match self {
            Self::Host { members, .. } => {
                let served = members.get(found.at).ok_or_else(|| Failure::error("the member is gone"))?;
                Ok(served.worker.clone())
            }
            Self::Files(files) => {
                let MemberFiles { member, jobs } = files.member(found)?;
                match jobs.host() {
                    Some(owner) => files.access.client_of_owner(&owner.url),
                    None => Err(Failure::error(format!("no host serves {member}; start one with `guild serve`{hint}"))),
                }
            }
        }
    }

    /// Whether a host serves the member of a job.
    pub(crate) fn is_served(&self, found: &JobRef) -> bool {
        match self {
            Self::Host { .. } => true,
            Self::Files(files) => files.member(found).is_ok_and(|files| files.jobs.host().is_some()),
        }
    }

    /// The key of a job's member, if known.
    pub(crate) fn key_of(&self, found: &JobRef) -> Option<MemberKey> {
        self.member(found.at)?.parse().ok()
    }

    /// The jobs with exactly this id.
    async fn of_id(&self, id: &str) -> (Vec<JobRef>, Vec<String>) {
        let found = |at| JobRef { at, id: id.to_owned() };
        match self {
            Self::Host { members, .. } => {
                let (replies, left_out) = self.replies(members, |served| served.worker.status(id)).await;
                (replies.into_iter().map(|(at, _)| found(at)).collect(), left_out)
            }
            Self::Files(files) => {
                let Ok(id) = id.parse::<JobId>() else { return (Vec::new(), Vec::new()) };
                let all = files.members.iter().enumerate().filter(|(_, files)| files.jobs.has(&id));
                let all = all.map(|(at, _)| found(at));
                (all.collect(), Vec::new())
            }
        }
    }

    /// All jobs.
    async fn ids(&self) -> (Vec<JobRef>, Vec<String>) {
        match self {
            Self::Host { members, .. } => {
                let params = ListParams::default();
                let (replies, left_out) = self.replies(members, |served| served.worker.list(&params)).await;
                let jobs = |(at, reply): (usize, Reply<JobList>)| {
                    reply.value.jobs.into_iter().map(move |job| JobRef { at, id: job.job_id.into() })
                };
                (replies.into_iter().flat_map(jobs).collect(), left_out)
            }
            Self::Files(files) => {
                let (mut all, mut left_out) = (Vec::new(), files.left_out.clone());
                for (at, MemberFiles { member, jobs }) in files.members.iter().enumerate() {
                    match jobs.ids() {
                        Ok(ids) => all.extend(ids.into_iter().map(|id| JobRef { at, id: id.into() })),
                        Err(e) => left_out.push(format!("{member}: its jobs cannot be read: {e}")),
                    }
                }
                (all, left_out)
            }
        }
    }

    /// The replies of members of a host, with each member's index, and the reasons for members that could not be
    /// queried.
    async fn replies<'a, T, F: Future<Output = Result<T, Error>> + 'a>(
        &self,
        members: &'a [Served],
        query: impl Fn(&'a Served) -> F + 'a,
    ) -> (Vec<(usize, T)>, Vec<String>) {
        let (mut replies, mut left_out) = (Vec::new(), Vec::new());
        for (at, answer) in query_all(members, query).await.into_iter().enumerate() {
            match answer {
                Ok(reply) => replies.push((at, reply)),
                Err(error) => left_out.extend(self.reason(at, &error)),
            }
        }
        (replies, left_out)
    }

    /// The reason that a member could not be queried; `None` if it does not have the job, or has no jobs.
    fn reason(&self, at: usize, error: &Error) -> Option<String> {
        match error {
            Error::Refused { code: code::INVALID_PARAMS | code::METHOD_NOT_FOUND, .. } => None,
            error => {
                let member = self.member(at).map_or_else(|| "the host".to_owned(), |member| one_line(&member, 80));
                Some(format!("{member} cannot be queried: {error}"))
            }
        }
    }

    async fn latest(&self, changes: bool) -> Result<JobRef, Failure> {
        let (mut all, left_out) = self.ids().await;
        if changes {
            check_complete(LATEST, &left_out)?;
        }
        left_out.iter().for_each(tell_error);
        if let Self::Host { .. } = self {
            // A host lists the newest first.
            all.dedup_by_key(|found| found.at);
        }
        let (mut newest, mut newest_made): (Option<JobRef>, Option<Timestamp>) = (None, None);
        for found in all {
            let made = self.made(&found).await;
            if newest.is_none() || made > newest_made {
                (newest, newest_made) = (Some(found), made);
            }
        }
        newest.ok_or_else(|| Failure::error(format!("there are no jobs {}", self.place())))
    }

    /// The creation time of a job, according to its id, or else to its record.
    async fn made(&self, found: &JobRef) -> Option<Timestamp> {
        match found.id.parse().ok().and_then(|id| made_at(&id)) {
            Some(made) => Some(made),
            None => self.look(found).await.and_then(|view| view.started_at.parse().ok()),
        }
    }

    /// A job's status, if it can be read.
    async fn look(&self, found: &JobRef) -> Option<StatusView> {
        self.status(found).await.ok().map(|status| status.reply.value)
    }

    /// Lists the jobs that an ambiguous id could mean, newest first. It always fails.
    async fn ambiguous(&self, wanted: &str, found: Vec<JobRef>) -> Result<JobRef, Failure> {
        let count = found.len();
        let mut by_age = Vec::new();
        for found in found {
            by_age.push((self.made(&found).await, found));
        }
        by_age.sort_by_key(|(made, _)| Reverse(*made));
        let found = by_age.into_iter().map(|(_, found)| found);
        let mut table = Table::new(["JOB", "MEMBER", "AGE"].map(Column::Left)).rest("DESCRIPTION");
        for found in found.take(MAX_CANDIDATES) {
            let view = self.look(&found).await;
            let made = view.as_ref().and_then(|view| view.started_at.parse().ok());
            let cells = [
                Cell::text(&found.id),
                Cell::text(&self.member(found.at).unwrap_or_default()),
                Cell::age(made, Timestamp::now()),
                Cell::text(view.as_ref().map_or("", |view| &view.description)),
            ];
            table.row(cells, None);
        }
        tell_error(format_args!(
            "{wanted:?} matches {count} jobs; write more of the id, or name the member with --member:"
        ));
        let mut text = Vec::new();
        table.write(&mut text, Some(stderr_width()))?;
        tell(String::from_utf8_lossy(&text).trim_end());
        if count > MAX_CANDIDATES {
            tell(format_args!("and {} more", count - MAX_CANDIDATES));
        }
        Err(Failure::code(exit::ERROR))
    }

    /// A job's status.
    pub(crate) async fn status(&self, found: &JobRef) -> Result<Status, Failure> {
        let member = self.member(found.at);
        match self {
            Self::Host { .. } => {
                let reply = self.worker_of(found, "")?.status(&found.id).await?;
                Ok(Status { member, reply, interrupted: false })
            }
            Self::Files(files) => {
                let (jobs, meta) = files.record(found)?;
                let view = jobs.status(&meta, &files.limits).map_err(|e| Failure::error(e.to_string()))?;
                let interrupted = jobs.is_interrupted(&meta);
                let json = to_json(&JobJson { member: None, view: &view, interrupted })?;
                Ok(Status { member, reply: Reply { json, value: view }, interrupted })
            }
        }
    }

    /// A completed job's result.
    pub(crate) async fn result(&self, found: &JobRef) -> Result<Reply<ResultView>, Failure> {
        match self {
            Self::Host { .. } => Ok(self.worker_of(found, "")?.result(&found.id).await?),
            Self::Files(files) => {
                let (jobs, meta) = files.record(found)?;
                if jobs.is_interrupted(&meta) {
                    return Err(Failure::error(format!(
                        "the job {} has no result: {INTERRUPTED}; {NEXT_HOST_RESUMES}",
                        found.id
                    )));
                }
                reply(jobs.result(&meta, &files.limits).map_err(|e| Failure::error(e.to_string()))?)
            }
        }
    }

    /// Continues a job that is held back: through the host that serves its member, or else in its files.
    pub(crate) async fn let_on(&self, found: &JobRef) -> Result<Reply<Resumed>, Failure> {
        match self {
            Self::Files(files) if !self.is_served(found) => {
                let (jobs, meta) = files.record(found)?;
                jobs.let_on(&meta.job_id, &files.limits).map_err(Failure::error)?;
                reply(Resumed { job_id: meta.job_id, status: meta.status })
            }
            _ => Ok(self.worker_of(found, "")?.resume(&found.id).await?),
        }
    }

    /// The jobs that match, newest first.
    pub(crate) async fn list(&self, params: &ListParams) -> Result<JobRows, Failure> {
        match self {
            Self::Host { members, .. } => self.list_there(members, params).await,
            Self::Files(files) => files.list(params),
        }
    }

    async fn list_there(&self, members: &[Served], params: &ListParams) -> Result<JobRows, Failure> {
        if let [one] = members {
            let Reply { value, json } = one.worker.list(params).await?;
            let rows = value.jobs.into_iter().map(|listed| Row::served(self.member(0), listed)).collect();
            return Ok(JobRows { rows: Reply { json, value: rows }, left_out: Vec::new() });
        }
        let (mut rows, mut left_out) = (Vec::new(), Vec::new());
        for (at, answer) in query_all(members, |served| served.worker.list(params)).await.into_iter().enumerate() {
            match answer {
                Ok(Reply { value, .. }) => {
                    rows.extend(value.jobs.into_iter().map(|listed| Row::served(self.member(at), listed)));
                }
                // If one member rejects the parameters, all do.
                Err(error @ Error::Refused { code: code::INVALID_PARAMS, .. }) => return Err(error.into()),
                Err(error) => left_out.extend(self.reason(at, &error)),
            }
        }
        rows.sort_by_key(|row| Reverse(row.made));
        JobRows::new(rows, left_out, members.len())
    }
}

/// The failure if no host answers and there is no directory of members.
fn unreachable(error: Error) -> Failure {
    let failure = Failure::from(error);
    let said = failure.message.unwrap_or_default();
    Failure { message: Some(format!("{said}; --members DIR reads the jobs from the files of members")), ..failure }
}

/// Refuses an abbreviated id if a member could not be queried.
fn check_complete(wanted: &str, left_out: &[String]) -> Result<(), Failure> {
    if left_out.is_empty() {
        return Ok(());
    }
    left_out.iter().for_each(tell_error);
    Err(Failure::error(format!(
        "{} may match another job: not every member could be queried, and nothing was changed; give the whole id, or \
         name the member with --member KEY",
        one_line(wanted, 128)
    )))
}

/// Queries members of a host, a few at a time.
async fn query_all<'a, T, F: Future<Output = Result<T, Error>> + 'a>(
    members: &'a [Served],
    query: impl Fn(&'a Served) -> F + 'a,
) -> Vec<Result<T, Error>> {
    stream::iter(members).map(query).buffered(MAX_CONCURRENT_QUERIES).collect().await
}

impl JobRows {
    /// A list of the jobs of `members` members. In JSON, each job names its member if there are several members.
    fn new(rows: Vec<Row>, left_out: Vec<String>, members: usize) -> Result<Self, Failure> {
        let row_json = |row: &Row| {
            let member = row.member.as_deref().filter(|_| members != 1);
            serde_json::to_value(JobJson { member, view: &row.listed, interrupted: row.interrupted })
        };
        let jobs: Result<Vec<_>, _> = rows.iter().map(row_json).collect();
        let json = to_json(&json!({"jobs": jobs.map_err(io::Error::from)?}))?;
        Ok(Self { rows: Reply { json, value: rows }, left_out })
    }
}

impl Row {
    /// A job that a host lists.
    fn served(member: Option<String>, listed: Listed) -> Self {
        let made = made_at(&listed.job_id);
        Self { member, listed, interrupted: false, made }
    }
}

impl Files {
    /// The files of one member, or of all of them.
    fn open(local: &LocalArgs, config: &Config, member: Option<&str>) -> Result<Self, Failure> {
        let (limits, access) = (Box::new(config.limits.clone()), AccessArgs::of_environment());
        if let Some(member) = member {
            let directory = local::member_directory(member, local, config)?;
            let files = MemberFiles::open(member.to_owned(), local::open(&directory)?);
            let members = vec![files.map_err(Failure::error)?];
            return Ok(Self { directory, limits, members, access, left_out: Vec::new() });
        }
        let directory = local::members_directory(local.members.as_deref(), config)?;
        let (mut members, mut left_out) = (Vec::new(), Vec::new());
        for found in local::discovered(&directory)? {
            let name = one_line(&found.path, 80);
            match found.member.and_then(|member| MemberFiles::open(found.path, member.dir)) {
                Ok(files) => members.push(files),
                Err(why) => left_out.push(format!("{name} is left out: {why}")),
            }
        }
        Ok(Self { directory, limits, members, access, left_out })
    }

    fn record(&self, found: &JobRef) -> Result<(&OfflineJobs, Meta), Failure> {
        let MemberFiles { member, jobs } = self.member(found)?;
        if !jobs.is_used() {
            return Err(Failure::error("the member has no jobs"));
        }
        let id: JobId = found.id.parse().map_err(|e| Failure::error(format!("{e}")))?;
        let unreadable = |e| Failure::error(format!("the job {id} of {member}: its meta.json cannot be read: {e}"));
        let meta = jobs.meta(&id, &self.limits).map_err(unreadable)?;
        Ok((jobs, meta))
    }

    fn member(&self, found: &JobRef) -> Result<&MemberFiles, Failure> {
        self.members.get(found.at).ok_or_else(|| Failure::error("the member is gone"))
    }

    fn list(&self, params: &ListParams) -> Result<JobRows, Failure> {
        let filter = filter(params.filter.as_deref()).map_err(|e| Failure::error(e.to_string()))?;
        let matches = |meta: &Meta| filter.as_ref().is_none_or(|filter| filter.is_match(&meta.description));
        let (mut rows, mut left_out) = (Vec::new(), self.left_out.clone());
        for MemberFiles { member, jobs } in &self.members {
            let list = match jobs.list(matches, params.detail == Some(Detail::Detailed), &self.limits) {
                Ok(list) => list,
                Err(e) => {
                    left_out.push(format!("{member}: its jobs cannot be read: {e}"));
                    continue;
                }
            };
            let reason = |(id, e)| format!("job {id} of {member}: its meta.json cannot be read: {e}");
            left_out.extend(list.unreadable.into_iter().map(reason));
            rows.extend(list.jobs.into_iter().map(|OfflineJob { listed, interrupted, made }| {
                let made = made.or_else(|| made_at(&listed.job_id));
                Row { member: Some(member.clone()), listed, interrupted, made }
            }));
        }
        rows.sort_by(|one, other| (other.made, &other.listed.job_id).cmp(&(one.made, &one.listed.job_id)));
        JobRows::new(rows, left_out, self.members.len())
    }
}

impl MemberFiles {
    fn open(member: String, dir: Dir) -> Result<Self, String> {
        let jobs = OfflineJobs::open(dir).map_err(|why| format!("{member}: {why}"))?;
        Ok(Self { member, jobs })
    }
}
