//! Builds the command line and the environment of the CLI.

use std::{
    ffi::{OsStr, OsString},
    path::Path,
};

use guild_contract::Bounds;

use super::{conversation::Conversation, mcp::SERVER};

/// Variables that the CLI inherits from the host.
const VARIABLES: &[&str] = &["HOME", "USER", "LOGNAME", "LANG", "TERM", "CLAUDE_CONFIG_DIR"];
/// Prefixes of further inherited variables: locale, directories, the CLI's login and its own settings.
const PREFIXES: &[&str] = &["LC_", "XDG_", "ANTHROPIC_", "CLAUDE_CODE_"];
/// Exceptions: these variables describe a session of the CLI around the host, not the session that is started.
const FOREIGN: &[&str] =
    &["CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SSE_PORT", "CLAUDE_CODE_CHILD_SESSION", "CLAUDE_CODE_SESSION_"];
/// Variables that are always set: no requests but those of the session, no updates of the CLI.
const SET: &[(&str, &str)] = &[
    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    ("DISABLE_AUTOUPDATER", "1"),
    ("DISABLE_ERROR_REPORTING", "1"),
    ("DISABLE_TELEMETRY", "1"),
];

/// The built-in tools that the CLI has under the names by which the host grants them, and the rules that allow them.
/// Read is confined to the working directory by its rule, Grep and Glob by `--restricted`. The CLI's web tools are left
/// out, since they would not obey the host's network policy.
const BUILTIN: &[(&str, &str)] = &[("Read", "Read(./**)"), ("Grep", "Grep"), ("Glob", "Glob")];

/// Whether the CLI may serve a tool of this name itself.
pub(super) fn is_builtin(tool: &str) -> bool {
    BUILTIN.iter().any(|(name, _)| *name == tool)
}

/// The variables of the host that the CLI inherits; `further` names the variables that the operator adds.
pub(super) fn environment(further: &[String]) -> Vec<(OsString, OsString)> {
    let given = |name: &OsStr| {
        let Some(name) = name.to_str() else { return false };
        let listed = VARIABLES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        let foreign = FOREIGN.iter().any(|prefix| name.starts_with(prefix));
        (listed && !foreign) || further.iter().any(|other| other == name)
    };
    let set = SET.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let path = guild_confine::search_path().map(|path| ("PATH".into(), path));
    std::env::vars_os().filter(|(name, _)| name != "PATH" && given(name)).chain(set).chain(path).collect()
}

/// The arguments. A value from outside is part of its flag's argument, so that it is never taken for another flag.
/// `system_prompt` is a file: as an argument it could not be longer than 128 KiB. `builtin` are the tools that the CLI
/// serves itself, `serves` is whether the host serves others, and `left` are the remaining bounds of the session.
pub(super) fn arguments(
    conversation: &Conversation,
    system_prompt: &Path,
    builtin: &[String],
    serves: bool,
    left: &Bounds,
) -> Vec<OsString> {
    let options = &conversation.options;
    let mut arguments: Vec<OsString> = [
        "-p",
        "--output-format=stream-json",
        "--input-format=stream-json",
        "--verbose",
        // Streamed parts show that the CLI is alive, and mark the end of an answer.
        "--include-partial-messages",
        "--strict-mcp-config",
        "--setting-sources=",
        "--disable-slash-commands",
    ]
    .map(OsString::from)
    .into();
    let mut add = |flag: &str, value: &OsStr| {
        let mut argument = OsString::from(flag);
        argument.push(value);
        arguments.push(argument);
    };
    if options.bypass_permissions {
        add("--permission-mode=", "bypassPermissions".as_ref());
    } else {
        // `--restricted` refuses to bypass permissions.
        add("--restricted", "".as_ref());
        add("--permission-mode=", "dontAsk".as_ref());
    }
    if !options.resume && !conversation.session.converses {
        add("--no-session-persistence", "".as_ref());
    }
    if let Some(session) = &conversation.resumed {
        add("--resume=", session.as_ref());
    }
    if let Some(model) = conversation.session.model.as_ref().or(options.model.as_ref()) {
        add("--model=", model.as_ref());
    }
    add("--system-prompt-file=", system_prompt.as_os_str());
    add("--tools=", builtin.join(",").as_ref());
    let rules = BUILTIN.iter().filter(|(name, _)| builtin.iter().any(|tool| tool == name)).map(|(_, rule)| *rule);
    let served = serves.then(|| format!("mcp__{SERVER}"));
    let allowed: Vec<&str> = served.as_deref().into_iter().chain(rules).collect();
    if !allowed.is_empty() {
        add("--allowedTools=", allowed.join(",").as_ref());
    }
    if let Some(turns) = left.max_turns {
        add("--max-turns=", turns.to_string().as_ref());
    }
    if let Some(usd) = left.max_budget_usd {
        add("--max-budget-usd=", usd.to_string().as_ref());
    }
    arguments
}
