//! Explains each function that a component can import in one plain sentence, with what it can reach here.
//!
//! Two tables: [`worker`] for `guild:worker`, and [`wasi`] for WASI 0.2. Tests hold them against the WIT files, and against
//! [`guild_contract::capability::interfaces`], which says what becomes of an interface.

mod wasi;
mod worker;

/// An interface that this host knows.
#[derive(Clone, Copy, Debug)]
pub struct Meaning {
    /// `package/interface`, without a version.
    pub name: &'static str,
    /// What it is for.
    pub sentence: &'static str,
    /// What it can reach on this host.
    pub reach: &'static str,
    /// Its functions as a component's binary spells them, each with what it does.
    pub functions: &'static [(&'static str, &'static str)],
    /// Languages whose runtimes import it whether or not the program uses it.
    pub runtimes: &'static [Language],
}

impl Meaning {
    /// What a function does.
    pub fn function(&self, name: &str) -> Option<&'static str> {
        self.functions.iter().find(|(function, _)| *function == name).map(|(_, sentence)| *sentence)
    }
}

/// A language whose runtime imports WASI on its own account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Language {
    /// C and C++, by wasi-libc.
    C,
    /// Go, by TinyGo.
    Go,
    /// JavaScript, by StarlingMonkey.
    JavaScript,
    /// Python, by componentize-py.
    Python,
    /// Rust's standard library.
    Rust,
}

impl Language {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::C => "C",
            Self::Go => "Go",
            Self::JavaScript => "JavaScript",
            Self::Python => "Python",
            Self::Rust => "Rust",
        }
    }

    /// The language that an entry of a producers section speaks of: `language`, `processed-by` or `sdk`.
    pub fn of_producer(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let any = |words: &[&str]| words.iter().any(|word| name.contains(word));
        if any(&["rust"]) {
            Some(Self::Rust)
        } else if any(&["python", "componentize-py"]) {
            Some(Self::Python)
        } else if any(&["javascript", "componentizejs", "componentize-js", "starlingmonkey", "jco"]) {
            Some(Self::JavaScript)
        } else if any(&["tinygo"]) || name == "go" {
            Some(Self::Go)
        } else if any(&["clang", "wasi-libc", "wasi-sdk"]) || name == "c" || name == "c++" || name.starts_with("c1") {
            Some(Self::C)
        } else {
            None
        }
    }
}

/// All interfaces that this host knows.
pub fn all() -> impl Iterator<Item = &'static Meaning> {
    worker::INTERFACES.iter().chain(wasi::INTERFACES)
}

/// What an interface means, by `package/interface` without its version.
pub fn of(name: &str) -> Option<&'static Meaning> {
    all().find(|known| known.name == name)
}
