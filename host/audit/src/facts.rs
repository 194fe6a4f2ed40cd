//! The facts of an audit: each has a name that stays, a place, and a text.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

macro_rules! names {
    ($($(#[$refused:ident])? $name:ident $what:literal;)+) => {
        /// The name of a fact.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema, IntoStaticStr,
            VariantArray,
        )]
        #[strum(serialize_all = "kebab-case")]
        #[serde(rename_all = "kebab-case")]
        pub enum FactName {
            $(#[doc = $what] $name,)+
        }

        impl FactName {
            /// The meaning of such a fact, in a sentence.
            pub fn what(self) -> &'static str {
                match self { $(Self::$name => $what),+ }
            }

            /// Whether a host refuses a member of which such a fact is told.
            pub fn is_refused(self) -> bool {
                match self { $(Self::$name => names!(@refused $($refused)?)),+ }
            }
        }
    };
    (@refused refused) => { true };
    (@refused) => { false };
}

names! {
    #[refused] NotAComponent "The file is no component that a host could load: what it is instead.";
    #[refused] NotValid "The component does not validate.";
    #[refused] ImportNotAsked "It imports an interface that its manifest does not ask for.";
    #[refused] ImportUnknown "It imports something that this host does not have.";
    #[refused] ImportVersion "It imports or exports an interface of a version that this host does not serve.";
    #[refused] ImportRefused "It imports what is not granted, and `strict_imports` refuses that.";
    #[refused] WorldMismatch "It exports less than its manifest's world promises, or what another world does.";
    #[refused] Oversize "Its file is larger than the limit.";
    #[refused] BeyondLimits "It declares more memory or tables than its limits allow.";
    #[refused] SignatureBad "Its signature does not hold, or is missing where the operator requires one.";
    NewImport "It imports what the trusted version does not import.";
    NewHost "It asks for a host that the trusted version does not ask for.";
    OpenFlow "What it reads can go to any host, or to a host that passes on what it is sent.";
    Flow "What it reads can leave this machine: by itself, or by those whom it calls or commissions.";
    IndirectFlow "What it reads can leave this machine by way of others who read its texts.";
    HiddenText "A text for models or people has characters that are not shown, or blanks where nobody looks for text.";
    MixedScripts "A text for models or people has words with letters of several scripts that look alike.";
    LookAlikeName "Its name can be taken for another member's.";
    HiddenCharacters "Names in the component have characters that steer a terminal or turn the direction of reading.";
    UndeclaredAddress "A text for models has an address whose host its manifest does not ask for.";
    AddressInData "Its data has an address whose host its manifest does not ask for.";
    SendingPage "A page or text asks a host for something when it is opened, and the manifest does not ask for the host.";
    UnaccountedBytes "Its data holds encoded or dense bytes that nothing accounts for.";
    EmbeddedProgram "Its data holds the beginning of a program, or a private key.";
    NetworkImport "It imports sockets or HTTP, of which every call traps.";
    OtherFile "Its directory holds links, programs, files that agents read as orders, or second components.";
    McpLine "Its manifest says more of how a host is started than which member to serve.";
    SignatureUnknown "It is signed with a key that the operator does not trust.";
    AsksForUnused "It asks for something that neither it nor its sessions have a use for.";
    ExtraExport "It exports something that its world does not have.";
    DependenciesUnreadable "Its embedded dependency list cannot be read.";
    HostPaths "It holds paths of the machine that it was made on.";
    NotAllListed "It has more than an audit lists.";
}

impl FactName {
    /// All names, in the order in which facts are told.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// The name, as `import-not-asked`.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Something that a reviewer should know.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Fact {
    /// The name of the fact.
    pub name: FactName,
    /// The place of the fact: an import, a manifest key, a section.
    pub place: String,
    /// The fact in words.
    pub text: String,
    /// Whether a host refuses the member for it.
    pub refused: bool,
}

/// Facts as they are found.
#[derive(Debug, Default)]
pub(crate) struct Found(Vec<Fact>);

impl Found {
    pub(crate) fn add(&mut self, name: FactName, place: impl Into<String>, text: impl Into<String>) {
        self.0.push(Fact { name, place: place.into(), text: text.into(), refused: name.is_refused() });
    }

    /// In the order of their names, and at most `most` of them.
    pub(crate) fn sorted(mut self, most: usize) -> Vec<Fact> {
        self.0.sort();
        self.0.dedup();
        self.0.truncate(most);
        self.0
    }
}
