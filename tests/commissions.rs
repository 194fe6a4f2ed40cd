//! Commissions through the real host: its socket, real git projects, real components. `host/hall` has what holds of one
//! commission; here is that all of it is wired.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    path::{Path, PathBuf},
    process::Output,
};

use guild_fakes::{OpenAi, Provider, Received, Reply, git};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::support::{
    guest::{self, Guest},
    host::{Home, Host, PATIENCE, wait_for},
    output::{stderr, stdout},
};

/// What the models of providers cost here.
const PRICES: &str = "[[prices]]\nmodel = \"fake\"\ninput = 1.0\noutput = 2.0\n\
    [[prices]]\nmodel = \"another\"\ninput = 1.0\noutput = 2.0\n";

/// A home with a hall, and projects in which work is permitted.
pub(crate) struct Hall {
    pub(crate) home: Home,
}

impl Hall {
    pub(crate) fn new(projects: &[&str]) -> Self {
        let home = Home::new();
        let this = Self { home };
        let (mut config, mut permits) = ("projects:\n".to_owned(), String::new());
        for name in projects {
            let path = this.project(name);
            this.home
                .write(&format!("code/{name}/.lore/specs/moths.md"), "# Moths\n\nThe luna moth lives for a week.\n");
            this.home.write(&format!("code/{name}/src/code.txt"), "code\n");
            git(&path, &["init", "--quiet", "--initial-branch=main"]);
            git(&path, &["add", "--all"]);
            git(&path, &["commit", "--quiet", "--message=Begin"]);
            config.push_str(&format!("  - name: {name}\n    path: {}\n", path.display()));
            permits.push_str(&format!("[[project]]\npath = {path:?}\n"));
        }
        this.home.write("hall/config.yaml", config);
        this.home.write("config/guild/guild.toml", permits);
        this
    }

    /// Adds these lines to the operator's configuration.
    pub(crate) fn configure(&self, lines: &str) {
        let config = self.home.path("config/guild/guild.toml");
        let before = fs::read_to_string(&config).unwrap();
        fs::write(&config, format!("{before}{lines}\n")).unwrap();
    }

    pub(crate) fn project(&self, name: &str) -> PathBuf {
        fs::canonicalize(self.home.path(".")).unwrap().join("code").join(name)
    }

    fn integration(&self, name: &str) -> PathBuf {
        self.home.path("hall/projects").join(name)
    }

    /// Runs a command of the command line on it.
    fn guild(&self, arguments: &[&str]) -> Output {
        let home = self.home.path("hall");
        self.home.run(&[arguments, &["--home", home.to_str().unwrap()]].concat())
    }

    pub(crate) fn serve(&self) -> Host {
        self.home.serve_roster(&["--hall", self.home.path("hall").to_str().unwrap()])
    }

    fn try_ask(&self, method: &str, path: &str, body: Option<&Value>) -> std::io::Result<(u16, Value)> {
        let mut stream = UnixStream::connect(self.home.path("hall/guild-hall.sock"))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let body = body.map(Value::to_string).unwrap_or_default();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or(std::io::ErrorKind::InvalidData)?;
        Ok((status, serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {answer}"))))
    }

    pub(crate) fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.try_ask("POST", path, Some(&body)).unwrap()
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let (status, answer) = self.try_ask("GET", path, None).unwrap();
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    /// Makes a commission of a worker; its id.
    pub(crate) fn create(&self, project: &str, worker: &str, more: Value) -> String {
        let mut body = json!({"projectName": project, "workerName": worker, "title": "How long do moths live",
            "prompt": "How long does the luna moth live?"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (status, answer) = self.post("/commission/request/commission/create", body);
        assert_eq!(status, 201, "{answer}");
        answer["commissionId"].as_str().unwrap().to_owned()
    }

    pub(crate) fn dispatch(&self, id: &str) -> Value {
        let (status, answer) = self.post("/commission/run/dispatch", json!({"commissionId": id}));
        assert_eq!(status, 202, "{answer}");
        answer["status"].clone()
    }

    pub(crate) fn read(&self, project: &str, id: &str) -> Value {
        self.get(&format!("/commission/request/commission/read?projectName={project}&commissionId={id}"))
    }

    /// One with the project `demo`, and a researcher whose sessions ask this provider.
    pub(crate) fn with_researcher(provider: &Provider) -> Self {
        let this = Self::new(&["demo"]);
        this.home.researcher("researcher");
        this.ask(provider);
        this
    }

    /// Gives the researcher a toolbox.
    pub(crate) fn toolbox(&self, name: &str, component: &[u8]) {
        self.home.member(name, "toolbox-plugin", component);
        self.home.edit_manifest(name, |manifest| manifest["capabilities"] = json!(["tools"]));
        self.home.edit_manifest("researcher", |manifest| manifest["component"]["toolboxes"] = json!([name]));
    }

    /// Has sessions ask this provider.
    pub(crate) fn ask(&self, provider: &Provider) {
        let config = self.home.path("config/guild/guild.toml");
        let url = provider.url();
        let api =
            format!("agent = \"api\"\n[api]\nprovider = \"openai\"\nmodel = \"fake\"\nbase_url = \"{url}/v1/\"\n");
        fs::write(&config, format!("{api}{PRICES}{}", fs::read_to_string(&config).unwrap())).unwrap();
    }

    pub(crate) fn failed(&self, project: &str, id: &str) -> Value {
        wait_for(&format!("{id} to fail"), || {
            let read = self.read(project, id);
            (read["commission"]["status"] == "failed").then_some(read)
        })
    }

    pub(crate) fn until(&self, project: &str, id: &str, status: &str) -> Value {
        wait_for(&format!("{id} to be {status}"), || {
            let read = self.read(project, id);
            let is = &read["commission"]["status"];
            assert!(is == status || *is != "failed", "{}", read["timeline"]);
            (is == status).then_some(read)
        })
    }
}

/// A `git` of the host that kills it at one of its runs: an odd one before it does anything, an even one when it is done.
struct Killer(PathBuf);

impl Killer {
    fn new(home: &mut Home) -> Self {
        let path = std::env::var("PATH").unwrap();
        let real = path.split(':').map(|dir| Path::new(dir).join("git")).find(|file| file.exists()).unwrap();
        let dir = home.path("killer");
        let script = format!(
            "#!/bin/sh\nruns={0}/runs; armed={0}/armed; printf x >> $runs; n=$(wc -c < $runs)\n\
             if [ $n -ge \"$(cat $armed 2> /dev/null || echo 999999)\" ] && mv $armed $armed.fired 2> /dev/null; then\n\
               echo \"$n $*\" >> {0}/killed\n\
               [ $((n % 2)) = 1 ] || {1} \"$@\"\n\
               kill -9 $PPID; exit 1\n\
             fi\n\
             exec {1} \"$@\"\n",
            dir.display(),
            real.display()
        );
        let program = home.write("killer/git", script);
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        home.set("PATH", &format!("{}:{path}", dir.display()));
        Self(dir)
    }

    /// At this run from now on.
    fn arm(&self, run: usize) {
        fs::write(self.0.join("new"), run.to_string()).unwrap();
        fs::write(self.0.join("runs"), "").unwrap();
        fs::rename(self.0.join("new"), self.0.join("armed")).unwrap();
    }

    fn disarm(&self) {
        let _ = fs::remove_file(self.0.join("armed"));
    }
}

#[test]
fn a_researcher_answers_from_the_projects_documents_and_the_second_commission_waits_for_the_first() {
    let hall = Hall::new(&["demo"]);
    hall.home.researcher("researcher");
    let host = hall.serve();
    let mode = fs::metadata(hall.home.path("hall/guild-hall.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let first = hall.create("demo", "researcher", json!({}));
    let second = hall.create("demo", "researcher", json!({"dependencies": [first]}));
    assert_eq!(hall.dispatch(&second), "queued");
    assert_eq!(hall.read("demo", &second)["commission"]["status"], "blocked");
    assert_eq!(hall.dispatch(&first), "accepted");
    hall.until("demo", &second, "completed");
    let read = hall.read("demo", &first);
    let report = read["commission"]["result_summary"].as_str().unwrap();
    assert!(report.contains("The luna moth lives for a week.") && report.contains("lore/specs/moths.md"), "{report}");
    // It is an ordinary job of the member.
    let job = read["commission"]["jobId"].as_str().unwrap();
    assert_eq!(host.at("researcher").status(job).unwrap()["status"], "completed");
    let log = git(&hall.project("demo"), &["log", "--format=%s", "claude/main"]);
    for id in [&first, &second] {
        assert_eq!(log.lines().filter(|line| **line == format!("Commission: {id}")).count(), 1, "{log}");
    }
    assert_eq!(git(&hall.project("demo"), &["status", "--porcelain"]), "");
    let (status, output) = host.stop();
    assert!(status.success(), "{output}");
    assert!(!hall.home.path("hall/guild-hall.sock").exists());
}

#[test]
fn a_report_cites_no_records_of_the_hall() {
    let hall = Hall::new(&["demo"]);
    hall.home.researcher("researcher");
    let project = hall.project("demo");
    for records in ["work/meetings", "meetings", "commissions"] {
        let record = format!("code/demo/.lore/{records}/old.md");
        hall.home.write(&record, "# Old\n\nSomebody said that the luna moth lives for a year.\n");
    }
    git(&project, &["add", "--all"]);
    git(&project, &["commit", "--quiet", "--message=Add old records"]);
    let _host = hall.serve();
    for _ in 0..2 {
        let id = hall.create("demo", "researcher", json!({}));
        hall.dispatch(&id);
        hall.until("demo", &id, "completed");
        let read = hall.read("demo", &id);
        let report = read["commission"]["result_summary"].as_str().unwrap();
        assert!(report.contains("The luna moth lives for a week.") && !report.contains("for a year"), "{report}");
        assert!(report.contains("lore/specs/moths.md") && !report.contains("lore/work"), "{report}");
        assert!(report.contains("Searched: 2 documents in"), "{report}");
    }
}

#[test]
fn a_component_is_told_which_commission_it_works_on() {
    // The activation begins with its context: 36 is whether it is an attempt, 40 and 44 are the commission's id, 48 is which
    // attempt it is.
    let run =
        "(if (i32.eqz (i32.load8_u offset=36 (local.get 0))) (then (return (call $ok (i32.const 1024) (i32.const 4)))))
               (if (i32.ne (i32.load offset=48 (local.get 0)) (i32.const 1)) (then unreachable))
               (call $ok (i32.load offset=40 (local.get 0)) (i32.load offset=44 (local.get 0)))";
    let component = Guest::default().run(run).with("(data (i32.const 1024) \"none\")").build();
    let hall = Hall::new(&["demo"]);
    hall.home.member("told", "autonomous-worker", &component);
    let host = hall.serve();
    let client = host.at("told");
    let job = client.start("dispatched to it alone");
    client.ended(&job);
    assert_eq!(client.result(&job).unwrap()["output"], "none");
    let id = hall.create("demo", "told", json!({}));
    hall.dispatch(&id);
    let read = hall.until("demo", &id, "completed");
    assert_eq!(read["commission"]["result_summary"], id);
}

#[test]
fn a_cancelled_commission_has_no_job_that_runs_and_can_be_taken_up_again() {
    let hall = Hall::new(&["demo"]);
    hall.home.endless("endless");
    let host = hall.serve();
    let id = hall.create("demo", "endless", json!({}));
    assert_eq!(hall.dispatch(&id), "accepted");
    let job = hall.until("demo", &id, "in_progress")["commission"]["jobId"].as_str().unwrap().to_owned();
    let (status, answer) = hall.post("/commission/run/cancel", json!({"commissionId": id, "reason": "Not now"}));
    assert_eq!((status, answer), (200, json!({"status": "ok"})));
    assert_eq!(host.at("endless").status(&job).unwrap()["status"], "cancelled");
    let read = hall.read("demo", &id);
    assert_eq!(read["timeline"].as_array().unwrap().last().unwrap()["reason"], "Not now");
    let (status, answer) = hall.post("/commission/run/redispatch", json!({"commissionId": id}));
    assert_eq!((status, &answer["status"]), (202, &json!("accepted")), "{answer}");
    // A job that is cancelled by its own id ends the commission too.
    let again = hall.until("demo", &id, "in_progress")["commission"]["jobId"].as_str().unwrap().to_owned();
    assert_ne!(again, job);
    host.at("endless").cancel(&again).unwrap();
    hall.until("demo", &id, "cancelled");
    let branches =
        git(&hall.project("demo"), &["branch", "--list", "--format=%(refname:short)", "claude/commission/*"]);
    let expected = [format!("claude/commission/{id}"), format!("claude/commission/{id}-2")];
    assert_eq!(branches.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn twenty_commissions_on_four_projects_are_each_merged_once_whenever_the_host_is_killed() {
    let projects = ["one", "two", "three", "four"];
    let mut hall = Hall::new(&projects);
    // A slow machine may meet one job with each kill.
    hall.configure("[limits]\nresumes = 20");
    hall.home.researcher("researcher");
    hall.home.quick("quick");
    let killer = Killer::new(&mut hall.home);
    let mut host = hall.serve();
    let mut made = Vec::new();
    for nth in 0..20 {
        let (project, worker) = (projects[nth % 4], ["researcher", "quick"][nth % 2]);
        made.push((project, hall.create(project, worker, json!({}))));
    }
    for run in 1..=24 {
        killer.arm(run);
        for (_, id) in made.iter().skip(run - 1).take(1) {
            // The host may be gone before it answers.
            let _ = hall.try_ask("POST", "/commission/run/dispatch", Some(&json!({"commissionId": id})));
        }
        let is_done = |id: &str, project: &str| {
            let path = format!("/commission/request/commission/read?projectName={project}&commissionId={id}");
            let read = hall.try_ask("GET", &path, None);
            read.is_ok_and(|(_, read)| ["completed", "failed"].iter().any(|end| read["commission"]["status"] == *end))
        };
        wait_for("the host to be killed, or all to end", || {
            let asked = made.iter().take(run);
            (host.has_ended() || asked.clone().all(|(project, id)| is_done(id, project))).then_some(())
        });
        host.kill();
        host = hall.serve();
        let listed = hall.get("/commission/request/commission/list");
        let listed = listed["commissions"].as_array().unwrap();
        assert_eq!(listed.len(), made.len());
        let active = |project: Option<&str>| {
            let active = listed.iter().filter(|one| one["status"] == "dispatched" || one["status"] == "in_progress");
            active.filter(|one| project.is_none_or(|project| one["projectName"] == project)).count()
        };
        assert!(active(None) <= 10 && projects.iter().all(|project| active(Some(project)) <= 3), "{listed:?}");
    }
    killer.disarm();
    for (project, id) in &made {
        // The host was gone before it had stored that this was asked for.
        if hall.read(project, id)["commission"]["status"] == "pending" {
            hall.post("/commission/run/dispatch", json!({"commissionId": id}));
        }
    }
    let url = format!("http://127.0.0.1:{}/mcp", host.port);
    // A job that was resumed alone when its host was killed is taken for the cause, which it was.
    let let_on = |read: &Value| {
        let Some(job) = read["commission"]["jobId"].as_str() else { return };
        let meta = hall.home.path("members/researcher/jobs").join(job).join("meta.json");
        if fs::read_to_string(meta).is_ok_and(|meta| meta.contains("heldBack")) {
            hall.home.run(&["resume", job, "--url", &url]);
        }
    };
    for (project, id) in &made {
        let read = wait_for(&format!("{id} to end"), || {
            let read = hall.read(project, id);
            let_on(&read);
            let status = read["commission"]["status"].as_str().unwrap();
            ["completed", "failed"].contains(&status).then_some(read)
        });
        // A component that carries its job out itself is not resumed, and says so.
        let status = read["commission"]["status"].as_str().unwrap().to_owned();
        let reason = read["timeline"].as_array().unwrap().last().unwrap()["reason"].as_str().unwrap().to_owned();
        let is_own_run = read["commission"]["worker"] == "quick";
        assert!(status == "completed" || (is_own_run && reason.contains("interrupted")), "{id}: {status}: {reason}");
        let log = git(&hall.project(project), &["log", "--format=%s", "claude/main"]);
        let merges = log.lines().filter(|line| **line == format!("Commission: {id}")).count();
        assert_eq!(merges, usize::from(status == "completed"), "{id}: {log}");
        assert!(!hall.home.path("hall/worktrees").join(project).join(id).exists());
    }
    for project in projects {
        assert_eq!(git(&hall.project(project), &["status", "--porcelain"]), "");
        assert_eq!(git(&hall.integration(project), &["diff", "--name-only", "--diff-filter=U"]), "");
    }
}

#[test]
fn a_worker_that_is_not_granted_all_that_it_asks_for_does_not_begin() {
    let hall = Hall::new(&["demo"]);
    hall.home.quick("writer");
    hall.home.edit_manifest("writer", |manifest| {
        manifest["component"]["grants"] = json!({"worktree": {"write": true}});
    });
    hall.configure("[member.writer]\ndeny = [\"worktree:write\"]");
    let _host = hall.serve();
    let id = hall.create("demo", "writer", json!({}));
    hall.dispatch(&id);
    let read = hall.failed("demo", &id);
    let why = read["timeline"].as_array().unwrap().last().unwrap()["reason"].as_str().unwrap();
    assert!(why.contains("writer asks for `worktree:write`") && why.contains("guild.toml"), "{why}");
    let jobs = fs::read_dir(hall.home.path("members/writer/jobs"));
    assert_eq!(jobs.map_or(0, Iterator::count), 0, "no job was begun");
}

#[test]
fn a_session_has_the_tools_of_commissions_and_what_it_writes_with_them_is_merged() {
    let runtime = Runtime::new().unwrap();
    let note = json!({"scope": "project", "path": "moths", "content": "They live for a week."});
    let decided = json!({"question": "q", "decision": "the luna moth", "reasoning": "r"});
    let provider = runtime.block_on(OpenAi::start(move |request: &Received| match request.turn() {
        0 => Reply::call("list_artifacts", json!({}))
            .and_call("read_artifact", json!({"relativePath": "specs/moths.md"})),
        1 => Reply::call("Read", json!({"file_path": "demo/src/code.txt"}))
            .and_call("write_artifact", json!({"relativePath": "reports/moths.md", "content": "A week.\n"}))
            .and_call("write_artifact", json!({"relativePath": "work/commissions/mine.md", "content": "forged"}))
            .and_call("workspace_edit", json!({"path": "src/code.txt", "old": "code", "new": "moths"}))
            .and_call("workspace_write", json!({"path": ".git/config", "content": "forged"})),
        2 => Reply::call("report_progress", json!({"summary": "Half of it is done."}))
            .and_call("record_decision", decided.clone())
            .and_call("log_question", json!({"question": "Which moth?"}))
            .and_call("write_memory", note.clone())
            .and_call("write_memory", json!({"scope": "global", "path": "moths", "content": "For everybody."})),
        3 => Reply::call("submit_result", json!({"summary": "A week.", "artifacts": ["reports/moths.md"]})),
        _ => Reply::text("Done."),
    }));
    let hall = Hall::new(&["demo"]);
    hall.home.researcher("researcher");
    // It asks for none of them: they are those of every worker (REQ-WKR-2, REQ-WKR-9).
    hall.home.edit_manifest("researcher", |manifest| manifest["component"]["tools"] = json!([]));
    hall.ask(&provider);
    let host = hall.serve();
    let id = hall.create("demo", "researcher", json!({}));
    hall.dispatch(&id);
    let read = hall.until("demo", &id, "completed");

    let commission = &read["commission"];
    let result = commission["result_summary"].as_str().unwrap();
    assert!(result.starts_with("A week.\n\n## Decisions\n") && result.contains("the luna moth"), "{read}");
    assert_eq!(commission["current_progress"], "Half of it is done.");
    assert_eq!(commission["linked_artifacts"], json!(["reports/moths.md"]));
    let told: Vec<_> =
        read["timeline"].as_array().unwrap().iter().map(|entry| entry["event"].as_str().unwrap()).collect();
    for event in ["progress_report", "question", "result_submitted"] {
        assert!(told.contains(&event), "{event}: {told:?}");
    }
    let project = hall.project("demo");
    let shows = |path: &str| git(&project, &["show", &format!("claude/main:{path}")]);
    assert_eq!((shows(".lore/reports/moths.md"), shows("src/code.txt")), ("A week.".into(), "moths".into()));
    assert_eq!(fs::read_to_string(project.join("src/code.txt")).unwrap(), "code\n", "the user's own files stay");
    assert_eq!(git(&project, &["ls-tree", "claude/main", ".lore/work/commissions/mine.md"]), "");
    assert_eq!(
        fs::read_to_string(hall.home.path("hall/memory/projects/demo/moths.md")).unwrap(),
        "They live for a week."
    );

    // Notes for all projects take a rule of the operator's.
    let asked = runtime.block_on(provider.received(5));
    let refused = asked[3].body["messages"].to_string();
    assert!(refused.contains("memory:global:write") && refused.contains("[member."), "{refused}");
    assert!(!hall.home.path("hall/memory/global/moths.md").exists());

    // These tools and no others: no shell, and no web that nobody granted.
    let expected = [
        "Glob",
        "Grep",
        "Read",
        "add_heartbeat_entry",
        "edit_memory",
        "list_artifacts",
        "log_question",
        "read_artifact",
        "read_memory",
        "record_decision",
        "report_progress",
        "store_memory",
        "submit_result",
        "update_summary",
        "workspace_edit",
        "workspace_write",
        "write_artifact",
        "write_memory",
    ];
    assert_eq!(asked[0].tool_names().into_iter().collect::<Vec<_>>(), expected);
    let (status, output) = host.stop();
    assert!(status.success(), "{output}");
}

#[test]
fn a_commission_overrides_the_turns_and_the_model_of_its_worker() {
    let runtime = Runtime::new().unwrap();
    let look = || Reply::call("list_artifacts", json!({}));
    let provider = runtime.block_on(OpenAi::start(move |_: &Received| look()));
    let hall = Hall::with_researcher(&provider);
    let _host = hall.serve();
    let id = hall.create("demo", "researcher", json!({"resourceOverrides": {"maxTurns": 2, "model": "another"}}));
    hall.dispatch(&id);
    let read = hall.failed("demo", &id);
    let why = read["timeline"].as_array().unwrap().last().unwrap()["reason"].as_str().unwrap();
    assert!(why.contains("turns") && why.contains('2'), "{why}");
    let requests = provider.requests();
    assert_eq!(
        requests.iter().map(|request| request.body["model"].clone()).collect::<Vec<_>>(),
        ["another", "another"]
    );
}

#[test]
fn a_session_that_submits_no_result_fails_and_its_branch_and_last_text_are_kept() {
    let runtime = Runtime::new().unwrap();
    let provider = runtime.block_on(OpenAi::start(|request: &Received| match request.turn() {
        0 => Reply::call("write_artifact", json!({"relativePath": "reports/moths.md", "content": "Half.\n"})),
        _ => Reply::text("A week, I think."),
    }));
    let hall = Hall::with_researcher(&provider);
    hall.home.edit_manifest("researcher", |manifest| {
        manifest["component"]["grants"] = json!({"lore": {"write": true}});
    });
    let host = hall.serve();
    let id = hall.create("demo", "researcher", json!({}));
    hall.dispatch(&id);
    let read = hall.failed("demo", &id);
    let why = "Session completed without submitting result";
    let timeline = read["timeline"].as_array().unwrap();
    let [.., text, end] = timeline.as_slice() else { panic!("{read}") };
    assert_eq!((&text["event"], &text["reason"]), (&json!("last_text"), &json!("A week, I think.")));
    assert_eq!((&end["event"], &end["reason"]), (&json!("status_failed"), &json!(why)));
    assert_eq!(read["commission"]["result_summary"], "");
    let on_branch = |path: &str| git(&hall.project("demo"), &["show", &format!("claude/commission/{id}:.lore/{path}")]);
    assert_eq!(on_branch("reports/moths.md"), "Half.");
    let record = on_branch(&format!("work/commissions/{id}.md"));
    assert!(record.contains("A week, I think.") && record.contains(why), "{record}");
    assert_eq!(git(&hall.project("demo"), &["ls-tree", "claude/main", ".lore/reports"]), "");
    let job = host.at("researcher").status(read["commission"]["jobId"].as_str().unwrap()).unwrap();
    assert_eq!((&job["status"], &job["error"]), (&json!("failed"), &json!(why)));
    // The last text of a job that was dispatched by itself is its result.
    let client = host.at("researcher");
    let job = client.start("How long do moths live?");
    client.ended(&job);
    assert_eq!(client.result(&job).unwrap()["output"], "A week, I think.");
}

#[test]
fn the_catalogue_has_the_models_of_this_host_and_another_is_refused_at_create() {
    let runtime = Runtime::new().unwrap();
    let provider = runtime.block_on(OpenAi::start(vec![Reply::text("never asked")]));
    let hall = Hall::with_researcher(&provider);
    let _host = hall.serve();
    let models = hall.get("/system/models/catalog/list");
    let known = ["another", "fake"].map(|name| json!({"name": name, "agent": "api"}));
    assert_eq!(models, json!({"builtin": known, "local": []}));
    let worker = &hall.get("/system/packages/worker/list")["workers"][0];
    assert_eq!((&worker["model"]["name"], &worker["agent"]), (&json!("fake"), &json!("api")));

    let refused = |(status, answer): (u16, Value)| {
        let why = answer["error"].as_str().unwrap_or_default().to_owned();
        assert_eq!(status, 400, "{answer}");
        for part in ["resourceOverrides.model: \"gpt-9\" cannot run", "[[prices]]", "It can run another, fake"] {
            assert!(why.contains(part), "{part}: {why}");
        }
    };
    let overrides = json!({"model": "gpt-9"});
    let new = json!({"projectName": "demo", "workerName": "researcher", "title": "t", "prompt": "p",
        "resourceOverrides": overrides});
    refused(hall.post("/commission/request/commission/create", new));
    let id = hall.create("demo", "researcher", json!({"resourceOverrides": {"model": "another"}}));
    let change = json!({"commissionId": id, "resourceOverrides": overrides});
    refused(hall.post("/commission/request/commission/update", change));
    let made = hall.guild(&["commission", "create", "demo", "researcher", "t", "--model", "gpt-9"]);
    assert_eq!(made.status.code(), Some(1));
    assert!(stderr(&made).contains("\"gpt-9\" cannot run"), "{}", stderr(&made));
    let listed = hall.get("/commission/request/commission/list");
    assert_eq!(listed["commissions"].as_array().unwrap().len(), 1);
}

#[test]
fn the_built_in_search_has_no_model_to_ask_for() {
    let hall = Hall::new(&["demo"]);
    hall.home.researcher("researcher");
    let _host = hall.serve();
    assert_eq!(hall.get("/system/models/catalog/list"), json!({"builtin": [], "local": []}));
    let worker = &hall.get("/system/packages/worker/list")["workers"][0];
    assert_eq!((&worker["model"], &worker["agent"]), (&Value::Null, &json!("extractive")));
    let new = json!({"projectName": "demo", "workerName": "researcher", "title": "t", "prompt": "p",
        "resourceOverrides": {"model": "opus"}});
    let (status, answer) = hall.post("/commission/request/commission/create", new);
    assert!(status == 400 && answer["error"].as_str().unwrap().contains("has no model"), "{status} {answer}");
}

#[test]
fn overrides_are_cut_to_the_operators_limits_and_each_answer_says_so() {
    let runtime = Runtime::new().unwrap();
    let provider = runtime.block_on(OpenAi::start(|_: &Received| Reply::call("list_artifacts", json!({}))));
    let hall = Hall::with_researcher(&provider);
    hall.configure("[limits]\nsession_turns = 30\n[member.researcher.limits]\nsession_turns = 2");
    let _host = hall.serve();
    let new = json!({"projectName": "demo", "workerName": "researcher", "title": "t", "prompt": "p",
        "resourceOverrides": {"maxTurns": 40, "maxBudgetUsd": 100.0}});
    let (status, made) = hall.post("/commission/request/commission/create", new);
    assert_eq!(status, 201, "{made}");
    let cut: Vec<&str> = made["cut"].as_array().unwrap().iter().map(|cut| cut.as_str().unwrap()).collect();
    let turns = "maxTurns 40 is cut to 2, limits.session_turns of [member.\"researcher\"] in guild.toml";
    assert_eq!(cut, [turns, "maxBudgetUsd 100 is cut to 5, limits.session_budget_usd in guild.toml"]);
    let id = made["commissionId"].as_str().unwrap();
    hall.dispatch(id);
    let read = hall.failed("demo", id);
    assert_eq!(read["commission"]["resource_overrides"], json!({"maxTurns": 2, "maxBudgetUsd": 5.0}));
    let timeline = read["timeline"].as_array().unwrap();
    let said = timeline.iter().filter(|entry| entry["event"] == "overrides_cut").map(|entry| &entry["reason"]);
    assert_eq!(said.collect::<Vec<_>>(), cut);
    assert_eq!(provider.requests().len(), 2);
    let made = hall.guild(&["commission", "create", "demo", "researcher", "t", "--max-turns", "40"]);
    assert!(made.status.success() && stderr(&made).contains(turns), "{}", stderr(&made));
    let shown = stdout(&hall.guild(&["commission", "show", id]));
    assert!(shown.contains("overrides    2 turns, 5 dollars\n"), "{shown}");
}

#[test]
fn the_command_line_tells_what_is_queued_and_what_is_blocked_by_what() {
    let hall = Hall::new(&["demo"]);
    hall.home.quick("quick");
    let projects = fs::read_to_string(hall.home.path("hall/config.yaml")).unwrap();
    hall.home.write("hall/config.yaml", format!("{projects}    commissionCap: 0\n"));
    let _host = hall.serve();
    let create = |more: &[&str]| {
        let made = hall.guild(&[&["commission", "create", "demo", "quick", "t"], more].concat());
        assert!(made.status.success(), "{}", stderr(&made));
        (stdout(&made).trim().to_owned(), stderr(&made))
    };
    let (pending, said) = create(&[]);
    assert_eq!(said, "");
    let (queued, _) = create(&["--dispatch"]);
    let (blocked, said) = create(&["--depends", &pending, "--depends", "specs/moth.md", "--dispatch"]);
    assert!(said.contains(&format!("{blocked} is blocked by {pending}: it is pending")), "{said}");
    assert!(said.contains("specs/moth.md: there is no such document") && said.contains("specs/moths.md?"), "{said}");
    let listed = stdout(&hall.guild(&["commission", "list"]));
    for (id, state) in [(&pending, "pending"), (&queued, "queued"), (&blocked, "blocked, queued")] {
        assert!(listed.contains(&format!("{id}\t{state}\t")), "{listed}");
    }
    let shown = stdout(&hall.guild(&["commission", "show", &blocked]));
    assert!(shown.contains(&format!("blocked by   {pending}: it is pending")), "{shown}");
    let read = hall.read("demo", &blocked);
    let commission = &read["commission"];
    assert_eq!((&commission["status"], &commission["queued"]), (&json!("blocked"), &json!(true)));
    assert_eq!(commission["blockedBy"][1]["dependency"], "specs/moth.md");
    let unknown = "commission-Quick-20200101-000000";
    let refused = hall.guild(&["commission", "create", "demo", "quick", "t", "--depends", unknown]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains(&format!("there is no commission {unknown}")), "{}", stderr(&refused));
}

#[test]
fn a_hostile_repository_runs_nothing() {
    let hall = Hall::new(&["demo", "linked"]);
    hall.home.researcher("researcher");
    let canary = hall.home.path("canary");
    let program = hall.home.write("program", format!("#!/bin/sh\ntouch {}\ncat\n", canary.display()));
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let (project, program) = (hall.project("demo"), program.to_str().unwrap().to_owned());
    for hook in ["pre-commit", "post-checkout", "post-merge", "reference-transaction", "post-index-change"] {
        fs::copy(&program, project.join(".git/hooks").join(hook)).unwrap();
    }
    for (key, value) in [("core.fsmonitor", program.as_str()), ("diff.external", &program), ("core.pager", &program)] {
        git(&project, &["config", key, value]);
    }
    // A directory of documents that is a link leads nowhere.
    let linked = hall.project("linked");
    let outside = hall.home.path("outside");
    fs::create_dir(&outside).unwrap();
    git(&linked, &["rm", "--quiet", "-r", ".lore"]);
    std::os::unix::fs::symlink(&outside, linked.join(".lore")).unwrap();
    git(&linked, &["add", "--all"]);
    git(&linked, &["commit", "--quiet", "--message=Link"]);

    let _host = hall.serve();
    let id = hall.create("demo", "researcher", json!({"title": "--upload-pack=touch canary"}));
    hall.dispatch(&id);
    hall.until("demo", &id, "completed");
    let body = json!({"projectName": "linked", "workerName": "researcher", "title": "t", "prompt": "p"});
    let (status, answer) = hall.post("/commission/request/commission/create", body);
    assert!(status >= 400 && answer["error"].as_str().unwrap().contains(".lore"), "{status} {answer}");
    assert!(!canary.exists());
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn as_many_characters_of_memories_are_given_as_the_limit_and_no_more() {
    let hall = Hall::new(&["demo", "tight"]);
    hall.home.researcher("researcher");
    hall.home.edit_manifest("researcher", |manifest| manifest["component"]["scopes"] = json!(["worker", "project"]));
    hall.configure("[limits]\ncommission_memory_chars = 6000");
    // Of the second project its own `memoryLimit` holds, in tokens of four characters.
    let projects = fs::read_to_string(hall.home.path("hall/config.yaml")).unwrap();
    hall.home.write("hall/config.yaml", format!("{projects}    memoryLimit: 1000\n"));
    for project in ["demo", "tight"] {
        for note in ["one", "two"] {
            hall.home.write(&format!("hall/memory/projects/{project}/{note}.md"), "x".repeat(2_950));
        }
    }
    let _host = hall.serve();
    for (project, given) in [("demo", 2), ("tight", 1)] {
        let id = hall.create(project, "researcher", json!({}));
        hall.dispatch(&id);
        let read = hall.until(project, &id, "completed");
        let job = hall.home.path("members/researcher/jobs").join(read["commission"]["jobId"].as_str().unwrap());
        let plan = fs::read_to_string(job.join("plan.json")).unwrap();
        assert_eq!(plan.matches("[project note `").count(), given, "{project}");
    }
}

/// The system prompt of the attempt of a commission that was answered as `read`.
fn system_prompt(hall: &Hall, worker: &str, read: &Value) -> String {
    let job = hall.home.path("members").join(worker).join("jobs").join(read["commission"]["jobId"].as_str().unwrap());
    let plan: Value = serde_json::from_slice(&fs::read(job.join("plan.json")).unwrap()).unwrap();
    plan["session"]["systemPrompt"].as_str().unwrap().to_owned()
}

#[test]
fn a_busy_project_takes_no_room_from_other_notes_and_what_exceeds_the_limit_is_condensed() {
    let hall = Hall::new(&["demo"]);
    hall.home.researcher("researcher");
    let scopes = json!(["worker", "project", "global"]);
    hall.home.edit_manifest("researcher", |manifest| manifest["component"]["scopes"] = scopes);
    let projects = fs::read_to_string(hall.home.path("hall/config.yaml")).unwrap();
    hall.home.write("hall/config.yaml", format!("{projects}    memoryLimit: 1000\n"));
    hall.home.write("members/researcher/memory/own.md", "Ask the keeper of the moths.");
    hall.home.write("hall/memory/global/style.md", "Write short words.");
    // These are newer, and more than the limit has room for.
    for n in 0..12 {
        let fact = format!("Lamp {n} attracts {n} luna moths in an hour of the night.\n").repeat(8);
        hall.home.write(&format!("hall/memory/projects/demo/lamp-{n}.md"), fact);
    }
    let _host = hall.serve();
    let prompt = |title: &str| {
        let id = hall.create("demo", "researcher", json!({"title": title}));
        hall.dispatch(&id);
        system_prompt(&hall, "researcher", &hall.until("demo", &id, "completed"))
    };
    let given = prompt("First");
    for expected in ["Ask the keeper of the moths.", "Write short words.", "[project note `lamp-11`"] {
        assert!(given.contains(expected), "{expected}: {given}");
    }
    let lamps = given.matches("[project note `lamp-").count();
    let said = format!("> Left out of these notes for want of room: {} (project). `read_memory` has them", 12 - lamps);
    assert!(lamps > 1 && given.contains(&said), "{said}: {given}");

    let condensed = hall.home.path("hall/memory/projects/demo/compacted.md");
    let condensed = wait_for("the project's notes to be condensed", || fs::read_to_string(&condensed).ok());
    // Half of the project's share of 4,000 characters, and nothing of the others.
    assert!(condensed.chars().count() <= 666 && condensed.contains("luna moths"), "{condensed}");
    assert!(!condensed.contains("keeper") && !condensed.contains("short words"), "{condensed}");
    wait_for("what was condensed to be gone", || {
        let left = fs::read_dir(hall.home.path("hall/memory/projects/demo")).unwrap();
        let lamps = left.filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().starts_with("lamp-"));
        (lamps.count() == 0).then_some(())
    });
    assert_eq!(
        fs::read_to_string(hall.home.path("members/researcher/memory/own.md")).unwrap(),
        "Ask the keeper of the moths."
    );
    let given = prompt("Second");
    for expected in
        ["Ask the keeper of the moths.", "Write short words.", "> [Written by the host, which condensed notes of"]
    {
        assert!(given.contains(expected), "{expected}: {given}");
    }
    assert!(!given.contains("want of room"), "{given}");
}

#[test]
fn prompts_say_who_wrote_the_notes_that_workers_share() {
    let runtime = Runtime::new().unwrap();
    let note = |scope: &str| json!({"scope": scope, "path": "moths", "content": "The luna moth does not eat."});
    let provider = runtime.block_on(OpenAi::start(move |request: &Received| match request.turn() {
        0 => Reply::call("write_memory", note("project")).and_call("write_memory", note("worker")),
        1 => Reply::call("read_memory", json!({"scope": "project"})),
        2 => Reply::call("submit_result", json!({"summary": "A week."})),
        _ => Reply::text("Done."),
    }));
    let hall = Hall::with_researcher(&provider);
    hall.home.edit_manifest("researcher", |manifest| manifest["component"]["scopes"] = json!(["worker", "project"]));
    hall.home.write("hall/memory/projects/demo/by-hand.md", "Lamps attract them.");
    let _host = hall.serve();
    let commission = || {
        let id = hall.create("demo", "researcher", json!({}));
        hall.dispatch(&id);
        let read = hall.until("demo", &id, "completed");
        (id, system_prompt(&hall, "researcher", &read))
    };
    let (first, _) = commission();
    let (_, prompt) = commission();
    let written = format!("> [Written by researcher in {first}. Check it before you rely on it.]\n> \n> The luna moth");
    assert!(prompt.contains(&written), "{written}: {prompt}");
    assert_eq!(prompt.matches("[Written by").count(), 1, "its own note, and a person's: {prompt}");
    // The list says so, too.
    let listed = format!("\\\"writtenBy\\\":\\\"researcher in {first}\\\"");
    let requests = provider.requests();
    assert!(requests.iter().any(|request| request.body["messages"].to_string().contains(&listed)), "{listed}");
}

#[test]
fn workers_share_the_memories_of_the_scopes_that_they_were_granted() {
    let hall = Hall::new(&["demo", "other"]);
    hall.home.researcher("researcher");
    hall.home.write("members/researcher/memory/own.md", "Ask the keeper of the moths.");
    hall.home.write("hall/memory/projects/demo/lamps.md", "The lamps burn until three.");
    hall.home.write("hall/memory/projects/demo.md", "## Doors\nThe cellar door sticks.\n");
    hall.home.write("hall/memory/projects/other/secret.md", "Nobody else's.");
    hall.home.write("hall/memory/global/all.md", "Everybody's.");
    hall.home.member("probe", "autonomous-worker", &guest::built("probe"));
    hall.home.edit_manifest("probe", |manifest| {
        manifest["component"]["grants"] = guest::everything();
        manifest["component"]["scopes"] = json!(["worker", "global"]);
    });
    hall.home.researcher("surfer");
    hall.home.edit_manifest("surfer", |manifest| manifest["component"]["grants"] = json!({"web": {"hosts": []}}));
    hall.configure("[member.probe]\nallow = [\"*\", \"memory:global:write\"]\n[web]\nallow = [\"example.org\"]");
    let _host = hall.serve();

    let id = hall.create("demo", "researcher", json!({}));
    hall.dispatch(&id);
    let read = hall.until("demo", &id, "completed");
    let job = hall.home.path("members/researcher/jobs").join(read["commission"]["jobId"].as_str().unwrap());
    let prompt = system_prompt(&hall, "researcher", &read);
    let given = [
        ("worker note `own`", "Ask the keeper of the moths."),
        ("project note `lamps`", "The lamps burn until three."),
        ("project note `Doors`", "The cellar door sticks."),
        ("global note `all`", "Everybody's."),
    ];
    for (heading, text) in given {
        assert!(prompt.contains(heading) && prompt.contains(text), "{heading}: {prompt}");
    }
    assert!(!prompt.contains("Nobody else's."), "{prompt}");
    let transcript = fs::read_to_string(job.join("transcript.jsonl")).unwrap();
    for tool in ["read_memory", "write_memory", "edit_memory"] {
        assert!(transcript.lines().next().unwrap().contains(&format!("\"{tool}\"")), "{tool}: {transcript}");
    }

    // A component that reaches the web by itself is given the notes that it asked for, and no others.
    let id = hall.create("demo", "surfer", json!({}));
    hall.dispatch(&id);
    let read = hall.until("demo", &id, "completed");
    let job = hall.home.path("members/surfer/jobs").join(read["commission"]["jobId"].as_str().unwrap());
    let plan = fs::read_to_string(job.join("plan.json")).unwrap();
    assert!(!plan.contains("The lamps burn until three.") && !plan.contains("Everybody's."), "{plan}");

    // What a component stores for all projects is there for a commission of another one.
    let probe = |project: &str, task: &str| {
        let id = hall.create(project, "probe", json!({"prompt": task}));
        hall.dispatch(&id);
        hall.until(project, &id, "completed")["rawContent"].as_str().unwrap().to_owned()
    };
    let report = probe("demo", "teach moths fly\nproject a b");
    assert!(report.contains("teach moths fly: ok") && report.contains("memory:project"), "{report}");
    assert_eq!(fs::read_to_string(hall.home.path("hall/memory/global/moths.md")).unwrap(), "fly");
    let report = probe("other", "global moths");
    assert!(report.contains("global moths: ok fly"), "{report}");
}

#[test]
fn a_gitignore_hides_no_tracked_file_from_a_commission_and_what_it_drops_is_refused() {
    let runtime = Runtime::new().unwrap();
    let provider = runtime.block_on(OpenAi::start(|request: &Received| match request.turn() {
        0 => Reply::call("Glob", json!({"pattern": "**/*.txt"}))
            .and_call("Grep", json!({"pattern": "code"}))
            .and_call("Read", json!({"file_path": "demo/src/code.txt"}))
            .and_call("workspace_write", json!({"path": "src/new.txt", "content": "new"}))
            .and_call("workspace_edit", json!({"path": "src/code.txt", "old": "code", "new": "moths"})),
        1 => Reply::call("submit_result", json!({"summary": "A week."})),
        _ => Reply::text("Done."),
    }));
    let hall = Hall::new(&["demo"]);
    let project = hall.project("demo");
    fs::write(project.join(".gitignore"), "*\n").unwrap();
    git(&project, &["add", "--force", ".gitignore"]);
    git(&project, &["commit", "--quiet", "--message=Ignore all"]);
    hall.home.researcher("researcher");
    hall.home.edit_manifest("researcher", |manifest| {
        let component = &mut manifest["component"];
        component["grants"] = json!({"lore": {"write": true}, "worktree": {"write": true}});
        component["checkoutScope"] = json!("full");
    });
    hall.ask(&provider);
    let host = hall.serve();
    let id = hall.create("demo", "researcher", json!({}));
    hall.dispatch(&id);
    hall.until("demo", &id, "completed");
    let asked = runtime.block_on(provider.received(2));
    let answers = asked[1].body["messages"].to_string();
    for expected in ["demo/src/code.txt", "\\tcode", "\\\"*\\\", line 1 of .gitignore", "The file is changed."] {
        assert!(answers.contains(expected), "{expected}: {answers}");
    }
    assert_eq!(git(&project, &["show", "claude/main:src/code.txt"]), "moths");
    let (status, output) = host.stop();
    assert!(status.success(), "{output}");
}

#[test]
fn a_first_commission_and_a_first_meeting_read_a_project_without_documents_of_the_halls() {
    let hall = Hall::new(&["demo"]);
    let project = hall.project("demo");
    git(&project, &["rm", "--quiet", "-r", ".lore"]);
    fs::write(project.join("README.md"), "# Moths\n\nThe luna moth lives for a week.\n").unwrap();
    git(&project, &["add", "--all"]);
    git(&project, &["commit", "--quiet", "--message=No documents"]);
    hall.home.researcher("researcher");
    let _host = hall.serve();
    let body =
        json!({"projectName": "demo", "workerName": "researcher", "prompt": "How long does the luna moth live?"});
    let mut stream = UnixStream::connect(hall.home.path("hall/guild-hall.sock")).unwrap();
    let body = body.to_string();
    write!(
        stream,
        "POST /meeting/request/meeting/create HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: \
         {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert!(said.contains("lives for a week") && said.contains("turn_end"), "{said}");

    let id = hall.create("demo", "researcher", json!({}));
    hall.dispatch(&id);
    let read = hall.until("demo", &id, "completed");
    let report = read["commission"]["result_summary"].as_str().unwrap();
    assert!(report.contains("The luna moth lives for a week.") && report.contains("demo/README.md"), "{report}");
}

#[test]
fn a_worker_that_was_approved_under_an_earlier_host_gains_nothing_until_it_is_approved_again() {
    let runtime = Runtime::new().unwrap();
    let provider = runtime.block_on(OpenAi::start(|request: &Received| match request.turn() {
        0 => Reply::call("submit_result", json!({"summary": "A week."})),
        _ => Reply::text("Done."),
    }));
    let hall = Hall::with_researcher(&provider);
    let approve = |options: &[&str]| {
        let output = hall.home.run(&[&["approve", "researcher", "--members", "members"], options].concat());
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    approve(&["--yes"]);
    // That host knew no base toolbox.
    let file = hall.home.path("config/guild/guild.lock");
    let lock = fs::read_to_string(&file).unwrap();
    let (before, rest) = lock.split_once("base = [").unwrap();
    fs::write(&file, before.to_owned() + rest.split_once("]\n").unwrap().1).unwrap();

    let host = hall.serve();
    let tools = || {
        let seen = provider.requests().len();
        let id = hall.create("demo", "researcher", json!({}));
        hall.dispatch(&id);
        hall.until("demo", &id, "completed");
        provider.requests()[seen].tool_names()
    };
    let had = tools();
    assert!(had.contains("Read") && had.contains("read_artifact"), "it asks for Read: {had:?}");
    for new in ["workspace_write", "write_artifact"] {
        assert!(!had.contains(new), "{new}: {had:?}");
    }
    let shown = approve(&[]);
    for new in ["worktree:write", "lore:write", "memory:project:write", "memory:global"] {
        assert!(shown.contains(&format!("+ capability unasked in commissions: {new}\n")), "{new}: {shown}");
    }
    assert!(!shown.contains("unasked in commissions: Read"), "{shown}");
    assert!(shown.contains("unchanged, and this host gives its sessions more"), "{shown}");
    assert!(!tools().contains("workspace_write"), "it was only looked at");
    assert!(approve(&["--yes"]).contains("loads the member at once"));
    wait_for("the approval to be in service", || tools().contains("workspace_write").then_some(()));
    assert!(approve(&[]).contains("is already approved"));
    let (status, output) = host.stop();
    assert!(status.success() && output.contains("until `guild approve` has shown"), "{output}");
}

#[test]
fn a_worker_that_has_the_documents_alone_says_which_files_it_does_not_have() {
    let hall = Hall::new(&["demo"]);
    hall.home.researcher("researcher");
    hall.home.edit_manifest("researcher", |manifest| manifest["component"]["checkoutScope"] = json!("sparse"));
    let project = hall.project("demo");
    git(&project, &["rm", "--quiet", "-r", ".lore"]);
    git(&project, &["commit", "--quiet", "--message=No documents"]);
    let _host = hall.serve();
    let id = hall.create("demo", "researcher", json!({}));
    hall.dispatch(&id);
    let read = hall.until("demo", &id, "completed");
    let report = read["commission"]["result_summary"].as_str().unwrap();
    let expected = "Only the documents in `.lore/` of the project demo are checked out for researcher; \
                    `\"checkoutScope\": \"full\"` in its manifest checks out all files.";
    assert!(report.contains("No document was read") && report.contains(expected), "{report}");
}
