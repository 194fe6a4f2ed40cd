//! The errors of this crate. Each text says what to do.

/// The reason that an artifact was not packed, pushed, pulled or put in place.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// A text is no reference.
    #[error(
        "{text:?} is no reference to an artifact: {why}; write REGISTRY/NAME:VERSION, as registry.example/researcher:1.0.0, \
         or REGISTRY/NAME@sha256:DIGEST"
    )]
    Reference {
        /// The text.
        text: String,
        /// The reason.
        why: String,
    },
    /// The registry cannot be reached.
    #[error("the registry {registry} does not answer: {why}; check its name, and that it runs")]
    Away {
        /// The registry.
        registry: String,
        /// The reason.
        why: String,
    },
    /// The registry refuses access, and there are no credentials for it.
    #[error(
        "the registry {registry} requires credentials for this, and docker's config.json has none for it; run `docker login {registry}`"
    )]
    NoCredentials {
        /// The registry.
        registry: String,
    },
    /// The registry refuses the credentials.
    #[error(
        "the registry {registry} refuses the credentials of docker's config.json for this; run `docker login {registry}` as a user who may do it"
    )]
    Refused {
        /// The registry.
        registry: String,
    },
    /// The credentials in docker's configuration cannot be used.
    #[error(
        "the credentials for {registry} in docker's config.json cannot be used: {why}; run `docker login {registry}` again"
    )]
    Credentials {
        /// The registry.
        registry: String,
        /// The reason.
        why: String,
    },
    /// The registry has no such artifact.
    #[error("the registry has no {reference}; check its name and its version")]
    NotFound {
        /// The reference.
        reference: String,
    },
    /// There is no tag that is a version.
    #[error("{reference} has no tag that is a version; name a tag, or a digest")]
    NoVersion {
        /// The reference.
        reference: String,
    },
    /// The content has another digest than expected.
    #[error(
        "{reference} was refused: the content from the registry has the digest {actual} in place of {expected}; nothing of it \
             was kept; inform the operator of the registry"
    )]
    Digest {
        /// The reference.
        reference: String,
        /// The digest of the reference, of the registry's answer, or of the manifest.
        expected: String,
        /// The digest of the content.
        actual: String,
    },
    /// The artifact is no member.
    #[error(
        "{reference} is no member: {found}; `guild push` makes artifacts of the type application/vnd.guild.member.v1"
    )]
    OtherKind {
        /// The reference.
        reference: String,
        /// The description of the artifact.
        found: String,
    },
    /// The artifact is a member, and invalid.
    #[error("{reference} was refused, and nothing of it was kept: {why}")]
    Invalid {
        /// The reference.
        reference: String,
        /// The reason.
        why: String,
    },
    /// The registry failed in another way.
    #[error("the registry {registry} failed: {why}")]
    Failed {
        /// The registry.
        registry: String,
        /// The reason.
        why: String,
    },
    /// The directory to pack is no member that can be packed.
    #[error("{0}")]
    Member(String),
}
