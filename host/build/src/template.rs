use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

use rust_embed::Embed;
use strum::{EnumString, IntoStaticStr, VariantArray};

use crate::{BuildError, Language, project::failed};

/// The SDKs, and below `templates/` what is written beside them.
#[derive(Embed)]
#[folder = "../../sdk/"]
#[exclude = "bindings/**"]
#[exclude = "rust/tests/**"]
#[exclude = "js/tests/**"]
#[exclude = "**/target/**"]
#[exclude = "**/node_modules/**"]
#[exclude = "**/__pycache__/**"]
struct Sdks;

/// The directory of the SDK, below the member's.
const SDK: &str = "sdk";
/// The longest name of a member in bytes.
const NAME_BYTES: usize = 64;

/// The kinds of members that there are templates of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Kind {
    /// A worker, whose sessions the host runs.
    Worker,
    /// A worker that carries its jobs out itself, with sessions side by side.
    Autonomous,
    /// Tools.
    Toolbox,
    /// A worker with tools of its own.
    Hybrid,
}

/// Writes a new member's directory: its source, manifest and posture, and the SDK of its language. The directory's name
/// is the member's.
///
/// # Errors
///
/// Returns [`BuildError::New`] where the name is not valid, the language has no such template, or the directory is there
/// and not empty. Nothing is written then, and nothing is left of what cannot be written whole.
pub fn new(directory: &Path, kind: Kind, language: Language) -> Result<(), BuildError> {
    let name = name_of(directory)?;
    let files = files_of(kind, language);
    if files.is_empty() {
        let (kind, language): (&str, &str) = (kind.into(), language.into());
        return Err(BuildError::New(format!(
            "there is no template of the kind {kind} in {language}: its SDK starts no sessions; choose worker, toolbox or hybrid"
        )));
    }
    let is_free = |directory: &Path| match fs::read_dir(directory) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(failed(directory, error)),
    };
    if !is_free(directory)? {
        return Err(BuildError::New(format!("{} is there, and not empty; choose another name", directory.display())));
    }
    let values = [("{{name}}", name), ("{{setup}}", &setup(language))];
    let written = files.iter().try_for_each(|(path, file)| write(directory, path, file, &values));
    if written.is_err() {
        // The directory was empty, or not there: all in it is ours.
        let _ = fs::remove_dir_all(directory);
    }
    written
}

/// The member's name, which is that of its directory.
fn name_of(directory: &Path) -> Result<&str, BuildError> {
    let name = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_valid = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-')
        && !name.ends_with('-')
        && !name.contains("--")
        && name.len() <= NAME_BYTES;
    if is_valid {
        return Ok(name);
    }
    Err(BuildError::New(format!(
        "{name:?} cannot be a member's name: up to {NAME_BYTES} lower-case letters, digits and single `-`, beginning with a letter"
    )))
}

/// The embedded files of a template, by their paths in the member's directory; those of the SDK among them. None if the
/// language has no such template.
fn files_of(kind: Kind, language: Language) -> Vec<(PathBuf, String)> {
    let (kind, source): (&str, &str) = (kind.into(), language.into());
    let own = format!("templates/{source}/{kind}/");
    if !Sdks::iter().any(|file| file.starts_with(&own)) {
        return Vec::new();
    }
    let common = format!("templates/{source}/common/");
    let folders = ["templates/common/", &format!("templates/{kind}/"), &common, &own];
    let sdk = format!("{}/", language.sdk());
    let place = |file: &str| {
        let below = folders.iter().find_map(|folder| file.strip_prefix(folder)).map(PathBuf::from);
        below.or_else(|| Some(Path::new(SDK).join(file.strip_prefix(&sdk)?)))
    };
    Sdks::iter().filter_map(|file| Some((place(&file)?, file.into_owned()))).collect()
}

/// The command that installs what members in a language are built with, with a comment for people.
pub fn setup(language: Language) -> String {
    let name: &str = language.into();
    let embedded = Sdks::get(&format!("templates/{name}/setup.sh")).map(|file| file.data).unwrap_or_default();
    String::from_utf8_lossy(&embedded).trim_end().to_owned()
}

/// Writes an embedded file. In those of a template, each value takes the place of its name.
fn write(directory: &Path, path: &Path, file: &str, values: &[(&str, &str)]) -> Result<(), BuildError> {
    let to = directory.join(path);
    let put = || {
        let Some(embedded) = Sdks::get(file) else { return Err(io::ErrorKind::NotFound.into()) };
        fs::create_dir_all(to.parent().unwrap_or(directory))?;
        if path.starts_with(SDK) {
            return fs::write(&to, &embedded.data);
        }
        let text = str::from_utf8(&embedded.data).map_err(io::Error::other)?.to_owned();
        fs::write(&to, values.iter().fold(text, |text, (name, value)| text.replace(name, value)))
    };
    put().map_err(|error| failed(&to, error))
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_member_is_one_that_every_language_takes() {
        for good in ["a", "word-count", "m2"] {
            assert_eq!(name_of(&Path::new("below").join(good)).unwrap(), good);
        }
        let long = "a".repeat(NAME_BYTES + 1);
        for bad in ["", "Word", "2a", "a_b", "a-", "a--b", "ä", &long] {
            assert!(name_of(Path::new(bad)).unwrap_err().to_string().contains("cannot be a member's name"), "{bad}");
        }
    }
}
