//! Locates the operator's policy and the members.

use std::path::{Path, PathBuf};

use cap_std::fs::Dir;
use clap::Args;
use guild_config::{Config, shell_word};
use guild_contract::{
    MemberKey,
    manifest::{FILE_NAME, WORKER, package},
};
use guild_fs::durable::open_directory;
use guild_roster::discovery::{Found, FoundMember, MEMBERS, discover, single};
use guild_trust::{Approval, is_member_at};

use crate::failure::Failure;

/// The location of the operator's policy.
#[derive(Clone, Debug, Args)]
pub(crate) struct PolicyArgs {
    /// The operator's guild.toml [default: $GUILD_CONFIG, else guild/guild.toml in the user's configuration directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// The location of the members and of the operator's policy.
#[derive(Clone, Debug, Args)]
pub(crate) struct LocalArgs {
    /// The directory of members [default: `members` of guild.toml, else ./guild-members]
    #[arg(long, value_name = "DIR")]
    pub(crate) members: Option<PathBuf>,
    /// The location of the operator's policy
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
}

/// The operator's `guild.toml`.
pub(crate) fn config(policy: &PolicyArgs) -> Result<Config, Failure> {
    Config::load(policy.config.as_deref()).map_err(|e| Failure::error(e.to_string()))
}

/// The home of the hall: see [`Config::hall_home`]. `option` is the option that names it.
pub(crate) fn hall_home(named: Option<&Path>, option: &str, config: &Config) -> Result<PathBuf, Failure> {
    let why = || Failure::error(format!("the user has no home directory; name the hall's with {option} HOME"));
    config.hall_home(named).ok_or_else(why)
}

/// The directory of members: from the option, else from `guild.toml`, else `guild-members` if that exists.
pub(crate) fn members_directory(option: Option<&Path>, config: &Config) -> Result<PathBuf, Failure> {
    let named = option.or(config.members.as_deref());
    let directory = named.unwrap_or(Path::new(MEMBERS));
    if directory.is_dir() {
        return Ok(directory.to_owned());
    }
    Err(Failure::error(match named {
        Some(named) => format!("the directory of members {} does not exist", named.display()),
        None => format!(
            "there is no ./{MEMBERS} here; name the directory of members with --members DIR, or `members` in guild.toml"
        ),
    }))
}

/// The directory of members for a host with a hall: by default the hall's own.
pub(crate) fn members_of_hall(option: Option<&Path>, hall: Option<&Path>, config: &Config) -> Option<PathBuf> {
    let packages = || hall.filter(|_| config.members.is_none()).map(|hall| hall.join(guild_hall::PACKAGES));
    option.map(Path::to_owned).or_else(packages)
}

/// The directory of one member. A name without `/` is a key if the option names the directory of members. Otherwise it
/// is a directory or a key; if both exist and are different members, that is an error.
pub(crate) fn member_directory(member: &str, local: &LocalArgs, config: &Config) -> Result<PathBuf, Failure> {
    let members = match local.members.as_deref() {
        Some(named) => Some(members_directory(Some(named), config)?),
        None => members_directory(None, config).ok(),
    };
    let is_name = !member.contains('/') && !matches!(member, "." | "..");
    let itself = (local.members.is_none() || !is_name).then(|| PathBuf::from(member));
    let is_key = member.parse::<MemberKey>().is_ok();
    let by_key = members.as_ref().filter(|_| is_key).map(|members| members.join(member));

    let has_manifest = |directory: &PathBuf| is_member_at(directory);
    match (itself.clone().filter(has_manifest), by_key.clone().filter(has_manifest)) {
        (Some(itself), Some(by_key)) if !is_same(&itself, &by_key) => Err(Failure::error(format!(
            "{member:?} is both the directory ./{member} and the key of {}; write ./{member} or {}",
            by_key.display(),
            by_key.display()
        ))),
        (Some(found), _) | (None, Some(found)) => Ok(found),
        (None, None) => {
            let looked: Vec<_> = [itself, by_key].iter().flatten().map(|place| place.display().to_string()).collect();
            let looked = match looked.as_slice() {
                [] => "the name is not a valid key".to_owned(),
                looked => format!(
                    "there is no {FILE_NAME}, nor a {} with \"guildHall\", in {}",
                    package::FILE_NAME,
                    looked.join(" nor in ")
                ),
            };
            let named = members.map_or_else(|| "DIR".to_owned(), |members| shell_word(&members));
            Err(Failure::error(format!(
                "no member {member:?}: {looked}; `guild members --members {named}` shows the keys, and a directory is \
                 written with a `/`, as ./NAME"
            )))
        }
    }
}

/// The member in a directory, with its key.
pub(crate) fn member(directory: &Path, local: &LocalArgs, config: &Config) -> Result<FoundMember, String> {
    let members = members_directory(local.members.as_deref(), config).ok();
    single(directory, members.as_deref(), config)
}

/// Checks that the manifest of the member in a directory allows dispatches. Other problems are reported by the host
/// that opens it.
pub(crate) fn check_worker(directory: &Path, local: &LocalArgs, config: &Config) -> Result<(), Failure> {
    let Ok(FoundMember { key, manifest, .. }) = member(directory, local, config) else { return Ok(()) };
    let Some(component) = manifest.component.as_ref().filter(|_| !manifest.is_worker()) else { return Ok(()) };
    Err(Failure::error(match component.world.exports_dispatch() {
        true => format!(
            "member {key} takes no work: `capabilities` in its manifest does not name `{WORKER}`; add it, or dispatch to another member"
        ),
        false => format!(
            "member {key} is a toolbox and has no worker to carry out a task; `guild call {key} TOOL` calls one of its tools"
        ),
    }))
}

/// Adds the command that approves the member in a directory, or one of its toolboxes, to a failure while that awaits an
/// approval. The host only says that an approval is missing: the command has paths, which are not for every client.
pub(crate) fn with_approval(failure: Failure, directory: &Path, local: &LocalArgs, config: &Config) -> Failure {
    let Some(message) = &failure.message else { return failure };
    let approval = Approval::new(config);
    let command = |FoundMember { key, dir, manifest, .. }: &FoundMember| {
        let (_, standing) =
            approval.look(key, dir, manifest.component.as_ref()?, config.limits.component_bytes).ok()?;
        Some(format!("{key} awaits an approval: `{}`", approval.check(&standing).err()?.command()?))
    };
    let found = || {
        let own = member(directory, local, config).ok()?;
        let members = || members_directory(local.members.as_deref(), config).ok();
        let toolboxes = || own.manifest.component.iter().flat_map(|spec| &spec.toolboxes);
        let of_toolbox = |key: &MemberKey| command(&member(&members()?.join(key.as_str()), local, config).ok()?);
        command(&own).or_else(|| toolboxes().find_map(of_toolbox))
    };
    match found() {
        Some(awaits) => Failure { message: Some(format!("{message}; {awaits}")), ..failure },
        None => failure,
    }
}

/// Whether two paths lead to the same directory.
fn is_same(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// Lists the members in a directory.
pub(crate) fn discovered(directory: &Path) -> Result<Vec<Found>, Failure> {
    open(directory)
        .and_then(|dir| discover(&dir).map_err(|e| Failure::error(format!("cannot read {}: {e}", directory.display()))))
}

/// The member that a command names, or else all in the directory of members. The path of a named member is its name on
/// the command line. A member whose manifest cannot be read has the error in its place.
pub(crate) fn one_or_all(named: Option<&str>, local: &LocalArgs, config: &Config) -> Result<Vec<Found>, Failure> {
    let Some(name) = named else { return discovered(&members_directory(local.members.as_deref(), config)?) };
    let directory = member_directory(name, local, config)?;
    Ok(vec![Found { path: name.to_owned(), member: member(&directory, local, config) }])
}

/// Opens a directory that the user named.
pub(crate) fn open(directory: &Path) -> Result<Dir, Failure> {
    open_directory(directory).map_err(|e| Failure::error(format!("cannot open {}: {e}", directory.display())))
}
