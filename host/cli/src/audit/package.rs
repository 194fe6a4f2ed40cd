//! What a member's directory holds besides manifest and component, and what there is to be reached where it is installed.

use std::{
    io::{self, Read as _},
    os::unix::ffi::OsStrExt as _,
    path::Path,
};

use cap_std::fs::{Dir, MetadataExt as _, OpenOptions, OpenOptionsExt as _};
use guild_audit::{
    Operator,
    evidence::packed::{Form, form_of},
    model::{OtherFile, OtherKind},
};
use guild_config::Config;
use guild_contract::{
    Grants,
    grants::Policy,
    manifest::{ComponentSpec, FILE_NAME, POSTURE},
};
use guild_roster::discovery::{FoundMember, discover};
use guild_trust::SUFFIX;
use memchr::memmem;

use super::NO_WAIT;

/// Files and links that are listed.
const FILES: usize = 200;
/// Directories in directories that are looked into.
const DEPTH: usize = 8;
/// Bytes of a file by which its kind is told.
const BEGINNING: usize = 4096;
/// Bytes of a file in which another one is looked for.
const LOOKED_AT: u64 = 8 * 1024 * 1024;
/// The directory with a member's memories.
const MEMORY: &str = "memory";
/// Bytes of one memory that are looked at.
const MEMORY_BYTES: u64 = 256 * 1024;
/// What a host keeps in a member's directory.
const OF_THE_HOST: [&str; 2] = ["jobs", MEMORY];
/// The members that ship with the host.
const SHIPPED: [&str; 4] = ["analyst", "digest", "researcher", "textkit"];
/// The read root of which a flow is told where the operator has none yet.
const ANY_ROOT: &str = "(any read root)";

/// The files of a member that are neither its manifest, its posture, its component nor a signature.
pub(super) fn other_files(member: &FoundMember, spec: &ComponentSpec) -> io::Result<Vec<OtherFile>> {
    let own = [FILE_NAME.to_owned(), POSTURE.to_owned(), spec.file.clone(), format!("{}{SUFFIX}", spec.file)];
    let mut files = Vec::new();
    list(&member.dir, "", &own, 0, &mut files)?;
    files.sort();
    Ok(files)
}

/// The memories of a member: those that it comes with, and those that it has made since. What cannot be read is left out.
pub(super) fn memories(member: &FoundMember) -> Vec<(String, Vec<u8>)> {
    let mut memories = Vec::new();
    let Ok(dir) = member.dir.open_dir(MEMORY) else { return memories };
    let mut files = Vec::new();
    if list(&dir, "", &[], 0, &mut files).is_err() {
        return memories;
    }
    for file in files.into_iter().filter(|file| file.kind == OtherKind::Text) {
        let mut content = Vec::new();
        let opened = dir.open(&file.path);
        if opened.and_then(|file| file.take(MEMORY_BYTES).read_to_end(&mut content)).is_ok() {
            memories.push((format!("{MEMORY}/{}", file.path), content));
        }
    }
    memories.sort();
    memories
}

fn list(dir: &Dir, within: &str, own: &[String], depth: usize, files: &mut Vec<OtherFile>) -> io::Result<()> {
    for entry in dir.entries()? {
        let entry = entry?;
        let name = entry.file_name();
        let path = format!("{within}{}", String::from_utf8_lossy(name.as_bytes()));
        if files.len() >= FILES || own.contains(&path) || OF_THE_HOST.contains(&path.as_str()) {
            continue;
        }
        let found = entry.metadata()?;
        let kind = if found.is_symlink() {
            // A directory handle follows no link that leads out.
            if dir.metadata(&name).is_ok() { OtherKind::Link } else { OtherKind::LinkOut }
        } else if found.is_dir() {
            if depth < DEPTH {
                list(&entry.open_dir()?, &format!("{path}/"), own, depth + 1, files)?;
                continue;
            }
            OtherKind::Special
        } else if found.is_file() {
            kind(dir, Path::new(&name), found.mode())?
        } else {
            OtherKind::Special
        };
        files.push(OtherFile { path, kind, bytes: if found.is_file() { found.len() } else { 0 } });
    }
    Ok(())
}

fn kind(dir: &Dir, name: &Path, mode: u32) -> io::Result<OtherKind> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(NO_WAIT);
    let mut content = Vec::new();
    dir.open_with(name, &options)?.take(LOOKED_AT).read_to_end(&mut content)?;
    // Pictures and archives can go on after their end.
    let modules = [&b"\0asm\x01\0\0\0"[..], b"\0asm\x0d\0\x01\0"];
    let is_wasm_inside = modules.iter().any(|magic| memmem::find(&content, magic).is_some());
    Ok(match form_of(content.get(..BEGINNING).unwrap_or(&content)) {
        _ if is_wasm_inside => OtherKind::Wasm,
        Form::Wasm => OtherKind::Wasm,
        Form::Program | Form::Script => OtherKind::Program,
        Form::PrivateKey => OtherKind::PrivateKey,
        _ if mode & 0o111 != 0 => OtherKind::Program,
        Form::Text => OtherKind::Text,
        Form::Archive | Form::Random | Form::Other => OtherKind::Other,
    })
}

/// What a member could reach here. Where the operator has no read roots, or has not opened the web yet, it is judged as if
/// both were there: they will be when it works.
pub(super) fn operator(
    member: &FoundMember,
    spec: &ComponentSpec,
    members: Option<&Path>,
    config: &Config,
) -> Operator {
    let policy = Policy { web: true, ..config.policy.clone() };
    let named = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut roots: Vec<String> =
        config.roots.iter().map(|root| root.name.clone().unwrap_or_else(|| named(&root.path))).collect();
    if roots.is_empty() {
        let asked = spec.grants.files.as_ref().map(|files| files.roots.clone()).unwrap_or_default();
        roots = if asked.is_empty() { vec![ANY_ROOT.to_owned()] } else { asked };
    }
    Operator {
        grants: Grants::of(&member.key, spec, &policy),
        roots,
        hosts: config.web.as_ref().map_or_else(|| vec!["*".to_owned()], |web| web.allow.clone()),
        has_provider: config.web.as_ref().is_none_or(|web| web.search.is_some()),
        names: names(member, members),
    }
}

/// The names of the members that ship with the host, and of those that are installed next to this one.
fn names(member: &FoundMember, members: Option<&Path>) -> Vec<String> {
    let installed = members.and_then(|path| Dir::open_ambient_dir(path, cap_std::ambient_authority()).ok());
    let installed = installed.and_then(|dir| discover(&dir).ok()).unwrap_or_default();
    let others = installed.into_iter().filter_map(|found| found.member.ok()).filter(|other| other.key != member.key);
    let installed = others.flat_map(|other| [other.manifest.name, other.manifest.display_name]);
    let mut names: Vec<_> = SHIPPED.map(str::to_owned).into_iter().chain(installed).collect();
    names.sort();
    names.dedup();
    names.retain(|name| *name != member.manifest.name && *name != member.manifest.display_name);
    names
}
