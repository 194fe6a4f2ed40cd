//! Loads the TLS certificate of `[tls]`, and replaces it while the host runs.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use guild_config::TlsFiles;
use guild_fs::{fingerprint::StrictFingerprint, regular_file};
use jiff::Timestamp;
use rustls::{
    CertificateError, RootCertStore, ServerConfig,
    client::verify_server_cert_signed_by_trust_anchor,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject as _},
    server::ParsedCertificate,
};
use tokio_rustls::TlsAcceptor;

/// The maximum size of a file, which exceeds any chain of certificates.
const MAX_PEM_BYTES: u64 = 1 << 20;
/// The minimum interval between two checks of the files.
const LOOK: Duration = Duration::from_secs(1);

/// The reason that TLS cannot be used. Each text names the file.
#[derive(Debug, thiserror::Error)]
#[error("[tls] of guild.toml: {}: {why}", path.display())]
pub struct TlsError {
    path: PathBuf,
    why: String,
}

/// TLS 1.2 and 1.3 for HTTP/1.1, with a certificate that can be replaced on disk: connections get the new one after at
/// most a second. If it is invalid, an error is logged, and the old one stays.
pub struct Tls {
    files: TlsFiles,
    current: Mutex<Current>,
}

struct Current {
    acceptor: TlsAcceptor,
    stamps: [Option<StrictFingerprint>; 2],
    looked: Instant,
}

impl Tls {
    /// # Errors
    ///
    /// Returns an error when a file cannot be read, has no certificate or no key, or the two do not match.
    pub fn open(files: &TlsFiles) -> Result<Self, TlsError> {
        let stamps = stamps(files);
        let current = Mutex::new(Current { acceptor: acceptor(files)?, stamps, looked: Instant::now() });
        warn_of_times(files);
        Ok(Self { files: files.clone(), current })
    }

    /// Whether clients accept the certificates at this time.
    ///
    /// # Errors
    ///
    /// Returns an error when a certificate has expired, or is not valid yet; the text names it.
    pub fn check_times(&self) -> Result<(), TlsError> {
        check_times(&self.files)
    }

    /// Whether the files are unchanged since `other` read them.
    pub fn is_same(&self, other: &Self) -> bool {
        let stamps = |tls: &Self| tls.current.lock().unwrap_or_else(PoisonError::into_inner).stamps;
        self.files == other.files && stamps(self) == stamps(other)
    }

    /// The acceptor for a connection.
    pub fn acceptor(&self) -> TlsAcceptor {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.looked.elapsed() >= LOOK {
            current.looked = Instant::now();
            let stamps = stamps(&self.files);
            if stamps != current.stamps {
                // While only one file of the pair has been replaced, the old pair stays in use.
                current.stamps = stamps;
                match acceptor(&self.files) {
                    Ok(acceptor) => {
                        tracing::info!("the certificate has changed");
                        warn_of_times(&self.files);
                        current.acceptor = acceptor;
                    }
                    Err(error) => tracing::error!("the certificate has changed, and the old one stays: {error}"),
                }
            }
        }
        current.acceptor.clone()
    }
}

fn stamps(files: &TlsFiles) -> [Option<StrictFingerprint>; 2] {
    [&files.certificate, &files.key].map(|file| StrictFingerprint::of(file).ok().flatten())
}

/// Logs the error of [`check_times`]: such a certificate is still served, since clients can be configured to accept it.
fn warn_of_times(files: &TlsFiles) {
    if let Err(error) = check_times(files) {
        tracing::warn!("clients refuse to connect: {error}");
    }
}

fn check_times(files: &TlsFiles) -> Result<(), TlsError> {
    let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
    let (roots, now) = (RootCertStore::empty(), UnixTime::now());
    for (number, certificate) in (1..).zip(chain(files)?) {
        let outside = |why: &str, time: UnixTime| {
            let time = i64::try_from(time.as_secs()).ok().and_then(|time| Timestamp::from_second(time).ok());
            let time = time.map_or_else(|| "a time that has no date".to_owned(), |time| time.to_string());
            Err(wrong(
                &files.certificate,
                format!("certificate {number} of the file {why} {time}; put a new one there"),
            ))
        };
        // The verifier trusts no authority. It checks the times first.
        let checked = ParsedCertificate::try_from(&certificate)
            .and_then(|parsed| verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], now, algorithms.all));
        match checked {
            Err(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
                return outside("expired at", not_after);
            }
            Err(rustls::Error::InvalidCertificate(CertificateError::NotValidYetContext { not_before, .. })) => {
                return outside("is not valid before", not_before);
            }
            _ => {}
        }
    }
    Ok(())
}

/// The certificates in the file, at least one.
fn chain(files: &TlsFiles) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates = &files.certificate;
    let pem = read(certificates)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let chain = chain.map_err(|e| wrong(certificates, format!("is not a PEM file: {e}")))?;
    if chain.is_empty() {
        return Err(wrong(certificates, "has no certificate; a PEM file has \"BEGIN CERTIFICATE\" in it".to_owned()));
    }
    Ok(chain)
}

fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, TlsError> {
    let (certificates, key) = (&files.certificate, &files.key);
    let chain = chain(files)?;
    let secret = PrivateKeyDer::from_pem_slice(&read(key)?)
        .map_err(|_| wrong(key, "has no private key; a PEM file has \"BEGIN PRIVATE KEY\" in it".to_owned()))?;
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, secret));
    let mut config = config.map_err(|e| wrong(key, format!("does not match {}: {e}", certificates.display())))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    regular_file::read(path, MAX_PEM_BYTES).map_err(|e| wrong(path, e.to_string()))
}

fn wrong(path: &Path, why: String) -> TlsError {
    TlsError { path: path.to_owned(), why }
}
