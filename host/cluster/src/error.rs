//! The errors of the cluster's store.

/// The reason that the store did not do something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No server of the cluster answered in time. A write may have been stored nevertheless.
    #[error(
        "the cluster's store cannot be reached: {0}; check `servers` and `ca` in [cluster] of guild.toml, and that more \
         than half of the NATS nodes run"
    )]
    Unreachable(String),
    /// The servers do not accept this host's credentials, or do not let it do this.
    #[error("NATS denies this host: {0}; check `credentials` in [cluster] of guild.toml")]
    Denied(String),
    /// A stream has reached its `max_bytes` or its account's limit.
    #[error("the stream {stream} is full: {reason}; raise its limit with `nats stream edit {stream} --max-bytes`")]
    Full {
        /// The stream.
        stream: &'static str,
        /// The server's reason.
        reason: String,
    },
    /// The servers do not make a stream of this size at so many servers.
    #[error(
        "NATS refuses: {0}; name smaller sizes with --log-gib and --blob-gib, or as many --replicas as there are servers at \
         most, or give the servers more room (`max_file` in nats.conf)"
    )]
    NoRoom(String),
    /// A stream is missing.
    #[error("the stream {0} is missing at NATS; make the streams with `guild cluster init`")]
    Missing(&'static str),
    /// A stream has another shape than this host needs.
    #[error(
        "the stream {stream} has {found} where this host needs {needed}; correct it with `nats stream edit {stream}`"
    )]
    Shape {
        /// The stream.
        stream: &'static str,
        /// The setting and its value.
        found: String,
        /// The value that is needed.
        needed: String,
    },
    /// A server cannot keep what it acknowledges.
    #[error("the NATS server at {server} {reason}")]
    Unfit {
        /// The server's address.
        server: String,
        /// The mistake, and the remedy.
        reason: String,
    },
    /// Another host of the same name is alive.
    #[error("another host named {0} is alive in this cluster; set another `host` in [cluster] of guild.toml")]
    SameName(String),
    /// Another host serves the hall.
    #[error("the host {0} serves the hall of this cluster; start this one without --hall, or stop that one first")]
    HallServed(String),
    /// The hosts at these servers have another key, or another name of the cluster.
    #[error(
        "the hosts {0} of this cluster have another key, or another `name` in [cluster], than this one; copy both from one of \
         them, or give this cluster servers or an account of its own; if the \
         key was replaced at all hosts, remove their cards with `nats stream purge KV_guild_hosts`"
    )]
    OtherKey(String),
    /// A record or a blob cannot be read.
    #[error("{0}")]
    Damaged(String),
    /// A file of this machine cannot be read or written.
    #[error("{0}")]
    File(String),
    /// The request cannot be stored at all.
    #[error("NATS refuses a message for {subject}: {reason}")]
    Invalid {
        /// The subject.
        subject: String,
        /// The reason.
        reason: String,
    },
}
