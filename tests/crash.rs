//! SIGKILL at any moment, under load: no job is stuck, none that was answered for is lost, no file is half written.

use std::{
    collections::HashSet,
    fs,
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use serde_json::{Value, json};

use crate::support::host::{Client, Home, wait_for};

/// What the host had confirmed to its callers before the kill.
#[derive(Default)]
struct Confirmed {
    dispatched: HashSet<String>,
    cancelled: HashSet<String>,
    deleted: HashSet<String>,
}

/// Keeps dispatching, cancelling and deleting until the host is gone.
fn load(client: &Client, answered: &AtomicUsize, confirmed: &Mutex<Confirmed>) {
    let ask = |method: &str, params: Value| -> Option<Value> {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let (_, body) = client.post(&request.to_string()).ok()?;
        let answer: Value = serde_json::from_str(&body).ok()?;
        answered.fetch_add(1, Ordering::Relaxed);
        answer.get("result").cloned()
    };
    for n in 0.. {
        let Some(job) = ask("worker/dispatch", json!({"description": format!("job {n}"), "task": "t"})) else { return };
        let id = job["jobId"].as_str().unwrap().to_owned();
        confirmed.lock().unwrap().dispatched.insert(id.clone());
        if n % 3 == 0 {
            let Some(answer) = ask("worker/cancel", json!({"jobId": id})) else { return };
            if answer["status"] == "cancelled" {
                confirmed.lock().unwrap().cancelled.insert(id.clone());
            }
        }
        if n % 6 == 0 {
            // It may be deleted already when the answer does not come any more.
            confirmed.lock().unwrap().deleted.insert(id.clone());
            if ask("worker/delete", json!({"jobId": id})).is_none() {
                return;
            }
        }
    }
}

fn every_file_is_whole(jobs: &Path) {
    for job in fs::read_dir(jobs).unwrap().map(|e| e.unwrap()) {
        let name = job.file_name().into_string().unwrap();
        assert!(!name.starts_with('.'), "{name} was left behind");
        for file in ["meta.json", "config.json", "plan.json"] {
            let text = fs::read(job.path().join(file)).unwrap();
            serde_json::from_slice::<Value>(&text).unwrap_or_else(|e| panic!("{name}/{file}: {e}"));
        }
        for file in fs::read_dir(job.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()) {
            assert!(!file.starts_with('.'), "{name}/{file} was left behind");
        }
    }
}

#[test]
fn kill_9_at_any_moment_under_load_loses_nothing() {
    let home = Home::new();
    let members = [home.quick("member"), home.endless("endless")];
    let mut confirmed = [Confirmed::default(), Confirmed::default()].map(Mutex::new);
    // The moments differ from round to round, and no two runs interleave alike.
    for answers in [1, 7, 20, 45, 80, 130] {
        let host = home.serve_roster(&[]);
        let answered = AtomicUsize::new(0);
        thread::scope(|scope| {
            for (member, confirmed) in ["member", "endless"].iter().zip(&confirmed) {
                for _ in 0..4 {
                    let (client, answered) = (host.at(member), &answered);
                    scope.spawn(move || load(&client, answered, confirmed));
                }
            }
            wait_for("answers", || (answered.load(Ordering::Relaxed) >= answers).then_some(()));
            host.kill();
        });

        let host = home.serve_roster(&[]);
        for ((name, member), confirmed) in ["member", "endless"].iter().zip(&members).zip(&mut confirmed) {
            let (client, confirmed) = (host.at(name), confirmed.get_mut().unwrap());
            let list = client.call("worker/list", json!({})).unwrap();
            let listed: std::collections::HashMap<&str, &str> = list["jobs"]
                .as_array()
                .unwrap()
                .iter()
                .map(|job| (job["jobId"].as_str().unwrap(), job["status"].as_str().unwrap()))
                .collect();
            for id in confirmed.dispatched.difference(&confirmed.deleted) {
                assert!(listed.contains_key(id.as_str()), "{id} was answered for, and is lost");
            }
            for id in confirmed.cancelled.difference(&confirmed.deleted) {
                assert_eq!(listed[id.as_str()], "cancelled", "{id} was answered as cancelled");
            }
            for (id, status) in &listed {
                assert_ne!(*status, "running", "{id} is stuck");
                let shown = client.status(id).unwrap();
                assert!(shown["completedAt"].is_string(), "{shown}");
                if *status == "completed" {
                    assert_eq!(client.result(id).unwrap()["output"], "date");
                }
            }
            every_file_is_whole(&member.join("jobs"));
        }
        host.kill();
    }
}
