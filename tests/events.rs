//! `/events`: the events of a host as subscribers get them, the client crate's stream, and `guild watch`.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Child, Command},
    sync::LazyLock,
};

use guild_client::{DispatchParams, Event, EventDetail, Events, Filter, Kind, Options, WorkerHandle};
use guild_contract::json::schema::of;
use jsonschema::Validator;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::support::{
    guest,
    host::{Home, Host, PATIENCE, free_port, wait_for},
};

/// Every event that a test receives is validated against it.
static SCHEMA: LazyLock<Validator> = LazyLock::new(|| jsonschema::validator_for(&of::<Event>()).unwrap());

/// Asks for the events, and reads the head of the answer.
fn ask(port: u16, query: &str, headers: &[&str]) -> (u16, String, BufReader<TcpStream>) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let lines: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    let host = if lines.contains("Host:") { "" } else { "Host: localhost\r\n" };
    // HTTP/1.0 has no chunks: what comes is what was said.
    write!(stream, "GET /events{query} HTTP/1.0\r\n{host}{lines}\r\n").unwrap();
    let (mut reader, mut head) = (BufReader::new(stream), String::new());
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).unwrap(), 0, "no answer: {head:?}");
    }
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_lowercase(), reader)
}

/// What a request for events is refused with.
fn refused(host: &Host, query: &str, headers: &[&str]) -> (u16, String) {
    let (status, head, mut reader) = ask(host.port, query, headers);
    let mut body = String::new();
    reader.read_to_string(&mut body).unwrap();
    (status, head + &body)
}

/// A subscriber.
struct Subscriber {
    reader: BufReader<TcpStream>,
    /// The id of the last event that it received.
    id: String,
}

impl Subscriber {
    /// Subscribes: it gets every event after this returns.
    fn at(host: &Host, query: &str, headers: &[&str]) -> Self {
        let (status, head, reader) = ask(host.port, query, headers);
        assert!(status == 200 && head.contains("content-type: text/event-stream\r\n"), "{head}");
        let mut subscriber = Self { reader, id: String::new() };
        subscriber.line("id: ").unwrap();
        subscriber
    }

    fn of(host: &Host) -> Self {
        Self::at(host, "", &[])
    }

    /// Goes on after an id.
    fn after(host: &Host, id: &str) -> Self {
        Self::at(host, "", &[&format!("Last-Event-ID: {id}")])
    }

    /// Reads up to a line that begins so; `None` where the stream ends.
    fn line(&mut self, begin: &str) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            let line = line.trim_end_matches('\n');
            if let Some(id) = line.strip_prefix("id: ") {
                id.clone_into(&mut self.id);
            }
            if let Some(rest) = line.strip_prefix(begin) {
                return Some(rest.to_owned());
            }
        }
    }

    fn next(&mut self) -> Option<Value> {
        let kind = self.line("event: ")?;
        let event: Value = serde_json::from_str(&self.line("data: ")?).unwrap();
        assert_eq!(event["kind"], kind);
        assert!(SCHEMA.is_valid(&event), "{event}");
        Some(event)
    }

    fn event(&mut self) -> Value {
        self.next().expect("the stream goes on")
    }

    /// The next event of that kind.
    fn event_of(&mut self, kind: &str) -> Value {
        loop {
            let event = self.event();
            if event["kind"] == kind {
                return event;
            }
        }
    }

    /// The next events, up to and with one of that kind, as `kind jobId`.
    fn up_to(&mut self, kind: &str, job: &str) -> Vec<String> {
        let mut events = Vec::new();
        loop {
            let event = self.event();
            events.push(format!("{} {}", event["kind"].as_str().unwrap(), event["jobId"].as_str().unwrap_or_default()));
            if event["kind"] == kind && event["jobId"] == job {
                return events;
            }
        }
    }
}

/// A home whose guild.toml says this, for every command there.
fn home(toml: &str) -> Home {
    let mut home = Home::new();
    let file = home.write("guild.toml", toml);
    home.set("GUILD_CONFIG", file.to_str().unwrap());
    home
}

/// A worker that does what its task says.
fn probe(home: &Home) {
    home.member("probe", "autonomous-worker", &guest::built("probe"));
    home.edit_manifest("probe", |manifest| manifest["component"]["grants"] = guest::everything());
}

/// Serves all members on a port that was used before.
fn serve_at(home: &Home, port: u16) -> Host {
    let mut command = home.guild();
    command.current_dir(home.path(".")).args(["serve", "--members", "members", "--port", &port.to_string()]);
    let mut host = Host::start(command, port, "");
    assert!(host.is_ready(), "{}", host.output());
    host
}

/// Starts a job over a connection that the client closes: one that the host closed would keep its port for a minute.
async fn start(host: &Host, member: &str) -> String {
    let url = format!("http://127.0.0.1:{}", host.port);
    let worker = WorkerHandle::new(&url, Some(&member.parse().unwrap())).unwrap();
    let params = DispatchParams { description: "Do it.".into(), task: "t".into(), ..DispatchParams::default() };
    worker.dispatch(&params).await.unwrap().value.job_id.to_string()
}

#[test]
fn the_events_of_a_job_come_in_order() {
    let home = Home::new();
    probe(&home);
    home.failing("failing");
    let host = home.serve_roster(&[]);
    let mut subscriber = Subscriber::at(&host, "?member=probe&member=failing", &[]);
    let probe = host.at("probe");
    let job = probe.start("summary reading\nquestion Which one?\ndecide here there");
    let mut next = |kind: &str, of: Value| {
        let mut event = subscriber.event();
        let time = event.as_object_mut().unwrap().remove("time").unwrap();
        assert!(time.as_str().unwrap().ends_with('Z'), "{time}");
        let mut expected = json!({"kind": kind, "member": "probe", "jobId": job});
        expected.as_object_mut().unwrap().extend(of.as_object().unwrap().clone());
        assert_eq!(event, expected);
    };
    next("job-started", json!({"description": "summary reading\nquestion Which one?\ndecide here there"}));
    next("job-summary", json!({"summary": "reading"}));
    next("job-question", json!({"question": "question Which one?"}));
    next("job-decision", json!({"decision": {"question": "here", "decision": "there", "reasoning": "r"}}));
    next("job-ended", json!({"status": "completed", "error": null}));
    // Once the event of the end was sent, callers see the end.
    assert_eq!(probe.status(&job).unwrap()["status"], "completed");
    probe.delete(&job).unwrap();
    next("job-deleted", json!({}));

    let failing = host.at("failing");
    let job = failing.start("t");
    assert_eq!(subscriber.event()["kind"], "job-started");
    let failed = subscriber.event();
    assert_eq!((&failed["status"], &failed["error"]), (&json!("failed"), &json!("date")));
    failing.cancel(&job).unwrap();
    let cancelled = subscriber.event();
    assert_eq!((&cancelled["kind"], &cancelled["status"]), (&json!("job-ended"), &json!("cancelled")));
}

#[test]
fn a_long_text_is_cut_and_says_so() {
    let home = Home::new();
    probe(&home);
    let host = home.serve_roster(&[]);
    let mut subscriber = Subscriber::of(&host);
    let long = "x".repeat(5000);
    let dispatched = json!({"description": "d", "task": format!("summary {long}")});
    host.at("probe").dispatch(dispatched).unwrap();
    let summary = subscriber.event_of("job-summary");
    assert_eq!((&summary["summary"], &summary["truncated"]), (&json!(long[..1024]), &json!(true)));
}

#[test]
fn a_subscriber_gets_the_members_jobs_and_kinds_that_it_asked_for() {
    let home = Home::new();
    home.quick("quick");
    home.endless("endless");
    let host = home.serve_roster(&[]);
    let (quick, endless) = (host.at("quick"), host.at("endless"));
    let running = endless.start("t");
    let mut of_member = Subscriber::at(&host, "?member=quick&kind=job-started&kind=job-ended", &[]);
    let mut of_job = Subscriber::at(&host, &format!("?job={running}"), &[]);
    let mut of_kind = Subscriber::at(&host, "?kind=job-ended", &[]);
    let job = quick.start("t");
    let expected = [format!("job-started {job}"), format!("job-ended {job}")];
    assert_eq!(of_member.up_to("job-ended", &job), expected);
    endless.cancel(&running).unwrap();
    assert_eq!(of_job.up_to("job-ended", &running), [format!("job-ended {running}")]);
    let ended = [&job, &running].map(|job| format!("job-ended {job}"));
    assert_eq!(of_kind.up_to("job-ended", &running), ended);
}

#[test]
fn an_invalid_request_is_answered_with_what_is_wrong() {
    let home = Home::new();
    let host = home.serve(&home.quick("quick"), &[]);
    for (query, status, why) in [
        ("?member=a/b/c", 400, "member: a member's key is"),
        ("?job=../x", 400, "job: a job id is"),
        ("?kind=ended", 400, "the kinds are job-started, job-resumed"),
        ("?since=2026", 400, "neither now nor kept"),
        ("?members=a", 400, "the parameters are member, job, kind, since, lasteventid"),
        ("?lastEventId=yesterday", 400, "is not the id of an event"),
    ] {
        let (answered, text) = refused(&host, query, &[]);
        assert!(answered == status && text.to_lowercase().contains(why), "{query}: {text}");
    }
    assert_eq!(refused(&host, "", &["Host: evil.example"]).0, 403);
    assert_eq!(refused(&host, "", &["Origin: http://evil.example"]).0, 403);
    assert_eq!(refused(&host, "/", &[]).0, 404);
    let mut post = TcpStream::connect(("127.0.0.1", host.port)).unwrap();
    post.write_all(b"POST /events HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    post.read_to_string(&mut answer).unwrap();
    assert!(answer.contains(" 405 ") && answer.to_lowercase().contains("allow: get"), "{answer}");
}

#[test]
fn a_subscriber_that_reconnects_misses_and_repeats_nothing() {
    let home = Home::new();
    home.quick("quick");
    let host = home.serve_roster(&[]);
    let quick = host.at("quick");
    let (mut steady, mut restless) = (Subscriber::of(&host), Subscriber::of(&host));
    let start = restless.id.clone();
    let (mut received, mut last) = (Vec::new(), String::new());
    for round in 0..10 {
        for _ in 0..5 {
            last = quick.start("t");
        }
        for _ in 0..7 {
            received.push((restless.event(), restless.id.clone()));
        }
        if round % 2 == 0 {
            restless = Subscriber::after(&host, &restless.id);
        } else {
            // As a browser without the header does.
            restless = Subscriber::at(&host, &format!("?lastEventId={}", restless.id), &[]);
        }
    }
    while received.len() < 100 {
        received.push((restless.event(), restless.id.clone()));
    }
    let seen: Vec<_> = (0..100).map(|_| (steady.event(), steady.id.clone())).collect();
    assert_eq!(received, seen);
    let again = Subscriber::after(&host, &start).up_to("job-ended", &last);
    assert!(again.len() <= 100 && !again.iter().any(|event| event.starts_with("gap")), "{again:?}");
    let kept = Subscriber::at(&host, "?since=kept&kind=job-started&kind=job-ended", &[]).up_to("job-ended", &last);
    assert_eq!(kept, again);
}

#[test]
fn after_a_restart_there_is_a_gap_and_then_what_became_of_the_jobs() {
    let home = Home::new();
    home.endless("endless");
    let host = home.serve_roster(&[]);
    let mut subscriber = Subscriber::of(&host);
    let job = Runtime::new().unwrap().block_on(start(&host, "endless"));
    assert_eq!(subscriber.event()["jobId"], job.as_str());
    let port = host.port;
    let (status, output) = host.stop();
    assert!(status.success(), "{output}");

    // Its port is free at once, though it had a listener.
    let host = serve_at(&home, port);
    let mut subscriber = Subscriber::after(&host, &subscriber.id);
    let gap = subscriber.event();
    assert_eq!((&gap["kind"], &gap["missed"]), (&json!("gap"), &Value::Null));
    let ended = subscriber.event_of("job-ended");
    assert_eq!((&ended["jobId"], &ended["status"]), (&json!(job), &json!("failed")));
}

#[test]
fn as_many_events_are_kept_as_the_limit_and_of_one_more_the_oldest_goes() {
    let home = home("[limits]\nevents_kept = 4\n");
    home.quick("quick");
    let host = home.serve_roster(&[]);
    let quick = host.at("quick");
    let first = quick.start("t");
    let mut subscriber = Subscriber::at(&host, "?since=kept", &[]);
    subscriber.up_to("job-ended", &first);
    let id = subscriber.id.clone();
    let jobs = [quick.start("t"), quick.start("t")];
    let events: Vec<_> = (0..4).map(|_| subscriber.event()).collect();
    let mut again = Subscriber::after(&host, &id);
    assert_eq!((0..4).map(|_| again.event()).collect::<Vec<_>>(), events);

    quick.delete(&first).unwrap();
    assert_eq!(subscriber.event()["kind"], "job-deleted");
    let mut again = Subscriber::after(&host, &id);
    let gap = again.event();
    assert_eq!((&gap["kind"], &gap["missed"]), (&json!("gap"), &json!(1)));
    assert_eq!((0..3).map(|_| again.event()).collect::<Vec<_>>(), events[1..]);
    assert_eq!(again.event()["kind"], "job-deleted");
    assert!(jobs.iter().all(|job| quick.status(job).is_ok()));
}

/// A task with so many questions, of which each is an event of a KiB.
fn questions(count: usize) -> Value {
    let task: Vec<_> = (0..count).map(|n| format!("question {n:04} {}", "x".repeat(1000))).collect();
    json!({"description": "asks", "task": task.join("\n")})
}

/// So many events that no connection holds them all.
fn flood(host: &Host) {
    let probe = host.at("probe");
    let jobs: Vec<_> = (0..16).map(|_| probe.dispatch(questions(100)).unwrap()).collect();
    for job in jobs {
        assert_eq!(probe.ended(&job)["status"], "completed");
    }
}

#[test]
fn a_slow_subscriber_misses_events_and_delays_nobody() {
    let home = home("[limits]\nevents_kept = 32\n");
    probe(&home);
    home.quick("quick");
    let host = home.serve_roster(&[]);
    let mut slow = Subscriber::of(&host);
    flood(&host);
    // Meanwhile it reads nothing, and another subscriber gets the events of a job from its beginning to its end.
    let mut quick = Subscriber::of(&host);
    let job = host.at("quick").start("t");
    assert_eq!(quick.up_to("job-ended", &job), [format!("job-started {job}"), format!("job-ended {job}")]);

    // Now it reads again: what was sent before, how much it missed, and what is stored.
    let events = slow.up_to("job-ended", &job);
    let gaps = events.iter().filter(|event| event.starts_with("gap")).count();
    let questions = events.iter().filter(|event| event.starts_with("job-question")).count();
    assert!(gaps > 0 && questions < 1600, "{gaps} gaps, {questions} questions");
    assert!(events.len() > 32, "it goes on after a gap: {events:?}");
}

#[test]
fn a_subscriber_that_never_reads_is_disconnected_and_makes_room_for_others() {
    let home = home("[limits]\nevents_kept = 4096\nlisteners = 1\nclient_seconds = 1\n");
    probe(&home);
    let host = home.serve_roster(&[]);
    let deaf = Subscriber::of(&host);
    assert_eq!(refused(&host, "", &[]).0, 503);
    flood(&host);
    wait_for("the place of one who never reads", || (ask(host.port, "", &[]).0 == 200).then_some(()));
    drop(deaf);
}

#[test]
fn as_many_may_subscribe_as_the_limit_and_one_more_gets_retry_after() {
    // One caller has not all of them.
    let home = home("[limits]\nlisteners = 3\n");
    home.quick("quick");
    let host = home.serve_roster(&[]);
    let (mut first, second) = (Subscriber::of(&host), Subscriber::of(&host));
    let (status, answer) = refused(&host, "", &[]);
    assert!(status == 503 && answer.contains("retry-after: 5") && answer.contains("limits.listeners = 3"), "{answer}");
    drop(second);
    let mut third = wait_for("a place", || Some(ask(host.port, "", &[])).filter(|(status, ..)| *status == 200)).2;
    let job = host.at("quick").start("t");
    first.up_to("job-ended", &job);
    let mut line = String::new();
    while !line.contains(&job) {
        third.read_line(&mut line).unwrap();
    }
}

#[test]
fn a_thousand_subscribers_all_get_the_end_of_a_job() {
    // Each of them is a file descriptor here, too.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
    let home = home("[limits]\nlisteners = 1200\n");
    home.quick("quick");
    let host = home.serve_roster(&[]);
    let mut subscribers: Vec<_> = (0..1000).map(|_| Subscriber::of(&host)).collect();
    let job = host.at("quick").start("t");
    let expected = [format!("job-started {job}"), format!("job-ended {job}")];
    for subscriber in &mut subscribers {
        assert_eq!(subscriber.up_to("job-ended", &job), expected);
    }
}

#[test]
fn a_token_gets_events_of_its_members_and_only_while_it_is_valid() {
    let limits = "[limits]\ntoken_requests_at_once = 1\n";
    let home = home(&format!("require_token = true\naudit_log = \"audit.jsonl\"\naudit_log_reads = true\n{limits}"));
    home.quick("ann");
    home.quick("bob");
    let add = |arguments: &[&str]| {
        let added = home.run(&[&["token", "add"], arguments].concat());
        assert!(added.status.success());
        String::from_utf8(added.stdout).unwrap().trim().to_owned()
    };
    let (all, ann) = (add(&["all"]), add(&["ann", "--role", "view", "--members", "ann"]));
    let mut host = home.serve_roster(&[]);
    let bearer = |token: &str| format!("Authorization: Bearer {token}");
    assert_eq!(refused(&host, "", &[]).0, 401);
    assert_eq!(refused(&host, "", &[&bearer("guild_0")]).0, 401);
    let (status, answer) = refused(&host, "?member=bob", &[&bearer(&ann)]);
    assert!(status == 403 && answer.contains("not for the member bob"), "{answer}");

    // A listener has no place among the requests that are under way.
    let mut of_all = Subscriber::at(&host, "", &[&bearer(&all)]);
    let mut of_ann = Subscriber::at(&host, "", &[&bearer(&ann)]);
    host.token = Some(all.clone());
    let [of_bob, hers] = ["bob", "ann"].map(|member| host.at(member).start("t"));
    of_all.up_to("job-ended", &of_bob);
    assert_eq!(of_ann.up_to("job-ended", &hers), [format!("job-started {hers}"), format!("job-ended {hers}")]);

    assert!(home.run(&["token", "revoke", "ann"]).status.success());
    host.at("ann").start("t");
    assert_eq!(of_ann.next(), None);
    let audit = fs::read_to_string(home.path("audit.jsonl")).unwrap();
    let lines = audit.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let listened: Vec<_> = lines.filter(|line| line["method"] == "events").map(|line| line["who"].clone()).collect();
    assert_eq!(listened, ["token:all", "token:ann"]);
}

#[test]
fn the_client_resumes_after_its_host_was_restarted() {
    let home = Home::new();
    home.quick("quick");
    let host = home.serve_roster(&[]);
    let port = host.port;
    let url = format!("http://127.0.0.1:{port}/members/quick/mcp");
    Runtime::new().unwrap().block_on(async {
        let filter = Filter { kinds: vec![Kind::JobEnded], ..Filter::default() };
        let mut events = Events::new(&url, &filter, &Options::default()).unwrap();
        events.connect().await.unwrap();
        let job = start(&host, "quick").await;
        let ended = events.next().await.unwrap();
        assert_eq!(ended.event.job_id.as_ref().map(ToString::to_string), Some(job));
        assert_eq!(ended.event.member.as_ref().map(ToString::to_string), Some("quick".to_owned()));
        assert!(ended.json.get().contains(r#""kind":"job-ended""#));

        host.stop();
        let lost = events.next().await.unwrap_err();
        assert!(lost.may_pass(), "{lost}");
        let host = serve_at(&home, port);
        let gap = loop {
            match events.next().await {
                Ok(gap) => break gap,
                Err(error) => assert!(error.may_pass(), "{error}"),
            }
        };
        assert_eq!(gap.event.news, EventDetail::Gap { missed: None });
        let job = start(&host, "quick").await;
        let second = events.next().await.unwrap();
        assert_eq!(second.event.job_id.as_ref().map(ToString::to_string), Some(job));

        let wrong = Filter { kinds: vec![Kind::JobEnded], ..Filter::default() };
        let resumed = Events::new(&url, &wrong, &Options::default()).unwrap().resume(&ended.id).unwrap().next().await;
        assert_eq!(resumed.unwrap().event.news, EventDetail::Gap { missed: None });
        let mut nonsense = Events::new(&url, &wrong, &Options::default()).unwrap().resume("x").unwrap();
        let refused = nonsense.next().await.unwrap_err();
        assert!(!refused.may_pass() && refused.to_string().contains("400"), "{refused}");
    });
}

/// `guild watch` in the background.
struct Watching {
    child: Child,
    out: std::path::PathBuf,
    err: std::path::PathBuf,
}

impl Watching {
    fn start(home: &Home, url: &str, arguments: &[&str]) -> Self {
        let [out, err] = ["watch.out", "watch.err"].map(|name| home.path(name));
        let mut command = home.guild();
        command.env("GUILD_URL", url).arg("watch").args(arguments);
        let child = command.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap()).spawn().unwrap();
        let watching = Self { child, out, err };
        wait_for("the command to listen", || watching.errors().contains("watching").then_some(()));
        watching
    }

    fn read(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    fn errors(&self) -> String {
        Self::read(&self.err)
    }

    /// Waits for a line that ends so.
    fn sees(&self, end: &str) {
        wait_for(end, || Self::read(&self.out).lines().any(|line| line.ends_with(end)).then_some(()));
    }

    /// Its exit code, and what it printed.
    fn ended(mut self) -> (Option<i32>, String) {
        let status = wait_for("the command to end", || self.child.try_wait().unwrap());
        (status.code(), Self::read(&self.out))
    }
}

#[test]
fn watch_shows_one_line_for_each_event_and_resumes_after_a_restart() {
    let home = Home::new();
    home.quick("quick");
    let host = serve_at(&home, free_port());
    let port = host.port;
    let url = format!("http://127.0.0.1:{port}");
    let watching = Watching::start(&home, &url, &[]);
    let job = Runtime::new().unwrap().block_on(start(&host, "quick"));
    watching.sees(&format!("quick  {job}  started: Do it."));
    watching.sees(&format!("quick  {job}  completed"));
    host.stop();
    wait_for("the command to see that", || watching.errors().contains("trying again").then_some(()));
    let host = serve_at(&home, port);
    watching.sees("the host was started again; earlier events are missing here");
    let job = host.at("quick").start("More.");
    watching.sees(&format!("quick  {job}  completed"));
    let interrupted = Command::new("kill").args(["-INT", &watching.child.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    assert_eq!(watching.ended().0, Some(0));

    let nobody = home.guild().args(["watch", "--url", &format!("http://127.0.0.1:{}", free_port())]).output().unwrap();
    assert!(nobody.status.code() == Some(1) && String::from_utf8_lossy(&nobody.stderr).contains("guild serve"));
}

#[test]
fn watch_ends_with_the_job_as_the_job_did() {
    let home = Home::new();
    home.quick("quick");
    home.failing("failing");
    home.endless("endless");
    let host = home.serve_roster(&[]);
    let url = format!("http://127.0.0.1:{}", host.port);
    let endless = host.at("endless");
    let job = endless.start("t");
    let watching = Watching::start(&home, &url, &["--member", "endless", "--job", &job, "--json"]);
    endless.cancel(&job).unwrap();
    let (code, out) = watching.ended();
    let event: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert_eq!((code, &event["status"], &event["jobId"]), (Some(4), &json!("cancelled"), &json!(job)));

    // The event of a job that ended before comes all the same.
    for (member, code, end) in [("quick", 0, "  completed"), ("failing", 3, "  failed: date")] {
        let client = host.at(member);
        let job = client.start("t");
        client.ended(&job);
        let ended = Watching::start(&home, &url, &["--member", member, "--job", &job]).ended();
        assert!(ended.0 == Some(code) && ended.1.trim_end().ends_with(end), "{ended:?}");
    }
    let unknown = Watching::start(&home, &url, &["--member", "quick", "--job", "nothing"]).ended();
    assert_eq!(unknown.0, Some(1));
    let whose = home.guild().args(["watch", "--job", "j", "--url", &url]).output().unwrap();
    assert!(whose.status.code() == Some(1) && String::from_utf8_lossy(&whose.stderr).contains("no job j"));
}
