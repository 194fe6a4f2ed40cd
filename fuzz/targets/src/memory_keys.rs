//! Memories under any keys, against a model, in a directory that nothing may leave.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::fs::symlink,
    sync::Arc,
};

use guild_contract::Limits;
use guild_fs::clock::SystemClock;
use guild_jobs::MemoryStore;

use crate::scratch::{Scratch, knows_the_secret, tree};

/// Steps, with U+001E between; each is an operation, a key and a content, with U+001F between.
pub fn run(data: &[u8]) {
    if knows_the_secret(data) {
        return;
    }
    let scratch = Scratch::new();
    let limits = Arc::new(Limits { memory_entries: 8, ..Limits::default() });
    let store = MemoryStore::open(&scratch.dir(), limits.clone(), Arc::new(SystemClock)).unwrap();
    let (mut model, mut links) = (BTreeMap::new(), BTreeSet::new());
    let text = String::from_utf8_lossy(data);
    for step in text.split('\u{1e}').take(32) {
        let mut fields = step.splitn(3, '\u{1f}');
        let (operation, key) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
        let content = fields.next().unwrap_or_default();
        match operation {
            "store" => match store.store(key, content, None) {
                Ok(()) => {
                    assert!(model.len() < 8 || model.contains_key(key), "more memories than limits.memory_entries");
                    links.remove(key);
                    model.insert(key.to_owned(), content.to_owned());
                }
                Err(why) => scratch.check_text(&why.to_string()),
            },
            "delete" => match store.delete(key) {
                Ok(removed) => assert_eq!(model.remove(key).is_some() || links.remove(key), removed, "{key:?}"),
                Err(why) => {
                    scratch.check_text(&why.to_string());
                    assert!(!model.contains_key(key), "what was stored under {key:?} cannot be deleted");
                }
            },
            // A person puts a link to somewhere else in a memory's place.
            "link" => {
                let name = key.replace(['/', '\0'], "_");
                let file = scratch.inside().join("memory").join(format!("{name}.md"));
                if symlink("../../outside/secret", file).is_ok() {
                    links.insert(name);
                }
            }
            _ => {}
        }
        match store.load(key) {
            Ok(Some(content)) => {
                scratch.check_text(&content);
                assert_eq!(Some(&content), model.get(key), "{key:?}");
            }
            Ok(None) => assert!(!model.contains_key(key), "{key:?} is lost"),
            Err(why) => {
                scratch.check_text(&why.to_string());
                assert!(!model.contains_key(key), "what was stored under {key:?} cannot be loaded");
            }
        }
    }
    let mut listed: Vec<_> = store.list().unwrap().into_iter().map(|entry| entry.key).collect();
    listed.sort();
    assert_eq!(listed, model.keys().cloned().collect::<Vec<_>>());
    let injected: u64 = store.injection().iter().map(|note| note.content.chars().count() as u64).sum();
    assert!(injected <= limits.memory_injection_chars);
    scratch.check_text(&store.injection_text());
    drop(store);
    for path in tree(&scratch.inside()).keys() {
        let plain = path == "memory" || path.strip_prefix("memory/").is_some_and(|name| !name.contains('/'));
        assert!(plain, "{path:?} is not a memory");
    }
    scratch.check();
}
