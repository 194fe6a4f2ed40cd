//! The client crate, against a real host.

use std::{
    convert::Infallible,
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{
    body::Body,
    http::{HeaderMap, StatusCode},
};
use guild_client::{DispatchParams, Error, Events, Filter, JobStatus, ListParams, MemberKey, Options, WorkerHandle};
use serde_json::json;
use tokio::{
    io::copy_bidirectional,
    net::TcpStream,
    runtime::Runtime,
    sync::{mpsc, watch},
};

use crate::support::host::{Home, free_port};

fn task() -> DispatchParams {
    DispatchParams { description: "d".to_owned(), task: "t".to_owned(), ..DispatchParams::default() }
}

fn to(port: u16, member: Option<&str>) -> WorkerHandle {
    let member: Option<MemberKey> = member.map(|key| key.parse().unwrap());
    WorkerHandle::new(&format!("http://127.0.0.1:{port}"), member.as_ref()).unwrap()
}

#[test]
fn a_job_is_dispatched_waited_for_and_removed() {
    let home = Home::new();
    home.quick("quick");
    home.failing("failing");
    home.endless("endless");
    let host = home.serve_roster(&[]);
    Runtime::new().unwrap().block_on(async {
        let quick = to(host.port, Some("quick"));
        let job = quick.dispatch(&task()).await.unwrap().value.job_id;
        assert_eq!(quick.wait_for(job.as_str()).await.unwrap().status, JobStatus::Completed);
        assert_eq!(quick.result(job.as_str()).await.unwrap().value.output, "date");
        assert_eq!(quick.list(&ListParams::default()).await.unwrap().value.jobs[0].job_id, job);
        assert!(quick.delete(job.as_str()).await.unwrap().value.deleted);

        let failing = to(host.port, Some("failing"));
        let job = failing.dispatch(&task()).await.unwrap().value.job_id;
        let failed = failing.wait_for(job.as_str()).await.unwrap();
        assert_eq!((failed.status, failed.error.as_deref()), (JobStatus::Failed, Some("date")));

        let endless = to(host.port, Some("endless"));
        let job = endless.dispatch(&task()).await.unwrap().value.job_id;
        let (waited, cancelled) = tokio::join!(endless.wait_for(job.as_str()), endless.cancel(job.as_str()));
        assert_eq!(cancelled.unwrap().value.status, JobStatus::Cancelled);
        assert_eq!(waited.unwrap().status, JobStatus::Cancelled);
    });
}

#[test]
fn different_failures_are_different_errors() {
    let home = Home::new();
    home.quick("quick");
    let host = home.serve_roster(&[]);
    Runtime::new().unwrap().block_on(async {
        let unknown = to(host.port, Some("quick")).status("nothing").await.unwrap_err();
        assert!(matches!(&unknown, Error::Refused { code: -32602, message } if message == "Unknown job ID: nothing"));
        assert!(!unknown.may_pass());
        let nobody = to(host.port, Some("nobody")).status("j").await.unwrap_err();
        assert!(matches!(&nobody, Error::Http { status, .. } if status.as_u16() == 404), "{nobody}");
        let unreachable = to(free_port(), None).status("j").await.unwrap_err();
        assert!(matches!(unreachable, Error::Unreachable { .. }) && unreachable.may_pass(), "{unreachable}");
        let address = WorkerHandle::new("127.0.0.1", None).unwrap_err();
        assert!(matches!(address, Error::Address { .. }), "{address}");

        // Somebody else's server, and one that accepts and says nothing.
        let page = axum::Router::new().fallback(|| async { "<html>" });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move { axum::serve(listener, page).await });
        assert!(matches!(to(port, None).status("j").await.unwrap_err(), Error::Protocol { .. }));
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", silent.local_addr().unwrap());
        let options = Options { timeout: Duration::from_millis(300), ..Options::default() };
        let timeout = WorkerHandle::with_options(&url, None, &options).unwrap().status("j").await.unwrap_err();
        assert!(matches!(timeout, Error::Timeout { .. }) && timeout.may_pass(), "{timeout}");
    });
}

#[test]
fn a_tool_may_take_longer_than_any_other_call() {
    // It answers a call of a tool once it is released, and nothing else.
    let (release, released) = watch::channel(false);
    let host = axum::Router::new().fallback(move |body: String| {
        let mut released = released.clone();
        async move {
            if !body.contains("tools/call") {
                std::future::pending::<()>().await;
            }
            released.wait_for(|released| *released).await.unwrap();
            json!({"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "done"}]}}).to_string()
        }
    });
    Runtime::new().unwrap().block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, host).await });
        let options = Options { timeout: Duration::from_millis(200), ..Options::default() };
        let worker = WorkerHandle::with_options(&url, None, &options).unwrap();
        let input = serde_json::Map::new();
        let later = async {
            // Begun after the call of the tool, and given up.
            let timeout = worker.status("j").await.unwrap_err();
            assert!(matches!(timeout, Error::Timeout { .. }), "{timeout}");
            release.send_replace(true);
        };
        let (called, ()) = tokio::join!(worker.call_tool("slow", &input), later);
        assert_eq!(called.unwrap().value.content[0].text.as_deref(), Some("done"));
    });
}

/// Leads to the host whose port `at` has. While it has none, three connections are closed and reported to `refused`; the
/// next one waits for the next host.
async fn front(listener: tokio::net::TcpListener, at: watch::Receiver<Option<u16>>, refused: mpsc::Sender<()>) {
    let mut left = 3;
    loop {
        let (mut client, _) = listener.accept().await.unwrap();
        if at.borrow().is_none() && left > 0 {
            left -= 1;
            refused.send(()).await.unwrap();
            continue;
        }
        let mut at = at.clone();
        tokio::spawn(async move {
            let port = at.wait_for(Option::is_some).await.unwrap().unwrap();
            if let Ok(mut host) = TcpStream::connect(("127.0.0.1", port)).await {
                let _ = copy_bidirectional(&mut client, &mut host).await;
            }
        });
    }
}

#[test]
fn a_job_is_waited_for_over_a_restart_of_its_host() {
    let home = Home::new();
    let member = home.endless("endless");
    let first = home.serve(&member, &[]);
    let runtime = Runtime::new().unwrap();
    // A port of this process: no other test takes it while there is no host.
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let worker = to(listener.local_addr().unwrap().port(), None);
    let (at, is_at) = watch::channel(Some(first.port));
    let (refused, mut is_refused) = mpsc::channel(3);
    runtime.spawn(front(listener, is_at, refused));

    let job = runtime.block_on(worker.dispatch(&task())).unwrap().value.job_id;
    let waits = runtime.spawn(async move { worker.wait_for(job.as_str()).await });
    at.send_replace(None);
    first.kill();
    for _ in 0..3 {
        runtime.block_on(is_refused.recv()).unwrap();
    }
    let second = home.serve(&member, &[]);
    at.send_replace(Some(second.port));
    let ended = runtime.block_on(waits).unwrap().unwrap();
    assert_eq!(ended.status, JobStatus::Failed);
    assert!(ended.error.unwrap().contains("host stopped"));
}

#[test]
fn a_job_is_looked_at_less_and_less_often() {
    let looks = Arc::new(AtomicUsize::new(0));
    let counted = looks.clone();
    // A host whose job ends before the sixth poll.
    let host = axum::Router::new().fallback(move || {
        let look = counted.fetch_add(1, Ordering::Relaxed) + 1;
        let status = json!({
            "jobId": "j", "status": if look < 6 { "running" } else { "completed" }, "description": "d", "summary": null,
            "questions": null, "decisions": null, "error": null, "startedAt": "2026-01-01T00:00:00Z", "completedAt": null
        });
        async move { json!({"jsonrpc": "2.0", "id": look, "result": status}).to_string() }
    });
    let started = Instant::now();
    Runtime::new().unwrap().block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move { axum::serve(listener, host).await });
        assert_eq!(to(port, None).wait_for("j").await.unwrap().status, JobStatus::Completed);
    });
    assert_eq!(looks.load(Ordering::Relaxed), 6);
    // 50 ms, and each pause longer by half.
    assert!(started.elapsed() >= Duration::from_millis(650), "{:?}", started.elapsed());
}

#[test]
fn the_size_of_each_event_is_bounded_however_lines_end_and_however_they_arrive() {
    for end in ["\n", "\r\n"] {
        // 2 MiB of events, with a part of each separator in the next piece. A second connection gets none.
        let host = axum::Router::new().fallback(move |headers: HeaderMap| async move {
            let event = move |id: u32| {
                let (filler, data) = ("x".repeat(65536), r#"{"time":"2026-01-01T00:00:00Z","kind":"member-added"}"#);
                format!("{end}: {filler}{end}id: {id}{end}event: member-added{end}data: {data}{end}")
            };
            let pieces = (0..32).map(move |id| Ok::<_, Infallible>(event(id)));
            if headers.contains_key("last-event-id") {
                Err(StatusCode::GONE)
            } else {
                Ok(Body::from_stream(futures::stream::iter(pieces)))
            }
        });
        Runtime::new().unwrap().block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            tokio::spawn(async move { axum::serve(listener, host).await });
            let mut events = Events::new(&url, &Filter::default(), &Options::default()).unwrap();
            for id in 0..31 {
                assert_eq!(events.next().await.unwrap().id, id.to_string(), "{end:?}");
            }
        });
    }
}

#[test]
fn guild_prompt_names_the_workers_and_prints_nothing_where_there_are_none() {
    let home = Home::new();
    home.quick("quick");
    home.quick("tools");
    home.edit_manifest("tools", |manifest| manifest["capabilities"] = json!([]));
    home.quick("broken");
    home.edit_manifest("broken", |manifest| manifest["version"] = json!(""));
    let output = home.run(&["prompt", "--members", "members"]);
    let (text, notes) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success() && text.contains("(MCP server `quick-dispatch`)"), "{text}{notes}");
    assert!(
        !text.contains("tools-dispatch") && !text.contains("broken-dispatch") && notes.contains("broken"),
        "{text}"
    );

    std::fs::remove_dir_all(home.path("members/quick")).unwrap();
    let output = home.run(&["prompt", "--members", "members"]);
    assert!(output.status.success() && output.stdout.is_empty() && !output.stderr.is_empty());
}
