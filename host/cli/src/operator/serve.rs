//! `guild serve`: serves members until it is stopped.

use std::{net::Ipv4Addr, path::Path, sync::Arc};

use guild_config::Config;
use guild_hall::SOCKET;
use guild_roster::{
    Host, MemberEntry, Reloads, Target, check::doctor::nobody_works, discovery::mcp_line, members::roster::MemberState,
};
use guild_server::{
    PassedSockets, ServeError, ServeOptions,
    listen::{BindError, Signals},
};
use rustix::process::{Signal, getpid, kill_process};

use crate::{
    args::operator::Serve,
    failure::{Failure, exit},
    local,
    output::{one_line, print_json, tell, tell_error},
};

/// Serves until SIGTERM or Ctrl-C. The host of another command reports its start on stdout instead of stderr.
pub(crate) async fn serve(args: Serve, passed: PassedSockets) -> Result<(), Failure> {
    if !args.private && !args.dev {
        return serve_until_stopped(args, passed, tell_start).await;
    }
    let mut is_started = false;
    let served = serve_until_stopped(args, passed, |base, _, _| {
        is_started = true;
        report_start(&Ok(base.to_owned()));
    })
    .await;
    match served {
        Err(Failure { code, message: Some(why) }) if !is_started => {
            report_start(&Err(why));
            Err(Failure::code(code))
        }
        served => served,
    }
}

/// The address of a private host, or the reason of its failure: one line on stdout, for the `guild mcp` that started
/// it.
pub(crate) type Start = Result<String, String>;

fn report_start(start: &Start) {
    // If that process is gone, the host ends because it has no client.
    let _ = print_json(start);
}

async fn serve_until_stopped(
    args: Serve,
    passed: PassedSockets,
    started: impl FnOnce(&str, &Host, Option<&Path>),
) -> Result<(), Failure> {
    // The signals come first: a supervisor may send SIGHUP as soon as the process exists.
    let signals = Signals::new().map_err(|e| Failure::error(format!("cannot listen for signals: {e}")))?;
    mcp_line::check(args.member.as_deref()).map_err(Failure::error)?;
    let config = local::config(&args.policy)?;
    let hall = args.hall.map(|named| local::hall_home(named.as_deref(), "--hall", &config)).transpose()?;
    if let Some(home) = &hall {
        // The home has the members that are served by default.
        guild_hall::Home::make(home).map_err(|e| Failure::error(e.to_string()))?;
    }
    let dev = match (args.dev, &args.member) {
        (true, Some(member)) => {
            end_with_stdin();
            let real = member.canonicalize();
            Some(real.map_err(|e| Failure::error(format!("{}: {e}", member.display())))?)
        }
        _ => None,
    };
    let (target, toolboxes) = match args.member {
        Some(member) => {
            let named = args.members.map(|members| local::members_directory(Some(&members), &config)).transpose()?;
            (Target::Member(member), named)
        }
        None => {
            let named = local::members_of_hall(args.members.as_deref(), hall.as_deref(), &config);
            (Target::Members(local::members_directory(named.as_deref(), &config)?), None)
        }
    };
    let file = args.policy.config;
    let (private, script) = (args.private, args.script);
    let of_command = move |mut config: Config| {
        config.members = toolboxes.clone().or(config.members);
        config.scripted.options.script = script.clone().or(config.scripted.options.script);
        if private || dev.is_some() {
            config.auth.bind = Ipv4Addr::LOCALHOST.into();
            config.auth.tls = None;
        }
        if dev.is_some() {
            config.dev.clone_from(&dev);
            (config.webhooks, config.auth.audit_log) = (Vec::new(), None);
        }
        config
    };
    let config = of_command(config);
    let read = move || Config::load(file.as_deref()).map(&of_command).map_err(|e| e.to_string());
    let roster = match &target {
        Target::Members(directory) if hall.is_some() => Some(directory.clone()),
        _ => None,
    };
    let options = ServeOptions {
        config,
        target,
        port: if private { Some(0) } else { args.port },
        passed,
        sources: args.session.sources,
        agent: args.session.agent,
        hall,
        reloads: Reloads { asked: Arc::default(), read: Arc::new(read) },
        private,
    };
    let served = guild_server::serve(options, signals, |base, host| started(base, host, roster.as_deref()));
    served.await.map_err(|error| {
        let code = if matches!(error, ServeError::Bind(BindError::InUse(_))) { exit::PORT_IN_USE } else { exit::ERROR };
        Failure { code, message: Some(error.to_string()) }
    })
}

/// Ends this process as SIGTERM does once stdin ends: with the process that started it, however that ends.
fn end_with_stdin() {
    tokio::spawn(async {
        let _ = tokio::io::copy(&mut tokio::io::stdin(), &mut tokio::io::sink()).await;
        let _ = kill_process(getpid(), Signal::TERM);
    });
}

/// Prints that clients can connect. `roster` is the directory of a hall's workers.
fn tell_start(base: &str, host: &Host, roster: Option<&Path>) {
    tell(listening(base, host));
    if let Some(roster) = roster.filter(|_| host.members().is_empty()) {
        tell_error(nobody_works(roster));
    }
    tell_served(base, host);
}

/// The message that clients can connect: the address, and the members that are not served.
fn listening(base: &str, host: &Host) -> String {
    if let Some(key) = host.single_key() {
        return format!("listening at {base}/mcp, for {key}");
    }
    let members = host.members();
    let members = members.iter().filter_map(|(key, entry)| match &entry.state {
        MemberState::Ready(_) => None,
        MemberState::Foreign => Some(format!("{key} has no component and is not served here")),
        MemberState::Error(reason) => Some(format!("{} is not served: {}", one_line(key, 80), one_line(reason, 400))),
    });
    let together = format!("listening at {base}, with the tools of all members together at {base}/mcp");
    let hall = host.hall().map(|hall| {
        let home = hall.home().path();
        format!(
            "the hall {} takes requests for commissions at {} and {base}/hall",
            home.display(),
            home.join(SOCKET).display()
        )
    });
    let lines: Vec<String> = std::iter::once(together).chain(hall).chain(members).collect();
    lines.join("\n")
}

/// Reports each member as served once its component is in service. Failures are in the log.
fn tell_served(base: &str, host: &Host) {
    let is_single = host.single_key().is_some();
    for member in host.members().values().filter_map(MemberEntry::member) {
        let (member, key) = (member.clone(), member.key());
        let url = if is_single { format!("{base}/mcp") } else { format!("{base}/members/{key}/mcp") };
        tokio::spawn(async move {
            if member.is_in_service().await {
                tell(format_args!("serving {} at {url}", member.key()));
            }
        });
    }
}
