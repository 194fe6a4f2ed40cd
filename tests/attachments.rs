//! Files that come with a dispatch: who reads them, where they lie, and what is refused.

use std::fs;

use guild_fakes::{Gate, Received, Reply};
use serde_json::{Value, json};

use crate::{
    sessions::{Fixture, submit},
    support::host::RpcError,
};

const LUNA: &str = "The luna moth lives for a week.\n";

fn dispatch(attachments: Value) -> Value {
    json!({"description": "d", "task": "How long does it live?", "attachments": attachments})
}

/// Reads one file, and submits what it read.
fn reads(path: &'static str) -> impl Fn(&Received) -> Reply + Send + Sync + 'static {
    move |request| match request.turn() {
        0 => Reply::call("Read", json!({"file_path": path})),
        1 => {
            let messages = request.body["messages"].as_array().unwrap();
            submit(messages.last().unwrap()["content"].as_str().unwrap())
        }
        _ => Reply::text("Done."),
    }
}

#[test]
fn a_session_reads_the_files_of_its_dispatch_and_no_other_does() {
    let fixture = Fixture::new(reads("attachments/moths/luna.md"));
    let host = fixture.serve();
    let client = host.client();
    let id = client.dispatch(dispatch(json!([{"path": "moths/luna.md", "text": LUNA}]))).unwrap();
    assert_eq!(client.ended(&id)["status"], "completed");
    assert!(client.result(&id).unwrap()["output"].as_str().unwrap().contains(LUNA.trim()));
    assert_eq!(fixture.job_file(&id, "attachments/moths/luna.md"), LUNA);
    let task = client.call("worker/task", json!({"jobId": id})).unwrap();
    assert_eq!(task["attachments"], json!([{"path": "attachments/moths/luna.md", "bytes": LUNA.len()}]));
    // The worker is told of them; what is stored is the caller's own task, which can be dispatched again.
    assert_eq!(task["task"], "How long does it live?");
    let prompt = fixture.asked(1)[0].body.to_string();
    assert!(prompt.contains("- attachments/moths/luna.md (32 bytes)"), "{prompt}");
    // Another job of the same member has none of them.
    let other = client.start("How long does it live?");
    client.ended(&other);
    assert!(!client.result(&other).unwrap()["output"].as_str().unwrap().contains(LUNA.trim()));
}

#[test]
fn a_file_that_is_no_text_comes_in_base64_and_a_resumed_job_still_reads_it() {
    let gate = Gate::closed();
    let held = gate.clone();
    let fixture = Fixture::new(move |request: &Received| match request.turn() {
        0 => Reply::call("Read", json!({"file_path": "attachments/a.bin"})).behind(&held),
        _ => reads("attachments/a.bin")(request),
    });
    let host = fixture.serve();
    let id = host.client().dispatch(dispatch(json!([{"path": "a.bin", "data": "aGVsbG8K"}]))).unwrap();
    fixture.asked(1);
    host.kill();
    gate.open();
    let host = fixture.serve();
    assert_eq!(host.client().ended(&id)["status"], "completed");
    assert!(host.client().result(&id).unwrap()["output"].as_str().unwrap().contains("hello"));
}

#[test]
fn a_dispatch_that_continues_a_job_has_its_files_and_names_it() {
    let fixture = Fixture::new(reads("attachments/moths/luna.md"));
    let host = fixture.serve();
    let client = host.client();
    let files = json!([{"path": "moths/luna.md", "text": "It is green.\n"}, {"path": "b", "data": "aGVsbG8K"}]);
    let first = client.dispatch(dispatch(files)).unwrap();
    let again = json!({"description": "d", "task": "How long?", "follows": first, "attachments": [
        {"path": "moths/luna.md", "text": LUNA}
    ]});
    let second = client.dispatch(again).unwrap();
    assert_eq!((&client.ended(&first)["follows"], &client.ended(&second)["follows"]), (&Value::Null, &json!(first)));
    assert!(client.result(&second).unwrap()["output"].as_str().unwrap().contains(LUNA.trim()), "the new file counts");
    assert_eq!(fixture.job_file(&second, "attachments/b"), "hello\n");
    assert_eq!(fixture.job_file(&first, "attachments/moths/luna.md"), "It is green.\n");
    let nobody = client.dispatch(json!({"description": "d", "task": "t", "follows": "nobody"})).unwrap_err();
    assert_eq!((nobody.code, &*nobody.message), (-32602, "`follows`: Unknown job ID: nobody"));
    // All that a host knows of a job outlives it.
    host.kill();
    assert_eq!(fixture.serve().client().status(&second).unwrap()["follows"], json!(first));
}

#[test]
fn the_files_of_an_earlier_job_are_read_within_the_memory_of_running_jobs() {
    let fixture = Fixture::with("sessions = 8\n", "[limits]\nrunning_bytes = 1048576\n", |asked: &Received| {
        if asked.turn() == 0 { submit("x") } else { Reply::text("Done.") }
    });
    let host = fixture.serve();
    let client = host.client();
    let files = |bytes: usize| json!([{"path": "large", "text": "x".repeat(bytes)}]);
    for (bytes, fits) in [(500_000, true), (1_000_000, false)] {
        let first = client.dispatch(dispatch(files(bytes))).unwrap();
        client.ended(&first);
        let again = client.dispatch(json!({"description": "d", "task": "t", "follows": first}));
        match again {
            Ok(id) => assert_eq!((fits, &client.ended(&id)["status"]), (true, &json!("completed"))),
            Err(e) => {
                assert!(!fits && e.code == -32000, "{bytes}: {e:?}");
                assert!(e.message.starts_with("`follows`: ") && e.message.contains("limits.running_bytes"), "{e:?}");
            }
        }
    }
}

#[test]
fn files_that_cannot_be_stored_are_refused_with_their_place_and_leave_nothing() {
    let fixture = Fixture::with("sessions = 8\n", "[limits]\nattachments_bytes = 8\n", |_: &Received| submit("x"));
    let host = fixture.serve();
    let client = host.client();
    let refused = |attachments: Value| -> RpcError { client.dispatch(dispatch(attachments)).unwrap_err() };
    for (attachments, why) in [
        (json!([{"path": "../a", "text": ""}]), "`attachments[0]`: path must be relative"),
        (json!([{"path": "/a", "text": ""}]), "path must be relative"),
        (json!([{"path": "a\nb", "text": ""}]), "control characters"),
        (json!([{"path": ".env", "text": ""}]), "begin with a dot"),
        (json!([{"path": "a", "text": ""}, {"path": "a", "text": ""}]), "`attachments[1]`: its path is taken by \"a\""),
        (json!([{"path": "a", "text": ""}, {"path": "a/b", "text": ""}]), "taken by \"a\""),
        (json!([{"path": "a"}]), "either `text`, or `data`"),
        (json!([{"path": "a", "text": "", "data": ""}]), "either `text`, or `data`"),
        (json!([{"path": "a", "data": "?"}]), "in base64"),
        (json!([{"path": "a", "text": "12345678"}, {"path": "b", "text": "9"}]), "limits.attachments_bytes = 8"),
        (json!([{"path": "a", "text": "", "mode": 7}]), "in `attachments`, unknown field `mode`"),
        (json!("a"), "in `attachments`"),
        (
            Value::from_iter((0..65).map(|n| json!({"path": format!("f{n}"), "text": ""}))),
            "65 files are attached, more than",
        ),
    ] {
        let error = refused(attachments);
        assert!(error.code == -32602 && error.message.contains(why), "{}", error.message);
    }
    let jobs = fixture.home.path("members/researcher/jobs");
    let left: Vec<_> = fs::read_dir(jobs).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_worker_whose_sessions_read_no_files_is_given_none() {
    let fixture = Fixture::new(|_: &Received| submit("x"));
    fixture.home.edit_manifest("researcher", |manifest| manifest["component"]["tools"] = json!([]));
    let host = fixture.serve();
    let refused = host.client().dispatch(dispatch(json!([{"path": "a", "text": "a"}]))).unwrap_err();
    assert!(refused.message.contains("cannot read attachments"), "{}", refused.message);
    assert!(host.client().dispatch(json!({"description": "d", "task": "t"})).is_ok());
}

#[test]
fn the_command_line_attaches_files() {
    let fixture = Fixture::new(reads("attachments/luna.md"));
    let (host, file) = (fixture.serve(), fixture.home.write("luna.md", LUNA));
    let url = host.client().url();
    let ran = fixture.home.run(&["dispatch", "How long?", "--attach", file.to_str().unwrap(), "--wait", "--url", &url]);
    assert!(String::from_utf8_lossy(&ran.stdout).contains(LUNA.trim()), "{ran:?}");
    let missing = fixture.home.run(&["dispatch", "How long?", "--attach", "nowhere.md", "--url", &url]);
    assert!(String::from_utf8_lossy(&missing.stderr).contains("--attach nowhere.md: No such file"), "{missing:?}");
}
