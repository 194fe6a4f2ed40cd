//! Computes flows: what a member can read, and where it can go, as if everything that it asks for and is permitted were
//! used.
//!
//! A member is one box: what its component or any of its sessions reads can leave by whatever any of them can reach, since
//! a component sees what its sessions answer, and writes what they are told. So one flow has a place and all that can go
//! there. A text of one member that enters the context of another can make that one send it, so the others are followed,
//! from each to those whom its texts reach.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::{self, Display, Formatter},
};

use guild_contract::manifest::Scope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::evidence::hosts;

/// The reach of a member: its manifest under the operator's policy.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is one thing that a member may do")]
pub struct Reach {
    /// The read roots that its component or its sessions may read, by name.
    pub roots: Vec<String>,
    /// The scopes of the memories that it is shown.
    pub reads_memory: Vec<Scope>,
    /// Whether its sessions read the documents of a project, in commissions and meetings.
    pub reads_documents: bool,
    /// Whether its sessions read all files of a project there.
    pub reads_worktree: bool,
    /// Whether it is shown the workers and commissions of the hall.
    pub reads_hall: bool,
    /// Whether callers hand it tasks or the inputs of tools.
    pub has_callers: bool,
    /// The hosts that it may reach: patterns, each as narrow as the manifest and the policy make it.
    pub hosts: Vec<String>,
    /// Whether it may ask the operator's search provider.
    pub searches: bool,
    /// The members whose tools its sessions may call.
    pub toolboxes: Vec<String>,
    /// The scopes of the memories that it may write.
    pub writes_memory: Vec<Scope>,
    /// Whether it may write files that people open.
    pub writes_artifacts: bool,
    /// Whether its sessions may write the documents of a project, in commissions and meetings.
    pub writes_documents: bool,
    /// Whether its sessions may write the other files of a project there.
    pub writes_worktree: bool,
    /// Whether it is the manager: it commissions other workers, and asks for pull requests.
    pub manages: bool,
    /// Whether work is dispatched to it, of which it reports.
    pub reports: bool,
    /// Whether it offers tools, whose descriptions and answers models read.
    pub answers_tools: bool,
}

/// Another member that is installed, and what it can reach by its manifest.
#[derive(Clone, Debug, Default)]
pub struct Other {
    /// The key of the member.
    pub key: String,
    /// The reach of the member.
    pub reach: Reach,
}

/// The parts of the operator's policy on which flows depend.
#[derive(Clone, Debug, Default)]
pub struct Opened {
    /// Whether `guild.toml` has a `[web]`. Without one, flows are computed as if it opened all that is asked for.
    pub web: bool,
    /// Whether a `[[project]]` permits pull requests.
    pub pull_requests: bool,
    /// Hosts that count as relays, besides those that are known.
    pub relays: Vec<String>,
}

/// Something that a member reads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", content = "name", rename_all = "kebab-case")]
pub enum Source {
    /// A read root of the operator, by its name.
    Root(String),
    /// Memories of a scope.
    Memory(Scope),
    /// The documents of a project, in commissions and meetings.
    Documents,
    /// All files of a project there.
    Worktree,
    /// The workers, commissions and meetings of the hall.
    Hall,
    /// The tasks and inputs of its callers.
    Callers,
    /// The answers of another member's tools.
    Toolbox(String),
    /// Pages and results of searches.
    Web,
}

impl Display for Source {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(root) => write!(f, "the read root `{root}`"),
            Self::Memory(scope) => f.write_str(memories(*scope)),
            Self::Documents => f.write_str("a project's documents"),
            Self::Worktree => f.write_str("a project's files"),
            Self::Hall => f.write_str("the commissions of the hall"),
            Self::Callers => f.write_str("what callers hand it"),
            Self::Toolbox(key) => write!(f, "what the tools of `{key}` answer"),
            Self::Web => f.write_str("what web pages say"),
        }
    }
}

fn memories(scope: Scope) -> &'static str {
    match scope {
        Scope::Worker => "its own memories",
        Scope::Project => "a project's memories",
        Scope::Global => "the memories for all projects",
    }
}

/// Somewhere that what a member reads can go.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", content = "name", rename_all = "kebab-case")]
pub enum Sink {
    /// A host, or all hosts of a pattern.
    Host(String),
    /// The operator's search provider.
    SearchProvider,
    /// `origin` of a project: commits, and titles and texts of pull requests.
    Origin,
    /// The tools of another member.
    Toolbox(String),
    /// Commissions of other workers.
    Commissions,
    /// Files among a job's artifacts, which people open: HTML and SVG in a browser.
    Artifacts,
    /// Memories of a scope, which others and later jobs are shown.
    Memory(Scope),
    /// The documents of a project, which its workers and people read.
    Documents,
    /// The other files of a project: commits of `claude/main`.
    Worktree,
    /// The report and its notes, to who dispatched the job.
    Report,
    /// The descriptions and answers of its tools, which the callers' models read.
    ToolAnswers,
}

impl Sink {
    /// Whether what goes there leaves this machine.
    pub fn is_outside(&self) -> bool {
        matches!(self, Self::Host(_) | Self::SearchProvider | Self::Origin)
    }
}

impl Display for Sink {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) if host == "*" => f.write_str("any host"),
            Self::Host(host) => f.write_str(host),
            Self::SearchProvider => f.write_str("the search provider"),
            Self::Origin => f.write_str("origin, by pull requests"),
            Self::Toolbox(key) => write!(f, "the tools of `{key}`"),
            Self::Commissions => f.write_str("commissions of other workers"),
            Self::Artifacts => f.write_str("artifacts that people open"),
            Self::Memory(scope) => f.write_str(memories(*scope)),
            Self::Documents => f.write_str("a project's documents"),
            Self::Worktree => f.write_str("a project's files"),
            Self::Report => f.write_str("its report"),
            Self::ToolAnswers => f.write_str("the answers of its tools"),
        }
    }
}

/// The way of one member's texts to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// It calls the other's tools.
    Calls,
    /// It commissions the other.
    Commissions,
    /// The other calls its tools.
    Answers,
    /// The other is shown memories of a project.
    ProjectMemory,
    /// The other is shown memories for all projects.
    GlobalMemory,
    /// The other reads a project's documents.
    Documents,
    /// The other reads a project's files.
    Worktree,
    /// The other is the manager, or reads the hall.
    Report,
}

impl How {
    /// The way of reading, for a sentence about the reader.
    pub fn what(self) -> &'static str {
        match self {
            Self::Calls => "whose tools it calls",
            Self::Commissions => "which it commissions",
            Self::Answers => "which calls its tools",
            Self::ProjectMemory => "which is shown the project's memories",
            Self::GlobalMemory => "which is shown the memories for all projects",
            Self::Documents => "which reads the project's documents",
            Self::Worktree => "which reads the project's files",
            Self::Report => "which reads its reports",
        }
    }

    /// Whether a member does this by itself, and does not wait for somebody to read.
    fn is_own(self) -> bool {
        matches!(self, Self::Calls | Self::Commissions)
    }
}

/// A member on the way of a flow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// The key of the member.
    pub member: String,
    /// The way of the texts of the member before it.
    pub how: How,
}

/// A place, and what can go there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Flow {
    /// The place where the texts go.
    pub to: Sink,
    /// The members on the way, by which it goes; empty for what the member itself sends or writes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<Step>,
    /// Whether it leaves this machine.
    pub leaves: bool,
    /// The reason that texts there can reach anybody, if they can: `any host`, `a web archive, ...`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay: Option<String>,
    /// The step that the operator has to take first, where the policy does not permit the flow yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub once: Option<String>,
    /// The sources of the texts.
    pub from: Vec<Source>,
}

impl Flow {
    /// Whether the member does it by itself or by those whom it calls or commissions; else others have to read it first.
    pub fn is_own(&self) -> bool {
        self.by.iter().all(|step| step.how.is_own())
    }

    /// The place where the texts go, with the way and the operator's step, for people.
    pub fn place(&self) -> String {
        let mut text = self.to.to_string();
        if let Some(relay) = self.relay.as_ref().filter(|relay| **relay != text) {
            text = format!("{text} ({relay})");
        }
        for (n, step) in self.by.iter().enumerate() {
            let word = if n == 0 { "by way of" } else { "and" };
            text.push_str(&format!(" {word} `{}`, {}", step.member, step.how.what()));
        }
        if let Some(once) = &self.once {
            text.push_str(&format!(", once {once}"));
        }
        text
    }
}

/// Some words on one subject, for people: `reads`, `sends to`, `writes`, `read by`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReachRow {
    /// The subject.
    pub label: String,
    /// The items of the row; never empty.
    pub items: Vec<String>,
}

impl Reach {
    /// The sources that the member reads.
    pub fn sources(&self) -> Vec<Source> {
        let fixed = [
            (self.reads_documents, Source::Documents),
            (self.reads_worktree, Source::Worktree),
            (self.reads_hall, Source::Hall),
            (self.has_callers, Source::Callers),
            (!self.hosts.is_empty() || self.searches, Source::Web),
        ];
        let roots = self.roots.iter().cloned().map(Source::Root);
        let memories = self.reads_memory.iter().copied().map(Source::Memory);
        let toolboxes = self.toolboxes.iter().cloned().map(Source::Toolbox);
        let fixed = fixed.into_iter().filter(|(has, _)| *has).map(|(_, source)| source);
        let mut all: Vec<_> = roots.chain(memories).chain(toolboxes).chain(fixed).collect();
        all.sort();
        all
    }

    /// The places where the member sends or writes by itself.
    pub fn sinks(&self) -> Vec<Sink> {
        let fixed = [
            (self.searches, Sink::SearchProvider),
            (self.manages, Sink::Origin),
            (self.manages, Sink::Commissions),
            (self.writes_artifacts, Sink::Artifacts),
            (self.writes_documents, Sink::Documents),
            (self.writes_worktree, Sink::Worktree),
            (self.reports, Sink::Report),
            (self.answers_tools, Sink::ToolAnswers),
        ];
        let hosts = self.hosts.iter().cloned().map(Sink::Host);
        let toolboxes = self.toolboxes.iter().cloned().map(Sink::Toolbox);
        let memories = self.writes_memory.iter().copied().map(Sink::Memory);
        let fixed = fixed.into_iter().filter(|(has, _)| *has).map(|(_, sink)| sink);
        let mut all: Vec<_> = hosts.chain(toolboxes).chain(memories).chain(fixed).collect();
        all.sort();
        all
    }

    /// The way of this member's texts, whose key is `key`, to another.
    fn ways(&self, key: &str, to: &Other) -> Option<How> {
        let both = |scope| self.writes_memory.contains(&scope) && to.reach.reads_memory.contains(&scope);
        let other = &to.reach;
        let ways = [
            (self.toolboxes.contains(&to.key), How::Calls),
            (self.manages && other.reports, How::Commissions),
            (self.answers_tools && other.toolboxes.iter().any(|toolbox| toolbox == key), How::Answers),
            (self.reports && (other.manages || other.reads_hall), How::Report),
            (self.writes_documents && other.reads_documents, How::Documents),
            (self.writes_worktree && other.reads_worktree, How::Worktree),
            (both(Scope::Project), How::ProjectMemory),
            (both(Scope::Global), How::GlobalMemory),
        ];
        ways.into_iter().find(|(has, _)| *has).map(|(_, how)| how)
    }

    /// The others whom the texts of the member `key` reach, each with the shortest way to it; what the member does by
    /// itself goes before what others have to read.
    fn reached<'a>(&self, key: &str, others: &'a [Other]) -> Vec<(&'a Other, Vec<Step>)> {
        let mut found: BTreeMap<&str, (&'a Other, Vec<Step>)> = BTreeMap::new();
        for own_alone in [true, false] {
            let mut open: VecDeque<(&str, &Self, Vec<Step>)> = VecDeque::from([(key, self, Vec::new())]);
            open.extend(found.values().map(|(other, way)| (other.key.as_str(), &other.reach, way.clone())));
            while let Some((from, reach, way)) = open.pop_front() {
                for other in others.iter().filter(|other| other.key != key) {
                    let Some(how) = reach.ways(from, other).filter(|how| how.is_own() || !own_alone) else { continue };
                    if !found.contains_key(other.key.as_str()) {
                        let step = Step { member: other.key.clone(), how };
                        let way: Vec<_> = way.iter().cloned().chain([step]).collect();
                        found.insert(&other.key, (other, way.clone()));
                        open.push_back((&other.key, &other.reach, way));
                    }
                }
            }
        }
        found.into_values().collect()
    }

    /// All flows of the member `key` among `others`: those that leave this machine first, and of these its own. Then the
    /// sources, the ways out, the outputs and the readers of the member, in words.
    pub fn flows(&self, key: &str, others: &[Other], opened: &Opened) -> (Vec<Flow>, Vec<ReachRow>) {
        let reached = self.reached(key, others);
        let flows = self.flows_to(&reached, opened);
        let rows = self.rows(others, &reached, &flows);
        (flows, rows)
    }

    fn flows_to(&self, reached: &[(&Other, Vec<Step>)], opened: &Opened) -> Vec<Flow> {
        let sources = self.sources();
        let flow = |to: Sink, by: Vec<Step>| {
            let from = sources.iter().filter(|from| !is_return(from, &to)).cloned().collect();
            let relay = match &to {
                Sink::Host(host) => hosts::relay(host, &opened.relays),
                _ => None,
            };
            let once = match &to {
                Sink::Host(_) | Sink::SearchProvider if !opened.web => Some("[web] is opened".to_owned()),
                Sink::Origin if !opened.pull_requests => {
                    Some("a [[project]] has `push` and `pull_requests`".to_owned())
                }
                _ => None,
            };
            Flow { leaves: to.is_outside(), to, by, relay, once, from }
        };
        let mut flows: Vec<Flow> = self.sinks().into_iter().map(|to| flow(to, Vec::new())).collect();
        let mut reached: Vec<_> = reached.iter().collect();
        reached.sort_by_key(|(other, way)| (way.iter().any(|step| !step.how.is_own()), way.len(), &other.key));
        for (other, way) in reached {
            for to in other.reach.sinks().into_iter().filter(Sink::is_outside) {
                if !flows.iter().any(|known| known.to == to) {
                    flows.push(flow(to, way.clone()));
                }
            }
        }
        // A pull request that somebody makes carries what it committed.
        if (self.writes_documents || self.writes_worktree)
            && opened.pull_requests
            && !flows.iter().any(|known| known.to == Sink::Origin)
        {
            let once = Some("you ask for a pull request".to_owned());
            flows.push(Flow { once, ..flow(Sink::Origin, Vec::new()) });
        }
        flows.retain(|flow| !flow.from.is_empty());
        flows.sort_by_key(|flow| (!flow.leaves, !flow.is_own(), flow.relay.is_none(), flow.by.len()));
        flows
    }

    fn rows(&self, others: &[Other], reached: &[(&Other, Vec<Step>)], flows: &[Flow]) -> Vec<ReachRow> {
        let reads = self.sources().iter().map(ToString::to_string).collect();
        let mut sends: Vec<_> = flows.iter().filter(|flow| flow.leaves).map(Flow::place).collect();
        let is_there = |key: &&String| others.iter().any(|other| other.key == **key);
        let missing = self.toolboxes.iter().filter(|key| !is_there(key));
        sends.extend(missing.map(|key| format!("what the tools of `{key}` reach, which is not installed here")));
        if sends.is_empty() {
            sends.push(match reached.len() {
                0 => "nothing; its texts reach no other member".to_owned(),
                1 => "nothing, and neither can the one other member whom its texts reach".to_owned(),
                reached => format!("nothing, and neither can the {reached} other members whom its texts reach"),
            });
        }
        let writes = flows.iter().filter(|flow| !flow.leaves && flow.by.is_empty());
        let writes = writes.map(|flow| flow.to.to_string()).collect();
        let own = self.writes_memory.contains(&Scope::Worker);
        let people = [
            (self.reports, "who dispatched it"),
            (self.answers_tools, "the models that call its tools"),
            (self.writes_artifacts, "people who open its artifacts"),
            (own, "its own later jobs"),
            (self.writes_documents || self.writes_worktree, "people who work on the project"),
        ];
        let people = people.into_iter().filter(|(has, _)| *has).map(|(_, who)| who.to_owned());
        let members = reached.iter().map(|(other, _)| format!("`{}`", other.key));
        let readers = people.chain(members).collect();
        [("reads", reads), ("can send to", sends), ("writes", writes), ("is read by", readers)]
            .into_iter()
            .filter(|(_, items): &(_, Vec<String>)| !items.is_empty())
            .map(|(label, items)| ReachRow { label: label.to_owned(), items })
            .collect()
    }
}

/// Whether something only goes back to where it came from.
fn is_return(source: &Source, sink: &Sink) -> bool {
    match (source, sink) {
        (Source::Callers, Sink::Report | Sink::ToolAnswers)
        | (Source::Hall, Sink::Commissions)
        | (Source::Documents, Sink::Documents)
        | (Source::Worktree, Sink::Worktree)
        | (Source::Web, Sink::Host(_) | Sink::SearchProvider) => true,
        (Source::Memory(from), Sink::Memory(to)) => from == to,
        (Source::Toolbox(from), Sink::Toolbox(to)) => from == to,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker() -> Reach {
        Reach {
            roots: vec!["notes".to_owned()],
            has_callers: true,
            reports: true,
            reads_documents: true,
            writes_documents: true,
            ..Reach::default()
        }
    }

    fn other(key: &str, reach: Reach) -> Other {
        Other { key: key.to_owned(), reach }
    }

    fn opened() -> Opened {
        Opened { web: true, ..Opened::default() }
    }

    /// The flows of a member by which texts leave this machine.
    fn ways(reach: &Reach, others: &[Other]) -> Vec<String> {
        reach.flows("ann", others, &opened()).0.iter().filter(|flow| flow.leaves).map(Flow::place).collect()
    }

    #[test]
    fn what_has_no_way_out_can_send_to_nothing() {
        let alone = worker();
        assert!(ways(&alone, &[]).is_empty());
        let rows = alone.flows("ann", &[], &opened()).1;
        assert_eq!(rows[1].items, ["nothing; its texts reach no other member"]);
        let others = [other("bob", worker()), other("tools", Reach { answers_tools: true, ..Reach::default() })];
        let rows = alone.flows("ann", &others, &opened()).1;
        assert_eq!(rows[1].items, ["nothing, and neither can the one other member whom its texts reach"]);
    }

    #[test]
    fn a_text_that_others_read_goes_where_they_can_send() {
        let fetcher = Reach { hosts: vec!["docs.rs".to_owned()], ..worker() };
        let calling = Reach { toolboxes: vec!["web".to_owned()], ..worker() };
        let web = Reach { hosts: vec!["*".to_owned()], answers_tools: true, has_callers: true, ..Reach::default() };
        let others = [other("fetcher", fetcher), other("caller", calling.clone()), other("web", web)];
        let by_reading = ["docs.rs by way of `fetcher`, which reads the project's documents"];
        assert_eq!(ways(&worker(), &others[..1]), by_reading);
        let two_steps =
            "any host by way of `caller`, which reads the project's documents and `web`, whose tools it calls";
        assert_eq!(ways(&worker(), &others[1..]), [two_steps]);
        assert_eq!(ways(&calling, &others[2..]), ["any host by way of `web`, whose tools it calls"]);
        let flows = calling.flows("ann", &others, &opened()).0;
        let own: Vec<_> =
            flows.iter().filter(|flow| flow.leaves).map(|flow| (flow.to.clone(), flow.is_own())).collect();
        assert_eq!(own, [(Sink::Host("*".to_owned()), true), (Sink::Host("docs.rs".to_owned()), false)]);
        // Without documents, nothing of it gets to anybody.
        assert!(ways(&Reach { writes_documents: false, ..worker() }, &others).is_empty());
    }

    #[test]
    fn a_manager_reaches_origin_and_all_that_its_workers_reach() {
        let manager = Reach { manages: true, ..worker() };
        let others = [other("fetcher", Reach { hosts: vec!["docs.rs".to_owned()], ..worker() })];
        let flows = manager.flows("ann", &others, &opened()).0;
        let places: Vec<_> = flows.iter().filter(|flow| flow.leaves).map(Flow::place).collect();
        let origin = "origin, by pull requests, once a [[project]] has `push` and `pull_requests`";
        assert_eq!(places, [origin, "docs.rs by way of `fetcher`, which it commissions"]);
        assert!(flows.iter().filter(|flow| flow.leaves).all(Flow::is_own));
        // What a worker commits goes along with the pull request of another.
        let pulls = Opened { pull_requests: true, ..opened() };
        let flows = worker().flows("bob", &[], &pulls).0;
        assert_eq!(flows[0].place(), "origin, by pull requests, once you ask for a pull request");
    }

    #[test]
    fn a_relay_counts_as_any_host() {
        let reach = Reach { hosts: vec!["docs.rs".to_owned(), "web.archive.org".to_owned()], ..worker() };
        let flows = reach.flows("ann", &[], &opened()).0;
        assert!(flows[0].relay.as_ref().is_some_and(|relay| relay.contains("web archive")), "{flows:?}");
        assert_eq!((&flows[1].to, &flows[1].relay), (&Sink::Host("docs.rs".to_owned()), &None));
    }

    #[test]
    fn a_ring_of_members_ends() {
        let others: Vec<_> = (0..50).map(|n| other(&format!("m{n}"), worker())).collect();
        assert_eq!(worker().reached("ann", &others).len(), 50);
    }
}
