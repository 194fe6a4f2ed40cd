//! Directory trees that a component or a person may have filled: walked and removed without following a symlink, without
//! recursion, and with few descriptors, however deep they are.

use std::{
    ffi::{OsStr, OsString},
    io::{self, ErrorKind},
    iter,
    path::{Path, PathBuf},
};

use cap_std::fs::{Dir, DirEntry, FileType, MetadataExt as _, ReadDir};

use crate::durable::{if_there, open_dir};

/// Something under the root of a [`walk`].
#[derive(Debug)]
pub struct Found {
    /// From the root.
    pub path: PathBuf,
    /// What it is; a symlink itself.
    pub kind: FileType,
    /// Bytes of a regular file; 0 for others.
    pub size: u64,
    /// Device and inode of a regular file.
    pub inode: (u64, u64),
}

/// What is under `root`, in no order. A directory that cannot be read, for example because its path is too long to be opened,
/// is an error, and the walk continues after it. What vanishes between two steps is left out.
pub fn walk(root: &Dir) -> impl Iterator<Item = io::Result<Found>> {
    let (mut unread, mut reading) = (vec![PathBuf::from(".")], None::<(PathBuf, ReadDir)>);
    iter::from_fn(move || {
        loop {
            let Some((dir, entries)) = &mut reading else {
                let dir = unread.pop()?;
                match if_there(open_dir(root, &dir).and_then(|open| open.entries())) {
                    Ok(entries) => reading = entries.map(|entries| (dir, entries)),
                    Err(e) => return Some(Err(e)),
                }
                continue;
            };
            let Some(entry) = entries.next() else {
                reading = None;
                continue;
            };
            match entry.and_then(|entry| found(dir, &entry)).transpose() {
                Some(Ok(found)) => {
                    unread.extend(found.kind.is_dir().then(|| found.path.clone()));
                    return Some(Ok(found));
                }
                None => {}
                error => return error,
            }
        }
    })
}

fn found(dir: &Path, entry: &DirEntry) -> io::Result<Option<Found>> {
    let path = if dir == Path::new(".") { entry.file_name().into() } else { dir.join(entry.file_name()) };
    let Some(kind) = if_there(entry.file_type())? else { return Ok(None) };
    let meta = if kind.is_file() { if_there(entry.metadata())? } else { None };
    let (size, inode) = meta.map_or((0, (0, 0)), |m| (m.len(), (m.dev(), m.ino())));
    Ok(Some(Found { path, kind, size, inode }))
}

/// How many bytes the files under `name` in `parent` have; what cannot be read counts nothing.
pub fn bytes(parent: &Dir, name: &str) -> u64 {
    let Ok(dir) = open_dir(parent, name) else { return 0 };
    walk(&dir).flatten().map(|found| found.size).fold(0, u64::saturating_add)
}

/// Removes `name` and all that is under it; it need not exist. After an error, what is left is still under `name`.
///
/// A directory that is not empty is moved up to be directly under `name` before it is emptied, so that depth does not matter.
pub fn remove(root: &Dir, name: &str) -> io::Result<()> {
    let Some(top) = if_there(open_dir(root, name))? else { return Ok(()) };
    let mut doomed = vec![OsString::from(".")];
    let mut moved = 0_u64;
    while let Some(next) = doomed.pop() {
        let is_top = next == ".";
        let Some(dir) = if_there(open_dir(&top, &next))? else { continue };
        for entry in dir.entries()? {
            let entry = entry?;
            let inner = entry.file_name();
            if !entry.file_type()?.is_dir() {
                if_there(dir.remove_file(&inner))?;
            } else if dir.remove_dir(&inner).is_err() {
                doomed.push(if is_top { inner } else { move_up(&dir, &inner, &top, &mut moved)? });
            }
        }
        if !is_top {
            if_there(top.remove_dir(&next))?;
        }
    }
    if_there(root.remove_dir(name)).map(drop)
}

/// Moves a directory to `top`, under the next number that is free there.
fn move_up(from: &Dir, name: &OsStr, top: &Dir, moved: &mut u64) -> io::Result<OsString> {
    loop {
        *moved += 1;
        let up = OsString::from(moved.to_string());
        match from.rename(name, top, &up) {
            Ok(()) => return Ok(up),
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::DirectoryNotEmpty | ErrorKind::NotADirectory | ErrorKind::AlreadyExists
                ) => {}
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use cap_tempfile::{TempDir, ambient_authority};

    use super::*;

    #[test]
    fn a_tree_deeper_than_any_path_is_removed_and_nothing_outside_of_it() {
        let dir = TempDir::new(ambient_authority()).unwrap();
        dir.create_dir("kept").unwrap();
        dir.write("kept/file", "kept").unwrap();
        dir.create_dir("tree").unwrap();
        let mut deep = dir.open_dir("tree").unwrap();
        let name = "d".repeat(200);
        for _ in 0..300 {
            deep.create_dir(&name).unwrap();
            deep.write("f", "x").unwrap();
            deep = deep.open_dir(&name).unwrap();
        }
        let tree = dir.open_dir("tree").unwrap();
        tree.symlink("../kept", "link").unwrap();
        // What is too deep is told, and the rest is walked.
        let seen: Vec<_> = walk(&tree).collect();
        assert!(seen.iter().any(Result::is_err));
        assert!(seen.iter().flatten().any(|found| found.path == Path::new("link")));
        remove(&dir, "tree").unwrap();
        let left: Vec<_> = dir.entries().unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["kept"]);
        assert_eq!(dir.read_to_string("kept/file").unwrap(), "kept");
        remove(&dir, "tree").unwrap();
    }

    #[test]
    fn a_name_that_is_taken_blocks_no_removal() {
        let dir = TempDir::new(ambient_authority()).unwrap();
        for path in ["tree/a/b/c/d", "tree/a/e/f/g", "tree/1/x", "tree.1/x", "tree.2"] {
            dir.create_dir_all(path).unwrap();
        }
        dir.write("tree/2", "a file").unwrap();
        remove(&dir, "tree").unwrap();
        assert!(!dir.exists("tree") && dir.exists("tree.1/x") && dir.exists("tree.2"));
    }
}
