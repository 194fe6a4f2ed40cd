//! The subject of an audit: a component, its member, and the operator's policy.

use std::{borrow::Cow, collections::BTreeSet};

use guild_contract::{
    Bounds, Limits, MemberKey,
    capability::grants::Grants,
    manifest::{ComponentSpec, Manifest},
};

use crate::{
    flows::{Opened, Other},
    model::{Audit, OtherFile, Signature},
};

/// What is to be audited.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The file, as it was named.
    pub file: &'a str,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// The member that it belongs to.
    pub member: Option<Member<'a>>,
    /// The limits that hold for it.
    pub limits: &'a Limits,
    /// Its signature, where one was looked for.
    pub signature: Option<&'a Signature>,
    /// The version to compare with, where there is one.
    pub trusted: Option<&'a Trusted>,
    /// The beginning of the places whose texts are laid out whole, where some are asked for.
    pub whole: Option<&'a str>,
}

/// What a version of the member imports and asks for, that was trusted before.
#[derive(Clone, Debug, Default)]
pub struct Trusted {
    /// Its imports.
    pub imports: BTreeSet<String>,
    /// The patterns of hosts that its manifest asks for; `*` where it asks for the web and names none.
    pub hosts: BTreeSet<String>,
}

impl Trusted {
    /// What an audit of a version says that it imports and asks for.
    pub fn of(audit: &Audit) -> Self {
        let asks = |grant: &str| audit.requested.iter().any(|request| request.grant == grant);
        let hosts = audit.requested.iter().filter_map(|request| request.grant.strip_prefix("web:"));
        let hosts = hosts.filter(|part| *part != "search").map(str::to_owned);
        let mut hosts: BTreeSet<String> = hosts.collect();
        let fetches = audit.sessions.iter().flat_map(|sessions| &sessions.tools).any(|tool| tool.name == "WebFetch");
        if hosts.is_empty() && (asks("web") || fetches) {
            hosts.insert("*".to_owned());
        }
        Self { imports: audit.imports.iter().map(|import| import.name.clone()).collect(), hosts }
    }
}

/// A member, and what it is granted.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Its key.
    pub key: &'a MemberKey,
    /// Its manifest.
    pub manifest: &'a Manifest,
    /// The manifest's `component`.
    pub spec: &'a ComponentSpec,
    /// What became of what it asks for.
    pub grants: &'a Grants,
    /// What its jobs may use at most: the smaller of its manifest and the operator's limits.
    pub bounds: Bounds,
    /// What else its directory holds.
    pub package: Package<'a>,
    /// What there is to be reached where it is installed.
    pub operator: &'a Operator,
}

/// What a member's directory holds besides manifest and component.
#[derive(Clone, Copy, Debug, Default)]
pub struct Package<'a> {
    /// Its `posture.md`, which its sessions are given.
    pub posture: Option<&'a [u8]>,
    /// Its memories, which its sessions are shown: path and content. One that is new should have none.
    pub memories: &'a [(String, Vec<u8>)],
    /// The tools that its component offers, where they were listed.
    pub tools: &'a [OfferedTool],
    /// All other files and links, sorted by name.
    pub files: &'a [OtherFile],
    /// What the smaller of them hold: path and content.
    pub documents: &'a [(String, Vec<u8>)],
    /// Whether there is more than is listed here.
    pub is_cut: bool,
}

/// A tool as a component offers it.
#[derive(Clone, Debug, Default)]
pub struct OfferedTool {
    /// Its name.
    pub name: String,
    /// What a model is told of it: title, description, and the schemas of input and output, with their defaults.
    pub texts: Vec<(&'static str, String)>,
}

/// What there is to be reached where a member is installed.
#[derive(Clone, Debug, Default)]
pub struct Operator {
    /// What the member would be granted with an open web: flows are computed by it also where `[web]` is not there yet.
    pub grants: Grants,
    /// The read roots, hosts and search provider.
    pub places: Places,
    /// What is open already, and the operator's relays.
    pub opened: Opened,
    /// The names of the other members that are installed, or that ship with the host.
    pub names: Vec<String>,
    /// The other members that are installed, with what they can reach.
    pub others: Vec<Other>,
}

/// The places that members can be granted.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// The names of the read roots.
    pub roots: Vec<String>,
    /// The patterns of hosts that `[web]` opens.
    pub hosts: Vec<String>,
    /// Whether there is a search provider.
    pub has_provider: bool,
}

impl Member<'_> {
    /// A key of the manifest, as a finding's place.
    pub(crate) fn in_manifest(&self, key: &str) -> String {
        self.manifest.lines.name(key)
    }

    /// What its sessions are given as its posture: the file, else the manifest's text.
    pub(crate) fn posture(&self) -> Option<Cow<'_, str>> {
        let own = self.manifest.posture.as_deref().map(Cow::Borrowed);
        self.package.posture.map(String::from_utf8_lossy).or(own)
    }
}
