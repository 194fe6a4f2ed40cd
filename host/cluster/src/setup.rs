//! The configuration of a cluster's NATS servers, which `guild cluster init` writes: one account, one user for each host
//! with the least rights, and TLS for clients and between servers.
//!
//! All paths in it are relative to the directory in which `nats-server` is started.

use std::{
    net::{IpAddr, Ipv4Addr},
    str::FromStr,
};

use nkeys::KeyPair;

use crate::{
    error::StoreError,
    streams::{Capacity, NAMES},
};

/// The port for clients, if none is named. It is NATS' default.
const PORT: u16 = 4222;
/// The distance of a node's port for other nodes from its port for clients.
const ROUTE: u16 = 2000;
/// The distance of its port for monitoring.
const MONITOR: u16 = 4000;
/// The address of monitoring that only the server's own machine reaches.
const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// The port for clients, at most.
const MAX_PORT: u16 = u16::MAX - MONITOR;
/// The file with a node's certificate, the file with its key, and that with the certificate of the authority.
pub const FILES: [&str; 3] = ["node.pem", "node.key", "ca.pem"];

/// A NATS server of the cluster: `HOST` or `HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its DNS name or address.
    pub host: String,
    /// Its port for clients. Other nodes reach it at this port + 2000, and its monitoring is at this port + 4000.
    pub port: u16,
}

/// A user at NATS: the pair of keys by which a client shows who it is.
#[derive(Clone)]
pub struct User {
    /// The secret, which only the client has.
    pub seed: String,
    /// The public key, which the servers have.
    pub public: String,
}

/// A cluster whose servers are to be configured.
pub struct Setup<'a> {
    /// The name of the cluster.
    pub name: &'a str,
    /// Its NATS servers.
    pub nodes: &'a [Node],
    /// The hosts by their names.
    pub hosts: &'a [(String, User)],
    /// The user who makes streams and publishes members.
    pub administrator: &'a User,
    /// The sizes of the streams.
    pub capacity: Capacity,
    /// Where the servers tell about themselves.
    pub monitoring: Monitoring,
}

/// Where a server tells about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Monitoring {
    /// At the addresses at which it listens for clients, with its certificate.
    Everywhere,
    /// At the loopback address, without encryption.
    Loopback,
}

impl FromStr for Node {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("{text:?} {why}; name a node as HOST or HOST:PORT, such as n1.example.org");
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, port)) => (host, Some(port.trim_start_matches(':'))),
            None if text.parse::<IpAddr>().is_ok() => (text, None),
            None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
        let is_name = !host.is_empty() && host.len() <= 253 && host.chars().all(is_plain) && !host.starts_with('-');
        if !is_name && host.parse::<IpAddr>().is_err() {
            return Err(wrong("has to be a DNS name in lower case, or an address"));
        }
        let port = port.map_or(Ok(PORT), |port| port.parse().map_err(|_| wrong("has a port that is no number")))?;
        match (1..=MAX_PORT).contains(&port) {
            true => Ok(Self { host: host.to_owned(), port }),
            false => Err(wrong(&format!("has a port that is not between 1 and {MAX_PORT}"))),
        }
    }
}

impl Node {
    /// The name of the server, and of the directory with its files: of letters, digits, `.` and `-`.
    pub fn name(&self) -> String {
        let host = self.host.replace(':', "-");
        if self.port == PORT { host } else { format!("{host}-{}", self.port) }
    }

    /// The address for hosts.
    pub fn url(&self) -> String {
        format!("tls://{}", self.at(self.port))
    }

    /// The address at which hosts ask about its settings.
    pub fn monitor(&self, monitoring: Monitoring) -> String {
        let port = self.port + MONITOR;
        match monitoring {
            Monitoring::Everywhere => format!("https://{}", self.at(port)),
            Monitoring::Loopback => format!("http://{LOOPBACK}:{port}"),
        }
    }

    fn at(&self, port: u16) -> String {
        if self.host.contains(':') { format!("[{}]:{port}", self.host) } else { format!("{}:{port}", self.host) }
    }

    /// The addresses that it listens at: all of the machine, or the loopback address that it was named by.
    fn listen(&self, port: u16) -> String {
        match self.host.parse::<IpAddr>() {
            Ok(address) if address.is_loopback() => self.at(port),
            Ok(IpAddr::V6(_)) => format!("[::]:{port}"),
            _ => format!("0.0.0.0:{port}"),
        }
    }
}

impl User {
    /// A new user.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no random number.
    pub fn new() -> Result<Self, StoreError> {
        let pair = KeyPair::new_user();
        let seed = pair.seed().map_err(|e| StoreError::Damaged(format!("no user can be made: {e}")))?;
        Ok(Self { seed, public: pair.public_key() })
    }
}

impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "User({})", self.public)
    }
}

impl Setup<'_> {
    /// `nats.conf` of a node.
    pub fn configuration(&self, node: &Node) -> String {
        let [certificate, key, authority] = FILES;
        let gibibytes = |bytes: i64| (bytes / (1024 * 1024 * 1024)).max(1);
        let Capacity { log_bytes, blob_bytes, other_bytes, .. } = self.capacity;
        // The other streams, and one to spare.
        let room = gibibytes(log_bytes) + gibibytes(blob_bytes) + 5 * gibibytes(other_bytes);
        let users: String = self.hosts.iter().map(|(host, user)| user_of(host, user)).collect();
        let mut text = format!(
            "# The NATS server {name} of the cluster {cluster}, made by `guild cluster init`. Its paths are relative to the\n\
             # directory in which nats-server is started.\n\
             server_name: \"{name}\"\n\
             listen: \"{listen}\"\n\
             {monitor}\n\
             max_payload: 1MiB\n\
             tls {{ cert_file: \"{certificate}\", key_file: \"{key}\", timeout: 5 }}\n\
             # A write is on the disk before it is acknowledged.\n\
             jetstream {{ store_dir: \"jetstream\", sync_interval: always, max_mem: 64MiB, max_file: {room}GiB }}\n",
            name = node.name(),
            cluster = self.name,
            listen = node.listen(node.port),
            monitor = match self.monitoring {
                Monitoring::Everywhere => format!("https: \"{}\"", node.listen(node.port + MONITOR)),
                Monitoring::Loopback => format!("http: \"{LOOPBACK}:{}\"", node.port + MONITOR),
            },
        );
        if self.nodes.len() > 1 {
            let routes = self.nodes.iter().map(|node| format!("\"tls://{}\"", node.at(node.port + ROUTE)));
            text.push_str(&format!(
                "cluster {{\n  name: \"{cluster}\"\n  listen: \"{listen}\"\n  advertise: \"{advertise}\"\n  no_advertise: true\n  \
                 tls {{ cert_file: \"{certificate}\", key_file: \"{key}\", ca_file: \"{authority}\", timeout: 5 }}\n  \
                 routes: [{routes}]\n}}\n",
                cluster = self.name,
                listen = node.listen(node.port + ROUTE),
                advertise = node.at(node.port + ROUTE),
                routes = routes.collect::<Vec<_>>().join(", "),
            ));
        }
        text.push_str(&format!(
            "accounts {{\n  GUILD {{\n    jetstream: enabled\n    users: [\n      \
             # The administrator makes streams and publishes members.\n      {{ nkey: \"{}\" }}\n{users}    ]\n  }}\n}}\n",
            self.administrator.public
        ));
        text
    }
}

/// A host's user. Whatever is not named here is denied: to make, change, purge or delete streams, to delete messages, to
/// publish members, and to read what is sent to another host.
fn user_of(host: &str, user: &User) -> String {
    let mut publish: Vec<String> =
        ["guild.log.>", "guild.blob.>", "$KV.guild_hosts.*", "$KV.guild_memory.>", "$KV.guild_keys.*"]
            .map(str::to_owned)
            .into();
    for stream in NAMES {
        publish.push(format!("$JS.API.STREAM.INFO.{stream}"));
        publish.push(format!("$JS.API.DIRECT.GET.{stream}"));
        publish.push(format!("$JS.API.STREAM.MSG.GET.{stream}"));
        publish.push(format!("$JS.API.CONSUMER.CREATE.{stream}"));
        publish.push(format!("$JS.API.CONSUMER.CREATE.{stream}.>"));
        publish.push(format!("$JS.FC.{stream}.>"));
    }
    let publish: String = publish.iter().map(|subject| format!("            \"{subject}\"\n")).collect();
    format!(
        "      # The host {host}.\n      {{\n        nkey: \"{}\"\n        permissions {{\n          \
         publish {{ allow: [\n{publish}          ] }}\n          \
         subscribe {{ allow: [\"{}.>\"] }}\n        }}\n      }}\n",
        user.public,
        inbox(host)
    )
}

/// The beginning of the subjects on which hosts are answered.
pub(crate) const INBOX: &str = "_INBOX_";

/// The beginning of the subjects on which a host is answered, which no other host may read.
pub(crate) fn inbox(host: &str) -> String {
    format!("{INBOX}{host}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::{BLOBS, HOSTS, KEYS, LOG, MEMORY};

    #[test]
    fn a_node_is_named_by_its_host_and_port() {
        let named = |text: &str| {
            text.parse::<Node>().map(|node| (node.name(), node.url(), node.monitor(Monitoring::Everywhere)))
        };
        let of = |name: &str, url: &str, monitor: &str| Ok((name.to_owned(), url.to_owned(), monitor.to_owned()));
        assert_eq!(
            named("n1.example.org"),
            of("n1.example.org", "tls://n1.example.org:4222", "https://n1.example.org:8222")
        );
        assert_eq!(named("127.0.0.1:5000"), of("127.0.0.1-5000", "tls://127.0.0.1:5000", "https://127.0.0.1:9000"));
        assert_eq!(named("[fd00::1]:5000"), of("fd00--1-5000", "tls://[fd00::1]:5000", "https://[fd00::1]:9000"));
        for wrong in ["", "N1", "n1/..", "n1:x", "n1:0", "n1:65000", "tls://n1", "-n1", "a b"] {
            assert!(wrong.parse::<Node>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_host_may_publish_to_its_subjects_only() {
        let user = User::new().unwrap();
        assert!(
            user.seed.starts_with("SU") && user.public.starts_with('U') && !format!("{user:?}").contains(&user.seed)
        );
        let text = user_of("a", &user);
        for denied in
            ["STREAM.CREATE", "STREAM.UPDATE", "PURGE", "STREAM.DELETE", "MSG.DELETE", "$KV.guild_members", "SNAPSHOT"]
        {
            assert!(!text.contains(denied), "{denied}");
        }
        assert!(text.contains("subscribe { allow: [\"_INBOX_a.>\"] }"), "{text}");
        assert!(!text.contains(&user.seed));
        // Each subject that hosts write to has its right.
        for stream in [LOG, BLOBS, HOSTS, MEMORY, KEYS] {
            let subjects = crate::streams::subjects(stream);
            assert!(text.contains(subjects.trim_end_matches('>')), "{subjects}");
        }
    }
}
