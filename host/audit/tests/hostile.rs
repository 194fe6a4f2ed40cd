//! Any bytes are audited, in bounded time and memory, and twice the same.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test helper fails its test"
)]

use std::{
    sync::LazyLock,
    time::{Duration, Instant},
};

use guild_audit::{
    Audit, Difference, Fact, FactName, Subject,
    model::{ImportState, Kind},
};
use guild_contract::Limits;
use jsonschema::Validator;

static SCHEMA: LazyLock<Validator> = LazyLock::new(|| jsonschema::validator_for(&Audit::schema()).unwrap());

fn audit(bytes: &[u8]) -> Audit {
    let limits = Limits::default();
    let subject =
        Subject { file: "x.wasm", bytes, member: None, limits: &limits, signature: None, trusted: None, whole: None };
    let begun = Instant::now();
    let audit = Audit::of(&subject);
    // A debug build on a loaded machine; what is quadratic takes hours.
    assert!(begun.elapsed() < Duration::from_secs(60), "it took {:?}", begun.elapsed());
    assert_eq!(audit, Audit::of(&subject));
    let json = serde_json::to_value(&audit).unwrap();
    assert!(json.to_string().len() < 32 * 1024 * 1024);
    assert!(SCHEMA.is_valid(&json));
    audit
}

fn wat(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap()
}

fn names(audit: &Audit) -> Vec<&'static str> {
    audit.facts.iter().map(|fact| fact.name.as_str()).collect()
}

/// A number in LEB128.
fn leb(mut n: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let byte = (n & 0x7f) as u8;
        n >>= 7;
        if n == 0 {
            bytes.push(byte);
            return bytes;
        }
        bytes.push(byte | 0x80);
    }
}

fn section(id: u8, content: &[u8]) -> Vec<u8> {
    [&[id][..], &leb(content.len()), content].concat()
}

const COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0";
const MODULE: &[u8] = b"\0asm\x01\0\0\0";

#[test]
fn what_is_no_component_is_told_what_it_is() {
    for (bytes, kind, says) in [
        (&b""[..], Kind::Other, "does not begin"),
        (b"hello", Kind::Other, "does not begin"),
        (b"\x7fELF\x02\x01\x01\0", Kind::Precompiled, "precompiled"),
        (MODULE, Kind::CoreModule, "core module"),
        (b"\0asm", Kind::Damaged, "not a WebAssembly component"),
        (b"\0asm\x0d\0\x01\0\x07\xff", Kind::Damaged, "not a WebAssembly component"),
    ] {
        let audit = audit(bytes);
        assert_eq!((audit.identity.kind, names(&audit)), (kind, vec!["not-a-component"]));
        assert!(!audit.is_readable() && audit.facts[0].text.contains(says), "{:?}", audit.facts);
    }
}

#[test]
fn every_beginning_of_a_component_is_audited() {
    let whole = wat(
        r#"(component (core module (memory 1) (data (i32.const 0) "x") (func)) (import "a:b/c" (instance (export "f" (func)))))"#,
    );
    for end in 0..whole.len() {
        audit(&whole[..end]);
    }
    assert!(audit(&whole).is_readable());
}

#[test]
fn every_changed_byte_is_audited() {
    let whole = wat(
        r#"(component (core module (memory 1) (data (i32.const 0) "x") (func)) (import "a:b/c" (instance (export "f" (func)))))"#,
    );
    for at in 8..whole.len() {
        for byte in [0, 1, 0x7f, 0x80, 0xff] {
            let mut changed = whole.clone();
            changed[at] = byte;
            audit(&changed);
        }
    }
}

#[test]
fn nesting_is_bounded() {
    let mut nested = COMPONENT.to_vec();
    for _ in 0..5000 {
        nested = [COMPONENT, &section(4, &nested)].concat();
    }
    let audit = audit(&nested);
    assert!(audit.facts[0].text.contains("nested more than 100 deep"), "{:?}", audit.facts);
}

#[test]
fn deep_types_are_told_and_do_no_harm() {
    // (list (list (list ..))): each type refers to the one before.
    let mut types = leb(100_000);
    types.extend([0x70, 0x7d]);
    for n in 0..99_999 {
        types.push(0x70);
        types.extend(leb(n));
    }
    let audit = audit(&[COMPONENT, &section(7, &types)].concat());
    assert!(names(&audit).contains(&"not-valid"), "{:?}", audit.facts);
}

#[test]
fn a_hundred_thousand_functions_are_counted() {
    let bodies: Vec<u8> = std::iter::repeat_n([2, 0, 0x0b], 100_000).flatten().collect();
    let module = [
        MODULE,
        &section(1, &[1, 0x60, 0, 0]),
        &section(3, &[leb(100_000), vec![0; 100_000]].concat()),
        &section(10, &[leb(100_000), bodies].concat()),
    ];
    let audit = audit(&[COMPONENT, &section(1, &module.concat())].concat());
    assert_eq!((audit.contents.functions, audit.contents.core_modules), (100_000, 1));
    assert!(!names(&audit).contains(&"not-valid"), "{:?}", audit.facts);
}

#[test]
fn a_million_imports_are_counted_and_a_thousand_listed() {
    let mut imports = leb(1_000_000);
    for n in 0..1_000_000 {
        let name = format!("a:b/i{n}");
        imports.push(0);
        imports.extend(leb(name.len()));
        imports.extend(name.as_bytes());
        imports.extend([5, 0]);
    }
    // (type (instance))
    let bytes = [COMPONENT, &section(7, &[1, 0x42, 0]), &section(10, &imports)].concat();
    let audit = audit(&bytes);
    assert_eq!((audit.imports_total, audit.imports.len()), (1_000_000, 1000));
    assert!(audit.imports.iter().all(|import| import.state == ImportState::Unknown));
    assert!(audit.facts.len() <= 1000 && names(&audit).contains(&"import-unknown"));
}

#[test]
fn what_would_not_start_is_told() {
    let audit = audit(&wat("(component (core module (memory 65536) (table 200000 funcref)))"));
    let found: Vec<_> =
        audit.facts.iter().filter(|f| f.name == FactName::BeyondLimits).map(|f| f.place.as_str()).collect();
    assert_eq!(found, ["limits.memory_bytes", "limits.table_elements"]);
    assert_eq!(audit.contents.memory_bytes, 4 << 30);
}

#[test]
fn a_hundred_thousand_sections_are_counted_together() {
    let mut bytes = COMPONENT.to_vec();
    for n in 0..100_000 {
        let name = format!("s{n}");
        bytes.extend(section(0, &[leb(name.len()), name.into_bytes()].concat()));
    }
    let audit = audit(&bytes);
    assert!(audit.contents.sections.len() <= 61 && names(&audit).contains(&"not-all-listed"));
    assert_eq!(audit.contents.sections.iter().map(|section| section.count).sum::<u64>(), 100_000);
}

#[test]
fn what_comes_after_a_hundred_thousand_sections_is_not_looked_into_and_that_is_told() {
    let module = [MODULE, &section(5, &[1, 0, 80])].concat();
    let empty = section(0, &[0]).repeat(700_000);
    let path = section(0, &[&[1, b'x'][..], b"/home/ann/src/lib.rs"].concat());
    let audit = audit(&[COMPONENT, &empty, &path, &section(1, &module)].concat());
    assert!(names(&audit).contains(&"not-all-listed") && audit.contents.host_paths.is_empty());
    // What its modules declare is counted to the end.
    assert_eq!((audit.contents.core_modules, audit.contents.memory_bytes), (1, 80 * 65536));
}

#[test]
fn functions_that_the_host_does_not_have_are_told() {
    let audit = audit(&wat(r#"(component
        (import "wasi:random/random@0.2.0" (instance
            (export "get-random-u64" (func (result u64))) (export "write" (func)) (export "exfiltrate" (func))))
        (import "wasi:sockets/tcp@0.2.0" (instance (export "anything" (func)))))"#));
    let found: Vec<_> = audit.facts.iter().filter(|fact| fact.name == FactName::ImportUnknown).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].place, "import wasi:random/random@0.2.0");
    assert!(found[0].text.contains("`exfiltrate`, `write`; a host"), "{}", found[0].text);
}

#[test]
fn long_names_that_begin_alike_are_told_apart() {
    let importing = |last: &str| {
        let names = ["x", last].map(|last| format!(r#"(import "a:b/{}{last}" (instance))"#, "a".repeat(500)));
        audit(&wat(&format!("(component {})", names.concat())))
    };
    let (old, new) = (importing("y"), importing("z"));
    let difference = Difference::between(&old, &new);
    let imports: Vec<_> = difference.changes.iter().filter(|change| change.subject == "import").collect();
    assert_eq!(imports.len(), 2, "{imports:?}");
    assert!(imports.iter().any(|c| c.old.is_none()) && imports.iter().any(|c| c.new.is_none()));
}

#[test]
fn a_saved_audit_made_of_facts_is_compared_at_once() {
    let mut old = audit(b"no component");
    let one = old.facts[0].clone();
    old.facts = (0..20_000).map(|n| Fact { text: format!("old {n}"), ..one.clone() }).collect();
    let mut new = old.clone();
    new.facts.iter_mut().for_each(|fact| fact.text.push('.'));
    let begun = Instant::now();
    assert_eq!(Difference::between(&old, &new).new_facts.len(), 20_000);
    assert!(begun.elapsed() < Duration::from_secs(2), "it took {:?}", begun.elapsed());
}

#[test]
fn data_made_of_paths_and_programs_is_bounded() {
    let mut data = "/home/a/b ".repeat(400_000).into_bytes();
    data.extend(MODULE.repeat(400_000));
    data.extend(b"\x7fELF\x02\x01\x01\0".repeat(400_000));
    let bytes = section(0, &[leb(4), b"blob".to_vec(), data.clone()].concat());
    let module =
        [MODULE, &section(5, &[1, 0, 1]), &section(11, &[vec![1, 1], leb(data.len()), data].concat())].concat();
    let audit = audit(&[COMPONENT, &bytes, &section(1, &module)].concat());
    assert!(audit.contents.host_paths.len() <= 10 && audit.contents.programs.len() <= 10);
    assert!(
        names(&audit).contains(&"host-paths") && names(&audit).contains(&"embedded-program"),
        "{:?}",
        names(&audit)
    );
}

#[test]
fn a_name_that_steers_a_terminal_is_told() {
    let name = "a\u{1b}[2J\u{202e}b";
    let import = [&[1, 0][..], &leb(name.len()), name.as_bytes(), &[5, 0]].concat();
    let audit = audit(&[COMPONENT, &section(7, &[1, 0x42, 0]), &section(10, &import)].concat());
    assert!(names(&audit).contains(&"hidden-characters"), "{:?}", audit.facts);
}
