//! Reads and changes the tokens of callers: the file `guild.tokens` next to `guild.toml`.
//!
//! The file has the SHA-256 of each token, never a token: a reader of the file cannot authenticate. The hash needs
//! neither salt nor a slow function, since a token is 256 random bits, which cannot be guessed. Only `guild token`
//! writes the file, one command at a time, and replaces it as a whole, so that hosts see the old tokens or the new
//! ones. An invalid file admits no caller.

pub(crate) mod credentials;

use std::{
    collections::BTreeSet,
    fs::OpenOptions,
    io::{self, Read as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    str::FromStr,
};

use guild_config::{Config, directory_lock::DirectoryLock, text::check_unshared};
use guild_contract::{
    capability::grants::Pattern,
    operation::Access,
    secret::Secret,
    text::{hex, named, names},
};
use jiff::Timestamp;
use rustix::{fs::OFlags, process::geteuid};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use strum::{IntoStaticStr, VariantArray};

/// The file's name.
pub const FILE_NAME: &str = "guild.tokens";
/// The prefix of every token, by which people and scanners for leaked secrets recognise it.
pub const PREFIX: &str = "guild_";
/// The maximum size of a file that is read.
const MAX_BYTES: u64 = 1024 * 1024;
/// The mode of the file: only its owner may read and write it.
const MODE: u32 = 0o600;
/// The number of random bytes in a token.
const RANDOM_BYTES: usize = 32;
const HEADER: &str = "# Made by `guild token`: the SHA-256 of each token, never the token itself.\n\n";

/// Makes a token from the operating system's randomness.
pub(crate) fn random() -> io::Result<Secret> {
    Ok(Secret::from(format!("{PREFIX}{}", random_digits()?)))
}

/// Makes hexadecimal digits from the operating system's randomness, as many as a token has.
pub(crate) fn random_digits() -> io::Result<String> {
    let mut random = [0_u8; RANDOM_BYTES];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    Ok(hex(&random))
}

/// The SHA-256 of a presented token.
pub(crate) fn digest(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

/// The role of a token: the operations that it permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Operations that change nothing: lists, states, results, events; and MCP's own methods.
    View,
    /// Also dispatches, and changes of the hall.
    Dispatch,
    /// The operations of `view`, the full texts of sessions and memories, and the approval of members; no dispatch.
    Approve,
    /// All operations: also the cancellation and deletion of jobs, and tools of components.
    All,
}

impl Role {
    /// All roles.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// The value in the file.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether the role permits operations of this class.
    pub(crate) fn permits(self, access: Access) -> bool {
        match access {
            Access::Open | Access::Notification | Access::Reads | Access::Unknown => true,
            Access::Dispatches => matches!(self, Self::Dispatch | Self::All),
            Access::Inspects | Access::Approves => matches!(self, Self::Approve | Self::All),
            Access::Ends | Access::Calls => self == Self::All,
        }
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        named(Self::ALL, text).ok_or_else(|| format!("one of {}", names(Self::ALL)))
    }
}

/// A token in the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// The name for the operator and the audit log: 1 to 64 letters, digits, `-`, `_` or `.`.
    pub name: String,
    #[serde(with = "digits")]
    pub(crate) sha256: [u8; 32],
    /// The role.
    pub role: Role,
    /// The permitted members: keys, where `*` matches any characters.
    pub members: Vec<Pattern>,
    /// The time at which the token was made.
    pub created: Timestamp,
    /// The time at which the token expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// The US dollars that the token may spend in a day, in place of `spend.token_usd_per_day`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd_per_day: Option<f64>,
}

impl Token {
    /// Whether the token permits a member.
    pub(crate) fn is_for(&self, member: &str) -> bool {
        self.members.iter().any(|pattern| pattern.matches(member))
    }

    /// Whether the token permits all members, including future ones.
    pub(crate) fn is_for_all(&self) -> bool {
        self.members.iter().any(|pattern| pattern.0 == "*")
    }

    /// Whether the token has expired at this time.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

/// Serialises a SHA-256 as hexadecimal digits.
mod digits {
    use guild_contract::text::hex;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(crate) fn serialize<S: Serializer>(digest: &[u8; 32], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex(digest))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u8; 32], D::Error> {
        let text = String::deserialize(deserializer)?;
        read(text.as_bytes()).ok_or_else(|| D::Error::custom("a token's sha256 is not 64 hexadecimal digits"))
    }

    fn read(digits: &[u8]) -> Option<[u8; 32]> {
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let (pairs, []) = digits.as_chunks() else { return None };
        let bytes: Option<Vec<u8>> = pairs.iter().map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect();
        bytes?.try_into().ok()
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    if (1..=64).contains(&name.len()) && name.bytes().all(plain) {
        return Ok(());
    }
    Err(format!("{name:?} cannot name a token; a name is 1 to 64 letters, digits, '-', '_' or '.'"))
}

/// The reason that tokens cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The user has no configuration directory.
    #[error("there is no configuration directory for tokens: set HOME, or name a guild.toml with --config")]
    NoPlace,
    /// The file is invalid, or other users could have written it.
    #[error("{}: {why}", path.display())]
    Unsound {
        /// The file.
        path: PathBuf,
        /// The problem.
        why: String,
    },
    /// The file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file, or its directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The request is invalid.
    #[error("{0}")]
    Refused(String),
}

/// The properties of a new token.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// The name: see [`Token::name`].
    pub name: String,
    /// The role: see [`Token::role`].
    pub role: Role,
    /// The permitted members: see [`Token::members`].
    pub members: Vec<Pattern>,
    /// The time of expiry: see [`Token::expires`].
    pub expires: Option<Timestamp>,
    /// The cap on spending: see [`Token::usd_per_day`].
    pub usd_per_day: Option<f64>,
}

/// The tokens of one `guild.toml`.
#[derive(Clone, Debug)]
pub struct TokenFile {
    directory: PathBuf,
    path: PathBuf,
    policy_option: String,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    token: Vec<Token>,
}

impl TokenFile {
    /// The file next to the `guild.toml`, whether or not it exists.
    ///
    /// # Errors
    ///
    /// Returns an error when the user has no configuration directory.
    pub fn of(config: &Config) -> Result<Self, TokenError> {
        let directory = config.directory.clone().ok_or(TokenError::NoPlace)?;
        Ok(Self { path: directory.join(FILE_NAME), directory, policy_option: config.policy_option() })
    }

    /// A command line for these tokens that works in any directory: `guild token` with `words`.
    pub fn command(&self, words: &str) -> String {
        format!("guild token {words}{}", self.policy_option)
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the tokens; none if there is no file.
    ///
    /// # Errors
    ///
    /// Returns an error when the file is invalid, or other users could have written it.
    pub fn read(&self) -> Result<Vec<Token>, TokenError> {
        let unsound = |why: String| TokenError::Unsound { path: self.path.clone(), why };
        let text = match self.text() {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            // A system error, which may be temporary.
            Err(source) if source.raw_os_error().is_some() => {
                return Err(TokenError::Io { path: self.path.clone(), source });
            }
            Err(wrong) => return Err(unsound(wrong.to_string())),
        };
        // The parser's full text would repeat lines of the file.
        let written: Written = toml::from_str(&text).map_err(|e| unsound(e.message().to_owned()))?;
        let mut names = BTreeSet::new();
        for token in &written.token {
            check_name(&token.name).map_err(unsound)?;
            if !names.insert(&token.name) {
                return Err(unsound(format!("there are two tokens {}", token.name)));
            }
        }
        Ok(written.token)
    }

    fn text(&self) -> io::Result<String> {
        // A FIFO with this name must not be waited for.
        let nonblock = OFlags::NONBLOCK.bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(nonblock).open(&self.path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        let owner = metadata.uid();
        check_unshared(metadata.mode())?;
        if !(owner == 0 || owner == geteuid().as_raw()) {
            return Err(io::Error::other("it belongs to another user, who could put a token there; `chown` it"));
        }
        let mut text = String::new();
        file.take(MAX_BYTES + 1).read_to_string(&mut text)?;
        if text.len() as u64 > MAX_BYTES {
            return Err(io::Error::other(format!("it is larger than {MAX_BYTES} bytes")));
        }
        Ok(text)
    }

    /// Makes a token. The secret is returned here and stored nowhere.
    ///
    /// # Errors
    ///
    /// Returns an error when the name is in use or invalid, or the file cannot be read or written.
    pub fn add(&self, new: NewToken) -> Result<Secret, TokenError> {
        check_name(&new.name).map_err(TokenError::Refused)?;
        let secret = random().map_err(|source| self.failed(source))?;
        self.change(|tokens| {
            let NewToken { name, role, members, expires, usd_per_day } = new;
            if tokens.iter().any(|token| token.name == name) {
                let end = self.command(&format!("revoke {name}"));
                let why = format!("there is already a token {name}; `{end}` removes it");
                return Err(TokenError::Refused(why));
            }
            let sha256 = digest(secret.expose().as_bytes());
            tokens.push(Token { name, sha256, role, members, created: Timestamp::now(), expires, usd_per_day });
            Ok(())
        })?;
        Ok(secret)
    }

    /// Revokes a token: hosts refuse it from the next request on.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such token, or the file cannot be read or written.
    pub fn revoke(&self, name: &str) -> Result<(), TokenError> {
        self.change(|tokens| {
            let before = tokens.len();
            tokens.retain(|token| token.name != name);
            if tokens.len() < before {
                return Ok(());
            }
            let there: Vec<_> = tokens.iter().map(|token| token.name.as_str()).collect();
            let there = if there.is_empty() {
                "there are no tokens".to_owned()
            } else {
                format!("the tokens are {}", there.join(", "))
            };
            Err(TokenError::Refused(format!("there is no token {name:?}; {there}")))
        })
    }

    /// Changes the tokens under the file's lock.
    fn change(&self, change: impl FnOnce(&mut Vec<Token>) -> Result<(), TokenError>) -> Result<(), TokenError> {
        let held = DirectoryLock::acquire(&self.directory).map_err(|source| self.failed(source))?;
        let mut token = self.read()?;
        change(&mut token)?;
        let text = toml::to_string(&Written { token }).map_err(io::Error::other);
        let written = text.and_then(|text| held.replace(FILE_NAME, format!("{HEADER}{text}").as_bytes(), MODE));
        written.map(drop).map_err(|source| self.failed(source))
    }

    pub(crate) fn failed(&self, source: io::Error) -> TokenError {
        TokenError::Io { path: self.path.clone(), source }
    }
}
