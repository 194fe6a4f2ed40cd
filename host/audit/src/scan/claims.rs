//! Reads a component's claims in custom sections: name and metadata, the tools that made it, its dependencies.
//!
//! All of it is the author's word. What is compressed is unpacked to a bound.

use std::{collections::BTreeSet, io::Read};

use flate2::read::ZlibDecoder;
use serde::Deserialize;
use wasmparser::{CustomSectionReader, KnownCustom};

use crate::{
    bounds::{bounded, cut, steers},
    meaning::Language,
    model::{Claims, Dependencies, Package, Producer, Sbom},
};

/// The section in which cargo-auditable puts a list of dependencies.
const AUDITABLE: &str = ".dep-v0";
/// What such a list unpacks to, at most.
const AUDITABLE_BYTES: u64 = 8 * 1024 * 1024;
/// Packages of it that an audit lists.
const PACKAGES: usize = 2000;
/// Producers that an audit lists.
const PRODUCERS: usize = 200;
/// Bills of materials that an audit names.
const SBOMS: usize = 20;

/// What was claimed.
#[derive(Debug, Default)]
pub(crate) struct Claimed {
    pub(crate) claims: Claims,
    pub(crate) producers: BTreeSet<Producer>,
    pub(crate) dependencies: Option<Dependencies>,
    pub(crate) sboms: BTreeSet<Sbom>,
    pub(crate) truncated: bool,
}

impl Claimed {
    /// Reads a custom section; `at_top` for one of the whole component, not of a part.
    pub(crate) fn read(&mut self, section: &CustomSectionReader<'_>, at_top: bool) {
        let name = section.name();
        match section.as_known() {
            KnownCustom::Producers(fields) => self.read_producers(fields),
            KnownCustom::ComponentName(names) if at_top => {
                for name in names.into_iter().flatten() {
                    if let wasmparser::ComponentName::Component { name, .. } = name {
                        self.claims.name = Some(cut(name));
                    }
                }
            }
            _ => {}
        }
        if at_top {
            self.read_claim(name, section.data());
        }
        if name == AUDITABLE && self.dependencies.is_none() {
            self.dependencies = Some(dependencies(section.data()));
        }
        if is_sbom(name) && self.sboms.len() < SBOMS {
            let (data, form) = (section.data(), form_of_sbom(section.data()));
            self.sboms.insert(Sbom { section: cut(name), form: form.to_owned(), bytes: data.len() as u64 });
        }
    }

    fn read_claim(&mut self, name: &str, data: &[u8]) {
        let claims = &mut self.claims;
        let claim = match name {
            "version" => &mut claims.version,
            "description" => &mut claims.description,
            "authors" => &mut claims.authors,
            "licenses" => &mut claims.licenses,
            "source" => &mut claims.source,
            "homepage" => &mut claims.homepage,
            "revision" => &mut claims.revision,
            _ => return,
        };
        let text = String::from_utf8_lossy(data.get(..data.len().min(64 * 1024)).unwrap_or_default());
        *claim = Some(cut(&text));
    }

    fn read_producers(&mut self, fields: wasmparser::ProducersSectionReader<'_>) {
        for field in fields.into_iter().flatten() {
            for value in field.values.into_iter().flatten() {
                if self.producers.len() >= PRODUCERS {
                    self.truncated = true;
                    return;
                }
                let [field, name, version] = [field.name, value.name, value.version].map(cut);
                self.producers.insert(Producer { field, name, version });
            }
        }
    }

    /// The languages that its producers name.
    pub(crate) fn languages(&self) -> BTreeSet<Language> {
        let relevant = |producer: &&Producer| matches!(producer.field.as_str(), "language" | "processed-by" | "sdk");
        self.producers.iter().filter(relevant).filter_map(|producer| Language::of_producer(&producer.name)).collect()
    }

    /// Whether a text in it steers a terminal.
    pub(crate) fn steers(&self) -> bool {
        let Claims { name, version, description, authors, licenses, source, homepage, revision } = &self.claims;
        let claims = [name, version, description, authors, licenses, source, homepage, revision];
        let packages = self.dependencies.iter().flat_map(|list| &list.packages);
        claims.into_iter().flatten().any(|text| steers(text))
            || self.producers.iter().any(|p| steers(&p.name) || steers(&p.version) || steers(&p.field))
            || packages.into_iter().any(|p| steers(&p.name) || steers(&p.version) || steers(&p.source))
    }
}

/// A list as cargo-auditable writes it.
#[derive(Deserialize)]
struct WrittenList {
    packages: Vec<WrittenPackage>,
}

#[derive(Deserialize)]
struct WrittenPackage {
    name: String,
    version: String,
    #[serde(default)]
    source: String,
    #[serde(default)]
    kind: Option<String>,
}

fn dependencies(compressed: &[u8]) -> Dependencies {
    let mut list = Dependencies { section: AUDITABLE.to_owned(), total: 0, packages: Vec::new(), problem: None };
    let mut text = Vec::new();
    let unpacked = ZlibDecoder::new(compressed).take(AUDITABLE_BYTES + 1).read_to_end(&mut text);
    let written = match unpacked {
        Err(_) => Err("it is not compressed as cargo-auditable does".to_owned()),
        Ok(_) if text.len() as u64 > AUDITABLE_BYTES => Err(format!("it unpacks to more than {AUDITABLE_BYTES} bytes")),
        Ok(_) => serde_json::from_slice::<WrittenList>(&text)
            .map_err(|e| format!("it is not what cargo-auditable writes: {e}")),
    };
    match written {
        Ok(written) => {
            list.total = written.packages.len() as u64;
            let package = |package: WrittenPackage| Package {
                name: cut(&package.name),
                version: cut(&package.version),
                source: cut(&package.source),
                kind: cut(package.kind.as_deref().unwrap_or("runtime")),
            };
            list.packages = bounded(written.packages.into_iter().map(package).collect(), PACKAGES);
        }
        Err(problem) => list.problem = Some(cut(&problem)),
    }
    list
}

/// Whether a section's name says that it is a bill of materials.
fn is_sbom(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["sbom", "cyclonedx", "spdx"].iter().any(|word| name.contains(word))
}

/// Which of the two well-known forms it is, by the words that each has to have near its beginning.
fn form_of_sbom(data: &[u8]) -> &'static str {
    let beginning = String::from_utf8_lossy(data.get(..data.len().min(4096)).unwrap_or_default());
    if beginning.contains("CycloneDX") || beginning.contains("cyclonedx") {
        "CycloneDX"
    } else if beginning.contains("spdxVersion") || beginning.contains("SPDXVersion") || beginning.contains("spdx.org") {
        "SPDX"
    } else {
        "unknown"
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::ZlibEncoder};

    use super::*;

    fn packed(text: &[u8]) -> Vec<u8> {
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::best());
        packed.write_all(text).unwrap();
        packed.finish().unwrap()
    }

    #[test]
    fn a_list_of_cargo_auditable_is_read() {
        let list = dependencies(&packed(
            br#"{"packages":[{"name":"b","version":"1.0.0","source":"crates.io","dependencies":[0]},
                {"name":"a","version":"2.0.0","source":"local","kind":"build","root":true}]}"#,
        ));
        let names: Vec<_> = list.packages.iter().map(|p| (p.name.as_str(), p.kind.as_str())).collect();
        assert_eq!((names, list.total, list.problem), (vec![("a", "build"), ("b", "runtime")], 2, None));
    }

    #[test]
    fn a_list_that_unpacks_to_gigabytes_is_refused() {
        let list = dependencies(&packed(&vec![b' '; 64 * 1024 * 1024]));
        assert!(list.problem.unwrap().contains("unpacks to more than"));
        assert!(dependencies(b"not packed").problem.unwrap().contains("compressed"));
        assert!(dependencies(&packed(b"{}")).problem.unwrap().contains("cargo-auditable writes"));
    }
}
