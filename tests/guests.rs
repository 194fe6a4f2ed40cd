//! Components that carry their jobs out: what they can reach, and that they can reach nothing else.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use guild_fakes::{Gate, OpenAi, Reply};
use serde_json::{Value, json};

use crate::support::{
    guest,
    host::{Client, Home, Host, wait_for},
    web,
};

/// A host of the probe, which tries what its task names, line by line.
struct Probe {
    home: Home,
    member: PathBuf,
    host: Host,
}

impl Probe {
    fn new(options: &[&str]) -> Self {
        Self::with_grants(guest::everything(), options)
    }

    fn with_grants(grants: Value, options: &[&str]) -> Self {
        let home = Home::new();
        let member = home.member("probe", "autonomous-worker", &guest::built("probe"));
        home.edit_manifest("probe", |manifest| {
            manifest["component"]["grants"] = grants;
            manifest["component"]["tools"] = json!(["Read", "Grep", "Glob"]);
        });
        let host = home.serve(&member, options);
        Self { home, member, host }
    }

    fn client(&self) -> Client {
        self.host.client()
    }

    fn job(&self, id: &str) -> PathBuf {
        self.member.join("jobs").join(id)
    }

    /// Carries a task out; the outcome of each of its lines.
    fn report(&self, task: &str) -> (String, BTreeMap<String, String>) {
        let id = self.client().dispatch(json!({"description": "probing", "task": task})).unwrap();
        let status = self.client().ended(&id);
        assert_eq!(status["status"], "completed", "{status}");
        (id.clone(), lines(self.client().result(&id).unwrap()["output"].as_str().unwrap()))
    }
}

fn lines(report: &str) -> BTreeMap<String, String> {
    report
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(step, outcome)| (step.to_owned(), outcome.to_owned()))
        .collect()
}

fn is_error(outcomes: &BTreeMap<String, String>, step: &str) -> bool {
    outcomes[step].starts_with("error ")
}

#[test]
fn a_component_finds_its_job_read_only_its_artifacts_writable_and_nothing_else() {
    let probe = Probe::new(&[]);
    let outside = probe.home.write("members/probe/outside.txt", "secret");
    let forbidden = [
        "ls /",
        "ls /etc",
        "read /etc/passwd",
        "ls ..",
        "ls /job/..",
        "read /job/../../outside.txt",
        "read /job/artifacts/../../../outside.txt",
        "write /job/meta.json x",
        "write /job/new.txt x",
        "truncate /job/meta.json",
        "append /job/status.md x",
        "remove /job/task.md",
        "rename /job/task.md /job/artifacts/task.md",
        "rename /job/artifacts/a.txt /job/a.txt",
        "link /job/meta.json /job/artifacts/meta.json",
        "mkdir /job/more",
        "write /memory/planted.md x",
        "read /proc/self/environ",
        "stdin",
    ];
    let allowed =
        ["ls /job", "write /job/artifacts/a.txt one two", "mkdir /job/artifacts/b", "ls /job/artifacts", "ls /memory"];
    let task = allowed.iter().chain(&forbidden).copied().collect::<Vec<_>>().join("\n");
    let (id, outcomes) = probe.report(&format!("{task}\nenv\nargs"));
    for step in &forbidden[..forbidden.len() - 1] {
        assert!(is_error(&outcomes, step), "{step}: {}", outcomes[*step]);
    }
    assert_eq!(outcomes["stdin"], "ok ");
    assert_eq!((outcomes["env"].as_str(), outcomes["args"].as_str()), ("ok ", "ok "));
    assert!(outcomes["ls /job"].contains("meta.json") && outcomes["ls /job"].contains("task.md"));
    assert_eq!(outcomes["ls /job/artifacts"], "ok a.txt b");
    assert_eq!(fs::read_to_string(probe.job(&id).join("artifacts/a.txt")).unwrap(), "one two");
    assert_eq!(fs::read_to_string(outside).unwrap(), "secret");
    assert!(!probe.member.join("memory/planted.md").exists());
    assert_eq!(probe.client().result(&id).unwrap()["artifacts"], json!(["artifacts/a.txt"]));
}

#[test]
fn a_component_that_imports_memory_without_asking_for_it_is_not_loaded() {
    let home = Home::new();
    let member = home.member("surveyor", "autonomous-worker", &guest::built("surveyor"));
    home.edit_manifest("surveyor", |manifest| {
        manifest["component"]["grants"] =
            json!({"log": {}, "files": {}, "job-tools": {}, "status": {}, "agent": {"ownTools": true}});
    });
    let host = home.serve(&member, &[]);
    let error = host.client().dispatch(json!({"description": "d", "task": "t"})).unwrap_err();
    assert!(
        error.message.contains("guild:worker/memory@0.1.0") && error.message.contains("\"memory\": {}"),
        "{}",
        error.message
    );
}

#[test]
fn during_activation_there_is_no_job_and_memory_is_read_only() {
    let probe = Probe::new(&[]);
    probe.home.write("members/probe/memory/note.md", "noted");
    let refusal = probe.client().dispatch(json!({"description": "d", "task": "now"})).unwrap_err();
    assert_eq!(refusal.code, -32602);
    let outcomes = lines(&refusal.message);
    for step in ["ls /", "ls /job", "summary x", "remember k x", "status"] {
        assert!(is_error(&outcomes, step), "{step}: {}", outcomes[step]);
    }
    assert!(outcomes["ls /memory"].contains("note.md"), "{outcomes:?}");
    assert!(outcomes["summary x"].contains("needs a job"), "{outcomes:?}");
    assert_eq!(fs::read_dir(probe.member.join("jobs")).unwrap().count(), 0);
}

#[test]
fn components_use_the_same_tools_as_sessions() {
    let probe = Probe::new(&[]);
    let task = "summary looking\ndecide which this\nquestion is it so?\nartifact t/table.csv a,b\nremember fact water is wet\n\
                recall fact\nstatus\nsubmit early";
    let (id, outcomes) = probe.report(task);
    assert!(outcomes.values().all(|outcome| outcome.starts_with("ok")), "{outcomes:?}");
    assert_eq!(outcomes["recall fact"], "ok water is wet");
    assert_eq!(outcomes["status"], "ok probing 1");
    let status = probe.client().status(&id).unwrap();
    assert_eq!(status["summary"], "looking");
    assert_eq!(status["questions"], json!(["question is it so?"]));
    assert_eq!(status["decisions"], json!([{"question": "which", "decision": "this", "reasoning": "r"}]));
    let result = probe.client().result(&id).unwrap();
    // What `run` returned was the last submission.
    assert!(result["output"].as_str().unwrap().starts_with("summary looking: ok"));
    assert_eq!(result["artifacts"], json!(["artifacts/t/table.csv"]));
    assert_eq!(fs::read_to_string(probe.member.join("memory/fact.md")).unwrap(), "water is wet");
}

#[test]
fn a_component_reads_the_web_where_the_operator_opens_it_and_no_further() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let address = runtime.block_on(web::pages());
    let home = Home::new();
    let config = format!("[web]\nallow = [\"{address}\"]\nprivate = [\"{address}\"]\nrobots = false\n");
    let config = home.write("guild.toml", config);
    let probe = Probe::new(&["--config", config.to_str().unwrap()]);
    let (page, away) = (format!("fetch http://{address}/moths"), format!("fetch http://{address}/away"));
    let long = format!("fetch http://moths.example/{}", "x".repeat(2000));
    let task = format!("{page}\n{away}\nfetch http://moths.example/\nfetch file:///etc/passwd\n{long}");
    let (id, outcomes) = probe.report(&task);
    assert!(outcomes[&page].contains("The atlas moth has no mouth"), "{outcomes:?}");
    assert!(outcomes[&away].contains("not granted") && outcomes[&away].contains("169.254.169.254"), "{outcomes:?}");
    let elsewhere = &outcomes["fetch http://moths.example/"];
    assert!(elsewhere.contains("not granted") && elsewhere.contains("[web]"), "{outcomes:?}");
    assert!(is_error(&outcomes, "fetch file:///etc/passwd"), "{outcomes:?}");
    // The job's log has what was asked for, and what came of it.
    let log = fs::read_to_string(probe.job(&id).join("log.txt")).unwrap();
    assert!(log.contains(&format!("web: {page}: ok, ")), "{log}");
    assert!(log.contains("web: fetch http://moths.example/: not granted"), "{log}");
    assert!(log.contains("169.254.169.254") && log.contains("web: fetch file:///etc/passwd: "), "{log}");
    assert!(log.contains(&"x".repeat(400)) && !log.contains(&"x".repeat(600)), "{log}");
}

#[test]
fn a_component_has_no_more_sessions_at_a_time_and_none_larger_than_the_limits_allow() {
    let home = Home::new();
    let docs = home.write("docs/a.md", "# Kites\n\nKites were flown in China first.\n");
    let docs = docs.parent().unwrap().to_str().unwrap().to_owned();
    let (runtime, gate) = (tokio::runtime::Runtime::new().unwrap(), Gate::closed());
    let provider = runtime.block_on(OpenAi::start(vec![Reply::text("too late").behind(&gate)]));
    let api = format!("[api]\nprovider = \"openai\"\nbase_url = \"{}/v1/\"\nmodel = \"m\"\n", provider.url());
    let free = "[[prices]]\nmodel = \"m\"\ninput = 0.0\noutput = 0.0\n";
    let config = format!("agent = \"api\"\n{api}{free}[limits]\njob_sessions = 1\n");
    let config = home.write("guild.toml", config);
    let probe = Probe::new(&["--config", config.to_str().unwrap(), "--sources", &docs]);
    let (_, outcomes) = probe.report("pair where were kites flown");
    assert!(outcomes["pair where were kites flown"].contains("limits.job_sessions"), "{outcomes:?}");
    assert_eq!(provider.count(), 1);

    let config = home.write("small.toml", "[limits]\nplan_bytes = 64\n");
    let probe = Probe::new(&["--config", config.to_str().unwrap(), "--sources", &docs]);
    let (_, outcomes) = probe.report("ask where were kites flown, and by whom, and for what, and how often");
    assert!(outcomes.values().next().unwrap().contains("the fixed limit plan_bytes"), "{outcomes:?}");

    // What the host stores for them counts as the component's memory too, until they are dropped.
    let config = home.write("memory.toml", "[limits]\nmemory_bytes = 8388608\n");
    let probe = Probe::new(&["--config", config.to_str().unwrap(), "--sources", &docs]);
    let (_, outcomes) = probe.report("hoard 2\nhoard 16\nhoard 3");
    assert_eq!((outcomes["hoard 2"].as_str(), outcomes["hoard 3"].as_str()), ("ok 2", "ok 3"), "{outcomes:?}");
    let (held, why) = outcomes["hoard 16"].trim_start_matches("ok ").split_once(": ").unwrap();
    assert!((3..8).contains(&held.parse().unwrap()) && why.contains("limits.memory_bytes = 8388608"), "{outcomes:?}");
}

#[test]
fn a_component_that_starts_sessions_is_refused_where_their_runtime_cannot_be_used() {
    let home = Home::new();
    let config = home.write("guild.toml", "agent = \"claude\"\n[claude]\ncommand = \"no-such-claude\"\n");
    let probe = Probe::new(&["--config", config.to_str().unwrap()]);
    let refused = probe.client().dispatch(json!({"description": "d", "task": "status"})).unwrap_err();
    assert!(refused.code == -32602 && refused.message.contains("no-such-claude"), "{refused:?}");
}

#[test]
fn what_is_not_granted_answers_so_and_names_the_grant() {
    let probe = Probe::new(&[]);
    let (_, outcomes) = probe
        .report("fetch http://127.0.0.1/\nglobal x\nfile docs/a.md\nartifact ../x y\nartifact /x y\nremember ../x y");
    assert!(outcomes["fetch http://127.0.0.1/"].contains("web"), "{outcomes:?}");
    assert!(outcomes["global x"].contains("global"), "{outcomes:?}");
    assert!(outcomes["file docs/a.md"].contains("--sources"), "{outcomes:?}");
    for step in ["artifact ../x y", "artifact /x y", "remember ../x y"] {
        assert!(is_error(&outcomes, step), "{step}: {}", outcomes[step]);
    }
}

#[test]
fn stdout_and_stderr_go_to_the_jobs_log_bounded() {
    let probe = Probe::new(&["-vv"]);
    let (id, _) = probe.report("stderr warning: tea\nflood");
    let log = fs::read_to_string(probe.job(&id).join("log.txt")).unwrap();
    assert!(log.contains("stdout: activated for probing"), "{}", &log[..300]);
    assert!(log.contains("stderr: warning: tea") && log.contains("stdout: line 7 of a flood"));
    assert!(log.len() <= (1 << 20) + 1024, "{}", log.len());
    assert!(!log.contains("line 199999"), "the flood was cut");
    let last = log.lines().last().unwrap();
    assert!(last.contains("dropped") || last.contains("the fixed limit log_bytes"), "{last}");
    assert!(!probe.host.output().contains("of a flood"), "nothing of it reaches the host's own output");
}

#[test]
fn a_cancel_ends_a_component_that_sleeps_in_a_host_call() {
    let probe = Probe::new(&[]);
    let id = probe.client().dispatch(json!({"description": "d", "task": "summary asleep\nsleep"})).unwrap();
    wait_for("the nap", || (probe.client().status(&id).unwrap()["summary"] == "asleep").then_some(()));
    let begin = Instant::now();
    assert_eq!(probe.client().cancel(&id).unwrap()["status"], "cancelled");
    assert!(begin.elapsed().as_secs() < 5);
}

#[test]
fn after_the_answer_to_cancel_not_even_the_components_own_files_change() {
    let probe = Probe::new(&[]);
    let id = probe.client().dispatch(json!({"description": "d", "task": "scribble"})).unwrap();
    let file = probe.job(&id).join("artifacts/n.txt");
    wait_for("a first line", || fs::read_to_string(&file).ok().filter(|n| !n.is_empty()));
    assert_eq!(probe.client().cancel(&id).unwrap()["status"], "cancelled");
    let stamp = || fs::metadata(&file).unwrap().modified().unwrap();
    let last = stamp();
    // As long as another job's whole life takes.
    probe.report("summary other");
    assert_eq!(stamp(), last);
}

#[test]
fn a_deadline_covers_a_host_call_that_blocks() {
    let home = Home::new();
    let member = home.member("probe", "autonomous-worker", &guest::built("probe"));
    let grants = guest::everything();
    home.edit_manifest("probe", |manifest| manifest["component"]["grants"] = grants);
    let config = home.write("guild.toml", "[limits]\nrun_seconds = 1\n");
    let host = home.serve(&member, &["--config", config.to_str().unwrap()]);
    let id = host.client().dispatch(json!({"description": "d", "task": "sleep"})).unwrap();
    let status = host.client().ended(&id);
    assert_eq!(status["error"], "`run` did not end within its deadline of 1 s (limits.run_seconds)");
}

#[test]
fn a_component_starts_its_own_session_on_the_jobs_account() {
    let home = Home::new();
    let docs = home.write("docs/owls.md", "# Owls\n\nOwls turn their heads by 270 degrees.\n");
    let probe = Probe::new(&["--sources", docs.parent().unwrap().to_str().unwrap()]);
    let (id, outcomes) = probe.report("ask How far do owls turn their heads?");
    let answer = &outcomes["ask How far do owls turn their heads?"];
    assert!(answer.starts_with("ok Ending::Success after "), "{answer}");
    let transcript = fs::read_to_string(probe.job(&id).join("transcript.jsonl")).unwrap();
    let session: Value = serde_json::from_str(transcript.lines().next().unwrap()).unwrap();
    assert_eq!(session["tools"], json!(["oracle", "Read", "Grep", "Glob"]), "no internal tools were asked for");
}

fn surveyor(home: &Home, docs: &Path) -> Host {
    let member = home.member("surveyor", "autonomous-worker", &guest::built("surveyor"));
    home.edit_manifest("surveyor", |manifest| {
        manifest["component"]["grants"] =
            json!({"log": {}, "memory": {"write": true}, "files": {}, "job-tools": {}, "status": {}, "agent": {"ownTools": true}});
        manifest["component"]["tools"] = json!(["Read", "Grep", "Glob"]);
    });
    home.serve(&member, &["--sources", docs.to_str().unwrap()])
}

#[test]
fn the_surveyor_writes_its_table_and_says_what_changed_since_the_last_time() {
    let home = Home::new();
    let docs = home.write("docs/a.md", "one").parent().unwrap().to_owned();
    home.write("docs/b.txt", "two");
    let host = surveyor(&home, &docs);
    let survey = || {
        let id = host.client().start("Survey the documents");
        assert_eq!(host.client().ended(&id)["status"], "completed");
        host.client().result(&id).unwrap()
    };
    let first = survey();
    assert_eq!(first["artifacts"], json!(["artifacts/files.csv"]));
    let id = first["jobId"].as_str().unwrap();
    let table = fs::read_to_string(home.path("members/surveyor/jobs").join(id).join("artifacts/files.csv")).unwrap();
    assert!(table.contains("docs/a.md") && table.contains("docs/b.txt"), "{table}");
    home.write("docs/c.md", "three");
    let second = survey();
    assert_ne!(first["output"], second["output"]);
    assert!(second["output"].as_str().unwrap().contains('3'), "{second}");
}
