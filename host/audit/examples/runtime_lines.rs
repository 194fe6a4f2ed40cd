//! Writes the digests of a runtime's lines, of several components that have it; see `src/evidence/runtimes.rs`.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
};

use guild_audit::evidence::{
    regions::texts,
    runtimes::{digest, is_worded},
};

fn main() -> io::Result<()> {
    let mut found: BTreeMap<_, usize> = BTreeMap::new();
    for file in std::env::args().skip(1) {
        let bytes = std::fs::read(file)?;
        let sections = guild_audit::data_of(&bytes);
        let texts: Vec<_> = sections.iter().flat_map(|data| texts(data)).collect();
        let lines = texts.iter().flat_map(|text| text.text.lines()).filter(|line| is_worded(line));
        let distinct: BTreeSet<_> = lines.map(digest).collect();
        distinct.into_iter().for_each(|digest| *found.entry(digest).or_default() += 1);
    }
    let shared = found.into_iter().filter(|(_, components)| *components > 1).flat_map(|(digest, _)| digest);
    io::stdout().write_all(&shared.collect::<Vec<u8>>())
}
