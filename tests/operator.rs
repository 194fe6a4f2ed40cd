//! What an operator asks of the `guild` command: what is usable, what jobs did, and what they cost.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Output},
    thread,
};

use cap_std::{ambient_authority, fs::Dir};
use guild_jobs::OwnerLock;
use serde_json::{Value, json};

use crate::support::{
    host::{Home, Host, wait_for},
    output::{json_of, stderr, stdout},
};

fn guild(home: &Home, arguments: &[&str]) -> Output {
    in_home(home, arguments).output().unwrap()
}

/// In the home's own directory, and with no programs but the system's.
fn in_home(home: &Home, arguments: &[&str]) -> Command {
    let mut command = home.guild();
    command.current_dir(home.path(".")).env("PATH", home.path("bin")).args(arguments);
    for key in ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"] {
        command.env_remove(key);
    }
    command
}

/// Owns a member, as a host does that runs its jobs.
fn owned(member: &Path) -> OwnerLock {
    let dir = Dir::open_ambient_dir(member, ambient_authority()).unwrap();
    OwnerLock::try_acquire(&dir, "").unwrap().unwrap()
}

/// `usage` of a `meta.json`.
fn used(agent: &str, models: &[&str], turns: u32, usd: Option<f64>) -> Value {
    json!({"agent": agent, "models": models, "turns": turns, "inputTokens": 1000 * turns, "cachedTokens": 100 * turns,
        "outputTokens": 10 * turns, "costUsd": usd, "wallSeconds": 30.0})
}

/// Two members with jobs of all sorts.
fn worked() -> Home {
    let home = Home::new();
    home.quick("first");
    home.quick("group/second");
    let done = |at: &str, used: Value| json!({"status": "completed", "completedAt": at, "usage": used});
    home.job("first", "a", done("2026-01-01T01:00:00Z", used("api", &["m"], 2, Some(0.5))));
    home.job("first", "b", done("2026-02-01T00:00:00Z", used("api", &["m"], 3, Some(0.25))));
    home.job("first", "c", done("2026-02-01T00:00:00Z", used("api", &["m", "n"], 1, None)));
    home.job("first", "run", json!({"status": "running"}));
    home.job("first", "old", json!({"status": "failed", "completedAt": "2026-02-01T00:00:00Z", "error": "e"}));
    home.write("members/first/jobs/torn/meta.json", "{");
    home.job("group/second", "d", done("2026-02-01T00:00:00Z", used("extractive", &[], 4, Some(0.0))));
    let mut compaction = used("api", &["m"], 1, Some(0.01));
    compaction["at"] = json!("2026-02-01T00:00:00Z");
    home.write("members/group/second/memory/.compactions.jsonl", format!("{compaction}\n"));
    home
}

#[test]
fn usage_sums_jobs_by_member_agent_and_models() {
    let home = worked();
    let all = json_of(&guild(&home, &["usage", "--members", "members", "--json"]));
    let first = &all["members"][0];
    assert_eq!((&first["member"], &first["running"]), (&json!("first"), &json!(1)));
    assert_eq!((&first["unrecorded"], &first["unreadable"]), (&json!(1), &json!(1)));
    assert_eq!(
        first["jobs"][0],
        json!({"agent": "api", "models": ["m"], "count": 2, "turns": 5, "inputTokens": 5000, "cachedTokens": 500,
            "outputTokens": 50, "costUsd": 0.75, "unknownCosts": 0, "wallSeconds": 60.0})
    );
    assert_eq!((&first["jobs"][1]["models"], &first["jobs"][1]["unknownCosts"]), (&json!(["m", "n"]), &json!(1)));
    let second = &all["members"][1];
    assert_eq!((&second["member"], &second["jobs"][0]["agent"]), (&json!("group/second"), &json!("extractive")));
    assert_eq!((&second["compactions"][0]["count"], &second["compactions"][0]["costUsd"]), (&json!(1), &json!(0.01)));
    let total = &all["total"];
    assert_eq!((&total["jobs"], &total["compactions"], &total["turns"]), (&json!(4), &json!(1), &json!(11)));
    assert_eq!((&total["costUsd"], &total["unknownCosts"]), (&json!(0.76), &json!(1)));
}

#[test]
fn usage_counts_jobs_that_were_pruned_or_deleted_since() {
    let home = worked();
    let total = |more: &[&str]| {
        let arguments = [&["usage", "--members", "members", "--json"], more].concat();
        json_of(&guild(&home, &arguments))["total"].clone()
    };
    let (before, earlier) = (total(&[]), total(&["--since", "2026-01-15"]));
    // Pruned by a process of its own, and deleted by a host.
    let pruned = guild(&home, &["prune", "first", "--members", "members", "--older-than", "1h"]);
    assert!(stdout(&pruned).contains("first: 4 jobs removed"), "{}", stdout(&pruned));
    let host = home.serve_roster(&[]);
    assert_eq!(host.at("group/second").call("worker/delete", json!({"jobId": "d"})).unwrap()["deleted"], true);
    host.stop();
    let after = total(&[]);
    assert_eq!((&before["removed"], &after["removed"]), (&json!(0), &json!(4)));
    for key in ["jobs", "turns", "inputTokens", "outputTokens", "costUsd", "unknownCosts", "wallSeconds"] {
        assert_eq!(after[key], before[key], "{key}");
        assert_eq!(total(&["--since", "2026-01-15"])[key], earlier[key], "{key}");
    }
    // A crash between the line and the removal: the job counts, and once.
    home.job(
        "first",
        "a",
        json!({"status": "completed", "completedAt": "2026-01-01T01:00:00Z",
        "usage": used("api", &["m"], 2, Some(0.5))}),
    );
    let again = total(&[]);
    assert_eq!((&again["jobs"], &again["costUsd"], &again["removed"]), (&json!(4), &before["costUsd"], &json!(3)));
    assert!(stderr(&guild(&home, &["usage", "--members", "members"])).contains("also counted: 3 jobs"));
}

#[test]
fn usage_counts_what_ended_since_and_of_one_member() {
    let home = worked();
    let total = |more: &[&str]| {
        let arguments = [&["usage", "--members", "members", "--json"], more].concat();
        let total = json_of(&guild(&home, &arguments))["total"].clone();
        (total["jobs"].as_u64().unwrap(), total["compactions"].as_u64().unwrap(), total["running"].as_u64().unwrap())
    };
    assert_eq!(total(&["--since", "2026-01-15"]), (3, 1, 1));
    assert_eq!(total(&["--since", "2026-02-01T00:00:01Z"]), (0, 0, 1));
    assert_eq!(total(&["--since", "1h"]), (0, 0, 1));
    assert_eq!(total(&["--member", "first"]), (3, 0, 1));
    assert_eq!(total(&["--member", "group/second"]), (1, 1, 0));
    let wrong = guild(&home, &["usage", "--members", "members", "--since", "yesterday"]);
    assert!(stderr(&wrong).contains("12h") && stderr(&wrong).contains("2026-01-01"), "{}", stderr(&wrong));
}

#[test]
fn usage_names_a_member_that_it_cannot_read_and_sums_the_others() {
    let home = worked();
    home.write("members/broken/guild-member.json", "{");
    let output = guild(&home, &["usage", "--members", "members", "--json"]);
    assert_eq!((output.status.code(), &json_of(&output)["total"]["jobs"]), (Some(1), &json!(4)));
    assert!(stderr(&output).contains("broken is left out: "), "{}", stderr(&output));
}

#[test]
fn usage_shows_a_table_and_says_what_is_not_in_it() {
    let shown = guild(&worked(), &["usage", "--members", "members"]);
    let table = stdout(&shown);
    let row = |line: usize| table.lines().nth(line).unwrap().replace('\t', "|");
    assert_eq!(row(0), "first|api|m|2|5|5000|500|50|0.7500|60.0", "{table}");
    assert_eq!(row(1), "first|api|m, n|1|1|1000|100|10|0.0000+?|30.0", "{table}");
    assert_eq!(row(2), "group/second|extractive|-|1|4|4000|400|40|0.0000|30.0", "{table}");
    assert_eq!(row(3), "group/second|memory|m|1|1|1000|100|10|0.0100|30.0", "{table}");
    assert_eq!(row(4), "total|-|-|5|11|11000|1100|110|0.7600+?|150.0", "{table}");
    let notes = stderr(&shown);
    for remark in [
        "1 whose cost is not fully known",
        "[[prices]]",
        "1 job still running",
        "1 job without a usage record",
        "1 job whose meta.json",
    ] {
        assert!(notes.contains(remark), "{notes}");
    }
}

/// The lines of a session that had every kind of thing in it.
fn transcript() -> Vec<Value> {
    let usage = json!({"turns": 1, "inputTokens": 1200, "cachedTokens": 1000, "outputTokens": 34, "costUsd": 0.0123});
    let at = |second: u32| format!("2026-01-02T10:00:{second:02}Z");
    vec![
        json!({"at": at(0), "type": "session", "session": 1, "agent": "api", "model": "m", "systemPrompt": "You are.",
            "prompt": "What?", "tools": ["Read", "submit_result"]}),
        json!({"at": at(1), "type": "turn", "session": 1, "turn": 1, "model": "m-2", "text": "I look.\nNow.", "usage": usage}),
        json!({"at": at(1), "type": "call", "session": 1, "call": "1.1.0", "tool": "Read", "input": {"file_path": "book/a"}}),
        json!({"at": at(2), "type": "result", "session": 1, "call": "1.1.0", "ms": 12, "output": "x".repeat(5000)}),
        json!({"at": at(2), "type": "call", "session": 1, "call": "1.1.1", "tool": "WebFetch", "input": {"url": "http://a"}}),
        json!({"at": at(3), "type": "result", "session": 1, "call": "1.1.1", "ms": 1,
            "error": "not granted: \u{1b}[2Jthe host a\u{202e}"}),
        json!({"at": at(3), "type": "note", "session": 1, "text": "again in 2 s"}),
        json!({"at": "2026-01-03T00:00:00Z", "type": "resumed", "session": 1}),
        json!({"at": "2026-01-03T00:00:01Z", "type": "end", "session": 1, "ending": "success", "usage": usage}),
    ]
}

fn lines(entries: &[Value]) -> String {
    entries.iter().map(|entry| format!("{entry}\n")).collect()
}

#[test]
fn logs_shows_a_transcript_for_people_and_as_it_is() {
    let home = Home::new();
    home.quick("quick");
    home.job("quick", "j", json!({"status": "completed", "completedAt": "2026-01-03T00:00:01Z"}));
    let text = lines(&transcript()) + "{\"at\": torn";
    home.write("members/quick/jobs/j/transcript.jsonl", &text);

    let shown = stdout(&guild(&home, &["logs", "j", "--members", "members"]));
    let expected = format!(
        "2026-01-02 UTC\n\
         10:00:00   1  session   api m, tools Read submit_result\n\
         10:00:00   1  system    8 characters: You are.\n\
         10:00:00   1  prompt    5 characters: What?\n\
         10:00:01   1  turn 1    m-2, 1,200 tokens in (1,000 cached), 34 out, 0.0123 USD\n\
         \x20                       I look.\n\
         \x20                       Now.\n\
         10:00:01   1  call      Read {{\"file_path\":\"book/a\"}}\n\
         10:00:02   1  result    Read, 12 ms, 5,000 bytes: {}…\n\
         10:00:02   1  call      WebFetch {{\"url\":\"http://a\"}}\n\
         10:00:03   1  error     WebFetch, 1 ms: not granted: \u{fffd}[2Jthe host a\u{fffd}\n\
         10:00:03   1  note      again in 2 s\n\
         2026-01-03 UTC\n\
         00:00:00   1  resumed   by a host that started later\n\
         00:00:01   1  end       success; 1 turn, 1,200 tokens in (1,000 cached), 34 out, 0.0123 USD\n",
        "x".repeat(159)
    );
    assert_eq!(shown, expected);
    let raw = stdout(&guild(&home, &["logs", "j", "--member", "quick", "--members", "members", "--json"]));
    // The same JSON, in which nothing steers a terminal.
    assert_eq!(raw, lines(&transcript()).replace('\u{202e}', "\\u202e"));
}

#[test]
fn logs_shows_what_the_user_said_and_the_pieces_of_those_answers_only_that_were_cut_off() {
    let home = Home::new();
    home.quick("quick");
    home.job("quick", "j", json!({"status": "completed", "completedAt": "2026-01-03T00:00:01Z"}));
    let at = |kind: &str, text: &str| json!({"at": "2026-01-02T10:00:00Z", "type": kind, "session": 1, "text": text});
    let used = json!({"turns": 1, "inputTokens": 5, "cachedTokens": 0, "outputTokens": 1, "costUsd": 0.5});
    let mut turn = at("turn", "It is forty-two.");
    (turn["turn"], turn["usage"]) = (json!(1), used.clone());
    let mut end = at("end", "");
    (end["ending"], end["usage"]) = (json!("the session was interrupted"), used);
    let entries = [
        at("message", "What is it?\nSay."),
        at("text", "It is "),
        at("text", "forty-two."),
        turn,
        at("message", "Why?"),
        at("compacted", "the oldest is left out"),
        at("text", "Since "),
        at("text", "it"),
        end,
    ];
    home.write("members/quick/jobs/j/transcript.jsonl", lines(&entries));
    let shown = stdout(&guild(&home, &["logs", "j", "--members", "members"]));
    let expected = "2026-01-02 UTC\n\
         10:00:00   1  user      16 characters\n\
         \x20                       What is it?\n\
         \x20                       Say.\n\
         10:00:00   1  turn 1    5 tokens in (0 cached), 1 out, 0.5000 USD\n\
         \x20                       It is forty-two.\n\
         10:00:00   1  user      4 characters\n\
         \x20                       Why?\n\
         10:00:00   1  compact   the oldest is left out\n\
         \x20          1  cut off\n\
         \x20                       Since it\n\
         10:00:00   1  end       the session was interrupted; 1 turn, 5 tokens in (0 cached), 1 out, 0.5000 USD\n";
    assert_eq!(shown, expected);
}

#[test]
fn logs_of_a_running_host_are_those_of_its_files_page_by_page() {
    let home = Home::new();
    home.quick("quick");
    home.job("quick", "j", json!({"status": "failed", "completedAt": "2026-01-03T00:00:01Z", "error": "no luck"}));
    let mut entries = transcript();
    let result = json!({"at": "2026-01-02T10:00:02Z", "type": "result", "session": 1, "call": "1.1.0", "ms": 12,
        "output": "y".repeat(3000)});
    // Some pages, after the first lines.
    entries.splice(4..4, std::iter::repeat_n(result, 300));
    home.write("members/quick/jobs/j/transcript.jsonl", lines(&entries));
    let log: String = (0..5000).map(|nth| format!("2026-01-02T10:00:{:02}Z line {nth}\n", nth % 4)).collect();
    home.write("members/quick/jobs/j/log.txt", &log);
    let host = home.serve_roster(&[]);
    let url = format!("http://127.0.0.1:{}/mcp", host.port);
    for more in [&[][..], &["--json"], &["--follow"], &["--member", "quick"]] {
        let there = guild(&home, &[&["logs", "j", "--url", &url], more].concat());
        let here = guild(&home, &[&["logs", "j", "--members", "members"], more].concat());
        assert!(there.status.success(), "{}", stderr(&there));
        assert!(stdout(&there) == stdout(&here) && stdout(&there).lines().count() > 5300, "{more:?}");
        assert_eq!(stderr(&there), stderr(&here));
    }
    let wrong = guild(&home, &["logs", "none", "--url", &url]);
    assert!(!wrong.status.success() && stderr(&wrong).contains("none"), "{}", stderr(&wrong));
    host.stop();
    let nobody = guild(&home, &["logs", "j", "--url", &url]);
    assert!(stderr(&nobody).contains("--url"), "{}", stderr(&nobody));
}

#[test]
fn logs_says_what_there_is_not() {
    let home = Home::new();
    home.quick("quick");
    home.job("quick", "run", json!({"status": "running"}));
    home.job("quick", "done", json!({"status": "completed", "completedAt": "2026-01-03T00:00:01Z"}));
    let error_of = |arguments: &[&str]| {
        let output = guild(&home, &[&["logs", "--members", "members"], arguments].concat());
        (output.status.code().unwrap(), stderr(&output))
    };
    assert!(matches!(error_of(&["run"]), (0, text) if text.contains("interrupted; no process runs it")));
    let _owner = owned(&home.path("members/quick"));
    assert!(matches!(error_of(&["run"]), (0, text) if text.contains("--follow")));
    assert!(matches!(error_of(&["done"]), (0, text) if text.contains("no session")));
    assert!(matches!(error_of(&["none"]), (1, text) if text.contains("no job none") && text.contains("guild list")));
    assert!(matches!(error_of(&["../run"]), (1, text) if text.contains("../run")));
}

#[test]
fn logs_follows_a_job_from_before_its_session_to_its_end() {
    let home = Home::new();
    let member = home.quick("quick");
    home.job("quick", "j", json!({"status": "running"}));
    let _owner = owned(&member);
    let follow = Host::start(in_home(&home, &["logs", "j", "--members", "members", "--follow"]), 0, "");
    let entries = transcript();
    let path = member.join("jobs/j/transcript.jsonl");
    let append = |text: &str| {
        let mut file = fs::OpenOptions::new().create(true).append(true).open(&path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    };
    append(&lines(&entries[..2]));
    let shows = |what: &str| follow.prints(what);
    shows("I look.");
    // A line shows when it is whole.
    let call = lines(&entries[2..3]);
    let (start, rest) = call.split_at(20);
    append(start);
    append(rest);
    shows("book/a");
    append(&lines(&entries[3..]));
    home.job("quick", "j", json!({"status": "completed", "completedAt": "2026-01-03T00:00:01Z"}));
    let (status, output) = follow.wait();
    assert!(status.success() && output.contains("end       success"), "{output}");
}

#[test]
fn what_a_real_job_did_and_used_is_in_logs_status_and_usage() {
    let home = Home::new();
    let member = home.researcher("researcher");
    home.write("docs/ownership.md", "# Ownership\n\nOwnership is how Rust keeps memory safe without a collector.\n");
    let host = home.serve(&member, &["--sources", home.path("docs").to_str().unwrap()]);
    let id = host.client().start("How does ownership keep memory safe?");
    assert_eq!(host.client().ended(&id)["status"], "completed");

    let log = stdout(&guild(&home, &["logs", &id, "--members", "members", "--follow"]));
    for word in
        ["session   extractive", "turn 1", "call      submit_result", "result    submit_result", "end       success"]
    {
        assert!(log.contains(word), "{word:?} is not in\n{log}");
    }
    let status = stdout(&guild(&home, &["status", &id, "--url", &host.client().url()]));
    assert!(status.contains("agent        extractive\n") && status.contains("cost         0.0000 USD\n"), "{status}");
    let usage = json_of(&guild(&home, &["usage", "--members", "members", "--since", "1h", "--json"]));
    let sum = &usage["members"][0]["jobs"][0];
    assert_eq!((&sum["agent"], &sum["count"], &sum["costUsd"]), (&json!("extractive"), &json!(1), &json!(0.0)));
    assert!(sum["turns"].as_u64().unwrap() > 0, "{usage}");
}

#[test]
fn a_dispatch_asks_for_a_runtime_and_the_operator_allows_it() {
    let home = Home::new();
    let member = home.quick("quick");
    let host = home.serve(&member, &[]);
    let url = host.client().url();
    let ask = |agent: &str| guild(&home, &["dispatch", "Do it.", "--url", &url, "--agent", agent]);
    let refused = stderr(&ask("api"));
    assert!(refused.contains("dispatch_agents") && refused.contains("guild.toml"), "{refused}");
    // What it runs with anyway needs no permission.
    assert!(ask("extractive").status.success());
    let through = guild(&home, &["run", "members/quick", "Do it.", "--agent", "claude"]);
    assert!(stderr(&through).contains("dispatch_agents"), "{}", stderr(&through));
    host.stop();

    home.write("config/guild/guild.toml", "dispatch_agents = [\"api\"]");
    let host = home.serve(&member, &[]);
    let url = host.client().url();
    let asked = guild(&home, &["dispatch", "Do it.", "--url", &url, "--agent", "api"]);
    assert!(asked.status.success(), "{}", stderr(&asked));
    assert!(stderr(&guild(&home, &["dispatch", "x", "--agent", "oracle"])).contains("extractive, claude, api"));
}

#[test]
fn prune_leaves_a_job_that_a_host_may_resume() {
    let home = Home::new();
    let member = home.quick("quick");
    home.job("quick", "left", json!({"status": "running"}));
    home.job("quick", "old", json!({"status": "completed", "completedAt": "2026-01-01T00:00:00Z"}));
    let before = fs::read(member.join("jobs/left/meta.json")).unwrap();
    assert!(stdout(&guild(&home, &["prune", "--members", "members"])).starts_with("quick: 1 job removed, "));
    assert_eq!(fs::read(member.join("jobs/left/meta.json")).unwrap(), before);
}

/// One check of `guild doctor --json`: its state, whether it is needed, and its text.
fn check(report: &Value, kind: &str, name: &str) -> (String, bool, String) {
    let found =
        report["checks"].as_array().unwrap().iter().find(|check| check["kind"] == kind && check["name"] == name);
    let found = found.unwrap_or_else(|| panic!("no check of {kind} {name} in {report:#}"));
    let text = |key: &str| found[key].as_str().unwrap().to_owned();
    (text("state"), found["needed"].as_bool().unwrap(), text("detail"))
}

#[test]
fn doctor_says_what_the_configured_runtime_lacks() {
    let home = Home::new();
    home.quick("quick");
    home.write("docs/a.md", "text");
    let doctor = |more: &[&str]| guild(&home, &[&["doctor", "--members", "members", "--json"], more].concat());

    let bare = doctor(&[]);
    assert_eq!(bare.status.code(), Some(1));
    let report = json_of(&bare);
    assert_eq!((&report["config"], &report["usable"]), (&Value::Null, &json!(false)));
    let (state, needed, why) = check(&report, "runtime", "extractive");
    assert!(state == "unusable" && needed && why.contains("--sources"), "{why}");
    assert!(stderr(&bare).contains("runtime extractive"), "{}", stderr(&bare));

    let ready = doctor(&["--sources", "docs"]);
    assert_eq!(ready.status.code(), Some(0), "{}", stdout(&ready));
    let report = json_of(&ready);
    assert_eq!(report["usable"], true);
    assert_eq!(check(&report, "sources", "read roots").2, "docs (1 document)");
    assert_eq!(check(&report, "member", "quick").0, "usable");
    assert_eq!(check(&report, "web", "pages").0, "off");
    // What is not needed may be missing.
    let (state, needed, why) = check(&report, "runtime", "claude");
    assert!(state == "unusable" && !needed && why.contains("npm install"), "{why}");

    let (state, needed, _) = check(&json_of(&doctor(&["--agent", "claude"])), "runtime", "claude");
    assert!(state == "unusable" && needed);
    let claude = home.write("bin/claude", "#!/bin/sh\necho '9.9.9 (Claude Code)'\n");
    fs::set_permissions(&claude, fs::Permissions::from_mode(0o755)).unwrap();
    let ready = doctor(&["--agent", "claude"]);
    assert_eq!(ready.status.code(), Some(0), "{}", stdout(&ready));
    assert!(check(&json_of(&ready), "runtime", "claude").2.contains("9.9.9"));
}

#[test]
fn doctor_reads_keys_and_shows_none() {
    const KEY: &str = "sk-0123456789abcdef";
    let home = Home::new();
    home.quick("quick");
    let file = home.write(
        "guild.toml",
        "members = \"members\"\n[member.quick]\nagent = \"api\"\n[api]\nmodel = \"claude-sonnet-4-5\"\nkey_file = \"key\"\n\
         [web.search]\nprovider = \"brave\"\nkey_env = \"SEARCH_KEY\"\n[[roots]]\npath = \"members\"\n",
    );
    let doctor = |key: &str| {
        let mut command = in_home(&home, &["doctor", "--config", file.to_str().unwrap(), "--json"]);
        command.env("SEARCH_KEY", key).output().unwrap()
    };
    let without = doctor("");
    let report = json_of(&without);
    assert_eq!((without.status.code(), &report["usable"]), (Some(1), &json!(false)));
    let (state, needed, why) = check(&report, "key", "api");
    assert!(state == "unusable" && needed && why.contains(home.path("key").to_str().unwrap()), "{why}");
    assert!(check(&report, "key", "web.search").2.contains("SEARCH_KEY"));
    assert!(check(&report, "runtime", "api").2.contains("key_file"));

    home.write("key", KEY);
    let with = doctor(KEY);
    assert_eq!(with.status.code(), Some(0), "{}", stdout(&with));
    assert!(!stdout(&with).contains(KEY) && !stderr(&with).contains(KEY));
    let report = json_of(&with);
    assert_eq!(report["config"], file.to_str().unwrap());
    assert_eq!(check(&report, "key", "api").0, "usable");
    assert!(check(&report, "runtime", "api").2.contains("claude-sonnet-4-5"));
    assert!(check(&report, "search", "brave").2.contains("--online"));
    assert!(check(&report, "member", "quick").2.contains("sessions on api"));
}

#[test]
fn doctor_names_members_that_cannot_be_served_and_tables_for_none() {
    let home = Home::new();
    home.quick("hollow");
    home.write("members/hollow/guest.wasm", "nothing");
    let linked = home.quick("linked");
    std::os::unix::fs::symlink(home.path("."), linked.join("jobs")).unwrap();
    home.write("guild.toml", "[member.nobody]\nagent = \"extractive\"\n[[roots]]\npath = \".\"\n");
    let output = guild(&home, &["doctor", "--members", "members", "--config", "guild.toml", "--json"]);
    let report = json_of(&output);
    assert_eq!(output.status.code(), Some(1));
    let (state, needed, why) = check(&report, "member", "hollow");
    assert!(state == "unusable" && needed && why.contains("component"), "{why}");
    let (state, needed, why) = check(&report, "member", "linked");
    assert!(state == "unusable" && needed && why.contains("jobs is a symlink"), "{why}");
    let (state, needed, why) = check(&report, "member", "nobody");
    assert!(state == "unusable" && needed && why.contains("guild.toml"), "{why}");
    let text = stdout(&guild(&home, &["doctor", "--members", "members", "--config", "guild.toml"]));
    assert!(text.lines().any(|line| line.starts_with("missing   member   hollow ")), "{text}");
}

/// A search provider that answers each query in JSON, until the test ends; its address.
fn searxng() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let head = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            head.take_while(|line| !line.is_empty()).for_each(drop);
            let body = json!({"results": [{"url": "https://example.org/", "title": "t", "content": "c"}]}).to_string();
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
        }
    });
    address
}

#[test]
fn doctor_asks_the_search_provider_only_on_request() {
    let home = Home::new();
    let provider = |url: &str| {
        let text = format!(
            "[web]\nallow = [\"*.example.org\"]\n[web.search]\nprovider = \"searxng\"\nurl = \"{url}\"\n[[roots]]\npath = \".\"\n"
        );
        home.write("guild.toml", text);
    };
    let search = |more: &[&str]| {
        let output = guild(&home, &[&["doctor", "--config", "guild.toml", "--json"], more].concat());
        (output.status.code().unwrap(), check(&json_of(&output), "search", "searxng"), json_of(&output))
    };
    // Nobody listens there.
    provider("http://127.0.0.1:9");
    let (code, (state, ..), report) = search(&[]);
    assert_eq!((code, state.as_str()), (0, "usable"));
    assert!(check(&report, "web", "pages").2.contains("*.example.org"));
    let (code, (state, needed, why), _) = search(&["--online"]);
    assert!(code == 1 && state == "unusable" && needed && why.contains("127.0.0.1:9"), "{why}");
    provider(&searxng());
    let (code, (state, _, found), _) = search(&["--online"]);
    assert_eq!((code, state.as_str()), (0, "usable"), "{found}");
    assert!(found.contains("pages found: 1"), "{found}");
}

#[test]
fn an_invalid_guild_toml_is_reported_with_file_line_and_what_would_be_right() {
    let home = Home::new();
    home.quick("quick");
    let file = home.path("guild.toml");
    for (text, problem) in [
        ("[api]\nkey = \"sk-1\"\n", ":2: this file must not contain a key"),
        ("[claude]\nsessions = 0\n", ":2: claude.sessions must be above 0"),
        ("[web]\nalow = []\n", ":2: unknown key `alow` in [web]; did you mean `allow`?"),
    ] {
        fs::write(&file, text).unwrap();
        for command in [&["doctor"][..], &["usage"], &["logs", "j"], &["run", "members/quick", "x"]] {
            let output = guild(&home, &[command, &["--config", file.to_str().unwrap()]].concat());
            assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""), "{command:?}");
            let expected = format!("error: {}{problem}", Path::display(&file));
            assert!(stderr(&output).starts_with(&expected), "{} does not begin with {expected}", stderr(&output));
        }
    }
}

#[test]
fn a_host_removes_the_jobs_that_retention_does_not_keep_and_counts_what_they_used() {
    let home = Home::new();
    home.quick("quick");
    let host = home.serve_roster(&[]);
    let ids: Vec<_> = (0..5).map(|n| host.at("quick").start(&format!("job {n}"))).collect();
    ids.iter().for_each(|id| drop(host.at("quick").ended(id)));
    host.stop();
    let zero = home.write("zero.toml", "[retention]\njobs = 0\n");
    let refused = guild(&home, &["serve", "--members", "members", "--config", zero.to_str().unwrap()]);
    assert!(
        stderr(&refused).contains("zero.toml:2: retention.jobs: 0 would keep no ended job"),
        "{}",
        stderr(&refused)
    );
    let file = home.write("guild.toml", "[retention]\njobs = 2\n");
    let host = home.serve_roster(&["--config", file.to_str().unwrap()]);
    let left = wait_for("jobs to be removed", || {
        let listed = host.at("quick").call("worker/list", json!({})).unwrap();
        let jobs = listed["jobs"].as_array().unwrap().clone();
        (jobs.len() == 2).then_some(jobs)
    });
    for job in left {
        assert!(home.path("members/quick/jobs").join(job["jobId"].as_str().unwrap()).is_dir());
    }
    // It says what the members take on disk.
    let bytes = wait_for("the size", || host.members().first()?["diskBytes"].as_u64());
    assert!(bytes > home.path("members/quick/guest.wasm").metadata().unwrap().len(), "{bytes}");
    host.stop();
    let used = &json_of(&guild(&home, &["usage", "--members", "members", "--json"]))["total"];
    assert_eq!((&used["jobs"], &used["removed"]), (&json!(5), &json!(3)));
}
