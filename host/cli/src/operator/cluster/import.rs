//! `guild cluster import`: puts jobs and notes of members on this machine into the cluster.

use guild_cluster::transfer::{Copied, Transfer};
use guild_fs::durable::{open_dir, open_directory};
use guild_jobs::Owner;
use tempfile::TempDir;

use super::{connect, failed};
use crate::{
    args::operator::ClusterImport,
    failure::Failure,
    local,
    output::{tell, tell_error},
};

/// The name of this command at the NATS servers.
const CLIENT: &str = "guild-cluster-import";

/// `guild cluster import`.
pub(super) async fn import(args: ClusterImport) -> Result<(), Failure> {
    let config = local::config(&args.local.policy)?;
    let (link, _) = connect(&config, None, CLIENT).await?;
    let transfer = Transfer::new(link, CLIENT);
    let mut has_failed = false;
    for found in local::one_or_all(None, &args.local, &config)? {
        let member = match found.member {
            Ok(member) => member,
            Err(why) => {
                tell_error(format_args!("{}: {why}", found.path));
                has_failed = true;
                continue;
            }
        };
        if let Ok(Some(owner)) = Owner::of(&member.dir) {
            let (key, pid) = (&member.key, owner.pid);
            tell_error(format_args!("{key}: the host with the process {pid} serves it; stop that host first"));
            has_failed = true;
            continue;
        }
        let io = |e: std::io::Error| Failure::error(format!("no temporary directory can be made: {e}"));
        let scratch = TempDir::with_prefix("guild-import-").map_err(io)?;
        let into = open_directory(scratch.path()).and_then(|dir| open_dir(&dir, ".")).map_err(io)?;
        let Copied { jobs, notes } = transfer.import(&member.key, &member.dir, &into).await.map_err(failed)?;
        tell(format_args!("{}: new in the cluster: jobs {jobs}, notes {notes}", member.key));
    }
    if has_failed { Err(Failure::error("not every member was imported")) } else { Ok(()) }
}
