//! Tells the form of bytes, by their beginning and by how much of them is text.

use std::sync::LazyLock;

use memchr::memmem::Finder;

/// Bytes that a text has at least: fewer are one by chance.
pub(super) const SHORTEST_TEXT: usize = 16;
/// The part of a text that is printable, at least.
const PRINTABLE: f64 = 0.95;

/// What bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// A WebAssembly module or component.
    Wasm,
    /// A program for a machine: ELF, Windows, macOS.
    Program,
    /// A script with an interpreter's line.
    Script,
    /// A private key, in PEM or as OpenSSH writes it.
    PrivateKey,
    /// An archive or a stream that is not unpacked here: bzip2, xz, 7z, an encrypted zip.
    Archive,
    /// Text.
    Text,
    /// As good as random: encrypted, or compressed in a way that is not known here.
    Random,
    /// Nothing of these.
    Other,
}

impl Form {
    /// What it is, for a sentence: `a WebAssembly file`.
    pub fn what(self) -> &'static str {
        match self {
            Self::Wasm => "a WebAssembly file",
            Self::Program => "a program",
            Self::Script => "a script",
            Self::PrivateKey => "a private key",
            Self::Archive => "an archive that is not unpacked here",
            Self::Text => "text",
            Self::Random => "bytes that look random: encrypted, or compressed in an unknown way",
            Self::Other => "bytes of no known form",
        }
    }
}

/// What bytes are, by their beginning and by how much of them is text.
pub fn form_of(bytes: &[u8]) -> Form {
    const MACHO: [&[u8]; 4] = [b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xfe\xed\xfa\xcf", b"\xca\xfe\xba\xbe"];
    const ARCHIVES: [&[u8]; 5] = [b"BZh91AY&SY", b"\xfd7zXZ\0", b"7z\xbc\xaf\x27\x1c", b"PK\x03\x04", b"Rar!\x1a\x07"];
    let begins = |of: &[&[u8]]| of.iter().any(|magic| bytes.starts_with(magic));
    if bytes.starts_with(b"\0asm") {
        Form::Wasm
    } else if bytes.starts_with(b"\x7fELF")
        || begins(&MACHO)
        || (bytes.starts_with(b"MZ") && bytes.len() > 64 && !is_text(bytes))
    {
        Form::Program
    } else if begins(&ARCHIVES) {
        Form::Archive
    } else if bytes.starts_with(b"#!/") {
        Form::Script
    } else if is_text(bytes) {
        if key_at(bytes).is_some() { Form::PrivateKey } else { Form::Text }
    } else {
        Form::Other
    }
}

/// Where bytes have a private key in PEM: its first line, and a line of base64 after it. Texts about keys have the former.
pub fn key_at(bytes: &[u8]) -> Option<usize> {
    static BEGINS: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("PRIVATE KEY-----"));
    let has_body = |at: &usize| {
        let rest = bytes.get(at + "PRIVATE KEY-----".len()..).unwrap_or_default();
        let rest = rest.strip_prefix(b"\r").unwrap_or(rest);
        let body = rest.strip_prefix(b"\n").or_else(|| rest.strip_prefix(b"\\n")).unwrap_or_default();
        body.iter().take_while(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(byte)).count() >= SHORTEST_TEXT
    };
    BEGINS.find_iter(bytes).find(has_body)
}

/// Whether bytes are text: UTF-8, and nearly all of it printable.
pub(super) fn is_text(bytes: &[u8]) -> bool {
    let beginning = bytes.get(..bytes.len().min(64 * 1024)).unwrap_or_default();
    let text = match std::str::from_utf8(beginning) {
        Ok(text) => text,
        // A beginning can end in the middle of a character.
        Err(error) if error.valid_up_to() + 4 > beginning.len() && beginning.len() >= SHORTEST_TEXT => {
            beginning.get(..error.valid_up_to()).and_then(|valid| std::str::from_utf8(valid).ok()).unwrap_or_default()
        }
        Err(_) => return false,
    };
    let (mut all, mut printable) = (0_u32, 0_u32);
    for c in text.chars() {
        all += 1;
        printable += u32::from(!c.is_control() || matches!(c, '\n' | '\t' | '\r'));
    }
    text.len() >= SHORTEST_TEXT && f64::from(printable) >= PRINTABLE * f64::from(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_known_by_their_beginning() {
        assert_eq!(form_of(b"#!/bin/sh\necho"), Form::Script);
        assert_eq!(form_of(b"-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmU"), Form::PrivateKey);
        assert_eq!(form_of(b"\x7fELF\x02\x01\x01"), Form::Program);
    }

    #[test]
    fn a_text_about_keys_is_none() {
        assert!(key_at(b"A key begins with -----BEGIN PRIVATE KEY----- and then its base64.").is_none());
        assert!(key_at(b"-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEAxyz0\n").is_some());
    }
}
