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
    let (link, key) = connect(&config, args.credentials, CLIENT).await?;
    let logs = Logs::new(link.clone(), Owner::new(CLIENT), PATIENCE);
    let Swept { compacted, named, new, removed } = remove(&link, &logs, &key, OLD).await.map_err(failed)?;
    tell(format_args!("{compacted} logs of ended jobs were replaced by one message each"));
    tell(format_args!("{removed} blobs were removed; {named} are needed, and {new} are less than a day old"));
    Ok(())
}
