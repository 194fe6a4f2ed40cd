//! Real NATS servers on loopback addresses, whose processes a test kills, pauses and restarts.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use async_nats::jetstream::{self, consumer::pull::OrderedConfig};
use futures::StreamExt as _;
use rustix::process::{Pid, Signal, kill_process};

use crate::free_port;

/// The server's version, for which `cargo xtask nats` has the checksum.
const VERSION: &str = "2.15.1";
/// The time that servers have until they are ready, on a machine under load.
const PATIENCE: Duration = Duration::from_secs(60);
/// The interval between two looks at a server that starts.
const LOOK: Duration = Duration::from_millis(20);

/// The program `nats-server`: `$GUILD_NATS_SERVER`, or the one that `cargo xtask nats` has unpacked.
pub fn nats_server() -> Option<PathBuf> {
    let own = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/nats").join(format!("nats-server-{VERSION}"));
    let program = std::env::var_os("GUILD_NATS_SERVER").map_or_else(own, PathBuf::from);
    program.is_file().then_some(program)
}

/// A NATS cluster of one node or more with JetStream, in a temporary directory. An acknowledged write is on the disk
/// (`sync_interval: always`). The processes are killed when this is dropped.
pub struct Nats {
    nodes: Vec<Node>,
    _directory: tempfile::TempDir,
}

/// A message of a stream, without its payload.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Its subject.
    pub subject: String,
    /// Its sequence in the stream.
    pub sequence: u64,
    /// Its headers; the last value of each.
    pub headers: BTreeMap<String, String>,
}

struct Node {
    /// The directory in which the server is started.
    directory: PathBuf,
    config: PathBuf,
    log: PathBuf,
    port: u16,
    /// The port of its monitoring over HTTP, if there is one.
    monitor: Option<u16>,
    process: Option<Child>,
}

impl Nats {
    /// Starts the nodes `n1`, `n2`, and so on, and waits until they take requests.
    ///
    /// # Panics
    /// Where there is no server, or it does not start.
    pub fn start(nodes: usize) -> Self {
        Self::start_with(nodes, "always")
    }

    /// Like [`Self::start`], with another `sync_interval`.
    ///
    /// # Panics
    /// Where there is no server, or it does not start.
    #[allow(clippy::expect_used, clippy::panic, reason = "a test without a server cannot continue")]
    pub fn start_with(nodes: usize, sync_interval: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let ports: Vec<_> = (0..nodes * 3).map(|_| free_port()).collect();
        let routes: Vec<_> = ports.iter().skip(2).step_by(3).map(|port| format!("nats://127.0.0.1:{port}")).collect();
        let describe = |(index, ports): (usize, &[u16])| {
            let [port, monitor, route] = ports else { panic!("three ports for each node") };
            let name = format!("n{}", index + 1);
            let place = |what: &str| directory.path().join(format!("{name}{what}"));
            let mut config = format!(
                "server_name: {name}\nlisten: 127.0.0.1:{port}\nhttp: 127.0.0.1:{monitor}\nlog_file: {:?}\n\
                 jetstream: {{ store_dir: {:?}, sync_interval: {sync_interval}, max_mem: 256MiB, max_file: 8GiB }}\n",
                place(".log"),
                place("")
            );
            if nodes > 1 {
                let routes = routes.join(", ");
                config.push_str(&format!(
                    "cluster: {{ name: guild, listen: 127.0.0.1:{route}, routes: [{routes}], no_advertise: true }}\n"
                ));
            }
            fs::write(place(".conf"), config).expect("a configuration");
            let at = directory.path().to_owned();
            let (config, log) = (place(".conf"), place(".log"));
            Node { directory: at, config, log, port: *port, monitor: Some(*monitor), process: None }
        };
        let nodes = ports.chunks(3).enumerate().map(describe).collect();
        Self::run(nodes, directory)
    }

    /// Starts a node in each of these directories, on the `nats.conf` in it, with this port for clients; and waits until
    /// all accept connections.
    ///
    /// # Panics
    /// Where there is no server, or it does not start.
    #[allow(clippy::expect_used, reason = "a test without a server cannot continue")]
    pub fn start_in(directories: &[(PathBuf, u16)]) -> Self {
        let logs = tempfile::tempdir().expect("a temporary directory");
        let node = |(directory, port): &(PathBuf, u16)| {
            let log = logs.path().join(format!("{port}.log"));
            let (directory, config) = (directory.clone(), directory.join("nats.conf"));
            Node { directory, config, log, port: *port, monitor: None, process: None }
        };
        Self::run(directories.iter().map(node).collect(), logs)
    }

    fn run(nodes: Vec<Node>, directory: tempfile::TempDir) -> Self {
        let mut nats = Self { nodes, _directory: directory };
        for node in &mut nats.nodes {
            node.start();
        }
        for node in &nats.nodes {
            node.wait_until_ready();
        }
        nats
    }

    /// The address of each node, for clients.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(|node| format!("nats://127.0.0.1:{}", node.port)).collect()
    }

    /// The address of each node's monitoring.
    pub fn monitors(&self) -> Vec<String> {
        self.nodes.iter().filter_map(|node| Some(format!("http://127.0.0.1:{}", node.monitor?))).collect()
    }

    /// The log of a node.
    pub fn log(&mut self, node: usize) -> String {
        fs::read_to_string(&self.node(node).log).unwrap_or_default()
    }

    /// Kills a node, which gets no chance to write anything. Nodes count from 0: `n1` is 0.
    pub fn kill(&mut self, node: usize) {
        self.node(node).kill();
    }

    /// Starts a node that was killed, on its earlier files and ports, and returns at once.
    pub fn restart(&mut self, node: usize) {
        self.node(node).start();
    }

    /// Waits until a node takes requests.
    pub fn wait_until_ready(&mut self, node: usize) {
        self.node(node).wait_until_ready();
    }

    /// Stops a node's process until [`Self::resume`].
    pub fn pause(&mut self, node: usize) {
        self.node(node).signal(Signal::STOP);
    }

    /// Lets a paused node go on.
    pub fn resume(&mut self, node: usize) {
        self.node(node).signal(Signal::CONT);
    }

    /// The messages of a stream, in order, as its leader has them.
    ///
    /// # Errors
    ///
    /// Returns an error when the stream cannot be read.
    pub async fn messages(&self, stream: &str) -> Result<Vec<Stored>, async_nats::Error> {
        let client = async_nats::connect(self.urls()).await?;
        let stream = jetstream::new(client).get_stream(stream).await?;
        let config = OrderedConfig { headers_only: true, ..OrderedConfig::default() };
        let mut consumer = stream.create_consumer(config).await?;
        let mut pending = consumer.info().await?.num_pending;
        let (mut messages, mut stored) = (consumer.messages().await?, Vec::new());
        while pending > 0 {
            let Some(message) = messages.next().await.transpose()? else { break };
            let info = message.info()?;
            let headers = message.headers.iter().flat_map(async_nats::HeaderMap::iter);
            let headers = headers.filter_map(|(name, values)| Some((name.to_string(), values.last()?.to_string())));
            pending = info.pending;
            stored.push(Stored {
                subject: message.subject.to_string(),
                sequence: info.stream_sequence,
                headers: headers.collect(),
            });
        }
        Ok(stored)
    }

    /// The node that leads a stream.
    ///
    /// # Errors
    ///
    /// Returns an error when the stream has no leader, or cannot be asked.
    pub async fn leader(&self, stream: &str) -> Result<usize, async_nats::Error> {
        let client = async_nats::connect(self.urls()).await?;
        let stream = jetstream::new(client).get_stream(stream).await?;
        let leader = stream.cached_info().cluster.as_ref().and_then(|cluster| cluster.leader.as_deref());
        let number = leader.and_then(|name| name.strip_prefix('n')?.parse::<usize>().ok()?.checked_sub(1));
        number.ok_or_else(|| "the stream has no leader".into())
    }

    #[allow(clippy::expect_used, reason = "the test names a node that there is")]
    fn node(&mut self, node: usize) -> &mut Node {
        self.nodes.get_mut(node).expect("a node of this number")
    }
}

impl Node {
    #[allow(clippy::expect_used, reason = "a test without a server cannot continue")]
    fn start(&mut self) {
        let program = nats_server().expect("nats-server is missing: run `cargo xtask nats`, or set GUILD_NATS_SERVER");
        let mut command = Command::new(program);
        command.current_dir(&self.directory).arg("--config").arg(&self.config).arg("--log").arg(&self.log);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.process = Some(command.spawn().expect("nats-server starts"));
    }

    #[allow(clippy::panic, reason = "a test without a server cannot continue")]
    fn wait_until_ready(&self) {
        let begun = Instant::now();
        while !self.is_ready() {
            if begun.elapsed() > PATIENCE {
                let log = fs::read_to_string(&self.log).unwrap_or_default();
                panic!("the NATS server of {} is not ready; its log:\n{log}", self.config.display());
            }
            sleep(LOOK);
        }
    }

    /// Whether the server says that JetStream is up to date; or whether it listens, if it says nothing over HTTP.
    fn is_ready(&self) -> bool {
        let Some(monitor) = self.monitor else {
            return TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok();
        };
        let ask = || {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, monitor))?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).map(|_| answer)
        };
        ask().is_ok_and(|answer: String| answer.lines().next().is_some_and(|line| line.contains(" 200 ")))
    }

    fn signal(&self, signal: Signal) {
        let id = self.process.as_ref().and_then(|process| Pid::from_raw(i32::try_from(process.id()).ok()?));
        // The process of a dropped cluster may have ended.
        let _ = id.map(|id| kill_process(id, signal));
    }

    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}
