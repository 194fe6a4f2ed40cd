//! Reads keys and tokens from environment variables or files.

use std::{env, fmt, path::PathBuf};

use guild_contract::secret::Secret;
use guild_fs::regular_file;

/// The size of the largest key; a larger file is not read.
const MAX_KEY_BYTES: u64 = 16 * 1024;

/// The source of a key. It is read at each use, so a replaced key takes effect at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// A variable of the host's environment.
    Env(String),
    /// A file. White space around the key is ignored.
    File(PathBuf),
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "the environment variable {name}"),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

impl KeySource {
    /// Reads the key.
    ///
    /// # Errors
    ///
    /// Returns a sentence that names the variable or the file, and never its content.
    pub fn read(&self) -> Result<Secret, String> {
        match self {
            Self::Env(name) => match env::var(name) {
                Ok(key) if !key.trim().is_empty() => Ok(key.trim().to_owned().into()),
                Ok(_) | Err(env::VarError::NotPresent) => {
                    Err(format!("there is no key: set the environment variable {name}"))
                }
                Err(env::VarError::NotUnicode(_)) => Err(format!("the environment variable {name} is not UTF-8")),
            },
            Self::File(path) => {
                let failed = |why: String| format!("there is no key: {}: {why}", path.display());
                let bytes = regular_file::read(path, MAX_KEY_BYTES).map_err(|e| failed(e.to_string()))?;
                let key = String::from_utf8(bytes).map_err(|_| failed("it is not UTF-8".to_owned()))?;
                match key.trim() {
                    "" => Err(failed("it is empty".to_owned())),
                    key => Ok(key.to_owned().into()),
                }
            }
        }
    }
}
