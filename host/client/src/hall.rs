//! The hall of a host: projects, and commissions on them. Guild Hall's own daemon has the same API.

use std::{path::Path, time::Duration};

use futures::StreamExt as _;
use reqwest::{Method, RequestBuilder, Url, header::HeaderMap};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{json, value::RawValue};
use sse_stream::Sse;

use crate::{
    Error, Options, Reply,
    connect::{self, FIRST, longer, protocol},
    endpoint,
};

/// The maximum size of an answer: a list of all commissions, each with its prompt and result.
const ANSWER_BYTES: usize = 256 * 1024 * 1024;
/// The maximum size of an event, which has a whole result.
pub(crate) const EVENT_BYTES: usize = 16 * 1024 * 1024;
/// The timeout without any message. A host sends a keep-alive more often.
pub(crate) const SILENCE: Duration = Duration::from_secs(45);
/// The timeout of what takes as long as a network or a model does: what reaches `origin` of a project, or has notes written.
const NETWORK: Duration = Duration::from_secs(600);
/// What requests over a socket name as their host.
const LOCAL: &str = "http://localhost/";

/// A client of a host's hall.
#[derive(Clone, Debug)]
pub struct HallClient {
    pub(crate) http: reqwest::Client,
    pub(crate) base: Url,
    pub(crate) timeout: Duration,
}

/// What a commission is to be.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewCommission {
    /// Its project.
    pub project_name: String,
    /// What it is about.
    pub title: String,
    /// Its worker: its key, its name for people, or that of its package.
    pub worker_name: String,
    /// What is asked.
    pub prompt: String,
    /// What has to be there first: commissions, or paths of artifacts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<String>,
    /// In place of the worker's own bounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_overrides: Option<Overrides>,
}

/// Bounds of a commission in place of its worker's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Overrides {
    /// The model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Turns of a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    /// US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_budget_usd: Option<f64>,
}

/// Which commissions a list has. What is `None` is no condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommissionFilter {
    /// Those of this project.
    pub project_name: Option<String>,
    /// Those in this state.
    pub status: Option<String>,
    /// Those of the worker with this name for people.
    pub worker: Option<String>,
}

/// The answer to a new commission.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Created {
    /// Its id.
    pub commission_id: String,
    /// What it waits for.
    pub blocked_by: Vec<Blocker>,
    /// A sentence for each bound that was above what the operator allows.
    pub cut: Vec<String>,
}

/// A dependency of a commission that is not there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Blocker {
    /// As the commission names it.
    pub dependency: String,
    /// Why what depends on it cannot go on.
    pub why: String,
}

/// The answer to a change: `ok`; to a dispatch `accepted`, or `queued` where it has to wait.
#[derive(Clone, Debug, Deserialize)]
pub struct Changed {
    /// The word.
    pub status: String,
    /// What it waits for, where it is queued.
    #[serde(default)]
    pub reason: Option<String>,
}

/// A pull request of `claude/main`.
#[derive(Clone, Debug, Deserialize)]
pub struct PullRequest {
    /// Its address.
    pub url: String,
    /// Whether it was open before.
    #[serde(default)]
    pub existed: bool,
}

/// What a sync did, by project.
#[derive(Clone, Debug, Deserialize)]
pub struct SyncResults {
    /// In the order of the projects.
    pub results: Vec<Synced>,
}

/// What a sync did in a project.
#[derive(Clone, Debug, Deserialize)]
pub struct Synced {
    /// The project.
    pub project: String,
    /// `reset`, `rebase`, `merge`, `noop`, `skip` or `error`.
    pub action: String,
    /// Why.
    #[serde(default)]
    pub reason: String,
}

/// Commissions.
#[derive(Clone, Debug, Deserialize)]
pub struct CommissionList {
    /// What waits, what runs, what went wrong, what is over.
    pub commissions: Vec<Commission>,
    /// How many others there are: one answer has no more.
    #[serde(default)]
    pub more: usize,
}

/// A commission.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Commission {
    /// Its id.
    pub commission_id: String,
    /// `Commission: ` and what it is about.
    pub title: String,
    /// Where it is: `pending`, `blocked`, `dispatched`, `in_progress`, `completed`, `failed`, `cancelled`, `abandoned`.
    pub status: String,
    /// Whether it begins by itself as soon as it can.
    pub queued: bool,
    /// What it waits for, where it is blocked.
    pub blocked_by: Vec<Blocker>,
    /// The worker's name for people.
    pub worker: String,
    /// What the worker is, for people.
    pub worker_display_title: String,
    /// What is asked.
    pub prompt: String,
    /// What has to be there first.
    pub dependencies: Vec<String>,
    /// What came of it: paths below `.lore/`.
    #[serde(rename = "linked_artifacts")]
    pub linked_artifacts: Vec<String>,
    /// In place of the worker's own bounds.
    #[serde(rename = "resource_overrides")]
    pub resource_overrides: Overrides,
    /// Where the work stands.
    #[serde(rename = "current_progress")]
    pub current_progress: String,
    /// The result.
    #[serde(rename = "result_summary")]
    pub result_summary: String,
    /// Its project.
    pub project_name: String,
    /// When it came to its state.
    pub relevant_date: String,
    /// `user` or `manager`.
    pub created_by: String,
    /// The job of its last attempt.
    pub job_id: Option<String>,
}

/// One commission, with all that happened to it.
#[derive(Clone, Debug, Deserialize)]
pub struct CommissionDetail {
    /// As a list has it.
    pub commission: Commission,
    /// What happened, in order.
    pub timeline: Vec<TimelineEntry>,
}

/// Something that happened to a commission.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct TimelineEntry {
    /// When.
    pub timestamp: String,
    /// `created`, `status_<state>`, `progress_report`, `result_submitted`, `user_note`.
    pub event: String,
    /// What, or why.
    pub reason: String,
}

/// Something that happens in a hall.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum HallEvent {
    /// A commission has another state.
    CommissionStatus {
        /// The commission.
        commission_id: String,
        /// The state.
        status: String,
        /// Why.
        #[serde(default)]
        reason: String,
    },
    /// A worker says where its work stands.
    CommissionProgress {
        /// The commission.
        commission_id: String,
        /// The worker's words.
        summary: String,
    },
    /// A worker submitted its result.
    CommissionResult {
        /// The commission.
        commission_id: String,
        /// The result.
        summary: String,
    },
    /// A worker wrote an artifact.
    CommissionArtifact {
        /// The commission.
        commission_id: String,
        /// The path below `.lore/`.
        artifact_path: String,
    },
    /// Somebody added a note.
    CommissionManagerNote {
        /// The commission.
        commission_id: String,
        /// The note.
        content: String,
    },
    /// A commission whose dispatch was asked for has to wait.
    CommissionQueued {
        /// The commission.
        commission_id: String,
        /// For what.
        reason: String,
    },
    /// It waits no longer.
    CommissionDequeued {
        /// The commission.
        commission_id: String,
        /// Why.
        reason: String,
    },
    /// Something else, such as a meeting.
    #[serde(other)]
    Other,
}

impl HallEvent {
    /// The commission, if it is about one.
    pub fn commission(&self) -> Option<&str> {
        match self {
            Self::CommissionStatus { commission_id, .. }
            | Self::CommissionProgress { commission_id, .. }
            | Self::CommissionResult { commission_id, .. }
            | Self::CommissionArtifact { commission_id, .. }
            | Self::CommissionManagerNote { commission_id, .. }
            | Self::CommissionQueued { commission_id, .. }
            | Self::CommissionDequeued { commission_id, .. } => Some(commission_id),
            Self::Other => None,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Change<'a> {
    commission_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
}

impl HallClient {
    /// The hall whose socket this is. No token is sent: the socket's mode decides who may ask.
    ///
    /// # Errors
    /// If there can be no client.
    pub fn at_socket(socket: &Path, options: &Options) -> Result<Self, Error> {
        let invalid = |reason: String| Error::Address { url: socket.display().to_string(), reason };
        let base: Url = LOCAL.parse().map_err(|_| invalid(LOCAL.to_owned()))?;
        let options = Options { token: None, ..options.clone() };
        let http = connect::builder(&base, &options, HeaderMap::new())?.unix_socket(socket);
        let http = http.build().map_err(|e| invalid(e.to_string()))?;
        Ok(Self { http, base, timeout: options.timeout })
    }

    /// The hall of the host at `url`, through its port.
    ///
    /// # Errors
    /// If the address is not that of a host, or the token would be sent there unencrypted.
    pub fn at_url(url: &str, options: &Options) -> Result<Self, Error> {
        let base = endpoint::hall(url)?;
        let http = connect::client(&base, options, HeaderMap::new(), None)?;
        Ok(Self { http, base, timeout: options.timeout })
    }

    /// Makes a commission. Nothing begins.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn create(&self, new: &NewCommission) -> Result<Reply<Created>, Error> {
        self.post("commission/request/commission/create", new).await
    }

    /// Commissions.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn list(&self, filter: &CommissionFilter) -> Result<Reply<CommissionList>, Error> {
        let CommissionFilter { project_name, status, worker } = filter;
        let query = [("projectName", project_name), ("status", status), ("worker", worker)];
        self.get("commission/request/commission/list", &query.map(|(name, value)| (name, value.as_deref()))).await
    }

    /// One commission of a project.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn read(&self, id: &str, project: &str) -> Result<Reply<CommissionDetail>, Error> {
        let query = [("commissionId", Some(id)), ("projectName", Some(project))];
        self.get("commission/request/commission/read", &query).await
    }

    /// Has a pending commission carried out.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn dispatch(&self, id: &str) -> Result<Reply<Changed>, Error> {
        self.change("commission/run/dispatch", id, None, None).await
    }

    /// Takes a commission that failed, or was cancelled, up again.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn redispatch(&self, id: &str) -> Result<Reply<Changed>, Error> {
        self.change("commission/run/redispatch", id, None, None).await
    }

    /// Ends a commission that waits or runs.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn cancel(&self, id: &str, reason: Option<&str>) -> Result<Reply<Changed>, Error> {
        self.change("commission/run/cancel", id, reason, None).await
    }

    /// Gives a commission up for good.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn abandon(&self, id: &str, reason: &str) -> Result<Reply<Changed>, Error> {
        self.change("commission/run/abandon", id, Some(reason), None).await
    }

    /// Adds a note to a commission's timeline.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn note(&self, id: &str, content: &str) -> Result<Reply<Changed>, Error> {
        self.change("commission/request/commission/note", id, None, Some(content)).await
    }

    /// Pushes `claude/main` of a project, and makes a pull request of it.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn create_pull_request(
        &self,
        project: &str,
        title: &str,
        body: &str,
    ) -> Result<Reply<PullRequest>, Error> {
        let body = json!({"projectName": project, "title": title, "body": body});
        self.patient().post("workspace/git/pr/create", &body).await
    }

    /// Has `claude/main` follow the default branch, in one project or all.
    ///
    /// # Errors
    /// See [`Error`]. Why a project could not be done is in its own entry.
    pub async fn sync(&self, project: Option<&str>) -> Result<Reply<SyncResults>, Error> {
        let body = project.map_or_else(|| json!({}), |project| json!({"projectName": project}));
        self.patient().post("workspace/git/integration/sync", &body).await
    }

    /// What happens from now on. Nothing is sent before the first call of [`HallEvents::connect`] or
    /// [`HallEvents::next`].
    pub fn events(&self) -> HallEvents {
        HallEvents { hall: self.clone(), now: None, pause: None }
    }

    /// The same, for what may take long.
    pub(crate) fn patient(&self) -> Self {
        Self { timeout: self.timeout.max(NETWORK), ..self.clone() }
    }

    async fn change(
        &self,
        path: &str,
        commission_id: &str,
        reason: Option<&str>,
        content: Option<&str>,
    ) -> Result<Reply<Changed>, Error> {
        self.post(path, &Change { commission_id, reason, content }).await
    }

    pub(crate) async fn post<R: DeserializeOwned>(
        &self,
        path: &str,
        body: &(impl Serialize + Sync),
    ) -> Result<Reply<R>, Error> {
        let url = self.url(path)?;
        self.answer(url.clone(), self.http.request(Method::POST, url).json(body)).await
    }

    pub(crate) async fn get<R: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, Option<&str>)],
    ) -> Result<Reply<R>, Error> {
        let mut url = self.url(path)?;
        let pairs: Vec<_> = query.iter().filter_map(|(name, value)| Some((*name, (*value)?))).collect();
        if !pairs.is_empty() {
            url.query_pairs_mut().extend_pairs(pairs);
        }
        self.answer(url.clone(), self.http.request(Method::GET, url)).await
    }

    pub(crate) fn url(&self, path: &str) -> Result<Url, Error> {
        self.base.join(path).map_err(|e| protocol(&self.base, e.to_string()))
    }

    async fn answer<R: DeserializeOwned>(&self, url: Url, request: RequestBuilder) -> Result<Reply<R>, Error> {
        let sent = request.timeout(self.timeout).send().await;
        let response = sent.map_err(|e| connect::failed(e, &url, self.timeout))?;
        Reply::parse(&url, connect::json(&url, response, ANSWER_BYTES, self.timeout).await?)
    }
}

/// The events of a hall. Earlier ones are not sent again, so what happens while there is no connection is missed.
pub struct HallEvents {
    hall: HallClient,
    now: Option<connect::Stream>,
    pause: Option<Duration>,
}

impl HallEvents {
    /// Connects, if there is no connection. No later event is missed as long as it holds.
    ///
    /// # Errors
    /// See [`Error`]. After one that [may pass](Error::may_pass), the next call waits briefly and tries again.
    pub async fn connect(&mut self) -> Result<(), Error> {
        if self.now.is_some() {
            return Ok(());
        }
        if let Some(pause) = self.pause {
            tokio::time::sleep(pause).await;
        }
        self.pause = Some(self.pause.map_or(FIRST, longer));
        let (url, timeout) = (self.hall.url("system/events/stream/subscribe")?, self.hall.timeout);
        self.now = Some(connect::events(&url, self.hall.http.get(url.clone()), EVENT_BYTES, timeout).await?);
        Ok(())
    }

    /// Waits for the next event. Dropping the future is safe.
    ///
    /// # Errors
    /// If there is no connection, or it ended: see [`Error`]. After one that [may pass](Error::may_pass), the next
    /// call makes a
    /// new one.
    pub async fn next(&mut self) -> Result<Reply<HallEvent>, Error> {
        loop {
            self.connect().await?;
            let Some(stream) = &mut self.now else { continue };
            let url = &self.hall.base;
            match tokio::time::timeout(SILENCE, stream.next()).await {
                Ok(Some(Ok(Sse { data: Some(data), .. }))) => {
                    self.pause = None;
                    let json = RawValue::from_string(data).map_err(|e| protocol(url, e.to_string()))?;
                    return Reply::parse(url, json);
                }
                // A keep-alive.
                Ok(Some(Ok(_))) => {}
                ended => {
                    let reason = match ended {
                        Ok(Some(Err(e))) => e.to_string(),
                        Ok(_) => "the host ended it".to_owned(),
                        Err(_) => format!("nothing came for {} s", SILENCE.as_secs()),
                    };
                    let error = Error::Broken { url: url.clone(), reason };
                    self.now = None;
                    return Err(error);
                }
            }
        }
    }
}
