//! Records the calls of host functions by which a component reaches files, the web, its job and sessions.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use guild_contract::capability::Kind;
use guild_jobs::{JobReport, Reporting};
use guild_session::{
    files::{Files, GrepRequest, GrepResult, Listing},
    tools::ToolError,
    web::{Fetch, Hit, Search, Web},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::recording::HostCall;

/// The calls of host functions in one test, in the order in which they were answered.
#[derive(Default)]
pub(crate) struct HostCalls(Mutex<Vec<HostCall>>);

impl HostCalls {
    /// Records a call. `shown` makes the JSON of its answer.
    pub(crate) fn record<T>(
        &self,
        function: &str,
        input: Value,
        answer: &Result<T, ToolError>,
        shown: impl FnOnce(&T) -> Value,
    ) {
        let (answer, error) = match answer {
            Ok(answer) => (Some(shown(answer)), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let call = HostCall { function: function.to_owned(), input, answer, error };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    }

    /// Takes the calls so far.
    pub(crate) fn take(&self) -> Vec<HostCall> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A part of the host whose calls are recorded.
pub(crate) struct Observed<T: ?Sized> {
    pub(crate) calls: Arc<HostCalls>,
    pub(crate) inner: Arc<T>,
}

/// The web of a component, observed.
pub(crate) fn web(web: Web, calls: &Arc<HostCalls>) -> Web {
    let search = web.search.map(|inner| Arc::new(Observed { calls: calls.clone(), inner }) as Arc<dyn Search>);
    let fetch = web.fetch.map(|inner| Arc::new(Observed { calls: calls.clone(), inner }) as Arc<dyn Fetch>);
    Web { search, fetch }
}

impl Files for Observed<dyn Files> {
    fn roots(&self) -> Vec<String> {
        self.inner.roots()
    }

    fn absent(&self) -> Option<String> {
        self.inner.absent()
    }

    fn walk(&self, cancel: &CancellationToken) -> Result<Listing, ToolError> {
        self.inner.walk(cancel)
    }

    fn sources(&self, cancel: &CancellationToken) -> Result<Listing, ToolError> {
        self.inner.sources(cancel)
    }

    fn bytes(&self, path: &str, max: u64) -> Result<Vec<u8>, ToolError> {
        self.inner.bytes(path, max)
    }

    fn listed_bytes(&self, path: &str, max: u64) -> Result<Vec<u8>, ToolError> {
        self.inner.listed_bytes(path, max)
    }

    fn read(&self, path: &str, offset: u32, limit: u32) -> Result<String, ToolError> {
        let answer = self.inner.read(path, offset, limit);
        let input = json!({"path": path, "offset": offset, "limit": limit});
        self.calls.record("files.read", input, &answer, |text| json!(text));
        answer
    }

    fn grep(&self, request: &GrepRequest, cancel: &CancellationToken) -> Result<GrepResult, ToolError> {
        let answer = self.inner.grep(request, cancel);
        let input = json!({"pattern": request.pattern, "glob": request.glob, "limit": request.limit});
        let lines = |found: &GrepResult| {
            let lines = found.files.iter().flat_map(|file| {
                file.lines.iter().map(|line| json!({"path": file.path, "line": line.number, "text": line.text}))
            });
            lines.collect()
        };
        self.calls.record("files.grep", input, &answer, lines);
        answer
    }

    fn glob(
        &self,
        pattern: &str,
        directory: Option<&str>,
        limit: u32,
        cancel: &CancellationToken,
    ) -> Result<Vec<String>, ToolError> {
        let answer = self.inner.glob(pattern, directory, limit, cancel);
        self.calls.record("files.glob", json!({"pattern": pattern, "limit": limit}), &answer, |paths| json!(paths));
        answer
    }
}

#[async_trait]
impl Search for Observed<dyn Search> {
    async fn search(&self, query: &str, limit: u32) -> Result<Vec<Hit>, ToolError> {
        let answer = self.inner.search(query, limit).await;
        self.calls.record("web.search", json!({"query": query, "limit": limit}), &answer, |hits| json!(hits));
        answer
    }
}

#[async_trait]
impl Fetch for Observed<dyn Fetch> {
    async fn fetch(&self, url: &str) -> Result<String, ToolError> {
        let answer = self.inner.fetch(url).await;
        self.calls.record("web.fetch", json!({"url": url}), &answer, |text| json!(text));
        answer
    }
}

#[async_trait]
impl Reporting for Observed<dyn Reporting> {
    fn artifacts_need(&self) -> &'static Kind {
        self.inner.artifacts_need()
    }

    async fn report(self: Arc<Self>, report: JobReport, call: Option<String>) -> Result<(), ToolError> {
        let (function, input) = match &report {
            JobReport::Summary(summary) => ("update-summary", json!({"summary": summary})),
            JobReport::Decision(decision) => ("record-decision", json!(decision)),
            JobReport::Question(question) => ("log-question", json!({"question": question})),
            JobReport::Artifact { path, contents } => {
                ("write-artifact", json!({"path": path, "contents": String::from_utf8_lossy(contents)}))
            }
            JobReport::Result(output) => ("submit-result", json!({"output": output})),
        };
        let answer = self.inner.clone().report(report, call).await;
        self.calls.record(&format!("job-tools.{function}"), input, &answer, |()| Value::Null);
        answer
    }
}
