//! Components that were built for a published version of `guild:worker` work with every later host.

use std::{fs, path::Path};

use serde_json::json;

use crate::support::{guest, host::Home};

/// A frozen component, by its world.
fn frozen(version: &str, world: &str) -> Vec<u8> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/frozen/{version}/{world}.wasm"));
    fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}

#[test]
fn components_of_0_1_work_as_they_did() {
    let home = Home::new();
    for world in ["worker", "autonomous-worker", "toolbox-plugin"] {
        home.member(world, world, &frozen("v0_1", world));
    }
    home.edit_manifest("worker", |manifest| {
        manifest["component"]["grants"] = json!({"log": {}, "memory": {"write": true}, "files": {}});
        manifest["component"]["tools"] = json!(["Read", "Grep", "Glob"]);
    });
    home.edit_manifest("autonomous-worker", |manifest| {
        manifest["component"]["grants"] = guest::everything();
        manifest["component"]["tools"] = json!(["Read", "Grep", "Glob"]);
    });
    home.edit_manifest("toolbox-plugin", |manifest| manifest["capabilities"] = json!(["tools"]));
    home.write("docs/owls.md", "# Owls\n\nOwls turn their heads.\n");
    home.write("guild.toml", "[[roots]]\npath = \"docs\"\n");
    let host = home.serve_roster(&["--config", home.path("guild.toml").to_str().unwrap()]);
    let answer = |member: &str, task: &str| {
        let client = host.at(member);
        let id = client.dispatch(json!({"description": "frozen", "task": task})).unwrap();
        let status = client.ended(&id);
        assert_eq!(status["status"], "completed", "{member}: {status}");
        (client.result(&id).unwrap()["output"].as_str().unwrap().to_owned(), status)
    };

    // It plans, and the host runs its session.
    let (report, _) = answer("worker", "What do owls turn?");
    assert!(report.contains("Owls turn their heads."), "{report}");

    // It runs itself, and calls each interface.
    let task = "read /job/task.md\nfile docs/owls.md\nremember k v\nrecall k\nsummary going\ndecide what this\nquestion\n\
                artifact a.txt text\nstatus\nsearch owls\nfetch https://example.com\nask fine";
    let (report, status) = answer("autonomous-worker", task);
    let outcome = |step: &str| {
        let line = report.lines().find(|line| line.starts_with(&format!("{step}: ")));
        line.unwrap_or_else(|| panic!("{step}: {report}")).to_owned()
    };
    for step in ["read /job/task.md", "remember k v", "summary going", "question", "artifact a.txt text", "ask fine"] {
        assert!(outcome(step).contains(": ok"), "{report}");
    }
    assert_eq!(outcome("recall k"), "recall k: ok v");
    assert!(outcome("file docs/owls.md").contains("Owls turn their heads."), "{report}");
    // No [web] in guild.toml opens any.
    assert!(outcome("fetch https://example.com").contains(": error "), "{report}");
    assert_eq!(status["summary"], "going", "{status}");
    assert_eq!(status["decisions"][0]["decision"], "this", "{status}");

    // Its tools are listed and called.
    let tools = host.at("toolbox-plugin").call("tools/list", json!({})).unwrap();
    assert!(tools["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "test_simple_text"), "{tools}");
    let called = host.at("toolbox-plugin").call("tools/call", json!({"name": "test_simple_text", "arguments": {}}));
    assert_eq!(called.unwrap()["content"][0]["text"], "This is a simple text response for testing.");
}
