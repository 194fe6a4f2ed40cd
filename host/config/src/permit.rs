//! Adds, moves and removes `[[project]]` in `guild.toml`, and keeps the rest of the operator's text.
//!
//! Lines are added to the text or removed from it. The new text is parsed before it is written, and all other settings
//! have to be unchanged.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use toml::Value;

use crate::{
    config::{Config, ConfigError},
    directory_lock::DirectoryLock,
    hall::PermittedProject,
    text::read_file,
};

/// The mode of a new file. Other users may read it, as if an editor had created it.
const MODE: u32 = 0o644;
/// The heading of a project's table.
const HEADING: &str = "[[project]]";

/// The reason that `guild.toml` was not changed.
#[derive(Debug, thiserror::Error)]
pub enum PermitError {
    /// There is no file, and the user has no directory for one.
    #[error(
        "there is no place for guild.toml, since the user has no configuration directory; name a file with --config \
         FILE"
    )]
    Nowhere,
    /// The file was already invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The text has a form that cannot be changed automatically.
    #[error("{} has a form that cannot be changed automatically; {todo}", path.display())]
    ByHand {
        /// The file.
        path: PathBuf,
        /// The change to make by hand.
        todo: String,
    },
    /// The file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

impl Config {
    /// The path of this configuration's file, which need not exist.
    fn place(&self) -> Result<PathBuf, PermitError> {
        let usual = || Some(self.directory.as_ref()?.join("guild.toml"));
        self.file.clone().or_else(usual).ok_or(PermitError::Nowhere)
    }

    /// Permits work in the repository whose top directory is `path`: adds a `[[project]]` to this configuration's file,
    /// unless it has one. Returns the file, and whether it was changed. It blocks.
    ///
    /// # Errors
    ///
    /// Returns an error when the file cannot be changed; see [`PermitError`].
    pub fn permit_project(&self, path: &Path) -> Result<(PathBuf, bool), PermitError> {
        change(self.place()?, |text, config| {
            if config.projects.iter().any(|known| is_same(&known.path, path)) {
                return Ok(None);
            }
            let added = format!("{HEADING}\npath = {}\n", Value::String(path.display().to_string()));
            let gap = match text {
                "" => "",
                text if text.ends_with('\n') => "\n",
                _ => "\n\n",
            };
            let project = PermittedProject { path: path.to_owned(), push: false, pull_requests: false };
            let projects = config.projects.iter().cloned().chain([project]).collect();
            Ok(Some((format!("{text}{gap}{added}"), projects, format!("add this to it:\n{added}"))))
        })
    }

    /// Moves the permissions of a repository from the path `from` to the path `to`. Returns the file, and whether it
    /// was changed. It blocks.
    ///
    /// # Errors
    ///
    /// Returns an error when the file cannot be changed; see [`PermitError`].
    pub fn move_project(&self, from: &Path, to: &Path) -> Result<(PathBuf, bool), PermitError> {
        let moved = change(self.place()?, |text, config| {
            let Some(nth) = config.projects.iter().position(|known| known.path == from) else { return Ok(None) };
            if config.projects.iter().any(|known| is_same(&known.path, to)) {
                return Ok(None);
            }
            let mut projects = config.projects.clone();
            projects.iter_mut().skip(nth).take(1).for_each(|project| project.path = to.to_owned());
            let line = format!("path = {}", Value::String(to.display().to_string()));
            let todo = format!("write {line} into the {HEADING} with path = {:?}", from.display().to_string());
            Ok(Some((with_path(text, nth, &line), projects, todo)))
        })?;
        if moved.1 { Ok(moved) } else { self.permit_project(to) }
    }

    /// Forbids work in the repository: removes its `[[project]]` from the file. Returns the file, and whether it was
    /// changed. It blocks.
    ///
    /// # Errors
    ///
    /// Returns an error when the file cannot be changed; see [`PermitError`].
    pub fn forbid_project(&self, path: &Path) -> Result<(PathBuf, bool), PermitError> {
        change(self.place()?, |text, config| {
            let Some(nth) = config.projects.iter().position(|known| is_same(&known.path, path)) else {
                return Ok(None);
            };
            let mut projects = config.projects.clone();
            projects.remove(nth);
            let todo = format!("remove the {HEADING} with path = {:?} from it", path.display().to_string());
            Ok(Some((without(text, nth), projects, todo)))
        })
    }
}

/// The text with another path in its nth `[[project]]`.
fn with_path(text: &str, nth: usize, path: &str) -> String {
    let (mut project, mut is_in) = (0, false);
    let mut change = |line: &str| {
        let code = line.split('#').next().unwrap_or_default().trim();
        if code.starts_with('[') {
            is_in = code == HEADING && project == nth;
            project += usize::from(code == HEADING);
        }
        let is_path = code.strip_prefix("path").is_some_and(|rest| rest.trim_start().starts_with('='));
        match is_in && is_path {
            true => format!("{path}\n"),
            false => line.to_owned(),
        }
    };
    text.split_inclusive('\n').map(&mut change).collect()
}

/// The text without its nth `[[project]]`. Comments before the next table belong to that table.
fn without(text: &str, nth: usize) -> String {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let code = |line: &str| line.split('#').next().unwrap_or_default().trim().to_owned();
    let heading = lines.iter().enumerate().filter(|(_, line)| code(line) == HEADING).nth(nth);
    let from = heading.map_or(lines.len(), |(at, _)| at);
    let rest = lines.iter().enumerate().skip(from + 1);
    let mut to = from + 1;
    for (at, line) in rest {
        match code(line) {
            code if code.starts_with('[') => break,
            code if code.is_empty() => {}
            _ => to = at + 1,
        }
    }
    // The blank line with which the table was added is removed too.
    let from = from - usize::from(from > 0 && lines.get(from - 1).is_some_and(|line| line.trim().is_empty()));
    lines.iter().take(from).chain(lines.iter().skip(to)).copied().collect()
}

/// A new text, its expected projects, and the change to make by hand if the parsed projects differ.
type Changed = (String, Vec<PermittedProject>, String);

fn change(
    path: PathBuf,
    change: impl FnOnce(&str, &Config) -> Result<Option<Changed>, PermitError>,
) -> Result<(PathBuf, bool), PermitError> {
    let at = |source| PermitError::File { path: path.clone(), source };
    // A symlink is kept, and its target is changed.
    let real = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
    let (Some(directory), Some(name)) = (real.parent(), real.file_name().and_then(|name| name.to_str())) else {
        return Err(at(io::Error::other("it has no name")));
    };
    let lock = DirectoryLock::acquire(directory).map_err(at)?;
    let (text, mode) = match read_file(&real) {
        Ok(text) => (text, fs::metadata(&real).map_err(at)?.permissions().mode() & 0o777),
        Err(e) if e.kind() == io::ErrorKind::NotFound => (String::new(), MODE),
        Err(e) => return Err(at(e)),
    };
    let config = Config::parse(&path, &text)?;
    let Some((new, projects, todo)) = change(&text, &config)? else { return Ok((path, false)) };
    let wanted = Config { projects, ..config };
    let says = Config::parse(&path, &new).map(|new| Config { sha256: None, written: Default::default(), ..new });
    if says.ok() != Some(Config { sha256: None, written: Default::default(), ..wanted }) {
        return Err(PermitError::ByHand { path, todo });
    }
    lock.replace(name, new.as_bytes(), mode).map_err(at)?;
    Ok((path, true))
}

fn is_same(one: &Path, other: &Path) -> bool {
    one == other || matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(file: &Path) -> Config {
        Config { file: Some(file.to_owned()), ..Config::default() }
    }

    #[test]
    fn a_project_is_added_and_removed_with_every_other_byte_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("guild.toml");
        let [a, b] = ["/srv/a", "/srv/b \"x\""].map(Path::new);
        for text in [
            "",
            "# mine\nport = 1 # a port\n",
            "[limits]\nbatch = 2",
            "[[project]] # first\npath = \"/srv/x\"\npush = true\n\n# the web\n[web]\nallow = []\n",
        ] {
            fs::write(&file, text).unwrap();
            assert!(of(&file).permit_project(a).unwrap().1);
            assert!(of(&file).permit_project(b).unwrap().1);
            assert!(!of(&file).permit_project(a).unwrap().1);
            let both = fs::read_to_string(&file).unwrap();
            assert!(both.starts_with(text), "{both}");
            let read = Config::parse(&file, &both).unwrap();
            let paths: Vec<_> = read.projects.iter().rev().take(2).map(|project| project.path.as_path()).collect();
            assert_eq!(paths, [b, a]);
            assert!(of(&file).forbid_project(a).unwrap().1);
            assert!(of(&file).forbid_project(b).unwrap().1);
            assert!(!of(&file).forbid_project(b).unwrap().1);
            assert_eq!(fs::read_to_string(&file).unwrap().trim_end(), text.trim_end());
        }
        let last = "[[project]]\npath = \"/srv/a\"\n\n# the web\n[web]\nallow = []\n";
        fs::write(&file, last).unwrap();
        of(&file).forbid_project(a).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "\n# the web\n[web]\nallow = []\n");
    }

    #[test]
    fn a_project_that_was_moved_keeps_what_is_permitted_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("guild.toml");
        let text =
            "[[project]]\npath = \"/srv/x\"\n\n[[project]] # mine\npush = true\npath = \"/srv/a\"\n[web]\nallow = []\n";
        fs::write(&file, text).unwrap();
        let [a, b, c] = ["/srv/a", "/srv/b", "/srv/c"].map(Path::new);
        assert!(of(&file).move_project(a, b).unwrap().1);
        assert_eq!(fs::read_to_string(&file).unwrap(), text.replace("/srv/a", "/srv/b"));
        // A repository without permissions is permitted, without further rights.
        assert!(of(&file).move_project(a, c).unwrap().1);
        let read = Config::parse(&file, &fs::read_to_string(&file).unwrap()).unwrap();
        assert!(read.projects.iter().any(|known| known.path == c && !known.push));
    }

    #[test]
    fn a_new_file_is_made_and_a_link_and_a_mode_stay() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("real/guild.toml"), dir.path().join("guild.toml"));
        of(&file).permit_project(Path::new("/srv/a")).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "[[project]]\npath = \"/srv/a\"\n");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        of(&link).permit_project(Path::new("/srv/b")).unwrap();
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_form_that_cannot_be_changed_is_refused_with_what_to_write() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("guild.toml");
        let text = "project = [{ path = \"/srv/a\" }]\n";
        fs::write(&file, text).unwrap();
        let refused = of(&file).permit_project(Path::new("/srv/b")).unwrap_err().to_string();
        assert!(refused.contains("add this to it:\n[[project]]\npath = \"/srv/b\"\n"), "{refused}");
        let refused = of(&file).forbid_project(Path::new("/srv/a")).unwrap_err().to_string();
        assert!(refused.contains("remove the [[project]] with path = \"/srv/a\""), "{refused}");
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
        fs::write(&file, "prot = 1\n").unwrap();
        let refused = of(&file).permit_project(Path::new("/srv/b")).unwrap_err().to_string();
        assert!(refused.contains("guild.toml:1: unknown key `prot`"), "{refused}");
    }
}
