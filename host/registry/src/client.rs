//! Requests to a registry.
//!
//! `oci-client` reads a manifest, a list of tags and the answer of a token service whole, whatever their size. So the
//! requests for these are made here, with a bound.

use std::{error::Error, time::Duration};

use bytes::Bytes;
use futures::TryStreamExt as _;
use guild_contract::{Limits, text::one_line};
use http_auth::{ChallengeRef, parser::ChallengeParser};
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
use reqwest::{
    RequestBuilder, StatusCode,
    header::{ACCEPT, HeaderMap, WWW_AUTHENTICATE},
};
use serde::Deserialize;
use serde_json::Value;
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
/// The time of a small answer: a manifest, a page of tags, or a token.
const SMALL: Duration = Duration::from_secs(60);
/// The most bytes of a small answer. The manifest of a member has some 3 kB. A page of tags has at most 131 kB, but some
/// registries send all tags in one page: 45,000 tags of 20 characters fit.
const SMALL_BYTES: usize = 1024 * 1024;
/// The most bytes of a small answer that is an error.
const ERROR_BYTES: usize = 16 * 1024;
/// The most characters of such an error that are shown.
const ERROR_CHARS: usize = 300;
/// The tags of one page.
const PAGE: usize = 1000;
/// The most pages of tags.
const PAGES: usize = 20;
/// The header with the digest of a manifest.
const DIGEST_HEADER: &str = "docker-content-digest";
/// The program's name in requests.
const USER_AGENT: &str = concat!("guild/", env!("CARGO_PKG_VERSION"));
/// The media types of manifests that are read, or refused with their kind.
const MANIFESTS: [&str; 4] =
    [OCI_IMAGE_MEDIA_TYPE, OCI_IMAGE_INDEX_MEDIA_TYPE, IMAGE_MANIFEST_MEDIA_TYPE, IMAGE_MANIFEST_LIST_MEDIA_TYPE];

/// A registry, with the user's credentials for it.
pub struct Registry {
    client: Client,
    /// The client for small answers.
    http: reqwest::Client,
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
    /// The registry of a reference. This makes no request yet. The requests to a registry on this machine go without TLS.
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
        let failed = |e: &dyn Error| RegistryError::Failed { registry: name.clone(), why: causes(e) };
        let client = Client::try_from(config).map_err(|e| failed(&e))?;
        let http = reqwest::Client::builder().connect_timeout(CONNECT).read_timeout(READ).user_agent(USER_AGENT);
        let http = http.build().map_err(|e| failed(&e))?;
        Ok(Self { client, http, auth: credentials::of_registry(&name)?, name })
    }

    /// Pushes an artifact under the reference's tag.
    ///
    /// # Errors
    ///
    /// Returns an error when the registry does not accept the artifact.
    pub async fn push(&self, reference: &Reference, artifact: &Artifact) -> Result<(), RegistryError> {
        let image = reference.for_client();
        let failed = |e| self.failed(reference, e);
        self.authorize(reference, "pull,push").await?;
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

    /// Pulls a member, with each of its files within the limits. All digests are checked.
    ///
    /// # Errors
    ///
    /// Returns an error when the registry has no such artifact, or when the artifact is no valid member.
    pub async fn pull(&self, reference: &Reference, limits: &Limits) -> Result<Pulled, RegistryError> {
        let invalid = |why: String| RegistryError::Invalid { reference: reference.to_string(), why };
        let (manifest, digest) = self.manifest(reference).await?;
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
        Ok(Pulled { files, digest })
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

    /// The reference, with the newest version as its tag if it has neither tag nor digest.
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
                let moved = self.manifest(reference).await?.1 != digest;
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
        let mut tags = Vec::<String>::new();
        for _ in 0..PAGES {
            let request = self.request(reference, "tags/list").await?.query(&[("n", PAGE)]);
            let request = request.query(&tags.last().map(|last| [("last", last)]));
            let (page, _) = self.small(reference, request, "list of tags").await?;
            let page: TagPage = serde_json::from_slice(&page)
                .map_err(|e| self.broken(&format!("its list of tags cannot be read: {e}")))?;
            let page = page.tags.unwrap_or_default();
            // A registry may have smaller pages than requested; some have one page, whatever the last tag was.
            if page.last().is_none_or(|last| tags.contains(last)) {
                break;
            }
            tags.extend(page);
        }
        Ok(tags)
    }

    /// The manifest of an artifact, and its digest, which is that of the reference if it has one.
    async fn manifest(&self, reference: &Reference) -> Result<(Bytes, String), RegistryError> {
        let image = reference.for_client();
        let name = image.digest().or(image.tag()).unwrap_or_default();
        let request = self.request(reference, &format!("manifests/{name}")).await?;
        let request = request.header(ACCEPT, MANIFESTS.join(", "));
        let (manifest, headers) = self.small(reference, request, "manifest").await?;
        let actual = digest(&manifest);
        let of_header = headers.get(DIGEST_HEADER).and_then(|value| value.to_str().ok()).map(str::to_owned);
        // Other algorithms than SHA-256 are not checked.
        let of_header = of_header.filter(|digest| digest.starts_with("sha256:"));
        match reference.digest.clone().or(of_header).filter(|expected| *expected != actual) {
            Some(expected) => Err(RegistryError::Digest { reference: reference.to_string(), expected, actual }),
            None => Ok((manifest, actual)),
        }
    }

    /// A request for a small answer about a repository, with the credentials that the registry requires.
    async fn request(&self, reference: &Reference, path: &str) -> Result<RequestBuilder, RegistryError> {
        let auth = self.authorize(reference, "pull").await?;
        let image = reference.for_client();
        let request = self.http.get(format!("{}{}/{path}", api(reference, &image), image.repository()));
        Ok(match auth {
            RegistryAuth::Bearer(token) => request.bearer_auth(token),
            RegistryAuth::Basic(user, password) => request.basic_auth(user, Some(password)),
            RegistryAuth::Anonymous => request,
        })
    }

    /// The authorization for requests about a repository: a token if the registry asks for one, or else the credentials.
    /// The client uses it too, and makes no request for a token itself.
    async fn authorize(&self, reference: &Reference, actions: &str) -> Result<RegistryAuth, RegistryError> {
        let image = reference.for_client();
        let asked = timeout(SMALL, self.http.get(api(reference, &image)).send()).await;
        let asked = asked.map_err(|_| self.late())?;
        let asked = asked.map_err(|e| self.failed(reference, ClientError::RequestError(e)))?;
        let challenges = asked.headers().get_all(WWW_AUTHENTICATE).iter().filter_map(|header| header.to_str().ok());
        let auth = match challenges.flat_map(ChallengeParser::new).flatten().find_map(|one| TokenService::of(&one)) {
            None => self.auth.clone(),
            Some(TokenService { realm, service }) => {
                let scope = format!("repository:{}:{actions}", image.repository());
                let request =
                    self.http.get(realm).query(&[("scope", scope)]).query(&service.map(|name| [("service", name)]));
                let request = match &self.auth {
                    RegistryAuth::Basic(user, password) => request.basic_auth(user, Some(password)),
                    _ => request,
                };
                let (answer, _) = self.small(reference, request, "token").await?;
                let token: Token = serde_json::from_slice(&answer)
                    .map_err(|e| self.broken(&format!("its token cannot be read: {e}")))?;
                let token = token.token.or(token.access_token);
                RegistryAuth::Bearer(token.ok_or_else(|| self.broken("its token service answered without a token"))?)
            }
        };
        // Without credentials the client does not ask the registry which ones it wants.
        if auth != RegistryAuth::Anonymous {
            self.client.store_auth_if_needed(&self.name, &auth).await;
        }
        Ok(auth)
    }

    /// Makes a request for a small answer. No more than its bound is read into memory.
    async fn small(
        &self,
        reference: &Reference,
        request: RequestBuilder,
        what: &str,
    ) -> Result<(Bytes, HeaderMap), RegistryError> {
        let answer = async {
            let failed = |e: reqwest::Error| self.failed(reference, ClientError::RequestError(e));
            let mut response = request.send().await.map_err(failed)?;
            let (status, headers) = (response.status(), response.headers().clone());
            let max = if status.is_success() { SMALL_BYTES } else { ERROR_BYTES };
            let mut bytes = Vec::new();
            while let Some(piece) = response.chunk().await.map_err(failed)? {
                bytes.extend_from_slice(&piece);
                if bytes.len() > max && status.is_success() {
                    let why = format!("its {what} has more than {SMALL_BYTES} bytes");
                    return Err(RegistryError::Invalid { reference: reference.to_string(), why });
                }
                if bytes.len() > max {
                    break;
                }
            }
            match status {
                status if status.is_success() => Ok((bytes.into(), headers)),
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(self.no_access()),
                StatusCode::NOT_FOUND => Err(RegistryError::NotFound { reference: reference.to_string() }),
                status => {
                    let text = one_line(&String::from_utf8_lossy(&bytes), ERROR_CHARS);
                    Err(self.broken(&format!("it answered with {status}: {text}")))
                }
            }
        };
        timeout(SMALL, answer).await.unwrap_or_else(|_| Err(self.late()))
    }

    fn late(&self) -> RegistryError {
        self.away(&format!("its answer took more than {} s", SMALL.as_secs()))
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

/// The beginning of the addresses of a registry's API.
fn api(reference: &Reference, image: &oci_client::Reference) -> String {
    let scheme = if reference.is_loopback() { "http" } else { "https" };
    format!("{scheme}://{}/v2/", image.resolve_registry())
}

/// A service that makes tokens, as a registry names it.
struct TokenService {
    realm: String,
    service: Option<String>,
}

impl TokenService {
    /// The service in a challenge.
    fn of(challenge: &ChallengeRef<'_>) -> Option<Self> {
        let named = |name: &str| challenge.params.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
        let value = |name: &str| named(name).map(|(_, value)| value.to_unescaped());
        let is_bearer = challenge.scheme.eq_ignore_ascii_case("Bearer");
        is_bearer.then(|| Some(Self { realm: value("realm")?, service: value("service") }))?
    }
}

/// The answer of a token service. The token has one of two names.
#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

/// A page of tags.
#[derive(Deserialize)]
struct TagPage {
    /// Null in a repository without tags.
    tags: Option<Vec<String>>,
}

/// The layers of a member's manifest. The error describes the manifest of another artifact.
fn layers(manifest: &[u8]) -> Result<Vec<OciDescriptor>, String> {
    let manifest: Value = serde_json::from_slice(manifest).map_err(|e| format!("its manifest is not JSON: {e}"))?;
    if manifest.get("manifests").is_some() {
        return Err("it is an index of several artifacts".to_owned());
    }
    let manifest: OciImageManifest =
        serde_json::from_value(manifest).map_err(|e| format!("its manifest is not that of an artifact: {e}"))?;
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_manifest_without_layers_of_a_member_says_what_is_wrong() {
        let config = json!({"mediaType": "application/vnd.oci.image.config.v1+json", "digest": "sha256:0", "size": 2});
        for (manifest, why) in [
            ("<html>".to_owned(), "its manifest is not JSON: expected value at line 1"),
            ("[]".to_owned(), "its manifest is not that of an artifact: "),
            (json!({"schemaVersion": 1, "fsLayers": []}).to_string(), "missing field `config`"),
            (json!({"schemaVersion": 2, "manifests": []}).to_string(), "it is an index of several artifacts"),
            (json!({"schemaVersion": 2, "config": config, "layers": {}}).to_string(), "not that of an artifact: "),
            (
                json!({"schemaVersion": 2, "config": config, "layers": []}).to_string(),
                "it has the type \"application/vnd.oci.",
            ),
        ] {
            let error = layers(manifest.as_bytes()).unwrap_err();
            assert!(error.contains(why), "{manifest}: {error}");
        }
    }
}
