//! Finds members: directories with a `guild-member.json`, or with a `package.json` that has a key `guildHall`.
//!
//! A member is `X`, or `X/Y` if `X` is no member; the key is the path. No code of a member is run for this. Directories
//! whose name begins with `.` are skipped, and so are symlinks: a member is the directory itself, and two keys for one
//! directory would be two owners of the same jobs. An invalid manifest makes a member with an error, and the other
//! members are found all the same.

pub mod granted;
pub mod mcp_line;
pub(crate) mod scanner;

use std::{
    ffi::OsString,
    io::{self, Read},
    path::Path,
    time::{Duration, SystemTime},
};

use cap_fs_ext::{DirExt, FollowSymlinks, OpenOptionsFollowExt, OpenOptionsSyncExt};
use cap_std::fs::{Dir, Metadata, MetadataExt as _, OpenOptions};
use guild_config::Config;
use guild_contract::{
    Limits, Manifest, MemberKey,
    capability::grants::Pattern,
    manifest::{FILE_NAME, MANIFEST_BYTES, POSTURE, POSTURE_BYTES, SIGNATURE_SUFFIX, package},
    text::hex,
};
use guild_fs::{durable::open_directory, fingerprint::Fingerprint};
use guild_sandbox::Candidate;
use guild_trust::{is_member, is_member_at};
use sha2::{Digest as _, Sha256};

/// The usual name of a directory of members.
pub const MEMBERS: &str = "guild-members";

/// A directory with a manifest.
#[derive(Debug)]
pub struct Found {
    /// Its path under the members' directory: `X` or `X/Y`.
    pub path: String,
    /// The member; or the error, with the invalid file.
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
    /// Its state when it was found.
    pub(crate) mark: Mark,
}

impl FoundMember {
    /// The SHA-256 of the files that declare it, in lower-case hexadecimal.
    pub fn manifest_sha256(&self) -> String {
        hex(&self.mark.manifest)
    }

    /// Its posture, which its sessions are given, if it has one.
    ///
    /// # Errors
    ///
    /// Returns an error when the file cannot be read. The text is the rest of a sentence that begins with the file's
    /// name.
    pub fn posture(&self) -> Result<Option<Vec<u8>>, String> {
        posture(&self.dir)
    }

    /// The SHA-256 of its component, in lower-case hexadecimal, if it has one. It blocks.
    ///
    /// # Errors
    ///
    /// Returns an error when the component cannot be read.
    pub fn component_sha256(&self, limits: &Limits) -> Result<Option<String>, String> {
        let Some(spec) = &self.manifest.component else { return Ok(None) };
        let candidate = Candidate::read(&self.dir, &spec.file, limits.component_bytes);
        candidate.map(|candidate| Some(candidate.hash())).map_err(|e| e.to_string())
    }

    /// A served member as it was found, even if its directory has changed.
    pub(crate) fn served(key: MemberKey, dir: Dir, manifest: Manifest) -> Self {
        Self { key, dir, manifest, mark: Mark::default() }
    }
}

/// Identifies a state of a member's directory: the directory, the manifest, and the files of the component and its
/// signature.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Device and inode.
    pub(crate) directory: Option<(u64, u64)>,
    /// The SHA-256 of the bytes that declare it.
    pub(crate) manifest: [u8; 32],
    /// The marks of each file, with the symlinks on the way to it, so that a dangling symlink differs from a missing
    /// file.
    files: [Vec<FileMark>; 2],
}

/// Identifies a state of a file without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileMark {
    file: Fingerprint,
    /// Whether it was changed so recently that a later change may have the same time, since file systems count time in
    /// ticks.
    fresh: bool,
}

/// The pause between two changes after which the times of a file differ.
const TICK: Duration = Duration::from_secs(1);

impl Mark {
    fn of(dir: &Dir, manifest: &Manifest, sha256: [u8; 32]) -> Self {
        let own = dir.dir_metadata().ok();
        let files = manifest.component.as_ref().map_or_else(Default::default, |component| {
            [FileMark::all(dir, &component.file), FileMark::all(dir, &format!("{}{SIGNATURE_SUFFIX}", component.file))]
        });
        Self { directory: own.map(|own| (own.dev(), own.ino())), manifest: sha256, files }
    }

    /// Whether nothing has changed since `before`, judged without reading the files.
    pub(crate) fn is_same(&self, before: &Self) -> bool {
        let fresh = before.files.iter().flatten().any(|file| file.fresh);
        !fresh && self == before
    }
}

impl FileMark {
    /// The symlinks on the way to a file, and the file.
    fn all(dir: &Dir, file: &str) -> Vec<Self> {
        let mut way: Vec<&Path> = Path::new(file).ancestors().filter(|part| !part.as_os_str().is_empty()).collect();
        way.reverse();
        let links = way.into_iter().filter_map(|part| dir.symlink_metadata(part).ok());
        let links = links.filter(Metadata::is_symlink);
        links.chain(dir.metadata(file).ok()).map(|found| Self::of(&found)).collect()
    }

    fn of(found: &Metadata) -> Self {
        let age = found.modified().ok().and_then(|at| SystemTime::now().duration_since(at.into_std()).ok());
        Self {
            file: Fingerprint::from_parts(found.dev(), found.ino(), found.len(), (found.mtime(), found.mtime_nsec())),
            fresh: age.is_none_or(|age| age < TICK),
        }
    }
}

/// Every member under the members' directory, sorted by path. An error means that the directory itself cannot be read.
pub fn discover(members: &Dir) -> io::Result<Vec<Found>> {
    let mut found = Vec::new();
    for name in subdirectories(members)? {
        let path = name.to_string_lossy().into_owned();
        match members.open_dir_nofollow(&name) {
            Ok(dir) if is_member(&dir) => found.push(read(path, dir)),
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

/// Finds the members `X/Y`. An unreadable directory is not known to be a member, and is only logged.
fn discover_inner(outer_name: &str, outer: &Dir, found: &mut Vec<Found>) {
    let names = subdirectories(outer).unwrap_or_else(|error| {
        tracing::warn!(directory = outer_name, %error, "a directory of members cannot be read");
        Vec::new()
    });
    for name in names {
        let path = format!("{outer_name}/{}", name.to_string_lossy());
        match outer.open_dir_nofollow(&name) {
            Ok(dir) if is_member(&dir) => found.push(read(path, dir)),
            Ok(_) => {}
            Err(error) => tracing::debug!(directory = path, %error, "a directory cannot be opened"),
        }
    }
}

/// The member that a directory itself is. Its key is its path under the directory `members` if it is there, else its
/// directory's name. The manifest cannot choose it, since the operator's rules use it. The error is a sentence for the
/// person who started the host.
///
/// A member `X/Y` of a directory of members that was not named would have the key `Y` here, and the rules of another
/// one. If `[member.PATTERN]` in `config` treats the two keys differently, that is an error.
pub fn single(path: &Path, members: Option<&Path>, config: &Config) -> Result<FoundMember, String> {
    let shown = path.display();
    let dir =
        open_directory(path).map_err(|error| format!("the member's directory {shown} cannot be opened: {error}"))?;
    if !is_member(&dir) {
        return Err(format!(
            "{shown} is no member's directory: it has no {FILE_NAME}, and no {} with \"guildHall\"",
            package::FILE_NAME
        ));
    }
    let (manifest, mark) = manifest(&dir).map_err(|why| path.join(why).display().to_string())?;
    let real = path.canonicalize().map_err(|error| format!("cannot resolve {shown}: {error}"))?;
    let members = members.and_then(|members| members.canonicalize().ok());
    let under = members.and_then(|members| real.strip_prefix(members).ok()?.to_str()?.parse().ok());
    let key = under.map_or_else(|| key_by_name(&real, config), Ok).map_err(|why| format!("{shown}: {why}"))?;
    Ok(FoundMember { key, dir, manifest, mark })
}

/// The key of the member in `directory`, if that is in no known directory of members.
fn key_by_name(directory: &Path, config: &Config) -> Result<MemberKey, String> {
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let key = name(directory).parse::<MemberKey>().map_err(|error| error.to_string())?;
    // In a group it would be this one; hidden groups, and those that are members, have none. What is called as
    // directories of members are is none.
    let group = directory.parent().filter(|group| !is_member_at(group) && !group.ends_with(MEMBERS));
    let Some(in_group) = group.and_then(|group| format!("{}/{key}", name(group)).parse::<MemberKey>().ok()) else {
        return Ok(key);
    };
    let differs = |table: &&Pattern| table.matches(key.as_str()) != table.matches(in_group.as_str());
    match config.policy.rules.iter().map(|rule| &rule.members).find(differs) {
        None => Ok(key),
        Some(Pattern(table)) => Err(format!(
            "whether [member.{table:?}] in guild.toml is for it is not clear: alone it is {:?}, and in a group {:?}; name the \
             directory of members that it is in, with `members` in guild.toml or --members",
            key.as_str(),
            in_group.as_str()
        )),
    }
}

fn read(path: String, dir: Dir) -> Found {
    let member = match (path.parse(), manifest(&dir)) {
        (Err(error), _) => Err(format!("{path}: {error}")),
        (_, Err(reason)) => Err(format!("{path}/{reason}")),
        (Ok(key), Ok((manifest, mark))) => Ok(FoundMember { key, dir, manifest, mark }),
    };
    Found { path, member }
}

/// The names of directories that are neither hidden nor symlinks.
pub(crate) fn subdirectories(dir: &Dir) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in dir.entries()? {
        let entry = entry?;
        let name = entry.file_name();
        if name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => names.push(name),
            Ok(kind) if kind.is_symlink() => {
                tracing::warn!("a symlink among the members is not followed: {:?}", name.to_string_lossy());
            }
            _ => {}
        }
    }
    Ok(names)
}

/// Reads the declaration of a member, without following a symlink. The error names the file, and the line if there is
/// one.
pub(crate) fn manifest(dir: &Dir) -> Result<(Manifest, Mark), String> {
    let read =
        |file: &str| read_plain(dir, file, MANIFEST_BYTES, FollowSymlinks::No).map_err(|why| format!("{file}: {why}"));
    let (text, package) = (read(FILE_NAME)?, read(package::FILE_NAME)?.filter(|text| package::is_declared(text)));
    if text.is_none() && package.is_none() {
        return Err(format!("{FILE_NAME}: is not there"));
    }
    let manifest = Manifest::of(text.as_deref(), package.as_deref()).map_err(|error| error.to_string())?;
    // For two files it is the digest of both, one after the other.
    let sha256 = [text, package].into_iter().flatten().fold(Sha256::new(), Sha256::chain_update).finalize();
    let mark = Mark::of(dir, &manifest, sha256.into());
    Ok((manifest, mark))
}

/// Reads a posture, also through a symlink within the directory.
pub(crate) fn posture(dir: &Dir) -> Result<Option<Vec<u8>>, String> {
    read_plain(dir, POSTURE, POSTURE_BYTES, FollowSymlinks::Yes)
}

/// Reads a regular file of so many bytes at most; `None` if it is missing. A pipe in its place is opened without
/// waiting for a writer, and refused. The error is the rest of a sentence that begins with the file's name.
pub(crate) fn read_plain(dir: &Dir, name: &str, most: u64, follow: FollowSymlinks) -> Result<Option<Vec<u8>>, String> {
    let mut options = OpenOptions::new();
    options.read(true).nonblock(true).follow(follow);
    let file = match dir.open_with(name, &options) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("cannot be opened: {error}")),
    };
    if !file.metadata().is_ok_and(|found| found.is_file()) {
        return Err("is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() as u64 > most {
        return Err(format!("is larger than {most} bytes"));
    }
    Ok(Some(bytes))
}
