//! Reads the other files of a member's directory, and the capabilities that the member would have on this host.

use std::{
    collections::BTreeSet,
    io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use cap_std::fs::{Dir, MetadataExt as _};
use guild_audit::{
    Operator, Other, Reach,
    evidence::form::{Form, form_of},
    flows::Opened,
    model::{OtherFile, OtherKind},
    subject::Places,
};
use guild_config::Config;
use guild_contract::{
    Grants,
    capability::grants::Policy,
    manifest::{ComponentSpec, FILE_NAME, POSTURE, SIGNATURE_SUFFIX, package},
};
use guild_fs::durable::{self, if_there};
use guild_trust::declares;
use memchr::memmem;

use crate::discovery::{FoundMember, discover};

/// The maximum number of files and links in the audit.
const MAX_FILES: usize = 10_000;
/// The maximum size of all files that are read, in bytes.
pub(super) const MAX_TOTAL_BYTES: usize = 32 * 1024 * 1024;
/// The maximum depth of directories that are read.
const MAX_DEPTH: usize = 8;
/// How many bytes of a file decide its kind.
const HEADER_BYTES: usize = 4096;
/// How many bytes of a file are searched for another one.
const SEARCHED_BYTES: u64 = 8 * 1024 * 1024;
/// The directory with a member's memories.
const MEMORY: &str = "memory";
/// How many bytes of a memory are read.
const MAX_MEMORY_BYTES: u64 = 256 * 1024;
/// The directory with a member's jobs.
const JOBS: &str = "jobs";
/// The members that ship with the host.
const SHIPPED: [&str; 4] = ["analyst", "digest", "researcher", "textkit"];
/// The read root in flows if the operator has none yet.
const ANY_ROOT: &str = "(any read root)";

/// The files in a member's directory besides the member's own.
#[derive(Default)]
pub(super) struct Others {
    /// All files, sorted by name.
    pub(super) files: Vec<OtherFile>,
    /// Paths, and the parts of the contents that were read.
    pub(super) documents: Vec<(String, Vec<u8>)>,
    /// Whether files are left out.
    pub(super) is_cut: bool,
    bytes: usize,
}

/// The files in a member's directory other than its manifest, posture, component, signatures and memories. The jobs of
/// a member that this host has loaded are the host's, and left out, too.
pub(super) fn other_files(member: &FoundMember, spec: &ComponentSpec, is_loaded: bool) -> io::Result<Others> {
    let mut own =
        vec![FILE_NAME.to_owned(), POSTURE.to_owned(), spec.file.clone(), format!("{}{SIGNATURE_SUFFIX}", spec.file)];
    own.extend(is_loaded.then(|| JOBS.to_owned()));
    // The declaration of the member is read together with its texts.
    own.extend(declares(&member.dir, package::FILE_NAME).then(|| package::FILE_NAME.to_owned()));
    let mut others = Others::default();
    others.add(&member.dir, "", &own, 0)?;
    others.files.sort();
    others.documents.sort();
    Ok(others)
}

/// The memories of a member, which its sessions receive: those in its package and those made since. Unreadable memories
/// are left out.
pub(super) fn memories(member: &FoundMember) -> Vec<(String, Vec<u8>)> {
    let Ok(dir) = member.dir.open_dir(MEMORY) else { return Vec::new() };
    let names = dir.entries().into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut memories: Vec<_> = names
        .filter(|name| is_memory(&dir, name))
        .filter_map(|name| {
            let content = durable::read(&dir, &name, MAX_MEMORY_BYTES).ok()??;
            Some((format!("{MEMORY}/{name}"), content.bytes))
        })
        .collect();
    memories.sort();
    memories
}

/// Whether a file in the directory of memories is a memory: a regular file with its suffix.
fn is_memory(dir: &Dir, name: &str) -> bool {
    name.ends_with(".md") && dir.symlink_metadata(name).is_ok_and(|found| found.is_file())
}

impl Others {
    fn add(&mut self, dir: &Dir, within: &str, own: &[String], depth: usize) -> io::Result<()> {
        for entry in dir.entries()? {
            let entry = entry?;
            let name = entry.file_name();
            let shown = String::from_utf8_lossy(name.as_bytes());
            let path = format!("{within}{shown}");
            if own.contains(&path) || (within == "memory/" && is_memory(dir, &shown)) {
                continue;
            }
            if self.files.len() >= MAX_FILES {
                self.is_cut = true;
                return Ok(());
            }
            // A file that a host writes at the same time can disappear.
            let Some(found) = if_there(entry.metadata())? else { continue };
            let kind = if found.is_symlink() {
                // A directory handle follows no link to the outside.
                if dir.metadata(&name).is_ok() { OtherKind::Link } else { OtherKind::LinkOut }
            } else if found.is_dir() {
                if depth < MAX_DEPTH {
                    self.add(&entry.open_dir()?, &format!("{path}/"), own, depth + 1)?;
                    continue;
                }
                OtherKind::Special
            } else if found.is_file() {
                let Some(content) = durable::read(dir, &name, SEARCHED_BYTES)? else { continue };
                let content = content.bytes;
                let kind = kind(&content, found.mode());
                self.bytes += content.len();
                if self.bytes > MAX_TOTAL_BYTES {
                    self.is_cut = true;
                } else {
                    self.documents.push((path.clone(), content));
                }
                kind
            } else {
                OtherKind::Special
            };
            self.files.push(OtherFile { path, kind, bytes: if found.is_file() { found.len() } else { 0 } });
        }
        Ok(())
    }
}

fn kind(content: &[u8], mode: u32) -> OtherKind {
    // Pictures and archives can have further data after their end.
    let modules = [&b"\0asm\x01\0\0\0"[..], b"\0asm\x0d\0\x01\0"];
    let is_wasm_inside = modules.iter().any(|magic| memmem::find(content, magic).is_some());
    match form_of(content.get(..HEADER_BYTES).unwrap_or(content)) {
        _ if is_wasm_inside => OtherKind::Wasm,
        Form::Wasm => OtherKind::Wasm,
        Form::Program | Form::Script => OtherKind::Program,
        Form::PrivateKey => OtherKind::PrivateKey,
        _ if mode & 0o111 != 0 => OtherKind::Program,
        Form::Text => OtherKind::Text,
        Form::Archive | Form::Random | Form::Other => OtherKind::Other,
    }
}

/// The capabilities of a member on this host, and of the others there. If the operator has no read roots, or has not
/// allowed the web yet, the audit assumes both, since the member will need them.
pub(super) fn operator(
    member: &FoundMember,
    spec: &ComponentSpec,
    members: &BTreeSet<PathBuf>,
    config: &Config,
) -> Operator {
    let neighbours = neighbours(member, members);
    let policy = Policy { web: true, ..config.policy.clone() };
    let named = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut roots: Vec<String> =
        config.roots.iter().map(|root| root.name.clone().unwrap_or_else(|| named(&root.path))).collect();
    if roots.is_empty() {
        let asked = spec.grants.files.as_ref().map(|files| files.roots.clone()).unwrap_or_default();
        roots = if asked.is_empty() { vec![ANY_ROOT.to_owned()] } else { asked };
    }
    let places = Places {
        roots,
        hosts: config.web.as_ref().map_or_else(|| vec!["*".to_owned()], |web| web.allow.clone()),
        has_provider: config.web.as_ref().is_none_or(|web| web.search.is_some()),
    };
    let opened = Opened {
        web: config.web.is_some(),
        pull_requests: config.projects.iter().any(|project| project.push && project.pull_requests),
        relays: config.relays.clone(),
    };
    Operator {
        grants: Grants::of(&member.key, spec, &policy),
        opened,
        names: names(member, &neighbours),
        others: neighbours.iter().filter_map(|other| reaching(other, &places, &policy)).collect(),
        places,
    }
}

/// What another member can reach by its manifest: its component is taken to import all that it asks for.
fn reaching(other: &FoundMember, places: &Places, policy: &Policy) -> Option<Other> {
    let spec = other.manifest.component.as_ref()?;
    let grants = Grants::of(&other.key, spec, policy);
    Some(Other { key: other.key.to_string(), reach: Reach::of(spec, &grants, places, |_| true) })
}

/// The installed members, and those next to this one.
fn neighbours(member: &FoundMember, members: &BTreeSet<PathBuf>) -> Vec<FoundMember> {
    let open = |path: &PathBuf| Dir::open_ambient_dir(path, cap_std::ambient_authority()).ok();
    let found = members.iter().filter_map(open).filter_map(|dir| discover(&dir).ok()).flatten();
    found.filter_map(|found| found.member.ok()).filter(|other| other.key != member.key).collect()
}

/// The names of the members that ship with the host, and of the installed ones.
fn names(member: &FoundMember, neighbours: &[FoundMember]) -> Vec<String> {
    let installed = neighbours.iter().map(|other| &other.manifest);
    let installed = installed.flat_map(|other| [other.name.clone(), other.display_name.clone()]);
    let shipped = SHIPPED.iter().filter(|name| **name != member.key.as_str()).map(|name| (*name).to_owned());
    let mut names: Vec<_> = shipped.chain(installed).collect();
    names.sort();
    names.dedup();
    names
}
