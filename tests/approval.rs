//! What is pinned, what is refused until it is approved, and whose signatures are believed: through the command.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::support::{
    guest,
    host::{Home, wait_for},
};

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs a job of a member, and says why it cannot, where it cannot.
fn run(home: &Home, member: &str) -> Result<(), String> {
    let output = home.run(&["run", member, "a task", "--members", "members"]);
    match output.status.code() {
        Some(0) => {
            assert_eq!(text(&output.stdout), "date\n");
            Ok(())
        }
        _ => Err(text(&output.stderr)),
    }
}

/// `guild approve` of a member: all that it printed, and whether it ended well.
fn approve(home: &Home, member: &str, options: &[&str]) -> (bool, String) {
    let output = home.run(&[&["approve", member, "--members", "members"], options].concat());
    (output.status.success(), text(&output.stdout) + &text(&output.stderr))
}

/// What `guild members --json` says of a member.
fn shown(home: &Home, member: &str) -> Value {
    let output = home.run(&["members", "--members", "members", "--json"]);
    let all: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    all.into_iter().find(|shown| shown["member"] == member).unwrap()
}

fn pins(home: &Home) -> Vec<Value> {
    serde_json::from_slice(&home.run(&["approve", "--list", "--json"]).stdout).unwrap()
}

fn lock(home: &Home) -> PathBuf {
    home.path("config/guild/guild.lock")
}

fn configure(home: &Home, text: &str) {
    home.write("config/guild/guild.toml", text);
}

/// Makes another component of a member's, which does the same: it has one more custom section.
pub(crate) fn rebuild(home: &Home, member: &str) {
    let file = home.path(&format!("members/{member}/guest.wasm"));
    let built = [fs::read(&file).unwrap(), vec![0, 2, 1, b'v']].concat();
    fs::write(file, built).unwrap();
}

fn copy(home: &Home, from: &str, to: &str) {
    for entry in fs::read_dir(home.path(&format!("members/{from}"))).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            let name = entry.file_name().into_string().unwrap();
            home.write(&format!("members/{to}/{name}"), fs::read(entry.path()).unwrap());
        }
    }
}

#[test]
fn a_changed_component_is_refused_until_it_is_approved() {
    let home = Home::new();
    home.quick("quick");
    run(&home, "quick").unwrap();
    let pinned = pins(&home);
    let directory = home.path("members/quick").canonicalize().unwrap();
    assert_eq!(pinned.len(), 1);
    assert_eq!((&pinned[0]["directory"], &pinned[0]["how"]), (&json!(directory), &json!("first-use")));
    assert_eq!(fs::metadata(lock(&home).parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    run(&home, "quick").unwrap();

    rebuild(&home, "quick");
    let why = run(&home, "quick").unwrap_err();
    assert!(why.contains("- identity sha256") && why.contains("+ identity sha256"), "{why}");
    assert!(why.contains("`guild approve quick --members "), "{why}");

    // It shows the change, and without a terminal or --yes it changes nothing.
    let before = fs::read(lock(&home)).unwrap();
    let (approved, said) = approve(&home, "quick", &[]);
    let hash = pinned[0]["sha256"].as_str().unwrap();
    assert!(!approved && said.contains(&format!("- identity sha256: {hash}")) && said.contains("--yes"), "{said}");
    assert_eq!(fs::read(lock(&home)).unwrap(), before);

    let (approved, said) = approve(&home, "quick", &["--yes"]);
    assert!(approved, "{said}");
    run(&home, "quick").unwrap();
    assert_eq!(pins(&home)[0]["how"], "approved");
    assert!(approve(&home, "quick", &["--yes"]).1.contains("already"));
}

#[test]
fn changed_requests_are_refused_and_a_served_members_jobs_are_still_answered_for() {
    let home = Home::new();
    let member = home.quick("quick");
    let host = home.serve(&member, &[]);
    let job = host.client().start("before");
    assert_eq!(host.client().ended(&job)["status"], "completed");
    host.stop();

    home.edit_manifest("quick", |manifest| {
        manifest["component"]["grants"] = json!({"web": {"hosts": ["example.org"]}, "log": {}});
    });
    let host = home.serve(&member, &[]);
    let error = host.client().dispatch(json!({"description": "d", "task": "t"})).unwrap_err();
    assert!(error.message.contains("+ capability web:example.org"), "{}", error.message);
    assert!(error.message.contains("`guild approve`"), "{}", error.message);
    // The whole command names directories, and is in the host's log.
    assert!(!error.message.contains(home.path("").to_str().unwrap()), "{}", error.message);
    assert_eq!(host.client().result(&job).unwrap()["output"], "date");

    // The running host says so, and has to be started again.
    let (approved, said) = approve(&home, "quick", &["--yes"]);
    assert!(approved && said.contains("+ capability log\n") && said.contains("start it again"), "{said}");
    host.stop();
    let host = home.serve(&member, &[]);
    host.client().start("after");
}

#[test]
fn a_changed_posture_manifest_or_mcp_line_is_a_change() {
    let home = Home::new();
    let member = home.quick("quick");
    home.write("members/quick/posture.md", "Be brief.");
    let host = home.serve(&member, &[]);
    let dispatch = || host.client().dispatch(json!({"description": "d", "task": "t"}));
    dispatch().unwrap();
    assert_eq!(pins(&home)[0]["mcp"], "guild serve --member . --port '${PORT}'");

    // A host that serves it reads the posture at each dispatch, and `guild.lock` too.
    home.write("members/quick/posture.md", "Be brief, and look into every file.");
    let error = dispatch().unwrap_err();
    assert!(error.message.contains("posture.md") && error.message.contains("posture = \"free\""), "{}", error.message);
    let (approved, said) = approve(&home, "quick", &["--yes"]);
    assert!(approved && said.contains("- identity posture.md: ") && said.contains("+ identity posture.md: "), "{said}");
    dispatch().unwrap();
    fs::remove_file(member.join("posture.md")).unwrap();
    assert!(dispatch().is_err());
    approve(&home, "quick", &["--yes"]);
    dispatch().unwrap();
    host.stop();

    home.edit_manifest("quick", |manifest| manifest["mcp"]["args"][0] = json!("mcp"));
    let why = run(&home, "quick").unwrap_err();
    assert!(why.contains("+ identity mcp: guild mcp --member . --port '${PORT}'"), "{why}");
    approve(&home, "quick", &["--yes"]);
    run(&home, "quick").unwrap();
    home.edit_manifest("quick", |manifest| manifest["description"] = json!("another one"));
    let why = run(&home, "quick").unwrap_err();
    assert!(why.contains("+ identity guild-member.json: "), "{why}");
    approve(&home, "quick", &["--yes"]);

    configure(&home, "[member.\"q*\"]\nposture = \"free\"\n");
    for posture in ["One.", "Two."] {
        home.write("members/quick/posture.md", posture);
        run(&home, "quick").unwrap();
    }
    configure(&home, "[member.quick]\nposture = \"any\"\n");
    assert!(
        run(&home, "quick").unwrap_err().contains("guild.toml:2: member.quick.posture: \"any\" is not a valid value")
    );
}

#[test]
fn a_posture_that_was_free_is_pinned_or_approved_once_it_is_not() {
    let home = Home::new();
    home.quick("quick");
    configure(&home, "[member.quick]\nposture = \"free\"\n");
    run(&home, "quick").unwrap();
    approve(&home, "quick", &["--yes"]);
    assert!(pins(&home)[0].get("posture").is_none());
    configure(&home, "require_approval = true\n");
    assert!(run(&home, "quick").unwrap_err().contains("+ identity posture.md: none"));
    configure(&home, "");
    run(&home, "quick").unwrap();
    assert_eq!((&pins(&home)[0]["posture"], &pins(&home)[0]["how"]), (&json!("none"), &json!("approved")));
}

#[test]
fn a_copy_of_what_is_pinned_loads_and_is_pinned_and_a_changed_copy_is_not() {
    let home = Home::new();
    configure(&home, "require_approval = true\n");
    home.quick("one");
    let why = run(&home, "one").unwrap_err();
    assert!(why.contains("require_approval") && why.contains("`guild approve one --members "), "{why}");
    let (approved, said) = approve(&home, "one", &["--yes"]);
    assert!(approved && said.contains("never") && said.contains("+ identity world: autonomous-worker"), "{said}");
    run(&home, "one").unwrap();

    copy(&home, "one", "two");
    assert_eq!(shown(&home, "two")["approval"], "copied");
    run(&home, "two").unwrap();
    assert_eq!(pins(&home)[1]["how"], "copied");

    copy(&home, "one", "three");
    rebuild(&home, "three");
    assert!(run(&home, "three").unwrap_err().contains("require_approval"));
    for (name, posture) in [("another", ""), ("quick", "Look into every file.")] {
        copy(&home, "one", name);
        home.edit_manifest(name, |manifest| manifest["displayName"] = json!(name));
        home.write(&format!("members/{name}/posture.md"), posture);
        assert!(run(&home, name).unwrap_err().contains("require_approval"), "{name}");
    }
    copy(&home, "one", "four");
    home.edit_manifest("four", |manifest| manifest["component"]["tools"] = json!(["WebFetch"]));
    assert!(run(&home, "four").unwrap_err().contains("require_approval"));

    // A member that was moved is a copy of itself.
    fs::rename(home.path("members/two"), home.path("members/moved")).unwrap();
    run(&home, "two").unwrap_err();
    run(&home, "moved").unwrap();
}

#[test]
fn where_an_approval_is_required_a_first_use_vouches_for_no_copy() {
    let home = Home::new();
    home.quick("one");
    run(&home, "one").unwrap();
    copy(&home, "one", "two");
    run(&home, "two").unwrap();
    configure(&home, "require_approval = true\n");
    run(&home, "one").unwrap();
    run(&home, "two").unwrap();
    copy(&home, "one", "three");
    assert!(run(&home, "three").unwrap_err().contains("require_approval"));
    assert!(approve(&home, "one", &["--yes"]).0);
    run(&home, "three").unwrap();
}

#[test]
fn an_old_version_that_is_pinned_elsewhere_does_not_come_back_by_itself() {
    let home = Home::new();
    home.quick("one");
    run(&home, "one").unwrap();
    copy(&home, "one", "old");
    run(&home, "old").unwrap();
    rebuild(&home, "one");
    assert!(approve(&home, "one", &["--yes"]).0);
    copy(&home, "old", "one");
    assert!(run(&home, "one").unwrap_err().contains("guild approve one"));
}

#[test]
fn a_component_that_never_loaded_is_not_pinned_so_it_can_be_put_right() {
    let home = Home::new();
    home.member("odd", "autonomous-worker", &guest::refusing("not today"));
    assert!(run(&home, "odd").unwrap_err().contains("does not export `run`"));
    assert!(pins(&home).is_empty());
    home.edit_manifest("odd", |manifest| manifest["component"]["world"] = json!("worker"));
    assert!(run(&home, "odd").unwrap_err().contains("not today"));
    assert_eq!(pins(&home).len(), 1);
}

#[test]
fn looking_pins_nothing_and_says_what_a_host_would_do() {
    let home = Home::new();
    home.quick("quick");
    let doctor = || home.run(&["doctor", "--members", "members", "--json"]);
    doctor();
    assert_eq!((&shown(&home, "quick")["approval"], &shown(&home, "quick")["state"]), (&json!("new"), &json!("ready")));
    assert!(!lock(&home).exists());

    run(&home, "quick").unwrap();
    assert_eq!(shown(&home, "quick")["approval"], "first use");
    rebuild(&home, "quick");
    let changed = shown(&home, "quick");
    assert_eq!((&changed["approval"], &changed["state"]), (&json!("changed"), &json!("error")));
    assert!(changed["reason"].as_str().unwrap().contains("guild approve quick"), "{changed}");
    assert!(text(&doctor().stdout).contains("guild approve quick"));
}

#[test]
fn a_lock_that_cannot_be_understood_refuses_every_member_and_is_not_written_over() {
    let home = Home::new();
    home.quick("quick");
    run(&home, "quick").unwrap();
    let good = fs::read_to_string(lock(&home)).unwrap();
    let cases = [
        (good.replace("sha256 = ", "sha512 = "), "guild.lock:"),
        (good.replace("version = 1", "version = 9"), "guild.lock:3: version 9"),
        (good[..good.len() / 2].to_owned(), "guild.lock:"),
        (String::new(), "guild.lock:1: "),
    ];
    for (broken, named) in cases {
        fs::write(lock(&home), &broken).unwrap();
        let why = run(&home, "quick").unwrap_err();
        assert!(why.contains(named), "{named}: {why}");
        assert!(!approve(&home, "quick", &["--yes"]).0);
        assert_eq!(fs::read_to_string(lock(&home)).unwrap(), broken);
    }
    fs::remove_file(lock(&home)).unwrap();
    fs::create_dir(lock(&home)).unwrap();
    assert!(run(&home, "quick").unwrap_err().contains("guild.lock"));
}

#[test]
fn where_nothing_can_be_pinned_members_are_served_and_said_to_be_unwatched() {
    let mut home = Home::new();
    home.quick("quick");
    // Nobody makes a directory there, root neither.
    home.set("XDG_CONFIG_HOME", "/sys/guild-test");
    let output = home.run(&["run", "quick", "t", "--members", "members"]);
    assert!(output.status.success() && text(&output.stderr).contains("could not be pinned"), "{output:?}");

    let policy = home.write("policy/guild.toml", "require_approval = true\n");
    home.set("GUILD_CONFIG", policy.to_str().unwrap());
    assert!(run(&home, "quick").unwrap_err().contains("require_approval"));
}

#[test]
fn a_members_directory_is_no_place_for_the_policy() {
    let home = Home::new();
    home.quick("quick");
    for place in ["members/quick/guild.toml", "members/quick/etc/guild.toml"] {
        let policy = home.write(place, "");
        let output = home.run(&["run", "quick", "t", "--members", "members", "--config", policy.to_str().unwrap()]);
        assert!(text(&output.stderr).contains("guild.toml is in a member's directory"), "{output:?}");
        assert!(!policy.with_file_name("guild.lock").exists());
    }
}

#[test]
fn twenty_processes_that_pin_at_once_lose_nothing() {
    let home = Home::new();
    let names: Vec<String> = (0..20).map(|n| format!("m{n:02}")).collect();
    for (n, name) in names.iter().enumerate() {
        home.quick(name);
        (0..n).for_each(|_| rebuild(&home, name));
    }
    // What a crash left of an earlier write.
    home.write("config/guild/.tmp-guild.lock", "version = ");
    let started: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(n, name)| {
            let mut command = home.guild();
            command.current_dir(home.path(".")).stdout(std::process::Stdio::null());
            // Most of them without an engine, which takes longer than all else.
            match n % 5 {
                0 => command.args(["run", name, "t", "--members", "members"]),
                _ => command.args(["approve", name, "--yes", "--members", "members"]),
            };
            command.stderr(std::process::Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for child in started {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let pinned = pins(&home);
    assert_eq!(pinned.iter().map(|pin| pin["name"].as_str().unwrap()).collect::<Vec<_>>(), names);
    let hashes: std::collections::BTreeSet<_> = pinned.iter().map(|pin| pin["sha256"].to_string()).collect();
    assert_eq!(hashes.len(), names.len());
    assert!(!home.path("config/guild/.tmp-guild.lock").exists());
}

#[test]
fn a_pin_can_be_listed_and_forgotten() {
    let home = Home::new();
    home.quick("quick");
    run(&home, "quick").unwrap();
    rebuild(&home, "quick");
    run(&home, "quick").unwrap_err();
    assert!(text(&home.run(&["approve", "--list"]).stdout).contains("first use"));
    assert!(!home.run(&["approve", "--forget", "other"]).status.success());
    assert!(home.run(&["approve", "--forget", "quick"]).status.success());
    assert!(pins(&home).is_empty());
    run(&home, "quick").unwrap();
    let directory = home.path("members/quick");
    fs::remove_dir_all(&directory).unwrap();
    assert!(text(&home.run(&["approve", "--list"]).stdout).contains("(gone)"));
    let directory = pins(&home)[0]["directory"].as_str().unwrap().to_owned();
    assert!(home.run(&["approve", "--forget", &directory]).status.success());
}

/// Makes a key and trusts it under a name.
pub(crate) fn key(home: &Home, name: &str) {
    let made = home.run(&["sign", "--new-key", name, "--no-password"]);
    assert!(made.status.success(), "{made:?}");
    assert_eq!(fs::metadata(home.path(name)).unwrap().permissions().mode() & 0o777, 0o600);
    let public = fs::read_to_string(home.path(&format!("{name}.pub"))).unwrap();
    let line = public.lines().nth(1).unwrap();
    let trusted = fs::read_to_string(trust(home)).unwrap_or_default();
    home.write("config/guild/guild.trust", format!("{trusted}untrusted comment: {name}\n{line}\n"));
}

fn trust(home: &Home) -> PathBuf {
    home.path("config/guild/guild.trust")
}

pub(crate) fn sign(home: &Home, member: &str, key: &str) {
    let file = format!("members/{member}/guest.wasm");
    let signed = home.run(&["sign", &file, "--key", key, "--comment", "as it was built"]);
    assert!(signed.status.success(), "{signed:?}");
}

#[test]
fn require_signature_refuses_all_but_good_signatures_by_trusted_keys() {
    let home = Home::new();
    configure(&home, "require_signature = true\n");
    home.quick("quick");
    key(&home, "ann");
    let why = run(&home, "quick").unwrap_err();
    assert!(why.contains("is not signed") && why.contains("guest.wasm.minisig"), "{why}");
    assert!(!approve(&home, "quick", &["--yes"]).0, "an approval does not make up for a signature");

    sign(&home, "quick", "ann");
    run(&home, "quick").unwrap();
    let shown = shown(&home, "quick");
    assert_eq!(
        (&shown["signature"]["state"], &shown["signature"]["name"], &shown["signature"]["comment"]),
        (&json!("good"), &json!("ann"), &json!("as it was built"))
    );
    assert_eq!(pins(&home)[0]["key"], shown["signature"]["key"]);

    home.write("config/guild/guild.trust", "");
    assert!(run(&home, "quick").unwrap_err().contains("a key that guild.trust does not have"));
    home.write("config/guild/guild.trust", "untrusted comment: ann\nRWQ\n");
    assert!(run(&home, "quick").unwrap_err().contains("guild.trust:2: "));
}

#[test]
fn a_signature_by_guild_is_of_manifest_and_posture_too() {
    let home = Home::new();
    configure(&home, "require_signature = true\n");
    home.quick("quick");
    home.write("members/quick/posture.md", "Be brief.");
    key(&home, "ann");
    sign(&home, "quick", "ann");
    run(&home, "quick").unwrap();
    assert_eq!(shown(&home, "quick")["signature"]["whole"], json!(true));
    let audited = || text(&home.run(&["audit", "quick", "--members", "members"]).stdout);
    assert!(audited().contains("of component, manifest and posture, by ann"), "{}", audited());

    home.write("members/quick/posture.md", "Be brief, and look into every file.");
    let why = run(&home, "quick").unwrap_err();
    assert!(why.contains("is bad: it belongs to another state of posture.md"), "{why}");
    assert!(audited().contains("signature-bad"), "{}", audited());
    configure(&home, "require_signature = true\n[member.quick]\nposture = \"free\"\n");
    run(&home, "quick").unwrap();

    let manifest = fs::read_to_string(home.path("members/quick/guild-member.json")).unwrap();
    home.write("members/quick/guild-member.json", format!("{manifest}\n"));
    assert!(run(&home, "quick").unwrap_err().contains("is bad: it belongs to another state of guild-member.json"));
    // One that another tool made is of the component alone.
    let parts = home.path("members/quick/guest.wasm");
    fs::rename(&parts, home.path("guest.wasm")).unwrap();
    let signed = home.run(&["sign", "guest.wasm", "--key", "ann"]);
    assert!(signed.status.success(), "{signed:?}");
    fs::rename(home.path("guest.wasm"), &parts).unwrap();
    fs::rename(home.path("guest.wasm.minisig"), home.path("members/quick/guest.wasm.minisig")).unwrap();
    assert!(approve(&home, "quick", &["--yes"]).0);
    run(&home, "quick").unwrap();
    assert_eq!(shown(&home, "quick")["signature"]["whole"], json!(false));
}

#[test]
fn what_was_signed_and_comes_unsigned_or_by_another_key_is_a_change() {
    let home = Home::new();
    home.quick("quick");
    run(&home, "quick").unwrap();
    key(&home, "ann");
    sign(&home, "quick", "ann");
    // That it is signed now is no change to refuse, and from now on it is expected.
    run(&home, "quick").unwrap();
    let signature = home.path("members/quick/guest.wasm.minisig");
    let by_ann = fs::read(&signature).unwrap();
    fs::remove_file(&signature).unwrap();
    let why = run(&home, "quick").unwrap_err();
    assert!(why.contains("- identity signer: ann") && why.contains("guild approve quick"), "{why}");
    key(&home, "bob");
    sign(&home, "quick", "bob");
    let why = run(&home, "quick").unwrap_err();
    assert!(why.contains("- identity signer: ann") && why.contains("+ identity signer: bob"), "{why}");
    fs::write(&signature, &by_ann).unwrap();
    run(&home, "quick").unwrap();

    // A copy without the signature is not what was pinned; on its first use it is a separate member.
    rebuild(&home, "quick");
    let why = run(&home, "quick").unwrap_err();
    assert!(why.contains("signature `guest.wasm.minisig`") && why.contains("is bad"), "{why}");
    assert!(!approve(&home, "quick", &["--yes"]).0);
}

#[test]
fn no_key_and_no_signature_is_written_where_it_should_not_be() {
    let home = Home::new();
    home.write("taken.pub", "mine");
    assert!(!home.run(&["sign", "--new-key", "taken", "--no-password"]).status.success());
    assert_eq!(fs::read_to_string(home.path("taken.pub")).unwrap(), "mine");
    assert!(!home.path("taken").exists());

    let file = home.write("a.wasm", "bytes");
    home.write("not-a-key", "untrusted comment: x\nRWQAAEIyAAAA\n");
    for key in ["not-a-key", "a.wasm", "none"] {
        let output = home.run(&["sign", "a.wasm", "--key", key]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(text(&output.stderr).contains(key), "{output:?}");
    }
    assert!(!Path::new(&format!("{}.minisig", file.display())).exists());
    let output = home.run(&["sign", "a.wasm", "--key", "k", "--comment", "two\nlines"]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn an_approval_says_when_it_comes_into_service_and_then_it_does() {
    let home = Home::new();
    let member = home.quick("quick");
    configure(&home, "require_approval = true\n");
    // Nobody serves it.
    let (approved, said) = approve(&home, "quick", &["--yes"]);
    assert!(approved && said.contains("no host serves it; the next host that serves it loads it"), "{said}");
    run(&home, "quick").unwrap();

    // A host of the directory of members takes it up at once.
    rebuild(&home, "quick");
    let host = home.serve_roster(&[]);
    let state = |wanted: &str| {
        wait_for(wanted, || host.members().iter().any(|member| member["state"] == wanted).then_some(()));
    };
    state("error");
    let (approved, said) = approve(&home, "quick", &["--yes"]);
    let expected = format!("process {} serves the directory of members at http://", host.pid());
    assert!(approved && said.contains(&expected) && said.contains("loads the member at once"), "{said}");
    state("ready");

    // One that has another guild.lock does not see it.
    let elsewhere = home.write("elsewhere/guild.toml", "");
    let elsewhere = ["--yes", "--config", elsewhere.to_str().unwrap()];
    let (approved, said) = approve(&home, "quick", &elsewhere);
    assert!(
        approved && said.contains("the process does not see this approval") && said.contains("config/guild/guild.lock"),
        "{said}"
    );
    host.stop();

    // One of the member alone has to be started again.
    rebuild(&home, "quick");
    let host = home.serve(&member, &[]);
    wait_for("error", || (host.members()[0]["state"] == "error").then_some(()));
    let (approved, said) = approve(&home, "quick", &["--yes"]);
    let expected = format!("process {} serves only this member", host.pid());
    assert!(approved && said.contains(&expected) && said.contains("start it again"), "{said}");
    assert_eq!(host.members()[0]["state"], "error");
    host.stop();
    let host = home.serve(&member, &[]);
    host.client().start("after");
}
