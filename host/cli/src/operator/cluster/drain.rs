//! `guild cluster drain`: stops the host on this machine once its jobs are others'.

use std::time::{Duration, Instant};

use guild_roster::running_host;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::sleep;

use crate::{args::operator::ClusterDrain, failure::Failure, local, output::tell};

/// The interval at which the command looks whether the host has ended.
const LOOK: Duration = Duration::from_millis(200);
/// How long it looks: a host drains for a minute, and closes its connections.
const PATIENCE: Duration = Duration::from_secs(90);

/// `guild cluster drain`.
pub(super) async fn drain(args: &ClusterDrain) -> Result<(), Failure> {
    let config = local::config(&args.policy)?;
    let running = || running_host(&config).map_err(Failure::error);
    let name = config.cluster.as_ref().map_or("", |cluster| &cluster.host);
    let none = || Failure::error(format!("the host {name} does not run on this machine, by this guild.toml"));
    let process = running()?.ok_or_else(none)?;
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw).ok_or_else(none)?;
    kill_process(pid, Signal::TERM)
        .map_err(|e| Failure::error(format!("process {process}, the host {name}, cannot be stopped: {e}")))?;
    let begun = Instant::now();
    while running()? == Some(process) {
        if begun.elapsed() > PATIENCE {
            let seconds = PATIENCE.as_secs();
            return Err(Failure::error(format!("process {process}, the host {name}, still runs after {seconds} s")));
        }
        sleep(LOOK).await;
    }
    tell(format_args!(
        "the host {name} has ended after {:.0} s; other hosts go on with its jobs",
        begun.elapsed().as_secs_f32()
    ));
    Ok(())
}
