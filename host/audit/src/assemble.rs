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
    check,
    facts::{FactName, Found},
    flows::Reach,
    meaning,
    model::{
        Audit, Contents, Export, ExportState, FORMAT, Function, Identity, Import, ImportState, Kind, Limit,
        RequestState, RequestedCapability, SessionTool, Sessions,
    },
    scan::{Scan, scan},
    subject::{Member, Subject},
    texts::Texts,
};

/// Imports, and exports, that an audit lists.
const LISTED: usize = 1000;
/// Facts that an audit lists.
const FACTS: usize = 1000;

impl Audit {
    /// Audits a component without compiling or running it. It takes any bytes: of what is no component, it says what it is
    /// instead.
    pub fn of(subject: &Subject<'_>) -> Self {
        let Subject { member, limits, signature, bytes, whole, .. } = *subject;
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
            reach: Vec::new(),
            flows: Vec::new(),
            texts: Vec::new(),
            folded: Vec::new(),
            hosts: Vec::new(),
            unread: Vec::new(),
            unread_total: 0,
            files: member.map(|member| member.package.files.to_vec()).unwrap_or_default(),
            since: None,
            facts: Vec::new(),
        };
        let mut texts = Texts::new(whole);
        let mut facts = Found::default();
        // What it declares is listed first.
        if let Some(member) = &member {
            texts.declared(member);
        }
        check::signature(signature, &mut facts);
        check::size(bytes.len() as u64, limits, &mut facts);
        match guild_inspect::outside(bytes) {
            Ok(outside) => {
                audit.identity.kind = Kind::Component;
                let scan = scan(bytes, &outside.imports, &mut texts);
                audit.read(&outside, scan, subject, &mut facts);
            }
            Err(error) => {
                let problem = cut(&error.to_string());
                audit.identity.kind = kind_of(bytes);
                facts.add(FactName::NotAComponent, "file", problem.clone());
                audit.identity.problem = Some(problem);
            }
        }
        if let Some(member) = &member {
            check::directory(member, &mut facts);
            audit.flow(member, &mut facts);
        }
        let asked = member.and_then(|member| member.spec.grants.web.as_ref()).map(|web| web.hosts.clone());
        let relays = member.map(|member| member.operator.opened.relays.as_slice()).unwrap_or_default();
        texts.finish(&mut audit, &asked.unwrap_or_default(), relays, &mut facts);
        audit.facts = facts.sorted(FACTS);
        audit
    }

    /// Fills in what can flow where.
    fn flow(&mut self, member: &Member<'_>, facts: &mut Found) {
        let operator = member.operator;
        let imports =
            |kind: &capability::Kind| self.imports.iter().any(|import| import.needs.as_deref() == Some(kind.name));
        let reach = Reach::of(member.spec, &operator.grants, &operator.places, imports);
        let key = member.key.as_str();
        (self.flows, self.reach) = reach.flows(key, &operator.others, &operator.opened);
        check::flows(&self.flows, facts);
    }

    /// Fills in what a component's bytes say.
    fn read(&mut self, outside: &Outside, mut scan: Scan, subject: &Subject<'_>, facts: &mut Found) {
        let Subject { member, limits, trusted, .. } = *subject;
        let mut languages = scan.claimed.languages();
        languages.extend(scan.libraries.languages());
        let languages: Vec<_> = languages.into_iter().collect();
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
        check::bytes(self, &scan, truncated, limits, facts);
        check::outside(self, outside, member, facts);
        if let Some(trusted) = trusted {
            check::trusted(self, trusted, member, facts);
        }
        if let Some(member) = member {
            check::requested(self, member, facts);
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
