//! Checks for `guild doctor`: runtimes, keys, read roots, the web and members, each with the step that mends it.
//!
//! The checks make the parts of a host and ask each one, so that they predict the answer to a dispatch. They become the
//! owner of no member, end no process, and send no request unless the user asks for it.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use guild_agent::{Looked, ReadRoots, api::Api};
use guild_auth::{Ledger, audit_log::Log, tls::Tls, tokens::TokenFile};
use guild_config::{Config, KeySource, Runtime, SearchOptions, Spend, WebOptions};
use guild_contract::{
    Grants, MemberKey,
    capability::{AGENT, MANAGER},
    host::{Check, CheckKind as Kind},
    manifest::World,
};
use guild_extractive::Extractive;
use guild_session::{
    files::Files,
    session::{AgentRuntime, Wanted},
    web::Search,
};
use guild_web::{Granted, Internet};
use jiff::Timestamp;

use super::{
    cluster::look_at_cluster,
    members::{Surveyed, survey_all},
};
use crate::{
    jobs::host_context::CANNOT_MANAGE,
    members::commissions,
    resources::{
        Reach, Resources,
        read_roots::{Sources, read_roots},
        runtimes::{self, Runtimes},
    },
};

/// The number of documents of a read root that are counted.
const DOCUMENTS: u32 = 1000;
/// The query to the search provider.
const QUERY: &str = "WebAssembly";

/// The options of the host that is examined.
#[derive(Clone, Debug)]
pub struct Examination {
    /// `guild.toml`.
    pub config: Config,
    /// The directory of members, if there is one.
    pub members: Option<PathBuf>,
    /// Read roots besides those of the configuration (`--sources`).
    pub sources: Vec<PathBuf>,
    /// The runtime of all sessions, if it is not the configuration's (`--agent`).
    pub agent: Option<Runtime>,
    /// The home of a hall.
    pub hall: Option<PathBuf>,
    /// Whether the host would serve it.
    pub serves_hall: bool,
    /// Whether to send one real query to the search provider.
    pub online: bool,
}

/// Runs all checks, in the order in which they are shown. `compiling` is called with the file of each component that
/// has to be compiled.
pub async fn examine(examination: Examination, compiling: impl Fn(&str) + Send + 'static) -> Vec<Check> {
    let Examination { config, members, sources, agent, hall, serves_hall, online } = examination;
    let config = config.with_agent(agent);
    let packages = members.clone();
    let surveyed = config.clone();
    let survey = tokio::task::spawn_blocking(move || {
        let survey = members.map(|directory| survey_all(&directory, &surveyed, &compiling));
        survey.transpose().map_err(|e| e.to_string())
    });
    let survey = survey.await.unwrap_or_else(|e| Err(e.to_string()));
    let survey_failed = survey.as_ref().err().map(|why| Check::new(Kind::Member, "all", true, Err(why.clone())));
    let survey = survey.ok().flatten().unwrap_or_default();

    let read = read_roots(&config, sources).map_err(|e| e.to_string());
    let roots = read.clone().ok().flatten();
    let files = roots.clone().map(|roots| Arc::new(roots) as Arc<dyn Files>);
    // A runtime that guild.toml or the command line names is always needed. Without a member, one may be added later.
    let is_named = agent.is_some() || config.written.contains_key("agent") || survey.is_empty();
    let agent_of = |member: &Surveyed| match member.found.path.parse::<MemberKey>() {
        Ok(key) => config.agent_of(&key),
        Err(_) => Ok(config.agent),
    };
    let workers = survey.iter().filter(|member| is_ours(member) && takes_work(member));
    let of_members = workers.filter_map(|member| agent_of(member).ok());
    let needed: BTreeSet<Runtime> = of_members.chain(is_named.then_some(config.agent)).collect();
    // The workers of a hall read their worktrees, with or without read roots.
    let reads_worktrees = serves_hall && hall.is_some();
    let needs_roots = needed.contains(&Runtime::Extractive) && !reads_worktrees;
    let mut checks = Vec::new();
    // A script is for tests: an operator who names none misses nothing.
    let has_script = config.scripted.options.script.is_some() || needed.contains(&Runtime::Scripted);
    for &runtime in Runtime::ALL.iter().filter(|runtime| **runtime != Runtime::Scripted || has_script) {
        let found = look_at_runtime(runtime, &config, files.as_ref()).await;
        let is_needed = if runtime == Runtime::Extractive { needs_roots } else { needed.contains(&runtime) };
        checks.push(Check::new(Kind::Runtime, runtime, is_needed, found));
    }
    checks.extend(look_at_keys(&config, needed.contains(&Runtime::Api)));
    checks.push(look_at_sources(read, needs_roots).await);
    checks.extend(look_at_web(&config, files.is_some(), online).await);
    checks.push(look_at_git(&config).await);
    if let Some(home) = &hall {
        let mut found = look_at_hall(home, packages.as_deref(), &config, &survey).await;
        found.push(look_at_manager(&config, &survey));
        checks.extend(found.into_iter().map(|check| Check { needed: check.needed && serves_hall, ..check }));
    }
    if config.spend != Spend::default() {
        checks.push(Check::new(Kind::Spend, "[spend]", true, look_at_spend(&config)));
    }
    if let Some(options) = &config.cluster {
        checks.extend(look_at_cluster(options, &config).await);
    }
    checks.push(Check::new(Kind::Auth, config.auth.bind, true, look_at_ingress(&config)));
    checks.extend(survey_failed);
    let resources = Runtimes::new(&config, None).map(|runtimes| Resources { sources: Sources::new(roots), runtimes });
    let known: BTreeSet<String> = survey.iter().map(|member| member.found.path.clone()).collect();
    checks.extend(survey.into_iter().map(|member| {
        let agent = agent_of(&member);
        look_at_member(member, agent, resources.as_ref().ok(), reads_worktrees)
    }));
    if !known.is_empty() {
        checks.extend(config.keys_without_member(|key| known.contains(key)).map(|key| {
            let why =
                "guild.toml has a table for it, and there is no such member; `guild members` shows the keys".to_owned();
            Check::new(Kind::Member, key, true, Err(why))
        }));
    }
    checks
}

/// Whether this host would serve the member.
fn is_ours(member: &Surveyed) -> bool {
    !matches!(member.state, Ok(false))
}

/// Whether a member takes work, which runs on its runtime.
fn takes_work(member: &Surveyed) -> bool {
    let manifest = member.found.member.as_ref().ok().map(|found| &found.manifest);
    let spec = manifest.filter(|manifest| manifest.is_worker()).and_then(|manifest| manifest.component.as_ref());
    spec.is_some_and(|spec| spec.world.exports_dispatch())
}

async fn look_at_runtime(runtime: Runtime, config: &Config, files: Option<&Arc<dyn Files>>) -> Result<String, String> {
    let wanted = Wanted { files: files.map(|files| &**files), ..Wanted::default() };
    match runtime {
        Runtime::Extractive => {
            Extractive::new().check(&wanted)?;
            Ok("built in".to_owned())
        }
        Runtime::Claude => {
            let claude = runtimes::claude(config)?;
            claude.check(&wanted)?;
            let version = claude.version()?;
            Ok(format!("{version}; its own login is tried by the first job"))
        }
        Runtime::Api => {
            let api = Api::new(config.api.options.clone())?;
            api.check(&wanted)?;
            let model = config.api.options.model.as_deref().unwrap_or_default();
            Ok(format!("{model} at {}", api.address()))
        }
        Runtime::Scripted => {
            runtimes::scripted(config)?;
            let script = config.scripted.options.script.as_deref().unwrap_or(Path::new(""));
            Ok(format!("a script, {}", script.display()))
        }
    }
}

/// The program with which commissions are carried out. A host without projects needs none.
async fn look_at_git(config: &Config) -> Check {
    let found = guild_hall::find_git(None, &config.limits).await;
    let found = found.map(|git| format!("{} is git {}", git.program().display(), git.version()));
    Check::new(Kind::Git, "git", !config.projects.is_empty(), found.map_err(|e| e.to_string()))
}

/// Checks the hall of a host: its home, `config.yaml`, the workers that can be commissioned, and each project.
async fn look_at_hall(home: &Path, members: Option<&Path>, config: &Config, survey: &[Surveyed]) -> Vec<Check> {
    let looked = guild_hall::look_at(home, &commissions::permits(config), &config.limits).await;
    let place = home.display();
    let workers = survey.iter().filter(|member| member.state == Ok(true) && takes_work(member)).count();
    let packages = members.map_or_else(|| home.join(guild_hall::PACKAGES), Path::to_owned);
    let workers = match workers {
        0 => Err(nobody_works(&packages)),
        1 => Ok(format!("1 worker can be commissioned, in {}", packages.display())),
        workers => Ok(format!("{workers} workers can be commissioned, in {}", packages.display())),
    };
    let mut checks = vec![
        Check::new(Kind::Hall, "home", true, looked.home.map(|said| format!("{place}; {said}"))),
        Check::new(Kind::Hall, guild_hall::SETTINGS, true, looked.settings),
        Check::new(Kind::Hall, guild_hall::PACKAGES, true, workers),
    ];
    if let Some(gh) = looked.gh {
        checks.push(Check::new(Kind::Git, "gh", true, gh));
    }
    checks.extend(looked.projects.into_iter().map(|(name, found)| Check::new(Kind::Project, name, true, found)));
    checks
}

/// A sentence that no member of the directory could work on a commission, and the remedy.
pub fn nobody_works(members: &Path) -> String {
    let members = members.display();
    format!(
        "nobody can be commissioned: no worker is in {members}. Put members there, each in a directory of its own, as `cp -r \
         guild-members/researcher {members}/` from where they were built or unpacked; a host that runs serves them at once"
    )
}

/// Checks the manager that `guild.toml` names, if it names one.
fn look_at_manager(config: &Config, survey: &[Surveyed]) -> Check {
    let Some(key) = &config.policy.manager else {
        let hint =
            "there is none: `manager` in [hall] of guild.toml names the member that plans and commissions others";
        return Check::off(Kind::Hall, "manager", hint);
    };
    let found = || {
        let member = survey.iter().find(|member| member.found.path == key.as_str());
        let member = member.ok_or_else(|| {
            format!(
                "[hall] manager = \"{key}\" in guild.toml, and there is no such member; `guild members` shows the keys"
            )
        })?;
        member.state.clone().map_err(|why| format!("{key} cannot be served: {why}"))?;
        let granted = member.granted.as_ref();
        if !granted.is_some_and(|granted| granted.grants.holds(&MANAGER)) {
            let why = granted.and_then(|granted| granted.denied().find(|(name, _)| *name == "hall:manage"));
            return Err(match why {
                Some((_, why)) => format!("{key} is not granted `hall:manage`: {why}"),
                None => format!("{key} does not ask for `hall:manage` in its manifest, so it cannot manage"),
            });
        }
        match config.agent_of(key)? {
            Runtime::Extractive => Err(CANNOT_MANAGE.to_owned()),
            agent => Ok(format!("{key}, on {agent}")),
        }
    };
    Check::new(Kind::Hall, "manager", true, found())
}

/// Checks the named keys, and the provider's usual one.
fn look_at_keys(config: &Config, api_is_needed: bool) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut look = |name: &str, needed: bool, source: Option<&KeySource>| {
        let Some(source) = source else { return };
        // The key is dropped at once.
        let found = source.read().map(|_key| format!("{source} has one"));
        checks.push(Check::new(Kind::Key, name, needed, found));
    };
    if let Ok(api) = Api::new(config.api.options.clone()) {
        look("api", api_is_needed, api.key_source());
    }
    if let Some(WebOptions { search: Some(SearchOptions::Brave { key, .. }), .. }) = &config.web {
        look("web.search", true, Some(key));
    }
    checks
}

/// Checks the read roots, which a host opens all or not at all. `searched` tells whether the built-in runtime reads
/// them, for which a root needs documents.
async fn look_at_sources(read: Result<Option<ReadRoots>, String>, searched: bool) -> Check {
    let check = |found| Check::new(Kind::Sources, "read roots", true, found);
    let roots = match read {
        Ok(Some(roots)) => roots,
        Ok(None) => {
            let hint =
                "sessions read no local files; --sources DIR, or [[roots]] in guild.toml, names directories for them";
            return Check::off(Kind::Sources, "read roots", hint);
        }
        Err(why) => return check(Err(why)),
    };
    let looked = tokio::task::spawn_blocking(move || roots.look(DOCUMENTS).map_err(|e| e.to_string())).await;
    let looked = match looked.map_err(|e| e.to_string()).and_then(|looked| looked) {
        Ok(looked) => looked,
        Err(why) => return check(Err(why)),
    };
    let is_bad = |root: &Looked| root.problem().is_some() && (searched || !root.has_files());
    let (bad, good): (Vec<_>, Vec<_>) = looked.iter().partition(|root| is_bad(root));
    let bad = bad.into_iter().filter_map(|root| Some(format!("{} {}", root.name, root.problem()?)));
    let bad: Vec<String> = bad.collect();
    let all = bad.iter().cloned().chain(good.into_iter().map(content)).collect::<Vec<_>>().join("; ");
    check(if bad.is_empty() { Ok(all) } else { Err(all) })
}

/// A description of the files of a root.
fn content(root: &Looked) -> String {
    let documents = match (root.documents, root.stopped) {
        (0, _) => "no documents".to_owned(),
        (1, false) => "1 document".to_owned(),
        (documents, false) => format!("{documents} documents"),
        (documents, true) => format!("{documents} documents or more"),
    };
    match root.left_out() {
        None => format!("{} ({documents})", root.name),
        Some(left_out) => format!("{} ({documents}; {left_out})", root.name),
    }
}

/// Checks the two halves of the web. `has_roots` tells whether there are read roots to search without it.
async fn look_at_web(config: &Config, has_roots: bool, online: bool) -> Vec<Check> {
    let own = if has_roots { "WebSearch finds what is in the read roots" } else { "there is no WebSearch" };
    let no_provider = || Check::off(Kind::Search, "provider", format!("{own}: guild.toml has no [web.search]"));
    let Some(options) = &config.web else {
        let pages = Check::off(Kind::Web, "pages", "there is no WebFetch: no [web] in guild.toml opens hosts");
        return vec![pages, no_provider()];
    };
    let web = match Internet::new(options) {
        Ok(internet) => internet.for_job(&Granted::all()),
        Err(why) => return vec![Check::new(Kind::Web, "[web]", true, Err(why))],
    };
    let pages = if web.fetch.is_some() {
        Check::new(Kind::Web, "pages", true, Ok(policy(options)))
    } else {
        Check::off(Kind::Web, "pages", "there is no WebFetch: `[web] allow` in guild.toml names no host")
    };
    let search = match (&options.search, &web.search) {
        (Some(provider), Some(search)) => {
            let name = match provider {
                SearchOptions::SearXng { .. } => "searxng",
                SearchOptions::Brave { .. } => "brave",
            };
            let found =
                if online { ask(&**search).await } else { Ok("not asked; --online sends it one query".to_owned()) };
            Check::new(Kind::Search, name, true, found)
        }
        _ => no_provider(),
    };
    vec![pages, search]
}

/// The dollars spent today, and their cap.
fn look_at_spend(config: &Config) -> Result<String, String> {
    let spent = Ledger::of(config).spent_today()?;
    let Spend { host_usd_per_day, token_usd_per_day } = config.spend;
    let cap = |usd: Option<f64>| usd.map_or_else(|| "as much as one likes".to_owned(), |usd| format!("{usd} USD"));
    Ok(format!("{spent:.2} USD today (UTC), of {}; each token {}", cap(host_usd_per_day), cap(token_usd_per_day)))
}

/// Checks the access to the host, its encryption, and its audit log, without making the log.
fn look_at_ingress(config: &Config) -> Result<String, String> {
    let ingress = &config.auth;
    let tls = match &ingress.tls {
        Some(files) => Tls::open(files).and_then(|tls| tls.check_times()).map(|()| "TLS").map_err(|e| e.to_string())?,
        None => "no TLS",
    };
    let is_needed = ingress.require_token || !ingress.bind.is_loopback();
    let (tokens, add) = match TokenFile::of(config) {
        Ok(file) => (file.read().map_err(|e| e.to_string())?, file.command("add NAME")),
        Err(error) if is_needed => return Err(error.to_string()),
        Err(_) => (Vec::new(), String::new()),
    };
    let now = Timestamp::now();
    let good = tokens.iter().filter(|token| !token.has_expired(now)).count();
    if is_needed && good == 0 {
        let why = if tokens.is_empty() { "there is none" } else { "all have expired" };
        return Err(format!("every request needs a token, and {why}; `{add}` makes one"));
    }
    let tokens = match tokens.len() - good {
        0 => good.to_string(),
        expired => format!("{good}, and {expired} expired"),
    };
    let who = match is_needed {
        true => "all requests need one",
        false if config.hall.is_some() => {
            "this machine needs none; warning: so every user of this machine can commission work in the hall, by the port, \
             unless guild.toml has require_token = true"
        }
        false => "this machine needs none",
    };
    let log =
        Log::of(config).map_or_else(|| "no audit log".to_owned(), |log| format!("audit log {}", log.path().display()));
    Ok(format!("{tls}; tokens: {tokens}, {who}; {log}"))
}

/// The network policy in one line.
fn policy(options: &WebOptions) -> String {
    let list = |name: &str, hosts: &[String]| match hosts {
        [] => String::new(),
        hosts => format!("; {name} {}", hosts.join(", ")),
    };
    let robots = if options.robots { "respected" } else { "ignored" };
    format!(
        "allows {}{}{}; robots.txt {robots}; {} bytes and {} s a page",
        options.allow.join(", "),
        list("denies", &options.deny),
        list("private", &options.private),
        options.page_bytes,
        options.page_seconds,
    )
}

/// One real query.
async fn ask(search: &dyn Search) -> Result<String, String> {
    match search.search(QUERY, 3).await {
        Ok(hits) => Ok(format!("it answered {QUERY:?}; pages found: {}", hits.len())),
        Err(error) => Err(error.to_string()),
    }
}

/// Checks a member, its component, the missing tools of its sessions, and its denied requests.
fn look_at_member(
    member: Surveyed,
    agent: Result<Runtime, String>,
    resources: Option<&Resources>,
    reads_worktrees: bool,
) -> Check {
    let Surveyed { found, state, granted, warnings, .. } = member;
    let agent = match (state, agent) {
        (Ok(true), Ok(agent)) => agent,
        (Ok(false), _) => {
            return Check::off(Kind::Member, found.path, "it has no component: its own process serves it");
        }
        (Err(why), _) | (_, Err(why)) => return Check::new(Kind::Member, found.path, true, Err(why)),
    };
    let mut detail = format!("its component loads; sessions on {agent}");
    let spec = found.member.ok().and_then(|member| member.manifest.component);
    let (world, asked) = spec.map_or((None, Vec::new()), |spec| (Some(spec.world), spec.tools));
    if let (Some(granted), Some(resources)) = (granted, resources) {
        let reach = resources.reach(None, &granted.grants);
        if let Err(why) = is_ready(world, agent, &granted.grants, &reach, &resources.runtimes) {
            if agent != Runtime::Extractive || !reads_worktrees {
                return Check::new(Kind::Member, found.path, true, Err(format!("dispatches are refused: {why}")));
            }
            detail.push_str("; it works on commissions and in meetings, and dispatches besides these are refused: ");
            detail.push_str(&why);
        }
        let given = reach.tools;
        let absent: Vec<_> = asked.iter().filter(|tool| !given.contains(tool)).map(String::as_str).collect();
        if !absent.is_empty() {
            detail.push_str(&format!(", without {}", absent.join(", ")));
        }
        let denied = granted.denied().filter(|(name, _)| !asked.iter().any(|tool| tool == name));
        for (name, why) in denied {
            detail.push_str(&format!("; `{name}` is not granted: {why}"));
        }
    }
    for warning in warnings {
        detail.push_str(&format!("; warning: {warning}"));
    }
    Check::new(Kind::Member, found.path, true, Ok(detail))
}

/// Whether a dispatch to a member would find its runtime ready. The model of its plan is not known before.
fn is_ready(
    world: Option<World>,
    agent: Runtime,
    grants: &Grants,
    reach: &Reach,
    runtimes: &Runtimes,
) -> Result<(), String> {
    let later = match world {
        Some(World::Worker | World::WorkerToolbox) => agent == Runtime::Api,
        Some(World::AutonomousWorker) if grants.holds(&AGENT) => true,
        _ => return Ok(()),
    };
    let wanted = Wanted { files: reach.files.as_deref(), later, ..Wanted::default() };
    runtimes.ready(agent, &wanted).map(drop)
}
