//! `guild cluster publish` and `guild cluster withdraw`: gives a member to all hosts of the cluster, and takes it back.

use std::{collections::BTreeMap, path::PathBuf};

use bytes::Bytes;
use guild_cluster::{buckets::members::Members, error::StoreError};
use guild_config::Config;
use guild_registry::MemberFiles;
use guild_roster::discovery::granted::Granted;
use guild_trust::Approval;

use super::{connect, failed};
use crate::{
    args::operator::{ClusterPublish, ClusterWithdraw},
    failure::Failure,
    local,
    output::tell,
};

/// The name of these commands at the NATS servers.
const CLIENT: &str = "guild-cluster-publish";

/// `guild cluster publish`.
pub(super) async fn publish(args: ClusterPublish) -> Result<(), Failure> {
    let config = local::config(&args.local.policy)?;
    let directory = local::member_directory(&args.member, &args.local, &config)?;
    let found = local::member(&directory, &args.local, &config).map_err(Failure::error)?;
    let key = found.key.clone();
    let files = MemberFiles::read(&found.dir, &config.limits).map_err(|e| Failure::error(format!("{key}: {e}")))?;
    let none = || Failure::error(format!("{key} has no `component`"));
    let spec = found.manifest.component.as_ref().ok_or_else(none)?;
    let approval = Approval::new(&config);
    let max = Granted::of(&found, spec, &config, &approval).map_err(Failure::error)?.limits.limits.component_bytes;
    let (_, standing) = approval.look(&key, &found.dir, spec, max)?;
    approval.check(&standing)?;
    let named = |(_, name, bytes): (_, String, &[u8])| (name, Bytes::copy_from_slice(bytes));
    let files: BTreeMap<String, Bytes> = files.files().map(named).collect();
    let (count, bytes) = (files.len(), files.values().map(Bytes::len).sum::<usize>());
    let members = members(&config, args.administrator.credentials).await?;
    members.publish(&key, files).await.map_err(unpublished)?;
    tell(format_args!("published {key}: {count} files, {bytes} bytes; each host puts it in place now"));
    Ok(())
}

/// `guild cluster withdraw`.
pub(super) async fn withdraw(args: ClusterWithdraw) -> Result<(), Failure> {
    let config = local::config(&args.policy)?;
    let members = members(&config, args.administrator.credentials).await?;
    let withdrawn = members.withdraw(&args.member).await.map_err(unpublished)?;
    if withdrawn.is_none() {
        return Err(Failure::error(format!("{} is not published", args.member)));
    }
    tell(format_args!("withdrew {}: each host removes the files that were published", args.member));
    Ok(())
}

/// The error of a publication.
fn unpublished(error: StoreError) -> Failure {
    match error {
        StoreError::Denied(why) => Failure::error(format!(
            "NATS denies this host: {why}; members are published with the administrator's credentials, which `guild cluster \
             init` wrote to admin/nats.nk: name them with --credentials"
        )),
        other => failed(other),
    }
}

/// The published members of the cluster of a configuration.
async fn members(config: &Config, credentials: Option<PathBuf>) -> Result<Members, Failure> {
    let (link, key) = connect(config, credentials, CLIENT).await?;
    Ok(Members::new(link, key))
}
