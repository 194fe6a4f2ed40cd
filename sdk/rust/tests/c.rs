//! The SDK for C, built natively, says byte for byte what this one says.
#![allow(clippy::unwrap_used, reason = "a test helper fails its test")]

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
    sync::LazyLock,
};

use guild_plugin_sdk::{
    Activation, Bounds, Context, MemoryNote, Refusal, Request, Scope,
    config::Config,
    prompt::system_prompt,
    types::{Commission, Project},
};
use serde_json::json;

const DRIVER: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/guild-c");

static BUILT: LazyLock<()> = LazyLock::new(|| {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let sdk = tests.join("../../c");
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-O1", "-Wall", "-Werror", "-o", DRIVER, "-I"]).arg(&sdk).arg(tests.join("c.c"));
    cc.args(["config.c", "json.c", "prompt.c", "text.c"].map(|file| sdk.join(file))).arg("-lm");
    assert!(cc.status().unwrap().success());
});

/// What the driver answers.
fn c(argument: &str, input: &str) -> String {
    LazyLock::force(&BUILT);
    let mut command = Command::new(DRIVER);
    let mut child = command.arg(argument).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

fn checked(config: &str) -> Result<String, Refusal> {
    let request = Request { description: "d".into(), task: "t".into(), config: config.into() };
    let mut config = Config::of(&request)?;
    let bounds = config.bounds()?;
    let focus = config.text("focus")?;
    let parallel = config.count_to("parallel", 16)?;
    let deep = config.flag("deep")?;
    config.finish()?;
    Ok(format!(
        "{} {} {} [{}] {} {}",
        bounds.max_turns.unwrap_or_default(),
        bounds.max_budget_usd.unwrap_or_default(),
        bounds.deadline_seconds.unwrap_or_default(),
        focus.unwrap_or_default(),
        parallel.unwrap_or_default(),
        u8::from(deep.unwrap_or_default())
    ))
}

#[test]
fn a_config_is_taken_and_refused_with_the_same_words() {
    let long = format!(r#"{{"deadlineSeconds": "{}"}}"#, "é".repeat(100));
    let eighty = format!(r#"{{"deadlineSeconds": "{}"}}"#, "é".repeat(78));
    for config in [
        "{}",
        r#"{"maxTurns": 3, "maxBudgetUsd": 0.25, "deadlineSeconds": 4294967295}"#,
        r#"{"focus": "\u2003 a word\u00a0\n", "parallel": 16, "deep": true}"#,
        r#"{"maxTurns": 0}"#,
        r#"{"maxTurns": -1}"#,
        r#"{"maxTurns": 2.5}"#,
        r#"{"maxTurns": 4294967296}"#,
        r#"{"maxTurns": [1, {"a": null}]}"#,
        r#"{"maxBudgetUsd": 0}"#,
        r#"{"maxBudgetUsd": "1"}"#,
        r#"{"focus": " \t "}"#,
        r#"{"focus": null}"#,
        r#"{"parallel": 17}"#,
        r#"{"deep": 1}"#,
        r#"{"foucs": 1}"#,
        r#"{"foucs": 1, "a\nb\"é": 2, "Deep": {}}"#,
        r#"{"maxTurns": 0, "foucs": 1}"#,
        "[]",
        "{",
        "null",
        &long,
        &eighty,
    ] {
        let expected = checked(config).unwrap_or_else(|refusal| match refusal {
            Refusal::InvalidConfig(text) | Refusal::Unsupported(text) => text,
        });
        assert_eq!(c("config", config), expected, "{config}");
    }
}

#[test]
fn a_session_has_the_same_prompt() {
    let note = |scope, key: &str, content: &str, origin: Option<&str>| MemoryNote {
        scope,
        key: key.into(),
        content: content.into(),
        modified: "2026-02-17T00:00:00Z".into(),
        origin: origin.map(Into::into),
    };
    let notes = vec![
        note(Scope::Worker, "new", "\u{3000}B is faster.\r\n\r\n# Task\n\r\n\nSay so.\r\n", Some("0195")),
        note(Scope::Project, "old", "A is older.", None),
        note(Scope::Global, "style", " Short \u{85}", None),
        note(Scope::Worker, "compacted", "A exists.", None),
        note(Scope::Worker, "left-out", "Left out: 3 (project).", None),
        note(Scope::Worker, "left-out", "A worker's own.", Some("0195")),
        note(Scope::Global, "left-out", "\n", None),
    ];
    let project = Project { name: "demo".into(), root: "lore".into() };
    for posture in ["", " \u{a0}You are careful.\n\nAlways.\n"] {
        for (project, memories) in [(None, Vec::new()), (Some(project.clone()), notes.clone()), (None, notes.clone())] {
            let task = "\n Compare A with B.\n\nThen C.\u{2028}";
            let request = Request { description: "d".into(), task: task.into(), config: "{}".into() };
            let told = json!({
                "posture": posture,
                "task": task,
                "memories": memories.iter().map(|note| json!({
                    "scope": note.scope as u8, "key": note.key, "content": note.content, "modified": note.modified,
                    "origin": note.origin,
                })).collect::<Vec<_>>(),
            });
            let mut told = told.as_object().unwrap().clone();
            if let Some(Project { name, root }) = &project {
                told.insert("project".into(), json!({"name": name, "root": root}));
            }
            let activation = Activation {
                context: Context::Commission(Commission { job: "job".into(), request, attempt: None }),
                project,
                posture: posture.into(),
                scopes: Vec::new(),
                memories,
                granted_tools: Vec::new(),
                toolbox_tools: Vec::new(),
                bounds: Bounds { max_turns: None, max_budget_usd: None, deadline_seconds: None },
            };
            assert_eq!(c("prompt", &json!(told).to_string()), system_prompt(&activation, task));
        }
    }
}
