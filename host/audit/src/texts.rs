//! What texts and data say: texts for models made visible, hosts, telling phrases, and what is packed into them.
//!
//! The same is looked for wherever a text comes from: the manifest, the posture, a section of data, what was unpacked from
//! any of them. What it matters depends on where it stands.

use std::collections::BTreeMap;

use guild_contract::manifest::{Manifest, POSTURE};

use crate::{
    evidence::{
        characters::{Alike, OddKind, alike, marked, odd, spelled},
        hosts::{self, Bare, hosts},
        packed::{Form, Packed, packed},
        pages,
        phrases::{Topic, phrases},
        prose,
    },
    findings::Findings,
    model::{Audit, ModelText, NamedHost, OtherFile, OtherKind, PackedBlock},
    rules::{Rule, Severity},
    subject::{Member, in_manifest},
};

/// Texts that are listed.
const TEXTS: usize = 200;
/// Characters of a text that are listed.
const TEXT_CHARS: usize = 20_000;
/// Hosts that are listed.
const HOSTS: usize = 200;
/// Packed blocks that are listed.
const PACKED: usize = 100;
/// Of several of a kind in one place, those that a finding names.
const NAMED: usize = 5;
/// The fewest tag characters in a row that say something: flags have six.
const HIDDEN_RUN: usize = 8;
/// Empty lines that nobody scrolls through.
const EMPTY_LINES: usize = 40;
/// Files that coding agents read by themselves, as orders.
const FOR_AGENTS: [&str; 7] =
    ["AGENTS.md", "CLAUDE.md", "GEMINI.md", ".cursorrules", ".windsurfrules", ".clinerules", "copilot-instructions.md"];
/// The beginning of every tag character in UTF-8.
const TAG: &[u8] = b"\xf3\xa0";

/// Where a text comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    /// The manifest or the posture.
    Declared,
    /// The component's data.
    Data,
    /// Unpacked from a text or from data.
    Unpacked,
}

/// What was found in all texts and all data.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    texts: Vec<ModelText>,
    hosts: BTreeMap<String, (NamedHost, Origin)>,
    packed: Vec<PackedBlock>,
    /// What is said of each rule and place, with how much it matters.
    said: BTreeMap<(Severity, Rule, String), Vec<String>>,
    /// What pages load from or send to, and addresses that a text has filled in, each with its place.
    addresses: Vec<(String, pages::Address)>,
    is_cut: bool,
}

impl Texts {
    /// Looks through what a member brings along for its models: manifest, posture, memories.
    pub(crate) fn declared(&mut self, member: &Member<'_>) {
        for (place, text) in declared(member.manifest, member.package.posture) {
            self.text(&place, &text, Origin::Declared);
            self.blocks(&place, text.as_bytes(), 0);
        }
        for tool in member.package.tools {
            for (of, text) in &tool.texts {
                self.text(&format!("tool {}: {of}", marked(&tool.name)), text, Origin::Declared);
            }
        }
        for (path, memory) in member.package.memories {
            self.text(path, &String::from_utf8_lossy(memory), Origin::Declared);
            self.blocks(path, memory, 0);
        }
        self.names(member);
    }

    /// Looks through a section of data, which begins at `offset` of the file.
    pub(crate) fn data(&mut self, section: &str, data: &[u8], offset: usize) {
        let at = |found: usize| format!("{section} at byte {}", offset + found);
        for text in prose::texts(data) {
            let end = (text.offset + text.bytes).min(data.len());
            let whole = String::from_utf8_lossy(data.get(text.offset..end).unwrap_or_default());
            self.text(&at(text.offset), &whole, Origin::Data);
        }
        self.hosts_in(section, data, Bare::Data, Origin::Data);
        self.phrases_in(section, data);
        self.addresses.extend(pages::active(data).map(|found| (section.to_owned(), found)));
        self.hidden_runs(section, data, offset);
        self.blocks(section, data, offset);
    }

    /// One text that a model can be given.
    fn text(&mut self, place: &str, text: &str, origin: Origin) {
        if self.texts.len() < TEXTS {
            let beginning: String = text.chars().take(TEXT_CHARS).collect();
            self.texts.push(ModelText { place: place.to_owned(), text: marked(&beginning).into_owned() });
        } else {
            self.is_cut = true;
        }
        for odd in odd(text) {
            let severity = match (odd.kind, origin) {
                // Compilers lay strings of all scripts out in a row.
                (OddKind::MixedScripts, Origin::Data) => continue,
                (OddKind::MixedScripts, _) => Severity::Medium,
                (OddKind::Tag | OddKind::Bidirectional, _) | (_, Origin::Declared | Origin::Unpacked) => {
                    Severity::Critical
                }
                _ => Severity::Medium,
            };
            let rule = if odd.kind == OddKind::MixedScripts { Rule::GA051 } else { Rule::GA050 };
            self.say(severity, rule, place, format!("{} ({}) at byte {}", odd.kind.what(), odd.shown, odd.offset));
        }
        if origin != Origin::Data {
            self.hosts_in(place, text.as_bytes(), Bare::Text, origin);
            self.phrases_in(place, text.as_bytes());
        }
        self.deceives(place, text);
        if origin != Origin::Data {
            self.unseen(place, text);
        }
        self.addresses.extend(pages::filled(text.as_bytes()).map(|found| (place.to_owned(), found)));
    }

    /// What a viewer of Markdown does not show, or what nobody scrolls to.
    fn unseen(&mut self, place: &str, text: &str) {
        for comment in text.split("<!--").skip(1).map(|rest| rest.split("-->").next().unwrap_or_default()) {
            if !prose::texts(comment.as_bytes()).is_empty() {
                let beginning = comment.split_whitespace().take(16).collect::<Vec<_>>().join(" ");
                self.say(
                    Severity::Critical,
                    Rule::GA050,
                    place,
                    format!("a comment that no viewer shows: {beginning:?}"),
                );
            }
        }
        let lines = text.trim_end().lines().map(|line| line.trim().is_empty()).collect::<Vec<_>>();
        if lines.chunk_by(|a, b| a == b).any(|run| run.first() == Some(&true) && run.len() >= EMPTY_LINES) {
            let text = format!("a text after {EMPTY_LINES} empty lines and more, which nobody scrolls to");
            self.say(Severity::High, Rule::GA050, place, text);
        }
    }

    /// A text that sets aside what a model was told, and reaches for secrets or hides something.
    fn deceives(&mut self, place: &str, text: &str) {
        let found = phrases(text.as_bytes());
        let has = |topic| found.iter().find(|phrase| phrase.topic == topic).map(|phrase| &phrase.shown);
        let others = has(Topic::Secrets).or(has(Topic::Hiding));
        if let Some(role) = has(Topic::Role) {
            self.say(Severity::High, Rule::GA056, place, format!("it plays another part of the prompt: {role:?}"));
        }
        if let (Some(authority), Some(other)) = (has(Topic::Authority), others) {
            let text = format!(
                "it claims an authority ({authority:?}), and reaches for secrets or hides something ({other:?})"
            );
            let is_all = has(Topic::Secrets).is_some() && has(Topic::Hiding).is_some();
            self.say(if is_all { Severity::Critical } else { Severity::High }, Rule::GA056, place, text);
        }
    }

    fn phrases_in(&mut self, place: &str, bytes: &[u8]) {
        for phrase in phrases(bytes) {
            let topic = match phrase.topic {
                Topic::Secrets => "names something secret",
                Topic::Hiding => "asks for something not to be said",
                Topic::Authority => "claims an authority",
                Topic::Role => "plays another part of the prompt",
            };
            self.say(Severity::Low, Rule::GA056, place, format!("{topic}: {:?}", phrase.shown));
        }
    }

    fn hosts_in(&mut self, place: &str, bytes: &[u8], bare: Bare, origin: Origin) {
        for (host, found) in hosts(bytes, bare) {
            let open = hosts::open(&host);
            let named =
                NamedHost { host: host.clone(), shown: found.shown, place: place.to_owned(), asked: false, open };
            // A text says more of a host than data.
            let known = self.hosts.entry(host).or_insert_with(|| (named.clone(), origin));
            if (origin == Origin::Unpacked && known.1 != origin) || origin < known.1 && known.1 == Origin::Data {
                *known = (named, origin);
            }
        }
    }

    /// Runs of tag characters, which say something to a model and nothing to a reader.
    fn hidden_runs(&mut self, place: &str, data: &[u8], offset: usize) {
        let mut from = 0;
        for at in memchr::memmem::find_iter(data, TAG) {
            if at < from {
                continue;
            }
            let run = data.get(at..).unwrap_or_default();
            let tags: String = run
                .chunks_exact(4)
                .map_while(|tag| str::from_utf8(tag).ok()?.chars().next())
                .map_while(|tag| u8::try_from(u32::from(tag).checked_sub(0xe0000)?).ok().map(char::from))
                .collect();
            from = at + 4 * tags.len().max(1);
            if tags.len() >= HIDDEN_RUN {
                let tags: String = tags.chars().take(400).collect();
                let text = format!("{} tag characters at byte {}, which say {tags:?}", tags.len(), offset + at);
                self.say(Severity::Critical, Rule::GA050, place, text);
            }
        }
    }

    /// What is packed into bytes that begin at `offset` of their file.
    fn blocks(&mut self, place: &str, bytes: &[u8], offset: usize) {
        let (found, is_cut) = packed(bytes);
        self.is_cut |= is_cut;
        for block in found {
            let at = format!("{place} at byte {}", offset + block.offset);
            let steps: Vec<_> = block.steps.iter().map(|step| step.as_str().to_owned()).collect();
            self.unpacked(place, &at, &block, &steps.join(", "));
            if self.packed.len() < PACKED {
                self.packed.push(PackedBlock {
                    place: at,
                    bytes: block.bytes as u64,
                    steps,
                    what: block.form.what().to_owned(),
                    preview: block.preview,
                });
            }
        }
    }

    fn unpacked(&mut self, place: &str, at: &str, block: &Packed, steps: &str) {
        let what = block.form.what();
        let (bytes, preview) = (block.bytes, &block.preview);
        if block.steps.is_empty() {
            self.say(Severity::Low, Rule::GA054, place, format!("{what}, {bytes} bytes at {at}: {preview}"));
            return;
        }
        let inside = match block.form {
            Form::Wasm | Form::Program | Form::Script | Form::PrivateKey => Some(what.to_owned()),
            Form::Text | Form::Other => self.instructions(at, block),
            Form::Archive | Form::Random => None,
        };
        match inside {
            Some(inside) => {
                let text = format!("{inside}, in {bytes} bytes of {steps} at {at}: {preview}");
                self.say(Severity::Critical, Rule::GA053, place, text);
            }
            None => self.say(
                Severity::Low,
                Rule::GA054,
                place,
                format!("{what}, in {bytes} bytes of {steps} at {at}: {preview}"),
            ),
        }
    }

    /// What a model could be told by unpacked content, in words.
    fn instructions(&mut self, at: &str, block: &Packed) -> Option<String> {
        let texts = prose::texts(&block.content);
        let named = hosts(&block.content, Bare::Text);
        let telling = phrases(&block.content);
        for text in &texts {
            let end = (text.offset + text.bytes).min(block.content.len());
            let whole = String::from_utf8_lossy(block.content.get(text.offset..end).unwrap_or_default());
            self.text(&format!("unpacked at {at}"), &whole, Origin::Unpacked);
        }
        self.hosts_in(&format!("unpacked at {at}"), &block.content, Bare::Text, Origin::Unpacked);
        self.addresses.extend(pages::active(&block.content).map(|found| (format!("unpacked at {at}"), found)));
        let open = named.keys().find(|host| hosts::open(host).is_some());
        match (texts.iter().any(|text| prose::orders(&text.text)), open, telling.first()) {
            (true, _, _) => Some("a text that tells a reader what to do".to_owned()),
            (_, Some(host), _) => Some(format!("a text that names the host {host}")),
            (_, _, Some(phrase)) => Some(format!("a text with {:?}", phrase.shown)),
            (false, None, None) => None,
        }
    }

    /// The member's names against those of others.
    fn names(&mut self, member: &Member<'_>) {
        let Manifest { name, display_name, .. } = member.manifest;
        for (key, own) in [("name", name), ("displayName", display_name)] {
            for other in &member.operator.names {
                let Some(alike) = alike(own, other) else { continue };
                // A display name is a name with capitals and spaces.
                if alike == Alike::Spelling && key == "displayName" {
                    continue;
                }
                let (severity, how) = match alike {
                    Alike::Look => (Severity::Critical, "looks like"),
                    Alike::Spelling => (Severity::High, "differs only by capitals or separators from"),
                    Alike::Letter => (Severity::Medium, "differs by one letter from"),
                };
                let text = format!("{} {how} {other:?}, another member", spelled(own));
                self.say(severity, Rule::GA052, &in_manifest(key), text);
            }
        }
    }

    fn say(&mut self, severity: Severity, rule: Rule, place: &str, text: String) {
        let said = self.said.entry((severity, rule, place.to_owned())).or_default();
        if !said.contains(&text) {
            said.push(text);
        }
    }

    /// What was found, with a finding for each kind in each place.
    pub(crate) fn finish(mut self, audit: &mut Audit, asked: &[String], findings: &mut Findings) {
        self.judge_hosts(asked);
        for (place, address) in std::mem::take(&mut self.addresses) {
            if !asked.iter().any(|pattern| hosts::matches(pattern, &address.host)) {
                self.say(Severity::High, Rule::GA061, &place, address.what);
            }
        }
        for ((severity, rule, place), said) in self.said {
            let some = said.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ");
            let more = said.len().saturating_sub(NAMED);
            let more = if more > 0 { format!("; and {more} more") } else { String::new() };
            findings.add_as(severity, rule, place, format!("{some}{more}. {}", what_to_do(rule)));
        }
        if self.is_cut {
            findings.add(
                Rule::GA026,
                "texts",
                "it has more texts or packed data than an audit looks into; no honest member needs as many",
            );
        }
        audit.texts = self.texts;
        audit.packed = self.packed;
        audit.hosts = self.hosts.into_values().map(|(host, _)| host).take(HOSTS).collect();
    }

    /// What hosts matter that its manifest does not ask for: those of texts, and those at which anybody can listen.
    fn judge_hosts(&mut self, asked: &[String]) {
        let mut said: BTreeMap<(Severity, String), Vec<String>> = BTreeMap::new();
        for (name, (host, origin)) in &mut self.hosts {
            host.asked = asked.iter().any(|pattern| hosts::matches(pattern, name));
            let severity = match (origin, &host.open) {
                _ if host.asked => continue,
                (Origin::Declared | Origin::Unpacked, Some(_)) => Severity::Medium,
                (Origin::Data, None) => Severity::Info,
                _ => Severity::Low,
            };
            let why = host.open.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
            said.entry((severity, host.place.clone())).or_default().push(format!("{}{why}", host.shown));
        }
        for ((severity, place), hosts) in said {
            hosts.into_iter().for_each(|host| self.say(severity, Rule::GA055, &place, host));
        }
    }
}

fn what_to_do(rule: Rule) -> &'static str {
    match rule {
        Rule::GA050 => "Ask why a text hides something from its readers, or refuse it",
        Rule::GA051 => "Read it letter by letter",
        Rule::GA052 => "Install it only if you know that both are what you want",
        Rule::GA053 => "Ask why it is packed, or refuse it",
        Rule::GA054 => "Ask what it is for",
        Rule::GA055 => "Its manifest does not ask for these hosts; ask what they are for",
        Rule::GA056 => "Read what stands there",
        Rule::GA061 => {
            "Who opens such a page or report sends it, without having been asked; ask what it is for, or refuse it"
        }
        _ => "",
    }
}

/// What a member says of itself and to its models: each text with its place.
fn declared(manifest: &Manifest, posture: Option<&[u8]>) -> Vec<(String, String)> {
    let fields = [
        ("name", &manifest.name),
        ("displayName", &manifest.display_name),
        ("description", &manifest.description),
        ("version", &manifest.version),
    ];
    let schema = manifest.component.as_ref().and_then(|component| component.config_schema.as_ref());
    let schema = schema.and_then(|schema| serde_json::to_string_pretty(schema).ok());
    let posture = posture.map(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        // Editors of Windows write it at the beginning of every file.
        text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned()
    });
    let fields = fields.into_iter().map(|(key, text)| (in_manifest(key), text.clone()));
    let schema = schema.map(|schema| (in_manifest("component.configSchema"), schema));
    fields.chain(schema).chain(posture.map(|posture| (POSTURE.to_owned(), posture))).collect()
}

/// The texts in which a member says what it is for, in one.
pub(crate) fn purpose(member: &Member<'_>) -> String {
    let posture = member.package.posture.map(String::from_utf8_lossy).unwrap_or_default();
    // A name declares nothing: who has a host can call a member like it.
    [&*member.manifest.description, &posture].join("\n")
}

/// What stands in the directory besides the member's own files.
pub(crate) fn files(files: &[OtherFile], findings: &mut Findings) {
    let of = |kinds: &[OtherKind]| {
        let names: Vec<_> =
            files.iter().filter(|file| kinds.contains(&file.kind)).map(|file| file.path.as_str()).collect();
        let some = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
        match names.len().saturating_sub(NAMED) {
            _ if names.is_empty() => None,
            0 => Some(some),
            more => Some(format!("{some} and {more} more")),
        }
    };
    let for_agents = |file: &&OtherFile| FOR_AGENTS.iter().any(|name| file.path.rsplit('/').next() == Some(name));
    if let Some(file) = files.iter().find(for_agents) {
        let text = "coding agents read it by themselves, as orders, wherever the member lies; delete it";
        findings.add_as(Severity::High, Rule::GA057, &file.path, text);
    }
    let cases: [(Severity, &[OtherKind], &str); 5] = [
        (
            Severity::High,
            &[OtherKind::LinkOut],
            "links that lead out of the directory: who copies, packs or reads the member takes something of yours along",
        ),
        (
            Severity::High,
            &[OtherKind::Wasm],
            "further WebAssembly, which this manifest does not name: a changed manifest could",
        ),
        (
            Severity::Medium,
            &[OtherKind::Program],
            "programs or scripts; this host runs none, but its command line could",
        ),
        (
            Severity::Medium,
            &[OtherKind::Link, OtherKind::Special],
            "links, or what is no file: what they lead to is not audited",
        ),
        (Severity::High, &[OtherKind::PrivateKey], "a private key, which everybody has who has the member"),
    ];
    for (severity, kinds, what) in cases {
        if let Some(names) = of(kinds) {
            findings.add_as(severity, Rule::GA057, names, format!("{what}; ask what it is for, or delete it"));
        }
    }
}

/// The `mcp` line, by which others start the member.
pub(crate) fn line(manifest: &Manifest, findings: &mut Findings) {
    let command = manifest.mcp.as_ref().map_or("guild", |line| &line.command);
    let unplain = manifest.unplain().map(|found| (found.key, found.what));
    // The host's own check takes any program of that name, since people install it where they like.
    let unplain =
        unplain.or((command != "guild").then(|| ("mcp.command", format!("is {command:?} and not \"guild\""))));
    if let Some((key, what)) = unplain {
        let text = format!("it {what}: who starts the member by it gets another program, or another policy than yours");
        findings.add(Rule::GA058, in_manifest(key), text);
    }
}
