//! `guild restore`: unpacks the archive of a backup into a new directory.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Read, Write as _},
    os::unix::{ffi::OsStringExt as _, fs::DirBuilderExt as _},
    path::{Component, Path, PathBuf},
};

use cap_std::fs::{Dir, DirBuilder, DirBuilderExt as _, OpenOptions, OpenOptionsExt as _};
use flate2::read::GzDecoder;
use guild_config::Config;
use guild_contract::{
    JobId,
    manifest::{FILE_NAME, package},
};
use guild_fs::{durable::open_directory, tree};
use guild_trust::Approval;
use tar::EntryType;

use super::{ABOUT, About, CONFIG, HALL, JOBS, MEMBERS, META, POLICY, STATE, VERSION, command};
use crate::{
    args::operator::Restore,
    failure::Failure,
    output::{print, tell, tell_error},
};

/// The most bytes of a path.
const MAX_PATH_BYTES: u64 = 4096;
/// The most bytes of [`ABOUT`].
const MAX_ABOUT_BYTES: u64 = 64 * 1024;
/// The bytes that an entry counts besides its content.
const ENTRY_BYTES: u64 = 512;
/// The most bytes behind the last entry.
const MAX_REST_BYTES: u64 = 1024 * 1024;

/// `guild restore`.
pub(crate) fn restore(args: Restore) -> Result<(), Failure> {
    let Restore { file, directory, max_bytes } = args;
    let (from, to) = (file.display(), directory.display());
    let why = |e: io::Error| Failure::error(format!("{to} cannot be made: {e}"));
    if fs::read_dir(&directory).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Failure::error(format!("{to} is not empty; name a new directory")));
    }
    let name =
        directory.file_name().ok_or_else(|| Failure::error(format!("{to} has no name; name a new directory")))?;
    // All of it appears at once.
    let mut unfinished = directory.clone();
    unfinished.set_file_name([name, "-unfinished".as_ref()].join("".as_ref()));
    if let Some(parent) = directory.parent() {
        fs::create_dir_all(parent).map_err(why)?;
    }
    fs::DirBuilder::new().mode(0o700).create(&unfinished).map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => {
            Failure::error(format!("{} is left of a restore that was cut off; remove it", unfinished.display()))
        }
        _ => why(e),
    })?;
    let restored: Result<_, Failure> = (|| {
        let input: Box<dyn Read> = match file == Path::new("-") {
            true => Box::new(io::stdin().lock()),
            false => Box::new(fs::File::open(&file).map_err(|e| Failure::error(format!("{from}: {e}")))?),
        };
        let root = open_directory(&unfinished).map_err(why)?;
        let about = unpack(input, &root, max_bytes)
            .map_err(|e| Failure::error(format!("{from} is not restored, and {to} is not made: {e}")))?;
        rustix::fs::sync();
        fs::rename(&unfinished, &directory).map_err(why)?;
        Ok(about)
    })();
    let about = restored.inspect_err(|_| {
        let _ = fs::remove_dir_all(&unfinished);
    })?;
    let directory = directory.canonicalize().map_err(why)?;
    if let Some(members) = &about.members {
        move_pins(members, &directory);
    }
    tell(format_args!("{to} has what was there at {:.0}; this serves it:", about.created));
    print(|out| writeln!(out, "{}", command(&about, &directory)))?;
    let policy = directory.join(CONFIG).join(POLICY);
    if Config::load(Some(&policy)).is_ok_and(|config| config.cluster.is_some()) {
        tell(format_args!(
            "{} has [cluster]: a host without that table serves the restored jobs, and `guild cluster import` puts them into \
             a cluster",
            policy.display()
        ));
    }
    Ok(())
}

/// Pins the members where they are now, unless they are also still where they were.
fn move_pins(members: &Path, directory: &Path) {
    let policy = directory.join(CONFIG).join(POLICY);
    let moved = Config::load(Some(&policy))
        .map_err(|e| e.to_string())
        .and_then(|config| Approval::new(&config).moved(members, &directory.join(MEMBERS)).map_err(|e| e.to_string()));
    if let Err(why) = moved {
        tell_error(format_args!("the members are new to the host that serves them: {why}"));
    }
}

/// The reason that an archive is not restored.
#[derive(Debug, thiserror::Error)]
enum RestoreError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it is no backup that guild made: {0}")]
    NoBackup(String),
    #[error("it is a backup of the form {0}, which is newer than this guild; restore it with a newer one")]
    Newer(u32),
    #[error("it has more than {0} bytes; name a larger number with --max-bytes if you trust it")]
    TooLarge(u64),
}

fn no_backup(why: impl ToString) -> RestoreError {
    RestoreError::NoBackup(why.to_string())
}

/// Unpacks files and directories below the known parts. Nothing is followed, and nothing replaced.
fn unpack(input: impl Read, root: &Dir, max_bytes: u64) -> Result<About, RestoreError> {
    let mut archive = tar::Archive::new(GzDecoder::new(input));
    let (mut about, mut long_path, mut bytes) = (None, None, 0_u64);
    let (mut jobs, mut with_record) = (BTreeSet::new(), BTreeSet::new());
    // Raw: the library would read a long path whole, however long it is.
    for entry in archive.entries().map_err(no_backup)?.raw(true) {
        let mut entry = entry.map_err(no_backup)?;
        let size = entry.size();
        bytes = bytes.saturating_add(size).saturating_add(ENTRY_BYTES);
        if bytes > max_bytes {
            return Err(RestoreError::TooLarge(max_bytes));
        }
        let kind = entry.header().entry_type();
        if kind == EntryType::GNULongName {
            if size > MAX_PATH_BYTES {
                return Err(no_backup("a path is too long"));
            }
            let mut name = Vec::new();
            entry.read_to_end(&mut name)?;
            name.truncate(name.iter().position(|byte| *byte == 0).unwrap_or(name.len()));
            long_path = Some(PathBuf::from(std::ffi::OsString::from_vec(name)));
            continue;
        }
        let path = match long_path.take() {
            Some(path) => path,
            None => entry.path()?.into_owned(),
        };
        let Some(known) = &about else {
            if path != Path::new(ABOUT) || size > MAX_ABOUT_BYTES {
                return Err(no_backup(format!("it does not begin with {ABOUT}")));
            }
            let read: About = serde_json::from_reader(&mut entry).map_err(no_backup)?;
            if read.version > VERSION {
                return Err(RestoreError::Newer(read.version));
            }
            about = Some(read);
            continue;
        };
        check_path(&path, known)?;
        if let Some(job) = job_of(&path) {
            if path == job.join(META) {
                with_record.insert(job.to_owned());
            }
            jobs.insert(job.to_owned());
        }
        let mut directory = DirBuilder::new();
        directory.mode(0o700).recursive(true);
        match kind {
            EntryType::Directory => root.create_dir_with(&path, &directory)?,
            EntryType::Regular => {
                if let Some(parent) = path.parent() {
                    root.create_dir_with(parent, &directory)?;
                }
                let mode = 0o600 | entry.header().mode()? & 0o100;
                let mut file = root
                    .open_with(&path, OpenOptions::new().write(true).create_new(true).mode(mode))
                    .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
                io::copy(&mut entry, &mut file)?;
                file.flush()?;
            }
            _ => return Err(no_backup(format!("{} is neither a file nor a directory", path.display()))),
        }
    }
    // The checksum at the end shows that the archive is complete.
    let mut rest = archive.into_inner().take(MAX_REST_BYTES);
    if io::copy(&mut rest, &mut io::sink()).map_err(no_backup)? == MAX_REST_BYTES {
        return Err(no_backup("it goes on behind its end"));
    }
    let about = about.ok_or_else(|| no_backup("it is empty"))?;
    // These jobs were deleted while they were read.
    for job in jobs.difference(&with_record).filter(|job| is_of_member(root, job)) {
        if let (Some(parent), Some(name)) = (job.parent(), job.file_name().and_then(|name| name.to_str())) {
            tree::remove(&root.open_dir(parent)?, name)?;
        }
    }
    Ok(about)
}

/// Refuses a path that leads out of the parts of an archive.
fn check_path(path: &Path, about: &About) -> Result<(), RestoreError> {
    let mut parts = path.components();
    let first = parts.next();
    let is_known = [(CONFIG, true), (STATE, true), (HALL, about.hall.is_some()), (MEMBERS, about.members.is_some())]
        .into_iter()
        .any(|(part, is_there)| is_there && first == Some(Component::Normal(part.as_ref())));
    if !is_known || !parts.all(|part| matches!(part, Component::Normal(_))) {
        return Err(no_backup(format!("{} is not a path of a backup", path.display())));
    }
    Ok(())
}

/// Whether the directory of a job is in that of a member, and not among the files of one.
fn is_of_member(root: &Dir, job: &Path) -> bool {
    let is_member = |dir: &Path| [FILE_NAME, package::FILE_NAME].iter().any(|name| root.is_file(dir.join(name)));
    let Some(member) = job.parent().and_then(Path::parent) else { return false };
    let is_id = job.file_name().and_then(|id| id.to_str()).is_some_and(|id| id.parse::<JobId>().is_ok());
    is_id && root.is_dir(job) && is_member(member) && !member.parent().is_some_and(is_member)
}

/// The directory of the job that a path is in: `ID` in the first `jobs` of a member, which is at most three directories
/// below the members.
fn job_of(path: &Path) -> Option<&Path> {
    let members = [Path::new(MEMBERS), Path::new("hall/packages")];
    let below = members.iter().find_map(|members| path.strip_prefix(members).ok())?;
    let depth = below.iter().position(|part| part == JOBS).filter(|depth| (1..=2).contains(depth))?;
    let all = path.iter().count() - below.iter().count() + depth + 2;
    path.ancestors().find(|part| part.iter().count() == all)
}
