//! `guild pack`, `guild push` and `guild pull`: turn a member's directory into an artifact, and back.

use std::path::{Path, PathBuf};

use guild_fs::durable::{Survives, open_dir, open_directory, replace};
use guild_registry::{Artifact, MemberFiles, Reference, Registry, RegistryError, Unpacked};

use crate::{
    args::registry::{Pack, Pull, Push},
    failure::Failure,
    local::{self, PolicyArgs},
    output::{harmless, print, progress::Progress, tell},
};

/// `guild pack`.
pub(crate) fn pack(args: &Pack) -> Result<(), Failure> {
    let artifact = artifact(&args.directory, &args.policy)?;
    let mut bytes = Vec::new();
    let (directory, name) = parent_and_name(&args.output)?;
    let failed = |e| Failure::error(format!("{} cannot be written: {e}", args.output.display()));
    artifact.pack(&mut bytes).map_err(failed)?;
    let directory = open_directory(&directory).and_then(|directory| open_dir(&directory, ".")).map_err(failed)?;
    replace(&directory, &name, &bytes, Survives::PowerCut).map_err(failed)?;
    Ok(print(|out| writeln!(out, "{}", artifact.digest))?)
}

/// `guild push`.
pub(crate) async fn push(args: Push) -> Result<(), Failure> {
    let artifact = artifact(&args.directory, &args.policy)?;
    let requested = &args.reference;
    if requested.digest.is_some() {
        return Err(Failure::error(format!("{requested} has a digest, which follows from the files; leave it out")));
    }
    let version = &artifact.version;
    let reference = match requested.tag {
        Some(_) => requested.clone(),
        None => format!("{requested}:{version}").parse().map_err(|_: RegistryError| {
            Failure::error(format!("the version {version:?} of the manifest is no tag; name one: {requested}:TAG"))
        })?,
    };
    let progress = Progress::start();
    progress.waiting(&format!("pushing {reference}"));
    Registry::of(&reference)?.push(&reference, &artifact).await?;
    drop(progress);
    let pushed = Reference { digest: Some(artifact.digest), ..reference };
    Ok(print(|out| writeln!(out, "{pushed}"))?)
}

/// `guild pull`.
pub(crate) async fn pull(args: Pull) -> Result<(), Failure> {
    let config = local::config(&args.policy)?;
    let output = args.output.unwrap_or_else(|| PathBuf::from(args.reference.name()));
    let (parent, name) = parent_and_name(&output)?;
    let shown = output.display();
    if output.symlink_metadata().is_ok() {
        return Err(Failure::error(format!("{shown} is already there; name a new directory with -o DIR")));
    }
    let (reference, pulled) = super::pull(args.reference, &config.limits).await?;
    let failed = |e| Failure::error(format!("{shown} cannot be made: {e}"));
    Unpacked::create(&parent, &name, &pulled.files).and_then(Unpacked::place).map_err(failed)?;
    tell(format_args!(
        "{} has the member, which no one has approved: `guild audit {}` says what it can do",
        harmless(&shown.to_string()),
        guild_config::shell_word(&output)
    ));
    Ok(print(|out| writeln!(out, "{reference}"))?)
}

/// The artifact of a member's directory.
fn artifact(directory: &Path, policy: &PolicyArgs) -> Result<Artifact, Failure> {
    let limits = local::config(policy)?.limits;
    let named = |why: RegistryError| Failure::error(format!("{}: {why}", directory.display()));
    let files = MemberFiles::read(&local::open(directory)?, &limits).map_err(named)?;
    Ok(Artifact::of_member(&files)?)
}

/// The parent directory and the name of a new file or directory.
fn parent_and_name(path: &Path) -> Result<(PathBuf, String), Failure> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| Failure::error(format!("{} is not the name of a new file", path.display())))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok((parent.to_owned(), name.to_owned()))
}
