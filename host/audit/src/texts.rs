//! Examines texts and data: texts for models made visible, hosts, telling phrases, and packed data.
//!
//! The same is looked for wherever a text comes from: the manifest, the posture, a section of data, what was unpacked from
//! any of them. What it matters depends on where it stands.

use std::collections::BTreeMap;

use guild_contract::manifest::{Manifest, POSTURE};

use crate::{
    evidence::{
        characters::{Alike, OddKind, alike, marked, odd, spelled},
        form::Form,
        hosts::{self, Bare, hosts},
        packed::{Packed, packed},
        pages,
        phrases::{Phrase, Topic, authorities, phrases, sneaks},
        prose,
        views::{strings_of, unescaped, wide},
    },
    flows::{Flow, Source},
    model::{Audit, Findings, ModelText, NamedHost, PackedBlock},
    rules::{Rule, Severity},
    subject::Member,
};

/// Texts of a section of data, or of what is unpacked, that are listed. What a member declares is listed whole.
const TEXTS: usize = 50;
/// Texts that are listed in all.
const ALL_TEXTS: usize = 1000;
/// Characters of a text in data that are listed.
const TEXT_CHARS: usize = 20_000;
/// Bytes before and after a claim of an authority in data that are read with it.
const AROUND: usize = 800;
/// Spaces in a row after which nobody looks for more.
const SPACES: &str = "                                                                                ";
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
    /// What pages load from or send to, each with its place.
    addresses: Vec<(String, pages::Address)>,
    /// Addresses that a text has filled in, each with its place.
    filled: Vec<(String, pages::Address)>,
    is_cut: bool,
}

impl Texts {
    /// Looks through what a member brings along for its models: manifest, posture, memories.
    pub(crate) fn declared(&mut self, member: &Member<'_>) {
        for (place, text) in declared(member) {
            self.text(&place, &text);
        }
        for tool in member.package.tools {
            for (of, text) in &tool.texts {
                self.text(&format!("tool {}: {of}", marked(&tool.name)), text);
            }
        }
        for (path, memory) in member.package.memories {
            self.text(path, &String::from_utf8_lossy(memory));
        }
        for (path, content) in member.package.documents {
            self.document(path, content);
        }
        self.is_cut |= member.package.is_cut;
        self.names(member);
    }

    /// Looks through data of a section. `place` is where a byte of it stands in the file.
    pub(crate) fn data(&mut self, section: &str, data: &[u8], place: &dyn Fn(usize) -> usize) {
        let at = |found: usize| format!("{section} at byte {}", place(found));
        self.prose(section, data, Origin::Data, &at);
        self.hosts_in(section, data, Bare::Data, Origin::Data);
        self.hint(section, &phrases(data));
        self.claims_in(data, &at);
        self.addresses.extend(pages::active(data).map(|found| (section.to_owned(), found)));
        self.hidden_runs(data, &at);
        self.blocks(section, data, &at);
        // The same as programs of other languages have it: in UTF-16, or as JSON escapes it.
        for (form, view) in [("in UTF-16", wide(data)), ("with escapes", unescaped(data))] {
            let Some(view) = view else { continue };
            let at = |_: usize| format!("{section}, {form}");
            self.claims_in(&view, &at);
            self.hidden_runs(&view, &at);
        }
    }

    /// Judges all texts in bytes, and lists the first. Whether one of them tells a reader what to do.
    fn prose(&mut self, section: &str, bytes: &[u8], origin: Origin, at: &dyn Fn(usize) -> String) -> bool {
        let (mut orders, mut count) = (false, 0_usize);
        for text in prose::texts(bytes) {
            let end = (text.offset + text.bytes).min(bytes.len());
            let whole = String::from_utf8_lossy(bytes.get(text.offset..end).unwrap_or_default());
            let place = at(text.offset);
            if count < TEXTS {
                self.show(&place, &whole.chars().take(TEXT_CHARS).collect::<String>());
            }
            self.judge(&place, &whole, origin);
            orders |= prose::orders(&whole);
            count += 1;
        }
        if let Some(more) = count.checked_sub(TEXTS).filter(|more| *more > 0) {
            self.show(section, &format!("(and {more} more texts, which were judged and are not listed)"));
        }
        orders
    }

    /// Reads what stands around each claim of an authority in data.
    fn claims_in(&mut self, data: &[u8], at: &dyn Fn(usize) -> String) {
        let (places, is_cut) = authorities(data);
        self.is_cut |= is_cut;
        for place in places {
            let around = data.get(place.saturating_sub(AROUND)..(place + AROUND).min(data.len())).unwrap_or_default();
            self.deceives(&at(place), &String::from_utf8_lossy(around), &phrases(around));
        }
    }

    /// A file that nobody is meant to read as an order: what it hides, and what is packed into it.
    fn document(&mut self, path: &str, content: &[u8]) {
        let at = |found: usize| format!("{path} at byte {found}");
        self.hidden_runs(content, &at);
        self.blocks(path, content, &at);
        let text = String::from_utf8_lossy(content);
        if !authorities(content).0.is_empty() || sneaks(content) {
            self.say(Severity::Medium, Rule::GA056, path, "it speaks to a model; delete it, or read it".to_owned());
        }
        for odd in odd(&text).into_iter().filter(|odd| odd.kind == OddKind::Bidirectional) {
            let text = format!("{} ({}) at byte {}", odd.kind.what(), odd.shown, odd.offset);
            self.say(Severity::Critical, Rule::GA050, path, text);
        }
    }

    /// One text that a model is given: whole, and with what is packed into it.
    fn text(&mut self, place: &str, text: &str) {
        self.show(place, text);
        self.blocks(place, text.as_bytes(), &|found| format!("{place} at byte {found}"));
        // A schema says what its strings say, without the escapes.
        match serde_json::from_str::<serde_json::Value>(text) {
            Ok(value @ (serde_json::Value::Object(_) | serde_json::Value::Array(_))) => {
                let mut strings = String::new();
                strings_of(&value, &mut strings);
                self.judge(place, &strings, Origin::Declared);
            }
            _ => self.judge(place, text, Origin::Declared),
        }
    }

    fn show(&mut self, place: &str, text: &str) {
        if self.texts.len() < ALL_TEXTS {
            self.texts.push(ModelText { place: place.to_owned(), text: marked(text).into_owned() });
        } else {
            self.is_cut = true;
        }
    }

    fn judge(&mut self, place: &str, text: &str, origin: Origin) {
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
        let found = phrases(text.as_bytes());
        self.deceives(place, text, &found);
        if origin != Origin::Data {
            self.hosts_in(place, text.as_bytes(), Bare::Text, origin);
            self.hint(place, &found);
            self.unseen(place, text);
            let loads = pages::active(text.as_bytes()).chain(pages::pictures(text.as_bytes()));
            self.addresses.extend(loads.map(|found| (place.to_owned(), found)));
        }
        self.filled.extend(pages::filled(text.as_bytes()).map(|found| (place.to_owned(), found)));
    }

    /// What a viewer of Markdown does not show, or what nobody scrolls to.
    fn unseen(&mut self, place: &str, text: &str) {
        let html = text.split("<!--").skip(1).map(|rest| rest.split("-->").next().unwrap_or_default());
        let markdown = text.lines().filter_map(|line| line.trim_start().strip_prefix("[//]:"));
        let hidden = pages::hidden(text);
        for unshown in html.chain(markdown).chain(hidden) {
            let is_prose = prose::texts(unshown.as_bytes()).next().is_some();
            let tells = prose::orders(unshown) || !phrases(unshown.as_bytes()).is_empty();
            if is_prose || tells {
                let beginning = unshown.split_whitespace().take(16).collect::<Vec<_>>().join(" ");
                let text = format!("a text that no viewer shows: {beginning:?}");
                self.say(if tells { Severity::Critical } else { Severity::Low }, Rule::GA050, place, text);
            }
        }
        if text.lines().any(|line| line.trim_end().trim_start().contains(SPACES)) {
            let text = "a text after so many spaces that nobody scrolls to it".to_owned();
            self.say(Severity::High, Rule::GA050, place, text);
        }
        let lines = text.trim_end().lines().map(|line| line.trim().is_empty()).collect::<Vec<_>>();
        if lines.chunk_by(|a, b| a == b).any(|run| run.first() == Some(&true) && run.len() >= EMPTY_LINES) {
            let text = format!("a text after {EMPTY_LINES} empty lines and more, which nobody scrolls to");
            self.say(Severity::High, Rule::GA050, place, text);
        }
    }

    /// A text that sets aside what a model was told, and reaches for secrets or hides something.
    fn deceives(&mut self, place: &str, text: &str, found: &[Phrase]) {
        let has = |topic| found.iter().find(|phrase| phrase.topic == topic).map(|phrase| &phrase.shown);
        let secrets = has(Topic::SecretFiles).or(has(Topic::Secrets));
        let others = secrets.or(has(Topic::Hiding));
        if let Some(role) = has(Topic::Role) {
            self.say(Severity::High, Rule::GA056, place, format!("it plays another part of the prompt: {role:?}"));
        }
        if let (Some(authority), Some(other)) = (has(Topic::Authority), others) {
            let text = format!(
                "it claims an authority ({authority:?}), and reaches for secrets or hides something ({other:?})"
            );
            let is_all = secrets.is_some() && has(Topic::Hiding).is_some();
            self.say(if is_all { Severity::Critical } else { Severity::High }, Rule::GA056, place, text);
        } else if sneaks(text.as_bytes()) {
            let text = "it sends its reader after files of secrets, and keeps that from people".to_owned();
            self.say(Severity::High, Rule::GA056, place, text);
        }
    }

    /// Each phrase as a hint.
    fn hint(&mut self, place: &str, found: &[Phrase]) {
        for phrase in found {
            let topic = match phrase.topic {
                Topic::SecretFiles | Topic::Secrets => "names something secret",
                Topic::Hiding => "asks for something not to be said",
                Topic::Authority => "claims an authority",
                Topic::Role => "plays another part of the prompt",
            };
            self.say(Severity::Low, Rule::GA056, place, format!("{topic}: {:?}", phrase.shown));
        }
    }

    fn hosts_in(&mut self, place: &str, bytes: &[u8], bare: Bare, origin: Origin) {
        for (host, found) in hosts(bytes, bare) {
            let open = hosts::open(&host).map(|open| open.to_string());
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
    fn hidden_runs(&mut self, data: &[u8], at: &dyn Fn(usize) -> String) {
        let mut from = 0;
        for found in memchr::memmem::find_iter(data, TAG) {
            if found < from {
                continue;
            }
            let run = data.get(found..).unwrap_or_default();
            let tags: String = run
                .chunks_exact(4)
                .map_while(|tag| str::from_utf8(tag).ok()?.chars().next())
                .map_while(|tag| u8::try_from(u32::from(tag).checked_sub(0xe0000)?).ok().map(char::from))
                .collect();
            from = found + 4 * tags.len().max(1);
            if tags.len() >= HIDDEN_RUN {
                let tags: String = tags.chars().take(400).collect();
                let text = format!("{} tag characters, which say {tags:?}", tags.chars().count());
                self.say(Severity::Critical, Rule::GA050, &at(found), text);
            }
        }
    }

    /// What is packed into bytes.
    fn blocks(&mut self, place: &str, bytes: &[u8], at: &dyn Fn(usize) -> String) {
        let (found, is_cut) = packed(bytes);
        self.is_cut |= is_cut;
        for block in found {
            let at = at(block.offset);
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
        let named = hosts(&block.content, Bare::Text);
        let telling = phrases(&block.content);
        let place = format!("unpacked at {at}");
        let orders = self.prose(&place, &block.content, Origin::Unpacked, &|_| place.clone());
        self.hosts_in(&place, &block.content, Bare::Text, Origin::Unpacked);
        self.addresses.extend(pages::active(&block.content).map(|found| (place.clone(), found)));
        let open = named.keys().find(|host| hosts::open(host).is_some());
        let telling = telling.iter().find(|phrase| phrase.topic != Topic::Secrets);
        match (orders, open, telling) {
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
                    Alike::Same => (Severity::Critical, "is also the name of"),
                    Alike::Look => (Severity::Critical, "looks like"),
                    Alike::Spelling => (Severity::High, "differs only by capitals or separators from"),
                    Alike::Letter => (Severity::Medium, "differs by one letter from"),
                };
                let text = format!("{} {how} {other:?}, another member", spelled(own));
                self.say(severity, Rule::GA052, &member.in_manifest(key), text);
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
        // There has to be something of the operator's to fill it with.
        let is_private = |flow: &Flow| matches!(flow.source, Source::Root(_) | Source::Memory);
        let severity = if audit.flows.iter().any(is_private) { Severity::High } else { Severity::Medium };
        for (place, address) in std::mem::take(&mut self.filled) {
            if !asked.iter().any(|pattern| hosts::matches(pattern, &address.host)) {
                self.say(severity, Rule::GA061, &place, address.what);
            }
        }
        for ((severity, rule, place), said) in self.said {
            let some = said.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ");
            let more = said.len().saturating_sub(NAMED);
            let more = if more > 0 { format!("; and {more} more") } else { String::new() };
            findings.add_as(severity, rule, place, format!("{some}{more}. {}", what_to_do(rule)));
        }
        if self.is_cut {
            findings.add_as(
                Severity::High,
                Rule::GA026,
                "texts",
                "it has more texts, files or packed data than an audit looks into, so that something was not looked at; no \
                 honest member needs as many",
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
fn declared(member: &Member<'_>) -> Vec<(String, String)> {
    let manifest = member.manifest;
    let fields = [
        ("name", &manifest.name),
        ("displayName", &manifest.display_name),
        ("description", &manifest.description),
        ("version", &manifest.version),
    ];
    let schema = manifest.component.as_ref().and_then(|component| component.config_schema.as_ref());
    let schema = schema.and_then(|schema| serde_json::to_string_pretty(schema).ok());
    let posture = member.posture().map(|text| {
        let place = member.package.posture.map_or_else(|| member.in_manifest("posture"), |_| POSTURE.to_owned());
        // Editors of Windows write it at the beginning of every file.
        (place, text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned())
    });
    let title = manifest.display_title.as_ref().map(|title| ("displayTitle", title));
    let fields = fields.into_iter().chain(title).map(|(key, text)| (member.in_manifest(key), text.clone()));
    let schema = schema.map(|schema| (member.in_manifest("component.configSchema"), schema));
    fields.chain(schema).chain(posture).collect()
}

/// The texts in which a member says what it is for, in one.
pub(crate) fn purpose(member: &Member<'_>) -> String {
    let posture = member.posture().unwrap_or_default();
    // A name declares nothing: who has a host can call a member like it.
    [&*member.manifest.description, &posture].join("\n")
}
