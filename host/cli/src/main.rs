//! The `guild` command: it serves members, runs tasks, and calls running hosts.

mod age;
mod args;
mod audit;
mod authors;
mod client;
mod complete;
mod failure;
mod hall;
mod jobs;
mod local;
mod mcp;
mod members;
mod operator;
mod output;
mod registry;

use std::{ffi::OsString, process::ExitCode, time::SystemTime};

use clap::{CommandFactory, Parser};
use guild_server::PassedSockets;
use tokio::runtime::Builder;

use crate::{
    args::{Cli, Command},
    authors::{build, dev, new},
    failure::{Failure, exit},
    hall::{commission, meet, meeting, pr, project},
    jobs::{job_commands, logs, prune, usage, watch},
    members::{approve, call, list, probe, prompt, sign, test, used},
    operator::{backup, cluster, doctor, health, serve, tls, token},
    output::log,
    registry::{artifact, install, upgrade},
};

fn main() -> ExitCode {
    if let Some(code) = guild_confine::serve_if_asked(guild_roster::TASKS) {
        return code;
    }
    complete::answer_if_asked(Cli::command);
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(usage) => {
            // Clap's own code, 2, means a port in use for Guild Hall if `serve` exits with it. For `audit`, 1 means
            // findings.
            let words: Vec<_> = std::env::args_os().collect();
            // The first word that is neither an option nor an option's value.
            let is_command = |(before, word): &(&OsString, &OsString)| {
                *before != "--log-format" && !word.as_encoded_bytes().starts_with(b"-")
            };
            let command = words.iter().zip(words.iter().skip(1)).find(is_command);
            let code = match usage.use_stderr() {
                false => 0,
                true if command.is_some_and(|(_, command)| command == "audit") => exit::CANNOT_READ,
                true => exit::ERROR,
            };
            let _ = usage.print();
            return ExitCode::from(code);
        }
    };
    let is_host = matches!(cli.command, Command::Serve(_) | Command::Mcp(_));
    if is_host && cli.log.log_format == log::LogFormat::Json {
        output::tell_as_json();
    }
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(message) = failure.message {
                output::tell_error(message);
            }
            ExitCode::from(failure.code)
        }
    }
}

fn run(cli: Cli) -> Result<(), Failure> {
    guild_fs::clock::check(SystemTime::now()).map_err(Failure::error)?;
    // The error of these commands already says how their call failed.
    let printed = match &cli.command {
        Command::Run(_) => Some("guild_sandbox::plugin"),
        Command::Call(_) => Some("guild_sandbox::plugin::toolbox"),
        // The hosts of its runs serve nobody.
        Command::Probe(_) => Some("guild"),
        _ => None,
    };
    let _traces = log::start(cli.log, printed)?;
    match cli.command {
        Command::New(args) => new::new(&args),
        Command::Build(args) => build::build(&args),
        Command::Dev(args) => on(&mut Builder::new_current_thread(), dev::dev(args)),
        Command::Serve(args) => {
            // The sockets come first: the process has one thread.
            let passed = PassedSockets::take().map_err(|e| Failure::error(e.to_string()))?;
            on(&mut Builder::new_multi_thread(), serve::serve(args, passed))
        }
        Command::Mcp(args) => on(&mut Builder::new_multi_thread(), mcp::mcp(args, cli.log)),
        Command::Run(args) => on(&mut Builder::new_multi_thread(), jobs::run::run(args)),
        Command::Dispatch(args) => on(&mut Builder::new_current_thread(), job_commands::dispatch(args)),
        Command::List(args) => on(&mut Builder::new_current_thread(), job_commands::list(args)),
        Command::Status(args) => on(&mut Builder::new_current_thread(), job_commands::status(args)),
        Command::Result(args) => on(&mut Builder::new_current_thread(), job_commands::result(args)),
        Command::Cancel(args) => on(&mut Builder::new_current_thread(), job_commands::cancel(args)),
        Command::Delete(args) => on(&mut Builder::new_current_thread(), job_commands::delete(args)),
        Command::Resume(args) => on(&mut Builder::new_current_thread(), job_commands::resume(args)),
        Command::Watch(args) => on(&mut Builder::new_current_thread(), watch::watch(args)),
        Command::Call(args) => on(&mut Builder::new_multi_thread(), call::call(args)),
        Command::Project(args) => on(&mut Builder::new_current_thread(), project::project(args)),
        Command::Meet(args) => on(&mut Builder::new_current_thread(), meet::meet(args)),
        Command::Meeting(args) => on(&mut Builder::new_current_thread(), meeting::meeting(args)),
        Command::Pr(args) => on(&mut Builder::new_current_thread(), pr::pr(args)),
        Command::Commission(args) => on(&mut Builder::new_current_thread(), commission::commission(args)),
        Command::Logs(args) => on(&mut Builder::new_current_thread(), logs::logs(args)),
        Command::Usage(args) => usage::usage(&args),
        Command::Prune(args) => on(&mut Builder::new_current_thread(), prune::prune(args)),
        Command::Members(args) => match &args.url {
            Some(url) => on(&mut Builder::new_current_thread(), list::served(&args, url)),
            None if args.outdated => on(&mut Builder::new_current_thread(), upgrade::outdated(&args)),
            None if args.used => used::used(&args),
            None => list::members(&args),
        },
        Command::Test(args) => on(&mut Builder::new_multi_thread(), test::test(args)),
        Command::Probe(args) => on(&mut Builder::new_multi_thread(), probe::probe(args)),
        Command::Approve(args) => approve::approve(&args),
        Command::Pack(args) => artifact::pack(&args),
        Command::Push(args) => on(&mut Builder::new_current_thread(), artifact::push(args)),
        Command::Pull(args) => on(&mut Builder::new_current_thread(), artifact::pull(args)),
        Command::Install(args) => on(&mut Builder::new_current_thread(), install::install(args)),
        Command::Upgrade(args) => on(&mut Builder::new_current_thread(), upgrade::upgrade(args)),
        Command::Sign(args) => sign::sign(&args),
        Command::Token(args) => token::token(args),
        Command::Tls(args) => tls::tls(args),
        Command::Cluster(args) => on(&mut Builder::new_multi_thread(), cluster::cluster(args)),
        Command::Backup(args) => on(&mut Builder::new_multi_thread(), backup::backup(args)),
        Command::Restore(args) => backup::restore(args),
        Command::Health(args) => on(&mut Builder::new_current_thread(), health::health(args)),
        Command::Audit(args) => audit::audit(&args),
        Command::Doctor(args) => on(&mut Builder::new_multi_thread(), doctor::doctor(args)),
        Command::Prompt(args) => prompt::prompt(&args),
        Command::Man { directory } => complete::man_pages(Cli::command(), &directory),
        Command::Completions { shell } => complete::script(shell),
    }
}

/// Runs a command to its end. Remaining blocking work, such as a compilation or the reading of sources, is not awaited,
/// so that the process stops at once.
fn on(runtime: &mut Builder, command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = runtime.enable_all().build().map_err(|e| Failure::error(format!("cannot start: {e}")))?;
    let done = runtime.block_on(command);
    runtime.shutdown_background();
    done
}
