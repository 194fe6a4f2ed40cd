//! `guild backup` and `guild restore`: the members, the hall's home, the configuration and the host's state, in one file.
//!
//! The file is a tar archive, compressed by gzip. Hosts may write while it is made: each file is read whole, and files
//! are read in an order that a power cut could have left on the disk, so that the host that is started on them goes on
//! as after a power cut.

mod archive;
mod restore;

use std::{
    fs, io,
    io::IsTerminal as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use guild_cluster::transfer::{Copied, Transfer};
use guild_config::{Config, directories, shell_word};
use guild_fs::durable::{open_dir, open_directory};
use guild_hall::PACKAGES;
use guild_roster::discovery::discover;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use self::archive::Archive;
pub(crate) use self::restore::restore;
use super::cluster;
use crate::{args::operator::Backup, failure::Failure, local, output::tell};

/// The name of this command at the NATS servers of a cluster.
const CLIENT: &str = "guild-backup";
/// The first file of an archive.
const ABOUT: &str = "backup.json";
/// The parts of an archive. Each is also a directory that [`restore`] makes.
const MEMBERS: &str = "members";
const HALL: &str = "hall";
const CONFIG: &str = "config";
/// The directory that `$XDG_STATE_HOME` names, for the host that is started on what was restored.
const STATE: &str = "state";
/// The host's own directory in it.
const STATE_GUILD: &str = "state/guild";
/// The operator's policy.
const POLICY: &str = "guild.toml";
/// The operator's decisions, next to the policy.
const DECISIONS: [&str; 4] = ["guild.lock", "guild.trust", "guild.tokens", "guild.seal"];
/// The directories that the hall makes from the projects' repositories.
const CHECKOUTS: [&str; 2] = ["projects", "worktrees"];
/// The parts of the host's state that are kept: the audit log and the ledger of costs. The rest belongs to processes.
const KEPT_STATE: [&str; 2] = ["audit.jsonl", "spend"];
/// The directory of a member's jobs, and in each of them the file that makes it a job.
const JOBS: &str = "jobs";
/// The directory of a member's notes, and those of a cluster's host with its copies of the cluster's jobs and notes.
const NOTES: &str = "memory";
const COPIES: [&str; 2] = [".jobs", ".memory"];
const META: &str = "meta.json";
/// The form of the archives.
const VERSION: u32 = 1;

/// The description of an archive, for [`restore`] and for people.
#[derive(Serialize, Deserialize)]
struct About {
    /// [`VERSION`].
    version: u32,
    /// The version of guild that made it.
    guild: String,
    created: Timestamp,
    /// Where the directory of members was, unless the hall's home has it.
    members: Option<PathBuf>,
    /// Where the hall's home was.
    hall: Option<PathBuf>,
}

/// `guild backup`.
pub(crate) async fn backup(args: Backup) -> Result<(), Failure> {
    let Backup { file, hall: named, local } = args;
    let config = local::config(&local.policy)?;
    let hall = match local::hall_home(named.as_deref(), "--hall", &config) {
        Ok(home) if home.is_dir() => Some(home.canonicalize().map_err(unreadable(&home))?),
        Ok(home) if named.is_some() => {
            return Err(Failure::error(format!("the hall's home {} does not exist", home.display())));
        }
        _ => None,
    };
    let packages = hall.as_ref().map(|hall| hall.join(PACKAGES));
    let members = match local::members_directory(local.members.as_deref(), &config) {
        Ok(members) => Some(members.canonicalize().map_err(unreadable(&members))?),
        // The hall's home is worth a backup without members, too.
        Err(failure) if hall.is_none() || local.members.is_some() || config.members.is_some() => return Err(failure),
        Err(_) => None,
    };
    let members = members.filter(|members| Some(members) != packages.as_ref());
    let created = Timestamp::now();
    let about = About { version: VERSION, guild: env!("CARGO_PKG_VERSION").to_owned(), created, members, hall };

    let shared = match &config.cluster {
        Some(_) => Some(of_cluster(&config, &about).await?),
        None => None,
    };
    let name = file.display().to_string();
    let unwritten = |e: io::Error| Failure::error(format!("the backup {name} cannot be written: {e}"));
    if file == Path::new("-") {
        if io::stdout().is_terminal() {
            return Err(Failure::error("the backup is no text for a terminal; name a file, or redirect stdout"));
        }
        return write(&about, &config, shared.as_ref(), io::stdout().lock());
    }
    let mut new = fs::OpenOptions::new();
    let out = new.write(true).create_new(true).mode(0o600).open(&file).map_err(unwritten)?;
    let written = write(&about, &config, shared.as_ref(), &out).and_then(|()| out.sync_all().map_err(unwritten));
    if written.is_err() {
        let _ = fs::remove_file(&file);
    }
    written?;
    let places = [about.members.as_ref(), about.hall.as_ref(), config.directory.as_ref()];
    let places: Vec<_> = places.into_iter().flatten().map(|place| place.display().to_string()).collect();
    tell(format_args!(
        "{name} has {}; keep it private: it has all tasks and results, the hashes of tokens and the key that seals jobs",
        places.join(", ")
    ));
    Ok(())
}

fn unreadable(path: &Path) -> impl Fn(io::Error) -> Failure {
    let path = path.display().to_string();
    move |e| Failure::error(format!("{path} cannot be read: {e}"))
}

/// Writes the archive. The hall comes before the members: a commission that was read has its job, which is read later,
/// in whatever state.
fn write(about: &About, config: &Config, shared: Option<&TempDir>, out: impl io::Write) -> Result<(), Failure> {
    let mut archive = Archive::new(out, about.created);
    let json = serde_json::to_vec_pretty(about).map_err(|e| Failure::error(e.to_string()))?;
    archive.bytes(ABOUT, &json)?;
    // Without a file there is one that has no keys: the others are found next to it.
    let policy = config.file.as_ref().map(|file| fs::read(file).map_err(unreadable(file))).transpose()?;
    archive.bytes(Path::new(CONFIG).join(POLICY), &policy.unwrap_or_default())?;
    if let Some(directory) = &config.directory {
        archive.tree(directory, Path::new(CONFIG), |name| DECISIONS.contains(&name))?;
    }
    if let Some(hall) = &about.hall {
        archive.tree(hall, Path::new(HALL), |name| !CHECKOUTS.contains(&name) && name != PACKAGES)?;
        members(&mut archive, &hall.join(PACKAGES), &Path::new(HALL).join(PACKAGES), shared)?;
    }
    if let Some(directory) = &about.members {
        members(&mut archive, directory, Path::new(MEMBERS), shared)?;
    }
    if let Some(state) = directories::state() {
        archive.tree(&state, Path::new(STATE_GUILD), |name| KEPT_STATE.contains(&name))?;
    }
    for left_out in archive.finish()? {
        tell(format_args!("left out: {left_out}"));
    }
    Ok(())
}

/// The jobs and notes that all hosts of the cluster share, as directories of members.
async fn of_cluster(config: &Config, about: &About) -> Result<TempDir, Failure> {
    let (link, _) = cluster::connect(config, None, CLIENT).await?;
    let made = TempDir::with_prefix("guild-backup-");
    let dir = made.map_err(|e| Failure::error(format!("no temporary directory can be made: {e}")))?;
    let into = open_directory(dir.path()).and_then(|into| open_dir(&into, ".")).map_err(unreadable(dir.path()))?;
    let exported = Transfer::new(link, CLIENT).export(&into).await.map_err(|e| Failure::error(e.to_string()))?;
    let packages = about.hall.as_ref().map(|hall| hall.join(PACKAGES));
    let places: Vec<&PathBuf> = about.members.iter().chain(&packages).collect();
    for (member, Copied { jobs, notes }) in exported.members {
        if places.iter().any(|place| place.join(member.as_str()).is_dir()) {
            tell(format_args!("{member}: of the cluster: jobs {jobs}, notes {notes}"));
        } else {
            tell(format_args!("left out: {member}, which this host does not have: jobs {jobs}, notes {notes}"));
        }
    }
    for job in exported.unreadable {
        tell(format_args!("left out: {job}"));
    }
    Ok(dir)
}

fn members<W: io::Write>(
    archive: &mut Archive<W>,
    directory: &Path,
    at: &Path,
    shared: Option<&TempDir>,
) -> Result<(), Failure> {
    if !directory.is_dir() {
        return Ok(());
    }
    let root = open_directory(directory).map_err(unreadable(directory))?;
    archive.directory(at)?;
    for found in discover(&root).map_err(unreadable(directory))? {
        archive.member(&root, directory, Path::new(&found.path), at, shared.map(TempDir::path))?;
    }
    Ok(())
}

/// How to serve what was restored in a directory.
fn command(about: &About, directory: &Path) -> String {
    let part = |name: &str| shell_word(&directory.join(name));
    let members = about.members.as_ref().map(|_| format!(" --members {}", part(MEMBERS)));
    let hall = about.hall.as_ref().map(|_| format!(" --hall {}", part(HALL)));
    let options = [hall, members].into_iter().flatten().collect::<String>();
    let policy = shell_word(&directory.join(CONFIG).join(POLICY));
    format!("XDG_STATE_HOME={} guild serve --config {policy}{options}", part(STATE))
}
