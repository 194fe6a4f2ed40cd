//! Assembles an [`Audit`] from bytes, manifest and policy.

use std::collections::{BTreeMap, BTreeSet};

use guild_contract::{
    Limits,
    capability::{
        self, Capability, FILES, KINDS, OWN_TOOLS, WEB,
        denial::Denial,
        grants::{Names, Verdict, wildcard},
        interfaces::Link,
    },
    manifest::{Interface, World},
    text::hex,
};
use guild_inspect::{InspectError, Outside};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{
    bounds::cut,
    flows::Reach,
    judge,
    meaning::{self, Language},
    model::{
        Audit, Contents, Export, ExportState, FORMAT, Findings, Function, Identity, Import, ImportState, Kind, Limit,
        RequestState, RequestedCapability, SessionTool, Sessions,
    },
    rules::Rule,
    scan::{Scan, scan},
    subject::{Member, Subject},
    texts::{self, Texts},
};

/// Imports, and exports, that an audit lists.
const LISTED: usize = 1000;
/// Findings that an audit lists.
const FINDINGS: usize = 1000;

impl Audit {
    /// Audits a component without compiling or running it. It takes any bytes: of what is no component, it says what it is
    /// instead.
    pub fn of(subject: &Subject<'_>) -> Self {
        let Subject { member, limits, signature, bytes, .. } = *subject;
        let mut audit = Self {
            format: FORMAT.to_owned(),
            identity: identity(subject),
            contents: Contents::default(),
            imports: Vec::new(),
            imports_total: 0,
            exports: Vec::new(),
            requested: Vec::new(),
            sessions: member
                .filter(|member| member.spec.world.exports_dispatch())
                .map(|member| sessions(&member, limits)),
            limits: limits_of(limits),
            reach: None,
            flows: Vec::new(),
            texts: Vec::new(),
            hosts: Vec::new(),
            packed: Vec::new(),
            files: member.map(|member| member.package.files.to_vec()).unwrap_or_default(),
            findings: Vec::new(),
        };
        let mut texts = Texts::default();
        let mut findings = Findings::default();
        // What it declares is listed first.
        if let Some(member) = &member {
            texts.declared(member);
        }
        judge::signature(signature, &mut findings);
        judge::size(bytes.len() as u64, limits, &mut findings);
        match guild_inspect::outside(bytes) {
            Ok(outside) => {
                audit.identity.kind = Kind::Component;
                let scan = scan(bytes, &outside.imports, &mut texts);
                audit.read(&outside, scan, member, limits, &mut findings);
            }
            Err(error) => {
                let problem = cut(&error.to_string());
                audit.identity.kind = kind_of(bytes);
                findings.add(Rule::GA001, "file", problem.clone());
                audit.identity.problem = Some(problem);
            }
        }
        if let Some(member) = member {
            judge::directory(&member, &mut findings);
            audit.flow(&member, &mut findings);
        }
        let asked = member.and_then(|member| member.spec.grants.web.as_ref()).map(|web| web.hosts.clone());
        texts.finish(&mut audit, &asked.unwrap_or_default(), &mut findings);
        audit.findings = findings.sorted(FINDINGS);
        audit
    }

    /// Fills in what can flow where, with a finding for each place that something can go to.
    fn flow(&mut self, member: &Member<'_>, findings: &mut Findings) {
        let reach = Reach::of(member, &self.imports);
        self.reach = Some(reach.sentence());
        self.flows = reach.flows(&texts::purpose(member));
        judge::flows(&self.flows, findings);
    }

    /// Fills in what a component's bytes say.
    fn read(
        &mut self,
        outside: &Outside,
        mut scan: Scan,
        member: Option<Member<'_>>,
        limits: &Limits,
        findings: &mut Findings,
    ) {
        let mut languages = scan.claimed.languages();
        languages.extend(scan.libraries.languages());
        // A claim that excuses an import has to be proven.
        let is_proven = |language: &Language| scan.libraries.prove(*language, scan.contents.functions);
        let (languages, unproven): (Vec<_>, Vec<_>) = languages.into_iter().partition(is_proven);
        let names: BTreeSet<&String> = outside.imports.iter().collect();
        self.imports_total = names.len() as u64;
        self.imports = names
            .into_iter()
            .take(LISTED)
            .map(|name| import(name, scan.functions.remove(name).unwrap_or_default(), member, &languages))
            .collect();
        // Long names were cut, which can change their order.
        self.imports.sort_by(|a, b| a.name.cmp(&b.name));
        self.exports = exports(outside, member.map(|member| member.spec.world));
        self.requested = member.map(|member| requested(&member, &self.imports)).unwrap_or_default();
        let truncated = scan.truncated || outside.imports.len() > LISTED || outside.exports.len() > LISTED;
        self.contents = std::mem::take(&mut scan.contents);
        self.identity.claims = std::mem::take(&mut scan.claimed.claims);
        self.identity.producers = std::mem::take(&mut scan.claimed.producers).into_iter().collect();
        self.identity.runtimes = std::mem::take(&mut scan.libraries).runtimes();
        self.identity.dependencies = scan.claimed.dependencies.take();
        self.identity.sboms = std::mem::take(&mut scan.claimed.sboms).into_iter().collect();
        judge::bytes(self, &scan, truncated, limits, findings);
        judge::claims(self, &unproven, member, findings);
        judge::outside(self, outside, &languages, member, findings);
        if let Some(member) = member {
            judge::requested(self, member, findings);
        }
    }
}

fn identity(subject: &Subject<'_>) -> Identity {
    let manifest = subject.member.map(|member| member.manifest);
    Identity {
        file: subject.file.to_owned(),
        bytes: subject.bytes.len() as u64,
        sha256: hex(&Sha256::digest(subject.bytes)),
        member: subject.member.map(|member| member.key.to_string()),
        name: manifest.map(|manifest| cut(&manifest.name)),
        version: manifest.map(|manifest| cut(&manifest.version)),
        world: subject.member.map(|member| member.spec.world.as_str().to_owned()),
        signature: subject.signature.cloned(),
        ..Identity::default()
    }
}

/// What bytes are that are no component.
fn kind_of(bytes: &[u8]) -> Kind {
    match bytes {
        [0x7f, b'E', b'L', b'F', ..] => Kind::Precompiled,
        [0, b'a', b's', b'm', _, _, 0, 0, ..] => Kind::CoreModule,
        [0, b'a', b's', b'm', ..] => Kind::Damaged,
        _ => Kind::Other,
    }
}

fn import(name: &str, functions: Vec<String>, member: Option<Member<'_>>, languages: &[meaning::Language]) -> Import {
    let known = meaning::of(guild_inspect::without_version(name));
    let interface = guild_inspect::interface(name);
    let (state, why) = state_of(name, interface, member);
    let function = |name: String| Function {
        meaning: known.and_then(|known| known.function(&name)).map(str::to_owned),
        name: cut(&name),
    };
    let runtimes = known.map(|known| known.runtimes).unwrap_or_default();
    let named = |language: &&meaning::Language| languages.is_empty() || languages.contains(language);
    Import {
        name: cut(name),
        state,
        meaning: known.map(|known| known.sentence.to_owned()),
        reach: known.map(|known| known.reach.to_owned()),
        needs: interface.map(|interface| interface.kind().name.to_owned()),
        why,
        runtimes: runtimes.iter().filter(named).map(|language| language.as_str().to_owned()).collect(),
        functions: functions.into_iter().map(function).collect(),
    }
}

/// What becomes of an import, and why it is not to be had.
fn state_of(name: &str, interface: Option<Interface>, member: Option<Member<'_>>) -> (ImportState, Option<String>) {
    let known = match guild_inspect::known(name) {
        Ok(known) => known,
        Err(error) => {
            let is_version = matches!(error, InspectError::Version { .. });
            let state = if is_version { ImportState::WrongVersion } else { ImportState::Unknown };
            return (state, Some(cut(&error.to_string())));
        }
    };
    let (Some(interface), Link::Grant) = (interface, known) else {
        return match known {
            Link::Denied => (ImportState::LinkedDenied, Some(guild_inspect::NO_NETWORK.to_owned())),
            _ => (ImportState::Linked, None),
        };
    };
    match member {
        None => (ImportState::NeedsGrant, None),
        Some(member) if member.grants.holds(interface.kind()) => (ImportState::Granted, None),
        Some(member) => match member.grants.denial(interface.kind()) {
            Some(why) => (ImportState::Denied, Some(why.to_string())),
            None => {
                let error = InspectError::NotAsked(BTreeMap::from([(interface, cut(name))]));
                (ImportState::NotAsked, Some(error.to_string()))
            }
        },
    }
}

fn exports(outside: &Outside, world: Option<World>) -> Vec<Export> {
    let wanted = world.map(guild_inspect::exports_of);
    let names: BTreeSet<&String> = outside.exports.iter().collect();
    let mut exports: Vec<Export> = names
        .into_iter()
        .take(LISTED)
        .map(|name| {
            let known = meaning::of(guild_inspect::without_version(name));
            let known = known.filter(|_| guild_inspect::link(name) == Some(Link::Exported));
            let is_wanted = match wanted {
                Some(wanted) => wanted.iter().any(|wanted| guild_inspect::is_export(name, wanted)),
                None => known.is_some(),
            };
            let state = if is_wanted { ExportState::Known } else { ExportState::Extra };
            Export { name: cut(name), state, meaning: known.map(|known| known.sentence.to_owned()) }
        })
        .collect();
    for missing in wanted.unwrap_or_default() {
        if !outside.exports.iter().any(|name| guild_inspect::is_export(name, missing)) {
            let name = format!("guild:worker/{missing}");
            let meaning = meaning::of(&name).map(|known| known.sentence.to_owned());
            exports.push(Export { name, state: ExportState::Missing, meaning });
        }
    }
    exports.sort();
    exports
}

/// What the manifest asks for, with what became of it.
fn requested(member: &Member<'_>, imports: &[Import]) -> Vec<RequestedCapability> {
    let (asked, grants) = (&member.spec.grants, member.grants);
    // Without a job there are no sessions, and nothing to write to.
    let has_jobs = member.spec.world.exports_dispatch();
    let used_by = |kind: &capability::Kind| {
        let imports =
            |interface: Interface| imports.iter().any(|import| import.needs.as_deref() == Some(interface.kind().name));
        let by_component = (has_jobs || !kind.of_jobs) && kind.import.is_none_or(imports);
        let users = [(by_component, "component"), ((kind.of_sessions)(member.spec), "sessions")];
        users.into_iter().filter(|(uses, _)| *uses).map(|(_, user)| user.to_owned()).collect::<Vec<_>>()
    };
    let mut all = Vec::new();
    let mut add = |grant: String, key: &str, (state, why), used_by| {
        let key = format!("component.{key}");
        all.push(RequestedCapability { grant, key, state, why, used_by });
    };
    for kind in KINDS.into_iter().filter(|kind| member.spec.asks(kind)) {
        let became = match grants.requested.get(kind.name) {
            Some(Verdict::Denied(why)) => (RequestState::Denied, Some(why.to_string())),
            _ => (RequestState::Granted, None),
        };
        add(kind.name.to_owned(), kind.key, became, used_by(kind));
    }
    for root in asked.files.iter().flat_map(|files| &files.roots) {
        let became = named(grants.roots.as_ref(), root, grants.denial(&FILES));
        add(cut(&Capability::Root(root.clone()).to_string()), "grants.files.roots", became, used_by(&FILES));
    }
    for host in asked.web.iter().flat_map(|web| &web.hosts) {
        let became = named(grants.hosts.as_ref(), host, grants.denial(&WEB));
        add(cut(&Capability::Host(host.clone()).to_string()), "grants.web.hosts", became, used_by(&WEB));
    }
    all.sort();
    all
}

/// What became of one name, or pattern of names, that was asked for.
fn named(names: Option<&Names>, name: &str, denial: Option<&Denial>) -> (RequestState, Option<String>) {
    let Some(names) = names else {
        let why = denial.map_or_else(|| "the interface is not granted".to_owned(), ToString::to_string);
        return (RequestState::Denied, Some(why));
    };
    let is_pattern = name.contains('*');
    // A pattern that was asked for is granted where nothing narrows it.
    let is_narrowed = names.all_of.len() > 1 || !names.none_of.is_empty();
    match (names.grant(name, wildcard), is_pattern && is_narrowed) {
        (_, true) => (RequestState::Narrowed, Some("guild.toml names some of them only".to_owned())),
        (true, false) => (RequestState::Granted, None),
        (false, false) => (RequestState::Denied, Some("guild.toml does not allow this name".to_owned())),
    }
}

fn sessions(member: &Member<'_>, limits: &Limits) -> Sessions {
    let Member { grants, bounds, .. } = *member;
    let mut tools: Vec<_> = member
        .spec
        .tools
        .iter()
        .map(|tool| SessionTool { name: tool.clone(), granted: grants.sessions.tools.contains(tool) })
        .collect();
    tools.sort();
    tools.dedup();
    let mut toolboxes: Vec<_> = member.spec.toolboxes.iter().map(ToString::to_string).collect();
    toolboxes.sort();
    Sessions {
        tools,
        toolboxes,
        memory: grants.memory,
        memory_write: grants.sessions.memory,
        artifacts: grants.artifacts,
        own_tools: grants.holds(&OWN_TOOLS),
        max_turns: bounds.max_turns.unwrap_or(limits.session_turns),
        max_budget_usd: bounds.max_budget_usd.unwrap_or(limits.session_budget_usd),
        deadline_seconds: bounds.deadline_seconds.unwrap_or(limits.session_seconds),
    }
}

fn limits_of(limits: &Limits) -> Vec<Limit> {
    let numbers = |limits: &Limits| match serde_json::to_value(limits) {
        Ok(Value::Object(numbers)) => numbers,
        _ => serde_json::Map::new(),
    };
    let (values, mut defaults) = (numbers(limits), numbers(&Limits::default()));
    let mut all: Vec<_> = values
        .into_iter()
        .filter(|(name, _)| Limits::ALL.iter().any(|limit| limit.of_member && limit.name == *name))
        .filter_map(|(name, value)| match (value, defaults.remove(&name)) {
            (Value::Number(value), Some(Value::Number(default))) => Some(Limit { name, value, default }),
            _ => None,
        })
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}
