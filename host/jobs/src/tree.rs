//! Directory trees that a guest or a person may have filled: walked and removed without following a symlink,
//! without recursion, and with few descriptors, however deep they are.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    io,
    path::{Path, PathBuf},
};

use cap_std::fs::{Dir, FileType};

use crate::durable::{if_there, open_dir};

/// Calls `visit` with each entry under `root`: its path, its type, its size in bytes. The order is not defined.
///
/// A tree so deep that its paths cannot be opened is an error.
pub(crate) fn walk(root: &Dir, mut visit: impl FnMut(&Path, FileType, u64)) -> io::Result<()> {
    let mut open = vec![PathBuf::from(".")];
    while let Some(dir) = open.pop() {
        for entry in open_dir(root, &dir)?.entries()? {
            let entry = entry?;
            let path = if dir == Path::new(".") { entry.file_name().into() } else { dir.join(entry.file_name()) };
            // What vanishes between two steps is not there.
            let Some(kind) = if_there(entry.file_type())? else { continue };
            let size = if kind.is_file() { if_there(entry.metadata())?.map_or(0, |m| m.len()) } else { 0 };
            visit(&path, kind, size);
            if kind.is_dir() {
                open.push(path);
            }
        }
    }
    Ok(())
}

/// Removes `name` and all that is under it. Nothing that is there is an error only if it cannot be removed.
///
/// A directory that is not empty is moved up beside `name` before it is emptied, so that depth does not matter;
/// its new name begins as `name` does.
pub(crate) fn remove(root: &Dir, name: &str) -> io::Result<()> {
    let mut doomed = VecDeque::from([OsString::from(name)]);
    let mut moved = 0_u64;
    while let Some(next) = doomed.pop_front() {
        let Some(dir) = if_there(open_dir(root, &next))? else { continue };
        for entry in dir.entries()? {
            let entry = entry?;
            let inner = entry.file_name();
            if !entry.file_type()?.is_dir() {
                if_there(dir.remove_file(&inner))?;
            } else if dir.remove_dir(&inner).is_err() {
                moved += 1;
                let up = OsString::from(format!("{name}.{moved}"));
                dir.rename(&inner, root, &up)?;
                doomed.push_back(up);
            }
        }
        drop(dir);
        if_there(root.remove_dir::<&OsStr>(&next))?;
    }
    Ok(())
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
        assert!(walk(&tree, |_, _, _| ()).is_err());
        remove(&dir, "tree").unwrap();
        let left: Vec<_> = dir.entries().unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["kept"]);
        assert_eq!(dir.read_to_string("kept/file").unwrap(), "kept");
        remove(&dir, "tree").unwrap();
    }
}
