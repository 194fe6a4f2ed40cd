//! The SDKs for other languages, run natively, say byte for byte what this one says. `cargo xtask test` leaves out the
//! tests whose languages are not installed.
#![allow(clippy::unwrap_used, reason = "a test helper fails its test")]

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
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

/// The directory of the drivers.
fn languages() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/languages")
}

/// A file of the SDKs.
fn sdk(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The driver of the SDK for C.
static BUILT: LazyLock<()> = LazyLock::new(|| {
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-O1", "-Wall", "-Werror", "-o", DRIVER, "-I"]).arg(sdk("c")).arg(languages().join("c.c"));
    cc.args(["config.c", "json.c", "prompt.c", "text.c"].map(|file| sdk("c").join(file))).arg("-lm");
    assert!(cc.status().unwrap().success());
});

/// The answer of a driver.
fn answer(command: &mut Command, input: &str) -> String {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

/// What this SDK makes of a config.
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

/// Compares what an SDK makes of configs with what this one makes of them.
fn compare(answer: impl Fn(&str) -> String) {
    let long = format!(r#"{{"deadlineSeconds": "{}"}}"#, "é".repeat(100));
    let eighty = format!(r#"{{"deadlineSeconds": "{}"}}"#, "é".repeat(78));
    for config in [
        "{}",
        r#"{"maxTurns": 3, "maxBudgetUsd": 0.25, "deadlineSeconds": 4294967295}"#,
        r#"{"maxTurns": 3.0, "maxBudgetUsd": 1.0, "deadlineSeconds": 4294967295.0, "parallel": 16.0}"#,
        r#"{"maxTurns": 1e2, "parallel": 0.1e1}"#,
        r#"{"focus": "\u2003 a word\u00a0\n", "parallel": 16, "deep": true}"#,
        r#"{"maxTurns": 0}"#,
        r#"{"maxTurns": -1}"#,
        r#"{"maxTurns": 2.5}"#,
        r#"{"maxTurns": 4294967296}"#,
        r#"{"maxTurns": 4294967295.5}"#,
        r#"{"maxTurns": "3.0"}"#,
        r#"{"maxTurns": [1, {"a": null}]}"#,
        r#"{"maxBudgetUsd": 0}"#,
        r#"{"maxBudgetUsd": "1"}"#,
        r#"{"focus": " \t "}"#,
        r#"{"focus": null}"#,
        r#"{"parallel": 17}"#,
        r#"{"parallel": 16.5}"#,
        r#"{"parallel": true}"#,
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
        assert_eq!(answer(config), expected, "{config}");
    }
}

#[test]
fn a_config_is_taken_and_refused_with_the_same_words_in_c() {
    LazyLock::force(&BUILT);
    compare(|config| answer(Command::new(DRIVER).arg("config"), config));
}

#[test]
fn a_config_is_taken_and_refused_with_the_same_words_in_python() {
    let (driver, sdk) = (languages().join("config.py"), sdk("python/guild/config.py"));
    compare(|config| answer(Command::new("python3").arg("-B").args([&driver, &sdk]), config));
}

#[test]
fn a_config_is_taken_and_refused_with_the_same_words_in_javascript() {
    let (driver, sdk) = (languages().join("config.mjs"), sdk("js/worker.js"));
    compare(|config| answer(Command::new("node").args([&driver, &sdk]), config));
}

/// The driver of the SDK for Go.
static GO_DRIVER: LazyLock<PathBuf> = LazyLock::new(|| {
    // The SDK's packages are internal, so the driver has copies.
    let module = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guild-go");
    for package in ["config", "schema"] {
        fs::create_dir_all(module.join(package)).unwrap();
        let file = format!("{package}/{package}.go");
        fs::copy(sdk("go/internal").join(&file), module.join(&file)).unwrap();
    }
    fs::write(module.join("go.mod"), "module languages\n\ngo 1.24\n").unwrap();
    fs::copy(languages().join("config.go"), module.join("main.go")).unwrap();
    let driver = module.join("driver");
    let built = Command::new("go").args(["build", "-o"]).arg(&driver).arg(".").current_dir(&module).status();
    assert!(built.unwrap().success());
    driver
});

#[test]
fn a_config_is_taken_and_refused_with_the_same_words_in_go() {
    compare(|config| answer(&mut Command::new(&*GO_DRIVER), config));
}

/// Inputs of tools whose integers have a point or an exponent.
const INPUTS: [&str; 2] =
    [r#"{"times": 3.0, "ratio": 2.5, "each": {"n": 1e2}}"#, r#"{"times": 3, "ratio": 2.5, "each": {"n": 100}}"#];

#[test]
fn an_input_of_a_tool_may_have_a_point_in_its_integers_in_go() {
    let read = |input: &str| answer(Command::new(&*GO_DRIVER).arg("input"), input);
    INPUTS.iter().for_each(|input| assert_eq!(read(input), "3 2.5 100"));
    let why = read(r#"{"times": 3.5}"#);
    assert!(why.contains("cannot unmarshal number 3.5"), "{why}");
}

#[test]
fn an_input_of_a_tool_may_have_a_point_in_its_integers_in_python() {
    let script =
        "import sys; sys.path.append(sys.argv[1]); import schema; print(schema.read(sys.stdin.read()), end='')";
    let read = |input| answer(Command::new("python3").args(["-B", "-c", script]).arg(sdk("python/guild")), input);
    INPUTS.iter().for_each(|input| assert_eq!(read(input), "{'times': 3, 'ratio': 2.5, 'each': {'n': 100}}"));
}

#[test]
fn a_session_has_the_same_prompt_in_c() {
    LazyLock::force(&BUILT);
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
            let given = json!({
                "posture": posture,
                "task": task,
                "memories": memories.iter().map(|note| json!({
                    "scope": note.scope as u8, "key": note.key, "content": note.content, "modified": note.modified,
                    "origin": note.origin,
                })).collect::<Vec<_>>(),
            });
            let mut given = given.as_object().unwrap().clone();
            if let Some(Project { name, root }) = &project {
                given.insert("project".into(), json!({"name": name, "root": root}));
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
            let given = json!(given).to_string();
            assert_eq!(answer(Command::new(DRIVER).arg("prompt"), &given), system_prompt(&activation, task));
        }
    }
}
