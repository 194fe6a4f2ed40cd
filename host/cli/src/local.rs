//! Where the operator's policy and the members are.

use std::path::{Path, PathBuf};

use cap_std::fs::Dir;
use clap::Args;
use guild_config::{Config, shell_word};
use guild_contract::{
    MemberKey,
    manifest::{FILE_NAME, WORKER},
};
use guild_roster::{
    discovery::{Found, FoundMember, MEMBERS, discover, single},
    open_directory,
};
use guild_trust::Approval;

use crate::failure::Failure;

/// Where the operator's policy is found.
#[derive(Clone, Debug, Args)]
pub(crate) struct PolicyArgs {
    /// The operator's guild.toml [default: $GUILD_CONFIG, else guild/guild.toml in the user's configuration directory]
    // A list, so that `guild run` still understands `--config JSON --config-file FILE`. `local::config` accepts one.
    #[arg(long, value_name = "FILE", alias = "config-file")]
    pub(crate) config: Vec<PathBuf>,
}

/// Where members and the operator's policy are found.
#[derive(Clone, Debug, Args)]
pub(crate) struct LocalArgs {
    /// The directory of members [default: `members` of guild.toml, else ./guild-members]
    #[arg(long, value_name = "DIR")]
    pub(crate) members: Option<PathBuf>,
    /// Where the operator's policy is
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
}

/// The operator's `guild.toml`.
pub(crate) fn config(policy: &PolicyArgs) -> Result<Config, Failure> {
    Config::load(policy_file(policy)?).map_err(|e| Failure::error(e.to_string()))
}

/// The file that `--config` names.
pub(crate) fn policy_file(policy: &PolicyArgs) -> Result<Option<&Path>, Failure> {
    match policy.config.as_slice() {
        [] => Ok(None),
        [file] => Ok(Some(file)),
        [one, other, ..] => {
            let (one, other) = (one.display(), other.display());
            Err(Failure::error(format!("--config names both {one} and {other}; name one guild.toml")))
        }
    }
}

/// The directory of members: the option's, else `guild.toml`'s, else `guild-members` where that exists.
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

/// The directory of one member. A name without `/` is a key where the option names the directory of members. Else what
/// is written is a directory, or a key; where it is both, of two members, nobody guesses which.
pub(crate) fn member_directory(member: &str, local: &LocalArgs, config: &Config) -> Result<PathBuf, Failure> {
    let members = match local.members.as_deref() {
        Some(named) => Some(members_directory(Some(named), config)?),
        None => members_directory(None, config).ok(),
    };
    let is_name = !member.contains('/') && !matches!(member, "." | "..");
    let itself = (local.members.is_none() || !is_name).then(|| PathBuf::from(member));
    let is_key = member.parse::<MemberKey>().is_ok();
    let by_key = members.as_ref().filter(|_| is_key).map(|members| members.join(member));

    let has_manifest = |directory: &PathBuf| directory.join(FILE_NAME).is_file();
    match (itself.clone().filter(has_manifest), by_key.clone().filter(has_manifest)) {
        (Some(itself), Some(by_key)) if !same(&itself, &by_key) => Err(Failure::error(format!(
            "{member:?} is both the directory ./{member} and the key of {}; write ./{member} or {}",
            by_key.display(),
            by_key.display()
        ))),
        (Some(found), _) | (None, Some(found)) => Ok(found),
        (None, None) => {
            let looked: Vec<_> = [itself, by_key].iter().flatten().map(|place| place.display().to_string()).collect();
            let looked = match looked.as_slice() {
                [] => "that can be no key".to_owned(),
                looked => format!("there is no {FILE_NAME} in {}", looked.join(" nor in ")),
            };
            let named = members.map_or_else(|| "DIR".to_owned(), |members| shell_word(&members));
            Err(Failure::error(format!(
                "no member {member:?}: {looked}; `guild members --members {named}` shows the keys, and a directory is \
                 written with a `/`, as ./NAME"
            )))
        }
    }
}

/// The member that a directory is, with its key.
pub(crate) fn member(directory: &Path, local: &LocalArgs, config: &Config) -> Result<FoundMember, String> {
    let members = members_directory(local.members.as_deref(), config).ok();
    single(directory, members.as_deref(), config)
}

/// Checks that work can be dispatched to the member that a directory is, as far as its manifest says. What else is wrong with
/// it is told by the host that opens it.
pub(crate) fn worker(directory: &Path, local: &LocalArgs, config: &Config) -> Result<(), Failure> {
    let Ok(FoundMember { key, manifest, .. }) = member(directory, local, config) else { return Ok(()) };
    let Some(component) = manifest.component.as_ref().filter(|_| !manifest.is_worker()) else { return Ok(()) };
    Err(Failure::error(match component.world.exports_dispatch() {
        true => format!(
            "member {key} takes no work: `capabilities` in its {FILE_NAME} does not name `{WORKER}`; add it, or dispatch to another"
        ),
        false => format!(
            "member {key} is a toolbox and has no worker that could carry a task out; `guild call {key} TOOL` calls one of its tools"
        ),
    }))
}

/// A failure with the command that approves the member in a directory, or a toolbox of it, where it fails for want of that.
/// Who serves it says that an approval is missing, and not the command, since that names directories.
pub(crate) fn with_approval(failure: Failure, directory: &Path, local: &LocalArgs, config: &Config) -> Failure {
    let Some(message) = failure.message.as_deref().filter(|message| message.contains("`guild approve`")) else {
        return failure;
    };
    let approval = Approval::new(config);
    let command = |FoundMember { key, dir, manifest, .. }: &FoundMember| {
        let standing = approval.look(key, dir, manifest.component.as_ref()?, config.limits.component_bytes).ok()?;
        Some(approval.check(&standing).err()?.command()?.to_owned())
    };
    let found = || {
        let own = member(directory, local, config).ok()?;
        let members = || members_directory(local.members.as_deref(), config).ok();
        let toolboxes = || own.manifest.component.iter().flat_map(|spec| &spec.toolboxes);
        let of_toolbox = |key: &MemberKey| command(&member(&members()?.join(key.as_str()), local, config).ok()?);
        command(&own).or_else(|| toolboxes().find_map(of_toolbox))
    };
    match found() {
        Some(command) => Failure { message: Some(format!("{message}; the command is `{command}`")), ..failure },
        None => failure,
    }
}

/// Whether two paths lead to one directory.
fn same(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// What is in the directory of members.
pub(crate) fn discovered(directory: &Path) -> Result<Vec<Found>, Failure> {
    open(directory)
        .and_then(|dir| discover(&dir).map_err(|e| Failure::error(format!("cannot read {}: {e}", directory.display()))))
}

/// Opens a directory that the person named.
pub(crate) fn open(directory: &Path) -> Result<Dir, Failure> {
    open_directory(directory).map_err(|e| Failure::error(format!("cannot open {}: {e}", directory.display())))
}
