//! The host under a service manager such as systemd, whom these tests play: sockets, reports, and the unit files.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::{
        fd::OwnedFd,
        unix::{
            fs::PermissionsExt as _,
            net::{UnixDatagram, UnixListener, UnixStream},
        },
    },
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
};

use crate::support::host::{Home, Host, PATIENCE, free_port, wait_for};

/// Starts `guild serve` with these sockets: descriptor 3 is `socket`, and all others are copies of it.
fn start(home: &Home, socket: OwnedFd, count: u32, arguments: &[&str], port: u16) -> Host {
    let copies: String = (1..count).map(|n| format!("{}<&0 ", 3 + n)).collect();
    let script =
        format!("exec 3<&0 {copies}</dev/null; LISTEN_PID=$$ LISTEN_FDS={count} WATCHDOG_PID=$$ exec \"$0\" \"$@\"");
    let guild = home.guild();
    let mut command = Command::new("sh");
    command.current_dir(home.path(".")).arg("-c").arg(script).arg(guild.get_program()).arg("serve").args(arguments);
    for (name, value) in guild.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env("NOTIFY_SOCKET", home.path("notify")).env("WATCHDOG_USEC", "200000").stdin(Stdio::from(socket));
    Host::start(command, port, "")
}

/// The socket to which the host reports.
fn notify_socket(home: &Home) -> UnixDatagram {
    let socket = UnixDatagram::bind(home.path("notify")).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// The next report that has this state.
fn report(socket: &UnixDatagram, state: &str) -> String {
    loop {
        let mut buffer = [0; 4096];
        let count = socket.recv(&mut buffer).unwrap_or_else(|e| panic!("{state} was not reported: {e}"));
        let text = String::from_utf8(buffer[..count].to_vec()).unwrap();
        if text.lines().any(|line| line == state) {
            return text;
        }
    }
}

const HEALTH: &str = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

fn answer(mut stream: TcpStream) -> String {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut text = String::new();
    // A host that stops may close a connection before its answer.
    let _ = stream.read_to_string(&mut text);
    text
}

/// Asks on a new connection, which must not be refused. Whether there was an answer.
fn ask(port: u16) -> bool {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the connection was refused");
    stream.write_all(HEALTH.as_bytes()).is_ok() && answer(stream).starts_with("HTTP/1.1 200 ")
}

#[test]
fn a_host_answers_who_connected_before_it_started_and_reports_its_states() {
    let home = Home::new();
    home.quick("quick");
    let reports = notify_socket(&home);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut early = TcpStream::connect(("127.0.0.1", port)).unwrap();
    early.write_all(HEALTH.as_bytes()).unwrap();

    // The socket goes before the option.
    let host = start(&home, listener.into(), 1, &["--members", "members", "--port", "1"], port);
    let ready = report(&reports, "READY=1");
    assert!(ready.contains(&format!("STATUS=listening at http://127.0.0.1:{port}\n")), "{ready}");
    assert!(answer(early).starts_with("HTTP/1.1 200 "));
    for _ in 0..3 {
        report(&reports, "WATCHDOG=1");
    }
    host.signal("-HUP");
    assert!(report(&reports, "RELOADING=1").contains("\nMONOTONIC_USEC="));
    report(&reports, "READY=1");
    host.signal("-TERM");
    report(&reports, "STOPPING=1");
    let (status, output) = host.wait();
    assert!(status.success(), "{output}");
}

#[test]
fn a_restart_on_a_passed_socket_refuses_no_connection() {
    let home = Home::new();
    home.quick("quick");
    let _reports = notify_socket(&home);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let next = || {
        let socket = listener.try_clone().unwrap().into();
        start(&home, socket, 1, &["--members", "members"], port)
    };
    let (answered, ends) = (AtomicUsize::new(0), AtomicBool::new(false));
    let several_more = || {
        let before = answered.load(Ordering::Relaxed);
        wait_for("answers", || (answered.load(Ordering::Relaxed) > before + 20).then_some(()));
    };
    thread::scope(|scope| {
        let asking = scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                // One that was accepted just before the end is asked again, as HTTP clients do.
                assert!(ask(port) || ask(port), "there was no answer");
                answered.fetch_add(1, Ordering::Relaxed);
            }
        });
        let first = next();
        several_more();
        let (status, output) = first.stop();
        assert!(status.success(), "{output}");
        let between = scope.spawn(|| ask(port));
        let second = next();
        several_more();
        assert!(between.join().unwrap());
        ends.store(true, Ordering::Relaxed);
        asking.join().unwrap();
        drop(second);
    });
}

#[test]
fn a_hall_answers_on_the_socket_that_was_passed_and_leaves_its_file() {
    let home = Home::new();
    let _reports = notify_socket(&home);
    fs::create_dir(home.path("hall")).unwrap();
    fs::set_permissions(home.path("hall"), fs::Permissions::from_mode(0o700)).unwrap();
    let path = home.path("hall/guild-hall.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let port = free_port().to_string();
    let arguments = ["--hall", "hall", "--port", &port];
    for _ in 0..2 {
        let mut early = UnixStream::connect(&path).unwrap();
        let request = HEALTH.replace("/healthz", "/system/runtime/daemon/health");
        early.write_all(request.as_bytes()).unwrap();
        let socket = listener.try_clone().unwrap().into();
        let host = start(&home, socket, 1, &arguments, port.parse().unwrap());
        let mut text = String::new();
        early.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 "), "{text}{}", host.output());
        assert!(host.stop().0.success());
        assert!(path.exists());
    }
    // Clients would wait in a socket at another path for ever.
    let elsewhere = UnixListener::bind(home.path("other.sock")).unwrap();
    let (status, output) = start(&home, elsewhere.into(), 1, &["--hall", "hall", "--port", "0"], 0).wait();
    assert_eq!(status.code(), Some(1));
    assert!(output.contains("other.sock") && output.contains("hall/guild-hall.sock; name that in"), "{output}");
    let (status, output) = start(&home, listener.into(), 1, &["--members", "members", "--port", "0"], 0).wait();
    assert_eq!(status.code(), Some(1));
    assert!(output.contains("which only a host with --hall serves"), "{output}");
}

#[test]
fn sockets_that_a_host_does_not_serve_are_refused() {
    let home = Home::new();
    // What other machines can reach needs the checks of `bind`.
    let open = TcpListener::bind("0.0.0.0:0").unwrap();
    let (status, output) = start(&home, open.into(), 1, &["--members", "members"], 0).wait();
    assert_eq!(status.code(), Some(1));
    assert!(output.contains("`bind` in guild.toml is 127.0.0.1; name one address in both"), "{output}");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (status, output) = start(&home, listener.into(), 2, &["--members", "members"], 0).wait();
    assert_eq!(status.code(), Some(1));
    assert!(output.contains("the service manager passes two sockets of one kind"), "{output}");
}

#[test]
fn the_units_are_valid_and_confine_the_host() {
    let Ok(version) = Command::new("systemd-analyze").arg("--version").output() else {
        println!("skip  the units of systemd: 2 checks, since there is no systemd-analyze");
        return;
    };
    assert!(version.status.success());
    let home = Home::new();
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/systemd");
    for unit in ["guild.service", "guild.socket"] {
        let text = fs::read_to_string(deploy.join(unit)).unwrap();
        // The program has to exist.
        home.write(unit, text.replace("/usr/local/bin/guild", env!("CARGO_BIN_EXE_guild")));
    }
    let analyze = |arguments: &[&str]| {
        let run = Command::new("systemd-analyze").current_dir(home.path(".")).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&[run.stdout, run.stderr].concat()).into_owned();
        (run.status.success(), said)
    };
    let (is_valid, said) = analyze(&["verify", "./guild.service", "./guild.socket"]);
    assert!(is_valid && said.is_empty(), "{said}");
    // In tenths: below 3.0.
    let (is_confined, said) = analyze(&["security", "--offline=true", "--threshold=29", "./guild.service"]);
    assert!(is_confined, "{said}");
}
