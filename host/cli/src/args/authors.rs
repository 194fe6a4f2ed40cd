//! The arguments of the commands for authors: `guild new`, `build` and `dev`.

use std::path::PathBuf;

use clap::{Args, ValueHint, builder::NonEmptyStringValueParser};
use guild_build::{Kind, Language};
use serde_json::{Map, Value};

use super::{SessionArgs, jobs::job_input, possible};
use crate::local::LocalArgs;

/// `guild new`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild new worker librarian --lang python
  guild new toolbox ./members/dates --lang ts

The new directory has a source, a manifest, a posture, a test and the SDK of the language, and is whole: it builds, tests \
and runs anywhere. C has the kinds worker and toolbox.")]
pub(crate) struct New {
    /// worker: plans sessions that the host runs; autonomous: starts sessions itself; toolbox: has tools; hybrid: a
    /// worker with tools
    #[arg(value_parser = possible::<Kind>())]
    pub(crate) kind: Kind,
    /// The new directory, whose name becomes the member's
    #[arg(value_name = "NAME", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
    /// The language
    #[arg(long, value_name = "LANGUAGE", value_parser = possible::<Language>())]
    pub(crate) lang: Language,
}

/// `guild build`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild build
  guild build ./librarian

The command derives the component's WIT world from guild-member.json, runs the one command of the member's language, \
makes a component of what that writes, and checks that against the manifest. The component that was there before stays \
if any of this fails. What is made on the way is in .guild/ of the member's directory. guild.build.toml there changes \
the way:

  entry = \"worker.js\"               (the first source of JavaScript or Python; by default the only one)
  engine = \"starlingmonkey\"         (of JavaScript; by default quickjs)
  command = [\"make\", \"core.wasm\"]  (in place of the language's command)
  output = \"core.wasm\"              (the file that `command` writes: a component, or a core module for WASI preview 1)")]
pub(crate) struct Build {
    /// The member's directory
    #[arg(value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
}

/// `guild dev`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild dev ./librarian \"How does ownership work?\" --sources ~/rust-book
  guild dev ./dates '/weekday {\"date\": \"2026-01-01\"}'

At each change of a file the command builds the member as `guild build` does, starts a host with it, runs the last task \
again and shows what comes of it: the session's log, what the component writes, and the report. A line on stdin is the \
next task; an empty one runs the last again. Each run begins without jobs and memories, and needs no approval. \
The component is compiled by Winch, which takes less time than the compiler of a host that serves, and makes slower code.")]
pub(crate) struct Dev {
    /// The member's directory
    #[arg(value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
    /// The first task; or /TOOL JSON, to call a tool
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) task: Option<String>,
    /// The configuration of the tasks, a JSON object whose keys the member defines
    #[arg(long, value_name = "JSON", value_parser = job_input)]
    pub(crate) input: Option<Map<String, Value>>,
    /// Listen on this port
    #[arg(long, value_name = "PORT", default_value_t = guild_server::serve::DEFAULT_PORT)]
    pub(crate) port: u16,
    /// The sources and the runtime of the jobs' sessions
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// The location of the member's toolboxes, and of the policy
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}
