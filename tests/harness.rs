//! `guild test`: cases of real components, with everything around them scripted.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::support::{
    guest::{self, Guest},
    host::Home,
    output::{stderr, stdout},
};

/// Runs `guild test` in a member's directory: the exit code, and what it printed.
fn test(home: &Home, member: &Path, options: &[&str]) -> (Option<i32>, String, String) {
    let output = home.guild().arg("test").arg(member).args(options).output().unwrap();
    (output.status.code(), stdout(&output), stderr(&output))
}

fn script(member: &Path, name: &str, script: &str) -> PathBuf {
    let path = member.join("tests").join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, script).unwrap();
    path
}

/// The surveyor, which carries its jobs out itself.
fn surveyor(home: &Home) -> PathBuf {
    let member = home.member("surveyor", "autonomous-worker", &guest::built("surveyor"));
    home.edit_manifest("surveyor", |manifest| {
        manifest["component"]["grants"] = json!({
            "agent": {}, "files": {}, "job-tools": {}, "log": {}, "memory": {"write": true}, "status": {},
        });
        manifest["component"]["tools"] = json!(["Read", "Grep", "Glob"]);
    });
    member
}

#[test]
fn a_plan_and_a_refusal_are_compared() {
    let home = Home::new();
    let member = home.researcher("researcher");
    script(
        &member,
        "plan.toml",
        r#"
        [[cases]]
        name = "plans a session with the tools that have something to read"
        given.task = "What is X?"
        given.config = { focus = "its cost", maxTurns = 10 }
        given.posture = "You research."
        given.files = { "docs/x.md" = "X costs 5." }
        expect.plan.session.prompt = "What is X?\n\nFocus on: its cost"
        expect.plan.session.systemPrompt = { contains = ["You research.", "submit_result"], lacks = ["meeting"] }
        expect.plan.session.tools = ["Read", "Grep", "Glob", "WebSearch", "WebFetch"]
        expect.plan.session.bounds = { maxTurns = 10 }

        [[cases]]
        name = "has only what the operator grants"
        given.task = "What is X?"
        given.files = { "docs/x.md" = "X costs 5." }
        given.deny = ["web"]
        expect.plan.session.tools = ["Read", "Grep", "Glob", "WebSearch"]

        [[cases]]
        name = "a config is checked by the schema of the manifest"
        given.task = "What is X?"
        given.config = { maxTurns = 0 }
        expect.refusal = { contains = ["`config` is not what researcher takes", "maxTurns"] }
        "#,
    );
    let (code, printed, told) = test(&home, &member, &[]);
    assert_eq!(code, Some(0), "{printed}{told}");
    assert!(printed.contains("running 3 cases of researcher"), "{printed}");
    assert!(printed.contains("test plan: has only what the operator grants ... ok"), "{printed}");
    assert!(printed.contains("test result: ok. 3 passed; 0 failed"), "{printed}");
    // No job is left in the member's own directory.
    assert!(!member.join("jobs").exists() && !member.join("memory").exists());
}

#[test]
fn a_difference_is_shown_and_written_as_junit() {
    let home = Home::new();
    let member = home.researcher("researcher");
    script(
        &member,
        "wrong.toml",
        r#"
        [[cases]]
        name = "asks another <question>"
        given.task = "What is X?"
        expect.plan.session.prompt = "What is Y?"

        [[cases]]
        name = "is refused"
        given.task = "What is X?"
        given.config = { turns = 3 }
        expect.plan.session.prompt = "What is X?"
        "#,
    );
    let junit = home.path("junit.xml");
    let (code, printed, _) = test(&home, &member, &["--junit", junit.to_str().unwrap()]);
    assert_eq!(code, Some(1), "{printed}");
    assert!(printed.contains("---- wrong: asks another <question> ("), "{printed}");
    assert!(printed.contains("wrong.toml:3)"), "{printed}");
    assert!(printed.contains("expect.plan.session.prompt differs:\n    -What is Y?\n    +What is X?"), "{printed}");
    assert!(printed.contains("expect.refusal was not expected; it is:\n    `config` is not what"), "{printed}");
    let junit = fs::read_to_string(junit).unwrap();
    assert!(junit.contains(r#"<testsuites name="researcher" tests="2" failures="2" errors="0""#), "{junit}");
    assert!(junit.contains(r#"<testcase name="asks another &lt;question&gt;" classname="wrong""#), "{junit}");
    assert!(junit.contains(r#"<failure message="expect.plan.session.prompt differs:">"#), "{junit}");
}

#[test]
fn what_is_not_valid_is_an_error_with_its_file_and_line() {
    let home = Home::new();
    let member = home.researcher("researcher");
    let (code, _, told) = test(&home, &member, &[]);
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("has no test file; write a case into"), "{told}");
    for (line, wrong, said) in [
        (2, "[[cases]]\nname = \"a\"\ngiven.taks = \"What is X?\"", "unknown field `taks`, expected one of `task`"),
        (1, "[[case]]\nname = \"a\"", "unknown field `case`, expected `cases`"),
        (4, "[[cases]]\nname = \"a\"\ngiven.task = \"b\"\nexpect.refusal = { has = \"c\" }", "unknown field `has`"),
        (2, "[[cases]]\nname = \"a\"\ngiven.seed = 1", "needs `given.task`"),
        (1, "# none", "has no case; write [[cases]]"),
    ] {
        let path = script(&member, "wrong.toml", wrong);
        let (code, _, told) = test(&home, &member, &[]);
        assert_eq!(code, Some(2), "{told}");
        let place = if wrong == "# none" { path.display().to_string() } else { format!("{}:", path.display()) };
        assert!(told.contains(&place) && told.contains(said), "{line}: {told}");
    }
    script(&member, "wrong.toml", "[[cases]]\nname = \"a\"\ngiven.task = \"b\"\ngiven.deny = [\"all\"]");
    let (code, printed, _) = test(&home, &member, &[]);
    assert_eq!(code, Some(2), "{printed}");
    assert!(printed.contains("test wrong: a ... INVALID") && printed.contains("`given.deny`: "), "{printed}");
}

#[test]
fn a_model_does_what_the_script_says_turn_by_turn() {
    let home = Home::new();
    let member = home.researcher("researcher");
    script(
        &member,
        "session.toml",
        r#"
        [[cases]]
        name = "reads, stores and reports"
        given.task = "What does X cost?"
        given.files = { "docs/x.md" = "X costs 5." }
        given.pages = { "https://example.org/x" = "It cost 4 before." }
        given.memory = [{ key = "units", text = "Prices are in euros." }]

        [[cases.sessions]]
        [[cases.sessions.turns]]
        text = "I read the price list."
        calls = [
            { tool = "Read", input = { file_path = "docs/x.md" } },
            { tool = "WebFetch", input = { url = "https://example.org/x" } },
            { tool = "WebFetch", input = { url = "https://example.org/y" } },
        ]
        [[cases.sessions.turns]]
        calls = [
            { tool = "store_memory", input = { key = "price", content = "X costs 5 euros." } },
            { tool = "write_artifact", input = { path = "prices.csv", contents = "X,5\n" } },
            { tool = "log_question", input = { question = "Since when?" } },
            { tool = "submit_result", input = { output = "X costs 5 euros." } },
        ]
        [[cases.sessions.turns]]
        text = "Done."

        [cases.expect]
        result = "X costs 5 euros."
        questions = ["Since when?"]
        artifacts = { "prices.csv" = "X,5\n" }
        memory = { units = "Prices are in euros.", price = "X costs 5 euros." }
        sessions = [{ systemPrompt = { contains = ["Prices are in euros."] }, ending = "success" }]
        calls = [
            { tool = "Read", answer = { contains = ["X costs 5."] } },
            { tool = "WebFetch", answer = { contains = ["It cost 4 before."] } },
            { tool = "WebFetch", error = { contains = ["given.pages"] } },
            { tool = "store_memory" },
            { tool = "write_artifact" },
            { tool = "log_question" },
            { tool = "submit_result", answer = { contains = ["submitted"] } },
        ]

        [[cases]]
        name = "a bound holds"
        given.task = "What does X cost?"
        given.config = { maxTurns = 1 }
        given.files = { "docs/x.md" = "X costs 5." }
        sessions = [{ turns = [{ calls = [{ tool = "Glob", input = { pattern = "*" } }] }, { text = "5" }] }]
        expect.error = "the session reached its limit of 1 turns"

        [[cases]]
        name = "a model fails"
        given.task = "What does X cost?"
        sessions = [{ turns = [{ fail = "the provider is overloaded" }] }]
        expect.error = "the provider is overloaded"
        "#,
    );
    let (code, printed, told) = test(&home, &member, &[]);
    assert_eq!(code, Some(0), "{printed}{told}");
}

#[test]
fn the_example_of_the_guide_passes() {
    let home = Home::new();
    let member = home.researcher("researcher");
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/testing-plugins.md");
    let guide = fs::read_to_string(guide).unwrap();
    let (_, example) = guide.split_once("```toml\n").unwrap();
    script(&member, "guide.toml", example.split_once("```").unwrap().0);
    let (code, printed, told) = test(&home, &member, &[]);
    assert_eq!(code, Some(0), "{printed}{told}");
}

#[test]
fn a_component_that_runs_itself_finds_files_memory_and_sessions() {
    let home = Home::new();
    let member = surveyor(&home);
    script(
        &member,
        "run.toml",
        r#"
        [[cases]]
        name = "surveys, and asks for a description"
        given.task = "What is here?"
        given.description = "survey"
        given.bounds = { maxTurns = 12 }
        given.config = { glob = "**/*.md", describe = true }
        given.files = { "docs/a.md" = "A", "docs/b.md" = "B", "docs/c.txt" = "C" }
        given.memory = [{ key = "last-survey", text = "**/*.md matched 1 files" }]
        sessions = [{ when = "Describe in a few sentences", turns = [{ text = "Two notes." }] }]

        [cases.expect]
        plan.ownRun = { maxTurns = 12 }
        result = { contains = ["`**/*.md` matches 2 files", "The last survey: **/*.md matched 1 files.", "Two notes."] }
        artifacts = { "files.csv" = "path,kind\ndocs/a.md,md\ndocs/b.md,md\n" }
        memory = { last-survey = "**/*.md matched 2 files" }
        summary = "Listed 2 files; asking for a description"
        log = { contains = ["**/*.md matches 2 files"] }
        sessions = [{ prompt = { contains = ["- docs/a.md"] }, tools = ["Read", "Grep", "Glob"] }]
        hostCalls = [
            { function = "files.glob", input = { pattern = "**/*.md", limit = 1 } },
            { function = "job-tools.update-summary" },
            { function = "files.glob", answer = ["docs/a.md", "docs/b.md"] },
            { function = "job-tools.write-artifact" },
            { function = "job-tools.submit-result" },
            { function = "job-tools.update-summary", input = { summary = "Listed 2 files; asking for a description" } },
            { function = "agent.query" },
        ]

        [[cases]]
        name = "has nothing to survey"
        given.task = "What is here?"
        expect.refusal = { contains = ["there is nothing to survey"] }
        "#,
    );
    let (code, printed, told) = test(&home, &member, &[]);
    assert_eq!(code, Some(0), "{printed}{told}");
    // It is carried out as well where nothing but its calls is expected.
    script(
        &member,
        "calls.toml",
        r#"
        [[cases]]
        name = "calls nothing"
        given.task = "What is here?"
        given.config = { glob = "**/*.md" }
        given.files = { "docs/a.md" = "A" }
        expect.hostCalls = []
        "#,
    );
    let (code, printed, _) = test(&home, &member, &["--filter", "calls nothing"]);
    assert_eq!((code, printed.contains("files.glob")), (Some(1), true), "{printed}");
}

#[test]
fn a_tool_is_called_under_its_schemas() {
    let home = Home::new();
    let member = home.member("textkit", "toolbox-plugin", &guest::built("textkit"));
    home.edit_manifest("textkit", |manifest| manifest["capabilities"] = json!(["tools"]));
    script(
        &member,
        "tools.toml",
        r#"
        [[cases]]
        name = "counts"
        given.call = { tool = "text_stats", input = { text = "one two" } }

        [[cases]]
        name = "refuses a wrong input"
        given.call = { tool = "text_stats", input = { text = 5 } }
        expect.error = { contains = ["the input is not what text_stats takes"] }
        "#,
    );
    let (code, printed, _) = test(&home, &member, &["--filter", "counts"]);
    assert_eq!(code, Some(1), "{printed}");
    assert!(printed.contains("the case expects nothing"), "{printed}");
    let (code, printed, told) = test(&home, &member, &["--update"]);
    assert_eq!(code, Some(0), "{printed}{told}");
    assert!(fs::read_to_string(member.join("tests/tools.toml")).unwrap().contains("words = 2"));
    assert_eq!(test(&home, &member, &[]).0, Some(0));
    let parts = |part: &str| {
        let call = r#"given.call = { tool = "text_stats", input = { text = "one two" } }"#;
        let case = format!("[[cases]]\nname = \"parts\"\n{call}\nexpect.answer = {{ contains = [{part:?}] }}\n");
        script(&member, "parts.toml", &case);
        test(&home, &member, &["--filter", "parts"]).0
    };
    assert_eq!((parts(r#""words":2"#), parts(r#""words":3"#)), (Some(0), Some(1)));
}

#[test]
fn an_update_writes_what_came_and_keeps_the_comments() {
    let home = Home::new();
    let member = home.researcher("researcher");
    let before = r#"# Why this case is here.
[[cases]]
name = "plans" # a name
given.task = "What is X?"

# What a person looked at.
[cases.expect]
plan.session.prompt = "What is Y?" # the prompt
plan.session.systemPrompt = { contains = ["X"] }

[[cases]]
name = "another outcome"
given.task = "What is X?"
given.config = { turns = 3 }
expect.plan.session.prompt = "What is X?"
"#;
    let path = script(&member, "plan.toml", before);
    let (code, printed, told) = test(&home, &member, &["--update"]);
    let after = fs::read_to_string(&path).unwrap();
    assert!(told.contains("updated "), "{told}");
    assert!(after.contains("plan.session.prompt = \"What is X?\" # the prompt\n"), "{after}");
    assert!(after.contains("# Why this case is here.") && after.contains("# What a person looked at."), "{after}");
    assert!(after.contains("plan.session.systemPrompt = { contains = [\"X\"] }"), "{after}");
    assert!(after.contains("expect.refusal = '`config` is not what researcher takes"), "{after}");
    assert_eq!(code, Some(0), "{printed}\n{after}");
}

#[test]
fn time_and_random_numbers_are_given() {
    // The result is the time in seconds since 1970 as a character, from a table of two; then 8 random bytes as letters.
    let body = r#"
        (call $wall-clock.now (i32.const 8192))
        (i32.store8 (i32.const 2048)
          (i32.add (i32.const 48) (i64.eq (i64.load (i32.const 8192)) (i64.const 1767225600))))
        (i64.store (i32.const 2049)
          (i64.or (i64.const 0x6161616161616161)
            (i64.and (call $random.get-random-u64) (i64.const 0x0f0f0f0f0f0f0f0f))))
        (call $ok (i32.const 2048) (i32.const 9))"#;
    let home = Home::new();
    let component = Guest::importing(&["clocks/wall-clock", "random/random"]).run(body).build();
    let member = home.member("clocked", "autonomous-worker", &component);
    let case = |name: &str, more: &str| format!("[[cases]]\nname = \"{name}\"\ngiven.task = \"t\"\n{more}\n");
    script(&member, "given.toml", &(case("one", "sessions = [{}]") + &case("two", "sessions = [{}]\ngiven.seed = 7")));
    assert_eq!(test(&home, &member, &["--update"]).0, Some(0));
    let taken = fs::read_to_string(member.join("tests/given.toml")).unwrap();
    let results: Vec<&str> = taken.lines().filter_map(|line| line.strip_prefix("result = ")).collect();
    assert!(results.len() == 2 && results[0] != results[1], "{taken}");
    assert!(results.iter().all(|result| result.starts_with("\"1")), "{taken}");
    // The same ones again.
    let (code, printed, _) = test(&home, &member, &[]);
    assert_eq!(code, Some(0), "{printed}");
}

#[test]
fn a_job_that_ran_becomes_a_test() {
    let home = Home::new();
    let member = home.researcher("researcher");
    let sources = home.path("docs");
    home.write("docs/tides.md", "# Tides\n\nThe tide rises twice a day in most harbours of the coast.\n");
    let member_path = member.to_str().unwrap();
    let ran = home.run(&["run", member_path, "How often does the tide rise?", "--sources", sources.to_str().unwrap()]);
    assert!(ran.status.success(), "{}", stderr(&ran));
    let (code, printed, told) = test(&home, &member, &["--record", "@latest"]);
    assert_eq!(code, Some(0), "{printed}{told}");
    assert!(told.contains("recorded "), "{told}");
    let path = fs::read_dir(member.join("tests")).unwrap().next().unwrap().unwrap().path();
    let recorded = fs::read_to_string(&path).unwrap();
    assert!(recorded.contains("task = \"How often does the tide rise?\""), "{recorded}");
    assert!(recorded.contains("tool = \"submit_result\""), "{recorded}");
    let (code, printed, told) = test(&home, &member, &[]);
    assert_eq!(code, Some(0), "{printed}{told}");
    let (code, _, told) = test(&home, &member, &["--record", "@latest"]);
    assert!(code == Some(2) && told.contains("exists, and is not overwritten"), "{told}");
}

#[test]
fn a_recorded_job_has_the_answers_of_built_in_tools() {
    let home = Home::new();
    let member = home.researcher("researcher");
    home.write("docs/x.md", "X costs 5.");
    let calls = r#"{ tool = "Read", input = { file_path = "docs/x.md" } }"#;
    let price = script(&member, "price.toml", &case_of_calls(calls));
    let sources = home.path("docs");
    let options = ["--agent", "scripted", "--script", price.to_str().unwrap(), "--sources", sources.to_str().unwrap()];
    let ran = home.run(&[&["run", member.to_str().unwrap(), "What?"], &options[..]].concat());
    assert!(ran.status.success(), "{}", stderr(&ran));
    fs::remove_file(price).unwrap();
    assert_eq!(test(&home, &member, &["--record", "@latest"]).0, Some(0));
    let path = fs::read_dir(member.join("tests")).unwrap().next().unwrap().unwrap().path();
    let recorded = fs::read_to_string(&path).unwrap();
    assert!(recorded.contains("X costs 5."), "{recorded}");
    let (code, printed, _) = test(&home, &member, &[]);
    assert_eq!(code, Some(0), "{printed}");
    // A session without the tool is not answered, whatever the script says.
    assert!(recorded.contains("deny = [\"web\"]"), "{recorded}");
    fs::write(&path, recorded.replace("deny = [\"web\"]", "deny = [\"web\", \"files\"]")).unwrap();
    let (code, printed, _) = test(&home, &member, &[]);
    assert!(code == Some(1) && printed.contains("expect.plan.session.tools differs"), "{printed}");
}

/// A test file with one case of a dispatch, whose model makes these calls and submits a result.
fn case_of_calls(calls: &str) -> String {
    format!(
        r#"
        [[cases]]
        name = "answers"
        given.task = "What does X cost?"
        sessions = [{{ turns = [
            {{ calls = [{calls}] }},
            {{ calls = [{{ tool = "submit_result", input = {{ output = "5 euros" }} }}] }},
        ] }}]
        expect.result = "5 euros"
        "#
    )
}

#[test]
fn an_approval_is_rehearsed_on_jobs_that_ran() {
    let home = Home::new();
    let member = home.researcher("researcher");
    home.write("docs/x.md", "X costs 5.");
    home.write("guild.toml", "[[roots]]\nname = \"docs\"\npath = \"docs\"\n");
    let price =
        script(&member, "price.toml", &case_of_calls(r#"{ tool = "Read", input = { file_path = "docs/x.md" } }"#));
    let directory = member.to_str().unwrap();
    let scripted = ["--agent", "scripted", "--script", price.to_str().unwrap(), "--config", "guild.toml"];
    for _ in 0..2 {
        let ran = home.run(&[&["run", directory, "What?"], &scripted[..]].concat());
        assert!(ran.status.success(), "{}", stderr(&ran));
    }
    let approve = |jobs: &str| {
        let output = home.run(&["approve", directory, "--yes", "--rehearse", jobs, "--config", "guild.toml"]);
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    let used = ["members", directory, "--used", "--prove", "5", "--config", "guild.toml"];
    let used = stdout(&home.run(&used));
    assert!(used.contains("allow = [\"memory\", \"files:docs\", "), "{used}");
    assert!(used.contains("\"artifacts\"") && !used.contains("\"memory:write\""), "{used}");
    assert!(used.contains("the last 2 of 2 jobs: 2 as then"), "{used}");
    // The model reads what it read then, also where the file has changed meanwhile.
    home.write("docs/x.md", "X costs 7.");
    let printed = approve("20");
    assert!(printed.contains("rehearsal  the last 2 of 2 jobs: 2 as then, 0 otherwise, 0 not played"), "{printed}");
    fs::write(member.join("posture.md"), "You guess.").unwrap();
    let printed = approve("1");
    assert!(printed.contains("the last 1 of 2 jobs: 0 as then, 1 otherwise, 0 not played"), "{printed}");
    assert!(printed.contains("plan.session.systemPrompt differs:") && printed.contains("+You guess."), "{printed}");
    assert!(printed.contains("also sessions[0].systemPrompt"), "{printed}");
    // Nothing of it is a job of the member.
    assert_eq!(fs::read_dir(member.join("jobs")).unwrap().count(), 2);
}

#[test]
fn a_component_that_carries_jobs_out_is_rehearsed_on_the_read_roots() {
    let home = Home::new();
    let member = surveyor(&home);
    home.write("docs/tides.md", "# Tides\n\nThe tide rises twice a day.\n");
    home.write("guild.toml", "[[roots]]\nname = \"docs\"\npath = \"docs\"\n");
    let directory = member.to_str().unwrap();
    let ran = home.run(&["run", directory, "Survey the files", "--config", "guild.toml"]);
    assert!(ran.status.success(), "{}", stderr(&ran));
    let approve = || {
        let output = home.run(&["approve", directory, "--yes", "--rehearse", "5", "--config", "guild.toml"]);
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    let printed = approve();
    assert!(printed.contains("the last 1 of 1 jobs: 1 as then, 0 otherwise, 0 not played"), "{printed}");
    home.write("docs/more.md", "# More\n\nAnother file.\n");
    let printed = approve();
    assert!(printed.contains("0 as then, 1 otherwise"), "{printed}");
}

#[test]
fn the_grants_that_jobs_used_make_a_narrower_rule_which_is_proved() {
    let home = Home::new();
    let member = surveyor(&home);
    home.write("docs/tides.md", "# Tides\n\nThe tide rises twice a day.\n");
    home.write("secret/keys.md", "# Keys\n");
    let root = |name: &str| format!("[[roots]]\nname = \"{name}\"\npath = \"{name}\"\n");
    home.write("guild.toml", root("docs"));
    let directory = member.to_str().unwrap();
    let ran = home.run(&["run", directory, "Survey the files", "--config", "guild.toml"]);
    assert!(ran.status.success(), "{}", stderr(&ran));
    let logged = home.run(&["logs", "@latest", "--member", directory]);
    assert!(stdout(&logged).contains("by the component in activate: files, files:docs"), "{}", stdout(&logged));
    // A root that came later was never read.
    home.write("guild.toml", root("docs") + &root("secret"));
    let members = |options: &[&str]| {
        let output = home.run(&[&["members", directory, "--used", "--config", "guild.toml"], options].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    let used: Value = serde_json::from_str(&members(&["--json"])).unwrap();
    let jobs_of = |name: &str| {
        let rows = used["grants"].as_array().unwrap();
        rows.iter().find(|row| row["capability"].as_str().unwrap().trim() == name).map(|row| row["jobs"].clone())
    };
    assert_eq!(jobs_of("files:docs"), Some(json!(1)), "{used}");
    assert_eq!(jobs_of("files:secret"), Some(json!(0)), "{used}");
    let allow = used["allow"].as_array().unwrap();
    assert!(allow.contains(&json!("files:docs")) && !allow.contains(&json!("files")), "{used}");
    let printed = members(&["--prove", "3"]);
    assert!(printed.contains("[member.\"surveyor\"]\nallow = ["), "{printed}");
    assert!(printed.contains("the last 1 of 1 jobs: 1 as then"), "{printed}");
}

#[test]
fn a_script_is_a_runtime_of_a_host_too() {
    let home = Home::new();
    let member = home.researcher("researcher");
    let script = script(
        &member,
        "price.toml",
        r#"
        [[cases]]
        name = "answers"
        given.task = "What does X cost?"
        sessions = [{ turns = [{ calls = [{ tool = "submit_result", input = { output = "5 euros" } }] }] }]
        expect.result = "5 euros"
        "#,
    );
    let member = member.to_str().unwrap();
    let ran = home.run(&["run", member, "What?", "--agent", "scripted", "--script", script.to_str().unwrap()]);
    assert_eq!((ran.status.code(), stdout(&ran).trim()), (Some(0), "5 euros"), "{}", stderr(&ran));
    let without = home.run(&["run", member, "What?", "--agent", "scripted"]);
    assert!(stderr(&without).contains("the runtime `scripted` has no script: name a test file with --script FILE"));
}
