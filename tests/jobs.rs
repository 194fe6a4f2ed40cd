//! A job's life as a caller sees it, on a running host: dispatch, status, result, cancel, delete, list.

use std::fs;

use serde_json::{Value, json};

use crate::support::{
    guest::Guest,
    host::{Home, wait_for},
};

fn files(dir: &std::path::Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

/// The worker-dispatch specification's integration test: directory, status transitions, result.
#[test]
fn a_dispatched_job_has_its_files_runs_and_returns_its_result() {
    let home = Home::new();
    let sources = home
        .write("docs/moons.md", "# Moons\n\nJupiter has ninety-five known moons. Io is the most volcanic of them.\n");
    let member = home.researcher("researcher");
    let host = home.serve(&member, &["--sources", sources.parent().unwrap().to_str().unwrap()]);
    let client = host.client();

    let params =
        json!({"description": "Moons", "task": "How many known moons has Jupiter?", "config": {"maxTurns": 20}});
    let id = client.dispatch(params).unwrap();
    let ended = client.ended(&id);
    assert_eq!(ended["status"], "completed", "{ended}");
    assert!(
        ended["startedAt"].as_str().unwrap().ends_with('Z') && ended["completedAt"].as_str().unwrap().ends_with('Z')
    );
    assert!(ended["summary"].as_str().is_some_and(|s| !s.is_empty()));

    let result = client.result(&id).unwrap();
    let output = result["output"].as_str().unwrap();
    assert!(output.contains("Jupiter has ninety-five known moons"), "{output}");
    assert!(output.contains("docs/moons.md:"), "{output}");
    assert_eq!(result["artifacts"], Value::Null);

    let job = member.join("jobs").join(&id);
    assert_eq!(fs::read_to_string(job.join("task.md")).unwrap(), "How many known moons has Jupiter?");
    assert_eq!(fs::read_to_string(job.join("result.md")).unwrap(), output);
    let config: Value = serde_json::from_slice(&fs::read(job.join("config.json")).unwrap()).unwrap();
    assert_eq!(config, json!({"maxTurns": 20}));
    let meta: Value = serde_json::from_slice(&fs::read(job.join("meta.json")).unwrap()).unwrap();
    assert_eq!(
        (&meta["jobId"], &meta["status"], &meta["description"]),
        (&json!(id), &json!("completed"), &json!("Moons"))
    );
    assert!(files(&job).iter().all(|name| !name.starts_with('.')), "{:?}", files(&job));
}

#[test]
fn a_job_without_config_has_an_empty_one() {
    let home = Home::new();
    let member = home.quick("quick");
    let host = home.serve(&member, &[]);
    let id = host.client().start("d");
    assert_eq!(fs::read_to_string(member.join("jobs").join(&id).join("config.json")).unwrap().trim(), "{}");
}

#[test]
fn a_running_job_shows_the_nine_fields_and_has_no_result() {
    let home = Home::new();
    let member = home.endless("endless");
    let host = home.serve(&member, &[]);
    let client = host.client();
    let id = client.start("endless work");
    let status = client.status(&id).unwrap();
    // The job's usage has a separate key, which is not one of the nine.
    let mut fields: Vec<&String> = status.as_object().unwrap().keys().filter(|key| *key != "usage").collect();
    fields.sort_unstable();
    assert_eq!(
        fields,
        ["completedAt", "decisions", "description", "error", "jobId", "questions", "startedAt", "status", "summary"]
    );
    assert_eq!(
        (&status["status"], &status["summary"], &status["error"]),
        (&json!("running"), &Value::Null, &Value::Null)
    );
    let error = client.result(&id).unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (-32602, "Job is still running"));
    let error = client.delete(&id).unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (-32602, "Cannot delete a running job"));
}

#[test]
fn cancel_ends_a_running_job_for_good() {
    let home = Home::new();
    let member = home.endless("endless");
    let host = home.serve(&member, &[]);
    let client = host.client();
    let id = client.start("d");
    assert_eq!(client.cancel(&id).unwrap(), json!({"jobId": id, "status": "cancelled"}));
    let stamp = |name: &str| fs::metadata(member.join("jobs").join(&id).join(name)).unwrap().modified().unwrap();
    let meta = stamp("meta.json");
    // What the worker does when it is interrupted changes nothing (the original wrote `failed` over it).
    assert_eq!(client.status(&id).unwrap()["status"], "cancelled");
    assert_eq!(client.cancel(&id).unwrap()["status"], "cancelled");
    let error = client.result(&id).unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (-32602, "Job was cancelled"));
    // Another whole job's life later it still stands.
    let next = client.start("next");
    client.cancel(&next).unwrap();
    assert_eq!((client.status(&id).unwrap()["status"].as_str(), stamp("meta.json")), (Some("cancelled"), meta));
    assert_eq!(client.delete(&id).unwrap(), json!({"jobId": id, "deleted": true}));
    assert!(!member.join("jobs").join(&id).exists());
    assert_eq!(client.status(&id).unwrap_err().message, format!("Unknown job ID: {id}"));
}

#[test]
fn a_failed_job_says_why_and_is_deleted_after_a_cancel() {
    let home = Home::new();
    let host = home.serve(&home.failing("failing"), &[]);
    let client = host.client();
    let id = client.start("d");
    let status = client.ended(&id);
    assert_eq!((&status["status"], &status["error"]), (&json!("failed"), &json!("date")));
    assert_eq!(client.result(&id).unwrap_err().message, "Job failed: date");
    assert_eq!(client.delete(&id).unwrap_err().message, "Cannot delete a failed job. Cancel it first.");
    assert_eq!(client.cancel(&id).unwrap()["status"], "cancelled");
    let cancelled = client.status(&id).unwrap();
    assert_eq!((&cancelled["error"], &cancelled["completedAt"]), (&json!("date"), &status["completedAt"]));
    client.delete(&id).unwrap();
}

#[test]
fn a_completed_job_stays_completed_and_can_be_deleted() {
    let home = Home::new();
    let host = home.serve(&home.quick("quick"), &[]);
    let client = host.client();
    let id = client.start("d");
    assert_eq!(client.ended(&id)["status"], "completed");
    assert_eq!(client.cancel(&id).unwrap(), json!({"jobId": id, "status": "completed"}));
    assert_eq!(client.result(&id).unwrap(), json!({"jobId": id, "output": "date", "artifacts": null}));
    client.delete(&id).unwrap();
    assert_eq!(client.call("worker/list", json!({})).unwrap(), json!({"jobs": []}));
}

#[test]
fn a_worker_that_crashes_fails_its_own_job_only() {
    let home = Home::new();
    home.member("crashing", "autonomous-worker", &crate::support::guest::autonomous("unreachable"));
    home.endless("endless");
    let host = home.serve_roster(&[]);
    let healthy = host.at("endless").start("healthy");
    let id = host.at("crashing").start("d");
    let status = host.at("crashing").ended(&id);
    assert_eq!(status["status"], "failed");
    let error = status["error"].as_str().unwrap();
    assert_eq!(error, "the component failed in `run`: wasm `unreachable` instruction executed");
    assert_eq!(host.at("endless").status(&healthy).unwrap()["status"], "running");
}

#[test]
fn an_id_that_is_not_this_members_is_unknown_whatever_it_looks_like() {
    let home = Home::new();
    let outside = home.write("members/quick/outside/meta.json", "{}");
    home.quick("quick");
    home.quick("other");
    let host = home.serve_roster(&[]);
    let (client, other) = (host.at("quick"), host.at("other"));
    let id = client.start("d");
    client.ended(&id);
    for id in
        ["", ".", "..", "../outside", "../../other", "/etc", "a/b", "\0", id.to_uppercase().as_str(), &"x".repeat(5000)]
    {
        for method in ["status", "result", "cancel", "delete"] {
            let error = other.call(&format!("worker/{method}"), json!({"jobId": id})).unwrap_err();
            assert_eq!((error.code, error.message), (-32602, format!("Unknown job ID: {id}")), "{method}");
        }
    }
    assert!(other.delete(&id).is_err() && outside.exists());
    client.delete(&id).unwrap();
}

/// The specification's filter test.
#[test]
fn a_list_is_filtered_by_a_glob_over_the_whole_description() {
    let home = Home::new();
    let host = home.serve(&home.quick("quick"), &[]);
    let client = host.client();
    let ids: Vec<String> = ["survey of moons", "survey/of/stars", "Report"].iter().map(|d| client.start(d)).collect();
    ids.iter().for_each(|id| drop(client.ended(id)));
    let listed = |filter: &str| -> Vec<String> {
        let list = client.call("worker/list", json!({"filter": filter, "detail": "detailed"})).unwrap();
        list["jobs"].as_array().unwrap().iter().map(|j| j["description"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(listed("survey*"), ["survey/of/stars", "survey of moons"], "newest first, and * crosses /");
    assert_eq!(listed("survey"), Vec::<String>::new());
    assert_eq!(listed("report"), Vec::<String>::new(), "case counts");
    assert_eq!(listed("[Rr]eport"), ["Report"]);
    assert_eq!(listed("{Report,*moons}"), ["Report", "survey of moons"]);
    assert_eq!(listed("").len(), 3);
    let simple = client.call("worker/list", json!({})).unwrap();
    assert_eq!(simple["jobs"][0], json!({"jobId": ids[2], "status": "completed"}));
    let error = client.call("worker/list", json!({"filter": "[a"})).unwrap_err();
    assert_eq!(error.code, -32602);
}

#[test]
fn a_dispatch_that_is_not_accepted_leaves_no_job() {
    let home = Home::new();
    let member = home.researcher("researcher");
    let docs = home.write("docs/a.md", "# A\n\nText.\n");
    let host = home.serve(&member, &["--sources", docs.parent().unwrap().to_str().unwrap()]);
    let client = host.client();
    let refusals = [
        (json!({"task": "t"}), "description"),
        (json!({"description": "", "task": "t"}), "description"),
        (json!({"description": "d"}), "task"),
        (json!({"description": "d", "task": "  "}), "task"),
        (json!({"description": "d", "task": "t", "config": [1]}), "config"),
        (json!({"description": "d", "task": "t", "config": {"maxTurn": 3}}), "maxTurn"),
        (json!({"description": "d", "task": "t", "config": {"maxTurns": "many"}}), "maxTurns"),
        (json!({"description": "d", "task": "t", "config": {"maxBudgetUsd": -1}}), "maxBudgetUsd"),
        (json!({"description": "x".repeat(1025), "task": "t"}), "the fixed limit description_bytes"),
        (json!({"description": "d", "task": "x".repeat((1 << 20) + 1)}), "limits.task_bytes"),
    ];
    for (params, named) in refusals {
        let error = client.dispatch(params).unwrap_err();
        assert!(error.code == -32602 && error.message.contains(named), "{error:?} does not name {named}");
    }
    assert_eq!(files(&member.join("jobs")), Vec::<String>::new());
}

#[test]
fn the_plugin_itself_refuses_what_the_schema_lets_through() {
    let home = Home::new();
    let member = home.researcher("researcher");
    home.edit_manifest("researcher", |manifest| {
        manifest["component"].as_object_mut().unwrap().remove("configSchema");
    });
    let docs = home.write("docs/a.md", "# A\n\nText.\n");
    let host = home.serve(&member, &["--sources", docs.parent().unwrap().to_str().unwrap()]);
    for (config, named) in
        [(json!({"maxTurn": 3}), "maxTurn"), (json!({"maxTurns": 0}), "maxTurns"), (json!({"focus": 7}), "focus")]
    {
        let error = host.client().dispatch(json!({"description": "d", "task": "t", "config": config})).unwrap_err();
        assert!(error.code == -32602 && error.message.contains(named), "{error:?} does not name {named}");
    }
}

#[test]
fn with_nothing_to_read_a_dispatch_is_refused_naming_option_and_setting() {
    let home = Home::new();
    let host = home.serve(&home.researcher("researcher"), &[]);
    let error = host.client().dispatch(json!({"description": "d", "task": "t"})).unwrap_err();
    assert_eq!(error.code, -32602);
    assert!(error.message.contains("--sources") && error.message.contains("[[roots]]"), "{}", error.message);
}

#[test]
fn a_session_out_of_turns_is_failed_with_that_reason() {
    let home = Home::new();
    let docs = home.write("docs/a.md", "# Moons\n\nJupiter has many moons.\n");
    let host = home.serve(&home.researcher("researcher"), &["--sources", docs.parent().unwrap().to_str().unwrap()]);
    let client = host.client();
    let params = json!({"description": "d", "task": "Which moons has Jupiter?", "config": {"maxTurns": 1}});
    let status = client.ended(&client.dispatch(params).unwrap());
    assert_eq!(status["status"], "failed");
    assert!(status["error"].as_str().unwrap().contains("limit of 1 turns"), "{status}");
}

#[test]
fn a_host_that_stores_as_much_of_running_jobs_as_it_may_answers_busy() {
    let home = Home::new();
    let config = home.write("guild.toml", "[limits]\nrunning_bytes = 1048576\n");
    let endless = Guest::default().pages(32).run("(loop (br 0)) (i32.const 0)").build();
    home.member("endless", "autonomous-worker", &endless);
    home.quick("quick");
    let host = home.serve_roster(&["--config", config.to_str().unwrap()]);
    let client = host.at("endless");
    let task = |bytes: usize, config| json!({"description": "d", "task": "x".repeat(bytes), "config": config});
    let first = client.dispatch(task(512 * 1024, json!({}))).unwrap();
    // Of seven eighths of it there are 384 KiB left, but for what else there is of a job.
    let busy = client.dispatch(task(384 * 1024, json!({}))).unwrap_err();
    assert!(busy.code == -32000 && busy.message.contains("limits.running_bytes = 1048576"), "{busy:?}");
    // It counts what a config is, and not how it is spelled.
    let numbers: Vec<u32> = vec![0; 8 * 1024];
    let busy = client.dispatch(task(1, json!({"numbers": numbers}))).unwrap_err();
    assert!(busy.code == -32000 && busy.message.contains("limits.running_bytes"), "{busy:?}");
    let id = host.at("quick").start("another member has room");
    assert_eq!(host.at("quick").ended(&id)["status"], "completed");
    client.dispatch(task(300 * 1024, json!({}))).unwrap();
    client.cancel(&first).unwrap();
    client.dispatch(task(384 * 1024, json!({}))).unwrap();
}

#[test]
fn a_dispatch_of_exactly_the_limits_is_accepted_and_one_byte_more_makes_no_job() {
    let home = Home::new();
    let limits = home.write("guild.toml", "[limits]\ndescription_bytes = 5\ntask_bytes = 6\nconfig_bytes = 20\n");
    let host = home.serve(&home.quick("quick"), &["--config", limits.to_str().unwrap()]);
    let client = host.client();
    let config = |bytes: usize| json!({"key": "x".repeat(bytes - r#"{"key":""}"#.len())});
    let dispatch = |description: &str, task: &str, config: Value| {
        client.dispatch(json!({"description": description, "task": task, "config": config}))
    };
    let refused = |description: &str, task: &str, config: Value| {
        let error = dispatch(description, task, config).unwrap_err();
        assert_eq!(error.code, -32602, "{error:?}");
        error.message
    };
    assert_eq!(refused("", "t", json!({})), "Invalid params: `description` must not be empty");
    assert_eq!(refused("d", " \n", json!({})), "Invalid params: `task` must not be empty");
    let over = "`description` has 6 bytes, more than the fixed limit description_bytes = 5";
    assert_eq!(refused("123456", "t", json!({})), over);
    assert_eq!(refused("d", "1234567", json!({})), "`task` has 7 bytes, more than limits.task_bytes = 6");
    assert_eq!(refused("d", "t", config(21)), "`config` has 21 bytes, more than the fixed limit config_bytes = 20");
    assert_eq!(client.call("worker/list", json!({})).unwrap()["jobs"], json!([]));

    let id = dispatch("12345", "123456", config(20)).unwrap();
    client.ended(&id);
    assert_eq!(client.status(&id).unwrap()["description"], "12345");
    let file = |name: &str| fs::read_to_string(home.path(&format!("members/quick/jobs/{id}/{name}"))).unwrap();
    assert_eq!(file("task.md"), "123456");
    assert_eq!(serde_json::from_str::<Value>(&file("config.json")).unwrap(), config(20));
}

#[test]
fn a_host_at_its_limit_of_running_jobs_answers_busy_and_loses_nothing() {
    let home = Home::new();
    let config = home.write("guild.toml", "[limits]\nrunning_jobs = 2\n");
    let host = home.serve(&home.endless("endless"), &["--config", config.to_str().unwrap()]);
    let client = host.client();
    let (one, two) = (client.start("one"), client.start("two"));
    let busy = client.dispatch(json!({"description": "three", "task": "t"})).unwrap_err();
    assert!(busy.code == -32000 && busy.message.contains("limits.running_jobs = 2"), "{busy:?}");
    client.cancel(&one).unwrap();
    let three = wait_for("a place", || client.dispatch(json!({"description": "three", "task": "t"})).ok());
    assert_eq!(client.status(&two).unwrap()["status"], "running");
    assert_eq!(client.status(&three).unwrap()["status"], "running");
}

/// A caller that gives up while its dispatch is being stored must not leave a job that is never run.
#[test]
fn a_caller_that_goes_away_leaves_no_job_stuck() {
    use std::{io::Write, net::TcpStream};
    let home = Home::new();
    let host = home.serve(&home.quick("quick"), &[]);
    let client = host.client();
    client.ended(&client.start("warm"));
    for n in 0..60 {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "worker/dispatch",
                          "params": {"description": format!("gone {n}"), "task": "t"}})
        .to_string();
        let mut stream = TcpStream::connect(("127.0.0.1", host.port)).unwrap();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        if n % 2 == 0 {
            // Somewhere in between: the next request is answered first.
            client.call("ping", json!({})).unwrap();
        }
        drop(stream);
    }
    wait_for("every job that there is to end", || {
        let list = client.call("worker/list", json!({})).unwrap();
        list["jobs"].as_array().unwrap().iter().all(|job| job["status"] == "completed").then_some(())
    });
}

/// A job that waits for its place has not begun: its deadline has not either.
#[test]
fn jobs_over_the_limit_of_live_runs_are_queued_outside_of_their_deadline() {
    let home = Home::new();
    let config = home.write("guild.toml", "[limits]\nlive_runs = 1\nrun_seconds = 1\n");
    let host = home.serve(&home.endless("endless"), &["--config", config.to_str().unwrap()]);
    let client = host.client();
    let ids: Vec<String> = (0..3).map(|n| client.start(&format!("job {n}"))).collect();
    for id in ids {
        // Each has its whole second, one after the other.
        assert_eq!(client.ended(&id)["error"], "`run` did not end within its deadline of 1 s (limits.run_seconds)");
    }
}

#[test]
fn a_queued_job_begins_when_a_live_run_has_ended_and_not_before() {
    let home = Home::new();
    // It says that it has begun, and runs until it is cancelled.
    let run = "(call $log.write (i32.const 1) (i32.const 1024) (i32.const 5)) (loop (br 0)) (i32.const 0)";
    let guest = Guest::importing(&["log"]).run(run).with("(data (i32.const 1024) \"begun\")").build();
    // Of two members, each of which has its own limit.
    for name in ["one", "two"] {
        home.member(name, "autonomous-worker", &guest);
        home.edit_manifest(name, |manifest| manifest["component"]["grants"] = json!({"log": {}}));
    }
    home.researcher("researcher");
    home.write("docs/a.md", "# Moons\n\nJupiter has many moons.\n");
    let config = home.write("guild.toml", "[limits]\nlive_runs = 1\n[[roots]]\npath = \"docs\"\n");
    let host = home.serve_roster(&["--config", config.to_str().unwrap()]);
    let has_begun = |name: &str, id: &str| {
        let log = fs::read_to_string(home.path(&format!("members/{name}/jobs/{id}/log.txt")));
        log.is_ok_and(|log| log.contains("begun"))
    };
    let queued = |name: &str, id: &str| host.at(name).status(id).unwrap()["usage"]["queued"].clone();
    let one = host.at("one").start("first");
    wait_for("the first to begin", || has_begun("one", &one).then_some(()));
    let two = host.at("two").start("second");
    wait_for("the second to be queued", || (queued("two", &two) == true).then_some(()));
    // A session that the host runs needs no such place: the time that a whole job of that kind takes changes nothing.
    let session = host.at("researcher").start("Which moons has Jupiter?");
    assert_eq!(host.at("researcher").ended(&session)["status"], "completed");
    assert_eq!(host.at("one").status(&one).unwrap()["status"], "running");
    assert!(queued("two", &two) == true && !has_begun("two", &two));
    host.at("one").cancel(&one).unwrap();
    wait_for("the second to begin", || has_begun("two", &two).then_some(()));
    assert_eq!(host.at("two").status(&two).unwrap()["status"], "running");
}
