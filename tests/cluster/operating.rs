//! A cluster as its operator sets it up: `guild cluster init`, with TLS, credentials and the rights of hosts.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use async_nats::{Client, ConnectOptions, jetstream};
use futures::StreamExt as _;
use guild_fakes::{Nats, free_node_ports};
use tokio::{runtime::Runtime, time::timeout};

use crate::support::{
    host::Home,
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
    fn new(nodes: usize, hosts: &str) -> Self {
        let home = Home::new();
        let ports = free_node_ports(nodes);
        let names: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let names = names.join(",");
        let sizes = ["--log-gib", "1", "--blob-gib", "1"];
        let init = ["cluster", "init", "acme", "--name", "acme", "--nodes", &names, "--hosts", hosts];
        let made = home.run(&[&init[..], &sizes].concat());
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

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_cluster_of_three_nodes_works_as_init_wrote_it() {
    let made = Made::new(3, "a,b");
    let homes = ["a", "b"].map(|name| made.host(name));
    let [a, b] = [homes[0].serve_roster(&[]), homes[1].serve_roster(&[])];
    let id = a.at("quick").start("ends");
    assert_eq!(a.at("quick").ended(&id)["status"], "completed");
    assert_eq!(b.at("quick").ended(&id)["status"], "completed");
    assert_eq!(a.at("quick").result(&id).unwrap(), b.at("quick").result(&id).unwrap());
    b.at("quick").delete(&id).unwrap();
    a.stop();
}

#[test]
fn hosts_have_only_the_rights_that_they_need() {
    let mut made = Made::new(1, "a,b");
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

    // A host with credentials of another cluster, or none, says so.
    let strange = Home::new();
    let elsewhere = strange.run(&["cluster", "init", "made", "--nodes", "n1", "--hosts", "a"]);
    assert!(elsewhere.status.success(), "{}", stderr(&elsewhere));
    let b = made.host("b");
    let refused = |home: &Home| {
        let members = home.path("members");
        let output = home.run(&["serve", "--port", "0", "--members", members.to_str().unwrap()]);
        assert!(!output.status.success());
        stderr(&output)
    };
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
