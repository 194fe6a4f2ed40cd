//! Finding members: directories with a `guild-member.json`.
//!
//! `X/guild-member.json`, or `X/Y/guild-member.json` where `X` has none; the key is the path. Directories whose
//! name begins with `.` are passed over, and so are symlinks: a member is the directory itself, and two keys for
//! one directory would be two owners of the same jobs. A manifest that is not sound makes a member with an error,
//! and the others go on.

use std::{
    ffi::OsString,
    io::{self, Read},
    path::Path,
};

use cap_fs_ext::{DirExt, FollowSymlinks, OpenOptionsFollowExt, OpenOptionsSyncExt};
use cap_std::{
    ambient_authority,
    fs::{Dir, OpenOptions},
};
use guild_contract::{Manifest, MemberKey, manifest::FILE_NAME};

/// No sensible manifest is larger; reading stops here.
const MAX_MANIFEST_BYTES: u64 = 256 * 1024;

/// A directory with a manifest.
#[derive(Debug)]
pub struct Found {
    /// Its path under the members' directory: `X` or `X/Y`.
    pub path: String,
    /// The member; or why it is none, with the file at fault.
    pub member: Result<FoundMember, String>,
}

/// A member that can be opened.
#[derive(Debug)]
pub struct FoundMember {
    /// Its key.
    pub key: MemberKey,
    /// Its directory.
    pub dir: Dir,
    /// Its manifest.
    pub manifest: Manifest,
}

/// Opens the directory that the operator named. This is the one place where a path becomes a [`Dir`].
pub fn open_directory(path: &Path) -> io::Result<Dir> {
    Dir::open_ambient_dir(path, ambient_authority())
}

/// Every member under the members' directory, sorted by path. An error says that the directory itself cannot be read.
pub fn discover(members: &Dir) -> io::Result<Vec<Found>> {
    let mut found = Vec::new();
    for name in subdirectories(members)? {
        let path = name.to_string_lossy().into_owned();
        match members.open_dir_nofollow(&name) {
            Ok(dir) if has_manifest(&dir) => found.push(read(path, dir)),
            Ok(outer) => discover_inner(&path, &outer, &mut found),
            Err(error) => {
                let reason = format!("{path}: the directory cannot be opened: {error}");
                found.push(Found { path, member: Err(reason) });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// `X/Y/guild-member.json`. What cannot be read here is not known to be a member, and only logged.
fn discover_inner(outer_name: &str, outer: &Dir, found: &mut Vec<Found>) {
    let names = subdirectories(outer).unwrap_or_else(|error| {
        tracing::warn!(directory = outer_name, %error, "a directory of members cannot be read");
        Vec::new()
    });
    for name in names {
        let path = format!("{outer_name}/{}", name.to_string_lossy());
        match outer.open_dir_nofollow(&name) {
            Ok(dir) if has_manifest(&dir) => found.push(read(path, dir)),
            Ok(_) => {}
            Err(error) => tracing::debug!(directory = path, %error, "a directory cannot be opened"),
        }
    }
}

/// The member that a directory itself is. Its key is the directory's name: it is not for the manifest to choose, since
/// the operator's rules go by it. Only where the directory's name can be no key, it is the manifest's. The error is a
/// sentence for the person who started the host.
pub fn single(path: &Path) -> Result<FoundMember, String> {
    single_of(path, None)
}

/// [`single`], whose key is its path under the directory `members`, where it is in there.
pub fn single_of(path: &Path, members: Option<&Path>) -> Result<FoundMember, String> {
    let shown = path.display();
    let dir =
        open_directory(path).map_err(|error| format!("the member's directory {shown} cannot be opened: {error}"))?;
    if !has_manifest(&dir) {
        return Err(format!("{shown} is no member's directory: it has no {FILE_NAME}"));
    }
    let manifest = manifest(&dir).map_err(|why| path.join(why).display().to_string())?;
    let real = path.canonicalize().ok();
    let members = members.and_then(|members| members.canonicalize().ok());
    let under = || real.as_deref()?.strip_prefix(members.as_deref()?).ok()?.to_str()?.parse::<MemberKey>().ok();
    let named = || real.as_deref()?.file_name()?.to_str()?.parse().ok();
    match under().or_else(named).map_or_else(|| manifest.name.parse(), Ok) {
        Ok(key) => Ok(FoundMember { key, dir, manifest }),
        Err(error) => Err(format!("{}: `name`: {error}", path.join(FILE_NAME).display())),
    }
}

fn read(path: String, dir: Dir) -> Found {
    let member = match (path.parse(), manifest(&dir)) {
        (Err(error), _) => Err(format!("{path}: {error}")),
        (_, Err(reason)) => Err(format!("{path}/{reason}")),
        (Ok(key), Ok(manifest)) => Ok(FoundMember { key, dir, manifest }),
    };
    Found { path, member }
}

/// Names of directories that are not hidden and no symlinks.
fn subdirectories(dir: &Dir) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in dir.entries()? {
        let entry = entry?;
        let name = entry.file_name();
        if name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => names.push(name),
            Ok(kind) if kind.is_symlink() => tracing::warn!(?name, "a symlink among the members is not followed"),
            _ => {}
        }
    }
    Ok(names)
}

fn has_manifest(dir: &Dir) -> bool {
    dir.symlink_metadata(FILE_NAME).is_ok()
}

/// Reads a manifest that is a plain file. Opening does not wait for a FIFO's writer, nor follow a symlink.
/// The error names the file, and the line where there is one.
fn manifest(dir: &Dir) -> Result<Manifest, String> {
    let failed = |why: String| format!("{FILE_NAME}: {why}");
    let mut options = OpenOptions::new();
    options.read(true).nonblock(true).follow(FollowSymlinks::No);
    let file = dir.open_with(FILE_NAME, &options).map_err(|error| failed(format!("cannot be opened: {error}")))?;
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Err(failed("is not a regular file".to_owned()));
    }
    let mut text = Vec::new();
    let read = file.take(MAX_MANIFEST_BYTES + 1).read_to_end(&mut text);
    read.map_err(|error| failed(format!("cannot be read: {error}")))?;
    if text.len() as u64 > MAX_MANIFEST_BYTES {
        return Err(failed(format!("is larger than {MAX_MANIFEST_BYTES} bytes")));
    }
    Manifest::parse(&text).map_err(|error| error.to_string())
}
