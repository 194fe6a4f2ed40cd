//! Computes flows: the data that a member can read, and the places where it can go.
//!
//! A member is one box: what its component or any of its sessions reads can leave by whatever any of them can reach, since a
//! component sees what its sessions answer, and writes what they are told. What a flow means follows from what is read and
//! from whether the member's own texts name the place that it goes to.

use std::{
    collections::BTreeMap,
    fmt::{self, Display, Formatter},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    evidence::hosts::{self, Open},
    rules::Severity,
};

/// What a member can reach: its manifest under the operator's policy, without the words for it.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// The read roots that its component or its sessions may read, by name.
    pub roots: Vec<String>,
    /// Whether it is shown its memories.
    pub reads_memory: bool,
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
    /// The hosts that those members may reach, as far as they are installed.
    pub toolbox_hosts: BTreeMap<String, Vec<String>>,
    /// Whether it may write memories, which its later jobs are shown.
    pub writes_memory: bool,
    /// Whether it may write files that people open.
    pub writes_artifacts: bool,
    /// Whether it may change the texts or files of the project of a commission.
    pub writes_project: bool,
    /// Whether it commissions other workers.
    pub manages_hall: bool,
    /// Whether it reports to who dispatched it.
    pub reports: bool,
    /// Whether a model reads what its tools answer.
    pub answers_tools: bool,
}

/// Something that a member reads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", content = "name", rename_all = "kebab-case")]
pub enum Source {
    /// A read root of the operator.
    Root(String),
    /// Its memories: what earlier jobs were told.
    Memory,
    /// The commissions of all projects of the hall.
    Hall,
    /// The tasks and inputs of its callers.
    Callers,
    /// What the tools of another member answer.
    Toolbox(String),
    /// Pages and results of searches.
    Web,
}

impl Display for Source {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(root) => write!(f, "what it reads in `{root}`"),
            Self::Memory => f.write_str("its memories"),
            Self::Hall => f.write_str("what commissions of the hall say"),
            Self::Callers => f.write_str("what callers hand it"),
            Self::Toolbox(key) => write!(f, "what the tools of `{key}` answer"),
            Self::Web => f.write_str("what web pages say"),
        }
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
    /// The tools of another member.
    Toolbox(String),
    /// Its memories, which its later jobs are shown.
    Memory,
    /// Files among a job's artifacts, which people open: HTML and SVG in a browser.
    Artifacts,
    /// The texts and files of the project of a commission.
    Project,
    /// Commissions of other workers.
    Hall,
    /// The report to who dispatched the job.
    Report,
    /// The answers of its tools, which the caller's model reads.
    ToolAnswers,
}

impl Display for Sink {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => write!(f, "to {host}"),
            Self::SearchProvider => f.write_str("to the search provider"),
            Self::Toolbox(key) => write!(f, "to the tools of {key}"),
            Self::Memory => f.write_str("to memories"),
            Self::Artifacts => f.write_str("to artifacts"),
            Self::Project => f.write_str("to the project"),
            Self::Hall => f.write_str("to the workers that it commissions"),
            Self::Report => f.write_str("to the report"),
            Self::ToolAnswers => f.write_str("to answers of tools"),
        }
    }
}

/// Something that can flow from a source to a sink.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Flow {
    /// What is read.
    pub source: Source,
    /// Where it can go.
    pub sink: Sink,
    /// How much it matters; none of what every member does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<Severity>,
    /// Why it matters that much: what is said of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl Reach {
    /// What it reads.
    pub fn sources(&self) -> Vec<Source> {
        let roots = self.roots.iter().cloned().map(Source::Root);
        let memory = self.reads_memory.then_some(Source::Memory);
        let hall = self.reads_hall.then_some(Source::Hall);
        let callers = self.has_callers.then_some(Source::Callers);
        let toolboxes = self.toolboxes.iter().cloned().map(Source::Toolbox);
        let web = (!self.hosts.is_empty() || self.searches).then_some(Source::Web);
        roots.chain(memory).chain(hall).chain(callers).chain(toolboxes).chain(web).collect()
    }

    /// Where it can send.
    pub fn sinks(&self) -> Vec<Sink> {
        let fixed = [
            (self.searches, Sink::SearchProvider),
            (self.writes_memory, Sink::Memory),
            (self.writes_artifacts, Sink::Artifacts),
            (self.writes_project, Sink::Project),
            (self.manages_hall, Sink::Hall),
            (self.reports, Sink::Report),
            (self.answers_tools, Sink::ToolAnswers),
        ];
        let fixed = fixed.into_iter().filter(|(has, _)| *has).map(|(_, sink)| sink);
        let hosts = self.hosts.iter().cloned().map(Sink::Host);
        hosts.chain(self.toolboxes.iter().cloned().map(Sink::Toolbox)).chain(fixed).collect()
    }

    /// All flows, the most severe first. `declared` has the texts in which the member says what it is for: a host that they
    /// name is declared.
    pub fn flows(&self, declared: &str) -> Vec<Flow> {
        let sinks = self.sinks();
        let mut flows: Vec<Flow> = self
            .sources()
            .into_iter()
            .flat_map(|source| sinks.iter().map(move |sink| (source.clone(), sink.clone())))
            .filter(|(source, sink)| !is_return(source, sink))
            .map(|(source, sink)| {
                let judged = self.judge(&source, &sink, declared);
                let (severity, why) = judged.map_or((None, None), |(severity, why)| (Some(severity), Some(why)));
                Flow { source, sink, severity, why }
            })
            .collect();
        flows.sort_by(|a, b| rank(a).cmp(&rank(b)).then_with(|| a.cmp(b)));
        flows
    }

    /// How much a flow matters, and why: what is said of its source.
    fn judge(&self, source: &Source, sink: &Sink, declared: &str) -> Option<(Severity, String)> {
        let is_root = matches!(source, Source::Root(_));
        match (sink, source) {
            (Sink::Host(host), _) => Some(judge_host(host, is_root, declared)),
            (Sink::SearchProvider, Source::Root(_) | Source::Memory) => {
                Some((Severity::Medium, "can be put into queries to the search provider".to_owned()))
            }
            (Sink::Toolbox(key), Source::Root(_) | Source::Memory) => {
                let hosts = self.toolbox_hosts.get(key).into_iter().flatten();
                let worst = hosts.map(|host| judge_host(host, is_root, declared)).min();
                let tools = format!("can be handed to the tools of `{key}`");
                match worst {
                    Some((severity, why)) => Some((severity, format!("{tools}, and from there it {why}"))),
                    None => is_root.then_some((Severity::Low, tools)),
                }
            }
            // Memories are the member's own, and the rest is for who dispatched the job.
            _ => None,
        }
    }

    /// What it reads, where it can send, what it writes, and who reads its texts, in a sentence.
    pub fn sentence(&self) -> String {
        let roots = self.roots.iter().map(|root| format!("the read root `{root}`"));
        let reads = roots
            .chain(self.reads_memory.then(|| "its memories".to_owned()))
            .chain(self.reads_hall.then(|| "the commissions of the hall".to_owned()))
            .chain(self.toolboxes.iter().map(|key| format!("what the tools of `{key}` answer")))
            .chain(self.has_callers.then(|| "what its callers hand it".to_owned()));
        let sends = self
            .hosts
            .iter()
            .map(|host| if host == "*" { "any host".to_owned() } else { format!("`{host}`") })
            .chain(self.searches.then(|| "the search provider".to_owned()))
            .chain(self.toolboxes.iter().map(|key| format!("the tools of `{key}`")));
        let writes = [
            (self.writes_memory, "memories"),
            (self.writes_artifacts, "artifacts"),
            (self.writes_project, "the project of a commission"),
            (self.manages_hall, "commissions"),
        ];
        let writes = writes.into_iter().filter(|(has, _)| *has).map(|(_, what)| what.to_owned());
        let readers = [
            (self.reports, "who dispatched it"),
            (self.answers_tools, "the models that call its tools"),
            (self.writes_artifacts, "people who open its artifacts"),
            (self.writes_memory, "its own later jobs"),
            (self.writes_project, "all who work on the project"),
            (self.manages_hall, "the workers that it commissions"),
        ];
        let readers = readers.into_iter().filter(|(has, _)| *has).map(|(_, who)| who.to_owned());
        format!(
            "reads {}; can send to {}; writes {}; its texts reach {}",
            listed(reads),
            listed(sends),
            listed(writes),
            listed(readers)
        )
    }
}

/// `a, b and c`; `nothing`.
pub(crate) fn listed(words: impl Iterator<Item = String>) -> String {
    let words: Vec<_> = words.collect();
    match words.as_slice() {
        [] => "nothing".to_owned(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

fn rank(flow: &Flow) -> u8 {
    flow.severity.map_or(u8::MAX, |severity| severity as u8)
}

/// Whether something only goes back to where it came from.
fn is_return(source: &Source, sink: &Sink) -> bool {
    match (source, sink) {
        (Source::Callers, Sink::Report | Sink::ToolAnswers)
        | (Source::Memory, Sink::Memory)
        | (Source::Hall, Sink::Hall) => true,
        (Source::Toolbox(from), Sink::Toolbox(to)) => from == to,
        (Source::Web, Sink::Host(_) | Sink::SearchProvider) => true,
        _ => false,
    }
}

/// How much it matters that something can go to a host, and why.
fn judge_host(host: &str, is_root: bool, declared: &str) -> (Severity, String) {
    match (hosts::open(host), is_named(host, declared)) {
        (Some(_), _) if is_any(host) => {
            (Severity::High, "can go to any host; have its manifest name the hosts that it needs".to_owned())
        }
        (Some(why), false) => {
            (Severity::High, format!("can go to `{host}`, of which its texts say nothing, and {why}"))
        }
        (Some(why), true) => {
            (if is_root { Severity::High } else { Severity::Medium }, format!("can go to `{host}`, and {why}"))
        }
        (None, false) => {
            (Severity::High, format!("can go to `{host}`, and neither its description nor its posture says what for"))
        }
        (None, true) => (
            if is_root { Severity::Medium } else { Severity::Low },
            format!("can go to `{host}`, which its texts name"),
        ),
    }
}

/// Whether a pattern is of no party in particular.
fn is_any(pattern: &str) -> bool {
    let name = pattern.split(':').next().unwrap_or_default();
    name == "*" || (name.starts_with("*.") && matches!(hosts::open(pattern), Some(Open::PublicSuffix(_))))
}

/// Whether texts name a host: as it is, or, of one party's, by the name that was registered, as a name is written
/// (`Wikipedia` of `*.wikipedia.org`, within a sentence). A word that happens to be one names nothing.
fn is_named(host: &str, texts: &str) -> bool {
    let host = host.split(':').next().unwrap_or_default().trim_start_matches("*.").to_ascii_lowercase();
    let lower = texts.to_ascii_lowercase();
    let domain = psl::domain_str(&host).unwrap_or(&host);
    let registered = domain.split('.').next().unwrap_or_default();
    let places = |word: &str| {
        let found: Vec<usize> = lower.match_indices(word).map(|(at, _)| at).collect();
        found
            .into_iter()
            .filter(|at| {
                let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '-');
                let before = lower.get(..*at).and_then(|text| text.chars().next_back());
                let after = lower.get(at + word.len()..).and_then(|text| text.chars().next());
                !is_part(before) && !is_part(after)
            })
            .collect::<Vec<_>>()
    };
    let is_a_name = |at: &usize| {
        let before = texts.get(..*at).unwrap_or_default().trim_end_matches([' ', '"', '(', '*', '`']);
        let is_within = before.chars().next_back().is_some_and(|c| !".!?:\n#-".contains(c));
        is_within && texts.get(*at..).and_then(|text| text.chars().next()).is_some_and(char::is_uppercase)
    };
    let is_one_partys = hosts::open(&host).is_none() && registered.len() >= 3;
    !places(&host).is_empty()
        || !places(domain).is_empty()
        || (is_one_partys && places(registered).iter().any(is_a_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn severities(reach: &Reach, declared: &str) -> Vec<(Source, Sink, Severity)> {
        let flows = reach.flows(declared).into_iter();
        flows.filter_map(|flow| Some((flow.source, flow.sink, flow.severity?))).collect()
    }

    fn worker() -> Reach {
        Reach { roots: vec!["notes".to_owned()], has_callers: true, reports: true, ..Reach::default() }
    }

    #[test]
    fn files_without_a_way_out_are_no_finding() {
        assert_eq!(severities(&Reach { writes_artifacts: true, ..worker() }, ""), []);
    }

    #[test]
    fn any_host_is_high_whatever_the_texts_say() {
        for host in ["*", "*:443", "*.com"] {
            let reach = Reach { hosts: vec![host.to_owned()], ..worker() };
            let found = severities(&reach, "It reads any page of the web.");
            let high = |source| (source, Sink::Host(host.to_owned()), Severity::High);
            assert_eq!(found, [high(Source::Root("notes".to_owned())), high(Source::Callers)], "{host}");
        }
    }

    #[test]
    fn a_host_that_its_texts_name_is_less_than_one_that_they_do_not() {
        let reach = Reach { hosts: vec!["*.wikipedia.org".to_owned()], ..worker() };
        let root = Source::Root("notes".to_owned());
        let wikipedia = Sink::Host("*.wikipedia.org".to_owned());
        let named = severities(&reach, "Looks words up in Wikipedia.");
        assert_eq!(named, [(root, wikipedia.clone(), Severity::Medium), (Source::Callers, wikipedia, Severity::Low)]);
        let unnamed = severities(&reach, "Counts words.");
        assert!(unnamed.iter().all(|(_, _, severity)| *severity == Severity::High) && unnamed.len() == 2);
    }

    #[test]
    fn a_word_that_happens_to_be_a_hosts_names_none() {
        let to = |host: &str, texts: &str| {
            let reach = Reach { hosts: vec![host.to_owned()], ..worker() };
            severities(&reach, texts).first().map(|(_, _, severity)| *severity)
        };
        assert_eq!(to("collect.summary.dev", "Writes a summary of your notes."), Some(Severity::High));
        assert_eq!(to("collect.summary.dev", "Summary of your notes."), Some(Severity::High));
        assert_eq!(to("collect.summary.dev", "Sends your notes to collect.summary.dev."), Some(Severity::Medium));
        assert_eq!(to("*.github.io", "Checks links of GitHub projects."), Some(Severity::High));
    }

    #[test]
    fn what_a_toolbox_can_send_on_counts_where_it_is_installed() {
        let hosts = [("fetcher".to_owned(), vec!["x.attacker.dev".to_owned()])].into();
        let reach = Reach { toolboxes: vec!["fetcher".to_owned()], toolbox_hosts: hosts, ..worker() };
        let fetcher = Sink::Toolbox("fetcher".to_owned());
        let notes = Source::Root("notes".to_owned());
        assert_eq!(severities(&reach, ""), [(notes.clone(), fetcher.clone(), Severity::High)]);
        let alone = Reach { toolbox_hosts: BTreeMap::new(), ..reach };
        assert_eq!(severities(&alone, ""), [(notes, fetcher, Severity::Low)]);
    }

    #[test]
    fn a_toolbox_with_web_and_no_files_still_carries_out_what_callers_hand_it() {
        let reach = Reach {
            hosts: vec!["stats.attacker.dev".to_owned()],
            has_callers: true,
            answers_tools: true,
            ..Reach::default()
        };
        let stats = Sink::Host("stats.attacker.dev".to_owned());
        assert_eq!(severities(&reach, "Counts words."), [(Source::Callers, stats, Severity::High)]);
    }

    #[test]
    fn one_sentence_says_all() {
        let reach = Reach { hosts: vec!["docs.rs".to_owned()], writes_artifacts: true, searches: true, ..worker() };
        let sentence = "reads the read root `notes` and what its callers hand it; can send to `docs.rs` and the search \
                        provider; writes artifacts; its texts reach who dispatched it and people who open its artifacts";
        assert_eq!(reach.sentence(), sentence);
        assert!(Reach::default().sentence().starts_with("reads nothing; can send to nothing"));
    }
}
