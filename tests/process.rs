//! The process that Guild Hall starts: exit codes, readiness, signals, and who owns a member.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt as _,
    process::Stdio,
    time::{Duration, Instant},
};

use serde_json::json;

use crate::support::host::{Home, Host, free_port, wait_for};

fn serve(home: &Home, member: &std::path::Path, port: u16) -> std::process::Command {
    let mut command = home.guild();
    command.current_dir(member).args(["serve", "--member", ".", "--port", &port.to_string()]);
    command
}

#[test]
fn a_port_in_use_is_exit_code_2_at_once() {
    let home = Home::new();
    let member = home.quick("quick");
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port();
    let (status, output) = Host::start(serve(&home, &member, port), port, "/mcp").wait();
    assert_eq!(status.code(), Some(2), "{output}");
    assert!(output.contains(&port.to_string()) && output.lines().count() == 1, "{output}");
}

/// Asks for garbage, which is answered, and the connection closed by the host first.
fn ask_garbage(port: u16) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"garbage\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

#[test]
fn a_host_starts_again_on_its_port_at_once_also_after_a_crash_and_connections_that_it_closed_first() {
    let home = Home::new();
    let member = home.quick("quick");
    let port = free_port();
    let start = || {
        let mut host = Host::start(serve(&home, &member, port), port, "/mcp");
        assert!(host.is_ready(), "{}", host.output());
        host
    };
    let host = start();
    let _open = TcpStream::connect(("127.0.0.1", port)).unwrap();
    ask_garbage(port);
    host.kill();
    let host = start();
    ask_garbage(port);
    assert!(host.stop().0.success());
    let host = start();
    let (status, output) = Host::start(serve(&home, &home.quick("other"), port), port, "/mcp").wait();
    assert_eq!(status.code(), Some(2), "{output}");
    host.client().call("ping", json!({})).unwrap();
}

#[test]
fn of_hosts_that_start_on_one_port_at_the_same_moment_one_has_it_and_the_others_exit_with_2() {
    let home = Home::new();
    let port = free_port();
    // The port has connections that a host closed first.
    let mut first = Host::start(serve(&home, &home.quick("first"), port), port, "/mcp");
    assert!(first.is_ready());
    ask_garbage(port);
    assert!(first.stop().0.success());
    let members: Vec<_> = (0..4).map(|n| home.quick(&format!("m{n}"))).collect();
    let mut hosts: Vec<_> =
        members.iter().map(|member| Host::start(serve(&home, member, port), port, "/mcp")).collect();
    let ready: Vec<bool> = hosts.iter_mut().map(Host::is_ready).collect();
    assert_eq!(ready.iter().filter(|ready| **ready).count(), 1, "{ready:?}");
    for (host, _) in hosts.into_iter().zip(ready).filter(|(_, ready)| !ready) {
        let (status, output) = host.wait();
        assert_eq!(status.code(), Some(2), "{output}");
        assert!(output.contains(&format!("port {port} is already in use")), "{output}");
    }
}

#[test]
fn a_host_without_descriptors_for_more_connections_says_so_once_and_accepts_again_when_there_are_some() {
    let home = Home::new();
    let member = home.quick("quick");
    let port = free_port();
    let plain = serve(&home, &member, port);
    // The most that it can have, too.
    let mut limited = std::process::Command::new("sh");
    limited.current_dir(&member).args(["-c", "ulimit -n 96 && exec \"$0\" \"$@\""]).arg(plain.get_program());
    limited.args(plain.get_args());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    let mut host = Host::start(limited, port, "/mcp");
    assert!(host.is_ready(), "{}", host.output());
    let connect = || TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut first = connect();
    let mut asked = || {
        first.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        first.read(&mut [0; 4096]).unwrap()
    };
    assert_ne!(asked(), 0);
    let many: Vec<_> = (0..128).map(|_| connect()).collect();
    const TOLD: &str = "no connection can be accepted at the moment";
    host.prints(TOLD);
    // It tries again all the while, and those that it has are served.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        assert_ne!(asked(), 0);
    }
    assert_eq!(host.output().matches(TOLD).count(), 1, "{}", host.output());
    assert!(host.output().lines().count() < 12, "{}", host.output());
    drop(many);
    host.client().call("ping", json!({})).unwrap();
    assert!(host.stop().0.success());
}

#[test]
fn any_other_start_up_error_is_exit_code_1_and_one_clear_line() {
    let home = Home::new();
    let cases = [
        ("no manifest", None, "guild-member.json"),
        ("broken manifest", Some("{"), "guild-member.json"),
        (
            "no component",
            Some(
                r#"{"name":"a","displayName":"a","description":"","version":"1","transport":"http","mcp":{"command":"x","args":[]}}"#,
            ),
            "component",
        ),
    ];
    for (name, manifest, named) in cases {
        let member = home.path(&format!("members/{}", name.replace(' ', "-")));
        fs::create_dir_all(&member).unwrap();
        if let Some(manifest) = manifest {
            fs::write(member.join("guild-member.json"), manifest).unwrap();
        }
        let (status, output) = Host::start(serve(&home, &member, free_port()), 0, "/mcp").wait();
        assert_eq!(status.code(), Some(1), "{name}: {output}");
        assert!(output.contains(named) && output.lines().count() == 1, "{name}: {output}");
    }
}

#[test]
fn a_component_that_cannot_be_loaded_does_not_stop_the_host_and_refuses_dispatches() {
    let home = Home::new();
    let member = home.member("broken", "worker", b"not wasm");
    let host = home.serve(&member, &[]);
    let client = host.client();
    client.call("initialize", json!({})).unwrap();
    assert_eq!(client.call("tools/list", json!({})).unwrap(), json!({"tools": []}));
    let error = client.dispatch(json!({"description": "d", "task": "t"})).unwrap_err();
    assert!(error.message.contains("not a WebAssembly component"), "{}", error.message);
    assert_eq!(client.call("worker/list", json!({})).unwrap(), json!({"jobs": []}));
}

/// Guild Hall's own sequence: `initialize` until it is answered, accepting only refused connections as "not yet".
#[test]
fn who_can_connect_is_answered() {
    let home = Home::new();
    let member = home.researcher("researcher");
    let port = free_port();
    let host = Host::start(serve(&home, &member, port), port, "/mcp");
    let client = host.client();
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "guild-hall", "version": "1"}}});
    let answer = wait_for("initialize", || match client.post(&request.to_string()) {
        Ok((status, body)) => Some((status, body)),
        Err(e) if e.kind() == std::io::ErrorKind::ConnectionRefused => None,
        Err(e) => panic!("{e}"),
    });
    assert_eq!(answer.0, 200);
    assert!(answer.1.contains("\"protocolVersion\":\"2025-06-18\""), "{}", answer.1);
    assert_eq!(client.call("tools/list", json!({})).unwrap(), json!({"tools": []}));
}

#[test]
fn sigterm_ends_the_host_at_once_and_its_jobs_are_reconciled_at_the_next_start() {
    let home = Home::new();
    let member = home.endless("endless");
    let host = home.serve(&member, &[]);
    let id = host.client().start("d");
    // An open connection does not delay it.
    let _idle = TcpStream::connect(("127.0.0.1", host.port)).unwrap();
    let begin = Instant::now();
    let (status, output) = host.stop();
    assert!(status.success(), "{status} {output}");
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    let host = home.serve(&member, &[]);
    let status = host.client().status(&id).unwrap();
    assert_eq!(status["status"], "failed");
    assert!(status["error"].as_str().unwrap().contains("host"), "{status}");
}

#[test]
fn a_closed_stdout_and_stderr_never_end_the_host() {
    let home = Home::new();
    let member = home.quick("quick");
    let port = free_port();
    let mut child =
        serve(&home, &member, port).arg("-vv").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    wait_for("the host", || TcpStream::connect(("127.0.0.1", port)).ok());
    let client = crate::support::host::Client::new(port, "/mcp");
    for _ in 0..20 {
        let id = client.start("d");
        assert_eq!(client.ended(&id)["status"], "completed");
    }
    assert!(child.try_wait().unwrap().is_none());
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_second_host_leaves_a_member_to_an_owner_that_answers() {
    let home = Home::new();
    let member = home.endless("endless");
    let first = home.serve(&member, &[]);
    let id = first.client().start("d");
    let (status, output) = Host::start(serve(&home, &member, free_port()), 0, "/mcp").wait();
    assert_eq!(status.code(), Some(1));
    assert!(output.contains(&first.pid().to_string()) && output.contains(&first.client().url()), "{output}");
    assert_eq!(first.client().status(&id).unwrap()["status"], "running");
}

#[test]
fn a_second_host_takes_a_member_over_from_an_owner_that_hangs() {
    let home = Home::new();
    let member = home.endless("endless");
    let hung = home.serve(&member, &[]);
    let id = hung.client().start("d");
    hung.signal("-STOP");
    let second = home.serve(&member, &[]);
    assert_eq!(second.client().status(&id).unwrap()["status"], "failed", "reconciled");
    let (status, _) = hung.wait();
    assert!(!status.success(), "the hung one was ended");
}

/// Whoever can write a member's directory can write `.owner`.
#[test]
fn a_process_that_is_not_the_owner_is_not_ended_because_a_file_names_it() {
    let home = Home::new();
    let member = home.quick("quick");
    let hung = home.serve(&member, &[]);
    hung.signal("-STOP");
    let mut other = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let stat = fs::read_to_string(format!("/proc/{}/stat", other.id())).unwrap();
    let started: u64 = stat.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap().parse().unwrap();
    let owner = json!({"pid": other.id(), "started": started, "url": "http://127.0.0.1:1/mcp"});
    fs::write(member.join(".owner"), owner.to_string()).unwrap();
    let (status, output) = Host::start(serve(&home, &member, free_port()), 0, "/mcp").wait();
    assert_eq!(status.code(), Some(1));
    assert!(output.contains("stays locked"), "{output}");
    assert!(other.try_wait().unwrap().is_none(), "it was ended");
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn a_second_host_takes_a_member_over_from_an_owner_that_is_dead() {
    let home = Home::new();
    let member = home.endless("endless");
    let first = home.serve(&member, &[]);
    let id = first.client().start("d");
    first.kill();
    let second = home.serve(&member, &[]);
    assert_eq!(second.client().status(&id).unwrap()["status"], "failed", "reconciled");
}

#[test]
fn a_member_that_another_host_owns_is_in_state_error_and_the_others_are_served() {
    let home = Home::new();
    let owned = home.quick("owned");
    home.quick("free");
    let first = home.serve(&owned, &[]);
    let roster = home.serve_roster(&[]);
    let error = roster.at("owned").call("initialize", json!({})).unwrap_err();
    assert!(error.message.contains(&first.client().url()), "{}", error.message);
    let id = roster.at("free").start("d");
    assert_eq!(roster.at("free").ended(&id)["status"], "completed");
}

#[test]
fn an_unknown_setting_is_an_error_with_file_line_and_the_nearest_key() {
    let home = Home::new();
    let member = home.quick("quick");
    let config = home.write("guild.toml", "[limits]\nmemory_byte = 5\n");
    let mut command = serve(&home, &member, free_port());
    command.args(["--config", config.to_str().unwrap()]);
    let (status, output) = Host::start(command, 0, "/mcp").wait();
    assert_eq!(status.code(), Some(1));
    assert!(
        output.contains("guild.toml:2") && output.contains("memory_byte") && output.contains("memory_bytes"),
        "{output}"
    );
}

#[test]
fn a_policy_in_a_members_folder_or_the_working_directory_is_not_read() {
    let home = Home::new();
    let member = home.researcher("researcher");
    let docs = home.write("docs/a.md", "text");
    let policy = format!("[[roots]]\npath = {:?}\n", docs.parent().unwrap());
    fs::write(member.join("guild.toml"), policy).unwrap();
    let host = home.serve(&member, &[]);
    let error = host.client().dispatch(json!({"description": "d", "task": "t"})).unwrap_err();
    assert!(error.message.contains("--sources"), "{}", error.message);
}

#[test]
fn the_users_configuration_directory_holds_the_policy() {
    let home = Home::new();
    let member = home.researcher("researcher");
    let docs = home.write("docs/a.md", "# Olives\n\nOlives are cured in brine.\n");
    home.write(
        "config/guild/guild.toml",
        format!("[[roots]]\nname = \"kitchen\"\npath = {:?}\n", docs.parent().unwrap()),
    );
    let host = home.serve(&member, &[]);
    let id = host.client().start("How are olives cured?");
    host.client().ended(&id);
    let result = host.client().result(&id).unwrap();
    assert!(result["output"].as_str().unwrap().contains("kitchen/a.md"), "{result}");
}

#[test]
fn an_idle_connection_is_served_after_a_slow_one() {
    let home = Home::new();
    let host = home.serve(&home.quick("quick"), &[]);
    // A client that says nothing, and one that says half of something.
    let _silent = TcpStream::connect(("127.0.0.1", host.port)).unwrap();
    let mut half = TcpStream::connect(("127.0.0.1", host.port)).unwrap();
    std::io::Write::write_all(&mut half, b"POST /mcp HTTP/1.1\r\nHost: loc").unwrap();
    host.client().call("ping", json!({})).unwrap();
    half.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    assert!(half.read(&mut [0; 1]).is_err(), "it was neither answered nor closed yet");
}

/// The user's own guild.toml allows what a manifest says of its host; a guild.toml that the line names does not.
#[test]
fn an_operator_allows_a_member_s_own_mcp_line_where_the_line_cannot() {
    let home = Home::new();
    let member = home.quick("quick");
    fs::create_dir(home.path("docs")).unwrap();
    let allowing = home.write("allowing.toml", "members = \"members\"\n[member.quick]\nmcp = \"any\"\n");
    let options = ["--sources", "../../docs", "--config", allowing.to_str().unwrap()];
    home.edit_manifest("quick", |manifest| {
        let args = manifest["mcp"]["args"].as_array_mut().unwrap();
        args.extend(options.map(|option| json!(option)));
    });
    let refused = || Host::start(serve(&home, &member, free_port()), 0, "/mcp").wait();
    let (status, output) = refused();
    assert_eq!(status.code(), Some(1), "{output}");
    let user = home.path("config/guild/guild.toml");
    for expected in [
        "guild-member.json:1: `mcp.args` has \"--sources\"",
        r#""args": ["serve", "--member", ".", "--port", "${PORT}"]"#,
        &format!("`mcp = \"any\"` under [member.\"quick\"] in {}", user.display()),
    ] {
        assert!(output.contains(expected), "{expected}: {output}");
    }
    // By hand, in its directory and elsewhere, it is the same.
    let by_hand = home.run(&["serve", "--member", "members/quick", "--port", "0"]);
    assert_eq!(by_hand.status.code(), Some(1));
    let stdio = home.run(&["mcp", "--member", "members/quick"]);
    assert!(String::from_utf8_lossy(&stdio.stderr).contains("`mcp.args` has \"--sources\""), "{stdio:?}");

    home.write("config/guild/guild.toml", "members = \"../../members\"\n[member.another]\nmcp = \"any\"\n");
    assert_eq!(refused().0.code(), Some(1));
    home.write("config/guild/guild.toml", "members = \"../../members\"\n[member.\"qu*\"]\nmcp = \"any\"\n");
    let host = home.serve(&member, &options);
    let id = host.client().start("d");
    assert_eq!(host.client().ended(&id)["status"], "completed");
}

#[test]
fn a_person_gives_a_host_options_that_its_member_could_not() {
    let home = Home::new();
    let member = home.quick("quick");
    fs::create_dir(home.path("docs")).unwrap();
    let host = home.serve(&member, &["--sources", "../../docs"]);
    let id = host.client().start("d");
    assert_eq!(host.client().ended(&id)["status"], "completed");
    host.stop();
    // Where a host of many members is started, no manifest of theirs started it.
    home.edit_manifest("quick", |manifest| manifest["mcp"]["env"] = json!({"A": "b"}));
    assert!(home.run(&["approve", member.to_str().unwrap(), "--yes"]).status.success());
    let roster = home.serve_roster(&[]);
    let id = roster.at("quick").start("d");
    assert_eq!(roster.at("quick").ended(&id)["status"], "completed");
}

#[test]
fn a_lock_that_another_user_left_behind_is_reported_with_what_to_do() {
    if !rustix::process::geteuid().is_root() {
        // Nobody else can give a file away.
        return;
    }
    let home = Home::new();
    let member = home.quick("quick");
    let lock = home.write("members/quick/.lock", "");
    fs::set_permissions(&lock, fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::chown(&lock, Some(65534), None).unwrap();
    let run = || {
        let output = home.guild_under_permissions().arg("run").arg(&member).arg("a task").output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    fs::create_dir(member.join("jobs")).unwrap();
    let prune = || {
        let output = home.guild_under_permissions().arg("prune").arg(&member).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for (code, error) in [run(), prune()] {
        assert!(code == Some(1) && error.contains("the user with the id 65534"), "{error}");
        assert!(error.contains("remove the file .lock") && !error.contains(".owner does not name"), "{error}");
    }
    fs::remove_file(lock).unwrap();
    assert_eq!(run().0, Some(0));
}
