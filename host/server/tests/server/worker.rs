//! `worker/*` over a real job store: the view that a caller has of jobs in every state.

use std::{fs, sync::Arc};

use guild_contract::{Bounds, Decision, Grants, Limits};
use guild_jobs::{Accepted, JobStore, NewJob, RunningJob};
use guild_session::activation::Plan;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Server, host, manifest};

struct Worker {
    server: Server,
    store: Arc<JobStore>,
    home: TempDir,
}

impl Worker {
    async fn start() -> Self {
        Self::with_limits(Limits::default()).await
    }

    async fn with_limits(limits: Limits) -> Self {
        let home = tempfile::Builder::new().prefix("member-").tempdir().unwrap();
        let host = host(home.path(), &manifest("tester"), limits).await;
        let store = host.single().unwrap().store().clone();
        Self { server: Server::start(host), store, home }
    }

    fn job(&self, description: &str) -> Arc<RunningJob> {
        let new = NewJob {
            id: self.store.new_id(),
            description: description.to_owned(),
            task: "Do it.".to_owned(),
            config: json!({}),
            token: None,
            plan: Accepted {
                agent: "extractive".into(),
                granted_tools: Vec::new(),
                grants: Grants::default(),
                ceiling: Bounds::default(),
                plan: Plan::OwnRun(Bounds::default()),
            },
            attachments: None,
            activation: None,
            follows: None,
            key: None,
        };
        self.store.create(new).unwrap()
    }

    fn completed(&self, description: &str, output: &str) -> Arc<RunningJob> {
        let job = self.job(description);
        job.submit_result(output, None).unwrap();
        job.complete(None).unwrap();
        job
    }

    fn failed(&self, description: &str, reason: &str) -> Arc<RunningJob> {
        let job = self.job(description);
        job.fail(reason).unwrap();
        job
    }

    async fn cancelled(&self, description: &str) -> Arc<RunningJob> {
        let job = self.job(description);
        self.ask("cancel", id(&job)).await.unwrap();
        job
    }

    async fn ask(&self, method: &str, params: Value) -> Result<Value, Value> {
        self.server.call(&format!("worker/{method}"), params).await
    }

    /// The text of an error, whose code must be -32602.
    async fn refusal(&self, method: &str, params: Value) -> String {
        let error = self.ask(method, params).await.unwrap_err();
        assert_eq!(error["code"], -32602, "{error}");
        error["message"].as_str().unwrap().to_owned()
    }

    async fn listed(&self, params: Value) -> Vec<Value> {
        self.ask("list", params).await.unwrap()["jobs"].as_array().unwrap().clone()
    }
}

fn id(job: &RunningJob) -> Value {
    json!({"jobId": job.id().as_str()})
}

#[tokio::test]
async fn a_status_has_nine_fields_and_writes_its_nulls_out() {
    let worker = Worker::start().await;
    let job = worker.job("label");
    let mut status = worker.ask("status", id(&job)).await.unwrap();
    let started = status["startedAt"].take();
    assert!(started.as_str().unwrap().ends_with('Z'), "{started}");
    assert_eq!(
        status,
        json!({
            "jobId": job.id().as_str(), "status": "running", "description": "label", "summary": null,
            "questions": null, "decisions": null, "error": null, "startedAt": null, "completedAt": null
        })
    );
}

#[tokio::test]
async fn a_status_shows_what_the_worker_reported() {
    let worker = Worker::start().await;
    let job = worker.job("label");
    job.update_summary("half way").unwrap();
    job.log_question("which\none?").unwrap();
    let decision = Decision { question: "q".into(), decision: "d".into(), reasoning: "r".into() };
    job.record_decision(decision.clone(), None).unwrap();
    let status = worker.ask("status", id(&job)).await.unwrap();
    assert_eq!(status["summary"], "half way");
    assert_eq!(status["questions"], json!(["which one?"]));
    assert_eq!(status["decisions"], json!([decision]));
    job.fail("out of turns").unwrap();
    let status = worker.ask("status", id(&job)).await.unwrap();
    assert_eq!((&status["status"], &status["error"]), (&json!("failed"), &json!("out of turns")));
    assert!(status["completedAt"].is_string());
}

#[tokio::test]
async fn a_result_is_given_of_a_completed_job_only() {
    let worker = Worker::start().await;
    let job = worker.completed("done", "The answer is \"42\".\n");
    assert_eq!(
        worker.ask("result", id(&job)).await.unwrap(),
        json!({"jobId": job.id().as_str(), "output": "The answer is \"42\".\n", "artifacts": null})
    );
    let with_files = worker.job("files");
    with_files.write_artifact("table.csv", b"a,b").unwrap();
    with_files.write_artifact("deep/b.txt", b"b").unwrap();
    with_files.complete(Some("see files")).unwrap();
    let result = worker.ask("result", id(&with_files)).await.unwrap();
    assert_eq!(result["artifacts"], json!(["artifacts/deep/b.txt", "artifacts/table.csv"]));

    let (running, failed) = (worker.job("running"), worker.failed("failed", "it broke"));
    let cancelled = worker.cancelled("cancelled").await;
    assert_eq!(worker.refusal("result", id(&running)).await, "Job is still running");
    assert_eq!(worker.refusal("result", id(&failed)).await, "Job failed: it broke");
    assert_eq!(worker.refusal("result", id(&cancelled)).await, "Job was cancelled");
}

#[tokio::test]
async fn running_and_failed_become_cancelled_and_what_has_ended_otherwise_stays() {
    let worker = Worker::start().await;
    let cases = [
        (worker.job("running"), "cancelled"),
        (worker.failed("failed", "x"), "cancelled"),
        (worker.completed("completed", "x"), "completed"),
        (worker.cancelled("cancelled").await, "cancelled"),
    ];
    for (job, expected) in &cases {
        let answer = worker.ask("cancel", id(job)).await.unwrap();
        assert_eq!(answer, json!({"jobId": job.id().as_str(), "status": expected}));
        assert_eq!(worker.ask("status", id(job)).await.unwrap()["status"], *expected);
    }
    assert!(cases[0].0.cancelled().is_cancelled());
}

#[tokio::test]
async fn completed_and_cancelled_jobs_can_be_deleted_and_others_cannot() {
    let worker = Worker::start().await;
    for job in [worker.completed("completed", "x"), worker.cancelled("cancelled").await] {
        let answer = worker.ask("delete", id(&job)).await.unwrap();
        assert_eq!(answer, json!({"jobId": job.id().as_str(), "deleted": true}));
        assert!(!worker.home.path().join("jobs").join(job.id().as_str()).exists());
        let unknown = format!("Unknown job ID: {}", job.id());
        assert_eq!(worker.refusal("status", id(&job)).await, unknown);
        assert_eq!(worker.refusal("delete", id(&job)).await, unknown);
    }
    assert_eq!(worker.refusal("delete", id(&worker.job("running"))).await, "Cannot delete a running job");
    let failed = worker.failed("failed", "x");
    assert_eq!(worker.refusal("delete", id(&failed)).await, "Cannot delete a failed job. Cancel it first.");
    worker.ask("cancel", id(&failed)).await.unwrap();
    worker.ask("delete", id(&failed)).await.unwrap();
}

#[tokio::test]
async fn an_id_that_is_no_job_of_this_member_is_unknown_whatever_it_looks_like() {
    let (worker, other) = (Worker::start().await, Worker::start().await);
    let foreign = other.completed("elsewhere", "secret");
    fs::create_dir(worker.home.path().join("outside")).unwrap();
    fs::write(worker.home.path().join("outside/meta.json"), "{}").unwrap();
    for text in ["", ".", "..", "../outside", "/etc", "jobs", "a\0b", ".owner", "x/../..", foreign.id().as_str(), "ü"]
    {
        for method in ["status", "result", "cancel", "delete"] {
            let refusal = worker.refusal(method, json!({"jobId": text})).await;
            assert_eq!(refusal, format!("Unknown job ID: {text}"), "{method}");
        }
    }
    assert!(worker.home.path().join("outside/meta.json").exists());
    assert_eq!(other.ask("result", id(&foreign)).await.unwrap()["output"], "secret");
}

#[tokio::test]
async fn a_list_is_newest_first_and_has_two_fields_or_four() {
    let worker = Worker::start().await;
    let (first, second) = (worker.completed("first", "x"), worker.job("second"));
    second.update_summary("half way").unwrap();
    let simple = json!([
        {"jobId": second.id().as_str(), "status": "running"}, {"jobId": first.id().as_str(), "status": "completed"}
    ]);
    assert_eq!(json!(worker.listed(json!({})).await), simple);
    assert_eq!(json!(worker.listed(json!({"detail": "simple", "filter": null})).await), simple);
    assert_eq!(
        json!(worker.listed(json!({"detail": "detailed"})).await),
        json!([
            {"jobId": second.id().as_str(), "status": "running", "description": "second", "summary": "half way"},
            {"jobId": first.id().as_str(), "status": "completed", "description": "first", "summary": null}
        ])
    );
}

#[tokio::test]
async fn a_filter_is_a_glob_over_the_whole_description() {
    let worker = Worker::start().await;
    for description in ["Research: cats/dogs", "research: birds", "Review a.rs", "Review b.rs", "[x]"] {
        worker.completed(description, "x");
    }
    let matches = async |filter: &str| {
        let jobs = worker.listed(json!({"detail": "detailed", "filter": filter})).await;
        jobs.iter().rev().map(|job| job["description"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(matches("Research*").await, ["Research: cats/dogs"]);
    assert_eq!(matches("*birds").await, ["research: birds"]);
    assert_eq!(matches("Review ?.rs").await, ["Review a.rs", "Review b.rs"]);
    assert_eq!(matches("Review [b-z].rs").await, ["Review b.rs"]);
    assert_eq!(matches("{Review a*,*birds}").await, ["research: birds", "Review a.rs"]);
    assert_eq!(matches("**dogs").await, ["Research: cats/dogs"]);
    assert_eq!(matches("Research").await, Vec::<String>::new());
    assert_eq!(matches("").await.len(), 5);
    let refusal = worker.refusal("list", json!({"filter": "[a"})).await;
    assert!(refusal.contains("filter"), "{refusal}");
}

#[tokio::test]
async fn a_job_without_readable_meta_is_left_out_and_breaks_nothing() {
    let worker = Worker::start().await;
    let job = worker.completed("sound", "x");
    let jobs = worker.home.path().join("jobs");
    for (name, meta) in [("broken", "{"), ("empty", ""), ("elsewhere", "[]")] {
        fs::create_dir(jobs.join(name)).unwrap();
        fs::write(jobs.join(name).join("meta.json"), meta).unwrap();
    }
    fs::create_dir(jobs.join("bare")).unwrap();
    let listed = worker.listed(json!({})).await;
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["jobId"], job.id().as_str());
    assert_eq!(worker.refusal("status", json!({"jobId": "broken"})).await, "Unknown job ID: broken");
}

#[tokio::test]
async fn a_batch_is_carried_out_in_its_order() {
    let worker = Worker::start().await;
    let job = worker.job("running");
    let request = |number: u32, method: &str| json!({"jsonrpc": "2.0", "id": number, "method": format!("worker/{method}"), "params": id(&job)});
    let batch = json!([request(1, "delete"), request(2, "cancel"), request(3, "delete"), request(4, "status")]);
    let answers = worker.server.ask(&batch.to_string()).await;
    assert_eq!(answers[0]["error"]["message"], "Cannot delete a running job");
    assert_eq!(answers[1]["result"]["status"], "cancelled");
    assert_eq!(answers[2]["result"]["deleted"], true);
    assert_eq!(answers[3]["error"]["message"], format!("Unknown job ID: {}", job.id()));
}

#[tokio::test]
async fn a_batch_whose_answers_grow_too_large_is_not_carried_out_further() {
    let worker = Worker::with_limits(Limits { result_bytes: 1000, ..Limits::default() }).await;
    let job = worker.completed("large", &"x".repeat(1000));
    let result = json!({"jsonrpc": "2.0", "id": 1, "method": "worker/result", "params": id(&job)});
    let delete = json!({"jsonrpc": "2.0", "id": 2, "method": "worker/delete", "params": id(&job)});
    let answers = worker.server.ask(&json!([result, result, result, result, delete]).to_string()).await;
    assert_eq!(answers[3]["result"]["output"].as_str().unwrap().len(), 1000);
    assert_eq!(answers[4]["error"]["code"], -32000);
    assert!(answers[4]["error"]["message"].as_str().unwrap().contains("exceed 4000 bytes"));
    worker.ask("status", id(&job)).await.unwrap();
}

#[tokio::test]
async fn a_notification_is_carried_out_and_answered_with_nothing() {
    let worker = Worker::start().await;
    let job = worker.job("running");
    let cancel = json!({"jsonrpc": "2.0", "method": "worker/cancel", "params": id(&job)});
    let reply = worker.server.post("/mcp", &cancel.to_string()).await;
    assert_eq!((reply.status, reply.body.as_str()), (202, ""));
    assert_eq!(worker.ask("status", id(&job)).await.unwrap()["status"], "cancelled");
}

#[tokio::test]
async fn many_clients_at_once_each_get_the_answer_to_their_own_request() {
    let worker = Worker::start().await;
    let jobs: Vec<_> = (0..8).map(|i| worker.job(&format!("job {i}"))).collect();
    let clients = jobs.iter().map(|job| {
        let (server, params) = (&worker.server, id(job));
        async move {
            let mut connection = server.connect().await;
            let body = json!({"jsonrpc": "2.0", "id": 1, "method": "worker/status", "params": params}).to_string();
            for _ in 0..20 {
                let answer = connection.post("/mcp", &body).await.json();
                assert_eq!(answer["result"]["jobId"], params["jobId"]);
            }
        }
    });
    futures::future::join_all(clients).await;
}

#[tokio::test]
async fn a_client_that_does_not_take_its_answer_is_let_go() {
    let worker = Worker::with_limits(Limits { connections: 1, client_seconds: 1, ..Limits::default() }).await;
    let job = worker.completed("large", &"x".repeat(8 << 20));
    let result = json!({"jsonrpc": "2.0", "id": 1, "method": "worker/result", "params": id(&job)}).to_string();
    let mut stuck = worker.server.connect().await;
    let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    stuck.send(format!("{head}Content-Length: {}\r\n\r\n{result}", result.len())).await;
    // The only place is free again, though the client still holds its connection.
    assert_eq!(worker.ask("status", id(&job)).await.unwrap()["status"], "completed");
    drop(stuck);
}
