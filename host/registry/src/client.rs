//! Asks a registry.

use std::{error::Error, time::Duration};

use bytes::Bytes;
use futures::TryStreamExt as _;
use guild_contract::Limits;
use oci_client::{
    Client,
    client::{ClientConfig, ClientProtocol},
    errors::{DigestError, OciDistributionError as ClientError, OciErrorCode},
    manifest::{
        IMAGE_MANIFEST_LIST_MEDIA_TYPE, IMAGE_MANIFEST_MEDIA_TYPE, OCI_IMAGE_INDEX_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE,
        OciDescriptor, OciImageManifest,
    },
    secrets::RegistryAuth,
};
use tokio::time::timeout;

use crate::{
    artifact::{Artifact, MemberFiles, digest},
    credentials,
    error::RegistryError,
    part::{ARTIFACT_TYPE, Part},
    reference::Reference,
    versions::{newest, version},
};

/// The time to connect.
const CONNECT: Duration = Duration::from_secs(10);
/// The time between two pieces of an answer.
const READ: Duration = Duration::from_secs(30);
/// The time of a small answer: a manifest, or a page of tags.
const SMALL: Duration = Duration::from_secs(60);
/// The most bytes of an artifact's manifest.
const MANIFEST_BYTES: usize = 1024 * 1024;
/// The tags of one page.
const PAGE: usize = 1000;
/// The most pages of tags.
const PAGES: usize = 20;
/// The program's name in requests.
const USER_AGENT: &str = concat!("guild/", env!("CARGO_PKG_VERSION"));
/// The manifests that are understood, or refused with their kind.
const MANIFESTS: [&str; 4] =
    [OCI_IMAGE_MEDIA_TYPE, OCI_IMAGE_INDEX_MEDIA_TYPE, IMAGE_MANIFEST_MEDIA_TYPE, IMAGE_MANIFEST_LIST_MEDIA_TYPE];

/// A registry, with the user's credentials for it.
pub struct Registry {
    client: Client,
    auth: RegistryAuth,
    name: String,
}

/// A pulled member.
#[derive(Debug)]
pub struct Pulled {
    /// The member.
    pub files: MemberFiles,
    /// The digest of the artifact's manifest.
    pub digest: String,
}

impl Registry {
    /// The registry of a reference. This asks nothing yet. A registry on this machine is asked without TLS.
    ///
    /// # Errors
    ///
    /// Returns an error when the credentials for the registry cannot be used.
    pub fn of(reference: &Reference) -> Result<Self, RegistryError> {
        let name = reference.registry.clone();
        let protocol = if reference.is_loopback() { ClientProtocol::Http } else { ClientProtocol::Https };
        let config = ClientConfig {
            protocol,
            connect_timeout: Some(CONNECT),
            read_timeout: Some(READ),
            user_agent: USER_AGENT,
            ..ClientConfig::default()
        };
        let failed = |e: ClientError| RegistryError::Failed { registry: name.clone(), why: causes(&e) };
        let client = Client::try_from(config).map_err(failed)?;
        Ok(Self { client, auth: credentials::of_registry(&name)?, name })
    }

    /// Pushes an artifact, under the reference's tag.
    ///
    /// # Errors
    ///
    /// Returns an error when the registry does not accept the artifact.
    pub async fn push(&self, reference: &Reference, artifact: &Artifact) -> Result<(), RegistryError> {
        let image = reference.for_client();
        let failed = |e| self.failed(reference, e);
        self.client.store_auth_if_needed(&self.name, &self.auth).await;
        for blob in &artifact.blobs {
            let digest = digest(blob);
            if !self.client.blob_exists(&image, &digest).await.unwrap_or_default() {
                self.client.push_blob(&image, blob.clone(), &digest).await.map_err(failed)?;
            }
        }
        let media_type = OCI_IMAGE_MEDIA_TYPE.parse().map_err(|_| self.broken("no header"))?;
        self.client.push_manifest_raw(&image, artifact.manifest.clone(), media_type).await.map_err(failed)?;
        Ok(())
    }

    /// Pulls a member, with each of its files within the limits. The digests of all that is returned were checked.
    ///
    /// # Errors
    ///
    /// Returns an error when the registry has no such artifact, or when the artifact is no valid member.
    pub async fn pull(&self, reference: &Reference, limits: &Limits) -> Result<Pulled, RegistryError> {
        let image = reference.for_client();
        let manifest = self.client.pull_manifest_raw(&image, &self.auth, &MANIFESTS);
        let (manifest, _) = self.small(reference, manifest).await?;
        let invalid = |why: String| RegistryError::Invalid { reference: reference.to_string(), why };
        let actual = digest(&manifest);
        if let Some(expected) = reference.digest.clone().filter(|expected| *expected != actual) {
            return Err(RegistryError::Digest { reference: reference.to_string(), expected, actual });
        }
        if manifest.len() > MANIFEST_BYTES {
            return Err(invalid(format!("its manifest has more than {MANIFEST_BYTES} bytes")));
        }
        let layers =
            layers(&manifest).map_err(|found| RegistryError::OtherKind { reference: reference.to_string(), found })?;
        let mut parts: Vec<(Part, Bytes)> = Vec::new();
        for layer in layers {
            let unknown =
                || format!("it has a layer of the type {:?}, which this guild does not know", layer.media_type);
            let part = Part::of_type(&layer.media_type).ok_or_else(unknown).map_err(invalid)?;
            if parts.iter().any(|(other, _)| *other == part) {
                return Err(invalid(format!("it has two layers of the type {}", layer.media_type)));
            }
            parts.push((part, self.layer(reference, &layer, part.max_bytes(limits)).await?));
        }
        let files = MemberFiles::of(parts).map_err(invalid)?;
        Ok(Pulled { files, digest: actual })
    }

    /// Reads a layer of at most `max` bytes.
    async fn layer(&self, reference: &Reference, layer: &OciDescriptor, max: u64) -> Result<Bytes, RegistryError> {
        let size = u64::try_from(layer.size).unwrap_or(u64::MAX);
        let invalid = |why: String| RegistryError::Invalid { reference: reference.to_string(), why };
        if size > max {
            let kind = &layer.media_type;
            return Err(invalid(format!("its layer of the type {kind} has {size} bytes, and may have {max}")));
        }
        let image = reference.for_client();
        let mut stream = self.client.pull_blob_stream(&image, layer).await.map_err(|e| self.failed(reference, e))?;
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        while let Some(piece) = stream.try_next().await.map_err(|e| self.failed(reference, e.into()))? {
            bytes.extend_from_slice(&piece);
            if bytes.len() as u64 > size {
                return Err(invalid(format!("the registry sent more than the {size} bytes of a layer")));
            }
        }
        Ok(bytes.into())
    }

    /// The reference with the newest version as its tag, where it has neither tag nor digest.
    ///
    /// # Errors
    ///
    /// Returns an error when the registry does not answer, or when no tag is a version.
    pub async fn resolve(&self, reference: Reference) -> Result<Reference, RegistryError> {
        if reference.tag.is_some() || reference.digest.is_some() {
            return Ok(reference);
        }
        let tags = self.tags(&reference).await?;
        let newest = newest(tags.iter().map(String::as_str), None);
        newest
            .map(|tag| reference.with_tag(tag))
            .ok_or_else(|| RegistryError::NoVersion { reference: reference.to_string() })
    }

    /// A newer artifact than the one that a reference named when it had the digest `digest` and the member was of the
    /// version `now`: the newest version among the tags, or the same tag with another digest if it is no version.
    ///
    /// # Errors
    ///
    /// Returns an error when the registry does not answer, or has no such repository.
    pub async fn newer(
        &self,
        reference: &Reference,
        digest: &str,
        now: &str,
    ) -> Result<Option<Reference>, RegistryError> {
        match &reference.tag {
            Some(tag) if version(tag).is_none() => {
                let moved = self.digest(reference).await? != digest;
                Ok(moved.then(|| reference.clone()))
            }
            tag => {
                let tags = self.tags(reference).await?;
                let newest = newest(tags.iter().map(String::as_str), Some(tag.as_deref().unwrap_or(now)));
                Ok(newest.map(|tag| reference.with_tag(tag)))
            }
        }
    }

    /// The tags of a repository.
    async fn tags(&self, reference: &Reference) -> Result<Vec<String>, RegistryError> {
        let image = reference.for_client();
        let mut tags = Vec::<String>::new();
        for _ in 0..PAGES {
            let page = self.client.list_tags(&image, &self.auth, Some(PAGE), tags.last().map(String::as_str));
            let page = self.small(reference, page).await?.tags;
            // A registry may have smaller pages than were asked for; some have one page, whatever the last tag was.
            if page.last().is_none_or(|last| tags.contains(last)) {
                break;
            }
            tags.extend(page);
        }
        Ok(tags)
    }

    /// The digest of the artifact that a tag names now.
    async fn digest(&self, reference: &Reference) -> Result<String, RegistryError> {
        let image = reference.for_client();
        self.small(reference, self.client.fetch_manifest_digest(&image, &self.auth)).await
    }

    /// Awaits a small answer.
    async fn small<T>(
        &self,
        reference: &Reference,
        answer: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, RegistryError> {
        match timeout(SMALL, answer).await {
            Ok(answer) => answer.map_err(|e| self.failed(reference, e)),
            Err(_) => Err(self.away(&format!("its answer took more than {} s", SMALL.as_secs()))),
        }
    }

    fn away(&self, why: &str) -> RegistryError {
        RegistryError::Away { registry: self.name.clone(), why: why.to_owned() }
    }

    fn broken(&self, why: &str) -> RegistryError {
        RegistryError::Failed { registry: self.name.clone(), why: why.to_owned() }
    }

    /// The error of a request, with what to do.
    fn failed(&self, reference: &Reference, error: ClientError) -> RegistryError {
        let not_found = || RegistryError::NotFound { reference: reference.to_string() };
        match error {
            ClientError::RequestError(e) if e.is_connect() || e.is_timeout() => self.away(&causes(&e)),
            ClientError::UnauthorizedError { .. }
            | ClientError::AuthenticationFailure(_)
            | ClientError::ServerError { code: 401 | 403, .. } => self.no_access(),
            ClientError::ImageManifestNotFoundError(_) | ClientError::ServerError { code: 404, .. } => not_found(),
            ClientError::RegistryError { envelope, .. } => {
                use OciErrorCode::{
                    BlobUnknown, Denied, ManifestBlobUnknown, ManifestUnknown, NameUnknown, NotFound, Unauthorized,
                };
                let codes: Vec<_> = envelope.errors.iter().map(|error| &error.code).collect();
                match () {
                    () if codes.iter().any(|code| matches!(code, Unauthorized | Denied)) => self.no_access(),
                    () if codes.iter().any(|code| {
                        matches!(code, ManifestUnknown | NameUnknown | NotFound | BlobUnknown | ManifestBlobUnknown)
                    }) =>
                    {
                        not_found()
                    }
                    () => self.broken(&envelope.to_string()),
                }
            }
            ClientError::DigestError(e) => self.digest_error(reference, &e),
            ClientError::IoError(e) => match e.get_ref().and_then(|e| e.downcast_ref::<DigestError>()) {
                Some(digest) => self.digest_error(reference, digest),
                None => self.away(&causes(&e)),
            },
            other => self.broken(&causes(&other)),
        }
    }

    fn no_access(&self) -> RegistryError {
        let registry = self.name.clone();
        match self.auth {
            RegistryAuth::Anonymous => RegistryError::NoCredentials { registry },
            _ => RegistryError::Refused { registry },
        }
    }

    fn digest_error(&self, reference: &Reference, error: &DigestError) -> RegistryError {
        match error {
            DigestError::VerificationError { expected, actual } => RegistryError::Digest {
                reference: reference.to_string(),
                expected: expected.clone(),
                actual: actual.clone(),
            },
            other => self.broken(&other.to_string()),
        }
    }
}

/// The layers of a member's manifest. The error says what the manifest is instead.
fn layers(manifest: &[u8]) -> Result<Vec<OciDescriptor>, String> {
    let index = "it is an index of several artifacts";
    let manifest: OciImageManifest = serde_json::from_slice(manifest).map_err(|_| index.to_owned())?;
    let kind = manifest.artifact_type.unwrap_or(manifest.config.media_type);
    if kind != ARTIFACT_TYPE {
        return Err(format!("it has the type {kind:?}"));
    }
    Ok(manifest.layers)
}

/// The text of an error with those of its causes.
fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let why = error.to_string();
        if !text.contains(&why) {
            text.extend([": ", &why]);
        }
        cause = error.source();
    }
    text
}
