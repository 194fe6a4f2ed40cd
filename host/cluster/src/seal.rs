//! Seals with the cluster's key, which NATS never has: what others wrote with NATS credentials is not believed.

use bytes::Bytes;
use guild_contract::text::hex;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::Sha256;

/// Bytes of a key.
const KEY_BYTES: usize = 32;
/// Hexadecimal digits of a digest of a setting.
const DIGEST_DIGITS: usize = 16;

/// The key that all hosts of a cluster have.
#[derive(Clone)]
pub struct Key([u8; KEY_BYTES]);

impl Key {
    /// A key of these bytes.
    pub fn new(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// The key of the cluster with this name: hosts of another name do not believe its seals, though their bytes are the
    /// same.
    pub fn of_cluster(name: &str, bytes: [u8; KEY_BYTES]) -> Self {
        let derived = Self(bytes).mac("cluster", name, &[]).map(|mac| mac.finalize().into_bytes().into());
        Self(derived.unwrap_or(bytes))
    }

    /// A digest of a setting, by which holders of the key compare it, and which tells others nothing.
    pub fn digest(&self, name: &str, content: &[u8]) -> String {
        self.seal("setting", name, content).chars().take(DIGEST_DIGITS).collect()
    }

    /// The seal of a content under a name. No seal of one kind or name is one of another.
    fn seal(&self, kind: &str, name: &str, content: &[u8]) -> String {
        self.mac(kind, name, content).map(|mac| hex(&mac.finalize().into_bytes())).unwrap_or_default()
    }

    /// Whether a seal is that of the content, in constant time.
    fn is_sealed(&self, kind: &str, name: &str, content: &[u8], seal: &str) -> bool {
        let digits = |at: usize| seal.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let seal: Option<Vec<u8>> = (0..seal.len()).step_by(2).map(digits).collect();
        let mac = self.mac(kind, name, content);
        seal.zip(mac).is_some_and(|(seal, mac)| mac.verify_slice(&seal).is_ok())
    }

    fn mac(&self, kind: &str, name: &str, content: &[u8]) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).ok()?;
        for part in [kind.as_bytes(), name.as_bytes(), content] {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        Some(mac)
    }
}

/// A value under a seal, as it is stored.
#[derive(Serialize, Deserialize)]
struct Sealed {
    /// The value as JSON: the text that is sealed.
    value: String,
    seal: String,
}

/// A value as a sealed message.
pub(crate) fn close(key: &Key, kind: &str, name: &str, value: &impl Serialize) -> Result<Bytes, serde_json::Error> {
    let value = serde_json::to_string(value)?;
    let seal = key.seal(kind, name, value.as_bytes());
    serde_json::to_vec(&Sealed { value, seal }).map(Bytes::from)
}

/// The value of a message; `None` if a host of this cluster did not seal it.
pub(crate) fn open<T: DeserializeOwned>(key: &Key, kind: &str, name: &str, message: &[u8]) -> Option<T> {
    let sealed: Sealed = serde_json::from_slice(message).ok()?;
    let is_sealed = key.is_sealed(kind, name, sealed.value.as_bytes(), &sealed.seal);
    is_sealed.then(|| serde_json::from_str(&sealed.value).ok()).flatten()
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_is_of_one_key_kind_name_and_content() {
        let key = Key::new([1; 32]);
        let seal = key.seal("host", "a", b"card");
        assert!(key.is_sealed("host", "a", b"card", &seal));
        for (kind, name, content) in [("member", "a", "card"), ("host", "b", "card"), ("host", "ac", "ard")] {
            assert!(!key.is_sealed(kind, name, content.as_bytes(), &seal), "{kind} {name} {content}");
        }
        assert!(!Key::new([2; 32]).is_sealed("host", "a", b"card", &seal));
        let [one, same, other] = ["acme", "acme", "beta"].map(|name| Key::of_cluster(name, [1; 32]));
        let seal = one.seal("host", "a", b"card");
        assert!(same.is_sealed("host", "a", b"card", &seal) && !other.is_sealed("host", "a", b"card", &seal));
        for broken in ["", "0", "zz", "é", &format!("{seal}00")] {
            assert!(!key.is_sealed("host", "a", b"card", broken), "{broken}");
        }
    }
}
