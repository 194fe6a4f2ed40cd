//! Applies the rules of an audit, which find what a reviewer should look at.

mod directory;

use std::collections::BTreeMap;

use guild_contract::{
    Limits,
    capability::{KINDS, interfaces::EXPORTS},
    manifest::World,
};
use guild_inspect::Outside;

use crate::{
    bounds::steers,
    evidence::characters::alike,
    flows::{Flow, Sink, listed},
    meaning::Language,
    model::{Audit, ExportState, Findings, Import, ImportState, RequestState, Signature, SignatureState},
    rules::{Rule, Severity},
    scan::{Scan, beyond, traces::PRIVATE_KEY},
    subject::Member,
};

/// Data above this share of a component, and this size, is pointed out.
const LARGE_DATA_BYTES: u64 = 4 * 1024 * 1024;
/// Functions of one import that a finding names.
const UNKNOWN_FUNCTIONS: usize = 5;

pub(crate) fn signature(signature: Option<&Signature>, findings: &mut Findings) {
    let Some(signature) = signature else { return };
    let detail = signature.detail.as_deref().unwrap_or_default();
    match signature.state {
        SignatureState::Valid => {}
        SignatureState::Missing if signature.required => {
            findings.add(
                Rule::GA010,
                "signature",
                "it is not signed, and guild.toml requires a signature; have it signed, or refuse it",
            );
        }
        SignatureState::Missing => {}
        SignatureState::Unknown if signature.required => findings.add(
            Rule::GA010,
            "signature",
            "it is signed with a key that guild.trust does not have, and guild.toml requires one that it has; \
             find out whose key it is before you add it",
        ),
        SignatureState::Unknown => findings.add(
            Rule::GA027,
            "signature",
            "it is signed with a key that guild.trust does not have; find out whose it is, or treat it as unsigned",
        ),
        SignatureState::Invalid => {
            findings.add(
                Rule::GA010,
                "signature",
                format!("its signature does not hold ({detail}); do not use the file"),
            );
        }
    }
}

pub(crate) fn size(bytes: u64, limits: &Limits, findings: &mut Findings) {
    if bytes > limits.component_bytes {
        let text = format!(
            "it has {bytes} bytes, and limits.component_bytes = {} refuses it; ask for a smaller build, or raise the limit",
            limits.component_bytes
        );
        findings.add(Rule::GA008, "file", text);
    }
}

/// What its bytes say, under any policy.
pub(crate) fn bytes(audit: &Audit, scan: &Scan, truncated: bool, limits: &Limits, findings: &mut Findings) {
    let (identity, contents) = (&audit.identity, &audit.contents);
    if let Some(invalid) = &scan.invalid {
        findings.add(Rule::GA002, "file", format!("it does not validate, and no host loads it: {invalid}"));
    }
    for (limit, declared, most) in beyond(contents, limits) {
        let raise = if Limits::is_fixed(limit) { "" } else { ", or raise the limit" };
        let text = format!(
            "its core modules declare {declared} in all, which is more than {} = {most}; a host refuses what goes \
             beyond that when it is started. Ask for a build that needs less{raise}",
            Limits::cited(limit)
        );
        findings.add(Rule::GA009, format!("limits.{limit}"), text);
    }
    let mut programs: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for program in &contents.programs {
        let size = program.bytes.map(|bytes| format!(" ({bytes} bytes)")).unwrap_or_default();
        let preview = if program.preview.is_empty() { String::new() } else { format!(": {:?}", program.preview) };
        programs.entry(&program.form).or_default().push(format!("{}{size}{preview}", program.offset));
    }
    for (form, offsets) in programs {
        if form == PRIVATE_KEY {
            let text = format!(
                "its data holds {form} at byte {}, which everybody has who has the component",
                offsets.join(", ")
            );
            findings.add_as(Severity::High, Rule::GA024, "data", text);
            continue;
        }
        let text = format!(
            "its data holds what looks like {form} at byte {}; a component cannot start a program, but ask what it is for",
            offsets.join(", ")
        );
        findings.add(Rule::GA024, "data", text);
    }
    if scan.steers {
        let text = "names or descriptions in it have characters that steer a terminal, are not seen, or turn the \
                    direction of reading; read its texts with a tool that shows them";
        findings.add(Rule::GA025, "file", text);
    }
    if truncated {
        let text = "it has more imports, functions, sections or producers than an audit lists; no honest component needs as many";
        findings.add(Rule::GA026, "file", text);
    }
    if let Some(problem) = identity.dependencies.as_ref().and_then(|list| list.problem.as_ref()) {
        let text = format!("its dependency list cannot be read: {problem}; ask for a build with one that can");
        findings.add(Rule::GA028, "\".dep-v0\"", text);
    }
    if contents.host_paths_total > 0 {
        let some = contents.host_paths.first().map_or("", |path| path.path.as_str());
        let text = format!(
            "it holds paths of the machine that it was made on ({} found), as {some}; they tell who made it and where. \
             Build with paths remapped (Rust: `--remap-path-prefix`), and strip it",
            contents.host_paths_total
        );
        let section = contents.host_paths.first().map_or("data", |path| path.section.as_str());
        findings.add(Rule::GA032, section, text);
    }
    if contents.data_bytes > LARGE_DATA_BYTES && contents.data_bytes > identity.bytes / 2 {
        let text = format!(
            "{} of its {} bytes are data; ask what it carries (a model, a dictionary, another program)",
            contents.data_bytes, identity.bytes
        );
        findings.add(Rule::GA033, "data", text);
    }
    if identity.producers.is_empty() {
        let text = "it has no producers section, so nothing says which compiler made it; ask for the build";
        findings.add(Rule::GA034, "file", text);
    }
    if contents.debug_bytes > 0 {
        let text = format!(
            "{} bytes of it are for debuggers; they do no harm, and stripping them makes it smaller",
            contents.debug_bytes
        );
        findings.add(Rule::GA043, "file", text);
    }
    if identity.dependencies.is_none() && identity.sboms.is_empty() {
        let text = "it has no list of its dependencies; for Rust, cargo-auditable puts one in";
        findings.add(Rule::GA044, "file", text);
    }
}

/// What it says of who made it, and of how.
pub(crate) fn claims(audit: &Audit, unproven: &[Language], member: Option<Member<'_>>, findings: &mut Findings) {
    let (identity, functions) = (&audit.identity, audit.contents.functions);
    let is_excused = audit.imports.iter().any(|import| import.state == ImportState::LinkedDenied);
    let severity = if is_excused { Severity::High } else { Severity::Medium };
    // What a compiler leaves can be stripped; an engine cannot.
    for language in unproven.iter().filter(|language| matches!(language, Language::JavaScript | Language::Python)) {
        let text = format!(
            "it says that it carries an engine of {}, which has thousands of functions; it has {functions}. \
             Nothing that it imports is excused by that; ask how it was made",
            language.as_str()
        );
        findings.add_as(severity, Rule::GA062, "producers", text);
    }
    let is_signed = identity.signature.as_ref().is_some_and(|signature| signature.state == SignatureState::Valid);
    let of_another = |name: &&String| member.is_some_and(|member| alike(name, &member.manifest.name).is_none());
    let claimed = [
        ("authors", "its authors", identity.claims.authors.as_ref()),
        ("name", "itself, and its manifest does not", identity.claims.name.as_ref().filter(of_another)),
    ];
    for (section, what, claim) in claimed {
        if let Some(claim) = claim.filter(|_| !is_signed) {
            let text =
                format!("it names {what}: {claim:?}; nothing proves that, since nobody whom you trust signed it");
            findings.add(Rule::GA063, format!("{section:?}"), text);
        }
    }
}

/// What it imports and exports.
pub(crate) fn outside(
    audit: &Audit,
    outside: &Outside,
    languages: &[Language],
    member: Option<Member<'_>>,
    findings: &mut Findings,
) {
    if outside.imports.iter().chain(&outside.exports).any(|name| steers(name)) {
        findings.add(
            Rule::GA025,
            "imports",
            "names of its imports or exports have characters that steer a terminal, are not seen, or turn the direction of \
             reading; no tool makes such names by itself",
        );
    }
    let is_strict = member.is_some_and(|member| member.grants.strict_imports);
    for import in &audit.imports {
        let why = import.why.clone().unwrap_or_default();
        let place = format!("import {}", import.name);
        if let Some(text) = unknown_functions(import) {
            findings.add(Rule::GA004, &place, text);
        }
        match import.state {
            ImportState::NotAsked => findings.add(Rule::GA003, place, format!("{why}; a host refuses it as it is")),
            ImportState::Unknown => findings.add(Rule::GA004, place, why),
            ImportState::WrongVersion => {
                findings.add(Rule::GA005, place, format!("{why}; build it against the host's wit/"))
            }
            ImportState::Denied | ImportState::LinkedDenied if is_strict => {
                let text = format!("`strict_imports = true` refuses this import, which is not granted: {why}");
                findings.add(Rule::GA006, place, text);
            }
            ImportState::LinkedDenied if import.runtimes.is_empty() || languages.is_empty() => {
                let text = "it imports sockets or HTTP, and it has no language's runtime that does so by itself; every call \
                            traps here. Ask what it is for: `web` is the way to the web";
                findings.add(Rule::GA023, place, text);
            }
            ImportState::LinkedDenied => {
                let text = format!(
                    "the runtime of {} imports it by itself; every call traps here",
                    import.runtimes.join(", ")
                );
                findings.add(Rule::GA045, place, text);
            }
            ImportState::Granted | ImportState::Denied | ImportState::NeedsGrant | ImportState::Linked => {}
        }
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
                findings.add(Rule::GA007, place, text);
            }
            ExportState::Known => {
                if let Err(error) = guild_inspect::check_version(&export.name) {
                    findings.add(Rule::GA005, place, format!("{error}; build it against the host's wit/"));
                }
            }
            ExportState::Extra if EXPORTS.iter().any(|known| guild_inspect::is_export(&export.name, known)) => {
                let world = audit.identity.world.as_deref().unwrap_or_default();
                let text = format!(
                    "the manifest says `\"world\": \"{world}\"`, which does not have this export, and a host refuses the component; \
                     name the world that it was built for"
                );
                findings.add(Rule::GA007, place, text);
            }
            ExportState::Extra => {
                findings.add(Rule::GA035, place, "nobody calls this export; ask what it is for");
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

/// What its manifest asks for.
pub(crate) fn requested(audit: &Audit, member: Member<'_>, findings: &mut Findings) {
    let (spec, grants) = (member.spec, member.grants);
    for request in &audit.requested {
        let place = member.in_manifest(&request.key);
        if request.used_by.is_empty() {
            let unused = match spec.world.exports_dispatch() {
                true => "and neither imports it nor has session tools that use it",
                false => "and no call of its tools can use it",
            };
            let text = format!("it asks for `{}`, {unused}; take it out of the manifest", request.grant);
            findings.add(Rule::GA022, &place, text);
        }
        // Of an interface that is denied as a whole, the parts are not repeated.
        let is_told = request.grant.split_once(':').is_some_and(|(interface, _)| is_denied(audit, interface));
        if request.state == RequestState::Denied && !is_told {
            let why = request.why.as_deref().unwrap_or_default();
            findings.add(Rule::GA042, &place, format!("it asks for `{}`, which is not granted: {why}", request.grant));
        }
    }
    let asks = &spec.grants;
    if asks.files.as_ref().is_some_and(|files| files.roots.is_empty()) {
        let text = "it asks for every read root; have it name those that it needs in `files.roots`, or allow it only some in \
                    guild.toml (\"files:ROOT\")";
        findings.add(Rule::GA030, member.in_manifest("component.grants.files"), text);
    }
    let uses =
        |grant: &str| audit.requested.iter().any(|request| request.grant == grant && !request.used_by.is_empty());
    for kind in KINDS.into_iter().filter(|kind| grants.holds(kind) && uses(kind.name)) {
        if let Some(finding) = kind.finding
            && let Some(rule) = Rule::of_id(finding.rule)
        {
            findings.add(rule, member.in_manifest(&format!("component.{}", kind.key)), (finding.text)(spec));
        }
    }
    if spec.world == World::AutonomousWorker {
        let text = "it carries its jobs out itself: it sees /job and writes below /job/artifacts, within the limits";
        findings.add(Rule::GA041, member.in_manifest("component.world"), text);
    }
    let (asked, had) = (&spec.resources, &member.bounds);
    let clipped = [
        ("maxTurns", asked.max_turns.map(f64::from), had.max_turns.map(f64::from)),
        ("maxBudgetUsd", asked.max_budget_usd, had.max_budget_usd),
        ("deadlineSeconds", asked.deadline_seconds.map(f64::from), had.deadline_seconds.map(f64::from)),
    ];
    for (bound, asked, had) in clipped {
        if let (Some(asked), Some(had)) = (asked, had)
            && asked > had
        {
            let text = format!("it asks for {bound} = {asked}, and your limits make that {had}");
            findings.add(Rule::GA064, member.in_manifest(&format!("component.resources.{bound}")), text);
        }
    }
    let has_sessions = !spec.tools.is_empty() || !spec.toolboxes.is_empty() || asks.agent.is_some();
    if has_sessions && spec.resources.max_turns.is_none() && spec.resources.max_budget_usd.is_none() {
        let text = "its manifest bounds neither turns nor dollars, so only the operator's limits do; have it name what it needs";
        findings.add(Rule::GA036, member.in_manifest("component.resources"), text);
    }
}

/// Whether an interface is asked for and not granted.
fn is_denied(audit: &Audit, interface: &str) -> bool {
    audit.requested.iter().any(|request| request.grant == interface && request.state == RequestState::Denied)
}

/// What its directory and its `mcp` line say.
pub(crate) fn directory(member: &Member<'_>, findings: &mut Findings) {
    directory::files(member.package.files, findings);
    directory::line(member, findings);
}

/// What can flow where: a finding for each place, with all that can go there for one reason.
pub(crate) fn flows(flows: &[Flow], findings: &mut Findings) {
    let mut by_reason: BTreeMap<(Severity, &Sink, &str), Vec<String>> = BTreeMap::new();
    for flow in flows {
        if let (Some(severity), Some(why)) = (flow.severity, &flow.why) {
            by_reason.entry((severity, &flow.sink, why)).or_default().push(flow.source.to_string());
        }
    }
    for ((severity, sink, why), sources) in by_reason {
        findings.add_as(severity, Rule::GA060, sink.to_string(), format!("{} {why}", listed(sources.into_iter())));
    }
}
