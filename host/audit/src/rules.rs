//! The rules of an audit: each with an id that stays, a severity, and what it is for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

/// How much a finding matters.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema, IntoStaticStr, VariantArray,
)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It deceives about what it is, or hides instructions or code.
    Critical,
    /// A host refuses it; or what it should not see can reach a host, a reader or a policy that its manifest and posture do
    /// not declare.
    High,
    /// It reaches more than its purpose seems to need. Decide.
    Medium,
    /// It is untidy, or a hint of something that only a reader can judge.
    Low,
    /// Worth knowing.
    Info,
}

impl Severity {
    /// All of them, the most severe first.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Its name, as the JSON has it.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

macro_rules! rules {
    ($($id:ident $name:literal $severity:ident $what:literal;)+) => {
        /// A rule, by its id.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        pub enum Rule {
            $(#[doc = $what] $id,)+
        }

        impl Rule {
            /// All rules, in the order of their ids.
            pub const ALL: &'static [Self] = &[$(Self::$id),+];

            /// The rule of an id.
            pub fn of_id(id: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|rule| rule.id() == id)
            }

            /// Its id, as `GA001`.
            pub fn id(self) -> &'static str {
                match self { $(Self::$id => stringify!($id)),+ }
            }

            /// Its name, as `not-a-component`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$id => $name),+ }
            }

            /// How much a finding of it matters, where what was found does not make it matter more or less.
            pub fn severity(self) -> Severity {
                match self { $(Self::$id => Severity::$severity),+ }
            }

            /// What it finds, in a sentence.
            pub fn what(self) -> &'static str {
                match self { $(Self::$id => $what),+ }
            }
        }
    };
}

// Ids are never given to another rule: GA020 and GA021 are GA060 now.
rules! {
    GA001 "not-a-component" High "The file is no component that a host could load: what it is instead.";
    GA002 "not-valid" High "The component does not validate.";
    GA003 "import-not-asked" High "It imports an interface that its manifest does not ask for.";
    GA004 "import-unknown" High "It imports something that this host does not have.";
    GA005 "import-version" High "It imports or exports an interface of a version that this host does not serve.";
    GA006 "import-refused" High "It imports what is not granted, and `strict_imports` refuses that.";
    GA007 "world-mismatch" High "It exports less than its manifest's world promises, or what another world does.";
    GA008 "oversize" High "Its file is larger than the limit.";
    GA009 "beyond-limits" High "It declares more memory or tables than its limits allow.";
    GA010 "signature-bad" High "Its signature does not hold, or is missing where the operator requires one.";
    GA022 "asks-for-unused" Medium "It asks for something that neither it nor its sessions have a use for.";
    GA023 "network-import" Medium "It imports sockets or HTTP, and has no language's runtime that does so by itself.";
    GA024 "embedded-program" Medium "Its data holds what looks like a program.";
    GA025 "hidden-characters" Medium "Names in it steer a terminal or turn the direction of reading.";
    GA026 "not-all-listed" Medium "It has more than an audit lists.";
    GA027 "signature-unknown" Medium "It is signed with a key that the operator does not trust.";
    GA028 "dependencies-unreadable" Medium "Its embedded dependency list cannot be read.";
    GA030 "files-any-root" Low "It asks for files without naming roots.";
    GA031 "memory-write" Low "It may write memories, which later jobs of the member are shown.";
    GA032 "host-paths" Low "It holds paths of the machine that it was made on.";
    GA033 "large-data" Low "Most of it is data.";
    GA034 "no-producers" Low "It does not say which tools made it.";
    GA035 "extra-export" Low "It exports something that its world does not have.";
    GA036 "no-bounds" Low "Its manifest bounds neither turns nor dollars of its sessions.";
    GA040 "own-tools" Info "It may give its sessions tools of its own.";
    GA041 "own-run" Info "It carries its jobs out itself, and writes below /job/artifacts.";
    GA042 "capability-denied" Info "It asks for something that the operator does not grant.";
    GA043 "debug-sections" Info "It has sections for debuggers.";
    GA044 "no-dependencies" Info "It has no list of its dependencies.";
    GA045 "runtime-network" Info "The runtime of its language imports sockets or HTTP: every call traps.";
    GA050 "hidden-text" Critical "A text that models or people read has characters that are not shown, or that turn the direction of reading.";
    GA051 "mixed-scripts" Medium "A text has words with letters of several scripts that look alike.";
    GA052 "look-alike-name" Critical "Its name can be taken for another member's.";
    GA053 "packed-instructions" Critical "Instructions, hosts or code are packed into its data or its texts.";
    GA054 "packed-data" Low "Its data or its texts hold something packed, or bytes that look random.";
    GA055 "host-not-named" Low "It names hosts that its manifest does not ask for.";
    GA056 "telling-phrase" Low "A text reaches for secrets, hides something, or claims that somebody agreed.";
    GA057 "other-file" Medium "Its directory holds links, programs, or second components.";
    GA058 "mcp-line" High "Its manifest says more of how a host is started than which member to serve.";
    GA060 "flow" High "What it reads can go to a place that its manifest and its texts do not declare, or to any host.";
    GA061 "sending-page" High "A page or report that it makes sends to, or loads from, a host that its manifest does not ask for.";
    GA062 "engine-not-there" Medium "It says that it carries a language's engine, and is too small for one.";
    GA063 "claims-unproven" Info "It names its authors, or itself as its manifest does not, and nobody whom the operator trusts signed it.";
    GA064 "bound-clipped" Info "It asks for more turns, dollars or time than the operator's limits allow.";
    GA065 "project-write" Low "In a commission it may change the texts or the files of a project.";
    GA066 "wider-memory" Low "In a commission it may store memories that other workers are shown.";
    GA067 "manages" Low "It is the manager: it may commission other workers.";
}
