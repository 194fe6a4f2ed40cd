//! Finds the facts of a member's directory: files besides its own, and the line by which others start it.

use crate::{
    facts::{FactName, Found},
    model::{OtherFile, OtherKind},
    subject::Member,
};

/// Files of a kind that a fact names.
const NAMED: usize = 5;
/// Files that coding agents and editors read by themselves, as orders: names, and directories with them, in small letters.
const FOR_AGENTS: [&str; 12] = [
    "agents.md",
    "claude.md",
    "claude.local.md",
    "gemini.md",
    "skill.md",
    ".cursorrules",
    ".windsurfrules",
    ".clinerules",
    "copilot-instructions.md",
    ".mcp.json",
    "mcp.json",
    ".envrc",
];
/// Directories of them.
const FOR_AGENTS_IN: [&str; 6] = [".claude", ".cursor", ".windsurf", ".vscode", ".github", ".devcontainer"];

/// Adds the facts about files in the directory besides the member's own.
pub(crate) fn files(files: &[OtherFile], facts: &mut Found) {
    let of = |kinds: &[OtherKind]| {
        let names: Vec<_> =
            files.iter().filter(|file| kinds.contains(&file.kind)).map(|file| file.path.as_str()).collect();
        let some = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
        match names.len().saturating_sub(NAMED) {
            _ if names.is_empty() => None,
            0 => Some(some),
            more => Some(format!("{some} and {more} more")),
        }
    };
    if let Some(file) = files.iter().find(|file| is_for_agents(&file.path)) {
        let text = "coding agents and editors read it by themselves, as orders, wherever the member lies; delete it";
        facts.add(FactName::OtherFile, &file.path, text);
    }
    if let Some(file) = files.iter().find(|file| file.path.starts_with("jobs/")) {
        let text = "it comes with jobs that this host has not run, or memories that none of them made; delete `jobs/` and \
                    `memory/`";
        facts.add(FactName::OtherFile, &file.path, text);
    }
    let cases: [(&[OtherKind], &str); 5] = [
        (
            &[OtherKind::LinkOut],
            "links that lead out of the directory: who copies, packs or reads the member takes something of yours along",
        ),
        (&[OtherKind::Wasm], "further WebAssembly, which this manifest does not name: a changed manifest could"),
        (&[OtherKind::Program], "programs or scripts; this host runs none, but its command line could"),
        (&[OtherKind::Link, OtherKind::Special], "links, or what is no file: what they lead to is not audited"),
        (&[OtherKind::PrivateKey], "a private key, which everybody has who has the member"),
    ];
    for (kinds, what) in cases {
        if let Some(names) = of(kinds) {
            facts.add(FactName::OtherFile, names, what);
        }
    }
}

/// Whether coding agents or editors read a file by themselves.
fn is_for_agents(path: &str) -> bool {
    let path = path.to_lowercase();
    let mut folders: Vec<&str> = path.split('/').collect();
    let name = folders.pop().unwrap_or_default();
    FOR_AGENTS.contains(&name) || folders.iter().any(|folder| FOR_AGENTS_IN.contains(folder))
}

/// The `mcp` line, by which others start the member.
pub(crate) fn line(member: &Member<'_>, facts: &mut Found) {
    let manifest = member.manifest;
    let command = manifest.mcp.as_ref().map_or("guild", |line| &line.command);
    let unplain = manifest.unplain().map(|found| (found.key, found.what));
    // The host's own check takes any program of that name, since people install it where they like.
    let unplain =
        unplain.or((command != "guild").then(|| ("mcp.command", format!("is {command:?} and not \"guild\""))));
    if manifest.component.is_some() && manifest.plugin.is_some() {
        let text = "it names a program besides the component, which a host of another kind starts; have it taken out";
        facts.add(FactName::McpLine, member.in_manifest("plugin"), text);
    }
    if let Some((key, what)) = unplain {
        let text = format!("it {what}: who starts the member by it gets another program, or another policy than yours");
        facts.add(FactName::McpLine, member.in_manifest(key), text);
    }
}
