//! The `guild` command as a person types it: what it prints, where, and how it ends.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use serde_json::{Value, json};

use crate::support::{
    host::{Home, free_port, wait_for},
    output::{stderr, stdout},
};

fn output(command: &mut Command, arguments: &[&str]) -> Output {
    command.args(arguments).output().unwrap()
}

fn json_of(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The only job directory of a member.
fn only_job(member: &Path) -> std::path::PathBuf {
    let jobs: Vec<_> = fs::read_dir(member.join("jobs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    jobs.into_iter().next().unwrap()
}

fn meta(job: &Path) -> Value {
    serde_json::from_slice(&fs::read(job.join("meta.json")).unwrap()).unwrap()
}

#[test]
fn run_prints_the_report_on_stdout_and_the_jobs_directory_on_stderr() {
    let home = Home::new();
    let member = home.quick("quick");
    let done = output(&mut home.guild(), &["run", path(&member), "Do it."]);
    assert_eq!((done.status.code(), stdout(&done).as_str()), (Some(0), "date\n"), "{}", stderr(&done));
    let job = only_job(&member);
    assert!(stderr(&done).contains(&format!("job: {}", job.canonicalize().unwrap().display())), "{}", stderr(&done));
    assert_eq!(meta(&job)["description"], "Do it.");
}

#[test]
fn run_takes_the_task_from_stdin_and_a_member_by_its_key() {
    let home = Home::new();
    let member = home.quick("quick");
    let task = home.write("task.md", "\nFirst line.\nAnd more.\n");
    let mut run = home.guild();
    run.stdin(fs::File::open(&task).unwrap());
    let done = output(&mut run, &["run", "quick", "-", "--members", path(&home.path("members")), "--json"]);
    let result = json_of(&done);
    assert_eq!((&result["output"], &result["artifacts"]), (&json!("date"), &Value::Null));
    let job = only_job(&member);
    assert_eq!(meta(&job)["description"], "First line.");
    assert_eq!(fs::read_to_string(job.join("task.md")).unwrap(), "\nFirst line.\nAnd more.\n");
}

#[test]
fn run_says_why_a_job_failed_and_ends_with_3() {
    let home = Home::new();
    let member = home.failing("failing");
    let done = output(&mut home.guild(), &["run", path(&member), "Do it."]);
    assert_eq!((done.status.code(), stdout(&done).as_str()), (Some(3), ""));
    assert!(stderr(&done).contains("date"), "{}", stderr(&done));
    let done = output(&mut home.guild(), &["run", path(&member), "Do it.", "--json"]);
    assert_eq!(done.status.code(), Some(3));
    assert_eq!(serde_json::from_slice::<Value>(&done.stdout).unwrap()["status"], "failed");
}

#[test]
fn ctrl_c_cancels_the_job_of_run() {
    let home = Home::new();
    let member = home.endless("endless");
    let mut run: Child =
        home.guild().args(["run", path(&member), "Never end."]).stderr(Stdio::piped()).spawn().unwrap();
    let jobs = member.join("jobs");
    wait_for("the job to be there", || {
        fs::read_dir(&jobs).ok()?.filter_map(Result::ok).find(|job| !job.file_name().to_string_lossy().starts_with('.'))
    });
    let sent = Command::new("kill").args(["-INT", &run.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let status = wait_for("the command to end", || run.try_wait().unwrap());
    assert_eq!(status.code(), Some(130));
    assert_eq!(meta(&only_job(&member))["status"], "cancelled");
}

#[test]
fn run_on_a_served_member_goes_through_its_owner() {
    let home = Home::new();
    let member = home.quick("quick");
    let host = home.serve(&member, &[]);
    let done = output(&mut home.guild(), &["run", path(&member), "Do it."]);
    assert_eq!((done.status.code(), stdout(&done).as_str()), (Some(0), "date\n"), "{}", stderr(&done));
    let jobs = host.client().call("worker/list", json!({})).unwrap();
    assert_eq!(jobs["jobs"].as_array().unwrap().len(), 1);
}

#[test]
fn json_is_exactly_what_the_wire_says() {
    let home = Home::new();
    let member = home.quick("quick");
    let host = home.serve(&member, &[]);
    let (client, url) = (host.client(), host.client().url());
    let guild = |arguments: &[&str]| output(home.guild().env("GUILD_URL", &url), arguments);

    let id = json_of(&guild(&["dispatch", "Do it.", "--description", "d", "--json"]))["jobId"].clone();
    let id = id.as_str().unwrap();
    client.ended(id);
    let same = |arguments: &[&str], method: &str, params: Value| {
        let ours = guild(arguments);
        assert!(ours.status.success(), "{}", stderr(&ours));
        let (_, body) =
            client.post(&json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string()).unwrap();
        assert!(body.contains(stdout(&ours).trim_end()), "{body} does not contain {}", stdout(&ours));
    };
    same(&["status", id, "--json"], "worker/status", json!({"jobId": id}));
    same(&["result", id, "--json"], "worker/result", json!({"jobId": id}));
    same(&["list", "--json"], "worker/list", json!({}));
    same(&["list", "--detailed", "--json"], "worker/list", json!({"detail": "detailed"}));
    same(&["list", "--filter", "x*", "--json"], "worker/list", json!({"filter": "x*"}));
    assert_eq!(json_of(&guild(&["cancel", id, "--json"])), json!({"jobId": id, "status": "completed"}));
    assert_eq!(json_of(&guild(&["delete", id, "--json"])), json!({"jobId": id, "deleted": true}));
}

#[test]
fn people_read_lines_without_colours_in_a_pipe() {
    let home = Home::new();
    home.quick("quick");
    let host = home.serve_roster(&[]);
    let url = format!("http://127.0.0.1:{}", host.port);
    let guild = |arguments: &[&str]| output(home.guild().args(arguments), &["--url", &url, "--member", "quick"]);
    assert!(stderr(&guild(&["list"])).contains("no jobs"));
    let id = stdout(&guild(&["dispatch", "Do it.\nWell."]));
    let id = id.trim_end();
    host.at("quick").ended(id);
    let listed = stdout(&guild(&["list"]));
    let fields: Vec<_> = listed.trim_end().split('\t').collect();
    assert_eq!((&fields[..3], fields[4]), (&[id, "completed", "quick"][..], "Do it."), "{listed}");
    let status = stdout(&guild(&["status", id]));
    assert!(status.contains("status       completed\n") && !status.contains('\u{1b}'), "{status}");
    assert_eq!(stdout(&guild(&["result", id])), "date\n");
    assert_eq!(stdout(&guild(&["delete", id])), format!("{id} is deleted\n"));
    let gone = guild(&["status", id]);
    assert_eq!((gone.status.code(), stderr(&gone)), (Some(1), format!("error: Unknown job ID: {id}\n")));
}

#[test]
fn errors_say_what_to_do() {
    let home = Home::new();
    home.quick("quick");
    let error_of = |arguments: &[&str]| {
        let done = output(&mut home.guild(), arguments);
        assert_eq!((done.status.code(), stdout(&done).as_str()), (Some(1), ""), "{arguments:?}");
        stderr(&done)
    };
    let nobody = format!("http://127.0.0.1:{}/mcp", free_port());
    let text = error_of(&["list", "--url", &nobody]);
    assert!(text.contains("guild serve") && text.contains("--url"), "{text}");
    assert!(error_of(&["run", "nobody", "x", "--members", path(&home.path("members"))]).contains("guild members"));
    assert!(error_of(&["run", "quick", "x", "--input", "[]"]).contains("JSON object"));
    assert!(error_of(&["run", "quick", "x", "--agent", "oracle"]).contains("extractive"));
    assert!(error_of(&["serve", "--config", "none.toml"]).contains("none.toml"));
    home.quick("other");
    let host = home.serve_roster(&[]);
    let text = error_of(&["dispatch", "x", "--url", &format!("http://127.0.0.1:{}/mcp", host.port)]);
    assert!(text.contains("--member KEY") && text.contains("it serves other, quick"), "{text}");
    let text = error_of(&["list", "--url", &format!("http://127.0.0.1:{}/nowhere", host.port)]);
    assert!(text.contains("404") && text.contains("--member"), "{text}");
}

#[test]
fn wrong_options_of_serve_are_not_taken_for_a_port_in_use() {
    let home = Home::new();
    let done = output(&mut home.guild(), &["serve", "--sauces", "x"]);
    assert_eq!(done.status.code(), Some(1));
    assert!(stderr(&done).contains("--sources"), "{}", stderr(&done));
    assert_eq!(output(&mut home.guild(), &["serve", "--help"]).status.code(), Some(0));
}

#[test]
fn a_closed_stdout_is_no_error() {
    let home = Home::new();
    let member = home.quick("quick");
    for n in 0..100 {
        let meta = json!({"jobId": format!("j{n}"), "status": "completed", "description": "d".repeat(60),
            "startedAt": "2026-01-01T00:00:00Z", "completedAt": "2026-01-01T00:00:00Z"});
        home.write(&format!("members/quick/jobs/j{n}/meta.json"), meta.to_string());
    }
    let host = home.serve(&member, &[]);
    // Into a pipe that nobody reads.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut list = home.guild();
    list.args(["list", "--url", &host.client().url()]).stdout(writer).stderr(Stdio::piped());
    let done = list.output().unwrap();
    assert_eq!((done.status.code(), stderr(&done).as_str()), (Some(0), ""));
}

#[test]
fn prune_removes_what_ended_long_ago_itself_or_through_the_owner() {
    let home = Home::new();
    let member = home.quick("quick");
    let make = |id: &str, status: &str, ended: Option<&str>| {
        let meta = json!({"jobId": id, "status": status, "description": "d", "startedAt": "2026-01-01T00:00:00Z",
            "completedAt": ended, "error": (status == "failed").then_some("x")});
        home.write(&format!("members/quick/jobs/{id}/meta.json"), meta.to_string());
    };
    let far = Some("2999-01-01T00:00:00Z");
    let near = Some("2026-01-01T00:00:00Z");
    let prune = |more: &[&str]| {
        let members = home.path("members");
        let mut arguments = vec!["prune", "--members", path(&members), "--json"];
        arguments.extend(more);
        let pruned = json_of(&output(&mut home.guild(), &arguments));
        let mut removed: Vec<_> =
            pruned[0]["removed"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()).collect();
        removed.sort();
        removed.join(" ")
    };
    let fill = || {
        make("done", "completed", near);
        make("fail", "failed", near);
        make("gone", "cancelled", near);
        make("late", "completed", far);
    };
    fill();
    assert_eq!(prune(&["--status", "failed"]), "fail");
    assert_eq!(prune(&["quick", "--older-than", "1w"]), "done gone");
    assert_eq!(only_job(&member).file_name().unwrap(), "late");

    fill();
    let host = home.serve(&member, &[]);
    assert_eq!(prune(&["--status", "failed"]), "fail");
    assert_eq!(prune(&[]), "done gone");
    assert_eq!(host.client().call("worker/list", json!({})).unwrap()["jobs"].as_array().unwrap().len(), 1);
    let running = home.endless("endless");
    let done = output(&mut home.guild(), &["prune", path(&running), "--status", "running"]);
    assert!(stderr(&done).contains("never pruned"), "{}", stderr(&done));
}

/// A home with two members of the name `probe`, `./probe` and `pr/probe`, each with a job that ended long ago.
fn two_probes() -> Home {
    let home = Home::new();
    for place in ["probe", "pr/probe"] {
        let made = home.quick(place);
        fs::create_dir_all(home.path(place).parent().unwrap()).unwrap();
        fs::rename(made, home.path(place)).unwrap();
        let meta = json!({"jobId": "old", "status": "completed", "description": "d",
            "startedAt": "2026-01-01T00:00:00Z", "completedAt": "2026-01-01T00:00:00Z"});
        home.write(&format!("{place}/jobs/old/meta.json"), meta.to_string());
    }
    home
}

/// Types a command in the home's own directory.
fn at_home(home: &Home, arguments: &[&str]) -> Output {
    output(home.guild().current_dir(home.path(".")), arguments)
}

#[test]
fn prune_with_members_takes_a_name_for_a_key_and_not_for_a_directory_here() {
    let home = two_probes();
    let [here, there] = ["probe/jobs/old", "pr/probe/jobs/old"].map(|job| home.path(job));
    let pruned = at_home(&home, &["prune", "probe", "--members", "pr"]);
    assert!(stdout(&pruned).starts_with("probe: 1 job removed, "), "{}", stderr(&pruned));
    assert!(here.exists() && !there.exists());
    let nobody = at_home(&home, &["prune", "probe", "--members", "members"]);
    assert_eq!(nobody.status.code(), Some(1));
    assert!(stderr(&nobody).contains("members/probe") && here.exists(), "{}", stderr(&nobody));
    let nobody = at_home(&home, &["prune", "probe", "--members", "none"]);
    assert!(stderr(&nobody).contains("none does not exist") && here.exists(), "{}", stderr(&nobody));
    let pruned = at_home(&home, &["prune", "./probe", "--members", "pr"]);
    assert!(pruned.status.success() && !here.exists(), "{}", stderr(&pruned));
}

#[test]
fn run_with_members_takes_a_name_for_a_key_and_not_for_a_directory_here() {
    let home = two_probes();
    let jobs = |member: &str| fs::read_dir(home.path(member).join("jobs")).unwrap().count();
    let done = at_home(&home, &["run", "probe", "Do it.", "--members", "pr"]);
    assert_eq!(stdout(&done), "date\n", "{}", stderr(&done));
    assert_eq!((jobs("probe"), jobs("pr/probe")), (1, 2));
    let done = at_home(&home, &["run", "./probe", "Do it.", "--members", "pr"]);
    assert_eq!(stdout(&done), "date\n", "{}", stderr(&done));
    assert_eq!((jobs("probe"), jobs("pr/probe")), (2, 2));
}

#[test]
fn a_name_of_two_members_is_an_error_that_names_both() {
    let home = two_probes();
    home.write("config/guild/guild.toml", format!("members = {:?}", home.path("pr")));
    let there = home.path("pr/probe");
    for arguments in [&["prune", "probe"][..], &["run", "probe", "Do it."]] {
        let refused = at_home(&home, arguments);
        let text = stderr(&refused);
        assert_eq!(refused.status.code(), Some(1), "{text}");
        assert!(text.contains("./probe") && text.contains(path(&there)), "{text}");
    }
    assert_eq!(
        (only_job(&home.path("probe")), only_job(&there)),
        (home.path("probe/jobs/old"), there.join("jobs/old"))
    );

    // One directory under two names is one member.
    let pruned = output(home.guild().current_dir(home.path("pr")), &["prune", "probe"]);
    assert!(stdout(&pruned).starts_with("probe: 1 job removed, "), "{}", stderr(&pruned));
    assert!(home.path("probe/jobs/old").exists());
    // And where only one is there, no option is needed.
    fs::remove_dir_all(home.path("probe")).unwrap();
    assert_eq!(stdout(&at_home(&home, &["prune", "probe"])), "probe: 0 jobs removed, 0 bytes\n");
}

#[test]
fn members_are_shown_with_their_state_and_the_reason() {
    let home = Home::new();
    let served = home.quick("group/served");
    home.quick("quick");
    home.write("members/broken/guild-member.json", "{");
    home.quick("hollow");
    home.write("members/hollow/guest.wasm", "nothing");
    home.quick("foreign");
    home.edit_manifest("foreign", |manifest| drop(manifest.as_object_mut().unwrap().remove("component")));
    home.quick("file");
    home.write("members/file/jobs", "");
    let linked = home.quick("linked");
    std::os::unix::fs::symlink(home.path("members"), linked.join("memory")).unwrap();
    let host = home.serve(&served, &[]);

    let members = home.path("members");
    let shown = json_of(&output(&mut home.guild(), &["members", "--members", path(&members), "--json"]));
    let state = |key: &str| {
        let member = shown.as_array().unwrap().iter().find(|member| member["member"] == key).unwrap();
        (member["state"].as_str().unwrap().to_owned(), member.clone())
    };
    assert_eq!(state("quick").0, "ready");
    assert_eq!(state("quick").1["capabilities"], json!(["worker"]));
    assert_eq!(state("foreign").0, "foreign");
    for (key, reason) in [("file", "jobs is not a directory"), ("linked", "memory is a symlink")] {
        let (state, member) = state(key);
        assert!(state == "error" && member["reason"].as_str().unwrap().contains(reason), "{member}");
    }
    assert!(state("hollow").1["reason"].as_str().unwrap().contains("component"));
    assert!(state("broken").1["reason"].as_str().unwrap().contains("guild-member.json"));
    assert_eq!(
        (state("group/served").0.as_str(), &state("group/served").1["url"]),
        ("owned", &json!(host.client().url()))
    );
    let text = stdout(&output(&mut home.guild(), &["members", "--members", path(&members)]));
    assert!(text.lines().any(|line| line.starts_with("quick\tready\t")), "{text}");
    let worlds = text.lines().filter(|line| line.contains("\tautonomous-worker\t")).count();
    assert_eq!(worlds, 5, "{text}");
}
