//! `guild.toml`: what the operator allows and how the host serves.
//!
//! The file is the one that `--config` names, else the one that `$GUILD_CONFIG` names, else `guild/guild.toml` in
//! the user's configuration directory. It is never looked for in a member's folder or the working directory: what
//! a member brings along cannot widen what the member may do. Every key that is read has an effect, and a key that
//! nobody knows is an error.

use std::{
    env,
    ffi::OsString,
    fs::File,
    io::{self, Read},
    net::{IpAddr, Ipv4Addr},
    ops::Range,
    path::{Path, PathBuf},
    str::FromStr,
};

use guild_contract::Limits;
use serde::Deserialize;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// The variable that names the file where `--config` does not.
pub const VARIABLE: &str = "GUILD_CONFIG";
/// No sensible file is larger; reading stops here.
const MAX_BYTES: u64 = 1024 * 1024;
/// The JSON parser's own bound, above which `limits.json_depth` could not be kept.
const MAX_JSON_DEPTH: u32 = 127;

const KEYS: [&str; 6] = ["members", "roots", "agent", "bind", "port", "limits"];
const ROOT_KEYS: [&str; 2] = ["name", "path"];

/// What `guild.toml` says, with the default for all that it does not say. Paths are absolute.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The file that was read, if there was one.
    pub file: Option<PathBuf>,
    /// `members`: the directory whose members are served.
    pub members: Option<PathBuf>,
    /// `[[roots]]`: directories that sessions may read.
    pub roots: Vec<ReadRoot>,
    /// `agent`: what runs agent sessions.
    pub agent: Runtime,
    /// `bind`: the address to listen on; loopback.
    pub bind: IpAddr,
    /// `port`: the port to listen on; 0 lets the system choose.
    pub port: Option<u16>,
    /// `[limits]`.
    pub limits: Limits,
}

/// One of `[[roots]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRoot {
    /// The name by which sessions see it; its directory's own where there is none.
    pub name: Option<String>,
    /// The directory.
    pub path: PathBuf,
}

/// What runs agent sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Runtime {
    /// Built in: search and ranking, no model, no network.
    #[default]
    Extractive,
}

impl FromStr for Runtime {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "extractive" => Ok(Self::Extractive),
            _ => Err(format!("{name:?} is no agent runtime of this version of the host; there is \"extractive\"")),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            file: None,
            members: None,
            roots: Vec::new(),
            agent: Runtime::default(),
            bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: None,
            limits: Limits::default(),
        }
    }
}

/// Why there is no configuration. Each text names the file, and the line where there is one.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file was named, and does not exist.
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
        /// Why.
        source: io::Error,
    },
    /// The file says something that cannot be.
    #[error("{}:{line}: {text}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong, and what would be right.
        text: String,
    },
}

impl Config {
    /// Finds and reads the configuration. `option` is what `--config` named.
    pub fn load(option: Option<&Path>) -> Result<Self, ConfigError> {
        Self::load_from(option, |name| env::var_os(name))
    }

    /// [`Config::load`] in the given environment.
    pub fn load_from(option: Option<&Path>, variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, ConfigError> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let (path, named_by) = if let Some(path) = option {
            (path.to_owned(), Some("--config"))
        } else if let Some(path) = variable(VARIABLE) {
            (path, Some(VARIABLE))
        } else {
            // A relative one would lead to the working directory; the base directory specification has it ignored.
            let base = variable("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
            let base = base.or_else(|| variable("HOME").filter(|path| path.is_absolute()).map(|p| p.join(".config")));
            match base {
                Some(base) => (base.join("guild").join("guild.toml"), None),
                None => return Ok(Self::default()),
            }
        };
        let unreadable = |source| ConfigError::Unreadable { path: path.clone(), source };
        let path = std::path::absolute(&path).map_err(unreadable)?;
        match read(&path) {
            Ok(text) => Self::parse(&path, &text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => match named_by {
                Some(named_by) => Err(ConfigError::Missing { path, named_by }),
                None => Ok(Self::default()),
            },
            Err(source) => Err(ConfigError::Unreadable { path, source }),
        }
    }

    /// Reads the text of the configuration file at `path`, which has to be absolute.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let invalid = |span: Range<usize>, what: String| ConfigError::Invalid {
            path: path.to_owned(),
            line: line_of(text, span.start),
            text: what,
        };
        let syntax = |error: toml::de::Error| invalid(error.span().unwrap_or_default(), error.message().to_owned());

        let table = DeTable::parse(text).map_err(syntax)?;
        check_keys(table.get_ref()).map_err(|(span, text)| invalid(span, text))?;
        let written: Written = toml::from_str(text).map_err(syntax)?;

        let base = path.parent().unwrap_or(path);
        let mut config = Self { file: Some(path.to_owned()), ..Self::default() };
        config.members = written.members.map(|members| base.join(members));
        for root in written.roots {
            if let Some(name) = &root.name {
                let taken = config.roots.iter().any(|other| other.name.as_ref() == Some(name.get_ref()));
                check_root_name(name.get_ref(), taken).map_err(|text| invalid(name.span(), text))?;
            }
            let name = root.name.map(Spanned::into_inner);
            config.roots.push(ReadRoot { name, path: base.join(root.path) });
        }
        if let Some(agent) = written.agent {
            config.agent = agent.get_ref().parse().map_err(|text| invalid(agent.span(), format!("agent: {text}")))?;
        }
        if let Some(bind) = written.bind {
            config.bind = parse_bind(bind.get_ref()).map_err(|text| invalid(bind.span(), text))?;
        }
        config.port = written.port;
        if let Some(limits) = written.limits {
            let too_deep = limits.get_ref().json_depth > MAX_JSON_DEPTH;
            let checked = limits.get_ref().check().and(if too_deep {
                Err(format!("limits.json_depth must be at most {MAX_JSON_DEPTH}"))
            } else {
                Ok(())
            });
            checked.map_err(|text| invalid(limits.span(), text))?;
            config.limits = limits.into_inner();
        }
        Ok(config)
    }
}

/// The file as it is written. Its keys were checked before, so that errors here are about types and values.
#[derive(Deserialize)]
struct Written {
    members: Option<PathBuf>,
    #[serde(default)]
    roots: Vec<WrittenRoot>,
    agent: Option<Spanned<String>>,
    bind: Option<Spanned<String>>,
    port: Option<u16>,
    limits: Option<Spanned<Limits>>,
}

#[derive(Deserialize)]
struct WrittenRoot {
    name: Option<Spanned<String>>,
    path: PathBuf,
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!("larger than {MAX_BYTES} bytes")));
    }
    Ok(text)
}

/// A root's name is the first part of the paths that sessions see and reports cite.
fn check_root_name(name: &str, taken: bool) -> Result<(), String> {
    if name.is_empty() || matches!(name, "." | "..") || name.contains('/') || name.chars().any(char::is_control) {
        return Err(format!("roots.name: {name:?} is no plain name; write one without '/', as \"handbook\""));
    }
    if taken {
        return Err(format!("roots.name: {name:?} is the name of another root; each needs its own"));
    }
    Ok(())
}

/// Reads `bind`. A name other than `localhost` is not looked up: what it leads to could change.
fn parse_bind(bind: &str) -> Result<IpAddr, String> {
    if bind == "localhost" {
        return Ok(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    let address: IpAddr = bind
        .parse()
        .map_err(|_| format!("bind: {bind:?} is no address; write one such as \"127.0.0.1\", without a port"))?;
    if !address.is_loopback() {
        return Err(format!(
            "bind: {bind} is not a loopback address; a bind other than loopback needs a token, which this version \
             of the host does not have yet. Use \"127.0.0.1\" or \"::1\""
        ));
    }
    Ok(address)
}

/// Refuses the first key that is not known, naming the nearest one that is.
fn check_keys(table: &DeTable<'_>) -> Result<(), (Range<usize>, String)> {
    check_table(table, "", &KEYS)?;
    for (key, value) in table {
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("limits", DeValue::Table(limits)) => check_table(limits, "[limits]", Limits::NAMES)?,
            ("roots", DeValue::Array(roots)) => {
                for root in roots.iter() {
                    if let DeValue::Table(root) = root.get_ref() {
                        check_table(root, "[[roots]]", &ROOT_KEYS)?;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_table(table: &DeTable<'_>, place: &str, known: &[&str]) -> Result<(), (Range<usize>, String)> {
    // A table iterates by name; the file's first mistake is the one to show.
    let unknown = table.keys().filter(|key| !known.contains(&key.get_ref().as_ref()));
    let Some(key) = unknown.min_by_key(|key| key.span().start) else { return Ok(()) };
    let name: &str = key.get_ref();
    let of = if place.is_empty() { String::new() } else { format!(" in {place}") };
    let nearest = known
        .iter()
        .map(|candidate| (strsim::normalized_damerau_levenshtein(name, candidate), candidate))
        .filter(|(likeness, _)| *likeness >= 0.5)
        .max_by(|(a, _), (b, _)| a.total_cmp(b));
    let hint = match nearest {
        Some((_, candidate)) => format!("did you mean `{candidate}`?"),
        None => format!("known are {}", known.join(", ")),
    };
    Err((key.span(), format!("unknown key `{name}`{of}; {hint}")))
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}
