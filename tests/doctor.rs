//! `guild doctor` calls nothing usable that a job would then be refused for, and asks hosts that run.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use serde_json::{Value, json};

use crate::support::{
    guest,
    host::{Home, wait_for},
};

/// What `guild doctor --json` says: its exit code, and its report.
fn doctor(home: &Home, more: &[&str]) -> (Option<i32>, Value) {
    let mut command = home.guild_under_permissions();
    command.current_dir(home.path(".")).args(["doctor", "--members", "members", "--json"]).args(more);
    let output = command.output().unwrap();
    let report = serde_json::from_slice(&output.stdout);
    (output.status.code(), report.unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr))))
}

/// The checks of a kind: state, whether it is needed, and what is said.
fn checks(report: &Value, kind: &str) -> Vec<(String, bool, String)> {
    let text = |check: &Value, key: &str| check[key].as_str().unwrap().to_owned();
    let all = report["checks"].as_array().unwrap().iter().filter(|check| check["kind"] == kind);
    all.map(|check| (text(check, "state"), check["needed"].as_bool().unwrap(), text(check, "detail"))).collect()
}

fn check(report: &Value, kind: &str, name: &str) -> (String, bool, String) {
    let named = |check: &&Value| check["kind"] == kind && check["name"] == name;
    let found = report["checks"].as_array().unwrap().iter().find(named).unwrap_or_else(|| panic!("{report:#}")).clone();
    checks(&json!({"checks": [found]}), kind).remove(0)
}

/// A certificate for these years, and a key: its own, or another's.
fn certificate(home: &Home, years: (i32, i32), own_key: bool) {
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    (params.not_before, params.not_after) = (date_time_ymd(years.0, 1, 1), date_time_ymd(years.1, 1, 1));
    let key = KeyPair::generate().unwrap();
    home.write("cert.pem", params.self_signed(&key).unwrap().pem());
    home.write("key.pem", if own_key { key } else { KeyPair::generate().unwrap() }.serialize_pem());
}

#[test]
fn a_certificate_that_clients_refuse_is_not_usable_and_said_when_a_host_starts() {
    let home = Home::new();
    home.quick("quick");
    home.write("docs/a.md", "text\n");
    let config =
        home.write("guild.toml", "[[roots]]\npath = \"docs\"\n[tls]\ncertificate = \"cert.pem\"\nkey = \"key.pem\"\n");
    let address_check = || {
        let (code, report) = doctor(&home, &["--config", config.to_str().unwrap()]);
        (code, check(&report, "auth", "127.0.0.1"))
    };
    for (years, own_key, expected) in [
        ((2001, 2002), true, "certificate 1 of the file expired at 2002-01-01T00:00:00Z"),
        ((2900, 2901), true, "certificate 1 of the file is not valid before 2900-01-01T00:00:00Z"),
        ((2001, 2901), false, "does not match"),
    ] {
        certificate(&home, years, own_key);
        let (code, (state, needed, why)) = address_check();
        assert_eq!((code, state.as_str(), needed), (Some(1), "unusable", true), "{why}");
        assert!(why.contains(expected) && why.contains(".pem"), "{why}");
    }
    certificate(&home, (2001, 2901), true);
    assert_eq!(address_check().0, Some(0));

    certificate(&home, (2001, 2002), true);
    let port = crate::support::host::free_port().to_string();
    let mut command = home.guild();
    command
        .args(["serve", "--member"])
        .arg(home.path("members/quick"))
        .args(["--port", &port, "--config"])
        .arg(&config);
    let host = crate::support::host::Host::start(command, 0, "");
    host.prints("clients refuse to connect");
    host.prints("expired at 2002-01-01");
}

#[test]
fn tokens_that_have_expired_let_nobody_in() {
    let home = Home::new();
    home.quick("quick");
    home.write("docs/a.md", "text\n");
    home.write("config/guild/guild.toml", "require_token = true\n[[roots]]\npath = \"../../docs\"\n");
    let address_check = || check(&doctor(&home, &[]).1, "auth", "127.0.0.1");
    assert!(matches!(address_check(), (state, true, why) if state == "unusable" && why.contains("guild token add")));
    assert!(home.run(&["token", "add", "ci"]).status.success());
    assert_eq!(address_check().0, "usable");
    let file = home.path("config/guild/guild.tokens");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("created = ", "expires = \"2001-01-01T00:00:00Z\"\ncreated = ")).unwrap();
    assert!(
        matches!(address_check(), (state, true, why) if state == "unusable" && why.contains("all have expired")),
        "{:?}",
        address_check()
    );
    fs::write(&file, "nothing of the kind").unwrap();
    assert!(matches!(address_check(), (state, true, why) if state == "unusable" && why.contains("guild.tokens")));
}

/// A program that says it is this version of the CLI. Another process writes it, so that no other test's child holds it
/// open while it is executed.
fn cli(home: &Home, version: &str) {
    let write = r#"rm -f "$1"; printf '#!/bin/sh\nif [ "$1" = --version ]; then echo "%s (Claude Code)"; fi\n' "$2" > "$1" && chmod 755 "$1""#;
    let mut shell = Command::new("/bin/sh");
    assert!(shell.args(["-c", write, "sh"]).arg(home.path("claude")).arg(version).status().unwrap().success());
}

#[test]
fn a_cli_without_the_options_that_it_is_started_with_is_refused_at_the_dispatch_as_doctor_says() {
    let home = Home::new();
    let member = home.researcher("researcher");
    home.write("docs/a.md", "text\n");
    let config =
        home.write("guild.toml", "agent = \"claude\"\n[claude]\ncommand = \"./claude\"\n[[roots]]\npath = \"docs\"\n");
    let options = ["--config", config.to_str().unwrap()];
    cli(&home, "2.1.197");
    let host = home.serve(&member, &["--config", config.to_str().unwrap()]);
    let dispatch = || host.client().dispatch(json!({"description": "d", "task": "t"}));
    let refused = dispatch().unwrap_err();
    assert_eq!(refused.code, -32602);
    for part in ["2.1.197", "2.1.248 or later", "--restricted", "npm install -g @anthropic-ai/claude-code@latest"] {
        assert!(refused.message.contains(part), "{}", refused.message);
    }
    let listed = host.client().call("worker/list", json!({})).unwrap();
    assert_eq!(listed["jobs"], json!([]));
    let (code, report) = doctor(&home, &options);
    let (state, needed, why) = check(&report, "runtime", "claude");
    assert_eq!((code, state.as_str(), needed, &why), (Some(1), "unusable", true, &refused.message));
    let (state, _, why) = check(&report, "member", "researcher");
    assert!(state == "unusable" && why.contains(&refused.message), "{why}");

    cli(&home, "no version");
    assert!(dispatch().unwrap_err().message.contains("which is not a version"));
    // One that is updated is taken at once, without a restart.
    cli(&home, "2.1.248");
    dispatch().unwrap();
    assert!(check(&doctor(&home, &options).1, "runtime", "claude").2.contains("2.1.248"));
}

#[test]
fn read_roots_are_usable_where_there_is_something_to_read() {
    let home = Home::new();
    home.researcher("researcher");
    home.write("docs/a.md", "# A\n");
    home.write("docs/b.txt", "b\n");
    home.write("docs/.hidden.md", "hidden\n");
    home.write("docs/picture.png", b"\x89PNG\0\0");
    home.write("table/a.csv", "a,b\n");
    fs::create_dir(home.path("empty")).unwrap();
    let roots = |roots: &[&str]| {
        let options: Vec<&str> = roots.iter().flat_map(|root| ["--sources", *root]).collect();
        let (code, report) = doctor(&home, &options);
        (code, check(&report, "sources", "read roots"))
    };
    let with_picture = "docs (2 documents; not read: binary (1): `docs/picture.png`)";
    let (code, (state, _, said)) = roots(&["docs"]);
    assert_eq!((code, state.as_str(), said.as_str()), (Some(0), "usable", with_picture));
    let (code, (state, needed, said)) = roots(&["docs", "empty", "table"]);
    assert_eq!((code, state.as_str(), needed), (Some(1), "unusable", true), "{said}");
    let expected = "empty has no file that sessions can see; table has no document; not read: tables, styles, lock files and other \
                kinds without text to quote (1): `table/a.csv`; docs (2 documents; not read: binary (1): `docs/picture.png`)";
    assert_eq!(said, expected);
    let (code, (state, _, said)) = roots(&["docs", "nowhere"]);
    assert!(code == Some(1) && state == "unusable" && said.contains("nowhere"), "{said}");
    fs::set_permissions(home.path("table"), fs::Permissions::from_mode(0o000)).unwrap();
    let (code, (state, _, said)) = roots(&["docs", "table"]);
    assert!(code == Some(1) && state == "unusable" && said.contains("table"), "{said}");
    fs::set_permissions(home.path("table"), fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_member_whose_dispatches_would_be_refused_is_not_usable() {
    let home = Home::new();
    let member = home.researcher("researcher");
    home.write("docs/a.md", "# A\n");
    let config = home.write("guild.toml", "[[roots]]\npath = \"docs\"\n[member.researcher]\ndeny = [\"files\"]\n");
    let options = ["--config", config.to_str().unwrap()];
    let (code, report) = doctor(&home, &options);
    let (state, needed, why) = check(&report, "member", "researcher");
    assert_eq!((code, state.as_str(), needed), (Some(1), "unusable", true), "{why}");
    let members = home.path("members");
    let host = home.serve(&member, &["--config", config.to_str().unwrap(), "--members", members.to_str().unwrap()]);
    let refused = host.client().dispatch(json!({"description": "d", "task": "t"})).unwrap_err();
    assert_eq!(why, format!("dispatches are refused: {}", refused.message));
}

#[test]
fn a_host_that_runs_is_asked_whom_it_serves_and_how_and_whether_it_still_would() {
    let home = Home::new();
    home.researcher("researcher");
    home.quick("quick");
    home.write("docs/a.md", "# A\n");
    fs::create_dir_all(home.path("more")).unwrap();
    let config = home.write("guild.toml", "[[roots]]\npath = \"docs\"\n");
    let options = ["--config", config.to_str().unwrap()];
    assert_eq!(checks(&doctor(&home, &options).1, "host"), []);

    let host = home.serve_roster(&["--config", config.to_str().unwrap()]);
    wait_for("all to be in service", || host.members().iter().all(|member| member["state"] == "ready").then_some(()));
    let (code, report) = doctor(&home, &options);
    let name = format!("process {}", host.pid());
    let (state, needed, said) = check(&report, "host", &name);
    assert_eq!((code, state.as_str(), needed, checks(&report, "host").len()), (Some(0), "usable", true, 1), "{said}");
    let docs = home.path("docs").canonicalize().unwrap();
    for part in [
        format!("at http://127.0.0.1:{}/", host.port),
        "serves quick (ready), researcher (ready)".to_owned(),
        format!("reads docs ({})", docs.display()),
        "sessions on extractive".to_owned(),
        format!("guild.toml: {}", Path::display(&config.canonicalize().unwrap())),
    ] {
        assert!(said.contains(&part), "{part:?} is not in {said}");
    }

    // What would be otherwise now is said, and nothing is missing for it.
    home.write("guild.toml", "[[roots]]\npath = \"docs\"\n[limits]\nrunning_jobs = 7\n");
    let (code, report) = doctor(&home, &[&options[..], &["--agent", "extractive"]].concat());
    let differs = checks(&report, "host").into_iter().find(|(state, ..)| state == "differs").unwrap();
    assert!(code == Some(0) && !differs.1 && differs.2.contains("guild.toml before that was changed"), "{differs:?}");

    // A member that is not in service there is not usable, however sound its files are by now.
    let component = home.path("members/quick/guest.wasm");
    let built = fs::read(&component).unwrap();
    host.stop();
    fs::write(&component, "nothing").unwrap();
    fs::set_permissions(&component, fs::Permissions::from_mode(0o644)).unwrap();
    let host = home.serve(&home.path("members/quick"), &["--config", config.to_str().unwrap()]);
    wait_for("the failure", || (host.members()[0]["state"] == "error").then_some(()));
    fs::write(&component, built).unwrap();
    let (code, report) = doctor(&home, &options);
    assert_eq!(check(&report, "member", "quick").0, "usable");
    let (state, needed, said) = check(&report, "host", &format!("process {}", host.pid()));
    assert!(code == Some(1) && state == "unusable" && needed && said.contains("quick (error: "), "{said}");

    // One that is named is asked, too.
    let url = host.client().url();
    let output = home.run(&["doctor", "--json", "--url", &url, "--config", config.to_str().unwrap()]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(check(&report, "host", &url).2.contains("quick (error: "), "{report:#}");
}

#[test]
fn the_token_is_sent_to_no_other_machine_because_an_owner_names_it() {
    let mut home = Home::new();
    home.set("GUILD_TOKEN", "guild_1234");
    let member = home.quick("quick");
    let host = home.serve(&member, &[]);
    let ask = |named: &[&str]| {
        let output = home.run(&[&["doctor", "--members", "members"], named].concat());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(!ask(&[]).contains("token"), "{}", ask(&[]));
    // Another address, of which nobody says that it is this machine's. Nobody listens there.
    let file = member.join(".owner");
    let mut owner: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    owner["url"] = json!("https://0.0.0.0:1/mcp");
    fs::write(&file, owner.to_string()).unwrap();
    assert!(ask(&[]).contains("the token is not sent to https://0.0.0.0:1/mcp"), "{}", ask(&[]));
    assert!(!ask(&["--url", "https://0.0.0.0:1"]).contains("not sent"));
    host.stop();
}

#[test]
fn a_directory_with_toolboxes_only_needs_no_runtime() {
    let home = Home::new();
    home.member("tools", "toolbox-plugin", &guest::toolbox("(call $ok (local.get 2) (local.get 3))"));
    home.edit_manifest("tools", |manifest| manifest["capabilities"] = json!(["tools"]));
    let (code, report) = doctor(&home, &[]);
    assert_eq!((code, &report["usable"]), (Some(0), &json!(true)), "{report:#}");
    assert!(!check(&report, "runtime", "extractive").1, "{report:#}");
    // One that is asked for is needed, and so is that of a worker whose sessions the host runs.
    assert_eq!(doctor(&home, &["--agent", "extractive"]).0, Some(1));
    home.researcher("researcher");
    assert_eq!(doctor(&home, &[]).0, Some(1));
}

#[test]
fn a_root_is_counted_as_a_report_counts_it() {
    let home = Home::new();
    home.researcher("researcher");
    home.write("docs/lights.md", "# Lights\n\nThe lighthouse of Varg is 31 metres high.\n");
    home.write("docs/table.csv", "a,b\n1,2\n");
    home.write("docs/picture.png", b"\x89PNG\0\0");
    home.write("docs/binary.md", b"\0\0\0");
    let large = fs::File::create(home.path("docs/large.md")).unwrap();
    large.set_len((16 << 20) + 1).unwrap();
    std::os::unix::fs::symlink("lights.md", home.path("docs/link.md")).unwrap();
    let (code, report) = doctor(&home, &["--sources", "docs"]);
    let (state, _, said) = check(&report, "sources", "read roots");
    assert_eq!((code, state.as_str()), (Some(0), "usable"), "{said}");
    let counted = said.strip_prefix("docs (1 document; not read: ").and_then(|said| said.strip_suffix(')'));
    let counted: Vec<&str> = counted.unwrap_or_else(|| panic!("{said}")).split("; ").collect();
    let run = home.run(&["run", "members/researcher", "How high is the lighthouse of Varg?", "--sources", "docs"]);
    let report = String::from_utf8(run.stdout).unwrap();
    assert!(report.contains("Searched: 1 of 6 files."), "{report}");
    let lines: Vec<&str> =
        report.lines().skip_while(|line| *line != "## Not read").filter_map(|line| line.strip_prefix("- ")).collect();
    assert_eq!(counted, lines[..4], "{report}");
}

#[test]
fn git_is_named_with_its_version_and_needed_where_there_is_a_project() {
    let home = Home::new();
    home.quick("quick");
    home.write("docs/a.md", "text\n");
    let (_, report) = doctor(&home, &["--sources", "docs"]);
    let (state, needed, detail) = check(&report, "git", "git");
    assert!(state == "usable" && !needed && detail.contains("is git 2."), "{detail}");

    let config = home.write("guild.toml", "[[project]]\npath = \"book\"\n");
    let bin = home.path("bin");
    let old = home.write("bin/git", "#!/bin/sh\necho git version 2.37.9\n");
    fs::set_permissions(&old, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = home.guild();
    command.current_dir(home.path(".")).env("PATH", &bin);
    let output = command.args(["doctor", "--members", "members", "--json", "--config"]).arg(config).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (state, needed, detail) = check(&report, "git", "git");
    assert!(state == "unusable" && needed, "{detail}");
    assert!(detail.contains("is git 2.37.9; install git 2.38.0 or newer"), "{detail}");
    assert_eq!(output.status.code(), Some(1));
}
