//! Verifies signatures of components in minisign's format, by the trusted keys of `guild.trust`.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use cap_std::fs::Dir;
use guild_config::text::read_file;
use guild_contract::{
    manifest::{FILE_NAME, POSTURE, POSTURE_BYTES, SIGNATURE_BYTES, SIGNATURE_SUFFIX, package},
    text::hex,
};
use guild_fs::durable::{Survives, if_there, open_dir, open_directory, read_whole, replace};
use minisign_verify::{Error, PublicKey};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::{declaration, error::FileError};

/// The name of the trust file, in the directory of `guild.toml`.
pub const TRUST_FILE: &str = "guild.trust";
/// The beginning of the first line of a key, and of a signature.
const COMMENT: &str = "untrusted comment: ";

/// The trusted keys: `guild.trust` has public keys of minisign, one after the other.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    keys: Vec<TrustedKey>,
}

#[derive(Clone, Debug)]
struct TrustedKey {
    /// The key's untrusted comment. The operator wrote the file.
    name: String,
    /// The key in base64, as minisign writes it.
    text: String,
    key: PublicKey,
}

/// Writes a file's signature beside the file, atomically, and returns its path.
///
/// # Errors
///
/// Returns an error, which names the signature, when the signature cannot be written, or when the file's name is not
/// UTF-8.
pub fn write_beside(file: &Path, signature: &str) -> io::Result<PathBuf> {
    let mut path = file.as_os_str().to_owned();
    path.push(SIGNATURE_SUFFIX);
    let path = PathBuf::from(path);
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the file's name is not UTF-8"))?;
    open_directory(directory)
        .and_then(|dir| replace(&open_dir(&dir, ".")?, name, signature.as_bytes(), Survives::PowerCut))
        .map_err(|e| io::Error::new(e.kind(), format!("{} cannot be written: {e}", path.display())))?;
    Ok(path)
}

/// The state of a component's signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Signature {
    /// The component has no signature.
    None,
    /// The signature is by a trusted key, and valid.
    Good {
        /// The public key, as minisign writes it.
        key: String,
        /// The key's name in `guild.trust`.
        name: String,
        /// The signed comment, without the digests.
        comment: String,
        /// Whether the signature covers the manifest and the posture too, and not only the component.
        whole: bool,
    },
    /// The signature is by a key that is not trusted, so it cannot be verified.
    Unknown,
    /// The signature is invalid, or the file has none.
    Bad {
        /// The reason.
        why: String,
    },
}

impl Trust {
    /// Reads the trust file of a directory; without one, no key is trusted.
    ///
    /// # Errors
    ///
    /// Returns an error when the file cannot be read, or a line is invalid.
    pub fn load(directory: &Path) -> Result<Self, FileError> {
        let text = if_there(read_file(&directory.join(TRUST_FILE))).map_err(FileError::unreadable(TRUST_FILE))?;
        text.map_or_else(|| Ok(Self::default()), |text| Self::parse(&text))
    }

    /// Reads the text of a trust file.
    ///
    /// # Errors
    ///
    /// Returns the first invalid line.
    pub fn parse(text: &str) -> Result<Self, FileError> {
        let wrong = |line: usize, text: &str| FileError::Invalid { file: TRUST_FILE, line, text: text.to_owned() };
        let mut trust = Self::default();
        let lines = text.lines().map(str::trim).enumerate().map(|(at, line)| (at + 1, line));
        let mut lines = lines.filter(|(_, line)| !line.is_empty());
        while let Some((at, line)) = lines.next() {
            let name = line.strip_prefix(COMMENT).ok_or_else(|| {
                wrong(at, "a key has two lines in minisign's format: `untrusted comment: NAME`, then the key")
            })?;
            let (at, text) = lines.next().ok_or_else(|| wrong(at, "the public key after this name is missing"))?;
            let key = PublicKey::from_base64(text).map_err(|_| {
                wrong(at, "this is not a public key of minisign, which begins with RW and has 56 characters")
            })?;
            if trust.keys.iter().any(|known| known.key == key) {
                return Err(wrong(at, "this key occurs twice; remove one of them"));
            }
            trust.keys.push(TrustedKey { name: name.trim().to_owned(), text: text.to_owned(), key });
        }
        Ok(trust)
    }

    /// The name of a trusted key.
    pub fn name(&self, key: &str) -> Option<&str> {
        self.keys.iter().find(|known| known.text == key).map(|known| known.name.as_str())
    }
}

/// The digests of the files beside the component, for a signature's trusted comment, which signs them:
/// `guild-member.json:SHA256`, `package.json:SHA256` if that declares the member, and `posture.md:SHA256` or
/// `posture.md:none`. Empty if there is no manifest beside it.
///
/// # Errors
///
/// Returns an error when a file cannot be read.
pub fn digests_beside(component: &Path) -> io::Result<String> {
    let directory = component.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let dir = open_dir(&open_directory(directory)?, ".")?;
    let mut said = Vec::new();
    for file in declaration::FILES {
        let digest = digest_of(&dir, file)?;
        said.extend((digest != NO_FILE).then(|| format!("{file}:{digest}")));
    }
    if !said.is_empty() {
        said.push(format!("{POSTURE}:{}", digest_of(&dir, POSTURE)?));
    }
    Ok(said.join("\t"))
}

/// The word for the digest of a missing file.
pub(crate) const NO_FILE: &str = "none";

/// The SHA-256 of a file in lower-case hexadecimal. A `package.json` that declares no member counts as missing.
fn digest_of(dir: &Dir, file: &str) -> io::Result<String> {
    let found = match file {
        POSTURE => read_whole(dir, file, POSTURE_BYTES).map(|found| found.map(|(bytes, _)| bytes)),
        _ => declaration::read(dir, file),
    };
    let found = found.map_err(|e| io::Error::new(e.kind(), format!("{file} cannot be read: {e}")))?;
    Ok(found.map_or_else(|| NO_FILE.to_owned(), |bytes| hex(&Sha256::digest(&bytes))))
}

impl Signature {
    /// Verifies `signature`, the content of the file beside the component, if there is one.
    pub fn of(component: &[u8], signature: Option<&[u8]>, trust: &Trust) -> Self {
        let Some(signature) = signature else { return Self::None };
        let bad = |why: &str| Self::Bad { why: why.to_owned() };
        let decoded = str::from_utf8(signature).ok().and_then(|text| minisign_verify::Signature::decode(text).ok());
        let Some(decoded) = decoded else { return bad("its file is not a signature of minisign") };
        let mut found = Self::Unknown;
        for TrustedKey { name, text, key } in &trust.keys {
            // Two keys can have the same id, by which a signature names its key.
            match key.verify(component, &decoded, false) {
                Ok(()) => {
                    let comment = decoded.trusted_comment().to_owned();
                    return Self::Good { key: text.clone(), name: name.clone(), comment, whole: false };
                }
                Err(Error::UnexpectedKeyId) => {}
                Err(Error::UnexpectedAlgorithm) => {
                    found = bad("it was made in minisign's legacy mode; sign without `-l`");
                }
                Err(_) => {
                    found =
                        bad("it belongs to another state of the component, which has to be signed again after a change")
                }
            }
        }
        found
    }

    /// Verifies the signature beside the component `file` in a member's directory, and the digests of the manifest and
    /// the posture if the signature has them. A posture that may change is not compared.
    pub fn of_member(member: &Dir, file: &str, component: &[u8], trust: &Trust, is_posture_free: bool) -> Self {
        let mut found = match read_whole(member, format!("{file}{SIGNATURE_SUFFIX}"), SIGNATURE_BYTES) {
            Ok(signature) => Self::of(component, signature.as_ref().map(|(bytes, _)| bytes.as_slice()), trust),
            Err(e) => Self::Bad { why: format!("its file cannot be read: {e}") },
        };
        let Self::Good { comment, whole, .. } = &mut found else { return found };
        let (mut said, mut signed) = (Vec::new(), BTreeMap::new());
        for part in comment.split('\t') {
            match part.split_once(':') {
                Some((POSTURE, _)) if is_posture_free => {}
                Some((file @ (FILE_NAME | package::FILE_NAME | POSTURE), digest)) => _ = signed.insert(file, digest),
                _ => said.push(part),
            }
        }
        *whole = declaration::FILES.iter().any(|file| signed.contains_key(file));
        if *whole {
            // A file that was added beside the signed files would declare unsigned facts.
            declaration::FILES.into_iter().for_each(|file| _ = signed.entry(file).or_insert(NO_FILE));
        }
        for (file, digest) in signed {
            match digest_of(member, file) {
                Ok(found) if found == digest => {}
                Ok(_) => {
                    return Self::Bad {
                        why: format!(
                            "it belongs to another state of {file}; the member has to be signed again after a change"
                        ),
                    };
                }
                Err(e) => return Self::Bad { why: e.to_string() },
            }
        }
        *comment = said.join("\t");
        found
    }

    /// The trusted key of the signature.
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Good { key, .. } => Some(key),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key, and its signature of the bytes `a component`, made with `minisign` 0.11.
    const KEY: &str = "RWQgvX/O6hnmfVWKXUlFwQNUTpbg2yiKJoYTut2HkLmCeb13LJX/dEc4";
    const SIGNATURE: &str = "untrusted comment: signature from minisign
RUQgvX/O6hnmfc5ww3+4bNZBrm/MYKJL9o5+UtmRfDIBIbTpixEeZfBbIfPpDihOIaI8iNO2l0Aav14onKez0nJJF1fW5RrkXAY=
trusted comment: researcher 0.1.0
srut8K9oelTdeESkejTXyuWuJoT7t6EIp4kwoMXmaxUjDUAXWZBG+4al+hAUvAy9x+dswy9SxVEpetSh8tPrDg==
";
    /// A signature by the same key, made with `minisign -l`.
    const LEGACY: &str = "untrusted comment: signature from minisign secret key
RWQgvX/O6hnmfaiXIGfDgHvIhF0x4tqur3x8r/uV9CPjSEU7DVY7w+Z1e5abTG0mwlzJa76JLPHOqrJKE8A+HJPA0qxaCXj9Rgs=
trusted comment: legacy
cXmo9vQSzo3YOmMjnRIMdy9iqimXsHzffKNTDb4FL8BshCWY5CXu4/IT8tJlZjuLh949rg8MJD9wsYG37ibKDg==
";
    const COMPONENT: &[u8] = b"a component";

    fn trust() -> Trust {
        Trust::parse(&format!("untrusted comment: Ann\n{KEY}\n")).unwrap()
    }

    fn of(signature: &str) -> Signature {
        Signature::of(COMPONENT, Some(signature.as_bytes()), &trust())
    }

    #[test]
    fn a_signature_by_the_tool_minisign_is_good() {
        let good =
            Signature::Good { key: KEY.into(), name: "Ann".into(), comment: "researcher 0.1.0".into(), whole: false };
        assert_eq!(of(SIGNATURE), good);
        assert_eq!(Signature::of(COMPONENT, None, &trust()), Signature::None);
        assert_eq!(Signature::of(COMPONENT, Some(SIGNATURE.as_bytes()), &Trust::default()), Signature::Unknown);
    }

    #[test]
    fn what_is_not_of_these_bytes_is_bad() {
        let bad = |signature: &Signature| matches!(signature, Signature::Bad { .. });
        assert!(bad(&Signature::of(b"another", Some(SIGNATURE.as_bytes()), &trust())));
        assert!(bad(&of(&SIGNATURE.replace("researcher 0.1.0", "researcher 0.2.0"))));
        let legacy = of(LEGACY);
        assert!(matches!(&legacy, Signature::Bad { why } if why.contains("-l")), "{legacy:?}");
    }

    /// The signature's file comes from the member.
    #[test]
    fn only_the_signature_is_good_and_no_file_is_a_panic() {
        let bytes = SIGNATURE.as_bytes();
        for cut in 0..bytes.len() - 3 {
            let signature = Signature::of(COMPONENT, Some(&bytes[..cut]), &trust());
            assert!(matches!(signature, Signature::Bad { .. }), "cut at {cut}: {signature:?}");
        }
        for at in 0..bytes.len() {
            let mut bytes = bytes.to_vec();
            bytes[at] ^= 1;
            let signature = Signature::of(COMPONENT, Some(&bytes), &trust());
            // The first line is not signed, and the id of the key only selects the key.
            let first = at <= SIGNATURE.find('\n').unwrap();
            assert!(first || signature.key().is_none(), "changed at {at}: {signature:?}");
        }
    }

    #[test]
    fn a_trust_file_is_public_keys_one_after_the_other_and_a_bad_line_is_named() {
        let key = |name: &str, key: &str| format!("untrusted comment: {name}\n{key}\n");
        let other = KEY.replace("dEc4", "dEc8");
        let two = Trust::parse(&format!("\n{}\r\n\n{}", key("Ann", KEY), key("Bob & Co", &other))).unwrap();
        assert_eq!((two.name(KEY), two.name(&other)), (Some("Ann"), Some("Bob & Co")));
        assert_eq!(Trust::parse("").unwrap().name(KEY), None);
        let cases = [
            (format!("{KEY}\n"), 1, "untrusted comment"),
            (format!("{}untrusted comment: Bob\n", key("Ann", KEY)), 3, "missing"),
            (key("Ann", "RWQ"), 2, "public key"),
            (key("Ann", "RWQAAEIyAAAAAAAAAAAAAAAA"), 2, "public key"),
            (format!("{}{}", key("Ann", KEY), key("Bob", KEY)), 4, "twice"),
        ];
        for (text, line, named) in cases {
            let error = Trust::parse(&text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("guild.trust:{line}: ")) && error.contains(named), "{error}");
        }
    }
}
