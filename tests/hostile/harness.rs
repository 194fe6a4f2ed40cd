//! What every case has in common: a host with a hostile member and healthy ones next to it, and what must hold
//! whatever the hostile one does.

use std::{
    fmt::Debug,
    fs,
    io::{BufRead, BufReader, Read, Write},
    iter,
    net::TcpStream,
    path::{Path, PathBuf},
    sync::{
        Barrier, LazyLock, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::{
    guest::Guest,
    host::{Client, Home, Host, RpcError, wait_for},
};

/// Within what time a healthy job ends that has nothing left to do. It takes milliseconds; the rest is for a debug
/// build on a loaded machine.
const IN_TIME: Duration = Duration::from_secs(10);
/// Within what time a host has given everything back.
const IDLE_WITHIN: Duration = Duration::from_secs(30);
/// How much more resident memory a host may have after an attack than before. Most have none, and some have 7 MiB; the
/// memory that one component may have is 64 MiB.
const GROWTH_KIB: u64 = 24 * 1024;
/// How much more it may have at any moment of the attack.
const PEAK_KIB: u64 = 512 * 1024;
/// What the artifacts of one job may have, in bytes and in entries.
pub(super) const ARTIFACTS: (u64, u64) = (4 << 20, 64);
/// How large a job's own files may be without its artifacts: the largest result, log and transcript.
const OWN_FILES: u64 = 26 << 20;

/// Puts something at a path.
pub(super) type Plant = fn(&Path);

/// A hostile member, before its host starts.
pub(super) struct Hostile {
    component: Vec<u8>,
    world: &'static str,
    seconds: u32,
    growth: u64,
    full: bool,
    tokens: bool,
    grants: Value,
    planted: Option<(&'static str, Plant)>,
    config_schema: Option<Value>,
    edit: Option<fn(&mut Value)>,
    limits: String,
    policy: String,
    options: Vec<String>,
    researchers: usize,
    home: Home,
}

impl Hostile {
    /// Its component is a worker.
    pub(super) fn worker(component: impl Into<Vec<u8>>) -> Self {
        Self {
            component: component.into(),
            world: "worker",
            seconds: 30,
            growth: GROWTH_KIB,
            full: false,
            tokens: false,
            grants: json!({
                "log": {}, "memory": {"write": true}, "files": {}, "web": {"search": true}, "job-tools": {},
                "status": {}, "agent": {"ownTools": true}, "hall": {"read": true, "manage": true}
            }),
            planted: None,
            config_schema: None,
            edit: None,
            limits: String::new(),
            policy: String::new(),
            options: Vec::new(),
            researchers: 0,
            home: Home::new(),
        }
    }

    /// Its component carries its jobs out itself.
    pub(super) fn autonomous(component: impl Into<Vec<u8>>) -> Self {
        Self { world: "autonomous-worker", ..Self::worker(component) }
    }

    /// Its component is a worker that offers tools, too.
    pub(super) fn hybrid(component: impl Into<Vec<u8>>) -> Self {
        Self { world: "worker-toolbox", ..Self::worker(component) }
    }

    /// How long its jobs may run; those of the others are not bounded by it.
    pub(super) fn seconds(self, seconds: u32) -> Self {
        Self { seconds, ..self }
    }

    /// What its manifest says of the configuration of its jobs.
    pub(super) fn config_schema(self, schema: Value) -> Self {
        Self { config_schema: Some(schema), ..self }
    }

    /// A line of `[limits]` in guild.toml.
    pub(super) fn limit(mut self, line: &str) -> Self {
        self.limits.push_str(line);
        self.limits.push('\n');
        self
    }

    /// Lines of guild.toml.
    pub(super) fn policy(mut self, lines: &str) -> Self {
        self.policy.push_str(lines);
        self
    }

    /// What its manifest asks for, where that is not everything.
    pub(super) fn grants(self, grants: Value) -> Self {
        Self { grants, ..self }
    }

    /// An option of `guild serve`.
    pub(super) fn option(mut self, option: &str) -> Self {
        self.options.push(option.to_owned());
        self
    }

    /// Where a compiler had much to do, its memory is given back later.
    pub(super) fn growth_mib(self, mib: u64) -> Self {
        Self { growth: mib * 1024, ..self }
    }

    /// The case is about a host that has no place left: a healthy job that is answered so meanwhile is tried again.
    pub(super) fn fills_the_host(self) -> Self {
        Self { full: true, ..self }
    }

    /// Nobody is served without a token; the healthy callers have one. They ask as fast as they are answered, which can
    /// be faster than the usual rate of a token.
    pub(super) fn behind_tokens(self) -> Self {
        let with_tokens = Self { tokens: true, ..self }.policy("require_token = true\n");
        with_tokens.limit("token_requests_per_second = 100000")
    }

    /// Replaces a file of the member with something else.
    pub(super) fn plant(self, file: &'static str, plant: Plant) -> Self {
        Self { planted: Some((file, plant)), ..self }
    }

    /// Edits its manifest.
    pub(super) fn manifest(self, edit: fn(&mut Value)) -> Self {
        Self { edit: Some(edit), ..self }
    }

    /// Gives the host a compile cache that no other test uses, compiles this component, and returns its path there.
    pub(super) fn with_own_cache(mut self) -> (Self, PathBuf) {
        self.home.set("XDG_CACHE_HOME", self.home.path("cache").to_str().unwrap());
        self.install();
        let host = self.home.serve_roster(&[]);
        wait_for("the component to be loaded", || host.at("hostile").dispatch(task(1)).ok());
        assert!(host.stop().0.success());
        let cache = self.home.path("cache/guild/components");
        (self, cache)
    }

    /// Adds the researcher as another member, whose sessions the host runs.
    pub(super) fn researcher(mut self, name: &str) -> Self {
        self.home.researcher(name);
        self.researchers += 1;
        self
    }

    /// A document, for a read root.
    pub(super) fn document(self, path: &str, text: &str) -> Self {
        self.home.write(path, text);
        self
    }

    /// Where something is, or will be.
    pub(super) fn place(&self, path: &str) -> PathBuf {
        self.home.path(path)
    }

    /// Where the member will be.
    pub(super) fn member(&self) -> PathBuf {
        self.home.path("members/hostile")
    }

    /// Puts the member where the host finds it.
    fn install(&self) -> PathBuf {
        let member = self.home.member("hostile", self.world, &self.component);
        self.home.edit_manifest("hostile", |manifest| {
            manifest["component"]["grants"] = self.grants.clone();
            manifest["component"]["tools"] = json!(["Read", "Grep", "Glob"]);
            manifest["component"]["resources"] = json!({"deadlineSeconds": self.seconds});
            if let Some(schema) = &self.config_schema {
                manifest["component"]["configSchema"] = schema.clone();
            }
        });
        if let Some(edit) = self.edit {
            self.home.edit_manifest("hostile", edit);
        }
        if let Some((file, plant)) = self.planted {
            fs::remove_file(member.join(file)).unwrap();
            plant(&member.join(file));
        }
        member
    }

    /// Starts the host and lets the attack happen, and checks that the host is up, that a healthy job which runs all the
    /// while and those that begin and end meanwhile end as they should and in time, and that everything that was taken
    /// is given back.
    pub(super) fn attacks(self, attack: impl FnOnce(&Case)) {
        let member = self.install();
        let mut home = self.home;
        let patient = home.member("patient", "autonomous-worker", &PATIENT);
        home.edit_manifest("patient", |manifest| manifest["component"]["grants"] = json!({"memory": {}}));
        home.quick("quick");
        let (bytes, entries) = ARTIFACTS;
        let toml = format!(
            "{}\n[limits]\nartifacts_bytes = {bytes}\nartifacts_entries = {entries}\n{}",
            self.policy, self.limits
        );
        let config = home.write("guild.toml", toml);
        let mut options = vec!["--config", config.to_str().unwrap()];
        options.extend(self.options.iter().map(String::as_str));
        home.set("GUILD_CONFIG", config.to_str().unwrap());
        // The memory that is measured has to be the host's: without these, glibc keeps large blocks that were given back, up to 26 MiB
        // of them by chance, and for each thread that read a large manifest 7 MiB of small ones.
        home.set("MALLOC_MMAP_THRESHOLD_", "131072");
        home.set("MALLOC_ARENA_MAX", "1");
        let token = self.tokens.then(|| {
            let made = home.guild().args(["token", "add", "caller"]).output().unwrap();
            String::from_utf8(made.stdout).unwrap().trim_end().to_owned()
        });
        let mut host = home.serve_roster(&options);
        host.token = token;

        // Once before anything is measured: what a host sets up when it is first needed is not what an attack takes.
        end_quick(&host, false);
        let warm = host.at("patient").start("warm");
        end_patient(&host, &patient, &warm);
        wait_until_idle(&host);
        let before = Taken::by(&host);

        let healthy = host.at("patient").start("healthy");
        let case = Case { home, host, member };
        with_healthy_jobs(&case, self.full, attack);

        let Case { home, host, member } = case;
        end_patient(&host, &patient, &healthy);
        case_is_over(&home, &host, &member);
        wait_until_idle(&host);
        eventually("processes", || children(&host), Vec::is_empty);
        eventually(
            "descriptors",
            || more(&before.descriptors, Taken::by(&host).descriptors, 1 + self.researchers),
            Vec::is_empty,
        );
        let memory = format!("KiB of memory, {} before", before.memory);
        eventually(&memory, || Taken::by(&host).memory, |now| *now <= before.memory + self.growth);
        let peak = of_status(&proc(&host, "status"), "VmHWM:");
        assert!(peak <= before.memory + PEAK_KIB, "the host had {peak} KiB");
        let (status, output) = host.stop();
        assert!(status.success(), "the host ended with {status}: {output}");
        assert!(!output.contains("panicked"), "{output}");
    }
}

/// A host under attack.
pub(super) struct Case {
    pub(super) home: Home,
    pub(super) host: Host,
    /// The hostile member's directory.
    pub(super) member: PathBuf,
}

impl Case {
    /// The hostile member's endpoint.
    pub(super) fn client(&self) -> Client {
        self.host.at("hostile")
    }

    /// Dispatches a job of the hostile member, whose task has this many characters.
    pub(super) fn start(&self, case: usize) -> String {
        self.client().dispatch(task(case)).unwrap()
    }

    /// The job fails, with exactly this reason.
    pub(super) fn fails(&self, reason: &str) -> String {
        self.case_fails(1, reason)
    }

    /// The job with this case fails, with exactly this reason.
    pub(super) fn case_fails(&self, case: usize, reason: &str) -> String {
        let id = self.start(case);
        let status = self.client().ended(&id);
        assert_eq!(
            (status["status"].as_str(), status["error"].as_str()),
            (Some("failed"), Some(reason)),
            "case {case}"
        );
        id
    }

    /// The job completes all the same; its result.
    pub(super) fn completes(&self, case: usize) -> (String, String) {
        let id = self.start(case);
        let status = self.client().ended(&id);
        assert_eq!(status["status"], "completed", "case {case}: {status}");
        let result = self.client().result(&id).unwrap();
        (id, result["output"].as_str().unwrap().to_owned())
    }

    /// The dispatch is answered with this error, and leaves no job.
    pub(super) fn refused(&self, code: i64, message: &str) {
        self.case_refused(1, code, message);
    }

    /// The dispatch with this case is answered with this error, and leaves no job.
    pub(super) fn case_refused(&self, case: usize, code: i64, message: &str) {
        assert_eq!(
            self.client().dispatch(task(case)),
            Err(RpcError { code, message: message.to_owned() }),
            "case {case}"
        );
        assert_eq!(self.client().call("worker/list", json!({})).unwrap(), json!({"jobs": []}));
    }

    /// A job's directory.
    pub(super) fn job(&self, id: &str) -> PathBuf {
        self.member.join("jobs").join(id)
    }

    /// A file of a job.
    pub(super) fn file(&self, id: &str, name: &str) -> String {
        fs::read_to_string(self.job(id).join(name)).unwrap_or_default()
    }

    /// A whole healthy job's life passes.
    pub(super) fn a_while_passes(&self) {
        end_quick(&self.host, false);
    }

    /// Sends bytes on a connection of its own, and reads what comes back until the host closes it.
    pub(super) fn send(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.host.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // A host that refuses a request early may not take the rest of it.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }
}

pub(super) fn task(case: usize) -> Value {
    json!({"description": "hostile", "task": "x".repeat(case)})
}

/// A function `$wait` of a guest that imports `memory`, `clocks/monotonic-clock` and `io/poll`: it sleeps until there is
/// a memory `go`.
pub(super) const WAIT: &str = "
    (data (i32.const 4000) \"go\")
    (func $wait (local $pause i32)
      (loop $again
        (call $memory.load (i32.const 0) (i32.const 4000) (i32.const 2) (i32.const 8192))
        (if (i32.and (i32.eqz (i32.load8_u (i32.const 8192))) (i32.load8_u (i32.const 8196))) (then (return)))
        (local.set $pause (call $monotonic-clock.subscribe-duration (i64.const 10000000)))
        (call $poll.pollable.block (local.get $pause))
        (call $poll.pollable.drop (local.get $pause))
        (br $again)))";

/// A component whose jobs wait, and complete then.
static PATIENT: LazyLock<Vec<u8>> = LazyLock::new(|| {
    Guest::importing(&["memory", "clocks/monotonic-clock", "io/poll"])
        .with(WAIT)
        .with("(data (i32.const 2048) \"done\")")
        .run("(call $wait) (call $ok (i32.const 2048) (i32.const 4))")
        .build()
});

/// A healthy job that was started before lives, and ends as soon as it may.
fn end_patient(host: &Host, member: &Path, id: &str) {
    let status = host.at("patient").status(id).unwrap();
    assert_eq!(status["status"], "running", "{status}");
    let begun = Instant::now();
    let go = member.join("memory/go.md");
    fs::write(&go, "now").unwrap();
    let status = host.at("patient").ended(id);
    assert_eq!(status["status"], "completed", "{status}");
    assert_eq!(host.at("patient").result(id).unwrap()["output"], "done");
    assert!(begun.elapsed() < IN_TIME, "the healthy job took {:?}", begun.elapsed());
    fs::remove_file(go).unwrap();
}

/// Lets the attack happen while healthy jobs begin and end, one after another: the first begins with it, the last one
/// when it is over.
fn with_healthy_jobs(case: &Case, full: bool, attack: impl FnOnce(&Case)) {
    let (both, over) = (Barrier::new(2), AtomicBool::new(false));
    thread::scope(|scope| {
        let _over = OnDrop(&over);
        scope.spawn(|| {
            both.wait();
            loop {
                let last = over.load(Ordering::Acquire);
                end_quick(&case.host, full);
                if last {
                    return;
                }
            }
        });
        both.wait();
        attack(case);
    });
}

/// Sets a flag at the end, however that comes.
pub(super) struct OnDrop<'a>(pub(super) &'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A healthy job, from its dispatch to its end. Where the host may be full, its time begins when it finds a place.
fn end_quick(host: &Host, full: bool) {
    let client = host.at("quick");
    let (begun, id) = wait_for("a place", || {
        let begun = Instant::now();
        match client.dispatch(json!({"description": "quick", "task": "quick"})) {
            Err(busy) if full && busy.code == -32000 && busy.message.contains("limits.running_jobs") => None,
            answer => Some((begun, answer.unwrap())),
        }
    });
    let status = client.ended(&id);
    assert_eq!(status["status"], "completed", "{status}");
    assert_eq!(client.result(&id).unwrap()["output"], "date");
    assert!(begun.elapsed() < IN_TIME, "a healthy job took {:?}", begun.elapsed());
    client.delete(&id).unwrap();
}

/// No job still runs, no job has a file that does not belong there, and each can be removed.
fn case_is_over(home: &Home, host: &Host, member: &Path) {
    let (bytes, entries) = ARTIFACTS;
    let client = host.at("hostile");
    let list = client.call("worker/list", json!({}));
    let jobs = list.map(|list| list["jobs"].as_array().unwrap().clone()).unwrap_or_default();
    for job in &jobs {
        let id = job["jobId"].as_str().unwrap();
        assert_ne!(job["status"], "running", "{id} is still running");
        let dir = member.join("jobs").join(id);
        let (all_bytes, _) = size(&dir);
        let (own_bytes, own_entries) = size(&dir.join("artifacts"));
        assert!(own_bytes <= bytes && own_entries <= entries, "{own_bytes} bytes, {own_entries} entries in artifacts/");
        assert!(all_bytes - own_bytes <= OWN_FILES, "{all_bytes} bytes in {id}");
        for name in fs::read_dir(&dir).into_iter().flatten().map(|entry| entry.unwrap().file_name()) {
            assert!(!name.to_string_lossy().starts_with('.'), "{id}/{name:?} was left behind");
        }
    }
    let ids: Vec<Value> = jobs.iter().map(|job| json!({"jobId": job["jobId"]})).collect();
    // An end is an end: a cancel does not change it, and whatever it was, the job can go.
    for method in ["worker/cancel", "worker/delete"] {
        let answers = on_many_connections(&ids, |ids| client.batch(method, ids));
        answers.into_iter().for_each(|answer| drop(answer.unwrap()));
    }
    if !jobs.is_empty() {
        let left = || fs::read_dir(member.join("jobs")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        eventually("entries of jobs/", left, |left: &Vec<_>| left.is_empty());
    }
    for entry in fs::read_dir(home.path("members")).unwrap() {
        let memory = entry.unwrap().path().join("memory");
        for name in fs::read_dir(memory).into_iter().flatten().map(|entry| entry.unwrap().file_name()) {
            assert!(!name.to_string_lossy().starts_with(".tmp"), "memory/{name:?} was left behind");
        }
    }
}

/// Hands batches over on sixteen connections at a time; what came of each call.
pub(super) fn on_many_connections<T: Send>(calls: &[Value], call: impl Fn(&[Value]) -> Vec<T> + Sync) -> Vec<T> {
    let batches = Mutex::new(calls.chunks(25));
    let next = || batches.lock().unwrap().next();
    thread::scope(|scope| {
        let caller = || iter::from_fn(next).flat_map(&call).collect::<Vec<T>>();
        let callers: Vec<_> = (0..16).map(|_| scope.spawn(caller)).collect();
        callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect()
    })
}

/// Bytes and entries below a directory; links are not followed.
fn size(dir: &Path) -> (u64, u64) {
    let (mut bytes, mut entries) = (0, 0);
    for entry in fs::read_dir(dir).into_iter().flatten() {
        let entry = entry.unwrap();
        let found = entry.metadata().unwrap();
        entries += 1;
        if found.is_dir() {
            let (more_bytes, more_entries) = size(&entry.path());
            bytes += more_bytes;
            entries += more_entries;
        } else {
            bytes += found.len();
        }
    }
    (bytes, entries)
}

/// What the host has of the system's resources.
struct Taken {
    /// What each open descriptor leads to.
    descriptors: Vec<String>,
    /// Resident memory in KiB.
    memory: u64,
}

impl Taken {
    fn by(host: &Host) -> Self {
        let links =
            fs::read_dir(proc(host, "fd")).unwrap().filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
        let mut descriptors: Vec<String> = links.map(|target| target.display().to_string()).collect();
        descriptors.sort_unstable();
        Self { descriptors, memory: of_status(&proc(host, "status"), "VmRSS:") }
    }
}

/// What is open now and was not before; without what a host opens once in its life, when it first needs it: its own
/// entries of `/proc`, and the first memory of each of so many components that are loaded.
fn more(before: &[String], mut now: Vec<String>, components: usize) -> Vec<String> {
    for known in before {
        if let Some(at) = now.iter().position(|target| target == known) {
            now.swap_remove(at);
        }
    }
    for _ in 0..components {
        if let Some(at) = now.iter().position(|target| target.contains("wasm-memory-image")) {
            now.swap_remove(at);
        }
    }
    now.retain(|target| !target.starts_with("/proc"));
    now
}

/// The processes that the host has started.
pub(super) fn children(host: &Host) -> Vec<String> {
    let threads = fs::read_dir(proc(host, "task")).unwrap().map(|thread| thread.unwrap().path());
    let of = |thread: PathBuf| fs::read_to_string(thread.join("children")).unwrap_or_default();
    threads.flat_map(|thread| of(thread).split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

fn proc(host: &Host, file: &str) -> PathBuf {
    Path::new("/proc").join(host.pid().to_string()).join(file)
}

/// A number of a status file of the system.
fn of_status(path: &Path, field: &str) -> u64 {
    let file = BufReader::new(fs::File::open(path).unwrap());
    let line = file.lines().map(Result::unwrap).find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Waits until no component is live in the host: its thread that interrupts them rests then, and only then.
fn wait_until_idle(host: &Host) {
    let epoch = fs::read_dir(proc(host, "task"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|thread| fs::read_to_string(thread.join("comm")).is_ok_and(|name| name.trim() == "epoch"));
    let status = epoch.expect("the thread that ticks").join("status");
    let wakes = || of_status(&status, "voluntary_ctxt_switches:");
    let (mut seen, mut since) = (wakes(), Instant::now());
    eventually(
        "wakes of the tick",
        || {
            let now = wakes();
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
            // Longer than some ticks.
            (now, since.elapsed() > Duration::from_millis(60))
        },
        |(_, rests)| *rests,
    );
}

/// Looks until what is there is as it should be.
pub(super) fn eventually<T: Debug>(what: &str, mut now: impl FnMut() -> T, as_it_should: impl Fn(&T) -> bool) {
    let begun = Instant::now();
    loop {
        let found = now();
        if as_it_should(&found) {
            return;
        }
        assert!(begun.elapsed() < IDLE_WITHIN, "the host did not become idle: {what}: {found:?}");
        thread::park_timeout(Duration::from_millis(5));
    }
}
