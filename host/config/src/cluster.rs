//! Reads `[cluster]`: the cluster of hosts that this host belongs to.

use std::{
    net::IpAddr,
    num::NonZeroU32,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;
use toml::Spanned;
use url::Url;

use crate::{
    key_source::KeySource,
    value::{Wrong, key_source, text},
};

/// The seconds of `silent_seconds`: the least, and the default. An election of NATS takes up to 12 s.
const SILENT_SECONDS: (u64, u64) = (25, 30);
/// The seconds of `stop_seconds`: the least, and the default.
const STOP_SECONDS: (u64, u64) = (15, 20);
/// The seconds by which a host stops before others take its jobs over, at least.
const MARGIN_SECONDS: u64 = 5;
/// The default of `queued_jobs`.
const QUEUED_JOBS: usize = 100_000;
/// The most characters of the name of a cluster or of a host in it.
const NAME_CHARS: usize = 64;

/// The cluster of hosts that this host belongs to. Its hosts take tasks for one another and answer
/// for one another's jobs, by way of NATS JetStream. Without this table, the host is on its own.
#[derive(Deserialize)]
pub(crate) struct WrittenCluster {
    /// The name of the cluster, the same at each of its hosts: lower-case letters, digits and `-`.
    name: Spanned<String>,
    /// The addresses of the NATS servers: `tls://HOST:PORT`, or `nats://HOST:PORT` at a loopback address.
    servers: Vec<Spanned<String>>,
    /// The addresses at which the NATS servers tell about themselves (`https` or `http` in nats.conf), such as
    /// `https://HOST:8222`. The host does not start with a server that may lose what it acknowledged.
    monitor: Vec<Spanned<String>>,
    /// The file with the credentials of this host at NATS. Servers at loopback addresses may need none.
    credentials: Option<PathBuf>,
    /// The certificate of the authority that signed those of the NATS servers. Without this key, it is one that the
    /// system trusts.
    ca: Option<PathBuf>,
    /// The environment variable with the cluster's key: 32 bytes in hexadecimal digits, the same at each host. It seals
    /// what hosts read from NATS and carry out.
    key_env: Option<Spanned<String>>,
    /// A file with the cluster's key, in place of `key_env`.
    key_file: Option<Spanned<PathBuf>>,
    /// The name of this host in the cluster, which no other host has. Without this key, it is the name of the machine.
    host: Option<Spanned<String>>,
    /// The address at which the other hosts reach this one: `https://HOST:PORT`, or `http://HOST:PORT` at a loopback
    /// address.
    url: Option<Spanned<String>>,
    /// The seconds for which this host has to be silent before the others take its jobs over, at least 25: elections of
    /// NATS silence a host that is well for up to 12. Default: `30`.
    silent_seconds: Option<Spanned<u64>>,
    /// The seconds after which this host, if NATS does not acknowledge that it lives, begins no job, no model request and
    /// no tool call with an effect: at least 15, and at least 5 less than `silent_seconds`. Default: `20`.
    stop_seconds: Option<Spanned<u64>>,
    /// The most jobs of the cluster that wait for a place. This host refuses a dispatch beyond it (-32000). Default:
    /// `100000`.
    queued_jobs: Option<NonZeroU32>,
}

/// `[cluster]` of guild.toml.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterOptions {
    /// The name of the cluster.
    pub name: String,
    /// The NATS servers.
    pub servers: Vec<Url>,
    /// Where the NATS servers tell about themselves.
    pub monitor: Vec<Url>,
    /// The file with the credentials of this host at NATS.
    pub credentials: Option<PathBuf>,
    /// The certificate of the authority of the NATS servers, if it is not one of the system's.
    pub ca: Option<PathBuf>,
    /// The source of the cluster's key.
    pub key: KeySource,
    /// The name of this host in the cluster.
    pub host: String,
    /// The address at which the other hosts reach this one.
    pub url: Option<Url>,
    /// How long this host has to be silent before the others take its jobs over.
    pub silent: Duration,
    /// How long after its last acknowledged sign of life this host still begins something.
    pub stop: Duration,
    /// The most jobs of the cluster that wait for a place.
    pub queued_jobs: usize,
}

/// Bytes of the cluster's key.
pub const CLUSTER_KEY_BYTES: usize = 32;

impl ClusterOptions {
    /// The cluster's key, which is kept as hexadecimal digits.
    ///
    /// # Errors
    ///
    /// Returns a sentence that says what to do when the key cannot be read or is no key.
    pub fn read_key(&self) -> Result<[u8; CLUSTER_KEY_BYTES], String> {
        let secret = self.key.read().map_err(|why| format!("[cluster]: {why}"))?;
        let digits = secret.expose().as_bytes();
        let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
        let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
        bytes.filter(|_| digits.len().is_multiple_of(2)).and_then(|bytes| bytes.try_into().ok()).ok_or_else(|| {
            format!(
                "[cluster]: the key in {} is not of {} hexadecimal digits; copy it from another host",
                self.key,
                2 * CLUSTER_KEY_BYTES
            )
        })
    }
}

impl WrittenCluster {
    pub(crate) fn read(written: Spanned<Self>, base: &Path) -> Result<ClusterOptions, Wrong> {
        let span = written.span();
        let cluster = written.into_inner();
        let missing = |why: &str| Wrong::at(span.clone(), why.to_owned());
        let key = key_source("cluster", cluster.key_env, cluster.key_file, base)?.ok_or_else(|| {
            missing(
                "[cluster] needs the cluster's key: name it in `key_env` or `key_file`; `guild cluster init` makes one",
            )
        })?;
        if cluster.servers.is_empty() {
            return Err(missing("cluster.servers: name at least one NATS server, such as \"nats://127.0.0.1:4222\""));
        }
        if cluster.monitor.is_empty() {
            return Err(missing("cluster.monitor: name at least one address, such as \"http://127.0.0.1:8222\""));
        }
        let servers = cluster.servers.iter().map(server);
        let monitor = cluster.monitor.iter().map(|server| http("monitor", server));
        let host = match cluster.host {
            Some(host) => name("host", host)?,
            None => machine().ok_or_else(|| missing("cluster.host: the machine has no name; write one"))?,
        };
        let silent = seconds("silent_seconds", cluster.silent_seconds.as_ref(), SILENT_SECONDS)?;
        let stop = seconds("stop_seconds", cluster.stop_seconds.as_ref(), STOP_SECONDS)?;
        if stop.saturating_add(MARGIN_SECONDS) > silent {
            return Err(missing(&format!(
                "cluster.stop_seconds: {stop} has to be at least {MARGIN_SECONDS} less than cluster.silent_seconds, {silent}: \
                 a host stops before others take its jobs over"
            )));
        }
        Ok(ClusterOptions {
            name: name("name", cluster.name)?,
            servers: servers.collect::<Result<_, _>>()?,
            monitor: monitor.collect::<Result<_, _>>()?,
            credentials: cluster.credentials.map(|path| base.join(path)),
            ca: cluster.ca.map(|path| base.join(path)),
            key,
            host,
            url: cluster.url.as_ref().map(own_url).transpose()?,
            silent: Duration::from_secs(silent),
            stop: Duration::from_secs(stop),
            queued_jobs: cluster.queued_jobs.map_or(QUEUED_JOBS, |jobs| jobs.get() as usize),
        })
    }
}

/// The name of a cluster, or of a host in it: a part of NATS subjects and of files' names.
fn name(key: &str, written: Spanned<String>) -> Result<String, Wrong> {
    let span = written.span();
    let name = text(&format!("cluster.{key}"), written)?;
    match check_cluster_name(&name) {
        Ok(()) => Ok(name),
        Err(why) => Err(Wrong::at(span, format!("cluster.{key}: {why}"))),
    }
}

/// Checks the name of a cluster, or of a host in it.
///
/// # Errors
///
/// Returns the rule that the name breaks.
pub fn check_cluster_name(name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let begins_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    match begins_well && name.len() <= NAME_CHARS && name.chars().all(is_plain) {
        true => Ok(()),
        false => Err(format!(
            "{name:?} has to be of lower-case letters, digits and '-', and to begin with a letter or digit; it has at most \
             {NAME_CHARS} characters"
        )),
    }
}

/// A number of seconds under the key `key`, with its least and its default.
fn seconds(key: &str, written: Option<&Spanned<u64>>, (least, default): (u64, u64)) -> Result<u64, Wrong> {
    let Some(written) = written else { return Ok(default) };
    let seconds = *written.get_ref();
    let why = || format!("cluster.{key}: {seconds} has to be at least {least}: an election of NATS takes up to 12 s");
    if seconds < least { Err(Wrong::at(written.span(), why())) } else { Ok(seconds) }
}

/// The name of the machine up to its first dot, as a name of a host.
fn machine() -> Option<String> {
    let full = rustix::system::uname().nodename().to_string_lossy().to_lowercase();
    let name: String = full.chars().take_while(|c| *c != '.').take(NAME_CHARS).collect();
    (!name.is_empty()).then_some(name)
}

/// An address of `cluster.servers`: encrypted, unless it is a loopback address.
fn server(written: &Spanned<String>) -> Result<Url, Wrong> {
    let wrong = |why: &str| Wrong::at(written.span(), format!("cluster.servers: {:?} {why}", written.get_ref()));
    let url: Url = written.get_ref().parse().map_err(|_| wrong("is not a URL, such as tls://n1.example.org:4222"))?;
    match url.scheme() {
        "tls" => Ok(url),
        "nats" if is_loopback(&url) => Ok(url),
        _ => Err(wrong("must begin with tls:// (nats:// is for loopback addresses)")),
    }
}

/// `cluster.url`: encrypted, unless it is a loopback address, since callers' tokens are passed on to it.
fn own_url(written: &Spanned<String>) -> Result<Url, Wrong> {
    let url = http("url", written)?;
    if url.scheme() == "https" || is_loopback(&url) {
        return Ok(url);
    }
    let why =
        format!("cluster.url: {:?} must begin with https:// (http:// is for loopback addresses)", written.get_ref());
    Err(Wrong::at(written.span(), why))
}

/// An address of HTTP under the key `key`.
fn http(key: &str, written: &Spanned<String>) -> Result<Url, Wrong> {
    let wrong = |why: &str| Wrong::at(written.span(), format!("cluster.{key}: {:?} {why}", written.get_ref()));
    let url: Url = written.get_ref().parse().map_err(|_| wrong("is not a URL, such as http://n1.example.org:8222"))?;
    match url.scheme() {
        "http" | "https" if url.host().is_some() => Ok(url),
        _ => Err(wrong("must begin with http:// or https://")),
    }
}

/// Whether a URL is at this machine. A URL of a scheme that browsers do not know has its host as a text.
pub fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
