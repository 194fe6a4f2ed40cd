//! The data of an audit on texts, bytes and files: those for models and people, and those in data.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A text that models or people will read, or that data holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Text {
    /// The kind of text.
    pub kind: TextKind,
    /// The place of the text: a file, a key of the manifest, an offset in the component.
    pub place: String,
    /// The bytes of the whole.
    pub bytes: u64,
    /// The text, with characters that are not shown written as `<U+202E>`, and, unless it is of data, with `·` and `→` for
    /// the blanks and tabs at the end of a line.
    pub text: String,
    /// The bytes that are not shown here; `guild audit --texts=PLACE` shows them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left: u64,
    /// The characters of the text that are not seen, counted by kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hidden: Vec<Hidden>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Text {
    /// Whether a text at `place` is meant by `asked`, which is the beginning of a place.
    pub fn is_at(place: &str, asked: &str) -> bool {
        place.starts_with(asked)
    }
}

/// The use of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TextKind {
    /// The posture: a part of the prompts of its sessions.
    Posture,
    /// A key of the manifest.
    Manifest,
    /// A description or a schema of one of its tools.
    Tool,
    /// A memory that came along.
    Memory,
    /// A text in the data of its component; source code too.
    Data,
}

/// Characters of a text that are not seen as what they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hidden {
    /// The kind of character: `a character that is not shown`.
    pub what: String,
    /// The number of such characters.
    pub count: u64,
}

/// Texts of data that are not listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Folded {
    /// The kind of text: `lines of CPython, ...`, `runs of fewer than four words`.
    pub what: String,
    /// The number of texts of this kind.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A host of an address in data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NamedHost {
    /// The name of the host, or its address.
    pub host: String,
    /// The address as it stands there first.
    pub shown: String,
    /// The first place where the host stands.
    pub place: String,
    /// Whether the manifest asks for it.
    pub asked: bool,
    /// The reason that texts sent there can reach anybody, if one is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay: Option<String>,
}

/// Bytes of data that are no text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UnreadBytes {
    /// The place where the bytes begin.
    pub place: String,
    /// The number of bytes.
    pub bytes: u64,
    /// The kind of bytes: `numbers`, `base64`, `hexadecimal`, `dense bytes`, `a PNG picture`.
    pub kind: String,
    /// Their entropy, in bits a byte.
    pub entropy: f64,
    /// The first of them, in hexadecimal.
    pub begins: String,
    /// Whether the form of the bytes accounts for them.
    pub accounted: bool,
}

/// A file or link in a member's directory that is neither manifest, posture nor component.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct OtherFile {
    /// The path of the file in the directory.
    pub path: String,
    /// The kind of file.
    pub kind: OtherKind,
    /// The size in bytes; none of a link or a directory.
    pub bytes: u64,
}

/// The kind of a file next to a member's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OtherKind {
    /// A WebAssembly file.
    Wasm,
    /// A program or a script, or a file that may be executed.
    Program,
    /// A private key.
    PrivateKey,
    /// A symbolic link to something in the directory.
    Link,
    /// A symbolic link that leads out of the directory, or nowhere.
    LinkOut,
    /// Neither a file, a link nor a directory.
    Special,
    /// A text.
    Text,
    /// Some other file.
    Other,
}
