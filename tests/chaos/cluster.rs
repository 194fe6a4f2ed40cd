//! Three hosts on three NATS servers, each connection between which goes through a proxy.

use std::{
    env, fs,
    io::{Read as _, Write as _},
    iter::Cycle,
    net::TcpStream,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
    vec::IntoIter,
};

use guild_fakes::{Mode, Nats, Provider, Proxy};
use serde_json::json;
use tokio::runtime::Runtime;

use super::{history::Recorder, provider, wait};
use crate::support::{
    host::{Home, Host, free_port},
    output::stderr,
};

pub(super) const HOSTS: [&str; 3] = ["a", "b", "c"];
pub(super) const NODES: usize = 3;
/// The member whose jobs are dispatched.
pub(super) const MEMBER: &str = "worker";
/// The timeout of a request to a host.
const ANSWER: Duration = Duration::from_secs(15);
/// The time in which a host ends that carries no job out.
const END: Duration = Duration::from_secs(30);

/// The programs with which hosts are started in turn; the one that is tested, if it is not set.
const BINARIES: &str = "GUILD_CHAOS_BINARIES";

/// A host's home, its connections, and its process, which a supervisor starts again.
pub(super) struct Slot {
    pub(super) name: &'static str,
    pub(super) home: Home,
    pub(super) port: u16,
    proxies: Vec<Proxy>,
    process: Mutex<Option<Host>>,
    is_wanted: AtomicBool,
    /// The programs of its processes, in turn.
    binaries: Mutex<Cycle<IntoIter<PathBuf>>>,
    /// The output of processes that have ended.
    printed: Mutex<String>,
    _provider: Provider,
}

pub(super) struct Cluster {
    pub(super) slots: Vec<Slot>,
    pub(super) nats: Mutex<Nats>,
}

impl Cluster {
    /// Starts everything but the hosts.
    pub(super) fn start(runtime: &Runtime, recorder: &Arc<Recorder>) -> Self {
        let nats = Nats::start(NODES);
        let effects = runtime.block_on(provider::effects(recorder.clone()));
        let own = || vec![PathBuf::from(env!("CARGO_BIN_EXE_guild"))];
        let binaries = env::var_os(BINARIES).map_or_else(own, |paths| env::split_paths(&paths).collect());
        let slot = |(nth, name): (usize, &'static str)| {
            let targets = nats.urls().into_iter().map(|url| url.trim_start_matches("nats://").parse().unwrap());
            let proxies: Vec<Proxy> = targets.map(|target| runtime.block_on(Proxy::start(target)).unwrap()).collect();
            let servers: Vec<String> = proxies.iter().map(|proxy| format!("nats://{}", proxy.address())).collect();
            let model = provider::start(name, recorder.clone(), format!("http://{effects}"));
            let provider = runtime.block_on(model);
            let config = format!(
                "agent = \"api\"\n[[roots]]\npath = \"docs\"\n[api]\nprovider = \"openai\"\nbase_url = \"{}/v1/\"\n\
                 model = \"fake\"\nunknown_cost_tokens = 100000\nsessions = 16\n[limits]\nresumes = 100\n\
                 [web]\nallow = [\"{effects}\"]\nprivate = [\"{effects}\"]\nrobots = false\n\
                 [cluster]\nname = \"acme\"\nservers = {servers:?}\nmonitor = {:?}\nkey_file = \"acme.key\"\nhost = {name:?}\n",
                provider.url(),
                nats.monitors(),
            );
            Slot {
                name,
                home: home(config),
                port: free_port(),
                proxies,
                process: Mutex::default(),
                is_wanted: AtomicBool::new(true),
                binaries: Mutex::new(turned(binaries.clone(), nth)),
                printed: Mutex::default(),
                _provider: provider,
            }
        };
        let slots: Vec<Slot> = HOSTS.into_iter().enumerate().map(slot).collect();
        let (first, servers) = (&slots[0].home, nats.urls().join(","));
        let key = first.path("acme.key");
        let init = ["cluster", "init", "--servers", &servers, "--replicas", "3", "--log-gib", "1", "--blob-gib", "1"];
        let made = first.run(&[&init[..], &["--key", key.to_str().unwrap()]].concat());
        assert!(made.status.success(), "{}", stderr(&made));
        for slot in &slots[1..] {
            fs::copy(&key, slot.home.path("acme.key")).unwrap();
        }
        Self { slots, nats: Mutex::new(nats) }
    }
}

/// The programs of a host, the first of which is another one for each host.
fn turned(mut binaries: Vec<PathBuf>, host: usize) -> Cycle<IntoIter<PathBuf>> {
    let first = host % binaries.len();
    binaries.rotate_left(first);
    binaries.into_iter().cycle()
}

/// A home with the members that each host has.
fn home(config: String) -> Home {
    let mut home = Home::new();
    let file = home.write("guild.toml", config);
    home.set("GUILD_CONFIG", file.to_str().unwrap());
    home.set("GUILD_LOG", "info");
    home.write("docs/moths.md", "# Moths\n\nThe luna moth lives for a week.\n");
    home.researcher(MEMBER);
    home.edit_manifest(MEMBER, |manifest| manifest["component"]["toolboxes"] = json!(["box"]));
    home.member("box", "toolbox-plugin", &provider::toolbox());
    home.edit_manifest("box", |manifest| {
        manifest["capabilities"] = json!(["tools"]);
        manifest["component"]["grants"] = json!({"web": {}});
    });
    home
}

impl Slot {
    /// Starts the process if it should run and does not: a host that was declared dead ends.
    pub(super) fn supervise(&self) {
        let mut process = self.process.lock().unwrap();
        if process.as_mut().is_some_and(Host::has_ended) {
            self.keep_output(process.take());
        }
        if process.is_none() && self.is_wanted.load(Ordering::Relaxed) {
            let members = self.home.path("members");
            let mut command = self.home.guild_of(self.binaries.lock().unwrap().next().unwrap());
            command.current_dir(self.home.path(".")).args(["serve", "--members", members.to_str().unwrap()]);
            command.args(["--port", &self.port.to_string()]);
            *process = Some(Host::start(command, self.port, ""));
        }
    }

    fn keep_output(&self, process: Option<Host>) {
        if let Some(process) = process {
            let mut printed = self.printed.lock().unwrap();
            printed.push_str(&process.output());
            printed.push_str("--- the process has ended ---\n");
        }
    }

    /// The output of all its processes.
    pub(super) fn output(&self) -> String {
        let now = self.process.lock().unwrap().as_ref().map(Host::output).unwrap_or_default();
        self.printed.lock().unwrap().clone() + &now
    }

    /// Kills the process, and keeps it from being started again.
    pub(super) fn kill(&self) {
        self.is_wanted.store(false, Ordering::Relaxed);
        let process = self.process.lock().unwrap().take();
        if let Some(process) = &process {
            process.signal("-KILL");
        }
        self.keep_output(process);
    }

    /// Lets the process be started again.
    pub(super) fn revive(&self) {
        self.is_wanted.store(true, Ordering::Relaxed);
    }

    /// Sends a signal to the process, if there is one.
    pub(super) fn signal(&self, signal: &str) {
        if let Some(process) = &mut *self.process.lock().unwrap()
            && !process.has_ended()
        {
            process.signal(signal);
        }
    }

    /// Ends the process as an operator does, once its jobs have ended. An error if that takes long.
    pub(super) fn stop(&self) -> Option<String> {
        self.is_wanted.store(false, Ordering::Relaxed);
        let mut process = self.process.lock().unwrap().take()?;
        process.signal("-TERM");
        let begun = Instant::now();
        if !wait(|| process.has_ended()) {
            process.signal("-KILL");
        }
        let took = begun.elapsed();
        self.printed.lock().unwrap().push_str(&process.wait().1);
        (took > END).then(|| format!("{} took {took:.0?} to end after SIGTERM, though no job ran", self.name))
    }

    /// Sets the mode of the connections to all NATS servers.
    pub(super) fn connections(&self, mode: Mode) {
        self.proxies.iter().for_each(|proxy| proxy.set(mode));
    }

    /// Resets the connections to all NATS servers.
    pub(super) fn reset(&self) {
        self.proxies.iter().for_each(Proxy::reset);
    }

    pub(super) fn is_ready(&self) -> bool {
        self.get("/readyz", "").is_some_and(|(status, _)| status == 200)
    }

    /// A GET: the status and the body.
    fn get(&self, path: &str, headers: &str) -> Option<(u16, String)> {
        self.send(&format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n{headers}\r\n"))
    }

    /// A request of HTTP/1.0: the status and the body; none if it was not answered.
    pub(super) fn send(&self, request: &str) -> Option<(u16, String)> {
        let mut stream = self.connect()?;
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }

    /// A connection whose reads end after a while.
    pub(super) fn connect(&self) -> Option<TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(ANSWER)).ok()?;
        Some(stream)
    }
}
