//! References to artifacts: `REGISTRY/NAME:TAG`, `REGISTRY/NAME@sha256:DIGEST`, or both.

use std::{fmt, net::Ipv4Addr, str::FromStr};

use crate::error::RegistryError;

/// A reference to an artifact. The registry is always named: there is no default one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The registry: a host, with an optional port.
    pub registry: String,
    /// The name of the artifacts in the registry.
    pub repository: String,
    /// The tag. A registry can move it to another artifact at any time.
    pub tag: Option<String>,
    /// The digest of the artifact's manifest: `sha256:` and 64 hexadecimal digits.
    pub digest: Option<String>,
}

impl Reference {
    /// The last part of the repository's name.
    pub fn name(&self) -> &str {
        self.repository.rsplit('/').next().unwrap_or(&self.repository)
    }

    /// The reference with this tag, without a digest.
    pub fn with_tag(&self, tag: &str) -> Self {
        Self { tag: Some(tag.to_owned()), digest: None, ..self.clone() }
    }

    /// Whether the registry is on this machine, where plain HTTP is enough.
    pub(crate) fn is_loopback(&self) -> bool {
        let host = self.registry.split_once(':').map_or(&*self.registry, |(host, _)| host);
        host == "localhost" || host.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
    }

    /// The reference for the client. A digest takes precedence over the tag.
    pub(crate) fn for_client(&self) -> oci_client::Reference {
        let (registry, repository) = (self.registry.clone(), self.repository.clone());
        match (&self.digest, &self.tag) {
            (Some(digest), _) => oci_client::Reference::with_digest(registry, repository, digest.clone()),
            (None, tag) => oci_client::Reference::with_tag(registry, repository, tag.clone().unwrap_or_default()),
        }
    }
}

impl FromStr for Reference {
    type Err = RegistryError;

    fn from_str(text: &str) -> Result<Self, RegistryError> {
        let wrong = |why: &str| RegistryError::Reference { text: text.to_owned(), why: why.to_owned() };
        let parsed: oci_client::Reference = text.parse().map_err(|why| wrong(&format!("{why}")))?;
        let (registry, rest) = text.split_once('/').unwrap_or_default();
        if registry != "localhost" && !registry.contains(['.', ':']) {
            return Err(wrong("it names no registry"));
        }
        let digest = parsed.digest().map(str::to_owned);
        if digest.as_ref().is_some_and(|digest| !digest.starts_with("sha256:")) {
            return Err(wrong("its digest is not one of SHA-256"));
        }
        // The parser sets a missing tag to `latest`.
        let has_tag = rest.split('@').next().is_some_and(|named| named.contains(':'));
        let tag = parsed.tag().filter(|_| has_tag).map(str::to_owned);
        Ok(Self { registry: registry.to_owned(), repository: parsed.repository().to_owned(), tag, digest })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        self.tag.as_ref().map_or(Ok(()), |tag| write!(f, ":{tag}"))?;
        self.digest.as_ref().map_or(Ok(()), |digest| write!(f, "@{digest}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_written_as_it_is_read() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        for text in ["a.example/x", "a.example:5000/b/x:1.0.0", "localhost/x:v1"] {
            assert_eq!(text.parse::<Reference>().unwrap().to_string(), text);
            let pinned = format!("{text}@{digest}");
            let parsed = pinned.parse::<Reference>().unwrap();
            assert_eq!((parsed.to_string(), parsed.name()), (pinned, "x"));
        }
        assert_eq!("a.example/x".parse::<Reference>().unwrap().tag, None);
    }

    #[test]
    fn what_is_no_reference_says_how_one_is_written() {
        let sha512 = format!("a.example/x@sha512:{}", "0".repeat(128));
        for (text, named) in [
            ("", "at least one component"),
            ("researcher", "names no registry"),
            ("library/researcher:1", "names no registry"),
            ("a.example/X", "invalid"),
            ("a.example/x@sha256:12", "invalid"),
            ("https://a.example/x", "invalid"),
            (&sha512, "SHA-256"),
        ] {
            let error = text.parse::<Reference>().unwrap_err().to_string();
            assert!(error.contains(named) && error.contains("REGISTRY/NAME:VERSION"), "{text}: {error}");
        }
    }

    #[test]
    fn only_this_machine_is_asked_without_tls() {
        for (text, is) in [
            ("127.0.0.1:5000/x", true),
            ("localhost:5000/x", true),
            ("127.0.0.1.example/x", false),
            ("localhost.example/x", false),
            ("10.0.0.1:5000/x", false),
        ] {
            assert_eq!(text.parse::<Reference>().unwrap().is_loopback(), is, "{text}");
        }
    }
}
