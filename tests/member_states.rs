//! Members that are loaded, approved or failed, and cannot be used as they are: each is reported with what to do.

use std::fs;

use serde_json::{Value, json};

use crate::support::{guest, host::Home};

/// The member as `guild members --json` shows it, and the text without it.
fn shown(home: &Home, name: &str) -> (Value, String) {
    let text = |more: &[&str]| {
        let output = home.run(&[&["members", name, "--members", "members"], more].concat());
        String::from_utf8(output.stdout).unwrap()
    };
    let all: Value = serde_json::from_str(&text(&["--json"])).unwrap();
    (all.as_array().map_or(&all, |all| &all[0]).clone(), text(&[]))
}

/// What the manifest's error is.
fn parse(text: &[u8]) -> String {
    guild_contract::Manifest::parse(text).unwrap_err().to_string()
}

#[test]
fn a_member_to_which_nothing_can_be_dispatched_is_loaded_and_says_so_everywhere() {
    let home = Home::new();
    home.quick("idle");
    for (capabilities, named) in [(json!([]), "names nothing"), (json!(["memory"]), "names memory, and not `worker`")] {
        home.edit_manifest("idle", |manifest| manifest["capabilities"] = capabilities);
        let expected = format!("`capabilities` {named}, so no work can be dispatched to this member");
        let (json, text) = shown(&home, "idle");
        assert_eq!(json["state"], "ready", "{json}");
        let warning = json["warnings"][0].as_str().unwrap();
        assert!(warning.contains(&expected) && warning.ends_with("write \"capabilities\": [\"worker\"]"), "{warning}");
        assert!(text.contains(&format!("warning: {warning}")), "{text}");
        let doctor = String::from_utf8(home.run(&["doctor", "--members", "members"]).stdout).unwrap();
        assert!(doctor.contains(&expected), "{doctor}");
    }
    let (_, log) = home.serve_roster(&[]).stop();
    assert!(log.contains("no work can be dispatched to this member"), "{log}");
    // What can be used has no warning.
    home.quick("busy");
    let (json, text) = shown(&home, "busy");
    assert!(json.get("warnings").is_none() && !text.contains("warning"), "{json} {text}");
}

#[test]
fn a_misspelt_capability_is_refused_with_the_right_one_where_this_host_serves_the_member() {
    let home = Home::new();
    home.quick("idle");
    for named in ["wroker", "Worker", "workers", "WORKER"] {
        home.edit_manifest("idle", |manifest| manifest["capabilities"] = json!([named]));
        let why = String::from_utf8(home.run(&["members", "idle", "--members", "members"]).stderr).unwrap();
        let expected = format!("`capabilities` names {named:?}; did you mean `worker`?");
        assert!(why.contains(&expected), "{why}");
    }
}

#[test]
fn a_member_that_guild_hall_could_not_start_says_so_with_what_to_write() {
    let home = Home::new();
    home.quick("odd");
    home.edit_manifest("odd", |manifest| manifest["mcp"]["env"] = json!({"GUILD_CONFIG": "x"}));
    let (json, text) = shown(&home, "odd");
    let warning = json["warnings"][0].as_str().unwrap();
    assert_eq!(json["state"], "ready", "{json}");
    for expected in ["Guild Hall cannot start it", "`mcp.env` sets \"GUILD_CONFIG\"", "\"args\": [\"serve\""] {
        assert!(warning.contains(expected) && text.contains(expected), "{warning}\n{text}");
    }
    let doctor = String::from_utf8(home.run(&["doctor", "--members", "members"]).stdout).unwrap();
    assert!(doctor.contains("Guild Hall cannot start it"), "{doctor}");
    let (_, log) = home.serve_roster(&[]).stop();
    assert!(log.contains("Guild Hall cannot start it"), "{log}");
}

#[test]
fn a_value_of_the_wrong_type_is_reported_by_its_key_and_in_the_words_of_the_format() {
    let home = Home::new();
    let path = home.quick("odd").join("guild-member.json");
    let sound: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for (pointer, value, expected) in [
        ("/capabilities", json!("worker"), "`capabilities` is the text \"worker\"; it must be a list in [ ]"),
        ("/component/tools", json!({}), "`component.tools` is an object; it must be a list in [ ]"),
        (
            "/component/tools",
            json!([1]),
            "`component.tools[0]` is the number `1`; it must be a text in quotation marks",
        ),
        ("/component/grants", json!([]), "`component.grants` is a list; it must be an object"),
        (
            "/component/resources",
            json!({"maxTurns": "9"}),
            "`component.resources.maxTurns` is the text \"9\"; it must be a whole number from 0 to 4294967295",
        ),
        ("/name", Value::Null, "`name` is null; it must be a text in quotation marks"),
    ] {
        let mut manifest = sound.clone();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        manifest.pointer_mut(parent).unwrap()[key] = value;
        let error = parse(manifest.to_string().as_bytes());
        assert_eq!(error, format!("guild-member.json:1: {expected}"));
    }
    for (toml, expected) in [
        ("port = \"80\"", "`port` is the text \"80\"; it must be a whole number from 0 to 65535"),
        ("require_token = 1", "`require_token` is the number `1`; it must be true or false"),
        ("hosts = \"a\"", "`hosts` is the text \"a\"; it must be a list in [ ]"),
        ("[limits]\nrunning_jobs = true", "`limits.running_jobs` is `true`; it must be a whole number"),
    ] {
        home.write("guild.toml", toml);
        let error = home.run(&["members", "--members", "members", "--config", "guild.toml"]).stderr;
        let error = String::from_utf8(error).unwrap();
        assert!(error.contains(expected), "{toml}: {error}");
    }
}

#[test]
fn a_byte_order_mark_is_refused_by_its_name() {
    let home = Home::new();
    let path = home.quick("odd").join("guild-member.json");
    let sound = fs::read(&path).unwrap();
    assert!(parse(&[b"\xef\xbb\xbf", &sound[..]].concat()).contains(":1: the file begins with a byte order mark"));
    home.write("guild.toml", "\u{feff}port = 80\n");
    let error = home.run(&["members", "--members", "members", "--config", "guild.toml"]).stderr;
    let error = String::from_utf8(error).unwrap();
    assert!(error.contains("begins with a byte order mark"), "{error}");
}

#[test]
fn approving_a_component_that_does_not_load_says_so_and_why() {
    let home = Home::new();
    // Its manifest names another world than its component has.
    home.member("odd", "worker", &guest::autonomous("unreachable"));
    let approved = home.run(&["approve", "odd", "--members", "members", "--yes"]);
    let error = String::from_utf8(approved.stderr).unwrap();
    assert_eq!(approved.status.code(), Some(1), "{error}");
    assert!(error.contains("odd is approved, but its component does not load, so no host serves it: "), "{error}");
    // It is said again of what is approved already.
    let again = home.run(&["approve", "odd", "--members", "members", "--yes"]);
    assert_eq!(again.status.code(), Some(1));
    // One that loads is approved without a word of it.
    home.quick("good");
    let approved = home.run(&["approve", "good", "--members", "members", "--yes"]);
    assert!(approved.status.success(), "{}", String::from_utf8_lossy(&approved.stderr));
}

#[test]
fn the_log_of_a_job_that_failed_by_its_own_error_ends_with_that_error() {
    let home = Home::new();
    home.failing("fails");
    let run = home.run(&["run", "./members/fails", "What is tea?", "--json"]);
    let job: Value = serde_json::from_slice(&run.stdout).unwrap();
    let id = job["jobId"].as_str().unwrap();
    let logs = home.run(&["logs", id, "--member", "fails", "--members", "members"]);
    let text = String::from_utf8(logs.stderr).unwrap();
    assert!(text.contains("the job ended with an error: ") && text.contains("date"), "{text}");
    assert!(!text.contains("nothing was logged"), "{text}");
}

#[test]
fn a_trap_is_reported_once() {
    let home = Home::new();
    home.member("traps", "autonomous-worker", &guest::autonomous("unreachable"));
    let run = home.run(&["run", "./members/traps", "What is tea?"]);
    let text = String::from_utf8(run.stderr).unwrap();
    assert_eq!(text.matches("the component failed in `run`").count(), 1, "{text}");
}
