//! The arguments of the commands for registries.

use std::path::PathBuf;

use clap::{Args, builder::NonEmptyStringValueParser};
use clap_complete::ArgValueCompleter;
use guild_contract::MemberKey;
use guild_registry::Reference;

use crate::{
    complete,
    local::{LocalArgs, PolicyArgs},
};

/// `guild pack`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild pack -o researcher.tar
  guild pack ./researcher -o researcher.tar

The file is an image layout of OCI as a tar archive, with the member's component, manifest, posture, signature and \
bill of materials (sbom.cdx.json, sbom.spdx.json), as far as they are there. It has no times: the same files make the \
same bytes. The digest of the artifact goes to stdout; `guild push` gives it the same one.")]
pub(crate) struct Pack {
    /// The member's directory
    #[arg(value_name = "DIR", default_value = ".")]
    pub(crate) directory: PathBuf,
    /// The file to write; an existing one is replaced
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// The location of the operator's policy
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
}

/// `guild push`.
#[derive(Debug, Args)]
#[command(
    allow_missing_positional = true,
    after_help = "\
Examples:
  guild push registry.example/guild/researcher
  guild push ./researcher registry.example/guild/researcher:1.0.0

A reference without a tag gets the version of the manifest as its tag. The reference with its digest goes to stdout. \
Credentials are those of docker: `docker login registry.example`, or a config.json in $DOCKER_CONFIG. A registry on \
this machine is asked without TLS."
)]
pub(crate) struct Push {
    /// The member's directory
    #[arg(value_name = "DIR", default_value = ".")]
    pub(crate) directory: PathBuf,
    /// The place in a registry: REGISTRY/NAME, or REGISTRY/NAME:TAG
    #[arg(value_name = "REF", required = true, value_parser = reference)]
    pub(crate) reference: Reference,
    /// The location of the operator's policy
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
}

/// `guild pull`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild pull registry.example/guild/researcher:1.0.0
  guild pull registry.example/guild/researcher -o ./review && guild audit ./review

Without a tag and a digest, the newest version is pulled. The command neither runs nor approves anything; `guild \
install` does both steps. The reference with its digest goes to stdout.")]
pub(crate) struct Pull {
    /// The artifact: REGISTRY/NAME, REGISTRY/NAME:TAG, or REGISTRY/NAME@sha256:DIGEST
    #[arg(value_name = "REF", value_parser = reference)]
    pub(crate) reference: Reference,
    /// A directory that does not exist [default: ./NAME]
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// The location of the operator's policy
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
}

/// `guild install`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild install registry.example/guild/researcher
  guild install registry.example/guild/researcher:1.0.0 --members ./guild-members
  guild install registry.example/guild/researcher@sha256:DIGEST --yes

The command pulls the member and checks its digest and its signature. It then shows what `guild audit` says of it, and \
asks. After a yes, guild.lock pins the member with its reference and digest, and the member is put in place, all at \
once. A host that serves the directory of members loads it then. Hosts never ask a registry themselves.")]
pub(crate) struct Install {
    /// The artifact: REGISTRY/NAME for the newest version, REGISTRY/NAME:TAG, or REGISTRY/NAME@sha256:DIGEST
    #[arg(value_name = "REF", value_parser = reference)]
    pub(crate) reference: Reference,
    /// The member's key in the directory of members [default: the last part of NAME]
    #[arg(long, value_name = "KEY")]
    pub(crate) name: Option<MemberKey>,
    /// Install without asking
    #[arg(long)]
    pub(crate) yes: bool,
    /// The location of the members and of the operator's policy
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// `guild upgrade`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild upgrade researcher
  guild upgrade --all --yes

The command asks the registry that the member was installed from for a newer version. It shows what would change, as \
`guild approve` does, and asks. Jobs and memories stay, and so does a posture that may change (`posture = \"free\"`). \
`guild members --outdated` lists newer versions without installing any.")]
pub(crate) struct Upgrade {
    /// The member: its directory, or its key in the members' directory
    #[arg(required_unless_present = "all", value_parser = NonEmptyStringValueParser::new(), add = ArgValueCompleter::new(complete::member_or_directory))]
    pub(crate) member: Option<String>,
    /// Upgrade every member that was installed from a registry
    #[arg(long, conflicts_with = "member")]
    pub(crate) all: bool,
    /// Upgrade without asking
    #[arg(long)]
    pub(crate) yes: bool,
    /// The location of the members and of the operator's policy
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

fn reference(text: &str) -> Result<Reference, String> {
    text.parse().map_err(|e: guild_registry::RegistryError| e.to_string())
}
