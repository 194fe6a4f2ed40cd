//! SIGHUP: a host reads `guild.toml` and what it names again, all of it or nothing.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use guild_contract::{Limits, limits::Setting};
use rcgen::{CertificateParams, KeyPair};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use serde_json::{Value, json};

use crate::support::{
    guest,
    host::{Client, Home, Host, free_port, wait_for},
};

/// A home whose members are all the probe, with one document.
fn probes(names: &[&str]) -> Home {
    let home = Home::new();
    for name in names {
        home.member(name, "autonomous-worker", &guest::built("probe"));
        home.edit_manifest(name, |manifest| manifest["component"]["grants"] = guest::everything());
    }
    home.write("docs/owls.md", "Owls turn their heads.\n");
    home.write("more/bats.md", "Bats hang upside down.\n");
    home
}

fn serve(home: &Home, toml: &str) -> Host {
    home.write("guild.toml", toml);
    home.serve_roster(&["--config", home.path("guild.toml").to_str().unwrap()])
}

/// Writes another `guild.toml` and has the host read it; what it logs of that.
fn reload(home: &Home, host: &Host, toml: &str) -> String {
    home.write("guild.toml", toml);
    hang_up(host)
}

/// Has the host read it again; what it logs of that.
fn hang_up(host: &Host) -> String {
    let before = host.output().len();
    host.signal("-HUP");
    let was_read = |output: &String| output.lines().any(|line| line.contains("guild.toml was read again"));
    wait_for("the file to be read again", || Some(host.output().split_off(before)).filter(was_read))
}

/// Carries a task out; the outcome of each of its lines.
fn report(client: &Client, task: &str) -> BTreeMap<String, String> {
    let id = client.dispatch(json!({"description": "probing", "task": task})).unwrap();
    outcomes(client, &id)
}

fn outcomes(client: &Client, id: &str) -> BTreeMap<String, String> {
    let status = client.ended(id);
    assert_eq!(status["status"], "completed", "{status}");
    let output = client.result(id).unwrap()["output"].as_str().unwrap().to_owned();
    let lines = output.lines().filter_map(|line| line.split_once(": "));
    lines.map(|(step, outcome)| (step.to_owned(), outcome.to_owned())).collect()
}

#[track_caller]
fn is_refused(outcomes: &BTreeMap<String, String>, step: &str, why: &str) {
    let outcome = &outcomes[step];
    assert!(outcome.starts_with("error ") && outcome.contains(why), "{step}: {outcome}");
}

#[track_caller]
fn is_done(outcomes: &BTreeMap<String, String>, step: &str) {
    assert!(outcomes[step].starts_with("ok"), "{step}: {}", outcomes[step]);
}

const ROOT: &str = "[[roots]]\npath = \"docs\"\n";

#[test]
fn a_policy_that_is_narrowed_holds_from_the_next_dispatch_and_a_running_job_keeps_what_it_has() {
    let home = probes(&["ann", "bob"]);
    let host = serve(&home, ROOT);
    let (ann, bob) = (host.at("ann"), host.at("bob"));
    let id =
        ann.dispatch(json!({"description": "d", "task": "summary waiting\nawait /memory/go.md\nfile docs/owls.md"}));
    let id = id.unwrap();
    wait_for("the job to wait", || (ann.status(&id).unwrap()["summary"] == "waiting").then_some(()));

    let log = reload(&home, &host, &format!("{ROOT}[member.ann]\ndeny = [\"files\"]\n"));
    assert!(log.contains("guild.toml: member.ann.deny: added \"files\""), "{log}");
    let task = "file docs/owls.md\nrecall k";
    let now = report(&ann, task);
    is_refused(&now, "file docs/owls.md", "take \"files\" out of its `deny`");
    is_done(&now, "recall k");
    is_done(&report(&bob, task), "file docs/owls.md");

    home.write("members/ann/memory/go.md", "go");
    is_done(&outcomes(&ann, &id), "file docs/owls.md");

    let log = reload(&home, &host, ROOT);
    assert!(log.contains("guild.toml: member.ann.deny: removed \"files\""), "{log}");
    is_done(&report(&ann, task), "file docs/owls.md");
}

#[test]
fn a_read_root_that_is_added_is_read_and_one_that_is_removed_is_not() {
    let home = probes(&["ann"]);
    let host = serve(&home, ROOT);
    let ann = host.at("ann");
    let task = "file docs/owls.md\nfile more/bats.md";
    is_refused(&report(&ann, task), "file more/bats.md", "paths begin with docs/");
    let log = reload(&home, &host, &format!("{ROOT}[[roots]]\npath = \"more\"\n"));
    assert!(log.contains("guild.toml: roots: added { path = \"more\" }"), "{log}");
    let both = report(&ann, task);
    is_done(&both, "file docs/owls.md");
    is_done(&both, "file more/bats.md");
    reload(&home, &host, "[[roots]]\npath = \"more\"\n");
    is_refused(&report(&ann, task), "file docs/owls.md", "paths begin with more/");
}

#[test]
fn a_bad_file_leaves_the_old_one_in_service_and_the_error_names_file_and_line() {
    let home = probes(&["ann"]);
    let good = format!("{ROOT}[member.ann]\ndeny = [\"memory\"]\n");
    let host = serve(&home, &good);
    let file = home.path("guild.toml");
    let stays = |log: &str, why: &str| {
        assert!(
            log.contains("ERROR") && log.contains("what it said before stays in service") && log.contains(why),
            "{log}"
        );
        let now = report(&host.at("ann"), "file docs/owls.md\nrecall k");
        is_done(&now, "file docs/owls.md");
        is_refused(&now, "recall k", "take \"memory\" out of its `deny`");
    };
    let at = |line: u32, why: &str| format!("{}:{line}: {why}", file.display());
    // Twice, and the first part would be fine by itself.
    for _ in 0..2 {
        stays(
            &reload(&home, &host, "strict_imports = false\n[member.ann]\nallowed = 3\n"),
            &at(3, "unknown key `allowed`"),
        );
    }
    stays(&reload(&home, &host, "\u{0}\u{1}garbage = ["), &at(1, ""));
    // Files that it names are looked at before anything changes.
    let missing = "[[roots]]\npath = \"more\"\n[[roots]]\npath = \"nowhere\"\n";
    stays(&reload(&home, &host, missing), "nowhere");
    stays(&reload(&home, &host, "[api]\nkey_file = \"no-key\"\n"), "no-key");
    stays(&reload(&home, &host, "[tls]\ncertificate = \"no-cert.pem\"\nkey = \"no-key.pem\"\n"), "no-cert.pem");
    fs::remove_file(&file).unwrap();
    stays(&hang_up(&host), "does not exist");
    let log = reload(&home, &host, &good);
    assert!(log.contains("nothing has changed"), "{log}");
    let (status, _) = host.stop();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn tokens_that_cannot_be_read_leave_the_old_policy_in_service() {
    let home = probes(&["ann"]);
    let host = serve(&home, ROOT);
    home.write("guild.tokens", "[[token]]\nnonsense = 1\n");
    let log = reload(&home, &host, "");
    assert!(log.contains("guild.tokens") && log.contains("stays in service"), "{log}");
    is_done(&report(&host.at("ann"), "file docs/owls.md"), "file docs/owls.md");
}

#[test]
fn a_token_can_become_necessary_and_its_bounds_change_while_connections_are_open() {
    let home = Home::new();
    home.quick("ann");
    let mut host = serve(&home, "");
    let status = |host: &Host| host.at("ann").post(r#"{"jsonrpc":"2.0","id":1,"method":"worker/list"}"#).unwrap().0;
    assert_eq!(status(&host), 200);
    let config = home.path("guild.toml");
    let token = home.run(&["token", "add", "ci", "--config", config.to_str().unwrap()]);
    let token = String::from_utf8(token.stdout).unwrap().trim().to_owned();
    let log = reload(&home, &host, "require_token = true\n");
    assert!(log.contains("guild.toml: require_token: not set -> true"), "{log}");
    assert!(!log.contains(&token), "{log}");
    assert_eq!(status(&host), 401);
    host.token = Some(token);
    assert_eq!(status(&host), 200);
    reload(&home, &host, "require_token = true\n[limits]\ntoken_requests_per_second = 1\n");
    wait_for("a request to be too many", || (status(&host) == 429).then_some(()));
    home.run(&["token", "revoke", "ci", "--config", config.to_str().unwrap()]);
    assert_eq!(status(&host), 401);
    reload(&home, &host, "");
    host.token = None;
    assert_eq!(status(&host), 200);
}

#[test]
fn a_limit_changes_at_once_or_is_named_as_one_of_the_next_start() {
    let home = Home::new();
    home.endless("ann");
    let host = serve(&home, "[limits]\nrunning_jobs = 2\ndescription_bytes = 10\n");
    let ann = host.at("ann");
    let dispatch =
        |bytes: usize| ann.dispatch(json!({"description": "x".repeat(bytes), "task": "t"})).map_err(|e| e.message);
    assert!(dispatch(11).unwrap_err().contains("the fixed limit description_bytes = 10"));
    let first = dispatch(10).unwrap();
    let toml = "port = 1\n[limits]\nrunning_jobs = 1\ndescription_bytes = 20\nbody_bytes = 100000\n[extractive]\nsessions = 3\n";
    let log = reload(&home, &host, toml);
    for line in [
        "guild.toml: limits.description_bytes: 10 -> 20",
        "guild.toml: limits.body_bytes: not set -> 100000",
        "guild.toml: limits.running_jobs: 2 -> 1; it takes effect at the next start of the host",
        "guild.toml: extractive.sessions: not set -> 3; it takes effect at the next start of the host",
        "guild.toml: port: not set -> 1; it takes effect at the next start of the host",
    ] {
        assert!(log.lines().any(|logged| logged.ends_with(line)), "{line} in {log}");
    }
    // The first still runs, and there is still room for a second one.
    assert_eq!(ann.status(&first).unwrap()["status"], "running");
    let second = dispatch(20).unwrap();
    assert!(dispatch(20).unwrap_err().contains("limits.running_jobs = 2"));
    assert!(dispatch(21).unwrap_err().contains("the fixed limit description_bytes = 20"));
    let large = host.at("ann").post(&" ".repeat(100_001)).unwrap();
    assert_eq!(large.0, 413, "{}", large.1);
    for id in [first, second] {
        ann.cancel(&id).unwrap();
    }
}

#[test]
fn a_limit_of_one_member_that_waits_for_the_next_start_waits_too_and_is_named_each_time() {
    let home = probes(&["ann"]);
    let bytes = |own: u64, table: &str| format!("{ROOT}[limits]\nmemory_bytes = {own}\n{table}");
    let host = serve(&home, &bytes(64 << 20, ""));
    let ann = host.at("ann");
    // Less than the component needs to begin at all.
    let toml = bytes(32 << 20, "[member.ann.limits]\nmemory_bytes = 65536\ntask_bytes = 10\n");
    let pending = [
        "guild.toml: limits.memory_bytes: 67108864 -> 33554432; it takes effect at the next start of the host",
        "guild.toml: member.ann.limits.memory_bytes: not set -> 65536; it takes effect at the next start of the host",
    ];
    let names = |log: &str| {
        pending.iter().for_each(|line| assert!(log.lines().any(|logged| logged.ends_with(line)), "{line} in {log}"));
    };
    let log = reload(&home, &host, &toml);
    names(&log);
    assert!(log.contains("3 changes; 2 keys wait for the next start of the host"), "{log}");
    let log = hang_up(&host);
    names(&log);
    assert!(log.contains("nothing has changed; 2 keys wait for the next start of the host"), "{log}");
    let dispatch = |task: &str| ann.dispatch(json!({"description": "d", "task": task}));
    assert!(dispatch("recall kkkk").unwrap_err().message.contains("limits.task_bytes = 10"));
    is_done(&report(&ann, "recall k"), "recall k");
    // What is taken back does not wait any more.
    let log = reload(&home, &host, &bytes(64 << 20, ""));
    assert!(!log.contains("next start"), "{log}");
    is_done(&report(&ann, "recall kkkk"), "recall kkkk");
    host.stop();
    // At the next start it holds.
    let host = serve(&home, &toml);
    let refused = host.at("ann").dispatch(json!({"description": "d", "task": "recall k"})).unwrap_err();
    assert!(refused.message.contains("memory_bytes"), "{refused:?}");
}

#[test]
fn a_limit_that_one_member_was_started_with_stays_when_its_table_goes() {
    let home = probes(&["ann"]);
    let host = serve(&home, &format!("{ROOT}[member.ann.limits]\nmemory_bytes = 65536\n"));
    let dispatch = || host.at("ann").dispatch(json!({"description": "d", "task": "recall k"}));
    assert!(dispatch().unwrap_err().message.contains("memory_bytes"));
    for _ in 0..2 {
        let log = reload(&home, &host, ROOT);
        assert!(log.contains("member.ann.limits.memory_bytes: 65536 -> not set; it takes effect at the next"), "{log}");
        assert!(dispatch().unwrap_err().message.contains("memory_bytes"));
    }
}

#[test]
fn a_running_component_gets_the_new_policy_though_its_replaced_file_is_not_approved() {
    let home = probes(&["ann"]);
    let host = serve(&home, ROOT);
    let ann = host.at("ann");
    let task = "file docs/owls.md\nrecall k";
    is_done(&report(&ann, task), "recall k");
    let file = home.path("members/ann/guest.wasm");
    let approved = fs::read(&file).unwrap();
    let shown = |key: &str| host.members().into_iter().find(|member| member["member"] == "ann").unwrap()[key].clone();
    let sha256 = shown("sha256");
    // The same with one more custom section.
    fs::write(&file, [&approved[..], &[0, 2, 1, b'v']].concat()).unwrap();
    host.prints("its change is not in service");
    for toml in [format!("{ROOT}[member.ann]\ndeny = [\"memory\"]\n"), ROOT.to_owned()] {
        reload(&home, &host, &toml);
        let now = report(&ann, task);
        is_done(&now, "file docs/owls.md");
        if toml == ROOT {
            is_done(&now, "recall k");
        } else {
            is_refused(&now, "recall k", "take \"memory\" out of its `deny`");
        }
        assert_eq!(shown("sha256"), sha256, "{:?}\n{}", host.members(), host.output());
    }
    // Where approvals become necessary, it cannot be shown to be one.
    reload(&home, &host, &format!("require_approval = true\n{ROOT}"));
    let refused = ann.dispatch(json!({"description": "d", "task": task})).unwrap_err();
    assert!(refused.message.contains("is in state error"), "{refused:?}");
    fs::write(&file, approved).unwrap();
    wait_for("the approved one to be back", || ann.dispatch(json!({"description": "d", "task": task})).ok());
}

#[test]
fn another_certificate_is_served_to_new_connections_and_a_bad_one_leaves_the_old_one() {
    let home = Home::new();
    home.quick("ann");
    for name in ["old", "new"] {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        home.write(&format!("{name}.pem"), certificate.pem());
        home.write(&format!("{name}.key"), key.serialize_pem());
    }
    home.write("bad.pem", "no certificate");
    let tls = |name: &str| format!("[tls]\ncertificate = \"{name}.pem\"\nkey = \"{name}.key\"\n");
    home.write("guild.toml", tls("old"));
    let port = crate::support::host::free_port();
    let mut command = home.guild();
    command.arg("serve").arg("--members").arg(home.path("members")).args(["--port", &port.to_string()]);
    command.arg("--config").arg(home.path("guild.toml"));
    let host = Host::start(command, port, "");
    host.prints("listening at");
    let mut old = Tls::connect(port, &home.path("old.pem")).unwrap();
    old.is_answered();

    let log = reload(&home, &host, &tls("bad"));
    assert!(log.contains("bad.pem: has no certificate") && log.contains("stays in service"), "{log}");
    Tls::connect(port, &home.path("old.pem")).unwrap().is_answered();

    let log = reload(&home, &host, &tls("new"));
    assert!(log.contains("the certificate was read again, and is another one"), "{log}");
    Tls::connect(port, &home.path("new.pem")).unwrap().is_answered();
    let refused = Tls::connect(port, &home.path("old.pem")).err().unwrap().to_string();
    assert!(refused.contains("certificate"), "{refused}");
    old.is_answered();
}

/// A connection in TLS.
struct Tls(StreamOwned<ClientConnection, TcpStream>);

impl Tls {
    /// Connects to a host on this machine that has to have this certificate.
    fn connect(port: u16, trusted: &Path) -> std::io::Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(trusted).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots).with_no_client_auth();
        let client = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
        let mut stream = StreamOwned::new(client, TcpStream::connect(("127.0.0.1", port))?);
        stream.flush()?;
        Ok(Self(stream))
    }

    /// Asks over the same connection.
    fn is_answered(&mut self) {
        self.0.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let (mut answer, mut byte) = (Vec::new(), [0]);
        while !answer.ends_with(b"\r\n\r\nok\n") {
            self.0.read_exact(&mut byte).unwrap();
            answer.extend(byte);
        }
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    }
}

#[test]
fn a_request_is_let_in_and_served_by_one_reading() {
    let home = Home::new();
    home.quick("ann");
    // Either refuses this dispatch: the one for its length, the other for its token. A mixture of both would take it.
    let open = "[limits]\ndescription_bytes = 10\n";
    let wide = "require_token = true\n[limits]\ndescription_bytes = 20\n";
    let host = serve(&home, open);
    let (ann, is_over) = (host.at("ann"), AtomicBool::new(false));
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "worker/dispatch",
        "params": {"description": "fifteen letters", "task": "t"}})
    .to_string();
    let count = |answers: &[String], of: &str| answers.iter().filter(|answer| answer.contains(of)).count();
    let answers: Vec<String> = thread::scope(|scope| {
        let ask = || {
            let mut answers = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let (status, body) = ann.post(&body).unwrap();
                answers.push(format!("{status} {body}"));
            }
            answers
        };
        let asking: Vec<_> = (0..3).map(|_| scope.spawn(ask)).collect();
        for _ in 0..10 {
            reload(&home, &host, wide);
            reload(&home, &host, open);
        }
        is_over.store(true, Ordering::Relaxed);
        asking.into_iter().flat_map(|asking| asking.join().unwrap()).collect()
    });
    let (too_long, no_token) = (count(&answers, "the fixed limit description_bytes = 10"), count(&answers, "401 "));
    assert!(too_long > 0 && no_token > 0, "{too_long} {no_token}");
    let other = answers.iter().find(|answer| !answer.contains("description_bytes = 10") && !answer.starts_with("401 "));
    assert_eq!(other, None);
}

#[test]
fn many_signals_at_once_do_no_harm_and_the_last_file_holds() {
    let home = probes(&["ann"]);
    let host = serve(&home, ROOT);
    let ann = host.at("ann");
    let id = ann.dispatch(json!({"description": "d", "task": "summary waiting\nawait /memory/go.md"})).unwrap();
    for n in 0..20 {
        let deny = if n % 2 == 0 { "[member.ann]\ndeny = [\"files\"]\n" } else { "" };
        home.write("guild.toml", format!("{ROOT}{deny}"));
        host.signal("-HUP");
    }
    home.write("guild.toml", format!("{ROOT}[member.ann]\ndeny = [\"memory\"]\n"));
    host.signal("-HUP");
    let changed = |line: &str| line.contains("member.ann.deny: ") && line.ends_with("added \"memory\"");
    wait_for("the last file to be read", || host.output().lines().any(changed).then_some(()));
    let now = report(&ann, "file docs/owls.md\nrecall k");
    is_done(&now, "file docs/owls.md");
    is_refused(&now, "recall k", "take \"memory\" out of its `deny`");
    assert_eq!(ann.status(&id).unwrap()["status"], "running");
    ann.cancel(&id).unwrap();
}

#[test]
fn what_becomes_necessary_for_a_load_takes_a_member_out_of_service_until_it_is_there() {
    let home = Home::new();
    home.quick("ann");
    let host = serve(&home, "");
    let ann = host.at("ann");
    let job = json!({"description": "d", "task": "t"});
    let id = ann.dispatch(job.clone()).unwrap();
    assert_eq!(ann.ended(&id)["status"], "completed");
    reload(&home, &host, "require_signature = true\n");
    let refused = ann.dispatch(job.clone()).unwrap_err();
    assert!(refused.message.contains("is in state error") && refused.message.contains("sign"), "{refused:?}");
    // What it did before is there.
    assert_eq!(ann.status(&id).unwrap()["status"], "completed");
    reload(&home, &host, "");
    let id = ann.dispatch(job).unwrap();
    assert_eq!(ann.ended(&id)["status"], "completed");
    wait_for("the log", || {
        host.output().contains("its error is resolved: it is in service member=\"ann\"").then_some(())
    });
}

#[test]
fn a_host_of_one_member_reads_it_again_too() {
    let home = probes(&["ann"]);
    home.write("config/guild/guild.toml", "[[roots]]\npath = \"../../docs\"\n");
    let host = home.serve(&home.path("members/ann"), &[]);
    let task = "file docs/owls.md\nfile more/bats.md";
    is_refused(&report(&host.client(), task), "file more/bats.md", "paths begin with docs/");
    home.write("config/guild/guild.toml", "[[roots]]\npath = \"../../more\"\n[member.ann]\ndeny = [\"memory\"]\n");
    hang_up(&host);
    let now = report(&host.client(), &format!("{task}\nrecall k"));
    is_done(&now, "file more/bats.md");
    is_refused(&now, "file docs/owls.md", "paths begin with more/");
    is_refused(&now, "recall k", "take \"memory\" out of its `deny`");
    // Where there is no option that names the file, its end is no way to the defaults.
    fs::remove_file(home.path("config/guild/guild.toml")).unwrap();
    let log = hang_up(&host);
    assert!(log.contains("guild.toml is not there any more"), "{log}");
    is_refused(&report(&host.client(), "recall k"), "recall k", "take \"memory\" out of its `deny`");
}

/// `guild mcp`, and what it logs.
struct Bridge {
    child: Child,
    log: Arc<Mutex<String>>,
    answers: BufReader<ChildStdout>,
}

impl Bridge {
    fn start(home: &Home) -> Self {
        let mut command = home.guild();
        command.current_dir(home.path(".")).args(["mcp", "--members", "members"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (log, stderr) = (Arc::new(Mutex::new(String::new())), child.stderr.take().unwrap());
        let to = log.clone();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                *to.lock().unwrap() += &format!("{line}\n");
            }
        });
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, log, answers }
    }

    fn hang_up(&self) {
        let sent = Command::new("kill").args(["-HUP", &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Whether it answers.
    fn is_there(&mut self) {
        let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params":
            {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
        writeln!(self.child.stdin.as_ref().unwrap(), "{ping}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        let answer: Value =
            serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}; {}", self.log.lock().unwrap()));
        assert!(answer["result"]["serverInfo"].is_object(), "{answer}");
    }

    /// Closes its stdin, and waits for its end.
    fn end(mut self) {
        drop(self.child.stdin.take());
        let status = wait_for("the end", || self.child.try_wait().unwrap());
        assert_eq!(status.code(), Some(0), "{}", self.log.lock().unwrap());
    }
}

#[test]
fn guild_mcp_passes_sighup_on_to_the_host_that_it_started() {
    let home = Home::new();
    home.quick("ann");
    home.write("config/guild/guild.toml", "[limits]\ntask_bytes = 10\n");
    let mut own = Bridge::start(&home);
    own.is_there();
    let mut other = Bridge::start(&home);
    other.is_there();
    other.hang_up();
    home.write("config/guild/guild.toml", "[limits]\ntask_bytes = 11\n");
    own.hang_up();
    let expected = "guild.toml: limits.task_bytes: 10 -> 11";
    wait_for("the host to read it", || own.log.lock().unwrap().contains(expected).then_some(()));
    // Both are there, and end with their clients.
    other.end();
    own.end();
}

#[test]
fn the_docs_name_each_limit_that_waits_for_a_start() {
    let docs =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/limits.md")).unwrap();
    for limit in Limits::ALL {
        let row = docs.lines().find(|line| line.starts_with(&format!("| `{}` |", limit.name))).expect(limit.name);
        let waits = limit.setting == Setting::KeyAtStart;
        assert_eq!(row.contains("| at the next start |"), waits, "{}", limit.name);
    }
}

#[test]
fn a_read_root_that_cannot_be_read_any_more_is_named_with_what_to_do() {
    let home = probes(&["ann"]);
    let toml = "[[roots]]\npath = \"docs\"\n[[roots]]\npath = \"more\"\n";
    let config = home.write("guild.toml", toml);
    let port = free_port();
    let mut command = home.guild_under_permissions();
    command.args(["serve", "--members"]).arg(home.path("members")).arg("--config").arg(config);
    command.args(["--port", &port.to_string()]);
    let mut host = Host::start(command, port, "");
    assert!(host.is_ready(), "{}", host.output());
    assert!(!host.output().contains("the read root"), "{}", host.output());
    fs::set_permissions(home.path("more"), fs::Permissions::from_mode(0o000)).unwrap();
    host.signal("-HUP");
    let is_warning = |line: &&str| line.contains("WARN") && line.contains("the read root \"more\"");
    let warning = wait_for("the warning", || host.output().lines().find(is_warning).map(str::to_owned));
    fs::set_permissions(home.path("more"), fs::Permissions::from_mode(0o700)).unwrap();
    for part in
        [home.path("more").canonicalize().unwrap().to_str().unwrap(), "cannot be read", "permissions", "[[roots]]"]
    {
        assert!(warning.contains(part), "{part:?} is not in {warning}");
    }
    assert!(!host.output().contains("the read root \"docs\""), "{}", host.output());
}
