//! Manifests and components that do not fit each other: refused when they are loaded, each with the true reason, and all at once.

use std::{fs, os::unix::fs::symlink};

use serde_json::{Value, json};

use crate::support::{
    guest::{self, Guest},
    host::Home,
};

/// Why `guild members` does not load the member.
fn reason(home: &Home, name: &str) -> String {
    let output = home.run(&["members", name, "--members", "members", "--json"]);
    // Of a manifest that is no manifest there is nothing to show.
    let (shown, error) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    let Ok(members) = serde_json::from_str::<Value>(&shown) else { return error };
    let member = members.as_array().map_or(&members, |members| &members[0]);
    member["reason"].as_str().unwrap_or_else(|| panic!("{name} is loaded: {member}")).to_owned()
}

/// What `guild run` ends with.
fn run(home: &Home, name: &str) -> String {
    let run = home.run(&["run", &format!("./members/{name}"), "What is tea?"]);
    assert!(!run.status.success());
    String::from_utf8(run.stderr).unwrap()
}

fn toolbox(home: &Home, name: &str) {
    home.member(name, "toolbox-plugin", &guest::toolbox("unreachable"));
    home.edit_manifest(name, |manifest| manifest["capabilities"] = json!(["tools"]));
}

#[test]
fn a_world_that_is_not_the_components_is_refused_with_the_one_that_is() {
    let home = Home::new();
    let runs = guest::autonomous("unreachable");
    let plans = guest::refusing("fine");
    let tools = guest::toolbox("unreachable");
    let both = Guest::default().activate("unreachable").tools(&[("do", guest::ANYTHING)]).call("unreachable").build();
    for (name, component, world, expected) in [
        ("a", &runs, "worker", ["exports `run` too", "write `\"world\": \"autonomous-worker\"`"]),
        ("b", &both, "worker", ["exports `toolbox` too", "write `\"world\": \"worker-toolbox\"`"]),
        ("c", &plans, "autonomous-worker", ["does not export `run`", "write `\"world\": \"worker\"`"]),
        (
            "d",
            &tools,
            "worker",
            ["does not export `dispatch`, and exports `toolbox` instead", "write `\"world\": \"toolbox-plugin\"`"],
        ),
        (
            "e",
            &both,
            "autonomous-worker",
            ["does not export `run`, and exports `toolbox`", "write `\"world\": \"worker-toolbox\"`"],
        ),
    ] {
        home.member(name, world, component);
        let why = reason(&home, name);
        assert!(
            why.starts_with("guild-member.json:1: the manifest says")
                && expected.iter().all(|expected| why.contains(expected)),
            "{why}"
        );
    }
    assert!(run(&home, "a").contains("exports `run` too"));
}

#[test]
fn a_capability_that_the_world_does_not_have_is_refused() {
    let home = Home::new();
    home.member("tools", "worker", &guest::refusing("fine"));
    home.edit_manifest("tools", |manifest| manifest["capabilities"] = json!(["worker", "tools"]));
    let why = reason(&home, "tools");
    assert!(why.contains("capability `tools` needs a `component.world` that exports `toolbox`"), "{why}");
    assert!(run(&home, "tools").contains("capability `tools` needs"));
}

#[test]
fn a_task_for_a_member_without_a_worker_says_what_to_do_instead() {
    let home = Home::new();
    toolbox(&home, "box");
    let why = run(&home, "box");
    assert!(why.contains("member box is a toolbox") && why.contains("`guild call box TOOL`"), "{why}");
    home.member("idle", "worker", &guest::refusing("fine"));
    home.edit_manifest("idle", |manifest| manifest["capabilities"] = json!([]));
    let why = run(&home, "idle");
    assert!(why.contains("`capabilities` in its manifest does not name `worker`"), "{why}");
}

#[test]
fn all_grants_that_are_missing_are_named_at_once() {
    let home = Home::new();
    home.member("all", "autonomous-worker", &guest::dummy("autonomous-worker"));
    home.edit_manifest("all", |manifest| manifest["component"]["grants"] = json!({"files": {}}));
    let why = reason(&home, "all");
    let plain = ["log", "memory", "web", "job-tools", "status", "agent"];
    let plain = plain.map(|interface| (interface, format!("\"{interface}\": {{}}")));
    let of_the_hall = [("hall", "\"hall\": {\"read\": true}"), ("manager", "\"hall\": {\"manage\": true}")];
    for (missing, line) in plain.into_iter().chain(of_the_hall.map(|(interface, line)| (interface, line.to_owned()))) {
        assert!(
            why.contains(&format!("`guild:worker/{missing}@0.1.0`")) && why.contains(&format!("`{line}`")),
            "{why}"
        );
    }
    assert!(!why.contains("files") && why.contains("add the lines"), "{why}");

    // So are all that `strict_imports` refuses.
    home.edit_manifest("all", |manifest| {
        manifest["component"]["grants"] = guest::everything();
        manifest["component"]["grants"]["hall"] = json!({"read": true, "manage": true});
    });
    home.write("guild.toml", "strict_imports = true\n[member.all]\ndeny = [\"status\", \"agent\"]\n");
    let output = home
        .guild()
        .current_dir(home.path("."))
        .args(["members", "all", "--members", "members", "--config", "guild.toml", "--json"])
        .output();
    let output = String::from_utf8(output.unwrap().stdout).unwrap();
    assert!(
        ["status", "agent", "web"].iter().all(|name| output.contains(&format!("`guild:worker/{name}@0.1.0`"))),
        "{output}"
    );
}

#[test]
fn a_grant_that_is_no_object_is_refused_with_what_to_write() {
    let home = Home::new();
    home.member("odd", "worker", &guest::refusing("fine"));
    for (grants, expected) in [
        (json!({"log": true}), "write {} to ask for it"),
        (json!({"memory": true}), "write {} to ask for reading, or {\"write\": true}"),
        (json!({"files": ["docs"]}), "{\"roots\": [\"NAME\"]}"),
        (json!({"web": "docs.rs"}), "{\"hosts\": [\"HOST\"]}"),
        (json!({"agent": []}), "{\"ownTools\": true}"),
        (json!({"artifacts": 5}), "{\"bytes\": N, \"entries\": N}"),
        (json!([{}, {}, {}, {}, {}, {}, {}]), "`component.grants` is a list; it must be an object"),
    ] {
        home.edit_manifest("odd", |manifest| manifest["component"]["grants"] = grants.clone());
        let why = reason(&home, "odd");
        assert!(why.contains("; it must be an object") && why.contains(expected), "{grants}: {why}");
    }
}

#[test]
fn a_component_that_cannot_be_read_says_which_part_of_its_path_and_why() {
    let home = Home::new();
    let member = home.member("odd", "worker", &guest::refusing("fine"));
    let outside = home.write("outside.wasm", guest::refusing("fine"));
    fs::create_dir(member.join("dir")).unwrap();
    symlink("nowhere.wasm", member.join("dangling.wasm")).unwrap();
    symlink(&outside, member.join("absolute.wasm")).unwrap();
    symlink("../../outside.wasm", member.join("up.wasm")).unwrap();
    symlink("../..", member.join("out")).unwrap();
    for (file, expected) in [
        ("none.wasm", "`none.wasm` does not exist in the member's directory"),
        ("build/none.wasm", "`build` does not exist in the member's directory"),
        ("guest.wasm/x.wasm", "`guest.wasm` in the member's directory is no directory"),
        ("dir", "it is a directory"),
        ("dangling.wasm", "`dangling.wasm` is a symbolic link to nowhere.wasm, which leads to nothing"),
        ("absolute.wasm", "which leads out of the member's directory"),
        ("up.wasm", "`up.wasm` is a symbolic link to ../../outside.wasm, which leads out of the member's directory"),
        ("out/outside.wasm", "`out` is a symbolic link to ../.., which leads out of the member's directory"),
    ] {
        home.edit_manifest("odd", |manifest| manifest["component"]["file"] = json!(file));
        let why = reason(&home, "odd");
        assert!(
            why.contains(&format!("the component `{file}` cannot be read: ")) && why.contains(expected),
            "{file}: {why}"
        );
    }
    // One that stays inside is followed.
    symlink("guest.wasm", member.join("inside.wasm")).unwrap();
    home.edit_manifest("odd", |manifest| manifest["component"]["file"] = json!("inside.wasm"));
    assert!(run(&home, "odd").contains("fine"));
}

/// The places of all objects in a value.
fn objects(value: &Value, pointer: &str, found: &mut Vec<String>) {
    let below: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), value)).collect(),
        Value::Array(items) => items.iter().enumerate().map(|(at, value)| (at.to_string(), value)).collect(),
        _ => return,
    };
    if value.is_object() {
        found.push(pointer.to_owned());
    }
    for (key, value) in below {
        objects(value, &format!("{pointer}/{key}"), found);
    }
}

#[test]
fn a_list_stands_for_an_object_nowhere_in_a_manifest() {
    let home = Home::new();
    home.member("full", "autonomous-worker", &guest::dummy("autonomous-worker"));
    home.edit_manifest("full", |manifest| {
        manifest["mcp"]["env"] = json!({"A": "b"});
        manifest["component"] = json!({
            "file": "guest.wasm", "world": "autonomous-worker", "tools": ["Read"], "scopes": ["worker"],
            "toolboxes": ["box"], "configSchema": {"type": "object"},
            "resources": {"maxTurns": 3, "maxBudgetUsd": 0.5, "deadlineSeconds": 60},
            "grants": {
                "log": {}, "memory": {"write": true}, "files": {"roots": ["docs"]}, "job-tools": {}, "status": {},
                "web": {"hosts": ["docs.rs"], "search": true}, "agent": {"ownTools": true},
                "artifacts": {"bytes": 1000, "entries": 10}
            }
        });
    });
    let path = home.path("members/full/guild-member.json");
    let full: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let parse =
        |manifest: &Value| guild_contract::Manifest::parse(manifest.to_string().as_bytes()).map_err(|e| e.to_string());
    parse(&full).unwrap();
    let mut places = Vec::new();
    objects(&full, "", &mut places);
    // A schema may be anything that is one.
    places.retain(|place| place != "/component/configSchema");
    assert_eq!(places.len(), 14, "{places:?}");
    for place in places {
        let mut manifest = full.clone();
        let object = manifest.pointer_mut(&place).unwrap();
        *object = object.as_object().unwrap().values().cloned().collect();
        let why = parse(&manifest).unwrap_err();
        assert!(why.contains(" is a list; it must be an object"), "{place}: {why}");
    }
    // The host says so too, of the one that would have granted all.
    home.edit_manifest("full", |manifest| manifest["component"]["grants"] = json!([{}, {}, {}, {}, {}, {}, {}]));
    assert!(reason(&home, "full").contains("`component.grants` is a list; it must be an object"));
}
