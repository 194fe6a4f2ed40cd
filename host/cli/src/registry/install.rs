//! `guild install`: pulls a member from a registry, shows it for review, pins it, and puts it in place in one step.

use guild_contract::MemberKey;
use guild_registry::{Reference, Unpacked};
use guild_roster::discovery::single;
use guild_trust::{Approval, Source, by_user, is_member_at};

use super::review::Review;
use crate::{
    args::registry::Install,
    failure::Failure,
    local,
    members::approve::check_loads,
    output::{harmless, tell},
};

/// `guild install`.
pub(crate) async fn install(args: Install) -> Result<(), Failure> {
    let config = local::config(&args.local.policy)?;
    let members = local::members_directory(args.local.members.as_deref(), &config)?;
    let members = members.canonicalize().map_err(|e| Failure::error(format!("{}: {e}", members.display())))?;
    let key = args.name.map_or_else(|| args.reference.name().parse::<MemberKey>(), Ok);
    let key = key.map_err(|why| Failure::error(format!("{why}; name one with --name KEY")))?;
    let directory = members.join(key.as_str());
    let shown = harmless(&directory.display().to_string()).into_owned();
    if directory.symlink_metadata().is_ok() {
        return Err(Failure::error(format!(
            "{shown} is already there; `guild upgrade {key}` upgrades a member, and --name KEY installs under another key"
        )));
    }
    if key.as_str().split_once('/').is_some_and(|(group, _)| is_member_at(&members.join(group))) {
        return Err(Failure::error(format!(
            "{key} would be inside of another member; name another key with --name KEY"
        )));
    }
    let (reference, pulled) = super::pull(args.reference, &config.limits).await?;
    let source = source(&reference, pulled.digest);
    let failed = |e| Failure::error(format!("{shown} cannot be made, and nothing was installed: {e}"));
    let unpacked = Unpacked::create(&members, key.as_str(), &pulled.files).map_err(failed)?;
    let approval = Approval::new(&config);
    let review = Review {
        config: &config,
        approval: &approval,
        unpacked: &unpacked,
        members: &members,
        directory: &directory,
        source: &source,
        verbs: ["Install", "installed"],
        yes: args.yes,
    };
    let standing = review.confirmed()?;
    // A host loads the member as soon as it is in place, so its pin comes first.
    approval.approve(&standing, Some(source), by_user())?;
    if let Err(e) = unpacked.place() {
        // The pin of a directory that is not there admits nothing else.
        let _ = approval.forget(&standing.directory);
        return Err(failed(e));
    }
    tell(format_args!("installed {reference} as {key} in {shown}"));
    let found = single(&directory, Some(&members), &config).map_err(Failure::error)?;
    check_loads(found, &config, key.as_str())
}

/// The artifact for `guild.lock`.
pub(super) fn source(reference: &Reference, digest: String) -> Source {
    Source { reference: Reference { digest: None, ..reference.clone() }.to_string(), digest }
}
