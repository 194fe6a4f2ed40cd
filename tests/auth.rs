//! Auth: who may call a host, over what, how much of it, and what is written down.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{IpAddr, TcpStream, UdpSocket},
    os::unix::fs::PermissionsExt as _,
    process::{Command, Output},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};

use crate::support::{
    host::{Home, Host, PATIENCE, wait_for},
    output::stderr,
};

/// A home whose guild.toml says this, for every command there.
fn home(toml: &str) -> Home {
    let mut home = Home::new();
    let file = home.write("guild.toml", toml);
    home.set("GUILD_CONFIG", file.to_str().unwrap());
    home
}

fn guild(home: &Home, arguments: &[&str]) -> Output {
    with_token(home, "", arguments)
}

fn with_token(home: &Home, token: &str, arguments: &[&str]) -> Output {
    let mut command: Command = home.guild();
    command.current_dir(home.path(".")).env("GUILD_TOKEN", token).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8(output.stdout.clone()).unwrap().trim_end().to_owned()
}

/// Makes a token.
pub(crate) fn add(home: &Home, arguments: &[&str]) -> String {
    stdout(&guild(home, &[&["token", "add"], arguments].concat()))
}

/// What a host answered.
#[derive(Debug, PartialEq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    head: String,
    body: String,
}

impl Reply {
    fn read(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// Why it is refused.
    pub(crate) fn why(&self) -> String {
        let refused: Value = serde_json::from_str(&self.body).unwrap();
        refused["error"]["message"].as_str().unwrap().to_owned()
    }

    fn json(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        serde_json::from_str(&self.body).unwrap()
    }
}

/// Asks a host's member for a body's answer, with these further header lines.
fn post(host: &Host, member: &str, headers: &[String], body: &str) -> Reply {
    let mut stream = TcpStream::connect(("127.0.0.1", host.port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let named = headers.iter().any(|line| line.starts_with("Host:"));
    let mut head =
        format!("POST /members/{member}/mcp HTTP/1.1\r\nContent-Type: application/json\r\nConnection: close\r\n");
    if !named {
        head += "Host: localhost\r\n";
    }
    for line in headers {
        head += &format!("{line}\r\n");
    }
    write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    Reply::read(&answer)
}

/// Sends the head of a request, and waits until the host has let it in: then it wants the body.
fn let_in(host: &Host, token: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", host.port)).unwrap();
    write!(
        stream,
        "POST /members/quick/mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n\
         Authorization: Bearer {token}\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
        body.len()
    )
    .unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut wanted = [0; 25];
    stream.read_exact(&mut wanted).unwrap();
    assert_eq!(&wanted, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream
}

/// Sends the body of a request that was let in.
fn finish(mut stream: TcpStream, body: &str) -> Reply {
    stream.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    Reply::read(&answer)
}

fn bearer(token: &str) -> Vec<String> {
    vec![format!("Authorization: Bearer {token}")]
}

fn request(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

pub(crate) fn call(host: &Host, member: &str, token: &str, method: &str, params: Value) -> Reply {
    post(host, member, &bearer(token), &request(method, params).to_string())
}

fn dispatch(description: &str) -> Value {
    json!({"description": description, "task": description})
}

/// The lines of the audit log in a home; each is whole. Those of components that are loaded for the first time come when they
/// are loaded, and are left out.
fn audit(home: &Home) -> Vec<Value> {
    let text = fs::read_to_string(home.path("audit.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line:?}")));
    lines.filter(|line: &Value| line["event"] != "trusted-on-first-use").collect()
}

const STRICT: &str = "require_token = true\naudit_log = \"audit.jsonl\"\n";

#[test]
fn a_token_is_shown_once_and_stored_as_its_sha_256() {
    let home = home("");
    let output = guild(&home, &["token", "add", "ci", "--role", "view", "--members", "a*", "--expires", "30d"]);
    let token = stdout(&output);
    assert!(token.len() == 70 && token.starts_with("guild_"), "{token}");
    assert!(!stderr(&output).contains(&token));
    let file = home.path("guild.tokens");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let stored = fs::read_to_string(&file).unwrap();
    assert!(!stored.contains(&token["guild_".len()..]), "{stored}");

    let listed = stdout(&guild(&home, &["token", "list"]));
    assert!(listed.starts_with("ci\tview\ta*\t"), "{listed}");
    let listed: Value = serde_json::from_str(&stdout(&guild(&home, &["token", "list", "--json"]))).unwrap();
    assert_eq!(
        (&listed[0]["role"], &listed[0]["members"], &listed[0]["expired"]),
        (&json!("view"), &json!(["a*"]), &json!(false))
    );
    assert!(listed[0].get("sha256").is_none());

    for (arguments, why) in [
        (&["add", "ci"][..], "there is already a token ci"),
        (&["add", "a b"], "cannot name a token"),
        (&["add", "x", "--members", "a b"], "\"a b\" is neither a member's key nor a pattern of keys"),
        (&["add", "x", "--expires", "2020-01-01"], "in the past"),
        (&["add", "x", "--role", "write"], "possible values: view, dispatch, approve, all"),
        (&["revoke", "other"], "there is no token \"other\"; the tokens are ci"),
    ] {
        let output = guild(&home, &[&["token"], arguments].concat());
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]));
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
    }
    assert_eq!(stdout(&guild(&home, &["token", "rm", "ci"])), "");
    assert!(stderr(&guild(&home, &["token", "list"])).contains("there are no tokens"));
}

#[test]
fn commands_at_the_same_time_lose_no_token() {
    let home = home("");
    thread::scope(|scope| {
        for worker in 0..8 {
            let home = &home;
            scope.spawn(move || {
                for n in 0..3 {
                    add(home, &[&format!("t-{worker}-{n}")]);
                }
            });
        }
    });
    let listed: Value = serde_json::from_str(&stdout(&guild(&home, &["token", "list", "--json"]))).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 24);
}

#[test]
fn a_token_is_added_and_revoked_without_a_restart() {
    let home = home(STRICT);
    home.quick("quick");
    let host = home.serve_roster(&[]);
    let list = |token: &str| call(&host, "quick", token, "worker/list", json!({})).status;
    assert_eq!(post(&host, "quick", &[], &request("ping", json!({})).to_string()).status, 401);

    let token = add(&home, &["ci"]);
    assert_eq!(list(&token), 200);
    let second = add(&home, &["second"]);
    stdout(&guild(&home, &["token", "revoke", "ci"]));
    assert_eq!((list(&token), list(&second)), (401, 200));

    // The command line takes it from its environment or a file, and never prints it.
    let url = format!("http://127.0.0.1:{}", host.port);
    let as_ours = ["list", "--member", "quick", "--url", &url];
    assert!(with_token(&home, &second, &as_ours).status.success());
    let refused = guild(&home, &as_ours);
    assert!(stderr(&refused).contains("HTTP 401") && stderr(&refused).contains("GUILD_TOKEN"), "{}", stderr(&refused));
    let file = home.write("token", format!("{second}\n"));
    let from_file = [&as_ours[..], &["--token-file", file.to_str().unwrap()]].concat();
    assert!(guild(&home, &from_file).status.success());

    let (_, output) = host.stop();
    assert!(!output.contains(&second["guild_".len()..]), "{output}");
    let log = fs::read_to_string(home.path("audit.jsonl")).unwrap();
    assert!(!log.contains(&second["guild_".len()..]), "{log}");
}

#[test]
fn no_token_and_any_that_is_not_good_get_one_and_the_same_answer() {
    let home = home(STRICT);
    home.quick("quick");
    let (expired, revoked) = (add(&home, &["expired", "--expires", "1d"]), add(&home, &["revoked"]));
    stdout(&guild(&home, &["token", "revoke", "revoked"]));
    // A day passes.
    let file = home.path("guild.tokens");
    let stored = fs::read_to_string(&file).unwrap();
    let lines = stored
        .lines()
        .map(|line| if line.starts_with("expires") { "expires = \"2020-01-01T00:00:00Z\"" } else { line });
    fs::write(&file, lines.collect::<Vec<_>>().join("\n")).unwrap();
    let good = add(&home, &["good"]);
    assert!(stdout(&guild(&home, &["token", "list"])).contains("expired 2020-01-01T00:00:00Z"));

    let host = home.serve_roster(&[]);
    let ask = |headers: &[String]| {
        let mut reply = post(&host, "quick", headers, &request("ping", json!({})).to_string());
        let of_its_own = |line: &&str| line.starts_with("date:") || line.starts_with("x-request-id:");
        reply.head = reply.head.lines().filter(|line| !of_its_own(line)).collect::<Vec<_>>().join("\n");
        reply
    };
    let nothing = ask(&[]);
    assert_eq!((nothing.status, nothing.header("www-authenticate")), (401, Some("bearer")));
    let almost = format!("{}0", &good[..good.len() - 1]);
    let almost = if almost == good { format!("{}1", &good[..good.len() - 1]) } else { almost };
    let wrong = [
        bearer(&expired),
        bearer(&revoked),
        bearer(&almost),
        bearer("guild_"),
        bearer(""),
        bearer(&good.to_uppercase()),
        bearer(&format!("{good} x")),
        vec![format!("Authorization: Basic {good}")],
        vec![format!("Authorization: {good}")],
        vec!["Authorization: Bearer \u{fc}".to_owned()],
        [bearer(&good), bearer(&good)].concat(),
        [bearer(&almost), bearer(&good)].concat(),
    ];
    for headers in &wrong {
        assert_eq!(ask(headers), nothing, "{headers:?}");
    }
    for scheme in ["Bearer", "bearer", "BEARER"] {
        assert_eq!(ask(&[format!("Authorization: {scheme} {good}")]).status, 200, "{scheme}");
    }
    // Nobody learns which members there are.
    assert_eq!(call(&host, "other", &almost, "ping", json!({})).status, 401);
    assert_eq!(call(&host, "other", &good, "ping", json!({})).status, 404);
}

#[test]
fn a_token_that_is_presented_is_checked_also_where_none_is_needed() {
    let home = home("");
    home.quick("quick");
    let token = add(&home, &["reader", "--role", "view"]);
    let host = home.serve_roster(&[]);
    let ping = request("ping", json!({})).to_string();
    assert_eq!(post(&host, "quick", &[], &ping).status, 200);
    assert_eq!(post(&host, "quick", &bearer("guild_0"), &ping).status, 401);
    assert_eq!(call(&host, "quick", &token, "worker/dispatch", dispatch("d")).status, 403);
    host.at("quick").start("without one");
}

#[test]
fn a_token_reaches_the_methods_and_members_that_it_is_for() {
    let home = home(STRICT);
    for member in ["research-a", "research-b", "other"] {
        home.quick(member);
    }
    let tokens = ["view", "dispatch", "all", "approve"].map(|role| (role, add(&home, &[role, "--role", role])));
    let some = add(&home, &["some", "--members", "research-*", "--members", "x"]);
    let host = home.serve_roster(&[]);
    let job = call(&host, "other", &tokens[2].1, "worker/dispatch", dispatch("d")).json()["result"]["jobId"].clone();
    let job = json!({"jobId": job});
    wait_for("the job to end", || {
        let status = call(&host, "other", &tokens[0].1, "worker/status", job.clone()).json();
        (status["result"]["status"] == "completed").then_some(())
    });
    let reading = ["initialize", "ping", "rpc.discover", "tools/list", "worker/list", "worker/status", "worker/result"];
    for (role, token) in &tokens {
        let may = |method: &str| {
            let params = if method == "worker/dispatch" { dispatch("d") } else { job.clone() };
            let reply = call(&host, "other", token, method, params);
            if reply.status == 403 {
                assert_eq!(reply.why(), format!("the token {role} is not for {method}"));
            }
            reply.status == 200
        };
        for method in reading {
            assert!(may(method), "{role} {method}");
        }
        let dispatches = matches!(*role, "dispatch" | "all");
        assert_eq!(may("worker/dispatch"), dispatches);
        assert_eq!(call(&host, "other", token, "worker/resume", job.clone()).status == 403, !dispatches);
        // A transcript has what the sessions read, word by word.
        assert_eq!(may("worker/log"), matches!(*role, "approve" | "all"));
        assert_eq!(may("worker/cancel"), *role == "all");
        assert_eq!(may("worker/delete"), *role == "all");
    }
    let notification = r#"{"jsonrpc": "2.0", "method": "notifications/initialized"}"#;
    assert_eq!(post(&host, "other", &bearer(&tokens[0].1), notification).status, 202);
    let notification = json!({"jsonrpc": "2.0", "method": "worker/dispatch", "params": dispatch("never")}).to_string();
    assert_eq!(post(&host, "other", &bearer(&tokens[0].1), &notification).status, 403);
    let listed = call(&host, "other", &tokens[0].1, "worker/list", json!({"filter": "never"})).json();
    assert_eq!(listed["result"]["jobs"], json!([]));

    assert_eq!(call(&host, "research-a", &some, "worker/list", json!({})).status, 200);
    assert_eq!(call(&host, "research-b", &some, "worker/list", json!({})).status, 200);
    // What is not there is refused as what is.
    for member in ["other", "nobody"] {
        let reply = call(&host, member, &some, "worker/list", json!({}));
        let expected = format!("the token some is not for the member {member}");
        assert_eq!((reply.status, reply.why()), (403, expected));
    }
}

#[test]
fn in_a_batch_what_the_token_is_not_for_is_an_error_and_the_rest_is_carried_out() {
    let home = home(STRICT);
    home.quick("quick");
    let token = add(&home, &["reader", "--role", "view"]);
    let host = home.serve_roster(&[]);
    let batch = json!([
        {"jsonrpc": "2.0", "id": "a", "method": "worker/dispatch", "params": dispatch("d")},
        {"jsonrpc": "2.0", "method": "worker/dispatch", "params": dispatch("silently")},
        {"jsonrpc": "2.0", "id": "b", "method": "worker/list"},
    ]);
    let answers = post(&host, "quick", &bearer(&token), &batch.to_string()).json();
    assert_eq!(answers.as_array().unwrap().len(), 2);
    assert_eq!(
        answers[0],
        json!({"jsonrpc": "2.0", "id": "a", "error": {"code": -32003, "message": "the token reader is not for worker/dispatch"}})
    );
    assert_eq!(answers[1]["result"]["jobs"], json!([]));
}

#[test]
fn an_invalid_file_of_tokens_lets_nobody_in() {
    let home = home(STRICT);
    home.quick("quick");
    let token = add(&home, &["ci"]);
    let host = home.serve_roster(&[]);
    let ask = |token: &str| call(&host, "quick", token, "ping", json!({})).status;
    assert_eq!(ask(&token), 200);
    let file = home.path("guild.tokens");
    let sound = fs::read_to_string(&file).unwrap();
    let twice = format!("{sound}\n{}", sound.split_once("\n\n").unwrap().1);
    for broken in [
        "[[token",
        "token = 1",
        &sound.replace("sha256 = \"", "sha256 = \"0"),
        &format!("{sound}admin = true\n"),
        &twice,
        &"#".repeat(2 * 1024 * 1024),
    ] {
        fs::write(&file, broken).unwrap();
        assert_eq!((ask(&token), ask("guild_0")), (503, 503), "{broken:.99}");
        assert_eq!(post(&host, "quick", &[], &request("ping", json!({})).to_string()).status, 401);
    }
    fs::write(&file, b"# \xff").unwrap();
    assert_eq!((ask(&token), ask(&token)), (503, 503));
    fs::write(&file, &sound).unwrap();
    assert_eq!(ask(&token), 200);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(ask(&token), 503);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(ask(&token), 200);
    fs::remove_file(&file).unwrap();
    assert_eq!(ask(&token), 401);
    // It was read once, and not with each request.
    let (_, output) = host.stop();
    for expected in ["it is larger than", "valid UTF-8", "guild.tokens: there are two tokens ci"] {
        assert_eq!(output.matches(expected).count(), 1, "{expected}: {output}");
    }
}

/// A certificate authority, and what it signed.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Puts a certificate for these names, and its key, where `[tls]` has them.
    fn issue(&self, home: &Home, names: &[&str]) {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &self.0).unwrap();
        home.write("key.pem", key.serialize_pem());
        home.write("cert.pem", certificate.pem());
        home.write("ca.pem", self.0.pem());
    }
}

const TLS: &str = "[tls]\ncertificate = \"cert.pem\"\nkey = \"key.pem\"\n";

/// Starts a host on all addresses of this machine.
fn serve_all(home: &Home) -> Host {
    let port = crate::support::host::free_port();
    let mut command = home.guild();
    command.arg("serve").arg("--members").arg(home.path("members")).args(["--port", &port.to_string()]);
    let host = Host::start(command, port, "");
    wait_for("the host to be ready", || {
        assert!(!host.output().contains("error"), "{}", host.output());
        host.output().contains("listening at").then_some(())
    });
    host
}

#[test]
fn a_host_that_others_can_reach_speaks_tls_and_wants_a_token() {
    let toml = format!("bind = \"0.0.0.0\"\naudit_log = \"audit.jsonl\"\nhosts = [\"guild.example\"]\n{TLS}");
    let home = home(&toml);
    home.quick("quick");
    let refused = guild(&home, &["serve", "--members", "members", "--port", "0"]);
    assert!(stderr(&refused).contains("make a token with `guild token add NAME --config "), "{}", stderr(&refused));
    let token = add(&home, &["ci"]);
    let refused = guild(&home, &["serve", "--members", "members", "--port", "0"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("cert.pem: No such file"), "{}", stderr(&refused));

    Authority::new().issue(&home, &["127.0.0.1"]);
    let host = serve_all(&home);
    let expected = format!("at https://0.0.0.0:{}/members/quick/mcp", host.port);
    host.prints(&expected);
    let url = format!("https://127.0.0.1:{}", host.port);
    let ca = home.path("ca.pem");
    let ask = |token: &str, more: &[&str]| {
        with_token(&home, token, &[&["list", "--member", "quick", "--url", &url], more].concat())
    };
    let trusting = ["--ca", ca.to_str().unwrap()];
    assert!(ask(&token, &trusting).status.success(), "{}", stderr(&ask(&token, &trusting)));
    assert!(stderr(&ask("", &trusting)).contains("HTTP 401"));
    let distrusting = stderr(&ask(&token, &[]));
    assert!(distrusting.contains("certificate"), "{distrusting}");

    // Whoever does not speak TLS is not spoken to.
    let mut plain = TcpStream::connect(("127.0.0.1", host.port)).unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");

    let (status, _) = host.stop();
    assert!(status.success());
    let events: Vec<_> = audit(&home).iter().map(|line| line["event"].as_str().unwrap().to_owned()).collect();
    assert_eq!(events, ["token-added", "host-started", "request", "host-stopped"]);
}

#[test]
fn a_client_that_does_not_finish_its_handshake_is_disconnected() {
    let home = home(&format!("[limits]\nclient_seconds = 1\n{TLS}"));
    home.quick("quick");
    Authority::new().issue(&home, &["127.0.0.1"]);
    let host = serve_all(&home);
    let mut silent = TcpStream::connect(("127.0.0.1", host.port)).unwrap();
    let mut halfway = TcpStream::connect(("127.0.0.1", host.port)).unwrap();
    halfway.write_all(b"\x16\x03\x01\x02\x00\x01").unwrap();
    for stream in [&mut silent, &mut halfway] {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let ended = stream.read(&mut [0; 16]);
        assert!(!matches!(&ended, Err(e) if e.kind() == std::io::ErrorKind::WouldBlock), "it is still connected");
        assert_eq!(ended.unwrap_or_default(), 0);
    }
}

#[test]
fn a_certificate_that_is_renewed_on_disk_is_taken_without_a_restart() {
    let home = home(TLS);
    home.quick("quick");
    let (old, new) = (Authority::new(), Authority::new());
    old.issue(&home, &["127.0.0.1"]);
    let host = serve_all(&home);
    let url = format!("https://127.0.0.1:{}", host.port);
    let ask =
        || guild(&home, &["list", "--member", "quick", "--url", &url, "--ca", home.path("ca.pem").to_str().unwrap()]);
    assert!(ask().status.success());
    // A half of it is not yet one.
    home.write("cert.pem", "renewing...");
    wait_for("the broken certificate to be noticed", || {
        assert!(ask().status.success());
        host.output().contains("the old one stays").then_some(())
    });
    // A program that puts files in place may give them the time that they had elsewhere.
    let files = ["cert.pem", "key.pem"].map(|name| home.path(name));
    let times = files.each_ref().map(|file| fs::metadata(file).unwrap().modified().unwrap());
    new.issue(&home, &["127.0.0.1"]);
    for (file, time) in files.iter().zip(times) {
        fs::File::options().append(true).open(file).unwrap().set_modified(time).unwrap();
    }
    wait_for("the new certificate", || ask().status.success().then_some(()));
}

#[test]
fn what_would_travel_in_the_clear_is_refused_at_the_start_with_the_line() {
    let home = home("bind = \"0.0.0.0\"\n");
    home.quick("quick");
    let serve = |toml: &str| {
        home.write("guild.toml", toml);
        stderr(&guild(&home, &["serve", "--members", "members", "--port", "0"]))
    };
    let error = serve("bind = \"0.0.0.0\"\n");
    assert!(
        error.contains("guild.toml:1: bind: 0.0.0.0 can be reached from other machines") && error.contains("[tls]"),
        "{error}"
    );
    let error = serve("bind = \"0.0.0.0\"\nbehind_proxy = true\n");
    assert!(error.contains("guild token add"), "{error}");
    let error = serve("\naudit_log = \"nowhere/audit.jsonl\"\n");
    assert!(error.contains("nowhere/audit.jsonl cannot be opened") && error.contains("`audit_log`"), "{error}");
    let error = serve("\nhosts = [\"guild.example\"]\n");
    assert!(error.contains("guild.toml:2: hosts:") && error.contains("write require_token = true"), "{error}");
    let error = serve("hosts = [\"http://guild.example\"]\n");
    assert!(error.contains("guild.toml:1: hosts: \"http://guild.example\" is not a host name"), "{error}");
    home.write("cert.pem", "x");
    home.write("key.pem", "x");
    let error = serve(TLS);
    assert!(error.contains("cert.pem: has no certificate"), "{error}");
}

#[test]
fn behind_a_proxy_a_host_answers_to_its_own_names_and_to_no_others() {
    let home = home("bind = \"0.0.0.0\"\nbehind_proxy = true\nhosts = [\"guild.example\"]\n");
    home.quick("quick");
    let token = add(&home, &["ci"]);
    let host = serve_all(&home);
    let ask = |name: &str, more: &[String]| {
        let headers = [vec![format!("Host: {name}")], more.to_vec()].concat();
        post(&host, "quick", &headers, &request("ping", json!({})).to_string()).status
    };
    let own = format!("127.0.0.1:{}", host.port);
    for name in ["guild.example", "guild.example:443", "localhost", &own] {
        assert_eq!((ask(name, &bearer(&token)), ask(name, &[])), (200, 401), "{name}");
    }
    // An address that a name was bound to is reached, and does not answer to that name.
    for name in ["evil.example", "guild.example.evil.example", "192.0.2.1", "0.0.0.0"] {
        assert_eq!(ask(name, &bearer(&token)), 403, "{name}");
    }
    let origin = |origin: &str| ask("guild.example", &[bearer(&token), vec![format!("Origin: {origin}")]].concat());
    assert_eq!((origin("https://guild.example"), origin("https://evil.example"), origin("null")), (200, 403, 403));
}

#[test]
fn on_loopback_a_name_by_which_others_call_the_host_wants_a_token() {
    let home = home("hosts = [\"guild.example\"]\nrequire_token = false\n");
    home.quick("quick");
    let token = add(&home, &["ci"]);
    let host = home.serve_roster(&[]);
    let ask = |name: &str, more: &[String]| {
        let headers = [vec![format!("Host: {name}")], more.to_vec()].concat();
        post(&host, "quick", &headers, &request("ping", json!({})).to_string()).status
    };
    assert_eq!(ask("localhost", &[]), 200);
    assert_eq!((ask("guild.example", &[]), ask("guild.example", &bearer(&token))), (401, 200));
}

#[test]
fn what_a_proxy_brings_is_not_of_this_machine_by_whatever_name_it_calls() {
    let home = home("");
    home.quick("quick");
    let token = add(&home, &["ci"]);
    let host = home.serve_roster(&[]);
    let ask = |headers: &[String]| post(&host, "quick", headers, &request("ping", json!({})).to_string()).status;
    for line in ["X-Forwarded-For: 192.0.2.7", "Forwarded: for=192.0.2.7", "Via: 1.1 proxy", "x-forwarded-for:"] {
        let line = vec![line.to_owned()];
        assert_eq!((ask(&line), ask(&[line.clone(), bearer(&token)].concat())), (401, 200), "{line:?}");
    }
    assert_eq!(ask(&[]), 200);
}

#[test]
fn a_job_whose_caller_went_away_is_in_the_audit_log() {
    let home = home(&format!("{STRICT}[limits]\ntoken_dispatches_per_minute = 1000\n"));
    home.quick("quick");
    let token = add(&home, &["ci"]);
    let host = home.serve_roster(&[]);
    // The component is loaded.
    wait_for("a dispatch", || {
        (call(&host, "quick", &token, "worker/dispatch", dispatch("d")).status == 200).then_some(())
    });
    for n in 0..40 {
        let body = request("worker/dispatch", dispatch("d")).to_string();
        let mut stream = TcpStream::connect(("127.0.0.1", host.port)).unwrap();
        write!(
            stream,
            "POST /members/quick/mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Authorization: Bearer {token}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        // It goes away at some time between the first word and the answer.
        let _ = stream.set_read_timeout(Some(Duration::from_micros(1 + 500 * n)));
        let _ = stream.peek(&mut [0]);
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    }
    // One after all of them, and the end, which waits for what was begun.
    call(&host, "quick", &token, "worker/dispatch", dispatch("last")).json();
    assert!(host.stop().0.success());
    let lines = audit(&home);
    let written =
        |job: &str| lines.iter().any(|line| line["job"] == job && line["outcome"] == "ok" && line["who"] == "token:ci");
    let mut jobs = 0;
    for entry in fs::read_dir(home.path("members/quick/jobs")).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if entry.path().is_dir() && !name.starts_with('.') {
            jobs += 1;
            assert!(written(&name), "no line of {name}: {lines:#?}");
        }
    }
    assert!(jobs > 10, "{jobs} jobs");
}

#[test]
fn a_token_that_is_revoked_while_its_request_comes_in_or_its_batch_is_carried_out_is_refused() {
    let home = home(STRICT);
    home.quick("quick");
    let token = add(&home, &["ci"]);
    let host = home.serve_roster(&[]);
    let body = request("worker/dispatch", dispatch("late")).to_string();
    let slow = let_in(&host, &token, &body);
    stdout(&guild(&home, &["token", "revoke", "ci"]));
    assert_eq!(finish(slow, &body).status, 401);
    assert!(fs::read_dir(home.path("members/quick/jobs")).unwrap().flatten().all(|entry| !entry.path().is_dir()));
}

#[test]
fn a_token_is_revoked_whatever_becomes_of_the_audit_log_and_a_command_that_fails_makes_none() {
    let home = home("audit_log = \"nowhere/audit.jsonl\"\n");
    add(&home, &["ci"]);
    let revoked = guild(&home, &["token", "revoke", "ci"]);
    assert!(revoked.status.success(), "{}", stderr(&revoked));
    assert!(stderr(&revoked).contains("nowhere/audit.jsonl cannot be written"), "{}", stderr(&revoked));
    assert!(stderr(&guild(&home, &["token", "list"])).contains("there are no tokens"));
    home.write("guild.toml", "audit_log = \"audit.jsonl\"\n");
    assert!(!guild(&home, &["token", "revoke", "ci"]).status.success());
    assert!(!home.path("audit.jsonl").exists());
}

#[test]
fn a_large_answer_keeps_its_place_until_its_client_has_taken_it() {
    let limits = "[limits]\ntoken_requests_at_once = 1\ntoken_requests_per_second = 100000\n";
    let home = home(&format!("{STRICT}{limits}"));
    home.quick("quick");
    let token = add(&home, &["ci"]);
    let host = home.serve_roster(&[]);
    let batch: Vec<_> = (0..100).map(|_| json!({"jsonrpc": "2.0", "id": "x".repeat(1000), "method": "ping"})).collect();
    let body = json!(batch).to_string();
    let mut greedy = TcpStream::connect(("127.0.0.1", host.port)).unwrap();
    greedy.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let request = format!(
        "POST /members/quick/mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Authorization: Bearer {token}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    // It asks until neither its answers nor its questions get through any more.
    while greedy.write_all(request.as_bytes()).is_ok() {}
    let ask = || call(&host, "quick", &token, "ping", json!({})).status;
    assert_eq!(ask(), 429);
    drop(greedy);
    wait_for("its place to be free", || (ask() == 200).then_some(()));
    let long = json!({"jsonrpc": "2.0", "id": "x".repeat(1023), "method": "ping"}).to_string();
    let refused = wait_for("its place to be free", || {
        Some(post(&host, "quick", &bearer(&token), &long)).filter(|reply| reply.status == 200)
    });
    assert_eq!(
        refused.json(),
        json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "Invalid request: `id` is longer than 1024 bytes"}})
    );
}

#[test]
fn a_host_without_a_free_connection_is_known_to_be_alive_and_keeps_its_member() {
    let home = home("[limits]\nconnections = 8\n");
    home.quick("quick");
    let host = home.serve_roster(&[]);
    let idle: Vec<_> = (0..12).map(|_| TcpStream::connect(("127.0.0.1", host.port)).unwrap()).collect();
    let second = guild(&home, &["serve", "--member", "members/quick", "--port", "0"]);
    let expected = format!("is already served by process {}", host.pid());
    assert!(second.status.code() == Some(1) && stderr(&second).contains(&expected), "{}", stderr(&second));
    drop(idle);
    host.at("quick").start("it lives");
}

#[test]
fn of_an_answer_without_end_a_client_reads_no_more_than_it_shows() {
    let home = home("");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let endless = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        assert_ne!(stream.read(&mut [0; 4096]).unwrap(), 0);
        stream.write_all(b"HTTP/1.1 403 Forbidden\r\n\r\n").unwrap();
        while stream.write_all(&[b'x'; 4096]).is_ok() {}
    });
    let refused = guild(&home, &["list", "--url", &url]);
    assert!(stderr(&refused).contains("HTTP 403"), "{}", stderr(&refused));
    assert!(stderr(&refused).len() < 2000);
    endless.join().unwrap();
}

#[test]
fn health_is_answered_without_a_token_and_nothing_else_is() {
    let home = home(STRICT);
    home.quick("quick");
    let host = home.serve_roster(&[]);
    let get = |path: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", host.port)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        Reply::read(&answer)
    };
    assert_eq!((get("/healthz").status, get("/healthz").body.as_str()), (200, "ok\n"));
    for path in ["/members/quick/mcp", "/members/other/mcp", "/healthz/", "/nowhere"] {
        assert_eq!(get(path).status, 401, "{path}");
    }
    // Pages lead to the form that asks for a token.
    for path in ["/", "/page/members/quick", "/page/nowhere"] {
        assert_eq!(get(path).status, 303, "{path}");
    }
}

#[test]
fn requests_over_the_rate_limit_of_a_token_get_retry_after_and_reach_no_member() {
    let limits = "[limits]\ntoken_requests_per_second = 5\ntoken_dispatches_per_minute = 2\n";
    let home = home(&format!("{STRICT}{limits}"));
    home.quick("quick");
    let (token, other) = (add(&home, &["ci"]), add(&home, &["other"]));
    let host = home.serve_roster(&[]);
    let jobs = || {
        fs::read_dir(home.path("members/quick/jobs"))
            .map_or(0, |jobs| jobs.flatten().filter(|job| job.path().is_dir()).count())
    };

    let send = |token: &str| call(&host, "quick", token, "worker/dispatch", dispatch("d"));
    assert_eq!((send(&token).status, send(&token).status), (200, 200));
    let reply = send(&token);
    let wait: u64 = reply.header("retry-after").unwrap().parse().unwrap();
    assert!(reply.status == 429 && (1..=30).contains(&wait), "{reply:?}");
    let why = |token: &str, limit: &str, wait: u64| {
        format!("too many requests with the token {token} (limits.{limit}); try again in {wait} s")
    };
    assert_eq!(reply.why(), why("ci", "token_dispatches_per_minute", wait));
    assert_eq!(jobs(), 2);
    // Another's bounds are its own, and reading is no dispatch.
    assert_eq!(send(&other).status, 200);

    // As many come at once as in a second, and one more with each fifth of it that passes.
    for count in [5, 12] {
        let name = format!("b{count}");
        let token = add(&home, &[&name]);
        let batch: Vec<_> = (0..count).map(|id| json!({"jsonrpc": "2.0", "id": id, "method": "ping"})).collect();
        let began = Instant::now();
        let answers = post(&host, "quick", &bearer(&token), &json!(batch).to_string()).json();
        let most = 5 + began.elapsed().as_millis() / 200;
        let answers = answers.as_array().unwrap();
        let served = answers.iter().filter(|answer| answer["result"] == json!({})).count();
        assert!(served >= 5 && served as u128 <= most && answers.len() == count, "{served} of {most}: {answers:?}");
        assert!(answers[..5].iter().all(|answer| answer["result"] == json!({})), "{answers:?}");
        let busy = json!({"code": -32000, "message": why(&name, "token_requests_per_second", 1)});
        assert_eq!(answers.iter().filter(|answer| answer["error"] == busy).count(), count - served, "{answers:?}");
    }
}

#[test]
fn every_element_of_a_batch_that_goes_beyond_the_rate_is_answered_also_one_that_is_no_request() {
    let home = home(&format!("{STRICT}[limits]\ntoken_requests_per_second = 1\n"));
    home.quick("quick");
    let token = add(&home, &["ci"]);
    let host = home.serve_roster(&[]);
    let batch: Vec<_> = (0..40).map(|id| if id % 2 == 0 { json!({"id": id}) } else { json!(id) }).collect();
    let answers = post(&host, "quick", &bearer(&token), &json!(batch).to_string()).json();
    let answers = answers.as_array().unwrap();
    let ids: Vec<_> = answers.iter().map(|answer| answer["id"].clone()).collect();
    assert_eq!(ids, (0..40).map(|id| if id % 2 == 0 { json!(id) } else { json!(null) }).collect::<Vec<_>>());
    assert!(answers.iter().any(|answer| answer["id"].is_null() && answer["error"]["code"] == -32000), "{answers:?}");
}

#[test]
fn what_a_token_has_used_is_not_forgotten_over_a_file_that_could_not_be_read() {
    let home = home(&format!("{STRICT}[limits]\ntoken_dispatches_per_minute = 1\n"));
    home.quick("quick");
    let token = add(&home, &["ci"]);
    let host = home.serve_roster(&[]);
    let send = || call(&host, "quick", &token, "worker/dispatch", dispatch("d")).status;
    assert_eq!((send(), send()), (200, 429));
    let file = home.path("guild.tokens");
    let sound = fs::read(&file).unwrap();
    fs::write(&file, "[[token").unwrap();
    assert_eq!(send(), 503);
    fs::write(&file, sound).unwrap();
    assert_eq!(send(), 429);
}

#[test]
fn a_token_has_so_many_requests_under_way_and_no_more() {
    let home = home(&format!("{STRICT}[limits]\ntoken_requests_at_once = 2\n"));
    home.quick("quick");
    let (token, other) = (add(&home, &["ci"]), add(&home, &["other"]));
    let host = home.serve_roster(&[]);
    let ask = |token: &str| call(&host, "quick", token, "ping", json!({}));
    // One whose body is still to come is under way.
    let body = request("ping", json!({})).to_string();
    let [one, two] = [(); 2].map(|()| let_in(&host, &token, &body));
    let refused = ask(&token);
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    let why = "too many requests with the token ci (limits.token_requests_at_once); try again in 1 s";
    assert_eq!((&*refused.why(), ask(&other).status), (why, 200));
    assert_eq!(finish(one, &body).status, 200);
    wait_for("its place to be free", || (ask(&token).status == 200).then_some(()));
    assert_eq!(finish(two, &body).status, 200);
}

/// An address of this machine that is not loopback's: what is sent to it stays here, and counts as from elsewhere.
fn address_of_this_machine() -> Option<IpAddr> {
    // It is asked which address it would have, and sends nothing.
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("198.51.100.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|address| !address.is_loopback())
}

#[test]
fn an_address_elsewhere_has_so_many_connections_and_one_more_is_closed_until_one_of_them_ends() {
    let Some(elsewhere) = address_of_this_machine() else {
        eprintln!("not tested here: this machine has no address but loopback's");
        return;
    };
    let home = home("bind = \"0.0.0.0\"\nbehind_proxy = true\n[limits]\nconnections_per_address = 2\n");
    home.quick("quick");
    add(&home, &["ci"]);
    let host = serve_all(&home);
    let connect = |address: IpAddr| {
        let stream = TcpStream::connect((address, host.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    };
    // Whether a connection is served, which stays open.
    let is_served = |mut stream: &TcpStream| {
        let asked = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let mut answer = [0; 1024];
        let read = asked.and_then(|()| stream.read(&mut answer)).unwrap_or(0);
        assert!(read == 0 || answer.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", String::from_utf8_lossy(&answer));
        read > 0
    };
    let [one, two] = [(); 2].map(|()| connect(elsewhere));
    assert!(is_served(&one) && is_served(&two));
    assert!(!is_served(&connect(elsewhere)), "a third connection is served");
    assert!(is_served(&two) && is_served(&connect([127, 0, 0, 1].into())));
    drop(one);
    let three = wait_for("a place", || Some(connect(elsewhere)).filter(is_served));
    assert!(is_served(&two) && is_served(&three) && !is_served(&connect(elsewhere)));
}

#[test]
fn the_audit_log_has_who_did_what_and_nobody_can_forge_a_line() {
    let home = home("audit_log = \"audit.jsonl\"\n");
    home.quick("quick");
    let token = add(&home, &["ci"]);
    let host = home.serve_roster(&[]);
    let forged = "x\"}\n{\"time\":\"2026-01-01T00:00:00Z\",\"event\":\"request\",\"who\":\"token:admin\"}\n";
    let job = host.at("quick").start(forged);
    host.at("quick").ended(&job);
    for id in [forged, "../../etc/passwd", &"9".repeat(5000), "\u{2028}"] {
        assert!(host.at("quick").delete(id).is_err());
    }
    assert_eq!(call(&host, "quick", &token, "worker/delete", json!({"jobId": job})).status, 200);
    assert_eq!(call(&host, "quick", &token, forged, json!({})).status, 200);
    let reader = add(&home, &["reader", "--role", "view"]);
    assert_eq!(call(&host, "quick", &reader, forged, json!({})).json()["error"]["code"], -32601);
    assert_eq!(call(&host, "quick", &reader, "worker/delete", json!({"jobId": forged})).status, 403);
    assert_eq!(call(&host, "quick", "guild_wrong", "ping", json!({})).status, 401);
    assert_eq!(post(&host, &"%0a{}".repeat(9), &bearer("guild_wrong"), "").status, 401);
    assert_eq!(post(&host, "quick", &["Host: evil.example".to_owned()], "").status, 403);
    host.stop();

    let lines = audit(&home);
    let short: Vec<_> = lines
        .iter()
        .map(|line| {
            assert!(line["time"].as_str().unwrap().ends_with('Z'));
            let text = |name: &str| line[name].as_str().unwrap_or("-").to_owned();
            let who = if text("who").starts_with("user:") { "user".to_owned() } else { text("who") };
            format!("{} {who} {} {} {} {}", text("event"), text("method"), text("member"), text("job"), text("outcome"))
        })
        .collect();
    let deleted = format!("request token:ci worker/delete quick {job} ok");
    let dispatched = format!("request local worker/dispatch quick {job} ok");
    let expected = [
        "token-added user - - - ok",
        "host-started host - - - ok",
        &dispatched,
        "request local worker/delete quick - invalid",
        "request local worker/delete quick - invalid",
        "request local worker/delete quick - invalid",
        "request local worker/delete quick - invalid",
        &deleted,
        "token-added user - - - ok",
        "tokens-read host - - - ok",
        "request token:reader worker/delete quick - forbidden",
        "request unknown - quick - unauthorized",
        "request unknown - - - unauthorized",
        "request unknown - - - forbidden",
        "host-stopped host - - - ok",
    ];
    assert_eq!(short, expected);
    let text = fs::read_to_string(home.path("audit.jsonl")).unwrap();
    assert!(!text.contains("admin") && !text.contains("passwd") && !text.contains("evil"), "{text}");
    assert_eq!(fs::metadata(home.path("audit.jsonl")).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn reads_are_written_down_where_the_operator_wants_them() {
    let home = home("audit_log = \"audit.jsonl\"\naudit_log_reads = true\n");
    home.quick("quick");
    let host = home.serve_roster(&[]);
    host.at("quick").status("019f4b1c-7a3e-7f00-8000-000000000000").unwrap_err();
    host.stop();
    let lines = audit(&home);
    assert_eq!(lines.len(), 3);
    assert_eq!(
        (&lines[1]["method"], &lines[1]["job"], &lines[1]["code"]),
        (&json!("worker/status"), &json!("019f4b1c-7a3e-7f00-8000-000000000000"), &json!(-32602))
    );
}

#[test]
fn a_client_that_does_not_take_its_answers_is_let_go() {
    let home = home("[limits]\nclient_seconds = 1\n");
    home.quick("quick");
    let host = home.serve_roster(&[]);
    let unknown: Vec<_> = (0..100).map(|id| json!({"jsonrpc": "2.0", "id": id, "method": "x".repeat(100)})).collect();
    let body = json!(unknown).to_string();
    let request = format!(
        "POST /members/quick/mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let started = Instant::now();
    let sockets: Vec<_> = (0..3).map(|_| TcpStream::connect(("127.0.0.1", host.port)).unwrap()).collect();
    let ended = Arc::new(std::sync::Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for mut socket in sockets {
            let (request, ended) = (&request, ended.clone());
            scope.spawn(move || {
                socket.set_write_timeout(Some(PATIENCE)).unwrap();
                // It asks and asks, and reads nothing.
                while socket.write_all(request.as_bytes()).is_ok() {}
                ended.lock().unwrap().push(Instant::now());
            });
        }
    });
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    host.at("quick").start("others are served");
}

#[test]
fn a_host_that_wants_tokens_and_tls_is_known_to_be_alive_and_keeps_its_member() {
    let home = home(&format!("bind = \"0.0.0.0\"\n{TLS}"));
    home.quick("quick");
    add(&home, &["ci"]);
    Authority::new().issue(&home, &["guild.example"]);
    let host = serve_all(&home);
    let second = guild(&home, &["serve", "--member", "members/quick", "--port", "0"]);
    let expected =
        format!("is already served by process {} at https://127.0.0.1:{}/members/quick/mcp", host.pid(), host.port);
    assert!(second.status.code() == Some(1) && stderr(&second).contains(&expected), "{}", stderr(&second));
    assert!(host.stop().0.success());
}
