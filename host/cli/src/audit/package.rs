//! Reads the other files of a member's directory, and what the member would reach where it is installed.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Read as _},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use cap_std::fs::{Dir, MetadataExt as _, OpenOptions, OpenOptionsExt as _};
use guild_audit::{
    Operator,
    evidence::form::{Form, form_of},
    model::{OtherFile, OtherKind},
};
use guild_config::Config;
use guild_contract::{
    Grants,
    grants::Policy,
    manifest::{ComponentSpec, FILE_NAME, POSTURE, package},
};
use guild_fs::durable::if_there;
use guild_roster::discovery::{FoundMember, discover};
use guild_trust::{SUFFIX, declares};
use memchr::memmem;

use super::NO_WAIT;

/// Files and links that are looked at.
const FILES: usize = 10_000;
/// Bytes of files that are looked into, in all.
const DOCUMENTS_BYTES: usize = 32 * 1024 * 1024;
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
/// The directory with a member's jobs.
const JOBS: &str = "jobs";
/// The members that ship with the host.
const SHIPPED: [&str; 4] = ["analyst", "digest", "researcher", "textkit"];
/// The read root of which a flow is told where the operator has none yet.
const ANY_ROOT: &str = "(any read root)";

/// The files of a member besides those that are its own.
#[derive(Default)]
pub(super) struct Others {
    /// All of them, sorted by name.
    pub(super) files: Vec<OtherFile>,
    /// What they hold: path and content, as far as it was read.
    pub(super) documents: Vec<(String, Vec<u8>)>,
    /// Whether there are more.
    pub(super) is_cut: bool,
    bytes: usize,
}

/// The files of a member that are neither its manifest, its posture, its component, a signature nor a memory. The jobs of one
/// that this host has loaded are the host's.
pub(super) fn other_files(member: &FoundMember, spec: &ComponentSpec, is_loaded: bool) -> io::Result<Others> {
    let mut own = vec![FILE_NAME.to_owned(), POSTURE.to_owned(), spec.file.clone(), format!("{}{SUFFIX}", spec.file)];
    own.extend(is_loaded.then(|| JOBS.to_owned()));
    // What declares the member is read with its texts.
    own.extend(declares(&member.dir, package::FILE_NAME).then(|| package::FILE_NAME.to_owned()));
    let mut others = Others::default();
    others.add(&member.dir, "", &own, 0)?;
    others.files.sort();
    others.documents.sort();
    Ok(others)
}

/// The memories of a member, which its sessions are shown: those that it comes with, and those that it has made since. What
/// cannot be read is left out.
pub(super) fn memories(member: &FoundMember) -> Vec<(String, Vec<u8>)> {
    let Ok(dir) = member.dir.open_dir(MEMORY) else { return Vec::new() };
    let names = dir.entries().into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut memories: Vec<_> = names
        .filter(|name| is_memory(&dir, name))
        .filter_map(|name| {
            let mut content = Vec::new();
            dir.open(&name).ok()?.take(MEMORY_BYTES).read_to_end(&mut content).ok()?;
            Some((format!("{MEMORY}/{name}"), content))
        })
        .collect();
    memories.sort();
    memories
}

/// Whether a file in the directory of memories is one: regular, whatever else it is.
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
            if self.files.len() >= FILES {
                self.is_cut = true;
                return Ok(());
            }
            // What a host writes meanwhile can be gone again.
            let Some(found) = if_there(entry.metadata())? else { continue };
            let kind = if found.is_symlink() {
                // A directory handle follows no link that leads out.
                if dir.metadata(&name).is_ok() { OtherKind::Link } else { OtherKind::LinkOut }
            } else if found.is_dir() {
                if depth < DEPTH {
                    self.add(&entry.open_dir()?, &format!("{path}/"), own, depth + 1)?;
                    continue;
                }
                OtherKind::Special
            } else if found.is_file() {
                let Some(content) = if_there(beginning(dir, Path::new(&name)))? else { continue };
                let kind = kind(&content, found.mode());
                self.bytes += content.len();
                if self.bytes > DOCUMENTS_BYTES {
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

/// The beginning of a file.
fn beginning(dir: &Dir, name: &Path) -> io::Result<Vec<u8>> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(NO_WAIT);
    let mut content = Vec::new();
    dir.open_with(name, &options)?.take(LOOKED_AT).read_to_end(&mut content)?;
    Ok(content)
}

fn kind(content: &[u8], mode: u32) -> OtherKind {
    // Pictures and archives can go on after their end.
    let modules = [&b"\0asm\x01\0\0\0"[..], b"\0asm\x0d\0\x01\0"];
    let is_wasm_inside = modules.iter().any(|magic| memmem::find(content, magic).is_some());
    match form_of(content.get(..BEGINNING).unwrap_or(content)) {
        _ if is_wasm_inside => OtherKind::Wasm,
        Form::Wasm => OtherKind::Wasm,
        Form::Program | Form::Script => OtherKind::Program,
        Form::PrivateKey => OtherKind::PrivateKey,
        _ if mode & 0o111 != 0 => OtherKind::Program,
        Form::Text => OtherKind::Text,
        Form::Archive | Form::Random | Form::Other => OtherKind::Other,
    }
}

/// What a member could reach here. Where the operator has no read roots, or has not opened the web yet, it is judged as if
/// both were there: they will be when it works.
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
    Operator {
        grants: Grants::of(&member.key, spec, &policy),
        roots,
        hosts: config.web.as_ref().map_or_else(|| vec!["*".to_owned()], |web| web.allow.clone()),
        has_provider: config.web.as_ref().is_none_or(|web| web.search.is_some()),
        names: names(member, &neighbours),
        toolbox_hosts: toolbox_hosts(spec, &neighbours),
    }
}

/// The members that are installed, or that lie next to this one.
fn neighbours(member: &FoundMember, members: &BTreeSet<PathBuf>) -> Vec<FoundMember> {
    let open = |path: &PathBuf| Dir::open_ambient_dir(path, cap_std::ambient_authority()).ok();
    let found = members.iter().filter_map(open).filter_map(|dir| discover(&dir).ok()).flatten();
    found.filter_map(|found| found.member.ok()).filter(|other| other.key != member.key).collect()
}

/// The names of the members that ship with the host, and of those that are installed.
fn names(member: &FoundMember, neighbours: &[FoundMember]) -> Vec<String> {
    let installed = neighbours.iter().map(|other| &other.manifest);
    let installed = installed.flat_map(|other| [other.name.clone(), other.display_name.clone()]);
    let shipped = SHIPPED.iter().filter(|name| **name != member.key.as_str()).map(|name| (*name).to_owned());
    let mut names: Vec<_> = shipped.chain(installed).collect();
    names.sort();
    names.dedup();
    names
}

/// The hosts that the members ask for whose tools this one names.
fn toolbox_hosts(spec: &ComponentSpec, neighbours: &[FoundMember]) -> BTreeMap<String, Vec<String>> {
    let named = neighbours.iter().filter(|other| spec.toolboxes.contains(&other.key));
    let hosts = named.filter_map(|other| {
        let web = other.manifest.component.as_ref()?.grants.web.as_ref()?;
        let hosts = if web.hosts.is_empty() { vec!["*".to_owned()] } else { web.hosts.clone() };
        Some((other.key.to_string(), hosts))
    });
    hosts.collect()
}
