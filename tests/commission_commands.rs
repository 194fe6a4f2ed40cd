//! `guild commission` against a hall that answers as Guild Hall's own daemon does. `commissions.rs` has the real one.

use std::{
    fs,
    os::unix::net::UnixListener,
    path::Path,
    process::{Child, Output, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use axum::{
    Router,
    body::Body,
    extract::State,
    http::{Method, StatusCode, Uri, header::CONTENT_TYPE},
    response::{IntoResponse as _, Response},
};
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::{runtime::Builder, sync::broadcast};

use crate::support::{
    host::{Home, wait_for},
    output::{json_of, stderr, stdout},
};

const FIRST: &str = "commission-Dalton-20260101-100000";
const SECOND: &str = "commission-Dalton-20260102-100000";

/// A hall on the socket of a home, which remembers what it was asked.
#[derive(Clone)]
struct Hall {
    asked: Arc<Mutex<Vec<(String, Value)>>>,
    status: Arc<Mutex<&'static str>>,
    events: broadcast::Sender<String>,
}

impl Hall {
    fn on(home: &Home) -> Self {
        fs::create_dir_all(home.path("hall")).unwrap();
        let this = Self {
            asked: Arc::default(),
            status: Arc::new(Mutex::new("in_progress")),
            events: broadcast::Sender::new(16),
        };
        this.listen(&home.path("hall/guild-hall.sock"));
        this
    }

    fn listen(&self, socket: &Path) {
        let listener = UnixListener::bind(socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        let app = Router::new().fallback(answer).with_state(self.clone());
        thread::spawn(move || {
            Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap()
                .block_on(async { axum::serve(tokio::net::UnixListener::from_std(listener).unwrap(), app).await })
        });
    }

    /// What was asked since the last look, but for the lists in which ids are looked up.
    fn asked(&self) -> Vec<(String, Value)> {
        let mut asked = std::mem::take(&mut *self.asked.lock().unwrap());
        asked.retain(|(path, _)| path != "GET /commission/request/commission/list");
        asked
    }

    fn tell(&self, event: Value) {
        self.events.send(format!("data: {event}\n\n")).unwrap();
    }

    fn commission(&self, id: &str) -> Value {
        let status = if id == FIRST { *self.status.lock().unwrap() } else { "pending" };
        json!({"commissionId": id, "title": "Commission: Tides", "status": status, "worker": "Dalton",
            "workerDisplayTitle": "Guild Artificer", "prompt": "Which documents\nspeak of tides?", "dependencies": [FIRST],
            "linked_artifacts": ["reports/tides.md"], "resource_overrides": {}, "current_progress": "Reading",
            "result_summary": "# Tides\n\nTwo.", "projectName": "book", "date": "2026-01-01",
            "relevantDate": "2026-01-01T10:00:00.000Z", "source": null, "createdBy": "user", "jobId": "job-1"})
    }
}

async fn answer(State(hall): State<Hall>, method: Method, uri: Uri, body: String) -> Response {
    let body = serde_json::from_str(&body).unwrap_or(Value::Null);
    hall.asked.lock().unwrap().push((format!("{method} {uri}"), body.clone()));
    let of = |status: StatusCode, json: Value| (status, json.to_string()).into_response();
    match uri.path() {
        "/commission/request/commission/create" if body["projectName"] == "none" => {
            of(StatusCode::NOT_FOUND, json!({"error": "Project not found: none"}))
        }
        "/commission/request/commission/create" => of(StatusCode::CREATED, json!({"commissionId": SECOND})),
        "/commission/request/commission/list" => {
            of(StatusCode::OK, json!({"commissions": [hall.commission(SECOND), hall.commission(FIRST)]}))
        }
        "/commission/request/commission/read" => of(
            StatusCode::OK,
            json!({"commission": hall.commission(FIRST), "rawContent": "---\n", "timeline": [
                {"timestamp": "2026-01-01T10:00:00.000Z", "event": "created", "reason": "Commission created"},
                {"timestamp": "2026-01-01T10:00:01.000Z", "event": "status_dispatched", "reason": "Dispatched to worker",
                    "from": "pending", "to": "dispatched"},
            ]}),
        ),
        "/commission/run/dispatch" => {
            of(StatusCode::ACCEPTED, json!({"status": "queued", "reason": "Dependencies not yet satisfied: a"}))
        }
        "/commission/run/redispatch" => of(
            StatusCode::CONFLICT,
            json!({"error": "Cannot redispatch commission \"x\": status is \"pending\", must be \"failed\" or \"cancelled\""}),
        ),
        "/system/events/stream/subscribe" => {
            let events = futures::stream::unfold(hall.events.subscribe(), |mut events| async move {
                events.recv().await.ok().map(|event| (Ok::<_, std::io::Error>(event), events))
            });
            ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(events.boxed())).into_response()
        }
        _ => of(StatusCode::OK, json!({"status": "ok"})),
    }
}

fn run(home: &Home, arguments: &[&str]) -> Output {
    home.run(&[&["commission"], arguments, &["--home", "hall"]].concat())
}

#[test]
fn a_commission_is_made_with_all_that_was_said_and_dispatched_where_asked() {
    let home = Home::new();
    let hall = Hall::on(&home);
    let made = run(&home, &["create", "book", "researcher", "Tides"]);
    assert_eq!(stdout(&made), format!("{SECOND}\n"), "{}", stderr(&made));
    let create = "POST /commission/request/commission/create";
    let plain = json!({"projectName": "book", "title": "Tides", "workerName": "researcher", "prompt": "Tides"});
    assert_eq!(hall.asked(), [(create.to_owned(), plain)]);

    let more =
        ["--depends", "a", "--depends", "specs/b.md", "--model", "m", "--max-turns", "3", "--max-budget-usd", "0.5"];
    let made =
        run(&home, &[&["create", "book", "Dalton", "Tides", "Which?", "--dispatch", "--json"], &more[..]].concat());
    assert_eq!(json_of(&made), json!({"commissionId": SECOND, "status": "queued"}));
    let full = json!({"projectName": "book", "title": "Tides", "workerName": "Dalton", "prompt": "Which?",
        "dependencies": ["a", "specs/b.md"], "resourceOverrides": {"model": "m", "maxTurns": 3, "maxBudgetUsd": 0.5}});
    let dispatch = ("POST /commission/run/dispatch".to_owned(), json!({"commissionId": SECOND}));
    assert_eq!(hall.asked(), [(create.to_owned(), full), dispatch]);
    let asked = run(&home, &["dispatch", SECOND]);
    assert!(stdout(&asked).contains("is queued") && stdout(&asked).contains("satisfied: a"), "{}", stdout(&asked));
    hall.asked();

    home.write("prompt.md", "From a file\n");
    let mut command = home.guild();
    command.current_dir(home.path(".")).args([
        "commission",
        "create",
        "book",
        "Dalton",
        "Tides",
        "-",
        "--home",
        "hall",
    ]);
    assert!(command.stdin(fs::File::open(home.path("prompt.md")).unwrap()).output().unwrap().status.success());
    assert_eq!(hall.asked()[0].1["prompt"], "From a file\n");
}

#[test]
fn each_command_asks_for_the_one_commission_whose_id_begins_so() {
    let home = Home::new();
    let hall = Hall::on(&home);
    for (arguments, path, body) in [
        (&["dispatch", "Dalton-20260102"][..], "run/dispatch", json!({"commissionId": SECOND})),
        (&["cancel", FIRST], "run/cancel", json!({"commissionId": FIRST})),
        (&["cancel", FIRST, "--reason", "r"], "run/cancel", json!({"commissionId": FIRST, "reason": "r"})),
        (&["abandon", FIRST, "r"], "run/abandon", json!({"commissionId": FIRST, "reason": "r"})),
        (&["note", FIRST, "n"], "request/commission/note", json!({"commissionId": FIRST, "content": "n"})),
    ] {
        let output = run(&home, arguments);
        assert!(output.status.success() && stdout(&output).starts_with("commission-Dalton"), "{}", stderr(&output));
        assert_eq!(hall.asked(), [(format!("POST /commission/{path}"), body)]);
    }
    assert_eq!(json_of(&run(&home, &["note", FIRST, "n", "--json"])), json!({"status": "ok"}));
    for (arguments, expected) in [
        (["show", "Dalton"], "matches each of"),
        (["show", "nothing"], "there is no commission nothing; `guild commission list`"),
        (["redispatch", SECOND], "must be \"failed\" or \"cancelled\""),
    ] {
        let output = run(&home, &arguments);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
    let refused = run(&home, &["create", "none", "w", "t"]);
    assert!(stderr(&refused).contains("error: Project not found: none"), "{}", stderr(&refused));
}

#[test]
fn a_list_has_a_line_for_each_and_one_commission_is_shown_with_its_timeline_and_its_result() {
    let home = Home::new();
    let hall = Hall::on(&home);
    let listed = run(&home, &["list", "--project", "my book", "--status", "in_progress", "--worker", "Dalton"]);
    let line =
        |id: &str, status: &str| format!("{id}\t{status}\tbook\tDalton\tuser\t2026-01-01T10:00:00.000Z\tTides\n");
    assert_eq!(stdout(&listed), line(SECOND, "pending") + &line(FIRST, "in_progress"));
    let query = "GET /commission/request/commission/list?projectName=my+book&status=in_progress&worker=Dalton";
    assert_eq!(hall.asked(), [(query.to_owned(), Value::Null)]);
    assert_eq!(json_of(&run(&home, &["list", "--json"]))["commissions"][1]["commissionId"], FIRST);
    assert!(stderr(&run(&home, &["list", "--status", "running"])).contains("in_progress"));

    let shown = stdout(&run(&home, &["show", FIRST]));
    for expected in [
        "title        Tides\n",
        "status       in_progress\n",
        "worker       Dalton (Guild Artificer)\n",
        "depends on   commission-Dalton-20260101-100000\n",
        "artifacts    reports/tides.md\n",
        "job          job-1\n",
        "Prompt\n  Which documents\n  speak of tides?\n",
        "  dispatched: Dispatched to worker\n",
        "\nResult\n\n# Tides\n\nTwo.\n",
    ] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    let json = json_of(&run(&home, &["show", FIRST, "--json"]));
    assert_eq!(json["timeline"][1]["to"], "dispatched");
}

fn watch(home: &Home, more: &[&str]) -> Child {
    let mut command = home.guild();
    command.current_dir(home.path(".")).args(["commission", "watch", "--home", "hall"]).args(more);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_watch_of_one_commission_ends_with_it_and_says_how_by_its_code() {
    let home = Home::new();
    let hall = Hall::on(&home);
    for (status, code) in [("completed", 0), ("failed", 3), ("cancelled", 4), ("abandoned", 4)] {
        let watching = watch(&home, &[FIRST]);
        wait_for("the watch", || (hall.events.receiver_count() == 1).then_some(()));
        // The host looks at the state once more after it has connected.
        wait_for("its look", || (hall.asked.lock().unwrap().len() >= 3).then_some(()));
        let event = |id: &str, status: &str| json!({"type": "commission_status", "commissionId": id, "status": status, "oldStatus": "in_progress", "reason": "why"});
        hall.tell(event(SECOND, "failed"));
        hall.tell(json!({"type": "commission_progress", "commissionId": FIRST, "summary": "half"}));
        hall.tell(event(FIRST, status));
        let output = watching.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        assert_eq!(stdout(&output), format!("{FIRST}  half\n{FIRST}  {status}: why\n"));
        wait_for("its end", || {
            // A listener that is gone is noticed at the next event.
            let _ = hall.events.send(": keep-alive\n\n".to_owned());
            (hall.events.receiver_count() == 0).then_some(())
        });
        hall.asked.lock().unwrap().clear();
    }
    // It has ended before anybody looked.
    *hall.status.lock().unwrap() = "failed";
    let output = watch(&home, &[FIRST, "--json"]).wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(json_of(&output)["status"], "failed");
}

#[test]
fn without_a_hall_the_command_that_starts_one_is_named() {
    let home = Home::new();
    let none = run(&home, &["list"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(stderr(&none).contains("start one with `guild serve --hall hall`"), "{}", stderr(&none));
    // A socket whose process is gone.
    fs::create_dir_all(home.path("hall")).unwrap();
    drop(UnixListener::bind(home.path("hall/guild-hall.sock")).unwrap());
    assert!(stderr(&run(&home, &["list"])).contains("start one with"));
    let url = home.run(&["commission", "list", "--url", "http://127.0.0.1:9"]);
    assert!(stderr(&url).contains("no host answers at http://127.0.0.1:9"), "{}", stderr(&url));
    let both = home.run(&["commission", "list", "--url", "http://127.0.0.1:9", "--home", "hall"]);
    assert!(stderr(&both).contains("cannot be used with"), "{}", stderr(&both));
}
