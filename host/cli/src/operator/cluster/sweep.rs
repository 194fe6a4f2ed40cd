//! `guild cluster sweep`: removes from the NATS servers what nobody needs any more.

use guild_cluster::{
    log::Logs,
    record::Owner,
    sweep::{OLD, Swept, sweep as remove},
};

use super::{PATIENCE, connect, failed};
use crate::{args::operator::ClusterSweep, failure::Failure, local, output::tell};

/// The name of this command at the NATS servers.
const CLIENT: &str = "guild-cluster-sweep";

/// `guild cluster sweep`.
pub(super) async fn sweep(args: ClusterSweep) -> Result<(), Failure> {
    let config = local::config(&args.policy)?;
    let (link, key) = connect(&config, args.administrator.credentials, CLIENT).await?;
    let logs = Logs::new(link.clone(), Owner::new(CLIENT), PATIENCE);
    let Swept { compacted, named, new, removed } = remove(&link, &logs, &key, OLD).await.map_err(failed)?;
    tell(format_args!("logs of ended jobs that were replaced by one message: {compacted}"));
    tell(format_args!("blobs removed: {removed}; needed: {named}; less than a day old: {new}"));
    Ok(())
}
