//! Lays out the texts of a member and its data for reading, and finds what is told of their structure: characters that
//! are not shown, blanks where nobody looks, addresses that the manifest does not ask for, and bytes that are no text.
//!
//! No wording is judged. The same is looked for wherever a text comes from.

use std::collections::BTreeMap;

use guild_contract::manifest::{Manifest, POSTURE};

use crate::{
    evidence::{
        characters::{Alike, OddKind, alike, counts, marked, odd, odd_endings, spelled, trailing_lines, visible},
        formulas,
        hosts::{self, hosts},
        pages,
        regions::{self, RegionKind, regions},
        runtimes::{SEED_BYTES, is_seeded, is_worded, of_bytes, of_line},
    },
    facts::{FactName, Found},
    model::{Audit, Folded, Hidden, NamedHost, Text, TextKind, UnreadBytes},
    subject::Member,
};

/// Texts that are listed.
const TEXTS: usize = 400;
/// Bytes of a text in data that are listed, and of all of them.
const TEXT_BYTES: usize = 4000;
const ALL_BYTES: usize = 1024 * 1024;
/// Bytes of a text that is asked for whole.
const WHOLE_BYTES: usize = 4 * 1024 * 1024;
/// Bytes of a region of bytes that is asked for.
const DUMPED: usize = 16 * 1024;
/// Spaces in a row after which nobody looks for more.
const SPACES: &str = "                                                                                ";
/// Empty lines that nobody scrolls through.
const EMPTY_LINES: usize = 40;
/// Hosts that are listed.
const HOSTS: usize = 200;
/// Regions of bytes that are listed.
const REGIONS: usize = 100;
/// Lines of CPython that are in each component of it.
const PYTHON_LINES: u64 = 1000;
/// Of several of a kind in one place, those that a fact names.
const NAMED: usize = 5;
/// The fewest tag characters in a row that say something: flags have six.
const HIDDEN_RUN: usize = 8;
/// The beginning of every tag character in UTF-8.
const TAG: &[u8] = b"\xf3\xa0";

/// The texts and the data of a subject, as they are laid out.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    /// The beginning of the places whose texts are listed whole.
    whole: Option<String>,
    texts: Vec<Text>,
    /// Bytes of data's texts that are listed.
    listed_bytes: usize,
    folded: BTreeMap<String, Folded>,
    hosts: BTreeMap<String, NamedHost>,
    unread: Vec<UnreadBytes>,
    /// Whether a region of dense bytes is the state of CPython's random numbers.
    is_seeded: bool,
    /// The sentences for each fact's name and place.
    told: BTreeMap<(FactName, String), Vec<String>>,
    /// Addresses, each with its fact's name and its place.
    addresses: Vec<(FactName, String, pages::Address)>,
    is_cut: bool,
}

impl Texts {
    /// Of a subject whose texts at places that begin with `whole` are listed whole.
    pub(crate) fn new(whole: Option<&str>) -> Self {
        Self { whole: whole.map(str::to_owned), ..Self::default() }
    }

    /// Lays out what a member brings along for its models: manifest, posture, tools, memories.
    pub(crate) fn declared(&mut self, member: &Member<'_>) {
        for (kind, place, text) in declared(member) {
            self.text(kind, &place, &text);
        }
        for tool in member.package.tools {
            for (of, text) in &tool.texts {
                self.text(TextKind::Tool, &format!("tool {}: {of}", marked(&tool.name)), text);
            }
        }
        for (path, memory) in member.package.memories {
            self.text(TextKind::Memory, path, &String::from_utf8_lossy(memory));
        }
        for (path, content) in member.package.documents {
            self.hidden_runs(content, &|at| format!("{path} at byte {at}"));
            let text = String::from_utf8_lossy(content);
            for odd in odd(&text).into_iter().filter(|odd| odd.kind == OddKind::Bidirectional) {
                self.tell(
                    FactName::HiddenText,
                    path,
                    format!("{} ({}) at byte {}", odd.kind.what(), odd.shown, odd.offset),
                );
            }
        }
        self.is_cut |= member.package.is_cut;
        self.names(member);
    }

    /// Lays out data of a section. `place_of` is where a byte of it stands in the file.
    pub(crate) fn data(&mut self, section: &str, data: &[u8], place_of: &dyn Fn(usize) -> usize) {
        let at = |found: usize| format!("{section} at byte {}", place_of(found));
        let texts = regions::texts(data);
        for text in &texts {
            self.of_data(&at(text.offset), text);
        }
        for region in regions(data, &texts) {
            let begins = data.get(region.offset..).unwrap_or_default().iter().take(8);
            let bytes = data.get(region.offset..region.offset + region.bytes).unwrap_or_default();
            let runtime = Some(bytes).filter(|_| region.kind.is_unaccounted()).and_then(of_bytes);
            if self.is_asked(&at(region.offset)) {
                let shown = bytes.get(..DUMPED.min(bytes.len())).unwrap_or_default();
                self.list(TextKind::Data, &at(region.offset), &dump(shown), bytes.len() - shown.len());
            }
            self.is_seeded |= region.kind == RegionKind::Dense && is_seeded(data, region.offset);
            self.unread.push(UnreadBytes {
                place: at(region.offset),
                bytes: region.bytes as u64,
                kind: runtime.map_or_else(|| region.kind.what().to_owned(), |runtime| format!("bytes of {runtime}")),
                entropy: (region.entropy * 100.0).round() / 100.0,
                begins: begins.map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" "),
                accounted: runtime.is_some() || !region.kind.is_unaccounted(),
            });
        }
        for (host, found) in hosts(data) {
            let (place, relay) = (at(found.offset), hosts::relay(&host, &[]));
            let formula = formulas::function_before(data, found.offset);
            let line = texts.iter().find_map(|text| line_at(text, found.offset));
            // A runtime's own texts name its documentation.
            let is_known = hosts::is_namespace(&host) || line.is_some_and(|line| of_line(line).is_some());
            if formula.is_some() || !is_known {
                let by = formula.map(|name| format!(", which the formula {name} asks for")).unwrap_or_default();
                let what = format!("{}{by}, at byte {}", found.shown, place_of(found.offset));
                let address = pages::Address { host: host.clone(), what };
                self.addresses.push((FactName::AddressInData, section.to_owned(), address));
            }
            let named = NamedHost { host: host.clone(), shown: found.shown, place, asked: false, relay };
            self.hosts.entry(host).or_insert(named);
        }
        let active = pages::active(data).map(|found| (FactName::SendingPage, section.to_owned(), found));
        self.addresses.extend(active);
        self.hidden_runs(data, &at);
    }

    /// A text in data: without the lines of a runtime, and cut where nobody asked for the whole.
    fn of_data(&mut self, place: &str, found: &regions::Text) {
        let is_asked = self.is_asked(place);
        if !is_asked && !is_worded(&found.text) {
            return self.fold("runs of fewer than four words", 1, found.bytes);
        }
        if let Some(runtime) = of_line(&found.text).filter(|_| !is_asked) {
            let lines = found.text.lines().count() as u64;
            return self.fold(&format!("lines of {runtime}"), lines, found.bytes);
        }
        let mut own = Vec::new();
        let (mut skipped, mut has_own) = (0_usize, false);
        for line in found.text.split('\n') {
            match is_worded(line).then(|| of_line(line)).flatten().filter(|_| !is_asked) {
                Some(runtime) => {
                    skipped += 1;
                    self.fold(&format!("lines of {runtime}"), 1, line.len() + 1);
                }
                None => {
                    if std::mem::take(&mut skipped) > 0 {
                        own.push("[lines of a runtime]".to_owned());
                    }
                    has_own |= is_worded(line);
                    own.push(line.to_owned());
                }
            }
        }
        // Between the lines of a runtime stand its shorter ones.
        if !has_own && !is_asked && own.len() < found.text.split('\n').count() {
            let bytes = own.iter().map(String::len).sum();
            return self.fold("runs of fewer than four words", own.len() as u64, bytes);
        }
        let most = if is_asked { WHOLE_BYTES } else { TEXT_BYTES };
        let text = own.join("\n");
        let room = if is_asked { most } else { most.min(ALL_BYTES.saturating_sub(self.listed_bytes)) };
        if self.texts.len() >= TEXTS && !is_asked || room == 0 {
            return self.fold("further texts", 1, found.bytes);
        }
        let shown = text.get(..text.floor_char_boundary(room)).unwrap_or_default();
        self.listed_bytes += shown.len();
        self.list(TextKind::Data, place, shown, text.len() - shown.len());
    }

    /// One text that a model or a person is given, whole, with what is told of its structure.
    fn text(&mut self, kind: TextKind, place: &str, text: &str) {
        if text.is_empty() {
            return;
        }
        self.list(kind, place, text, 0);
        for odd in odd(text) {
            let name = if odd.kind == OddKind::MixedScripts { FactName::MixedScripts } else { FactName::HiddenText };
            self.tell(name, place, format!("{} ({}) at byte {}", odd.kind.what(), odd.shown, odd.offset));
        }
        self.unseen(place, text);
        for (host, found) in hosts(text.as_bytes()) {
            let address = pages::Address { host, what: format!("{} at byte {}", found.shown, found.offset) };
            self.addresses.push((FactName::UndeclaredAddress, place.to_owned(), address));
        }
        let loads = pages::active(text.as_bytes()).chain(pages::pictures(text.as_bytes()));
        let loads = loads.chain(pages::filled(text.as_bytes()));
        self.addresses.extend(loads.map(|found| (FactName::SendingPage, place.to_owned(), found)));
    }

    /// Blanks that hide something: at the ends of lines, and before a text to which nobody scrolls.
    fn unseen(&mut self, place: &str, text: &str) {
        match odd_endings(text) {
            0 => {}
            1 => self.tell(FactName::HiddenText, place, "a line that ends in blanks or tabs".to_owned()),
            lines => self.tell(FactName::HiddenText, place, format!("{lines} lines that end in blanks or tabs")),
        }
        if text.lines().any(|line| line.trim_end().trim_start().contains(SPACES)) {
            self.tell(FactName::HiddenText, place, format!("a text after {} blanks in a row", SPACES.len()));
        }
        let empty = text.trim_end().lines().map(|line| line.trim().is_empty()).collect::<Vec<_>>();
        if empty.chunk_by(|a, b| a == b).any(|run| run.first() == Some(&true) && run.len() >= EMPTY_LINES) {
            self.tell(FactName::HiddenText, place, format!("a text after {EMPTY_LINES} empty lines and more"));
        }
    }

    /// Accounts for the random numbers that CPython drew when the component was made: its seed, and the state that came
    /// of it. They are accounted for by their form and size alone, in a component that has the interpreter's lines.
    fn account_for_seed(&mut self) {
        let is_python = |folded: &Folded| folded.what.starts_with("lines of CPython") && folded.count >= PYTHON_LINES;
        if !self.is_seeded || !self.folded.values().any(is_python) {
            return;
        }
        let is_seed = |bytes: &&mut UnreadBytes| {
            bytes.kind == RegionKind::Dense.what() && !bytes.accounted && bytes.bytes <= SEED_BYTES as u64
        };
        for bytes in self.unread.iter_mut().filter(is_seed).take(2) {
            bytes.accounted = true;
            "random numbers that CPython drew when the component was made".clone_into(&mut bytes.kind);
        }
    }

    fn is_asked(&self, place: &str) -> bool {
        self.whole.as_ref().is_some_and(|whole| Text::is_at(place, whole))
    }

    fn list(&mut self, kind: TextKind, place: &str, text: &str, left: usize) {
        let odd = counts(text).into_iter().map(|(kind, count)| Hidden { what: kind.what().to_owned(), count });
        let ends = Some(trailing_lines(text)).filter(|lines| *lines > 0 && kind != TextKind::Data);
        let ends = ends.map(|count| Hidden { what: "a line that ends in blanks or tabs".to_owned(), count });
        self.texts.push(Text {
            kind,
            place: place.to_owned(),
            bytes: (text.len() + left) as u64,
            text: if kind == TextKind::Data { marked(text).into_owned() } else { visible(text) },
            left: left as u64,
            hidden: odd.chain(ends).collect(),
        });
    }

    fn fold(&mut self, what: &str, count: u64, bytes: usize) {
        let folded = self.folded.entry(what.to_owned());
        let folded = folded.or_insert_with(|| Folded { what: what.to_owned(), count: 0, bytes: 0 });
        folded.count += count;
        folded.bytes += bytes as u64;
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
                self.tell(FactName::HiddenText, &at(found), text);
            }
        }
    }

    /// The member's names against those of others.
    fn names(&mut self, member: &Member<'_>) {
        let Manifest { name, display_name, .. } = member.manifest;
        for (key, own) in [("name", name), ("displayName", display_name)] {
            for other in &member.operator.names {
                let how = match alike(own, other) {
                    None => continue,
                    // A display name is a name with capitals and spaces.
                    Some(Alike::Spelling) if key == "displayName" => continue,
                    Some(Alike::Same) => "is also the name of",
                    Some(Alike::Look) => "looks like",
                    Some(Alike::Spelling) => "differs only by capitals or separators from",
                    Some(Alike::Letter) => "differs by one letter from",
                };
                let text = format!("{} {how} {other:?}, another member", spelled(own));
                self.tell(FactName::LookAlikeName, &member.in_manifest(key), text);
            }
        }
    }

    fn tell(&mut self, name: FactName, place: &str, text: String) {
        let told = self.told.entry((name, place.to_owned())).or_default();
        if !told.contains(&text) {
            told.push(text);
        }
    }

    /// Hands over what was found, with a fact for each name and place. `asked` has the hosts of the manifest, `relays`
    /// those of the operator.
    pub(crate) fn finish(mut self, audit: &mut Audit, asked: &[String], relays: &[String], facts: &mut Found) {
        let is_asked = |host: &str| asked.iter().any(|pattern| hosts::matches(pattern, host));
        for (name, place, address) in std::mem::take(&mut self.addresses) {
            if !is_asked(&address.host) {
                self.tell(name, &place, address.what);
            }
        }
        self.account_for_seed();
        let unaccounted: Vec<_> = self.unread.iter().filter(|bytes| !bytes.accounted).collect();
        let bytes: u64 = unaccounted.iter().map(|bytes| bytes.bytes).sum();
        let shown = |found: &&UnreadBytes| {
            format!("{} bytes of {} at {} (entropy {})", found.bytes, found.kind, found.place, found.entropy)
        };
        let listed = named(unaccounted.iter().map(shown));
        if let Some(listed) = listed {
            facts.add(FactName::UnaccountedBytes, "data", format!("{bytes} bytes in all: {listed}"));
        }
        for ((name, place), told) in self.told {
            if let Some(text) = named(told.into_iter()) {
                facts.add(name, place, text);
            }
        }
        if self.is_cut {
            facts.add(FactName::NotAllListed, "directory", "it has more files than an audit looks into");
        }
        self.unread.sort_by(|a, b| (a.accounted, b.bytes, &a.place).cmp(&(b.accounted, a.bytes, &b.place)));
        audit.unread_total = self.unread.len() as u64;
        self.unread.truncate(REGIONS);
        audit.texts = self.texts;
        audit.folded = self.folded.into_values().collect();
        audit.unread = self.unread;
        audit.hosts = self.hosts.into_values().take(HOSTS).collect();
        for host in &mut audit.hosts {
            host.asked = is_asked(&host.host);
            host.relay = hosts::relay(&host.host, relays);
        }
    }
}

/// The line of a text that has the byte at `offset` of the data.
fn line_at(text: &regions::Text, offset: usize) -> Option<&str> {
    let at = offset.checked_sub(text.offset).filter(|at| *at < text.bytes)?;
    let start = text.text.get(..at)?.rfind('\n').map_or(0, |end| end + 1);
    text.text.get(start..)?.lines().next()
}

/// Bytes as a person reads them: 16 a line in hexadecimal digits, with their letters.
fn dump(bytes: &[u8]) -> String {
    let line = |row: &[u8]| {
        let digits: String = row.iter().map(|byte| format!("{byte:02x} ")).collect();
        let letter = |byte: &u8| if matches!(byte, b' '..=b'~') { char::from(*byte) } else { '.' };
        format!("{digits:<48} {}", row.iter().map(letter).collect::<String>())
    };
    bytes.chunks(16).map(line).collect::<Vec<_>>().join("\n")
}

/// The first of some texts, and how many more there are.
fn named(texts: impl Iterator<Item = String>) -> Option<String> {
    let mut texts = texts.peekable();
    texts.peek()?;
    let some = texts.by_ref().take(NAMED).collect::<Vec<_>>().join("; ");
    Some(match texts.count() {
        0 => some,
        more => format!("{some}; and {more} more"),
    })
}

/// The texts of a member about itself and for its models, each with its place.
fn declared(member: &Member<'_>) -> Vec<(TextKind, String, String)> {
    let manifest = member.manifest;
    let fields = [
        ("name", &manifest.name),
        ("displayName", &manifest.display_name),
        ("description", &manifest.description),
        ("version", &manifest.version),
    ];
    let title = manifest.display_title.as_ref().map(|title| ("displayTitle", title));
    let of_manifest = |key: &str, text: String| (TextKind::Manifest, member.in_manifest(key), text);
    let fields = fields.into_iter().chain(title).map(|(key, text)| of_manifest(key, text.clone()));
    let schema = manifest.component.as_ref().and_then(|component| component.config_schema.as_ref());
    let schema = schema.and_then(|schema| serde_json::to_string_pretty(schema).ok());
    let schema = schema.map(|schema| of_manifest("component.configSchema", schema));
    let posture = member.posture().map(|text| {
        let place = member.package.posture.map_or_else(|| member.in_manifest("posture"), |_| POSTURE.to_owned());
        // Editors of Windows write it at the beginning of every file.
        (TextKind::Posture, place, text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned())
    });
    // The posture is what a reviewer reads first.
    posture.into_iter().chain(fields).chain(schema).collect()
}
