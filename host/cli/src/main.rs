//! The `guild` command: serve members, run a task, and talk to a running host.

mod age;
mod args;
mod client;
mod failure;
mod house;
mod log;
mod members;
mod output;
mod prune;
mod remote;
mod run;
mod serve;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::{
    args::{Cli, Command},
    failure::{Failure, exit},
};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(told) => {
            // Not clap's own 2: from `serve`, Guild Hall would take that for a port in use.
            let code = if told.use_stderr() { exit::ERROR } else { 0 };
            let _ = told.print();
            return ExitCode::from(code);
        }
    };
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
    log::start(cli.verbose)?;
    let many = || tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let alone = || tokio::runtime::Builder::new_current_thread().enable_all().build();
    let start = |built: std::io::Result<_>| built.map_err(|e| Failure::error(format!("cannot start: {e}")));
    match cli.command {
        Command::Serve(args) => start(many())?.block_on(serve::serve(args)),
        Command::Run(args) => start(many())?.block_on(run::run(args)),
        Command::Dispatch(args) => start(alone())?.block_on(remote::dispatch(args)),
        Command::List(args) => start(alone())?.block_on(remote::list(args)),
        Command::Status(args) => start(alone())?.block_on(remote::status(args)),
        Command::Result(args) => start(alone())?.block_on(remote::result(args)),
        Command::Cancel(args) => start(alone())?.block_on(remote::cancel(args)),
        Command::Delete(args) => start(alone())?.block_on(remote::delete(args)),
        Command::Prune(args) => start(alone())?.block_on(prune::prune(args)),
        Command::Members(args) => members::members(&args),
        Command::Completions { shell } => completions(shell),
    }
}

fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "guild", &mut script);
    Ok(output::print(|out| out.write_all(&script))?)
}
