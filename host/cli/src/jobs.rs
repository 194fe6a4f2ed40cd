//! Which jobs there are, and which one is meant: those of a host that runs, else those in the files of a directory of
//! members.

use std::{cmp::Reverse, path::PathBuf};

use cap_std::fs::Dir;
use futures::{StreamExt as _, stream};
use guild_client::{
    Detail, Error, JobId, JobList, ListParams, Listed, MemberKey, Options, Reply, ResultView, Served, StatusView,
    WorkerHandle,
};
use guild_config::Config;
use guild_contract::{Limits, Meta, rpc::code};
use guild_roster::offline::{OfflineJob, OfflineJobs, filter, made_at};
use jiff::Timestamp;
use serde::Serialize;

use crate::{
    client::{AccessArgs, Endpoint},
    complete::LATEST,
    failure::{Failure, exit},
    local::{self, LocalArgs},
    output::{one_line, stderr_width, tell, tell_error},
    status::{GOES_ON, INTERRUPTED},
    table::{Cell, Column, Table},
};

/// How many jobs an ambiguous name lists.
const CHOICES: usize = 10;
/// How many members of a host are asked at a time.
const AT_A_TIME: usize = 8;

/// Where jobs are looked for.
pub(crate) enum Jobs {
    /// Members of a host that runs.
    Host { url: String, members: Vec<Served> },
    /// Members' directories.
    Files(Files),
}

/// Members whose files are read.
pub(crate) struct Files {
    directory: PathBuf,
    limits: Box<Limits>,
    members: Vec<MemberFiles>,
    /// How the hosts are reached that serve them.
    access: AccessArgs,
    /// Those that cannot be read, and why.
    left_out: Vec<String>,
}

/// The files of one member.
struct MemberFiles {
    /// Its key, or as it was named.
    member: String,
    jobs: OfflineJobs,
}

/// A job that was found: whose it is, by its place among the members, and its whole id.
pub(crate) struct JobRef {
    at: usize,
    pub(crate) id: String,
}

/// A job in a list.
pub(crate) struct Row {
    pub(crate) member: Option<String>,
    pub(crate) listed: Listed,
    pub(crate) interrupted: bool,
    /// When it was made, where that is known.
    pub(crate) made: Option<Timestamp>,
}

/// With `--json`: a job of a list of all members.
#[derive(Serialize)]
pub(crate) struct OfMember<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) member: Option<&'a str>,
    #[serde(flatten)]
    pub(crate) listed: &'a Listed,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) interrupted: bool,
}

/// JobRows jobs that there are.
pub(crate) struct JobRows {
    /// Newest first.
    pub(crate) rows: Vec<Row>,
    /// The host's own answer, where one member was asked.
    pub(crate) json: Option<Box<serde_json::value::RawValue>>,
    /// Members that could not be asked, and why.
    pub(crate) left_out: Vec<String>,
}

/// Where a job is.
pub(crate) struct Status {
    pub(crate) member: Option<String>,
    pub(crate) view: StatusView,
    /// The host's own answer.
    pub(crate) json: Option<Box<serde_json::value::RawValue>>,
    pub(crate) interrupted: bool,
}

/// With `--json`: a status that was read from files.
#[derive(Serialize)]
pub(crate) struct FileStatus<'a> {
    #[serde(flatten)]
    pub(crate) view: &'a StatusView,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) interrupted: bool,
}

/// The members of the host at an endpoint, or the one that is named.
pub(crate) async fn served(endpoint: &Endpoint) -> Result<Vec<Served>, Failure> {
    served_at(&endpoint.url(), endpoint.member.as_ref(), &endpoint.access.options()?).await
}

/// The members of the host at `url`, or the one that is named.
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

/// Which members there are, as an error says it.
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
            "which member? Name it with --member KEY; {}: {keys}",
            one_line(&endpoint.url(), 200)
        ))),
    }
}

impl Jobs {
    /// The jobs of the host at the endpoint; of the directory that `--members` names; or of the directory of members,
    /// where nobody named a host and none answers.
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
                return Err(Failure::error("--url names a host, and --members a directory; name one of them"));
            }
            return files(None);
        }
        let (options, url) = (endpoint.access.options()?, endpoint.url());
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

    /// The jobs in files.
    pub(crate) fn of_files(local: &LocalArgs, config: &Config, member: Option<&str>) -> Result<Self, Failure> {
        Files::open(local, config, member).map(Self::Files)
    }

    /// The directory of a job's member, where it was found in files.
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

    /// Where it is looked, for errors: at the one member that is meant, or at all there are.
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

    /// The job of that id, of the only id that begins so, or the one that was made last.
    pub(crate) async fn find(&self, wanted: &str) -> Result<JobRef, Failure> {
        self.search(wanted, false).await
    }

    /// As [`Self::find`], for a command that changes the job. What is not a whole id could mean another job of a member that
    /// cannot be asked, so that is an error.
    pub(crate) async fn find_to_change(&self, wanted: &str) -> Result<JobRef, Failure> {
        self.search(wanted, true).await
    }

    async fn search(&self, wanted: &str, changes: bool) -> Result<JobRef, Failure> {
        if wanted == LATEST {
            return self.latest(changes).await;
        }
        let (mut found, mut left_out) = self.of_id(wanted).await;
        if found.is_empty() {
            let (all, why) = self.ids().await;
            left_out = why;
            found = all.into_iter().filter(|found| !wanted.is_empty() && found.id.starts_with(wanted)).collect();
            if changes && !found.is_empty() {
                all_asked(wanted, &left_out)?;
            }
        }
        match found.len() {
            1 => found.pop().ok_or_else(|| Failure::error("the job is gone")),
            0 if self.count() == 1 && left_out.is_empty() && matches!(self, Self::Host { .. }) => {
                // The host's own words.
                Ok(JobRef { at: 0, id: wanted.to_owned() })
            }
            0 => {
                left_out.iter().for_each(tell_error);
                let (wanted, place) = (one_line(wanted, 128), self.place());
                Err(Failure::error(format!("there is no job {wanted} {place}; `guild list` shows the jobs")))
            }
            _ => self.ambiguous(wanted, found).await,
        }
    }

    /// The member of a job, for who asks a host itself. Where no host serves it, the error ends with `besides`.
    pub(crate) fn worker_of(&self, found: &JobRef, besides: &str) -> Result<WorkerHandle, Failure> {
        match self {
            Self::Host { members, .. } => {
                let served = members.get(found.at).ok_or_else(|| Failure::error("the member is gone"))?;
                Ok(served.worker.clone())
            }
            Self::Files(files) => {
                let MemberFiles { member, jobs } = files.member(found)?;
                match jobs.host() {
                    Some(owner) => files.access.client_of_owner(&owner.url),
                    None => {
                        Err(Failure::error(format!("no host serves {member}; start one with `guild serve`{besides}")))
                    }
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

    /// The key of a job's member, where it is known.
    pub(crate) fn key_of(&self, found: &JobRef) -> Option<MemberKey> {
        self.member(found.at)?.parse().ok()
    }

    /// Who has a job of exactly that id.
    async fn of_id(&self, id: &str) -> (Vec<JobRef>, Vec<String>) {
        let found = |at| JobRef { at, id: id.to_owned() };
        match self {
            Self::Host { members, .. } => {
                let asked = each(members, |served| served.worker.status(id)).await;
                let (mut all, mut left_out) = (Vec::new(), Vec::new());
                for (at, answer) in asked.into_iter().enumerate() {
                    match answer {
                        Ok(_) => all.push(found(at)),
                        Err(error) => left_out.extend(self.reason(at, &error)),
                    }
                }
                (all, left_out)
            }
            Self::Files(files) => {
                let Ok(id) = id.parse::<JobId>() else { return (Vec::new(), Vec::new()) };
                let all = files.members.iter().enumerate().filter(|(_, files)| files.jobs.has(&id));
                let all = all.map(|(at, _)| found(at));
                (all.collect(), Vec::new())
            }
        }
    }

    /// JobRows jobs there are.
    async fn ids(&self) -> (Vec<JobRef>, Vec<String>) {
        let (mut all, mut left_out) = (Vec::new(), Vec::new());
        match self {
            Self::Host { members, .. } => {
                let params = ListParams::default();
                for (at, answer) in each(members, |served| served.worker.list(&params)).await.into_iter().enumerate() {
                    match answer {
                        Ok(Reply { value: JobList { jobs }, .. }) => {
                            all.extend(jobs.into_iter().map(|job| JobRef { at, id: job.job_id.into() }));
                        }
                        Err(error) => left_out.extend(self.reason(at, &error)),
                    }
                }
            }
            Self::Files(files) => {
                left_out.clone_from(&files.left_out);
                for (at, MemberFiles { member, jobs }) in files.members.iter().enumerate() {
                    match jobs.ids() {
                        Ok(ids) => all.extend(ids.into_iter().map(|id| JobRef { at, id: id.into() })),
                        Err(e) => left_out.push(format!("{member}: its jobs cannot be read: {e}")),
                    }
                }
            }
        }
        (all, left_out)
    }

    /// Why a member could not be asked; nothing where it has no such job, or no jobs at all.
    fn reason(&self, at: usize, error: &Error) -> Option<String> {
        match error {
            Error::Refused { code: code::INVALID_PARAMS | code::METHOD_NOT_FOUND, .. } => None,
            error => {
                let member = self.member(at).map_or_else(|| "the host".to_owned(), |member| one_line(&member, 80));
                Some(format!("{member} cannot be asked: {error}"))
            }
        }
    }

    async fn latest(&self, changes: bool) -> Result<JobRef, Failure> {
        let (mut all, left_out) = self.ids().await;
        if changes {
            all_asked(LATEST, &left_out)?;
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

    /// When a job was made: as its id says, or else its record.
    async fn made(&self, found: &JobRef) -> Option<Timestamp> {
        match found.id.parse().ok().and_then(|id| made_at(&id)) {
            Some(made) => Some(made),
            None => self.look(found).await.and_then(|view| view.started_at.parse().ok()),
        }
    }

    /// A job's status, if it can be had.
    async fn look(&self, found: &JobRef) -> Option<StatusView> {
        self.status(found).await.ok().map(|status| status.view)
    }

    /// Lists what a name could mean, newest first.
    async fn ambiguous(&self, wanted: &str, found: Vec<JobRef>) -> Result<JobRef, Failure> {
        let count = found.len();
        let mut by_age = Vec::new();
        for found in found {
            by_age.push((self.made(&found).await, found));
        }
        by_age.sort_by_key(|(made, _)| Reverse(*made));
        let found = by_age.into_iter().map(|(_, found)| found);
        let mut table =
            Table::new([Column::Left("JOB"), Column::Left("MEMBER"), Column::Left("AGE"), Column::Rest("DESCRIPTION")]);
        for found in found.take(CHOICES) {
            let view = self.look(&found).await;
            let made = view.as_ref().and_then(|view| view.started_at.parse().ok());
            table.row(
                [
                    Cell::text(&found.id),
                    Cell::text(&self.member(found.at).unwrap_or_default()),
                    Cell::age(made, Timestamp::now()),
                    Cell::text(view.as_ref().map_or("", |view| &view.description)),
                ],
                None,
            );
        }
        tell_error(format_args!("{count} jobs are meant by {wanted:?}; write more of the id, or name the --member:"));
        let mut text = Vec::new();
        table.write(&mut text, Some(stderr_width()))?;
        tell(String::from_utf8_lossy(&text).trim_end());
        if count > CHOICES {
            tell(format_args!("and {} more", count - CHOICES));
        }
        Err(Failure::code(exit::ERROR))
    }

    /// A job's status.
    pub(crate) async fn status(&self, found: &JobRef) -> Result<Status, Failure> {
        let member = self.member(found.at);
        match self {
            Self::Host { .. } => {
                let Reply { value, json } = self.worker_of(found, "")?.status(&found.id).await?;
                Ok(Status { member, view: value, json: Some(json), interrupted: false })
            }
            Self::Files(files) => {
                let (jobs, meta) = files.record(found)?;
                let view = jobs.status(&meta, &files.limits).map_err(|e| Failure::error(e.to_string()))?;
                Ok(Status { member, view, json: None, interrupted: jobs.is_interrupted(&meta) })
            }
        }
    }

    /// A completed job's result; the host's own answer beside it.
    pub(crate) async fn result(
        &self,
        found: &JobRef,
    ) -> Result<(ResultView, Option<Box<serde_json::value::RawValue>>), Failure> {
        match self {
            Self::Host { .. } => {
                let Reply { value, json } = self.worker_of(found, "")?.result(&found.id).await?;
                Ok((value, Some(json)))
            }
            Self::Files(files) => {
                let (jobs, meta) = files.record(found)?;
                if jobs.is_interrupted(&meta) {
                    return Err(Failure::error(format!(
                        "the job {} has no result: {INTERRUPTED}; {GOES_ON}",
                        found.id
                    )));
                }
                Ok((jobs.result(&meta, &files.limits).map_err(|e| Failure::error(e.to_string()))?, None))
            }
        }
    }

    /// JobRows jobs that match, newest first.
    pub(crate) async fn list(&self, params: &ListParams) -> Result<JobRows, Failure> {
        match self {
            Self::Host { members, .. } => self.list_there(members, params).await,
            Self::Files(files) => files.list(params),
        }
    }

    async fn list_there(&self, members: &[Served], params: &ListParams) -> Result<JobRows, Failure> {
        if let [one] = members {
            let Reply { value, json } = one.worker.list(params).await?;
            let rows = value.jobs.into_iter().map(|listed| Row::of(self.member(0), listed, false, None)).collect();
            return Ok(JobRows { rows, json: Some(json), left_out: Vec::new() });
        }
        let (mut rows, mut left_out) = (Vec::new(), Vec::new());
        for (at, answer) in each(members, |served| served.worker.list(params)).await.into_iter().enumerate() {
            match answer {
                Ok(Reply { value, .. }) => {
                    rows.extend(value.jobs.into_iter().map(|listed| Row::of(self.member(at), listed, false, None)));
                }
                // What is asked of all of them is wrong for all of them.
                Err(error @ Error::Refused { code: code::INVALID_PARAMS, .. }) => return Err(error.into()),
                Err(error) => left_out.extend(self.reason(at, &error)),
            }
        }
        rows.sort_by_key(|row| Reverse(row.made));
        Ok(JobRows { rows, json: None, left_out })
    }

    /// Whether only one member was asked.
    pub(crate) fn is_of_one(&self) -> bool {
        self.count() == 1
    }
}

/// No host answers, and nobody said where the files are.
fn unreachable(error: Error) -> Failure {
    let failure = Failure::from(error);
    let said = failure.message.unwrap_or_default();
    Failure { message: Some(format!("{said}; --members DIR reads the jobs from the files of members")), ..failure }
}

/// Refuses what is not a whole id where a member could not be asked.
fn all_asked(wanted: &str, left_out: &[String]) -> Result<(), Failure> {
    if left_out.is_empty() {
        return Ok(());
    }
    left_out.iter().for_each(tell_error);
    Err(Failure::error(format!(
        "{} may mean another job: not every member could be asked, and nothing was changed; give the whole id, or name the \
         member with --member KEY",
        one_line(wanted, 128)
    )))
}

/// Asks members of a host, a few at a time.
async fn each<'a, T, F: Future<Output = Result<T, Error>> + 'a>(
    members: &'a [Served],
    ask: impl Fn(&'a Served) -> F + 'a,
) -> Vec<Result<T, Error>> {
    stream::iter(members).map(ask).buffered(AT_A_TIME).collect().await
}

impl Row {
    fn of(member: Option<String>, listed: Listed, interrupted: bool, made: Option<Timestamp>) -> Self {
        let made = made.or_else(|| made_at(&listed.job_id));
        Self { member, listed, interrupted, made }
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
            let unreadable = |why: String| format!("{} is left out: {why}", one_line(&found.path, 80));
            match found.member {
                Ok(member) => match MemberFiles::open(found.path.clone(), member.dir) {
                    Ok(files) => members.push(files),
                    Err(why) => left_out.push(unreadable(why)),
                },
                Err(why) => left_out.push(unreadable(why)),
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
            let unreadable = list.unreadable.into_iter();
            left_out
                .extend(unreadable.map(|(id, e)| format!("job {id} of {member}: its meta.json cannot be read: {e}")));
            rows.extend(list.jobs.into_iter().map(|OfflineJob { listed, interrupted, made }| {
                Row::of(Some(member.clone()), listed, interrupted, made)
            }));
        }
        rows.sort_by(|one, other| (other.made, &other.listed.job_id).cmp(&(one.made, &one.listed.job_id)));
        Ok(JobRows { rows, json: None, left_out })
    }
}

impl MemberFiles {
    fn open(member: String, dir: Dir) -> Result<Self, String> {
        match OfflineJobs::open(dir) {
            Ok(jobs) => Ok(Self { member, jobs }),
            Err(why) => Err(format!("{member}: {why}")),
        }
    }
}
