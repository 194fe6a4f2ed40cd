//! `guild cluster init DIR`: writes the files of a new cluster, for its NATS servers, its hosts and its administrator.

use std::{
    collections::BTreeSet,
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::Path,
};

use guild_cluster::setup::{FILES, Monitoring, Node, Setup, User};
use guild_config::{check_cluster_name, shell_word};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose};

use super::{REPLICAS, capacity, new_key};
use crate::{
    args::operator::ClusterInit,
    failure::Failure,
    operator::tls::{parameters, refused},
    output::{print, tell},
};

/// The file with the seed of a user at NATS.
const CREDENTIALS: &str = "nats.nk";
/// The file with the cluster's key.
const KEY: &str = "cluster.key";
/// The certificate of the authority.
const AUTHORITY: &str = "ca.pem";

/// Writes all files into a directory that is empty or does not exist.
pub(super) fn write(directory: &Path, args: &ClusterInit) -> Result<(), Failure> {
    let ClusterInit { nodes, hosts, days, name, log_gib, blob_gib, .. } = args;
    check(nodes, hosts, name)?;
    let copies = u8::try_from(nodes.len()).unwrap_or(u8::MAX);
    let replicas = args.replicas.unwrap_or(REPLICAS.min(copies));
    if replicas > copies {
        return Err(Failure::error(format!("--replicas {replicas} is more than the {copies} servers of --nodes")));
    }
    make_empty(directory)?;
    let user = || User::new().map_err(|e| Failure::error(e.to_string()));
    let hosts: Vec<(String, User)> =
        hosts.iter().map(|host| Ok((host.clone(), user()?))).collect::<Result<_, Failure>>()?;
    let (administrator, key) = (user()?, new_key()?);
    let authority = Authority::new(name, *days)?;
    let capacity = capacity(replicas, *log_gib, *blob_gib);
    let monitoring = if args.monitor_loopback { Monitoring::Loopback } else { Monitoring::Everywhere };
    let setup = Setup { name, nodes, hosts: &hosts, administrator: &administrator, capacity, monitoring };
    let [certificate_file, key_file, authority_file] = FILES;
    for node in nodes {
        let own = Place::make(directory, "nodes", &node.name())?;
        let (certificate, secret) = authority.sign(node, *days)?;
        own.public("nats.conf", &setup.configuration(node))?;
        own.public(certificate_file, &certificate)?;
        own.secret(key_file, &secret)?;
        own.public(authority_file, &authority.certificate)?;
    }
    let servers: Vec<String> = nodes.iter().map(Node::url).collect();
    let mut monitors: Vec<String> = nodes.iter().map(|node| node.monitor(monitoring)).collect();
    monitors.dedup();
    for (host, user) in &hosts {
        let own = Place::make(directory, "hosts", host)?;
        own.secret(CREDENTIALS, &format!("{}\n", user.seed))?;
        own.secret(KEY, &key)?;
        own.public(AUTHORITY, &authority.certificate)?;
        let text = |text: &str| toml::Value::from(text);
        let (servers, monitors) = (toml::Value::from(servers.clone()), toml::Value::from(monitors.clone()));
        let table = format!(
            "# The files that this names are beside guild.toml.\n[cluster]\nname = {}\nhost = {}\nservers = {servers}\nmonitor = {monitors}\n\
             credentials = \"{CREDENTIALS}\"\nca = \"{AUTHORITY}\"\nkey_file = \"{KEY}\"\n\
             # The address of this host for the other hosts:\n# url = \"https://...\"\n",
            text(name),
            text(host)
        );
        own.public("guild.toml", &table)?;
    }
    let own = Place::make(directory, "", "admin")?;
    own.secret(CREDENTIALS, &format!("{}\n", administrator.seed))?;
    own.secret(KEY, &key)?;
    own.public(AUTHORITY, &authority.certificate)?;
    own.secret("ca.key", &authority.issuer.key().serialize_pem())?;
    tell(format_args!(
        "copy each directory of {0}/nodes to the machine of that NATS server, and start `nats-server --config nats.conf` in \
         it; copy each directory of {0}/hosts beside that host's guild.toml, with its lines in it; keep {0}/admin for \
         yourself. Once the servers run, make the streams:",
        directory.display()
    ));
    let admin = directory.join("admin");
    let file = |file: &str| shell_word(&admin.join(file));
    print(|out| {
        writeln!(
            out,
            "guild cluster init --name {name} --servers {} --credentials {} --ca {} --key {} --replicas {replicas} --log-gib \
             {log_gib} --blob-gib {blob_gib}",
            servers.join(","),
            file(CREDENTIALS),
            file(AUTHORITY),
            file(KEY),
        )
    })?;
    Ok(())
}

/// Checks the names.
fn check(nodes: &[Node], hosts: &[String], name: &str) -> Result<(), Failure> {
    check_cluster_name(name).map_err(|why| Failure::error(format!("--name: {why}")))?;
    if nodes.len().is_multiple_of(2) {
        let count = nodes.len();
        return Err(Failure::error(format!(
            "--nodes names {count} servers; name one, three or five: of an even number, half may not fail"
        )));
    }
    let mut seen = BTreeSet::new();
    if let Some(twice) = nodes.iter().map(Node::name).find(|name| !seen.insert(name.clone())) {
        return Err(Failure::error(format!("--nodes names {twice} twice")));
    }
    let mut seen = BTreeSet::new();
    for host in hosts {
        check_cluster_name(host).map_err(|why| Failure::error(format!("--hosts: {why}")))?;
        if !seen.insert(host) {
            return Err(Failure::error(format!("--hosts names {host} twice; each host has a name of its own")));
        }
    }
    Ok(())
}

/// Makes the directory, unless it is there and empty.
fn make_empty(directory: &Path) -> Result<(), Failure> {
    let failed = |e: io::Error| Failure::error(format!("{}: {e}", directory.display()));
    match fs::read_dir(directory) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(Failure::error(format!(
                "{} is not empty, and nothing in it is replaced; name a new directory",
                directory.display()
            ))),
        },
        Err(e) if e.kind() == io::ErrorKind::NotFound => fs::create_dir_all(directory).map_err(failed),
        Err(e) => Err(failed(e)),
    }
}

/// A new directory, which only its owner may enter.
struct Place(std::path::PathBuf);

impl Place {
    fn make(directory: &Path, kind: &str, name: &str) -> Result<Self, Failure> {
        let path = directory.join(kind).join(name);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(|e| Failure::error(format!("{}: {e}", path.display())))?;
        Ok(Self(path))
    }

    fn public(&self, name: &str, text: &str) -> Result<(), Failure> {
        self.write(name, text, 0o644)
    }

    fn secret(&self, name: &str, text: &str) -> Result<(), Failure> {
        self.write(name, text, 0o600)
    }

    fn write(&self, name: &str, text: &str, mode: u32) -> Result<(), Failure> {
        let path = self.0.join(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path);
        let written = file.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
        written.map_err(|e| Failure::error(format!("{}: {e}", path.display())))
    }
}

/// The authority that signs the certificates of the NATS servers. Servers take others with such a certificate for nodes, so
/// nobody else gets one.
struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str, days: u16) -> Result<Self, Failure> {
        let names = [format!("NATS servers of {name}")];
        let failed = |e: rcgen::Error| refused(&names, &e);
        let mut params = parameters(&[], &[], days)?;
        params.distinguished_name.push(rcgen::DnType::CommonName, format!("NATS servers of {name}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.self_signed(&key).map_err(failed)?.pem();
        Ok(Self { certificate, issuer: Issuer::new(params, key) })
    }

    /// The certificate of a node and its key. A node is a client of the other nodes.
    fn sign(&self, node: &Node, days: u16) -> Result<(String, String), Failure> {
        let names = [node.host.clone()];
        let failed = |e: rcgen::Error| refused(&names, &e);
        let usages = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let mut params: CertificateParams = parameters(&names, &usages, days)?;
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }
}
