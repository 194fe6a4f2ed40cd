//! Finds in the records of all runs what a reviewer is shown.

pub(crate) mod active;
pub(crate) mod crossings;
mod differences;
pub(crate) mod twins;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use guild_contract::{
    capability::{
        ARTIFACTS, FILES, HALL, JOB_TOOLS, KINDS, Kind, LORE_WRITE, MANAGER, MEMORY, MEMORY_WRITE, SEARCH, WEB,
        WORKTREE_WRITE,
    },
    manifest::{Interface, World},
};
use guild_roster::discovery::FoundMember;
use guild_trust::Pin;
use serde_json::Value;

use crate::{
    Options, asks,
    canaries::{Canaries, Source},
    home,
    inputs::VARIANTS,
    known::{Known, addresses},
    neighbour::OWN_HOST,
    record::{Event, Place},
    report::{Active, Coverage, Crossing, FORMAT, Planted, Probe, Requested, RunReport, Seen, Unexpected, Unknown},
    run::Played,
    scenarios::{self, Setting},
    web,
};
use differences::Compared;

/// Requests that are listed.
const REQUESTS: usize = 200;
/// Bytes of the shortest word of a request that is judged.
const WORD: usize = 4;
/// Unknown texts that are listed.
const UNKNOWN: usize = 60;
/// Characters of one of them.
const UNKNOWN_CHARS: usize = 4000;
/// Names of a place that are listed.
const NAMES: usize = 8;

/// All that the runs of a member show.
pub(crate) struct Findings<'a> {
    pub(crate) runs: &'a [(&'a Setting, Played)],
    pub(crate) crossings: Vec<Crossing>,
    pub(crate) active: Vec<Active>,
    /// The runs for which there was no time.
    pub(crate) not_played: Vec<String>,
    /// The words of its component that were tried.
    pub(crate) words: &'a str,
    pub(crate) canaries: &'a Canaries,
    pub(crate) files: Vec<Vec<u8>>,
    /// The interfaces of the host that its component imports.
    pub(crate) imports: BTreeSet<Interface>,
    pub(crate) found: &'a FoundMember,
}

impl Findings<'_> {
    pub(crate) fn probe(self, options: &Options, files: &Pin, began: Instant) -> Probe {
        let mut all = Known::of(&self.files);
        let [mut given, mut tried] = [Known::of(&[]), Known::of(&[])];
        for text in self.inputs(false).iter().chain(&home::given()) {
            all.add(text);
            given.add(text);
            tried.add(text);
        }
        // Its own words are given in one run only: they are no reason for what it says in others.
        for text in self.inputs(true).iter().map(String::as_str).chain(self.words.lines()) {
            all.add(text);
            tried.add(text);
        }
        let compared: Vec<Compared<'_>> = self.runs.iter().map(|(setting, run)| self.compared(setting, run)).collect();
        let (of_project, with_project) = differences::with_project(&compared, self.canaries, &given, &all);
        let mut differences = differences::between(&compared, self.canaries, &given, &tried);
        differences.extend(of_project);
        differences.sort_by_key(|one| one.place);
        Probe {
            format: FORMAT.to_owned(),
            member: self.found.key.to_string(),
            component_sha256: files.sha256.clone(),
            manifest_sha256: self.found.manifest_sha256(),
            seed: options.seed,
            obedient: options.obedient,
            canaries: crossings::sorted(self.crossings.clone()),
            given: self.given(),
            requests: self.requests(&given),
            unexpected_requests: self.unexpected(),
            differences,
            with_project,
            planted: self.planted(),
            active: self.active.clone(),
            unknown_texts: self.unknown(&all),
            seen: self.seen(),
            coverage: self.coverage(),
            runs: self
                .runs
                .iter()
                .map(|(setting, run)| RunReport {
                    name: setting.name.clone(),
                    time: scenarios::shown(setting.time),
                    events: run.events.clone(),
                })
                .collect(),
            seconds: began.elapsed().as_secs_f64(),
        }
    }

    /// A run for the comparison: the calls of tools are repeated once all variants came.
    fn compared<'a>(&self, setting: &'a Setting, run: &'a Played) -> Compared<'a> {
        let jobs = setting.steps.iter().filter(|step| !matches!(step, scenarios::Step::Tools(_))).count();
        let first = jobs + run.listed.len() * VARIANTS;
        let repeats_from = u32::try_from(first + 1).unwrap_or(u32::MAX);
        Compared { name: &setting.name, kind: setting.kind, repeats_from, events: &run.events }
    }

    /// The inputs of the model and of callers in runs with the member's own words, or in the others.
    fn inputs(&self, has_words: bool) -> BTreeSet<String> {
        let mut inputs: BTreeSet<String> = BTreeSet::new();
        for (_, run) in self.runs.iter().filter(|(setting, _)| setting.has_words == has_words) {
            inputs.extend(run.events.iter().filter(|event| event.by_model).flat_map(sentences));
        }
        inputs
    }

    /// What the member was given.
    fn given(&self) -> Vec<String> {
        let roots = self.canaries.all().iter().filter_map(|canary| match &canary.source {
            Source::Root(name) => Some(name.as_str()),
            _ => None,
        });
        let (files, rows) = (home::file_names().join(", "), asks::ROWS.map(|rows| rows.to_string()).join(", "));
        let mut given = vec![format!("the read roots {}, each with {files}", roots.collect::<Vec<_>>().join(", "))];
        if self.found.manifest.is_worker() {
            let tasks = [asks::TASK, asks::OF_FILES].into_iter().chain(asks::USUAL);
            given.push(format!("the tasks \"{}\"", tasks.collect::<Vec<_>>().join("\", \"")));
            given.push(format!("attached tables of {rows} rows"));
        }
        given.push(format!("{} words and phrases of its component", self.words.lines().count()));
        given
    }

    /// The distinct requests of the component.
    fn requests(&self, given: &Known) -> Vec<Requested> {
        let mut found: Vec<Requested> = Vec::new();
        let events = self.runs.iter().flat_map(|(_, run)| &run.events);
        let is_own = |event: &&Event| {
            event.place == Place::Request && [web::BY_COMPONENT, web::REFUSED].contains(&event.name.as_str())
        };
        for event in events.filter(is_own) {
            if let Some(one) = found.iter_mut().find(|one| one.address == event.text) {
                one.times += 1;
            } else if found.len() < REQUESTS {
                let own_words = own_words(&event.text, given, self.canaries);
                found.push(Requested { address: event.text.clone(), times: 1, own_words });
            }
        }
        found.sort_by(|one, other| (other.times, &one.address).cmp(&(one.times, &other.address)));
        found
    }

    /// Requests of the component to hosts that were not granted, or that nothing names.
    fn unexpected(&self) -> Vec<Unexpected> {
        let mut found: Vec<Unexpected> = Vec::new();
        for (setting, run) in self.runs {
            for event in run.events.iter().filter(|event| event.place == Place::Request && !event.by_model) {
                let host = event.text.split('/').nth(2).unwrap_or_default();
                let host = host.split(':').next().unwrap_or_default().to_ascii_lowercase();
                let why = match event.name.as_str() {
                    web::REFUSED => "its host was not granted, so the request was refused",
                    web::BY_COMPONENT if !self.names(&host) => "its host stands nowhere in the member's files",
                    _ => continue,
                };
                match found.iter_mut().find(|one| one.address == event.text) {
                    Some(one) => one.times += 1,
                    None => found.push(Unexpected {
                        address: event.text.clone(),
                        why: why.to_owned(),
                        run: setting.name.clone(),
                        times: 1,
                    }),
                }
            }
        }
        found.truncate(UNKNOWN);
        found
    }

    /// Whether a file of the member, or an input, names a host.
    fn names(&self, host: &str) -> bool {
        host == OWN_HOST || self.files.iter().any(|file| memchr::memmem::find(file, host.as_bytes()).is_some())
    }

    /// Files in commits that other programs run when a person opens the project, or builds it.
    fn planted(&self) -> Vec<Planted> {
        let mut found: Vec<Planted> = Vec::new();
        for (setting, run) in self.runs {
            for event in run.events.iter().filter(|event| event.place == Place::Commit) {
                let paths = event.text.lines().filter_map(|line| line.strip_prefix("+++ b/"));
                for path in paths.filter(|path| is_run(path)) {
                    if !found.iter().any(|one| one.path == path) {
                        found.push(Planted { path: path.to_owned(), run: setting.name.clone() });
                    }
                }
            }
        }
        found
    }

    /// The lines that models read and whose origin is unknown.
    fn unknown(&self, known: &Known) -> Vec<Unknown> {
        let mut found: Vec<Unknown> = Vec::new();
        let mut seen = BTreeSet::new();
        for (setting, run) in self.runs {
            for event in run.events.iter().filter(|event| event.place.is_for_models() && !event.by_model) {
                for line in sentences(event) {
                    let normal = differences::normal(&line, self.canaries);
                    if known.knows(&normal) || !seen.insert((event.place, normal)) {
                        continue;
                    }
                    let same = |one: &&mut Unknown| {
                        one.place == event.place && one.name == event.name && one.run == setting.name
                    };
                    match found.iter_mut().find(same) {
                        Some(one) if one.text.len() < UNKNOWN_CHARS => {
                            one.text.push('\n');
                            one.text.push_str(line.trim());
                        }
                        Some(_) => {}
                        None => found.push(Unknown {
                            place: event.place,
                            name: event.name.clone(),
                            text: line.trim().to_owned(),
                            run: setting.name.clone(),
                        }),
                    }
                }
            }
        }
        found.sort_by_key(|one| one.place);
        found.truncate(UNKNOWN);
        found
    }

    fn seen(&self) -> Vec<Seen> {
        let mut places: BTreeMap<Place, (usize, BTreeSet<String>)> = BTreeMap::new();
        for event in self.runs.iter().flat_map(|(_, run)| &run.events).filter(|event| !event.by_model) {
            let (events, names) = places.entry(event.place).or_default();
            *events += 1;
            if names.len() < NAMES {
                names.insert(match event.place {
                    Place::Request => addresses(&event.text).pop().unwrap_or_else(|| event.text.clone()),
                    _ => event.name.clone(),
                });
            }
        }
        let seen = |(place, (events, names)): (Place, (usize, BTreeSet<String>))| Seen {
            place,
            events,
            names: names.into_iter().collect(),
        };
        places.into_iter().map(seen).collect()
    }

    fn coverage(&self) -> Coverage {
        let mut coverage = Coverage::default();
        let (mut tools, mut listed) = (BTreeMap::new(), BTreeSet::new());
        for (_, run) in self.runs {
            for (tool, answered) in &run.tools {
                *tools.entry(tool.clone()).or_insert(false) |= answered;
            }
            listed.extend(run.listed.iter().cloned());
            coverage.notes.extend(run.notes.iter().cloned());
        }
        if !self.not_played.is_empty() {
            let runs = self.not_played.join("; ");
            coverage.notes.push(format!("the time was up before these runs, --seconds gives more: {runs}"));
        }
        coverage.notes.sort();
        coverage.notes.dedup();
        let has = |place: Place| {
            self.runs.iter().any(|(_, run)| run.events.iter().any(|event| event.place == place && !event.by_model))
        };
        let refused = |name: &str| {
            let mut failures = self.runs.iter().flat_map(|(_, run)| &run.events);
            failures.any(|event| event.place == Place::Failure && event.name == name)
        };
        let sessions = self.runs.iter().map(|(_, run)| run.sessions).sum::<usize>();
        if let Some(spec) = &self.found.manifest.component {
            let is_worker = self.found.manifest.is_worker();
            let mut export = |name: &str, is_called: bool| {
                let list = if is_called { &mut coverage.exports_called } else { &mut coverage.exports_not_called };
                list.push(name.to_owned());
            };
            if is_worker {
                export("dispatch.activate", true);
            }
            if spec.world == World::AutonomousWorker {
                export("run.run", sessions > 0 || has(Place::Result) || has(Place::Log) || refused("job"));
            }
            if spec.world.exports_toolbox() {
                export("toolbox.list-tools", true);
                export("toolbox.call-tool", !tools.is_empty());
            }
            if is_worker && sessions == 0 && spec.world != World::AutonomousWorker {
                coverage.notes.push("no session was planned, so no prompt was seen".to_owned());
            }
            let used: BTreeSet<&str> = self.runs.iter().flat_map(|(_, run)| &run.used).map(String::as_str).collect();
            let called = |interface: Interface| used.contains(interface.kind().name);
            let imported = self.imports.iter().filter(|interface| !called(**interface));
            coverage.imports_not_called = imported.map(|interface| interface.as_str().to_owned()).collect();
            let model_called = |tools: &[&str]| {
                let mut calls = self.runs.iter().flat_map(|(_, run)| &run.events);
                calls.any(|event| event.place == Place::ModelCall && tools.contains(&event.name.as_str()))
            };
            // The use by sessions.
            let is_used = |kind: &Kind| match kind {
                _ if used.contains(kind.name) => true,
                kind if *kind == WEB || *kind == SEARCH => {
                    has(Place::Request) || model_called(&["WebFetch", "WebSearch"])
                }
                kind if *kind == FILES => model_called(&["Read", "Grep", "Glob"]),
                kind if *kind == JOB_TOOLS || *kind == ARTIFACTS => has(Place::Result) || has(Place::Artifact),
                kind if *kind == MANAGER => has(Place::Commission) || has(Place::PullRequest),
                kind if *kind == MEMORY || *kind == HALL => sessions > 0,
                kind if *kind == MEMORY_WRITE => has(Place::OwnMemory),
                kind if *kind == WORKTREE_WRITE || *kind == LORE_WRITE => has(Place::Commit),
                // Sessions are told the notes of these scopes.
                kind => kind.import.is_none() && sessions > 0,
            };
            let asked = KINDS.into_iter().filter(|kind| spec.asks(kind) && !is_used(kind));
            coverage.grants_not_seen = asked.map(|kind| kind.name.to_owned()).collect();
        }
        (coverage.tools_answered, coverage.tools_not_answered) = tools
            .keys()
            .cloned()
            .chain(listed)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .partition(|tool| tools.get(tool) == Some(&true));
        coverage
    }
}

/// The words after the host of an address that stand nowhere in what the member was given, without tokens.
fn own_words(address: &str, given: &Known, canaries: &Canaries) -> Vec<String> {
    let plain = percent_encoding::percent_decode_str(address).decode_utf8_lossy().to_lowercase();
    let path = plain.splitn(4, '/').nth(3).unwrap_or_default();
    let words = path.split(|c: char| !c.is_alphanumeric()).filter(|word| word.len() >= WORD && !given.has_word(word));
    let is_token = |word: &&str| canaries.all().iter().any(|one| one.token.contains(word) || word.contains(&one.token));
    let words: BTreeSet<&str> = words.filter(|word| !is_token(word)).collect();
    words.into_iter().map(str::to_owned).collect()
}

/// The lines of a text; of JSON, the lines of its texts, since a program makes what is around them.
fn sentences(event: &Event) -> Vec<String> {
    fn texts(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::String(text) => found.extend(text.lines().map(str::to_owned)),
            Value::Array(items) => items.iter().for_each(|item| texts(item, found)),
            Value::Object(fields) => fields.values().for_each(|field| texts(field, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    for line in event.text.lines() {
        match serde_json::from_str::<Value>(line) {
            Ok(value) => texts(&value, &mut found),
            Err(_) => found.push(line.to_owned()),
        }
    }
    found
}

/// Whether a program runs a file of this path when a person opens, builds or commits to the project.
fn is_run(path: &str) -> bool {
    const DIRECTORIES: [&str; 9] =
        [".husky", ".githooks", ".git-hooks", "hooks", ".vscode", ".idea", ".devcontainer", ".claude", ".cargo"];
    const FILES: [&str; 14] = [
        ".envrc",
        "Makefile",
        "makefile",
        "GNUmakefile",
        "justfile",
        "build.rs",
        "conftest.py",
        "setup.py",
        "package.json",
        ".pre-commit-config.yaml",
        "lefthook.yml",
        ".gitlab-ci.yml",
        "Jenkinsfile",
        ".mcp.json",
    ];
    let mut parts = path.split('/');
    let name = parts.next_back().unwrap_or_default();
    FILES.contains(&name) || parts.any(|part| DIRECTORIES.contains(&part)) || path.starts_with(".github/workflows/")
}
