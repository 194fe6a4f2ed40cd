//! Reads `package.json` with a key `guildHall`, which declares a worker or a toolbox of the original Guild Hall
//! (REQ-WKR-1, REQ-WKR-5).
//!
//! The file is read as data, without running code, and converted to the terms of `guild-member.json`.

use std::{collections::BTreeMap, sync::LazyLock};

use schemars::JsonSchema;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Map, Value, json};

use super::{
    CheckoutScope, ComponentSpec, Declared, Lines, ManifestError, SESSION_TOOLS, Shape, TOOLS, WORKER, check_slips,
    read,
};
use crate::{ids::MemberKey, job::bounds::Bounds};

/// The file's name in a member's directory.
pub const FILE_NAME: &str = "package.json";
/// The key that makes a package a member.
pub(super) const KEY: &str = "guildHall";
/// The keys of [`Package`].
const KEYS: [&str; 14] = [
    "type",
    "identity",
    "name",
    "description",
    "posture",
    "model",
    "subAgentModel",
    "domainToolboxes",
    "domainPlugins",
    "systemToolboxes",
    "builtInTools",
    "checkoutScope",
    "resourceDefaults",
    "component",
];
/// The keys of [`Identity`].
const IDENTITY: [&str; 5] = ["name", "description", "displayTitle", "portraitPath", "guidance"];
/// The schema of the file.
static SHAPE: LazyLock<Shape> = LazyLock::new(Shape::of::<File>);
/// The keys of a package, with their paths in `guild-member.json`. If two keys have one path, the later one takes
/// precedence.
const SAME: [(&str, &str); 16] = [
    ("name", "name"),
    ("version", "version"),
    ("displayName", "guildHall.name"),
    ("displayName", "guildHall.identity.name"),
    ("description", "guildHall.description"),
    ("description", "guildHall.identity.description"),
    ("displayTitle", "guildHall.identity.displayTitle"),
    ("portraitPath", "guildHall.identity.portraitPath"),
    ("posture", "guildHall.posture"),
    ("model", "guildHall.model"),
    ("capabilities", "guildHall.type"),
    ("component.tools", "guildHall.builtInTools"),
    ("component.grants.worktree", "guildHall.builtInTools"),
    ("component.toolboxes", "guildHall.domainToolboxes"),
    ("component.checkoutScope", "guildHall.checkoutScope"),
    ("component.resources", "guildHall.resourceDefaults"),
];

#[derive(Deserialize, JsonSchema)]
struct File {
    name: String,
    version: Option<String>,
    #[serde(rename = "guildHall")]
    package: Package,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Package {
    #[serde(rename = "type")]
    kind: Value,
    #[serde(default)]
    identity: Identity,
    /// The name of a toolbox, which has no identity.
    name: Option<String>,
    description: Option<String>,
    posture: Option<String>,
    model: Option<String>,
    domain_toolboxes: Option<Vec<MemberKey>>,
    #[serde(default)]
    domain_plugins: Vec<String>,
    #[serde(default)]
    system_toolboxes: Vec<String>,
    built_in_tools: Option<Vec<String>>,
    checkout_scope: Option<CheckoutScope>,
    resource_defaults: Option<Bounds>,
    component: Option<ComponentSpec>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Identity {
    name: Option<String>,
    description: Option<String>,
    display_title: Option<String>,
    portrait_path: Option<String>,
}

/// Whether a `package.json` declares a member with a key `guildHall`. For a text that is not JSON, an occurrence of the
/// word is enough.
pub fn is_declared(text: &[u8]) -> bool {
    match serde_json::from_slice::<BTreeMap<String, IgnoredAny>>(text) {
        Ok(keys) => keys.contains_key(KEY),
        Err(_) => String::from_utf8_lossy(text).contains("\"guildHall\""),
    }
}

/// Converts a `package.json` to the terms of `guild-member.json`. The faults of the declaration include features that
/// this host does not have.
pub(super) fn declared(text: &[u8]) -> Result<Declared, ManifestError> {
    let said = Lines::of(FILE_NAME, str::from_utf8(text).unwrap_or_default());
    check_slips(&said, KEY, &KEYS)?;
    check_slips(&said, "guildHall.identity", &IDENTITY)?;
    let (File { name, version, package }, whole) = read(text, &said, &SHAPE)?;
    let mut faults = Vec::new();
    let mut fault = |key: &str, why: String| {
        let key = format!("{KEY}.{key}");
        faults.push(ManifestError::at(&said.place(&key), format!("`{key}` {why}")));
    };
    let capabilities = capabilities(&package.kind).map_err(|why| fault("type", why)).ok();
    if let [plugin, ..] = package.domain_plugins.as_slice() {
        fault(
            "domainPlugins",
            format!("names {plugin:?}, and this host does not run plugins of Claude Code; remove it"),
        );
    }
    if let [toolbox, ..] = package.system_toolboxes.as_slice() {
        let why = "which this host does not have yet; remove it: the tools that every worker has need not be named";
        fault("systemToolboxes", format!("names {toolbox:?}, {why}"));
    }
    let (mut tools, mut others, mut writes) = (Vec::new(), Vec::new(), false);
    for tool in package.built_in_tools.iter().flatten() {
        match tool.as_str() {
            "Write" | "Edit" => writes = true,
            tool if SESSION_TOOLS.contains(&tool) => tools.push(tool),
            other => others.push(format!("{other:?} ({})", instead_of(other))),
        }
    }
    if !others.is_empty() {
        fault("builtInTools", format!("names tools that this host does not give to workers: {}", others.join(", ")));
    }

    let identity = package.identity;
    let component = stated(json!({
        "tools": package.built_in_tools.is_some().then_some(tools),
        "grants": writes.then(|| json!({"worktree": {"write": true}})),
        "toolboxes": package.domain_toolboxes,
        "checkoutScope": package.checkout_scope,
        "resources": package.resource_defaults,
    }));
    let value = stated(json!({
        "name": name,
        "version": version,
        "displayName": identity.name.or(package.name),
        "description": identity.description.or(package.description),
        "displayTitle": identity.display_title,
        "portraitPath": identity.portrait_path,
        "posture": package.posture,
        "model": package.model,
        "capabilities": capabilities,
        "component": Some(component).filter(|stated| *stated != json!({})),
    }));
    let mut lines = Lines::none_of(FILE_NAME);
    lines.adopt("", &said, KEY);
    for (path, key) in SAME {
        lines.adopt(path, &said, key);
    }
    let keys = Declared { value, lines, faults };
    if package.component.is_none() {
        return Ok(keys);
    }
    // The value as it was written, without defaults for missing keys.
    let component = whole.get(KEY).and_then(|package| package.get("component"));
    let mut lines = Lines::none_of(FILE_NAME);
    lines.adopt("component", &said, "guildHall.component");
    keys.with(Declared { value: json!({"component": component}), lines, faults: Vec::new() })
}

/// The capabilities of a package of this type.
fn capabilities(kind: &Value) -> Result<Vec<&'static str>, String> {
    let named: Vec<Option<&str>> = match kind {
        Value::Array(named) => named.iter().map(Value::as_str).collect(),
        one => vec![one.as_str()],
    };
    let capability = |named: &Option<&str>| match named {
        Some("worker") => Ok(WORKER),
        Some("toolbox") => Ok(TOOLS),
        Some("plugin") => Err("is \"plugin\", and this host does not run plugins of Claude Code".to_owned()),
        _ => Err(format!("is {kind}; write \"worker\", \"toolbox\", or both in a list")),
    };
    let found: Vec<_> = named.iter().map(capability).collect::<Result<_, _>>()?;
    if found.is_empty() {
        Err("is an empty list; write \"worker\", \"toolbox\", or both".to_owned())
    } else {
        Ok(found)
    }
}

/// The remedy for a worker of the original with a tool that does not exist here.
fn instead_of(tool: &str) -> &'static str {
    match tool {
        "Bash" => {
            "this host runs no commands: remove it, or name a toolbox in `domainToolboxes` that does the same work"
        }
        "Skill" => "remove it, and move the skills' instructions into the posture",
        "Task" => "remove it; a component starts its own sessions with the interface `agent`",
        _ => "remove it: the tools are Read, Grep, Glob, WebSearch, WebFetch, Write and Edit",
    }
}

/// An object without null values.
fn stated(value: Value) -> Value {
    match value {
        Value::Object(keys) => keys.into_iter().filter(|(_, value)| !value.is_null()).collect::<Map<_, _>>().into(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Manifest,
        capability::{LORE_WRITE, WORKTREE_WRITE},
        manifest::Scope,
    };

    /// A package like the original's own, with the component that this host needs.
    fn artificer() -> Value {
        json!({
            "name": "guild-hall-developer", "version": "0.1.0", "private": true, "scripts": {"postinstall": "boom"},
            "guildHall": {
                "type": ["worker", "toolbox"],
                "identity": {
                    "name": "Dalton", "description": "Builds what is commissioned.", "displayTitle": "Guild Artificer",
                    "portraitPath": "/images/dalton.webp", "guidance": "Ask for code."
                },
                "posture": "Build.", "model": "opus",
                "systemToolboxes": [], "domainToolboxes": ["mail"],
                "builtInTools": ["Read", "Glob", "Grep", "Write", "Edit"],
                "checkoutScope": "full", "resourceDefaults": {"maxTurns": 9, "maxBudgetUsd": 1.5},
                "component": {
                    "file": "dalton.wasm", "world": "worker-toolbox", "grants": {"lore": {"write": true}},
                    "scopes": ["worker", "project"]
                }
            }
        })
    }

    /// The same facts in the other file.
    fn member() -> Value {
        json!({
            "name": "guild-hall-developer", "version": "0.1.0", "displayName": "Dalton",
            "description": "Builds what is commissioned.", "transport": "http",
            "mcp": {"command": "guild", "args": ["serve", "--member", "."]}, "capabilities": ["tools", "worker"],
            "component": {
                "file": "dalton.wasm", "world": "worker-toolbox", "tools": ["Grep", "Read", "Glob"],
                "resources": {"maxBudgetUsd": 1.50, "deadlineSeconds": 60}
            }
        })
    }

    fn of(member: Option<&Value>, package: &Value) -> Result<Manifest, String> {
        let pretty = |value: &Value| serde_json::to_string_pretty(value).unwrap().into_bytes();
        let member = member.map(pretty);
        Manifest::of(member.as_deref(), Some(&pretty(package))).map_err(|e| e.to_string())
    }

    /// Sets the value at a pointer, or with null removes it.
    fn with(mut value: Value, pointer: &str, to: Value) -> Value {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let object = value.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        if to.is_null() {
            object.remove(key);
        } else {
            object.insert(key.to_owned(), to);
        }
        value
    }

    fn line(value: &Value, key: &str) -> usize {
        let text = serde_json::to_string_pretty(value).unwrap();
        text.lines().position(|line| line.trim_start().starts_with(&format!("\"{key}\""))).unwrap() + 1
    }

    #[test]
    fn a_package_says_in_its_own_keys_what_a_member_says() {
        let manifest = of(None, &artificer()).unwrap();
        let Manifest { name, display_name, description, version, .. } = &manifest;
        assert_eq!(
            [name, display_name, description, version],
            ["guild-hall-developer", "Dalton", "Builds what is commissioned.", "0.1.0"]
        );
        assert_eq!(
            (manifest.title(), manifest.portrait_path.as_deref()),
            ("Guild Artificer", Some("/images/dalton.webp"))
        );
        assert_eq!((manifest.posture.as_deref(), manifest.model.as_deref()), (Some("Build."), Some("opus")));
        assert_eq!(manifest.capabilities, [WORKER, TOOLS]);
        let component = manifest.component.unwrap();
        assert_eq!(component.tools, ["Read", "Glob", "Grep"]);
        assert_eq!(component.toolboxes, ["mail".parse().unwrap()]);
        assert_eq!(component.checkout_scope, Some(CheckoutScope::Full));
        assert_eq!(component.scopes, [Scope::Worker, Scope::Project]);
        assert_eq!((component.resources.max_turns, component.resources.max_budget_usd), (Some(9), Some(1.5)));
        assert!(component.asks(&LORE_WRITE) && component.asks(&WORKTREE_WRITE));
    }

    #[test]
    fn a_toolbox_has_no_identity_and_a_private_package_no_version() {
        let toolbox = json!({"name": "mail", "guildHall": {
            "type": "toolbox", "name": "Mail", "description": "Reads mail.",
            "component": {"file": "mail.wasm", "world": "toolbox-plugin"}
        }});
        let manifest = of(None, &toolbox).unwrap();
        assert_eq!(
            (manifest.display_name.as_str(), manifest.title(), manifest.version.as_str()),
            ("Mail", "Mail", "0.0.0")
        );
        assert!(!manifest.is_worker());
        let unnamed = of(None, &with(toolbox, "/guildHall/name", Value::Null)).unwrap_err();
        assert!(unnamed.contains("missing field `guildHall.identity.name`"), "{unnamed}");
    }

    #[test]
    fn two_files_that_agree_are_one_manifest_with_what_either_says() {
        let manifest = of(Some(&member()), &artificer()).unwrap();
        assert!(manifest.mcp.is_some() && manifest.title() == "Guild Artificer");
        let component = manifest.component.unwrap();
        assert_eq!(
            component.resources,
            Bounds { max_turns: Some(9), max_budget_usd: Some(1.5), deadline_seconds: Some(60) }
        );
        assert!(component.asks(&WORKTREE_WRITE));
        // The component in one of them is enough.
        for bare in [
            of(Some(&with(member(), "/component", Value::Null)), &artificer()),
            of(Some(&member()), &with(artificer(), "/guildHall/component", Value::Null)),
        ] {
            assert_eq!(bare.unwrap().component.unwrap().file, "dalton.wasm");
        }
    }

    #[test]
    fn two_files_that_differ_are_refused_with_file_line_and_key_of_each() {
        for (pointer, key, to, pointed) in [
            ("/name", "name", json!("other"), "name"),
            ("/guildHall/identity/name", "displayName", json!("Octavia"), "guildHall.identity.name"),
            ("/guildHall/type", "capabilities", json!("worker"), "guildHall.type"),
            ("/guildHall/builtInTools", "component.tools", json!(["Read"]), "guildHall.builtInTools"),
            (
                "/guildHall/resourceDefaults/maxBudgetUsd",
                "component.resources.maxBudgetUsd",
                json!(2),
                "guildHall.resourceDefaults.maxBudgetUsd",
            ),
            ("/guildHall/component/file", "component.file", json!("x.wasm"), "guildHall.component.file"),
        ] {
            let package = with(artificer(), pointer, to);
            let why = of(Some(&member()), &package).unwrap_err();
            let line = |value: &Value, path: &str| {
                Lines::of(FILE_NAME, &serde_json::to_string_pretty(value).unwrap()).place(path).line
            };
            let own = format!("guild-member.json:{}: `{key}` is ", line(&member(), key));
            let other = format!("and package.json:{} says that `{pointed}` is ", line(&package, pointed));
            assert!(why.starts_with(&own) && why.contains(&other), "{own}, {other}: {why}");
        }
        // The error names all of them, and two keys of one file.
        let both = with(with(artificer(), "/name", json!("x")), "/version", json!("9"));
        let why = of(Some(&member()), &both).unwrap_err();
        assert!(why.contains("`name`") && why.contains("`version`"), "{why}");
        let twice = with(artificer(), "/guildHall/component/tools", json!(["Read"]));
        let why = of(None, &twice).unwrap_err();
        assert!(why.contains("`guildHall.builtInTools`") && why.contains("`guildHall.component.tools`"), "{why}");
    }

    #[test]
    fn what_no_worker_has_here_is_refused_by_its_name_and_with_what_to_do() {
        let error = |pointer: &str, to: Value| of(None, &with(artificer(), pointer, to)).unwrap_err();
        let tools = json!(["Read", "Bash", "Skill", "Task", "NotebookEdit"]);
        let why = error("/guildHall/builtInTools", tools.clone());
        let line = line(&with(artificer(), "/guildHall/builtInTools", tools), "builtInTools");
        assert!(why.starts_with(&format!("package.json:{line}: `guildHall.builtInTools`")), "{why}");
        for tool in ["\"Bash\" (this host runs no commands", "\"Skill\" (", "\"Task\" (", "\"NotebookEdit\" ("] {
            assert!(why.contains(tool), "{why}");
        }
        assert!(!why.contains("\"Read\""), "{why}");
        for (pointer, to, expected) in [
            ("/guildHall/systemToolboxes", json!(["manager"]), "\"manager\""),
            ("/guildHall/domainPlugins", json!(["guild-compendium"]), "\"guild-compendium\""),
            ("/guildHall/type", json!("plugin"), "plugins of Claude Code"),
            ("/guildHall/type", json!(["worker", "cook"]), "write \"worker\", \"toolbox\", or both"),
            ("/guildHall/type", json!([]), "empty list"),
            ("/guildHall/checkoutScope", json!("half"), "`half`"),
            ("/guildHall/domainToolboxes", json!(["@scope/mail/x"]), "`guildHall.domainToolboxes[0]`"),
            ("/guildHall/buildInTools", json!([]), "unknown field"),
            ("/guildHall/identity/displayTitel", json!(""), "did you mean `displayTitle`"),
            ("/guildHall/component/grant", json!({}), "unknown field `grant`"),
            ("/guildHall/component/world", json!("toolbox-plugin"), "exports `dispatch`"),
            ("/guildHall/component/file", json!("../x.wasm"), "`component.file`"),
            ("/guildHall/resourceDefaults", json!({"maxTurns": 0}), "maxTurns"),
            ("/guildHall", json!([]), "must be an object"),
        ] {
            let package = match pointer {
                "/guildHall/buildInTools" => with(artificer(), "/guildHall/builtInTools", Value::Null),
                "/guildHall/identity/displayTitel" => {
                    with(artificer(), "/guildHall/identity/displayTitle", Value::Null)
                }
                _ => artificer(),
            };
            let why = of(None, &with(package, pointer, to)).unwrap_err();
            assert!(why.starts_with("package.json:") && why.contains(expected), "{expected}: {why}");
        }
    }

    #[test]
    fn a_package_without_a_component_is_told_what_it_lacks_and_all_else() {
        let bare = with(artificer(), "/guildHall/component", Value::Null);
        let why = of(None, &bare).unwrap_err();
        let expected = format!("package.json:{}: the package has no component", line(&bare, "guildHall"));
        assert!(why.starts_with(&expected) && why.contains("lacks `guildHall.component`"), "{why}");
        let why = of(None, &with(bare, "/guildHall/builtInTools", json!(["Bash"]))).unwrap_err();
        assert!(why.contains("\"Bash\"") && why.contains("; besides, the package has no component"), "{why}");
    }

    #[test]
    fn a_package_json_without_the_key_declares_nothing() {
        for (text, declares) in [
            (r#"{"name": "x", "dependencies": {"guildHall": "1"}}"#, false),
            (r#"{"guildHall": {}}"#, true),
            // A key with an escape is the same key.
            (r#"{"guild\u0048all": {}}"#, true),
            (r#"{"guildHall": {"#, true),
            ("{", false),
            ("[]", false),
        ] {
            assert_eq!(is_declared(text.as_bytes()), declares, "{text}");
        }
    }
}
