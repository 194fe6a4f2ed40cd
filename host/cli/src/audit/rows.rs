//! Rows of an audit, shared by its text and its HTML.

use std::collections::{BTreeMap, BTreeSet};

use guild_audit::{
    Audit,
    flows::{Sink, Source},
    model::{ExportState, Function, ImportState, Kind, OtherKind, RequestState, RequestedCapability, SignatureState},
};

use crate::output::{count, one_line};

/// Names of states, for people.
pub(super) fn import_state(state: ImportState) -> &'static str {
    match state {
        ImportState::Granted => "granted",
        ImportState::Denied => "denied",
        ImportState::NotAsked => "not asked",
        ImportState::NeedsGrant => "needs grant",
        ImportState::Linked => "linked",
        ImportState::LinkedDenied => "traps",
        ImportState::Unknown => "unknown",
        ImportState::WrongVersion => "version",
    }
}

/// Whether a state keeps a host from loading the component.
pub(super) fn is_refused(state: ImportState) -> bool {
    matches!(state, ImportState::NotAsked | ImportState::Unknown | ImportState::WrongVersion)
}

pub(super) fn export_state(state: ExportState) -> &'static str {
    match state {
        ExportState::Known => "called",
        ExportState::Extra => "extra",
        ExportState::Missing => "missing",
    }
}

/// The decision on a request, and whether its capability is used.
pub(super) fn request_state(request: &RequestedCapability) -> &'static str {
    match (request.state, request.used_by.is_empty()) {
        (RequestState::Denied, _) => "denied",
        (_, true) => "unused",
        (RequestState::Narrowed, false) => "narrowed",
        (RequestState::Granted, false) => "granted",
    }
}

/// The users of a requested capability.
pub(super) fn users(request: &RequestedCapability) -> String {
    if request.used_by.is_empty() { "nobody".to_owned() } else { request.used_by.join(" and ") }
}

/// The description of a function of an import.
pub(super) fn does(function: &Function) -> &str {
    function.meaning.as_deref().unwrap_or("This host does not know it.")
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Component => "WebAssembly component",
        Kind::CoreModule => "WebAssembly core module",
        Kind::Precompiled => "precompiled component",
        Kind::Damaged => "damaged WebAssembly",
        Kind::Other => "no WebAssembly",
    }
}

/// The description of a kind of file in a member's directory.
pub(super) fn other_kind(kind: OtherKind) -> &'static str {
    match kind {
        OtherKind::Wasm => "WebAssembly",
        OtherKind::Program => "program",
        OtherKind::PrivateKey => "private key",
        OtherKind::Link => "link",
        OtherKind::LinkOut => "link out",
        OtherKind::Special => "no file",
        OtherKind::Text => "text",
        OtherKind::Other => "other",
    }
}

/// The identity and the capabilities of the subject in a few lines, each with a label.
pub(super) fn heading(audit: &Audit) -> Vec<(&'static str, String)> {
    // A member is named first.
    let mut rows: Vec<_> = identity(audit)
        .into_iter()
        .filter(|(label, _)| matches!(*label, "member" | "file" | "sha256" | "signature"))
        .collect();
    rows.sort_by_key(|(label, _)| *label != "member");
    if !audit.is_readable() {
        rows.push(("kind", kind(audit.identity.kind).to_owned()));
        return rows;
    }
    // Interfaces of one package and state are one item.
    let mut imports: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for import in &audit.imports {
        let (package, interface) = import.name.split_once('/').unwrap_or((&import.name, ""));
        let interface = interface.split('@').next().unwrap_or_default();
        imports.entry((import_state(import.state), package)).or_default().push(interface);
    }
    let all = imports.into_iter().map(|((state, package), interfaces)| {
        let names =
            if interfaces.len() > 4 { format!("{} interfaces", interfaces.len()) } else { interfaces.join(", ") };
        format!("{package} {names} ({state})")
    });
    let all: Vec<_> = all.collect();
    rows.push(("imports", if all.is_empty() { "nothing".to_owned() } else { all.join("; ") }));
    let exports = audit.exports.iter().map(|export| match export.state {
        ExportState::Known => export.name.clone(),
        state => format!("{} ({})", export.name, export_state(state)),
    });
    rows.push(("exports", exports.collect::<Vec<_>>().join(", ")));
    for state in ["granted", "narrowed", "unused", "denied"] {
        let of_state: Vec<_> = audit.requested.iter().filter(|request| request_state(request) == state).collect();
        let names = of_state.iter().map(|request| request.grant.as_str()).collect::<Vec<_>>().join(", ");
        if !names.is_empty() {
            rows.push((state, names));
        }
    }
    if let Some(sessions) = &audit.sessions {
        let tools = sessions.tools.iter().map(|tool| match tool.granted {
            true => tool.name.clone(),
            false => format!("{} (denied)", tool.name),
        });
        let tools: Vec<_> = tools.chain(sessions.toolboxes.iter().map(|key| format!("tools of {key}"))).collect();
        let tools = if tools.is_empty() { "no tools of others".to_owned() } else { tools.join(", ") };
        let bounds = format!(
            "at most {} turns, {} USD, {} s a job",
            count(sessions.max_turns.into()),
            sessions.max_budget_usd,
            count(sessions.deadline_seconds.into())
        );
        rows.push(("sessions", format!("{tools}; {bounds}")));
    }
    let differ = audit.limits.iter().filter(|limit| limit.value != limit.default);
    let differ: Vec<_> = differ
        .map(|limit| format!("{} {} (default {})", limit.name, number(&limit.value), number(&limit.default)))
        .collect();
    if !differ.is_empty() {
        rows.push(("limits", differ.join(", ")));
    }
    rows
}

/// The identity of the subject in lines with labels.
pub(super) fn identity(audit: &Audit) -> Vec<(&'static str, String)> {
    let (identity, contents) = (&audit.identity, &audit.contents);
    let mut rows = vec![("file", identity.file.clone()), ("kind", kind(identity.kind).to_owned())];
    if let Some(member) = &identity.member {
        let [name, version, world] =
            [&identity.name, &identity.version, &identity.world].map(|text| text.as_deref().unwrap_or_default());
        rows.push(("member", format!("{member} ({name} {version}), world {world}")));
    }
    rows.push(("size", format!("{} bytes", count(identity.bytes))));
    rows.push(("sha256", identity.sha256.clone()));
    if let Some(signature) = &identity.signature {
        let state = match signature.state {
            SignatureState::Valid => "valid",
            SignatureState::Missing => "none",
            SignatureState::Unknown => "by a key that is not trusted",
            SignatureState::Invalid => "does not hold",
        };
        let detail = signature.detail.as_ref().map(|detail| format!(": {detail}")).unwrap_or_default();
        let required = if signature.required { " (required)" } else { "" };
        rows.push(("signature", format!("{state}{detail}{required}")));
    }
    if !audit.is_readable() {
        return rows;
    }
    let claims = &identity.claims;
    let claimed = [
        ("says name", &claims.name),
        ("says version", &claims.version),
        ("says it is", &claims.description),
        ("says authors", &claims.authors),
        ("says licence", &claims.licenses),
        ("says source", &claims.source),
        ("says page", &claims.homepage),
        ("says rev.", &claims.revision),
    ];
    rows.extend(claimed.into_iter().filter_map(|(label, text)| Some((label, text.clone()?))));
    let producers: Vec<_> =
        identity.producers.iter().map(|producer| format!("{} {}", producer.name, producer.version)).collect();
    let producers = if producers.is_empty() { "not said".to_owned() } else { producers.join(", ") };
    rows.push(("made with", producers));
    let runtimes =
        identity.runtimes.iter().map(|runtime| format!("{} (it links {})", runtime.language, runtime.library));
    rows.extend(runtimes.map(|runtime| ("runtime of", runtime)));
    let dependencies = match &identity.dependencies {
        None => "not listed in it".to_owned(),
        Some(list) => match &list.problem {
            Some(problem) => format!("unreadable: {problem}"),
            None => format!("{} packages listed in {}", count(list.total), list.section),
        },
    };
    rows.push(("depends on", dependencies));
    for sbom in &identity.sboms {
        rows.push(("SBOM", format!("{} in section {}, {} bytes", sbom.form, sbom.section, count(sbom.bytes))));
    }
    let [modules, components, functions] = [contents.core_modules, contents.components, contents.functions].map(count);
    rows.push(("made of", format!("core modules: {modules}, components: {components}, functions: {functions}")));
    let [code, data, debug] = [contents.code_bytes, contents.data_bytes, contents.debug_bytes].map(count);
    rows.push(("bytes", format!("{code} code, {data} data, {debug} for debuggers")));
    let [memories, bytes] = [contents.memories, contents.memory_bytes].map(count);
    let [tables, elements] = [contents.tables, contents.table_elements].map(count);
    let declares = format!("linear memories: {memories} ({bytes} bytes), tables: {tables} ({elements} elements)");
    rows.push(("declares", declares));
    rows
}

/// The permissions of sessions; empty if there are none.
pub(super) fn sessions(audit: &Audit) -> Vec<(&'static str, String)> {
    let Some(sessions) = &audit.sessions else { return Vec::new() };
    let named = |granted: bool| {
        let names = sessions.tools.iter().filter(|tool| tool.granted == granted);
        names.map(|tool| tool.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    let mut rows = Vec::new();
    let or_none = |names: String| if names.is_empty() { "none".to_owned() } else { names };
    rows.push(("tools", or_none(named(true))));
    let denied = named(false);
    if !denied.is_empty() {
        rows.push(("denied", denied));
    }
    if !sessions.toolboxes.is_empty() {
        rows.push(("toolboxes", sessions.toolboxes.join(", ")));
    }
    let memory = match (sessions.memory, sessions.memory_write) {
        (true, true) => "are shown the member's memories, and may store some",
        (true, false) => "are shown the member's memories",
        (false, true) => "may store memories, and are shown none",
        (false, false) => "none",
    };
    rows.push(("memory", memory.to_owned()));
    let yes = |granted: bool| if granted { "yes" } else { "no" }.to_owned();
    rows.push(("artifacts", yes(sessions.artifacts)));
    rows.push(("own tools", yes(sessions.own_tools)));
    let bounds = format!(
        "{} turns, {} USD, {} seconds a job",
        count(sessions.max_turns.into()),
        sessions.max_budget_usd,
        count(sessions.deadline_seconds.into())
    );
    rows.push(("at most", bounds));
    rows
}

/// A limit's number, with commas if it is an integer.
pub(super) fn number(number: &serde_json::Number) -> String {
    number.as_u64().map_or_else(|| number.to_string(), count)
}

/// An import without its functions: its capabilities, the runtimes that import it, the reason if it is unavailable.
pub(super) fn notes(import: &guild_audit::model::Import) -> Vec<(&'static str, String)> {
    let mut notes = Vec::new();
    if let Some(reach) = &import.reach {
        notes.push(("reaches", reach.clone()));
    }
    if let Some(needs) = &import.needs {
        notes.push(("needs", format!("the grant `{needs}`")));
    }
    if !import.runtimes.is_empty() {
        notes.push(("runtime", format!("{} may import it without the program's use", import.runtimes.join(", "))));
    }
    if let Some(why) = import.why.as_ref().filter(|_| import.state != ImportState::LinkedDenied) {
        notes.push(("why", why.clone()));
    }
    notes
}

/// A table for guild.toml that allows by name the capabilities that a member uses, except for access to arbitrary
/// hosts.
pub(super) fn narrowed(audit: &Audit) -> Option<String> {
    let member = audit.identity.member.as_ref()?;
    let used = audit.requested.iter().filter(|request| !request.used_by.is_empty());
    let whole = ["files", "web"];
    let mut allow: BTreeSet<String> =
        used.map(|request| request.grant.clone()).filter(|grant| !whole.contains(&grant.as_str())).collect();
    for flow in audit.flows.iter().filter(|flow| flow.by.is_empty()) {
        let roots = flow.from.iter().filter_map(|from| if let Source::Root(root) = from { Some(root) } else { None });
        allow.extend(roots.map(|root| format!("files:{root}")));
        if let Sink::Host(host) = &flow.to
            && !host.contains('*')
        {
            allow.insert(format!("web:{host}"));
        }
    }
    allow.retain(|grant| !grant.contains(['*', '(']));
    let reads = audit.requested.iter().any(|request| request.grant == "files" && !request.used_by.is_empty());
    let is_unnamed = reads && !allow.iter().any(|grant| grant.starts_with("files:"));
    let roots = if is_unnamed { "# and \"files:ROOT\" for each read root that it needs\n" } else { "" };
    let allow = allow.into_iter().map(|grant| one_line(&format!("{grant:?}"), 200)).collect::<Vec<_>>().join(", ");
    Some(format!("[member.{}]\nallow = [{allow}]\n{roots}", one_line(&format!("{member:?}"), 200)))
}
