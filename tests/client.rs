//! The client crate, against a real host.

use std::{net::TcpListener, time::Duration};

use guild_client::{DispatchParams, Error, JobStatus, ListParams, MemberKey, Options, WorkerHandle};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::support::host::{Home, Host, free_port};

fn task() -> DispatchParams {
    DispatchParams { description: "d".to_owned(), task: "t".to_owned(), config: None, agent: None }
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
fn what_went_wrong_can_be_told_apart() {
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
fn a_job_is_waited_for_over_a_restart_of_its_host() {
    let home = Home::new();
    let member = home.endless("endless");
    let port = free_port();
    let start = || {
        let mut command = home.guild();
        command.current_dir(&member).args(["serve", "--member", ".", "--port", &port.to_string()]);
        let mut host = Host::start(command, port, "/mcp");
        assert!(host.is_ready(), "{}", host.output());
        host
    };
    let first = start();
    let runtime = Runtime::new().unwrap();
    let worker = to(port, None);
    let job = runtime.block_on(worker.dispatch(&task())).unwrap().value.job_id;
    let waits = runtime.spawn(async move { worker.wait_for(job.as_str()).await });
    first.kill();
    let _second = start();
    let ended = runtime.block_on(waits).unwrap().unwrap();
    assert_eq!(ended.status, JobStatus::Failed);
    assert!(ended.error.unwrap().contains("host stopped"));
}

#[test]
fn a_main_agent_is_told_of_the_workers_and_of_nothing_where_there_are_none() {
    let home = Home::new();
    home.quick("quick");
    home.quick("tools");
    home.edit_manifest("tools", |manifest| manifest["capabilities"] = json!([]));
    home.quick("broken");
    home.edit_manifest("broken", |manifest| manifest["version"] = json!(""));
    let told = home.run(&["prompt", "--members", "members"]);
    let (text, notes) = (String::from_utf8(told.stdout).unwrap(), String::from_utf8(told.stderr).unwrap());
    assert!(told.status.success() && text.contains("(MCP server `quick-dispatch`)"), "{text}{notes}");
    assert!(
        !text.contains("tools-dispatch") && !text.contains("broken-dispatch") && notes.contains("broken"),
        "{text}"
    );

    std::fs::remove_dir_all(home.path("members/quick")).unwrap();
    let told = home.run(&["prompt", "--members", "members"]);
    assert!(told.status.success() && told.stdout.is_empty() && !told.stderr.is_empty());
}
