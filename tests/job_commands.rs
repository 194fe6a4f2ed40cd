//! The commands that are about jobs, and `guild call`: how a job is named, where it is looked for, what is shown, and where.

use std::{
    fs,
    io::Write as _,
    net::TcpStream,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::support::{
    guest::{self, Guest},
    host::{Home, Host, wait_for},
    output::{json_of, stderr, stdout},
};

/// A completed one, with its report.
fn completed(home: &Home, member: &str, id: &str, at: &str, report: &str) {
    home.job(member, id, json!({"status": "completed", "startedAt": at, "completedAt": at}));
    home.write(&format!("members/{member}/jobs/{id}/result.md"), report);
}

/// Two members with jobs whose ids begin alike.
fn two_members() -> Home {
    let home = Home::new();
    for member in ["first", "second"] {
        home.quick(member);
    }
    completed(&home, "first", "aa-1", "2026-01-01T00:00:00Z", "of aa-1");
    completed(&home, "first", "ab-1", "2026-01-02T00:00:00Z", "of ab-1");
    completed(&home, "second", "ab-2", "2026-01-04T00:00:00Z", "of ab-2");
    completed(&home, "second", "ac-1", "2026-01-03T00:00:00Z", "of ac-1");
    home
}

/// What a command shows on a terminal, with its escapes.
fn on_terminal(home: &Home, variable: (&str, &str), arguments: &[&str]) -> String {
    let line: Vec<_> = arguments.iter().map(|argument| format!("'{argument}'")).collect();
    let line = format!("stty cols 90 rows 20; exec '{}' {}", env!("CARGO_BIN_EXE_guild"), line.join(" "));
    let guild = home.guild();
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).current_dir(home.path(".")).stdin(Stdio::null());
    for (name, value) in guild.get_envs() {
        match value {
            Some(value) => script.env(name, value),
            None => script.env_remove(name),
        };
    }
    let shown = script.env_remove("NO_COLOR").env("TERM", "xterm").env(variable.0, variable.1).output().unwrap();
    stdout(&shown).replace("\r\n", "\n")
}

#[test]
fn a_job_is_found_over_all_members_by_its_id_by_how_it_begins_or_as_the_latest() {
    let home = two_members();
    // Of a host, and of the files.
    let host = home.serve_roster(&[]);
    let url = format!("http://127.0.0.1:{}", host.port);
    for place in [["--url", &url], ["--members", "members"]] {
        let guild = |arguments: &[&str]| home.run(&[arguments, &place].concat());
        assert_eq!(stdout(&guild(&["result", "ab-2"])), "of ab-2\n", "{place:?}");
        assert_eq!(stdout(&guild(&["result", "aa"])), "of aa-1\n", "{place:?}");
        assert_eq!(stdout(&guild(&["result", "@latest"])), "of ab-2\n", "{place:?}");
        assert_eq!(stdout(&guild(&["result", "@latest", "--member", "first"])), "of ab-1\n", "{place:?}");
        assert_eq!(stdout(&guild(&["result", "ab", "--member", "first"])), "of ab-1\n", "{place:?}");
        let status = stdout(&guild(&["status", "ac"]));
        assert!(status.contains("member       second\n") && status.contains("what ac-1 is"), "{status}");
        assert_eq!(json_of(&guild(&["status", "ac", "--json"]))["jobId"], "ac-1");

        let ambiguous = guild(&["status", "ab"]);
        let error = stderr(&ambiguous);
        assert_eq!((ambiguous.status.code(), stdout(&ambiguous).as_str()), (Some(1), ""), "{error}");
        for (id, member) in [("ab-1", "first"), ("ab-2", "second")] {
            let line = error.lines().find(|line| line.starts_with(id)).unwrap_or_else(|| panic!("{error}"));
            assert!(
                line.contains(member) && line.contains("days ago") && line.contains(&format!("what {id} is")),
                "{line}"
            );
        }
        let unknown = guild(&["status", "zz"]);
        assert!(unknown.status.code() == Some(1) && stderr(&unknown).contains("no job zz"), "{}", stderr(&unknown));
        let nobody = guild(&["status", "ab", "--member", "nobody"]);
        assert!(nobody.status.code() == Some(1) && stderr(&nobody).contains("nobody"), "{}", stderr(&nobody));
    }
    // Files are read; what changes a job goes to the host that serves their member.
    let deleted = home.run(&["delete", "ac", "--members", "members"]);
    assert_eq!(stdout(&deleted), "ac-1 is deleted\n", "{}", stderr(&deleted));
    let guild = |arguments: &[&str]| home.run(&[arguments, &["--url", &url]].concat());
    assert_eq!(stdout(&guild(&["cancel", "aa"])), "aa-1 is completed\n");
    assert_eq!(stdout(&guild(&["delete", "aa"])), "aa-1 is deleted\n");
    assert!(!home.path("members/first/jobs/aa-1").exists());
}

#[test]
fn list_is_of_all_members_newest_first_with_columns_on_a_terminal_and_fields_in_a_pipe() {
    let home = two_members();
    let id = "019b76da-a800-7000-8000-000000000000";
    completed(&home, "first", id, "2026-01-01T00:00:00Z", "x");
    let host = home.serve_roster(&[]);
    let url = format!("http://127.0.0.1:{}", host.port);
    let listed = stdout(&home.run(&["list", "--url", &url]));
    let first: Vec<_> = listed.lines().next().unwrap().split('\t').collect();
    let what = format!("what {id} is");
    assert_eq!(first, [id, "completed", "first", "2026-01-01T00:00:00.000Z", &what], "{listed}");
    let all = json_of(&home.run(&["list", "--url", &url, "--json"]));
    let members: Vec<_> = all["jobs"].as_array().unwrap().iter().map(|job| job["member"].as_str().unwrap()).collect();
    assert_eq!(members.len(), 5);
    assert_eq!(all["jobs"][0], json!({"member": "first", "jobId": id, "status": "completed"}));
    let one = json_of(&home.run(&["list", "--url", &url, "--member", "second", "--json"]));
    assert_eq!(one["jobs"].as_array().unwrap().len(), 2);
    assert_eq!(one["jobs"][0]["member"], Value::Null);

    let shown = on_terminal(&home, ("NO_COLOR", "1"), &["list", "--members", "members"]);
    let table: Vec<_> = shown.lines().filter(|line| !line.starts_with("read from")).collect();
    assert!(table[0].starts_with("JOB  ") && table[0].contains("  STATUS     MEMBER  AGE"), "{shown}");
    assert!(table[1].starts_with("ab-2 ") && table[1].contains(" days ago"), "{shown}");
    assert!(table.iter().all(|line| line.chars().count() <= 90), "{shown}");
    assert_eq!(shown.matches(" first ").count() + shown.matches(" second ").count(), 5, "{shown}");
}

#[test]
fn a_host_of_one_member_is_asked_where_it_answers() {
    let home = Home::new();
    let host = home.serve(&home.quick("only"), &[]);
    let url = format!("http://127.0.0.1:{}", host.port);
    let done = home.run(&["dispatch", "Do it.", "--url", &url, "--wait"]);
    assert_eq!((done.status.code(), stdout(&done).as_str()), (Some(0), "date\n"), "{}", stderr(&done));
    // With its name, and without.
    for member in [&["--member", "only"][..], &[]] {
        let status = home.run(&[&["status", "@latest", "--url", &url], member].concat());
        assert!(stdout(&status).contains("member       only\n"), "{}", stderr(&status));
    }
    let stranger = home.run(&["list", "--url", &url, "--member", "other"]);
    assert!(stderr(&stranger).contains("no member other") && stderr(&stranger).contains("it serves only"));
    // The files name the process that serves the member, and where.
    let id = json_of(&home.run(&["status", "@latest", "--url", &url, "--json"]))["jobId"].as_str().unwrap().to_owned();
    let deleted = home.run(&["delete", "@latest", "--members", "members"]);
    assert_eq!(stdout(&deleted), format!("{id} is deleted\n"), "{}", stderr(&deleted));
}

#[test]
fn dispatch_waits_for_the_report_and_ends_as_run_does() {
    let home = Home::new();
    home.quick("quick");
    home.failing("failing");
    home.endless("endless");
    let host = home.serve_roster(&[]);
    let url = format!("http://127.0.0.1:{}", host.port);
    let wait = |member: &str, more: &[&str]| {
        home.run(&[&["dispatch", "Do it.", "--wait", "--url", &url, "--member", member], more].concat())
    };
    let done = wait("quick", &[]);
    assert_eq!((done.status.code(), stdout(&done).as_str()), (Some(0), "date\n"), "{}", stderr(&done));
    assert!(stderr(&done).contains("job: 0"), "{}", stderr(&done));
    assert_eq!(json_of(&wait("quick", &["--json"]))["output"], "date");
    let failed = wait("failing", &[]);
    assert!(failed.status.code() == Some(3) && stderr(&failed).contains("error: date"), "{}", stderr(&failed));

    let start = || {
        let mut command = home.guild();
        command.args(["dispatch", "Do it.", "--wait", "--url", &url, "--member", "endless"]).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        let running = || {
            let list = host.at("endless").call("worker/list", json!({})).unwrap();
            let jobs = list["jobs"].as_array().unwrap().clone();
            Some(jobs.iter().find(|job| job["status"] == "running")?["jobId"].as_str().unwrap().to_owned())
        };
        (child, wait_for("the job to run", running))
    };
    let (mut waiting, id) = start();
    host.at("endless").cancel(&id).unwrap();
    assert_eq!(waiting.wait().unwrap().code(), Some(4));
    let (mut waiting, id) = start();
    assert!(Command::new("kill").args(["-INT", &waiting.id().to_string()]).status().unwrap().success());
    assert_eq!(waiting.wait().unwrap().code(), Some(130));
    assert_eq!(host.at("endless").call("worker/status", json!({"jobId": id})).unwrap()["status"], "cancelled");
}

/// A toolbox whose tools answer with what they are given; or, given nothing, refuse it.
fn toolbox(home: &Home) {
    let call = "(if (i32.le_u (local.get 3) (i32.const 2))
                  (then (return (call $fault (i32.const 1) (i32.const 1024) (i32.const 5)))))
                (call $ok (local.get 2) (local.get 3))";
    let tools = [("echo", guest::ANYTHING), ("again", guest::ANYTHING)];
    let guest = Guest::default().tools(&tools).call(call).with("(data (i32.const 1024) \"empty\")").build();
    home.member("tools", "toolbox-plugin", &guest);
    home.edit_manifest("tools", |manifest| manifest["capabilities"] = json!([]));
}

#[test]
fn call_calls_a_tool_here_or_through_the_host_that_serves_its_member() {
    let home = Home::new();
    toolbox(&home);
    home.quick("quick");
    let check = |place: &[&str]| {
        let call = |more: &[&str]| home.run(&[&["call", "tools"], more, place].concat());
        let answer = call(&["echo", r#"{"a":1}"#]);
        assert_eq!((answer.status.code(), stdout(&answer).as_str()), (Some(0), "{\"a\":1}\n"), "{}", stderr(&answer));
        let whole = json_of(&call(&["echo", r#"{"a":1}"#, "--json"]));
        assert_eq!((&whole["structuredContent"], &whole["isError"]), (&json!({"a": 1}), &json!(false)));
        let refused = call(&["again"]);
        assert_eq!((refused.status.code(), stdout(&refused).as_str()), (Some(1), ""));
        assert!(stderr(&refused).contains("empty"), "{}", stderr(&refused));
        assert_eq!(json_of(&call(&["again", "--json"]))["isError"], true);
        let unknown = call(&["other"]);
        assert_eq!(unknown.status.code(), Some(1));
        assert!(stderr(&unknown).contains("no tool other; it has echo, again"), "{}", stderr(&unknown));
        assert!(stderr(&call(&["echo", "[1]"])).contains("JSON object"));
        let mut piped = home.guild();
        piped.args(["call", "tools", "echo", "-"]).args(place).current_dir(home.path("."));
        let mut piped = piped.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        piped.stdin.take().unwrap().write_all(b"{\"b\": 2}").unwrap();
        assert_eq!(stdout(&piped.wait_with_output().unwrap()), "{\"b\":2}\n");
    };
    check(&["--members", "members"]);
    let toolless = home.run(&["call", "quick", "echo", "--members", "members"]);
    assert!(stderr(&toolless).contains("quick offers no tools"), "{}", stderr(&toolless));
    let host = home.serve_roster(&[]);
    check(&["--members", "members"]);
    check(&["--url", &format!("http://127.0.0.1:{}", host.port)]);
}

#[test]
fn call_refuses_an_input_that_is_longer_than_what_it_reads() {
    let home = Home::new();
    home.quick("quick");
    let said = |bytes: usize| {
        let mut call = home.guild();
        call.args(["call", "quick", "echo", "-", "--members", "members"]).current_dir(home.path("."));
        let mut call = call.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        call.stdin.take().unwrap().write_all(format!("{{{}}}", " ".repeat(bytes - 2)).as_bytes()).unwrap();
        let output = call.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        stderr(&output)
    };
    let most = 64 << 20;
    assert!(said(most).contains("quick offers no tools"), "{}", said(most));
    assert!(said(most + 1).contains("the input from stdin is longer than 67108864 bytes"), "{}", said(most + 1));
}

#[test]
fn without_a_host_jobs_are_read_from_their_files_and_unfinished_ones_are_shown_as_interrupted() {
    let home = two_members();
    home.job("second", "left", json!({"status": "running"}));
    home.write("members/second/jobs/left/status.md", "half way");
    let guild = |arguments: &[&str]| home.run(&[arguments, &["--members", "members"]].concat());
    let expected = "read from the files in members";
    let list = guild(&["list", "--filter", "what *"]);
    assert!(
        stdout(&list).contains("left\tinterrupted\tsecond\t") && stderr(&list).contains(expected),
        "{}",
        stdout(&list)
    );
    let quiet = guild(&["list", "--json"]);
    assert_eq!(stderr(&quiet), "");
    let left = json_of(&quiet)["jobs"].as_array().unwrap().iter().find(|job| job["jobId"] == "left").unwrap().clone();
    assert_eq!(left, json!({"member": "second", "jobId": "left", "status": "running", "interrupted": true}));
    let status = guild(&["status", "left"]);
    assert!(stdout(&status).contains("interrupted; no process runs it"), "{}", stdout(&status));
    assert!(stdout(&status).contains("half way") && stderr(&status).contains(expected), "{}", stderr(&status));
    assert_eq!(json_of(&guild(&["status", "left", "--json"]))["interrupted"], true);
    assert_eq!(json_of(&guild(&["status", "aa", "--json"]))["interrupted"], Value::Null);
    let result = guild(&["result", "left"]);
    assert!(result.status.code() == Some(1) && stderr(&result).contains("interrupted; no process runs it"));
    let cancel = guild(&["cancel", "left"]);
    assert!(cancel.status.code() == Some(1) && stderr(&cancel).contains("guild serve"), "{}", stderr(&cancel));

    // Without an option, the default host is asked first.
    home.write("config/guild/guild.toml", format!("members = {:?}", home.path("members")));
    if TcpStream::connect(("127.0.0.1", 7433)).is_err() {
        let result = home.run(&["result", "aa"]);
        assert_eq!(stdout(&result), "of aa-1\n");
        assert!(stderr(&result).contains("no host runs at http://127.0.0.1:7433"), "{}", stderr(&result));
    }
    let nowhere = home.run(&["list", "--url", "http://127.0.0.1:9"]);
    assert!(nowhere.status.code() == Some(1) && stderr(&nowhere).contains("cannot connect"), "{}", stderr(&nowhere));
}

#[test]
fn logs_has_the_lines_that_a_component_logged_among_the_turns_of_sessions() {
    let home = Home::new();
    let run =
        "(call $log.write (i32.const 1) (i32.const 1024) (i32.const 5)) (call $ok (i32.const 1024) (i32.const 5))";
    let guest = Guest::importing(&["log"]).run(run).with("(data (i32.const 1024) \"begun\")").build();
    home.member("own", "autonomous-worker", &guest);
    home.edit_manifest("own", |manifest| manifest["component"]["grants"] = json!({"log": {}}));
    let done = home.run(&["run", "own", "Do it.", "--members", "members"]);
    assert_eq!(stdout(&done), "begun\n", "{}", stderr(&done));
    let logs = home.run(&["logs", "@latest", "--members", "members", "--follow"]);
    assert!(stdout(&logs).contains("log       info: begun\n") && stderr(&logs).is_empty(), "{}", stdout(&logs));

    completed(&home, "own", "both", "2026-01-01T00:00:00Z", "x");
    let note = |second: u32| json!({"at": format!("2026-01-01T00:00:0{second}Z"), "type": "note", "session": 1, "text": second});
    let note = |second: u32| {
        note(second).to_string().replace(&format!("\"text\":{second}"), &format!("\"text\":\"n{second}\""))
    };
    home.write("members/own/jobs/both/transcript.jsonl", format!("{}\n{}\n", note(1), note(3)));
    home.write("members/own/jobs/both/log.txt", "2026-01-01T00:00:02Z info: \u{1b}[2Jb\n2026-01-01T00:00:04.5Z d\n");
    let logs = stdout(&home.run(&["logs", "both", "--members", "members"]));
    let words: Vec<_> = logs.lines().skip(1).map(|line| line.split_whitespace().last().unwrap()).collect();
    assert_eq!(words, ["n1", "\u{fffd}[2Jb", "n3", "d"], "{logs}");
    let raw = stdout(&home.run(&["logs", "both", "--members", "members", "--json"]));
    let types: Vec<Value> =
        raw.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].clone()).collect();
    assert_eq!(types, ["note", "log", "note", "log"], "{raw}");
}

#[test]
fn watch_of_a_member_that_is_not_there_is_an_error_that_names_those_that_are() {
    let home = two_members();
    let host = home.serve_roster(&[]);
    let url = format!("http://127.0.0.1:{}", host.port);
    let done = home.run(&["watch", "--member", "nosuch", "--url", &url]);
    assert_eq!((done.status.code(), stdout(&done).as_str()), (Some(1), ""));
    assert!(
        stderr(&done).contains("no member nosuch") && stderr(&done).contains("it serves first, second"),
        "{}",
        stderr(&done)
    );
    // A job that is named by how it begins, of whichever member.
    assert_eq!(home.run(&["watch", "--job", "aa", "--url", &url]).status.code(), Some(0));
}

#[test]
fn prune_passes_members_without_jobs_says_what_it_freed_and_only_shows_that_with_dry_run() {
    let home = two_members();
    toolbox(&home);
    home.quick("idle");
    let host = home.serve_roster(&[]);
    let bytes = |id: &str| {
        let job = home.path(&format!("members/{id}"));
        ["meta.json", "result.md"].iter().map(|file| fs::metadata(job.join(file)).unwrap().len()).sum::<u64>()
    };
    let first = bytes("first/jobs/aa-1") + bytes("first/jobs/ab-1");
    let second = bytes("second/jobs/ab-2") + bytes("second/jobs/ac-1");
    let prune = |more: &[&str]| home.run(&[&["prune", "--members", "members", "--older-than", "1s"], more].concat());

    let dry = prune(&["--dry-run"]);
    assert_eq!(dry.status.code(), Some(0), "{}", stderr(&dry));
    let expected = format!(
        "first: 2 jobs would be removed, {first} bytes\n  aa-1\n  ab-1\nsecond: 2 jobs would be removed, {second} bytes\n  ab-2\n  ac-1\n"
    );
    assert_eq!(stdout(&dry), expected);
    assert!(stderr(&dry).contains(&format!("to be freed: 4 jobs, {} bytes", first + second)), "{}", stderr(&dry));
    let dry = json_of(&prune(&["--dry-run", "--json"]));
    let of =
        |all: &Value, member: &str| all.as_array().unwrap().iter().find(|one| one["member"] == member).unwrap().clone();
    assert_eq!(
        of(&dry, "first"),
        json!({"member": "first", "removed": [], "wouldRemove": ["aa-1", "ab-1"], "bytes": first})
    );
    assert!(home.path("members/first/jobs/aa-1").exists());

    // Through the host, and without one.
    let pruned = prune(&["--json", "first"]);
    assert_eq!((pruned.status.code(), &json_of(&pruned)[0]["bytes"]), (Some(0), &json!(first)), "{}", stderr(&pruned));
    let all = prune(&[]);
    assert_eq!(all.status.code(), Some(0), "{}", stderr(&all));
    assert_eq!(stdout(&all), format!("second: 2 jobs removed, {second} bytes\n"));
    host.stop();
    completed(&home, "second", "old", "2026-01-01T00:00:00Z", "report");
    let old = bytes("second/jobs/old");
    let all = prune(&[]);
    assert_eq!(stdout(&all), format!("second: 1 job removed, {old} bytes\n"), "{}", stderr(&all));
    assert!(stderr(&all).contains(&format!("freed: 1 job, {old} bytes")), "{}", stderr(&all));
    assert!(!home.path("members/second/jobs/old").exists());
}

#[test]
fn prune_names_members_that_cannot_be_read_and_prunes_the_others() {
    let home = two_members();
    home.write("members/broken/guild-member.json", "{");
    let pruned = home.run(&["prune", "--members", "members", "--older-than", "1s"]);
    assert_eq!(pruned.status.code(), Some(1));
    assert!(stderr(&pruned).contains("error: broken: "), "{}", stderr(&pruned));
    assert!(stdout(&pruned).contains("second: 2 jobs removed"), "{}", stdout(&pruned));
}

#[test]
fn a_report_is_rendered_on_a_terminal_and_raw_in_a_pipe() {
    let report = "# Title\n\nSome **bold** text, [a link](https://a.example/) and \u{1b}[2J&#27;[31m.\n";
    let home = Home::new();
    home.quick("quick");
    completed(&home, "quick", "a", "2026-01-01T00:00:00Z", report);
    let large = format!("{report}\n{}", "x\n".repeat(600_000));
    completed(&home, "quick", "large", "2026-01-01T00:00:00Z", &large);
    let arguments = ["result", "a", "--members", "members"];
    assert_eq!(stdout(&home.run(&arguments)), report);

    let shown = on_terminal(&home, ("LANG", "C"), &arguments);
    assert!(shown.contains("\u{1b}[1m") && !shown.contains("**") && !shown.contains("# Title"), "{shown:?}");
    assert!(shown.contains("a link") && shown.contains("(https://a.example/)"), "{shown:?}");
    assert!(!shown.contains("\u{1b}[2J") && !shown.contains("\u{1b}[31m"), "{shown:?}");
    // Without styles the markup says what they would.
    for plain in [
        on_terminal(&home, ("NO_COLOR", "1"), &arguments),
        on_terminal(&home, ("LANG", "C"), &["result", "large", "--members", "members"]),
    ] {
        assert!(
            plain.contains("# Title") && plain.contains("**bold**") && !plain.contains("\u{1b}[2J"),
            "{plain:.300}"
        );
    }
}

#[test]
fn nothing_is_changed_by_less_than_an_id_where_a_member_cannot_be_asked() {
    let home = two_members();
    home.write("members/broken/guild-member.json", "{");
    let host = home.serve_roster(&[]);
    let guild = |arguments: &[&str]| home.run(&[arguments, &["--members", "members"]].concat());
    for (command, wanted) in [("delete", "aa"), ("cancel", "aa"), ("delete", "@latest"), ("cancel", "@latest")] {
        let refused = guild(&[command, wanted]);
        let error = stderr(&refused);
        assert_eq!((refused.status.code(), stdout(&refused).as_str()), (Some(1), ""), "{error}");
        for part in ["broken", "whole id", "--member", "nothing was changed"] {
            assert!(error.contains(part), "{part:?} is not in {error}");
        }
    }
    for job in ["first/jobs/aa-1", "second/jobs/ab-2"] {
        assert!(home.path("members").join(job).exists(), "{job}");
    }
    // Commands that change nothing still work; so do those that can mean no other job.
    assert_eq!(stdout(&guild(&["result", "aa"])), "of aa-1\n");
    assert_eq!(stdout(&guild(&["delete", "ab", "--member", "first"])), "ab-1 is deleted\n");
    assert_eq!(stdout(&guild(&["delete", "aa-1"])), "aa-1 is deleted\n");
    host.stop();
}

#[test]
fn a_command_ends_at_a_signal_though_its_host_does_not_answer() {
    let home = Home::new();
    for member in ["first", "second", "third"] {
        home.endless(member);
    }
    let host = home.serve_roster(&["-vv"]);
    let url = format!("http://127.0.0.1:{}", host.port);
    let start = |member: &str| {
        let mut command = home.guild();
        command.args(["dispatch", "Do it.", "--wait", "--url", &url, "--member", member]);
        let waiting = Host::start(command, 0, "");
        let running = || {
            let list = host.at(member).call("worker/list", json!({})).unwrap();
            Some(list["jobs"].as_array()?.first()?["jobId"].as_str().unwrap().to_owned())
        };
        let id = wait_for("the job to run", running);
        // It has the id when it asks for it.
        let is_asked = |line: &str| line.contains("method=\"worker/status\"") && line.contains(&id);
        wait_for("the job to be followed", || host.output().lines().any(is_asked).then_some(()));
        (waiting, id)
    };
    let (first, of_first) = start("first");
    let (second, of_second) = start("second");
    let (third, of_third) = start("third");
    let logged = |waiting: &Host, part: &str| waiting.prints(part);
    // The first signal cancels the job, while the host is there.
    third.signal("-TERM");
    let (status, output) = third.wait();
    assert_eq!(status.code(), Some(130), "{output}");
    assert!(!output.contains("may go on"), "{output}");
    assert_eq!(host.at("third").status(&of_third).unwrap()["status"], "cancelled");
    host.signal("-STOP");
    // A first signal waits some seconds for the host, and a second one not at all.
    for waiting in [&first, &second] {
        waiting.signal("-INT");
        logged(waiting, "cancelling the job; a second signal");
    }
    second.signal("-TERM");
    for (waiting, id) in [(second, &of_second), (first, &of_first)] {
        let (status, output) = waiting.wait();
        assert_eq!(status.code(), Some(130), "{output}");
        assert!(output.contains("may go on") && output.contains(&format!("guild cancel {id}")), "{output}");
        assert!(output.contains(&format!("job: {id}\n")), "{output}");
    }
    host.signal("-CONT");
}

#[test]
fn logs_are_followed_to_the_next_host() {
    let home = Home::new();
    let member = home.quick("quick");
    home.job("quick", "left", json!({"status": "running"}));
    let mut command = home.guild();
    command.current_dir(home.path(".")).args(["logs", "left", "--members", "members", "--follow"]);
    let follows = Host::start(command, 0, "");
    follows.prints("waiting 10 s for the next host");
    let host = home.serve(&member, &[]);
    host.client().ended("left");
    let (status, output) = follows.wait();
    assert_eq!((status.code(), output.matches("next host").count()), (Some(0), 1), "{output}");
    assert!(!output.contains("interrupted"), "{output}");
}

#[test]
fn a_member_without_jobs_is_named_and_an_ambiguous_name_lists_the_newest_first() {
    let home = two_members();
    home.quick("idle");
    let host = home.serve_roster(&[]);
    let url = format!("http://127.0.0.1:{}", host.port);
    for place in [["--url", &url], ["--members", "members"]] {
        let guild = |arguments: &[&str]| stderr(&home.run(&[arguments, &place].concat()));
        let none = guild(&["result", "@latest", "--member", "idle"]);
        assert!(none.contains("there are no jobs of member idle in "), "{none}");
        let text = guild(&["status", "a"]);
        let listed: Vec<_> = text
            .lines()
            .filter_map(|line| line.split(' ').next())
            .filter(|id| id.starts_with('a') && id.contains('-'))
            .collect();
        assert_eq!(listed, ["ab-2", "ac-1", "ab-1", "aa-1"], "{text}");
    }
}

#[test]
fn without_a_host_each_command_says_what_it_can_do_and_what_to_do() {
    let home = two_members();
    let at = "2026-01-01T00:00:00Z";
    home.job("first", "broken", json!({"status": "failed", "startedAt": at, "completedAt": at, "error": "no"}));
    let list = home.run(&["list", "--url", "http://127.0.0.1:9"]);
    assert!(stderr(&list).contains("--members DIR reads the jobs from the files"), "{}", stderr(&list));

    let guild = |arguments: &[&str]| home.run(&[arguments, &["--members", "members"]].concat());
    // What has ended has nothing to cancel, whoever is asked.
    for id in ["aa", "aa-1", "@latest"] {
        let cancelled = guild(&["cancel", id]);
        assert_eq!(cancelled.status.code(), Some(0), "{}", stderr(&cancelled));
        assert!(stdout(&cancelled).ends_with(" is completed\n"), "{}", stdout(&cancelled));
    }
    assert_eq!(json_of(&guild(&["cancel", "aa", "--json"])), json!({"jobId": "aa-1", "status": "completed"}));
    let failed = guild(&["cancel", "broken"]);
    let error = stderr(&failed);
    assert!(failed.status.code() == Some(1) && error.contains("no host serves first"), "{error}");
    assert!(error.contains("`guild serve`") && !error.contains("prune"), "{error}");
    let deleted = guild(&["delete", "@latest"]);
    let error = stderr(&deleted);
    assert!(deleted.status.code() == Some(1) && error.contains("no host serves second"), "{error}");
    assert!(error.contains("`guild serve`") && error.contains("`guild prune`"), "{error}");
    let help = stdout(&home.run(&["delete", "--help"])).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        help.contains("then ask the process that serves the job's member, and fail if no process serves it"),
        "{help}"
    );
}

#[test]
fn a_token_file_is_used_where_the_files_name_the_host() {
    let home = two_members();
    toolbox(&home);
    home.write("config/guild/guild.toml", "require_token = true\n");
    let token = home.run(&["token", "add", "ci"]);
    let file = home.write("ci.token", stdout(&token));
    let host = home.serve_roster(&[]);
    let delete = |more: &[&str]| home.run(&[&["delete", "aa-1", "--members", "members"], more].concat());
    let refused = delete(&[]);
    assert!(refused.status.code() == Some(1) && stderr(&refused).contains("401"), "{}", stderr(&refused));
    let unread = delete(&["--token-file", "nowhere"]);
    assert!(unread.status.code() == Some(1) && stderr(&unread).contains("nowhere"), "{}", stderr(&unread));
    let deleted = delete(&["--token-file", file.to_str().unwrap()]);
    assert_eq!(stdout(&deleted), "aa-1 is deleted\n", "{}", stderr(&deleted));
    let call =
        |more: &[&str]| home.run(&[&["call", "tools", "echo", r#"{"a":1}"#, "--members", "members"], more].concat());
    assert_eq!(call(&[]).status.code(), Some(1));
    let called = call(&["--token-file", file.to_str().unwrap()]);
    assert_eq!(stdout(&called), "{\"a\":1}\n", "{}", stderr(&called));
    host.stop();
}
