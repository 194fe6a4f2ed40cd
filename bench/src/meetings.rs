//! Measures a hundred meetings with concurrent turns, a thousand open meetings, and listeners that disconnect. The
//! provider is a local server of this process that speaks OpenAI's protocol; a gate releases its pieces, so that their
//! times are known.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use guild_fakes::{Gate, OpenAi, Provider, Received, Reply};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::UnixStream,
    task::JoinSet,
    time::timeout,
};

use crate::{
    Outcome, hall,
    host::{Host, Setup, TIMEOUT, scratch},
    stats::{Aim, Report, median, ms, percentile},
};

/// The number of meetings with concurrent turns.
const TALKING: usize = 100;
/// The number of open meetings without a turn.
const OPEN: usize = 1000;
/// The number of turns in each meeting.
const ROUNDS: usize = 10;
/// The number of listeners that disconnect, each after a random piece, and the seed.
const DISCONNECTS: usize = 200;
const SEED: u64 = 20;
/// The time for all turns to reach the gate.
const SETTLE_TIME: Duration = Duration::from_secs(2);
/// The interval between two first pieces.
const PIECE_INTERVAL: Duration = Duration::from_millis(10);
const TEXT: &str =
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen";
/// The number of pieces in which the provider sends the text.
const PIECES: usize = TEXT.len().div_ceil(12);

/// Measures the latency of a piece, the cost of an open meeting, and turns without listeners.
pub(crate) async fn measure(report: &mut Report) -> Outcome<()> {
    let fixture = Fixture::new().await?;
    fixture.open(report).await?;
    fixture.first_pieces(report).await?;
    fixture.disconnect(report).await
}

struct Fixture {
    host: Host,
    socket: PathBuf,
    /// The gate that releases the events of new answers one by one.
    gate: Arc<Mutex<Gate>>,
    _provider: Provider,
}

impl Fixture {
    async fn new() -> Outcome<Self> {
        let root = std::path::absolute(scratch().join("meetings-hall"))?;
        let _ = fs::remove_dir_all(&root);
        let (project, home) = (root.join("project"), root.join("home"));
        hall::make_project(&project, 100)?;
        fs::create_dir_all(&home)?;
        let config = format!(
            "projects:\n  - name: demo\n    path: {}\n    meetingCap: {}\n",
            project.display(),
            OPEN + TALKING + 1
        );
        fs::write(home.join("config.yaml"), config)?;
        let gate = Arc::new(Mutex::new(Gate::closed()));
        let now = gate.clone();
        let provider = OpenAi::start(move |request: &Received| {
            let last = request.body.pointer("/messages").and_then(Value::as_array).and_then(|all| all.last());
            match last.and_then(|last| last.get("content")?.as_str()) {
                Some("Talk") => Reply::text(TEXT).slowly(&now.lock().unwrap_or_else(PoisonError::into_inner)),
                _ => Reply::text("Hello."),
            }
        })
        .await;
        let config = format!(
            "agent = \"api\"\n[api]\nprovider = \"openai\"\nbase_url = \"{}/v1/\"\nmodel = \"fake\"\nsessions = 1000\n\
             request_seconds = 600\nunknown_cost_tokens = 1000000\n[[project]]\npath = {project:?}\n",
            provider.url()
        );
        let setup = Setup::roster("meetings", 1)?.with_config(&config)?.with_hall(&home);
        let host = setup.start().await?;
        Ok(Self { host, socket: home.join("guild-hall.sock"), gate, _provider: provider })
    }

    async fn meet(&self) -> Outcome<String> {
        let new = json!({"projectName": "demo", "workerName": "m00", "prompt": "Measure"});
        let mut events = Events::post(&self.socket, "/meeting/request/meeting/create", &new).await?;
        let session = events.until("session").await?;
        events.until("turn_end").await?;
        Ok(session.get("meetingId").and_then(Value::as_str).ok_or("no id")?.to_owned())
    }

    async fn talks(&self, id: &str) -> Outcome<Events> {
        let message = json!({"meetingId": id, "message": "Talk"});
        Events::post(&self.socket, "/meeting/session/message/send", &message).await
    }

    /// Measures the cost of a thousand open meetings.
    async fn open(&self, report: &mut Report) -> Outcome<()> {
        // The measurement excludes the parts that are created only once.
        for _ in 0..TALKING {
            self.meet().await?;
        }
        let before = self.host.memory()?.0;
        let mut took = Vec::new();
        for _ in 0..OPEN {
            let begun = Instant::now();
            self.meet().await?;
            took.push(ms(begun.elapsed()));
        }
        let how =
            format!("VmRSS, more than with {TALKING}; opened in {:.0} ms each, first turn included", median(&took));
        report.add(
            "1,000 open meetings without a turn",
            self.host.memory()?.0 - before,
            "MiB",
            Aim::AtMost(30.0),
            &how,
        );
        Ok(())
    }

    async fn ids(&self) -> Outcome<Vec<String>> {
        let mut events = Events::ask(&self.socket, "GET", "/meeting/session/meeting/list", &json!({})).await?;
        let list: Value = serde_json::from_str(&events.body().await?)?;
        let sessions = list.get("sessions").and_then(Value::as_array).ok_or("no sessions")?;
        Ok(sessions.iter().filter_map(|one| one.get("meetingId")?.as_str()).map(str::to_owned).collect())
    }

    /// Measures the latency of the first piece from the provider to the client during a hundred turns, none of which
    /// ends before the last one has begun.
    async fn first_pieces(&self, report: &mut Report) -> Outcome<()> {
        let ids = self.ids().await?;
        let mut ways = Vec::new();
        for _ in 0..ROUNDS {
            let gate = self.closed();
            let (sender, mut arrived) = tokio::sync::mpsc::unbounded_channel();
            let mut talking = JoinSet::new();
            for id in ids.iter().take(TALKING) {
                let mut events = self.talks(id).await?;
                let sender = sender.clone();
                talking.spawn(async move {
                    events.until("text_delta").await?;
                    sender.send(Instant::now())?;
                    events.until("turn_end").await.map(drop)
                });
            }
            tokio::time::sleep(SETTLE_TIME).await;
            // The first event of an answer has no text.
            gate.pass(TALKING);
            tokio::time::sleep(SETTLE_TIME).await;
            for _ in 0..TALKING {
                tokio::time::sleep(PIECE_INTERVAL).await;
                let sent = Instant::now();
                gate.pass(1);
                let came = timeout(TIMEOUT, arrived.recv()).await?.ok_or("no piece came")?;
                ways.push(ms(came.duration_since(sent)));
            }
            gate.open();
            while let Some(ended) = talking.join_next().await {
                ended??;
            }
        }
        let how = format!(
            "p50 {:.2} ms, of {}; {TALKING} turns under way, the provider's own time included",
            median(&ways),
            ways.len()
        );
        report.add("first piece, provider to client, p99", percentile(&ways, 0.99), "ms", Aim::AtMost(5.0), &how);
        Ok(())
    }

    /// Measures turns whose listeners disconnect, and their outcomes.
    async fn disconnect(&self, report: &mut Report) -> Outcome<()> {
        let ids = self.ids().await?;
        let mut random = fastrand::Rng::with_seed(SEED);
        let mut whole = 0_u32;
        for id in ids.iter().cycle().take(DISCONNECTS) {
            let gate = self.closed();
            let mut events = self.talks(id).await?;
            // The turn has begun with its first line; a listener that disconnects earlier may not have requested a
            // turn.
            events.begun().await?;
            let heard = random.usize(..PIECES);
            gate.pass(1 + heard);
            for _ in 0..heard {
                events.until("text_delta").await?;
            }
            drop(events);
            gate.open();
            let path = format!("/meeting/session/generation/subscribe?meetingId={id}");
            let mut again = Events::ask(&self.socket, "GET", &path, &json!({})).await?;
            let mut text = String::new();
            while let Some(event) = again.next().await? {
                text.push_str(event.get("text").and_then(Value::as_str).unwrap_or_default());
            }
            whole += u32::from(text == TEXT);
        }
        let how = format!("of {DISCONNECTS}, each left behind a piece drawn by lot, seed {SEED}");
        let aim = Aim::AtLeast(DISCONNECTS as f64);
        report.add("turns that outlived their listener", f64::from(whole), "turns", aim, &how);
        Ok(())
    }

    /// Creates a new gate, at which new answers wait.
    fn closed(&self) -> Gate {
        let gate = Gate::closed();
        *self.gate.lock().unwrap_or_else(PoisonError::into_inner) = gate.clone();
        gate
    }
}

/// A stream of events over the hall's socket.
struct Events(BufReader<UnixStream>);

impl Events {
    async fn post(socket: &Path, path: &str, body: &Value) -> Outcome<Self> {
        Self::ask(socket, "POST", path, body).await
    }

    async fn ask(socket: &Path, method: &str, path: &str, body: &Value) -> Outcome<Self> {
        let (mut stream, body) = (UnixStream::connect(socket).await?, body.to_string());
        let head = "Host: localhost\r\nConnection: close\r\nContent-Length:";
        let request = format!("{method} {path} HTTP/1.1\r\n{head} {}\r\n\r\n{body}", body.len());
        stream.write_all(request.as_bytes()).await?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Waits for the beginning of the answer.
    async fn begun(&mut self) -> Outcome<()> {
        timeout(TIMEOUT, self.0.read_line(&mut String::new())).await??;
        Ok(())
    }

    /// The next event; `None` at the end.
    async fn next(&mut self) -> Outcome<Option<Value>> {
        loop {
            let mut line = String::new();
            if timeout(TIMEOUT, self.0.read_line(&mut line)).await?? == 0 {
                return Ok(None);
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return Ok(Some(serde_json::from_str(data)?));
            }
        }
    }

    /// The next event of a kind.
    async fn until(&mut self, kind: &str) -> Outcome<Value> {
        loop {
            let event = self.next().await?.ok_or_else(|| format!("no {kind} came"))?;
            match event.get("type").and_then(Value::as_str) {
                Some(is) if is == kind => return Ok(event),
                Some("error") => return Err(event.to_string().into()),
                _ => {}
            }
        }
    }

    /// The body of a plain answer.
    async fn body(&mut self) -> Outcome<String> {
        let mut all = String::new();
        while timeout(TIMEOUT, self.0.read_line(&mut all)).await?? > 0 {}
        Ok(all.split_once("\r\n\r\n").ok_or("no body")?.1.to_owned())
    }
}
