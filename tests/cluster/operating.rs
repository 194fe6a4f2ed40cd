//! A cluster as its operator sets it up: `guild cluster init`, with TLS, credentials and the rights of hosts.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use async_nats::{Client, ConnectOptions, HeaderMap, jetstream};
use futures::StreamExt as _;
use guild_fakes::{Nats, free_node_ports};
use serde_json::{Value, json};
use tokio::{runtime::Runtime, time::timeout};

use super::{homes, serve, stop_at_once, until_known};
use crate::support::{
    host::{Home, Host, wait_for},
    mcp::Endpoint,
    output::{stderr, stdout},
};

/// A cluster that `guild cluster init` has made, with servers that run.
struct Made {
    nats: Nats,
    /// The home in which the commands were run; `acme/` has what they wrote.
    home: Home,
    servers: Vec<String>,
}

impl Made {
    fn new(nodes: usize, hosts: &str, more: &[&str]) -> Self {
        let home = Home::new();
        let ports = free_node_ports(nodes);
        let names: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let names = names.join(",");
        let sizes = ["--log-gib", "1", "--blob-gib", "1"];
        let init = ["cluster", "init", "acme", "--name", "acme", "--nodes", &names, "--hosts", hosts];
        let made = home.run(&[&init[..], &sizes, more].concat());
        assert!(made.status.success(), "{}", stderr(&made));
        let nodes = ports.iter().map(|port| (home.path(&format!("acme/nodes/127.0.0.1-{port}")), *port));
        let nats = Nats::start_in(&nodes.collect::<Vec<_>>());
        let printed = stdout(&made);
        let words: Vec<_> = printed.split_whitespace().skip(1).collect();
        let streams = home.run(&words);
        assert!(streams.status.success(), "{printed}{}", stderr(&streams));
        Self { nats, home, servers: ports.iter().map(|port| format!("tls://127.0.0.1:{port}")).collect() }
    }

    /// A home of a host with what was made for it.
    fn host(&self, name: &str) -> Home {
        let mut home = Home::new();
        for file in ["nats.nk", "cluster.key", "ca.pem", "guild.toml"] {
            fs::copy(self.home.path(&format!("acme/hosts/{name}/{file}")), home.path(file)).unwrap();
        }
        home.set("GUILD_CONFIG", home.path("guild.toml").to_str().unwrap());
        home.quick("quick");
        home.endless("endless");
        home
    }

    /// A client with the credentials of a host or of the administrator, below `acme/`.
    async fn client(&self, of: &str, host: &str) -> Client {
        let seed = fs::read_to_string(self.home.path(&format!("acme/{of}/nats.nk"))).unwrap();
        ConnectOptions::with_nkey(seed.trim().to_owned())
            .add_root_certificates(self.home.path("acme/admin/ca.pem"))
            .custom_inbox_prefix(format!("_INBOX_{host}"))
            .request_timeout(Some(Duration::from_secs(1)))
            .connect(&self.servers)
            .await
            .unwrap()
    }
}

/// The state of the cluster as `guild cluster status --json` prints it.
fn state(home: &Home) -> Value {
    let output = home.run(&["cluster", "status", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_str(&stdout(&output)).unwrap()
}

/// The checks of a kind in `guild doctor --json`, by name: the state and the detail.
fn checks(home: &Home) -> BTreeMap<String, (String, String)> {
    let output = home.run(&["doctor", "--json", "--members", home.path("members").to_str().unwrap()]);
    let view: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let checks = view["checks"].as_array().unwrap().iter().filter(|check| check["kind"] == "cluster");
    checks.map(|check| (text(&check["name"]), (text(&check["state"]), text(&check["detail"])))).collect()
}

/// The TCP sockets of a host.
fn sockets(host: &Host) -> usize {
    let of = |file: &str| PathBuf::from(format!("/proc/{}/{file}", host.pid()));
    let table = ["net/tcp", "net/tcp6"].map(|table| fs::read_to_string(of(table)).unwrap()).concat();
    let known: Vec<_> = table.lines().filter_map(|line| line.split_whitespace().nth(9)).collect();
    let files = fs::read_dir(of("fd")).unwrap().filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    let is_tcp = |file: &PathBuf| {
        let inode = file.to_str().and_then(|file| file.strip_prefix("socket:[")?.strip_suffix(']'));
        inode.is_some_and(|inode| known.contains(&inode))
    };
    files.filter(is_tcp).count()
}

#[test]
fn status_doctor_figures_and_page_show_a_cluster_and_the_differences_of_its_hosts() {
    let nats = Nats::start(1);
    let homes = homes(&nats);
    // One host has another limit, and lets fewer jobs wait.
    let changed = homes[1].path("guild.toml");
    let text = fs::read_to_string(&changed).unwrap();
    fs::write(&changed, format!("{text}queued_jobs = 5\n[limits]\nrunning_jobs = 7\n")).unwrap();
    let [a, b] = serve(&homes);
    assert!(sockets(&a) > 1);
    let id = a.at("endless").start("goes on");
    until_known(&b.at("endless"), &id, "running");

    let seen = wait_for("both hosts to tell their members", || {
        let seen = state(&homes[0]);
        let members = |index: usize| seen["hosts"][index]["members"].as_array().unwrap().len();
        (members(0) == 3 && members(1) == 3).then_some(seen)
    });
    assert_eq!(
        (&seen["name"], &seen["hosts"][0]["host"], &seen["hosts"][1]["host"]),
        (&json!("acme"), &json!("a"), &json!("b"))
    );
    for host in seen["hosts"].as_array().unwrap() {
        assert_eq!(host["state"], "alive", "{seen}");
        assert!(host["places"].as_object().is_some_and(|places| !places.is_empty()), "{seen}");
    }
    assert_eq!(seen["jobs"], json!([{"member": "endless", "running": 1, "waiting": 0}]));
    assert_eq!((&seen["waiting"], &seen["oldestWaitingSeconds"]), (&json!(0), &Value::Null));
    assert_eq!(seen["streams"].as_array().unwrap().len(), 6);
    let differs = |setting: &str| json!({"setting": setting, "groups": [["a"], ["b"]]});
    assert_eq!(seen["differences"], json!([differs("cluster.queued_jobs"), differs("limits")]));
    let printed = homes[1].run(&["cluster", "status"]);
    let printed = stdout(&printed);
    for part in ["alive", "endless", "1 running, 0 waiting", "guild_log", "limits: a | b"] {
        assert!(printed.contains(part), "{part}: {printed}");
    }

    let found = checks(&homes[1]);
    let of = |name: &str| found.get(name).unwrap_or_else(|| panic!("{name}: {found:?}"));
    let monitor = format!("{}/", nats.monitors()[0]);
    assert!(of(&monitor).1.contains("n1 is NATS 2."), "{found:?}");
    assert_eq!(of("guild_log").0, "usable");
    assert!(of("hosts").1.contains("a is alive; b is alive"), "{found:?}");
    assert_eq!(
        of("limits"),
        &("differs".to_owned(), "limits has another value here than at a; make them the same".to_owned())
    );
    assert!(!found.contains_key("roots") && !found.contains_key("clock"), "{found:?}");

    let figures = Endpoint::new(&a, "/metrics").send("GET", "").text();
    for figure in ["guild_cluster_hosts 2", "guild_cluster_jobs_waiting 0", "guild_cluster_takeovers_total 0"] {
        assert!(figures.contains(figure), "{figure}: {figures}");
    }
    let page = include_str!("../../docs/monitoring.md");
    let names = figures.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next());
    let names: Vec<_> = names.filter(|name| name.starts_with("guild_cluster")).collect();
    assert_eq!(names.len(), 9, "{names:?}");
    for name in names {
        assert!(page.contains(&format!("`{name}")), "docs/monitoring.md has no {name}");
    }
    let shown = Endpoint::new(&b, "/page/host").send("GET", "").text();
    for part in ["acme: 0 jobs wait for a host", "Differences between hosts", "KV_guild_hosts"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }

    // A host that has left, and the jobs that another one goes on with.
    stop_at_once(a);
    assert_eq!(b.at("endless").ended(&id)["status"], "failed");
    assert_eq!(state(&homes[1])["hosts"][0]["state"], "left");
    let figures = Endpoint::new(&b, "/metrics").send("GET", "").text();
    assert!(
        figures.contains("guild_cluster_takeovers_total 1") && figures.contains("guild_cluster_hosts 1"),
        "{figures}"
    );
}

#[test]
fn without_a_cluster_a_command_for_one_says_so_and_a_host_has_one_socket() {
    let mut home = Home::new();
    let file = home.write("guild.toml", "");
    home.set("GUILD_CONFIG", file.to_str().unwrap());
    let refused = home.run(&["cluster", "status"]);
    assert!(!refused.status.success());
    assert!(stderr(&refused).contains("has no [cluster]"), "{}", stderr(&refused));
    home.set("GUILD_CONFIG", "");
    let refused = stderr(&home.run(&["cluster", "status"]));
    assert!(refused.contains("there is no guild.toml") && refused.contains("with --config"), "{refused}");
    home.quick("quick");
    // Such a host pays for no cluster: it listens, and that is all.
    let host = home.serve_roster(&[]);
    wait_for("its listener to be its only socket", || (sockets(&host) == 1).then_some(()));
    let figures = Endpoint::new(&host, "/metrics").send("GET", "").text();
    assert!(!figures.contains("guild_cluster"), "{figures}");
    assert!(Endpoint::new(&host, "/page/host").send("GET", "").text().contains("This host runs alone."));
}

/// Limits the bytes of the stream of logs to so many more than there are.
async fn leave_room(nats: &Nats, more: i64) {
    let context = jetstream::new(async_nats::connect(nats.urls()).await.unwrap());
    let stream = context.get_stream("guild_log").await.unwrap();
    let info = stream.cached_info();
    let max_bytes = i64::try_from(info.state.bytes).unwrap() + more;
    context.update_stream(jetstream::stream::Config { max_bytes, ..info.config.clone() }).await.unwrap();
}

#[test]
fn a_full_stream_refuses_new_jobs_and_nothing_is_lost() {
    let nats = Nats::start(1);
    let homes = homes(&nats);
    let a = homes[0].serve_roster(&[]);
    let runtime = Runtime::new().unwrap();
    let client = a.at("quick");
    let before = client.start("before");
    client.ended(&before);
    runtime.block_on(leave_room(&nats, 20_000));
    let mut accepted = Vec::new();
    let refused = loop {
        match client.dispatch(json!({"description": "d", "task": "t".repeat(2000)})) {
            Ok(id) => accepted.push(id),
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused.code, -32000, "{}", refused.message);
    for part in ["guild_log is full", "nats stream edit guild_log --max-bytes"] {
        assert!(refused.message.contains(part), "{}", refused.message);
    }
    assert_eq!(client.status(&before).unwrap()["status"], "completed");
    let found = checks(&homes[0]);
    assert!(found["guild_log"].1.contains("a full stream refuses new jobs"), "{found:?}");
    // All that was accepted ends once there is room.
    runtime.block_on(leave_room(&nats, 100_000_000));
    for id in &accepted {
        assert_eq!(client.ended(id)["status"], "completed");
    }
    client.ended(&client.start("after"));
}

#[test]
fn a_host_with_another_key_is_refused_and_named() {
    let nats = Nats::start(1);
    let homes = homes(&nats);
    let a = homes[0].serve_roster(&[]);
    let config = fs::read_to_string(homes[1].path("guild.toml")).unwrap();
    let refused = || {
        let output = homes[1].run(&["serve", "--port", "0", "--members", homes[1].path("members").to_str().unwrap()]);
        assert!(!output.status.success());
        let said = stderr(&output);
        assert!(said.contains("the hosts a of this cluster have another key") && said.contains("copy both"), "{said}");
    };
    // Another cluster of the same key, at the same servers.
    homes[1].write("guild.toml", config.replace("name = \"acme\"", "name = \"beta\""));
    refused();
    homes[1].write("guild.toml", config);
    homes[1].write("acme.key", format!("{}\n", "5".repeat(64)));
    refused();
    assert_eq!(state(&homes[1])["unsealed"], json!(["a"]));
    let found = checks(&homes[1]);
    assert!(found["hosts"].1.contains("not sealed with this host's key"), "{found:?}");
    // The other host goes on.
    let id = a.at("quick").start("ends");
    assert_eq!(a.at("quick").ended(&id)["status"], "completed");
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_cluster_of_three_nodes_works_as_init_wrote_it() {
    let mut made = Made::new(3, "a,b", &[]);
    let homes = ["a", "b"].map(|name| made.host(name));
    let [a, b] = [homes[0].serve_roster(&[]), homes[1].serve_roster(&[])];
    let id = a.at("quick").start("ends");
    assert_eq!(a.at("quick").ended(&id)["status"], "completed");
    assert_eq!(b.at("quick").ended(&id)["status"], "completed");
    assert_eq!(a.at("quick").result(&id).unwrap(), b.at("quick").result(&id).unwrap());
    b.at("quick").delete(&id).unwrap();
    // A key, a file that is too large for a record, and a job that goes from host to host.
    let file = json!([{"path": "a.bin", "text": "x".repeat(400_000)}]);
    let dispatch = json!({"description": "d", "task": "t", "key": "once", "attachments": file});
    let [first, again] = [&a, &b].map(|host| host.at("endless").dispatch(dispatch.clone()).unwrap());
    assert_eq!(first, again);
    until_known(&b.at("endless"), &first, "running");
    stop_at_once(a);
    assert_eq!(b.at("endless").ended(&first)["status"], "failed");
    for node in 0..3 {
        let log = made.nats.log(node);
        assert!(!log.contains("Violation"), "{log}");
    }
}

#[test]
fn hosts_have_only_the_rights_that_they_need() {
    let mut made = Made::new(1, "a,b", &["--monitor-loopback"]);
    let home = made.host("a");
    let a = home.serve_roster(&[]);
    let id = a.at("quick").start("ends");
    assert_eq!(a.at("quick").ended(&id)["status"], "completed");
    // Nothing that the host does is denied.
    let log = made.nats.log(0);
    assert!(!log.contains("Violation"), "{log}");

    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let (own, other, admin) =
            (made.client("hosts/a", "a").await, made.client("hosts/b", "b").await, made.client("admin", "admin").await);
        let context = jetstream::new(own.clone());
        let stream = context.get_stream("guild_log").await.unwrap();
        assert!(stream.purge().await.is_err());
        assert!(stream.delete_message(1).await.is_err());
        assert!(context.delete_stream("guild_log").await.is_err());
        assert!(context.create_stream("other").await.is_err());
        assert!(context.update_stream(stream.cached_info().config.clone()).await.is_err());
        let publication = context.publish("$KV.guild_members.quick", "x".into()).await.unwrap();
        assert!(publication.await.is_err());
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Rollup", "all");
        let rollup = context.publish_with_headers("$KV.guild_memory.quick.x", headers, "x".into()).await.unwrap();
        let refused = rollup.await.unwrap_err().to_string();
        assert!(refused.contains("rollup"), "{refused}");
        // Another host's answers, and all subjects, are not for this one.
        for subject in ["_INBOX_b.>", ">", "guild.log.>"] {
            let mut heard = own.subscribe(subject).await.unwrap();
            own.flush().await.unwrap();
            admin.publish("_INBOX_b.x", "for b".into()).await.unwrap();
            admin.flush().await.unwrap();
            assert!(timeout(Duration::from_millis(300), heard.next()).await.is_err(), "{subject}");
        }
        assert!(own.request("_INBOX_b.x", "to b".into()).await.is_err());
        drop(other);
        let messages = jetstream::new(admin).get_stream("guild_log").await.unwrap().cached_info().state.messages;
        assert!(messages > 0);
    });
    let log = made.nats.log(0);
    for denied in ["STREAM.PURGE", "STREAM.DELETE", "STREAM.CREATE", "STREAM.UPDATE", "MSG.DELETE", "$KV.guild_members"]
    {
        assert!(log.contains(denied), "{denied}: {log}");
    }
    assert!(log.contains("Subscription Violation"), "{log}");

    // A command says so at once that needs the administrator.
    let seed = home.path("nats.nk");
    let (servers, seed, ca, key) =
        (made.servers.join(","), seed.to_str().unwrap(), home.path("ca.pem"), home.path("cluster.key"));
    let init = ["cluster", "init", "--servers", &servers, "--credentials", seed, "--ca", ca.to_str().unwrap()];
    let refused = made.home.run(&[&init[..], &["--key", key.to_str().unwrap(), "--replicas", "1"]].concat());
    assert!(!refused.status.success());
    assert!(stderr(&refused).contains("it may not publish to $JS.API.STREAM.CREATE"), "{}", stderr(&refused));

    // Commands with a host's credentials copy its jobs, and leave to the administrator what is the administrator's.
    let administrator = made.home.path("acme/admin/nats.nk");
    let backup = home.run(&["backup", "guild.tar.gz", "--members", home.path("members").to_str().unwrap()]);
    assert!(backup.status.success(), "{}", stderr(&backup));
    let members = home.path("members");
    let publish = ["cluster", "publish", "quick", "--members", members.to_str().unwrap()];
    let refused = home.run(&publish);
    assert!(!refused.status.success());
    assert!(stderr(&refused).contains("NATS denies this host"), "{}", stderr(&refused));
    for command in [&publish[..], &["cluster", "sweep"]] {
        let done = home.run(&[command, &["--credentials", administrator.to_str().unwrap()]].concat());
        assert!(done.status.success(), "{command:?}: {}", stderr(&done));
    }

    // A host with credentials of another host or of another cluster, or with none, says so.
    let b = made.host("b");
    let refused = |home: &Home| {
        let members = home.path("members");
        let output = home.run(&["serve", "--port", "0", "--members", members.to_str().unwrap()]);
        assert!(!output.status.success());
        stderr(&output)
    };
    fs::copy(made.home.path("acme/hosts/a/nats.nk"), b.path("nats.nk")).unwrap();
    let said = refused(&b);
    assert!(said.contains("`host` and `credentials` are of two hosts"), "{said}");
    let strange = Home::new();
    let elsewhere = strange.run(&["cluster", "init", "made", "--nodes", "n1", "--hosts", "a"]);
    assert!(elsewhere.status.success(), "{}", stderr(&elsewhere));
    fs::copy(strange.path("made/hosts/a/nats.nk"), b.path("nats.nk")).unwrap();
    let said = refused(&b);
    assert!(said.contains("NATS denies this host") && said.contains("`credentials`"), "{said}");
    fs::copy(strange.path("made/hosts/a/ca.pem"), b.path("ca.pem")).unwrap();
    let said = refused(&b);
    assert!(said.contains("certificate") && said.contains("[cluster]"), "{said}");
}

#[test]
fn init_writes_secrets_for_their_owner_alone_and_replaces_nothing() {
    let home = Home::new();
    let init = |nodes: &str, hosts: &str| {
        home.run(&["cluster", "init", "acme", "--name", "acme", "--nodes", nodes, "--hosts", hosts])
    };
    for (nodes, hosts, why) in [
        ("n1,n2", "a", "--nodes names 2 servers"),
        ("n1,n1,n2", "a", "n1 twice"),
        ("n1", "a,a", "a twice"),
        ("n1", "A", "lower-case"),
        ("n1/..", "a", "DNS name"),
    ] {
        let refused = init(nodes, hosts);
        assert!(!refused.status.success() && stderr(&refused).contains(why), "{why}: {}", stderr(&refused));
        assert!(!home.path("acme").exists());
    }
    let made = init("n1.example.org,n2.example.org,n3.example.org", "a,b");
    assert!(made.status.success(), "{}", stderr(&made));
    let (mut files, mut open) = (Vec::new(), vec![home.path("acme")]);
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { open.push(path) } else { files.push(path) }
        }
    }
    let is_secret = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "nk" || kind == "key");
    assert_eq!(files.iter().filter(|path| is_secret(path)).count(), 3 + 2 * 2 + 3, "{files:?}");
    for path in &files {
        assert_eq!(mode(path), if is_secret(path) { 0o600 } else { 0o644 }, "{}", path.display());
    }
    // No host has what the administrator has, and no node has any seed.
    let read = |path: &str| fs::read_to_string(home.path(path)).unwrap();
    let administrator = read("acme/admin/nats.nk");
    for path in files.iter().filter(|path| !path.starts_with(home.path("acme/admin"))) {
        assert!(!fs::read_to_string(path).unwrap().contains(administrator.trim()), "{}", path.display());
    }
    for node in ["n1", "n2", "n3"] {
        let text = read(&format!("acme/nodes/{node}.example.org/nats.conf"));
        for host in ["a", "b"] {
            assert!(!text.contains(read(&format!("acme/hosts/{host}/nats.nk")).trim()), "{text}");
        }
    }
    assert_eq!(read("acme/hosts/a/cluster.key"), read("acme/hosts/b/cluster.key"));
    assert_ne!(read("acme/hosts/a/nats.nk"), read("acme/hosts/b/nats.nk"));
    let again = init("n1", "a");
    assert!(!again.status.success() && stderr(&again).contains("acme is not empty"), "{}", stderr(&again));
    assert_eq!(read("acme/admin/nats.nk"), administrator);
}
