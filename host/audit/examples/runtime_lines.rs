//! Writes the digests of a runtime's lines and dense regions, of several components that have it; see `src/evidence/runtimes.rs`.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
};

use guild_audit::evidence::{
    regions::{regions, texts},
    runtimes::{digest, is_worded},
};

fn main() -> io::Result<()> {
    let mut found: BTreeMap<_, usize> = BTreeMap::new();
    for file in std::env::args().skip(1) {
        let bytes = std::fs::read(file)?;
        let sections = guild_audit::data_of(&bytes);
        let mut distinct = BTreeSet::new();
        for data in &sections {
            let texts = texts(data);
            let lines = texts.iter().flat_map(|text| text.text.lines().chain([text.text.as_str()]));
            let lines = lines.filter(|line| is_worded(line));
            distinct.extend(lines.map(|line| digest(line.trim().as_bytes())));
            let dense = regions(data, &texts).into_iter().filter(|region| region.kind.is_unaccounted());
            distinct
                .extend(dense.filter_map(|region| data.get(region.offset..region.offset + region.bytes)).map(digest));
        }
        distinct.into_iter().for_each(|digest| *found.entry(digest).or_default() += 1);
    }
    let shared = found.into_iter().filter(|(_, components)| *components > 1).flat_map(|(digest, _)| digest);
    io::stdout().write_all(&shared.collect::<Vec<u8>>())
}
