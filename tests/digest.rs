//! Components that carry their jobs out with sessions of their own: the digest, which is installed, and the probe.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use guild_fakes::{Gate, OpenAi, Provider, Received, Reply, Script};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::support::{
    guest,
    host::{Client, Home, Host, wait_for},
};

/// A home with documents and the digest as `guild-members` has it.
fn home(documents: &[(&str, &str)]) -> Home {
    let home = Home::new();
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guild-members/digest");
    for file in ["guild-member.json", "posture.md"] {
        home.write(&format!("members/digest/{file}"), fs::read(installed.join(file)).unwrap());
    }
    home.write("members/digest/digest.wasm", guest::built("digest"));
    for (name, text) in documents {
        home.write(&format!("docs/{name}"), text);
    }
    home
}

/// A digest whose sessions ask a provider.
struct Fixture {
    home: Home,
    provider: Provider,
    runtime: Runtime,
}

impl Fixture {
    fn new(documents: &[(&str, &str)], script: impl Into<Script>) -> Self {
        let runtime = Runtime::new().unwrap();
        let provider = runtime.block_on(OpenAi::start(script));
        let home = home(documents);
        let url = provider.url();
        home.write(
            "guild.toml",
            format!(
                "agent = \"api\"\n[api]\nprovider = \"openai\"\nbase_url = \"{url}/v1/\"\nmodel = \"fake\"\n\
                 [[prices]]\nmodel = \"fake\"\ninput = 1.0\noutput = 2.0\n"
            ),
        );
        Self { home, provider, runtime }
    }

    fn serve(&self) -> Host {
        self.serve_member(&self.home.path("members/digest"))
    }

    fn serve_member(&self, member: &Path) -> Host {
        let (config, docs) = (self.home.path("guild.toml"), self.home.path("docs"));
        self.home.serve(member, &["--config", config.to_str().unwrap(), "--sources", docs.to_str().unwrap()])
    }

    /// Waits until the provider was asked so often.
    fn asked(&self, times: usize) -> Vec<Received> {
        self.runtime.block_on(self.provider.received(times))
    }

    fn job(&self, id: &str) -> PathBuf {
        self.home.path("members/digest/jobs").join(id)
    }

    fn transcript(&self, id: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.job(id).join("transcript.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn dispatch(client: &Client, config: Value) -> String {
    client.dispatch(json!({"description": "Birds", "task": "Digest these notes.", "config": config})).unwrap()
}

fn digested(client: &Client, config: Value) -> Value {
    let id = dispatch(client, config);
    let status = client.ended(&id);
    assert_eq!(status["status"], "completed", "{status}");
    client.result(&id).unwrap()
}

/// The message that started the session.
fn prompt(request: &Received) -> &str {
    let messages = request.body["messages"].as_array().unwrap();
    messages.iter().find(|message| message["role"] == "user").unwrap()["content"].as_str().unwrap()
}

/// The file that a session is to summarise; none where it is to merge.
fn file(request: &Received) -> Option<&str> {
    prompt(request).strip_prefix("Source: `docs/")?.split_once('`').map(|(file, _)| file)
}

fn last_message(request: &Received) -> &Value {
    &request.body["messages"].as_array().unwrap().last().unwrap()["content"]
}

fn submit_summary(summary: &str) -> Reply {
    Reply::call("hand_over_summary", json!({"summary": summary}))
}

/// A model that submits one sentence for each file, and another that merges them.
fn model(request: &Received) -> Reply {
    match (file(request), request.turn()) {
        (_, 1..) => Reply::text("Done."),
        (Some(file), _) => submit_summary(&format!("What {file} says.")),
        (None, _) => submit_summary("All of it together."),
    }
}

const NOTES: [(&str, &str); 3] = [
    (
        "owls.md",
        "# Owls\n\nOwls are birds of the night.\n\n## Eyes\n\nThe eyes of an owl cannot move, so it turns its head.\n\n\
         ## Food\n\nMost owls live on voles.\n",
    ),
    (
        "swifts.md",
        "# Swifts\n\nSwifts are birds of the air.\n\n## Sleep\n\nSwifts sleep while they fly.\n\n\
         ## Food\n\nThey live on insects, which they catch in flight.\n",
    ),
    ("wrens.txt", "The wren is small and loud.\n\nIts nest is a ball of moss with a door at its side.\n"),
];

/// The part of a report on a file.
fn part<'a>(report: &'a str, path: &str) -> &'a str {
    let (_, rest) =
        report.split_once(&format!("\n### `{path}`\n")).unwrap_or_else(|| panic!("{path} is not in {report}"));
    rest.split("\n### ").next().unwrap()
}

#[test]
fn without_a_model_each_file_is_summarised_in_its_own_words() {
    let home = home(&NOTES);
    let docs = home.path("docs");
    let host = home.serve(&home.path("members/digest"), &["--sources", docs.to_str().unwrap()]);
    let result = digested(&host.client(), json!({"parallel": 3}));
    let report = result["output"].as_str().unwrap();
    for (path, words, foreign) in [
        ("docs/owls.md", ["cannot move, so it turns its head", "live on voles"], "swifts.md"),
        ("docs/swifts.md", ["sleep while they fly", "insects, which they catch"], "owls.md"),
        ("docs/wrens.txt", ["small and loud", "a ball of moss"], "owls.md"),
    ] {
        let part = part(report, path);
        assert!(words.iter().all(|words| part.contains(words)) && !part.contains(foreign), "{part}");
    }
    assert!(report.contains("side by side"), "{report}");
    let files = ["summaries/1-owls.md", "summaries/2-swifts.md", "summaries/3-wrens.md"];
    assert_eq!(result["artifacts"], json!(files.map(|file| format!("artifacts/{file}"))));
}

#[test]
fn with_a_model_files_are_summarised_concurrently_and_merged() {
    let gate = Gate::closed();
    let script_gate = gate.clone();
    let fixture = Fixture::new(&NOTES, move |request: &Received| {
        let reply = model(request);
        if file(request).is_some() && request.turn() == 0 { reply.behind(&script_gate) } else { reply }
    });
    let host = fixture.serve();
    let client = host.client();
    let id = dispatch(&client, json!({"parallel": 3, "focus": "food", "glob": "docs/*"}));

    // All three wait for their first answer at the same time.
    let first = fixture.asked(3);
    let asked: BTreeSet<_> = first.iter().map(|request| file(request).unwrap()).collect();
    assert_eq!(asked, NOTES.map(|(name, _)| name).into());
    assert_eq!(client.status(&id).unwrap()["summary"], "0 of 3 files");
    gate.open();
    assert_eq!(client.ended(&id)["status"], "completed");

    let result = client.result(&id).unwrap();
    let report = result["output"].as_str().unwrap();
    assert!(report.contains("## Overall\n\nAll of it together.\n"), "{report}");
    assert!(part(report, "docs/owls.md").contains("What owls.md says."), "{report}");
    let summary = fs::read_to_string(fixture.job(&id).join("artifacts/summaries/2-swifts.md")).unwrap();
    assert_eq!(summary, "# `docs/swifts.md`\n\nWhat swifts.md says.\n");

    // The session on a file reads and submits; the one that merges gets what was submitted. Neither has the job's tools.
    let requests = fixture.asked(8);
    let tools = |request: &Received| -> Vec<String> {
        let tools = request.body["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(tools(&requests[0]), ["hand_over_summary", "Read", "Grep", "Glob"]);
    assert!(prompt(&requests[0]).contains("about food?"), "{}", prompt(&requests[0]));
    let merging = requests.iter().find(|request| file(request).is_none()).unwrap();
    assert_eq!(tools(merging), ["hand_over_summary"]);
    for (name, _) in NOTES {
        assert!(prompt(merging).contains(&format!("Summary of `docs/{name}`:\n\nWhat {name} says.")));
    }

    // The transcript distinguishes them: three began before one ended, and what they used is the job's.
    let entries = fixture.transcript(&id);
    // What the component itself used is of no session.
    let of_sessions = entries.iter().filter(|e| e["type"] != "used");
    let kinds: Vec<_> = of_sessions.map(|e| (e["type"].as_str().unwrap(), e["session"].as_u64().unwrap())).collect();
    let began: BTreeSet<u64> = kinds
        .iter()
        .take_while(|(kind, _)| *kind != "end")
        .filter(|(kind, _)| *kind == "session")
        .map(|(_, n)| *n)
        .collect();
    assert_eq!(began, [1, 2, 3].into());
    assert_eq!(kinds.iter().filter(|(kind, _)| *kind == "end").count(), 4);
    assert_eq!(client.status(&id).unwrap()["usage"]["turns"], 8);
}

#[test]
fn no_more_sessions_are_under_way_than_was_asked_for() {
    let gate = Gate::closed();
    let script_gate = gate.clone();
    let fixture = Fixture::new(&NOTES, move |request: &Received| model(request).behind(&script_gate));
    let host = fixture.serve();
    let id = dispatch(&host.client(), json!({"parallel": 2}));
    let asked =
        |times| fixture.asked(times).iter().filter_map(|request| file(request).map(str::to_owned)).collect::<Vec<_>>();
    assert_eq!(asked(2).iter().collect::<BTreeSet<_>>().len(), 2);
    // Each answer lets its own session continue with its next turn, and no third one begin.
    gate.pass(1);
    assert_eq!(asked(3).iter().collect::<BTreeSet<_>>().len(), 2);
    gate.open();
    assert_eq!(host.client().ended(&id)["status"], "completed");
}

#[test]
fn a_malformed_submission_of_the_model_is_answered_with_an_error() {
    let fixture = Fixture::new(&NOTES[..1], |request: &Received| match request.turn() {
        0 => submit_summary(" "),
        1 => submit_summary("Owls are birds of the night."),
        _ => Reply::text("Done."),
    });
    let host = fixture.serve();
    let result = digested(&host.client(), json!({}));
    assert!(result["output"].as_str().unwrap().contains("Owls are birds of the night."), "{result}");
    let requests = fixture.asked(3);
    assert!(last_message(&requests[1]).as_str().unwrap().contains("not empty"), "{}", last_message(&requests[1]));
}

#[test]
fn a_file_that_fails_is_named_and_one_session_does_not_use_up_what_the_others_have() {
    let mut documents = NOTES.to_vec();
    documents.extend([("binary.md", "a\0b"), ("empty.md", "\n")]);
    // One model never comes to an end.
    let fixture = Fixture::new(&documents, |request: &Received| match file(request) {
        Some("owls.md") => Reply::call("Read", json!({"file_path": "docs/owls.md"})),
        _ => model(request),
    });
    let host = fixture.serve();
    let client = host.client();
    let result = digested(&client, json!({"maxTurns": 24}));
    let (_, failed) = result["output"].as_str().unwrap().split_once("## Not summarised\n").unwrap();
    let reasons: BTreeMap<&str, &str> = failed.trim().lines().map(|line| line.split_once(": ").unwrap()).collect();
    assert!(reasons["- `docs/binary.md`"].contains("binary"), "{failed}");
    assert!(reasons["- `docs/empty.md`"].contains("says nothing"), "{failed}");
    assert_eq!(reasons["- `docs/owls.md`"], "the session used up its turns");
    assert_eq!(reasons.len(), 3);
    let report = result["output"].as_str().unwrap();
    assert!(report.contains("All of it together.") && report.contains("What wrens.txt says."), "{report}");
}

#[test]
fn a_job_none_of_whose_files_can_be_summarised_fails_with_the_reason() {
    let fixture = Fixture::new(&NOTES, |_: &Received| Reply::status(400).message("no such model"));
    let host = fixture.serve();
    let id = dispatch(&host.client(), json!({}));
    let status = host.client().ended(&id);
    let error = status["error"].as_str().unwrap();
    assert!(error.starts_with("none of 3 files could be summarised") && error.contains("no such model"), "{error}");
}

#[test]
fn what_is_left_out_is_a_decision() {
    let fixture = Fixture::new(&NOTES, model);
    let host = fixture.serve();
    for (config, why) in [(json!({"maxFiles": 2}), "maxFiles is 2"), (json!({"maxTurns": 12}), "turns are not enough")]
    {
        let result = digested(&host.client(), config);
        assert!(result["output"].as_str().unwrap().ends_with("## Left out\n\n- `docs/wrens.txt`\n"), "{result}");
        let status = host.client().status(result["jobId"].as_str().unwrap()).unwrap();
        let decision = &status["decisions"][0];
        assert!(decision["decision"].as_str().unwrap().contains("Left out: docs/wrens.txt"), "{decision}");
        assert!(decision["reasoning"].as_str().unwrap().contains(why), "{decision}");
    }
}

#[test]
fn a_config_that_makes_no_sense_is_refused_before_there_is_a_job() {
    let home = home(&NOTES);
    let docs = home.path("docs");
    let host = home.serve(&home.path("members/digest"), &["--sources", docs.to_str().unwrap()]);
    for (config, named) in [
        (json!({"parallel": 17}), "parallel"),
        (json!({"files": 3}), "files"),
        (json!({"glob": "*.rs"}), "no file that was granted matches \"*.rs\""),
        (json!({"glob": "{"}), "config.glob"),
    ] {
        let refusal = host.client().dispatch(json!({"description": "d", "task": "t", "config": config})).unwrap_err();
        assert!(refusal.code == -32602 && refusal.message.contains(named), "{refusal:?}");
    }
    assert!(
        !home.path("members/digest/jobs").exists()
            || fs::read_dir(home.path("members/digest/jobs")).unwrap().next().is_none()
    );
}

#[test]
fn a_cancel_ends_all_sessions_of_a_job() {
    let gate = Gate::closed();
    let script_gate = gate.clone();
    let fixture = Fixture::new(&NOTES, move |request: &Received| model(request).behind(&script_gate));
    let host = fixture.serve();
    let client = host.client();
    let id = dispatch(&client, json!({"parallel": 2}));
    fixture.asked(2);
    let begin = Instant::now();
    assert_eq!(client.cancel(&id).unwrap()["status"], "cancelled");
    assert!(begin.elapsed() < Duration::from_secs(5));
    let files = || {
        let modified = |file: &str| fs::metadata(fixture.job(&id).join(file)).and_then(|meta| meta.modified()).ok();
        ["meta.json", "transcript.jsonl", "status.md", "artifacts"].map(modified)
    };
    let then = files();
    // The answers come, and nobody asks for more of them, though another job does.
    gate.open();
    digested(&client, json!({"maxFiles": 1}));
    assert_eq!((fixture.provider.count(), files()), (4, then));
}

#[test]
fn a_job_whose_host_was_killed_has_failed_and_keeps_what_it_wrote() {
    let gate = Gate::closed();
    let script_gate = gate.clone();
    let fixture = Fixture::new(&NOTES, move |request: &Received| match file(request) {
        Some("owls.md") => model(request),
        _ => model(request).behind(&script_gate),
    });
    let host = fixture.serve();
    let id = dispatch(&host.client(), json!({}));
    wait_for("the first summary", || (host.client().status(&id).unwrap()["summary"] == "1 of 3 files").then_some(()));
    host.kill();
    gate.open();

    let host = fixture.serve();
    let status = host.client().ended(&id);
    assert_eq!((&status["status"], &status["summary"]), (&json!("failed"), &json!("1 of 3 files")), "{status}");
    assert!(status["error"].as_str().unwrap().contains("the host stopped while the job was running"), "{status}");
    let summary = fs::read_to_string(fixture.job(&id).join("artifacts/summaries/1-owls.md")).unwrap();
    assert!(summary.contains("What owls.md says."), "{summary}");
    assert!(host.client().result(&id).unwrap_err().message.contains("failed"));
}

#[test]
fn what_was_submitted_before_the_host_was_killed_is_the_result() {
    let gate = Gate::closed();
    let script_gate = gate.clone();
    let fixture = Fixture::new(&NOTES, move |request: &Received| match file(request) {
        Some(_) => model(request),
        None => model(request).behind(&script_gate),
    });
    let host = fixture.serve();
    let id = dispatch(&host.client(), json!({}));
    wait_for("the merging", || {
        (host.client().status(&id).unwrap()["summary"] == "Merging the summaries").then_some(())
    });
    host.kill();

    let host = fixture.serve();
    assert_eq!(host.client().ended(&id)["status"], "completed");
    let result = host.client().result(&id).unwrap();
    for (name, _) in NOTES {
        assert!(
            part(result["output"].as_str().unwrap(), &format!("docs/{name}")).contains(&format!("What {name} says."))
        );
    }
}

/// A host of the probe, whose sessions ask a provider; the outcomes of a task's lines.
fn probed(task: &str, script: impl Into<Script>) -> (Fixture, Vec<String>) {
    let fixture = Fixture::new(&NOTES[..1], script);
    let member = fixture.home.member("probe", "autonomous-worker", &guest::built("probe"));
    fixture.home.edit_manifest("probe", |manifest| {
        manifest["component"]["grants"] = guest::everything();
        manifest["component"]["tools"] = json!(["Read", "Grep", "Glob"]);
    });
    let host = fixture.serve_member(&member);
    let id = host.client().dispatch(json!({"description": "probing", "task": task})).unwrap();
    assert_eq!(host.client().ended(&id)["status"], "completed");
    let report = host.client().result(&id).unwrap()["output"].as_str().unwrap().to_owned();
    (fixture, report.lines().map(str::to_owned).collect())
}

#[test]
fn a_component_answers_its_own_tools_and_its_errors_reach_the_model() {
    let (fixture, outcomes) = probed("ask what is it?", |request: &Received| match request.turn() {
        0 => Reply::call("oracle", json!({"about": "it"})).and_call("oracle", json!({"about": "fail"})),
        _ => Reply::text("It is 42."),
    });
    assert_eq!(outcomes, ["ask what is it?: ok Ending::Success after 2 turns: It is 42."]);
    let requests = fixture.asked(2);
    let answers = &requests[1].body["messages"].as_array().unwrap()[2..];
    let answers: Vec<&str> = answers.iter().filter_map(|message| message["content"].as_str()).collect();
    assert!(answers.iter().any(|answer| answer.contains("42, for {\"about\":\"it\"}")), "{answers:?}");
    assert!(answers.iter().any(|answer| answer.contains("the oracle is silent")), "{answers:?}");
}

#[test]
fn one_session_is_interrupted_while_another_continues() {
    let (_, outcomes) = probed("pair what is it?", |request: &Received| match request.turn() {
        0 => Reply::text("I ask.").and_call("oracle", json!({})),
        _ => Reply::text("It is 42."),
    });
    let (first, second) = outcomes[0].split_once(" | ").unwrap();
    assert!(first.starts_with("pair what is it?: ok Ending::Interrupted after 1 turns"), "{first}");
    assert_eq!(second, "Ending::Success after 2 turns: It is 42.");
}
