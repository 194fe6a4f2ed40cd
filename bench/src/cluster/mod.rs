//! Measures hosts of a cluster on three NATS servers, all on this machine: each write is on the disks of two servers
//! before it is acknowledged.

mod dispatch;
mod places;
mod queue;
mod takeover;
mod traffic;

use std::{cmp::Ordering, fs, path::PathBuf, process::Command, time::Duration};

use guild_fakes::{Nats, OpenAi, Provider, Received, Reply};
use serde_json::{Value, json};

pub(crate) use self::{
    dispatch::measure as dispatch, places::measure as places, queue::measure as queue, takeover::measure as takeover,
    traffic::measure as traffic,
};
use crate::{
    Outcome,
    host::{Host, Setup, call, scratch},
    jobs::{ask_all, until},
};

const NODES: usize = 3;
/// The turns of a job, the last of which submits its result.
const TURNS: usize = 20;
/// The number of connections that dispatch.
const CALLERS: usize = 32;

/// Three NATS servers with the streams of a cluster, and the model of all hosts.
struct Cluster {
    nats: Nats,
    model: Provider,
    /// The directory of all its files.
    directory: PathBuf,
}

impl Cluster {
    fn new(name: &str, model: Provider) -> Outcome<Self> {
        crate::burst::more_descriptors()?;
        let directory = std::path::absolute(scratch().join(name))?;
        if directory.exists() {
            fs::remove_dir_all(&directory)?;
        }
        fs::create_dir_all(&directory)?;
        let nats = Nats::start(NODES);
        let guild = std::env::var_os("GUILD_BIN").ok_or("GUILD_BIN does not name the binary")?;
        let mut init = Command::new(std::path::absolute(guild)?);
        init.args(["cluster", "init", "--replicas", "3", "--log-gib", "2", "--blob-gib", "1", "--key", "cluster.key"]);
        let made = init.args(["--servers", &nats.urls().join(",")]).current_dir(&directory).output()?;
        if !made.status.success() {
            return Err(format!("guild cluster init: {}", String::from_utf8_lossy(&made.stderr)).into());
        }
        Ok(Self { nats, model, directory })
    }

    /// A host with so many places for sessions.
    fn host(&self, name: &str, places: usize) -> Outcome<Setup> {
        let cluster = format!(
            "[cluster]\nname = \"default\"\nservers = {:?}\nmonitor = {:?}\nkey_file = {:?}\nhost = {name:?}\n",
            self.nats.urls(),
            self.nats.monitors(),
            self.directory.join("cluster.key")
        );
        self.setup(name, places, &cluster)
    }

    /// A host of the same settings that is in no cluster.
    fn embedded(&self, places: usize) -> Outcome<Setup> {
        self.setup("embedded", places, "")
    }

    fn setup(&self, name: &str, places: usize, more: &str) -> Outcome<Setup> {
        let name = self.directory.with_extension("hosts").join(name);
        let config = format!(
            "agent = \"api\"\n[api]\nprovider = \"openai\"\nbase_url = \"{}/v1/\"\nmodel = \"fake\"\nsessions = {places}\n\
             unknown_cost_tokens = 1000000000\nrequest_seconds = 3600\n{more}",
            self.model.url()
        );
        Setup::new(&name.to_string_lossy())?.with_config(&config)
    }
}

/// Starts a host, and waits until it accepts jobs.
async fn start(setup: &Setup) -> Outcome<Host> {
    let host = setup.start().await?;
    until("the host is ready", async || Ok(host.is_ready().await)).await?;
    Ok(host)
}

/// A model that takes its time for each turn: it searches the sources until the job's last turn.
async fn model(turns: usize, time: Duration) -> Provider {
    OpenAi::start(move |request: &Received| {
        let reply = match (request.turn() + 1).cmp(&turns) {
            Ordering::Less => {
                Reply::call("Grep", json!({"pattern": "memory", "output_mode": "content", "head_limit": 20}))
            }
            Ordering::Equal => Reply::call("submit_result", json!({"output": "It reads what it is given."})),
            Ordering::Greater => Reply::text("Done."),
        };
        reply.after(time)
    })
    .await
}

/// The calls that dispatch so many jobs.
fn dispatches(count: usize) -> Vec<String> {
    let params = |n| json!({"description": format!("job {n}"), "task": "What can a plugin read or write?"});
    (0..count).map(|n| call("worker/dispatch", &params(n))).collect()
}

/// The job of an answered dispatch.
fn job(answer: &Value) -> Outcome<String> {
    let id = answer.pointer("/result/jobId").and_then(Value::as_str).map(str::to_owned);
    id.ok_or_else(|| format!("a dispatch was refused: {answer}").into())
}

/// Dispatches so many jobs at a host.
async fn dispatch_all(host: &Host, count: usize) -> Outcome<Vec<String>> {
    ask_all(host, CALLERS, dispatches(count)).await?.iter().map(job).collect()
}
