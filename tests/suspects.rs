//! Jobs that end the host which runs them: after a crash, interrupted jobs are resumed one at a time, and the one that was
//! resumed alone when the host ended again is held back.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use guild_fakes::{Gate, Received, Reply};
use serde_json::{Value, json};

use crate::{
    sessions::{Fixture, submit},
    support::host::{Client, Host, wait_for},
};

/// A member whose jobs get no answer before their gate is opened, and how often the one of the task `poison` asked for one.
struct Case {
    fixture: Fixture,
    poison: Gate,
    others: Gate,
    asked: Arc<AtomicUsize>,
}

impl Case {
    fn new(config: &str) -> Self {
        let (poison, others, asked) = (Gate::closed(), Gate::closed(), Arc::<AtomicUsize>::default());
        let (gates, counted) = ((poison.clone(), others.clone()), asked.clone());
        let script = move |request: &Received| {
            if request.turn() > 0 {
                return Reply::text("Done.");
            }
            if request.body.to_string().contains("poison") {
                counted.fetch_add(1, Ordering::SeqCst);
                return submit("tame").behind(&gates.0);
            }
            submit("done").behind(&gates.1)
        };
        Self { fixture: Fixture::with("sessions = 8\n", config, script), poison, others, asked }
    }

    /// Waits until the job `poison` has asked so often.
    fn poisoned(&self, times: usize) {
        wait_for("the poison to work", || (self.asked.load(Ordering::SeqCst) >= times).then_some(()));
    }

    fn asks(&self, times: usize) {
        self.fixture.asked(times);
    }

    fn resumption(&self, id: &str) -> Value {
        let meta: Value = serde_json::from_str(&self.fixture.job_file(id, "meta.json")).unwrap();
        meta["resumption"].clone()
    }

    /// The path of the directory of members, and a command on its files.
    fn run(&self, arguments: &[&str]) -> String {
        let members = self.fixture.home.path("members");
        let output = self.fixture.home.run(&[arguments, &["--members", members.to_str().unwrap()]].concat());
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(output.status.success(), "{text}");
        text
    }
}

fn held_back(client: &Client, id: &str) -> String {
    let status =
        wait_for("the job to be held back", || client.status(id).ok().filter(|status| status["heldBack"] == true));
    assert_eq!(status["status"], "running", "{status}");
    status["summary"].as_str().unwrap().to_owned()
}

fn completes(host: &Host, id: &str) {
    assert_eq!(host.client().ended(id)["status"], "completed");
}

#[test]
fn a_job_that_ends_each_host_is_held_back_and_the_others_go_on() {
    let case = Case::new("");
    let host = case.fixture.serve();
    let start = |host: &Host, task: &str| host.client().start(task);
    let (first, poison, last) = (start(&host, "first"), start(&host, "poison"), start(&host, "last"));
    case.asks(3);
    host.kill();
    // All are resumed together, and any of them can have been it.
    let host = case.fixture.serve();
    case.asks(6);
    host.kill();
    case.others.open();
    // One at a time, until it is the turn of the one that ends the host. New jobs do not wait for that.
    let host = case.fixture.serve();
    case.poisoned(3);
    let fresh = start(&host, "fresh");
    completes(&host, &fresh);
    host.kill();

    let host = case.fixture.serve();
    for id in [&first, &last] {
        completes(&host, id);
    }
    let summary = held_back(&host.client(), &poison);
    assert!(summary.contains(&format!("`guild resume {poison}`")), "{summary}");
    let list = host.client().call("worker/list", json!({"detail": "detailed"})).unwrap().to_string();
    assert!(list.contains(&format!("guild resume {poison}")), "{list}");
    assert!(case.fixture.job_file(&poison, "log.txt").contains("held back"));
    host.prints(&format!("guild resume {poison}"));
    assert_eq!(case.asked.load(Ordering::SeqCst), 3, "it was resumed");

    let url = format!("http://127.0.0.1:{}/mcp", host.port);
    let shown = case.fixture.home.run(&["status", &poison, "--url", &url]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("held back"), "{shown:?}");
    let other = host.client().call("worker/resume", json!({"jobId": first})).unwrap_err();
    assert_eq!((other.code, other.message.as_str()), (-32602, "Job is not held back"));
    case.poison.open();
    let resumed = case.fixture.home.run(&["resume", &format!("researcher/{poison}"), "--url", &url]);
    assert_eq!(String::from_utf8_lossy(&resumed.stdout), format!("{poison} is resumed\n"), "{resumed:?}");
    completes(&host, &poison);
    assert_eq!(case.resumption(&poison), Value::Null);
}

#[test]
fn a_job_that_is_held_back_is_let_on_without_a_host() {
    let case = Case::new("");
    let mut host = case.fixture.serve();
    let poison = host.client().start("poison");
    for times in 1..=3 {
        case.poisoned(times);
        host.kill();
        host = case.fixture.serve();
    }
    held_back(&host.client(), &poison);
    host.stop();
    let shown = case.run(&["status", &poison]);
    assert!(
        shown.contains("held back: see the summary") && shown.contains(&format!("`guild resume {poison}`")),
        "{shown}"
    );
    let said = case.run(&["resume", &poison]);
    assert!(said.contains("the next host that serves its member resumes it"), "{said}");
    case.poison.open();
    completes(&case.fixture.serve(), &poison);
}

#[test]
fn a_job_that_is_held_back_can_be_cancelled() {
    let case = Case::new("");
    let mut host = case.fixture.serve();
    let poison = host.client().start("poison");
    for times in 1..=3 {
        case.poisoned(times);
        host.kill();
        host = case.fixture.serve();
    }
    held_back(&host.client(), &poison);
    assert_eq!(host.client().cancel(&poison).unwrap()["status"], "cancelled");
    host.kill();
    let host = case.fixture.serve();
    let status = host.client().status(&poison).unwrap();
    assert_eq!((&status["status"], &status["summary"]), (&json!("cancelled"), &Value::Null));
}

#[test]
fn two_quick_kills_hold_no_job_back() {
    let case = Case::new("");
    let mut host = case.fixture.serve();
    let ids: Vec<String> = (0..3).map(|n| host.client().start(&format!("job {n}"))).collect();
    for kill in 1..=2 {
        case.asks(3 * kill);
        host.kill();
        host = case.fixture.serve();
    }
    case.others.open();
    ids.iter().for_each(|id| completes(&host, id));
}

#[test]
fn a_clean_stop_leaves_no_suspicion() {
    let case = Case::new("");
    let host = case.fixture.serve();
    let id = host.client().start("job");
    case.asks(1);
    host.kill();
    let host = case.fixture.serve();
    case.asks(2);
    assert_eq!(case.resumption(&id), "together");
    host.stop();
    assert_eq!(case.resumption(&id), Value::Null);
}

#[test]
fn a_job_that_survives_its_trial_is_no_suspect_any_more() {
    let case = Case::new("[limits]\nresume_trial_seconds = 1\nresumes = 9\n");
    let mut host = case.fixture.serve();
    let id = host.client().start("poison");
    // Resumed together, and killed in its trial; resumed alone, and killed after it; together, and killed in its trial.
    for (times, survives) in [(1, false), (2, false), (3, true), (4, false)] {
        case.poisoned(times);
        if survives {
            wait_for("the trial to be over", || (case.resumption(&id) == Value::Null).then_some(()));
        }
        host.kill();
        host = case.fixture.serve();
    }
    case.poison.open();
    completes(&host, &id);
}
