//! Writes the source of a new member from the embedded templates and SDKs.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

use rust_embed::Embed;
use strum::{EnumString, IntoStaticStr, VariantArray};

use crate::{BuildError, Language, project::failed};

/// The SDKs, and below `templates/` the files that are written beside them.
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
/// The prefix of the temporary directory of a new member.
const TEMPORARY: &str = ".guild-new-";

/// The kinds of members that have templates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Kind {
    /// A worker, whose sessions the host runs.
    Worker,
    /// A worker that carries out its jobs itself, with sessions side by side.
    Autonomous,
    /// Tools.
    Toolbox,
    /// A worker with tools of its own.
    Hybrid,
}

/// Writes a new member's directory: its source, manifest and posture, and the SDK of its language. The directory's name
/// is the member's.
///
/// The files are written into a hidden directory beside, which is then renamed. So the member's directory has all of its
/// files, or does not exist.
///
/// # Errors
///
/// Returns [`BuildError::New`] when the name is not valid, the language has no such template, or the path exists and is
/// no empty directory; and [`BuildError::File`] when a file cannot be written. Nothing is left behind.
pub fn new(directory: &Path, kind: Kind, language: Language) -> Result<(), BuildError> {
    let name = name_of(directory)?;
    let files = files_of(kind, language);
    if files.is_empty() {
        let (kind, language): (&str, &str) = (kind.into(), language.into());
        return Err(BuildError::New(format!(
            "there is no template of the kind {kind} in {language}: its SDK starts no sessions; choose worker, toolbox or hybrid"
        )));
    }
    check_free(directory)?;
    let parent = directory.parent().unwrap_or(Path::new(""));
    // Missing parents are made at the end, so that an error leaves none.
    let existing = parent.ancestors().find(|ancestor| ancestor.is_dir()).unwrap_or(Path::new("."));
    let temporary = tempfile::Builder::new().prefix(TEMPORARY).tempdir_in(existing);
    let temporary = temporary.map_err(|error| failed(existing, error))?;
    let member = temporary.path().join(name);
    let values = [("{{name}}", name), ("{{setup}}", &setup(language))];
    files.iter().try_for_each(|(path, file)| write(&member, path, file, &values))?;
    // The system replaces no other file or directory than an empty directory by a directory.
    let placed = fs::create_dir_all(parent).and_then(|()| fs::rename(&member, directory));
    placed.map_err(|error| failed(directory, error))
}

/// Checks that a new member can have this path: nothing is there, or an empty directory. A symlink is not followed.
fn check_free(directory: &Path) -> Result<(), BuildError> {
    let occupied = |what: &str| BuildError::New(format!("{} {what}; choose another name", directory.display()));
    match directory.symlink_metadata() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(directory, error)),
        Ok(found) if found.is_symlink() => Err(occupied("is a symlink")),
        Ok(found) if !found.is_dir() => Err(occupied("is not a directory")),
        Ok(_) => match fs::read_dir(directory).map_err(|error| failed(directory, error))?.next() {
            Some(_) => Err(occupied("exists, and is not empty")),
            None => Ok(()),
        },
    }
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

/// The embedded files of a template and of the SDK, by their paths in the member's directory. The list is empty if the
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

/// The command that installs the tools for members in a language, with a comment for people.
pub fn setup(language: Language) -> String {
    let name: &str = language.into();
    let embedded = Sdks::get(&format!("templates/{name}/setup.sh")).map(|file| file.data).unwrap_or_default();
    String::from_utf8_lossy(&embedded).trim_end().to_owned()
}

/// Writes an embedded file. In a file of a template, each value replaces its placeholder.
fn write(directory: &Path, path: &Path, file: &str, values: &[(&str, &str)]) -> Result<(), BuildError> {
    let to = directory.join(path);
    let write = || {
        let Some(embedded) = Sdks::get(file) else { return Err(io::ErrorKind::NotFound.into()) };
        fs::create_dir_all(to.parent().unwrap_or(directory))?;
        if path.starts_with(SDK) {
            return fs::write(&to, &embedded.data);
        }
        let text = str::from_utf8(&embedded.data).map_err(io::Error::other)?.to_owned();
        fs::write(&to, values.iter().fold(text, |text, (name, value)| text.replace(name, value)))
    };
    write().map_err(|error| failed(&to, error))
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
    fn a_failure_leaves_no_file_and_no_directory() {
        let home = tempfile::tempdir().unwrap();
        // The temporary directory fits into the longest path that the system permits, and the files below it do not.
        let mut parent = home.path().join("p".repeat(200));
        while parent.as_os_str().len() < 4000 {
            let left = 4060 - parent.as_os_str().len();
            parent.push("p".repeat(left.min(200)));
        }
        fs::create_dir_all(&parent).unwrap();
        let failure = new(&parent.join("m".repeat(NAME_BYTES)), Kind::Worker, Language::C).unwrap_err();
        assert!(matches!(failure, BuildError::File { .. }), "{failure}");
        assert_eq!(fs::read_dir(&parent).unwrap().count(), 0);

        fs::write(home.path().join("file"), "mine").unwrap();
        for (path, why) in [("file", "is not a directory"), ("file/member", "Not a directory")] {
            let failure = new(&home.path().join(path), Kind::Worker, Language::C).unwrap_err().to_string();
            assert!(failure.contains(why), "{failure}");
        }
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2);
    }

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
