//! The arguments of the commands about members: what they may do, what they do, and whether they are approved.

use std::path::PathBuf;

use clap::{
    Args, ValueHint,
    builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser},
};
use clap_complete::ArgValueCompleter;
use guild_audit::FactName;

use crate::{
    client::AccessArgs,
    complete,
    local::{LocalArgs, PolicyArgs},
};

/// `guild call`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild call textkit text_stats '{\"text\": \"one two\"}' --members ./guild-members
  guild call textkit text_stats - --url http://127.0.0.1:7433 < input.json

The tool's text goes to stdout. If the tool reports an error, its text goes to stderr, and the exit code is 1. A host \
that serves the member calls the tool; if no host serves it, the member is loaded in this process. With --url, or if \
there is no such local member, MEMBER is a key at the host. If the member does not have the tool, the error lists the \
tools that the member has.")]
pub(crate) struct Call {
    /// The member: its directory, or its key in the members' directory; with --url, its key
    #[arg(value_parser = NonEmptyStringValueParser::new(), add = ArgValueCompleter::new(complete::member_or_directory))]
    pub(crate) member: String,
    /// The tool's name in its component
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) tool: String,
    /// The tool's input, a JSON object; `-` reads it from stdin
    #[arg(value_name = "JSON", default_value = "{}")]
    pub(crate) input: String,
    /// Use the host at this URL instead of a host that serves the local member
    #[arg(long, value_name = "URL", env = "GUILD_URL")]
    pub(crate) url: Option<String>,
    /// How to authenticate to the host
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// The location of the members
    #[command(flatten)]
    pub(crate) local: LocalArgs,
    /// Print the whole result of tools/call as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `guild members`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild members --members ./guild-members
  guild members researcher --grants        (its permissions, each with its line in guild.toml or in its manifest)
  guild members --limits --json
  guild members researcher --used          (the grants that its jobs have used)
  guild members --outdated                 (asks the registries; no other form of the command does)

With --members, a MEMBER without `/` is a key in that directory. Without --members, MEMBER is a directory, or else a \
key in the members' directory; if both exist and are different members, the command fails. ./NAME is always the \
directory.")]
pub(crate) struct Members {
    /// One member: its directory, or its key in the members' directory; see below if both exist [default: every member]
    #[arg(value_parser = NonEmptyStringValueParser::new(), add = ArgValueCompleter::new(complete::member_or_directory))]
    pub(crate) member: Option<String>,
    /// Show the requested and the granted permissions, and the reason for each denial
    #[arg(long)]
    pub(crate) grants: bool,
    /// Show every limit and its source
    #[arg(long)]
    pub(crate) limits: bool,
    /// Show the grants that the jobs of MEMBER have really used, and a rule for guild.toml with these alone
    #[arg(long, requires = "member", conflicts_with_all = ["grants", "limits", "url", "outdated"])]
    pub(crate) used: bool,
    /// With --used, play the last N jobs again under that rule, and show what differs
    #[arg(long, value_name = "N", requires = "used", conflicts_with = "json", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) prove: Option<u32>,
    /// Ask the registries that members were installed from for newer versions, and list these
    #[arg(long, conflicts_with_all = ["grants", "limits", "url"])]
    pub(crate) outdated: bool,
    /// The location of the members
    #[command(flatten)]
    pub(crate) local: LocalArgs,
    /// Show the members that the host at this URL serves, and why a directory's present state is not in service,
    /// instead of reading the directories
    #[arg(long, value_name = "URL", conflicts_with_all = ["member", "grants", "limits", "members", "config"])]
    pub(crate) url: Option<String>,
    /// How to authenticate to the host
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// Print the members as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `guild prompt`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  guild prompt --members ./guild-members

The text names each member with the capability `worker`, and its MCP server KEY-dispatch, which a host serves at \
/dispatch/KEY/mcp. It is for agents that have these servers. Clients of `guild mcp` and of a host's /mcp get the same \
text, with the tool names of those servers, from `instructions` and from the prompt `workers`. If there is no worker, \
stdout stays empty.")]
pub(crate) struct Prompt {
    /// The location of the members
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// `guild approve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild approve researcher --members ./guild-members
  guild approve . --yes                          (while developing, after each build)
  guild approve --list
  guild approve --forget /srv/old/researcher

The command shows the changes since the member was pinned in guild.lock, and asks for confirmation. A host of a \
directory of members loads an approved member at once; a host of a single member loads it at its next start. If a \
host is started with --config FILE, give the same file here: guild.lock is next to it.")]
pub(crate) struct Approve {
    /// The member: its directory, its key in the members' directory, or its name in guild.lock
    #[arg(required_unless_present = "list", value_parser = NonEmptyStringValueParser::new(), add = ArgValueCompleter::new(complete::member_or_directory))]
    pub(crate) member: Option<String>,
    /// Approve without asking
    #[arg(long)]
    pub(crate) yes: bool,
    /// List the pinned members
    #[arg(long, conflicts_with_all = ["member", "forget", "yes"])]
    pub(crate) list: bool,
    /// Remove the pin of a member; its next load counts as its first
    #[arg(long, conflicts_with = "yes")]
    pub(crate) forget: bool,
    /// First play the last N jobs of the member again with the present component, and show what differs
    #[arg(long, value_name = "N", conflicts_with_all = ["list", "forget"], value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rehearse: Option<u32>,
    /// The location of the members and of the operator's policy
    #[command(flatten)]
    pub(crate) local: LocalArgs,
    /// Print the pins as JSON
    #[arg(long, requires = "list")]
    pub(crate) json: bool,
}

/// `guild test`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild test                                     (the member in this directory)
  guild test ./my-member --filter 'refuses'
  guild test ./my-member --update                (writes what came into the test files)
  guild test ./my-member --junit target/junit.xml
  guild test ./my-member --record @latest        (makes a test file of the newest job)

The cases are in tests/*.toml of the member's directory. Each says what is dispatched, what files, web pages and \
memories there are, and what the model does, turn by turn; and what is expected. No model, no network and no job of the \
member is touched.

Exit codes: 0, all cases passed; 1, a case failed; 2, a test file or the member is not valid.")]
pub(crate) struct Test {
    /// The member's directory
    #[arg(value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
    /// Play only the cases with this text in `FILE: NAME`
    #[arg(long, value_name = "TEXT")]
    pub(crate) filter: Option<String>,
    /// Write what came into the test files, where something else is expected, or nothing
    #[arg(long)]
    pub(crate) update: bool,
    /// Write a report as JUnit XML into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// Make a test file of a job that ran: its id, or a unique prefix of it; @latest is the newest job
    #[arg(long, value_name = "JOB", conflicts_with_all = ["filter", "update", "junit"])]
    pub(crate) record: Option<String>,
}

/// `guild probe`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild probe ./plugin
  guild probe ./plugin --html probe.html
  guild probe ./plugin --obedient --fail-on canary,unexpected-request

The member runs in the real sandbox with the real limits, granted all that its manifest asks for. Its model, the web, the \
clocks, the random numbers, git and pull requests are fakes, and nothing leaves the machine. Tokens (canaries) stand in \
all that it can read, and are looked for in all that it sends, writes and answers, also encoded. Runs on other days, of \
many jobs, with other random numbers, on a project and as manager are compared.

A probe shows what a member did, not what it never does: a member may recognise a probe, or wait for something rarer. \
docs/reviewers.md says more.

Exit codes: 0, it was probed; 1, it has a finding that --fail-on names; 2, it cannot be probed.")]
pub(crate) struct Probe {
    /// The member's directory
    #[arg(value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
    /// Add a model that calls every tool, address and path that the texts before it name
    #[arg(long)]
    pub(crate) obedient: bool,
    /// Write a page with the findings and the timeline of each run into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Print the probe as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Exit with code 1 if there is a finding of these kinds
    #[arg(long, value_name = "KIND", value_enum, value_delimiter = ',')]
    pub(crate) fail_on: Vec<ProbeFinding>,
    /// The seconds after which no further step begins
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) seconds: u32,
    /// The number that decides all tokens; the same number makes the same ones
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// The operator's policy, whose limits hold and for which the probe counts
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
}

/// The kinds of findings of `guild probe`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum ProbeFinding {
    /// A token that crossed a boundary
    Canary,
    /// What was seen in some runs only
    Difference,
    /// A request that nothing explains
    UnexpectedRequest,
    /// A file of a project that programs run
    PlantedFile,
    /// An artifact that does something when it is opened
    ActiveArtifact,
}

/// `guild sign`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild sign --new-key release.key
  guild sign researcher.wasm --key release.key --comment 'researcher 0.2.0'

Keys and signatures have the format of minisign. The signature is FILE.minisig, which belongs next to the component \
in the member's directory. If the component is signed there, the signature also covers the manifest and the posture \
beside it. To trust the key, put its two lines (release.key.pub) into guild.trust next to guild.toml.")]
pub(crate) struct Sign {
    /// The file to sign
    #[arg(required_unless_present = "new_key", requires = "key")]
    pub(crate) file: Option<PathBuf>,
    /// The secret key to sign with
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<PathBuf>,
    /// The trusted comment, which is signed with the file [default: time and name]
    #[arg(long, value_name = "TEXT", requires = "file")]
    pub(crate) comment: Option<String>,
    /// Generate a secret key in this file, and its public key in FILE.pub
    #[arg(long, value_name = "FILE", conflicts_with_all = ["file", "key"])]
    pub(crate) new_key: Option<PathBuf>,
    /// Generate the key without a password
    #[arg(long, requires = "new_key")]
    pub(crate) no_password: bool,
}

/// `guild audit`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild audit researcher --members ./guild-members
  guild audit researcher --texts | less
  guild audit plugin.wasm --format html > audit.html
  guild audit researcher --format json > old.json; guild audit researcher --against old.json --fail-on new-import,new-host

TARGET is a component if a file of that name exists, and otherwise a member: its directory, or its key in the \
members' directory. The audit of a member includes its manifest, the permissions in guild.toml, the members beside it \
and the version that guild.lock has; the audit of a file does not. Without --list-tools, the audit neither runs nor \
compiles the component. It never uses the network.

Exit code: 0 there is no fact that --fail-on names; 1 there is one (with --against, a new one); 2 TARGET or OLD cannot \
be read, TARGET is not a component, or the audit cannot be written (for example on a full disk; a reader that ends \
early is not an error). docs/reviewers.md explains each part of the audit, and lists the facts.")]
pub(crate) struct Audit {
    /// A component's file, or a member
    #[arg(value_name = "TARGET", value_parser = NonEmptyStringValueParser::new(), add = ArgValueCompleter::new(complete::member_or_file))]
    pub(crate) target: String,
    /// Show only the changes since another file, another member, or an earlier output of --format json
    #[arg(long, value_name = "OLD", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) against: Option<String>,
    /// The output format
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = AuditFormat::Text)]
    pub(crate) format: AuditFormat,
    /// Print the audit as JSON, like --format json
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,
    /// Show imports, flows, limits and sections in full
    #[arg(long)]
    pub(crate) all: bool,
    /// Show, after the facts, the texts that models or people read and those of the component's data; with PLACE, only
    /// those at places that begin with it, whole, and bytes that are no text as hexadecimal digits
    #[arg(long, value_name = "PLACE", num_args = 0..=1, require_equals = true, default_missing_value = "", conflicts_with_all = ["all", "against"])]
    pub(crate) texts: Option<String>,
    /// Compile the component, list its tools in a sandbox without access to anything, and show the tools' texts too
    #[arg(long)]
    pub(crate) list_tools: bool,
    /// Audit the member as if guild.toml named it as the manager of the hall
    #[arg(long = "as", value_name = "ROLE", value_parser = ["manager"])]
    pub(crate) role: Option<String>,
    /// Exit with code 1 if there is one of these facts: names of docs/reviewers.md, such as flow, new-host or
    /// hidden-text; `refused` for those for which a host refuses the member
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = fail_on(), hide_possible_values = true)]
    pub(crate) fail_on: Vec<FailOn>,
    /// The location of the members and of the operator's policy
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

impl Audit {
    /// Whether the member is audited as the manager.
    pub(crate) fn manages(&self) -> bool {
        self.role.is_some()
    }
}

/// The output formats of `guild audit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum AuditFormat {
    /// For a terminal
    Text,
    /// For programs; docs/schema/audit.json is the schema
    Json,
    /// One self-contained page
    Html,
    /// SARIF 2.1.0, for tools that collect findings
    Sarif,
}

/// The facts for which `guild audit` exits with code 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailOn {
    /// The facts for which a host refuses the member.
    Refused,
    /// The facts of a name.
    Name(FactName),
}

/// A parser for the facts that can end `guild audit` with 1.
fn fail_on() -> impl TypedValueParser<Value = FailOn> {
    let names = FactName::ALL.iter().map(|name| (name.as_str(), FailOn::Name(*name)));
    let all: Vec<_> = names.chain([("refused", FailOn::Refused)]).collect();
    PossibleValuesParser::new(all.iter().map(|(name, _)| *name).collect::<Vec<_>>())
        .try_map(move |name| all.iter().find(|(known, _)| *known == name).map(|(_, on)| *on).ok_or("no such fact"))
}
