//! Plays one run: a host of its own in a temporary home, and the steps that callers take.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use guild_config::Config;
use guild_contract::{
    Limits, Manifest, MemberKey,
    hall::{Author, CommissionFilter, CommissionStatus, CommissionView, NewCommission},
    rpc::DispatchParams,
};
use guild_hall::{Hall, Requester};
use guild_roster::{Fakes, Host, HostOptions, Member, MemberState, Target, tools::component::Component};
use guild_sandbox::Environment;
use serde_json::{Map, Value};
use tokio::{task::spawn_blocking, time::timeout};

use crate::{
    ProbeError, archives,
    asks::{self, Ask, LABEL},
    canaries::{Canaries, Source},
    home::{Home, PROJECT},
    inputs::{self, Words},
    model::ProbingModel,
    record::{Event, Place, Recorded, Recorder},
    scenarios::{Input, Setting, Step},
    web::FakeWeb,
};

/// How often the input of a call is corrected by what its refusal says.
const CORRECTIONS: usize = 4;
/// The time between two steps of jobs on successive days.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest time of a step.
const STEP: Duration = Duration::from_secs(20);
/// The pause between two looks at the state of a commission.
const LOOK: Duration = Duration::from_millis(15);

/// The outcome of a run.
#[derive(Default)]
pub(crate) struct Played {
    pub(crate) events: Vec<Event>,
    /// Tools that were called, and whether they ever answered.
    pub(crate) tools: BTreeMap<String, bool>,
    /// All tools of the member.
    pub(crate) listed: BTreeSet<String>,
    pub(crate) sessions: usize,
    /// The capabilities that the component itself used, as `guild.toml` spells them.
    pub(crate) used: BTreeSet<String>,
    /// The steps that could not be played, as sentences.
    pub(crate) notes: Vec<String>,
    /// The ids of jobs and commissions, and the name of the home, which differ in any two runs: whole, and their
    /// beginnings.
    pub(crate) ids: Vec<String>,
    /// Whether there was time for all steps.
    pub(crate) is_whole: bool,
}

/// The member that is probed.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) directory: &'a Path,
    pub(crate) key: &'a MemberKey,
    pub(crate) manifest: &'a Manifest,
    pub(crate) canaries: &'a Canaries,
    pub(crate) limits: &'a Limits,
    /// The words of its component.
    pub(crate) words: &'a str,
}

/// Plays the steps of a setting until `deadline`.
pub(crate) async fn play(subject: &Subject<'_>, setting: &Setting, deadline: Instant) -> Result<Played, ProbeError> {
    let Subject { directory, key, manifest, canaries, limits, words } = *subject;
    let (from, of, asked, tokens) = (directory.to_owned(), key.clone(), manifest.clone(), canaries.clone());
    let has_project = setting.has_project();
    let noted = if setting.has_words { words.to_owned() } else { String::new() };
    let made = spawn_blocking(move || Home::new(&from, &of, &asked, &tokens, has_project, &noted));
    let made = made.await.map_err(ProbeError::failed)?;
    let home = Arc::new(made.map_err(|source| ProbeError::Home { source })?);
    let recorder = Recorder::new();
    let web = Arc::new(FakeWeb { recorder: recorder.clone(), token: canaries.token(&Source::Web).to_owned() });
    let model = ProbingModel {
        recorder: recorder.clone(),
        is_obedient: setting.is_obedient,
        token: canaries.token(&Source::Model).to_owned(),
        session: canaries.token(&Source::Session).to_owned(),
        neighbour: home.git.is_some().then(|| home.neighbour.clone()),
        made: Mutex::default(),
        stores_more: setting.has_words,
    };
    let now = Duration::from_secs(u64::try_from(setting.time.as_second()).unwrap_or_default());
    let (seed, days) = (setting.seed, Arc::new(AtomicU32::new(0)));
    let later = days.clone();
    let environment = move || Environment::Given { time: now + DAY * later.load(Ordering::Relaxed), seed };
    let fakes = Fakes {
        runtime: Arc::new(model),
        web: Arc::new(move |grants| web.of(grants)),
        environment: Arc::new(environment),
        used: Arc::new({
            let (recorder, key) = (recorder.clone(), key.clone());
            move |member, capabilities| {
                if *member == key {
                    recorder.used(capabilities);
                }
            }
        }),
        git: home.git.clone(),
    };
    let hall = home.git.is_some() && has_project;
    let config = home.config(setting.is_manager).map_err(|source| ProbeError::Home { source })?;
    let options = HostOptions {
        config: Config { limits: limits.clone(), ..config },
        target: Target::Members(home.path("members")),
        sources: Vec::new(),
        agent: None,
        hall: hall.then(|| home.path("hall")),
        has_passed_socket: false,
        fakes: Some(fakes),
    };
    let host = Host::open(options, None).await.map_err(|e| ProbeError::Host { why: e.to_string() })?;
    let mut run = Run {
        setting,
        canaries,
        words,
        days,
        home: home.clone(),
        recorder: recorder.clone(),
        seen: BTreeMap::new(),
        commits: BTreeSet::new(),
        pulls: 0,
        commissions: BTreeSet::new(),
        listed: BTreeSet::new(),
        answered: BTreeSet::new(),
        learned: BTreeMap::new(),
        notes: Vec::new(),
        ids: BTreeSet::new(),
        is_whole: true,
        key: key.clone(),
    };
    let played = run.steps(&host, deadline).await;
    host.end().await;
    drop(host);
    played?;
    recorder.used(home.used());
    let Recorded { events, called, sessions, left_out, used, .. } = recorder.take();
    let mut tools = BTreeMap::new();
    for (tool, answered) in called {
        *tools.entry(tool).or_default() |= answered;
    }
    if left_out > 0 {
        run.notes.push(format!("{left_out} texts were left out: a run records 16 MiB at most"));
    }
    if !home.missing.is_empty() {
        run.notes.push(format!(
            "the toolbox {} is not beside the member, so no session could be played",
            home.missing.join(", ")
        ));
    }
    let Run { listed, notes, ids, is_whole, .. } = run;
    let mut ids: Vec<String> = home.ids().into_iter().chain(ids).flat_map(forms).collect();
    // The beginning of one can be another one.
    ids.sort_by_key(|id| std::cmp::Reverse(id.len()));
    ids.dedup();
    Ok(Played { events, tools, listed, sessions, used, notes, ids, is_whole })
}

/// The forms of an id: as it stands, without separators, and the beginnings that programs show of it.
fn forms(id: String) -> Vec<String> {
    let bare = id.replace('-', "");
    let beginning = |id: &str, bytes: usize| id.get(..bytes).map(str::to_owned);
    let short = [beginning(&id, 13), beginning(&bare, 12), beginning(&bare, 8)];
    let is_uuid = bare.len() == 32 && bare.bytes().all(|byte| byte.is_ascii_hexdigit());
    let short = short.into_iter().flatten().filter(|_| is_uuid).collect::<Vec<_>>();
    [id, bare].into_iter().chain(short).collect()
}

struct Run<'a> {
    setting: &'a Setting,
    canaries: &'a Canaries,
    words: &'a str,
    /// The days that have passed since the first step.
    days: Arc<AtomicU32>,
    home: Arc<Home>,
    recorder: Arc<Recorder>,
    key: MemberKey,
    /// The files that were seen, by path, with a hash of their bytes.
    seen: BTreeMap<String, u64>,
    commits: BTreeSet<String>,
    /// Bytes of what was asked of `gh`.
    pulls: usize,
    commissions: BTreeSet<String>,
    listed: BTreeSet<String>,
    /// The tools that have answered, and the fields of their inputs that their refusals had named before.
    answered: BTreeSet<String>,
    learned: BTreeMap<String, Map<String, Value>>,
    notes: Vec<String>,
    /// The ids of all commissions.
    ids: BTreeSet<String>,
    is_whole: bool,
}

impl Run<'_> {
    async fn steps(&mut self, host: &Arc<Host>, deadline: Instant) -> Result<(), ProbeError> {
        let not_served = |why: String| ProbeError::Host { why };
        let member = host.member(self.key.as_str()).ok_or_else(|| {
            let members = host.members();
            let state = members.get(self.key.as_str()).map(|entry| entry.state.clone());
            not_served(match state {
                Some(MemberState::Error(why)) => why.to_string(),
                _ => "it is not served".to_owned(),
            })
        })?;
        member.loaded().await;
        if let Component::Failed(why) = member.component() {
            return Err(not_served(why));
        }
        self.look(false);
        let mut caller = 0;
        for step in &self.setting.steps {
            if Instant::now() >= deadline {
                self.notes.push(format!("{}: the time of the probe was up before the last step", self.setting.name));
                self.is_whole = false;
                break;
            }
            caller += 1;
            match step {
                Step::Dispatch(ask) => {
                    self.recorder.begin();
                    self.dispatch(&member, caller, *ask).await;
                    self.look(true);
                }
                Step::Tools(inputs) => caller = self.tools(&member, caller, inputs, deadline).await,
                Step::Commission(_) | Step::Neighbour | Step::Board => {
                    self.recorder.begin();
                    let Some(hall) = host.hall() else {
                        self.notes.push("git is not installed, so no project was played".to_owned());
                        continue;
                    };
                    let neighbour = self.home.neighbour.name.to_owned();
                    match step {
                        Step::Commission(ask) => {
                            self.commission(hall, self.key.to_string(), self.task(caller, *ask)).await;
                        }
                        Step::Board => self.board(hall, neighbour).await,
                        _ => self.commission(hall, neighbour, asks::TASK.to_owned()).await,
                    }
                    // What the other worker writes down is none of the member's doing.
                    self.look(matches!(step, Step::Commission(_)));
                }
            }
            if self.setting.is_daily {
                self.days.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// The task of a caller.
    fn task(&self, caller: u32, ask: Ask) -> String {
        asks::task(ask, self.canaries.token(&Source::Caller(caller)), self.words)
    }

    async fn dispatch(&mut self, member: &Arc<Member>, caller: u32, ask: Ask) {
        let schema = member.manifest().component.as_ref().and_then(|spec| spec.config_schema.clone());
        let needs = schema.filter(|schema| schema.get("required").is_some());
        let token = self.canaries.token(&Source::Caller(caller));
        let config = needs.map(|schema| inputs::make(&schema, 0, &Words { token, named: &|_| None, text: None }));
        let params = DispatchParams {
            description: LABEL.to_owned(),
            task: self.task(caller, ask),
            attachments: asks::files(ask, token),
            config: config.and_then(|config| config.as_object().cloned()),
            ..DispatchParams::default()
        };
        let id = match member.dispatch(params).await {
            Ok(dispatched) => dispatched.job_id,
            Err(refused) => return self.recorder.see(Place::Failure, "dispatch", refused.message),
        };
        let ended = async {
            if let Some(job) = member.store().follow(id.as_str()) {
                job.ended().await;
            }
        };
        if timeout(STEP, ended).await.is_err() {
            let _ = member.cancel(id.as_str()).await;
            self.notes.push(format!(
                "{}: a job did not end in {} seconds, and was cancelled",
                self.setting.name,
                STEP.as_secs()
            ));
        }
    }

    /// Calls each tool of the member with these inputs, each call by a caller of its own from `first` on; the last
    /// caller, or the one before `first` without a call.
    async fn tools(&mut self, member: &Arc<Member>, first: u32, inputs: &[Input], deadline: Instant) -> u32 {
        // Each caller begins a step, so that the numbers of both are the same.
        let mut last = first - 1;
        let Some(toolbox) = member.toolbox() else { return last };
        let tools = match toolbox.tools(toolbox.patience()).await {
            Ok(catalogue) => catalogue.tools.clone(),
            Err(error) => {
                self.notes.push(format!("the tools cannot be listed: {}", error.message));
                return last;
            }
        };
        for of in inputs {
            for tool in &tools {
                if Instant::now() >= deadline {
                    self.is_whole = false;
                    return last;
                }
                self.recorder.begin();
                last += 1;
                self.listed.insert(tool.name.clone());
                self.recorder.see(
                    Place::ToolDefinition,
                    tool.name.clone(),
                    format!("{}\n{}", tool.description, tool.input_schema),
                );
                let token = self.canaries.token(&Source::Caller(last));
                let text = match of {
                    Input::Variant(_) => None,
                    Input::Text(ask) => Some(self.task(last, *ask)),
                };
                let variant = if let Input::Variant(variant) = of { *variant } else { 0 };
                let words = Words { token, named: &|_| None, text: text.as_deref() };
                let mut input = inputs::make(&tool.input_schema, variant, &words);
                let mut learned = self.learned.get(&tool.name).cloned().unwrap_or_default();
                for attempt in 0..=CORRECTIONS {
                    if let Some(input) = input.as_object_mut() {
                        input.extend(learned.clone());
                    }
                    self.recorder.see_model(&tool.name, input.to_string());
                    let answer = timeout(STEP, toolbox.call(&tool.name, input.clone())).await;
                    let answer = answer.map_or_else(
                        |_| Err("the call did not end".to_owned()),
                        |answer| answer.map_err(|e| e.to_string()),
                    );
                    self.recorder.called(&tool.name, answer.is_ok());
                    let is_refused = answer.is_err();
                    let said = match answer {
                        Ok(Value::String(said)) | Err(said) => said,
                        Ok(answer) => answer.to_string(),
                    };
                    // A tool that has answered takes the inputs that its schema describes.
                    let correction = match is_refused && !self.answered.contains(&tool.name) {
                        true => inputs::correction(&input, &said, attempt),
                        false => None,
                    };
                    self.recorder.see(Place::ToolAnswer, tool.name.clone(), said);
                    let Some((field, value)) = correction else {
                        if !is_refused && self.answered.insert(tool.name.clone()) {
                            self.learned.insert(tool.name.clone(), learned);
                        }
                        break;
                    };
                    learned.insert(field, value);
                }
                self.look(true);
            }
        }
        last
    }

    /// Commissions a worker on the project, and waits until it and all whom it commissions have ended.
    async fn commission(&mut self, hall: &Arc<Hall>, worker: String, prompt: String) {
        let new = new(worker, &prompt);
        let commissions = &hall.commissions;
        let begun = async {
            let made = commissions.create(new, &Requester::User).await?;
            commissions.dispatch(made.commission_id.as_str(), &Requester::User).await?;
            Ok::<_, guild_contract::OperationError>(made.commission_id)
        };
        let own = match begun.await {
            Ok(id) => id,
            Err(error) => return self.recorder.see(Place::Failure, "commission", error.to_string()),
        };
        let is_waiting = |one: &&CommissionView| {
            one.status == CommissionStatus::Pending && !one.queued && one.created_by != Author::User
        };
        let mut all = self.ended(hall).await;
        // A user dispatches what the manager left to the user.
        for one in all.iter().filter(is_waiting) {
            let _ = commissions.dispatch(one.id.as_str(), &Requester::User).await;
        }
        if all.iter().any(|one| is_waiting(&one)) {
            all = self.ended(hall).await;
        }
        for one in all {
            let Ok(read) = commissions.read(one.id.as_str(), None).await else { continue };
            let view = read.commission;
            self.ids.insert(view.id.to_string());
            if view.created_by != Author::User && self.commissions.insert(view.id.to_string()) {
                self.recorder.see(Place::Commission, "commission", format!("{}\n{}", view.title, view.prompt));
            }
            if view.id == own && view.status != CommissionStatus::Completed {
                let why = read.timeline.last().map(|entry| entry.reason.clone()).unwrap_or_default();
                self.recorder.see(Place::Failure, "commission", why);
            }
        }
    }

    /// Puts commissions of the other worker on the board: one that completes, one that the user gave up, and one that
    /// waits.
    async fn board(&mut self, hall: &Arc<Hall>, neighbour: String) {
        self.commission(hall, neighbour.clone(), asks::TASK.to_owned()).await;
        let commissions = &hall.commissions;
        for reason in [Some("The tide tables were missing, so the work failed."), None] {
            let prompt = if reason.is_some() { "Read the tide tables." } else { "Check the lights of the harbour." };
            let new = new(neighbour.clone(), prompt);
            match (commissions.create(new, &Requester::User).await, reason) {
                (Ok(made), Some(reason)) => {
                    let _ = commissions.abandon(made.commission_id.as_str(), reason, &Requester::User).await;
                }
                (Ok(_), None) => {}
                (Err(error), _) => self.notes.push(format!("the board of a manager is not full: {error}")),
            }
        }
    }

    /// All commissions, once none of them is active.
    async fn ended(&mut self, hall: &Arc<Hall>) -> Vec<CommissionView> {
        let is_active =
            |status: CommissionStatus| matches!(status, CommissionStatus::Dispatched | CommissionStatus::InProgress);
        let filter = CommissionFilter::default();
        let list = || hall.commissions.list(&filter);
        let ended = async {
            loop {
                tokio::time::sleep(LOOK).await;
                match list().await {
                    Ok(list) if list.commissions.iter().any(|one| is_active(one.status) || one.queued) => {}
                    _ => break,
                }
            }
        };
        if timeout(STEP, ended).await.is_err() {
            self.notes.push(format!("{}: a commission did not end in {} seconds", self.setting.name, STEP.as_secs()));
        }
        list().await.map(|list| list.commissions).unwrap_or_default()
    }

    /// Records what is new on disk since the last step, or only notes what is there.
    fn look(&mut self, is_recorded: bool) {
        let member = self.home.member();
        let sets =
            [("memory", member.join("memory")), ("jobs", member.join("jobs")), ("hall", self.home.path("hall/memory"))];
        for (set, directory) in sets {
            for (name, bytes) in self.home.files(&directory) {
                let Some(place) = place(set, &name) else { continue };
                let mut hasher = DefaultHasher::new();
                bytes.hash(&mut hasher);
                let hash = hasher.finish();
                if self.seen.insert(format!("{set}/{name}"), hash) == Some(hash) || !is_recorded {
                    continue;
                }
                let unpacked = archives::texts(&bytes).filter(|_| place == Place::Artifact);
                let text = unpacked.unwrap_or_else(|| String::from_utf8_lossy(&bytes).into_owned());
                // The name of a job is its id.
                let shown = if set == "jobs" { name.split_once('/').map_or("", |(_, rest)| rest) } else { &name };
                if place == Place::Failure {
                    let meta: Value = serde_json::from_str(&text).unwrap_or_default();
                    if let Some(why) = meta.get("error").and_then(Value::as_str) {
                        self.recorder.see(place, "job", why);
                    }
                } else {
                    self.recorder.see(place, shown, text);
                }
            }
        }
        match self.home.commits() {
            Ok(commits) => {
                for (id, text) in commits {
                    if self.commits.insert(id) && is_recorded {
                        self.recorder.see(Place::Commit, "commit", text);
                    }
                }
            }
            Err(error) => self.notes.push(format!("the commits cannot be read: {error}")),
        }
        let pulls = self.home.pulls();
        if let Some(new) = pulls.get(self.pulls..).filter(|new| !new.is_empty()) {
            self.recorder.see(Place::PullRequest, "gh", new);
            self.pulls = pulls.len();
        }
    }
}

/// A commission of the user on the project.
fn new(worker: String, prompt: &str) -> NewCommission {
    NewCommission {
        project_name: PROJECT.to_owned(),
        title: LABEL.to_owned(),
        worker_name: worker,
        prompt: prompt.to_owned(),
        dependencies: Vec::new(),
        resource_overrides: Default::default(),
    }
}

/// The place of a file of the home, if the file is recorded.
fn place(set: &str, name: &str) -> Option<Place> {
    let hidden = name.split('/').any(|part| part.starts_with('.'));
    match set {
        _ if hidden => None,
        "memory" => Some(Place::OwnMemory),
        "hall" if name.starts_with("global") => Some(Place::GlobalMemory),
        "hall" => Some(Place::ProjectMemory),
        _ => match name.split_once('/')?.1 {
            "result.md" => Some(Place::Result),
            "status.md" | "questions.md" | "decisions.json" => Some(Place::Report),
            "log.txt" => Some(Place::Log),
            "meta.json" => Some(Place::Failure),
            path if path.starts_with("artifacts/") => Some(Place::Artifact),
            _ => None,
        },
    }
}
