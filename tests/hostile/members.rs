//! What a member's directory and its component make the host hold, write, or allow.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    time::{Duration, Instant},
};

use guild_contract::text::is_steering;
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};

use super::harness::{Case, Hostile};
use crate::support::{
    guest::{self, Guest},
    host::wait_for,
};

const MIB: u32 = 1 << 20;

/// A component whose `run` starts a session with one own tool: case 1 has a mebibyte of `{"":0 },` in its input schema, case
/// 2 in its output schema, and case 3 a title of 5 MiB.
fn querying() -> Vec<u8> {
    let tool = |field: u32, value: u32| format!("(i32.store (i32.const {}) (i32.const {value}))", 16500 + field);
    let options = |field: u32, value: u32| format!("(i32.store (i32.const {}) (i32.const {value}))", 16384 + field);
    // Where the schema begins: `{"enum":[`, then so many objects, then `0]}`.
    let (at, objects) = (4 * MIB, MIB / 8);
    let schema = format!(
        "(memory.copy (i32.const {at}) (i32.const 1024) (i32.const 9))
         (local.set $to (i32.const {}))
         (loop $more
           (i64.store (local.get $to) (i64.const 0x2c7d20303a22227b))
           (local.set $to (i32.add (local.get $to) (i32.const 8)))
           (br_if $more (i32.lt_u (local.get $to) (i32.const {}))))
         (i32.store (local.get $to) (i32.const 0x7d5d30))",
        at + 9,
        at + 9 + objects * 8,
    );
    let bytes = 9 + objects * 8 + 3;
    let case = |n: u32, body: &str| format!("(if (i32.eq (call $case (local.get 0)) (i32.const {n})) (then {body}))");
    let run = [
        "(local $to i32)".to_owned(),
        schema,
        options(28, 16500),
        options(32, 1),
        tool(0, 1040),
        tool(4, 4),
        tool(28, 1056),
        tool(32, 2),
        case(1, &(tool(28, at) + &tool(32, bytes))),
        case(2, &(tool(36, 1) + &tool(40, at) + &tool(44, bytes))),
        case(
            3,
            &(tool(8, 1)
                + &tool(12, at)
                + &tool(16, 5 * MIB)
                + "(memory.fill (i32.const 4194304) (i32.const 97) (i32.const 5242880))"),
        ),
        "(call $agent.query (i32.const 16384) (i32.const 8192)) (call $outcome)".to_owned(),
    ];
    Guest::importing(&["agent"])
        .pages(320)
        .with("(data (i32.const 1024) \"{\\\"enum\\\":[\") (data (i32.const 1040) \"tool\") (data (i32.const 1056) \"{}\")")
        .realloc(
            "(local $at i32)
             (if (i32.lt_u (global.get $next) (i32.const 20000000)) (then (global.set $next (i32.const 20000000))))
             (local.set $at (i32.and (i32.add (global.get $next) (i32.const 15)) (i32.const -16)))
             (global.set $next (i32.add (local.get $at) (local.get 3))) (local.get $at)",
        )
        .run(&run.concat())
        .build()
}

#[test]
fn own_tools_that_the_host_stores_count_as_memory_of_their_component() {
    Hostile::autonomous(querying()).attacks(|case| {
        let full = "with what the host keeps for the session, limits.memory_bytes = 67108864 is reached";
        case.case_fails(1, full);
        case.case_fails(2, full);
        let title = 5 * MIB + 4 + 2;
        case.case_fails(
            3,
            &format!("the session's prompts and tools have {title} bytes; the fixed limit plan_bytes allows 4194304"),
        );
    });
}

/// Lists one tool, whose input schema is a mebibyte of objects.
#[test]
fn what_the_host_stores_of_listed_tools_is_bounded_by_its_parsed_size() {
    let list = "(local $to i32)
         (memory.copy (i32.const 131072) (i32.const 1024) (i32.const 25))
         (local.set $to (i32.const 131097))
         (loop $more
           (i64.store (local.get $to) (i64.const 0x2c7d20303a22227b))
           (local.set $to (i32.add (local.get $to) (i32.const 8)))
           (br_if $more (i32.lt_u (local.get $to) (i32.const 1179673))))
         (i32.store (local.get $to) (i32.const 0x7d5d30))
         (i32.store (i32.const 4096) (i32.const 16500)) (i32.store (i32.const 4100) (i32.const 1))
         (i32.store (i32.const 16500) (i32.const 1056)) (i32.store (i32.const 16504) (i32.const 4))
         (i32.store (i32.const 16528) (i32.const 131072)) (i32.store (i32.const 16532) (i32.const 1048604))
         (i32.const 4096)";
    let component = Guest::default()
        .activate("unreachable")
        .pages(32)
        .with(
            "(data (i32.const 1024) \"{\\\"type\\\":\\\"object\\\",\\\"enum\\\":[\") (data (i32.const 1056) \"tool\")",
        )
        .list(list)
        .build();
    Hostile::hybrid(component).limit("tools_bytes = 2097152").attacks(|case| {
        let state = wait_for("the member to be in state error", || {
            let members = case.host.members();
            let member = members.into_iter().find(|member| member["member"] == "hostile")?;
            member["error"].as_str().map(str::to_owned)
        });
        assert!(state.contains("bytes when they are read, more than limits.memory_bytes = 67108864"), "{state}");
    });
}

/// Of a line break, a carriage return, NUL, an escape, a mark that turns the direction of text, and an invisible one.
const FORGED: &str = "x\nERROR forged\r\u{0}\u{1b}[2J\u{9b}\u{202e}\u{2066}\u{200b}\u{2028}\u{e0041}";

/// The member's manifest, edited before the host sees it.
fn manifest(edit: fn(&mut Value)) -> Hostile {
    Hostile::worker(guest::worker("unreachable")).manifest(edit)
}

/// Nothing in the host's log, or in what the commands show of the member, is more than it seems.
fn forges_no_line(case: &Case) {
    let log = wait_for("the host to tell", || {
        let log = case.host.output();
        log.contains("\\n").then_some(log).filter(|log| log.contains("ERROR forged"))
    });
    let members = case.home.run(&["members", "--members", "members"]);
    let serve = case.home.run(&["serve", "--member", "members/hostile", "--port", "0"]);
    let shown = [members.stdout, members.stderr, serve.stdout, serve.stderr];
    let shown = shown.map(|text| String::from_utf8(text).unwrap());
    for text in shown.iter().chain([&log]) {
        assert!(!text.contains(is_steering), "{text:?}");
        assert!(!text.lines().any(|line| line.trim_start().starts_with("ERROR forged")), "{text:?}");
    }
    assert_eq!(shown[3].lines().count(), 1, "{}", shown[3]);
}

#[test]
fn a_manifest_forges_no_line_of_the_log_by_its_keys() {
    manifest(|manifest| {
        manifest["component"][FORGED] = json!(1);
    })
    .attacks(forges_no_line);
}

#[test]
fn a_manifest_forges_no_line_of_the_log_by_its_values() {
    manifest(|manifest| {
        manifest["component"]["world"] = json!(FORGED);
    })
    .attacks(forges_no_line);
}

#[test]
fn a_manifest_forges_no_line_of_the_log_by_a_schema() {
    manifest(|manifest| {
        manifest["component"]["configSchema"] = json!({"properties": {FORGED: {"type": FORGED}}});
    })
    .attacks(forges_no_line);
}

/// What Guild Hall would run for a member: its `mcp` line, in its directory.
fn started_by_its_manifest(case: &Case) -> (Option<i32>, String) {
    let text = fs::read(case.member.join("guild-member.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&text).unwrap();
    let line = &manifest["mcp"];
    let mut command = case.home.guild();
    command.current_dir(&case.member);
    for word in line["args"].as_array().unwrap() {
        command.arg(word.as_str().unwrap().replace("${PORT}", "0"));
    }
    for (name, value) in line["env"].as_object().into_iter().flatten() {
        command.env(name, value.as_str().unwrap());
    }
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

fn line_is_refused(case: &Case, why: &str) {
    let (code, error) = started_by_its_manifest(case);
    assert!(code == Some(1) && error.contains(why) && error.lines().count() == 1, "{code:?}: {error}");
}

#[test]
fn a_manifest_gives_its_host_no_read_roots() {
    let hostile = manifest(|manifest| {
        manifest["mcp"]["args"] = json!(["serve", "--member", ".", "--port", "${PORT}", "--sources", "/home"]);
    });
    hostile.attacks(|case| line_is_refused(case, "`mcp.args` has \"--sources\""));
}

#[test]
fn a_manifest_gives_its_host_no_other_policy() {
    let hostile = manifest(|manifest| {
        manifest["mcp"]["env"] = json!({"GUILD_CONFIG": "/dev/null"});
    });
    hostile.attacks(|case| line_is_refused(case, "`mcp.env` sets \"GUILD_CONFIG\""));
}

#[test]
fn a_manifest_does_not_move_the_user_s_directories() {
    let hostile = manifest(|manifest| {
        manifest["mcp"]["env"] = json!({"XDG_CONFIG_HOME": "/tmp", "HOME": "/tmp"});
    });
    hostile.attacks(|case| {
        // Not even where the operator allows its line.
        case.home.write("config/guild/guild.toml", "[member.\"*\"]\nmcp = \"any\"\n");
        line_is_refused(case, "`mcp.env` sets \"HOME\"");
    });
}

#[test]
fn a_manifest_starts_no_host_of_other_members() {
    let hostile = manifest(|manifest| {
        manifest["mcp"]["args"] = json!(["serve", "--members", "..", "--port", "${PORT}", "--sources", "/home"]);
    });
    hostile.attacks(|case| line_is_refused(case, "`mcp.args` has \"--members\""));
}

/// Locks a file until this process ends, as any reader of the file can.
fn hold(path: &Path) {
    let held = fs::File::open(path).unwrap();
    flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
    std::mem::forget(held);
}

#[test]
fn whoever_can_read_a_member_s_directory_does_not_keep_it_from_being_served() {
    fn plant(path: &Path) {
        fs::write(path, guest::refusing("no such work")).unwrap();
        hold(path.parent().unwrap());
    }
    Hostile::worker("").plant("guest.wasm", plant).attacks(|case| {
        case.refused(-32602, "no such work");
        for file in [".owner", "guild-member.json"] {
            hold(&case.member.join(file));
        }
        let lock = fs::metadata(case.member.join(".lock")).unwrap();
        assert_eq!(lock.permissions().mode() & 0o777, 0o600, "others could hold it");
        case.refused(-32602, "no such work");
    });
}

#[test]
fn whoever_can_read_the_configuration_directory_does_not_keep_tokens_from_being_revoked() {
    Hostile::worker(guest::refusing("no such work")).behind_tokens().attacks(|case| {
        hold(&case.home.path("."));
        hold(&case.home.path("guild.toml"));
        let begun = Instant::now();
        for arguments in [&["token", "add", "other"][..], &["token", "revoke", "other"]] {
            let done = case.home.run(arguments);
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "it took {:?}", begun.elapsed());
    });
}

#[test]
fn what_a_killed_host_left_half_written_is_removed_by_the_next() {
    const JOB: &str = "019b2c00-0000-7000-8000-000000000000";
    fn plant(path: &Path) {
        fs::write(path, guest::refusing("no such work")).unwrap();
        let member = path.parent().unwrap();
        let job = member.join("jobs").join(JOB);
        fs::create_dir_all(&job).unwrap();
        fs::create_dir_all(member.join("memory")).unwrap();
        let meta = json!({
            "jobId": JOB, "status": "failed", "description": "d", "startedAt": "2026-01-01T00:00:00Z",
            "completedAt": "2026-01-01T00:00:00Z"
        });
        fs::write(job.join("meta.json"), meta.to_string()).unwrap();
        for half in [".tmp-.owner", "memory/.tmp-key.md"] {
            fs::write(member.join(half), "half of").unwrap();
        }
        fs::write(job.join(".tmp-meta.json"), "half of").unwrap();
    }
    Hostile::worker("").plant("guest.wasm", plant).attacks(|case| {
        assert_eq!(case.client().status(JOB).unwrap()["status"], "failed");
        for half in [".tmp-.owner", "memory/.tmp-key.md", &format!("jobs/{JOB}/.tmp-meta.json")] {
            assert!(!case.member.join(half).exists(), "{half} was left");
        }
        case.client().cancel(JOB).unwrap();
    });
}

/// As many toolboxes as could hold every place for a while, and another one after them.
#[test]
fn toolboxes_whose_listings_do_not_end_do_not_block_the_loading_of_others() {
    const LOOPING: usize = 20;
    let looping = Guest::default().list("(loop (br 0)) (i32.const 0)").build();
    let hostile = Hostile::worker(guest::worker("unreachable")).limit("list_tools_seconds = 1");
    hostile.attacks(|case| {
        let sound = guest::toolbox("(call $ok (local.get 2) (local.get 3))");
        let offers = |member: &str| {
            let is_it = |known: &Value| known["member"] == member && known["state"] == "ready";
            case.host.members().iter().any(is_it).then_some(())
        };
        let install = |member: &str, component: &[u8]| {
            let manifest = json!({
                "name": member, "displayName": member, "description": "d", "version": "0.1.0", "transport": "http",
                "mcp": {"command": "guild", "args": ["serve", "--member", ".", "--port", "${PORT}"]},
                "capabilities": ["tools"], "component": {"file": "guest.wasm", "world": "toolbox-plugin"}
            });
            case.home.write(&format!("members/{member}/guest.wasm"), component);
            case.home.write(&format!("members/{member}/guild-member.json"), manifest.to_string());
        };
        // So that it is compiled already.
        install("before", &sound);
        wait_for("a toolbox to be loaded", || offers("before"));
        (0..LOOPING).for_each(|n| install(&format!("looping-{n}"), &looping));
        let known = |member: &str| case.host.members().iter().any(|known| known["member"] == member);
        wait_for("the others to be found", || known(&format!("looping-{}", LOOPING - 1)).then_some(()));
        let begun = Instant::now();
        install("after", &sound);
        wait_for("a toolbox to be loaded", || offers("after"));
        assert!(begun.elapsed() < Duration::from_secs(4), "it took {:?}", begun.elapsed());
        let why = "`list-tools` did not end within its deadline of 1 s (the fixed limit list_tools_seconds)";
        wait_for("all of the others to be refused", || {
            let refused = |member: &&Value| member["error"].as_str().is_some_and(|error| error.contains(why));
            (case.host.members().iter().filter(refused).count() == LOOPING).then_some(())
        });
        // What the host has open for them is given back with them.
        for member in fs::read_dir(case.home.path("members")).unwrap().map(|entry| entry.unwrap()) {
            let name = member.file_name().into_string().unwrap();
            if ["before", "after"].contains(&name.as_str()) || name.starts_with("looping-") {
                fs::remove_dir_all(member.path()).unwrap();
            }
        }
        wait_for("them to be gone", || (case.host.members().len() == 3).then_some(()));
    });
}
