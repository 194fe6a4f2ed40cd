//! `guild cluster status`: reads the state of a cluster from NATS, with the credentials of a host.

use std::{
    io::{self, Write},
    time::Duration,
};

use guild_contract::host::cluster::{ClusterHost, ClusterHostState, ClusterStream, ClusterView};
use guild_roster::cluster_view::read;
use tokio::time::timeout;

use super::table;
use crate::{
    args::operator::ClusterStatus,
    failure::Failure,
    local,
    output::{LABEL, harmless, one_line, print, print_json, state_style},
};

/// How long the state is waited for. It takes seconds with hundreds of thousands of jobs.
const PATIENCE: Duration = Duration::from_secs(60);
/// The fill of a stream that is shown as bad, in percent.
const FULL_PERCENT: u64 = 80;

/// Prints the state of the cluster of guild.toml.
pub(super) async fn status(args: ClusterStatus) -> Result<(), Failure> {
    let config = local::config(&args.policy)?;
    let options = table(&config)?;
    let view = timeout(PATIENCE, read(options)).await.map_err(|_| {
        let seconds = PATIENCE.as_secs();
        Failure::error(format!(
            "the cluster's store does not answer within {seconds} s; check that more than half of the NATS nodes run"
        ))
    })?;
    let view = view.map_err(Failure::error)?;
    match args.json {
        true => print_json(&view)?,
        false => print(|out| write_view(out, &view))?,
    }
    Ok(())
}

fn write_view(out: &mut dyn Write, view: &ClusterView) -> io::Result<()> {
    let ClusterView { name, hosts, jobs, waiting, oldest_waiting_seconds, streams, differences, unsealed, .. } = view;
    writeln!(out, "{LABEL}cluster{LABEL:#}  {}", harmless(name))?;
    for host in hosts {
        write_host(out, host)?;
    }
    for name in unsealed {
        let bad = state_style(true);
        writeln!(
            out,
            "  {bad}unsealed{bad:#}  {}  its card is not sealed with this cluster's key",
            one_line(name, 64)
        )?;
    }
    match oldest_waiting_seconds {
        Some(seconds) => writeln!(out, "{LABEL}jobs{LABEL:#}  {waiting} waiting, the oldest for {seconds} s")?,
        None => writeln!(out, "{LABEL}jobs{LABEL:#}  none waiting")?,
    }
    for member in jobs {
        let name = one_line(&member.member, 80);
        writeln!(out, "  {name:<20}  {} running, {} waiting", member.running, member.waiting)?;
    }
    writeln!(out, "{LABEL}streams{LABEL:#}")?;
    for stream in streams {
        write_stream(out, stream)?;
    }
    if !differences.is_empty() {
        writeln!(out, "{LABEL}differences{LABEL:#}")?;
    }
    for difference in differences {
        let groups: Vec<String> = difference.groups.iter().map(|group| group.join(", ")).collect();
        writeln!(out, "  {}: {}", one_line(&difference.setting, 80), one_line(&groups.join(" | "), usize::MAX))?;
    }
    Ok(())
}

fn write_host(out: &mut dyn Write, host: &ClusterHost) -> io::Result<()> {
    let style = state_style(matches!(host.state, ClusterHostState::Dead | ClusterHostState::Silent));
    write!(out, "  {style}{:<8}{style:#}  {:<12}", host.state.as_str(), one_line(&host.host, 64))?;
    match (host.state, &host.dead_by) {
        (ClusterHostState::Alive, _) => {}
        (_, Some(by)) => write!(out, "  for {} s, declared by {}", host.silent_seconds, one_line(by, 64))?,
        (_, None) => write!(out, "  for {} s", host.silent_seconds)?,
    }
    if host.state == ClusterHostState::Alive {
        let places: Vec<String> = host.places.iter().map(|(runtime, places)| format!("{runtime} {places}")).collect();
        let hall = if host.hall { ", the hall" } else { "" };
        let members = host.members.len();
        let places = if places.is_empty() { "none".to_owned() } else { one_line(&places.join(", "), 200) };
        write!(out, "  {}  free places: {places}; {members} members{hall}", one_line(&host.version, 40))?;
    }
    writeln!(out, "  {}", one_line(&host.url, 200))
}

fn write_stream(out: &mut dyn Write, stream: &ClusterStream) -> io::Result<()> {
    let percent = stream.percent();
    let is_bad = percent.is_some_and(|percent| percent > FULL_PERCENT) || !stream.lagging.is_empty();
    let style = state_style(is_bad);
    write!(out, "  {style}{:<18}{style:#}  {} bytes", stream.stream, stream.bytes)?;
    if let (Some(max), Some(percent)) = (stream.max_bytes, percent) {
        write!(out, " of {max}, {percent} %")?;
    }
    write!(out, "; at {}", stream.servers())?;
    match stream.lagging.as_slice() {
        [] => writeln!(out),
        lagging => writeln!(out, ", of which {} are behind", one_line(&lagging.join(", "), 200)),
    }
}
