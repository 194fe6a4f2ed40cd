//! What the operator of a hall relies on: restarts, moves, and that it is told what to do.

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Output, Stdio},
};

use guild_fakes::git;
use serde_json::{Value, json};

use crate::{
    commissions::Hall,
    support::{
        host::wait_for,
        output::{json_of, stderr, stdout},
    },
};

/// The command on a hall, with what is on its stdin.
fn on(hall: &Hall, home: &str, arguments: &[&str], input: &str) -> Output {
    let mut command: Command = hall.home.guild();
    command.current_dir(hall.home.path(".")).args(arguments).args(["--home", home]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It may not read any.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn succeeds(output: &Output) -> String {
    assert!(output.status.success(), "{}\n{}", stdout(output), stderr(output));
    stdout(output)
}

/// A hall with the project `demo`, whose own packages have a researcher.
fn with_package() -> Hall {
    let hall = Hall::new(&["demo"]);
    let member = hall.home.researcher("researcher");
    let packages = hall.home.path("hall/packages");
    fs::create_dir_all(&packages).unwrap();
    fs::rename(member, packages.join("researcher")).unwrap();
    hall
}

fn mv(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::rename(from, to).unwrap();
}

/// The one meeting of a hall.
fn meeting(hall: &Hall, home: &str) -> Value {
    json_of(&on(hall, home, &["meeting", "list", "--json"], ""))["meetings"][0].clone()
}

#[test]
fn after_kill_9_a_hall_starts_again_whatever_its_pid_files_name() {
    let hall = with_package();
    let mut innocent = Command::new("sleep").arg("600").spawn().unwrap();
    let mut zombie = Command::new("true").spawn().unwrap();
    for pid in [innocent.id(), zombie.id(), 1] {
        hall.home.serve_hall("hall").kill();
        assert!(hall.home.path("hall/guild-hall.sock").exists(), "it was not killed");
        for file in ["guild-hall.sock.pid", "guild-hall.pid"] {
            hall.home.write(&format!("hall/{file}"), pid.to_string());
        }
    }
    let host = hall.home.serve_hall("hall");
    assert_eq!(hall.get("/system/runtime/daemon/health")["status"], "ok");
    assert!(innocent.try_wait().unwrap().is_none());
    host.stop();
    innocent.kill().unwrap();
    innocent.wait().unwrap();
    zombie.wait().unwrap();
}

#[test]
fn a_hall_goes_on_with_its_open_meeting_where_its_home_and_its_project_were_moved() {
    let hall = with_package();
    let host = hall.home.serve_hall("hall");
    succeeds(&on(&hall, "hall", &["meet", "researcher", "--project", "demo", "How long does the luna moth live?"], ""));
    let id = meeting(&hall, "hall")["meetingId"].as_str().unwrap().to_owned();
    host.kill();
    mv(&hall.home.path("hall"), &hall.home.path("srv/guild"));

    let host = hall.home.serve_hall("srv/guild");
    let said = succeeds(&on(&hall, "srv/guild", &["meeting", "resume", &id], "What is a luna moth?\n"));
    assert!(said.contains("The luna moth lives for a week."), "{said}");
    host.stop();

    let (before, after) = (hall.project("demo"), hall.home.path("books/demo"));
    mv(&before, &after);
    let host = hall.home.serve_hall("srv/guild");
    let refused = on(&hall, "srv/guild", &["meeting", "close", &id], "");
    let text = stderr(&refused);
    assert!(text.contains(&format!("{} does not exist", before.display())), "{text}");
    assert!(text.contains("run `guild project add NEW-PATH --name demo`"), "{text}");
    // A directory of the same name could be another project.
    let unnamed = stderr(&on(&hall, "srv/guild", &["project", "add", after.to_str().unwrap()], ""));
    assert!(unnamed.contains("add `--name demo`"), "{unnamed}");
    // As it says.
    let added = on(&hall, "srv/guild", &["project", "add", after.to_str().unwrap(), "--name", "demo"], "");
    succeeds(&added);
    let reread = format!("`kill -HUP {}`", host.pid());
    assert!(stderr(&added).contains(&reread), "{}", stderr(&added));
    let config = fs::read_to_string(hall.home.path("config/guild/guild.toml")).unwrap();
    assert!(!config.contains(before.to_str().unwrap()) && config.contains("books/demo"), "{config}");
    host.stop();
    let host = hall.home.serve_hall("srv/guild");
    let closed = on(&hall, "srv/guild", &["meeting", "close", &id], "");
    assert!(succeeds(&closed).contains("These notes were not written by a model"), "{}", stderr(&closed));
    let record = git(&after, &["show", &format!("claude/main:.lore/work/meetings/{id}.md")]);
    assert!(record.contains("status: closed"), "{record}");
    assert_eq!(git(&after, &["worktree", "list"]).lines().count(), 2);
    host.stop();
}

#[test]
fn a_meeting_names_the_branch_that_is_in_its_way_and_what_to_do() {
    let hall = with_package();
    let _host = hall.home.serve_hall("hall");
    // The integration worktree is there before the branch is.
    hall.get("/commission/request/commission/list?projectName=demo");
    git(&hall.project("demo"), &["branch", "claude/meeting"]);
    let met = on(&hall, "hall", &["meet", "researcher", "--project", "demo", "Hello"], "");
    let expected = "branch -m claude/meeting my-claude-meeting";
    assert!(stderr(&met).contains(expected), "{}", stderr(&met));
    let added = on(&hall, "hall", &["project", "add", hall.project("demo").to_str().unwrap()], "");
    assert!(!added.status.success() && stderr(&added).contains(expected), "{}", stderr(&added));
    git(&hall.project("demo"), &["branch", "-m", "claude/meeting", "my-claude-meeting"]);
    succeeds(&on(&hall, "hall", &["meet", "researcher", "--project", "demo", "Hello"], ""));
}

#[test]
fn an_empty_packages_is_said_at_start_with_the_command_that_helps() {
    let hall = Hall::new(&["demo"]);
    let member = hall.home.researcher("researcher");
    let host = hall.home.serve_hall("hall");
    let packages = hall.home.path("hall/packages");
    let expected = format!("nobody can be commissioned: no worker is in {}", packages.display());
    host.prints(&expected);
    // As it says.
    let command = host.output().split("`cp -r ").nth(1).unwrap().split('`').next().unwrap().to_owned();
    let command = command.replace("guild-members/researcher", member.to_str().unwrap());
    assert!(Command::new("sh").args(["-c", &format!("cp -r {command}")]).status().unwrap().success());
    wait_for("the researcher to be served", || host.members().iter().any(|one| one["state"] == "ready").then_some(()));
    host.stop();
    let host = hall.home.serve_hall("hall");
    assert!(!host.output().contains("nobody can be commissioned"), "{}", host.output());
    host.stop();
}

/// The checks of `guild doctor --hall hall`, as `KIND NAME: STATE, DETAIL`, and its exit code.
fn doctor(hall: &Hall) -> (Option<i32>, Vec<String>) {
    let output = hall.home.run(&["doctor", "--hall", "hall", "--json"]);
    let report = json_of(&output);
    let text = |check: &Value, key: &str| check[key].as_str().unwrap().to_owned();
    let line = |check: &Value| {
        let [kind, name, state, detail] = ["kind", "name", "state", "detail"].map(|key| text(check, key));
        format!("{kind} {name}: {state}, {detail}")
    };
    (output.status.code(), report["checks"].as_array().unwrap().iter().map(line).collect())
}

#[test]
fn doctor_looks_at_a_hall_as_serve_does() {
    let hall = Hall::new(&["demo", "gone", "blocked"]);
    let says = |parts: &[&str]| {
        let (code, checks) = doctor(&hall);
        let found = checks.iter().any(|check| parts.iter().all(|part| check.contains(part)));
        assert!(found, "{parts:?}: {checks:#?}");
        code
    };
    fs::create_dir_all(hall.home.path("hall/packages")).unwrap();
    assert_eq!(
        says(&["hall packages: unusable, nobody can be commissioned", "cp -r guild-members/researcher"]),
        Some(1)
    );
    fs::rename(hall.home.researcher("researcher"), hall.home.path("hall/packages/researcher")).unwrap();
    says(&["hall packages: usable, 1 worker can be commissioned"]);
    // It needs no read roots for that.
    says(&[
        "member researcher: usable, ",
        "works on commissions and in meetings, and dispatches besides these are refused",
    ]);
    says(&["hall manager: off, there is none"]);

    fs::remove_dir_all(hall.project("gone")).unwrap();
    git(&hall.project("blocked"), &["branch", "claude/commission"]);
    says(&["project demo: usable, ", "from main"]);
    says(&[
        "project gone: unusable, ",
        "does not exist; if it was moved, run `guild project add NEW-PATH --name gone`",
    ]);
    assert_eq!(says(&["project blocked: unusable, ", "branch -m claude/commission"]), Some(1));
    git(&hall.project("blocked"), &["branch", "-D", "claude/commission"]);
    succeeds(&on(&hall, "hall", &["project", "remove", "gone"], ""));

    hall.configure("[hall]\nmanager = \"guild-master\"");
    says(&["hall manager: unusable, [hall] manager = \"guild-master\" in guild.toml, and there is no such member"]);
    fs::rename(hall.home.guild_master("guild-master"), hall.home.path("hall/packages/guild-master")).unwrap();
    assert_eq!(says(&["hall manager: unusable, the manager cannot work on the runtime `extractive`"]), Some(1));

    let config = hall.home.path("hall/config.yaml");
    let good = fs::read_to_string(&config).unwrap();
    fs::write(&config, "projects: {").unwrap();
    says(&["hall config.yaml: unusable, config.yaml cannot be read"]);
    fs::write(&config, good).unwrap();

    let toml = hall.home.path("config/guild/guild.toml");
    let text = fs::read_to_string(&toml).unwrap();
    fs::write(&toml, text.replacen("[[project]]\n", "[[project]]\npush = true\npull_requests = true\n", 1)).unwrap();
    says(&["project demo: unusable, guild.toml permits pushing, and the repository has no origin"]);
    says(&["git gh: "]);
}

/// The lines of the audit log that are of requests, as `METHOD: WHO OUTCOME ABOUT`.
fn audited(hall: &Hall) -> Vec<String> {
    let text = fs::read_to_string(hall.home.path("config/guild/audit.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let text = |line: &Value, key: &str| line[key].as_str().unwrap_or("-").to_owned();
    let line = |line: Value| {
        let [method, who, outcome, detail] = ["method", "who", "outcome", "detail"].map(|key| text(&line, key));
        format!("{method}: {who} {outcome} {detail}")
    };
    lines.filter(|line| line["event"] == "request").map(line).collect()
}

#[test]
fn the_audit_log_has_who_asked_the_socket_for_what_and_what_came_of_it_and_a_failure_is_a_warning() {
    let hall = with_package();
    let toml = hall.home.path("config/guild/guild.toml");
    let text = fs::read_to_string(&toml).unwrap();
    fs::write(&toml, format!("audit_log = \"audit.jsonl\"\n{text}")).unwrap();
    let host = hall.home.serve_hall("hall");
    let id = hall.create("demo", "researcher", json!({}));
    // In the way of its attempt.
    git(&hall.project("demo"), &["branch", "claude/commission"]);
    hall.dispatch(&id);
    hall.failed("demo", &id);
    let warning = wait_for("the warning", || {
        let output = host.output();
        output.lines().find(|line| line.contains("the commission failed")).map(str::to_owned)
    });
    for part in ["WARN", &id, "researcher", "demo", "branch -m claude/commission my-claude-commission"] {
        assert!(warning.contains(part), "{part}: {warning}");
    }
    let forged = "nobody\\n{}";
    assert_eq!(hall.post("/commission/run/cancel", json!({"commissionId": forged})).0, 404);
    let met = on(&hall, "hall", &["meet", "researcher", "--project", "nowhere", "Hello"], "");
    assert!(stderr(&met).contains("nowhere"), "{}", stderr(&met));
    // A field that is not the subject of what is asked names nothing.
    assert_eq!(hall.post("/meeting/session/meeting/close", json!({"meetingId": "none", "commissionId": id})).0, 404);
    git(&hall.project("demo"), &["branch", "-D", "claude/commission"]);
    succeeds(&on(&hall, "hall", &["meet", "researcher", "--project", "demo", "Hello"], ""));
    let meeting = hall.get("/meeting/session/meeting/list")["sessions"][0]["meetingId"].as_str().unwrap().to_owned();
    let user = rustix::process::geteuid().as_raw();
    let lines = audited(&hall);
    for expected in [
        format!("meeting/create: user:{user} ok {meeting}"),
        format!("meeting/close: user:{user} invalid -"),
        format!("commission/create: user:{user} ok {id}"),
        format!("commission/dispatch: user:{user} ok {id}"),
        format!("commission/cancel: user:{user} invalid -"),
        format!("meeting/create: user:{user} invalid -"),
    ] {
        assert_eq!(lines.iter().filter(|line| **line == expected).count(), 1, "{expected}: {lines:#?}");
    }
    host.stop();
}

/// The branches of commissions and meetings of the project `demo`.
fn branches(hall: &Hall) -> Vec<String> {
    let listed = git(&hall.project("demo"), &["for-each-ref", "--format=%(refname:short)", "refs/heads/claude"]);
    listed.lines().filter(|name| *name != "claude/main").map(str::to_owned).collect()
}

#[test]
fn branches_of_what_is_over_go_by_a_command_and_by_a_rule() {
    let hall = with_package();
    let host = hall.home.serve_hall("hall");
    let carry_out = || {
        let id = hall.create("demo", "researcher", json!({}));
        hall.dispatch(&id);
        hall.until("demo", &id, "completed");
        id
    };
    let id = carry_out();
    git(&hall.project("demo"), &["branch", "claude/commission/of-another-machine"]);
    let branch = format!("claude/commission/{id}");
    let tidy = |more: &[&str]| {
        let arguments = [&["project", "tidy", "demo", "--json"], more].concat();
        json_of(&on(&hall, "hall", &arguments, ""))
    };
    let found = tidy(&["--older-than", "1h"]);
    assert_eq!((&found[0]["branch"], &found[0]["removed"]), (&json!(branch), &json!(false)), "{found}");
    let shown = succeeds(&on(&hall, "hall", &["project", "tidy", "--older-than", "0s", "--dry-run"], ""));
    assert!(shown.contains(&branch) && shown.contains("its commission is completed"), "{shown}");
    assert!(shown.contains("its commission or meeting is unknown"), "{shown}");
    assert_eq!(branches(&hall).len(), 2);
    // While a host serves the hall.
    let removed = tidy(&["--older-than", "0s"]);
    assert_eq!(removed[0]["removed"], true, "{removed}");
    assert_eq!(branches(&hall), ["claude/commission/of-another-machine"]);
    git(&hall.project("demo"), &["branch", &branch, removed[0]["commit"].as_str().unwrap()]);
    let other = carry_out();
    host.stop();

    hall.configure("[hall]\ntidy_branches_after_days = 0");
    let host = hall.home.serve_hall("hall");
    wait_for("the branches to be gone", || (branches(&hall) == ["claude/commission/of-another-machine"]).then_some(()));
    assert_eq!(hall.read("demo", &other)["commission"]["status"], "completed");
    host.stop();
    let unknown = on(&hall, "hall", &["project", "tidy", "nothing"], "");
    assert!(stderr(&unknown).contains("project 'nothing' not found"), "{}", stderr(&unknown));
}

#[test]
fn logs_of_a_commission_are_read_in_a_home_and_from_its_host() {
    let hall = with_package();
    let host = hall.home.serve_hall("hall");
    let id = hall.create("demo", "researcher", json!({}));
    hall.dispatch(&id);
    hall.until("demo", &id, "completed");
    let here = succeeds(&on(&hall, "hall", &["logs", "@latest"], ""));
    assert!(here.contains("session   extractive") && here.contains("end       success"), "{here}");
    let url = format!("http://127.0.0.1:{}", host.port);
    let there = hall.home.run(&["logs", "@latest", "--url", &url, "--follow"]);
    assert_eq!(succeeds(&there), here);
    host.stop();
    let both = hall.home.run(&["logs", "@latest", "--url", &url, "--home", "hall"]);
    assert!(stderr(&both).contains("cannot be used with"), "{}", stderr(&both));
}
