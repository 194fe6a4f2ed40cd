//! Finds and reads `guild.toml`: the permissions of members, and the settings of the host.
//!
//! The file is named by `--config` or else by `$GUILD_CONFIG`; by default it is `guild/guild.toml` in the user's
//! configuration directory. The host never looks for it in a member's folder or the working directory, so that a
//! member's files cannot widen the member's permissions. Every accepted key has an effect, and an unknown key is an
//! error.

pub(crate) mod changes;
mod keys;
mod members;
pub(crate) mod written;

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    ffi::OsString,
    io,
    path::{Component, Path, PathBuf},
    time::Duration,
};

use crate::agents::runtime_options::{ApiOptions, ClaudeOptions, ScriptedOptions};
use crate::web::WebOptions;
use guild_contract::{
    Delegation, Limits, Policy, Retention,
    capability::grants::Pattern,
    json::misread::{self, Misread, TABLE},
    text::hex,
};
use serde::Deserialize as _;
use sha2::{Digest as _, Sha256};
use toml::{
    Spanned, Table,
    de::{DeTable, Deserializer},
};

use crate::{
    agents::{self, RuntimeConfig, WrittenApi, WrittenClaude, runtime::Runtime, spend::Spend},
    auth::{AuthConfig, WrittenAuth},
    cluster::{ClusterOptions, WrittenCluster},
    config::written::Written,
    hall::{self, PermittedProject, WrittenHall},
    policy,
    text::{line_of, read_file, shell_word},
    value::Wrong,
    web::WrittenWeb,
    webhooks::Webhook,
};

/// The variable that names the file if `--config` does not.
pub const VARIABLE: &str = "GUILD_CONFIG";
/// The JSON parser's own bound, above which `limits.json_depth` could not be kept.
const MAX_JSON_DEPTH: u32 = 127;

/// The settings of `guild.toml`, with defaults for the missing ones. Paths are absolute.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// The file that was read, if there was one.
    pub file: Option<PathBuf>,
    /// Whether an option or a variable named the file, so that other commands need to name it too.
    pub named: bool,
    /// The SHA-256 of the file's text, in hexadecimal digits.
    pub sha256: Option<String>,
    /// The directory of the file, which also contains the operator's decisions (`guild.lock`, `guild.tokens`,
    /// `guild.trust`). `None` if the user has no configuration directory.
    pub directory: Option<PathBuf>,
    /// The real path of the member that its author runs by `guild dev`. The author trusts it as it is, and waits for it to
    /// be compiled. No key of the file.
    pub dev: Option<PathBuf>,
    /// `members`: the directory whose members are served.
    pub members: Option<PathBuf>,
    /// `[[roots]]`: directories that sessions may read.
    pub roots: Vec<ReadRoot>,
    /// `[hall] home`: the hall's home.
    pub hall: Option<PathBuf>,
    /// `delegation_*` of `[hall]`: the bounds of commissions that follow from an activity of the manager.
    pub delegation: Delegation,
    /// `tidy_branches_after_days` of `[hall]`: the time after which branches of ended commissions and meetings are
    /// removed.
    pub tidy_after: Option<Duration>,
    /// `[audit] relays`: patterns of hosts that pass on what they are sent, besides those that an audit knows.
    pub relays: Vec<String>,
    /// `[spend]`: the caps on the dollars spent in a day.
    pub spend: Spend,
    /// `[cluster]`: the cluster that the host belongs to, if it is in one.
    pub cluster: Option<ClusterOptions>,
    /// `[retention]`: which ended jobs stay.
    pub retention: Retention,
    /// `[[project]]`: the repositories on which workers may work.
    pub projects: Vec<PermittedProject>,
    /// `[[webhook]]`: the addresses that are told of events.
    pub webhooks: Vec<Webhook>,
    /// `agent`: the runtime of agent sessions.
    pub agent: Runtime,
    /// `dispatch_agents`: the runtimes that a dispatch may ask for, besides the member's own.
    pub dispatch_agents: BTreeSet<Runtime>,
    /// The operator's policy: `[member.PATTERN]`, `strict_imports`, `[hall] manager`, and whether there is a `[web]`.
    pub policy: Policy,
    /// `agent` of `[member.PATTERN]`: the runtime of these members, if it differs from that of the whole file.
    pub agents: BTreeMap<Pattern, Runtime>,
    /// `mcp = "any"` of `[member.PATTERN]`: the manifests of these members may set the options of their own host. It is
    /// valid only in the user's configuration directory.
    pub any_mcp: BTreeSet<Pattern>,
    /// `posture = "free"` of `[member.PATTERN]`: the postures of these members may change without approval.
    pub free_posture: BTreeSet<Pattern>,
    /// `[extractive]`.
    pub extractive: RuntimeConfig<()>,
    /// `[claude]`.
    pub claude: RuntimeConfig<ClaudeOptions>,
    /// `[api]` and `[[prices]]`.
    pub api: RuntimeConfig<ApiOptions>,
    /// `[scripted]`.
    pub scripted: RuntimeConfig<ScriptedOptions>,
    /// `[web]`; without it, the web is closed.
    pub web: Option<WebOptions>,
    /// `require_approval`: whether a member is loaded only after `guild approve`.
    pub require_approval: bool,
    /// `require_signature`: whether a member is loaded only if its component is signed by a key of `guild.trust`.
    pub require_signature: bool,
    /// `require_probe`: whether a member is loaded for the first time only after a probe without canaries.
    pub require_probe: bool,
    /// The settings about callers: `bind`, `require_token`, `hosts`, `[tls]`, `audit_log` and the like.
    pub auth: AuthConfig,
    /// `port`: the port to listen on; 0 lets the system choose.
    pub port: Option<u16>,
    /// `[limits]`.
    pub limits: Limits,
    /// The names of the limits that `[limits]` sets.
    pub limits_set: BTreeSet<String>,
    /// The file as it is written, for a comparison with a later reading.
    pub written: toml::Table,
}

/// An entry of `[[roots]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRoot {
    /// The name by which sessions see the root; by default the directory's own name.
    pub name: Option<String>,
    /// The directory.
    pub path: PathBuf,
}

/// Errors of reading the configuration. Each text names the file, and the line if there is one.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The named file does not exist.
    #[error("{} does not exist; {named_by} names it", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// The option or variable that names it.
        named_by: &'static str,
    },
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The file has an invalid key or value.
    #[error("{}:{line}: {text}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The error and its remedy.
        text: String,
    },
}

impl Config {
    /// The option with which another `guild` command finds the same policy from any directory: ` --config FILE` for a
    /// shell, or an empty text for the user's own file.
    pub fn policy_option(&self) -> String {
        let named = self.file.as_deref().filter(|_| self.named);
        named.map(|file| format!(" --config {}", shell_word(file))).unwrap_or_default()
    }

    /// Finds and reads the configuration. `option` is the value of `--config`.
    pub fn load(option: Option<&Path>) -> Result<Self, ConfigError> {
        Self::load_from(option, |name| env::var_os(name))
    }

    /// Reads the file in the user's configuration directory, without regard to an option or a variable.
    pub fn of_user() -> Result<Self, ConfigError> {
        Self::load_from(None, |name| if name == VARIABLE { None } else { env::var_os(name) })
    }

    /// Loads the configuration like [`Config::load`], with the given environment.
    pub fn load_from(option: Option<&Path>, variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, ConfigError> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let (path, named_by) = if let Some(path) = option {
            (path.to_owned(), Some("--config"))
        } else if let Some(path) = variable(VARIABLE) {
            (path, Some(VARIABLE))
        } else {
            // A relative path would lead to the working directory, and the base directory specification requires
            // ignoring it.
            let base = variable("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
            let base = base.or_else(|| variable("HOME").filter(|path| path.is_absolute()).map(|p| p.join(".config")));
            match base {
                Some(base) => (base.join("guild").join("guild.toml"), None),
                None => return Ok(Self::default()),
            }
        };
        let unreadable = |source| ConfigError::Unreadable { path: path.clone(), source };
        let path = resolve(&std::path::absolute(&path).map_err(unreadable)?);
        match read_file(&path) {
            Ok(text) => Ok(Self { named: named_by.is_some(), ..Self::parse(&path, &text)? }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => match named_by {
                Some(named_by) => Err(ConfigError::Missing { path, named_by }),
                None => Ok(Self { directory: path.parent().map(Path::to_owned), ..Self::default() }),
            },
            Err(source) => Err(ConfigError::Unreadable { path, source }),
        }
    }

    /// Reads the text of the configuration file at `path`, which has to be absolute.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        Self::read(path, text).map_err(|wrong| ConfigError::Invalid {
            path: path.to_owned(),
            line: line_of(text, wrong.span.start),
            text: wrong.text,
        })
    }

    fn read(path: &Path, text: &str) -> Result<Self, Wrong> {
        misread::check_begin(text.as_bytes()).map_err(|why| Wrong::at(0..0, why))?;
        let tables = DeTable::parse(text).map_err(syntax)?;
        keys::check(tables.get_ref())?;
        let limits_set = keys::names(tables.get_ref(), "limits");
        let written: Written = misread::read(TABLE, Deserializer::from(tables.clone())).map_err(wrong)?;
        let auth: WrittenAuth = misread::read(TABLE, Deserializer::from(tables.clone())).map_err(wrong)?;
        let as_written = Table::deserialize(Deserializer::from(tables)).map_err(syntax)?;

        let base = path.parent().unwrap_or(path);
        let mut config = Self { file: Some(path.to_owned()), directory: Some(base.to_owned()), ..Self::default() };
        config.sha256 = Some(hex(&Sha256::digest(text)));
        config.members = written.members.map(|members| base.join(members));
        for root in written.roots {
            if let Some(name) = &root.name {
                let taken = config.roots.iter().any(|other| other.name.as_ref() == Some(name.get_ref()));
                check_root_name(name.get_ref(), taken).map_err(|text| Wrong::at(name.span(), text))?;
            }
            let name = root.name.map(Spanned::into_inner);
            config.roots.push(ReadRoot { name, path: base.join(root.path) });
        }
        config.hall = written.hall.as_ref().and_then(|hall| hall.home(base));
        let manager = written.hall.as_ref().map(WrittenHall::manager).transpose()?.flatten();
        config.tidy_after = written.hall.as_ref().and_then(WrittenHall::tidy_after);
        config.delegation = written.hall.as_ref().map(WrittenHall::delegation).transpose()?.unwrap_or_default();
        config.relays = written.audit.unwrap_or_default().relays()?;
        config.spend = written.spend.unwrap_or_default().read()?;
        config.retention = written.retention.unwrap_or_default().read()?;
        config.cluster = written.cluster.map(|cluster| WrittenCluster::read(cluster, base)).transpose()?;
        config.projects = hall::projects(written.project, base)?;
        let webhooks = written.webhook.into_iter().map(|webhook| webhook.read(base));
        config.webhooks = webhooks.collect::<Result<_, _>>()?;
        if let Some(agent) = written.agent {
            config.agent = agents::runtime("agent", &agent)?;
        }
        config.dispatch_agents = agents::runtimes(&written.dispatch_agents)?;
        config.extractive = written.extractive.unwrap_or_default().read()?;
        let prices = agents::prices(written.prices)?;
        config.claude = WrittenClaude::read(written.claude, prices.clone(), base, config.cluster.is_some())?;
        config.api = WrittenApi::read(written.api, prices, base)?;
        config.scripted = written.scripted.unwrap_or_default().read(base)?;
        config.web = written.web.map(|web| WrittenWeb::read(web, base)).transpose()?;
        config.require_approval = written.require_approval;
        config.require_signature = written.require_signature;
        config.require_probe = written.require_probe;
        config.auth = auth.read(base)?;
        config.port = written.port;
        if let Some(limits) = written.limits {
            limits.get_ref().check().map_err(|text| Wrong::at(limits.span(), text))?;
            if limits.get_ref().json_depth > MAX_JSON_DEPTH {
                let why = format!("limits.json_depth must be at most {MAX_JSON_DEPTH}");
                return Err(Wrong::at(limits.span(), why));
            }
            config.limits = limits.into_inner();
        }
        config.limits_set = limits_set;
        let policy::Members { rules, agents, any_mcp, free_posture } = policy::members(written.member, &config.limits)?;
        (config.agents, config.any_mcp, config.free_posture) = (agents, any_mcp, free_posture);
        config.policy = Policy { rules, web: config.web.is_some(), manager, strict_imports: written.strict_imports };
        config.written = as_written;
        Ok(config)
    }

    /// The hall's home, from the option, else `$GUILD_HALL_HOME`, else `[hall] home`, else `~/.guild-hall`. `None` if
    /// the user has no home directory.
    pub fn hall_home(&self, option: Option<&Path>) -> Option<PathBuf> {
        hall::home(option, self.hall.as_deref())
    }

    /// Makes this configuration fit a running host: keys that take effect only at a start keep their running values.
    pub fn for_running(mut self, running: &Self) -> Self {
        self.limits.keep_at_start(&running.limits);
        self.keep_own_limits(running);
        self.extractive.sessions = running.extractive.sessions;
        self.claude.sessions = running.claude.sessions;
        self.api.sessions = running.api.sessions;
        self.scripted.sessions = running.scripted.sessions;
        self
    }
}

/// The path without `.` and `..`, as the system resolves it: a symlink before a `..` is followed. Other symlinks are
/// kept, since the users who can write them decide which file is read.
fn resolve(absolute: &Path) -> PathBuf {
    let mut resolved = PathBuf::new();
    for component in absolute.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                resolved = resolved.canonicalize().unwrap_or(resolved);
                resolved.pop();
            }
            other => resolved.push(other),
        }
    }
    resolved
}

/// Converts the error about a value of the wrong type, with its key.
fn wrong(Misread { text, error, .. }: Misread<toml::de::Error>) -> Wrong {
    match text {
        Some(text) => Wrong::at(error.span().unwrap_or_default(), text),
        None => syntax(error),
    }
}

fn syntax(error: toml::de::Error) -> Wrong {
    Wrong::at(error.span().unwrap_or_default(), error.message())
}

/// Checks the name of a root, which is the first part of the paths that sessions see and reports cite.
fn check_root_name(name: &str, taken: bool) -> Result<(), String> {
    if name.is_empty() || matches!(name, "." | "..") || name.contains('/') || name.chars().any(char::is_control) {
        return Err(format!("roots.name: {name:?} is not a plain name; write one without '/', such as \"handbook\""));
    }
    if taken {
        return Err(format!("roots.name: {name:?} is the name of another root; each needs its own"));
    }
    Ok(())
}
