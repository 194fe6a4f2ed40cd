//! `cargo xtask demo cluster`: three hosts on three NATS servers carry ten jobs out, though one host is killed.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use super::model::{self, THINKS};
use crate::{
    guests, nats,
    steps::{build, line, root},
};

const HOSTS: [&str; 3] = ["a", "b", "c"];
/// The host that is killed.
const KILLED: usize = 1;
/// The time from the first task to the kill: each job is at work then.
const BEFORE: Duration = Duration::from_secs(3);
const MEMBER: &str = "researcher";
/// The timeouts for servers and hosts to be ready, and for all jobs to end.
const READY: Duration = Duration::from_secs(60);
const ENDED: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(200);

/// The sentences of the handbook, each with the subject of one of the ten tasks.
const PASSAGES: [(&str, &str); 10] = [
    ("lantern", "The lantern of the lighthouse is lit at dusk, and its clock is wound twice a night."),
    ("mole", "The mole shelters the harbour from the west, and was raised by two feet after the flood."),
    ("ferry", "The ferry to Torsund leaves at seven, and at noon on market days."),
    ("bell", "The bell at the point is rung in fog, once for each minute."),
    ("breaker", "The ice breaker from Torsund keeps a channel open from January to March."),
    ("quay", "The market is held on the quay on the first Monday of each month."),
    ("school", "The school has a boat of its own, in which the upper forms learn to sail."),
    ("archive", "The archive of the harbour lies in the cellar of the town hall, and begins in 1611."),
    ("pilot", "The pilot boards ships at the outer buoy, in any weather."),
    ("well", "The well in the square has sweet water, though the sea is forty paces away."),
];

/// Builds the guests and the host, and shows the jobs.
pub(crate) fn show() -> Result<(), String> {
    guests::build()?;
    let server = nats::ready()?;
    let [guild] = build(["guild"], &[])?;
    let directory = root().join("target/demo-cluster");
    let failed = |e: std::io::Error| format!("cannot set {} up: {e}", directory.display());
    if directory.exists() {
        fs::remove_dir_all(&directory).map_err(failed)?;
    }
    fs::create_dir_all(directory.join("handbook")).map_err(failed)?;
    let handbook: String = PASSAGES.iter().map(|(_, text)| format!("{text}\n\n")).collect();
    fs::write(directory.join("handbook/harbour.md"), handbook).map_err(failed)?;
    let ports = free_ports(12).map_err(failed)?;
    let demo = Demo { guild, server, directory: directory.clone(), model: model::start().map_err(failed)?, ports };
    demo.set_up().map_err(failed)?;
    demo.show()
}

struct Demo {
    guild: PathBuf,
    server: PathBuf,
    directory: PathBuf,
    /// The port of the model.
    model: u16,
    ports: Vec<u16>,
}

/// A process that ends when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Demo {
    /// A port: of the clients, the monitoring and the routes of each NATS server, and of each host.
    fn port(&self, at: usize) -> u16 {
        self.ports.get(at).copied().unwrap_or_default()
    }

    fn set_up(&self) -> std::io::Result<()> {
        let routes: Vec<String> = (0..3).map(|node| format!("nats://127.0.0.1:{}", self.port(node * 3 + 2))).collect();
        for node in 0..3 {
            let [client, monitor, route] = [0, 1, 2].map(|nth| self.port(node * 3 + nth));
            let name = format!("n{}", node + 1);
            let config = format!(
                "server_name: {name}\nlisten: 127.0.0.1:{client}\nhttp: 127.0.0.1:{monitor}\n\
                 jetstream: {{ store_dir: \"{name}\", sync_interval: always }}\n\
                 cluster: {{ name: demo, listen: 127.0.0.1:{route}, routes: [{}] }}\n",
                routes.join(", ")
            );
            fs::write(self.directory.join(format!("{name}.conf")), config)?;
        }
        for host in HOSTS {
            let member = self.directory.join(host).join("members").join(MEMBER);
            fs::create_dir_all(&member)?;
            for file in ["guild-member.json", "posture.md", "researcher.wasm"] {
                fs::copy(root().join("guild-members").join(MEMBER).join(file), member.join(file))?;
            }
            let of = |nth: usize, scheme: &str| -> Vec<String> {
                (0..3).map(|node| format!("{scheme}://127.0.0.1:{}", self.port(node * 3 + nth))).collect()
            };
            let config = format!(
                "agent = \"api\"\n\n[api]\nprovider = \"openai\"\nbase_url = \"http://127.0.0.1:{}/v1/\"\nmodel = \"demo\"\n\n\
                 [[prices]]\nmodel = \"demo\"\ninput = 0.0\noutput = 0.0\n\n[[roots]]\npath = \"../handbook\"\n\n[cluster]\nname = \"demo\"\n\
                 servers = {:?}\nmonitor = {:?}\nkey_file = \"../demo.key\"\nhost = {host:?}\n",
                self.model,
                of(0, "nats"),
                of(1, "http")
            );
            fs::write(self.directory.join(host).join("guild.toml"), config)?;
        }
        Ok(())
    }

    fn show(&self) -> Result<(), String> {
        println!("\nThree NATS servers keep what the hosts have in common. Each has a configuration as n1.conf:\n");
        self.print("n1.conf")?;
        let mut servers = Vec::new();
        for node in 0..3 {
            let config = format!("n{}.conf", node + 1);
            let mut server = Command::new(&self.server);
            servers.push(self.begin(server.args(["--config", &config]), &format!("n{}.log", node + 1))?);
        }
        for node in 0..3 {
            wait("a NATS server to be ready", READY, || get(self.port(node * 3 + 1), "/healthz"))?;
        }
        println!("\nThe streams and the cluster's key are made once:");
        let servers_list = (0..3).map(|node| format!("nats://127.0.0.1:{}", self.port(node * 3))).collect::<Vec<_>>();
        let init = ["cluster", "init", "--name", "demo", "--servers", &servers_list.join(","), "--key", "demo.key"];
        self.run(&[&init[..], &["--log-gib", "1", "--blob-gib", "1"]].concat())?;
        println!("\nThree hosts have the same settings but their names. This is a/guild.toml:\n");
        self.print("a/guild.toml")?;
        let mut hosts = Vec::new();
        for (nth, host) in HOSTS.iter().enumerate() {
            let mut serve = self.command();
            serve.env("GUILD_CONFIG", self.directory.join(host).join("guild.toml"));
            serve.args([
                "-v",
                "serve",
                "--members",
                &format!("{host}/members"),
                "--port",
                &self.port(9 + nth).to_string(),
            ]);
            hosts.push(self.begin(&mut serve, &format!("{host}.log"))?);
        }
        for nth in 0..3 {
            wait("a host to be ready", READY, || get(self.port(9 + nth), "/readyz"))?;
        }
        let shown = self.jobs(&mut hosts);
        println!("\nThe files, with what each host and server printed, are in {}", self.directory.display());
        shown
    }

    fn jobs(&self, hosts: &mut Vec<Running>) -> Result<(), String> {
        let think = THINKS.as_secs();
        println!(
            "\nTen tasks, to the three hosts in turn. The model thinks {think} s about each of a job's four turns."
        );
        let begun = Instant::now();
        let mut jobs = Vec::new();
        for (nth, (word, _)) in PASSAGES.iter().enumerate() {
            let (url, task) = (self.url(nth % 3), format!("What does the handbook say about the {word}?"));
            jobs.push(self.run(&["dispatch", "--member", MEMBER, "--url", &url, &task])?.trim().to_owned());
        }
        sleep(BEFORE.saturating_sub(begun.elapsed()));
        let killed = HOSTS.get(KILLED).copied().unwrap_or_default();
        drop(hosts.remove(KILLED));
        println!(
            "\n[{:4.1} s] The host {killed} is killed, with its jobs at work. The others hear nothing from it for 30 s,",
            seconds(begun)
        );
        println!("         declare it dead, and go on with its jobs from their transcripts.");
        let mut last = String::new();
        wait("the jobs to end", ENDED, || {
            let counts = [0, 2].map(|host| self.counts(host));
            let now = format!("a knows of {}, c of {}", counts[0].1, counts[1].1);
            if now != last {
                println!("[{:4.1} s] {now}", seconds(begun));
                last = now;
            }
            counts.iter().all(|(running, _)| *running == Some(0))
        })
        .map_err(|e| format!("{e}; `guild status` tells why a job failed"))?;
        for host in HOSTS.iter().filter(|host| **host != killed) {
            let log = fs::read_to_string(self.directory.join(format!("{host}.log"))).unwrap_or_default();
            let count = log.matches("the job goes on at this host").count();
            println!("[{:4.1} s] The host {host} went on with {count} of the jobs of {killed}.", seconds(begun));
        }
        let url = self.url(HOSTS.len() - 1);
        println!("\nThe host c answers for all jobs, whichever host took and carried them out:");
        self.run(&["list", "--url", &url])?;
        for (job, (word, passage)) in jobs.iter().zip(PASSAGES) {
            let result = self.run(&["result", job, "--url", &url])?;
            if !result.contains(passage) {
                return Err(format!("the result about the {word} is wrong"));
            }
        }
        println!("\nAll ten results are right, {:.0} s after the first task.", seconds(begun));
        Ok(())
    }

    fn url(&self, host: usize) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port(9 + host))
    }

    /// The number of running jobs as a host knows it, and all numbers as a text.
    fn counts(&self, host: usize) -> (Option<usize>, String) {
        let listed = self.command().args(["list", "--url", &self.url(host), "--json"]).output();
        let listed = listed.ok().filter(|output| output.status.success());
        let text = listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        let count = |status: &str| text.matches(&format!("\"{status}\"")).count();
        let (running, completed) = (count("running"), count("completed"));
        let is_known = running + completed == PASSAGES.len();
        (is_known.then_some(running), format!("{running} running and {completed} completed jobs"))
    }

    /// `guild`, without the user's own settings.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.guild);
        command.env("HOME", &self.directory).env("XDG_CONFIG_HOME", self.directory.join("config"));
        command.env("XDG_CACHE_HOME", root().join("target/demo-cache")).env_remove("XDG_STATE_HOME");
        command.env_remove("GUILD_CONFIG").env_remove("GUILD_URL").current_dir(&self.directory).stdin(Stdio::null());
        command
    }

    /// Runs `guild`, and prints the command and its stdout, which is returned.
    fn run(&self, words: &[&str]) -> Result<String, String> {
        let mut command = self.command();
        command.args(words);
        println!("$ {}", line(&command));
        let output = command.stderr(Stdio::inherit()).output().map_err(|e| format!("{}: {e}", line(&command)))?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        print!("{printed}");
        if output.status.success() {
            Ok(printed)
        } else {
            Err(format!("{} ended with {}", line(&command), output.status))
        }
    }

    /// Starts a command in the background, whose output goes into a file.
    fn begin(&self, command: &mut Command, file: &str) -> Result<Running, String> {
        let failed = |e: std::io::Error| format!("cannot start {}: {e}", line(command));
        let log = File::create(self.directory.join(file)).and_then(|log| Ok((log.try_clone()?, log)));
        let (out, error) = log.map_err(failed)?;
        println!("$ {} &", line(command));
        let begun = command.current_dir(&self.directory).stdin(Stdio::null()).stdout(out).stderr(error).spawn();
        begun.map(Running).map_err(|e| format!("cannot start {}: {e}", line(command)))
    }

    fn print(&self, file: &str) -> Result<(), String> {
        let text = fs::read_to_string(self.directory.join(file)).map_err(|e| format!("{file}: {e}"))?;
        text.lines().for_each(|line| println!("    {line}"));
        println!();
        Ok(())
    }
}

fn seconds(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64()
}

fn wait(what: &str, timeout: Duration, mut is_true: impl FnMut() -> bool) -> Result<(), String> {
    let begun = Instant::now();
    while !is_true() {
        if begun.elapsed() > timeout {
            return Err(format!("waited {} s for {what}", timeout.as_secs()));
        }
        sleep(LOOK);
    }
    Ok(())
}

/// Whether a GET is answered 200.
fn get(port: u16, path: &str) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map(|_| answer)
    };
    ask().is_ok_and(|answer: String| answer.lines().next().is_some_and(|line| line.contains(" 200 ")))
}

/// Ports that nobody listens on.
fn free_ports(count: usize) -> std::io::Result<Vec<u16>> {
    let bound: Vec<_> = (0..count).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect::<Result<_, _>>()?;
    bound.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}
