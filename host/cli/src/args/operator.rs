//! The arguments of the commands of an operator: hosts, tokens, certificates, backups and checks.

use std::path::PathBuf;

use clap::{
    Args, Subcommand, ValueHint,
    builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser},
};
use clap_complete::ArgValueCompleter;
use guild_auth::tokens::Role;
use guild_cluster::setup::Node;
use guild_contract::{MemberKey, capability::grants::Pattern};
use jiff::Timestamp;

use super::SessionArgs;
use crate::{
    client::AccessArgs,
    complete,
    local::{LocalArgs, PolicyArgs},
};

/// `guild serve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild serve --members ./guild-members --sources ./docs
  guild serve --member . --port 50321        (as Guild Hall starts it, in the member's directory)

A single member is served at /mcp, the members of a directory at /members/KEY/mcp. MCP clients also find the tools \
that dispatch to a worker at /dispatch/KEY/mcp, and these with the member's own tools at /all/KEY/mcp. If a directory \
is served, /mcp has all these tools of all members. /events streams the events of the host, and /members lists the served \
members.

The host applies additions, changes and removals in the directory at once. It applies changes to a single served \
member at its next start. On SIGHUP it reads guild.toml again, and applies all of it or nothing; the log lists the \
changes.")]
pub(crate) struct Serve {
    /// Serve every member in this directory; with --member, only search it for that member's toolboxes [default:
    /// `members` of guild.toml]
    #[arg(long, value_name = "DIR")]
    pub(crate) members: Option<PathBuf>,
    /// Serve only the member in this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) member: Option<PathBuf>,
    /// Carry out the commissions of the hall in this directory [default without a directory: $GUILD_HALL_HOME, else
    /// `home` of [hall] in guild.toml, else ~/.guild-hall]
    #[arg(long, value_name = "HOME", num_args = 0..=1)]
    pub(crate) hall: Option<Option<PathBuf>>,
    /// Listen on this port; 0 selects a free port [default: `port` of guild.toml, else 7433]
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// The sources and the runtime of the jobs' sessions
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// The test file whose sessions the runtime `scripted` plays [default: `script` in [scripted] of guild.toml]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "agent")]
    pub(crate) script: Option<PathBuf>,
    /// The location of the operator's policy
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    /// Serve the clients of `guild mcp`, which starts this process, until the last client ends
    #[arg(long, hide = true, conflicts_with_all = ["hall", "port"])]
    pub(crate) private: bool,
    /// Serve the member to the `guild dev` that starts this process, until stdin ends
    #[arg(long, hide = true, requires = "member")]
    pub(crate) dev: bool,
}

/// `guild mcp`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild mcp --members ./guild-members --sources ./docs
  guild mcp --member researcher --members ./guild-members
  guild mcp --url https://guild.example --member researcher
  claude mcp add guild -- guild mcp --members ~/guild-members      (in Claude Code)

The command offers the tools of all members, and for each worker the tools that dispatch to it; with --member, only \
the tools of that member. If a host already serves the members, all messages go through that host. If that host \
serves them with other read roots than --sources, on another runtime than --agent, or with another guild.toml than \
the named one, the command ends with an error. If no host serves them, the command starts a host, which ends with its \
last client; the next host resumes the jobs that are still running then.

stdout carries only MCP messages; the log goes to stderr.")]
pub(crate) struct Mcp {
    /// Only this member: its directory, or its key in the members' directory; with --url, its key
    #[arg(long, value_name = "MEMBER", value_parser = NonEmptyStringValueParser::new(), add = ArgValueCompleter::new(complete::member_or_directory))]
    pub(crate) member: Option<String>,
    /// Use the host at this URL instead of a host that serves the local members
    #[arg(long, value_name = "URL", conflicts_with_all = ["members", "config", "sources", "agent"])]
    pub(crate) url: Option<String>,
    /// How to authenticate to the host
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// The sources and the runtime of the jobs' sessions
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// The location of the members
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// `guild token`.
#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// Create a token, and print it; it is not shown again
    #[command(after_help = "\
Examples:
  guild token add guild-hall
  guild token add ci --role dispatch --members 'research-*' --expires 30d > ci.token

Callers send the token as `Authorization: Bearer TOKEN`; the commands of guild take it from $GUILD_TOKEN or \
--token-file. Only its SHA-256 is stored, in guild.tokens next to guild.toml. A running host accepts the token from \
the next request on.")]
    Add(TokenAdd),
    /// List the tokens and their permissions
    #[command(after_help = "Examples:\n  guild token list\n  guild token list --json")]
    List {
        /// The location of the tokens
        #[command(flatten)]
        of: TokensArgs,
        /// Print the tokens as JSON
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token; a running host refuses it from the next request on
    #[command(visible_alias = "rm", after_help = "Example:\n  guild token revoke ann")]
    Revoke {
        /// The token's name
        name: String,
        /// The location of the tokens
        #[command(flatten)]
        of: TokensArgs,
    },
}

/// `guild token add`.
#[derive(Debug, Args)]
pub(crate) struct TokenAdd {
    /// The token's name, which the audit log records
    pub(crate) name: String,
    /// A member that the token is for: its key, in which * matches any characters; repeat the option for more [default:
    /// all]
    #[arg(long, value_name = "PATTERN")]
    pub(crate) members: Vec<Pattern>,
    /// The role: view (lists, states, results, events), dispatch (also dispatch), approve (view, and approve members),
    /// all (also cancel, delete and the tools of components)
    #[arg(long, value_name = "ROLE", default_value = "all", value_parser = roles())]
    pub(crate) role: Role,
    /// The expiry: a duration such as 12h, 30d or 2w, or a date (UTC) such as 2030-01-01 [default: never]
    #[arg(long, value_name = "TIME", value_parser = crate::age::until)]
    pub(crate) expires: Option<Timestamp>,
    /// The US dollars that the token's jobs may spend in a day (UTC) [default: `token_usd_per_day` of [spend] in
    /// guild.toml]
    #[arg(long, value_name = "USD", value_parser = usd)]
    pub(crate) usd_per_day: Option<f64>,
    /// The location of the tokens
    #[command(flatten)]
    pub(crate) of: TokensArgs,
}

/// The location of the tokens.
#[derive(Debug, Args)]
pub(crate) struct TokensArgs {
    /// The operator's policy, next to which the tokens are stored
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
}

/// `guild tls`.
#[derive(Debug, Subcommand)]
pub(crate) enum Tls {
    /// Make a certificate and its key for a host that has none from an authority
    #[command(after_help = "\
Examples:
  guild tls self-signed guild.example 192.0.2.7
  guild tls self-signed localhost --directory ./tls --days 30

The command prints the lines of guild.toml that name the certificate. Clients trust it with --ca or $GUILD_CA; they \
need the certificate, and never the key. A running host uses a replaced certificate within a second.")]
    SelfSigned(SelfSigned),
}

/// `guild tls self-signed`.
#[derive(Debug, Args)]
pub(crate) struct SelfSigned {
    /// The names and addresses by which clients reach the host
    #[arg(value_name = "NAME", required = true, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) names: Vec<String>,
    /// Write guild-tls.pem and guild-tls.key into this directory
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) directory: PathBuf,
    /// The days until the certificate expires
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) days: u16,
    /// Replace the files if they exist
    #[arg(long)]
    pub(crate) force: bool,
}

/// `guild backup`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild backup guild-$(date +%F).tar.gz
  guild backup - --members ./guild-members | ssh backup.example 'cat > guild.tar.gz'

Hosts may run meanwhile. Every job that had ended is in the backup with its result; a job that runs is in it as a power \
cut would leave it. The backup has guild.toml, guild.lock, guild.trust, the hashes of tokens (guild.tokens) and the key \
that seals jobs (guild.seal), the audit log in its usual place and the ledger of costs. On a host of a cluster, it has \
the jobs and notes of the cluster. It has no git repositories of \
projects, no worktrees, and no files that guild.toml names, such as keys and certificates. Only its owner can read the \
file; it is not encrypted.")]
pub(crate) struct Backup {
    /// The new file; `-` writes to stdout
    pub(crate) file: PathBuf,
    /// The hall's home [default: $GUILD_HALL_HOME, else `home` of [hall] in guild.toml, else ~/.guild-hall; left out if
    /// it does not exist]
    #[arg(long, value_name = "HOME")]
    pub(crate) hall: Option<PathBuf>,
    /// The location of the members and of the operator's policy
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// `guild restore`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  guild restore guild-2026-11-27.tar.gz /srv/guild

The command makes members/, hall/, config/ and state/ in the directory, and prints the command that serves them there. \
It makes all of it or nothing. Jobs that ran at the time of the backup are resumed only in the place from which they \
were taken; elsewhere they have failed.")]
pub(crate) struct Restore {
    /// The backup; `-` reads it from stdin
    pub(crate) file: PathBuf,
    /// A directory that does not exist, or is empty
    pub(crate) directory: PathBuf,
    /// Refuse a backup with more bytes, unpacked
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 30)]
    pub(crate) max_bytes: u64,
}

/// `guild health`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild health
  guild health --url https://localhost:7433 --ca guild-tls.pem

The exit code is 0 if the host answers, and 1 otherwise. No token is needed.")]
pub(crate) struct Health {
    /// The host's URL [default: http://127.0.0.1:7433]
    #[arg(long, value_name = "URL", env = "GUILD_URL")]
    pub(crate) url: Option<String>,
    /// How the host authenticates
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// The seconds to wait for the answer
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    pub(crate) timeout_seconds: u32,
}

/// `guild doctor`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild doctor --members ./guild-members --sources ./docs
  guild doctor --hall
  guild doctor --agent api --online

The command checks a host as `guild serve` with the same options would start it, without starting it. It also queries \
the running hosts that serve the local members, and the host that --url names; it reports how each differs from a \
host that would be started now. It checks a hall if --hall is given or the hall's home exists: the home, config.yaml, \
the workers, the manager, each project as the first commission would find it, and gh. Where guild.toml has a [cluster], \
it checks the NATS servers and their streams, and names each setting in which another host differs.

Exit code: 0 if everything that guild.toml requests and that members run on is usable, and the members of running \
hosts are in service; 1 otherwise.")]
pub(crate) struct Doctor {
    /// Send one real query to the search provider
    #[arg(long)]
    pub(crate) online: bool,
    /// Check the hall in this directory as `guild serve --hall` would serve it [default without a directory:
    /// $GUILD_HALL_HOME, else `home` of [hall] in guild.toml, else ~/.guild-hall]
    #[arg(long, value_name = "HOME", num_args = 0..=1)]
    pub(crate) hall: Option<Option<PathBuf>>,
    /// Also check the host at this URL [default: the hosts that serve the local members]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// How to authenticate to running hosts
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// The sources and the runtime that a host would be started with
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// The location of the members and of the operator's policy
    #[command(flatten)]
    pub(crate) local: LocalArgs,
    /// Print the checks as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A parser for the role of a token.
fn roles() -> impl TypedValueParser<Value = Role> {
    PossibleValuesParser::new(Role::ALL.iter().copied().map(Role::as_str)).try_map(|name| name.parse::<Role>())
}

/// An amount of US dollars.
fn usd(text: &str) -> Result<f64, String> {
    let amount = text.parse::<f64>().ok().filter(|usd| usd.is_finite() && *usd >= 0.0);
    amount.ok_or_else(|| "expected an amount of US dollars, such as 5 or 0.50".to_owned())
}

/// `guild cluster`.
#[derive(Debug, Subcommand)]
pub(crate) enum Cluster {
    /// Write the configuration, certificates and credentials of a cluster; or make the streams at its NATS servers
    Init(ClusterInit),
    /// Show the hosts, jobs and streams of a cluster, and how its hosts differ
    Status(ClusterStatus),
    /// Publish a member, which every host of the cluster has then
    Publish(ClusterPublish),
    /// Withdraw a published member from every host of the cluster
    Withdraw(ClusterWithdraw),
    /// Stop the host on this machine, and wait until its jobs are others'
    Drain(ClusterDrain),
    /// Put the jobs and notes of members on this machine into the cluster
    Import(ClusterImport),
    /// Remove what no job and no published member needs any more from the NATS servers
    Sweep(ClusterSweep),
}

/// `guild cluster drain`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  guild cluster drain --config /etc/guild/guild.toml

The host accepts no more jobs, gives each job back at the end of its session's turn, and ends, after a minute at most. \
The other hosts go on with its jobs. SIGTERM does the same.")]
pub(crate) struct ClusterDrain {
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
}

/// `guild cluster import`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild cluster import --members ./guild-members
  guild restore guild-2026-11-27.tar.gz /srv/old && guild cluster import --members /srv/old/members

It reads jobs/ and memory/ of each member, as a host without a cluster has them. Jobs and notes that the cluster has \
already stay as they are there. A job that had not ended goes on at a host of the cluster if it was begun in this \
cluster, and fails there otherwise. No host may serve the members meanwhile.")]
pub(crate) struct ClusterImport {
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// `guild cluster sweep`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild cluster sweep --credentials admin/nats.nk

It replaces the logs of jobs that have ended by one message each, and removes files that were stored a day ago or more \
and that no job names any more. Run it once a day. Hosts may remove nothing, so it needs the administrator's \
credentials.")]
pub(crate) struct ClusterSweep {
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    #[command(flatten)]
    pub(crate) administrator: Administrator,
}

/// The administrator of a cluster.
#[derive(Debug, Args)]
pub(crate) struct Administrator {
    /// The administrator's credentials at NATS, in place of those in guild.toml
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) credentials: Option<PathBuf>,
}

/// `guild cluster publish`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild cluster publish researcher
  guild cluster publish ./researcher --credentials admin/nats.nk

It needs a guild.toml with [cluster], and a member that its `require_approval` lets in: `guild approve` shows it and \
asks. The hosts trust what is published, since it is sealed with the cluster's key. A host replaces the files of an \
earlier publication, and no others; jobs and memories stay.")]
pub(crate) struct ClusterPublish {
    /// The member's key in the directory of members, or its directory
    pub(crate) member: String,
    #[command(flatten)]
    pub(crate) local: LocalArgs,
    #[command(flatten)]
    pub(crate) administrator: Administrator,
}

/// `guild cluster withdraw`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  guild cluster withdraw researcher --credentials admin/nats.nk")]
pub(crate) struct ClusterWithdraw {
    /// The member's key
    pub(crate) member: MemberKey,
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    #[command(flatten)]
    pub(crate) administrator: Administrator,
}

/// `guild cluster status`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild cluster status
  guild cluster status --config /etc/guild/guild.toml --json

The command reads NATS with the credentials of [cluster] in a host's guild.toml, and writes nothing. The host need not \
run.")]
pub(crate) struct ClusterStatus {
    /// The location of the operator's policy
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    /// Print the state as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `guild cluster init`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  guild cluster init ./acme --name acme --nodes n1,n2,n3 --hosts a,b,c
  guild cluster init --servers tls://n1:4222,tls://n2:4222 --credentials acme/admin/nats.nk --ca acme/admin/ca.pem --key \
acme/admin/cluster.key
  guild cluster init --servers nats://127.0.0.1:4222 --replicas 1 --log-gib 1 --blob-gib 1 --key ./acme.key
                                                                                        (one server, to try it)

With a directory, the command writes into it nodes/NODE with nats.conf and certificates for each NATS server, hosts/HOST \
with the credentials and the [cluster] of guild.toml for each host, and admin with the administrator's credentials, \
which no host gets. It reaches no server, and prints the command that makes the streams once the servers run.

With --servers, it makes the streams, which takes the administrator's credentials. Streams that are there are checked, \
and stay. The file of the key is made if it is not there, and the [cluster] for guild.toml is printed then; each host \
gets a copy.")]
pub(crate) struct ClusterInit {
    /// Write the files of a new cluster into this directory, which is empty or does not exist
    #[arg(value_name = "DIR", required_unless_present = "servers", requires = "nodes", requires = "hosts")]
    pub(crate) directory: Option<PathBuf>,
    /// The NATS servers, one or an odd number, with commas between: HOST or HOST:PORT [default port: 4222]. Nodes reach
    /// each other at the port + 2000, and hosts reach a node's monitoring at the port + 4000
    #[arg(long, value_name = "NODES", value_delimiter = ',', requires = "directory")]
    pub(crate) nodes: Vec<Node>,
    /// The names of the hosts, with commas between. Name a few more than there are, for later
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "directory")]
    pub(crate) hosts: Vec<String>,
    /// Let the servers tell about themselves at 127.0.0.1 only, without encryption. A host then asks the server on its own
    /// machine
    #[arg(long, conflicts_with = "servers")]
    pub(crate) monitor_loopback: bool,
    /// The days until the certificates expire
    #[arg(long, value_name = "DAYS", default_value_t = 3650, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) days: u16,
    /// The name of the cluster
    #[arg(long, value_name = "NAME", default_value = "guild")]
    pub(crate) name: String,
    /// Make the streams at the NATS servers at these addresses, with commas between
    #[arg(long, value_name = "URLS", value_delimiter = ',', conflicts_with = "directory", requires = "key")]
    pub(crate) servers: Vec<String>,
    /// The administrator's credentials at NATS
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "directory")]
    pub(crate) credentials: Option<PathBuf>,
    /// The certificate of the authority of the NATS servers
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "directory")]
    pub(crate) ca: Option<PathBuf>,
    /// The number of servers that have each message [default: 3; with --nodes, at most their number]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=5))]
    pub(crate) replicas: Option<u8>,
    /// The most GiB of jobs at each server
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) log_gib: u16,
    /// The most GiB of artifacts and other large files of jobs at each server
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) blob_gib: u16,
    /// The file with the cluster's key
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "directory")]
    pub(crate) key: Option<PathBuf>,
}
