//! How loading a component, or calling it, fails. Each text is for the person who can change it; none shows a
//! host path or a backtrace.

use guild_contract::manifest::Interface;

/// Why a component is not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file could not be read.
    #[error("the component `{file}` cannot be read: {why}")]
    Read {
        /// As the manifest names it.
        file: String,
        /// What the system said.
        why: String,
    },
    /// The file is larger than `limits.component_bytes`.
    #[error("the component `{file}` is larger than limits.component_bytes = {max}")]
    TooLarge {
        /// As the manifest names it.
        file: String,
        /// The limit.
        max: u64,
    },
    /// The bytes are no component.
    #[error("{0}")]
    NotAComponent(String),
    /// An import that this host does not know.
    #[error(
        "the component imports `{0}`, which this host does not have; a plugin can use guild:worker and WASI 0.2 only"
    )]
    UnknownImport(String),
    /// An interface that the manifest does not ask for.
    #[error(
        "the component imports `{import}`, which its manifest does not ask for; \
         add the line `\"{}\": {{}}` to `component.grants` in guild-member.json", interface.as_str()
    )]
    NotAsked {
        /// The import as the component spells it.
        import: String,
        /// What to ask for.
        interface: Interface,
    },
    /// An interface of another version.
    #[error("the component uses `{name}`; this host has {package}@{host}, which serves {track} up to {host}")]
    Version {
        /// The interface with its version, as the component spells it.
        name: String,
        /// The package.
        package: &'static str,
        /// The host's version.
        host: String,
        /// The versions that it serves.
        track: String,
    },
    /// The component does not export what its world promises.
    #[error(
        "the manifest says `\"world\": \"{world}\"`, but the component does not export `{export}`; \
         export it, or name the world that it was built for"
    )]
    MissingExport {
        /// The world of the manifest.
        world: &'static str,
        /// The interface that is missing.
        export: &'static str,
    },
    /// The compiler, or the linker, refused it.
    #[error("the component cannot be loaded: {0}")]
    Refused(String),
    /// Compiling takes longer than `limits.compile_seconds`.
    #[error("compiling the component takes longer than limits.compile_seconds = {0}")]
    CompileTimeout(u32),
}

/// Why a call of a component did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// It got no turn in time. Nothing was done; the same call may succeed later.
    #[error("the host is busy: no turn within {0} s")]
    Busy(u32),
    /// The call took longer than its deadline.
    #[error("`{call}` did not end within its deadline of {seconds} s")]
    Deadline {
        /// `activate` or `run`.
        call: &'static str,
        /// The deadline.
        seconds: u32,
    },
    /// It asked for more than a limit gives.
    #[error("`{call}` needs more than {limit}")]
    Limit {
        /// `activate` or `run`.
        call: &'static str,
        /// The limit and its value, as `guild.toml` spells it.
        limit: String,
    },
    /// It trapped.
    #[error("the component failed in `{call}`: {why}")]
    Trap {
        /// `activate` or `run`.
        call: &'static str,
        /// What kind of trap.
        why: String,
    },
    /// It answered something that means nothing, such as invalid JSON or a bound of zero.
    #[error("the component's answer to `{call}` is not valid: {why}")]
    Invalid {
        /// `activate` or `run`.
        call: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The job was cancelled meanwhile.
    #[error("the job was cancelled")]
    Cancelled,
}
