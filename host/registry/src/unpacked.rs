//! Puts a member in place as a whole, or not at all.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use cap_std::fs::Dir;
use guild_contract::Limits;
use guild_fs::{
    durable::{Survives, if_there, open_dir, open_directory, open_or_make_dir, replace, sync_dir},
    file_lock::FileLock,
    tree,
};
use rustix::fs::{RenameFlags, renameat_with};

use crate::artifact::MemberFiles;

/// The file that shows that a process works in a temporary directory.
const LOCK: &str = ".lock";

/// A member that is unpacked beside its place, in a hidden directory that no host reads. The directory is removed when
/// this is dropped, or after a crash by the next attempt.
pub struct Unpacked {
    parent: Dir,
    temporary: String,
    inside: Arc<Dir>,
    path: PathBuf,
    member: String,
    _lock: FileLock,
}

impl Unpacked {
    /// Unpacks a member beside its place, the directory `member` below `parent`: `X`, or `X/Y`.
    ///
    /// # Errors
    ///
    /// Returns an error when a file cannot be written, or another process unpacks the same member.
    pub fn create(parent: &Path, member: &str, files: &MemberFiles) -> io::Result<Self> {
        let temporary = format!(".installing-{}", member.replace('/', "--"));
        let path = parent.join(&temporary);
        let parent = open_directory(parent)?;
        let parent = open_dir(&parent, ".")?;
        let inside = Arc::new(open_or_make_dir(&parent, &temporary)?);
        let busy = || io::Error::new(io::ErrorKind::ResourceBusy, "another process installs it; wait for its end");
        let lock = FileLock::try_acquire(&inside, LOCK)?.ok_or_else(busy)?;
        let unpacked = Self { parent, temporary, inside, path, member: member.to_owned(), _lock: lock };
        let (group, name) = member.split_once('/').unwrap_or((".", member));
        let group = open_or_make_dir(&unpacked.inside, group)?;
        tree::remove(&group, name)?;
        files.write(&open_or_make_dir(&group, name)?)?;
        Ok(unpacked)
    }

    /// The directory in which the member has the same relative path as in its place.
    pub fn members(&self) -> &Path {
        &self.path
    }

    /// The member's directory.
    pub fn directory(&self) -> PathBuf {
        self.path.join(&self.member)
    }

    /// Moves the member to its place in one step.
    ///
    /// # Errors
    ///
    /// Returns an error when the place is occupied, or the directory cannot be moved.
    pub fn place(self) -> io::Result<()> {
        let group = self.member.split_once('/').map_or(".", |(group, _)| group);
        let group = open_or_make_dir(&self.parent, group)?;
        renameat_with(&*self.inside, &self.member, &self.parent, &self.member, RenameFlags::NOREPLACE)?;
        // The member is in place. Without this, a power cut may undo the move.
        let _ = sync_dir(&group);
        Ok(())
    }
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        // The next attempt removes what this cannot remove.
        let _ = tree::remove(&self.parent, &self.temporary);
    }
}

/// Replaces the files of an installed member, each in one step, and removes the files that the new version does not have.
/// Other files stay, such as the member's jobs and memories. After an interruption the member differs from its pin, and no
/// host loads it until the upgrade is repeated.
///
/// # Errors
///
/// Returns an error when a file cannot be written or removed.
pub fn write_over(dir: &Dir, files: &MemberFiles, limits: &Limits, keeps: impl Fn(&str) -> bool) -> io::Result<()> {
    let dir = open_dir(dir, ".")?;
    let before = MemberFiles::names_in(&dir, limits)?;
    let is_replaced = |name: &str| !(keeps(name) && before.iter().any(|old| old == name));
    for (_, name, bytes) in files.files().filter(|(_, name, _)| is_replaced(name)) {
        replace(&dir, &name, bytes, Survives::PowerCut)?;
    }
    for name in before.iter().filter(|name| !keeps(name) && files.files().all(|(_, new, _)| new != **name)) {
        if_there(dir.remove_file(name))?;
    }
    sync_dir(&dir)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::part::Part;

    use super::*;

    fn files(description: &str) -> MemberFiles {
        let manifest = format!(
            r#"{{"name": "x", "displayName": "x", "description": "{description}", "version": "1", "transport": "http",
            "mcp": {{"command": "guild", "args": []}}, "component": {{"file": "x.wasm", "world": "worker"}}}}"#
        );
        let parts = [(Part::Component, "component".to_owned()), (Part::Manifest, manifest)];
        MemberFiles::of(parts.map(|(part, text)| (part, text.into())).to_vec()).unwrap()
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_member_is_in_its_place_as_a_whole_or_not_at_all() {
        let home = tempfile::tempdir().unwrap();
        let create = |member: &str| Unpacked::create(home.path(), member, &files("first"));
        let unpacked = create("x").unwrap();
        assert_eq!(names(home.path()), [".installing-x"]);
        assert_eq!(names(&unpacked.directory()), ["guild-member.json", "x.wasm"]);
        assert_eq!(create("x").err().unwrap().kind(), io::ErrorKind::ResourceBusy);
        drop(unpacked);
        assert_eq!(names(home.path()), Vec::<String>::new());

        // What a crash left is replaced.
        fs::create_dir_all(home.path().join(".installing-x/x/left")).unwrap();
        create("x").unwrap().place().unwrap();
        create("group/y").unwrap().place().unwrap();
        assert_eq!(names(home.path()), ["group", "x"]);
        assert_eq!(names(&home.path().join("x")), ["guild-member.json", "x.wasm"]);
        // Nothing is replaced, not even an empty directory.
        fs::create_dir(home.path().join("z")).unwrap();
        assert_eq!(create("z").unwrap().place().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(names(home.path()), ["group", "x", "z"]);
    }

    #[test]
    fn a_new_version_replaces_the_files_of_the_old_one_and_no_others() {
        let home = tempfile::tempdir().unwrap();
        Unpacked::create(home.path(), "x", &files("first")).unwrap().place().unwrap();
        let member = home.path().join("x");
        for name in ["posture.md", "sbom.cdx.json", "x.wasm.minisig", "package.json", "notes.txt"] {
            fs::write(member.join(name), "{}").unwrap();
        }
        let dir = open_directory(&member).unwrap();
        write_over(&dir, &files("second"), &Limits::default(), |name| name == "posture.md").unwrap();
        let left = ["guild-member.json", "notes.txt", "package.json", "posture.md", "x.wasm"];
        assert_eq!(names(&member), left, "a package.json that declares no member is not the member's");
        assert!(fs::read_to_string(member.join("guild-member.json")).unwrap().contains("second"));
    }
}
