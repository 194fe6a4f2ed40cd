//! Finds the facts of a component, its manifest and its directory: what a host refuses, and what a reviewer should know.

mod directory;

use std::collections::{BTreeMap, BTreeSet};

use guild_contract::{Limits, capability::interfaces::EXPORTS};
use guild_inspect::Outside;

use crate::{
    bounds::steers,
    facts::{FactName, Found},
    flows::Flow,
    model::{Audit, ExportState, Import, ImportState, Signature, SignatureState},
    scan::{Scan, beyond},
    subject::{Member, Trusted},
};

/// Functions of one import that a fact names.
const UNKNOWN_FUNCTIONS: usize = 5;
/// Places of flows that a fact names.
const PLACES: usize = 6;

pub(crate) fn signature(signature: Option<&Signature>, facts: &mut Found) {
    let Some(signature) = signature else { return };
    let detail = signature.detail.as_deref().unwrap_or_default();
    match signature.state {
        SignatureState::Valid => {}
        SignatureState::Missing if signature.required => {
            facts.add(
                FactName::SignatureBad,
                "signature",
                "it is not signed, and guild.toml requires a signature; have it signed, or refuse it",
            );
        }
        SignatureState::Missing => {}
        SignatureState::Unknown if signature.required => facts.add(
            FactName::SignatureBad,
            "signature",
            "it is signed with a key that guild.trust does not have, and guild.toml requires one that it has; \
             find out whose key it is before you add it",
        ),
        SignatureState::Unknown => facts.add(
            FactName::SignatureUnknown,
            "signature",
            "it is signed with a key that guild.trust does not have; find out whose it is, or treat it as unsigned",
        ),
        SignatureState::Invalid => {
            facts.add(
                FactName::SignatureBad,
                "signature",
                format!("its signature does not hold ({detail}); do not use the file"),
            );
        }
    }
}

pub(crate) fn size(bytes: u64, limits: &Limits, facts: &mut Found) {
    if bytes > limits.component_bytes {
        let text = format!(
            "it has {bytes} bytes, and limits.component_bytes = {} refuses it; ask for a smaller build, or raise the limit",
            limits.component_bytes
        );
        facts.add(FactName::Oversize, "file", text);
    }
}

/// Adds the facts that the bytes alone show, under any policy.
pub(crate) fn bytes(audit: &Audit, scan: &Scan, truncated: bool, limits: &Limits, facts: &mut Found) {
    let (identity, contents) = (&audit.identity, &audit.contents);
    if let Some(invalid) = &scan.invalid {
        facts.add(FactName::NotValid, "file", format!("it does not validate, and no host loads it: {invalid}"));
    }
    for (limit, declared, most) in beyond(contents, limits) {
        let raise = if Limits::is_fixed(limit) { "" } else { ", or raise the limit" };
        let text = format!(
            "its core modules declare {declared} in all, which is more than {} = {most}; a host refuses what goes \
             beyond that when it is started. Ask for a build that needs less{raise}",
            Limits::cited(limit)
        );
        facts.add(FactName::BeyondLimits, format!("limits.{limit}"), text);
    }
    let mut programs: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for program in &contents.programs {
        let size = program.bytes.map(|bytes| format!(" ({bytes} bytes)")).unwrap_or_default();
        let preview = if program.preview.is_empty() { String::new() } else { format!(": {:?}", program.preview) };
        programs.entry(&program.form).or_default().push(format!("{}{size}{preview}", program.offset));
    }
    for (form, offsets) in programs {
        let text = format!("its data holds {form} at byte {}", offsets.join(", "));
        facts.add(FactName::EmbeddedProgram, "data", text);
    }
    if scan.steers {
        let text = "names or descriptions in it have characters that steer a terminal, are not seen, or turn the \
                    direction of reading; read its texts with a tool that shows them";
        facts.add(FactName::HiddenCharacters, "file", text);
    }
    if truncated {
        let text = "it has more imports, functions, sections or producers than an audit lists; no honest component needs as many";
        facts.add(FactName::NotAllListed, "file", text);
    }
    if let Some(problem) = identity.dependencies.as_ref().and_then(|list| list.problem.as_ref()) {
        let text = format!("its dependency list cannot be read: {problem}; ask for a build with one that can");
        facts.add(FactName::DependenciesUnreadable, "\".dep-v0\"", text);
    }
    if contents.host_paths_total > 0 {
        let some = contents.host_paths.first().map_or("", |path| path.path.as_str());
        let text = format!(
            "it holds paths of the machine that it was made on ({} found), as {some}; they tell who made it and where. \
             Build with paths remapped (Rust: `--remap-path-prefix`), and strip it",
            contents.host_paths_total
        );
        let section = contents.host_paths.first().map_or("data", |path| path.section.as_str());
        facts.add(FactName::HostPaths, section, text);
    }
}

/// Adds the facts about imports and exports.
pub(crate) fn outside(audit: &Audit, outside: &Outside, member: Option<Member<'_>>, facts: &mut Found) {
    if outside.imports.iter().chain(&outside.exports).any(|name| steers(name)) {
        facts.add(
            FactName::HiddenCharacters,
            "imports",
            "names of its imports or exports have characters that steer a terminal, are not seen, or turn the direction of \
             reading; no tool makes such names by itself",
        );
    }
    let is_strict = member.is_some_and(|member| member.grants.strict_imports);
    let mut network = Vec::new();
    for import in &audit.imports {
        let why = import.why.clone().unwrap_or_default();
        let place = format!("import {}", import.name);
        if let Some(text) = unknown_functions(import) {
            facts.add(FactName::ImportUnknown, &place, text);
        }
        match import.state {
            ImportState::NotAsked => {
                facts.add(FactName::ImportNotAsked, place, format!("{why}; a host refuses it as it is"))
            }
            ImportState::Unknown => facts.add(FactName::ImportUnknown, place, why),
            ImportState::WrongVersion => {
                facts.add(FactName::ImportVersion, place, format!("{why}; build it against the host's wit/"))
            }
            ImportState::Denied | ImportState::LinkedDenied if is_strict => {
                let text = format!("`strict_imports = true` refuses this import, which is not granted: {why}");
                facts.add(FactName::ImportRefused, place, text);
            }
            ImportState::LinkedDenied => network.push(import),
            ImportState::Granted | ImportState::Denied | ImportState::NeedsGrant | ImportState::Linked => {}
        }
    }
    if !network.is_empty() {
        let names = network.iter().map(|import| import.name.as_str()).collect::<Vec<_>>().join(", ");
        let runtimes: BTreeSet<_> = network.iter().flat_map(|import| &import.runtimes).map(String::as_str).collect();
        let runtimes = runtimes.into_iter().collect::<Vec<_>>().join(", ");
        let runtimes = if runtimes.is_empty() {
            String::new()
        } else {
            format!("; the runtimes of these languages import some by themselves: {runtimes}")
        };
        facts.add(FactName::NetworkImport, "imports", format!("every call traps of {names}{runtimes}"));
    }
    for export in &audit.exports {
        let place = format!("export {}", export.name);
        match export.state {
            ExportState::Missing => {
                let world = audit.identity.world.as_deref().unwrap_or_default();
                let text = format!(
                    "the manifest says `\"world\": \"{world}\"`, whose `{}` it does not export; name the world that it was built for",
                    export.name
                );
                facts.add(FactName::WorldMismatch, place, text);
            }
            ExportState::Known => {
                if let Err(error) = guild_inspect::check_version(&export.name) {
                    facts.add(FactName::ImportVersion, place, format!("{error}; build it against the host's wit/"));
                }
            }
            ExportState::Extra if EXPORTS.iter().any(|known| guild_inspect::is_export(&export.name, known)) => {
                let world = audit.identity.world.as_deref().unwrap_or_default();
                let text = format!(
                    "the manifest says `\"world\": \"{world}\"`, which does not have this export, and a host refuses the component; \
                     name the world that it was built for"
                );
                facts.add(FactName::WorldMismatch, place, text);
            }
            ExportState::Extra => {
                facts.add(FactName::ExtraExport, place, "nobody calls this export");
            }
        }
    }
}

/// The functions of an interface that this host has, which it does not: it refuses such a component. Of what it does not
/// have at all, or in another version, there is a finding already; and what is denied may have any function.
fn unknown_functions(import: &Import) -> Option<String> {
    if matches!(import.state, ImportState::Unknown | ImportState::WrongVersion | ImportState::LinkedDenied) {
        return None;
    }
    let mut unknown = import.functions.iter().filter(|function| function.meaning.is_none());
    let some: Vec<_> =
        unknown.by_ref().take(UNKNOWN_FUNCTIONS).map(|function| format!("`{}`", function.name)).collect();
    let more = unknown.count();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!some.is_empty()).then(|| {
        let some = some.join(", ");
        format!(
            "it imports functions of `{}` that this host does not have: {some}{more}; a host refuses it",
            import.name
        )
    })
}

/// Adds imports and requests that the trusted version does not have.
pub(crate) fn trusted(audit: &Audit, trusted: &Trusted, member: Option<Member<'_>>, facts: &mut Found) {
    for import in audit.imports.iter().filter(|import| !trusted.imports.contains(&import.name)) {
        facts.add(FactName::NewImport, format!("import {}", import.name), "the trusted version does not import it");
    }
    let Some(member) = member else { return };
    for host in asked_hosts(&member).iter().filter(|host| !trusted.hosts.contains(*host)) {
        let what = if host == "*" { "every host" } else { host };
        let text = format!("it asks for {what}, and the trusted version does not");
        facts.add(FactName::NewHost, member.in_manifest("component.grants.web"), text);
    }
}

/// The patterns of hosts that a manifest asks for; `*` where it asks for the web, or for WebFetch, and names none.
fn asked_hosts(member: &Member<'_>) -> BTreeSet<String> {
    let spec = member.spec;
    let named = spec.grants.web.iter().flat_map(|web| web.hosts.iter().cloned()).collect::<BTreeSet<_>>();
    let reads_web = spec.grants.web.is_some() || spec.tools.iter().any(|tool| tool == "WebFetch");
    if named.is_empty() && reads_web { BTreeSet::from(["*".to_owned()]) } else { named }
}

/// Adds requests of the manifest that nothing uses.
pub(crate) fn requested(audit: &Audit, member: Member<'_>, facts: &mut Found) {
    for request in audit.requested.iter().filter(|request| request.used_by.is_empty()) {
        let unused = match member.spec.world.exports_dispatch() {
            true => "and neither imports it nor has session tools that use it",
            false => "and no call of its tools can use it",
        };
        let text = format!("it asks for `{}`, {unused}", request.grant);
        facts.add(FactName::AsksForUnused, member.in_manifest(&request.key), text);
    }
}

/// Adds the facts about the directory and the `mcp` line.
pub(crate) fn directory(member: &Member<'_>, facts: &mut Found) {
    directory::files(member.package.files, facts);
    directory::line(member, facts);
}

/// What can leave this machine: a fact for what it does by itself, for what can reach anybody, and for what takes a reader.
pub(crate) fn flows(flows: &[Flow], facts: &mut Found) {
    let leaves = |flow: &&Flow| flow.leaves;
    let groups: [(FactName, Vec<&Flow>); 3] = [
        (
            FactName::OpenFlow,
            flows.iter().filter(leaves).filter(|flow| flow.is_own() && flow.relay.is_some()).collect(),
        ),
        (FactName::Flow, flows.iter().filter(leaves).filter(|flow| flow.is_own()).collect()),
        (FactName::IndirectFlow, flows.iter().filter(leaves).filter(|flow| !flow.is_own()).collect()),
    ];
    for (name, flows) in groups {
        let Some(first) = flows.first() else { continue };
        let mut places: Vec<_> = flows.iter().take(PLACES).map(|flow| flow.place()).collect();
        if flows.len() > PLACES {
            places.push(format!("{} more", flows.len() - PLACES));
        }
        facts.add(name, format!("to {}", first.to), format!("what it reads can go to {}", places.join("; ")));
    }
}
