//! Creates the resources of a component in one test: a member's directory, read roots, the web, and toolboxes.

use std::{
    collections::BTreeMap,
    fmt::Display,
    fs::{self, File},
    io,
    path::{Component, Path},
    sync::Arc,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use cap_std::{ambient_authority, fs::Dir};
use guild_agent::{Broker, ReadRoots};
use guild_contract::capability::{FILES, grants::wildcard};
use guild_extractive::Extractive;
use guild_fs::clock::Clock;
use guild_jobs::MemoryStore;
use guild_roster::trial::Trial;
use guild_session::{
    files::Files,
    tools::{ToolCall, ToolDefinition, ToolError, Tools},
    web::{Fetch, Hit, Search, Web},
};
use guild_web::MemberHosts;
use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    observed::{self, HostCalls, Observed},
    scenario::{self, Given, ToolboxTool},
};

/// The directory of the member within the temporary one.
const MEMBER: &str = "member";
/// The directory of the read roots there.
const ROOTS: &str = "roots";
/// The time between files and notes whose times are not given, so that their order is defined.
const STEP: Duration = Duration::from_secs(1);

/// The resources of a component in one test. They are removed when this is dropped.
pub(crate) struct Surroundings {
    _temporary: TempDir,
    /// The member's directory, with its jobs and memories.
    pub(crate) member: Dir,
    pub(crate) clock: Arc<GivenTime>,
    pub(crate) memory: Arc<MemoryStore>,
    /// The granted read roots, if there are any.
    pub(crate) files: Option<Arc<dyn Files>>,
    /// The read-only tools of sessions over them.
    pub(crate) broker: Broker,
    /// The web of sessions.
    pub(crate) web: Web,
    /// The web of the component.
    pub(crate) own_web: Web,
    /// The built-in tools that sessions can be given: those that are granted, and have files or pages to read.
    pub(crate) tools: Vec<String>,
    /// The tools of toolboxes.
    pub(crate) toolbox: Arc<Toolbox>,
    /// The calls of host functions.
    pub(crate) calls: Arc<HostCalls>,
}

/// The clock of a test, which stands still.
pub(crate) struct GivenTime(pub(crate) Timestamp);

impl Clock for GivenTime {
    fn now(&self) -> Timestamp {
        self.0
    }
}

impl Surroundings {
    /// Creates the granted resources of a script. It blocks.
    ///
    /// # Errors
    ///
    /// Returns a sentence that names the key of the script when a resource cannot be created.
    pub(crate) fn new(trial: &Trial, given: &Given, now: Timestamp) -> Result<Self, String> {
        let cannot = |what: &'static str| move |e: io::Error| format!("{what}: {e}");
        let temporary = TempDir::with_prefix("guild-test-").map_err(cannot("no temporary directory"))?;
        let path = temporary.path().join(MEMBER);
        fs::create_dir(&path).map_err(cannot("no temporary directory"))?;
        write_notes(&path, given, now)?;
        let member = Dir::open_ambient_dir(&path, ambient_authority()).map_err(cannot("the member's directory"))?;
        let clock = Arc::new(GivenTime(now));
        let memory = MemoryStore::open(&member, trial.limits.clone(), clock.clone()).map_err(cannot("its memory"))?;
        let files = roots(&temporary.path().join(ROOTS), trial, given, now)?;
        let broker = Broker::new(files.clone());
        let (web, own_web) = webs(trial, given, files.as_ref())?;
        let calls = Arc::default();
        let own_web = observed::web(own_web, &calls);
        let tools = &trial.grants.sessions.tools;
        Ok(Self {
            tools: tools.iter().filter(|tool| broker.offers(tool, &web)).cloned().collect(),
            toolbox: Arc::new(Toolbox::new(&given.toolbox)),
            _temporary: temporary,
            member,
            clock,
            memory,
            files,
            broker,
            web,
            own_web,
            calls,
        })
    }

    /// The read roots of the component itself.
    pub(crate) fn own_files(&self, trial: &Trial) -> Option<Arc<dyn Files>> {
        let inner = self.files.clone().filter(|_| trial.grants.holds(&FILES))?;
        Some(Arc::new(Observed { calls: self.calls.clone(), inner }))
    }
}

/// Writes a file with this modification time, and the directories above it.
fn write(path: &Path, text: &str, modified: SystemTime) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::write(path, text)?;
    File::options().write(true).open(path)?.set_modified(modified)
}

/// Writes the member's memories.
fn write_notes(member: &Path, given: &Given, now: Timestamp) -> Result<(), String> {
    let mut next = SystemTime::from(now);
    for note in &given.memory {
        let failed = |why: String| format!("`given.memory`: the note {:?}: {why}", note.key);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if note.key.is_empty() || !note.key.chars().all(is_plain) {
            return Err(failed("a key is 1 to 64 letters, digits, '-' or '_'".to_owned()));
        }
        next = note.modified.map_or_else(|| next - STEP, SystemTime::from);
        let path = member.join("memory").join(format!("{}.md", note.key));
        write(&path, &note.text, next).map_err(|e| failed(e.to_string()))?;
    }
    Ok(())
}

/// Writes the files under the read roots, and opens the roots that are granted: those of the operator, if there are any.
fn roots(directory: &Path, trial: &Trial, given: &Given, now: Timestamp) -> Result<Option<Arc<dyn Files>>, String> {
    if let Some(roots) = &trial.roots {
        return Ok(Some(Arc::new(roots.clone())));
    }
    let mut names: Vec<&str> = Vec::new();
    let mut modified = SystemTime::from(now);
    for (path, text) in &given.files {
        let failed = |why: &str| format!("`given.files`: {path:?}: {why}");
        let is_plain = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
        let Some((root, _)) = path.split_once('/').filter(|_| is_plain) else {
            return Err(failed("write a read root's name, `/`, and a path in it without `..`"));
        };
        if !names.contains(&root) {
            names.push(root);
        }
        modified -= STEP;
        write(&directory.join(path), text, modified).map_err(|e| failed(&e.to_string()))?;
    }
    names.retain(|name| trial.grants.roots.as_ref().is_some_and(|roots| roots.grant(name, wildcard)));
    if names.is_empty() {
        return Ok(None);
    }
    let roots = ReadRoots::open(names.iter().map(|name| directory.join(name))).map_err(|e| e.to_string())?;
    Ok(Some(Arc::new(roots.with_limits(&trial.limits))))
}

/// The web of sessions, and the web of the component. Without searches in the script, a search goes through the read
/// roots.
fn webs(trial: &Trial, given: &Given, files: Option<&Arc<dyn Files>>) -> Result<(Web, Web), String> {
    let (grants, limits) = (&trial.grants, &trial.limits);
    let hosts = grants.hosts.as_ref().map(MemberHosts::new).transpose()?;
    let reads_pages = hosts.is_some();
    let (pages, searches) = (given.pages.clone(), given.searches.clone());
    let finds = grants.sessions.search && !searches.is_empty();
    let scripted = Arc::new(ScriptedWeb { hosts: hosts.unwrap_or_default(), pages, searches });
    let provided =
        Web { search: finds.then(|| scripted.clone() as _), fetch: reads_pages.then_some(scripted as Arc<dyn Fetch>) };
    let local = files.map(|files| Extractive::with_limits(limits).search(files.clone()));
    let or_local = Web {
        search: provided.search.clone().or_else(|| local.map(|local| Arc::new(local) as _)),
        fetch: provided.fetch.clone(),
    };
    let own = if grants.holds(&FILES) { or_local.clone() } else { provided };
    Ok((or_local, own))
}

/// The pages and searches of a script.
struct ScriptedWeb {
    hosts: MemberHosts,
    pages: BTreeMap<String, String>,
    searches: Vec<scenario::Search>,
}

#[async_trait]
impl Fetch for ScriptedWeb {
    async fn fetch(&self, url: &str) -> Result<String, ToolError> {
        self.hosts.check_address(url)?;
        let missing = || ToolError::Unavailable(format!("the test has no page {url:?}; add it to `given.pages`"));
        self.pages.get(url).cloned().ok_or_else(missing)
    }
}

#[async_trait]
impl Search for ScriptedWeb {
    async fn search(&self, query: &str, limit: u32) -> Result<Vec<Hit>, ToolError> {
        let missing =
            || ToolError::Unavailable(format!("the test has no search {query:?}; add it to `given.searches`"));
        let search = self.searches.iter().find(|search| search.query == query).ok_or_else(missing)?;
        let hits = search.hits.iter().take(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(hits
            .map(|hit| Hit { title: hit.title.clone(), url: hit.url.clone(), snippet: hit.snippet.clone() })
            .collect())
    }
}

/// The tools of toolboxes of a script.
pub(crate) struct Toolbox {
    definitions: Vec<Arc<ToolDefinition>>,
    answers: Vec<Result<Value, String>>,
}

impl Toolbox {
    fn new(tools: &[ToolboxTool]) -> Self {
        let definition = |tool: &ToolboxTool| {
            let any = tool.input_schema.is_empty();
            Arc::new(ToolDefinition {
                name: tool.name.clone(),
                title: None,
                description: tool.description.clone(),
                input_schema: if any { json!({"type": "object"}) } else { tool.input_schema.clone().into() },
                output_schema: None,
                read_only: true,
            })
        };
        let answer = |tool: &ToolboxTool| match &tool.error {
            Some(why) => Err(why.clone()),
            None => Ok(tool.answer.clone().unwrap_or_default()),
        };
        Self { definitions: tools.iter().map(definition).collect(), answers: tools.iter().map(answer).collect() }
    }

    /// The tools that a plan names, for its session.
    pub(crate) fn only(&self, names: &[String]) -> Arc<dyn Tools> {
        let chosen = self.definitions.iter().zip(&self.answers).filter(|(tool, _)| names.contains(&tool.name));
        let (definitions, answers) = chosen.map(|(tool, answer)| (tool.clone(), answer.clone())).unzip();
        Arc::new(Self { definitions, answers })
    }
}

#[async_trait]
impl Tools for Toolbox {
    fn definitions(&self) -> Vec<Arc<ToolDefinition>> {
        self.definitions.clone()
    }

    async fn call(&self, call: ToolCall) -> Result<Value, ToolError> {
        let known = self.definitions.iter().zip(&self.answers).find(|(tool, _)| tool.name == call.name);
        let (_, answer) = known.ok_or_else(|| ToolError::InvalidInput(format!("there is no tool {:?}", call.name)))?;
        answer.clone().map_err(ToolError::Unavailable)
    }
}

/// An error of the harness itself, as a text.
pub(crate) fn failed(error: impl Display) -> String {
    format!("the harness failed: {error}")
}
