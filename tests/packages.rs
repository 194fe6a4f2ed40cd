//! Members that `package.json` declares with its key `guildHall`, as the original Guild Hall has it: found, served, approved,
//! signed and audited as those with a `guild-member.json` (REQ-WKR-1 to REQ-WKR-7).

use std::{fs, path::PathBuf};

use serde_json::{Value, json};

use crate::{
    approval::{key, sign},
    support::{
        guest::{self, Guest},
        host::Home,
    },
};

/// A package whose jobs complete at once with "date". Its `package.json` names a script, which nobody runs.
fn package(home: &Home, name: &str) -> PathBuf {
    let member = home.quick(name);
    fs::remove_file(member.join("guild-member.json")).unwrap();
    let ran = home.path(&format!("{name}-ran"));
    write(
        home,
        name,
        &json!({
            "name": format!("guild-hall-{name}"), "version": "0.1.0", "main": "./index.js",
            "scripts": {"install": format!("touch {}", ran.display())},
            "guildHall": {
                "type": "worker",
                "identity": {"name": "Dalton", "description": "Says what day it is.", "displayTitle": "Guild Artificer"},
                "posture": "Be brief.", "domainToolboxes": [], "builtInTools": ["Read", "Write"], "checkoutScope": "full",
                "component": {"file": "guest.wasm", "world": "autonomous-worker"}
            }
        }),
    );
    member
}

fn write(home: &Home, name: &str, package: &Value) {
    let text = serde_json::to_string_pretty(package).unwrap();
    home.write(&format!("members/{name}/package.json"), text);
}

fn edit(home: &Home, name: &str, edit: impl FnOnce(&mut Value)) {
    let text = fs::read(home.path(&format!("members/{name}/package.json"))).unwrap();
    let mut package: Value = serde_json::from_slice(&text).unwrap();
    edit(&mut package);
    write(home, name, &package);
}

/// What `guild members --json` says of a member.
fn shown(home: &Home, member: &str) -> Value {
    let output = home.run(&["members", "--members", "members", "--json"]);
    let all: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    all.into_iter().find(|shown| shown["member"] == member).unwrap_or_else(|| panic!("no {member}"))
}

fn reason(home: &Home, member: &str) -> String {
    let shown = shown(home, member);
    shown["reason"].as_str().unwrap_or_else(|| panic!("{member} is loaded: {shown}")).to_owned()
}

fn run(home: &Home, member: &str) -> Result<String, String> {
    let output = home.run(&["run", member, "a task", "--members", "members"]);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

fn approve(home: &Home, member: &str) -> String {
    let output = home.run(&["approve", member, "--members", "members", "--yes"]);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn line_of(home: &Home, path: &str, part: &str) -> usize {
    let text = fs::read_to_string(home.path(path)).unwrap();
    text.lines().position(|line| line.contains(part)).unwrap() + 1
}

#[test]
fn a_roster_serves_a_package_and_says_of_others_what_is_wrong_without_running_anything() {
    let home = Home::new();
    package(&home, "dalton");
    package(&home, "bash");
    edit(&home, "bash", |package| package["guildHall"]["builtInTools"] = json!(["Read", "Bash"]));
    package(&home, "bare");
    edit(&home, "bare", |package| _ = package["guildHall"].as_object_mut().unwrap().remove("component"));
    package(&home, "torn");
    home.write("members/torn/guild-member.json", json!({
        "name": "guild-hall-torn", "displayName": "Octavia", "description": "Says what day it is.", "version": "0.1.0",
        "transport": "http", "mcp": {"command": "guild", "args": ["serve", "--member", ".", "--port", "${PORT}"]},
        "capabilities": ["worker"]
    }).to_string());
    // A package of something else, which has members in it.
    home.write("members/group/package.json", json!({"name": "workspace"}).to_string());
    package(&home, "group/inner");

    let host = home.serve_roster(&[]);
    for member in ["dalton", "group/inner"] {
        let client = host.at(member);
        let id = client.start("What day is it?");
        client.ended(&id);
        assert_eq!(client.result(&id).unwrap()["output"], "date", "{member}");
    }
    let why = |member: &str| host.at(member).call("initialize", json!({})).unwrap_err().message;
    let place = |member: &str, part: &str| {
        let file = format!("{member}/package.json");
        format!("{file}:{}: ", line_of(&home, &format!("members/{file}"), part))
    };
    let bash = why("bash");
    assert!(
        bash.contains(&place("bash", "builtInTools")) && bash.contains("\"Bash\" (this host runs no commands"),
        "{bash}"
    );
    let bare = why("bare");
    assert!(bare.contains(&place("bare", "guildHall")) && bare.contains("the package has no component"), "{bare}");
    let torn = why("torn");
    let own = "torn/guild-member.json:1: `displayName` is \"Octavia\", and package.json:";
    let line = line_of(&home, "members/torn/package.json", "\"Dalton\"");
    let other = format!("package.json:{line} says that `guildHall.identity.name` is \"Dalton\"");
    assert!(torn.contains(own) && torn.contains(&other), "{torn}");
    assert!(["dalton", "bash", "bare", "torn"].iter().all(|name| !home.path(&format!("{name}-ran")).exists()));
}

#[test]
fn a_package_is_a_toolbox_and_a_worker_at_once() {
    let home = Home::new();
    let component =
        Guest::default().activate("unreachable").tools(&[("do", guest::ANYTHING)]).call("unreachable").build();
    package(&home, "both");
    home.write("members/both/guest.wasm", component);
    edit(&home, "both", |package| {
        package["guildHall"]["type"] = json!(["worker", "toolbox"]);
        package["guildHall"]["component"]["world"] = json!("worker-toolbox");
    });
    let host = home.serve_roster(&[]);
    let tools = host.at("both").call("tools/list", json!({})).unwrap();
    assert_eq!(tools["tools"][0]["name"], "do", "{tools}");
    // One that declares less than its component is, or more, is told.
    edit(&home, "both", |package| package["guildHall"]["component"]["world"] = json!("worker"));
    assert!(reason(&home, "both").contains("capability `tools` needs a `component.world` that exports `toolbox`"));
}

#[test]
fn a_posture_file_goes_before_the_posture_of_the_manifest() {
    let home = Home::new();
    home.write("config/guild/guild.toml", "[member.\"*\"]\nposture = \"free\"\n");
    let docs = home.write("docs/a.md", "# Kites\n\nKites were flown in China first.\n");
    let member = home.researcher("researcher");
    let own: Value = serde_json::from_slice(&fs::read(member.join("guild-member.json")).unwrap()).unwrap();
    fs::remove_file(member.join("guild-member.json")).unwrap();
    fs::remove_file(member.join("posture.md")).unwrap();
    write(
        &home,
        "researcher",
        &json!({"name": "researcher", "guildHall": {
            "type": "worker", "identity": {"name": "Ann", "description": "d"}, "posture": "You are of the manifest.",
            "component": own["component"]
        }}),
    );
    let audited = || home.run(&["audit", "researcher", "--members", "members", "--texts"]).stdout;
    let audited = || String::from_utf8(audited()).unwrap();
    assert!(audited().contains("You are of the manifest."), "{}", audited());

    let host = home.serve(&member, &["--sources", docs.parent().unwrap().to_str().unwrap()]);
    let prompt = || {
        let id = host.client().start("Where were kites flown first?");
        fs::read_to_string(member.join("jobs").join(id).join("plan.json")).unwrap()
    };
    assert!(prompt().contains("You are of the manifest."));
    home.write("members/researcher/posture.md", "You are of the file.");
    let prompt = prompt();
    assert!(prompt.contains("You are of the file.") && !prompt.contains("of the manifest"), "{prompt}");
    assert!(audited().contains("You are of the file.") && !audited().contains("of the manifest"), "{}", audited());
}

#[test]
fn a_change_of_the_package_is_refused_until_it_is_approved_and_a_second_file_is_one() {
    let home = Home::new();
    package(&home, "dalton");
    assert_eq!(run(&home, "dalton").unwrap(), "date\n");
    edit(&home, "dalton", |package| package["guildHall"]["posture"] = json!("Look into every file."));
    let why = run(&home, "dalton").unwrap_err();
    assert!(why.contains("- identity package.json: ") && why.contains("+ identity package.json: "), "{why}");
    approve(&home, "dalton");
    run(&home, "dalton").unwrap();

    edit(&home, "dalton", |package| {
        package["guildHall"]["component"]["grants"] = json!({"lore": {"write": true}});
        package["guildHall"]["component"]["scopes"] = json!(["worker", "project"]);
    });
    let why = run(&home, "dalton").unwrap_err();
    assert!(why.contains("+ capability lore:write; + capability memory:project"), "{why}");
    let said = approve(&home, "dalton");
    assert!(said.contains("+ capability lore:write\n"), "{said}");

    // A guild-member.json beside it could say what nobody approved, and so could a package beside a pinned member.
    let own = json!({
        "name": "guild-hall-dalton", "displayName": "Dalton", "description": "Says what day it is.", "version": "0.1.0",
        "transport": "http", "mcp": {"command": "guild", "args": ["serve", "--member", ".", "--port", "${PORT}"]}
    });
    home.write("members/dalton/guild-member.json", own.to_string());
    assert!(run(&home, "dalton").unwrap_err().contains("+ identity guild-member.json: "));
    home.quick("plain");
    run(&home, "plain").unwrap();
    write(&home, "plain", &json!({"name": "plain", "devDependencies": {}}));
    run(&home, "plain").unwrap();
    write(&home, "plain", &json!({"name": "plain", "guildHall": {"type": "worker", "posture": "Obey."}}));
    assert!(run(&home, "plain").unwrap_err().contains("+ identity package.json: "));
}

#[test]
fn a_signature_is_of_the_package_too() {
    let home = Home::new();
    home.write("config/guild/guild.toml", "require_signature = true\n[member.\"*\"]\nposture = \"free\"\n");
    package(&home, "dalton");
    home.quick("plain");
    key(&home, "ann");
    for member in ["dalton", "plain"] {
        sign(&home, member, "ann");
        run(&home, member).unwrap();
        assert_eq!(shown(&home, member)["signature"]["whole"], json!(true), "{member}");
    }
    edit(&home, "dalton", |package| package["guildHall"]["posture"] = json!("Obey."));
    let why = run(&home, "dalton").unwrap_err();
    assert!(why.contains("is bad: it belongs to another state of package.json"), "{why}");
    write(&home, "plain", &json!({"name": "plain", "guildHall": {"type": "worker", "posture": "Obey."}}));
    let why = run(&home, "plain").unwrap_err();
    assert!(why.contains("is bad: it belongs to another state of package.json"), "{why}");
}

#[test]
fn what_a_package_can_change_of_a_project_is_granted_denied_and_audited() {
    let home = Home::new();
    package(&home, "dalton");
    edit(&home, "dalton", |package| {
        package["guildHall"]["component"]["scopes"] = json!(["project", "global"]);
        package["guildHall"]["component"]["grants"] = json!({"lore": {"write": true}});
    });
    home.write("config/guild/guild.toml", "[member.dalton]\ndeny = [\"memory:global\"]\n");
    let grants = home.run(&["members", "dalton", "--members", "members", "--grants"]);
    let grants = String::from_utf8(grants.stdout).unwrap();
    let row = |name: &str| {
        let row = grants.lines().find(|line| line.trim_start().starts_with(name));
        row.unwrap_or_else(|| panic!("no {name}: {grants}")).split_whitespace().nth(1).unwrap().to_owned()
    };
    assert_eq!(
        ["lore:write", "worktree:write", "memory:project", "memory:global"].map(row),
        ["granted", "granted", "granted", "denied"]
    );
    let audit = home.run(&["audit", "dalton", "--members", "members", "--json"]);
    let audit: Value = serde_json::from_slice(&audit.stdout).unwrap();
    let items = |label: &str| {
        let row = audit["reach"].as_array().unwrap().iter().find(|row| row["label"] == label);
        row.unwrap_or_else(|| panic!("no {label}: {audit}"))["items"].clone()
    };
    let has = |label: &str, item: &str| items(label).as_array().unwrap().iter().any(|found| found == item);
    assert!(has("writes", "a project's documents") && has("writes", "a project's files"), "{}", items("writes"));
    assert!(has("reads", "a project's memories") && has("reads", "a project's files"), "{}", items("reads"));
    assert!(!has("reads", "the memories for all projects"), "{}", items("reads"));
}
