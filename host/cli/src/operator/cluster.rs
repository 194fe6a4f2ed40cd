//! `guild cluster`: sets a cluster of hosts up, and shows its state.

mod drain;
mod import;
mod publish;
mod setup;
mod status;
mod sweep;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use guild_cluster::{
    error::StoreError,
    link::{Link, Options},
    seal::Key,
    streams::Capacity,
};
use guild_config::{ClusterOptions, Config};
use guild_contract::text::hex;
use guild_fs::durable::{Survives, Write, open_dir, open_directory, replace_as};
use guild_roster::cluster_view::{seal_key, servers};

use crate::{
    args::operator::{Cluster, ClusterInit},
    failure::Failure,
    output::{print, tell},
};

/// The name of this command at the NATS servers.
const CLIENT: &str = "guild-cluster-init";
/// How long a command tries to append to a log.
const PATIENCE: Duration = Duration::from_secs(10);
/// The number of servers that have each message, unless the operator names another.
const REPLICAS: u8 = 3;
/// Bytes of a gibibyte.
const GIB: i64 = 1024 * 1024 * 1024;

/// `guild cluster`.
pub(crate) async fn cluster(args: Cluster) -> Result<(), Failure> {
    match args {
        Cluster::Init(args) => init(args).await,
        Cluster::Drain(args) => drain::drain(&args).await,
        Cluster::Import(args) => import::import(args).await,
        Cluster::Publish(args) => publish::publish(args).await,
        Cluster::Withdraw(args) => publish::withdraw(args).await,
        Cluster::Sweep(args) => sweep::sweep(args).await,
        Cluster::Status(args) => status::status(args).await,
    }
}

async fn init(args: ClusterInit) -> Result<(), Failure> {
    if let Some(directory) = &args.directory {
        return setup::write(directory, &args);
    }
    let ClusterInit { name, servers, credentials, ca, replicas, log_gib, blob_gib, key, .. } = args;
    let key = key.ok_or_else(|| Failure::error("--key names the file with the cluster's key".to_owned()))?;
    guild_config::check_cluster_name(&name).map_err(|why| Failure::error(format!("--name: {why}")))?;
    let options = Options { servers: servers.clone(), host: CLIENT.to_owned(), credentials, authority: ca.clone() };
    let link = Link::connect(&options).await.map_err(failed)?;
    let capacity = capacity(replicas.unwrap_or(REPLICAS), log_gib, blob_gib);
    link.create_streams(&capacity).await.map_err(failed)?;
    for stream in link.states().await.map_err(failed)? {
        tell(format_args!("the stream {} is there", stream.stream));
    }
    if !make_key(&key)? {
        tell(format_args!("the key {} is there already, and stays", key.display()));
        return Ok(());
    }
    let text = |text: &str| toml::Value::from(text);
    print(|out| {
        writeln!(out, "[cluster]\nname = {}\nservers = {}", text(&name), toml::Value::from(servers))?;
        writeln!(out, "monitor = [\"http://127.0.0.1:8222\"]\nkey_file = {}", text(&key.to_string_lossy()))?;
        ca.iter().try_for_each(|ca| writeln!(out, "ca = {}", text(&ca.to_string_lossy())))
    })?;
    tell(format_args!("this is for guild.toml of each host; each has its own `host`, `url` and `credentials` besides"));
    Ok(())
}

/// The cluster of a configuration.
fn table(config: &Config) -> Result<&ClusterOptions, Failure> {
    config.cluster.as_ref().ok_or_else(|| {
        let of = config.file.as_ref().map_or_else(
            || "there is no guild.toml in your configuration directory".to_owned(),
            |file| format!("{} has no [cluster]", file.display()),
        );
        Failure::error(format!("{of}; name the guild.toml of a host of the cluster with --config"))
    })
}

/// The connection of a command to the cluster of a configuration, and the cluster's key.
pub(super) async fn connect(
    config: &Config,
    credentials: Option<PathBuf>,
    client: &'static str,
) -> Result<(Link, Key), Failure> {
    let cluster = table(config)?;
    let key = seal_key(cluster).map_err(Failure::error)?;
    let own = servers(cluster);
    // Who has a host's credentials may hear the answers to that host only.
    let host = if credentials.is_some() { client.to_owned() } else { own.host.clone() };
    let options = Options { host, credentials: credentials.or_else(|| own.credentials.clone()), ..own };
    let link = Link::connect(&options).await.map_err(failed)?;
    Ok((link, key))
}

fn failed(error: StoreError) -> Failure {
    Failure::error(error.to_string())
}

/// Makes the cluster's key, and tells whether it did: a file that is there stays.
fn make_key(file: &Path) -> Result<bool, Failure> {
    let failed = |e: std::io::Error| Failure::error(format!("{}: {e}", file.display()));
    if file.try_exists().map_err(failed)? {
        return Ok(false);
    }
    let name = file.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| Failure::error(format!("--key {} names no file", file.display())))?;
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let dir = open_directory(directory).and_then(|dir| open_dir(&dir, ".")).map_err(failed)?;
    let how = Write { mode: 0o600, survives: Survives::PowerCut };
    replace_as(&dir, name, new_key()?.as_bytes(), how).map_err(failed)?;
    Ok(true)
}

/// A new key of a cluster, as its file has it.
fn new_key() -> Result<String, Failure> {
    let mut key = [0; 32];
    getrandom::fill(&mut key).map_err(|e| Failure::error(format!("no random number can be had: {e}")))?;
    Ok(format!("{}\n", hex(&key)))
}

/// The sizes of the streams.
fn capacity(replicas: u8, log_gib: u16, blob_gib: u16) -> Capacity {
    let bytes = |gib: u16| i64::from(gib) * GIB;
    let (log_bytes, blob_bytes) = (bytes(log_gib), bytes(blob_gib));
    Capacity { replicas: replicas.into(), log_bytes, blob_bytes, ..Capacity::default() }
}
