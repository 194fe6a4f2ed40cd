//! Work that takes long: jobs as tasks, progress, and clients that do not wait for the end.

use std::fs;

use guild_fakes::{Gate, OpenAi, Received, Reply};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::support::{
    host::{Home, Host, wait_for},
    mcp::{Endpoint, OLD, error, home, initialize, jobs, knows_tasks, probe, request, result, waiting},
};

#[test]
fn a_dispatch_that_waits_is_a_task_for_a_client_that_knows_tasks() {
    let home = Home::new();
    probe(&home);
    let host = home.serve_roster(&[]);
    let bridge = Endpoint::new(&host, "/dispatch/probe/mcp");
    let made =
        result(bridge.declaring("tools/call", waiting("summary half\nquestion who?\nsleep"), knows_tasks()).message());
    assert_eq!((&made["resultType"], &made["status"]), (&json!("task"), &json!("working")), "{made}");
    assert!(made["ttlMs"].is_null() && made["pollIntervalMs"].is_u64(), "{made}");
    let id = made["taskId"].as_str().unwrap();
    assert_eq!(jobs(&host, "probe")[0]["jobId"], id);

    let task = |method: &str, id: &str| {
        let params = json!({"taskId": id, "inputResponses": {}});
        bridge.declaring(method, params, knows_tasks())
    };
    let get = |id: &str| result(task("tasks/get", id).message());
    let working = wait_for("the worker to ask", || {
        let found = get(id);
        found["statusMessage"].as_str().is_some_and(|message| message.contains("who?")).then_some(found)
    });
    assert_eq!((&working["status"], &working["resultType"]), (&json!("working"), &json!("complete")), "{working}");
    assert!(working["statusMessage"].as_str().unwrap().starts_with("half\nquestion: "), "{working}");
    assert_eq!(working["_meta"]["guild/status"]["questions"].as_array().unwrap().len(), 1);

    // It waits for nothing, so there is nothing to answer.
    assert_eq!(result(task("tasks/update", id).message())["resultType"], "complete");
    assert_eq!(get(id)["status"], "working");
    assert_eq!(result(task("tasks/cancel", id).message())["resultType"], "complete");
    assert_eq!(get(id)["status"], "cancelled");
    assert_eq!(host.at("probe").status(id).unwrap()["status"], "cancelled");
    assert_eq!(result(task("tasks/cancel", id).message())["resultType"], "complete");

    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        assert_eq!(error(task(method, "019b0000-0000-7000-8000-000000000000")).1, -32602);
        // Who does not declare the extension, in this very request, has no tasks.
        let (status, code, _) = error(bridge.modern(method, json!({"taskId": id, "inputResponses": {}})));
        assert_eq!((status, code), (400, -32021), "{method}");
    }
}

#[test]
fn a_task_ends_as_the_call_would_have_that_waited() {
    let home = Home::new();
    home.quick("quick");
    home.failing("failing");
    let host = home.serve_roster(&[]);
    let task = |member: &str| {
        let bridge = Endpoint::new(&host, &format!("/dispatch/{member}/mcp"));
        let made = result(bridge.declaring("tools/call", waiting("t"), knows_tasks()).message());
        let id = made["taskId"].as_str().unwrap().to_owned();
        host.at(member).ended(&id);
        result(bridge.declaring("tasks/get", json!({"taskId": id}), knows_tasks()).message())
    };
    let done = task("quick");
    assert_eq!(done["status"], "completed");
    assert_eq!(done["result"]["content"][0]["text"], "date");
    // What a tool answers is the task's result, also where it says that it did not work.
    let failed = task("failing");
    assert_eq!((&failed["status"], &failed["result"]["isError"]), (&json!("completed"), &json!(true)), "{failed}");
    assert!(failed["statusMessage"].as_str().unwrap().contains("the job failed: date"), "{failed}");
}

#[test]
fn what_is_read_is_written_down_where_the_operator_wants_that_whichever_version_reads() {
    let home = home("audit_log = \"audit.jsonl\"\naudit_log_reads = true\n");
    home.quick("quick");
    let host = home.serve_roster(&[]);
    let bridge = Endpoint::new(&host, "/dispatch/quick/mcp");
    let (session, _) = bridge.open(OLD);
    session.ask("resources/list", json!({}));
    bridge.modern_result("resources/list", json!({}));
    let made = result(bridge.declaring("tools/call", waiting("t"), knows_tasks()).message());
    let id = made["taskId"].as_str().unwrap();
    let done = wait_for("the task to be completed", || {
        let task = result(bridge.declaring("tasks/get", json!({"taskId": id}), knows_tasks()).message());
        (task["status"] == "completed").then_some(task)
    });
    assert_eq!(done["result"]["isError"], false);
    let log = fs::read_to_string(home.path("audit.jsonl")).unwrap();
    let about = |method: &str, job: Option<&str>| {
        let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines
            .filter(|line| line["method"] == method && line["member"] == "quick" && line["job"].as_str() == job)
            .count()
    };
    assert_eq!((about("resources/list", None), about("worker/dispatch", Some(id))), (2, 1), "{log}");
    assert!(about("worker/status", Some(id)) > 0 && about("worker/result", Some(id)) == 1, "{log}");
}

#[test]
fn a_task_outlives_its_connection_and_its_host() {
    let home = Home::new();
    home.quick("quick");
    let host = home.serve_roster(&[]);
    let bridge = Endpoint::new(&host, "/dispatch/quick/mcp");
    let made = result(bridge.declaring("tools/call", waiting("t"), knows_tasks()).message());
    let id = made["taskId"].as_str().unwrap();
    host.at("quick").ended(id);
    host.kill();
    let host = home.serve_roster(&[]);
    let roster = Endpoint::new(&host, "/mcp");
    let done = result(roster.declaring("tasks/get", json!({"taskId": id}), knows_tasks()).message());
    assert_eq!(done["result"]["content"][0]["text"], "date");
}

#[test]
fn a_task_that_works_when_its_host_is_killed_is_resumed_as_the_same_or_has_failed() {
    let gates = [Gate::closed(), Gate::closed()];
    let script_gates = gates.clone();
    let runtime = Runtime::new().unwrap();
    let provider = runtime.block_on(OpenAi::start(move |request: &Received| {
        let reply = Reply::call("submit_result", json!({"output": "done"}));
        match request.number {
            0 => reply.behind(&script_gates[0]),
            1 => reply.behind(&script_gates[1]),
            _ => Reply::text("Done."),
        }
    }));
    let home = home(&format!(
        "[api]\nprovider = \"openai\"\nbase_url = \"{}/v1/\"\nmodel = \"m\"\n[[prices]]\nmodel = \"m\"\n\
         input = 1.0\noutput = 1.0\n[member.researcher]\nagent = \"api\"\n",
        provider.url()
    ));
    home.researcher("researcher");
    probe(&home);
    let task = |host: &Host, method: &str, params: Value| {
        result(Endpoint::new(host, "/mcp").declaring(method, params, knows_tasks()).message())
    };
    let get = |host: &Host, id: &Value| task(host, "tasks/get", json!({"taskId": id}));
    let host = home.serve_roster(&[]);
    let made = ["researcher", "probe"].map(|member| {
        let mut call = waiting("sleep");
        call["arguments"]["worker"] = json!(member);
        task(&host, "tools/call", call)["taskId"].clone()
    });
    let [resumed, interrupted] = &made;
    runtime.block_on(provider.received(1));
    for id in &made {
        assert_eq!(get(&host, id)["status"], "working");
    }
    host.kill();

    let host = home.serve_roster(&[]);
    runtime.block_on(provider.received(2));
    let working = get(&host, resumed);
    assert_eq!((&working["taskId"], &working["status"]), (resumed, &json!("working")), "{working}");
    gates[1].open();
    host.at("researcher").ended(resumed.as_str().unwrap());
    let done = get(&host, resumed);
    assert_eq!((&done["taskId"], &done["status"]), (resumed, &json!("completed")), "{done}");
    assert_eq!(done["result"]["content"][0]["text"], "done", "{done}");

    let failed = get(&host, interrupted);
    assert_eq!((&failed["status"], &failed["result"]["isError"]), (&json!("completed"), &json!(true)), "{failed}");
    let why = failed["result"]["content"][0]["text"].as_str().unwrap();
    assert!(why.contains("the host stopped while the job was running"), "{why}");
}

#[test]
fn a_client_without_tasks_waits_and_gets_the_progress() {
    let home = Home::new();
    probe(&home);
    let host = home.serve_roster(&[]);
    let bridge = Endpoint::new(&host, "/dispatch/probe/mcp");
    // A session has no tasks, whatever its client says of itself.
    let opened = bridge.post(&initialize(OLD, knows_tasks()));
    let session = bridge.with("Mcp-Session-Id", opened.header("mcp-session-id").unwrap());
    let session = session.with("MCP-Protocol-Version", OLD);
    assert_eq!(session.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).status, 202);
    let wait = |description: &str| {
        let mut wait = waiting("summary half\nsleep");
        wait["arguments"]["description"] = description.into();
        wait["_meta"] = json!({"progressToken": "p"});
        wait
    };
    let in_session = session.post(&request("tools/call", wait("in a session")));
    let stateless = bridge.modern("tools/call", wait("without"));
    for (description, mut call) in [("in a session", in_session), ("without", stateless)] {
        assert!(call.is_stream());
        let progress = call.next().unwrap();
        assert_eq!(progress["method"], "notifications/progress", "{progress}");
        let params = &progress["params"];
        assert_eq!((&params["progressToken"], &params["message"]), (&json!("p"), &json!("half")), "{progress}");
        let found = host.at("probe").call("worker/list", json!({"filter": description})).unwrap();
        let id = found["jobs"][0]["jobId"].as_str().unwrap();
        host.at("probe").cancel(id).unwrap();
        let ended = result(call.next().unwrap());
        assert!(ended["content"][0]["text"].as_str().unwrap().contains(id), "{ended}");
        assert_eq!(call.next(), None);
    }
    let (status, code, _) = error(session.post(&request("tasks/get", json!({"taskId": "x"}))));
    assert_eq!((status, code), (200, -32601));
}

#[test]
fn a_client_that_hangs_up_leaves_its_job_running() {
    let home = Home::new();
    probe(&home);
    let host = home.serve_roster(&[]);
    let bridge = Endpoint::new(&host, "/dispatch/probe/mcp");
    let mut wait = waiting("summary half\nsleep");
    wait["_meta"] = json!({"progressToken": 1});
    let mut call = bridge.modern("tools/call", wait.clone());
    assert_eq!(call.next().unwrap()["params"]["message"], "half");
    call.hang_up();
    let (session, _) = bridge.open(OLD);
    let mut call = session.post(&request("tools/call", wait));
    assert_eq!(call.next().unwrap()["params"]["message"], "half");
    // Giving a call up is not cancelling the job.
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
    assert_eq!(session.post(&cancel).status, 202);
    assert_eq!(call.next(), None);
    let all = jobs(&host, "probe");
    assert_eq!(all.len(), 2);
    assert!(all.iter().all(|job| job["status"] == "running"), "{all:?}");
    // The session is there for more.
    assert_eq!(session.ask("ping", json!({})), json!({}));
}
