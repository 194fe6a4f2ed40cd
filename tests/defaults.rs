//! The bounds that the workers which come along ask for, each tried on a long scripted workload (REQ-WKR-19): real files, the
//! real tools, and a model whose answers are counted and priced as a provider counts them, with its cache of prompts.

use std::{collections::BTreeMap, fs, path::Path, sync::Mutex};

use guild_fakes::{Anthropic, Provider, Received, Reply, Tokens, git};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::commissions::Hall;

/// Whose price list the figures of docs/reference/limits.md go by.
const MODEL: &str = "claude-sonnet-4-6";
/// Characters of a token, and the tokens that a model thinks before it answers.
const CHARS: usize = 4;
const THOUGHT: usize = 400;

/// A model that answers by a script, and says what a provider would: all of the request was read from its cache that the
/// request before it in the same session had.
fn model(runtime: &Runtime, script: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Provider {
    let cached = Mutex::new(BTreeMap::<String, usize>::new());
    runtime.block_on(Anthropic::start(move |request: &Received| {
        let chars = |part: &str| request.body[part].to_string().len();
        let input = (chars("system") + chars("messages") + chars("tools")) / CHARS;
        let session = request.body["system"].to_string() + &request.body["messages"][0].to_string();
        let before = cached.lock().unwrap().insert(session, input).unwrap_or(0).min(input);
        let reply = script(request);
        let output = THOUGHT + format!("{reply:?}").len() / CHARS;
        let tokens = [input, before, input - before, output].map(|n| n as u64);
        let [input, cached, cache_write, output] = tokens;
        reply.tokens(Tokens { input, cached, cache_write, output })
    }))
}

/// A hall with one project, which has these files, and a member that asks `provider`.
fn hall(provider: &Provider, member: &str, files: impl IntoIterator<Item = (String, String)>) -> Hall {
    let hall = Hall::new(&["demo"]);
    let project = hall.project("demo");
    for (path, text) in files {
        let path = project.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    git(&project, &["add", "--all"]);
    git(&project, &["commit", "--quiet", "--allow-empty", "--message=Files"]);
    hall.home.shipped(member);
    let config = hall.home.path("config/guild/guild.toml");
    hall.home.write("key", "a key\n");
    let url = provider.url();
    let api = format!(
        "agent = \"api\"\n[api]\nprovider = \"anthropic\"\nmodel = \"{MODEL}\"\nbase_url = \"{url}\"\nkey_file = {:?}\n",
        hall.home.path("key")
    );
    fs::write(&config, api + &fs::read_to_string(&config).unwrap()).unwrap();
    hall
}

/// Has a member carry the workload out, and compares what that used with the bounds of its manifest and with the row that the
/// reference has of it.
fn try_out(hall: &Hall, member: &str) {
    let host = hall.serve();
    let id = hall.create("demo", member, json!({"prompt": "Compare the chapters on moths, lamps and tides, in full."}));
    hall.dispatch(&id);
    let read = hall.until("demo", &id, "completed");
    let status = host.at(member).status(read["commission"]["jobId"].as_str().unwrap()).unwrap();
    let (turns, usd) = (status["usage"]["turns"].as_u64().unwrap(), status["usage"]["costUsd"].as_f64().unwrap());
    let manifest = hall.home.path(&format!("members/{member}/guild-member.json"));
    let manifest: Value = serde_json::from_slice(&fs::read(manifest).unwrap()).unwrap();
    let resources = &manifest["component"]["resources"];
    let (most, budget) = (resources["maxTurns"].as_u64().unwrap(), resources["maxBudgetUsd"].as_f64().unwrap());
    assert!(turns * 10 <= most * 9 && usd <= budget * 0.9, "{member}: {turns} of {most} turns, {usd} of {budget} USD");
    let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/limits.md");
    let reference = fs::read_to_string(reference).unwrap();
    let begin = format!("| `{member}` | {most} turns, {budget:.2} USD |");
    let row = reference.lines().find_map(|line| line.strip_prefix(&begin)?.trim_end_matches(" |").rsplit(" | ").next());
    let (said_turns, said_usd) =
        row.and_then(|row| row.strip_suffix(" USD")?.split_once(" turns, ")).unwrap_or_default();
    // A word more in a prompt makes no other figure.
    let is_near = said_usd.parse::<f64>().is_ok_and(|said| (said - usd).abs() <= usd * 0.05);
    assert!(
        said_turns == turns.to_string() && is_near,
        "docs/reference/limits.md has another row than {begin} ... | {turns} turns, {usd:.2} USD |"
    );
}

/// A text of so many characters, in lines.
fn prose(about: &str, chars: usize) -> String {
    let line = format!("The {about} is described at length in this chapter, with its causes.\n");
    format!("# {about}\n\n{}", line.repeat(chars / line.len()))
}

#[test]
fn the_bounds_of_the_researcher_hold_a_long_workload() {
    const CHAPTERS: usize = 90;
    let runtime = Runtime::new().unwrap();
    let provider = model(&runtime, |request| match request.turn() {
        0 => Reply::call("Glob", json!({"pattern": "**/*.md"})),
        turn @ 1..=5 => Reply::call("Grep", json!({"pattern": format!("moth {turn}|lamp|tide"), "path": "demo"})),
        turn if turn - 6 < CHAPTERS => {
            let path = format!("demo/book/chapter-{:02}.md", turn - 6);
            let reply = Reply::call("Read", json!({"file_path": path}));
            let told = json!({"summary": format!("{} chapters are read.", turn - 5)});
            if turn % 10 == 0 { reply.and_call("report_progress", told) } else { reply }
        }
        turn if turn - 6 == CHAPTERS => {
            let report = json!({"relativePath": "reports/moths.md", "content": prose("moth", 12_000)});
            Reply::call("write_artifact", report)
        }
        turn if turn - 7 == CHAPTERS => {
            Reply::call("submit_result", json!({"summary": prose("moth", 6_000), "artifacts": ["reports/moths.md"]}))
        }
        _ => Reply::text("Done."),
    });
    let chapters = (0..CHAPTERS).map(|n| (format!("book/chapter-{n:02}.md"), prose(&format!("moth {n}"), 4_000)));
    try_out(&hall(&provider, "researcher", chapters), "researcher");
}

#[test]
fn the_bounds_of_the_analyst_hold_a_long_workload() {
    const READ: usize = 50;
    let runtime = Runtime::new().unwrap();
    let provider = model(&runtime, |request| match request.turn() {
        turn if turn < READ => {
            let path = format!("demo/tables/{}.csv", turn % 5);
            let read = json!({"file_path": path, "offset": 1 + turn * 20, "limit": 60});
            Reply::call("Read", read).and_call("Grep", json!({"pattern": format!("^{turn},"), "path": "demo/tables"}))
        }
        turn if turn == READ => Reply::call("submit_result", json!({"summary": prose("table", 6_000)})),
        _ => Reply::text("Done."),
    });
    let table = |n: usize| (0..2_000).map(|row| format!("{row},north,{},{n}\n", row * 7 % 90)).collect::<String>();
    let tables = (0..5).map(|n| (format!("tables/{n}.csv"), format!("id,region,price,kind\n{}", table(n))));
    try_out(&hall(&provider, "analyst", tables), "analyst");
}

#[test]
fn the_bounds_of_the_digest_hold_a_long_workload() {
    let runtime = Runtime::new().unwrap();
    let provider = model(&runtime, |request| {
        let first = request.body["messages"][0].to_string();
        let Some((_, rest)) = first.split_once("Source: `") else {
            return match request.turn() {
                0 => Reply::call("hand_over_summary", json!({"summary": prose("whole", 5_000)})),
                _ => Reply::text("Done."),
            };
        };
        let path = rest.split('`').next().unwrap();
        match request.turn() {
            0 => Reply::call("Read", json!({"file_path": path, "limit": 200})),
            1 => Reply::call("Read", json!({"file_path": path, "offset": 201})),
            turn @ 2..=5 => Reply::call("Grep", json!({"pattern": format!("moth {turn}"), "path": "demo/book"})),
            6 => Reply::call("hand_over_summary", json!({"summary": prose("chapter", 3_000)})),
            _ => Reply::text("Done."),
        }
    });
    let chapters = (0..20).map(|n| (format!("book/chapter-{n:02}.md"), prose(&format!("moth {n}"), 20_000)));
    try_out(&hall(&provider, "digest", chapters), "digest");
}

#[test]
fn the_bounds_of_the_guild_master_hold_a_long_workload() {
    const COMMISSIONS: usize = 12;
    let runtime = Runtime::new().unwrap();
    let provider = model(&runtime, |request| match request.turn() {
        turn if turn < COMMISSIONS => Reply::call(
            "create_commission",
            json!({"title": format!("Chapter {turn}"), "workerName": "guild-master", "dispatch": false,
                "prompt": prose("task", 1_500)}),
        ),
        turn if turn < 4 * COMMISSIONS => match turn % 4 {
            0 => Reply::call("check_commission_status", json!({})),
            1 => Reply::call("git_log", json!({})),
            2 => Reply::call("git_diff", json!({})),
            _ => {
                Reply::call("record_decision", json!({"question": "q", "decision": "d", "reasoning": prose("r", 600)}))
            }
        },
        turn if turn == 4 * COMMISSIONS => Reply::call("submit_result", json!({"summary": prose("plan", 4_000)})),
        _ => Reply::text("Done."),
    });
    let hall = hall(&provider, "guild-master", []);
    hall.configure("[hall]\nmanager = \"guild-master\"");
    try_out(&hall, "guild-master");
}
